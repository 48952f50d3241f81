//! FederatedHPAs: each cluster of a workload is asked what its Pods use, and by the answers the template gets its replicas
//! ([`karmada_core::autoscale`]).
//!
//! ```text
//!   FederatedHPA, its workload's binding ─▶ ask ─▶ a Work on each cluster ─▶ its agent answers in the Work's status
//!   the clock, each at its time ─▶ look: answers, silent clusters ─▶ the template's scale, status, events
//! ```
//!
//! Answers change nothing by themselves: each FederatedHPA has its turn once in a period, and the turns are spread over it. A
//! cluster is silent whose agent is not heard, or that has not answered what is asked now. Agents tell of what changes, so an
//! answer holds as long as its agent is heard and samples: one that has said nothing for long is asked once more, and so is one
//! that was away when it is back.

mod agents;
mod answers;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use karmada_api::{
    conditions::{self, Condition},
    consts::{component, event, extension},
    work::ResourceBindingSpec,
};
use karmada_client::{Error, WorkQueue};
use karmada_core::{
    autoscale::{
        behavior::History,
        hpa::{Cluster, Spec},
        look::{self, ABLE, ACTIVE, Outcome, Said, Settings, View},
        question::{self, Asking},
    },
    names,
};
use karmada_meta::{gvk::GroupVersionKind, object, time::Time};
use karmada_objects::{
    Part,
    key::{self, Key},
    kinds::{FEDERATED_HPAS, WORKS},
    scope::BindingKey,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::{
    agents::Agents,
    answers::{Answer, Witness, silence},
};
use super::{Context, Next, work};
use crate::{
    known::heads::{HpaHead, SampleHead},
    write::works::{self, Made, Maker},
};

/// How many of each are worked on at a time.
const WORKERS: usize = 4;
/// How long something is given that is on its way out, or somebody else's.
const PATIENCE: Duration = Duration::from_secs(5);
/// When one that is new is looked at: its clusters have answered by then.
const FIRST: Duration = Duration::from_secs(3);
/// For so long after the template's replicas have changed, what clusters report of theirs may be from before.
const SETTLES: Duration = Duration::from_secs(120);
/// A cluster that is back is asked anew after this time: one that comes and goes all the time is asked no more often.
const RETURNS: Duration = Duration::from_secs(2);
/// Who reports.
const COMPONENT: &str = component::FEDERATED_HPA;

/// The reasons of events that a look may ask for.
const REASONS: [&str; 7] = [
    event::FAILED_COMPUTE_METRICS_REPLICAS,
    event::FAILED_GET_RESOURCE_METRIC,
    event::FAILED_GET_CONTAINER_RESOURCE_METRIC,
    event::FAILED_GET_PODS_METRIC,
    event::FAILED_GET_OBJECT_METRIC,
    event::FAILED_GET_EXTERNAL_METRIC,
    event::INVALID_METRIC_SOURCE_TYPE,
];

/// The types of metrics, and why one cannot be had.
const METRICS: [(&str, &str); 5] = [
    ("Resource", event::FAILED_GET_RESOURCE_METRIC),
    ("ContainerResource", event::FAILED_GET_CONTAINER_RESOURCE_METRIC),
    ("Pods", event::FAILED_GET_PODS_METRIC),
    ("Object", event::FAILED_GET_OBJECT_METRIC),
    ("External", event::FAILED_GET_EXTERNAL_METRIC),
];

/// Scales by what Pods use.
pub(crate) struct Autoscaling {
    context: Arc<Context>,
    settings: Settings,
    asked: WorkQueue<Key>,
    /// Works that ask once more.
    returned: WorkQueue<Again>,
    looked: WorkQueue<Key>,
    agents: Arc<Agents>,
    kept: Mutex<BTreeMap<Key, Kept>>,
}

/// A Work that is to ask once more.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Again {
    work: Key,
    /// The generation whose answer is old; nothing where its cluster was away.
    of: Option<i64>,
}

impl fmt::Display for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} once more", self.work)
    }
}

/// What is kept of a FederatedHPA between two looks.
#[derive(Clone, Debug, Default)]
struct Kept {
    uid: String,
    history: History,
    /// The template's replicas, and when they became so.
    replicas: (i64, Duration),
    /// What is known of its clusters.
    clusters: BTreeMap<String, Witness>,
    /// A change of the template that was sent and not answered.
    sent: Option<Sent>,
    /// Why the template cannot be changed, that was told.
    failed: Option<String>,
}

/// A change of replicas, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sent {
    from: i64,
    to: i64,
    why: String,
}

/// A target, as it stands.
struct Target {
    /// Its scale, and where that is.
    scale: Value,
    path: String,
    binding: ResourceBindingSpec,
}

/// Why there is nothing to be scaled: what a condition says, and the reason and message of an event.
struct Amiss {
    said: Said,
    event: (&'static str, String),
}

impl Amiss {
    fn new(reason: &'static str, event: &'static str, why: String) -> Self {
        let message = format!("the HPA controller was unable to get the target's current scale: {why}");
        Self { said: Said::new(ABLE, false, reason, message), event: (event, why) }
    }
}

impl Autoscaling {
    /// A controller that hears the context's FederatedHPAs, bindings and Works from now on.
    pub(crate) fn new(context: &Arc<Context>, settings: Settings) -> Self {
        let queue = |name: &'static str| {
            let queue: WorkQueue<Key> = WorkQueue::new(context.env.clone());
            context.figures.queue(name, &queue);
            queue
        };
        let (asked, looked) = (queue("federatedhpa-questions"), queue("federatedhpa"));
        let returned: WorkQueue<Again> = WorkQueue::new(context.env.clone());
        context.figures.queue("federatedhpa-returns", &returned);
        let agents = Arc::new(Agents::default());
        let period = settings.sampling.every;
        let (ask, look, shared) = (asked.clone(), looked.clone(), Arc::downgrade(context));
        context.known.hpas.listen(move |change| {
            ask.add(change.key.clone());
            let Some(context) = shared.upgrade() else { return };
            let is_new = change.old.is_none();
            if is_new && !context.known.hpas.is_synced() {
                // All at once after a start; each has its own place in the period from then on.
                look.add_after(change.key.clone(), place(change.key, period));
            } else if is_new {
                look.add_after(change.key.clone(), FIRST.min(period));
            } else {
                look.add(change.key.clone());
            }
        });
        let again = asked.clone();
        context.resync.tell(&context.known.hpas, move |key, _| again.add(key.clone()));
        let (ask, shared) = (asked.clone(), Arc::downgrade(context));
        context.known.bindings.namespaced.listen(move |change| {
            let same = !change.differs(|head| &head.clusters) && !change.differs(|head| &head.deleting);
            let Some(context) = shared.upgrade().filter(|_| !same) else { return };
            let binding =
                BindingKey { scope: karmada_objects::scope::Scope::Namespaced, key: change.key.clone() };
            let scaled = context.known.hpas.group(&binding.to_string());
            scaled.into_iter().for_each(|(key, _)| ask.add(key));
        });
        let (again, heard, shared) = (returned.clone(), agents.clone(), Arc::downgrade(context));
        let figures = context.figures.clone();
        context.known.clusters.listen(move |change| {
            if change.new.is_none() {
                figures.scaling().left(&change.key.name);
            }
            if !heard.heed(change) {
                return;
            }
            let Some(context) = shared.upgrade() else { return };
            let group = SampleHead::of_cluster(&names::execution_namespace(&change.key.name));
            let works = context.known.works.group(&group).into_iter();
            works.for_each(|(work, _)| again.add_after(Again { work, of: None }, RETURNS));
        });
        let (answers, env, figures) = (agents.clone(), context.env.clone(), context.figures.clone());
        context.known.works.listen(move |change| {
            let now = env.now();
            let cluster = names::cluster_of_namespace(&change.key.namespace);
            if let Some(cluster) = cluster
                && let Some(age) = answers.hear(cluster, change, (now, env.wall()))
            {
                figures.scaling().told(cluster, now, age);
            }
        });
        let (ask, shared) = (asked.clone(), Arc::downgrade(context));
        context.known.works.listen(move |change| {
            let asks = change.last().sample.as_ref();
            let Some(sample) = asks.filter(|_| change.differs(|head| &head.content)) else { return };
            let Some(context) = shared.upgrade() else { return };
            // What the hub wrote itself is no news, unless its cluster is asked no more since it was made.
            let news = match change.new {
                Some(new) if context.writer.written.is_ours(change.key, new.content) => {
                    change.old.is_none() && !wanted(&context, change.key, &sample.hpa)
                }
                _ => true,
            };
            if news {
                ask.add(sample.hpa.clone());
            }
        });
        Self { context: context.clone(), settings, asked, returned, looked, agents, kept: Mutex::default() }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let known = &self.context.known;
        known.hpas.synced().await;
        known.bindings.synced().await;
        known.works.synced().await;
        known.clusters.synced().await;
        known.namespaces.synced().await;
        tokio::join!(
            work("federatedhpa-questions", &self.asked, WORKERS, &stop, |key: Key| self.ask(key)),
            work("federatedhpa-returns", &self.returned, WORKERS, &stop, |again: Again| self
                .ask_again(again)),
            work("federatedhpa", &self.looked, WORKERS, &stop, |key: Key| self.turn(key)),
        );
    }

    /// The clusters that a FederatedHPA's workload is on.
    fn clusters(&self, head: &HpaHead) -> Vec<String> {
        let known = &self.context.known;
        let binding = known.bindings.of(head.binding.scope).get(&head.binding.key);
        let Some(binding) = binding.filter(|binding| !binding.deleting) else { return Vec::new() };
        let stays = |name: &&String| {
            known.clusters.get(&Key::cluster_scoped(name.as_str())).is_some_and(|head| !head.deleting)
        };
        binding.clusters.iter().filter(stays).cloned().collect()
    }

    /// Has the clusters of a workload asked, and no others.
    async fn ask(&self, key: Key) -> Result<Next, Error> {
        let context = &self.context;
        let head = context.known.hpas.get(&key).filter(|head| !head.deleting);
        let live = match &head {
            Some(_) => context.writer.objects.get(&FEDERATED_HPAS, &key).await?,
            None => None,
        };
        let live = live.filter(|live| object::deletion_timestamp(live).is_none());
        let clusters = head.filter(|_| live.is_some()).map(|head| self.clusters(&head)).unwrap_or_default();
        let (mut next, mut kept) = (Next::Done, BTreeSet::new());
        for (cluster, hpa) in clusters.iter().filter_map(|cluster| Some((cluster, live.as_ref()?))) {
            let at = Self::question(&key, cluster);
            next = match self.ask_one(&key, hpa, (cluster, None), &at).await? {
                Next::Done => next,
                Next::After(wait) => next.sooner(wait),
            };
            kept.insert(at);
        }
        for (work, head) in context.known.works.group(&SampleHead::of_hpa(&key)) {
            if head.deleting || kept.contains(&work) {
                continue;
            }
            if let Some(live) = context.writer.objects.get(&WORKS, &work).await? {
                tracing::info!(%work, "no longer wanted");
                context.writer.delete_work(&live).await?;
            }
        }
        Ok(next)
    }

    /// The Work that asks a cluster.
    fn question(hpa: &Key, cluster: &str) -> Key {
        Key::new(names::execution_namespace(cluster), question::work_name(&hpa.namespace, &hpa.name))
    }

    /// Has one cluster asked; anew, if the answer to a generation of its Work is old.
    async fn ask_one(
        &self,
        key: &Key,
        hpa: &Value,
        (cluster, anew): (&str, Option<i64>),
        at: &Key,
    ) -> Result<Next, Error> {
        let context = &self.context;
        if context.known.namespaces.get(&Key::cluster_scoped(at.namespace.as_str())).is_none() {
            return Ok(Next::After(PATIENCE));
        }
        let since = self.heard_since(cluster, at);
        let known = context.known.works.get(at).and_then(|head| head.sample.as_ref()?.anew);
        let asking = Asking { cluster, since: since.as_deref(), anew: anew.max(known) };
        let build = |existing: Option<&Value>, id: &str| {
            question::work(hpa, asking, self.settings.sampling, existing, id)
        };
        Ok(match works::ensure(&context.writer, at, &Maker::Hpa(key), build).await? {
            Made::Unchanged | Made::Written => Next::Done,
            Made::Going => Next::After(PATIENCE),
            Made::Withheld(wait) => Next::After(wait),
            Made::Taken(why) | Made::TooLarge(why) | Made::Refused(why) => {
                tracing::warn!(work = %at, why, "a Work of a FederatedHPA cannot be made");
                Next::After(PATIENCE * 12)
            }
        })
    }

    /// Asks a cluster once more, and no other.
    async fn ask_again(&self, Again { work, of }: Again) -> Result<Next, Error> {
        let known = &self.context.known;
        let sample =
            known.works.get(&work).filter(|head| !head.deleting).and_then(|head| head.sample.clone());
        let (Some(sample), Some(cluster)) = (sample, names::cluster_of_namespace(&work.namespace)) else {
            return Ok(Next::Done);
        };
        if known.hpas.get(&sample.hpa).is_none_or(|head| head.deleting)
            || Self::question(&sample.hpa, cluster) != work
        {
            return Ok(Next::Done);
        }
        let is_done = match of {
            Some(generation) => sample.generation != generation,
            None => sample.since.as_deref() == self.heard_since(cluster, &work).as_deref(),
        };
        if is_done {
            return Ok(Next::Done);
        }
        match self.context.writer.objects.get(&FEDERATED_HPAS, &sample.hpa).await? {
            Some(hpa) if object::deletion_timestamp(&hpa).is_none() => {
                self.ask_one(&sample.hpa, &hpa, (cluster, of), &work).await
            }
            _ => Ok(Next::Done),
        }
    }

    /// Since when a cluster is heard that is asked by this Work; of one that is silent, what the Work says.
    fn heard_since(&self, cluster: &str, work: &Key) -> Option<String> {
        let known = &self.context.known;
        let head = known.clusters.get(&Key::cluster_scoped(cluster));
        match head.and_then(|head| self.agents.since(cluster, &head)) {
            Some(since) => Some(since.to_string()),
            None => Some(known.works.get(work)?.sample.as_ref()?.since.as_ref()?.to_string()),
        }
    }

    /// A FederatedHPA has its turn. Whatever fails, the next comes when it is due.
    async fn turn(&self, key: Key) -> Result<Next, Error> {
        if self.context.known.hpas.get(&key).is_none_or(|head| head.deleting) {
            self.kept.lock().remove(&key);
            self.context.figures.scaling().gone(&key);
            return Ok(Next::Done);
        }
        let timer = self.context.figures.timer();
        let looked = self.look(&key).await;
        self.context.figures.scaling().looked(looked.is_ok(), timer.took());
        if let Err(error) = looked {
            tracing::debug!(federatedhpa = %key, %error, "cannot be looked at now");
        }
        Ok(Next::After(self.settings.sampling.every))
    }

    async fn look(&self, key: &Key) -> Result<(), Error> {
        let live = self.context.writer.objects.get(&FEDERATED_HPAS, key).await?;
        let Some(live) = live.filter(|live| object::deletion_timestamp(live).is_none()) else {
            return Ok(());
        };
        let Some(spec) = key::read::<Spec>(&live, "spec") else { return Ok(()) };
        let others = self.others(key);
        if !others.is_empty() {
            let message = format!(
                "{} {} is scaled by several FederatedHPAs: {key}, {}",
                spec.scale_target_ref.kind,
                spec.scale_target_ref.name,
                others.join(", ")
            );
            let said = Said::new(ACTIVE, false, "AmbiguousSelector", message.as_str());
            return self.amiss(&live, Amiss { said, event: (event::AMBIGUOUS_SELECTOR, message) }).await;
        }
        let mut target = match self.target(key, &spec).await? {
            Ok(target) => target,
            Err(amiss) => return self.amiss(&live, amiss).await,
        };
        let current = target.scale["spec"]["replicas"].as_i64().unwrap_or_default();
        let now = self.context.env.now();
        let mut kept = self.kept(key, &live, current, now);
        let mut scaled_at = None;
        let mut news = Vec::new();
        // The answer to it was lost, and it was done.
        if let Some(Sent { from, to, why }) = kept.sent.take().filter(|sent| sent.to == current) {
            tracing::info!(federatedhpa = %key, from, to, why, "scaled, as it turns out");
            kept.history.scaled(now, from, to);
            scaled_at = Some(Time::now(&self.context.env).to_string());
            news.push((true, event::SUCCESSFUL_RESCALE, rescaled(to, &why)));
        }
        let is_first = kept.clusters.is_empty();
        let timer = self.context.figures.timer();
        let (answers, mut silent) = self.answers(key, &spec, (current, &target), &mut kept).await;
        let pulled = timer.took();
        self.context.figures.scaling().answers(key, answers.len() - silent.len(), silent.len());
        let clusters: Vec<Cluster<'_>> = answers
            .iter()
            .map(|Answer { given, replicas, report }| Cluster {
                given,
                replicas: *replicas,
                report: report.as_deref(),
            })
            .collect();
        let placed = &target.binding.clusters;
        let changed = now.saturating_sub(kept.replicas.1);
        let assigned: i64 = match changed < PATIENCE && !is_first {
            // It has just been seen to change: Works are on their way.
            true => placed.iter().map(|target| i64::from(target.replicas)).sum(),
            // After overrides.
            false => clusters.iter().map(|cluster| cluster.given.replicas).fold(0, i64::saturating_add),
        };
        let settles = changed < SETTLES && target.binding.replicas > 0;
        let settling =
            settles.then(|| assigned as f64 / f64::from(target.binding.replicas)).filter(|c| *c > 0.0);
        let view = View { spec: &spec, current, settling, clusters: &clusters };
        let mut outcome = look::look(view, &mut kept.history, &self.settings, now);
        let kinds =
            METRICS.iter().filter(|(kind, _)| spec.metrics.iter().any(|metric| metric["type"] == *kind));
        for (kind, reason) in kinds {
            let failed = outcome.warnings.iter().any(|(warned, _)| warned == reason);
            self.context.figures.scaling().pulled(kind, !failed, pulled);
        }
        for (place, why) in &outcome.unmeasured {
            silent.entry(placed[*place].name.clone()).or_insert_with(|| why.clone());
        }
        if let Some(why) = outcome.rescale.clone() {
            let size = outcome.replicas;
            target.scale["spec"]["replicas"] = json!(size);
            match self.context.writer.objects.rest().put(&target.path, &target.scale).await {
                Ok(_) => {
                    tracing::info!(federatedhpa = %key, from = current, to = size, why, "scaled");
                    let message = format!("the HPA controller was able to update the target scale to {size}");
                    outcome.said.push(Said::new(ABLE, true, "SucceededRescale", message));
                    news.push((true, event::SUCCESSFUL_RESCALE, rescaled(size, &why)));
                    kept.history.scaled(now, current, size);
                    kept.failed = None;
                    kept.replicas = (size, now);
                    scaled_at = Some(Time::now(&self.context.env).to_string());
                }
                // Somebody else has just written it, or nobody knows: the next look decides anew.
                Err(error) if error.is_conflict() || error.is_transient() => {
                    kept.sent = Some(Sent { from: current, to: size, why });
                    self.kept.lock().insert(key.clone(), kept);
                    return Err(error);
                }
                Err(error) => {
                    let message =
                        format!("the HPA controller was unable to update the target scale: {error}");
                    outcome.said.push(Said::new(ABLE, false, "FailedUpdateScale", message));
                    let why = format!("{}; error: {error}", rescaled(size, &why));
                    if kept.failed.as_ref() != Some(&why) {
                        news.push((false, event::FAILED_RESCALE, why.clone()));
                        kept.failed = Some(why);
                    }
                    outcome.replicas = current;
                }
            }
        }
        self.kept.lock().insert(key.clone(), kept);
        let said = self.tell(&live, (current, &outcome), &silent, scaled_at.as_deref()).await?;
        for (good, reason, message) in news {
            match good {
                true => self.context.writer.normal(COMPONENT, &live, reason, message),
                false => self.context.writer.warning(COMPONENT, &live, reason, message),
            }
        }
        let warnings = outcome.warnings.into_iter().filter(|_| said);
        for (reason, message) in warnings.filter(|(reason, _)| REASONS.contains(reason)) {
            self.context.writer.warning(COMPONENT, &live, reason, message);
        }
        Ok(())
    }

    /// Other FederatedHPAs that scale the same.
    fn others(&self, key: &Key) -> Vec<String> {
        let known = &self.context.known.hpas;
        let Some(head) = known.get(key) else { return Vec::new() };
        let same = known.group(&head.binding.to_string()).into_iter();
        same.filter(|(other, head)| other != key && !head.deleting)
            .map(|(other, _)| other.to_string())
            .collect()
    }

    /// What is scaled, and where it is.
    async fn target(&self, key: &Key, spec: &Spec) -> Result<Result<Target, Amiss>, Error> {
        let (context, named) = (&self.context, &spec.scale_target_ref);
        let no_scale =
            |why: String| Ok(Err(Amiss::new("FailedGetScale", event::FAILED_GET_SCALE_TARGET_REF, why)));
        let kind = GroupVersionKind::from_api_version(&named.api_version, named.kind.as_str());
        let Some(kind) = kind else { return no_scale(format!("{:?} is no apiVersion", named.api_version)) };
        let rest = context.writer.objects.rest();
        let Some(resource) = context.known.templates.resource(rest, &kind).await? else {
            return no_scale(format!("the hub has no kind {} in {}", named.kind, named.api_version));
        };
        let path = resource.subresource(Some(&key.namespace), &named.name, "scale");
        let scale = match rest.get(&path).await {
            Ok(scale) => scale,
            Err(error) if error.is_transient() => return Err(error),
            Err(error) => return no_scale(error.to_string()),
        };
        let at = BindingKey::of_template(&named.kind, &key.namespace, &named.name);
        let what = format!("{} {}/{}", named.kind, key.namespace, named.name);
        let no_binding =
            |why: String| Ok(Err(Amiss::new("FailedGetBinding", event::FAILED_GET_BINDINGS, why)));
        let Some(binding) = context.binding(&at).await? else {
            return no_binding(format!("no policy means {what}"));
        };
        let Some(binding) = key::read::<ResourceBindingSpec>(&binding, "spec") else {
            return no_binding(format!("the binding of {what} cannot be read"));
        };
        if binding.resource.uid != object::uid(&scale) {
            return no_binding(format!("the binding {} is not that of {what}", at.key));
        }
        if binding.clusters.is_empty() {
            let why = format!("{what} has no clusters: it waits to be scheduled");
            return Ok(Err(Amiss::new("FailedGetTargetClusters", event::FAILED_GET_TARGET_CLUSTERS, why)));
        }
        Ok(Ok(Target { scale, path, binding }))
    }

    /// What is kept of a FederatedHPA. Of one that another process has seen to it is known when that has scaled last.
    fn kept(&self, key: &Key, live: &Value, current: i64, now: Duration) -> Kept {
        let known = self.kept.lock().get(key).filter(|kept| kept.uid == object::uid(live)).cloned();
        let Some(mut kept) = known else {
            let status = &live["status"];
            let scaled = status["lastScaleTime"].as_str().and_then(|text| text.parse::<Time>().ok());
            let was_seen_to = status.get("desiredReplicas").is_some();
            let since = scaled.map(|at| at.elapsed(self.context.env.wall()));
            let since = since.or_else(|| was_seen_to.then_some(Duration::MAX));
            return Kept {
                uid: object::uid(live).to_owned(),
                history: History::resume(now, current, since),
                replicas: (current, now),
                ..Kept::default()
            };
        };
        if kept.replicas.0 != current {
            kept.replicas = (current, now);
        }
        kept
    }

    /// Says that there is nothing to be scaled.
    async fn amiss(&self, live: &Value, amiss: Amiss) -> Result<(), Error> {
        self.context.figures.scaling().gone(&Key::of(live));
        let status = &live["status"];
        let replicas = status["desiredReplicas"].as_i64().unwrap_or_default();
        let current = status["currentReplicas"].as_i64().unwrap_or_default();
        let outcome = Outcome { replicas, said: vec![amiss.said], ..Outcome::default() };
        if self.tell(live, (current, &outcome), &BTreeMap::new(), None).await? {
            let (reason, message) = amiss.event;
            self.context.writer.warning(COMPONENT, live, reason, message);
        }
        Ok(())
    }

    /// Writes the status. Whether a condition says something new that is not as it should be.
    async fn tell(
        &self,
        live: &Value,
        (current, outcome): (i64, &Outcome),
        silent: &BTreeMap<String, String>,
        scaled_at: Option<&str>,
    ) -> Result<bool, Error> {
        let (key, now) = (Key::of(live), Time::now(&self.context.env));
        let mut amiss = false;
        let change = |live: &mut Value| {
            amiss = false;
            if object::deletion_timestamp(live).is_some() {
                return false;
            }
            // What cannot be read is written anew.
            let mut known = key::conditions(live).unwrap_or_default();
            // Of several words on one matter the last counts.
            let last: BTreeMap<&str, &Said> = outcome.said.iter().map(|said| (said.kind, said)).collect();
            for (kind, said) in last {
                let condition = Condition::new(kind, said.holds, said.reason, said.message.as_str(), now);
                let same = conditions::find(&known, kind).is_some_and(|known| {
                    (known.status, &known.reason, &known.message)
                        == (condition.status, &condition.reason, &condition.message)
                });
                amiss |= !said.holds && !same;
                conditions::set(&mut known, condition, now);
            }
            match silence(silent) {
                Some(message) => {
                    let said =
                        Condition::new(extension::CLUSTERS_SILENT, true, "NothingReported", message, now);
                    conditions::set(&mut known, said, now);
                }
                None => {
                    conditions::remove(&mut known, extension::CLUSTERS_SILENT);
                }
            }
            let last = live["status"].clone();
            let generation = object::generation(live);
            let mut status = look::status(&last, generation, (current, outcome), scaled_at);
            status["conditions"] = json!(known);
            let differs = status != last;
            live["status"] = status;
            differs
        };
        self.context.writer.objects.modify(&FEDERATED_HPAS, &key, Part::Status, change).await?;
        Ok(amiss)
    }
}

/// Whether a Work's cluster is one that a FederatedHPA's workload is on.
fn wanted(context: &Context, work: &Key, hpa: &Key) -> bool {
    let head = context.known.hpas.get(hpa).filter(|head| !head.deleting);
    let binding = head.and_then(|head| context.known.bindings.of(head.binding.scope).get(&head.binding.key));
    let cluster = names::cluster_of_namespace(&work.namespace).unwrap_or_default();
    binding.is_some_and(|binding| !binding.deleting && binding.clusters.iter().any(|name| name == cluster))
}

/// What people are told when replicas were changed.
fn rescaled(size: i64, why: &str) -> String {
    format!("New size: {size}; reason: {why}")
}

/// Where in a period a key has its turn.
fn place(key: &Key, period: Duration) -> Duration {
    let millis = u64::try_from(period.as_millis()).unwrap_or(u64::MAX).max(1);
    Duration::from_millis(names::fnv64a(key.to_string().as_bytes()) % millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_spread_over_a_period() {
        let period = Duration::from_secs(15);
        let mut seconds = [0; 15];
        for n in 0..1500 {
            let at = place(&Key::new("demo", format!("web-{n}")), period);
            seconds[usize::try_from(at.as_secs()).unwrap()] += 1;
        }
        assert!(seconds.iter().all(|n| (60..150).contains(n)), "{seconds:?}");
    }
}
