//! Arguments of the commands that look across clusters, and move things between them.

use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use karmada_meta::duration;

use super::ServerArgs;
use crate::told::Told;

/// What can be explained, for `explain --help`.
pub const EXPLAIN_HELP: &str = "\
  karmada-hub explain deploy/web -n shop         a template by kind and name
  karmada-hub explain shop/web                   everything of that name in a namespace
  karmada-hub explain shop/web -r statefulset    a template by namespace and name
  karmada-hub explain pp/web -n shop             a policy: what it selects, who has that, which clusters it means
  karmada-hub explain rb/web-deployment -n shop  the template of a binding

It says which policies looked at the object and which has it; of every cluster whether the object goes there, by which
field of the policy, and what was found on the cluster; what would be decided now, if that is something else than what
is placed; and what to do. The decision is made by the functions that make it on the hub, from what the API shows.";

/// How `explain` and `what-if` print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Document {
    #[default]
    #[value(hide = true)]
    Text,
    Json,
}

/// Arguments of `explain`.
#[derive(Clone, Debug, ClapArgs)]
pub struct ExplainArgs {
    /// KIND/NAME, NAMESPACE/NAME, or a NAME in the namespace; or a KIND before NAME.
    #[arg(value_name = "TARGET")]
    pub target: String,
    /// With a KIND before it.
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// The kind of TARGET, if that is a name alone or with its namespace: deploy, configmaps, clusters.example.com.
    #[arg(short = 'r', long, value_name = "KIND")]
    pub resource: Option<String>,
    /// What to print.
    #[arg(short = 'o', long, value_enum, default_value_t = Document::Text, hide_default_value = true)]
    pub output: Document,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Arguments of `cordon` and `uncordon`.
#[derive(Clone, Debug, ClapArgs)]
pub struct CordonArgs {
    /// Clusters.
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub told: Told,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// What `confirm-restore` does, for its `--help`.
pub const CONFIRM_RESTORE_HELP: &str = "\
An agent that finds that the hub knows less than it does (restored from a backup, emptied, another one of that name) keeps
its member as it was last told to, deletes nothing, and says so in the Cluster's condition HubOlderThanAgent, which names
what differs. It goes on by itself when the hub has all of that again: apply what was lost first. What is to be as the hub
has it now is confirmed:

  karmada-hub confirm-restore shop-17      one cluster
  karmada-hub confirm-restore --all        all that the hub knows, also those that are away

What an object on a member was made for later than the backup is spared all the same, and told by events ObjectSpared.";

/// Arguments of `confirm-restore`.
#[derive(Clone, Debug, ClapArgs)]
pub struct ConfirmRestoreArgs {
    /// Clusters.
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// All clusters.
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub told: Told,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// How taints are written, for `taint --help`.
pub const TAINT_HELP: &str = "\
  karmada-hub taint shop-17 gpu=a100:NoSchedule       put a taint on
  karmada-hub taint shop-17 gpu=h100:NoSchedule --overwrite
  karmada-hub taint shop-17 gpu:NoSchedule-           take it off
  karmada-hub taint shop-17 shop-18 gpu-              take all taints of a key off several clusters

NoSchedule keeps away what is not there and does not tolerate it (spec.placement.clusterTolerations); NoExecute drives
away what is there, too, as soon as the hub evicts; PreferNoSchedule is kept and has no effect.";

/// Arguments of `taint`.
#[derive(Clone, Debug, ClapArgs)]
pub struct TaintArgs {
    /// Clusters, then key=value:Effect or key:Effect to put a taint on, key:Effect- or key- to take one off.
    #[arg(value_name = "NAME... TAINT", required = true)]
    pub words: Vec<String>,
    /// Replace the value of a taint that is there.
    #[arg(long)]
    pub overwrite: bool,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub told: Told,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Arguments of `what-if`.
#[derive(Clone, Debug, ClapArgs)]
pub struct WhatIfArgs {
    /// These clusters were not heard of any more.
    #[arg(long, value_name = "CLUSTER", value_delimiter = ',')]
    pub lose: Vec<String>,
    /// These clusters were drained.
    #[arg(long, value_name = "CLUSTER", value_delimiter = ',')]
    pub drain: Vec<String>,
    /// This cluster had this taint; may be given more than once.
    #[arg(long, value_name = "CLUSTER=key[=value]:Effect")]
    pub taint: Vec<String>,
    /// These clusters were cordoned.
    #[arg(long, value_name = "CLUSTER", value_delimiter = ',')]
    pub cordon: Vec<String>,
    /// What to print.
    #[arg(short = 'o', long, value_enum, default_value_t = Document::Text, hide_default_value = true)]
    pub output: Document,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// What draining is, for `drain --help`.
pub const DRAIN_HELP: &str = "\
The cluster is cordoned, and everything that runs on it moves to the clusters that its policy allows. An old copy is
removed when the new ones are healthy, not before: service is kept throughout. What no other cluster can take is left
where it is and named, with the reason, and the exit code is 1; `karmada-hub what-if --drain NAME` and --dry-run show it
beforehand. So it is with whatever runs there, CronJobs and custom resources of which nothing is known
as well. ConfigMaps and the like that no other cluster takes stay, too, and are no failure: nothing of them runs. Nor are
DaemonSets, as with `kubectl drain --ignore-daemonsets`: their Pods stay.

The hub does the moving, whether it evicts by itself or not, and goes on when this command is interrupted. A cluster that
is not heard of keeps its copies until it is back. Afterwards:

  karmada-hub uncordon NAME              lets objects come to the cluster again
  karmada-hub failback --cluster NAME    brings back what has left";

/// Arguments of `drain`.
#[derive(Clone, Debug, ClapArgs)]
pub struct DrainArgs {
    /// The cluster.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Wait until everything that can move has left, and show how far it is.
    #[arg(long)]
    pub wait: bool,
    /// With --wait: for so long; 0 for as long as it takes.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, requires = "wait")]
    pub timeout: Option<Duration>,
    /// Remove an old copy after this time even if the new ones are not healthy.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub grace_period: Option<Duration>,
    /// Have also leave what no other cluster can take: it ends there after the hub's --graceful-eviction-timeout.
    #[arg(long)]
    pub force: bool,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub told: Told,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Arguments of `failback`.
#[derive(Clone, Debug, ClapArgs)]
#[group(skip)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true).args(["target", "cluster"]))]
pub struct FailbackArgs {
    /// KIND/NAME, NAMESPACE/NAME, or a NAME in the namespace.
    #[arg(value_name = "TARGET")]
    pub target: Option<String>,
    /// The kind of TARGET, if that is a name alone or with its namespace.
    #[arg(short = 'r', long, value_name = "KIND", requires = "target")]
    pub resource: Option<String>,
    /// Everything of which this cluster would get more.
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub told: Told,
    #[command(flatten)]
    pub server: ServerArgs,
}
