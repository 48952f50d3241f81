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
//!
//! What is kept is current as long as its agent says so ([`Kept::hear`]), and until its Cluster is not heard. Then it has an age.
//!
//! A report is somebody else's. One of a cluster is read at a time, and few of all: what waits for a turn is sent away. Of what
//! nobody asked for nothing is read.

mod asking;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
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
    told::{Answer, Kept, REPORT, Read, Report, Verdict},
};
use karmada_env::Env;
use karmada_meta::{gvk::GroupResource, status::Status};
use karmada_reach::{Copied, Place};
use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
};

pub(crate) use self::asking::Asking;
use crate::known::searched::Searched;

/// What is kept of one cluster at most, and of all, in bytes.
const EACH: usize = 32 << 20;
const ALL: usize = 256 << 20;
/// Reports that are read at a time, and after how many seconds others come again.
const READ: usize = 4;
const AGAIN: u32 = 2;
/// For so long what is current counts as that at most.
const HOLDS: Duration = Duration::from_secs(2 * 3600);

/// See the module.
#[derive(Debug)]
pub(crate) struct Reported {
    searched: Arc<Searched>,
    all: Mutex<All>,
    turns: Arc<Turns>,
    env: Env,
}

/// Whose report is read.
#[derive(Debug)]
struct Turns {
    all: Arc<Semaphore>,
    clusters: Mutex<HashSet<String>>,
}

/// For as long as one is read, whether anybody waits for the answer or not.
#[derive(Debug)]
struct Turn {
    turns: Arc<Turns>,
    cluster: String,
    _one: OwnedSemaphorePermit,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.clusters.lock().remove(&self.cluster);
    }
}

impl Turns {
    fn of(self: &Arc<Self>, cluster: &str) -> Result<Turn, Status> {
        let busy = |why: String| Status::too_many_requests(why, AGAIN);
        let one = self.all.clone().try_acquire_owned();
        let one =
            one.map_err(|_| busy("too many agents tell what is searched on their members".to_owned()))?;
        if !self.clusters.lock().insert(cluster.to_owned()) {
            return Err(busy(format!("another report of what is searched on {cluster} is being read")));
        }
        Ok(Turn { turns: self.clone(), cluster: cluster.to_owned(), _one: one })
    }
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
    wanted: Arc<BTreeSet<Followed>>,
    kept: Kept,
    /// Of the last report.
    number: u64,
}

/// A report whose objects were read, as far as they were asked for.
#[derive(Debug, Default)]
struct Told {
    report: Report,
    parts: Vec<Read>,
    unwanted: Vec<Followed>,
}

/// Reads a report: of what is not wanted, nothing.
fn read(body: &[u8], wanted: &BTreeSet<Followed>) -> Result<Told, String> {
    let mut report: Report = serde_json::from_slice(body).map_err(|error| format!("the report: {error}"))?;
    let (mut parts, mut unwanted) = (Vec::new(), Vec::new());
    for (at, part) in std::mem::take(&mut report.parts).into_iter().enumerate() {
        match wanted.contains(&part.what) {
            true => parts.push(part.read().map_err(|why| format!("parts[{at}]: {why}"))?),
            false => unwanted.push(part.what),
        }
    }
    Ok(Told { report, parts, unwanted })
}

impl Reported {
    /// Of nothing yet.
    pub(crate) fn new(searched: &Arc<Searched>, env: &Env) -> Self {
        let turns = Turns { all: Arc::new(Semaphore::new(READ)), clusters: Mutex::default() };
        Self { searched: searched.clone(), all: Mutex::default(), turns: Arc::new(turns), env: env.clone() }
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

    /// What the agent of a Cluster is asked for, and whether it is heard: if not, nothing is current until it says so again. Where
    /// nothing is asked for, nothing is kept.
    fn expect(&self, cluster: &str, uid: &str, wanted: BTreeSet<Followed>, heard: bool) {
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
        if !heard {
            member.kept.doubt();
        }
        if *member.wanted != wanted {
            *bytes -= member.kept.bytes();
            member.kept.retain(&wanted);
            *bytes += member.kept.bytes();
            member.wanted = Arc::new(wanted);
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
        let now = self.env.now();
        let found = member.kept.find(now, |what, all| {
            what.api_version == api_version
                && (what.namespace.is_empty() || what.namespace == place.namespace)
                && all.plural == place.resource
        })?;
        Some(Copied {
            api_version,
            kind: found.what.kind.clone(),
            revision: found.all.revision.clone(),
            objects: found.all.objects.values().cloned().collect(),
            age: found.as_of.map(|as_of| now.saturating_sub(as_of)),
        })
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<Body>, Status> {
        let user = request.extensions().get::<UserInfo>();
        let cluster = user.and_then(agent_cluster).ok_or_else(|| {
            let why = "what is on a member is told by its agent alone";
            Status::forbidden(&GroupResource::default(), "", why)
        })?;
        let cluster = cluster.to_owned();
        let wanted = self.all.lock().clusters.get(&cluster).map(|member| member.wanted.clone());
        let wanted = wanted.ok_or_else(|| {
            let why = format!("cluster {cluster} is not asked what is searched on it, or not yet");
            Status::service_unavailable(why)
        })?;
        let turn = self.turns.of(&cluster)?;
        let body = to_bytes(request.into_body(), REPORT).await.map_err(Status::internal)?;
        let read = spawn_blocking(move || (read(&body, &wanted), turn));
        let (told, _turn) = read.await.map_err(Status::internal)?;
        let answer = self.take(&cluster, told.map_err(Status::bad_request)?)?;
        let answer = serde_json::to_string(&answer).map_err(Status::internal)?;
        Ok(text(StatusCode::OK, "application/json", answer))
    }

    /// Takes in what an agent tells.
    fn take(&self, cluster: &str, told: Told) -> Result<Answer, Status> {
        let Told { report, parts, unwanted } = told;
        let mut answer = Answer { unwanted, ..Answer::default() };
        let now = self.env.now();
        let mut all = self.all.lock();
        let All { clusters, bytes } = &mut *all;
        let Some(member) = clusters.get_mut(cluster) else {
            return Err(Status::service_unavailable(format!(
                "cluster {cluster} is asked for nothing any more"
            )));
        };
        if report.number <= member.number {
            return Ok(Answer { behind: Some(member.number), ..Answer::default() });
        }
        member.number = report.number;
        let others = *bytes - member.kept.bytes();
        report.withdrawn.iter().for_each(|what| member.kept.withdraw(what));
        for part in parts {
            let what = part.what().clone();
            if !member.wanted.contains(&what) {
                answer.unwanted.push(what);
                continue;
            }
            // Nobody has more than is left then, so that something is left for everybody. What is there may stay.
            let most = EACH.min(ALL.saturating_sub(others) / 2).max(member.kept.bytes());
            match member.kept.take(part, most) {
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
        let holds = Duration::from_secs(report.holds).min(HOLDS);
        for what in member.kept.hear(&report.kinds, now, holds) {
            let Answer { again, unwanted, .. } = &mut answer;
            if !again.contains(&what) && !unwanted.contains(&what) {
                if member.wanted.contains(&what) { again.push(what) } else { unwanted.push(what) }
            }
        }
        *bytes = others + member.kept.bytes();
        Ok(answer)
    }
}

#[cfg(test)]
mod tests;
