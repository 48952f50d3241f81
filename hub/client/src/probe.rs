//! A look at the way to a server, step by step, for somebody who wants to know where it ends.
//!
//! Each step has its own bound in time, and the next one is only made where it can be. Nothing that is found is a secret.

use std::{net::SocketAddr, time::Duration};

use karmada_env::Env;
use karmada_meta::way::Server;
use serde_json::{Value, json};
use tokio::{
    net::{TcpStream, lookup_host},
    time::timeout,
};

use crate::{Endpoint, Error, LinkState, LinkStatus, Rest, link::client_for};

/// For a name.
const RESOLVE: Duration = Duration::from_secs(4);
/// For a connection, to all of its addresses.
const CONNECT: Duration = Duration::from_secs(5);
/// For TLS and an answer.
const ANSWER: Duration = Duration::from_secs(9);

/// All steps.
#[derive(Clone)]
pub struct Probed {
    /// Step by step.
    pub found: Server,
    /// What `/version` said.
    pub version: Option<Value>,
    /// For more questions.
    pub rest: Rest,
}

impl std::fmt::Debug for Probed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Probed").field("found", &self.found).finish_non_exhaustive()
    }
}

/// Whether a server, or the proxy in front of it (how it is shown, its host and port), can be reached.
pub async fn reach(host: &str, port: u16, proxy: Option<(String, &str, u16)>, env: &Env) -> Server {
    let (dialled, at) = match &proxy {
        Some((_, host, port)) => (*host, *port),
        None => (host, port),
    };
    let dialled = dialled.trim_start_matches('[').trim_end_matches(']');
    let addresses = match timeout(RESOLVE, lookup_host((dialled, at))).await {
        Ok(Ok(found)) => Ok(found.collect::<Vec<SocketAddr>>()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", RESOLVE.as_secs())),
    };
    let mut found = Server {
        host: host.to_owned(),
        port,
        proxy: proxy.map(|(shown, ..)| shown),
        addresses: Some(addresses.clone().map(|all| all.iter().map(ToString::to_string).collect())),
        ..Server::default()
    };
    let addresses = addresses.unwrap_or_default();
    if !addresses.is_empty() {
        let begun = env.now();
        found.connected = Some(match timeout(CONNECT, TcpStream::connect(&*addresses)).await {
            Ok(Ok(_)) => Ok(env.now().saturating_sub(begun)),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {} s", CONNECT.as_secs())),
        });
    }
    found
}

/// Goes the whole way to a server.
pub async fn probe(endpoint: &Endpoint, user_agent: &'static str, env: &Env) -> Probed {
    let usual = if endpoint.tls.is_some() { 443 } else { 80 };
    let (host, port) =
        (endpoint.server.host().unwrap_or_default(), endpoint.server.port_u16().unwrap_or(usual));
    let proxy = endpoint.proxy.as_ref().map(|proxy| (proxy.to_string(), proxy.host(), proxy.port()));
    let mut found = reach(host, port, proxy, env).await;
    let (client, link) = client_for(endpoint.clone(), user_agent, env.clone());
    let rest = Rest::new(client).with_deadline(ANSWER).small();
    let mut version = None;
    if matches!(found.connected, Some(Ok(_))) {
        found.answered = Some(match speak(&rest, &link).await {
            Ok(said) => {
                version = Some(said);
                Ok((200, String::new()))
            }
            Err(failed) => failed,
        });
        found.ahead = link.counters().clock_ahead();
    }
    Probed { found, version, rest }
}

/// What somebody wants to do: verb, group, resource, and namespace, which is empty for everywhere.
pub type Wanted<'a> = (&'a str, &'a str, &'a str, &'a str);

/// Which of these a server does not let us do, in words.
///
/// # Errors
/// When it does not say.
pub async fn refused(rest: &Rest, wanted: &[Wanted<'_>]) -> Result<Vec<String>, Error> {
    let mut refused = Vec::new();
    for (verb, group, resource, namespace) in wanted {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": verb, "group": group, "resource": resource, "namespace": namespace}},
        });
        let answer = rest.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review).await?;
        if answer["status"]["allowed"] != true {
            let place = if namespace.is_empty() { String::new() } else { format!(" in {namespace}") };
            refused.push(format!("{verb} {resource}{place}"));
        }
    }
    Ok(refused)
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
        let nobody = reach("no-such-host.invalid", 1, None, &env).await;
        assert!(matches!(nobody.addresses, Some(Err(_))) && nobody.connected.is_none(), "{nobody:?}");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let there = reach("127.0.0.1", port, None, &env).await;
        assert!(matches!(there.connected, Some(Ok(_))), "{there:?}");
        drop(listener);
        let closed = reach("[127.0.0.1]", port, None, &env).await;
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
        assert!(matches!(probed.found.connected, Some(Ok(_))));
        assert!(matches!(probed.found.answered, Some(Err(_))), "{:?}", probed.found);
    }
}
