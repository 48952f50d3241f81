//! All members at once: `clusters/*/proxy`.
//!
//! ```text
//!   all of a kind ──▶ every member ─▶ one list, and a Warning for each that did not answer
//!   an object ──────▶ who has it? ──▶ one member: the request as it is · none: 404 · several: 409
//!   no resource ────▶ the hub's own API
//! ```
//!
//! In Karmada's words, where it has some. The rest (watches, what makes or deletes without a name) cannot be asked of all. Each
//! request is made in the user's name, as to one cluster, and members' own roles say what comes of it.

mod asked;
mod copies;
mod decoded;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
pub(super) mod measured;
mod merge;

pub use self::asked::Place;
pub(super) use self::{asked::place, copies::Copies};

use std::{collections::BTreeSet, fmt::Write as _, sync::Arc, time::Duration};

use axum::body::{Body, to_bytes};
use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use karmada_apiserver::{
    authn::UserInfo,
    carried::{Call, Held},
};
use karmada_meta::{status::Status, text};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
    time::{Instant, sleep_until, timeout},
};

use self::{asked::Asked, decoded::Decoded};
use super::Shared;

/// The name by which all clusters are asked.
pub(super) const ALL: &str = "*";

/// Requests to all clusters that are under way at a time, and of one user.
const REQUESTS: usize = 8;
const OF_ONE: usize = 4;
/// Members that one of them asks at a time.
const AT_ONCE: usize = 32;
/// How long one member may take, and all.
const EACH: Duration = Duration::from_secs(10);
const WHOLE: Duration = Duration::from_secs(45);
/// The most that members may answer to one request, and to all that are under way, in KiB.
const ANSWER: usize = 64 << 10;
const ANSWERS: usize = 128 << 10;
/// And of that what one member may measure, in KiB: some 30,000 Pods. A few share all of it.
const MEASURED: usize = ANSWER / 4;
/// As much as there is room for.
const ANY: usize = usize::MAX >> 10;
/// What is read of an answer that only says whether there is something.
const PROBE: usize = 256 << 10;
/// So many clusters are named one by one that have not answered.
const NAMED: usize = 10;
/// The most that is said of one of them, in bytes.
const WORDS: usize = 256;

/// What requests to all clusters share.
#[derive(Debug)]
pub(super) struct Room {
    requests: Arc<Semaphore>,
    kibibytes: Arc<Semaphore>,
}

impl Default for Room {
    fn default() -> Self {
        Self { requests: Arc::new(Semaphore::new(REQUESTS)), kibibytes: Arc::new(Semaphore::new(ANSWERS)) }
    }
}

/// Why a member's part is missing.
enum Missing {
    /// It has said no, by this code.
    Refused(u16, String),
    /// It was not heard.
    Unheard(String),
    /// The hub did not ask it, since it asks it too much already: nothing it reported stands in.
    Busy(String),
    /// It was not heard, and what it reported at that time counts.
    Reported(String),
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
    let place = shared.place(&call.asked_by)?;
    let ends = std::mem::replace(&mut call.ends, Box::pin(std::future::pending()));
    let mut ends = ends;
    let asker = Asker::of(&call);
    let accept = asked::form(call.request.headers());
    let (path, query) = (call.path.as_str(), query.as_deref());
    let asking = async {
        match &asked {
            Asked::Own => Err(Status::internal("that is not asked of members")),
            Asked::List => list(shared, &asker, &among, path, query, accept).await.map(Found::Answer),
            Asked::Object(path) => {
                whose(shared, &asker, &among, path).await.map(|(name, silent)| Found::On(name, silent))
            }
        }
    };
    let found = tokio::select! {
        found = asking => found?,
        () = &mut ends => return Err(Status::service_unavailable("the connection is ending")),
    };
    drop(place);
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
    fn of(call: &Call) -> Self {
        Self {
            user: call.user.clone(),
            asked_by: call.asked_by.clone(),
            audit_id: call.audit_id.clone(),
            held: call.held.clone(),
        }
    }
}

impl Shared {
    /// A place among the requests to all clusters, for as long as it is kept.
    fn place(&self, asked_by: &str) -> Result<impl Send + use<>, Status> {
        let full =
            |_| Status::too_many_requests("too many requests to all clusters are under way; try again", 1);
        let request = self.room.requests.clone().try_acquire_owned().map_err(full)?;
        Ok((request, self.sessions.begin_few(asked_by, ALL, OF_ONE)?))
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

/// Parts of a list by their clusters, what they take of the room for answers, and whose is missing.
struct Portions {
    all: Vec<(String, merge::Portion)>,
    held: Vec<OwnedSemaphorePermit>,
    silent: Silent,
    /// Of which what the hub keeps was taken.
    kept: copies::Kept,
}

/// One list of all.
async fn list(
    shared: &Arc<Shared>,
    asker: &Asker,
    among: &Among,
    path: &str,
    query: Option<&str>,
    accept: &'static str,
) -> Result<Response<Body>, Status> {
    let portions = portions(shared, asker, among, path, query, (accept, None, ANY)).await?;
    whole(shared, asker, among, portions).await
}

/// What each has of a list, in this form, of measurements written anew; of one member at most so many KiB, or its share.
async fn portions(
    shared: &Arc<Shared>,
    asker: &Asker,
    among: &Among,
    path: &str,
    query: Option<&str>,
    (accept, decoded, longest): (&'static str, Option<&Decoded>, usize),
) -> Result<Portions, Status> {
    let query = asked::for_each(query).map_err(Status::bad_request)?;
    let question = Question { shared, asker, among, path: path.to_owned(), other: None, query, accept };
    let names = question.names().await?;
    let longest = longest.max(ANSWER / names.len().max(1));
    let room = Arc::new(Semaphore::new(ANSWER));
    let read = |cluster: String, answer: Response<Body>| {
        let (room, all) = (room.clone(), shared.room.kibibytes.clone());
        let decoded = decoded.cloned();
        async move {
            let (bytes, held) = within(answer.into_body(), Most::Of(&room, longest), &all).await?;
            let read = move || match decoded {
                Some(decoded) => merge::read(&cluster, &decoded.list(&bytes)?),
                None => merge::read(&cluster, &bytes),
            };
            let read = spawn_blocking(read).await;
            let read = read.map_err(|error| Missing::Unheard(error.to_string()))?;
            read.map(|portion| (portion, held)).map_err(Missing::Unheard)
        }
    };
    let (mut answers, mut silent, mut kept) = (Vec::new(), Silent::new(), copies::Kept::default());
    let mut asked = Vec::new();
    for name in names {
        match among.copies().and_then(|copies| copies.stands_for(shared, &name)) {
            Some(copy) => {
                kept.adds(&name, &copy, None);
                let part = copies::read(&name, copy, &read).await;
                sort_in(name, part, &mut answers, &mut silent)?;
            }
            None => asked.push(name),
        }
    }
    let (heard, unheard) = question.ask_these(asked, &read).await?;
    let from_members = heard.len();
    answers.extend(heard);
    for (name, missing) in unheard {
        let copy = match &missing {
            Missing::Unheard(why) | Missing::Busy(why) => {
                let copy = among.copies().and_then(|copies| copies.last_of(shared, &name));
                copy.inspect(|copy| kept.adds(&name, copy, Some(why)))
            }
            _ => None,
        };
        let part = match copy {
            Some(copy) => copies::read(&name, copy, &read).await,
            None => Err(missing),
        };
        sort_in(name, part, &mut answers, &mut silent)?;
    }
    if matches!(among, Among::These(..)) {
        shared.figures.searched("member", from_members);
        shared.figures.searched("kept", answers.len() - from_members);
    }
    silent.sort_by(|(a, _), (b, _)| a.cmp(b));
    answers.sort_by(|(a, _), (b, _)| a.cmp(b));
    let (mut all, mut held) = (Vec::new(), Vec::new());
    for (name, (portion, permits)) in answers {
        all.push((name, portion));
        held.extend(permits);
    }
    Ok(Portions { all, held, silent, kept })
}

/// All of them as one.
async fn whole(
    shared: &Arc<Shared>,
    asker: &Asker,
    among: &Among,
    portions: Portions,
) -> Result<Response<Body>, Status> {
    let Portions { all, held, mut silent, kept } = portions;
    if all.is_empty() {
        return Err(nobody(&silent));
    }
    let versions = among.versions();
    let joined = spawn_blocking(move || merge::join(all, versions)).await;
    let (bytes, others) = joined.map_err(|error| Status::internal(error.to_string()))?;
    let other = |name| (name, Missing::Unheard("its answer has another form".to_owned()));
    silent.extend(others.into_iter().map(other));
    let bytes = Bytes::from(bytes);
    shared.figures.user(&asker.asked_by).inc_by(bytes.len() as u64);
    // What it takes counts until it has been read.
    let parts = stream::once(async move {
        let _held = held;
        Ok::<_, axum::Error>(bytes)
    });
    let mut answer = Response::new(Body::from_stream(parts));
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    kept.tell(answer.headers_mut());
    warn(answer.headers_mut(), &silent);
    Ok(answer)
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

/// How much of a body is read.
#[derive(Clone, Copy)]
enum Most<'a> {
    /// What all answers to a request may have together, and so many KiB of that: a longer one counts as not heard.
    Of(&'a Arc<Semaphore>, usize),
    /// So many KiB: a longer one counts as not heard, and takes nothing from others.
    One(usize),
    /// The first so many KiB, of whatever length it is.
    First(usize),
}

/// Takes so many KiB of what all answers to a request may have. Whoever drops it before the answer is taken, since that is late
/// or cannot be read, takes nothing from others.
fn draw(room: &Arc<Semaphore>, kibibytes: u32, most: usize) -> Result<OwnedSemaphorePermit, Missing> {
    room.clone().try_acquire_many_owned(kibibytes).map_err(|_| {
        Missing::TooMuch(Box::new(Status::too_large(format!(
            "what all clusters answer is more than {} MiB: ask for one namespace, by labels, or cluster by cluster",
            most >> 10
        ))))
    })
}

/// Reads a body, as far as there is room for it; what it takes.
async fn within(
    body: Body,
    most: Most<'_>,
    all: &Arc<Semaphore>,
) -> Result<(Bytes, Vec<OwnedSemaphorePermit>), Missing> {
    let (mut bytes, mut held, mut counted) = (Vec::new(), Vec::new(), 0);
    let (Most::Of(_, longest) | Most::One(longest) | Most::First(longest)) = most;
    let (mut parts, mut goes_on) = (body.into_data_stream(), true);
    while goes_on && let Some(part) = parts.next().await {
        let mut part = part.map_err(|error| Missing::Unheard(format!("its answer broke off: {error}")))?;
        let left = (longest << 10) - bytes.len();
        if part.len() > left && !matches!(most, Most::First(_)) {
            return Err(Missing::Unheard(format!("it answers more than {longest} KiB")));
        }
        goes_on = part.len() <= left;
        part.truncate(left);
        bytes.extend_from_slice(&part);
        let new = bytes.len().div_ceil(1 << 10) - counted;
        let more = u32::try_from(new).unwrap_or(u32::MAX);
        if let Most::Of(room, _) = most {
            held.push(draw(room, more, ANSWER)?);
        }
        counted += new;
        match all.clone().try_acquire_many_owned(more) {
            Ok(permit) => held.push(permit),
            Err(_) => {
                let full = "too much is being put together for all clusters; try again";
                return Err(Missing::TooMuch(Box::new(Status::too_many_requests(full, 1))));
            }
        }
    }
    Ok((bytes.into(), held))
}

/// Which member has an object.
async fn whose(
    shared: &Arc<Shared>,
    asker: &Asker,
    among: &Among,
    path: &str,
) -> Result<(String, Silent), Status> {
    let question = Question {
        shared,
        asker,
        among,
        path: path.to_owned(),
        other: None,
        query: String::new(),
        accept: "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
    };
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
    match found.pop() {
        Some((name, ())) => Ok((name, silent)),
        None => {
            let mut message = "resource not found or don't have permission to get it".to_owned();
            let unheard = unheard(&silent);
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
        let until = Instant::now() + WHOLE;
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

    /// Asks one, and reads its answer, in its time.
    async fn one<T, F>(
        &self,
        name: String,
        read: &(impl Fn(String, Response<Body>) -> F + Send + Sync),
    ) -> (String, Result<T, Missing>)
    where
        F: Future<Output = Result<T, Missing>> + Send,
    {
        let asked = timeout(EACH, async { read(name.clone(), self.of(&name).await?).await }).await;
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
        let answer = self.shared.one(call).await.map_err(|status| match status.code {
            429 => Missing::Busy(status.message),
            _ => Missing::Unheard(status.message),
        })?;
        let code = answer.status();
        if code == StatusCode::OK {
            return Ok(answer);
        }
        let said = to_bytes(answer.into_body(), PROBE).await.unwrap_or_default();
        let said: Option<Status> = serde_json::from_slice(&said).ok();
        let said = said.map_or_else(|| code.to_string(), |status| status.message);
        Err(Missing::Refused(code.as_u16(), said))
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

/// Who has not answered, and why, in short.
fn unheard(silent: &Silent) -> String {
    let mut all = silent.iter().filter_map(|(name, missing)| match missing {
        Missing::Refused(403 | 404, _) | Missing::TooMuch(_) | Missing::Reported(_) => None,
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
        Missing::Refused(404, _) | Missing::TooMuch(_) => None,
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
