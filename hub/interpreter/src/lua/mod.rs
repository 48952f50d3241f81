//! User-defined rules: Lua 5.1 scripts, called on a thread of their own.
//!
//! ```text
//!   caller ── Job {script, function, arguments} ──▶ queue ──▶ the thread: a fresh state per call ──▶ result
//! ```
//!
//! The thread starts with the first call and ends with the [`Scripts`] that owns it: a process without rules has
//! neither. A caller on a reactor waits for the answer, never for the script.

mod clock;
mod convert;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod kube;
mod pattern;
mod sandbox;
#[cfg(test)]
mod tests;
mod text;

use std::{fmt, sync::Arc, thread};

use karmada_env::Env;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

pub(crate) use sandbox::Limits;

/// Calls that may wait. Whoever comes then waits for a place.
const QUEUE: usize = 64;

/// The thread's stack: Lua allows 200 calls from C into Lua and back, each with a frame of the binding's.
const STACK: usize = 2 << 20;

/// What a function returns at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Number,
    Bool,
    Map,
    List,
    MapOrNil,
}

/// One call of a script's function.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) script: Arc<str>,
    pub(crate) function: &'static str,
    pub(crate) args: Vec<Value>,
    pub(crate) returns: &'static [Shape],
}

/// Why a script did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScriptError {
    /// The line of the script, where it is known.
    pub(crate) line: Option<u32>,
    /// What happened there.
    pub(crate) message: String,
}

impl ScriptError {
    fn plain(message: impl Into<String>) -> Self {
        Self { line: None, message: message.into() }
    }
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for ScriptError {}

type Answer = Result<Vec<Value>, ScriptError>;
type Queued = (Job, oneshot::Sender<Answer>);

/// Calls scripts.
pub(crate) struct Scripts {
    env: Env,
    limits: Limits,
    queue: Mutex<Option<mpsc::Sender<Queued>>>,
}

impl fmt::Debug for Scripts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripts").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Scripts {
    /// Without a thread yet.
    pub(crate) fn new(env: Env, limits: Limits) -> Self {
        Self { env, limits, queue: Mutex::new(None) }
    }

    /// Calls a function and waits for its answer.
    pub(crate) async fn call(&self, job: Job) -> Answer {
        let (answer, answered) = oneshot::channel();
        let gone = || ScriptError::plain("the thread that runs scripts has ended");
        self.queue()?.send((job, answer)).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }

    /// The thread's queue; a thread that ended, for whatever reason, is replaced.
    fn queue(&self) -> Result<mpsc::Sender<Queued>, ScriptError> {
        let mut queue = self.queue.lock();
        if let Some(there) = queue.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(there.clone());
        }
        let (sender, mut jobs) = mpsc::channel::<Queued>(QUEUE);
        let (env, limits) = (self.env.clone(), self.limits);
        let run = move || {
            while let Some((job, answer)) = jobs.blocking_recv() {
                // Whoever asked may be gone; there is nobody else to tell.
                let _ = answer.send(sandbox::call(limits, &env, &job));
            }
        };
        thread::Builder::new()
            .name("scripts".to_owned())
            .stack_size(STACK)
            .spawn(run)
            .map_err(|error| ScriptError::plain(format!("no thread for scripts: {error}")))?;
        *queue = Some(sender.clone());
        Ok(sender)
    }
}

/// Checks that a script can be loaded and defines a function. It runs what stands outside the functions, on the
/// thread of the caller, for a tenth of the time that a call has.
///
/// # Errors
/// Why not, with the line.
pub(crate) fn check(env: &Env, script: &str, function: &str) -> Result<(), ScriptError> {
    let whole = Limits::default();
    let limits =
        Limits { memory: whole.memory / 4, time: whole.time / 10, instructions: whole.instructions / 10 };
    sandbox::check(limits, env, script, function)
}
