//! The figures of the hub that the page shows: of those of `/metrics` some, each over all its series.

use std::collections::BTreeMap;

use axum::body::Body;
use karmada_apiserver::heavy;
use karmada_meta::{status::Status, time::Time};
use karmada_telemetry::metrics::{CONTENT_TYPE, ReadError, read};
use serde_json::{Map, Value, json};

use super::{Asked, Page};

/// What the page of all figures takes at most, in bytes. That of ten thousand clusters takes some megabytes.
const ALL: usize = 64 << 20;

/// A figure by its name, and those labels that count.
type Figure = (&'static str, &'static [(&'static str, &'static str)]);

/// The figures that are shown.
const SHOWN: [Figure; 17] = [
    ("process_resident_memory_bytes", &[]),
    ("process_cpu_seconds_total", &[]),
    ("process_open_fds", &[]),
    ("apiserver_request_total", &[]),
    ("apiserver_longrunning_requests", &[]),
    ("apiserver_current_inflight_requests", &[]),
    ("apiserver_current_inqueue_requests", &[]),
    ("karmada_apiserver_refused_requests_total", &[]),
    ("karmada_hub_received_bytes_total", &[]),
    ("karmada_hub_sent_bytes_total", &[]),
    ("karmada_hub_connections_total", &[]),
    ("karmada_hub_evictions_postponed_total", &[]),
    ("karmada_hub_fence_waits", &[]),
    ("karmada_store_failed", &[]),
    ("karmada_store_accounts_nearly_full", &[]),
    ("karmada_store_bytes", &[]),
    ("karmada_store_quota_bytes", &[]),
];

/// The buckets of histograms that are shown, and as what.
const BUCKETS: [(&str, &str); 3] = [
    ("karmada_store_commit_duration_seconds_bucket", "commit"),
    ("karmada_hub_propagation_duration_seconds_bucket", "propagation"),
    ("apiserver_request_duration_seconds_bucket", "requests"),
];

/// The figures of the page of all, as they are now.
pub(super) async fn gather(page: &Page, asked: &Asked) -> Result<Value, Status> {
    let ask = http::Request::get("/metrics")
        .header(http::header::ACCEPT, CONTENT_TYPE)
        .body(Body::empty())
        .map_err(Status::internal)?;
    let answer = page.handle.answer(asked.user.clone(), ask).await;
    let answer = answer.ok_or_else(|| Status::service_unavailable("the API server is ending"))?;
    let text = axum::body::to_bytes(answer.into_body(), ALL).await.map_err(Status::internal)?;
    // A large fleet has hundreds of thousands of series: they are read beside everybody's work.
    let found = heavy::beside(text.len(), async { summed(&String::from_utf8_lossy(&text)) }).await;
    let mut rows = found.map_err(Status::internal)?;
    rows.insert("at".to_owned(), json!(Time::now(&page.env)));
    Ok(Value::from(rows))
}

/// Of the text of a page those figures that are shown. One that is not there is left out.
fn summed(text: &str) -> Result<Map<String, Value>, ReadError> {
    let figures = read(text)?;
    let mut rows = Map::new();
    for (name, labels) in SHOWN {
        if let Some(value) = figures.sum(name, labels) {
            let key = labels.iter().fold(name.to_owned(), |key, (_, value)| format!("{key} {value}"));
            rows.insert(key, value.into());
        }
    }
    for (name, as_) in BUCKETS {
        let buckets = figures.samples.iter().filter(|sample| sample.name == name);
        let mut sums = BTreeMap::<String, f64>::new();
        for sample in buckets {
            if let Some(le) = sample.labels.get("le") {
                *sums.entry(le.clone()).or_default() += sample.value;
            }
        }
        rows.insert(as_.to_owned(), json!(sums));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_the_sum_of_its_series() {
        let text = "\
# HELP apiserver_request Requests.
# TYPE apiserver_request counter
apiserver_request_total{code=\"200\",verb=\"get\"} 3
apiserver_request_total{code=\"404\",verb=\"get\"} 4
# HELP karmada_cluster_ready_state Not shown.
# TYPE karmada_cluster_ready_state gauge
karmada_cluster_ready_state{member_cluster=\"a\"} 1
# HELP apiserver_request_duration_seconds How long they took.
# TYPE apiserver_request_duration_seconds histogram
apiserver_request_duration_seconds_sum{verb=\"get\"} 0.5
apiserver_request_duration_seconds_count{verb=\"get\"} 2
apiserver_request_duration_seconds_bucket{verb=\"get\",le=\"0.1\"} 1
apiserver_request_duration_seconds_bucket{verb=\"get\",le=\"+Inf\"} 2
apiserver_request_duration_seconds_sum{verb=\"put\"} 0.5
apiserver_request_duration_seconds_count{verb=\"put\"} 5
apiserver_request_duration_seconds_bucket{verb=\"put\",le=\"0.1\"} 4
apiserver_request_duration_seconds_bucket{verb=\"put\",le=\"+Inf\"} 5
# EOF
";
        let wanted = json!({
            "apiserver_request_total": 7.0, "commit": {}, "propagation": {}, "requests": {"0.1": 5.0, "+Inf": 7.0},
        });
        assert_eq!(summed(text).map(Value::from), Ok(wanted));
        assert!(summed("karmada_store_bytes 3\n").is_err(), "no page");
    }
}
