//! Room without what is on its way to it: taken off the sum, and off nodes or grades one after the other, as a member's
//! own scheduler would fill them.

use karmada_meta::quantity::Quantity;

use super::{Ask, may_run, outstanding::Part, times_of};
use crate::{
    fleet::{Amount, Grades, Member},
    nodes::{Node, PODS},
};

impl Member {
    /// The cluster with less room: `parts` with their numbers are coming. What fits on none of its nodes is taken off the
    /// sum alone.
    #[must_use]
    pub fn less<'a>(&self, parts: impl IntoIterator<Item = (&'a Part, i64)>) -> Self {
        let mut less = self.clone();
        let mut nodes = self.nodes().to_vec();
        for (part, number) in parts {
            let ask = Ask::replica(Some(&part.requirements));
            ask.take_from_sum(&mut less, number);
            ask.take_from_allowances(&mut less, number);
            if !nodes.is_empty() {
                nodes = ask.take_from_nodes(nodes, number);
            } else if let Some(grades) = &mut less.grades {
                ask.take_from_grades(grades, number);
            }
        }
        less.with_nodes(nodes)
    }
}

impl Ask<'_> {
    fn take_from_sum(&self, member: &mut Member, number: i64) {
        let Some(left) = &mut member.left else { return };
        let pod = Amount { value: 1, milli: 1000 };
        for (name, request) in self.requests.iter().copied().chain([(PODS, pod)]) {
            if let Some(left) = left.get_mut(name) {
                left.value = left.value.saturating_sub(request.value.saturating_mul(number));
                left.milli = left.milli.saturating_sub(request.milli.saturating_mul(number));
            }
        }
    }

    fn take_from_allowances(&self, member: &mut Member, number: i64) {
        for allowance in member.allowances.get_mut(self.namespace).into_iter().flatten() {
            for share in &self.shares {
                if !allowance.is_for(share.class) {
                    continue;
                }
                for (name, request) in share.requests.into_iter().flatten() {
                    if let Some(free) = allowance.free.get_mut(name) {
                        *free -= times_of(*request, number.saturating_mul(share.pods));
                    }
                }
                if let Some(free) = allowance.free.get_mut(PODS) {
                    *free -= Quantity::from_value(number.saturating_mul(share.pods));
                }
            }
        }
    }

    fn take_from_nodes(&self, nodes: Vec<Node>, mut number: i64) -> Vec<Node> {
        let nothing = Default::default();
        let claim = self.claim.unwrap_or(&nothing);
        let mut after = Vec::with_capacity(nodes.len() + 2);
        for node in nodes {
            let each = if number > 0 && may_run(&node, claim) { self.on_node(&node).replicas } else { 0 };
            if each <= 0 {
                after.push(node);
                continue;
            }
            for (count, taken) in Filled::of(node.count.max(1), each, &mut number).shares() {
                let mut node = Node { count, ..node.clone() };
                for (name, free) in &mut node.free {
                    let request = self.requests.iter().find(|(asked, _)| asked == name);
                    *free -= match request {
                        _ if name == PODS => Quantity::from_value(taken),
                        Some((_, request)) => times_of(Quantity::from_milli(request.milli), taken),
                        None => Quantity::zero(),
                    };
                }
                after.push(node);
            }
        }
        after
    }

    /// A node that was filled is of the grade from then on that what is left on it is certain to reach.
    fn take_from_grades(&self, grades: &mut Grades, mut number: i64) {
        let Some(Ok(usable)) = self.usable_grades(grades) else { return };
        for (place, each) in usable {
            if number <= 0 {
                break;
            }
            let count = std::mem::take(&mut grades.counts[place]);
            for (count, taken) in Filled::of(count, each, &mut number).shares() {
                let reached = (0..=place).rev().find(|lower| self.reaches(grades, place, *lower, taken));
                grades.counts[reached.unwrap_or(0)] += count;
            }
        }
    }

    /// Whether a node of a grade still has what a lower one is certain to have when so many replicas are on it.
    fn reaches(&self, grades: &Grades, place: usize, lower: usize, taken: i64) -> bool {
        self.requests.iter().all(|(name, request)| {
            let begin = |place: usize| {
                let begins = grades.begins.get(*name)?;
                Some(begins.get(place).copied().flatten().unwrap_or_default().milli)
            };
            let left = begin(place).unwrap_or_default().saturating_sub(request.milli.saturating_mul(taken));
            begin(lower).unwrap_or_default() <= left
        })
    }
}

/// Nodes that are alike after some replicas were put on them.
struct Filled {
    /// Nodes that hold as many as they can.
    full: i64,
    each: i64,
    /// What one more node holds.
    rest: i64,
    /// Nodes that hold none.
    empty: i64,
}

impl Filled {
    /// `number` loses what was put on them.
    fn of(count: i64, each: i64, number: &mut i64) -> Self {
        let full = (*number / each).min(count);
        let rest = if full < count { (*number - full * each).min(each) } else { 0 };
        *number -= full * each + rest;
        Self { full, each, rest, empty: count - full - i64::from(rest > 0) }
    }

    /// How many nodes hold how many.
    fn shares(self) -> impl Iterator<Item = (i64, i64)> {
        let all = [(self.full, self.each), (i64::from(self.rest > 0), self.rest), (self.empty, 0)];
        all.into_iter().filter(|(count, _)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use karmada_api::models::default_resource_models;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::affinity::tests::cluster;

    fn part(requirements: Value) -> Part {
        Part { replicas: 1, requirements: serde_json::from_value(requirements).unwrap() }
    }

    fn room(member: &Member, part: &Part) -> i64 {
        Ask::replica(Some(&part.requirements)).room(member).replicas
    }

    fn member(status: Value) -> Member {
        let models = serde_json::to_value(default_resource_models()).unwrap();
        Member::new(Arc::new(cluster("m", json!({}), json!({"resourceModels": models}), status)))
    }

    fn node(count: i64, cpu: &str, labels: Value) -> Node {
        serde_json::from_value(
            json!({"count": count, "free": {"cpu": cpu, "memory": "64Gi", "pods": "110"}, "labels": labels}),
        )
        .unwrap()
    }

    #[test]
    fn what_is_coming_takes_room() {
        let large = || {
            member(
                json!({"resourceSummary": {"allocatable": {"cpu": "64", "memory": "1Ti", "pods": "1000"}}}),
            )
        };
        let nodes = |list: Vec<Node>| large().with_nodes(list);
        let graded = |list: &[(i64, i64)]| {
            let count = |grade| list.iter().find(|(g, _)| *g == grade).map_or(0, |(_, n)| *n);
            let counts: Vec<_> = (0..9).map(|grade| json!({"grade": grade, "count": count(grade)})).collect();
            member(json!({"resourceSummary": {
                "allocatable": {"cpu": "1k", "memory": "1Ti", "pods": "1000"}, "allocatableModelings": counts}}))
        };
        let cores = |n: i64| part(json!({"resourceRequest": {"cpu": n.to_string()}}));
        let ssd =
            part(json!({"resourceRequest": {"cpu": "2"}, "nodeClaim": {"nodeSelector": {"disk": "ssd"}}}));
        let mixed = || vec![node(2, "8", json!({})), node(1, "4", json!({"disk": "ssd"}))];
        let table = [
            ("nothing comes", large(), cores(2), 0, cores(2), 32),
            ("the sum", large(), cores(2), 10, cores(2), 22),
            ("more than there is", large(), cores(2), 50, cores(2), 0),
            ("what asks for nothing takes places", large(), part(json!({})), 10, part(json!({})), 990),
            ("nodes that are alike", nodes(vec![node(3, "8", json!({}))]), cores(3), 3, cores(3), 3),
            ("pieces that stay too small", nodes(vec![node(3, "8", json!({}))]), cores(5), 3, cores(4), 0),
            (
                "smaller ones go into the pieces",
                nodes(vec![node(3, "8", json!({}))]),
                cores(5),
                3,
                cores(3),
                3,
            ),
            ("on the nodes that are asked for", nodes(mixed()), ssd.clone(), 2, ssd.clone(), 0),
            ("and no others", nodes(mixed()), ssd, 2, cores(8), 2),
            ("what fits nowhere takes of the sum alone", nodes(mixed()), cores(9), 2, cores(8), 2),
            // Grade 3 begins at 4 cores, grade 2 at 2.
            ("of two nodes one is less", graded(&[(3, 2)]), cores(2), 1, cores(2), 3),
            ("of two nodes one is full", graded(&[(3, 2)]), cores(4), 1, cores(4), 1),
            ("all of them", graded(&[(3, 2)]), cores(2), 4, cores(1), 0),
        ];
        for (message, member, comes, number, then, want) in table {
            assert_eq!(room(&member.less([(&comes, number)]), &then), want, "{message}");
        }
        let silent = Member::new(Arc::new(cluster("m", json!({}), json!({}), json!({}))));
        assert_eq!(silent.less([(&cores(1), 3)]), silent);
    }

    proptest! {
        #[test]
        fn so_many_fewer_of_the_same_fit(
            nodes in prop::collection::vec((1i64..4, 1i64..9), 0..4), cores in 1i64..4, coming in 0i64..30,
        ) {
            let listed: Vec<_> = nodes.iter().map(|(n, cpu)| node(*n, &cpu.to_string(), json!({}))).collect();
            let sum: i64 = nodes.iter().map(|(n, cpu)| n * cpu).sum();
            let status = json!({"resourceSummary": {"allocatable": {"cpu": sum.to_string(), "pods": "10000"}}});
            let member = member(status).with_nodes(listed);
            let part = part(json!({"resourceRequest": {"cpu": cores.to_string()}}));
            let before = room(&member, &part);
            prop_assert_eq!(room(&member.less([(&part, coming)]), &part), (before - coming).max(0));
            let by_two = member.less([(&part, coming / 2), (&part, coming - coming / 2)]);
            prop_assert_eq!(room(&by_two, &part), (before - coming).max(0));
        }
    }
}
