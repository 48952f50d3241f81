//! `metrics.k8s.io`, `custom.metrics.k8s.io` and `external.metrics.k8s.io` on the hub: what Karmada's metrics adapter serves,
//! and external metrics beside it.
//!
//! Nothing is kept of what is measured. Members are asked themselves, in the user's name and by the way that there is: their
//! address, or their agent's tunnel ([`super::everywhere::measured`]). Only the names of their metrics are kept for a while
//! ([`names`]), for discovery.

mod names;

use std::sync::Arc;

use axum::body::Body;
use futures::future::BoxFuture;
use http::Response;
use karmada_apiserver::carried::{Call, CarriedGroup, CarriedResource, Carrier};
use karmada_meta::status::Status;

use self::names::Metrics;
pub(super) use self::names::{NAME, OF_ONE};
use super::{
    Shared,
    everywhere::measured::{self, Measured},
};

/// The groups, and their versions, the preferred one first.
const GROUPS: [(&str, &[&str], Measured); 3] = [
    ("metrics.k8s.io", &["v1beta1"], Measured::Resources),
    ("custom.metrics.k8s.io", &["v1beta2", "v1beta1"], Measured::Custom),
    ("external.metrics.k8s.io", &["v1beta1"], Measured::External),
];

/// What is known of a group's resources. Others are named by metrics, of which each member has its own.
fn resources(of: Measured) -> Arc<[CarriedResource]> {
    let resource = |name: &'static str, kind, namespaced| CarriedResource {
        name: name.into(),
        kind,
        namespaced,
        verbs: &["get", "list"],
    };
    match of {
        Measured::Resources => {
            Arc::from([resource("nodes", "NodeMetrics", false), resource("pods", "PodMetrics", true)])
        }
        Measured::Custom | Measured::External => Arc::from([]),
    }
}

struct Measures {
    shared: Arc<Shared>,
    of: Measured,
}

/// The groups, and who answers.
pub(super) fn groups(shared: &Arc<Shared>) -> Vec<CarriedGroup> {
    let group = |(group, versions, of): (&'static str, &'static [&'static str], Measured)| {
        let by = Arc::new(Measures { shared: shared.clone(), of });
        let names = Metrics::of(shared, group, versions, of);
        CarriedGroup { group, versions, resources: resources(of), by, names }
    };
    GROUPS.into_iter().map(group).collect()
}

impl Carrier for Measures {
    fn carry(&self, call: Call) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        let (shared, of) = (self.shared.clone(), self.of);
        Box::pin(async move { Box::pin(measured::carry(&shared, call, of)).await })
    }
}
