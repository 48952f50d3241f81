//! One list of what all have, or a page of it.

use std::{collections::BTreeSet, sync::Arc};

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, Response, header};
use karmada_api::consts::annotation;
use karmada_meta::status::Status;
use tokio::{sync::Semaphore, task::spawn_blocking, time::Instant};

use super::{
    super::Shared,
    Among, Asker, Missing, Question, Silent, WHOLE, asked, copies,
    decoded::Decoded,
    merge, nobody,
    page::{self, Page},
    sort_in, warn,
    within::{Most, Takes, within},
};

/// Parts of a list by their clusters, what they take of the room for answers, and whose is missing.
pub(super) struct Portions {
    pub(super) all: Vec<(String, merge::Portion)>,
    pub(super) held: Vec<(String, Takes)>,
    pub(super) silent: Silent,
    /// Of which what the hub keeps was taken.
    pub(super) kept: copies::Kept,
    /// For whose there was no room.
    pub(super) left: BTreeSet<String>,
    /// Where the next page begins.
    pub(super) next: Option<String>,
    /// The form of the pages before.
    pub(super) form: Option<(String, String)>,
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
pub(super) async fn list(
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
pub(super) async fn portions(
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
pub(super) async fn all(
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
pub(super) async fn whole(
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
