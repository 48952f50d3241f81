//! The grades by which nodes are counted when a cluster names none of its own.

use karmada_meta::quantity::Quantity;

use crate::cluster::{ResourceModel, ResourceModelRange};

/// The least cpu (cores) and memory (GiB) of each grade but the first; a grade ends where the next begins.
const STEPS: [(i64, i64); 8] =
    [(1, 4), (2, 16), (4, 32), (8, 64), (16, 128), (32, 256), (64, 512), (128, 1024)];

/// The nine default grades: from less than 1 core and 4 GiB to 128 cores and 1 TiB and more.
///
/// They are Karmada's, and stand in a Cluster's `spec.resourceModels` once it is admitted.
pub fn default_resource_models() -> Vec<ResourceModel> {
    let unbounded = i64::MAX.to_string();
    let cpu = |step: Option<&(i64, i64)>| step.map_or_else(|| unbounded.clone(), |s| s.0.to_string());
    let memory = |step: Option<&(i64, i64)>| step.map_or_else(|| unbounded.clone(), |s| format!("{}Gi", s.1));
    (0..=STEPS.len())
        .map(|i| {
            let (from, to) = (i.checked_sub(1).and_then(|i| STEPS.get(i)), STEPS.get(i));
            let zero = "0".to_owned();
            ResourceModel {
                grade: i as i32,
                ranges: vec![
                    range("cpu", &from.map_or_else(|| zero.clone(), |_| cpu(from)), &cpu(to)),
                    range("memory", &from.map_or_else(|| zero.clone(), |_| memory(from)), &memory(to)),
                ],
            }
        })
        .collect()
}

fn range(name: &str, min: &str, max: &str) -> ResourceModelRange {
    let quantity = |text: &str| text.parse::<Quantity>().expect("invariant: written out above");
    ResourceModelRange { name: name.to_owned(), min: quantity(min), max: quantity(max) }
}
