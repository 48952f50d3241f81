//! `karmada-hub serve --data-dir DIR`: the API is the hub's own.

use std::{sync::Arc, time::Duration};

use karmada_apiserver::{
    authn::epochs::EndingFigures,
    certificates::Certifier,
    listener,
    pki::{ADMINISTRATOR, Pki},
};
use karmada_cli::Failure;
use karmada_env::Env;
use karmada_store::{OpenError, engine::redb::Redb};
use karmada_telemetry::supervisor::Supervisor;
use tokio::time::timeout;

use super::{
    End,
    audit::audit,
    authn::{authenticator, issuer, settings},
    authority::{Rotation, token_ends},
    bind, create_dir,
    encryption::Keeper,
    figures::{AgentCertificates, LastBackup, OwnCertificates},
    front::beside_api,
    limits, pki_failure, supervise, tls,
};
use crate::{HubConfig, HubError, cli::ServeArgs, engine::embedded::Embedded, metrics, page};

/// For the last writes of store and audit log.
const CLOSE: Duration = Duration::from_millis(1500);

pub(super) async fn serve(args: &ServeArgs, config: HubConfig, env: &Env, end: End) -> Result<(), Failure> {
    // Everything that can be wrong with arguments and configuration comes before anything is started.
    let dir = &args.data_dir;
    create_dir(dir)?;
    let engine = Redb::open(dir).map_err(store_failure)?;
    let socket = bind(args.listen)?;
    let fresh = !dir.join("pki").join("service-account.pem").exists();
    let pki = Arc::new(Pki::open_or_create(dir, &args.advertise, env).map_err(pki_failure)?);
    let tls = tls(args, &pki, env)?;
    // Whoever gets an answer under a new name finds it in the kubeconfig already.
    let url = pki.server_url(socket.local_addr().map_err(Failure::failed)?.port());
    let settings = settings(args, &pki, &url);
    let issuer = issuer(args)?;
    let authenticator = authenticator(args, &pki, settings.clone(), issuer.as_ref(), env, &end.now)?;
    token_ends(&pki, &settings, fresh, env.wall()).map_err(pki_failure)?;
    let certifier = Certifier::new(pki.signer().map_err(pki_failure)?, url.clone())
        .lasting(args.authn.cluster_signing_duration);
    let audit = audit(&args.audit, env)?;
    let keeper = Keeper::open(args.encryption_provider_config.as_deref(), dir)?;
    let kubeconfig = pki.write_admin_kubeconfig(&url).map_err(pki_failure)?;

    let stop = end.now;
    let started = Embedded::start_sealed(engine, keeper.encryption(), env, limits(args), stop.clone()).await;
    let embedded = started.map_err(store_failure)?;
    let kept = keeper.figures();
    tokio::spawn(keeper.keep(embedded.store().clone(), env.clone(), stop.clone()));
    let hub = embedded.hub(config, env).map_err(hub_failure)?.pushing();
    hub.figures().show_each(args.metrics_per_cluster);
    let shown = metrics::page(hub.figures()).with(embedded.server().figures()).with(tls.traffic());
    let shown = shown.with(embedded.reaching().clone());
    let ending = EndingFigures::new(embedded.server().epochs().clone(), env.clone());
    let shown = shown.with(ending).with(OwnCertificates(pki.clone())).with(LastBackup(dir.clone()));
    let shown = shown.with(AgentCertificates {
        epochs: embedded.server().epochs().clone(),
        hub: hub.figures().clone(),
        env: env.clone(),
    });
    let shown = kept.into_iter().fold(shown, |shown, kept| shown.with(kept));
    embedded.server().show_metrics(shown.into_source());

    if let Some(audit) = &audit {
        embedded.server().audit_by(audit.clone());
    }
    embedded.server().authenticate_by(authenticator);
    embedded.server().certify_by(certifier);
    embedded.server().add_paths(&beside_api(hub.ready(), hub.watches(), embedded.store().clone()));
    page::serve(embedded.server(), args.advertise.clone(), hub.eyes(), issuer, env, stop.clone());
    let rotation = Arc::new(Rotation {
        pki: pki.clone(),
        tls: tls.clone(),
        server: embedded.server().clone(),
        store: embedded.store().clone(),
        settings,
        url: url.clone(),
        lasting: args.authn.cluster_signing_duration,
        env: env.clone(),
    });
    embedded.server().add_paths(&rotation.paths());
    tokio::spawn(rotation.keep(stop.clone()));
    let service = embedded.server().service();
    let listening = tokio::spawn(listener::serve(socket, tls, service, stop.clone()));
    let leaving = embedded.server().clone();
    tokio::spawn(async move {
        end.near.cancelled().await;
        leaving.leave();
    });
    let running = hub.run(stop.clone());
    let controllers = tokio::spawn(async move { running.await.map_err(hub_failure) });
    tracing::info!(listen = %args.listen, url, kubeconfig = %kubeconfig.display(), "serving");

    let supervisor = Supervisor::of_environment();
    let ended = supervise(listening, controllers, (&*pki, &ADMINISTRATOR, &*url), &supervisor, &stop).await;
    let told = async {
        if let Some(audit) = &audit
            && let Err(why) = audit.close(CLOSE).await
        {
            tracing::error!("{why}");
        }
    };
    let (closed, ()) = tokio::join!(timeout(CLOSE, embedded.close()), told);
    if let Ok(Err(why)) = closed {
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
        OpenError::Sealed { .. } => Failure::usage(format!("--encryption-provider-config: {error}")),
        other => Failure::failed(other),
    }
}
