//! The command line: Karmada's flags with Karmada's defaults, so that its manifests and scripts start this agent, too.
//! What means nothing here is taken and said.

mod link;
mod tunnel;
mod upgrade;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{CommandFactory, FromArgMatches, Parser, error::ErrorKind};
use karmada_api::consts::namespace;
use karmada_client::{
    kubeconfig::{Address, POD_ACCOUNT},
    link::proxy::Proxy,
};
use karmada_core::estimate::outstanding::{PATIENCE, SETTLING};
use karmada_member::{RemovalRule, Scope};
pub(super) use karmada_telemetry::logs::Format as LogFormat;
use karmada_telemetry::told::Told;

use crate::{
    AgentConfig, Facts, Place,
    hub::{
        credential::keep::KUBECONFIG,
        join::{Invitation, KeyDigest, Token},
    },
    tunnel::Settings,
};

/// The longest lease that makes sense: a hub honours ten minutes unless its operator says otherwise.
const LONGEST_LEASE: Duration = Duration::from_secs(24 * 3600);

/// Where `join` keeps what must outlive the process, in a folder for each cluster.
const STATE: &str = "/var/lib/karmada-agent";

/// The shortest pause between renewals: a quarter of the shortest lease.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(250);

/// Why there is no agent to start.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Somebody asked for this text.
    Help(String),
    /// What is wrong, in one line.
    Wrong(String),
}

/// What the command line says, checked.
#[derive(Debug)]
pub(super) struct Args {
    pub(super) config: AgentConfig,
    /// `karmada-agent join`: somebody waits for what becomes of it.
    pub(super) join: bool,
    /// `karmada-agent leave`: how long it may take.
    pub(super) leave: Option<Duration>,
    pub(super) join_only: bool,
    pub(super) invited: Option<Invited>,
    pub(super) karmada_kubeconfig: Option<PathBuf>,
    /// Namespace and name of the Secret of the member that keeps the credential.
    pub(super) secret: Option<(String, String)>,
    pub(super) proxy: Option<Proxy>,
    /// Where else the hub is reached.
    pub(super) others: Vec<Address>,
    /// How the hub reaches the member, if it does.
    pub(super) tunnel: Option<Settings>,
    pub(super) karmada_context: Option<String>,
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) context: Option<String>,
    pub(super) state_dir: Option<PathBuf>,
    /// Whether programs of the agent's folder may run in the stead of the installed one.
    pub(super) runs_slots: bool,
    /// Where what the hub says is kept.
    pub(super) place: Place,
    pub(super) health_bind: String,
    pub(super) metrics_bind: String,
    pub(super) verbosity: u8,
    pub(super) log_format: LogFormat,
    /// How it is told that the cluster has joined or left.
    pub(super) told: Told,
    /// What was asked for and means nothing here.
    pub(super) notes: Vec<String>,
}

/// What a cluster was given to join by, but for a token that stands in a file.
#[derive(Clone, Debug)]
pub(super) struct Invited {
    pub(super) hub: String,
    pub(super) token: Source,
    pub(super) authorities: Vec<KeyDigest>,
}

/// Where a token is.
#[derive(Clone, Debug)]
pub(super) enum Source {
    Given(Token),
    /// Read each time: somebody may put another one there.
    File(PathBuf),
}

impl Source {
    /// The token that is there now.
    pub(super) fn read(&self) -> Result<Token, String> {
        match self {
            Self::Given(token) => Ok(token.clone()),
            Self::File(path) => {
                let wrong = |why: String| format!("--token-file: {}: {why}", path.display());
                let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
                Token::parse(&text).map_err(wrong)
            }
        }
    }
}

/// The agent of a member cluster: it pulls Works from the hub, applies them, and reports their status.
///
/// `karmada-agent join` takes --hub, --token and --ca-cert-hash, as karmada-hub token create prints them. It gets a
/// certificate, stores it in --state-dir, and continues as the agent. If it cannot join, it exits and says why. Without
/// `join` the agent keeps trying.
///
/// `karmada-agent leave` takes the arguments of the agent. It removes the member from the fleet, whether or not its
/// agent runs: it deletes the Cluster on the hub, removes the objects that were applied here (unless the policy says to
/// keep them), and deletes the credential.
///
/// `karmada-agent status` shows what the agent on this machine knows. `karmada-agent hold on` holds back the hub's
/// changes. `karmada-agent support-bundle FILE` writes a file for support. Each of these has its own arguments: see its
/// --help. `karmada-agent doctor` takes the arguments of the agent, checks everything that the agent needs, and says
/// what to do.
#[derive(Debug, Parser)]
#[command(
    name = "karmada-agent",
    version,
    disable_help_subcommand = true,
    after_long_help = "Exit codes: 0 it was told to stop, or is done; 1 it failed, the last line says why; 2 the arguments or a file \
                       that they name cannot be used."
)]
struct Flags {
    /// Name of the member cluster on the hub.
    #[arg(long, value_name = "NAME")]
    cluster_name: String,
    /// Address of the hub to join, if the agent has no credential yet.
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "karmada_kubeconfig", requires = "ca_cert_hash")]
    hub: Option<String>,
    /// The token with which this cluster joins. Other users of this machine can see it in the process list; use
    /// --token-file to avoid that.
    #[arg(long, value_name = "ID.SECRET", requires = "hub", conflicts_with = "token_file")]
    token: Option<String>,
    /// A file that contains the token.
    #[arg(long, value_name = "FILE", requires = "hub")]
    token_file: Option<PathBuf>,
    /// Digest of the public key of the hub's CA. May be given more than once.
    #[arg(
        long,
        alias = "discovery-token-ca-cert-hash",
        value_name = "sha256:HEX",
        value_delimiter = ',',
        requires = "hub"
    )]
    ca_cert_hash: Vec<String>,
    /// The proxy to the hub, http://… or socks5://…. Without it: proxy-url in the hub's kubeconfig, or else HTTPS_PROXY
    /// and NO_PROXY.
    #[arg(long, value_name = "URL")]
    proxy_url: Option<String>,
    /// More addresses of the hub, in addition to that of --hub or of its kubeconfig. The agent tries them in turn and
    /// stays with one that works. At each address the hub must prove that it is the same hub.
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',')]
    hub_addresses: Vec<Address>,
    /// With join: exit when the credential is stored.
    #[arg(long, requires = "hub")]
    join_only: bool,
    /// With leave: how long to wait at most until the Cluster is deleted on the hub.
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = duration)]
    wait: Duration,
    /// Kubeconfig for the hub. If --state-dir or the Secret contains a credential that was issued later, the agent uses
    /// that one.
    #[arg(long, value_name = "FILE")]
    karmada_kubeconfig: Option<PathBuf>,
    /// Context in the hub's kubeconfig. Without it: the current context.
    #[arg(long, value_name = "NAME")]
    karmada_context: Option<String>,
    /// Kubeconfig for the member. Without it: the Pod's service account. With join: the kubeconfig that kubectl uses.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context in the member's kubeconfig. Without it: the current context.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// A Secret on the member in which the agent stores the credential for the hub, instead of in --state-dir. Default
    /// in a Pod that joins: karmada-kubeconfig.
    #[arg(long, value_name = "NAME")]
    karmada_kubeconfig_secret: Option<String>,
    /// The namespace of that Secret.
    #[arg(long, value_name = "NAME", default_value = "karmada-system")]
    karmada_kubeconfig_namespace: String,
    /// Folder for what must outlive the process. Default with join: /var/lib/karmada-agent/NAME.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Where the agent stores what it received from the hub, so that it can continue after a restart while the hub is
    /// away: in --state-dir (dir), in Secrets on the member (secrets), or not at all (off). Without this flag: in
    /// --state-dir, if there is one.
    #[arg(long, value_name = "WHERE", value_enum)]
    state: Option<StateIn>,
    /// A file with the key that encrypts --state-dir: 32 bytes, plain or in base64. Without it, the key is in a Secret
    /// on the member.
    #[arg(long, value_name = "FILE")]
    state_key_file: Option<PathBuf>,
    /// Address of the member's API, shown in the Cluster for information.
    #[arg(long, value_name = "URL", default_value = "")]
    cluster_api_endpoint: String,
    /// Cloud provider of the member.
    #[arg(long, value_name = "NAME", default_value = "")]
    cluster_provider: String,
    /// Region of the member.
    #[arg(long, value_name = "NAME", default_value = "")]
    cluster_region: String,
    /// Failure zones of the member, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    cluster_zones: Vec<String>,
    /// How often the agent collects the member's status.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    cluster_status_update_frequency: Duration,
    /// The agent renews the Lease after this fraction of its duration, at most 0.5, so that it can repeat a lost
    /// renewal in time.
    #[arg(long, value_name = "PART", default_value_t = 0.25)]
    cluster_lease_renew_interval_fraction: f64,
    /// How long the member must be healthy before the agent reports it as ready again.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    cluster_success_threshold: Duration,
    /// How long the member must be unhealthy before the agent reports it as not ready.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    cluster_failure_threshold: Duration,
    /// How many Works the agent applies at the same time.
    #[arg(long, value_name = "N", default_value_t = 5)]
    concurrent_work_syncs: usize,
    /// Whether the agent reports resource models (nodes counted by grade).
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = clap::ArgAction::Set)]
    enable_cluster_resource_modeling: bool,
    /// The namespaces of the member in which the agent works. They must exist. Without it: all namespaces. The agent
    /// does not apply manifests for other namespaces or without a namespace, and says so in the status of their Work.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    namespaces: Vec<String>,
    /// If more than this percentage of the agent's objects, and more than five, would be removed within an hour, the
    /// agent waits for a confirmation on the Cluster. The condition RemovalsHeld says how to confirm. 100: never waits.
    /// 50 is a good choice where nobody could restore things soon.
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u8).range(0..=100))]
    hold_removals_above: u8,
    /// How long the agent waits if nobody confirms the removal. 0: until somebody does.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration)]
    hold_removals_for: Duration,
    /// Whether the agent waits for a confirmation before it follows a hub that knows less than the agent: one that was
    /// restored from a backup, emptied or moved. The Cluster's condition HubOlderThanAgent says so, and `karmada-hub
    /// confirm-restore` confirms.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = clap::ArgAction::Set)]
    hold_for_older_hubs: bool,
    /// The namespace on the member for the Lease of the agent, its record of fenced workloads, and what it received
    /// from the hub (or the key for that).
    #[arg(long, value_name = "NAME", default_value = "karmada-system")]
    leader_elect_resource_namespace: String,
    /// Address on which the agent serves its health (/healthz, /readyz). 0: off.
    #[arg(long, value_name = "ADDR:PORT", default_value = ":10357")]
    health_probe_bind_address: String,
    /// Address on which the agent serves its metrics (/metrics). 0: off.
    #[arg(long, value_name = "ADDR:PORT", default_value = ":8080")]
    metrics_bind_address: String,
    /// How much the agent logs: 0 is normal, 4 adds details, 6 everything.
    #[arg(short = 'v', long = "v", value_name = "N", default_value_t = 0)]
    verbosity: u8,
    /// Format of log lines.
    #[arg(long, alias = "logging-format", value_name = "FORMAT", value_enum, default_value_t)]
    log_format: LogFormat,
    #[command(flatten)]
    told: Told,
    #[command(flatten)]
    link: link::LinkFlags,
    #[command(flatten)]
    tunnel: tunnel::TunnelFlags,
    #[command(flatten)]
    upgrade: upgrade::UpgradeFlags,
    #[command(flatten)]
    karmadas: Karmadas,
}

/// Where what the hub says is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum StateIn {
    Dir,
    Secrets,
    Off,
}

/// Flags of Karmada's agent that this one takes and has no use for.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Flags of Karmada's agent that change nothing here")]
struct Karmadas {
    #[arg(long, value_name = "NAME", default_value = namespace::CLUSTER)]
    cluster_namespace: String,
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "*")]
    controllers: Vec<String>,
    #[arg(long, value_name = "URL")]
    proxy_server_address: Option<String>,
    #[arg(long, value_name = "N", default_value_t = 40.0)]
    cluster_api_qps: f64,
    #[arg(long, value_name = "N", default_value_t = 60)]
    cluster_api_burst: u32,
    #[arg(long, value_name = "N", default_value_t = 40.0)]
    kube_api_qps: f64,
    #[arg(long, value_name = "N", default_value_t = 60)]
    kube_api_burst: u32,
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = duration)]
    cluster_cache_sync_timeout: Duration,
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = duration)]
    resync_period: Duration,
    #[arg(long, value_name = "N", default_value_t = 5)]
    concurrent_cluster_syncs: usize,
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "None")]
    report_secrets: Vec<String>,
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = clap::ArgAction::Set)]
    leader_elect: bool,
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = duration)]
    leader_elect_lease_duration: Duration,
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    leader_elect_renew_deadline: Duration,
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    leader_elect_retry_period: Duration,
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration)]
    cert_rotation_checking_interval: Duration,
    #[arg(long, value_name = "PART", default_value_t = 0.2)]
    cert_rotation_remaining_time_threshold: f64,
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = duration)]
    rate_limiter_base_delay: Duration,
    #[arg(long, value_name = "TIME", default_value = "1000s", value_parser = duration)]
    rate_limiter_max_delay: Duration,
    #[arg(long, value_name = "N", default_value_t = 10)]
    rate_limiter_qps: u32,
    #[arg(long, value_name = "N", default_value_t = 100)]
    rate_limiter_bucket_size: u32,
    #[arg(long, value_name = "GATES", default_value = "")]
    feature_gates: String,
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = clap::ArgAction::Set)]
    enable_pprof: bool,
    #[arg(long, value_name = "ADDR:PORT", default_value = ":6060")]
    profiling_bind_address: String,
}

/// What the program is to do, if not to be the agent until it is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    None,
    Join,
    Leave,
    Doctor,
}

/// The agent's command line.
pub(super) fn command() -> clap::Command {
    Flags::command()
}

impl Args {
    /// Reads and checks a command line, the program's name first.
    pub(super) fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, Refusal> {
        let mut arguments: Vec<OsString> = arguments.into_iter().collect();
        // One word; everything else is the same with it and without.
        let word = match arguments.get(1).and_then(|word| word.to_str()) {
            Some("join") => Word::Join,
            Some("leave") => Word::Leave,
            Some("doctor") => Word::Doctor,
            _ => Word::None,
        };
        if word != Word::None {
            arguments.remove(1);
        }
        let command = command().color(clap::ColorChoice::Never);
        let matches = command.try_get_matches_from(arguments).map_err(|error| refusal(&error))?;
        let flags = Flags::from_arg_matches(&matches).map_err(|error| refusal(&error))?;
        let given = |name: &str| matches.value_source(name) == Some(clap::parser::ValueSource::CommandLine);
        if given("wait") && word != Word::Leave {
            return Err(Refusal::Wrong("--wait is for karmada-agent leave".into()));
        }
        if given("output") && word == Word::None {
            return Err(Refusal::Wrong(
                "--output is for join, leave and the other commands; logs: --log-format".into(),
            ));
        }
        let notes = flags.karmadas.notes(&given);
        let mut args = flags.check(word, notes).map_err(Refusal::Wrong)?;
        if word == Word::Leave || args.join_only {
            // Nobody asks whoever is soon done, and the agent at work on this machine may have them.
            for (name, address) in [
                ("health_probe_bind_address", &mut args.health_bind),
                ("metrics_bind_address", &mut args.metrics_bind),
            ] {
                if !given(name) {
                    "0".clone_into(address);
                }
            }
        }
        Ok(args)
    }
}

impl Flags {
    fn check(self, word: Word, mut notes: Vec<String>) -> Result<Args, String> {
        let (join, leave) = (word == Word::Join, word == Word::Leave);
        cluster_name(&self.cluster_name).map_err(|problem| format!("--cluster-name: {problem}"))?;
        // Whoever leaves has joined, and does not do so once more for that.
        let invited = self.invited()?.filter(|_| !leave);
        // A doctor says what is missing.
        let asks = word == Word::Doctor;
        if invited.is_none() && self.karmada_kubeconfig.is_none() && !leave && !asks {
            return Err("how to reach the hub is missing: --hub, --token and --ca-cert-hash, which karmada-hub token create prints, \
                        or --karmada-kubeconfig FILE".into());
        }
        if join && invited.is_none() {
            return Err(
                "join wants --hub, --token and --ca-cert-hash: karmada-hub token create prints them".into()
            );
        }
        if self.join_only && !join {
            return Err("--join-only is for karmada-agent join".into());
        }
        // In a pod nothing else outlives it.
        let secret = self.karmada_kubeconfig_secret.clone().or_else(|| {
            let is_needed = invited.is_some() && self.kubeconfig.is_none() && !join;
            is_needed.then(|| KUBECONFIG.to_owned())
        });
        let by_default = join || (leave || asks) && secret.is_none() && self.karmada_kubeconfig.is_none();
        let usual = || by_default.then(|| Path::new(STATE).join(&self.cluster_name));
        let state_dir = self.state_dir.or_else(usual);
        if invited.is_some() && secret.is_none() && state_dir.is_none() && !asks {
            return Err("--state-dir is missing: the folder that keeps the key and the certificate".into());
        }
        let place = match (self.state, &state_dir) {
            (None | Some(StateIn::Dir), Some(dir)) => Place::Folder(dir.clone(), self.state_key_file.clone()),
            (Some(StateIn::Dir), None) => {
                return Err("--state dir wants --state-dir".into());
            }
            (Some(StateIn::Secrets), _) => Place::Secrets,
            (None, None) | (Some(StateIn::Off), _) => Place::Nowhere,
        };
        if self.state_key_file.is_some() && !matches!(place, Place::Folder(..)) {
            return Err("--state-key-file is for what is kept in --state-dir".into());
        }
        let secret = secret.map(|name| (self.karmada_kubeconfig_namespace.clone(), name));
        let proxy = self.proxy_url.as_deref().map(Proxy::parse).transpose();
        let proxy = proxy.map_err(|problem| format!("--proxy-url: {problem}"))?;
        let link = self.link.check()?;
        let fraction = self.cluster_lease_renew_interval_fraction;
        if !(fraction > 0.0 && fraction <= 0.5) {
            return Err(format!(
                "--cluster-lease-renew-interval-fraction: must be greater than 0 and at most 0.5, not {fraction}: a renewal \
                 that is lost must be followed by another before the lease ends"
            ));
        }
        for (flag, value) in [
            ("--cluster-status-update-frequency", self.cluster_status_update_frequency),
            ("--cluster-lease-duration", link.terms.lease),
        ] {
            if value < Duration::from_secs(1) {
                return Err(format!("{flag}: must be at least 1s"));
            }
        }
        for (flag, value, most, why) in [
            (
                "--cluster-status-update-frequency",
                self.cluster_status_update_frequency,
                PATIENCE,
                "the hub gives the room that it knows of to others when no report has come for so long",
            ),
            (
                "--cluster-lease-duration",
                link.terms.lease,
                LONGEST_LEASE,
                "the hub would not know for so long that the cluster is lost",
            ),
        ] {
            if value > most {
                return Err(format!(
                    "{flag}: must be at most {}: {why}",
                    karmada_meta::duration::format(most)
                ));
            }
        }
        let lease_interval = link.terms.lease.mul_f64(fraction);
        if lease_interval < SHORTEST_INTERVAL {
            return Err(format!(
                "--cluster-lease-renew-interval-fraction: {fraction} of --cluster-lease-duration is a renewal every {}; \
                 the shortest pause is {}",
                karmada_meta::duration::format(lease_interval),
                karmada_meta::duration::format(SHORTEST_INTERVAL)
            ));
        }
        if self.cluster_status_update_frequency > SETTLING {
            notes.push(format!(
                "--cluster-status-update-frequency: the hub gives room on this cluster away again that was taken more than \
                 {} before a report",
                karmada_meta::duration::format(SETTLING)
            ));
        }
        if self.concurrent_work_syncs == 0 {
            return Err("--concurrent-work-syncs: must be at least 1".into());
        }
        let tunnel = self.tunnel.check(&self.namespaces)?;
        let own = || {
            let pods = std::fs::read_to_string(Path::new(POD_ACCOUNT).join("namespace"));
            let pods = pods.ok().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
            pods.unwrap_or_else(|| self.leader_elect_resource_namespace.clone())
        };
        // Whoever leaves, joins alone or asks a doctor is not replaced.
        let acts = !leave && !self.join_only && !asks;
        let runs_slots = self.upgrade.runs_slots();
        let upgrade =
            self.upgrade.check(self.kubeconfig.is_none(), state_dir.as_deref(), own)?.filter(|_| acts);
        let scope = Scope::named(self.namespaces).map_err(|problem| format!("--namespaces: {problem}"))?;
        if scope.is_narrow() && self.enable_cluster_resource_modeling {
            notes.push(
                "--namespaces: nodes and Pods of the whole cluster are not counted; the hub places here by policy alone"
                    .to_owned(),
            );
        }
        let config = AgentConfig {
            facts: Facts {
                api_endpoint: self.cluster_api_endpoint,
                provider: self.cluster_provider,
                region: self.cluster_region,
                zones: self.cluster_zones.into_iter().filter(|zone| !zone.is_empty()).collect(),
                link_windows: link.windows.unwrap_or_default(),
            },
            link: link.link,
            terms: link.terms,
            status_interval: self.cluster_status_update_frequency,
            lease_duration: link.terms.lease,
            lease_interval,
            success_threshold: self.cluster_success_threshold,
            failure_threshold: self.cluster_failure_threshold,
            member_namespace: self.leader_elect_resource_namespace,
            work_syncs: self.concurrent_work_syncs,
            resource_modeling: self.enable_cluster_resource_modeling && !scope.is_narrow(),
            scope,
            removals: RemovalRule {
                percent: self.hold_removals_above,
                wait: Some(self.hold_removals_for).filter(|wait| !wait.is_zero()),
            },
            doubt_older_hubs: self.hold_for_older_hubs,
            upgrade,
            ..AgentConfig::new(self.cluster_name)
        };
        Ok(Args {
            config,
            join,
            leave: leave.then_some(self.wait),
            join_only: self.join_only,
            invited,
            secret,
            proxy,
            others: self.hub_addresses,
            tunnel,
            karmada_kubeconfig: self.karmada_kubeconfig,
            karmada_context: self.karmada_context,
            kubeconfig: self.kubeconfig,
            context: self.context,
            state_dir,
            runs_slots,
            place,
            health_bind: self.health_probe_bind_address,
            metrics_bind: self.metrics_bind_address,
            verbosity: self.verbosity,
            log_format: self.log_format,
            told: self.told,
            notes,
        })
    }
}

impl Flags {
    /// What was given to join by; nothing if nothing was.
    fn invited(&self) -> Result<Option<Invited>, String> {
        let Some(hub) = &self.hub else { return Ok(None) };
        let hub = Invitation::hub(hub).map_err(|problem| format!("--hub: {problem}"))?;
        let token = match (&self.token, &self.token_file) {
            (Some(token), _) => Source::Given(
                Token::parse(token).map_err(|problem| format!("--token: what is given {problem}"))?,
            ),
            (None, Some(file)) => Source::File(file.clone()),
            (None, None) => {
                return Err("--hub wants --token or --token-file: karmada-hub token create prints one".into());
            }
        };
        let authorities = self.ca_cert_hash.iter().map(|text| KeyDigest::parse(text));
        let authorities: Result<Vec<_>, _> = authorities.collect();
        let authorities = authorities.map_err(|problem| format!("--ca-cert-hash: {problem}"))?;
        Ok(Some(Invited { hub, token, authorities }))
    }
}

impl Karmadas {
    /// A sentence for each flag that was given in vain and may be missed.
    fn notes(&self, given: &dyn Fn(&str) -> bool) -> Vec<String> {
        let mut notes = Vec::new();
        let mut note = |is: bool, text: &str| {
            if is {
                notes.push(text.to_owned());
            }
        };
        let asks_for_secrets = self.report_secrets.iter().any(|name| !name.is_empty() && name != "None");
        note(asks_for_secrets, "--report-secrets: this agent never uploads the member's credentials");
        note(
            self.leader_elect,
            "--leader-elect: not needed, two agents of one name notice each other by the lease",
        );
        note(given("proxy_server_address"), "--proxy-server-address: not supported yet");
        note(
            self.cluster_namespace != namespace::CLUSTER,
            "--cluster-namespace: not needed, no secrets are kept on the hub, and it looks for leases in karmada-cluster",
        );
        note(given("feature_gates"), "--feature-gates: there are none");
        note(given("resync_period"), "--resync-period: not needed, every watch compares after each list");
        note(
            given("rate_limiter_max_delay") || given("rate_limiter_base_delay"),
            "--rate-limiter-*: delays are the agent's own, 30s at most",
        );
        notes
    }
}

/// What clap says, in one line.
pub(super) fn refusal(error: &clap::Error) -> Refusal {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Refusal::Help(error.to_string()),
        _ => {
            let text = error.to_string();
            // The message is everything up to the first empty line; tips and usage follow.
            let message: Vec<_> =
                text.lines().take_while(|line| !line.trim().is_empty()).map(str::trim).collect();
            let line = message.join(" ");
            Refusal::Wrong(line.strip_prefix("error: ").unwrap_or(&line).to_owned())
        }
    }
}

/// Karmada's rule for names of clusters: a DNS label of at most 48 characters.
fn cluster_name(name: &str) -> Result<(), String> {
    const LIMIT: usize = 48;
    if name.len() > LIMIT {
        return Err(format!("{name:?} is longer than {LIMIT} characters; choose a shorter name"));
    }
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let ends = name.as_bytes().first().is_some_and(|b| alphanumeric(*b))
        && name.as_bytes().last().is_some_and(|b| alphanumeric(*b));
    if !ends || !name.bytes().all(|b| alphanumeric(b) || b == b'-') {
        return Err(format!(
            "{name:?} is not a name of a cluster: use lower-case letters, digits and dashes, with a letter or digit at both ends"
        ));
    }
    Ok(())
}

/// A duration as Go writes them: `1m30s`, `500ms`, `0`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration such as 30s, 1m30s or 500ms");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (mut rest, mut total) = (text, Duration::ZERO);
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let number: f64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let seconds = match &rest[..unit] {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(wrong()),
        };
        rest = &rest[unit..];
        total += Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Args, String> {
        let words = std::iter::once("karmada-agent").chain(line.split_whitespace()).map(OsString::from);
        Args::read(words).map_err(|refusal| match refusal {
            Refusal::Help(text) | Refusal::Wrong(text) => text,
        })
    }

    #[test]
    fn defaults_are_karmadas() {
        let args = read("--cluster-name m --karmada-kubeconfig f").unwrap();
        assert_eq!(args.config.lease_interval, Duration::from_secs(10));
        assert_eq!(args.config.lease_duration, Duration::from_secs(40));
        assert_eq!(args.config.status_interval, Duration::from_secs(10));
        assert_eq!((args.config.work_syncs, args.config.resource_modeling), (5, true));
        assert_eq!((args.health_bind.as_str(), args.metrics_bind.as_str()), (":10357", ":8080"));
        assert_eq!(args.config.removals, RemovalRule::default());
        assert!(args.notes.is_empty(), "{:?}", args.notes);
    }

    #[test]
    fn removals_are_held_as_is_asked_for() {
        let base = "--cluster-name m --karmada-kubeconfig f";
        let rule = |flags: &str| read(&format!("{base} {flags}")).map(|args| args.config.removals);
        let hour = Some(Duration::from_secs(3600));
        assert_eq!(rule("--hold-removals-above 50"), Ok(RemovalRule { percent: 50, wait: hour }));
        assert_eq!(
            rule("--hold-removals-above=0 --hold-removals-for=0"),
            Ok(RemovalRule { percent: 0, wait: None })
        );
        assert!(rule("--hold-removals-above 101").unwrap_err().contains("--hold-removals-above"));
    }

    #[test]
    fn what_goes_together_at_the_edge_is_taken() {
        let base = "--cluster-name m --karmada-kubeconfig f";
        for flags in [
            "--cluster-lease-renew-interval-fraction 0.5",
            "--cluster-lease-duration 1s",
            "--cluster-lease-duration 24h",
            "--cluster-status-update-frequency 1m",
        ] {
            assert_eq!(read(&format!("{base} {flags}")).unwrap().notes, [""; 0], "{flags}");
        }
        let seldom = read(&format!("{base} --cluster-status-update-frequency 5m")).unwrap();
        assert!(seldom.notes[0].starts_with("--cluster-status-update-frequency: "), "{:?}", seldom.notes);
        let elsewhere = read(&format!("{base} --cluster-namespace elsewhere")).unwrap();
        assert!(elsewhere.notes[0].starts_with("--cluster-namespace: not needed"), "{:?}", elsewhere.notes);
    }

    #[test]
    fn karmadas_own_command_lines_are_taken() {
        // As in Karmada's artifacts/agent and what register writes.
        let args = read(
            "--karmada-kubeconfig=/etc/kubeconfig/karmada-kubeconfig --karmada-context=karmada-apiserver \
             --cluster-name=member1 --cluster-status-update-frequency=10s --leader-elect \
             --leader-elect-resource-namespace=karmada-system --metrics-bind-address=0.0.0.0:8080 \
             --health-probe-bind-address=0.0.0.0:10357 --feature-gates=CustomizedClusterResourceModeling=true \
             --report-secrets=None --cluster-provider= --cluster-zones=a,b --v=4 --logging-format=json \
             --controllers=*,certRotation --cluster-namespace=karmada-cluster --enable-cluster-resource-modeling=false --cluster-api-qps=40.0",
        )
        .unwrap();
        assert_eq!(args.config.facts.zones, ["a", "b"]);
        assert_eq!((args.verbosity, args.log_format), (4, LogFormat::Json));
        assert!(!args.config.resource_modeling);
        assert_eq!(args.notes.len(), 2, "{:?}", args.notes);
    }

    #[test]
    fn the_line_of_karmadactl_register_is_taken() {
        let args = read(
            "--karmada-kubeconfig=/etc/kubeconfig/karmada-kubeconfig --cluster-name=m1 --cluster-api-endpoint=https://m1:6443 \
             --cluster-provider= --cluster-region= --cluster-zones= --controllers=* --proxy-server-address= \
             --leader-elect-resource-namespace=karmada-system --cluster-namespace=karmada-cluster --feature-gates= \
             --cluster-status-update-frequency=10s --metrics-bind-address=:8080 --health-probe-bind-address=0.0.0.0:10357 --v=4",
        );
        let args = args.unwrap();
        assert_eq!((args.config.facts.zones.len(), args.karmada_kubeconfig.is_some()), (0, true));
    }

    #[test]
    fn whoever_leaves_names_what_it_has_joined_by() {
        // line, where the credential is looked for, what may take the endpoints
        for (line, state, secret) in [
            ("leave --cluster-name m", Some("/var/lib/karmada-agent/m"), None),
            ("leave --cluster-name m --state-dir d", Some("d"), None),
            ("leave --cluster-name m --karmada-kubeconfig f", None, None),
            ("leave --cluster-name m --karmada-kubeconfig-secret s", None, Some("karmada-system")),
            (
                "leave --cluster-name m --hub h:1 --token abcdef.0123456789abcdef --ca-cert-hash \
                 sha256:0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f",
                Some("/var/lib/karmada-agent/m"),
                None,
            ),
        ] {
            let args = read(line).unwrap();
            assert_eq!(args.state_dir.as_deref(), state.map(Path::new), "{line}");
            assert_eq!(args.secret.as_ref().map(|(namespace, _)| namespace.as_str()), secret, "{line}");
            assert!(args.invited.is_none() && args.leave == Some(Duration::from_secs(120)), "{line}");
            assert_eq!((args.health_bind.as_str(), args.metrics_bind.as_str()), ("0", "0"), "{line}");
        }
        assert_eq!(read("leave --cluster-name m --metrics-bind-address :1").unwrap().metrics_bind, ":1");
        let invited = "join --cluster-name m --hub h:1 --token abcdef.0123456789abcdef --ca-cert-hash \
                       sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
        // Only joining ends as soon; who goes on is the agent of this machine.
        assert_eq!(read(&format!("{invited} --join-only")).unwrap().health_bind, "0");
        assert_eq!(read(invited).unwrap().health_bind, ":10357");
        let why = read("--cluster-name m --karmada-kubeconfig f --wait 1s").unwrap_err();
        assert_eq!(why, "--wait is for karmada-agent leave");
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        let base = "--cluster-name m --karmada-kubeconfig f";
        let rows = [
            ("".to_owned(), "the following required arguments were not provided: --cluster-name <NAME>"),
            (format!("{base} --no-such-flag"), "unexpected argument '--no-such-flag' found"),
            (format!("{base} extra"), "unexpected argument 'extra' found"),
            (
                format!("{base} --cluster-lease-duration 40"),
                "invalid value '40' for '--cluster-lease-duration <TIME>': \"40\" is not a duration",
            ),
            (
                format!("{base} --cluster-lease-duration 10ms"),
                "--cluster-lease-duration: must be at least 1s",
            ),
            (
                format!("{base} --cluster-lease-renew-interval-fraction 1"),
                "--cluster-lease-renew-interval-fraction: must be",
            ),
            (
                format!("{base} --cluster-lease-renew-interval-fraction 0.51"),
                "--cluster-lease-renew-interval-fraction: must be greater than 0 and at most 0.5, not 0.51",
            ),
            (
                format!("{base} --cluster-lease-renew-interval-fraction NaN"),
                "--cluster-lease-renew-interval-fraction: must be",
            ),
            (
                format!("{base} --cluster-lease-renew-interval-fraction 0.001"),
                "--cluster-lease-renew-interval-fraction: 0.001 of --cluster-lease-duration is a renewal every 0.04s",
            ),
            (
                format!("{base} --cluster-lease-duration 2562047h"),
                "--cluster-lease-duration: must be at most 24h0m0s",
            ),
            (
                format!("{base} --cluster-status-update-frequency 5m1s"),
                "--cluster-status-update-frequency: must be at most 5m0s",
            ),
            (format!("{base} --concurrent-work-syncs 0"), "--concurrent-work-syncs: must be at least 1"),
            ("--cluster-name A_b --karmada-kubeconfig f".into(), "--cluster-name: \"A_b\" is not a name"),
            (format!("--cluster-name {} --karmada-kubeconfig f", "a".repeat(49)), "--cluster-name: "),
        ];
        for (line, want) in rows {
            let error = read(&line).expect_err(want);
            assert!(error.starts_with(want), "{error:?}\n  wanted {want:?}");
            assert_eq!(error.lines().count(), 1, "{error:?}");
        }
    }

    #[test]
    fn go_durations() {
        let rows = [
            ("0", 0),
            ("10s", 10_000),
            ("1m30s", 90_000),
            ("500ms", 500),
            ("1.5h", 5_400_000),
            ("2m", 120_000),
        ];
        for (text, millis) in rows {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "10", "-1s", "1x", "1e400s", "1s2", "1..2s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
