//! The hub's controllers over the embedded API in one process: one store in memory, one thread, paused time.

#![allow(clippy::needless_pass_by_value, reason = "fixtures take what json! makes")]

mod common;
mod leaving;
mod placing;
mod telling;
