//! What the arguments say of the judgement on clusters.

use karmada_cli::Failure;
use karmada_core::{
    health,
    judge::{Settings, brake, budget, flaps, pairs},
    leave,
};

use super::args::ServeArgs;

/// The settings that the arguments mean.
///
/// # Errors
/// When two of them do not go together.
pub(super) fn settings(args: &ServeArgs) -> Result<Settings, Failure> {
    let settings = read(args);
    pairs::check(&settings).map_err(Failure::usage)?;
    Ok(settings)
}

fn read(args: &ServeArgs) -> Settings {
    let judge = &args.judge;
    Settings {
        health: health::Settings {
            period: args.cluster_monitor_period,
            grace: args.cluster_monitor_grace_period,
            startup_grace: args.cluster_startup_grace_period,
        },
        most_grace: judge.cluster_monitor_max_grace_period,
        most_lease: judge.cluster_max_lease_duration,
        flaps: flaps::Settings {
            losses: judge.cluster_flap_losses,
            window: judge.cluster_flap_window,
            first: judge.cluster_flap_hold,
            most: judge.cluster_flap_max_hold,
        },
        brake: brake::Settings {
            share: judge.eviction_brake_share,
            least: judge.eviction_brake_clusters,
            window: args.cluster_monitor_grace_period,
            timeout: judge.eviction_brake_timeout,
        },
        budget: budget::Settings {
            per_binding: judge.eviction_budget_per_binding,
            per_minute: judge.eviction_budget_per_minute,
        },
        fence_skew: judge.fence_skew,
        removal: leave::Patience {
            total: judge.cluster_removal_timeout,
            idle: judge.cluster_removal_idle_timeout,
        },
    }
}
