//! A hub on an API server that is not its own, with the rights in `manifests/hub` and no more: whom it lets in there, and what
//! they may do as long as their Clusters are there. The server signs nothing, and judges agents by their roles alone where
//! they are asked about without their group.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{Method, Request};
use karmada_apiserver::{ApiServer, Registration, authn::UserInfo, open_store};
use karmada_client::Rest;
use karmada_env::Env;
use karmada_hub::{Hub, HubConfig, HubError};
use karmada_store::engine::memory::Memory;
use kube::client::Body;
use rcgen::{CertificateParams, DnType, KeyPair, SanType};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::common::Paused;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const TOKENS: &str = "/api/v1/namespaces/kube-system/secrets";
const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const AGENTS: &str = "system:karmada:agents";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// Under paused time this costs nothing.
const SOON: Duration = Duration::from_secs(30);

struct Stock {
    env: Env,
    server: ApiServer,
    admin: Rest,
    gate: Gate,
    stop: CancellationToken,
    hub: JoinHandle<Result<(), HubError>>,
    hub_stop: CancellationToken,
}

/// Holds back the roles that the hub makes for agents while it is shut.
#[derive(Clone, Default)]
struct Gate {
    shut: Arc<watch::Sender<bool>>,
    held: Arc<watch::Sender<u32>>,
}

impl Gate {
    fn before(&self, client: kube::Client) -> kube::Client {
        let gate = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, gate) = (client.clone(), gate.clone());
            async move {
                let path = request.uri().path();
                let makes = request.method() == Method::POST
                    && ["/roles", "/clusterroles"].iter().any(|end| path.ends_with(end));
                if makes && *gate.shut.borrow() {
                    gate.held.send_modify(|held| *held += 1);
                    gate.shut.subscribe().wait_for(|shut| !shut).await.expect("it is kept");
                }
                client.send(request).await
            }
        });
        kube::Client::new(service, "default")
    }
}

/// A hub that runs, and what ends it.
async fn hub(
    server: &ApiServer,
    env: Env,
    gate: &Gate,
    stop: &CancellationToken,
) -> (JoinHandle<Result<(), HubError>>, CancellationToken) {
    let stop = stop.child_token();
    let client = gate.before(server.client(UserInfo::new("the-hub", [""; 0]), "karmada-hub"));
    let hub = Hub::new(HubConfig::default(), client, env).expect("a good configuration");
    let hub = hub.approving_agents();
    let mut ready = hub.ready();
    let hub = tokio::spawn(hub.run(stop.clone()));
    timeout(SOON, ready.wait_for(|ready| *ready)).await.expect("in time").expect("it runs");
    (hub, stop)
}

/// The documents of a manifest.
fn manifest(name: &str) -> Vec<Value> {
    let path = format!("{}/../manifests/hub/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_saphyr::from_multiple(&std::fs::read_to_string(path).expect("a manifest")).expect("YAML")
}

/// Where an object of a manifest is made.
fn collection(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap().to_lowercase();
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{RBAC}/namespaces/{namespace}/{kind}s"),
        None => format!("{RBAC}/{kind}s"),
    }
}

impl Stock {
    async fn start() -> Self {
        let (env, stop) = (Env::seeded(Paused(Instant::now()), 5), CancellationToken::new());
        let store = open_store(Memory::new(), &env).expect("a memory engine opens");
        let registration = Registration { crds: karmada_api::crds(), ..Registration::default() };
        let server = ApiServer::new(store, env.clone(), registration, stop.clone());
        server.start().await;
        let admin = Rest::new(server.client(UserInfo::new("admin", ["system:masters"]), "kubectl"));
        for name in ["karmada-system", "karmada-cluster"] {
            admin
                .post("/api/v1/namespaces", &json!({"metadata": {"name": name}}))
                .await
                .expect("a namespace");
        }
        for object in manifest("clusterrole.yaml").into_iter().chain(manifest("join-rbac.yaml")) {
            admin.post(&collection(&object), &object).await.expect("it is taken");
        }
        for (kind, role, place) in [
            ("clusterrolebindings", "karmada-hub", ""),
            ("rolebindings", "karmada-hub-system", "/namespaces/karmada-system"),
        ] {
            let group = "rbac.authorization.k8s.io";
            let binding = json!({"metadata": {"name": "hub"},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": group, "kind": "User", "name": "the-hub"}]});
            admin.post(&format!("{RBAC}{place}/{kind}"), &binding).await.expect("a binding");
        }
        let gate = Gate::default();
        let (hub, hub_stop) = hub(&server, env.clone(), &gate, &stop).await;
        Self { env, server, admin, gate, stop, hub, hub_stop }
    }

    fn by(&self, user: &str, groups: &[&str]) -> Rest {
        Rest::new(self.server.client(UserInfo::new(user, groups.iter().copied()), "machine"))
    }

    fn joiner(&self, id: &str) -> Rest {
        self.by(&format!("system:bootstrap:{id}"), &["system:bootstrappers"])
    }

    fn agent(&self, cluster: &str) -> Rest {
        self.by(&format!("system:karmada:agent:{cluster}"), &[AGENTS])
    }

    async fn token(&self, id: &str, groups: &str, annotations: Value) {
        let until = karmada_meta::time::Time::from_system(self.env.wall() + Duration::from_secs(86_400));
        let secret = json!({"metadata": {"name": format!("bootstrap-token-{id}"), "annotations": annotations},
            "type": "bootstrap.kubernetes.io/token",
            "stringData": {"token-id": id, "token-secret": "0123456789abcdef", "expiration": until.to_string(),
                "usage-bootstrap-authentication": "true", "auth-extra-groups": groups}});
        self.admin.post(TOKENS, &secret).await.expect("a token");
    }

    /// Asks, and waits for what is decided: type and message of the condition.
    async fn asks(&self, by: &Rest, name: &str, request: &str) -> (String, String) {
        by.post(REQUESTS, &body(name, request, CLIENT)).await.expect("it is taken");
        self.until(name, || async {
            let made = self.admin.get(&format!("{REQUESTS}/{name}")).await.expect("it is there");
            let condition = made.pointer("/status/conditions/0")?;
            assert!(made.pointer("/status/certificate").is_none(), "nobody signs here: {made}");
            let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
            assert!(!text("reason").is_empty() && condition["status"] == "True", "{made}");
            Some((text("type"), text("message")))
        })
        .await
    }

    /// Asks, and sees that nobody decides.
    async fn waits(&self, by: &Rest, name: &str, request: &str, signer: &str) {
        by.post(REQUESTS, &body(name, request, signer)).await.expect("it is taken");
        sleep(SOON).await;
        let made = self.admin.get(&format!("{REQUESTS}/{name}")).await.expect("it is there");
        assert!(made.pointer("/status/conditions").is_none(), "{made}");
    }

    async fn until<T, F: Future<Output = Option<T>>>(&self, what: &str, find: impl Fn() -> F) -> T {
        let found = async {
            loop {
                if let Some(found) = find().await {
                    return found;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(SOON * 4, found).await.unwrap_or_else(|_| panic!("not in time: {what}"))
    }

    /// Whether RBAC lets the user of an agent do something, as a kube-apiserver would say that knows no agents.
    async fn may(
        &self,
        cluster: &str,
        verb: &str,
        group: &str,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> bool {
        let review = json!({"spec": {"user": format!("system:karmada:agent:{cluster}"),
            "resourceAttributes": {"verb": verb, "group": group, "resource": resource, "namespace": namespace, "name": name}}});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let answer = self.admin.post(path, &review).await.expect("a review");
        answer["status"]["allowed"] == true
    }

    async fn works(&self, cluster: &str) -> bool {
        self.may(cluster, "list", "work.karmada.io", "works", &format!("karmada-es-{cluster}"), "").await
    }

    /// What an agent does when it has its certificate.
    async fn registers(&self, name: &str) {
        let cluster = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
            "spec": {"id": name, "syncMode": "Pull"}});
        self.admin.post(CLUSTERS, &cluster).await.expect("it registers");
        let path = format!("{CLUSTERS}/{name}");
        let status = json!({"status": {"kubernetesVersion": "v1.36.2"}});
        self.admin
            .patch(&format!("{path}/status"), karmada_client::Patch::Merge, &status)
            .await
            .expect("it reports");
        self.until("the hub's care", || async {
            let live = self.admin.get(&path).await.ok()?;
            live["metadata"]["finalizers"].as_array().filter(|all| !all.is_empty()).map(drop)
        })
        .await;
    }

    async fn leaves(&self, name: &str) {
        let path = format!("{CLUSTERS}/{name}");
        self.admin.delete(&path, &json!({})).await.expect("it is there");
        self.until("its end", || async { self.admin.get(&path).await.is_err().then_some(()) }).await;
    }

    /// Signs a request that was approved, as kube-controller-manager does, and waits until the hub has seen that; the digest.
    async fn signed(&self, name: &str) -> String {
        let certificate = CertificateParams::default().self_signed(&KeyPair::generate().unwrap()).unwrap();
        let path = format!("{REQUESTS}/{name}");
        let mut made = self.admin.get(&path).await.expect("it is there");
        made["status"]["certificate"] = STANDARD.encode(certificate.pem()).into();
        self.admin.put(&format!("{path}/status"), &made).await.expect("it is signed");
        sleep(SOON).await;
        Sha256::digest(certificate.der()).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The agent of a cluster by one of its certificates.
    fn by_certificate(&self, cluster: &str, digest: &str) -> Rest {
        let mut user = UserInfo::new(format!("system:karmada:agent:{cluster}"), [AGENTS]);
        let id = "authentication.kubernetes.io/credential-id".to_owned();
        user.extra.insert(id, vec![format!("X509SHA256={digest}")]);
        Rest::new(self.server.client(user, "machine"))
    }

    /// Ends the hub, and lets the server run.
    async fn stop_hub(&mut self) {
        self.hub_stop.cancel();
        let hub = timeout(SOON, &mut self.hub).await.expect("in time");
        hub.expect("without a panic").expect("without an error");
    }

    /// Another hub.
    async fn start_hub(&mut self) {
        let env = self.env.clone();
        (self.hub, self.hub_stop) = hub(&self.server, env, &self.gate, &self.stop).await;
    }

    /// That nothing is left of what an agent was given, nor of its token.
    async fn has_lost_all(&self, cluster: &str, token: &str) {
        self.until("the end of its rights", || async {
            let may = self.works(cluster).await
                || self.may(cluster, "create", "cluster.karmada.io", "clusters", "", "").await;
            (!may).then_some(())
        })
        .await;
        let (sort, said) = self.asks(&self.joiner(token), &format!("{cluster}-later"), &of(cluster)).await;
        assert!(sort == "Denied" && said.contains("expired"), "{said}");
    }

    async fn stop(self) {
        self.stop.cancel();
        timeout(SOON, self.hub).await.expect("in time").expect("without a panic").expect("without an error");
    }
}

fn body(name: &str, request: &str, signer: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"request": request, "signerName": signer,
        "usages": ["digital signature", "client auth"]}})
}

/// A request by a new key.
fn request(name: &str, group: &str, san: Option<&str>) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, group);
    params.distinguished_name.push(DnType::CommonName, name);
    params.subject_alt_names = san.map(|san| SanType::DnsName(san.try_into().unwrap())).into_iter().collect();
    STANDARD.encode(params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap())
}

fn of(cluster: &str) -> String {
    request(&format!("system:karmada:agent:{cluster}"), AGENTS, None)
}

#[tokio::test(start_paused = true)]
async fn a_token_lets_in_the_agent_of_its_cluster_and_nobody_else() {
    let world = Stock::start().await;
    world.token("aaaaaa", "system:bootstrappers:hub:m1", json!({"hub.karmada.io/uses-left": "1"})).await;
    world.token("bbbbbb", "system:bootstrappers:karmada:default-cluster-token", json!({})).await;
    world.token("cccccc", "", json!({"hub.karmada.io/cluster": "m3"})).await;
    let (m1, any, m3) = (world.joiner("aaaaaa"), world.joiner("bbbbbb"), world.joiner("cccccc"));
    assert!(!world.works("m1").await);

    // Whoever is not meant gets nothing, and does not use the token up.
    let agent = "system:karmada:agent:m1";
    let rows = [
        (&m1, "m1-00001", of("m2"), "is for cluster \"m1\", not for \"m2\""),
        (&m3, "m1-00002", of("m1"), "is for cluster \"m3\", not for \"m1\""),
        (
            &m1,
            "m1-00003",
            request(agent, "system:nodes", None),
            "an agent has \"system:karmada:agents\" alone",
        ),
        (&m1, "m1-00004", request(agent, AGENTS, Some("hub.example.com")), "alternative names"),
        (&m1, "m1-00005", request("jane", AGENTS, None), "is not system:karmada:agent:"),
        (&world.joiner("dddddd"), "m1-00006", of("m1"), "is not there any more"),
        (&world.agent("m2"), "m2-00007", of("m1"), "the agent of cluster \"m2\" asks for cluster \"m1\""),
        (&world.agent("m1"), "m1-00008", of("m1"), "there is no Cluster \"m1\""),
    ];
    for (by, name, request, why) in rows {
        let (sort, said) = world.asks(by, name, &request).await;
        assert!(sort == "Denied" && said.contains(why), "{name}: {sort}, {said}");
    }
    // Nor do those about whom somebody else has to decide.
    let generator = request("system:karmada:agent:rbac-generator", AGENTS, None);
    world.waits(&m1, "agent-rbac-generator-m1abcde", &generator, CLIENT).await;
    world.waits(&any, "m1-00010", &of("m1"), CLIENT).await;
    world.waits(&world.admin, "m1-00011", &of("m1"), CLIENT).await;
    world.waits(&world.admin, "m1-00012", &of("m1"), "example.com/other").await;
    let events = world.admin.get("/api/v1/namespaces/default/events").await.expect("events");
    let said = |reason: &str| {
        let all = events["items"].as_array().unwrap().iter();
        all.filter(|event| event["reason"] == reason).count()
    };
    assert_eq!((said("CertificateWaits"), said("CertificateApproved")), (2, 0), "{events}");
    assert!(!world.works("m1").await, "nobody has been given anything");

    let first = of("m1");
    let (sort, said) = world.asks(&m1, "m1-aaaaa", &first).await;
    assert!(
        sort == "Approved" && said.contains("the bootstrap token aaaaaa is for cluster \"m1\""),
        "{said}"
    );
    let secret = world.admin.get(&format!("{TOKENS}/bootstrap-token-aaaaaa")).await.expect("the token");
    assert_eq!(secret["metadata"]["annotations"]["hub.karmada.io/uses-left"], "0");
    // The same key once more, since its answer was lost; another one is one too many.
    assert_eq!(world.asks(&m1, "m1-bbbbb", &first).await.0, "Approved");
    let (sort, said) = world.asks(&m1, "m1-ccccc", &of("m1")).await;
    assert!(sort == "Denied" && said.contains("used as often as it may be"), "{said}");

    // What it may do now is what the table says of its own cluster.
    assert!(world.works("m1").await);
    assert!(!world.works("m2").await);
    assert!(!world.may("m1", "list", "work.karmada.io", "works", "karmada-es-m2", "").await);
    assert!(world.may("m1", "patch", "coordination.k8s.io", "leases", "karmada-cluster", "m1").await);
    assert!(!world.may("m1", "patch", "coordination.k8s.io", "leases", "karmada-cluster", "m2").await);
    assert!(!world.may("m1", "get", "", "secrets", "kube-system", "bootstrap-token-aaaaaa").await);
    assert!(!world.may("m1", "create", "rbac.authorization.k8s.io", "clusterroles", "", "").await);

    // From then on it renews by what it has.
    world.registers("m1").await;
    let (sort, said) = world.asks(&world.agent("m1"), "m1-ddddd", &of("m1")).await;
    assert!(sort == "Approved" && said.contains("renews its own"), "{said}");
    let (sort, said) = world.asks(&world.agent("m2"), "m2-eeeee", &of("m1")).await;
    assert!(sort == "Denied" && said.contains("asks for cluster \"m1\""), "{said}");
    world.stop().await;
}

/// However many ask at once by one token, no more keys are certified than it is good for.
#[tokio::test(start_paused = true)]
async fn a_token_is_used_up_once() {
    let world = Stock::start().await;
    world.token("aaaaaa", "system:bootstrappers:hub:m1", json!({"hub.karmada.io/uses-left": "3"})).await;
    let by = world.joiner("aaaaaa");
    let requests: Vec<(String, String)> = (0..10).map(|n| (format!("m1-0000{n}"), of("m1"))).collect();
    let decided =
        futures::future::join_all(requests.iter().map(|(name, request)| world.asks(&by, name, request)));
    let decided = decided.await;
    assert_eq!(decided.iter().filter(|(sort, _)| sort == "Approved").count(), 3, "{decided:?}");
    let spent =
        |(sort, why): &&(String, String)| sort == "Denied" && why.contains("used as often as it may be");
    assert_eq!(decided.iter().filter(spent).count(), 7, "{decided:?}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_agents_rights_and_tokens_go_with_its_cluster() {
    let world = Stock::start().await;
    world.token("aaaaaa", "system:bootstrappers:hub:m1", json!({"hub.karmada.io/uses-left": "5"})).await;
    world.token("bbbbbb", "system:bootstrappers:hub:m2", json!({})).await;
    let by = world.joiner("aaaaaa");
    assert_eq!(world.asks(&by, "m1-aaaaa", &of("m1")).await.0, "Approved");
    let old = world.signed("m1-aaaaa").await;
    world.registers("m1").await;
    assert_eq!(world.asks(&world.joiner("bbbbbb"), "m2-aaaaa", &of("m2")).await.0, "Approved");
    world.registers("m2").await;

    // An execution namespace that is made anew has its roles again.
    let execution = "/api/v1/namespaces/karmada-es-m1";
    let before = world.admin.get(execution).await.expect("it is there")["metadata"]["uid"].clone();
    world.admin.delete(execution, &json!({})).await.expect("nobody refuses that here");
    world
        .until("its roles", || async {
            let now = world.admin.get(execution).await.ok()?;
            (now["metadata"]["uid"] != before && world.works("m1").await).then_some(())
        })
        .await;

    world.leaves("m1").await;
    let see = |verb: &'static str| world.may("m1", verb, "cluster.karmada.io", "clusters", "", "m1");
    assert!(!world.works("m1").await, "what the certificate was good for has gone");
    assert!(!world.may("m1", "create", "cluster.karmada.io", "clusters", "", "").await);
    assert!(!world.may("m1", "patch", "coordination.k8s.io", "leases", "karmada-cluster", "m1").await);
    assert!(see("get").await && !see("update").await, "it may see that its Cluster has gone");
    assert!(world.works("m2").await, "and nobody else has lost anything");
    let (sort, said) = world.asks(&by, "m1-bbbbb", &of("m1")).await;
    assert!(sort == "Denied" && said.contains("expired"), "{said}");
    let (sort, said) = world.asks(&world.agent("m1"), "m1-ccccc", &of("m1")).await;
    assert!(sort == "Denied" && said.contains("there is no Cluster \"m1\""), "{said}");

    // Who joins by the name with a new token has all of it, were it in the same second.
    world.token("cccccc", "system:bootstrappers:hub:m1", json!({})).await;
    assert_eq!(world.asks(&world.joiner("cccccc"), "m1-ddddd", &of("m1")).await.0, "Approved");
    world.registers("m1").await;
    assert!(world.works("m1").await && see("update").await);
    // What a hub of before gave beyond that does not stay.
    let path = format!("{RBAC}/clusterroles/karmada-hub:agent:m1");
    let mut role = world.admin.get(&path).await.expect("a role");
    let all = json!({"apiGroups": ["cluster.karmada.io"], "resources": ["clusters"], "verbs": ["list"]});
    role["rules"].as_array_mut().unwrap().push(all);
    world.admin.put(&path, &role).await.expect("it is written");
    assert!(world.may("m1", "list", "cluster.karmada.io", "clusters", "", "").await);
    sleep(Duration::from_secs(1200)).await;
    assert!(world.works("m1").await && see("update").await, "and keeps it");
    assert!(!world.may("m1", "list", "cluster.karmada.io", "clusters", "", "").await);

    // The agent of the one before has its certificate still. It renews nothing by that.
    let new = world.signed("m1-ddddd").await;
    let by = |digest: &str| world.by_certificate("m1", digest);
    let (sort, said) = world.asks(&by(&old), "m1-eeeee", &of("m1")).await;
    assert!(
        sort == "Denied" && said.contains("given to the agent of another cluster \"m1\", which has gone"),
        "{said}"
    );
    assert_eq!(world.asks(&by(&new), "m1-fffff", &of("m1")).await.0, "Approved");
    world.waits(&world.agent("m1"), "m1-ggggg", &of("m1"), CLIENT).await;

    world.leaves("m1").await;
    assert!(see("get").await);
    sleep(Duration::from_secs(1200)).await;
    assert!(!see("get").await, "nothing is left");
    let role = world.admin.get(&format!("{RBAC}/clusterroles/karmada-hub:agent:m1")).await.expect("a role");
    assert!(
        role["rules"].as_array().is_none_or(Vec::is_empty),
        "but that there was one of that name: {role}"
    );
    sleep(Duration::from_secs(600)).await;
    let later = world.admin.get(&format!("{RBAC}/clusterroles/karmada-hub:agent:m1")).await.expect("a role");
    assert_eq!(later, role, "and it is let alone");
    let long_ago = json!({"metadata": {"annotations": {"hub.karmada.io/left-at": "2020-01-01T00:00:00Z"}}});
    let path = format!("{RBAC}/clusterroles/karmada-hub:agent:m1");
    world.admin.patch(&path, karmada_client::Patch::Merge, &long_ago).await.expect("it is there");
    sleep(Duration::from_secs(600)).await;
    let roles =
        world.admin.get(&format!("{RBAC}/clusterroles?labelSelector=hub.karmada.io/roles-of=m1")).await;
    assert_eq!(roles.expect("a list")["items"], json!([]), "which is forgotten in the end");
    world.stop().await;
}

/// RBAC lets an agent write its Cluster, and with it the hub's finalizer.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_goes_without_the_hub_takes_the_rights_with_it() {
    let mut world = Stock::start().await;
    let without = |world: &Stock, name: &str| {
        let (agent, path) = (world.agent(name), format!("{CLUSTERS}/{name}"));
        async move {
            agent.delete(&path, &json!({})).await.expect("it may leave");
            let none = json!({"metadata": {"finalizers": null}});
            agent.patch(&path, karmada_client::Patch::Merge, &none).await.expect("it may write its own");
            assert!(agent.get(&path).await.is_err(), "it has gone at once");
        }
    };
    for (name, token) in [("m1", "aaaaaa"), ("m2", "bbbbbb"), ("m3", "cccccc")] {
        world.token(token, &format!("system:bootstrappers:hub:{name}"), json!({})).await;
        let asked = world.asks(&world.joiner(token), &format!("{name}-aaaaa"), &of(name)).await;
        assert_eq!(asked.0, "Approved");
        world.registers(name).await;
    }
    without(&world, "m1").await;
    world.has_lost_all("m1", "aaaaaa").await;

    // While no hub runs; and one of the same name is there when it does again.
    sleep(SOON).await;
    world.stop_hub().await;
    without(&world, "m2").await;
    without(&world, "m3").await;
    let again = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "m3"},
        "spec": {"id": "m3", "syncMode": "Pull"}});
    world.agent("m3").post(CLUSTERS, &again).await.expect("nobody keeps it from that yet");
    world.start_hub().await;
    world.has_lost_all("m2", "bbbbbb").await;
    world.has_lost_all("m3", "cccccc").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_revoked_comes_back_by_a_new_token_alone() {
    let world = Stock::start().await;
    world.token("aaaaaa", "system:bootstrappers:hub:m1", json!({"hub.karmada.io/uses-left": "1"})).await;
    let first = of("m1");
    assert_eq!(world.asks(&world.joiner("aaaaaa"), "m1-aaaaa", &first).await.0, "Approved");
    let old = world.signed("m1-aaaaa").await;
    world.registers("m1").await;
    let objects = karmada_objects::Objects::new(world.admin.clone());
    let revoke = |cluster: &'static str| karmada_cli::agents::revoke(&objects, cluster, world.env.wall());
    assert!(revoke("m1").await.expect("it is done"));
    assert!(!revoke("m2").await.expect("there is nothing"));

    assert!(!world.works("m1").await);
    assert!(!world.may("m1", "get", "cluster.karmada.io", "clusters", "", "m1").await, "not for a moment");
    // The machine that it was stolen from has the key and the token.
    let (sort, said) = world.asks(&world.joiner("aaaaaa"), "m1-bbbbb", &first).await;
    assert!(sort == "Denied" && said.contains("expired"), "{said}");
    let renews = async |digest: &str, name: &str| {
        world.asks(&world.by_certificate("m1", digest), name, &of("m1")).await
    };
    assert_eq!(renews(&old, "m1-ccccc").await.0, "Denied");
    sleep(Duration::from_secs(1200)).await;
    assert!(!world.works("m1").await, "nor does anything bring it back");

    world.token("bbbbbb", "system:bootstrappers:hub:m1", json!({})).await;
    assert_eq!(world.asks(&world.joiner("bbbbbb"), "m1-ddddd", &of("m1")).await.0, "Approved");
    let new = world.signed("m1-ddddd").await;
    assert!(world.works("m1").await);
    let (sort, said) = renews(&old, "m1-eeeee").await;
    assert!(sort == "Denied" && said.contains("was revoked"), "{said}");
    assert_eq!(renews(&new, "m1-fffff").await.0, "Approved");
    // One that nobody has noted is not refused for good.
    let unknown = world.by_certificate("m1", "00");
    world.waits(&unknown, "m1-ggggg", &of("m1"), CLIENT).await;
    // And the Cluster that stayed is the new agent's.
    world.leaves("m1").await;
    world.has_lost_all("m1", "bbbbbb").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_missing_keeps_no_other_from_being_taken_back() {
    let world = Stock::start().await;
    for (name, token) in [("m1", "aaaaaa"), ("m2", "bbbbbb")] {
        world.token(token, &format!("system:bootstrappers:hub:{name}"), json!({})).await;
        let asked = world.asks(&world.joiner(token), &format!("{name}-aaaaa"), &of(name)).await;
        assert_eq!(asked.0, "Approved");
        world.registers(name).await;
    }
    // A token whose time cannot be set.
    let path = format!("{TOKENS}/bootstrap-token-aaaaaa");
    let fixed = json!({"immutable": true});
    world.admin.patch(&path, karmada_client::Patch::Merge, &fixed).await.expect("it is there");
    world.leaves("m1").await;
    assert!(!world.works("m1").await);
    let (sort, said) = world.asks(&world.joiner("aaaaaa"), "m1-bbbbb", &of("m1")).await;
    assert!(sort == "Denied" && said.contains("used as often as it may be"), "{said}");

    // A hub that may look at no Secrets.
    let path = format!("{RBAC}/clusterroles/karmada-hub");
    let mut role = world.admin.get(&path).await.expect("it is there");
    role["rules"][0]["apiGroups"] = json!([
        "cluster.karmada.io",
        "policy.karmada.io",
        "work.karmada.io",
        "apps.karmada.io",
        "config.karmada.io",
        "rbac.authorization.k8s.io",
        "certificates.k8s.io",
        "coordination.k8s.io"
    ]);
    let namespaces =
        json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch", "update"]});
    role["rules"].as_array_mut().unwrap().push(namespaces);
    world.admin.put(&path, &role).await.expect("it is narrowed");
    world.leaves("m2").await;
    assert!(!world.works("m2").await);
    assert!(!world.may("m2", "create", "cluster.karmada.io", "clusters", "", "").await);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_given_while_the_cluster_goes_is_taken_back() {
    let world = Stock::start().await;
    world.token("aaaaaa", "system:bootstrappers:hub:m1", json!({})).await;
    let (by, first) = (world.joiner("aaaaaa"), of("m1"));
    assert_eq!(world.asks(&by, "m1-aaaaa", &first).await.0, "Approved");
    world.registers("m1").await;
    // The same key asks again. Between the look at its Cluster and the roles that goes.
    world.gate.shut.send_replace(true);
    by.post(REQUESTS, &body("m1-bbbbb", &first, CLIENT)).await.expect("it is taken");
    let mut held = world.gate.held.subscribe();
    timeout(SOON, held.wait_for(|held| *held > 0)).await.expect("in time").expect("it is kept");
    world.leaves("m1").await;
    world.gate.shut.send_replace(false);
    let sort = world
        .until("what is decided", || async {
            let made = world.admin.get(&format!("{REQUESTS}/m1-bbbbb")).await.expect("it is there");
            made.pointer("/status/conditions/0/type").cloned()
        })
        .await;
    assert_eq!(sort, "Denied");
    assert!(!world.works("m1").await);
    assert!(!world.may("m1", "create", "cluster.karmada.io", "clusters", "", "").await);
    world.stop().await;
}

/// Whoever got the first token joins, registers nothing, and waits for somebody to whom the name is given.
#[tokio::test(start_paused = true)]
async fn what_was_given_to_one_who_did_not_register_renews_nothing() {
    let world = Stock::start().await;
    let once = || json!({"hub.karmada.io/uses-left": "1"});
    world.token("aaaaaa", "system:bootstrappers:hub:m1", once()).await;
    let theirs = of("m1");
    assert_eq!(world.asks(&world.joiner("aaaaaa"), "m1-aaaaa", &theirs).await.0, "Approved");
    let stolen = world.signed("m1-aaaaa").await;
    // Somebody else's token stays.
    world.token("dddddd", "system:bootstrappers:hub:m4", json!({})).await;

    // The rightful one finds it used up, and is given another.
    let ours = of("m1");
    let (sort, said) = world.asks(&world.joiner("aaaaaa"), "m1-bbbbb", &ours).await;
    assert!(sort == "Denied" && said.contains("used as often as it may be"), "{said}");
    sleep(Duration::from_secs(5)).await;
    world.token("bbbbbb", "system:bootstrappers:hub:m1", once()).await;
    assert_eq!(world.asks(&world.joiner("bbbbbb"), "m1-ccccc", &ours).await.0, "Approved");
    let good = world.signed("m1-ccccc").await;
    // The other does not get its turn again, before anybody has registered or after.
    let (sort, said) = world.asks(&world.joiner("aaaaaa"), "m1-ddddd", &theirs).await;
    assert!(sort == "Denied" && said.contains("expired"), "{said}");
    world.registers("m1").await;
    let renews = async |digest: &str, name: &str| {
        world.asks(&world.by_certificate("m1", digest), name, &of("m1")).await
    };
    let (sort, said) = renews(&stolen, "m1-eeeee").await;
    assert!(sort == "Denied" && said.contains("somebody who did not register"), "{said}");
    assert_eq!(renews(&good, "m1-fffff").await.0, "Approved");
    assert!(world.works("m1").await);
    let events = world.admin.get("/api/v1/namespaces/default/events").await.expect("events");
    let told: Vec<&Value> = events["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["reason"] == "CertificateSuperseded")
        .collect();
    assert_eq!(told.len(), 1, "{events}");
    assert_eq!(told[0]["involvedObject"]["name"], "m1-ccccc");
    assert_eq!(world.asks(&world.joiner("dddddd"), "m4-aaaaa", &of("m4")).await.0, "Approved");

    // By a token that counts no uses the later key holds; by one that counts them all do.
    for (name, id, annotations, first, what) in [
        ("m2", "eeeeee", json!({}), "Denied", "any number"),
        ("m3", "ffffff", json!({"hub.karmada.io/uses-left": "2"}), "Approved", "two"),
    ] {
        world.token(id, &format!("system:bootstrappers:hub:{name}"), annotations).await;
        let mut digests = Vec::new();
        for end in ["aaaaa", "bbbbb"] {
            let asked = format!("{name}-{end}");
            assert_eq!(world.asks(&world.joiner(id), &asked, &of(name)).await.0, "Approved");
            digests.push(world.signed(&asked).await);
        }
        world.registers(name).await;
        for (digest, end, want) in [(&digests[0], "ccccc", first), (&digests[1], "ddddd", "Approved")] {
            let by = world.by_certificate(name, digest);
            let asked = world.asks(&by, &format!("{name}-{end}"), &of(name)).await;
            assert_eq!(asked.0, want, "{what}, {end}: {}", asked.1);
        }
    }
    world.stop().await;
}

/// Whoever is revoked has a request under way at that moment, by the key that the token let in.
#[tokio::test(start_paused = true)]
async fn what_is_asked_for_while_it_is_revoked_brings_nothing_back() {
    let world = Stock::start().await;
    for (name, token, joined) in [("m1", "aaaaaa", true), ("m2", "bbbbbb", false)] {
        world.token(token, &format!("system:bootstrappers:hub:{name}"), json!({})).await;
        let (by, first) = (world.joiner(token), of(name));
        if joined {
            assert_eq!(world.asks(&by, &format!("{name}-aaaaa"), &first).await.0, "Approved");
            world.registers(name).await;
        }
        let before = *world.gate.held.borrow();
        world.gate.shut.send_replace(true);
        let asked = format!("{name}-bbbbb");
        by.post(REQUESTS, &body(&asked, &first, CLIENT)).await.expect("it is taken");
        let mut held = world.gate.held.subscribe();
        timeout(SOON, held.wait_for(|held| *held > before)).await.expect("in time").expect("it is kept");
        let objects = karmada_objects::Objects::new(world.admin.clone());
        let had = karmada_cli::agents::revoke(&objects, name, world.env.wall()).await.expect("it is done");
        assert_eq!(had, joined);
        world.gate.shut.send_replace(false);
        let condition = world
            .until("what is decided", || async {
                let made = world.admin.get(&format!("{REQUESTS}/{asked}")).await.expect("it is there");
                made.pointer("/status/conditions/0").cloned()
            })
            .await;
        assert_eq!(condition["type"], "Denied", "{name}: {condition}");
        assert!(!world.works(name).await, "{name}");
        assert!(!world.may(name, "create", "cluster.karmada.io", "clusters", "", "").await, "{name}");
        let path = format!("{RBAC}/namespaces/karmada-es-{name}/roles/karmada-hub:agent:{name}");
        assert!(world.admin.get(&path).await.is_err(), "{name}: nothing is left for another day");
    }
    world.stop().await;
}
