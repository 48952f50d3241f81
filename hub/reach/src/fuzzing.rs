//! What must hold of whatever members answer. Built for tests and with the feature `fuzzing` alone; `hub/fuzz` runs it with
//! coverage.

pub use crate::everywhere::fuzzing::members;
