//! OpenAPI as clients fetch it: by hash, by tag, in both versions, with what definitions add.

use axum::body::Body;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::{Server, crds::established};

const GNOSTIC: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

async fn fetch(server: &Server, path: &str, headers: &[(&str, &str)]) -> Response<Body> {
    let mut request = Request::builder().uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut request = request.body(Body::empty()).unwrap();
    request.extensions_mut().insert(Server::admin());
    server.api.service().oneshot(request).await.unwrap()
}

async fn json(response: Response<Body>) -> Value {
    assert_eq!(response.status(), 200);
    serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap()
}

fn header(response: &Response<Body>, name: &str) -> String {
    response.headers().get(name).map(|v| v.to_str().unwrap().to_owned()).unwrap_or_default()
}

/// Where a document is now.
async fn located(server: &Server, path: &str) -> Option<String> {
    let index = json(fetch(server, "/openapi/v3", &[]).await).await;
    index["paths"][path]["serverRelativeURL"].as_str().map(str::to_owned)
}

#[tokio::test(start_paused = true)]
async fn documents_are_kept_by_their_hash() {
    let server = Server::start().await;
    let apps = located(&server, "apis/apps/v1").await.unwrap();
    let response = fetch(&server, &apps, &[("accept", "application/json")]).await;
    assert_eq!(header(&response, "content-type"), "application/json");
    assert_eq!(header(&response, "cache-control"), "public, immutable");
    assert_eq!(header(&response, "expires"), "Mon, 15 Jun 2026 15:06:40 GMT");
    let etag = header(&response, "etag");
    let document = json(response).await;
    let deployment = &document["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"];
    assert_eq!(
        deployment["x-kubernetes-group-version-kind"],
        json!([{"group": "apps", "version": "v1", "kind": "Deployment"}])
    );
    assert_eq!(fetch(&server, &apps, &[("if-none-match", &etag)]).await.status(), 304);

    let plain = fetch(&server, "/openapi/v3/apis/apps/v1", &[]).await;
    assert_eq!((header(&plain, "etag"), header(&plain, "cache-control")), (etag, "no-cache, private".into()));
    let stale = fetch(&server, "/openapi/v3/apis/apps/v1?hash=OLD", &[]).await;
    assert_eq!((stale.status().as_u16(), header(&stale, "location")), (301, apps));
    for (path, accept, code) in [
        ("/openapi/v3/apis/apps/v9", "*/*", 404),
        ("/openapi/v4", "*/*", 404),
        ("/openapi/v3/api/v1", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf", 406),
        ("/openapi/v3/api", "application/json", 200),
        ("/openapi/v3/apis/apps", "application/json", 200),
        ("/openapi/v3/version", "application/json", 200),
        ("/openapi/v2", "text/html", 406),
    ] {
        assert_eq!(fetch(&server, path, &[("accept", accept)]).await.status(), code, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn swagger_comes_in_two_forms() {
    let server = Server::start().await;
    let plain = fetch(&server, "/openapi/v2", &[]).await;
    let tag = header(&plain, "etag");
    assert_eq!(header(&plain, "content-type"), "application/json");
    assert_eq!(json(plain).await["swagger"], "2.0");
    let gnostic = fetch(&server, "/openapi/v2", &[("accept", GNOSTIC)]).await;
    assert_eq!(
        header(&gnostic, "content-type"),
        "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    );
    let gnostic_tag = header(&gnostic, "etag");
    assert_ne!(gnostic_tag, tag);
    let whole = gnostic.into_body().collect().await.unwrap().to_bytes();
    assert!(whole.starts_with(b"\x0a\x032.0"));
    let known = fetch(&server, "/openapi/v2", &[("accept", GNOSTIC), ("if-none-match", &gnostic_tag)]).await;
    assert_eq!(known.status(), 304);
    let small = fetch(&server, "/openapi/v2", &[("accept", GNOSTIC), ("accept-encoding", "gzip")]).await;
    assert_eq!(header(&small, "content-encoding"), "gzip");
    assert!(small.into_body().collect().await.unwrap().to_bytes().len() < whole.len() / 4);
}

#[tokio::test(start_paused = true)]
async fn what_a_definition_serves_is_published_and_goes_with_it() {
    let server = established().await;
    let first = located(&server, "apis/example.com/v1").await.unwrap();
    let document = json(fetch(&server, &first, &[]).await).await;
    let widget = &document["components"]["schemas"]["com.example.v1.Widget"];
    assert_eq!(widget["properties"]["spec"]["properties"]["color"]["default"], "red");
    assert_eq!(
        widget["x-kubernetes-group-version-kind"],
        json!([{"group": "example.com", "version": "v1", "kind": "Widget"}])
    );
    let patch = &document["paths"]["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}"]["patch"];
    let content = patch["requestBody"]["content"].as_object().unwrap();
    assert!(!content.contains_key("application/strategic-merge-patch+json"));
    assert!(
        document["paths"]["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}/status"].is_object()
    );
    let two = json(fetch(&server, "/openapi/v2", &[]).await).await;
    assert!(
        two["definitions"]["com.example.v2.Widget"]["properties"]["spec"]["properties"]["color"].is_object()
    );

    // A change makes another document, the end of the definition none.
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";
    let field = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size";
    let change = json!([{"op": "add", "path": field, "value": {"type": "integer"}}]);
    assert_eq!(server.patch(definition, "json", change).await.code, 200);
    let second = loop {
        match located(&server, "apis/example.com/v1").await {
            Some(second) if second != first => break second,
            _ => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
        }
    };
    let document = json(fetch(&server, &second, &[]).await).await;
    let spec = &document["components"]["schemas"]["com.example.v1.Widget"]["properties"]["spec"];
    assert_eq!(spec["properties"]["size"], json!({"type": "integer"}));
    assert_eq!(server.call("DELETE", definition, Value::Null).await.code, 200);
    server.until(definition, |answer| answer.code == 404).await;
    while located(&server, "apis/example.com/v1").await.is_some() {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}
