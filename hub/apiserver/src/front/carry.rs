//! Has requests answered by somebody else.

use std::sync::Arc;

use axum::body::Body;
use http::{Method, Request, Response};
use karmada_meta::status::Status;

use super::{Exchange, Front, hold::ended};
use crate::{
    carried::{self, Call, Open},
    limits::Held,
    listener::Standing,
};

impl Front {
    /// Has a request that may be made answered by somebody else.
    pub(super) async fn carried(
        &self,
        exchange: &Exchange<'_>,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        let (info, parts) = (exchange.info, exchange.parts);
        let Some(way) = &exchange.way else {
            return Err(Status::internal("nobody carries this on"));
        };
        if !carried::METHODS.contains(&parts.method) {
            return Err(Status::method_not_allowed_here());
        }
        let path = parts.uri.path();
        let ambiguous = || {
            let plain =
                "write group, version, resource and name plainly, without a namespace and without %XX";
            Status::bad_request(format!("the path of a request that is carried on is ambiguous: {plain}"))
        };
        let behind = match (info.is_resource, way.whole) {
            (true, Some(_)) => carried::whole(info, path).ok_or_else(ambiguous)?,
            (true, None) => carried::behind(info, path).ok_or_else(ambiguous)?,
            (false, _) => "",
        };
        if info.is_resource && behind.is_empty() && matches!(parts.method, Method::GET | Method::HEAD) {
            return Ok(carried::to_root(path, parts.uri.query()));
        }
        let standing = parts.extensions.get::<Standing>();
        let open = Arc::new(Open::new(self.metrics.open(info, way.whole), standing.map(Standing::busy)));
        let _ = exchange.open.set(open.clone());
        let mut request = Request::new(body);
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = parts.uri.clone();
        *request.headers_mut() = parts.headers.clone();
        // Where the connection may change its protocol, this is how.
        *request.extensions_mut() = parts.extensions.clone();
        let (stops, hold, now) = (way.stops.clone(), exchange.shown.hold.clone(), self.env.wall());
        let standing = standing.cloned();
        let ends = Box::pin(async move {
            let holds = async {
                match hold {
                    Some(hold) => ended(hold, now).await,
                    None => std::future::pending().await,
                }
            };
            let stands = async {
                match standing {
                    Some(standing) => standing.ended().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stops.cancelled() => {}
                () = holds => {}
                () = stands => {}
            }
        });
        let call = Call {
            user: exchange.caller.user.clone(),
            asked_by: exchange.asked_by.clone(),
            name: info.name.clone(),
            path: behind.to_owned(),
            request,
            audit_id: exchange.audit_id.clone(),
            held: open.clone(),
            ends,
        };
        let response = way.by.carry(call).await?;
        Ok(response.map(|body| Body::new(Held::new(body, open))))
    }
}
