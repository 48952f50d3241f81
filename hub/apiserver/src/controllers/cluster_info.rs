//! The ConfigMap by which a machine that knows nothing but a bootstrap token finds this server, and the end of tokens.
//!
//! `kube-public/cluster-info` has a kubeconfig with the server's address and authority, and for each token that signs a
//! detached JWS over it: only who knows the token could have made that. Anonymous may read it.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use karmada_meta::status::Status;
use karmada_store::{Key, Revision, Scope, Snapshot, WatchEnd};
use parking_lot::Mutex;
use ring::hmac;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use crate::{
    authn::{
        CLUSTER_INFO,
        bootstrap::{self, SECRETS},
    },
    certificates::Certifier,
    identity::UserInfo,
    options::{DeleteOptions, WriteOptions},
    registry::{Caller, Registry, Target, modify::Modify},
    storage::{self, Header, Object},
};

const MANAGER: &str = "kube-controller-manager";
const CONFIG_MAPS: &str = "core/configmaps";
const KUBECONFIG: &str = "kubeconfig";
/// What the field with a token's signature begins with; the token's id follows.
const SIGNATURE: &str = "jws-kubeconfig-";
/// So many tokens sign at once, the newest: anybody may ask for the ConfigMap, and each takes 112 bytes of it. A machine
/// whose token does not sign cannot join.
const MOST: usize = 4_096;
/// For so long changes are gathered, once the first has been written: a fleet that joins changes its tokens one by one.
const GATHER: Duration = Duration::from_millis(250);
/// How often it is looked at whose time is up, and what failed is tried again.
const SWEEP: Duration = Duration::from_secs(10);

/// A signature over a text, whose text is left out.
fn detached(id: &str, secret: &str, text: &str) -> String {
    let header = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"HS256","kid":"{id}"}}"#));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signed = hmac::sign(&key, format!("{header}.{}", URL_SAFE_NO_PAD.encode(text)).as_bytes());
    format!("{header}..{}", URL_SAFE_NO_PAD.encode(signed))
}

/// The kubeconfig: where the server is and who certifies it, and nobody's credential.
fn kubeconfig(server: &str, ca_pem: &str) -> String {
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
    tokens: Mutex<Tokens>,
}

/// What was read of a token.
#[derive(Debug)]
struct Token {
    revision: Revision,
    /// The revision at which it was made.
    made: Revision,
    /// When it is to be deleted.
    ends: Option<SystemTime>,
    /// Its signature, and until when it counts.
    signature: Option<(String, SystemTime)>,
}

/// All tokens, by the names of their Secrets. Only what has changed is read again.
#[derive(Debug, Default)]
struct Tokens {
    tokens: BTreeMap<Arc<str>, Token>,
    /// What they have signed.
    text: String,
    /// There were too many, which was said.
    crowded: bool,
    /// How many Secrets were read.
    #[cfg(test)]
    read: usize,
}

impl Tokens {
    /// Reads what has changed.
    fn update(&mut self, now: &Snapshot<Header>, text: &str) {
        let secrets = now.range(SECRETS, Some(bootstrap::NAMESPACE), None);
        let mut before = std::mem::take(&mut self.tokens);
        if self.text != text {
            before.clear();
            text.clone_into(&mut self.text);
        }
        for secret in secrets.filter(|secret| secret.key.name.starts_with(bootstrap::PREFIX)) {
            let known = before.remove(&secret.key.name).filter(|known| known.revision == secret.revision);
            let token = known.unwrap_or_else(|| {
                #[cfg(test)]
                {
                    self.read += 1;
                }
                let id = secret.key.name.strip_prefix(bootstrap::PREFIX).unwrap_or_default();
                let value: Value = serde_json::from_slice(&secret.value.get()).unwrap_or_default();
                let signature = bootstrap::signing(id, &value);
                Token {
                    revision: secret.revision,
                    made: secret.create_revision,
                    ends: bootstrap::ends_at(&value),
                    signature: signature.map(|signing| (detached(id, &signing.key, text), signing.until)),
                }
            });
            self.tokens.insert(secret.key.name.clone(), token);
        }
    }

    /// The signatures that count, by the ids of tokens: of the newest, if there are more than so many.
    fn signatures(&mut self, now: SystemTime, most: usize) -> BTreeMap<&str, &str> {
        let signs = self.tokens.iter().filter_map(|(name, token)| {
            let (signature, _) = token.signature.as_ref().filter(|(_, until)| now < *until)?;
            Some((token.made, name.strip_prefix(bootstrap::PREFIX)?, signature.as_str()))
        });
        let mut signs: Vec<_> = signs.collect();
        let crowded = signs.len() > most;
        if crowded && !std::mem::replace(&mut self.crowded, crowded) {
            tracing::warn!(
                "more than {most} bootstrap tokens could sign what machines read before they join: only the newest do, \
                 and machines with older ones cannot join; delete some, or let them join in turns"
            );
        }
        self.crowded = crowded;
        signs.sort_unstable_by_key(|(made, ..)| std::cmp::Reverse(*made));
        signs.into_iter().take(most).map(|(_, id, signature)| (id, signature)).collect()
    }

    /// The names of Secrets whose time is up.
    fn past(&self, now: SystemTime) -> Vec<Arc<str>> {
        let past = self.tokens.iter().filter(|(_, token)| token.ends.is_some_and(|ends| now >= ends));
        past.map(|(name, _)| name.clone()).collect()
    }
}

impl Publisher {
    pub(super) fn new(registry: Arc<Registry>, certifier: Arc<Certifier>) -> Self {
        Self { registry, certifier, user: UserInfo::system("bootstrap-signer"), tokens: Mutex::default() }
    }

    /// Keeps it as the tokens are.
    pub(super) async fn run(&self) {
        let store = &self.registry.store;
        loop {
            let from = store.revision();
            let watch = |resource| store.watch(Scope::resource(resource), from);
            let (Ok(mut secrets), Ok(mut maps)) = (watch(SECRETS), watch(CONFIG_MAPS)) else { continue };
            let mut sweep = Instant::now();
            // When it is written next, if something has changed, and when it was written last.
            let (mut due, mut written) = (Some(sweep), sweep);
            loop {
                let next = due.map_or(sweep, |due| due.min(sweep));
                let event = tokio::select! {
                    biased;
                    () = sleep_until(next) => None,
                    event = secrets.next() => Some(event),
                    event = maps.next() => Some(event),
                };
                match event {
                    None => {
                        self.publish().await;
                        (due, written) = (None, Instant::now());
                        if written >= sweep {
                            self.clear().await;
                            sweep = Instant::now() + SWEEP;
                        }
                    }
                    Some(Ok(event)) if concerns(&event.entry.key) => {
                        due = due.or_else(|| Some(Instant::now().max(written + GATHER)));
                    }
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
        let Certifier { signer, server, .. } = &*self.certifier;
        let text = kubeconfig(server, signer.ca_pem());
        let mut tokens = self.tokens.lock();
        tokens.update(&self.registry.store.snapshot(), &text);
        let signatures = tokens.signatures(self.registry.env.wall(), MOST).into_iter();
        let mut wanted: BTreeMap<String, String> =
            signatures.map(|(id, signature)| (format!("{SIGNATURE}{id}"), signature.to_owned())).collect();
        drop(tokens);
        wanted.insert(KUBECONFIG.to_owned(), text);
        wanted
    }

    /// Deletes tokens whose time is up.
    async fn clear(&self) {
        let past = self.tokens.lock().past(self.registry.env.wall());
        for name in past {
            let key = Key::new(SECRETS, bootstrap::NAMESPACE, &*name);
            let Some(secret) = self.registry.store.get(&key) else { continue };
            // As it is now: it may have been given more time.
            let value: Value = serde_json::from_slice(&secret.value.get()).unwrap_or_default();
            if bootstrap::ends_at(&value).is_some_and(|ends| self.registry.env.wall() >= ends) {
                tracing::info!(secret = %name, "a bootstrap token goes, whose time is up");
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

/// Deletes an object that is as it was looked at.
pub(super) async fn delete(
    registry: &Registry,
    user: &UserInfo,
    object: &Object,
    group: &str,
    resource: &str,
) {
    let kinds = registry.kinds();
    let Some(kind) = kinds.by_resource(group, "v1", resource) else { return };
    let caller = Caller::internal(user, MANAGER);
    let target = Target { kind, namespace: &object.key.namespace, name: &object.key.name, subresource: "" };
    let options =
        DeleteOptions { resource_version: Some(object.revision.to_string()), ..DeleteOptions::default() };
    match registry.delete(&caller, &target, &options).await {
        Err(status) if !status.is_not_found() && !status.is_conflict() => {
            tracing::warn!(key = %object.key, %status, "cannot delete what is past its time, and will try again");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use karmada_store::{Expect, Op, engine::memory::Memory};

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    /// By the letter of RFC 7515, made by hand with another implementation.
    #[test]
    fn a_detached_signature() {
        assert_eq!(detached("abcdef", "0123456789abcdef", "text"), DETACHED);
    }

    const DETACHED: &str =
        "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..v28Ea_KqmHOtFWksJ_4tbV6AFRNzMkrRUG_jsuLJz-4";

    #[tokio::test(start_paused = true)]
    async fn only_tokens_that_have_changed_are_read_and_the_newest_sign() {
        let env = karmada_env::Env::seeded(karmada_env::ManualClock::new(at(0)), 1);
        let store = crate::open_store(Memory::new(), &env).unwrap();
        let (mut tokens, total) = (Tokens::default(), 1_500);
        let put = async |n: usize, left: u32| {
            let id = format!("{n:06}");
            let data = [
                ("token-id", &*id),
                ("token-secret", "0123456789abcdef"),
                ("usage-bootstrap-authentication", "true"),
                ("usage-bootstrap-signing", "true"),
                ("auth-extra-groups", ""),
                ("expiration", "1970-01-01T01:00:00Z"),
            ];
            let data: BTreeMap<_, _> = data.map(|(field, text)| (field, STANDARD.encode(text))).into();
            let annotations = json!({bootstrap::USES_LEFT: left.to_string()});
            let secret = json!({"metadata": {"name": format!("bootstrap-token-{id}"), "annotations": annotations},
                "type": bootstrap::TYPE, "data": data});
            let key = Key::new(SECRETS, "kube-system", format!("bootstrap-token-{id}"));
            store.commit(vec![Op::put(key, Expect::Any, secret.to_string())]).await.unwrap();
        };
        for n in 0..total {
            put(n, 2).await;
            if n % 100 == 0 {
                tokens.update(&store.snapshot(), "text");
            }
        }
        tokens.update(&store.snapshot(), "text");
        let ids: Vec<String> = tokens.signatures(at(1), 1024).into_keys().map(str::to_owned).collect();
        assert_eq!((ids.len(), &*ids[0], &*ids[1023]), (1024, "000476", "001499"));
        assert_eq!(tokens.read, total, "each once");
        // One is used, another used up; the older ones come into their places.
        put(1000, 1).await;
        put(1001, 0).await;
        tokens.update(&store.snapshot(), "text");
        let ids: Vec<String> = tokens.signatures(at(1), 1024).into_keys().map(str::to_owned).collect();
        assert_eq!((ids.len(), &*ids[0]), (1024, "000475"));
        assert!(ids.contains(&"001000".to_owned()) && !ids.contains(&"001001".to_owned()));
        assert_eq!(tokens.read, total + 2);
        assert!(tokens.signatures(at(3600), 1024).is_empty(), "their time is up");
    }
}
