//! Arguments of `upgrade`.

use clap::{Args as ClapArgs, Subcommand};
use karmada_core::upgrade::Version;

use super::ServerArgs;
use crate::told::Told;

#[derive(Clone, Debug, ClapArgs)]
pub struct UpgradeArgs {
    #[command(subcommand)]
    pub verb: UpgradeVerb,
}

#[derive(Clone, Debug, Subcommand)]
pub enum UpgradeVerb {
    /// Ask for a version. A newer request replaces the one that is under way. Agents take versions only if their owner allows it
    /// (karmada-agent --upgrade).
    Agents(UpgradeAgentsArgs),
    /// Show how far the last request is: waves, counts of clusters, and why some of them wait or have failed.
    Status(UpgradeWord),
    /// Offer the version to no more clusters until somebody says resume. Clusters that have begun go on.
    Pause(UpgradeWord),
    /// Go on: after a pause, with what has failed so far accepted, with a wave that waits for an approval, or from the
    /// first wave on with an upgrade that was aborted or returned.
    Resume(UpgradeWord),
    /// Offer the version to no more clusters; those that have it keep it.
    Abort(UpgradeWord),
    /// Have the clusters that have the version go back to what they had before. Nothing guards that: what they had before is put
    /// back as it is, and stays. To go back on trial, ask for the version before: upgrade agents --to VERSION --allow-downgrade.
    Return(UpgradeWord),
}

#[derive(Clone, Debug, ClapArgs)]
pub struct UpgradeAgentsArgs {
    /// The version, such as 0.6.0. It must not be newer than the hub, and at most two minor versions older.
    #[arg(long, value_name = "VERSION")]
    pub to: Version,
    /// The waves, as shares of all clusters or as label selectors, each with soak=TIME and approve if you like. Separate them
    /// by commas, or by semicolons if a selector contains commas. The last one must be 100%. Default: 1%,10%,50%,100%
    #[arg(long, value_name = "WAVES")]
    pub wave: Option<String>,
    /// When the next wave may begin, such as "maxFailures=2% minHealthy=3 deadline=1h onBreach=Return".
    #[arg(long, value_name = "SETTINGS")]
    pub gate: Option<String>,
    /// The image. Without it: the agent's own image, with the version as its tag.
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// The program for agents that are no Pods, on machines of a kind (x86_64, aarch64): where it is, over HTTPS, and the SHA-256
    /// of its bytes. Say it once for each kind. Without it these agents are passed over.
    #[arg(long, value_name = "ARCH=URL@sha256:HEX")]
    pub program: Vec<String>,
    /// Give the version also to agents that are newer.
    #[arg(long)]
    pub allow_downgrade: bool,
    /// Leave out agents that are more than two minor versions away, instead of refusing.
    #[arg(long)]
    pub skip_too_old: bool,
    /// Print how many clusters it concerns, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub told: Told,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// How something is said about the last request.
#[derive(Clone, Debug, ClapArgs)]
pub struct UpgradeWord {
    #[command(flatten)]
    pub told: Told,
    #[command(flatten)]
    pub server: ServerArgs,
}
