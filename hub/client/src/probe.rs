//! A look at the way to a server, step by step, for somebody who wants to know where it ends.
//!
//! Each step has its own bound in time, and the next one is only made where it can be. Nothing that is found is a secret.

use std::{net::SocketAddr, time::Duration};

use karmada_env::Env;
use serde_json::Value;
use tokio::{
    net::{TcpStream, lookup_host},
    time::timeout,
};

use crate::{Endpoint, LinkState, LinkStatus, Rest, link::client_for};

/// For a name.
const RESOLVE: Duration = Duration::from_secs(4);
/// For a connection, to all of its addresses.
const CONNECT: Duration = Duration::from_secs(5);
/// For TLS and an answer.
const ANSWER: Duration = Duration::from_secs(9);

/// The first steps: a name, and a connection.
#[derive(Clone, Debug)]
pub struct Reached {
    /// The addresses that the name stands for.
    pub addresses: Result<Vec<SocketAddr>, String>,
    /// How long the connection took; none where there is no address.
    pub connected: Option<Result<Duration, String>>,
}

/// All steps.
#[derive(Clone)]
pub struct Probed {
    /// Whether whom we dial, the server or its proxy, can be reached.
    pub reached: Reached,
    /// The code of the answer to a request with our credential, and what it said; or why none came. None where there is no
    /// connection.
    pub answered: Option<Result<(u16, String), String>>,
    /// What `/version` said.
    pub version: Option<Value>,
    /// By how many seconds its clock is ahead of ours.
    pub ahead: Option<i64>,
    /// For more questions.
    pub rest: Rest,
}

impl std::fmt::Debug for Probed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Probed").field("reached", &self.reached).finish_non_exhaustive()
    }
}

/// Whether a name and a port can be reached.
pub async fn reach(host: &str, port: u16, env: &Env) -> Reached {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let addresses = match timeout(RESOLVE, lookup_host((host, port))).await {
        Ok(Ok(found)) => Ok(found.collect::<Vec<_>>()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", RESOLVE.as_secs())),
    };
    let dialled = addresses.as_deref().unwrap_or_default();
    if dialled.is_empty() {
        return Reached { addresses, connected: None };
    }
    let begun = env.now();
    let connected = match timeout(CONNECT, TcpStream::connect(dialled)).await {
        Ok(Ok(_)) => Ok(env.now().saturating_sub(begun)),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", CONNECT.as_secs())),
    };
    Reached { addresses, connected: Some(connected) }
}

/// Goes the whole way to a server.
pub async fn probe(endpoint: &Endpoint, user_agent: &'static str, env: &Env) -> Probed {
    let usual = if endpoint.tls.is_some() { 443 } else { 80 };
    let reached = match &endpoint.proxy {
        Some(proxy) => reach(proxy.host(), proxy.port(), env).await,
        None => {
            let port = endpoint.server.port_u16().unwrap_or(usual);
            reach(endpoint.server.host().unwrap_or_default(), port, env).await
        }
    };
    let (client, link) = client_for(endpoint.clone(), user_agent, env.clone());
    let rest = Rest::new(client).with_deadline(ANSWER).small();
    let mut probed = Probed { reached, answered: None, version: None, ahead: None, rest };
    if matches!(probed.reached.connected, Some(Ok(_))) {
        let (answered, version) = match speak(&probed.rest, &link).await {
            Ok(version) => (Ok((200, String::new())), Some(version)),
            Err(failed) => (failed, None),
        };
        (probed.answered, probed.version) = (Some(answered), version);
        probed.ahead = link.counters().clock_ahead();
    }
    probed
}

/// The server's version, or what came instead of it.
async fn speak(rest: &Rest, link: &LinkStatus) -> Result<Value, Result<(u16, String), String>> {
    let mut state = link.state();
    // The first attempt tells what is wrong; more of them take time.
    let settled = state.wait_for(|state| match state {
        LinkState::Connecting { failures, .. } => *failures > 0,
        LinkState::Connected { .. } | LinkState::Closed => true,
    });
    let failed = match timeout(ANSWER, settled).await {
        Err(_) | Ok(Err(_)) => Some(format!("no answer within {} s", ANSWER.as_secs())),
        Ok(Ok(state)) => match &*state {
            LinkState::Connecting { error, .. } => {
                Some(error.as_ref().map_or_else(|| "no connection".to_owned(), ToString::to_string))
            }
            LinkState::Connected { .. } | LinkState::Closed => None,
        },
    };
    if let Some(failed) = failed {
        return Err(Err(failed));
    }
    rest.get("/version").await.map_err(|error| match error.code() {
        Some(code) => Ok((code, error.to_string())),
        None => Err(error.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::kubeconfig::Credentials;

    fn endpoint(server: &str) -> Endpoint {
        Endpoint {
            server: server.parse().unwrap(),
            tls: None,
            credentials: Credentials::None,
            namespace: "default".to_owned(),
            proxy: None,
            others: Vec::new(),
        }
    }

    #[tokio::test]
    async fn a_name_that_is_none_and_a_port_that_nobody_has() {
        let env = Env::system();
        let nobody = reach("no-such-host.invalid", 1, &env).await;
        assert!(nobody.addresses.is_err() && nobody.connected.is_none(), "{nobody:?}");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let there = reach("127.0.0.1", port, &env).await;
        assert!(matches!(there.connected, Some(Ok(_))), "{there:?}");
        drop(listener);
        let closed = reach("[127.0.0.1]", port, &env).await;
        assert!(closed.connected.is_some_and(|connected| connected.is_err()));
    }

    #[tokio::test]
    async fn somebody_who_does_not_speak_is_told_apart_from_nobody() {
        let env = Env::system();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            // Each connection is closed at once.
            while let Ok((stream, _)) = listener.accept().await {
                drop(stream);
            }
        });
        let probed = probe(&endpoint(&format!("http://{address}")), "test", &env).await;
        assert!(matches!(probed.reached.connected, Some(Ok(_))));
        assert!(matches!(probed.answered, Some(Err(_))), "{:?}", probed.answered);
    }
}
