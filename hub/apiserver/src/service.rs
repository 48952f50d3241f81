//! The front: from an HTTP request to the registry and back.
//!
//! ```text
//!   request ─► identity? ─► what is it about? ─► may they? ─► discovery, health, …
//!                (401)        RequestInfo          (403)    └► resource ─► registry, watch ─► answer
//! ```

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use http::{HeaderMap, Method, Request, Response, StatusCode, header, request::Parts};
use karmada_meta::{
    fields::FieldSelector,
    object,
    status::{Status, StatusDetails},
};
use serde_json::{Value, json};

use crate::{
    Inner,
    authn::UserInfo,
    authz::{self, Attributes, ResourceTarget},
    body, decode,
    kinds::Kind,
    negotiate::{self, Accepted, BodyType, Encoding, Endpoint, Form},
    options::{DeleteOptions, ListOptions, Write, WriteOptions},
    registry::{
        Caller, Shown, Target, Written,
        delete::Deleted,
        list::Page,
        parse_version,
        patch::PatchType,
        scale::{self, ScaleWrite},
    },
    request::{Query, RequestInfo},
    respond::{self, Answer},
    shape::Findings,
    storage::{Framer, quoted},
    table::{self, Include},
    watch,
};

/// The API as a tower service. Every request needs a [`UserInfo`] extension.
#[derive(Clone, Debug)]
pub struct ApiService {
    inner: Arc<Inner>,
}

impl ApiService {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self { inner }
    }
}

impl<B> tower::Service<Request<B>> for ApiService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let inner = self.inner.clone();
        let request = request.map(Body::new);
        Box::pin(async move { Ok(inner.answer(request).await) })
    }
}

/// One request on its way through.
struct Exchange<'a> {
    parts: &'a Parts,
    query: Query,
    info: RequestInfo,
    caller: Caller<'a>,
}

/// The field manager of a User-Agent: what stands before the first slash.
fn agent(headers: &HeaderMap) -> &str {
    let agent = headers.get(header::USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let name = agent.split('/').next().unwrap_or_default();
    let end = name.char_indices().nth(128).map_or(name.len(), |(at, _)| at);
    if name.is_empty() { "unknown" } else { &name[..end] }
}

impl Inner {
    /// Answers one request.
    pub(crate) async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let audit_id = parts
            .headers
            .get("audit-id")
            .and_then(|v| v.to_str().ok())
            .filter(|id| !id.is_empty() && id.len() <= 64)
            .map_or_else(|| self.registry.env.uuid(), str::to_owned);
        // The listener or the in-process client says who asks; without that nobody has looked at the request.
        let Some(user) = parts.extensions.get::<UserInfo>() else {
            let mut response = respond::status(&Status::unauthorized());
            respond::finish(&mut response, &audit_id, &[]);
            return response;
        };
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let info = RequestInfo::parse(&parts.method, parts.uri.path(), &query);
        self.metrics.count(&info);
        let exchange =
            Exchange { parts: &parts, caller: Caller::new(user, agent(&parts.headers)), query, info };
        let mut response = match self.route(&exchange, body).await {
            Ok(response) => response,
            Err(status) => {
                // An error comes in the format that the answer would have come in, but never in another form.
                let accepted =
                    negotiate::accept(&parts.headers, exchange.query.get("pretty"), false, Endpoint::List);
                respond::status_as(&status, accepted.map_or(Encoding::Json { pretty: false }, |a| a.encoding))
            }
        };
        respond::finish(&mut response, &audit_id, &exchange.caller.warnings.lock());
        response
    }

    async fn route(&self, exchange: &Exchange<'_>, body: Body) -> Result<Response<Body>, Status> {
        let info = &exchange.info;
        let fields = exchange.query.get("fieldSelector").and_then(|text| FieldSelector::parse(text).ok());
        let target = if info.is_resource {
            authz::Target::Resource(ResourceTarget {
                group: &info.group,
                resource: &info.resource,
                subresource: &info.subresource,
                namespace: &info.namespace,
                name: &info.name,
                fields: fields.as_ref(),
            })
        } else {
            authz::Target::Path(&info.path)
        };
        let attributes = Attributes { user: exchange.caller.user, verb: &info.verb, target };
        authz::check(&*self.authorizer, &attributes)?;
        if info.is_resource {
            return self.resource(exchange, body).await;
        }
        self.path(exchange)
    }

    /// Paths that are no resources.
    fn path(&self, exchange: &Exchange<'_>) -> Result<Response<Body>, Status> {
        let (parts, path) = (exchange.parts, exchange.info.path.as_str());
        if let Some(response) = self.health(path, &exchange.query) {
            return Ok(response);
        }
        let get = matches!(parts.method, Method::GET);
        let head = matches!(parts.method, Method::HEAD);
        match path {
            "/version" | "/version/" if get => {
                let json = Bytes::from(self.version.to_string());
                return Ok(Answer::ok(json, Accepted::JSON).into_response(&parts.headers));
            }
            "/version" | "/version/" => return Err(Status::method_not_allowed_here()),
            "/metrics" if get => {
                let text = self.metrics.render(&self.registry.store);
                return Ok(respond::text(StatusCode::OK, text));
            }
            _ => {}
        }
        let discovery = self.discovery.get(&self.registry.kinds());
        match discovery.respond(path, &parts.headers) {
            Some(response) if get || head => Ok(response.map(Body::from)),
            Some(_) => Err(Status::method_not_allowed_here()),
            None => Ok(respond::text(StatusCode::NOT_FOUND, "404 page not found\n")),
        }
    }

    fn health(&self, path: &str, query: &Query) -> Option<Response<Body>> {
        let (check, rest) = match path.trim_end_matches('/').strip_prefix('/')?.split_once('/') {
            Some((check, rest)) => (check, rest),
            None => (path.trim_matches('/'), ""),
        };
        if !matches!(check, "healthz" | "livez" | "readyz") {
            return None;
        }
        let shutting_down = self.shutdown.is_cancelled();
        let ready = check != "readyz" || !shutting_down;
        let names: &[&str] =
            if check == "readyz" { &["ping", "store", "shutdown"] } else { &["ping", "store"] };
        if !rest.is_empty() && !names.contains(&rest) {
            return Some(respond::text(StatusCode::NOT_FOUND, "404 page not found\n"));
        }
        let code = if ready { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
        if query.get("verbose").is_some() || !ready {
            let excluded: Vec<&str> = query.all("exclude").collect();
            let lines: Vec<String> = names
                .iter()
                .map(|name| {
                    if excluded.contains(name) {
                        format!("[+]{name} excluded: ok\n")
                    } else if *name == "shutdown" && !ready {
                        format!("[-]{name} failed: reason withheld\n")
                    } else {
                        format!("[+]{name} ok\n")
                    }
                })
                .collect();
            let outcome = if ready { "passed" } else { "failed" };
            return Some(respond::text(code, format!("{}{check} check {outcome}\n", lines.concat())));
        }
        Some(respond::text(code, "ok"))
    }

    /// Finds the kind of a path, and what of it is served there.
    async fn resource(&self, exchange: &Exchange<'_>, body: Body) -> Result<Response<Body>, Status> {
        let (info, kinds) = (&exchange.info, self.registry.kinds());
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
        let method = &exchange.parts.method;
        let is_namespace = &*kind.storage == "core/namespaces";
        let namespace = if kind.namespaced { info.namespace.as_str() } else { "" };
        if !kind.namespaced && !info.namespace.is_empty() && !is_namespace {
            return Err(Status::no_such_resource());
        }
        if let Some(warning) = kind.custom.as_ref().and_then(|custom| custom.deprecation.as_ref()) {
            exchange.caller.warn(warning);
        }
        if !info.name_in_path {
            let everywhere = kind.namespaced && namespace.is_empty();
            return self.collection(exchange, kind, namespace, everywhere, body).await;
        }
        if kind.namespaced && namespace.is_empty() {
            return Err(Status::no_such_resource());
        }
        let target = Target { kind, namespace, name: &info.name, subresource: &info.subresource };
        let verbs: Vec<&str> = if info.subresource.is_empty() {
            let item = ["get", "update", "patch", "delete"];
            kind.verbs.iter().map(String::as_str).filter(|verb| item.contains(verb)).collect()
        } else {
            match kind.subresource(&info.subresource) {
                Some(sub) if info.parts == 2 && served(&info.subresource) => {
                    sub.verbs.iter().map(String::as_str).collect()
                }
                _ => Vec::new(),
            }
        };
        if verbs.is_empty() {
            return Err(if kind.custom.is_some() { target.not_found() } else { Status::no_such_resource() });
        }
        let verb = match *method {
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
            ("", "get") if info.verb == "watch" => self.watch_one(exchange, &target),
            ("scale", "get") => self.get_scale(exchange, &target),
            ("scale", _) => self.put_scale(exchange, &target, body).await,
            (_, "get") => self.get(exchange, &target),
            (_, "update") => self.update(exchange, &target, body).await,
            (_, "patch") => self.patch(exchange, &target, body).await,
            ("", "delete") => self.delete(exchange, &target, body).await,
            _ => Err(Status::method_not_allowed_here()),
        }
    }

    async fn collection(
        &self,
        exchange: &Exchange<'_>,
        kind: &Arc<Kind>,
        namespace: &str,
        everywhere: bool,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        match exchange.parts.method {
            Method::GET if exchange.info.verb == "watch" && kind.has_verb("watch") => {
                self.watch(exchange, kind, namespace)
            }
            Method::GET if kind.has_verb("list") => self.list(exchange, kind, namespace),
            Method::POST if kind.has_verb("create") && !everywhere => {
                self.create(exchange, kind, namespace, body).await
            }
            Method::DELETE if kind.has_verb("deletecollection") && !everywhere => {
                self.delete_collection(exchange, kind, namespace, body).await
            }
            _ => Err(Status::method_not_allowed_here()),
        }
    }

    fn accepted(&self, exchange: &Exchange<'_>, kind: &Kind, endpoint: Endpoint) -> Result<Accepted, Status> {
        let pretty = exchange.query.get("pretty");
        negotiate::accept(&exchange.parts.headers, pretty, kind.custom.is_some(), endpoint)
    }

    fn get(&self, exchange: &Exchange<'_>, target: &Target<'_>) -> Result<Response<Body>, Status> {
        let accepted = self.accepted(exchange, target.kind, Endpoint::Object)?;
        if let Some(text) = exchange.query.get("resourceVersion") {
            parse_version(text).map_err(|status| {
                Status::unclassified(format!("resourceVersion: Invalid value: {text:?}: {}", status.message))
            })?;
        }
        let object = self.registry.lookup(target).ok_or_else(|| target.not_found())?;
        self.show(exchange, target.kind, &Shown::Stored(object), accepted, StatusCode::OK)
    }

    /// Answers with one object in the form that was asked for.
    fn show(
        &self,
        exchange: &Exchange<'_>,
        kind: &Kind,
        shown: &Shown,
        accepted: Accepted,
        code: StatusCode,
    ) -> Result<Response<Body>, Status> {
        let (header, value, revision) = (shown.header(), shown.value(), shown.revision());
        let json = match &accepted.form {
            Form::Object if kind.shape.is_stored_form() => {
                Framer::object(kind).frame(header, value, revision)
            }
            Form::Object => shown.to_value(kind).to_string().into(),
            Form::Partial { list: true, .. } => {
                return Err(Status {
                    message: format!(
                        "you requested PartialObjectMetadataList, but the requested object is not a list ({})",
                        go_type(kind, "")
                    ),
                    ..Status::not_acceptable(&[])
                });
            }
            Form::Partial { version, .. } => Framer::partial(version).frame(header, value, revision),
            Form::Table { version } => {
                let include = Include::parse(exchange.query.get("includeObject"))?;
                let object = shown.to_value(kind);
                let revision = object::resource_version(&object).to_owned();
                table::render(
                    kind,
                    version,
                    include,
                    &[object],
                    &json!({"resourceVersion": revision}),
                    self.registry.env.wall(),
                )
                .to_string()
                .into()
            }
        };
        Ok(Answer { code, json, accepted }.into_response(&exchange.parts.headers))
    }

    fn list(
        &self,
        exchange: &Exchange<'_>,
        kind: &Arc<Kind>,
        namespace: &str,
    ) -> Result<Response<Body>, Status> {
        let accepted = self.accepted(exchange, kind, Endpoint::List)?;
        let options = ListOptions::parse(&exchange.query, kind, false)?;
        let include = self.include(exchange, &accepted)?;
        refuse_single(kind, &accepted)?;
        let page = self.registry.list(kind, namespace, &options)?;
        self.show_page(exchange, kind, &page, accepted, include)
    }

    fn include(&self, exchange: &Exchange<'_>, accepted: &Accepted) -> Result<Include, Status> {
        match accepted.form {
            Form::Table { .. } => Include::parse(exchange.query.get("includeObject")),
            _ => Ok(Include::Metadata),
        }
    }

    fn show_page(
        &self,
        exchange: &Exchange<'_>,
        kind: &Kind,
        page: &Page,
        accepted: Accepted,
        include: Include,
    ) -> Result<Response<Body>, Status> {
        let mut metadata = json!({"resourceVersion": page.revision.to_string()});
        if let Some(token) = &page.continue_token {
            metadata["continue"] = Value::from(token.as_str());
        } else if kind.custom.is_some() && accepted.form == Form::Object {
            metadata["continue"] = Value::from("");
        }
        if let Some(remaining) = page.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        let (list_kind, api_version, framer) = match &accepted.form {
            Form::Table { version } => {
                let objects: Vec<Value> =
                    page.items.iter().map(|o| self.registry.value_of(kind, o)).collect();
                let json =
                    table::render(kind, version, include, &objects, &metadata, self.registry.env.wall());
                return Ok(
                    Answer::ok(json.to_string().into(), accepted).into_response(&exchange.parts.headers)
                );
            }
            Form::Object => (kind.list_kind.to_string(), kind.api_version.to_string(), Framer::item(kind)),
            Form::Partial { version, .. } => (
                "PartialObjectMetadataList".to_owned(),
                format!("meta.k8s.io/{version}"),
                Framer::partial(version),
            ),
        };
        let size: usize = page.items.iter().map(|o| o.value.len() + 64).sum();
        let mut out = BytesMut::with_capacity(size + 256);
        let head = format!(
            "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{metadata},\"items\":[",
            quoted(&list_kind),
            quoted(&api_version)
        );
        out.extend_from_slice(head.as_bytes());
        for (i, object) in page.items.iter().enumerate() {
            if i > 0 {
                out.extend_from_slice(b",");
            }
            if kind.shape.is_stored_form() || accepted.form != Form::Object {
                framer.write(&mut out, &object.header, &object.value, Some(object.revision));
            } else {
                let mut value = self.registry.value_of(kind, object);
                if let Some(map) = value.as_object_mut().filter(|_| kind.custom.is_none()) {
                    map.remove("kind");
                    map.remove("apiVersion");
                }
                out.extend_from_slice(value.to_string().as_bytes());
            }
        }
        out.extend_from_slice(b"]}");
        Ok(Answer::ok(out.freeze(), accepted).into_response(&exchange.parts.headers))
    }

    fn watch(
        &self,
        exchange: &Exchange<'_>,
        kind: &Arc<Kind>,
        namespace: &str,
    ) -> Result<Response<Body>, Status> {
        let accepted = self.accepted(exchange, kind, Endpoint::Watch)?;
        let options = ListOptions::parse(&exchange.query, kind, true)?;
        let include = self.include(exchange, &accepted)?;
        watch::respond(&self.registry, kind, namespace, &options, &accepted, include, self.shutdown.clone())
    }

    /// A watch of one object by its path.
    fn watch_one(&self, exchange: &Exchange<'_>, target: &Target<'_>) -> Result<Response<Body>, Status> {
        let kind = target.kind;
        let accepted = self.accepted(exchange, kind, Endpoint::Watch)?;
        let mut options = ListOptions::parse(&exchange.query, kind, true)?;
        options.fields = FieldSelector::parse(&format!("metadata.name={}", target.name))
            .map_err(|error| Status::bad_request(error.to_string()))?;
        let include = self.include(exchange, &accepted)?;
        watch::respond(
            &self.registry,
            kind,
            target.namespace,
            &options,
            &accepted,
            include,
            self.shutdown.clone(),
        )
    }

    async fn create(
        &self,
        exchange: &Exchange<'_>,
        kind: &Arc<Kind>,
        namespace: &str,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        let accepted = self.accepted(exchange, kind, Endpoint::Object)?;
        let options = WriteOptions::parse(&exchange.query, Write::Create)?;
        let body_type = negotiate::body_type(&exchange.parts.headers, kind.custom.is_some())?;
        let bytes = body::read(body).await?;
        let target = Target { kind, namespace, name: "", subresource: "" };
        let kinds = self.registry.kinds();
        let object =
            decode::object(&exchange.caller, &kinds, &target, &bytes, body_type, options.validation)?;
        if kind.custom.as_ref().is_some_and(|custom| custom.terminating) {
            return Err(terminating(kind));
        }
        let named = ResourceTarget {
            group: &kind.gvr.group,
            resource: &kind.gvr.resource,
            namespace,
            name: object::name(&object),
            ..ResourceTarget::default()
        };
        let target = authz::Target::Resource(named);
        authz::check_name(&*self.authorizer, &Attributes { user: exchange.caller.user, verb: "create", target })?;
        let written = self.registry.create(&exchange.caller, kind, namespace, object, &options).await?;
        self.show(exchange, kind, &written.shown, accepted, StatusCode::CREATED)
    }

    async fn update(
        &self,
        exchange: &Exchange<'_>,
        target: &Target<'_>,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        let kind = target.kind;
        let accepted = self.accepted(exchange, kind, Endpoint::Object)?;
        let options = WriteOptions::parse(&exchange.query, Write::Update)?;
        let body_type = negotiate::body_type(&exchange.parts.headers, kind.custom.is_some())?;
        let bytes = body::read(body).await?;
        let kinds = self.registry.kinds();
        let object = decode::object(&exchange.caller, &kinds, target, &bytes, body_type, options.validation)?;
        let written = self.registry.update(&exchange.caller, target, object, &options).await?;
        self.show_written(exchange, kind, &written, accepted)
    }

    fn show_written(
        &self,
        exchange: &Exchange<'_>,
        kind: &Kind,
        written: &Written,
        accepted: Accepted,
    ) -> Result<Response<Body>, Status> {
        let code = if written.created { StatusCode::CREATED } else { StatusCode::OK };
        self.show(exchange, kind, &written.shown, accepted, code)
    }

    async fn patch(
        &self,
        exchange: &Exchange<'_>,
        target: &Target<'_>,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        let kind = target.kind;
        let patch_type = patch_type(&exchange.parts.headers, kind)?;
        let accepted = self.accepted(exchange, kind, Endpoint::Object)?;
        let apply = patch_type == PatchType::Apply;
        let options = WriteOptions::parse(&exchange.query, Write::Patch { apply })?;
        let bytes = body::read(body).await?;
        let written = self.registry.patch(&exchange.caller, target, patch_type, &bytes, &options).await?;
        self.show_written(exchange, kind, &written, accepted)
    }

    async fn delete(
        &self,
        exchange: &Exchange<'_>,
        target: &Target<'_>,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        let kind = target.kind;
        let accepted = self.accepted(exchange, kind, Endpoint::Object)?;
        let options = delete_options(exchange, body).await?;
        let shown = match self.registry.delete(&exchange.caller, target, &options).await? {
            Deleted::Gone(shown) if !kind.rules.delete_returns_object => {
                let status = Status::success(&kind.group_resource(), target.name, &shown.header().uid);
                let json = serde_json::to_vec(&status).map_err(Status::internal)?;
                let accepted = Accepted { form: Form::Object, ..accepted };
                return Ok(Answer::ok(json.into(), accepted).into_response(&exchange.parts.headers));
            }
            Deleted::Gone(shown) | Deleted::Pending(shown) => shown,
        };
        self.show(exchange, kind, &shown, accepted, StatusCode::OK)
    }

    async fn delete_collection(
        &self,
        exchange: &Exchange<'_>,
        kind: &Arc<Kind>,
        namespace: &str,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        let accepted = self.accepted(exchange, kind, Endpoint::List)?;
        let list = ListOptions::parse(&exchange.query, kind, false)?;
        let include = self.include(exchange, &accepted)?;
        let options = delete_options(exchange, body).await?;
        let page =
            self.registry.delete_collection(&exchange.caller, kind, namespace, &list, &options).await?;
        self.show_page(exchange, kind, &page, accepted, include)
    }

    fn get_scale(&self, exchange: &Exchange<'_>, target: &Target<'_>) -> Result<Response<Body>, Status> {
        let accepted = self.accepted(exchange, target.kind, Endpoint::Object)?;
        let value = self.registry.read(target).ok_or_else(|| target.not_found())?;
        let json = scale::scale_of(target.kind, &value).to_string().into();
        Ok(Answer::ok(json, accepted).into_response(&exchange.parts.headers))
    }

    async fn put_scale(
        &self,
        exchange: &Exchange<'_>,
        target: &Target<'_>,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        let kind = target.kind;
        let accepted = self.accepted(exchange, kind, Endpoint::Object)?;
        let headers = &exchange.parts.headers;
        let written = if exchange.parts.method == Method::PATCH {
            let patch_type = patch_type(headers, kind)?;
            let apply = patch_type == PatchType::Apply;
            let options = WriteOptions::parse(&exchange.query, Write::Patch { apply })?;
            let bytes = body::read(body).await?;
            let write = ScaleWrite::Patch(patch_type, &bytes);
            self.registry.write_scale(&exchange.caller, target, write, &options).await?
        } else {
            let options = WriteOptions::parse(&exchange.query, Write::Update)?;
            let body_type = negotiate::body_type(headers, false)?;
            let bytes = body::read(body).await?;
            let place = Target { kind: &self.scale, ..*target };
            let kinds = self.registry.kinds();
            let scale =
                decode::object(&exchange.caller, &kinds, &place, &bytes, body_type, options.validation)?;
            let write = ScaleWrite::Update(&scale);
            self.registry.write_scale(&exchange.caller, target, write, &options).await?
        };
        let json = scale::scale_of(kind, &written.shown.to_value(kind)).to_string().into();
        Ok(Answer::ok(json, accepted).into_response(headers))
    }
}

/// Subresources that are served; the others need nodes.
fn served(subresource: &str) -> bool {
    matches!(subresource, "status" | "scale" | "finalize" | "approval" | "ephemeralcontainers" | "resize")
}

/// How Go names a kind's internal type.
fn go_type(kind: &Kind, suffix: &str) -> String {
    if kind.custom.is_some() {
        return format!("*unstructured.Unstructured{suffix}");
    }
    let package = kind.gvk.group.split('.').next().filter(|g| !g.is_empty()).unwrap_or("core");
    format!("*{package}.{}{suffix}", kind.gvk.kind)
}

/// A list cannot be answered as one object's metadata.
fn refuse_single(kind: &Kind, accepted: &Accepted) -> Result<(), Status> {
    match accepted.form {
        Form::Partial { list: false, .. } => Err(Status {
            message: format!(
                "you requested PartialObjectMetadata, but the requested object is a list ({})",
                go_type(kind, "List")
            ),
            ..Status::not_acceptable(&[])
        }),
        _ => Ok(()),
    }
}

fn terminating(kind: &Kind) -> Status {
    let why = "create not allowed while custom resource definition is terminating";
    let mut status = Status::method_not_allowed(&kind.group_resource(), "create");
    status.message =
        format!("create is not supported on resources of kind \"{}\": {why}", kind.group_resource());
    status
}

fn patch_type(headers: &HeaderMap, kind: &Kind) -> Result<PatchType, Status> {
    let media_type = negotiate::media_type(headers).unwrap_or_default();
    match PatchType::of(media_type) {
        Some(PatchType::Strategic) if kind.custom.is_some() => Err(Status::unsupported_media_type(&[
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/apply-patch+yaml",
        ])),
        Some(patch_type) => Ok(patch_type),
        // Words of the web framework below kube-apiserver.
        None => Err(Status {
            message: "415: Unsupported Media Type".to_owned(),
            details: Some(StatusDetails::default()),
            ..Status::unsupported_media_type(&[])
        }),
    }
}

/// The options of a deletion: of its body, or without one of its query.
async fn delete_options(exchange: &Exchange<'_>, body: Body) -> Result<DeleteOptions, Status> {
    let bytes = body::read(body).await?;
    if bytes.is_empty() {
        return DeleteOptions::from_query(&exchange.query);
    }
    let body_type = match negotiate::body_type(&exchange.parts.headers, false)? {
        BodyType::Protobuf => {
            return Err(Status::unsupported_media_type(&["application/json", "application/yaml"]));
        }
        other => other,
    };
    let value = decode::parse(&bytes, body_type, &mut Findings::default()).map_err(Status::bad_request)?;
    let (api_version, kind) = (object::api_version(&value), object::kind(&value));
    if !matches!(kind, "" | "DeleteOptions") {
        return Err(Status::bad_request(format!(
            "no kind \"{kind}\" is registered for version \"{api_version}\" in scheme \"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27\""
        )));
    }
    DeleteOptions::from_body(&value)
}
