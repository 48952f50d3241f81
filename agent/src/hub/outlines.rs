//! Lists Works of a server that tells no sums, as a stock one, without what is known of them already.
//!
//! ```text
//!   a list of metadata ─▶ known by uid and revision ─▶ told again ─┐
//!                       └ others ─▶ each is read ──────────────────┴─▶ the list
//! ```
//!
//! The revision is that of the first page: what changes after it the watch tells, a second time maybe. Where many are others
//! the list as a whole is asked for, which costs less than so many answers.

use std::{collections::BTreeMap, sync::Arc};

use futures::{StreamExt, TryStreamExt, stream};
use karmada_client::{
    Error, Rest,
    rest::{METADATA_LIST, query_value},
    watch::Listed,
};
use karmada_member::{Desired, DesiredWork, revision::Revision};
use serde::Deserialize;

use super::{
    heard::{Heard, MetaIn},
    slices::OTHERS,
};

/// Works per page.
const PAGE: usize = 500;

/// More others than this part of what is known are too many to be read one by one.
const PART: usize = 4;

/// But never so few.
const FEW: usize = 8;

/// How many are read at a time.
const AT_ONCE: usize = 4;

#[derive(Deserialize)]
struct ItemIn {
    metadata: MetaIn,
}

impl MetaIn {
    /// Whether it is a Work as it is known.
    fn is(&self, work: &DesiredWork) -> bool {
        let revision = Revision::read(&self.resource_version).number();
        work.uid == self.uid && revision.is_some() && work.revision().number() == revision
    }
}

/// Lists the Works at a path; none where that is of no use.
pub(super) async fn list(hub: &Rest, path: &str, desired: &Desired) -> Result<Option<Listed<Heard>>, Error> {
    let known = desired.known();
    let known: BTreeMap<&str, &Arc<DesiredWork>> =
        known.iter().map(|work| (work.name.as_str(), work)).collect();
    let most = (known.len() / PART).max(FEW);
    let (mut same, mut others, mut revision) = (Vec::new(), Vec::new(), None);
    let query = format!("{path}?labelSelector={}", query_value(OTHERS));
    let mut pages = hub.pages(query, PAGE).accept(METADATA_LIST);
    loop {
        let Some(page) = asked(pages.next::<ItemIn>().await)? else { return Ok(None) };
        let Some(page) = page else { break };
        if page.kind != "PartialObjectMetadataList" || page.revision.is_empty() {
            return Ok(None);
        }
        revision.get_or_insert(page.revision);
        for ItemIn { metadata } in page.items {
            match known.get(metadata.name.as_str()).filter(|work| metadata.is(work)) {
                Some(work) => same.push(Arc::clone(work)),
                None => others.push(metadata.name),
            }
        }
        if others.len() > most {
            return Ok(None);
        }
    }
    let revision = revision.unwrap_or_default();
    let read = stream::iter(others).map(|name| async move {
        match hub.get_bytes(&format!("{path}/{name}"), "application/json").await {
            Ok(text) => Ok(Some(text)),
            // The watch tells of its end.
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    });
    let read: Vec<_> = read.buffered(AT_ONCE).try_collect().await?;
    let mut items: Vec<Heard> = same.iter().map(|work| Heard::Work(work.confirmed(&revision))).collect();
    for text in read.into_iter().flatten() {
        match std::str::from_utf8(&text).map_err(|error| error.to_string()).and_then(Heard::parse) {
            Ok(work) => items.push(work),
            Err(error) => tracing::warn!(path, %error, "skipped an object that cannot be read"),
        }
    }
    tracing::debug!(known = same.len(), listed = items.len(), "listed by metadata");
    Ok(Some(Listed { revision, items }))
}

/// An answer; none where the server does not give such answers.
pub(super) fn asked<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.is_transient() => Err(error),
        Err(_) => Ok(None),
    }
}
