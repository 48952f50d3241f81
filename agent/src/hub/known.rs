//! Lists Works by what is known of them already: the hub tells sums, and of what these show to be other it lists the Works.
//!
//! ```text
//!   sums of 16 buckets ─▶ the same: nothing is sent ─┐
//!     └ 16 sums of each that differs ─▶ …            ├─▶ what is known, told again, and what was listed
//!         └ Works in what still differs ─────────────┘
//! ```
//!
//! The revision is that of the first answer: what changes after it the watch tells, a second time maybe. A server that tells no
//! sums, as a stock one, is asked for metadata ([`outlines`]); one of which most is not known for its list as it is. What came before the link broke is
//! kept for the next attempt, so that a link that is never up for long gets to the end; a hub that is too busy for sums is
//! asked for its list after some attempts.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use karmada_client::{
    Error, Rest,
    rest::query_value,
    watch::{Listed, Lister},
};
use karmada_member::{Desired, DesiredWork};
use karmada_meta::sums::{Buckets, DEEPEST, MOST, STEP, bucket, children};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    heard::Heard,
    outlines::{self, asked},
    slices::OTHERS,
};

const SUMS: &str = "application/json;as=Sums;g=hub.karmada.io;v=v1alpha1";

/// Works per page.
const PAGE: usize = 100;

/// A bucket of the last depth holds about so many Works.
const CROWD: usize = 2;

#[derive(Deserialize)]
struct SumsIn {
    kind: String,
    metadata: ListMeta,
    sums: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    #[serde(default)]
    resource_version: String,
}

/// So often a hub may be too busy for sums until it is asked for its list.
const BUSY: u32 = 3;

/// Lists the Works at a path.
pub(super) fn lister(hub: Rest, path: String, desired: Arc<Desired>) -> Lister<Heard> {
    let progress = Arc::new(Mutex::new(Progress::default()));
    Arc::new(move || {
        let (hub, path, desired) = (hub.clone(), path.clone(), Arc::clone(&desired));
        let progress = Arc::clone(&progress);
        Box::pin(async move { list(&hub, &path, &desired, &progress).await })
    })
}

/// How far one has come that was broken off.
#[derive(Debug, Default)]
struct Progress {
    partial: Option<Partial>,
    /// How often the hub was too busy, one time after the other.
    busy: u32,
}

/// A list of which some is there.
#[derive(Debug)]
struct Partial {
    /// The hub's life in which it was begun.
    life: u64,
    differing: Differing,
    works: Vec<Heard>,
    /// Where it goes on; empty at its beginning.
    token: String,
}

/// In which buckets the hub has others than are known, and from which revision on that is told.
#[derive(Debug)]
struct Differing {
    revision: String,
    depth: u32,
    buckets: Vec<u32>,
}

async fn list(
    hub: &Rest,
    path: &str,
    desired: &Desired,
    progress: &Mutex<Progress>,
) -> Result<Option<Listed<Heard>>, Error> {
    let life = desired.life();
    let begun = progress.lock().partial.take().filter(|partial| partial.life == life);
    let listed = match begun {
        Some(partial) => go_on(hub, path, desired, partial, progress).await,
        None => match compare(hub, path, &desired.known()).await {
            Ok(Compared::Differs(differing)) => {
                let partial = Partial { life, differing, works: Vec::new(), token: String::new() };
                go_on(hub, path, desired, partial, progress).await
            }
            Ok(Compared::NoSums) => outlines::list(hub, path, desired).await,
            Ok(Compared::Most) => Ok(None),
            Err(error) => Err(error),
        },
    };
    let mut progress = progress.lock();
    match &listed {
        // It has answered, and will not do it soon.
        Err(error) if error.code().is_some() => {
            progress.busy += 1;
            if progress.busy >= BUSY {
                *progress = Progress::default();
                return Ok(None);
            }
        }
        Err(_) => {}
        Ok(_) => *progress = Progress::default(),
    }
    listed
}

/// Fetches what is missing of a list. What came is kept where it is broken off.
async fn go_on(
    hub: &Rest,
    path: &str,
    desired: &Desired,
    mut partial: Partial,
    progress: &Mutex<Progress>,
) -> Result<Option<Listed<Heard>>, Error> {
    if !partial.differing.buckets.is_empty() {
        match within(hub, path, &mut partial).await {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) => {
                progress.lock().partial = Some(partial);
                return Err(error);
            }
        }
    }
    let Partial { life, differing: Differing { revision, depth, buckets }, works, .. } = partial;
    let known = desired.known();
    let is_same = |work: &&Arc<DesiredWork>| !buckets.contains(&bucket(&work.name, depth));
    let mut items: Vec<Heard> =
        known.iter().filter(is_same).map(|work| Heard::Work(work.again(&revision, life))).collect();
    items.extend(works);
    tracing::debug!(known = known.len(), listed = items.len(), buckets = buckets.len(), "listed by sums");
    Ok(Some(Listed { revision, items }))
}

/// What a comparison has come to.
#[derive(Debug)]
enum Compared {
    Differs(Differing),
    /// So much that it is of no use.
    Most,
    /// Nothing: the server tells no sums.
    NoSums,
}

/// Compares sums, ever deeper.
async fn compare(hub: &Rest, path: &str, known: &[Arc<DesiredWork>]) -> Result<Compared, Error> {
    if known.is_empty() {
        return Ok(Compared::Most);
    }
    let told: Vec<_> = known.iter().map(|work| (work.name.as_str(), work.told())).collect();
    let last = deepest(known.len());
    let (mut parents, selector) = (vec![0], query_value(OTHERS));
    let mut revision = None;
    let mut depth = STEP;
    loop {
        let query = if depth == STEP { String::new() } else { format!("&buckets={}", hexadecimal(&parents)) };
        let Some(answer) = asked(
            hub.get_bytes(&format!("{path}?depth={depth}{query}&labelSelector={selector}"), SUMS).await,
        )?
        else {
            return Ok(Compared::NoSums);
        };
        let among: Vec<u32> = parents.into_iter().flat_map(children).collect();
        let Some((at, theirs)) = read(&answer, &among) else { return Ok(Compared::NoSums) };
        let ours = Buckets::of(told.iter().copied(), depth);
        let buckets = ours.differing(&theirs, among.iter().copied());
        let revision = revision.get_or_insert(at).clone();
        if buckets.is_empty() || depth == last {
            return Ok(match buckets.len() <= MOST {
                true => Compared::Differs(Differing { revision, depth, buckets }),
                false => Compared::Most,
            });
        }
        let filled = among.iter().filter(|bucket| ours.get(**bucket) != 0 || theirs.get(**bucket) != 0);
        if depth > STEP && (buckets.len() > MOST || buckets.len() * 2 > filled.count()) {
            return Ok(Compared::Most);
        }
        (parents, depth) = (buckets, depth + STEP);
    }
}

/// The depth at which so many Works are looked at one by one.
fn deepest(count: usize) -> u32 {
    let enough = |depth: &u32| count <= CROWD << depth;
    (1..).map(|step| step * STEP).find(|depth| *depth == DEEPEST || enough(depth)).unwrap_or(DEEPEST)
}

fn hexadecimal(buckets: &[u32]) -> String {
    buckets.iter().map(|bucket| format!("{bucket:x}")).collect::<Vec<_>>().join(",")
}

/// The revision and the sums of an answer, if it is one to what was asked.
fn read(answer: &[u8], among: &[u32]) -> Option<(String, Buckets)> {
    let answer: SumsIn = serde_json::from_slice(answer).ok()?;
    let sums = STANDARD_NO_PAD.decode(&answer.sums).ok()?;
    let is_answer = answer.kind == "Sums" && sums.len() == among.len() * 8;
    if !is_answer || answer.metadata.resource_version.is_empty() {
        return None;
    }
    let mut buckets = Buckets::default();
    for (bucket, sum) in among.iter().zip(sums.chunks_exact(8)) {
        buckets.add(*bucket, sum.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)));
    }
    Some((answer.metadata.resource_version, buckets))
}

/// Fetches the Works in the buckets that differ, from where it was broken off. Not so where the server has no such answers, or
/// none any more.
async fn within(hub: &Rest, path: &str, partial: &mut Partial) -> Result<bool, Error> {
    let Differing { depth, buckets, .. } = &partial.differing;
    let selector = query_value(OTHERS);
    let query = format!("{path}?within={}&depth={depth}&labelSelector={selector}", hexadecimal(buckets));
    let mut pages = hub.pages(query, PAGE).after(partial.token.as_str()).each_looked_at();
    loop {
        let Some(page) = asked(pages.next::<Box<RawValue>>().await)? else { return Ok(false) };
        let Some(page) = page else { return Ok(true) };
        for item in page.items {
            let light = hub.not_too_dense(item.get().as_bytes()).map_err(str::to_owned);
            match light.and_then(|()| Heard::parse(item.get())) {
                Ok(work) => partial.works.push(work),
                Err(error) => tracing::warn!(path, %error, "skipped an object that cannot be read"),
            }
        }
        pages.token().clone_into(&mut partial.token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_works_the_deeper_the_look() {
        let rows = [(1, 4), (32, 4), (33, 8), (512, 8), (513, 12), (8192, 12), (8193, 16), (1 << 30, 16)];
        for (count, depth) in rows {
            assert_eq!(deepest(count), depth, "{count}");
        }
    }

    #[test]
    fn what_is_no_answer_is_none() {
        let sums = STANDARD_NO_PAD.encode([0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
        let text = |kind: &str, revision: &str| {
            format!(r#"{{"kind":"{kind}","metadata":{{"resourceVersion":"{revision}"}},"sums":"{sums}"}}"#)
        };
        let (at, buckets) = read(text("Sums", "7").as_bytes(), &[3, 4]).unwrap();
        assert_eq!((at.as_str(), buckets.get(3), buckets.get(4)), ("7", 258, 0));
        for odd in [text("Sums", ""), text("WorkList", "7"), "{}".to_owned(), "<html>".to_owned()] {
            assert!(read(odd.as_bytes(), &[3, 4]).is_none(), "{odd}");
        }
        assert!(read(text("Sums", "7").as_bytes(), &[3]).is_none(), "of other buckets");
    }
}
