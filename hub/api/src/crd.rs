//! The definitions of our kinds, as JSON and as the YAML of `manifests/crds`.

use serde_json::{Map, Value, json};

use crate::{
    KarmadaKind,
    apps::WorkloadRebalancer,
    cluster::Cluster,
    config::{ResourceInterpreterCustomization, webhook::ResourceInterpreterWebhookConfiguration},
    kind::{Column, Subresources},
    policy::{
        ClusterOverridePolicy, ClusterPropagationPolicy, ClusterTaintPolicy, FederatedResourceQuota,
        OverridePolicy, PropagationPolicy,
    },
    remedy::Remedy,
    search::ResourceRegistry,
    work::{ClusterResourceBinding, ResourceBinding, Work},
};

/// The CustomResourceDefinitions of all kinds of Karmada's groups, so that no client fails at discovery.
pub fn crds() -> Vec<Value> {
    let mut all = own();
    all.extend(reserved());
    all
}

/// Those that nothing here acts on yet: what is written of them is kept, and means what it means to Karmada when something
/// does. Their shape is that of Karmada's own definitions, a line for each.
fn reserved() -> Vec<Value> {
    serde_json::from_str(include_str!("reserved.json")).expect("invariant: the file is read by every test")
}

/// Those of the kinds that we have types for.
pub fn own() -> Vec<Value> {
    vec![
        definition::<Cluster>(),
        definition::<ResourceInterpreterCustomization>(),
        definition::<ResourceInterpreterWebhookConfiguration>(),
        definition::<ClusterOverridePolicy>(),
        definition::<ClusterPropagationPolicy>(),
        definition::<ClusterTaintPolicy>(),
        definition::<FederatedResourceQuota>(),
        definition::<OverridePolicy>(),
        definition::<PropagationPolicy>(),
        definition::<ClusterResourceBinding>(),
        definition::<ResourceBinding>(),
        definition::<Work>(),
        definition::<WorkloadRebalancer>(),
        definition::<Remedy>(),
        definition::<ResourceRegistry>(),
    ]
}

/// The CustomResourceDefinition of one kind.
pub fn definition<K: KarmadaKind>() -> Value {
    let mut properties = json!({
        "apiVersion": { "description": "Group and version of this object's schema.", "type": "string" },
        "kind": { "description": "The kind of this object.", "type": "string" },
        "metadata": { "type": "object" },
    });
    properties[K::BODY] = described(K::spec_schema(), "What is wanted.");
    if let Some(status) = K::status_schema() {
        properties["status"] = described(status, "What was observed.");
    }
    let mut version = Map::new();
    if !K::COLUMNS.is_empty() {
        version.insert("additionalPrinterColumns".into(), K::COLUMNS.iter().map(column).collect());
    }
    version.insert("name".into(), K::VERSION.into());
    let schema = json!({
        "description": K::ABOUT.trim(),
        "properties": properties,
        "required": [K::BODY],
        "type": "object",
    });
    version.insert("schema".into(), json!({ "openAPIV3Schema": schema }));
    version.insert("served".into(), true.into());
    version.insert("storage".into(), true.into());
    match K::SUBRESOURCES {
        Subresources::Absent => {}
        Subresources::Empty => {
            version.insert("subresources".into(), json!({}));
        }
        Subresources::Status => {
            version.insert("subresources".into(), json!({ "status": {} }));
        }
    }
    let mut names = Map::new();
    if !K::CATEGORIES.is_empty() {
        names.insert("categories".into(), K::CATEGORIES.into());
    }
    names.insert("kind".into(), K::KIND.into());
    names.insert("listKind".into(), format!("{}List", K::KIND).into());
    names.insert("plural".into(), K::PLURAL.into());
    if !K::SHORT.is_empty() {
        names.insert("shortNames".into(), K::SHORT.into());
    }
    names.insert("singular".into(), K::KIND.to_ascii_lowercase().into());
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{}.{}", K::PLURAL, K::GROUP) },
        "spec": {
            "group": K::GROUP,
            "names": names,
            "scope": if K::NAMESPACED { "Namespaced" } else { "Cluster" },
            "versions": [version],
        },
    })
}

/// The schema with a description, unless it has one of its own.
fn described(mut schema: Value, fallback: &str) -> Value {
    if let Value::Object(map) = &mut schema
        && !map.contains_key("description")
    {
        map.insert("description".into(), fallback.into());
        map.sort_keys();
    }
    schema
}

/// One printer column.
fn column(c: &Column) -> Value {
    let mut map = Map::new();
    if !c.description.is_empty() {
        map.insert("description".into(), c.description.into());
    }
    map.insert("jsonPath".into(), c.path.into());
    map.insert("name".into(), c.name.into());
    if c.priority != 0 {
        map.insert("priority".into(), c.priority.into());
    }
    map.insert("type".into(), c.kind.into());
    Value::Object(map)
}

/// The text of a definition's file in `manifests/crds`, and of its part of what `karmada-hub crds` prints.
pub fn to_yaml(definition: &Value) -> String {
    let body =
        serde_saphyr::to_string(definition).expect("invariant: JSON of text keys always has a YAML form");
    format!(
        "# Generated from hub/api by `cargo test -p karmada-api`; see hub/api/tests/manifests.rs.\n---\n{body}"
    )
}

/// The name of the file in `manifests/crds` that holds a definition: `group_plural.yaml`.
pub fn file_name(definition: &Value) -> String {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    format!("{}_{}.yaml", text("/spec/group"), text("/spec/names/plural"))
}
