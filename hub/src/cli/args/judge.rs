//! What can be said of the judgement on clusters.

use std::time::Duration;

use clap::Args as ClapArgs;
use karmada_meta::duration;

use super::numbers::positive;

/// How links that are not good are judged. The tables behind the rules stand in the documentation of
/// `karmada_core::judge`.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "Flaky links")]
pub struct JudgeArgs {
    /// The longest grace that is learnt from a link's own silences; a Cluster's annotation
    /// cluster.karmada.io/grace-period may say anything. No more than --cluster-monitor-grace-period: none is learnt.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse)]
    pub cluster_monitor_max_grace_period: Duration,
    /// The longest leaseDurationSeconds of an agent's Lease (its --cluster-lease-duration) that is honoured as its
    /// cluster's grace. A Lease that is good for longer than the hub's grace raises the cluster's; the condition LinkGrace
    /// says so, and where it is too long.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = positive)]
    pub cluster_max_lease_duration: Duration,
    /// A cluster that was lost so often within --cluster-flap-window gets nothing new for a while. 0: whatever happens.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub cluster_flap_losses: usize,
    /// The time within which losses are counted. After such a time without a loss, one doubling of --cluster-flap-hold is taken back.
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = positive)]
    pub cluster_flap_window: Duration,
    /// How long such a cluster gets nothing new; doubled each time it goes on.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    pub cluster_flap_hold: Duration,
    /// The longest time for which such a cluster gets nothing new.
    #[arg(long, value_name = "DURATION", default_value = "2h", value_parser = duration::parse)]
    pub cluster_flap_max_hold: Duration,
    /// When more than this share of the clusters vanish within one grace period, nothing is evicted from lost clusters.
    /// 1: whatever happens.
    #[arg(long, value_name = "SHARE", default_value_t = 0.3, value_parser = share)]
    pub eviction_brake_share: f64,
    /// The least number of clusters that have to vanish for that.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub eviction_brake_clusters: usize,
    /// After this time what vanished counts as lost for good, and evictions go on. 0: only when enough are back.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration::parse)]
    pub eviction_brake_timeout: Duration,
    /// How often within a minute one object may be evicted from a lost cluster. 0: any number.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub eviction_budget_per_binding: usize,
    /// How many evictions there may be within a minute. 0: any number.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub eviction_budget_per_minute: usize,
    /// By how much longer than its work.karmada.io/fence-after the hub waits before a workload that its agent has stopped
    /// is begun elsewhere: for clocks that differ, agents that restart, and containers that take their time to end.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    pub fence_skew: Duration,
    /// When a Cluster is deleted: how long the hub waits in all for its agent to remove what was placed there. Then the agent's
    /// credentials end, the Cluster is removed, and its member keeps what is left.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = positive)]
    pub cluster_removal_timeout: Duration,
    /// How long the hub waits for an agent that reports but removes nothing. Choose more than a Pod, a drain or a volume there takes
    /// to end.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = positive)]
    pub cluster_removal_idle_timeout: Duration,
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err(format!("{text} is not between 0 and 1")) }
}
