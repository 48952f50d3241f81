//! Where a webhook is, for whoever calls it.

use std::{sync::Arc, time::Duration};

use serde_json::Value;

use super::hook::{Client, Hook};

/// Where a webhook is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// `https://host[:port]/path`; its certificate is for the host.
    pub url: String,
    /// Host and port that are dialled instead of the URL's.
    pub dial: Option<(String, u16)>,
    /// PEM of the authorities for its certificate; the system's if there are none.
    pub authorities: Option<Arc<[u8]>>,
    /// How long it may take, all in all.
    pub timeout: Duration,
}

/// Where a hook is. `service` looks up a Service, by namespace and name.
///
/// # Errors
/// Why it is nowhere.
pub(crate) fn find(hook: &Hook, service: impl FnOnce(&str, &str) -> Option<Value>) -> Result<Place, String> {
    let (url, dial) = match &hook.client {
        Client::Url(url) => (url.clone(), None),
        Client::Service { namespace, name, port, path } => {
            let found = service(namespace, name);
            let host = address(namespace, name, found.as_ref())?;
            let path = path.trim_start_matches('/');
            (format!("https://{name}.{namespace}.svc:{port}/{path}"), Some((host, *port)))
        }
        Client::Nowhere => {
            return Err("webhook configuration must have either service or URL".to_owned());
        }
    };
    Ok(Place { url, dial, authorities: hook.authorities.clone()?, timeout: hook.timeout })
}

/// The host that stands for a Service. As there is no network of Pods here, it is one outside.
fn address(namespace: &str, name: &str, service: Option<&Value>) -> Result<String, String> {
    let Some(service) = service else {
        return Err(format!(
            "service {name:?} not found in namespace {namespace:?}: {}",
            way_out(namespace, name)
        ));
    };
    let host = service_host(service).map(str::to_owned);
    host.ok_or_else(|| format!("service {name:?} has no address: {}", way_out(namespace, name)))
}

/// The host that a Service leads to, if it leads anywhere.
pub fn service_host(service: &Value) -> Option<&str> {
    let text = |field: &str| service["spec"][field].as_str().unwrap_or_default();
    let host = if text("type") == "ExternalName" { text("externalName") } else { text("clusterIP") };
    (!matches!(host, "" | "None")).then_some(host)
}

/// What to do about a Service that leads nowhere.
fn way_out(namespace: &str, name: &str) -> String {
    format!(
        "this API server has no network of Pods; use clientConfig.url, or make {namespace}/{name} a Service of type \
         ExternalName that names a host it can reach"
    )
}
