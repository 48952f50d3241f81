//! All members at once: `clusters/*/proxy`.
//!
//! ```text
//!   all of a kind ──▶ every member ─▶ one list, and a Warning for each that did not answer
//!   an object ──────▶ who has it? ──▶ one member: the request as it is · none: 404 · several: 409
//!   no resource ────▶ the hub's own API
//! ```
//!
//! Whoever says that it has an object is believed. So what may change something is sent on only if all others have said that they do
//! not have it: one that makes things up gets nobody's Secrets because their owner is silent, or does not let the user look.
//!
//! In Karmada's words, where it has some. The rest (watches, what makes or deletes without a name) cannot be asked of all. Each
//! request is made in the user's name, as to one cluster, and members' own roles say what comes of it.

mod asked;
mod copies;
mod decoded;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod inflated;
mod list;
pub(super) mod measured;
mod merge;
mod page;
mod room;
mod within;

pub use self::asked::Place;
pub(super) use self::{asked::place, copies::Copies, room::Room};

use std::{collections::BTreeSet, fmt::Write as _, sync::Arc, time::Duration};

use axum::body::{Body, to_bytes};
use futures::{FutureExt as _, StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use karmada_apiserver::{
    authn::UserInfo,
    carried::{Call, Held},
};
use karmada_meta::{status::Status, text};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until, timeout};

use self::{
    asked::Asked,
    list::list,
    room::{Seat, Share},
};
use super::Shared;

/// The name by which all clusters are asked.
pub(super) const ALL: &str = "*";

/// Members that one of them asks at a time.
const AT_ONCE: usize = 32;
/// How long one member may take, and all.
const EACH: Duration = Duration::from_secs(10);
const WHOLE: Duration = Duration::from_secs(45);
/// What is read of an answer that only says whether there is something.
const PROBE: usize = 256 << 10;
/// So many clusters are named one by one that have not answered.
const NAMED: usize = 10;
/// The most that is said of one of them, in bytes.
const WORDS: usize = 256;

/// Why a member's part is missing.
enum Missing {
    /// It has said no, by this code.
    Refused(u16, String),
    /// It was not heard.
    Unheard(String),
    /// It is asked too much already, as the hub, its agent or its API says.
    Busy(String),
    /// It was not heard, or was too busy, and what it reported at that time counts.
    Reported(String),
    /// There is no room for it on this page.
    Left,
    /// Nothing of the whole is of use any more.
    TooMuch(Box<Status>),
}

/// Clusters that have not answered, and why.
type Silent = Vec<(String, Missing)>;

/// Who asks.
struct Asker {
    user: UserInfo,
    asked_by: String,
    audit_id: String,
    held: Held,
    /// What its answers may take.
    share: Share,
}

/// One question to all clusters.
struct Question<'a> {
    shared: &'a Arc<Shared>,
    asker: &'a Asker,
    among: &'a Among,
    path: String,
    /// What is asked of a member that does not know the path.
    other: Option<String>,
    query: String,
    accept: &'static str,
    /// Whether copies may stand for members, and what was taken of them.
    stands: bool,
    kept: Mutex<copies::Kept>,
    /// The first cluster for which there was no room on a page: none behind it is asked any more.
    full: Mutex<Option<String>>,
    /// When no answer is waited for any more, however often some are asked.
    until: Instant,
}

impl<'a> Question<'a> {
    /// One for which no copies stand.
    fn new(
        shared: &'a Arc<Shared>,
        asker: &'a Asker,
        among: &'a Among,
        path: String,
        accept: &'static str,
    ) -> Self {
        let (other, query, stands) = (None, String::new(), false);
        let (kept, full) = (Mutex::default(), Mutex::default());
        let until = Instant::now() + WHOLE;
        Self { shared, asker, among, path, other, query, accept, stands, kept, full, until }
    }
}

/// Which clusters are asked.
pub(super) enum Among {
    /// All, by the name [`ALL`].
    All,
    /// Those where a kind is searched: what is said of them is said in the words of Karmada's search. Copies may stand for them.
    These(Vec<String>, Option<Copies>),
}

impl Among {
    /// What is said where several have what has one name.
    fn several(&self, names: &[String]) -> String {
        match self {
            Self::All => format!("conflict resource, exist in more than one cluster: {}", names.join(",")),
            Self::These(..) => format!("ambiguous objects in clusters [{}]", names.join(", ")),
        }
    }

    /// What to do where it cannot be known who has something.
    fn way_out(&self) -> String {
        match self {
            Self::All => format!("name one cluster instead of {ALL}"),
            Self::These(..) => "ask for it at clusters/NAME/proxy".to_owned(),
        }
    }

    /// Copies of what there is on them.
    fn copies(&self) -> Option<&Copies> {
        match self {
            Self::All => None,
            Self::These(_, copies) => copies.as_ref(),
        }
    }

    /// How their lists become one.
    fn versions(&self) -> merge::Of {
        match self {
            Self::All => merge::Of::None,
            Self::These(..) => merge::Of::Each,
        }
    }
}

/// Answers what is asked of all clusters, or of these.
pub(super) async fn carry(
    shared: &Arc<Shared>,
    mut call: Call,
    among: Among,
) -> Result<Response<Body>, Status> {
    let query = call.request.uri().query().map(str::to_owned);
    let unsupported = |verb: &str| Status {
        message: format!("Request verb {verb} is not support: name an object that there is, or one cluster"),
        ..Status::method_not_allowed_here()
    };
    let asked = asked::read(call.request.method(), &call.path, query.as_deref());
    let asked = asked.map_err(unsupported)?;
    if asked == Asked::Own {
        return own(shared, call).await;
    }
    let seat = shared.room.seat(&call.asked_by)?;
    let ends = std::mem::replace(&mut call.ends, Box::pin(std::future::pending()));
    let mut ends = ends;
    let asker = Asker::of(&call, &seat);
    let accept = asked::form(call.request.headers());
    let reads = only_reads(&call.request);
    let (path, query) = (call.path.as_str(), query.as_deref());
    let asking = async {
        match &asked {
            Asked::Own => Err(Status::internal("that is not asked of members")),
            Asked::List => list(shared, &asker, &among, path, query, accept).await.map(Found::Answer),
            Asked::Object(path) => {
                let whose = whose(shared, &asker, &among, path, reads).await;
                whose.map(|(name, silent)| Found::On(name, silent))
            }
        }
    };
    let found = tokio::select! {
        found = asking => found?,
        () = &mut ends => return Err(Status::service_unavailable("the connection is ending")),
    };
    drop(seat);
    match found {
        Found::Answer(answer) => Ok(answer),
        Found::On(name, silent) => {
            let mut answer = shared.one(Call { name, ends, ..call }).await?;
            warn(answer.headers_mut(), &silent);
            Ok(answer)
        }
    }
}

impl Asker {
    fn of(call: &Call, seat: &Seat) -> Self {
        Self {
            share: seat.share(),
            user: call.user.clone(),
            asked_by: call.asked_by.clone(),
            audit_id: call.audit_id.clone(),
            held: call.held.clone(),
        }
    }
}

/// What comes of asking.
enum Found {
    Answer(Response<Body>),
    /// The one member that is to be asked.
    On(String, Silent),
}

/// What is no resource is answered by the hub itself.
pub(super) async fn own(shared: &Shared, call: Call) -> Result<Response<Body>, Status> {
    let (mut parts, body) = call.request.into_parts();
    let query = parts.uri.query().map_or_else(String::new, |query| format!("?{query}"));
    let path = if call.path.is_empty() { "/" } else { &call.path };
    parts.uri = format!("{path}{query}")
        .parse()
        .map_err(|error| Status::bad_request(format!("the path cannot be sent: {error}")))?;
    // Whoever asks has been judged: nothing of before says who it is.
    parts.extensions = http::Extensions::new();
    for name in [header::AUTHORIZATION, header::CONNECTION, header::UPGRADE] {
        parts.headers.remove(name);
    }
    let named: Vec<_> =
        parts.headers.keys().filter(|name| name.as_str().starts_with("impersonate-")).cloned().collect();
    for name in named {
        parts.headers.remove(name);
    }
    let (user, mut ends) = (call.user, call.ends);
    // It ends with what the client has shown, as what members answer does.
    let answer = tokio::select! {
        answer = shared.registry.own(&user, Request::from_parts(parts, body)) => answer?,
        () = &mut ends => return Err(Status::service_unavailable("the connection is ending")),
    };
    Ok(answer.map(|body| Body::from_stream(super::watched(body, None, ends))))
}

/// Puts a member's part where it belongs.
fn sort_in<T>(
    name: String,
    part: Result<T, Missing>,
    answers: &mut Vec<(String, T)>,
    silent: &mut Silent,
) -> Result<(), Status> {
    match part {
        Ok(part) => answers.push((name, part)),
        Err(Missing::TooMuch(status)) => return Err(*status),
        Err(missing) => silent.push((name, missing)),
    }
    Ok(())
}

/// Whether a request tells its member nothing but what is to be read.
fn only_reads(request: &Request<Body>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
        && !request.headers().contains_key(header::UPGRADE)
}

/// Which member has an object. Unless it is only read, all others have to say that they do not have it.
async fn whose(
    shared: &Arc<Shared>,
    asker: &Asker,
    among: &Among,
    path: &str,
    reads: bool,
) -> Result<(String, Silent), Status> {
    let accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json";
    let question = Question::new(shared, asker, among, path.to_owned(), accept);
    let read = |_, answer: Response<Body>| async {
        // So that its connection is good for the next question.
        let _ = to_bytes(answer.into_body(), PROBE).await;
        Ok(())
    };
    let (mut found, silent) = question.ask(read).await?;
    if found.len() > 1 {
        let names: Vec<String> = found.into_iter().map(|(name, ())| name).collect();
        return Err(Status {
            code: 409,
            reason: "Conflict".to_owned(),
            status: "Failure".to_owned(),
            message: among.several(&names),
            ..Status::internal("")
        });
    }
    // Who is not let look does not know that it is not there.
    let unheard = unheard_but(&silent, if reads { &NOTHING[..] } else { &NOTHING[1..] });
    if !reads && !unheard.is_empty() {
        return Err(Status::service_unavailable(format!(
            "only what reads is sent to the cluster that has the object while others may have it, too: {}. \
             These clusters have not said that they do not have it: {unheard}",
            among.way_out()
        )));
    }
    match found.pop() {
        Some((name, ())) => Ok((name, silent)),
        None => {
            let mut message = "resource not found or don't have permission to get it".to_owned();
            if !unheard.is_empty() {
                let _ = write!(message, "; these clusters have not answered: {unheard}");
            }
            Err(Status { message, ..Status::no_such_resource() })
        }
    }
}

impl Question<'_> {
    /// Which clusters are asked.
    async fn names(&self) -> Result<Vec<String>, Status> {
        match self.among {
            Among::All => self.shared.registry.clusters().await,
            Among::These(names, _) => Ok(names.clone()),
        }
    }

    /// Asks all clusters, as [`Question::ask_these`].
    async fn ask<T, F>(
        &self,
        read: impl Fn(String, Response<Body>) -> F + Send + Sync,
    ) -> Result<(Vec<(String, T)>, Silent), Status>
    where
        T: Send,
        F: Future<Output = Result<T, Missing>> + Send,
    {
        self.ask_these(self.names().await?, &read).await
    }

    /// Asks these clusters, and has `read` read what comes with 200. In the order of names.
    async fn ask_these<T, F>(
        &self,
        names: Vec<String>,
        read: &(impl Fn(String, Response<Body>) -> F + Send + Sync),
    ) -> Result<(Vec<(String, T)>, Silent), Status>
    where
        T: Send,
        F: Future<Output = Result<T, Missing>> + Send,
    {
        let until = self.until;
        let (mut found, mut silent) = (Vec::new(), Vec::new());
        let mut left: BTreeSet<String> = names.iter().cloned().collect();
        let asking = stream::iter(names).map(|name| self.one(name, read).boxed());
        let mut asking = asking.buffer_unordered(AT_ONCE);
        loop {
            let (name, answer) = tokio::select! {
                answer = asking.next() => match answer {
                    Some(answer) => answer,
                    None => break,
                },
                () = sleep_until(until) => {
                    let late = format!("it was not asked, or has not answered, within {} s", WHOLE.as_secs());
                    silent.extend(left.into_iter().map(|name| (name, Missing::Unheard(late.clone()))));
                    break;
                }
            };
            left.remove(&name);
            match answer {
                Ok(answer) => found.push((name, answer)),
                Err(Missing::TooMuch(status)) => return Err(*status),
                Err(missing) => silent.push((name, missing)),
            }
        }
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        silent.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok((found, silent))
    }

    /// Whether there was no room for one before it.
    fn is_behind(&self, name: &str) -> bool {
        self.full.lock().as_deref().is_some_and(|full| name > full)
    }

    /// What stands for a member that is not asked.
    fn stands_for(&self, name: &str) -> Option<copies::Copy> {
        let copies = self.among.copies().filter(|_| self.stands)?;
        let copy = copies.stands_for(self.shared, name)?;
        self.kept.lock().adds(name, &copy, None);
        Some(copy)
    }

    /// Asks one, and reads its answer, in its time.
    async fn one<T, F>(
        &self,
        name: String,
        read: &(impl Fn(String, Response<Body>) -> F + Send + Sync),
    ) -> (String, Result<T, Missing>)
    where
        F: Future<Output = Result<T, Missing>> + Send,
    {
        if self.is_behind(&name) {
            return (name, Err(Missing::Left));
        }
        let asked = timeout(EACH, async {
            match self.stands_for(&name) {
                Some(copy) => copies::read(&name, copy, read).await,
                None => read(name.clone(), self.of(&name).await?).await,
            }
        });
        let asked = asked.await;
        let late = || Err(Missing::Unheard(format!("it has not answered within {} s", EACH.as_secs())));
        (name, asked.unwrap_or_else(|_| late()))
    }

    /// Asks one.
    async fn of(&self, name: &str) -> Result<Response<Body>, Missing> {
        match (self.at(name, &self.path).await, &self.other) {
            (Err(Missing::Refused(404, _)), Some(other)) => self.at(name, other).await,
            (answer, _) => answer,
        }
    }

    /// Asks one for a path.
    async fn at(&self, name: &str, path: &str) -> Result<Response<Body>, Missing> {
        let uri = match self.query.as_str() {
            "" => "/".to_owned(),
            query => format!("/?{query}"),
        };
        let unsent = |error: http::Error| Missing::Unheard(error.to_string());
        let request = Request::builder().method(Method::GET).uri(uri).header(header::ACCEPT, self.accept);
        let call = Call {
            user: self.asker.user.clone(),
            asked_by: self.asker.asked_by.clone(),
            name: name.to_owned(),
            path: path.to_owned(),
            request: request.body(Body::empty()).map_err(unsent)?,
            audit_id: self.asker.audit_id.clone(),
            held: self.asker.held.clone(),
            ends: Box::pin(std::future::pending()),
        };
        let answer = self.shared.one_of_many(call).await.map_err(|status| match status.code {
            429 => Missing::Busy(status.message),
            _ => Missing::Unheard(status.message),
        })?;
        let (head, body) = answer.into_parts();
        let body = inflated::inflated(&head.headers, body).map_err(Missing::Unheard)?;
        let answer = Response::from_parts(head, body);
        let code = answer.status();
        if code == StatusCode::OK {
            return Ok(answer);
        }
        let said = to_bytes(answer.into_body(), PROBE).await.unwrap_or_default();
        let said: Option<Status> = serde_json::from_slice(&said).ok();
        let said = said.map_or_else(|| code.to_string(), |status| status.message);
        Err(refused(code.as_u16(), said))
    }
}

/// What another code than 200 means: whoever says that it cannot answer now has refused nothing.
fn refused(code: u16, said: String) -> Missing {
    match code {
        429 => Missing::Busy(said),
        502..=504 => Missing::Unheard(said),
        code => Missing::Refused(code, said),
    }
}

/// What is answered where no member gave a list.
fn nobody(silent: &Silent) -> Status {
    let code = |missing: &Missing| match missing {
        Missing::Refused(code @ (403 | 404), _) => Some(*code),
        _ => None,
    };
    let codes: Vec<Option<u16>> = silent.iter().map(|(_, missing)| code(missing)).collect();
    match silent.first() {
        None => Status { message: "not found: there is no cluster".to_owned(), ..Status::no_such_resource() },
        _ if codes.iter().all(|code| *code == Some(404)) => {
            Status { message: "not found".to_owned(), ..Status::no_such_resource() }
        }
        Some((name, Missing::Refused(_, said))) if codes.iter().all(Option::is_some) => Status {
            code: 403,
            reason: "Forbidden".to_owned(),
            status: "Failure".to_owned(),
            message: format!("cluster {name}: {said}"),
            ..Status::internal("")
        },
        _ => Status::service_unavailable(format!("no cluster has answered: {}", unheard(silent))),
    }
}

/// By these codes a member answers that there is nothing for this user.
const NOTHING: [u16; 2] = [403, 404];

/// Who has not answered, and why, in short.
fn unheard(silent: &Silent) -> String {
    unheard_but(silent, &NOTHING)
}

/// The same, where these codes are answers.
fn unheard_but(silent: &Silent, answers: &[u16]) -> String {
    let mut all = silent.iter().filter_map(|(name, missing)| match missing {
        Missing::Refused(code, _) if answers.contains(code) => None,
        Missing::Left | Missing::TooMuch(_) | Missing::Reported(_) => None,
        Missing::Refused(_, why) | Missing::Unheard(why) | Missing::Busy(why) => Some((name, why)),
    });
    let mut words = String::new();
    for (name, why) in all.by_ref().take(NAMED) {
        let separator = if words.is_empty() { "" } else { "; " };
        let _ = write!(words, "{separator}{name}: {}", text::line(why, WORDS));
    }
    match all.count() {
        0 => words,
        more => format!("{words}; and {more} more"),
    }
}

/// Says something beside an answer.
fn add(headers: &mut HeaderMap, words: &str) {
    let plain: String = words.chars().map(|c| if matches!(c, ' '..='~') { c } else { '?' }).collect();
    let quoted = plain.replace('\\', "\\\\").replace('"', "\\\"");
    if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
        headers.append(header::WARNING, value);
    }
}

/// Says whose part is missing.
fn warn(headers: &mut HeaderMap, silent: &Silent) {
    let mut add = |words: &str| add(headers, words);
    let mut missing = silent.iter().filter_map(|(name, missing)| match missing {
        // It has none of that kind.
        Missing::Refused(404, _) | Missing::Left | Missing::TooMuch(_) => None,
        Missing::Refused(_, why) | Missing::Unheard(why) | Missing::Busy(why) => {
            Some(format!("cluster {name} is missing: {}", text::line(why, WORDS)))
        }
        Missing::Reported(at) => {
            Some(format!("cluster {name} has not answered: what it reported at {at} counts"))
        }
    });
    for words in missing.by_ref().take(NAMED) {
        add(&words);
    }
    match missing.count() {
        0 => {}
        more => add(&format!("{more} more clusters are missing")),
    }
}

#[cfg(test)]
mod tests;
