//! What is rolled out of a binding: its template and the overrides that mean it, as they were together.
//!
//! Not part of a revision, and so never waiting for a wave, is what the scheduler or the hub is told: the number of replicas,
//! labels and annotations of Karmada's (fences, holds and claims among them), and what only means something on the hub.

use karmada_api::{
    cluster::Cluster,
    policy::{ClusterOverridePolicy, OverridePolicy},
};
use karmada_meta::object;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::{overrides, work};

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Revision {
    /// As it was, with some number of replicas that is the same in all revisions.
    pub template: Value,
    /// Those that mean it.
    #[serde(default)]
    pub cluster_overrides: Vec<ClusterOverridePolicy>,
    /// Those of its namespace that do.
    #[serde(default)]
    pub overrides: Vec<OverridePolicy>,
}

impl Revision {
    /// That of a template, whose replicas were set to the number for all revisions, and the override policies that mean it.
    pub fn new(
        mut template: Value,
        cluster_overrides: &[ClusterOverridePolicy],
        overrides: &[OverridePolicy],
    ) -> Self {
        let (generation, uid) = (object::generation(&template), object::uid(&template).to_owned());
        work::prune(&mut template);
        object::set_meta(&mut template, "generation", generation);
        object::set_meta(&mut template, "uid", uid);
        let mut of_cluster: Vec<_> = cluster_overrides
            .iter()
            .map(|policy| {
                let mut bare = ClusterOverridePolicy::default();
                bare.metadata.name.clone_from(&policy.metadata.name);
                bare.spec = policy.spec.clone();
                bare
            })
            .collect();
        let mut of_namespace: Vec<_> = overrides
            .iter()
            .map(|policy| {
                let mut bare = OverridePolicy::default();
                bare.metadata.name.clone_from(&policy.metadata.name);
                bare.metadata.namespace.clone_from(&policy.metadata.namespace);
                bare.spec = policy.spec.clone();
                bare
            })
            .collect();
        of_cluster.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        of_namespace.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        Self { template, cluster_overrides: of_cluster, overrides: of_namespace }
    }

    /// Its name: the same for what is the same. Whoever could choose both might find two of one name: [`Self::whole_digest`].
    pub fn digest(&self) -> String {
        name_of(&self.whole_digest()).to_owned()
    }

    /// What says that it is the same, whoever made it.
    pub fn whole_digest(&self) -> String {
        let mut all = json!([self.bare(), self.cluster_overrides, self.overrides]);
        // The order of fields says nothing; a patch may change it.
        all.sort_all_objects();
        let hash = Sha256::digest(all.to_string());
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether it is one of this object: of its API group, kind, namespace and name.
    pub fn is_of(&self, live: &Value) -> bool {
        let group = |object: &Value| {
            let (group, _) = object::api_version(object).rsplit_once('/').unwrap_or_default();
            group.to_owned()
        };
        let of = |object: &'_ Value| {
            (
                group(object),
                object::kind(object).to_owned(),
                object::namespace(object).to_owned(),
                object::name(object).to_owned(),
            )
        };
        of(&self.template) == of(live)
    }

    /// The template, with what does not wait for a wave taken from the one that is there now.
    pub fn template_now(&self, now: &Value) -> Value {
        let mut template = self.template.clone();
        for map in ["labels", "annotations"] {
            strip(&mut template, map);
            let told = object::meta(now, map).and_then(Value::as_object).into_iter().flatten();
            for (key, value) in told.filter(|(key, _)| is_told(key)) {
                let metadata = object::metadata_mut(&mut template);
                let entries = metadata.entry(map).or_insert_with(|| Value::Object(Map::new()));
                if let Some(entries) = entries.as_object_mut() {
                    entries.insert(key.clone(), value.clone());
                }
            }
        }
        object::set_meta(&mut template, "uid", object::uid(now));
        template
    }

    /// Whether going from another revision to this one is a change for a cluster.
    pub fn concerns(&self, from: &Self, cluster: &Cluster, same_template: bool) -> bool {
        let rules = |revision: &Self| {
            overrides::rules_for(
                cluster,
                &revision.template,
                &revision.cluster_overrides,
                &revision.overrides,
            )
        };
        !same_template || rules(self) != rules(from)
    }

    /// Whether both have the same template.
    pub fn same_template(&self, other: &Self) -> bool {
        self.bare() == other.bare()
    }

    /// What of the template makes the revision.
    fn bare(&self) -> Value {
        let mut template = self.template.clone();
        for field in ["generation", "uid"] {
            object::remove_meta(&mut template, field);
        }
        for map in ["labels", "annotations"] {
            strip(&mut template, map);
        }
        template
    }
}

/// The name of a revision with this whole digest.
fn name_of(whole: &str) -> &str {
    &whole[..whole.len().min(16)]
}

/// Takes what the hub is told off labels or annotations.
fn strip(template: &mut Value, map: &str) {
    let metadata = object::metadata_mut(template);
    let Some(entries) = metadata.get_mut(map).and_then(Value::as_object_mut) else { return };
    entries.retain(|key, _| !is_told(key));
    if entries.is_empty() {
        metadata.shift_remove(map);
    }
}

/// Whether a label or annotation is for the hub, or says nothing that a member would run.
fn is_told(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    domain == "karmada.io" || domain.ends_with(".karmada.io") || domain == "kubectl.kubernetes.io"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(image: &str, labels: Value) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "generation": 3, "resourceVersion": "9",
                         "labels": labels, "annotations": {"kubectl.kubernetes.io/last-applied-configuration": image}},
            "spec": {"replicas": 0, "template": {"spec": {"containers": [{"name": "c", "image": image}]}}},
            "status": {"replicas": 3},
        })
    }

    fn policy(name: &str, rules: Value) -> OverridePolicy {
        let policy = json!({"metadata": {"name": name, "namespace": "shop", "resourceVersion": name}, "spec": {"overrideRules": rules}});
        serde_json::from_value(policy).unwrap()
    }

    fn cluster(name: &str) -> Cluster {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"syncMode": "Pull"}})).unwrap()
    }

    #[test]
    fn a_revision_is_what_members_run() {
        let of =
            |template: Value, overrides: &[OverridePolicy]| Revision::new(template, &[], overrides).digest();
        let one = of(template("a:1", json!({"app": "web"})), &[]);
        assert_ne!(one, of(template("a:2", json!({"app": "web"})), &[]));
        assert_ne!(one, of(template("a:1", json!({"app": "till"})), &[]));
        // What the hub is told is not part of it, nor what changes with every write, nor the order of fields.
        let mut same =
            template("a:1", json!({"propagationpolicy.karmada.io/permanent-id": "x", "app": "web"}));
        same["metadata"]["generation"] = json!(4);
        same["metadata"]["resourceVersion"] = json!("10");
        same["metadata"]["annotations"] = json!({"work.karmada.io/fence-after": "2m"});
        same["status"] = json!({});
        assert_eq!(one, of(same, &[]));
        let spec =
            r#"{"template": {"spec": {"containers": [{"image": "a:1", "name": "c"}]}}, "replicas": 0}"#;
        let mut turned = template("a:1", json!({"app": "web"}));
        turned["spec"] = serde_json::from_str(spec).unwrap();
        assert_eq!(one, of(turned, &[]));
        let rule = |value: &str| json!([{"overriders": {"labelsOverrider": [{"operator": "add", "value": {"x": value}}]}}]);
        let with = |all: &[OverridePolicy]| of(template("a:1", json!({"app": "web"})), all);
        assert_ne!(one, with(&[policy("p", rule("1"))]));
        assert_ne!(with(&[policy("p", rule("1"))]), with(&[policy("p", rule("2"))]));
        let (p, q) = (policy("p", rule("1")), policy("q", rule("2")));
        assert_eq!(with(&[p.clone(), q.clone()]), with(&[q, p]));
    }

    #[test]
    fn a_revision_is_of_one_object() {
        let live = template("a:1", json!({}));
        let revision = Revision::new(live.clone(), &[], &[]);
        assert!(revision.is_of(&live));
        assert_eq!((revision.digest().len(), revision.whole_digest().len()), (16, 64));
        assert!(revision.whole_digest().starts_with(&revision.digest()));
        let mut later = live.clone();
        later["apiVersion"] = json!("apps/v2");
        assert!(revision.is_of(&later), "a version of the API is no other object");
        for (path, value) in [
            ("/apiVersion", "batch/v1"),
            ("/kind", "DaemonSet"),
            ("/metadata/name", "till"),
            ("/metadata/namespace", "bank"),
        ] {
            let mut other = live.clone();
            *other.pointer_mut(path).unwrap() = value.into();
            assert!(!revision.is_of(&other), "{path}");
        }
    }

    #[test]
    fn an_override_concerns_the_clusters_that_it_means() {
        let rule = |value: &str| {
            json!([{"targetCluster": {"clusterNames": ["north"]},
                    "overriders": {"labelsOverrider": [{"operator": "add", "value": {"x": value}}]}}])
        };
        let of = |value: &str| Revision::new(template("a:1", json!({})), &[], &[policy("p", rule(value))]);
        let (one, two) = (of("1"), of("2"));
        let same = two.same_template(&one);
        assert!(same);
        assert!(two.concerns(&one, &cluster("north"), same));
        assert!(!two.concerns(&one, &cluster("south"), same));
        let other = Revision::new(template("a:2", json!({})), &[], &[policy("p", rule("2"))]);
        assert!(other.concerns(&two, &cluster("south"), other.same_template(&two)));
    }

    #[test]
    fn what_the_hub_is_told_does_not_wait() {
        let old = Revision::new(
            template("a:1", json!({"app": "web", "propagationpolicy.karmada.io/permanent-id": "one"})),
            &[],
            &[],
        );
        let mut now =
            template("a:2", json!({"app": "till", "propagationpolicy.karmada.io/permanent-id": "two"}));
        now["metadata"]["annotations"]["work.karmada.io/fence-after"] = json!("2m");
        now["metadata"]["uid"] = json!("v");
        let template = old.template_now(&now);
        assert_eq!(
            template["metadata"]["labels"],
            json!({"app": "web", "propagationpolicy.karmada.io/permanent-id": "two"})
        );
        assert_eq!(object::annotation(&template, "work.karmada.io/fence-after"), Some("2m"));
        assert_eq!(object::uid(&template), "v");
        assert_eq!(template["spec"]["template"]["spec"]["containers"][0]["image"], "a:1");
        let kept: Revision = serde_json::from_value(serde_json::to_value(&old).unwrap()).unwrap();
        assert_eq!(kept, old);
    }
}
