//! Admission webhooks: who is asked, in which order, and what becomes of the write.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use futures::future::BoxFuture;
use karmada_apiserver::webhooks::{Place, WebhookCaller};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{MAPS, Server, config_map};

pub(crate) type Reply = BoxFuture<'static, Result<Value, String>>;
type Answer = dyn Fn(&str, &Value) -> Reply + Send + Sync;

/// Services outside, by the hosts of their URLs.
pub(crate) struct Outside {
    /// Host and request, in order.
    asked: Mutex<Vec<(String, Value)>>,
    answer: Box<Answer>,
}

impl std::fmt::Debug for Outside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outside").finish_non_exhaustive()
    }
}

impl Outside {
    pub(crate) fn new(answer: impl Fn(&str, &Value) -> Reply + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { asked: Mutex::default(), answer: Box::new(answer) })
    }

    /// Services that answer at once.
    pub(crate) fn plain(
        answer: impl Fn(&str, &Value) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Self::new(move |host, request| {
            let answer = answer(host, request);
            Box::pin(async move { answer })
        })
    }

    /// Who was asked since this was called last.
    fn hosts(&self) -> Vec<String> {
        self.requests().into_iter().map(|(host, _)| host).collect()
    }

    fn requests(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut *self.asked.lock())
    }
}

impl WebhookCaller for Outside {
    fn call<'a>(&'a self, place: &'a Place, review: Bytes) -> BoxFuture<'a, Result<Bytes, String>> {
        let review: Value = serde_json::from_slice(&review).unwrap();
        let host = place.url.trim_start_matches("https://").split(['/', ':']).next().unwrap().to_owned();
        let request = review["request"].clone();
        self.asked.lock().push((host.clone(), request.clone()));
        let answer = (self.answer)(&host, &request);
        Box::pin(async move {
            let mut response = answer.await?;
            response["uid"] = request["uid"].clone();
            let answer =
                json!({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response});
            Ok(answer.to_string().into())
        })
    }
}

fn allow() -> Value {
    json!({"allowed": true})
}

fn patch(operations: Value) -> Value {
    let patch = BASE64_STANDARD.encode(operations.to_string());
    json!({"allowed": true, "patch": patch, "patchType": "JSONPatch"})
}

fn label(key: &str, value: &str) -> Value {
    patch(json!([{"op": "add", "path": "/metadata/labels", "value": {key: value}}]))
}

/// A webhook about ConfigMaps, at a host of its own.
pub(crate) fn webhook(host: &str, more: Value) -> Value {
    let mut webhook = json!({
        "name": format!("{host}.example.com"), "clientConfig": {"url": format!("https://{host}/ask")}, "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        webhook[field] = value.clone();
    }
    webhook
}

pub(crate) fn path(sort: &str) -> String {
    format!("/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations", sort.to_lowercase())
}

pub(crate) fn configuration(sort: &str, name: &str, webhooks: &[Value]) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{sort}WebhookConfiguration"),
           "metadata": {"name": name}, "webhooks": webhooks})
}

async fn configure(server: &Server, sort: &str, name: &str, webhooks: &[Value]) {
    let answer = server.call("POST", &path(sort), configuration(sort, name, webhooks)).await;
    assert_eq!(answer.code, 201, "{answer:?}");
}

async fn with(outside: &Arc<Outside>) -> Server {
    let server = Server::start().await;
    server.api.call_webhooks(outside.clone());
    server
}

#[tokio::test(start_paused = true)]
async fn a_write_is_changed_and_judged() {
    let outside = Outside::plain(|host, request| {
        Ok(match host {
            "first" => label("first", "1"),
            "second" => {
                let labels = &request["object"]["metadata"]["labels"];
                let seen = if labels["first"] == "1" { "after" } else { "before" };
                patch(json!([{"op": "add", "path": "/metadata/labels/second", "value": seen},
                             {"op": "add", "path": "/data/unknown", "value": "kept"},
                             {"op": "add", "path": "/nonsense", "value": 1}]))
            }
            _ if request["object"]["data"]["k"] == "bad" => {
                json!({"allowed": false, "status": {"code": 403, "reason": "Forbidden", "message": "k is bad"}})
            }
            _ => json!({"allowed": true, "warnings": ["mind the gap"]}),
        })
    });
    let server = with(&outside).await;
    // By the names of the configurations, whichever came first.
    configure(&server, "Mutating", "b", &[webhook("second", json!({}))]).await;
    configure(&server, "Mutating", "a", &[webhook("first", json!({}))]).await;
    configure(&server, "Validating", "c", &[webhook("judge", json!({}))]).await;
    assert_eq!(outside.hosts(), Vec::<String>::new(), "nobody is asked about webhooks");

    let answer = server.call("POST", &format!("{MAPS}?fieldManager=me"), config_map("a")).await;
    assert_eq!(answer.code, 201, "{answer:?}");
    let labels = json!({"first": "1", "second": "after"});
    assert_eq!(answer.body["metadata"]["labels"], labels);
    assert_eq!(answer.body["data"], json!({"k": "v", "unknown": "kept"}));
    assert!(answer.body.get("nonsense").is_none(), "what the kind does not have is dropped");
    assert!(answer.warnings.iter().any(|w| w.contains("mind the gap")), "{answer:?}");
    let owned = answer.body["metadata"]["managedFields"].to_string();
    assert!(owned.contains("f:k") && !owned.contains("f:second"), "what webhooks add is nobody's: {owned}");
    let asked = outside.requests();
    let hosts: Vec<&str> = asked.iter().map(|(host, _)| host.as_str()).collect();
    assert_eq!(hosts, ["first", "second", "judge"]);
    let (first, judge) = (&asked[0].1, &asked[2].1);
    assert_eq!(
        (
            &first["operation"],
            &first["namespace"],
            &first["name"],
            &first["userInfo"]["username"],
            &first["dryRun"]
        ),
        (&json!("CREATE"), &json!("default"), &json!("a"), &json!("admin"), &json!(false))
    );
    assert_eq!(
        first["options"],
        json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me"})
    );
    assert!(first["object"]["metadata"].get("uid").is_none() && first["oldObject"].is_null());
    assert_eq!(judge["object"]["metadata"]["labels"], labels, "judged is what is about to be stored");
    assert!(judge["object"]["metadata"]["uid"].is_string());

    let bad = json!({"data": {"k": "bad"}});
    let answer = server.patch(&format!("{MAPS}/a"), "merge", bad).await;
    assert_eq!(answer.code, 403);
    assert_eq!(answer.body["reason"], "Forbidden");
    assert_eq!(
        answer.body["message"],
        "admission webhook \"judge.example.com\" denied the request: k is bad"
    );
    let judge = outside.requests().remove(2).1;
    assert_eq!((&judge["operation"], &judge["oldObject"]["data"]["k"]), (&json!("UPDATE"), &json!("v")));
    assert_eq!(server.get(&format!("{MAPS}/a")).await.body["data"]["k"], "v");

    let answer = server.call("DELETE", &format!("{MAPS}/a"), Value::Null).await;
    assert_eq!(answer.code, 500);
    let why = answer.body["message"].as_str().unwrap();
    assert!(
        why.contains("attempted to modify the object, which is not supported for this operation"),
        "{why}"
    );
    let (_, deletion) = outside.requests().remove(0);
    assert!(deletion["object"].is_null() && deletion["oldObject"]["metadata"]["name"] == "a");

    // Taken away, they are gone at once.
    for (sort, name) in [("Mutating", "a"), ("Mutating", "b"), ("Validating", "c")] {
        assert_eq!(server.call("DELETE", &format!("{}/{name}", path(sort)), Value::Null).await.code, 200);
    }
    assert_eq!(server.call("DELETE", &format!("{MAPS}/a"), Value::Null).await.code, 200);
    assert_eq!(outside.hosts(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn what_does_not_answer_fails_or_is_ignored() {
    let outside = Outside::new(|host, _| match host {
        "slow" => Box::pin(async {
            tokio::time::sleep(Duration::from_secs(100)).await;
            Ok(allow())
        }),
        _ => Box::pin(async { Err("connection refused".to_owned()) }),
    });
    let server = with(&outside).await;
    for (policy, sort) in
        [("Ignore", "Mutating"), ("Ignore", "Validating"), ("Fail", "Mutating"), ("Fail", "Validating")]
    {
        for (host, why) in [("away", "connection refused"), ("slow", "context deadline exceeded")] {
            let hook = webhook(host, json!({"failurePolicy": policy, "timeoutSeconds": 2}));
            configure(&server, sort, "a", &[hook]).await;
            let answer = server.call("POST", &format!("{MAPS}?dryRun=All"), config_map("a")).await;
            if policy == "Ignore" {
                assert_eq!(answer.code, 201, "{sort} {host} {answer:?}");
            } else {
                assert_eq!(
                    (answer.code, &answer.body["reason"]),
                    (500, &json!("InternalError")),
                    "{sort} {host}"
                );
                let expected = format!(
                    "Internal error occurred: failed calling webhook \"{host}.example.com\": failed to call webhook: Post \"https://{host}/ask?timeout=2s\": {why}"
                );
                assert_eq!(answer.body["message"], expected);
            }
            assert_eq!(outside.hosts(), [host]);
            server.call("DELETE", &format!("{}/a", path(sort)), Value::Null).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_changed_too_early_is_asked_again() {
    let outside = Outside::plain(|host, request| {
        let data = &request["object"]["data"];
        let count = data[host].as_str().map_or(0, |n| n.parse::<u32>().unwrap());
        let add =
            |n: u32| patch(json!([{"op": "add", "path": format!("/data/{host}"), "value": n.to_string()}]));
        Ok(match host {
            // Changes once.
            "late" if count == 0 => add(1),
            "late" => allow(),
            _ => add(count + 1),
        })
    });
    let server = with(&outside).await;
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    let hooks = [webhook("early", again.clone()), webhook("once", json!({})), webhook("late", again)];
    configure(&server, "Mutating", "a", &hooks).await;
    let answer = server.call("POST", MAPS, config_map("a")).await;
    assert_eq!(answer.code, 201, "{answer:?}");
    // In the second round the early one changes the object again, so the late one is asked, too. There is no third.
    assert_eq!(outside.hosts(), ["early", "once", "late", "early", "late"]);
    assert_eq!(answer.body["data"], json!({"k": "v", "early": "2", "once": "1", "late": "1"}));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_overtaken_is_asked_about_again() {
    let cell: Arc<Mutex<Option<karmada_apiserver::ApiServer>>> = Arc::default();
    let (reach, calls) = (cell.clone(), Mutex::new(0));
    let outside = Outside::new(move |_, _| {
        let first = {
            let mut calls = calls.lock();
            *calls += 1;
            *calls == 1
        };
        let api = reach.lock().clone().filter(|_| first);
        Box::pin(async move {
            if let Some(api) = api {
                // Nothing is held while a webhook is asked: it may write itself.
                let client = api.client(Server::admin(), "webhook");
                let request = http::Request::patch(format!("{MAPS}/a"))
                    .header("content-type", "application/merge-patch+json")
                    .body(json!({"data": {"other": "1"}}).to_string().into_bytes())
                    .unwrap();
                client.request::<Value>(request).await.unwrap();
            }
            Ok(allow())
        })
    });
    let server = with(&outside).await;
    server.call("POST", MAPS, config_map("a")).await;
    *cell.lock() = Some(server.api.clone());
    let only =
        json!([{"name": "by-admin", "expression": "has(object.data.mine) && !(has(oldObject.data.mine))"}]);
    configure(&server, "Validating", "a", &[webhook("judge", json!({"matchConditions": only}))]).await;
    let answer = server.patch(&format!("{MAPS}/a"), "merge", json!({"data": {"mine": "1"}})).await;
    assert_eq!(answer.code, 200, "{answer:?}");
    assert_eq!(answer.body["data"], json!({"k": "v", "mine": "1", "other": "1"}));
    assert_eq!(outside.hosts(), ["judge", "judge"]);
}

#[tokio::test(start_paused = true)]
async fn selectors_and_conditions_choose() {
    let outside = Outside::plain(|_, _| Ok(allow()));
    let server = with(&outside).await;
    let namespace = |name: &str, labels: Value| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    server.call("POST", "/api/v1/namespaces", namespace("watched", json!({"watched": "yes"}))).await;
    let by_namespace = json!({"namespaceSelector": {"matchLabels": {"watched": "yes"}}});
    let by_object = json!({"objectSelector": {"matchLabels": {"watched": "yes"}}});
    let everything = json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "scope": "*"}]);
    let mut namespaced = webhook("namespaced", by_namespace);
    namespaced["rules"] = everything;
    configure(&server, "Validating", "a", &[namespaced, webhook("object", by_object)]).await;
    let failing = json!([{"name": "c", "expression": "object.data.none == 'x'"}]);
    let conditional = |policy: &str| json!({"matchConditions": failing, "failurePolicy": policy});
    configure(&server, "Validating", "b", &[webhook("ignored", conditional("Ignore"))]).await;

    let labelled = |name: &str| {
        let mut map = config_map(name);
        map["metadata"]["labels"] = json!({"watched": "yes"});
        map
    };
    for (method, at, body, expected) in [
        ("POST", MAPS.to_owned(), config_map("a"), &[] as &[&str]),
        ("POST", MAPS.to_owned(), labelled("b"), &["object"]),
        ("DELETE", format!("{MAPS}/b"), Value::Null, &["object"]),
        ("POST", "/api/v1/namespaces/watched/configmaps".to_owned(), config_map("a"), &["namespaced"]),
        (
            "POST",
            "/api/v1/namespaces".to_owned(),
            namespace("new", json!({"watched": "yes"})),
            &["namespaced"],
        ),
        ("POST", "/api/v1/namespaces".to_owned(), namespace("other", json!({})), &[]),
        ("DELETE", "/api/v1/namespaces/watched/configmaps/a".to_owned(), Value::Null, &["namespaced"]),
    ] {
        let answer = server.call(method, &at, body).await;
        assert!(answer.code < 300, "{at} {answer:?}");
        let asked: Vec<String> = outside.hosts();
        // What the namespace controller does to a Namespace comes whenever it comes.
        assert_eq!(asked, expected, "{method} {at}");
    }
    server.call("DELETE", &format!("{}/b", path("Validating")), Value::Null).await;
    configure(&server, "Validating", "b", &[webhook("failing", conditional("Fail"))]).await;
    let answer = server.call("POST", MAPS, config_map("c")).await;
    assert_eq!(answer.code, 403);
    assert_eq!(
        answer.body["message"],
        "configmaps \"c\" is forbidden: expression 'object.data.none == 'x'' resulted in error: no such key: none"
    );
}

#[tokio::test(start_paused = true)]
async fn scales_and_other_versions_are_asked_about_as_what_they_are() {
    let outside = Outside::plain(|host, request| {
        Ok(match host {
            "scale" if request["subResource"] == "scale" => {
                patch(json!([{"op": "replace", "path": "/spec/replicas", "value": 2}]))
            }
            "version" => {
                patch(json!([{"op": "add", "path": "/spec/targetCPUUtilizationPercentage", "value": 55}]))
            }
            _ => allow(),
        })
    });
    let server = with(&outside).await;
    let rules = |group: &str, version: &str, resource: &str| json!({"rules": [{"operations": ["*"], "apiGroups": [group], "apiVersions": [version], "resources": [resource]}]});
    let hooks = [
        webhook("scale", rules("apps", "v1", "deployments/scale")),
        webhook("version", rules("autoscaling", "v1", "horizontalpodautoscalers")),
    ];
    configure(&server, "Mutating", "a", &hooks).await;
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "labels": {"a": "b"}},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}},
                 "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    assert_eq!(server.call("POST", deployments, deployment).await.code, 201);
    assert_eq!(outside.hosts(), Vec::<String>::new());
    let answer =
        server.patch(&format!("{deployments}/d/scale"), "merge", json!({"spec": {"replicas": 7}})).await;
    assert_eq!((answer.code, &answer.body["spec"]["replicas"]), (200, &json!(2)), "{answer:?}");
    assert_eq!(server.get(&format!("{deployments}/d")).await.body["spec"]["replicas"], 2);
    let (_, asked) = outside.requests().remove(0);
    assert_eq!(asked["kind"], json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
    assert_eq!(
        (&asked["object"]["kind"], &asked["object"]["spec"]["replicas"]),
        (&json!("Scale"), &json!(7))
    );
    assert_eq!(asked["oldObject"]["spec"]["replicas"], 1);

    let autoscaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}},
    });
    let answer = server
        .call("POST", "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", autoscaler)
        .await;
    assert_eq!(answer.code, 201, "{answer:?}");
    assert_eq!(answer.body["apiVersion"], "autoscaling/v2");
    assert_eq!(
        answer.body["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 55,
        "{answer:?}"
    );
    let (_, asked) = outside.requests().remove(0);
    assert_eq!((&asked["kind"]["version"], &asked["requestKind"]["version"]), (&json!("v1"), &json!("v2")));
    assert_eq!(asked["object"]["apiVersion"], "autoscaling/v1");
}

#[tokio::test(start_paused = true)]
async fn configurations_are_checked_and_defaulted() {
    let server = Server::start().await;
    let answer = server
        .call("POST", &path("Mutating"), configuration("Mutating", "ok", &[webhook("a", json!({}))]))
        .await;
    let hook = &answer.body["webhooks"][0];
    assert_eq!(
        (&hook["failurePolicy"], &hook["matchPolicy"], &hook["timeoutSeconds"], &hook["reinvocationPolicy"]),
        (&json!("Fail"), &json!("Equivalent"), &json!(10), &json!("Never")),
        "{answer:?}"
    );
    assert_eq!(hook["rules"][0]["scope"], "*");
    let condition = |expression: &str| json!({"matchConditions": [{"name": "c", "expression": expression}]});
    let rule = |resources: Value| json!({"rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": resources}]});
    for (more, expected) in [
        (
            json!({"name": "short"}),
            "webhooks[0].name: Invalid value: \"short\": should be a domain with at least three segments separated by dots",
        ),
        (
            json!({"timeoutSeconds": 31}),
            "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
        ),
        (
            json!({"sideEffects": "Some"}),
            "webhooks[0].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"",
        ),
        (
            json!({"failurePolicy": "Maybe"}),
            "webhooks[0].failurePolicy: Unsupported value: \"Maybe\": supported values: \"Fail\", \"Ignore\"",
        ),
        (
            json!({"clientConfig": {"url": "http://a"}}),
            "webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
        ),
        (
            json!({"clientConfig": {}}),
            "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
        ),
        (
            json!({"admissionReviewVersions": ["v2"]}),
            "webhooks[0].admissionReviewVersions: Invalid value: [\"v2\"]: must include at least one of v1, v1beta1",
        ),
        (
            rule(json!(["*/*", "pods"])),
            "webhooks[0].rules[0].resources: Invalid value: [\"*/*\",\"pods\"]: if '*/*' is present, must not specify other resources",
        ),
        (
            rule(json!(["pods/*", "pods/status"])),
            "webhooks[0].rules[0].resources[1]: Invalid value: \"pods/status\": if 'pods/*' is present, must not specify pods/status",
        ),
        (
            json!({"rules": [{"operations": ["LOOK"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]}),
            "webhooks[0].rules[0].operations[0]: Unsupported value: \"LOOK\": supported values: \"*\", \"CONNECT\", \"CREATE\", \"DELETE\", \"UPDATE\"",
        ),
        (
            condition("object.metadata.name"),
            "webhooks[0].matchConditions[0].expression: Invalid value: \"object.metadata.name\": must evaluate to bool",
        ),
        (condition("authorizer.serviceAccount('a', 'b') == null"), "undeclared reference to 'authorizer'"),
        (
            json!({"objectSelector": {"matchLabels": {"a": "b c"}}}),
            "webhooks[0].objectSelector.matchLabels: Invalid value: \"b c\"",
        ),
    ] {
        let answer = server
            .call("POST", &path("Validating"), configuration("Validating", "x", &[webhook("a", more)]))
            .await;
        assert_eq!(answer.code, 422, "{answer:?}");
        let message = answer.body["message"].as_str().unwrap();
        assert!(message.contains(expected), "{message}\n{expected}");
    }
    let twice = [webhook("a", json!({})), webhook("a", json!({}))];
    let answer = server.call("POST", &path("Mutating"), configuration("Mutating", "x", &twice)).await;
    assert!(
        answer.body["message"]
            .as_str()
            .unwrap()
            .contains("webhooks[1].name: Duplicate value: \"a.example.com\"")
    );

    // Nobody evaluates these, and whoever makes one is told.
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "p"}, "spec": {"failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]},
        "validations": [{"expression": "false"}]}});
    let answer = server
        .call("POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", policy)
        .await;
    assert_eq!(answer.code, 201, "{answer:?}");
    assert!(answer.warnings[0].contains("does not evaluate it"), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn services_and_nobody_to_ask_are_failures_that_say_so() {
    let server = Server::start().await;
    let service = json!({"clientConfig": {"service": {"namespace": "default", "name": "s"}}});
    configure(&server, "Validating", "a", &[webhook("a", service)]).await;
    let answer = server.call("POST", MAPS, config_map("a")).await;
    assert!(
        answer.body["message"].as_str().unwrap().ends_with("this API server has no way to call webhooks"),
        "{answer:?}"
    );
    let outside =
        Outside::plain(
            |host, _| if host == "s.default.svc" { Ok(allow()) } else { Err("where?".to_owned()) },
        );
    server.api.call_webhooks(outside.clone());
    let answer = server.call("POST", MAPS, config_map("a")).await;
    let why = answer.body["message"].as_str().unwrap();
    assert!(why.contains("service \"s\" not found") && why.contains("use clientConfig.url"), "{why}");
    let outlet = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"type": "ExternalName", "externalName": "out.example"}});
    server.call("POST", "/api/v1/namespaces/default/services", outlet).await;
    assert_eq!(server.call("POST", MAPS, config_map("a")).await.code, 201);
    assert_eq!(outside.hosts(), ["s.default.svc"]);
}

/// Reviews are made and answers are read where large work is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_objects_are_reviewed_beside_everybodys_work() {
    let outside = Outside::plain(|host, request| {
        Ok(match host {
            "adds" => patch(json!([{"op": "add", "path": "/data/large", "value": "y".repeat(32 << 10)}])),
            _ if request["object"]["data"]["k"] == "bad" => json!({"allowed": false}),
            _ => allow(),
        })
    });
    let server = with(&outside).await;
    let jobs = async |name: &str, value: &str| {
        let before = server.done_aside().await;
        let map = json!({"metadata": {"name": name}, "data": {"k": value}});
        assert_eq!(server.call("POST", MAPS, map).await.code, 201, "{name}");
        server.done_aside().await - before
    };
    let large = "x".repeat(64 << 10);
    assert_eq!(jobs("small", "x").await, 0.0);
    let alone = jobs("alone", &large).await;
    configure(&server, "Validating", "a", &[webhook("first", json!({})), webhook("second", json!({}))]).await;
    assert_eq!(jobs("judged", &large).await - alone, 2.0, "a review each");
    assert_eq!(jobs("small-and-judged", "x").await, 0.0);
    configure(&server, "Mutating", "a", &[webhook("adds", json!({}))]).await;
    // Whose fields they are before, a review, its long answer, what it says, the rules of this server anew, whether the webhook is
    // asked anew, whose they are after.
    assert_eq!(jobs("changed", &large).await - alone - 2.0, 7.0);

    // Conditions that take long are judged there, too, however small the object is, and others are not.
    for sort in ["Validating", "Mutating"] {
        assert_eq!(server.call("DELETE", &format!("{}/a", path(sort)), Value::Null).await.code, 200);
    }
    let digits = "[0,1,2,3,4,5,6,7,8,9]";
    let costly = ["a", "b", "c", "d"]
        .iter()
        .fold("a + b + c + d >= 0".to_owned(), |inner, name| format!("{digits}.all({name}, {inner})"));
    for (expression, aside) in [("object.data.k == 'x'", 0.0), (costly.as_str(), 1.0)] {
        let conditions = json!({"matchConditions": [{"name": "c", "expression": expression}]});
        configure(&server, "Validating", "a", &[webhook("first", conditions)]).await;
        outside.hosts();
        assert_eq!(jobs(&format!("conditions-{aside}"), "x").await, aside, "{expression}");
        assert_eq!(outside.hosts(), ["first"]);
        assert_eq!(server.call("DELETE", &format!("{}/a", path("Validating")), Value::Null).await.code, 200);
    }
}
