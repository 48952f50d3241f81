//! Objects and lists as answers, in the form that was asked for.

use axum::body::Body;
use bytes::BytesMut;
use http::{Response, StatusCode};
use karmada_meta::{object, status::Status, sums::Sum};
use serde_json::{Value, json};

use super::{handlers::Handler, stream};
use crate::{
    front::Exchange,
    kinds::Kind,
    limits::holding,
    negotiate::{Accepted, Encoding, Form},
    registry::{Shown, Written, list::Page},
    respond::{self, Answer},
    storage::{Framer, Object, quoted},
    sums,
    table::{self, Include},
};

impl Answer {
    /// Writes it out for an exchange, and tells it the audit log.
    pub(super) fn for_exchange(self, exchange: &Exchange<'_>) -> Response<Body> {
        if let Some(trail) = &exchange.trail {
            trail.shown(&self.json);
        }
        self.into_response(&exchange.parts.headers)
    }
}

impl Handler<'_> {
    /// Answers with one object.
    pub(super) async fn show(
        &self,
        shown: &Shown,
        accepted: Accepted,
        code: StatusCode,
    ) -> Result<Response<Body>, Status> {
        let make = || self.response(shown, accepted, code);
        let size = shown.size();
        // Also where it is only copied and compressed: that is how large objects are shown to one after another.
        self.exchange.caller.weigh(size).await?;
        self.inner.registry.pool.run(size, make).await?
    }

    fn response(
        &self,
        shown: &Shown,
        accepted: Accepted,
        code: StatusCode,
    ) -> Result<Response<Body>, Status> {
        let kind = self.kind;
        let (header, value, revision) = (shown.header(), &shown.value(), shown.revision());
        let lean = accepted.lean;
        let json = match &accepted.form {
            Form::Object if kind.serves_as_stored(revision) => {
                Framer::object(kind).lean(lean).frame(header, value, revision)
            }
            Form::Object => shown.to_value(kind).to_string().into(),
            Form::Partial { list: true, .. } => {
                return Err(misfit("PartialObjectMetadataList", "is not a list", &go_type(kind, "")));
            }
            Form::Partial { version, .. } => {
                Framer::partial(version).lean(lean).frame(header, value, revision)
            }
            Form::Table { version } => {
                let include = self.include(&accepted)?;
                let object = shown.to_value(kind);
                let metadata = json!({"resourceVersion": object::resource_version(&object)});
                self.table(version, include, [object], &metadata)
            }
            Form::Sums | Form::News => {
                return Err(misfit("Sums or News", "is neither a list nor a watch", &go_type(kind, "")));
            }
        };
        Ok(Answer { code, json, accepted }.for_exchange(self.exchange))
    }

    /// Answers with what a write made.
    pub(super) async fn show_written(
        &self,
        written: &Written,
        accepted: Accepted,
    ) -> Result<Response<Body>, Status> {
        let code = if written.created { StatusCode::CREATED } else { StatusCode::OK };
        if let Form::Partial { version, list: false } = &accepted.form
            && accepted.lean
            && let Some(revision) = written.shown.revision()
        {
            // The bytes of a PartialObjectMetadata that has nothing but this.
            let json = format!(
                r#"{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/{version}","metadata":{{"resourceVersion":"{revision}"}}}}"#
            );
            return Ok(Answer { code, json: json.into(), accepted }.for_exchange(self.exchange));
        }
        self.show(&written.shown, accepted, code).await
    }

    /// What rows of a Table are to hold.
    pub(super) fn include(&self, accepted: &Accepted) -> Result<Include, Status> {
        match accepted.form {
            Form::Table { .. } => Include::parse(self.exchange.query.get("includeObject")),
            _ => Ok(Include::Metadata),
        }
    }

    fn table(
        &self,
        version: &str,
        include: Include,
        objects: impl IntoIterator<Item = Value>,
        metadata: &Value,
    ) -> bytes::Bytes {
        let now = self.inner.registry.env.wall();
        table::render(self.kind, version, include, objects, metadata, now).into()
    }

    /// Answers with a list.
    ///
    /// # Errors
    /// 429 while other large lists are on their way.
    pub(super) async fn show_page(
        &self,
        page: &Page,
        accepted: Accepted,
        include: Include,
    ) -> Result<Response<Body>, Status> {
        let size: usize = page.items.iter().map(|o| o.value.len() + 64).sum();
        if accepted.form == Form::Sums {
            return self.show_sums(page, accepted).await;
        }
        let room = self.inner.front.gate.list(&self.exchange.guest, size)?;
        if size >= stream::LONG && self.is_copied(page, &accepted) {
            self.exchange.trail.iter().for_each(|trail| trail.shown_at_length());
            return Ok(holding(room, self.long_list(page, size, &accepted)));
        }
        self.exchange.caller.weigh(size).await?;
        let make = || self.page_response(page, size, accepted, include);
        let response = self.inner.registry.pool.run(size, make).await?;
        Ok(holding(room, response))
    }

    /// Answers with the sums of a list.
    async fn show_sums(&self, page: &Page, accepted: Accepted) -> Result<Response<Body>, Status> {
        let asked = sums::Asked::parse(&self.exchange.query)?;
        // Each object is read once for good; one at a time is in memory.
        let untold = page.items.iter().filter(|object| object.header.told.get().is_none());
        let (bytes, largest) = untold.fold((0_usize, 0_usize), |(bytes, largest), object| {
            (bytes.saturating_add(object.value.len()), largest.max(object.value.len()))
        });
        self.exchange.caller.weigh(largest.saturating_mul(4)).await?;
        let make = || {
            let told = page.items.iter().map(|object| (&*object.key.name, self.sum(object)));
            Answer::ok(asked.answer(told, page.revision).into(), accepted).for_exchange(self.exchange)
        };
        // A bucket is found by the digest of a name.
        let weight = bytes.saturating_mul(4).saturating_add(page.items.len().saturating_mul(64));
        self.inner.registry.pool.run(weight, make).await
    }

    /// What tells an object from others. Kept with what is stored, where it is served as that.
    fn sum(&self, object: &Object) -> Sum {
        let make = || Sum::told(&self.inner.registry.value_of(self.kind, object));
        match self.kind.serves_as_stored(Some(object.revision)) {
            true => object.header.told.get_or(make),
            false => make(),
        }
    }

    /// Whether a list is no more than its objects' bytes one after another.
    fn is_copied(&self, page: &Page, accepted: &Accepted) -> bool {
        let copied = match accepted.form {
            Form::Object => page.items.iter().all(|object| self.kind.serves_as_stored(Some(object.revision))),
            Form::Partial { .. } => true,
            Form::Table { .. } | Form::Sums | Form::News => false,
        };
        copied && accepted.encoding == Encoding::Json { pretty: false }
    }

    /// A list that is made while it is sent.
    fn long_list(&self, page: &Page, size: usize, accepted: &Accepted) -> Response<Body> {
        let gzip = respond::wants_gzip(size, &self.exchange.parts.headers);
        let head = head(&self.list_kind(accepted), &self.list_metadata(page, accepted));
        let pool = self.inner.registry.pool.clone();
        stream::list(head, page.items.clone(), self.framer(accepted), accepted.content_type(), gzip, pool)
    }

    fn list_metadata(&self, page: &Page, accepted: &Accepted) -> Value {
        let mut metadata = json!({"resourceVersion": page.revision.to_string()});
        if let Some(token) = &page.continue_token {
            metadata["continue"] = Value::from(token.as_str());
        } else if self.kind.custom.is_some() && accepted.form == Form::Object {
            metadata["continue"] = Value::from("");
        }
        if let Some(remaining) = page.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        metadata
    }

    /// The kind and apiVersion of a list.
    fn list_kind(&self, accepted: &Accepted) -> (String, String) {
        match &accepted.form {
            Form::Partial { version, .. } => {
                ("PartialObjectMetadataList".to_owned(), format!("meta.k8s.io/{version}"))
            }
            _ => (self.kind.list_kind.to_string(), self.kind.api_version.to_string()),
        }
    }

    /// What writes the objects of a list.
    fn framer(&self, accepted: &Accepted) -> Framer {
        let framer = match &accepted.form {
            Form::Partial { version, .. } => Framer::partial(version),
            _ => Framer::item(self.kind),
        };
        framer.lean(accepted.lean)
    }

    fn page_response(
        &self,
        page: &Page,
        size: usize,
        accepted: Accepted,
        include: Include,
    ) -> Response<Body> {
        let kind = self.kind;
        let metadata = self.list_metadata(page, &accepted);
        if let Form::Table { version } = &accepted.form {
            let registry = &self.inner.registry;
            let objects = page.items.iter().map(|object| registry.value_of(kind, object));
            let json = self.table(version, include, objects, &metadata);
            return Answer::ok(json, accepted).for_exchange(self.exchange);
        }
        let framer = self.framer(&accepted);
        let mut out = BytesMut::with_capacity(size + 256);
        out.extend_from_slice(head(&self.list_kind(&accepted), &metadata).as_bytes());
        for (i, object) in page.items.iter().enumerate() {
            if i > 0 {
                out.extend_from_slice(b",");
            }
            if accepted.form != Form::Object || kind.serves_as_stored(Some(object.revision)) {
                framer.write(&mut out, &object.header, &object.value.get(), Some(object.revision));
            } else {
                let mut value = self.inner.registry.value_of(kind, object);
                if let Some(map) = value.as_object_mut().filter(|_| kind.custom.is_none()) {
                    map.remove("kind");
                    map.remove("apiVersion");
                }
                out.extend_from_slice(value.to_string().as_bytes());
            }
        }
        out.extend_from_slice(b"]}");
        Answer::ok(out.freeze(), accepted).for_exchange(self.exchange)
    }

    /// A list cannot be answered as one object's metadata.
    pub(super) fn refuse_single(&self, accepted: &Accepted) -> Result<(), Status> {
        match accepted.form {
            Form::Partial { list: false, .. } => {
                Err(misfit("PartialObjectMetadata", "is a list", &go_type(self.kind, "List")))
            }
            _ => Ok(()),
        }
    }
}

/// A list up to its first object.
fn head((kind, api_version): &(String, String), metadata: &Value) -> String {
    let (kind, api_version) = (quoted(kind), quoted(api_version));
    format!("{{\"kind\":{kind},\"apiVersion\":{api_version},\"metadata\":{metadata},\"items\":[")
}

/// 406 for a form that does not fit what was asked for.
fn misfit(form: &str, why: &str, ty: &str) -> Status {
    Status {
        message: format!("you requested {form}, but the requested object {why} ({ty})"),
        ..Status::not_acceptable(&[])
    }
}

/// How Go names a kind's internal type.
fn go_type(kind: &Kind, suffix: &str) -> String {
    if kind.custom.is_some() {
        return format!("*unstructured.Unstructured{suffix}");
    }
    let package = kind.gvk.group.split('.').next().filter(|g| !g.is_empty()).unwrap_or("core");
    format!("*{package}.{}{suffix}", kind.gvk.kind)
}
