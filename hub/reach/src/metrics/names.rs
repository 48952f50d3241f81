//! The names of members' metrics, for discovery.
//!
//! ```text
//!   GET of a version of the group ─▶ looked of late? ─▶ what is named is named
//!                                          └─ no: the next few members are asked ─▶ what has come in time, the rest the next time
//! ```
//!
//! Members are asked in the name of whoever has come; what one is told all are: names of metrics are discovery, which members
//! show to whoever they know. Each look asks a few members, in turn: a large fleet is never asked at once. What a member names
//! takes the place of what it named before, and there is a bound to it and to all: where it is too much, those that name least
//! come first.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    ops::Bound::{Excluded, Unbounded},
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use karmada_apiserver::{
    authn::UserInfo,
    carried::{CarriedResource, Names},
};
use karmada_meta::status::Status;
use parking_lot::Mutex;
use tokio::{
    sync::OwnedMutexGuard,
    time::{Instant, timeout},
};

use super::super::{
    Shared,
    everywhere::measured::{self, Measured, MetricName},
};

/// After a look there is none for so long, and after one that came to nothing.
const FRESH: Duration = Duration::from_secs(600);
const AGAIN: Duration = Duration::from_secs(60);
/// So long discovery waits for that.
const PATIENCE: Duration = Duration::from_secs(3);
/// Members that one look asks.
const ASKED: usize = 32;
/// The longest name, in bytes. So many are taken of one member.
pub(crate) const NAME: usize = 128;
pub(crate) const OF_ONE: usize = 500;
/// The bytes of all that are named.
const BYTES: usize = 256 << 10;
/// Members of which names are kept: those that were heard last.
const MEMBERS: usize = 512;

/// The names of the metrics of a group.
#[derive(Clone)]
pub(super) struct Metrics {
    shared: Arc<Shared>,
    /// The paths of discovery on members, the first one that there is.
    paths: Arc<[String]>,
    of: Measured,
    /// When it may be looked again. Locked while somebody looks.
    next: Arc<tokio::sync::Mutex<Option<Instant>>>,
    found: Arc<Mutex<Found>>,
}

/// What has been found out.
#[derive(Debug, Default)]
struct Found {
    /// By member, with the number of the look.
    members: BTreeMap<String, (u64, Vec<MetricName>)>,
    looks: u64,
    /// The last one that was asked.
    last: String,
    named: BTreeSet<MetricName>,
    /// It is to be named anew.
    news: bool,
}

impl Found {
    /// Whom the next look asks: those that follow the last one.
    fn turn(&mut self, clusters: &BTreeSet<String>) -> Vec<String> {
        let after = clusters.range::<str, _>((Excluded(self.last.as_str()), Unbounded));
        let asked: Vec<String> = after.chain(clusters).take(ASKED.min(clusters.len())).cloned().collect();
        if let Some(last) = asked.last() {
            self.last.clone_from(last);
        }
        asked
    }

    /// What these members name now. Those that are gone name nothing.
    fn learn(&mut self, clusters: &BTreeSet<String>, heard: Vec<(String, Vec<MetricName>)>) {
        self.looks += 1;
        self.members.retain(|name, _| clusters.contains(name));
        self.members.extend(heard.into_iter().map(|(name, names)| (name, (self.looks, names))));
        while self.members.len() > MEMBERS {
            let oldest = self.members.iter().min_by_key(|(_, (look, _))| *look).map(|(name, _)| name.clone());
            oldest.and_then(|name| self.members.remove(&name));
        }
        let bytes = |names: &[MetricName]| names.iter().map(|metric| metric.name.len()).sum::<usize>();
        let mut all: Vec<&[MetricName]> = self.members.values().map(|(_, names)| &**names).collect();
        all.sort_by_cached_key(|names| bytes(names));
        let (mut named, mut left) = (BTreeSet::new(), BYTES);
        for metric in all.into_iter().flatten() {
            if named.contains(metric) {
                continue;
            }
            let Some(less) = left.checked_sub(metric.name.len()) else { break };
            left = less;
            named.insert(metric.clone());
        }
        self.news |= named != self.named;
        self.named = named;
    }
}

impl Metrics {
    /// Nothing for what has its names already.
    pub(super) fn of(
        shared: &Arc<Shared>,
        group: &str,
        versions: &[&str],
        of: Measured,
    ) -> Option<Arc<dyn Names>> {
        if of == Measured::Resources {
            return None;
        }
        let paths = versions.iter().map(|version| format!("/apis/{group}/{version}")).collect();
        let shared = shared.clone();
        Some(Arc::new(Self { shared, paths, of, next: Arc::default(), found: Arc::default() }))
    }

    /// Whoever gets this looks.
    fn turn(&self) -> Option<OwnedMutexGuard<Option<Instant>>> {
        let next = self.next.clone().try_lock_owned().ok()?;
        next.is_none_or(|next| next <= Instant::now()).then_some(next)
    }

    /// Whether any member was heard, or there is none.
    async fn find(&self, user: &UserInfo, audit_id: &str) -> Result<bool, Status> {
        let clusters: BTreeSet<String> = self.shared.registry.clusters().await?.into_iter().collect();
        let asked = self.found.lock().turn(&clusters);
        let heard = measured::names(&self.shared, user, audit_id, (&self.paths, self.of), asked).await?;
        let is_something = clusters.is_empty() || !heard.is_empty();
        self.found.lock().learn(&clusters, heard);
        Ok(is_something)
    }

    fn named(&self) -> Option<Arc<[CarriedResource]>> {
        let mut found = self.found.lock();
        let kind = if self.of == Measured::Custom { "MetricValueList" } else { "ExternalMetricValueList" };
        let resource = |MetricName { name, namespaced }: &MetricName| CarriedResource {
            name: Cow::Owned(name.clone()),
            kind,
            namespaced: *namespaced,
            verbs: &["get"],
        };
        std::mem::take(&mut found.news).then(|| found.named.iter().map(resource).collect())
    }
}

impl Names for Metrics {
    fn look(&self, user: &UserInfo, audit_id: &str) -> BoxFuture<'static, Option<Arc<[CarriedResource]>>> {
        let (this, user, audit_id) = (self.clone(), user.clone(), audit_id.to_owned());
        Box::pin(async move {
            if let Some(mut turn) = this.turn() {
                let looking = this.clone();
                // Goes on when discovery does not wait any longer.
                let task = tokio::spawn(async move {
                    let pause = match looking.find(&user, &audit_id).await {
                        Ok(true) => FRESH,
                        Ok(false) | Err(_) => AGAIN,
                    };
                    *turn = Some(Instant::now() + pause);
                });
                let _ = timeout(PATIENCE, task).await;
            }
            this.named()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(names: impl IntoIterator<Item = String>) -> Vec<MetricName> {
        names.into_iter().map(|name| MetricName { name, namespaced: true }).collect()
    }

    fn fleet(size: usize) -> BTreeSet<String> {
        (0..size).map(|n| format!("m{n:03}")).collect()
    }

    #[test]
    fn members_are_asked_in_turn_a_few_at_a_time() {
        let (mut found, clusters) = (Found::default(), fleet(70));
        let asked: Vec<Vec<String>> = (0..3).map(|_| found.turn(&clusters)).collect();
        assert!(asked.iter().all(|one| one.len() == ASKED));
        assert_eq!(asked.concat().into_iter().collect::<BTreeSet<_>>(), clusters, "each has had its turn");
        assert_eq!(found.turn(&fleet(3)), ["m000", "m001", "m002"]);
        assert!(found.turn(&BTreeSet::new()).is_empty());
    }

    #[test]
    fn a_member_that_makes_names_up_takes_none_from_others() {
        let (mut found, clusters) = (Found::default(), fleet(9));
        let honest = || ("m000".to_owned(), metrics(["pods/hits".to_owned()]));
        let made_up = |look: usize, member: usize| {
            metrics((0..OF_ONE).map(move |n| format!("a/{:0>100}", n + 1000 * (member + 10 * look))))
        };
        found.learn(&clusters, vec![honest()]);
        assert!(std::mem::take(&mut found.news));
        found.learn(&clusters, vec![honest()]);
        assert!(!found.news, "nothing new");
        for look in 0..10 {
            let evil = (1..9).map(|member| (format!("m{member:03}"), made_up(look, member)));
            found.learn(&clusters, evil.collect());
            assert!(found.named.contains(&honest().1[0]), "{look}");
            let bytes: usize = found.named.iter().map(|metric| metric.name.len()).sum();
            assert!((BYTES / 2..=BYTES).contains(&bytes), "{bytes} bytes");
        }
        // What it names takes the place of what it named, and who is gone names nothing.
        found.learn(&fleet(3), vec![("m001".to_owned(), Vec::new())]);
        assert_eq!(found.named.len(), 1 + OF_ONE);
        found.learn(&fleet(1), Vec::new());
        assert_eq!(found.named.into_iter().collect::<Vec<_>>(), honest().1);
    }

    #[test]
    fn names_of_so_many_members_are_kept() {
        let (mut found, clusters) = (Found::default(), fleet(MEMBERS + 40));
        for name in &clusters {
            found.learn(&clusters, vec![(name.clone(), metrics([format!("pods/{name}")]))]);
        }
        assert_eq!(found.named.len(), MEMBERS);
        assert!(!found.members.contains_key("m000") && found.members.contains_key("m551"));
    }
}
