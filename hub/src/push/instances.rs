//! The instances that run, each as a task of its own: one that ends or panics takes none of the others along, and begins anew
//! alone.

use std::{collections::HashMap, panic::AssertUnwindSafe, time::Duration};

use futures::FutureExt as _;
use karmada_client::Backoff;
use karmada_env::Env;
use tokio::{
    task::{Id, JoinSet},
    time::{Instant, sleep},
};

use super::{
    instance::AGAIN,
    roster::{Next, Roster, Running},
};

/// One that has gone on for so long did not end by what it began with.
const LASTS: Duration = Duration::from_secs(300);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Instances {
    /// Who is to have one.
    pub(super) roster: Roster,
    /// Each says whether it has lasted.
    tasks: JoinSet<bool>,
    /// Of which cluster each is.
    names: HashMap<Id, String>,
    /// How often one of a cluster has ended by itself, one after another.
    failed: HashMap<String, Backoff>,
}

impl Instances {
    /// Begins one that does this work; after a while, if the last has ended by itself.
    pub(super) fn begin<W, F>(&mut self, name: &str, one: Running, again: bool, env: &Env, work: W)
    where
        W: FnOnce() -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let (cluster, stop) = (name.to_owned(), one.stop.clone());
        let pause = again
            .then(|| self.failed.entry(cluster.clone()).or_insert_with(|| Backoff::new(AGAIN)).next(env));
        self.roster.begins(name, one);
        let task = self.tasks.spawn(async move {
            if let Some(pause) = pause {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return false,
                    () = sleep(pause) => {}
                }
            }
            let begun = Instant::now();
            // Called within, so that the work is in the task's memory once.
            if AssertUnwindSafe(async move { work().await }).catch_unwind().await.is_err() {
                tracing::error!(
                    cluster,
                    "what works on a cluster in push mode has panicked, and begins anew"
                );
            }
            begun.elapsed() >= LASTS
        });
        self.names.insert(task.id(), name.to_owned());
    }

    /// The next one that has ended, and what is to be done; none where none runs. Cancel-safe.
    pub(super) async fn ended(&mut self) -> Option<(String, Next)> {
        loop {
            let (id, lasted) = match self.tasks.join_next_with_id().await? {
                Ok(ended) => ended,
                // What panics is caught within, but for what it drops on its way out. Its cluster is worked on again, too.
                Err(error) => {
                    tracing::error!(%error, "what works on a cluster in push mode has not ended as it should");
                    (error.id(), false)
                }
            };
            let Some(name) = self.names.remove(&id) else { continue };
            let next = self.roster.ended(&name);
            if lasted || next != Next::Again {
                self.failed.remove(&name);
            }
            return Some((name, next));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::UNIX_EPOCH};

    use karmada_env::ManualClock;
    use parking_lot::Mutex;
    use tokio_util::sync::CancellationToken;

    use super::*;

    /// Instances that say when they have begun, and then last for so long.
    struct World {
        instances: Instances,
        env: Env,
        stop: CancellationToken,
        begun: Arc<Mutex<Vec<(String, Instant)>>>,
    }

    impl World {
        fn new() -> Self {
            Self {
                instances: Instances::default(),
                env: Env::seeded(ManualClock::new(UNIX_EPOCH), 7),
                stop: CancellationToken::new(),
                begun: Arc::default(),
            }
        }

        /// One that panics when it has lasted for so long, or else lasts until it is told to end.
        fn begin(&mut self, name: &str, again: bool, panics: Option<Duration>) {
            let (begun, stop, cluster) = (self.begun.clone(), self.stop.child_token(), name.to_owned());
            let one = Running { uid: "1".to_owned(), stop: stop.clone(), look: Arc::default() };
            self.instances.begin(name, one, again, &self.env, move || async move {
                begun.lock().push((cluster, Instant::now()));
                let Some(lasts) = panics else { return stop.cancelled().await };
                sleep(lasts).await;
                panic!("an instance of the test, after {lasts:?}");
            });
        }

        /// How long it took from when one has panicked until the next has begun.
        async fn pause(&mut self, lasts: Duration) -> Duration {
            assert_eq!(self.instances.ended().await, Some(("m".to_owned(), Next::Again)));
            let (ended, before) = (Instant::now(), self.times("m").len());
            self.begin("m", true, Some(lasts));
            while self.times("m").len() == before {
                sleep(Duration::from_millis(100)).await;
            }
            self.times("m")[before] - ended
        }

        /// When instances of a cluster have begun.
        fn times(&self, cluster: &str) -> Vec<Instant> {
            self.begun.lock().iter().filter(|(name, _)| name == cluster).map(|(_, at)| *at).collect()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_panics_begins_anew_alone_and_less_and_less_often() {
        let mut world = World::new();
        for name in ["m", "n"] {
            assert!(world.instances.roster.wants(name, "1"));
            world.begin(name, false, (name == "m").then_some(Duration::ZERO));
        }
        // Timers have milliseconds.
        let slack = Duration::from_millis(1);
        let mut most = AGAIN.min;
        for nth in 0..10 {
            let pause = world.pause(Duration::ZERO).await;
            assert!((most / 2..=most + slack).contains(&pause), "{nth}: {pause:?}, at most {most:?}");
            most = (most * 2).min(AGAIN.max);
        }
        assert_eq!(most, AGAIN.max);
        // One that lasts is no sign that the next does not.
        world.pause(LASTS).await;
        let pause = world.pause(Duration::ZERO).await;
        assert!(pause <= AGAIN.min + slack, "{pause:?}");
        assert_eq!(world.times("n").len(), 1, "the other goes on");
        // It is not waited for where it is wanted no more, and the other ends as it is told to.
        assert_eq!(world.instances.ended().await, Some(("m".to_owned(), Next::Again)));
        world.begin("m", true, Some(Duration::ZERO));
        for name in ["m", "n"] {
            world.instances.roster.unwants(name);
        }
        let told = Instant::now();
        for _ in 0..2 {
            assert!(matches!(world.instances.ended().await, Some((_, Next::Rest))));
        }
        assert_eq!((told.elapsed(), world.instances.ended().await), (Duration::ZERO, None));
        assert!(world.instances.failed.is_empty() && world.instances.names.is_empty());
    }

    /// Panics when it is dropped, which nobody within the task catches.
    struct Trap;

    impl Drop for Trap {
        fn drop(&mut self) {
            panic!("a trap of the test");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_panics_on_its_way_out_begins_anew_as_well() {
        let mut world = World::new();
        assert!(world.instances.roster.wants("m", "1"));
        let one = Running { uid: "1".to_owned(), stop: world.stop.child_token(), look: Arc::default() };
        let (trap, stop) = (Trap, one.stop.clone());
        // Dropped with the work that has not begun, outside of what catches its panics.
        world.instances.begin("m", one, true, &world.env, move || async move { drop(trap) });
        stop.cancel();
        assert_eq!(world.instances.ended().await, Some(("m".to_owned(), Next::Begin)));
        assert!(world.instances.roster.wants("m", "1"), "it has none that is thought to run");
    }
}
