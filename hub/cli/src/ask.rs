//! What all commands have in common: one server, one runtime, one answer.

use std::{
    env,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use karmada_client::{Error, Kubeconfig, LinkState, LinkStatus, Rest, link::client_for};
use karmada_env::Env;
use karmada_objects::Objects;

use super::{Failure, args::ServerArgs};

/// A person waits: a server that says nothing for this long is reported as such.
const PATIENCE: Duration = Duration::from_secs(12);

/// Attempts to connect before somebody who waits is told that it is no use.
const ATTEMPTS: u32 = 3;

/// The server that a command line names.
#[derive(Debug)]
pub struct Server {
    /// Its objects.
    pub objects: Objects,
    address: String,
    /// The link to it; none to one in this process.
    link: Option<LinkStatus>,
    env: Env,
    /// Where namespaced objects are, unless they say otherwise.
    pub namespace: String,
}

impl Server {
    /// Reads the kubeconfig; nothing is asked of the server yet.
    pub fn open(args: &ServerArgs, env: &Env) -> Result<Self, Failure> {
        let path = kubeconfig(args)?;
        let kubeconfig = Kubeconfig::load(&path).map_err(Failure::usage)?;
        let endpoint = kubeconfig.endpoint(args.context.as_deref()).map_err(Failure::usage)?;
        let namespace = args.namespace.clone().unwrap_or_else(|| endpoint.namespace.clone());
        let address = endpoint.server.to_string().trim_end_matches('/').to_owned();
        let (client, link) =
            client_for(endpoint, concat!("karmada-hub/", env!("CARGO_PKG_VERSION")), env.clone());
        Ok(Self {
            objects: Objects::new(Rest::new(client).with_deadline(PATIENCE)),
            namespace,
            address,
            link: Some(link),
            env: env.clone(),
        })
    }

    /// One in this process, by a client of whoever asks.
    pub fn within(objects: Objects, namespace: &str, env: &Env) -> Self {
        let (namespace, address) = (namespace.to_owned(), "the API in this process".to_owned());
        Self { objects, namespace, address, link: None, env: env.clone() }
    }

    /// For what is no object.
    pub fn client(&self) -> kube::Client {
        self.objects.rest().client().clone()
    }

    /// The present, as this machine has it.
    pub fn now(&self) -> SystemTime {
        self.env.wall()
    }

    /// Waits until there is a connection, or until it has turned out that there will be none.
    ///
    /// # Errors
    /// When it cannot be reached.
    pub async fn reach(&self) -> Result<(), Failure> {
        let Some(link) = &self.link else { return Ok(()) };
        let mut state = link.state();
        let settled = state.wait_for(|state| match state {
            LinkState::Connecting { failures, .. } => *failures >= ATTEMPTS,
            LinkState::Connected { .. } | LinkState::Closed => true,
        });
        match tokio::time::timeout(PATIENCE, settled).await {
            Ok(Ok(state)) if matches!(*state, LinkState::Connected { .. }) => Ok(()),
            _ => Err(Failure::failed(self.unreachable())),
        }
    }

    /// Where it is.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Whether there is a connection now.
    pub fn is_connected(&self) -> bool {
        self.link.as_ref().is_none_or(LinkStatus::is_connected)
    }

    /// An error of this server's, for a person.
    pub fn explain(&self, error: &Error) -> String {
        if error.is_unreachable() && !self.is_connected() { self.unreachable() } else { error.to_string() }
    }

    /// The same as the end of the command.
    pub fn failure(&self, error: &Error) -> Failure {
        let why = self.explain(error);
        match error.status() {
            Some(status) => Failure::Answered { code: status.code, reason: status.reason.clone(), why },
            // One in this process is away for a moment alone.
            None if self.link.is_none() => {
                Failure::Answered { code: 503, reason: "ServiceUnavailable".to_owned(), why }
            }
            None => Failure::failed(why),
        }
    }

    fn unreachable(&self) -> String {
        let said = self.link.as_ref().and_then(|link| match &*link.state().borrow() {
            LinkState::Connecting { error: Some(error), .. } => Some(error.to_string()),
            _ => None,
        });
        let why = said.unwrap_or_else(|| format!("no answer within {} s", PATIENCE.as_secs()));
        format!(
            "cannot reach {}: {why}. Does the hub run there? On its machine, karmada-hub doctor checks what it needs",
            self.address
        )
    }
}

/// The kubeconfig that a command line means.
pub(crate) fn kubeconfig(args: &ServerArgs) -> Result<PathBuf, Failure> {
    let none = || {
        Failure::usage(
            "no kubeconfig: pass --kubeconfig FILE or set KUBECONFIG (the hub writes admin.kubeconfig into its --data-dir)",
        )
    };
    args.kubeconfig.clone().or_else(from_environment).ok_or_else(none)
}

/// $KUBECONFIG may name several files, as kubectl has it; the first that exists is used.
fn from_environment() -> Option<PathBuf> {
    let value = env::var_os("KUBECONFIG").filter(|value| !value.is_empty())?;
    let files: Vec<PathBuf> = env::split_paths(&value).filter(|path| !path.as_os_str().is_empty()).collect();
    files.iter().find(|path| Path::exists(path)).or_else(|| files.first()).cloned()
}

/// Runs one command to its end.
pub fn run<F: Future<Output = Result<(), Failure>>>(command: impl FnOnce() -> F) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::failed)?;
    let done = runtime.block_on(async { command().await });
    // A name lookup may still hang in a thread of its own; nobody waits for its answer any more.
    runtime.shutdown_background();
    done
}
