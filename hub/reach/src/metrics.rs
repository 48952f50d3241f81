//! `metrics.k8s.io`, `custom.metrics.k8s.io` and `external.metrics.k8s.io` on the hub: what Karmada's metrics adapter serves,
//! and external metrics beside it.
//!
//! Nothing is kept for this. Members are asked themselves, in the user's name and by the way that there is: their address, or
//! their agent's tunnel ([`super::everywhere::measured`]).

use std::sync::Arc;

use axum::body::Body;
use futures::future::BoxFuture;
use http::Response;
use karmada_apiserver::carried::{Call, CarriedGroup, CarriedResource, Carrier};
use karmada_meta::status::Status;

use super::{
    Shared,
    everywhere::measured::{self, Measured},
};

const RESOURCES: [CarriedResource; 2] = [
    CarriedResource { name: "nodes", kind: "NodeMetrics", namespaced: false },
    CarriedResource { name: "pods", kind: "PodMetrics", namespaced: true },
];

/// The groups: their versions, the preferred one first, and what is known of their resources. Others are named by metrics, of
/// which each member has its own.
const GROUPS: [(&str, &[&str], &[CarriedResource], Measured); 3] = [
    ("metrics.k8s.io", &["v1beta1"], &RESOURCES, Measured::Resources),
    ("custom.metrics.k8s.io", &["v1beta2", "v1beta1"], &[], Measured::Custom),
    ("external.metrics.k8s.io", &["v1beta1"], &[], Measured::External),
];

struct Measures {
    shared: Arc<Shared>,
    of: Measured,
}

/// The groups, and who answers.
pub(super) fn groups(shared: &Arc<Shared>) -> Vec<CarriedGroup> {
    let group = |(group, versions, resources, of)| {
        let by = Arc::new(Measures { shared: shared.clone(), of });
        CarriedGroup { group, versions, resources, by }
    };
    GROUPS.into_iter().map(group).collect()
}

impl Carrier for Measures {
    fn carry(&self, call: Call) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        let (shared, of) = (self.shared.clone(), self.of);
        Box::pin(async move { Box::pin(measured::carry(&shared, call, of)).await })
    }
}
