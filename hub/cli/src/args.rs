//! What can be said to the commands. Plain data: nothing is opened or read here.

mod look;
mod reach;
mod upgrade;

use std::{path::PathBuf, time::Duration};

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use karmada_meta::duration;

pub use self::{look::*, reach::*, upgrade::*};
use crate::{ca::What, told::Told};

/// The commands that only talk to an API.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Revoke the credentials of clusters' agents.
    Cluster(ClusterArgs),
    /// Create, list and delete tokens with which clusters join.
    Token(TokenArgs),
    /// Rotate the hub's certificate authority (CA), or the key for service account tokens, while the hub serves.
    #[command(after_long_help = CA_HELP)]
    Ca(CaArgs),
    /// Print objects as a table, as kubectl does.
    Get(GetArgs),
    /// Explain why an object is where it is. For every cluster it prints the verdict, the rule that decided, and what
    /// was found on the cluster.
    #[command(after_long_help = EXPLAIN_HELP)]
    Explain(ExplainArgs),
    /// Show what would move if clusters were lost, drained, tainted or cordoned, and change nothing. Covers all
    /// namespaces unless you give one. As on the hub, an object leaves a lost cluster only if other clusters can take
    /// all that it has there. It leaves a cluster with a NoExecute taint of a user in any case.
    WhatIf(WhatIfArgs),
    /// Print an address that logs one browser in to the hub's page as you. It is valid once, for a minute.
    Ui(UiArgs),
    /// Keep new objects away from clusters. Objects that are there stay.
    Cordon(CordonArgs),
    /// Let the hub place objects on clusters again.
    Uncordon(CordonArgs),
    /// Add taints to clusters, or remove them.
    #[command(after_long_help = TAINT_HELP)]
    Taint(TaintArgs),
    /// Move what runs on a cluster to other clusters, without an interruption of service.
    #[command(after_long_help = DRAIN_HELP)]
    Drain(DrainArgs),
    /// Move back what has left a cluster: the hub schedules its objects again.
    Failback(FailbackArgs),
    /// Show changes that go out in waves, and pause, resume, abort or return them.
    Rollout(RolloutArgs),
    /// Upgrade the agents of clusters in waves.
    Upgrade(UpgradeArgs),
    /// After a restore from a backup: confirm to agents that the hub's state is right, although they know more than the
    /// hub.
    #[command(after_long_help = CONFIRM_RESTORE_HELP)]
    ConfirmRestore(ConfirmRestoreArgs),
    /// Apply YAML files to the hub.
    Apply(ApplyArgs),
    /// Join a member cluster that the hub can dial (push mode). As karmadactl join does, this creates service accounts
    /// on the member and a Cluster on the hub. Members that the hub cannot dial join with an agent: see token create.
    Join(JoinArgs),
    /// Remove a cluster in push mode: first what the hub has applied there, then the Cluster.
    Unjoin(UnjoinArgs),
    /// Write a kubeconfig that reaches a member cluster through the hub, with your credentials for the hub. It is for
    /// kubectl, Helm, k9s and other clients.
    Kubeconfig(KubeconfigArgs),
    /// Print the logs of a container on a member cluster, through the hub.
    Logs(LogsArgs),
    /// Run a command in a container on a member cluster, through the hub, and end with its exit code.
    #[command(after_long_help = EXEC_HELP)]
    Exec(ExecArgs),
    /// Print the CPU and memory usage of nodes or Pods on a member cluster, through the hub.
    Top(TopArgs),
    /// Forward local ports to a Pod on a member cluster, through the hub, until you interrupt it.
    PortForward(PortForwardArgs),
}

/// A whole command line, for tests of the arguments.
#[cfg(test)]
#[derive(Debug, clap::Parser)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Which server is asked.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct ServerArgs {
    /// The kubeconfig to use. Without it: $KUBECONFIG.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context to use in the kubeconfig. Without it: the current context.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// The namespace. Without it: that of the context, or "default".
    #[arg(short = 'n', long, value_name = "NS")]
    pub namespace: Option<String>,
}

/// Arguments of `ui`.
#[derive(Clone, Debug, ClapArgs)]
pub struct UiArgs {
    #[command(flatten)]
    pub told: Told,
    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Clone, Debug, ClapArgs)]
pub struct JoinArgs {
    /// Name for the cluster.
    #[arg(value_name = "CLUSTER")]
    pub name: String,
    /// A kubeconfig for the member, of a user who may create service accounts and roles there. The hub uses the server
    /// of this kubeconfig, and a service account that the command creates.
    #[arg(long, value_name = "FILE")]
    pub cluster_kubeconfig: PathBuf,
    /// The context to use in --cluster-kubeconfig.
    #[arg(long, value_name = "NAME")]
    pub cluster_context: Option<String>,
    /// The cloud provider of the cluster.
    #[arg(long, value_name = "NAME")]
    pub cluster_provider: Option<String>,
    /// The region of the cluster.
    #[arg(long, value_name = "NAME")]
    pub cluster_region: Option<String>,
    /// The failure zones of the cluster, separated by commas.
    #[arg(long, value_name = "ZONE,...", value_delimiter = ',')]
    pub cluster_zones: Vec<String>,
    /// How long to wait until the hub has reached the member.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = some_time)]
    pub wait: Duration,
    #[command(flatten)]
    pub told: Told,
    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Clone, Debug, ClapArgs)]
pub struct UnjoinArgs {
    /// Name of the cluster.
    #[arg(value_name = "CLUSTER")]
    pub name: String,
    /// A kubeconfig for the member. With it, the command also deletes what join created there: service accounts, roles
    /// and the Namespace karmada-cluster. It keeps the Namespace if anything else is in it. It deletes nothing if the
    /// kubeconfig leads to another cluster than the one that has joined.
    #[arg(long, value_name = "FILE")]
    pub cluster_kubeconfig: Option<PathBuf>,
    /// The context to use in --cluster-kubeconfig.
    #[arg(long, value_name = "NAME", requires = "cluster_kubeconfig")]
    pub cluster_context: Option<String>,
    /// The uid of the Namespace kube-system of the member. It is needed if the Cluster, whose spec.id it was, is gone
    /// already: nothing is deleted from the cluster to which --cluster-kubeconfig leads unless this is its uid.
    #[arg(long, value_name = "UID", requires = "cluster_kubeconfig")]
    pub cluster_id: Option<String>,
    /// Delete the Cluster even if --cluster-kubeconfig leads to no cluster or to another one, from which nothing is
    /// deleted then, and go on if something on the member cannot be deleted.
    #[arg(long)]
    pub force: bool,
    /// How long to wait until the Cluster is deleted.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = some_time)]
    pub wait: Duration,
    #[command(flatten)]
    pub told: Told,
    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Clone, Debug, ClapArgs)]
pub struct KubeconfigArgs {
    /// Name of the cluster.
    #[arg(value_name = "CLUSTER")]
    pub name: String,
    /// Write to this file, which must not exist yet. Without it: to standard output.
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Go to this address of the hub, https://HOST:PORT, instead of the one in your kubeconfig. Needed where the hub's API is a
    /// stock kube-apiserver: name the hub's own port there.
    #[arg(long = "server", value_name = "URL")]
    pub address: Option<String>,
    /// File with the CA certificates (PEM) to believe at --server. Without it: those of your kubeconfig.
    #[arg(long, value_name = "FILE", requires = "address")]
    pub certificate_authority: Option<PathBuf>,
    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Clone, Debug, ClapArgs)]
pub struct GetArgs {
    /// Kinds as in kubectl: deploy, works, deployments.apps; several separated by commas; or KIND/NAME.
    #[arg(value_name = "RESOURCE")]
    pub resource: String,
    /// Names of objects. Without them: all objects.
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// List objects of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Only objects with these labels, such as app=web.
    #[arg(short = 'l', long, value_name = "SELECTOR", conflicts_with = "names")]
    pub selector: Option<String>,
    /// Only objects with these field values, such as metadata.name=web.
    #[arg(long, value_name = "SELECTOR", conflicts_with = "names")]
    pub field_selector: Option<String>,
    /// Print the objects, then a line for every change, until you interrupt it. The command reconnects when the
    /// connection is lost.
    #[arg(short = 'w', long)]
    pub watch: bool,
    /// Print only changes, not the objects that exist now.
    #[arg(long)]
    pub watch_only: bool,
    /// With --watch: print for each line whether the object was added, modified or deleted.
    #[arg(long)]
    pub output_watch_events: bool,
    /// Print no column headings.
    #[arg(long)]
    pub no_headers: bool,
    /// Print managedFields too.
    #[arg(long)]
    pub show_managed_fields: bool,
    /// Print the copies on the member clusters instead of the hub's own objects: whether they are READY, whether the
    /// hub manages them (ADOPTION), and the AGE of this information. The command asks the members that the hub can
    /// reach (AGE is live). For the others it prints what their agents last reported, so no member needs to be
    /// reachable.
    #[arg(long, conflicts_with_all = ["watch", "watch_only", "field_selector"])]
    pub members: bool,
    /// With --members: ask no member, and print what the hub knows.
    #[arg(long, requires = "members")]
    pub cached: bool,
    /// With --members: only these clusters.
    #[arg(short = 'C', long, value_name = "CLUSTER", value_delimiter = ',', requires = "members")]
    pub clusters: Vec<String>,
    /// Output format. Without it: a table.
    #[arg(short = 'o', long, value_enum, default_value_t = Output::Table, hide_default_value = true)]
    pub output: Output,
    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    #[value(hide = true)]
    Table,
    Wide,
    Yaml,
    Json,
    Name,
}

impl Output {
    /// Whether it is made of the server's Table.
    pub fn is_table(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }
}

#[derive(Clone, Debug, ClapArgs)]
pub struct ApplyArgs {
    /// A file, or a folder whose YAML and JSON files are applied in the order of their names. May be given more than
    /// once.
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
    /// Also apply the status of objects, for the output of karmada-hub export.
    #[arg(long)]
    pub with_status: bool,
    #[command(flatten)]
    pub told: Told,
    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Clone, Debug, ClapArgs)]
pub struct ClusterArgs {
    #[command(subcommand)]
    pub command: ClusterCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub enum ClusterCommand {
    /// Revoke the credentials of clusters' agents: all that exist so far, at once, also on open connections. Workloads
    /// on the members keep running. An agent can come back with new credentials from karmada-hub credentials. On a
    /// stock kube-apiserver the command removes the permissions of agents that joined with tokens. They come back with
    /// a new token.
    Revoke(RevokeArgs),
}

/// The order of things, for `ca --help`.
const CA_HELP: &str = "\
Each call of ca rotate does one step and says what the next one does. Between the steps you can stop or restart the hub,
or restore it from a backup. With --wait the command does all steps, one after another.

  settled      ca rotate creates a new CA. Both are in cluster-info, pki/ca.crt, kubeconfigs and Secrets of tokens.
  introduced   ca rotate lets it sign. The hub presents a certificate of the new CA, cross-signed by the old one.
  changed      ca rotate removes the old CA once all clusters have certificates of the new one (ca status counts them),
               or at once with --force. Older copies of admin.kubeconfig do not work after that.

The key for service account tokens changes in the same stages: ca rotate service-accounts.";

#[derive(Clone, Debug, ClapArgs)]
pub struct CaArgs {
    #[command(subcommand)]
    pub command: CaCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub enum CaCommand {
    /// Show how far a rotation is, and which clusters still have certificates of the old CA.
    Status(CaStatusArgs),
    /// Start a rotation, or do its next step.
    Rotate(CaRotateArgs),
}

#[derive(Clone, Debug, ClapArgs)]
pub struct CaStatusArgs {
    #[command(flatten)]
    pub told: Told,
    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Clone, Debug, ClapArgs)]
pub struct CaRotateArgs {
    /// What to rotate.
    #[arg(value_enum, default_value_t = What::Authority)]
    pub what: What,
    /// Remove the old CA or key although it is still in use. Clients that have only certificates of the old CA, or
    /// tokens of the old key, are locked out.
    #[arg(long)]
    pub force: bool,
    /// Do all steps, and wait until each can be done.
    #[arg(long)]
    pub wait: bool,
    #[command(flatten)]
    pub told: Told,
    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Clone, Debug, ClapArgs)]
pub struct TokenArgs {
    #[command(subcommand)]
    pub command: TokenCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub enum TokenCommand {
    /// Create a token with which the agent of one cluster, and no other, gets its certificate. Prints the command that
    /// joins the cluster. The token is shown only once.
    Create(TokenCreateArgs),
    /// List the tokens without their secrets, including those of karmadactl.
    List(TokenListArgs),
    /// Delete tokens. Clusters that have joined stay.
    Delete(TokenDeleteArgs),
}

#[derive(Clone, Debug, ClapArgs)]
pub struct TokenCreateArgs {
    /// Name of the cluster that may join with the token.
    #[arg(long, value_name = "NAME")]
    pub cluster: String,
    /// How long the token is valid.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = some_time)]
    pub ttl: Duration,
    /// How many times an agent may join with the token. Attempts with the same key count once.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub uses: u32,
    #[command(flatten)]
    pub told: Told,
    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Clone, Debug, ClapArgs)]
pub struct TokenListArgs {
    #[command(flatten)]
    pub told: Told,
    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Clone, Debug, ClapArgs)]
pub struct TokenDeleteArgs {
    /// Tokens, or their IDs (the first six characters).
    #[arg(value_name = "TOKEN", required = true)]
    pub tokens: Vec<String>,
    #[command(flatten)]
    pub told: Told,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// A length of time that is none of nothing.
fn some_time(text: &str) -> Result<Duration, String> {
    match duration::parse(text)? {
        Duration::ZERO => Err(format!("{text} is no time at all; more than 0 is needed")),
        // What a year of four digits can still write.
        long if long > Duration::from_hours(24 * 3650) => Err(format!("{text} is longer than ten years")),
        length => Ok(length),
    }
}

#[derive(Clone, Debug, ClapArgs)]
pub struct RevokeArgs {
    /// Names of the clusters.
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    #[command(flatten)]
    pub told: Told,
    #[command(flatten)]
    pub server: ServerArgs,
}
