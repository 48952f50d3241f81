//! One function for each thing that can be done to a resource: read the request, call the registry, show the outcome.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::{Response, StatusCode};
use karmada_meta::{
    object, pack,
    status::{Status, StatusDetails},
};
use serde_json::Value;

use super::inner::Inner;
use crate::{
    decode, fields,
    findings::Findings,
    front::Exchange,
    heavy::{HEAVY, Pool},
    kinds::Kind,
    limits,
    negotiate::{self, Accepted, Endpoint, Form, PatchType},
    options::{DeleteOptions, ListOptions, Write, WriteOptions},
    registry::{
        Shown, Target, Written, delete::Deleted, list::Filter, parse_asked, scale, scaling::ScaleWrite,
    },
    respond::{self, Answer},
    reviews::{Knowledge, Review},
    sums, watch,
};

/// So many objects of a namespace are counted before they are listed.
const FEW: usize = 1_000;

/// An object that has to be read to see whether it is meant takes about as long as so many bytes that are there already.
const READ: usize = 1 << 10;

/// Of what is looked at for a long time one client has one at a time.
const LOOK: usize = 8;

/// A request for a kind, in a namespace or in none.
pub(super) struct Handler<'a> {
    pub(super) inner: &'a Inner,
    pub(super) exchange: &'a Exchange<'a>,
    pub(super) kind: &'a Arc<Kind>,
    pub(super) namespace: &'a str,
}

impl<'a> Handler<'a> {
    /// The object of the path.
    pub(super) fn target(&self) -> Target<'a> {
        let info = self.exchange.info;
        Target {
            kind: self.kind,
            namespace: self.namespace,
            name: if info.name_in_path { &info.name } else { "" },
            subresource: &info.subresource,
        }
    }

    pub(super) fn accepted(&self, endpoint: Endpoint) -> Result<Accepted, Status> {
        let (headers, pretty) = (&self.exchange.parts.headers, self.exchange.query.get("pretty"));
        negotiate::accept(headers, pretty, self.kind.custom.is_some(), endpoint)
    }

    /// Reads a body as an object of a kind.
    pub(super) async fn object(
        &self,
        target: &Target<'_>,
        body: Bytes,
        options: &WriteOptions,
    ) -> Result<Value, Status> {
        let plain = !target.kind.shape.has_messages();
        let body_type = negotiate::body_type(&self.exchange.parts.headers, plain)?;
        let (kinds, caller) = (self.inner.registry.kinds(), &self.exchange.caller);
        caller.weigh(body.len()).await?;
        let read = || {
            let object = decode::object(caller, &kinds, target, &body, body_type, options.validation)?;
            if let Some(trail) = &self.exchange.trail {
                trail.sent(&object);
            }
            Ok(object)
        };
        self.pool().run(caller.weight(), read).await?
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.inner.registry.pool
    }

    /// What a list, watch or deletecollection is about, as it was judged. A long selector is read like other large work.
    async fn list_options(&self, watch: bool) -> Result<ListOptions, Status> {
        let (query, info) = (&self.exchange.query, self.exchange.info);
        let length = query.get("labelSelector").map_or(0, str::len);
        self.look(length, || ListOptions::parse(query, info, self.kind, watch)).await?
    }

    pub(super) async fn get(&self) -> Result<Response<Body>, Status> {
        let (target, accepted) = (self.target(), self.accepted(Endpoint::Object)?);
        if let Some(text) = self.exchange.query.get("resourceVersion") {
            let asked = parse_asked(text)?.unwrap_or(0);
            // One server knows its versions: waiting would not bring one sooner.
            let current = self.inner.registry.store.revision().get();
            if asked > current {
                return Err(Status::too_large_resource_version(asked, current));
            }
        }
        let object = self.inner.registry.lookup(&target).ok_or_else(|| target.not_found())?;
        let room = self.inner.front.gate.list(&self.exchange.guest, object.value.len())?;
        let response = self.show(&Shown::Stored(object), accepted, StatusCode::OK).await?;
        Ok(limits::holding(room, response))
    }

    pub(super) async fn list(&self) -> Result<Response<Body>, Status> {
        let accepted = self.accepted(Endpoint::List)?;
        let mut options = self.list_options(false).await?;
        let include = self.include(&accepted)?;
        self.refuse_single(&accepted)?;
        if accepted.form == Form::Sums {
            // They are of what lies in the buckets that are asked about, all of it.
            (options.limit, options.continue_token) = (0, None);
            options.within = sums::Asked::parse(&self.exchange.query)?.within();
        }
        let weight = self.looked_at(&options);
        let read = || self.inner.registry.list(self.kind, self.namespace, &options);
        let page = self.look(weight, read).await??;
        self.show_page(&page, accepted, include).await
    }

    /// How much there is to look at for a list, or where a watch begins with one. Every object is held against every
    /// requirement; one takes about as long as some bytes.
    fn looked_at(&self, options: &ListOptions) -> usize {
        let terms = options.labels.requirements().len() + options.fields.requirements().len();
        let snapshot = self.inner.registry.store.snapshot();
        let all = snapshot.count(&self.kind.storage, None);
        // Those of a namespace are counted while they are few.
        let here = || snapshot.range(&self.kind.storage, Some(self.namespace), None).take(FEW).count();
        let objects = match self.namespace.is_empty() {
            true => all,
            false => Some(here()).filter(|few| *few < FEW).unwrap_or(all),
        };
        // A bucket is found by the digest of a name.
        let digests = if options.within.is_some() { 64 } else { 0 };
        let read = if Filter::new(self.kind, options).reads_values() { READ } else { 0 };
        objects.saturating_mul(8 * terms + 1 + digests + read)
    }

    /// A watch of a collection, or of the object that the path names.
    pub(super) async fn watch(&self) -> Result<Response<Body>, Status> {
        let accepted = self.accepted(Endpoint::Watch)?;
        let options = self.list_options(true).await?;
        let room = self.inner.front.gate.selectors(&self.exchange.guest, options.selectors())?;
        let include = self.include(&accepted)?;
        let (registry, shutdown) = (&self.inner.registry, self.inner.shutdown.clone());
        let lasts = self.inner.front.gate.limits().watch_timeout;
        let bookmarks = watch::bookmarks_every(&self.exchange.query)?;
        let gate = self.inner.front.gate.clone();
        let turn = watch::Turn { gate, guest: self.exchange.guest.clone(), pool: registry.pool.clone() };
        let life = watch::Life { shutdown, lasts, bookmarks, turn };
        let weight = if watch::begins_with_all(&options) { self.looked_at(&options) } else { 0 };
        // Nobody asks for that who does not read it, unlike gzip.
        let packed = respond::takes(&self.exchange.parts.headers, pack::CODING);
        let shown = watch::Shown { accepted: &accepted, include, packed };
        let begin = || watch::respond(registry, self.kind, self.namespace, &options, shown, life);
        let response = self.look(weight, begin).await??;
        Ok(match room {
            Some(room) => response.map(|body| Body::new(limits::Held::new(body, room))),
            None => response,
        })
    }

    /// Has something looked for, in the client's turn: the places for large work are taken in the order of coming, and one
    /// client may ask for many lists at a time. Turns are counted in memory, of which this takes none and of processors more.
    async fn look<T>(&self, weight: usize, work: impl FnOnce() -> T) -> Result<T, Status> {
        let turn = if weight < HEAVY { 0 } else { weight.saturating_mul(LOOK) };
        let _turn = self.inner.front.gate.memory(&self.exchange.guest, turn).await?;
        self.pool().run(weight, work).await
    }

    pub(super) async fn create(&self, body: Bytes) -> Result<Response<Body>, Status> {
        let (kind, exchange) = (self.kind, self.exchange);
        let accepted = self.accepted(Endpoint::Object)?;
        let options = WriteOptions::parse(&exchange.query, Write::Create)?;
        let object = self.object(&self.target(), body, &options).await?;
        let registry = &self.inner.registry;
        let written = registry.create(&exchange.caller, kind, self.namespace, object, &options).await?;
        self.show_written(&written, accepted).await
    }

    /// Answers a review. Nothing is stored.
    pub(super) async fn review(&self, review: Review, body: Bytes) -> Result<Response<Body>, Status> {
        let (kind, exchange) = (self.kind, self.exchange);
        let accepted = self.accepted(Endpoint::Object)?;
        let options = WriteOptions::parse(&exchange.query, Write::Create)?;
        let object = self.object(&self.target(), body, &options).await?;
        let manager = options.field_manager.as_deref().unwrap_or(exchange.caller.agent);
        let now = self.inner.registry.now();
        let weight = exchange.caller.weight();
        let own = || fields::update(kind, None, &object, manager, "", &now);
        let mut object = self.pool().run(weight, own).await?;
        let authenticator = self.inner.front.authenticator();
        let knowledge = Knowledge {
            user: exchange.caller.user,
            authorizer: &*self.inner.front.authorizer,
            authenticator: &authenticator,
        };
        let answer = || {
            review.answer(&mut object, &knowledge, &now)?;
            let (code, json) = (StatusCode::CREATED, object.to_string().into());
            Ok(Answer { code, json, accepted }.for_exchange(exchange))
        };
        self.pool().run(weight, answer).await?
    }

    pub(super) async fn update(&self, body: Bytes) -> Result<Response<Body>, Status> {
        let (target, exchange) = (self.target(), self.exchange);
        let accepted = self.accepted(Endpoint::Object)?;
        let options = WriteOptions::parse(&exchange.query, Write::Update)?;
        let object = self.object(&target, body, &options).await?;
        let written = self.inner.registry.update(&exchange.caller, &target, object, &options).await?;
        self.show_written(&written, accepted).await
    }

    /// Reads what every PATCH has.
    async fn read_patch(&self, body: &Bytes) -> Result<(PatchType, Accepted, WriteOptions), Status> {
        let patch_type = self.patch_type()?;
        let accepted = self.accepted(Endpoint::Object)?;
        let apply = patch_type == PatchType::Apply;
        let options = WriteOptions::parse(&self.exchange.query, Write::Patch { apply })?;
        self.exchange.caller.weigh(body.len()).await?;
        if let Some(trail) = &self.exchange.trail {
            self.pool().run(body.len(), || trail.sent_patch(patch_type, body)).await?;
        }
        Ok((patch_type, accepted, options))
    }

    pub(super) async fn patch(&self, body: Bytes) -> Result<Response<Body>, Status> {
        let (target, caller) = (self.target(), &self.exchange.caller);
        let (patch_type, accepted, options) = self.read_patch(&body).await?;
        let written = self.inner.registry.patch(caller, &target, patch_type, &body, &options).await?;
        self.show_written(&written, accepted).await
    }

    pub(super) async fn delete(&self, body: Bytes) -> Result<Response<Body>, Status> {
        let (kind, target) = (self.kind, self.target());
        let accepted = self.accepted(Endpoint::Object)?;
        let options = self.delete_options(body).await?;
        let shown = match self.inner.registry.delete(&self.exchange.caller, &target, &options).await? {
            Deleted::Gone(shown) if !kind.rules.delete_returns_object => {
                let status = Status::success(&kind.group_resource(), target.name, &shown.header().uid);
                let json = serde_json::to_vec(&status).map_err(Status::internal)?;
                let accepted = Accepted { form: Form::Object, ..accepted };
                return Ok(Answer::ok(json.into(), accepted).for_exchange(self.exchange));
            }
            Deleted::Gone(shown) | Deleted::Pending(shown) => shown,
        };
        self.show(&shown, accepted, StatusCode::OK).await
    }

    pub(super) async fn delete_collection(&self, body: Bytes) -> Result<Response<Body>, Status> {
        let (exchange, registry) = (self.exchange, &self.inner.registry);
        let accepted = self.accepted(Endpoint::List)?;
        let list = self.list_options(false).await?;
        let include = self.include(&accepted)?;
        let options = self.delete_options(body).await?;
        let read = || registry.list(self.kind, self.namespace, &list);
        let page = self.look(self.looked_at(&list), read).await??;
        registry.delete_collection(&exchange.caller, self.kind, &page, &options).await?;
        self.show_page(&page, accepted, include).await
    }

    pub(super) async fn get_scale(&self) -> Result<Response<Body>, Status> {
        let (target, accepted) = (self.target(), self.accepted(Endpoint::Object)?);
        let (registry, kind) = (&self.inner.registry, self.kind);
        let object = registry.lookup(&target).ok_or_else(|| target.not_found())?;
        let show = || {
            let value = registry.value_of(kind, &object);
            scale::check_wanted(kind, &value)?;
            Ok(self.show_scale(&value, accepted))
        };
        // A Scale is small, and what it is one of need not be.
        self.exchange.caller.weigh(object.value.len()).await?;
        self.pool().run(object.value.len(), show).await?
    }

    pub(super) async fn update_scale(&self, body: Bytes) -> Result<Response<Body>, Status> {
        let accepted = self.accepted(Endpoint::Object)?;
        let options = WriteOptions::parse(&self.exchange.query, Write::Update)?;
        let place = Target { kind: &self.inner.scale, ..self.target() };
        let scale = self.object(&place, body, &options).await?;
        self.write_scale(ScaleWrite::Update(&scale), &options, accepted).await
    }

    pub(super) async fn patch_scale(&self, body: Bytes) -> Result<Response<Body>, Status> {
        let (patch_type, accepted, options) = self.read_patch(&body).await?;
        self.write_scale(ScaleWrite::Patch(patch_type, &body), &options, accepted).await
    }

    async fn write_scale(
        &self,
        write: ScaleWrite<'_>,
        options: &WriteOptions,
        accepted: Accepted,
    ) -> Result<Response<Body>, Status> {
        let (target, caller) = (self.target(), &self.exchange.caller);
        let Written { shown, .. } = self.inner.registry.write_scale(caller, &target, write, options).await?;
        let show = || self.show_scale(&shown.to_value(self.kind), accepted);
        self.pool().run(caller.weight(), show).await
    }

    fn show_scale(&self, parent: &Value, accepted: Accepted) -> Response<Body> {
        let json = scale::scale_of(self.kind, parent).to_string().into();
        Answer::ok(json, accepted).for_exchange(self.exchange)
    }

    fn patch_type(&self) -> Result<PatchType, Status> {
        let media_type = negotiate::media_type(&self.exchange.parts.headers).unwrap_or_default();
        match PatchType::of(media_type) {
            Some(PatchType::Strategic) if self.kind.custom.is_some() => {
                Err(Status::unsupported_media_type(&[
                    "application/json-patch+json",
                    "application/merge-patch+json",
                    "application/apply-patch+yaml",
                ]))
            }
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
    async fn delete_options(&self, body: Bytes) -> Result<DeleteOptions, Status> {
        if body.is_empty() {
            return DeleteOptions::from_query(&self.exchange.query);
        }
        let body_type = negotiate::body_type(&self.exchange.parts.headers, false)?;
        self.exchange.caller.weigh(body.len()).await?;
        let read = || decode::parse(&body, body_type, &mut Findings::default());
        let value = self.pool().run(body.len(), read).await?.map_err(Status::bad_request)?;
        if let Some(trail) = &self.exchange.trail {
            trail.sent(&value);
        }
        let (api_version, kind) = (object::api_version(&value), object::kind(&value));
        if !matches!(kind, "" | "DeleteOptions") {
            return Err(Status::bad_request(format!(
                "no kind \"{kind}\" is registered for version \"{api_version}\" in scheme \"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27\""
            )));
        }
        DeleteOptions::from_body(&value)
    }
}
