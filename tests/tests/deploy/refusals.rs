//! What is wrong is said in one line.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    process::Command,
    time::Duration,
};

use karmada_apiserver::pki::Pki;
use karmada_client::Patch;
use karmada_env::Env;
use karmada_tests::{
    fleet::cluster_path,
    process::own_address,
    wait::{PATIENCE, gone},
};
use serde_json::{Value, json};

use crate::world::*;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_said_in_one_line() {
    let Some(world) = World::start("wrong", false).await else { return };
    let path = |name: &str| world.at(name).display().to_string();
    let credentials = path("credentials");
    let member = world.member_config.display().to_string();
    let admin = world.fleet.kubeconfig.display().to_string();
    let write = |name: &str, text: &str| {
        fs::write(world.at(name), text).expect("a file is written");
        path(name)
    };
    let closed = own_address();
    let text = |file: &str| fs::read_to_string(file).expect("a file");
    let server = |file: &str| {
        let config: Value = serde_saphyr::from_str(&text(file)).expect("YAML");
        config["clusters"][0]["cluster"]["server"].as_str().expect("a server").to_owned()
    };
    let silent_hub =
        write("silent-hub", &text(&credentials).replace(&server(&credentials), &format!("https://{closed}")));
    let silent_member =
        write("silent-member", &text(&member).replace(&server(&member), &format!("https://{closed}")));
    let not_yaml = write("not-yaml", "{{{");
    let mut plugin = read_yaml(&world.credentials);
    plugin["users"][0]["user"] = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "aws",
                                                 "interactiveMode": "Never"}});
    let plugin = write("plugin", &plugin.to_string());
    let env = Env::system();
    let pki = Pki::open(&world.at("member"), &env).expect("the member's keys");
    let nobody = pki.issue_client("nobody", "nogroup", Duration::from_secs(3600)).expect("a certificate");
    let nobody = write("nobody", &pki.kubeconfig(&server(&member), "nobody", &nobody));
    world.make_credentials("member2", &world.at("for-member2"));
    let for_member2 = path("for-member2");

    let before = world.state().await;
    let long = "m".repeat(49);
    let ok = ["--cluster-name=member1", "--allow-loopback"];
    let table: &[(&[&str], i32, &str)] = &[
        (&[], 2, "got 0 of 4"),
        (&[&credentials, CONTEXT, &member], 2, "got 3 of 4"),
        (&[&credentials, CONTEXT, &member, CONTEXT, "--fast"], 2, "unknown option --fast"),
        (&[&credentials, CONTEXT, &member, CONTEXT, "--cluster-name"], 2, "--cluster-name wants a value"),
        (
            &[&credentials, CONTEXT, &member, CONTEXT, "--cluster-name=Shop_1"],
            2,
            "\"Shop_1\" is no cluster name",
        ),
        (&[&credentials, CONTEXT, &member, CONTEXT, "--cluster-name", &long], 2, "is no cluster name"),
        (&[&credentials, CONTEXT, &member, "a@b"], 2, "the context \"a@b\" is no cluster name"),
        (&[&credentials, CONTEXT, &member, CONTEXT, "--image=a b"], 2, "\"a b\" is no image name"),
        (&[&credentials, CONTEXT, &member, CONTEXT, "--wait=soon"], 2, "not \"soon\""),
        (&[&credentials, CONTEXT, &member, CONTEXT, "--", "--cluster-name=x"], 2, "is this script's to say"),
        (
            &[&credentials, CONTEXT, &member, CONTEXT, "--tunnel-server=https://h:1"],
            2,
            "--tunnel-server wants --tunnel=",
        ),
        (
            &[&credentials, CONTEXT, &member, CONTEXT, "--tunnel=full", "--tunnel-server=h:1"],
            2,
            "--tunnel-server wants https://",
        ),
        (
            &[&credentials, CONTEXT, &member, CONTEXT, "--tunnel=full", "--tunnel-ca", &not_yaml],
            2,
            "--tunnel-ca is for --tunnel-server",
        ),
        (
            &[
                &credentials,
                CONTEXT,
                &member,
                CONTEXT,
                "--tunnel=full",
                "--tunnel-server=https://h:1",
                "--tunnel-ca",
                &not_yaml,
            ],
            2,
            "holds no certificates",
        ),
        (&["/nowhere", CONTEXT, &member, CONTEXT], 2, "/nowhere does not exist"),
        (&[&not_yaml, CONTEXT, &member, CONTEXT], 2, "kubeconfig"),
        (&[&credentials, "mars", &member, CONTEXT], 2, "no context \"mars\"; it has: karmada-apiserver"),
        (&[&credentials, CONTEXT, &member, "mars"], 2, "no context \"mars\""),
        (&[&credentials, CONTEXT, &member, CONTEXT], 2, "means this machine only"),
        (&[&plugin, CONTEXT, &member, CONTEXT, ok[0], ok[1]], 2, "a program for its credentials (exec)"),
        (&[&admin, CONTEXT, &admin, CONTEXT, ok[0], ok[1]], 2, "hub and member are the same server"),
        (&[&silent_hub, CONTEXT, &member, CONTEXT, ok[0], ok[1]], 1, "the hub at https://127."),
        (&[&credentials, CONTEXT, &silent_member, CONTEXT, ok[0], ok[1]], 1, "the member at https://127."),
        (&[&credentials, CONTEXT, &nobody, CONTEXT, ok[0], ok[1]], 1, "User \"nobody\" cannot get"),
        (
            &[&for_member2, CONTEXT, &member, CONTEXT, ok[0], ok[1]],
            1,
            "karmada-hub credentials --data-dir DIR --cluster member1",
        ),
        (&[&member, CONTEXT, &admin, CONTEXT, ok[0], ok[1]], 1, "is no Karmada hub"),
    ];
    for (args, code, what) in table {
        let line = refused(world.bare("deploy-agent.sh").args(*args), *code);
        assert!(line.contains(what), "{args:?}: {line}");
    }

    // Without a tool; with too few rights on the member, which a stand-in cannot tell: its kubectl does.
    let tools = world.at("tools");
    fs::create_dir_all(&tools).expect("a folder is made");
    for tool in ["bash", "dirname", "basename", "sed", "head"] {
        let found = Command::new("sh").args(["-c", &format!("command -v {tool}")]).output().expect("sh runs");
        symlink(String::from_utf8_lossy(&found.stdout).trim(), tools.join(tool)).expect("a link");
    }
    // `timeout` itself is found before PATH is changed.
    let mut without = Command::new(root().join("scripts/deploy-agent.sh"));
    let line = refused(without.args([&credentials, CONTEXT, &member, CONTEXT]).env("PATH", &tools), 1);
    assert!(line.contains("kubectl is not installed"), "{line}");

    let real = Command::new("sh").args(["-c", "command -v kubectl"]).output().expect("sh runs");
    let shims = world.at("shims");
    fs::create_dir_all(&shims).expect("a folder is made");
    let shim = format!(
        "#!/bin/sh\ncase \"$*\" in *--dry-run=server*) echo 'Error from server (Forbidden): \
         clusterroles.rbac.authorization.k8s.io \"karmada-agent\" is forbidden: User \"u\" cannot patch resource \
         \"clusterroles\"' >&2; exit 1;; esac\nexec {} \"$@\"\n",
        String::from_utf8_lossy(&real.stdout).trim()
    );
    fs::write(shims.join("kubectl"), shim).expect("a file is written");
    fs::set_permissions(shims.join("kubectl"), fs::Permissions::from_mode(0o755))
        .expect("it is made runnable");
    let path_with_shims = format!("{}:{}", shims.display(), std::env::var("PATH").unwrap_or_default());
    let mut limited = world.script("deploy-agent.sh", &["--allow-loopback"]);
    let line = refused(limited.env("PATH", path_with_shims), 1);
    assert!(line.contains("cannot patch resource \"clusterroles\""), "{line}");
    assert_eq!(world.state().await, before, "nothing of all this changed anything");

    // A name that stands for another member, or for one in Push mode.
    let cluster = |id: &str, mode: &str| {
        json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": CLUSTER},
               "spec": {"id": id, "syncMode": mode}})
    };
    let deploy = |what: &str| {
        let line = refused(&mut world.script("deploy-agent.sh", &["--allow-loopback", "--wait=0"]), 1);
        assert!(line.contains(what), "{line}");
    };
    let clusters = "/apis/cluster.karmada.io/v1alpha1/clusters";
    world.fleet.api.post(clusters, &cluster("another", "Pull")).await.expect("a Cluster is made");
    deploy("the name member1 is taken on the hub by another member (id another");
    let line = refused(&mut world.script("remove-agent.sh", &[]), 1);
    assert!(line.contains("is another member"), "{line}");
    world.fleet.api.delete(&cluster_path(CLUSTER), &json!({})).await.expect("it is deleted");
    gone(&world.fleet.api, &cluster_path(CLUSTER), PATIENCE).await;
    // Credentials that were shown for a Cluster end with it.
    world.make_credentials(CLUSTER, &world.credentials);
    let system = world.member.get("/api/v1/namespaces/kube-system").await.expect("every cluster has it");
    let id = system["metadata"]["uid"].as_str().expect("a uid");
    world.fleet.api.post(clusters, &cluster(id, "Push")).await.expect("a Cluster is made");
    // Either the script reads the Cluster, or the hub has already ended what an agent of that name was given.
    deploy("in Push mode");
    world.fleet.api.delete(&cluster_path(CLUSTER), &json!({})).await.expect("it is deleted");
    gone(&world.fleet.api, &cluster_path(CLUSTER), PATIENCE).await;
    world.make_credentials(CLUSTER, &world.credentials);

    // What another hub left, what another name left, what something else made.
    world.deploy(&[]);
    let foreign = json!({"data": null, "stringData": {"karmada-kubeconfig": text(&member)}});
    world.member.patch(SECRET, Patch::Merge, &foreign).await.expect("the Secret is changed");
    let state = world.state().await;
    deploy("is for another hub, https://127.0.0.1:");
    let other_name = ["--cluster-name=member2", "--allow-loopback"];
    let mut renamed = world.bare("deploy-agent.sh");
    renamed.args([&for_member2, CONTEXT, &member, CONTEXT]).args(other_name);
    let line = refused(&mut renamed, 1);
    assert!(line.contains("the member has the agent of cluster member1"), "{line}");
    assert_eq!(world.state().await, state, "nothing of this changed anything either");
    let replaced = world.deploy(&["--replace"]);
    assert!(verbs(&replaced).contains(&("Secret", "changed")), "{replaced}");
    let strange = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "karmadactl"}}});
    world.member.patch(AGENT, Patch::Merge, &strange).await.expect("the Deployment is changed");
    deploy("that this script did not put there");
    let line = refused(&mut world.script("remove-agent.sh", &[]), 1);
    assert!(line.contains("it stays"), "{line}");

    // The same for removal's own arguments.
    let table: &[(&[&str], i32, &str)] = &[
        (
            &[&credentials, CONTEXT, &member, CONTEXT, ok[0], "--workloads=maybe"],
            2,
            "is keep or delete, not \"maybe\"",
        ),
        (&[&silent_hub, CONTEXT, &silent_member, CONTEXT, ok[0]], 2, "the same server"),
        (&[&credentials, CONTEXT, &nobody, CONTEXT, ok[0]], 1, "User \"nobody\" cannot get"),
    ];
    for (args, code, what) in table {
        let line = refused(world.bare("remove-agent.sh").args(*args), *code);
        assert!(line.contains(what), "{args:?}: {line}");
    }
}
