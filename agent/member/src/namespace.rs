//! The Namespace on the member in which an agent keeps what is its own.

use karmada_client::{Error, Rest};
use serde_json::json;

/// Makes a Namespace on the member if there is none.
pub(crate) async fn make_namespace(member: &Rest, name: &str) -> Result<(), Error> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    match member.post("/api/v1/namespaces", &namespace).await {
        Err(error) if !error.is_already_exists() => Err(error),
        _ => Ok(()),
    }
}
