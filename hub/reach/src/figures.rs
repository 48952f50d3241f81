//! What goes to members and back, in numbers. There are only so many rows, whoever chooses names.

use std::{
    fmt,
    sync::Arc,
    sync::atomic::{AtomicUsize, Ordering},
};

use karmada_telemetry::metrics::{Counter, Family, Sheet, Source};

/// Clusters that have rows of their own.
const CLUSTERS: usize = 10_000;
/// Users that have one.
const USERS: usize = 100;
/// Ways in which a call for a tunnel may end.
const OUTCOMES: usize = 8;

/// See the module.
#[derive(Debug)]
pub struct Figures {
    users: Family<1, Counter>,
    tunnels: Family<2, Counter>,
    calls: Family<1, Counter>,
    searched: Family<1, Counter>,
    told: Family<1, Counter>,
    open: AtomicUsize,
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            users: Family::new(["user"], USERS, Counter::default),
            tunnels: Family::new(["cluster", "direction"], 2 * CLUSTERS, Counter::default),
            calls: Family::new(["outcome"], OUTCOMES, Counter::default),
            searched: Family::new(["from"], 2, Counter::default),
            told: Family::new(["cluster"], CLUSTERS, Counter::default),
            open: AtomicUsize::new(0),
        }
    }
}

impl Figures {
    /// What one user has sent and got.
    pub(crate) fn user(&self, name: &str) -> Counter {
        self.users.get([name])
    }

    /// What has crossed a cluster's tunnels.
    pub(crate) fn tunnel(&self, cluster: &str, direction: &str) -> Counter {
        self.tunnels.get([cluster, direction])
    }

    /// A call for a tunnel has ended so.
    pub(crate) fn call(&self, outcome: &str) {
        self.calls.get([outcome]).inc();
    }

    /// So many parts of lists were from members, or from what is kept of them.
    pub(crate) fn searched(&self, from: &str, parts: usize) {
        if parts > 0 {
            self.searched.get([from]).inc_by(parts as u64);
        }
    }

    /// What a cluster's agent has told of what is searched on its member.
    pub fn told(&self, cluster: &str) -> Counter {
        self.told.get([cluster])
    }

    /// One more is open, until this is dropped.
    pub(crate) fn open(self: &Arc<Self>) -> OpenTunnel {
        self.open.fetch_add(1, Ordering::Relaxed);
        OpenTunnel(self.clone())
    }
}

/// A tunnel that is open.
pub(crate) struct OpenTunnel(Arc<Figures>);

impl Drop for OpenTunnel {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Source for Figures {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let value = |counter: &Counter| counter.get() as f64;
        let rows = self.users.rows().into_iter().map(|(labels, counter)| (labels, value(&counter)));
        sheet.counter(
            "karmada_hub_member_bytes_total",
            "Bytes of bodies and sessions that users sent to members and got from them through the hub.",
            rows,
        )?;
        let rows = self.tunnels.rows().into_iter().map(|(labels, counter)| (labels, value(&counter)));
        sheet.counter("karmada_hub_tunnel_bytes_total", "Bytes that crossed clusters' tunnels.", rows)?;
        let rows = self.calls.rows().into_iter().map(|(labels, counter)| (labels, value(&counter)));
        sheet.counter("karmada_hub_tunnel_calls_total", "How calls for tunnels ended.", rows)?;
        let rows = self.searched.rows().into_iter().map(|(labels, counter)| (labels, value(&counter)));
        sheet.counter(
            "karmada_hub_search_parts_total",
            "Parts of lists of search.karmada.io, each of one cluster, by whether it is from the member or from what the hub keeps of it.",
            rows,
        )?;
        let rows = self.told.rows().into_iter().map(|(labels, counter)| (labels, value(&counter)));
        sheet.counter(
            "karmada_hub_search_told_bytes_total",
            "Bytes of reports in which clusters' agents told the hub what is searched on their members.",
            rows,
        )?;
        let open = self.open.load(Ordering::Relaxed) as f64;
        sheet.one_gauge("karmada_hub_tunnels_open", "Tunnels that are open.", open)
    }
}
