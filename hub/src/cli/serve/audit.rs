//! The audit log of the embedded API, by the arguments.

use std::{fs::File, io::Read as _, path::Path, sync::Arc};

use karmada_apiserver::audit::{
    Audit,
    log::{Log, Rotation},
    policy::{self, Policy},
};
use karmada_cli::Failure;
use karmada_env::Env;

use crate::cli::args::AuditArgs;

/// Opens the log, if there is to be one.
pub(super) fn audit(args: &AuditArgs, env: &Env) -> Result<Option<Arc<Audit>>, Failure> {
    let (Some(policy), Some(path)) = (&args.audit_policy_file, &args.audit_log_path) else { return Ok(None) };
    let policy = read(policy)
        .map_err(|why| Failure::usage(format!("--audit-policy-file {}: {why}", policy.display())))?;
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
    Audit::new(policy, log, env.clone()).map(|audit| Some(Arc::new(audit))).map_err(Failure::failed)
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

    use super::*;

    #[test]
    fn what_is_wrong_with_it_is_said_with_its_flag() {
        let dir = tempfile::TempDir::new().unwrap();
        let file = |name: &str| dir.path().join(name);
        fs::write(file("good"), "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]")
            .unwrap();
        fs::write(file("bad"), "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: All}]").unwrap();
        let open = |policy: &str, path: &str| {
            let args = AuditArgs {
                audit_policy_file: Some(file(policy)),
                audit_log_path: Some(file(path)),
                audit_log_maxage: 0,
                audit_log_maxbackup: 0,
                audit_log_maxsize: 1,
                audit_log_format: "json".to_owned(),
            };
            match audit(&args, &Env::system()) {
                Ok(audit) => Ok(audit.is_some()),
                Err(Failure::Usage(why)) => Err(why),
                Err(other) => panic!("{other:?}"),
            }
        };
        assert_eq!(open("good", "audit.log"), Ok(true));
        for (policy, path, want) in [
            ("none", "audit.log", ["--audit-policy-file", "No such file"]),
            ("bad", "audit.log", ["--audit-policy-file", "rules[0].level: unknown variant `All`"]),
            ("good", "bad/audit.log", ["--audit-log-path", "bad/audit.log"]),
        ] {
            let why = open(policy, path).unwrap_err();
            assert!(want.iter().all(|want| why.contains(want)), "{why}");
        }
    }
}
