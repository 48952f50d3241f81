//! A client that writes only while this hub leads.

use http::{Method, Request};
use karmada_client::Fence;
use kube::{Client, client::Body};

/// A write that was held back.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("this hub does not lead any more")]
struct NotLeading;

/// The same client, which refuses to send anything but GETs once the fence is shut. Controllers are stopped when
/// leadership is lost; what they have under way, or a process that was stopped and goes on, is held back by this.
pub(super) fn fenced(client: Client, fence: Fence) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, fence) = (client.clone(), fence.clone());
        async move {
            if *request.method() != Method::GET && !fence.is_open() {
                return Err(tower::BoxError::from(NotLeading));
            }
            client.send(request).await.map_err(tower::BoxError::from)
        }
    });
    Client::new(service, namespace)
}
