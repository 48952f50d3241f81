//! Who asked for what, as what, and what came of it: kube-apiserver's audit log.
//!
//! ```text
//!   front: begins a Trail ─► who really, as whom, may they ─► bodies, as the policy says ─► what came of it
//!            │ RequestReceived                                    ResponseStarted (watches), ResponseComplete, Panic │
//!            └──────────────► queue (bounded) ◄──────────────────────────────────────────────────────────────────────┘
//!                                ├─► one thread each ─► file, rotated, or standard output
//!                                │                  └─► whoever else takes [`Lines`]: a webhook
//!                                └─► one task for each event ─► [`Posts`]: a webhook that requests wait for
//! ```
//!
//! [`policy`] says what is told of a request, [`event`] how: pure. [`trail`] is one request, [`queue`] the way to the
//! thread that writes, [`log`] the file.
//!
//! In the mode [`Mode::Batch`] no request waits for the log. What has no room in the queue (10,000 events, 64 MiB), and what cannot be written, is
//! lost: it is counted in `apiserver_audit_error_total`, and the log says so, once in a while. A crash of the process takes
//! what came in its last moments, and one of the machine what the kernel had not written yet. In [`Mode::Blocking`] a request
//! goes on, and is answered, when what is told of it is written or is lost; in [`Mode::Strict`] it is refused (500) before
//! anything is done for it if that it came could not be written. Each waits for what is told of itself alone, and for 10 s at
//! most; while nothing at all is taken, those that come then do not wait, and in the strict mode are refused after a second.
//! Health checks, and what this server does by itself, wait for nothing. (kube-apiserver's requests wait for five attempts of
//! 30 s, its health checks with them.) A body of more than 4 MiB, or for which there is no room, is left out of its event, which
//! then has the annotation `audit.k8s.io/truncated`.
//!
//! Nobody fills the log by asking for what they may not: of requests that are refused 16 MiB are told of each user, and of all
//! strangers together, and 2 KiB more each second. How many were not told stands at the next that is, in the annotation
//! `hub.karmada.io/refusals-untold`, and they have half of the queue. No line has more than 4 KiB of a path or a message.
//!
//! The policy is judged by whoever has authenticated, before anybody is acted as, as kube-apiserver does it. Nothing is
//! taken out of bodies: whoever asks for `Request` or `RequestResponse` of Secrets, ConfigMaps, TokenReviews or
//! `serviceaccounts/token` has what is secret in the log, so those should be `Metadata`, as Kubernetes' documentation says,
//! too. A request whose credential does not hold has no user; rules with users or groups are not about it.
//!
//! It differs in this: a body is told as it was read, before what is left out of it is filled in. Of a list that is too long
//! to be made whole the objects are not told. A 401 whose stage is left out by the policy (`ResponseStarted`) is told as
//! `ResponseComplete`. There are no annotations of admission, and none that a client adds. A request
//! whose client has gone before it was answered is told with the code 499, never as a success. What this server's own
//! controllers write (certificates approved and signed, dependents collected, roles made) is told once, when it is done,
//! at `ResponseComplete` and without bodies; what they read, what failed, and Events that go by their age are not.

mod allowance;
pub mod event;
pub mod log;
pub mod policy;
pub mod queue;
mod tail;
pub(crate) mod trail;

pub use tail::Seen;

use std::{fmt, io, sync::Arc, time::Duration};

use futures::future::join_all;
use http::{HeaderMap, StatusCode, request::Parts};
use karmada_env::Env;
use karmada_meta::status::Status;
use karmada_telemetry::metrics::{Sheet, Source};
use parking_lot::Mutex;
use tokio::time::Instant;

use self::{
    allowance::{Allowances, Told},
    event::Event,
    policy::{Level, Policy},
    queue::{Counts, Limits, Lines, Posts, Queue, Receipt, Room},
    tail::Tail,
    trail::Trail,
};
use crate::{
    authn::{ANONYMOUS, UserInfo},
    authz::{ResourceTarget, Target},
    request::RequestInfo,
};

/// How long a request waits for what is told of it.
const WAIT: Duration = Duration::from_secs(10);
/// The same in the strict mode, while nothing is taken.
const AWAY: Duration = Duration::from_secs(1);
/// For the last posts, at least: the service may be far away.
const LAST_POSTS: Duration = Duration::from_secs(10);

/// Whether requests wait until what is told of them is written: kube-apiserver's modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// They do not.
    #[default]
    Batch,
    /// They do.
    Blocking,
    /// They do, and are refused if that they came cannot be written.
    Strict,
}

/// Where events go.
#[derive(Debug)]
pub struct Output {
    name: &'static str,
    mode: Mode,
    queue: Arc<Queue>,
    /// How long is waited at the end, at least, for what is left.
    last: Duration,
}

impl Output {
    /// What takes lines, by a name for the figures.
    ///
    /// # Errors
    /// When there is no thread for it.
    pub fn new(
        name: &'static str,
        mode: Mode,
        lines: impl Lines,
        limits: Limits,
        env: Env,
    ) -> io::Result<Self> {
        let limits = match mode {
            Mode::Batch => limits,
            // Somebody waits.
            Mode::Blocking | Mode::Strict => Limits { gather: (Duration::ZERO, 1), ..limits },
        };
        Ok(Self { name, mode, queue: Queue::start(lines, limits, env)?, last: Duration::ZERO })
    }

    /// What takes one event at a time, each of which somebody waits for. In a runtime.
    pub fn one_by_one(name: &'static str, mode: Mode, posts: impl Posts, limits: Limits, env: Env) -> Self {
        Self { name, mode, queue: Queue::posting(posts, limits, env), last: LAST_POSTS }
    }

    /// It is far away, and is given some time for what is left at the end.
    #[must_use]
    pub fn far_away(self) -> Self {
        Self { last: LAST_POSTS, ..self }
    }

    /// Waits for what becomes of a line, until `end` at most, and not for long where nothing is taken; whether it is written.
    async fn settle(&self, receipt: Receipt, end: Instant) -> bool {
        let Receipt::Sent(told) = receipt else { return false };
        let is_away = self.queue.is_away();
        if is_away && self.mode != Mode::Strict {
            return false;
        }
        let left = end.saturating_duration_since(Instant::now());
        let patience = if is_away { AWAY.min(left) } else { left };
        if let Ok(told) = tokio::time::timeout(patience, told).await {
            return told.unwrap_or(false);
        }
        if self.queue.gave_up() {
            tracing::error!(
                output = self.name,
                "an audit event was waited for in vain: until one is taken, {}",
                match self.mode {
                    Mode::Strict => "requests are refused (blocking-strict)",
                    Mode::Batch | Mode::Blocking => "requests do not wait for it",
                }
            );
        }
        false
    }
}

/// How long one request may wait for what is told of it, in all.
#[derive(Debug, Default)]
pub(crate) struct Patience(Mutex<Duration>);

impl Patience {
    fn left(&self) -> Duration {
        WAIT.saturating_sub(*self.0.lock())
    }

    fn used(&self, waited: Duration) {
        *self.0.lock() += waited;
    }
}

/// What was sent for a request, where it waits for that: for each output that is waited for, the last line.
#[derive(Debug, Default)]
pub(crate) struct Receipts(Vec<Receipt>);

/// The audit log of a server.
#[derive(Debug)]
pub struct Audit {
    policy: Policy,
    /// At least one, which counts.
    outputs: Vec<Output>,
    pub(crate) env: Env,
    allowances: Mutex<Allowances>,
    tail: Tail,
}

/// What is known of a request when it has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun<'a> {
    pub(crate) id: &'a str,
    pub(crate) parts: &'a Parts,
    pub(crate) info: &'a RequestInfo,
    /// What it is about, as it is judged.
    pub(crate) target: Target<'a>,
    /// Who asks, if that is known.
    pub(crate) user: Option<&'a UserInfo>,
}

impl Audit {
    /// Events by this policy into these, of which there is at least one.
    pub fn new(policy: Policy, outputs: Vec<Output>, env: Env) -> Self {
        assert!(!outputs.is_empty(), "events go somewhere");
        Self { policy, outputs, env, allowances: Mutex::default(), tail: Tail::default() }
    }

    /// What people have changed of late as far as it is told, the newest first, `most` at most.
    pub fn last(&self, most: usize) -> Vec<Seen> {
        self.tail.last(most)
    }

    /// How many of these there have been.
    pub fn count(&self) -> u64 {
        self.tail.count()
    }

    /// A request has ended, and is told.
    pub(crate) fn ended(&self, event: &Event<'_>) {
        self.tail.note(event);
    }

    fn counts(&self) -> &Counts {
        &self.outputs[0].queue.counts
    }

    /// Sends a line, also of who was refused, whom nobody waits for.
    pub(crate) fn push(&self, line: &[u8], refused: bool) {
        self.outputs.iter().for_each(|output| output.queue.push(line, refused));
    }

    /// The same, for a request that may wait.
    pub(crate) fn push_awaited(&self, line: &[u8], refused: bool) -> Receipts {
        let mut receipts = Receipts::default();
        for Output { mode, queue, .. } in &self.outputs {
            match mode {
                Mode::Batch => queue.push(line, refused),
                Mode::Blocking | Mode::Strict => receipts.0.push(queue.push_awaited(line, refused)),
            }
        }
        receipts
    }

    /// Room for a body that waits for its event, in the queue that has least of it.
    pub(crate) fn room(&self, bytes: usize) -> Option<Room> {
        self.outputs.iter().map(|output| &output.queue).min_by_key(|queue| queue.left())?.room(bytes)
    }

    /// Waits until what was sent is written, or lost, where that is waited for: for all outputs at once, and for no longer
    /// than the request has left ([`Patience`]).
    ///
    /// # Errors
    /// When it was lost where nothing may be.
    pub(crate) async fn settle(&self, receipts: Receipts, patience: &Patience) -> Result<(), Status> {
        let begun = Instant::now();
        let end = begun + patience.left();
        let waited_for = self.outputs.iter().filter(|output| output.mode != Mode::Batch);
        let settled = join_all(
            waited_for
                .zip(receipts.0)
                .map(|(output, receipt)| async move { (output, output.settle(receipt, end).await) }),
        );
        let settled = settled.await;
        patience.used(begun.elapsed());
        match settled.into_iter().find(|(output, written)| !written && output.mode == Mode::Strict) {
            None => Ok(()),
            Some((output, _)) => Err(Status::internal(format!(
                "the audit {} cannot be written, and without it nothing is done (blocking-strict)",
                output.name
            ))),
        }
    }

    /// Begins to tell of a request, if the policy wants it told.
    pub(crate) fn begin(self: &Arc<Self>, begun: &Begun<'_>) -> Option<Box<Trail>> {
        let verdict = self.policy.judge(begun.user, &begun.info.verb, &begun.target);
        self.counts().level(verdict.level);
        (verdict.level > Level::None).then(|| Trail::begin(self.clone(), verdict, begun))
    }

    /// Tells of what this server itself has written.
    pub(crate) fn tell_own(
        self: &Arc<Self>,
        user: &UserInfo,
        agent: &str,
        verb: &str,
        target: &ResourceTarget<'_>,
        version: &str,
    ) {
        let verdict = self.policy.judge(Some(user), verb, &Target::Resource(*target));
        self.counts().level(verdict.level);
        if verdict.level > Level::None {
            let code = if verb == "create" { StatusCode::CREATED } else { StatusCode::OK };
            Trail::own(self.clone(), verdict, user, agent, verb, target, version).answered(code, None);
        }
    }

    /// Whether a request that was refused is told, which takes so many bytes; if so, how many before it were not.
    pub(crate) fn tells_refusal(&self, user: Option<&UserInfo>, bytes: usize) -> Option<u64> {
        let name = user.map(|user| user.name.as_str()).filter(|name| *name != ANONYMOUS);
        match self.allowances.lock().take(name, bytes as u64, self.env.now()) {
            Told::Yes(untold) => Some(untold),
            Told::No(first) => {
                self.counts().untold.inc();
                if first {
                    tracing::warn!(
                        user = name.unwrap_or("strangers"),
                        "so many requests are refused that not each is told in the audit log; they are counted there \
                         and in apiserver_audit_error_total"
                    );
                }
                None
            }
        }
    }

    /// Writes what is left, and takes no more. Not a long time: `limit`, or ten seconds where events are posted.
    ///
    /// # Errors
    /// When the time is up, with what is lost.
    pub async fn close(&self, limit: Duration) -> Result<(), String> {
        self.outputs.iter().for_each(|output| output.queue.close());
        let closing = self.outputs.iter().map(|output| async move {
            let limit = limit.max(output.last);
            let done = tokio::time::timeout(limit, output.queue.done.cancelled()).await;
            done.err().map(|_| {
                format!(
                    "the audit {} within {} ms ({} events or more are lost)",
                    output.name,
                    limit.as_millis(),
                    output.queue.waiting()
                )
            })
        });
        let late: Vec<String> = join_all(closing).await.into_iter().flatten().collect();
        if late.is_empty() { Ok(()) } else { Err(format!("not written: {}", late.join(", "))) }
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.outputs.iter().for_each(|output| output.queue.close());
    }
}

impl Source for Audit {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let counts = self.counts();
        let dropped: u64 = self.outputs.iter().map(|output| output.queue.counts.dropped.get()).sum();
        let failed = self
            .outputs
            .iter()
            .map(|output| ([("plugin", output.name)], output.queue.counts.failed.get() as f64));
        let lost = [
            ([("plugin", "buffered")], dropped as f64),
            ([("plugin", "refused")], counts.untold.get() as f64),
        ];
        sheet.one_counter(
            "apiserver_audit_event_total",
            "Audit events that were made.",
            counts.events.get() as f64,
        )?;
        sheet.counter(
            "apiserver_audit_error_total",
            "Audit events that were lost: there was no room in the queue (buffered), or they could not be written (log, webhook); \
             and refused requests of a client that repeats them, which the log leaves out (refused).",
            lost.into_iter().chain(failed).collect::<Vec<_>>(),
        )?;
        let levels = Level::ALL.into_iter().zip(&counts.levels);
        let levels = levels.map(|(level, count)| ([("level", level.as_str())], count.get() as f64));
        sheet.counter(
            "apiserver_audit_level_total",
            "Requests by the level at which they are told.",
            levels.collect::<Vec<_>>(),
        )
    }
}

/// How somebody tried to authenticate, in kube-apiserver's words.
pub(crate) fn attempts(headers: &HeaderMap, access_token: bool, certificate: bool) -> String {
    let shown = headers.get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let scheme = shown.and_then(|shown| shown.trim().split_once(' ')).map(|(scheme, _)| scheme);
    let is = |name: &str| scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(name));
    let tried = [
        (is("basic"), "basic"),
        (is("bearer"), "bearer"),
        (access_token, "access_token"),
        (certificate, "x509"),
    ];
    let tried: Vec<_> = tried.into_iter().filter_map(|(tried, name)| tried.then_some(name)).collect();
    match tried.is_empty() {
        true => "Authentication failed, no credentials provided".to_owned(),
        false => format!("Authentication failed, attempted: {}", tried.join(", ")),
    }
}

#[cfg(test)]
mod tests;
