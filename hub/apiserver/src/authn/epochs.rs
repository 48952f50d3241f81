//! Credentials that end before their time: an epoch for each cluster's agent.
//!
//! ```text
//!   Secret karmada-cluster/agent.NAME ─► store ─► follower ─► Epochs ◄─ every request with an agent's certificate
//!   (cluster revoke, or the Cluster has gone)                   └─► what is open by an older one ends
//! ```
//!
//! A certificate carries the epoch that counted when it was issued (`OU=epoch:N`; without one it is of epoch 0). The record of a
//! cluster says which epoch counts now; without a record it is 0. There is nothing to list and nothing to clean up: all
//! certificates of earlier epochs have ended, however many there are.
//!
//! | the certificate's epoch | how the one before ended | answer |
//! |---|---|---|
//! | that of the record, or later | | accepted |
//! | the one before, or between the two | the Cluster was deleted, less than ten minutes ago, and neither a newer certificate nor another Cluster of that name has come | may read and delete, so that its agent, `karmadactl unregister` and `remove-agent.sh` see that the Cluster is gone |
//! | any other | | refused |
//!
//! A certificate of a later epoch than the record's is one that the same authority issued: the hub has been restored from an
//! older backup. Therefore epochs are not counted from the record alone: the next one is the Unix time, in seconds, or one
//! more than the record's, whichever is later. No epoch that was ever given is later than its time, so that after a restore
//! one revocation ends all that was issued, as long as clocks do not go back.
//!
//! Until an agent has registered by a name nobody knows whose the name is. Therefore the record says by what certificates were
//! given, from the commit that signs the first one on: the first that another token gets begins a new epoch
//! ([`Record::grant`]), so that nobody has one in store for a cluster that comes later.

mod record;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use karmada_store::{Key, Snapshot};
use karmada_telemetry::metrics::{Sheet, Source};
use parking_lot::Mutex;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{follow::Derived, storage::Header};

pub use self::record::{BY_APPROVAL, BY_COMMAND, EPOCH, End, Grant, NAMESPACE, Record, TYPE};

/// The resources as the store names them.
const SECRETS: &str = "core/secrets";
const CLUSTERS: &str = "cluster.karmada.io/clusters";

/// A certificate of which less than one part of so many is left ends soon: whoever renews in time has a new one by then.
const SOON: u32 = 4;
/// One that ends later than this does not end soon, however long it was made for.
const NOT_SOON: Duration = Duration::from_secs(30 * 24 * 3600);

/// How long the agent of a Cluster that has gone may still see that.
const FAREWELL: Duration = Duration::from_secs(600);

/// From when to when a certificate holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Its beginning.
    pub from: SystemTime,
    /// Its end.
    pub until: SystemTime,
}

impl Validity {
    /// Whether it ends soon, or has ended: a matter of its own life, since one of 30 days has just begun when another of a
    /// year is late.
    pub fn ends_soon(&self, now: SystemTime) -> bool {
        let life = self.until.duration_since(self.from).unwrap_or_default();
        self.until < now + (life / SOON).min(NOT_SOON)
    }
}

/// For how long what was shown holds.
#[derive(Clone, Debug)]
pub struct Hold {
    /// Ends when the epoch does.
    pub ended: CancellationToken,
    /// The latest end.
    pub until: SystemTime,
    /// Only to see that the Cluster has gone.
    pub leaving: bool,
}

#[derive(Debug, Default)]
struct Entry {
    record: Record,
    /// Ends what was opened by a certificate that counted.
    current: CancellationToken,
    /// Ends what was opened by one that may only read.
    leaving: CancellationToken,
    /// A certificate of the epoch that counts has come, or another Cluster of the name: nobody takes leave any more.
    superseded: bool,
    /// That of the certificate that was last shown and accepted.
    shown: Option<Validity>,
    /// The authority of that one.
    authority: Vec<u8>,
}

impl Entry {
    fn take(&mut self, record: Record) {
        if record.epoch > self.record.epoch {
            // Whoever holds these is told; those that come next are not.
            std::mem::take(&mut self.current).cancel();
            std::mem::take(&mut self.leaving).cancel();
            (self.superseded, self.shown) = (false, None);
            self.authority.clear();
        }
        self.record = record;
    }

    /// Ends the farewell of what was deleted.
    fn supersede(&mut self) {
        if !std::mem::replace(&mut self.superseded, true) {
            std::mem::take(&mut self.leaving).cancel();
        }
    }

    /// Takes note of the Cluster that there is.
    fn meet(&mut self, uid: &str) {
        if matches!(&self.record.ended, Some(last) if last.how == End::Deleted && last.uid != uid) {
            self.supersede();
        }
    }
}

/// The records of all clusters, as new as the store. There are as many entries as clusters whose certificates were shown or
/// have ended; a name that no certificate of the authority bears makes none.
#[derive(Debug, Default)]
pub struct Epochs {
    clusters: Mutex<BTreeMap<Arc<str>, Entry>>,
}

impl Epochs {
    /// Judges a certificate of a cluster's agent that its authority has signed.
    ///
    /// # Errors
    /// How its epoch ended.
    pub fn judge(&self, cluster: &str, epoch: u64, validity: Validity, now: SystemTime) -> Result<Hold, End> {
        let not_after = validity.until;
        let mut clusters = self.clusters.lock();
        if !clusters.contains_key(cluster) {
            clusters.insert(cluster.into(), Entry::default());
        }
        let entry = clusters.get_mut(cluster).expect("it was put there");
        if epoch >= entry.record.epoch {
            entry.supersede();
            entry.shown = Some(validity);
            return Ok(Hold { ended: entry.current.clone(), until: not_after, leaving: false });
        }
        let (how, since, last) = match &entry.record.ended {
            Some(ended) => (ended.how, ended.since, epoch >= ended.before),
            None => (End::Revoked, SystemTime::UNIX_EPOCH, false),
        };
        let farewell = since + FAREWELL;
        if how == End::Deleted && last && !entry.superseded && now < farewell {
            return Ok(Hold { ended: entry.leaving.clone(), until: farewell.min(not_after), leaving: true });
        }
        Err(how)
    }

    /// Judges a certificate by which the roles of a cluster's agent are made: it ends when the agent's do, and is none of
    /// the agent's.
    ///
    /// # Errors
    /// How its epoch ended.
    pub fn judge_generator(&self, cluster: &str, epoch: u64, until: SystemTime) -> Result<Hold, End> {
        let mut clusters = self.clusters.lock();
        if !clusters.contains_key(cluster) {
            clusters.insert(cluster.into(), Entry::default());
        }
        let entry = clusters.get(cluster).expect("it was put there");
        if epoch >= entry.record.epoch {
            return Ok(Hold { ended: entry.current.clone(), until, leaving: false });
        }
        Err(entry.record.ended.as_ref().map_or(End::Revoked, |ended| ended.how))
    }

    /// The clusters whose agents have shown a certificate to this process, when it ends, and whether that is soon.
    pub fn ends(&self, now: SystemTime) -> Vec<(Arc<str>, SystemTime, bool)> {
        let clusters = self.clusters.lock();
        let shown = clusters.iter().filter_map(|(name, entry)| Some((name.clone(), entry.shown?)));
        shown.map(|(name, shown)| (name, shown.until, shown.ends_soon(now))).collect()
    }

    /// The certificate that was accepted last is of this authority.
    pub(crate) fn certified_by(&self, cluster: &str, authority: &[u8]) {
        if let Some(entry) = self.clusters.lock().get_mut(cluster)
            && entry.authority != authority
        {
            entry.authority = authority.to_vec();
        }
    }

    /// The clusters whose agents have shown a certificate to this process, with the authority of the last one as
    /// certificates refer to it, in hexadecimal.
    pub fn authorities(&self) -> BTreeMap<Arc<str>, String> {
        let clusters = self.clusters.lock();
        let shown = clusters.iter().filter(|(_, entry)| entry.shown.is_some());
        let hex = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect();
        shown.map(|(name, entry)| (name.clone(), hex(&entry.authority))).collect()
    }

    /// Whether a certificate of the epoch that counts has been accepted by this process.
    pub fn was_shown(&self, cluster: &str) -> bool {
        self.clusters.lock().get(cluster).is_some_and(|entry| entry.shown.is_some())
    }

    /// Has a record of a cluster, as if it had come from the store.
    #[cfg(test)]
    pub(crate) fn put(&self, cluster: &str, record: Record) {
        self.clusters.lock().entry(cluster.into()).or_default().take(record);
    }

    /// A Cluster of another uid than the one that was deleted is another's.
    fn meet(&self, cluster: &str, now: &Snapshot<Header>) {
        if let Some(there) = now.find(CLUSTERS, "", cluster)
            && let Some(entry) = self.clusters.lock().get_mut(cluster)
        {
            entry.meet(&there.header.uid);
        }
    }

    fn take(&self, cluster: &str, now: &Snapshot<Header>) {
        let record = match now.find(SECRETS, NAMESPACE, &Record::name(cluster)) {
            None => Record::default(),
            Some(secret) => {
                let read = serde_json::from_slice(&secret.value.get()).map_err(|error| error.to_string());
                read.and_then(|secret: Value| Record::read(&secret)).unwrap_or_else(|why| {
                    // Nobody gets in by a damaged record.
                    tracing::error!(
                        cluster,
                        why,
                        "the record of credentials cannot be read: none of them holds"
                    );
                    Record::damaged()
                })
            }
        };
        let mut clusters = self.clusters.lock();
        match clusters.get_mut(cluster) {
            Some(entry) => entry.take(record),
            None if record == Record::default() => {}
            None => drop(clusters.insert(cluster.into(), Entry { record, ..Entry::default() })),
        }
    }
}

impl Derived for Epochs {
    fn resources(&self) -> &[&'static str] {
        &[SECRETS, CLUSTERS]
    }

    fn rebuild(&self, now: &Snapshot<Header>) {
        let mut names: BTreeSet<String> = self.clusters.lock().keys().map(ToString::to_string).collect();
        let secrets = now.range(SECRETS, Some(NAMESPACE), None);
        names.extend(secrets.filter_map(|secret| {
            Record::cluster_of(&secret.key.namespace, &secret.key.name).map(str::to_owned)
        }));
        names.iter().for_each(|cluster| {
            self.take(cluster, now);
            self.meet(cluster, now);
        });
    }

    fn update(&self, changed: &BTreeSet<Key>, now: &Snapshot<Header>) {
        let records = changed.iter().filter_map(|key| Record::cluster_of(&key.namespace, &key.name));
        records.for_each(|cluster| {
            self.take(cluster, now);
            self.meet(cluster, now);
        });
        let clusters = changed.iter().filter(|key| *key.resource == *CLUSTERS);
        clusters.for_each(|key| self.meet(&key.name, now));
    }
}

/// [`Epochs::ends`] for a page.
#[derive(Clone, Debug)]
pub struct EndingFigures {
    epochs: Arc<Epochs>,
    env: karmada_env::Env,
}

impl EndingFigures {
    /// Of certificates that end soon, by [`Validity::ends_soon`].
    pub fn new(epochs: Arc<Epochs>, env: karmada_env::Env) -> Self {
        Self { epochs, env }
    }
}

impl Source for EndingFigures {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let ends = self.epochs.ends(self.env.wall());
        sheet.one_gauge(
            "karmada_hub_agent_certificates_ending",
            "Agents whose certificates have ended, or have less than a quarter of their life left (and less than 30 days); the conditions CredentialExpiring name them.",
            ends.iter().filter(|(_, _, soon)| *soon).count() as f64,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn until(seconds: u64) -> Validity {
        Validity { from: at(0), until: at(seconds) }
    }

    #[test]
    fn an_epoch_ends_what_came_before_it() {
        let revoked = Record::default().end(End::Revoked, "", at(100)).expect("an epoch");
        let deleted = Record::default().end(End::Deleted, "u", at(100)).expect("an epoch");
        let twice = deleted.end(End::Revoked, "", at(101)).expect("an epoch");
        let mut counted = Record { epoch: 7, ..deleted.clone() }.write("m1", None);
        let annotations = counted["metadata"]["annotations"].as_object_mut().expect("annotations");
        annotations.remove("hub.karmada.io/credential-epoch-before");
        let counted = Record::read(&counted).expect("a record");
        // record, the certificate's epoch, when, verdict: may do all, may read, or how it ended
        let rows = [
            (&Record::default(), 0, 0, Ok(false)),
            (&Record::default(), 3, 0, Ok(false)),
            (&revoked, 0, 100, Err(End::Revoked)),
            (&revoked, 99, 100, Err(End::Revoked)),
            (&revoked, 100, 100, Ok(false)),
            (&deleted, 0, 100, Ok(true)),
            (&deleted, 0, 699, Ok(true)),
            (&deleted, 0, 700, Err(End::Deleted)),
            (&deleted, 100, 100, Ok(false)),
            (&twice, 0, 101, Err(End::Revoked)),
            (&twice, 100, 101, Err(End::Revoked)),
            (&twice, 101, 101, Ok(false)),
            // Counted by ones, by a hub of before.
            (&counted, 6, 100, Ok(true)),
            (&counted, 5, 100, Err(End::Deleted)),
            (&counted, 7, 100, Ok(false)),
        ];
        for (record, epoch, when, want) in rows {
            let epochs = Epochs::default();
            epochs.clusters.lock().insert("m1".into(), Entry { record: record.clone(), ..Entry::default() });
            let got = epochs.judge("m1", epoch, until(1000), at(when)).map(|hold| hold.leaving);
            assert_eq!(got, want, "{record:?}, epoch {epoch} at {when}");
        }
    }

    #[test]
    fn a_revocation_after_a_restore_ends_what_was_issued_since_the_backup() {
        let backup = Record::default();
        let end = |record: &Record, when| record.end(End::Revoked, "", at(when)).expect("an epoch");
        let issued = end(&end(&backup, 1000), 1000);
        assert_eq!(issued.epoch, 1001, "two in one second");
        // The hub is restored: the record is that of the backup, the agent has what was issued since.
        let epochs = Epochs::default();
        let judge = |epoch| epochs.judge("m1", epoch, until(9000), at(3000)).map(|hold| hold.leaving);
        assert_eq!(judge(issued.epoch), Ok(false), "it holds on");
        let take = |record: &Record| {
            epochs.clusters.lock().get_mut("m1").expect("known").take(record.clone());
        };
        take(&end(&backup, 2000));
        assert_eq!(judge(issued.epoch), Err(End::Revoked));
        // A Cluster that is deleted then lets its agent see that.
        let gone = backup.end(End::Deleted, "u", at(3000)).expect("an epoch");
        take(&gone);
        assert_eq!(judge(issued.epoch), Ok(true));
        assert_eq!(judge(gone.epoch), Ok(false));
        // A clock that went back still counts on.
        assert_eq!(end(&issued, 500).epoch, 1002);
    }

    #[test]
    fn what_is_open_ends_with_its_epoch_and_a_newer_certificate_ends_the_farewell() {
        let epochs = Epochs::default();
        let take = |record: Record| epochs.clusters.lock().get_mut("m1").expect("known").take(record);
        let before = epochs.judge("m1", 0, until(1000), at(0)).expect("it counts");
        let deleted = Record::default().end(End::Deleted, "u", at(10)).expect("an epoch");
        take(deleted.clone());
        assert!(before.ended.is_cancelled());
        let leaving = epochs.judge("m1", 0, until(1000), at(11)).expect("it may read");
        assert_eq!((leaving.leaving, leaving.until, leaving.ended.is_cancelled()), (true, at(610), false));
        let new = epochs.judge("m1", 10, until(1000), at(12)).expect("the new one counts");
        assert!(leaving.ended.is_cancelled() && !new.ended.is_cancelled());
        assert_eq!(epochs.judge("m1", 0, until(1000), at(13)).map(drop), Err(End::Deleted));
        // The same record again ends nothing.
        take(deleted);
        assert!(!new.ended.is_cancelled());
    }

    #[test]
    fn another_cluster_of_the_name_ends_the_farewell_and_the_one_that_goes_does_not() {
        let epochs = Epochs::default();
        epochs.judge("m1", 0, until(1000), at(0)).expect("it counts");
        assert!(epochs.was_shown("m1") && !epochs.was_shown("m2"));
        let deleted = Record::default().end(End::Deleted, "u", at(10)).expect("an epoch");
        let with = |change: &dyn Fn(&mut Entry)| change(epochs.clusters.lock().get_mut("m1").expect("known"));
        with(&|entry| entry.take(deleted.clone()));
        assert!(!epochs.was_shown("m1"), "none of the epoch that counts");
        with(&|entry| entry.meet("u"));
        let leaving = epochs.judge("m1", 0, until(1000), at(11)).expect("it may read");
        with(&|entry| entry.meet("v"));
        assert!(leaving.ended.is_cancelled());
        assert_eq!(epochs.judge("m1", 0, until(1000), at(12)).map(drop), Err(End::Deleted));
        assert!(!epochs.was_shown("m1"));
    }

    #[test]
    fn certificates_that_end_soon_are_told() {
        let day = 24 * 3600;
        // Days of its life, days that have gone of it, whether it ends soon.
        let rows = [
            (30, 0, false),
            (30, 15, false),
            (30, 22, false),
            (30, 23, true),
            (30, 31, true),
            (365, 0, false),
            (365, 334, false),
            (365, 336, true),
        ];
        for (life, gone, want) in rows {
            let epochs = Epochs::default();
            epochs.judge("m1", 0, Validity { from: at(0), until: at(life * day) }, at(0)).expect("it counts");
            let ends = epochs.ends(at(gone * day));
            assert_eq!(ends, [("m1".into(), at(life * day), want)], "{life} days, of which {gone} have gone");
        }
        let epochs = Epochs::default();
        epochs.judge("m1", 0, until(100), at(0)).expect("it counts");
        assert!(epochs.ends(at(90))[0].2);
        epochs.judge("m1", 0, until(9000), at(90)).expect("a new one was shown");
        assert!(!epochs.ends(at(90))[0].2);
    }
}
