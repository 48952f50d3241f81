//! `karmada-hub credentials`: a kubeconfig for one cluster's agent or a scraper, signed by the embedded hub's own authority.

use std::{path::Path, time::Duration};

use karmada_api::consts::subject;
use karmada_apiserver::{
    authn::{
        MONITORING,
        epochs::{BY_COMMAND, Grant, Record},
    },
    pki::{ADMINISTRATOR, Holder, Pki},
};
use karmada_cli::{Failure, print, revoke};
use karmada_client::{Kubeconfig, LinkState, Rest, link::client_for};
use karmada_core::names;
use karmada_env::Env;
use karmada_store::{OpenError, engine::Redb};
use tokio::time::timeout;

use super::{embedded::store_failure, keys, write_private};
use crate::{cli::args::CredentialsArgs, engine::embedded::Embedded};

/// How long a hub that runs may take to answer, and attempts to connect before it is no use.
const PATIENCE: Duration = Duration::from_secs(10);
const ATTEMPTS: u32 = 3;

/// How long a certificate is good for: a year, as Karmada's.
const VALIDITY: Duration = Duration::from_secs(365 * 24 * 3600);
/// Who scrapes, in the log.
const MONITOR: &str = "karmada-monitoring";
/// What a hub on a stock API server keeps for scrapers; where its own listener is stands there too.
const MONITORING_FILE: &str = "monitoring.kubeconfig";
/// For whom it does.
pub(super) const SCRAPER: Holder =
    Holder { file: "monitoring", user: MONITOR, group: MONITORING, entry: MONITOR };

/// The administrator's kubeconfig, as the hub keeps it: images of the hub have no other program that could print it.
fn administrator(args: &CredentialsArgs) -> Result<(), Failure> {
    let path = args.data_dir.join("admin.kubeconfig");
    let text = std::fs::read_to_string(&path).map_err(|error| {
        Failure::usage(format!(
            "{}: {error}; the hub writes it when it starts: karmada-hub serve --data-dir {}",
            path.display(),
            args.data_dir.display()
        ))
    })?;
    match &args.output {
        None => print(&text),
        Some(file) => write_private(file, &text)
            .map_err(|error| Failure::failed(format!("{}: {error}", file.display()))),
    }
}

/// Makes a kubeconfig for one cluster's agent, or for whoever reads figures.
pub(in crate::cli) async fn credentials(args: CredentialsArgs, env: Env) -> Result<(), Failure> {
    let env = &env;
    if args.admin {
        return administrator(&args);
    }
    let (user, group) = match &args.cluster {
        // clap takes one of the two.
        None => (MONITOR.to_owned(), MONITORING),
        // Who has joined under a name that nobody gets any more goes on; whoever joins is told by admission.
        Some(cluster) => match karmada_meta::names::cluster_name_errors(cluster).first() {
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
    let credential = match &args.cluster {
        Some(cluster) => pki.issue_agent(&user, group, epoch(&args, cluster, env).await?, VALIDITY),
        None => pki.issue_client(&user, group, VALIDITY),
    };
    let credential = credential.map_err(Failure::failed)?;
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

/// Which epoch of a cluster's credentials counts, whether the hub runs or not. One that runs notes that it is asked for.
async fn epoch(args: &CredentialsArgs, cluster: &str, env: &Env) -> Result<u64, Failure> {
    let dir = &*args.data_dir;
    if !dir.join("store.redb").is_file() {
        return Ok(0);
    }
    let failed = |error: karmada_client::Error| {
        Failure::failed(format!("asking the hub that runs which credentials count: {error}"))
    };
    match Redb::open(dir) {
        Ok(engine) => {
            let keys = keys(args.encryption_provider_config.as_deref())?;
            let rest = Rest::new(Embedded::at_rest(engine, keys, env).map_err(store_failure)?.client());
            // At rest it is only read: nobody joins meanwhile.
            let (record, _) = revoke::read_record(&rest, cluster)
                .await
                .map_err(|error| Failure::failed(error.to_string()))?;
            Ok(record.epoch)
        }
        Err(OpenError::InUse { .. }) => {
            let rest = running(dir, env).await?;
            // A token for whoever comes first does not get the name that this one is for.
            let registered = revoke::is_registered(&rest, cluster).await.map_err(failed)?;
            let (grant, now) = (Grant { by: BY_COMMAND, to: None, several: true }, env.wall());
            let granted = |record: &Record| record.grant(grant, registered, now);
            Ok(revoke::change_record(&rest, cluster, granted).await.map_err(failed)?.epoch)
        }
        Err(error) => Err(store_failure(error)),
    }
}

/// The hub that holds the directory: on this machine, if it listens there, else where it says.
async fn running(dir: &Path, env: &Env) -> Result<Rest, Failure> {
    let kubeconfig = Kubeconfig::load(dir.join(format!("{}.kubeconfig", ADMINISTRATOR.file)));
    let endpoint = kubeconfig.and_then(|k| k.endpoint(None)).map_err(Failure::failed)?;
    let mut here = endpoint.clone();
    if let Some(port) = endpoint.server.port_u16() {
        let local = format!("https://127.0.0.1:{port}");
        here.server = local.parse().map_err(Failure::failed)?;
    }
    let mut why = String::new();
    for endpoint in [here, endpoint] {
        let address = endpoint.server.to_string();
        let agent = concat!("karmada-hub/", env!("CARGO_PKG_VERSION"));
        let (client, link) = client_for(endpoint, agent, env.clone());
        let mut state = link.state();
        let settled = state.wait_for(|state| match state {
            LinkState::Connecting { failures, .. } => *failures >= ATTEMPTS,
            LinkState::Connected { .. } | LinkState::Closed => true,
        });
        match timeout(PATIENCE, settled).await {
            Ok(Ok(state)) if matches!(*state, LinkState::Connected { .. }) => {
                return Ok(Rest::new(client).with_deadline(PATIENCE));
            }
            _ => why = format!("it cannot be reached at {address}"),
        }
    }
    Err(Failure::failed(format!(
        "a hub runs on {} and knows which credentials count, but {why}; try again where it can be, or while it is stopped",
        dir.display()
    )))
}
