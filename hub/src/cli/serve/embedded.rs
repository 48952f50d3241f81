//! `karmada-hub serve --data-dir DIR`: the API is the hub's own.

use std::time::Duration;

use karmada_apiserver::{
    authn::{Authenticator, Tokens},
    listener::{self, Tls},
    pki::Pki,
};
use karmada_env::Env;
use karmada_store::{OpenError, engine::redb::Redb};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{bind, config, create_dir, front::WithControllers, pki_failure, supervise};
use crate::{
    Hub, HubError,
    cli::{Failure, ServeArgs},
    embedded::Embedded,
    metrics,
};

/// For the store's last write.
const CLOSE: Duration = Duration::from_millis(1500);

pub(super) async fn serve(args: &ServeArgs, env: &Env, stop: CancellationToken) -> Result<(), Failure> {
    // Everything that can be wrong with arguments and configuration comes before anything is started.
    let dir = &args.data_dir;
    create_dir(dir)?;
    let engine = Redb::open(dir).map_err(store_failure)?;
    let socket = bind(args.listen).await?;
    let pki = Pki::open_or_create(dir, &args.advertise, env).map_err(pki_failure)?;
    let tls = Tls::new(&pki, env).map_err(Failure::failed)?;
    let port = socket.local_addr().map_err(Failure::failed)?.port();

    let embedded = Embedded::start(engine, env, stop.clone()).await.map_err(store_failure)?;
    let hub = Hub::new(config(args), embedded.client(), env.clone()).map_err(hub_failure)?;
    let page = metrics::page(hub.figures()).with(embedded.server().figures()).with(tls.traffic());
    embedded.server().show_metrics(page.into_source());

    let authenticator = Authenticator::new(Tokens::new(), env.clone());
    let service = WithControllers::new(embedded.server().service(), hub.ready(), embedded.store().clone());
    let listening = tokio::spawn(listener::serve(socket, tls, authenticator, service, stop.clone()));
    let running = hub.run(stop.clone());
    let controllers = tokio::spawn(async move { running.await.map_err(hub_failure) });
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

fn hub_failure(error: HubError) -> Failure {
    match error {
        HubError::Config(why) => Failure::usage(why),
        other => Failure::failed(other),
    }
}

/// What to call a store that cannot be opened.
pub(super) fn store_failure(error: OpenError) -> Failure {
    match error {
        OpenError::InUse { .. } => Failure::usage(error),
        other => Failure::failed(other),
    }
}
