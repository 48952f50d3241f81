//! What somebody can do to a hub who has no certificate: everything up to the end of a handshake, and a little after it.

use std::{collections::VecDeque, io::Cursor, sync::Arc, time::Duration};

use http::Method;
use karmada_apiserver::pki::Pki;
use karmada_env::Env;
use parking_lot::Mutex;
use rustls::ClientConnection;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};

use super::{
    attack::Scene,
    client::{Ask, Identity, Wire},
    ground::MALLORY,
};

/// Sockets that an attack keeps open on this side; what is beyond is closed, the oldest first.
const HELD: usize = 4_000;
/// Attempts to connect at once.
const DIALS: usize = 512;
const KEPT: usize = 256;

/// Connections that are kept open without anybody looking at them.
#[derive(Clone, Default)]
struct Heap(Arc<Mutex<VecDeque<TcpStream>>>);

impl Heap {
    fn hold(&self, stream: TcpStream) {
        let mut heap = self.0.lock();
        if heap.len() == HELD {
            heap.pop_front();
        }
        heap.push_back(stream);
    }
}

/// So many connections a second from so many addresses; each says something and is then held open.
async fn held(scene: Scene, per_second: u32, addresses: u32, says: impl Fn(u32) -> Vec<u8>) {
    let (heap, tally, people) = (Heap::default(), scene.tally.clone(), scene.people.clone());
    scene
        .paced(per_second, DIALS, |n| {
            let who = people.stranger_from(n % addresses);
            let (heap, tally, bytes) = (heap.clone(), tally.clone(), says(n));
            async move {
                let Ok(Ok(mut stream)) = timeout(Duration::from_secs(3), who.tcp()).await else {
                    return tally.add("no connection");
                };
                if !bytes.is_empty() && stream.write_all(&bytes).await.is_err() {
                    return tally.add("reset");
                }
                tally.add("connections");
                heap.hold(stream);
            }
        })
        .await;
}

/// The first byte of a handshake.
fn one_byte(_: u32) -> Vec<u8> {
    vec![0x16]
}

pub(super) async fn one_byte_200(scene: Scene) {
    held(scene, 200, 1, one_byte).await;
}

pub(super) async fn one_byte_1000(scene: Scene) {
    held(scene, 1_000, 1, one_byte).await;
}

pub(super) async fn one_byte_many(scene: Scene) {
    held(scene, 1_000, 50, one_byte).await;
}

pub(super) async fn silent(scene: Scene) {
    held(scene, 1_000, 50, |_| Vec::new()).await;
}

pub(super) async fn garbage(scene: Scene) {
    let seed = scene.seed as u8;
    held(scene, 1_000, 50, move |n| {
        // Of any kind, also what looks like the start of a record.
        let mut bytes: Vec<u8> = (0..600_u32).map(|at| (at.wrapping_mul(n | 1) >> 3) as u8 ^ seed).collect();
        if n % 2 == 0 {
            bytes[..5].copy_from_slice(&[0x16, 3, 1, 2, 0]);
        }
        bytes
    })
    .await;
}

pub(super) async fn plain(scene: Scene) {
    held(scene, 1_000, 50, |_| b"GET /readyz HTTP/1.1\r\nHost: hub\r\n\r\n".to_vec()).await;
}

/// A whole ClientHello of somebody's.
fn hello(who: &Identity) -> Vec<u8> {
    let (config, name) = who.tls();
    let mut bytes = Cursor::new(Vec::new());
    if let Ok(mut connection) = ClientConnection::new(config, name) {
        while connection.wants_write() {
            if connection.write_tls(&mut bytes).is_err() {
                break;
            }
        }
    }
    bytes.into_inner()
}

pub(super) async fn hellos(scene: Scene) {
    // Keys cost the attacker time, too: these few are sent again and again.
    let hellos: Vec<Vec<u8>> = (0..16).map(|_| hello(&scene.people.stranger)).collect();
    held(scene, 1_000, 50, move |n| hellos[n as usize % hellos.len()].clone()).await;
}

pub(super) async fn slow_hellos(scene: Scene) {
    let (tally, people) = (scene.tally.clone(), scene.people.clone());
    let hello: Arc<[u8]> = hello(&scene.people.stranger).into();
    scene
        .paced(200, HELD, |n| {
            let who = people.stranger_from(n % 8);
            let (tally, hello) = (tally.clone(), hello.clone());
            async move {
                let Ok(Ok(mut stream)) = timeout(Duration::from_secs(3), who.tcp()).await else {
                    return tally.add("no connection");
                };
                tally.add("connections");
                for byte in hello.iter() {
                    if stream.write_all(&[*byte]).await.is_err() {
                        return tally.add("ended by the hub");
                    }
                    sleep(Duration::from_millis(250)).await;
                }
            }
        })
        .await;
}

pub(super) async fn handshakes(scene: Scene) {
    let (tally, people) = (scene.tally.clone(), scene.people.clone());
    scene
        .paced(200, DIALS, |n| {
            let who = people.stranger_from(n % 8);
            let tally = tally.clone();
            async move {
                match timeout(Duration::from_secs(10), who.dial("h2")).await {
                    Ok(Ok(_)) => tally.add("handshakes"),
                    Ok(Err(_)) => tally.add("refused"),
                    Err(_) => tally.add("too late"),
                }
            }
        })
        .await;
}

pub(super) async fn slow_headers(scene: Scene) {
    let (tally, people) = (scene.tally.clone(), scene.people.clone());
    let left = scene.clone();
    scene
        .paced(100, 400, |n| {
            let who = people.stranger_from(n % 8);
            let (tally, scene) = (tally.clone(), left.clone());
            async move {
                let Ok(Ok(mut stream)) = timeout(Duration::from_secs(10), who.dial("http/1.1")).await else {
                    return tally.add("refused");
                };
                tally.add("handshakes");
                let line = format!("x-{n}: {}\r\n", "v".repeat(16_000));
                let mut sent = stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: hub\r\n").await;
                for _ in 0..56 {
                    if sent.is_err() || scene.is_over() {
                        break;
                    }
                    sent = stream.write_all(line.as_bytes()).await;
                    let _ = stream.flush().await;
                }
                if sent.is_err() {
                    return tally.add("ended by the hub");
                }
                let mut answer = [0; 12];
                match timeout(scene.left(), stream.read(&mut answer)).await {
                    Ok(Ok(0) | Err(_)) => tally.add("ended by the hub"),
                    Ok(Ok(_)) => tally.add(String::from_utf8_lossy(&answer).trim().to_owned()),
                    Err(_) => tally.add("held to the end"),
                }
            }
        })
        .await;
}

pub(super) async fn anonymous(scene: Scene) {
    const PATHS: [&str; 5] = ["/readyz", "/version", "/apis", "/api/v1/secrets", "/metrics"];
    let tally = scene.tally.clone();
    let once = move |wire: Wire, n: u64| {
        let tally = tally.clone();
        async move {
            let path = PATHS[n as usize % PATHS.len()];
            let answer = wire.ask(Ask::get(path).keep(KEPT)).await?;
            if answer.code < 400 && !matches!(path, "/readyz" | "/version") {
                tally.wrong(format!("{path} was answered to nobody"));
            }
            Ok(answer)
        }
    };
    let who = scene.people.stranger_from(1);
    scene.flood(&who, 4, 64, once).await;
}

/// An agent of another authority's.
pub(super) fn of_another_authority(who: &Identity) -> Result<Identity, String> {
    let env = Env::system();
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let pki = Pki::open_or_create(dir.path(), &["localhost".to_owned()], &env).map_err(|e| e.to_string())?;
    let user = format!("system:node:{MALLORY}");
    let hour = Duration::from_secs(3600);
    let credential = pki.issue_client(&user, "system:masters", hour).map_err(|e| e.to_string())?;
    let text = pki.kubeconfig(&format!("https://{}", who.server()), &user, &credential);
    Ok(Identity::parse("forged", &text).trusting(who))
}

pub(super) async fn forged(scene: Scene) {
    let forged = match of_another_authority(&scene.people.stranger) {
        Ok(forged) => forged,
        Err(why) => return scene.tally.add(why),
    };
    let tally = scene.tally.clone();
    scene
        .paced(100, DIALS, |_| {
            let (who, tally) = (forged.clone(), tally.clone());
            async move {
                let answer =
                    timeout(Duration::from_secs(10), who.ask(Ask::get("/api/v1/secrets").keep(KEPT))).await;
                match answer {
                    Ok(answer) => {
                        if matches!(&answer, Ok(answer) if answer.code < 400) {
                            tally.wrong("a certificate of another authority was taken");
                        }
                        tally.answer(&answer);
                    }
                    Err(_) => tally.add("too late"),
                }
            }
        })
        .await;
}

pub(super) async fn labels(scene: Scene) {
    let once = |wire: Wire, n: u64| async move {
        let (method, path) = match n % 4 {
            0 => (Method::GET, format!("/apis/g{n}.io/v1/things{n}")),
            1 => (Method::from_bytes(format!("X{n}").as_bytes()).unwrap_or_default(), format!("/p{n}")),
            2 => (Method::GET, format!("/api/v1/namespaces/ns{n}/kinds{n}/name/sub{n}")),
            _ => (Method::PATCH, format!("/apis/apps/v{n}/deployments")),
        };
        wire.ask(Ask::by(method, &path, "", "").with("user-agent", format!("agent-{n}/1")).keep(KEPT)).await
    };
    let who = scene.people.stranger_from(2);
    scene.flood(&who, 2, 32, once).await;
}
