//! `karmada-hub credentials`: a kubeconfig for one cluster's agent or a scraper, signed by the embedded hub's own authority.

use std::time::Duration;

use karmada_api::consts::subject;
use karmada_apiserver::{
    authn::MONITORING,
    pki::{Holder, Pki},
};
use karmada_client::Kubeconfig;
use karmada_core::names;
use karmada_env::Env;
use karmada_meta::names::cluster_name_errors;

use super::write_private;
use crate::cli::{Failure, args::CredentialsArgs, print};

/// How long a certificate is good for: a year, as Karmada's.
const VALIDITY: Duration = Duration::from_secs(365 * 24 * 3600);
/// Who scrapes, in the log.
const MONITOR: &str = "karmada-monitoring";
/// What a hub on a stock API server keeps for scrapers; where its own listener is stands there too.
const MONITORING_FILE: &str = "monitoring.kubeconfig";
/// For whom it does.
pub(super) const SCRAPER: Holder =
    Holder { file: "monitoring", user: MONITOR, group: MONITORING, entry: MONITOR };

/// Makes a kubeconfig for one cluster's agent, or for whoever reads figures.
pub(in crate::cli) fn credentials(args: &CredentialsArgs, env: &Env) -> Result<(), Failure> {
    let (user, group) = match &args.cluster {
        // clap takes one of the two.
        None => (MONITOR.to_owned(), MONITORING),
        Some(cluster) => match cluster_name_errors(cluster).first() {
            None => (names::agent_user(cluster), subject::AGENTS),
            Some(why) => return Err(Failure::usage(format!("--cluster {cluster:?}: {why}"))),
        },
    };
    let files = [Some("admin.kubeconfig"), args.cluster.is_none().then_some(MONITORING_FILE)];
    let known = files.into_iter().flatten().map(|name| args.data_dir.join(name)).find(|file| file.exists());
    let Some(known) = known else {
        return Err(Failure::usage(format!(
            "--data-dir {}: no hub with an API of its own has run with it yet; start one with karmada-hub serve. A hub \
             on a stock API server (serve --kubeconfig) has nothing to sign with: credentials come from that server",
            args.data_dir.display()
        )));
    };
    let endpoint = Kubeconfig::load(&known).and_then(|k| k.endpoint(None)).map_err(Failure::failed)?;
    let pki = Pki::open(&args.data_dir, env).map_err(Failure::failed)?;
    let credential = pki.issue_client(&user, group, VALIDITY).map_err(Failure::failed)?;
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
