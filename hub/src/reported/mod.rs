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
//! A report is somebody else's. They come in turn ([`turns`]): whoever has no turn is sent away before a byte of it is read. Few of
//! them are taken apart at a time. They take no seats from other requests. Of what nobody asked for nothing is read.
//!
//! Who may have how much of the room says [`Room`]. Where somebody else needs their share, what is kept of the cluster with most is
//! given up, kind by kind. What is announced has its room before it comes. Much is dropped without the lock that all need.

mod asking;
mod turns;

use std::{
    collections::{BTreeSet, HashMap},
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
    room::Room,
    told::{self, Answer, KEPT, Kept, REPORT, Read, Report, Verdict},
};
use karmada_env::Env;
use karmada_meta::{gvk::GroupResource, status::Status};
use karmada_reach::{Copied, Figures, Place};
use parking_lot::Mutex;
use tokio::{sync::Semaphore, task::spawn_blocking};

pub(crate) use self::asking::Asking;
use self::turns::{Turn, Turns};
use crate::known::searched::Searched;

/// What is kept of one cluster at most, and of all, in bytes.
const EACH: usize = KEPT;
const ALL: usize = 256 << 20;
/// Reports that are taken apart at a time.
const READ: usize = 4;
/// For so long what is current counts as that at most.
const HOLDS: Duration = Duration::from_secs(2 * 3600);
/// An agent that tells comes more often than this; and where its link lets it say little in an hour, than that.
const MUTE: Duration = Duration::from_secs(6 * 3600);
const PAID_MUTE: Duration = Duration::from_secs(24 * 3600);
/// Of those that are asked so many may be taken for mute at a time: one of so many, and these in any case. Where more are silent it
/// may be the way to the hub.
const MUTE_OF: usize = 20;
const MUTE_LEAST: usize = 10;

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

#[derive(Debug)]
struct All {
    clusters: HashMap<String, Member>,
    room: Room,
}

impl Default for All {
    fn default() -> Self {
        Self { clusters: HashMap::new(), room: Room::new(EACH, ALL) }
    }
}

impl All {
    /// Has whoever has most give something up until a cluster can have so much, as far as that is its share. What they gave up.
    fn make_room(&mut self, cluster: &str, bytes: usize) -> Vec<told::All> {
        let mut dropped = Vec::new();
        while let Some(name) = self.room.gives_way(cluster, bytes).map(str::to_owned) {
            let given_up = self.clusters.get_mut(&name).and_then(|member| {
                let what = member.kept.largest()?.clone();
                member.kept.withdraw(&what);
                tracing::info!(
                    cluster = name,
                    ?what,
                    "what is searched on a member is kept no more: others need their share of the room"
                );
                member.given_up.insert(what);
                dropped.append(&mut member.kept.dropped());
                Some(member.kept.bytes())
            });
            self.room.set(&name, given_up.unwrap_or_default());
        }
        dropped
    }
}

/// What is known of a cluster whose agent is asked.
#[derive(Debug, Default)]
struct Member {
    uid: String,
    wanted: Arc<BTreeSet<Followed>>,
    kept: Kept,
    /// What others needed the room of. Its agent does not know yet.
    given_up: BTreeSet<Followed>,
    /// Of the last report.
    number: u64,
    /// Whether its agent is heard.
    heard: bool,
    /// When it has come with a report, whatever became of that, was heard again, or was asked.
    came: Duration,
    /// It comes more often than this.
    patience: Duration,
}

impl Member {
    /// Since when its agent is heard and has not come, if that is very long.
    fn mute_since(&self, now: Duration) -> Option<Duration> {
        (self.heard && now.saturating_sub(self.came) >= self.patience).then_some(self.came)
    }
}

/// What is asked of a cluster's agent.
#[derive(Clone, Debug, Default)]
struct Expected {
    uid: String,
    wanted: BTreeSet<Followed>,
    /// Whether the cluster is heard.
    heard: bool,
    /// Whether its link lets it say little.
    paid: bool,
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
        Self {
            searched: searched.clone(),
            all: Mutex::default(),
            turns: Turns::new(env),
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
            .in_turn(move |user, length| {
                let turn = turns.turn(user, length)?;
                let over = turn.over();
                Ok(paths::Turn::new(turn, over))
            })
    }

    /// What the agent of a Cluster is asked for, and whether it is heard: if not, nothing is current until it says so again. Where
    /// nothing is asked for, nothing is kept. What is kept no more, to be dropped by whoever has the time.
    #[must_use = "it takes a while to drop"]
    fn expect(&self, cluster: &str, expected: Expected) -> Vec<told::All> {
        let Expected { uid, wanted, heard, paid } = expected;
        let mut all = self.all.lock();
        let All { clusters, room } = &mut *all;
        let mut dropped = Vec::new();
        if wanted.is_empty() || clusters.get(cluster).is_some_and(|member| member.uid != uid) {
            room.leave(cluster);
            if let Some(mut gone) = clusters.remove(cluster) {
                gone.kept.retain(&BTreeSet::new());
                dropped.append(&mut gone.kept.dropped());
            }
        }
        if wanted.is_empty() {
            return dropped;
        }
        let now = self.env.now();
        room.enter(cluster);
        let member = clusters.entry(cluster.to_owned());
        let member = member.or_insert_with(|| Member { came: now, ..Member::default() });
        if !heard {
            member.kept.doubt();
        }
        if heard && !member.heard {
            member.came = now;
        }
        (member.uid, member.heard) = (uid, heard);
        member.patience = if paid { PAID_MUTE } else { MUTE };
        if *member.wanted != wanted {
            member.kept.retain(&wanted);
            member.given_up.retain(|what| wanted.contains(what));
            room.set(cluster, member.kept.bytes());
            member.wanted = Arc::new(wanted);
        }
        dropped.append(&mut member.kept.dropped());
        dropped
    }

    /// Those that are heard and asked, and have not come for very long, the longest first: agents that know nothing of it. Where
    /// that is more than a few of all there are the others wait for the next look.
    fn mute(&self) -> Vec<String> {
        let now = self.env.now();
        let all = self.all.lock();
        let mute = all.clusters.iter().filter_map(|(name, member)| Some((member.mute_since(now)?, name)));
        let mut mute: Vec<_> = mute.collect();
        mute.sort_unstable();
        mute.truncate(MUTE_LEAST.max(all.clusters.len() / MUTE_OF));
        mute.into_iter().map(|(_, name)| name.clone()).collect()
    }

    /// Whether one is.
    fn is_mute(&self, cluster: &str) -> bool {
        let all = self.all.lock();
        all.clusters.get(cluster).is_some_and(|member| member.mute_since(self.env.now()).is_some())
    }

    /// What was announced long ago, and has not come, has no room any more.
    fn expire(&self) {
        let now = self.env.now();
        let mut all = self.all.lock();
        let All { clusters, room } = &mut *all;
        for (name, member) in clusters {
            member.kept.expire(now);
            room.set(name, member.kept.bytes());
        }
    }

    /// Nothing is asked of anybody any more.
    fn clear(&self) {
        let gone = std::mem::take(&mut *self.all.lock());
        drop(gone);
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

    /// A turn for a user's report of so many bytes, if that is known. Where nothing is asked there is none.
    fn turn(&self, user: &UserInfo, length: Option<u64>) -> Result<Turn, Status> {
        let cluster = speaks_for(Some(user))?;
        self.came(cluster)?;
        self.turns.of(cluster, length)
    }

    /// An agent has come with a report: it knows of all this, whatever becomes of that. What it is asked for.
    fn came(&self, cluster: &str) -> Result<Arc<BTreeSet<Followed>>, Status> {
        let now = self.env.now();
        let mut all = self.all.lock();
        let member = all.clusters.get_mut(cluster).ok_or_else(|| {
            let why = format!("cluster {cluster} is not asked what is searched on it, or not yet");
            Status::service_unavailable(why)
        })?;
        member.came = now;
        Ok(member.wanted.clone())
    }

    async fn answer(self: Arc<Self>, request: Request<Body>) -> Result<Response<Body>, Status> {
        let cluster = speaks_for(request.extensions().get())?.to_owned();
        let turn = request.extensions().get::<paths::Turn>().cloned();
        if turn.as_ref().and_then(paths::Turn::held).is_some_and(|turn: &Turn| !turn.arrived()) {
            let why = format!("another report of what is searched on {cluster} has come");
            return Err(Status::too_many_requests(why, 1));
        }
        let wanted = self.came(&cluster)?;
        let body = to_bytes(request.into_body(), REPORT).await.map_err(Status::internal)?;
        if let Some(figures) = self.figures.get() {
            figures.told(&cluster).inc_by(body.len() as u64);
        }
        let one = self.read.clone().acquire_owned().await.map_err(Status::internal)?;
        // It is read and taken in whether anybody waits for the answer or not, and where nobody waits for the thread.
        let reading = spawn_blocking(move || {
            let answer =
                read(&body, &wanted).map_err(Status::bad_request).and_then(|told| self.take(&cluster, told));
            drop((turn, one));
            answer
        });
        let answer = reading.await.map_err(Status::internal)??;
        let answer = serde_json::to_string(&answer).map_err(Status::internal)?;
        Ok(text(StatusCode::OK, "application/json", answer))
    }

    /// Takes in what an agent tells. That may take a while.
    fn take(&self, cluster: &str, told: Told) -> Result<Answer, Status> {
        let mut all = self.all.lock();
        let (answer, dropped) = all.take(cluster, told, self.env.now());
        drop(all);
        drop(dropped);
        answer
    }
}

impl All {
    /// The same; and what is kept no more.
    fn take(&mut self, cluster: &str, told: Told, now: Duration) -> (Result<Answer, Status>, Vec<told::All>) {
        let Told { report, parts, unwanted } = told;
        let mut answer = Answer { unwanted, ..Answer::default() };
        let Some(member) = self.clusters.get_mut(cluster) else {
            let why = format!("cluster {cluster} is asked for nothing any more");
            return (Err(Status::service_unavailable(why)), Vec::new());
        };
        if report.number <= member.number {
            return (Ok(Answer { behind: Some(member.number), ..Answer::default() }), Vec::new());
        }
        member.number = report.number;
        report.withdrawn.iter().for_each(|what| member.kept.withdraw(what));
        self.room.set(cluster, member.kept.bytes());
        let mut dropped = Vec::new();
        for part in parts {
            let Some(needs) = self.clusters.get(cluster).map(|member| member.kept.with(&part)) else { break };
            dropped.append(&mut self.make_room(cluster, needs));
            let Some(member) = self.clusters.get_mut(cluster) else { break };
            let what = part.what().clone();
            if !member.wanted.contains(&what) {
                answer.unwanted.push(what);
                continue;
            }
            // What is there may stay.
            let there = member.kept.bytes();
            let room = [self.room.share().min(self.room.most(cluster)), self.room.most(cluster)];
            let [share, most] = room.map(|bytes| bytes.max(there));
            match member.kept.take(part, told::Room { share, most }, now) {
                Verdict::Taken => drop(member.given_up.remove(&what)),
                Verdict::Again if member.given_up.contains(&what) => answer.unwanted.push(what),
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
            self.room.set(cluster, member.kept.bytes());
        }
        let Some(member) = self.clusters.get_mut(cluster) else { return (Ok(answer), dropped) };
        let holds = Duration::from_secs(report.holds).min(HOLDS);
        for what in member.kept.hear(&report.kinds, now, holds) {
            let Answer { again, unwanted, .. } = &mut answer;
            if !again.contains(&what) && !unwanted.contains(&what) {
                let is_wanted = member.wanted.contains(&what) && !member.given_up.contains(&what);
                if is_wanted { again.push(what) } else { unwanted.push(what) }
            }
        }
        // Whose agent says nothing of them has been told.
        member.given_up.retain(|what| !answer.unwanted.contains(what));
        self.room.set(cluster, member.kept.bytes());
        dropped.append(&mut member.kept.dropped());
        (Ok(answer), dropped)
    }
}

#[cfg(test)]
mod tests;
