//! What sets a built-in kind apart, as a table. Everything not named here has [`Rules::default`].
//!
//! The rows restate Kubernetes' strategies (`pkg/registry/*/*/strategy.go`) as facts: which kinds count generations,
//! which may be updated without a resourceVersion, which answer a deletion with the object, which names they take.

/// Which names a kind takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// DNS-1123 subdomain, up to 253 characters: the default.
    Subdomain,
    /// DNS-1123 label, up to 63 characters.
    Label,
    /// Anything that can stand in a path (RBAC, Events).
    PathSegment,
    /// An address in its shortest form.
    Address,
    /// Checked elsewhere (a CustomResourceDefinition's name follows from its spec), or not at all.
    Free,
}

/// How the registry treats a kind.
#[derive(Clone, Debug)]
pub struct Rules {
    /// `metadata.generation` counts changes outside metadata and status.
    pub generation: bool,
    /// `metadata.generation` counts changes of annotations, too (Deployment alone).
    pub generation_of_annotations: bool,
    /// PUT without a resourceVersion overwrites; otherwise it is a 422.
    pub unconditional_update: bool,
    /// PUT of a missing object creates it.
    pub create_on_update: bool,
    /// DELETE answers with the object instead of a Status.
    pub delete_returns_object: bool,
    /// The status given at creation is kept although there is a status subresource (Node).
    pub keeps_status_on_create: bool,
    /// Names.
    pub name: NameRule,
    /// Default propagation policy of DELETE is Orphan rather than Background.
    pub orphans_by_default: bool,
    /// Fields that a field selector may name, beside metadata.name and metadata.namespace. Dotted paths.
    pub selectable: Vec<String>,
    /// Fields, as dotted paths, that the main endpoint neither writes nor owns (`status`, …).
    pub reset: Vec<String>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            generation: false,
            generation_of_annotations: false,
            unconditional_update: true,
            create_on_update: false,
            delete_returns_object: false,
            keeps_status_on_create: false,
            name: NameRule::Subdomain,
            orphans_by_default: false,
            selectable: Vec::new(),
            reset: Vec::new(),
        }
    }
}

/// Kinds whose strategy sets `metadata.generation`.
const GENERATION: &[&str] = &[
    "daemonsets.apps",
    "deployments.apps",
    "replicasets.apps",
    "statefulsets.apps",
    "cronjobs.batch",
    "jobs.batch",
    "replicationcontrollers.",
    "pods.",
    "podtemplates.",
    "ingresses.networking.k8s.io",
    "ingressclasses.networking.k8s.io",
    "networkpolicies.networking.k8s.io",
    "poddisruptionbudgets.policy",
    "endpointslices.discovery.k8s.io",
    "priorityclasses.scheduling.k8s.io",
    "flowschemas.flowcontrol.apiserver.k8s.io",
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io",
    "validatingwebhookconfigurations.admissionregistration.k8s.io",
    "validatingadmissionpolicies.admissionregistration.k8s.io",
    "validatingadmissionpolicybindings.admissionregistration.k8s.io",
    "mutatingadmissionpolicies.admissionregistration.k8s.io",
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
    "customresourcedefinitions.apiextensions.k8s.io",
    "deviceclasses.resource.k8s.io",
    "resourceslices.resource.k8s.io",
];

/// Kinds that insist on a resourceVersion in PUT.
const CONDITIONAL: &[&str] = &[
    "leases.coordination.k8s.io",
    "poddisruptionbudgets.policy",
    "runtimeclasses.node.k8s.io",
    "csidrivers.storage.k8s.io",
    "csinodes.storage.k8s.io",
    "csistoragecapacities.storage.k8s.io",
    "volumeattachments.storage.k8s.io",
    "volumeattributesclasses.storage.k8s.io",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io",
    "validatingwebhookconfigurations.admissionregistration.k8s.io",
    "validatingadmissionpolicies.admissionregistration.k8s.io",
    "validatingadmissionpolicybindings.admissionregistration.k8s.io",
    "mutatingadmissionpolicies.admissionregistration.k8s.io",
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
    "customresourcedefinitions.apiextensions.k8s.io",
    "apiservices.apiregistration.k8s.io",
];

const CREATE_ON_UPDATE: &[&str] = &[
    "roles.rbac.authorization.k8s.io",
    "rolebindings.rbac.authorization.k8s.io",
    "clusterroles.rbac.authorization.k8s.io",
    "clusterrolebindings.rbac.authorization.k8s.io",
    "leases.coordination.k8s.io",
    "events.",
    "events.events.k8s.io",
    "limitranges.",
    "services.",
    "endpoints.",
    "runtimeclasses.node.k8s.io",
];

const DELETE_RETURNS_OBJECT: &[&str] = &[
    "namespaces.",
    "persistentvolumes.",
    "persistentvolumeclaims.",
    "pods.",
    "podtemplates.",
    "resourcequotas.",
    "services.",
    "serviceaccounts.",
    "csidrivers.storage.k8s.io",
    "csinodes.storage.k8s.io",
    "storageclasses.storage.k8s.io",
    "volumeattachments.storage.k8s.io",
    "volumeattributesclasses.storage.k8s.io",
];

const EVENT_SELECTABLE: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

/// Fields a selector may name, per kind.
fn selectable(key: &str) -> &'static [&'static str] {
    match key {
        "pods." => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        "nodes." => &["spec.unschedulable"],
        "namespaces." => &["status.phase"],
        "secrets." => &["type"],
        "services." => &["spec.clusterIP", "spec.type"],
        "replicationcontrollers." | "replicasets.apps" => &["status.replicas"],
        "jobs.batch" => &["status.successful"],
        "certificatesigningrequests.certificates.k8s.io" => &["spec.signerName"],
        "resourceslices.resource.k8s.io" => &["spec.nodeName", "spec.driver"],
        "events." => EVENT_SELECTABLE,
        "events.events.k8s.io" => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        _ => &[],
    }
}

/// The rules of a built-in kind.
pub fn built_in(group: &str, resource: &str, has_status: bool) -> Rules {
    let key = format!("{resource}.{group}");
    let has = |list: &[&str]| list.contains(&key.as_str());
    let mut reset = Vec::new();
    if has_status {
        reset.push("status".to_owned());
    }
    if key == "certificatesigningrequests.certificates.k8s.io" {
        // What is asked for stays what it was.
        reset.push("spec".to_owned());
    }
    Rules {
        generation: has(GENERATION),
        generation_of_annotations: key == "deployments.apps",
        unconditional_update: !has(CONDITIONAL),
        create_on_update: has(CREATE_ON_UPDATE),
        delete_returns_object: has(DELETE_RETURNS_OBJECT),
        keeps_status_on_create: key == "nodes.",
        name: match key.as_str() {
            "namespaces." | "services." => NameRule::Label,
            "certificatesigningrequests.certificates.k8s.io"
            | "customresourcedefinitions.apiextensions.k8s.io"
            | "apiservices.apiregistration.k8s.io" => NameRule::Free,
            "events." | "events.events.k8s.io" => NameRule::PathSegment,
            "ipaddresses.networking.k8s.io" => NameRule::Address,
            _ if group == "rbac.authorization.k8s.io" => NameRule::PathSegment,
            _ => NameRule::Subdomain,
        },
        orphans_by_default: key == "replicationcontrollers.",
        selectable: selectable(&key).iter().map(|&s| s.to_owned()).collect(),
        reset,
    }
}

/// The rules of a custom resource.
pub fn custom(has_status: bool, selectable: Vec<String>) -> Rules {
    Rules {
        generation: true,
        unconditional_update: false,
        selectable,
        reset: if has_status { vec!["status".to_owned()] } else { Vec::new() },
        ..Rules::default()
    }
}
