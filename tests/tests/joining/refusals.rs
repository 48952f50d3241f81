//! What is refused: invitations, old protocols, what is forged or spent.

use std::{fs, process::Command};

use karmada_tests::{
    fleet::{cluster_path, condition, server_of},
    samples::condition_of,
    wait::{PATIENCE, until},
};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::world::{CLUSTER, PROGRAM, World};

/// Somebody mistypes the digest, then the token: what works goes on, and what was mended is taken without a restart.
#[tokio::test]
async fn an_invitation_that_is_wrong_stops_no_agent_that_works() {
    let Some(world) = World::start("mistyped", &[]).await else { return };
    let line = world.line(CLUSTER);
    let mut agent = world.agent(&line);
    world.fleet.ready(CLUSTER).await;
    agent.terminate(PATIENCE).await.unwrap();
    let next = world.line(CLUSTER);
    let value = |name: &str| next.windows(2).find(|pair| pair[0] == name).unwrap()[1].clone();
    let (good, digest) = (value("--token"), value("--ca-cert-hash"));
    let file = world.at("token");
    let wrong = |bad: &str| match bad {
        "digest" => (good.clone(), format!("sha256:{}", "0".repeat(64)), "--ca-cert-hash says"),
        _ => ("abcdef.0123456789abcdef".to_owned(), digest.clone(), "is not signed by the token abcdef"),
    };
    for bad in ["digest", "token"] {
        let (token, digest, why) = wrong(bad);
        fs::write(&file, token).unwrap();
        let args = [
            "--hub".to_owned(),
            value("--hub"),
            format!("--token-file={}", file.display()),
            format!("--ca-cert-hash={digest}"),
            format!("--cluster-name={CLUSTER}"),
        ];
        let mut agent = world.agent(&args);
        let told = until(&world.fleet.api, &cluster_path(CLUSTER), "told", PATIENCE, |cluster| {
            condition_of(cluster, "InvitationNotTaken")
                .is_some_and(|said| said["message"].as_str().is_some_and(|said| said.contains(why)))
        })
        .await;
        assert_eq!(condition(&told, "InvitationNotTaken"), Some("True"));
        world.reaches("karmada_agent_lease_renewals_total", 2.0).await;
        assert!(agent.is_running() && agent.log_tail(200).contains("cannot join by the invitation"), "{bad}");
        if bad == "token" {
            fs::write(&file, &good).unwrap();
            until(&world.fleet.api, &cluster_path(CLUSTER), "told that it is over", PATIENCE, |cluster| {
                condition_of(cluster, "InvitationNotTaken").is_none()
            })
            .await;
            let kept = fs::read_to_string(world.at("state/joined-by")).unwrap();
            assert!(good.starts_with(kept.split(' ').next().unwrap()), "{kept}");
        }
        agent.terminate(PATIENCE).await.unwrap();
    }
}

/// The same hello is answered or not by the version of TLS that it offers.
#[tokio::test]
async fn an_old_tls_is_refused() {
    let Some(world) = World::start("old-tls", &[]).await else { return };
    let address = server_of(&world.fleet.kubeconfig);
    let extensions: [&[u8]; 3] = [
        // secp256r1 and x25519; points as they are; ECDSA and RSA with SHA-256.
        &[0, 10, 0, 6, 0, 4, 0, 23, 0, 29],
        &[0, 11, 0, 2, 1, 0],
        &[0, 13, 0, 8, 0, 6, 4, 3, 8, 4, 4, 1],
    ];
    let extensions = extensions.concat();
    for (minor, answered) in [(1_u8, false), (2, false), (3, true)] {
        let mut hello = vec![3, minor];
        hello.extend([7; 32]);
        // No session; ECDHE with ECDSA or RSA, AES-128-GCM and AES-128-CBC; no compression.
        hello.extend([0, 0, 8, 0xc0, 0x2b, 0xc0, 0x2f, 0xc0, 0x09, 0xc0, 0x13, 1, 0]);
        hello.extend([0, extensions.len() as u8]);
        hello.extend(&extensions);
        let mut record = vec![22, 3, 1, 0, hello.len() as u8 + 4, 1, 0, 0, hello.len() as u8];
        record.extend(hello);
        let mut io = tokio::net::TcpStream::connect(address).await.unwrap();
        io.write_all(&record).await.unwrap();
        let mut answer = [0; 7];
        tokio::time::timeout(PATIENCE, io.read_exact(&mut answer)).await.unwrap().unwrap();
        // A handshake goes on, or a fatal alert ends it.
        let is = (answer[0] == 22, answer[0] == 21 && answer[5] == 2);
        assert_eq!(is, (answered, !answered), "TLS 1.{}: {answer:?}", minor - 1);
    }
}

#[tokio::test]
async fn what_is_forged_or_spent_is_refused_with_the_reason() {
    let Some(world) = World::start("forged", &[]).await else { return };
    let Some(other) = World::start("forger", &[]).await else { return };
    let (line, others) = (world.line(CLUSTER), other.line(CLUSTER));
    let of = |line: &[String], flag: &str| {
        let at = line.iter().position(|word| word == flag).unwrap();
        line[at + 1].clone()
    };
    let join = |hub: &str, token: &str, hash: &str, cluster: &str| {
        let output = Command::new(PROGRAM)
            .args(["karmada-agent", "join", "--join-only", "--hub", hub, "--token", token])
            .args(["--ca-cert-hash", hash, "--cluster-name", cluster])
            .arg(format!("--state-dir={}", world.at(&format!("try-{cluster}")).display()))
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (hub, token, hash) = (of(&line, "--hub"), of(&line, "--token"), of(&line, "--ca-cert-hash"));
    let (other_hub, other_token, other_hash) =
        (of(&others, "--hub"), of(&others, "--token"), of(&others, "--ca-cert-hash"));
    let mistyped = format!("{}{}", &token[..22], if token.ends_with('x') { 'y' } else { 'x' });
    let rows = [
        (&other_hub, &token, &hash, CLUSTER, "is not signed by the token"),
        (
            &other_hub,
            &other_token,
            &hash,
            CLUSTER,
            "it is another hub, or somebody on the way pretends to be it",
        ),
        (&hub, &token, &other_hash, CLUSTER, "it is another hub"),
        (&hub, &mistyped, &hash, CLUSTER, "is mistyped, or somebody on the way has changed the cluster-info"),
        (&hub, &token, &hash, "member2", "is for cluster \"member1\", not for \"member2\""),
    ];
    for (hub, token, hash, cluster, want) in rows {
        let (code, said) = join(hub, token, hash, cluster);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(want), "{said}\n{want}");
        assert!(!said.contains(&token[7..]), "a token's secret is not said: {said}");
    }
    // A token that signs nothing, as where somebody on the way takes the signature out.
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    let mute = json!({"metadata": {"name": "bootstrap-token-mutemu"}, "type": "bootstrap.kubernetes.io/token", "stringData": {
        "token-id": "mutemu", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
        "auth-extra-groups": "system:bootstrappers:hub:member1"}});
    world.fleet.api.post(secrets, &mute).await.unwrap();
    let (code, said) = join(&hub, "mutemu.0123456789abcdef", &hash, CLUSTER);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("somebody on the way has taken the signature out"), "{said}");
    // It is still good for whom it was made.
    assert_eq!(join(&hub, &token, &hash, CLUSTER).0, Some(0));
    world.fleet.command(&[
        "token",
        "delete",
        &token,
        &format!("--kubeconfig={}", world.fleet.kubeconfig.display()),
    ]);
    let (code, said) = join(&hub, &token, &hash, "member3");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("has expired or was deleted"), "{said}");
}
