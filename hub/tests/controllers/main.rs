//! The hub's controllers over the embedded API in one process: one store in memory, one thread, paused time.

mod common;
mod leaving;
mod placing;
mod telling;
