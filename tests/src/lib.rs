//! What tests of whole fleets stand on: a stand-in member, links that can be cut, processes, and patience.
//!
//! ```text
//!   kubesim   a small member cluster: the project's own API server with workload controllers   (a crate of its own)
//!   kubelet   what runs commands and has logs, before a stand-in member
//!   link      a TCP proxy that passes, swallows, refuses, resets or is slow
//!   process   a child process with a log
//!   fleet     hub, members and agents as processes, or against real clusters
//!   inprocess hub, members and agents in one runtime under paused time, where a seed decides everything
//!   ground    keys that such fleets share, and a hub's store before anybody has come
//!   machine   the clocks of one of them, what stops it and what holds up its watches
//!   sim       fleets that live through what a seed has in store for them, judged after every step
//!   kills     hub and agents die under many writers, and nothing acknowledged is lost   (also a binary)
//!   damages   what an agent keeps is damaged while it is killed, and nothing on the member is lost   (`kills --damages`)
//!   flaps     links that come and go by the second, and whether all agrees when they stay
//!   hostile   attacks on a hub's process, and what others notice of them   (also a binary)
//!   skew      what agents of other versions ask, and `answers` what hubs of other versions answer
//!   recordings  what a stock Karmada had, beside what a fleet has
//!   figures   what a hub counts
//!   monitoring  which metrics the rules and boards of manifests/monitoring name
//!   samples   the objects that tests create
//!   wait      deadlines instead of sleeps
//!   bench     how benches measure, and what they print
//! ```

pub mod answers;
pub mod bench;
pub mod damages;
pub mod figures;
pub mod flaps;
pub mod fleet;
pub mod ground;
pub mod hostile;
pub mod inprocess;
pub mod kills;
pub mod kubelet;
pub mod link;
pub mod machine;
pub mod monitoring;
pub mod process;
pub mod recordings;
pub mod samples;
pub mod sim;
pub mod skew;
pub mod wait;

pub use karmada_kubesim as kubesim;
