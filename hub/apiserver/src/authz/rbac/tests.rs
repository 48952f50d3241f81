//! The index against a model written from Kubernetes' documentation, and what the policy says.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::{
    covers::{Uncovered, covers, describe},
    index::{Binding, Role, Subject},
    *,
};
use crate::authz::ResourceTarget;

/// What the documentation says, over lists: <https://kubernetes.io/docs/reference/access-authn-authz/rbac/>.
#[derive(Default)]
struct Model {
    roles: BTreeMap<Place, Vec<PolicyRule>>,
    bindings: BTreeMap<Place, Binding>,
}

impl Model {
    fn allows(&self, user: &UserInfo, verb: &str, target: Target<'_>) -> bool {
        let namespace = match &target {
            Target::Resource(resource) => resource.namespace,
            Target::Path(_) => "",
        };
        self.bindings.iter().any(|(place, binding)| {
            // A ClusterRoleBinding grants in all namespaces and at the cluster scope, a RoleBinding in its own.
            if !place.namespace.is_empty() && &*place.namespace != namespace {
                return false;
            }
            if !binding.subjects.iter().any(|subject| Self::is(user, subject, &place.namespace)) {
                return false;
            }
            let role = match &*binding.role_kind {
                "ClusterRole" => Place::new("", &binding.role_name),
                "Role" if !place.namespace.is_empty() => Place::new(&place.namespace, &binding.role_name),
                _ => return false,
            };
            self.roles.get(&role).into_iter().flatten().any(|rule| Self::says(rule, verb, &target))
        })
    }

    fn is(user: &UserInfo, subject: &Subject, own: &str) -> bool {
        match &*subject.kind {
            "User" => user.name == *subject.name,
            "Group" => user.groups.iter().any(|group| *group == *subject.name),
            "ServiceAccount" => {
                let namespace = if subject.namespace.is_empty() { own } else { &*subject.namespace };
                !namespace.is_empty()
                    && user.name == format!("system:serviceaccount:{namespace}:{}", subject.name)
            }
            _ => false,
        }
    }

    fn says(rule: &PolicyRule, verb: &str, target: &Target<'_>) -> bool {
        let any =
            |list: &[String], one: &str| list.contains(&"*".to_owned()) || list.contains(&one.to_owned());
        if !any(&rule.verbs, verb) {
            return false;
        }
        match target {
            Target::Path(path) => rule.non_resource_urls.iter().any(|url| match url.find('*') {
                // "a trailing * is a suffix glob match"
                Some(at) if at + 1 == url.len() => path.starts_with(&url[..at]),
                _ => url == path,
            }),
            Target::Resource(wanted) => {
                let full = match wanted.subresource {
                    "" => wanted.resource.to_owned(),
                    sub => format!("{}/{sub}", wanted.resource),
                };
                let resource = any(&rule.resources, &full)
                    || !wanted.subresource.is_empty()
                        && rule.resources.contains(&format!("*/{}", wanted.subresource));
                let name =
                    rule.resource_names.is_empty() || rule.resource_names.contains(&wanted.name.to_owned());
                any(&rule.api_groups, wanted.group) && resource && name
            }
        }
    }
}

const VERBS: [&str; 4] = ["get", "list", "create", "escalate"];
const GROUPS: [&str; 3] = ["", "apps", "batch"];
const RESOURCES: [&str; 3] = ["pods", "deployments", "scale"];
const SUBRESOURCES: [&str; 3] = ["", "scale", "status"];
const NAMESPACES: [&str; 3] = ["", "a", "b"];
const NAMES: [&str; 3] = ["", "x", "y"];
const PATHS: [&str; 5] = ["/healthz", "/healthz/a", "/api", "/api/v1", "/"];

fn some(of: &'static [&'static str], least: usize) -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(prop::sample::select(of), least..3)
        .prop_map(|texts| texts.into_iter().map(str::to_owned).collect())
}

fn rule() -> impl Strategy<Value = PolicyRule> {
    let resources = (
        some(&["get", "list", "create", "*"], 1),
        some(&["", "apps", "*"], 1),
        some(&["pods", "deployments", "pods/scale", "deployments/status", "*/scale", "*", "scale", "*/"], 1),
        some(&["x", "y"], 0),
    )
        .prop_map(|(verbs, api_groups, resources, resource_names)| PolicyRule {
            verbs,
            api_groups,
            resources,
            resource_names,
            ..PolicyRule::default()
        });
    let paths = (some(&["get", "*"], 1), some(&["/healthz", "/healthz/*", "/api*", "*", "/ap"], 1)).prop_map(
        |(verbs, non_resource_urls)| PolicyRule { verbs, non_resource_urls, ..PolicyRule::default() },
    );
    prop_oneof![4 => resources, 1 => paths]
}

/// Few rules, or so many that they are looked up.
fn rules() -> impl Strategy<Value = Vec<PolicyRule>> {
    prop_oneof![prop::collection::vec(rule(), 0..3), prop::collection::vec(rule(), 12..16)]
}

fn subject() -> impl Strategy<Value = Subject> {
    let kind = prop::sample::select(&["User", "Group", "ServiceAccount", "Robot"][..]);
    let name = prop::sample::select(&["u", "g", "system:serviceaccount:a:u"][..]);
    (kind, name, prop::sample::select(&NAMESPACES[..])).prop_map(|(kind, name, namespace)| Subject {
        kind: kind.into(),
        name: name.into(),
        namespace: namespace.into(),
    })
}

fn place() -> impl Strategy<Value = Place> {
    (prop::sample::select(&NAMESPACES[..]), prop::sample::select(&["r", "s"][..]))
        .prop_map(|(namespace, name)| Place::new(namespace, name))
}

#[derive(Clone, Debug)]
enum Step {
    Role(Place, Option<Vec<PolicyRule>>),
    Binding(Place, Option<Binding>),
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop::sample::select(&["Role", "ClusterRole", "ClusterRole", "Other"][..]);
    let name = prop::sample::select(&["r", "s"][..]);
    let binding = (kind, name, prop::collection::vec(subject(), 0..4)).prop_map(|(kind, name, subjects)| {
        Binding { role_kind: kind.into(), role_name: name.into(), subjects }
    });
    prop_oneof![
        (place(), prop::option::weighted(0.8, rules())).prop_map(|(place, rules)| Step::Role(place, rules)),
        (place(), prop::option::weighted(0.8, binding))
            .prop_map(|(place, binding)| Step::Binding(place, binding)),
    ]
}

fn users() -> [UserInfo; 4] {
    [
        UserInfo::new("u", ["g"]),
        UserInfo::new("v", ["g", "u"]),
        UserInfo::new("system:serviceaccount:a:u", ["system:serviceaccounts"]),
        UserInfo::new("system:serviceaccount:b:u", [""; 0]),
    ]
}

fn every_target() -> Vec<Target<'static>> {
    let mut all: Vec<_> = PATHS.map(Target::Path).into();
    for group in GROUPS {
        for resource in RESOURCES {
            for subresource in SUBRESOURCES {
                for namespace in NAMESPACES {
                    all.extend(NAMES.map(|name| {
                        let fields = None;
                        Target::Resource(ResourceTarget {
                            group,
                            resource,
                            subresource,
                            namespace,
                            name,
                            fields,
                        })
                    }));
                }
            }
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_index_says_what_the_documentation_says(steps in prop::collection::vec(step(), 1..24)) {
        let (rbac, mut model) = (Rbac::default(), Model::default());
        for step in &steps {
            let mut index = rbac.index.write();
            match step.clone() {
                Step::Role(place, rules) => {
                    index.set_role(&place, rules.clone().map(Role::new));
                    match rules {
                        Some(rules) => drop(model.roles.insert(place, rules)),
                        None => drop(model.roles.remove(&place)),
                    }
                }
                Step::Binding(place, binding) => {
                    index.set_binding(&place, binding.clone());
                    match binding {
                        Some(binding) => drop(model.bindings.insert(place, binding)),
                        None => drop(model.bindings.remove(&place)),
                    }
                }
            }
        }
        for user in &users() {
            for target in every_target() {
                for verb in VERBS {
                    let attributes = Attributes { user, verb, target };
                    let allowed = rbac.allows(&attributes);
                    prop_assert_eq!(allowed, model.allows(user, verb, target), "{:?}", attributes);
                    let (explained, reason) = rbac.explain(&attributes);
                    prop_assert_eq!(explained, allowed);
                    prop_assert_eq!(reason.starts_with("RBAC: allowed by "), allowed, "{}", reason);
                }
            }
        }
        let mut index = rbac.index.write();
        model.roles.keys().for_each(|place| index.set_role(place, None));
        model.bindings.keys().for_each(|place| index.set_binding(place, None));
        prop_assert!(index.is_clean(), "what has gone leaves nothing behind");
    }

    /// Whoever has all of these rules may do no less than what those say that they amount to.
    #[test]
    fn what_is_covered_is_allowed(owned in rules(), wanted in rules()) {
        let covered = covers(&owned, &wanted);
        for target in every_target() {
            for verb in VERBS {
                let says = |rules: &[PolicyRule]| rules.iter().any(|rule| Model::says(rule, verb, &target));
                if covered.is_ok() && says(&wanted) {
                    prop_assert!(says(&owned), "{} {:?}", verb, target);
                }
            }
        }
        prop_assert_eq!(covers(&wanted, &wanted), Ok(()));
        prop_assert_eq!(covers(&PolicyRule::everything(), &wanted), Ok(()));
        if let Err(Uncovered::Rights(missing)) = covered {
            let mut more = owned;
            more.extend(missing);
            prop_assert_eq!(covers(&more, &wanted), Ok(()), "what is told to be missing is what is missing");
        }
    }
}

fn rule_of(verbs: &[&str], groups: &[&str], resources: &[&str]) -> PolicyRule {
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    PolicyRule {
        verbs: texts(verbs),
        api_groups: texts(groups),
        resources: texts(resources),
        ..PolicyRule::default()
    }
}

#[test]
fn missing_rights_are_told_as_kubernetes_tells_them() {
    let mut named = rule_of(&["get"], &[""], &["pods"]);
    named.resource_names = vec!["x".to_owned()];
    let urls = PolicyRule {
        verbs: vec!["get".to_owned()],
        non_resource_urls: vec!["/metrics".to_owned()],
        ..PolicyRule::default()
    };
    let wanted = [rule_of(&["get", "list"], &["", "apps"], &["secrets"]), named, urls];
    let Err(Uncovered::Rights(missing)) = covers(&[rule_of(&["get"], &["apps"], &["*"])], &wanted) else {
        panic!("they are not covered");
    };
    let told = r#"{APIGroups:[""], Resources:["pods"], ResourceNames:["x"], Verbs:["get"]}
{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}
{APIGroups:["apps"], Resources:["secrets"], Verbs:["list"]}
{NonResourceURLs:["/metrics"], Verbs:["get"]}"#;
    assert_eq!(describe(&missing), told);
}

#[test]
fn a_rule_that_says_too_much_is_not_counted_out() {
    let many: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
    let (verbs, api_groups, resources) = (many.clone(), many.clone(), many);
    let huge = PolicyRule { verbs, api_groups, resources, ..PolicyRule::default() };
    let own = [rule_of(&["get"], &["*"], &["*"])];
    assert_eq!(covers(&own, std::slice::from_ref(&huge)), Err(Uncovered::TooMany));
    assert_eq!(covers(&PolicyRule::everything(), &[huge]), Ok(()), "one rule has all of it");
    let often = PolicyRule { verbs: vec!["get".to_owned(); 100_000], ..rule_of(&[], &[""], &["pods"]) };
    assert_eq!(covers(&own, &[often]), Ok(()));
}

/// The policy over an index, as a server has it once it has started.
pub(in crate::authz) fn default_roles() -> Rbac {
    let rbac = Rbac::default();
    for object in policy::read().expect("the policy can be read") {
        let meta = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let place = Place::new(&meta("namespace"), &meta("name"));
        let mut index = rbac.index.write();
        match object.get("roleRef") {
            Some(_) => index.set_binding(&place, Some(Binding::of(&object))),
            None => index.set_role(&place, Some(Role::of(&object))),
        }
    }
    rbac
}

impl Rbac {
    /// Binds groups to a ClusterRole everywhere.
    pub(in crate::authz) fn bind_for_tests(&self, role: &str, groups: &[&str]) {
        let subject =
            |group: &&str| Subject { kind: "Group".into(), name: (*group).into(), namespace: "".into() };
        let subjects = groups.iter().map(subject).collect();
        let binding = Binding { role_kind: "ClusterRole".into(), role_name: role.into(), subjects };
        self.index.write().set_binding(&Place::new("", "for-tests"), Some(binding));
    }
}

#[test]
fn the_policy_is_what_kubernetes_makes() {
    let objects = policy::read().unwrap();
    let find = |kind: &str, name: &str| {
        objects
            .iter()
            .find(|o| o["kind"] == kind && o["metadata"]["name"] == name)
            .expect("it is there")
            .clone()
    };
    assert_eq!(
        find("ClusterRole", "system:basic-user"),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "system:basic-user", "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
                "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}},
            "rules": [
                {"verbs": ["create"], "apiGroups": ["authorization.k8s.io"],
                 "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]},
                {"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]}]})
    );
    assert_eq!(
        find("ClusterRole", "cluster-admin")["rules"],
        json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}])
    );
    assert_eq!(
        find("ClusterRole", "edit")["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-admin"],
        "true"
    );
    assert_eq!(
        find("RoleBinding", "karmada:bootstrap-signer-clusterinfo")["subjects"],
        json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:anonymous"}])
    );
    for (name, part) in [("karmada-view", "view"), ("karmada-edit", "edit")] {
        let role = find("ClusterRole", name);
        assert_eq!(
            role["metadata"]["labels"][format!("rbac.authorization.k8s.io/aggregate-to-{part}")],
            "true"
        );
        let rules = role["rules"].to_string();
        assert!(rules.contains("propagationpolicies") && !rules.contains("works"), "{name}: {rules}");
        assert_eq!(rules.contains("resourcebindings"), part == "view", "{name}: {rules}");
    }
    // Every binding speaks of a role that stands before it.
    for (at, binding) in objects.iter().enumerate().filter(|(_, object)| object.get("roleRef").is_some()) {
        let role = |object: &Value| {
            object["kind"] == binding["roleRef"]["kind"]
                && object["metadata"]["name"] == binding["roleRef"]["name"]
        };
        assert!(objects[..at].iter().any(role), "{binding}");
    }
}

#[test]
fn on_a_stock_server_people_have_the_same_rights_to_karmadas_kinds() {
    let manifest = include_str!("../../../../../manifests/hub/karmada-roles.yaml");
    let shipped: Vec<Value> = manifest
        .split("\n---\n")
        .map(|document| serde_saphyr::from_str(document).expect("a YAML document"))
        .collect();
    let names: Vec<_> = shipped.iter().map(|role| role["metadata"]["name"].clone()).collect();
    assert_eq!(names, ["karmada-view", "karmada-edit"]);
    let built_in = policy::read().unwrap();
    for role in &shipped {
        let same = |object: &&Value| {
            object["kind"] == role["kind"] && object["metadata"]["name"] == role["metadata"]["name"]
        };
        let ours = built_in.iter().find(same).expect("it is built in");
        assert_eq!(role["rules"], ours["rules"]);
        let labels = |role: &Value, less: &str| {
            let mut labels = role["metadata"]["labels"].as_object().expect("it has labels").clone();
            labels.remove(less);
            labels
        };
        assert_eq!(labels(role, "app"), labels(ours, policy::LABEL.0));
    }
}

#[test]
fn what_leads_nowhere_is_told() {
    let rbac = Rbac::default();
    let subjects = vec![Subject { kind: "User".into(), name: "u".into(), namespace: "".into() }];
    let bound = |kind: &str, name: &str| Binding {
        role_kind: kind.into(),
        role_name: name.into(),
        subjects: subjects.clone(),
    };
    let user = UserInfo::new("u", [""; 0]);
    let target = ResourceTarget { resource: "pods", namespace: "n", ..ResourceTarget::default() };
    let attributes = Attributes { user: &user, verb: "list", target: Target::Resource(target) };
    rbac.index.write().set_binding(&Place::new("", "b"), Some(bound("ClusterRole", "gone")));
    let one = r#"RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found"#;
    assert_eq!(rbac.explain(&attributes), (false, one.to_owned()));
    rbac.index.write().set_binding(&Place::new("n", "b"), Some(bound("Role", "r")));
    let two = r#"RBAC: [clusterrole.rbac.authorization.k8s.io "gone" not found, role.rbac.authorization.k8s.io "r" not found]"#;
    assert_eq!(rbac.explain(&attributes), (false, two.to_owned()));
    rbac.index
        .write()
        .set_role(&Place::new("n", "r"), Some(Role::new(vec![rule_of(&["list"], &[""], &["pods"])])));
    let reason = r#"RBAC: allowed by RoleBinding "b/n" of Role "r" to User "u""#;
    assert_eq!(rbac.explain(&attributes), (true, reason.to_owned()));
}
