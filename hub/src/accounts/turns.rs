//! Whose turn it is, namespace by namespace: decisions that depend on each other are taken one after the other, and those
//! of other namespaces wait for nobody.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

/// One turn for each namespace that has had one.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<BTreeMap<String, Weak<Turn<()>>>>);

/// So many are kept in mind before those are looked for that nobody holds or waits for.
const KEPT: usize = 64;

impl Turns {
    /// Held from a look at what others of a namespace have until what comes of it can be seen.
    pub(crate) async fn turn(&self, namespace: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.0.lock();
            match turns.get(namespace).and_then(Weak::upgrade) {
                Some(turn) => turn,
                None => {
                    if turns.len() >= KEPT {
                        turns.retain(|_, turn| turn.strong_count() > 0);
                    }
                    let turn = Arc::<Turn<()>>::default();
                    turns.insert(namespace.to_owned(), Arc::downgrade(&turn));
                    turn
                }
            }
        };
        turn.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_namespace_waits_for_itself_alone() {
        let turns = Turns::default();
        let first = turns.turn("shop").await;
        assert!(turns.turn("bank").now_or_never().is_some(), "another one");
        assert!(turns.turn("shop").now_or_never().is_none());
        drop(first);
        assert!(turns.turn("shop").now_or_never().is_some());
        for n in 0..1000 {
            drop(turns.turn(&n.to_string()).await);
        }
        assert!(turns.0.lock().len() <= KEPT, "those that nobody holds are forgotten");
    }
}
