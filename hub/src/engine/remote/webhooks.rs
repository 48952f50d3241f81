//! Admission webhooks: what the embedded API tells users at once, told to the users of a stock kube-apiserver.
//!
//! ```text
//!   kubectl ─▶ kube-apiserver ─▶ AdmissionReview ─▶ the hub's listener: /mutate-KIND, /validate-KIND ─▶ core::admit
//!                    ▲
//!                    └── Mutating- and ValidatingWebhookConfiguration ◀── register: the hub that leads
//! ```
//!
//! What is judged by what else there is (ids of other clusters, quotas, whether a policy selects anything) is read from the
//! server meanwhile, and told by the same rules as the embedded API's.
//!
//! Nothing relies on them: controllers pass what they find and make through the same rules. So the server goes on without
//! them while no hub answers (`failurePolicy: Ignore`); users then hear of errors later, in conditions. One is different:
//! the protection of labelled objects against deletion, which nobody could make good afterwards. While no hub answers such
//! an object cannot be deleted, unless its label is taken off first.
//!
//! The same holds for what an agent may not write ([`karmada_core::admit::agent`]), where RBAC does not reach: fields of its
//! Cluster and its Works, and the name of what it creates. Servers before 1.28 cannot tell agents from others before they
//! ask, so there agents are judged only while a hub answers.
//!
//! Every hub answers, whether it leads or not; the one that leads says where, and takes that back when it ends in order.
//! The protection stays behind for the next hub. Somebody who stops using hubs on a server has to delete its
//! ValidatingWebhookConfigurations `karmada-hub-deletion-protection` and `karmada-hub-agents`.

mod present;
mod register;

use std::fmt;

use axum::body::Body;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{Method, Request, Response, StatusCode};
use karmada_api::{
    KarmadaKind,
    config::{
        ResourceInterpreterCustomization, ResourceInterpreterCustomizationSpec,
        webhook::ResourceInterpreterWebhookConfiguration,
    },
};
use karmada_apiserver::{heavy, paths, pki::Pki};
use karmada_client::Rest;
use karmada_core::{
    admit::{self, agent},
    delete, names,
};
use karmada_env::Env;
use karmada_interpreter::rules;
use karmada_meta::{
    object,
    path::{FieldError, Path, aggregate},
};
use karmada_objects::kinds::{CLUSTERS, RESOURCE_INTERPRETER_CUSTOMIZATIONS};
use serde::Deserialize;
use serde_json::{Value, json};

pub use register::Registration;
pub(crate) use register::{keep, withdraw};

use crate::{rules::hooks, write::checks};

/// The path that judges what agents write, and nothing else.
const AGENTS: &str = "/validate-agents";
/// The path that protects labelled objects.
const PROTECTION: &str = "/validate-resourcedeletionprotection";
/// What the paths begin with.
const MUTATE: &str = "/mutate-";
const VALIDATE: &str = "/validate-";
/// The largest review: two objects of what a server takes, and room for what is around them.
pub const REVIEW_LIMIT: usize = 8 << 20;

/// What stands at the end of a review's path, after a slash: known to the hub and to the server that it has registered with.
/// A kube-apiserver shows its webhooks nothing of itself unless it is told to, and strangers must neither have bodies read
/// here nor take the room for those that the server sends. Whoever learns it may ask for judgements, as before there was
/// one, and no more than a quarter of the room from one address.
#[derive(Clone, PartialEq, Eq)]
pub struct ReviewKey(String);

impl ReviewKey {
    /// That of the hub's own authority, which hubs that stand for each other share.
    pub fn of(pki: &Pki) -> Self {
        Self(pki.secret("admission reviews"))
    }

    /// Whether a path ends with it. How long it takes does not tell how much of it was right.
    pub fn is_in(&self, path: &str) -> bool {
        let shown = path.rsplit_once('/').map_or("", |(_, key)| key).as_bytes();
        let differs = |(a, b): (&u8, &u8)| a ^ b;
        shown.len() == self.0.len()
            && shown.iter().zip(self.0.as_bytes()).map(differs).fold(0, |a, b| a | b) == 0
    }
}

impl fmt::Debug for ReviewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReviewKey")
    }
}

/// The path for a kind, as Karmada's webhooks have them.
fn path(prefix: &str, kind: &str) -> String {
    format!("{prefix}{}", kind.to_lowercase())
}

/// Judges reviews.
#[derive(Clone, Debug)]
pub struct Judge {
    rest: Rest,
    env: Env,
}

/// What is said of a request.
#[derive(Debug, Default)]
struct Verdict {
    /// Code, reason and message of a refusal.
    refused: Option<(u16, &'static str, String)>,
    warnings: Vec<String>,
    patch: Option<json_patch::Patch>,
}

impl Judge {
    /// Judges by what there is on the server that `rest` reaches.
    pub fn new(rest: Rest, env: Env) -> Self {
        Self { rest, env }
    }

    /// Answers an AdmissionReview that came to a path.
    async fn review(&self, path: &str, review: &Value) -> Result<Value, String> {
        let version = review["apiVersion"].as_str().unwrap_or_default();
        if version != "admission.k8s.io/v1" || review["kind"] != "AdmissionReview" {
            return Err(format!("an AdmissionReview of admission.k8s.io/v1 is wanted, not {version:?}"));
        }
        let request = &review["request"];
        let uid = request["uid"].as_str().ok_or("the review has no request.uid")?;
        let verdict = if path == AGENTS {
            let refused = refusal_of_agent(request, &mut request["object"].clone());
            Verdict { refused, ..Verdict::default() }
        } else if request["operation"] == "DELETE" {
            self.deletion(request).await
        } else if path.starts_with(MUTATE) {
            self.mutate(request)?
        } else {
            self.validate(request).await
        };
        let mut response = json!({"uid": uid, "allowed": verdict.refused.is_none()});
        if let Some((code, reason, message)) = verdict.refused {
            response["status"] =
                json!({"status": "Failure", "code": code, "reason": reason, "message": message});
        }
        if !verdict.warnings.is_empty() {
            response["warnings"] = json!(verdict.warnings);
        }
        if let Some(patch) = verdict.patch {
            let patch = serde_json::to_vec(&patch).map_err(|error| error.to_string())?;
            response["patch"] = STANDARD.encode(patch).into();
            response["patchType"] = "JSONPatch".into();
        }
        Ok(json!({"apiVersion": version, "kind": "AdmissionReview", "response": response}))
    }

    /// Sets defaults, ids and stamps. What is wrong with the object is said when it is validated.
    fn mutate(&self, request: &Value) -> Result<Verdict, String> {
        let before = &request["object"];
        if !before.is_object() {
            return Err("the review has no request.object".to_owned());
        }
        let mut after = before.clone();
        let Ok(warnings) = by_agent(request, &mut after) else { return Ok(Verdict::default()) };
        if self.admitted(request, &mut after).is_err() || after == *before {
            return Ok(Verdict { warnings, ..Verdict::default() });
        }
        Ok(Verdict { patch: Some(json_patch::diff(before, &after)), warnings, ..Verdict::default() })
    }

    async fn validate(&self, request: &Value) -> Verdict {
        let mut object = request["object"].clone();
        let refused = refusal_of_agent(request, &mut object.clone());
        let mut verdict = Verdict { refused, ..Verdict::default() };
        if verdict.refused.is_some() {
            return verdict;
        }
        let errors = match self.admitted(request, &mut object) {
            Ok(warnings) => {
                verdict.warnings = warnings;
                self.rules(request, &object).await
            }
            Err(errors) => errors,
        };
        if !errors.is_empty() {
            verdict.refused = Some((422, "Invalid", aggregate(&errors)));
            return verdict;
        }
        let beside = present::Beside { rest: &self.rest, request, object: &object };
        verdict.refused = beside.refusal().await;
        if verdict.refused.is_none() {
            verdict.warnings.extend(beside.idle_policy().await);
        }
        verdict
    }

    fn admitted(&self, request: &Value, object: &mut Value) -> Result<Vec<String>, Vec<FieldError>> {
        let text = |field: &str| request["kind"][field].as_str().unwrap_or_default();
        let old = (request["operation"] == "UPDATE").then(|| &request["oldObject"]);
        checks::user(text("group"), text("kind"), old, object, &self.env)
    }

    /// What is wrong with users' rules for what fields mean.
    async fn rules(&self, request: &Value, object: &Value) -> Vec<FieldError> {
        let is =
            |group: &str, kind: &str| request["kind"]["group"] == group && request["kind"]["kind"] == kind;
        type Script = ResourceInterpreterCustomization;
        type Service = ResourceInterpreterWebhookConfiguration;
        if object::deletion_timestamp(object).is_some() {
            return Vec::new();
        }
        if is(Service::GROUP, Service::KIND) {
            return hooks::check(object);
        }
        if !is(Script::GROUP, Script::KIND) || request["oldObject"]["spec"] == object["spec"] {
            return Vec::new();
        }
        let spec = match ResourceInterpreterCustomizationSpec::deserialize(&object["spec"]) {
            Ok(spec) => spec,
            Err(error) => {
                return vec![FieldError::invalid(&Path::new("spec"), Value::Null, error.to_string())];
            }
        };
        // If they cannot be had, two that answer the same question are told of later.
        let listed = self.rest.get(&RESOURCE_INTERPRETER_CUSTOMIZATIONS.collection(None)).await.ok();
        let listed = listed.as_ref().and_then(|list| list["items"].as_array()).into_iter().flatten();
        let others: Vec<_> = listed
            .filter_map(|other| {
                let spec = ResourceInterpreterCustomizationSpec::deserialize(&other["spec"]).ok()?;
                Some((object::name(other).to_owned(), spec))
            })
            .collect();
        let others = others.iter().map(|(name, spec)| (name.as_str(), spec));
        rules::validate(object::name(object), &spec, others, &self.env)
    }

    async fn deletion(&self, request: &Value) -> Verdict {
        let object = &request["oldObject"];
        let mut why = admit::refuse_deletion(object);
        if why.is_none() && request["kind"]["kind"] == "Namespace" && request["kind"]["group"] == "" {
            let namespace = request["name"].as_str().unwrap_or_default();
            let lives = match names::cluster_of_namespace(namespace) {
                Some(cluster) => {
                    let live = self.rest.get(&CLUSTERS.object(None, cluster)).await;
                    live.is_ok_and(|cluster| object::deletion_timestamp(&cluster).is_none())
                }
                None => false,
            };
            // The namespace of all clusters does not have the label by which the server asks.
            why = delete::refuse_namespace_deletion(namespace, |_| lives, || false);
        }
        Verdict { refused: why.map(|why| (403, "Forbidden", why)), ..Verdict::default() }
    }
}

/// The cluster whose agent asks.
fn agent_of(request: &Value) -> Option<&str> {
    let user = &request["userInfo"];
    let groups: Vec<&str> =
        user["groups"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    agent::cluster_of_user(user["username"].as_str().unwrap_or_default(), &groups)
}

/// Judges what an agent writes, and puts back what is not its to change.
fn by_agent(request: &Value, object: &mut Value) -> Result<Vec<String>, Vec<FieldError>> {
    let text = |value: &'_ Value| value.as_str().unwrap_or_default().to_owned();
    let Some(cluster) = agent_of(request) else { return Ok(Vec::new()) };
    let (update, kind) = (request["operation"] == "UPDATE", &request["kind"]);
    let write = agent::Write {
        cluster,
        act: if update { agent::Act::Update } else { agent::Act::Create },
        kind: &format!("{}/{}", text(&kind["group"]), text(&kind["kind"])),
        subresource: &text(&request["subResource"]),
        namespace: &text(&request["namespace"]),
        old: update.then(|| &request["oldObject"]),
        uid: None,
        // There agents have no right to tell events about templates.
        has_template: false,
    };
    agent::judge(&write, object)
}

/// Why an agent may not write an object as it is to be stored. What would have to be put back is refused: that is for the
/// webhook that changes objects, which was not asked.
fn refusal_of_agent(request: &Value, object: &mut Value) -> Option<(u16, &'static str, String)> {
    let why = match by_agent(request, object) {
        Ok(kept) if kept.is_empty() => return None,
        Ok(kept) => kept.join("; "),
        Err(errors) => aggregate(&errors),
    };
    Some((403, "Forbidden", format!("an agent may not write this: {why}")))
}

/// What the paths of reviews begin with.
pub const PREFIXES: [&str; 2] = [MUTATE, VALIDATE];
/// How a review is asked for.
pub const METHODS: &[Method] = &[Method::POST];

/// Whether a path is one of reviews.
pub fn is_review(path: &str) -> bool {
    PREFIXES.iter().any(|prefix| path.starts_with(prefix))
}

impl Judge {
    /// Answers the request of an API server.
    pub async fn answer(&self, request: Request<Body>) -> Response<Body> {
        // What comes after it has been judged.
        let at = request.uri().path().get(1..).and_then(|path| path.split('/').next()).unwrap_or_default();
        let at = format!("/{at}");
        let judged = async {
            let text = axum::body::to_bytes(request.into_body(), REVIEW_LIMIT)
                .await
                .map_err(|error| error.to_string())?;
            // The gate bounds how many there are.
            heavy::beside(text.len(), async {
                let review: Value = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
                self.review(&at, &review).await
            })
            .await
        };
        match judged.await {
            Ok(review) => paths::text(StatusCode::OK, "application/json", review.to_string()),
            Err(why) => paths::text(StatusCode::BAD_REQUEST, "text/plain; charset=utf-8", format!("{why}\n")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use karmada_api::consts::finalizer;

    use super::*;

    async fn ask(path: &str, request: Value) -> (u16, Value) {
        // A server that has nothing.
        let service = tower::service_fn(|_: Request<kube::client::Body>| async {
            let status = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": "none"});
            let body = kube::client::Body::from(status.to_string().into_bytes());
            Ok::<_, Infallible>(Response::builder().status(404).body(body).unwrap())
        });
        let rest = Rest::new(kube::Client::new(service, "default"));
        let judge = Judge::new(rest, Env::system());
        let review =
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
        let request = Request::post(path).body(Body::from(review.to_string())).unwrap();
        let answer = judge.answer(request).await;
        let code = answer.status().as_u16();
        let text = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        (code, serde_json::from_slice(&text).unwrap_or_default())
    }

    fn policy(spec: &Value) -> Value {
        json!({
            "uid": "u", "operation": "CREATE", "namespace": "default", "name": "p",
            "kind": {"group": "policy.karmada.io", "version": "v1alpha1", "kind": "PropagationPolicy"},
            "object": {"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
                       "metadata": {"name": "p", "namespace": "default"}, "spec": spec},
        })
    }

    #[tokio::test]
    async fn defaults_come_as_a_patch_and_errors_as_refusals() {
        let selectors = json!([{"apiVersion": "v1", "kind": "ConfigMap"}]);
        let good = policy(&json!({"resourceSelectors": selectors}));
        let (code, answer) = ask("/mutate-propagationpolicy", good.clone()).await;
        assert_eq!(
            (code, &answer["response"]["uid"], &answer["response"]["allowed"]),
            (200, &json!("u"), &json!(true))
        );
        let patch = STANDARD.decode(answer["response"]["patch"].as_str().unwrap()).unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
        let mut object = good["object"].clone();
        json_patch::patch(&mut object, &patch).unwrap();
        assert!(!object["metadata"]["labels"]["propagationpolicy.karmada.io/permanent-id"].is_null());
        assert_eq!(object["spec"]["resourceSelectors"][0]["namespace"], "default");

        let mut patched = good.clone();
        patched["object"] = object;
        let (_, answer) = ask("/validate-propagationpolicy", patched.clone()).await;
        assert_eq!(answer["response"]["allowed"], true);
        let (_, answer) = ask("/mutate-propagationpolicy", patched).await;
        assert!(answer["response"]["patch"].is_null(), "nothing is left to do: {answer}");

        let bad = policy(&json!({
            "resourceSelectors": selectors,
            "placement": {"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 3, "maxGroups": 2}]},
        }));
        let (_, answer) = ask("/mutate-propagationpolicy", bad.clone()).await;
        assert_eq!(answer["response"]["allowed"], true, "that is for validation to say");
        let (_, answer) = ask("/validate-propagationpolicy", bad).await;
        let status = &answer["response"]["status"];
        assert_eq!((&answer["response"]["allowed"], &status["code"]), (&json!(false), &json!(422)));
        assert!(status["message"].as_str().unwrap().contains("spec.placement.spreadConstraints"), "{status}");
    }

    #[tokio::test]
    async fn agents_are_judged_as_on_the_embedded_api() {
        let cluster = |region: &str, labels: Value| {
            json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "m1", "labels": labels},
                   "spec": {"id": "u", "syncMode": "Pull", "region": region}})
        };
        let by = |user: &str, old: &Value, new: &Value| {
            json!({
                "uid": "u", "operation": if old.is_null() { "CREATE" } else { "UPDATE" }, "name": "m1",
                "kind": {"group": "cluster.karmada.io", "version": "v1alpha1", "kind": "Cluster"},
                "userInfo": {"username": user, "groups": ["system:karmada:agents"]}, "object": new, "oldObject": old,
            })
        };
        let agent = "system:serviceaccount:karmada-system:karmada-agent-m1";
        let old = cluster("eu", json!({}));
        for path in [AGENTS, "/validate-cluster"] {
            for (user, old, new, code) in [
                (agent, &old, cluster("eu", json!({})), None),
                (agent, &old, cluster("eu", json!({"tier": "gold"})), Some(403)),
                // What the other webhook would have put back.
                (agent, &old, cluster("us", json!({})), Some(403)),
                ("system:karmada:agent:m1", &old, cluster("eu", json!({"tier": "gold"})), Some(403)),
                ("somebody", &old, cluster("us", json!({"tier": "gold"})), None),
                (agent, &Value::Null, cluster("eu", json!({})), None),
                ("system:karmada:agent:m2", &Value::Null, cluster("eu", json!({})), Some(403)),
            ] {
                let (_, answer) = ask(path, by(user, old, &new)).await;
                let refused = answer["response"]["status"]["code"].as_u64();
                assert_eq!(refused, code, "{path} {user} {new}: {answer}");
            }
        }
        let (_, answer) = ask("/mutate-cluster", by(agent, &old, &cluster("us", json!({})))).await;
        let patch = STANDARD.decode(answer["response"]["patch"].as_str().expect("a patch")).expect("base64");
        let patch: json_patch::Patch = serde_json::from_slice(&patch).expect("a patch");
        let mut object = cluster("us", json!({}));
        json_patch::patch(&mut object, &patch).expect("it applies");
        assert_eq!(object["spec"]["region"], "eu");
        assert!(
            answer["response"]["warnings"][0].as_str().is_some_and(|w| w.contains("spec.region")),
            "{answer}"
        );
    }

    #[tokio::test]
    async fn a_new_cluster_is_not_deleted_before_the_controllers_have_seen_it() {
        let user = json!({"username": "system:karmada:agent:m1", "groups": ["system:karmada:agents"]});
        let cluster = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "m1"},
                             "spec": {"id": "u", "syncMode": "Pull"}});
        let request = |object: &Value| {
            json!({"uid": "u", "operation": "CREATE", "name": "m1", "userInfo": user, "object": object, "oldObject": null,
                   "kind": {"group": "cluster.karmada.io", "version": "v1alpha1", "kind": "Cluster"}})
        };
        let (_, answer) = ask("/mutate-cluster", request(&cluster)).await;
        let patch = STANDARD.decode(answer["response"]["patch"].as_str().expect("a patch")).expect("base64");
        let patch: json_patch::Patch = serde_json::from_slice(&patch).expect("a patch");
        let mut object = cluster.clone();
        json_patch::patch(&mut object, &patch).expect("it applies");
        assert_eq!(object::finalizers(&object), [finalizer::CLUSTER]);
        // It is the hub's, not the agent's, though the agent's request bears it by now.
        for path in ["/validate-cluster", AGENTS] {
            let (_, answer) = ask(path, request(&object)).await;
            assert_eq!(answer["response"]["allowed"], true, "{path}: {answer}");
        }
    }

    #[tokio::test]
    async fn labelled_objects_are_protected() {
        let request = |labels: Value| {
            json!({"uid": "u", "operation": "DELETE", "name": "c", "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
                   "object": null, "oldObject": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "labels": labels}}})
        };
        let label = json!({"resourcetemplate.karmada.io/deletion-protected": "Always"});
        let (_, answer) = ask(PROTECTION, request(label)).await;
        assert_eq!(answer["response"]["status"]["code"], 403);
        let (_, answer) = ask(PROTECTION, request(json!({}))).await;
        assert_eq!(answer["response"]["allowed"], true);
    }

    #[tokio::test]
    async fn what_is_no_review_is_refused_and_other_paths_are_not_ours() {
        assert!(is_review("/mutate-work") && is_review(PROTECTION) && !is_review("/healthz"));
        let (code, _) = ask("/mutate-work", json!({"operation": "CREATE"})).await;
        assert_eq!(code, 400);
    }
}
