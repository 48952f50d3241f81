//! Providers of which nothing is known for a while, and what that means for their endpoints: those stay, unless somebody asks for
//! them to be withdrawn after a time. Never the last ones, and not while it may be the hub that hears nobody.

use std::{
    collections::BTreeMap,
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use karmada_api::{
    conditions,
    consts::{condition, extension},
};
use karmada_core::services::multi;
use karmada_meta::time::Time;
use karmada_objects::key::Key;
use parking_lot::Mutex;

use super::super::Context;
use crate::known::{heads::ClusterHead, index::Change};

/// So long a provider that is back has for telling what is other than before, which its agent does first of all.
const RETURNS: Duration = Duration::from_secs(5);
/// When it is looked at again whether endpoints that may be withdrawn would be the last ones.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many silent providers are named.
const NAMED: usize = 5;

/// What is to become of a provider's endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// They are in use. When that may change, if that is known.
    InUse(Option<Duration>),
    /// Those that are withdrawn stay so, and no others are, for so long.
    AsItIs(Duration),
    /// They are withdrawn where there are others; after so long it is looked at again.
    Due(Duration),
}

/// Since when clusters are heard again, or are not any more.
pub(crate) struct Silence {
    context: Arc<Context>,
    /// By the hub's clock.
    turned: Arc<Mutex<BTreeMap<String, Duration>>>,
}

impl fmt::Debug for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Silence").field("clusters", &self.turned.lock().len()).finish()
    }
}

/// Whether a cluster is heard that was not, or the other way.
pub(super) fn turns(change: &Change<'_, ClusterHead>) -> bool {
    let is_heard = |head: &Arc<ClusterHead>| head.answers();
    change.old.is_some_and(is_heard) != change.new.is_some_and(is_heard)
}

impl Silence {
    /// One that hears the context's clusters from now on.
    pub(crate) fn new(context: &Arc<Context>) -> Arc<Self> {
        let turned: Arc<Mutex<BTreeMap<String, Duration>>> = Arc::default();
        let (notes, env) = (turned.clone(), context.env.clone());
        context.known.clusters.listen(move |change| {
            if change.new.is_none() {
                notes.lock().remove(&change.key.name);
            } else if turns(change) {
                notes.lock().insert(change.key.name.clone(), env.now());
            }
        });
        Arc::new(Self { context: context.clone(), turned })
    }

    /// Since when nothing is known of a provider's Pods, as far as its Cluster says: its agent is silent, or its member does not
    /// answer the hub.
    pub(super) fn since(&self, cluster: &str) -> Option<Time> {
        let head = self.context.known.clusters.get(&Key::cluster_scoped(cluster))?;
        let ready = conditions::find(head.conditions(), condition::READY)?;
        (!head.answers()).then_some(ready.last_transition_time)
    }

    /// When a cluster has last begun or ceased to be heard, by the hub's clock.
    pub(super) fn turned(&self, cluster: &str) -> Option<Duration> {
        self.turned.lock().get(cluster).copied()
    }

    /// Whether this hub itself has heard a cluster lately. What its Cluster says may be some time old.
    pub(super) fn was_just_heard(&self, cluster: &str) -> bool {
        let head = self.context.known.clusters.get(&Key::cluster_scoped(cluster));
        if head.is_some_and(|head| head.is_pushed()) {
            return self.since(cluster).is_none();
        }
        let (wall, mut heard) = (self.context.env.wall(), false);
        self.context.accounts.judgement.sightings([cluster], |seen| {
            heard = seen.heard.is_some_and(|at| at.elapsed(wall) <= seen.grace / 2);
        });
        heard
    }

    /// What is to become of a provider's endpoints that somebody asks to be withdrawn after a time, if somebody does.
    pub(super) fn standing(&self, provider: &str, after: Option<Duration>) -> Standing {
        let Some(after) = after else { return Standing::InUse(None) };
        let (wall, now) = (self.context.env.wall(), self.context.env.now());
        let turned = self.turned(provider);
        let Some(since) = self.since(provider) else {
            // What it told before it was away does not count yet.
            let left = turned.and_then(|turned| (turned + RETURNS).checked_sub(now));
            let left = left.filter(|left| !left.is_zero());
            return left.map_or(Standing::InUse(None), Standing::AsItIs);
        };
        let Some(until) = multi::later(since, after) else { return Standing::InUse(None) };
        let left = SystemTime::from(until.timestamp()).duration_since(wall).unwrap_or_default();
        // A member that does not answer may not have been well before.
        let left = turned.map_or(left, |turned| left.max((turned + after).saturating_sub(now)));
        if !left.is_zero() {
            return Standing::InUse(Some(left));
        }
        let clusters = &self.context.known.clusters;
        let is_held =
            |head: Arc<ClusterHead>| conditions::is_true(head.conditions(), extension::EVICTIONS_HELD);
        if clusters.get(&Key::cluster_scoped(provider)).is_some_and(is_held) {
            return Standing::InUse(Some(PATIENCE));
        }
        // What stands in Clusters is from before: nothing begins by that, and nothing ends.
        match self.context.accounts.judgement.is_blind() {
            true => Standing::AsItIs(PATIENCE),
            false => Standing::Due(PATIENCE),
        }
    }

    /// One line about those of some clusters that are silent.
    pub(super) fn message<'a>(&self, clusters: impl IntoIterator<Item = &'a str>) -> Option<String> {
        let silent: Vec<String> = clusters
            .into_iter()
            .filter_map(|cluster| Some(format!("{cluster} (since {})", self.since(cluster)?)))
            .collect();
        let more = silent.len().checked_sub(NAMED).filter(|more| *more > 0);
        (!silent.is_empty()).then(|| {
            format!(
                "nothing is heard of {}{}: endpoints there are those of the last report; {} withdraws them after a time",
                silent[..silent.len().min(NAMED)].join(", "),
                more.map_or(String::new(), |more| format!(" and {more} more")),
                extension::WITHDRAW_AFTER
            )
        })
    }
}
