//! What can be said to the commands. Plain data: nothing is opened or read here.

mod look;
mod reach;

use std::{path::PathBuf, time::Duration};

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use karmada_meta::duration;

pub use self::{look::*, reach::*};
use crate::{ca::What, told::Told};

/// The commands that only talk to an API.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// End the credentials of clusters' agents.
    Cluster(ClusterArgs),
    /// Make, list and delete tokens by which clusters join.
    Token(TokenArgs),
    /// Rotate the hub's certificate authority, or the key of service accounts' tokens, while the hub serves.
    #[command(after_long_help = CA_HELP)]
    Ca(CaArgs),
    /// Print objects as the server's table, as kubectl would.
    Get(GetArgs),
    /// Say why an object is where it is: for every cluster the verdict, the rule, and what was found there.
    #[command(after_long_help = EXPLAIN_HELP)]
    Explain(ExplainArgs),
    /// Say what would move where if clusters were lost, tainted or cordoned, and change nothing. Looks at all namespaces unless
    /// one is given. As on the hub, an object leaves a lost cluster only if other clusters can take all that it has there, and
    /// leaves a cluster with a user's NoExecute taint in any case.
    WhatIf(WhatIfArgs),
    /// Print the address of the hub's page, by which one browser is logged in once within a minute, as whoever asks.
    Ui(UiArgs),
    /// Keep new objects away from clusters; what is there stays.
    Cordon(CordonArgs),
    /// Let objects come to clusters again.
    Uncordon(CordonArgs),
    /// Put taints on clusters, or take them off.
    #[command(after_long_help = TAINT_HELP)]
    Taint(TaintArgs),
    /// Move what runs on a cluster to others, with service kept throughout.
    #[command(after_long_help = DRAIN_HELP)]
    Drain(DrainArgs),
    /// Bring back what has left a cluster: its objects are placed anew.
    Failback(FailbackArgs),
    /// After a restore from a backup: tell agents that the hub is right, although they know more than it does.
    #[command(after_long_help = CONFIRM_RESTORE_HELP)]
    ConfirmRestore(ConfirmRestoreArgs),
    /// Apply YAML files to the hub.
    Apply(ApplyArgs),
    /// Have the hub itself work on a member cluster that it can dial (push mode): makes accounts there and a Cluster here, as
    /// karmadactl join does. Members that the hub cannot dial join by an agent: token create.
    Join(JoinArgs),
    /// Remove a cluster in push mode: first what the hub has put there, then the Cluster.
    Unjoin(UnjoinArgs),
    /// Write a kubeconfig that reaches a member cluster through the hub, with the credentials that you have for the hub:
    /// for kubectl, Helm, k9s and whatever else takes one.
    Kubeconfig(KubeconfigArgs),
    /// Print what a container on a member cluster has written, through the hub.
    Logs(LogsArgs),
    /// Run a command in a container on a member cluster, through the hub. Its exit code is the command's.
    #[command(after_long_help = EXEC_HELP)]
    Exec(ExecArgs),
    /// Print what nodes or Pods of a member cluster use, through the hub.
    Top(TopArgs),
    /// Have ports of this machine reach a Pod on a member cluster, through the hub, until it is interrupted.
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
    /// The kubeconfig to use; without it, $KUBECONFIG.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context to use of it.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// The namespace; without it, that of the context, or "default".
    #[arg(short = 'n', long, value_name = "NS")]
    pub namespace: Option<String>,
}

/// Arguments of `ui`.
#[derive(Clone, Debug, ClapArgs)]
pub struct UiArgs {
    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Clone, Debug, ClapArgs)]
pub struct JoinArgs {
    /// What the cluster is to be called.
    #[arg(value_name = "CLUSTER")]
    pub name: String,
    /// A kubeconfig of the member, of somebody who may make accounts and roles there. The hub goes to the server that it
    /// names, but by an account that is made for it.
    #[arg(long, value_name = "FILE")]
    pub cluster_kubeconfig: PathBuf,
    /// The context to use of that.
    #[arg(long, value_name = "NAME")]
    pub cluster_context: Option<String>,
    /// The cloud provider.
    #[arg(long, value_name = "NAME")]
    pub cluster_provider: Option<String>,
    /// The region.
    #[arg(long, value_name = "NAME")]
    pub cluster_region: Option<String>,
    /// Failure zones.
    #[arg(long, value_name = "ZONE,...", value_delimiter = ',')]
    pub cluster_zones: Vec<String>,
    /// How long to wait until the hub has reached it.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = some_time)]
    pub wait: Duration,
    #[command(flatten)]
    pub told: Told,
    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Clone, Debug, ClapArgs)]
pub struct UnjoinArgs {
    /// The cluster.
    #[arg(value_name = "CLUSTER")]
    pub name: String,
    /// A kubeconfig of the member: with it, accounts and roles that join has made there go, too.
    #[arg(long, value_name = "FILE")]
    pub cluster_kubeconfig: Option<PathBuf>,
    /// The context to use of that.
    #[arg(long, value_name = "NAME", requires = "cluster_kubeconfig")]
    pub cluster_context: Option<String>,
    /// How long to wait until the Cluster is gone.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = some_time)]
    pub wait: Duration,
    #[command(flatten)]
    pub told: Told,
    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Clone, Debug, ClapArgs)]
pub struct KubeconfigArgs {
    /// The cluster.
    #[arg(value_name = "CLUSTER")]
    pub name: String,
    /// Write it to this file, which must not be there yet; without it, to standard output.
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Clone, Debug, ClapArgs)]
pub struct GetArgs {
    /// Kinds as kubectl takes them: deploy, works, deployments.apps; several with commas; or KIND/NAME.
    #[arg(value_name = "RESOURCE")]
    pub resource: String,
    /// Names of objects; without them, all.
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Over all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Only objects with these labels.
    #[arg(short = 'l', long, value_name = "SELECTOR", conflicts_with = "names")]
    pub selector: Option<String>,
    /// Only objects whose fields hold this: metadata.name=web.
    #[arg(long, value_name = "SELECTOR", conflicts_with = "names")]
    pub field_selector: Option<String>,
    /// Print what is there, then a line for every change, until interrupted. A lost connection is made anew.
    #[arg(short = 'w', long)]
    pub watch: bool,
    /// The same without what is there.
    #[arg(long)]
    pub watch_only: bool,
    /// With --watch: say of each line whether it was added, modified or deleted.
    #[arg(long)]
    pub output_watch_events: bool,
    /// Print no line of headings.
    #[arg(long)]
    pub no_headers: bool,
    /// Print who owns which fields, too.
    #[arg(long)]
    pub show_managed_fields: bool,
    /// Print the copies on the member clusters instead of the hub's own objects: READY, whether the hub manages the copy
    /// (ADOPTION), and the AGE of what is known. Members to which there is a way are asked themselves ("live"); of the others
    /// it is what their agents last told. No member has to be reachable.
    #[arg(long, conflicts_with_all = ["watch", "watch_only", "field_selector"])]
    pub members: bool,
    /// With --members: ask no member, and print what the hub knows.
    #[arg(long, requires = "members")]
    pub cached: bool,
    /// With --members: only on these clusters.
    #[arg(short = 'C', long, value_name = "CLUSTER", value_delimiter = ',', requires = "members")]
    pub clusters: Vec<String>,
    /// What to print.
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
    /// A file, or a folder whose YAML and JSON files are taken in order of their names; may be given more than once.
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
    /// Apply the status of objects too: what karmada-hub export wrote.
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
    /// End the credentials of clusters' agents: all that were made so far, at once, also on connections that are open. What
    /// runs on the members goes on. An agent comes back with what karmada-hub credentials makes from then on. On a stock
    /// kube-apiserver: take back what the hub lets agents do that joined by tokens; they come back by a new token.
    Revoke(RevokeArgs),
}

/// The order of things, for `ca --help`.
const CA_HELP: &str = "\
Each call of ca rotate does one step and says what the next one does; between them the hub may be stopped, restarted and
restored from a backup. With --wait all steps are done, one after another.

  settled      ca rotate makes a new authority. Both are in cluster-info, pki/ca.crt, kubeconfigs and Secrets of tokens.
  introduced   ca rotate lets it sign. The hub shows a certificate of the new one, with one of the old one over it.
  changed      ca rotate lets go of the old one, once all clusters have certificates of the new one (ca status counts
               them), or with --force. Copies of admin.kubeconfig from before are of no use after that.

Keys of service accounts' tokens change by the same stages: ca rotate service-accounts.";

#[derive(Clone, Debug, ClapArgs)]
pub struct CaArgs {
    #[command(subcommand)]
    pub command: CaCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub enum CaCommand {
    /// Say how far a rotation is, and which clusters still have certificates of the old authority.
    Status(CaStatusArgs),
    /// Do the next step of a rotation, or begin one.
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
    /// What changes.
    #[arg(value_enum, default_value_t = What::Authority)]
    pub what: What,
    /// Drop the old authority or key although it is still used. Whoever has nothing else is locked out.
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
    /// Make a token by which the agent of one cluster, and of no other, gets its certificate. Prints the line by which it
    /// joins; the token is shown this once.
    Create(TokenCreateArgs),
    /// Print the tokens that there are, karmadactl's too, without their secrets.
    List(TokenListArgs),
    /// Delete tokens; whoever has joined stays.
    Delete(TokenDeleteArgs),
}

#[derive(Clone, Debug, ClapArgs)]
pub struct TokenCreateArgs {
    /// The cluster that may join by it.
    #[arg(long, value_name = "NAME")]
    pub cluster: String,
    /// How long the token is valid.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = some_time)]
    pub ttl: Duration,
    /// How many times an agent may join by it, each with a key of its own.
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
    /// Tokens, or their ids: the first six characters.
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
    /// The clusters.
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    #[command(flatten)]
    pub told: Told,
    #[command(flatten)]
    pub server: ServerArgs,
}
