//! The Cluster's status: collected on the member every ten seconds, and told where the hub has something else.
//!
//! What is compared is the hub's Cluster, not our own last post: a hub that came to think otherwise (its monitor, a
//! restored backup) hears from us at its first sign, and at once when the link is back.

use std::{borrow::Cow, sync::Arc, time::Duration};

use karmada_api::{
    cluster::{ApiEnablement, Cluster, ClusterStatus, ResourceModel},
    conditions::{self, Condition},
    consts::{condition, extension, reason},
    models::default_resource_models,
};
use karmada_client::{Error, Patch, Rest};
use karmada_core::{links::Matter, nodes::report};
use karmada_env::Env;
use karmada_member::{
    IDENTITY, Member, Stats, Trouble,
    discovery::Apis,
    health::{Health, LOOK, Threshold},
    quotas::Quotas,
    rights::{Rights, Standing},
    summary::Figures,
};
use karmada_meta::{object, time::Time};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    cluster::{ClusterView, Kept},
    origin::Trust,
};
use crate::{
    config::{AgentConfig, Troubles},
    upgrade::Told,
};

/// Somebody else may write the Cluster in between; then we look again, so often.
const TRIES: u32 = 4;

/// The first report waits this long for the first lists of nodes and pods, so that it need not be corrected.
const FIRST_LISTS: Duration = Duration::from_secs(3);

/// Kinds that came or went on the member are told so much later: whoever installs something brings several.
const KINDS_PAUSE: Duration = Duration::from_secs(1);

/// Between reports of what is free on nodes and left by quotas, at least: pods come and go in groups.
const ROOMS_PAUSE: Duration = Duration::from_secs(30);

/// So many paths are named of what is not known.
const LACKS: usize = 10;

/// How often it is looked, as long as the member is well and the way to it the same, of which version it is.
const VERSION: Duration = Duration::from_secs(60);

/// A look that comes a little early is one in time.
const EARLY: Duration = Duration::from_secs(1);

/// When what is free on nodes, and left by quotas, is reported again.
#[derive(Debug, Default)]
struct Rooms {
    /// [`Env::now`].
    not_before: Duration,
    /// The hub does not let an agent write its Cluster's annotations.
    forbidden: bool,
}

/// What a look at the member brought.
#[derive(Debug)]
struct Look {
    health: Health,
    /// With a healthy member only.
    version: Option<Version>,
    apis: Option<Result<Arc<Apis>, String>>,
    /// It is another than the Cluster's.
    foreign: bool,
    /// [`Env::now`] when its version was looked at.
    versioned: Duration,
}

/// The oldest minor version of Kubernetes 1 that has server-side apply as we use it.
const OLDEST: u32 = 22;

/// A member's version.
#[derive(Debug)]
struct Version {
    name: String,
    /// Of major version 1; none if it cannot be told.
    minor: Option<u32>,
}

impl Version {
    fn of(answer: &Value) -> Self {
        let text = |field: &str| answer[field].as_str().unwrap_or_default();
        let digits: String = text("minor").chars().take_while(char::is_ascii_digit).collect();
        let minor = if text("major") == "1" { digits.parse().ok() } else { None };
        Self { name: text("gitVersion").to_owned(), minor }
    }

    fn complaint(&self, now: Time) -> Option<Condition> {
        self.minor.filter(|minor| *minor < OLDEST)?;
        let message = format!(
            "the member runs Kubernetes {}; Works are applied by server-side apply, which needs 1.{OLDEST} or newer",
            self.name
        );
        Some(Condition::new(extension::VERSION_SUPPORTED, false, "TooOld", message, now))
    }
}

/// What the Cluster says, read once for each Cluster that there was: it seldom changes. But for what the member serves, which is
/// most of it.
#[derive(Debug, Default)]
struct Read {
    of: Option<Arc<Kept>>,
    is_odd: bool,
    status: ClusterStatus,
    models: Vec<ResourceModel>,
}

/// What the member serves, of a Cluster.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Served {
    status: Option<ServedStatus>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ServedStatus {
    api_enablements: Vec<ApiEnablement>,
}

impl Read {
    fn status(&mut self, cluster: &Arc<Kept>) -> (ClusterStatus, &[ResourceModel]) {
        if !self.of.as_ref().is_some_and(|of| Arc::ptr_eq(of, cluster)) {
            let read = cluster.read::<Cluster>().inspect_err(|error| {
                tracing::debug!(%error, "the hub's Cluster is odd; its status is written anew");
            });
            self.is_odd = read.is_err();
            (self.status, self.models) = read
                .map(|cluster| (cluster.status.unwrap_or_default(), cluster.spec.resource_models))
                .unwrap_or_default();
            self.status.api_enablements = Vec::new();
            self.of = Some(Arc::clone(cluster));
        }
        let served = if self.is_odd { None } else { cluster.read::<Served>().ok() };
        let served = served.and_then(|served| served.status).unwrap_or_default();
        let status = ClusterStatus { api_enablements: served.api_enablements, ..self.status.clone() };
        (status, &self.models)
    }
}

/// Resolves at a time; never, if there is none.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Collects and tells.
#[derive(Debug)]
pub(crate) struct Reporter {
    pub(crate) hub: Rest,
    pub(crate) member: Rest,
    pub(crate) env: Env,
    pub(crate) config: Arc<AgentConfig>,
    pub(crate) view: Arc<ClusterView>,
    pub(crate) half: Arc<Member>,
    pub(crate) figures: Arc<Mutex<Figures>>,
    pub(crate) quotas: Arc<Mutex<Quotas>>,
    pub(crate) stats: Arc<Stats>,
    /// Whether the hub is believed.
    pub(crate) trust: Arc<Trust>,
    /// What becomes of new versions of the agent.
    pub(crate) upgrade: Told,
    /// The uid of the member's kube-system Namespace.
    pub(crate) identity: Mutex<Option<String>>,
}

impl Reporter {
    /// Reports until dropped. It waits most of the time: what it does then is in boxes, which are there as long as that lasts.
    pub(crate) async fn run(&self, rights: &Rights) {
        let mut threshold = Threshold::new(self.config.success_threshold, self.config.failure_threshold);
        let mut back = self.config.hub_back.listen();
        let mut member_back = self.config.member_back.listen();
        let mut view = self.view.subscribe();
        let mut kinds = self.half.discovery().changes();
        let mut kinds_due: Option<Instant> = None;
        Box::pin(self.reporting(rights)).await;
        self.first_lists().await;
        // The Cluster was read by whoever registered.
        back.clear();
        let mut tick = Instant::now();
        let mut read = Read::default();
        let mut last: Option<Look> = None;
        let mut looked: Option<Duration> = None;
        let (mut rooms, mut failures) = (Rooms::default(), 0_u64);
        // [`Env::now`] before which the hub wants to hear nothing.
        let mut not_before = Duration::ZERO;
        // [`Env::now`] before which nothing but conditions is told.
        let mut figures_from = Duration::ZERO;
        loop {
            let mut refresh = false;
            tokio::select! {
                biased;
                () = back.woken() => refresh = true,
                changed = view.changed() => if changed.is_err() { return },
                () = kinds.woken() => {
                    kinds_due = kinds_due.or_else(|| Some(Instant::now() + KINDS_PAUSE));
                    continue;
                }
                () = until(kinds_due) => {
                    kinds_due = None;
                    looked = Some(self.env.now());
                    last = Some(Box::pin(self.look()).await);
                }
                () = member_back.woken() => {
                    looked = Some(self.env.now());
                    last = Some(Box::pin(self.look()).await);
                }
                () = sleep_until(tick) => {
                    looked = Some(self.env.now());
                    last = Some(match last.take() {
                        Some(last) => Box::pin(self.look_again(last)).await,
                        None => Box::pin(self.look()).await,
                    });
                    tick = Instant::now() + self.env.beat(&self.config.cluster, self.config.status_interval);
                }
            }
            if !rights.may_report() && !self.is_foreign_to_hosted(&last) {
                Box::pin(self.reporting(rights)).await;
                // What was seen before may be long ago.
                looked = Some(self.env.now());
                last = Some(Box::pin(self.look()).await);
            }
            if self.is_foreign_to_hosted(&last) {
                // Nothing more is done there; whoever begins anew finds out what is wrong, and says so.
                tracing::warn!(cluster = %self.config.cluster, "another member answers at the cluster's address");
                return;
            }
            let begun = looked.take().unwrap_or_else(|| self.env.now());
            view.borrow_and_update();
            if self.env.now() < not_before {
                continue;
            }
            if refresh && let Err(error) = Box::pin(self.view.refresh()).await {
                tracing::debug!(%error, "cannot read the Cluster");
            }
            if !rights.may_report() {
                // It is not ours any more.
                continue;
            }
            if let Some(look) = &last {
                match Box::pin(self.tell(look, &mut threshold, &mut figures_from, &mut read)).await {
                    Ok(()) => failures = 0,
                    Err(error) => {
                        not_before = self.env.now() + error.retry_after().unwrap_or_default();
                        failures += 1;
                        let cluster = &self.config.cluster;
                        // An outage may last for weeks.
                        if failures.is_power_of_two() {
                            tracing::warn!(%cluster, %error, failures, "the cluster's status was not reported");
                        } else {
                            tracing::debug!(%cluster, %error, failures, "the cluster's status was not reported");
                        }
                    }
                }
            }
            if self.env.now() >= not_before
                && let Err(error) = Box::pin(self.tell_rooms(&mut rooms)).await
            {
                not_before = self.env.now() + error.retry_after().unwrap_or_default();
                tracing::debug!(%error, "what is free on nodes was not reported");
            }
            self.stats.status_times.observe(self.env.now().saturating_sub(begun));
            // Our own report comes back as a change that there is nothing to say about.
            view.borrow_and_update();
        }
    }

    /// Whether another member answers to the hub's own agent.
    fn is_foreign_to_hosted(&self, last: &Option<Look>) -> bool {
        self.config.is_hosted() && last.as_ref().is_some_and(|look| look.foreign)
    }

    /// Waits until this agent speaks for the cluster. While another member answers it is looked again and again whether that
    /// is over.
    async fn reporting(&self, rights: &Rights) {
        let look = async {
            loop {
                rights.when(Standing::is_on_stranger).await;
                sleep(self.config.status_interval).await;
                self.identify().await;
            }
        };
        tokio::select! {
            biased;
            () = rights.reporting() => {}
            () = look => {}
        }
    }

    async fn first_lists(&self) {
        if !self.config.resource_modeling {
            return;
        }
        let ready = async {
            while !self.figures.lock().synced() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = tokio::time::timeout(FIRST_LISTS, ready).await;
    }

    async fn look(&self) -> Look {
        self.look_but_for(None).await
    }

    /// A look after another: the member's version is not that of another at each of them.
    async fn look_again(&self, last: Look) -> Look {
        let Look { version, versioned, .. } = last;
        let is_known = self.env.now() < versioned + VERSION - EARLY;
        self.look_but_for(version.filter(|_| is_known).map(|version| (version, versioned))).await
    }

    /// A look without what is known. What is asked at once is answered at once, and wakes an idle agent once.
    async fn look_but_for(&self, known: Option<(Version, Duration)>) -> Look {
        let now = self.env.now();
        let (health, foreign) = if_well(Health::ask(&self.member), self.identify()).await;
        let Some(foreign) = foreign else {
            return Look { health, version: None, apis: None, foreign: false, versioned: now };
        };
        self.half.look_at_released().await;
        let version = async {
            match known {
                Some((version, versioned)) => (Some(version), versioned),
                None => (self.version().await, now),
            }
        };
        let ((version, versioned), apis) = tokio::join!(version, self.apis());
        Look { health, version, apis: Some(apis), foreign, versioned }
    }

    async fn version(&self) -> Option<Version> {
        match self.member.small().get("/version").await {
            Ok(version) => Some(Version::of(&version)),
            Err(error) => {
                tracing::warn!(%error, "cannot read the member's version");
                None
            }
        }
    }

    async fn apis(&self) -> Result<Arc<Apis>, String> {
        let (apis, changed) = self.half.discovery().look().await.map_err(|error| error.to_string())?;
        if changed {
            // What failed for want of a kind may have it now.
            self.half.queue().retry_all_now();
        }
        Ok(apis)
    }

    /// Notices that the member is another than it was; answers whether it is another than the Cluster's.
    async fn identify(&self) -> bool {
        let Ok(system) = self.member.with_deadline(LOOK).small().get(IDENTITY).await else { return false };
        let uid = object::uid(&system).to_owned();
        let foreign = self.view.meets_member(&uid).is_some();
        if self.identity.lock().replace(uid.clone()).is_some_and(|known| known != uid) {
            self.half.is_another();
        }
        foreign
    }

    /// Tells the hub what it does not have.
    async fn tell(
        &self,
        look: &Look,
        threshold: &mut Threshold,
        figures_from: &mut Duration,
        read: &mut Read,
    ) -> Result<(), Error> {
        for _ in 0..TRIES {
            let cluster = self.view.fresh().await?;
            let (old, models) = read.status(&cluster);
            let new = self.status(&old, look, threshold, models);
            if new == old {
                return Ok(());
            }
            let matter = match new.conditions == old.conditions {
                true if self.env.now() < *figures_from => return Ok(()),
                true => Matter::Status,
                false => Matter::Condition,
            };
            // Of an update of the status the server takes nothing else; the spec alone is larger.
            let metadata = json!({
                "name": self.config.cluster,
                "uid": object::uid(&cluster),
                "resourceVersion": object::resource_version(&cluster),
            });
            let mut body = json!({
                "apiVersion": object::api_version(&cluster), "kind": object::kind(&cluster),
                "metadata": metadata, "spec": {"syncMode": "Pull"}, "status": cluster["status"],
            });
            merge(&mut body["status"], &new);
            if self.config.spending.take(body.to_string().len(), matter).is_err() {
                // It is looked at again anyway.
                return Ok(());
            }
            match self.hub.put_for_revision(&format!("{}/status", self.view.path()), &body).await {
                Ok(revision) => {
                    self.stats.cluster_reports.add();
                    *figures_from = self.env.now() + self.config.terms.figures.saturating_sub(EARLY);
                    self.say(&old, &new);
                    let mut reported = cluster.whole();
                    object::set_meta(&mut reported, "resourceVersion", revision);
                    reported["status"] = body["status"].take();
                    self.view.set(reported);
                    return Ok(());
                }
                Err(error) if error.is_conflict() => {
                    self.view.refresh().await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Tells the hub what is free on each node, and what ResourceQuotas leave, if that is other than what it has.
    async fn tell_rooms(&self, rooms: &mut Rooms) -> Result<(), Error> {
        let now = self.env.now();
        if rooms.forbidden || rooms.not_before > now {
            return Ok(());
        }
        let tunnel = self.config.tunnel.as_ref().map(|dials| dials.settings.limits.mode.to_string());
        let searched = self.config.searched.as_ref().map(|_| "true".to_owned());
        let link = self.config.link.map(|link| link.to_string());
        let mut reports = vec![
            (extension::TUNNEL, tunnel),
            (extension::SEARCH_COPIES, searched),
            (extension::LINK, link),
            (extension::AGENT_UPGRADE, self.upgrade.text()),
        ];
        if !self.config.resource_modeling {
            // Nobody looks, so what was said once is taken back.
            reports.extend([(extension::NODES, None), (extension::QUOTAS, None)]);
        } else {
            let figures = self.figures.lock();
            if figures.synced() {
                reports.push((extension::NODES, report::write(&figures.rooms())));
            }
            drop(figures);
            let quotas = self.quotas.lock();
            if quotas.synced() {
                let left =
                    if quotas.is_empty() { None } else { quotas.report(&self.half.desired().namespaces()) };
                reports.push((extension::QUOTAS, left));
            }
        }
        let cluster = self.view.fresh().await?;
        reports.retain(|(key, text)| object::annotation(&cluster, key) != text.as_deref());
        // Where none was told the version goes along with others; another one than was told is news.
        let told = object::annotation(&cluster, extension::VERSION);
        let version = self.config.version.as_str();
        if told != Some(version) && (told.is_some() || !reports.is_empty()) {
            reports.push((extension::VERSION, Some(version.to_owned())));
        }
        if reports.is_empty() {
            return Ok(());
        }
        let bytes = reports.iter().map(|(key, text)| key.len() + text.as_ref().map_or(0, String::len)).sum();
        if let Err(wait) = self.config.spending.take(bytes, Matter::Status) {
            rooms.not_before = now + wait;
            return Ok(());
        }
        rooms.not_before = now + ROOMS_PAUSE.max(self.config.terms.figures);
        let annotations: Map<_, _> =
            reports.iter().map(|(key, text)| ((*key).to_owned(), json!(text))).collect();
        // What is kept afterwards is what was known with this changed: nothing else may have.
        let change = json!({"metadata": {
            "resourceVersion": object::resource_version(&cluster),
            "annotations": annotations,
        }});
        match self.hub.patch_for_revision(&self.view.path(), Patch::Merge, &change).await {
            Ok(revision) => {
                let mut reported = cluster.whole();
                object::set_meta(&mut reported, "resourceVersion", revision);
                for (key, text) in reports {
                    match text {
                        Some(text) => object::set_annotation(&mut reported, key, text),
                        None => drop(object::remove_annotation(&mut reported, key)),
                    }
                }
                self.view.set(reported);
                Ok(())
            }
            Err(error) if error.is_forbidden() => {
                rooms.forbidden = true;
                Err(error)
            }
            Err(error) if error.is_conflict() => {
                rooms.not_before = Duration::ZERO;
                self.view.refresh().await?;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// What people want to know of a report: that the cluster's state is another one.
    fn say(&self, old: &ClusterStatus, new: &ClusterStatus) {
        let ready = |status: &ClusterStatus| conditions::find(&status.conditions, condition::READY).cloned();
        let (before, after) = (ready(old), ready(new));
        let cluster = &self.config.cluster;
        match after {
            Some(after) if before.as_ref().map(|c| c.status) != Some(after.status) => tracing::info!(
                %cluster, ready = %after.status, reason = %after.reason, "the cluster's state was reported"
            ),
            _ => tracing::debug!(%cluster, "the cluster's status was reported"),
        }
    }

    fn status(
        &self,
        old: &ClusterStatus,
        look: &Look,
        threshold: &mut Threshold,
        models: &[ResourceModel],
    ) -> ClusterStatus {
        let now = Time::now(&self.env);
        let mut new = old.clone();
        let on_hub = conditions::find(&old.conditions, condition::READY);
        let ready = threshold.adjust(on_hub, look.health.condition(now), self.env.now());
        if let Some(apis) = &look.apis {
            let complete = match apis {
                Ok(apis) => {
                    new.api_enablements = apis.enablements();
                    enablements(apis, now)
                }
                Err(error) if old.api_enablements.is_empty() => api_condition(
                    false,
                    reason::API_ENABLEMENTS_EMPTY,
                    format!("{}: {error}", reason::API_ENABLEMENTS_EMPTY_MESSAGE),
                    now,
                ),
                // What is known is still the best that is known.
                Err(error) => api_condition(
                    false,
                    reason::API_ENABLEMENTS_PARTIAL,
                    format!("{}: {error}", reason::API_ENABLEMENTS_PARTIAL_MESSAGE),
                    now,
                ),
            };
            conditions::set(&mut new.conditions, complete, now);
            if let Some(version) = &look.version {
                new.kubernetes_version.clone_from(&version.name);
                match version.complaint(now) {
                    Some(condition) => {
                        conditions::set(&mut new.conditions, condition, now);
                    }
                    None => {
                        conditions::remove(&mut new.conditions, extension::VERSION_SUPPORTED);
                    }
                }
            }
            let figures = self.figures.lock();
            if figures.synced() {
                let models = match models {
                    [] => Cow::Owned(default_resource_models()),
                    models => Cow::Borrowed(models),
                };
                new.node_summary = Some(figures.nodes());
                new.resource_summary = Some(figures.resources(Some(&models)));
            }
        }
        if !self.config.resource_modeling {
            // As in Karmada: nobody looks, so nobody says anything.
            (new.node_summary, new.resource_summary) = (None, None);
        }
        conditions::set(&mut new.conditions, ready, now);
        unwatched(&mut new.conditions, &self.half.failing(), now);
        shown(
            &mut new.conditions,
            extension::MEMBER_TOO_LARGE,
            "TooMuch",
            too_large(&self.member.lacks().all()),
            now,
        );
        self.half.show_released(&mut new.conditions, now);
        self.half.show_held(&mut new.conditions, now);
        troubled(&mut new.conditions, &self.config.troubles, self.half.trouble(), now);
        let held = self.half.removals_hold();
        shown(&mut new.conditions, extension::REMOVALS_HELD, "TooManyAtOnce", held, now);
        let gave_way = self.upgrade.gave_way();
        shown(&mut new.conditions, extension::UPGRADE_GAVE_WAY, "DeploymentChanged", gave_way, now);
        let older = self.trust.why().map(|why| why.to_string());
        shown(&mut new.conditions, extension::HUB_OLDER, "KnowsLess", older, now);
        new
    }
}

/// Asks both at once, and waits for the other answer only if the member is well: what is the matter is told without it.
async fn if_well<T>(
    health: impl Future<Output = Health>,
    other: impl Future<Output = T>,
) -> (Health, Option<T>) {
    let (mut health, mut other) = (std::pin::pin!(health), std::pin::pin!(other));
    let (health, answer) = tokio::select! {
        biased;
        health = &mut health => (health, None),
        answer = &mut other => (health.await, Some(answer)),
    };
    match (health, answer) {
        (Health::Ready, None) => (health, Some(other.await)),
        (Health::Ready, answer) => (health, answer),
        (Health::NotReady | Health::NotReachable, _) => (health, None),
    }
}

/// Says of which kinds nothing is seen on the member, while there are some.
fn unwatched(list: &mut Vec<Condition>, failing: &[(String, Arc<str>)], now: Time) {
    if failing.is_empty() {
        conditions::remove(list, extension::KINDS_UNWATCHED);
        return;
    }
    let kinds: Vec<String> = failing.iter().map(|(kind, why)| format!("{kind} ({why})")).collect();
    let message = format!(
        "changes of these kinds on the member are not seen, nor their status, since it refuses to have them watched: {}",
        kinds.join("; ")
    );
    let condition = Condition::new(extension::KINDS_UNWATCHED, true, "WatchRefused", message, now);
    conditions::set(list, condition, now);
}

/// Of what nothing is known since there is too much of it.
fn too_large(lacks: &[(String, String)]) -> Option<String> {
    let said = lacks.iter().take(LACKS).map(|(path, why)| format!("{path} ({why})"));
    let mut said = said.collect::<Vec<_>>().join("; ");
    if let Some(more) = lacks.len().checked_sub(LACKS).filter(|more| *more > 0) {
        said.push_str(&format!("; and {more} more"));
    }
    (!lacks.is_empty()).then(|| {
        format!("there is too much on the member; nothing is known of what it has at these paths, and it is looked again every few minutes: {said}")
    })
}

/// Says what is wrong between us and the hub, as long as it is.
fn troubled(list: &mut Vec<Condition>, troubles: &Troubles, state: Option<Trouble>, now: Time) {
    let state = state.map(|(reason, message)| (extension::STATE_NOT_KEPT, reason, message));
    let all: Vec<_> = troubles.all().into_iter().chain(state).collect();
    let types = Troubles::TYPES.into_iter().chain([extension::STATE_NOT_KEPT]);
    for what in types.filter(|what| !all.iter().any(|(there, ..)| there == what)) {
        conditions::remove(list, what);
    }
    for (what, reason, message) in all {
        conditions::set(list, Condition::new(what, true, reason, message, now), now);
    }
}

/// Has a condition stand there while there is something to say.
fn shown(
    list: &mut Vec<Condition>,
    what: &'static str,
    reason: &'static str,
    why: Option<String>,
    now: Time,
) {
    match why {
        Some(why) => {
            conditions::set(list, Condition::new(what, true, reason, why, now), now);
        }
        None => {
            conditions::remove(list, what);
        }
    }
}

fn enablements(apis: &Apis, now: Time) -> Condition {
    if apis.missing.is_empty() {
        let message = reason::API_ENABLEMENTS_COMPLETE_MESSAGE.to_owned();
        return api_condition(true, reason::API_ENABLEMENTS_COMPLETE, message, now);
    }
    let missing: Vec<_> = apis.missing.iter().map(String::as_str).collect();
    let message =
        format!("{}: no answer for {}", reason::API_ENABLEMENTS_PARTIAL_MESSAGE, missing.join(", "));
    api_condition(false, reason::API_ENABLEMENTS_PARTIAL, message, now)
}

fn api_condition(holds: bool, reason: &'static str, message: String, now: Time) -> Condition {
    Condition::new(condition::COMPLETE_API_ENABLEMENTS, holds, reason, message, now)
}

/// Puts the fields that we know into a status; what others put there stays.
fn merge(status: &mut Value, new: &ClusterStatus) {
    let Ok(Value::Object(fields)) = serde_json::to_value(new) else { return };
    if !status.is_object() {
        *status = Value::Object(Map::new());
    }
    // Empty fields are not written; what they held before must not stay.
    for name in ["kubernetesVersion", "apiEnablements", "conditions", "nodeSummary", "resourceSummary"] {
        if let (false, Some(status)) = (fields.contains_key(name), status.as_object_mut()) {
            status.remove(name);
        }
    }
    for (name, value) in fields {
        status[name] = value;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_old_members_are_complained_about() {
        let rows = [
            ("1", "36", false),
            ("1", "22", false),
            ("1", "22+", false),
            ("1", "21", true),
            ("1", "9+", true),
            ("2", "0", false),
            ("", "", false),
        ];
        for (major, minor, complains) in rows {
            let version = Version::of(&json!({"major": major, "minor": minor, "gitVersion": "v"}));
            let now = Time::from_system(std::time::UNIX_EPOCH);
            assert_eq!(version.complaint(now).is_some(), complains, "{major}.{minor}");
        }
    }

    #[test]
    fn a_member_that_is_not_well_is_told_of_without_waiting_for_who_it_is() {
        use std::future::{pending, ready};

        use futures::FutureExt;
        for (health, want) in
            [(Health::NotReachable, Some(None)), (Health::NotReady, Some(None)), (Health::Ready, None)]
        {
            let got = if_well(ready(health), pending::<bool>()).now_or_never();
            assert_eq!(got, want.map(|foreign| (health, foreign)), "{health:?}");
            let (got, foreign) = if_well(ready(health), ready(true)).now_or_never().unwrap();
            assert_eq!((got, foreign), (health, (health == Health::Ready).then_some(true)));
        }
        assert_eq!(if_well(pending(), ready(true)).now_or_never(), None);
    }

    #[test]
    fn what_is_not_known_is_named_and_not_at_length() {
        assert_eq!(too_large(&[]), None);
        let lacks: Vec<_> = (0..12).map(|n| (format!("/api/v1/kind{n}"), "it is full".to_owned())).collect();
        let said = too_large(&lacks[..1]).unwrap();
        assert!(said.ends_with("/api/v1/kind0 (it is full)"), "{said}");
        let said = too_large(&lacks).unwrap();
        assert!(said.contains("kind9") && !said.contains("kind10") && said.ends_with("and 2 more"), "{said}");
    }

    #[test]
    fn what_others_put_into_the_status_stays() {
        let mut status = json!({"remedyActions": ["TrafficControl"], "theirs": 1, "kubernetesVersion": "v1"});
        let new = ClusterStatus { kubernetes_version: "v2".into(), ..ClusterStatus::default() };
        merge(&mut status, &new);
        assert_eq!(
            status,
            json!({"remedyActions": ["TrafficControl"], "theirs": 1, "kubernetesVersion": "v2"})
        );
    }
}
