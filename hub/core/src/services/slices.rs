//! EndpointSlices on their way from a provider.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
};

use karmada_api::{
    KarmadaKind,
    consts::{annotation, finalizer, label},
    work::Work,
};
use karmada_meta::object;
use serde_json::{Value, json};

use super::{Asked, MULTI_CLUSTER_SERVICE, SERVICE_EXPORT, ServiceName};
use crate::{names, work};

/// The label by which an EndpointSlice belongs to a Service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label that says who makes an EndpointSlice.
pub const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Who makes the hub's slices of exported Services.
pub const IMPORTER: &str = "endpointslice-controller.karmada.io";
/// Who makes the slices of MultiClusterServices.
pub const DISPATCHER: &str = "endpointslice-dispatch-controller.karmada.io";
/// Selects the slices that a cluster has made itself: others are not collected again.
pub const NATIVE: &str = "endpointslice.kubernetes.io/managed-by notin \
                          (endpointslice-controller.karmada.io,endpointslice-dispatch-controller.karmada.io)";

const KIND: &str = "EndpointSlice";
const API_VERSION: &str = "discovery.k8s.io/v1";
/// What of a slice tells where its Service is.
const CONTENT: [&str; 3] = ["addressType", "endpoints", "ports"];
/// When its endpoints have last changed: no news beside what they are.
const CHANGED: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// One Work tells of so many slices at most, as Karmada's agents and ours do.
pub const SLICES: usize = 1;
/// And of so many endpoints: as many as Kubernetes has in one slice.
pub const ENDPOINTS: usize = 1000;
/// An endpoint has so many addresses at most, as in Kubernetes.
pub const ADDRESSES: usize = 100;
/// A slice has so many ports at most.
pub const PORTS: usize = 100;

/// The Service that a slice is of; nothing of one that Karmada has made, or that is of none.
pub fn service(slice: &Value) -> Option<ServiceName> {
    let made_by = object::label(slice, MANAGED_BY).unwrap_or_default();
    let name = object::label(slice, SERVICE_NAME).filter(|name| !name.is_empty())?;
    let native = made_by != IMPORTER && made_by != DISPATCHER;
    native.then(|| ServiceName::new(object::namespace(slice), name))
}

/// A digest of where a slice says that its Service is, for comparisons within one process.
pub fn digest(slice: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    // Values, unlike their texts, are the same in whatever order a server has their fields.
    CONTENT.map(|field| &slice[field]).hash(&mut hasher);
    object::label(slice, SERVICE_NAME).hash(&mut hasher);
    hasher.finish()
}

/// The addresses at which a slice's endpoints take requests.
pub fn ready(slice: &Value) -> BTreeSet<String> {
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    // Who says nothing about it is ready.
    let ready = endpoints.filter(|endpoint| endpoint["conditions"]["ready"] != json!(false));
    let addresses = ready.filter_map(|endpoint| endpoint["addresses"].as_array()).flatten();
    addresses.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Where a slice says that requests are taken: each of these addresses at each of these ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    addresses: BTreeSet<String>,
    ports: BTreeSet<String>,
}

impl Taken {
    /// What a slice says.
    pub fn of(slice: &Value) -> Self {
        let ports = slice["ports"].as_array().into_iter().flatten();
        let ports = ports.map(|port| json!([port["name"], port["port"], port["protocol"]]).to_string());
        Self { addresses: ready(slice), ports: ports.collect() }
    }

    /// Whether they were taken somewhere before where they are not any more.
    pub fn lacks(&self, before: &Self) -> bool {
        let had_any = !before.addresses.is_empty();
        had_any && !(before.addresses.is_subset(&self.addresses) && before.ports.is_subset(&self.ports))
    }

    /// The texts of which it is made.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.addresses.iter().chain(&self.ports).map(String::as_str)
    }
}

/// The name of the Work of a slice.
pub fn work_name(namespace: &str, slice: &str) -> String {
    names::work_name(KIND, namespace, slice)
}

/// The Work by which an agent tells of a slice, for whoever has asked for it. `existing` is the Work that is there; of one that is
/// not asked for by somebody any more the hub takes that one's finalizer off, when it has taken back what it has made of it.
pub fn collected(
    slice: &Value,
    cluster: &str,
    asked: Asked,
    existing: Option<&Value>,
    new_id: impl FnOnce() -> String,
) -> Value {
    let mut work = existing.cloned().unwrap_or_else(|| {
        json!({
            "apiVersion": Work::API_VERSION,
            "kind": Work::KIND,
            "metadata": {
                "name": work_name(object::namespace(slice), object::name(slice)),
                "namespace": names::execution_namespace(cluster),
            },
            "spec": {},
        })
    });
    if object::label(&work, label::WORK_ID).is_none_or(str::is_empty) {
        object::set_label(&mut work, label::WORK_ID, new_id());
    }
    let service = service(slice).unwrap_or_default();
    let sides = [
        (
            asked.export,
            [label::ENDPOINT_SLICE_NAMESPACE, label::ENDPOINT_SLICE_NAME],
            finalizer::ENDPOINT_SLICE,
        ),
        (
            asked.multi_cluster,
            [label::MULTI_CLUSTER_SERVICE_NAMESPACE, label::MULTI_CLUSTER_SERVICE_NAME],
            finalizer::MCS_ENDPOINT_SLICE_DISPATCH,
        ),
    ];
    for (asked, [namespace, name], finalizer) in sides {
        if asked {
            object::set_label(&mut work, namespace, service.namespace.as_str());
            object::set_label(&mut work, name, service.name.as_str());
            object::add_finalizer(&mut work, finalizer);
        } else {
            object::remove_label(&mut work, namespace);
            object::remove_label(&mut work, name);
        }
    }
    object::set_label(&mut work, label::ENDPOINT_SLICE_MANAGED_BY, managers(asked));
    let mut manifest = json!({"apiVersion": API_VERSION, "kind": KIND, "metadata": slice["metadata"]});
    CONTENT.iter().for_each(|field| manifest[*field] = slice[*field].clone());
    object::remove_annotation(&mut manifest, CHANGED);
    work::finish(&mut work, manifest);
    work["spec"]["suspendDispatching"] = json!(true);
    work
}

/// Takes what a MultiClusterService has asked for off a Work that an export asks for, too. Whether that changed it.
pub fn release_multi(work: &mut Value) -> bool {
    let asked = asked(work);
    if !asked.export || !asked.multi_cluster {
        return false;
    }
    object::remove_label(work, label::MULTI_CLUSTER_SERVICE_NAMESPACE);
    object::remove_label(work, label::MULTI_CLUSTER_SERVICE_NAME);
    let left = Asked { multi_cluster: false, ..asked };
    object::set_label(work, label::ENDPOINT_SLICE_MANAGED_BY, managers(left));
    true
}

/// Who collects, in one order: Karmada's own comes in any.
fn managers(asked: Asked) -> String {
    let all = [(asked.multi_cluster, MULTI_CLUSTER_SERVICE), (asked.export, SERVICE_EXPORT)];
    all.iter().filter(|(asked, _)| *asked).map(|(_, name)| *name).collect::<Vec<_>>().join(".")
}

/// Who has asked for what a collected Work tells.
pub fn asked(work: &Value) -> Asked {
    let managers = object::label(work, label::ENDPOINT_SLICE_MANAGED_BY).unwrap_or_default();
    let has = |name: &str| managers.split('.').any(|manager| manager == name);
    Asked { export: has(SERVICE_EXPORT), multi_cluster: has(MULTI_CLUSTER_SERVICE) }
}

/// Whether an agent has collected a Work.
pub fn is_collected(work: &Value) -> bool {
    object::label(work, label::ENDPOINT_SLICE_MANAGED_BY).is_some_and(|managers| !managers.is_empty())
}

/// The exported Service that a Work's labels name.
pub fn exported(work: &Value) -> Option<ServiceName> {
    named(work, label::ENDPOINT_SLICE_NAMESPACE, label::ENDPOINT_SLICE_NAME)
}

/// The MultiClusterService that a Work's labels name.
pub fn multi(work: &Value) -> Option<ServiceName> {
    named(work, label::MULTI_CLUSTER_SERVICE_NAMESPACE, label::MULTI_CLUSTER_SERVICE_NAME)
}

fn named(work: &Value, namespace: &str, name: &str) -> Option<ServiceName> {
    let text = |key| object::label(work, key).filter(|text| !text.is_empty());
    Some(ServiceName::new(text(namespace)?, text(name)?))
}

/// The slices of a Work, if they are what its labels say: a cluster speaks for the Service that it names and no other, and not at
/// any length.
///
/// # Errors
/// What speaks for something else, or is too much.
pub fn told<'a>(work: &'a Value, service: &ServiceName) -> Result<Vec<&'a Value>, String> {
    let manifests = work.pointer("/spec/workload/manifests").and_then(Value::as_array);
    let manifests: Vec<&Value> = manifests.into_iter().flatten().collect();
    let list = |value: &Value| value.as_array().map_or(0, Vec::len);
    let endpoints = || manifests.iter().filter_map(|slice| slice["endpoints"].as_array()).flatten();
    let most = |what: &str, is: usize, most: usize| match is > most {
        true => Err(format!("it tells of {is} {what}, and {most} is the most")),
        false => Ok(()),
    };
    most("slices", manifests.len(), SLICES)?;
    most("endpoints", endpoints().count(), ENDPOINTS)?;
    let addresses = endpoints().map(|endpoint| list(&endpoint["addresses"])).max();
    most("addresses of one endpoint", addresses.unwrap_or_default(), ADDRESSES)?;
    let ports = manifests.iter().map(|slice| list(&slice["ports"])).max();
    most("ports", ports.unwrap_or_default(), PORTS)?;
    for manifest in &manifests {
        let (api_version, kind) = (object::api_version(manifest), object::kind(manifest));
        let (namespace, name) = (object::namespace(manifest), object::name(manifest));
        let of = object::label(manifest, SERVICE_NAME).unwrap_or_default();
        if (api_version, kind) != (API_VERSION, KIND) {
            return Err(format!("{kind} {namespace}/{name} in {api_version} is no EndpointSlice"));
        }
        if (namespace, of) != (&service.namespace, &service.name) {
            return Err(format!(
                "EndpointSlice {namespace}/{name} is of Service {namespace}/{of}, and the Work's labels say {service}"
            ));
        }
        let named = work_name(namespace, name);
        if object::name(work) != named {
            // So two Works never tell of one slice.
            return Err(format!(
                "EndpointSlice {namespace}/{name} counts only in a Work of the name {named}"
            ));
        }
    }
    Ok(manifests)
}

/// The name of the hub's slice of what a cluster exports.
pub fn imported_name(cluster: &str, slice: &str) -> String {
    format!("imported-{cluster}-{slice}")
}

/// Another name of it, where Karmada's is taken: `edge` with a slice `eu-web-1` and `edge-eu` with `web-1` have the same one.
///
/// No cluster can name its slices so that it takes another's: names of clusters have no dots, so this is nobody else's, and never
/// Karmada's name of anything.
pub fn other_imported_name(cluster: &str, slice: &str) -> String {
    format!("imported.{cluster}.{slice}")
}

/// The hub's slice of one that a cluster has told, under [`imported_name`] or the other one; if it was withdrawn, with no endpoint
/// that takes requests.
pub fn imported(work: &Value, name: &str, service: &ServiceName, slice: &Value, withdrawn: bool) -> Value {
    let mut made = json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": name,
            "namespace": service.namespace,
            "labels": {
                (label::WORK_ID): object::label(work, label::WORK_ID).unwrap_or_default(),
                (SERVICE_NAME): super::import::derived_name(&service.name),
                (MANAGED_BY): IMPORTER,
            },
            "annotations": {
                (annotation::WORK_NAMESPACE): object::namespace(work),
                (annotation::WORK_NAME): object::name(work),
            },
        },
    });
    abroad(&mut made, slice, withdrawn);
    made
}

/// Where a Service is, as it is told in another cluster: nodes and Pods of the same names are others there.
pub(super) fn abroad(made: &mut Value, slice: &Value, withdrawn: bool) {
    CONTENT.iter().for_each(|field| made[*field] = slice[*field].clone());
    for list in ["endpoints", "ports"] {
        if made[list].is_null() {
            made[list] = json!([]);
        }
    }
    for endpoint in made["endpoints"].as_array_mut().into_iter().flatten() {
        if let Some(endpoint) = endpoint.as_object_mut() {
            for field in ["nodeName", "hints", "targetRef"] {
                endpoint.shift_remove(field);
            }
        }
        if withdrawn {
            let conditions = object::ensure_map(endpoint, "conditions");
            conditions.insert("ready".into(), json!(false));
            conditions.insert("serving".into(), json!(false));
        }
    }
}

/// Brings a slice that is there to what it should be, and leaves what others have added. Whether that changed it.
pub fn align(live: &mut Value, wanted: &Value) -> bool {
    let before = live.clone();
    CONTENT.iter().for_each(|field| live[*field] = wanted[*field].clone());
    for (key, value) in object::label_map(wanted) {
        object::set_label(live, &key, value);
    }
    for (key, value) in object::annotations(wanted).into_iter().flatten() {
        object::set_annotation(live, key, value.as_str().unwrap_or_default());
    }
    // In whatever order the server has its fields.
    before != *live
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice() -> Value {
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {
                "name": "web-74lwq", "namespace": "demo", "generateName": "web-", "uid": "cd2357f3-ce56-41bb-aa50-d21c2dd74570",
                "resourceVersion": "7", "generation": 2, "ownerReferences": [{"kind": "Service", "name": "web"}],
                "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": "2026-11-22T02:57:22Z"},
                "labels": {
                    "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                    "karmada.io/managed": "true", "kubernetes.io/service-name": "web",
                },
            },
            "endpoints": [
                {"addresses": ["10.244.0.4"], "conditions": {"ready": true, "serving": true, "terminating": false},
                 "nodeName": "node-0", "targetRef": {"kind": "Pod", "name": "web-1"}, "hints": {"forZones": []}, "zone": "z"},
                {"addresses": ["10.244.0.5"], "conditions": {"ready": false}},
                {"addresses": ["10.244.0.6"]},
            ],
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
        })
    }

    const EXPORT: Asked = Asked { export: true, multi_cluster: false };
    const BOTH: Asked = Asked { export: true, multi_cluster: true };

    fn work() -> Value {
        collected(&slice(), "member4", EXPORT, None, || "38f894f9".to_owned())
    }

    /// As a stock Karmada's agent has it (service-export-import in the recordings).
    #[test]
    fn what_is_collected_is_told_as_karmada_does() {
        let work = work();
        let want = json!({
            "name": "web-74lwq-7666bf4665", "namespace": "karmada-es-member4",
            "labels": {
                "work.karmada.io/permanent-id": "38f894f9", "endpointslice.karmada.io/namespace": "demo",
                "endpointslice.karmada.io/name": "web", "endpointslice.karmada.io/managed-by": "ServiceExport",
            },
            "finalizers": ["karmada.io/endpointslice-controller"],
        });
        assert_eq!(work["metadata"], want);
        assert_eq!(work["spec"]["suspendDispatching"], true);
        let manifest = &work["spec"]["workload"]["manifests"][0];
        let metadata = json!({
            "name": "web-74lwq", "namespace": "demo", "generateName": "web-",
            "annotations": {
                "resourcetemplate.karmada.io/managed-annotations": "resourcetemplate.karmada.io/managed-annotations,resourcetemplate.karmada.io/managed-labels,resourcetemplate.karmada.io/uid,work.karmada.io/name,work.karmada.io/namespace",
                "resourcetemplate.karmada.io/managed-labels": "endpointslice.kubernetes.io/managed-by,karmada.io/managed,kubernetes.io/service-name,work.karmada.io/permanent-id",
                "resourcetemplate.karmada.io/uid": "cd2357f3-ce56-41bb-aa50-d21c2dd74570",
                "work.karmada.io/name": "web-74lwq-7666bf4665", "work.karmada.io/namespace": "karmada-es-member4",
            },
            "labels": {
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io", "karmada.io/managed": "true",
                "kubernetes.io/service-name": "web", "work.karmada.io/permanent-id": "38f894f9",
            },
        });
        assert_eq!(manifest["metadata"], metadata);
        assert_eq!(manifest["endpoints"], slice()["endpoints"]);
        assert_eq!((asked(&work), exported(&work)), (EXPORT, Some(ServiceName::new("demo", "web"))));
        assert_eq!(
            collected(&slice(), "member4", EXPORT, Some(&work), String::new),
            work,
            "nothing to write"
        );
    }

    #[test]
    fn an_export_and_a_multi_cluster_service_come_and_go_each_alone() {
        let both = collected(&slice(), "member4", BOTH, Some(&work()), String::new);
        assert_eq!(
            object::label(&both, label::ENDPOINT_SLICE_MANAGED_BY),
            Some("MultiClusterService.ServiceExport")
        );
        assert_eq!(object::finalizers(&both).len(), 2);
        // A stock agent writes them in any order.
        let mut other = both.clone();
        object::set_label(&mut other, label::ENDPOINT_SLICE_MANAGED_BY, "ServiceExport.MultiClusterService");
        assert_eq!(asked(&other), BOTH);
        let one = collected(
            &slice(),
            "member4",
            Asked { export: false, multi_cluster: true },
            Some(&both),
            String::new,
        );
        assert_eq!(exported(&one), None);
        assert_eq!(object::label(&one, label::MULTI_CLUSTER_SERVICE_NAME), Some("web"));
        assert_eq!(object::finalizers(&one).len(), 2, "the hub takes the other off");
        assert_eq!(object::label(&one, label::WORK_ID), Some("38f894f9"));
        // The hub does the same for an agent that does not.
        let mut left = both;
        assert!(release_multi(&mut left));
        let export = Asked { export: true, multi_cluster: false };
        assert_eq!((asked(&left), multi(&left)), (export, None));
        assert_eq!(exported(&left), Some(ServiceName::new("demo", "web")));
        for mut alone in [left, one] {
            assert!(!release_multi(&mut alone));
        }
    }

    #[test]
    fn a_cluster_speaks_for_no_other_service() {
        let web = ServiceName::new("demo", "web");
        let changed = |pointer: &str, to: &str| {
            let mut work = work();
            *work.pointer_mut(&format!("/spec/workload/manifests/0{pointer}")).unwrap() = json!(to);
            told(&work, &web).map(|slices| slices.len())
        };
        assert_eq!(told(&work(), &web).map(|slices| slices.len()), Ok(1));
        let rows = [
            (
                "/metadata/namespace",
                "kube-system",
                "is of Service kube-system/web, and the Work's labels say demo/web",
            ),
            ("/metadata/labels/kubernetes.io~1service-name", "api", "is of Service demo/api"),
            ("/kind", "Secret", "Secret demo/web-74lwq in discovery.k8s.io/v1 is no EndpointSlice"),
            ("/apiVersion", "v1", "is no EndpointSlice"),
            ("/metadata/name", "web-9", "EndpointSlice demo/web-9 counts only in a Work of the name web-9-"),
        ];
        for (pointer, to, want) in rows {
            let why = changed(pointer, to).unwrap_err();
            assert!(why.contains(want), "{pointer}: {why}");
        }
    }

    #[test]
    fn a_cluster_does_not_speak_at_any_length() {
        let web = ServiceName::new("demo", "web");
        let told = |change: &dyn Fn(&mut Vec<Value>)| {
            let mut work = work();
            change(work["spec"]["workload"]["manifests"].as_array_mut().unwrap());
            told(&work, &web).map(|slices| slices.len())
        };
        let grow = |list: &mut Value, to: usize| {
            let one = list[0].clone();
            *list = (0..to).map(|_| one.clone()).collect();
        };
        assert_eq!(told(&|slices| grow(&mut slices[0]["endpoints"], ENDPOINTS)), Ok(1));
        assert_eq!(told(&|slices| *slices = vec![slices[0].clone(); SLICES]), Ok(SLICES));
        let rows: [(&str, &dyn Fn(&mut Vec<Value>)); 4] = [
            ("it tells of 2 slices, and 1 is the most", &|slices| {
                *slices = vec![slices[0].clone(); SLICES + 1]
            }),
            ("it tells of 1001 endpoints", &|slices| grow(&mut slices[0]["endpoints"], ENDPOINTS + 1)),
            ("it tells of 101 addresses of one endpoint", &|slices| {
                grow(&mut slices[0]["endpoints"][1]["addresses"], ADDRESSES + 1);
            }),
            ("it tells of 101 ports", &|slices| grow(&mut slices[0]["ports"], PORTS + 1)),
        ];
        for (want, change) in rows {
            let why = told(change).unwrap_err();
            assert!(why.contains(want), "{why}, and not {want}");
        }
    }

    /// Cluster and slice are told apart where a hyphen may be in both.
    #[test]
    fn two_slices_that_would_have_one_name_have_two() {
        let (one, two) = (("edge", "eu-web-1"), ("edge-eu", "web-1"));
        assert_eq!(imported_name(one.0, one.1), imported_name(two.0, two.1));
        assert_ne!(other_imported_name(one.0, one.1), other_imported_name(two.0, two.1));
        assert_eq!(other_imported_name(one.0, one.1), "imported.edge.eu-web-1");
    }

    #[test]
    fn what_is_told_abroad_names_no_nodes_and_pods() {
        let (work, web) = (work(), ServiceName::new("demo", "web"));
        let slices = told(&work, &web).unwrap();
        let name = imported_name("member4", object::name(slices[0]));
        let made = imported(&work, &name, &web, slices[0], false);
        let want = json!({
            "name": "imported-member4-web-74lwq", "namespace": "demo",
            "annotations": {"work.karmada.io/name": "web-74lwq-7666bf4665", "work.karmada.io/namespace": "karmada-es-member4"},
            "labels": {
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.karmada.io",
                "kubernetes.io/service-name": "derived-web", "work.karmada.io/permanent-id": "38f894f9",
            },
        });
        assert_eq!(made["metadata"], want);
        assert_eq!(service(&made), None, "it is not collected again");
        assert_eq!(
            made["endpoints"][0],
            json!({"addresses": ["10.244.0.4"], "zone": "z",
            "conditions": {"ready": true, "serving": true, "terminating": false}})
        );
        let mut empty = slice();
        (empty["endpoints"], empty["ports"]) = (Value::Null, Value::Null);
        let made = imported(&work, &name, &web, slices[0], true);
        assert_eq!((ready(&made).len(), made["endpoints"].as_array().map(Vec::len)), (0, Some(3)));
        assert_eq!(made["endpoints"][2]["conditions"], json!({"ready": false, "serving": false}));
        let made = imported(&work, &name, &web, &empty, false);
        assert_eq!((&made["endpoints"], &made["ports"]), (&json!([]), &json!([])));
        let mut live = made.clone();
        object::set_annotation(&mut live, "a", "b");
        assert!(!align(&mut live, &made));
        live["endpoints"] = json!([{"addresses": ["10.0.0.1"]}]);
        assert!(align(&mut live, &made) && live["endpoints"] == json!([]));
        assert_eq!(object::annotation(&live, "a"), Some("b"));
    }

    #[test]
    fn what_is_lost_is_an_address_or_a_port() {
        let before = Taken::of(&slice());
        let rows: [(&str, Value, bool); 8] = [
            ("/endpoints/1/conditions/ready", json!(true), false),
            ("/endpoints/0/conditions/ready", json!(false), true),
            ("/endpoints/0/addresses/0", json!("10.244.0.9"), true),
            ("/endpoints/0/zone", json!("y"), false),
            ("/ports/0/port", json!(8080), true),
            ("/ports/0/protocol", json!("UDP"), true),
            ("/ports/0/name", json!("web"), true),
            (
                "/ports",
                json!([{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "more", "port": 81}]),
                false,
            ),
        ];
        for (pointer, to, want) in rows {
            let mut after = slice();
            *after.pointer_mut(pointer).unwrap() = to.clone();
            assert_eq!(Taken::of(&after).lacks(&before), want, "{pointer}: {to}");
        }
        assert!(!Taken::default().lacks(&Taken::default()) && Taken::default().lacks(&before));
        let mut unready = slice();
        unready["endpoints"] = json!([]);
        assert!(!Taken::default().lacks(&Taken::of(&unready)), "nobody was there");
    }

    #[test]
    fn what_counts_of_a_slice_is_where_its_service_is() {
        let mut other = slice();
        object::set_annotation(&mut other, "endpoints.kubernetes.io/last-change-trigger-time", "later");
        other["metadata"]["resourceVersion"] = json!("8");
        assert_eq!(digest(&slice()), digest(&other));
        let mut turned = slice();
        turned["endpoints"][0] = json!({
            "zone": "z", "hints": {"forZones": []}, "targetRef": {"name": "web-1", "kind": "Pod"}, "nodeName": "node-0",
            "conditions": {"terminating": false, "serving": true, "ready": true}, "addresses": ["10.244.0.4"],
        });
        turned["ports"] = json!([{"protocol": "TCP", "port": 80, "name": "http"}]);
        assert_ne!(turned.to_string(), slice().to_string(), "its text is another");
        assert_eq!(digest(&slice()), digest(&turned));
        let mut swapped = slice();
        swapped["endpoints"] =
            json!([slice()["endpoints"][1], slice()["endpoints"][0], slice()["endpoints"][2]]);
        assert_ne!(digest(&slice()), digest(&swapped), "of a list the order counts");
        assert_eq!(ready(&slice()), BTreeSet::from(["10.244.0.4".to_owned(), "10.244.0.6".to_owned()]));
        other["endpoints"][0]["conditions"]["ready"] = json!(false);
        assert_ne!(digest(&slice()), digest(&other));
        assert_eq!(service(&slice()), Some(ServiceName::new("demo", "web")));
        object::remove_label(&mut other, SERVICE_NAME);
        assert_eq!(service(&other), None);
    }
}
