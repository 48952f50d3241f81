//! The guard of a trial: the old version's process, when its agent has ended.

use std::time::Duration;

use karmada_client::{Rest, lease};
use karmada_core::upgrade::trial::{Ended, Trial};
use karmada_env::Env;
use serde_json::Value;

use super::{
    deployment::{self, Deployment},
    trouble::Trouble,
};

/// How often it looks.
const LOOK: Duration = Duration::from_secs(10);
/// How long the hub may take to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// What was used of its time is kept so often.
const KEEP: Duration = Duration::from_secs(60);
/// A new version that has not renewed the member's Lease for so long is not seen to live.
const STILL: Duration = Duration::from_secs(60);

/// How a trial has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The new version stays: whoever runs this one will end it.
    Committed,
    /// This version is to act again.
    Returned,
}

/// Looks after a trial.
#[derive(Clone, Debug)]
pub struct Guard {
    site: Deployment,
    member: Rest,
    hub: Rest,
    /// The path of the member's Lease.
    lease: String,
    env: Env,
}

/// What it has seen so far.
struct Sight {
    /// When the Lease was last seen to be renewed.
    renewed: (String, Duration),
    looked: Duration,
    kept: Duration,
    /// The trial with what was used of its time, which is kept less often than it is counted.
    trial: Option<Trial>,
}

impl Guard {
    /// A guard for the trial on a Deployment, by its namespace and name.
    pub fn new(member: Rest, hub: &Rest, deployment: (String, String), lease: String, env: Env) -> Self {
        let site = Deployment::new(member.clone(), deployment);
        Self { site, member, hub: hub.with_deadline(ANSWER), lease, env }
    }

    /// Looks until the trial has ended.
    pub async fn run(self) -> Outcome {
        let now = self.env.now();
        let mut sight = Sight { renewed: (String::new(), now), looked: now, kept: now, trial: None };
        loop {
            tokio::time::sleep(LOOK).await;
            match self.look(&mut sight).await {
                Ok(None) => {}
                Ok(Some(outcome)) => return outcome,
                Err(error) => {
                    // The member is away, or somebody was faster. That is no time of the new version's.
                    sight.looked = self.env.now();
                    tracing::debug!(%error, "the trial cannot be looked at");
                }
            }
        }
    }

    async fn look(&self, sight: &mut Sight) -> Result<Option<Outcome>, Trouble> {
        let live = match self.site.read().await {
            // It is not ours to make it again.
            Err(Trouble::Lasting(why)) => {
                tracing::warn!(%why, "nobody can go back from this trial");
                return Err(Trouble::Lasting(why));
            }
            live => live?,
        };
        let Some(mut trial) = deployment::trial(&live).filter(Trial::is_open) else {
            return Ok(Some(ended(&live)));
        };
        if let Some(why) = deployment::replaced(&live, &trial)? {
            tracing::warn!(version = %trial.version, %why, "the trial is over: what was before comes back");
            self.site.go_back(&live, trial, why).await?;
            return Ok(Some(Outcome::Returned));
        }
        if deployment::give_way(&live, &mut trial)? {
            tracing::warn!(version = %trial.version, why = %trial.why, "the trial is over");
            self.site.settle(&live, &trial, None).await?;
            let stays = trial.ended == Some(Ended::Committed);
            return Ok(Some(if stays { Outcome::Committed } else { Outcome::Returned }));
        }
        let linked = self.hub.get_bytes("/version", "application/json").await.is_ok();
        let lives = self.lives(sight).await;
        let now = self.env.now();
        if let Some(seen) = sight.trial.as_ref().filter(|seen| seen.since == trial.since) {
            trial.linked = trial.linked.max(seen.linked);
            trial.lifeless = seen.lifeless;
        }
        let passed = now.saturating_sub(sight.looked);
        // Whole seconds count; the rest of one does so the next time.
        sight.looked = now.saturating_sub(Duration::from_nanos(passed.subsec_nanos().into()));
        // A machine that slept was no use to anybody.
        let over = trial.spend(passed.min(LOOK + ANSWER * 2), linked, lives);
        sight.trial = Some(trial.clone());
        if let Some(why) = over {
            tracing::warn!(version = %trial.version, %why, "the trial is over: what was before comes back");
            self.site.go_back(&live, trial, why).await?;
            return Ok(Some(Outcome::Returned));
        }
        if now.saturating_sub(sight.kept) >= KEEP {
            self.site.keep(&live, &trial).await?;
            sight.kept = now;
        }
        Ok(None)
    }

    /// Whether some agent renews the Lease on the member; where nobody can say, one does.
    async fn lives(&self, sight: &mut Sight) -> bool {
        let Ok(lease) = self.member.small().get(&self.lease).await else { return true };
        let said = lease::renew_time(&lease);
        if said != sight.renewed.0 {
            sight.renewed = (said.to_owned(), self.env.now());
        }
        self.env.now().saturating_sub(sight.renewed.1) < STILL
    }
}

/// What became of a trial that goes on no more.
fn ended(live: &Value) -> Outcome {
    let trial = deployment::trial(live);
    let stays = trial.is_some_and(|trial| {
        let image = deployment::image(live).map(|(_, image)| image == trial.new);
        image.unwrap_or_default()
    });
    if stays { Outcome::Committed } else { Outcome::Returned }
}
