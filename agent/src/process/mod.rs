//! A program around one agent: flags, logs, endpoints, signals. Everything that reads the environment is here.

mod admission;
mod args;
mod doctor;
mod endpoints;
mod hold;
mod leave;
mod logs;
mod metrics;
mod status;
mod support;

use std::{
    ffi::OsString,
    io::{ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, SystemTime},
};

use clap::{CommandFactory, FromArgMatches};
use karmada_client::{
    Endpoint, Kubeconfig, KubeconfigError, Rest,
    kubeconfig::{POD_ACCOUNT, in_cluster},
    link::{Identity, LinkStatus, Manner, NotTaken, renewable_client_for},
};
use karmada_core::windows::{Stand, Windows};
use karmada_env::Env;
use karmada_meta::time::Time;
use karmada_telemetry::supervisor::Supervisor;
use rustix::{fs::FlockOperation, io::Errno};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use self::{
    admission::{File, Ways},
    args::Args,
    endpoints::{Endpoints, Running, Stage},
};
use crate::{
    Agent, AgentConfig, Guard, Outcome, Place, Spending, State, Troubles,
    hub::credential::{Credential, Keep, keep::remove, renew::Renewer, standing::Standing},
    tunnel::{Dials, Record},
};

/// What the hub's and the member's logs call us.
const USER_AGENT: &str = concat!("karmada-agent/", env!("CARGO_PKG_VERSION"));

/// How long a drain may take before it is cut off.
const DRAIN: Duration = Duration::from_secs(9);

/// How often the member's kubeconfig is looked at.
const LOOK: Duration = Duration::from_secs(10);

/// The longest that is slept before a clock is looked at again.
const NAP: Duration = Duration::from_secs(300);

/// The file by which a folder is one process's.
const LOCK: &str = "lock";

/// Threads for what blocks: name resolution, and the disk, which may hang.
const BLOCKING_THREADS: usize = 4;

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
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    match arguments.get(1).and_then(|word| word.to_str()) {
        Some("status") => return status::main(arguments.split_off(2)),
        Some("doctor") => return doctor::main(arguments.split_off(2)),
        Some("hold") => return hold::main(arguments.split_off(2)),
        Some("support-bundle") => return support::main(arguments.split_off(2)),
        _ => {}
    }
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
    ended(on_runtime(run(args)))
}

/// All command lines of the program, for completions and manual pages; what reads them is apart, since each word has arguments of
/// its own.
pub fn command() -> clap::Command {
    let agent = args::command();
    let like =
        |name: &'static str, about: &'static str| args::command().name(name).about(about).long_about(None);
    agent
        .subcommand(like("join", "Get a certificate with a token, and continue as the agent"))
        .subcommand(like("leave", "Remove the member from the fleet"))
        .subcommand(status::command().name("status"))
        .subcommand(hold::command().name("hold"))
        .subcommand(support::command().name("support-bundle"))
        .subcommand(doctor::command().name("doctor"))
        .subcommand_negates_reqs(true)
}

/// Runs something to its end.
fn on_runtime(run: impl Future<Output = Result<(), ProcessError>>) -> Result<(), ProcessError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .build();
    match runtime {
        Ok(runtime) => {
            let ended = runtime.block_on(run);
            // A name resolution that hangs must not keep the process.
            runtime.shutdown_background();
            ended
        }
        Err(error) => Err(ProcessError::Failed(format!("cannot start: {error}"))),
    }
}

/// The exit code for how something ended, and a line if it failed.
fn ended(ended: Result<(), ProcessError>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("karmada-agent: {error}");
            ExitCode::from(if matches!(error, ProcessError::Usage(_)) { 2 } else { 1 })
        }
    }
}

/// The arguments of a command that has its own, which begin after its word; the exit code if there is nothing to be done.
fn flags<T: CommandFactory + FromArgMatches>(
    command: &'static str,
    arguments: Vec<OsString>,
) -> Result<T, ExitCode> {
    let line = std::iter::once(OsString::from(command)).chain(arguments);
    let matches = T::command().color(clap::ColorChoice::Never).try_get_matches_from(line);
    matches.and_then(|matches| T::from_arg_matches(&matches)).map_err(|error| match args::refusal(&error) {
        args::Refusal::Help(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        args::Refusal::Wrong(line) => {
            eprintln!("{command}: {line}");
            ExitCode::from(2)
        }
    })
}

async fn run(args: Args) -> Result<(), ProcessError> {
    let recent = logs::start(args.verbosity, args.log_format)?;
    let about = support::About::new(&args, recent);
    let env = Env::system();
    let file =
        args.karmada_kubeconfig.clone().map(|path| File { path, context: args.karmada_context.clone() });
    file.as_ref().map(File::read).transpose()?;
    // Held as long as the process lives.
    let mut _lock = None;
    let state = match args.leave {
        // Who leaves is not the agent that may run besides, and keeps nothing.
        Some(_) => State::fresh(&env),
        None => {
            let state = open_state(args.state_dir.as_deref(), &env)?;
            if let Some(dir) = args.state_dir.as_deref().filter(|_| !args.join_only) {
                _lock = lock(dir)?;
            }
            State { place: args.place.clone(), ..state }
        }
    };
    // Whoever only joins need not be where the member can be reached.
    let member = match args.join_only && args.secret.is_none() {
        true => None,
        false => {
            let by_hand = args.join || args.leave.is_some();
            Some(member_endpoint(args.kubeconfig.as_deref(), args.context.as_deref(), by_hand)?)
        }
    };
    let health = Endpoints::bind("--health-probe-bind-address", &args.health_bind).await?;
    let scraped = Endpoints::bind("--metrics-bind-address", &args.metrics_bind).await?;
    let mut signals = Signals::listen()?;
    // From here on nothing is waited for but hub and member, which may be away for long: that is no start that hangs.
    let supervisor = match args.leave {
        Some(_) => Supervisor::default(),
        None => Supervisor::of_environment(),
    };
    supervisor.ready();
    supervisor.status(&format!("agent of {}", args.config.cluster));
    let watched = supervisor.clone();
    let living = tokio::spawn(async move {
        let Some(every) = watched.every() else { return };
        loop {
            watched.alive();
            tokio::time::sleep(every).await;
        }
    });
    for note in &args.notes {
        tracing::info!("{note}");
    }
    let member = member.map(|member| {
        let name = member.server.clone();
        (name, renewable_client_for(member, USER_AGENT, env.clone(), Manner::default()))
    });
    let keep = match (&args.secret, &member) {
        (Some((namespace, name)), Some((_, (client, ..)))) => {
            let (namespace, name) = (namespace.clone(), name.clone());
            Some(Keep::Secret { member: Rest::new(client.clone()), namespace, name })
        }
        _ => args.state_dir.clone().map(Keep::Folder),
    };
    let own = member.as_ref().map(|(_, (client, ..))| Rest::new(client.clone()));
    let ways = Arc::new(Ways::of(&args, keep.clone(), own, env.clone()));
    let (stage, shutdown) = (Arc::new(Stage::default()), CancellationToken::new());
    let served = [health, scraped].into_iter().flatten().map(|endpoint| {
        let (stage, shutdown) = (Arc::clone(&stage), shutdown.clone());
        tokio::spawn(async move { endpoint.serve(stage, shutdown).await })
    });
    let served: Vec<_> = served.collect();
    let ended = async {
        let (credential, was_there) = tokio::select! {
            biased;
            () = signals.next() => return Ok(()),
            obtained = ways.obtain(&stage) => obtained?,
        };
        if args.join {
            println!("{}", joined(&args.config.cluster, &credential, was_there, &ways));
        }
        let (true, Some((member, (member_client, member_link, member_identity)))) = (!args.join_only, member)
        else {
            return Ok(());
        };
        let hub = ways.endpoint(&credential)?;
        tracing::info!(cluster = %args.config.cluster, hub = %hub.server, %member, "starting");
        let servers = (hub.server.to_string(), member.to_string());
        let manner = Manner { narrow: true, patience: args.config.patience() };
        let (hub, hub_link, identity) = renewable_client_for(hub, USER_AGENT, env.clone(), manner);
        let leaving = args.leave.map(|patience| leave::Leaving {
            cluster: args.config.cluster.clone(),
            namespace: args.config.member_namespace.clone(),
            hub: Rest::new(hub.clone()),
            member: Rest::new(member_client.clone()),
            keep: keep.clone(),
            file: args.karmada_kubeconfig.clone(),
            folder: args.state_dir.clone(),
            patience,
            env: env.clone(),
        });
        let hub_identity = identity.clone();
        let troubles = Troubles::default();
        let standing = Arc::new(Standing::new(troubles.clone()));
        let renewer = Renewer {
            cluster: args.config.cluster.clone(),
            hub: Rest::new(hub.clone()),
            link: hub_link.clone(),
            identity,
            keep,
            supply: ways,
            env: env.clone(),
            user_agent: USER_AGENT,
            standing: Arc::clone(&standing),
        };
        let tunnel = args.tunnel.map(|settings| {
            let (hub, member) = (hub_identity, member_identity.clone());
            Dials { settings, hub, member, told: Record::log }
        });
        let mut beside = JoinSet::new();
        beside.spawn(renewer.run(credential));
        if let Ok(windows) = Windows::parse(&args.config.facts.link_windows) {
            beside.spawn(be_there(windows, hub_link.clone(), env.clone()));
        }
        let spending = args.config.terms.reports.map(|bytes| Spending::hourly(bytes, env.clone()));
        if let Some(path) = args.kubeconfig {
            beside.spawn(follow(File { path, context: args.context }, member_identity));
        }
        let config = AgentConfig {
            hub_back: hub_link.connected().clone(),
            member_back: member_link.connected().clone(),
            troubles,
            tunnel,
            spending: spending.unwrap_or_default(),
            ..args.config
        };
        let guard = config.upgrade.clone().map(|upgrade| {
            let (member, hub) = (Rest::new(member_client.clone()), Rest::new(hub.clone()));
            let guard = Guard::new(member, &hub, upgrade.deployment, config.member_lease(), env.clone());
            (guard, upgrade.aside)
        });
        let agent = Agent::new(config, hub, member_client, env.clone(), state);
        let handle = agent.handle();
        let page =
            metrics::page(handle.clone(), hub_link.clone(), member_link.clone(), Arc::clone(&standing), &env);
        stage.runs(Running {
            agent: handle,
            hub: (servers.0, hub_link),
            member: (servers.1, member_link),
            standing,
            page,
            place: args.place,
            about,
            started: env.wall(),
            env: env.clone(),
        });
        match leaving {
            Some(leaving) => Box::pin(leaving.run(agent, &mut signals)).await,
            None => Box::pin(until_told(agent, guard, &mut signals, &shutdown)).await,
        }
    };
    let ended = Box::pin(ended).await;
    supervisor.stopping();
    living.abort();
    shutdown.cancel();
    for endpoint in served {
        endpoint.abort();
    }
    ended
}

/// Tries at once when the link is to be there.
async fn be_there(windows: Windows, link: LinkStatus, env: Env) {
    loop {
        match windows.at(env.wall()) {
            Stand::Open(_) => tokio::time::sleep(LOOK).await,
            Stand::Shut(until) => {
                let until = SystemTime::from(until.timestamp());
                // Clocks are set, and machines sleep: it is looked again now and then.
                let left = until.duration_since(env.wall()).unwrap_or_default();
                tokio::time::sleep(left.min(NAP)).await;
                if matches!(windows.at(env.wall()), Stand::Open(_)) {
                    link.kick();
                }
            }
        }
    }
}

/// Shows the member what its kubeconfig says, when that changes.
async fn follow(file: File, identity: Identity) {
    let mut seen = file.version().ok().map(|(_, version)| version);
    loop {
        tokio::time::sleep(LOOK).await;
        let Ok((found, version)) = file.version() else { continue };
        if seen == Some(version) {
            continue;
        }
        match identity.change(found.endpoint, "/version").await {
            Ok(()) => {
                tracing::info!(file = %file.path.display(), "the member's credential was replaced by the one in the file")
            }
            Err(NotTaken::Refused { code, message }) => {
                tracing::warn!(file = %file.path.display(), code, message, "the member does not take the credential in the file");
            }
            // It is tried again.
            Err(_) => continue,
        }
        seen = Some(version);
    }
}

/// What to say to whoever has called `join`.
fn joined(cluster: &str, credential: &Credential, was_there: bool, ways: &Ways) -> String {
    let until = credential.issued.as_ref().map(|issued| Time::from_system(issued.until).to_string());
    let place = ways.keep.as_ref().map(Keep::place).unwrap_or_default();
    format!(
        "{cluster} has joined {}{}: the certificate ends at {}, and is kept with its key in {place}",
        credential.endpoint.server,
        if was_there { " before" } else { "" },
        until.unwrap_or_default(),
    )
}

/// What tells the program to end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> Result<Self, ProcessError> {
        let listen = |kind| {
            signal(kind).map_err(|error| ProcessError::Failed(format!("cannot hear signals: {error}")))
        };
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Runs the agent until a signal; the first one drains, a second one ends at once. Where a new version is to act, this process is
/// the guard of its trial afterwards.
async fn until_told(
    agent: Agent,
    guard: Option<(Guard, CancellationToken)>,
    signals: &mut Signals,
    shutdown: &CancellationToken,
) -> Result<(), ProcessError> {
    let acts = shutdown.child_token();
    let mut agent = std::pin::pin!(agent.run(acts.clone()));
    let aside = async {
        match &guard {
            Some((_, aside)) => aside.cancelled().await,
            None => std::future::pending().await,
        }
    };
    let steps_aside = tokio::select! {
        biased;
        () = signals.next() => false,
        ended = &mut agent => {
            return ended.map_err(|error| ProcessError::Failed(error.to_string()));
        }
        () = aside => true,
    };
    if let Some((guard, _)) = guard.filter(|_| steps_aside) {
        acts.cancel();
        if tokio::time::timeout(DRAIN, &mut agent).await.is_err() {
            tracing::warn!("what was under way did not end in time");
        }
        return tokio::select! {
            biased;
            () = signals.next() => Ok(()),
            outcome = guard.run() => match outcome {
                // Whoever runs this process ends it.
                Outcome::Committed => {
                    signals.next().await;
                    Ok(())
                }
                // It begins anew, as the agent.
                Outcome::Returned => Ok(()),
            },
        };
    }
    tracing::info!("stopping");
    shutdown.cancel();
    tokio::select! {
        biased;
        () = signals.next() => tracing::warn!("told twice: ending now"),
        ended = tokio::time::timeout(DRAIN, agent) => match ended {
            Ok(ended) => return ended.map_err(|error| ProcessError::Failed(error.to_string())),
            Err(_) => tracing::warn!("what was under way did not end in time"),
        }
    }
    Ok(())
}

/// The member: a kubeconfig's, or the cluster that this pod runs in. Whoever joins by hand may mean kubectl's.
fn member_endpoint(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
    by_hand: bool,
) -> Result<Endpoint, ProcessError> {
    if let Some(path) = kubeconfig {
        return Ok(Kubeconfig::load(path)?.endpoint(context)?);
    }
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    match (variable("KUBERNETES_SERVICE_HOST"), variable("KUBERNETES_SERVICE_PORT")) {
        (Some(host), Some(port)) => Ok(in_cluster(&host, &port, Path::new(POD_ACCOUNT))?),
        _ => {
            let own = variable("KUBECONFIG").map(PathBuf::from);
            let own = own.or_else(|| variable("HOME").map(|home| Path::new(&home).join(".kube/config")));
            match own.filter(|path| by_hand && path.is_file()) {
                Some(path) => Ok(Kubeconfig::load(path)?.endpoint(context)?),
                None => Err(ProcessError::Usage(
                    "--kubeconfig is needed outside of a pod: it names the member cluster".into(),
                )),
            }
        }
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
    // Keys are kept there.
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| wrong(dir, &error))?;
    let file = dir.join("instance");
    match std::fs::read_to_string(&file) {
        Ok(text) if !text.trim().is_empty() => {
            Ok(State { instance: text.trim().to_owned(), place: Place::Nowhere })
        }
        // One that is no text was damaged.
        Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidData) => {
            Err(wrong(&file, &error))
        }
        _ => save(dir, &file, fresh).map_err(|error| wrong(&file, &error)),
    }
}

/// Has a folder for this process alone: two agents that are one instance would both act, and write over each other's log.
fn lock(dir: &Path) -> Result<Option<std::fs::File>, ProcessError> {
    let path = dir.join(LOCK);
    let failed = |error: &dyn std::fmt::Display| {
        ProcessError::Failed(format!("--state-dir: {}: {error}", path.display()))
    };
    let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let file = file.map_err(|error| failed(&error))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Err(ProcessError::Failed(format!(
            "--state-dir: another agent uses {}: end that one first, or give this one a folder of its own",
            dir.display()
        ))),
        Err(error @ (Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP)) => {
            tracing::warn!(folder = %dir.display(), %error, "cannot be locked: see that no other agent uses this folder");
            Ok(None)
        }
        Err(error) => Err(failed(&error)),
    }
}

/// Writes the state so that a power cut leaves all of it or nothing.
fn save(dir: &Path, file: &Path, state: State) -> std::io::Result<State> {
    let draft = dir.join("instance.new");
    // Not into a file that somebody else has put there.
    remove(&draft)?;
    let mut written = std::fs::File::create_new(&draft)?;
    written.write_all(format!("{}\n", state.instance).as_bytes())?;
    written.sync_all()?;
    std::fs::rename(&draft, file)?;
    std::fs::File::open(dir)?.sync_all()?;
    Ok(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_one_agents() {
        let dir = tempfile::tempdir().unwrap();
        let first = lock(dir.path()).unwrap();
        assert!(first.is_some());
        let error = lock(dir.path()).unwrap_err();
        assert!(error.to_string().contains("another agent uses"), "{error}");
        drop(first);
        assert!(lock(dir.path()).unwrap().is_some());
    }

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
