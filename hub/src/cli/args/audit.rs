//! What is told of requests. The names are kube-apiserver's.

use std::{path::PathBuf, time::Duration};

use clap::{Args as ClapArgs, ValueEnum};
use karmada_apiserver::audit::Mode;
use karmada_meta::duration;

/// The audit log of the embedded API. Off without a policy.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "Audit")]
pub struct AuditArgs {
    /// Which requests are recorded, and how: a Policy of audit.k8s.io/v1, read at the start. What it has at the levels Request and
    /// RequestResponse stands in the log with its body: leave Secrets, ConfigMaps, tokenreviews and serviceaccounts/token
    /// at Metadata. Wants --audit-log-path, --audit-webhook-config-file, or both.
    #[arg(long, value_name = "FILE", conflicts_with = "kubeconfig")]
    pub audit_policy_file: Option<PathBuf>,
    /// Where audit events are written, one line of JSON each; -: standard output. Events that cannot be written, or for which
    /// there is no room meanwhile, are lost and counted (apiserver_audit_error_total).
    #[arg(long, value_name = "FILE", requires = "audit_policy_file")]
    pub audit_log_path: Option<PathBuf>,
    /// Whether requests wait until they are written: batch: they do not; blocking: they do; blocking-strict: they do, and are
    /// refused if that they came cannot be written. kube-apiserver's own default is blocking.
    #[arg(long, value_name = "MODE", value_enum, default_value_t, requires = "audit_log_path")]
    pub audit_log_mode: AuditMode,
    /// How many events may wait to be written; what is beyond is lost and counted.
    #[arg(long, value_name = "N", default_value_t = 10_000, requires = "audit_log_path",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub audit_log_batch_buffer_size: u32,
    /// How many events are written at once, or paced as one, in batch mode. Without it, as many as come within
    /// --audit-log-batch-max-wait (kube-apiserver: 1).
    #[arg(long, value_name = "N", requires = "audit_log_path", value_parser = clap::value_parser!(u32).range(1..))]
    pub audit_log_batch_max_size: Option<u32>,
    /// How long events are gathered at most that are written at once, in batch mode.
    #[arg(long, value_name = "TIME", default_value = "50ms", requires = "audit_log_path", value_parser = duration::parse)]
    pub audit_log_batch_max_wait: Duration,
    /// Whether writes are paced, in batch mode.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = clap::ArgAction::Set, requires_if("true", "audit_log_batch_throttle_qps"),
          requires = "audit_log_path")]
    pub audit_log_batch_throttle_enable: bool,
    /// How many writes there are in a second.
    #[arg(long, value_name = "N", requires = "audit_log_path", value_parser = pace)]
    pub audit_log_batch_throttle_qps: Option<f64>,
    /// The burst: how many writes may follow each other at once after a pause.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "audit_log_path",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub audit_log_batch_throttle_burst: u32,
    /// For how many days rotated files are kept. 0: for ever.
    #[arg(long, value_name = "DAYS", default_value_t = 0, requires = "audit_log_path")]
    pub audit_log_maxage: u64,
    /// How many rotated files are kept. 0: all.
    #[arg(long, value_name = "N", default_value_t = 10, requires = "audit_log_path")]
    pub audit_log_maxbackup: usize,
    /// The size in megabytes at which a file is rotated, to FILE-TIME.
    #[arg(long, value_name = "MB", default_value_t = 100, requires = "audit_log_path",
          value_parser = clap::value_parser!(u64).range(1..1 << 30))]
    pub audit_log_maxsize: u64,
    /// The form of an event.
    #[arg(long, value_name = "FORMAT", default_value = "json", requires = "audit_log_path", value_parser = ["json"])]
    pub audit_log_format: String,
    /// Where audit events are posted, as EventLists: a kubeconfig.
    #[arg(long, value_name = "FILE", requires = "audit_policy_file")]
    pub audit_webhook_config_file: Option<PathBuf>,
    /// Whether requests wait until they are posted, as --audit-log-mode says it. Each waits for its own events alone, which
    /// are posted by themselves then, and for 10s at most; while nothing is taken they do not wait, or are refused.
    #[arg(long, value_name = "MODE", value_enum, default_value_t, requires = "audit_webhook_config_file")]
    pub audit_webhook_mode: AuditMode,
    /// How many events may wait to be posted; what is beyond is lost and counted.
    #[arg(long, value_name = "N", default_value_t = 10_000, requires = "audit_webhook_config_file",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub audit_webhook_batch_buffer_size: u32,
    /// How many events one post has at most.
    #[arg(long, value_name = "N", default_value_t = 400, requires = "audit_webhook_config_file",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub audit_webhook_batch_max_size: u32,
    /// How long events are gathered for one post at most.
    #[arg(long, value_name = "TIME", default_value = "30s", requires = "audit_webhook_config_file", value_parser = duration::parse)]
    pub audit_webhook_batch_max_wait: Duration,
    /// Whether posts are paced, where requests do not wait.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = clap::ArgAction::Set, requires = "audit_webhook_config_file")]
    pub audit_webhook_batch_throttle_enable: bool,
    /// How many posts there are in a second.
    #[arg(long, value_name = "N", default_value_t = 10.0, requires = "audit_webhook_config_file", value_parser = pace)]
    pub audit_webhook_batch_throttle_qps: f64,
    /// The burst: how many posts may follow each other at once after a pause.
    #[arg(long, value_name = "N", default_value_t = 15, requires = "audit_webhook_config_file",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub audit_webhook_batch_throttle_burst: u32,
    /// How long until a post is tried again that has failed; then half as long again each time, four times.
    #[arg(long, value_name = "TIME", default_value = "10s", requires = "audit_webhook_config_file", value_parser = duration::parse)]
    pub audit_webhook_initial_backoff: Duration,
    /// The version of what is posted.
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
    /// They do.
    Blocking,
    /// They do, and are refused.
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
