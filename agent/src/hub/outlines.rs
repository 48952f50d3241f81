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
    known::asked,
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
struct ListIn {
    kind: String,
    metadata: ListMeta,
    #[serde(default)]
    items: Vec<ItemIn>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    token: Option<String>,
}

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
    let query = format!("{path}?limit={PAGE}&labelSelector={}", query_value(OTHERS));
    let (mut same, mut others) = (Vec::new(), Vec::new());
    let (mut revision, mut token) = (None, None::<String>);
    loop {
        let page = match &token {
            None => query.clone(),
            Some(token) => format!("{query}&continue={}", query_value(token)),
        };
        let Some(answer) = asked(hub.get_bytes(&page, METADATA_LIST).await)? else { return Ok(None) };
        let Ok(list) = serde_json::from_slice::<ListIn>(&answer) else { return Ok(None) };
        if list.kind != "PartialObjectMetadataList" || list.metadata.resource_version.is_empty() {
            return Ok(None);
        }
        revision.get_or_insert(list.metadata.resource_version);
        for ItemIn { metadata } in list.items {
            match known.get(metadata.name.as_str()).filter(|work| metadata.is(work)) {
                Some(work) => same.push(Arc::clone(work)),
                None => others.push(metadata.name),
            }
        }
        if others.len() > most {
            return Ok(None);
        }
        token = list.metadata.token.filter(|token| !token.is_empty());
        if token.is_none() {
            break;
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
