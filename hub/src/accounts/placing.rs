//! Where bindings go: what the hub knows, handed to [`karmada_core::place`].
//!
//! The scheduler asks whenever something has changed. The detector asks once, for a binding that it is about to make:
//! born with its clusters, it is on its way one write earlier. The scheduler looks at it all the same, and writes
//! down what came of it.
//!
//! Where room matters, decisions are taken one after the other, and each takes off the room what it gives
//! ([`karmada_core::estimate::outstanding`]): no two of them get the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use karmada_api::{
    cluster::ResourceSummary,
    consts::{annotation, extension},
    policy::{DEFAULT_SCHEDULER, Placement},
    work::{ResourceBindingSpec, ResourceBindingStatus, TargetCluster, WorkloadAffinityGroups},
};
use karmada_core::{
    allowance::{self, Allowances},
    estimate::outstanding::{self, Assigned, Ledger},
    fleet::{self, Member},
    names,
    nodes::{Node, report},
    place::{self, Decision, Explained, Peer, PlaceError, Request},
};
use karmada_env::Env;
use karmada_meta::{object, time::Time};
use karmada_objects::{key::Key, scope::BindingKey};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{MutexGuard, Notify};

use crate::{
    accounts::{Accounts, quotas},
    known::heads::{BindingHead, ClusterHead},
};

/// All clusters as one list, and what they have reported of their resources. Of a cluster that has changed the entry
/// is made anew when the list is next asked for.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    known: Mutex<Known>,
    /// Held from a look at the room until what is given of it is noted.
    turn: tokio::sync::Mutex<()>,
    /// Wakes whoever waits for room.
    news: Notify,
}

#[derive(Debug, Default)]
struct Known {
    summaries: BTreeMap<String, ResourceSummary>,
    /// What agents report of single nodes.
    nodes: BTreeMap<String, Vec<Node>>,
    /// What agents report that ResourceQuotas leave.
    allowances: BTreeMap<String, Allowances>,
    /// How many pods more than at its last report of nodes a cluster has.
    grown: BTreeMap<String, i64>,
    /// Clusters with the room that they report.
    members: BTreeMap<String, Arc<Member>>,
    /// What was given of it and is in no report yet.
    ledger: Ledger<BindingKey>,
    /// Clusters that are not in the list as they are by now.
    changed: BTreeSet<String>,
    /// Clusters whose room in the list is not as it is by now.
    stale: BTreeSet<String>,
    /// The same clusters, with the room that is left.
    list: Option<Arc<fleet::Fleet>>,
    /// Where bindings of groups have just been placed, and since which generation: the watch may be behind.
    placed: BTreeMap<BindingKey, (i64, BTreeSet<String>)>,
}

impl Known {
    /// A cluster is another one, or gone.
    fn forget(&mut self, cluster: &str) {
        self.members.remove(cluster);
        self.changed.insert(cluster.to_owned());
    }

    /// A cluster has other room.
    fn has_other_room(&mut self, cluster: &str) {
        self.members.remove(cluster);
        self.stale.insert(cluster.to_owned());
    }

    /// A cluster with the room that it reports.
    fn member(&mut self, name: &str, head: &ClusterHead) -> Arc<Member> {
        if let Some(member) = self.members.get(name) {
            return member.clone();
        }
        let nodes = self.nodes.get(name).cloned().unwrap_or_default();
        let allowances = self.allowances.get(name).cloned().unwrap_or_default();
        let made = Member::with_summary(head.cluster.clone(), self.summaries.get(name));
        let made = made.with_nodes(nodes).with_allowances(allowances);
        let made = Arc::new(made);
        self.members.insert(name.to_owned(), made.clone());
        made
    }

    /// The same with the room that is left.
    fn left(&self, member: Arc<Member>) -> Arc<Member> {
        let less = {
            let mut coming = self.ledger.on(member.name()).peekable();
            coming.peek().is_some().then(|| member.less(coming))
        };
        less.map_or(member, Arc::new)
    }
}

impl Fleet {
    /// All clusters; where their `room` matters, with what is left of it now.
    pub(crate) fn get(&self, accounts: &Accounts, room: bool) -> Arc<fleet::Fleet> {
        let mut known = self.known.lock();
        let known = &mut *known;
        known.stale.append(&mut known.ledger.lapse(accounts.env.now()));
        let clusters = &accounts.known.clusters;
        if let Some(list) = known.list.clone() {
            let mut changed = std::mem::take(&mut known.changed);
            if room {
                changed.append(&mut known.stale);
            }
            if changed.is_empty() {
                return list;
            }
            let (mut anew, mut gone) = (Vec::new(), BTreeSet::new());
            for name in changed {
                known.stale.remove(&name);
                if let Some(head) = clusters.get(&Key::cluster_scoped(name.as_str())) {
                    let member = known.member(&name, &head);
                    anew.push(known.left(member));
                } else {
                    gone.insert(name);
                }
            }
            let list = Arc::new(list.with(anew, &gone));
            known.list = Some(list.clone());
            return list;
        }
        let mut all = Vec::new();
        let mut there = BTreeSet::new();
        for (key, head) in clusters.all() {
            let member = known.member(&key.name, &head);
            all.push(known.left(member));
            there.insert(key.name);
        }
        known.members.retain(|name, _| there.contains(name));
        known.stale.clear();
        known.changed.clear();
        let list = Arc::new(fleet::Fleet::new(all));
        known.list = Some(list.clone());
        list
    }

    /// Held while a binding is decided on whose clusters need room.
    pub(crate) async fn turn(&self, spec: &ResourceBindingSpec) -> Option<MutexGuard<'_, ()>> {
        if place::asks_for_room(spec) { Some(self.turn.lock().await) } else { None }
    }

    /// A binding of this generation is about to get its clusters.
    fn give(
        &self,
        env: &Env,
        key: &BindingKey,
        generation: i64,
        spec: &ResourceBindingSpec,
        status: &ResourceBindingStatus,
        clusters: &[TargetCluster],
    ) {
        let assigned = Assigned::just_now(spec, status, clusters);
        let mut known = self.known.lock();
        let mut changed = known.ledger.decided(key, generation, assigned.as_ref(), env.now());
        known.stale.append(&mut changed);
    }

    /// A binding did not get the clusters that were decided on.
    pub(crate) fn take_back(
        &self,
        env: &Env,
        key: &BindingKey,
        spec: &ResourceBindingSpec,
        status: &ResourceBindingStatus,
    ) {
        let assigned = Assigned::of(spec, status, env.wall());
        self.account(|ledger| ledger.set(key, assigned.as_ref(), env.now()));
    }

    /// A binding was read: what it has on its way.
    pub(crate) fn heard(&self, env: &Env, key: &BindingKey, binding: &Value) {
        let (spec, status) = (&binding["spec"], &binding["status"]);
        let parts = spec["components"].as_array().is_some_and(|parts| !parts.is_empty());
        let scheduled = status["lastScheduledTime"].as_str().and_then(|at| at.parse::<Time>().ok());
        let recent = scheduled.is_some_and(|at| at.elapsed(env.wall()) < outstanding::PATIENCE);
        let may = recent && (parts || spec["replicas"].as_i64().is_some_and(|replicas| replicas > 0));
        if !may && !self.known.lock().ledger.knows(key) {
            return;
        }
        let read = || -> Result<_, serde_json::Error> {
            let status = Option::<ResourceBindingStatus>::deserialize(status)?.unwrap_or_default();
            Ok((ResourceBindingSpec::deserialize(spec)?, status))
        };
        // Of one that cannot be read nothing is on its way.
        let assigned = read().ok().and_then(|(spec, status)| Assigned::of(&spec, &status, env.wall()));
        let generation = object::generation(binding);
        self.account(|ledger| ledger.heard(key, generation, assigned.as_ref(), env.now()));
    }

    /// A binding is gone.
    pub(crate) fn left_by(&self, env: &Env, key: &BindingKey) {
        self.account(|ledger| ledger.set(key, None, env.now()));
        self.not_placed(key);
    }

    /// Changes the account, and wakes whoever waits for room if there is other room now.
    fn account(&self, change: impl FnOnce(&mut Ledger<BindingKey>) -> BTreeSet<String>) {
        let mut known = self.known.lock();
        let mut changed = change(&mut known.ledger);
        if !changed.is_empty() {
            known.stale.append(&mut changed);
            drop(known);
            self.news.notify_one();
        }
    }

    /// A Cluster was read: what it says of its resources, which is no news to anybody but placement.
    pub(crate) fn seen(&self, cluster: &str, resources: &Value) {
        let summary = ResourceSummary::deserialize(resources).ok();
        let mut known = self.known.lock();
        if known.summaries.get(cluster) == summary.as_ref() {
            return;
        }
        let pods = |summary: &ResourceSummary| {
            let taken =
                [&summary.allocated, &summary.allocating].into_iter().filter_map(|all| all.get("pods"));
            taken.map(|quantity| quantity.value()).sum::<i64>()
        };
        let (before, now) = (known.summaries.get(cluster).map(pods), summary.as_ref().map(pods));
        match summary {
            Some(summary) => drop(known.summaries.insert(cluster.to_owned(), summary)),
            None => drop(known.summaries.remove(cluster)),
        }
        let more = before.zip(now).map_or(0, |(before, now)| now - before);
        if known.nodes.contains_key(cluster) {
            // What is free on its nodes is told later, and less often; till then the room is the old one.
            *known.grown.entry(cluster.to_owned()).or_default() += more;
        } else {
            known.ledger.reported(cluster, more);
        }
        known.has_other_room(cluster);
        drop(known);
        self.news.notify_one();
    }

    /// A Cluster was read: what it says of its single nodes.
    pub(crate) fn seen_nodes(&self, cluster: &Value) {
        let name = object::name(cluster);
        let text = object::annotation(cluster, extension::NODES);
        let nodes = text.map(report::read).transpose().unwrap_or_else(|error| {
            tracing::warn!(cluster = name, %error, "what the agent reports of its nodes cannot be read");
            None
        });
        let mut known = self.known.lock();
        if known.nodes.get(name) == nodes.as_ref() {
            return;
        }
        match nodes {
            Some(nodes) => drop(known.nodes.insert(name.to_owned(), nodes)),
            None => drop(known.nodes.remove(name)),
        }
        let more = known.grown.remove(name).unwrap_or_default();
        known.ledger.reported(name, more);
        known.has_other_room(name);
        drop(known);
        self.news.notify_one();
    }

    /// A Cluster was read: what it says that the ResourceQuotas of its namespaces leave.
    pub(crate) fn seen_allowances(&self, cluster: &Value) {
        let name = object::name(cluster);
        let text = object::annotation(cluster, extension::QUOTAS);
        let allowances = text.map(allowance::read).transpose().unwrap_or_else(|error| {
            tracing::warn!(cluster = name, %error, "what the agent reports of ResourceQuotas cannot be read");
            None
        });
        let mut known = self.known.lock();
        if known.allowances.get(name) == allowances.as_ref() {
            return;
        }
        match allowances {
            Some(allowances) => drop(known.allowances.insert(name.to_owned(), allowances)),
            None => drop(known.allowances.remove(name)),
        }
        known.has_other_room(name);
        drop(known);
        self.news.notify_one();
    }

    /// Resolves when some cluster has reported other resources than before.
    pub(crate) async fn other_room(&self) {
        self.news.notified().await;
    }

    /// Whoever waits for room is to look whether there is any, though nobody has told of it.
    pub(crate) fn look_again(&self) {
        self.news.notify_one();
    }

    /// A binding whose object belongs to a group is about to be written with its clusters.
    pub(crate) fn placed(&self, key: &BindingKey, generation: i64, targets: &[TargetCluster]) {
        let clusters = targets.iter().map(|target| target.name.clone()).collect();
        self.known.lock().placed.insert(key.clone(), (generation, clusters));
    }

    /// It was not written, or is gone.
    pub(crate) fn not_placed(&self, key: &BindingKey) {
        self.known.lock().placed.remove(key);
    }

    /// The index shows a binding at this generation: what was decided up to there is known.
    pub(crate) fn shown(&self, key: &BindingKey, generation: i64) {
        let placed = &mut self.known.lock().placed;
        if placed.get(key).is_some_and(|(since, _)| *since <= generation) {
            placed.remove(key);
        }
    }

    /// Where a binding of a group is: what was decided, until the watch has shown it.
    fn clusters_of(&self, key: &BindingKey, head: &BindingHead) -> BTreeSet<String> {
        let mut known = self.known.lock();
        match known.placed.get(key) {
            Some((generation, clusters)) if head.generation < *generation => clusters.clone(),
            Some(_) => {
                known.placed.remove(key);
                head.wanted.clone()
            }
            None => head.wanted.clone(),
        }
    }

    /// A cluster has changed in what placement looks at.
    pub(crate) fn forget(&self, cluster: &str, gone: bool) {
        let mut known = self.known.lock();
        if gone {
            known.summaries.remove(cluster);
            known.nodes.remove(cluster);
            known.allowances.remove(cluster);
            known.grown.remove(cluster);
        }
        known.forget(cluster);
    }
}

/// The clusters for a binding, by what is known now.
pub(crate) fn decide(
    accounts: &Accounts,
    key: &BindingKey,
    spec: &ResourceBindingSpec,
    status: &ResourceBindingStatus,
) -> Result<Decision, PlaceError> {
    let fleet = accounts.fleet.get(accounts, place::asks_for_room(spec));
    with_request(accounts, &fleet, key, spec, status, None, place::schedule)
}

/// The clusters that a binding was evicted from.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) clusters: BTreeSet<String>,
    /// Whether it may go back to them as to any other.
    pub(crate) goes_back: bool,
}

/// The same for a binding that is scheduled anew with these clusters, which are looked at while it is its turn
/// ([`Fleet::turn`]). Where a Work is only marked as unwanted, for its cluster to hear when
/// it is back, the object still is. Clusters that it was evicted from (`left`) are different: it is not there any more,
/// and unless it `goes_back` they get it only if there are no others. What is decided takes room from now on: if it
/// comes to nothing, [`Fleet::take_back`] says so.
pub(crate) fn decide_anew(
    accounts: &Accounts,
    fleet: &fleet::Fleet,
    key: &BindingKey,
    generation: i64,
    spec: &ResourceBindingSpec,
    status: &ResourceBindingStatus,
    left: &Left,
) -> Result<Decision, PlaceError> {
    let Left { clusters: left, goes_back } = left;
    let mut spec = spec.clone();
    for (work, head) in accounts.known.works.group(&key.to_string()) {
        if let Some(cluster) = names::cluster_of_namespace(&work.namespace)
            && head.unwanted
            && !head.deleting
            && !left.contains(cluster)
            && !spec.graceful_eviction_tasks.iter().any(|task| task.from_cluster == cluster)
        {
            is_there(&mut spec, cluster);
        }
    }
    let all = || with_request(accounts, fleet, key, &spec, status, None, place::schedule);
    let decision = if *goes_back || left.is_empty() {
        all()
    } else {
        with_request(accounts, fleet, key, &spec, status, Some(left), place::schedule).or_else(|_| all())
    }?;
    accounts.fleet.give(&accounts.env, key, generation, &spec, status, &decision.clusters);
    Ok(decision)
}

/// Why it was refused by these clusters.
pub(crate) fn explain(
    accounts: &Accounts,
    fleet: &fleet::Fleet,
    key: &BindingKey,
    spec: &ResourceBindingSpec,
    status: &ResourceBindingStatus,
    error: &PlaceError,
) -> Explained {
    let refused = Err(error.clone());
    let explain = |request: &Request<'_>| place::explain_result(request, refused);
    with_request(accounts, fleet, key, spec, status, None, explain)
}

/// Asks `what` with all that is known of a binding.
fn with_request<T>(
    accounts: &Accounts,
    fleet: &fleet::Fleet,
    key: &BindingKey,
    spec: &ResourceBindingSpec,
    status: &ResourceBindingStatus,
    left: Option<&BTreeSet<String>>,
    what: impl FnOnce(&Request<'_>) -> T,
) -> T {
    let others = others(accounts, key, spec);
    let peers: Vec<_> = others
        .iter()
        .map(|(key, groups, clusters)| Peer {
            name: &key.key.name,
            affinity_group: &groups.affinity_group,
            anti_affinity_group: &groups.anti_affinity_group,
            clusters,
        })
        .collect();
    what(&Request {
        // Once it was placed, a Work elsewhere is one that is leaving.
        spec: &match status.last_scheduled_time {
            None => with_where_it_is(accounts, key, spec),
            Some(_) => spec.clone(),
        },
        observed_affinity: &status.scheduler_observed_affinity_name,
        last_scheduled: status.last_scheduled_time,
        fleet,
        peers: &peers,
        left,
        empty_workloads: accounts.empty_workloads,
        now: Some(Time::now(&accounts.env)),
    })
}

/// The other bindings of the groups that a binding's object belongs to, and where they are.
fn others(
    accounts: &Accounts,
    key: &BindingKey,
    spec: &ResourceBindingSpec,
) -> Vec<(BindingKey, WorkloadAffinityGroups, BTreeSet<String>)> {
    let Some(groups) = &spec.workload_affinity_groups else { return Vec::new() };
    let mut others = BTreeMap::new();
    for group in BindingHead::of_together(&key.key.namespace, groups) {
        for (other, head) in accounts.known.bindings.of(key.scope).group(&group) {
            if other != key.key {
                others.insert(BindingKey { scope: key.scope, key: other }, head);
            }
        }
    }
    let with_clusters = |(other, head): (BindingKey, Arc<BindingHead>)| {
        let clusters = accounts.fleet.clusters_of(&other, &head);
        (other, head.together.clone(), clusters)
    };
    others.into_iter().map(with_clusters).collect()
}

/// Gives a binding that is about to be made its clusters, if they can be told without more than its spec: of several
/// groups of clusters the status says which was taken, and a new binding cannot have one.
pub(crate) async fn at_birth(accounts: &Accounts, key: &BindingKey, binding: &mut Value) {
    if !(accounts.known.clusters.is_synced()
        && accounts.known.works.is_synced()
        && accounts.quotas.is_synced())
    {
        return;
    }
    let Ok(spec) = ResourceBindingSpec::deserialize(&binding["spec"]) else { return };
    // Those of groups are placed one after the other, and so are those that share a quota.
    let alone = spec.workload_affinity_groups.is_none() && !quotas::limited(accounts, key);
    let Some(placement) = placement_of(&spec).filter(|p| alone && p.cluster_affinities.is_empty()) else {
        return;
    };
    let status = ResourceBindingStatus::default();
    let _turn = accounts.fleet.turn(&spec).await;
    // Where there is none, the scheduler says why.
    if let Ok(decision) = decide(accounts, key, &spec, &status) {
        accounts.fleet.give(&accounts.env, key, 0, &spec, &status, &decision.clusters);
        object::set_annotation(binding, annotation::APPLIED_PLACEMENT, place::applied_placement(placement));
        set_targets(binding, &decision.clusters);
    }
}

/// The placement that a binding is scheduled by, if this scheduler is asked, and may act.
pub(crate) fn placement_of(spec: &ResourceBindingSpec) -> Option<&Placement> {
    let named = spec.scheduler_name.is_empty() || spec.scheduler_name == DEFAULT_SCHEDULER;
    let suspended = spec.suspension.as_ref().is_some_and(|s| s.scheduling == Some(true));
    spec.placement.as_ref().filter(|_| named && !suspended)
}

/// Writes clusters into a binding.
pub(crate) fn set_targets(binding: &mut Value, targets: &[TargetCluster]) {
    let spec = object::ensure_map(binding, "spec");
    if targets.is_empty() {
        spec.remove("clusters");
    } else {
        spec.insert("clusters".to_owned(), json!(targets));
    }
}

/// A binding's spec with all clusters that still have the object: where a Work is left over from an earlier
/// binding (its template was deleted and made again) the object may stay like where it is placed now, or it would
/// be taken away from a cluster that happens to be tainted, and brought back later.
fn with_where_it_is(
    accounts: &Accounts,
    key: &BindingKey,
    spec: &ResourceBindingSpec,
) -> ResourceBindingSpec {
    let mut spec = spec.clone();
    for (work, _) in accounts.known.works.group(&key.to_string()) {
        if let Some(cluster) = names::cluster_of_namespace(&work.namespace) {
            is_there(&mut spec, cluster);
        }
    }
    spec
}

/// Has a spec say that a cluster has the object.
fn is_there(spec: &mut ResourceBindingSpec, cluster: &str) {
    if !spec.clusters.iter().any(|target| target.name == cluster) {
        spec.clusters.push(TargetCluster::new(cluster, 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_kept_of_bindings_that_are_known_or_gone() {
        let (fleet, env) = (Fleet::default(), Env::system());
        let key = |name: &str| BindingKey::of_template("ConfigMap", "shop", name);
        let targets = [TargetCluster::new("m", 1)];
        for name in ["a", "b", "c", "d"] {
            fleet.placed(&key(name), 3, &targets);
        }
        fleet.shown(&key("a"), 2);
        assert_eq!(fleet.known.lock().placed.len(), 4, "an older one says nothing");
        fleet.shown(&key("a"), 3);
        fleet.shown(&key("b"), 4);
        fleet.left_by(&env, &key("c"));
        fleet.not_placed(&key("d"));
        assert!(fleet.known.lock().placed.is_empty());
    }
}
