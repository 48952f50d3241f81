//! Secrets at rest: values that nobody can read in the store's files or in a backup without a key.
//!
//! ```text
//!   registry ─▶ store (memory: as they are) ─▶ Encryption ─▶ journal, tables, undo log; copies
//!                                                 ▲
//!                     --encryption-provider-config: kinds ─▶ providers ─▶ keys, or a command that has them
//! ```
//!
//! - [`config`] reads kube-apiserver's EncryptionConfiguration.
//! - [`sealed`] is what stands in the store in place of a value.
//! - [`command`] asks somebody else for keys (`kms`).
//!
//! It is a [`Seal`] of the store, below everything that has to do with objects, so there is no way past it to the disk:
//! what a watch may resume from, a deletion's last value and the copy that a backup is made of come by here, too. Which keys a
//! value can be read with is not asked of the place of its key in the file, but of the key's fingerprint, which stands with the
//! value: two keys of one name are two keys.
//!
//! # What it is for
//!
//! It stops whoever gets hold of the disk or of a backup, but not of the key: a machine that is stolen or discarded, a
//! volume that is read by others, a backup that lies about. It does not stop whoever can read the file of keys or the hub's memory (root on
//! the machine), nor whoever may ask the API. The hub's own keys in `pki/`, its authority's included, are not encrypted: with them
//! one can make a certificate and ask a hub that runs, until its authority is rotated. Where the key lies on the same disk, nothing
//! is gained. Names, namespaces and sizes of objects, and when they changed, can be read by everybody.
//!
//! A value is bound to its object: that of another, put in its place, does not open. An older value of the same object
//! opens; whoever can write the store's files can turn it back, as with kube-apiserver.

pub mod command;
pub mod config;
pub mod sealed;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use karmada_store::{Key, Seal};
use karmada_telemetry::metrics::{Sheet, Source};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use self::{
    command::Command,
    config::{Configuration, Provider, covers},
    sealed::{Cipher, Fingerprint, Root, Sealed, Sealer, Wrapped},
};

/// Data keys of one command that may stand in a store before it is written anew: each costs a call at a start.
const DATA_KEYS: usize = 8;

/// How the values of some kinds are kept.
#[derive(Debug)]
struct Way {
    resources: Vec<String>,
    /// None: as they are.
    sealer: Option<Sealer>,
    /// Whether what is not encrypted is read.
    plain: bool,
}

/// All that a file says, ready for use.
#[derive(Debug, Default)]
struct Ring {
    ways: Vec<Way>,
    roots: BTreeMap<Fingerprint, Arc<Root>>,
    commands: Vec<Arc<Command>>,
    /// What the keys of commands were when they were asked.
    key_ids: Vec<String>,
    /// What is written how, in short; empty: everything as it is.
    digest: String,
}

impl Ring {
    fn way(&self, resource: &str) -> Option<&Way> {
        self.ways.iter().find(|way| way.resources.iter().any(|pattern| covers(pattern, resource)))
    }

    fn sealer(&self, resource: &str) -> Option<&Sealer> {
        self.way(resource)?.sealer.as_ref()
    }

    /// The roots that values are written with.
    fn writing(&self) -> BTreeSet<Fingerprint> {
        self.ways.iter().filter_map(|way| way.sealer.as_ref()).map(|s| s.root().fingerprint()).collect()
    }
}

/// What was counted.
#[derive(Debug, Default)]
struct Counts {
    sealed: AtomicU64,
    opened: AtomicU64,
    refused: AtomicU64,
    reloads: [AtomicU64; 2],
    rewrites: [AtomicU64; 2],
}

/// Encrypts and decrypts the values of a store.
#[derive(Debug, Default)]
pub struct Encryption {
    ring: ArcSwap<Ring>,
    /// Data keys that commands gave: those of values that were read, and those that are written with.
    data: Mutex<BTreeMap<Fingerprint, Arc<Root>>>,
    /// Roots of values that may stand in the files, with their names.
    used: Mutex<BTreeMap<Fingerprint, String>>,
    /// Values that were read and would not be written so now.
    stale: AtomicU64,
    /// Something else was in force since all was written anew, and values of that time may stand in the files.
    changed: AtomicBool,
    /// Why roots of values that were read cannot be had: a command that fails is not asked for each value.
    failed: Mutex<BTreeMap<Fingerprint, String>>,
    counts: Counts,
}

/// Why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EncryptionError(String);

impl Encryption {
    /// Nothing is encrypted, and what is cannot be read.
    pub fn none() -> Self {
        Self::default()
    }

    /// By a file's text. Commands are asked for a data key.
    ///
    /// # Errors
    /// What is wrong with the file, or with a command.
    pub fn new(text: &[u8]) -> Result<Self, EncryptionError> {
        let encryption = Self::none();
        let ring = encryption.ring_of(text)?;
        encryption.take(ring);
        Ok(encryption)
    }

    fn ring_of(&self, text: &[u8]) -> Result<Ring, EncryptionError> {
        let configuration = Configuration::parse(text).map_err(EncryptionError)?;
        let mut ring = Ring::default();
        let mut digest = Sha256::new();
        let random = |error: sealed::NoRandomness| EncryptionError(error.to_string());
        for rule in configuration.rules {
            let mut sealer = None;
            let mut plain = false;
            for (at, provider) in rule.providers.into_iter().enumerate() {
                match provider {
                    Provider::Identity => plain = true,
                    Provider::Keys { cipher, keys } => {
                        let mut roots = keys
                            .into_iter()
                            .map(|key| Arc::new(Root::of_key(cipher, &key.name, &key.secret)));
                        if at == 0
                            && let Some(root) = roots.next()
                        {
                            digest.update(root.fingerprint().to_string());
                            sealer = Some(Sealer::new(root.clone()).map_err(random)?);
                            ring.roots.insert(root.fingerprint(), root);
                        }
                        ring.roots.extend(roots.map(|root| (root.fingerprint(), root)));
                    }
                    Provider::Kms { name, command, timeout } => {
                        let command = Arc::new(Command::new(name, command, timeout));
                        if at == 0 {
                            let root = Arc::new(command.data_key().map_err(EncryptionError)?);
                            let key_id =
                                root.wrapped().map(|wrapped| wrapped.key_id.clone()).unwrap_or_default();
                            digest.update(format!("{} {key_id}", command.name()));
                            ring.key_ids.push(key_id);
                            sealer = Some(Sealer::new(root).map_err(random)?);
                        }
                        ring.commands.push(command);
                    }
                }
            }
            digest.update(format!(" {}\n", rule.resources.join(",")));
            ring.ways.push(Way { resources: rule.resources, sealer, plain });
        }
        if ring.ways.iter().any(|way| way.sealer.is_some()) {
            ring.digest = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        }
        Ok(ring)
    }

    fn take(&self, ring: Ring) {
        let before = self.ring.load();
        if !before.ways.is_empty() && before.digest != ring.digest {
            self.changed.store(true, Ordering::Relaxed);
        }
        self.failed.lock().clear();
        for root in ring.ways.iter().filter_map(|way| way.sealer.as_ref()).map(Sealer::root) {
            if root.wrapped().is_some() {
                self.data.lock().insert(root.fingerprint(), root.clone());
            }
            self.used.lock().insert(root.fingerprint(), root.describe());
        }
        self.ring.store(Arc::new(ring));
    }

    /// Goes on by another file. What is written from now on is written by it; what stands in the store is not touched:
    /// see [`Encryption::is_due`].
    ///
    /// # Errors
    /// What is wrong with it, or which key it lacks that values stand in the store with. All is as before then.
    pub fn reload(&self, text: &[u8]) -> Result<(), EncryptionError> {
        let reloaded = self.ring_of(text).and_then(|ring| {
            let lost = self.used.lock().iter().find(|(used, _)| !self.can_read(&ring, used)).map(|(_, name)| name.clone());
            match lost {
                Some(name) => Err(EncryptionError(format!(
                    "it has no {name} any more, which values are still encrypted with: put it back behind the new one, \
                     and take it out when karmada_store_encryption_rewrite_due is 0"
                ))),
                None => Ok(ring),
            }
        });
        self.counts.reloads[usize::from(reloaded.is_err())].fetch_add(1, Ordering::Relaxed);
        self.take(reloaded?);
        Ok(())
    }

    fn can_read(&self, ring: &Ring, root: &Fingerprint) -> bool {
        let by_command = || {
            let name = self.data.lock().get(root).map(|root| root.name().to_owned());
            name.is_some_and(|name| ring.commands.iter().any(|command| command.name() == name))
        };
        ring.roots.contains_key(root) || by_command()
    }

    /// Whether a command has another key than when it was asked for a data key; asks it. Then it is time to read the file again.
    ///
    /// # Errors
    /// When it does not say.
    pub fn has_new_key(&self) -> Result<bool, EncryptionError> {
        let ring = self.ring.load_full();
        for root in ring.ways.iter().filter_map(|way| way.sealer.as_ref()).map(Sealer::root) {
            let Some(wrapped) = root.wrapped() else { continue };
            let Some(command) = ring.commands.iter().find(|command| command.name() == root.name()) else {
                continue;
            };
            if command.key_id().map_err(EncryptionError)? != wrapped.key_id {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What is written how, in short: whoever has written a whole store by it knows by this that nothing is due. Empty if
    /// nothing is encrypted.
    pub fn digest(&self) -> String {
        self.ring.load().digest.clone()
    }

    /// Whether something may stand in the store that would be written otherwise now; `written` is the digest by which all of
    /// it was written last.
    pub fn is_due(&self, written: &str) -> bool {
        let data = self.used.lock().keys().filter(|used| self.data.lock().contains_key(used)).count();
        let changed = self.stale.load(Ordering::Relaxed) > 0 || self.changed.load(Ordering::Relaxed);
        changed || data > DATA_KEYS || self.ring.load().digest != written
    }

    /// All of the store was written anew, or could not be; by the file that was read last.
    pub fn rewritten(&self, done: bool) {
        self.counts.rewrites[usize::from(!done)].fetch_add(1, Ordering::Relaxed);
        if done {
            self.stale.store(0, Ordering::Relaxed);
            self.changed.store(false, Ordering::Relaxed);
            let writing = self.ring.load().writing();
            self.used.lock().retain(|root, _| writing.contains(root));
            self.data.lock().retain(|root, _| writing.contains(root));
        }
    }

    /// Whether Secrets are encrypted and Works, which carry those that go to clusters, are not.
    pub fn leaves_works(&self) -> bool {
        let ring = self.ring.load();
        ring.sealer("core/secrets").is_some() && ring.sealer("work.karmada.io/works").is_none()
    }

    /// The keys that values stand in the store with, by name.
    pub fn keys(&self) -> Vec<String> {
        self.used.lock().values().cloned().collect()
    }

    /// The keys that are written with, by name.
    pub fn writing(&self) -> Vec<String> {
        let ring = self.ring.load();
        let names: BTreeSet<String> = ring
            .ways
            .iter()
            .filter_map(|way| way.sealer.as_ref())
            .map(|sealer| sealer.root().describe())
            .collect();
        names.into_iter().collect()
    }

    /// The root of a sealed value.
    fn root(&self, ring: &Ring, sealed: &Sealed<'_>) -> Result<Arc<Root>, String> {
        if let Some(root) = ring.roots.get(&sealed.fingerprint) {
            return Ok(root.clone());
        }
        let Some(wrapped) = &sealed.wrapped else {
            let same_name = ring.roots.values().any(|root| root.name() == sealed.name);
            let why = if same_name { " (the key of that name there is another one)" } else { "" };
            return Err(format!(
                "which is not in the file of --encryption-provider-config{why}; add it there"
            ));
        };
        if let Some(root) = self.data.lock().get(&sealed.fingerprint) {
            return Ok(root.clone());
        }
        if let Some(why) = self.failed.lock().get(&sealed.fingerprint) {
            return Err(why.clone());
        }
        let root = Self::unwrap(ring, sealed, wrapped).inspect_err(|why| {
            let name = sealed.describe();
            tracing::error!("values are encrypted with {name}, {why}");
            self.failed.lock().insert(sealed.fingerprint, why.clone());
        })?;
        self.data.lock().insert(sealed.fingerprint, root.clone());
        Ok(root)
    }

    /// The data key of a sealed value, from its command.
    fn unwrap(ring: &Ring, sealed: &Sealed<'_>, wrapped: &Wrapped) -> Result<Arc<Root>, String> {
        let command =
            ring.commands.iter().find(|command| command.name() == sealed.name).ok_or_else(|| {
                "which is not among the kms providers of --encryption-provider-config; add it there"
                    .to_owned()
            })?;
        let root = Arc::new(command.unwrap(wrapped).map_err(|why| format!("which cannot be had: {why}"))?);
        if root.fingerprint() != sealed.fingerprint {
            return Err("for which its command gives another key".to_owned());
        }
        Ok(root)
    }

    fn open(&self, key: &Key, kept: &Bytes) -> Result<Bytes, String> {
        let ring = self.ring.load();
        let way = ring.way(&key.resource);
        let sealer = way.and_then(|way| way.sealer.as_ref());
        let Some(sealed) = Sealed::read(kept) else {
            if let Some(way) = way
                && !way.plain
            {
                return Err(format!(
                    "{key} is not encrypted, and must be by --encryption-provider-config; if it is not known to be \
                     tampered with, add the provider identity behind the others"
                ));
            }
            if sealer.is_some() {
                self.stale.fetch_add(1, Ordering::Relaxed);
            }
            return Ok(kept.clone());
        };
        let sealed = sealed.map_err(|why| format!("{key}: {why}"))?;
        let name = sealed.describe();
        let root =
            self.root(&ring, &sealed).map_err(|why| format!("{key} is encrypted with {name}, {why}"))?;
        let value = root.open(key, &sealed).ok_or_else(|| {
            format!(
                "{key} does not open with {name}: it was changed, or stood in another place; restore a backup"
            )
        })?;
        if sealer.is_none_or(|sealer| sealer.root().stands_for() != root.stands_for()) {
            self.stale.fetch_add(1, Ordering::Relaxed);
        }
        self.used.lock().entry(sealed.fingerprint).or_insert(name);
        Ok(value)
    }
}

impl Seal for Encryption {
    fn covers(&self, resource: &str) -> bool {
        self.ring.load().sealer(resource).is_some()
    }

    fn seal(&self, key: &Key, value: &Bytes) -> Bytes {
        let ring = self.ring.load();
        let Some(sealer) = ring.sealer(&key.resource) else { return value.clone() };
        self.counts.sealed.fetch_add(1, Ordering::Relaxed);
        sealer.seal(key, value)
    }

    fn unseal(&self, key: &Key, kept: Bytes) -> Result<Bytes, String> {
        let opened = self.open(key, &kept);
        let count = if opened.is_ok() { &self.counts.opened } else { &self.counts.refused };
        count.fetch_add(1, Ordering::Relaxed);
        opened
    }
}

/// What is counted, for a page.
#[derive(Clone, Debug)]
pub struct EncryptionFigures {
    encryption: Arc<Encryption>,
    /// By what the whole store was written last.
    written: Arc<Mutex<String>>,
}

impl EncryptionFigures {
    /// Of this one; `written` is what the whole store was written by last.
    pub fn new(encryption: Arc<Encryption>, written: Arc<Mutex<String>>) -> Self {
        Self { encryption, written }
    }
}

impl Source for EncryptionFigures {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let Encryption { counts, .. } = &*self.encryption;
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
        let transformed =
            |kind: &'static str, status: &'static str| [("transformation_type", kind), ("status", status)];
        sheet.counter(
            "apiserver_storage_transformation_operations_total",
            "Values that were encrypted for the store's files, or read from them.",
            [
                (transformed("to_storage", "OK"), count(&counts.sealed)),
                (transformed("from_storage", "OK"), count(&counts.opened)),
                (transformed("from_storage", "Internal"), count(&counts.refused)),
            ],
        )?;
        let results = |of: &[AtomicU64; 2]| {
            [([("status", "success")], count(&of[0])), ([("status", "failure")], count(&of[1]))]
        };
        sheet.counter(
            "apiserver_encryption_config_controller_automatic_reloads_total",
            "Times that the file of --encryption-provider-config was read again because it had changed.",
            results(&counts.reloads),
        )?;
        sheet.counter(
            "karmada_store_encryption_rewrites_total",
            "Times that all of the store was written anew with the keys of the present.",
            results(&counts.rewrites),
        )?;
        let due = self.encryption.is_due(&self.written.lock());
        sheet.one_gauge(
            "karmada_store_encryption_rewrite_due",
            "1 while values may stand in the store's files that are not encrypted as the file of --encryption-provider-config has it.",
            f64::from(u8::from(due)),
        )?;
        let writing = self.encryption.writing();
        let keys = self.encryption.keys();
        let rows = keys.iter().map(|key| {
            let writes = if writing.contains(key) { "true" } else { "false" };
            ([("key", key.clone()), ("writes", writes.to_owned())], 1.0)
        });
        sheet.gauge(
            "karmada_store_encryption_key",
            "Keys that values in the store's files may be encrypted with.",
            rows,
        )
    }
}

/// What a stored value says of how it is encrypted; none: it is not.
pub fn label(value: &[u8]) -> Option<String> {
    Some(
        Sealed::read(value)?
            .map_or_else(|_| "a key of a newer version".to_owned(), |sealed| sealed.describe()),
    )
}

/// The keys that a file has, if it is an EncryptionConfiguration, by what values say of them.
pub fn keys_in(text: &[u8]) -> BTreeSet<String> {
    let Ok(Configuration { rules }) = Configuration::parse(text) else { return BTreeSet::new() };
    let providers = rules.into_iter().flat_map(|rule| rule.providers);
    let keys = providers.filter_map(|provider| match provider {
        Provider::Keys { cipher, keys } => Some((cipher, keys)),
        Provider::Identity | Provider::Kms { .. } => None,
    });
    keys.flat_map(|(cipher, keys): (Cipher, _)| {
        keys.into_iter().map(move |key| Root::of_key(cipher, &key.name, &key.secret).describe())
    })
    .collect()
}

#[cfg(test)]
mod tests;
