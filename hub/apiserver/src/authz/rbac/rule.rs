//! One rule of a role: what it allows.

use serde_json::{Map, Value, json};

/// Stands for every verb, group, resource or path.
pub const ALL: &str = "*";

/// A rule as roles have it: verbs on resources of groups, or on paths that are no resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyRule {
    /// Verbs; `*` for all.
    pub verbs: Vec<String>,
    /// API groups, the core one empty; `*` for all.
    pub api_groups: Vec<String>,
    /// Resources, or `resource/subresource`, or `*/subresource`; `*` for all with their subresources.
    pub resources: Vec<String>,
    /// The names it is about; empty: any.
    pub resource_names: Vec<String>,
    /// Paths; one that ends with `*` stands for all that begin so.
    pub non_resource_urls: Vec<String>,
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

impl PolicyRule {
    /// Reads a rule of a stored object. What is no list of texts is none.
    pub fn of(rule: &Value) -> Self {
        Self {
            verbs: texts(&rule["verbs"]),
            api_groups: texts(&rule["apiGroups"]),
            resources: texts(&rule["resources"]),
            resource_names: texts(&rule["resourceNames"]),
            non_resource_urls: texts(&rule["nonResourceURLs"]),
        }
    }

    /// The rules of a role.
    pub fn all_of(role: &Value) -> Vec<Self> {
        role["rules"].as_array().into_iter().flatten().map(Self::of).collect()
    }

    /// As roles have it.
    pub fn to_value(&self) -> Value {
        let mut rule = Map::new();
        let fields = [
            ("verbs", &self.verbs),
            ("apiGroups", &self.api_groups),
            ("resources", &self.resources),
            ("resourceNames", &self.resource_names),
            ("nonResourceURLs", &self.non_resource_urls),
        ];
        for (field, texts) in fields.into_iter().filter(|(_, texts)| !texts.is_empty()) {
            rule.insert(field.to_owned(), json!(texts));
        }
        rule.into()
    }

    /// Everything: what only an administrator has.
    pub fn everything() -> [Self; 2] {
        let all = || vec![ALL.to_owned()];
        [
            Self { verbs: all(), api_groups: all(), resources: all(), ..Self::default() },
            Self { verbs: all(), non_resource_urls: all(), ..Self::default() },
        ]
    }

    /// Whether it allows a verb.
    pub(super) fn has_verb(&self, verb: &str) -> bool {
        has(&self.verbs, verb)
    }

    /// Whether it is about a group.
    pub(super) fn has_group(&self, group: &str) -> bool {
        has(&self.api_groups, group)
    }

    /// Whether it is about a resource, or a subresource of one.
    pub(super) fn has_resource(&self, resource: &str, subresource: &str) -> bool {
        self.resources.iter().any(|ours| names_resource(ours, resource, subresource))
    }

    /// Whether it is about an object of that name; without a name only one that is about any is.
    pub(super) fn has_name(&self, name: &str) -> bool {
        self.resource_names.is_empty() || self.resource_names.iter().any(|ours| ours == name)
    }

    /// Whether it is about a path.
    pub(super) fn has_path(&self, path: &str) -> bool {
        self.non_resource_urls.iter().any(|ours| path_covers(ours, path))
    }
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|ours| ours == ALL || ours == wanted)
}

/// Whether a rule's resource stands for a resource, or for a subresource of one.
fn names_resource(ours: &str, resource: &str, subresource: &str) -> bool {
    if ours == ALL {
        return true;
    }
    if subresource.is_empty() {
        return ours == resource;
    }
    let rest = ours.strip_prefix("*/").or_else(|| ours.strip_prefix(resource)?.strip_prefix('/'));
    rest == Some(subresource)
}

/// Whether a rule's path stands for another one, which may be a rule's too.
pub(super) fn path_covers(ours: &str, path: &str) -> bool {
    ours == path || ours.ends_with('*') && path.starts_with(ours.trim_end_matches('*'))
}
