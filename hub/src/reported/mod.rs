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
//! A report is somebody else's. One of a cluster comes at a time, and so many of all: whoever has no turn is sent away before a byte
//! of it is read. Few of them are taken apart at a time. They take no seats from other requests. Of what nobody asked for nothing is
//! read.
//!
//! Half of the room is everybody's, in equal shares, and what is left of the other half is for who comes first, by halves.

mod asking;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::body::{Body, to_bytes};
use http::{Method, Request, Response, StatusCode};
use karmada_api::consts::extension;
use karmada_apiserver::{
    authn::{UserInfo, agent_cluster},
    paths::{self, Paths, text},
};
use karmada_core::search::{
    Followed,
    told::{Answer, KEPT, Kept, REPORT, Read, Report, Verdict},
};
use karmada_env::Env;
use karmada_meta::{gvk::GroupResource, status::Status};
use karmada_reach::{Copied, Figures, Place};
use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
};

pub(crate) use self::asking::Asking;
use crate::known::searched::Searched;

/// What is kept of one cluster at most, and of all, in bytes.
const EACH: usize = KEPT;
const ALL: usize = 256 << 20;
/// Reports that come at a time, and within how many seconds others come again.
const COMING: usize = 32;
const AGAIN: u32 = 10;
/// Reports that are taken apart at a time.
const READ: usize = 4;
/// For so long what is current counts as that at most.
const HOLDS: Duration = Duration::from_secs(2 * 3600);
/// An agent that tells says something more often than this, whatever its link costs.
const MUTE: Duration = Duration::from_secs(6 * 3600);

/// See the module.
#[derive(Debug)]
pub(crate) struct Reported {
    searched: Arc<Searched>,
    all: Mutex<All>,
    turns: Arc<Turns>,
    read: Arc<Semaphore>,
    figures: OnceLock<Arc<Figures>>,
    env: Env,
}

/// Whose report comes.
#[derive(Debug)]
struct Turns {
    all: Arc<Semaphore>,
    clusters: Mutex<HashSet<String>>,
    env: Env,
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
        // Not all of them again at once.
        let seconds = || u32::try_from(1 + self.env.below(AGAIN.into())).unwrap_or(AGAIN);
        let busy = |why: String| Status::too_many_requests(why, seconds());
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
    /// Whether its agent is heard.
    heard: bool,
    /// When it has told something, was heard again, or was asked.
    told: Duration,
}

impl Member {
    /// Whether its agent is heard, and has told nothing for very long.
    fn is_mute(&self, now: Duration) -> bool {
        self.heard && now.saturating_sub(self.told) >= MUTE
    }
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

/// What one of so many clusters may take where the others take so much.
fn room(clusters: usize, others: usize) -> usize {
    let share = ALL / 2 / clusters.max(1);
    let first = (ALL / 2).saturating_sub(others) / 2;
    EACH.min(share.max(first)).min(ALL.saturating_sub(others))
}

/// Whose agent tells something.
fn speaks_for(user: Option<&UserInfo>) -> Result<&str, Status> {
    user.and_then(agent_cluster).ok_or_else(|| {
        let why = "what is on a member is told by its agent alone";
        Status::forbidden(&GroupResource::default(), "", why)
    })
}

impl Reported {
    /// Of nothing yet.
    pub(crate) fn new(searched: &Arc<Searched>, env: &Env) -> Self {
        let all = Arc::new(Semaphore::new(COMING));
        let turns = Turns { all, clusters: Mutex::default(), env: env.clone() };
        Self {
            searched: searched.clone(),
            all: Mutex::default(),
            turns: Arc::new(turns),
            read: Arc::new(Semaphore::new(READ)),
            figures: OnceLock::new(),
            env: env.clone(),
        }
    }

    /// Counts what agents tell in these figures from now on.
    pub(crate) fn count_in(&self, figures: &Arc<Figures>) {
        let _ = self.figures.set(figures.clone());
    }

    /// Where agents tell.
    pub(crate) fn paths(self: &Arc<Self>) -> Paths {
        let (reported, turns) = (self.clone(), self.clone());
        Paths::default()
            .with(extension::SEARCHED_PATH, &[Method::POST], move |request| {
                let reported = reported.clone();
                async move { reported.answer(request).await }
            })
            .bodies_up_to(REPORT)
            .in_turn(move |user| turns.turn(user).map(paths::Turn::new))
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
        let now = self.env.now();
        let member = clusters.entry(cluster.to_owned());
        let member = member.or_insert_with(|| Member { told: now, ..Member::default() });
        uid.clone_into(&mut member.uid);
        if !heard {
            member.kept.doubt();
        }
        if heard && !member.heard {
            member.told = now;
        }
        member.heard = heard;
        if *member.wanted != wanted {
            *bytes -= member.kept.bytes();
            member.kept.retain(&wanted);
            *bytes += member.kept.bytes();
            member.wanted = Arc::new(wanted);
        }
    }

    /// Those that are heard and asked, and have told nothing for very long: agents that know nothing of it.
    fn mute(&self) -> Vec<String> {
        let now = self.env.now();
        let all = self.all.lock();
        let mute = all.clusters.iter().filter(|(_, member)| member.is_mute(now));
        mute.map(|(name, _)| name.clone()).collect()
    }

    /// Whether one is.
    fn is_mute(&self, cluster: &str) -> bool {
        let all = self.all.lock();
        all.clusters.get(cluster).is_some_and(|member| member.is_mute(self.env.now()))
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

    /// A turn for a user's report.
    fn turn(&self, user: &UserInfo) -> Result<Turn, Status> {
        self.turns.of(speaks_for(Some(user))?)
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<Body>, Status> {
        let cluster = speaks_for(request.extensions().get())?.to_owned();
        let turn = request.extensions().get::<paths::Turn>().cloned();
        let wanted = self.all.lock().clusters.get(&cluster).map(|member| member.wanted.clone());
        let wanted = wanted.ok_or_else(|| {
            let why = format!("cluster {cluster} is not asked what is searched on it, or not yet");
            Status::service_unavailable(why)
        })?;
        let body = to_bytes(request.into_body(), REPORT).await.map_err(Status::internal)?;
        if let Some(figures) = self.figures.get() {
            figures.told(&cluster).inc_by(body.len() as u64);
        }
        let one = self.read.clone().acquire_owned().await.map_err(Status::internal)?;
        // It is read whether anybody waits for the answer or not.
        let read = spawn_blocking(move || (read(&body, &wanted), turn, one));
        let (told, _turn, _one) = read.await.map_err(Status::internal)?;
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
        let asked = clusters.len();
        let Some(member) = clusters.get_mut(cluster) else {
            return Err(Status::service_unavailable(format!(
                "cluster {cluster} is asked for nothing any more"
            )));
        };
        if report.number <= member.number {
            return Ok(Answer { behind: Some(member.number), ..Answer::default() });
        }
        (member.number, member.told) = (report.number, now);
        let others = *bytes - member.kept.bytes();
        report.withdrawn.iter().for_each(|what| member.kept.withdraw(what));
        for part in parts {
            let what = part.what().clone();
            if !member.wanted.contains(&what) {
                answer.unwanted.push(what);
                continue;
            }
            // What is there may stay.
            let most = room(asked, others).max(member.kept.bytes());
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
