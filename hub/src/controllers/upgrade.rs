//! The upgrade controller: in which waves the agents get a new version of themselves ([`karmada_core::upgrade`]).
//!
//! ```text
//!   ConfigMap agent-upgrade: request, commands ─┐
//!   Clusters: version and report of each agent ─┴─▶ step ─▶ the state, on the ConfigMap ─▶ offers, on the Clusters
//!                                                     └───▶ its status, events
//! ```
//!
//! The ConfigMap is the one object of an upgrade: what is asked for, how far it is, and a status that people read. It is one of
//! a kind that every API server has; only who may write in `karmada-system` may ask for anything. What an agent reads is an
//! annotation of its own Cluster, which agents may not write: it watches that anyway, and gets it when its link is back. The
//! state is written before the offers that follow from it, and they are brought in step with it again after a restart.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use karmada_api::consts::{component, event, extension, namespace};
use karmada_client::{Error, WorkQueue};
use karmada_core::{
    rollout::{self, Clocks, Fact, Member, Order, Phase, Seen, State, What, begin, step, words},
    upgrade::{
        Offer, Report, Stands, Version,
        fleet::{Known, Wanted},
        request::{self, Request},
        with_hub,
        words::{Beside, status},
    },
};
use karmada_meta::{object, time::Time};
use karmada_objects::{
    Objects, Part,
    key::Key,
    kinds::{CLUSTERS, CONFIG_MAPS},
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::yield_now;
use tokio_util::sync::CancellationToken;

use super::{
    Context, Next,
    rollout::{carry_out, reason_of},
    status::silent_since,
    work,
};
use crate::known::{gathered::Gathered, heads::ClusterHead};

/// This hub's own version.
const OURS: &str = env!("CARGO_PKG_VERSION");
/// What the clusters say is looked at together, so often at most.
const PACE: Duration = Duration::from_secs(2);
/// It is looked again after this time at the latest while something is awaited.
const LONGEST: Duration = Duration::from_secs(3600);
/// A status that says nothing but other numbers is written after this time at the earliest.
const SUMS: Duration = Duration::from_secs(30);
/// So many offers are written in a round, and at a time.
const WRITES: usize = 512;
const AT_A_TIME: usize = 8;
/// So many clusters are judged before others have their turn.
const BREATH: usize = 256;

/// Gives agents new versions.
pub(crate) struct Upgrades {
    context: Arc<Context>,
    queue: WorkQueue<String>,
    clusters: Gathered,
    /// Since when clusters are not well, and of which offer that is.
    clocks: Mutex<Option<(Option<Time>, Clocks)>>,
    /// When the status was written.
    shown: Mutex<Option<Time>>,
}

/// A cluster, as the upgrade sees it.
struct Row {
    head: Arc<ClusterHead>,
    report: Option<Report>,
    offer: Option<Offer>,
}

impl Row {
    fn of(head: Arc<ClusterHead>) -> Self {
        let report = head.annotation(extension::AGENT_UPGRADE).and_then(Report::read);
        let offer = head.annotation(extension::AGENT_OFFER).and_then(|text| Offer::read(text).ok());
        Self { head, report, offer }
    }

    fn name(&self) -> &str {
        self.head.cluster.metadata.name.as_deref().unwrap_or_default()
    }

    fn known(&self) -> Known<'_> {
        let born = self.head.cluster.metadata.creation_timestamp.as_ref();
        Known {
            version: self.head.annotation(extension::VERSION),
            report: self.report.clone(),
            offer: self.offer.clone(),
            born: born.map(|time| Time::from_timestamp(time.0)),
            pushed: self.head.is_pushed(),
        }
    }

    fn wave(&self, order: &Order<'_>) -> usize {
        order.wave(self.name(), self.head.cluster.metadata.labels.as_ref())
    }
}

fn object_key() -> Key {
    Key::new(namespace::SYSTEM, extension::AGENT_UPGRADE_OBJECT)
}

impl Upgrades {
    /// A controller that hears of the request and of clusters from now on.
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        let queue: WorkQueue<String> = WorkQueue::new(context.env.clone());
        let asked = queue.clone();
        context.known.upgrades.listen(move |change| {
            if change.old != change.new {
                asked.add(change.key.name.clone());
            }
        });
        let said = |head: &Arc<ClusterHead>| {
            let keys = [extension::VERSION, extension::AGENT_UPGRADE, extension::AGENT_OFFER];
            let words = keys.map(|key| head.annotation(key).map(str::to_owned));
            (words, silent_since(head), head.deleting, head.cluster.metadata.labels.clone())
        };
        let clusters = Gathered::of(
            &context.known.clusters,
            PACE,
            move |change| change.old.map(said) != change.new.map(said),
            |(), _| {},
        );
        let again = queue.clone();
        context.resync.tell(&context.known.upgrades, move |key, _| again.add(key.name.clone()));
        context.figures.queue("agent-upgrade", &queue);
        Self { context: context.clone(), queue, clusters, clocks: Mutex::default(), shown: Mutex::default() }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let known = &self.context.known;
        known.upgrades.synced().await;
        known.clusters.synced().await;
        // What was taken away while no hub ran leaves offers behind.
        self.queue.add(extension::AGENT_UPGRADE_OBJECT.to_owned());
        let of_clusters = async {
            loop {
                self.clusters.next().await;
                if !known.upgrades.is_empty() {
                    self.queue.add(extension::AGENT_UPGRADE_OBJECT.to_owned());
                }
            }
        };
        tokio::select! {
            biased;
            () = work("agent-upgrade", &self.queue, 1, &stop, |_| self.reconcile()) => {}
            () = of_clusters => {}
        }
    }

    async fn reconcile(&self) -> Result<Next, Error> {
        let objects = &self.context.writer.objects;
        let live = objects.get(&CONFIG_MAPS, &object_key()).await?;
        let Some(live) = live.filter(|live| object::deletion_timestamp(live).is_none()) else {
            self.figure(None);
            (*self.clocks.lock(), *self.shown.lock()) = (None, None);
            let rows = self.rows().await;
            return self.offer(&rows, rows.iter().map(|_| None).collect()).await;
        };
        let request = match Request::read(|key| live["data"][key].as_str()) {
            Ok(request) => request,
            Err(why) => return self.refuse(live, "Unreadable", &why).await,
        };
        if let Ok(ours) = OURS.parse::<Version>()
            && let Some(why) = with_hub(&request.version, &ours)
        {
            return self.refuse(live, "Refused", &why).await;
        }
        match State::read(&live) {
            Ok(before) => self.go_on(live, before, &request).await,
            Err(why) => {
                let why = format!(
                    "the annotation {} cannot be read, so no agent is offered anything else: {why}. Take it off to begin anew",
                    rollout::STATE
                );
                self.refuse(live, "StateUnreadable", &why).await
            }
        }
    }

    async fn go_on(&self, live: Value, before: Option<State>, request: &Request) -> Result<Next, Error> {
        let (name, seed) = (request.version.to_string(), request.requested.to_string());
        let rows = self.rows().await;
        let mut state = match &before {
            Some(before) if before.revision == name && before.seed == seed => before.clone(),
            _ => begun(request, &name, &seed, &rows).await,
        };
        let now = Time::now(&self.context.env);
        let gate = &request.asked.gate;
        let known = self.clocks.lock().take().filter(|(of, _)| *of == state.began);
        let mut clocks = known.map(|(_, clocks)| clocks).unwrap_or_default();
        let mut told: Vec<(&'static str, String)> = Vec::new();
        let ordered = object::annotation(&live, extension::ROLLOUT_COMMAND).map(str::to_owned);
        if let Some(text) = &ordered {
            let mut seen = state.clone();
            let members = members(&rows, &state, request).await;
            let sums = step(&mut seen, gate, &members, now, &mut clocks).sums;
            let stopped = matches!(state.phase, Phase::Aborted | Phase::Returned);
            told.push(match carry_out(&mut state, text, &sums, true) {
                Ok((kind, text)) => {
                    if stopped {
                        clocks = Clocks::default();
                    }
                    (reason_of(kind), text)
                }
                Err(why) => (event::ROLLOUT_COMMAND_REFUSED, format!("Upgrade command {text:?}: {why}.")),
            });
        }
        let members = members(&rows, &state, request).await;
        let stepped = step(&mut state, gate, &members, now, &mut clocks);
        *self.clocks.lock() = Some((state.began, clocks));
        told.extend(stepped.told.iter().map(|(kind, text)| (reason_of(*kind), text.clone())));
        let wanted = Wanted { request, state: &state };
        let text = status(&state, &stepped, &beside(&rows, wanted).await);
        let changed = before.as_ref() != Some(&state) || ordered.is_some();
        let later = self.write(&live, changed.then_some(&state), &text, now).await?;
        self.figure((state.phase != Phase::Complete).then(|| words::reason(&state)));
        for (reason, text) in told {
            self.tell(&live, reason, &text);
        }
        let next = self.offer(&rows, offers(&rows, wanted).await).await?;
        let again = stepped.again.filter(|_| state.is_under_way());
        Ok(again.into_iter().chain(later).fold(next, |next, wait| {
            // A fraction of a second more, since times are kept in whole ones.
            next.sooner(wait.min(LONGEST) + Duration::from_secs(1))
        }))
    }

    /// All clusters that stay.
    async fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for page in self.context.known.clusters.pages(None) {
            for (_, head) in page {
                if !head.deleting {
                    rows.push(Row::of(head));
                }
                if rows.len().is_multiple_of(BREATH) {
                    yield_now().await;
                }
            }
        }
        rows
    }

    /// Keeps a state, if there is another, with what people read. Answers after which time that is to be done, if not now.
    async fn write(
        &self,
        live: &Value,
        state: Option<&State>,
        text: &str,
        now: Time,
    ) -> Result<Option<Duration>, Error> {
        if state.is_none() {
            if live["data"][request::STATUS].as_str() == Some(text) {
                return Ok(None);
            }
            let shown = *self.shown.lock();
            let left =
                shown.map_or(Duration::ZERO, |at| SUMS.saturating_sub(at.elapsed(now.timestamp().into())));
            if !left.is_zero() {
                return Ok(Some(left));
            }
        }
        let mut object = live.clone();
        object["data"][request::STATUS] = text.into();
        if let Some(state) = state {
            object::set_annotation(
                &mut object,
                rollout::STATE,
                serde_json::to_string(state).unwrap_or_default(),
            );
            object::remove_annotation(&mut object, extension::ROLLOUT_COMMAND);
            tracing::info!(version = %state.revision, phase = ?state.phase, waves = state.open, "upgrade of agents");
        }
        // Not if somebody was faster: then all is looked at again.
        self.context.writer.objects.replace(&CONFIG_MAPS, &object).await?;
        *self.shown.lock() = Some(now);
        Ok(None)
    }

    /// Nothing is done, and people are told why.
    async fn refuse(&self, live: Value, reason: &'static str, why: &str) -> Result<Next, Error> {
        self.figure(Some("StateUnreadable").filter(|known| *known == reason));
        let text = format!("{reason}: {why}");
        if live["data"][request::STATUS].as_str() != Some(&text) {
            let mut object = live;
            object::ensure_map(&mut object, "data").insert(request::STATUS.into(), text.into());
            self.context.writer.objects.replace(&CONFIG_MAPS, &object).await?;
            self.tell(&object, event::ROLLOUT_STOPPED, &format!("Upgrade of agents: {why}."));
        }
        Ok(Next::Done)
    }

    /// Brings the Clusters' offers in step: each with what it is to be offered, in the order of `rows`.
    async fn offer(&self, rows: &[Row], wanted: Vec<Option<Offer>>) -> Result<Next, Error> {
        let differs = |(row, offer): &(&Row, Option<Offer>)| {
            *offer != row.offer || offer.is_some() != row.head.annotation(extension::AGENT_OFFER).is_some()
        };
        let changes = rows.iter().zip(wanted).filter(differs);
        let mut changes = changes
            .map(|(row, offer)| (row.name().to_owned(), offer.map(|offer| offer.write())))
            .take(WRITES + 1);
        let (mut running, mut started, mut failed) = (FuturesUnordered::new(), 0, None);
        loop {
            while running.len() < AT_A_TIME && started < WRITES {
                let Some((name, offer)) = changes.next() else { break };
                started += 1;
                running.push(put(self.context.writer.objects.clone(), name, offer));
            }
            match running.next().await {
                // One that cannot be written holds up no others.
                Some(Err(error)) => {
                    failed.get_or_insert(error);
                }
                Some(Ok(())) => {}
                None => break,
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        Ok(if changes.next().is_some() { Next::After(Duration::ZERO) } else { Next::Done })
    }

    fn figure(&self, phase: Option<&'static str>) {
        self.context.figures.rollouts().is(extension::AGENT_UPGRADE_OBJECT, phase);
    }

    fn tell(&self, about: &Value, reason: &'static str, text: &str) {
        let (component, writer) = (component::AGENT_UPGRADE, &self.context.writer);
        match reason {
            event::ROLLOUT_STOPPED | event::ROLLOUT_COMMAND_REFUSED => {
                writer.warning(component, about, reason, text);
            }
            _ => writer.normal(component, about, reason, text),
        }
    }
}

/// Has a Cluster offer this, or nothing.
async fn put(objects: Objects, name: String, offer: Option<String>) -> Result<(), Error> {
    let change = |live: &mut Value| {
        if object::annotation(live, extension::AGENT_OFFER) == offer.as_deref() {
            return false;
        }
        match &offer {
            Some(offer) => object::set_annotation(live, extension::AGENT_OFFER, offer.as_str()),
            None => drop(object::remove_annotation(live, extension::AGENT_OFFER)),
        }
        true
    };
    let written = objects.modify(&CLUSTERS, &Key::cluster_scoped(name.as_str()), Part::Main, change).await;
    written
        .inspect_err(|error| tracing::warn!(cluster = %name, %error, "the Cluster's offer of a version cannot be written"))
        .map(drop)
}

/// What each cluster is to be offered.
async fn offers(rows: &[Row], wanted: Wanted<'_>) -> Vec<Option<Offer>> {
    let order = Order::of(wanted.state);
    let mut offers = Vec::with_capacity(rows.len());
    for (at, row) in rows.iter().enumerate() {
        if at.is_multiple_of(BREATH) {
            yield_now().await;
        }
        let fact = wanted.fact(&row.known()).ok();
        offers.push(fact.and_then(|fact| wanted.offer(row.wave(&order), fact)));
    }
    offers
}

/// A request is there that was not: the waves of those that it concerns.
async fn begun(request: &Request, name: &str, seed: &str, rows: &[Row]) -> State {
    let nobody = State { what: What::Agents, ..State::unknown(seed) };
    let reading = State { revision: name.to_owned(), phase: Phase::Running, ..nobody.clone() };
    let wanted = Wanted { request, state: &reading };
    let mut concerned = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        if at.is_multiple_of(BREATH) {
            yield_now().await;
        }
        if wanted.fact(&row.known()).is_ok() {
            concerned.push((row.name(), row.head.cluster.metadata.labels.as_ref()));
        }
    }
    begin(&nobody, name, &request.asked, seed, &concerned)
}

/// The clusters, as the rollout's core sees them.
async fn members<'a>(rows: &'a [Row], state: &State, request: &Request) -> Vec<Member<'a>> {
    let (order, wanted) = (Order::of(state), Wanted { request, state });
    let mut members = Vec::with_capacity(rows.len());
    for (at, row) in rows.iter().enumerate() {
        if at.is_multiple_of(BREATH) {
            yield_now().await;
        }
        members.push(Member {
            name: row.name(),
            wave: row.wave(&order),
            fact: wanted.fact(&row.known()).unwrap_or(Fact::Unconcerned),
            silent: silent_since(&row.head),
            leaving: false,
            mute: false,
        });
    }
    members
}

/// What there is to say beside the sums.
async fn beside(rows: &[Row], wanted: Wanted<'_>) -> Beside {
    let mut beside = Beside::default();
    for (at, row) in rows.iter().enumerate() {
        if at.is_multiple_of(BREATH) {
            yield_now().await;
        }
        let (name, about) =
            (row.name().to_owned(), row.report.as_ref().and_then(|report| report.about.as_ref()));
        match (wanted.fact(&row.known()), about) {
            (Err(why), _) => beside.skipped.entry(why).or_default().push(name),
            (Ok(Fact::New(Seen::Failed)), Some(about)) => beside.failed.push((name, about.why.clone())),
            (Ok(Fact::New(_)), Some(about)) if about.stands == Stands::Waiting => {
                beside.waiting.push((name, about.why.clone()));
            }
            _ => {}
        }
    }
    beside
}
