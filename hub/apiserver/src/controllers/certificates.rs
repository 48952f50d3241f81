//! CertificateSigningRequests: approves, signs and clears away, as [`certificates`](crate::certificates) says.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::future::join_all;
use karmada_meta::{names::joining_name_errors, object, status::Status, time::Time};
use karmada_store::{Expect, Guard, Key, Scope, WatchEnd};
use serde_json::Value;
use tokio::{
    task::yield_now,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::cluster_info::{Publisher, delete};
use crate::{
    authn::{
        bootstrap::{self, BootstrapTokens, SECRETS, USES_LEFT},
        epochs,
    },
    authz::pushed::is_pushed,
    certificates::{
        Certifier, CurrentCertifier,
        policy::{self, Known, Requester, Verdict, Whose, short},
        requested::{Requested, STORAGE, add, has, is_open, usages},
    },
    identity::UserInfo,
    pki::ClientSubject,
    registry::{Registry, together::Change},
    storage::{self, Object},
};

/// Who writes, in managed fields.
const MANAGER: &str = "kube-controller-manager";
/// Somebody else may write in between; then it is looked at again, so often before it waits.
const TRIES: usize = 8;
/// What failed is tried again after this, then after twice as long, so many times: five minutes at most.
const AGAIN: Duration = Duration::from_secs(5);
const MOST_DOUBLED: u32 = 6;
/// So many are deleted at once.
const BATCH: usize = 64;
/// How often it is looked at what is past its time.
const SWEEP: Duration = Duration::from_secs(60);

/// Starts the controllers. They do nothing until there is a certifier.
pub(crate) fn start(
    registry: &Arc<Registry>,
    current: &Arc<CurrentCertifier>,
    bootstrap: &Arc<BootstrapTokens>,
    tasks: &TaskTracker,
    shutdown: &CancellationToken,
) {
    let tokens_known = bootstrap.clone();
    let (registry, current, shutdown) = (registry.clone(), current.clone(), shutdown.clone());
    tasks.spawn(async move {
        let working = async {
            loop {
                let mut changed = std::pin::pin!(current.changed.notified());
                // In line before the look, so that no change falls between.
                changed.as_mut().enable();
                let Some(certifier) = current.current.load_full() else {
                    changed.await;
                    continue;
                };
                let requests = Controller::new(registry.clone(), tokens_known.clone(), certifier.clone());
                let tokens = Publisher::new(registry.clone(), certifier);
                tokio::select! {
                    biased;
                    // What they have begun is whole or did not happen, and the next ones look at everything.
                    () = changed => {}
                    _ = async { tokio::join!(requests.run(), requests.clean(), tokens.run()) } => return,
                }
            }
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = working => {}
        }
    });
}

struct Controller {
    registry: Arc<Registry>,
    /// As new as the store whenever a request is looked at: who changes one waits for that.
    tokens: Arc<BootstrapTokens>,
    certifier: Arc<Certifier>,
    user: UserInfo,
}

impl Controller {
    fn new(registry: Arc<Registry>, tokens: Arc<BootstrapTokens>, certifier: Arc<Certifier>) -> Self {
        Self { registry, tokens, certifier, user: UserInfo::system("certificate-controller") }
    }

    /// Looks at all requests, then at those that change.
    async fn run(&self) {
        let store = &self.registry.store;
        loop {
            let snapshot = store.snapshot();
            let all: Vec<Key> =
                snapshot.range(STORAGE, None, None).map(|request| request.key.clone()).collect();
            let from = snapshot.revision();
            drop(snapshot);
            let Ok(mut watch) = store.watch(Scope::resource(STORAGE), from) else { continue };
            let mut failed = Failed::default();
            for key in all {
                failed.note(&key, self.settle(&key).await);
            }
            loop {
                let next = failed.next();
                tokio::select! {
                    biased;
                    () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                        for key in failed.due(Instant::now()) {
                            failed.note(&key, self.settle(&key).await);
                        }
                    }
                    event = watch.next() => match event {
                        Ok(event) => failed.note(&event.entry.key, self.settle(&event.entry.key).await),
                        Err(WatchEnd::Closed) => return,
                        Err(WatchEnd::Compacted(_)) => break,
                    },
                }
            }
        }
    }

    /// Deletes what has been kept for long enough, beside those who are signing.
    async fn clean(&self) {
        loop {
            self.sweep().await;
            sleep(SWEEP).await;
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
        if live.header.deleting || !is_open(&request) {
            return Ok(true);
        }
        let approved = has(&request, "Approved");
        if !approved && !self.certifier.approves {
            return Ok(true);
        }
        let spec = request["spec"].clone();
        let requested = Requested::read(spec["request"].as_str().unwrap_or_default());
        let name = &*key.name;
        let whose = requested.as_ref().ok().and_then(|requested| policy::whose(name, &spec, requested).ok());
        let cluster = whose.map(Whose::cluster);
        let record = cluster.map(|cluster| self.record(cluster)).transpose()?;
        let mut guards: Vec<Guard> = record.iter().map(|record| record.guard.clone()).collect();
        let (mut used, mut changes) = (None, Vec::new());
        if !approved {
            let (secret, guard) = self.token(&spec);
            guards.extend(guard);
            let value = secret.as_ref().map(|secret| self.registry.value_of(secrets, secret));
            let registered = secret.as_ref().zip(cluster);
            let taken = match (&secret, &value, cluster, &record) {
                (Some(secret), Some(value), Some(cluster), Some(record))
                    if bootstrap::cluster(value).is_none() =>
                {
                    let taken = self.taken(secret, cluster, record);
                    if taken.is_none() {
                        // That is to hold until it is written whose the token is.
                        guards.push(Guard::Holds(Key::new(CLUSTERS, "", cluster), Expect::Absent));
                    }
                    taken
                }
                _ => None,
            };
            let known = Known {
                name,
                token: value.as_ref(),
                epoch: record.as_ref().map_or(0, |record| record.record.epoch),
                leaving: cluster.is_some_and(|cluster| self.is_leaving(cluster)),
                pushed: cluster.is_some_and(|cluster| self.is_pushed(cluster)),
                free: taken.map_or(Ok(()), Err),
                registered: registered
                    .is_some_and(|(token, cluster)| self.has_registered_since(token, cluster)),
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
                    tracing::warn!(
                        name,
                        reason,
                        why,
                        requester = short(&spec["username"].as_str().unwrap_or_default()),
                        "a request for a certificate was denied"
                    );
                    add(&mut request, "Denied", reason, &why, &self.registry.now());
                    return self.put(kind, live, request, "approval", guards, Vec::new()).await;
                }
                Verdict::Approve { why, token } => {
                    tracing::info!(name, why, "a certificate for an agent");
                    add(&mut request, "Approved", "AutoApproved", &why, &self.registry.now());
                    used = secret.zip(value).map(|(live, value)| Used { live, value, new: token });
                }
            }
        }
        let epoch = record.as_ref().map_or(0, |record| record.record.epoch);
        let granted = match (whose, &record, &requested) {
            (Some(whose), Some(record), Ok(requested)) => {
                self.grant(&spec, whose, requested, record, used.as_ref(), &mut guards)?
            }
            _ => None,
        };
        let next = granted.as_ref().map_or(epoch, |record| record.epoch);
        match self.sign(&spec, &requested, whose, next) {
            Ok(pem) => {
                let status = object::ensure_map(&mut request, "status");
                status.insert("certificate".to_owned(), STANDARD.encode(pem).into());
                if let Some((granted, cluster, record)) =
                    granted.zip(cluster).zip(record).map(|((a, b), c)| (a, b, c))
                    && granted != record.record
                {
                    if next > epoch {
                        tracing::warn!(
                            cluster,
                            epoch = next,
                            "no agent has registered with the certificates issued for this name before: they are now revoked"
                        );
                        // What lets it in is of the epoch that it has begun.
                        if let Some(used) = &mut used {
                            let secret = used.new.get_or_insert_with(|| used.value.clone());
                            object::set_annotation(secret, epochs::EPOCH, next.to_string());
                        }
                    }
                    let there = record.live.as_ref().map(|live| self.registry.value_of(secrets, live));
                    let new = granted.write(cluster, there);
                    changes.push(Change { kind: secrets.clone(), live: record.live, new, subresource: "" });
                }
            }
            Err(why) => {
                tracing::warn!(name, why, "a request for a certificate was approved, and cannot be signed");
                add(&mut request, "Failed", "SignerValidationFailure", &why, &self.registry.now());
            }
        }
        let token = used.and_then(|used| Some((used.live, used.new?)));
        changes.extend(token.map(|(live, new)| Change {
            kind: secrets.clone(),
            live: Some(live),
            new,
            subresource: "",
        }));
        self.put(kind, live, request, "status", guards, changes).await
    }

    async fn put(
        &self,
        kind: &Arc<crate::kinds::Kind>,
        live: Arc<Object>,
        new: Value,
        subresource: &'static str,
        guards: Vec<Guard>,
        mut changes: Vec<Change>,
    ) -> Result<bool, Status> {
        changes.push(Change { kind: kind.clone(), live: Some(live), new, subresource });
        self.registry.change_together(&self.user, MANAGER, guards, changes).await
    }

    /// The epoch of a cluster's credentials, and that it must still be that.
    fn record(&self, cluster: &str) -> Result<Recorded, Status> {
        let key = storage::key_of(SECRETS, epochs::NAMESPACE, &epochs::Record::name(cluster));
        let Some(secret) = self.registry.store.get(&key) else {
            let (guard, record) = (Guard::Holds(key, Expect::Absent), epochs::Record::default());
            return Ok(Recorded { guard, record, live: None });
        };
        let value: Value = serde_json::from_slice(&secret.value.get()).map_err(Status::internal)?;
        let record = epochs::Record::read(&value).map_err(|why| {
            Status::internal(format!("the record of the credentials of cluster {cluster:?}: {why}"))
        })?;
        let guard = Guard::Holds(key, Expect::At(secret.revision));
        Ok(Recorded { guard, record, live: Some(secret) })
    }

    /// Why a token that is for no cluster cannot become one for this: whoever else may be meant by the name.
    fn taken(&self, token: &Object, cluster: &str, record: &Recorded) -> Option<&'static str> {
        let id = token.key.name.strip_prefix(bootstrap::PREFIX).unwrap_or_default();
        if !joining_name_errors(cluster).is_empty() {
            return Some("no cluster that joins may be called so");
        }
        if self.registry.store.get(&Key::new(CLUSTERS, "", cluster)).is_some() {
            return Some("there is a Cluster of that name");
        }
        if self.tokens.is_promised(cluster, id, self.registry.env.wall()) {
            return Some("another token is for that cluster");
        }
        if record.record.is_issued_by_people() {
            return Some("somebody was given a certificate of that name");
        }
        let is_older = record.live.as_ref().is_some_and(|live| live.revision > token.create_revision);
        if is_older && record.record.is_issued() {
            return Some("it was made before the last certificate of that name was given");
        }
        is_older.then_some("it was made before the credentials of the last cluster of that name were ended")
    }

    /// The Secret of the token by which something was asked, and that it must still be that.
    fn token(&self, spec: &Value) -> (Option<Arc<Object>>, Option<Guard>) {
        let Requester::Token(id) = Requester::of(spec) else { return (None, None) };
        let key = storage::key_of(SECRETS, bootstrap::NAMESPACE, &format!("{}{id}", bootstrap::PREFIX));
        let secret = self.registry.store.get(&key);
        let expect = secret.as_ref().map_or(Expect::Absent, |secret| Expect::At(secret.revision));
        (secret, Some(Guard::Holds(key, expect)))
    }

    fn is_leaving(&self, cluster: &str) -> bool {
        let there = self.registry.store.get(&Key::new(CLUSTERS, "", cluster));
        there.is_some_and(|there| there.header.deleting)
    }

    fn is_pushed(&self, cluster: &str) -> bool {
        let there = self.registry.store.get(&Key::new(CLUSTERS, "", cluster));
        there.is_some_and(|there| is_pushed(&there.value.get()))
    }

    /// The record from then on, when a certificate is given to somebody who has none that counts: whoever renews has.
    fn grant(
        &self,
        spec: &Value,
        whose: Whose<'_>,
        requested: &Requested,
        record: &Recorded,
        used: Option<&Used>,
        guards: &mut Vec<Guard>,
    ) -> Result<Option<epochs::Record>, Status> {
        if matches!(Requester::of(spec), Requester::Agent { .. }) {
            return Ok(None);
        }
        let (key, digest) = (Key::new(CLUSTERS, "", whose.cluster()), requested.digest());
        let there = self.registry.store.get(&key);
        let registered = there.as_ref().is_some_and(|there| is_registered(there));
        let grant = epochs::Grant {
            by: used.map_or(epochs::BY_APPROVAL, |used| object::uid(&used.value)),
            to: matches!(whose, Whose::Agent(_)).then_some(&*digest),
            several: used.is_none_or(|used| object::annotation(&used.value, USES_LEFT).is_some()),
        };
        let next = record.record.grant(grant, registered, self.registry.env.wall());
        let next = next.ok_or_else(|| Status::internal("there is no epoch after the one that counts"))?;
        if next.epoch > record.record.epoch {
            // Nobody registers in between whose credential would end by it.
            let expect = there.map_or(Expect::Absent, |there| Expect::At(there.revision));
            guards.push(Guard::Holds(key, expect));
        }
        Ok(Some(next))
    }

    /// Whether the agent of a cluster of this name has registered that was not there when a token was made.
    fn has_registered_since(&self, token: &Object, cluster: &str) -> bool {
        let there = self.registry.store.get(&Key::new(CLUSTERS, "", cluster));
        there.is_some_and(|there| there.create_revision > token.create_revision && is_registered(&there))
    }

    /// The certificate; of an agent, and of who makes its roles, with the epoch of its credentials.
    fn sign(
        &self,
        spec: &Value,
        requested: &Result<Requested, String>,
        whose: Option<Whose<'_>>,
        epoch: u64,
    ) -> Result<String, String> {
        let requested = requested.as_ref().map_err(|why| format!("spec.request: {why}"))?;
        policy::signable(spec, requested)?;
        let common_name = requested.common_names.first().map(String::as_str).unwrap_or_default();
        let organisation = requested.organisations.first().map(String::as_str);
        let generates_for = match whose {
            Some(Whose::Generator(cluster)) => Some(cluster),
            Some(Whose::Agent(_)) | None => None,
        };
        let subject = ClientSubject { common_name, organisation, epoch, generates_for };
        let encipherment = usages(spec).contains("key encipherment");
        self.certifier.signer.sign_client(
            &subject,
            &requested.key,
            encipherment,
            policy::life(whose, spec, self.certifier.usual),
        )
    }

    async fn sweep(&self) {
        let snapshot = self.registry.store.snapshot();
        let now = self.registry.env.wall();
        let mut past = Vec::new();
        for (index, request) in snapshot.range(STORAGE, None, None).enumerate() {
            let value: Value = serde_json::from_slice(&request.value.get()).unwrap_or_default();
            if policy::is_past(&value, made(&value), now) {
                past.push(request.clone());
            }
            if index % BATCH == BATCH - 1 {
                yield_now().await;
            }
        }
        drop(snapshot);
        // Those of a batch share commits.
        for batch in past.chunks(BATCH) {
            let gone = batch.iter().map(|request| {
                delete(
                    &self.registry,
                    &self.user,
                    request,
                    "certificates.k8s.io",
                    "certificatesigningrequests",
                )
            });
            join_all(gone).await;
        }
    }
}

/// Whether the agent of a Cluster has registered it.
fn is_registered(cluster: &Object) -> bool {
    serde_json::from_slice(&cluster.value.get()).is_ok_and(|value: Value| policy::has_registered(&value))
}

/// Which credentials of a cluster's agent count.
struct Recorded {
    record: epochs::Record,
    /// That it is still so.
    guard: Guard,
    /// What it stands in; nothing has ended or was given if there is nothing.
    live: Option<Arc<Object>>,
}

/// A token that lets somebody in.
struct Used {
    live: Arc<Object>,
    value: Value,
    /// Its Secret from then on, if that changes.
    new: Option<Value>,
}

/// What failed, and when it is tried again.
#[derive(Debug, Default)]
struct Failed {
    keys: BTreeMap<Key, (Instant, u32)>,
}

impl Failed {
    /// Takes note of a try, and of whether it is done.
    fn note(&mut self, key: &Key, done: bool) {
        if done {
            self.keys.remove(key);
            return;
        }
        let tries = self.keys.get(key).map_or(0, |(_, tries)| tries + 1);
        let wait = AGAIN * (1 << tries.min(MOST_DOUBLED));
        self.keys.insert(key.clone(), (Instant::now() + wait, tries));
    }

    /// When the next is due.
    fn next(&self) -> Option<Instant> {
        self.keys.values().map(|(due, _)| *due).min()
    }

    fn due(&self, now: Instant) -> Vec<Key> {
        self.keys.iter().filter(|(_, (due, _))| *due <= now).map(|(key, _)| key.clone()).collect()
    }
}

const CLUSTERS: &str = "cluster.karmada.io/clusters";

/// When an object was made.
fn made(object: &Value) -> SystemTime {
    let at = object["metadata"]["creationTimestamp"].as_str().and_then(|at| at.parse::<Time>().ok());
    at.map_or(SystemTime::UNIX_EPOCH, |at| at.timestamp().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_fails_is_looked_at_less_and_less_often() {
        let (mut failed, key) = (Failed::default(), Key::new(STORAGE, "", "a"));
        let start = Instant::now();
        let mut waited = Vec::new();
        for _ in 0..9 {
            failed.note(&key, false);
            let next = failed.next().expect("it is tried again");
            assert_eq!(failed.due(next - Duration::from_millis(1)), []);
            assert_eq!(failed.due(next), std::slice::from_ref(&key));
            waited.push((next - start).as_secs());
        }
        assert_eq!(waited, [5, 10, 20, 40, 80, 160, 320, 320, 320]);
        failed.note(&key, true);
        assert_eq!(failed.next(), None);
    }
}
