//! What the hub has of members, in the place of what they would answer.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, HeaderValue, Response, header};
use karmada_meta::{duration, labels::Selector, text};
use serde::Deserialize;
use serde_json::json;
use tokio::task::spawn_blocking;

use super::{Missing, NAMED, WORDS, add, asked, asked::Place};
use crate::{Shared, member::Copied};

/// How a list is asked for of which copies may be a part.
pub(crate) struct Copies {
    place: Place,
    labels: Option<Arc<Selector>>,
    /// Whether they stand for members that answer, too.
    first: bool,
}

/// A copy, as far as it is asked for.
pub(super) struct Copy {
    copied: Copied,
    namespace: String,
    labels: Option<Arc<Selector>>,
}

/// What was taken of copies: of which clusters, how old that is, and why a cluster has not answered that was asked.
#[derive(Default)]
pub(super) struct Kept(BTreeMap<String, (Duration, Option<String>)>);

/// What is looked at of an object.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Head {
    metadata: Meta,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Meta {
    namespace: String,
    labels: Option<BTreeMap<String, String>>,
}

impl Copies {
    /// For a request whose answer they may be: a plain list of all, or by labels. `any`: whatever version it asks for.
    pub(crate) fn by(place: Place, query: Option<&str>, headers: &HeaderMap, any: bool) -> Option<Self> {
        if asked::form(headers) != "application/json" {
            return None;
        }
        let (mut labels, mut first) = (None, any);
        for (key, value, _) in asked::pairs(query) {
            match &*key {
                "labelSelector" => labels = Some(Arc::new(Selector::parse(&asked::decoded(value)?).ok()?)),
                "resourceVersion" => first |= value == "0",
                "limit" | "continue" | "timeout" | "timeoutSeconds" | "pretty" => {}
                "resourceVersionMatch" if value.is_empty() => {}
                _ => return None,
            }
        }
        Some(Self { place, labels, first })
    }

    /// What stands for a member that is not asked.
    pub(super) fn stands_for(&self, shared: &Shared, cluster: &str) -> Option<Copy> {
        if !self.first {
            return None;
        }
        self.last_of(shared, cluster).filter(|copy| copy.copied.age.is_none())
    }

    /// What stands for a member that does not answer.
    pub(super) fn last_of(&self, shared: &Shared, cluster: &str) -> Option<Copy> {
        let copied = shared.registry.copied(cluster, &self.place)?;
        Some(Copy { copied, namespace: self.place.namespace.clone(), labels: self.labels.clone() })
    }
}

impl Copy {
    fn is_asked_for(&self, object: &str) -> bool {
        if self.namespace.is_empty() && self.labels.is_none() {
            return true;
        }
        let Ok(Head { metadata }) = serde_json::from_str(object) else { return false };
        let labels = || metadata.labels.clone().unwrap_or_default();
        (self.namespace.is_empty() || self.namespace == metadata.namespace)
            && self.labels.as_ref().is_none_or(|selector| selector.matches(&labels()))
    }

    /// A list of it, as its member would send it.
    fn body(mut self) -> Body {
        let mut objects = std::mem::take(&mut self.copied.objects);
        objects.retain(|object| self.is_asked_for(object));
        let Copied { api_version, kind, revision, .. } = self.copied;
        let head = json!({"apiVersion": api_version, "kind": format!("{kind}List"), "metadata": {"resourceVersion": revision}});
        let head = head.to_string();
        // What it has is behind what it is.
        let begins = format!("{},\"items\":[", head.strip_suffix('}').unwrap_or(&head));
        let items = objects.into_iter().enumerate().flat_map(|(n, object)| {
            let comma = if n == 0 { "" } else { "," };
            [Bytes::from_static(comma.as_bytes()), Bytes::copy_from_slice(object.as_bytes())]
        });
        let parts = std::iter::once(Bytes::from(begins)).chain(items);
        let parts = parts.chain(std::iter::once(Bytes::from_static(b"]}")));
        Body::from_stream(stream::iter(parts.map(Ok::<_, axum::Error>)))
    }
}

/// Reads a copy as an answer of its member.
pub(super) async fn read<T, F>(
    cluster: &str,
    copy: Copy,
    read: &impl Fn(String, Response<Body>) -> F,
) -> Result<T, Missing>
where
    F: Future<Output = Result<T, Missing>>,
{
    let body = spawn_blocking(move || copy.body()).await;
    let body = body.map_err(|error| Missing::Unheard(error.to_string()))?;
    read(cluster.to_owned(), Response::new(body)).await
}

impl Kept {
    /// This was taken, too.
    pub(super) fn and(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    /// One more; why its member has not answered, if it was asked.
    pub(super) fn adds(&mut self, cluster: &str, copy: &Copy, why: Option<&str>) {
        let age = copy.copied.age.unwrap_or_default();
        self.0.insert(cluster.to_owned(), (age, why.map(|why| text::line(why, WORDS))));
    }

    /// Whether something was taken of a cluster's.
    pub(super) fn has(&self, cluster: &str) -> bool {
        self.0.contains_key(cluster)
    }

    /// Only of these clusters.
    pub(super) fn retain(&mut self, is: impl Fn(&str) -> bool) {
        self.0.retain(|cluster, _| is(cluster));
    }

    /// Says how old the oldest of it is, and of what it stands for.
    pub(super) fn tell(&self, headers: &mut HeaderMap) {
        let Some(oldest) = self.0.values().map(|(age, _)| age.as_secs()).max() else { return };
        headers.insert(header::AGE, HeaderValue::from(oldest));
        let mut old = self.0.iter().filter_map(|(cluster, (age, why))| Some((cluster, age, why.as_ref()?)));
        for (cluster, age, why) in old.by_ref().take(NAMED) {
            let age = duration::format(Duration::from_secs(age.as_secs()));
            add(headers, &format!("cluster {cluster} is shown as it was {age} ago: {why}"));
        }
        match old.count() {
            0 => {}
            more => add(headers, &format!("{more} more clusters are shown as they were")),
        }
    }
}
