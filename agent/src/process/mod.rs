//! A program around one agent: flags, logs, endpoints, signals. Everything that reads the environment is here.

mod admission;
mod alone;
mod args;
mod copies;
mod doctor;
mod endpoints;
mod exchange;
mod hold;
mod leave;
mod logs;
mod metrics;
mod slot;
mod status;
mod support;
mod windows;

use std::{
    ffi::OsString,
    io::{ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use clap::{CommandFactory, FromArgMatches};
use futures::FutureExt as _;
use karmada_client::{
    Endpoint, Kubeconfig, Rest,
    kubeconfig::{POD_ACCOUNT, in_cluster},
    link::{Manner, renewable_client_for},
};
use karmada_core::windows::Windows;
use karmada_env::Env;
use karmada_meta::time::Time;
use karmada_telemetry::{
    supervisor::Supervisor,
    told::{Failure, ended, print, with_exit_codes},
};
use parking_lot::Mutex;
use rustix::fs::FlockOperation;
use serde_json::{Value, json};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use self::{
    admission::{File, Ways},
    alone::Beginning,
    args::Args,
    endpoints::{Endpoints, Running, Stage},
    exchange::Exchange,
};
use crate::{
    Agent, AgentConfig, Guard, Installed, Outcome, Place, Spending, State, Troubles,
    hub::credential::{Credential, Keep, keep::remove, renew::Renewer, standing::Standing},
    tunnel::{Dials, Record, Toll},
};

/// What the hub's and the member's logs call us.
const USER_AGENT: &str = concat!("karmada-agent/", env!("CARGO_PKG_VERSION"));

/// How long a drain may take before it is cut off.
const DRAIN: Duration = Duration::from_secs(9);

/// The file by which a folder is one process's.
const LOCK: &str = "lock";

/// Threads for what blocks: name resolution, and the disk, which may hang.
const BLOCKING_THREADS: usize = 4;

/// The whole program: 0 when asked to stop, 1 when it failed, 2 for bad arguments or configuration, with one line on
/// standard error.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    match arguments.get(1).and_then(|word| word.to_str()) {
        Some("status") => return status::main(arguments.split_off(2)),
        Some("doctor") => return doctor::main(arguments.split_off(2)),
        Some("hold") => return hold::main(arguments.split_off(2)),
        Some("support-bundle") => return support::main(arguments.split_off(2)),
        Some("check") => {
            arguments.remove(1);
            return ended("karmada-agent check", check(arguments));
        }
        _ => {}
    }
    let mut args = match Args::read(arguments.clone()) {
        Ok(args) => args,
        Err(refusal) => {
            if let args::Refusal::Wrong(_) = refusal
                && let Err(failure) = slot::choose_anyway(&arguments)
            {
                return ended("karmada-agent", Err(failure));
            }
            return slot::ends(refused("karmada-agent", refusal));
        }
    };
    if let Err(failure) = slot::choose(&mut args, &arguments) {
        return ended("karmada-agent", Err(failure));
    }
    slot::ends(ended("karmada-agent", on_runtime(run(args))))
}

/// All command lines of the program, for completions and manual pages; what reads them is apart, since each word has arguments of
/// its own.
pub fn command() -> clap::Command {
    let agent = args::command();
    let like =
        |name: &'static str, about: &'static str| args::command().name(name).about(about).long_about(None);
    let agent = agent
        .subcommand(like("join", "Get a certificate with a token, and continue as the agent"))
        .subcommand(like("leave", "Remove the member from the fleet"))
        .subcommand(status::command().name("status"))
        .subcommand(hold::command().name("hold"))
        .subcommand(support::command().name("support-bundle"))
        .subcommand(doctor::command().name("doctor"))
        .subcommand_negates_reqs(true);
    with_exit_codes(agent)
}

/// Whether the agent would begin with these arguments: what an older version asks before it lets this one be tried.
fn check(arguments: Vec<OsString>) -> Result<(), Failure> {
    let args = Args::read(arguments).map_err(|refusal| match refusal {
        args::Refusal::Wrong(line) => Failure::Usage(line),
        args::Refusal::Help(_) => Failure::Usage("check wants the arguments of an agent".to_owned()),
    })?;
    if !args.join_only {
        let by_hand = args.join || args.leave.is_some();
        member_endpoint(args.kubeconfig.as_deref(), args.context.as_deref(), by_hand)?;
    }
    Ok(())
}

/// Runs something to its end.
fn on_runtime(run: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
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
        Err(error) => Err(Failure::Failed(format!("cannot start: {error}"))),
    }
}

/// The exit code of whoever was refused, or only wanted help.
fn refused(command: &str, refusal: args::Refusal) -> ExitCode {
    match refusal {
        args::Refusal::Help(text) => ended(command, print(&text)),
        args::Refusal::Wrong(line) => {
            ended(command, Err(Failure::Usage(format!("{line} (see {command} --help)"))))
        }
    }
}

/// The arguments of a command that has its own, which begin after its word; the exit code if there is nothing to be done.
fn flags<T: CommandFactory + FromArgMatches>(
    command: &'static str,
    arguments: Vec<OsString>,
) -> Result<T, ExitCode> {
    let line = std::iter::once(OsString::from(command)).chain(arguments);
    let reads = with_exit_codes(T::command()).color(clap::ColorChoice::Never);
    let matches = reads.try_get_matches_from(line);
    matches
        .and_then(|matches| T::from_arg_matches(&matches))
        .map_err(|error| refused(command, args::refusal(&error)))
}

async fn run(args: Args) -> Result<(), Failure> {
    let recent = logs::start(args.verbosity, args.log_format)?;
    let about = support::About::new(&args, recent);
    let env = Env::system();
    let file =
        args.karmada_kubeconfig.clone().map(|path| File { path, context: args.karmada_context.clone() });
    // Nobody waits for what becomes of it, and something may be kept by which the member is healed.
    let may_be_alone = !args.join && args.leave.is_none() && args.place != Place::Nowhere;
    if !may_be_alone {
        file.as_ref().map(File::read).transpose().map_err(Failure::usage)?;
    }
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
    let file = |path| File { path, context: args.context.clone() };
    let followed = args.kubeconfig.clone().map(|path| exchange::followed(file(path), &env));
    let member = match args.join_only && args.secret.is_none() {
        true => None,
        false => {
            let by_hand = args.join || args.leave.is_some();
            Some(member_endpoint(args.kubeconfig.as_deref(), args.context.as_deref(), by_hand)?)
        }
    };
    let health = Endpoints::open("--health-probe-bind-address", &args.health_bind).await?;
    let scraped = Endpoints::open("--metrics-bind-address", &args.metrics_bind).await?;
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
        _ => args.state_dir.clone().map(Keep::folder),
    };
    let own = member.as_ref().map(|(_, (client, ..))| Rest::new(client.clone()));
    let kept = own.clone().filter(|_| may_be_alone).map(|member| alone::Kept {
        place: args.place.clone(),
        cluster: args.config.cluster.clone(),
        member: (args.config.member_namespace.clone(), member),
    });
    let ways = Arc::new(Ways::of(&args, keep.clone(), own, env.clone()));
    let troubles = Troubles::default();
    let standing = Arc::new(Standing::new(troubles.clone()));
    let (stage, shutdown) = (Arc::new(Stage::new(Arc::clone(&standing))), CancellationToken::new());
    let served = [health, scraped].into_iter().flatten().map(|endpoint| {
        let (stage, env, shutdown) = (Arc::clone(&stage), env.clone(), shutdown.clone());
        tokio::spawn(async move { endpoint.serve(stage, env, shutdown).await })
    });
    let served: Vec<_> = served.collect();
    let ended = async {
        let beginning = tokio::select! {
            biased;
            () = signals.next() => return Ok(()),
            begun = alone::begin(&ways, &standing, kept, &env) => begun?,
        };
        if let (true, Beginning::With(credential, was_there)) = (args.join, &beginning) {
            let (line, value) = joined(&args.config.cluster, credential, *was_there, &ways);
            args.told.say(&line, &value)?;
        }
        let (true, Some((member, (member_client, member_link, member_identity)))) = (!args.join_only, member)
        else {
            return Ok(());
        };
        let manner = Manner { narrow: true, patience: args.config.patience() };
        let (credential, (hub, hub_link, identity)) = match beginning {
            Beginning::With(credential, _) => {
                let hub = ways.endpoint(&credential)?;
                let (cluster, version) = (&args.config.cluster, &args.config.version);
                tracing::info!(%cluster, %version, hub = %hub.server, %member, "starting");
                let client = renewable_client_for(hub, USER_AGENT, env.clone(), manner);
                (std::future::ready(*credential).boxed(), client)
            }
            Beginning::Alone(coming) => {
                let (cluster, version) = (&args.config.cluster, &args.config.version);
                tracing::info!(%cluster, %version, %member, "starting");
                let client = alone::client(&ways, manner, env.clone());
                let identity = client.2.clone();
                let arrives = async move {
                    let (credential, endpoint) = coming.await;
                    tracing::info!(hub = %endpoint.server, "there is a credential for the hub now");
                    // A link that was dropped leads nowhere, and nobody asks.
                    let _ = identity.lead(endpoint);
                    credential
                };
                (arrives.boxed(), client)
            }
        };
        let leaving = args.leave.map(|patience| leave::Leaving {
            cluster: args.config.cluster.clone(),
            namespace: args.config.member_namespace.clone(),
            hub: Rest::new(hub.clone()),
            member: Rest::new(member_client.clone()),
            keep: keep.clone(),
            file: args.karmada_kubeconfig.clone(),
            folder: args.state_dir.clone(),
            patience,
            told: args.told,
            env: env.clone(),
        });
        let (hub_identity, shown) = (identity.clone(), identity.clone());
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
            unkept: Mutex::default(),
        };
        let lent = args.tunnel.as_ref().filter(|settings| settings.copies);
        let searched = lent.map(|settings| settings.limits.clone());
        let terms = args.config.terms;
        let tunnel = args.tunnel.map(|settings| {
            let (hub, member) = (hub_identity, member_identity.clone());
            let bytes = settings.budget.or_else(|| terms.tunnels()).filter(|bytes| *bytes > 0);
            let budget = bytes.map(|bytes| Toll::hourly(bytes, env.clone())).unwrap_or_default();
            Dials { settings, hub, member, budget, told: Record::log }
        });
        let mut beside = JoinSet::new();
        beside.spawn(async move { renewer.run(credential.await).await });
        if let Ok(windows) = Windows::parse(&args.config.facts.link_windows) {
            let link = hub_link.clone();
            beside.spawn(windows::be_there(windows, move || link.kick(), env.clone()));
        }
        let spending = args.config.terms.reports.map(|bytes| Spending::hourly(bytes, env.clone()));
        let config = AgentConfig {
            hub_back: hub_link.connected().clone(),
            member_back: member_link.connected().clone(),
            troubles,
            tunnel,
            searched,
            spending: spending.unwrap_or_default(),
            ..args.config
        };
        let guard = config.upgrade.clone().map(|upgrade| {
            let guard = match upgrade.installed {
                Installed::Deployment(namespace, name) => {
                    let (member, hub) = (Rest::new(member_client.clone()), Rest::new(hub.clone()));
                    Some(Guard::new(member, &hub, (namespace, name), config.member_lease(), env.clone()))
                }
                // One program runs at a time: whoever is started next looks after that.
                Installed::Program(_) => None,
            };
            (guard, upgrade.aside)
        });
        let cluster = config.cluster.clone();
        let agent = Agent::new(config, hub, member_client, env.clone(), state);
        let handle = agent.handle();
        if let Some(followed) = followed {
            let rights = handle.rights().clone();
            beside.spawn(Exchange::new(followed, cluster, member_identity, rights).run());
        }
        let page =
            metrics::page(handle.clone(), hub_link.clone(), member_link.clone(), Arc::clone(&standing), &env);
        stage.runs(Running {
            agent: handle,
            hub: (shown, hub_link),
            member: (member.to_string(), member_link),
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

/// What to say to whoever has called `join`.
fn joined(cluster: &str, credential: &Credential, was_there: bool, ways: &Ways) -> (String, Value) {
    let until = credential.issued.as_ref().map(|issued| Time::from_system(issued.until).to_string());
    let place = ways.keep.as_ref().map(Keep::place).unwrap_or_default();
    let server = credential.endpoint.server.to_string();
    let value = json!({
        "cluster": cluster, "result": if was_there { "joined before" } else { "joined" }, "hub": server,
        "certificateEnds": until, "keptIn": place,
    });
    let line = format!(
        "{cluster} has joined {server}{}: the certificate ends at {}, and is kept with its key in {place}",
        if was_there { " before" } else { "" },
        until.unwrap_or_default(),
    );
    (line, value)
}

/// What tells the program to end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> Result<Self, Failure> {
        let listen =
            |kind| signal(kind).map_err(|error| Failure::Failed(format!("cannot hear signals: {error}")));
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
    guard: Option<(Option<Guard>, CancellationToken)>,
    signals: &mut Signals,
    shutdown: &CancellationToken,
) -> Result<(), Failure> {
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
            return ended.map_err(|error| Failure::Failed(error.to_string()));
        }
        () = aside => true,
    };
    if let Some((guard, _)) = guard.filter(|_| steps_aside) {
        acts.cancel();
        if tokio::time::timeout(DRAIN, &mut agent).await.is_err() {
            tracing::warn!("what was under way did not end in time");
        }
        let Some(guard) = guard else {
            tracing::info!("ending, for another program to start");
            return Ok(());
        };
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
            Ok(ended) => return ended.map_err(|error| Failure::Failed(error.to_string())),
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
) -> Result<Endpoint, Failure> {
    let named =
        |path: &Path| Kubeconfig::load(path).and_then(|file| file.endpoint(context)).map_err(Failure::usage);
    if let Some(path) = kubeconfig {
        return named(path);
    }
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    match (variable("KUBERNETES_SERVICE_HOST"), variable("KUBERNETES_SERVICE_PORT")) {
        (Some(host), Some(port)) => in_cluster(&host, &port, Path::new(POD_ACCOUNT)).map_err(Failure::usage),
        _ => {
            let own = variable("KUBECONFIG").map(PathBuf::from);
            let own = own.or_else(|| variable("HOME").map(|home| Path::new(&home).join(".kube/config")));
            match own.filter(|path| by_hand && path.is_file()) {
                Some(path) => named(&path),
                None => Err(Failure::Usage(
                    "--kubeconfig is missing: outside of a Pod, name the kubeconfig of the member cluster"
                        .into(),
                )),
            }
        }
    }
}

/// The agent's state: in a folder that outlives it, or none. An agent whose disk fails goes on with what it can: what was wanted of
/// the member is still wanted, and fenced workloads are still to be stopped.
fn open_state(dir: Option<&Path>, env: &Env) -> Result<State, Failure> {
    let fresh = State::fresh(env);
    let Some(dir) = dir else { return Ok(fresh) };
    let goes_on = |path: &Path, error: &std::io::Error| {
        let folder = path.display();
        tracing::warn!(
            "--state-dir: {folder}: {error}; going on as an agent that is another after a restart"
        );
    };
    // Keys are kept there.
    match std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir) {
        Ok(()) => {}
        // Nobody but the operator can help that.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::NotFound
                    | ErrorKind::NotADirectory
                    | ErrorKind::AlreadyExists
                    | ErrorKind::PermissionDenied
                    | ErrorKind::InvalidInput
            ) =>
        {
            return Err(Failure::Usage(unusable(dir, &error)));
        }
        Err(error) => {
            goes_on(dir, &error);
            return Ok(fresh);
        }
    }
    let file = dir.join("instance");
    match std::fs::read_to_string(&file) {
        Ok(text) if !text.trim().is_empty() => {
            return Ok(State { instance: text.trim().to_owned(), place: Place::Nowhere });
        }
        // One that is no text was damaged.
        Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidData) => {
            goes_on(&file, &error);
            return Ok(fresh);
        }
        _ => {}
    }
    if let Err(error) = save(dir, &file, &fresh) {
        goes_on(&file, &error);
    }
    Ok(fresh)
}

/// Why a folder cannot be had, and what to do where that is plain.
fn unusable(dir: &Path, error: &std::io::Error) -> String {
    let next = match error.kind() {
        ErrorKind::PermissionDenied => {
            "; run this as root, or name a folder that you may write to with --state-dir"
        }
        _ => "",
    };
    format!("--state-dir: {}: {error}{next}", dir.display())
}

/// Has a folder for this process alone: two agents that are one instance would both act, and write over each other's log. Where
/// the disk does not let it be had nobody else can write there either.
fn lock(dir: &Path) -> Result<Option<std::fs::File>, Failure> {
    let path = dir.join(LOCK);
    let open = std::fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    // A lock needs no right to write.
    let opened = open
        .or_else(|error| std::fs::File::open(&path).or_else(|_| std::fs::File::open(dir)).map_err(|_| error));
    let locked = match &opened {
        Ok(file) => {
            rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).map_err(std::io::Error::from)
        }
        Err(error) => Err(std::io::Error::from(error.kind())),
    };
    match locked {
        Ok(()) => Ok(opened.ok()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Err(Failure::Failed(format!(
            "--state-dir: another agent uses {}: end that one first, or give this one a folder of its own",
            dir.display()
        ))),
        Err(error) => {
            tracing::warn!(folder = %dir.display(), %error, "cannot be locked: see that no other agent uses this folder");
            Ok(None)
        }
    }
}

/// Writes the state so that a power cut leaves all of it or nothing.
fn save(dir: &Path, file: &Path, state: &State) -> std::io::Result<()> {
    let draft = dir.join("instance.new");
    // Not into a file that somebody else has put there.
    remove(&draft)?;
    let mut written = std::fs::File::create_new(&draft)?;
    written.write_all(format!("{}\n", state.instance).as_bytes())?;
    written.sync_all()?;
    std::fs::rename(&draft, file)?;
    std::fs::File::open(dir)?.sync_all()
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
        // One that cannot be written: as on a disk that has gone read-only the folder itself is locked.
        std::fs::remove_file(dir.path().join(LOCK)).unwrap();
        std::fs::create_dir(dir.path().join(LOCK)).unwrap();
        let first = lock(dir.path()).unwrap();
        assert!(first.is_some());
        assert!(lock(dir.path()).unwrap_err().to_string().contains("another agent uses"));
        assert!(lock(&dir.path().join("nowhere")).unwrap().is_none());
    }

    #[test]
    fn whoever_may_not_write_to_the_folder_hears_what_to_do() {
        let folder = Path::new("/var/lib/karmada-agent");
        for (kind, next) in [(ErrorKind::PermissionDenied, true), (ErrorKind::NotADirectory, false)] {
            let why = unusable(folder, &kind.into());
            assert!(why.starts_with("--state-dir: /var/lib/karmada-agent: "), "{why}");
            let said =
                why.ends_with("; run this as root, or name a folder that you may write to with --state-dir");
            assert_eq!(said, next, "{why}");
        }
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
        assert!(matches!(error, Failure::Usage(_)), "a file is no folder, however often one tries");
        // What a power cut or another version has left.
        std::fs::write(path.join("instance"), "").unwrap();
        std::fs::write(path.join("instance.new"), "half").unwrap();
        let second = open_state(Some(&path), &env).unwrap();
        assert_eq!(open_state(Some(&path), &env).unwrap(), second);
        assert!(!path.join("instance.new").exists());
        std::fs::write(path.join("instance"), [0xff, 0xfe]).unwrap();
        assert_ne!(open_state(Some(&path), &env).unwrap(), second);
        // Whatever else is wrong with the disk is no reason to do nothing.
        std::os::unix::fs::symlink("instance", path.join("instance.loop")).unwrap();
        std::fs::remove_file(path.join("instance")).unwrap();
        std::os::unix::fs::symlink("instance.loop", path.join("instance")).unwrap();
        assert_ne!(open_state(Some(&path), &env).unwrap(), second);
        std::fs::remove_file(path.join("instance")).unwrap();
        std::fs::create_dir(path.join("instance")).unwrap();
        assert_ne!(open_state(Some(&path), &env).unwrap(), second);
        std::fs::remove_dir(path.join("instance")).unwrap();
        std::fs::create_dir(path.join("instance.new")).unwrap();
        assert_ne!(open_state(Some(&path), &env).unwrap(), second);
    }
}
