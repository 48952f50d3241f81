//! Lists Works by what is known of them already: the hub tells sums, and of what these show to be other it lists the Works.
//!
//! ```text
//!   sums of 16 buckets ─▶ the same: nothing is sent ─┐
//!     └ 16 sums of each that differs ─▶ …            ├─▶ what is known, told again, and what was listed
//!         └ Works in what still differs ─────────────┘
//! ```
//!
//! The revision is that of the first answer: what changes after it the watch tells, a second time maybe. A hub that tells no
//! sums, as a stock server, or of which most is not known, is asked for its list as it is.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use bytes::Bytes;
use karmada_client::{
    Error, Rest,
    rest::query_value,
    watch::{Listed, Lister},
};
use karmada_member::{Desired, DesiredWork};
use karmada_meta::sums::{Buckets, DEEPEST, MOST, STEP, bucket, children};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::heard::Heard;

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
struct ListIn<'a> {
    metadata: ListMeta,
    #[serde(borrow, default)]
    items: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    token: Option<String>,
}

/// Lists the Works at a path.
pub(super) fn lister(hub: Rest, path: String, desired: Arc<Desired>) -> Lister<Heard> {
    Arc::new(move || {
        let (hub, path, desired) = (hub.clone(), path.clone(), Arc::clone(&desired));
        Box::pin(async move { list(&hub, &path, &desired).await })
    })
}

/// In which buckets the hub has others than are known, and from which revision on that is told.
struct Differing {
    revision: String,
    depth: u32,
    buckets: Vec<u32>,
}

async fn list(hub: &Rest, path: &str, desired: &Desired) -> Result<Option<Listed<Heard>>, Error> {
    let (known, life) = (desired.known(), desired.life());
    let Some(differing) = compare(hub, path, &known).await? else { return Ok(None) };
    let Differing { revision, depth, buckets } = differing;
    let is_same = |work: &&Arc<DesiredWork>| !buckets.contains(&bucket(&work.name, depth));
    let mut items: Vec<Heard> =
        known.iter().filter(is_same).map(|work| Heard::Work(work.again(&revision, life))).collect();
    if !buckets.is_empty() {
        let Some(others) = within(hub, path, depth, &buckets).await? else { return Ok(None) };
        items.extend(others);
    }
    tracing::debug!(known = known.len(), listed = items.len(), buckets = buckets.len(), "listed by sums");
    Ok(Some(Listed { revision, items }))
}

/// Compares sums, ever deeper. None where it is of no use.
async fn compare(hub: &Rest, path: &str, known: &[Arc<DesiredWork>]) -> Result<Option<Differing>, Error> {
    if known.is_empty() {
        return Ok(None);
    }
    let told: Vec<_> = known.iter().map(|work| (work.name.as_str(), work.told())).collect();
    let last = deepest(known.len());
    let mut parents = vec![0];
    let mut revision = None;
    let mut depth = STEP;
    loop {
        let query = if depth == STEP { String::new() } else { format!("&buckets={}", hexadecimal(&parents)) };
        let Some(answer) = asked(hub.get_bytes(&format!("{path}?depth={depth}{query}"), SUMS).await)? else {
            return Ok(None);
        };
        let among: Vec<u32> = parents.into_iter().flat_map(children).collect();
        let Some((at, theirs)) = read(&answer, &among) else { return Ok(None) };
        let ours = Buckets::of(told.iter().copied(), depth);
        let buckets = ours.differing(&theirs, among.iter().copied());
        let revision = revision.get_or_insert(at).clone();
        if buckets.is_empty() || depth == last {
            return Ok((buckets.len() <= MOST).then_some(Differing { revision, depth, buckets }));
        }
        let filled = among.iter().filter(|bucket| ours.get(**bucket) != 0 || theirs.get(**bucket) != 0);
        if depth > STEP && (buckets.len() > MOST || buckets.len() * 2 > filled.count()) {
            // Most of it is to be listed in any case.
            return Ok(None);
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

/// An answer; none where the server does not give such answers.
fn asked(answer: Result<Bytes, Error>) -> Result<Option<Bytes>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.is_transient() => Err(error),
        Err(_) => Ok(None),
    }
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

/// The Works in some buckets.
async fn within(hub: &Rest, path: &str, depth: u32, buckets: &[u32]) -> Result<Option<Vec<Heard>>, Error> {
    let query = format!("{path}?limit={PAGE}&depth={depth}&within={}", hexadecimal(buckets));
    let (mut works, mut token) = (Vec::new(), String::new());
    loop {
        let page = if token.is_empty() {
            query.clone()
        } else {
            format!("{query}&continue={}", query_value(&token))
        };
        let Some(answer) = asked(hub.get_bytes(&page, "application/json").await)? else { return Ok(None) };
        let Ok(list) = serde_json::from_slice::<ListIn<'_>>(&answer) else { return Ok(None) };
        for item in list.items {
            match Heard::parse(item.get()) {
                Ok(work) => works.push(work),
                Err(error) => tracing::warn!(path, %error, "skipped an object that cannot be read"),
            }
        }
        match list.metadata.token.filter(|token| !token.is_empty()) {
            Some(next) => token = next,
            None => return Ok(Some(works)),
        }
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
