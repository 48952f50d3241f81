//! FederatedResourceQuota: its parts go to clusters as ResourceQuotas, and what is used comes back into its status.
//!
//! That nobody uses more than is allowed is seen to where clusters are chosen ([`crate::accounts::quotas`]).

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use karmada_api::{
    consts::{component, event},
    policy::{ClusterQuotaStatus, FederatedResourceQuotaSpec, FederatedResourceQuotaStatus},
    work::Work,
};
use karmada_client::{Error, WorkQueue};
use karmada_core::{aggregate, gather::Rounds, names, quota, work as core_work};
use karmada_meta::object;
use karmada_objects::{
    Part,
    key::{self, Key},
    kinds::{FEDERATED_RESOURCE_QUOTAS, WORKS},
};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::yield_now;
use tokio_util::sync::CancellationToken;

use super::{Context, Next, work};
use crate::{
    accounts::quotas,
    known::{gathered::Gathered, heads::WorkHead},
    write::works::{self, Made, Maker},
};

/// How many quotas are worked on at a time.
const WORKERS: usize = 2;
/// How long a Work that is somebody else's, or on its way out, is given before it is looked at again.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who collects what, and how they say that it failed or succeeded: what clusters report, and what is used on all.
const COLLECTORS: [(&str, &str, &str); 2] = [
    (component::QUOTA_STATUS, event::AGGREGATE_STATUS_FAILED, event::AGGREGATE_STATUS_SUCCEED),
    (
        component::QUOTA_ENFORCEMENT,
        event::COLLECT_OVERALL_STATUS_FAILED,
        event::COLLECT_OVERALL_STATUS_SUCCEED,
    ),
];

/// Splits quotas and adds up what is used.
pub(crate) struct QuotaController {
    context: Arc<Context>,
    queue: WorkQueue<Key>,
    /// When what clusters report of each quota is put together.
    rounds: Arc<Mutex<Rounds<Key>>>,
    /// Clusters by their namespaces.
    namespaces: Gathered,
}

impl QuotaController {
    /// A controller that hears the context's quotas, bindings, clusters and Works from now on.
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        let queue: WorkQueue<Key> = WorkQueue::new(context.env.clone());
        context.figures.queue("quota", &queue);
        let quotas = queue.clone();
        context.accounts.quotas.listen(move |change| quotas.add(change.key.clone()));
        let again = queue.clone();
        context.resync.tell(&context.accounts.quotas, move |quota, _| again.add(quota.clone()));
        let (used, shared) = (queue.clone(), Arc::downgrade(context));
        context.known.bindings.namespaced.listen(move |change| {
            let deleting = change.differs(|head| &head.deleting);
            if (change.differs(|head| &head.usage) || deleting)
                && let Some(context) = shared.upgrade()
            {
                for (key, _) in context.accounts.quotas.in_namespace(&change.key.namespace) {
                    used.add(key);
                }
            }
        });
        let rounds: Arc<Mutex<Rounds<Key>>> = Arc::default();
        let (reported, shared, gathered) = (queue.clone(), Arc::downgrade(context), rounds.clone());
        context.known.works.listen(move |change| {
            let Some(context) = shared.upgrade() else { return };
            for quota in [change.old, change.new].into_iter().flatten().filter_map(|head| head.quota.clone())
            {
                let wait = gathered.lock().wait(&quota, works_of(&context, &quota), context.env.now());
                reported.add_after(quota, wait);
            }
        });
        // A cluster can take Works once it has its execution namespace.
        let namespaces = Gathered::keys(&context.known.namespaces, |change| {
            names::cluster_of_namespace(&change.key.name).is_some()
        });
        Self { context: context.clone(), queue, rounds, namespaces }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        self.context.known.works.synced().await;
        self.context.known.bindings.synced().await;
        self.context.known.clusters.synced().await;
        self.context.known.namespaces.synced().await;
        // All quotas are queued by now.
        self.namespaces.forget();
        tokio::select! {
            biased;
            () = work("quota", &self.queue, WORKERS, &stop, |key: Key| self.reconcile(key)) => {}
            () = self.hear_namespaces() => {}
        }
    }

    /// Queues the quotas that assign something to clusters whose namespaces have changed. Runs for ever.
    async fn hear_namespaces(&self) {
        loop {
            let batch = self.namespaces.next().await;
            let clusters: BTreeSet<&str> =
                batch.keys().filter_map(|key| names::cluster_of_namespace(&key.name)).collect();
            for page in self.context.accounts.quotas.pages(None) {
                for (key, head) in page {
                    let Some((spec, _)) = &*head else { continue };
                    if spec.static_assignments.iter().any(|of| clusters.contains(of.cluster_name.as_str())) {
                        self.queue.add(Key::clone(&key));
                    }
                }
                yield_now().await;
            }
        }
    }

    async fn reconcile(&self, key: Key) -> Result<Next, Error> {
        // Before anything is read: what is reported from now on is for the next round.
        self.rounds.lock().begin(key.clone(), works_of(&self.context, &key), self.context.env.now());
        let objects = &self.context.writer.objects;
        let live = objects.get(&FEDERATED_RESOURCE_QUOTAS, &key).await?;
        let Some(live) = live.filter(|live| object::deletion_timestamp(live).is_none()) else {
            self.remove_others(&key, &BTreeSet::new()).await?;
            return Ok(Next::Done);
        };
        let Some(spec) = key::read::<FederatedResourceQuotaSpec>(&live, "spec") else {
            return Ok(Next::Done);
        };
        let assigned: BTreeSet<String> =
            spec.static_assignments.iter().map(|assignment| assignment.cluster_name.clone()).collect();
        self.remove_others(&key, &assigned).await?;
        // At the first look at a quota, and when its limits are other ones, everything is told that Karmada tells at every look.
        let present: FederatedResourceQuotaStatus = key::read(&live, "status").unwrap_or_default();
        let news = present.overall != spec.overall;
        let (mut written, mut problems, mut next) = (false, Vec::new(), Next::Done);
        for cluster in &assigned {
            match self.make(&key, &live, &spec, cluster).await? {
                None | Some(Made::Unchanged) => {}
                Some(Made::Written) => written = true,
                Some(Made::Going) => next = Next::After(PATIENCE),
                Some(Made::Withheld(wait)) => next = Next::After(wait),
                Some(Made::Taken(why) | Made::TooLarge(why) | Made::Refused(why)) => {
                    problems.push(format!("{cluster}: {why}"));
                    next = Next::After(PATIENCE);
                }
            }
        }
        if !problems.is_empty() {
            let text = problems.join("; ");
            self.context.writer.warning(component::QUOTA_SYNC, &live, event::SYNC_WORK_FAILED, text);
        } else if written || news {
            let text = format!("Sync works for FederatedResourceQuota({key}) succeed.");
            self.context.writer.normal(component::QUOTA_SYNC, &live, event::SYNC_WORK_SUCCEED, text);
        }
        let collected = self.collect(&key, &live, &spec).await;
        if let Err(error) = &collected
            && !error.is_conflict()
        {
            for (who, reason, _) in COLLECTORS {
                self.context.writer.warning(who, &live, reason, error.to_string());
            }
        }
        let changed = collected?;
        for ((who, _, reason), changed) in COLLECTORS.into_iter().zip(changed) {
            if changed || news {
                let text = format!("Collect status of FederatedResourceQuota({key}) succeed.");
                self.context.writer.normal(who, &live, reason, text);
            }
        }
        Ok(next)
    }

    /// Makes the Work of one cluster; nothing for a cluster that is not there, or not yet.
    async fn make(
        &self,
        key: &Key,
        live: &Value,
        spec: &FederatedResourceQuotaSpec,
        cluster: &str,
    ) -> Result<Option<Made>, Error> {
        let context = &self.context;
        let there =
            |name: &str| context.known.clusters.get(&Key::cluster_scoped(name)).is_some_and(|c| !c.deleting);
        let execution = names::execution_namespace(cluster);
        let ready = context
            .known
            .namespaces
            .get(&Key::cluster_scoped(execution.as_str()))
            .is_some_and(|n| !n.deleting);
        let Some(manifest) = quota::resource_quota(live, spec, cluster).filter(|_| there(cluster) && ready)
        else {
            return Ok(None);
        };
        let name = names::work_name("ResourceQuota", &key.namespace, &key.name);
        let made =
            works::ensure(&context.writer, &Key::new(execution, name), &Maker::Quota(key), |existing, id| {
                core_work::build_quota(&manifest, cluster, existing, || id.to_owned())
            })
            .await?;
        Ok(Some(made))
    }

    /// Deletes the Works of a quota on clusters that it does not name.
    async fn remove_others(&self, key: &Key, assigned: &BTreeSet<String>) -> Result<(), Error> {
        for (work, head) in self.context.known.works.group(&WorkHead::of_quota(key)) {
            let cluster = names::cluster_of_namespace(&work.namespace).unwrap_or_default();
            if head.deleting || assigned.contains(cluster) {
                continue;
            }
            let Some(live) = self.context.writer.objects.get(&WORKS, &work).await? else { continue };
            if WorkHead::quota_of(&live).as_ref() == Some(key) {
                tracing::info!(%work, quota = %key, "no longer assigned");
                self.context.writer.delete_work(&live).await?;
            }
        }
        Ok(())
    }

    /// Writes down what is allowed and what is used. Whether what clusters report is other than before, and whether the rest
    /// is.
    async fn collect(
        &self,
        key: &Key,
        live: &Value,
        spec: &FederatedResourceQuotaSpec,
    ) -> Result<[bool; 2], Error> {
        let mut reports = Vec::new();
        for (work, head) in self.context.known.works.group(&WorkHead::of_quota(key)) {
            let cluster = names::cluster_of_namespace(&work.namespace).filter(|_| !head.deleting);
            let Some(cluster) = cluster else { continue };
            match head.said.report() {
                Some(report) => reports.push((cluster.to_owned(), report)),
                None => {
                    let found = self.context.writer.objects.get(&WORKS, &work).await?;
                    let found = found.and_then(|live| Work::deserialize(&live).ok());
                    reports.extend(aggregate::reports(&found));
                }
            }
        }
        let aggregated_status: Vec<ClusterQuotaStatus> = quota::aggregated(spec, reports);
        let used = quotas::used(&self.context.accounts, &key.namespace, None);
        let wanted = FederatedResourceQuotaStatus {
            overall: spec.overall.clone(),
            overall_used: quota::used(&spec.overall, &used),
            aggregated_status,
        };
        let differs = |live: &Value| {
            key::read(live, "status").is_some_and(|present: FederatedResourceQuotaStatus| present != wanted)
        };
        if !differs(live) {
            return Ok([false, false]);
        }
        let before: FederatedResourceQuotaStatus = key::read(live, "status").unwrap_or_default();
        let changed = [
            before.aggregated_status != wanted.aggregated_status,
            (&before.overall, &before.overall_used) != (&wanted.overall, &wanted.overall_used),
        ];
        let generation = object::generation(live);
        let apply = |live: &mut Value| {
            let stale = object::generation(live) != generation || !differs(live);
            if !stale && let Some(map) = live.as_object_mut() {
                map.insert("status".into(), json!(wanted));
            }
            !stale
        };
        self.context.writer.objects.modify(&FEDERATED_RESOURCE_QUOTAS, key, Part::Status, apply).await?;
        Ok(changed)
    }
}

/// How many Works a quota has.
fn works_of(context: &Context, quota: &Key) -> usize {
    context.known.works.group_len(&WorkHead::of_quota(quota))
}
