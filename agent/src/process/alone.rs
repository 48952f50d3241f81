//! How an agent begins: with the credential for its hub, or, where what the hub said is kept, without one. Then the member half
//! goes on with what was kept, on a link to the hub that leads nowhere yet, and is joined by the hub half as soon as there is a
//! credential: whatever is wrong with that, what was wanted of the member is not less wanted.
//!
//! ```text
//!   is something kept? ── no ──▶ the credential is waited for ──▶ an agent
//!         │ yes
//!         └──▶ an agent ──▶ heals by what was kept
//!                 ▲
//!                 └── the credential, when it comes: the link leads to the hub
//! ```

use std::{future::ready, io, sync::Arc, time::Duration};

use futures::{
    FutureExt as _,
    future::{BoxFuture, pending},
};
use http::Uri;
use karmada_client::{
    Backoff, Endpoint, Link, LinkConfig, LinkStatus, Policy, Rest,
    kubeconfig::Credentials,
    link::{Dial, Identity, Io, Manner},
};
use karmada_env::Env;

use super::{Failure, USER_AGENT, admission::Ways};
use crate::{
    Place,
    hub::credential::{Credential, standing::Standing},
};

/// How long a credential may take that is where it should be.
const HEAD_START: Duration = Duration::from_millis(250);

/// Between attempts at a credential, or at what tells whether something is kept.
const RETRY: Policy = Policy::new(Duration::from_secs(1), Duration::from_secs(60));

/// What an agent begins with.
pub(super) enum Beginning {
    /// Its credential, and whether that was there before.
    With(Box<Credential>, bool),
    /// What was kept; the credential, and where it leads to, come later.
    Alone(BoxFuture<'static, (Credential, Endpoint)>),
}

/// Where something may be kept.
pub(super) struct Kept {
    pub(super) place: Place,
    pub(super) cluster: String,
    /// The namespace of the member, and the member.
    pub(super) member: (String, Rest),
}

impl Kept {
    /// Whether something is.
    async fn is_there(&self, env: &Env) -> bool {
        let (files, secrets) = karmada_member::remains(&self.cluster);
        match &self.place {
            Place::Folder(folder, _) => folder.join(files[0]).exists(),
            Place::Secrets => {
                let (namespace, member) = &self.member;
                let mut backoff = Backoff::new(RETRY);
                for name in secrets {
                    let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
                    loop {
                        match member.get(&path).await {
                            Ok(_) => return true,
                            Err(error) if error.is_not_found() => break,
                            Err(error) if error.is_forbidden() => return false,
                            // Without the member nothing can be done.
                            Err(_) => tokio::time::sleep(backoff.next(env)).await,
                        }
                    }
                }
                false
            }
            Place::Nowhere | Place::Memory(_) => false,
        }
    }
}

/// Waits for the credential, or, if something is kept, not for long.
pub(super) async fn begin(
    ways: &Arc<Ways>,
    standing: &Arc<Standing>,
    kept: Option<Kept>,
    env: &Env,
) -> Result<Beginning, Failure> {
    let obtaining = {
        let (ways, standing) = (Arc::clone(ways), Arc::clone(standing));
        async move { ways.obtain(&standing).await }
    };
    let mut obtaining = obtaining.boxed();
    let is_kept = async {
        match kept {
            Some(kept) => kept.is_there(env).await,
            None => false,
        }
    };
    let is_kept = is_kept.boxed().shared();
    let had_its_time = async {
        let (is_kept, ()) = tokio::join!(is_kept.clone(), tokio::time::sleep(HEAD_START));
        if !is_kept {
            pending::<()>().await;
        }
    };
    let begun = tokio::select! {
        biased;
        obtained = &mut obtaining => Some(obtained),
        () = had_its_time => None,
    };
    let first = match begun {
        Some(Ok((credential, was_there))) => {
            standing.waits_no_more();
            return Ok(Beginning::With(Box::new(credential), was_there));
        }
        // Somebody has to mend that; it is no reason to heal nothing.
        Some(Err(error)) => {
            // It may take as long as the member is away until it is known whether there is something to heal by.
            if is_kept.clone().now_or_never().is_none() && standing.waits(error.to_string()) {
                tracing::warn!(cluster = %ways.cluster, %error, "there is no credential for the hub; looking whether something was kept to go on with");
            }
            if !is_kept.await {
                return Err(error);
            }
            ready(Err(error)).boxed()
        }
        None => obtaining,
    };
    tracing::warn!("there is no credential for the hub yet; beginning with what was kept");
    let (ways, standing, env) = (Arc::clone(ways), Arc::clone(standing), env.clone());
    Ok(Beginning::Alone(comes(first, ways, standing, env).boxed()))
}

/// Waits until there is one, whatever is wrong with it meanwhile.
async fn comes(
    first: BoxFuture<'static, Result<(Credential, bool), Failure>>,
    ways: Arc<Ways>,
    standing: Arc<Standing>,
    env: Env,
) -> (Credential, Endpoint) {
    let mut backoff = Backoff::new(RETRY);
    let mut obtained = first.await;
    loop {
        let found = obtained.and_then(|(credential, _)| {
            let endpoint = ways.endpoint(&credential)?;
            Ok((credential, endpoint))
        });
        match found {
            Ok(found) => {
                standing.waits_no_more();
                return found;
            }
            Err(error) => {
                if standing.waits(error.to_string()) {
                    tracing::warn!(cluster = %ways.cluster, %error, "there is no credential for the hub, trying again");
                }
            }
        }
        tokio::time::sleep(backoff.next(&env)).await;
        obtained = ways.obtain(&standing).await;
    }
}

/// A client over a link that leads nowhere before it is told where ([`Identity::lead`]).
pub(super) fn client(ways: &Ways, manner: Manner, env: Env) -> (kube::Client, LinkStatus, Identity) {
    let invited = ways.invited.as_ref().and_then(|invited| format!("https://{}/", invited.hub).parse().ok());
    let endpoint = Endpoint {
        server: invited.unwrap_or_else(|| Uri::from_static("https://hub.invalid/")),
        tls: None,
        credentials: Credentials::None,
        namespace: String::new(),
        proxy: None,
        others: Vec::new(),
    };
    let Manner { narrow, patience } = manner;
    let config =
        LinkConfig { dialer: Arc::new(Nowhere), narrow, patience, ..LinkConfig::new(endpoint, USER_AGENT) };
    let link = Link::new(config, env);
    let (status, identity) = (link.status(), link.identity());
    (kube::Client::new(link, "default"), status, identity)
}

/// Reaches nobody.
struct Nowhere;

impl Dial for Nowhere {
    fn dial(&self) -> BoxFuture<'static, io::Result<(Box<dyn Io>, String)>> {
        ready(Err(io::Error::other("there is no credential for the hub yet"))).boxed()
    }
}
