//! The agent with a hub and a member in one process, under paused time.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests, too")]

mod bytes;
mod keeping;
mod leases;
mod local;
mod narrow;
mod older;
mod registration;
mod removals;
mod resume;
mod samples;
mod sights;
mod slices;
mod state;
mod storm;
mod unsure;
mod upgrade;
mod versions;
mod works;
mod world;
