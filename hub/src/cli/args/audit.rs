//! What is told of requests. The names are kube-apiserver's.

use std::path::PathBuf;

use clap::Args as ClapArgs;

/// The audit log of the embedded API. Off without a policy.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "Audit")]
pub struct AuditArgs {
    /// Which requests are told, and how: a Policy of audit.k8s.io/v1, read at the start. What it has at the levels Request and
    /// RequestResponse stands in the log with its body: leave Secrets, ConfigMaps, tokenreviews and serviceaccounts/token
    /// at Metadata.
    #[arg(long, value_name = "FILE", requires = "audit_log_path", conflicts_with = "kubeconfig")]
    pub audit_policy_file: Option<PathBuf>,
    /// Where audit events are written, one line of JSON each; -: standard output. No request waits for it: events that
    /// cannot be written, or for which there is no room meanwhile, are lost and counted (apiserver_audit_error_total).
    #[arg(long, value_name = "FILE", requires = "audit_policy_file")]
    pub audit_log_path: Option<PathBuf>,
    /// For how many days files are kept that were ended. 0: for ever.
    #[arg(long, value_name = "DAYS", default_value_t = 0, requires = "audit_log_path")]
    pub audit_log_maxage: u64,
    /// How many files are kept that were ended. 0: all.
    #[arg(long, value_name = "N", default_value_t = 10, requires = "audit_log_path")]
    pub audit_log_maxbackup: usize,
    /// The size in megabytes at which a file is ended, as FILE-TIME, and the next begun.
    #[arg(long, value_name = "MB", default_value_t = 100, requires = "audit_log_path",
          value_parser = clap::value_parser!(u64).range(1..1 << 30))]
    pub audit_log_maxsize: u64,
    /// The form of an event.
    #[arg(long, value_name = "FORMAT", default_value = "json", requires = "audit_log_path", value_parser = ["json"])]
    pub audit_log_format: String,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::Args;

    #[test]
    fn a_log_needs_a_policy_and_a_policy_a_log() {
        let serve = |flags: &str| {
            let words = ["karmada-hub", "serve", "--data-dir=d"].into_iter().chain(flags.split_whitespace());
            Args::try_parse_from(words).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(serve("--audit-policy-file=p --audit-log-path=- --audit-log-format=json"), Ok(()));
        assert_eq!(serve(""), Ok(()));
        for (flags, want) in [
            ("--audit-policy-file=p", "--audit-log-path"),
            ("--audit-log-path=-", "--audit-policy-file"),
            ("--audit-log-maxage=3", "--audit-log-path"),
            ("--audit-policy-file=p --audit-log-path=- --audit-log-maxsize=0", "0 is not in 1"),
            ("--audit-policy-file=p --audit-log-path=- --audit-log-format=legacy", "json"),
            ("--audit-policy-file=p --audit-log-path=- --kubeconfig=k", "--kubeconfig"),
        ] {
            let why = serve(flags).expect_err(flags);
            assert!(why.contains(want), "{flags}: {why}");
        }
    }
}
