//! Counters of the front, in Prometheus' text format.

use std::{collections::BTreeMap, fmt::Write as _};

use parking_lot::Mutex;

use crate::{request::RequestInfo, storage::ApiStore};

/// What is counted.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// Requests by verb and resource.
    requests: Mutex<BTreeMap<(String, String), u64>>,
}

impl Metrics {
    /// Counts a request. Paths that name no resource count as one, so that nobody can add series at will.
    pub(crate) fn count(&self, info: &RequestInfo) {
        const MOST_SERIES: usize = 2_000;
        let key = if info.is_resource {
            (info.verb.clone(), info.resource.clone())
        } else {
            (info.verb.clone(), String::new())
        };
        let mut requests = self.requests.lock();
        if requests.len() < MOST_SERIES || requests.contains_key(&key) {
            *requests.entry(key).or_default() += 1;
        }
    }

    /// The page.
    pub(crate) fn render(&self, store: &ApiStore) -> String {
        let mut out = String::from("# TYPE apiserver_request_total counter\n");
        for ((verb, resource), count) in &*self.requests.lock() {
            let resource: String = resource.chars().filter(|c| !matches!(c, '"' | '\\' | '\n')).collect();
            let _ =
                writeln!(out, "apiserver_request_total{{verb=\"{verb}\",resource=\"{resource}\"}} {count}");
        }
        let snapshot = store.snapshot();
        let _ = writeln!(
            out,
            "# TYPE apiserver_storage_revision counter\napiserver_storage_revision {}",
            snapshot.revision()
        );
        out.push_str("# TYPE apiserver_storage_objects gauge\n");
        for resource in snapshot.resources() {
            let count = snapshot.count(resource, None);
            let _ = writeln!(out, "apiserver_storage_objects{{resource=\"{resource}\"}} {count}");
        }
        out
    }
}
