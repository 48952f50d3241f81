//! What an agent tells of a workload on its member: sums of what its Pods use, how the hub trusts them, and when they are worth
//! telling again.
//!
//! An agent speaks for its own cluster, and no more: figures that cannot be are refused as a whole, and its replicas count as
//! Pods of which nothing is known. Others weigh what the cluster was given ([`super::trust`]).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::metrics::{Pods, Sums};

/// What an agent reports of a workload on its member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Report {
    /// What its scale asks for there.
    pub spec_replicas: i64,
    /// What runs.
    pub status_replicas: i64,
    /// Of each metric of the FederatedHPA, in its order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<Sample>,
    /// Why nothing can be told.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// The Work's generation for which that is.
    pub generation: i64,
    /// When it was sampled, by the agent's clock: for people.
    pub at: String,
}

/// What a member says of a metric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sample {
    /// By Pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sums: Option<Sums>,
    /// One value for all, in thousandths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<i64>,
    /// Pods that are ready, beside a value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<i64>,
    /// Why there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
}

/// The most metrics that one FederatedHPA is sampled by.
pub const METRICS: usize = 32;
/// The longest of an agent's words that are passed on.
const WORDS: usize = 256;
/// No sum is larger: so many thousandths of a byte are eighty times what the largest clusters have.
const AMOUNT: i64 = 1 << 60;
/// Nor is any number of Pods: replicas are no larger.
const COUNT: i64 = i32::MAX as i64;
/// What is used has to differ by this part of what was told, to be told.
const PART: i64 = 20;

/// Whether the hub is to hear of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum News {
    /// It says what the hub knows.
    None,
    /// Pods use more, or less.
    Usage,
    /// There are other Pods, or something cannot be told any more, or can again.
    Pods,
}

impl Sample {
    /// A metric that cannot be had.
    pub fn failed(why: &str) -> Self {
        Self { error: words(why), ..Self::default() }
    }

    fn classes(&self) -> [Pods; 3] {
        let sums = self.sums.unwrap_or_default();
        [sums.ready, sums.unready, sums.missing]
    }

    fn amounts(&self) -> [i64; 2] {
        [self.sums.unwrap_or_default().ready.usage, self.value.unwrap_or_default()]
    }
}

/// Words of somebody else's, cut.
pub fn words(text: &str) -> String {
    karmada_meta::text::line(text, WORDS)
}

impl Report {
    /// One that says why nothing can be told.
    pub fn failed(why: &str) -> Self {
        Self { error: words(why), ..Self::default() }
    }

    /// Reads what stands in a Work's status.
    ///
    /// # Errors
    /// Why that is no report.
    pub fn read(status: &Value) -> Result<Self, String> {
        let metrics = status["metrics"].as_array().map_or(0, Vec::len);
        if metrics > METRICS {
            return Err(format!("it reports {metrics} metrics, and {METRICS} is the most"));
        }
        let mut report = Self::deserialize(status).map_err(|error| words(&error.to_string()))?;
        report.error = words(&report.error);
        report.at = karmada_meta::text::line(&report.at, 32);
        report.metrics.iter_mut().for_each(|sample| sample.error = words(&sample.error));
        Ok(report)
    }

    /// Checks that it answers so many metrics with figures that can be. How far they count is another matter:
    /// [`Self::within`], [`super::trust::weighed`].
    ///
    /// # Errors
    /// What cannot be.
    pub fn check(&self, asked: usize) -> Result<(), String> {
        if !self.error.is_empty() {
            return Err(self.error.clone());
        }
        if self.metrics.len() != asked {
            return Err(format!("it reports {} metrics, and {asked} were asked for", self.metrics.len()));
        }
        let count = |what: &str, is: i64| match is {
            0..=COUNT => Ok(()),
            _ => Err(format!("it reports {is} {what}, which cannot be")),
        };
        let amount = |what: &str, is: i64| match is {
            0..=AMOUNT => Ok(()),
            _ => Err(format!("it reports {is} thousandths of {what}, which cannot be")),
        };
        count("replicas", self.spec_replicas)?;
        count("replicas that run", self.status_replicas)?;
        for sample in &self.metrics {
            for class in sample.classes() {
                count("Pods", class.pods)?;
                amount("use", class.usage)?;
                amount("requests", class.requests)?;
            }
            let ready = sample.ready.unwrap_or_default();
            count("Pods that are ready", ready)?;
            if let Some(all) = sample.sums.as_ref().map(Sums::pods).filter(|all| ready > *all) {
                return Err(format!("it reports {ready} Pods that are ready, and {all} Pods in all"));
            }
            amount("a metric", sample.value.unwrap_or_default())?;
        }
        Ok(())
    }

    /// What of it counts where there are to be so many Pods at most: each class of them less in proportion, with the
    /// utilization that it has. Nothing if it has no more.
    pub fn within(&self, most: i64) -> Option<Self> {
        let is_more = |sample: &Sample| {
            sample.sums.as_ref().map_or(0, Sums::pods) > most || sample.ready.unwrap_or_default() > most
        };
        if self.spec_replicas <= most && !self.metrics.iter().any(is_more) {
            return None;
        }
        let mut within = self.clone();
        within.spec_replicas = within.spec_replicas.min(most);
        for sample in &mut within.metrics {
            sample.sums = sample.sums.map(|sums| sums.within(most));
            sample.ready = sample.ready.map(|ready| ready.min(most));
        }
        Some(within)
    }

    /// Whether it says something that the hub does not know, which has `told`.
    pub fn news(&self, told: &Self) -> News {
        let frame = |report: &Self| {
            let Self { spec_replicas, status_replicas, generation, metrics, error, .. } = report;
            (*spec_replicas, *status_replicas, *generation, metrics.len(), error.clone())
        };
        if frame(self) != frame(told) {
            return News::Pods;
        }
        let pairs = || self.metrics.iter().zip(&told.metrics);
        let pods = |sample: &Sample| {
            let classes = sample.classes().map(|class| (class.pods, class.requests));
            (classes, sample.sums.is_some(), sample.value.is_some(), sample.ready, sample.error.clone())
        };
        if pairs().any(|(new, old)| pods(new) != pods(old)) {
            return News::Pods;
        }
        let differs = |new: i64, old: i64| new.abs_diff(old).saturating_mul(PART as u64) > old.unsigned_abs();
        let used = |(new, old): (&Sample, &Sample)| {
            new.amounts().into_iter().zip(old.amounts()).any(|(new, old)| differs(new, old))
        };
        if pairs().any(used) { News::Usage } else { News::None }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(ready: Pods, missing: i64) -> Report {
        let missing = Pods { pods: missing, usage: 0, requests: missing * 500 };
        let sums = Sums { ready, missing, ..Sums::default() };
        Report {
            spec_replicas: 4,
            status_replicas: 4,
            metrics: vec![Sample { sums: Some(sums), ..Sample::default() }],
            generation: 2,
            at: "2026-11-25T10:00:00Z".to_owned(),
            ..Report::default()
        }
    }

    fn pods(pods: i64, usage: i64) -> Pods {
        Pods { pods, usage, requests: pods * 500 }
    }

    #[test]
    fn other_pods_and_a_twentieth_of_use_are_news() {
        let told = report(pods(3, 1000), 1);
        let rows = [
            ("the same later", Report { at: "later".into(), ..told.clone() }, News::None),
            ("a twentieth", report(pods(3, 1050), 1), News::None),
            ("more", report(pods(3, 1051), 1), News::Usage),
            ("less", report(pods(3, 949), 1), News::Usage),
            ("nothing", report(pods(3, 0), 1), News::Usage),
            ("one was measured", report(pods(4, 1000), 0), News::Pods),
            ("scaled", Report { spec_replicas: 5, ..told.clone() }, News::Pods),
            ("another question", Report { generation: 3, ..told.clone() }, News::Pods),
            ("nothing can be told", Report::failed("no such workload"), News::Pods),
        ];
        for (what, new, want) in rows {
            assert_eq!(new.news(&told), want, "{what}");
        }
        assert_eq!(report(pods(3, 0), 1).news(&report(pods(3, 0), 1)), News::None);
        assert_eq!(report(pods(3, 1), 1).news(&report(pods(3, 0), 1)), News::Usage);
        let with = |value: Option<i64>, error: &str| {
            let mut report = report(pods(3, 1000), 1);
            report.metrics.push(Sample { value, error: error.into(), ..Sample::default() });
            report
        };
        assert_eq!(with(Some(100), "").news(&with(Some(106), "")), News::Usage);
        assert_eq!(with(Some(100), "").news(&with(None, "gone")), News::Pods);
        assert_eq!(with(Some(0), "").news(&with(None, "")), News::Pods);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let good = report(pods(3, 1000), 1);
        assert_eq!(good.check(1), Ok(()));
        // A rollout of the member's own, a hold on what was given, what a member adds to Pods.
        let much = Report { spec_replicas: 40, ..report(Pods { pods: 39, usage: 1, requests: 1 << 50 }, 1) };
        assert_eq!(much.check(1), Ok(()));
        let mut rows = vec![
            ("another number of metrics", Report { metrics: Vec::new(), ..good.clone() }),
            ("more replicas than can be", Report { spec_replicas: 1 << 31, ..good.clone() }),
            ("less than none", Report { status_replicas: -1, ..good.clone() }),
            ("an error", Report::failed("no such workload")),
            ("use below nothing", report(pods(3, -1), 1)),
            ("use beyond everything", report(pods(3, i64::MAX), 1)),
            ("requests below nothing", report(Pods { pods: 3, usage: 0, requests: -1 }, 1)),
            ("requests beyond everything", report(Pods { pods: 3, usage: 0, requests: i64::MAX }, 1)),
            ("many Pods that add up to few", report(Pods { pods: i64::MAX, usage: 0, requests: 0 }, 1)),
            ("Pods below none", report(pods(-1, 0), 1)),
        ];
        let mut value = good.clone();
        value.metrics[0].value = Some(-1);
        rows.push(("a value below nothing", value));
        let mut ready = good;
        ready.metrics[0].ready = Some(5);
        rows.push(("more that are ready than there are", ready));
        for (what, report) in rows {
            assert!(report.check(1).is_err(), "{what}");
        }
    }

    #[test]
    fn more_pods_than_there_are_to_be_count_less_in_proportion() {
        let of = |pods: i64, usage: i64| Pods { pods, usage, requests: pods * 500 };
        // ready, unready, missing, the most ─▶ what counts of them
        let rows = [
            ((of(3, 900), of(0, 0), of(0, 0)), 3, None),
            ((of(10, 900), of(0, 0), of(0, 0)), 3, Some((of(3, 270), of(0, 0), of(0, 0)))),
            ((of(6, 600), of(2, 0), of(2, 0)), 5, Some((of(3, 300), of(1, 0), of(1, 0)))),
            ((of(1, 100), of(0, 0), of(9, 0)), 2, Some((of(1, 100), of(0, 0), of(1, 0)))),
            ((of(9, 900), of(0, 0), of(1, 0)), 2, Some((of(1, 100), of(0, 0), of(1, 0)))),
            ((of(9, 900), of(9, 0), of(9, 0)), 1, Some((of(1, 100), of(0, 0), of(0, 0)))),
            ((of(9, 900), of(0, 0), of(0, 0)), 0, Some((of(0, 0), of(0, 0), of(0, 0)))),
        ];
        for ((ready, unready, missing), most, want) in rows {
            let mut report = report(ready, 0);
            report.spec_replicas = most;
            report.metrics[0].sums = Some(Sums { ready, unready, missing });
            let want = want.map(|(ready, unready, missing)| Sums { ready, unready, missing });
            let got = report.within(most).map(|report| report.metrics[0].sums.unwrap());
            assert_eq!(got, want, "{ready:?} {unready:?} {missing:?} {most}");
        }
        let mut shared = report(pods(3, 1000), 1);
        shared.metrics.push(Sample { value: Some(7), ready: Some(9), ..Sample::default() });
        let within = shared.within(4).unwrap();
        assert_eq!((within.metrics[1].value, within.metrics[1].ready), (Some(7), Some(4)));
        assert_eq!(within.metrics[0], shared.metrics[0]);
        assert_eq!(shared.within(3).unwrap().spec_replicas, 3);
    }

    #[test]
    fn a_report_is_small_and_read_as_it_was_written() {
        let report = report(pods(3, 1000), 0);
        let text = serde_json::to_string(&report).unwrap();
        assert!(text.len() < 180, "{} {text}", text.len());
        assert_eq!(Report::read(&serde_json::from_str(&text).unwrap()), Ok(report));
        let many = json!({"metrics": vec![json!({}); METRICS + 1]});
        assert!(Report::read(&many).unwrap_err().contains("is the most"));
        assert!(Report::read(&json!({"specReplicas": 1.5})).is_err());
        assert!(Report::read(&json!({"specReplicas": 1e300})).is_err());
        let long = json!({"error": "x".repeat(1 << 20)});
        assert!(Report::read(&long).unwrap().error.len() <= WORDS + 3);
    }
}
