//! Packages and units: what `scripts/release.sh` makes of programs, read back by the tools of those who install it.
//!
//! The programs are stand-ins, small ones; completions and manual pages are the real ones. What needs a tool that is not there is
//! skipped, with a line that says so.

#![allow(clippy::unwrap_used, reason = "a failing step fails the test")]

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use karmada_tests::{
    process::Process,
    wait::{PATIENCE, eventually},
};
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

fn there_is(test: &str, tool: &str) -> bool {
    let found =
        Command::new("sh").args(["-c", &format!("command -v {tool}")]).output().unwrap().status.success();
    if !found {
        eprintln!("{test}: skipped in part, there is no {tool}");
    }
    found
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn run(program: &str, args: &[&str], dir: &Path) -> String {
    let output = Command::new(program).args(args).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A folder with programs that are small, and one that speaks for the hub.
fn programs(dir: &Path) -> (String, String) {
    let programs = dir.join("programs");
    fs::create_dir_all(&programs).unwrap();
    for program in ["karmada-hub", "karmada-agent"] {
        fs::copy("/bin/true", programs.join(program)).unwrap();
    }
    let hub = dir.join("host-hub");
    script(&hub, &format!("#!/bin/sh\nexec {} karmada-hub \"$@\"\n", env!("CARGO_BIN_EXE_fleet")));
    (programs.display().to_string(), hub.display().to_string())
}

fn release(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(root().join("scripts/release.sh"));
    command.args(args).current_dir(dir).env("SOURCE_DATE_EPOCH", "1790000000").output().unwrap()
}

#[test]
fn a_release_is_the_same_bytes_and_can_be_installed() {
    if !cfg!(target_arch = "x86_64") || !there_is("release", "python3") {
        return;
    }
    let (deb, rpm) = (there_is("release", "dpkg-deb"), there_is("release", "rpmbuild"));
    let mut formats = vec!["tar", "image", "charts", "sbom"];
    formats.extend(deb.then_some("deb"));
    formats.extend(rpm.then_some("rpm"));
    let formats = format!("--only={}", formats.join(","));
    let made = ["a", "b/c"].map(|name| {
        let dir = tempfile::tempdir().unwrap();
        let (programs, hub) = programs(dir.path());
        let out = dir.path().join(name);
        // What another release has left there.
        fs::create_dir_all(&out).unwrap();
        fs::write(out.join("karmada-hub-0.0.1.tgz"), name).unwrap();
        let out = out.display().to_string();
        let args = [
            &format!("--programs=amd64={programs}"),
            "--allow-dynamic",
            "--host-hub",
            &hub,
            "--out",
            &out,
            &formats,
        ];
        let output = release(dir.path(), &args);
        assert!(output.status.success(), "{}", said(&output));
        (dir, PathBuf::from(out), String::from_utf8_lossy(&output.stdout).into_owned())
    });
    let [(_first, out, sums), (_second, _, other)] = &made;
    assert_eq!(sums, other, "another folder, another time, the same bytes");
    run("sha256sum", &["--check", "--quiet", "SHA256SUMS"], out);
    let summed: BTreeSet<&str> = sums.lines().filter_map(|line| Some(line.split_once("  ")?.1)).collect();
    let there: BTreeSet<String> =
        fs::read_dir(out).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let others: Vec<_> = there.iter().filter(|name| !summed.contains(name.as_str())).collect();
    assert_eq!(
        others,
        ["SHA256SUMS", "karmada-hub-0.0.1.tgz"],
        "what this run has made is summed, and nothing else"
    );
    let version = env!("CARGO_PKG_VERSION");
    let held = |names: &str| {
        names.lines().map(|name| name.trim_start_matches("./").to_owned()).collect::<BTreeSet<_>>()
    };
    let wants = |held: &BTreeSet<String>, names: &[&str], what: &str| {
        for name in names {
            assert!(held.contains(*name), "{what} has no {name}: {held:#?}");
        }
    };

    let archive = held(&run("tar", &["-tzf", &format!("karmada-{version}-linux-amd64.tar.gz")], out));
    let inside: BTreeSet<String> = archive
        .iter()
        .map(|name| name.trim_start_matches(&format!("karmada-{version}-linux-amd64/")).to_owned())
        .collect();
    wants(
        &inside,
        &[
            "bin/karmada-hub",
            "bin/karmada-agent",
            "LICENSE",
            "hub/docs/doctor.md",
            "systemd/karmada-hub.service",
            "man/karmada-hub-serve.1.gz",
            "man/karmada-agent-doctor.1.gz",
            "completions/bash/karmada-agent",
            "completions/zsh/_karmada-hub",
            "completions/fish/karmada-hub.fish",
        ],
        "the archive",
    );
    // What stands in the file system of either sort of package.
    let files = [
        "usr/bin/karmada-agent",
        "usr/lib/systemd/system/karmada-agent@.service",
        "usr/share/bash-completion/completions/karmada-agent",
        "usr/share/doc/karmada-agent/hub/docs/doctor.md",
        "usr/share/man/man1/karmada-agent.1.gz",
        "usr/share/man/man1/karmada-agent-status.1.gz",
    ];
    if deb {
        let file = format!("karmada-agent_{version}_amd64.deb");
        let listed = run("dpkg-deb", &["--contents", &file], out);
        assert!(listed.lines().all(|line| line.contains("root/root")), "{listed}");
        let names: String =
            listed.lines().map(|line| format!("{}\n", line.rsplit(' ').next().unwrap())).collect();
        wants(&held(&names), &files, &file);
        let unit = out.join("unpacked");
        run("dpkg-deb", &["--extract", &file, unit.to_str().unwrap()], out);
        let unit = fs::read_to_string(unit.join("usr/lib/systemd/system/karmada-agent@.service")).unwrap();
        assert!(unit.contains("ExecStart=/usr/bin/karmada-agent "), "{unit}");
        fs::remove_dir_all(out.join("unpacked")).unwrap();
        // Nothing starts by itself, and nobody's data goes.
        let scripts = out.join("control");
        run("dpkg-deb", &["--control", &file, scripts.to_str().unwrap()], out);
        for name in ["postinst", "prerm", "postrm"] {
            let text = fs::read_to_string(scripts.join(name)).unwrap();
            assert!(!text.contains("/var/lib") && !text.contains("start "), "{name}: {text}");
        }
        // Agents end with their program. systemctl takes patterns to stop, and none to disable.
        let removes = fs::read_to_string(scripts.join("prerm")).unwrap();
        for line in ["systemctl stop 'karmada-agent@*.service'", "systemctl disable karmada-agent@.service"] {
            assert!(removes.contains(line), "{removes}");
        }
    }
    if rpm {
        let file = format!("karmada-agent-{version}-1.x86_64.rpm");
        let names = run("rpm", &["-qpl", &file], out)
            .lines()
            .map(|name| format!("{}\n", &name[1..]))
            .collect::<String>();
        wants(&held(&names), &files, &file);
        run("rpm", &["--checksig", "--nosignature", &file], out);
    }
    let image = format!("karmada-hub-{version}.oci.tar");
    let index = run("tar", &["-xOf", &image, "index.json"], out);
    let index: Value = serde_json::from_str(&index).unwrap();
    let called = &index["manifests"][0]["annotations"]["io.containerd.image.name"];
    assert_eq!(
        *called,
        format!("docker.io/library/karmada-hub:{version}"),
        "loaded on a node, it has this name"
    );
    let digest = index["manifests"][0]["digest"].as_str().unwrap().replace(':', "/");
    let manifest: Value =
        serde_json::from_str(&run("tar", &["-xOf", &image, &format!("blobs/{digest}")], out)).unwrap();
    let digest = manifest["config"]["digest"].as_str().unwrap().replace(':', "/");
    let config: Value =
        serde_json::from_str(&run("tar", &["-xOf", &image, &format!("blobs/{digest}")], out)).unwrap();
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Entrypoint"][0], "/bin/karmada-hub");
    if there_is("release", "skopeo") {
        let copied = out.join("copied");
        let (from, to) = (format!("oci-archive:{image}"), format!("dir:{}", copied.display()));
        run("skopeo", &["--insecure-policy", "copy", "--quiet", &from, &to], out);
        let layer = config["rootfs"]["diff_ids"][0].as_str().unwrap();
        assert!(layer.starts_with("sha256:"));
        let packed = manifest["layers"][0]["digest"].as_str().unwrap().trim_start_matches("sha256:");
        let listed = run("tar", &["-tvzf", copied.join(packed).to_str().unwrap()], out);
        for line in ["bin/karmada-hub", "etc/ssl/certs/ca-certificates.crt", "65532/65532"] {
            assert!(listed.contains(line), "{listed}");
        }
    }
    let bom = fs::read_to_string(out.join(format!("karmada-{version}.cdx.json"))).unwrap();
    let bom: Value = serde_json::from_str(&bom).unwrap();
    let components = bom["components"].as_array().unwrap();
    let names: BTreeSet<&str> =
        components.iter().map(|component| component["name"].as_str().unwrap()).collect();
    for name in ["karmada-hub", "rustls", "ring", "lua", "jemalloc"] {
        assert!(names.contains(name), "the SBOM has no {name}");
    }
    for name in ["proptest", "insta", "karmada-tests"] {
        assert!(!names.contains(name), "{name} is for tests alone");
    }
    let unlicensed: Vec<_> = components.iter().filter(|component| component["licenses"].is_null()).collect();
    assert!(unlicensed.is_empty(), "{unlicensed:?}");
}

/// What the manifests' archive holds is enough for `deploy-agent.sh`, which is looked for where the archive has it.
#[tokio::test]
async fn the_script_in_the_manifests_archive_deploys_an_agent() {
    const NAME: &str = "the script in the archive";
    if !cfg!(target_arch = "x86_64") || !there_is(NAME, "python3") || !there_is(NAME, "kubectl") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (programs, hub) = programs(dir.path());
    let out = at("out").display().to_string();
    let programs = format!("--programs=amd64={programs}");
    let output =
        release(dir.path(), &[&programs, "--allow-dynamic", "--host-hub", &hub, "--out", &out, "--only=tar"]);
    assert!(output.status.success(), "{}", said(&output));
    let version = env!("CARGO_PKG_VERSION");
    run("tar", &["-xzf", &format!("out/karmada-{version}-manifests.tar.gz")], dir.path());
    let unpacked = at(&format!("karmada-{version}-manifests"));
    assert!(unpacked.join("hub/docs/monitoring.md").is_file(), "where alerts say what to do");

    let member = at("member.kubeconfig");
    let args = [
        "kubesim".to_owned(),
        format!("--data-dir={}", at("member").display()),
        "--listen=127.0.0.1:0".into(),
        format!("--kubeconfig-out={}", member.display()),
        "--workloads=off".into(),
    ];
    let _server = Process::start(dir.path(), "member", Path::new(env!("CARGO_BIN_EXE_fleet")), args).unwrap();
    eventually("the member to start", PATIENCE, || async {
        if member.exists() { Ok(()) } else { Err("no kubeconfig yet") }
    })
    .await;
    let deploy = |more: &[&str]| {
        let hash = format!("--ca-cert-hash=sha256:{}", "0".repeat(64));
        Command::new("timeout")
            .arg("180")
            .arg(unpacked.join("scripts/deploy-agent.sh"))
            .args([
                "--hub=hub.example.com:6443",
                "--token=abcdef.0123456789abcdef",
                &hash,
                "--cluster-name=shop",
            ])
            .arg(format!("--member-kubeconfig={}", member.display()))
            .arg("--dry-run")
            .args(more)
            .env("HOME", dir.path())
            .env_remove("KUBECONFIG")
            .output()
            .unwrap()
    };
    let dry = deploy(&[]);
    assert!(dry.status.success(), "{}", said(&dry));
    for wanted in
        ["nothing is changed", &format!("image karmada-agent:{version}"), "Deployment/karmada-agent"]
    {
        assert!(said(&dry).contains(wanted), "{wanted}: {}", said(&dry));
    }
    // A copy that does not know its version says so, and does with an image.
    fs::remove_file(unpacked.join("VERSION")).unwrap();
    let without = deploy(&[]);
    assert!(without.status.code() == Some(2) && said(&without).contains("--image"), "{}", said(&without));
    assert!(deploy(&["--image=registry.example.com/karmada-agent:1"]).status.success());
}

/// Up to version 256, systemd does not count mounts of a unit's own to what `NoExecPaths=/` names.
#[test]
fn units_run_nothing_that_they_can_write() {
    for unit in [
        include_str!("../../manifests/systemd/karmada-agent@.service"),
        include_str!("../../manifests/systemd/karmada-hub.service"),
    ] {
        let words = |key: &str| -> BTreeSet<&str> {
            let values = unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            values.flat_map(str::split_whitespace).map(|word| word.trim_start_matches('-')).collect()
        };
        let (forbidden, allowed) = (words("NoExecPaths"), words("ExecPaths"));
        let states = words("StateDirectory");
        assert_eq!((words("DynamicUser"), states.len()), (BTreeSet::from(["yes"]), 1), "{unit}");
        let state = format!("/var/lib/private/{}", states.first().unwrap());
        for path in ["/", "/tmp", "/var/tmp", "/dev/shm", &state] {
            assert!(forbidden.contains(path) && !allowed.contains(path), "{path}: {unit}");
        }
    }
}

#[test]
fn what_cannot_be_released_is_refused() {
    if !there_is("refusals", "python3") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (programs, hub) = programs(dir.path());
    let rows: [(&[&str], i32, &str); 6] = [
        (&["--fast"], 2, "unknown argument --fast"),
        (&["--only=zip"], 2, "--only knows"),
        (&["--programs", &format!("x86={programs}")], 2, "amd64=DIR or arm64=DIR"),
        (&["--programs=amd64=/nowhere"], 2, "has no karmada-hub"),
        (
            &[&format!("--programs=amd64={programs}"), "--only=tar", "--host-hub", &hub],
            1,
            "wants a dynamic linker",
        ),
        (
            &[&format!("--programs=arm64={programs}"), "--only=tar", "--host-hub", &hub],
            1,
            "is for amd64, not arm64",
        ),
    ];
    for (args, code, says) in rows {
        if code == 1 && !cfg!(target_arch = "x86_64") {
            continue;
        }
        let output = release(dir.path(), args);
        assert!(
            output.status.code() == Some(code) && said(&output).contains(says),
            "{args:?}: {}",
            said(&output)
        );
    }
}

/// systemd's own judgement of what a unit is exposed to: 0 is nothing, 100 everything.
#[test]
fn units_are_what_systemd_takes_and_little_exposed() {
    const MOST: &str = "--threshold=11";
    if !there_is("units", "systemd-analyze") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for (unit, instance) in [
        ("karmada-hub.service", "karmada-hub.service"),
        ("karmada-agent@.service", "karmada-agent@shop.service"),
    ] {
        let path = dir.path().join(instance);
        let text = fs::read_to_string(root().join("manifests/systemd").join(unit)).unwrap();
        // It is looked whether the program is there.
        fs::write(
            &path,
            text.replace("/usr/local/bin/karmada-hub", "/bin/true")
                .replace("/usr/local/bin/karmada-agent", "/bin/true"),
        )
        .unwrap();
        let path = path.to_str().unwrap();
        let verified = Command::new("systemd-analyze").args(["verify", path]).output().unwrap();
        let ours: Vec<_> =
            said(&verified).lines().filter(|line| line.contains(instance)).map(str::to_owned).collect();
        assert!(ours.is_empty(), "{ours:#?}");
        let judged = Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--no-pager", MOST, path])
            .output()
            .unwrap();
        if said(&judged).contains("nrecognized option") {
            eprintln!("units: skipped in part, this systemd cannot judge a file");
            return;
        }
        assert!(judged.status.success(), "{instance}: {}", said(&judged));
    }
}
