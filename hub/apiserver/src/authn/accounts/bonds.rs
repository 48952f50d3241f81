//! What tokens of service accounts are bound to: they end with it.
//!
//! ```text
//!   a token ─► its account, and the Pod, Secret or Node that it was asked for ─► are they there, by their uids?
//!                                    store ─► follower ─► Bonds ─► what was begun by the token ends
//! ```
//!
//! There are as many bonds as tokens of different accounts and objects were shown, and none to what has gone.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use karmada_meta::{object, time::Time};
use karmada_store::{Key, Snapshot};
use parking_lot::Mutex;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use super::super::{epochs::Hold, known::forever};
use crate::{
    follow::Derived,
    storage::{ApiStore, Header, Object},
};

/// The resources as the store names them.
pub(crate) const ACCOUNTS: &str = "core/serviceaccounts";
pub(crate) const PODS: &str = "core/pods";
pub(crate) const SECRETS: &str = "core/secrets";
pub(crate) const NODES: &str = "core/nodes";

/// What is being deleted counts for so long after its time, as for kube-apiserver.
const LEEWAY: Duration = Duration::from_secs(60);
/// On the Secret of a token that nobody has used for long.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

/// One object and no later one of its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bound {
    pub(super) key: Key,
    /// Empty: any.
    pub(super) uid: String,
}

/// What a token is bound to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bond {
    pub(super) account: Bound,
    pub(super) other: Option<Bound>,
    /// The digest of the token, where it stands in that other object.
    pub(super) copy: Option<[u8; 32]>,
}

impl Bond {
    fn objects(&self) -> impl Iterator<Item = &Bound> {
        std::iter::once(&self.account).chain(&self.other)
    }

    /// Until when it holds, as things are.
    ///
    /// # Errors
    /// What ended it, in kube-apiserver's words where it has some.
    fn judge(&self, now: &Snapshot<Header>) -> Result<SystemTime, String> {
        let mut until = forever();
        for bound in self.objects() {
            let (namespace, name) = (&bound.key.namespace, &bound.key.name);
            let what = match &*bound.key.resource {
                ACCOUNTS => "service account",
                PODS => "pod",
                NODES => "node",
                _ => "secret",
            };
            let there = now.get(&bound.key).ok_or_else(|| match namespace.is_empty() {
                true => format!("{what} {name} is not there"),
                false => format!("{what} {namespace}/{name} is not there"),
            })?;
            if !bound.uid.is_empty() && *there.header.uid != *bound.uid {
                let claim = match what {
                    "service account" => "claim".to_owned(),
                    other => format!("service account {other} ref claim"),
                };
                let uid = &there.header.uid;
                return Err(format!("{what} UID ({uid}) does not match {claim} ({})", bound.uid));
            }
            if there.header.deleting {
                until = until.min(end_of(there));
            }
        }
        if let (Some(other), Some(copy)) = (&self.other, &self.copy) {
            check_copy(now.get(&other.key), copy)?;
        }
        Ok(until)
    }
}

/// When an object that is being deleted counts no more.
fn end_of(object: &Object) -> SystemTime {
    let value: Value = serde_json::from_slice(&object.value.get()).unwrap_or_default();
    let at = object::deletion_timestamp(&value).and_then(|at| at.parse::<Time>().ok());
    at.map_or(SystemTime::UNIX_EPOCH, |at| SystemTime::from(at.timestamp()) + LEEWAY)
}

/// Whether a Secret holds the token that has this digest.
fn check_copy(secret: Option<&Arc<Object>>, copy: &[u8; 32]) -> Result<(), String> {
    let secret: Value = secret.and_then(|s| serde_json::from_slice(&s.value.get()).ok()).unwrap_or_default();
    let kept = STANDARD.decode(secret["data"]["token"].as_str().unwrap_or_default()).unwrap_or_default();
    if Sha256::digest(&kept)[..] != copy[..] {
        return Err("Token does not match server's copy".to_owned());
    }
    if object::deletion_timestamp(&secret).is_some() || object::label(&secret, INVALID_SINCE).is_some() {
        return Err("Token has been invalidated".to_owned());
    }
    Ok(())
}

#[derive(Debug)]
struct Held {
    ended: CancellationToken,
    until: SystemTime,
}

#[derive(Debug, Default)]
struct Books {
    held: BTreeMap<Arc<Bond>, Held>,
    by_object: BTreeMap<Key, BTreeSet<Arc<Bond>>>,
}

impl Books {
    fn end(&mut self, bond: &Arc<Bond>) {
        if let Some(held) = self.held.remove(bond) {
            held.ended.cancel();
        }
        for bound in bond.objects() {
            if let Some(bonds) = self.by_object.get_mut(&bound.key) {
                bonds.remove(bond);
                if bonds.is_empty() {
                    self.by_object.remove(&bound.key);
                }
            }
        }
    }
}

/// What tokens that were shown are bound to, as new as the store.
#[derive(Debug)]
pub struct Bonds {
    store: ApiStore,
    books: Mutex<Books>,
}

impl Bonds {
    /// The same of a store.
    pub(crate) fn new(store: ApiStore) -> Self {
        Self { store, books: Mutex::default() }
    }

    /// For how long a token that is so bound holds.
    ///
    /// # Errors
    /// What ended it.
    pub(super) fn hold(&self, bond: Bond) -> Result<Hold, String> {
        // What changes after this look comes to the books when the bond is in them.
        let mut books = self.books.lock();
        let until = bond.judge(&self.store.snapshot())?;
        let bond = Arc::new(bond);
        if let Some(held) = books.held.get(&bond) {
            if held.until == until {
                return Ok(Hold { ended: held.ended.clone(), until, leaving: false });
            }
            books.end(&bond);
        }
        let ended = CancellationToken::new();
        for bound in bond.objects() {
            books.by_object.entry(bound.key.clone()).or_default().insert(bond.clone());
        }
        books.held.insert(bond, Held { ended: ended.clone(), until });
        Ok(Hold { ended, until, leaving: false })
    }

    fn look_again(&self, books: &mut Books, bonds: &BTreeSet<Arc<Bond>>) {
        let now = self.store.snapshot();
        for bond in bonds {
            // One whose object is on its way out holds for another time now: it is judged anew when it is shown.
            let until = books.held.get(bond).map(|held| held.until);
            if bond.judge(&now).ok() != until {
                books.end(bond);
            }
        }
    }
}

impl Derived for Bonds {
    fn resources(&self) -> &[&'static str] {
        &[ACCOUNTS, PODS, SECRETS, NODES]
    }

    fn rebuild(&self, _: &Snapshot<Header>) {
        let mut books = self.books.lock();
        let all = books.held.keys().cloned().collect();
        self.look_again(&mut books, &all);
    }

    fn update(&self, changed: &BTreeSet<Key>, _: &Snapshot<Header>) {
        let mut books = self.books.lock();
        let concerned =
            changed.iter().filter_map(|key| books.by_object.get(key)).flatten().cloned().collect();
        self.look_again(&mut books, &concerned);
    }
}
