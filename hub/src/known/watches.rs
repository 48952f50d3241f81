//! How the watches do that keep what is known as new as the API.
//!
//! One that cannot be opened, or whose list cannot be read, leaves what is known as old as it is: whoever looks after the hub is told
//! so, with the reason, in the log and by `/readyz?verbose`.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc, time::Duration};

use karmada_client::{latest, watch::Health};
use karmada_env::Env;
use parking_lot::Mutex;
use tokio::time::sleep;

/// So long a watch may fail before anybody is told: a server that restarts is away for less.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked whether one does.
const LOOK: Duration = Duration::from_secs(20);
/// How often the log says so of each.
const AGAIN: Duration = Duration::from_secs(300);
/// How many of them `/readyz` names.
const MOST_NAMED: usize = 3;

/// All watches of a hub. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Watches {
    all: Arc<Mutex<BTreeMap<&'static str, latest::Receiver<Health>>>>,
    env: Env,
}

/// A watch that fails, for how long, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Failing {
    name: &'static str,
    since: Duration,
    why: Arc<str>,
}

impl Watches {
    /// None yet.
    pub(crate) fn new(env: Env) -> Self {
        Self { all: Arc::default(), env }
    }

    /// One more, or another of that name.
    pub(crate) fn add(&self, name: &'static str, health: latest::Receiver<Health>) {
        self.all.lock().insert(name, health);
    }

    fn failing(&self, patience: Duration) -> Vec<Failing> {
        let now = self.env.now();
        let all = self.all.lock();
        let failing = all.iter().filter_map(|(name, health)| {
            let health = health.borrow();
            let since = now.saturating_sub(health.failing?);
            let why = health.error.clone()?;
            (since >= patience).then_some(Failing { name, since, why })
        });
        failing.collect()
    }

    /// What is to be said of them, in a line; nothing while all is well. Before the controllers are ready they wait for these.
    pub(crate) fn told(&self, ready: bool) -> String {
        let failing = self.failing(if ready { PATIENCE } else { Duration::ZERO });
        let mut line = String::new();
        for Failing { name, since, why } in failing.iter().take(MOST_NAMED) {
            let between = if line.is_empty() { "" } else { "; " };
            // Writing to a String cannot fail.
            let _ = write!(line, "{between}the watch of {name} fails for {}s: {why}", since.as_secs());
        }
        if failing.len() > MOST_NAMED {
            let _ = write!(line, "; and {} more", failing.len() - MOST_NAMED);
        }
        karmada_meta::text::line(&line, 2 << 10)
    }

    /// Says in the log which fail, for as long as it is polled.
    pub(crate) async fn log(self) {
        let mut said = BTreeMap::<&'static str, Duration>::new();
        loop {
            sleep(LOOK).await;
            let (failing, now) = (self.failing(PATIENCE), self.env.now());
            said.retain(|name, _| failing.iter().any(|one| one.name == *name));
            for Failing { name, since, why } in failing {
                if said.get(name).is_some_and(|last| now.saturating_sub(*last) < AGAIN) {
                    continue;
                }
                said.insert(name, now);
                tracing::warn!(
                    resource = name,
                    seconds = since.as_secs(),
                    error = &*why,
                    "a watch of the controllers keeps failing: what they know of it is old"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_keeps_failing_is_named_with_its_reason() {
        let env = Env::system();
        let watches = Watches::new(env.clone());
        let health = latest::Sender::new(Health::default());
        watches.add("works", health.subscribe());
        assert_eq!((watches.told(false), watches.told(true)), (String::new(), String::new()));
        let since = env.now();
        health.send_replace(Health {
            error: Some("the answer has\nodd bytes".into()),
            failing: Some(since),
            ..Health::default()
        });
        assert!(watches.told(false).starts_with("the watch of works fails for "), "{}", watches.told(false));
        assert!(watches.told(false).contains("odd bytes") && !watches.told(false).contains('\n'));
        assert_eq!(watches.told(true), "", "not yet");
        health.send_replace(Health { live: true, ..Health::default() });
        assert_eq!(watches.told(false), "");
        for name in ["a", "b", "c", "d"] {
            watches.add(name, health.subscribe());
        }
        health.send_replace(Health { error: Some("x".into()), failing: Some(since), ..Health::default() });
        assert!(watches.told(false).ends_with("; and 2 more"), "{}", watches.told(false));
    }
}
