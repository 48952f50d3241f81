//! Members of a hub without an API of its own: reached by its listener, for users of the server that it works on.
//!
//! ```text
//!   kubectl ─► listener: who, as whom, may they? (asked of the server: delegated) ─► WhileLeading ─► Reach ─► member
//!   agent ───► the same, by the path of tunnels
//! ```
//!
//! Only the hub that leads carries anything: agents are asked for tunnels by one hub. What it has open ends when it leads no
//! longer. A tunnel ends as well when the server says that its agent may not have it any more: certificates of the server's are
//! not revoked. And it ends when the Cluster that it was opened for is gone, whatever was made of its name since: another member
//! may be meant by that.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use futures::future::{BoxFuture, Either, select};
use http::{Request, Response};
use karmada_api::{cluster::Cluster, consts::extension};
use karmada_apiserver::{
    authn::{UserInfo, agent_cluster},
    authz::Decision,
    carried::{Call, Carried, CarriedPath, Carrier, Ways},
    delegate::{About, Delegate, Question},
    paths::TUNNEL,
};
use karmada_client::{Error, Patch, Rest, latest};
use karmada_env::Env;
use karmada_meta::status::Status;
use karmada_objects::kinds::{CLUSTERS, SECRETS};
use karmada_reach::{Figures, Place, Reach, Registry, Turn};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{
    Phase, Remote,
    delegated::{Answers, Asker},
};
use crate::{engine::members::most, known::Followed};

/// How old what the server has said of a Cluster may be: many requests for one member come at a time.
const AGE: Duration = Duration::from_secs(1);
/// Of so many Clusters.
const KEPT: usize = 1024;

/// Between two looks at whether an agent may still have its tunnel: so long, and up to twice that.
const LOOK: Duration = Duration::from_secs(30);

/// What the listener of a hub carries on, and what is counted of it. It writes by `writes`, which a hub that does not lead is kept
/// from; `delegate` says what agents may.
pub fn ways(
    remote: &Remote,
    (rest, writes): (&Rest, Rest),
    delegate: &Arc<dyn Delegate>,
    env: &Env,
    stops: CancellationToken,
) -> (Ways, Arc<Figures>) {
    let clusters = Answers::new("what a Cluster is", KEPT);
    let known = Arc::new(Known { rest: rest.clone(), writes, followed: remote.followed.clone(), clusters });
    let phase = remote.phase();
    let reach = Reach::new(known.clone(), most(), env.clone());
    let figures = reach.figures().clone();
    let leading = |by: Arc<dyn Carrier>| Arc::new(WhileLeading { phase: phase.clone(), by });
    let tunnels = reach.tunnels();
    let allowed = WhileAllowed { delegate: delegate.clone(), known, env: env.clone(), by: tunnels.by };
    let tunnels = CarriedPath { by: leading(Arc::new(allowed)), ..tunnels };
    let proxy = reach.into_proxy();
    let proxy = Carried { by: leading(proxy.by), ..proxy };
    (Ways { subresources: vec![proxy], paths: vec![tunnels], stops }, figures)
}

/// Carries as long as this hub leads.
struct WhileLeading {
    phase: latest::Receiver<Phase>,
    by: Arc<dyn Carrier>,
}

impl Carrier for WhileLeading {
    fn carry(&self, call: Call) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        let (mut phase, by) = (self.phase.clone(), self.by.clone());
        Box::pin(async move {
            {
                let now = phase.borrow_and_update();
                if !now.leads() {
                    let why = format!("this hub does not reach members now: {}", now.describe());
                    return Err(Status::service_unavailable(why));
                }
            }
            let ends = Box::pin(async move {
                let lost = Box::pin(async move { drop(phase.wait_for(|phase| !phase.leads()).await) });
                match select(call.ends, lost).await {
                    Either::Left(_) | Either::Right(_) => {}
                }
            });
            by.carry(Call { ends, ..call }).await
        })
    }
}

/// Lets an agent in as long as the server lets it have a tunnel, and its Cluster is the one that it came for.
struct WhileAllowed {
    delegate: Arc<dyn Delegate>,
    known: Arc<dyn Registry>,
    env: Env,
    by: Arc<dyn Carrier>,
}

impl Carrier for WhileAllowed {
    fn carry(&self, call: Call) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        let about = About::Path(TUNNEL.to_owned());
        let question = Question { user: call.user.clone(), verb: "get".to_owned(), about };
        let (delegate, known, env, by) =
            (self.delegate.clone(), self.known.clone(), self.env.clone(), self.by.clone());
        Box::pin(async move {
            // Whoever is no agent is sent away.
            let cluster = agent_cluster(&call.user).map(str::to_owned);
            let came_for = match &cluster {
                Some(name) => Some((name.clone(), uid_of(&*known, name).await?)),
                None => None,
            };
            let refused = Box::pin(refused((delegate, known), question, came_for, env));
            let ends = Box::pin(async move {
                match select(call.ends, refused).await {
                    Either::Left(_) | Either::Right(_) => {}
                }
            });
            by.carry(Call { ends, ..call }).await
        })
    }
}

/// The uid of the Cluster of a name; none where there is no such Cluster.
async fn uid_of(known: &dyn Registry, cluster: &str) -> Result<Option<String>, Status> {
    Ok(known.cluster(cluster).await?.and_then(|cluster| cluster.metadata.uid))
}

/// Resolves when the server says that something is not allowed, or the Cluster that was meant is gone. That it says nothing ends
/// nothing.
async fn refused(
    (delegate, known): (Arc<dyn Delegate>, Arc<dyn Registry>),
    question: Question,
    came_for: Option<(String, Option<String>)>,
    env: Env,
) {
    loop {
        sleep(env.jitter(LOOK, 1.0)).await;
        if let Some((cluster, uid)) = &came_for
            && uid_of(&*known, cluster).await.is_ok_and(|now| now != *uid)
        {
            tracing::info!(cluster, "a tunnel ends: the Cluster that it was opened for is gone");
            return;
        }
        match delegate.judge(&question).await {
            Ok((Decision::Allow, _)) | Err(_) => {}
            Ok((Decision::NoOpinion | Decision::Deny(_), _)) => {
                tracing::info!(
                    user = question.user.name,
                    "a tunnel ends: its agent may not read its Cluster any more"
                );
                return;
            }
        }
    }
}

/// Clusters and Secrets as the server has them.
struct Known {
    rest: Rest,
    writes: Rest,
    /// Clusters that controllers follow. The server is asked about others.
    followed: Followed,
    clusters: Arc<Answers<Option<Arc<Cluster>>>>,
}

/// That the server has not answered what is to be known of a member.
fn unknown(what: &str, error: &Error) -> Status {
    Status::service_unavailable(format!("the API server does not give {what}: {error}"))
}

/// What there is not where the API is another's.
fn not_here(what: &str) -> Status {
    Status {
        status: "Failure".to_owned(),
        message: format!("{what} needs a hub with an API of its own: ask for one cluster, by its name"),
        reason: "NotImplemented".to_owned(),
        code: 501,
        ..Status::internal("")
    }
}

impl Registry for Known {
    fn cluster(&self, name: &str) -> BoxFuture<'_, Result<Option<Cluster>, Status>> {
        let name = name.to_owned();
        Box::pin(async move {
            if let Some(cluster) = self.followed.get(&name) {
                return Ok(Some(Cluster::clone(&cluster)));
            }
            let key = Sha256::digest(&name).into();
            let ask = || {
                let rest = self.rest.clone();
                async move {
                    let cluster = match rest.get(&CLUSTERS.object(None, &name)).await {
                        Ok(cluster) => cluster,
                        Err(error) if error.is_not_found() => return Ok(None),
                        Err(error) => return Err(unknown("the Cluster", &error)),
                    };
                    let unreadable =
                        |error| Status::internal(format!("cluster {name} cannot be read: {error}"));
                    Cluster::deserialize(&cluster).map(|cluster| Some(Arc::new(cluster))).map_err(unreadable)
                }
            };
            let cluster = self.clusters.get((key, Asker::Known), AGE, || Ok(()), ask).await?;
            Ok(cluster.as_deref().cloned())
        })
    }

    fn clusters(&self) -> BoxFuture<'_, Result<Vec<String>, Status>> {
        Box::pin(std::future::ready(Err(not_here("a request to all clusters"))))
    }

    fn searched<'a>(&'a self, _: &'a Place, _: Turn) -> BoxFuture<'a, Result<Option<Vec<String>>, Status>> {
        Box::pin(std::future::ready(Err(not_here("a search"))))
    }

    fn own<'a>(&'a self, _: &'a UserInfo, _: Request<Body>) -> BoxFuture<'a, Result<Response<Body>, Status>> {
        Box::pin(std::future::ready(Err(not_here("a request to all clusters"))))
    }

    /// Certificates of the server's are not revoked, and of a Cluster that nobody follows nothing is known without asking.
    fn agent(&self, cluster: &str) -> String {
        self.followed.get(cluster).and_then(|cluster| cluster.metadata.uid.clone()).unwrap_or_default()
    }

    /// RBAC keeps an agent from no field of its Cluster. The webhooks that do may not be there, or not have been.
    fn is_guarded(&self) -> bool {
        false
    }

    fn secret(&self, namespace: &str, name: &str) -> BoxFuture<'_, Result<Option<Value>, Status>> {
        let path = SECRETS.object(Some(namespace), name);
        Box::pin(async move {
            match self.rest.get(&path).await {
                Ok(secret) => Ok(Some(secret)),
                Err(error) if error.is_not_found() => Ok(None),
                Err(error) => Err(unknown("the Secret", &error)),
            }
        })
    }

    fn call<'a>(&'a self, cluster: &'a str, number: &'a str) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let patch = json!({"metadata": {"annotations": {extension::TUNNEL_CALL: number}}});
            let asked = self.writes.patch(&CLUSTERS.object(None, cluster), Patch::Merge, &patch).await;
            asked.map(drop).map_err(|error| unknown("the number to its agent", &error))
        })
    }
}

#[cfg(test)]
mod tests;
