//! What a hub counts, as a test reads it.

use karmada_client::Rest;
use karmada_telemetry::metrics::{Figures, OPEN, read};

/// The page of a hub.
pub async fn figures(api: &Rest) -> Figures {
    let page = api.get_bytes("/metrics", OPEN).await.expect("the page");
    let text = String::from_utf8_lossy(&page);
    read(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}
