//! Where an object goes: filter the clusters, choose among them, divide the replicas.
//!
//! ```text
//!   fleet ─▶ filter (per affinity group, in order) ─▶ estimate ─▶ spread ─▶ divide ─▶ spec.clusters
//!              │                                                    │          │
//!              └▶ NoFit                                             └▶ Select  └▶ Unschedulable
//!   explain: the same, with a verdict on every cluster
//! ```

mod advice;
mod explain;
mod filter;
pub mod parts;
mod reschedule;
mod spread;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};

use karmada_api::{
    cluster::Taint,
    conditions::Condition,
    consts::{condition, extension, reason, taint::UNREACHABLE},
    policy::{Placement, SpreadFieldValue},
    work::{ResourceBindingSpec, TargetCluster},
};
use karmada_meta::time::Time;

pub use self::{
    advice::advice,
    explain::{Explained, Group, Outcome, Verdict, brief, explain, explain_result},
    filter::{NoFit, Reason, serves_kind},
    reschedule::{
        Served, Stir, Trigger, goes_back, is_recomputed, need_schedule, placement_changed, retry_after,
        scheduled_time, served_otherwise,
    },
    waiting::{Waiting, says_the_same},
};
use self::{
    filter::{Filter, Term},
    spread::Candidate,
};
use crate::{
    divide::{self, Mode, Slot, Strategy, TieBreak, TooLittle},
    estimate::{Ask, Estimate, Limit},
    fleet::{Fleet, Member},
    taints,
};

/// What a decision is made from.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The binding's spec, with its placement.
    pub spec: &'a ResourceBindingSpec,
    /// `status.schedulerObservedAffinityName`: the group of clusters that was taken last.
    pub observed_affinity: &'a str,
    /// `status.lastScheduledTime`.
    pub last_scheduled: Option<Time>,
    /// All clusters.
    pub fleet: &'a Fleet,
    /// The other objects of its namespace that belong to groups (`workloadAffinity`).
    pub peers: &'a [Peer<'a>],
    /// Clusters that the object was evicted from, where it is not to go back to them.
    pub left: Option<&'a BTreeSet<String>>,
    /// Whether clusters that get no replicas get the object all the same (`--enable-empty-workload-propagation`).
    pub empty_workloads: bool,
    /// The time of day, by which tolerations for some seconds are over; `None`: they are not.
    pub now: Option<Time>,
}

impl<'a> Request<'a> {
    /// A request for a binding that was never scheduled, with the defaults of a hub.
    pub fn new(spec: &'a ResourceBindingSpec, fleet: &'a Fleet) -> Self {
        Self {
            spec,
            observed_affinity: "",
            last_scheduled: None,
            fleet,
            peers: &[],
            left: None,
            empty_workloads: false,
            now: None,
        }
    }
}

/// Another object of the same namespace, as far as groups of objects are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer<'a> {
    /// Its binding.
    pub name: &'a str,
    /// The group that it goes with; empty for none.
    pub affinity_group: &'a str,
    /// The group that it keeps away from; empty for none.
    pub anti_affinity_group: &'a str,
    /// Where it is.
    pub clusters: &'a BTreeSet<String>,
}

/// A decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The new `spec.clusters`.
    pub clusters: Vec<TargetCluster>,
    /// The group of clusters that was taken; empty when the placement has none.
    pub affinity: String,
}

/// Why there is no decision.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlaceError {
    /// No cluster can take the object. The binding's clusters are emptied.
    #[error("{0}")]
    NoFit(NoFit),
    /// The binding has no placement: nothing is changed.
    #[error("{0}")]
    Nothing(String),
    /// The clusters that can take the object cannot be spread as the placement asks: nothing is changed.
    #[error("failed to select clusters: {0}")]
    Select(String),
    /// The clusters that were chosen have no room for all of it: nothing is changed.
    #[error("failed to assign replicas: {message}")]
    Unschedulable {
        /// Which, and what room each has.
        message: String,
        /// For how many more replicas there would have to be room, at least.
        short: i64,
    },
    /// The namespace may not use so much: nothing is changed.
    #[error("{0}")]
    Quota(String),
}

impl PlaceError {
    /// The reason in the Scheduled condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoFit(_) => reason::NO_CLUSTER_FIT,
            Self::Unschedulable { .. } => reason::UNSCHEDULABLE,
            Self::Quota(_) => reason::QUOTA_EXCEEDED,
            Self::Nothing(_) | Self::Select(_) => reason::SCHEDULER_ERROR,
        }
    }

    /// Whether `spec.clusters` is emptied, as Karmada does when nothing fits.
    pub fn empties(&self) -> bool {
        matches!(self, Self::NoFit(_))
    }
}

/// The Scheduled condition after a decision or the lack of one.
pub fn condition(result: Result<&Decision, &PlaceError>, now: Time) -> Condition {
    match result {
        Ok(_) => {
            Condition::new(condition::SCHEDULED, true, reason::SCHEDULED, reason::SCHEDULED_MESSAGE, now)
        }
        Err(error) => Condition::new(condition::SCHEDULED, false, error.reason(), error.to_string(), now),
    }
}

/// A condition that is about to be written, or the one of its type that is there already, where that says the same but for
/// numbers, about the same generation: they change all the time, and nobody acts on them.
pub fn unless_numbers(list: &[Condition], new: Condition) -> Condition {
    let there = list.iter().find(|there| {
        there.type_ == new.type_
            && (&there.status, &there.reason, there.observed_generation)
                == (&new.status, &new.reason, new.observed_generation)
            && says_the_same(&there.message, &new.message)
    });
    there.cloned().unwrap_or(new)
}

/// The condition that says of each cluster why an object could not be placed, where Karmada's sentence only counts them;
/// `None` where it was, or there are no clusters.
pub fn explained_condition(explained: &Explained, now: Time) -> Option<Condition> {
    let error = explained.result.as_ref().err()?;
    let message = brief(&explained.verdicts);
    let type_ = extension::PLACEMENT_EXPLAINED;
    (!message.is_empty()).then(|| Condition::new(type_, true, error.reason(), message, now))
}

/// What the event of a decision says: `Binding has been scheduled successfully. Result: {member1:1, member2:2}`. Of objects
/// without a namespace Karmada says it without the colon.
pub fn event_message(clusters: &[TargetCluster], namespaced: bool) -> String {
    let list: Vec<_> = clusters.iter().map(|target| format!("{}:{}", target.name, target.replicas)).collect();
    let colon = if namespaced { ":" } else { "" };
    format!("{} Result{colon} {{{}}}", reason::SCHEDULED_MESSAGE, list.join(", "))
}

/// The text of the annotation `policy.karmada.io/applied-placement`.
pub fn applied_placement(placement: &Placement) -> String {
    serde_json::to_string(placement).expect("invariant: a placement has only text keys")
}

/// Decides where an object goes. Among several groups of clusters (`clusterAffinities`) the first is taken that
/// has clusters for it, beginning with the one taken last, or with the first where everything is to be placed anew.
///
/// # Errors
/// Why it goes nowhere; with several groups, what was wrong with the first.
pub fn schedule(request: &Request<'_>) -> Result<Decision, PlaceError> {
    let (placement, terms) = terms(request)?;
    let mut first_error = None;
    for term in terms {
        match schedule_term(request, placement, term) {
            Ok(clusters) => return Ok(Decision { clusters, affinity: term.name().to_owned() }),
            Err(error) => drop(first_error.get_or_insert(error)),
        }
    }
    Err(first_error.unwrap_or_else(|| PlaceError::Nothing("no clusters available to schedule".into())))
}

/// The affinities to try, in order.
fn terms<'a>(request: &Request<'a>) -> Result<(&'a Placement, Vec<Term<'a>>), PlaceError> {
    let placement = request.spec.placement.as_ref();
    let placement = placement.ok_or_else(|| PlaceError::Nothing("the binding has no placement".into()))?;
    if request.fleet.members().is_empty() {
        return Err(PlaceError::NoFit(NoFit::default()));
    }
    let groups = &placement.cluster_affinities;
    if groups.is_empty() {
        let term = placement.cluster_affinity.as_ref().map_or(Term::All, Term::One);
        return Ok((placement, vec![term]));
    }
    let anew = reschedule::asked(request.spec, request.last_scheduled);
    let from = groups.iter().position(|group| !anew && group.affinity_name == request.observed_affinity);
    let terms = groups.iter().enumerate().skip(from.unwrap_or_default());
    Ok((placement, terms.map(|(at, group)| Term::Group(at, group)).collect()))
}

fn schedule_term(
    request: &Request<'_>,
    placement: &Placement,
    term: Term<'_>,
) -> Result<Vec<TargetCluster>, PlaceError> {
    let mut filter = Filter::new(request, placement, term);
    let fleet = request.fleet;
    // Where every affinity names clusters the others are looked at only to say why there is none.
    let (mut fitting, mut reasons) = match filter.names() {
        Some(names) => judge(names.into_iter().filter_map(|name| fleet.get(name)), &mut filter),
        None => Default::default(),
    };
    if fitting.is_empty() {
        (fitting, reasons) = judge(fleet.members().iter().map(|member| &**member), &mut filter);
    }
    if fitting.is_empty() {
        return Err(PlaceError::NoFit(NoFit { clusters: fleet.members().len(), reasons }));
    }
    let candidates = candidates(request.spec, placement, &filter, fitting);
    let chosen = spread::choose(placement, request.spec.replicas, candidates)?;
    assign(request, placement, &chosen)
}

/// Those of some clusters that can take an object, each with the place of the affinity that means it, and how often each
/// reason keeps others from it.
fn judge<'a>(
    members: impl Iterator<Item = &'a Member>,
    filter: &mut Filter<'_>,
) -> (Vec<(&'a Member, usize)>, BTreeMap<Reason, usize>) {
    let (mut fitting, mut reasons) = (Vec::new(), BTreeMap::new());
    for member in members {
        match filter.judge(member) {
            Ok(tier) => fitting.push((member, tier)),
            // It is one of all, and no reason.
            Err(Reason::Deleting) => {}
            Err(reason) => *reasons.entry(reason).or_default() += 1,
        }
    }
    (fitting, reasons)
}

/// The clusters that can take the object, best first, with the room they have.
fn candidates<'a>(
    spec: &'a ResourceBindingSpec,
    placement: &Placement,
    filter: &Filter<'_>,
    fitting: Vec<(&'a Member, usize)>,
) -> Vec<Candidate<'a>> {
    let ask = ask(spec, placement);
    let present: BTreeMap<_, _> =
        spec.clusters.iter().map(|target| (target.name.as_str(), i64::from(target.replicas))).collect();
    let candidate = |(member, tier): (&'a Member, usize)| Candidate {
        member,
        tier,
        there: filter.is_there(member.name()),
        present: present.get(member.name()).copied().unwrap_or_default(),
        room: ask.as_ref().map_or(Estimate::UNLIMITED, |ask| room(ask, spec, placement, member)),
    };
    let mut candidates: Vec<_> = fitting.into_iter().map(candidate).collect();
    spread::sort(&mut candidates);
    candidates
}

/// The room a cluster has. A lost one keeps what it has, but is no place for what leaves others.
fn room<'m>(
    ask: &Ask<'m>,
    spec: &ResourceBindingSpec,
    placement: &Placement,
    member: &'m Member,
) -> Estimate<'m> {
    let lost = |taint: &Taint| {
        taint.key == UNREACHABLE
            && taints::untolerated(std::slice::from_ref(taint), &placement.cluster_tolerations, None)
                .is_some()
    };
    let moves = !spec.graceful_eviction_tasks.is_empty() && Strategy::of(placement) != Strategy::Duplicated;
    if moves && member.cluster().spec.taints.iter().any(lost) {
        return Estimate::none(Limit::OutOfReach);
    }
    ask.room(member)
}

/// Whether the room that clusters have matters for where a binding goes.
pub fn asks_for_room(spec: &ResourceBindingSpec) -> bool {
    spec.placement.as_ref().is_some_and(|placement| ask(spec, placement).is_some())
}

/// What is asked of every cluster; nothing where the room does not matter: the object has no replicas, or they are
/// divided by weights that a user gives.
fn ask<'a>(spec: &'a ResourceBindingSpec, placement: &Placement) -> Option<Ask<'a>> {
    if spec.replicas == 0 && spec.components.is_empty()
        || matches!(Strategy::of(placement), Strategy::StaticWeights(_))
    {
        return None;
    }
    let ask = if goes_as_set(spec, placement) {
        Ask::set(&spec.components)
    } else {
        Ask::replica(spec.replica_requirements.as_ref())
    };
    Some(ask.within(&spec.resource.namespace))
}

/// Whether components go to one cluster together; only then is it known what one cluster has to hold.
fn goes_as_set(spec: &ResourceBindingSpec, placement: &Placement) -> bool {
    !spec.components.is_empty()
        && placement.spread_constraints.iter().any(|constraint| {
            constraint.spread_by_field == Some(SpreadFieldValue::Cluster)
                && (constraint.min_groups, constraint.max_groups) == (1, 1)
        })
}

/// Whether an object has replicas of one kind, which can be divided.
fn has_replicas(spec: &ResourceBindingSpec) -> bool {
    (spec.replicas > 0 || spec.replica_requirements.is_some()) && spec.components.len() <= 1
}

/// Gives the chosen clusters their replicas. What has no replicas to divide, or several kinds of them, goes everywhere.
fn assign(
    request: &Request<'_>,
    placement: &Placement,
    chosen: &[Candidate<'_>],
) -> Result<Vec<TargetCluster>, PlaceError> {
    let spec = request.spec;
    let everywhere =
        |replicas| chosen.iter().map(|c| TargetCluster::new(c.name(), replicas)).collect::<Vec<_>>();
    if chosen.is_empty() {
        let message = "no clusters available to schedule".into();
        return Err(PlaceError::Unschedulable { message, short: 1 });
    }
    if !has_replicas(spec) {
        if !goes_as_set(spec, placement) {
            let all = everywhere(0);
            // What runs, and was not to run everywhere, is not begun once more elsewhere: it may be from a time when its
            // parts were counted as replicas.
            let mut kept = all.clone();
            kept.retain(|target| spec.clusters.iter().any(|had| had.name == target.name));
            let stays = spec.components.len() > 1 && Strategy::of(placement) != Strategy::Duplicated;
            return Ok(if stays && !kept.is_empty() { kept } else { all });
        }
        return parts::assign(spec, chosen);
    }
    let ties = TieBreak::of_uid(&spec.resource.uid);
    let mode = if reschedule::asked(spec, request.last_scheduled) { Mode::Fresh } else { Mode::Steady };
    let mut targets = match Strategy::of(placement) {
        Strategy::Duplicated => everywhere(spec.replicas),
        Strategy::StaticWeights(rules) => {
            let clusters: Vec<_> = chosen.iter().map(|c| c.member.cluster()).collect();
            divide::by_weight(&clusters, rules, spec.replicas, ties)
        }
        Strategy::AvailableReplicas => by_room(spec, chosen, mode, false, ties)?,
        Strategy::Aggregated => by_room(spec, chosen, mode, true, ties)?,
    };
    targets = divide::without_empty(targets);
    if request.empty_workloads {
        let has: BTreeSet<_> = targets.iter().map(|target| target.name.clone()).collect();
        targets.extend(everywhere(0).into_iter().filter(|target| !has.contains(&target.name)));
    }
    Ok(targets)
}

/// Divides by room, affinity by affinity: what the first has room for goes there, the rest to those that take its
/// overflow, so that growing fills them in order and shrinking empties them from the last on.
fn by_room(
    spec: &ResourceBindingSpec,
    chosen: &[Candidate<'_>],
    mode: Mode,
    aggregate: bool,
    ties: TieBreak,
) -> Result<Vec<TargetCluster>, PlaceError> {
    let tiers: BTreeSet<_> = chosen.iter().map(|candidate| candidate.tier).collect();
    let mut targets = Vec::new();
    let mut left = spec.replicas;
    let last = tiers.iter().next_back().copied();
    for tier in &tiers {
        let of_tier = chosen.iter().filter(|candidate| candidate.tier == *tier);
        let slots: Vec<_> =
            of_tier.map(|c| Slot { name: c.name(), room: c.room.replicas, present: c.present }).collect();
        let room: i64 =
            slots.iter().map(|slot| slot.room.saturating_add(slot.present)).fold(0, i64::saturating_add);
        let share =
            if Some(*tier) == last { left } else { left.min(i32::try_from(room).unwrap_or(i32::MAX)) };
        let divided = divide::divide_by_room(share, &slots, mode, aggregate, ties).map_err(|error| {
            let short = error.wanted.saturating_sub(error.room);
            PlaceError::Unschedulable { message: shortage(spec, chosen, &error), short }
        })?;
        targets.extend(divided);
        left -= share;
    }
    Ok(targets)
}

/// How many clusters a message tells of one by one.
const NAMED: usize = 10;

/// Karmada's sentence, and what a person needs to understand it: how many replicas were to be placed, and what each
/// cluster has room for and why no more.
fn shortage(spec: &ResourceBindingSpec, chosen: &[Candidate<'_>], error: &TooLittle) -> String {
    let mut clusters: Vec<_> = chosen
        .iter()
        .take(NAMED)
        .map(|c| format!("{} has room for {} ({})", c.name(), c.room.replicas, c.room.limit))
        .collect();
    if chosen.len() > NAMED {
        clusters.push(format!("{} more have {}", chosen.len() - NAMED, {
            chosen[NAMED..].iter().map(|c| c.room.replicas).fold(0, i64::saturating_add)
        }));
    }
    let running: i64 = chosen.iter().map(|c| c.present).sum();
    let running = if running > 0 { format!(", {running} are placed") } else { String::new() };
    format!("{error} {} are wanted{running}: {}.", spec.replicas, clusters.join(", "))
}

#[cfg(test)]
mod tests;
