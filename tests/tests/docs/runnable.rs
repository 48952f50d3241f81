//! Runs the blocks of the documentation that are marked as runnable, in order, as a reader would: in a clone, with nothing
//! but what the pages say.
//!
//! A clone for this is an empty folder with links to `scripts` and `manifests`. The programs are on PATH, as after an installation.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use karmada_tests::process::own_address;

use crate::{
    pages::{self, root},
    recording::{self, Screen},
};

/// So long all steps of one name may take, on a busy machine.
const LIMIT: &str = "170";

/// The steps that the documentation shows as a recording.
const RECORDED: &str = "tour";

/// What marks the output of steps apart.
const MARK: &str = "@@docs-step";

/// A block that is run, and what it is to print.
#[derive(Debug, Default)]
struct Step {
    place: String,
    script: String,
    needs: Option<String>,
    expected: Vec<String>,
    /// Whether nothing else is to be printed: `only`.
    only: bool,
}

/// The steps of each name, by their number.
fn steps() -> BTreeMap<String, BTreeMap<u32, Step>> {
    let mut all = BTreeMap::<String, BTreeMap<u32, Step>>::new();
    for page in pages::all() {
        for block in &page.blocks {
            let place = format!("{}:{}", page.path.display(), block.line);
            let words = || block.info.split_whitespace().filter_map(|word| word.split_once('='));
            let of = |key: &str| words().find(|(k, _)| *k == key).map(|(_, value)| value);
            let (Some(id), is_run) = (of("run").or(of("expect")), of("run").is_some()) else { continue };
            let (name, number) =
                id.rsplit_once('-').unwrap_or_else(|| panic!("{place}: {id} is not NAME-NUMBER"));
            let number = number.parse().unwrap_or_else(|_| panic!("{place}: {id} is not NAME-NUMBER"));
            let step = all.entry(name.to_owned()).or_default().entry(number).or_default();
            if is_run {
                assert!(step.script.is_empty(), "{place}: {id} is there twice");
                (step.place, step.script, step.needs) =
                    (place, block.text.clone(), of("needs").map(str::to_owned));
            } else {
                step.expected = block.text.lines().map(str::to_owned).collect();
                step.only = block.info.split_whitespace().any(|word| word == "only");
            }
        }
    }
    all
}

/// Whether a line has the parts of a pattern, in order: `…` stands for anything.
fn matches(pattern: &str, line: &str) -> bool {
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = squeezed(line);
    let mut rest = line.as_str();
    pattern.split('…').map(squeezed).all(|part| match rest.split_once(&part) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

#[test]
fn patterns_are_parts_in_order() {
    for (pattern, line, want) in [
        ("nginx   3/1 …", "nginx     3/1     3", true),
        ("a … c", "a b c", true),
        ("a … b", "b a", false),
        ("…", "whatever", true),
        ("sha256:… --x", "sha256:0f --x", true),
    ] {
        assert_eq!(matches(pattern, line), want, "{pattern} in {line}");
    }
}

/// A clone, with programs on PATH. What its quickstart has started ends with it.
struct Clone {
    dir: tempfile::TempDir,
    path: String,
}

impl Clone {
    fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("docs-").tempdir().unwrap();
        for name in ["scripts", "manifests"] {
            symlink(root().join(name), dir.path().join(name)).unwrap();
        }
        let bin = dir.path().join("installed");
        fs::create_dir(&bin).unwrap();
        for name in ["karmada-hub", "karmada-agent", "kubesim"] {
            let program = bin.join(name);
            let text = format!("#!/bin/sh\nexec '{}' {name} \"$@\"\n", env!("CARGO_BIN_EXE_fleet"));
            fs::write(&program, text).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        Self { dir, path }
    }

    fn bash(&self, script: &Path) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=5", LIMIT, "bash"])
            .arg(script)
            .current_dir(self.dir.path())
            .env_remove("KUBECONFIG")
            .env_remove("QUICKSTART_DIR")
            .env("HOME", self.dir.path())
            .env("PATH", &self.path)
            .stdin(Stdio::null());
        command
    }
}

impl Drop for Clone {
    fn drop(&mut self) {
        // Whatever a step that failed has left running.
        let down = self.dir.path().join("down.sh");
        let _ = fs::write(&down, "scripts/quickstart.sh down\n");
        let _ = self.bash(&down).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

fn is_installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|dir: PathBuf| dir.join(program).is_file())
}

#[test]
fn the_recording_shows_the_page_s_commands() {
    let steps = &steps()[RECORDED];
    let scripts: Vec<&str> =
        steps.values().filter(|step| step.needs.is_none()).map(|step| step.script.as_str()).collect();
    let missing = recording::missing(RECORDED, &scripts);
    assert!(
        missing.is_empty(),
        "{} is older than the page, it lacks {missing:#?}\nRun UPDATE_DOCS=1 cargo test -p karmada-tests --test docs runnable",
        recording::path(RECORDED).display()
    );
}

#[test]
fn what_is_marked_as_runnable_runs() {
    let all = steps();
    assert!(all.contains_key("tour"), "the newcomer's path is marked as runnable");
    for (name, steps) in all {
        let clone = Clone::new();
        let mut script = "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n".to_owned();
        let mut run = Vec::new();
        for (number, step) in &steps {
            assert!(!step.script.is_empty(), "an expect={name}-{number} has no run={name}-{number}");
            if let Some(program) = step.needs.as_deref().filter(|program| !is_installed(program)) {
                eprintln!("{}: skipped, {program} is not installed", step.place);
                continue;
            }
            script.push_str(&format!("echo '{MARK} {number}'\n{}\n", step.script));
            run.push((*number, step));
        }
        script.push_str(&format!("echo '{MARK} end'\n"));
        let file = clone.dir.path().join("steps.sh");
        fs::write(&file, script).unwrap();
        let log = clone.dir.path().join("steps.log");
        let out = fs::File::create(&log).unwrap();
        let status = clone.bash(&file).stdout(out.try_clone().unwrap()).stderr(out).status().unwrap();
        let said = fs::read_to_string(&log).unwrap();
        let mut parts = BTreeMap::<String, &str>::new();
        for part in said.split(&format!("{MARK} ")).skip(1) {
            let (head, text) = part.split_once('\n').unwrap_or((part, ""));
            parts.insert(head.to_owned(), text);
        }
        for (number, step) in run {
            let text = parts.get(&number.to_string()).copied().unwrap_or_default();
            for line in step.expected.iter().filter(|line| !line.trim().is_empty()) {
                let found = text.lines().any(|said| matches(line, said));
                assert!(
                    found,
                    "{} ({name}-{number}): no line like\n  {line}\nin\n{text}\nAll of it:\n{said}",
                    step.place
                );
            }
            let foreign = text.lines().find(|said| {
                !said.trim().is_empty() && !step.expected.iter().any(|line| matches(line, said))
            });
            assert!(
                !step.only || foreign.is_none(),
                "{} ({name}-{number}): a line that the page does not show: {foreign:?}",
                step.place
            );
        }
        assert!(status.success() && parts.contains_key("end"), "{name} ends with {status}:\n{said}");
        if name == RECORDED && std::env::var_os("UPDATE_DOCS").is_some() {
            let here = clone.dir.path().display().to_string();
            let screens: Vec<Screen> = steps
                .iter()
                .filter(|(_, step)| step.needs.is_none())
                .map(|(number, step)| Screen {
                    typed: step.script.clone(),
                    printed: parts[&number.to_string()].replace(&here, "~/karmada"),
                })
                .collect();
            recording::write(name.as_str(), "The tour in a terminal", &screens);
        }
    }
}

/// The README's commands as they stand there, but for names, ports and folders of this machine.
#[test]
fn the_readme_s_path_leads_to_a_cluster_that_is_ready() {
    let (clone, address) = (Clone::new(), own_address());
    let here = |line: &str| {
        line.replace("/var/lib/karmada", "hub")
            .replace("hub.example.com:6443", &address.to_string())
            .replace("hub.example.com", &address.ip().to_string())
    };
    let readme = pages::all().into_iter().find(|page| page.path == Path::new("README.md")).unwrap();
    let blocks = readme.blocks.iter().filter(|block| block.info.starts_with("sh"));
    let lines: Vec<String> = blocks.flat_map(|block| block.text.lines()).map(here).collect();
    let [serve, token, join] = ["karmada-hub serve ", "karmada-hub token create ", "karmada-agent join "]
        .map(|begin| {
            lines.iter().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("no {begin}"))
        });
    let script = format!(
        r#"
        set -uo pipefail
        trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
        kubesim --data-dir member --listen 127.0.0.1:0 --kubeconfig-out member.kubeconfig >member.log 2>&1 &
        {serve} --listen {address} >hub.log 2>&1 &
        until {token} >join.txt 2>token.log; do sleep 0.2; done
        until [ -s member.kubeconfig ]; do sleep 0.2; done
        # Ports and folders are those of whoever tries several programs on one machine.
        $(grep '^karmada-agent join' join.txt) --kubeconfig member.kubeconfig --state-dir agent \
            --health-probe-bind-address 0 --metrics-bind-address 0 >agent.log 2>&1 &
        until karmada-hub get cluster shop-17 --kubeconfig hub/admin.kubeconfig 2>/dev/null | grep True; do sleep 0.2; done
        "#
    );
    let file = clone.dir.path().join("readme.sh");
    fs::write(&file, script).unwrap();
    let output = clone.bash(&file).output().unwrap();
    let read = |name: &str| fs::read_to_string(clone.dir.path().join(name)).unwrap_or_default();
    assert!(
        output.status.success(),
        "{}: {}{}\n{}{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        read("token.log"),
        read("hub.log"),
        read("agent.log")
    );
    let printed = read("join.txt");
    assert!(
        printed.lines().any(|line| matches(join, line)),
        "the README shows {join}, and it prints\n{printed}"
    );
}

#[test]
fn the_quickstart_says_started_of_what_runs() {
    let clone = Clone::new();
    let file = clone.dir.path().join("start.sh");
    let script = r#"
        set -uo pipefail
        scripts/quickstart.sh --members 1 >up.log 2>&1 || { cat up.log; exit 1; }
        run=.quickstart/run
        # Killed just before, it may be on its way out, and nobody waits for it.
        kill -9 "$(cat $run/hub.pid)"
        scripts/quickstart.sh start hub || exit 2
        karmada-hub get clusters --kubeconfig .quickstart/hub/admin.kubeconfig >/dev/null || exit 3
        # Its number is another process's now.
        scripts/quickstart.sh stop member1-agent || exit 4
        sleep 600 & echo $! >$run/member1-agent.pid
        scripts/quickstart.sh status | grep -E '^member1-agent +stopped' || exit 5
        scripts/quickstart.sh start member1-agent || exit 6
        [ "$(cat $run/member1-agent.pid)" != $! ] || exit 7
        kill $!
        # One that cannot start is not said to have.
        scripts/quickstart.sh stop hub || exit 8
        printf '%s\n' --nonsense >>$run/hub.cmd
        if scripts/quickstart.sh start hub; then exit 9; fi
    "#;
    fs::write(&file, script).unwrap();
    let output = clone.bash(&file).output().unwrap();
    let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {said}{told}", output.status);
    assert!(told.contains("hub has ended") && told.contains("--nonsense"), "{told}");
}
