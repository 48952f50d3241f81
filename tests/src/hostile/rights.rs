//! What nobody but others may do or see, asked for in every way that there is.

use http::Method;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::{
    attack::{BREATH, Scene, Tally},
    client::{Ask, Identity, Wire},
    ground::{LEASES, MALLORY, People, cluster, works},
};

/// A request that has to be refused.
struct Refused {
    method: Method,
    path: String,
    kind: &'static str,
    headers: Vec<(&'static str, String)>,
    body: String,
    /// It may be answered as long as it has no effect: what a stock karmada-agent writes at every start.
    harmless: bool,
}

fn get(path: impl Into<String>) -> Refused {
    Refused {
        method: Method::GET,
        path: path.into(),
        kind: "",
        headers: Vec::new(),
        body: String::new(),
        harmless: false,
    }
}

fn send(method: Method, path: impl Into<String>, body: &Value) -> Refused {
    let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    Refused { method, path: path.into(), kind, headers: Vec::new(), body: body.to_string(), harmless: false }
}

impl Refused {
    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }
}

const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";
const COPY: &str = "/karmada-hub/store";

/// What an agent may not do. `other` is another's cluster.
fn agents(other: &str) -> Vec<Refused> {
    let (own, others) = (cluster(MALLORY), cluster(other));
    let secrets = "/api/v1/namespaces/karmada-cluster/secrets";
    let label = json!({ "metadata": { "labels": { "hostile": "yes" } } });
    let lease = |name: &str| json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": name }, "spec": {} });
    let named = |name: &str| {
        json!({ "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": { "name": name },
                "spec": { "syncMode": "Pull", "id": "stolen" } })
    };
    let event = |namespace: &str, kind: &str, of: &str, name: &str| {
        json!({ "apiVersion": "v1", "kind": "Event", "metadata": { "generateName": "e-", "namespace": namespace },
                "involvedObject": { "apiVersion": "cluster.karmada.io/v1alpha1", "kind": kind, "namespace": of, "name": name },
                "reason": "Hostile", "message": "it is not so", "type": "Warning" })
    };
    let (es, mine) = (works(other), works(MALLORY));
    let mut all = vec![
        // One object judged, another served.
        get(format!("{others}?watch=true&fieldSelector=metadata.name%3D{MALLORY}")),
        get(format!("{others}?fieldSelector=metadata.name%3D{MALLORY}")),
        get(format!(
            "{others}?watch=true&fieldSelector=metadata.name={MALLORY}&fieldSelector=metadata.name={other}"
        )),
        get(format!("{CLUSTERS}?watch=true&fieldSelector=metadata.name!={MALLORY}")),
        get(format!(
            "{CLUSTERS}?fieldSelector=metadata.name%3D{other}&fieldSelector=metadata.name%3D{MALLORY}"
        )),
        get(format!("{CLUSTERS}?watch=true&fieldSelector=metadata.name%3D{other}")),
        get(format!(
            "/apis/cluster.karmada.io/v1alpha1/watch/clusters/{other}?fieldSelector=metadata.name%3D{MALLORY}"
        )),
        get("/apis/cluster.karmada.io/v1alpha1/watch/clusters"),
        get(CLUSTERS),
        get(format!("{CLUSTERS}?watch=1")),
        get(format!("{CLUSTERS}?limit=500&watch=true&resourceVersion=0")),
        get(others.clone()),
        get(format!("{others}/status")),
        get(format!("{others}/proxy/api/v1/secrets")),
        // The path in other spellings.
        get(others.replace("site-", "site%2D")),
        get(format!("{CLUSTERS}/{MALLORY}/../{other}")),
        get(format!("{CLUSTERS}/{MALLORY}%2F..%2F{other}")),
        get(format!("{CLUSTERS}//{other}")),
        get(format!("{CLUSTERS}/{other}/")),
        get(format!("/apis/cluster.karmada.io/v1alpha1/namespaces/karmada-es-{MALLORY}/clusters/{other}")),
        get(format!("/apis/cluster.karmada.io/v1alpha1/namespaces/karmada-es-{MALLORY}/clusters")),
        get(es.clone()),
        get(format!("{es}?watch=true&fieldSelector=metadata.namespace%3Dkarmada-es-{MALLORY}")),
        get("/apis/work.karmada.io/v1alpha1/works?watch=true"),
        get(format!(
            "/apis/work.karmada.io/v1alpha1/works?fieldSelector=metadata.namespace%3Dkarmada-es-{MALLORY}"
        )),
        get(format!("{es}/kept")),
        get(format!("{es}/kept/status")),
        get(format!("{LEASES}/{other}")),
        get(format!("{LEASES}/{other}?fieldSelector=metadata.name%3D{MALLORY}")),
        get(LEASES),
        get(secrets),
        get(format!("{secrets}/{other}")),
        get(format!("{secrets}/{other}?watch=true&fieldSelector=metadata.name%3D{MALLORY}")),
        get(format!("{secrets}?fieldSelector=metadata.name%3D{MALLORY}&watch=true")),
        get("/api/v1/secrets"),
        get("/api/v1/namespaces/kube-system/secrets"),
        get("/api/v1/namespaces"),
        get(format!("/api/v1/namespaces/karmada-es-{other}")),
        get(format!("/api/v1/namespaces/karmada-es-{MALLORY}/secrets")),
        get(format!("/api/v1/namespaces/karmada-es-{MALLORY}/events")),
        get("/metrics"),
        get(COPY),
        get(format!("{COPY}/")),
        get(COPY).with("impersonate-user", "admin").with("impersonate-group", "system:masters"),
        get("/api/v1/secrets").with("impersonate-user", "admin").with("impersonate-group", "system:masters"),
        get("/readyz").with("impersonate-user", "admin"),
        get("/metrics")
            .with("impersonate-user", "system:monitoring")
            .with("impersonate-group", "system:monitoring"),
        get(others.clone()).with("impersonate-user", &format!("system:node:{other}")),
        get(others.clone()).with("impersonate-uid", "1"),
        // Writes to what is others'.
        send(Method::PATCH, &others, &label),
        send(
            Method::PATCH,
            format!("{others}/status"),
            &json!({ "status": { "kubernetesVersion": "hostile" } }),
        ),
        send(Method::PUT, &others, &named(other)),
        send(Method::PUT, &own, &named(other)),
        send(Method::POST, CLUSTERS, &named("another")),
        send(
            Method::POST,
            CLUSTERS,
            &json!({ "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": { "generateName": "another-" }, "spec": { "syncMode": "Pull" } }),
        ),
        send(Method::DELETE, &others, &json!({})),
        send(Method::DELETE, format!("{CLUSTERS}?fieldSelector=metadata.name%3D{MALLORY}"), &json!({})),
        send(Method::DELETE, CLUSTERS, &json!({})),
        send(Method::POST, &es, &super::ground::work("planted", "v")),
        send(Method::PATCH, format!("{es}/kept"), &label),
        send(Method::PATCH, format!("{es}/kept/status"), &json!({ "status": { "conditions": [] } })),
        send(Method::DELETE, format!("{es}/kept"), &json!({})),
        send(Method::DELETE, &mine, &json!({})),
        send(Method::POST, LEASES, &lease("another")),
        send(Method::PUT, format!("{LEASES}/{other}"), &lease(other)),
        send(Method::PATCH, format!("{LEASES}/{other}"), &json!({ "spec": { "holderIdentity": "hostile" } })),
        send(Method::PATCH, format!("{LEASES}/planted?fieldManager=m"), &lease("planted")),
        send(
            Method::POST,
            secrets,
            &json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": other } }),
        ),
        send(Method::PATCH, format!("{secrets}/{other}"), &label),
        send(
            Method::POST,
            "/api/v1/namespaces",
            &json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "planted" } }),
        ),
        send(Method::POST, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &json!({})),
        send(Method::POST, "/apis/config.karmada.io/v1alpha1/resourceinterpretercustomizations", &json!({})),
        send(Method::POST, "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", &json!({})),
        send(
            Method::POST,
            "/apis/authentication.k8s.io/v1/tokenreviews",
            &json!({ "spec": { "token": "t" } }),
        ),
        send(
            Method::POST,
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            &json!({ "spec": { "user": "admin" } }),
        ),
        // Events about what is not its own.
        send(Method::POST, "/api/v1/namespaces/default/events", &event("default", "Cluster", "", other)),
        send(
            Method::POST,
            "/api/v1/namespaces/default/events",
            &event("default", "Namespace", "", "kube-system"),
        ),
        send(
            Method::POST,
            format!("/api/v1/namespaces/karmada-es-{other}/events"),
            &event(&format!("karmada-es-{other}"), "Work", &format!("karmada-es-{other}"), "kept"),
        ),
        send(
            Method::POST,
            "/api/v1/namespaces/kube-system/events",
            &event("kube-system", "Cluster", "", MALLORY),
        ),
    ];
    // What decides where others' workloads go is the platform's.
    for wish in [
        label,
        json!({ "metadata": { "annotations": { "hostile": "yes" } } }),
        json!({ "metadata": { "finalizers": ["hostile.io/stays"] } }),
        json!({ "spec": { "taints": [{ "key": "hostile", "effect": "NoSchedule" }] } }),
        json!({ "spec": { "region": "hostile" } }),
        json!({ "spec": { "provider": "hostile" } }),
        json!({ "spec": { "zones": ["hostile"] } }),
        json!({ "spec": { "syncMode": "Push" } }),
    ] {
        let harmless = ["region", "provider", "zones"].iter().any(|field| wish["spec"].get(field).is_some());
        all.push(Refused { harmless, ..send(Method::PATCH, &own, &wish) });
    }
    all
}

/// What somebody without rights may not do.
fn anybodys(other: &str) -> Vec<Refused> {
    vec![
        get(CLUSTERS),
        get(cluster(other)),
        get(works(other)),
        get("/api/v1/secrets"),
        get("/api/v1/namespaces/karmada-cluster/secrets"),
        get("/apis/config.karmada.io/v1alpha1/resourceinterpretercustomizations"),
        get(COPY),
        get(COPY).with("impersonate-user", "admin").with("impersonate-group", "system:masters"),
        send(
            Method::POST,
            "/api/v1/namespaces/default/configmaps",
            &json!({ "metadata": { "name": "planted" } }),
        ),
        send(Method::POST, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &json!({})),
        send(Method::DELETE, cluster(other), &json!({})),
    ]
}

/// Asks for everything once. What is answered, and what is an error of the hub's own, is wrong.
pub(super) async fn all(scene: Scene) {
    let people = &scene.people;
    let other = people.agents.first().map_or("site-00", |(name, _)| name.as_str());
    let as_mallory = |refused: Refused| {
        refused
            .with("impersonate-user", &format!("system:node:{MALLORY}"))
            .with("impersonate-group", "system:karmada:agents")
    };
    while !scene.is_over() {
        ask(&scene, &people.mallory, agents(other)).await;
        ask(&scene, &people.user, anybodys(other).into_iter().chain([get("/metrics")]).collect()).await;
        ask(&scene, &people.monitor, anybodys(other)).await;
        ask(
            &scene,
            &people.stranger,
            anybodys(other).into_iter().chain([get("/metrics"), get("/apis")]).collect(),
        )
        .await;
        // An administrator who acts as somebody is that somebody, on every path.
        let acting = [get(COPY), get("/metrics"), get(cluster(other)), get("/api/v1/secrets")];
        ask(&scene, &people.admin, acting.into_iter().map(as_mallory).collect()).await;
        unharmed(people, &scene.tally, other).await;
        sleep(BREATH).await;
    }
}

async fn ask(scene: &Scene, who: &Identity, all: Vec<Refused>) {
    let Ok(Ok(wire)) = timeout(scene.left(), who.wire()).await else {
        return scene.tally.add("no connection");
    };
    for refused in all {
        if scene.is_over() {
            return;
        }
        let Some(code) = timeout(scene.left(), code(&wire, &refused)).await.ok().flatten() else {
            scene.tally.add("no answer");
            continue;
        };
        scene.tally.add(code.to_string());
        // Busy (429, 503, 504) is no answer to the question.
        if (code < 400 && !refused.harmless) || code == 500 {
            let Refused { method, path, headers, body, .. } = &refused;
            let acting = headers.iter().map(|(name, value)| format!(" {name}: {value}")).collect::<String>();
            let body: String = body.chars().take(120).collect();
            scene.tally.wrong(format!("{code} for {}: {method} {path}{acting} {body}", who.name()));
        }
    }
}

/// A watch that was let in has no end: the headers say enough.
async fn code(wire: &Wire, refused: &Refused) -> Option<u16> {
    let mut ask = Ask::by(refused.method.clone(), &refused.path, refused.kind, refused.body.clone());
    for (name, value) in &refused.headers {
        ask = ask.with(name, value.clone());
    }
    wire.open(ask).await.ok().map(|answer| answer.status().as_u16())
}

/// Whatever was answered: nothing of it may have had an effect.
async fn unharmed(people: &People, tally: &Tally, other: &str) {
    let see =
        async |path: String| people.admin.ask(Ask::get(&path)).await.map(|answer| answer.json().to_string());
    for path in
        [cluster(MALLORY), cluster(other), format!("{LEASES}/{other}"), format!("{}/kept", works(other))]
    {
        let Ok(text) = see(path.clone()).await else { continue };
        // It is also what these clients are called in managedFields.
        let text = text.replace("\"manager\":\"hostile\"", "");
        if let Some(at) = text.find("\"hostile\"").or_else(|| text.find("hostile.io/")) {
            let near: String = text.chars().skip(at.saturating_sub(60)).take(120).collect();
            tally.wrong(format!("{path} was changed: …{near}…"));
        }
    }
}
