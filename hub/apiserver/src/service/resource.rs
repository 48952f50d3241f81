//! What is served at a path of the API: which kind, which of its verbs.

use axum::body::Body;
use http::{Method, Response, StatusCode};
use karmada_meta::status::Status;

use super::handlers::Handler;
use crate::{Inner, front::Exchange, kinds::Kind, respond, reviews::Review};

/// Answers a request for a resource.
pub(super) async fn answer(
    inner: &Inner,
    exchange: &Exchange<'_>,
    body: Body,
) -> Result<Response<Body>, Status> {
    let (info, kinds) = (exchange.info, inner.registry.kinds());
    // Routing knows no empty parts, though authorisation looks past them.
    if info.path.starts_with("//") {
        return Ok(respond::text(StatusCode::NOT_FOUND, "404 page not found\n"));
    }
    if info.path.contains("//") {
        return Err(Status::no_such_resource());
    }
    let Some(kind) = kinds.by_resource(&info.group, &info.version, &info.resource) else {
        // Built-in groups know that they have no such resource; the others are asked one after another, and none does.
        if !info.group.is_empty() && !kinds.has_native_group(&info.group) {
            return Ok(respond::text(StatusCode::NOT_FOUND, "404 page not found\n"));
        }
        return Err(Status::no_such_resource());
    };
    let is_namespace = &*kind.storage == "core/namespaces";
    let namespace = if kind.namespaced { info.namespace.as_str() } else { "" };
    if !kind.namespaced && !info.namespace.is_empty() && !is_namespace {
        return Err(Status::no_such_resource());
    }
    if let Some(warning) = kind.deprecation() {
        exchange.caller.warn(warning);
    }
    let handler = Handler { inner, exchange, kind, namespace };
    let everywhere = kind.namespaced && namespace.is_empty();
    if !info.name_in_path {
        return collection(&handler, everywhere, body).await;
    }
    if everywhere {
        return Err(Status::no_such_resource());
    }
    object(&handler, body).await
}

async fn collection(handler: &Handler<'_>, everywhere: bool, body: Body) -> Result<Response<Body>, Status> {
    let (exchange, kind) = (handler.exchange, handler.kind);
    if let (&Method::POST, false, Some(review)) =
        (&exchange.parts.method, everywhere, Review::of(&kind.gvr.group, &kind.gvr.resource))
    {
        return handler.review(review, body).await;
    }
    match exchange.parts.method {
        Method::GET if exchange.info.verb == "watch" && kind.has_verb("watch") => handler.watch(),
        Method::GET if kind.has_verb("list") => handler.list(),
        Method::POST if kind.has_verb("create") && !everywhere => handler.create(body).await,
        Method::DELETE if kind.has_verb("deletecollection") && !everywhere => {
            handler.delete_collection(body).await
        }
        _ => Err(Status::method_not_allowed_here()),
    }
}

async fn object(handler: &Handler<'_>, body: Body) -> Result<Response<Body>, Status> {
    let (info, kind) = (handler.exchange.info, handler.kind);
    let verbs = verbs(kind, &info.subresource, info.parts);
    if verbs.is_empty() {
        return Err(if kind.custom.is_some() {
            handler.target().not_found()
        } else {
            Status::no_such_resource()
        });
    }
    let verb = match handler.exchange.parts.method {
        Method::GET => "get",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::POST => "create",
        _ => "",
    };
    if !verbs.contains(&verb) {
        return Err(Status::method_not_allowed_here());
    }
    match (info.subresource.as_str(), verb) {
        ("", "get") if info.verb == "watch" => handler.watch(),
        ("scale", "get") => handler.get_scale(),
        ("scale", "update") => handler.update_scale(body).await,
        ("scale", "patch") => handler.patch_scale(body).await,
        (_, "get") => handler.get(),
        (_, "update") => handler.update(body).await,
        (_, "patch") => handler.patch(body).await,
        ("", "delete") => handler.delete(body).await,
        _ => Err(Status::method_not_allowed_here()),
    }
}

/// What may be done to an object, or to one of its subresources, by its path.
fn verbs<'a>(kind: &'a Kind, subresource: &str, parts: usize) -> Vec<&'a str> {
    if subresource.is_empty() {
        let of_objects = ["get", "update", "patch", "delete"];
        return kind.verbs.iter().map(String::as_str).filter(|verb| of_objects.contains(verb)).collect();
    }
    match kind.subresource(subresource) {
        Some(found) if parts == 2 && served(subresource) => found.verbs.iter().map(String::as_str).collect(),
        _ => Vec::new(),
    }
}

/// Subresources that are served; the others need nodes.
pub(crate) fn served(subresource: &str) -> bool {
    matches!(subresource, "status" | "scale" | "finalize" | "approval" | "ephemeralcontainers" | "resize")
}
