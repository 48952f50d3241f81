//! How far one cluster is believed about a workload that is on many.
//!
//! ```text
//!   Work on the cluster, after overrides ─▶ Given ─▶ a report counts for no more Pods, and each for what its template asks for
//!   what the report says, what was given, the clock ─▶ Evidence ─▶ it still tells how things are, or its cluster is silent
//!   any report of the cluster's, the clock ─▶ Pulse ─▶ its agent samples, or is to be asked, or its cluster is silent
//! ```
//!
//! A cluster may say that its own Pods are busy or idle. It must not outweigh the others by Pods that it was not given, by
//! requests that nobody made, or by a word that is older than what it is about. Honest ones say such things as well: a member
//! adds sidecars, a template was changed, a rollout has a second set of Pods. So nothing of that is refused. It weighs what was
//! given, with the utilization that the cluster says.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use karmada_meta::object;
use serde_json::Value;

use super::{
    metrics::{Pods, Sums, Target},
    report::Report,
};

/// Of what a cluster's Pods use, so many times their target counts where there are others. What is above that counts when there are
/// more Pods.
pub const USE: i64 = 4;
/// A rollout's Pods beyond its replicas where its template does not say: 25 %, as in a Deployment.
const SURGE: i64 = 25;
/// What a Pod counts for whose template asks for nothing, so that no cluster's Pods count for more than another's.
const UNIT: i64 = 1000;

/// What a cluster was given of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// Replicas.
    pub replicas: i64,
    /// Pods beyond them while it rolls out.
    pub surge: i64,
    /// What each Pod asks for of each resource, in thousandths.
    pub requests: Arc<BTreeMap<String, i64>>,
    /// The member keeps replicas of its own, whatever it is given. It counts for what it was given all the same.
    pub retains: bool,
}

impl Given {
    /// What a manifest gives: so many replicas, each with these requests.
    pub fn of(manifest: &Value, replicas: i64, requests: Arc<BTreeMap<String, i64>>) -> Self {
        let retains = object::label(manifest, karmada_api::consts::label::RETAIN_REPLICAS) == Some("true");
        Self { replicas, surge: surge(manifest, replicas), requests, retains }
    }

    /// What a Pod asks for of a resource, in thousandths; nothing if that is not known.
    pub fn request(&self, resource: &str) -> Option<i64> {
        self.requests.get(resource).copied().filter(|request| *request > 0)
    }

    /// The most Pods that count: its replicas, and those of a rollout. Of a member that keeps replicas of its own there may be any
    /// number.
    pub fn pods(&self) -> i64 {
        if self.retains { self.replicas } else { self.replicas.saturating_add(self.surge) }
    }
}

/// The Pods that a rollout may have beyond its replicas.
fn surge(manifest: &Value, replicas: i64) -> i64 {
    let percent = |percent: i64| (i128::from(replicas.max(0)) * i128::from(percent) + 99) / 100;
    let of = |percent_of: i64| i64::try_from(percent(percent_of)).unwrap_or(i64::MAX);
    let said = match manifest.pointer("/spec/strategy/rollingUpdate/maxSurge") {
        Some(Value::Number(pods)) => pods.as_i64(),
        Some(Value::String(text)) => text.strip_suffix('%').and_then(|text| text.parse().ok()).map(of),
        _ => None,
    };
    said.unwrap_or_else(|| of(SURGE)).max(1)
}

/// The most Pods that a cluster may have had lately: what it reports may be from before it was given fewer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lately {
    most: i64,
    at: Duration,
}

impl Lately {
    /// It may have so many now. Answers how many it may have had within `window`.
    pub fn most(&mut self, pods: i64, now: Duration, window: Duration) -> i64 {
        if pods >= self.most || now.saturating_sub(self.at) > window {
            *self = Self { most: pods, at: now };
        }
        self.most
    }
}

/// Whether what a cluster has reported still tells how things are there.
///
/// Agents tell what changes. One whose cluster was given other replicas and that says nothing new about them does not sample any
/// more: it may have been replaced by one that does not.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// The replicas that its cluster was given, and since when.
    given: Option<(i64, Duration)>,
    /// What it said last, and since when.
    told: Option<(Arc<Report>, Duration)>,
    /// That is too old to count, until it says something else.
    expired: bool,
}

impl Evidence {
    /// The replicas for which a report stands, if it counts. Its cluster was `given` so many; within `settles` it need not know.
    pub fn weigh(
        &mut self,
        report: &Arc<Report>,
        given: &Given,
        now: Duration,
        settles: Duration,
    ) -> Option<i64> {
        if given.retains {
            // Its replicas say nothing about how new its report is.
            return Some(report.spec_replicas.min(given.replicas));
        }
        if self.told.as_ref().is_none_or(|(told, _)| !Arc::ptr_eq(told, report) && told != report) {
            (self.told, self.expired) = (Some((Arc::clone(report), now)), false);
        }
        if self.given.is_none_or(|(known, _)| known != given.replicas) {
            self.given = Some((given.replicas, now));
        }
        let since = |at: Option<Duration>| at.map_or(Duration::ZERO, |at| now.saturating_sub(at));
        let changed = since(self.given.map(|(_, at)| at));
        let told = since(self.told.as_ref().map(|(_, at)| *at));
        let knows = report.spec_replicas == given.replicas;
        self.expired |= !knows && changed > settles && (told > settles || told >= changed);
        match (self.expired, changed > settles) {
            (true, _) => None,
            // What it says of its replicas may be from before.
            (false, false) => Some(given.replicas),
            (false, true) => Some(report.spec_replicas.min(given.replicas)),
        }
    }
}

/// After so long without a word of an agent's sampling it is asked for one.
pub const RENEWS: Duration = Duration::from_secs(600);
/// And has so long to say it.
pub const ANSWERS: Duration = Duration::from_secs(120);

/// Whether the agent of a cluster samples at all.
///
/// Agents tell what changes, so one that says nothing may have nothing to say. Or it does not sample any more: it was replaced by
/// one that does not, and its last words stand as they are. One answer to any question of the hub's shows that it does, and what
/// it has told of all its workloads holds. So a cluster is asked once in ten minutes, however many workloads it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulse {
    /// When it said something last.
    told: Duration,
    /// Nothing was heard of it yet: what it has said was found.
    found: bool,
    /// Since when an answer is due.
    asked: Option<Duration>,
    /// And was already when that was found.
    overdue: bool,
}

/// How an agent's sampling stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beat {
    /// It has said something lately, or has time to.
    Alive,
    /// It is to be asked.
    Due,
    /// It was asked, and has not answered in time.
    Silent,
}

impl Pulse {
    /// That of an agent whose last words are found now. When they were said nobody knows.
    pub fn found(now: Duration) -> Self {
        Self { told: now, found: true, asked: None, overdue: false }
    }

    /// Something new was told of any workload.
    pub fn told(&mut self, now: Duration) {
        *self = Self { found: false, ..Self::found(now) };
    }

    /// It is asked.
    pub fn asked(&mut self, now: Duration) {
        self.asked.get_or_insert(now);
    }

    /// It owes an answer. One that owed it before anybody looked had its time: it needs seconds, if it samples.
    pub fn owes(&mut self, now: Duration) {
        if self.asked.is_none() {
            (self.asked, self.overdue) = (Some(now), self.found);
        }
    }

    /// How it stands.
    pub fn beat(&self, now: Duration) -> Beat {
        match self.asked {
            Some(asked) if self.overdue || now.saturating_sub(asked) > ANSWERS => Beat::Silent,
            Some(_) => Beat::Alive,
            None if now.saturating_sub(self.told) >= RENEWS => Beat::Due,
            None => Beat::Alive,
        }
    }
}

/// How many clusters of a workload are asked anew in one look.
pub fn asked_at_once(clusters: usize) -> usize {
    clusters / 20 + 16
}

/// What counts of a cluster's sums. Where requests are what use is held against, each Pod weighs what its template asks for, and
/// uses the part of that which it uses of what it asks for on the member. Use counts up to a multiple of the target, unless the
/// cluster is `alone`: it outweighs nobody.
pub fn weighed(mut sums: Sums, target: Target, request: Option<i64>, alone: bool) -> Sums {
    let pods = sums.ready.pods;
    let of = match target {
        Target::Utilization(_) => {
            let weight = request.unwrap_or(UNIT);
            for class in [&mut sums.ready, &mut sums.unready, &mut sums.missing] {
                *class = level(*class, weight);
            }
            sums.ready.requests
        }
        Target::Average(_) => pods,
    };
    if !alone {
        sums.ready.usage = sums.ready.usage.min(most(target, of));
    }
    sums
}

/// What Pods weigh of which nobody has measured anything.
pub fn unknown(pods: i64, request: Option<i64>) -> Pods {
    Pods { pods, usage: 0, requests: pods.saturating_mul(request.unwrap_or(UNIT)) }
}

/// Pods of the same utilization that ask for so much each.
fn level(pods: Pods, weight: i64) -> Pods {
    let requests = pods.pods.saturating_mul(weight);
    let usage = match pods.requests {
        ..=0 => 0,
        asked => {
            let asked = i128::from(asked);
            let usage = (i128::from(pods.usage) * i128::from(requests) + asked / 2) / asked;
            i64::try_from(usage).unwrap_or(i64::MAX)
        }
    };
    Pods { pods: pods.pods, usage, requests }
}

/// The most that counts of the use of Pods that ask for so much, or of so many.
fn most(target: Target, of: i64) -> i64 {
    let most = match target {
        Target::Utilization(percent) => i128::from(of) * i128::from(percent) * i128::from(USE) / 100,
        Target::Average(amount) => i128::from(of) * i128::from(amount) * i128::from(USE),
    };
    i64::try_from(most).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn given(strategy: &Value, replicas: i64) -> Given {
        Given::of(&json!({"spec": {"strategy": strategy}}), replicas, Arc::default())
    }

    #[test]
    fn a_rollout_may_have_more_pods_than_replicas() {
        let surge = |text: Value| json!({"rollingUpdate": {"maxSurge": text}});
        let rows = [
            ("as usual", Value::Null, 10, 13),
            ("as usual, of few", Value::Null, 1, 2),
            ("of none", Value::Null, 0, 1),
            ("a number", surge(json!(5)), 10, 15),
            ("a part", surge(json!("100%")), 10, 20),
            ("nothing", surge(json!(0)), 10, 11),
            ("no number", surge(json!("many")), 10, 13),
        ];
        for (what, strategy, replicas, want) in rows {
            assert_eq!(given(&strategy, replicas).pods(), want, "{what}");
        }
        let retained =
            json!({"metadata": {"labels": {"resourcetemplate.karmada.io/retain-replicas": "true"}}});
        assert!(Given::of(&retained, 1, Arc::default()).retains && !given(&Value::Null, 1).retains);
        assert_eq!(Given::of(&retained, 10, Arc::default()).pods(), 10, "it keeps its own");
    }

    #[test]
    fn fewer_pods_are_believed_some_time_after_fewer_were_given() {
        let s = Duration::from_secs;
        let mut lately = Lately::default();
        let rows = [(10, 0, 10), (2, 1, 10), (3, 120, 10), (2, 121, 2), (4, 122, 4), (2, 243, 2)];
        for (pods, now, want) in rows {
            assert_eq!(lately.most(pods, s(now), s(120)), want, "at {now}");
        }
    }

    /// An agent that was replaced by one that does not sample leaves its last report behind.
    #[test]
    fn a_report_that_is_not_renewed_after_a_change_is_no_evidence() {
        let s = Duration::from_secs;
        let of = |replicas: i64, at: &str| {
            Arc::new(Report { spec_replicas: replicas, at: at.to_owned(), ..Report::default() })
        };
        // replicas given, replicas reported, when that was sampled, now ─▶ for how many it stands
        let rows = [
            ("as given", 4, 4, "a", 0, Some(4)),
            ("a long time", 4, 4, "a", 9_000, Some(4)),
            ("just changed", 8, 4, "a", 9_010, Some(8)),
            ("on its way", 8, 4, "a", 9_130, Some(8)),
            ("not renewed", 8, 4, "a", 9_131, None),
            ("changed once more, to what it says", 4, 4, "a", 9_140, None),
            ("renewed", 4, 4, "b", 9_150, Some(4)),
            ("changed for a moment", 5, 4, "b", 9_160, Some(5)),
            ("and back", 4, 4, "b", 9_200, Some(4)),
            ("much later", 4, 4, "b", 9_900, Some(4)),
            ("held on the member", 6, 4, "b", 10_000, Some(6)),
            ("held, and told", 6, 4, "c", 10_115, Some(6)),
            ("held for long", 6, 4, "c", 10_200, Some(4)),
            ("held, and told again", 6, 4, "d", 10_330, Some(4)),
            ("held, and silent", 6, 4, "d", 10_451, None),
            ("more than was given", 2, 4, "e", 10_460, Some(2)),
            ("still more", 2, 4, "f", 10_600, Some(2)),
        ];
        let mut evidence = Evidence::default();
        for (what, replicas, reported, at, now, want) in rows {
            let given = given(&Value::Null, replicas);
            assert_eq!(evidence.weigh(&of(reported, at), &given, s(now), s(120)), want, "{what}");
        }
        let keeps = Given { retains: true, ..given(&Value::Null, 2) };
        let weigh =
            |evidence: &mut Evidence, replicas| evidence.weigh(&of(replicas, "f"), &keeps, s(99_999), s(120));
        assert_eq!([9, 2, 1].map(|replicas| weigh(&mut evidence, replicas)), [Some(2), Some(2), Some(1)]);
    }

    /// One that says nothing new is asked, and silent when it does not answer; any word is an answer.
    #[test]
    fn an_agent_that_says_nothing_is_asked_whether_it_samples() {
        let s = Duration::from_secs;
        enum Does {
            Nothing,
            Asked,
            Told,
            Owes,
        }
        use Does::{Asked, Nothing, Owes, Told};
        let rows = [
            ("just found", Nothing, 0, Beat::Alive),
            ("a while", Nothing, 599, Beat::Alive),
            ("ten minutes", Nothing, 600, Beat::Due),
            ("asked", Asked, 610, Beat::Alive),
            ("owes that", Owes, 620, Beat::Alive),
            ("asked for another workload", Asked, 700, Beat::Alive),
            ("has time", Nothing, 730, Beat::Alive),
            ("has not answered", Nothing, 731, Beat::Silent),
            ("asked again", Asked, 740, Beat::Silent),
            ("an hour", Nothing, 4_000, Beat::Silent),
            ("answers", Told, 4_010, Beat::Alive),
            ("a while", Nothing, 4_609, Beat::Alive),
            ("ten minutes", Nothing, 4_610, Beat::Due),
            ("changed by itself", Told, 4_620, Beat::Alive),
            ("owes something since", Owes, 4_630, Beat::Alive),
            ("has not answered", Nothing, 4_751, Beat::Silent),
        ];
        let mut pulse = Pulse::found(s(0));
        for (what, does, now, want) in rows {
            match does {
                Nothing => {}
                Asked => pulse.asked(s(now)),
                Told => pulse.told(s(now)),
                Owes => pulse.owes(s(now)),
            }
            assert_eq!(pulse.beat(s(now)), want, "{what}, at {now}");
        }
        // A question that was not answered when the hub began has had its time.
        let mut pulse = Pulse::found(s(0));
        pulse.owes(s(1));
        assert_eq!(pulse.beat(s(1)), Beat::Silent);
        pulse.told(s(2));
        assert_eq!(pulse.beat(s(2)), Beat::Alive);
        assert_eq!([0, 19, 20, 1000].map(asked_at_once), [16, 16, 17, 66]);
    }

    #[test]
    fn use_counts_up_to_a_multiple_and_requests_as_the_template_has_them() {
        let ready = |pods: i64, usage: i64, requests: i64| Sums {
            ready: Pods { pods, usage, requests },
            ..Sums::default()
        };
        let half = Target::Utilization(50);
        let rows = [
            ("as it is", ready(2, 900, 2000), half, Some(1000), ready(2, 900, 2000)),
            ("beyond everything", ready(2, i64::MAX, 2000), half, Some(1000), ready(2, 4000, 2000)),
            ("of values", ready(2, 900, 0), Target::Average(100), None, ready(2, 800, 0)),
            ("nobody knows what they ask for", ready(2, 900, 9000), half, None, ready(2, 200, 2000)),
            ("they ask for nothing", ready(2, 900, 0), half, None, ready(2, 0, 2000)),
            ("beyond what they ask for", ready(2, i64::MAX, 8000), half, Some(1000), ready(2, 4000, 2000)),
            ("sidecars", ready(2, 120, 240), half, Some(20), ready(2, 20, 40)),
            ("a template that asks for less", ready(2, 1600, 2000), half, Some(200), ready(2, 320, 400)),
            ("a template that asks for more", ready(2, 320, 400), half, Some(1000), ready(2, 1600, 2000)),
            ("requests that nobody makes", ready(2, 0, 80_000), half, Some(1000), ready(2, 0, 2000)),
        ];
        for (what, sums, target, request, want) in rows {
            assert_eq!(weighed(sums, target, request, false), want, "{what}");
        }
        let alone = |sums, request| weighed(sums, half, request, true);
        assert_eq!(alone(ready(2, 9000, 2000), Some(1000)), ready(2, 9000, 2000), "nobody is outweighed");
        assert_eq!(
            alone(ready(2, 9000, 2000), Some(500)),
            ready(2, 4500, 1000),
            "requests are the template's"
        );
    }
}
