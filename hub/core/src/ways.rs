//! By which ways the hub reaches a member, as its Cluster says: the address that it dials, and the tunnel that its agent serves; and
//! what goes by the tunnel.

use karmada_api::{
    cluster::{Cluster, ClusterSyncMode},
    consts::extension,
};
use karmada_meta::object;
use serde_json::Value;

/// What an agent passes on of a request's headers by its tunnel. The hub sends it no others.
pub const PASSED_ON: [&str; 8] = [
    "accept",
    "accept-encoding",
    "audit-id",
    "content-type",
    "if-match",
    "if-none-match",
    "range",
    "user-agent",
];

/// What a Cluster says of its tunnel and of the place to dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ways {
    /// It has an agent, which alone can serve a tunnel.
    is_pulled: bool,
    /// It names a place to dial, and by whom the hub acts in users' names there.
    pub is_dialled: bool,
    /// Its agent serves a tunnel.
    pub is_offered: bool,
    /// What the platform says of it.
    pub wanted: Wanted,
}

/// What the platform says of a tunnel, in an annotation that no agent may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Nothing. That is no objection.
    Unsaid,
    /// There is to be one.
    Yes,
    /// There is to be none. A word that nobody knows is one, too.
    No,
}

impl Wanted {
    /// What the annotation [`extension::TUNNEL_WANTED`] says, if there is one.
    pub fn of(annotation: Option<&str>) -> Self {
        match annotation {
            None => Self::Unsaid,
            Some(mode) if is_open(mode) => Self::Yes,
            Some(_) => Self::No,
        }
    }
}

/// Whether by this word of an annotation there is a tunnel.
fn is_open(mode: &str) -> bool {
    matches!(mode, "read-only" | "full")
}

impl Ways {
    /// Those of a Cluster.
    pub fn of(cluster: &Cluster) -> Self {
        let spec = &cluster.spec;
        let annotation = |key: &str| cluster.metadata.annotations.as_ref()?.get(key).map(String::as_str);
        Self::new(
            spec.sync_mode == ClusterSyncMode::Pull,
            !spec.api_endpoint.is_empty() && spec.impersonator_secret_ref.is_some(),
            annotation,
        )
    }

    /// The same of one that was not read into its type.
    pub fn read(cluster: &Value) -> Self {
        let spec = &cluster["spec"];
        let names_address = spec["apiEndpoint"].as_str().is_some_and(|address| !address.is_empty());
        Self::new(
            spec["syncMode"] == "Pull",
            names_address && spec["impersonatorSecretRef"].is_object(),
            |key| object::annotation(cluster, key),
        )
    }

    fn new<'a>(is_pulled: bool, is_dialled: bool, annotation: impl Fn(&str) -> Option<&'a str>) -> Self {
        Self {
            is_pulled,
            is_dialled,
            is_offered: annotation(extension::TUNNEL).is_some_and(is_open),
            wanted: Wanted::of(annotation(extension::TUNNEL_WANTED)),
        }
    }

    /// Whether a member is reached by a tunnel or not at all. Where the Cluster names a place to dial, that comes first, unless the
    /// platform wants the tunnel: the agent may offer one at any time, and whoever has stolen its credential must not draw users'
    /// requests away from the address. Where the platform does want it, nobody goes round an agent that is not heard, since its
    /// owner's flags are the limit.
    pub fn is_by_tunnel(self) -> bool {
        self.is_pulled && (!self.is_dialled || (self.wanted == Wanted::Yes && self.is_offered))
    }

    /// Whether the hub dials a member whose agent serves a tunnel as well, and nobody has said which of the two is meant. Earlier
    /// versions of the hub used the tunnel.
    pub fn are_two(self) -> bool {
        self.is_pulled && self.is_dialled && self.is_offered && self.wanted == Wanted::Unsaid
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn place() -> Value {
        json!({"namespace": "karmada-cluster", "name": "m-impersonator"})
    }

    /// Read either way.
    fn both(annotations: Value, spec: Value) -> Ways {
        let cluster = json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": "m", "annotations": annotations}, "spec": spec,
        });
        let typed = Ways::of(&serde_json::from_value(cluster.clone()).unwrap());
        assert_eq!(typed, Ways::read(&cluster), "{cluster}");
        typed
    }

    #[test]
    fn a_tunnel_comes_before_the_address_where_the_platform_says_so() {
        for (mode, given, wanted, dialled, want) in [
            // What an agent says at any time moves nobody.
            ("Pull", Some("full"), None, true, false),
            ("Pull", Some("read-only"), Some("full"), true, true),
            ("Pull", Some("full"), Some("read-only"), true, true),
            ("Pull", Some("full"), Some("off"), true, false),
            ("Pull", Some("full"), Some("Full"), true, false),
            ("Pull", Some("off"), Some("full"), true, false),
            // The platform wants it, and the agent has none.
            ("Pull", None, Some("full"), true, false),
            // As a stock agent has registered it.
            ("Pull", None, None, true, false),
            ("Pull", None, None, false, true),
            ("Pull", Some("full"), None, false, true),
            ("Push", Some("full"), Some("full"), true, false),
            ("Push", None, None, false, false),
        ] {
            let annotations = [(extension::TUNNEL, given), (extension::TUNNEL_WANTED, wanted)];
            let annotations: serde_json::Map<_, _> = annotations
                .into_iter()
                .filter_map(|(key, value)| Some((key.to_owned(), value?.into())))
                .collect();
            let mut spec = json!({"syncMode": mode});
            if dialled {
                spec["apiEndpoint"] = "https://10.0.0.1:6443".into();
                spec["impersonatorSecretRef"] = place();
            }
            let ways = both(annotations.into(), spec);
            assert_eq!(ways.is_by_tunnel(), want, "{mode} {given:?} {wanted:?} {dialled}");
        }
    }

    #[test]
    fn both_readings_of_a_cluster_say_the_same() {
        for (said, offered, wanted) in [
            ("full", true, Wanted::Yes),
            ("read-only", true, Wanted::Yes),
            ("off", false, Wanted::No),
            ("Full", false, Wanted::No),
            ("", false, Wanted::No),
        ] {
            let annotations = json!({"agent.karmada.io/tunnel": said, "cluster.karmada.io/tunnel": said});
            let ways = both(annotations, json!({"syncMode": "Pull"}));
            assert_eq!((ways.is_offered, ways.wanted), (offered, wanted), "{said}");
        }
        for (spec, pulled, dialled) in [
            (json!({"syncMode": "Pull"}), true, false),
            (json!({"syncMode": "Pull", "apiEndpoint": "https://m"}), true, false),
            (json!({"syncMode": "Pull", "impersonatorSecretRef": place()}), true, false),
            (json!({"syncMode": "Pull", "apiEndpoint": "", "impersonatorSecretRef": place()}), true, false),
            (
                json!({"syncMode": "Pull", "apiEndpoint": "https://m", "impersonatorSecretRef": place()}),
                true,
                true,
            ),
            (
                json!({"syncMode": "Push", "apiEndpoint": "https://m", "impersonatorSecretRef": place()}),
                false,
                true,
            ),
        ] {
            let ways = both(json!({}), spec.clone());
            assert_eq!((ways.is_pulled, ways.is_dialled), (pulled, dialled), "{spec}");
            assert_eq!((ways.is_offered, ways.wanted), (false, Wanted::Unsaid), "{spec}");
        }
    }
}
