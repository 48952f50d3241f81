//! Lists: which objects, at which version, in which pages.

use std::{cell::OnceCell, sync::Arc};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use karmada_meta::{fields::FieldSelector, labels::Selector, status::Status};
use karmada_store::{Revision, Scope};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Registry;
use crate::{
    body,
    kinds::Kind,
    options::{ListOptions, Match},
    storage::{self, Header, Object},
    sums::Within,
};

/// One page of a list.
#[derive(Debug)]
pub struct Page {
    /// The objects, by namespace and name.
    pub items: Vec<Arc<Object>>,
    /// The version that is shown.
    pub revision: Revision,
    /// Where the next page begins.
    pub continue_token: Option<String>,
    /// How many objects follow, where that is known.
    pub remaining: Option<usize>,
}

/// Where a page ended.
#[derive(Debug, Deserialize, Serialize)]
struct Token {
    v: String,
    /// The version of the first page; -1: whatever is latest.
    rv: i64,
    /// `namespace/name` or `name` of the last object, and a zero byte.
    start: String,
}

/// The version of the token's format.
const TOKEN: &str = "meta.k8s.io/v1";

/// Selects objects of one kind by what is kept of them in memory; anything else is read from the object.
#[derive(Clone, Debug)]
pub struct Filter {
    labels: Selector,
    fields: FieldSelector,
    selectable: Vec<String>,
    custom: bool,
    within: Option<Within>,
}

impl Filter {
    /// The filter of a request.
    pub fn new(kind: &Kind, options: &ListOptions) -> Self {
        Self {
            labels: options.labels.clone(),
            fields: options.fields.clone(),
            selectable: kind.rules.selectable.clone(),
            // Only core's names of selectable fields are projected.
            custom: kind.custom.is_some() || !kind.shape.is_stored_form(),
            within: options.within.clone(),
        }
    }

    /// Lets everything pass.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.within.is_none()
    }

    /// Whether objects are read to find out whether they pass.
    pub(crate) fn reads_values(&self) -> bool {
        let read = |path: &str| !matches!(path, "metadata.name" | "metadata.namespace");
        self.custom && self.fields.requirements().iter().any(|requirement| read(&requirement.path))
    }

    /// Whether an object passes.
    pub fn matches(&self, kind: &Kind, object: &Object) -> bool {
        self.matches_parts(kind, &object.key, &object.header, || object.value.get())
    }

    fn matches_parts(
        &self,
        kind: &Kind,
        key: &karmada_store::Key,
        header: &Header,
        value: impl Fn() -> bytes::Bytes,
    ) -> bool {
        // However many fields are asked for, it is read once.
        let served = OnceCell::new();
        let read = || {
            let stored = serde_json::from_slice(&value()).ok()?;
            Some(kind.shape.to_served(stored))
        };
        self.within.as_ref().is_none_or(|within| within.has(&key.name))
            && self.labels.matches_with(|label| header.labels.get(label))
            && self.fields.matches(|path| match path {
                "metadata.name" => Some(key.name.to_string()),
                "metadata.namespace" => Some(key.namespace.to_string()),
                _ if self.custom => {
                    let object: &Option<Value> = served.get_or_init(read);
                    Some(storage::field(object.as_ref()?, path))
                }
                _ => {
                    let at = self.selectable.iter().position(|f| f == path)?;
                    header.fields.get(at).map(str::to_owned)
                }
            })
    }
}

impl Registry {
    /// One page of a list.
    ///
    /// # Errors
    /// 400 for a token that is none, 410 for a version that is gone, 504 for one that is to come.
    pub fn list(&self, kind: &Arc<Kind>, namespace: &str, options: &ListOptions) -> Result<Page, Status> {
        let token = options.continue_token.as_deref().map(decode_token).transpose()?;
        let version = match options.resource_version.as_deref() {
            None => None,
            Some(text) => Some(text.parse::<u64>().map_err(|_| {
                Status::bad_request(format!(
                    "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
                ))
            })?),
        };
        let current = self.store.revision().get();
        if let Some(version) = version.filter(|version| *version > current) {
            return Err(Status::too_large_resource_version(version, current));
        }
        let mut within = Scope::resource(&*kind.storage);
        within.namespace = Some(namespace).filter(|namespace| !namespace.is_empty()).map(Into::into);
        let snapshot = match (&token, version) {
            (Some(token), _) => {
                if version.is_some_and(|version| version > 0) {
                    let text = "specifying resource version is not allowed when using continue";
                    return Err(Status::bad_request(text));
                }
                match u64::try_from(token.rv) {
                    Err(_) => self.store.snapshot(),
                    Ok(at) => self
                        .store
                        .snapshot_in(&within, Revision::new(at))
                        .map_err(|_| expired_token(token))?,
                }
            }
            (None, Some(version)) if version > 0 && is_exact(options) => {
                self.store.snapshot_in(&within, Revision::new(version)).map_err(|_| {
                    Status::expired(
                        "The provided resource version is too old to display a consistent list result",
                    )
                })?
            }
            _ => self.store.snapshot(),
        };
        let limit = options.limit;
        let filter = Filter::new(kind, options);
        let scope = (!namespace.is_empty()).then_some(namespace);
        let start = token.as_ref().map(|token| start_of(token, kind, namespace));
        let after = start.as_ref().map(|(namespace, name)| (namespace.as_str(), name.as_str()));
        let mut objects =
            snapshot.range(&kind.storage, scope, after).filter(|object| filter.matches(kind, object));
        let mut page =
            Page { items: Vec::new(), revision: snapshot.revision(), continue_token: None, remaining: None };
        if let (Some(name), Some(namespace), None) =
            (options.fields.exact("metadata.name"), if kind.namespaced { scope } else { Some("") }, after)
        {
            let object = snapshot.get(&storage::key(kind, namespace, name));
            page.items.extend(object.filter(|object| filter.matches(kind, object)).cloned());
            return Ok(page);
        }
        if limit == 0 {
            page.items.extend(objects.cloned());
            return Ok(page);
        }
        page.items.extend(objects.by_ref().take(limit).cloned());
        if let (Some(last), Some(_)) = (page.items.last(), objects.next()) {
            page.continue_token = Some(encode_token(last, snapshot.revision(), namespace));
            if filter.is_empty() {
                page.remaining = Some(1 + objects.count());
            }
        }
        Ok(page)
    }
}

fn is_exact(options: &ListOptions) -> bool {
    match options.version_match {
        Some(Match::Exact) => true,
        Some(Match::NotOlderThan) => false,
        // A page at a version is a page of that version.
        None => options.limit > 0,
    }
}

fn encode_token(last: &Object, revision: Revision, namespace: &str) -> String {
    let start = match (namespace.is_empty(), last.key.namespace.is_empty()) {
        (true, false) => format!("{}/{}\u{0}", last.key.namespace, last.key.name),
        _ => format!("{}\u{0}", last.key.name),
    };
    let rv = i64::try_from(revision.get()).unwrap_or(-1);
    encode(&Token { v: TOKEN.to_owned(), rv, start })
}

fn encode(token: &Token) -> String {
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(token).unwrap_or_default())
}

fn decode_token(text: &str) -> Result<Token, Status> {
    let invalid = |why: String| {
        Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
    };
    let bytes = URL_SAFE_NO_PAD
        .decode(text.trim_end_matches('='))
        .map_err(|_| invalid(format!("illegal base64 data at input byte {}", text.len())))?;
    let token: Token = serde_json::from_slice(&bytes).map_err(|error| {
        if error.is_data() {
            invalid(error.to_string())
        } else {
            invalid(body::go_json_error(&bytes, &error))
        }
    })?;
    if token.v != TOKEN {
        return Err(invalid(format!("server does not recognize this encoded version {:?}", token.v)));
    }
    Ok(token)
}

/// Namespace and name of the last object of the page before.
fn start_of(token: &Token, kind: &Kind, namespace: &str) -> (String, String) {
    let start = token.start.trim_end_matches('\u{0}');
    match start.split_once('/') {
        Some((of, name)) if kind.namespaced && namespace.is_empty() => (of.to_owned(), name.to_owned()),
        _ => (namespace.to_owned(), start.to_owned()),
    }
}

/// Panics if reading a token does not undo writing it.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn check_token(text: &str) {
    if let Ok(token) = decode_token(text) {
        let again = decode_token(&encode(&token)).expect("what is written is read");
        assert_eq!((again.v, again.rv, again.start), (token.v, token.rv, token.start));
    }
}

/// Panics if a token for this place leads elsewhere.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn check_start(namespace: &str, name: &str) {
    if namespace.is_empty() || [namespace, name].iter().any(|part| part.contains(['/', '\u{0}'])) {
        return;
    }
    let token = Token { v: TOKEN.to_owned(), rv: 7, start: format!("{namespace}/{name}\u{0}") };
    let read = decode_token(&encode(&token)).expect("what is written is read");
    assert_eq!(read.start, token.start);
    let kinds = crate::builtin::kinds();
    let pods = kinds.iter().find(|kind| &*kind.storage == "core/pods").expect("there are pods");
    assert_eq!(start_of(&read, pods, ""), (namespace.to_owned(), name.to_owned()));
}

/// 410 with a token that goes on at the latest version.
fn expired_token(token: &Token) -> Status {
    let mut status = Status::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    status.metadata.continue_ = encode(&Token { v: TOKEN.to_owned(), rv: -1, start: token.start.clone() });
    status
}
