//! Works that somebody other than the hub takes away: what is made again of them, and when ([`karmada_core::leave`]).
//!
//! The API does not say who has deleted something. What the hub deletes itself is noted before it does; a Work that goes
//! without that, and whose maker wants it, somebody else has deleted.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use karmada_core::{
    leave::{self, Taken},
    names,
};
use karmada_env::Env;
use karmada_objects::key::Key;
use parking_lot::Mutex;

use crate::known::{heads::WorkHead, index::Change};

/// How many deletions of the hub's own are noted at most. A Work that comes and goes between two looks of a watch leaves
/// its note behind; what is forgotten is hardly wanted.
const NOTED: usize = 1 << 17;

/// What is taken away, by cluster.
pub(crate) struct Takings {
    env: Env,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The uids of Works that the hub has deleted, until they are gone.
    ours: BTreeSet<String>,
    clusters: BTreeMap<String, Cluster>,
}

/// The Works of a cluster, by name.
#[derive(Default)]
struct Cluster {
    /// Those that somebody has deleted and that its agent has not let go of, with since when.
    going: BTreeMap<String, Duration>,
    /// Those that went so, with since when, until they are made again.
    gone: BTreeMap<String, Duration>,
    /// When the last of them was deleted, or went.
    last: Duration,
}

impl fmt::Debug for Takings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Takings").field("clusters", &self.state.lock().clusters.len()).finish_non_exhaustive()
    }
}

impl Takings {
    pub(crate) fn new(env: Env) -> Self {
        Self { env, state: Mutex::default() }
    }

    /// The hub is about to delete a Work, by its uid.
    pub(crate) fn ours(&self, uid: &str) {
        let ours = &mut self.state.lock().ours;
        if ours.len() >= NOTED {
            ours.clear();
        }
        ours.insert(uid.to_owned());
    }

    /// It did not, after all.
    pub(crate) fn not_ours(&self, uid: &str) {
        self.state.lock().ours.remove(uid);
    }

    /// The watch has brought this of a Work; `is_wanted` says whether its maker wants it where it is.
    pub(crate) fn heard(&self, change: &Change<'_, WorkHead>, is_wanted: impl FnOnce(&WorkHead) -> bool) {
        let Some(name) = names::cluster_of_namespace(&change.key.namespace) else { return };
        let (now, work) = (self.env.now(), &change.key.name);
        let Some(old) = change.old else {
            // It was made again.
            if let Some(cluster) = self.state.lock().clusters.get_mut(name) {
                cluster.gone.remove(work);
            }
            return;
        };
        let new = change.new.filter(|new| new.uid == old.uid);
        let goes = !old.deleting && new.is_none_or(|new| new.deleting);
        if !goes && new.is_some() {
            return;
        }
        let mut state = self.state.lock();
        let State { ours, clusters } = &mut *state;
        let is_ours = if new.is_none() { ours.remove(&old.uid) } else { ours.contains(&old.uid) };
        let was_going = clusters.get_mut(name).is_some_and(|cluster| cluster.going.remove(work).is_some());
        if !(was_going || goes && !is_ours && is_wanted(old)) {
            return;
        }
        let cluster = clusters.entry(name.to_owned()).or_default();
        // What went before the last pause is no matter any more.
        if cluster.going.is_empty() && !was_going && now.saturating_sub(cluster.last) >= leave::QUIET {
            cluster.gone.clear();
        }
        if cluster.going.is_empty() && cluster.gone.is_empty() && !was_going {
            tracing::info!(
                cluster = name,
                work,
                "somebody deletes Works of this cluster: they are made again when that has ended, unless the Cluster goes"
            );
        }
        cluster.last = now;
        match new {
            Some(_) => cluster.going.insert(work.clone(), now),
            None => cluster.gone.insert(work.clone(), now),
        };
    }

    /// A cluster has gone.
    pub(crate) fn forget(&self, cluster: &str) {
        self.state.lock().clusters.remove(cluster);
    }

    /// For how long a Work that is not there, or on its way out, is not to be made again.
    pub(crate) fn withheld(&self, key: &Key) -> Option<Duration> {
        let now = self.env.now();
        let state = self.state.lock();
        let cluster = state.clusters.get(names::cluster_of_namespace(&key.namespace)?)?;
        let (since, own) = match (cluster.gone.get(&key.name), cluster.going.get(&key.name)) {
            (Some(since), _) => (since, 0),
            (None, since) => (since?, 1),
        };
        leave::withheld(&Taken {
            ago: now.saturating_sub(*since),
            others_go: cluster.going.len() > own,
            last: now.saturating_sub(cluster.last),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use karmada_env::ManualClock;
    use serde_json::{Value, json};

    use super::*;

    struct Story {
        takings: Takings,
        clock: ManualClock,
    }

    fn head(uid: &str, deleting: bool) -> Arc<WorkHead> {
        let mut work = json!({"metadata": {"uid": uid, "annotations": {
            "resourcebinding.karmada.io/namespace": "n", "resourcebinding.karmada.io/name": "b"}}});
        if deleting {
            work["metadata"]["deletionTimestamp"] = Value::from("2026-01-01T00:00:00Z");
        }
        Arc::new(WorkHead::project(&work))
    }

    impl Story {
        fn begin() -> Self {
            let clock = ManualClock::new(std::time::SystemTime::UNIX_EPOCH);
            Self { takings: Takings::new(Env::seeded(clock.clone(), 1)), clock }
        }

        fn hears(&self, name: &str, old: Option<&Arc<WorkHead>>, new: Option<&Arc<WorkHead>>) {
            let key = Key::new("karmada-es-m", name);
            self.takings.heard(&Change { key: &key, old, new }, |_| true);
        }

        fn withheld(&self, name: &str) -> Option<u64> {
            self.takings.withheld(&Key::new("karmada-es-m", name)).map(|wait| wait.as_secs())
        }
    }

    #[test]
    fn what_somebody_deletes_is_withheld_and_what_the_hub_deletes_is_not() {
        let story = Story::begin();
        let (there, going) = (head("1", false), head("1", true));
        story.hears("a", None, Some(&there));
        story.hears("a", Some(&there), Some(&going));
        assert_eq!(story.withheld("a"), Some(10));
        assert_eq!(story.withheld("b"), None, "what nobody took is made");
        story.clock.advance(Duration::from_secs(5));
        story.hears("a", Some(&going), None);
        assert_eq!(story.withheld("a"), Some(10), "it went just now");
        // Another one, without an agent's finalizer; both wait for that.
        let other = head("2", false);
        story.clock.advance(Duration::from_secs(5));
        story.hears("b", Some(&other), None);
        assert_eq!((story.withheld("a"), story.withheld("b")), (Some(10), Some(10)));
        story.clock.advance(Duration::from_secs(4));
        story.hears("a", None, Some(&head("3", false)));
        assert_eq!((story.withheld("a"), story.withheld("b")), (None, Some(6)), "one was made by somebody");
        story.clock.advance(Duration::from_secs(6));
        assert_eq!(story.withheld("b"), None);

        let own = head("4", false);
        story.takings.ours("4");
        story.hears("c", Some(&own), Some(&head("4", true)));
        story.hears("c", Some(&head("4", true)), None);
        assert_eq!(story.withheld("c"), None);
        assert!(story.takings.state.lock().ours.is_empty(), "nothing is kept of it");
    }

    #[test]
    fn what_is_not_wanted_is_not_withheld_and_a_cluster_that_goes_is_forgotten() {
        let story = Story::begin();
        let key = Key::new("karmada-es-m", "a");
        let there = head("1", false);
        story.takings.heard(&Change { key: &key, old: Some(&there), new: None }, |_| false);
        assert_eq!(story.withheld("a"), None);
        story.hears("a", Some(&there), None);
        assert!(story.withheld("a").is_some());
        story.takings.forget("m");
        assert_eq!(story.withheld("a"), None);
    }
}
