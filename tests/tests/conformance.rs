//! What a real kube-apiserver answered, replayed against ours: a floor for each file of recordings. What stays below 100 % is
//! explained under DIVERGENCES in the documentation of `karmada-apiserver`.

#![allow(
    clippy::unwrap_used,
    clippy::or_fun_call,
    clippy::needless_pass_by_value,
    clippy::large_futures,
    reason = "a failing step fails the test"
)]

use std::{path::Path, process::Command};

use karmada_tests::{
    process::Process,
    wait::{PATIENCE, eventually},
};

/// So many cases of a file may be looked at a second time.
const SECOND_LOOKS: usize = 2;

/// Runs the cases of a file of recordings whose names have `only` in them; how many passed and failed, and what was printed.
fn replay(script: &Path, kubeconfig: &Path, file: &Path, only: &str) -> (u32, u32, String) {
    let output = Command::new("timeout")
        .args(["300", "python3"])
        .arg(script)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(["--only", only])
        .arg(file)
        .output()
        .expect("python3 runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let totals = text.lines().rev().find_map(|line| {
        let mut words = line.split_whitespace();
        let mut number = |what: &str| {
            let number = words.next()?.parse::<u32>().ok()?;
            words.next()?.trim_end_matches(',').eq(what).then_some(number)
        };
        Some((number("passed")?, number("failed")?))
    });
    let error = String::from_utf8_lossy(&output.stderr);
    let (passed, failed) =
        totals.unwrap_or_else(|| panic!("{}: no totals in\n{text}\n{error}", file.display()));
    (passed, failed, text)
}

/// Replays a file against a server of its own; at least `floor` percent of its cases must pass. A floor stands just below
/// what is reached; raise it with what makes it rise.
async fn at_least(floor: u32, file: &str) {
    if std::env::var_os("CONFORMANCE").is_some_and(|when| when == "later") {
        eprintln!("skipped: replayed in a step of its own");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/conformance/replay.py");
    if !script.is_file() {
        eprintln!("skipped: {} is not there", script.display());
        return;
    }
    if !Command::new("python3").args(["-c", "import yaml"]).output().is_ok_and(|o| o.status.success()) {
        eprintln!("skipped: python3 with PyYAML is not there");
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary folder");
    let kubeconfig = dir.path().join("kubeconfig");
    let args = [
        "kubesim".to_owned(),
        format!("--data-dir={}", dir.path().join("data").display()),
        "--listen=127.0.0.1:0".into(),
        format!("--kubeconfig-out={}", kubeconfig.display()),
        "--workloads=off".into(),
    ];
    let _server = Process::start(dir.path(), "kubesim", Path::new(env!("CARGO_BIN_EXE_fleet")), args)
        .expect("it starts");
    eventually("the server to start", PATIENCE, || async {
        if kubeconfig.exists() { Ok(()) } else { Err("no kubeconfig yet") }
    })
    .await;
    let counted = script.with_file_name(file);
    let (mut passed, mut failed, text) = replay(&script, &kubeconfig, &counted, "");
    let mut failures: Vec<&str> = text.lines().filter(|l| l.starts_with("FAIL")).collect();
    // Where a recording does not wait for what a controller does behind the answer, a busy machine shows it unfinished.
    if 100 * passed / (passed + failed).max(1) < floor && failures.len() <= SECOND_LOOKS {
        failures.retain(|line| {
            let name = line.split_once(": ").map_or("", |(_, name)| name.trim());
            let again = replay(&script, &kubeconfig, &counted, name);
            let mended = !name.is_empty() && again.0 > 0 && again.1 == 0;
            println!("{name}: replayed alone, {}", if mended { "passed" } else { "failed again" });
            (passed, failed) = if mended { (passed + 1, failed - 1) } else { (passed, failed) };
            !mended
        });
    }
    let share = 100 * passed / (passed + failed).max(1);
    println!("{passed} of {} cases, {share} %", passed + failed);
    failures.iter().for_each(|line| println!("{line}"));
    assert!(share >= floor, "{file}: {share} % is below {floor} %\n{}", failures.join("\n"));
}

#[tokio::test]
async fn crud() {
    at_least(100, "crud.json").await;
}

#[tokio::test]
async fn list_watch() {
    at_least(96, "list_watch.json").await;
}

#[tokio::test]
async fn patch() {
    at_least(100, "patch.json").await;
}

#[tokio::test]
async fn apply() {
    at_least(100, "apply.json").await;
}

#[tokio::test]
async fn apply_agent() {
    at_least(100, "apply_agent.json").await;
}

#[tokio::test]
async fn delete_gc() {
    at_least(100, "delete_gc.json").await;
}

#[tokio::test]
async fn crd() {
    at_least(100, "crd.json").await;
}

#[tokio::test]
async fn discovery() {
    at_least(90, "discovery.json").await;
}

#[tokio::test]
async fn auth() {
    at_least(100, "auth.json").await;
}

#[tokio::test]
async fn misc() {
    at_least(92, "misc.json").await;
}

#[tokio::test]
async fn defaulting_workloads() {
    at_least(81, "defaulting_workloads.json").await;
}
