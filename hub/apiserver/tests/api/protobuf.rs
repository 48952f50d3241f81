//! What typed Go clients send: bodies in protobuf, deletions included.

use serde_json::json;

use crate::{
    Answer, Server,
    crds::{WIDGETS, established},
};

/// A field of text, bytes or a message; all here are short.
fn field(number: u8, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    [&[number << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
}

fn body(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let head = [field(1, api_version), field(2, kind)].concat();
    [b"k8s\0".to_vec(), field(1, head), field(2, message), field(3, ""), field(4, "")].concat()
}

async fn send(server: &Server, method: &str, path: &str, body: Vec<u8>) -> Answer {
    server.send_bytes(Some(Server::admin()), method, path, "application/vnd.kubernetes.protobuf", body).await
}

#[tokio::test(start_paused = true)]
async fn typed_clients_create_update_and_delete() {
    let server = Server::start().await;
    let namespace =
        body("v1", "Namespace", &[field(1, field(1, "shop")), field(2, ""), field(3, "")].concat());
    let made = send(&server, "POST", "/api/v1/namespaces", namespace).await;
    assert_eq!((made.code, &made.body["spec"]), (201, &json!({"finalizers": ["kubernetes"]})));

    let map = |value: &str| {
        let entry = [field(1, "k"), field(2, value)].concat();
        body("v1", "ConfigMap", &[field(1, field(1, "a")), field(2, entry)].concat())
    };
    let all = "/api/v1/namespaces/shop/configmaps";
    let made = send(&server, "POST", all, map("1")).await;
    assert_eq!((made.code, &made.body["data"]), (201, &json!({"k": "1"})));
    assert_eq!(made.body["kind"], "ConfigMap");
    let one = format!("{all}/a");
    let changed = send(&server, "PUT", &one, map("2")).await;
    assert_eq!((changed.code, &changed.body["data"]), (200, &json!({"k": "2"})));

    // The options of a deletion come under the version of the group that they are sent to, and count.
    let guarded = body("v1", "DeleteOptions", &field(2, field(1, "another uid")));
    let refused = send(&server, "DELETE", &one, guarded).await;
    assert_eq!((refused.code, &refused.body["reason"]), (409, &json!("Conflict")));
    let dry = body("apps/v1", "DeleteOptions", &field(5, "All"));
    assert_eq!(send(&server, "DELETE", &one, dry).await.code, 200);
    assert_eq!(server.get(&one).await.code, 200);
    let wrong = send(&server, "DELETE", &one, map("3")).await;
    assert_eq!(wrong.code, 400, "{wrong:?}");
    assert_eq!(send(&server, "DELETE", &one, body("v1", "DeleteOptions", b"")).await.code, 200);
    assert_eq!(server.get(&one).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_cannot_be_read_is_a_bad_request() {
    let server = Server::start().await;
    let all = "/api/v1/namespaces/default/configmaps";
    for (bytes, message) in [
        (
            b"{}".to_vec(),
            "the object provided is unrecognized (must be of type ConfigMap): provided data does not appear to be a \
             protobuf message, expected prefix [107 56 115 0] ({})",
        ),
        (
            body("v1", "ConfigMap", &[0x0a, 5]),
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: unexpected EOF",
        ),
        (
            body("v1", "Secret", b""),
            "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): \
             unknown conversion",
        ),
        (
            body("v1", "Nothing", b""),
            "Nothing in version \"v1\" cannot be handled as a ConfigMap: no kind \"Nothing\" is registered for \
             version \"v1\" in scheme \"k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30\"",
        ),
    ] {
        let answer = send(&server, "POST", all, bytes).await;
        assert_eq!((answer.code, &answer.body["message"]), (400, &json!(message)));
    }
}

#[tokio::test(start_paused = true)]
async fn custom_resources_have_no_messages() {
    let server = established().await;
    let refused = send(&server, "POST", WIDGETS, body("example.com/v1", "Widget", b"")).await;
    assert_eq!((refused.code, &refused.body["reason"]), (415, &json!("UnsupportedMediaType")));
}
