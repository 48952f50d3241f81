//! A new version on trial: what is remembered of it where a power cut does not reach, and when it is given up.
//!
//! ```text
//!   begun ─ the new one starts: taken ─▶ it has the Lease of the hub, and every Work was looked at ─▶ committed
//!     │                                   └ it does not live, or the hub can be reached and it does not prove itself ─▶ returned
//!     ├ it does not start in time ─▶ returned
//!     └ somebody at the cluster changes what the trial stands on ─▶ the agent gives way: what they have put there stays
//! ```
//!
//! Who looks is the old version, which stays beside. It asks the hub for a sign of its own: time in which the hub cannot be reached
//! from here says nothing against the new version, and does not count, nor does time in which nobody looked. That holds from the
//! beginning on: without a link an image cannot be fetched, either. What was counted is kept with the trial.

use std::time::Duration;

use karmada_meta::{duration, time::Time};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Offer, Version};

/// How long a new version may take to be fetched and to start, while the hub can be reached. The old one is at work meanwhile.
pub const START: Duration = Duration::from_secs(20 * 60);
/// How long it may take to prove itself, while the hub can be reached.
pub const PROOF: Duration = Duration::from_secs(10 * 60);
/// How long nothing may be seen of it, whether or not the hub can be reached.
pub const LIFE: Duration = Duration::from_secs(10 * 60);
/// For how long it has to be well before it counts as proven.
pub const WELL: Duration = Duration::from_secs(30);

/// How a trial ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// The new version stays.
    Committed,
    /// The old one is back.
    Returned,
}

/// Which part of it a running agent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The version that is on trial.
    New,
    /// The one that was there before.
    Old,
    /// Neither of them: somebody else has changed the version.
    Neither,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trial {
    /// The version on trial.
    pub version: String,
    /// The time of its offer.
    pub begun: Time,
    /// The version before.
    pub was: String,
    /// What ran before: an image, or a place.
    pub old: String,
    /// What is tried.
    pub new: String,
    /// What else was changed for the trial, as it was.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub kept: Value,
    /// The generation of what was changed for the trial, once it was; where that is not known, nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// When it was begun here.
    pub since: Time,
    /// Seconds before it has started in which the old version was at work, and heard the hub.
    #[serde(default)]
    pub waited: u64,
    /// When the new version had started, and asked the old one to step aside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<Time>,
    /// Seconds since then in which the hub could be reached.
    #[serde(default)]
    pub linked: u64,
    /// Seconds since the new version was last seen to live.
    #[serde(default)]
    pub lifeless: u64,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
    /// It ended because somebody at the cluster has changed what it stood on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gave_way: bool,
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

impl Trial {
    /// One of what is offered, which begins now in the place of what runs: its version, and where it is.
    pub fn of(offer: &Offer, was: &Version, old: &str, new: &str, now: Time) -> Self {
        Self {
            version: offer.version.clone(),
            begun: offer.begun,
            was: was.to_string(),
            old: old.to_owned(),
            new: new.to_owned(),
            kept: Value::Null,
            generation: None,
            since: now,
            waited: 0,
            taken: None,
            linked: 0,
            lifeless: 0,
            ended: None,
            gave_way: false,
            why: String::new(),
        }
    }

    /// Reads what was kept; nothing where there was none, or nobody can say what it is.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// As it is kept.
    pub fn write(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether it goes on.
    pub fn is_open(&self) -> bool {
        self.ended.is_none()
    }

    /// Which part an agent of a version has in it.
    pub fn part(&self, version: &Version) -> Part {
        let is = |text: &str| text.parse::<Version>().ok().as_ref() == Some(version);
        match (is(&self.version), is(&self.was)) {
            (true, _) => Part::New,
            (false, true) => Part::Old,
            (false, false) => Part::Neither,
        }
    }

    /// A time has passed in which the old version was at work, and heard the hub or not. Why it is given up before the new version
    /// has started, if it is.
    pub fn wait(&mut self, time: Duration, heard: bool) -> Option<String> {
        if self.taken.is_some() || !heard {
            return None;
        }
        self.waited = self.waited.saturating_add(time.as_secs());
        (Duration::from_secs(self.waited) >= START).then(|| {
            format!(
                "{} did not start within {} in which the hub could be reached: look at the Pods of its Deployment, and whether the \
                 image can be pulled",
                self.version,
                duration::format(START)
            )
        })
    }

    /// A time has passed in which the hub could be reached or not, and the new version was seen to live or not. Why it is given
    /// up, if it is.
    pub fn spend(&mut self, time: Duration, linked: bool, lives: bool) -> Option<String> {
        if linked {
            self.linked = self.linked.saturating_add(time.as_secs());
        }
        self.lifeless = if lives { 0 } else { self.lifeless.saturating_add(time.as_secs()) };
        let version = &self.version;
        if Duration::from_secs(self.lifeless) >= LIFE {
            return Some(format!(
                "{version} started, and nothing was seen of it for {}: it may crash",
                duration::format(LIFE)
            ));
        }
        (Duration::from_secs(self.linked) >= PROOF).then(|| {
            format!(
                "{version} did not renew its Lease on the hub and carry out all Works within {} in which the hub could be reached \
                 from here",
                duration::format(PROOF)
            )
        })
    }

    /// It ends.
    pub fn end(&mut self, how: Ended, why: impl Into<String>) {
        (self.ended, self.why) = (Some(how), why.into());
    }

    /// It ends because of what somebody at the cluster did; `stays` says whether they have left the new version there.
    pub fn give_way(&mut self, stays: bool, what: &str) {
        let how = if stays { Ended::Committed } else { Ended::Returned };
        self.end(
            how,
            format!(
                "Somebody changed {what} of the agent's Deployment while {} was on trial. The agent left it so and ended the \
                 trial. abort and then resume, or a new request, tries again",
                self.version
            ),
        );
        self.gave_way = true;
    }
}

/// For how long a new version has been well.
#[derive(Clone, Copy, Debug, Default)]
pub struct Proof(Option<Duration>);

impl Proof {
    /// It is well or not at a monotonic time. Whether it is proven.
    pub fn look(&mut self, well: bool, now: Duration) -> bool {
        self.0 = well.then(|| self.0.unwrap_or(now));
        self.0.is_some_and(|since| now.saturating_sub(since) >= WELL)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn offer() -> Offer {
        Offer {
            version: "0.6.0".into(),
            begun: "2026-11-26T01:00:00Z".parse().unwrap(),
            image: String::new(),
            programs: Vec::new(),
            returns: false,
            downgrade: false,
            spread: 0,
        }
    }

    pub(in super::super) fn trial() -> Trial {
        let offer = offer();
        let (old, new) = ("x/karmada-agent:0.5.0", "x/karmada-agent:0.6.0");
        Trial::of(&offer, &"0.5.0".parse().unwrap(), old, new, "2026-11-26T02:00:00Z".parse().unwrap())
    }

    const STEP: Duration = Duration::from_secs(60);

    #[test]
    fn what_is_kept_is_read_back() {
        let mut trial = trial();
        trial.end(Ended::Returned, "why");
        assert_eq!(Trial::read(&trial.write()), Some(trial));
        assert_eq!(Trial::read("{}"), None);
    }

    #[test]
    fn each_version_knows_its_part() {
        for (version, want) in
            [("0.6.0", Part::New), ("0.5.0", Part::Old), ("0.5.1", Part::Neither), ("0.7.0", Part::Neither)]
        {
            assert_eq!(trial().part(&version.parse().unwrap()), want, "{version}");
        }
    }

    #[test]
    fn one_that_does_not_start_is_given_up_while_the_hub_can_be_reached() {
        let mut trial = trial();
        for _ in 0..10_000 {
            assert_eq!(trial.wait(STEP, false), None);
        }
        for _ in 0..19 {
            assert_eq!(trial.wait(STEP, true), None);
        }
        // A power cut in between loses nothing, and however long it takes counts for nothing.
        let mut trial = Trial::read(&trial.write()).unwrap();
        assert_eq!(trial.wait(Duration::ZERO, true), None);
        let mut started = Trial { taken: Some(trial.since), ..trial.clone() };
        assert_eq!(started.wait(STEP * 100, true), None);
        assert!(trial.wait(STEP, true).unwrap().contains("did not start within 20m0s"));
    }

    #[test]
    fn what_an_earlier_version_has_kept_is_read() {
        let mut kept = serde_json::to_value(trial()).unwrap();
        kept.as_object_mut().unwrap().remove("waited");
        assert_eq!(Trial::read(&kept.to_string()), Some(trial()));
        let mut over = trial();
        over.give_way(false, "the image (x:1 now)");
        assert!((over.ended, over.gave_way) == (Some(Ended::Returned), true) && over.why.contains("x:1"));
        assert_eq!(Trial::read(&over.write()), Some(over));
    }

    #[test]
    fn time_without_a_link_says_nothing_against_it() {
        let mut trial = trial();
        for _ in 0..10_000 {
            assert_eq!(trial.spend(STEP, false, true), None);
        }
        for _ in 0..9 {
            assert_eq!(trial.spend(STEP, true, true), None);
        }
        // A power cut in between loses nothing.
        let mut trial = Trial::read(&trial.write()).unwrap();
        assert!(
            trial.spend(STEP, true, true).unwrap().contains("within 10m0s in which the hub could be reached")
        );
    }

    #[test]
    fn one_that_is_not_seen_to_live_is_given_up_without_the_hub() {
        let mut trial = trial();
        for lives in [false, true].repeat(100) {
            assert_eq!(trial.spend(STEP * 5, false, lives), None);
        }
        assert_eq!(trial.spend(STEP * 9, false, false), None);
        assert!(trial.spend(STEP, false, false).unwrap().contains("it may crash"));
    }

    #[test]
    fn it_has_to_be_well_for_a_while() {
        let mut proof = Proof::default();
        let at = Duration::from_secs;
        let rows = [
            (false, 0, false),
            (true, 5, false),
            (true, 34, false),
            (false, 35, false),
            (true, 40, false),
            (true, 70, true),
        ];
        for (well, now, want) in rows {
            assert_eq!(proof.look(well, at(now)), want, "{now}");
        }
    }
}
