//! `karmada-hub serve` and `credentials`: the process around the library.

use std::{fs, io, os::unix::fs::OpenOptionsExt, path::Path, time::Duration};

use karmada_api::consts::subject;
use karmada_apiserver::{
    authn::{Authenticator, Tokens},
    listener::{self, Tls},
    pki::{Pki, PkiError},
};
use karmada_client::Kubeconfig;
use karmada_core::{health::Settings, names};
use karmada_env::Env;
use karmada_meta::names::cluster_name_errors;
use karmada_store::{OpenError, engine::redb::Redb};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    task::JoinHandle,
    time::{interval, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{Failure, ServeArgs, args::CredentialsArgs, logs, print};
use crate::{Hub, HubConfig, HubError, embedded::Embedded};

/// From the signal to the end: what still runs then is cut off. The store gets the rest of ten seconds.
const DRAIN: Duration = Duration::from_secs(8);
/// For the store's last write.
const CLOSE: Duration = Duration::from_millis(1500);
/// How often the serving certificate is looked at; it is renewed a month before it ends.
const RENEW: Duration = Duration::from_secs(6 * 3600);
/// Worker threads: the controllers and the listener are mostly waiting.
const THREADS: usize = 2;
/// How long an agent's certificate is good for: a year, as Karmada's.
const AGENT_VALIDITY: Duration = Duration::from_secs(365 * 24 * 3600);

/// Runs the hub until it is asked to stop.
pub(super) fn run(args: &ServeArgs, env: &Env) -> Result<(), Failure> {
    if args.kubeconfig.is_some() {
        return Err(Failure::usage(
            "--kubeconfig: running on a stock API server is not built yet; leave it out for the embedded one",
        ));
    }
    logs::init(&args.logs)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .max_blocking_threads(4)
        .enable_all()
        .build()
        .map_err(Failure::failed)?;
    let done = runtime.block_on(serve(args, env));
    runtime.shutdown_timeout(Duration::from_millis(200));
    done
}

fn config(args: &ServeArgs) -> HubConfig {
    HubConfig {
        health: Settings {
            period: args.cluster_monitor_period.max(Duration::from_millis(1)),
            grace: args.cluster_monitor_grace_period,
            startup_grace: args.cluster_startup_grace_period,
        },
        skipped_namespaces: args.skipped_propagating_namespaces.clone(),
        ..HubConfig::default()
    }
}

async fn serve(args: &ServeArgs, env: &Env) -> Result<(), Failure> {
    let stop = CancellationToken::new();
    on_signals(stop.clone())?;

    // Everything that can be wrong with arguments and configuration comes before anything is started.
    let dir = &args.data_dir;
    create_dir(dir)?;
    let engine = Redb::open(dir).map_err(store_failure)?;
    let socket = TcpListener::bind(args.listen)
        .await
        .map_err(|error| Failure::usage(format!("--listen {}: {error}", args.listen)))?;
    let pki = Pki::open_or_create(dir, &args.advertise, env).map_err(pki_failure)?;
    let tls = Tls::new(&pki, env).map_err(Failure::failed)?;
    let port = socket.local_addr().map_err(Failure::failed)?.port();

    let embedded = Embedded::start(engine, env, stop.clone()).await.map_err(store_failure)?;
    let hub = Hub::new(config(args), embedded.client(), env.clone()).map_err(|error| match error {
        HubError::Config(why) => Failure::usage(why),
        other => Failure::failed(other),
    })?;

    let authenticator = Authenticator::new(Tokens::new(), env.clone());
    let service = embedded.server().service();
    let listening = tokio::spawn(listener::serve(socket, tls, authenticator, service, stop.clone()));
    let controllers = tokio::spawn(hub.run(stop.clone()));
    let url = pki.server_url(port);
    let kubeconfig = pki.write_admin_kubeconfig(&url).map_err(pki_failure)?;
    tracing::info!(listen = %args.listen, url, kubeconfig = %kubeconfig.display(), "serving");

    let ended = supervise(listening, controllers, &pki, &stop).await;
    if let Ok(Err(why)) = timeout(CLOSE, embedded.close()).await {
        return Err(Failure::failed(why));
    }
    tracing::info!("stopped");
    ended
}

/// Waits until the hub is asked to stop or a part of it ends, then for all parts to end.
async fn supervise(
    mut listening: JoinHandle<()>,
    mut controllers: JoinHandle<Result<(), HubError>>,
    pki: &Pki,
    stop: &CancellationToken,
) -> Result<(), Failure> {
    let mut renewals = interval(RENEW);
    let ended = loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break Ok(()),
            ended = &mut controllers => break Err(match ended {
                Ok(Err(error)) => Failure::failed(error),
                Ok(Ok(())) => Failure::failed("the controllers ended by themselves"),
                Err(error) => Failure::failed(error),
            }),
            _ = &mut listening => break Err(Failure::failed("the listener ended by itself")),
            _ = renewals.tick() => {
                if let Err(error) = pki.renew() {
                    tracing::error!(%error, "cannot renew the serving certificate");
                }
            }
        }
    };
    stop.cancel();
    let rest = async {
        if !controllers.is_finished() {
            // How it ends after it was told to is no news.
            let _ = (&mut controllers).await;
        }
        if !listening.is_finished() {
            let _ = (&mut listening).await;
        }
    };
    if timeout(DRAIN, rest).await.is_err() {
        tracing::warn!("cut off what did not end within {} s", DRAIN.as_secs());
    }
    ended
}

/// The first SIGTERM or SIGINT asks to stop, the second ends the process.
fn on_signals(stop: CancellationToken) -> Result<(), Failure> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::failed)?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                biased;
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if stop.is_cancelled() {
                tracing::warn!("asked to stop twice: ending at once");
                std::process::exit(1);
            }
            tracing::info!("asked to stop");
            stop.cancel();
        }
    });
    Ok(())
}

fn create_dir(dir: &Path) -> Result<(), Failure> {
    fs::create_dir_all(dir).map_err(|error| Failure::usage(format!("--data-dir {}: {error}", dir.display())))
}

fn store_failure(error: OpenError) -> Failure {
    match error {
        OpenError::InUse { .. } => Failure::usage(error),
        other => Failure::failed(other),
    }
}

fn pki_failure(error: PkiError) -> Failure {
    match error {
        PkiError::Host { .. } => Failure::usage(format!("--advertise: {error}")),
        other => Failure::failed(other),
    }
}

/// Makes a kubeconfig for one cluster's agent.
pub(super) fn credentials(args: &CredentialsArgs, env: &Env) -> Result<(), Failure> {
    if let Some(why) = cluster_name_errors(&args.cluster).first() {
        return Err(Failure::usage(format!("--cluster {:?}: {why}", args.cluster)));
    }
    let admin = args.data_dir.join("admin.kubeconfig");
    if !admin.exists() {
        return Err(Failure::usage(format!(
            "--data-dir {}: no hub has run with it yet; start one with karmada-hub serve",
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

/// Writes a file that only its owner may read, from the first byte on.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    use io::Write;
    // A file that is there keeps its mode when it is opened, so it is made anew.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(text.as_bytes())
}
