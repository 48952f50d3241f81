//! The objects by which a kube-apiserver learns which webhooks there are.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use karmada_api::consts::{label, subject};
use karmada_client::{Backoff, Error, Patch, Policy, Rest};
use karmada_env::Env;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{AGENTS, MUTATE, PROTECTION, ReviewKey, VALIDATE, path};

/// The owner of what is registered.
const MANAGER: &str = "karmada-hub";
/// How often what is registered is put right; nobody but people changes it.
const REFRESH: Duration = Duration::from_secs(300);
/// Between attempts.
const RETRY: Policy = Policy::new(Duration::from_secs(1), Duration::from_secs(60));
/// How long the server waits for an answer. It is a function call away, on a network that is a cluster's.
const TIMEOUT_SECONDS: u32 = 3;

/// Where the server finds this hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// `https://host:port`.
    pub url: String,
    /// PEM of the authority for the hub's certificate.
    pub authority: String,
    /// What shows that a review comes from the server.
    pub key: ReviewKey,
}

const MUTATING: (&str, &str) = ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration");
const VALIDATING: (&str, &str) = ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration");

fn object_path((plural, _): (&str, &str), name: &str) -> String {
    format!("/apis/admissionregistration.k8s.io/v1/{plural}/{name}")
}

/// The kinds that Karmada has rules for: group, version, plural, kind.
fn kinds() -> Vec<[String; 4]> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let read = |crd: Value| {
        let spec = &crd["spec"];
        let names = &spec["names"];
        [&spec["group"], &spec["versions"][0]["name"], &names["plural"], &names["kind"]].map(text)
    };
    karmada_api::crd::own().into_iter().map(read).collect()
}

impl Registration {
    /// All objects, each with its path. `user` is who the hub is to the server: what it writes itself it has judged, and
    /// the server need not ask. If that is not known the kinds that the hub writes by the thousand are left out.
    fn objects(&self, user: Option<&str>) -> Vec<(String, Value)> {
        let hook = |name: String, at: &str, rules: Value| {
            json!({
                "name": name, "rules": rules,
                "clientConfig": {"url": format!("{}{at}/{}", self.url, self.key.0), "caBundle": STANDARD.encode(&self.authority)},
                "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Ignore",
                "matchPolicy": "Equivalent", "timeoutSeconds": TIMEOUT_SECONDS,
            })
        };
        let of_kinds = |prefix: &str| -> Vec<Value> {
            let mut hooks = Vec::new();
            for [group, version, plural, kind] in kinds() {
                let ours = group == "work.karmada.io";
                if ours && user.is_none() {
                    continue;
                }
                let rules = json!([{
                    "operations": ["CREATE", "UPDATE"], "apiGroups": [group], "apiVersions": [version],
                    "resources": [plural], "scope": "*",
                }]);
                let mut hook = hook(format!("{}.{group}", kind.to_lowercase()), &path(prefix, &kind), rules);
                if let Some(user) = user.filter(|_| ours) {
                    let other = format!("request.userInfo.username != {}", json!(user));
                    hook["matchConditions"] = json!([{"name": "not-the-hub", "expression": other}]);
                }
                hooks.push(hook);
            }
            hooks
        };
        let configuration = |of: (&str, &str), name: &str, webhooks: Vec<Value>| {
            let object = json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": of.1,
                "metadata": {"name": name, "labels": {label::SYSTEM: label::SYSTEM_VALUE}}, "webhooks": webhooks,
            });
            (object_path(of, name), object)
        };
        let deletions = |resources: &str| {
            json!([{"operations": ["DELETE"], "apiGroups": if resources == "*" { ["*"] } else { [""] },
                    "apiVersions": ["*"], "resources": [resources], "scope": "*"}])
        };
        let mut validating = of_kinds(VALIDATE);
        let mut namespaces =
            hook("executionnamespaces.karmada.io".to_owned(), PROTECTION, deletions("namespaces"));
        namespaces["objectSelector"] = json!({"matchLabels": {label::SYSTEM: label::SYSTEM_VALUE}});
        validating.push(namespaces);
        let mut protection =
            hook("resourcedeletionprotection.karmada.io".to_owned(), PROTECTION, deletions("*"));
        protection["failurePolicy"] = "Fail".into();
        protection["objectSelector"] =
            json!({"matchExpressions": [{"key": label::DELETION_PROTECTED, "operator": "Exists"}]});
        let mut objects = vec![
            configuration(MUTATING, NAME, of_kinds(MUTATE)),
            configuration(VALIDATING, NAME, validating),
            configuration(VALIDATING, PROTECTION_NAME, vec![protection]),
        ];
        // A server that does not know who the hub is knows no conditions either, and would ask about everybody.
        if user.is_some() {
            let rule = |group: &str, resource: &str, operations: &[&str]| {
                json!({"operations": operations, "apiGroups": [group], "apiVersions": ["*"], "resources": [resource],
                       "scope": "*"})
            };
            let rules = json!([
                rule("cluster.karmada.io", "clusters", &["CREATE", "UPDATE"]),
                rule("work.karmada.io", "works", &["CREATE", "UPDATE"]),
                rule("coordination.k8s.io", "leases", &["CREATE"]),
                rule("", "secrets", &["CREATE", "UPDATE"]),
                rule("", "events", &["CREATE"]),
                rule("events.k8s.io", "events", &["CREATE"]),
            ]);
            let mut agents = hook("agents.karmada.io".to_owned(), AGENTS, rules);
            agents["failurePolicy"] = "Fail".into();
            let is_agent = AGENT_USERS
                .map(|prefix| format!("request.userInfo.username.startsWith({})", json!(prefix)))
                .join(" || ");
            agents["matchConditions"] = json!([{"name": "agents", "expression": is_agent}]);
            objects.push(configuration(VALIDATING, AGENTS_NAME, vec![agents]));
        }
        objects
    }
}

/// What agents' user names begin with: see [`karmada_core::admit::agent::cluster_of_user`].
const AGENT_USERS: [&str; 2] = [subject::AGENT_PREFIX, "system:serviceaccount:karmada-system:karmada-agent-"];

/// The name of what is registered.
const NAME: &str = "karmada-hub";
/// The name of what keeps agents within their bounds; it stays when no hub runs.
const AGENTS_NAME: &str = "karmada-hub-agents";
/// The name of what stays when no hub runs.
const PROTECTION_NAME: &str = "karmada-hub-deletion-protection";

/// Keeps a hub registered as long as it is polled.
pub(crate) async fn keep(registration: &Registration, rest: &Rest, env: &Env) {
    let mut backoff = Backoff::new(RETRY);
    loop {
        let pause = match register(registration, rest).await {
            Ok(()) => {
                if backoff.failures() > 0 {
                    tracing::info!("registered the admission webhooks");
                }
                backoff.reset();
                REFRESH
            }
            Err(error) => {
                if backoff.failures() == 0 {
                    tracing::warn!(
                        %error,
                        "cannot register the admission webhooks: users hear of errors in conditions only. The rights \
                         for it are in manifests/hub"
                    );
                }
                backoff.next(env)
            }
        };
        sleep(pause).await;
    }
}

async fn register(registration: &Registration, rest: &Rest) -> Result<(), Error> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let user = match rest.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await {
        Ok(review) => review.pointer("/status/userInfo/username").and_then(Value::as_str).map(str::to_owned),
        // Servers before 1.28.
        Err(error) if error.status().is_some() => None,
        Err(error) => return Err(error),
    };
    for (path, object) in registration.objects(user.as_deref()) {
        rest.patch(&format!("{path}?fieldManager={MANAGER}&force=true"), Patch::Apply, &object).await?;
    }
    Ok(())
}

/// Takes back what would only cost time while no hub answers. The protection against deletion stays.
pub(crate) async fn withdraw(rest: &Rest) -> Result<(), Error> {
    for of in [MUTATING, VALIDATING] {
        match rest.delete(&object_path(of, NAME), &json!({})).await {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_registered_and_only_protection_fails() {
        let key = ReviewKey("k1".into());
        let registration = Registration { url: "https://hub:6443".into(), authority: "PEM".into(), key };
        let objects = registration.objects(Some("system:karmada:hub"));
        let hooks = |at: usize| objects[at].1["webhooks"].as_array().expect("webhooks");
        let find = |at: usize, name: &str| {
            hooks(at).iter().find(|hook| hook["name"] == name).cloned().unwrap_or_default()
        };
        assert_eq!(hooks(0).len(), karmada_api::crd::own().len());
        let works = find(0, "work.work.karmada.io");
        assert_eq!(works["clientConfig"]["url"], "https://hub:6443/mutate-work/k1");
        let other = "request.userInfo.username != \"system:karmada:hub\"";
        assert_eq!(works["matchConditions"][0]["expression"], other);
        let policies = find(1, "propagationpolicy.policy.karmada.io");
        assert_eq!(policies["rules"][0]["resources"], json!(["propagationpolicies"]));
        assert!(hooks(0).iter().chain(hooks(1)).all(|hook| hook["failurePolicy"] == "Ignore"));
        assert_eq!(hooks(2)[0]["failurePolicy"], "Fail");
        assert_eq!(hooks(3)[0]["failurePolicy"], "Fail");
        let only = hooks(3)[0]["matchConditions"][0]["expression"].as_str().expect("only for agents");
        assert!(AGENT_USERS.iter().all(|user| only.contains(user)), "{only}");

        let objects = registration.objects(None);
        let named = |name: &str| {
            objects[0].1["webhooks"].as_array().expect("webhooks").iter().any(|h| h["name"] == name)
        };
        assert!(!named("work.work.karmada.io") && named("propagationpolicy.policy.karmada.io"));
        assert_eq!(objects.len(), 3, "agents cannot be told from others there");
    }
}
