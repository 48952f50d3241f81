//! Who asked for what, as what, and what came of it: kube-apiserver's audit log.
//!
//! ```text
//!   front: begins a Trail ─► who really, as whom, may they ─► bodies, as the policy says ─► what came of it
//!            │ RequestReceived                                    ResponseStarted (watches), ResponseComplete, Panic │
//!            └──────────────► queue (bounded) ◄──────────────────────────────────────────────────────────────────────┘
//!                                └─► one thread ─► file, rotated, or standard output
//! ```
//!
//! [`policy`] says what is told of a request, [`event`] how: pure. [`trail`] is one request, [`queue`] the way to the
//! thread that writes, [`log`] the file.
//!
//! No request waits for the log. What has no room in the queue (10,000 events, 64 MiB), and what cannot be written, is
//! lost: it is counted in `apiserver_audit_error_total`, and the log says so, once in a while. That is kube-apiserver's
//! batch mode, not its blocking one: a crash of the process takes what came in its last moments, and one of the machine what
//! the kernel had not written yet. A body of more than 4 MiB, or for which there is no room, is left out of its event, which
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
//! `ResponseComplete`. There are no annotations of admission, and none that a client adds; no webhook gets events. A request
//! whose client has gone before it was answered is told with the code 499, never as a success. What this server's own
//! controllers write (certificates approved and signed, dependents collected, roles made) is told once, when it is done,
//! at `ResponseComplete` and without bodies; what they read, what failed, and Events that go by their age are not.

mod allowance;
pub mod event;
pub mod log;
pub mod policy;
pub mod queue;
pub(crate) mod trail;

use std::{fmt, io, sync::Arc, time::Duration};

use http::{HeaderMap, StatusCode, request::Parts};
use karmada_env::Env;
use karmada_telemetry::metrics::{Sheet, Source};
use parking_lot::Mutex;

use self::{
    allowance::{Allowances, Told},
    log::Log,
    policy::{Level, Policy},
    queue::{Limits, Queue},
    trail::Trail,
};
use crate::{
    authn::{ANONYMOUS, UserInfo},
    authz::{ResourceTarget, Target},
    request::RequestInfo,
};

/// The audit log of a server.
#[derive(Debug)]
pub struct Audit {
    policy: Policy,
    pub(crate) queue: Arc<Queue>,
    pub(crate) env: Env,
    allowances: Mutex<Allowances>,
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
    /// Events by this policy into this log.
    ///
    /// # Errors
    /// When there is no thread for it.
    pub fn new(policy: Policy, log: Log, env: Env) -> io::Result<Self> {
        let queue = Queue::start(log, Limits::default(), env.clone())?;
        Ok(Self { policy, queue, env, allowances: Mutex::default() })
    }

    /// Begins to tell of a request, if the policy wants it told.
    pub(crate) fn begin(self: &Arc<Self>, begun: &Begun<'_>) -> Option<Box<Trail>> {
        let verdict = self.policy.judge(begun.user, &begun.info.verb, &begun.target);
        self.queue.counts.level(verdict.level);
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
        self.queue.counts.level(verdict.level);
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
                self.queue.counts.untold.inc();
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

    /// Writes what is left, and takes no more. Not a long time: `limit`.
    ///
    /// # Errors
    /// When the time is up, with what is lost.
    pub async fn close(&self, limit: Duration) -> Result<(), String> {
        self.queue.close();
        let done = tokio::time::timeout(limit, self.queue.done.cancelled()).await;
        done.map_err(|_| {
            format!(
                "the audit log was not written within {} ms; {} events or more are lost",
                limit.as_millis(),
                self.queue.waiting()
            )
        })
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl Source for Audit {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let counts = &self.queue.counts;
        sheet.one_counter(
            "apiserver_audit_event_total",
            "Audit events that were made.",
            counts.events.get() as f64,
        )?;
        sheet.counter(
            "apiserver_audit_error_total",
            "Audit events that were lost: there was no room in the queue (buffered), or they could not be written (log); \
             and refused requests that were not told, of one who asks on and on (refused).",
            [
                ([("plugin", "buffered")], counts.dropped.get() as f64),
                ([("plugin", "log")], counts.failed.get() as f64),
                ([("plugin", "refused")], counts.untold.get() as f64),
            ],
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
