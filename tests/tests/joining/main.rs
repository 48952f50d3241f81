//! A cluster's way to its credential and through its life: joining by a token, renewals under load, coming back after its
//! certificate has ended, and what is refused. Real processes, certificates that last for seconds.

#![allow(clippy::unwrap_used, clippy::large_futures, reason = "a failing step fails the test")]

mod away;
mod clocks;
mod join;
mod kubeconfigs;
mod leaving;
mod refusals;
mod renewals;
mod world;
