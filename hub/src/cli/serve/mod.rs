//! `karmada-hub serve`: the process around the library, on either engine.
//!
//! ```text
//!   arguments ─▶ data directory, socket, keys ─▶ embedded: store, API server, controllers
//!                                             └▶ remote: a link to another's API server, election, controllers
//!                                                        │
//!   SIGTERM ─▶ not ready ─▶ stop ─▶ controllers end, the listener drains, the store closes ◀── or one ends by itself
//! ```

mod audit;
mod authn;
mod authority;
mod credentials;
mod embedded;
mod encryption;
mod figures;
mod front;
mod memory;
mod remote;

use std::{
    fs, io,
    net::SocketAddr,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
    time::Duration,
};

use karmada_apiserver::{
    authn::Tokens,
    heavy, limits,
    listener::{Limits, Tls},
    pki::{Holder, Pki, PkiError},
    quota::StorageQuota,
};
use karmada_cli::Failure;
use karmada_client::paced::Pace;
use karmada_core::{
    autoscale::{look, question::Sampling, sample},
    evict,
};
use karmada_env::Env;
use karmada_telemetry::supervisor::Supervisor;
use tokio::{
    net::{TcpListener, TcpSocket},
    signal::unix::{SignalKind, signal},
    task::JoinHandle,
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_util::sync::CancellationToken;

pub(super) use self::{
    credentials::credentials, encryption::keys, figures::last_backup, front::COPY_PATH,
    memory::there_is as memory_there_is,
};
use super::{
    ServeArgs,
    args::{AutoscalingArgs, PushArgs},
    judge, logs,
};
use crate::{HubConfig, PushSettings};

/// From the signal to the end: what still runs then is cut off. The store gets the rest of ten seconds.
const DRAIN: Duration = Duration::from_secs(8);
/// How often the certificates are looked at that the hub keeps; they are reissued a month before they end.
const RENEW: Duration = Duration::from_secs(6 * 3600);
/// Worker threads on a machine of one processor: somebody who waits for a lock must not keep everybody from it.
const LEAST_THREADS: usize = 2;
/// Threads for what blocks, beside those that stand in while large work is done: files, names.
const BLOCKING: usize = 4;
/// Connections that wait to be accepted; the kernel has a limit of its own (net.core.somaxconn).
const BACKLOG: u32 = 4_096;

/// Runs the hub until it is asked to stop.
pub(super) fn run(args: &ServeArgs, env: &Env) -> Result<(), Failure> {
    logs::init(&args.logs)?;
    let config = config(args)?;
    let (workers, blocking) = threads(heavy::processors());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .max_blocking_threads(blocking)
        .enable_all()
        .build()
        .map_err(Failure::failed)?;
    let done = runtime.block_on(async {
        let end = End::default();
        on_signals(end.clone(), args.limits.shutdown_delay_duration)?;
        match &args.kubeconfig {
            Some(kubeconfig) => remote::serve(args, kubeconfig, config, env, end).await,
            None => embedded::serve(args, config, env, end).await,
        }
    });
    runtime.shutdown_timeout(Duration::from_millis(200));
    done
}

/// Worker threads, and those beside them, on so many processors.
fn threads(processors: usize) -> (usize, usize) {
    (processors.max(LEAST_THREADS), heavy::places(processors) + BLOCKING)
}

/// Whether the arguments go together.
pub(super) fn check(args: &ServeArgs) -> Result<(), Failure> {
    config(args).map(drop)
}

/// How much may be stored by the arguments; 0: anything.
pub(super) fn quota(args: &ServeArgs) -> u64 {
    storage(args).whole
}

fn config(args: &ServeArgs) -> Result<HubConfig, Failure> {
    args.limits.check()?;
    Ok(HubConfig {
        judge: judge::settings(args)?,
        evictions: evict::Settings {
            no_execute: args.failover.enable_no_execute_taint_eviction,
            cluster_failover: args.failover.enable_cluster_failover,
            failover_after: args.failover.failover_eviction_timeout,
            purge_mode: args.failover.no_execute_taint_eviction_purge_mode.into(),
            rate: args.failover.resource_eviction_rate,
            grace: args.failover.graceful_eviction_timeout,
        },
        skipped_namespaces: args.skipped_propagating_namespaces.clone(),
        skipped_apis: args.skipped_propagating_apis.clone(),
        empty_workloads: args.enable_empty_workload_propagation,
        hpa_scale_targets: args.enable_hpa_scale_targets,
        autoscaling: autoscaling(&args.autoscaling),
        push: push(&args.push),
    })
}

fn autoscaling(args: &AutoscalingArgs) -> look::Settings {
    let settings = sample::Settings {
        initialization: args.horizontal_pod_autoscaler_cpu_initialization_period,
        readiness: args.horizontal_pod_autoscaler_initial_readiness_delay,
    };
    look::Settings {
        sampling: Sampling { every: args.horizontal_pod_autoscaler_sync_period, settings },
        downscale: args.horizontal_pod_autoscaler_downscale_stabilization,
        tolerance: args.horizontal_pod_autoscaler_tolerance,
    }
}

/// How clusters in push mode are worked on.
fn push(args: &PushArgs) -> PushSettings {
    let usual = PushSettings::default();
    let asked = |bytes: Option<u64>| bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    PushSettings {
        look: args.cluster_status_update_frequency,
        success: args.cluster_success_threshold,
        failure: args.cluster_failure_threshold,
        pace: Pace {
            per_second: args.cluster_api_qps,
            burst: args.cluster_api_burst,
            at_once: usize::try_from(args.cluster_api_requests).unwrap_or(usize::MAX),
        },
        answers: asked(args.cluster_answers_memory).unwrap_or_else(|| usual.answers.min(memory::answers())),
        kept: asked(args.cluster_objects_memory).unwrap_or_else(|| usual.kept.min(memory::kept())),
    }
}

/// Waits until the hub is asked to stop or a part of it ends, then for all parts to end. Meanwhile keeps what the hub shows,
/// and a holder's kubeconfig for the server at `url`, current.
async fn supervise(
    mut listening: JoinHandle<()>,
    mut controllers: JoinHandle<Result<(), Failure>>,
    (pki, holder, url): (&Pki, &Holder, &str),
    supervisor: &Supervisor,
    stop: &CancellationToken,
) -> Result<(), Failure> {
    let mut renewals = interval(RENEW);
    supervisor.ready();
    supervisor.status(&format!("serving at {url}"));
    let every = supervisor.every();
    let mut alive = interval(every.unwrap_or(RENEW));
    alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let ended = loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break Ok(()),
            ended = &mut controllers => break Err(match ended {
                Ok(Err(failure)) => failure,
                Ok(Ok(())) => Failure::failed("the controllers ended by themselves"),
                Err(error) => Failure::failed(error),
            }),
            _ = &mut listening => break Err(Failure::failed("the listener ended by itself")),
            _ = alive.tick(), if every.is_some() => supervisor.alive(),
            _ = renewals.tick() => {
                if let Err(error) = pki.keep_current(holder, url) {
                    tracing::error!(%error, "cannot renew a certificate");
                }
            }
        }
    };
    stop.cancel();
    supervisor.stopping();
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

/// The end of a hub, in two steps.
#[derive(Clone, Debug, Default)]
struct End {
    /// It has been asked to end: nobody new is to be sent here.
    near: CancellationToken,
    /// It ends.
    now: CancellationToken,
}

/// The first SIGTERM or SIGINT asks to stop, after a delay; the second ends the process.
fn on_signals(end: End, delay: Duration) -> Result<(), Failure> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::failed)?;
    tokio::spawn(async move {
        loop {
            let delayed = end.near.is_cancelled() && !end.now.is_cancelled();
            tokio::select! {
                biased;
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                () = tokio::time::sleep(delay), if delayed => {
                    end.now.cancel();
                    continue;
                }
            }
            if end.near.is_cancelled() {
                tracing::warn!("asked to stop twice: ending at once");
                std::process::exit(1);
            }
            tracing::info!(delay_ms = delay.as_millis() as u64, "asked to stop");
            end.near.cancel();
            if delay.is_zero() {
                end.now.cancel();
            }
        }
    });
    Ok(())
}

/// Users with tokens.
fn tokens(args: &ServeArgs) -> Result<Tokens, Failure> {
    match &args.authn.token_auth_file {
        None => Ok(Tokens::new()),
        Some(file) => {
            Tokens::from_file(file).map_err(|error| Failure::usage(format!("--token-auth-file: {error}")))
        }
    }
}

/// What requests may take, by the arguments.
fn limits(args: &ServeArgs) -> limits::Limits {
    memory::fitted(limits::Limits {
        reading: args.limits.max_requests_inflight,
        writing: args.limits.max_mutating_requests_inflight,
        request_timeout: args.limits.request_timeout,
        watch_timeout: args.limits.min_request_timeout.max(Duration::from_secs(1)),
        list_bytes: args.limits.max_list_bytes,
        open_each: args.limits.max_watches_per_identity,
        event_ttl: args.limits.event_ttl,
        storage: storage(args),
        node_ports: args.limits.service_node_port_range,
        ..limits::Limits::default()
    })
}

/// How much may be stored.
fn storage(args: &ServeArgs) -> StorageQuota {
    let whole = args.limits.storage_quota.unwrap_or_else(memory::storage_quota);
    // Agents are bounded also where nothing else is.
    let StorageQuota { agent, agent_events, .. } =
        if whole == 0 { StorageQuota::default() } else { StorageQuota::of(whole) };
    match args.limits.agent_storage_quota {
        None => StorageQuota { whole, agent, agent_events },
        Some(agent) => StorageQuota { whole, agent, agent_events: agent / 8 },
    }
}

/// TLS with the limits of the arguments.
fn tls(args: &ServeArgs, pki: &Pki, env: &Env) -> Result<Tls, Failure> {
    let limits = Limits {
        connections: args.limits.max_connections,
        strangers: args.limits.max_anonymous_connections,
        strangers_per_address: args.limits.max_connections_per_address,
        connections_per_identity: args.limits.max_connections_per_identity,
        streams: args.limits.http2_max_streams_per_connection,
        ..Limits::default()
    };
    let (limits, less) = match files() {
        Some(files) => limits.within(files),
        None => (limits, None),
    };
    if let Some(less) = less {
        tracing::warn!("{less}");
    }
    Ok(Tls::new(pki, env).map_err(Failure::failed)?.limited(limits))
}

/// How many files the process may have open, after it has allowed itself as many as it is allowed to; none: any number.
fn files() -> Option<usize> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let most = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    most.map(|most| usize::try_from(most).unwrap_or(usize::MAX))
}

/// How many files the process may allow itself to have open; none: any number.
pub(super) fn most_files() -> Option<u64> {
    use rustix::process::{Resource, getrlimit};
    getrlimit(Resource::Nofile).maximum
}

fn bind(listen: SocketAddr) -> Result<TcpListener, Failure> {
    let socket = if listen.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let bound = socket.and_then(|socket| {
        // As the standard library binds. The kernel keeps those waiting that come faster than they are looked at.
        socket.set_reuseaddr(true)?;
        socket.bind(listen)?;
        socket.listen(BACKLOG)
    });
    bound.map_err(|error| Failure::usage(format!("--listen {listen}: {error}")))
}

fn create_dir(dir: &Path) -> Result<(), Failure> {
    // Keys are kept there.
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| Failure::usage(format!("--data-dir {}: {error}", dir.display())))
}

/// A directory is named in which no hub has stored anything.
pub(super) fn no_store(dir: &Path) -> Failure {
    Failure::usage(format!(
        "--data-dir {}: no hub has stored its objects here; name the directory that karmada-hub serve --data-dir names (of the \
         systemd unit: /var/lib/karmada-hub)",
        dir.display()
    ))
}

fn pki_failure(error: PkiError) -> Failure {
    match error {
        PkiError::Host { .. } => Failure::usage(format!("--advertise: {error}")),
        other => Failure::failed(other),
    }
}

/// Writes a file that only its owner may read, from the first byte on.
pub(super) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    use io::Write;
    // A file that is there keeps its mode when it is opened, so it is made anew.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use clap::Parser;
    use karmada_apiserver::pki::ADMINISTRATOR;
    use karmada_env::ManualClock;
    use tokio::time::sleep;

    use super::{
        super::args::{Args, Command},
        *,
    };

    #[test]
    fn threads_are_as_many_as_the_machine_has_room_for() {
        for (processors, want) in [(1, (2, 5)), (2, (2, 5)), (4, (4, 6)), (64, (64, 36))] {
            assert_eq!(threads(processors), want, "{processors}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn certificates_are_renewed_while_the_hub_runs() {
        const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
        let dir = tempfile::TempDir::new().unwrap();
        let clock = ManualClock::new(SystemTime::UNIX_EPOCH + 56 * YEAR);
        let pki = Pki::open_or_create(dir.path(), &[], &Env::seeded(clock.clone(), 1)).unwrap();
        let url = pki.server_url(6443);
        let kubeconfig = pki.write_admin_kubeconfig(&url).unwrap();
        let read = || [&kubeconfig, &dir.path().join("pki/serving.pem")].map(|file| fs::read(file).unwrap());
        let stop = CancellationToken::new();
        let (listening, controllers) = (stop.clone(), stop.clone());
        let listening = tokio::spawn(async move { listening.cancelled().await });
        let controllers = tokio::spawn(async move {
            controllers.cancelled().await;
            Ok(())
        });
        let supervisor = Supervisor::default();
        let running = supervise(listening, controllers, (&pki, &ADMINISTRATOR, &url), &supervisor, &stop);
        let story = async {
            let first = read();
            sleep(RENEW * 2).await;
            assert_eq!(read(), first, "it is good for a year");
            clock.advance(YEAR * 12 / 13);
            sleep(RENEW * 2).await;
            let second = read();
            assert!(second[0] != first[0], "the administrator's");
            assert!(second[1] != first[1], "the listener's");
            stop.cancel();
        };
        let (ended, ()) = tokio::join!(running, story);
        assert!(ended.is_ok());
    }

    #[test]
    fn watches_of_one_user_are_as_many_as_the_operator_says() {
        for (flag, want) in [(None, 256), (Some("--max-watches-per-identity=5000"), 5000)] {
            let words = ["karmada-hub", "serve", "--data-dir=d"].into_iter().chain(flag);
            let Ok(Command::Serve(args)) = Args::try_parse_from(words).map(|args| args.command) else {
                panic!("{flag:?}")
            };
            assert_eq!(limits(&args).open_each, want);
        }
    }

    #[test]
    fn settings_that_do_not_go_together_are_refused_before_anything_is_opened() {
        let serve = |flags: &str| {
            let words = ["karmada-hub", "serve", "--data-dir=d"].into_iter().chain(flags.split_whitespace());
            match Args::try_parse_from(words).map(|args| args.command) {
                Ok(Command::Serve(args)) => config(&args).map(|config| config.judge),
                other => panic!("{other:?}"),
            }
        };
        let refused = [
            ("--cluster-monitor-period=21s", "--cluster-monitor-period 21s: must be at most half of"),
            ("--cluster-monitor-grace-period=9s", "--cluster-monitor-grace-period (9s)"),
            ("--cluster-flap-hold=3h", "--cluster-flap-max-hold (2h0m0s)"),
            ("--cluster-flap-window=1m", "--cluster-flap-losses 3 cannot come within it"),
            ("--eviction-brake-timeout=20s", "--eviction-brake-timeout 20s: must be 0 or at least"),
            ("--http2-max-streams-per-connection=7", "must be at least 8"),
            ("--request-timeout=1s", "--request-timeout 1s: must be at least 2s"),
        ];
        for (flags, want) in refused {
            match serve(flags) {
                Err(Failure::Usage(why)) => assert!(why.contains(want), "{flags}: {why}"),
                other => panic!("{flags}: {other:?}"),
            }
        }
        let accepted = [
            "",
            "--cluster-monitor-period=2s --cluster-monitor-grace-period=4s",
            "--cluster-monitor-grace-period=90s",
            "--cluster-startup-grace-period=1h",
            "--http2-max-streams-per-connection=8 --request-timeout=2s",
        ];
        for flags in accepted {
            assert!(serve(flags).is_ok(), "{flags}");
        }
        assert_eq!(
            serve("").unwrap(),
            karmada_core::judge::Settings::default(),
            "the defaults are the core's"
        );
        let lease = serve("--cluster-max-lease-duration=1m").unwrap().most_lease;
        assert_eq!(lease, Duration::from_secs(60));
    }
}
