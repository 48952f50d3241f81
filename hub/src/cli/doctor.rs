//! `karmada-hub doctor`: whether everything is there that a hub needs, and what to do where it is not.
//!
//! What is made of the facts is `karmada_core::doctor`'s; here they are collected. Nothing is changed, but for a file that is written
//! to the data directory and taken away again.

use std::{
    fs,
    io::Write,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::Path,
    time::{Duration, SystemTime},
};

use karmada_apiserver::pki::Pki;
use karmada_cli::{Failure, print, told::Report};
use karmada_client::{
    Error, Kubeconfig, Rest,
    link::proxy::Proxy,
    probe::{self, Wanted},
};
use karmada_core::{
    doctor::{self, Check, Finding, Folder},
    ways::Ways,
};
use karmada_env::Env;
use karmada_meta::object;
use karmada_objects::kinds::CLUSTERS;
use serde_json::Value;
use tokio::time::timeout;

use super::{
    args::{DoctorArgs, ServeArgs},
    serve,
};

/// Who asks, in logs.
const USER_AGENT: &str = concat!("karmada-hub-doctor/", env!("CARGO_PKG_VERSION"));
/// Files of the data directory that are looked at.
const FILES: usize = 64;
/// How much is written to measure the disk, and how often.
const PIECE: [u8; 4_096] = [b'?'; 4_096];
const WRITES: usize = 3;
/// How long a look at all Clusters may take, how many are read at a time, and how many are named.
const LOOKED: Duration = Duration::from_secs(10);
const PAGE: usize = 50;
const NAMED: usize = 10;
/// Where a hub's log is.
const LOG: &str = "journalctl -u karmada-hub, or kubectl logs karmada-hub-0";
/// What a hub has to be allowed on a stock kube-apiserver: verb, group, resource, everywhere.
const RIGHTS: [Wanted<'static>; 10] = [
    ("create", "apiextensions.k8s.io", "customresourcedefinitions", ""),
    ("create", "", "namespaces", ""),
    ("patch", "work.karmada.io", "works", ""),
    ("patch", "work.karmada.io", "resourcebindings", ""),
    ("patch", "cluster.karmada.io", "clusters", ""),
    ("watch", "policy.karmada.io", "propagationpolicies", ""),
    ("watch", "apps", "deployments", ""),
    ("update", "coordination.k8s.io", "leases", ""),
    ("create", "", "events", ""),
    ("watch", "", "secrets", ""),
];

/// Looks, and says what there is. A problem is exit code 1, without another line.
pub(super) async fn run(args: DoctorArgs, env: Env) -> Result<(), Failure> {
    let findings = Box::pin(look(&args.serve, &env)).await;
    let text = match args.output {
        Report::Text => doctor::text(&findings),
        Report::Json => {
            format!("{:#}\n", doctor::report("karmada-hub", env!("CARGO_PKG_VERSION"), &findings))
        }
    };
    print(&text)?;
    if doctor::has_problem(&findings) { Err(Failure::Ended(1)) } else { Ok(()) }
}

/// Everything, in the order in which a hub needs it.
async fn look(args: &ServeArgs, env: &Env) -> Vec<Finding> {
    let dir = args.data_dir.as_path();
    let mut findings =
        vec![settings(args), doctor::own_clock(newest(dir).unwrap_or(SystemTime::UNIX_EPOCH), env.wall())];
    findings.extend(data(dir, env));
    findings.push(certificates(dir, env));
    if let Some(file) = &args.encryption_provider_config {
        let (check, about) = (Check::Encryption, file.display().to_string());
        findings.push(match serve::keys(Some(file)) {
            Ok(_) => Finding::good(check, about, "it can be read"),
            Err(failure) => Finding::problem(
                check,
                about,
                reason(&failure),
                "an EncryptionConfiguration of apiserver.config.k8s.io/v1",
                "correct it; without the keys in use the hub does not start",
            ),
        });
    }
    findings.push(doctor::open_files(serve::most_files(), args.limits.max_connections as u64));
    findings.push(doctor::memory(serve::memory_there_is(), serve::quota(args)));
    let (runs, health) = Box::pin(running(dir, env)).await;
    let bound = TcpListener::bind(args.listen).map(drop).map_err(|error| error.to_string());
    findings.push(doctor::port("--listen", &args.listen.to_string(), &bound, runs));
    findings.extend(health);
    findings.extend(advertised(args, runs, env).await);
    findings.extend(proxy(env).await);
    match &args.kubeconfig {
        None => findings.push(doctor::backup(serve::last_backup(dir), env.wall())),
        Some(file) => findings.extend(Box::pin(engine(file, args.context.as_deref(), env)).await),
    }
    findings
}

fn reason(failure: &Failure) -> String {
    let text = match failure {
        Failure::Usage(text) | Failure::Failed(text) | Failure::Answered { why: text, .. } => text.as_str(),
        Failure::Ended(_) => "",
    };
    // A parser may show what it could not read in the lines below, and that may be a key.
    text.lines().next().unwrap_or_default().to_owned()
}

fn settings(args: &ServeArgs) -> Finding {
    match serve::check(args) {
        Ok(()) => Finding::good(Check::Settings, "", "the arguments go together"),
        Err(failure) => Finding::problem(
            Check::Settings,
            "",
            reason(&failure),
            "arguments that go together",
            "karmada-hub serve --help says what each means",
        ),
    }
}

/// When anything in the data directory was last written.
fn newest(dir: &Path) -> Option<SystemTime> {
    let files = fs::read_dir(dir).ok()?.take(FILES).flatten();
    files.filter_map(|file| file.metadata().ok()?.modified().ok()).max()
}

/// The data directory, and the disk that it is on.
fn data(dir: &Path, env: &Env) -> Vec<Finding> {
    let path = dir.display().to_string();
    let mode = fs::metadata(dir).ok().map(|about| about.permissions().mode());
    let (mut written, mut slowest) = (Ok(()), None);
    if mode.is_some() {
        match write(dir, env) {
            Ok(took) => slowest = Some(took),
            Err(error) => written = Err(error.to_string()),
        }
    }
    let mut findings = vec![doctor::folder(&path, &Folder { mode, written }, "the hub")];
    // Where it will be made, its parent tells.
    let there = dir.ancestors().find(|dir| dir.is_dir());
    if let Some(Ok(space)) = there.map(rustix::fs::statvfs) {
        let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
        findings.push(doctor::disk(&path, bytes(space.f_bavail), bytes(space.f_blocks), slowest));
    }
    findings
}

/// How long a small write takes to be durable, the slowest of some.
fn write(dir: &Path, env: &Env) -> std::io::Result<Duration> {
    let path = dir.join(format!(".doctor-{}", std::process::id()));
    let mut file = fs::File::create_new(&path)?;
    let mut slowest = Duration::ZERO;
    let written = (0..WRITES).try_for_each(|_| {
        let begun = env.now();
        file.write_all(&PIECE)?;
        file.sync_all()?;
        slowest = slowest.max(env.now().saturating_sub(begun));
        Ok(())
    });
    let removed = fs::remove_file(&path);
    written.and(removed).map(|()| slowest)
}

fn certificates(dir: &Path, env: &Env) -> Finding {
    if !dir.join("pki").is_dir() {
        return Finding::skipped(
            Check::Certificate,
            "authority",
            "the hub's keys are made at its first start",
        );
    }
    match Pki::open(dir, env) {
        Ok(pki) => doctor::authority(pki.authorities().1.until, env.wall()),
        Err(error) => Finding::problem(
            Check::Certificate,
            "authority",
            error.to_string(),
            "keys that can be read",
            "restore them from a backup: karmada-hub restore --from FILE --data-dir EMPTY",
        ),
    }
}

/// Whether a hub runs on the data directory, and what it says of itself.
async fn running(dir: &Path, env: &Env) -> (bool, Vec<Finding>) {
    let file = dir.join("admin.kubeconfig");
    let about = "hub";
    if !file.is_file() {
        return (false, vec![doctor::health(about, Err("no hub has run here yet"), LOG)]);
    }
    let Ok(endpoint) = Kubeconfig::load(&file).and_then(|kubeconfig| kubeconfig.endpoint(None)) else {
        let why = format!("{} cannot be read", file.display());
        return (false, vec![Finding::skipped(Check::Health, about, why)]);
    };
    let probed = probe::probe(&endpoint, USER_AGENT, env).await;
    match &probed.found.answered {
        Some(Ok((200, _))) => {}
        Some(Ok((code, said))) => {
            let found = format!("{code}: {said}");
            let advice = "admin.kubeconfig may be another hub's, or somebody else listens at its address";
            let finding = Finding::problem(
                Check::Login,
                about,
                found,
                "a hub that takes its own admin.kubeconfig",
                advice,
            );
            return (false, vec![finding]);
        }
        Some(Err(why)) => {
            let found = format!("{}: {why}", endpoint.server);
            return (false, vec![doctor::health(about, Err(&found), LOG)]);
        }
        None => {
            let found = format!("nobody listens at {}", endpoint.server);
            return (false, vec![doctor::health(about, Err(&found), LOG)]);
        }
    }
    let mut findings = Vec::new();
    let version =
        probed.version.as_ref().and_then(|version| version["gitVersion"].as_str()).unwrap_or_default();
    let (_, theirs) = version.split_once("+karmada-").unwrap_or_default();
    if !theirs.is_empty() && theirs != env!("CARGO_PKG_VERSION") {
        let found = format!("the hub that runs is {theirs}, this program is {}", env!("CARGO_PKG_VERSION"));
        let advice = "restart it to have the new one run";
        findings.push(Finding::problem(Check::Version, about, found, "the same", advice).as_note());
    }
    // A failing check is an answer with another code, whose text is the error's.
    let said = match probed.rest.get_text("/readyz?verbose").await {
        Ok(text) => text,
        Err(error) => error.to_string(),
    };
    findings.push(doctor::health(about, Ok(&said), LOG));
    findings.extend(ways(&probed.rest).await);
    (true, findings)
}

/// Members that the hub dials though their agents serve tunnels. Nothing where Clusters are another server's.
async fn ways(rest: &Rest) -> Option<Finding> {
    let look = async {
        let (mut count, mut some) = (0, Vec::new());
        let mut pages = rest.pages(CLUSTERS.collection(None), PAGE).passing();
        while let Some(page) = pages.next::<Value>().await? {
            for cluster in page.items.iter().filter(|cluster| Ways::read(cluster).are_two()) {
                count += 1;
                if some.len() < NAMED {
                    some.push(object::name(cluster).to_owned());
                }
            }
        }
        Ok::<_, Error>((count, some))
    };
    let skipped = |why: String| Finding::skipped(Check::Tunnels, "", why);
    match timeout(LOOKED, Box::pin(look)).await {
        Ok(Ok((count, some))) => Some(doctor::ways(count, &some)),
        Ok(Err(error)) if error.is_not_found() => None,
        Ok(Err(error)) => Some(skipped(format!("the Clusters cannot be read: {error}"))),
        Err(_) => Some(skipped(format!("the Clusters were not read within {} s", LOOKED.as_secs()))),
    }
}

/// Whether members find the hub under the names that they are given.
async fn advertised(args: &ServeArgs, runs: bool, env: &Env) -> Vec<Finding> {
    let mut findings = Vec::new();
    for host in &args.advertise {
        let about = format!("--advertise {host}");
        let mut found = doctor::server(&about, &probe::reach(host, args.listen.port(), None, env).await, "");
        // Who is there is not asked here. Before the first start nobody is.
        found.retain(|finding| finding.check == Check::Dns || runs && finding.check == Check::Connection);
        findings.extend(found);
    }
    findings
}

/// The proxy by which webhooks and issuers of tokens are reached, if the environment names one.
async fn proxy(env: &Env) -> Vec<Finding> {
    let anywhere = http::Uri::from_static("https://hub.invalid");
    match Proxy::of_environment(&anywhere, |name| std::env::var(name).ok()) {
        Ok(None) => Vec::new(),
        Err(error) => {
            vec![Finding::problem(
                Check::Proxy,
                "",
                error,
                "a proxy that can be used",
                "correct the variable",
            )]
        }
        Ok(Some(proxy)) => {
            let through = (proxy.to_string(), proxy.host(), proxy.port());
            let mut found = doctor::server("outgoing", &probe::reach("", 0, Some(through), env).await, "");
            found.retain(|finding| matches!(finding.check, Check::Dns | Check::Proxy));
            found
        }
    }
}

/// The API server of somebody else's on which the hub is to work.
async fn engine(file: &Path, context: Option<&str>, env: &Env) -> Vec<Finding> {
    let endpoint = match Kubeconfig::load(file).and_then(|kubeconfig| kubeconfig.endpoint(context)) {
        Ok(endpoint) => endpoint,
        Err(error) => {
            let found = error.to_string();
            let found = found.lines().next().unwrap_or_default();
            return vec![Finding::problem(
                Check::Settings,
                "--kubeconfig",
                found,
                "a kubeconfig with that context",
                "kubectl config get-contexts --kubeconfig FILE",
            )];
        }
    };
    let probed = probe::probe(&endpoint, USER_AGENT, env).await;
    let mut findings =
        doctor::server("engine", &probed.found, "give the hub a credential that the server takes");
    if let Some(version) = probed.version.as_ref().and_then(|version| version["gitVersion"].as_str()) {
        findings.push(doctor::kubernetes("engine", version));
        findings.push(rights(&probed.rest).await);
        findings.extend(ways(&probed.rest).await);
    }
    findings
}

async fn rights(rest: &Rest) -> Finding {
    match probe::refused(rest, &RIGHTS).await {
        Ok(refused) => {
            let advice = "bind the hub's user to manifests/hub/clusterrole.yaml";
            doctor::rights("engine", RIGHTS.len(), &refused, advice)
        }
        Err(error) => {
            Finding::skipped(Check::Rights, "engine", format!("the server cannot be asked: {error}"))
        }
    }
}
