//! `karmada-hub logs`, `exec`, `top` and `port-forward`: into a member cluster, through the hub's `clusters/NAME/proxy`, for
//! people without kubectl or karmadactl.
//!
//! The hub judges who may, the member what they may do there. Each request has a connection of its own, by which sessions are
//! carried as they are with kubectl.

pub(super) mod exec;
pub(super) mod forward;
pub(super) mod live;
mod terminal;
pub(super) mod top;

use std::io::{ErrorKind, Write as _};

use futures::AsyncReadExt as _;
use k8s_openapi::api::core::v1::Pod;
use karmada_client::{Kubeconfig, link::direct};
use karmada_env::Env;
use kube::{Api, Client, api::LogParams};

use super::{
    Failure,
    args::{LogsArgs, ServerArgs},
    ask::{self, Server},
};

/// Who this is for members.
const USER_AGENT: &str = concat!("karmada-hub/", env!("CARGO_PKG_VERSION"));
/// What is read of a log at a time.
const PIECE: usize = 16 << 10;

/// A member, through the hub.
pub(super) struct Member {
    pub(super) client: Client,
    /// Where namespaced objects are, unless they say otherwise.
    pub(super) namespace: String,
    name: String,
}

impl Member {
    /// Reads the kubeconfig, and looks whether the hub answers.
    pub(super) async fn open(name: &str, args: &ServerArgs, env: &Env) -> Result<Self, Failure> {
        let server = Server::open(args, env)?;
        // What is wrong with the way to the hub is said better by its client.
        server.reach().await?;
        let path = ask::kubeconfig(args)?;
        let config = Kubeconfig::load(&path).map_err(Failure::usage)?;
        let endpoint = config.endpoint(args.context.as_deref()).map_err(Failure::usage)?;
        let prefix = prefix(name)?;
        let client = direct::client(&endpoint, &prefix, USER_AGENT);
        Ok(Self { client, namespace: server.namespace, name: name.to_owned() })
    }

    pub(super) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// An error of the way, or of the member, for a person.
    pub(super) fn why(&self, error: &kube::Error) -> String {
        let why = match error {
            kube::Error::Api(status) => status.message.clone(),
            kube::Error::Service(error) => error.to_string(),
            other => other.to_string(),
        };
        // The hub's own words name the cluster.
        match why.contains(&self.name) {
            true => why,
            false => format!("cluster {}: {why}", self.name),
        }
    }

    /// The same as the end of a command.
    pub(super) fn failed(&self, what: &str, error: &kube::Error) -> Failure {
        Failure::failed(format!("{what}: {}", self.why(error)))
    }
}

/// Where a member's API is on the hub.
pub(super) fn prefix(name: &str) -> Result<String, Failure> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    if name.is_empty() || !name.chars().all(plain) {
        return Err(Failure::usage(format!("{name:?} is no cluster's name")));
    }
    Ok(format!("/apis/cluster.karmada.io/v1alpha1/clusters/{name}/proxy"))
}

/// Prints what a container has written.
pub(super) async fn logs(args: LogsArgs, env: Env) -> Result<(), Failure> {
    let member = Member::open(&args.cluster, &args.server, &env).await?;
    let params = LogParams {
        container: args.container,
        follow: args.follow,
        previous: args.previous,
        tail_lines: args.tail.map(i64::from),
        since_seconds: args.since.map(|since| i64::try_from(since.as_secs().max(1)).unwrap_or(i64::MAX)),
        timestamps: args.timestamps,
        ..LogParams::default()
    };
    let what = format!("logs of {}/{}", member.namespace, args.pod);
    let stream = member.pods().log_stream(&args.pod, &params).await;
    let mut stream = std::pin::pin!(stream.map_err(|error| member.failed(&what, &error))?);
    let mut piece = vec![0; PIECE];
    let mut out = std::io::stdout().lock();
    loop {
        // What breaks off is no end: whoever reads must see it.
        let read = stream.read(&mut piece).await;
        let read = read.map_err(|error| Failure::failed(format!("{what}: it broke off: {error}")))?;
        if read == 0 {
            return Ok(());
        }
        match out.write_all(&piece[..read]).and_then(|()| out.flush()) {
            // Whoever reads has had enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            written => written.map_err(Failure::failed)?,
        }
    }
}
