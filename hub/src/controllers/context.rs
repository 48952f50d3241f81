//! What the controllers are given, part by part, and the watches that keep it current.

use std::{fmt, sync::Arc};

use karmada_api::consts::{extension, label, namespace};
use karmada_api::work::ResourceBindingSpec;
use karmada_apiserver::authn::epochs::Epochs;
use karmada_client::{Error, Resource, Rest, WatchConfig, WorkQueue, latest, watch::Health};
use karmada_core::{services::slices, skip::Skip};
use karmada_env::Env;
use karmada_meta::object;
use karmada_objects::{
    bindings,
    key::Key,
    kinds,
    policies::PolicyHead,
    scope::{BindingKey, Scope},
};
use kube::Client;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::resync::Resync;
use crate::{
    accounts::{Accounts, Settings, quotas},
    known::{
        Known,
        heads::{
            BindingHead, ClusterHead, CronHead, DefinitionHead, HpaHead, ImportHead, ImportedHead, LeaseHead,
            MultiHead, OverrideHead, RemedyHead, RoleBindingHead, RoleHead, TaintPolicyHead, TemplateHead,
            UpgradeHead, WorkHead,
        },
        index::{Index, follow},
        shared::Shared,
        watches::Watches,
    },
    metrics::HubFigures,
    rules::{UserRules, customizations, hooks},
    write::Writer,
};

/// What the controllers share.
pub(crate) struct Context {
    /// What is remembered of the API.
    pub known: Arc<Known>,
    /// Users' rules for kinds.
    pub rules: Arc<UserRules>,
    /// How anything is written.
    pub writer: Arc<Writer>,
    /// What is counted.
    pub accounts: Arc<Accounts>,
    /// Which credentials of agents count, where the API is the hub's own.
    pub epochs: Option<Arc<Epochs>>,
    pub env: Env,
    /// Bindings whose Works are to be looked at: besides the watches the detector adds to it.
    pub to_bind: WorkQueue<BindingKey>,
    /// Bindings whose changes go out in waves: besides the watches the binding controller adds to it.
    pub to_roll: WorkQueue<BindingKey>,
    /// Bindings whose templates members may have scaled, where the hub asks for that.
    pub to_scale: Option<WorkQueue<BindingKey>>,
    /// Who looks at what again, now and then.
    pub resync: Resync,
    /// How the watches below do.
    pub watches: Watches,
    /// What the controllers count for people.
    pub figures: HubFigures,
    /// Watches and recorders, which end with `stop`.
    pub tasks: TaskTracker,
    pub stop: CancellationToken,
    client: Client,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").finish_non_exhaustive()
    }
}

impl Context {
    /// Empty indexes and accounts over a client.
    pub(crate) fn new(
        client: Client,
        env: Env,
        skip: Skip,
        settings: Settings,
        figures: HubFigures,
        stop: CancellationToken,
    ) -> Self {
        let tasks = TaskTracker::new();
        let known = Arc::new(Known::new(skip));
        let accounts = Accounts::new(known.clone(), env.clone(), settings, figures.clone());
        let context = Self {
            rules: Arc::new(UserRules::new(&client, known.clone(), env.clone(), &tasks, &stop)),
            writer: Arc::new(Writer::new(&client, known.clone(), env.clone(), &tasks, &stop)),
            accounts: Arc::new(accounts),
            known,
            epochs: None,
            to_bind: WorkQueue::new(env.clone()),
            to_roll: WorkQueue::new(env.clone()),
            to_scale: None,
            resync: Resync::default(),
            watches: Watches::new(env.clone()),
            env,
            figures,
            tasks,
            stop,
            client,
        };
        context.count();
        context
    }

    /// Lets those hear what the indexes tell of clusters, leases and Works who do nothing about it: first who tells what
    /// others have deleted, whom the controllers ask, then the figures.
    fn count(&self) {
        let (takings, known) = (self.writer.takings.clone(), Arc::downgrade(&self.known));
        self.known.works.listen(move |change| {
            if let Some(known) = known.upgrade() {
                takings.heard(change, |work| known.maker_wants(change.key, work));
            }
        });
        let takings = self.writer.takings.clone();
        self.known.clusters.listen(move |change| {
            if change.new.is_none() {
                takings.forget(&change.key.name);
            }
        });
        let figures = self.figures.clone();
        self.known.clusters.listen(move |change| {
            if change.new.is_none() {
                figures.clusters().gone(&change.key.name);
            }
        });
        let figures = self.figures.clone();
        self.known.leases.listen(move |change| match change.new {
            Some(lease) => {
                let first = change.old.is_none();
                figures.lease_seen(&change.key.name, &lease.renew_time, first);
            }
            None => figures.clusters().lease_gone(&change.key.name),
        });
        let figures = self.figures.clone();
        self.known.works.listen(move |change| {
            if change.new.is_none() {
                figures.propagation().forget(change.key);
            }
        });
        self.figures.queue("binding", &self.to_bind);
    }

    /// Starts the watches that keep the indexes current, each as one task of `running`. Listeners are all in place
    /// by now. Answers how the watch on Leases does.
    pub(crate) fn watch(&self, running: &mut JoinSet<&'static str>) -> latest::Receiver<Health> {
        let leases = kinds::LEASES.collection(Some(namespace::CLUSTER));
        let all = |resource: &Resource| resource.collection(None);
        let (figures, fleet) = (self.figures.clone(), self.accounts.fleet.clone());
        let shares = &self.known.shares;
        let (index, config) = (&self.known.clusters, WatchConfig::new(all(&kinds::CLUSTERS)));
        self.follow_shared(
            running,
            "clusters",
            index,
            config,
            Shared::by(&shares.clusters),
            move |cluster| {
                // What changes at every heartbeat is shown, and no news to anybody.
                figures.clusters().seen(object::name(cluster), cluster);
                fleet.seen(object::name(cluster), &cluster["status"]["resourceSummary"]);
                fleet.seen_nodes(cluster);
                fleet.seen_allowances(cluster);
                ClusterHead::project(cluster)
            },
        );
        self.follow(
            running,
            "namespaces",
            &self.known.namespaces,
            all(&kinds::NAMESPACES),
            TemplateHead::project,
        );
        let policies = &self.known.policies;
        let (pp, cpp) = (all(&kinds::PROPAGATION_POLICIES), all(&kinds::CLUSTER_PROPAGATION_POLICIES));
        self.follow(running, "propagationpolicies", &policies.namespaced, pp, PolicyHead::project);
        self.follow(
            running,
            "clusterpropagationpolicies",
            &policies.cluster,
            cpp,
            PolicyHead::project_cluster,
        );
        let overrides = &self.known.overrides;
        let (op, cop) = (all(&kinds::OVERRIDE_POLICIES), all(&kinds::CLUSTER_OVERRIDE_POLICIES));
        self.follow(running, "overridepolicies", &overrides.namespaced, op, OverrideHead::project);
        self.follow(
            running,
            "clusteroverridepolicies",
            &overrides.cluster,
            cop,
            OverrideHead::project_cluster,
        );
        let bindings = &self.known.bindings;
        let (rb, crb) = (all(&kinds::RESOURCE_BINDINGS), all(&kinds::CLUSTER_RESOURCE_BINDINGS));
        let project = |scope| {
            let (fleet, env) = (self.accounts.fleet.clone(), self.env.clone());
            move |binding: &Value| {
                fleet.heard(&env, &BindingKey { scope, key: Key::of(binding) }, binding);
                BindingHead::project(binding)
            }
        };
        self.follow(running, "resourcebindings", &bindings.namespaced, rb, project(Scope::Namespaced));
        self.follow(running, "clusterresourcebindings", &bindings.cluster, crb, project(Scope::Cluster));
        let (figures, written) = (self.figures.clone(), self.writer.written.clone());
        // After all others have heard: they ask whether it is theirs.
        self.known.works.listen(move |change| written.arrived(change));
        // What agents have collected is of no use to them.
        let shared = Shared::by(&shares.works).but(label::ENDPOINT_SLICE_MANAGED_BY);
        let (index, config) = (&self.known.works, WatchConfig::new(all(&kinds::WORKS)));
        self.follow_shared(running, "works", index, config, shared, move |work| {
            figures.work_seen(&Key::of(work), work);
            WorkHead::project(work)
        });
        let rebalancers = all(&kinds::WORKLOAD_REBALANCERS);
        self.follow(running, "workloadrebalancers", &self.known.rebalancers, rebalancers, object::generation);
        let quotas = all(&kinds::FEDERATED_RESOURCE_QUOTAS);
        self.follow(running, "federatedresourcequotas", &self.accounts.quotas, quotas, quotas::project);
        let rules = all(&kinds::RESOURCE_INTERPRETER_CUSTOMIZATIONS);
        let (index, config) = (&self.rules.customizations, WatchConfig::new(rules));
        let shared = Shared::by(&shares.customizations);
        self.follow_shared(running, "customizations", index, config, shared, customizations::project);
        let taints = all(&kinds::CLUSTER_TAINT_POLICIES);
        self.follow(
            running,
            "clustertaintpolicies",
            &self.known.taint_policies,
            taints,
            TaintPolicyHead::project,
        );
        self.follow(running, "remedies", &self.known.remedies, all(&kinds::REMEDIES), RemedyHead::project);
        let crons = all(&kinds::CRON_FEDERATED_HPAS);
        self.follow(running, "cronfederatedhpas", &self.known.crons, crons, CronHead::project);
        let hpas = all(&kinds::FEDERATED_HPAS);
        self.follow(running, "federatedhpas", &self.known.hpas, hpas, HpaHead::project);
        self.follow(running, "roles", &self.known.roles, all(&kinds::CLUSTER_ROLES), RoleHead::project);
        let bindings = all(&kinds::CLUSTER_ROLE_BINDINGS);
        self.follow(running, "rolebindings", &self.known.role_bindings, bindings, RoleBindingHead::project);
        let imports = all(&kinds::SERVICE_IMPORTS);
        self.follow(running, "serviceimports", &self.known.imports, imports, ImportHead::project);
        let multi = all(&kinds::MULTI_CLUSTER_SERVICES);
        self.follow(running, "multiclusterservices", &self.known.multi, multi, MultiHead::project);
        let ours = format!("{}={}", slices::MANAGED_BY, slices::IMPORTER);
        let imported = WatchConfig::new(all(&kinds::ENDPOINT_SLICES)).labels(ours);
        self.follow_by(running, "endpointslices", &self.known.imported, imported, ImportedHead::project);
        let services = all(&kinds::RESOURCE_INTERPRETER_WEBHOOK_CONFIGURATIONS);
        let (index, config) = (&self.rules.webhooks, WatchConfig::new(services));
        let shared = Shared::by(&shares.webhooks);
        self.follow_shared(running, "interpreter-webhooks", index, config, shared, hooks::project);
        let definitions = all(&kinds::CUSTOM_RESOURCE_DEFINITIONS);
        self.follow(running, "definitions", &self.known.definitions, definitions, DefinitionHead::project);
        let upgrade = WatchConfig::new(kinds::CONFIG_MAPS.collection(Some(namespace::SYSTEM)))
            .fields(format!("metadata.name={}", extension::AGENT_UPGRADE_OBJECT));
        self.follow_by(running, "agent-upgrade", &self.known.upgrades, upgrade, UpgradeHead::project);
        self.follow(running, "leases", &self.known.leases, leases, LeaseHead::project)
    }

    fn follow<P: PartialEq + Send + Sync + 'static>(
        &self,
        running: &mut JoinSet<&'static str>,
        name: &'static str,
        index: &Arc<Index<P>>,
        path: String,
        project: impl Fn(&Value) -> P + Send + Sync + 'static,
    ) -> latest::Receiver<Health> {
        self.follow_by(running, name, index, WatchConfig::new(path), project)
    }

    fn follow_by<P: PartialEq + Send + Sync + 'static>(
        &self,
        running: &mut JoinSet<&'static str>,
        name: &'static str,
        index: &Arc<Index<P>>,
        config: WatchConfig,
        project: impl Fn(&Value) -> P + Send + Sync + 'static,
    ) -> latest::Receiver<Health> {
        self.follow_shared(running, name, index, config, Shared::default(), project)
    }

    fn follow_shared<P: PartialEq + Send + Sync + 'static>(
        &self,
        running: &mut JoinSet<&'static str>,
        name: &'static str,
        index: &Arc<Index<P>>,
        config: WatchConfig,
        shared: Shared,
        project: impl Fn(&Value) -> P + Send + Sync + 'static,
    ) -> latest::Receiver<Health> {
        self.figures.visits(name, index.visits());
        let (health, following) =
            follow(index.clone(), self.watching(), config, self.env.clone(), shared, project);
        self.watches.add(name, health.clone());
        let stop = self.stop.clone();
        running.spawn(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = following => {}
            }
            name
        });
        health
    }

    /// The API.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// The same for watches: those that fail are counted.
    pub(crate) fn watching(&self) -> Rest {
        Rest::new(self.client.clone()).counting(self.figures.watch_failures())
    }

    /// A binding: as the watch has brought it just now, or read.
    pub(crate) async fn binding(&self, key: &BindingKey) -> Result<Option<Value>, Error> {
        match self.known.bindings.of(key.scope).recent(&key.key) {
            Some(binding) => Ok(Some(Value::clone(&binding))),
            None => self.writer.objects.get(bindings::resource(key.scope), &key.key).await,
        }
    }

    /// After a reconcile of a binding: what came of it, and where it failed the binding is read the next time.
    pub(crate) fn settled<T>(&self, key: &BindingKey, outcome: Result<T, Error>) -> Result<T, Error> {
        outcome.inspect_err(|_| self.known.bindings.of(key.scope).forget_recent(&key.key))
    }

    /// A binding's template as it is now; nothing while it is gone, or another one of its name has taken its place.
    pub(crate) async fn template(
        &self,
        key: &BindingKey,
        spec: &ResourceBindingSpec,
    ) -> Result<Option<Value>, Error> {
        let Some(template) = bindings::own_template_key(key, &spec.resource) else { return Ok(None) };
        // What the binding was made for, if that is what the watch has brought last.
        let watched = self.known.templates.find(&template.kind);
        if let Some(recent) = watched.and_then(|watched| watched.index.recent(&template.key))
            && object::uid(&recent) == spec.resource.uid
            && object::resource_version(&recent) == spec.resource.resource_version
        {
            return Ok(Some(Value::clone(&recent)));
        }
        let objects = &self.writer.objects;
        let Some(resource) = self.known.templates.resource(objects.rest(), &template.kind).await? else {
            return Ok(None);
        };
        if resource.namespaced == template.key.namespace.is_empty() {
            return Ok(None);
        }
        let live = objects.get(&resource, &template.key).await?;
        Ok(live.filter(|live| spec.resource.uid.is_empty() || object::uid(live) == spec.resource.uid))
    }

    /// Resolves once all indexes are complete, or the hub stops.
    pub(crate) async fn synced(&self) {
        let all = async {
            self.known.policies.synced().await;
            self.known.overrides.synced().await;
            self.known.bindings.synced().await;
            self.known.clusters.synced().await;
            self.known.namespaces.synced().await;
            self.known.works.synced().await;
            self.known.leases.synced().await;
            self.known.taint_policies.synced().await;
            self.known.remedies.synced().await;
            self.known.crons.synced().await;
            self.known.hpas.synced().await;
            self.known.roles.synced().await;
            self.known.role_bindings.synced().await;
            self.known.imports.synced().await;
            self.known.imported.synced().await;
            self.known.multi.synced().await;
            self.known.definitions.synced().await;
            self.known.upgrades.synced().await;
            self.rules.customizations.synced().await;
            self.accounts.quotas.synced().await;
            self.rules.webhooks.synced().await;
        };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            () = all => {}
        }
    }
}
