//! What is told of requests. The names are kube-apiserver's.

use std::{path::PathBuf, time::Duration};

use clap::{Args as ClapArgs, ValueEnum};
use karmada_apiserver::audit::Mode;
use karmada_meta::duration;

/// The audit log of the embedded API. Off without a policy.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "Audit")]
pub struct AuditArgs {
    /// The audit policy (a Policy of audit.k8s.io/v1): which requests are recorded, and at which level. The hub reads
    /// it when it starts. At the levels Request and RequestResponse the log contains bodies, so leave Secrets,
    /// ConfigMaps, tokenreviews and serviceaccounts/token at Metadata. Needs --audit-log-path,
    /// --audit-webhook-config-file, or both.
    #[arg(long, value_name = "FILE", conflicts_with = "kubeconfig")]
    pub audit_policy_file: Option<PathBuf>,
    /// The file for audit events, one line of JSON each. -: standard output. Events that cannot be written, or that
    /// exceed the buffer, are lost and counted (apiserver_audit_error_total).
    #[arg(long, value_name = "FILE", requires = "audit_policy_file")]
    pub audit_log_path: Option<PathBuf>,
    /// Whether requests wait until their events are written. batch: they do not wait. blocking: they wait.
    /// blocking-strict: they wait, and the hub refuses a request whose arrival it cannot record. kube-apiserver's
    /// default is blocking.
    #[arg(long, value_name = "MODE", value_enum, default_value_t, requires = "audit_log_path")]
    pub audit_log_mode: AuditMode,
    /// How many events may wait to be written. Further events are lost and counted.
    #[arg(long, value_name = "N", default_value_t = 10_000, requires = "audit_log_path",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub audit_log_batch_buffer_size: u32,
    /// How many events the hub writes at once in batch mode. Throttling counts them as one write. Without it: as many
    /// as come within --audit-log-batch-max-wait (kube-apiserver: 1).
    #[arg(long, value_name = "N", requires = "audit_log_path", value_parser = clap::value_parser!(u32).range(1..))]
    pub audit_log_batch_max_size: Option<u32>,
    /// How long the hub collects events before it writes them, in batch mode.
    #[arg(long, value_name = "TIME", default_value = "50ms", requires = "audit_log_path", value_parser = duration::parse)]
    pub audit_log_batch_max_wait: Duration,
    /// Whether the hub limits the rate of writes, in batch mode.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = clap::ArgAction::Set, requires_if("true", "audit_log_batch_throttle_qps"),
          requires = "audit_log_path")]
    pub audit_log_batch_throttle_enable: bool,
    /// Writes per second.
    #[arg(long, value_name = "N", requires = "audit_log_path", value_parser = pace)]
    pub audit_log_batch_throttle_qps: Option<f64>,
    /// How many writes may follow each other without delay after a pause.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "audit_log_path",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub audit_log_batch_throttle_burst: u32,
    /// How many days the hub keeps rotated files. 0: for ever.
    #[arg(long, value_name = "DAYS", default_value_t = 0, requires = "audit_log_path")]
    pub audit_log_maxage: u64,
    /// How many rotated files the hub keeps. 0: all.
    #[arg(long, value_name = "N", default_value_t = 10, requires = "audit_log_path")]
    pub audit_log_maxbackup: usize,
    /// The size in megabytes at which the hub rotates a file, to FILE-TIME.
    #[arg(long, value_name = "MB", default_value_t = 100, requires = "audit_log_path",
          value_parser = clap::value_parser!(u64).range(1..1 << 30))]
    pub audit_log_maxsize: u64,
    /// The format of events.
    #[arg(long, value_name = "FORMAT", default_value = "json", requires = "audit_log_path", value_parser = ["json"])]
    pub audit_log_format: String,
    /// A kubeconfig for the webhook to which the hub posts audit events, as EventLists.
    #[arg(long, value_name = "FILE", requires = "audit_policy_file")]
    pub audit_webhook_config_file: Option<PathBuf>,
    /// Whether requests wait until their events are posted; the modes are those of --audit-log-mode. A request waits
    /// only for its own events, which are then posted by themselves, and for 10s at most. While the webhook accepts
    /// nothing, requests do not wait (blocking) or are refused (blocking-strict).
    #[arg(long, value_name = "MODE", value_enum, default_value_t, requires = "audit_webhook_config_file")]
    pub audit_webhook_mode: AuditMode,
    /// How many events may wait to be posted. Further events are lost and counted.
    #[arg(long, value_name = "N", default_value_t = 10_000, requires = "audit_webhook_config_file",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub audit_webhook_batch_buffer_size: u32,
    /// How many events one post contains at most.
    #[arg(long, value_name = "N", default_value_t = 400, requires = "audit_webhook_config_file",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub audit_webhook_batch_max_size: u32,
    /// How long the hub collects events for one post at most.
    #[arg(long, value_name = "TIME", default_value = "30s", requires = "audit_webhook_config_file", value_parser = duration::parse)]
    pub audit_webhook_batch_max_wait: Duration,
    /// Whether the hub limits the rate of posts, in batch mode.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = clap::ArgAction::Set, requires = "audit_webhook_config_file")]
    pub audit_webhook_batch_throttle_enable: bool,
    /// Posts per second.
    #[arg(long, value_name = "N", default_value_t = 10.0, requires = "audit_webhook_config_file", value_parser = pace)]
    pub audit_webhook_batch_throttle_qps: f64,
    /// How many posts may follow each other without delay after a pause.
    #[arg(long, value_name = "N", default_value_t = 15, requires = "audit_webhook_config_file",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub audit_webhook_batch_throttle_burst: u32,
    /// How long the hub waits before it repeats a failed post. It makes four more attempts, and waits half as long
    /// again each time.
    #[arg(long, value_name = "TIME", default_value = "10s", requires = "audit_webhook_config_file", value_parser = duration::parse)]
    pub audit_webhook_initial_backoff: Duration,
    /// The API version of the events.
    #[arg(long, value_name = "VERSION", default_value = "audit.k8s.io/v1", requires = "audit_webhook_config_file",
          value_parser = ["audit.k8s.io/v1"])]
    pub audit_webhook_version: String,
}

/// So many in a second, more than none.
fn pace(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(pace) if pace > 0.0 && pace.is_finite() => Ok(pace),
        Ok(_) => Err(format!("{text} is not more than 0")),
        Err(_) => Err(format!("{text:?} is not a number")),
    }
}

/// [`Mode`] on the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum AuditMode {
    /// Requests do not wait.
    #[default]
    Batch,
    /// Requests wait.
    Blocking,
    /// Requests wait, and the hub refuses those whose arrival it cannot record.
    BlockingStrict,
}

impl From<AuditMode> for Mode {
    fn from(mode: AuditMode) -> Self {
        match mode {
            AuditMode::Batch => Self::Batch,
            AuditMode::Blocking => Self::Blocking,
            AuditMode::BlockingStrict => Self::Strict,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::Args;

    #[test]
    fn a_log_needs_a_policy() {
        let serve = |flags: &str| {
            let words = ["karmada-hub", "serve", "--data-dir=d"].into_iter().chain(flags.split_whitespace());
            Args::try_parse_from(words).map(drop).map_err(|error| error.to_string())
        };
        for flags in [
            "",
            "--audit-policy-file=p --audit-log-path=- --audit-log-format=json --audit-log-mode=blocking-strict",
            "--audit-policy-file=p --audit-log-path=- --audit-log-batch-buffer-size=20000 --audit-log-batch-max-size=1 \
             --audit-log-batch-max-wait=1s --audit-log-batch-throttle-enable --audit-log-batch-throttle-qps=0.5 \
             --audit-log-batch-throttle-burst=15",
            "--audit-policy-file=p --audit-log-path=- --audit-log-batch-throttle-enable=false",
            "--audit-policy-file=p --audit-webhook-config-file=k --audit-webhook-batch-throttle-qps=2.5",
            "--audit-policy-file=p --audit-webhook-config-file=k --audit-webhook-batch-throttle-enable=false \
             --audit-webhook-batch-max-wait=5s --audit-webhook-mode=blocking",
        ] {
            assert_eq!(serve(flags), Ok(()), "{flags}");
        }
        for (flags, want) in [
            ("--audit-log-path=-", "--audit-policy-file"),
            ("--audit-webhook-config-file=k", "--audit-policy-file"),
            ("--audit-log-maxage=3", "--audit-log-path"),
            ("--audit-log-batch-buffer-size=3", "--audit-log-path"),
            (
                "--audit-policy-file=p --audit-log-path=- --audit-log-batch-throttle-enable=true",
                "--audit-log-batch-throttle-qps",
            ),
            (
                "--audit-policy-file=p --audit-log-path=- --audit-log-batch-throttle-qps=0",
                "0 is not more than 0",
            ),
            (
                "--audit-policy-file=p --audit-log-path=- --audit-webhook-mode=batch",
                "--audit-webhook-config-file",
            ),
            ("--audit-policy-file=p --audit-log-path=- --audit-log-maxsize=0", "0 is not in 1"),
            ("--audit-policy-file=p --audit-log-path=- --audit-log-mode=strict", "blocking-strict"),
            ("--audit-policy-file=p --audit-log-path=- --audit-log-format=legacy", "json"),
            (
                "--audit-policy-file=p --audit-webhook-config-file=k --audit-webhook-batch-max-size=0",
                "0 is not in 1",
            ),
            ("--audit-policy-file=p --audit-log-path=- --kubeconfig=k", "--kubeconfig"),
        ] {
            let why = serve(flags).expect_err(flags);
            assert!(why.contains(want), "{flags}: {why}");
        }
    }
}
