//! How a member is reached from the hub's side: what stands in its Cluster, and in the Secrets that it names.

use std::hash::{DefaultHasher, Hash, Hasher};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures::future::BoxFuture;
use karmada_api::cluster::{Cluster, ClusterSyncMode};
use karmada_client::{kubeconfig::Endpoint, link::proxy::Proxy};
use karmada_meta::{gvk::GroupResource, status::Status};
use serde_json::Value;

/// Whoever knows Clusters and Secrets.
pub trait Registry: Send + Sync + 'static {
    /// The Cluster of this name, if there is one.
    fn cluster(&self, name: &str) -> BoxFuture<'_, Result<Option<Cluster>, Status>>;
    /// A Secret, if there is one.
    fn secret(&self, namespace: &str, name: &str) -> BoxFuture<'_, Result<Option<Value>, Status>>;
}

/// A member that the hub can dial.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) endpoint: Endpoint,
    /// By which the member lets the hub act in others' names.
    pub(crate) token: String,
    /// Tells whether connections of before may be used.
    pub(crate) print: u64,
}

/// The member of this name.
///
/// # Errors
/// 404 for an unknown cluster; in Karmada's words, why one cannot be reached.
pub(crate) async fn find(registry: &dyn Registry, name: &str) -> Result<Member, Status> {
    let Some(cluster) = registry.cluster(name).await? else {
        let clusters = GroupResource { group: "cluster.karmada.io".into(), resource: "clusters".into() };
        return Err(Status::not_found(&clusters, name));
    };
    let spec = &cluster.spec;
    if spec.sync_mode == ClusterSyncMode::Pull
        && (spec.api_endpoint.is_empty() || spec.impersonator_secret_ref.is_none())
    {
        return Err(Status::service_unavailable(format!(
            "cluster {name} cannot be reached by the hub: it is in pull mode, and its Cluster names no apiEndpoint or no \
             impersonatorSecretRef"
        )));
    }
    if spec.api_endpoint.is_empty() {
        return Err(Status::internal(format!("API endpoint of cluster {name} should not be empty")));
    }
    let Some(reference) = &spec.impersonator_secret_ref else {
        return Err(Status::internal(format!("the impersonatorSecretRef of cluster {name} is nil")));
    };
    let data = async |place: &karmada_api::cluster::LocalSecretReference, key: &str| {
        let secret = registry.secret(&place.namespace, &place.name).await?;
        let secret = secret.ok_or_else(|| {
            format!("secrets \"{}\" not found in namespace {:?}", place.name, place.namespace)
        });
        Ok::<_, Status>(secret.and_then(|secret| entry(&secret, key)))
    };
    let token = data(reference, "token").await?.and_then(|token| match token {
        Some(token) => String::from_utf8(token).map_err(|_| "its token is no text".to_owned()),
        None => Err("it holds no token".to_owned()),
    });
    let token = token.map_err(|why| {
        Status::internal(format!("failed to get impresonateToken for cluster {name}: {why}"))
    })?;
    let unusable = |why: String| Status::internal(format!("cluster {name} cannot be reached: {why}"));
    let ca = match &spec.secret_ref {
        Some(reference) => data(reference, "caBundle").await?.map_err(unusable)?,
        None => None,
    };
    let proxy = match spec.proxy_url.as_str() {
        "" => None,
        url => {
            // Values with a comma are several.
            let each = |(name, values): (&String, &String)| -> Vec<(String, String)> {
                values.split(',').map(|value| (name.clone(), value.trim().to_owned())).collect()
            };
            let headers = spec.proxy_header.iter().flat_map(each);
            let proxy = Proxy::parse(url).and_then(|proxy| proxy.with_headers(headers));
            Some(proxy.map_err(|why| unusable(format!("spec.proxyURL: {why}")))?)
        }
    };
    let mut print = DefaultHasher::new();
    (&spec.api_endpoint, &ca, spec.insecure_skip_tls_verification, &spec.proxy_url, &spec.proxy_header)
        .hash(&mut print);
    let endpoint = Endpoint::of_server(&spec.api_endpoint, ca, spec.insecure_skip_tls_verification, proxy)
        .map_err(|why| unusable(format!("spec.apiEndpoint: {why}")))?;
    Ok(Member { endpoint, token: token.trim().to_owned(), print: print.finish() })
}

/// An entry of a Secret's data.
fn entry(secret: &Value, key: &str) -> Result<Option<Vec<u8>>, String> {
    let Some(text) = secret["data"][key].as_str().filter(|text| !text.is_empty()) else { return Ok(None) };
    BASE64_STANDARD.decode(text).map(Some).map_err(|error| format!("its {key} is not base64: {error}"))
}
