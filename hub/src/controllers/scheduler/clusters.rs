//! Which bindings clusters concern that have changed in what placement looks at.
//!
//! What is on such a cluster is found by its name, and what may go there by the placements that mean it. Of those are looked
//! at whose place may come out otherwise ([`Stir::concerns`]): of a cluster that is lost, and so gets taints, no more than
//! the bindings that have no place yet; what is to leave it is the evictor's.
//!
//! What a cluster serves its agent says, as often as it likes. That concerns bindings of the kinds alone that are served now
//! and were not, or the other way round, and who says other things all the time is heard less and less often.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use karmada_api::cluster::ApiEnablement;
use karmada_client::WorkQueue;
use karmada_core::{
    affinity::Reach,
    gather::{Pace, Rounds},
    place::{self, Served, Stir},
};
use karmada_objects::{key::Key, scope::BindingKey};
use tokio::{
    task::yield_now,
    time::{Instant, sleep},
};

use crate::{
    controllers::Context,
    known::{
        heads::{BindingHead, ClusterHead},
        index::Change,
    },
};

/// Forms of a cluster that are kept until it is looked at. Of one that has had more meanwhile the oldest count.
const SIDES: usize = 8;
/// How many bindings are looked at before others run.
const PAGE: usize = 256;
/// While more wait for the scheduler than this, no more are told: what users change would come after all of them.
const AHEAD: usize = 32;
/// When it is looked again whether that many still wait.
const BREATH: Duration = Duration::from_millis(10);
/// So long they are waited for at most: where users change more than the scheduler can do, others have their turn, too.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often what a cluster serves is looked at, if it goes on changing.
const SERVED: Pace = Pace {
    few: 0,
    first: Duration::from_secs(2),
    each: Duration::from_secs(300),
    longest: Duration::from_secs(300),
};

/// What has become of a cluster.
#[derive(Debug, Default)]
pub(super) struct Stirred {
    /// As it was and is: a placement that meant it in between may have been carried out.
    sides: Vec<Arc<ClusterHead>>,
    /// Nothing if no more has changed than what it serves.
    most: Option<Stir>,
}

/// What a change of a cluster can do to placements.
fn stir(change: &Change<'_, ClusterHead>) -> Option<Stir> {
    Stir::of(change.old.map(|head| &*head.cluster), change.new.map(|head| &*head.cluster))
}

/// Whether a change of a cluster is anything to placement.
pub(super) fn matters(change: &Change<'_, ClusterHead>) -> bool {
    fn served(head: &Arc<ClusterHead>) -> Option<&Vec<ApiEnablement>> {
        head.cluster.status.as_ref().map(|status| &status.api_enablements)
    }
    stir(change).is_some() || change.old.map(served) != change.new.map(served)
}

impl Stirred {
    pub(super) fn note(&mut self, change: &Change<'_, ClusterHead>) {
        self.most = self.most.max(stir(change));
        [change.old, change.new].into_iter().flatten().for_each(|side| self.add(side));
    }

    fn add(&mut self, side: &Arc<ClusterHead>) {
        if !self.sides.contains(side) {
            if self.sides.len() == SIDES {
                self.sides.pop();
            }
            self.sides.push(side.clone());
        }
    }

    /// The same with what came later.
    fn and(mut self, later: &Self) -> Self {
        self.most = self.most.max(later.most);
        later.sides.iter().for_each(|side| self.add(side));
        self
    }

    fn served_otherwise(&self) -> BTreeSet<Served<'_>> {
        place::served_otherwise(self.sides.iter().map(|side| &*side.cluster))
    }
}

/// Clusters of which no more has changed than what they serve, and which did so a moment ago.
#[derive(Debug)]
pub(super) struct Later {
    rounds: Rounds<Key>,
    held: BTreeMap<Key, (Duration, Stirred)>,
}

impl Default for Later {
    fn default() -> Self {
        Self { rounds: Rounds::of(SERVED), held: BTreeMap::new() }
    }
}

impl Later {
    /// How long until one that is held has its turn.
    pub(super) fn next(&self, now: Duration) -> Option<Duration> {
        self.held.values().map(|(due, _)| due.saturating_sub(now)).min()
    }

    /// Those whose turn it is, of a batch and of those that were held.
    pub(super) fn sift(&mut self, batch: BTreeMap<Key, Stirred>, now: Duration) -> BTreeMap<Key, Stirred> {
        for (key, stirred) in batch {
            let stirred = match self.held.remove(&key) {
                Some((_, held)) => held.and(&stirred),
                None => stirred,
            };
            let wait = if stirred.most.is_some() { Duration::ZERO } else { self.rounds.wait(&key, 1, now) };
            self.held.insert(key, (now + wait, stirred));
        }
        let due = self.held.extract_if(.., |_, (due, _)| *due <= now);
        let due: BTreeMap<_, _> = due.map(|(key, (_, stirred))| (key, stirred)).collect();
        for (key, _) in due.iter().filter(|(_, stirred)| stirred.most.is_none()) {
            self.rounds.begin(key.clone(), 1, now);
        }
        due
    }
}

/// What has become of some clusters together.
#[derive(Debug, Default)]
struct Together<'a> {
    most: Option<Stir>,
    served: BTreeSet<Served<'a>>,
}

impl<'a> Together<'a> {
    fn of(stirred: impl IntoIterator<Item = &'a (Option<Stir>, BTreeSet<Served<'a>>)>) -> Self {
        let mut this = Self::default();
        for (most, served) in stirred {
            this.most = this.most.max(*most);
            this.served.extend(served);
        }
        this
    }

    fn is_nothing(&self) -> bool {
        self.most.is_none() && self.served.is_empty()
    }

    fn concerns(&self, head: &BindingHead) -> bool {
        let kind = (head.resource.api_version.as_str(), head.resource.kind.as_str());
        let stir = self.most.max(self.served.contains(&kind).then_some(Stir::Choice));
        head.placement.is_some() && stir.is_some_and(|stir| stir.concerns(head.recomputed, head.waits))
    }
}

/// Tells each binding whose place may depend on clusters that have changed.
pub(super) async fn affected_by(
    context: &Context,
    changed: &BTreeMap<Key, Stirred>,
    queue: &WorkQueue<BindingKey>,
    tell: impl Fn(BindingKey),
) {
    let known = &context.known;
    let changed: BTreeMap<_, _> = changed
        .iter()
        .map(|(key, stirred)| (key.name.as_str(), (stirred, (stirred.most, stirred.served_otherwise()))))
        .collect();
    for (cluster, (_, become_of)) in &changed {
        let together = Together::of([become_of]);
        let on = |head: &BindingHead| head.wanted.contains(*cluster) && together.concerns(head);
        let mut keys = known.naming(cluster, on).into_iter();
        while keys.len() > 0 {
            keys.by_ref().take(PAGE).for_each(&tell);
            breathe(queue).await;
        }
    }
    for (text, placement) in known.by_placement.that_may_mean(changed.keys().copied()) {
        let together = {
            let reach = Reach::new(&placement);
            let meant = |stirred: &Stirred| stirred.sides.iter().any(|side| reach.means(&side.cluster));
            Together::of(
                changed.values().filter(|(stirred, _)| meant(stirred)).map(|(_, become_of)| become_of),
            )
        };
        yield_now().await;
        if together.is_nothing() {
            continue;
        }
        for page in known.by_placement.bindings(&text).chunks(PAGE) {
            for key in page {
                let head = known.bindings.of(key.scope).get(&key.key);
                if head.is_some_and(|head| together.concerns(&head)) {
                    tell(BindingKey::clone(key));
                }
            }
            breathe(queue).await;
        }
    }
}

/// Lets others run, and the scheduler get through most of what it has.
async fn breathe(queue: &WorkQueue<BindingKey>) {
    yield_now().await;
    let until = Instant::now() + PATIENCE;
    while queue.len() > AHEAD && Instant::now() < until {
        sleep(BREATH).await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn head(kinds: &[&str], region: &str) -> Arc<ClusterHead> {
        let resources: Vec<_> = kinds.iter().map(|kind| json!({"name": "x", "kind": kind})).collect();
        Arc::new(ClusterHead::project(&json!({
            "metadata": {"name": "m"}, "spec": {"syncMode": "Pull", "region": region},
            "status": {"apiEnablements": [{"groupVersion": "v1", "resources": resources}]},
        })))
    }

    fn changed(old: &Arc<ClusterHead>, new: &Arc<ClusterHead>) -> BTreeMap<Key, Stirred> {
        let (key, mut stirred) = (Key::cluster_scoped("m"), Stirred::default());
        let change = Change { key: &key, old: Some(old), new: Some(new) };
        assert!(matters(&change));
        stirred.note(&change);
        BTreeMap::from([(key, stirred)])
    }

    #[test]
    fn who_says_all_the_time_that_it_serves_other_kinds_is_heard_less_and_less_often() {
        let (one, other) = (head(&["A"], ""), head(&["B"], ""));
        let (mut later, mut heard) = (Later::default(), Vec::new());
        for second in 0..1000 {
            let now = Duration::from_secs(1000 + second);
            let batch = if second % 2 == 0 { changed(&one, &other) } else { changed(&other, &one) };
            for stirred in later.sift(batch, now).into_values() {
                assert_eq!(stirred.served_otherwise().len(), 2, "whatever it says at last");
                heard.push(second);
            }
        }
        assert_eq!(heard, [0, 2, 6, 14, 30, 62, 126, 254, 510, 810]);
        let now = Duration::from_secs(2000);
        assert_eq!(later.next(now), Some(Duration::from_secs(110)));
        // What others change is looked at once, and what it says with it.
        let stirred = later.sift(changed(&one, &head(&["A"], "eu")), now);
        assert_eq!(
            stirred.into_values().map(|stirred| stirred.served_otherwise().len()).collect::<Vec<_>>(),
            [2]
        );
        assert_eq!(later.next(now), None);
        assert_eq!(
            later.sift(changed(&one, &other), now * 2).len(),
            1,
            "after a quiet while it is heard again"
        );
    }

    #[test]
    fn kinds_that_are_served_as_before_are_not_concerned() {
        let binding = |kind: &str| {
            BindingHead::project(&json!({"metadata": {"name": "a", "namespace": "shop"}, "spec": {
                "resource": {"apiVersion": "v1", "kind": kind, "name": "a"}, "placement": {}}}))
        };
        let concerned = |batch: &BTreeMap<Key, Stirred>| {
            let become_of: Vec<_> =
                batch.values().map(|stirred| (stirred.most, stirred.served_otherwise())).collect();
            let together = Together::of(&become_of);
            ["A", "B", "C"].map(|kind| together.concerns(&binding(kind)))
        };
        let served = changed(&head(&["A", "B"], ""), &head(&["A", "C"], ""));
        assert_eq!(concerned(&served), [false, true, true]);
        let moved = changed(&head(&["A"], ""), &head(&["A"], "eu"));
        assert_eq!(concerned(&moved), [true, true, true]);
    }
}
