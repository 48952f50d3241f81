//! `karmada-hub logs`, `exec`, `top`, `port-forward` and `apply`, as people run them who have no kubectl.

use std::{
    future::ready,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
};

use karmada_tests::{
    fleet::{self, Binaries},
    kubelet,
    link::{Link, Mode},
    wait::{PATIENCE, eventually},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::{hub, register};

/// The program, with the hub's kubeconfig behind its first word.
fn command(kubeconfig: &Path, line: &[&str]) -> Command {
    let (first, rest) = line.split_first().expect("a line has words");
    let mut command = Command::new(env!("CARGO_BIN_EXE_fleet"));
    command.args(["karmada-hub", first, "--kubeconfig"]).arg(kubeconfig).args(rest);
    command
}

/// Runs it to its end: its exit code, and what it has said.
fn run(kubeconfig: &Path, line: &[&str], input: &str) -> (i32, String) {
    let mut child = command(kubeconfig, line)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.code().unwrap_or(-1), text.concat())
}

/// One that goes on, what it writes, and the first lines of it.
fn begun(kubeconfig: &Path, line: &[&str], lines: usize) -> (Child, impl Sized + use<>, Vec<String>) {
    let mut child = command(kubeconfig, line).stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = out.by_ref().take(lines).map(Result::unwrap).collect();
    (child, out, first)
}

/// Begins a shell's command on a terminal; nothing where there is no script(1) to give it one.
fn on_terminal(shell: &str) -> Option<Child> {
    let mut script = Command::new("script");
    script.args(["-qec", shell, "/dev/null"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let begun = script.spawn();
    begun.inspect_err(|error| eprintln!("skipped: there is no script(1) to give a terminal: {error}")).ok()
}

/// How one ends that is not waited for.
async fn ends(what: &str, child: &mut Child) -> Option<i32> {
    let mut code = None;
    eventually(what, PATIENCE, || {
        let ended = child.try_wait().unwrap();
        code = ended.and_then(|status| status.code());
        ready(ended.map(drop).ok_or_else(|| "it goes on".to_owned()))
    })
    .await;
    code
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn people_without_kubectl_reach_into_members() {
    let dir = tempfile::tempdir().unwrap();
    let binaries = Binaries::in_one(env!("CARGO_BIN_EXE_fleet"));
    let (_member, file) = fleet::start_stock(dir.path(), "member", &binaries, false);
    fleet::file(&file).await;
    let member = fleet::rest(&file);
    eventually("the member", PATIENCE, || async {
        member.get("/version").await.map(drop).map_err(|e| e.to_string())
    })
    .await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
                     "spec": {"containers": [{"name": "c", "image": "i"}]}});
    member.post("/api/v1/namespaces/default/pods", &pod).await.unwrap();
    let front = kubelet::before(&member).await;
    let hub = hub(dir.path()).await;
    register(&hub.rest, "m", &format!("http://{front}"), None, "t").await;

    let config = hub.kubeconfig.as_path();
    for (line, input, code, says) in [
        (&["logs", "m", "web"][..], "", 0, "line\nline\nline\n"),
        (&["exec", "m", "web", "--", "echo", "a word"], "", 0, "a word\n"),
        (&["exec", "m", "web", "-i", "--", "cat"], "what is said\n", 0, "what is said\n"),
        (&["exec", "m", "web", "--", "sh", "-c", "echo no >&2; exit 7"], "", 7, "no\n"),
        (&["exec", "m", "web", "--", "/nowhere"], "", 1, "cannot run /nowhere"),
        (&["exec", "n", "web", "--", "ls"], "", 1, "clusters.cluster.karmada.io \"n\" not found"),
        (&["exec", "../m", "web", "--", "ls"], "", 2, "is no cluster's name"),
        (&["top", "m"], "", 1, "cluster m: metrics API not available"),
        (&["port-forward", "m", "other", ":80"], "", 1, "pods \"other\" not found"),
    ] {
        let (got, said) = run(config, line, input);
        assert!(got == code && said.contains(says), "{line:?}: {got}: {said}");
    }
    let (mut following, out, lines) = begun(config, &["logs", "m", "web", "-f"], 10);
    assert_eq!(lines, ["line"; 10]);
    // A reader that has had enough ends it, and a link that is cut, visibly.
    drop(out);
    assert_eq!(ends("logs without a reader", &mut following).await, Some(0));
    let direct = fleet::server_of(config);
    let link = Link::open(direct).await.unwrap();
    let text = std::fs::read_to_string(config).unwrap();
    let via = dir.path().join("via.kubeconfig");
    std::fs::write(&via, text.replace(&direct.to_string(), &link.address().to_string())).unwrap();
    let (mut following, _out, _) = begun(&via, &["logs", "m", "web", "-f"], 3);
    let (mut sleeping, _said, lines) =
        begun(&via, &["exec", "m", "web", "--", "sh", "-c", "echo on; exec sleep 301"], 1);
    assert_eq!(lines, ["on"]);
    link.set(Mode::Refuse);
    assert_eq!(ends("logs over a link that is cut", &mut following).await, Some(1));
    assert_eq!(ends("exec over a link that is cut", &mut sleeping).await, Some(1));

    // A port of the Pod, which is one of this machine's.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (mut from, mut to) = stream.split();
            let _ = tokio::io::copy(&mut from, &mut to).await;
        }
    });
    let (mut forwarding, _out, lines) = begun(config, &["port-forward", "m", "web", &format!(":{port}")], 1);
    let local = lines[0].strip_prefix("Forwarding from ").and_then(|rest| rest.split(' ').next()).unwrap();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(local).await.unwrap();
        let sent: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        let (mut from, mut to) = stream.split();
        let mut heard = vec![0; sent.len()];
        let (written, read) = tokio::join!(to.write_all(&sent), from.read_exact(&mut heard));
        written.unwrap();
        read.unwrap();
        assert!(heard == sent, "what comes back is what was sent");
    }
    forwarding.kill().unwrap();
    forwarding.wait().unwrap();

    // How far a long command is stands on a terminal, and nowhere else.
    let binary = env!("CARGO_BIN_EXE_fleet");
    let objects = dir.path().join("objects.yaml");
    let config_map = |name: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n");
    std::fs::write(&objects, ["first", "second"].map(config_map).join("---\n")).unwrap();
    let (code, said) = run(config, &["apply", "-f", &objects.display().to_string()], "");
    assert!(code == 0 && said.contains("configmap/second created"), "{code}: {said}");
    assert!(!said.contains("apply: ") && !said.contains('\x1b'), "{said:?}");
    let shell =
        format!("{binary} karmada-hub apply --kubeconfig {} -f {}", config.display(), objects.display());
    if let Some(applying) = on_terminal(&shell) {
        let output = applying.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("configmap/second "), "{said:?}");
        for line in ["apply: 0%, 2 left  ConfigMap/first", "apply: 50%, 1 left", "apply: 100%, 0 left"] {
            assert!(said.contains(&format!("\r\x1b[K{line}")), "{line}: {said:?}");
        }
        // What follows begins on an empty line.
        assert!(said.rsplit("apply: ").next().unwrap().contains("\r\x1b[K"), "{said:?}");
    }

    // A terminal's size goes along. What runs there goes on until it has come.
    let come = dir.path().join("the-size-has-come");
    let shell = format!(
        "stty cols 101 rows 37; {binary} karmada-hub exec m web -it --kubeconfig {} -- \
         timeout 120 sh -c 'until [ -e {} ]; do sleep 0.05; done; echo done'",
        config.display(),
        come.display()
    );
    let Some(script) = on_terminal(&shell) else { return };
    let size = json!({"Width": 101, "Height": 37}).to_string();
    eventually("the terminal's size to come", PATIENCE, || {
        let sizes = kubelet::sizes();
        ready(if sizes.contains(&size) { Ok(()) } else { Err(format!("{sizes:?}")) })
    })
    .await;
    std::fs::write(&come, "").unwrap();
    let output = script.wait_with_output().unwrap();
    assert!(
        output.status.success() && String::from_utf8_lossy(&output.stdout).contains("done"),
        "{output:?}"
    );
}
