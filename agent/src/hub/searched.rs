//! What is searched on this member, for the hub's answers: from the member to the hub, all of it once and then what changes.
//!
//! ```text
//!   Cluster's annotation ─▶ a watch of each kind ─▶ Outgoing ─▶ reports, one at a time ─▶ hub
//! ```
//!
//! The tunnel's limits say which kinds and namespaces may be told of, and none is told of where the owner lets the hub's
//! administrators in by no tunnel: they alone see what is told. Secrets stay here. Whatever else there is to say goes first. Where
//! bytes are paid for these have a small part of an hour's, and a kind with an object that is larger than that is not told of at all;
//! where the rest has to wait the hub hears for how long.
//!
//! The hub keeps it in memory. So it is asked whether it still has it when the way to it is back, and now and then.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

use futures::FutureExt as _;
use karmada_api::consts::extension;
use karmada_client::{
    Backoff, Event, Policy, Resource, Rest, Wake, WatchConfig, Watcher, latest, wake::Listener,
};
use karmada_core::{
    links::{Budget, Matter},
    search::{
        Followed,
        told::{self, Answer, LARGEST, Outgoing, Part, Report},
    },
};
use karmada_env::Env;
use karmada_member::{
    Member,
    rights::Rights,
    tunnel::{Asked, Limits, Mode},
};
use karmada_meta::object;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{
    sync::{Notify, Semaphore},
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use super::{cluster::ClusterView, outbox::Outbox, spending::Spending};

/// Bytes that are told at a time where they cost nothing.
const BATCH: usize = 256 << 10;
/// What may wait to be told, in bytes; beyond that the member's watches wait.
const WAITING: usize = 2 << 20;
/// What a request has beside what is told.
const HEAD: usize = 1 << 10;
/// What a question about one kind takes.
const CHECKED: usize = 512;
/// Changes come several at a time.
const TOGETHER: Duration = Duration::from_secs(1);
/// Kinds that are listed at a time, and how long others wait for one.
const LISTS: usize = 2;
const LISTED: Duration = Duration::from_secs(10);
/// How long it waits at most for what matters more.
const POLITE: Duration = Duration::from_secs(30);
/// The hub hears that something waits for longer.
const LATE: Duration = Duration::from_secs(60);
/// Between questions whether the hub has what it was told.
const CHECK: Duration = Duration::from_secs(3600);
/// The first of these after a lost connection is asked within so long.
const SPREAD: Duration = Duration::from_secs(10);
/// Before a kind that the hub has no room for is told of again.
const REST: Duration = Duration::from_secs(600);
/// Between attempts to find a kind on the member.
const ABSENT: Policy = Policy::new(Duration::from_secs(2), Duration::from_secs(300));
/// Between courses of a kind.
const ANEW: Policy = Policy::new(Duration::from_millis(250), Duration::from_secs(300));
/// Between attempts to tell.
const RETRY: Policy = Policy::full(Duration::from_secs(1), Duration::from_secs(120));

/// See the module.
pub(crate) struct Searched {
    pub(crate) hub: Rest,
    pub(crate) member: Rest,
    pub(crate) half: Arc<Member>,
    pub(crate) view: Arc<ClusterView>,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) rights: Rights,
    pub(crate) env: Env,
    /// What the member's owner lets be told.
    pub(crate) limits: Limits,
    pub(crate) spending: Spending,
    /// Bytes of reports in an hour, where there is a bound.
    pub(crate) hourly: Option<u64>,
    pub(crate) gather: Duration,
    pub(crate) hub_back: Wake,
    pub(crate) member_back: Wake,
}

/// What is to become of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    /// All of it is told anew.
    Again,
    /// Nothing of it for a while.
    Rest,
}

/// A kind that is told of.
struct Kind {
    outgoing: Outgoing,
    /// The member's resourceVersion.
    revision: String,
    command: latest::Sender<Option<Command>>,
}

/// The way to the hub.
struct Line {
    back: Listener,
    backoff: Backoff,
    /// The hub may have begun anew since it was told something.
    doubted: bool,
}

/// While no other agent speaks for the cluster.
struct Course {
    searched: Arc<Searched>,
    kinds: Mutex<BTreeMap<Followed, Kind>>,
    news: Notify,
    drained: latest::Sender<()>,
    lists: Semaphore,
}

impl Searched {
    /// Tells while no other agent speaks for the cluster. A hub that is away for a while is not told all of it anew.
    pub(crate) async fn run(self) {
        let searched = Arc::new(self);
        loop {
            searched.rights.reporting().await;
            tokio::select! {
                biased;
                () = searched.rights.when(|standing| standing.stands_aside() || standing.is_withdrawn()) => {}
                () = Course::run(searched.clone()) => {}
            }
        }
    }

    /// What the Cluster asks for, and its users do not forbid.
    fn wanted(cluster: Option<&Value>) -> BTreeSet<Followed> {
        let Some(cluster) = cluster else { return BTreeSet::new() };
        let Some(text) = object::annotation(cluster, extension::SEARCHED) else { return BTreeSet::new() };
        let mode = object::annotation(cluster, extension::TUNNEL_WANTED).map(str::parse::<Mode>);
        if !mode.is_none_or(|mode| mode.is_ok_and(|mode| mode != Mode::Off)) {
            return BTreeSet::new();
        }
        told::asked(text).unwrap_or_else(|why| {
            tracing::warn!(
                why,
                "the hub's question what is searched here cannot be read: {}",
                extension::SEARCHED
            );
            BTreeSet::new()
        })
    }

    /// Why a kind is not told of, if it is not.
    fn refuses(&self, resource: &Resource, namespace: Option<&str>) -> Option<String> {
        let asked = Asked::of("GET", &resource.collection(namespace), Some("watch=true"), false);
        asked.and_then(|asked| self.limits.judge(&asked)).err().map(|refusal| refusal.message().to_owned())
    }

    /// Bytes that are told at a time.
    fn batch(&self) -> usize {
        let paid = self.hourly.map(|hourly| Budget::largest(hourly, Matter::Copy));
        let paid = paid.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX).saturating_sub(HEAD));
        paid.unwrap_or(BATCH).min(BATCH)
    }
}

impl Course {
    async fn run(searched: Arc<Searched>) {
        let course = Arc::new(Self {
            searched,
            kinds: Mutex::default(),
            news: Notify::new(),
            drained: latest::Sender::new(()),
            lists: Semaphore::new(LISTS),
        });
        tokio::select! {
            () = course.follow() => {}
            () = course.tell() => {}
        }
    }

    /// Has a task for each kind that is asked for.
    async fn follow(self: &Arc<Self>) {
        let mut cluster = self.searched.view.subscribe();
        let mut tasks: BTreeMap<Followed, AbortOnDropHandle<()>> = BTreeMap::new();
        loop {
            let known = cluster.borrow_and_update().clone();
            let wanted = Searched::wanted(known.as_deref());
            tasks.retain(|what, _| wanted.contains(what));
            self.kinds.lock().retain(|what, _| wanted.contains(what));
            self.drained.send_replace(());
            for what in wanted {
                let (course, kind) = (self.clone(), what.clone());
                if let Entry::Vacant(place) = tasks.entry(what) {
                    let task = tokio::spawn(async move { course.keep(&kind).await });
                    place.insert(AbortOnDropHandle::new(task));
                }
            }
            if cluster.changed().await.is_err() {
                return;
            }
        }
    }

    /// Follows a kind.
    async fn keep(&self, what: &Followed) {
        let mut backoff = Backoff::new(ANEW);
        loop {
            let resource = self.find(what).await;
            let namespace = Some(what.namespace.as_str()).filter(|namespace| !namespace.is_empty());
            if let Some(why) = self.searched.refuses(&resource, namespace) {
                tracing::info!(
                    ?what,
                    why,
                    "the hub asks what is searched here, and is told nothing of this kind"
                );
                self.withdraw(what, &resource);
                return std::future::pending().await;
            }
            let begun = Instant::now();
            let command = self.follow_one(what, &resource, namespace).await;
            self.drained.send_replace(());
            if begun.elapsed() > REST {
                backoff.reset();
            }
            match command {
                Command::Again => sleep(backoff.next(&self.searched.env)).await,
                Command::Rest => {
                    sleep(self.searched.env.jitter(REST, 0.5)).await;
                    self.kinds.lock().remove(what);
                }
            }
        }
    }

    /// What may be told no longer may have been before.
    fn withdraw(&self, what: &Followed, resource: &Resource) {
        let mut outgoing = Outgoing::new(what.clone(), &resource.plural, self.searched.env.uuid());
        outgoing.withdraw();
        let kind = Kind { outgoing, revision: String::new(), command: latest::Sender::new(None) };
        self.kinds.lock().insert(what.clone(), kind);
        self.news.notify_one();
    }

    /// One course of a kind, until it is told anew or rests.
    async fn follow_one(&self, what: &Followed, resource: &Resource, namespace: Option<&str>) -> Command {
        let searched = &self.searched;
        let command = latest::Sender::new(None);
        let mut commands = command.subscribe();
        let outgoing = Outgoing::new(what.clone(), &resource.plural, searched.env.uuid());
        let kind = Kind { outgoing, revision: String::new(), command };
        self.kinds.lock().insert(what.clone(), kind);
        let config = WatchConfig::new(resource.collection(namespace)).wake(&searched.member_back);
        let read = {
            let what = what.clone();
            move |text: &str| told::essence(text, &what)
        };
        let mut watch = Watcher::over(searched.member.clone(), config, searched.env.clone(), read);
        let mut turn = self.lists.acquire().await.ok();
        let until = Instant::now() + LISTED;
        loop {
            let event = tokio::select! {
                biased;
                command = commands.wait_for(Option::is_some) => {
                    return command.ok().and_then(|command| *command).unwrap_or(Command::Again);
                }
                // One that is slow holds nobody up.
                () = sleep_until(until), if turn.is_some() => {
                    turn = None;
                    continue;
                }
                event = self.next(&mut watch) => event,
            };
            let mut kinds = self.kinds.lock();
            let Some(kind) = kinds.get_mut(what) else { continue };
            match event {
                Event::Init => kind.outgoing.begins(),
                Event::Upsert((named, text)) if text.len() > LARGEST.min(searched.batch()) => {
                    tracing::info!(
                        ?what,
                        name = named.name,
                        bytes = text.len(),
                        "an object is too large to be told of, and so nothing is of its kind"
                    );
                    kind.outgoing.withdraw();
                    self.news.notify_one();
                    return Command::Rest;
                }
                Event::Upsert((named, text)) => kind.outgoing.heard(named, text),
                Event::Delete((named, _)) => kind.outgoing.gone(&named),
                Event::Synced => {
                    kind.outgoing.ends();
                    turn = None;
                }
            }
            if let Some(revision) = watch.revision() {
                revision.clone_into(&mut kind.revision);
            }
            if kind.outgoing.has_news() {
                self.news.notify_one();
            }
        }
    }

    /// The next that the member tells, once there is room for it.
    async fn next<T: 'static>(&self, watch: &mut Watcher<T>) -> Event<T> {
        let mut drained = self.drained.subscribe();
        while self.waiting() >= WAITING {
            // The sender is here, too.
            let _ = drained.changed().await;
        }
        watch.next().await
    }

    /// Bytes that wait to be told.
    fn waiting(&self) -> usize {
        self.kinds.lock().values().map(|kind| kind.outgoing.bytes()).sum()
    }

    fn has_news(&self) -> bool {
        self.kinds.lock().values().any(|kind| kind.outgoing.has_news())
    }

    /// By which name the member has a kind; waits until it has it.
    async fn find(&self, what: &Followed) -> Resource {
        let mut backoff = Backoff::new(ABSENT);
        let (group, version) = what.api_version.split_once('/').unwrap_or(("", what.api_version.as_str()));
        loop {
            match self.searched.half.discovery().resource(group, version, &what.kind).await {
                Ok(Some(resource)) => return resource,
                Ok(None) => {}
                Err(error) => tracing::debug!(?what, %error, "the member does not tell what kinds it has"),
            }
            sleep(backoff.next(&self.searched.env)).await;
        }
    }

    /// Tells whatever there is.
    async fn tell(&self) {
        let env = &self.searched.env;
        let back = self.searched.hub_back.listen();
        let mut line = Line { back, backoff: Backoff::new(RETRY), doubted: false };
        let mut check = Instant::now() + env.jitter(CHECK, 0.5);
        // Since when something waits.
        let mut since: Option<Instant> = None;
        loop {
            line.doubted |= line.back.woken().now_or_never().is_some();
            if line.doubted {
                line.doubted = false;
                check = Instant::now() + env.jitter(CHECK, 0.5);
                // Not all agents of a hub at once.
                let millis = u64::try_from(SPREAD.as_millis()).unwrap_or(u64::MAX);
                sleep(Duration::from_millis(env.below(millis))).await;
                let waits = since.map_or(0, |since| since.elapsed().as_secs().max(1));
                line.doubted = !self.check(waits, &mut line).await;
                continue;
            }
            if !self.has_news() {
                since = None;
                tokio::select! {
                    () = self.news.notified() => {}
                    () = sleep_until(check) => line.doubted = true,
                    () = line.back.woken() => line.doubted = true,
                }
                continue;
            }
            let begun = *since.get_or_insert_with(Instant::now);
            sleep(TOGETHER.max(self.searched.gather)).await;
            let polite = async {
                while !self.searched.outbox.queue().is_empty() {
                    sleep(TOGETHER).await;
                }
            };
            let _ = timeout(POLITE, polite).await;
            self.afford(begun, &mut line).await;
            let report = self.next_report(begun);
            if report.parts.is_empty() || self.report(&report, &mut line).await {
                since = self.has_news().then_some(begun);
            }
        }
    }

    /// Asks whether the hub has what it was told; waits until there are bytes for that. Whether it has heard.
    async fn check(&self, waits: u64, line: &mut Line) -> bool {
        let parts: Vec<Part> = self.kinds.lock().values().filter_map(|kind| kind.outgoing.check()).collect();
        if parts.is_empty() {
            return true;
        }
        while let Err(wait) = self.searched.spending.take(HEAD + parts.len() * CHECKED, Matter::Status) {
            sleep(wait).await;
        }
        self.report(&Report { waits, parts }, line).await
    }

    /// Waits until there are bytes for the next report. Where that takes long the hub hears of it.
    async fn afford(&self, begun: Instant, line: &mut Line) {
        let mut said = false;
        loop {
            let bytes: usize = self.kinds.lock().values().map(|kind| kind.outgoing.to_tell()).sum();
            let bytes = bytes.min(self.searched.batch());
            let Err(wait) = self.searched.spending.take(bytes + HEAD, Matter::Copy) else { return };
            let late = begun.elapsed();
            if late >= LATE && !said && self.searched.spending.take(HEAD, Matter::Status).is_ok() {
                said = true;
                self.report(&Report { waits: late.as_secs(), parts: Vec::new() }, line).await;
            }
            sleep(if said { wait } else { wait.min(LATE) }).await;
        }
    }

    /// What is told next.
    fn next_report(&self, begun: Instant) -> Report {
        let (mut parts, mut left) = (Vec::new(), self.searched.batch());
        let mut kinds = self.kinds.lock();
        for kind in kinds.values_mut() {
            let Some(part) = kind.outgoing.next(left, &kind.revision) else { continue };
            parts.push(part.clone());
            left = left.saturating_sub(part.bytes());
            // What is paid for is counted by the part.
            if left == 0 || self.searched.hourly.is_some() {
                break;
            }
        }
        let waits = kinds.values().any(|kind| kind.outgoing.waits());
        drop(kinds);
        self.drained.send_replace(());
        Report { waits: if waits { begun.elapsed().as_secs().max(1) } else { 0 }, parts }
    }

    /// Tells the hub, and does what it answers. Whether it has heard; waits after a failure.
    async fn report(&self, report: &Report, line: &mut Line) -> bool {
        self.searched.rights.reporting().await;
        match self.searched.hub.post(extension::SEARCHED_PATH, report).await {
            Ok(answer) => {
                line.backoff.reset();
                match serde_json::from_value::<Answer>(answer) {
                    Ok(answer) => self.answered(report, &answer),
                    Err(error) => {
                        tracing::warn!(%error, "the hub's answer to what is searched here cannot be read");
                        self.rest(report);
                    }
                }
                true
            }
            // Another hub, which knows nothing of it.
            Err(error) if matches!(error.code(), Some(403..=405)) => {
                tracing::debug!(%error, "the hub does not take what is searched here");
                line.doubted |= timeout(CHECK, line.back.woken()).await.is_ok();
                false
            }
            Err(error) if matches!(error.code(), Some(400 | 413 | 415 | 422)) => {
                tracing::warn!(%error, "the hub refuses what is searched here");
                self.rest(report);
                true
            }
            Err(error) => {
                tracing::debug!(%error, "the hub was not told what is searched here");
                let pause = line.backoff.next(&self.searched.env);
                let pause = pause.max(error.retry_after().unwrap_or_default());
                line.doubted |= timeout(pause, line.back.woken()).await.is_ok();
                false
            }
        }
    }

    fn answered(&self, report: &Report, answer: &Answer) {
        let mut kinds = self.kinds.lock();
        for part in report.parts.iter().filter(|part| !part.check) {
            if let Some(kind) = kinds.get_mut(&part.what) {
                kind.outgoing.taken(part);
            }
        }
        for (all, command) in [(&answer.again, Command::Again), (&answer.unwanted, Command::Rest)] {
            for what in all {
                if let Some(kind) = kinds.remove(what) {
                    kind.command.send_replace(Some(command));
                }
            }
        }
    }

    /// The hub can make nothing of it: nothing is told of these kinds for a while.
    fn rest(&self, report: &Report) {
        let unwanted = report.parts.iter().map(|part| part.what.clone()).collect();
        self.answered(report, &Answer { again: Vec::new(), unwanted });
    }
}
