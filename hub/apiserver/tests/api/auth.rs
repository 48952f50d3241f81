//! Who asks, as whom, and what they may know of it.

use karmada_apiserver::authn::{Authenticator, Tokens, UserInfo};
use karmada_env::Env;
use serde_json::{Value, json};

use crate::{MAPS, Server};

const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const MAY_I: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const MAY_THEY: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const RULES: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";

fn agent() -> UserInfo {
    UserInfo::new("system:karmada:agent:m1", ["system:karmada:agents"])
}

fn may(verb: &str, resource: &str, namespace: &str) -> Value {
    json!({"spec": {"resourceAttributes": {
        "verb": verb, "resource": resource, "group": "work.karmada.io", "namespace": namespace}}})
}

#[tokio::test(start_paused = true)]
async fn everyone_may_ask_who_they_are_and_what_they_may() {
    let server = Server::start().await;
    let ask = async |user: UserInfo, path: &str, body: Value| {
        server.send(Some(user), "POST", path, "application/json", &body).await
    };
    let who = ask(agent(), WHO, json!({})).await;
    assert_eq!(who.code, 201);
    assert_eq!(who.body["status"]["userInfo"]["username"], "system:karmada:agent:m1");
    for (namespace, allowed) in [("karmada-es-m1", true), ("karmada-es-m2", false)] {
        let answer = ask(agent(), MAY_I, may("list", "works", namespace)).await;
        assert_eq!((answer.code, &answer.body["status"]["allowed"]), (201, &json!(allowed)), "{namespace}");
    }
    let rules = ask(agent(), RULES, json!({"spec": {"namespace": "karmada-es-m1"}})).await;
    assert!(rules.body["status"]["resourceRules"].to_string().contains("\"works\""), "{rules:?}");
    assert_eq!(ask(agent(), RULES, json!({"spec": {}})).await.code, 400);
    assert_eq!(ask(agent(), MAY_THEY, may("list", "works", "n")).await.code, 403);
    assert_eq!(ask(UserInfo::anonymous(), WHO, json!({})).await.code, 403);
}

#[tokio::test(start_paused = true)]
async fn an_administrator_asks_for_others() {
    let server = Server::start().await;
    let mut review = may("list", "works", "karmada-es-m1");
    review["spec"]["user"] = json!("system:karmada:agent:m1");
    let allowed = server.call("POST", MAY_THEY, review.clone()).await;
    assert_eq!((allowed.code, &allowed.body["status"]), (201, &json!({"allowed": false})), "groups count");
    review["spec"]["groups"] = json!(["system:karmada:agents"]);
    let allowed = server.call("POST", MAY_THEY, review.clone()).await;
    assert_eq!(allowed.body["status"], json!({"allowed": true}));
    review["spec"]["resourceAttributes"]["group"] = json!("cluster.karmada.io");
    review["spec"]["resourceAttributes"]["resource"] = json!("clusters");
    let selector = json!({"requirements": [{"key": "metadata.name", "operator": "In", "values": ["m1"]}]});
    for (selector, allowed) in [(Value::Null, false), (selector, true)] {
        review["spec"]["resourceAttributes"]["fieldSelector"] = selector;
        let answer = server.call("POST", MAY_THEY, review.clone()).await;
        assert_eq!(answer.body["status"]["allowed"], allowed, "{answer:?}");
    }
    review["metadata"] = json!({"name": "x"});
    let refused = server.call("POST", MAY_THEY, review).await;
    assert_eq!(refused.code, 422, "nothing is stored under a name: {refused:?}");
}

#[tokio::test(start_paused = true)]
async fn tokens_are_known_by_whoever_the_server_was_told_of() {
    let server = Server::start().await;
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let mut tokens = Tokens::new();
    tokens.insert("secret", UserInfo::new("u", ["g"]));
    server.api.authenticate_by(Authenticator::new(tokens, Env::system()));
    for (token, audiences, known) in
        [("secret", json!([]), true), ("secret", json!(["elsewhere"]), false), ("other", json!([]), false)]
    {
        let review = json!({"spec": {"token": token, "audiences": audiences}});
        let answer = server.call("POST", path, review).await;
        assert_eq!(answer.code, 201);
        assert_eq!(answer.body["status"]["authenticated"] == true, known, "{answer:?}");
    }
    assert_eq!(server.call("POST", path, json!({"spec": {}})).await.code, 400);
}

#[tokio::test(start_paused = true)]
async fn whoever_acts_as_another_has_the_rights_of_that_one() {
    let server = Server::start().await;
    let ask = async |user: UserInfo, name: &str, path: &str| {
        server.send_with(user, "GET", path, &[("impersonate-user", name)]).await
    };
    let refused = ask(Server::admin(), "u", MAPS).await;
    assert_eq!(refused.code, 403);
    let why = r#"configmaps is forbidden: User "u" cannot list resource "configmaps" in API group "" in the namespace "default""#;
    assert_eq!(refused.body["message"], why);
    assert_eq!(ask(Server::admin(), "u", "/version").await.code, 200);
    let agents = ask(agent(), "admin", "/version").await;
    assert_eq!(agents.code, 403, "agents act as nobody: {agents:?}");
}

#[tokio::test(start_paused = true)]
async fn a_certificate_request_says_who_made_it() {
    let server = Server::start().await;
    let request = json!({"metadata": {"name": "r"}, "spec": {"request": "LS0=", "username": "somebody else",
        "signerName": "example.com/s", "usages": ["client auth"]}});
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let made = server.call("POST", path, request).await;
    assert_eq!(made.body["spec"]["username"], "admin", "{made:?}");
    let changed = server.patch(&format!("{path}/r"), "merge", json!({"spec": {"username": "x"}})).await;
    assert_eq!((changed.code, &changed.body["spec"]["username"]), (200, &json!("admin")));
}
