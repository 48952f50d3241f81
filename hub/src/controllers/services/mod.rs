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
mod paces;
pub(crate) mod rooms;
mod said;
pub(crate) mod silence;
