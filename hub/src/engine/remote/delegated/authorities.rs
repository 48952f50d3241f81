//! By whose certificates the server knows its users: what it says of that to extension API servers.

use std::time::Duration;

use karmada_client::{Backoff, Policy, Rest};
use karmada_env::Env;
use serde_json::Value;
use tokio::time::sleep;

/// Where it says so.
const PATH: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
/// Between two looks: authorities are changed by hand, and the old ones stay beside the new for longer than that.
const EACH: Duration = Duration::from_secs(60);
/// Between attempts.
const AGAIN: Policy = Policy::new(Duration::from_secs(1), Duration::from_secs(30));

/// The authorities that a ConfigMap names, as PEM; empty where it names none.
///
/// # Errors
/// What is odd about it.
fn clients(map: &Value) -> Result<&str, String> {
    match &map["data"]["client-ca-file"] {
        Value::Null => Ok(""),
        Value::String(pem) => Ok(pem),
        _ => Err("data.client-ca-file is no text".to_owned()),
    }
}

/// Tells of them, and of each change, until dropped. Where they cannot be read those of before stay.
pub async fn follow(rest: Rest, env: Env, trust: impl Fn(&str) -> Result<(), String>) {
    let mut backoff = Backoff::new(AGAIN);
    loop {
        let read = match rest.get(PATH).await {
            Ok(map) => clients(&map).and_then(&trust),
            Err(error) if error.is_not_found() => trust(""),
            Err(error) => Err(error.to_string()),
        };
        let pause = match read {
            Ok(()) => {
                backoff.reset();
                EACH
            }
            Err(why) => {
                let pause = backoff.next(&env);
                if backoff.failures() == 1 || backoff.failures().is_multiple_of(12) {
                    tracing::warn!(
                        why,
                        "cannot read by which authorities the API server knows its users \
                         (ConfigMap kube-system/extension-apiserver-authentication)"
                    );
                }
                pause
            }
        };
        sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_named_is_not_trusted() {
        for (data, want) in [
            (json!({"client-ca-file": "PEM", "requestheader-client-ca-file": "other"}), Ok("PEM")),
            (json!({"requestheader-client-ca-file": "other"}), Ok("")),
            (Value::Null, Ok("")),
            (json!({"client-ca-file": 1}), Err(())),
        ] {
            let map = json!({"data": data});
            assert_eq!(clients(&map).map_err(drop), want, "{data}");
        }
    }
}
