//! `karmada-hub serve --kubeconfig FILE --data-dir DIR`: the API is somebody else's, the listener the hub's own.

use std::{path::Path, sync::Arc, time::Duration};

use karmada_api::consts::namespace;
use karmada_apiserver::{
    authn::Authenticator,
    delegate::Delegate,
    front::{Front, PathService},
    listener,
    pki::Pki,
};
use karmada_cli::Failure;
use karmada_client::{Kubeconfig, LeaderConfig, Rest, link::client_for, metrics::LinkFigures};
use karmada_env::Env;
use karmada_telemetry::supervisor::Supervisor;

use super::{
    End, bind, create_dir,
    credentials::SCRAPER,
    figures::OwnCertificates,
    front::{Endpoints, WithReviews, reviews},
    limits, pki_failure, supervise, tls, tokens,
};
use crate::{
    HubConfig,
    cli::ServeArgs,
    engine::remote::{
        LEASE, Leading, Remote, RemoteConfig, RemoteError,
        delegated::{Delegated, authorities},
        reaching,
        webhooks::{Judge, Registration, ReviewKey},
    },
    metrics,
};

/// How long the server may take to answer what is asked of it for a request to the hub's own listener.
const ASKED: Duration = Duration::from_secs(8);

/// Who the hub is to the server, in the fields it owns where it names no manager, and in the server's log.
const AGENT: &str = concat!("karmada-controller-manager/", env!("CARGO_PKG_VERSION"));

pub(super) async fn serve(
    args: &ServeArgs,
    kubeconfig: &Path,
    config: HubConfig,
    env: &Env,
    end: End,
) -> Result<(), Failure> {
    let endpoint = Kubeconfig::load(kubeconfig)
        .and_then(|kubeconfig| kubeconfig.endpoint(args.context.as_deref()))
        .map_err(|error| Failure::usage(format!("--kubeconfig: {error}")))?;
    let dir = &args.data_dir;
    create_dir(dir)?;
    if dir.join("store.redb").exists() {
        tracing::info!(
            dir = %dir.display(),
            "the data directory holds the objects of a hub with an API of its own; they are not used here. \
             karmada-hub export moves them"
        );
    }
    let socket = bind(args.listen)?;
    let pki = Arc::new(Pki::open_or_create(dir, &args.advertise, env).map_err(pki_failure)?);
    let (tls, tokens) = (tls(args, &pki, env)?, tokens(args)?);
    let listen = socket.local_addr().map_err(Failure::failed)?;

    let server = endpoint.server.to_string();
    let (client, link) = client_for(endpoint, AGENT, env.clone());
    let judge = Judge::new(Rest::new(client.clone()), env.clone());
    let rest = Rest::new(client.clone()).with_deadline(ASKED);
    let key = ReviewKey::of(&pki);
    // A server elsewhere does not find us at the loopback address.
    let webhooks = (!args.advertise.is_empty()).then(|| Registration {
        url: pki.server_url(listen.port()),
        authority: pki.ca_pem(),
        key: key.clone(),
    });
    let remote_config = RemoteConfig {
        hub: config,
        election: args.leader_elect.then(|| election(args, env)),
        beside_foreign: args.allow_foreign_controllers,
        webhooks,
    };
    let remote = Remote::new(client, remote_config, env.clone()).map_err(remote_failure)?;
    let api =
        LinkFigures { prefix: "karmada_hub_server", to: "API server", link: link.clone(), env: env.clone() };
    let leading = Leading::new(remote.phase());
    let front = Front::new(Arc::new(WithReviews { key }), limits(args), env.clone());
    front.authenticate_by(Authenticator::new(tokens, env.clone()));
    let delegate: Arc<dyn Delegate> = Arc::new(Delegated::new(rest.clone()));
    front.delegate_to(delegate.clone());
    let writes = Rest::new(remote.fenced()).with_deadline(ASKED);
    let (ways, reaching) = reaching::ways(&remote, (&rest, writes), &delegate, env, end.now.clone());
    remote.figures().show_each(args.metrics_per_cluster);
    let page = metrics::page(remote.figures())
        .with(OwnCertificates(pki.clone()))
        .with(tls.traffic())
        .with(api)
        .with(reaching)
        .with(leading);
    let page = page.with(front.figures()).into_source();
    let endpoints =
        Endpoints { phase: remote.phase(), link, server: server.clone(), page, leaving: end.near };
    let service = PathService::new(Arc::new(front), endpoints.paths().and(reviews(judge)));
    let service = service.carrying(ways);
    let stop = end.now;

    let trusting = tls.clone();
    let authorities = authorities::follow(rest, env.clone(), move |pem| {
        trusting.trust_elsewhere(pem).map_err(|error| error.to_string())
    });
    let following = tokio::spawn(authorities);
    let listening = tokio::spawn(listener::serve(socket, tls, service, stop.clone()));
    let running = remote.run(stop.clone());
    let controllers = tokio::spawn(async move { Box::pin(running).await.map_err(remote_failure) });
    let url = pki.server_url(listen.port());
    let kubeconfig = pki.write_kubeconfig(&SCRAPER, &url).map_err(pki_failure)?;
    let kubeconfig = kubeconfig.display();
    tracing::info!(%listen, url, %kubeconfig, server, "serving health, figures, admission webhooks and the way to members; the API is that of the server");

    let supervisor = Supervisor::of_environment();
    let ended = supervise(listening, controllers, (&pki, &SCRAPER, &url), &supervisor, &stop).await;
    following.abort();
    tracing::info!("stopped");
    ended
}

fn election(args: &ServeArgs, env: &Env) -> LeaderConfig {
    // A name that tells people where to look, and a part that no other process has.
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let identity = format!("{}_{}", host.trim(), env.uuid());
    LeaderConfig {
        duration: args.leader_elect_lease_duration,
        deadline: args.leader_elect_renew_deadline,
        period: args.leader_elect_retry_period,
        ..LeaderConfig::new(namespace::SYSTEM, LEASE, &identity)
    }
}

fn remote_failure(error: RemoteError) -> Failure {
    match error {
        RemoteError::Config(why) => Failure::usage(why),
        other => Failure::failed(other),
    }
}
