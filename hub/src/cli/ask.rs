//! What `get` and `apply` have in common: one server, one runtime, one answer.

use std::{
    env,
    path::{Path, PathBuf},
    time::Duration,
};

use karmada_client::{Kubeconfig, Rest, link::client_for};
use karmada_env::Env;

use super::{Failure, args::ServerArgs};
use crate::objects::Objects;

/// A person waits: a server that says nothing for this long is reported as such.
const PATIENCE: Duration = Duration::from_secs(12);

/// The server that a command line names.
pub(super) struct Server {
    pub objects: Objects,
    /// Where namespaced objects are, unless they say otherwise.
    pub namespace: String,
}

impl Server {
    /// Reads the kubeconfig; nothing is asked of the server yet.
    pub(super) fn open(args: &ServerArgs, env: &Env) -> Result<Self, Failure> {
        let path = match &args.kubeconfig {
            Some(path) => path.clone(),
            None => from_environment()
                .ok_or_else(|| Failure::usage("no kubeconfig: pass --kubeconfig FILE or set KUBECONFIG"))?,
        };
        let kubeconfig = Kubeconfig::load(&path).map_err(Failure::usage)?;
        let endpoint = kubeconfig.endpoint(args.context.as_deref()).map_err(Failure::usage)?;
        let namespace = args.namespace.clone().unwrap_or_else(|| endpoint.namespace.clone());
        let (client, _) =
            client_for(endpoint, concat!("karmada-hub/", env!("CARGO_PKG_VERSION")), env.clone());
        Ok(Self { objects: Objects::new(Rest::new(client).with_deadline(PATIENCE)), namespace })
    }
}

/// $KUBECONFIG may name several files, as kubectl has it; the first that exists is used.
fn from_environment() -> Option<PathBuf> {
    let value = env::var_os("KUBECONFIG").filter(|value| !value.is_empty())?;
    let files: Vec<PathBuf> = env::split_paths(&value).filter(|path| !path.as_os_str().is_empty()).collect();
    files.iter().find(|path| Path::exists(path)).or_else(|| files.first()).cloned()
}

/// Runs one command to its end.
pub(super) fn run<F: Future<Output = Result<(), Failure>>>(
    command: impl FnOnce() -> F,
) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::failed)?;
    let done = runtime.block_on(async { command().await });
    // A name lookup may still hang in a thread of its own; nobody waits for its answer any more.
    runtime.shutdown_background();
    done
}
