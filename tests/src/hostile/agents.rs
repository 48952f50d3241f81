//! What one certified agent, or a user with narrow rights, can do to a hub by asking too much.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::join_all;
use http::Method;
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::{
    attack::{BREATH, Scene},
    bodies::{inserts_at_the_front, works_of},
    client::{Answer, Ask, Wire},
    frames::{Raw, kind},
    ground::{LEASES, MALLORY, cluster, micro_time, own_work, works},
};

/// Of an answer to an attack hardly anything is kept.
const KEPT: usize = 256;
/// Bytes that one attack may store.
const STORED: u64 = 400 << 20;

/// What the figure is about: all of it at once.
pub(super) async fn everything(scene: Scene) {
    let all: [std::pin::Pin<Box<dyn Future<Output = ()> + Send>>; 6] = [
        Box::pin(stalled(scene.clone())),
        Box::pin(streams(scene.clone())),
        Box::pin(works_at_the_limit(scene.clone())),
        Box::pin(lists(scene.clone())),
        Box::pin(watches(scene.clone())),
        Box::pin(openapi(scene)),
    ];
    join_all(all).await;
}

pub(super) async fn stalled(scene: Scene) {
    let path = works(MALLORY);
    let once = move |wire: Wire, _| {
        let path = path.clone();
        async move { wire.ask(Ask::post(&path, "{").stalled().keep(KEPT)).await }
    };
    scene.flood(&scene.people.mallory, 1, 400, once).await;
}

/// Bodies that stall with their last bytes: all that came before has to be held somewhere.
pub(super) async fn heavy(scene: Scene) {
    let path = works(MALLORY);
    let body: Bytes = format!("{{\"a\":\"{}", "0123456789abcdef".repeat(2_900_000 / 16)).into();
    let once = move |wire: Wire, _| {
        let (path, body) = (path.clone(), body.clone());
        async move { wire.ask(Ask::post(&path, body).stalled().keep(KEPT)).await }
    };
    scene.flood(&scene.people.mallory, 3, 100, once).await;
}

/// Renewals of its own Lease, some of them stalled: what is kept free for Leases is kept free for others', too.
pub(super) async fn leases(scene: Scene) {
    let path = format!("{LEASES}/{MALLORY}");
    let once = move |wire: Wire, n: u64| {
        let path = path.clone();
        async move {
            let patch = json!({ "spec": { "renewTime": micro_time() } }).to_string();
            let ask = Ask::merge(&path, patch).keep(KEPT);
            wire.ask(if n.is_multiple_of(2) { ask } else { ask.stalled() }).await
        }
    };
    scene.flood(&scene.people.mallory, 2, 300, once).await;
}

pub(super) async fn streams(scene: Scene) {
    let once = |wire: Wire, _| async move { wire.ask(Ask::get(&cluster(MALLORY)).keep(KEPT)).await };
    scene.flood(&scene.people.mallory, 2, 1000, once).await;
}

pub(super) async fn works_at_the_limit(scene: Scene) {
    const SHAPES: [&str; 6] =
        ["owners", "annotations", "finalizers", "whole manifests", "managed fields", "deep manifests"];
    let bodies: Arc<Vec<Bytes>> = Arc::new(SHAPES.iter().map(|shape| works_of(shape).into()).collect());
    let path = works(MALLORY);
    let once = move |wire: Wire, n: u64| {
        let (path, body) = (path.clone(), bodies[n as usize % bodies.len()].clone());
        async move {
            let answer = wire.ask(Ask::post(&path, body).keep(KEPT)).await;
            if matches!(&answer, Ok(answer) if answer.code == 201) {
                // The next one has this name, too.
                let gone = wire.ask(Ask::delete(&format!("{path}/big")).keep(KEPT)).await?;
                if gone.code == 200 && !String::from_utf8_lossy(&gone.body).contains("\"Success\"") {
                    unfinalize(&wire, &path).await?;
                }
            }
            answer
        }
    };
    scene.flood(&scene.people.mallory, 4, 1, once).await;
}

/// Lets a Work go that has finalizers.
async fn unfinalize(wire: &Wire, path: &str) -> io::Result<Answer> {
    let patch = json!({ "metadata": { "finalizers": null } }).to_string();
    wire.ask(Ask::merge(&format!("{path}/big"), patch).keep(KEPT)).await
}

/// A Work of the agent's own, if it is not there yet.
async fn kept(scene: &Scene, name: &str, data: &str) {
    let made = scene
        .people
        .mallory
        .ask(Ask::post(&works(MALLORY), own_work(name, data).to_string()).keep(KEPT))
        .await;
    if !matches!(&made, Ok(made) if matches!(made.code, 201 | 409)) {
        scene.tally.add(format!("no Work to begin with: {:?}", made.map(|made| made.code)));
    }
}

pub(super) async fn patches(scene: Scene) {
    kept(&scene, "patched", "v").await;
    let copies = {
        let mut text = String::from(r#"[{"op":"add","path":"/metadata/annotations","value":{}}"#);
        for n in 0..30_000 {
            text.push_str(&format!(
                r#",{{"op":"copy","from":"/spec","path":"/metadata/annotations/k{}"}}"#,
                99_999 - n
            ));
        }
        text + "]"
    };
    let finalizers = format!(
        r#"[{{"op":"add","path":"/metadata/finalizers","value":[]}},{}"#,
        &inserts_at_the_front("/metadata/finalizers", "\"a.io/f\"")[1..]
    );
    let bodies: Arc<[Bytes; 3]> = Arc::new([
        inserts_at_the_front(
            "/spec/workload/manifests",
            r#"{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice"}"#,
        )
        .into(),
        finalizers.into(),
        copies.into(),
    ]);
    let path = format!("{}/patched?dryRun=All", works(MALLORY));
    let once = move |wire: Wire, n: u64| {
        let (path, body) = (path.clone(), bodies[n as usize % bodies.len()].clone());
        async move { wire.ask(Ask::patch(&path, body).keep(KEPT)).await }
    };
    scene.flood(&scene.people.mallory, 4, 1, once).await;
}

pub(super) async fn applies(scene: Scene) {
    let bodies: Arc<Vec<Bytes>> = Arc::new(
        ["annotations", "finalizers", "one wide manifest"]
            .iter()
            .map(|shape| works_of(shape).replacen("\"name\":\"big\"", "\"name\":\"applied\"", 1).into())
            .collect(),
    );
    let once = move |wire: Wire, n: u64| {
        let body = bodies[n as usize % bodies.len()].clone();
        let path = format!("{}/applied?fieldManager=m{}&force=true&dryRun=All", works(MALLORY), n % 4);
        async move {
            wire.ask(Ask::by(Method::PATCH, &path, "application/apply-patch+yaml", body).keep(KEPT)).await
        }
    };
    scene.flood(&scene.people.mallory, 4, 1, once).await;
}

pub(super) async fn lists(scene: Scene) {
    for n in 0..20 {
        kept(&scene, &format!("listed-{n}"), &"0123456789abcdef".repeat(4_000)).await;
    }
    let paths = [
        works(MALLORY),
        format!("{}?limit=1", works(MALLORY)),
        format!("/apis/cluster.karmada.io/v1alpha1/clusters?fieldSelector=metadata.name%3D{MALLORY}"),
        "/apis/config.karmada.io/v1alpha1/resourceinterpretercustomizations".to_owned(),
        "/apis/config.karmada.io/v1alpha1/resourceinterpreterwebhookconfigurations".to_owned(),
        "/apis".to_owned(),
        "/api/v1".to_owned(),
    ];
    ask_for(&scene, paths.into(), 2, 32).await;
}

pub(super) async fn openapi(scene: Scene) {
    let paths = ["/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1", "/openapi/v3/apis/apps/v1"];
    ask_for(&scene, paths.map(str::to_owned).into(), 2, 16).await;
}

async fn ask_for(scene: &Scene, paths: Vec<String>, connections: usize, width: usize) {
    let paths = Arc::new(paths);
    let once = move |wire: Wire, n: u64| {
        let path = paths[n as usize % paths.len()].clone();
        async move { wire.ask(Ask::get(&path).keep(KEPT)).await }
    };
    scene.flood(&scene.people.mallory, connections, width, once).await;
}

pub(super) async fn forbidden(scene: Scene) {
    let other = &scene.people.agents.first().map_or("site-00", |(name, _)| name.as_str());
    let paths = vec![
        works(other),
        format!("{}?watch=true", works(other)),
        "/apis/work.karmada.io/v1alpha1/works?watch=true".to_owned(),
        "/apis/cluster.karmada.io/v1alpha1/clusters?watch=true".to_owned(),
        "/api/v1/secrets".to_owned(),
        "/api/v1/namespaces/karmada-cluster/secrets?watch=true&timeoutSeconds=9223372036854775807".to_owned(),
        "/metrics".to_owned(),
        "/karmada-hub/store".to_owned(),
    ];
    let tally = scene.tally.clone();
    let paths = Arc::new(paths);
    let once = move |wire: Wire, n: u64| {
        let (path, tally) = (paths[n as usize % paths.len()].clone(), tally.clone());
        async move {
            let answer = wire.ask(Ask::get(&path).keep(KEPT)).await;
            if matches!(&answer, Ok(answer) if answer.code < 400) {
                tally.wrong(format!("GET {path} was answered"));
            }
            answer
        }
    };
    scene.flood(&scene.people.mallory, 2, 32, once).await;
}

pub(super) async fn watches(scene: Scene) {
    let once = |wire: Wire, n: u64| async move {
        let path = match n % 6 {
            // Ends that no clock can reach.
            3 => format!("{}?watch=true&timeoutSeconds=9223372036854775807", works(MALLORY)),
            4 => format!("{}?watch=true&timeoutSeconds=18446744073709551615&timeout=9999999h", works(MALLORY)),
            0 => format!("{}?watch=true&resourceVersion=0", works(MALLORY)),
            1 => format!("{}?watch=true", works(MALLORY)),
            _ => "/apis/config.karmada.io/v1alpha1/resourceinterpretercustomizations?watch=true&resourceVersion=1".to_owned(),
        };
        let answer = wire.open(Ask::get(&path)).await?;
        // The body is dropped: the watch is given up at once.
        Ok(Answer { code: answer.status().as_u16(), body: Vec::new() })
    };
    scene.flood(&scene.people.mallory, 2, 64, once).await;
}

pub(super) async fn fan_out(scene: Scene) {
    kept(&scene, "fanned", &"0123456789abcdef".repeat(6_400)).await;
    let path = format!("{}?watch=true", works(MALLORY));
    let mut held = Vec::new();
    for _ in 0..2 {
        let Ok(Ok(mut raw)) = timeout(scene.left(), Raw::open(&scene.people.mallory, 0)).await else {
            scene.tally.add("no connection");
            continue;
        };
        for _ in 0..900 {
            raw.request("GET", &path);
        }
        if raw.flush().await.is_ok() {
            held.push(raw);
        }
    }
    let fanned = format!("{}/fanned", works(MALLORY));
    let once = move |wire: Wire, n: u64| {
        let fanned = fanned.clone();
        async move {
            let patch = json!({ "metadata": { "annotations": { "n": n.to_string() } } }).to_string();
            wire.ask(Ask::merge(&fanned, patch).keep(KEPT)).await
        }
    };
    scene.flood(&scene.people.mallory, 1, 4, once).await;
}

pub(super) async fn unread(scene: Scene) {
    for n in 0..10 {
        kept(&scene, &format!("unread-{n}"), &"0123456789abcdef".repeat(60_000)).await;
    }
    let mut held = Vec::new();
    for _ in 0..2 {
        let Ok(Ok(mut raw)) = timeout(scene.left(), Raw::open(&scene.people.mallory, 0)).await else {
            scene.tally.add("no connection");
            continue;
        };
        for n in 0..750 {
            let path = if n % 2 == 0 { works(MALLORY) } else { "/openapi/v2".to_owned() };
            raw.request("GET", &path);
        }
        match timeout(scene.left(), raw.flush()).await {
            Ok(Ok(())) => held.push(raw),
            _ => scene.tally.add("broken"),
        }
    }
    sleep(scene.left()).await;
}

pub(super) async fn resets(scene: Scene) {
    const BATCH: u64 = 100;
    let path = works(MALLORY);
    raws(&scene, Duration::from_millis(10), |raw, _| {
        for _ in 0..BATCH {
            let stream = raw.request("GET", &path);
            raw.reset(stream);
        }
    })
    .await;
}

pub(super) async fn continuations(scene: Scene) {
    raws(&scene, Duration::from_millis(5), |raw, n| {
        let stream = if n == 0 { raw.endless("GET", "/readyz") } else { 1 };
        for part in 0..8 {
            raw.more(stream, n * 8 + part);
        }
    })
    .await;
}

pub(super) async fn pings(scene: Scene) {
    raws(&scene, Duration::from_millis(10), |raw, n| {
        for at in 0..250 {
            raw.frame(kind::PING, 0, 0, &(n * 250 + at).to_be_bytes());
            raw.frame(kind::SETTINGS, 0, 0, &[]);
        }
    })
    .await;
}

/// Writes by hand, again and again; a connection that the server ended is made anew.
async fn raws(scene: &Scene, pause: Duration, fill: impl Fn(&mut Raw, u64)) {
    while !scene.is_over() {
        let Ok(Ok(mut raw)) = timeout(scene.left(), Raw::open(&scene.people.mallory, 1 << 20)).await else {
            scene.tally.add("no connection");
            sleep(BREATH).await;
            continue;
        };
        scene.tally.add("connections");
        let mut n = 0;
        while !scene.is_over() && !raw.is_over() {
            fill(&mut raw, n);
            n += 1;
            if !matches!(timeout(scene.left(), raw.flush()).await, Ok(Ok(()))) {
                break;
            }
            scene.tally.add("batches");
            sleep(pause).await;
        }
    }
}

pub(super) async fn headers(scene: Scene) {
    let long: Arc<str> = "v".repeat(3_900).into();
    let once = move |wire: Wire, _| {
        let long = long.clone();
        async move {
            const NAMES: [&str; 8] = ["x-a", "x-b", "x-c", "x-d", "x-e", "x-f", "x-g", "x-h"];
            let mut ask = Ask::get("/version").keep(KEPT);
            for n in 0..48 {
                ask = ask.with(NAMES[n % 8], &*long);
            }
            wire.ask(ask).await
        }
    };
    scene.flood(&scene.people.mallory, 2, 32, once).await;
}

pub(super) async fn connections(scene: Scene) {
    let held = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let (who, tally) = (scene.people.mallory.clone(), scene.tally.clone());
    scene
        .paced(250, 64, |n| {
            let (who, tally, held) = (who.clone(), tally.clone(), held.clone());
            async move {
                if n >= 2_000 {
                    return;
                }
                match who.dial("h2").await {
                    Ok(stream) => {
                        tally.add("held");
                        held.lock().push(stream);
                    }
                    Err(_) => tally.add("refused"),
                }
            }
        })
        .await;
}

pub(super) async fn churn(scene: Scene) {
    let once = |wire: Wire, n: u64| async move {
        let name = format!("churn-{n}");
        let answer =
            wire.ask(Ask::post(&works(MALLORY), own_work(&name, "v").to_string()).keep(KEPT)).await?;
        if answer.code == 201 {
            return wire.ask(Ask::delete(&format!("{}/{name}", works(MALLORY))).keep(KEPT)).await;
        }
        Ok(answer)
    };
    scene.flood(&scene.people.mallory, 2, 32, once).await;
}

pub(super) async fn reports(scene: Scene) {
    let once = |wire: Wire, n: u64| async move {
        let apis: Vec<String> = (0..3_000)
            .map(|group| {
                format!(r#"{{"groupVersion":"g{group}.v{n}.io/v1","resources":[{{"name":"k","kind":"K"}}]}}"#)
            })
            .collect();
        let body = format!(r#"{{"status":{{"apiEnablements":[{}]}}}}"#, apis.join(","));
        wire.ask(Ask::merge(&format!("{}/status", cluster(MALLORY)), body).keep(KEPT)).await
    };
    scene.flood(&scene.people.mallory, 2, 4, once).await;
}

pub(super) async fn events(scene: Scene) {
    let filler: Arc<str> = "m".repeat(100_000).into();
    let stored = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let once = move |wire: Wire, n: u64| {
        let (filler, stored) = (filler.clone(), stored.clone());
        async move {
            if stored.fetch_add(100_000, std::sync::atomic::Ordering::Relaxed) > STORED {
                sleep(Duration::from_millis(200)).await;
            }
            let namespace = format!("karmada-es-{MALLORY}");
            let event = json!({
                "apiVersion": "v1", "kind": "Event",
                "metadata": { "name": format!("e-{n}"), "namespace": namespace, "annotations": { "a": &*filler } },
                "involvedObject": { "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "namespace": namespace, "name": "kept" },
                "reason": "Hostile", "message": "m", "type": "Normal",
            });
            wire.ask(
                Ask::post(&format!("/api/v1/namespaces/{namespace}/events"), event.to_string()).keep(KEPT),
            )
            .await
        }
    };
    scene.flood(&scene.people.mallory, 2, 16, once).await;
}

pub(super) async fn storage(scene: Scene) {
    let filler: Arc<str> = "0123456789abcdef".repeat(2_500_000 / 16).into();
    let stored = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let tally = scene.tally.clone();
    let once = move |wire: Wire, n: u64| {
        let (filler, stored, tally) = (filler.clone(), stored.clone(), tally.clone());
        async move {
            let held = stored.load(std::sync::atomic::Ordering::Relaxed);
            if held > STORED {
                tally.wrong("400 MB were stored by one agent, and more would be");
                sleep(Duration::from_secs(1)).await;
            }
            let body = own_work(&format!("stored-{n}"), &filler).to_string();
            let answer = wire.ask(Ask::post(&works(MALLORY), body).keep(KEPT)).await?;
            if answer.code == 201 {
                stored.fetch_add(filler.len() as u64, std::sync::atomic::Ordering::Relaxed);
            }
            Ok(answer)
        }
    };
    scene.flood(&scene.people.mallory, 2, 2, once).await;
}

pub(super) async fn reviews(scene: Scene) {
    let once = |wire: Wire, n: u64| async move {
        if n.is_multiple_of(4) {
            return wire.ask(Ask::get("/openapi/v2").keep(KEPT)).await;
        }
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": { "verb": "list", "resource": "secrets", "namespace": format!("n{n}") } },
        });
        wire.ask(
            Ask::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review.to_string())
                .keep(KEPT),
        )
        .await
    };
    scene.flood(&scene.people.user, 2, 32, once).await;
}
