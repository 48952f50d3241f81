//! The hub's controllers over the embedded API in one process: one store in memory, one thread, paused time.

#![allow(
    clippy::unwrap_used,
    clippy::or_fun_call,
    clippy::needless_pass_by_value,
    clippy::large_futures,
    reason = "a failing step fails the test"
)]

mod approving;
mod autoscaling;
mod common;
mod counting;
mod cron;
mod departing;
mod exporting;
mod following;
mod gathering;
mod groups;
mod impersonating;
mod interpreting;
mod leaving;
mod multi;
mod parity;
mod parts;
mod placing;
mod pushing;
mod quotas;
mod rolling;
mod scaling;
mod scheduling;
mod searching;
mod services;
mod sharing;
mod silent;
mod telling;
mod upgrading;
