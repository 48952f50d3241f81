//! What may be deleted, and what only looks as if it should be.
//!
//! The edge never loses work by mistake. On a member everything that would be deleted passes [`may_delete`]; on
//! the hub, a Work that its binding does not want passes [`orphan`], and a Cluster that goes passes
//! [`removal`](crate::leave::removal).
//! Only what somebody has said counts: a deletion timestamp, a manifest that was listed and is not any more. That
//! something is *missing* is nothing that anybody said.

use std::collections::BTreeSet;

use karmada_api::{
    consts::{self, extension::ADOPTED, label::WORK_ID},
    policy::PurgeMode,
    work::{ResourceBindingSpec, ResourceIdentifier, Work},
};
use karmada_meta::object;
use serde_json::Value;

use crate::{
    evict,
    judge::fence,
    members::{self, Owner},
};

/// Namespaces that a cluster cannot do without.
const VITAL: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// The finalizer of an object that goes when all that it owns, and that holds it, has gone.
const FOREGROUND: &str = "foregroundDeletion";

/// How many objects may still be deleted for now. The caller makes it smaller with each deletion and fills it up
/// with time, so that a mistake somewhere else takes a while to do its work and can be seen meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// What is left.
    pub left: u32,
}

impl Budget {
    /// As many as there are.
    pub const UNLIMITED: Self = Self { left: u32::MAX };

    /// One fewer.
    pub fn spend(&mut self) {
        self.left = self.left.saturating_sub(1);
    }
}

/// Why an object is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its Work was read and has a deletion timestamp.
    WorkDeleted,
    /// Its Work was read, has none, and no longer lists the object that it listed before.
    LeftTheWork,
    /// Its Work was not found.
    WorkMissing,
}

/// What is known about the Work of an object.
#[derive(Clone, Copy, Debug)]
pub struct WorkFacts<'a> {
    /// The Work's namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its permanent id, which what it applies carries, too; empty where it has none.
    pub id: &'a str,
    /// Why the question is asked.
    pub cause: Cause,
    /// `spec.preserveResourcesOnDeletion`.
    pub preserve: bool,
    /// The object may run in one place only, as far as is known; it says so itself, too.
    pub fenced: bool,
    /// The execution namespace is being deleted.
    pub namespace_terminating: bool,
    /// So is the Cluster, by its own object.
    pub cluster_terminating: bool,
    /// The hub has met this agent before and does not know less than it did then.
    pub hub_is_known: bool,
    /// The agent has seen this hub, in its present life, say otherwise before: that the Work is there to stay, or that it
    /// lists the object.
    pub witnessed: bool,
    /// The Work has changed since the hub was first seen in its present life: what it says is this hub's own word.
    pub recent: bool,
}

impl WorkFacts<'_> {
    /// Whether an object may run in one place only.
    pub fn is_fenced(&self, live: &Value) -> bool {
        self.fenced || fence::after(live).is_some()
    }
}

/// What is done about an object on a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Delete it, under the precondition of this uid.
    Delete {
        /// The uid that was judged.
        uid: String,
        /// Whether it may only be gone when all that it owns has ended (foreground deletion).
        whole: bool,
    },
    /// It is being deleted so: it counts as there until it is gone.
    Ending,
    /// Take our marks off and leave it.
    Release(&'static str),
    /// Leave it as it is; nothing more is to be done about it.
    Keep(&'static str),
    /// The same for an object that the hub would rather keep, if it knew what it knew once. People are told.
    Spare(&'static str),
    /// Not now.
    Later(&'static str),
}

/// Judges the deletion of an object that was read from the member.
pub fn may_delete(work: &WorkFacts<'_>, live: &Value, budget: Budget) -> Verdict {
    if members::owner(live, work.namespace, work.name) != Owner::This {
        return Verdict::Keep("the object is not of this Work");
    }
    if work.cause == Cause::WorkMissing {
        return Verdict::Later("a missing Work is no deletion");
    }
    let going = object::deletion_timestamp(live).is_some();
    if let Some(why) = outlived(work, live).filter(|_| !going) {
        return Verdict::Spare(why);
    }
    if work.cause == Cause::WorkDeleted && work.namespace_terminating && !work.cluster_terminating {
        return Verdict::Later("the execution namespace is being deleted but its Cluster is not");
    }
    if work.cause == Cause::WorkDeleted && work.preserve {
        return Verdict::Release("the Work preserves its resources");
    }
    if object::kind(live) == "Namespace" && object::api_version(live) == "v1" {
        if object::annotation(live, ADOPTED) == Some("true") {
            return Verdict::Release("the Namespace was there before");
        }
        if VITAL.contains(&object::name(live)) {
            return Verdict::Release("no cluster can do without this Namespace");
        }
    }
    let uid = object::uid(live);
    if uid.is_empty() {
        return Verdict::Later("the object has no uid to delete it by");
    }
    let whole = work.is_fenced(live);
    if going {
        let waits = object::finalizers(live).contains(&FOREGROUND);
        match (whole, waits) {
            (false, _) => return Verdict::Keep("the object is being deleted already"),
            (true, true) => return Verdict::Ending,
            // By somebody who does not wait for what it owns.
            (true, false) => {}
        }
    }
    if budget.left == 0 {
        return Verdict::Later("enough was deleted for now");
    }
    Verdict::Delete { uid: uid.to_owned(), whole }
}

/// Why what the hub says of an object may be older than the object. A hub that was made anew of a copy still wants gone
/// what was to go then, although a later Work has made it again; and it lists what a Work held then.
fn outlived(work: &WorkFacts<'_>, live: &Value) -> Option<&'static str> {
    if work.hub_is_known || work.witnessed {
        return None;
    }
    let by = object::label(live, WORK_ID).unwrap_or_default();
    let is_told = !by.is_empty() && !work.id.is_empty();
    match work.cause {
        Cause::WorkDeleted if work.recent || (is_told && by == work.id) => None,
        Cause::WorkDeleted if is_told => Some(
            "it was applied for another Work of that name, and the hub was made anew of an older copy since",
        ),
        _ => Some("the hub was made anew of an older copy, and does not know it as it is"),
    }
}

/// The objects that a Work had on its cluster, as its status lists them, and does not list any more: the recorded
/// inventory. The version does not tell objects apart.
pub fn left_the_work(work: &Work) -> Vec<&ResourceIdentifier> {
    let key = |group: &str, kind: &str, namespace: &str, name: &str| {
        [group, kind, namespace, name].map(str::to_owned)
    };
    let listed: BTreeSet<_> = work
        .spec
        .workload
        .manifests
        .iter()
        .filter_map(|manifest| {
            let gvk = object::gvk(&manifest.0)?;
            Some(key(&gvk.group, &gvk.kind, object::namespace(&manifest.0), object::name(&manifest.0)))
        })
        .collect();
    let recorded =
        work.status.iter().flat_map(|status| &status.manifest_statuses).map(|status| &status.identifier);
    recorded.filter(|id| !listed.contains(&key(&id.group, &id.kind, &id.namespace, &id.name))).collect()
}

/// What is done about a Work on the hub. "The mark" is the annotation `extension::UNWANTED_SINCE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orphan {
    /// It stays as it is.
    Keep,
    /// It is wanted again: take the mark off.
    Unmark,
    /// It is not wanted, and its cluster cannot be asked: put the mark on.
    Mark,
    /// Delete it.
    Delete,
}

/// What a binding says of the clusters that may have a Work of it; nothing when it is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Where it wants one: [`wanted_clusters`].
    pub wanted: BTreeSet<String>,
    /// What it is leaving so that the Work goes first. If such a cluster was away when the Work was to go, the Work stays
    /// until the eviction has been judged anew and is over.
    pub purged: BTreeSet<String>,
    /// Its object may run in one place only (`judge::fence`): a copy that it leaves goes first, and a mark is taken off
    /// by whoever makes the Work anew, when every other copy has stopped.
    pub fenced: bool,
}

impl Wishes {
    /// Those of a binding that is there.
    pub fn of(spec: &ResourceBindingSpec, fenced: bool) -> Self {
        if !fenced {
            return Self { wanted: wanted_clusters(spec), purged: evict::purged(spec), fenced };
        }
        let wanted = targets(spec);
        let left = spec.graceful_eviction_tasks.iter().map(|task| task.from_cluster.clone());
        let purged = left.filter(|cluster| !wanted.contains(cluster)).collect();
        Self { wanted, purged, fenced }
    }
}

/// Judges a Work of a binding after a live read of the Work and then one of the binding. `reporting`: the Work's
/// cluster is there and its Ready condition is not Unknown.
pub fn orphan(cluster: &str, marked: bool, wishes: &Wishes, reporting: bool) -> Orphan {
    match (wishes.wanted.contains(cluster), marked, reporting) {
        (true, true, _) if wishes.fenced => Orphan::Keep,
        (true, true, _) => Orphan::Unmark,
        (true, false, _) | (false, true, false) => Orphan::Keep,
        (false, true, true) if wishes.purged.contains(cluster) => Orphan::Keep,
        (false, _, true) => Orphan::Delete,
        (false, false, false) => Orphan::Mark,
    }
}

/// The clusters that a binding wants its object on: where it is scheduled, where bindings that require it are, and
/// where an eviction is still under way that does not remove the copy first.
pub fn wanted_clusters(spec: &ResourceBindingSpec) -> BTreeSet<String> {
    let graceful =
        spec.graceful_eviction_tasks.iter().filter(|task| task.purge_mode != Some(PurgeMode::Directly));
    let mut wanted = targets(spec);
    wanted.extend(graceful.map(|task| task.from_cluster.clone()));
    wanted
}

/// Where a binding is scheduled, and where bindings that require it are.
fn targets(spec: &ResourceBindingSpec) -> BTreeSet<String> {
    let required = spec.required_by.iter().flat_map(|snapshot| &snapshot.clusters);
    spec.clusters.iter().chain(required).map(|target| target.name.clone()).collect()
}

/// Whether the deletion of a namespace on the hub is refused: an execution namespace, while its Cluster is there
/// and not itself being deleted; that of the Leases and Secrets of clusters, while any Cluster is there. The text is the
/// reason.
pub fn refuse_namespace_deletion(
    namespace: &str,
    cluster_lives: impl FnOnce(&str) -> bool,
    any_cluster: impl FnOnce() -> bool,
) -> Option<String> {
    if namespace == consts::namespace::CLUSTER {
        return any_cluster().then(|| {
            "it holds the Leases and Secrets of all clusters; delete the Clusters first. If you meant the namespace of this \
             name on a member, name the member's kubeconfig"
                .to_owned()
        });
    }
    let cluster = crate::names::cluster_of_namespace(namespace)?;
    cluster_lives(cluster).then(|| {
        format!(
            "the execution namespace of cluster {cluster} holds everything that runs there; \
             delete the Cluster instead"
        )
    })
}

#[cfg(test)]
mod tests {
    use karmada_api::consts::annotation::{WORK_NAME, WORK_NAMESPACE};
    use serde_json::json;

    use super::*;

    const FACTS: WorkFacts<'static> = WorkFacts {
        namespace: "karmada-es-m",
        name: "w",
        id: "id-2",
        cause: Cause::WorkDeleted,
        preserve: false,
        fenced: false,
        namespace_terminating: false,
        cluster_terminating: false,
        hub_is_known: true,
        witnessed: false,
        recent: false,
    };

    fn live(kind: &str, name: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": kind,
            "metadata": {
                "name": name, "uid": "u",
                "annotations": {WORK_NAMESPACE: "karmada-es-m", WORK_NAME: "w"},
                "managedFields": [{"manager": "karmada-agent", "operation": "Apply"}],
            },
        })
    }

    fn kind_of(verdict: &Verdict) -> &'static str {
        match verdict {
            Verdict::Delete { whole: false, .. } => "delete",
            Verdict::Delete { whole: true, .. } => "delete as a whole",
            Verdict::Ending => "ending",
            Verdict::Release(_) => "release",
            Verdict::Keep(_) => "keep",
            Verdict::Spare(_) => "spare",
            Verdict::Later(_) => "later",
        }
    }

    #[test]
    fn only_what_was_said_deletes() {
        let config = live("ConfigMap", "c");
        let table = [
            ("the Work is deleted", FACTS, "delete"),
            ("it left the Work", WorkFacts { cause: Cause::LeftTheWork, ..FACTS }, "delete"),
            ("the Work is missing", WorkFacts { cause: Cause::WorkMissing, ..FACTS }, "later"),
            ("only the namespace goes", WorkFacts { namespace_terminating: true, ..FACTS }, "later"),
            (
                "the cluster goes too",
                WorkFacts { namespace_terminating: true, cluster_terminating: true, ..FACTS },
                "delete",
            ),
            ("preserved", WorkFacts { preserve: true, ..FACTS }, "release"),
            (
                "preserving is about the Work's deletion",
                WorkFacts { preserve: true, cause: Cause::LeftTheWork, ..FACTS },
                "delete",
            ),
            ("another Work's", WorkFacts { name: "other", ..FACTS }, "keep"),
        ];
        for (message, facts, want) in table {
            assert_eq!(kind_of(&may_delete(&facts, &config, Budget::UNLIMITED)), want, "{message}");
        }
        assert_eq!(
            may_delete(&FACTS, &config, Budget { left: 0 }),
            Verdict::Later("enough was deleted for now")
        );
        let mut gone = config.clone();
        gone["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(kind_of(&may_delete(&FACTS, &gone, Budget::UNLIMITED)), "keep", "already going");
        let mut foreign = config;
        foreign["metadata"]["managedFields"] = json!([]);
        assert_eq!(kind_of(&may_delete(&FACTS, &foreign, Budget::UNLIMITED)), "keep", "not ours");
    }

    #[test]
    fn what_may_run_in_one_place_only_is_there_until_all_of_it_has_ended() {
        let fenced = WorkFacts { fenced: true, ..FACTS };
        let going = || {
            let mut going = live("Deployment", "d");
            going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            going
        };
        let mut ending = going();
        ending["metadata"]["finalizers"] = json!([FOREGROUND]);
        let mut marked = live("Deployment", "d");
        marked["metadata"]["annotations"][consts::extension::FENCE_AFTER] = json!("60s");
        let table = [
            ("it is there", fenced, live("Deployment", "d"), "delete as a whole"),
            ("it says so itself", FACTS, marked, "delete as a whole"),
            ("it goes as a whole", fenced, ending.clone(), "ending"),
            ("somebody deletes it otherwise", fenced, going(), "delete as a whole"),
            ("it may run anywhere", FACTS, ending, "keep"),
        ];
        for (message, facts, live, want) in table {
            assert_eq!(kind_of(&may_delete(&facts, &live, Budget::UNLIMITED)), want, "{message}");
        }
    }

    #[test]
    fn what_an_older_hub_does_not_know_is_spared() {
        let left = WorkFacts { cause: Cause::LeftTheWork, ..FACTS };
        let older = WorkFacts { hub_is_known: false, ..FACTS };
        let table = [
            // (what, the Work, whose id the object carries, what becomes of it)
            ("its own Work goes", FACTS, Some("id-2"), "delete"),
            ("so it does for an older hub", older, Some("id-2"), "delete"),
            ("a later Work has made it", older, Some("id-3"), "spare"),
            ("another Work has made it, and the hub is the same", FACTS, Some("id-1"), "delete"),
            (
                "an older hub has made it anew since",
                WorkFacts { recent: true, ..older },
                Some("id-1"),
                "delete",
            ),
            (
                "an earlier one has, and this one was there to stay",
                WorkFacts { witnessed: true, ..older },
                Some("id-1"),
                "delete",
            ),
            ("ids are not known", FACTS, None, "delete"),
            ("nor is the hub", older, None, "spare"),
            ("but it has said otherwise", WorkFacts { witnessed: true, ..older }, None, "delete"),
            ("it has no id", WorkFacts { id: "", ..older }, Some("id-2"), "spare"),
            ("preserved by an older hub", WorkFacts { preserve: true, ..older }, Some("id-3"), "spare"),
            ("it left its Work", left, Some("id-2"), "delete"),
            ("an older hub's Work", WorkFacts { hub_is_known: false, ..left }, Some("id-2"), "spare"),
            (
                "which has listed it since",
                WorkFacts { hub_is_known: false, witnessed: true, ..left },
                Some("id-2"),
                "delete",
            ),
        ];
        for (message, facts, id, want) in table {
            let mut live = live("ConfigMap", "c");
            live["metadata"]["labels"] = json!({WORK_ID: id});
            assert_eq!(kind_of(&may_delete(&facts, &live, Budget::UNLIMITED)), want, "{message}");
        }
    }

    #[test]
    fn adopted_and_vital_namespaces_are_released() {
        let mut adopted = live("Namespace", "shop");
        assert_eq!(kind_of(&may_delete(&FACTS, &adopted, Budget::UNLIMITED)), "delete");
        adopted["metadata"]["annotations"][ADOPTED] = json!("true");
        assert_eq!(kind_of(&may_delete(&FACTS, &adopted, Budget::UNLIMITED)), "release");
        assert_eq!(
            kind_of(&may_delete(&FACTS, &live("Namespace", "kube-system"), Budget::UNLIMITED)),
            "release"
        );
    }

    #[test]
    fn the_inventory_tells_what_left() {
        let id = |kind: &str, version: &str, name: &str| {
            json!({"identifier": {"ordinal": 0, "group": "apps", "version": version, "kind": kind, "resource": "",
                                  "namespace": "n", "name": name}})
        };
        let work: Work = serde_json::from_value(json!({
            "metadata": {},
            "spec": {"workload": {"manifests": [
                {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "n"}}]}},
            "status": {"manifestStatuses": [
                id("Deployment", "v1", "a"), id("Deployment", "v1beta1", "a"), id("Deployment", "v1", "b"),
                id("StatefulSet", "v1", "a")]},
        }))
        .unwrap();
        let left: Vec<_> = left_the_work(&work).iter().map(|id| format!("{} {}", id.kind, id.name)).collect();
        assert_eq!(left, ["Deployment b", "StatefulSet a"]);
    }

    #[test]
    fn orphans_of_silent_clusters_are_marked_not_deleted() {
        let spec = json!({
            "resource": {"apiVersion": "v1", "kind": "ConfigMap", "name": "c"},
            "clusters": [{"name": "a", "replicas": 1}],
            "requiredBy": [{"namespace": "n", "name": "b", "clusters": [{"name": "c"}]}],
            "gracefulEvictionTasks": [{"fromCluster": "d", "reason": "R", "producer": "P"},
                                      {"fromCluster": "p", "reason": "R", "producer": "P", "purgeMode": "Directly"}],
        });
        let spec: ResourceBindingSpec = serde_json::from_value(spec).unwrap();
        let wishes = Wishes::of(&spec, false);
        assert_eq!(wishes.wanted.iter().map(String::as_str).collect::<Vec<_>>(), ["a", "c", "d"]);
        let table = [
            ("wanted", "a", false, true, Orphan::Keep),
            ("wanted, cluster away", "c", false, false, Orphan::Keep),
            ("wanted again", "d", true, false, Orphan::Unmark),
            ("unwanted", "x", false, true, Orphan::Delete),
            ("unwanted, cluster away", "x", false, false, Orphan::Mark),
            ("marked, cluster still away", "x", true, false, Orphan::Keep),
            ("marked, cluster back", "x", true, true, Orphan::Delete),
            ("marked, cluster back, its eviction under way", "p", true, true, Orphan::Keep),
            ("to be removed first", "p", false, true, Orphan::Delete),
            ("to be removed first, cluster away", "p", false, false, Orphan::Mark),
        ];
        for (message, cluster, marked, reporting, want) in table {
            assert_eq!(orphan(cluster, marked, &wishes, reporting), want, "{message}");
        }
        let fenced = Wishes::of(&spec, true);
        let table = [
            ("wanted again: not before the others have stopped", "a", true, true, Orphan::Keep),
            ("left gracefully: it goes first all the same", "d", false, true, Orphan::Delete),
            ("and is marked", "d", false, false, Orphan::Mark),
            ("back before it was judged anew", "d", true, true, Orphan::Keep),
        ];
        for (message, cluster, marked, reporting, want) in table {
            assert_eq!(orphan(cluster, marked, &fenced, reporting), want, "fenced, {message}");
        }
    }

    #[test]
    fn execution_namespaces_live_as_long_as_their_cluster() {
        assert!(refuse_namespace_deletion("karmada-es-m", |name| name == "m", || true).is_some());
        assert!(refuse_namespace_deletion("karmada-es-m", |_| false, || true).is_none());
        assert!(refuse_namespace_deletion("shop", |_| true, || true).is_none());
    }

    #[test]
    fn the_namespace_of_all_clusters_lives_as_long_as_any() {
        assert!(refuse_namespace_deletion("karmada-cluster", |_| false, || true).is_some());
        assert!(refuse_namespace_deletion("karmada-cluster", |_| true, || false).is_none());
    }
}
