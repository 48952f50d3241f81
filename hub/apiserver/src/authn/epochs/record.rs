//! What is kept of a cluster's credentials: which epoch counts, how the one before ended, and to whom certificates were given
//! before an agent had registered.

use std::{fmt, time::SystemTime};

use karmada_meta::{object, time::Time};
use serde_json::{Value, json};

/// Where records are kept.
pub const NAMESPACE: &str = "karmada-cluster";
/// What a record's name begins with; the cluster's name follows. No agent may write an object of such a name.
const PREFIX: &str = "agent.";
/// The type of a record's Secret.
pub const TYPE: &str = "hub.karmada.io/agent-credential";
/// The epoch: on a record the one that counts, on a bootstrap token the one in which it was made, and among what is said of
/// an agent (`extra`) that of its certificate.
pub const EPOCH: &str = "hub.karmada.io/credential-epoch";
const ENDED: &str = "hub.karmada.io/credential-ended";
const SINCE: &str = "hub.karmada.io/credential-ended-at";
const UID: &str = "hub.karmada.io/credential-ended-for";
const BEFORE: &str = "hub.karmada.io/credential-epoch-before";
const ISSUED_BY: &str = "hub.karmada.io/credential-issued-by";
const ISSUED_TO: &str = "hub.karmada.io/credential-issued-to";

/// How an epoch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Somebody has ended it: `karmada-hub cluster revoke`.
    Revoked,
    /// The Cluster was deleted.
    Deleted,
    /// The hub works on the Cluster itself since then. It is kept as one that was revoked, of a Cluster.
    Displaced,
}

impl End {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Revoked | Self::Displaced => "revoked",
            Self::Deleted => "deleted",
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Revoked => "it was revoked",
            Self::Deleted => "the Cluster was deleted",
            Self::Displaced => "it was revoked, for the hub itself works on the cluster, in Push mode",
        })
    }
}

/// Which credentials of a cluster's agent count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The epoch that counts.
    pub epoch: u64,
    pub(super) ended: Option<Ended>,
    /// To whom certificates of it were given first.
    pub(super) issued: Option<Issued>,
}

/// How the epoch before ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) how: End,
    pub(super) since: SystemTime,
    /// Of the Cluster, if it was one that ended it.
    pub(super) uid: String,
    /// The epoch that counted until then.
    pub(super) before: u64,
}

/// To whom certificates of an epoch were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Issued {
    /// By what they were asked for.
    by: String,
    /// The key that was certified last for the agent; empty until one is.
    to: String,
}

impl Issued {
    fn is_by_people(&self) -> bool {
        [BY_APPROVAL, BY_COMMAND].contains(&&*self.by)
    }
}

/// By what a certificate is given that somebody with the right to approve has approved.
pub const BY_APPROVAL: &str = "approval";
/// By what one of `karmada-hub credentials` is.
pub const BY_COMMAND: &str = "credentials";

/// A certificate that is about to be given.
#[derive(Clone, Copy, Debug)]
pub struct Grant<'a> {
    /// By what it is asked for: the uid of a token's Secret, or a word.
    pub by: &'a str,
    /// A digest of the key, if it is the agent's. Who makes its roles is not told apart by keys.
    pub to: Option<&'a str>,
    /// Whether several keys may be certified by that.
    pub several: bool,
}

impl Grant<'_> {
    /// Whether this is somebody else than who was given a certificate by that, over that key.
    pub fn is_of_another(&self, by: &str, to: &str) -> bool {
        let is_other_key = !self.several && !to.is_empty() && self.to.is_some_and(|own| own != to);
        by != self.by || is_other_key
    }
}

impl Record {
    /// What stands for a record that cannot be read: no epoch counts.
    pub(super) const fn damaged() -> Self {
        Self { epoch: u64::MAX, ended: None, issued: None }
    }

    /// The name of a cluster's record.
    pub fn name(cluster: &str) -> String {
        format!("{PREFIX}{cluster}")
    }

    /// The path of a cluster's record.
    pub fn path(cluster: &str) -> String {
        format!("{}/{PREFIX}{cluster}", Self::collection())
    }

    /// The path under which records are made.
    pub fn collection() -> String {
        format!("/api/v1/namespaces/{NAMESPACE}/secrets")
    }

    /// The cluster that an object is a record of.
    pub fn cluster_of<'a>(namespace: &str, name: &'a str) -> Option<&'a str> {
        name.strip_prefix(PREFIX).filter(|_| namespace == NAMESPACE)
    }

    /// Reads a record.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(secret: &Value) -> Result<Self, String> {
        let text = |key| object::annotation(secret, key).unwrap_or_default();
        let epoch = text(EPOCH).parse().map_err(|_| format!("{EPOCH}: {:?} is no number", text(EPOCH)))?;
        let issued = object::annotation(secret, ISSUED_BY).filter(|by| !by.is_empty());
        let issued = issued.map(|by| Issued { by: by.to_owned(), to: text(ISSUED_TO).to_owned() });
        let how = match text(ENDED) {
            "" => return Ok(Self { epoch, ended: None, issued }),
            "revoked" if text(UID).is_empty() => End::Revoked,
            "revoked" => End::Displaced,
            "deleted" => End::Deleted,
            other => return Err(format!("{ENDED}: {other:?} is neither revoked nor deleted")),
        };
        let since: Time =
            text(SINCE).parse().map_err(|_| format!("{SINCE}: {:?} is no time", text(SINCE)))?;
        let before = match text(BEFORE) {
            // Epochs were counted by ones before they were times.
            "" => u64::saturating_sub(epoch, 1),
            number => number.parse().map_err(|_| format!("{BEFORE}: {number:?} is no number"))?,
        };
        let (since, uid) = (since.timestamp().into(), text(UID).to_owned());
        Ok(Self { epoch, ended: Some(Ended { how, since, uid, before }), issued })
    }

    /// The record after an end of the epoch that counts now; none if it is the end of a Cluster (`uid`) that has been noted,
    /// and nobody was given a certificate since.
    #[must_use]
    pub fn end(&self, how: End, uid: &str, now: SystemTime) -> Option<Self> {
        let noted = self.ended.as_ref().is_some_and(|last| last.how == how && last.uid == uid);
        if how == End::Deleted && noted && !self.is_issued() {
            return None;
        }
        let seconds = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let epoch = self.epoch.checked_add(1)?.max(seconds);
        let ended = Ended { how, since: now, uid: uid.to_owned(), before: self.epoch };
        Some(Self { epoch, ended: Some(ended), issued: None })
    }

    /// The record when the hub has begun to work on a Cluster (`uid`) by itself: whoever was its agent, or had a certificate
    /// in store for the name, is that no more, and is not again when the Cluster is handed to an agent later. None if that was
    /// noted, and since then nothing was given, or `shown`.
    #[must_use]
    pub fn displace(&self, uid: &str, shown: bool, now: SystemTime) -> Option<Self> {
        let noted = self.ended.as_ref().is_some_and(|last| last.how == End::Displaced && last.uid == uid);
        if noted && !shown && !self.is_issued() {
            return None;
        }
        self.end(End::Displaced, uid, now)
    }

    /// Whether a certificate of the epoch that counts was given.
    pub const fn is_issued(&self) -> bool {
        self.issued.is_some()
    }

    /// Whether people have given it, and not a token.
    pub fn is_issued_by_people(&self) -> bool {
        self.issued.as_ref().is_some_and(Issued::is_by_people)
    }

    /// The record from then on, when a certificate is given; none if there is no epoch after the one that counts. Until an
    /// agent of that name has registered, nobody knows whose the name is: what was given to somebody else, or to another key
    /// where one alone may have it, ends. Whoever got it first may have meant to wait for the rightful one.
    #[must_use]
    pub fn grant(&self, grant: Grant<'_>, registered: bool, now: SystemTime) -> Option<Self> {
        let Grant { by, to, .. } = grant;
        let last = self.issued.as_ref();
        if registered && last.is_some() {
            return Some(self.clone());
        }
        let is_other = last.is_some_and(|last| {
            // What an administrator has given ends by an administrator's word alone.
            !last.is_by_people() && grant.is_of_another(&last.by, &last.to)
        });
        let mut next = if is_other { self.end(End::Revoked, "", now)? } else { self.clone() };
        let to = to.or_else(|| next.issued.as_ref().map(|last| last.to.as_str())).unwrap_or_default();
        next.issued = Some(Issued { by: by.to_owned(), to: to.to_owned() });
        Some(next)
    }

    /// Writes the record of a cluster into its Secret, a new one if there is none.
    pub fn write(&self, cluster: &str, there: Option<Value>) -> Value {
        let mut secret = there.unwrap_or_else(|| {
            json!({"apiVersion": "v1", "kind": "Secret", "type": TYPE,
                   "metadata": {"name": Self::name(cluster), "namespace": NAMESPACE}})
        });
        object::set_annotation(&mut secret, EPOCH, self.epoch.to_string());
        if let Some(Ended { how, since, uid, before }) = &self.ended {
            object::set_annotation(&mut secret, ENDED, how.as_str());
            object::set_annotation(&mut secret, SINCE, Time::from_system(*since).to_string());
            object::set_annotation(&mut secret, UID, uid.as_str());
            object::set_annotation(&mut secret, BEFORE, before.to_string());
        }
        let (by, to) = self.issued.as_ref().map_or(("", ""), |issued| (&*issued.by, &*issued.to));
        for (key, text) in [(ISSUED_BY, by), (ISSUED_TO, to)] {
            if !text.is_empty() || object::annotation(&secret, key).is_some() {
                object::set_annotation(&mut secret, key, text);
            }
        }
        secret
    }

    /// Why a record may not become another, or go: what has ended stays ended.
    pub fn refuse_change(old: &Value, new: Option<&Value>) -> Option<String> {
        let what = "the epoch of an agent's credentials";
        let Some(new) = new else {
            return Some(format!("{what} is not deleted: credentials that have ended would hold again"));
        };
        match (Self::read(old), Self::read(new)) {
            (_, Err(why)) => Some(why),
            (Ok(old), Ok(new)) if new.epoch < old.epoch => {
                Some(format!("{what} does not go back from {} to {}", old.epoch, new.epoch))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn what_an_agent_was_given_ends_once_when_the_hub_takes_over() {
        let grant = Grant { by: "t", to: Some("k"), several: false };
        let given = Record::default().grant(grant, false, at(1)).expect("given");
        let taken = given.displace("u1", false, at(5)).expect("an epoch");
        assert!(taken.epoch > given.epoch && !taken.is_issued());
        assert_eq!(Record::read(&taken.write("m1", None)), Ok(taken.clone()));
        assert_eq!(taken.displace("u1", false, at(9)), None, "it is noted once");
        for again in [
            // Somebody was let in again, or shows what nobody noted; it is another Cluster.
            taken.grant(grant, false, at(6)).and_then(|record| record.displace("u1", false, at(9))),
            taken.displace("u1", true, at(9)),
            taken.displace("u2", false, at(9)),
            // A certificate may be there of which no record says.
            Record::default().displace("u1", false, at(9)),
            Record::default().end(End::Revoked, "", at(8)).and_then(|end| end.displace("u1", false, at(9))),
        ] {
            assert_eq!(again.map(|record| record.epoch), Some(9));
        }
    }

    #[test]
    fn records_survive_being_written_and_never_go_back() {
        let first = Record::default().end(End::Deleted, "u1", at(5)).expect("an epoch");
        assert_eq!(first.end(End::Deleted, "u1", at(9)), None, "the same end is noted once");
        let given = first
            .grant(Grant { by: BY_COMMAND, to: Some("k"), several: true }, true, at(9))
            .expect("a record");
        let again = given.end(End::Deleted, "u1", at(9)).expect("what was given since ends with it, too");
        assert_eq!((again.epoch, again.end(End::Deleted, "u1", at(10))), (9, None));
        let second = first.end(End::Revoked, "", at(9)).expect("an epoch");
        let (one, two) = (first.write("m1", None), second.write("m1", Some(first.write("m1", None))));
        assert_eq!((Record::read(&one), Record::read(&two)), (Ok(first), Ok(second)));
        assert_eq!((object::name(&two), Record::cluster_of(NAMESPACE, "agent.m1")), ("agent.m1", Some("m1")));
        let mut damaged = two.clone();
        object::set_annotation(&mut damaged, EPOCH, "x");
        let rows = [
            (&one, Some(&two), None),
            (&one, Some(&one), None),
            (&two, Some(&one), Some("does not go back from 9 to 5")),
            (&one, Some(&damaged), Some("is no number")),
            (&one, None, Some("would hold again")),
        ];
        for (old, new, want) in rows {
            let got = Record::refuse_change(old, new);
            assert_eq!(got.is_some(), want.is_some(), "{got:?}");
            assert!(got.unwrap_or_default().contains(want.unwrap_or_default()));
        }
    }

    #[test]
    fn until_an_agent_has_registered_what_somebody_else_got_ends() {
        let by = |by, to, several| Grant { by, to, several };
        let one = Record::default().grant(by("a", Some("k1"), false), false, at(100)).expect("a record");
        assert_eq!((one.epoch, one.is_issued()), (0, true));
        let roles = Record::default().grant(by("a", None, false), false, at(100)).expect("a record");
        let command = Record::default().grant(by(BY_COMMAND, None, true), false, at(100)).expect("a record");
        assert!(command.is_issued_by_people() && !one.is_issued_by_people());
        // before, grant, whether an agent has registered, the epoch from then on
        let rows = [
            (&one, by("a", Some("k1"), false), false, 0),
            (&one, by("a", None, false), false, 0),
            (&one, by("a", Some("k2"), true), false, 0),
            (&one, by("a", Some("k2"), false), false, 100),
            (&one, by("b", Some("k1"), false), false, 100),
            (&one, by("b", None, true), false, 100),
            (&one, by("b", Some("k2"), false), true, 0),
            (&roles, by("a", Some("k1"), false), false, 0),
            (&roles, by("b", Some("k1"), false), false, 100),
            (&one, by(BY_COMMAND, None, true), false, 100),
            (&command, by("a", Some("k1"), false), false, 0),
        ];
        for (before, grant, registered, epoch) in rows {
            let next = before.grant(grant, registered, at(100)).expect("a record");
            assert_eq!((next.epoch, next.is_issued()), (epoch, true), "{before:?}, {grant:?}");
            let written = next.write("m1", Some(before.write("m1", None)));
            assert_eq!(Record::read(&written), Ok(next));
        }
        // The next epoch is nobody's yet.
        let ended = one.end(End::Deleted, "u", at(200)).expect("an epoch");
        assert!(!ended.is_issued());
        let written = ended.write("m1", Some(one.write("m1", None)));
        assert_eq!(Record::read(&written), Ok(ended));
    }
}
