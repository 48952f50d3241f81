//! POST of JSON to a service of the user's that is no Kubernetes API: bounded in time and size, and not asked again for
//! a while after it could not be reached, so that a service that is away costs one wait and not one per object.

use std::{collections::BTreeMap, fmt, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use karmada_env::Env;
use parking_lot::Mutex;
use reqwest::{Client, StatusCode, Url, header, redirect};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use rustls_platform_verifier::BuilderVerifierExt;
use serde_json::Value;

use crate::{
    backoff::{Backoff, Policy},
    names::Names,
    rest::chain,
};

/// How long a service that could not be reached is left alone.
const LEFT_ALONE: Policy = Policy::new(Duration::from_secs(1), Duration::from_secs(30));

/// The largest answer that is read.
const ANSWER_LIMIT: usize = 4 << 20;

/// So many clients are kept: one per authority and address.
const CLIENTS: usize = 64;

/// Names that are looked up at a time.
const LOOKUPS: usize = 2;

/// Where to.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// `https://host:port/path`. The certificate is checked against its host.
    pub url: &'a str,
    /// Dialled instead of what the host's name resolves to.
    pub address: Option<SocketAddr>,
    /// PEM of the authorities for its certificate; the system's if there are none.
    pub authorities: Option<&'a [u8]>,
    /// How long it may take, all in all.
    pub timeout: Duration,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// Nobody answered, or only somebody in between.
    #[error("{0}")]
    Unreachable(String),
    /// The target is not one, or the answer is not.
    #[error("{0}")]
    Failed(String),
}

/// Which client serves a target.
type Key = (Option<Vec<u8>>, String, Option<SocketAddr>);

struct Away {
    backoff: Backoff,
    /// [`Env::now`].
    until: Duration,
    why: String,
}

/// Posts to services. One for a process, so that connections are kept.
pub struct WebhookClient {
    env: Env,
    names: Names,
    clients: Mutex<BTreeMap<Key, Client>>,
    away: Mutex<BTreeMap<String, Away>>,
}

impl fmt::Debug for WebhookClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookClient").finish_non_exhaustive()
    }
}

impl WebhookClient {
    /// A client without connections.
    pub fn new(env: Env) -> Self {
        let names = Names::system(LOOKUPS, CLIENTS);
        Self { env, names, clients: Mutex::default(), away: Mutex::default() }
    }

    /// Sends an object and answers with the one that comes back.
    ///
    /// # Errors
    /// See [`PostError`]. One that was unreachable just now is not asked.
    pub async fn post(&self, target: &Target<'_>, body: &Value) -> Result<Value, PostError> {
        if let Some(away) = self.away.lock().get(target.url)
            && away.until > self.env.now()
        {
            return Err(PostError::Unreachable(format!("{} (it is not asked again at once)", away.why)));
        }
        let answer = match serde_json::to_vec(body) {
            Ok(body) => self.ask(target, body.into()).await,
            Err(error) => Err(PostError::Failed(format!("the question is no JSON: {error}"))),
        };
        let answer = answer.and_then(|answer| {
            serde_json::from_slice(&answer)
                .map_err(|error| PostError::Failed(format!("its answer is not JSON: {error}")))
        });
        let mut away = self.away.lock();
        if let Err(PostError::Unreachable(why)) = &answer {
            let away = away.entry(target.url.to_owned()).or_insert_with(|| Away {
                backoff: Backoff::new(LEFT_ALONE),
                until: Duration::ZERO,
                why: String::new(),
            });
            away.until = self.env.now() + away.backoff.next(&self.env);
            away.why.clone_from(why);
        } else {
            away.remove(target.url);
        }
        answer
    }

    /// Sends JSON and answers with what comes back of at most 4 MiB, also to a service that could not be reached just now.
    /// Neither is looked at.
    ///
    /// # Errors
    /// See [`PostError`].
    pub async fn ask(&self, target: &Target<'_>, body: Bytes) -> Result<Bytes, PostError> {
        let mut url = Url::parse(target.url)
            .map_err(|error| PostError::Failed(format!("{:?} is not a URL: {error}", target.url)))?;
        if url.scheme() != "https" {
            return Err(PostError::Failed(format!("{url} does not begin with https://")));
        }
        // As Kubernetes' clients tell a service how long they wait.
        url.query_pairs_mut().append_pair("timeout", &format!("{}s", target.timeout.as_secs().max(1)));
        let client = self.client(&url, target)?;
        let exchange = async {
            let unreachable = |error: &reqwest::Error| PostError::Unreachable(chain(error));
            let sent =
                client.post(url).header(header::CONTENT_TYPE, "application/json").body(body).send().await;
            let mut answer = sent.map_err(|error| unreachable(&error))?;
            let status = answer.status();
            let mut text = Vec::new();
            while let Some(chunk) = answer.chunk().await.map_err(|error| unreachable(&error))? {
                text.extend_from_slice(&chunk);
                if text.len() > ANSWER_LIMIT {
                    return Err(PostError::Failed(format!("its answer is larger than {ANSWER_LIMIT} bytes")));
                }
            }
            if status.is_success() {
                return Ok(text.into());
            }
            let start: String = String::from_utf8_lossy(&text).chars().take(200).collect();
            let why = format!("it answered {status}: {}", start.trim());
            let between =
                [StatusCode::BAD_GATEWAY, StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT];
            Err(if between.contains(&status) { PostError::Unreachable(why) } else { PostError::Failed(why) })
        };
        match tokio::time::timeout(target.timeout, exchange).await {
            Ok(answer) => answer,
            Err(_) => {
                Err(PostError::Unreachable(format!("no answer within {}s", target.timeout.as_secs_f64())))
            }
        }
    }

    fn client(&self, url: &Url, target: &Target<'_>) -> Result<Client, PostError> {
        let host = url.host_str().unwrap_or_default().to_owned();
        let key = (target.authorities.map(<[u8]>::to_vec), host, target.address);
        let mut clients = self.clients.lock();
        if let Some(client) = clients.get(&key) {
            return Ok(client.clone());
        }
        let tls = tls(target.authorities).map_err(PostError::Failed)?;
        let mut builder = Client::builder()
            .tls_backend_preconfigured(tls)
            .dns_resolver(self.names.clone())
            .redirect(redirect::Policy::none())
            .pool_idle_timeout(Duration::from_secs(60));
        if let Some(address) = target.address {
            builder = builder.no_proxy().resolve_to_addrs(&key.1, &[address]);
        }
        let client = builder.build().map_err(|error| PostError::Failed(chain(&error)))?;
        if clients.len() >= CLIENTS {
            clients.clear();
        }
        clients.insert(key, client.clone());
        Ok(client)
    }
}

pub(crate) fn tls(authorities: Option<&[u8]>) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let Some(pem) = authorities else {
        let builder = builder.with_platform_verifier().map_err(|error| error.to_string())?;
        return Ok(builder.with_no_client_auth());
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| format!("caBundle: {error}"))?;
        roots.add(certificate).map_err(|error| format!("caBundle: {error}"))?;
    }
    if roots.is_empty() {
        return Err("caBundle holds no certificate".to_owned());
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use karmada_env::ManualClock;
    use serde_json::json;

    use super::*;

    fn target(url: &str) -> Target<'_> {
        Target { url, address: None, authorities: None, timeout: Duration::from_secs(60) }
    }

    #[tokio::test]
    async fn what_is_no_target_is_named() {
        let client = WebhookClient::new(Env::system());
        for (url, authorities, expected) in [
            ("nonsense", None, "\"nonsense\" is not a URL: relative URL without a base"),
            ("http://a.example/x", None, "http://a.example/x does not begin with https://"),
            ("https://a.example", Some(b"no".as_slice()), "caBundle holds no certificate"),
        ] {
            let target = Target { authorities, ..target(url) };
            let error = client.post(&target, &json!({})).await.unwrap_err();
            assert_eq!(error, PostError::Failed(expected.to_owned()));
        }
    }

    #[tokio::test]
    async fn what_cannot_be_reached_is_left_alone_for_a_while() {
        // A port that nobody listens at: bound and closed again.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let url = format!("https://127.0.0.1:{port}/x");
        // The clock stands still: however long a busy machine takes, the while is not over.
        let clock = ManualClock::new(std::time::UNIX_EPOCH);
        let client = WebhookClient::new(Env::seeded(clock, 1));
        let first = client.post(&target(&url), &json!({})).await.unwrap_err();
        assert!(matches!(&first, PostError::Unreachable(why) if !why.contains("not asked again")), "{first}");
        let second = client.post(&target(&url), &json!({})).await.unwrap_err();
        assert!(
            matches!(&second, PostError::Unreachable(why) if why.contains("not asked again")),
            "{second}"
        );
    }
}
