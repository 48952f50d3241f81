//! What can be said on the command line. Plain data: nothing is opened or read here.

mod audit;
mod authn;
mod judge;
mod numbers;
mod push;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args as ClapArgs, Parser, Subcommand};

use karmada_apiserver::node_ports::PortRange;
use karmada_cli::{
    Failure,
    told::{Report, Told},
};
use karmada_meta::duration;
use karmada_telemetry::logs::Format as LogFormat;

pub(super) use self::{
    audit::{AuditArgs, AuditMode},
    push::PushArgs,
};
use self::{authn::AuthnArgs, judge::JudgeArgs, numbers::positive};

/// The hub: policies, bindings and the API that agents pull from.
#[derive(Debug, Parser)]
#[command(name = "karmada-hub", version, about)]
pub struct Args {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run the hub.
    Serve(Box<ServeArgs>),
    /// Print a kubeconfig for one cluster's agent, or for a Prometheus. Each may reach its own part of the hub and nothing else.
    Credentials(CredentialsArgs),
    #[command(flatten)]
    Ask(karmada_cli::Command),
    /// Write a hub's objects as YAML, to be applied to another API server.
    #[command(after_long_help = EXPORT_HELP)]
    Export(ExportArgs),
    /// Write a hub's objects and keys into one file, whether it runs or not.
    #[command(after_long_help = BACKUP_HELP)]
    Backup(BackupArgs),
    /// Make a data directory from a backup.
    #[command(after_long_help = BACKUP_HELP)]
    Restore(RestoreArgs),
    /// Look whether everything is there that a hub needs: clock, names, proxy, disk, keys, rights, ports. With the arguments of
    /// serve; changes nothing.
    #[command(after_long_help = DOCTOR_HELP)]
    Doctor(Box<DoctorArgs>),
    /// Print what a shell completes the command line by. For bash: source <(karmada-hub completion bash).
    Completion(CompletionArgs),
    /// Write the manual pages of both programs into a folder.
    #[command(hide = true)]
    ManPages(ManPagesArgs),
    /// Print the definitions of the Karmada kinds.
    Crds,
    /// Print the roles and bindings that one cluster's agent needs on a stock kube-apiserver. The embedded API needs none.
    AgentRbac(AgentRbacArgs),
}

/// What comes of it, for `doctor --help`.
const DOCTOR_HELP: &str = "\
Each line is a check: what was found, what is wanted, what to do, and where hub/docs/doctor.md explains it. No secret is shown.

Exit codes: 0 no problem, 1 a problem, 2 the arguments cannot be used.";

/// Arguments of `doctor`.
#[derive(Clone, Debug, ClapArgs)]
pub(super) struct DoctorArgs {
    #[command(flatten)]
    pub(super) serve: ServeArgs,
    /// How it is printed.
    #[arg(short = 'o', long, value_enum, default_value_t = Report::Text)]
    pub(super) output: Report,
}

/// Arguments of `completion`.
#[derive(Clone, Debug, ClapArgs)]
pub(super) struct CompletionArgs {
    /// For which shell.
    #[arg(value_enum)]
    pub(super) shell: Shell,
    /// Of which program. The agent is small, and leaves this to the hub.
    #[arg(long, value_enum, default_value_t = Program::KarmadaHub)]
    pub(super) program: Program,
}

/// A shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// One of the two programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Program {
    KarmadaHub,
    KarmadaAgent,
}

/// Arguments of `man-pages`.
#[derive(Clone, Debug, ClapArgs)]
pub(super) struct ManPagesArgs {
    /// The folder, which is there.
    #[arg(value_name = "DIR")]
    pub(super) dir: PathBuf,
}

/// Arguments of `agent-rbac`.
#[derive(Clone, Debug, ClapArgs)]
pub(super) struct AgentRbacArgs {
    /// The cluster.
    #[arg(long, value_name = "NAME")]
    pub(super) cluster: String,
    /// The user of the agent's kubeconfig: system:karmada:agent:NAME, in the group system:karmada:agents, since what agents
    /// write is judged by that. Without it the service account karmada-agent-NAME in karmada-system is made.
    #[arg(long, value_name = "USER")]
    pub(super) user: Option<String>,
}

/// Arguments of `serve`.
#[derive(Clone, Debug, ClapArgs)]
pub struct ServeArgs {
    /// Where the hub keeps its objects and keys.
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Where to listen; port 0 picks a free one.
    #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:6443")]
    pub listen: SocketAddr,
    /// A name or address by which agents and users reach the hub; may be given more than once. The serving
    /// certificate holds them all, the first one stands in kubeconfigs.
    #[arg(long, value_name = "HOST")]
    pub advertise: Vec<String>,
    /// Which objects are encrypted in the store's files and in backups, with which keys: an EncryptionConfiguration of
    /// apiserver.config.k8s.io/v1. List works.work.karmada.io beside secrets: Works hold manifests of Secrets. The file is
    /// followed, and all of the store is written anew when it says something else. Keep a copy of it away from
    /// the backups: without it nobody can read them.
    #[arg(long, value_name = "FILE", conflicts_with = "kubeconfig")]
    pub encryption_provider_config: Option<PathBuf>,
    /// Run the controllers on this API server (a stock kube-apiserver) instead of the embedded one. The hub then
    /// listens for health checks, scrapes and, where --advertise says how the server reaches it, admission webhooks.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context to use of --kubeconfig.
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    pub context: Option<String>,
    /// Work only while this hub holds the Lease karmada-system/karmada-hub on the server of --kubeconfig, so that
    /// several may run and one works. Without it a second hub would undo the first one's work.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true",
          action = clap::ArgAction::Set, requires = "kubeconfig")]
    pub leader_elect: bool,
    /// How long the others wait for a leader that renews no more; in whole seconds.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration::parse, requires = "kubeconfig")]
    pub leader_elect_lease_duration: Duration,
    /// How long a leader that cannot renew goes on; shorter than the lease duration.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse, requires = "kubeconfig")]
    pub leader_elect_renew_deadline: Duration,
    /// Between attempts to become leader, or to stay it.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::parse, requires = "kubeconfig")]
    pub leader_elect_retry_period: Duration,
    /// Run even beside karmada-controller-manager or karmada-scheduler on the server of --kubeconfig. They do the
    /// same work by other rules: for a short while at most.
    #[arg(long, requires = "kubeconfig")]
    pub allow_foreign_controllers: bool,
    /// How often the health of clusters is judged.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = positive)]
    pub cluster_monitor_period: Duration,
    /// How long a cluster may show no sign of life before it counts as unhealthy.
    #[arg(long, value_name = "DURATION", default_value = "40s", value_parser = positive)]
    pub cluster_monitor_grace_period: Duration,
    /// The same for a cluster that has just joined, and for all of them when the hub has just started.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse)]
    pub cluster_startup_grace_period: Duration,
    /// Namespaces that are never propagated, as regular expressions over the whole name.
    #[arg(long, value_name = "REGEX", value_delimiter = ',', default_value = "kube-.*")]
    pub skipped_propagating_namespaces: Vec<String>,
    /// Kinds that are never propagated: GROUP;GROUP/VERSION;GROUP/VERSION/KIND,KIND; the core group is left out, as in v1/Pod.
    #[arg(long, value_name = "APIS", default_value = "", hide_default_value = true)]
    pub skipped_propagating_apis: String,
    /// Whether clusters that get no replicas of a divided workload get the workload all the same, with none: also when
    /// it is scaled to none.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, default_missing_value = "true",
          action = clap::ArgAction::Set)]
    pub enable_empty_workload_propagation: bool,
    /// Leave the replicas of what a propagated HorizontalPodAutoscaler scales to the members, by the label
    /// resourcetemplate.karmada.io/retain-replicas on the template, and write the sum of them back into a divided
    /// Deployment: Karmada's controllers hpaScaleTargetMarker and deploymentReplicasSyncer.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, default_missing_value = "true",
          action = clap::ArgAction::Set)]
    pub enable_hpa_scale_targets: bool,
    /// Whether /metrics has series of single clusters, some twenty of each: 200,000 with 10,000 clusters. The sums by
    /// state, on which alerts go, are there in any case.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true",
          action = clap::ArgAction::Set)]
    pub metrics_per_cluster: bool,
    #[command(flatten)]
    pub autoscaling: AutoscalingArgs,
    #[command(flatten)]
    pub authn: AuthnArgs,
    #[command(flatten)]
    pub audit: AuditArgs,
    #[command(flatten)]
    pub failover: FailoverArgs,
    #[command(flatten)]
    pub judge: JudgeArgs,
    #[command(flatten)]
    pub push: PushArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
    #[command(flatten)]
    pub logs: LogArgs,
}

/// How FederatedHPAs are seen to. Names and figures are Karmada's.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "FederatedHPA")]
pub struct AutoscalingArgs {
    /// How often each FederatedHPA is looked at, and its workload sampled on members.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = positive)]
    pub horizontal_pod_autoscaler_sync_period: Duration,
    /// For so long what was asked for counts before something is scaled down, unless its behavior says.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    pub horizontal_pod_autoscaler_downscale_stabilization: Duration,
    /// How far what is used may be from its target before anything is scaled, as a part of that, unless its behavior says.
    #[arg(long, value_name = "NUMBER", default_value_t = 0.1, value_parser = numbers::part)]
    pub horizontal_pod_autoscaler_tolerance: f64,
    /// For so long after a Pod's start what it uses of cpu counts only if it was measured after it became ready.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    pub horizontal_pod_autoscaler_cpu_initialization_period: Duration,
    /// A Pod that is not ready, and became so within this time of its start, was never ready.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    pub horizontal_pod_autoscaler_initial_readiness_delay: Duration,
    /// Does nothing, as in Karmada.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, hide = true)]
    pub horizontal_pod_autoscaler_upscale_delay: Option<Duration>,
    /// Does nothing, as in Karmada.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, hide = true)]
    pub horizontal_pod_autoscaler_downscale_delay: Option<Duration>,
}

/// When objects leave clusters. Failover is off until it is asked for: here for all, or by `failover` in a policy.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "Failover")]
pub struct FailoverArgs {
    /// Whether a taint of effect NoExecute drives away what does not tolerate it. The hub never puts such a taint on by
    /// itself: users do, and ClusterTaintPolicies.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true",
          action = clap::ArgAction::Set)]
    pub enable_no_execute_taint_eviction: bool,
    /// Move everything away from clusters that are not ready or unreachable for --failover-eviction-timeout. Without it
    /// that is done for objects whose policy has failover.cluster.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, default_missing_value = "true",
          action = clap::ArgAction::Set)]
    pub enable_cluster_failover: bool,
    /// How long a cluster may be not ready or unreachable before what is on it moves. A policy has its own word by
    /// tolerations with seconds for cluster.karmada.io/not-ready and unreachable, effect NoExecute.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    pub failover_eviction_timeout: Duration,
    /// What becomes of the copy on a cluster that is left, unless the policy says.
    #[arg(long, value_enum, value_name = "MODE", default_value_t = Purge::Gracefully)]
    pub no_execute_taint_eviction_purge_mode: Purge,
    /// How many objects may leave clusters per second; inf for no limit, 0 for one every half hour.
    #[arg(long, value_name = "NUMBER", default_value_t = 0.5, value_parser = numbers::rate)]
    pub resource_eviction_rate: f64,
    /// How long the copy on a cluster that is left waits for the new one to be healthy, unless the policy says.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse)]
    pub graceful_eviction_timeout: Duration,
}

/// What becomes of a copy that is left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum Purge {
    /// It goes before the new one is made.
    Directly,
    /// It goes when the new one is healthy or the time is up.
    Gracefully,
}

impl From<Purge> for karmada_api::policy::PurgeMode {
    fn from(purge: Purge) -> Self {
        match purge {
            Purge::Directly => Self::Directly,
            Purge::Gracefully => Self::Gracefully,
        }
    }
}

/// What the listener and the embedded API take on. What they turn away is counted at /metrics, by reason.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "Limits")]
pub struct LimitArgs {
    /// Requests that read at one time, watches aside, a quarter of them of one identity at most. One more waits, and gets a
    /// 429 when too many do. Administrators are always let in. 0: any number.
    #[arg(long, value_name = "N", default_value_t = 400)]
    pub max_requests_inflight: usize,
    /// The same for requests that write; a quarter of them is for Leases alone.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub max_mutating_requests_inflight: usize,
    /// How long a request may take, watches aside; a client may ask for less, and writes get 34s at most.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = positive)]
    pub request_timeout: Duration,
    /// How long a watch lasts that names no end; each gets up to twice as long, so that not all come back at once.
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = positive)]
    pub min_request_timeout: Duration,
    /// Bytes of lists of more than a megabyte that are being made or sent at one time; one more gets a 429. 0: any number.
    #[arg(long, value_name = "BYTES", default_value_t = 256 << 20)]
    pub max_list_bytes: usize,
    /// How long an Event is kept after it was last written; 0: for ever.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration::parse)]
    pub event_ttl: Duration,
    /// What may be stored (2Gi, 500Mi, or plain bytes), in bytes of objects with 512 for each; all of it is also in memory. At 80% the log, the metrics
    /// and /readyz?verbose say so; beyond it writes that would make it more get a 507, while deletions, status and Leases
    /// go on. 0: anything. [default: a quarter of the memory that the hub may use, but 2Gi at most]
    #[arg(long, value_name = "BYTES", value_parser = numbers::bytes)]
    pub storage_quota: Option<u64>,
    /// What one agent's objects may take of that by its own writes: what is in its namespace, its Cluster, Lease and Secrets.
    /// Its events have an eighth of this beside. 0: anything. [default: an eighth of --storage-quota]
    #[arg(long, value_name = "BYTES", value_parser = numbers::bytes)]
    pub agent_storage_quota: Option<u64>,
    /// The node ports of Services, both ends included. The hub gives them out, so that all members open the same.
    #[arg(long, value_name = "FIRST-LAST", default_value_t = PortRange::DEFAULT)]
    pub service_node_port_range: PortRange,
    /// Connections at one time. Where all are taken, one that has shown no credential and does nothing goes for the next;
    /// where there is none of those, the next is closed as soon as it is made. Never more than the process may have
    /// files open (RLIMIT_NOFILE), less 256 for everything else and an eighth for connections to members. 0: any number.
    #[arg(long, value_name = "N", default_value_t = 16_384)]
    pub max_connections: usize,
    /// Of those, connections that have shown no good certificate or token, from addresses where none was seen within a day.
    /// They have half of all at most. Addresses where some were seen have places beside these. 0: half of all.
    #[arg(long, value_name = "N", default_value_t = 2_048)]
    pub max_anonymous_connections: usize,
    /// Of those, connections from one IPv4 address or one /64 of IPv6. Agents, and users with tokens, are not counted once
    /// they have shown what they have: a site's may share one address. 0: any number.
    #[arg(long, value_name = "N", default_value_t = 1_024)]
    pub max_connections_per_address: usize,
    /// Connections at one time of one user, by certificate or token, from wherever. Beyond it the one goes that has done
    /// nothing for longest, and if all are busy, the new one. Members of system:masters are not counted. 0: any number.
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub max_connections_per_identity: usize,
    /// Watches at one time of one user, over all connections; one more gets a 429. Whoever acts as others is counted as one:
    /// raise it for a dashboard or proxy that watches for all its users. Members of system:masters are not counted. 0: any
    /// number.
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub max_watches_per_identity: usize,
    /// HTTP/2 streams, that is requests and watches, of one connection at one time; 100 at most without a certificate.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub http2_max_streams_per_connection: u32,
    /// How long the hub goes on after SIGTERM, no longer ready, so that whatever sends clients here can notice. Then it
    /// takes no more connections, and has 10 s to end what runs.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    pub shutdown_delay_duration: Duration,
}

impl LimitArgs {
    /// Refuses limits under which no agent can work.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.http2_max_streams_per_connection < numbers::AGENT_STREAMS {
            return Err(Failure::usage(format!(
                "--http2-max-streams-per-connection {}: must be at least {}: an agent has one connection, on which it \
                 follows Works, its Cluster and users' rules and renews its Lease beside them",
                self.http2_max_streams_per_connection,
                numbers::AGENT_STREAMS
            )));
        }
        if self.request_timeout < numbers::SHORTEST_REQUEST {
            return Err(Failure::usage(format!(
                "--request-timeout {}: must be at least {}, or agents cannot renew their Leases on a slow link",
                duration::format(self.request_timeout),
                duration::format(numbers::SHORTEST_REQUEST)
            )));
        }
        Ok(())
    }
}

/// How to log.
#[derive(Clone, Debug, ClapArgs)]
pub struct LogArgs {
    /// How log lines look.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// How much is logged: 0 is the usual, 4 shows every decision, 6 every request. RUST_LOG overrides it.
    #[arg(long = "v", value_name = "N", default_value_t = 0)]
    pub verbosity: u8,
}

#[derive(Clone, Debug, ClapArgs)]
pub(super) struct CredentialsArgs {
    /// The hub's data directory.
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// The cluster whose agent is to use it.
    #[arg(long, value_name = "NAME", required_unless_present_any = ["monitoring", "admin"])]
    pub cluster: Option<String>,
    /// The hub's --encryption-provider-config, if it has one and is stopped.
    #[arg(long, value_name = "FILE")]
    pub encryption_provider_config: Option<PathBuf>,
    /// Make one for a Prometheus instead, which may read /metrics and nothing else.
    #[arg(long, conflicts_with = "cluster")]
    pub monitoring: bool,
    /// The administrator's, which the hub keeps in its data directory: for whoever may read that.
    #[arg(long, conflicts_with_all = ["cluster", "monitoring"])]
    pub admin: bool,
    /// Write it here (mode 0600) instead of to standard output.
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// How a hub moves, for `export --help`.
const EXPORT_HELP: &str = "\
Moving a hub to a stock kube-apiserver, without a member noticing:

  1. Stop the hub. Members keep what they run, and their agents wait.
  2. karmada-hub export --data-dir DIR -o DUMP
  3. karmada-hub apply --with-status -f DUMP --kubeconfig SERVER
     Or with kubectl, the files in the order of their names:
       kubectl apply --server-side -f DUMP/10-definitions.yaml
       kubectl wait --for=condition=Established crd --all
       kubectl apply --server-side -f DUMP/20-namespaces.yaml      and so on, to 70-works.yaml
       kubectl replace --subresource=status -f DUMP/30-clusters.yaml      and 60-bindings.yaml, 70-works.yaml
  4. karmada-hub serve --kubeconfig SERVER --data-dir NEW
  5. Give each agent a kubeconfig for SERVER, under the name that its Cluster has.

Definitions come before objects of their kinds, namespaces before what is in them, and all of it before step 4: hub
and agents must find every Work. Apply once, before step 4; applied later it would set back what changed since. The
files hold Secrets and are readable by their owner alone.";

/// Arguments of `export`.
#[derive(Clone, Debug, ClapArgs)]
#[group(skip)]
#[command(group = clap::ArgGroup::new("source").required(true).args(["data_dir", "kubeconfig"]))]
pub(super) struct ExportArgs {
    /// The data directory of a hub that is stopped.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// The hub's --encryption-provider-config, if it has one and is stopped.
    #[arg(long, value_name = "FILE", requires = "data_dir")]
    pub encryption_provider_config: Option<PathBuf>,
    /// A hub that runs. What changes while it is read may be missing; stop it and use --data-dir for a move.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context to use of --kubeconfig.
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    pub context: Option<String>,
    /// Write numbered files into this folder (made if missing; files of mode 0600) instead of one stream to standard
    /// output.
    #[arg(short = 'o', long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// What a backup is good for, for `backup --help` and `restore --help`.
const BACKUP_HELP: &str = "\
  karmada-hub backup --data-dir DIR --to FILE         while the hub runs, or while it does not
  karmada-hub restore --from FILE --data-dir NEW      into an empty directory
  karmada-hub serve --data-dir NEW --advertise …      as before

FILE has all objects at one moment and the hub's keys: whoever reads it can be the hub. What serve's
--encryption-provider-config encrypts is encrypted in it, too; the keys for that are not in it, and without them the hub that
is restored does not start: both commands say so, and whether anything is not encrypted. It is written whole or not at all, checked, and readable by its owner alone. A hub that is restored is the same one to agents and users, at an earlier
time: what was made after the backup has to be applied again (members keep what they run), what was deleted after it is
back. Agents that know more than it does keep their members as they are until then, or until `karmada-hub confirm-restore` says
that it counts as it is. Never run the original and the restored one at once.";

/// Arguments of `backup`.
#[derive(Clone, Debug, ClapArgs)]
pub(super) struct BackupArgs {
    /// The hub's data directory. A hub that runs is asked through the admin.kubeconfig there.
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// The file to write (mode 0600); one that is there is replaced when the new one is whole.
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
    #[command(flatten)]
    pub told: Told,
}

/// Arguments of `restore`.
#[derive(Clone, Debug, ClapArgs)]
pub(super) struct RestoreArgs {
    /// The backup.
    #[arg(long, value_name = "FILE")]
    pub from: PathBuf,
    /// The data directory to make; missing or empty.
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    #[command(flatten)]
    pub told: Told,
}
