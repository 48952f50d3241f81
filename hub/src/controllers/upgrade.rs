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
//! annotation of its own Cluster: it watches that anyway, and gets it when its link is back. Admission lets the hub alone write it;
//! what somebody writes past that is taken away, or put right, and an event says so. The state is written before the offers that
//! follow from it, and they are brought in step with it again after a restart. Where the request or the state is none to go by,
//! nobody watches the gate, so all offers are taken back when that has been so for minutes; who has begun finishes.
//!
//! All clusters are passed over when a request is new, and when a wave, a phase or a command judges all of them anew. Otherwise what
//! is looked at are the clusters that have changed, and those of a wave that are not done yet.

use std::{
    collections::BTreeSet,
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};
use karmada_api::consts::{component, event, extension, namespace};
use karmada_client::{Error, WorkQueue};
use karmada_core::{
    rollout::{self, Clocks, Phase, State, What, begin, step, words},
    upgrade::{
        Offer, Report, Version,
        fleet::Wanted,
        request::{self, Request},
        table::{Row, Table},
        with_hub,
        withdrawal::Refusal,
        words::{REFUSED, STATE_UNREADABLE, UNREADABLE, status},
    },
};
use karmada_meta::{object, time::Time};
use karmada_objects::{
    Objects, Part,
    key::Key,
    kinds::{CLUSTERS, CONFIG_MAPS},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
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
/// So many offers are written in a round, and at a time. When agents begin is not told by that: they spread their starts.
const WRITES: usize = 512;
const AT_A_TIME: usize = 8;
/// So many clusters are judged before others have their turn.
const BREATH: usize = 256;

/// Gives agents new versions.
pub(crate) struct Upgrades {
    context: Arc<Context>,
    queue: WorkQueue<String>,
    clusters: Gathered,
    /// Clusters of which the table is not right any more.
    changed: Mutex<BTreeSet<Key>>,
    desk: tokio::sync::Mutex<Desk>,
}

/// What is kept between two looks, for as long as something is asked for.
#[derive(Default)]
struct Desk {
    /// All clusters that stay; nothing before they were looked at.
    table: Option<Table>,
    /// Since when clusters are not well, and of which offer that is.
    clocks: Option<(Option<Time>, Clocks)>,
    /// When the status was written.
    shown: Option<Time>,
    /// Nothing is offered, since nothing is asked for that could be.
    empty: bool,
    /// Since when there is no request to go by.
    refusal: Refusal,
}

/// A cluster, as the upgrade sees it; nothing of one that goes.
fn row(head: &ClusterHead) -> Option<Row> {
    if head.deleting {
        return None;
    }
    let (metadata, offer) = (&head.cluster.metadata, head.annotation(extension::AGENT_OFFER));
    let read = offer.and_then(|text| Offer::read(text).ok());
    Some(Row {
        version: head.annotation(extension::VERSION).map(str::to_owned),
        report: head.annotation(extension::AGENT_UPGRADE).and_then(Report::read),
        odd: offer.is_some() && read.is_none(),
        offer: read,
        born: metadata.creation_timestamp.as_ref().map(|time| Time::from_timestamp(time.0)),
        pushed: head.is_pushed(),
        labels: metadata.labels.clone(),
        silent: silent_since(head),
    })
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
        Self {
            context: context.clone(),
            queue,
            clusters,
            changed: Mutex::default(),
            desk: tokio::sync::Mutex::default(),
        }
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
                let batch = self.clusters.next().await;
                let asked = !known.upgrades.is_empty();
                // Nobody is offered anything then.
                let concerned = batch.into_keys().filter(|key| asked || self.is_offered(key));
                let mut changed = self.changed.lock();
                changed.extend(concerned);
                if !changed.is_empty() {
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
        let mut desk = self.desk.lock().await;
        let Some(live) = live.filter(|live| object::deletion_timestamp(live).is_none()) else {
            self.figure(None);
            self.offer_nothing(&mut desk).await?;
            return Ok(Next::Done);
        };
        match read(&live) {
            Ok((request, before)) => {
                (desk.empty, desk.refusal) = (false, Refusal::default());
                self.go_on(live, before, &request, &mut desk).await
            }
            Err((reason, why)) => {
                self.refuse(live, reason, &why).await?;
                self.offer_no_more(&mut desk).await
            }
        }
    }

    async fn go_on(
        &self,
        live: Value,
        before: Option<State>,
        request: &Request,
        desk: &mut Desk,
    ) -> Result<Next, Error> {
        let (name, seed) = (request.version.to_string(), request.requested.to_string());
        self.take_in(&mut desk.table).await;
        let table = desk.table.get_or_insert_default();
        let mut state = match &before {
            Some(before) if before.revision == name && before.seed == seed => before.clone(),
            _ => begun(request, &name, &seed, table),
        };
        let now = Time::now(&self.context.env);
        let gate = &request.asked.gate;
        let known = desk.clocks.take().filter(|(of, _)| *of == state.began);
        let mut clocks = known.map(|(_, clocks)| clocks).unwrap_or_default();
        let mut told: Vec<(&'static str, String)> = Vec::new();
        let ordered = object::annotation(&live, extension::ROLLOUT_COMMAND).map(str::to_owned);
        if let Some(text) = &ordered {
            judge(table, Wanted { request, state: &state }).await;
            let mut seen = state.clone();
            let seen = step(&mut seen, gate, &table.members(&clocks), now, &mut clocks);
            let stopped = matches!(state.phase, Phase::Aborted | Phase::Returned);
            told.push(match carry_out(&mut state, text, &seen, true) {
                Ok((kind, text)) => {
                    if stopped {
                        clocks = Clocks::default();
                    }
                    (reason_of(kind), text)
                }
                Err(why) => (event::ROLLOUT_COMMAND_REFUSED, format!("Upgrade command {text:?}: {why}.")),
            });
        }
        judge(table, Wanted { request, state: &state }).await;
        let stepped = step(&mut state, gate, &table.members(&clocks), now, &mut clocks);
        desk.clocks = Some((state.began, clocks));
        told.extend(stepped.told.iter().map(|(kind, text)| (reason_of(*kind), text.clone())));
        let wanted = Wanted { request, state: &state };
        judge(table, wanted).await;
        let text = status(&state, &stepped, table.beside());
        let changed = before.as_ref() != Some(&state) || ordered.is_some();
        let counts = serde_json::to_string(&stepped.sums).unwrap_or_default();
        let people = (text.as_str(), counts.as_str());
        let later = self.write(&live, changed.then_some(&state), people, (&mut desk.shown, now)).await?;
        self.figure((state.phase != Phase::Complete).then(|| words::reason(&state)));
        for (reason, text) in told {
            self.tell(&live, reason, &text);
        }
        let next = self.offer(table, wanted).await?;
        let again = stepped.again.filter(|_| state.is_under_way());
        Ok(again.into_iter().chain(later).fold(next, |next, wait| {
            // A fraction of a second more, since times are kept in whole ones.
            next.sooner(wait.min(LONGEST) + Duration::from_secs(1))
        }))
    }

    /// Takes in what has changed of clusters; all that there are, where none is known.
    async fn take_in(&self, table: &mut Option<Table>) {
        let changed = mem::take(&mut *self.changed.lock());
        let known = &self.context.known.clusters;
        if let Some(table) = table {
            for (at, key) in changed.iter().enumerate() {
                if at.is_multiple_of(BREATH) {
                    yield_now().await;
                }
                table.put(&key.name, known.get(key).and_then(|head| row(&head)));
            }
            return;
        }
        let mut whole = Table::default();
        for page in known.pages(None) {
            for (key, head) in page {
                whole.put(&key.name, row(&head));
            }
            yield_now().await;
        }
        *table = Some(whole);
    }

    /// Keeps a state, if there is another, with what people read. Answers after which time that is to be done, if not now.
    async fn write(
        &self,
        live: &Value,
        state: Option<&State>,
        (text, counts): (&str, &str),
        (shown, now): (&mut Option<Time>, Time),
    ) -> Result<Option<Duration>, Error> {
        if state.is_none() {
            let data = &live["data"];
            if data[request::STATUS].as_str() == Some(text) && data[request::COUNTS].as_str() == Some(counts)
            {
                return Ok(None);
            }
            let left =
                shown.map_or(Duration::ZERO, |at| SUMS.saturating_sub(at.elapsed(now.timestamp().into())));
            if !left.is_zero() {
                return Ok(Some(left));
            }
        }
        let mut object = live.clone();
        object["data"][request::STATUS] = text.into();
        object["data"][request::COUNTS] = counts.into();
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
        *shown = Some(now);
        Ok(None)
    }

    /// Tells people why nothing is offered.
    async fn refuse(&self, live: Value, reason: &'static str, why: &str) -> Result<(), Error> {
        self.figure(Some(STATE_UNREADABLE).filter(|known| *known == reason));
        let text = format!("{reason}: {why}");
        if live["data"][request::STATUS].as_str() != Some(&text) {
            let mut object = live;
            let data = object::ensure_map(&mut object, "data");
            data.insert(request::STATUS.into(), text.into());
            data.shift_remove(request::COUNTS);
            self.context.writer.objects.replace(&CONFIG_MAPS, &object).await?;
            self.tell(&object, event::ROLLOUT_STOPPED, &format!("Upgrade of agents: {why}."));
        }
        Ok(())
    }

    /// Nobody is offered anything: what was is taken back, and later what others write.
    async fn offer_nothing(&self, desk: &mut Desk) -> Result<(), Error> {
        let changed = mem::take(&mut *self.changed.lock());
        let (empty, refusal) = (desk.empty, desk.refusal);
        // When it is tried again the refusal has stood for as long.
        *desk = Desk { refusal, ..Desk::default() };
        match empty {
            true => self.take_away(changed).await?,
            false => self.clear().await?,
        }
        desk.empty = true;
        Ok(())
    }

    /// There is no request to go by: what is offered stays for some minutes, but for what somebody else has written meanwhile.
    async fn offer_no_more(&self, desk: &mut Desk) -> Result<Next, Error> {
        let left = desk.refusal.stands(self.context.env.now());
        if desk.empty || left.is_zero() {
            self.offer_nothing(desk).await?;
            return Ok(Next::Done);
        }
        // What is said of a request that is one again is written at once.
        desk.shown = None;
        let changed = self.changed.lock().clone();
        self.take_in(&mut desk.table).await;
        let table = desk.table.get_or_insert_default();
        let foreign = changed.into_iter().filter(|key| table.is_foreign(&key.name)).collect();
        self.take_away(foreign).await?;
        Ok(Next::After(left))
    }

    /// Takes all offers back.
    async fn clear(&self) -> Result<(), Error> {
        let mut offered = Vec::new();
        for page in self.context.known.clusters.pages(None) {
            let has = |(_, head): &(Arc<Key>, Arc<ClusterHead>)| {
                !head.deleting && head.annotation(extension::AGENT_OFFER).is_some()
            };
            offered.extend(page.into_iter().filter(has).map(|(key, _)| (key.name.clone(), None)));
            yield_now().await;
        }
        self.put_all(offered, |_, _, _| {}).await
    }

    /// Whether a Cluster has an offer.
    fn is_offered(&self, key: &Key) -> bool {
        let head = self.context.known.clusters.get(key);
        head.is_some_and(|head| !head.deleting && head.annotation(extension::AGENT_OFFER).is_some())
    }

    /// Takes offers away that the hub has not made.
    async fn take_away(&self, changed: BTreeSet<Key>) -> Result<(), Error> {
        let offered: BTreeSet<Key> = changed.into_iter().filter(|key| self.is_offered(key)).collect();
        let offers = offered.iter().map(|key| (key.name.clone(), None)).collect();
        let done = self
            .put_all(offers, |name, _, written| {
                if written {
                    self.tell_foreign(name);
                }
            })
            .await;
        if done.is_err() {
            // Nothing else names them when it is tried again.
            self.changed.lock().extend(offered);
        }
        done
    }

    /// Says that somebody else has offered an agent a version.
    fn tell_foreign(&self, cluster: &str) {
        let Some(head) = self.context.known.clusters.get(&Key::cluster_scoped(cluster)) else { return };
        let about = json!({
            "apiVersion": CLUSTERS.api_version(), "kind": "Cluster",
            "metadata": {"name": cluster, "uid": head.cluster.metadata.uid},
        });
        let text = format!(
            "The annotation {} offered the agent what the hub does not offer, and was put right: somebody else has written it. To \
             offer agents a version: karmada-hub upgrade agents --to VERSION.",
            extension::AGENT_OFFER
        );
        let writer = &self.context.writer;
        writer.warning(component::AGENT_UPGRADE, &about, event::AGENT_OFFER_REMOVED, text);
    }

    /// Brings the Clusters' offers in step with what they are to be.
    async fn offer(&self, table: &mut Table, wanted: Wanted<'_>) -> Result<Next, Error> {
        let due = table.due(wanted, WRITES);
        if due.is_empty() {
            return Ok(Next::Done);
        }
        self.put_all(due, |name, offer, written| {
            if written && table.is_foreign(name) {
                self.tell_foreign(name);
            }
            table.offered(name, offer);
        })
        .await?;
        // What was written may have the next wave begin, or more be due.
        Ok(Next::After(Duration::ZERO))
    }

    async fn put_all(
        &self,
        offers: Vec<(String, Option<Offer>)>,
        mut done: impl FnMut(&str, Option<Offer>, bool),
    ) -> Result<(), Error> {
        let (mut running, mut failed, mut offers) = (FuturesUnordered::new(), None, offers.into_iter());
        loop {
            while running.len() < AT_A_TIME {
                let Some((name, offer)) = offers.next() else { break };
                running.push(put(self.context.writer.objects.clone(), name, offer));
            }
            match running.next().await {
                // One that cannot be written holds up no others.
                Some(Err(error)) => {
                    failed.get_or_insert(error);
                }
                Some(Ok((name, offer, written))) => done(&name, offer, written),
                None => break,
            }
        }
        failed.map_or(Ok(()), Err)
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

/// Has a Cluster offer this, or nothing. Answers also whether it did not yet.
async fn put(
    objects: Objects,
    name: String,
    offer: Option<Offer>,
) -> Result<(String, Option<Offer>, bool), Error> {
    let (text, written) = (offer.as_ref().map(Offer::write), AtomicBool::new(false));
    let change = |live: &mut Value| {
        if object::annotation(live, extension::AGENT_OFFER) == text.as_deref() {
            return false;
        }
        written.store(true, Ordering::Relaxed);
        match &text {
            Some(text) => object::set_annotation(live, extension::AGENT_OFFER, text.as_str()),
            None => drop(object::remove_annotation(live, extension::AGENT_OFFER)),
        }
        true
    };
    let done = objects.modify(&CLUSTERS, &Key::cluster_scoped(name.as_str()), Part::Main, change).await;
    match done {
        Ok(_) => Ok((name, offer, written.into_inner())),
        Err(error) => {
            tracing::warn!(cluster = %name, %error, "the Cluster's offer of a version cannot be written");
            Err(error)
        }
    }
}

/// What is asked for, and how far it is; under which word, and why, nothing can be offered.
fn read(live: &Value) -> Result<(Request, Option<State>), (&'static str, String)> {
    let request = Request::read(|key| live["data"][key].as_str()).map_err(|why| (UNREADABLE, why))?;
    if let Ok(ours) = OURS.parse::<Version>()
        && let Some(why) = with_hub(&request.version, &ours)
    {
        return Err((REFUSED, why));
    }
    let state = State::read(live).map_err(|why| {
        let key = rollout::STATE;
        let why = format!(
            "the annotation {key} cannot be read, so no further agent is offered anything: {why}. Take it off to begin anew"
        );
        (STATE_UNREADABLE, why)
    })?;
    Ok((request, state))
}

/// Judges what has changed, and lets others have their turn.
async fn judge(table: &mut Table, wanted: Wanted<'_>) {
    while !table.judge(wanted, BREATH) {
        yield_now().await;
    }
}

/// A request is there that was not: the waves of those that it concerns.
fn begun(request: &Request, name: &str, seed: &str, table: &Table) -> State {
    let nobody = State { what: What::Agents, ..State::unknown(seed) };
    let reading = State { revision: name.to_owned(), phase: Phase::Running, ..nobody.clone() };
    let concerned = table.concerned(Wanted { request, state: &reading });
    begin(&nobody, name, &request.asked, seed, &concerned)
}
