//! What a state says, as keys and values.

use std::{collections::BTreeMap, sync::atomic::Ordering};

use karmada_api::config::{ResourceInterpreterCustomizationSpec, webhook::ResourceInterpreterWebhook};
use karmada_core::{hold::Asked, names::fnv64a};
use karmada_interpreter::{Interpreter, rules::Rules, webhook::Hooks};
use serde::{Deserialize, Serialize};

use super::{Entries, Trouble};
use crate::{
    applied::Applied,
    removals::Record,
    rules::Heard,
    works::desired::{DesiredWork, ObjectId},
};

/// What was kept is not the newest.
pub(super) const OUT_OF_DATE: &str = "OutOfDate";

/// The key of what is known of removals that are held.
pub(super) const REMOVALS: &str = "removals";

/// What keys of notes begin with.
const NOTE: &str = "note/";

const WORK: &str = "work/";
const APPLIED: &str = "applied/";
const IN_FORCE: &str = "force/";

/// A sort of users' rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// ResourceInterpreterCustomizations, by name: `BTreeMap<String, ResourceInterpreterCustomizationSpec>`.
    Scripts,
    /// ResourceInterpreterWebhookConfigurations, by name: `BTreeMap<String, Vec<ResourceInterpreterWebhook>>`.
    Services,
    /// No rules, but when the Cluster lets changes be made: [`Asked`].
    Holds,
}

impl Sort {
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Scripts => "rules/scripts",
            Self::Services => "rules/services",
            Self::Holds => "rules/holds",
        }
    }
}

pub(super) fn removals_text(record: &Record) -> Vec<u8> {
    serde_json::to_vec(record).expect("invariant: texts and numbers are JSON")
}

pub(super) fn note_key(name: &str) -> String {
    format!("{NOTE}{name}")
}

pub(super) fn is_note(key: &str) -> bool {
    key.starts_with(NOTE)
}

pub(super) fn work_key(name: &str) -> String {
    format!("{WORK}{name}")
}

pub(super) fn work_of(key: &str) -> Option<&str> {
    key.strip_prefix(WORK)
}

pub(super) fn is_work(key: &str) -> bool {
    key.starts_with(WORK)
}

/// Of the version of a Work that is in force while another one waits.
pub(super) fn force_key(name: &str) -> String {
    format!("{IN_FORCE}{name}")
}

pub(super) fn is_in_force(key: &str) -> bool {
    key.starts_with(IN_FORCE)
}

/// None of its parts holds a slash.
pub(super) fn applied_key(id: &ObjectId) -> String {
    format!("{APPLIED}{}/{}/{}/{}", id.group, id.kind, id.namespace, id.name)
}

/// Whether a key is best left out where there is no room for all: a Work that is not kept is merely not healed before the hub
/// is heard. The more, the sooner.
pub(super) fn may_be_left_out(key: &str) -> u8 {
    match key {
        About::KEY => 0,
        // Without them nothing is applied.
        _ if [Sort::Scripts, Sort::Services, Sort::Holds].iter().any(|sort| key == sort.key()) => 1,
        _ => 2,
    }
}

/// Whether nothing is done otherwise that matters if what is kept under a key is older than it might be: an object is looked at
/// and applied once more, an event is told twice or not at all.
pub(super) fn may_be_lost(key: &str) -> bool {
    key.starts_with(APPLIED) || is_note(key)
}

pub(super) fn applied_id(key: &str) -> Option<ObjectId> {
    let mut parts = key.strip_prefix(APPLIED)?.splitn(4, '/').map(str::to_owned);
    let (group, kind, namespace, name) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    Some(ObjectId { group, kind, namespace, name })
}

/// Whose state it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct About {
    pub(super) version: u32,
    /// The uid of its `kube-system` Namespace.
    pub(super) member: String,
    pub(super) cluster: String,
    /// The uid of the agents' Lease on the member, by which is told how new it is.
    pub(super) lease: String,
}

impl About {
    pub(super) const KEY: &str = "about";
    /// Of what the keys and values mean.
    pub(super) const VERSION: u32 = 2;

    pub(super) fn text(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("invariant: texts and numbers are JSON")
    }

    /// Whether what was kept so may be gone on with.
    pub(super) fn may_be_followed_by(&self, now: &Self) -> Result<(), Trouble> {
        if self.version != now.version {
            let why = format!(
                "the state is of another version ({}, not {}) of the agent",
                self.version, now.version
            );
            return Err(("AnotherVersion", why));
        }
        if self.member != now.member {
            let why = format!(
                "the state is of the member {} (the uid of its kube-system), and this one is {}",
                self.member, now.member
            );
            return Err(("AnotherMember", why));
        }
        if self.cluster != now.cluster {
            let why = format!("the state is of the cluster {}, and this is {}", self.cluster, now.cluster);
            return Err(("AnotherMember", why));
        }
        if self.lease != now.lease {
            let why = "the agents' Lease on the member has been made anew since the state was kept: whether another agent of \
                       this name has acted is not known"
                .to_owned();
            return Err((OUT_OF_DATE, why));
        }
        Ok(())
    }
}

/// Users' rules, as they were kept.
#[derive(Debug, Default)]
pub(super) struct KeptRules {
    scripts: Option<BTreeMap<String, ResourceInterpreterCustomizationSpec>>,
    services: Option<BTreeMap<String, Vec<ResourceInterpreterWebhook>>>,
    digests: Vec<(&'static str, u64)>,
}

impl KeptRules {
    /// Follows them, unless the hub has said which there are.
    pub(super) fn recall(self, interpreter: &Interpreter, heard: &Heard) {
        if let Some(scripts) = self.scripts.filter(|_| !heard.scripts.load(Ordering::Acquire)) {
            interpreter.replace(Rules::new(scripts));
            heard.scripts.store(true, Ordering::Release);
        }
        if let Some(services) = self.services.filter(|_| !heard.services.load(Ordering::Acquire)) {
            interpreter.replace_hooks(Hooks::new(services));
            heard.services.store(true, Ordering::Release);
        }
    }
}

/// All that a state says.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) about: About,
    pub(super) works: Vec<DesiredWork>,
    pub(super) rules: KeptRules,
    pub(super) applied: Vec<(ObjectId, Applied)>,
    pub(super) holds: Option<Asked>,
    /// Versions of Works that are in force while others wait.
    pub(super) in_force: Vec<DesiredWork>,
    pub(super) removals: Option<Record>,
    /// By name, what only whoever is above can read.
    pub(super) notes: BTreeMap<String, Vec<u8>>,
}

impl Contents {
    /// Reads what was kept; `unpack` turns what is kept under a key into its value.
    pub(super) fn read(
        entries: Entries,
        unpack: impl Fn(&str, Vec<u8>) -> Option<Vec<u8>>,
    ) -> Result<Self, Trouble> {
        let mut contents = Self::default();
        let mut is_about = false;
        for (key, kept) in entries {
            let sealed = || {
                ("Sealed", format!("{key} cannot be opened: it was sealed with another key, or is damaged"))
            };
            let value = unpack(&key, kept).ok_or_else(sealed)?;
            let wrong = |error: String| ("Damaged", format!("{key} cannot be read: {error}"));
            let json = |error: serde_json::Error| wrong(error.to_string());
            if key == About::KEY {
                (contents.about, is_about) = (serde_json::from_slice(&value).map_err(json)?, true);
            } else if is_work(&key) {
                let text = std::str::from_utf8(&value).map_err(|error| wrong(error.to_string()))?;
                contents.works.push(DesiredWork::kept(text).map_err(wrong)?);
            } else if is_in_force(&key) {
                let text = std::str::from_utf8(&value).map_err(|error| wrong(error.to_string()))?;
                contents.in_force.push(DesiredWork::kept(text).map_err(wrong)?);
            } else if key == Sort::Holds.key() {
                contents.holds = Some(serde_json::from_slice(&value).map_err(json)?);
                contents.rules.digests.push((Sort::Holds.key(), fnv64a(&value)));
            } else if key == Sort::Scripts.key() {
                contents.rules.scripts = Some(serde_json::from_slice(&value).map_err(json)?);
                contents.rules.digests.push((Sort::Scripts.key(), fnv64a(&value)));
            } else if key == Sort::Services.key() {
                contents.rules.services = Some(serde_json::from_slice(&value).map_err(json)?);
                contents.rules.digests.push((Sort::Services.key(), fnv64a(&value)));
            } else if let Some(name) = key.strip_prefix(NOTE) {
                contents.notes.insert(name.to_owned(), value);
            } else if key == REMOVALS {
                contents.removals = Some(serde_json::from_slice(&value).map_err(json)?);
            } else if let Some(id) = applied_id(&key) {
                contents.applied.push((id, serde_json::from_slice(&value).map_err(json)?));
            }
        }
        if is_about { Ok(contents) } else { Err(("Damaged", "it does not say whose it is".to_owned())) }
    }

    /// Of each key's value, what tells it from others. Of a Work its status does not count: it is not written anew for
    /// that.
    pub(super) fn digests(&self) -> BTreeMap<String, u64> {
        let works = self.works.iter().map(|work| (work_key(&work.name), work.digest()));
        let applied = self.applied.iter().map(|(id, applied)| (applied_key(id), fnv64a(&applied.text())));
        let rules = self.rules.digests.iter().map(|(key, digest)| ((*key).to_owned(), *digest));
        let about = [(About::KEY.to_owned(), fnv64a(&self.about.text()))];
        let in_force = self.in_force.iter().map(|work| (force_key(&work.name), work.digest()));
        let notes = self.notes.iter().map(|(name, text)| (note_key(name), fnv64a(text)));
        let removals =
            self.removals.iter().map(|record| (REMOVALS.to_owned(), fnv64a(&removals_text(record))));
        let notes = notes.chain(removals);
        works.chain(applied).chain(rules).chain(about).chain(in_force).chain(notes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_of_one_member_and_of_its_lease() {
        let about = |member: &str, cluster: &str, lease: &str| About {
            version: About::VERSION,
            member: member.into(),
            cluster: cluster.into(),
            lease: lease.into(),
        };
        let now = about("u", "m1", "l");
        // (kept, why it may not be gone on with)
        let rows = [
            (about("u", "m1", "l"), ""),
            (about("u", "m1", "k"), "OutOfDate"),
            (about("v", "m1", "l"), "AnotherMember"),
            (about("u", "m2", "l"), "AnotherMember"),
            (About { version: 1, ..now.clone() }, "AnotherVersion"),
        ];
        for (kept, want) in rows {
            let word = kept.may_be_followed_by(&now).err().map_or("", |(word, _)| word);
            assert_eq!(word, want, "{kept:?}");
        }
    }

    #[test]
    fn what_was_kept_is_read() {
        let id = |group: &str, namespace: &str| ObjectId {
            group: group.into(),
            kind: "K".into(),
            namespace: namespace.into(),
            name: "n".into(),
        };
        for id in [id("", ""), id("apps", "shop")] {
            assert_eq!(applied_id(&applied_key(&id)), Some(id));
        }
        let applied =
            Applied { work: "w".into(), manifest: u64::MAX, uid: "u".into(), fingerprint: 3, by_put: false };
        let work = r#"{"metadata":{"name":"w","uid":"u"},"spec":{"workload":{"manifests":[{"a":1}]}}}"#;
        let whole: Entries = [
            (About::KEY.to_owned(), About { version: About::VERSION, ..About::default() }.text()),
            (work_key("w"), work.as_bytes().to_vec()),
            (Sort::Scripts.key().to_owned(), b"{}".to_vec()),
            (applied_key(&id("", "")), applied.text()),
            (force_key("w"), work.as_bytes().to_vec()),
            (Sort::Holds.key().to_owned(), br#"{"hold":"stocktaking"}"#.to_vec()),
            ("of a later version".to_owned(), Vec::new()),
        ]
        .into();
        let read = Contents::read(whole.clone(), |_, kept| Some(kept)).unwrap();
        assert_eq!((read.works.len(), &read.applied), (1, &vec![(id("", ""), applied)]));
        assert_eq!(read.digests().len(), 6);
        assert_eq!((read.in_force.len(), read.holds.unwrap().hold.as_deref()), (1, Some("stocktaking")));
        let word =
            |entries: Entries| Contents::read(entries, |_, kept| Some(kept)).err().map(|(word, _)| word);
        let with = |key: &str, value: &str| {
            let mut entries = whole.clone();
            entries.insert(key.to_owned(), value.into());
            entries
        };
        assert_eq!(word(with("work/x", "{")), Some("Damaged"));
        assert_eq!(word(with(About::KEY, "7")), Some("Damaged"));
        let mut anonymous = whole.clone();
        anonymous.remove(About::KEY);
        assert_eq!(word(anonymous), Some("Damaged"));
        assert_eq!(Contents::read(whole, |_, _| None).err().map(|(word, _)| word), Some("Sealed"));
    }
}
