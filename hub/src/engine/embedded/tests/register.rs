//! `karmadactl register` and `unregister`, request by request as they send them, and what their certificate is not good for.

use karmada_apiserver::certificates::Certifier;

use super::*;

const TOKENS: &str = "/api/v1/namespaces/kube-system/secrets";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const INFO: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";

/// Requests over RSA keys of 3072 bits (the last of 2048) for `system:karmada:agent:rbac-generator`, `…:m1` and `…:m2` in
/// the group `system:karmada:agents`.
const GENERATOR: &str = "\
    LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlJRGt6Q0NBZnNDQVFBd1RqRWVNQndHQTFVRUNnd1ZjM2x6ZEdWdE9tdGhjbT\
    FoWkdFNllXZGxiblJ6TVN3dwpLZ1lEVlFRRERDTnplWE4wWlcwNmEyRnliV0ZrWVRwaFoyVnVkRHB5WW1GakxXZGxibVZ5WVhSdmNqQ0NBYUl3\
    CkRRWUpLb1pJaHZjTkFRRUJCUUFEZ2dHUEFEQ0NBWW9DZ2dHQkFMUU1GNm5haXZtNlptQzdUUFBmcWhhZ3I1aGMKcTd6SGszaVlvaC81Q0tlYV\
    BPMmZvR2R0SGxlQWR5SkNZVk1QM0VhSDllalZXdWVVRGdUMkZLVWIxZ1dyQjFWMQoyZThGYTMwWW9jNDVZcnhHK1pLKzFlZDkydTZJZjdJekFp\
    M3J0d0pPN0tkTHlDekhUY0Q0MjVFQzBjZGRlbWkyCjJXQkw4WVFZRE5sWlVmbzZTYVVVUVFaZ1ZBNk50cGppdStucjlvWTR0eXhIeGtqT3RzNH\
    Rod0t2Q2plbHVVaVMKWmhRKzVnd0JXWlh2NDRkTHNWbFFqRWU0SFA3NDl0K3VsSklybXNuYldIa2NUSTZWWjhhOThiZnJFbGl0b3pQcgpNTWJY\
    WnJJUGMxVW9iVnhFNVVJMkZaZ2I4WWJMWXhiQzdZQWhNb3pQb3BNRVJVYloxQ0ZsSThBc3FBUWp6aFowCllOcitLT1NWVGtITEk2Ynh2YzJRQz\
    M5NHZiSXNZa1JtdkM0eEF6T2hTVWo0aHltM2UxaFpMMnpIcjdROXFCNi8KNGhlRzJsYW5EV1hPQzN1YzBNMjQ4dXpvZ0ZLY2VaMTNVVzZGRG5q\
    dGU2SWxRRnRDQkRYdXBMMzF0dHRJYTRIUgp6SVZjUXpSNW04MjJYQzFxZlBSZWxVdXdjVEYrV01uZUhrSkFCd0lEQVFBQm9BQXdEUVlKS29aSW\
    h2Y05BUUVMCkJRQURnZ0dCQUNhT2JIU1pDQ0xzaFJqczc5ZGFIQTVMYzY2MHAzTUNkdDh6S3JZc0NZVGdWK1V6aVlLd05YTzUKd0hXUFVaa1Z3\
    YVpncG1FQXk0S3llNC9MbXlFeE43WEtqTlFmMFNSd0JQSXUvMmZyWjJjSXI2ay84UE4xcnZqQwppOG8relBkaU1qb05nc3BzZWx5ZFNSM3JPQ3\
    dXRlBXMHFTVXJiRzNrUWRYQldhNEI0a2lORVJSaGRPdlBiODJXClkxeDJQaThhNVNWMDJmVkpONkVXTnFRVTk5b09TY1N5TDBQd0p4U01VWE9y\
    eHg1UWdRUzFkdGFWbFJZTzFNRmUKRU81V3lUaVNkWERzeTUwWDVWTkVXblU3SDA5UEovYk5jN1BmMzJMVEUrMGtvNDhmcTg2YmFId1g4VHhPOD\
    ZEdwppQTF4SFlBY0tNc1lEd2tNaEZscWVHNnAxYVdUemkrOXc1RENiZ2pWZ01RVnBkSDlLMmxYcmJqam5iYjByL2VTClhlTndNS2JydHpUNldZ\
    WGhSQXNlTEZ2ckJvb0RTOUtPR2lqVU9aYUkzT2ZSQk1NcmdRQVR0cjE5allOV1NPcDcKR3Rob0NHaU82eEdHczFqOTdEZDhKdVVicEpaTlV5Nj\
    dQbUlhMHNxQ0luUkpXampzWUtXUzFQV2dXalVJWGs2OAplMGxCQ3hIdnBBPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==";
const AGENT_M1: &str = "\
    LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlJRGh6Q0NBZThDQVFBd1FqRWVNQndHQTFVRUNnd1ZjM2x6ZEdWdE9tdGhjbT\
    FoWkdFNllXZGxiblJ6TVNBdwpIZ1lEVlFRRERCZHplWE4wWlcwNmEyRnliV0ZrWVRwaFoyVnVkRHB0TVRDQ0FhSXdEUVlKS29aSWh2Y05BUUVC\
    CkJRQURnZ0dQQURDQ0FZb0NnZ0dCQUtCWDhuZDltR2tDNXlmQmJKUytjd2lialZmQmdNRTExVkxaWkZUS3BwRUEKV3RVN2g5RG1RSld4a0w1a1\
    hzcSswSll5TmI3MmpIWEFoK3pYTGRHWWpYWCtWK2xvejhPMVJqUDVnTTRLNGpnRAp3NzFpalNMYWtlTFlIVC9GaGJ3RVFVekdzT3FJS0Jza1N0\
    b3lDS2s2L0RnWjY1ZDZQK1pBa1pDUHFCZlBXRXcxCkowVjVmZ2hNQzl5dGl5VFEvbHN2NzRwdjJkWWE4Z1prUWhoblBPd0RWTUhiL1RNNnkzQm\
    t3U3FCcG1heXRrc3cKb2RGZDZ5ZzJOVlFmU2VMYlhCbVlwaE9NY1hwcGlDUUZZZWVDdWpuNi9DQUNJUHVtR3Uzd2lDV0dKSVpCYmxCQQpsNVhE\
    T3VPL1FKeUtRRzU1Wk9TOGJNdkZkZUMyMWwwNEtmTHVUSDE1bzFvbjRudGR4MlBrVXNHaXhkL1JjUSt1ClpJT1pTYmo3Ulg1Q0xoWFlrZldEZ0\
    1PZmxSSWFkOVdZUjcrVTZLRmRtcnN0akxEemYxTStRVllNS0IzZjZEK2wKd3dQQ1A4anR1T1lhUk9obFZGeVM3Mi9ySmRBVEtkQnBCUEV0Z3Z4\
    RjVWVDBBVmZmMWFtVU1LU0pyTklDWVNuNgoxVnhFMDlvaXF0R0MzcXNhc2ZZZTl3SURBUUFCb0FBd0RRWUpLb1pJaHZjTkFRRUxCUUFEZ2dHQk\
    FDNUY4Q0FSCmZqdDhTUXAxTmRicWhtWUhmTk1oalZ4VWhGNzNOTG9VUkhaWmRzQkVlMXNMdXNpWWpIODltclBadlZ0UzUyOWoKYk9mbERzVm1p\
    bThGMWI2L2hmd2sydUoyL1VTS0ZEb0QrRFB0MXJ4Q3c4MG0zZXRQZ3h2dmRqTFQvaXVDSlJLSwpWYTQ1emJJaXFhM2xkSDQ3LzBIdVl4Rk4zTT\
    YzZXJqbEpsQkQxVFpyazI0eFA2SW9OT1NHMjBTdEZYK0tycnJ1CndoMktKNTlmOHJzc1ZxM1h3UjFnOUNteVYzbjl0NWN4TzdmZG9odHdyVmNY\
    RHJrQ2lnK0dIbyt3UmIzZk40UkMKbHRHNTVOSFM2cU1NNVlBVURIK1VsTUlPcENZQWErL2c3QkFQU1prUWI5SnU5QmxiajVrL05vWkNxNW5WQm\
    J6MApMSzQ5L2pjVkNjQktYRGpoZUZTLzhZNEQyNk8yWTlkaWxBNWlIUi9QUnMvRmlualF3WlVmTUhrOTFNRnpwWEVlClNYRW11SHNsbDlLS1Jn\
    WTJEbnQ1ZWFpZ01RelQ2TzVaQjlWbXNtbjlVZ2JNenlla2pZaTF4ZHQ2ci92RkJtcFkKZjIxOE4wU2twUEhIUUt2a1RvZXZjVk90VzgvbUNLL0\
    k5SUxLMklUQnAzaFp2RHBiVUlEam1WVTR1dz09Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=";
const AGENT_M2: &str = "\
    LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlJQ2h6Q0NBVzhDQVFBd1FqRWVNQndHQTFVRUNnd1ZjM2x6ZEdWdE9tdGhjbT\
    FoWkdFNllXZGxiblJ6TVNBdwpIZ1lEVlFRRERCZHplWE4wWlcwNmEyRnliV0ZrWVRwaFoyVnVkRHB0TWpDQ0FTSXdEUVlKS29aSWh2Y05BUUVC\
    CkJRQURnZ0VQQURDQ0FRb0NnZ0VCQUp0T3hjMUdGd0VQS2VDNlA1SWVxUjN2bm50ak1BNldOZHUvNkRUNHRrNmEKTUFBOUxIOStsc0s0cVo5Un\
    FoQWpBMHFuMG51cXkvNzNacEhhZk5LVFk1UVJhcVJnZlpLSytuUHMwVGRtOVBTQQppSm5lRCs3Z3BicFpuU2d4MHoyRC9pTG9MSE5CTnZkSTRl\
    WHBLSHJsVjVpVXgwcjZleUJtSXdpd0Zscnc2dG9BClJCLy9WanY3YzhqN3UyYzl5WFBQNVRDNnprd3VTd1puc2VRckQ1MkR0NDJtU2JsY2tGal\
    hyYmFHYmRzdEI5TWoKSU5tUXNDWDRqcmo0RkdyU0svRUxlNFRYazJqTzdMbHl4Z1ZpTlgyeXZZRllPWnFBRURiSkMrSTJrQzNiYXRPQwphTlpa\
    V2RISjVaQjhDdTZpcll2cTZsNzFRZ3FNMk45dVlLM2ptMTE1ejljQ0F3RUFBYUFBTUEwR0NTcUdTSWIzCkRRRUJDd1VBQTRJQkFRQnlBcW45OF\
    prSGx4bjczcmMyeHZXcSt2c3NvZkYvZnZ6NWpWcGlSRjNDcGp2eWdvRVMKK29FMjRZSFFDMGN1VVNuUlB0L2FlZ0hvYmtDd1BtTkZsUy8zbm1L\
    REJrTWpVWGd5S2tNOXBBTmY5WXZycnRHWQpsQjNBd29neHZONFA1UDR3L0VLWEM5SkFYK05FWEVrUkdOQ2szdERLMHZoL1dDWmkxVU8xLzZKVT\
    hoZ0hIQUVQCmR0cnAybklpZDZ6dktKdWJ0WEtyZUZ3WTdzL2RHT3NVWTNJWStPeEQxemVlOXpwSmhNZXRKV1JIbDNmY3FnWjYKbUk5N0d0WWJh\
    OFkvV0lPYTVueUFsdURIMFUxMUtHSGNZZTB0dVRMRjUwNitsQi80ckJONjBnY2NyZEpSWjJBKwprZ0Z2d3JPVVZWcWUzN095YVB5bTZoNW9tU2\
    9VU2dxKzZVVkoKLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==";

/// Somebody who asks: by a certificate, by a token, or by nothing.
enum By<'a> {
    Nothing,
    Token(&'a str),
    Certificate(&'a Peer),
}

/// A hub that signs.
async fn signing() -> World {
    let world = World::start().await;
    let signer = world.pki.signer().expect("an authority");
    world.embedded.server().certify_by(Certifier::new(signer, "https://hub.example.com:6443"));
    world
}

impl World {
    /// A Cluster that somebody makes beforehand and deletes again, under controllers that go on running.
    async fn cluster_comes_and_goes(&self) -> tokio::task::JoinHandle<Result<(), HubError>> {
        let cluster = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"}});
        self.admin.post(CLUSTERS, &cluster).await.expect("a Cluster");
        let hub = self.embedded.hub(HubConfig::default(), &Env::system()).expect("controllers");
        let running = tokio::spawn(hub.run(self.stop.clone()));
        self.kept().await;
        self.admin.delete(M1, &json!({})).await.expect("it goes");
        self.gone().await;
        running
    }

    /// Code and body of an answer.
    async fn call(&self, by: &By<'_>, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let content = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let asks = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let (asks, peer) = match by {
            By::Nothing => (asks, Peer::None),
            By::Token(token) => (asks.header("authorization", format!("Bearer {token}")), Peer::None),
            By::Certificate(peer) => (asks, (*peer).clone()),
        };
        let mut request = asks.body(content).expect("a request");
        request.extensions_mut().insert(peer);
        let answer = self.embedded.server().service().oneshot(request).await.expect("an answer");
        let code = answer.status().as_u16();
        let text = axum::body::to_bytes(answer.into_body(), 1 << 20).await.expect("a body");
        (code, serde_json::from_slice(&text).unwrap_or_default())
    }

    /// What `karmadactl token create` makes; the token.
    async fn token(&self, id: &str) -> String {
        self.token_of(id, "system:bootstrappers:karmada:default-cluster-token").await
    }

    /// The same with `--groups`.
    async fn token_of(&self, id: &str, group: &str) -> String {
        let until = karmada_meta::time::Time::from_system(self.env.wall() + DAY).to_string();
        let secret = json!({"metadata": {"name": format!("bootstrap-token-{id}"), "namespace": "kube-system"},
            "type": "bootstrap.kubernetes.io/token", "stringData": {"token-id": id, "token-secret": "0123456789abcdef",
                "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true", "expiration": until,
                "auth-extra-groups": group}});
        self.admin.post(TOKENS, &secret).await.expect("a token");
        format!("{id}.0123456789abcdef")
    }

    /// Asks for a certificate; what becomes of it: the certificate, or why not.
    async fn certificate(&self, token: &str, name: &str, request: &str) -> Result<Peer, String> {
        let by = By::Token(token);
        let body = json!({"metadata": {"name": name, "labels": {"karmada.io/system": "true"}}, "spec": {
            "request": request, "signerName": "kubernetes.io/kube-apiserver-client", "expirationSeconds": 31_536_000,
            "usages": ["digital signature", "key encipherment", "client auth"]}});
        let (code, answer) = self.call(&by, Method::POST, &format!("{REQUESTS}?timeout=10s"), &body).await;
        if code != 201 {
            return Err(answer["message"].as_str().unwrap_or_default().to_owned());
        }
        let waiting = async {
            loop {
                let (_, made) =
                    self.call(&by, Method::GET, &format!("{REQUESTS}/{name}"), &Value::Null).await;
                if let Some(pem) = made["status"]["certificate"].as_str() {
                    use base64::{Engine as _, engine::general_purpose::STANDARD};
                    let pem = STANDARD.decode(pem).expect("base64");
                    let der = CertificateDer::from_pem_slice(&pem).expect("a certificate");
                    let peer = PeerCertificate::from_der(&der).expect("a user's");
                    return Ok(Peer::Certificate(Arc::new(peer)));
                }
                if let Some(condition) = made["status"]["conditions"].get(0) {
                    return Err(condition["message"].as_str().unwrap_or_default().to_owned());
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(LIMIT, waiting).await.expect("in time")
    }
}

fn role(kind: &str, namespace: &str, name: &str, rules: &Value) -> Value {
    let mut role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "rules": rules});
    if !namespace.is_empty() {
        role["metadata"]["namespace"] = namespace.into();
    }
    role
}

fn binding(kind: &str, role: &Value) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"), "metadata": role["metadata"],
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:karmada:agent:m1"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role["metadata"]["name"]}})
}

fn rule(verbs: &[&str], group: &str, resources: &[&str], names: &[&str]) -> Value {
    let mut rule = json!({"verbs": verbs, "apiGroups": [group], "resources": resources});
    if !names.is_empty() {
        rule["resourceNames"] = json!(names);
    }
    rule
}

/// The role of an agent at the cluster scope.
fn cluster_role() -> Value {
    let rules = json!([
        rule(&["get", "delete"], "cluster.karmada.io", &["clusters"], &["m1"]),
        rule(&["create", "list", "watch"], "cluster.karmada.io", &["clusters"], &[]),
        rule(&["update"], "cluster.karmada.io", &["clusters/status"], &["m1"]),
        rule(
            &["get", "list", "watch"],
            "config.karmada.io",
            &["resourceinterpreterwebhookconfigurations", "resourceinterpretercustomizations"],
            &[]
        ),
        rule(&["get"], "", &["namespaces"], &[]),
        rule(&["get", "create", "update"], "coordination.k8s.io", &["leases"], &[]),
        rule(&["get", "create"], "certificates.k8s.io", &["certificatesigningrequests"], &[]),
        rule(&["list", "watch"], "", &["services"], &[]),
        rule(&["patch", "create", "update"], "", &["events"], &[]),
    ]);
    role("ClusterRole", "", "system:karmada:m1:agent", &rules)
}

fn namespace(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"karmada.io/system": "true"}}})
}

/// What `register` makes by its first certificate, in its order: path and body.
fn made_by_register() -> Vec<(String, Value)> {
    let (here, there) = ("karmada-cluster", "karmada-es-m1");
    let secrets = json!([
        rule(&["get", "patch"], "", &["secrets"], &["m1", "m1-impersonator"]),
        rule(&["create"], "", &["secrets"], &[]),
    ]);
    let works = json!([
        rule(&["get", "create", "list", "watch", "update", "delete"], "work.karmada.io", &["works"], &[]),
        rule(&["patch", "update"], "work.karmada.io", &["works/status"], &[]),
    ]);
    let wide = cluster_role();
    let secret = role("Role", here, "system:karmada:m1:agent-secret", &secrets);
    let work = role("Role", there, "system:karmada:m1:agent-work", &works);
    let within = |namespace: &str, resource: &str| format!("{RBAC}/namespaces/{namespace}/{resource}");
    vec![
        (format!("{RBAC}/clusterroles"), wide.clone()),
        (format!("{RBAC}/clusterrolebindings"), binding("ClusterRole", &wide)),
        ("/api/v1/namespaces".to_owned(), namespace(here)),
        (within(here, "roles"), secret.clone()),
        ("/api/v1/namespaces".to_owned(), namespace(there)),
        (within(there, "roles"), work.clone()),
        (within(here, "rolebindings"), binding("Role", &secret)),
        (within(there, "rolebindings"), binding("Role", &work)),
    ]
}

#[tokio::test]
async fn register_and_unregister_work_as_karmadactl_sends_them() {
    let world = signing().await;
    let hub = world.embedded.hub(HubConfig::default(), &Env::system()).expect("controllers");
    let running = tokio::spawn(hub.run(world.stop.clone()));
    let token = world.token("abcdef").await;
    let discovery = async {
        while
            world.call(&By::Nothing, Method::GET, INFO, &Value::Null).await.1["data"]["jws-kubeconfig-abcdef"]
                .is_null()
        {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LIMIT, discovery).await.expect("in time");
    // The second time is that of somebody whose first was cut off in the middle.
    for (attempt, csr) in
        ["agent-rbac-generator-m1abcde", "agent-rbac-generator-m1fghij"].into_iter().enumerate()
    {
        let peer = world.certificate(&token, csr, GENERATOR).await.expect("a certificate");
        let by = By::Certificate(&peer);
        assert_eq!(world.call(&by, Method::GET, M1, &Value::Null).await.0, 404);
        for (path, body) in made_by_register() {
            let (code, answer) = world.call(&by, Method::POST, &format!("{path}?timeout=10s"), &body).await;
            let there = attempt > 0 || answer["details"]["name"] == "karmada-cluster";
            assert_eq!(code, if there { 409 } else { 201 }, "{path}: {answer}");
            if there {
                assert_eq!(answer["reason"], "AlreadyExists", "{answer}");
            }
        }
        let (code, answer) = world.call(&by, Method::DELETE, &format!("{REQUESTS}/{csr}"), &json!({})).await;
        assert_eq!(code, 200, "{answer}");
    }
    let agent = world.certificate(&token, "m1-vwxyz", AGENT_M1).await.expect("a certificate");
    assert_eq!(world.register(&agent).await.0, 201);
    world.kept().await;
    assert_eq!(world.get(&agent).await.0, 200);
    // Now that there is an agent the token is good for nothing more.
    let why = world.certificate(&token, "m1-again", AGENT_M2).await.expect_err("another's key");
    assert!(why.contains("is for cluster \"m1\", not for \"m2\""), "{why}");
    let why = world.certificate(&token, "agent-rbac-generator-m1again", GENERATOR).await.expect_err("late");
    assert!(why.contains("before the agent of cluster \"m1\" registered"), "{why}");

    let by = By::Certificate(&agent);
    let (code, works) = world.call(&by, Method::GET, WORKS, &Value::Null).await;
    assert_eq!((code, works["items"].as_array().map(Vec::len)), (200, Some(0)), "{works}");
    assert_eq!(world.call(&by, Method::DELETE, M1, &json!({})).await.0, 200);
    let going = async {
        while world.get(&agent).await.0 != 404 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LIMIT, going).await.expect("in time");
    // Its roles have gone with it, however it has left; what unregister takes away with --karmada-config it may miss.
    for (path, body) in made_by_register().into_iter().filter(|(path, _)| !path.ends_with("/namespaces")) {
        let path = format!("{path}/{}", body["metadata"]["name"].as_str().expect("a name"));
        let error = world.admin.delete(&path, &json!({})).await.expect_err("it has gone");
        assert!(error.is_not_found(), "{path}: {error}");
    }
    let (code, why) = world.register(&agent).await;
    assert_eq!(code, 403, "its credential is dead: {why}");
    world.stop.cancel();
    running.await.expect("the controllers end").expect("in order");
    world.embedded.close().await.expect("all is written");
}

/// Its agent did not come up: karmadactl takes back what it has made, roles before bindings, and is run again.
#[tokio::test]
async fn a_register_that_failed_half_way_takes_back_what_it_made() {
    let world = signing().await;
    let token = world.token("abcdef").await;
    for (attempt, csr) in
        ["agent-rbac-generator-m1abcde", "agent-rbac-generator-m1fghij"].into_iter().enumerate()
    {
        let peer = world.certificate(&token, csr, GENERATOR).await.expect("a certificate");
        let by = By::Certificate(&peer);
        for (path, body) in made_by_register() {
            let (code, answer) = world.call(&by, Method::POST, &path, &body).await;
            let stays = path.ends_with("/namespaces") && (attempt > 0 || code == 409);
            assert_eq!(code, if stays { 409 } else { 201 }, "{path}: {answer}");
        }
        let (code, answer) = world.call(&by, Method::DELETE, &format!("{REQUESTS}/{csr}"), &json!({})).await;
        assert_eq!(code, 200, "{answer}");
        let (wide, narrow): (Vec<_>, Vec<_>) = made_by_register()
            .into_iter()
            .filter(|(path, _)| !path.ends_with("/namespaces"))
            .partition(|(path, _)| !path.contains("/namespaces/"));
        for want in [200, 404] {
            for (path, body) in wide.iter().chain(&narrow) {
                let path =
                    format!("{path}/{}?timeout=10s", body["metadata"]["name"].as_str().expect("a name"));
                let (code, answer) = world.call(&by, Method::DELETE, &path, &json!({})).await;
                assert_eq!(code, want, "{path}: {answer}");
            }
        }
    }
    world.stop().await;
}

const WORKS: &str = "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m1/works";

#[tokio::test]
async fn the_certificate_for_roles_is_good_for_nothing_else() {
    let world = signing().await;
    let token = world.token("abcdef").await;
    let peer =
        world.certificate(&token, "agent-rbac-generator-m1abcde", GENERATOR).await.expect("a certificate");
    let by = By::Certificate(&peer);
    let with = |pointer: &str, value: Value| {
        let mut role = cluster_role();
        let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
        role.pointer_mut(parent).expect("there")[field] = value;
        role
    };
    let bound = |pointer: &str, value: Value| {
        let mut bound = binding("ClusterRole", &cluster_role());
        *bound.pointer_mut(pointer).expect("there") = value;
        bound
    };
    let admin = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
    let more = rule(&["update"], "cluster.karmada.io", &["clusters/status"], &[]);
    let (roles, bindings) = (format!("{RBAC}/clusterroles"), format!("{RBAC}/clusterrolebindings"));
    let user = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"});
    let in_system = format!("{RBAC}/namespaces/kube-system/roles");
    let secret = role("Role", "kube-system", "system:karmada:m1:agent-secret", &json!([]));
    let rows = [
        (Method::POST, &*roles, with("/rules", admin.clone()), "not currently held"),
        (Method::POST, &roles, with("/rules", json!([more])), "not currently held"),
        (Method::POST, &roles, with("/metadata/name", "system:karmada:m2:agent".into()), "for nothing else"),
        (Method::POST, &roles, with("/metadata/name", "cluster-admin".into()), "for nothing else"),
        (
            Method::POST,
            &roles,
            {
                let mut role = cluster_role();
                role["metadata"] = json!({"generateName": "x-"});
                role
            },
            "for nothing else",
        ),
        (
            Method::POST,
            &roles,
            with("/metadata/labels", json!({"rbac.authorization.k8s.io/aggregate-to-admin": "true"})),
            "may be karmada.io/system alone",
        ),
        (Method::POST, &roles, with("/metadata/annotations", json!({"a": "b"})), "metadata.annotations"),
        (Method::POST, &roles, with("/metadata/finalizers", json!(["a/b"])), "metadata.finalizers"),
        (
            Method::POST,
            &roles,
            with("/aggregationRule", json!({"clusterRoleSelectors": []})),
            "gathers no others",
        ),
        (
            Method::POST,
            &roles,
            with("/rules", json!(vec![rule(&["get"], "", &["namespaces"], &[]); 400])),
            "may have 16384",
        ),
        (
            Method::POST,
            &bindings,
            bound("/subjects/0", user),
            "must be the User system:karmada:agent:m1 alone",
        ),
        (
            Method::POST,
            &bindings,
            bound("/roleRef/name", "cluster-admin".into()),
            "must be the ClusterRole of the same name",
        ),
        (Method::POST, &in_system, secret, "for nothing else"),
        (Method::POST, "/api/v1/namespaces", namespace("karmada-es-m2"), "for nothing else"),
        (
            Method::POST,
            "/api/v1/namespaces",
            {
                let mut held = namespace("karmada-es-m1");
                held["spec"] = json!({"finalizers": ["x.example/y"]});
                held
            },
            "spec: Forbidden",
        ),
        (
            Method::POST,
            CLUSTERS,
            json!({"metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"}}),
            "for nothing else",
        ),
        (Method::GET, CLUSTERS, Value::Null, "for nothing else"),
        (Method::GET, &format!("{CLUSTERS}/m2"), Value::Null, "for nothing else"),
        (Method::GET, &roles, Value::Null, "for nothing else"),
        (Method::DELETE, &format!("{roles}/cluster-admin"), json!({}), "for nothing else"),
        (Method::DELETE, &format!("{roles}/system:karmada:m2:agent"), json!({}), "for nothing else"),
        (Method::DELETE, &roles, json!({}), "for nothing else"),
        (Method::DELETE, "/api/v1/namespaces/karmada-es-m1", json!({}), "for nothing else"),
        (Method::PUT, &format!("{roles}/system:karmada:m1:agent"), cluster_role(), "for nothing else"),
        (Method::GET, "/api/v1/namespaces/karmada-cluster/secrets/m1", Value::Null, "for nothing else"),
        (Method::GET, WORKS, Value::Null, "for nothing else"),
        (Method::DELETE, &format!("{REQUESTS}/agent-rbac-generator-m2abcde"), json!({}), "for nothing else"),
        (Method::DELETE, &format!("{REQUESTS}/m1-abcde"), json!({}), "for nothing else"),
        (Method::POST, REQUESTS, json!({"metadata": {"name": "m1-abcde"}}), "for nothing else"),
    ];
    for (method, path, body, want) in rows {
        let (code, answer) = world.call(&by, method.clone(), path, &body).await;
        let why = answer["message"].as_str().unwrap_or_default();
        assert!(code == 403 && why.contains(want), "{method} {path} {body}: {code} {answer}");
    }
    // Nothing that is bound adds to it, and it ends with the credentials of that name.
    let all = json!({"metadata": {"name": "all"}, "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group",
        "name": subject::AGENTS}], "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}});
    world.admin.post(&bindings, &all).await.expect("a binding");
    assert_eq!(world.call(&by, Method::GET, CLUSTERS, &Value::Null).await.0, 403);
    assert_eq!(world.call(&by, Method::GET, M1, &Value::Null).await.0, 404);
    world.revoke().await;
    assert_eq!(world.call(&by, Method::GET, M1, &Value::Null).await.0, 401);
    world.stop().await;
}

#[tokio::test]
async fn a_token_for_anyone_is_for_the_first_whose_name_is_free() {
    let world = signing().await;
    let first = world.token("aaaaaa").await;
    let second = world.token("bbbbbb").await;
    let cluster = |name: &str| {
        json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": name}, "spec": {"syncMode": "Pull"}})
    };
    world.admin.post(CLUSTERS, &cluster("m2")).await.expect("a cluster");
    let denied = async |token: &str, name: &str, request: &str, want: &str| {
        let why = world.certificate(token, name, request).await.expect_err(name);
        assert!(why.contains(want), "{name}: {why}");
    };
    // Of a cluster that there is, or that was named by another token, it gives nothing; nor is it used up by that.
    denied(&first, "m2-aaaaa", AGENT_M2, "there is a Cluster of that name").await;
    denied(&first, "agent-rbac-generator-m2aaaaa", GENERATOR, "there is a Cluster of that name").await;
    denied(&first, "agent-rbac-generator-m1-impersonatoraaaaa", GENERATOR, "may be called so").await;
    denied(&first, "generator", GENERATOR, "is not agent-rbac-generator- with the name of a cluster").await;
    world.certificate(&first, "agent-rbac-generator-m1aaaaa", GENERATOR).await.expect("the first use");
    denied(&first, "m2-bbbbb", AGENT_M2, "is for cluster \"m1\", not for \"m2\"").await;
    denied(&first, "agent-rbac-generator-m3aaaaa", GENERATOR, "is for cluster \"m1\", not for \"m3\"").await;
    denied(&second, "m1-aaaaa", AGENT_M1, "another token is for that cluster").await;
    let agent = world.certificate(&first, "m1-bbbbb", AGENT_M1).await.expect("the agent's");
    assert_eq!(world.get(&agent).await.0, 404);
    // The token of before an end is none for the name, and the one of after it is.
    world.revoke().await;
    denied(&first, "m1-ccccc", AGENT_M1, "were ended").await;
    world.admin.delete(&format!("{TOKENS}/bootstrap-token-aaaaaa"), &json!({})).await.expect("deleted");
    denied(&second, "m1-ddddd", AGENT_M1, "made before the credentials of the last cluster").await;
    let third = world.token("cccccc").await;
    let agent = world.certificate(&third, "m1-eeeee", AGENT_M1).await.expect("the agent's");
    assert_eq!(world.get(&agent).await.0, 404);
    world.stop().await;
}

/// Somebody who has a token gets a certificate for a name that is free, and waits for whoever comes by that name.
#[tokio::test]
async fn nobody_has_a_certificate_in_store_for_a_cluster_that_comes_later() {
    let world = signing().await;
    let bound = async |id: &str| world.token_of(id, "system:bootstrappers:hub:m1").await;
    let early = world.token("aaaaaa").await;
    let stored = world.certificate(&early, "m1-aaaaa", AGENT_M1).await.expect("the name is free");
    assert_eq!(world.get(&stored).await.0, 404, "it may ask for its Cluster");
    let rightful = bound("bbbbbb").await;
    let agent = world.certificate(&rightful, "m1-bbbbb", AGENT_M1).await.expect("by its own token");
    let (code, why) = world.get(&stored).await;
    assert!(code == 401 && why.contains("holds no more"), "{code}: {why}");
    assert_eq!(world.get(&agent).await.0, 404, "and its own counts");
    let why = world.certificate(&early, "m1-ccccc", AGENT_M1).await.expect_err("its time is over");
    assert!(why.contains("were ended"), "{why}");
    // The same key again changes nothing, and no more does another token once an agent has registered.
    let again = world.certificate(&rightful, "m1-ddddd", AGENT_M1).await.expect("an answer was lost");
    assert_eq!((world.get(&agent).await.0, world.get(&again).await.0), (404, 404));
    assert_eq!(world.register(&agent).await.0, 201);
    let mut cluster = world.admin.get(M1).await.expect("a Cluster");
    cluster["status"] = json!({"kubernetesVersion": "v1.30.0"});
    world.admin.put(&format!("{M1}/status"), &cluster).await.expect("it reports");
    let more = bound("cccccc").await;
    world.certificate(&more, "m1-eeeee", AGENT_M1).await.expect("by a token that is newer");
    assert_eq!(world.get(&agent).await.0, 200);
    world.stop().await;
}

/// A Cluster that was made beforehand, whose agent has a certificate and has not registered yet.
#[tokio::test]
async fn what_was_given_ends_with_a_cluster_that_no_agent_has_registered() {
    let world = signing().await;
    let token = world.token("aaaaaa").await;
    let agent = world.certificate(&token, "m1-aaaaa", AGENT_M1).await.expect("the name is free");
    let running = world.cluster_comes_and_goes().await;
    let (code, why) = world.register(&agent).await;
    assert_eq!(code, 403, "{why}");
    world.stop.cancel();
    running.await.expect("the controllers end").expect("in order");
    world.embedded.close().await.expect("all is written");
}

#[tokio::test]
async fn nobody_holds_the_namespace_of_a_cluster_that_goes() {
    let world = World::start().await;
    let mut held = namespace("karmada-es-m1");
    held["spec"] = json!({"finalizers": ["x.example/y"]});
    world.admin.post("/api/v1/namespaces", &held).await.expect("a namespace");
    let running = world.cluster_comes_and_goes().await;
    world.stop.cancel();
    running.await.expect("the controllers end").expect("in order");
    world.embedded.close().await.expect("all is written");
}
