//! The hub's controllers over the embedded API in one process: one store in memory, one thread, paused time.

#![allow(
    clippy::unwrap_used,
    clippy::or_fun_call,
    clippy::needless_pass_by_value,
    clippy::large_futures,
    reason = "a failing step fails the test"
)]

mod approving;
mod common;
mod counting;
mod departing;
mod following;
mod gathering;
mod groups;
mod interpreting;
mod leaving;
mod parity;
mod parts;
mod placing;
mod quotas;
mod scaling;
mod scheduling;
mod services;
mod telling;
