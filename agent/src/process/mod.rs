//! A program around one agent: flags, logs, endpoints, signals. Everything that reads the environment is here.

mod args;
mod endpoints;
mod logs;
mod metrics;

use std::{
    ffi::OsString,
    fs::File,
    io::{ErrorKind, Write},
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use karmada_client::{
    Endpoint, Kubeconfig, KubeconfigError,
    kubeconfig::{POD_ACCOUNT, in_cluster},
    link::{client_for, narrow_client_for},
};
use karmada_env::Env;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use self::{args::Args, endpoints::Endpoints};
use crate::{Agent, AgentConfig, State};

/// What the hub's and the member's logs call us.
const USER_AGENT: &str = concat!("karmada-agent/", env!("CARGO_PKG_VERSION"));

/// How long a drain may take before it is cut off.
const DRAIN: Duration = Duration::from_secs(9);

/// Threads for name resolution, the one thing that blocks.
const BLOCKING_THREADS: usize = 2;

/// Why the program could not do its job.
#[derive(Debug, thiserror::Error)]
enum ProcessError {
    /// What we were told is wrong: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// We failed: exit code 1.
    #[error("{0}")]
    Failed(String),
}

impl From<KubeconfigError> for ProcessError {
    fn from(error: KubeconfigError) -> Self {
        Self::Usage(error.to_string())
    }
}

/// The whole program: 0 when asked to stop, 1 when it failed, 2 for bad arguments or configuration, with one line on
/// standard error.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = match Args::read(arguments) {
        Ok(args) => args,
        Err(args::Refusal::Help(text)) => {
            print!("{text}");
            return ExitCode::SUCCESS;
        }
        Err(args::Refusal::Wrong(line)) => {
            eprintln!("karmada-agent: {line}");
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .build();
    let ended = match runtime {
        Ok(runtime) => {
            let ended = runtime.block_on(run(args));
            // A name resolution that hangs must not keep the process.
            runtime.shutdown_background();
            ended
        }
        Err(error) => Err(ProcessError::Failed(format!("cannot start: {error}"))),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("karmada-agent: {error}");
            ExitCode::from(if matches!(error, ProcessError::Usage(_)) { 2 } else { 1 })
        }
    }
}

async fn run(args: Args) -> Result<(), ProcessError> {
    logs::start(args.verbosity, args.log_format)?;
    let env = Env::system();
    let hub = Kubeconfig::load(&args.karmada_kubeconfig)?.endpoint(args.karmada_context.as_deref())?;
    let member = member_endpoint(args.kubeconfig.as_deref(), args.context.as_deref())?;
    let state = open_state(args.state_dir.as_deref(), &env)?;
    let health = Endpoints::bind("--health-probe-bind-address", &args.health_bind).await?;
    let scraped = Endpoints::bind("--metrics-bind-address", &args.metrics_bind).await?;
    for note in &args.notes {
        tracing::info!("{note}");
    }
    tracing::info!(cluster = %args.config.cluster, hub = %hub.server, member = %member.server, "starting");

    let (hub, hub_link) = narrow_client_for(hub, USER_AGENT, env.clone());
    let (member, member_link) = client_for(member, USER_AGENT, env.clone());
    let config = AgentConfig {
        hub_back: hub_link.connected().clone(),
        member_back: member_link.connected().clone(),
        ..args.config
    };
    let agent = Agent::new(config, hub, member, env.clone(), state);
    let handle = agent.handle();
    let page = metrics::page(handle.clone(), hub_link.clone(), member_link, &env);
    let sources = Arc::new(endpoints::Sources { agent: handle, hub: hub_link, page });
    let shutdown = CancellationToken::new();
    let served = [health, scraped].into_iter().flatten().map(|endpoint| {
        let (sources, shutdown) = (Arc::clone(&sources), shutdown.clone());
        tokio::spawn(async move { endpoint.serve(sources, shutdown).await })
    });
    let served: Vec<_> = served.collect();

    let ended = until_told(agent, &shutdown).await;
    shutdown.cancel();
    for endpoint in served {
        endpoint.abort();
    }
    ended
}

/// Runs the agent until a signal; the first one drains, a second one ends at once.
async fn until_told(agent: Agent, shutdown: &CancellationToken) -> Result<(), ProcessError> {
    let listen =
        |kind| signal(kind).map_err(|error| ProcessError::Failed(format!("cannot hear signals: {error}")));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    let mut agent = std::pin::pin!(agent.run(shutdown.clone()));
    tokio::select! {
        biased;
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        ended = &mut agent => {
            return ended.map_err(|error| ProcessError::Failed(error.to_string()));
        }
    }
    tracing::info!("stopping");
    shutdown.cancel();
    tokio::select! {
        biased;
        _ = terminate.recv() => tracing::warn!("told twice: ending now"),
        _ = interrupt.recv() => tracing::warn!("told twice: ending now"),
        ended = tokio::time::timeout(DRAIN, agent) => match ended {
            Ok(ended) => return ended.map_err(|error| ProcessError::Failed(error.to_string())),
            Err(_) => tracing::warn!("what was under way did not end in time"),
        }
    }
    Ok(())
}

/// The member: a kubeconfig's, or the cluster that this pod runs in.
fn member_endpoint(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Endpoint, ProcessError> {
    if let Some(path) = kubeconfig {
        return Ok(Kubeconfig::load(path)?.endpoint(context)?);
    }
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    match (variable("KUBERNETES_SERVICE_HOST"), variable("KUBERNETES_SERVICE_PORT")) {
        (Some(host), Some(port)) => Ok(in_cluster(&host, &port, Path::new(POD_ACCOUNT))?),
        _ => Err(ProcessError::Usage(
            "--kubeconfig is needed outside of a pod: it names the member cluster".into(),
        )),
    }
}

/// The agent's state: in a folder that outlives it, or none.
fn open_state(dir: Option<&Path>, env: &Env) -> Result<State, ProcessError> {
    let fresh = State::fresh(env);
    let Some(dir) = dir else { return Ok(fresh) };
    let wrong = |path: &Path, error: &std::io::Error| {
        let text = format!("--state-dir: {}: {error}", path.display());
        match error.kind() {
            // Nobody but the operator can help that.
            ErrorKind::NotFound
            | ErrorKind::NotADirectory
            | ErrorKind::IsADirectory
            | ErrorKind::AlreadyExists
            | ErrorKind::PermissionDenied
            | ErrorKind::InvalidInput => ProcessError::Usage(text),
            // A disk that is full, or fails for a while: whoever starts this tries again.
            _ => ProcessError::Failed(text),
        }
    };
    std::fs::create_dir_all(dir).map_err(|error| wrong(dir, &error))?;
    let file = dir.join("instance");
    match std::fs::read_to_string(&file) {
        Ok(text) if !text.trim().is_empty() => Ok(State { instance: text.trim().to_owned() }),
        // One that is no text was damaged.
        Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidData) => {
            Err(wrong(&file, &error))
        }
        _ => save(dir, &file, fresh).map_err(|error| wrong(&file, &error)),
    }
}

/// Writes the state so that a power cut leaves all of it or nothing.
fn save(dir: &Path, file: &Path, state: State) -> std::io::Result<State> {
    let draft = dir.join("instance.new");
    let mut written = File::create(&draft)?;
    written.write_all(format!("{}\n", state.instance).as_bytes())?;
    written.sync_all()?;
    std::fs::rename(&draft, file)?;
    File::open(dir)?.sync_all()?;
    Ok(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_survives_in_its_folder_and_only_there() {
        let env = Env::system();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let first = open_state(Some(&path), &env).unwrap();
        assert_eq!(open_state(Some(&path), &env).unwrap(), first);
        assert_ne!(open_state(None, &env).unwrap(), open_state(None, &env).unwrap());
        let error = open_state(Some(&path.join("instance")), &env).unwrap_err();
        assert!(error.to_string().starts_with("--state-dir: "), "{error}");
        assert!(matches!(error, ProcessError::Usage(_)), "a file is no folder, however often one tries");
        // What a power cut or another version has left.
        std::fs::write(path.join("instance"), "").unwrap();
        std::fs::write(path.join("instance.new"), "half").unwrap();
        let second = open_state(Some(&path), &env).unwrap();
        assert_eq!(open_state(Some(&path), &env).unwrap(), second);
        assert!(!path.join("instance.new").exists());
        std::fs::write(path.join("instance"), [0xff, 0xfe]).unwrap();
        assert_ne!(open_state(Some(&path), &env).unwrap(), second);
        // Whatever else is wrong with the disk may pass.
        std::os::unix::fs::symlink("instance", path.join("instance.loop")).unwrap();
        std::fs::remove_file(path.join("instance")).unwrap();
        std::os::unix::fs::symlink("instance.loop", path.join("instance")).unwrap();
        assert!(matches!(open_state(Some(&path), &env).unwrap_err(), ProcessError::Failed(_)));
    }
}
