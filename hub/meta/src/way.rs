//! What somebody who goes the way to a server, step by step, finds; somebody else judges it.

use std::time::Duration;

/// What was found of a server, step by step. A step that was not come to is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Server {
    /// Its name or address, without credentials.
    pub host: String,
    /// And its port.
    pub port: u16,
    /// By which proxy it is reached, if by one.
    pub proxy: Option<String>,
    /// The addresses of the name that is dialled, the proxy's or the server's.
    pub addresses: Option<Result<Vec<String>, String>>,
    /// How long a connection took there.
    pub connected: Option<Result<Duration, String>>,
    /// The code that it answered to a request with our credential, and what it said; or why no answer came.
    pub answered: Option<Result<(u16, String), String>>,
    /// By how many seconds its clock is ahead of ours.
    pub ahead: Option<i64>,
}
