//! MultiClusterServices of the type CrossCluster: a Service that keeps its name, with the Pods of all its providers behind it on
//! each consumer.
//!
//! ```text
//!   MultiClusterService ─ marker ─▶ Work on each provider ─▶ its agent collects ─▶ Work ─ dispatched ─▶ Work on each consumer
//!        │
//!        └ claim, binding ─▶ the Service on providers and consumers
//! ```

use std::{collections::BTreeSet, time::Duration};

use karmada_api::{
    KarmadaKind,
    consts::{annotation, extension, label},
    work::{ResourceBinding, Work},
};
use karmada_meta::{
    duration, names as syntax, object,
    path::{FieldError, Path},
    time::Time,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    MULTI_CLUSTER_SERVICE, ServiceName,
    slices::{self, DISPATCHER, MANAGED_BY, SERVICE_NAME},
};
use crate::{names, work};

/// The type that the hub sees to. Of others nothing but the definition is Karmada's.
pub const CROSS_CLUSTER: &str = "CrossCluster";
const LOAD_BALANCER: &str = "LoadBalancer";

/// Where a Service is, and where it is used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// There is one.
    pub types: Vec<String>,
    /// For those that the hub does not see to.
    pub ports: Vec<Port>,
    /// Where it is; everywhere, if none is named.
    pub provider_clusters: Vec<Selector>,
    /// Where it is used.
    pub consumer_clusters: Vec<Selector>,
}

/// A port that is exposed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Port {
    name: String,
    port: i64,
}

/// A cluster by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Selector {
    /// Its name.
    pub name: String,
}

impl Spec {
    /// Whether the hub sees to it.
    pub fn is_cross_cluster(&self) -> bool {
        self.types.iter().any(|name| name == CROSS_CLUSTER)
    }

    /// The clusters that it names; nothing where it means all.
    pub fn named(selectors: &[Selector]) -> Option<BTreeSet<&str>> {
        (!selectors.is_empty()).then(|| selectors.iter().map(|cluster| cluster.name.as_str()).collect())
    }

    /// Whether a cluster provides it.
    pub fn is_provided_by(&self, cluster: &str) -> bool {
        means(&self.provider_clusters, cluster)
    }

    /// Whether a cluster uses it.
    pub fn is_used_by(&self, cluster: &str) -> bool {
        means(&self.consumer_clusters, cluster)
    }
}

fn means(selectors: &[Selector], cluster: &str) -> bool {
    Spec::named(selectors).is_none_or(|names| names.contains(cluster))
}

/// What is wrong with a MultiClusterService.
pub fn validate(name: &str, spec: &Spec, old: Option<&Spec>) -> Vec<FieldError> {
    let path = Path::new("spec");
    let mut errors = Vec::new();
    for why in syntax::dns1035_label_errors(name) {
        errors.push(FieldError::invalid(&Path::new("metadata").child("name"), name, why));
    }
    let mut names = BTreeSet::new();
    for (i, port) in spec.ports.iter().enumerate() {
        let path = path.child("ports").index(i);
        if !port.name.is_empty() {
            for why in syntax::dns1123_label_errors(&port.name) {
                errors.push(FieldError::invalid(&path.child("name"), port.name.as_str(), why));
            }
            if !names.insert(port.name.as_str()) {
                errors.push(FieldError::duplicate(&path.child("name"), port.name.as_str()));
            }
        }
        if !(1..=65535).contains(&port.port) {
            let why = "must be between 1 and 65535, inclusive";
            errors.push(FieldError::invalid(&path.child("port"), port.port, why));
        }
    }
    let of_types = path.child("types");
    for (i, name) in spec.types.iter().enumerate() {
        if name != CROSS_CLUSTER && name != LOAD_BALANCER {
            errors.push(FieldError::invalid(&of_types.index(i), name.as_str(), "ExposureType Error"));
        }
    }
    if spec.types.len() > 1 {
        let why = "MultiClusterService types should not contain more than one type";
        errors.push(FieldError::invalid(&of_types, json!(spec.types), why));
    }
    if old.is_some_and(|old| old.types != spec.types) {
        errors.push(FieldError::invalid(
            &of_types,
            json!(spec.types),
            "MultiClusterService types are immutable",
        ));
    }
    let range = path.child("range");
    let lists =
        [("providerClusters", &spec.provider_clusters), ("consumerClusters", &spec.consumer_clusters)];
    for (field, clusters) in lists {
        for (i, cluster) in clusters.iter().enumerate() {
            let why = syntax::cluster_name_errors(&cluster.name);
            if !why.is_empty() {
                let path = range.child(field).index(i);
                errors.push(FieldError::invalid(&path, cluster.name.as_str(), why.join(",")));
            }
        }
    }
    errors
}

/// The name of the Work that has a cluster collect for a MultiClusterService.
pub fn marker_name(service: &ServiceName) -> String {
    names::work_name(MULTI_CLUSTER_SERVICE, &service.namespace, &service.name)
}

/// The Work that has a cluster collect for a MultiClusterService. Nothing of it is applied there.
pub fn marker(service: &Value, cluster: &str, existing: Option<&Value>, new_id: &str) -> Value {
    let name = ServiceName::new(object::namespace(service), object::name(service));
    let mut work = begin(existing, cluster, &marker_name(&name), new_id);
    let id = object::label(service, label::MULTI_CLUSTER_SERVICE_ID).unwrap_or_default();
    object::set_label(&mut work, label::MULTI_CLUSTER_SERVICE_ID, id);
    mark(&mut work, &name);
    work::finish(&mut work, service.clone());
    work["spec"]["suspendDispatching"] = json!(true);
    work
}

fn begin(existing: Option<&Value>, cluster: &str, name: &str, new_id: &str) -> Value {
    let mut work = existing.cloned().unwrap_or_else(|| {
        json!({
            "apiVersion": Work::API_VERSION, "kind": Work::KIND,
            "metadata": {"name": name, "namespace": names::execution_namespace(cluster)}, "spec": {},
        })
    });
    if object::label(&work, label::WORK_ID).is_none_or(str::is_empty) {
        object::set_label(&mut work, label::WORK_ID, new_id);
    }
    work
}

fn mark(work: &mut Value, service: &ServiceName) {
    object::set_label(work, label::MULTI_CLUSTER_SERVICE_NAMESPACE, service.namespace.as_str());
    object::set_label(work, label::MULTI_CLUSTER_SERVICE_NAME, service.name.as_str());
}

/// The name of a provider's slice on a consumer.
pub fn dispatched_name(provider: &str, slice: &str) -> String {
    format!("{provider}-{slice}")
}

/// Another name of it, where Karmada's is taken: `edge` with a slice `eu-web-1` and `edge-eu` with `web-1` have the same one. It
/// is nobody else's, whatever they call their slices: see [`slices::other_imported_name`].
pub fn other_name(provider: &str, slice: &str) -> String {
    format!("provided.{provider}.{slice}")
}

/// The name of the Work that brings a slice of that name to a consumer. It says which provider's it is, unlike Karmada's: providers
/// may have slices of the same name, and so may the consumer.
pub fn dispatched_work(namespace: &str, name: &str) -> String {
    slices::work_name(namespace, name)
}

/// The Work that brings a provider's slice to a consumer as [`dispatched_name`] or under the other name; if it was withdrawn, with
/// no endpoint that takes requests.
pub fn dispatched(
    (slice, name): (&Value, &str),
    service: &ServiceName,
    (provider, consumer): (&str, &str),
    withdrawn: bool,
    existing: Option<&Value>,
    new_id: &str,
) -> Value {
    let work = dispatched_work(&service.namespace, name);
    let mut work = begin(existing, consumer, &work, new_id);
    object::add_finalizer(&mut work, karmada_api::consts::finalizer::EXECUTION);
    object::remove_annotation(&mut work, extension::UNWANTED_SINCE);
    mark(&mut work, service);
    object::set_annotation(&mut work, annotation::ENDPOINT_SLICE_PROVISION_CLUSTER, provider);
    if name != dispatched_name(provider, object::name(slice)) {
        object::set_annotation(&mut work, extension::PROVIDED_SLICE, object::name(slice));
    }
    let mut manifest = json!({
        "apiVersion": object::api_version(slice), "kind": object::kind(slice),
        "metadata": {
            "name": name,
            "namespace": service.namespace,
            "labels": {(SERVICE_NAME): service.name, (MANAGED_BY): DISPATCHER},
            "annotations": {(annotation::ENDPOINT_SLICE_PROVISION_CLUSTER): provider},
        },
    });
    slices::abroad(&mut manifest, slice, withdrawn);
    work::finish(&mut work, manifest);
    work
}

/// The provider's slice that a Work brings to a consumer: its name is in that of the slice there, unless the Work says it.
pub fn provided_slice<'a>(work: &'a Value, provider: &str) -> &'a str {
    let name = object::name(work.pointer("/spec/workload/manifests/0").unwrap_or(&Value::Null));
    let stripped = || name.strip_prefix(provider).and_then(|rest| rest.strip_prefix('-')).unwrap_or(name);
    object::annotation(work, extension::PROVIDED_SLICE).unwrap_or_else(stripped)
}

/// The labels by which policies have claimed an object, and their annotations.
const OF_POLICIES: ([&str; 2], [&str; 3]) = (
    [label::PROPAGATION_POLICY_ID, label::CLUSTER_PROPAGATION_POLICY_ID],
    [
        annotation::PROPAGATION_POLICY_NAMESPACE,
        annotation::PROPAGATION_POLICY_NAME,
        annotation::CLUSTER_PROPAGATION_POLICY_NAME,
    ],
);

/// Takes a Service for a MultiClusterService, from policies too. Whether that changed it.
pub fn claim(template: &mut Value, service: &Value) -> bool {
    let before = template["metadata"].clone();
    object::set_label(template, label::CLAIMED_BY, MULTI_CLUSTER_SERVICE);
    belong(template, service);
    template["metadata"] != before
}

fn belong(target: &mut Value, service: &Value) {
    OF_POLICIES.0.iter().for_each(|key| drop(object::remove_label(target, key)));
    OF_POLICIES.1.iter().for_each(|key| drop(object::remove_annotation(target, key)));
    let id = object::label(service, label::MULTI_CLUSTER_SERVICE_ID).unwrap_or_default();
    object::set_label(target, label::MULTI_CLUSTER_SERVICE_ID, id);
    object::set_annotation(target, annotation::MULTI_CLUSTER_SERVICE_NAME, object::name(service));
    object::set_annotation(target, annotation::MULTI_CLUSTER_SERVICE_NAMESPACE, object::namespace(service));
}

/// Lets go of what a MultiClusterService has taken. It stays where it is, as with a policy that is deleted. Whether that changed it.
pub fn release(target: &mut Value, service: &ServiceName) -> bool {
    let of = |key| object::annotation(target, key).unwrap_or_default();
    let ours = of(annotation::MULTI_CLUSTER_SERVICE_NAME) == service.name
        && of(annotation::MULTI_CLUSTER_SERVICE_NAMESPACE) == service.namespace;
    if !ours {
        return false;
    }
    let labels = [label::CLAIMED_BY, label::BINDING_MANAGED_BY, label::MULTI_CLUSTER_SERVICE_ID];
    labels.iter().filter(|key| object::remove_label(target, key).is_some()).count() > 0
}

/// The binding by which a Service is on its clusters. `existing` is the binding that is there; where it is placed is the
/// scheduler's.
pub fn binding(
    template: &Value,
    service: &Value,
    clusters: &BTreeSet<String>,
    existing: Option<&Value>,
) -> Value {
    let (kind, name) = (object::kind(template), object::name(template));
    let mut binding = existing.cloned().unwrap_or_else(|| {
        json!({
            "apiVersion": ResourceBinding::API_VERSION, "kind": ResourceBinding::KIND,
            "metadata": {"name": names::binding_name(kind, name), "namespace": object::namespace(template)},
            "spec": {},
        })
    });
    belong(&mut binding, service);
    object::set_label(&mut binding, label::BINDING_MANAGED_BY, MULTI_CLUSTER_SERVICE);
    object::add_finalizer(&mut binding, karmada_api::consts::finalizer::BINDING);
    let owner = json!([{
        "apiVersion": object::api_version(template), "kind": kind, "name": name, "uid": object::uid(template),
    }]);
    object::set_meta(&mut binding, "ownerReferences", owner);
    let spec = object::ensure_map(&mut binding, "spec");
    spec.insert("conflictResolution".into(), json!("Overwrite"));
    spec.insert("placement".into(), json!({"clusterAffinity": {"clusterNames": clusters}}));
    let version = spec.get("resource").and_then(|known| known.get("resourceVersion")).cloned();
    let resource = json!({
        "apiVersion": object::api_version(template), "kind": kind, "namespace": object::namespace(template), "name": name,
        "uid": object::uid(template),
        "resourceVersion": version.unwrap_or_else(|| json!(object::resource_version(template))),
    });
    spec.insert("resource".into(), resource);
    spec.shift_remove("schedulerName");
    binding
}

/// For how long the endpoints of a provider that is silent stay; nothing if they stay for good. A MultiClusterService says it, or a
/// ServiceImport.
///
/// # Errors
/// When the annotation is no length of time.
pub fn withdraw_after(service: &Value) -> Result<Option<Duration>, String> {
    object::annotation(service, extension::WITHDRAW_AFTER).map(duration::parse).transpose()
}

/// A time so much later.
pub fn later(since: Time, after: Duration) -> Option<Time> {
    let after = jiff::SignedDuration::try_from(after).ok()?;
    since.timestamp().checked_add(after).ok().map(Time::from_timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service() -> Value {
        json!({
            "apiVersion": "networking.karmada.io/v1alpha1", "kind": "MultiClusterService",
            "metadata": {"name": "web", "namespace": "demo", "uid": "615d4123", "generation": 1, "resourceVersion": "506",
                "finalizers": ["karmada.io/multiclusterservice-controller"],
                "labels": {"multiclusterservice.karmada.io/permanent-id": "52b4e129"}},
            "spec": {"types": ["CrossCluster"], "providerClusters": [{"name": "member4"}], "consumerClusters": [{"name": "member5"}]},
            "status": {},
        })
    }

    fn web() -> ServiceName {
        ServiceName::new("demo", "web")
    }

    /// As a stock Karmada has it (multicluster-service in the recordings).
    #[test]
    fn a_marker_is_karmadas() {
        let work = marker(&service(), "member4", None, "f13d5399");
        assert_eq!(
            work["metadata"],
            json!({
                "name": "web-f47c4cf68", "namespace": "karmada-es-member4",
                "labels": {
                    "work.karmada.io/permanent-id": "f13d5399", "multiclusterservice.karmada.io/permanent-id": "52b4e129",
                    "multiclusterservice.karmada.io/namespace": "demo", "multiclusterservice.karmada.io/name": "web",
                },
            })
        );
        assert_eq!(work["spec"]["suspendDispatching"], true);
        let manifest = &work["spec"]["workload"]["manifests"][0];
        assert_eq!(manifest["spec"], service()["spec"]);
        assert_eq!(manifest.get("status"), None);
        assert_eq!(
            object::annotation(manifest, "resourcetemplate.karmada.io/managed-labels"),
            Some(
                "karmada.io/managed,multiclusterservice.karmada.io/permanent-id,work.karmada.io/permanent-id"
            )
        );
        assert_eq!(marker(&service(), "member4", Some(&work), "x"), work, "nothing to write");
    }

    fn slice() -> Value {
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "web-pw5p7", "namespace": "demo", "labels": {"kubernetes.io/service-name": "web"}},
            "endpoints": [{"addresses": ["10.244.0.4"], "conditions": {"ready": true, "serving": true, "terminating": false},
                "nodeName": "node-0", "targetRef": {"kind": "Pod"}}],
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]})
    }

    #[test]
    fn a_slice_on_a_consumer_names_its_provider() {
        let (slice, between) = (slice(), ("member4", "member5"));
        let name = dispatched_name("member4", "web-pw5p7");
        let work = dispatched((&slice, &name), &web(), between, false, None, "9a624988");
        // Karmada's is web-pw5p7-78bbf5978f, and so would be another provider's.
        assert_eq!(object::name(&work), dispatched_work("demo", "member4-web-pw5p7"));
        assert_eq!(provided_slice(&work, "member4"), "web-pw5p7");
        assert_ne!(object::name(&work), slices::work_name("demo", "web-pw5p7"));
        let mut metadata = work["metadata"].clone();
        metadata["name"] = json!("");
        assert_eq!(
            metadata,
            json!({
                "name": "", "namespace": "karmada-es-member5", "finalizers": ["karmada.io/execution-controller"],
                "annotations": {"endpointslice.karmada.io/provision-cluster": "member4"},
                "labels": {"work.karmada.io/permanent-id": "9a624988", "multiclusterservice.karmada.io/namespace": "demo",
                    "multiclusterservice.karmada.io/name": "web"},
            })
        );
        let manifest = &work["spec"]["workload"]["manifests"][0];
        assert_eq!(object::name(manifest), "member4-web-pw5p7");
        assert_eq!(
            manifest["metadata"]["labels"],
            json!({
                "kubernetes.io/service-name": "web", "karmada.io/managed": "true", "work.karmada.io/permanent-id": "9a624988",
                "endpointslice.kubernetes.io/managed-by": "endpointslice-dispatch-controller.karmada.io",
            })
        );
        assert_eq!(
            manifest["endpoints"],
            json!([{"addresses": ["10.244.0.4"],
            "conditions": {"ready": true, "serving": true, "terminating": false}}])
        );
        let work = dispatched((&slice, &name), &web(), between, true, Some(&work), "x");
        assert_eq!(
            work["spec"]["workload"]["manifests"][0]["endpoints"][0]["conditions"],
            json!({"ready": false, "serving": false, "terminating": false})
        );
    }

    /// Cluster and slice are told apart where a hyphen may be in both.
    #[test]
    fn two_slices_that_would_have_one_name_have_two() {
        let named = |name: &str| {
            let mut slice = slice();
            slice["metadata"]["name"] = json!(name);
            slice
        };
        assert_eq!(dispatched_name("edge", "eu-web-1"), dispatched_name("edge-eu", "web-1"));
        let mut known = BTreeSet::new();
        for (provider, name) in [("edge", "eu-web-1"), ("edge-eu", "web-1")] {
            let other = other_name(provider, name);
            let work = dispatched((&named(name), &other), &web(), (provider, "m"), false, None, "id");
            assert_eq!(provided_slice(&work, provider), name);
            assert!(known.insert(other.clone()) && known.insert(object::name(&work).to_owned()), "{other}");
        }
    }

    #[test]
    fn a_service_is_taken_from_its_policy_and_let_go() {
        let mut template = json!({"apiVersion": "v1", "kind": "Service", "metadata": {
            "name": "web", "namespace": "demo", "uid": "a41811f5", "resourceVersion": "458",
            "labels": {"app": "web", "propagationpolicy.karmada.io/permanent-id": "x"},
            "annotations": {"propagationpolicy.karmada.io/name": "p", "propagationpolicy.karmada.io/namespace": "demo"}}});
        assert!(claim(&mut template, &service()) && !claim(&mut template.clone(), &service()));
        assert_eq!(
            template["metadata"]["labels"],
            json!({"app": "web",
            "resourcetemplate.karmada.io/claimed-by": "MultiClusterService", "multiclusterservice.karmada.io/permanent-id": "52b4e129"})
        );
        assert_eq!(
            template["metadata"]["annotations"],
            json!({"multiclusterservice.karmada.io/name": "web", "multiclusterservice.karmada.io/namespace": "demo"})
        );
        let clusters = BTreeSet::from(["member4".to_owned(), "member5".to_owned()]);
        let made = binding(&template, &service(), &clusters, None);
        assert_eq!(
            made["spec"],
            json!({"conflictResolution": "Overwrite",
            "placement": {"clusterAffinity": {"clusterNames": ["member4", "member5"]}},
            "resource": {"apiVersion": "v1", "kind": "Service", "namespace": "demo", "name": "web", "uid": "a41811f5", "resourceVersion": "458"}})
        );
        assert_eq!(
            made["metadata"]["labels"],
            json!({
            "binding.karmada.io/managed-by": "MultiClusterService", "multiclusterservice.karmada.io/permanent-id": "52b4e129"})
        );
        let mut live = made;
        live["spec"]["clusters"] = json!([{"name": "member4"}]);
        template["metadata"]["resourceVersion"] = json!("459");
        assert_eq!(binding(&template, &service(), &clusters, Some(&live)), live, "nothing to write");
        assert!(!release(&mut live, &ServiceName::new("demo", "other")));
        assert!(release(&mut live, &web()) && !release(&mut live.clone(), &web()));
        assert!(release(&mut template, &web()));
        assert_eq!(template["metadata"]["labels"], json!({"app": "web"}));
    }

    #[test]
    fn what_is_no_multi_cluster_service_is_refused() {
        let spec = |value: Value| -> Spec { serde_json::from_value(value).unwrap() };
        let good =
            spec(json!({"types": ["CrossCluster"], "ports": [{"name": "http", "port": 80}, {"port": 443}],
            "providerClusters": [{"name": "m1"}]}));
        assert_eq!(validate("web", &good, Some(&good)), []);
        assert!(good.is_provided_by("m1") && !good.is_provided_by("m2") && good.is_used_by("m2"));
        let rows = [
            ("1web", json!({"types": ["CrossCluster"]}), "metadata.name"),
            (
                "web",
                json!({"types": ["Ingress"]}),
                "spec.types[0]: Invalid value: \"Ingress\": ExposureType Error",
            ),
            (
                "web",
                json!({"types": ["CrossCluster", "LoadBalancer"]}),
                "MultiClusterService types should not contain more than one type",
            ),
            ("web", json!({"types": ["LoadBalancer"]}), "MultiClusterService types are immutable"),
            (
                "web",
                json!({"types": ["CrossCluster"], "ports": [{"name": "a", "port": 1}, {"name": "a", "port": 2}]}),
                "spec.ports[1].name: Duplicate value: \"a\"",
            ),
            (
                "web",
                json!({"types": ["CrossCluster"], "ports": [{"name": "A", "port": 0}]}),
                "spec.ports[0].port",
            ),
            (
                "web",
                json!({"types": ["CrossCluster"], "consumerClusters": [{"name": "a.b"}]}),
                "spec.range.consumerClusters[0]",
            ),
        ];
        for (name, value, want) in rows {
            let errors = validate(name, &spec(value), Some(&good));
            let text = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            assert!(text.contains(want), "{text}\n wanted {want}");
        }
    }

    #[test]
    fn endpoints_are_withdrawn_only_if_somebody_asks() {
        assert_eq!(withdraw_after(&service()), Ok(None));
        let mut asks = service();
        object::set_annotation(&mut asks, "multiclusterservice.karmada.io/withdraw-after", "5m");
        assert_eq!(withdraw_after(&asks), Ok(Some(Duration::from_secs(300))));
        object::set_annotation(&mut asks, "multiclusterservice.karmada.io/withdraw-after", "soon");
        assert!(withdraw_after(&asks).is_err());
        let since: Time = "2026-11-23T10:00:00Z".parse().unwrap();
        assert_eq!(later(since, Duration::from_secs(300)), Some("2026-11-23T10:05:00Z".parse().unwrap()));
    }
}
