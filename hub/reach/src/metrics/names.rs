//! The names of members' metrics, for discovery.
//!
//! ```text
//!   GET of a version of the group ─▶ looked within the last minute? ─▶ what is named is named
//!                                          └─ no: all members are asked, once ─▶ what has come in time, the rest the next time
//! ```
//!
//! Members are asked in the name of whoever has come; what one is told all are: names of metrics are discovery, which members
//! show to whoever they know. There is a bound to what one member names, and to all.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use karmada_apiserver::{
    authn::UserInfo,
    carried::{CarriedResource, Names},
};
use parking_lot::Mutex;
use tokio::{
    sync::OwnedMutexGuard,
    time::{Instant, timeout},
};

use super::super::{
    Shared,
    everywhere::measured::{self, Measured, MetricName},
};

/// For so long what is named is not looked for again.
const FRESH: Duration = Duration::from_secs(60);
/// So long discovery waits for that.
const PATIENCE: Duration = Duration::from_secs(3);
/// For so long a metric is named that was not named again, while a member is not heard.
const KEPT: Duration = Duration::from_secs(3600);
/// So many are named of one member, and of all.
pub(crate) const OF_ONE: usize = 2_000;
pub(crate) const OF_ALL: usize = 10_000;

/// What has been found out, by name and whether it is in namespaces.
type Seen = BTreeMap<MetricName, Instant>;

/// The names of the metrics of a group.
#[derive(Clone)]
pub(super) struct Metrics {
    shared: Arc<Shared>,
    /// The paths of discovery on members, the first one that there is.
    paths: Arc<[String]>,
    of: Measured,
    /// When it was looked last. Locked while somebody looks.
    looked: Arc<tokio::sync::Mutex<Option<Instant>>>,
    found: Arc<Mutex<Found>>,
}

#[derive(Default)]
struct Found {
    seen: Seen,
    /// It is to be named anew.
    news: bool,
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
        Some(Arc::new(Self { shared, paths, of, looked: Arc::default(), found: Arc::default() }))
    }

    /// Whoever gets this looks.
    fn turn(&self) -> Option<OwnedMutexGuard<Option<Instant>>> {
        let mut looked = self.looked.clone().try_lock_owned().ok()?;
        let now = Instant::now();
        if looked.is_some_and(|at| now.duration_since(at) < FRESH) {
            return None;
        }
        *looked = Some(now);
        Some(looked)
    }

    async fn find(&self, user: &UserInfo, audit_id: &str) {
        let Ok((names, all_heard)) =
            measured::names(&self.shared, user, audit_id, &self.paths, self.of).await
        else {
            return;
        };
        let mut found = self.found.lock();
        let now = Instant::now();
        let before: Vec<MetricName> = found.seen.keys().cloned().collect();
        found.seen.extend(names.into_iter().map(|name| (name, now)));
        let age = if all_heard { Duration::ZERO } else { KEPT };
        found.seen.retain(|_, seen| now.duration_since(*seen) <= age);
        while found.seen.len() > OF_ALL {
            found.seen.pop_last();
        }
        let is_other = !found.seen.keys().eq(before.iter());
        found.news |= is_other;
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
        std::mem::take(&mut found.news).then(|| found.seen.keys().map(resource).collect())
    }
}

impl Names for Metrics {
    fn look(&self, user: &UserInfo, audit_id: &str) -> BoxFuture<'static, Option<Arc<[CarriedResource]>>> {
        let (this, user, audit_id) = (self.clone(), user.clone(), audit_id.to_owned());
        Box::pin(async move {
            if let Some(turn) = this.turn() {
                let looking = this.clone();
                // Goes on when discovery does not wait any longer.
                let task = tokio::spawn(async move {
                    looking.find(&user, &audit_id).await;
                    drop(turn);
                });
                let _ = timeout(PATIENCE, task).await;
            }
            this.named()
        })
    }
}
