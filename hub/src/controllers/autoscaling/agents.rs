//! Of the agents that are asked: since when each is heard, and whether it samples.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use karmada_core::autoscale::trust::{Beat, Pulse};
use karmada_meta::time::Time;
use parking_lot::Mutex;

use crate::known::{
    heads::{ClusterHead, WorkHead},
    index::Change,
};

/// What is known of agents, by their clusters.
#[derive(Debug, Default)]
pub(super) struct Agents(Mutex<BTreeMap<String, Agent>>);

#[derive(Clone, Copy, Debug, Default)]
struct Agent {
    /// Since when it is heard. What Ready says may change in that time.
    since: Option<Time>,
    /// Its sampling, from the first word of it or question on.
    pulse: Option<Pulse>,
}

impl Agents {
    /// A Cluster changes. Whether its agent is heard now that was not before, so that it is to be asked anew.
    pub(super) fn heed(&self, change: &Change<'_, ClusterHead>) -> bool {
        let name = &change.key.name;
        let Some(new) = change.new else {
            self.0.lock().remove(name);
            return false;
        };
        let mut all = self.0.lock();
        let agent = all.entry(name.clone()).or_default();
        let Some(now) = new.heard_since() else {
            agent.since = None;
            return false;
        };
        // True may become False without a silence. The same word from another time was another one in between.
        let stays = change.old.is_some_and(|old| {
            old.heard_since().is_some_and(|then| then == now || old.ready() != new.ready())
        });
        if stays && agent.since.is_some() || agent.since == Some(now) {
            return false;
        }
        agent.since = Some(now);
        true
    }

    /// A Work changes. How old the answer is that it brings, if it does. Of one that was found that is what its agent says, if it
    /// can be read.
    pub(super) fn hear(
        &self,
        cluster: &str,
        change: &Change<'_, WorkHead>,
        (now, wall): (Duration, SystemTime),
    ) -> Option<Duration> {
        let told = |work: Option<&Arc<WorkHead>>| work?.sample.as_ref()?.told.clone();
        let answer = told(change.new).filter(|answer| Some(answer) != told(change.old).as_ref())?;
        let mut all = self.0.lock();
        let pulse = all.entry(cluster.to_owned()).or_default().pulse.get_or_insert_with(|| Pulse::found(now));
        if change.old.is_some() {
            pulse.told(now);
            return Some(Duration::ZERO);
        }
        let at: Time = answer.ok()?.at.parse().ok()?;
        Some(at.elapsed(wall))
    }

    /// Since when a cluster is heard.
    pub(super) fn since(&self, cluster: &str, head: &ClusterHead) -> Option<Time> {
        let heard = head.heard_since()?;
        Some(self.0.lock().get(cluster).and_then(|agent| agent.since).unwrap_or(heard))
    }

    /// How a cluster's sampling stands, which may owe an answer.
    pub(super) fn beat(&self, cluster: &str, owes: bool, now: Duration) -> Beat {
        self.pulse(cluster, now, |pulse| {
            if owes {
                pulse.owes(now);
            }
            pulse.beat(now)
        })
    }

    /// A cluster is asked once more.
    pub(super) fn asked(&self, cluster: &str, now: Duration) {
        self.pulse(cluster, now, |pulse| pulse.asked(now));
    }

    fn pulse<T>(&self, cluster: &str, now: Duration, with: impl FnOnce(&mut Pulse) -> T) -> T {
        let mut all = self.0.lock();
        let agent = all.entry(cluster.to_owned()).or_default();
        with(agent.pulse.get_or_insert_with(|| Pulse::found(now)))
    }
}
