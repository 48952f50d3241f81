//! Who owns `replicas`, as the scale subresource sees it and back.
//!
//! A Scale is not stored: it is made of its parent. Its managed fields are those of the parent's that own the
//! parent's replicas, as if they owned the Scale's.

use crate::fieldpath::{Path, Set};
use crate::managed::{Entry, Managed, Manager};

/// The version in which a Scale is read and written.
pub const SCALE_API_VERSION: &str = "autoscaling/v1";

/// Where the replicas of a kind are, in each of its versions that are served; none for a version that is not.
pub type ReplicasPath<'a> = &'a dyn Fn(&str) -> Option<Path>;

fn replicas_of_scale() -> Set {
    Set::of_fields(&["spec.replicas"])
}

/// The managers of a Scale whose parent has these.
pub fn to_scale(parent: &Managed, replicas: ReplicasPath<'_>) -> Managed {
    let mut scale = Managed::default();
    for entry in parent.entries() {
        if replicas(&entry.manager.api_version).is_some_and(|path| entry.set.has(&path.0)) {
            let manager = Manager { api_version: SCALE_API_VERSION.to_owned(), ..entry.manager.clone() };
            scale.put(Entry::new(manager, replicas_of_scale(), entry.time.clone()));
        }
    }
    scale
}

/// The managers of the parent after its Scale has these. `api_version` is that of the parent in the request.
///
/// Whoever comes in through the Scale has no time, and entries of versions that are not served go: so Kubernetes has it.
pub fn to_parent(
    parent: &Managed,
    scale: &Managed,
    api_version: &str,
    replicas: ReplicasPath<'_>,
) -> Managed {
    let mut out = Managed::default();
    for entry in parent.entries() {
        let Some(path) = replicas(&entry.manager.api_version) else { continue };
        let mut entry = entry.clone();
        if entry.set.has(&path.0) && scale.get(&entry.manager).is_none() {
            entry.lose(&Set::from_paths([path]));
        }
        if !entry.set.is_empty() {
            out.put(entry);
        }
    }
    let Some(path) = replicas(api_version) else { return out };
    for entry in scale.entries() {
        let owns = !entry.set.intersection(&replicas_of_scale()).is_empty();
        if owns && parent.get(&entry.manager).is_none() {
            let manager = Manager { api_version: api_version.to_owned(), ..entry.manager.clone() };
            let own = Set::from_paths([path.clone()]);
            let set = out.get(&manager).map_or_else(|| own.clone(), |e| e.set.union(&own));
            out.put(Entry::new(manager, set, None));
        }
    }
    out
}
