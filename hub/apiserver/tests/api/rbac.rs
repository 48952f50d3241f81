//! Roles in force: what they allow, who may write them, those that every server has, and those that are aggregated.

use std::time::{Duration, SystemTime};

use karmada_apiserver::{authn::UserInfo, authz::Authorization, limits::Limits, open_store};
use karmada_env::{Env, ManualClock};
use karmada_store::engine::memory::Memory;
use serde_json::{Value, json};

use crate::{Answer, MAPS, Server, config_map};

pub(crate) const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const GROUP: &str = "rbac.authorization.k8s.io";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

fn rule(verbs: &[&str], group: &str, resources: &[&str]) -> Value {
    json!({"verbs": verbs, "apiGroups": [group], "resources": resources})
}

fn role(name: &str, rules: &[Value]) -> Value {
    json!({"metadata": {"name": name}, "rules": rules})
}

fn binding(name: &str, kind: &str, role: &str, user: &str) -> Value {
    json!({"metadata": {"name": name}, "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": user}]})
}

impl Server {
    pub(crate) async fn by(&self, user: &str, method: &str, path: &str, body: Value) -> Answer {
        let user = UserInfo::new(user, ["dev"]);
        self.send(Some(user), method, path, "application/json", &body).await
    }

    async fn made_in(&self, path: &str, body: Value) -> Answer {
        let answer = self.call("POST", path, body).await;
        assert_eq!(answer.code, 201, "{answer:?}");
        answer
    }

    /// A user with these rules in `default`.
    async fn user_with(&self, user: &str, rules: &[Value]) {
        self.made_in(&format!("{RBAC}/namespaces/default/roles"), role(user, rules)).await;
        let bindings = format!("{RBAC}/namespaces/default/rolebindings");
        self.made_in(&bindings, binding(user, "Role", user, user)).await;
    }

    /// What a SubjectAccessReview says.
    pub(crate) async fn review(&self, spec: Value) -> Value {
        self.call("POST", REVIEWS, json!({"spec": spec})).await.body["status"].take()
    }
}

#[tokio::test(start_paused = true)]
async fn a_binding_counts_from_its_answer_on_and_until_the_answer_that_it_is_gone() {
    let server = Server::start().await;
    for round in 0..8 {
        assert_eq!(server.by("u", "GET", MAPS, Value::Null).await.code, 403, "{round}");
        server.user_with("u", &[rule(&["list"], "", &["configmaps"])]).await;
        assert_eq!(server.by("u", "GET", MAPS, Value::Null).await.code, 200, "{round}");
        assert_eq!(server.by("u", "GET", "/api/v1/configmaps", Value::Null).await.code, 403, "{round}");
        let what = if round % 2 == 0 { "roles" } else { "rolebindings" };
        server.call("DELETE", &format!("{RBAC}/namespaces/default/{what}/u"), Value::Null).await;
        let refused = server.by("u", "GET", MAPS, Value::Null).await;
        let mut why = r#"configmaps is forbidden: User "u" cannot list resource "configmaps" in API group "" in the namespace "default""#.to_owned();
        if what == "roles" {
            why.push_str(r#": RBAC: role.rbac.authorization.k8s.io "u" not found"#);
        }
        assert_eq!((refused.code, &refused.body["message"]), (403, &json!(why)));
        for what in ["roles", "rolebindings"] {
            server.call("DELETE", &format!("{RBAC}/namespaces/default/{what}/u"), Value::Null).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn reviews_say_why() {
    let server = Server::start().await;
    let bindings = format!("{RBAC}/clusterrolebindings");
    server.made_in(&bindings, binding("viewers", "ClusterRole", "view", "u")).await;
    let pods = json!({"verb": "list", "resource": "pods", "namespace": "default"});
    assert_eq!(
        server.review(json!({"user": "u", "resourceAttributes": pods})).await,
        json!({"allowed": true,
            "reason": r#"RBAC: allowed by ClusterRoleBinding "viewers" of ClusterRole "view" to User "u""#})
    );
    assert_eq!(
        server.review(json!({"user": "v", "resourceAttributes": pods})).await,
        json!({"allowed": false})
    );
    let agent = json!({"user": "system:karmada:agent:m1", "groups": ["system:karmada:agents"],
        "resourceAttributes": pods});
    let agent = server.review(agent).await;
    assert_eq!((&agent["allowed"], &agent["denied"]), (&json!(false), &json!(true)), "{agent}");
    let rules = json!({"spec": {"namespace": "default"}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let told = server.by("u", "POST", path, rules).await;
    assert_eq!(told.body["status"]["incomplete"], false);
    let resources = told.body["status"]["resourceRules"].as_array().unwrap();
    assert!(resources.iter().any(|rule| rule["resources"][0] == "selfsubjectaccessreviews"), "{told:?}");
    assert!(resources.iter().any(|rule| rule["apiGroups"] == json!(["batch"])), "{told:?}");
    let paths = told.body["status"]["nonResourceRules"].as_array().unwrap();
    assert!(paths.iter().any(|rule| rule["nonResourceURLs"][0] == "/api"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn nobody_gives_away_what_they_do_not_have() {
    let server = Server::start().await;
    let write = rule(&["create", "update", "patch", "delete", "get"], GROUP, &["roles", "rolebindings"]);
    server.user_with("u", &[write.clone(), rule(&["get"], "", &["configmaps"])]).await;
    let (roles, bindings) =
        (format!("{RBAC}/namespaces/default/roles"), format!("{RBAC}/namespaces/default/rolebindings"));
    let more = [rule(&["get", "list"], "", &["secrets"])];
    let held = [rule(&["get"], "", &["configmaps"])];
    let not_held = |what: &str, name: &str| {
        format!(
            "{what}.{GROUP} \"{name}\" is forbidden: user \"u\" (groups=[\"dev\" \"system:authenticated\"]) is attempting \
             to grant RBAC permissions not currently held:\n{{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}}"
        )
    };
    let refused = |answer: &Answer, why: String| {
        assert_eq!((answer.code, &answer.body["message"]), (403, &json!(why)), "{answer:?}");
    };
    // However it is made.
    refused(&server.by("u", "POST", &roles, role("x", &more)).await, not_held("roles", "x"));
    refused(
        &server.by("u", "POST", &format!("{roles}?dryRun=All"), role("x", &more)).await,
        not_held("roles", "x"),
    );
    let put = format!("{roles}/x");
    refused(&server.by("u", "PUT", &put, role("x", &more)).await, not_held("roles", "x"));
    let apply = [("content-type", "application/apply-patch+yaml")];
    let config = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Role", "metadata": {"name": "x"}, "rules": more});
    let user = || UserInfo::new("u", ["dev"]);
    let body = config.to_string().into_bytes();
    let applied = server.send_body(user(), "PATCH", &format!("{put}?fieldManager=m"), &apply, body).await;
    refused(&applied, not_held("roles", "x"));
    assert_eq!(server.by("u", "POST", &roles, role("x", &held)).await.code, 201);
    refused(&server.by("u", "PUT", &put, role("x", &more)).await, not_held("roles", "x"));
    for (media, patch) in [
        ("application/merge-patch+json", json!({"rules": more})),
        ("application/json-patch+json", json!([{"op": "add", "path": "/rules/-", "value": more[0]}])),
        ("application/strategic-merge-patch+json", json!({"rules": more})),
    ] {
        let body = patch.to_string().into_bytes();
        let patched = server.send_body(user(), "PATCH", &put, &[("content-type", media)], body).await;
        refused(&patched, not_held("roles", "x"));
    }
    // Bindings: of a role that others made, of one that is not there, of one whose rules are held.
    server.made_in(&roles, role("secrets", &more)).await;
    let bind = async |role_kind: &str, role: &str| {
        server.by("u", "POST", &bindings, binding(&format!("to-{role}"), role_kind, role, "u")).await
    };
    refused(&bind("Role", "secrets").await, not_held("rolebindings", "to-secrets"));
    assert_eq!(bind("Role", "gone").await.code, 404);
    assert_eq!(bind("ClusterRole", "cluster-admin").await.code, 403);
    assert_eq!(bind("Role", "x").await.code, 201);
    // A role with more than that may be let go of by whoever may write it, and not changed otherwise.
    server
        .patch(&format!("{roles}/secrets"), "merge", json!({"metadata": {"finalizers": ["example.com/f"]}}))
        .await;
    let merge = [("content-type", "application/merge-patch+json")];
    let change = async |patch: Value| {
        let body = patch.to_string().into_bytes();
        server.send_body(user(), "PATCH", &format!("{roles}/secrets"), &merge, body).await.code
    };
    assert_eq!(change(json!({"metadata": {"labels": {"a": "b"}}})).await, 403);
    assert_eq!(change(json!({"metadata": {"finalizers": null}})).await, 200);
    // Rights to give away more than one has: for one role, and to write any.
    let bind_secrets = json!({"verbs": ["bind"], "apiGroups": [GROUP], "resources": ["roles"], "resourceNames": ["secrets"]});
    server.patch(&format!("{roles}/u"), "merge", json!({"rules": [write, bind_secrets]})).await;
    assert_eq!(bind("Role", "secrets").await.code, 201);
    assert_eq!(bind("ClusterRole", "view").await.code, 403);
    server
        .patch(
            &format!("{roles}/u"),
            "merge",
            json!({"rules": [write, rule(&["escalate"], GROUP, &["roles"])]}),
        )
        .await;
    assert_eq!(server.by("u", "PUT", &put, role("x", &[rule(&["*"], "*", &["*"])])).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn only_who_has_everything_aggregates() {
    let server = Server::start().await;
    let roles = format!("{RBAC}/clusterroles");
    server.made_in(&roles, role("writer", &[rule(&["create", "update"], GROUP, &["clusterroles"])])).await;
    server.made_in(&format!("{RBAC}/clusterrolebindings"), binding("w", "ClusterRole", "writer", "u")).await;
    let all = json!({"metadata": {"name": "all"}, "rules": [],
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}});
    let refused = server.by("u", "POST", &roles, all.clone()).await;
    let why = r#"clusterroles.rbac.authorization.k8s.io "all" is forbidden: must have cluster-admin privileges to use the aggregationRule"#;
    assert_eq!((refused.code, &refused.body["message"]), (403, &json!(why)));
    server
        .made_in(&format!("{RBAC}/clusterrolebindings"), binding("a", "ClusterRole", "cluster-admin", "u"))
        .await;
    assert_eq!(server.by("u", "POST", &roles, all).await.code, 201, "by a role as by the group");
}

#[tokio::test(start_paused = true)]
async fn aggregated_roles_have_the_rules_of_those_they_select() {
    let server = Server::start().await;
    let roles = format!("{RBAC}/clusterroles");
    let has = |answer: &Answer, resource: &str| {
        let rules = answer.body["rules"].as_array().cloned().unwrap_or_default();
        rules
            .iter()
            .any(|rule| rule["resources"].as_array().is_some_and(|all| all.contains(&json!(resource))))
    };
    for name in ["view", "edit", "admin"] {
        assert!(
            has(&server.get(&format!("{roles}/{name}")).await, "limitranges"),
            "{name} has them at the start"
        );
    }
    let mut works = role("works-viewer", &[rule(&["list"], "work.karmada.io", &["works"])]);
    works["metadata"]["labels"] = json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"});
    server.made_in(&roles, works).await;
    for name in ["view", "edit", "admin"] {
        server.until(&format!("{roles}/{name}"), |answer| has(answer, "works")).await;
    }
    server.made_in(&format!("{RBAC}/clusterrolebindings"), binding("v", "ClusterRole", "admin", "u")).await;
    let listed = json!({"verb": "list", "group": "work.karmada.io", "resource": "works", "namespace": "n"});
    assert_eq!(server.review(json!({"user": "u", "resourceAttributes": listed})).await["allowed"], true);
    server.patch(&format!("{roles}/works-viewer"), "merge", json!({"metadata": {"labels": null}})).await;
    for name in ["admin", "edit", "view"] {
        server.until(&format!("{roles}/{name}"), |answer| !has(answer, "works")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_mends_the_roles_that_every_server_has_and_takes_nothing_away() {
    let clock = ManualClock::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_750_000_000));
    let store = open_store(Memory::new(), &Env::seeded(clock.clone(), 7)).unwrap();
    let start = || Server::with(store.clone(), clock.clone(), Limits::default(), Authorization::Roles);
    let server = start().await;
    let at = |kind: &str, name: &str| format!("{RBAC}/{kind}/{name}");
    let before =
        server.get(&at("clusterroles", "system:basic-user")).await.body["metadata"]["resourceVersion"]
            .clone();
    let discovery = at("clusterroles", "system:discovery");
    let mine = json!({"verbs": ["get"], "nonResourceURLs": ["/mine"]});
    let relabelled = json!({"labels": {"kubernetes.io/bootstrapping": null, "own": "x"}});
    server.patch(&discovery, "merge", json!({"rules": [mine], "metadata": relabelled})).await;
    let off = json!({"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}});
    server
        .patch(&at("clusterroles", "system:monitoring"), "merge", json!({"rules": [], "metadata": off}))
        .await;
    server.call("DELETE", &at("clusterroles", "view"), Value::Null).await;
    let basic = at("clusterrolebindings", "system:basic-user");
    server.call("DELETE", &basic, Value::Null).await;
    server
        .made_in(&at("clusterrolebindings", ""), binding("system:basic-user", "ClusterRole", "edit", "u"))
        .await;
    let public = at("clusterrolebindings", "system:public-info-viewer");
    server.patch(&public, "merge", json!({"subjects": []})).await;
    server.shutdown.cancel();

    let server = start().await;
    let got = server.get(&discovery).await.body;
    let rules = got["rules"].as_array().unwrap();
    assert_eq!((rules.len(), &rules[0]), (2, &mine), "what is missing is added: {got}");
    let labels = json!({"kubernetes.io/bootstrapping": "rbac-defaults", "own": "x"});
    assert_eq!(got["metadata"]["labels"], labels);
    let left = server.get(&at("clusterroles", "system:monitoring")).await.body;
    assert!(left["rules"].as_array().is_none_or(Vec::is_empty), "{left}");
    let view = server.get(&at("clusterroles", "view")).await.body;
    assert!(view["rules"].as_array().is_some_and(|rules| rules.len() > 5), "{view}");
    let got = server.get(&basic).await.body;
    assert_eq!(got["roleRef"]["name"], "system:basic-user");
    assert_eq!(server.get(&public).await.body["subjects"].as_array().map(Vec::len), Some(2));
    let after =
        &server.get(&at("clusterroles", "system:basic-user")).await.body["metadata"]["resourceVersion"];
    assert_eq!(*after, before, "what is as it should be is not written");
}

#[tokio::test(start_paused = true)]
async fn anyone_may_read_where_the_hub_is_and_nothing_beside() {
    let server = Server::start().await;
    let maps = "/api/v1/namespaces/kube-public/configmaps";
    for name in ["cluster-info", "other"] {
        server.made_in(maps, config_map(name)).await;
    }
    let get = async |path: String| {
        let anonymous = Some(UserInfo::anonymous());
        server.send(anonymous, "GET", &path, "application/json", &Value::Null).await.code
    };
    assert_eq!(get(format!("{maps}/cluster-info")).await, 200);
    assert_eq!(get(format!("{maps}/other")).await, 403);
    assert_eq!(get(maps.to_owned()).await, 403);
    assert_eq!(get(format!("{maps}?watch=true&timeoutSeconds=1")).await, 403);
}

/// A grant of a hundred million rights takes no longer to refuse than any.
#[tokio::test(start_paused = true)]
async fn a_rule_that_says_too_much_is_refused_at_once() {
    let server = Server::start().await;
    server.user_with("u", &[rule(&["create"], GROUP, &["roles"]), rule(&["get"], "", &["pods"])]).await;
    let many: Vec<String> = (0..500).map(|n| format!("v{n}")).collect();
    let huge = json!({"verbs": many, "apiGroups": many, "resources": many});
    let roles = format!("{RBAC}/namespaces/default/roles");
    let refused = server.by("u", "POST", &roles, role("x", &[huge])).await;
    assert_eq!(refused.code, 403);
    let message = refused.body["message"].as_str().unwrap();
    assert!(message.contains("more than 10000 rights") && message.len() < 1_000, "{message}");
}

/// What is asked for by a path may be allowed by its name; a body's name is looked at by nobody's role.
#[tokio::test(start_paused = true)]
async fn a_right_to_one_name_is_one_to_make_it_by_applying_and_none_to_delete_collections() {
    let server = Server::start().await;
    let mut one = rule(&["create", "patch", "list", "deletecollection"], "", &["configmaps"]);
    one["resourceNames"] = json!(["a"]);
    server.user_with("u", &[one]).await;
    let apply = async |name: &str| {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let path = format!("{MAPS}/{name}?fieldManager=m");
        let user = Some(UserInfo::new("u", ["dev"]));
        server.send(user, "PATCH", &path, "application/apply-patch+yaml", &map).await
    };
    assert_eq!(server.by("u", "POST", MAPS, config_map("a")).await.code, 403, "the name is in the body");
    assert_eq!(apply("b").await.code, 403);
    let made = apply("a").await;
    assert_eq!(made.code, 201, "{made:?}");
    let selected = format!("{MAPS}?fieldSelector=metadata.name%3Da");
    assert_eq!(server.by("u", "GET", &selected, Value::Null).await.code, 200);
    let refused = server.by("u", "DELETE", &selected, Value::Null).await;
    assert_eq!(refused.code, 403, "{refused:?}");
    assert_eq!(server.get(&format!("{MAPS}/a")).await.code, 200);
}
