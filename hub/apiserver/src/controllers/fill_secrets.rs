//! Tokens that stand in Secrets (`kubernetes.io/service-account-token`): what kube-controller-manager's controller
//! `serviceaccount-token` does.
//!
//! A Secret of that type names an account in an annotation. It is given the token, the authority and the namespace; when
//! there is no such account, or another one of its name, it goes, since its token would let nobody in.

use std::{collections::BTreeSet, pin::pin, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use karmada_meta::{object, status::Status};
use karmada_store::{Key, Scope, WatchEnd};
use serde_json::Value;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    authn::accounts::{ACCOUNTS, CurrentIssuer, SECRET_TYPE, SECRETS, ServiceAccounts},
    identity::UserInfo,
    options::{DeleteOptions, WriteOptions},
    registry::{Caller, Registry, Target, modify::Modify},
    storage::Object,
};

const NAME: &str = "kubernetes.io/service-account.name";
const UID: &str = "kubernetes.io/service-account.uid";
/// The controller's name in managed fields.
const AGENT: &str = "kube-controller-manager";
/// What failed is tried again after this.
const AGAIN: Duration = Duration::from_secs(5);

/// Starts the task. It does nothing until there is somebody to issue tokens.
pub(crate) fn start(
    registry: &Arc<Registry>,
    issuer: Arc<CurrentIssuer>,
    tasks: &TaskTracker,
    shutdown: &CancellationToken,
) {
    let filler =
        Filler { registry: registry.clone(), user: UserInfo::system("serviceaccount-token-controller") };
    let shutdown = shutdown.clone();
    tasks.spawn(async move {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = filler.run(&issuer) => {}
        }
    });
}

struct Filler {
    registry: Arc<Registry>,
    user: UserInfo,
}

/// What a look at a Secret comes to.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// There is nothing to do.
    Whole,
    /// It lacks something.
    Fill,
    /// It has no account.
    Delete,
}

impl Filler {
    async fn run(&self, issuer: &CurrentIssuer) {
        loop {
            let mut changed = pin!(issuer.changed.notified());
            // In line before the look, so that no change falls between.
            changed.as_mut().enable();
            let Some(accounts) = issuer.get() else {
                changed.await;
                continue;
            };
            tokio::select! {
                biased;
                () = changed => {}
                goes_on = self.follow(&accounts) => if !goes_on { return },
            }
        }
    }

    /// Brings all Secrets in order, then those that change, until some failed or were missed; whether to go on.
    async fn follow(&self, accounts: &ServiceAccounts) -> bool {
        let store = &self.registry.store;
        let snapshot = store.snapshot();
        let watch = |resource| store.watch(Scope::resource(resource), snapshot.revision());
        let (Ok(mut secrets), Ok(mut owners)) = (watch(SECRETS), watch(ACCOUNTS)) else { return true };
        let keys: Vec<Key> = snapshot
            .range(SECRETS, None, None)
            .filter(|secret| is_token(secret))
            .map(|secret| secret.key.clone())
            .collect();
        drop(snapshot);
        let mut failed = false;
        for key in &keys {
            failed |= !self.settle(accounts, key).await;
        }
        loop {
            let event = tokio::select! {
                biased;
                () = tokio::time::sleep(AGAIN), if failed => return true,
                event = secrets.next() => event.map(|event| vec![event.entry.key.clone()]),
                event = owners.next() => event.map(|event| {
                    // Of all that have changed by now: each namespace is looked at once.
                    let mut places = BTreeSet::from([event.entry.key.namespace.clone()]);
                    while let Ok(Some(more)) = owners.try_next() {
                        places.insert(more.entry.key.namespace.clone());
                    }
                    places.iter().flat_map(|namespace| self.secrets_in(namespace)).collect()
                }),
            };
            match event {
                Ok(keys) => {
                    for key in keys {
                        failed |= !self.settle(accounts, &key).await;
                    }
                }
                Err(WatchEnd::Closed) => return false,
                Err(WatchEnd::Compacted(_)) => return true,
            }
        }
    }

    /// The Secrets of tokens in a namespace.
    fn secrets_in(&self, namespace: &str) -> Vec<Key> {
        let snapshot = self.registry.store.snapshot();
        let secrets = snapshot.range(SECRETS, Some(namespace), None).filter(|secret| is_token(secret));
        secrets.map(|secret| secret.key.clone()).collect()
    }

    /// Does what a Secret needs; whether that is done.
    async fn settle(&self, accounts: &ServiceAccounts, key: &Key) -> bool {
        let Some(secret) = self.registry.store.get(key).filter(|s| is_token(s) && !s.header.deleting) else {
            return true;
        };
        let value: Value = serde_json::from_slice(&secret.value.get()).unwrap_or_default();
        let account = self.account_of(key, &value);
        let outcome = match judge(accounts, &value, account.as_deref()) {
            Verdict::Whole => Ok(()),
            Verdict::Fill => self.fill(accounts, key, &secret.header.uid).await,
            Verdict::Delete => {
                tracing::info!(namespace = %key.namespace, name = %key.name,
                    "a Secret for a service account's token goes: there is no such account");
                self.delete(key, &secret).await
            }
        };
        match outcome {
            Err(status) if !status.is_not_found() => {
                tracing::warn!(namespace = %key.namespace, name = %key.name, %status,
                    "cannot fill the Secret for a service account's token");
                // What is refused for what it is, such as one that is immutable, is refused again.
                matches!(status.code(), 400..=408 | 410..=428)
            }
            _ => true,
        }
    }

    /// The account that a Secret names, if it is still the same.
    fn account_of(&self, key: &Key, secret: &Value) -> Option<Arc<Object>> {
        let name = object::annotation(secret, NAME)?;
        let account = self.registry.store.get(&Key::new(ACCOUNTS, &*key.namespace, name))?;
        let uid = object::annotation(secret, UID).unwrap_or_default();
        (uid.is_empty() || *uid == *account.header.uid).then_some(account)
    }

    async fn fill(&self, accounts: &ServiceAccounts, key: &Key, uid: &str) -> Result<(), Status> {
        let kinds = self.registry.kinds();
        let Some(kind) = kinds.by_resource("", "v1", "secrets") else { return Ok(()) };
        let target = Target { kind, namespace: &key.namespace, name: &key.name, subresource: "" };
        let caller = Caller::internal(&self.user, AGENT);
        let now = self.registry.now();
        let mut produce = |live: Option<&Value>| {
            let live = live.ok_or_else(|| target.not_found())?;
            let account = self.account_of(key, live).ok_or_else(|| target.not_found())?;
            let mut new = live.clone();
            complete(accounts, key, &mut new, &account).map_err(Status::internal)?;
            Ok(crate::fields::update(kind, Some(live), &new, AGENT, "", &now))
        };
        let how = Modify { uid: Some(uid.to_owned()), ..Modify::default() };
        self.registry.modify(&caller, &target, &how, &WriteOptions::default(), &mut produce).await.map(drop)
    }

    async fn delete(&self, key: &Key, secret: &Object) -> Result<(), Status> {
        let kinds = self.registry.kinds();
        let Some(kind) = kinds.by_resource("", "v1", "secrets") else { return Ok(()) };
        let target = Target { kind, namespace: &key.namespace, name: &key.name, subresource: "" };
        let caller = Caller::internal(&self.user, AGENT);
        // As it was judged: whoever has changed it since is looked at again.
        let options = DeleteOptions {
            uid: Some(secret.header.uid.to_string()),
            resource_version: Some(secret.revision.to_string()),
            ..DeleteOptions::default()
        };
        match self.registry.delete(&caller, &target, &options).await {
            Err(status) if status.is_conflict() => Ok(()),
            outcome => outcome.map(drop),
        }
    }
}

/// Whether a Secret is for a token: by its type, the one field of Secrets that selectors may name.
fn is_token(secret: &Object) -> bool {
    secret.header.fields.get(0) == Some(SECRET_TYPE)
}

/// The bytes of a field of a Secret's data.
fn data(secret: &Value, field: &str) -> Vec<u8> {
    STANDARD.decode(secret["data"][field].as_str().unwrap_or_default()).unwrap_or_default()
}

fn judge(accounts: &ServiceAccounts, secret: &Value, account: Option<&Object>) -> Verdict {
    let Some(account) = account else { return Verdict::Delete };
    let whole = object::annotation(secret, UID) == Some(&*account.header.uid)
        && is_known(accounts, &data(secret, "token"))
        && data(secret, "namespace") == account.key.namespace.as_bytes()
        && data(secret, "ca.crt") == accounts.ca_pem().as_bytes();
    if whole { Verdict::Whole } else { Verdict::Fill }
}

/// Whether a token stands there, and was not signed by a key that has been let go of.
fn is_known(accounts: &ServiceAccounts, token: &[u8]) -> bool {
    let lost = ServiceAccounts::key_of(token).is_some_and(|key| !accounts.key_ids().contains(&key));
    !token.is_empty() && !lost
}

/// Puts into a Secret what it lacks. A token that stands there is left, unless its key has been let go of.
fn complete(
    accounts: &ServiceAccounts,
    key: &Key,
    secret: &mut Value,
    account: &Object,
) -> Result<(), String> {
    let token = data(secret, "token");
    object::set_annotation(secret, UID, &*account.header.uid);
    let filled = object::ensure_map(secret, "data");
    if !is_known(accounts, &token) {
        let token = accounts.issue_secret(&key.namespace, &key.name, account)?;
        filled.insert("token".to_owned(), STANDARD.encode(token).into());
    }
    filled.insert("namespace".to_owned(), STANDARD.encode(&*key.namespace).into());
    filled.insert("ca.crt".to_owned(), STANDARD.encode(accounts.ca_pem()).into());
    Ok(())
}
