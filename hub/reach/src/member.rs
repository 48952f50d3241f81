//! How a member is reached from the hub's side: what stands in its Cluster, and in the Secrets that it names.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use axum::body::Body;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures::future::BoxFuture;
use http::{Request, Response};
use karmada_api::{
    cluster::{Cluster, ClusterSpec, ClusterSyncMode, LocalSecretReference},
    conditions::ConditionStatus,
    consts::{condition, extension, namespace},
};
use karmada_apiserver::authn::UserInfo;
use karmada_client::{
    kubeconfig::{Credentials, Endpoint},
    link::{Refuses, proxy::Proxy},
};
use karmada_core::ways::{self, Ways};
use karmada_meta::{gvk::GroupResource, names::joining_name_errors, status::Status};
use serde_json::Value;

use crate::{everywhere::Place, search::Turn};

/// Whoever knows Clusters and Secrets.
pub trait Registry: Send + Sync + 'static {
    /// The Cluster of this name, if there is one.
    fn cluster(&self, name: &str) -> BoxFuture<'_, Result<Option<Cluster>, Status>>;
    /// The names of all Clusters.
    fn clusters(&self) -> BoxFuture<'_, Result<Vec<String>, Status>>;
    /// The clusters where a kind is searched, as ResourceRegistries have it; none where none of them names it, or the hub does
    /// not know the kind. The turn is kept until it has been looked.
    fn searched<'a>(
        &'a self,
        place: &'a Place,
        turn: Turn,
    ) -> BoxFuture<'a, Result<Option<Vec<String>>, Status>>;
    /// What tells the agent that speaks for a cluster apart from those before and after it: it is another text when the Cluster was
    /// made anew, or the credentials of its agent have ended.
    fn agent(&self, _cluster: &str) -> String {
        String::new()
    }
    /// What the hub keeps of a kind on a cluster, if it keeps anything.
    fn copied(&self, _cluster: &str, _place: &Place) -> Option<Copied> {
        None
    }
    /// What these clusters have told the hub of a metric, where they cannot be asked. Nothing, if it has asked for no such metric.
    fn told<'a>(&'a self, _: &'a Wanted, _: &'a [String]) -> BoxFuture<'a, Result<Vec<Told>, Status>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
    /// Has the hub's own API answer, in a user's name.
    fn own<'a>(
        &'a self,
        user: &'a UserInfo,
        request: Request<Body>,
    ) -> BoxFuture<'a, Result<Response<Body>, Status>>;
    /// Whether agents have been kept from `spec.syncMode` of their Clusters and from what it allows. Where they have not, the hub does
    /// not dial itself for any Cluster.
    fn is_guarded(&self) -> bool {
        true
    }
    /// A Secret, if there is one.
    fn secret(&self, namespace: &str, name: &str) -> BoxFuture<'_, Result<Option<Value>, Status>>;
    /// Asks a cluster's agent to dial by this number, in the annotation [`extension::TUNNEL_CALL`] of its Cluster.
    fn call<'a>(&'a self, cluster: &'a str, number: &'a str) -> BoxFuture<'a, Result<(), Status>>;
}

/// What is kept of a kind on a cluster, or in one namespace there.
#[derive(Clone, Debug)]
pub struct Copied {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// The member's resourceVersion.
    pub revision: String,
    /// As JSON.
    pub objects: Vec<Arc<str>>,
    /// How long ago they were so, where they are not followed at present.
    pub age: Option<Duration>,
}

/// A metric with one value in each cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Where it is.
    pub namespace: String,
    /// Whose: a resource, with its group behind a dot, and a name. Nothing of an external one.
    pub object: Option<(String, String)>,
    /// Its name.
    pub metric: String,
    /// The labels of its series, as in a query.
    pub selector: String,
}

/// What a cluster has told of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Its name.
    pub cluster: String,
    /// The value, in thousandths.
    pub value: i64,
    /// When it was sampled, by the cluster's clock.
    pub at: String,
}

/// By what a member is reached.
#[derive(Debug)]
pub(crate) enum By {
    /// The hub dials it.
    Address(Box<Member>),
    /// Its agent dials the hub.
    Tunnel,
}

/// A member that the hub can dial.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    name: String,
    spec: ClusterSpec,
    ca: Option<Vec<u8>>,
    /// Whether it may be on the hub's own machine: where the platform has said so, and nobody else can have.
    may_be_here: bool,
    /// By which the member lets the hub act in others' names.
    pub(crate) token: String,
    /// Tells whether connections of before may be used.
    pub(crate) print: u64,
}

impl Member {
    /// How it is dialled.
    ///
    /// # Errors
    /// Which field of its Cluster cannot be used.
    pub(crate) fn endpoint(&self) -> Result<Endpoint, Status> {
        let spec = &self.spec;
        let unusable = |field: &str, why: String| {
            Status::internal(format!("cluster {} cannot be reached: {field}: {why}", self.name))
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
                Some(proxy.map_err(|why| unusable("spec.proxyURL", why))?)
            }
        };
        let is_proxied = proxy.is_some();
        let endpoint = Endpoint::of_server(
            &spec.api_endpoint,
            self.ca.clone(),
            spec.insecure_skip_tls_verification,
            proxy,
        )
        .map_err(|why| unusable("spec.apiEndpoint", why))?;
        self.may_be_asked(&endpoint, is_proxied).map_err(|why| unusable("spec.apiEndpoint", why))?;
        Ok(endpoint)
    }

    /// Whether the hub shows itself there. Of what a proxy dials only the name is seen here; what it may not reach is for
    /// its owner to say.
    fn may_be_asked(&self, endpoint: &Endpoint, is_proxied: bool) -> Result<(), String> {
        let host = endpoint.server.host().unwrap_or_default().trim_matches(['[', ']']);
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let is_local = host == "localhost" || host.ends_with(".localhost");
        let address: Option<IpAddr> =
            if is_local { Some(Ipv4Addr::LOCALHOST.into()) } else { host.parse().ok() };
        let address = address.map(|address| address.to_canonical());
        if is_proxied && let Some(why) = address.and_then(self.refuses()) {
            return Err(format!("{host} is not asked for at a proxy: it is {why}"));
        }
        let stays_here = !is_proxied && address.is_some_and(|address| address.is_loopback());
        if endpoint.tls.is_none() && !stays_here {
            return Err("a token is sent by https alone".to_owned());
        }
        Ok(())
    }

    /// Which addresses are not dialled for it.
    pub(crate) fn refuses(&self) -> Refuses {
        match self.may_be_here {
            true => nowhere,
            false => |address| nowhere(address).or_else(|| address.is_loopback().then_some("the hub's own")),
        }
    }
}

/// Whether a member may be on the hub's own machine. In push mode the platform says where it is; in pull mode its agent does, who
/// might mean the hub itself.
fn may_be_here(spec: &ClusterSpec, is_guarded: bool) -> bool {
    is_guarded && spec.sync_mode == ClusterSyncMode::Push
}

/// How the hub works on a member in push mode: by the token of this Secret, which its Cluster names as `secretRef`. With what
/// tells whether that has changed.
///
/// # Errors
/// What cannot be used.
pub fn worked_on(cluster: &Cluster, secret: &Value) -> Result<(Endpoint, u64), String> {
    let name = cluster.metadata.name.clone().unwrap_or_default();
    let spec = cluster.spec.clone();
    if spec.api_endpoint.is_empty() {
        return Err(format!("API endpoint of cluster {name} should not be empty"));
    }
    let place =
        spec.secret_ref.clone().ok_or_else(|| format!("spec.secretRef: cluster {name} names no Secret"))?;
    let within = |why: String| format!("spec.secretRef: Secret {}/{}: {why}", place.namespace, place.name);
    its_own(&name, &place, secret).map_err(within)?;
    let token =
        entry(secret, "token").map_err(within)?.ok_or_else(|| within("it holds no token".to_owned()))?;
    let token = String::from_utf8(token).map_err(|_| within("its token is no text".to_owned()))?;
    let ca = entry(secret, "caBundle").map_err(within)?;
    let print = print(&spec, ca.as_deref(), &token);
    let token = token.trim().to_owned();
    let may_be_here = may_be_here(&spec, true);
    let member = Member { name, spec, ca, may_be_here, token: token.clone(), print };
    let endpoint = member.endpoint().map_err(|status| status.message)?;
    Ok((Endpoint { credentials: Credentials::Token(token), ..endpoint }, print))
}

/// Whether a Secret of this place can be one that [`worked_on`] goes by.
///
/// # Errors
/// What is wrong with it.
pub fn worked_on_at(place: &LocalSecretReference) -> Result<(), String> {
    let plain = |text: &str| {
        let signs = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        !text.is_empty() && text.len() <= 253 && text.bytes().all(signs)
    };
    if plain(&place.namespace) && plain(&place.name) {
        return Ok(());
    }
    Err(format!("spec.secretRef: {:?} in {:?} is no name of a Secret", place.name, place.namespace))
}

/// Tells two ways to a member apart.
fn print(spec: &ClusterSpec, ca: Option<&[u8]>, token: &str) -> u64 {
    let mut print = DefaultHasher::new();
    (&spec.api_endpoint, ca, spec.insecure_skip_tls_verification, &spec.proxy_url, &spec.proxy_header)
        .hash(&mut print);
    ((spec.sync_mode == ClusterSyncMode::Push), token).hash(&mut print);
    print.finish()
}

/// What is no member's address: above all, where clouds tell machines their credentials.
pub fn nowhere(address: IpAddr) -> Option<&'static str> {
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    let rows = [
        (link_local, "link-local"),
        (address.is_multicast(), "a multicast address"),
        (address.is_unspecified(), "no address"),
    ];
    rows.into_iter().find(|(is, _)| *is).map(|(_, what)| what)
}

/// Whether the agent of a cluster that the hub does not dial serves a tunnel now.
fn tunnel(name: &str, cluster: &Cluster) -> Result<By, Status> {
    let cannot = |why: &str| {
        Err(Status::service_unavailable(format!("cluster {name} cannot be reached by the hub: {why}")))
    };
    let ways = Ways::of(cluster);
    if !ways.is_offered {
        return cannot(
            "it is in pull mode, its Cluster names no apiEndpoint or no impersonatorSecretRef, and its agent serves no \
             tunnel (karmada-agent --tunnel)",
        );
    }
    if ways.wanted == ways::Wanted::No {
        return cannot(&format!("its annotation {} wants no tunnel", extension::TUNNEL_WANTED));
    }
    let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
    let mut silent =
        conditions.filter(|one| one.type_ == condition::READY && one.status == ConditionStatus::Unknown);
    match silent.next() {
        // Whoever does not answer is not waited for.
        Some(silent) => {
            cannot(&format!("its agent has not been heard since {}", silent.last_transition_time))
        }
        None => Ok(By::Tunnel),
    }
}

/// By what the member of this name is reached.
///
/// # Errors
/// 404 for an unknown cluster; in Karmada's words, why one cannot be reached.
pub(crate) async fn find(registry: &dyn Registry, name: &str) -> Result<By, Status> {
    let Some(cluster) = registry.cluster(name).await? else {
        let clusters = GroupResource { group: "cluster.karmada.io".into(), resource: "clusters".into() };
        return Err(Status::not_found(&clusters, name));
    };
    if Ways::of(&cluster).is_by_tunnel() {
        return tunnel(name, &cluster);
    }
    let spec = cluster.spec;
    if spec.api_endpoint.is_empty() {
        return Err(Status::internal(format!("API endpoint of cluster {name} should not be empty")));
    }
    let Some(reference) = &spec.impersonator_secret_ref else {
        return Err(Status::internal(format!("the impersonatorSecretRef of cluster {name} is nil")));
    };
    let data = async |place: &LocalSecretReference, key: &str| {
        let secret = registry.secret(&place.namespace, &place.name).await?;
        let missing = || format!("secrets \"{}\" not found in namespace {:?}", place.name, place.namespace);
        Ok::<_, Status>(secret.ok_or_else(missing).and_then(|secret| {
            its_own(name, place, &secret)?;
            entry(&secret, key)
        }))
    };
    let token = data(reference, "token").await?.and_then(|token| match token {
        Some(token) => String::from_utf8(token).map_err(|_| "its token is no text".to_owned()),
        None => Err("it holds no token".to_owned()),
    });
    let token = token.map_err(|why| {
        Status::internal(format!("failed to get impresonateToken for cluster {name}: {why}"))
    })?;
    let ca = match &spec.secret_ref {
        Some(reference) => data(reference, "caBundle").await?.map_err(|why| {
            Status::internal(format!("cluster {name} cannot be reached: spec.secretRef: {why}"))
        })?,
        None => None,
    };
    // A new token is shown on connections of before, too.
    let (token, print) = (token.trim().to_owned(), print(&spec, ca.as_deref(), ""));
    let may_be_here = may_be_here(&spec, registry.is_guarded());
    Ok(By::Address(Box::new(Member { name: name.to_owned(), spec, ca, may_be_here, token, print })))
}

/// Whether a Secret is the cluster's: by the names that Karmada gives it, or because it belongs to the Cluster, as with
/// `karmadactl join`. Whoever may write Clusters is not to have the hub send other Secrets to a server of theirs, and so none are
/// sent for a Cluster that is named like another one's.
fn its_own(cluster: &str, place: &LocalSecretReference, secret: &Value) -> Result<(), String> {
    if let Some(why) = joining_name_errors(cluster).first() {
        return Err(format!("the name of the Cluster {cluster} {why}"));
    }
    let usual = place.namespace == namespace::CLUSTER
        && [cluster, &format!("{cluster}-impersonator")].contains(&place.name.as_str());
    let owners = secret["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let mut owners = owners.filter(|owner| owner["kind"] == "Cluster");
    if usual || owners.any(|owner| owner["name"] == cluster) {
        return Ok(());
    }
    Err(format!(
        "Secret {}/{} is not the cluster's: name it {}/{cluster}-impersonator, or let the Cluster own it",
        place.namespace,
        place.name,
        namespace::CLUSTER
    ))
}

/// An entry of a Secret's data.
fn entry(secret: &Value, key: &str) -> Result<Option<Vec<u8>>, String> {
    let Some(text) = secret["data"][key].as_str().filter(|text| !text.is_empty()) else { return Ok(None) };
    BASE64_STANDARD.decode(text).map(Some).map_err(|error| format!("its {key} is not base64: {error}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_dialled_for_nobody() {
        for (address, refused) in [
            ("10.0.0.1", false),
            ("192.0.2.1", false),
            ("2001:db8::1", false),
            ("127.0.0.1", false),
            ("169.254.169.254", true),
            ("fe80::1", true),
            ("0.0.0.0", true),
            ("::", true),
            ("224.0.0.1", true),
            ("ff02::1", true),
        ] {
            assert_eq!(nowhere(address.parse().unwrap()).is_some(), refused, "{address}");
        }
    }

    #[test]
    fn to_whom_the_hub_shows_itself() {
        for (mode, server, proxy, says) in [
            ("Push", "https://m", "", ""),
            ("Push", "https://127.0.0.1:6443", "", ""),
            ("Push", "http://127.0.0.1:6443", "", ""),
            ("Push", "http://[::1]:6443", "", ""),
            ("Push", "http://localhost:6443", "", ""),
            ("Push", "http://m", "", "by https alone"),
            ("Push", "http://10.0.0.1", "", "by https alone"),
            ("Pull", "http://m", "", "by https alone"),
            ("Push", "http://169.254.169.254", "", "by https alone"),
            ("Push", "https://m", "http://squid:3128", ""),
            ("Push", "http://127.0.0.1", "http://squid:3128", "by https alone"),
            ("Push", "https://169.254.169.254", "http://squid:3128", "not asked for at a proxy"),
            ("Push", "https://localhost", "http://squid:3128", ""),
            ("Pull", "https://localhost", "http://squid:3128", "not asked for at a proxy"),
            ("Pull", "https://LOCALHOST.", "http://squid:3128", "not asked for at a proxy"),
            ("Pull", "https://[::ffff:127.0.0.1]", "http://squid:3128", "not asked for at a proxy"),
            ("Pull", "https://[fe80::1]", "socks5://s:1080", "not asked for at a proxy"),
            ("Pull", "https://10.0.0.1", "http://squid:3128", ""),
        ] {
            let spec = json!({
                "syncMode": mode, "apiEndpoint": server, "proxyURL": proxy, "insecureSkipTLSVerification": true,
            });
            let spec: ClusterSpec = serde_json::from_value(spec).unwrap();
            let member = Member {
                name: "m".to_owned(),
                may_be_here: may_be_here(&spec, true),
                spec,
                ca: None,
                token: "t".to_owned(),
                print: 0,
            };
            match member.endpoint() {
                Ok(_) => assert_eq!(says, "", "{mode} {server} {proxy}"),
                Err(status) => assert!(
                    !says.is_empty() && status.message.contains(says),
                    "{mode} {server} {proxy}: {}",
                    status.message
                ),
            }
        }
    }

    #[tokio::test]
    async fn the_hub_dials_itself_where_nobody_but_the_platform_can_have_said_so() {
        /// A Cluster, and its Secret.
        struct One(ClusterSyncMode, bool);

        impl Registry for One {
            fn cluster(&self, name: &str) -> BoxFuture<'_, Result<Option<Cluster>, Status>> {
                let name = name.to_owned();
                Box::pin(async move {
                    let spec = ClusterSpec {
                        sync_mode: self.0,
                        api_endpoint: "https://127.0.0.1:6443".to_owned(),
                        impersonator_secret_ref: Some(LocalSecretReference {
                            namespace: namespace::CLUSTER.to_owned(),
                            name: format!("{name}-impersonator"),
                        }),
                        ..ClusterSpec::default()
                    };
                    Ok(Some(Cluster::new(&name, spec)))
                })
            }

            fn is_guarded(&self) -> bool {
                self.1
            }

            fn secret(&self, _: &str, _: &str) -> BoxFuture<'_, Result<Option<Value>, Status>> {
                Box::pin(async { Ok(Some(json!({"data": {"token": "dA=="}}))) })
            }

            fn clusters(&self) -> BoxFuture<'_, Result<Vec<String>, Status>> {
                Box::pin(async { Ok(Vec::new()) })
            }

            fn searched<'a>(
                &'a self,
                _: &'a Place,
                _: Turn,
            ) -> BoxFuture<'a, Result<Option<Vec<String>>, Status>> {
                Box::pin(async { Ok(None) })
            }

            fn own<'a>(
                &'a self,
                _: &'a UserInfo,
                _: Request<Body>,
            ) -> BoxFuture<'a, Result<Response<Body>, Status>> {
                Box::pin(async { Err(Status::internal("nobody is asked")) })
            }

            fn call<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, Result<(), Status>> {
                Box::pin(async { Err(Status::internal("nobody can be called")) })
            }
        }

        let here: IpAddr = Ipv4Addr::LOCALHOST.into();
        for (mode, is_guarded, refused) in [
            (ClusterSyncMode::Push, true, None),
            (ClusterSyncMode::Push, false, Some("the hub's own")),
            (ClusterSyncMode::Pull, true, Some("the hub's own")),
            (ClusterSyncMode::Pull, false, Some("the hub's own")),
        ] {
            let Ok(By::Address(member)) = find(&One(mode, is_guarded), "m").await else {
                panic!("it has one")
            };
            assert_eq!(member.refuses()(here), refused, "{mode:?} {is_guarded}");
        }
    }

    #[test]
    fn a_tunnel_where_both_want_it_and_the_agent_is_heard() {
        for (given, wanted, ready, want) in [
            (None, None, "True", "--tunnel"),
            (Some("off"), None, "True", "--tunnel"),
            (Some("full"), None, "True", ""),
            (Some("read-only"), Some("full"), "False", ""),
            (Some("full"), Some("read-only"), "True", ""),
            (Some("full"), Some("off"), "True", "cluster.karmada.io/tunnel"),
            (Some("full"), Some("Full"), "True", "cluster.karmada.io/tunnel"),
            (Some("full"), None, "Unknown", "not been heard since 2026-01-02T03:04:05Z"),
        ] {
            let annotations = [(extension::TUNNEL, given), (extension::TUNNEL_WANTED, wanted)];
            let annotations: serde_json::Map<_, _> = annotations
                .into_iter()
                .filter_map(|(key, value)| Some((key.to_owned(), value?.into())))
                .collect();
            let cluster = serde_json::from_value(json!({
                "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
                "metadata": {"name": "m", "annotations": annotations}, "spec": {"syncMode": "Pull"},
                "status": {"conditions": [{
                    "type": "Ready", "status": ready, "reason": "r", "message": "",
                    "lastTransitionTime": "2026-01-02T03:04:05Z",
                }]},
            }));
            match tunnel("m", &cluster.unwrap()) {
                Ok(by) => {
                    assert!(matches!(by, By::Tunnel) && want.is_empty(), "{given:?} {wanted:?} {ready}")
                }
                Err(status) => assert!(
                    status.code() == 503 && !want.is_empty() && status.message.contains(want),
                    "{}",
                    status.message
                ),
            }
        }
    }

    #[test]
    fn secrets_of_others_are_not_sent() {
        let place = |namespace: &str, name: &str| LocalSecretReference {
            namespace: namespace.into(),
            name: name.into(),
        };
        let owned = |by: &str| json!({"metadata": {"ownerReferences": [{"kind": "Cluster", "name": by}]}});
        for (place, secret, own) in [
            (place("karmada-cluster", "m"), json!({}), true),
            (place("karmada-cluster", "m-impersonator"), json!({}), true),
            (place("karmada-cluster", "n-impersonator"), json!({}), false),
            (place("kube-system", "m-impersonator"), json!({}), false),
            (place("join", "any"), owned("m"), true),
            (place("join", "any"), owned("n"), false),
        ] {
            assert_eq!(its_own("m", &place, &secret).is_ok(), own, "{place:?}");
        }
        // What is m's is another's by name.
        let why = its_own("m-impersonator", &place("karmada-cluster", "m-impersonator"), &json!({}));
        assert!(why.unwrap_err().contains("belongs to the Cluster m"));
        assert!(its_own("m-impersonator", &place("join", "any"), &owned("m-impersonator")).is_err());
    }
}
