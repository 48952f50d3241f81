//! The audit log of the embedded API, by the arguments.

mod pace;
mod webhook;

use std::{fs::File, io::Read as _, path::Path, sync::Arc};

use karmada_apiserver::audit::{
    Audit, Output,
    log::{Log, Rotation},
    policy::{self, Policy},
    queue::Limits,
};
use karmada_cli::Failure;
use karmada_client::Kubeconfig;
use karmada_env::Env;
use tokio::runtime::Handle;

use self::{
    pace::{Pace, Paced},
    webhook::{Settings, Waited, Webhook},
};

use crate::cli::args::{AuditArgs, AuditMode};

/// Opens the log, if there is to be one, and finds the webhook. In a runtime.
pub(super) fn audit(args: &AuditArgs, env: &Env) -> Result<Option<Arc<Audit>>, Failure> {
    let Some(policy) = &args.audit_policy_file else { return Ok(None) };
    let policy = read(policy)
        .map_err(|why| Failure::usage(format!("--audit-policy-file {}: {why}", policy.display())))?;
    let outputs: Vec<Output> = [log(args, env)?, posted(args, env)?].into_iter().flatten().collect();
    if outputs.is_empty() {
        return Err(Failure::usage(
            "--audit-policy-file: the events go nowhere; name --audit-log-path, --audit-webhook-config-file, or both",
        ));
    }
    Ok(Some(Arc::new(Audit::new(policy, outputs, env.clone()))))
}

fn log(args: &AuditArgs, env: &Env) -> Result<Option<Output>, Failure> {
    let Some(path) = &args.audit_log_path else { return Ok(None) };
    let rotation = Rotation {
        size: args.audit_log_maxsize << 20,
        backups: args.audit_log_maxbackup,
        days: args.audit_log_maxage,
    };
    let log = match path.as_os_str() == "-" {
        true => Log::stdout(),
        false => Log::file(path, rotation, env.clone())
            .map_err(|why| Failure::usage(format!("--audit-log-path {}: {why}", path.display())))?,
    };
    let most = args.audit_log_batch_max_size.map_or(usize::MAX, |most| most as usize);
    let limits = Limits {
        entries: args.audit_log_batch_buffer_size as usize,
        gather: (args.audit_log_batch_max_wait, most),
        ..Limits::default()
    };
    let (mode, env) = (args.audit_log_mode.into(), env.clone());
    let paced = args.audit_log_batch_throttle_enable && args.audit_log_mode == AuditMode::Batch;
    let output = match args.audit_log_batch_throttle_qps.filter(|_| paced) {
        None => Output::new("log", mode, log, limits, env),
        Some(qps) => {
            let pace = Pace::new(qps, args.audit_log_batch_throttle_burst, env.now());
            let runtime = Handle::current();
            let log = Paced { to: log, pace, lines: most, runtime, env: env.clone() };
            Output::new("log", mode, log, limits, env)
        }
    };
    output.map(Some).map_err(Failure::failed)
}

fn posted(args: &AuditArgs, env: &Env) -> Result<Option<Output>, Failure> {
    let Some(path) = &args.audit_webhook_config_file else { return Ok(None) };
    let wrong = |why: String| Failure::usage(format!("--audit-webhook-config-file: {why}"));
    let endpoint = Kubeconfig::load(path).and_then(|kubeconfig| kubeconfig.endpoint(None));
    let endpoint = endpoint.map_err(|error| wrong(error.to_string()))?;
    let waits = args.audit_webhook_mode != AuditMode::Batch;
    let pace = (args.audit_webhook_batch_throttle_enable && !waits)
        .then_some((args.audit_webhook_batch_throttle_qps, args.audit_webhook_batch_throttle_burst));
    let events = args.audit_webhook_batch_max_size as usize;
    let settings = Settings { events, pace, backoff: args.audit_webhook_initial_backoff };
    let webhook = Webhook::new(endpoint, settings, env.clone()).map_err(wrong)?;
    let limits = Limits {
        entries: args.audit_webhook_batch_buffer_size as usize,
        gather: (args.audit_webhook_batch_max_wait, events),
        ..Limits::default()
    };
    let (mode, env) = (args.audit_webhook_mode.into(), env.clone());
    if waits {
        return Ok(Some(Output::one_by_one("webhook", mode, Waited::new(webhook), limits, env)));
    }
    let output = Output::new("webhook", mode, webhook, limits, env);
    output.map(|output| Some(output.far_away())).map_err(Failure::failed)
}

fn read(path: &Path) -> Result<Policy, String> {
    let mut text = Vec::new();
    let most = policy::LARGEST as u64 + 1;
    File::open(path).and_then(|file| file.take(most).read_to_end(&mut text)).map_err(|e| e.to_string())?;
    Policy::parse(&text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser as _;

    use super::*;
    use crate::cli::args::{Args, Command};

    #[test]
    fn what_is_wrong_with_it_is_said_with_its_flag() {
        let dir = tempfile::TempDir::new().unwrap();
        let file = |name: &str| dir.path().join(name);
        fs::write(file("good"), "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]")
            .unwrap();
        fs::write(file("bad"), "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: All}]").unwrap();
        let open = |policy: &str, more: &[String]| {
            let words = ["karmada-hub".to_owned(), "serve".to_owned(), "--data-dir=d".to_owned()];
            let policy = format!("--audit-policy-file={}", file(policy).display());
            let words = words.into_iter().chain([policy]).chain(more.iter().cloned());
            let Command::Serve(args) = Args::try_parse_from(words).expect("arguments").command else {
                panic!("it is to serve")
            };
            match audit(&args.audit, &Env::system()) {
                Ok(audit) => Ok(audit.is_some()),
                Err(Failure::Usage(why)) => Err(why),
                Err(other) => panic!("{other:?}"),
            }
        };
        let log = |name: &str| format!("--audit-log-path={}", file(name).display());
        let webhook = |name: &str| format!("--audit-webhook-config-file={}", file(name).display());
        assert_eq!(open("good", &[log("audit.log")]), Ok(true));
        for (policy, more, want) in [
            ("none", vec![log("audit.log")], ["--audit-policy-file", "No such file"]),
            ("bad", vec![log("audit.log")], ["--audit-policy-file", "rules[0].level: unknown variant `All`"]),
            ("good", vec![log("bad/audit.log")], ["--audit-log-path", "bad/audit.log"]),
            ("good", vec![], ["--audit-policy-file", "go nowhere"]),
            ("good", vec![webhook("none")], ["--audit-webhook-config-file", "none"]),
            ("good", vec![webhook("good")], ["--audit-webhook-config-file", "good"]),
        ] {
            let why = open(policy, &more).unwrap_err();
            assert!(want.iter().all(|want| why.contains(want)), "{why}");
        }
    }
}
