//! Objects of several parts that go to one cluster as a whole.
//!
//! Which replicas of each part a cluster was given stands in the binding (`spec.clusters[].components`). Where the object
//! is it stays; what is added to its parts needs room there, and until there is some the cluster keeps what it has.

use std::collections::BTreeMap;

use karmada_api::work::{Component, ResourceBindingSpec, TargetCluster, TargetComponent};

use super::{PlaceError, spread::Candidate};
use crate::estimate::Ask;

/// Gives each of the chosen clusters all parts.
pub(super) fn assign(
    spec: &ResourceBindingSpec,
    chosen: &[Candidate<'_>],
) -> Result<Vec<TargetCluster>, PlaceError> {
    let refused = |message| Err(PlaceError::Unschedulable { message, short: 1 });
    for c in chosen {
        if !c.there && c.room.replicas < 1 {
            let message = format!("{} has no room for all components together ({})", c.name(), c.room.limit);
            return refused(message);
        }
        let more = growth(&spec.components, given(spec, c.name()));
        let room = Ask::set(&more).within(&spec.resource.namespace).room(c.member);
        if !more.is_empty() && room.replicas < 1 {
            let parts: Vec<_> =
                more.iter().map(|part| format!("{} of {}", part.replicas, part.name)).collect();
            return refused(format!(
                "insufficient resources for component scale: {} has no room for {} more ({})",
                c.name(),
                parts.join(" and "),
                room.limit
            ));
        }
    }
    // One part alone is told by the cluster's name, as in Karmada.
    let parts: Vec<_> = match spec.components.as_slice() {
        [] | [_] => Vec::new(),
        parts => parts.iter().map(target).collect(),
    };
    let all =
        chosen.iter().map(|c| TargetCluster { components: parts.clone(), ..TargetCluster::new(c.name(), 0) });
    Ok(all.collect())
}

fn target(part: &Component) -> TargetComponent {
    TargetComponent { name: part.name.clone(), replicas: part.replicas }
}

/// What a cluster was given; nothing where it is not known.
fn given<'a>(spec: &'a ResourceBindingSpec, cluster: &str) -> &'a [TargetComponent] {
    let target = spec.clusters.iter().find(|target| target.name == cluster);
    target.map_or(&[], |target| target.components.as_slice())
}

fn by_name(given: &[TargetComponent]) -> BTreeMap<&str, i32> {
    given.iter().map(|part| (part.name.as_str(), part.replicas)).collect()
}

/// The parts with what is wanted of them beyond what was given. Nothing where it is not known what was.
fn growth(parts: &[Component], given: &[TargetComponent]) -> Vec<Component> {
    if given.is_empty() {
        return Vec::new();
    }
    let given = by_name(given);
    let more = parts.iter().map(|part| {
        let has = given.get(part.name.as_str()).copied().unwrap_or_default();
        Component { replicas: part.replicas.saturating_sub(has), ..part.clone() }
    });
    more.filter(|part| part.replicas > 0).collect()
}

/// For what there has to be room: what is added where the object is, or all of it.
pub(super) fn wanted(spec: &ResourceBindingSpec) -> Vec<Component> {
    let grown = spec.clusters.iter().map(|target| growth(&spec.components, &target.components));
    grown.into_iter().find(|more| !more.is_empty()).unwrap_or_else(|| spec.components.clone())
}

/// Whether a cluster was given other parts than the binding asks for.
pub(super) fn changed(spec: &ResourceBindingSpec) -> bool {
    spec.clusters.iter().any(|target| differs(&spec.components, target))
}

/// Whether a cluster was given other parts than an object has: it gets the object as it is now when it is given those.
pub fn differs(parts: &[Component], target: &TargetCluster) -> bool {
    let wanted = || parts.iter().map(|part| (part.name.as_str(), part.replicas)).collect::<BTreeMap<_, _>>();
    !target.components.is_empty() && by_name(&target.components) != wanted()
}
