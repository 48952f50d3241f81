//! Which clusters are searched for a kind, in which version a list of objects of several clusters is, and how agents tell the hub
//! of what is searched on their members ([`told`]) and have room for it there ([`room`]). Pure.

pub mod room;
pub mod telling;
pub mod told;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use karmada_api::{cluster::Cluster, policy::ClusterAffinity, search::ResourceRegistrySpec};
use serde::{Deserialize, Serialize};

use crate::affinity;

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

/// What is searched on a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Followed {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// In this namespace; in all, or in none, when empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

impl Followed {
    /// What it takes in a question, in bytes, about.
    fn asks(&self) -> usize {
        AROUND + self.api_version.len() + self.kind.len() + self.namespace.len()
    }

    /// Its group and version, where they are written as objects name them.
    pub fn group_version(&self) -> Option<(&str, &str)> {
        let (group, version) = match self.api_version.split_once('/') {
            Some(("", _)) => return None,
            Some(both) => both,
            None => ("", self.api_version.as_str()),
        };
        (!version.is_empty() && !version.contains('/')).then_some((group, version))
    }

    /// Whether it can be told of, whoever has it searched. Secrets stay on their member; what is called otherwise than objects are
    /// might be one of them.
    pub fn may_leave(&self) -> bool {
        let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'/' | b'_');
        let names = [&self.api_version, &self.kind, &self.namespace];
        names.iter().all(|name| name.len() <= NAME && name.bytes().all(plain))
            && self.group_version().is_some_and(|(group, _)| (group, self.kind.as_str()) != ("", "Secret"))
    }

    /// Whether what a member has by that name, in this group and version, is what is meant and can be told of.
    pub fn is(&self, group: &str, version: &str, plural: &str) -> bool {
        self.may_leave()
            && self.group_version() == Some((group, version))
            && (group, plural) != ("", "secrets")
    }
}

/// The longest name of a kind, its group and version, or a namespace, in bytes.
const NAME: usize = 253;

/// What stands around names in a question, and the longest question, in bytes: it is in each Cluster.
const AROUND: usize = 48;
const QUESTION: usize = 4 << 10;

/// So much is followed on a cluster at most; the rest is asked for.
pub const FOLLOWED: usize = 32;

/// Registries by what they have searched, so that a search looks at those alone that are about its kind.
#[derive(Clone, Debug, Default)]
pub struct Registries {
    all: BTreeMap<String, Arc<ResourceRegistrySpec>>,
    /// By group and version, then by kind, the names of those that select it.
    of_kind: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
}

impl Registries {
    /// One is so now; none of that name is there.
    pub fn set(&mut self, name: &str, spec: Option<ResourceRegistrySpec>) {
        if let Some(old) = self.all.remove(name) {
            for selector in &old.resource_selectors {
                let Some(kinds) = self.of_kind.get_mut(&selector.api_version) else { continue };
                if let Some(names) = kinds.get_mut(&selector.kind) {
                    names.remove(name);
                    if names.is_empty() {
                        kinds.remove(&selector.kind);
                    }
                }
                if kinds.is_empty() {
                    self.of_kind.remove(&selector.api_version);
                }
            }
        }
        let Some(spec) = spec else { return };
        for selector in &spec.resource_selectors {
            let kinds = self.of_kind.entry(selector.api_version.clone()).or_default();
            kinds.entry(selector.kind.clone()).or_default().insert(name.to_owned());
        }
        self.all.insert(name.to_owned(), Arc::new(spec));
    }

    /// Those who have this searched, each on the clusters that its affinity means. Who has one namespace searched says nothing
    /// of all of them, and what is kept elsewhere than with the hub is none of its business.
    pub fn searched(&self, sought: &Sought<'_>) -> Vec<Arc<ResourceRegistrySpec>> {
        let names = self.of_kind.get(sought.api_version).and_then(|kinds| kinds.get(sought.kind));
        let specs = names.into_iter().flatten().filter_map(|name| self.all.get(name));
        specs.filter(|spec| selects(spec, sought)).cloned().collect()
    }

    /// What of a cluster may be kept for searches: of what is searched there all but Secrets, which stay where they are. Where a
    /// kind is searched in all namespaces none of them is named beside.
    pub fn followed_on(&self, cluster: &Cluster) -> BTreeSet<Followed> {
        let here = |spec: &&Arc<ResourceRegistrySpec>| {
            is_kept(spec) && affinity::matches(&spec.target_cluster, cluster)
        };
        let selectors = self.all.values().filter(here).flat_map(|spec| &spec.resource_selectors);
        let selectors = selectors.map(|one| Followed {
            api_version: one.api_version.clone(),
            kind: one.kind.clone(),
            namespace: one.namespace.clone(),
        });
        let all: BTreeSet<Followed> = selectors.filter(Followed::may_leave).collect();
        let (mut kept, mut left) = (Vec::<Followed>::new(), QUESTION);
        for one in all {
            // All namespaces stand before each of them.
            let is_within = kept.last().is_some_and(|last| {
                last.namespace.is_empty() && (&last.api_version, &last.kind) == (&one.api_version, &one.kind)
            });
            if is_within {
                continue;
            }
            let Some(rest) = left.checked_sub(one.asks()).filter(|_| kept.len() < FOLLOWED) else { break };
            left = rest;
            kept.push(one);
        }
        kept.into_iter().collect()
    }
}

/// Whether what it has searched is the hub's to keep.
fn is_kept(spec: &ResourceRegistrySpec) -> bool {
    spec.backend_store.as_ref().is_none_or(|store| store.open_search.is_none())
}

fn selects(spec: &ResourceRegistrySpec, sought: &Sought<'_>) -> bool {
    is_kept(spec)
        && spec.resource_selectors.iter().any(|selector| {
            (selector.api_version.as_str(), selector.kind.as_str()) == (sought.api_version, sought.kind)
                && (selector.namespace.is_empty() || selector.namespace == sought.namespace)
        })
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
        let mut registries = Registries::default();
        for (n, spec) in all.iter().enumerate() {
            registries.set(&n.to_string(), Some(spec.clone()));
        }
        let found = |registries: &Registries, sought: &Sought<'_>| {
            let found = registries.searched(sought);
            assert!(found.iter().all(|spec| is_by_name(&spec.target_cluster)));
            let names = found.iter().flat_map(|spec| spec.target_cluster.cluster_names.clone());
            names.collect::<Vec<_>>().join(" ")
        };
        for (api_version, kind, namespace, want) in rows {
            let got = found(&registries, &Sought { api_version, kind, namespace });
            assert_eq!(got, want, "{api_version} {kind} {namespace}");
        }
        // What changes or goes is searched as it is then, and leaves nothing behind.
        let pods = Sought { api_version: "v1", kind: "Pod", namespace: "" };
        let nodes = Sought { api_version: "v1", kind: "Node", namespace: "" };
        registries.set("0", Some(registry("a", "v1", "Node", "")));
        assert_eq!((found(&registries, &pods), found(&registries, &nodes)), ("m".into(), "a c".into()));
        for n in 0..all.len() {
            registries.set(&n.to_string(), None);
        }
        assert!(registries.all.is_empty() && registries.of_kind.is_empty(), "{registries:?}");
    }

    #[test]
    fn what_is_followed_on_a_cluster() {
        let mut registries = Registries::default();
        let mut elsewhere = registry("a", "v1", "Node", "");
        elsewhere.backend_store =
            serde_json::from_value(json!({"openSearch": {"addresses": ["https://o"]}})).unwrap();
        let specs = [
            registry("a", "v1", "Pod", "shop"),
            registry("a", "v1", "Secret", ""),
            registry("a", "/v1", "Secret", ""),
            registry("a", "apps/v1", "Deployment", "shop"),
            registry("a", "apps/v1", "Deployment", "till"),
            registry("b", "v1", "Pod", ""),
            elsewhere,
        ];
        for (n, spec) in specs.into_iter().enumerate() {
            registries.set(&n.to_string(), Some(spec));
        }
        let on = |registries: &Registries, name: &str| {
            let all = registries.followed_on(&Cluster::new(name, Default::default()));
            let all = all.iter().map(|one| format!("{}/{}/{}", one.api_version, one.kind, one.namespace));
            all.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(on(&registries, "a"), "apps/v1/Deployment/shop apps/v1/Deployment/till v1/Pod/shop");
        assert_eq!((on(&registries, "b"), on(&registries, "c")), ("v1/Pod/".into(), String::new()));
        registries.set("all", Some(registry("a", "apps/v1", "Deployment", "")));
        assert_eq!(on(&registries, "a"), "apps/v1/Deployment/ v1/Pod/shop");
        for n in 0..100 {
            registries.set(&format!("more-{n}"), Some(registry("c", "x/v1", &format!("K{n}"), "")));
        }
        let cluster = Cluster::new("c", Default::default());
        assert_eq!(registries.followed_on(&cluster).len(), FOLLOWED);
        let long = format!("{}.example/v1", "x".repeat(200));
        for n in 0..100 {
            registries.set(&format!("long-{n}"), Some(registry("d", &long, &format!("K{n}"), "")));
        }
        let followed = registries.followed_on(&Cluster::new("d", Default::default()));
        let question = told::question(&followed).unwrap();
        assert!(question.len() <= QUESTION && followed.len() > 10, "{question}");
    }

    #[test]
    fn what_stays_on_its_member() {
        let of = |api_version: &str, kind: &str| Followed {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: String::new(),
        };
        let long = "x".repeat(NAME + 1);
        for (what, leaves) in [
            (of("v1", "Pod"), true),
            (of("v1", "Secret"), false),
            (of("/v1", "Secret"), false),
            (of("/v1", "Pod"), false),
            (of("apps/v1", "Deployment"), true),
            (of("x.example/v1", "Secret"), true),
            (of("apps/v1/", "Deployment"), false),
            (of("apps/", "Deployment"), false),
            (of("", "Pod"), false),
            (of("v1", &long), false),
            (of("v1", "Po\"d"), false),
        ] {
            assert_eq!(what.may_leave(), leaves, "{what:?}");
        }
        // As the member has it.
        for (what, (group, version, plural), is) in [
            (of("v1", "Pod"), ("", "v1", "pods"), true),
            (of("apps/v1", "Deployment"), ("apps", "v1", "deployments"), true),
            (of("v1", "Hidden"), ("", "v1", "secrets"), false),
            (of("/v1", "Pod"), ("", "v1", "pods"), false),
            (of("apps/v1", "Deployment"), ("", "v1", "deployments"), false),
            (of("apps/v1", "Deployment"), ("apps", "v2", "deployments"), false),
        ] {
            assert_eq!(what.is(group, version, plural), is, "{what:?} {plural}");
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
