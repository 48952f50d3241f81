//! The agent with a hub and a member in one process, under paused time.

mod registration;
mod works;
mod world;
