//! What is searched on members whose agents tell of it: those in pull mode that the hub does not dial.
//!
//! ```text
//!   ResourceRegistries ─▶ Asking ─▶ an annotation of the Cluster ─▶ its agent, where the member's owner lets it
//!                           │                                        │ reports, changes alone
//!                           └─ what is expected ─▶ Reported ◀────────┘ POST /karmada-hub/searched
//!                                                     └─▶ searches
//! ```
//!
//! It is in memory alone: a hub that begins has its agents tell all of it anew, once they look whether it still has it. An agent
//! tells what was asked for, of its own cluster, and there is so much room for it; where there is none the member is asked, as
//! without. With the Cluster, or when nothing is asked for, it goes.

mod asking;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use axum::body::{Body, to_bytes};
use http::{Method, Request, Response, StatusCode};
use karmada_api::consts::extension;
use karmada_apiserver::{
    authn::{UserInfo, agent_cluster},
    paths::{Paths, text},
};
use karmada_core::search::{
    Followed,
    told::{Answer, Kept, Part, REPORT, Read, Report, Verdict},
};
use karmada_env::Env;
use karmada_meta::{gvk::GroupResource, status::Status};
use karmada_reach::{Copied, Place};
use parking_lot::Mutex;
use tokio::task::spawn_blocking;

pub(crate) use self::asking::Asking;
use crate::known::searched::Searched;

/// What is kept of one cluster at most, and of all, in bytes.
const EACH: usize = 32 << 20;
const ALL: usize = 256 << 20;

/// See the module.
#[derive(Debug)]
pub(crate) struct Reported {
    searched: Arc<Searched>,
    all: Mutex<All>,
    env: Env,
}

#[derive(Debug, Default)]
struct All {
    clusters: HashMap<String, Member>,
    bytes: usize,
}

/// What is known of a cluster whose agent is asked.
#[derive(Debug, Default)]
struct Member {
    uid: String,
    wanted: BTreeSet<Followed>,
    kept: Kept,
    /// [`Env::now`] since when its agent may not have told all: it has said so, or is not heard.
    waits: Option<Duration>,
    silent: Option<Duration>,
}

impl Reported {
    /// Of nothing yet.
    pub(crate) fn new(searched: &Arc<Searched>, env: &Env) -> Self {
        Self { searched: searched.clone(), all: Mutex::default(), env: env.clone() }
    }

    /// Where agents tell.
    pub(crate) fn paths(self: &Arc<Self>) -> Paths {
        let reported = self.clone();
        Paths::default()
            .with(extension::SEARCHED_PATH, &[Method::POST], move |request| {
                let reported = reported.clone();
                async move { reported.answer(request).await }
            })
            .bodies_up_to(REPORT)
    }

    /// What the agent of a Cluster is asked for, which was last heard then if it is not heard now; where that is nothing, nothing
    /// is kept.
    fn expect(&self, cluster: &str, uid: &str, wanted: BTreeSet<Followed>, silent: Option<Duration>) {
        let mut all = self.all.lock();
        let All { clusters, bytes } = &mut *all;
        if wanted.is_empty() || clusters.get(cluster).is_some_and(|member| member.uid != uid) {
            *bytes -= clusters.remove(cluster).map_or(0, |gone| gone.kept.bytes());
        }
        if wanted.is_empty() {
            return;
        }
        let member = clusters.entry(cluster.to_owned()).or_default();
        uid.clone_into(&mut member.uid);
        member.silent = silent;
        if member.wanted != wanted {
            *bytes -= member.kept.bytes();
            member.kept.retain(&wanted);
            *bytes += member.kept.bytes();
            member.wanted = wanted;
        }
    }

    /// Nothing is asked of anybody any more.
    fn clear(&self) {
        *self.all.lock() = All::default();
    }

    /// What is kept of a kind on a cluster: of all of it, or of that one namespace.
    pub(crate) fn of(&self, cluster: &str, place: &Place) -> Option<Copied> {
        let api_version = place.api_version();
        let all = self.all.lock();
        let member = all.clusters.get(cluster)?;
        let (what, found) = member.kept.find(|what, all| {
            what.api_version == api_version
                && (what.namespace.is_empty() || what.namespace == place.namespace)
                && all.plural == place.resource
        })?;
        let since = [member.waits, member.silent].into_iter().flatten().min();
        Some(Copied {
            api_version,
            kind: what.kind.clone(),
            revision: found.revision.clone(),
            objects: found.objects.values().cloned().collect(),
            age: since.map(|since| self.env.now().saturating_sub(since)),
        })
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<Body>, Status> {
        let user = request.extensions().get::<UserInfo>();
        let cluster = user.and_then(agent_cluster).ok_or_else(|| {
            let why = "what is on a member is told by its agent alone";
            Status::forbidden(&GroupResource::default(), "", why)
        })?;
        let cluster = cluster.to_owned();
        let expected = self.all.lock().clusters.contains_key(&cluster);
        if !expected {
            let why = format!("cluster {cluster} is not asked what is searched on it, or not yet");
            return Err(Status::service_unavailable(why));
        }
        let body = to_bytes(request.into_body(), REPORT).await.map_err(Status::internal)?;
        let read = spawn_blocking(move || {
            let Report { waits, parts } =
                serde_json::from_slice(&body).map_err(|error| format!("the report: {error}"))?;
            let each = |(at, part): (usize, Part)| part.read().map_err(|why| format!("parts[{at}]: {why}"));
            Ok::<_, String>((waits, parts.into_iter().enumerate().map(each).collect::<Result<Vec<_>, _>>()?))
        });
        let (waits, parts) = read.await.map_err(Status::internal)?.map_err(Status::bad_request)?;
        let answer = self.take(&cluster, waits, parts)?;
        let answer = serde_json::to_string(&answer).map_err(Status::internal)?;
        Ok(text(StatusCode::OK, "application/json", answer))
    }

    /// Takes in what an agent tells.
    fn take(&self, cluster: &str, waits: u64, parts: Vec<Read>) -> Result<Answer, Status> {
        let mut answer = Answer::default();
        let now = self.env.now();
        let mut all = self.all.lock();
        let All { clusters, bytes } = &mut *all;
        let Some(member) = clusters.get_mut(cluster) else {
            return Err(Status::service_unavailable(format!(
                "cluster {cluster} is asked for nothing any more"
            )));
        };
        for part in parts {
            let what = part.what().clone();
            if !member.wanted.contains(&what) {
                answer.unwanted.push(what);
                continue;
            }
            let before = member.kept.bytes();
            let most = EACH.min(before + ALL.saturating_sub(*bytes));
            let verdict = member.kept.take(part, most);
            *bytes = *bytes - before + member.kept.bytes();
            match verdict {
                Verdict::Taken => {}
                Verdict::Again => answer.again.push(what),
                Verdict::NoRoom => {
                    tracing::info!(
                        cluster,
                        ?what,
                        "what is searched on a member is not kept: there is too much of it"
                    );
                    answer.unwanted.push(what);
                }
            }
        }
        member.waits = (waits > 0).then(|| now.saturating_sub(Duration::from_secs(waits)));
        Ok(answer)
    }
}

#[cfg(test)]
mod tests;
