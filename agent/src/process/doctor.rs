//! `karmada-agent doctor`: whether everything is there that the agent needs, and what to do where it is not.
//!
//! What is made of the facts is `karmada_core::doctor`'s; here they are collected. Nothing is changed, but for a file that is written
//! to the state directory and taken away again.

use std::{
    borrow::Cow,
    ffi::{OsStr, OsString},
    fs,
    io::Write,
    os::unix::{ffi::OsStringExt, fs::PermissionsExt},
    path::{Path, PathBuf},
    process::ExitCode,
    time::SystemTime,
};

use karmada_api::consts::namespace;
use karmada_client::{Endpoint, Rest, link::client_for, probe};
use karmada_core::doctor::{self, Check, Finding, Folder as About};
use karmada_env::Env;
use karmada_member::Scope;
use karmada_telemetry::told::{Failure, ended, print};

use super::{
    USER_AGENT,
    admission::{File, Ways},
    args::{Args, Refusal},
    endpoints, member_endpoint, on_runtime, refused,
    status::{self, Status},
};
use crate::{
    Folder,
    hub::credential::{Credential, Keep},
};

const HELP: &str = "\
Check everything that the agent needs: clock, DNS, proxy, TLS, rights, disk, versions and ports. Changes nothing.

Usage: karmada-agent doctor [--output json] [ARGUMENTS OF THE AGENT]

Takes the arguments of the agent that you want to check. Without arguments, doctor uses those of the agent that runs on
this machine, if it may read them from the process. If several run here, name one with --cluster-name.

Each line is the result of one check. For a problem it says what was found, what is wanted, what to do, and where
hub/docs/doctor.md explains it. The output contains no secrets.

Options:
  -o, --output FORMAT  text or json [default: text]
  -h, --help           Print help

Exit codes: 0 no problem, 1 a problem, 2 the arguments cannot be used.
";

/// Processes that are looked at for one of ours, and bytes of the arguments of each.
const PROCESSES: usize = 10_000;
/// Agents that are named.
const NAMED: usize = 8;
/// Files of the state directory that are looked at.
const FILES: usize = 64;
/// What to do about a credential that the hub does not take.
const NEW_TOKEN: &str = "on the hub run karmada-hub token create --cluster NAME, and join with that token";
/// What a member has to let the agent do.
const MEMBER_RIGHTS: &str = "bind the agent's account to manifests/agent/clusterrole.yaml, or for some namespaces to manifests/agent/narrow";

/// Its command line, for completions and manual pages: that of the agent.
pub(super) fn command() -> clap::Command {
    super::args::command()
        .about("Check everything that the agent needs, and change nothing")
        .long_about(None)
        .after_long_help("Exit codes: 0 no problem, 1 a problem, 2 the arguments cannot be used.")
}

/// The command. `arguments` begin after the word.
pub(super) fn main(arguments: Vec<OsString>) -> ExitCode {
    let wrong = |line: &str| refused("karmada-agent doctor", Refusal::Wrong(line.to_owned()));
    let (json, own) = match split(arguments) {
        Ok(Some(split)) => split,
        Ok(None) => return refused("karmada-agent doctor", Refusal::Help(HELP.to_owned())),
        Err(line) => return wrong(&line),
    };
    let own = match meant(own, || running(Path::new("/proc"))) {
        Ok(own) => own,
        Err(line) => return wrong(&line),
    };
    let line = [OsString::from("karmada-agent"), OsString::from("doctor")].into_iter().chain(own);
    let args = match Args::read(line) {
        Ok(args) => args,
        Err(refusal) => return refused("karmada-agent doctor", refusal),
    };
    let looked = on_runtime(async {
        let findings = Box::pin(look(&args, &Env::system())).await;
        print(&match json {
            true => format!("{:#}\n", doctor::report("karmada-agent", env!("CARGO_PKG_VERSION"), &findings)),
            false => doctor::text(&findings),
        })?;
        if doctor::has_problem(&findings) { Err(Failure::Ended(1)) } else { Ok(()) }
    });
    ended("karmada-agent doctor", looked)
}

/// Whether JSON is wanted, and the agent's arguments; nothing if somebody asks for help.
fn split(arguments: Vec<OsString>) -> Result<Option<(bool, Vec<OsString>)>, String> {
    let (mut json, mut own) = (false, Vec::new());
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy();
        let format = match &*text {
            "-h" | "--help" => return Ok(None),
            "-o" | "--output" => match arguments.next() {
                Some(format) => format.to_string_lossy().into_owned(),
                None => return Err("--output wants text or json".to_owned()),
            },
            other => match other.strip_prefix("--output=").or_else(|| other.strip_prefix("-o=")) {
                Some(format) => format.to_owned(),
                None => {
                    own.push(argument);
                    continue;
                }
            },
        };
        json = match &*format {
            "json" => true,
            "text" => false,
            other => return Err(format!("--output wants text or json, not {other:?}")),
        };
    }
    Ok(Some((json, own)))
}

/// An agent that runs here.
#[derive(Debug, PartialEq, Eq)]
struct Running {
    process: u32,
    arguments: Vec<OsString>,
}

impl Running {
    /// Its cluster, if it says so.
    fn cluster(&self) -> Option<String> {
        let mut words = self.arguments.iter().map(|word| word.to_string_lossy());
        while let Some(word) = words.next() {
            match word.strip_prefix("--cluster-name") {
                Some("") => return words.next().map(Cow::into_owned),
                Some(name) if name.starts_with('=') => return Some(name[1..].to_owned()),
                _ => {}
            }
        }
        None
    }
}

/// The arguments of the agent that is meant: those that are given; of one that runs here, if no more than its cluster is named,
/// or nothing and there is only one.
fn meant(own: Vec<OsString>, running: impl FnOnce() -> Vec<Running>) -> Result<Vec<OsString>, String> {
    let named = match own.as_slice() {
        [] => None,
        [one] if one.to_string_lossy().starts_with("--cluster-name=") => {
            Some(one.to_string_lossy().trim_start_matches("--cluster-name=").to_owned())
        }
        [key, name] if key == "--cluster-name" => Some(name.to_string_lossy().into_owned()),
        _ => return Ok(own),
    };
    let mut found = running();
    if let Some(name) = named {
        let mut of = found.into_iter().filter(|one| one.cluster().as_deref() == Some(&*name));
        return Ok(match (of.next(), of.next()) {
            (Some(one), None) => one.arguments,
            _ => own,
        });
    }
    match found.len() {
        0 => Err("which agent? None runs here whose arguments could be read: give them".to_owned()),
        1 => Ok(found.remove(0).arguments),
        count => {
            let name = |one: &Running| {
                let cluster = one.cluster().unwrap_or_else(|| "of a cluster not named".to_owned());
                format!("{cluster} (process {})", one.process)
            };
            let names: Vec<String> = found.iter().take(NAMED).map(name).collect();
            let more = if count > NAMED { ", …" } else { "" };
            Err(format!(
                "which agent? {count} run here: {}{more}. Name one with --cluster-name",
                names.join(", ")
            ))
        }
    }
}

/// The agents among the processes that may be looked at, by their numbers.
fn running(proc: &Path) -> Vec<Running> {
    let mut found = Vec::new();
    for entry in fs::read_dir(proc).into_iter().flatten().take(PROCESSES).flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(line) = fs::read(entry.path().join("cmdline")) else { continue };
        let words: Vec<OsString> = line
            .split(|byte| *byte == 0)
            .filter(|word| !word.is_empty())
            .map(|word| OsString::from_vec(word.to_vec()))
            .collect();
        let is_agent = words
            .first()
            .is_some_and(|program| Path::new(program).file_name() == Some(OsStr::new("karmada-agent")));
        let rest = words.get(1..).unwrap_or_default();
        let arguments = match rest.first().and_then(|word| word.to_str()) {
            Some("join") if is_agent => rest[1..].to_vec(),
            Some(first) if is_agent && first.starts_with('-') => rest.to_vec(),
            _ => continue,
        };
        found.push(Running { process, arguments });
    }
    found.sort_by_key(|one| one.process);
    found
}

/// Everything, in the order in which an agent needs it.
async fn look(args: &Args, env: &Env) -> Vec<Finding> {
    let mut findings = Vec::new();
    let dir = args.state_dir.as_deref();
    findings.push(doctor::own_clock(newest(dir).unwrap_or(SystemTime::UNIX_EPOCH), env.wall()));
    if let Some(dir) = dir {
        findings.extend(state(dir));
        findings.extend(programs(args, dir));
    }
    let by_hand = args.invited.is_some();
    let member = member_endpoint(args.kubeconfig.as_deref(), args.context.as_deref(), by_hand);
    let client = member.as_ref().ok().map(|endpoint| {
        let (client, _) = client_for(endpoint.clone(), USER_AGENT, env.clone());
        Rest::new(client)
    });
    findings.extend(hub(args, client, env).await);
    match member {
        Ok(endpoint) => findings.extend(Box::pin(of_member(args, &endpoint, env)).await),
        Err(error) => findings.push(Finding::problem(
            Check::Settings,
            "member",
            error.to_string(),
            "a way to the member's API",
            "name its kubeconfig with --kubeconfig; in a Pod the Pod's own account is taken",
        )),
    }
    let status = health(&args.health_bind).await;
    let runs = status.is_some();
    for (flag, address) in
        [("--health-probe-bind-address", &args.health_bind), ("--metrics-bind-address", &args.metrics_bind)]
    {
        if address != "0" && !address.is_empty() {
            let bound = endpoints::bind(address).await.map(drop).map_err(|error| error.to_string());
            findings.push(doctor::port(flag, address, &bound, runs));
        }
    }
    findings.extend(status);
    findings
}

/// When anything in the state directory was last written.
fn newest(dir: Option<&Path>) -> Option<SystemTime> {
    let files = fs::read_dir(dir?).ok()?.take(FILES).flatten();
    files.filter_map(|file| file.metadata().ok()?.modified().ok()).max()
}

fn state(dir: &Path) -> Vec<Finding> {
    let path = dir.display().to_string();
    let mode = fs::metadata(dir).ok().map(|about| about.permissions().mode());
    let written = write(dir).map_err(|error| error.to_string());
    let mut findings = vec![doctor::folder(&path, &About { mode, written }, "the agent")];
    if mode.is_some()
        && let Ok(space) = rustix::fs::statvfs(dir)
    {
        let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
        findings.push(doctor::disk(&path, bytes(space.f_bavail), bytes(space.f_blocks), None));
    }
    findings
}

/// Which program the agent is, where it may be another than the installed one.
fn programs(args: &Args, dir: &Path) -> Option<Finding> {
    let slots = Folder::new(dir).read();
    let slots = slots.map_err(|error| error.to_string());
    doctor::program(env!("CARGO_PKG_VERSION"), args.runs_slots, &slots)
}

/// Whether something can be written there.
fn write(dir: &Path) -> std::io::Result<()> {
    let path = dir.join(format!(".doctor-{}", std::process::id()));
    let written = fs::File::create_new(&path).and_then(|mut file| file.write_all(b"?"));
    let removed = fs::remove_file(&path);
    written.and(removed)
}

/// The credential for the hub, and the way there.
async fn hub(args: &Args, member: Option<Rest>, env: &Env) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (credential, finding) = credential(args, member).await;
    findings.push(finding);
    let Some(credential) = credential else {
        findings.extend(invited(args, env).await);
        return findings;
    };
    if let Some(issued) = &credential.issued {
        findings.push(doctor::certificate("hub", issued.from, issued.until, env.wall(), NEW_TOKEN));
    }
    let ways = Ways::of(args, None, None, env.clone());
    let endpoint = match ways.endpoint(&credential) {
        Ok(endpoint) => endpoint,
        Err(error) => {
            let wanted = "a proxy that can be used";
            findings.push(Finding::problem(
                Check::Proxy,
                "hub",
                error.to_string(),
                wanted,
                "correct the variable or the flag",
            ));
            return findings;
        }
    };
    let probed = probe::probe(&endpoint, USER_AGENT, env).await;
    findings.extend(doctor::server("hub", &probed.found, NEW_TOKEN));
    let version = probed.version.as_ref().and_then(|version| version["gitVersion"].as_str());
    // A stock kube-apiserver has a version that is none of ours.
    if let Some((_, ours)) = version.and_then(|version| version.split_once("+karmada-")) {
        findings.push(doctor::version("hub", env!("CARGO_PKG_VERSION"), ours, "the hub"));
    }
    if version.is_some() {
        findings.push(hub_rights(&args.config.cluster, &probed.rest).await);
    }
    findings
}

/// The newest of what there is, and what was found.
async fn credential(args: &Args, member: Option<Rest>) -> (Option<Credential>, Finding) {
    let (mut found, mut failures): (Option<(Credential, String)>, Vec<String>) = (None, Vec::new());
    if let Some(path) = &args.karmada_kubeconfig {
        let file = File { path: path.clone(), context: args.karmada_context.clone() };
        match file.read() {
            Ok(credential) => found = Some((credential, path.display().to_string())),
            Err(error) => failures.push(first_line(&error.to_string())),
        }
    }
    let keep = match (&args.secret, member) {
        (Some((namespace, name)), Some(member)) => {
            Some(Keep::Secret { member, namespace: namespace.clone(), name: name.clone() })
        }
        (Some(_), None) => None,
        (None, _) => args.state_dir.clone().map(Keep::folder),
    };
    let begins = |credential: &Credential| credential.issued.as_ref().map(|issued| issued.from);
    if let Some(keep) = keep {
        match keep.look().await {
            Ok(Some(text)) => match Credential::parse(&PathBuf::from(keep.place()), &text, None) {
                Ok(kept) => {
                    found = Some(match found {
                        Some((file, place)) if begins(&kept) <= begins(&file) => (file, place),
                        _ => (kept, keep.place()),
                    });
                }
                Err(error) => failures.push(first_line(&error.to_string())),
            },
            Ok(None) => {}
            Err(why) => failures.push(format!("{}: {}", keep.place(), first_line(&why))),
        }
    }
    let about = "hub";
    match (found, args.invited.as_ref().map(|invited| invited.token.read())) {
        (Some((credential, place)), _) => (Some(credential), Finding::good(Check::Credential, about, place)),
        (None, Some(Ok(_))) if failures.is_empty() => {
            (None, Finding::good(Check::Credential, about, "none yet, and a token to join by"))
        }
        (None, invited) => {
            failures.extend(invited.and_then(Result::err));
            let found = if failures.is_empty() { "there is none".to_owned() } else { failures.join("; ") };
            (
                None,
                Finding::problem(
                    Check::Credential,
                    about,
                    found,
                    "a kubeconfig of the hub, or a token to join by",
                    NEW_TOKEN,
                ),
            )
        }
    }
}

/// A parser may show what it could not read in the lines below, and that may be a key.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// The way to a hub that is to be joined: who it is will be proved by its digest.
async fn invited(args: &Args, env: &Env) -> Vec<Finding> {
    let Some(invited) = &args.invited else { return Vec::new() };
    let Some((host, port)) = invited.hub.rsplit_once(':') else { return Vec::new() };
    let port = port.parse().unwrap_or(443);
    let ways = Ways::of(args, None, None, env.clone());
    let proxy = match ways.proxy_to(&invited.hub) {
        Ok(proxy) => proxy,
        Err(error) => {
            let wanted = "a proxy that can be used";
            return vec![Finding::problem(
                Check::Proxy,
                "hub",
                error.to_string(),
                wanted,
                "correct the variable or the flag",
            )];
        }
    };
    let proxy = proxy.as_ref().map(|(shown, host, port)| (shown.clone(), &**host, *port));
    let mut findings = doctor::server("hub", &probe::reach(host, port, proxy, env).await, NEW_TOKEN);
    findings.retain(|finding| finding.check != Check::Tls);
    findings.push(Finding::skipped(
        Check::Tls,
        "hub",
        "who it is will be proved by --ca-cert-hash when the cluster joins",
    ));
    findings
}

async fn hub_rights(cluster: &str, rest: &Rest) -> Finding {
    let works = format!("/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-{cluster}/works?limit=1");
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases/{cluster}", namespace::CLUSTER);
    let asked = [
        ("get its Cluster", format!("/apis/cluster.karmada.io/v1alpha1/clusters/{cluster}")),
        ("get its Lease", lease),
        ("list its Works", works),
    ];
    let mut refused = Vec::new();
    for (what, path) in &asked {
        if rest.get(path).await.is_err_and(|error| error.is_forbidden()) {
            refused.push((*what).to_owned());
        }
    }
    let advice = "the credential may be another cluster's: karmada-hub credentials --data-dir DIR --cluster NAME, or a new token; on a stock kube-apiserver: karmada-hub agent-rbac";
    doctor::rights("hub", asked.len(), &refused, advice)
}

async fn of_member(args: &Args, endpoint: &Endpoint, env: &Env) -> Vec<Finding> {
    let probed = probe::probe(endpoint, USER_AGENT, env).await;
    let renew = "the credential in the kubeconfig, or the account, is no longer valid: create a new one";
    let mut findings = doctor::server("member", &probed.found, renew);
    let version = probed.version.as_ref().and_then(|version| version["gitVersion"].as_str());
    if let Some(version) = version {
        findings.push(doctor::kubernetes("member", version));
        findings.push(member_rights(args, &probed.rest).await);
    }
    findings
}

async fn member_rights(args: &Args, rest: &Rest) -> Finding {
    let own = args.config.member_namespace.as_str();
    let mut wanted: Vec<probe::Wanted<'_>> =
        vec![("update", "coordination.k8s.io", "leases", own), ("create", "", "secrets", own)];
    match &args.config.scope {
        Scope::Everywhere => wanted.extend([
            ("list", "", "nodes", ""),
            ("list", "", "pods", ""),
            ("create", "", "namespaces", ""),
            ("patch", "apps", "deployments", ""),
            ("delete", "apps", "deployments", ""),
            ("watch", "apps", "deployments", ""),
            ("list", "apiextensions.k8s.io", "customresourcedefinitions", ""),
            ("escalate", "rbac.authorization.k8s.io", "clusterroles", ""),
        ]),
        Scope::Namespaces(names) => {
            for name in names.iter() {
                wanted
                    .extend(["patch", "delete", "watch"].map(|verb| (verb, "apps", "deployments", &**name)));
            }
        }
    }
    match probe::refused(rest, &wanted).await {
        Ok(refused) => doctor::rights("member", wanted.len(), &refused, MEMBER_RIGHTS),
        Err(error) => {
            Finding::skipped(Check::Rights, "member", format!("the member cannot be asked: {error}"))
        }
    }
}

/// What an agent that runs here says of itself.
async fn health(address: &str) -> Option<Finding> {
    if address == "0" || address.is_empty() {
        return None;
    }
    let asked = address.to_owned();
    let text =
        tokio::task::spawn_blocking(move || status::get(&asked, &format!("{}?limit=1", status::JSON)).ok());
    let status: Status = serde_json::from_str(&text.await.ok()??).ok()?;
    let mut troubles = status.troubles;
    if !status.why.is_empty() {
        troubles.insert(0, status.why);
    }
    let about = format!("agent of {}", status.cluster);
    Some(match troubles.is_empty() {
        true => Finding::good(Check::Health, about, format!("it runs, {}", status.phase)),
        false => Finding::problem(
            Check::Health,
            about,
            format!("it runs, {}: {}", status.phase, troubles.join("; ")),
            "no trouble",
            "karmada-agent status shows more",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn the_format_may_stand_anywhere() {
        let rows = [
            ("--cluster-name m1", Ok(Some((false, "--cluster-name m1")))),
            ("-o json --cluster-name m1", Ok(Some((true, "--cluster-name m1")))),
            ("--cluster-name m1 --output=json", Ok(Some((true, "--cluster-name m1")))),
            ("--output text", Ok(Some((false, "")))),
            ("--cluster-name m1 --help", Ok(None)),
            ("--output yaml", Err(())),
            ("--output", Err(())),
        ];
        for (line, want) in rows {
            let got = split(words(line)).map_err(drop);
            assert_eq!(got, want.map(|split| split.map(|(json, own)| (json, words(own)))), "{line}");
        }
    }

    #[test]
    fn the_arguments_of_the_agent_that_is_meant_are_found() {
        let proc = tempfile::tempdir().unwrap();
        let process = |pid: &str, line: &str| {
            fs::create_dir_all(proc.path().join(pid)).unwrap();
            let line: String = line.split(' ').map(|word| format!("{word}\0")).collect();
            fs::write(proc.path().join(pid).join("cmdline"), line).unwrap();
        };
        let meant = |line: &str| meant(words(line), || running(proc.path()));
        process("1", "/sbin/init");
        process("2", "/usr/local/bin/karmada-agent doctor");
        process("3", "karmada-agent status");
        fs::create_dir_all(proc.path().join("net")).unwrap();
        assert!(meant("").unwrap_err().contains("None runs here"));
        process("14", "/usr/local/bin/karmada-agent --cluster-name=m1 --state-dir /var/lib/a");
        assert_eq!(meant(""), Ok(words("--cluster-name=m1 --state-dir /var/lib/a")));
        process("5", "/bin/karmada-agent join --token a.secret --cluster-name m2");
        assert_eq!(
            meant("").unwrap_err(),
            "which agent? 2 run here: m2 (process 5), m1 (process 14). Name one with --cluster-name"
        );
        // By its name; of one that does not run here no more is known than is given.
        for (line, want) in [
            ("--cluster-name m2", "--token a.secret --cluster-name m2"),
            ("--cluster-name=m1", "--cluster-name=m1 --state-dir /var/lib/a"),
            ("--cluster-name m3", "--cluster-name m3"),
            ("--cluster-name m2 --state-dir d", "--cluster-name m2 --state-dir d"),
        ] {
            assert_eq!(meant(line), Ok(words(want)), "{line}");
        }
        fs::remove_dir_all(proc.path().join("14")).unwrap();
        assert_eq!(meant(""), Ok(words("--token a.secret --cluster-name m2")));
        for pid in 20..30 {
            process(&pid.to_string(), &format!("/bin/karmada-agent --cluster-name=c{pid}"));
        }
        assert!(meant("").unwrap_err().contains("11 run here: m2 (process 5), c20 (process 20), "));
        assert!(meant("").unwrap_err().contains("c26 (process 26), …. Name one"));
    }
}
