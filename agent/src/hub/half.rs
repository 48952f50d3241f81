//! The hub half of an agent, put together.

use std::{sync::Arc, time::Duration};

use futures::FutureExt;
use karmada_api::consts::component;
use karmada_client::{Recorder, Rest, Wake, WorkQueue, events::RecorderTask, latest, watch::share::Part};
use karmada_core::links::Matter;
use karmada_env::Env;
use karmada_interpreter::Interpreter;
use karmada_member::{Member, Stats, Tasks, quotas, rights::Rights, summary, tunnel::Limits, until};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::{
    cluster::{ClusterView, Kept},
    heartbeat::Heartbeat,
    origin::Trust,
    outbox::{Outbox, REPORTERS},
    presence::Presence,
    pull::Puller,
    register::Registrar,
    reporter::Reporter,
    rules,
    samples::Sampling,
    searched::Searched,
    slices::Collector,
    spending::Spending,
    telling::Telling,
    upstream::Line,
};
use crate::{
    config::AgentConfig,
    tunnel::dial::Dialer,
    upgrade::{Told, Upgrader},
};

/// How long events that were not told may take to be kept.
const KEPT: Duration = Duration::from_millis(500);

/// How long reports that were made may take at the end.
const WORDS_ARE_OUT: Duration = Duration::from_secs(2);

/// The ways to the hub, from before there is a member half.
pub(crate) struct Ways {
    hub: Rest,
    pub(crate) recorder: Recorder,
    /// None where somebody else tells what it takes.
    recorder_task: Option<RecorderTask>,
    outbox: Arc<Outbox>,
    cluster: latest::Sender<Option<Arc<Kept>>>,
}

impl Ways {
    pub(crate) fn new(hub: kube::Client, config: &AgentConfig, stats: &Stats, env: &Env) -> Self {
        let of_all = config.hosted.as_ref().and_then(|feed| feed.recorder.clone());
        let (recorder, recorder_task) = of_all.map_or_else(
            || {
                let (recorder, task) = Recorder::new(hub.clone(), component::EXECUTION, env.clone());
                (recorder, Some(task))
            },
            |recorder| (recorder.told_by(&config.cluster), None),
        );
        let hub = Rest::new(hub).counting(&stats.hub_watches);
        let outbox = Arc::new(Outbox::new(hub.clone(), config, env.clone()));
        Self { hub, recorder, recorder_task, outbox, cluster: latest::Sender::new(None) }
    }

    /// What the member half asks and tells.
    pub(crate) fn upstream(&self, config: &AgentConfig) -> Arc<Line> {
        Arc::new(Line {
            hub: self.hub.clone(),
            namespace: config.execution_namespace(),
            outbox: Arc::clone(&self.outbox),
            recorder: self.recorder.clone(),
            cluster: self.cluster.subscribe(),
        })
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct HubHalf {
    hub: Rest,
    member: Rest,
    env: Env,
    config: Arc<AgentConfig>,
    instance: String,
    rights: Rights,
    interpreter: Arc<Interpreter>,
    stats: Arc<Stats>,
    recorder: Recorder,
    recorder_task: Option<RecorderTask>,
    reporters: JoinSet<()>,
    pub(crate) view: Arc<ClusterView>,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) trust: Arc<Trust>,
    telling: Option<Arc<Telling>>,
    upgrade: Told,
}

/// What a hub half is made of, beside its [`Ways`].
pub(crate) struct Parts {
    pub(crate) member: Rest,
    pub(crate) env: Env,
    pub(crate) config: Arc<AgentConfig>,
    pub(crate) instance: String,
    pub(crate) rights: Rights,
    pub(crate) interpreter: Arc<Interpreter>,
    pub(crate) stats: Arc<Stats>,
}

impl HubHalf {
    pub(crate) fn new(ways: Ways, parts: Parts, half: &Member) -> Self {
        let Parts { member, env, config, instance, rights, interpreter, stats } = parts;
        let Ways { hub, recorder, recorder_task, outbox, cluster } = ways;
        let words = Arc::clone(&outbox);
        let spending = config.spending.clone();
        let recorder_task = recorder_task.map(|task| {
            task.gives_way_to(move || !words.queue().is_empty())
                .paid_by(move |bytes| spending.take(bytes, Matter::Event))
        });
        let (name, hears) = (config.cluster.clone(), (Arc::clone(half.fence()), Arc::clone(half.holds())));
        let trust = Arc::new(Trust::new(hub.clone(), Arc::clone(half.desired()), &config));
        let view = ClusterView::new(hub.clone(), name, (rights.clone(), Arc::clone(&trust)), hears, cluster);
        let view = Arc::new(view);
        Self {
            hub,
            member,
            env,
            config,
            instance,
            rights,
            interpreter,
            stats,
            recorder,
            recorder_task,
            reporters: JoinSet::new(),
            view,
            outbox,
            trust,
            telling: None,
            upgrade: Told::default(),
        }
    }

    /// What reports may cost.
    pub(crate) fn spending(&self) -> &Spending {
        &self.config.spending
    }

    /// Events that were lost.
    pub(crate) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Who registers.
    fn registrar(&self) -> Registrar {
        Registrar {
            hub: self.hub.clone(),
            member: self.member.clone(),
            config: Arc::clone(&self.config),
            view: Arc::clone(&self.view),
            rights: self.rights.clone(),
            env: self.env.clone(),
        }
    }

    /// Who tells what is searched on the member.
    fn searched(&self, half: &Arc<Member>, limits: Limits) -> Searched {
        Searched {
            hub: self.hub.clone(),
            member: self.member.clone(),
            half: Arc::clone(half),
            view: Arc::clone(&self.view),
            outbox: Arc::clone(&self.outbox),
            rights: self.rights.clone(),
            env: self.env.clone(),
            limits,
            spending: self.config.spending.clone(),
            hourly: self.config.terms.reports,
            gather: self.config.terms.gather,
            hub_back: self.config.hub_back.clone(),
            member_back: self.config.member_back.clone(),
        }
    }

    /// Starts all that it does. What needs a Cluster waits for it; the member half waits for nothing of this.
    pub(crate) fn start(&mut self, half: &Arc<Member>, tasks: &mut Tasks) {
        // Before the first renewal may tell that the hub is another.
        let life = half.desired().life();
        let (env, config, rights) = (&self.env, &self.config, &self.rights);
        let registrar = self.registrar();
        tasks.loops.spawn(async move {
            registrar.register().await;
            registrar.take_back().await;
        });
        if config.is_hosted() {
            let presence = Presence {
                rights: rights.clone(),
                fence: Arc::clone(half.fence()),
                every: config.lease_interval,
            };
            tasks.loops.spawn(presence.run());
        } else {
            self.renew(half, tasks);
        }
        if let Some(recorder) = self.recorder_task.take() {
            self.telling = Some(self.tell(recorder, half, tasks));
        }
        tasks.loops.spawn({
            let (view, env, wake) = (Arc::clone(&self.view), env.clone(), config.hub_back.clone());
            let (rights, own) = (rights.clone(), Part::Object(String::new(), config.cluster.clone()));
            let fed = config.fed(|feed| &feed.clusters, own);
            async move {
                rights.registered().await;
                view.follow(env, wake, fed).await;
            }
        });
        if let Some(dials) = config.tunnel.clone() {
            let (rests, namespace) =
                ((self.member.clone(), self.hub.clone()), config.member_namespace.clone());
            let dialer = Dialer::new(dials, rests, rights.clone(), namespace);
            tasks.loops.spawn(dialer.run(self.view.calls()));
        }
        if let Some(limits) = config.searched.clone() {
            tasks.loops.spawn(self.searched(half, limits).run());
        }
        if let Some(upgrade) = config.upgrade.clone() {
            let own = (self.member.clone(), env.clone(), config.version.clone());
            let sides = (Arc::clone(&self.view), Arc::clone(half), rights.clone());
            let told = (self.upgrade.clone(), config.cluster.clone());
            tasks.loops.spawn(Upgrader::new(upgrade, own, sides, told).run());
        }
        tasks.loops.spawn(keep_holds(Arc::clone(&self.view), Arc::clone(half)));
        let reporter = self.reporter(half, tasks);
        tasks.loops.spawn({
            let rights = rights.clone();
            async move { reporter.run(&rights).await }
        });
        tasks.loops.spawn(self.follow_rules(half));
        let puller = Puller {
            hub: self.hub.clone(),
            config: Arc::clone(config),
            env: env.clone(),
            rights: rights.clone(),
            view: Arc::clone(&self.view),
            member: Arc::clone(half),
            trust: Arc::clone(&self.trust),
            life,
        };
        tasks.loops.spawn(async move { puller.run().await });
        let collector = Collector {
            hub: self.hub.clone(),
            member: self.member.clone(),
            env: env.clone(),
            config: Arc::clone(config),
            rights: rights.clone(),
            view: Arc::clone(&self.view),
            half: Arc::clone(half),
        };
        tasks.loops.spawn(async move { collector.run().await });
        let sampling = Sampling {
            half: Arc::clone(half),
            outbox: Arc::clone(&self.outbox),
            rights: rights.clone(),
            env: env.clone(),
            figures: config.terms.figures,
        };
        tasks.loops.spawn(sampling.run());
        tasks.loops.spawn(hurry(config.hub_back.clone(), half.queue().clone(), Arc::clone(&self.outbox)));
        for _ in 0..REPORTERS {
            let (outbox, half) = (Arc::clone(&self.outbox), Arc::clone(half));
            let (rights, stats) = (rights.clone(), Arc::clone(&self.stats));
            let went_back = {
                let fence = Arc::clone(half.fence());
                move |life| fence.went_back(life)
            };
            self.reporters.spawn(async move { outbox.run(half.desired(), &rights, &stats, went_back).await });
        }
    }

    /// Starts who tells events, and who keeps those that are not heard.
    fn tell(&self, recorder: RecorderTask, half: &Arc<Member>, tasks: &mut Tasks) -> Arc<Telling> {
        let telling = Arc::new(Telling {
            recorder: self.recorder.clone(),
            member: Arc::clone(half),
            rights: self.rights.clone(),
            cluster: self.config.cluster.clone(),
            env: self.env.clone(),
            kept: Mutex::default(),
        });
        let (last, registered, recalled) = (tasks.last.clone(), self.rights.clone(), Arc::clone(&telling));
        tasks.drains.spawn(async move {
            let begins = async {
                recalled.recall().await;
                registered.registered().await;
            };
            tokio::select! {
                biased;
                () = last.cancelled() => return,
                () = begins => {}
            }
            recorder.run(last).await;
        });
        let kept = Arc::clone(&telling);
        tasks.loops.spawn(async move { kept.keep().await });
        telling
    }

    /// Starts who renews the Lease.
    fn renew(&self, half: &Member, tasks: &mut Tasks) {
        let heartbeat = Heartbeat::new(
            self.hub.clone(),
            Arc::clone(&self.config),
            self.instance.clone(),
            Arc::clone(&self.view),
            Arc::clone(&self.stats),
            self.rights.clone(),
            Arc::clone(half.fence()),
        );
        let (last, registered) = (tasks.last.clone(), self.rights.clone());
        tasks.drains.spawn(async move {
            tokio::select! {
                biased;
                () = last.cancelled() => {}
                () = registered.registered() => heartbeat.run(&last).await,
            }
        });
    }

    /// Who reports the Cluster's status, and what it looks at.
    fn reporter(&self, half: &Arc<Member>, tasks: &mut Tasks) -> Reporter {
        let (figures, quotas) = (Arc::default(), Arc::default());
        // All Pods of a member are more than anything else that is watched.
        if self.config.resource_modeling {
            let (member, env, back) = (&self.member, &self.env, &self.config.member_back);
            let pods = summary::follow(member.clone(), env.clone(), back.clone(), Arc::clone(&figures));
            let left = quotas::follow(member.clone(), env.clone(), back.clone(), Arc::clone(&quotas));
            for follow in [pods.boxed(), left.boxed()] {
                let rights = self.rights.clone();
                tasks.loops.spawn(async move {
                    // Nobody asks for it before.
                    rights.registered().await;
                    follow.await;
                });
            }
        }
        Reporter {
            hub: self.hub.clone(),
            member: self.member.clone(),
            env: self.env.clone(),
            config: Arc::clone(&self.config),
            view: Arc::clone(&self.view),
            half: Arc::clone(half),
            figures,
            quotas,
            stats: Arc::clone(&self.stats),
            trust: Arc::clone(&self.trust),
            upgrade: self.upgrade.clone(),
            identity: Mutex::default(),
        }
    }

    fn follow_rules(&self, half: &Arc<Member>) -> impl Future<Output = ()> + Send + use<> {
        let follower = rules::Follower {
            hub: self.hub.clone(),
            env: self.env.clone(),
            wake: self.config.hub_back.clone(),
            feed: self.config.hosted.clone(),
            rights: self.rights.clone(),
            view: Arc::clone(&self.view),
            interpreter: Arc::clone(&self.interpreter),
            half: Arc::clone(half),
            trust: Arc::clone(&self.trust),
            ask: if self.config.terms.reports.is_some() { rules::ASK_SELDOM } else { rules::ASK },
        };
        let (held, changed) = (Arc::clone(half), Arc::clone(half));
        follower.run(move || held.desired().versioned_kinds(), move |kinds| changed.rules_changed(kinds))
    }

    /// Waits for one of those who report to end although it should not.
    pub(crate) async fn ended(&mut self) -> Result<(), tokio::task::JoinError> {
        match self.reporters.join_next().await {
            Some(ended) => ended,
            None => std::future::pending().await,
        }
    }

    /// Lets what was reported go out, and takes nothing more.
    pub(crate) async fn drain(&mut self) {
        until(WORDS_ARE_OUT, || self.outbox.len() == 0 || !self.rights.may_report()).await;
        self.outbox.close();
        self.reporters.shutdown().await;
        if let Some(telling) = &self.telling {
            let _ = tokio::time::timeout(KEPT, telling.end()).await;
        }
    }
}

/// Has what the Cluster says about changes kept beyond the process, for a start without the hub.
async fn keep_holds(view: Arc<ClusterView>, half: Arc<Member>) {
    let mut cluster = view.subscribe();
    while cluster.changed().await.is_ok() {
        half.keep_holds().await;
    }
}

/// Lets what waits have its turn when the hub is back.
async fn hurry(back: Wake, queue: WorkQueue<String>, outbox: Arc<Outbox>) {
    let mut back = back.listen();
    loop {
        back.woken().await;
        outbox.hurry();
        queue.retry_all_now();
    }
}
