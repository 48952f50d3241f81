//! `karmada-hub credentials`: a kubeconfig for one cluster's agent, signed by the embedded hub's own authority.

use std::time::Duration;

use karmada_api::consts::subject;
use karmada_apiserver::pki::Pki;
use karmada_client::Kubeconfig;
use karmada_core::names;
use karmada_env::Env;
use karmada_meta::names::cluster_name_errors;

use super::write_private;
use crate::cli::{Failure, args::CredentialsArgs, print};

/// How long an agent's certificate is good for: a year, as Karmada's.
const AGENT_VALIDITY: Duration = Duration::from_secs(365 * 24 * 3600);

/// Makes a kubeconfig for one cluster's agent.
pub(in crate::cli) fn credentials(args: &CredentialsArgs, env: &Env) -> Result<(), Failure> {
    if let Some(why) = cluster_name_errors(&args.cluster).first() {
        return Err(Failure::usage(format!("--cluster {:?}: {why}", args.cluster)));
    }
    let admin = args.data_dir.join("admin.kubeconfig");
    if !admin.exists() {
        return Err(Failure::usage(format!(
            "--data-dir {}: no hub with an API of its own has run with it yet; start one with karmada-hub serve. A hub \
             on a stock API server (serve --kubeconfig) has nothing to sign with: credentials come from that server",
            args.data_dir.display()
        )));
    }
    let endpoint = Kubeconfig::load(&admin).and_then(|k| k.endpoint(None)).map_err(Failure::failed)?;
    let pki = Pki::open(&args.data_dir, env).map_err(Failure::failed)?;
    let user = names::agent_user(&args.cluster);
    let credential = pki.issue_client(&user, subject::AGENTS, AGENT_VALIDITY).map_err(Failure::failed)?;
    let server = endpoint.server.to_string();
    let text = pki.kubeconfig(server.trim_end_matches('/'), &user, &credential);
    match &args.output {
        None => print(&text)?,
        Some(path) => {
            write_private(path, &text)
                .map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
        }
    }
    Ok(())
}
