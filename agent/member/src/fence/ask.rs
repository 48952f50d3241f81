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
            let answered = self.ask_once().await;
            let retry = async {
                if answered {
                    std::future::pending::<()>().await;
                }
                sleep(RETRY).await;
            };
            tokio::select! {
                biased;
                () = asking.woken() => {}
                () = retry => {}
            }
        }
    }

    /// Asks about all Works that there is something to ask about. Whether every question got an answer.
    async fn ask_once(&self) -> bool {
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
            return true;
        }
        let mut all = true;
        for name in names.into_keys() {
            let wanted = match self.upstream.wants(&name).await {
                Ok(wanted) => wanted,
                Err(error) => {
                    tracing::debug!(cluster = %self.cluster, work = %name, %error, "cannot ask whether the Work is wanted");
                    all = false;
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
        all
    }
}
