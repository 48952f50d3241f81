//! What `explain` found, as data, and as text for people.

use std::{fmt::Write, time::SystemTime};

use karmada_api::{policy::Placement, work::TargetCluster};
use karmada_core::{
    divide::Strategy,
    place::{Explained, Outcome, Verdict},
};
use karmada_meta::{
    text::line,
    time::{Time, human_age},
};
use serde::Serialize;

use super::super::table::align;

/// One thing, explained.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Report {
    Template(Box<TemplateReport>),
    Policy(Box<PolicyReport>),
}

/// Why a template is where it is.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TemplateReport {
    /// `Deployment shop/web`.
    pub object: String,
    /// Why it is never propagated, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// Every policy that looked at it, the one that has it first.
    pub policies: Vec<Considered>,
    /// Its binding and what is decided of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding: Option<BindingReport>,
    /// Where it goes and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<PlacementReport>,
    /// What keeps it from going on, beside placement.
    pub notes: Vec<String>,
    /// What to do.
    pub advice: Vec<String>,
    /// What would bring it to the clusters that it is not on, though all is as asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<String>,
}

/// A policy that looked at an object, or an object that a policy looked at.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Considered {
    /// Which.
    pub name: String,
    /// Whether the policy has the object.
    pub has: bool,
    /// How it stands to the other.
    pub standing: String,
}

/// What a binding says.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BindingReport {
    pub name: String,
    /// Where it is.
    pub clusters: Vec<TargetCluster>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_scheduled: Option<Time>,
    /// The message of its Scheduled condition.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub scheduled: String,
}

/// What placement decides now.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PlacementReport {
    /// How replicas are handed out, in words.
    pub division: String,
    /// Groups of clusters and what became of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Where it goes by what is known now; nothing where that cannot be decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clusters: Option<Vec<TargetCluster>>,
    /// Why it cannot.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// Of every cluster.
    pub verdicts: Vec<Row>,
}

/// The verdict on a cluster.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    pub cluster: String,
    /// yes, no, possible, or "not needed".
    pub verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// What the cluster has of it now.
    pub state: String,
    /// The field that decided.
    pub rule: String,
    /// What was found on the cluster.
    pub observed: String,
}

/// What a policy selects, and which clusters it means.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PolicyReport {
    pub policy: String,
    /// Objects that it means.
    pub selects: Vec<Considered>,
    /// Selectors that mean nothing, and what comes nearest.
    pub idle: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<PlacementReport>,
    /// What is to be known of the clusters that it means.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    pub advice: Vec<String>,
}

impl PlacementReport {
    /// Of a decision with its grounds; `state` tells what a cluster has now. A policy has no replicas of its own.
    pub(super) fn of(
        explained: &Explained,
        placement: &Placement,
        replicas: Option<i32>,
        state: impl Fn(&str) -> String,
    ) -> Self {
        let groups = explained.groups.iter().map(|group| match &group.result {
            None => format!("{}: not looked at, one before it was taken", group.name),
            Some(Ok(())) => format!("{}: taken", group.name),
            Some(Err(error)) => format!("{}: {error}", group.name),
        });
        Self {
            division: division(placement, replicas),
            groups: groups.collect(),
            clusters: explained.result.as_ref().ok().map(|decision| decision.clusters.clone()),
            error: explained.result.as_ref().err().map(ToString::to_string).unwrap_or_default(),
            verdicts: explained
                .verdicts
                .iter()
                .map(|verdict| Row::of(verdict, state(&verdict.cluster)))
                .collect(),
        }
    }
}

impl Row {
    fn of(verdict: &Verdict, state: String) -> Self {
        let (word, replicas) = match verdict.outcome {
            Outcome::Refused(_) => ("no", None),
            Outcome::LeftOut => ("not needed", None),
            Outcome::Fits => ("possible", None),
            Outcome::Chosen(replicas) => ("yes", Some(replicas).filter(|replicas| *replicas > 0)),
        };
        Self {
            cluster: verdict.cluster.clone(),
            verdict: word,
            replicas,
            state,
            rule: verdict.rule.clone(),
            observed: verdict.observed.clone(),
        }
    }
}

/// How replicas are handed out, in words; nothing where it is not known how many there are.
fn division(placement: &Placement, replicas: Option<i32>) -> String {
    let many = replicas.map(|replicas| format!("{replicas} ")).unwrap_or_default();
    let how = match Strategy::of(placement) {
        _ if replicas == Some(0) => return "on every chosen cluster".to_owned(),
        Strategy::Duplicated => return format!("all {many}replicas on every chosen cluster (Duplicated)"),
        Strategy::StaticWeights([]) => "equally (Divided, no weights)",
        Strategy::StaticWeights(_) => "by weights (Divided, staticWeightList)",
        Strategy::AvailableReplicas => "by the room that clusters have (Divided, dynamicWeight)",
        Strategy::Aggregated => "onto as few clusters as have room (Divided, Aggregated)",
    };
    format!("{many}replicas divided {how}")
}

/// `member1:1, member2:2`, or only names where there are no replicas.
pub(in super::super) fn places(clusters: &[TargetCluster]) -> String {
    if clusters.is_empty() {
        return "nowhere".to_owned();
    }
    let one = |target: &TargetCluster| match target.replicas {
        0 => target.name.clone(),
        replicas => format!("{}:{replicas}", target.name),
    };
    clusters.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Whether two lists place alike.
pub(super) fn alike(a: &[TargetCluster], b: &[TargetCluster]) -> bool {
    let sorted = |list: &[TargetCluster]| {
        let mut list: Vec<_> = list.iter().map(|target| (target.name.clone(), target.replicas)).collect();
        list.sort();
        list
    };
    sorted(a) == sorted(b)
}

/// How many objects of a policy are printed for people.
const SHOWN: usize = 50;
/// How many policies that do not have an object are printed for people.
const OTHERS: usize = 10;

impl Report {
    /// For people.
    pub(super) fn text(&self, now: SystemTime) -> String {
        match self {
            Self::Template(report) => report.text(now),
            Self::Policy(report) => report.text(),
        }
    }
}

/// Writes `name: text` lines with their texts below each other; further texts of a name without it.
fn field(text: &mut String, name: &str, values: impl IntoIterator<Item = String>) {
    let mut name = format!("{name}:");
    for value in values {
        // Writing to a String cannot fail. What is said may be an agent's word.
        let _ = writeln!(text, "{name:<12} {}", line(&value, usize::MAX));
        name.clear();
    }
}

fn list(text: &mut String, heading: &str, lines: &[String]) {
    if !lines.is_empty() {
        let _ = writeln!(text, "\n{heading}");
        for said in lines {
            let _ = writeln!(text, "  - {}", line(said, usize::MAX));
        }
    }
}

impl TemplateReport {
    fn text(&self, now: SystemTime) -> String {
        let mut text = format!("{}\n", self.object);
        let one = |policy: &Considered| format!("{} {}", policy.name, policy.standing);
        field(&mut text, "Skipped", self.skipped.clone());
        let has: Vec<_> = self.policies.iter().filter(|policy| policy.has).map(one).collect();
        field(&mut text, "Policy", if has.is_empty() { vec!["none".to_owned()] } else { has });
        let others: Vec<_> = self.policies.iter().filter(|policy| !policy.has).map(one).collect();
        let more = others.len().checked_sub(OTHERS).filter(|more| *more > 0);
        let more = more.map(|more| format!("and {more} more that do not mean it"));
        field(&mut text, "Others", others.into_iter().take(OTHERS).chain(more));
        if let Some(binding) = &self.binding {
            field(&mut text, "Binding", [binding.name.clone()]);
            let since = match binding.last_scheduled {
                None => String::new(),
                Some(at) => format!(" (scheduled {} ago)", human_age(Some(at), now)),
            };
            field(&mut text, "Placed", [format!("{}{since}", places(&binding.clusters))]);
            field(&mut text, "Scheduled", Some(binding.scheduled.clone()).filter(|s| !s.is_empty()));
        } else {
            field(&mut text, "Binding", ["none".to_owned()]);
        }
        if let Some(placement) = &self.placement {
            let placed = self.binding.as_ref().map(|binding| binding.clusters.as_slice());
            let same = placement.clusters.as_deref().zip(placed).is_some_and(|(a, b)| alike(a, b));
            let outcome = match &placement.clusters {
                Some(_) if same => "the same".to_owned(),
                Some(clusters) => places(clusters),
                None => placement.error.clone(),
            };
            field(&mut text, "Decided now", [outcome]);
            placement.write(&mut text);
        }
        list(&mut text, "To note:", &self.notes);
        list(&mut text, "To have it elsewhere, too:", &self.elsewhere);
        what_to_do(&mut text, &self.advice);
        text
    }
}

fn what_to_do(text: &mut String, advice: &[String]) {
    if advice.is_empty() {
        text.push_str("\nWhat to do:\n  nothing\n");
    }
    list(text, "What to do:", advice);
}

impl PlacementReport {
    fn write(&self, text: &mut String) {
        field(text, "Division", [self.division.clone()]);
        field(text, "Groups", self.groups.iter().cloned());
        if self.verdicts.is_empty() {
            return;
        }
        let heading = ["CLUSTER", "VERDICT", "REPLICAS", "STATE", "OBSERVED", "RULE"];
        let mut lines = vec![heading.map(str::to_owned).to_vec()];
        lines.extend(self.verdicts.iter().map(|row| {
            let replicas = row.replicas.map(|replicas| replicas.to_string()).unwrap_or_default();
            vec![
                row.cluster.clone(),
                row.verdict.to_owned(),
                replicas,
                row.state.clone(),
                row.observed.clone(),
                row.rule.clone(),
            ]
        }));
        text.push('\n');
        text.push_str(&align(&lines, &mut Vec::new()));
    }
}

impl PolicyReport {
    fn text(&self) -> String {
        let mut text = format!("{}\n", self.policy);
        let selects =
            self.selects.iter().take(SHOWN).map(|object| format!("{} {}", object.name, object.standing));
        let more = self.selects.len().checked_sub(SHOWN).filter(|more| *more > 0);
        field(&mut text, "Selects", selects.chain(more.map(|more| format!("and {more} more"))));
        if self.selects.is_empty() {
            field(&mut text, "Selects", ["nothing".to_owned()]);
        }
        field(&mut text, "Idle", self.idle.iter().cloned());
        if let Some(placement) = &self.placement {
            field(
                &mut text,
                "Means",
                [match &placement.clusters {
                    Some(clusters) => places(clusters),
                    None => placement.error.clone(),
                }],
            );
            placement.write(&mut text);
        }
        list(&mut text, "To note:", &self.notes);
        what_to_do(&mut text, &self.advice);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_says_its_division_as_a_template_does() {
        let placement = |scheduling: serde_json::Value| -> Placement {
            serde_json::from_value(serde_json::json!({"replicaScheduling": scheduling})).unwrap()
        };
        let divided = |how: &str| serde_json::json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": how});
        for (scheduling, replicas, want) in [
            (
                divided("Aggregated"),
                Some(3),
                "3 replicas divided onto as few clusters as have room (Divided, Aggregated)",
            ),
            (
                divided("Aggregated"),
                None,
                "replicas divided onto as few clusters as have room (Divided, Aggregated)",
            ),
            (divided("Aggregated"), Some(0), "on every chosen cluster"),
            (divided("Weighted"), None, "replicas divided equally (Divided, no weights)"),
            (serde_json::Value::Null, None, "all replicas on every chosen cluster (Duplicated)"),
            (serde_json::Value::Null, Some(2), "all 2 replicas on every chosen cluster (Duplicated)"),
        ] {
            assert_eq!(division(&placement(scheduling), replicas), want);
        }
    }

    #[test]
    fn a_template_for_people() {
        let target = |name: &str, replicas| TargetCluster::new(name, replicas);
        let row = |cluster: &str, verdict, replicas, state: &str, observed: &str, rule: &str| Row {
            cluster: cluster.into(),
            verdict,
            replicas,
            state: state.into(),
            rule: rule.into(),
            observed: observed.into(),
        };
        let now = "2026-01-01T00:10:00Z".parse::<Time>().unwrap();
        let considered = |name: &str, has, standing: &str| Considered {
            name: name.into(),
            has,
            standing: standing.into(),
        };
        let report = TemplateReport {
            object: "Deployment shop/web".into(),
            skipped: None,
            policies: vec![
                considered("PropagationPolicy shop/web", true, "has it, by name"),
                considered("ClusterPropagationPolicy all", false, "means it by kind, but …"),
            ],
            binding: Some(BindingReport {
                name: "ResourceBinding shop/web-deployment".into(),
                clusters: vec![target("a", 2), target("b", 1)],
                last_scheduled: Some("2026-01-01T00:05:00Z".parse().unwrap()),
                scheduled: String::new(),
            }),
            placement: Some(PlacementReport {
                division: "3 replicas divided by weights".into(),
                groups: vec![],
                clusters: Some(vec![target("b", 1), target("a", 2)]),
                error: String::new(),
                verdicts: vec![
                    row("a", "yes", Some(2), "applied, Healthy", "weight 2 of 3", "spec.x"),
                    row("far", "no", None, "", "it is not named", "spec.y"),
                ],
            }),
            notes: vec![],
            advice: vec!["For far: name it.".into()],
            elsewhere: vec![],
        };
        let want = "Deployment shop/web\n\
Policy:      PropagationPolicy shop/web has it, by name\n\
Others:      ClusterPropagationPolicy all means it by kind, but …\n\
Binding:     ResourceBinding shop/web-deployment\n\
Placed:      a:2, b:1 (scheduled 5m ago)\n\
Decided now: the same\n\
Division:    3 replicas divided by weights\n\
\n\
CLUSTER   VERDICT   REPLICAS   STATE              OBSERVED          RULE\n\
a         yes       2          applied, Healthy   weight 2 of 3     spec.x\n\
far       no                                      it is not named   spec.y\n\
\n\
What to do:\n\
\u{20}\u{20}- For far: name it.\n";
        assert_eq!(report.text(now.timestamp().into()), want);
        let mut evil = report;
        evil.notes = vec!["a said\n  - \u{1b}[2Jall is well".into()];
        evil.advice = evil.notes.clone();
        evil.placement.as_mut().unwrap().groups = evil.notes.clone();
        evil.placement.as_mut().unwrap().verdicts[0].state = "applied\nb\u{1b}[1A yes".into();
        let (text, lines) = (evil.text(now.timestamp().into()), want.lines().count());
        assert!(!text.contains('\u{1b}') && text.contains("applied b\u{fffd}[1A yes"), "{text}");
        // The notes with a heading and a line before it, and the groups.
        assert_eq!(text.lines().count(), lines + 4, "{text}");
        let lonely = TemplateReport { object: "Secret shop/key".into(), ..TemplateReport::default() };
        let want = "Secret shop/key\nPolicy:      none\nBinding:     none\n\nWhat to do:\n  nothing\n";
        assert_eq!(lonely.text(now.timestamp().into()), want);
    }
}
