//! Events under the names of Karmada's components.

use std::collections::BTreeMap;

use karmada_api::consts::component;
use karmada_client::{EventKind, ObjectRef, Recorder};
use karmada_env::Env;
use kube::Client;
use serde_json::Value;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Everything in the hub that reports events.
const COMPONENTS: [&str; 29] = [
    component::CLUSTER,
    component::CSR_APPROVER,
    component::DETECTOR,
    component::SCHEDULER,
    component::BINDING,
    component::CLUSTER_RESOURCE_BINDING,
    component::BINDING_STATUS,
    component::CLUSTER_BINDING_STATUS,
    component::OVERRIDE_MANAGER,
    component::NAMESPACE_SYNC,
    component::DEPENDENCIES_DISTRIBUTOR,
    component::TAINT_MANAGER,
    component::APPLICATION_FAILOVER,
    component::CLUSTER_APPLICATION_FAILOVER,
    component::GRACEFUL_EVICTION,
    component::CLUSTER_GRACEFUL_EVICTION,
    component::CLUSTER_TAINT_POLICY,
    component::QUOTA_SYNC,
    component::QUOTA_STATUS,
    component::QUOTA_ENFORCEMENT,
    component::REPLICAS_SYNCER,
    component::CRON_FEDERATED_HPA,
    component::FEDERATED_HPA,
    component::UNIFIED_AUTH,
    component::ENDPOINT_SLICE,
    component::SERVICE_IMPORT,
    component::MULTI_CLUSTER_SERVICE,
    component::ENDPOINT_SLICE_DISPATCH,
    component::AGENT_UPGRADE,
];

/// One recorder per component.
#[derive(Debug)]
pub(crate) struct Reporter {
    recorders: BTreeMap<&'static str, Recorder>,
}

impl Reporter {
    /// Recorders whose tasks run until `stop`.
    pub(crate) fn new(client: &Client, env: &Env, tasks: &TaskTracker, stop: &CancellationToken) -> Self {
        let recorders = COMPONENTS.into_iter().map(|component| {
            let (recorder, task) = Recorder::new(client.clone(), component, env.clone());
            tasks.spawn(task.run(stop.clone()));
            (component, recorder)
        });
        Self { recorders: recorders.collect() }
    }

    /// Says that something happened to an object, as `component`.
    pub(crate) fn event(
        &self,
        component: &str,
        object: &Value,
        kind: EventKind,
        reason: &str,
        message: impl Into<String>,
    ) {
        match self.recorders.get(component) {
            Some(recorder) => recorder.event(&ObjectRef::of(object), kind, reason, message),
            None => tracing::error!(component, reason, "an event of an unknown component"),
        }
    }
}
