//! One request on its way through, as the audit log tells of it.
//!
//! The last event is told when the trail is dropped: when the answer is made, when an answer that goes on has ended, when
//! the client has gone, or when whoever was to answer broke.

use std::{
    fmt, mem,
    net::IpAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use karmada_meta::status::Status;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    Audit, Begun, Patience, Receipts,
    event::{self, Event, ObjectRef},
    policy::{Level, Stage, Verdict},
    queue::Room,
};
use crate::{
    authz::{ResourceTarget, Target},
    body,
    findings::Findings,
    identity::UserInfo,
    negotiate::PatchType,
    request::RemoteAddr,
};

/// The largest body that is told.
const MOST: usize = 4 << 20;
/// The most addresses that are told of those that proxies say.
const ADDRESSES: usize = 32;

const DECISION: &str = "authorization.k8s.io/decision";
const REASON: &str = "authorization.k8s.io/reason";
const TRUNCATED: &str = "audit.k8s.io/truncated";
/// How many requests of the same user were refused, and not told, before this one.
const UNTOLD: &str = "hub.karmada.io/refusals-untold";

/// What is told of one request.
pub(crate) struct Trail {
    audit: Arc<Audit>,
    verdict: Verdict,
    id: String,
    uri: String,
    verb: String,
    user: Option<UserInfo>,
    source_ips: Vec<IpAddr>,
    agent: String,
    received: SystemTime,
    /// The same by the clock that is never set.
    begun: Duration,
    noted: Mutex<Noted>,
    /// The end was told.
    ended: bool,
    /// How long its request may wait for what is told of it.
    patience: Patience,
}

/// What is found out on the way.
#[derive(Default)]
struct Noted {
    object: Option<ObjectRef>,
    impersonated: Option<UserInfo>,
    status: Option<Value>,
    request: Option<Kept>,
    response: Option<Kept>,
    annotations: Vec<(&'static str, String)>,
    /// It was refused before it was judged: one event tells it all.
    unauthenticated: bool,
    /// It may be made. What is told of one that may not is told at its end.
    allowed: bool,
    /// An answer that goes on has begun.
    started: bool,
    /// What was sent last, for those who wait.
    receipts: Receipts,
}

/// A body that waits for its event.
struct Kept {
    json: Bytes,
    _room: Room,
}

impl fmt::Debug for Trail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trail").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Where a request comes from, as kube-apiserver tells it: what proxies say first, then who really sent it.
fn source_ips(headers: &HeaderMap, remote: Option<IpAddr>) -> Vec<IpAddr> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let forwarded = text("x-forwarded-for").split(',').filter_map(|part| part.trim().parse().ok());
    let mut addresses: Vec<IpAddr> = forwarded.take(ADDRESSES).collect();
    if let Ok(real) = text("x-real-ip").trim().parse()
        && !addresses.contains(&real)
    {
        addresses.push(real);
    }
    if let Some(remote) = remote.map(|remote| remote.to_canonical())
        && addresses.last() != Some(&remote)
    {
        addresses.push(remote);
    }
    addresses
}

fn reference(target: &ResourceTarget<'_>, version: &str) -> ObjectRef {
    ObjectRef {
        resource: target.resource.to_owned(),
        namespace: target.namespace.to_owned(),
        name: target.name.to_owned(),
        api_group: target.group.to_owned(),
        api_version: version.to_owned(),
        subresource: target.subresource.to_owned(),
        ..ObjectRef::default()
    }
    .cut()
}

impl Trail {
    /// Begins. That the request has come is told when it is known whether it may be made.
    pub(super) fn begin(audit: Arc<Audit>, verdict: Verdict, begun: &Begun<'_>) -> Box<Self> {
        let Begun { id, parts, info, target, user } = *begun;
        let object = match target {
            Target::Path(_) => None,
            Target::Resource(target) => Some(reference(&target, &info.version)),
        };
        let remote = parts.extensions.get::<RemoteAddr>().map(|remote| remote.0.ip());
        let agent = parts.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
        let uri = parts.uri.path_and_query().map_or_else(|| parts.uri.path(), |uri| uri.as_str());
        let (received, now) = (audit.env.wall(), audit.env.now());
        Box::new(Self {
            verdict,
            id: id.to_owned(),
            // As much of it as is told, and that it goes on.
            uri: uri[..uri.floor_char_boundary(event::URI + 1)].to_owned(),
            verb: info.verb.clone(),
            user: user.cloned(),
            source_ips: source_ips(&parts.headers, remote),
            agent: agent.unwrap_or_default().to_owned(),
            received,
            begun: now,
            noted: Mutex::new(Noted { object, ..Noted::default() }),
            ended: false,
            patience: Patience::default(),
            audit,
        })
    }

    /// Of what this server itself does: nobody has to allow it, and it is told at its end alone.
    pub(super) fn own(
        audit: Arc<Audit>,
        verdict: Verdict,
        user: &UserInfo,
        agent: &str,
        verb: &str,
        target: &ResourceTarget<'_>,
        version: &str,
    ) -> Self {
        let ResourceTarget { group, resource, subresource, namespace, name, .. } = *target;
        let mut uri = match group {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        let parts = [("namespaces/", namespace), ("", resource), ("", name), ("", subresource)];
        for (before, part) in parts.into_iter().filter(|(_, part)| !part.is_empty()) {
            uri.push('/');
            uri.push_str(before);
            uri.push_str(part);
        }
        let (received, begun) = (audit.env.wall(), audit.env.now());
        let object = Some(reference(target, version));
        Self {
            verdict,
            id: audit.env.uuid(),
            uri,
            verb: verb.to_owned(),
            user: Some(user.clone()),
            source_ips: Vec::new(),
            agent: agent.to_owned(),
            received,
            begun,
            noted: Mutex::new(Noted { object, allowed: true, ..Noted::default() }),
            ended: false,
            patience: Patience::default(),
            audit,
        }
    }

    /// The request was refused because nobody knows who asks; `how` they tried to say so.
    pub(crate) fn unauthenticated(&self, how: &str) {
        let mut noted = self.noted.lock();
        noted.unauthenticated = true;
        noted.status = Some(json!({"metadata": {}, "message": how}));
    }

    /// The rest is done as somebody else.
    pub(crate) fn impersonates(&self, user: &UserInfo) {
        self.noted.lock().impersonated = Some(user.clone());
    }

    /// What was said of the request.
    pub(crate) fn judged(&self, allowed: bool, reason: String) {
        let decision = if allowed { "allow" } else { "forbid" };
        let mut noted = self.noted.lock();
        noted.allowed = allowed;
        if allowed {
            noted.receipts = self.tell(Stage::RequestReceived, &noted);
        }
        noted.annotations.push((DECISION, decision.to_owned()));
        noted.annotations.push((REASON, reason));
    }

    /// Waits until it is written that the request has come, where that is waited for.
    ///
    /// # Errors
    /// When it cannot be, and nothing is to be done without.
    pub(crate) async fn received(&self) -> Result<(), Status> {
        let receipts = mem::take(&mut self.noted.lock().receipts);
        self.audit.settle(receipts, &self.patience).await
    }

    /// Waits until it is written that an answer has begun that goes on.
    pub(crate) async fn begun(&self) {
        let receipts = mem::take(&mut self.noted.lock().receipts);
        // What it is about is done already.
        let _ = self.audit.settle(receipts, &self.patience).await;
    }

    /// Tells the end, and waits until that is written, where that is waited for.
    pub(crate) async fn end(mut self: Box<Self>) {
        let receipts = self.tell_end();
        let _ = self.audit.settle(receipts, &self.patience).await;
    }

    /// What was sent, read.
    pub(crate) fn sent(&self, object: &Value) {
        if let Some(known) = &mut self.noted.lock().object {
            known.fill(object);
        }
        if self.verdict.level >= Level::Request {
            let kept = match self.verdict.omit_managed_fields {
                false => self.keep(object.to_string().into()),
                true => self.keep(without_managed_fields(object.clone())),
            };
            self.noted.lock().put(kept, |noted| &mut noted.request);
        }
    }

    /// A patch that was sent.
    pub(crate) fn sent_patch(&self, patch_type: PatchType, patch: &Bytes) {
        if self.verdict.level < Level::Request {
            return;
        }
        // What cannot be read is refused, and what it is then is nobody's object.
        let read = match patch_type {
            PatchType::Apply => body::yaml(patch, &mut Findings::default()).ok(),
            _ => body::json(patch, &mut Findings::default()).ok(),
        };
        if let Some(patch) = read {
            let kept = self.keep(patch.to_string().into());
            self.noted.lock().put(kept, |noted| &mut noted.request);
        }
    }

    /// What is answered.
    pub(crate) fn shown(&self, json: &Bytes) {
        if self.verdict.level < Level::RequestResponse {
            return;
        }
        let kept = match self.verdict.omit_managed_fields {
            false => self.keep(json.clone()),
            true => match serde_json::from_slice(json) {
                Ok(object) if json.len() <= MOST => self.keep(without_managed_fields(object)),
                _ => None,
            },
        };
        self.noted.lock().put(kept, |noted| &mut noted.response);
    }

    /// What is answered is too long to be told.
    pub(crate) fn shown_at_length(&self) {
        if self.verdict.level >= Level::RequestResponse {
            self.noted.lock().put(None, |noted| &mut noted.response);
        }
    }

    /// The request is answered with a code, or with a Status.
    pub(crate) fn answered(&self, code: StatusCode, refusal: Option<&Status>) {
        let code = code.as_u16();
        if let Some(status) = refusal.and_then(|refusal| serde_json::to_vec(refusal).ok()) {
            self.shown(&status.into());
        }
        let mut noted = self.noted.lock();
        match (&mut noted.status, refusal) {
            (Some(status), _) => status["code"] = code.into(),
            (none, Some(refusal)) => *none = Some(event::refused(refusal)),
            (none, None) => *none = Some(event::answered(code)),
        }
    }

    /// An answer that goes on has begun.
    pub(crate) fn started(&self) {
        let mut noted = self.noted.lock();
        noted.started = true;
        if noted.allowed {
            noted.receipts = self.tell(Stage::ResponseStarted, &noted);
        }
    }

    /// A body that is to be told, if there is room for it.
    fn keep(&self, json: Bytes) -> Option<Kept> {
        let room = (json.len() <= MOST).then(|| self.audit.room(json.len()))??;
        Some(Kept { json, _room: room })
    }

    fn tell(&self, stage: Stage, noted: &Noted) -> Receipts {
        if matches!(stage, Stage::ResponseComplete | Stage::Panic) {
            self.said(stage, noted, |event| self.audit.ended(event));
        }
        let line = self.line(stage, noted);
        line.map(|line| self.audit.push_awaited(&line, false)).unwrap_or_default()
    }

    /// What is told at a stage, if it is.
    fn line(&self, stage: Stage, noted: &Noted) -> Option<Vec<u8>> {
        self.said(stage, noted, |event| event.line())
    }

    /// What is told at a stage, for somebody.
    fn said<T>(&self, stage: Stage, noted: &Noted, to: impl FnOnce(&Event<'_>) -> T) -> Option<T> {
        if self.verdict.omitted.contains(stage) {
            return None;
        }
        // Nothing more is known when it comes.
        let known = stage != Stage::RequestReceived;
        let after = match stage {
            Stage::RequestReceived => Duration::ZERO,
            _ => self.audit.env.now().saturating_sub(self.begun),
        };
        let event = Event {
            level: self.verdict.level,
            id: &self.id,
            stage,
            uri: &self.uri,
            verb: &self.verb,
            user: self.user.as_ref(),
            impersonated: noted.impersonated.as_ref().filter(|_| known),
            source_ips: &self.source_ips,
            agent: &self.agent,
            object: noted.object.as_ref(),
            status: noted.status.as_ref().filter(|_| known),
            request: noted.request.as_ref().map(|kept| &*kept.json),
            response: noted.response.as_ref().map(|kept| &*kept.json),
            received: self.received,
            after,
            annotations: if known { &noted.annotations } else { &[] },
        };
        Some(to(&event))
    }

    /// Tells of a request that was refused, all at once and as far as there is room for such.
    fn tell_refused(&self, last: Stage, noted: &mut Noted) -> Receipts {
        let mut lines = Vec::new();
        if !noted.unauthenticated {
            lines.extend(self.line(Stage::RequestReceived, noted));
            if noted.started {
                lines.extend(self.line(Stage::ResponseStarted, noted));
            }
        }
        let end = self.line(last, noted);
        let bytes = lines.iter().chain(&end).map(Vec::len).sum();
        let Some(untold) = self.audit.tells_refusal(self.user.as_ref(), bytes) else {
            return Receipts::default();
        };
        self.said(last, noted, |event| self.audit.ended(event));
        let end = if untold > 0 {
            noted.annotations.push((UNTOLD, untold.to_string()));
            self.line(last, noted)
        } else {
            end
        };
        lines.iter().for_each(|line| self.audit.push(line, true));
        end.map(|line| self.audit.push_awaited(&line, true)).unwrap_or_default()
    }

    /// Tells the end, once.
    fn tell_end(&mut self) -> Receipts {
        if mem::replace(&mut self.ended, true) {
            return Receipts::default();
        }
        let mut noted = mem::take(self.noted.get_mut());
        let stage = match noted.unauthenticated {
            // As kube-apiserver, and told also by a policy that does without this stage.
            true if !self.verdict.omitted.contains(Stage::ResponseStarted) => Stage::ResponseStarted,
            false if std::thread::panicking() => {
                noted.status =
                    Some(json!({"metadata": {}, "status": "Failure", "message": "APIServer panic'd",
                    "reason": "InternalError", "code": 500}));
                Stage::Panic
            }
            _ => Stage::ResponseComplete,
        };
        noted.status.get_or_insert_with(|| {
            // Whether anything came of it is not known here: the client was not told either.
            json!({"metadata": {}, "status": "Failure", "message": "Connection closed early", "code": 499})
        });
        match noted.allowed {
            true => self.tell(stage, &noted),
            false => self.tell_refused(stage, &mut noted),
        }
    }
}

impl Noted {
    fn put(&mut self, kept: Option<Kept>, place: fn(&mut Self) -> &mut Option<Kept>) {
        if kept.is_none() && !self.annotations.iter().any(|(name, _)| *name == TRUNCATED) {
            self.annotations.push((TRUNCATED, "true".to_owned()));
        }
        *place(self) = kept;
    }
}

fn without_managed_fields(mut object: Value) -> Bytes {
    event::strip_managed_fields(&mut object);
    object.to_string().into()
}

impl Drop for Trail {
    fn drop(&mut self) {
        self.tell_end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_told_and_not_believed() {
        let (a, b): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let mapped: IpAddr = "::ffff:10.0.0.2".parse().unwrap();
        for (forwarded, real, remote, want) in [
            ("", "", Some(b), vec![b]),
            ("", "", None, vec![]),
            ("10.0.0.1, nonsense,10.0.0.2", "", Some(b), vec![a, b]),
            ("10.0.0.1", "10.0.0.1", Some(mapped), vec![a, b]),
            ("", "10.0.0.1", Some(b), vec![a, b]),
            ("10.0.0.2, 10.0.0.1", "", Some(b), vec![b, a, b]),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in [("x-forwarded-for", forwarded), ("x-real-ip", real)] {
                if !value.is_empty() {
                    headers.insert(name, value.parse().unwrap());
                }
            }
            assert_eq!(source_ips(&headers, remote), want, "{forwarded} {real}");
        }
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", vec!["10.0.0.1"; 1000].join(",").parse().unwrap());
        assert_eq!(source_ips(&headers, Some(b)).len(), ADDRESSES + 1);
    }
}
