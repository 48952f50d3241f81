//! New versions of the agent itself.
//!
//! ```text
//!   Cluster: the hub's offer ─┐
//!   holds, windows, the flag ─┴─▶ Upgrader ── begins ─▶ own Deployment: another image, the old Pod stays beside
//!                                    │                        │
//!          report ─▶ Cluster ◀───────┘        the new one: taken, proven, committed ─▶ the old Pod goes
//!                                             the old one: steps aside, and looks (guard) ─▶ the old image again
//! ```
//!
//! Two versions are there during a trial, and one at a time acts, as with any two agents of one name. The old one ends its agent when
//! the new one has started, which frees the Leases, and its process stays as the guard of the trial: it goes back whether the
//! new one cannot be started, crashes, or runs and does not reach the hub. What is known of the trial stands on the Deployment,
//! so that a power cut at any time loses nothing: both Pods start again, and each knows its part.
//!
//! What is decided is decided in [`karmada_core::upgrade`].

pub(crate) mod ask;
#[cfg(test)]
mod breaks;
pub(crate) mod deployment;
pub(crate) mod folder;
pub(crate) mod given;
pub(crate) mod guard;
pub(crate) mod programs;
mod received;
mod trouble;
mod wanted;

use std::{sync::Arc, time::Duration};

use karmada_api::consts::extension;
use karmada_client::Rest;
use karmada_core::upgrade::{
    About, Mode, Offer, Report, Stands, Version, Way,
    agent::{Act, Go, Own, another_go, decide, gave_way, remembered},
    slots::{Refused, Slots},
    trial::{Ended, Part, Proof, Trial},
};
use karmada_env::Env;
use karmada_member::{
    Member,
    rights::{Phase, Rights},
};
use karmada_meta::{object, time::Time};
use parking_lot::Mutex;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::hub::cluster::{ClusterView, Kept};
use deployment::Deployment;
use given::{Installed, Upgrade};
use programs::Programs;
use trouble::Trouble;
use wanted::{is_unwanted, offered};

/// How often it is looked while nothing is on trial: windows open, and holds end.
const LOOK: Duration = Duration::from_secs(30);
/// And while something is.
const ON_TRIAL: Duration = Duration::from_secs(5);
/// What was used of its time before it has started is kept so often.
const KEEP: Duration = Duration::from_secs(60);
/// A hub that was not heard for so long says nothing for a new version.
const UNHEARD: Duration = Duration::from_secs(60);
/// An installed program that runs in the stead of one that could not be read or run makes way for that again after this time.
const HEALS: Duration = Duration::from_secs(3600);
/// A program that cannot be had is asked for again after a time that doubles up to this.
const FETCH_AGAIN: Duration = Duration::from_secs(6 * 3600);
/// What is there of a program that nobody offers any more is looked at so often.
const FORGET: Duration = Duration::from_secs(3600);

/// What is reported, for whoever reports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told(Arc<Mutex<Said>>);

#[derive(Debug, Default)]
struct Said {
    report: Option<Report>,
    /// Why the last trial was given up for what somebody at the cluster did.
    gave_way: Option<String>,
}

impl Told {
    /// As it stands in the Cluster's annotation.
    pub(crate) fn text(&self) -> Option<String> {
        self.0.lock().report.as_ref().map(Report::write)
    }

    /// What a condition of the Cluster says, if there is something to say.
    pub(crate) fn gave_way(&self) -> Option<String> {
        self.0.lock().gave_way.clone()
    }
}

/// Where the agent is installed.
enum Site {
    Deployment(Deployment),
    Program(Programs),
}

/// As it is there now.
enum Live {
    Deployment(Value),
    Program(Box<Slots>),
}

impl Site {
    fn way(&self) -> Way {
        match self {
            Self::Deployment(_) => Deployment::WAY,
            Self::Program(_) => Programs::WAY,
        }
    }

    async fn read(&self) -> Result<Live, Trouble> {
        match self {
            Self::Deployment(site) => site.read().await.map(Live::Deployment),
            Self::Program(site) => site.read().map(|slots| Live::Program(Box::new(slots))),
        }
    }
}

impl Live {
    fn trial(&self) -> Option<Trial> {
        match self {
            Self::Deployment(live) => deployment::trial(live),
            Self::Program(slots) => slots.trial.clone(),
        }
    }
}

/// Takes new versions.
pub(crate) struct Upgrader {
    site: Site,
    mode: Mode,
    not_below: Option<Version>,
    aside: CancellationToken,
    version: String,
    env: Env,
    view: Arc<ClusterView>,
    half: Arc<Member>,
    rights: Rights,
    told: Told,
    cluster: String,
}

/// What it remembers between two looks.
#[derive(Debug, Default)]
struct Seen {
    /// What it knows of the last trial; nothing before it has looked.
    trial: Option<Option<Trial>>,
    proof: Proof,
    /// When something may be otherwise soon.
    soon: Option<Duration>,
    /// How long nothing but its turn has held up an offer.
    free: Option<Free>,
    /// What was counted of a trial that has not started.
    counted: Option<Counted>,
    /// What came of fetching the program of an offer.
    fetching: Fetching,
    /// When it began to look.
    started: Option<Duration>,
    /// When it last looked at what is there of programs.
    forgot: Option<Duration>,
}

/// See [`Seen::fetching`].
#[derive(Debug, Default)]
struct Fetching {
    /// The offer, by its time and its program's digest, that the rest is about.
    of: Option<(Time, String)>,
    /// Why its program is none for this agent; it is not asked for again.
    refused: Option<String>,
    /// When it may be asked for again, and why it could not be had.
    later: Option<(Duration, String)>,
    failures: u32,
}

/// How long an agent could have begun, but for its turn.
#[derive(Debug)]
struct Free {
    /// The offer: its time, and whether it is one to go back.
    of: (Time, bool),
    waited: Duration,
    /// Up to when it was counted; nothing while something else holds it up as well.
    counted: Option<Duration>,
}

/// What was counted of the time of a trial that has not started, which is kept less often.
#[derive(Debug)]
struct Counted {
    since: Time,
    waited: u64,
    looked: Duration,
    kept: Duration,
}

impl Seen {
    /// How long it is until the turn of an agent that could begin now. Only time in which it could counts: where many are held up by
    /// one thing, they do not begin together when that ends.
    fn turn(&mut self, offer: &Offer, cluster: &str, now: Duration) -> Duration {
        let of = (offer.begun, offer.returns);
        let free = self.free.take().filter(|free| free.of == of);
        let mut free = free.unwrap_or(Free { of, waited: Duration::ZERO, counted: None });
        if let Some(counted) = free.counted {
            // A machine that slept could not have begun.
            free.waited += now.saturating_sub(counted).min(LOOK * 2);
        }
        free.counted = Some(now);
        let left = offer.turn(cluster).saturating_sub(free.waited);
        self.free = Some(free);
        left
    }

    /// Something else than its turn holds it up.
    fn is_held_up(&mut self) {
        if let Some(free) = &mut self.free {
            free.counted = None;
        }
    }

    /// Adds to a trial what was counted of it, and answers what is new: whole seconds; and whether it is time to keep it.
    fn count(&mut self, trial: &mut Trial, now: Duration) -> (Duration, bool) {
        let since = trial.since;
        let counted = self.counted.take().filter(|counted| counted.since == since);
        let mut counted = counted.unwrap_or(Counted { since, waited: 0, looked: now, kept: now });
        trial.waited = trial.waited.max(counted.waited);
        let passed = now.saturating_sub(counted.looked);
        // The rest of a second counts the next time.
        counted.looked = now.saturating_sub(Duration::from_nanos(passed.subsec_nanos().into()));
        let is_due = now.saturating_sub(counted.kept) >= KEEP;
        if is_due {
            counted.kept = now;
        }
        self.counted = Some(counted);
        // A machine that slept has looked at nothing.
        (passed.min(LOOK), is_due)
    }
}

impl Upgrader {
    pub(crate) fn new(
        upgrade: Upgrade,
        (member, env, version): (Rest, Env, String),
        (view, half, rights): (Arc<ClusterView>, Arc<Member>, Rights),
        (told, cluster): (Told, String),
    ) -> Self {
        let site = match upgrade.installed {
            Installed::Deployment(namespace, name) => {
                Site::Deployment(Deployment::new(member, (namespace, name)).with_images(upgrade.images))
            }
            Installed::Program(programs) => Site::Program(programs),
        };
        let report = Report { mode: upgrade.mode, way: site.way(), about: None };
        told.0.lock().report = Some(report);
        Self {
            site,
            mode: upgrade.mode,
            not_below: upgrade.not_below,
            aside: upgrade.aside,
            version,
            env,
            view,
            half,
            rights,
            told,
            cluster,
        }
    }

    /// Runs until dropped.
    pub(crate) async fn run(self) {
        let mut cluster = self.view.subscribe();
        let Ok(version) = self.version.parse::<Version>() else { return };
        let (mut seen, mut in_trouble) = (Seen::default(), false);
        loop {
            let on_trial = seen.trial.as_ref().is_none_or(|trial| trial.as_ref().is_some_and(Trial::is_open));
            let changed = async {
                // While something is on trial, what the hub says changes nothing about it.
                if on_trial || cluster.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            let first = seen.trial.is_none();
            let pause = if let Some(soon) = seen.soon.take() {
                soon.min(LOOK)
            } else if in_trouble || !on_trial {
                LOOK
            } else if first {
                Duration::ZERO
            } else {
                ON_TRIAL
            };
            tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep(pause) => {}
            }
            let offer = self.offer();
            let looked = self.look(&version, offer.as_ref(), &mut seen).await;
            in_trouble = matches!(looked, Err(Trouble::Lasting(_) | Trouble::Fetch(_) | Trouble::Broke(_)));
            match looked {
                Ok(()) => {}
                Err(Trouble::Passing(error)) => {
                    tracing::debug!(%error, "the agent's own Deployment cannot be read or changed");
                    if first {
                        tokio::time::sleep(ON_TRIAL).await;
                    }
                }
                Err(Trouble::Fetch(why) | Trouble::Broke(why)) => {
                    tracing::warn!(%why, "the upgrade of the agent does not go on now");
                    self.is_about_to(offer.as_ref(), why);
                }
                Err(Trouble::Lasting(why)) => {
                    // What is not known, or on trial, stays so until the Deployment says something else. Whoever runs it by hand,
                    // and was offered nothing, need not hear of it.
                    self.say(offer.as_ref(), Stands::Refused, why);
                }
            }
        }
    }

    /// What the hub offers now.
    fn offer(&self) -> Option<Offer> {
        self.view.get().and_then(|cluster| offered(&cluster))
    }

    async fn look(&self, version: &Version, offer: Option<&Offer>, seen: &mut Seen) -> Result<(), Trouble> {
        let started = *seen.started.get_or_insert_with(|| self.env.now());
        if let Site::Program(site) = &self.site
            && self.view.get().is_some()
            && seen.forgot.is_none_or(|at| self.env.now().saturating_sub(at) >= FORGET)
        {
            seen.forgot = Some(self.env.now());
            site.forget(offer, Time::now(&self.env)).await;
        }
        let held = self.half.held();
        let own = Own {
            version,
            mode: self.mode,
            held: held.as_deref(),
            windows: self.has_windows(),
            way: self.site.way(),
            floor: self.not_below.as_ref(),
            now: Time::now(&self.env),
        };
        if let Some(known) = &seen.trial
            && known.as_ref().is_none_or(|trial| !trial.is_open())
        {
            // The Deployment is asked only where something is to be done with it.
            self.says_way(version, offer, known.as_ref());
            match decide(offer, own, known.as_ref()) {
                Act::Nothing => {
                    self.remember(version, known.as_ref());
                    // It may be offered again in a moment.
                    seen.is_held_up();
                    return Ok(());
                }
                Act::Say(stands, why) => {
                    self.say(offer, stands, why);
                    seen.is_held_up();
                    return Ok(());
                }
                Act::Begin | Act::GoBack => {
                    if let Some(why) = self.waits(offer, seen) {
                        self.is_about_to(offer, why.to_owned());
                        return Ok(());
                    }
                }
            }
        }
        let live = self.site.read().await?;
        let trial = live.trial();
        seen.trial = Some(trial.clone());
        let now = Time::now(&self.env);
        let ran = self.env.now().saturating_sub(started);
        if let (Site::Program(site), Live::Program(slots)) = (&self.site, &live)
            && slots.is_missed(site.runs.as_deref(), version)
        {
            self.makes_way(site, slots, ran).await?;
            // What stands there is about the program that does not run.
            seen.trial = None;
            seen.soon = Some(LOOK);
            let why =
                "the program that is to run could not be read or run: the installed one runs in its stead"
                    .to_owned();
            self.say(offer, Stands::Waiting, why);
            return Ok(());
        }
        if let Some(trial) = trial.clone().filter(Trial::is_open) {
            match &live {
                Live::Deployment(live) => self.on_trial(version, live, trial, now, seen).await?,
                Live::Program(slots) => {
                    let why = self.program_on_trial((offer, own), slots, (trial, now, ran), seen).await?;
                    if let Some(why) = why {
                        self.say(offer, Stands::Waiting, why);
                        return Ok(());
                    }
                }
            }
        }
        let trial = seen.trial.clone().flatten();
        self.says_way(version, offer, trial.as_ref());
        let act = decide(offer, own, trial.as_ref());
        if matches!(act, Act::Begin | Act::GoBack)
            && let Some(why) = self.waits(offer, seen)
        {
            self.is_about_to(offer, why.to_owned());
            return Ok(());
        }
        match act {
            Act::Nothing => {
                self.remember(version, trial.as_ref());
                seen.is_held_up();
            }
            Act::Say(stands, why) => {
                self.say(offer, stands, why);
                seen.is_held_up();
            }
            Act::Begin | Act::GoBack if !self.view.is_believed() => {
                self.view.wants_belief();
                seen.soon = Some(ON_TRIAL);
                self.is_about_to(offer, "the hub is asked first which one it is".to_owned());
            }
            Act::Begin => {
                let Some(offer) = offer else { return Ok(()) };
                let trial = match (&self.site, &live) {
                    (Site::Deployment(site), Live::Deployment(live)) => {
                        // What was written, if anything was, is known again when it has been read.
                        seen.trial = None;
                        site.begin(live, offer, version, now).await?
                    }
                    (Site::Program(site), _) => {
                        if !self.is_fetched(site, offer, seen).await? {
                            return Ok(());
                        }
                        seen.trial = None;
                        site.begin(offer, version, now).await?
                    }
                    (Site::Deployment(_), Live::Program(_)) => return Ok(()),
                };
                tracing::info!(version = %trial.version, new = %trial.new, "a new version of the agent is on trial");
                if matches!(self.site, Site::Program(_)) {
                    // What starts next is the new one.
                    self.aside.cancel();
                }
                seen.trial = Some(Some(trial));
                self.say(Some(offer), Stands::Trying, "it is fetched and started".to_owned());
            }
            Act::GoBack => {
                let Some(mut trial) = trial else { return Ok(()) };
                let why = "the hub asked for it".to_owned();
                match (&self.site, &live) {
                    (Site::Deployment(site), Live::Deployment(live)) => {
                        trial = site.go_back(live, trial, why.clone()).await?;
                    }
                    (Site::Program(site), _) => {
                        if !site.take_back(why.clone()).await? {
                            let why = "what runs now was not put there by this upgrade, and stays";
                            return Err(Trouble::Lasting(why.to_owned()));
                        }
                        trial.end(Ended::Returned, why.clone());
                        self.aside.cancel();
                    }
                    (Site::Deployment(_), Live::Program(_)) => return Ok(()),
                }
                seen.trial = Some(Some(trial));
                self.say(offer, Stands::Returned, why);
            }
        }
        Ok(())
    }

    /// What an agent that could begin waits for, if there is something: to act for the cluster, to hear the hub, or its turn.
    fn waits(&self, offer: Option<&Offer>, seen: &mut Seen) -> Option<&'static str> {
        let why = match () {
            () if !self.is_active() => "the agent does not act for the cluster now",
            () if self.rights.is_unheard_for(UNHEARD) => "the hub is not heard now",
            () => {
                let left = seen.turn(offer?, &self.cluster, self.env.now());
                if left.is_zero() {
                    return None;
                }
                seen.soon = Some(left);
                return Some("it waits for its turn: not all clusters begin at once");
            }
        };
        seen.is_held_up();
        Some(why)
    }

    /// Whether the program of an offer is there, which is fetched otherwise. Then everything is to be decided anew: a window may have
    /// closed.
    async fn is_fetched(&self, site: &Programs, offer: &Offer, seen: &mut Seen) -> Result<bool, Trouble> {
        let fetching = &mut seen.fetching;
        let program = site.meant(offer)?.sha256.clone();
        let of = (offer.begun, program.clone());
        if fetching.of.as_ref() != Some(&of) {
            let refused =
                site.read()?.refused.filter(|refused| (refused.begun, &refused.program) == (of.0, &of.1));
            *fetching =
                Fetching { refused: refused.map(|refused| refused.why), of: Some(of), ..Fetching::default() };
        }
        if let Some(why) = &fetching.refused {
            return Err(Trouble::Lasting(why.clone()));
        }
        if let Some((_, why)) = fetching.later.as_ref().filter(|(at, _)| *at > self.env.now()) {
            return Err(Trouble::Fetch(why.clone()));
        }
        let had = async {
            if site.has(offer).await? {
                return Ok(true);
            }
            self.is_about_to(Some(offer), "its program is being fetched".to_owned());
            site.fetch(offer, Time::now(&self.env)).await.map(|()| false)
        };
        // Over a slow link it takes hours, and the hub may want something else meanwhile.
        let had = tokio::select! {
            biased;
            had = had => had,
            () = is_unwanted(offer, self.view.subscribe(), &self.env) => Ok(false),
        };
        match had {
            Ok(has) => {
                *fetching = Fetching::default();
                seen.soon = Some(Duration::ZERO);
                Ok(has)
            }
            Err(Trouble::Lasting(why)) => {
                fetching.refused = Some(why.clone());
                let refused = Refused { begun: offer.begun, program, why: why.clone() };
                if let Err(error) = site.refuse(refused).await {
                    tracing::debug!(%error, "that a program was refused cannot be kept");
                }
                Err(Trouble::Lasting(why))
            }
            Err(trouble) => {
                // One that gets further by little and little is not made to wait longer each time. Not all at once.
                let wait = match trouble {
                    Trouble::Broke(_) => LOOK,
                    _ => {
                        fetching.failures += 1;
                        (LOOK * 2_u32.saturating_pow((fetching.failures - 1).min(10))).min(FETCH_AGAIN)
                    }
                };
                let wait = self.env.jitter(wait, 0.5);
                fetching.later = Some((self.env.now() + wait, trouble.to_string()));
                Err(trouble)
            }
        }
    }

    /// Ends for the program in whose stead this one runs, if that can be read again.
    async fn makes_way(&self, site: &Programs, slots: &Slots, ran: Duration) -> Result<(), Trouble> {
        if ran >= HEALS && !self.aside.is_cancelled() && site.is_back(slots).await? {
            tracing::info!("the installed program ends, for the one that is to run");
            self.aside.cancel();
        }
        Ok(())
    }

    /// Does this version's part in a trial of a program. Why it goes no further is for the next start, and for its own clock. Answers
    /// what it waits for, if it is for that.
    async fn program_on_trial(
        &self,
        (offer, own): (Option<&Offer>, Own<'_>),
        slots: &Slots,
        (mut trial, now, ran): (Trial, Time, Duration),
        seen: &mut Seen,
    ) -> Result<Option<String>, Trouble> {
        let Site::Program(site) = &self.site else { return Ok(None) };
        match slots.part(site.runs.as_deref()) {
            Part::New => {
                if trial.taken.is_none() {
                    trial.taken = Some(now);
                    // Whether it proves itself does not hang on the disk.
                    match site.settle(&trial).await {
                        Ok(()) => {
                            tracing::info!(version = %trial.version, "this version of the agent is on trial")
                        }
                        Err(error) => {
                            tracing::warn!(version = %trial.version, %error, "it is on trial, and cannot keep that")
                        }
                    }
                    seen.trial = Some(Some(trial.clone()));
                }
                if !seen.proof.look(self.is_well(), self.env.now()) {
                    return Ok(None);
                }
                trial.end(Ended::Committed, "");
                site.settle(&trial).await?;
                tracing::info!(version = %trial.version, "this version of the agent has proven itself, and stays");
            }
            // It had its time, which may have been the link's fault: now the hub is heard.
            Part::Old if self.aside.is_cancelled() => {}
            Part::Old if slots.rests && (self.rights.is_unheard_for(UNHEARD) || !self.is_active()) => {}
            Part::Old if slots.rests && self.view.get().is_none() => {}
            Part::Old => match another_go(offer, own, &trial) {
                Go::Waits(why) => return Ok(Some(why)),
                Go::GoesBack(why) => {
                    tracing::warn!(version = %trial.version, %why, "the agent stays at its version");
                    trial.end(Ended::Returned, why);
                    site.settle(&trial).await?;
                }
                Go::Goes if site.again(ran).await? => {
                    tracing::info!(version = %trial.version, "this version ends, for the new one to start");
                    self.aside.cancel();
                }
                Go::Goes => {
                    let why = "a start of the new version could not be kept on the disk of --state-dir: it is tried again later";
                    return Ok(Some(why.to_owned()));
                }
            },
            Part::Neither => {
                trial.end(Ended::Returned, "neither it nor what was before it runs");
                site.settle(&trial).await?;
            }
        }
        seen.trial = Some(Some(trial));
        Ok(None)
    }

    /// Does this version's part in a trial.
    async fn on_trial(
        &self,
        version: &Version,
        live: &Value,
        mut trial: Trial,
        now: Time,
        seen: &mut Seen,
    ) -> Result<(), Trouble> {
        let Site::Deployment(site) = &self.site else { return Ok(()) };
        if let Some(why) = deployment::replaced(live, &trial)? {
            tracing::warn!(version = %trial.version, %why, "the agent stays at its version");
            seen.trial = Some(Some(site.go_back(live, trial, why).await?));
            return Ok(());
        }
        if deployment::give_way(live, &mut trial)? {
            tracing::warn!(version = %trial.version, why = %trial.why, "the trial is over");
            site.settle(live, &trial, None).await?;
            seen.trial = Some(Some(trial));
            return Ok(());
        }
        match trial.part(version) {
            Part::New if trial.taken.is_none() => {
                trial.taken = Some(now);
                site.keep(live, &trial).await?;
                tracing::info!(version = %trial.version, "this version of the agent is on trial");
            }
            Part::New => {
                if !seen.proof.look(self.is_well(), self.env.now()) {
                    return Ok(());
                }
                trial.end(Ended::Committed, "");
                site.settle(live, &trial, None).await?;
                tracing::info!(version = %trial.version, "this version of the agent has proven itself, and stays");
            }
            Part::Old if trial.taken.is_some() => {
                tracing::info!(version = %trial.version, "the new version has started: this one steps aside, and looks after it");
                self.aside.cancel();
            }
            Part::Old => {
                let (passed, is_due) = seen.count(&mut trial, self.env.now());
                let over = trial.wait(passed, !self.rights.is_unheard_for(UNHEARD));
                if let Some(counted) = &mut seen.counted {
                    counted.waited = trial.waited;
                }
                if let Some(why) = over {
                    tracing::warn!(version = %trial.version, %why, "the agent stays at its version");
                    trial = site.go_back(live, trial, why).await?;
                } else if is_due {
                    site.keep(live, &trial).await?;
                }
            }
            // The image has another version than was said: the old one goes back when nothing else has started in time.
            Part::Neither => {}
        }
        seen.trial = Some(Some(trial));
        Ok(())
    }

    fn is_active(&self) -> bool {
        *self.rights.phases().borrow() == Phase::Active
    }

    /// It speaks for the cluster, hears the hub, and has looked at every Work that is to be looked at now.
    fn is_well(&self) -> bool {
        self.is_active()
            && self.half.desired().synced()
            && self.half.queue().is_empty()
            && !self.rights.is_unheard_for(UNHEARD)
    }

    fn has_windows(&self) -> bool {
        let annotated =
            |cluster: Arc<Kept>| object::annotation(&cluster, extension::WINDOWS_CLUSTER).is_some();
        self.view.get().is_some_and(annotated)
    }

    fn says_way(&self, version: &Version, offer: Option<&Offer>, trial: Option<&Trial>) {
        let gave_way = gave_way(version, offer, trial);
        let said = &mut self.told.0.lock().gave_way;
        if said.as_deref() != gave_way {
            *said = gave_way.map(str::to_owned);
        }
    }

    fn remember(&self, version: &Version, trial: Option<&Trial>) {
        if let Some(report) = &mut self.told.0.lock().report {
            report.about = remembered(version, trial, report.about.as_ref());
        }
    }

    fn say(&self, offer: Option<&Offer>, stands: Stands, why: String) {
        self.tell(offer, (stands, why), false);
    }

    /// It waits, and for nobody at the cluster: so the hub counts it among those that are changing.
    fn is_about_to(&self, offer: Option<&Offer>, why: String) {
        self.tell(offer, (Stands::Waiting, why), true);
    }

    fn tell(&self, offer: Option<&Offer>, (stands, why): (Stands, String), begins: bool) {
        let (Some(offer), Some(report)) = (offer, &mut self.told.0.lock().report) else { return };
        let about = About { version: offer.version.clone(), begun: offer.begun, stands, why, begins };
        if report.about.as_ref() != Some(&about) {
            tracing::info!(version = %about.version, stands = ?about.stands, why = %about.why, "an offered version of the agent");
            report.about = Some(about);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_counts_only_time_in_which_the_agent_could_begin() {
        let offer = |returns| Offer {
            version: "0.6.0".to_owned(),
            begun: "2026-11-26T01:00:00Z".parse().unwrap(),
            image: String::new(),
            programs: Vec::new(),
            returns,
            downgrade: false,
            spread: 900,
        };
        let (new, back) = (offer(false), offer(true));
        let again = Offer { begun: new.begun.next(), ..new.clone() };
        let second = Duration::from_secs(1);
        let cluster = (0..100).map(|n| format!("m{n}")).find(|name| new.turn(name) > second * 300).unwrap();
        let (whole, mut seen, mut now) = (new.turn(&cluster), Seen::default(), second * 1000);
        let mut turn = |seen: &mut Seen, offer: &Offer, passed: Duration| {
            now += passed;
            seen.turn(offer, &cluster, now)
        };
        assert_eq!(turn(&mut seen, &new, Duration::ZERO), whole, "at the first look as well");
        assert_eq!(turn(&mut seen, &new, second * 30), whole - second * 30);
        // An outage, or an agent that does not act: what was waited is not lost, and no time is won.
        seen.is_held_up();
        assert_eq!(turn(&mut seen, &new, second * 3600), whole - second * 30);
        assert_eq!(turn(&mut seen, &new, second * 30), whole - second * 60);
        // A machine that slept.
        assert_eq!(turn(&mut seen, &new, second * 3600), whole - second * 120);
        // Another attempt has a turn of its own, and so has the way back.
        turn(&mut seen, &new, second * 30);
        assert_eq!(turn(&mut seen, &back, Duration::ZERO), whole);
        turn(&mut seen, &back, second * 30);
        assert_eq!(turn(&mut seen, &again, Duration::ZERO), again.turn(&cluster));
    }
}
