//! What the controllers share: the API, the clocks, the indexes, and a way to tell people.

use std::{fmt, sync::Arc};

use karmada_apiserver::authn::epochs::Epochs;
use karmada_client::{Error, EventKind, Resource, Rest, WatchConfig, WorkQueue, latest, watch::Health};
use karmada_core::{evict, judge, skip::Skip};
use karmada_env::Env;
use karmada_interpreter::{Interpreter, Unreachable};
use karmada_meta::object;
use kube::Client;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    accounts::{
        evictions::Evictions,
        judgement::Judgement,
        needs::Needs,
        placing::Fleet,
        quotas::{self, QuotaHead, Quotas},
    },
    known::{
        bindings,
        heads::{
            BindingHead, BindingKey, ClusterHead, DefinitionHead, LeaseHead, OverrideHead, PolicyHead, Scope,
            TaintPolicyHead, TemplateHead, WorkHead,
        },
        index::{Index, follow},
        kinds,
        templates::Templates,
    },
    metrics::HubFigures,
    rules::{
        customizations::{self, Customization, RuleChanges},
        hooks::{self, Configuration, HubCaller},
    },
    write::{
        events::Reporter,
        objects::{Key, Objects},
        works::Written,
    },
};

/// Both scopes of a pair of kinds.
#[derive(Debug)]
pub(crate) struct Pair<P> {
    pub namespaced: Arc<Index<P>>,
    pub cluster: Arc<Index<P>>,
}

impl<P: PartialEq + Send + Sync + 'static> Pair<P> {
    fn new(index: impl Fn() -> Arc<Index<P>>) -> Self {
        Self { namespaced: index(), cluster: index() }
    }

    /// The index of one scope.
    pub(crate) fn of(&self, scope: Scope) -> &Arc<Index<P>> {
        match scope {
            Scope::Namespaced => &self.namespaced,
            Scope::Cluster => &self.cluster,
        }
    }

    /// Both indexes, with their scopes.
    pub(crate) fn both(&self) -> [(Scope, &Arc<Index<P>>); 2] {
        [(Scope::Namespaced, &self.namespaced), (Scope::Cluster, &self.cluster)]
    }

    /// Resolves once the first list of both is complete.
    pub(crate) async fn synced(&self) {
        self.namespaced.synced().await;
        self.cluster.synced().await;
    }
}

impl Pair<BindingHead> {
    /// Queues all bindings of which something holds.
    pub(crate) fn queue_where(&self, queue: &WorkQueue<BindingKey>, holds: impl Fn(&BindingHead) -> bool) {
        for (scope, index) in self.both() {
            for (key, _) in index.all().into_iter().filter(|(_, head)| holds(head)) {
                queue.add(BindingKey { scope, key });
            }
        }
    }
}

/// The shared state of the hub's controllers.
pub(crate) struct Context {
    pub objects: Objects,
    pub env: Env,
    pub skip: Skip,
    pub clusters: Arc<Index<ClusterHead>>,
    pub namespaces: Arc<Index<TemplateHead>>,
    pub policies: Pair<PolicyHead>,
    pub overrides: Pair<OverrideHead>,
    pub bindings: Pair<BindingHead>,
    pub works: Arc<Index<WorkHead>>,
    pub leases: Arc<Index<LeaseHead>>,
    pub taint_policies: Arc<Index<TaintPolicyHead>>,
    pub evictions: Evictions,
    /// Wishes that objects be placed anew, by their generation.
    pub rebalancers: Arc<Index<i64>>,
    pub definitions: Arc<Index<DefinitionHead>>,
    /// Users' own rules, which [`Self::interpreter`] goes by.
    pub customizations: Arc<Index<Customization>>,
    /// Users' services beside them.
    pub webhooks: Arc<Index<Configuration>>,
    /// Asks them.
    pub caller: Arc<HubCaller>,
    /// What the fields of a kind mean.
    pub interpreter: Interpreter,
    /// Tells of which kinds the users' rules have changed.
    pub rule_changes: RuleChanges,
    /// Which bindings need which other objects.
    pub needs: Needs,
    /// What namespaces may use.
    pub quotas: Arc<Index<QuotaHead>>,
    /// What of it was granted just now.
    pub granted: Quotas,
    pub templates: Arc<Templates>,
    /// All clusters, as placement wants them.
    pub fleet: Arc<Fleet>,
    /// What the hub writes into Works and has not heard back.
    pub written: Arc<Written>,
    /// Bindings whose Works are to be looked at: besides the watches the detector adds to it.
    pub to_bind: WorkQueue<BindingKey>,
    /// Whether clusters that get no replicas get objects all the same.
    pub empty_workloads: bool,
    /// Which credentials of agents count, where the API is the hub's own.
    pub epochs: Option<Arc<Epochs>>,
    /// What is made of clusters that fall silent, and whether evictions are allowed.
    pub judgement: Arc<Judgement>,
    /// What the controllers count.
    pub figures: HubFigures,
    /// Watches and recorders, which end with `stop`.
    pub tasks: TaskTracker,
    pub stop: CancellationToken,
    reporter: Reporter,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").finish_non_exhaustive()
    }
}

impl Context {
    /// Empty indexes over a client.
    pub(crate) fn new(
        client: Client,
        env: Env,
        skip: Skip,
        evictions: evict::Settings,
        judge: judge::Settings,
        figures: HubFigures,
        stop: CancellationToken,
    ) -> Self {
        let tasks = TaskTracker::new();
        let judgement = Arc::new(Judgement::new(judge, env.clone(), figures.clone()));
        let evictions = Evictions::new(evictions, &env);
        evictions.judged_by(judgement.clone());
        let reporter = Reporter::new(&client, &env, &tasks, &stop);
        let caller = Arc::new(HubCaller::new(Rest::new(client.clone()), &env));
        Self {
            objects: Objects::new(Rest::new(client)),
            skip,
            clusters: Index::grouped_by(ClusterHead::groups),
            namespaces: Index::new(),
            policies: Pair::new(Index::new),
            overrides: Pair::new(Index::new),
            bindings: Pair::new(|| Index::keep_recent(BindingHead::groups)),
            works: Index::grouped_by(WorkHead::groups),
            leases: Index::new(),
            taint_policies: Index::new(),
            evictions,
            empty_workloads: false,
            epochs: None,
            rebalancers: Index::new(),
            definitions: Index::new(),
            customizations: Index::new(),
            webhooks: Index::new(),
            interpreter: Interpreter::new(env.clone()).with_caller(caller.clone(), Unreachable::Fails),
            caller,
            rule_changes: RuleChanges::default(),
            needs: Needs::default(),
            quotas: Index::new(),
            granted: Quotas::default(),
            templates: Arc::new(Templates::new()),
            fleet: Arc::default(),
            written: Arc::default(),
            to_bind: WorkQueue::new(env.clone()),
            judgement,
            figures,
            tasks,
            stop,
            reporter,
            env,
        }
    }

    /// Starts the watches that keep the indexes current, each as one task of `running`. Listeners are all in place
    /// by now. Answers how the watch on Leases does.
    pub(crate) fn watch(&self, running: &mut JoinSet<&'static str>) -> latest::Receiver<Health> {
        let leases = kinds::LEASES.collection(Some(karmada_api::consts::namespace::CLUSTER));
        let all = |resource: &Resource| resource.collection(None);
        let (figures, fleet) = (self.figures.clone(), self.fleet.clone());
        self.follow(running, "clusters", &self.clusters, all(&kinds::CLUSTERS), move |cluster| {
            // What changes at every heartbeat is shown, and no news to anybody.
            figures.clusters().seen(object::name(cluster), cluster);
            fleet.seen(object::name(cluster), &cluster["status"]["resourceSummary"]);
            fleet.seen_nodes(cluster);
            ClusterHead::project(cluster)
        });
        self.follow(running, "namespaces", &self.namespaces, all(&kinds::NAMESPACES), TemplateHead::project);
        let policies = &self.policies;
        let (pp, cpp) = (all(&kinds::PROPAGATION_POLICIES), all(&kinds::CLUSTER_PROPAGATION_POLICIES));
        self.follow(running, "propagationpolicies", &policies.namespaced, pp, PolicyHead::project);
        self.follow(
            running,
            "clusterpropagationpolicies",
            &policies.cluster,
            cpp,
            PolicyHead::project_cluster,
        );
        let overrides = &self.overrides;
        let (op, cop) = (all(&kinds::OVERRIDE_POLICIES), all(&kinds::CLUSTER_OVERRIDE_POLICIES));
        self.follow(running, "overridepolicies", &overrides.namespaced, op, OverrideHead::project);
        self.follow(
            running,
            "clusteroverridepolicies",
            &overrides.cluster,
            cop,
            OverrideHead::project_cluster,
        );
        let bindings = &self.bindings;
        let (rb, crb) = (all(&kinds::RESOURCE_BINDINGS), all(&kinds::CLUSTER_RESOURCE_BINDINGS));
        let project = |scope| {
            let (fleet, env) = (self.fleet.clone(), self.env.clone());
            move |binding: &Value| {
                fleet.heard(&env, &BindingKey { scope, key: Key::of(binding) }, binding);
                BindingHead::project(binding)
            }
        };
        self.follow(running, "resourcebindings", &bindings.namespaced, rb, project(Scope::Namespaced));
        self.follow(running, "clusterresourcebindings", &bindings.cluster, crb, project(Scope::Cluster));
        let (figures, written) = (self.figures.clone(), self.written.clone());
        // After all others have heard: they ask whether it is theirs.
        self.works.listen(move |change| written.arrived(change));
        self.follow(running, "works", &self.works, all(&kinds::WORKS), move |work| {
            figures.work_seen(&Key::of(work), work);
            WorkHead::project(work)
        });
        let rebalancers = all(&kinds::WORKLOAD_REBALANCERS);
        self.follow(running, "workloadrebalancers", &self.rebalancers, rebalancers, object::generation);
        let quotas = all(&kinds::FEDERATED_RESOURCE_QUOTAS);
        self.follow(running, "federatedresourcequotas", &self.quotas, quotas, quotas::project);
        let rules = all(&kinds::RESOURCE_INTERPRETER_CUSTOMIZATIONS);
        self.follow(running, "customizations", &self.customizations, rules, customizations::project);
        let taints = all(&kinds::CLUSTER_TAINT_POLICIES);
        self.follow(running, "clustertaintpolicies", &self.taint_policies, taints, TaintPolicyHead::project);
        let services = all(&kinds::RESOURCE_INTERPRETER_WEBHOOK_CONFIGURATIONS);
        self.follow(running, "interpreter-webhooks", &self.webhooks, services, hooks::project);
        let definitions = all(&kinds::CUSTOM_RESOURCE_DEFINITIONS);
        self.follow(running, "definitions", &self.definitions, definitions, DefinitionHead::project);
        self.follow(running, "leases", &self.leases, leases, LeaseHead::project)
    }

    fn follow<P: PartialEq + Send + Sync + 'static>(
        &self,
        running: &mut JoinSet<&'static str>,
        name: &'static str,
        index: &Arc<Index<P>>,
        path: String,
        project: impl Fn(&Value) -> P + Send + Sync + 'static,
    ) -> latest::Receiver<Health> {
        let client = self.objects.rest().client().clone();
        let (health, following) =
            follow(index.clone(), client, WatchConfig::new(path), self.env.clone(), project);
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

    /// A binding: as the watch has brought it just now, or read.
    pub(crate) async fn binding(&self, key: &BindingKey) -> Result<Option<Value>, Error> {
        match self.bindings.of(key.scope).recent(&key.key) {
            Some(binding) => Ok(Some(Value::clone(&binding))),
            None => self.objects.get(bindings::resource(key.scope), &key.key).await,
        }
    }

    /// After a reconcile of a binding: what came of it, and where it failed the binding is read the next time.
    pub(crate) fn settled<T>(&self, key: &BindingKey, outcome: Result<T, Error>) -> Result<T, Error> {
        outcome.inspect_err(|_| self.bindings.of(key.scope).forget_recent(&key.key))
    }

    /// Resolves once all indexes are complete, or the hub stops.
    pub(crate) async fn synced(&self) {
        let all = async {
            self.policies.synced().await;
            self.overrides.synced().await;
            self.bindings.synced().await;
            self.clusters.synced().await;
            self.namespaces.synced().await;
            self.works.synced().await;
            self.leases.synced().await;
            self.taint_policies.synced().await;
            self.definitions.synced().await;
            self.customizations.synced().await;
            self.quotas.synced().await;
            self.webhooks.synced().await;
        };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            () = all => {}
        }
    }

    /// Reports that something went as it should.
    pub(crate) fn normal(&self, component: &str, object: &Value, reason: &str, message: impl Into<String>) {
        self.reporter.event(component, object, EventKind::Normal, reason, message);
    }

    /// Reports that somebody may want to look.
    pub(crate) fn warning(&self, component: &str, object: &Value, reason: &str, message: impl Into<String>) {
        self.reporter.event(component, object, EventKind::Warning, reason, message);
    }
}
