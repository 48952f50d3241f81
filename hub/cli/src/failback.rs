//! `karmada-hub failback`: objects that have left clusters are placed anew, and may go back.
//!
//! Replicas that moved stay where they went; a WorkloadRebalancer asks for a fresh division, as in Karmada. This writes
//! one for what is named, or for all that would be on a cluster, and shows what comes of it.

use std::time::Duration;

use karmada_api::{
    KarmadaKind,
    apps::{
        RebalanceResult, WorkloadRebalancer, WorkloadRebalancerSpec, WorkloadRebalancerStatus,
        WorkloadReference,
    },
    work::TargetCluster,
};
use karmada_core::{
    evict,
    fleet::Fleet,
    place::{self, Request},
};
use karmada_env::Env;
use karmada_meta::{object, time::Time};
use karmada_objects::{discovery, key::Key, kinds::WORKLOAD_REBALANCERS};
use serde::Deserialize;
use serde_json::json;

use super::{
    Failure,
    args::FailbackArgs,
    ask::Server,
    drain::Say,
    explain::places,
    get,
    known::{self, suggestion},
    placed::{self, Bound, Groups},
    told::Told,
};

/// How long the wish is kept when it is done, for people who look.
const KEEP: i32 = 3600;
/// How long, and how often, its outcome is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(200);

/// Has objects placed anew.
pub(super) async fn run(args: FailbackArgs, env: Env) -> Result<(), Failure> {
    let server = Server::open(&args.server, &env)?;
    server.reach().await?;
    let told = args.told;
    let wanted = Wanted::of(&server, &args).await?;
    let begun =
        start(&server, &wanted, args.dry_run, &env, &mut |line, value| told.say(line, &value)).await?;
    match begun.rebalancer {
        Some(name) => outcome(&server, &name, begun.objects, told).await,
        None => {
            let line = format!("{} to be placed anew", objects(begun.objects));
            let value = json!({"result": "placed anew", "objects": begun.objects, "dryRun": args.dry_run});
            told.say(&line, &value)
        }
    }
}

/// What has been asked for.
#[derive(Debug)]
pub(super) struct Begun {
    pub objects: usize,
    /// The WorkloadRebalancer that was written, if there is anything to do.
    pub rebalancer: Option<String>,
}

/// Asks for what is wanted to be placed anew, and says of each object what would come of it.
pub(super) async fn start(
    server: &Server,
    wanted: &Wanted,
    dry_run: bool,
    env: &Env,
    say: &mut Say<'_>,
) -> Result<Begun, Failure> {
    let clusters = known::clusters(server).await?;
    known::check_names(&clusters, &wanted.cluster)?;
    let fleet = Fleet::of(clusters.into_values());
    let (mut groups, mut meant, mut near) = (Groups::default(), Vec::new(), Vec::new());
    placed::each_binding(server, None, |bound| {
        groups.note(&bound);
        if wanted.means(&bound) {
            meant.push(bound);
        } else {
            near.push(bound.spec.resource.name);
        }
    })
    .await?;
    if let (true, Some(Named { name, shown, .. })) = (meant.is_empty(), &wanted.object) {
        let hint = suggestion(name, near.iter().map(String::as_str));
        return Err(Failure::failed(format!("no binding is for {shown}{hint}")));
    }
    let now = Time::from_system(server.now());
    let mut workloads = Vec::new();
    for bound in &meant {
        let placed = bound.placed();
        let line = match anew(bound, &groups, &fleet, now) {
            Err(why) => format!("{}: stays, it cannot be placed anew: {why}", bound.object()),
            Ok(after) if same(placed, &after) => format!("{}: is where it belongs", bound.object()),
            Ok(after) if wanted.cluster.as_ref().is_some_and(|name| !evict::gains(placed, &after, name)) => {
                format!("{}: would not go to that cluster", bound.object())
            }
            Ok(after) => {
                let of = &bound.spec.resource;
                workloads.push(WorkloadReference {
                    api_version: of.api_version.clone(),
                    kind: of.kind.clone(),
                    namespace: of.namespace.clone(),
                    name: of.name.clone(),
                });
                format!("{}: {} becomes {}", bound.object(), places(placed), places(&after))
            }
        };
        // Of a whole cluster only what moves is worth a line.
        if wanted.cluster.is_none() || line.contains(" becomes ") {
            let (object, what) = line.split_once(": ").unwrap_or((&line, ""));
            say(&line, json!({"object": object, "message": what, "moves": line.contains(" becomes ")}))?;
        }
    }
    let objects = workloads.len();
    if workloads.is_empty() || dry_run {
        return Ok(Begun { objects, rebalancer: None });
    }
    let name = format!("failback-{}", &env.uuid()[..8]);
    let spec = WorkloadRebalancerSpec { workloads, ttl_seconds_after_finished: Some(KEEP) };
    let wish = json!({
        "apiVersion": WORKLOAD_REBALANCERS.api_version(), "kind": WorkloadRebalancer::KIND,
        "metadata": {"name": name}, "spec": spec,
    });
    server.objects.create(&WORKLOAD_REBALANCERS, &wish).await.map_err(|e| server.failure(&e))?;
    Ok(Begun { objects, rebalancer: Some(name) })
}

/// What is asked for: an object, what would go to a cluster, or both.
#[derive(Debug)]
pub(super) struct Wanted {
    object: Option<Named>,
    cluster: Option<String>,
}

/// An object as somebody names it.
#[derive(Debug)]
struct Named {
    kind: Option<String>,
    namespace: String,
    name: String,
    /// In their words.
    shown: String,
}

impl Wanted {
    /// Everything of which a cluster would get more.
    pub(super) fn to_cluster(name: &str) -> Self {
        Self { object: None, cluster: Some(name.to_owned()) }
    }

    async fn of(server: &Server, args: &FailbackArgs) -> Result<Self, Failure> {
        let cluster = args.cluster.clone();
        let Some(target) = &args.target else { return Ok(Self { object: None, cluster }) };
        let all = discovery::everything(server.objects.rest()).await.map_err(|e| server.failure(&e))?;
        let namespace = server.namespace.clone();
        let (kind, namespace, name) = match (target.split_once('/'), &args.resource) {
            (Some((namespace, name)), Some(kind)) => {
                (Some(get::find(&all, kind)?.resource.kind.clone()), namespace.to_owned(), name.to_owned())
            }
            (None, Some(kind)) => {
                (Some(get::find(&all, kind)?.resource.kind.clone()), namespace, target.clone())
            }
            (Some((first, name)), None) => match discovery::resolve(&all, first) {
                Some(served) => (Some(served.resource.kind.clone()), namespace, name.to_owned()),
                None => (None, first.to_owned(), name.to_owned()),
            },
            (None, None) => (None, namespace, target.clone()),
        };
        Ok(Self { object: Some(Named { kind, namespace, name, shown: target.clone() }), cluster })
    }

    fn means(&self, bound: &Bound) -> bool {
        let of = &bound.spec.resource;
        bound.spec.placement.is_some()
            && self.object.as_ref().is_none_or(|Named { kind, namespace, name, .. }| {
                kind.as_ref().is_none_or(|kind| *kind == of.kind)
                    && (of.namespace.is_empty() || of.namespace == *namespace)
                    && of.name == *name
            })
    }
}

/// Where an object would be if it were divided from scratch now.
fn anew(bound: &Bound, groups: &Groups, fleet: &Fleet, now: Time) -> Result<Vec<TargetCluster>, String> {
    let mut spec = bound.spec.clone();
    spec.reschedule_triggered_at = Some(now);
    let peers = groups.peers_of(bound);
    let request = Request { left: None, ..bound.request(&spec, fleet, &peers) };
    place::schedule(&request).map(|decision| decision.clusters).map_err(|error| error.to_string())
}

fn same(before: &[TargetCluster], after: &[TargetCluster]) -> bool {
    let replicas = |list: &[TargetCluster]| {
        list.iter()
            .map(|target| (target.name.clone(), target.replicas))
            .collect::<std::collections::BTreeSet<_>>()
    };
    replicas(before) == replicas(after)
}

fn objects(count: usize) -> String {
    if count == 1 { "1 object".to_owned() } else { format!("{count} objects") }
}

/// Waits until the hub has told the bindings, and says what came of it.
async fn outcome(server: &Server, name: &str, count: usize, told: Told) -> Result<(), Failure> {
    let key = Key::cluster_scoped(name);
    let outcome = async {
        loop {
            let live =
                server.objects.get(&WORKLOAD_REBALANCERS, &key).await.map_err(|e| server.failure(&e))?;
            let Some(live) = live else {
                return Err(Failure::failed(format!("WorkloadRebalancer {name} was deleted by somebody")));
            };
            let status = WorkloadRebalancerStatus::deserialize(&live["status"]).unwrap_or_default();
            if status.finish_time.is_some() && status.observed_generation == object::generation(&live) {
                return Ok(status);
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    let status = match tokio::time::timeout(PATIENCE, outcome).await {
        Ok(status) => status?,
        Err(_) => {
            return Err(Failure::failed(format!(
                "the hub has not taken up WorkloadRebalancer {name} within {} s; it will when it runs",
                PATIENCE.as_secs()
            )));
        }
    };
    let failed = status.observed_workloads.iter().filter(|seen| seen.result == Some(RebalanceResult::Failed));
    let failed: Vec<_> = failed
        .map(|seen| {
            format!(
                "{} {}/{}: {}",
                seen.workload.kind, seen.workload.namespace, seen.workload.name, seen.reason
            )
        })
        .collect();
    let line = format!("{} to be placed anew (workloadrebalancer/{name})", objects(count - failed.len()));
    let made = json!({"result": "placed anew", "objects": count - failed.len(), "workloadRebalancer": name});
    told.say(&line, &made)?;
    if failed.is_empty() { Ok(()) } else { Err(Failure::failed(failed.join("; "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_before() {
        let targets = |list: &[(&str, i32)]| -> Vec<_> {
            list.iter().map(|(name, replicas)| TargetCluster::new(*name, *replicas)).collect()
        };
        let before = targets(&[("a", 3), ("b", 0)]);
        let table = [
            (targets(&[("b", 0), ("a", 3)]), true, false),
            (targets(&[("a", 2), ("c", 1)]), false, true),
            (targets(&[("a", 3), ("b", 0), ("c", 0)]), false, true),
        ];
        for (after, alike, more) in table {
            assert_eq!(
                (same(&before, &after), evict::gains(&before, &after, "c")),
                (alike, more),
                "{after:?}"
            );
        }
    }
}
