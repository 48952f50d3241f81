//! `karmada-agent support-bundle`: what the agent knows of itself in one file, to be passed on to somebody who helps.
//!
//! ```text
//!   running agent: /status.json, /metrics, /readyz?verbose, /support.json ─▶ scrubbed ─▶ FILE.tar.gz
//! ```
//!
//! What is told in it is named, each thing for itself: no command line, no environment, no file of the agent's, nothing that
//! Works hold. What members and hubs have said stands in logs and reasons, where what they say of Secrets is left out; what
//! looks like a credential there all the same is masked ([`scrub`]).

mod scrub;
mod tar;

use std::{
    ffi::OsString,
    fs::OpenOptions,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Parser;
use flate2::{Compression, write::GzEncoder};
use karmada_env::Env;
use karmada_meta::time::Time;
use karmada_telemetry::{recent::Recent, told::Told};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Failure, args::Args, ended, flags, status};
use crate::{Handle, Place};

/// Where the agent tells what else goes into a bundle.
pub(super) const PATH: &str = "/support.json";

/// No more Works are listed than a page has.
const STATUS: &str = "/status.json?all=true&limit=1000";

/// What only the agent itself knows.
#[derive(Debug, Serialize, Deserialize)]
struct Support {
    /// How it was told to behave.
    config: Value,
    /// The last lines that it has logged.
    log: Vec<String>,
    /// The files in its folder, and their sizes.
    state: Vec<(String, u64)>,
    /// The conditions of its Cluster, as they were last seen on the hub, and its version.
    cluster: Value,
}

/// What a bundle tells of what an agent was told: see [`config`].
#[derive(Clone, Debug)]
pub(super) struct About {
    config: Value,
    folder: Option<PathBuf>,
    recent: Recent,
}

impl About {
    pub(super) fn new(args: &Args, recent: Recent) -> Self {
        Self { config: config(args), folder: args.state_dir.clone(), recent }
    }

    /// What an agent tells for a bundle.
    pub(super) fn text(&self, agent: &Handle) -> String {
        let cluster = agent.cluster_status();
        let support = Support {
            config: self.config.clone(),
            log: self.recent.lines(),
            state: self.folder.as_deref().map(files).unwrap_or_default(),
            cluster: json!({"conditions": cluster["conditions"], "kubernetesVersion": cluster["kubernetesVersion"]}),
        };
        serde_json::to_string(&support).unwrap_or_default()
    }
}

/// How an agent was told to behave: each thing by name, so that nothing gets in that is secret.
fn config(args: &Args) -> Value {
    let config = &args.config;
    let seconds = |time: std::time::Duration| time.as_secs_f64();
    let kept = match &args.place {
        Place::Nowhere => "nowhere",
        Place::Folder(_, None) => "folder, its key in a Secret of the member",
        Place::Folder(_, Some(_)) => "folder, its key in a file",
        Place::Secrets => "Secrets of the member",
        Place::Memory(_) => "memory",
    };
    json!({
        "cluster": config.cluster,
        "statusIntervalSeconds": seconds(config.status_interval),
        "leaseDurationSeconds": seconds(config.lease_duration),
        "leaseIntervalSeconds": seconds(config.lease_interval),
        "successThresholdSeconds": seconds(config.success_threshold),
        "failureThresholdSeconds": seconds(config.failure_threshold),
        "memberNamespace": config.member_namespace,
        "workSyncs": config.work_syncs,
        "resourceModeling": config.resource_modeling,
        "scope": format!("{:?}", config.scope),
        "stateDir": args.state_dir,
        "stateKept": kept,
        "joins": args.invited.is_some(),
        "hubKubeconfig": args.karmada_kubeconfig,
        "memberKubeconfig": args.kubeconfig,
        "credentialIn": args.secret.as_ref().map(|(namespace, name)| format!("Secret {namespace}/{name}")),
        "proxy": args.proxy.is_some(),
        "healthBind": args.health_bind,
        "metricsBind": args.metrics_bind,
        "verbosity": args.verbosity,
        "notes": args.notes,
    })
}

/// The names and sizes of what is in a folder, a bounded number.
fn files(folder: &Path) -> Vec<(String, u64)> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<(String, u64)> = entries
        .take(100)
        .filter_map(|entry| {
            let entry = entry.ok()?;
            Some((entry.file_name().to_string_lossy().into_owned(), entry.metadata().ok()?.len()))
        })
        .collect();
    files.sort();
    files
}

/// Write a file for support with what the agent on this machine knows about itself: its status, its metrics, the last
/// lines of its log, and its settings. The file contains no data of Secrets and no credentials.
///
/// In a Pod: kubectl -n karmada-system exec deploy/karmada-agent -- karmada-agent support-bundle - > bundle.tar.gz
#[derive(Debug, Parser)]
#[command(name = "karmada-agent support-bundle", disable_help_subcommand = true)]
struct Flags {
    /// The file to write, which must not exist yet. -: standard output.
    file: PathBuf,
    /// Address on which the agent serves its health (its --health-probe-bind-address).
    #[arg(long, value_name = "HOST:PORT", default_value = status::ADDRESS)]
    address: String,
    #[command(flatten)]
    told: Told,
}

/// Its command line.
pub(super) fn command() -> clap::Command {
    <Flags as clap::CommandFactory>::command()
}

/// The command. `arguments` begin after the word.
pub(super) fn main(arguments: Vec<OsString>) -> ExitCode {
    match flags::<Flags>("karmada-agent support-bundle", arguments) {
        Ok(flags) => ended("karmada-agent support-bundle", run(&flags)),
        Err(code) => code,
    }
}

fn run(flags: &Flags) -> Result<(), Failure> {
    let get = |path: &str| status::get(&flags.address, path);
    // The one that must answer: without it there is nothing to be told.
    let support = get(PATH).map_err(Failure::Failed)?;
    let support: Support = serde_json::from_str(&support)
        .map_err(|error| Failure::Failed(format!("what answers at {}: {error}", flags.address)))?;
    // The others may fail, and say why: an agent that is in trouble is what this is for.
    let or_why = |path: &str| get(path).unwrap_or_else(|why| format!("{why}\n"));
    let now = Time::now(&Env::system());
    let texts = [
        ("status.json", or_why(STATUS)),
        ("metrics.txt", or_why("/metrics")),
        ("ready.txt", or_why("/readyz?verbose")),
        ("log.txt", support.log.iter().map(|line| format!("{line}\n")).collect()),
        ("config.json", pretty(&support.config)),
        ("cluster.json", pretty(&support.cluster)),
        ("state.json", pretty(&files_as_json(&support.state))),
        ("version.json", pretty(&versions(now))),
    ];
    let bundle = pack(&texts, now).map_err(|error| Failure::Failed(error.to_string()))?;
    if flags.file.as_os_str() == "-" {
        let written = std::io::stdout().write_all(&bundle);
        return written.map_err(|error| Failure::Failed(format!("standard output: {error}")));
    }
    let file = &flags.file;
    let wrong = |error: std::io::Error| Failure::Failed(format!("{}: {error}", file.display()));
    // Names of a shop's objects are in it.
    let mut target = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file).map_err(wrong)?;
    target.write_all(&bundle).and_then(|()| target.sync_all()).map_err(wrong)?;
    let line =
        format!("{} was written, {} bytes; look into it before you pass it on", file.display(), bundle.len());
    flags.told.say(&line, &json!({"file": file, "result": "written", "bytes": bundle.len()}))
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

fn files_as_json(files: &[(String, u64)]) -> Value {
    let files: Map<String, Value> = files.iter().map(|(name, bytes)| (name.clone(), json!(bytes))).collect();
    json!({"bytesByFile": files})
}

fn versions(now: Time) -> Value {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    json!({
        "karmadaAgent": env!("CARGO_PKG_VERSION"), "arch": std::env::consts::ARCH, "kernel": kernel.trim(),
        "written": now.to_string(),
    })
}

/// One compressed archive of texts, in a folder of its own.
fn pack(texts: &[(&str, String)], now: Time) -> std::io::Result<Vec<u8>> {
    let seconds = u64::try_from(now.timestamp().as_second()).unwrap_or(0);
    let mut archive = tar::Archive::new(GzEncoder::new(Vec::new(), Compression::default()));
    for (name, text) in texts {
        archive.add(&format!("karmada-agent-support/{name}"), scrub::scrub(text).as_bytes(), seconds)?;
    }
    archive.end()?.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_bundle_is_an_archive_of_scrubbed_texts() {
        let now = "2026-01-02T03:04:05Z".parse().unwrap();
        let token = "abcdef.0123456789abcdef";
        let texts = [("log.txt", format!("joined by {token}\n")), ("a.json", "{}".to_owned())];
        let bundle = pack(&texts, now).unwrap();
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(bundle.as_slice()).read_to_end(&mut plain).unwrap();
        assert_eq!(plain.len() % 512, 0);
        let text = String::from_utf8_lossy(&plain);
        assert!(text.starts_with("karmada-agent-support/log.txt\0"), "{text}");
        assert!(text.contains("joined by abcdef.[masked]\n") && !text.contains(token), "{text}");
    }

    #[test]
    fn a_folder_is_told_by_names_and_sizes() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("state.log"), "hunter2").unwrap();
        std::fs::write(folder.path().join("instance"), "x").unwrap();
        assert_eq!(files(folder.path()), [("instance".to_owned(), 1), ("state.log".to_owned(), 7)]);
        assert!(files(Path::new("/does/not/exist")).is_empty());
    }
}
