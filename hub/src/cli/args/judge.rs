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
    /// The longest grace period that the hub learns from how long a link is usually silent. The Cluster's annotation
    /// cluster.karmada.io/grace-period may set any other value. If this is not longer than
    /// --cluster-monitor-grace-period, the hub learns none.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse)]
    pub cluster_monitor_max_grace_period: Duration,
    /// The longest leaseDurationSeconds of an agent's Lease (the agent's --cluster-lease-duration) that the hub accepts
    /// as the grace period of its cluster. A Lease that is valid for longer than the hub's grace period raises the
    /// cluster's. The condition LinkGrace says so, and reports Leases that are too long.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = positive)]
    pub cluster_max_lease_duration: Duration,
    /// After this many losses within --cluster-flap-window the hub places nothing new on the cluster for a while. 0:
    /// off.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub cluster_flap_losses: usize,
    /// The time within which the hub counts losses. After each such time without a loss, the hub takes back one
    /// doubling of --cluster-flap-hold.
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = positive)]
    pub cluster_flap_window: Duration,
    /// How long the hub places nothing new on such a cluster. It doubles the time at each further loss.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    pub cluster_flap_hold: Duration,
    /// The longest time for which the hub places nothing new on such a cluster.
    #[arg(long, value_name = "DURATION", default_value = "2h", value_parser = duration::parse)]
    pub cluster_flap_max_hold: Duration,
    /// If more than this share of the clusters (0 to 1) falls silent within one grace period, the hub stops evictions
    /// from lost clusters. 1: never stop evictions.
    #[arg(long, value_name = "SHARE", default_value_t = 0.3, value_parser = share)]
    pub eviction_brake_share: f64,
    /// The hub stops evictions only if at least this many clusters fall silent.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub eviction_brake_clusters: usize,
    /// After this time the hub considers the clusters that are still missing as lost for good, and continues evictions.
    /// 0: only when enough clusters are back.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration::parse)]
    pub eviction_brake_timeout: Duration,
    /// How often per minute the hub may evict one object from lost clusters. 0: no limit.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub eviction_budget_per_binding: usize,
    /// How many evictions from lost clusters the hub may make per minute. 0: no limit.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub eviction_budget_per_minute: usize,
    /// How much longer than work.karmada.io/fence-after the hub waits before it starts a fenced workload elsewhere.
    /// This allows for clocks that differ, agents that restart, and containers that take time to stop.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    pub fence_skew: Duration,
    /// When a Cluster is deleted: how long the hub waits in total for the agent to remove what it has applied. Then the
    /// hub revokes the agent's credentials and removes the Cluster. The member keeps what is left.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = positive)]
    pub cluster_removal_timeout: Duration,
    /// When a Cluster is deleted: how long the hub waits for an agent that reports but removes nothing. Choose more
    /// than a Pod, a drain or a volume on the member takes to end.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = positive)]
    pub cluster_removal_idle_timeout: Duration,
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err(format!("{text} is not between 0 and 1")) }
}
