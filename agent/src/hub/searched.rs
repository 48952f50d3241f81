//! What is searched on this member, for the hub's answers: from the member to the hub, all of it once and then what changes.
//!
//! ```text
//!   Cluster's annotation ─▶ a watch of each kind ─▶ Outgoing ─▶ reports, one at a time ─▶ hub
//! ```
//!
//! The tunnel's limits say which kinds and namespaces may be told of, and none is told of where the owner lets the hub's
//! administrators in by no tunnel: they alone see what is told. Secrets stay here. Whatever else there is to say goes first. Where
//! bytes are paid for these have a small part of an hour's, and a kind with an object that is larger than that is not told of at all.
//!
//! The hub takes nothing for current that it is not told is that, and for a limited time. So with each report, when the way to the
//! hub is back, and now and then it hears of each kind how far it was told and whether that is all there is ([`Telling`]).

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
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
        telling::Telling,
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

use super::{cluster::ClusterView, measured, outbox::Outbox, spending::Spending};

/// Bytes that are told at a time where they cost nothing: at first, and when the line has shown to carry them in about so long. The
/// hub has few turns, and whoever is slow gives way to others.
const BATCH: usize = 256 << 10;
const FIRST_BATCH: usize = 32 << 10;
const LEAST_BATCH: usize = 8 << 10;
const CARRIED: Duration = Duration::from_secs(10);
/// What may wait to be told, in bytes; beyond that the member's watches wait.
const WAITING: usize = 2 << 20;
/// What a request has beside what is told.
const HEAD: usize = 1 << 10;
/// What a word about one kind takes.
const WORD: usize = 512;
/// Changes come several at a time.
const TOGETHER: Duration = Duration::from_secs(1);
/// Kinds that are listed at a time, and how long others wait for one.
const LISTS: usize = 2;
const LISTED: Duration = Duration::from_secs(10);
/// How long it waits at most for what matters more.
const POLITE: Duration = Duration::from_secs(30);
/// The hub hears that something waits for longer.
const LATE: Duration = Duration::from_secs(60);
/// Between words about all kinds, and where bytes are paid for. What they say counts for twice as long.
const PERIOD: Duration = Duration::from_secs(300);
const PAID_PERIOD: Duration = Duration::from_secs(3600);
/// A word is said within so long.
const SPREAD: Duration = Duration::from_secs(10);
/// A course begins within so long: agents are asked all at once.
const BEGINS: Duration = Duration::from_secs(60);
/// Another hub, which knows nothing of all this, is told again after so long.
const UNKNOWN: Duration = Duration::from_secs(3600);
/// Before a kind that the hub has no room for is told of again. One that had room for so long begins anew with that.
const REST: Policy = Policy::new(Duration::from_secs(600), Duration::from_secs(86_400));
const ROOM: Duration = Duration::from_secs(86_400);
/// A course that was told for so long had no trouble.
const WELL: Duration = Duration::from_secs(600);
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

/// What is told, and who follows it.
struct State {
    telling: Telling,
    commands: BTreeMap<Followed, latest::Sender<Option<Command>>>,
}

/// The way to the hub.
struct Line {
    back: Listener,
    backoff: Backoff,
    /// The hub may have begun anew since it was told something.
    doubted: bool,
    /// When it hears again of all kinds.
    next: Instant,
    /// Bytes that are told at a time.
    batch: usize,
}

/// What is told at a time after so many bytes took so long, or were not taken.
fn batch(before: usize, bytes: usize, took: Duration, taken: bool) -> usize {
    let carries = bytes as f64 * CARRIED.as_secs_f64() / took.as_secs_f64().max(0.001);
    let next = match taken {
        // Of a line that has carried little nothing is known but that.
        true if carries >= before as f64 => {
            if bytes * 2 >= before {
                before * 2
            } else {
                before
            }
        }
        true => carries as usize,
        false => before / 2,
    };
    next.clamp(LEAST_BATCH, BATCH)
}

/// While no other agent speaks for the cluster.
struct Course {
    searched: Arc<Searched>,
    state: Mutex<State>,
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

    /// Between words about all kinds.
    fn period(&self) -> Duration {
        if self.hourly.is_some() { PAID_PERIOD } else { PERIOD }
    }

    /// Some time up to so much.
    fn within(&self, most: Duration) -> Duration {
        Duration::from_millis(self.env.below(u64::try_from(most.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl Course {
    async fn run(searched: Arc<Searched>) {
        // Above that of whoever told before, as far as clocks go on. Where they do not, the hub says so.
        let began = searched.env.wall().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let telling = Telling::new(u64::try_from(began).unwrap_or_default());
        let course = Arc::new(Self {
            searched,
            state: Mutex::new(State { telling, commands: BTreeMap::new() }),
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
            let wanted = Searched::wanted(known.as_deref().map(|cluster| &**cluster));
            tasks.retain(|what, _| {
                let is_wanted = wanted.contains(what);
                if !is_wanted {
                    tracing::info!(?what, "the hub is told of a kind for searches no more: it asks no more");
                }
                is_wanted
            });
            {
                let mut state = self.state.lock();
                state.telling.asked(&wanted);
                state.commands.retain(|what, _| wanted.contains(what));
            }
            self.news.notify_one();
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
        let (mut backoff, mut rests) = (Backoff::new(ANEW), Backoff::new(REST));
        loop {
            let resource = self.find(what).await;
            let namespace = Some(what.namespace.as_str()).filter(|namespace| !namespace.is_empty());
            if let Some(why) = self.searched.refuses(&resource, namespace) {
                tracing::info!(
                    ?what,
                    why,
                    "the hub asks what is searched here, and is told nothing of this kind"
                );
                self.withdraw(what);
                return std::future::pending().await;
            }
            sleep(self.searched.within(BEGINS)).await;
            tracing::info!(?what, "the hub is told of a kind for searches, from the start");
            let begun = Instant::now();
            let command = self.follow_one(what, &resource, namespace).await;
            self.drained.send_replace(());
            match command {
                Command::Again => {
                    if begun.elapsed() > WELL {
                        backoff.reset();
                    }
                    sleep(backoff.next(&self.searched.env)).await;
                }
                Command::Rest => {
                    if begun.elapsed() > ROOM {
                        rests.reset();
                    }
                    let rest = rests.next(&self.searched.env);
                    tracing::info!(
                        ?what,
                        seconds = rest.as_secs(),
                        "the hub is told of a kind for searches no more, for a while"
                    );
                    sleep(rest).await;
                }
            }
        }
    }

    /// Nothing is told of a kind, and the hub is to keep nothing of it.
    fn withdraw(&self, what: &Followed) {
        self.state.lock().telling.withdraw(what);
        self.news.notify_one();
    }

    /// One course of a kind, until it is told anew or rests.
    async fn follow_one(&self, what: &Followed, resource: &Resource, namespace: Option<&str>) -> Command {
        let searched = &self.searched;
        let command = latest::Sender::new(None);
        let mut commands = command.subscribe();
        let mut turn = self.lists.acquire().await.ok();
        let total = measured::at_least(&searched.member, what, &resource.collection(namespace), LISTED).await;
        let outgoing = Outgoing::new(what.clone(), &resource.plural, searched.env.uuid()).of_bytes(total);
        {
            let mut state = self.state.lock();
            state.telling.begin(outgoing, searched.env.now());
            state.commands.insert(what.clone(), command);
        }
        let config = WatchConfig::new(resource.collection(namespace)).wake(&searched.member_back);
        let read = {
            let what = what.clone();
            move |text: &str| told::essence(text, &what)
        };
        let mut watch = Watcher::over(searched.member.clone(), config, searched.env.clone(), read);
        let mut health = watch.health();
        let mut paused = false;
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
                event = self.next(&mut watch, what, &mut paused) => event,
                _ = health.changed() => None,
            };
            let mut state = self.state.lock();
            let Some(kind) = state.telling.kind(what) else { continue };
            match event {
                None => {}
                Some(Event::Init) => kind.outgoing.begins(),
                Some(Event::Upsert((named, text))) if text.len() > LARGEST.min(searched.batch()) => {
                    tracing::info!(
                        ?what,
                        name = named.name,
                        bytes = text.len(),
                        "an object is too large to be told of, and so nothing is of its kind"
                    );
                    drop(state);
                    self.withdraw(what);
                    return Command::Rest;
                }
                Some(Event::Upsert((named, text))) => kind.outgoing.heard(named, text),
                Some(Event::Delete((named, _))) => kind.outgoing.gone(&named),
                Some(Event::Synced) => {
                    kind.outgoing.ends();
                    turn = None;
                }
            }
            if let Some(revision) = watch.revision() {
                revision.clone_into(&mut kind.revision);
            }
            kind.hears(health.borrow_and_update().live && !paused, searched.env.now());
            // Of what has changed, and of what is heard again or not.
            self.news.notify_one();
        }
    }

    /// The next that the member tells, once there is room for it; none where it tells nothing more of what came while there was none.
    async fn next<T: 'static>(
        &self,
        watch: &mut Watcher<T>,
        what: &Followed,
        paused: &mut bool,
    ) -> Option<Event<T>> {
        let mut drained = self.drained.subscribe();
        while self.waiting() >= WAITING {
            *paused = true;
            if let Some(kind) = self.state.lock().telling.kind(what) {
                kind.hears(false, self.searched.env.now());
            }
            // The sender is here, too.
            let _ = drained.changed().await;
        }
        if *paused {
            let next = timeout(TOGETHER, watch.next()).await;
            *paused = next.is_ok();
            return next.ok();
        }
        Some(watch.next().await)
    }

    /// Bytes that wait to be told.
    fn waiting(&self) -> usize {
        self.state.lock().telling.waiting()
    }

    fn has_news(&self) -> bool {
        self.state.lock().telling.has_news()
    }

    /// By which name the member has a kind; waits until it has it.
    async fn find(&self, what: &Followed) -> Resource {
        let mut backoff = Backoff::new(ABSENT);
        let Some((group, version)) = what.group_version() else { return std::future::pending().await };
        loop {
            match self.searched.half.discovery().resource(group, version, &what.kind).await {
                Ok(Some(found)) if what.is(&found.group, &found.version, &found.plural) => return found,
                Ok(Some(found)) => {
                    tracing::debug!(?what, resource = found.plural, "a kind of this name is not told of")
                }
                Ok(None) => {}
                Err(error) => tracing::debug!(?what, %error, "the member does not tell what kinds it has"),
            }
            sleep(backoff.next(&self.searched.env)).await;
        }
    }

    /// Tells whatever there is.
    async fn tell(&self) {
        let searched = &self.searched;
        let back = searched.hub_back.listen();
        let next = Instant::now() + searched.env.jitter(searched.period(), 0.5);
        let mut line = Line { back, backoff: Backoff::new(RETRY), doubted: false, next, batch: FIRST_BATCH };
        // Since when something waits.
        let mut since: Option<Instant> = None;
        loop {
            line.doubted |= line.back.woken().now_or_never().is_some() || line.next <= Instant::now();
            let due = self.due();
            if line.doubted || due.is_some_and(|due| due.is_zero()) {
                // Not all agents of a hub at once.
                sleep(searched.within(SPREAD)).await;
                self.say(&mut line).await;
                continue;
            }
            if !self.has_news() {
                since = None;
                tokio::select! {
                    () = self.news.notified() => {}
                    () = sleep_until(line.next) => {}
                    () = sleep(due.unwrap_or_default()), if due.is_some() => {}
                    () = line.back.woken() => line.doubted = true,
                }
                continue;
            }
            let begun = *since.get_or_insert_with(Instant::now);
            sleep(TOGETHER.max(searched.gather)).await;
            let polite = async {
                while !searched.outbox.queue().is_empty() {
                    sleep(TOGETHER).await;
                }
            };
            let _ = timeout(POLITE, polite).await;
            let parts = self.state.lock().telling.parts(searched.batch().min(line.batch));
            self.drained.send_replace(());
            let bytes = parts.iter().map(Part::bytes).sum();
            self.afford(bytes, begun, &mut line).await;
            let sent = Instant::now();
            let taken = self.report(parts, &mut line).await;
            line.batch = batch(line.batch, bytes, sent.elapsed(), taken);
            if taken {
                since = self.has_news().then_some(begun);
            }
        }
    }

    /// In how long the hub is to hear something beside parts.
    fn due(&self) -> Option<Duration> {
        let now = self.searched.env.now();
        Some(self.state.lock().telling.due(now)?.saturating_sub(now))
    }

    /// Tells the hub how far it was told of each kind, and what is current; waits until there are bytes for that.
    async fn say(&self, line: &mut Line) {
        line.doubted = false;
        line.next = Instant::now() + self.searched.env.jitter(self.searched.period(), 0.5);
        if !self.state.lock().telling.is_asked() {
            return;
        }
        while let Err(wait) = self.searched.spending.take(HEAD + self.words(), Matter::Status) {
            sleep(wait).await;
        }
        line.doubted |= !self.report(Vec::new(), line).await;
    }

    /// Bytes that words about all kinds take.
    fn words(&self) -> usize {
        self.state.lock().telling.words() * WORD
    }

    /// Waits until there are bytes for these of parts, and for the words beside them. Where that takes long the hub hears that it
    /// was not told all.
    async fn afford(&self, bytes: usize, begun: Instant, line: &mut Line) {
        while let Err(wait) = self.searched.spending.take(bytes + HEAD, Matter::Copy) {
            let is_late = begun.elapsed() >= LATE;
            if line.next <= Instant::now() || (is_late && self.state.lock().telling.overstates()) {
                self.say(line).await;
            }
            let soon = line.next.saturating_duration_since(Instant::now()).max(TOGETHER);
            sleep(wait.min(if is_late { soon } else { LATE })).await;
        }
        while let Err(wait) = self.searched.spending.take(self.words(), Matter::Status) {
            sleep(wait).await;
        }
    }

    /// Tells the hub, and does what it answers. Whether it has heard; waits after a failure.
    async fn report(&self, parts: Vec<Part>, line: &mut Line) -> bool {
        let searched = &self.searched;
        searched.rights.reporting().await;
        let report = self.state.lock().telling.report(parts, 2 * searched.period());
        match searched.hub.post(extension::SEARCHED_PATH, &report).await {
            Ok(answer) => {
                line.backoff.reset();
                line.next = Instant::now() + searched.env.jitter(searched.period(), 0.5);
                match serde_json::from_value::<Answer>(answer) {
                    Ok(answer) => self.answered(&report, &answer),
                    Err(error) => {
                        tracing::warn!(%error, "the hub's answer to what is searched here cannot be read");
                        self.rest(&report);
                    }
                }
                true
            }
            // Another hub, which knows nothing of it.
            Err(error) if matches!(error.code(), Some(403..=405)) => {
                tracing::debug!(%error, "the hub does not take what is searched here");
                line.doubted |= timeout(UNKNOWN, line.back.woken()).await.is_ok();
                false
            }
            Err(error) if matches!(error.code(), Some(400 | 413 | 415 | 422)) && !report.parts.is_empty() => {
                tracing::warn!(%error, "the hub refuses what is searched here");
                self.rest(&report);
                true
            }
            Err(error) => {
                tracing::debug!(%error, "the hub was not told what is searched here");
                let pause = line.backoff.next(&searched.env);
                let pause = pause.max(error.retry_after().unwrap_or_default());
                line.doubted |= timeout(pause, line.back.woken()).await.is_ok();
                false
            }
        }
    }

    fn answered(&self, report: &Report, answer: &Answer) {
        let mut state = self.state.lock();
        state.telling.answered(report, answer);
        for (all, command) in [(&answer.again, Command::Again), (&answer.unwanted, Command::Rest)] {
            for what in all {
                if let Some(sender) = state.commands.remove(what) {
                    sender.send_replace(Some(command));
                }
            }
        }
    }

    /// The hub can make nothing of it: nothing is told of these kinds for a while, and it is to keep nothing of them.
    fn rest(&self, report: &Report) {
        let mut state = self.state.lock();
        for part in &report.parts {
            state.telling.withdraw(&part.what);
            if let Some(sender) = state.commands.remove(&part.what) {
                sender.send_replace(Some(Command::Rest));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_line_carries_little_at_a_time() {
        const KIB: usize = 1 << 10;
        // What was told at a time, how much of it in how many seconds, whether it was taken, and what comes of it.
        for (before, bytes, seconds, taken, want) in [
            (FIRST_BATCH, FIRST_BATCH, 0, true, 2 * FIRST_BATCH),
            (128 * KIB, 128 * KIB, 1, true, BATCH),
            (BATCH, BATCH, 1, true, BATCH),
            (FIRST_BATCH, KIB, 0, true, FIRST_BATCH),
            // 4 KiB a second, and one of half of them.
            (FIRST_BATCH, FIRST_BATCH, 8, true, 2 * FIRST_BATCH),
            (2 * FIRST_BATCH, 2 * FIRST_BATCH, 16, true, 40 * KIB),
            (40 * KIB, 40 * KIB, 20, true, 20 * KIB),
            // An object that is larger than all others.
            (FIRST_BATCH, 400 * KIB, 400, true, 10 * KIB),
            (BATCH, BATCH, 40, false, BATCH / 2),
            (LEAST_BATCH, LEAST_BATCH, 60, false, LEAST_BATCH),
            (LEAST_BATCH, KIB, 60, true, LEAST_BATCH),
        ] {
            let got = batch(before, bytes, Duration::from_secs(seconds), taken);
            assert_eq!(got, want, "{before} {bytes} {seconds} {taken}");
        }
    }
}
