//! This cluster's Works, from the hub's watch to what the member half knows to be wanted.
//!
//! ```text
//!   watch ── a list, or another connection ─▶ is this the hub that it was? ─┬─ yes ─▶ Member::take_in
//!                                                                          └─ it knows less ─▶ Listing: held against what is known
//!   it lists the same, is the one that it was after all, or somebody says that it counts ─▶ listed anew, and taken in
//! ```
//!
//! A list is mostly what is known already ([`known`]), and a watch does not tell what this agent has reported ([`heard`]).
//!
//! The question is asked when there is something to be taken in, after it was told: so whoever told it was no older hub than
//! the one that answers. What is held against the answer was known before the question: an answer to a report may overtake it.

use std::{sync::Arc, time::Duration};

use futures::FutureExt;
use karmada_client::{Backoff, Event, Policy, Rest, WatchConfig, watch::share::Part};
use karmada_env::Env;
use karmada_member::{
    DesiredWork, Member,
    rights::{Rights, Standing},
};
use tokio::time::sleep;

use super::{
    cluster::ClusterView,
    heard::{Heard, Unread},
    known,
    listing::Listing,
    origin::{Answer, Before, Familiar, Keep, Origin, Trust},
    outbox::works,
    slices::OTHERS,
    watch::HubWatch,
};
use crate::config::AgentConfig;

/// Changes that come at once are kept and acted on together, so many at most.
const TOGETHER: usize = 512;

/// And so many bytes of manifests, if that is more than one Work.
const BYTES: usize = 4 << 20;

/// How often what an older hub lists is held against what is known: it may change much.
const LOOK: Duration = Duration::from_secs(1);

/// A watch that goes on for long is no reason to ask nothing: what is noted of the hub would get old.
const ASK_AGAIN: Duration = Duration::from_secs(3600);

/// A failure that does not pass is taken for an answer after so many.
const FAILURES: u32 = 5;

/// While the hub does not answer.
const RETRY: Policy = Policy::full(Duration::from_millis(500), Duration::from_secs(5));

/// The name of the note that tells which hub it was.
const NOTE: &str = "hub";

/// Whether an event tells of a list as a whole.
fn is_mark(event: &Event<DesiredWork>) -> bool {
    matches!(event, Event::Init | Event::Synced)
}

fn size(event: &Event<DesiredWork>) -> usize {
    match event {
        Event::Upsert(work) | Event::Delete(work) => work.size(),
        Event::Init | Event::Synced => 0,
    }
}

/// Who watches this cluster's Works.
pub(super) struct Puller {
    pub(super) hub: Rest,
    pub(super) config: Arc<AgentConfig>,
    pub(super) env: Env,
    pub(super) rights: Rights,
    pub(super) view: Arc<ClusterView>,
    pub(super) member: Arc<Member>,
    pub(super) trust: Arc<Trust>,
    /// The hub's life before anything of it was heard.
    pub(super) life: u64,
}

/// What a puller knows of the hub.
#[derive(Debug, Default)]
struct Known {
    origin: Origin,
    /// What it answered last to what is asked of a hub of ours, where that is odd.
    odd: Option<String>,
    /// The life of the hub that is believed.
    life: u64,
    /// What was wanted before the start is what this hub's history says.
    recalled: bool,
    /// What it lists, while it is not believed.
    listing: Option<Listing>,
}

/// One watch, and what came of it and was not taken in yet.
struct Watching {
    watch: HubWatch<Heard>,
    /// Works of which somebody else may have written the status.
    unread: Unread,
    /// [`Env::now`] when the hub was asked, since there was a reason to.
    asked: Option<Duration>,
    init: Option<(Event<DesiredWork>, u64)>,
    next: Option<(Event<DesiredWork>, u64)>,
}

impl Watching {
    /// Whether there is a reason to ask the hub which one it is.
    fn is_unsure(&self, now: Duration) -> bool {
        self.asked.is_none_or(|asked| now.saturating_sub(asked) >= ASK_AGAIN)
    }

    /// The next that the hub tells, with its life in which that is. Cancel-safe.
    async fn told(&mut self) -> (Event<DesiredWork>, u64) {
        loop {
            let event = tokio::select! {
                biased;
                read = self.unread.read() => match read {
                    (work, life) if life == self.watch.life() => return (Event::Upsert(work), life),
                    _ => continue,
                },
                event = self.watch.next() => event,
            };
            let event = match event {
                Event::Upsert(Heard::Reported(reported)) => {
                    self.unread.note(reported, self.watch.life());
                    continue;
                }
                Event::Upsert(Heard::Work(work)) => {
                    self.unread.told(&work.name, Some(&work.uid));
                    Event::Upsert(work)
                }
                // A Work that is gone is told as it was; what else there is names nothing that is known.
                Event::Delete(Heard::Work(work)) => {
                    self.unread.told(&work.name, None);
                    Event::Delete(work)
                }
                Event::Delete(Heard::Reported(_)) => continue,
                Event::Init => {
                    self.unread.begin_anew();
                    Event::Init
                }
                Event::Synced => Event::Synced,
            };
            return (event, self.watch.life());
        }
    }

    /// What has come by now, with what came first.
    fn together(&mut self, first: (Event<DesiredWork>, u64)) -> Vec<(Event<DesiredWork>, u64)> {
        let mut bytes = size(&first.0);
        let mut events = vec![first];
        while events.len() < TOGETHER && bytes < BYTES && !is_mark(&events[0].0) {
            let Some(event) = self.told().now_or_never() else { break };
            if is_mark(&event.0) {
                self.next = Some(event);
                break;
            }
            bytes += size(&event.0);
            events.push(event);
        }
        events
    }
}

impl Puller {
    /// Watches for ever. When this agent speaks for the cluster again everything is listed anew.
    pub(super) async fn run(&self) {
        let (mut known, mut life): (Option<Known>, u64) = (None, self.life);
        loop {
            tokio::select! {
                biased;
                () = self.rights.reporting() => {}
                () = self.rights.when(Standing::stands_aside) => {
                    known = None;
                    life = self.stand_aside();
                    self.rights.when(|standing| !standing.stands_aside()).await;
                    continue;
                }
            }
            let known = match &mut known {
                Some(known) => known,
                none => {
                    tokio::select! {
                        biased;
                        recalled = Box::pin(self.recall(life)) => none.insert(recalled),
                        () = self.rights.when(|standing| !standing.may_report()) => continue,
                    }
                }
            };
            self.follow(known).await;
        }
    }

    /// Another agent is at work: what is known gets old, and so does what is thought of the hub. Answers the hub's life.
    fn stand_aside(&self) -> u64 {
        self.member.stand_aside();
        self.member.forget_note(NOTE);
        self.trust.forget();
        self.doubt(false);
        self.member.desired().life()
    }

    /// What was kept of the hub before the start, once that is known. The hub's life was this before anything of it was
    /// heard.
    async fn recall(&self, life: u64) -> Known {
        self.member.recalled().await;
        let mut origin = match self.member.note(NOTE) {
            Some(text) => Origin::read(&text),
            None => {
                let mut origin = Origin::default();
                origin.goes_by(self.another().await);
                origin
            }
        };
        if self.member.desired().is_empty() || !self.config.doubt_older_hubs {
            // There is nothing to be held against it.
            origin.older = None;
        }
        let is_held = origin.older.is_some();
        let mut known = Known { life, recalled: !origin.anew, origin, ..Known::default() };
        match is_held {
            true => self.hold(&mut known).await,
            false => self.doubt(false),
        }
        self.remember(&known);
        known
    }

    /// Lets all know whether the hub is doubted.
    fn doubt(&self, doubted: bool) {
        self.rights.hub_is_doubted(doubted);
        self.member.desired().stands(doubted);
    }

    /// When the hub has last turned out to be another, in seconds since 1970.
    async fn another(&self) -> Option<u64> {
        self.member.fence().past().await?.another_at().map(|at| at.as_secs())
    }

    /// Watches while this agent speaks for the cluster.
    async fn follow(&self, known: &mut Known) {
        let path = works().collection(Some(&self.config.execution_namespace()));
        let part = Part::Namespace(self.config.execution_namespace());
        let fed = self.config.fed(|feed| &feed.works, part);
        let config =
            WatchConfig::new(path.as_str()).labels(OTHERS).wake(&self.config.hub_back).news().fed(fed);
        let desired = self.member.desired();
        let lister = known::lister(self.hub.clone(), path, Arc::clone(desired));
        let watch = self.view.watch(config, self.env.clone(), Heard::parse).list_by(lister);
        let unread = Unread::new(self.hub.clone(), self.config.execution_namespace(), Arc::clone(desired));
        let mut watching = Watching { watch, unread, asked: None, init: None, next: None };
        let mut back = self.config.hub_back.listen();
        let mut question = self.trust.question.listen();
        let mut clusters = self.view.subscribe();
        loop {
            let is_held = known.listing.is_some();
            let look = async {
                match is_held {
                    true => sleep(LOOK).await,
                    false => std::future::pending().await,
                }
            };
            let event = match watching.next.take() {
                Some(event) => event,
                None => tokio::select! {
                    biased;
                    () = self.rights.when(|standing| !standing.may_report()) => return,
                    () = back.woken() => {
                        watching.asked = None;
                        continue;
                    }
                    changed = clusters.changed() => {
                        if changed.is_err() {
                            return;
                        }
                        clusters.borrow_and_update();
                        if watching.asked.is_some() {
                            Box::pin(self.heed(known)).await;
                        }
                        continue;
                    }
                    // What the Cluster says waits for it.
                    () = question.woken(), if !is_held => {
                        if !Box::pin(self.meet(known, &mut watching)).await {
                            return;
                        }
                        continue;
                    }
                    event = watching.told() => event,
                    () = look => {
                        if watching.is_unsure(self.env.now()) && !Box::pin(self.meet(known, &mut watching)).await {
                            return;
                        }
                        Box::pin(self.look(known)).await;
                        continue;
                    }
                },
            };
            let events = watching.together(event);
            // In a box, as elsewhere where one waits most of the time.
            if !Box::pin(self.take(known, &mut watching, events)).await {
                return;
            }
        }
    }

    /// Takes in what the watch has told, if the hub is believed. Whether this agent still speaks for the cluster.
    async fn take(
        &self,
        known: &mut Known,
        watching: &mut Watching,
        mut events: Vec<(Event<DesiredWork>, u64)>,
    ) -> bool {
        if matches!(events[0].0, Event::Init) {
            // What comes next tells which hub has listed it.
            (watching.init, watching.asked) = (events.pop(), None);
            return true;
        }
        let desired = self.member.desired();
        let is_end = matches!(events[0].0, Event::Synced);
        if is_end && known.listing.is_none() && self.would_lose(watching) {
            // A hub that has lost them may have lost the Cluster, too. Then they are kept as they are.
            self.view.doubt();
        }
        if !self.view.is_ours(&self.env).await {
            return false;
        }
        if watching.is_unsure(self.env.now()) {
            let was_held = known.listing.is_some();
            if !self.meet(known, watching).await {
                return false;
            }
            if was_held && known.listing.is_none() {
                // Everything is listed anew, from its beginning.
                (watching.init, watching.next) = (None, None);
                return true;
            }
        }
        let init = watching.init.take();
        if let Some(listing) = &mut known.listing {
            init.into_iter().chain(events).for_each(|(event, _)| listing.take(event));
            return true;
        }
        if let Some(init) = init {
            self.member.take_in(vec![init]).await;
        }
        self.member.take_in(events).await;
        // It was listed anew: nothing that was wanted before the start is left.
        if known.recalled && desired.synced() {
            known.recalled = false;
            self.remember(known);
        }
        if is_end && std::mem::take(&mut known.origin.anew) {
            self.keep(&known.origin, Keep::Now).await;
        }
        true
    }

    /// Whether the list that is at its end lacks Works that are known.
    fn would_lose(&self, watching: &Watching) -> bool {
        let desired = self.member.desired();
        // A list without a Work: its beginning was not taken in yet.
        desired.would_lose() || (watching.init.is_some() && !desired.is_empty())
    }

    /// Asks the hub which one it is, and believes it or not. Whether this agent still speaks for the cluster.
    async fn meet(&self, known: &mut Known, watching: &mut Watching) -> bool {
        let (life, connections) = (watching.watch.life(), self.trust.connections());
        let (before, answer) = tokio::select! {
            biased;
            () = self.rights.when(|standing| !standing.may_report()) => return false,
            asked = self.ask(known, life) => asked,
        };
        watching.asked = Some(self.env.now());
        if known.listing.is_some() {
            if known.origin.is_met_again(&answer) {
                tracing::info!(cluster = %self.config.cluster, "the hub is the one that it was again");
                self.meet_again(known, before, &answer).await;
            }
            return true;
        }
        let older = known.origin.judge(before, &answer);
        let doubts = self.config.doubt_older_hubs && !self.member.desired().is_empty();
        if let Some(older) = older.filter(|_| doubts) {
            known.origin.older = Some(older);
            self.hold(known).await;
            self.keep(&known.origin, Keep::Now).await;
            if life == known.life && life == self.member.desired().life() {
                // Nobody else has noticed.
                self.member.fence().went_back(life);
            }
        } else {
            known.life = life;
            let keep = known.origin.believe(before, &answer);
            self.keep(&known.origin, keep).await;
            self.heed(known).await;
            self.trust.believes(life);
            self.trust.is_sure_since(connections);
            self.hear_cluster().await;
        }
        self.remember(known);
        true
    }

    /// Asks the hub until it answers. With what was known before.
    async fn ask(&self, known: &mut Known, life: u64) -> (Before, Answer) {
        let mut backoff = Backoff::new(RETRY);
        let (namespace, fence) = (self.config.execution_namespace(), self.member.fence());
        let desired = self.member.desired();
        loop {
            let (past, newest) = (fence.past().await, desired.newest(known.life, known.recalled));
            let patient = backoff.failures() < FAILURES;
            match known.origin.ask(&self.hub, &namespace, patient).await {
                Ok(answer) => {
                    if answer.odd != known.odd {
                        known.odd.clone_from(&answer.odd);
                        if let Some(why) = &answer.odd {
                            tracing::warn!(cluster = %self.config.cluster, "cannot ask the hub which one it is ({why}): it is told by its revisions");
                        }
                    }
                    if let Some((past, revision)) = past.zip(answer.revision) {
                        // A backup begins far behind where it ended.
                        fence.answered(past, revision);
                    }
                    let outlived = life != known.life || life != desired.life();
                    let another = match past {
                        Some(_) => self.another().await,
                        None => None,
                    };
                    return (Before { newest, outlived, another }, answer);
                }
                Err(error) => {
                    if backoff.failures() == FAILURES {
                        tracing::warn!(cluster = %self.config.cluster, %error, "cannot tell which hub this is: what it says waits for that");
                    } else {
                        tracing::debug!(cluster = %self.config.cluster, %error, "cannot tell which hub this is");
                    }
                    sleep(backoff.next(&self.env).max(error.retry_after().unwrap_or_default())).await;
                }
            }
        }
    }

    /// The hub is not believed from now on: what is known stays as it is.
    async fn hold(&self, known: &mut Known) {
        let why = known.origin.older.as_ref().map(|older| older.why.as_str()).unwrap_or_default();
        tracing::warn!(cluster = %self.config.cluster, "the hub may know less than this agent does: {why}");
        self.trust.is_unsure();
        self.doubt(true);
        known.listing = Some(Listing::default());
    }

    /// Looks what the Cluster says; of a hub that was not asked who it is that would count for the one before.
    async fn heed(&self, known: &mut Known) {
        if known.listing.is_some() {
            return self.look(known).await;
        }
        if known.origin.heed(self.view.get().as_deref().map(|cluster| &**cluster)) {
            self.keep(&known.origin, Keep::Now).await;
        }
    }

    /// Looks whether a hub that is not believed has caught up, or somebody says that it counts as it is.
    async fn look(&self, known: &mut Known) {
        let Some(listing) = &mut known.listing else { return };
        let (cluster, desired) = (self.view.get(), self.member.desired());
        if known.origin.is_confirmed(cluster.as_deref().map(|cluster| &**cluster)) {
            tracing::warn!(cluster = %self.config.cluster, "somebody says that the hub counts as it is");
            return self.accept(known).await;
        }
        if desired.is_empty() {
            // Another agent was at work meanwhile: nothing is left to be held against it.
            return self.accept(known).await;
        }
        let Some(differences) = listing.differs(|| desired.essences()) else { return };
        if differences.is_none() {
            tracing::info!(cluster = %self.config.cluster, "the hub has what this agent knows");
            return self.accept(known).await;
        }
        let why = known.origin.older.as_ref().map(|older| older.why.as_str()).unwrap_or_default();
        self.trust.doubts(&differences.sentence(why, &self.config.cluster));
    }

    /// The hub is believed as it is: everything is listed anew.
    async fn accept(&self, known: &mut Known) {
        known.origin.believe_any(self.another().await);
        known.recalled = false;
        known.origin.heed(self.view.get().as_deref().map(|cluster| &**cluster));
        self.member.outlive().await;
        self.keep(&known.origin, Keep::Now).await;
        self.believe(known).await;
    }

    /// The hub that is known is there again, after another one: everything is listed anew.
    async fn meet_again(&self, known: &mut Known, before: Before, answer: &Answer) {
        known.origin.older = None;
        known.origin.believe(before, answer);
        self.keep(&known.origin, Keep::Now).await;
        self.believe(known).await;
    }

    /// Lets what the Cluster of a hub that is believed says be heard.
    async fn hear_cluster(&self) {
        self.view.heed();
        self.member.keep_holds().await;
    }

    /// Lets be known by what the hub is known.
    fn remember(&self, known: &Known) {
        let Known { origin, life, recalled, .. } = known;
        self.trust.knows_by(Familiar { origin: origin.clone(), life: *life, recalled: *recalled });
    }

    /// Everything is listed anew, and counts.
    async fn believe(&self, known: &mut Known) {
        (known.listing, known.life) = (None, self.member.desired().life());
        self.trust.believes(known.life);
        self.doubt(false);
        self.member.fence().list_anew();
        self.trust.is_sure_since(self.trust.connections());
        self.hear_cluster().await;
        self.remember(known);
    }

    async fn keep(&self, origin: &Origin, keep: Keep) {
        match keep {
            Keep::Not => {}
            Keep::Sometime => self.member.keep_note_sometime(NOTE, origin.text()),
            Keep::Now => self.member.keep_note(NOTE, origin.text()).await,
        }
    }
}
