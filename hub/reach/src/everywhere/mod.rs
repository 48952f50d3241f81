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
mod page;
mod room;

pub use self::asked::Place;
pub(super) use self::{asked::place, copies::Copies, room::Room};

use std::{collections::BTreeSet, fmt::Write as _, sync::Arc, time::Duration};

use axum::body::{Body, to_bytes};
use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use karmada_api::consts::annotation;
use karmada_apiserver::{
    authn::UserInfo,
    carried::{Call, Held},
};
use karmada_meta::{status::Status, text};
use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
    time::{Instant, sleep_until, timeout},
};

use self::{
    asked::Asked,
    decoded::Decoded,
    page::Page,
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
    /// The hub did not ask it, since it asks it too much already: nothing it reported stands in.
    Busy(String),
    /// It was not heard, and what it reported at that time counts.
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

/// Parts of a list by their clusters, what they take of the room for answers, and whose is missing.
struct Portions {
    all: Vec<(String, merge::Portion)>,
    held: Vec<(String, Takes)>,
    silent: Silent,
    /// Of which what the hub keeps was taken.
    kept: copies::Kept,
    /// For whose there was no room.
    left: BTreeSet<String>,
    /// Where the next page begins.
    next: Option<String>,
    /// The form of the pages before.
    form: Option<(String, String)>,
}

impl Portions {
    /// These, too, which were left before.
    fn and(&mut self, more: Self) {
        self.silent.retain(|(_, missing)| !matches!(missing, Missing::Left));
        self.all.extend(more.all);
        self.held.extend(more.held);
        self.silent.extend(more.silent);
        self.kept.and(more.kept);
        self.left.extend(more.left);
        self.all.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.silent.sort_by(|(a, _), (b, _)| a.cmp(b));
    }

    /// Those for whom there was no room are not asked again.
    fn give_up(&mut self, left: impl Iterator<Item = String>) {
        let why = format!("there was no room for it while others were read, within {} s", WHOLE.as_secs());
        self.silent.retain(|(_, missing)| !matches!(missing, Missing::Left));
        self.silent.extend(left.map(|name| (name, Missing::Unheard(why.clone()))));
        self.silent.sort_by(|(a, _), (b, _)| a.cmp(b));
    }

    /// Those of clusters before this one.
    fn before(&mut self, first: &str) {
        let is_before = |name: &str| name < first;
        self.all.retain(|(name, _)| is_before(name));
        self.held.retain(|(name, _)| is_before(name));
        self.silent.retain(|(name, _)| is_before(name));
        self.kept.retain(is_before);
    }
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
    let portions = portions(shared, asker, among, path, query, (accept, None)).await?;
    whole(shared, asker, among, portions).await
}

/// What each has of a list, in this form, of measurements written anew; of one member at most so many KiB.
async fn portions(
    shared: &Arc<Shared>,
    asker: &Asker,
    among: &Among,
    path: &str,
    query: Option<&str>,
    (accept, decoded): (&'static str, Option<&Decoded>),
) -> Result<Portions, Status> {
    let page = Page::of(query).map_err(Status::bad_request)?;
    let query = asked::for_each(query);
    let question = Question::new(shared, asker, among, path.to_owned(), accept);
    let question = Question { query, stands: true, ..question };
    let mut names = page.of_these(question.names().await?);
    if !page.limited {
        return all(&question, names, decoded).await;
    }
    let (room, clusters) = (|| Arc::new(Semaphore::new(shared.room.each())), names.len());
    let mut silent = Silent::new();
    loop {
        let mut portions = some(&question, names.clone(), (&room(), clusters, true), decoded).await?;
        portions.form.clone_from(&page.form);
        let first = portions.left.first().cloned();
        if let Some(first) = &first {
            portions.before(first);
        }
        silent.append(&mut portions.silent);
        let Some(alone) = first.clone().filter(|_| portions.all.is_empty()) else {
            (portions.silent, portions.next) = (silent, first);
            return Ok(portions);
        };
        // Others were quicker: so it has a page to itself.
        drop(portions);
        let mut portions = some(&question, vec![alone.clone()], (&room(), clusters, false), decoded).await?;
        portions.form.clone_from(&page.form);
        silent.append(&mut portions.silent);
        names.retain(|name| *name > alone);
        if !portions.all.is_empty() || names.is_empty() || question.until <= Instant::now() {
            (portions.silent, portions.next) = (silent, names.into_iter().next());
            return Ok(portions);
        }
    }
}

/// The same of all at once. Some may answer what is of no use, and only take room while it is read: so those for whom there was none
/// are asked again. Where there is none for the first of them alone, it is too much. Whoever still has none in the end is missing:
/// those who keep the room until then with what is of no use take nothing else.
async fn all(
    question: &Question<'_>,
    names: Vec<String>,
    decoded: Option<&Decoded>,
) -> Result<Portions, Status> {
    let (room, clusters) = (&Arc::new(Semaphore::new(question.shared.room.each())), names.len());
    let mut whole = some(question, names, (room, clusters, true), decoded).await?;
    while let Some(first) = whole.left.pop_first() {
        let others = std::mem::take(&mut whole.left);
        if question.until <= Instant::now() {
            whole.give_up(others.into_iter().chain([first]));
            break;
        }
        whole.and(some(question, vec![first], (room, clusters, false), decoded).await?);
        whole.and(some(question, others.into_iter().collect(), (room, clusters, true), decoded).await?);
    }
    Ok(whole)
}

/// The same of these clusters, as far as there is room for all of it. Whoever has none may be left. How many are asked in all says
/// what one of them may take.
async fn some(
    question: &Question<'_>,
    names: Vec<String>,
    (room, clusters, leaves): (&Arc<Semaphore>, usize, bool),
    decoded: Option<&Decoded>,
) -> Result<Portions, Status> {
    let Question { shared, asker, among, .. } = question;
    let from = match among {
        Among::All => annotation::QUERY_FROM_CLUSTER,
        Among::These(..) => annotation::CACHED_FROM_CLUSTER,
    };
    let most = shared.room.each();
    *question.full.lock() = None;
    let read = |cluster: String, answer: Response<Body>| {
        let (room, all) = (room.clone(), asker.share.clone());
        let decoded = decoded.cloned();
        async move {
            let body = within(answer.into_body(), Most::Of(&room, most, clusters), &all).await;
            let (bytes, held) = body.map_err(|missing| match missing {
                Missing::TooMuch(status) if leaves && status.code == 413 => {
                    let mut full = question.full.lock();
                    if full.as_ref().is_none_or(|full| cluster < *full) {
                        *full = Some(cluster.clone());
                    }
                    Missing::Left
                }
                missing => missing,
            })?;
            let read = move || match decoded {
                Some(decoded) => merge::read_as(from, &cluster, &decoded.list(&bytes)?),
                None => merge::read_as(from, &cluster, &bytes),
            };
            let read = spawn_blocking(read).await;
            let read = read.map_err(|error| Missing::Unheard(error.to_string()))?;
            read.map(|portion| (portion, held)).map_err(Missing::Unheard)
        }
    };
    let (mut answers, unheard) = question.ask_these(names, &read).await?;
    let mut kept = std::mem::take(&mut *question.kept.lock());
    let from_members = answers.len() - answers.iter().filter(|(name, _)| kept.has(name)).count();
    let mut silent = Silent::new();
    for (name, missing) in unheard {
        let copy = match &missing {
            Missing::Unheard(why) | Missing::Busy(why) if !question.is_behind(&name) => {
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
    let heard: BTreeSet<&str> = answers.iter().map(|(name, _)| name.as_str()).collect();
    kept.retain(|name| heard.contains(name));
    if matches!(among, Among::These(..)) {
        shared.figures.searched("member", from_members);
        shared.figures.searched("kept", answers.len() - from_members);
    }
    let left = silent.iter().filter(|(_, missing)| matches!(missing, Missing::Left));
    let left = left.map(|(name, _)| name.clone()).collect();
    silent.sort_by(|(a, _), (b, _)| a.cmp(b));
    answers.sort_by(|(a, _), (b, _)| a.cmp(b));
    let (mut all, mut held) = (Vec::new(), Vec::new());
    for (name, (portion, permits)) in answers {
        held.push((name.clone(), permits));
        all.push((name, portion));
    }
    Ok(Portions { all, held, silent, kept, left, next: None, form: None })
}

/// All of them as one.
async fn whole(
    shared: &Arc<Shared>,
    asker: &Asker,
    among: &Among,
    portions: Portions,
) -> Result<Response<Body>, Status> {
    let Portions { all, held, mut silent, kept, next, form, .. } = portions;
    // What was read before is not to be lost because nobody answers now.
    let Some(form) = merge::form(&all).or(form) else { return Err(nobody(&silent)) };
    let versions = among.versions();
    let joined = spawn_blocking(move || {
        let next = next.map(|next| page::token(&next, &form));
        match all.is_empty() {
            true => (merge::nothing(&form, next.as_deref()), Vec::new()),
            false => merge::join(all, versions, next.as_deref()),
        }
    })
    .await;
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
    /// What all answers to a request may have together, of so many KiB, and how many clusters are asked.
    Of(&'a Arc<Semaphore>, usize, usize),
    /// So many KiB: a longer one counts as not heard, and takes nothing from others.
    One(usize),
    /// The first so many KiB, of whatever length it is.
    First(usize),
}

/// Of what the answers to a request may take, one cluster's may have this part, and of fewer clusters each its share: none of them
/// makes the others' too much.
const PART: usize = 4;

/// What an answer takes of the room for all and of that of its request. It is given back when it is dropped: whoever answers
/// rubbish, or too late, takes nothing from others.
#[derive(Debug, Default)]
struct Takes {
    of_all: Vec<room::Held>,
    of_request: Vec<OwnedSemaphorePermit>,
}

/// An answer may come in so many pieces, and one more for each of so many bytes: each costs more than its bytes.
const FRAMES: usize = 1024;
const FRAME: usize = 128;

/// Takes so many KiB of what all answers to a request may have.
fn draw(room: &Arc<Semaphore>, kibibytes: usize, most: usize) -> Result<OwnedSemaphorePermit, Missing> {
    let kibibytes = u32::try_from(kibibytes).unwrap_or(u32::MAX);
    room.clone().try_acquire_many_owned(kibibytes).map_err(|_| {
        Missing::TooMuch(Box::new(Status::too_large(format!(
            "what all clusters answer is more than {} MiB: ask for one namespace, by labels, or cluster by cluster",
            most >> 10
        ))))
    })
}

/// Reads a body, as far as there is room for it; what it takes.
async fn within(body: Body, most: Most<'_>, all: &Share) -> Result<(Bytes, Takes), Missing> {
    let (mut bytes, mut counted, mut takes) = (Vec::new(), 0, Takes::default());
    let one = match most {
        Most::Of(_, most, clusters) => most / clusters.clamp(1, PART),
        Most::One(most) | Most::First(most) => most,
    };
    let (mut parts, mut goes_on, mut count) = (body.into_data_stream(), true, 0);
    while goes_on && let Some(part) = parts.next().await {
        let mut part = part.map_err(|error| Missing::Unheard(format!("its answer broke off: {error}")))?;
        count += 1;
        if count > FRAMES + bytes.len() / FRAME {
            return Err(Missing::Unheard("it answers in pieces that are too small".to_owned()));
        }
        let left = (one << 10) - bytes.len();
        if part.len() > left && !matches!(most, Most::First(_)) {
            return Err(Missing::Unheard(format!("it answers more than {one} KiB")));
        }
        goes_on = part.len() <= left;
        part.truncate(left);
        bytes.extend_from_slice(&part);
        let more = bytes.len().div_ceil(1 << 10) - counted;
        if more == 0 {
            continue;
        }
        counted += more;
        if let Most::Of(room, most, _) = most {
            takes.of_request.push(draw(room, more, most)?);
        }
        takes.of_all.push(all.take(more).ok_or_else(|| {
            let full = "too much is being put together for all clusters; try again";
            Missing::TooMuch(Box::new(Status::too_many_requests(full, 1)))
        })?);
    }
    Ok((bytes.into(), takes))
}

/// Which member has an object.
async fn whose(
    shared: &Arc<Shared>,
    asker: &Asker,
    among: &Among,
    path: &str,
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
        Missing::Refused(403 | 404, _) | Missing::Left | Missing::TooMuch(_) | Missing::Reported(_) => None,
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
