//! What the server counts, under kube-apiserver's names where it has them; and the page that shows it.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use http::StatusCode;
use karmada_store::{SYNC_BOUNDS, Stats};
use karmada_telemetry::metrics::{
    Counter, Family, Gauge, Histogram, Page, PageSource, Sheet, Source, exponential,
};

use crate::{
    audit::Audit, heavy::Pool, limits::Gate, quota::StorageQuota, request::RequestInfo, storage::ApiStore,
    webhooks::WebhookCounts,
};

/// Whoever may ask for anything can add series up to here; what comes then counts together.
const MOST_SERIES: usize = 1_000;

/// Group and resource of what is not served.
const OTHER: &str = "other";

/// What is counted.
pub(crate) struct Metrics {
    requests: Family<4, Counter>,
    durations: Family<1, Histogram>,
    open: Family<4, Gauge>,
    unauthenticated: Family<1, Counter>,
    /// What `/metrics` shows, if it is more than the server's own figures.
    page: OnceLock<PageSource>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            requests: Family::new(["verb", "group", "resource", "code"], MOST_SERIES, Counter::default),
            durations: Family::new(["verb"], 16, || exponential(0.001, 4.0, 7)),
            open: Family::new(["group", "version", "resource", "verb"], MOST_SERIES, Gauge::default),
            unauthenticated: Family::new(["reason"], 16, Counter::default),
            page: OnceLock::new(),
        }
    }
}

impl Metrics {
    /// Counts a request that was answered. Paths that name no resource count as one, and so do resources that are not
    /// `known`, so that nobody can add series at will.
    pub(crate) fn count(&self, info: &RequestInfo, known: bool, code: StatusCode, took: Duration) {
        let verb = verb(&info.verb);
        let (group, resource) = match (info.is_resource, known) {
            (true, true) => (info.group.as_str(), info.resource.as_str()),
            (true, false) => (OTHER, OTHER),
            (false, _) => ("", ""),
        };
        self.requests.get([verb, group, resource, code.as_str()]).inc();
        if !info.class.is_open() {
            self.durations.get([verb]).observe(took.as_secs_f64());
        }
    }

    /// Counts a request of somebody unknown who showed something, by what was wrong with it.
    pub(crate) fn unauthenticated(&self, reason: &'static str) {
        self.unauthenticated.get([reason]).inc();
    }

    /// Counts an answer for as long as it is held.
    /// Counts an answer that goes on, under its resource or another one.
    pub(crate) fn open(&self, info: &RequestInfo, resource: Option<&str>) -> Open {
        let resource = resource.unwrap_or(&info.resource);
        let gauge = self.open.get([&info.group, &info.version, resource, verb(&info.verb)]);
        gauge.inc();
        Open(gauge)
    }

    pub(crate) fn show(&self, page: PageSource) {
        // Whoever comes second shows nothing else.
        let _ = self.page.set(page);
    }
}

/// An answer that goes on.
#[derive(Debug)]
pub(crate) struct Open(Gauge);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A verb as kube-apiserver labels it.
fn verb(verb: &str) -> &'static str {
    match verb {
        "get" => "GET",
        "list" => "LIST",
        "watch" => "WATCH",
        "create" | "post" => "POST",
        "update" | "put" => "PUT",
        "patch" => "PATCH",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        _ => "other",
    }
}

/// What is counted before requests reach what answers them, for a page.
#[derive(Clone, Debug)]
pub struct FrontFigures {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) audit: Arc<OnceLock<Arc<Audit>>>,
}

impl Source for FrontFigures {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let metrics = &self.metrics;
        let requests = metrics.requests.rows();
        sheet.counter(
            "apiserver_request_total",
            "Requests, by verb, resource and code.",
            requests.iter().map(|(labels, count)| (labels.as_slice(), count.get() as f64)),
        )?;
        let durations = metrics.durations.rows();
        sheet.histogram(
            "apiserver_request_duration_seconds",
            "How long answers took, but for watches.",
            durations.iter().map(|(labels, histogram)| (labels.as_slice(), histogram)),
        )?;
        let open = metrics.open.rows();
        sheet.gauge(
            "apiserver_longrunning_requests",
            "Open watches and other answers that go on, by resource.",
            open.iter().map(|(labels, open)| (labels.as_slice(), open.get() as f64)),
        )?;
        let unauthenticated = metrics.unauthenticated.rows();
        sheet.counter(
            "karmada_apiserver_unauthenticated_requests_total",
            "Requests with a credential that does not hold, by what is wrong with it.",
            unauthenticated.iter().map(|(labels, count)| (labels.as_slice(), count.get() as f64)),
        )?;
        self.audit.get().map_or(Ok(()), |audit| audit.write(sheet))?;
        self.gate.write(sheet)
    }
}

/// The figures of a server and its store, for a page.
#[derive(Clone, Debug)]
pub struct ServerFigures {
    pub(crate) front: FrontFigures,
    pub(crate) store: ApiStore,
    pub(crate) webhooks: Arc<WebhookCounts>,
    pub(crate) storage: StorageQuota,
    pub(crate) pool: Arc<Pool>,
}

impl ServerFigures {
    /// The page that the server is to show, or these figures alone.
    pub(crate) fn page(&self) -> String {
        match self.front.metrics.page.get() {
            Some(page) => page(),
            None => Page::new().with(self.clone()).render(),
        }
    }
}

impl Source for ServerFigures {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        self.front.write(sheet)?;
        let (done, waiting) = self.pool.figures();
        sheet.one_gauge(
            "karmada_apiserver_heavy_work_waiting",
            "Work on large bodies and answers that waits for a thread.",
            waiting as f64,
        )?;
        sheet.counter(
            "karmada_apiserver_heavy_work_total",
            "Pieces of work on large bodies and answers that were done beside everybody's.",
            [([] as [(&str, String); 0], done as f64)],
        )?;
        let asked = self.webhooks.0.rows();
        sheet.counter(
            "apiserver_admission_webhook_request_total",
            "Questions to admission webhooks, by what came of them.",
            asked.iter().map(|(labels, count)| (labels.as_slice(), count.get() as f64)),
        )?;
        let snapshot = self.store.snapshot();
        let objects: Vec<_> = snapshot
            .resources()
            .map(|resource| ([("resource", qualified(resource))], snapshot.count(resource, None) as f64))
            .collect();
        sheet.gauge("apiserver_storage_objects", "Objects that are stored, by resource.", objects)?;
        sheet.one_gauge(
            "karmada_store_revision",
            "The newest revision.",
            snapshot.revision().get() as f64,
        )?;
        let failed = if self.store.failure().is_some() { 1.0 } else { 0.0 };
        sheet.one_gauge("karmada_store_failed", "1 if the store takes no more writes.", failed)?;
        self.quota(sheet)?;
        stored(sheet, &self.store.stats())
    }
}

impl ServerFigures {
    /// How much is stored, and how much may be.
    fn quota(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let (used, refused) = (self.store.used(), self.store.stats().refused);
        let bytes =
            used.resources.iter().map(|(name, usage)| ([("resource", qualified(name))], usage.bytes as f64));
        sheet.gauge("karmada_store_bytes", "What is stored, by resource, as the quota counts it.", bytes)?;
        sheet.one_gauge(
            "karmada_store_quota_bytes",
            "What may be stored together; 0: anything.",
            self.store.quota() as f64,
        )?;
        sheet.one_gauge(
            "karmada_store_accounts_nearly_full",
            "Agents, and apart from them events of agents, that take four fifths of what they may, or more.",
            self.storage.nearly_full(&used) as f64,
        )?;
        sheet.counter(
            "karmada_store_refused_writes_total",
            "Writes for which there was no room, by the quota that was used up.",
            [([("quota", "storage")], refused.whole as f64), ([("quota", "agent")], refused.accounts as f64)],
        )
    }
}

fn stored(sheet: &mut Sheet<'_>, stats: &Stats) -> fmt::Result {
    let writes = &stats.writes;
    sheet.one_counter(
        "karmada_store_changes_total",
        "Changes that were made durable.",
        writes.changes as f64,
    )?;
    sheet.one_counter(
        "karmada_store_written_bytes_total",
        "Bytes of keys and values written.",
        writes.bytes as f64,
    )?;
    let seconds = |bound: &u64| *bound as f64 / 1e3;
    let bounds = SYNC_BOUNDS.iter().map(seconds).chain([f64::INFINITY]);
    let buckets: Vec<_> = bounds.zip(writes.syncs).collect();
    sheet.counted(
        "karmada_store_commit_duration_seconds",
        "How long commits took, each one batch of changes with one fsync.",
        writes.sync_time.as_secs_f64(),
        &buckets,
    )?;
    sheet.one_gauge(
        "karmada_store_history_events",
        "Changes that can be watched from.",
        stats.events as f64,
    )?;
    sheet.one_gauge(
        "karmada_store_history_bytes",
        "Size of the kept history in bytes.",
        stats.event_bytes as f64,
    )?;
    sheet.one_gauge("karmada_store_watches", "Cursors into the history.", stats.watches as f64)
}

/// `apps/deployments` as kube-apiserver writes it: `deployments.apps`.
fn qualified(storage: &str) -> String {
    match storage.split_once('/') {
        Some(("core", resource)) => resource.to_owned(),
        Some((group, resource)) => format!("{resource}.{group}"),
        None => storage.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use karmada_env::Env;
    use karmada_store::engine::Memory;
    use karmada_telemetry::metrics::read;

    use super::*;
    use crate::request::Query;

    fn request(method: &Method, path: &str) -> RequestInfo {
        RequestInfo::parse(method, path, &Query::parse(""))
    }

    fn figures() -> ServerFigures {
        let store = crate::open_store(Memory::new(), &Env::system()).unwrap();
        let gate = Arc::new(Gate::new(crate::limits::Limits::default(), &Env::system()));
        let front = FrontFigures { metrics: Arc::default(), gate, audit: Arc::default() };
        let storage = StorageQuota::NONE;
        ServerFigures { front, store, webhooks: Arc::default(), storage, pool: Arc::default() }
    }

    #[test]
    fn requests_count_by_what_they_ask_for() {
        let figures = figures();
        let (list, paths) = ("/apis/apps/v1/deployments", ["/healthz", "/no/such/path"]);
        for _ in 0..2 {
            figures.front.metrics.count(
                &request(&Method::GET, list),
                true,
                StatusCode::OK,
                Duration::from_millis(3),
            );
        }
        for path in paths {
            figures.front.metrics.count(
                &request(&Method::GET, path),
                false,
                StatusCode::NOT_FOUND,
                Duration::ZERO,
            );
        }
        // Whoever makes resources up makes one series.
        for i in 0..2_000 {
            let path = format!("/apis/g{i}/v1/r{i}");
            figures.front.metrics.count(
                &request(&Method::GET, &path),
                false,
                StatusCode::FORBIDDEN,
                Duration::ZERO,
            );
        }
        let open = figures.front.metrics.open(&request(&Method::GET, list), None);
        let text = figures.page();
        let page = read(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let labels = [("verb", "LIST"), ("group", "apps"), ("resource", "deployments"), ("code", "200")];
        assert_eq!(page.value("apiserver_request_total", &labels), Some(2.0), "{text}");
        assert_eq!(page.sum("apiserver_request_total", &[("resource", ""), ("code", "404")]), Some(2.0));
        let made_up = [("verb", "LIST"), ("group", OTHER), ("resource", OTHER), ("code", "403")];
        assert_eq!(page.value("apiserver_request_total", &made_up), Some(2000.0), "{text}");
        assert_eq!(page.value("apiserver_request_duration_seconds_count", &[("verb", "LIST")]), Some(2002.0));
        let watches = |page: &str| read(page).unwrap().sum("apiserver_longrunning_requests", &[]);
        assert_eq!(watches(&text), Some(1.0));
        drop(open);
        assert_eq!(watches(&figures.page()), Some(0.0));
    }

    #[test]
    fn a_page_of_others_takes_the_place_of_the_own_one() {
        let figures = figures();
        assert!(figures.page().contains("karmada_store_revision"));
        figures.front.metrics.show(Arc::new(|| "all of it".to_owned()));
        assert_eq!(figures.page(), "all of it");
    }

    #[test]
    fn resources_are_called_as_users_call_them() {
        for (storage, want) in
            [("core/configmaps", "configmaps"), ("apps/deployments", "deployments.apps"), ("odd", "odd")]
        {
            assert_eq!(qualified(storage), want);
        }
    }
}
