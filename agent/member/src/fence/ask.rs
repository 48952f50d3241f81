//! Asking the hub whether it still wants what is not running.

use std::{collections::BTreeMap, time::Duration};

use karmada_core::judge::guard::State;
use tokio::time::sleep;

use super::{Fence, Guarded};

/// After a question that got no answer.
const RETRY: Duration = Duration::from_secs(1);

impl Fence {
    /// Asks for ever.
    pub(crate) async fn ask(&self) {
        let mut asking = self.asking.listen();
        loop {
            let pause = self.ask_once().await;
            let retry = async {
                match pause {
                    Some(pause) => sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = asking.woken() => {}
                () = retry => {}
            }
        }
    }

    /// Asks about all Works that there is something to ask about. Answers when to ask again, if a question got no answer.
    async fn ask_once(&self) -> Option<Duration> {
        let now = self.moment();
        let (renewal, mut names) = {
            let inner = self.inner.lock();
            let another = inner.history.another(now);
            let asks = |guarded: &&Guarded| guarded.guard.asks(inner.renewal, another, now);
            let asks = inner.guards.values().filter(asks);
            let names: BTreeMap<String, ()> = asks.map(|guarded| (guarded.work.clone(), ())).collect();
            (inner.renewal, names)
        };
        // One that is known to be going, or to be unwanted, changes before the answer does.
        names.retain(|name, ()| self.desired.wants(name));
        // Of one that was only written down nothing is known since.
        if self.is_idle() || renewal.monotonic.is_none() {
            return None;
        }
        let mut again = None;
        for name in names.into_keys() {
            let wanted = match self.upstream.wants(&name).await {
                Ok(wanted) => wanted,
                Err(error) => {
                    tracing::debug!(cluster = %self.cluster, work = %name, %error, "cannot ask whether the Work is wanted");
                    if let Some(pause) = error.retry_after() {
                        // Whoever asks for a pause does not want to hear of the others either, whatever happens.
                        sleep(pause).await;
                        return Some(RETRY);
                    }
                    again = Some(RETRY);
                    continue;
                }
            };
            let now = self.moment();
            let mut changed = false;
            let mut inner = self.inner.lock();
            let another = inner.history.another(now);
            for guarded in inner.guards.values_mut().filter(|guarded| guarded.work == name) {
                changed |= guarded.change(|guard| guard.answered(renewal, another, wanted, now));
                if guarded.guard.state() == State::Running {
                    tracing::debug!(cluster = %self.cluster, work = %name, "the hub wants what is fenced");
                }
            }
            // What the ledger says of it is not so any more.
            inner.outdated |= changed;
            drop(inner);
            if changed {
                self.changed.wake();
            }
        }
        again
    }
}
