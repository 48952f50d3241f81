//! Services of one cluster, used in others ([`karmada_core::services`]).
//!
//! ```text
//!   Works with collected slices ─┐
//!   bindings of ServiceExports ──┴─▶ exports ─▶ the hub's EndpointSlices ─┐
//!   MultiClusterServices ──────────▶ multi ─▶ Works on providers and consumers, the Service's binding
//!   ServiceImports ─────────────────▶ imports ─▶ derived Services ────────┴─▶ dependencies of the ServiceImport
//! ```

pub(crate) mod exports;
pub(crate) mod imports;
pub(crate) mod multi;
mod said;

use karmada_core::services::{ServiceName, slices};
use karmada_objects::key::Key;

use super::Context;
use crate::known::{
    heads::{Carries, SliceHead, WorkHead},
    index::Change,
};

/// Whether what a cluster tells of a Service by this Work counts: of very many the first in the order of names do.
///
/// # Errors
/// Why it does not.
fn counts(context: &Context, work: &Key, cluster: &str, service: &ServiceName) -> Result<(), String> {
    let group = SliceHead::of_service_in(&work.namespace, service);
    match context.known.works.nth_in(&group, slices::WORKS) {
        Some(first_too_many) if *work >= first_too_many => Err(format!(
            "cluster {cluster} tells of Service {service} by {} Works, and the first {} count",
            context.known.works.group_len(&group),
            slices::WORKS
        )),
        _ => Ok(()),
    }
}

/// The Works that count, or do not any more, because another one has come or gone.
fn at_the_edge(context: &Context, change: &Change<'_, WorkHead>) -> Vec<Key> {
    let head = change.last();
    let collected = head.slice.as_ref().filter(|slice| slice.carries == Carries::Collected);
    let (Some(slice), false) = (collected, change.old.is_some() && change.new.is_some()) else {
        return Vec::new();
    };
    let services = [slice.export.as_ref(), slice.multi.as_ref()].into_iter().flatten();
    let edges = services.flat_map(|service| {
        let group = SliceHead::of_service_in(&change.key.namespace, service);
        [slices::WORKS - 1, slices::WORKS].map(|place| context.known.works.nth_in(&group, place))
    });
    edges.flatten().collect()
}
