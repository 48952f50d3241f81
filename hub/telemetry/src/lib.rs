//! What a process shows of itself: its figures ([`metrics`]), its logs ([`logs`]), of which it may keep the last ([`recent`]), and what
//! it tells systemd ([`supervisor`]); and how a command says what it did ([`told`]).
//!
//! Both are set up once, by the program; whatever is a library gets handles and emits events. Field names of log
//! lines are one set for hub and agent, see [`fields`].

pub mod fields;
pub mod logs;
pub mod metrics;
pub mod recent;
pub mod supervisor;
pub mod told;
