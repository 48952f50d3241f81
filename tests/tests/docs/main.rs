//! The documentation against the code: links lead somewhere, names exist, the reference is what the code says, and what is
//! marked as runnable runs.
//!
//! ```text
//!   pages      the Markdown files, taken apart: headings, links, inline code, fenced blocks
//!   names      links and anchors; paths, flags and metrics that pages name
//!   commands   commands of ours in blocks: the programs take them
//!   reference  pages that are written from the code (UPDATE_DOCS=1), and compared with it otherwise
//!   metrics    the part of them that takes processes
//!   logs       the part of them that the fields of log lines are, as the code has them
//!   runnable   blocks that are run in order, with what they are to print
//!   recording  what they have printed, as the tour shows it (UPDATE_DOCS=1)
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::or_fun_call,
    clippy::large_futures,
    reason = "a failing step fails the test"
)]

mod commands;
mod logs;
mod metrics;
mod names;
mod pages;
mod recording;
mod reference;
mod runnable;
