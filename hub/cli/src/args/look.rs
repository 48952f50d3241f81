//! Arguments of the commands that look across clusters, and move things between them.

use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use karmada_meta::duration;

use super::ServerArgs;
use crate::told::Told;

/// What can be explained, for `explain --help`.
pub const EXPLAIN_HELP: &str = "\
  karmada-hub explain deploy/web -n shop         a template by kind and name
  karmada-hub explain shop/web                   everything with that name in a namespace
  karmada-hub explain shop/web -r statefulset    a template by namespace and name
  karmada-hub explain pp/web -n shop             a policy: what it selects, which policy has each object, which clusters
                                                 it means
  karmada-hub explain rb/web-deployment -n shop  the template of a binding

The output says which policies were considered for the object, and which one applies. For every cluster it says whether
the object goes there, which field of the policy decides that, and what was found on the cluster. If a decision now
would differ from what is placed, it shows that too. It also says what to do. The command runs the hub's own decision
functions on what the API shows.";

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
    /// KIND/NAME, NAMESPACE/NAME, or a NAME in the namespace. Or a KIND, followed by NAME.
    #[arg(value_name = "TARGET")]
    pub target: String,
    /// The name, if TARGET is a KIND.
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// The kind, if TARGET does not name one: deploy, configmaps, clusters.example.com.
    #[arg(short = 'r', long, value_name = "KIND")]
    pub resource: Option<String>,
    /// Output format. Without it: text.
    #[arg(short = 'o', long, value_enum, default_value_t = Document::Text, hide_default_value = true)]
    pub output: Document,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Arguments of `cordon` and `uncordon`.
#[derive(Clone, Debug, ClapArgs)]
pub struct CordonArgs {
    /// Names of the clusters.
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// Print what would be done, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub told: Told,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// What `confirm-restore` does, for its `--help`.
pub const CONFIRM_RESTORE_HELP: &str = "\
An agent with --hold-for-older-hubs notices when the hub knows less than the agent, because the hub was restored from a
backup, emptied, or replaced by another hub of that name. The agent then keeps its member as the hub last wanted it, and
deletes nothing. The Cluster's condition HubOlderThanAgent says so, and names what differs. The agent continues by
itself when the hub has all of that again, so first apply what was lost. To confirm that the hub's present state is
right:

  karmada-hub confirm-restore shop-17      one cluster
  karmada-hub confirm-restore --all        all clusters that the hub knows, including those that are silent now

Objects that are newer than the backup stay in any case. Events ObjectSpared name them.";

/// Arguments of `confirm-restore`.
#[derive(Clone, Debug, ClapArgs)]
pub struct ConfirmRestoreArgs {
    /// Names of the clusters.
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Confirm for all clusters.
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub told: Told,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// How taints are written, for `taint --help`.
pub const TAINT_HELP: &str = "\
  karmada-hub taint shop-17 gpu=a100:NoSchedule       add a taint
  karmada-hub taint shop-17 gpu=h100:NoSchedule --overwrite
  karmada-hub taint shop-17 gpu:NoSchedule-           remove it
  karmada-hub taint shop-17 shop-18 gpu-              remove all taints with this key from several clusters

NoSchedule keeps away new objects that do not tolerate it (spec.placement.clusterTolerations). NoExecute also evicts
what is there, unless the hub runs with --enable-no-execute-taint-eviction=false. PreferNoSchedule has no effect.";

/// Arguments of `taint`.
#[derive(Clone, Debug, ClapArgs)]
pub struct TaintArgs {
    /// Names of clusters, then key=value:Effect or key:Effect to add a taint, key:Effect- or key- to remove one.
    #[arg(value_name = "NAME... TAINT", required = true)]
    pub words: Vec<String>,
    /// Replace the value of a taint that exists.
    #[arg(long)]
    pub overwrite: bool,
    /// Print what would be done, and change nothing.
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
    /// Assume that these clusters are lost.
    #[arg(long, value_name = "CLUSTER", value_delimiter = ',')]
    pub lose: Vec<String>,
    /// Assume that these clusters are drained.
    #[arg(long, value_name = "CLUSTER", value_delimiter = ',')]
    pub drain: Vec<String>,
    /// Assume that this cluster has this taint. May be given more than once.
    #[arg(long, value_name = "CLUSTER=key[=value]:Effect")]
    pub taint: Vec<String>,
    /// Assume that these clusters are cordoned.
    #[arg(long, value_name = "CLUSTER", value_delimiter = ',')]
    pub cordon: Vec<String>,
    /// Output format. Without it: text.
    #[arg(short = 'o', long, value_enum, default_value_t = Document::Text, hide_default_value = true)]
    pub output: Document,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// What draining is, for `drain --help`.
pub const DRAIN_HELP: &str = "\
The command cordons the cluster. The hub then moves everything that runs there to other clusters that the policies
allow. It removes an old copy when the new copies are healthy, not before, so that service is not interrupted.

Objects that no other cluster can take stay, and the command lists them with the reason and exits with code 1. This
includes CronJobs, and custom resources of which the hub knows nothing. `karmada-hub what-if --drain NAME` and --dry-run
show them beforehand. ConfigMaps and other objects that run nothing may stay too, which is not a failure. DaemonSets
stay with their Pods, as with `kubectl drain --ignore-daemonsets`.

The hub does the work, whatever its failover flags are, and continues when you interrupt this command. A cluster that is
silent keeps its copies until it is back. Afterwards:

  karmada-hub uncordon NAME              lets the hub place objects on the cluster again
  karmada-hub failback --cluster NAME    moves back what has left";

/// Arguments of `drain`.
#[derive(Clone, Debug, ClapArgs)]
pub struct DrainArgs {
    /// Name of the cluster.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Wait until everything that can move has left, and show the progress.
    #[arg(long)]
    pub wait: bool,
    /// With --wait: how long to wait at most. 0: until it is done.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, requires = "wait")]
    pub timeout: Option<Duration>,
    /// Remove an old copy after this time even if the new copies are not healthy.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub grace_period: Option<Duration>,
    /// Also remove objects that no other cluster can take. The hub then removes every old copy after --grace-period, or
    /// without it after its --graceful-eviction-timeout, even if the new copies are not healthy.
    #[arg(long)]
    pub force: bool,
    /// Print what would be done, and change nothing.
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
    /// The kind, if TARGET does not name one.
    #[arg(short = 'r', long, value_name = "KIND", requires = "target")]
    pub resource: Option<String>,
    /// All objects that this cluster would get, or of which it would get more replicas.
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Print what would be done, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub told: Told,
    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Clone, Debug, ClapArgs)]
pub struct RolloutArgs {
    #[command(subcommand)]
    pub verb: RolloutCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub enum RolloutCommand {
    /// Show how far a change has come: of one object, or of all objects in the namespace and all without one whose policies ask
    /// for waves.
    Status(RolloutTarget),
    /// Change no more clusters until somebody resumes the rollout.
    Pause(RolloutNamed),
    /// Continue: end a pause, accept the failures so far, or approve the next wave. If the rollout was aborted or returned, begin
    /// again with the first wave.
    Resume(RolloutNamed),
    /// Stop: change no more clusters. Those that have the change keep it.
    Abort(RolloutNamed),
    /// Take the change back: give the clusters that have it what they had before.
    Return(RolloutNamed),
}

/// What is looked at.
#[derive(Clone, Debug, ClapArgs)]
pub struct RolloutTarget {
    /// NAME or KIND/NAME of an object in the namespace, or of one without a namespace; without it all.
    #[arg(value_name = "NAME")]
    pub target: Option<String>,
    /// Look at all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    #[command(flatten)]
    pub told: Told,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// What something is done about.
#[derive(Clone, Debug, ClapArgs)]
pub struct RolloutNamed {
    /// NAME or KIND/NAME of an object in the namespace, or of one without a namespace.
    #[arg(value_name = "NAME")]
    pub target: String,
    /// Look at all namespaces. The name must mean one object.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    #[command(flatten)]
    pub told: Told,
    #[command(flatten)]
    pub server: ServerArgs,
}

impl RolloutCommand {
    /// What is done, if not looked at it alone, and about what.
    pub(crate) fn split(self) -> (Option<karmada_core::rollout::Command>, RolloutTarget) {
        use karmada_core::rollout::Command as Do;
        let (what, named) = match self {
            Self::Status(target) => return (None, target),
            Self::Pause(named) => (Do::Pause, named),
            Self::Resume(named) => (Do::Resume, named),
            Self::Abort(named) => (Do::Abort, named),
            Self::Return(named) => (Do::Return, named),
        };
        let RolloutNamed { target, all_namespaces, told, server } = named;
        (Some(what), RolloutTarget { target: Some(target), all_namespaces, told, server })
    }
}
