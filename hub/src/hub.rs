//! All controllers together, from start to stop.

use std::{fmt, sync::Arc};

use karmada_apiserver::authn::epochs::Epochs;
use karmada_client::{WorkQueue, latest};
use karmada_core::{autoscale::look, evict, judge, skip::Skip};
use karmada_env::Env;
use kube::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    accounts::Settings,
    controllers::{
        application::ApplicationFailover,
        autoscaling::Autoscaling,
        binding::Binder,
        certificates::Approver,
        cluster::ClusterController,
        context::Context,
        credentials,
        cron::CronScaling,
        dependencies::Dependencies,
        detector::Detector,
        evictor::Evictor,
        failback::Failback,
        graceful::GracefulEviction,
        lease::LeaseMonitor,
        namespace::NamespaceController,
        quota::QuotaController,
        rebalancer::Rebalancer,
        remedy::Remedies,
        resync,
        rollout::Rollouts,
        scaling::Scaling,
        scheduler::Scheduler,
        services::{exports::Exports, imports::Imports, multi::Multi, rooms::Rooms, silence::Silence},
        status::StatusController,
        taint_policy::TaintPolicies,
        unified_auth::UnifiedAuth,
        upgrade::Upgrades,
    },
    known::{Followed, watches::Watches},
    metrics::HubFigures,
    page::{Shown, eyes::Eyes},
    push::{self, Copies, Pusher, Pushing},
    reported::{Asking, Reported},
    write::claiming::NewTemplates,
};

/// How the controllers behave.
#[derive(Clone, Debug)]
pub struct HubConfig {
    /// How objects leave clusters.
    pub evictions: evict::Settings,
    /// How clusters are judged that fall silent.
    pub judge: judge::Settings,
    /// Namespaces that are never propagated, as regular expressions over the whole name.
    pub skipped_namespaces: Vec<String>,
    /// Kinds that are never propagated, in the notation of `--skipped-propagating-apis`.
    pub skipped_apis: String,
    /// Whether clusters that get no replicas get the object all the same.
    pub empty_workloads: bool,
    /// Whether what members' HorizontalPodAutoscalers scale is marked, and templates follow.
    pub hpa_scale_targets: bool,
    /// How FederatedHPAs are seen to.
    pub autoscaling: look::Settings,
    /// How the hub works on clusters in push mode.
    pub push: push::Settings,
}

impl Default for HubConfig {
    fn default() -> Self {
        Self {
            evictions: evict::Settings::default(),
            judge: judge::Settings::default(),
            skipped_namespaces: vec!["kube-.*".to_owned()],
            skipped_apis: String::new(),
            empty_workloads: false,
            hpa_scale_targets: false,
            autoscaling: look::Settings::default(),
            push: push::Settings::default(),
        }
    }
}

/// Why the controllers cannot run, or do not run any more.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// A part of the configuration cannot be used.
    #[error("{0}")]
    Config(String),
    /// A controller or watch ended although nobody asked it to.
    #[error("the {0} controller ended by itself")]
    Ended(&'static str),
    /// A controller or watch panicked; the process must not go on with half of them.
    #[error("a controller panicked: {0}")]
    Panicked(String),
}

/// The controllers over one API.
pub struct Hub {
    config: HubConfig,
    client: Client,
    env: Env,
    skip: Skip,
    ready: latest::Sender<bool>,
    watches: Watches,
    figures: HubFigures,
    new_templates: NewTemplates,
    epochs: Option<Arc<Epochs>>,
    approves: bool,
    pushing: Pushing,
    copies: Arc<Copies>,
    reported: Arc<Reported>,
    eyes: Eyes,
    followed: Followed,
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Hub {
    /// Controllers that have not started yet.
    ///
    /// # Errors
    /// When a part of the configuration cannot be used.
    pub fn new(config: HubConfig, client: Client, env: Env) -> Result<Self, HubError> {
        let namespaces: Vec<&str> = config.skipped_namespaces.iter().map(String::as_str).collect();
        let skip = Skip::new(&namespaces, &config.skipped_apis).map_err(HubError::Config)?;
        let figures = HubFigures::new(env.clone());
        let watches = Watches::new(env.clone());
        let copies = Arc::new(Copies::new(&Arc::default(), &env));
        let reported = Arc::new(Reported::new(&Arc::default(), &env));
        Ok(Self {
            config,
            client,
            env,
            skip,
            ready: latest::Sender::new(false),
            watches,
            figures,
            new_templates: NewTemplates::default(),
            epochs: None,
            approves: false,
            pushing: Pushing::No,
            copies,
            reported,
            eyes: Eyes::default(),
            followed: Followed::default(),
        })
    }

    /// Counts on these figures instead of its own: those of an earlier run, say.
    #[must_use]
    pub fn with_figures(mut self, figures: HubFigures) -> Self {
        self.figures = figures;
        self
    }

    /// Reaches the API by another client, which may hold up what it carries.
    #[must_use]
    pub fn with_client(mut self, client: Client) -> Self {
        self.client = client;
        self
    }

    /// Tells an embedded API which policies mean its new objects, while it runs.
    #[must_use]
    pub(crate) fn with_new_templates(mut self, new_templates: &NewTemplates) -> Self {
        self.new_templates = new_templates.clone();
        self
    }

    /// Ends the credentials of agents whose Clusters go, and names those that end soon.
    #[must_use]
    pub(crate) fn with_epochs(mut self, epochs: &Arc<Epochs>) -> Self {
        self.epochs = Some(epochs.clone());
        self
    }

    /// Lets agents in by tokens, on an API server that signs what somebody has approved, and gives them their roles there.
    #[must_use]
    pub fn approving_agents(mut self) -> Self {
        self.approves = true;
        self
    }

    /// Works itself on the members of Clusters in push mode.
    #[must_use]
    pub fn pushing(mut self) -> Self {
        self.pushing = Pushing::Works;
        self
    }

    /// Says of Clusters in push mode that nothing works on them here.
    #[must_use]
    pub(crate) fn not_pushing(mut self) -> Self {
        self.pushing = Pushing::Told;
        self
    }

    /// Keeps here what is searched on clusters: of those in push mode what the hub follows, of others what their agents tell.
    #[must_use]
    pub(crate) fn with_copies(mut self, copies: &Arc<Copies>, reported: &Arc<Reported>) -> Self {
        (self.copies, self.reported) = (copies.clone(), reported.clone());
        self
    }

    /// Lets these know of Clusters while it runs.
    #[must_use]
    pub(crate) fn followed_by(mut self, followed: &Followed) -> Self {
        self.followed = followed.clone();
        self
    }

    /// What the controllers count, for a page.
    pub fn figures(&self) -> &HubFigures {
        &self.figures
    }

    /// What the controllers know while they run, for whoever shows it.
    pub(crate) fn eyes(&self) -> Eyes {
        self.eyes.clone()
    }

    /// The same, for a server that is to have a page of the fleet.
    pub fn shown(&self) -> Shown {
        Shown(self.eyes())
    }

    /// Whether all that the controllers decide by has been read once.
    pub fn ready(&self) -> latest::Receiver<bool> {
        self.ready.subscribe()
    }

    /// How the watches do that the controllers know the API by.
    pub(crate) fn watches(&self) -> Watches {
        self.watches.clone()
    }

    /// Runs until `shutdown`, then lets everything that is under way end.
    ///
    /// # Errors
    /// When a controller ends or panics before that: half of them would do harm.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), HubError> {
        let stop = shutdown.child_token();
        let figures = self.figures;
        let settings = Settings {
            evictions: self.config.evictions,
            judge: self.config.judge,
            empty_workloads: self.config.empty_workloads,
        };
        let mut context =
            Context::new(self.client, self.env, self.skip, settings, figures.clone(), stop.clone());
        context.epochs = self.epochs;
        context.watches = self.watches.clone();
        context.to_scale = self.config.hpa_scale_targets.then(|| WorkQueue::new(context.env.clone()));
        let context = Arc::new(context);
        self.eyes.open(&context);
        self.followed.open(&context.known.clusters);
        self.new_templates.ask(&context.known);

        // Every listener is in place before the first watch starts.
        let cluster = ClusterController::new(&context);
        let namespace = NamespaceController::new(&context);
        let detector = Detector::new(&context);
        let scheduler = Scheduler::new(&context);
        let dependencies = Dependencies::new(&context);
        let quota = QuotaController::new(&context);
        let rebalancer = Rebalancer::new(&context.writer, &context.figures);
        let evictor = Evictor::new(&context);
        let graceful = GracefulEviction::new(&context);
        let application = ApplicationFailover::new(&context);
        let failback = Failback::new(&context);
        let taint_policies = TaintPolicies::new(&context);
        let remedies = Remedies::new(&context);
        let cron = CronScaling::new(&context);
        let autoscaling = Autoscaling::new(&context, self.config.autoscaling);
        let unified_auth = UnifiedAuth::new(&context);
        let rooms = Rooms::new(&context);
        let silence = Silence::new(&context);
        let exports = Exports::new(&context, &rooms, &silence);
        let imports = Imports::new(&context);
        let multi = Multi::new(&context, &rooms, &silence);
        let scaling = context.to_scale.is_some().then(|| Scaling::new(&context));
        let approver = self.approves.then(|| Approver::new(&context));
        let rollouts = Rollouts::new(&context);
        let upgrades = Upgrades::new(&context);
        let asking = Asking::new(&context, &self.reported);
        let binder = Binder::new(&context);
        let status = StatusController::new(&context);
        let lease = LeaseMonitor::new(&context);
        let works = self.pushing == Pushing::Works;
        let pusher = (self.pushing != Pushing::No)
            .then(|| Pusher::new(&context, self.config.push, works, self.copies.clone()));

        let mut running = JoinSet::new();
        let leases = context.watch(&mut running);
        spawn(&mut running, "cluster", cluster.run(stop.clone()));
        spawn(&mut running, "namespace", namespace.run(stop.clone()));
        spawn(&mut running, "detector", detector.run(stop.clone()));
        spawn(&mut running, "scheduler", scheduler.run(stop.clone()));
        spawn(&mut running, "dependencies", dependencies.run(stop.clone()));
        spawn(&mut running, "quota", quota.run(stop.clone()));
        spawn(&mut running, "workload-rebalancer", rebalancer.run(stop.clone()));
        spawn(&mut running, "taint-manager", evictor.run(stop.clone()));
        spawn(&mut running, "graceful-eviction", graceful.run(stop.clone()));
        spawn(&mut running, "application-failover", application.run(stop.clone()));
        spawn(&mut running, "failback", failback.run(stop.clone()));
        spawn(&mut running, "cluster-taint-policy", taint_policies.run(stop.clone()));
        spawn(&mut running, "remedy", remedies.run(stop.clone()));
        spawn(&mut running, "endpointslice", exports.run(stop.clone()));
        spawn(&mut running, "multiclusterservice", multi.run(stop.clone()));
        spawn(&mut running, "serviceimport", imports.run(stop.clone()));
        spawn(&mut running, "cronfederatedhpa", cron.run(stop.clone()));
        spawn(&mut running, "federatedhpa", autoscaling.run(stop.clone()));
        spawn(&mut running, "unified-auth", unified_auth.run(stop.clone()));
        if let Some(scaling) = scaling {
            spawn(&mut running, "scaling", scaling.run(stop.clone()));
        }
        if let Some(approver) = approver {
            spawn(&mut running, "certificates", approver.run(stop.clone()));
        }
        spawn(&mut running, "binding", binder.run(stop.clone()));
        spawn(&mut running, "rollout", rollouts.run(stop.clone()));
        spawn(&mut running, "agent-upgrade", upgrades.run(stop.clone()));
        spawn(&mut running, "searched", asking.run(stop.clone()));
        spawn(&mut running, "status", status.run(stop.clone()));
        spawn(&mut running, "lease", lease.run(leases, stop.clone()));
        spawn(
            &mut running,
            "credentials",
            credentials::run(context.writer.clone(), context.epochs.clone(), stop.clone()),
        );

        if let Some(pusher) = pusher {
            spawn(&mut running, "push", Box::pin(pusher.run(stop.clone())));
        }
        spawn(&mut running, "resync", resync::run(context.clone(), stop.clone()));

        let (watches, logs) = (self.watches, stop.clone());
        spawn(&mut running, "watches", async move {
            tokio::select! {
                biased;
                () = logs.cancelled() => {}
                () = watches.log() => {}
            }
        });
        let (synced, ready) = (context.clone(), self.ready);
        context.tasks.spawn(async move {
            synced.synced().await;
            ready.send_replace(true);
            tracing::info!("controllers are ready");
        });

        let ended = tokio::select! {
            biased;
            () = shutdown.cancelled() => Ok(()),
            ended = running.join_next() => Err(match ended {
                Some(Ok(name)) => HubError::Ended(name),
                Some(Err(error)) => HubError::Panicked(error.to_string()),
                None => HubError::Ended("last"),
            }),
        };
        stop.cancel();
        while running.join_next().await.is_some() {}
        context.tasks.close();
        context.tasks.wait().await;
        figures.rest();
        ended
    }
}

fn spawn(
    running: &mut JoinSet<&'static str>,
    name: &'static str,
    task: impl Future<Output = ()> + Send + 'static,
) {
    running.spawn(async move {
        task.await;
        name
    });
}
