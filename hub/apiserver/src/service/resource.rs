//! What is served at a path of the API: which kind, and what is done there.
//!
//! It is found from the [`RequestInfo`] alone, which is what was judged: the verb that was allowed is the one that is
//! carried out.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::{Method, Response, StatusCode};
use karmada_meta::status::Status;

use super::{handlers::Handler, inner::Inner};
use crate::{
    front::Exchange,
    kinds::{Kind, Kinds},
    registry::Target,
    request::RequestInfo,
    respond,
    reviews::Review,
    subresources::{self, Sort},
};

/// What is done with a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    List,
    Watch,
    Create,
    DeleteCollection,
    Get,
    Update,
    Patch,
    Delete,
    Review(Review),
    GetScale,
    UpdateScale,
    PatchScale,
    IssueToken,
}

/// Why nothing is done.
#[derive(Debug)]
pub(super) enum Nothing {
    /// Nothing is served at the path.
    NoPage,
    /// A refusal.
    Refused(Box<Status>),
}

impl From<Status> for Nothing {
    fn from(status: Status) -> Self {
        Self::Refused(Box::new(status))
    }
}

/// Answers a request for a resource.
pub(super) async fn answer(
    inner: &Inner,
    exchange: &Exchange<'_>,
    body: Bytes,
) -> Result<Response<Body>, Status> {
    let (info, kinds) = (exchange.info, inner.registry.kinds());
    let (kind, action) = match find(&kinds, info) {
        Ok(found) => found,
        Err(Nothing::NoPage) => return Ok(respond::text(StatusCode::NOT_FOUND, "404 page not found\n")),
        Err(Nothing::Refused(status)) => return Err(*status),
    };
    let _ = exchange.found.set(());
    if let Some(warning) = kind.deprecation() {
        exchange.caller.warn(warning);
    }
    let action = action.ok_or_else(Status::method_not_allowed_here)?;
    // HEAD is judged as the reading that it is, and then not done.
    let reads = matches!(info.verb.as_str(), "get" | "list" | "watch");
    if reads && exchange.parts.method != Method::GET {
        return Err(Status::method_not_allowed_here());
    }
    let handler = Handler { inner, exchange, kind, namespace: namespace(kind, info) };
    match action {
        Action::List => handler.list().await,
        Action::Watch => handler.watch().await,
        Action::Create => handler.create(body).await,
        Action::DeleteCollection => handler.delete_collection(body).await,
        Action::Get => handler.get().await,
        Action::Update => handler.update(body).await,
        Action::Patch => handler.patch(body).await,
        Action::Delete => handler.delete(body).await,
        Action::Review(review) => handler.review(review, body).await,
        Action::GetScale => handler.get_scale().await,
        Action::UpdateScale => handler.update_scale(body).await,
        Action::PatchScale => handler.patch_scale(body).await,
        Action::IssueToken => handler.issue_token(body).await,
    }
}

/// The namespace that a request is about.
pub(super) fn namespace<'a>(kind: &Kind, info: &'a RequestInfo) -> &'a str {
    if kind.namespaced { &info.namespace } else { "" }
}

/// The kind at a path, and what is done with it; no action: not with this verb.
pub(super) fn find<'a>(
    kinds: &'a Kinds,
    info: &RequestInfo,
) -> Result<(&'a Arc<Kind>, Option<Action>), Nothing> {
    // Routing knows no empty parts, though authorisation looks past them.
    if info.path.starts_with("//") {
        return Err(Nothing::NoPage);
    }
    if info.path.contains("//") {
        return Err(Status::no_such_resource().into());
    }
    let Some(kind) = kinds.by_resource(&info.group, &info.version, &info.resource) else {
        // Built-in groups know that they have no such resource; the others are asked one after another, and none does.
        if !info.group.is_empty() && !kinds.has_native_group(&info.group) {
            return Err(Nothing::NoPage);
        }
        return Err(Status::no_such_resource().into());
    };
    // The path of a Namespace has it as a namespace too; no other cluster-scoped object is in one.
    let is_namespace = &*kind.storage == "core/namespaces" && info.namespace == info.name;
    if !kind.namespaced && !info.namespace.is_empty() && !is_namespace {
        return Err(misplaced(kind));
    }
    let everywhere = kind.namespaced && info.namespace.is_empty();
    let across =
        !info.name_in_path && (kind.custom.is_none() || matches!(info.verb.as_str(), "list" | "watch"));
    if everywhere && !across {
        return Err(misplaced(kind));
    }
    if !info.name_in_path {
        return Ok((kind, collection(kind, info, everywhere)));
    }
    Ok((kind, object(kind, info)?))
}

/// What is said of a kind that is asked for in a namespace though it is in none, or the other way round. Routes of built-in
/// kinds are the API's; those of definitions are tried, and then nobody is left who could know.
fn misplaced(kind: &Kind) -> Nothing {
    match kind.custom {
        Some(_) => Nothing::NoPage,
        None => Status::no_such_resource().into(),
    }
}

fn collection(kind: &Kind, info: &RequestInfo, everywhere: bool) -> Option<Action> {
    let verb = info.verb.as_str();
    if let ("create", false, Some(review)) =
        (verb, everywhere, Review::of(&kind.gvr.group, &kind.gvr.resource))
    {
        return Some(Action::Review(review));
    }
    let action = match verb {
        "list" => Action::List,
        "watch" => Action::Watch,
        "create" if !everywhere => Action::Create,
        "deletecollection" if !everywhere => Action::DeleteCollection,
        _ => return None,
    };
    kind.has_verb(verb).then_some(action)
}

fn object(kind: &Arc<Kind>, info: &RequestInfo) -> Result<Option<Action>, Status> {
    let verb = info.verb.as_str();
    if info.subresource.is_empty() {
        const OF_OBJECTS: [&str; 4] = ["get", "update", "patch", "delete"];
        if !OF_OBJECTS.iter().any(|verb| kind.has_verb(verb)) {
            return Err(nothing(kind, info));
        }
        let action = match verb {
            "get" => Action::Get,
            // Whoever may be read one by one and watched as a list can be watched one by one.
            "watch" if kind.has_verb("get") => Action::Watch,
            "update" => Action::Update,
            "patch" => Action::Patch,
            "delete" => Action::Delete,
            _ => return Ok(None),
        };
        return Ok(kind.has_verb(verb).then_some(action));
    }
    let (row, subresource) = subresources::of(kind, &info.subresource, info.behind)
        .filter(|(_, subresource)| !subresource.verbs.is_empty())
        .ok_or_else(|| nothing(kind, info))?;
    if !row.verbs.contains(&verb) || !subresource.verbs.iter().any(|offered| offered == verb) {
        return Ok(None);
    }
    Ok(match (row.sort, verb) {
        (Sort::Part, "get") => Some(Action::Get),
        (Sort::Part, "update") => Some(Action::Update),
        (Sort::Part, "patch") => Some(Action::Patch),
        (Sort::Scale, "get") => Some(Action::GetScale),
        (Sort::Scale, "update") => Some(Action::UpdateScale),
        (Sort::Scale, "patch") => Some(Action::PatchScale),
        (Sort::Token, "create") => Some(Action::IssueToken),
        _ => None,
    })
}

/// 404 for an object's path at which nothing is served.
fn nothing(kind: &Arc<Kind>, info: &RequestInfo) -> Status {
    if kind.custom.is_none() {
        return Status::no_such_resource();
    }
    let (namespace, name) = (namespace(kind, info), info.name.as_str());
    Target { kind, namespace, name, subresource: &info.subresource }.not_found()
}

/// Panics if what would be carried out is not what is judged: verb, namespace, name, subresource and selection.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn check_judged(kinds: &Kinds, info: &RequestInfo, uri: &str) {
    let crate::authz::Target::Resource(judged) = crate::front::target(info) else {
        return assert!(!info.is_resource, "{uri}");
    };
    let Ok((kind, Some(action))) = find(kinds, info) else { return };
    let done = match action {
        Action::List => "list",
        Action::Watch => "watch",
        Action::Create | Action::Review(_) | Action::IssueToken => "create",
        Action::DeleteCollection => "deletecollection",
        Action::Get | Action::GetScale => "get",
        Action::Update | Action::UpdateScale => "update",
        Action::Patch | Action::PatchScale => "patch",
        Action::Delete => "delete",
    };
    assert_eq!(done, info.verb, "{uri}");
    assert_eq!((&kind.gvr.group, &kind.gvr.resource), (&info.group, &info.resource), "{uri}");
    assert_eq!((judged.group, judged.resource), (info.group.as_str(), info.resource.as_str()), "{uri}");
    let place = namespace(kind, info);
    assert!(place == judged.namespace || judged.namespace == judged.name, "{uri}");
    assert_eq!(judged.subresource, info.subresource, "{uri}");
    if !matches!(action, Action::List | Action::Watch | Action::DeleteCollection) {
        assert!(info.fields.is_empty() && info.bad_fields.is_none(), "{uri}");
        assert_eq!(info.name_in_path, done != "create" || action == Action::IssueToken, "{uri}");
    } else if !judged.name.is_empty() {
        // No object of another name can be in what is shown.
        let other = format!("{}-other", judged.name);
        let passes = info.fields.matches(|path| (path == "metadata.name").then(|| other.clone()));
        assert!(!passes, "{uri}");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::request::Query;

    fn kinds() -> Kinds {
        Kinds::new(crate::builtin::kinds())
    }

    fn parse(method: &str, uri: &str) -> RequestInfo {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        RequestInfo::parse(&method.parse().unwrap(), path, &Query::parse(query))
    }

    fn found(method: &str, uri: &str) -> Option<Action> {
        find(&kinds(), &parse(method, uri)).ok().and_then(|(_, action)| action)
    }

    #[test]
    fn what_is_served_where() {
        let deployment = "/apis/apps/v1/namespaces/x/deployments/d";
        let watched = "/apis/apps/v1/watch/namespaces/x/deployments/d";
        for (method, uri, want) in [
            ("GET", deployment.to_owned(), Some(Action::Get)),
            ("GET", format!("{deployment}?watch=1"), Some(Action::Watch)),
            ("GET", format!("{deployment}/status"), Some(Action::Get)),
            ("PUT", format!("{deployment}/scale"), Some(Action::UpdateScale)),
            ("DELETE", format!("{deployment}/status"), None),
            ("POST", "/api/v1/namespaces/x/serviceaccounts/y/token".to_owned(), Some(Action::IssueToken)),
            ("GET", "/api/v1/namespaces/x/serviceaccounts/y/token".to_owned(), None),
            ("POST", "/api/v1/namespaces/x/serviceaccounts/y/token/z".to_owned(), None),
            ("POST", "/api/v1/namespaces/x/secrets/y/token".to_owned(), None),
            ("POST", deployment.to_owned(), None),
            ("GET", format!("{deployment}/status/more"), None),
            ("GET", watched.to_owned(), Some(Action::Watch)),
            // What was judged as a watch is not carried out as something else.
            ("GET", format!("{watched}/status"), None),
            ("GET", format!("{watched}/scale"), None),
            ("GET", "/api/v1/componentstatuses?watch=1".to_owned(), None),
            ("GET", "/api/v1/namespaces/x".to_owned(), Some(Action::Get)),
            ("PUT", "/api/v1/namespaces/x/finalize".to_owned(), Some(Action::Update)),
            // No namespace is in another one.
            ("GET", "/api/v1/namespaces/x/namespaces".to_owned(), None),
            ("GET", "/api/v1/namespaces/x/namespaces/y".to_owned(), None),
            ("GET", "/api/v1/namespaces/x/nodes/y".to_owned(), None),
        ] {
            assert_eq!(found(method, &uri), want, "{method} {uri}");
        }
    }

    /// Parts of URIs that mean something, and some that only look so.
    fn uri() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            Just("api"),
            Just("apis"),
            Just("v1"),
            Just("apps"),
            Just("watch"),
            Just("namespaces"),
            Just("x"),
            Just("y"),
            Just("deployments"),
            Just("pods"),
            Just("nodes"),
            Just("status"),
            Just("scale"),
            Just("finalize"),
            Just("%70ods"),
            Just("n%61mespaces"),
            Just(""),
            Just("."),
            Just(".."),
            Just("%2F"),
            Just("x%2Fy"),
            Just("%00")
        ];
        let root = prop_oneof![Just("/api/v1"), Just("/apis/apps/v1"), Just(""), Just("/api//v1")];
        let pair = prop_oneof![
            Just("watch=1"),
            Just("watch=0"),
            Just("watch"),
            Just("fieldSelector=metadata.name%3Dx"),
            Just("fieldSelector=metadata.name=y"),
            Just("fieldSelector=metadata.name!%3Dx"),
            Just("fieldSelector=metadata.namespace%3Dx"),
            Just("fieldSelector=x"),
            Just("fieldSelector="),
            Just("limit=1"),
            Just("continue=abc"),
            Just("field%53elector=metadata.name%3Dy")
        ];
        let path = proptest::collection::vec(part, 0..6);
        let query = proptest::collection::vec(pair, 0..3);
        (root, path, query).prop_map(|(root, path, query)| {
            let path: String = path.iter().map(|part| format!("/{part}")).collect();
            format!("{root}{path}?{}", query.join("&"))
        })
    }

    proptest! {
        /// What is carried out is what was judged: verb, namespace, name, subresource and selection.
        #[test]
        fn what_was_judged_is_what_is_done(
            method in prop_oneof![
                Just("GET"), Just("HEAD"), Just("POST"), Just("PUT"), Just("PATCH"), Just("DELETE"), Just("PURGE")
            ],
            uri in uri(),
        ) {
            check_judged(&kinds(), &parse(method, &uri), &uri);
        }
    }
}
