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

/// The hub: it holds policies and bindings, and serves the API that agents pull from.
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
    /// Print a kubeconfig for the agent of one cluster, for Prometheus, or for the administrator. Agents and Prometheus
    /// get access only to what they need.
    Credentials(CredentialsArgs),
    #[command(flatten)]
    Ask(karmada_cli::Command),
    /// Write the objects of a hub as YAML, to apply them to another API server.
    #[command(after_long_help = EXPORT_HELP)]
    Export(ExportArgs),
    /// Write the objects of an export into the data directory of a stopped hub.
    #[command(after_long_help = IMPORT_HELP)]
    Import(ImportArgs),
    /// Write the objects and keys of a hub into one file. The hub may run or be stopped.
    #[command(after_long_help = BACKUP_HELP)]
    Backup(BackupArgs),
    /// Create a data directory from a backup.
    #[command(after_long_help = BACKUP_HELP)]
    Restore(RestoreArgs),
    /// Check everything that a hub needs: clock, DNS, proxy, disk, keys, rights and ports. Takes the arguments of
    /// serve, and changes nothing.
    #[command(after_long_help = DOCTOR_HELP)]
    Doctor(Box<DoctorArgs>),
    /// Print a completion script for a shell. For bash: source <(karmada-hub completion bash).
    Completion(CompletionArgs),
    /// Write the manual pages of both programs into a folder.
    #[command(hide = true)]
    ManPages(ManPagesArgs),
    /// Print the CustomResourceDefinitions of the Karmada kinds.
    Crds(ManifestsArgs),
    /// Print the RBAC roles and bindings that the agent of one cluster needs on a stock kube-apiserver. The embedded
    /// API needs none.
    AgentRbac(AgentRbacArgs),
}

/// What comes of it, for `doctor --help`.
const DOCTOR_HELP: &str = "\
Each line is the result of one check. For a problem it says what was found, what is wanted, what to do, and where
hub/docs/doctor.md explains it. The output contains no secrets.

Exit codes: 0 no problem, 1 a problem, 2 the arguments cannot be used.";

/// Arguments of `doctor`.
#[derive(Clone, Debug, ClapArgs)]
pub(super) struct DoctorArgs {
    #[command(flatten)]
    pub(super) serve: ServeArgs,
    /// Output format.
    #[arg(short = 'o', long, value_enum, default_value_t = Report::Text)]
    pub(super) output: Report,
}

/// Arguments of `completion`.
#[derive(Clone, Debug, ClapArgs)]
pub(super) struct CompletionArgs {
    /// The shell.
    #[arg(value_enum)]
    pub(super) shell: Shell,
    /// The program that the script completes. The agent has no such command itself, to stay small.
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
    /// The folder to write to. It must exist.
    #[arg(value_name = "DIR")]
    pub(super) dir: PathBuf,
}

/// Arguments of what prints objects for another API server.
#[derive(Clone, Copy, Debug, ClapArgs)]
pub(super) struct ManifestsArgs {
    /// Output format: a YAML stream, or one List in JSON.
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value_t = Manifests::Yaml)]
    pub(super) output: Manifests,
}

/// How objects are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Manifests {
    Yaml,
    Json,
}

/// Arguments of `agent-rbac`.
#[derive(Clone, Debug, ClapArgs)]
pub(super) struct AgentRbacArgs {
    /// Name of the cluster.
    #[arg(long, value_name = "NAME")]
    pub(super) cluster: String,
    /// The user in the agent's kubeconfig. It must be system:karmada:agent:NAME in the group system:karmada:agents,
    /// because the rules for what agents may write use these names. Without it, the output contains a service account
    /// karmada-agent-NAME in karmada-system.
    #[arg(long, value_name = "USER")]
    pub(super) user: Option<String>,
    #[command(flatten)]
    pub(super) manifests: ManifestsArgs,
}

/// Arguments of `serve`.
#[derive(Clone, Debug, ClapArgs)]
pub struct ServeArgs {
    /// The directory in which the hub keeps its objects and keys.
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// The address to listen on. Port 0 picks a free port.
    #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:6443")]
    pub listen: SocketAddr,
    /// A host name or address at which agents and users reach the hub. May be given more than once. The serving
    /// certificate is valid for all of them, and kubeconfigs contain the first one.
    #[arg(long, value_name = "HOST")]
    pub advertise: Vec<String>,
    /// An EncryptionConfiguration of apiserver.config.k8s.io/v1: which objects the hub encrypts in the store's files
    /// and in backups, and with which keys. List works.work.karmada.io as well as secrets, because Works contain the
    /// manifests of Secrets. The hub watches the file and rewrites the store when it changes. Keep a copy of the file
    /// away from the backups: without it nobody can read them.
    #[arg(long, value_name = "FILE", conflicts_with = "kubeconfig")]
    pub encryption_provider_config: Option<PathBuf>,
    /// Run the controllers against this API server (a stock kube-apiserver) instead of the embedded API. The hub then
    /// listens only for health checks, metrics scrapes, requests to members (clusters/NAME/proxy) of this server's users
    /// and, if --advertise says how the API server reaches it, admission webhooks.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context to use in --kubeconfig.
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    pub context: Option<String>,
    /// Whether the hub works only while it holds the Lease karmada-system/karmada-hub on the server of --kubeconfig.
    /// Several hubs can then run, and one of them works. Without leader election, a second hub would undo the work of
    /// the first one.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true",
          action = clap::ArgAction::Set, requires = "kubeconfig")]
    pub leader_elect: bool,
    /// How long other hubs wait after the last renewal before one of them takes over the Lease. In whole seconds.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration::parse, requires = "kubeconfig")]
    pub leader_elect_lease_duration: Duration,
    /// How long a leader that cannot renew the Lease keeps working. Must be shorter than --leader-elect-lease-duration.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse, requires = "kubeconfig")]
    pub leader_elect_renew_deadline: Duration,
    /// The time between attempts to acquire or renew the Lease.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::parse, requires = "kubeconfig")]
    pub leader_elect_retry_period: Duration,
    /// Run even if karmada-controller-manager or karmada-scheduler works on the server of --kubeconfig. They do the
    /// same work by other rules, so let both run for a short time only.
    #[arg(long, requires = "kubeconfig")]
    pub allow_foreign_controllers: bool,
    /// How often the hub checks the health of clusters.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = positive)]
    pub cluster_monitor_period: Duration,
    /// How long a cluster may give no sign of life before the hub considers it unhealthy.
    #[arg(long, value_name = "DURATION", default_value = "40s", value_parser = positive)]
    pub cluster_monitor_grace_period: Duration,
    /// The same for a cluster that has just joined, and for all clusters when the hub has just started.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse)]
    pub cluster_startup_grace_period: Duration,
    /// Namespaces that the hub never propagates: regular expressions that match the whole name, separated by commas.
    #[arg(long, value_name = "REGEX", value_delimiter = ',', default_value = "kube-.*")]
    pub skipped_propagating_namespaces: Vec<String>,
    /// Kinds that the hub never propagates, separated by semicolons: GROUP, GROUP/VERSION, or GROUP/VERSION/KIND,KIND.
    /// For the core group, leave out GROUP, as in v1/Pod.
    #[arg(long, value_name = "APIS", default_value = "", hide_default_value = true)]
    pub skipped_propagating_apis: String,
    /// Whether clusters with 0 replicas of a divided workload still get the workload, with 0 replicas. This includes a
    /// workload that is scaled to 0.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, default_missing_value = "true",
          action = clap::ArgAction::Set)]
    pub enable_empty_workload_propagation: bool,
    /// Whether members control the replicas of workloads that a propagated HorizontalPodAutoscaler scales. The hub then
    /// sets the label resourcetemplate.karmada.io/retain-replicas on the template, and writes the sum of the members'
    /// replicas into the template of a divided Deployment. Karmada's controllers for this are hpaScaleTargetMarker and
    /// deploymentReplicasSyncer.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, default_missing_value = "true",
          action = clap::ArgAction::Set)]
    pub enable_hpa_scale_targets: bool,
    /// Whether /metrics has series for single clusters. There are about 20 for each cluster: 200,000 for 10,000
    /// clusters. The sums by state, which alerts use, are always there.
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
    /// How often the hub evaluates each FederatedHPA and has its workload measured on the members.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = positive)]
    pub horizontal_pod_autoscaler_sync_period: Duration,
    /// Stabilization window for scaling down, unless spec.behavior sets one.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    pub horizontal_pod_autoscaler_downscale_stabilization: Duration,
    /// How far usage may deviate from the target, as a fraction of it (0 to 1), before the hub scales, unless
    /// spec.behavior sets a tolerance.
    #[arg(long, value_name = "NUMBER", default_value_t = 0.1, value_parser = numbers::part)]
    pub horizontal_pod_autoscaler_tolerance: f64,
    /// During this time after a Pod's start, its CPU usage counts only if it was measured after the Pod became ready.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    pub horizontal_pod_autoscaler_cpu_initialization_period: Duration,
    /// A Pod that is not ready, and became so within this time after its start, counts as not yet ready.
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
    /// Whether the hub evicts objects that do not tolerate a NoExecute taint. The hub never adds such taints by itself:
    /// users and ClusterTaintPolicies do.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true",
          action = clap::ArgAction::Set)]
    pub enable_no_execute_taint_eviction: bool,
    /// Whether the hub moves all objects away from clusters that are not ready or unreachable for
    /// --failover-eviction-timeout. If false, it moves only objects whose policy has failover.cluster.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, default_missing_value = "true",
          action = clap::ArgAction::Set)]
    pub enable_cluster_failover: bool,
    /// How long a cluster may be not ready or unreachable before the hub moves its objects. A policy can set another
    /// time by tolerations with tolerationSeconds for cluster.karmada.io/not-ready and cluster.karmada.io/unreachable,
    /// effect NoExecute.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    pub failover_eviction_timeout: Duration,
    /// What the hub does with the old copy when it moves an object, unless the policy sets purgeMode.
    #[arg(long, value_enum, value_name = "MODE", default_value_t = Purge::Gracefully)]
    pub no_execute_taint_eviction_purge_mode: Purge,
    /// How many objects per second the hub evicts from clusters. inf: no limit. 0: one every half hour.
    #[arg(long, value_name = "NUMBER", default_value_t = 0.5, value_parser = numbers::rate)]
    pub resource_eviction_rate: f64,
    /// How long the hub keeps the old copy while the new one is not healthy, unless the policy sets another time.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse)]
    pub graceful_eviction_timeout: Duration,
}

/// What becomes of a copy that is left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum Purge {
    /// Remove the old copy before the new one is created.
    Directly,
    /// Remove the old copy when the new one is healthy or the time is up.
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
    /// How many read requests, without watches, the hub handles at the same time. One identity may have a quarter of
    /// them. Further requests wait, and the hub answers 429 when too many wait. Requests of administrators
    /// (system:masters) are never refused. 0: no limit.
    #[arg(long, value_name = "N", default_value_t = 400)]
    pub max_requests_inflight: usize,
    /// The same for write requests. A quarter of them is reserved for Leases.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub max_mutating_requests_inflight: usize,
    /// How long a request other than a watch may take. Clients may ask for less. Writes may take at most 34s.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = positive)]
    pub request_timeout: Duration,
    /// How long a watch without timeoutSeconds lasts. Each lasts up to twice as long, so that clients do not all come
    /// back at once.
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = positive)]
    pub min_request_timeout: Duration,
    /// Limit for the total size in bytes of the lists of more than a megabyte that the hub prepares or sends at the
    /// same time. One identity may have a quarter of it. The hub answers requests for more with 429. 0: no limit.
    #[arg(long, value_name = "BYTES", default_value_t = 256 << 20)]
    pub max_list_bytes: usize,
    /// How long the hub keeps an Event after the last write to it. 0: for ever.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration::parse)]
    pub event_ttl: Duration,
    /// Limit for the size of all objects together, such as 2Gi, 500Mi or plain bytes (512 bytes are added for each
    /// object). All objects are also in memory. At 80% the log, the metrics and /readyz?verbose say so. When the quota
    /// is used up, the hub answers writes that need more space with 507. Deletions, status updates and Leases still
    /// work. 0: no limit. [default: a quarter of the memory that the hub may use, at most 2Gi]
    #[arg(long, value_name = "BYTES", value_parser = numbers::bytes)]
    pub storage_quota: Option<u64>,
    /// How much of --storage-quota one agent may use by its own writes: the objects in its cluster's namespace, its
    /// Cluster, Lease and Secrets. Its Events may use an eighth of this in addition. 0: no limit. [default: an eighth
    /// of --storage-quota]
    #[arg(long, value_name = "BYTES", value_parser = numbers::bytes)]
    pub agent_storage_quota: Option<u64>,
    /// Range of node ports for Services, both ends included. The hub assigns the ports, so that all members open the
    /// same ones.
    #[arg(long, value_name = "FIRST-LAST", default_value_t = PortRange::DEFAULT)]
    pub service_node_port_range: PortRange,
    /// How many connections the hub accepts at the same time. When all are in use, the hub closes an idle
    /// unauthenticated connection for a new one. If there is none, it closes the new one. The limit is never higher
    /// than the number of files that the process may open (RLIMIT_NOFILE), less 256 for everything else and an eighth
    /// for connections to members. 0: no other limit.
    #[arg(long, value_name = "N", default_value_t = 16_384)]
    pub max_connections: usize,
    /// How many of these may come without a valid certificate or token, from addresses where none was seen within a
    /// day. At most half of --max-connections. Further connections are reserved for addresses where some were seen. 0:
    /// half of --max-connections.
    #[arg(long, value_name = "N", default_value_t = 2_048)]
    pub max_anonymous_connections: usize,
    /// How many of the connections without a valid certificate or token may come from one IPv4 address or one IPv6 /64.
    /// Agents and users no longer count once they have authenticated, so a whole site may share one address. 0: no
    /// limit.
    #[arg(long, value_name = "N", default_value_t = 1_024)]
    pub max_connections_per_address: usize,
    /// How many connections one user may have at the same time, by certificate or token, from all addresses together.
    /// Beyond it the hub closes the user's connection that has been idle longest, or the new one if all are busy.
    /// Members of system:masters are not counted. 0: no limit.
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub max_connections_per_identity: usize,
    /// How many watches one user may have at the same time, over all connections. The hub answers any further watch
    /// with 429. A user that impersonates others is counted as one user: raise the limit for a dashboard or proxy that
    /// watches for all its users. Members of system:masters are not counted. 0: no limit.
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub max_watches_per_identity: usize,
    /// How many HTTP/2 streams (requests and watches) one connection may have at the same time. Connections without a
    /// client certificate may have at most 100.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub http2_max_streams_per_connection: u32,
    /// How long the hub keeps serving after SIGTERM while it reports not ready, so that load balancers notice. Then it
    /// accepts no more connections, and gives running requests 10 s to finish.
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
    /// Format of log lines.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// How much the hub logs: 0 is normal, 4 adds every decision, 6 every request. RUST_LOG overrides it.
    #[arg(long = "v", value_name = "N", default_value_t = 0)]
    pub verbosity: u8,
}

#[derive(Clone, Debug, ClapArgs)]
pub(super) struct CredentialsArgs {
    /// The hub's data directory.
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// The cluster whose agent will use the kubeconfig.
    #[arg(long, value_name = "NAME", required_unless_present_any = ["monitoring", "admin"])]
    pub cluster: Option<String>,
    /// The hub's --encryption-provider-config, if the hub has one and is stopped.
    #[arg(long, value_name = "FILE")]
    pub encryption_provider_config: Option<PathBuf>,
    /// Print a kubeconfig for Prometheus, which may read /metrics and nothing else.
    #[arg(long, conflicts_with = "cluster")]
    pub monitoring: bool,
    /// Print the administrator's kubeconfig from the data directory.
    #[arg(long, conflicts_with_all = ["cluster", "monitoring"])]
    pub admin: bool,
    /// Write to this file (mode 0600) instead of to standard output.
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// When objects are imported, for `import --help`.
const IMPORT_HELP: &str = "\
A hub that runs acts on each object as soon as it is applied. It would create bindings and Works of its own before those
of the export are there. So start the hub once, stop it, import, and start it again:

  1. karmada-hub serve --data-dir DIR …      stop it when it is ready
  2. karmada-hub import --data-dir DIR -f DUMP
  3. karmada-hub serve --data-dir DIR …

The status of objects is imported too. If something cannot be imported, correct it and run the same command again.";

/// Arguments of `import`.
#[derive(Clone, Debug, ClapArgs)]
pub(super) struct ImportArgs {
    /// The data directory of a stopped hub, which has run before.
    #[arg(long, value_name = "DIR")]
    pub(super) data_dir: PathBuf,
    /// The hub's --encryption-provider-config, if it has one.
    #[arg(long, value_name = "FILE")]
    pub(super) encryption_provider_config: Option<PathBuf>,
    /// A file, or a folder whose YAML and JSON files are imported in the order of their names. May be given more than
    /// once.
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true)]
    pub(super) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) told: Told,
}

/// How a hub moves, for `export --help`.
const EXPORT_HELP: &str = "\
Moving a hub to a stock kube-apiserver, without any effect on members:

  1. Stop the hub. Members keep their workloads, and their agents wait.
  2. karmada-hub export --data-dir DIR -o DUMP
  3. karmada-hub apply --with-status -f DUMP --kubeconfig SERVER
     Or with kubectl, file by file in the order of their names:
       kubectl apply --server-side -f DUMP/10-definitions.yaml
       kubectl wait --for=condition=Established crd --all
       kubectl apply --server-side -f DUMP/20-namespaces.yaml      and so on, to 70-works.yaml
       kubectl replace --subresource=status -f DUMP/30-clusters.yaml      and 60-bindings.yaml, 70-works.yaml
  4. karmada-hub serve --kubeconfig SERVER --data-dir NEW
  5. Give each agent a kubeconfig for SERVER. Keep the names of the Clusters.

Apply definitions before objects of their kinds, namespaces before their objects, and everything before step 4: the hub
and the agents must find every Work. Apply only once, before step 4. If you apply later, you revert what has changed
since. The files contain Secrets, and only their owner can read them.";

/// Arguments of `export`.
#[derive(Clone, Debug, ClapArgs)]
#[group(skip)]
#[command(group = clap::ArgGroup::new("source").required(true).args(["data_dir", "kubeconfig"]))]
pub(super) struct ExportArgs {
    /// The data directory of a stopped hub.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// The hub's --encryption-provider-config, if it has one.
    #[arg(long, value_name = "FILE", requires = "data_dir")]
    pub encryption_provider_config: Option<PathBuf>,
    /// A kubeconfig for a running hub. The output may lack changes that are made meanwhile. To move a hub, stop it and
    /// use --data-dir.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context to use in --kubeconfig.
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    pub context: Option<String>,
    /// Write numbered files (mode 0600) into this folder instead of one stream to standard output. The folder is
    /// created if it is missing.
    #[arg(short = 'o', long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// What a backup is good for, for `backup --help` and `restore --help`.
const BACKUP_HELP: &str = "\
  karmada-hub backup --data-dir DIR --to FILE         while the hub runs or is stopped
  karmada-hub restore --from FILE --data-dir NEW      into an empty directory
  karmada-hub serve --data-dir NEW --advertise …      as before

FILE contains all objects at one point in time and the hub's keys: whoever can read it can impersonate the hub. The
command writes it completely or not at all, checks it, and lets only its owner read it.

What serve's --encryption-provider-config encrypts is encrypted in FILE too. FILE does not contain the keys for that,
and without them the restored hub does not start. Both commands say so, and say whether anything is not encrypted.

To agents and users, a restored hub is the same hub with the data of an earlier time. Apply again what was created after
the backup (members keep their workloads). What was deleted after the backup is back. Agents with --hold-for-older-hubs
keep their members as they are until then, or until you confirm the hub's state with `karmada-hub confirm-restore`.
Never run the original hub and the restored one at the same time.";

/// Arguments of `backup`.
#[derive(Clone, Debug, ClapArgs)]
pub(super) struct BackupArgs {
    /// The hub's data directory. A running hub is asked for the backup, with the admin.kubeconfig in that directory.
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// The file to write (mode 0600). An existing file is replaced when the new one is complete.
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
    #[command(flatten)]
    pub told: Told,
}

/// Arguments of `restore`.
#[derive(Clone, Debug, ClapArgs)]
pub(super) struct RestoreArgs {
    /// The backup file.
    #[arg(long, value_name = "FILE")]
    pub from: PathBuf,
    /// The data directory to create. It must be missing or empty.
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    #[command(flatten)]
    pub told: Told,
}
