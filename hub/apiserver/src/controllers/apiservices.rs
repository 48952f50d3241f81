//! APIServices: one stands for each served group and version, as kube-apiserver's aggregator keeps them. All of them are
//! served here, so they only tell; nothing is forwarded to one that a user adds.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::future::join_all;
use karmada_meta::status::Status;
use karmada_store::Key;
use serde_json::{Value, json};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    carried::CarriedGroup,
    identity::UserInfo,
    kinds::{Kind, Kinds},
    options::{DeleteOptions, WriteOptions},
    registry::{Caller, Registry, Target},
};

const GROUP: &str = "apiregistration.k8s.io";
const STORAGE: &str = "apiregistration.k8s.io/apiservices";
/// Says that the object comes and goes with its group.
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
const AGENT: &str = "kube-apiserver";

/// Where built-in groups stand: the most important first. Their versions have 15, but for these.
const GROUPS: [(&str, i64); 21] = [
    ("", 18_000),
    ("apps", 17_800),
    ("events.k8s.io", 17_750),
    ("authentication.k8s.io", 17_700),
    ("authorization.k8s.io", 17_600),
    ("autoscaling", 17_500),
    ("batch", 17_400),
    ("certificates.k8s.io", 17_300),
    ("networking.k8s.io", 17_200),
    ("policy", 17_100),
    ("rbac.authorization.k8s.io", 17_000),
    ("storage.k8s.io", 16_800),
    ("admissionregistration.k8s.io", 16_700),
    ("apiextensions.k8s.io", 16_700),
    ("scheduling.k8s.io", 16_600),
    ("coordination.k8s.io", 16_500),
    ("node.k8s.io", 16_300),
    ("discovery.k8s.io", 16_200),
    ("flowcontrol.apiserver.k8s.io", 16_100),
    ("resource.k8s.io", 15_900),
    ("storagemigration.k8s.io", 15_800),
];
/// Those that are carried on, as Karmada registers them: their versions have 100, but for this.
const CARRIED: i64 = 100;
const PREFERRED: (&str, i64) = ("v1beta2.custom.metrics.k8s.io", 200);
const VERSIONS: [((&str, &str), i64); 3] =
    [(("", "v1"), 1), (("autoscaling", "v2"), 30), (("flowcontrol.apiserver.k8s.io", "v1"), 21)];

/// What there should be, by name. Groups of definitions count less than any built-in one, and those that are carried on less
/// than these.
fn wanted(kinds: &Kinds, carried: &[CarriedGroup]) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for kind in kinds.iter().filter(|kind| kind.gvr.group != GROUP) {
        let (group, version) = (kind.gvr.group.as_str(), kind.gvr.version.as_str());
        let name = format!("{version}.{group}");
        let (priority, version_priority, managed) = match GROUPS.iter().find(|(name, _)| *name == group) {
            Some((_, priority)) => {
                let special = VERSIONS.iter().find(|(of, _)| *of == (group, version));
                (*priority, special.map_or(15, |(_, priority)| *priority), "onstart")
            }
            None => (1000, 100, "true"),
        };
        all.entry(name.clone()).or_insert_with(|| {
            let mut spec = json!({"version": version, "groupPriorityMinimum": priority,
                "versionPriority": version_priority});
            if !group.is_empty() {
                spec["group"] = json!(group);
            }
            json!({"metadata": {"name": name, "labels": {MANAGED: managed}}, "spec": spec})
        });
    }
    for group in carried {
        for version in group.versions {
            let name = format!("{version}.{}", group.group);
            let priority = if name == PREFERRED.0 { PREFERRED.1 } else { CARRIED };
            let spec = json!({"group": group.group, "version": version, "groupPriorityMinimum": CARRIED,
                "versionPriority": priority});
            let service = json!({"metadata": {"name": name, "labels": {MANAGED: "onstart"}}, "spec": spec});
            all.insert(name, service);
        }
    }
    all
}

/// Starts the task that follows the served kinds. What is carried on is known by then.
pub(crate) fn start(
    registry: &Arc<Registry>,
    carried: Arc<Vec<CarriedGroup>>,
    tasks: &TaskTracker,
    shutdown: &CancellationToken,
) {
    let (registry, shutdown) = (registry.clone(), shutdown.clone());
    tasks.spawn(async move {
        loop {
            // From before the look, so that no change is missed.
            let changed = registry.kinds_changed();
            settle(&registry, &carried).await;
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = changed => {}
            }
        }
    });
}

async fn settle(registry: &Registry, carried: &[CarriedGroup]) {
    let (user, kinds) = (UserInfo::system("apiserver"), registry.kinds());
    let caller = Caller::internal(&user, AGENT);
    let Some(kind) = kinds.by_resource(GROUP, "v1", "apiservices") else { return };
    let mut wanted = wanted(&kinds, carried);
    let mut surplus = BTreeSet::new();
    for object in registry.store.snapshot().range(STORAGE, None, None) {
        if wanted.remove(&*object.key.name).is_none()
            && object.header.labels.get(MANAGED).is_some_and(|by| by == "true")
        {
            surplus.insert(object.key.clone());
        }
    }
    // Together, so that they share a commit.
    let made = join_all(wanted.into_values().map(|object| make(registry, &caller, kind, object))).await;
    let gone = join_all(surplus.iter().map(|key| remove(registry, &caller, kind, key))).await;
    for status in made.into_iter().chain(gone).filter_map(Result::err) {
        if !status.is_not_found() && !status.is_already_exists() {
            tracing::warn!(%status, "cannot keep the APIServices in step with what is served");
        }
    }
}

async fn make(
    registry: &Registry,
    caller: &Caller<'_>,
    kind: &Arc<Kind>,
    mut object: Value,
) -> Result<(), Status> {
    kind.shape.default(&mut object);
    registry.create(caller, kind, "", object, &WriteOptions::default()).await.map(drop)
}

async fn remove(registry: &Registry, caller: &Caller<'_>, kind: &Arc<Kind>, key: &Key) -> Result<(), Status> {
    let target = Target { kind, namespace: "", name: &key.name, subresource: "" };
    registry.delete(caller, &target, &DeleteOptions::default()).await.map(drop)
}
