//! Who may what, as tables.

use std::{collections::BTreeSet, sync::Arc};

use karmada_meta::fields::FieldSelector;
use proptest::prelude::*;

use super::{
    agent::{LEAVES, Place, SELF_REVIEWS, Subject, roles},
    attributes::owned,
    *,
};
use crate::identity::{CLUSTER_NAMESPACE, LEAVING, MONITORING, RETURNING};

fn agent(cluster: &str) -> UserInfo {
    UserInfo::new(format!("{AGENT_PREFIX}{cluster}"), [AGENTS])
}

/// `group/resource[/subresource] namespace/name` with `-` for what is not there.
fn target(text: &str) -> ResourceTarget<'_> {
    let (kind, place) = text.split_once(' ').unwrap();
    let mut kind = kind.split('/').map(|part| if part == "-" { "" } else { part });
    let mut place = place.split('/').map(|part| if part == "-" { "" } else { part });
    ResourceTarget {
        group: kind.next().unwrap(),
        resource: kind.next().unwrap(),
        subresource: kind.next().unwrap_or_default(),
        namespace: place.next().unwrap(),
        name: place.next().unwrap(),
        fields: None,
    }
}

#[test]
fn agents_reach_their_own_cluster_only() {
    let verbs = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
    let cases = [
        ("work.karmada.io/works karmada-es-m1/w", "get list watch create update patch delete"),
        ("work.karmada.io/works karmada-es-m2/w", ""),
        ("work.karmada.io/works -/-", ""),
        ("work.karmada.io/works/status karmada-es-m1/w", "get update patch"),
        ("work.karmada.io/works/status karmada-es-m2/w", ""),
        ("work.karmada.io/resourcebindings default/b", ""),
        ("cluster.karmada.io/clusters -/m1", "get list watch create update patch delete"),
        ("cluster.karmada.io/clusters -/-", "create"),
        ("cluster.karmada.io/clusters -/m2", ""),
        ("cluster.karmada.io/clusters/status -/m1", "get update patch"),
        ("cluster.karmada.io/clusters/status -/m2", ""),
        ("cluster.karmada.io/clusters/proxy -/m1", ""),
        ("coordination.k8s.io/leases karmada-cluster/m1", "get create update patch"),
        ("coordination.k8s.io/leases karmada-cluster/-", "create"),
        ("coordination.k8s.io/leases karmada-cluster/m2", ""),
        ("coordination.k8s.io/leases kube-system/m1", ""),
        ("-/events karmada-es-m1/e", "create update patch"),
        ("-/events default/e", "create update patch"),
        ("-/events karmada-es-m2/e", ""),
        ("-/events shop/e", "create update patch"),
        ("-/events karmada-cluster/e", ""),
        ("-/events kube-system/e", ""),
        ("-/events -/e", ""),
        ("events.k8s.io/events default/e", "create update patch"),
        ("events.k8s.io/events shop/e", "create update patch"),
        ("-/secrets karmada-cluster/m1", "get create patch"),
        ("-/secrets karmada-cluster/m1-impersonator", "get create patch"),
        ("-/secrets karmada-cluster/m2", ""),
        ("-/secrets karmada-es-m1/m1", ""),
        ("-/namespaces karmada-es-m1/karmada-es-m1", "get"),
        ("-/namespaces karmada-cluster/karmada-cluster", "get"),
        ("-/namespaces default/default", ""),
        ("config.karmada.io/resourceinterpretercustomizations -/-", "get list watch"),
        ("apps/deployments default/nginx", ""),
    ];
    let user = agent("m1");
    for (text, allowed) in cases {
        let got: Vec<&str> = verbs
            .into_iter()
            .filter(|verb| {
                let attributes = Attributes { user: &user, verb, target: Target::Resource(target(text)) };
                Coarse.authorize(&attributes) == Decision::Allow
            })
            .collect();
        assert_eq!(got.join(" "), allowed, "{text}");
    }
}

#[test]
fn an_agent_whose_cluster_has_gone_may_see_that_and_no_more() {
    let mut user = agent("m1");
    user.extra.insert(LEAVING.to_owned(), vec!["true".to_owned()]);
    let may = |text: &str, verb: &str| {
        Coarse.authorize(&Attributes { user: &user, verb, target: Target::Resource(target(text)) })
            == Decision::Allow
    };
    for verb in ["get", "list", "watch", "create", "update", "patch", "delete"] {
        assert_eq!(may("cluster.karmada.io/clusters -/m1", verb), LEAVES.contains(&verb), "{verb}");
        assert!(!may("cluster.karmada.io/clusters -/m2", verb), "{verb}");
    }
    assert!(!may("coordination.k8s.io/leases karmada-cluster/m1", "update"));
    assert_eq!(Coarse.rights(&user, "karmada-cluster").resources.len(), SELF_REVIEWS.len());
}

#[test]
fn an_agent_lists_clusters_by_its_own_name() {
    let user = agent("m1");
    for (selector, allowed) in [
        ("metadata.name=m1", true),
        ("metadata.name==m1,metadata.namespace=x", true),
        ("metadata.name=m2", false),
        ("metadata.name!=m1", false),
        ("metadata.namespace=m1", false),
    ] {
        let fields = FieldSelector::parse(selector).unwrap();
        let target = ResourceTarget { fields: Some(&fields), ..target("cluster.karmada.io/clusters -/-") };
        let attributes = Attributes { user: &user, verb: "list", target: Target::Resource(target) };
        assert_eq!(Coarse.authorize(&attributes) == Decision::Allow, allowed, "{selector}");
    }
}

#[test]
fn an_agent_creates_under_its_own_name() {
    let user = agent("m1");
    for (text, allowed) in [
        ("cluster.karmada.io/clusters -/m1", true),
        ("cluster.karmada.io/clusters -/m2", false),
        ("cluster.karmada.io/clusters -/-", false),
        ("coordination.k8s.io/leases karmada-cluster/m1", true),
        ("coordination.k8s.io/leases karmada-cluster/m2", false),
        ("-/secrets karmada-cluster/m1-impersonator", true),
        ("-/secrets karmada-cluster/m2", false),
        ("-/events karmada-es-m1/any", true),
        ("-/events karmada-es-m1/-", true),
    ] {
        let attributes = Attributes { user: &user, verb: "create", target: Target::Resource(target(text)) };
        assert_eq!(check_name(&Coarse, &attributes).is_ok(), allowed, "{text}");
    }
}

#[test]
fn who_is_an_agent() {
    let cases = [
        (UserInfo::new("system:karmada:agent:m1", [AGENTS]), Some("m1")),
        (UserInfo::new("system:karmada:agent:m1", ["other"]), None),
        (UserInfo::new("system:karmada:agent:", [AGENTS]), None),
        (UserInfo::new("m1", [AGENTS]), None),
        (UserInfo::new("system:karmada:agent:rbac-generator", [AGENTS]), None),
        (UserInfo::new("system:karmada:agent:agent.m1", [AGENTS]), None),
        (UserInfo::new("system:karmada:agent:M1", [AGENTS]), None),
        (UserInfo::new("system:karmada:agent:m1/", [AGENTS]), None),
        (UserInfo::new("System:karmada:agent:m1", [AGENTS]), None),
    ];
    for (user, cluster) in cases {
        assert_eq!(agent_cluster(&user), cluster, "{user:?}");
    }
}

#[test]
fn paths() {
    let cases = [
        ("/version", true, true),
        ("/healthz", true, true),
        ("/readyz", true, true),
        ("/livez/ping", false, false),
        ("/api", false, true),
        ("/apis/apps/v1", false, true),
        ("/apish", false, false),
        ("/openapi/v3", false, true),
        ("/metrics", false, false),
        ("/karmada/history", false, true),
        ("/karmada/history/", false, false),
        ("/karmada-hub/tunnel", false, true),
        ("/karmada-hub/tunnel/", false, false),
        ("/", false, false),
    ];
    for (path, anonymous, agent_may) in cases {
        for (user, expected) in [(UserInfo::anonymous(), anonymous), (agent("m1"), agent_may)] {
            let attributes = Attributes { user: &user, verb: "get", target: Target::Path(path) };
            assert_eq!(Coarse.authorize(&attributes) == Decision::Allow, expected, "{path} {}", user.name);
        }
    }
}

#[test]
fn who_leaves_or_returns_opens_no_tunnel_and_tells_nothing_of_its_member() {
    let allows = |user: &UserInfo, verb: &str, path: &str| {
        Coarse.authorize(&Attributes { user, verb, target: Target::Path(path) }) == Decision::Allow
    };
    for (verb, path) in [("get", crate::paths::TUNNEL), ("post", crate::paths::SEARCHED)] {
        assert!(allows(&agent("m1"), verb, path), "{path}");
        assert!(!allows(&agent("m1"), "put", path), "{path}");
        for mark in [LEAVING, RETURNING] {
            let mut user = agent("m1");
            user.extra.insert(mark.to_owned(), vec!["true".to_owned()]);
            assert!(!allows(&user, verb, path), "{path} {mark}");
        }
    }
    assert!(!allows(&agent("m1"), "get", crate::paths::SEARCHED));
}

#[test]
fn refusals_speak_as_kubernetes_does() {
    let user = UserInfo::new("u", ["g"]);
    let cases = [
        (
            "list",
            Target::Resource(target("work.karmada.io/works n/-")),
            r#"works.work.karmada.io is forbidden: User "u" cannot list resource "works" in API group "work.karmada.io" in the namespace "n""#,
        ),
        (
            "get",
            Target::Resource(target("-/secrets default/x")),
            r#"secrets "x" is forbidden: User "u" cannot get resource "secrets" in API group "" in the namespace "default""#,
        ),
        (
            "update",
            Target::Resource(target("cluster.karmada.io/clusters/status -/m1")),
            r#"clusters.cluster.karmada.io "m1" is forbidden: User "u" cannot update resource "clusters/status" in API group "cluster.karmada.io" at the cluster scope"#,
        ),
        ("get", Target::Path("/logs"), r#"forbidden: User "u" cannot get path "/logs""#),
    ];
    for (verb, target, message) in cases {
        let error = check(&Coarse, &Attributes { user: &user, verb, target }).unwrap_err();
        assert_eq!(error.to_string(), message);
        assert_eq!(error.code(), 403);
    }
    let scraper = UserInfo::new("prometheus", [MONITORING]);
    for (path, may) in [("/metrics", true), ("/metrics/x", false), ("/logs", false)] {
        let attributes = Attributes { user: &scraper, verb: "get", target: Target::Path(path) };
        assert_eq!(check(&Coarse, &attributes).is_ok(), may, "{path}");
    }
    let masters = UserInfo::new("admin", [MASTERS]);
    let anything = Attributes { user: &masters, verb: "delete", target: Target::Path("/x") };
    assert!(check(&Coarse, &anything).is_ok());
}

#[test]
fn everyone_may_ask_about_themselves_and_nobody_about_others() {
    let user = UserInfo::new("u", ["g"]);
    for (text, known, anonymous) in [
        ("authorization.k8s.io/selfsubjectaccessreviews -/-", true, false),
        ("authorization.k8s.io/selfsubjectrulesreviews -/-", true, false),
        ("authentication.k8s.io/selfsubjectreviews -/-", true, false),
        ("authorization.k8s.io/subjectaccessreviews -/-", false, false),
        ("authentication.k8s.io/tokenreviews -/-", false, false),
    ] {
        for (user, want) in [(&user, known), (&UserInfo::anonymous(), anonymous)] {
            let attributes = Attributes { user, verb: "create", target: Target::Resource(target(text)) };
            assert_eq!(Coarse.authorize(&attributes) == Decision::Allow, want, "{text} {}", user.name);
        }
    }
}

#[test]
fn rights_that_are_told_are_rights_that_are_had() {
    for (user, namespace) in [
        (UserInfo::anonymous(), "default"),
        (UserInfo::new("u", ["g"]), "default"),
        (agent("m1"), "karmada-es-m1"),
        (agent("m1"), "karmada-cluster"),
        (agent("m1"), "shop"),
        (UserInfo::new("a", [MASTERS]), "n"),
    ] {
        let rights = Coarse.rights(&user, namespace);
        for right in &rights.resources {
            let name = right.names.first().map_or("x", String::as_str);
            let (resource, subresource) =
                right.resources[0].split_once('/').unwrap_or((right.resources[0].as_str(), ""));
            for verb in &right.verbs {
                let named = ResourceTarget {
                    group: &right.groups[0],
                    resource,
                    subresource,
                    namespace,
                    name,
                    ..ResourceTarget::default()
                };
                let attributes = Attributes { user: &user, verb, target: Target::Resource(named) };
                assert_eq!(Coarse.authorize(&attributes), Decision::Allow, "{attributes:?}");
            }
        }
        for (verbs, paths) in &rights.paths {
            let attributes = Attributes { user: &user, verb: &verbs[0], target: Target::Path(&paths[0]) };
            assert_eq!(Coarse.authorize(&attributes), Decision::Allow, "{attributes:?}");
        }
    }
}

/// Rights one by one: namespace, `group/resource`, name and verb. RBAC sees no names where objects are made.
type Single = (String, String, String, String);

fn singles(
    namespace: &str,
    groups: &[String],
    resources: &[String],
    names: &[String],
    verbs: &[String],
) -> Vec<Single> {
    let mut all = Vec::new();
    let nameless = [String::new()];
    for verb in verbs {
        let any = names.is_empty() || verb == "create";
        for name in if any { &nameless } else { names } {
            for (group, resource) in groups.iter().flat_map(|g| resources.iter().map(move |r| (g, r))) {
                all.push((namespace.to_owned(), format!("{group}/{resource}"), name.clone(), verb.clone()));
            }
        }
    }
    all
}

/// The table's rights, one by one.
fn of_the_table() -> BTreeSet<Single> {
    let mut ours = BTreeSet::new();
    for rule in AGENT_RULES {
        let namespace = match rule.place {
            Place::Execution => "karmada-es-CLUSTER",
            Place::Clusters => CLUSTER_NAMESPACE,
            Place::Default => "default",
            Place::Anywhere => "",
            Place::Templates => panic!("a stock server knows of no templates"),
        };
        let (names, verbs) = (rule.names("CLUSTER"), owned(rule.verbs));
        ours.extend(singles(namespace, &owned(&[rule.group]), &owned(&[rule.resource]), &names, &verbs));
    }
    ours
}

#[test]
fn on_a_stock_server_agents_have_the_same_rights() {
    let manifest = include_str!("../../../../manifests/hub/agent-rbac.yaml");
    let strings = |value: &serde_json::Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
    };
    let mut granted = BTreeSet::new();
    for document in manifest.split("\n---\n") {
        let document: serde_json::Value = serde_saphyr::from_str(document).unwrap();
        let namespace = document["metadata"]["namespace"].as_str().unwrap_or_default();
        for rule in document["rules"].as_array().into_iter().flatten() {
            let [groups, resources, names, verbs] =
                ["apiGroups", "resources", "resourceNames", "verbs"].map(|field| strings(&rule[field]));
            granted.extend(singles(namespace, &groups, &resources, &names, &verbs));
        }
    }
    let ours = of_the_table();
    let [missing, more] =
        [ours.difference(&granted), granted.difference(&ours)].map(Iterator::collect::<Vec<_>>);
    assert!(
        missing.is_empty() && more.is_empty(),
        "missing in the manifest: {missing:?}\nmore there: {more:?}"
    );
}

#[test]
fn the_manifest_is_what_is_written_for_a_cluster() {
    let manifest = include_str!("../../../../manifests/hub/agent-rbac.yaml");
    let bare = |mut object: serde_json::Value| {
        if let Some(map) = object.as_object_mut() {
            // Compared one by one above; which stand together does not matter.
            map.remove("rules");
        }
        object.to_string()
    };
    let read = |text: &str| bare(serde_saphyr::from_str::<serde_json::Value>(text).unwrap());
    let theirs: BTreeSet<String> = manifest.split("\n---\n").map(read).collect();
    let ours: BTreeSet<String> = roles("CLUSTER", &Subject::Account).into_iter().map(bare).collect();
    assert_eq!(theirs, ours);
    let mut singles_of = Vec::new();
    for object in roles("CLUSTER", &Subject::User("u".to_owned())) {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        for rule in object["rules"].as_array().into_iter().flatten().map(PolicyRule::of) {
            singles_of.extend(singles(
                namespace,
                &rule.api_groups,
                &rule.resources,
                &rule.resource_names,
                &rule.verbs,
            ));
        }
    }
    let ours: BTreeSet<Single> = of_the_table();
    assert_eq!(singles_of.len(), ours.len(), "nothing is said twice");
    assert_eq!(singles_of.into_iter().collect::<BTreeSet<_>>(), ours);
}

/// What a hub allowed before it had roles, it allows with the default ones, and nothing else.
mod after_the_upgrade {
    use std::sync::LazyLock;

    use super::*;

    static ROLES: LazyLock<Arc<Rbac>> = LazyLock::new(|| Arc::new(rbac::tests::default_roles()));

    const USERS: [(&str, &[&str]); 7] = [
        ("admin", &["system:masters"]),
        ("karmada-monitoring", &["system:monitoring"]),
        ("somebody", &["dev"]),
        ("system:karmada:agent:m1", &["system:karmada:agents"]),
        ("system:karmada:agent:m1", &["system:karmada:agents", "system:masters"]),
        ("system:karmada:agent:rbac-generator", &["system:karmada:agents"]),
        ("system:karmada:agent:m1", &[]),
    ];

    fn one(of: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
        prop::sample::select(of)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn everyone_may_what_they_might(
            who in prop::option::weighted(0.9, 0..USERS.len()),
            leaving in prop::bool::weighted(0.1),
            verb in one(&["get", "head", "post", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "impersonate"]),
            path in prop::option::weighted(0.3, one(&["/healthz", "/healthz/store", "/readyz/x", "/livez", "/metrics",
                "/metrics/x", "/api", "/api/v1", "/apis/apps", "/apish", "/openapi", "/openapi/v2", "/version", "/version/", "/", "/logs",
                "/karmada-hub/store", "/.well-known/openid-configuration"])),
            group in one(&["", "work.karmada.io", "cluster.karmada.io", "coordination.k8s.io", "authorization.k8s.io", "authentication.k8s.io",
                "rbac.authorization.k8s.io", "events.k8s.io", "config.karmada.io"]),
            resource in one(&["works", "clusters", "leases", "secrets", "configmaps", "events", "namespaces", "selfsubjectaccessreviews",
                "selfsubjectrulesreviews", "selfsubjectreviews", "subjectaccessreviews", "tokenreviews", "clusterroles",
                "resourceinterpretercustomizations"]),
            subresource in one(&["", "status", "scale"]),
            namespace in one(&["", "karmada-es-m1", "karmada-es-m2", "karmada-cluster", "default", "kube-system"]),
            name in one(&["", "m1", "m2", "m1-impersonator", "karmada-es-m1", "x"]),
        ) {
            let mut user = match who {
                Some(at) => UserInfo::new(USERS[at].0, USERS[at].1.iter().copied()),
                None => UserInfo::anonymous(),
            };
            if leaving {
                user.extra.insert(LEAVING.to_owned(), vec!["true".to_owned()]);
            }
            let target = match path {
                Some(path) => Target::Path(path),
                None => Target::Resource(ResourceTarget { group, resource, subresource, namespace, name, fields: None }),
            };
            let attributes = Attributes { user: &user, verb, target };
            let roles = Roles::new(ROLES.clone());
            prop_assert_eq!(roles.authorize(&attributes), Coarse.authorize(&attributes), "{:?}", attributes);
            prop_assert_eq!(roles.authorize_name(&attributes), Coarse.authorize_name(&attributes));
            prop_assert_eq!(roles.explain(&attributes).0, roles.authorize(&attributes));
        }
    }
}

#[test]
fn no_role_adds_to_what_an_agent_may() {
    let rbac = rbac::tests::default_roles();
    rbac.bind_for_tests("cluster-admin", &[AGENTS, "system:authenticated"]);
    let roles = Roles::new(Arc::new(rbac));
    let target = Target::Resource(target("-/secrets karmada-cluster/m2"));
    let may = |user: &UserInfo| roles.explain(&Attributes { user, verb: "get", target });
    let (decision, reason) = may(&agent("m1"));
    assert!(matches!(decision, Decision::Deny(_)), "{decision:?}");
    assert!(reason.contains("its own cluster's objects only"), "{reason}");
    assert_eq!(roles.rules(&agent("m1"), "karmada-cluster"), [], "nor may it give anything away");
    for lookalike in ["system:karmada:agent:rbac-generator", "system:karmada:agent:no.cluster", "m1"] {
        assert_eq!(
            may(&UserInfo::new(lookalike, [AGENTS])).0,
            Decision::Allow,
            "{lookalike} is one of all others"
        );
    }
}

#[test]
fn an_agent_has_no_business_where_the_hub_works_by_itself() {
    let roles = Roles::new(Arc::new(rbac::tests::default_roles())).with_pushed(Arc::new(Pushed::of(&["m1"])));
    let mut generator = UserInfo::new("system:karmada:agent:rbac-generator", [AGENTS]);
    generator.extra.insert(crate::identity::GENERATES_FOR.to_owned(), vec!["m1".to_owned()]);
    for (verb, asked, m1, m2) in [
        ("get", "cluster.karmada.io/clusters /m1", true, false),
        ("watch", "cluster.karmada.io/clusters /m1", true, false),
        ("patch", "cluster.karmada.io/clusters /m1", false, false),
        ("delete", "cluster.karmada.io/clusters /m1", false, false),
        ("update", "cluster.karmada.io/clusters/status /m1", false, false),
        ("get", "-/secrets karmada-cluster/m1", false, false),
        ("patch", "-/secrets karmada-cluster/m1-impersonator", false, false),
        ("create", "-/secrets karmada-cluster/", false, true),
        ("list", "work.karmada.io/works karmada-es-m1/", false, false),
        ("delete", "work.karmada.io/works karmada-es-m1/w", false, false),
        ("list", "work.karmada.io/works karmada-es-m2/", false, true),
        ("create", "certificates.k8s.io/certificatesigningrequests /", false, true),
        ("update", "coordination.k8s.io/leases karmada-cluster/m2", false, true),
    ] {
        for (who, want) in [("m1", m1), ("m2", m2)] {
            let (user, target) = (agent(who), Target::Resource(target(asked)));
            let decision = roles.authorize(&Attributes { user: &user, verb, target });
            assert_eq!(decision == Decision::Allow, want, "{who}: {verb} {asked}: {decision:?}");
        }
    }
    let create = Target::Resource(target("rbac.authorization.k8s.io/roles karmada-cluster/"));
    let decision = roles.authorize(&Attributes { user: &generator, verb: "create", target: create });
    assert!(matches!(decision, Decision::Deny(_)), "{decision:?}");
    assert_eq!(roles.rules(&generator, "karmada-cluster"), []);
    let told = roles.rights(&agent("m1"), "karmada-cluster").resources;
    assert!(!told.iter().any(|right| right.resources.contains(&"secrets".to_owned())), "{told:?}");
}

/// Discovery is everyone's. Who may read in a group is not.
#[test]
fn who_may_get_in_a_group_is_told_by_roles() {
    let rbac = rbac::tests::default_roles();
    rbac.bind_for_tests("cluster-admin", &["admins"]);
    let roles = Roles::new(Arc::new(rbac));
    let may = |user: &UserInfo| roles.rights(user, "").may_get_in("custom.metrics.k8s.io");
    assert!(may(&UserInfo::new("jane", ["admins", "system:authenticated"])));
    assert!(!may(&UserInfo::new("joe", ["system:authenticated"])));
    assert!(!may(&agent("m1")));
    let right = |verb: &str, group: &str| Rights {
        resources: vec![Right { verbs: owned(&[verb]), groups: owned(&[group]), ..Right::default() }],
        ..Rights::default()
    };
    for (verb, group, want) in [
        ("get", "custom.metrics.k8s.io", true),
        ("*", "custom.metrics.k8s.io", true),
        ("get", "*", true),
        ("list", "custom.metrics.k8s.io", false),
        ("get", "external.metrics.k8s.io", false),
    ] {
        assert_eq!(right(verb, group).may_get_in("custom.metrics.k8s.io"), want, "{verb} {group}");
    }
}
