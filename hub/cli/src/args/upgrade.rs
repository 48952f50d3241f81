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
    /// Show how far the last request has come: waves, counts of clusters, and why some of them wait or have failed.
    Status(UpgradeStatusArgs),
    /// Offer the version to no more clusters until somebody resumes the upgrade. Clusters that have begun finish.
    Pause(UpgradeWord),
    /// Continue: end a pause, accept the failures so far, or approve the next wave. If the upgrade was aborted or returned, begin
    /// again with the first wave.
    Resume(UpgradeWord),
    /// Stop: offer the version to no more clusters. Those that have it keep it.
    Abort(UpgradeWord),
    /// Take the version back: agents that have it put back the image that they had before. If that image does not work, nothing
    /// brings the new one back. To try the old version first, ask for it: upgrade agents --to VERSION --allow-downgrade.
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
    /// The image. Without it: the agent's own image, with the version as its tag. Agents refuse an image of another repository
    /// unless their owner allows it (--upgrade-image-from).
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// The program for agents that are not Pods, for one kind of machine (x86_64 or aarch64): its HTTPS address, and the SHA-256 of
    /// its bytes. May be given once for each kind. Without it the upgrade leaves these agents out.
    #[arg(long, value_name = "ARCH=URL@sha256:HEX")]
    pub program: Vec<String>,
    /// Offer the version also to agents that are newer. Without this flag they keep their version.
    #[arg(long)]
    pub allow_downgrade: bool,
    /// Leave out agents that are more than two minor versions away, instead of refusing.
    #[arg(long)]
    pub skip_too_old: bool,
    /// Print how many clusters would take part, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Wait until the upgrade has ended, and show meanwhile how far it is. The command fails if the upgrade stops before that.
    #[arg(long, conflicts_with = "dry_run")]
    pub wait: bool,
    #[command(flatten)]
    pub told: Told,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Arguments of `status`.
#[derive(Clone, Debug, ClapArgs)]
pub struct UpgradeStatusArgs {
    /// Wait until the upgrade has ended, and show meanwhile how far it is. The command fails if the upgrade stops before that.
    #[arg(long)]
    pub wait: bool,
    #[command(flatten)]
    pub word: UpgradeWord,
}

/// How something is said about the last request.
#[derive(Clone, Debug, ClapArgs)]
pub struct UpgradeWord {
    #[command(flatten)]
    pub told: Told,
    #[command(flatten)]
    pub server: ServerArgs,
}
