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

pub(crate) mod deployment;
pub(crate) mod guard;

use std::{sync::Arc, time::Duration};

use karmada_api::consts::extension;
use karmada_client::{Error, Rest};
use karmada_core::upgrade::{
    About, Mode, Offer, Report, Stands, Version,
    agent::{Act, Own, decide, remembered},
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

use crate::hub::cluster::ClusterView;
use deployment::Deployment;

/// How often it is looked while nothing is on trial: windows open, and holds end.
const LOOK: Duration = Duration::from_secs(30);
/// And while something is.
const ON_TRIAL: Duration = Duration::from_secs(5);
/// A hub that was not heard for so long says nothing for a new version.
const UNHEARD: Duration = Duration::from_secs(60);

/// What the owner of an agent lets be done with it.
#[derive(Clone, Debug)]
pub struct Upgrade {
    /// When it takes new versions.
    pub mode: Mode,
    /// The Deployment whose Pod it is: its namespace and name.
    pub deployment: (String, String),
    /// Cancelled when another version is to act, and this process to look after it.
    pub aside: CancellationToken,
}

/// What is reported, for whoever reports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told(Arc<Mutex<Option<Report>>>);

impl Told {
    /// As it stands in the Cluster's annotation.
    pub(crate) fn text(&self) -> Option<String> {
        self.0.lock().as_ref().map(Report::write)
    }
}

/// What is wrong with the place where the agent is installed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// It is tried again.
    #[error(transparent)]
    Passing(#[from] Error),
    /// Somebody has to do something.
    #[error("{0}")]
    Lasting(String),
}

/// Takes new versions.
pub(crate) struct Upgrader {
    site: Deployment,
    mode: Mode,
    aside: CancellationToken,
    version: String,
    env: Env,
    view: Arc<ClusterView>,
    half: Arc<Member>,
    rights: Rights,
    told: Told,
}

/// What it remembers between two looks.
#[derive(Debug, Default)]
struct Seen {
    /// What it knows of the last trial; nothing before it has looked.
    trial: Option<Option<Trial>>,
    proof: Proof,
    /// The hub is being asked which one it is, and something waits for that.
    asked: bool,
}

impl Upgrader {
    pub(crate) fn new(
        upgrade: Upgrade,
        (member, env, version): (Rest, Env, String),
        (view, half, rights): (Arc<ClusterView>, Arc<Member>, Rights),
        told: Told,
    ) -> Self {
        let site = Deployment::new(member, upgrade.deployment);
        let report = Report { mode: upgrade.mode, way: Deployment::WAY, about: None };
        *told.0.lock() = Some(report);
        Self { site, mode: upgrade.mode, aside: upgrade.aside, version, env, view, half, rights, told }
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
            let pause = if std::mem::take(&mut seen.asked) {
                ON_TRIAL
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
            let offer = self.view.get().and_then(|cluster| {
                let text = object::annotation(&cluster, extension::AGENT_OFFER)?;
                Offer::read(text)
                    .inspect_err(|error| tracing::warn!(%error, "the hub's offer cannot be read"))
                    .ok()
            });
            let looked = self.look(&version, offer.as_ref(), &mut seen).await;
            in_trouble = matches!(looked, Err(Trouble::Lasting(_)));
            match looked {
                Ok(()) => {}
                Err(Trouble::Passing(error)) => {
                    tracing::debug!(%error, "the agent's own Deployment cannot be read or changed");
                    if first {
                        tokio::time::sleep(ON_TRIAL).await;
                    }
                }
                Err(Trouble::Lasting(why)) => {
                    // What is not known, or on trial, stays so until the Deployment says something else. Whoever runs it by hand,
                    // and was offered nothing, need not hear of it.
                    self.say(offer.as_ref(), Stands::Refused, why);
                }
            }
        }
    }

    async fn look(&self, version: &Version, offer: Option<&Offer>, seen: &mut Seen) -> Result<(), Trouble> {
        let held = self.half.held();
        let own = Own { version, mode: self.mode, held: held.as_deref(), windows: self.has_windows() };
        if let Some(known) = &seen.trial
            && known.as_ref().is_none_or(|trial| !trial.is_open())
        {
            // The Deployment is asked only where something is to be done with it.
            match decide(offer, own, known.as_ref()) {
                Act::Nothing => {
                    self.remember(version, known.as_ref());
                    return Ok(());
                }
                Act::Say(stands, why) => {
                    self.say(offer, stands, why);
                    return Ok(());
                }
                Act::Begin | Act::GoBack => {}
            }
        }
        let live = self.site.read().await?;
        let trial = deployment::trial(&live);
        seen.trial = Some(trial.clone());
        let now = Time::now(&self.env);
        if let Some(trial) = trial.clone().filter(Trial::is_open) {
            self.on_trial(version, &live, trial, now, seen).await?;
        }
        let trial = seen.trial.clone().flatten();
        match decide(offer, own, trial.as_ref()) {
            Act::Nothing => self.remember(version, trial.as_ref()),
            Act::Say(stands, why) => self.say(offer, stands, why),
            Act::Begin | Act::GoBack if !self.is_active() => {
                self.say(offer, Stands::Waiting, "the agent does not act for the cluster now".to_owned());
            }
            Act::Begin | Act::GoBack if self.rights.is_unheard_for(UNHEARD) => {
                self.say(offer, Stands::Waiting, "the hub is not heard now".to_owned());
            }
            Act::Begin | Act::GoBack if !self.view.is_believed() => {
                self.view.wants_belief();
                seen.asked = true;
                self.say(offer, Stands::Waiting, "the hub is asked first which one it is".to_owned());
            }
            Act::Begin => {
                let Some(offer) = offer else { return Ok(()) };
                let trial = self.site.begin(&live, offer, version, now).await?;
                tracing::info!(version = %trial.version, image = %trial.new, "a new version of the agent is on trial");
                seen.trial = Some(Some(trial));
                self.say(Some(offer), Stands::Trying, "it is fetched and started".to_owned());
            }
            Act::GoBack => {
                let Some(trial) = trial else { return Ok(()) };
                let why = "the hub asked for it".to_owned();
                seen.trial = Some(Some(self.site.go_back(&live, trial, why.clone()).await?));
                self.say(offer, Stands::Returned, why);
            }
        }
        Ok(())
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
        if deployment::image(live)?.1 != trial.new {
            trial.end(Ended::Returned, "somebody has changed the image of the Deployment meanwhile");
            self.site.settle(live, &trial, None).await?;
            seen.trial = Some(Some(trial));
            return Ok(());
        }
        match trial.part(version) {
            Part::New if trial.taken.is_none() => {
                trial.taken = Some(now);
                self.site.keep(live, &trial).await?;
                tracing::info!(version = %trial.version, "this version of the agent is on trial");
            }
            Part::New => {
                if !seen.proof.look(self.is_well(), self.env.now()) {
                    return Ok(());
                }
                trial.end(Ended::Committed, "");
                self.site.settle(live, &trial, None).await?;
                tracing::info!(version = %trial.version, "this version of the agent has proven itself, and stays");
            }
            Part::Old if trial.taken.is_some() => {
                tracing::info!(version = %trial.version, "the new version has started: this one steps aside, and looks after it");
                self.aside.cancel();
            }
            Part::Old => {
                let Some(why) = trial.start(now) else { return Ok(()) };
                tracing::warn!(version = %trial.version, %why, "the agent stays at its version");
                trial = self.site.go_back(live, trial, why).await?;
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
            |cluster: Arc<Value>| object::annotation(&cluster, extension::WINDOWS_CLUSTER).is_some();
        self.view.get().is_some_and(annotated)
    }

    fn remember(&self, version: &Version, trial: Option<&Trial>) {
        if let Some(report) = &mut *self.told.0.lock() {
            report.about = remembered(version, trial);
        }
    }

    fn say(&self, offer: Option<&Offer>, stands: Stands, why: String) {
        let (Some(offer), Some(report)) = (offer, &mut *self.told.0.lock()) else { return };
        let about = About { version: offer.version.clone(), begun: offer.begun, stands, why };
        if report.about.as_ref() != Some(&about) {
            tracing::info!(version = %about.version, stands = ?about.stands, why = %about.why, "an offered version of the agent");
            report.about = Some(about);
        }
    }
}
