//! What can be said of clusters in push mode.

use std::time::Duration;

use clap::Args as ClapArgs;
use karmada_meta::duration;

use super::numbers::{bytes, positive, rate};

/// How the hub works on members by itself. The times are Karmada's cluster-status-controller's; agents have flags of their own.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "Clusters in push mode")]
pub struct PushArgs {
    /// How often the hub checks the health of members in push mode.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = positive)]
    pub cluster_status_update_frequency: Duration,
    /// How long a member must be healthy before its Cluster is Ready again.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    pub cluster_success_threshold: Duration,
    /// How long a member must be unhealthy, or not answer, before its Cluster is no longer Ready.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    pub cluster_failure_threshold: Duration,
    /// How many requests per second to each member in push mode the hub makes on average. 0 or inf: no limit.
    #[arg(long = "cluster-api-qps", value_name = "N", default_value_t = 40.0, value_parser = rate)]
    pub cluster_api_qps: f64,
    /// How many requests to each member in push mode may follow each other without delay after a pause.
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub cluster_api_burst: u32,
    /// How many requests to each member in push mode the hub makes at the same time, without watches.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    pub cluster_api_requests: u32,
    /// Memory for responses of all members in push mode together while the hub reads them. Responses of up to 64Ki are
    /// not counted. One member may use 32Mi, and one response 16Mi. [default: an eighth of the memory that the hub may
    /// use, at most 128Mi]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub cluster_answers_memory: Option<u64>,
    /// Memory for what is kept of the objects on all such members together. One member gets an eighth of it, and where all of it is
    /// used its share; of collections that are larger nothing is known, and the Cluster says so in its condition MemberTooLarge.
    /// [default: a quarter of the memory that the hub may use, but 1Gi at most]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub cluster_objects_memory: Option<u64>,
}
