//! What scales workloads on the hub's side: at certain times, and by what their Pods use.
//!
//! ```text
//!   CronFederatedHPA ─ schedule ─▶ when ─ cron ─▶ which rules are due, and what is remembered of them
//!
//!   hub:    FederatedHPA ─ question ─▶ a Work on each cluster
//!   member: Pods and their metrics ─ sample ─▶ sums ─ report ─▶ the Work's status
//!   hub:    reports, what each cluster was given ─ trust ─▶ those that count
//!           reports of all clusters ─ hpa, metrics ─▶ what is asked for ─ behavior ─▶ replicas
//!           all of that in one look ─ look ─▶ replicas, conditions, events
//!           reports ─ told ─▶ whoever else asks for a metric
//! ```

pub mod behavior;
pub mod cron;
pub mod hpa;
pub mod look;
pub mod metrics;
pub mod question;
pub mod report;
pub mod sample;
pub mod schedule;
pub mod told;
pub mod trust;
