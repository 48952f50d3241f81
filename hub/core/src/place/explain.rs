//! Why each cluster was taken or not, for people who ask.
//!
//! The decision is made once more, by the functions that make it; what they refuse is put into words here, with the
//! field of the policy that speaks and what was found on the cluster.

use std::{collections::BTreeMap, fmt};

use karmada_api::policy::Placement;

use super::{
    Decision, PlaceError, Reason, Request, ask,
    filter::{Filter, Term},
    terms,
};
use crate::{
    affinity::{self, Part},
    fleet::Member,
};

/// What became of one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It cannot take the object.
    Refused(Reason),
    /// It can, and others were chosen, or it got no replicas.
    LeftOut,
    /// It gets so many replicas; 0 for objects that have none.
    Chosen(i32),
}

/// The verdict on one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The cluster.
    pub cluster: String,
    /// What became of it.
    pub outcome: Outcome,
    /// The field that decided: `spec.placement.clusterAffinity.labelSelector`.
    pub rule: String,
    /// What was found there: `region is "eu"`.
    pub observed: String,
}

/// A decision with all its grounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// What is decided.
    pub result: Result<Decision, PlaceError>,
    /// The verdict on each cluster, by name.
    pub verdicts: Vec<Verdict>,
}

/// Decides where an object goes, and says why.
pub fn explain(request: &Request<'_>) -> Explained {
    let result = super::schedule(request);
    let Ok((placement, terms)) = terms(request) else {
        return Explained { result, verdicts: Vec::new() };
    };
    // The group that was taken, or else the first, whose error is the one reported.
    let taken = result.as_ref().map(|decision| decision.affinity.as_str()).unwrap_or_default();
    let term = terms
        .iter()
        .find(|term| term.name() == taken)
        .or_else(|| terms.first())
        .copied()
        .unwrap_or(Term::All);
    let targets: BTreeMap<_, _> = result
        .iter()
        .flat_map(|decision| &decision.clusters)
        .map(|target| (target.name.as_str(), target.replicas))
        .collect();
    let mut filter = Filter::new(request, placement, term);
    let words = Words { request, placement, term };
    let verdicts = request.fleet.members().iter().map(|member| {
        let judged = filter.judge(member);
        words.verdict(member, judged, &filter, targets.get(member.name()).copied())
    });
    let verdicts = verdicts.collect();
    Explained { result, verdicts }
}

struct Words<'a> {
    request: &'a Request<'a>,
    placement: &'a Placement,
    term: Term<'a>,
}

impl Words<'_> {
    fn verdict(
        &self,
        member: &Member,
        judged: Result<usize, Reason>,
        filter: &Filter<'_>,
        target: Option<i32>,
    ) -> Verdict {
        let (outcome, rule, observed) = match (judged, target) {
            (Err(reason), _) => {
                let (rule, observed) = self.refusal(&reason, member, filter);
                (Outcome::Refused(reason), rule, observed)
            }
            (Ok(_), Some(replicas)) => (Outcome::Chosen(replicas), self.affinity_field(), self.room(member)),
            (Ok(_), None) => {
                let spread = !self.placement.spread_constraints.is_empty();
                let field = if spread { "spreadConstraints" } else { "replicaScheduling" };
                (Outcome::LeftOut, format!("spec.placement.{field}"), self.room(member))
            }
        };
        Verdict { cluster: member.name().to_owned(), outcome, rule, observed }
    }

    fn affinity_field(&self) -> String {
        match self.term {
            Term::Group(at, _) => format!("spec.placement.clusterAffinities[{at}]"),
            Term::All | Term::One(_) => "spec.placement.clusterAffinity".into(),
        }
    }

    /// What room there is, where that mattered.
    fn room(&self, member: &Member) -> String {
        ask(self.request.spec, self.placement).map_or_else(String::new, |ask| {
            let room = ask.room(member);
            format!("room for {} more (limited by {})", room.replicas, room.limit)
        })
    }

    fn refusal(&self, reason: &Reason, member: &Member, filter: &Filter<'_>) -> (String, String) {
        let cluster = member.cluster();
        let resource = &self.request.spec.resource;
        match reason {
            Reason::Affinity => self.affinity(member, filter),
            Reason::Taint(taint) => {
                ("spec.placement.clusterTolerations".into(), format!("the taint {taint} is not tolerated"))
            }
            Reason::Api => {
                let complete =
                    cluster.status.as_ref().is_some_and(|status| !status.api_enablements.is_empty());
                let found = if complete { "it does not serve" } else { "it has reported no APIs, so not" };
                (
                    "spec.resourceSelectors".into(),
                    format!("{found} {} {}", resource.api_version, resource.kind),
                )
            }
            Reason::NoField(field) => {
                ("spec.placement.spreadConstraints".into(), format!("its {field} is not set"))
            }
            Reason::GroupElsewhere | Reason::GroupThere => {
                let others = filter.peers_against(reason, member.name()).join(", ");
                let (field, found) = match reason {
                    Reason::GroupThere => ("antiAffinity", "is there already"),
                    _ => ("affinity", "is not there"),
                };
                (
                    format!("spec.placement.workloadAffinity.{field}"),
                    format!("{others} of the same group {found}"),
                )
            }
            Reason::Evicting => {
                let tasks = &self.request.spec.graceful_eviction_tasks;
                let why =
                    tasks.iter().find(|task| task.from_cluster == member.name()).map(|task| &task.reason);
                let why = why.map_or("", String::as_str);
                ("spec.gracefulEvictionTasks".into(), format!("the object is being evicted from it: {why}"))
            }
            Reason::Deleting => ("metadata.deletionTimestamp".into(), "the cluster is being deleted".into()),
        }
    }

    /// Which part of the affinity does not hold. Of several affinities the last speaks: it would have been enough.
    fn affinity(&self, member: &Member, filter: &Filter<'_>) -> (String, String) {
        let cluster = member.cluster();
        let mut field = self.affinity_field();
        if let Some(overflow) = filter.tiers.len().checked_sub(2) {
            field = format!("{field}.overflowAffinities[{overflow}]");
        }
        let part = filter.tiers.last().and_then(|affinity| affinity.refusal(cluster));
        match part {
            None | Some(Part::Names) => (format!("{field}.clusterNames"), "it is not named".into()),
            Some(Part::Excluded) => (format!("{field}.exclude"), "it is excluded".into()),
            Some(Part::Labels) => {
                let labels =
                    cluster.metadata.labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
                let labels: Vec<_> = labels.collect();
                (format!("{field}.labelSelector"), format!("its labels are {{{}}}", labels.join(", ")))
            }
            Some(Part::Field(key)) => {
                let value = match key.as_str() {
                    "provider" => cluster.spec.provider.clone(),
                    "region" => cluster.spec.region.clone(),
                    _ => affinity::zones_of(cluster).join(", "),
                };
                (format!("{field}.fieldSelector"), format!("its {key} is {value:?}"))
            }
        }
    }
}

/// One line for one cluster.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            Outcome::Refused(_) => write!(f, "{}: no, {} ({})", self.cluster, self.observed, self.rule),
            Outcome::LeftOut => write!(f, "{}: not needed, {} ({})", self.cluster, self.observed, self.rule),
            Outcome::Chosen(0) => write!(f, "{}: yes", self.cluster),
            Outcome::Chosen(replicas) => write!(f, "{}: {replicas} replicas", self.cluster),
        }
    }
}
