//! Services that answer questions about objects: which one is asked, what it is asked, what its answer means.
//!
//! ```text
//!   object, question ─▶ Hooks ─▶ Hook ─▶ ResourceInterpreterContext{request} ─▶ Caller ─▶ the network
//!                                    what is wanted ◀─ Response ◀─ ResourceInterpreterContext{response}
//! ```
//!
//! Nothing here knows a network: a [`Caller`] does, which the hub and the agent hand in.

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod validate;

use std::{collections::BTreeMap, fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use karmada_api::{
    config::webhook::{ResourceInterpreterWebhook, RuleWithOperations, WebhookClientConfig},
    work::{Component, ReplicaRequirements},
};
use karmada_meta::{gvk::GroupVersionKind, object};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{DependentObjectReference, rules::Operation};

pub use validate::validate;

/// The group and version of questions and answers.
const API_VERSION: &str = "config.karmada.io/v1alpha1";
/// The version of questions that we ask.
pub(crate) const CONTEXT_VERSION: &str = "v1alpha1";
/// How long a service may take that says nothing of it.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest that a service may ask for.
const LONGEST: Duration = Duration::from_secs(30);

/// One service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// The configuration's name.
    pub configuration: String,
    /// The webhook's name.
    pub name: String,
    /// Where it is.
    pub client: WebhookClientConfig,
    /// How long it may take.
    pub timeout: Duration,
    versions: Vec<String>,
    rules: Vec<RuleWithOperations>,
}

impl Hook {
    fn new(configuration: &str, webhook: ResourceInterpreterWebhook) -> Self {
        let asked = webhook.timeout_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let timeout = asked.filter(|seconds| *seconds > 0).map_or(TIMEOUT, Duration::from_secs);
        Self {
            configuration: configuration.to_owned(),
            name: webhook.name,
            client: webhook.client_config,
            timeout: timeout.min(LONGEST),
            versions: webhook.interpreter_context_versions,
            rules: webhook.rules,
        }
    }

    /// Whether it answers some question about a kind.
    pub fn concerns(&self, kind: &GroupVersionKind) -> bool {
        self.rules.iter().any(|rule| of_kind(rule, kind) && !rule.operations.is_empty())
    }

    fn answers(&self, kind: &GroupVersionKind, operation: Operation) -> bool {
        // Services that answer everything are older than this question, and do not know it.
        let asked = |rule: &RuleWithOperations| match operation {
            Operation::InterpretComponent => rule.operations.iter().any(|o| o == operation.as_str()),
            _ => has(&rule.operations, operation.as_str()),
        };
        self.rules.iter().any(|rule| of_kind(rule, kind) && asked(rule))
    }

    /// Where it is, for people.
    pub fn address(&self) -> String {
        match (&self.client.service, &self.client.url) {
            (Some(service), _) => format!(
                "https://{}.{}.svc:{}/{}",
                service.name,
                service.namespace,
                service.port.unwrap_or(443),
                service.path.as_deref().unwrap_or_default().trim_start_matches('/')
            ),
            (None, Some(url)) => url.clone(),
            (None, None) => "nowhere".to_owned(),
        }
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "webhook {} of {} at {}", self.name, self.configuration, self.address())
    }
}

fn has(words: &[String], word: &str) -> bool {
    words.iter().any(|w| w == "*" || w == word)
}

fn of_kind(rule: &RuleWithOperations, kind: &GroupVersionKind) -> bool {
    has(&rule.api_groups, &kind.group)
        && has(&rule.api_versions, &kind.version)
        && has(&rule.kinds, &kind.kind)
}

/// All services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hooks(Vec<Arc<Hook>>);

impl Hooks {
    /// The services of configurations, by their names. Of several that answer a question the first one counts, by
    /// configuration, webhook and place.
    pub fn new(configurations: impl IntoIterator<Item = (String, Vec<ResourceInterpreterWebhook>)>) -> Self {
        let sorted: BTreeMap<String, _> = configurations.into_iter().collect();
        let mut hooks = Vec::new();
        for (configuration, mut webhooks) in sorted {
            webhooks.sort_by(|a, b| a.name.cmp(&b.name));
            hooks.extend(webhooks.into_iter().map(|webhook| Arc::new(Hook::new(&configuration, webhook))));
        }
        Self(hooks)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The service that answers a question about an object.
    pub fn of(&self, object: &Value, operation: Operation) -> Option<&Arc<Hook>> {
        // Most processes have none, and are asked very often.
        if self.0.is_empty() {
            return None;
        }
        let kind = GroupVersionKind::from_api_version(object::api_version(object), object::kind(object))?;
        self.0.iter().find(|hook| hook.answers(&kind, operation))
    }

    /// Whether other services answer for a kind than in `before`.
    pub fn differ_for(&self, before: &Self, kind: &GroupVersionKind) -> bool {
        let of = |hooks: &Self| -> Vec<Arc<Hook>> {
            hooks.0.iter().filter(|hook| hook.concerns(kind)).cloned().collect()
        };
        self != before && of(self) != of(before)
    }
}

/// Why a service gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It cannot be reached from here, or not in time: somebody else may reach it.
    #[error("{0}")]
    Unreachable(String),
    /// It was reached, and what it said is no answer.
    #[error("{0}")]
    Failed(String),
}

/// A call that is under way.
pub type Call<'a> = Pin<Box<dyn Future<Output = Result<Value, CallError>> + Send + 'a>>;

/// Carries a question to a service and the answer back, both as JSON. Bounded by the hook's timeout.
pub trait Caller: fmt::Debug + Send + Sync {
    /// Asks a service.
    fn call<'a>(&'a self, hook: &'a Hook, question: &'a Value) -> Call<'a>;
}

/// What a question holds beside the object.
#[derive(Clone, Debug, Default)]
pub(crate) struct More {
    pub(crate) observed: Option<Value>,
    pub(crate) replicas: Option<i64>,
    pub(crate) reports: Option<Value>,
}

/// A question as it is sent.
pub(crate) fn question(
    hook: &Hook,
    uid: &str,
    operation: Operation,
    object: &Value,
    more: More,
) -> Result<Value, String> {
    if !hook.versions.iter().any(|version| version == CONTEXT_VERSION) {
        return Err(format!(
            "it does not accept known ResourceInterpreterContext versions ({CONTEXT_VERSION})"
        ));
    }
    let gvk = GroupVersionKind::from_api_version(object::api_version(object), object::kind(object))
        .ok_or_else(|| format!("the object's apiVersion {:?} is not one", object::api_version(object)))?;
    let mut request = json!({
        "uid": uid,
        "kind": {"group": gvk.group, "version": gvk.version, "kind": gvk.kind},
        "name": object::name(object),
        "operation": operation.as_str(),
        "object": object,
    });
    if !object::namespace(object).is_empty() {
        request["namespace"] = object::namespace(object).into();
    }
    if let Some(observed) = more.observed {
        request["observedObject"] = observed;
    }
    // Karmada sends zero with the other questions; services in Go cannot tell that from none.
    request["replicas"] = more.replicas.unwrap_or_default().into();
    if let Some(reports) = more.reports {
        request["aggregatedStatus"] = reports;
    }
    Ok(json!({"apiVersion": API_VERSION, "kind": "ResourceInterpreterContext", "request": request}))
}

#[derive(Deserialize)]
struct Context {
    #[serde(default)]
    response: Option<Response>,
}

/// What a service answered.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Response {
    uid: String,
    successful: bool,
    status: Option<ResponseStatus>,
    patch: Option<String>,
    patch_type: Option<String>,
    pub(crate) replicas: Option<i64>,
    pub(crate) replica_requirements: Option<ReplicaRequirements>,
    pub(crate) components: Option<Vec<Component>>,
    pub(crate) dependencies: Option<Vec<DependentObjectReference>>,
    pub(crate) raw_status: Option<Value>,
    pub(crate) healthy: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ResponseStatus {
    message: String,
    code: i32,
}

impl Response {
    /// Reads an answer to the question of a uid. What its operation needs is there.
    pub(crate) fn read(answer: Value, uid: &str, operation: Operation) -> Result<Self, String> {
        let context: Context =
            serde_json::from_value(answer).map_err(|error| format!("its answer: {error}"))?;
        let response = context.response.ok_or("its answer has no response")?;
        if response.uid != uid {
            return Err(format!("expected response.uid {uid:?}, got {:?}", response.uid));
        }
        if !response.successful {
            let status =
                response.status.ok_or("response.status is missing though response.successful is false")?;
            return Err(format!("it answered with status code {}: {}", status.code, status.message));
        }
        let missing = match operation {
            Operation::InterpretReplica => response.replicas.is_none().then_some("replicas"),
            Operation::InterpretStatus => response.raw_status.is_none().then_some("rawStatus"),
            Operation::InterpretHealth => response.healthy.is_none().then_some("healthy"),
            _ => None,
        };
        match missing {
            Some(field) => Err(format!("response.{field} is missing")),
            None => Ok(response),
        }
    }

    /// The object as the answer's patch leaves it; the same without a patch.
    pub(crate) fn patched(&self, object: &Value) -> Result<Value, String> {
        let patch = self.patch.as_deref().filter(|patch| !patch.is_empty());
        let (patch, kind) = match (patch, self.patch_type.as_deref()) {
            (None, None) => return Ok(object.clone()),
            (None, Some(_)) => return Err("response.patch is empty".to_owned()),
            (Some(_), None) => return Err("response.patchType is missing".to_owned()),
            (Some(patch), Some(kind)) => (patch, kind),
        };
        if kind != "JSONPatch" {
            return Err(format!("response.patchType {kind:?} is not JSONPatch"));
        }
        let text =
            STANDARD.decode(patch).map_err(|error| format!("response.patch is not base64: {error}"))?;
        let patch: Value =
            serde_json::from_slice(&text).map_err(|error| format!("response.patch: {error}"))?;
        karmada_smd::json_patch(object, &patch).map_err(|error| format!("response.patch: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hooks(rules: &Value) -> Hooks {
        let webhooks = json!([
            {"name": "b.example.com", "clientConfig": {"url": "https://b"}, "interpreterContextVersions": ["v1alpha1"],
             "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "kinds": ["*"]}]},
            {"name": "a.example.com", "clientConfig": {"service": {"namespace": "n", "name": "s", "path": "/p"}},
             "interpreterContextVersions": ["v2", "v1alpha1"], "timeoutSeconds": 90, "rules": rules},
        ]);
        Hooks::new([("c".to_owned(), serde_json::from_value(webhooks).expect("the webhooks of a test"))])
    }

    #[test]
    fn the_first_by_name_that_is_asked_counts() {
        let hooks = hooks(&json!([
            {"operations": ["Retain", "InterpretComponent"], "apiGroups": ["example.com"], "apiVersions": ["v1"], "kinds": ["Thing"]},
        ]));
        let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing"});
        let of = |object: &Value, operation| hooks.of(object, operation).map(|hook| hook.name.clone());
        assert_eq!(of(&thing, Operation::Retain).as_deref(), Some("a.example.com"));
        assert_eq!(of(&thing, Operation::InterpretHealth).as_deref(), Some("b.example.com"));
        assert_eq!(of(&thing, Operation::InterpretComponent).as_deref(), Some("a.example.com"));
        let pod = json!({"apiVersion": "v1", "kind": "Pod"});
        assert_eq!(of(&pod, Operation::Retain).as_deref(), Some("b.example.com"));
        assert_eq!(
            of(&pod, Operation::InterpretComponent),
            None,
            "not asked of those that answer everything"
        );
        let hook = hooks.of(&thing, Operation::Retain).expect("a hook");
        assert_eq!(hook.to_string(), "webhook a.example.com of c at https://s.n.svc:443/p");
        assert_eq!(hook.timeout, LONGEST);
        let kind = GroupVersionKind::from_api_version("example.com/v1", "Thing").expect("a kind");
        assert!(hooks.differ_for(&Hooks::default(), &kind) && !hooks.differ_for(&hooks, &kind));
    }

    #[test]
    fn an_answer_holds_what_its_question_needs() {
        let read = |operation, mut response: Value| {
            response["uid"] = "u".into();
            Response::read(json!({"response": response}), "u", operation).map(|_| ())
        };
        for (operation, response, expected) in [
            (Operation::InterpretReplica, json!({"successful": true, "replicas": 0}), ""),
            (Operation::InterpretReplica, json!({"successful": true}), "response.replicas is missing"),
            (Operation::InterpretStatus, json!({"successful": true}), "response.rawStatus is missing"),
            (Operation::InterpretHealth, json!({"successful": true}), "response.healthy is missing"),
            (Operation::Retain, json!({"successful": true}), ""),
            (
                Operation::Retain,
                json!({"successful": false}),
                "response.status is missing though response.successful is false",
            ),
            (
                Operation::Retain,
                json!({"successful": false, "status": {"code": 404, "message": "no such"}}),
                "it answered with status code 404: no such",
            ),
        ] {
            assert_eq!(read(operation, response).err().unwrap_or_default(), expected);
        }
        let other = json!({"response": {"uid": "v", "successful": true}});
        let error = Response::read(other, "u", Operation::Retain).expect_err("another uid");
        assert_eq!(error, "expected response.uid \"u\", got \"v\"");
        let error = Response::read(json!({}), "u", Operation::Retain).expect_err("nothing");
        assert_eq!(error, "its answer has no response");
    }

    #[test]
    fn a_patch_is_applied_or_refused() {
        let object = json!({"kind": "Thing", "spec": {"size": 1}});
        let patched = |patch: Option<&str>, kind: Option<&str>| {
            let response = Response {
                patch: patch.map(|patch| STANDARD.encode(patch)),
                patch_type: kind.map(str::to_owned),
                ..Response::default()
            };
            response.patched(&object).map(|object| object["spec"]["size"].clone())
        };
        let set = r#"[{"op":"replace","path":"/spec/size","value":3}]"#;
        assert_eq!(patched(Some(set), Some("JSONPatch")), Ok(json!(3)));
        assert_eq!(patched(None, None), Ok(json!(1)));
        assert_eq!(patched(Some(set), None), Err("response.patchType is missing".to_owned()));
        assert_eq!(patched(None, Some("JSONPatch")), Err("response.patch is empty".to_owned()));
        let kind = patched(Some(set), Some("Merge")).expect_err("another kind of patch");
        assert_eq!(kind, "response.patchType \"Merge\" is not JSONPatch");
        let wrong = r#"[{"op":"remove","path":"/spec/none"}]"#;
        assert!(patched(Some(wrong), Some("JSONPatch")).is_err());
    }
}
