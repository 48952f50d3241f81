//! The page of the fleet, without the hub around it.
//!
//! ```text
//!   browser ── GET /ui, /ui/a/DIGEST/FILE ──▶ assets            read-only data of this program
//!      │  └─── POST /ui/session ───────────▶ vault             ids of sessions, and addresses good for one use
//!      │
//!      ├── GET /ui/api/fleet ──────────────▶ board: rows       all clusters, 200 bytes each at most
//!      ├── GET /ui/live?since=N ───────────▶ board: batches    what has changed since, once a second at most
//!      │                                     hints             that one thing shown whole has, ever more seldom while it goes on
//!      └── GET /ui/api/cluster, app, … ────▶ views             objects that the user may read, as the page shows them
//! ```
//!
//! Nothing here asks anybody for anything: who may see what, and where objects come from, is the hub's (`karmada_hub`, its
//! room `page`). [`headers`] is what every answer says to browsers.

mod agent;
pub mod assets;
pub mod board;
pub mod headers;
pub mod hints;
pub mod rows;
pub mod vault;
pub mod views;
