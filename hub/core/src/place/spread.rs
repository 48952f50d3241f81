//! The choice among clusters that can take an object: spread constraints.
//!
//! ```text
//!   candidates, best first ─▶ provider ─▶ region ─▶ zone ─▶ label ─▶ cluster ─▶ the chosen, best first
//!                              each level keeps the best groups, within min and max
//! ```
//!
//! Karmada chooses by region, or else by cluster, and looks at nothing else; with those two this gives Karmada's
//! choice. Providers, zones and labels are chosen by the same rules, from the outside to the inside: each level sees
//! the clusters that the levels before it have left, and chooses among its groups like Karmada among regions.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use karmada_api::{
    cluster::Cluster,
    policy::{Placement, SpreadConstraint, SpreadFieldValue},
};

use super::PlaceError;
use crate::{affinity, divide::Strategy, estimate::Estimate, fleet::Member};

/// A cluster that can take the object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate<'a> {
    pub(super) member: &'a Member,
    /// The place of the affinity that means it; 0 before those that take overflow.
    pub(super) tier: usize,
    /// Whether the object is there.
    pub(super) there: bool,
    /// The replicas it has.
    pub(super) present: i64,
    /// The room for more.
    pub(super) room: Estimate<'a>,
}

impl<'a> Candidate<'a> {
    pub(super) fn name(&self) -> &'a str {
        self.member.name()
    }

    /// The replicas it has, and has room for.
    fn capacity(&self) -> i64 {
        self.room.replicas.saturating_add(self.present)
    }

    /// Karmada's score of the cluster: whether the object is there.
    fn score(&self) -> i64 {
        if self.there { 100 } else { 0 }
    }
}

/// Puts the best first: the affinity before its overflow, where the object is, the roomier. Equals stay in their order,
/// which is that of their names.
pub(super) fn sort(candidates: &mut [Candidate<'_>]) {
    candidates.sort_by_key(|c| (c.tier, Reverse(c.score()), Reverse(c.capacity())));
}

/// What groups of clusters are made by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Topology<'a> {
    Provider,
    Region,
    Zone,
    Label(&'a str),
}

impl fmt::Display for Topology<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Provider => f.write_str("provider"),
            Self::Region => f.write_str("region"),
            Self::Zone => f.write_str("zone"),
            Self::Label(key) => write!(f, "label {key}"),
        }
    }
}

impl<'a> Topology<'a> {
    /// What a constraint groups by; `None` for the cluster itself.
    pub(super) fn of(constraint: &'a SpreadConstraint) -> Option<Self> {
        match constraint.spread_by_field {
            Some(SpreadFieldValue::Provider) => Some(Self::Provider),
            Some(SpreadFieldValue::Region) => Some(Self::Region),
            Some(SpreadFieldValue::Zone) => Some(Self::Zone),
            Some(SpreadFieldValue::Cluster) => None,
            None => Some(constraint.spread_by_label.as_str()).filter(|key| !key.is_empty()).map(Self::Label),
        }
    }

    /// The groups a cluster is in: one provider, one region, one value of a label, but perhaps several zones.
    pub(super) fn values(self, cluster: &Cluster) -> &[String] {
        let one = |text: &'_ String| !text.is_empty();
        match self {
            Self::Provider if one(&cluster.spec.provider) => std::slice::from_ref(&cluster.spec.provider),
            Self::Region if one(&cluster.spec.region) => std::slice::from_ref(&cluster.spec.region),
            Self::Zone => affinity::zones_of(cluster),
            Self::Label(key) => {
                let value = cluster.metadata.labels.as_ref().and_then(|labels| labels.get(key));
                value.map(std::slice::from_ref).unwrap_or_default()
            }
            Self::Provider | Self::Region => &[],
        }
    }
}

/// How many groups there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    min: usize,
    max: usize,
}

impl Bounds {
    /// None at all.
    const ANY: Self = Self { min: 0, max: usize::MAX };

    /// No `maxGroups` means no limit. (Karmada's scheduler then chooses nothing at all.)
    fn of(constraint: &SpreadConstraint) -> Self {
        let max = usize::try_from(constraint.max_groups).ok().filter(|max| *max > 0);
        Self {
            min: usize::try_from(constraint.min_groups).unwrap_or_default(),
            max: max.unwrap_or(usize::MAX),
        }
    }
}

/// What one choice is made from.
struct Choice<'a> {
    /// Constraints over groups, from the outside to the inside.
    levels: Vec<(Topology<'a>, Bounds)>,
    clusters: Bounds,
    strategy: Strategy<'a>,
    replicas: i64,
}

/// Chooses as many of the candidates, best first, as the spread constraints allow. Static weights ignore them, as in
/// Karmada.
pub(super) fn choose<'a>(
    placement: &'a Placement,
    replicas: i32,
    candidates: Vec<Candidate<'a>>,
) -> Result<Vec<Candidate<'a>>, PlaceError> {
    let strategy = Strategy::of(placement);
    if matches!(strategy, Strategy::StaticWeights(_)) || placement.spread_constraints.is_empty() {
        return Ok(candidates);
    }
    let mut levels = BTreeMap::new();
    let mut clusters = Bounds::ANY;
    for constraint in &placement.spread_constraints {
        match Topology::of(constraint) {
            Some(topology) => drop(levels.insert(topology, Bounds::of(constraint))),
            None => clusters = Bounds::of(constraint),
        }
    }
    let choice =
        Choice { levels: levels.into_iter().collect(), clusters, strategy, replicas: i64::from(replicas) };
    if choice.levels.is_empty() {
        return choice.by_cluster(candidates);
    }
    choice.by_groups(&choice.levels, candidates, &[])
}

impl<'a> Choice<'a> {
    /// The best clusters, as many as there may be; where replicas are divided, exchanged from the last on for roomier
    /// ones until there is room for all.
    fn by_cluster(&self, mut candidates: Vec<Candidate<'a>>) -> Result<Vec<Candidate<'a>>, PlaceError> {
        let (found, Bounds { min, max }) = (candidates.len(), self.clusters);
        if found < min {
            return Err(too_few("clusters", found, min));
        }
        let take = max.min(found);
        if self.strategy != Strategy::Duplicated {
            let mut room: i64 = capacity(&candidates[..take]);
            for last in (0..take).rev() {
                if room >= self.replicas {
                    break;
                }
                let mut best = last;
                for other in take..found {
                    if candidates[other].capacity() > candidates[best].capacity() {
                        best = other;
                    }
                }
                room += candidates[best].capacity() - candidates[last].capacity();
                candidates.swap(last, best);
            }
            if room < self.replicas {
                return Err(PlaceError::Select(format!(
                    "no enough resource when selecting {take} clusters: the roomiest {take} of {found} have room \
                     for {room} of {} replicas",
                    self.replicas
                )));
            }
        }
        candidates.truncate(take);
        Ok(candidates)
    }

    /// Chooses groups of the outermost level, then within them those of the next, and at last clusters: the best of
    /// each group, then the best of the others, as many as there may be.
    fn by_groups(
        &self,
        levels: &[(Topology<'a>, Bounds)],
        candidates: Vec<Candidate<'a>>,
        outer: &[(Topology<'a>, &'a str)],
    ) -> Result<Vec<Candidate<'a>>, PlaceError> {
        let Some(((topology, bounds), inner)) = levels.split_first() else {
            return Ok(candidates);
        };
        let groups = self.groups(*topology, *bounds, &candidates);
        if groups.len() < bounds.min {
            return Err(too_few(&topology.to_string(), groups.len(), bounds.min));
        }
        let target = self.clusters.min;
        let mut first_error = None;
        for chosen in best_groups(&groups, *bounds, target) {
            let kept: BTreeSet<_> = chosen.iter().flat_map(|group| group.clusters.iter().copied()).collect();
            let within: Vec<_> =
                candidates.iter().enumerate().filter(|(at, _)| kept.contains(at)).map(|(_, c)| *c).collect();
            let result = if inner.is_empty() {
                Ok(self.clusters_of(&chosen, &candidates, outer))
            } else {
                let mut outer = outer.to_vec();
                outer.extend(chosen.iter().map(|group| (*topology, group.name)));
                self.by_groups(inner, within, &outer)
            };
            match result.and_then(|result| self.check(levels, result)) {
                Ok(result) => return Ok(result),
                Err(error) => drop(first_error.get_or_insert(error)),
            }
        }
        Err(first_error.unwrap_or_else(|| {
            let most: usize = groups.iter().map(|group| group.clusters.len()).sum();
            PlaceError::Select(format!(
                "the number of clusters is less than the cluster spreadConstraint.MinGroups: no choice of {} to {} \
                 out of {} groups by {topology} has {target} clusters, all of them have {most}",
                bounds.min,
                bounds.max.min(groups.len()),
                groups.len()
            ))
        }))
    }

    /// The groups of a level. A cluster in several zones counts in each.
    fn groups(&self, topology: Topology<'a>, bounds: Bounds, candidates: &[Candidate<'a>]) -> Vec<Group<'a>> {
        let mut groups = BTreeMap::<&str, Vec<usize>>::new();
        for (at, candidate) in candidates.iter().enumerate() {
            for value in topology.values(candidate.member.cluster()) {
                groups.entry(value).or_default().push(at);
            }
        }
        groups
            .into_iter()
            .map(|(name, clusters)| {
                let members: Vec<_> = clusters.iter().map(|at| candidates[*at]).collect();
                Group { name, score: self.score(bounds, &members), clusters }
            })
            .collect()
    }

    /// Karmada's score of a group: where replicas are duplicated, by how many clusters have room for all of them; where
    /// they are divided, by how much of its share of them the group has room for. A thousand for each, and the mean
    /// score of those clusters to tell equals apart.
    fn score(&self, bounds: Bounds, clusters: &[Candidate<'a>]) -> i64 {
        const UNIT: i64 = 1000;
        let mean = |sum: i64, n: usize| sum / i64::try_from(n.max(1)).unwrap_or(i64::MAX);
        if self.strategy == Strategy::Duplicated {
            let fit: Vec<_> = clusters.iter().filter(|c| c.capacity() >= self.replicas).collect();
            return i64::try_from(fit.len()).unwrap_or_default() * UNIT
                + mean(fit.iter().map(|c| c.score()).sum(), fit.len());
        }
        let share = share_of(self.replicas, bounds.min);
        let least = self.clusters.min.max(bounds.min);
        let (mut room, mut score, mut seen) = (0_i64, 0, 0);
        for cluster in clusters {
            room = room.saturating_add(cluster.capacity());
            score += cluster.score();
            seen += 1;
            if seen >= least && room >= share {
                break;
            }
        }
        if room < share {
            room * UNIT + mean(score, clusters.len())
        } else {
            share * UNIT + mean(score, seen)
        }
    }

    /// The best cluster of each chosen group, also of those outside them, then the best of the others.
    fn clusters_of(
        &self,
        groups: &[&Group<'a>],
        candidates: &[Candidate<'a>],
        outer: &[(Topology<'a>, &'a str)],
    ) -> Vec<Candidate<'a>> {
        let mut taken = BTreeSet::new();
        let mut chosen = Vec::new();
        for group in groups {
            if let Some(best) = group.clusters.first()
                && taken.insert(*best)
            {
                chosen.push(candidates[*best]);
            }
        }
        let others: BTreeSet<_> = groups.iter().flat_map(|group| &group.clusters).copied().collect();
        for (topology, value) in outer {
            let in_it = |at: &usize| {
                topology.values(candidates[*at].member.cluster()).iter().any(|name| name == value)
            };
            if !taken.iter().any(in_it)
                && let Some(best) = others.iter().copied().find(in_it)
            {
                taken.insert(best);
                chosen.push(candidates[best]);
            }
        }
        let mut others: Vec<_> = others.difference(&taken).map(|at| candidates[*at]).collect();
        sort(&mut others);
        others.truncate(self.clusters.max.saturating_sub(chosen.len()));
        chosen.extend(others);
        chosen
    }

    /// Whether what was chosen keeps within the bounds of these levels, which the levels inside may have broken.
    fn check(
        &self,
        levels: &[(Topology<'a>, Bounds)],
        chosen: Vec<Candidate<'a>>,
    ) -> Result<Vec<Candidate<'a>>, PlaceError> {
        // With one level only, Karmada's result stands as it is.
        if self.levels.len() > 1 {
            for (topology, bounds) in levels {
                let mut groups = BTreeSet::new();
                for candidate in &chosen {
                    groups.extend(topology.values(candidate.member.cluster()));
                }
                if groups.len() < bounds.min {
                    return Err(too_few(&topology.to_string(), groups.len(), bounds.min));
                }
            }
        }
        if chosen.len() < self.clusters.min {
            return Err(too_few("clusters", chosen.len(), self.clusters.min));
        }
        Ok(chosen)
    }
}

/// A number divided by a count, rounded up.
fn share_of(number: i64, count: usize) -> i64 {
    let count = i64::try_from(count.max(1)).unwrap_or(i64::MAX);
    number / count + i64::from(number % count > 0)
}

fn capacity(candidates: &[Candidate<'_>]) -> i64 {
    candidates.iter().map(Candidate::capacity).fold(0, i64::saturating_add)
}

fn too_few(what: &str, found: usize, min: usize) -> PlaceError {
    PlaceError::Select(format!(
        "the number of feasible {what} is less than spreadConstraint.MinGroups: {found} of {min}"
    ))
}

/// Clusters that have a field or label in common.
#[derive(Clone, Debug)]
struct Group<'a> {
    name: &'a str,
    score: i64,
    /// The places of its clusters among the candidates, best first.
    clusters: Vec<usize>,
}

/// How many combinations of groups are looked at before the search gives up being exhaustive. Karmada has no such end,
/// and none to its time either: forty regions of which ten may be taken are 847 million combinations.
const COMBINATIONS: usize = 20_000;

/// A combination of groups: which, their scores together and their clusters together.
struct Combination {
    groups: Vec<usize>,
    score: i64,
    clusters: usize,
}

/// The combinations of groups that have `target` clusters, best first, in Karmada's order: the highest score, the most
/// clusters, and of one that only adds groups to another the smaller. Each combination's groups are best first.
fn best_groups<'g, 'a>(groups: &'g [Group<'a>], bounds: Bounds, target: usize) -> Vec<Vec<&'g Group<'a>>> {
    let mut order: Vec<_> = (0..groups.len()).collect();
    order.sort_by_key(|at| {
        let group = &groups[*at];
        (group.clusters.len(), Reverse(group.score), group.name)
    });
    let mut search =
        Search { groups, order: &order, bounds, target, path: Vec::new(), found: Vec::new(), steps: 0 };
    let complete = search.descend(0, 0);
    let mut found = search.found;
    if !complete {
        found = greedy(groups, bounds, target).into_iter().collect();
    }
    found.sort_by(|a, b| b.score.cmp(&a.score).then(b.clusters.cmp(&a.clusters)));
    for combination in &mut found {
        combination.groups.sort_by_key(|at| (Reverse(groups[*at].score), groups[*at].name));
    }
    // Of combinations that begin alike the shorter is as good: it comes first.
    if let Some(best) = found.first() {
        let mut first = 0;
        let mut path = best.groups.clone();
        for (at, other) in found.iter().enumerate().skip(1) {
            if other.groups.len() < path.len() && path.starts_with(&other.groups) {
                (first, path) = (at, other.groups.clone());
            }
        }
        let first = found.remove(first);
        found.insert(0, first);
    }
    found.into_iter().map(|c| c.groups.into_iter().map(|at| &groups[at]).collect()).collect()
}

/// The search for combinations, depth first over the groups from the smallest on. A combination that suffices is not
/// made larger.
struct Search<'g, 'a> {
    groups: &'g [Group<'a>],
    order: &'g [usize],
    bounds: Bounds,
    target: usize,
    path: Vec<usize>,
    found: Vec<Combination>,
    steps: usize,
}

impl Search<'_, '_> {
    /// Whether everything below was looked at.
    fn descend(&mut self, from: usize, clusters: usize) -> bool {
        self.steps += 1;
        if self.steps > COMBINATIONS {
            return false;
        }
        if clusters >= self.target && self.path.len() >= self.bounds.min && self.path.len() <= self.bounds.max
        {
            let score = self.path.iter().map(|at| self.groups[*at].score).sum();
            self.found.push(Combination { groups: self.path.clone(), score, clusters });
            return true;
        }
        if self.path.len() >= self.bounds.max {
            return true;
        }
        for next in from..self.order.len() {
            let group = self.order[next];
            self.path.push(group);
            let complete = self.descend(next + 1, clusters + self.groups[group].clusters.len());
            self.path.pop();
            if !complete {
                return false;
            }
        }
        true
    }
}

/// The best groups one by one, as few as suffice: what the search would find wherever the least number of groups has
/// clusters enough, in no time.
fn greedy(groups: &[Group<'_>], bounds: Bounds, target: usize) -> Option<Combination> {
    let mut order: Vec<_> = (0..groups.len()).collect();
    order.sort_by_key(|at| {
        let group = &groups[*at];
        (Reverse(group.score), Reverse(group.clusters.len()), group.name)
    });
    let of = |chosen: Vec<usize>| Combination {
        score: chosen.iter().map(|at| groups[*at].score).sum(),
        clusters: chosen.iter().map(|at| groups[*at].clusters.len()).sum(),
        groups: chosen,
    };
    for take in bounds.min.max(1)..=bounds.max.min(groups.len()) {
        let best = of(order[..take].to_vec());
        if best.clusters >= target {
            return Some(best);
        }
        // Of as many groups, those with the most clusters, if no better-scored choice has enough.
        let mut largest = order.clone();
        largest.sort_by_key(|at| Reverse(groups[*at].clusters.len()));
        let largest = of(largest[..take].to_vec());
        if largest.clusters >= target {
            return Some(largest);
        }
    }
    None
}

#[cfg(test)]
mod tests;
