//! Which clusters are searched for a kind, and in which version a list of objects of several clusters is. Pure.

use std::collections::BTreeMap;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use karmada_api::{policy::ClusterAffinity, search::ResourceRegistrySpec};

/// What is searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sought<'a> {
    /// Group and version.
    pub api_version: &'a str,
    /// Kind.
    pub kind: &'a str,
    /// In all namespaces, or of none, when empty.
    pub namespace: &'a str,
}

/// The clusters that registries mean who have this searched, each by an affinity. Who has one namespace searched says nothing
/// of all of them, and what is kept elsewhere than with the hub is none of its business.
pub fn searched<'a>(
    registries: impl IntoIterator<Item = &'a ResourceRegistrySpec>,
    sought: &Sought<'_>,
) -> Vec<&'a ClusterAffinity> {
    let selects = |spec: &&ResourceRegistrySpec| {
        spec.backend_store.as_ref().is_none_or(|store| store.open_search.is_none())
            && spec.resource_selectors.iter().any(|selector| {
                (selector.api_version.as_str(), selector.kind.as_str()) == (sought.api_version, sought.kind)
                    && (selector.namespace.is_empty() || selector.namespace == sought.namespace)
            })
    };
    registries.into_iter().filter(selects).map(|spec| &spec.target_cluster).collect()
}

/// Whether names alone say which clusters an affinity means.
pub fn is_by_name(affinity: &ClusterAffinity) -> bool {
    affinity.label_selector.is_none() && affinity.field_selector.is_none()
}

/// In which version a list of objects of several clusters is: the version of each, as Karmada writes it. The empty text and
/// "0" say nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions(pub BTreeMap<String, String>);

impl Versions {
    /// Reads what [`Versions::text`] has written.
    ///
    /// # Errors
    /// When it is something else.
    pub fn read(text: &str) -> Result<Self, String> {
        if matches!(text, "" | "0") {
            return Ok(Self::default());
        }
        let odd = || format!("{text:?} is no resourceVersion of a list of several clusters");
        let json = BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| odd())?;
        serde_json::from_slice(&json).map(Self).map_err(|_| odd())
    }

    /// As a resourceVersion.
    pub fn text(&self) -> String {
        if self.0.is_empty() {
            return "0".to_owned();
        }
        let json = serde_json::to_vec(&self.0).expect("invariant: a map of texts is JSON");
        BASE64_URL_SAFE_NO_PAD.encode(json)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn registry(cluster: &str, api_version: &str, kind: &str, namespace: &str) -> ResourceRegistrySpec {
        serde_json::from_value(json!({
            "targetCluster": {"clusterNames": [cluster]},
            "resourceSelectors": [{"apiVersion": api_version, "kind": kind, "namespace": namespace}],
        }))
        .unwrap()
    }

    #[test]
    fn who_is_searched() {
        let mut elsewhere = registry("e", "v1", "Pod", "");
        elsewhere.backend_store =
            serde_json::from_value(json!({"openSearch": {"addresses": ["https://o"]}})).unwrap();
        let mut memory = registry("m", "v1", "Pod", "");
        memory.backend_store = serde_json::from_value(json!({})).unwrap();
        let all = [
            registry("a", "v1", "Pod", ""),
            registry("b", "v1", "Pod", "shop"),
            registry("c", "v1", "Node", ""),
            registry("d", "apps/v1", "Pod", ""),
            elsewhere,
            memory,
        ];
        let rows = [
            ("v1", "Pod", "", "a m"),
            ("v1", "Pod", "shop", "a b m"),
            ("v1", "Pod", "till", "a m"),
            ("v1", "Node", "", "c"),
            ("apps/v1", "Pod", "x", "d"),
            ("v1", "Secret", "", ""),
        ];
        for (api_version, kind, namespace, want) in rows {
            let found = searched(&all, &Sought { api_version, kind, namespace });
            let names: Vec<&str> =
                found.iter().flat_map(|affinity| &affinity.cluster_names).map(String::as_str).collect();
            assert_eq!(names.join(" "), want, "{api_version} {kind} {namespace}");
            assert!(found.into_iter().all(is_by_name));
        }
    }

    #[test]
    fn versions_are_those_of_each_cluster() {
        let versions = Versions(BTreeMap::from([("a".into(), "12".into()), ("b".into(), "7".into())]));
        assert_eq!(versions.text(), "eyJhIjoiMTIiLCJiIjoiNyJ9");
        assert_eq!(Versions::read(&versions.text()), Ok(versions));
        for nothing in ["", "0"] {
            assert_eq!(Versions::read(nothing), Ok(Versions::default()));
        }
        assert_eq!(Versions::default().text(), "0");
        for odd in ["12", "eyJhIjoiMTIiLCJiIjoiNyJ9==", "bm8", "e30x"] {
            assert!(Versions::read(odd).is_err(), "{odd}");
        }
    }
}
