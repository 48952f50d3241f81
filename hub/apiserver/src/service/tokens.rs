//! `POST serviceaccounts/NAME/token`: a token is issued, and nothing is stored.

use axum::body::Body;
use bytes::Bytes;
use http::{Response, StatusCode};
use karmada_meta::status::Status;
use serde_json::Value;

use super::handlers::Handler;
use crate::{
    authn::accounts::Asked,
    fields,
    negotiate::Endpoint,
    options::{Write, WriteOptions},
    registry::Target,
    respond::Answer,
};

impl Handler<'_> {
    /// Issues a token of a service account.
    pub(super) async fn issue_token(&self, body: Bytes) -> Result<Response<Body>, Status> {
        let (inner, exchange, target) = (self.inner, self.exchange, self.target());
        let authenticator = inner.front.authenticator();
        let accounts = authenticator.service_accounts().ok_or_else(Status::no_such_resource)?;
        let accepted = self.accepted(Endpoint::Object)?;
        let options = WriteOptions::parse(&exchange.query, Write::Create)?;
        // The body need not repeat the name.
        let place = Target { kind: &inner.token_request, name: "", ..target };
        let request = self.object(&place, body, &options).await?;
        let manager = options.field_manager.as_deref().unwrap_or(exchange.caller.agent);
        let env = &inner.registry.env;
        let issue = || {
            let subresource = target.subresource;
            let mut request = request.clone();
            request.as_object_mut().map(|request| request.remove("status"));
            let now = inner.registry.now();
            let mut request = fields::update(place.kind, None, &request, manager, subresource, &now);
            // For Go the spec of an empty one is there, and so nobody's.
            let managed = request.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut);
            for entry in managed.into_iter().flatten() {
                entry
                    .pointer_mut("/fieldsV1/f:spec")
                    .and_then(Value::as_object_mut)
                    .map(|spec| spec.remove("."));
            }
            let asked = Asked { namespace: self.namespace, name: target.name };
            accounts.issue(asked, request, &inner.registry.store.snapshot(), env.wall(), env.uuid())
        };
        let issued = self.pool().run(exchange.caller.weight(), issue).await??;
        if let Some(warning) = issued.warning {
            exchange.caller.warn(warning);
        }
        let (code, json) = (StatusCode::CREATED, issued.review.to_string().into());
        Ok(Answer { code, json, accepted }.for_exchange(exchange))
    }
}
