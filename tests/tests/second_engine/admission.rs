//! The hub's admission webhooks, called by the server: what users hear at once, and what remains while no hub answers.

use karmada_api::consts::extension;
use karmada_client::{Error, Patch, Rest};
use karmada_tests::{
    samples::{binding_path, condition_of, config_map_policy, policy_path},
    wait::{END, PATIENCE, eventually, gone, until},
};
use serde_json::{Value, json};

use crate::stock::{Hub, Stock};

const NAMESPACE: &str = "default";
const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";
const PERMANENT_ID: &str = "propagationpolicy.karmada.io/permanent-id";

fn configuration(sort: &str) -> String {
    format!("{REGISTRATION}/{sort}webhookconfigurations/karmada-hub")
}

fn protection() -> String {
    format!("{}-deletion-protection", configuration("validating"))
}

/// Waits until a hub has registered itself.
async fn registered(api: &Rest) -> Value {
    until(api, &configuration("validating"), "registered", PATIENCE, |_| true).await;
    until(api, &protection(), "registered", PATIENCE, |_| true).await
}

/// Takes the hub's webhooks out, as an administrator might. It sees to that again after some minutes only.
pub(crate) async fn taken_out(api: &Rest) {
    registered(api).await;
    for path in [configuration("mutating"), configuration("validating"), protection()] {
        api.delete(&path, &json!({})).await.expect("an administrator may");
    }
}

fn policies() -> String {
    policy_path(NAMESPACE, "propagationpolicies", "").trim_end_matches('/').to_owned()
}

/// Whether the answer to a write of a policy has what the hub fills in.
async fn is_filled_in(api: &Rest, name: &str) -> bool {
    let answer = api.post(&policies(), &config_map_policy(name, &[])).await.expect("a good policy");
    answer["metadata"]["labels"][PERMANENT_ID].is_string()
        && answer["spec"]["resourceSelectors"][0]["namespace"] == NAMESPACE
}

fn bad_policy() -> Value {
    let mut policy = config_map_policy("bad", &[]);
    policy["spec"]["placement"]["spreadConstraints"] =
        json!([{"spreadByField": "cluster", "minGroups": 3, "maxGroups": 2}]);
    policy
}

fn said(outcome: Result<Value, Error>) -> (u16, String) {
    let error = outcome.expect_err("it is refused");
    let status = error.status().cloned().unwrap_or_else(|| panic!("not the server's answer: {error}"));
    (status.code, status.message)
}

/// A ConfigMap that may not be deleted.
async fn keep(api: &Rest, name: &str) -> String {
    let label = json!({"resourcetemplate.karmada.io/deletion-protected": "Always"});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": label}});
    let collection = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    api.post(&collection, &map).await.expect("a ConfigMap");
    format!("{collection}/{name}")
}

#[tokio::test]
async fn users_hear_of_errors_at_once() {
    let stock = Stock::start(false).await;
    let api = &stock.api;
    let mut hub = stock.hub("hub", &[]).await;
    hub.ready().await;
    registered(api).await;

    assert!(is_filled_in(api, "one").await, "the answer itself has the defaults");
    let (code, message) = said(api.post(&policies(), &bad_policy()).await);
    assert_eq!(code, 422, "{message}");
    assert!(
        message.starts_with("admission webhook \"propagationpolicy.policy.karmada.io\" denied the request: ")
            && message.contains("spec.placement.spreadConstraints"),
        "{message}"
    );
    let at = format!("{}/one", policies());
    let change = json!({"spec": {"placement": bad_policy()["spec"]["placement"]}});
    let (code, _) = said(api.patch(&at, Patch::Merge, &change).await);
    assert_eq!(code, 422, "also where it is changed");
    let dry = format!("{}?dryRun=All", policies());
    let tried = api.post(&dry, &config_map_policy("dry", &[])).await.expect("tried");
    assert!(tried["metadata"]["labels"][PERMANENT_ID].is_string(), "also where nothing is stored: {tried}");

    // Annotations of ours.
    for (annotation, value) in [(extension::FENCE_AFTER, "5s"), (extension::FAILBACK_AFTER, "soon")] {
        let mut policy = config_map_policy("annotated", &[]);
        policy["metadata"]["annotations"] = json!({ annotation: value });
        let (code, message) = said(api.post(&policies(), &policy).await);
        assert_eq!(code, 422, "{message}");
        let field = format!("metadata.annotations[{annotation}]: Invalid value: \"{value}\": ");
        assert!(message.contains(&field), "{message}");
    }
    // Templates are of any kind, and not looked at: the binding says what does not hold.
    let mut template = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "fenced"}});
    template["metadata"]["annotations"] = json!({extension::FENCE_AFTER: "soon"});
    let maps = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    api.post(&maps, &template).await.expect("nobody looks at it");
    let mut policy = config_map_policy("fenced", &[]);
    policy["metadata"]["annotations"] = json!({extension::FENCE_AFTER: "2m"});
    api.post(&policies(), &policy).await.expect("a good policy");
    let binding = binding_path(NAMESPACE, "fenced-configmap");
    let understood = |b: &Value| condition_of(b, extension::ANNOTATIONS_UNDERSTOOD).cloned();
    let told = until(api, &binding, "that says so", PATIENCE, |b| understood(b).is_some()).await;
    let told = understood(&told).expect("found just before");
    let message = told["message"].as_str().expect("a message");
    assert_eq!((&told["status"], &told["reason"]), (&json!("False"), &json!(extension::INVALID_ANNOTATION)));
    for part in ["template: metadata.annotations[", "\"soon\" is not a duration", "the policy's 2m holds"] {
        assert!(message.contains(part), "{message}");
    }
    let mend = json!({"metadata": {"annotations": {extension::FENCE_AFTER: "3m"}}});
    api.patch(&format!("{maps}/fenced"), Patch::Merge, &mend).await.expect("it is mended");
    let mended =
        |b: &Value| understood(b).is_none() && b["metadata"]["annotations"][extension::FENCE_AFTER] == "3m";
    until(api, &binding, "mended", PATIENCE, mended).await;

    // What the hub needs to stay.
    let cluster = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "m"},
        "spec": {"syncMode": "Pull"},
    });
    api.post("/apis/cluster.karmada.io/v1alpha1/clusters", &cluster).await.expect("a cluster");
    let execution = "/api/v1/namespaces/karmada-es-m";
    until(api, execution, "there", PATIENCE, |_| true).await;
    let (code, message) = said(api.delete(execution, &json!({})).await);
    assert_eq!(code, 403, "{message}");
    let kept = keep(api, "kept").await;
    let (code, message) = said(api.delete(&kept, &json!({})).await);
    assert_eq!(code, 403, "{message}");

    // Without a hub everything goes on but the deletion of what is protected.
    hub.process.kill();
    assert!(!is_filled_in(api, "two").await, "nobody fills it in");
    api.post(&policies(), &bad_policy()).await.expect("nobody refuses it");
    let (code, message) = said(api.delete(&kept, &json!({})).await);
    assert_eq!(code, 500, "{message}");
    assert!(
        message.starts_with(
            "Internal error occurred: failed calling webhook \"resourcedeletionprotection.karmada.io\": "
        ),
        "{message}"
    );
    let unprotected =
        json!({"metadata": {"labels": {"resourcetemplate.karmada.io/deletion-protected": null}}});
    api.patch(&kept, Patch::Merge, &unprotected).await.expect("the label goes");
    api.delete(&kept, &json!({})).await.expect("and then the object");

    // It comes back with another certificate of the same authority, and with another authority.
    let pki = stock.dir.path().join("hub/pki");
    std::fs::remove_file(pki.join("serving.pem")).expect("the certificate");
    hub.process.spawn().expect("it starts again");
    hub.ready().await;
    // The hub has the policy filled in that nobody looked at, too.
    until(api, &format!("{}/two", policies()), "filled in", PATIENCE, |p| {
        p["metadata"]["labels"][PERMANENT_ID].is_string()
    })
    .await;
    assert!(is_filled_in(api, "three").await);
    let before = registered(api).await;
    hub.process.kill();
    std::fs::remove_dir_all(&pki).expect("the authority");
    let authority = |configuration: &Value| configuration["webhooks"][0]["clientConfig"]["caBundle"].clone();
    hub.process.spawn().expect("it starts again");
    eventually("the new authority to be registered", PATIENCE, || async {
        let now = api.get(&configuration("mutating")).await.map_err(|e| e.to_string())?;
        if authority(&now) != authority(&before) { Ok(()) } else { Err("it is the old one".to_owned()) }
    })
    .await;
    assert!(is_filled_in(api, "four").await);

    // A hub that ends in order takes back what would only cost time.
    let again = keep(api, "again").await;
    let status = hub.process.terminate(END).await.expect("it ends");
    assert_eq!(status.code(), Some(0), "{}", hub.log());
    for sort in ["mutating", "validating"] {
        gone(api, &configuration(sort), PATIENCE).await;
    }
    assert!(!is_filled_in(api, "five").await);
    let (code, _) = said(api.delete(&again, &json!({})).await);
    assert_eq!(code, 500, "protection stays");
    // Whoever gives the hub up takes that away, too, and nothing is left that asks anybody.
    api.delete(&protection(), &json!({})).await.expect("the protection");
    api.delete(&again, &json!({})).await.expect("nobody is asked");
}

#[tokio::test]
async fn what_leads_to_a_hub_stays_behind_when_it_moves() {
    let stock = Stock::start(false).await;
    let hub = stock.hub("hub", &[]).await;
    hub.ready().await;
    registered(&stock.api).await;
    let theirs = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "theirs"},
        "webhooks": [{
            "name": "theirs.example.com", "clientConfig": {"url": "https://hooks.example/ask"}, "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
            "rules": [{"operations": ["*"], "apiGroups": ["example.com"], "apiVersions": ["*"], "resources": ["*"]}],
        }],
    });
    stock
        .api
        .post(&format!("{REGISTRATION}/validatingwebhookconfigurations"), &theirs)
        .await
        .expect("theirs");
    let output = crate::run(&["export", "--kubeconfig", &stock.kubeconfig.display().to_string()]);
    assert!(output.status.success(), "{output:?}");
    let dump = String::from_utf8_lossy(&output.stdout);
    let objects: Vec<Value> = serde_saphyr::from_multiple(&dump).expect("YAML");
    let names: Vec<&str> = objects
        .iter()
        .filter(|object| object["kind"].as_str().is_some_and(|kind| kind.ends_with("WebhookConfiguration")))
        .filter_map(|object| object["metadata"]["name"].as_str())
        .collect();
    assert_eq!(names, ["theirs"]);
    let _: &Hub = &hub;
}
