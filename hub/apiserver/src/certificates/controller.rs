//! Approves, signs and clears away.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, SystemTime},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use karmada_meta::{object, status::Status, time::Time};
use karmada_store::{Expect, Guard, Key, Scope, WatchEnd};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::{
    CLIENT_SIGNER, Certifier, Requested, STORAGE,
    policy::{self, Known, Requester, Verdict},
    usages,
};
use crate::{
    authn::{bootstrap, epochs},
    identity::UserInfo,
    options::DeleteOptions,
    pki::ClientSubject,
    registry::{Caller, Registry, Target, together::Change},
    storage::{self, Object},
};

/// Who writes, in managed fields.
const MANAGER: &str = "kube-controller-manager";
/// Somebody else may write in between; then it is looked at again, so often before it waits.
const TRIES: usize = 8;
/// What failed is tried again after this.
const AGAIN: Duration = Duration::from_secs(5);
/// How often it is looked at what is past its time.
const SWEEP: Duration = Duration::from_secs(60);

pub(super) struct Controller {
    registry: Arc<Registry>,
    certifier: Arc<Certifier>,
    user: UserInfo,
}

impl Controller {
    pub(super) fn new(registry: Arc<Registry>, certifier: Arc<Certifier>) -> Self {
        Self { registry, certifier, user: UserInfo::system("certificate-controller") }
    }

    /// Looks at all requests, then at those that change.
    pub(super) async fn run(&self) {
        let store = &self.registry.store;
        let mut sweep = Instant::now();
        loop {
            let snapshot = store.snapshot();
            let mut due: BTreeSet<Key> =
                snapshot.range(STORAGE, None, None).map(|request| request.key.clone()).collect();
            let from = snapshot.revision();
            drop(snapshot);
            let Ok(mut watch) = store.watch(Scope::resource(STORAGE), from) else { continue };
            loop {
                let mut failed = BTreeSet::new();
                for key in std::mem::take(&mut due) {
                    if !self.settle(&key).await {
                        failed.insert(key);
                    }
                }
                let again = Instant::now() + AGAIN;
                due = tokio::select! {
                    biased;
                    () = sleep_until(sweep) => {
                        self.sweep().await;
                        sweep = Instant::now() + SWEEP;
                        failed
                    }
                    () = sleep_until(again), if !failed.is_empty() => failed,
                    event = watch.next() => match event {
                        Ok(event) => {
                            failed.insert(event.entry.key.clone());
                            failed
                        }
                        Err(WatchEnd::Closed) => return,
                        Err(WatchEnd::Compacted(_)) => break,
                    },
                };
            }
        }
    }

    /// Does what a request needs; whether that is done.
    async fn settle(&self, key: &Key) -> bool {
        for _ in 0..TRIES {
            match self.look(key).await {
                Ok(true) => return true,
                Ok(false) => {}
                Err(status) => {
                    tracing::warn!(name = %key.name, %status, "cannot decide about a request for a certificate, and will try again");
                    return false;
                }
            }
        }
        false
    }

    /// One look at a request; whether nobody came between.
    async fn look(&self, key: &Key) -> Result<bool, Status> {
        let kinds = self.registry.kinds();
        let (Some(kind), Some(secrets), Some(live)) = (
            kinds.by_resource("certificates.k8s.io", "v1", "certificatesigningrequests"),
            kinds.by_resource("", "v1", "secrets"),
            self.registry.store.get(key),
        ) else {
            return Ok(true);
        };
        let mut request = self.registry.value_of(kind, &live);
        let has = |sort: &str| {
            let conditions = request.pointer("/status/conditions").and_then(Value::as_array);
            conditions.into_iter().flatten().any(|condition| condition["type"] == sort)
        };
        let is_done = live.header.deleting
            || request["spec"]["signerName"] != CLIENT_SIGNER
            || has("Denied")
            || has("Failed")
            || request
                .pointer("/status/certificate")
                .and_then(Value::as_str)
                .is_some_and(|text| !text.is_empty());
        if is_done {
            return Ok(true);
        }
        let approved = has("Approved");
        let spec = request["spec"].clone();
        let requested = Requested::read(spec["request"].as_str().unwrap_or_default());
        let cluster = requested.as_ref().ok().and_then(|requested| policy::agent_of(&spec, requested).ok());
        let record = cluster.map(|cluster| self.record(cluster)).transpose()?;
        let mut guards: Vec<Guard> = record.iter().map(|(guard, _)| guard.clone()).collect();
        let mut secret_change = None;
        let name = &*key.name;
        if !approved {
            let (secret, guard) = self.token(&spec);
            guards.extend(guard);
            let value = secret.as_ref().map(|secret| self.registry.value_of(secrets, secret));
            let known = Known {
                token: value.as_ref(),
                ended: record.as_ref().and_then(|(_, record)| record.ended_at()),
                asked: made(&request),
                now: self.registry.env.wall(),
            };
            match policy::decide(&spec, &requested, known) {
                Verdict::Leave(why) => {
                    tracing::debug!(
                        name,
                        why,
                        "a request for a certificate waits for somebody to approve it"
                    );
                    return Ok(true);
                }
                Verdict::Deny(reason, why) => {
                    tracing::warn!(name, reason, why, requester = %spec["username"], "a request for a certificate was denied");
                    add(&mut request, "Denied", reason, &why, &self.registry.now());
                    return self.put(kind, live, request, "approval", guards, None).await;
                }
                Verdict::Approve { why, token } => {
                    tracing::info!(name, why, "a certificate for an agent");
                    add(&mut request, "Approved", "AutoApproved", &why, &self.registry.now());
                    secret_change = token.zip(secret).map(|(new, live)| Change {
                        kind: secrets.clone(),
                        live,
                        new,
                        subresource: "",
                    });
                }
            }
        }
        let epoch = record.map_or(0, |(_, record)| record.epoch);
        match self.sign(&spec, &requested, cluster.map(|_| epoch)) {
            Ok(pem) => {
                let status = object::ensure_map(&mut request, "status");
                status.insert("certificate".to_owned(), STANDARD.encode(pem).into());
            }
            Err(why) => {
                tracing::warn!(name, why, "a request for a certificate was approved, and cannot be signed");
                add(&mut request, "Failed", "SignerValidationFailure", &why, &self.registry.now());
            }
        }
        self.put(kind, live, request, "status", guards, secret_change).await
    }

    async fn put(
        &self,
        kind: &Arc<crate::kinds::Kind>,
        live: Arc<Object>,
        new: Value,
        subresource: &'static str,
        guards: Vec<Guard>,
        more: Option<Change>,
    ) -> Result<bool, Status> {
        let change = Change { kind: kind.clone(), live, new, subresource };
        let changes = more.into_iter().chain([change]).collect();
        self.registry.change_together(&self.user, MANAGER, guards, changes).await
    }

    /// The epoch of a cluster's credentials, and that it must still be that.
    fn record(&self, cluster: &str) -> Result<(Guard, epochs::Record), Status> {
        let key = storage::key_of(SECRETS, epochs::NAMESPACE, &epochs::Record::name(cluster));
        let Some(secret) = self.registry.store.get(&key) else {
            return Ok((Guard::Holds(key, Expect::Absent), epochs::Record::default()));
        };
        let value: Value = serde_json::from_slice(&secret.value).map_err(Status::internal)?;
        let record = epochs::Record::read(&value).map_err(|why| {
            Status::internal(format!("the record of the credentials of cluster {cluster:?}: {why}"))
        })?;
        Ok((Guard::Holds(key, Expect::At(secret.revision)), record))
    }

    /// The Secret of the token by which something was asked, and that it must still be that.
    fn token(&self, spec: &Value) -> (Option<Arc<Object>>, Option<Guard>) {
        let Requester::Token(id) = Requester::of(spec) else { return (None, None) };
        let key = storage::key_of(SECRETS, bootstrap::NAMESPACE, &format!("{}{id}", bootstrap::PREFIX));
        let secret = self.registry.store.get(&key);
        let expect = secret.as_ref().map_or(Expect::Absent, |secret| Expect::At(secret.revision));
        (secret, Some(Guard::Holds(key, expect)))
    }

    /// The certificate; of an agent with the epoch of its credentials.
    fn sign(
        &self,
        spec: &Value,
        requested: &Result<Requested, String>,
        epoch: Option<u64>,
    ) -> Result<String, String> {
        let requested = requested.as_ref().map_err(|why| format!("spec.request: {why}"))?;
        policy::signable(spec, requested)?;
        let common_name = requested.common_names.first().map(String::as_str).unwrap_or_default();
        let organisation = requested.organisations.first().map(String::as_str);
        let subject = ClientSubject { common_name, organisation, epoch: epoch.unwrap_or(0) };
        let encipherment = usages(spec).contains("key encipherment");
        self.certifier.signer.sign_client(&subject, &requested.key, encipherment, policy::life(spec))
    }

    /// Deletes what has been kept for long enough.
    async fn sweep(&self) {
        let snapshot = self.registry.store.snapshot();
        let now = self.registry.env.wall();
        let past = snapshot.range(STORAGE, None, None).filter(|request| {
            let value: Value = serde_json::from_slice(&request.value).unwrap_or_default();
            policy::is_past(&value, made(&value), now)
        });
        let past: Vec<Arc<Object>> = past.cloned().collect();
        drop(snapshot);
        for request in past {
            delete(&self.registry, &self.user, &request, "certificates.k8s.io", "certificatesigningrequests")
                .await;
        }
    }
}

pub(super) const SECRETS: &str = "core/secrets";

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

/// When an object was made.
fn made(object: &Value) -> SystemTime {
    let at = object["metadata"]["creationTimestamp"].as_str().and_then(|at| at.parse::<Time>().ok());
    at.map_or(SystemTime::UNIX_EPOCH, |at| at.timestamp().into())
}

fn add(request: &mut Value, sort: &str, reason: &str, message: &str, now: &str) {
    let condition = json!({"type": sort, "status": "True", "reason": reason, "message": message,
        "lastUpdateTime": now, "lastTransitionTime": now});
    let status = object::ensure_map(request, "status");
    match status.get_mut("conditions").and_then(Value::as_array_mut) {
        Some(conditions) => conditions.push(condition),
        None => drop(status.insert("conditions".to_owned(), json!([condition]))),
    }
}
