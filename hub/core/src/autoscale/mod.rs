//! What scales workloads on the hub's side: at certain times, and by what their Pods use.
//!
//! ```text
//!   CronFederatedHPA ─ schedule ─▶ when ─ cron ─▶ which rules are due, and what is remembered of them
//!
//!   member: Pods and their metrics ─ sample ─▶ sums
//!   hub:    sums of all clusters ─ hpa, metrics ─▶ what is asked for ─ behavior ─▶ replicas
//! ```

pub mod behavior;
pub mod cron;
pub mod hpa;
pub mod metrics;
pub mod sample;
pub mod schedule;
