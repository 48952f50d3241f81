//! How much may be stored, in all and by whom.
//!
//! An account is an agent's: of what stands in its execution namespace, of its Cluster, Lease and Secrets, and apart from
//! those of the events that bear its mark, wherever they stand: what others tell about its Cluster and its Works takes none of
//! its room. What it asks to have certified is a third one, and what is asked by a bootstrap token one of that token's. It
//! follows from an object alone, so that what is counted is the same after a restart. Only the agent is bound by it: what the
//! platform itself stores there counts, too, and goes on. [`karmada_store::Terms`] has the rest.

use std::sync::Arc;

use karmada_meta::status::Status;
use karmada_store::{Account, Exceeded, Key, Purpose, Terms, Used};

use crate::{
    identity::{
        AGENT_PREFIX, BOOTSTRAP_PREFIX, BOOTSTRAPPERS, CLUSTER_NAMESPACE, EXECUTION_PREFIX, UserInfo,
        agent_cluster, generator_cluster,
    },
    pki::MASTERS,
};

/// Where events are stored.
pub(crate) const EVENTS: &str = "core/events";
const CLUSTERS: &str = "cluster.karmada.io/clusters";
const LEASES: &str = "coordination.k8s.io/leases";
/// Begins the account of an agent's events.
const OF_EVENTS: &str = "events of ";
/// Begins the account of what one machine asks to have certified.
const OF_REQUESTS: &str = "requests for certificates of ";
/// What these may take: of an agent some fifty that were signed within the hour for which they are kept. A token may be
/// that of many machines, whose requests wait for somebody to approve them.
const REQUESTS_OF_AGENT: u64 = 256 << 10;
const REQUESTS_OF_TOKEN: u64 = 512 << 10;

/// How much may be stored, in bytes by [`karmada_store::Used`]; 0 stands for anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageQuota {
    /// In all.
    pub whole: u64,
    /// What one agent may make of what is its own, its events aside.
    pub agent: u64,
    /// What it may store in events.
    pub agent_events: u64,
}

impl Default for StorageQuota {
    /// For the whole, etcd's; for each agent what [`StorageQuota::of`] makes of it.
    fn default() -> Self {
        Self::of(2 << 30)
    }
}

impl StorageQuota {
    /// Nothing is bounded.
    pub const NONE: Self = Self { whole: 0, agent: 0, agent_events: 0 };

    /// An eighth of the whole for each agent: with Works of 20 kB more than ten thousand of 2 GiB, and it takes eight stolen
    /// agents to fill what agents may fill. An eighth of that for its events, some ten thousand of them an hour.
    pub const fn of(whole: u64) -> Self {
        Self { whole, agent: whole / 8, agent_events: whole / 64 }
    }

    /// The account that an object counts for. `teller` reads by the agent of which cluster an event was told.
    pub(crate) fn account<'a>(
        &self,
        key: &'a Key,
        teller: impl FnOnce() -> Option<&'a str>,
    ) -> Option<Account> {
        let (cluster, events) = owner(key, teller)?;
        Some(self.named(cluster, events))
    }

    fn named(&self, cluster: &str, events: bool) -> Account {
        let prefix = if events { OF_EVENTS } else { "" };
        Account { name: format!("{prefix}agent {cluster}").into(), limit: self.limit(events) }
    }

    /// The account of requests for certificates that a user has made.
    pub(crate) fn requests(user: &str) -> Option<Account> {
        let agent = user.strip_prefix(AGENT_PREFIX).map(|cluster| ("agent", cluster, REQUESTS_OF_AGENT));
        let token =
            || user.strip_prefix(BOOTSTRAP_PREFIX).map(|id| ("bootstrap token", id, REQUESTS_OF_TOKEN));
        let (what, name, limit) = agent.or_else(token)?;
        Some(Account { name: format!("{OF_REQUESTS}{what} {name}").into(), limit })
    }

    const fn limit(&self, events: bool) -> u64 {
        if events { self.agent_events } else { self.agent }
    }

    /// How many accounts have used most of what is theirs: four parts of five.
    pub(crate) fn nearly_full(&self, used: &Used) -> usize {
        let full = |(name, usage): &(&Arc<str>, &karmada_store::Usage)| {
            let limit = self.limit(name.starts_with(OF_EVENTS));
            // What is asked for goes within the hour.
            !name.starts_with(OF_REQUESTS) && limit > 0 && usage.bytes >= limit / 5 * 4
        };
        used.accounts.iter().filter(full).count()
    }
}

/// The cluster whose agent an object counts for, and whether it does as an event.
fn owner<'a>(key: &'a Key, teller: impl FnOnce() -> Option<&'a str>) -> Option<(&'a str, bool)> {
    let (resource, namespace, name) = (&*key.resource, &*key.namespace, &*key.name);
    let events = resource == EVENTS;
    let cluster = match namespace {
        // What it is about, and where it stands, does not count: users tell events, too, and so does the hub.
        _ if events => teller(),
        "" => (resource == CLUSTERS).then_some(name),
        CLUSTER_NAMESPACE => Some(name.strip_suffix("-impersonator").unwrap_or(name)),
        namespace => namespace.strip_prefix(EXECUTION_PREFIX),
    };
    cluster.filter(|cluster| !cluster.is_empty()).map(|cluster| (cluster, events))
}

/// On which terms somebody writes an object of a resource. Leases are upkeep, so that a fleet does not look dead for want
/// of room.
pub(crate) fn terms(user: &UserInfo, resource: &str, purpose: Purpose) -> Terms {
    let purpose = if resource == LEASES { Purpose::Upkeep } else { purpose };
    let machine =
        agent_cluster(user).or_else(|| generator_cluster(user)).is_some() || user.in_group(BOOTSTRAPPERS);
    Terms { purpose, guest: machine && !user.in_group(MASTERS) }
}

/// What a writer is told for whom there is no room. A client that is not told when to come back does so by its own
/// backoff: trying at once would not help. Not a 403, which agents take for a right that they lack and for good.
pub(crate) fn refusal(exceeded: &Exceeded) -> Status {
    let Exceeded { account, used, limit } = exceeded;
    let message = match account {
        Some(account) if account.starts_with(OF_REQUESTS) => {
            let why = format!("too many {account} are kept: {used} of {limit} bytes");
            return Status::too_many_requests(why, 60);
        }
        Some(account) => format!(
            "exceeded quota: {account} takes {used} of {limit} bytes; it can delete what it no longer needs, or whoever \
             runs the hub can raise --agent-storage-quota"
        ),
        None => format!(
            "exceeded quota: the hub stores {used} bytes, and may store {limit} for this; delete what is no longer needed, or \
             raise --storage-quota where the memory allows it; deletions and status go on"
        ),
    };
    Status::insufficient_storage(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_counts_for_whom_it_is_about() {
        let cases = [
            ("a Work", "work.karmada.io/works", "karmada-es-a", "w", None, Some(("a", false))),
            ("its event", EVENTS, "karmada-es-a", "w.1", Some("a"), Some(("a", true))),
            ("the hub's about its Work", EVENTS, "karmada-es-a", "w.2", Some(""), None),
            ("its event about its Cluster", EVENTS, "default", "a.1", Some("a"), Some(("a", true))),
            ("a user's about its Cluster", EVENTS, "default", "a.2", Some(""), None),
            ("about a Cluster of another API", EVENTS, "default", "b.1", Some("a"), Some(("a", true))),
            ("about its template", EVENTS, "shop", "w.1", Some("a"), Some(("a", true))),
            ("somebody else's about it", EVENTS, "shop", "w.2", Some(""), None),
            ("a user's beside the Secrets", EVENTS, "karmada-cluster", "a", Some(""), None),
            ("one that says nothing", EVENTS, "default", "a.3", None, None),
            ("no event", "core/configmaps", "default", "a", None, None),
            ("its Cluster", CLUSTERS, "", "a", None, Some(("a", false))),
            ("its Lease", LEASES, "karmada-cluster", "a", None, Some(("a", false))),
            ("its Secret", "core/secrets", "karmada-cluster", "a-impersonator", None, Some(("a", false))),
            ("another's Secret", "core/secrets", "shop", "a", None, None),
            ("nobody's namespace", "work.karmada.io/works", "karmada-es-", "w", None, None),
            ("the Namespace itself", "core/namespaces", "", "karmada-es-a", None, None),
        ];
        for (case, resource, namespace, name, teller, want) in cases {
            assert_eq!(owner(&Key::new(resource, namespace, name), || teller), want, "{case}");
        }
    }

    #[test]
    fn agents_are_guests_and_leases_are_upkeep() {
        let agent = UserInfo::new("system:karmada:agent:a", ["system:karmada:agents"]);
        let terms_of = |user: &UserInfo, resource| terms(user, resource, Purpose::Growth);
        assert_eq!(terms_of(&agent, EVENTS), Terms { purpose: Purpose::Growth, guest: true });
        let admin = UserInfo::system("hub");
        assert_eq!(terms_of(&admin, EVENTS), Terms::default());
        assert_eq!(terms_of(&admin, LEASES).purpose, Purpose::Upkeep);
    }

    #[test]
    fn what_is_given_bounds_what_agents_get() {
        let quota = StorageQuota::of(2 << 30);
        assert_eq!((quota.agent, quota.agent_events), (256 << 20, 32 << 20));
        assert_eq!(StorageQuota::of(0), StorageQuota::NONE);
    }
}
