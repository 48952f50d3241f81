//! Clusters: their execution namespaces, and their way out.
//!
//! A Cluster that is deleted keeps its finalizer until its Works and its namespace are gone. While its agent
//! reports, the agent takes down what the Works hold; when it does not, or has had its time, the Works' finalizers are
//! dropped (of what may run in one place only when the agent has stopped it, so that no copy begins elsewhere before) and
//! what is on the member stays there ([`karmada_core::leave`]). By then the agent's credentials have ended. Bindings that
//! could not be placed elsewhere, or are not to be, lose it as their place at last: what registers by its name later is
//! another cluster.

mod waiting;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use karmada_api::consts::{component, event, finalizer, label};
use karmada_apiserver::authn::epochs::{self, End, Record};
use karmada_cli::agents;
use karmada_client::{Error, WorkQueue};
use karmada_core::{
    admit::{self, agent::work},
    judge::fence::{self, Left},
    leave::{Leaving, Removal, removal},
    names,
};
use karmada_meta::{object, path::aggregate};
use karmada_objects::{
    Part, bindings,
    key::Key,
    kinds::{CLUSTERS, NAMESPACES, SECRETS, WORKS},
    scope::BindingKey,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::waiting::Waiting;
use super::{Context, Next, work};
use crate::{known::heads::ClusterHead, rules::hooks, write::checks};

/// How many clusters are worked on at a time.
const WORKERS: usize = 4;
/// How long a step of a removal is given before it is looked at again; watches usually say so earlier.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many bindings are taken off a cluster in one step.
const BINDINGS: usize = 100;
/// How long until the next such step.
const MOMENT: Duration = Duration::from_millis(500);

/// Where roles are.
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Keeps execution namespaces.
pub(crate) struct ClusterController {
    context: Arc<Context>,
    queue: WorkQueue<String>,
    /// For how long agents are waited for whose Clusters go.
    waiting: Waiting,
    /// The uids of Clusters that are noted on the roles of their agents.
    noted: Mutex<BTreeMap<String, String>>,
    /// The uids of those in push mode of which an agent's credentials have been ended.
    displaced: Mutex<BTreeMap<String, String>>,
}

impl ClusterController {
    /// A controller that hears the context's Clusters, Namespaces and Works from now on.
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        let queue = WorkQueue::new(context.env.clone());
        let of_clusters = queue.clone();
        context.known.clusters.listen(move |change| of_clusters.add(change.key.name.clone()));
        let of_namespaces = queue.clone();
        context.known.namespaces.listen(move |change| {
            if let Some(cluster) = names::cluster_of_namespace(&change.key.name) {
                of_namespaces.add(cluster.to_owned());
            }
        });
        let (of_works, clusters) = (queue.clone(), context.known.clusters.clone());
        context.known.works.listen(move |change| {
            // Works matter here only on the way out.
            if let Some(cluster) = names::cluster_of_namespace(&change.key.namespace)
                && clusters.get(&Key::cluster_scoped(cluster)).is_some_and(|head| head.deleting)
            {
                of_works.add(cluster.to_owned());
            }
        });
        let (of_rules, clusters) = (queue.clone(), context.known.clusters.clone());
        hooks::listen_told(&context.rules, move || {
            for (key, _) in clusters.all() {
                of_rules.add(key.name);
            }
        });
        let again = queue.clone();
        context.resync.tell(&context.known.clusters, move |cluster, _| again.add(cluster.name.clone()));
        context.figures.queue("cluster", &queue);
        let waiting = Waiting::new(context.env.clone(), context.accounts.judgement.removal());
        Self {
            context: context.clone(),
            queue,
            waiting,
            noted: Mutex::default(),
            displaced: Mutex::default(),
        }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        self.context.known.clusters.synced().await;
        self.context.known.namespaces.synced().await;
        self.context.known.bindings.synced().await;
        self.context.rules.customizations.synced().await;
        self.context.rules.webhooks.synced().await;
        work("cluster", &self.queue, WORKERS, &stop, |name: String| self.reconcile(name)).await;
    }

    async fn reconcile(&self, name: String) -> Result<Next, Error> {
        let objects = &self.context.writer.objects;
        let key = Key::cluster_scoped(name);
        let Some(mut cluster) = objects.get(&CLUSTERS, &key).await? else {
            self.waiting.forget(&key.name);
            self.displaced.lock().remove(&key.name);
            return self.keep_to(&key.name, None).await;
        };
        if object::deletion_timestamp(&cluster).is_some() {
            return self.remove(&key, &cluster).await;
        }
        // Before it can be deleted with the hub's finalizer off.
        self.keep_to(&key.name, Some(object::uid(&cluster))).await?;
        self.displace(&key.name, &cluster).await?;
        let before = cluster.clone();
        if object::add_finalizer(&mut cluster, finalizer::CLUSTER) {
            // Before anything is made that the finalizer is to take down. An API server without our admission has not
            // set defaults; a Cluster that breaks a rule is as good as it is.
            let mut whole = cluster.clone();
            match checks::own(&CLUSTERS, Some(&before), &mut whole, &self.context.env) {
                Ok(_) => cluster = whole,
                Err(errors) => {
                    tracing::warn!(cluster = %key, why = aggregate(&errors), "the Cluster breaks a rule");
                }
            }
            cluster = objects.replace(&CLUSTERS, &cluster).await?;
        }
        let told = hooks::told(&self.context.rules);
        if hooks::tell(&mut cluster.clone(), &told) {
            objects.modify(&CLUSTERS, &key, Part::Main, |live| hooks::tell(live, &told)).await?;
        }
        self.tell_twin(&key, &cluster);
        self.ensure_namespace(&key.name, &cluster).await
    }

    /// Notes which Cluster is there, on an API server that is not the hub's own, and takes back what its agent was given when it is
    /// no more: whoever may write a Cluster there may take the hub's finalizer off.
    async fn keep_to(&self, cluster: &str, uid: Option<&str>) -> Result<Next, Error> {
        if self.context.epochs.is_some()
            || uid.is_some() && self.noted.lock().get(cluster).map(String::as_str) == uid
        {
            return Ok(Next::Done);
        }
        self.noted.lock().remove(cluster);
        let (objects, now) = (&self.context.writer.objects, self.context.env.wall());
        match agents::keep_to(objects, cluster, uid, now).await {
            // Of one that is gone there is nothing to note.
            Ok(true) => {
                let uid = uid.map(str::to_owned);
                self.noted.lock().extend(uid.map(|uid| (cluster.to_owned(), uid)));
            }
            Ok(false) => {}
            // A Cluster does not wait for a right that its server's owner does not mean to give.
            Err(error) if error.is_forbidden() => {
                tracing::warn!(cluster, %error, "the hub may not look after what it lets an agent do");
            }
            Err(error) => return Err(error),
        }
        Ok(Next::Done)
    }

    /// Ends what agents of this name were given where the hub works on the cluster by itself. It is not to count when the
    /// Cluster is handed to an agent again, nor is another to be got by it.
    async fn displace(&self, name: &str, cluster: &Value) -> Result<(), Error> {
        let uid = object::uid(cluster);
        if cluster["spec"]["syncMode"] != "Push" {
            self.displaced.lock().remove(name);
            return Ok(());
        }
        let shown = self.context.epochs.as_ref().is_some_and(|epochs| epochs.was_shown(name));
        if !shown && self.displaced.lock().get(name).is_some_and(|noted| noted == uid) {
            return Ok(());
        }
        if self.context.epochs.is_some() {
            let now = self.context.env.wall();
            self.write_record(name, |record| record.displace(uid, shown, now)).await?;
        } else {
            self.take_back(name).await?;
        }
        self.displaced.lock().insert(name.to_owned(), uid.to_owned());
        Ok(())
    }

    /// Says of a Cluster that its member is known by another name. The embedded API does not let that happen; on
    /// others an agent may have been started under two names.
    fn tell_twin(&self, key: &Key, cluster: &Value) {
        let id = cluster.pointer("/spec/id").and_then(Value::as_str).unwrap_or_default();
        let namesakes = self.context.known.clusters.group(id);
        // The elder is the rightful one; nobody is to be told twice.
        let born = |head: &ClusterHead| head.cluster.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let ours = namesakes.iter().find(|(other, _)| other == key).and_then(|(_, head)| born(head));
        let elders = namesakes.iter().filter(|(other, head)| {
            !head.deleting && (born(head), other.name.as_str()) < (ours, key.name.as_str())
        });
        let others = elders.map(|(other, _)| (other.name.as_str(), id));
        if let Some(why) = admit::duplicate_id(&key.name, id, others) {
            tracing::warn!(cluster = %key, why, "one member has two names");
            self.context.writer.warning(component::CLUSTER, cluster, event::DUPLICATE_CLUSTER_ID, why);
        }
    }

    /// Lets go of the Works in an execution namespace that somebody deleted though its Cluster lives, so that it can
    /// be made again, with them. The agent takes no such deletion for one and keeps everything.
    async fn recover(&self, cluster: &str, namespace: &str) -> Result<Next, Error> {
        tracing::warn!(cluster, namespace, "the execution namespace was deleted; it will be made again");
        let (_, terminating) = self.works(namespace).await?;
        self.drop_work_finalizers(&terminating).await?;
        Ok(Next::After(PATIENCE))
    }

    async fn drop_work_finalizers(&self, works: &[Reference]) -> Result<(), Error> {
        for work in works {
            let drop = |live: &mut Value| object::uid(live) == work.uid && work::release(live);
            self.context.writer.objects.modify(&WORKS, &work.key, Part::Main, drop).await?;
        }
        Ok(())
    }

    async fn ensure_namespace(&self, cluster_name: &str, cluster: &Value) -> Result<Next, Error> {
        let name = names::execution_namespace(cluster_name);
        let key = Key::cluster_scoped(name.as_str());
        if let Some(head) = self.context.known.namespaces.get(&key) {
            if head.deleting {
                return self.recover(cluster_name, &name).await;
            }
            if head.labels.get(label::SYSTEM).is_some_and(|value| value == label::SYSTEM_VALUE) {
                return Ok(Next::Done);
            }
        }
        let labelled = |namespace: &mut Value| {
            let missing = object::label(namespace, label::SYSTEM) != Some(label::SYSTEM_VALUE);
            object::set_label(namespace, label::SYSTEM, label::SYSTEM_VALUE);
            missing
        };
        if self.context.writer.objects.modify(&NAMESPACES, &key, Part::Main, labelled).await?.is_some() {
            return Ok(Next::Done);
        }
        let namespace = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": {label::SYSTEM: label::SYSTEM_VALUE}},
        });
        match self.context.writer.objects.create(&NAMESPACES, &namespace).await {
            Ok(_) => {
                let text = format!("Created execution space({name}) for cluster({cluster_name}).");
                self.context.writer.normal(
                    component::CLUSTER,
                    cluster,
                    event::CREATE_EXECUTION_SPACE_SUCCEED,
                    text,
                );
                if self.context.epochs.is_none()
                    && let Err(error) =
                        agents::restore(&self.context.writer.objects, cluster_name, self.context.env.wall())
                            .await
                {
                    tracing::warn!(cluster = cluster_name, %error, "the agent has no rights in its new execution namespace");
                }
                Ok(Next::Done)
            }
            Err(error) if error.is_already_exists() => Ok(Next::After(Duration::ZERO)),
            Err(error) => {
                let text =
                    format!("Failed to create execution space({name}) for cluster({cluster_name}): {error}.");
                self.context.writer.warning(
                    component::CLUSTER,
                    cluster,
                    event::CREATE_EXECUTION_SPACE_FAILED,
                    text,
                );
                Err(error)
            }
        }
    }

    /// One step of a removal.
    async fn remove(&self, key: &Key, cluster: &Value) -> Result<Next, Error> {
        if !object::finalizers(cluster).contains(&finalizer::CLUSTER) {
            // Its way out is over, by the hub or without it.
            return self.keep_to(&key.name, None).await;
        }
        let name = names::execution_namespace(&key.name);
        let (alive, terminating) = self.works(&name).await?;
        let namespace =
            self.context.writer.objects.get(&NAMESPACES, &Key::cluster_scoped(name.as_str())).await?;
        let overdue = self.waiting.overdue(cluster, alive.len() + terminating.len());
        let fenced = terminating.iter().any(|work| self.may_run_still(&key.name, work));
        let reporting = ClusterHead::project(cluster).reporting();
        if overdue.is_some() && self.waiting.is_untold(&key.name) {
            self.go_without_agent(cluster, reporting, alive.len() + terminating.len(), fenced).await?;
            self.waiting.told(&key.name);
        }
        let step = removal(&Leaving {
            reporting,
            overdue: overdue.is_some(),
            works_alive: alive.len(),
            works_terminating: terminating.len(),
            fenced,
            placed: self.placed_on(&key.name).len(),
            namespace: namespace.is_some(),
            namespace_terminating: namespace
                .as_ref()
                .is_some_and(|n| object::deletion_timestamp(n).is_some()),
        });
        tracing::debug!(cluster = %key, ?step, "removing");
        if step == Removal::Done && self.has_credentials(&key.name, cluster).await? {
            self.end_credentials(&key.name, object::uid(cluster)).await?;
            self.drop_roles(&key.name).await?;
        }
        if step == Removal::Wait && terminating.is_empty() {
            self.free_namespace(cluster, namespace.as_ref()).await?;
        }
        let done = self.take(step, key, &alive, &terminating, namespace.as_ref()).await;
        match done {
            Ok(next) => {
                if step == Removal::Done {
                    let text = format!("Removed execution space({name}) for cluster({}).", key.name);
                    self.context.writer.normal(
                        component::CLUSTER,
                        cluster,
                        event::REMOVE_EXECUTION_SPACE_SUCCEED,
                        text,
                    );
                }
                Ok(next)
            }
            Err(error) => {
                let text =
                    format!("Failed to remove execution space({name}) for cluster({}): {error}.", key.name);
                self.context.writer.warning(
                    component::CLUSTER,
                    cluster,
                    event::REMOVE_EXECUTION_SPACE_FAILED,
                    text,
                );
                Err(error)
            }
        }
    }

    /// Ends the credentials of an agent that has had its time, and says so where somebody waits for it.
    async fn go_without_agent(
        &self,
        cluster: &Value,
        reporting: bool,
        works: usize,
        fenced: bool,
    ) -> Result<(), Error> {
        let name = object::name(cluster);
        let credentials = match &self.context.epochs {
            Some(_) => {
                if self.has_credentials(name, cluster).await? {
                    self.end_credentials(name, object::uid(cluster)).await?;
                }
                "its credentials have ended"
            }
            None if self.take_back(name).await? => "what the hub let it do here is taken back",
            None => "end its credentials on this API server, so that it makes nothing here again",
        };
        if reporting && works > 0 {
            let fence = match fenced {
                true => {
                    " What may run in one place only is waited for until the agent has not been heard for so long that it has \
                         stopped it."
                }
                false => "",
            };
            let text = format!(
                "The agent of cluster({name}) reports, and has not let go of {works} Works in time: the Cluster goes without \
                 it, and what they hold stays on the member; {credentials}.{fence}"
            );
            tracing::warn!(
                cluster = name,
                works,
                "the agent has not let go of its Works in time: its Cluster goes without it"
            );
            self.context.writer.warning(component::CLUSTER, cluster, event::REMOVED_WITHOUT_AGENT, text);
        }
        Ok(())
    }

    /// Whether there may be credentials by the name of a Cluster. What it says of that its agent may have taken back before it
    /// deleted it, and who was shown one may have been another process.
    async fn has_credentials(&self, name: &str, cluster: &Value) -> Result<bool, Error> {
        // On another API server whoever has a token may hold a certificate, and nobody notes that.
        let Some(epochs) = &self.context.epochs else { return Ok(true) };
        if admit::agent::has_registered(cluster) || epochs.was_shown(name) {
            return Ok(true);
        }
        let key = Key::new(epochs::NAMESPACE, Record::name(name));
        let record = self.context.writer.objects.get(&SECRETS, &key).await?;
        Ok(record.is_some_and(|record| Record::read(&record).is_ok_and(|record| record.is_issued())))
    }

    /// Takes finalizers that are not its own off an execution namespace that goes: nobody else has business there, and the
    /// Cluster would wait for them for ever.
    async fn free_namespace(&self, cluster: &Value, namespace: Option<&Value>) -> Result<(), Error> {
        let Some(namespace) = namespace else { return Ok(()) };
        let all = namespace.pointer("/spec/finalizers").and_then(Value::as_array);
        let (own, foreign): (Vec<&Value>, Vec<&Value>) =
            all.into_iter().flatten().partition(|finalizer| **finalizer == "kubernetes");
        if foreign.is_empty() {
            return Ok(());
        }
        let name = object::name(namespace);
        let mut freed = namespace.clone();
        freed["spec"]["finalizers"] = json!(own);
        let path = format!("/api/v1/namespaces/{name}/finalize");
        let done = match self.context.writer.objects.rest().put(&path, &freed).await {
            Ok(_) => "they were taken off".to_owned(),
            // It is looked at again.
            Err(error) if error.is_conflict() || error.is_not_found() => return Ok(()),
            Err(error) => format!("they cannot be taken off: {error}"),
        };
        let foreign = json!(foreign);
        let text = format!("The execution space({name}) was held by spec.finalizers {foreign}: {done}.");
        self.context.writer.warning(component::CLUSTER, cluster, event::REMOVE_EXECUTION_SPACE_FAILED, text);
        Ok(())
    }

    /// Ends the credentials of a Cluster that goes, so that they cannot register it anew: before its last finalizer goes, so
    /// that nothing comes between.
    async fn end_credentials(&self, cluster: &str, uid: &str) -> Result<(), Error> {
        if self.context.epochs.is_none() {
            // Those of another API server are ended there.
            return Ok(());
        }
        let now = self.context.env.wall();
        self.write_record(cluster, |record| record.end(End::Deleted, uid, now)).await
    }

    /// Writes what becomes of the record of a cluster's credentials; one that cannot be read lets nobody in as it is.
    async fn write_record(
        &self,
        cluster: &str,
        becomes: impl Fn(&Record) -> Option<Record>,
    ) -> Result<(), Error> {
        let objects = &self.context.writer.objects;
        let key = Key::new(epochs::NAMESPACE, Record::name(cluster));
        let change = |secret: &mut Value| {
            let next = Record::read(secret).ok().and_then(|record| becomes(&record));
            let Some(next) = next else { return false };
            *secret = next.write(cluster, Some(secret.take()));
            true
        };
        if objects.modify(&SECRETS, &key, Part::Main, change).await?.is_none()
            && let Some(first) = becomes(&Record::default())
        {
            objects.create(&SECRETS, &first.write(cluster, None)).await?;
        }
        Ok(())
    }

    /// Takes away the roles that `karmadactl register` has made for an agent, or the hub on an API server that is not its own:
    /// there they are what its certificate is good for. Those in its execution namespace have gone with that.
    async fn drop_roles(&self, cluster: &str) -> Result<(), Error> {
        if self.context.epochs.is_none() {
            return self.take_back(cluster).await.map(drop);
        }
        let within = format!("{RBAC}/namespaces/{}", epochs::NAMESPACE);
        for path in [
            format!("{RBAC}/clusterrolebindings/system:karmada:{cluster}:agent"),
            format!("{RBAC}/clusterroles/system:karmada:{cluster}:agent"),
            format!("{within}/rolebindings/system:karmada:{cluster}:agent-secret"),
            format!("{within}/roles/system:karmada:{cluster}:agent-secret"),
        ] {
            match self.context.writer.objects.rest().delete(&path, &json!({})).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes back what the hub has given an agent on an API server that is not its own; whether it was anything.
    async fn take_back(&self, cluster: &str) -> Result<bool, Error> {
        let (objects, now) = (&self.context.writer.objects, self.context.env.wall());
        match agents::take_back(objects, cluster, now).await {
            // The Cluster does not wait for a right that its server's owner does not mean to give.
            Err(error) if error.is_forbidden() => {
                tracing::warn!(cluster, %error, "the hub may not take the rights of an agent back whose Cluster goes");
                Ok(false)
            }
            taken => taken,
        }
    }

    /// Whether something in a Work may run in one place only, and on its cluster for some time yet. It counts from the last
    /// renewal: an agent whose credentials have ended renews no more, and one that still does has heard the hub. Where the hub
    /// itself works on the member nobody is there who would stop it, however long is waited.
    fn may_run_still(&self, cluster: &str, work: &Reference) -> bool {
        let Some(after) = work.fence else { return false };
        let head = self.context.known.clusters.get(&Key::cluster_scoped(cluster));
        if head.is_some_and(|head| head.is_pushed()) {
            return false;
        }
        let judgement = &self.context.accounts.judgement;
        let silent = judgement.silent(cluster);
        let left = Left { reports: false, exists: true, stops: true, silent, marked: true };
        fence::wait(Some(left), after, judgement.fence_skew()) != fence::Wait::No
    }

    async fn take(
        &self,
        step: Removal,
        cluster: &Key,
        alive: &[Reference],
        terminating: &[Reference],
        namespace: Option<&Value>,
    ) -> Result<Next, Error> {
        let objects = &self.context.writer.objects;
        let again = Ok(Next::After(Duration::ZERO));
        match step {
            Removal::DeleteWorks => {
                for work in alive {
                    objects.delete_uid(&WORKS, &work.key, &work.uid).await?;
                }
                again
            }
            Removal::Wait => Ok(Next::After(PATIENCE)),
            Removal::DropWorkFinalizers => {
                self.drop_work_finalizers(terminating).await?;
                again
            }
            Removal::DeleteNamespace => {
                if let Some(namespace) = namespace {
                    objects.delete_uid(&NAMESPACES, &Key::of(namespace), object::uid(namespace)).await?;
                }
                again
            }
            Removal::LeaveBindings => {
                let drop = |live: &mut Value| leave(live, &cluster.name);
                for binding in self.placed_on(&cluster.name).into_iter().take(BINDINGS) {
                    let resource = bindings::resource(binding.scope);
                    objects.modify(resource, &binding.key, Part::Main, drop).await?;
                }
                // What was written is known in a moment.
                Ok(Next::After(MOMENT))
            }
            Removal::Done => {
                let drop = |live: &mut Value| object::remove_finalizer(live, finalizer::CLUSTER);
                objects.modify(&CLUSTERS, cluster, Part::Main, drop).await?;
                Ok(Next::Done)
            }
        }
    }

    /// The bindings that are scheduled to a cluster.
    fn placed_on(&self, cluster: &str) -> Vec<BindingKey> {
        self.context.known.naming(cluster, |head| !head.deleting && head.clusters.contains(cluster))
    }

    /// A live list of a namespace's Works: those without a deletion timestamp, and those that only wait for the
    /// agent.
    async fn works(&self, namespace: &str) -> Result<(Vec<Reference>, Vec<Reference>), Error> {
        let (mut alive, mut terminating) = (Vec::new(), Vec::new());
        self.context
            .writer
            .objects
            .list(&WORKS, Some(namespace), "", |page| {
                for work in page {
                    // What an agent has collected runs nowhere, whatever it says of itself.
                    let manifests = work
                        .pointer("/spec/workload/manifests")
                        .and_then(Value::as_array)
                        .filter(|_| work::is_of_a_binding(&work));
                    let reference = Reference {
                        key: Key::of(&work),
                        uid: object::uid(&work).to_owned(),
                        fence: manifests.into_iter().flatten().filter_map(fence::after).max(),
                    };
                    if object::deletion_timestamp(&work).is_none() {
                        alive.push(reference);
                    } else if object::finalizers(&work).iter().any(|name| work::FINALIZERS.contains(name)) {
                        terminating.push(reference);
                    }
                }
            })
            .await?;
        Ok((alive, terminating))
    }
}

/// Takes a cluster out of a binding's placement.
fn leave(binding: &mut Value, cluster: &str) -> bool {
    let Some(clusters) = binding.pointer_mut("/spec/clusters").and_then(Value::as_array_mut) else {
        return false;
    };
    let before = clusters.len();
    clusters.retain(|target| target["name"] != cluster);
    clusters.len() != before
}

/// Exactly one object.
struct Reference {
    key: Key,
    uid: String,
    /// For how long something in it may run without the hub's confirmation, if anything in it is fenced.
    fence: Option<Duration>,
}
