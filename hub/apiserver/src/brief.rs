//! Requests that are written in few bytes, and the answers to them: a renewal of a Lease ([`Renewal`]).
//!
//! It becomes the request that it stands for before anybody looks at it, so that it is judged, counted, audited and carried
//! out as that. What cannot be read is left as it is, and then stands for nothing that there is.

use std::fmt;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::BodyExt as _;
use karmada_meta::renewal::Renewal;
use serde_json::Value;

use crate::{identity::CLUSTER_NAMESPACE, respond};

/// A request as it is to be answered, and whether it was written in few bytes.
pub(crate) fn expand(request: Request<Body>) -> (Request<Body>, bool) {
    let uri = request.uri();
    let renewal = Renewal::parse(uri.path(), uri.query().unwrap_or_default());
    let Some(Ok(renewal)) = renewal.filter(|_| request.method() == Method::PATCH) else {
        return (request, false);
    };
    let name = renewal.name;
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{CLUSTER_NAMESPACE}/leases/{name}");
    let Ok(long) = path.parse::<Uri>() else { return (request, false) };
    let patch = renewal.patch().to_string();
    let (mut parts, _) = request.into_parts();
    parts.uri = long;
    let headers = &mut parts.headers;
    for of_the_body in [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONTENT_ENCODING] {
        headers.remove(of_the_body);
    }
    // The answer is read here.
    headers.remove(header::ACCEPT_ENCODING);
    set(headers, header::CONTENT_TYPE, "application/merge-patch+json");
    set(headers, header::ACCEPT, "application/json");
    set(headers, header::HeaderName::from_static("prefer"), "return=minimal");
    (Request::from_parts(parts, Body::from(patch)), true)
}

fn set(headers: &mut HeaderMap, name: header::HeaderName, value: &'static str) {
    headers.insert(name, HeaderValue::from_static(value));
}

/// The answer to a request that was written in few bytes: where it was carried out, the new version and nothing that takes
/// more.
pub(crate) async fn shorten(response: Response<Body>) -> Response<Body> {
    if response.status() != StatusCode::OK {
        return response;
    }
    match version(response.into_body()).await {
        Ok(tag) => {
            let mut short = respond::empty(StatusCode::NO_CONTENT);
            short.headers_mut().insert(header::ETAG, tag);
            short
        }
        // What was written stays; who has asked finds out by asking again.
        Err(error) => {
            tracing::error!(%error, "the answer to a renewal cannot be read");
            respond::empty(StatusCode::INTERNAL_SERVER_ERROR)
        }
    }
}

async fn version(body: Body) -> Result<HeaderValue, Box<dyn fmt::Display + Send>> {
    fn odd(error: impl fmt::Display + Send + 'static) -> Box<dyn fmt::Display + Send> {
        Box::new(error)
    }
    let bytes: Bytes = body.collect().await.map_err(odd)?.to_bytes();
    let lease: Value = serde_json::from_slice(&bytes).map_err(odd)?;
    let version = karmada_meta::object::resource_version(&lease);
    HeaderValue::try_from(format!("\"{version}\"")).map_err(odd)
}

#[cfg(test)]
mod tests {
    use karmada_meta::pack;

    use super::*;

    #[tokio::test]
    async fn a_renewal_is_the_patch_that_it_stands_for() {
        let short = |method: Method, uri: &str| {
            let request = Request::builder().method(method).uri(uri).header("content-length", "0");
            // As an agent asks for every answer.
            let request = request.header("accept-encoding", format!("{}, gzip", pack::CODING));
            expand(request.body(Body::from("never read")).unwrap())
        };
        let (long, is_brief) = short(Method::PATCH, "/karmada/renewals/shop-17?v=7&t=1000000");
        assert!(is_brief && long.headers()["content-type"] == "application/merge-patch+json");
        assert_eq!(
            long.uri().to_string(),
            "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/shop-17"
        );
        assert!(!long.headers().contains_key("content-length"));
        assert!(!long.headers().contains_key("accept-encoding"), "a packed answer could not be read here");
        let body = long.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(
            body,
            r#"{"metadata":{"resourceVersion":"7"},"spec":{"renewTime":"1970-01-01T00:00:01.000000Z"}}"#
        );
        for (method, uri) in [
            (Method::GET, "/karmada/renewals/shop-17?v=7&t=1000000"),
            (Method::PATCH, "/karmada/renewals/shop-17?v=seven&t=1000000"),
            (Method::PATCH, "/karmada/renewals/a%2F..%2Fb?v=7&t=1000000"),
            (Method::PATCH, "/karmada/history"),
        ] {
            let (same, is_brief) = short(method, uri);
            assert!(!is_brief && same.uri() == uri, "{uri}");
            assert!(same.headers().contains_key("accept-encoding"), "{uri}");
        }
    }

    #[tokio::test]
    async fn an_answer_is_shortened_where_it_is_a_success() {
        let answer = |code: u16, text: &'static str| {
            shorten(Response::builder().status(code).header("audit-id", "x").body(Body::from(text)).unwrap())
        };
        let done = answer(200, r#"{"metadata":{"resourceVersion":"8"}}"#).await;
        assert_eq!((done.status().as_u16(), done.headers().len()), (204, 1));
        assert_eq!(done.headers()["etag"], "\"8\"");
        let refused = answer(409, "{}").await;
        assert_eq!((refused.status().as_u16(), &refused.headers()["audit-id"]), (409, &"x".parse().unwrap()));
        assert_eq!(answer(200, "no JSON").await.status().as_u16(), 500);
    }
}
