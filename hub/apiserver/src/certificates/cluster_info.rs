//! The ConfigMap by which a machine that knows nothing but a bootstrap token finds this server, and the end of tokens.
//!
//! `kube-public/cluster-info` has a kubeconfig with the server's address and authority, and for each token that signs a
//! detached JWS over it: only who knows the token could have made that. Anonymous may read it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use karmada_meta::status::Status;
use karmada_store::{Key, Scope, WatchEnd};
use ring::hmac;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::{
    Certifier,
    controller::{SECRETS, delete},
};
use crate::{
    authn::{CLUSTER_INFO, bootstrap},
    identity::UserInfo,
    options::WriteOptions,
    registry::{Caller, Registry, Target, modify::Modify},
    storage::{self, Object},
};

const MANAGER: &str = "kube-controller-manager";
const CONFIG_MAPS: &str = "core/configmaps";
const KUBECONFIG: &str = "kubeconfig";
/// What the field with a token's signature begins with; the token's id follows.
const SIGNATURE: &str = "jws-kubeconfig-";
/// So many tokens sign at once: what a ConfigMap has room for.
const MOST: usize = 4_096;
/// How often it is looked at whose time is up, and what failed is tried again.
const SWEEP: Duration = Duration::from_secs(10);

/// A signature over a text, whose text is left out.
pub(super) fn detached(id: &str, secret: &str, text: &str) -> String {
    let header = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"HS256","kid":"{id}"}}"#));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signed = hmac::sign(&key, format!("{header}.{}", URL_SAFE_NO_PAD.encode(text)).as_bytes());
    format!("{header}..{}", URL_SAFE_NO_PAD.encode(signed))
}

/// The kubeconfig: where the server is and who certifies it, and nobody's credential.
pub(super) fn kubeconfig(server: &str, ca_pem: &str) -> String {
    // JSON strings are YAML's, too.
    format!(
        "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {}\n    server: {}\n  name: \"\"\ncontexts: null\ncurrent-context: \"\"\nkind: Config\npreferences: {{}}\nusers: null\n",
        STANDARD.encode(ca_pem),
        Value::from(server)
    )
}

pub(super) struct Publisher {
    registry: Arc<Registry>,
    certifier: Arc<Certifier>,
    user: UserInfo,
}

impl Publisher {
    pub(super) fn new(registry: Arc<Registry>, certifier: Arc<Certifier>) -> Self {
        Self { registry, certifier, user: UserInfo::system("bootstrap-signer") }
    }

    /// Keeps it as the tokens are.
    pub(super) async fn run(&self) {
        let store = &self.registry.store;
        loop {
            let from = store.revision();
            let watch = |resource| store.watch(Scope::resource(resource), from);
            let (Ok(mut secrets), Ok(mut maps)) = (watch(SECRETS), watch(CONFIG_MAPS)) else { continue };
            let mut sweep = Instant::now();
            loop {
                let event = tokio::select! {
                    biased;
                    () = sleep_until(sweep) => None,
                    event = secrets.next() => Some(event),
                    event = maps.next() => Some(event),
                };
                match event {
                    None => {
                        self.clear().await;
                        self.publish().await;
                        sweep = Instant::now() + SWEEP;
                    }
                    Some(Ok(event)) if concerns(&event.entry.key) => self.publish().await,
                    Some(Ok(_)) => {}
                    Some(Err(WatchEnd::Closed)) => return,
                    Some(Err(WatchEnd::Compacted(_))) => break,
                }
            }
        }
    }

    /// Writes the ConfigMap if it is not as it should be.
    async fn publish(&self) {
        if let Err(status) = self.write().await {
            tracing::warn!(%status, "cannot write the ConfigMap {}/{}, and will try again", CLUSTER_INFO.namespace, CLUSTER_INFO.name);
        }
    }

    async fn write(&self) -> Result<(), Status> {
        let wanted = self.wanted();
        let kinds = self.registry.kinds();
        let Some(kind) = kinds.by_resource("", "v1", "configmaps") else { return Ok(()) };
        let (namespace, name) = (CLUSTER_INFO.namespace, CLUSTER_INFO.name);
        let there = self.registry.store.get(&storage::key_of(CONFIG_MAPS, namespace, name));
        let there = there.map(|map| self.registry.value_of(kind, &map));
        if there.as_ref().is_some_and(|there| put(&mut there.clone(), &wanted) == Some(false)) {
            return Ok(());
        }
        let target = Target { kind, namespace, name, subresource: "" };
        let caller = Caller::internal(&self.user, MANAGER);
        let now = self.registry.now();
        let mut produce = |live: Option<&Value>| {
            let mut new = live.cloned().unwrap_or_else(|| {
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}})
            });
            put(&mut new, &wanted);
            Ok(crate::fields::update(kind, live, &new, MANAGER, "", &now))
        };
        let how = Modify { may_create: true, ..Modify::default() };
        self.registry.modify(&caller, &target, &how, &WriteOptions::default(), &mut produce).await.map(drop)
    }

    /// What it should have.
    fn wanted(&self) -> BTreeMap<String, String> {
        let Certifier { signer, server } = &*self.certifier;
        let text = kubeconfig(server, signer.ca_pem());
        let now = self.registry.env.wall();
        let mut wanted = BTreeMap::new();
        for secret in self.tokens() {
            let id = secret.key.name.strip_prefix(bootstrap::PREFIX).unwrap_or_default();
            let value: Value = serde_json::from_slice(&secret.value).unwrap_or_default();
            let Some(key) = bootstrap::signing_secret(id, &value, now) else { continue };
            if wanted.len() == MOST {
                tracing::warn!("more than {MOST} bootstrap tokens sign: delete some, the last ones do not");
                break;
            }
            wanted.insert(format!("{SIGNATURE}{id}"), detached(id, &key, &text));
        }
        wanted.insert(KUBECONFIG.to_owned(), text);
        wanted
    }

    fn tokens(&self) -> Vec<Arc<Object>> {
        let snapshot = self.registry.store.snapshot();
        let secrets = snapshot.range(SECRETS, Some(bootstrap::NAMESPACE), None);
        secrets.filter(|secret| secret.key.name.starts_with(bootstrap::PREFIX)).cloned().collect()
    }

    /// Deletes tokens whose time is up.
    async fn clear(&self) {
        let now = self.registry.env.wall();
        for secret in self.tokens() {
            let value: Value = serde_json::from_slice(&secret.value).unwrap_or_default();
            if bootstrap::has_ended(&value, now) {
                tracing::info!(secret = %secret.key.name, "a bootstrap token goes, whose time is up");
                delete(&self.registry, &self.user, &secret, "", "secrets").await;
            }
        }
    }
}

/// Makes the data of a ConfigMap what is wanted, but for what somebody else has put there; whether that changed anything.
fn put(map: &mut Value, wanted: &BTreeMap<String, String>) -> Option<bool> {
    let data = karmada_meta::object::ensure_map(map, "data");
    let before = data.clone();
    data.retain(|field, _| !field.starts_with(SIGNATURE));
    data.extend(wanted.iter().map(|(field, text)| (field.clone(), Value::from(text.as_str()))));
    Some(before != *data)
}

fn concerns(key: &Key) -> bool {
    match &*key.resource {
        SECRETS => *key.namespace == *bootstrap::NAMESPACE && key.name.starts_with(bootstrap::PREFIX),
        _ => *key.namespace == *CLUSTER_INFO.namespace && *key.name == *CLUSTER_INFO.name,
    }
}
