//! Users' services that say what the fields of a kind mean, over real sockets and therefore in real time.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use karmada_objects::kinds::{
    CLUSTERS, CUSTOM_RESOURCE_DEFINITIONS, PROPAGATION_POLICIES, RESOURCE_BINDINGS,
    RESOURCE_INTERPRETER_CUSTOMIZATIONS, RESOURCE_INTERPRETER_WEBHOOK_CONFIGURATIONS,
};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use crate::common::{World, condition, policy, widget_definition, widgets};

/// A service that counts a Widget's `spec.size` as its replicas.
struct Service {
    url: String,
    ca: String,
    broken: Arc<AtomicBool>,
}

impl Service {
    async fn start() -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://127.0.0.1:{}/interpret", listener.local_addr().unwrap().port());
        let broken = Arc::new(AtomicBool::new(false));
        let breaks = Arc::clone(&broken);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, breaks) = (acceptor.clone(), Arc::clone(&breaks));
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let Some(question) = read(&mut stream).await else { return };
                    let answer = answer(&question, breaks.load(Ordering::Relaxed)).to_string();
                    let head = format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                        answer.len()
                    );
                    let _ = stream.write_all(format!("{head}{answer}").as_bytes()).await;
                    let _ = stream.shutdown().await;
                });
            }
        });
        Self { url, ca: STANDARD.encode(made.cert.pem()), broken }
    }
}

/// The body of one request.
async fn read(stream: &mut (impl AsyncReadExt + Unpin)) -> Option<Value> {
    let mut text = Vec::new();
    loop {
        let mut part = [0; 4096];
        let n = stream.read(&mut part).await.ok()?;
        text.extend_from_slice(&part[..n]);
        let Some(end) = text.windows(4).position(|w| w == b"\r\n\r\n") else {
            if n == 0 {
                return None;
            }
            continue;
        };
        let head = String::from_utf8_lossy(&text[..end]).to_lowercase();
        let length: usize = head.split("content-length: ").nth(1)?.lines().next()?.trim().parse().ok()?;
        if text.len() >= end + 4 + length {
            return serde_json::from_slice(&text[end + 4..end + 4 + length]).ok();
        }
    }
}

fn answer(question: &Value, broken: bool) -> Value {
    let request = &question["request"];
    let mut response = json!({"uid": request["uid"], "successful": true});
    if broken {
        response["successful"] = json!(false);
        response["status"] = json!({"code": 500, "message": "out of order"});
    } else if request["operation"] == "InterpretReplica" {
        response["replicas"] = request["object"]["spec"]["size"].clone();
    } else {
        let patch = json!([{"op": "replace", "path": "/spec/size", "value": request["replicas"]}]);
        response["patch"] = STANDARD.encode(patch.to_string()).into();
        response["patchType"] = "JSONPatch".into();
    }
    json!({"apiVersion": question["apiVersion"], "kind": question["kind"], "response": response})
}

fn configuration(service: &Service) -> Value {
    json!({
        "apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterWebhookConfiguration",
        "metadata": {"name": "widgets"},
        "webhooks": [{
            "name": "widgets.example.com", "interpreterContextVersions": ["v1alpha1"], "timeoutSeconds": 30,
            "clientConfig": {"url": service.url, "caBundle": service.ca},
            "rules": [{"operations": ["InterpretReplica", "ReviseReplica"], "apiGroups": ["example.com"],
                       "apiVersions": ["v1"], "kinds": ["Widget"]}],
        }],
    })
}

#[tokio::test]
async fn a_service_counts_and_sets_replicas_and_what_it_decided_stays_while_it_fails() {
    let service = Service::start().await;
    let world = World::start_in_real_time().await;
    let members = [world.join("m1", json!({})).await, world.join("m2", json!({})).await];
    world.create(&CUSTOM_RESOURCE_DEFINITIONS, widget_definition()).await;
    let placement = json!({
        "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            "weightPreference": {"staticWeightList": [
                {"targetCluster": {"clusterNames": ["m1"]}, "weight": 2},
                {"targetCluster": {"clusterNames": ["m2"]}, "weight": 1}]}},
    });
    world.create(&PROPAGATION_POLICIES, policy("p", "example.com/v1", "Widget", "", placement)).await;
    world.create(&RESOURCE_INTERPRETER_WEBHOOK_CONFIGURATIONS, configuration(&service)).await;
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "default"},
        "spec": {"size": 6},
    });
    world
        .until("it can be made", || async {
            world.rest.post(&widgets().collection(Some("default")), &widget).await.ok()
        })
        .await;
    for (member, share) in members.iter().zip([4, 2]) {
        world
            .until("its share", || async {
                let manifest = member.manifest("Widget", "w").await?;
                (manifest["spec"]["size"] == share).then_some(())
            })
            .await;
    }
    let told = world.get(&CLUSTERS, "", "m1").await.unwrap();
    assert_eq!(told["metadata"]["annotations"]["agent.karmada.io/interpreter-rules"], "webhooks");

    service.broken.store(true, Ordering::Relaxed);
    world.change(&widgets(), "default", "w", |widget| widget["spec"]["size"] = 9.into()).await;
    let says = format!(
        "webhook widgets.example.com of widgets at {}: it answered with status code 500: out of order",
        service.url
    );
    world.event("w", "GetReplicasFailed", &says).await;
    let binding = world.get(&RESOURCE_BINDINGS, "default", "w-widget").await.unwrap();
    assert_eq!(binding["spec"]["replicas"], 6, "what runs stays");

    service.broken.store(false, Ordering::Relaxed);
    world
        .until("it is asked again", || async {
            let binding = world.get(&RESOURCE_BINDINGS, "default", "w-widget").await?;
            let well = condition(&binding, "TemplateInterpreted").is_null();
            (binding["spec"]["replicas"] == 9 && well).then_some(())
        })
        .await;

    // A script goes before a service.
    let script = json!({
        "apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterCustomization",
        "metadata": {"name": "widgets"},
        "spec": {"target": {"apiVersion": "example.com/v1", "kind": "Widget"}, "customizations": {
            "replicaResource": {"luaScript": "function GetReplicas(o) return 3, nil end"}}},
    });
    world.create(&RESOURCE_INTERPRETER_CUSTOMIZATIONS, script).await;
    world
        .until("by the script", || async {
            let binding = world.get(&RESOURCE_BINDINGS, "default", "w-widget").await?;
            (binding["spec"]["replicas"] == 3).then_some(())
        })
        .await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_cannot_work_is_refused_by_field() {
    let world = World::start().await;
    let service = Service { url: "http://a.example".into(), ca: String::new(), broken: Arc::default() };
    let path = RESOURCE_INTERPRETER_WEBHOOK_CONFIGURATIONS.collection(None);
    let refused = world.rest.post(&path, &configuration(&service)).await.unwrap_err();
    assert_eq!(refused.code(), Some(422));
    let says =
        "webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme";
    assert!(refused.to_string().contains(says), "{refused}");
    world.stop().await;
}
