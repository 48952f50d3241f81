//! Why each cluster was taken or not, for people who ask.
//!
//! The decision is made once more, by the functions that make it; what they refuse is put into words here, with the
//! field of the policy that speaks and what was found on the cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use karmada_api::{consts::extension, policy::Placement};

use super::{
    Decision, PlaceError, Reason, Request, ask, candidates,
    filter::{Filter, Term},
    room, schedule_term, spread, terms,
};
use crate::{
    affinity::{self, Part},
    divide::{self, Strategy},
    fleet::Member,
    taints,
};

/// What became of one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It cannot take the object.
    Refused(Reason),
    /// It can, and others were chosen, or it got no replicas.
    LeftOut,
    /// It can, and yet nothing could be decided.
    Fits,
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

/// What became of one group of clusters (`clusterAffinities`).
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// `Ok` where it was taken, or why not; nothing where one before it was taken.
    pub result: Option<Result<(), PlaceError>>,
}

/// A decision with all its grounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// What is decided.
    pub result: Result<Decision, PlaceError>,
    /// The groups of clusters in order, if the placement has any. Those before the one that the object is on are not
    /// looked at.
    pub groups: Vec<Group>,
    /// The verdict on each cluster, by name.
    pub verdicts: Vec<Verdict>,
}

/// Decides where an object goes, and says why.
pub fn explain(request: &Request<'_>) -> Explained {
    explain_result(request, super::schedule(request))
}

/// Says why, of what was decided.
pub fn explain_result(request: &Request<'_>, result: Result<Decision, PlaceError>) -> Explained {
    let Ok((placement, terms)) = terms(request) else {
        return Explained { result, groups: Vec::new(), verdicts: Vec::new() };
    };
    // The group that was taken, or else the first, whose error is the one reported.
    let taken = result.as_ref().map(|decision| decision.affinity.as_str()).unwrap_or_default();
    let term = terms
        .iter()
        .find(|term| term.name() == taken)
        .or_else(|| terms.first())
        .copied()
        .unwrap_or(Term::All);
    let words = Words::new(request, placement, term, &result);
    let mut filter = Filter::new(request, placement, term);
    let verdicts = request.fleet.members().iter().map(|member| {
        let judged = filter.judge(member);
        words.verdict(member, judged, &filter)
    });
    let verdicts = verdicts.collect();
    Explained { groups: groups(request, placement, &terms, taken), result, verdicts }
}

/// What became of each group of clusters.
fn groups(request: &Request<'_>, placement: &Placement, terms: &[Term<'_>], taken: &str) -> Vec<Group> {
    let mut found = false;
    let mut group = |term: &Term<'_>| {
        let result = match term {
            _ if found => None,
            term if term.name() == taken => Some(Ok(())),
            term => Some(schedule_term(request, placement, *term).map(drop)),
        };
        found |= matches!(result, Some(Ok(())));
        Group { name: term.name().to_owned(), result }
    };
    terms.iter().filter(|term| matches!(term, Term::Group(..))).map(&mut group).collect()
}

struct Words<'a> {
    request: &'a Request<'a>,
    placement: &'a Placement,
    term: Term<'a>,
    strategy: Strategy<'a>,
    /// What was decided for each chosen cluster; nothing where there is no decision.
    targets: Option<BTreeMap<&'a str, i32>>,
    /// The clusters among which the replicas are divided, if the spread constraints found any.
    spread: BTreeSet<String>,
    /// The weights of those clusters, where a user gives them.
    weights: BTreeMap<String, i64>,
}

impl<'a> Words<'a> {
    fn new(
        request: &'a Request<'a>,
        placement: &'a Placement,
        term: Term<'a>,
        result: &'a Result<Decision, PlaceError>,
    ) -> Self {
        let strategy = Strategy::of(placement);
        let mut filter = Filter::new(request, placement, term);
        let judged = request.fleet.members().iter().map(|member| (&**member, filter.judge(member)));
        let fitting = judged.filter_map(|(member, tier)| Some((member, tier.ok()?))).collect();
        let candidates = candidates(request.spec, placement, &filter, fitting);
        let chosen = spread::choose(placement, request.spec.replicas, candidates).unwrap_or_default();
        let weights = match strategy {
            Strategy::StaticWeights(rules) => {
                let clusters: Vec<_> = chosen.iter().map(|c| c.member.cluster()).collect();
                let weights = divide::weights(&clusters, rules);
                chosen.iter().map(|c| c.name().to_owned()).zip(weights).collect()
            }
            _ => BTreeMap::new(),
        };
        let targets = result.as_ref().ok().map(|decision| {
            decision.clusters.iter().map(|target| (target.name.as_str(), target.replicas)).collect()
        });
        let spread = chosen.iter().map(|c| c.name().to_owned()).collect();
        Self { request, placement, term, strategy, targets, spread, weights }
    }

    fn verdict(&self, member: &Member, judged: Result<usize, Reason>, filter: &Filter<'_>) -> Verdict {
        let target = self.targets.as_ref().map(|targets| targets.get(member.name()).copied());
        let (outcome, rule, observed) = match (judged, target) {
            (Err(reason), _) => {
                let (rule, observed) = self.refusal(&reason, member, filter);
                (Outcome::Refused(reason), rule, observed)
            }
            (Ok(_), Some(Some(replicas))) => {
                let rule = if self.is_divided() {
                    "spec.placement.replicaScheduling".into()
                } else {
                    self.affinity_field()
                };
                (Outcome::Chosen(replicas), rule, self.share(member, filter))
            }
            (Ok(_), Some(None)) => {
                let (field, observed) = self.left_out(member);
                (Outcome::LeftOut, format!("spec.placement.{field}"), observed)
            }
            (Ok(_), None) => {
                let spread = !self.placement.spread_constraints.is_empty();
                let field = if spread { "spreadConstraints" } else { "replicaScheduling" };
                (Outcome::Fits, format!("spec.placement.{field}"), self.room(member))
            }
        };
        Verdict { cluster: member.name().to_owned(), outcome, rule, observed }
    }

    /// Whether there are replicas that clusters share.
    fn is_divided(&self) -> bool {
        self.request.spec.replicas > 0 && self.strategy != Strategy::Duplicated
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
            let room = room(&ask, self.request.spec, self.placement, member);
            format!("room for {} more (limited by {})", room.replicas, room.limit)
        })
    }

    /// Why a cluster gets what it gets.
    fn share(&self, member: &Member, filter: &Filter<'_>) -> String {
        let mut grounds = Vec::new();
        match (self.strategy, self.weight(member)) {
            _ if self.request.spec.replicas == 0 => {}
            (Strategy::Duplicated, _) => grounds.push("every cluster gets all replicas".to_owned()),
            (_, Some(weight)) => grounds.push(weight),
            _ => grounds.push(self.room(member)),
        }
        if filter.is_there(member.name()) {
            let taints = &member.cluster().spec.taints;
            match taints::untolerated(taints, &self.placement.cluster_tolerations, None) {
                Some(taint) => grounds.push(format!(
                    "it has the object, so the taint {} keeps nothing away",
                    taints::display(taint)
                )),
                None => grounds.push("it has the object".to_owned()),
            }
        }
        grounds.retain(|ground| !ground.is_empty());
        grounds.join("; ")
    }

    /// Its weight and that of all, where a user gives weights.
    fn weight(&self, member: &Member) -> Option<String> {
        let weight = self.weights.get(member.name())?;
        let all: i64 = self.weights.values().copied().fold(0, i64::saturating_add);
        Some(if all == 0 {
            format!("no cluster has a weight, so all {} weigh the same", self.weights.len())
        } else {
            format!("weight {weight} of {all}")
        })
    }

    /// Why a cluster that could take the object does not.
    fn left_out(&self, member: &Member) -> (&'static str, String) {
        if !self.spread.contains(member.name()) {
            let chosen = some_names(self.spread.iter().map(String::as_str));
            let room = self.room(member);
            let room = if room.is_empty() { room } else { format!("{room}; ") };
            return ("spreadConstraints", format!("{room}those taken come first: {chosen}"));
        }
        let observed = match self.weight(member) {
            Some(weight) if weight.starts_with("weight 0") => "no staticWeightList entry means it".to_owned(),
            Some(weight) => format!("its share by {weight} is less than one replica"),
            None => self.room(member),
        };
        ("replicaScheduling", observed)
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
            Reason::Left => (
                format!("metadata.annotations[{}]", extension::EVICTED_FROM),
                "the object was evicted from it before, and does not go back by itself".into(),
            ),
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
            Outcome::Fits if self.observed.is_empty() => write!(f, "{}: possible", self.cluster),
            Outcome::Fits => write!(f, "{}: possible, {}", self.cluster, self.observed),
            Outcome::Chosen(0) => write!(f, "{}: yes", self.cluster),
            Outcome::Chosen(replicas) => write!(f, "{}: {replicas} replicas", self.cluster),
        }
    }
}

/// How many clusters a sentence names.
const NAMED: usize = 5;

/// Some names, and how many more there are.
fn some_names<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = names.len().saturating_sub(NAMED);
    let mut list: Vec<_> = names.take(NAMED).map(str::to_owned).collect();
    if more > 0 {
        list.push(format!("{more} more"));
    }
    list.join(", ")
}

/// How many clusters a condition tells of.
const TOLD: usize = 10;

/// The verdicts in short, for a condition: the clusters that were refused and why, those that fit first.
pub fn brief(verdicts: &[Verdict]) -> String {
    let mut order: Vec<_> = verdicts.iter().collect();
    order.sort_by_key(|verdict| matches!(verdict.outcome, Outcome::Refused(_)));
    let mut lines: Vec<_> = order.iter().take(TOLD).map(ToString::to_string).collect();
    if let Some(more) = order.len().checked_sub(TOLD).filter(|more| *more > 0) {
        lines.push(format!("and {more} more"));
    }
    lines.join("; ")
}
