//! `karmada-agent leave`: the member leaves the fleet, in the same state as by `kubectl delete cluster` while its agent works.
//!
//! ```text
//!   is there a Cluster of ours? ─▶ be its agent ─▶ delete the Cluster ─▶ Works are taken down, by us or by the agent that has
//!                                                                      the member's Lease ─▶ it has gone ─▶ forget the credential
//! ```
//!
//! It is an agent itself, so that nothing depends on whether there is another: of two agents of one name one acts. It never
//! registers what is not there.

use std::{path::PathBuf, time::Duration};

use karmada_client::{Error, Rest};
use karmada_env::Env;
use karmada_meta::object;
use karmada_telemetry::told::Told;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{DRAIN, Failure, Signals, copies::Copies};
use crate::{
    Agent, Phase,
    hub::{
        clusters,
        credential::{Keep, keep::remove},
    },
};

/// How often it is looked whether the Cluster has gone.
const LOOK: Duration = Duration::from_secs(1);
/// How long it may take to count what is on the member, before and after.
const TELL: Duration = Duration::from_secs(15);

/// Who leaves.
pub(super) struct Leaving {
    pub(super) cluster: String,
    /// Where the agent keeps what it has to know after a restart, on the member.
    pub(super) namespace: String,
    pub(super) hub: Rest,
    pub(super) member: Rest,
    pub(super) keep: Option<Keep>,
    /// A credential that somebody else looks after.
    pub(super) file: Option<PathBuf>,
    /// The agent's folder.
    pub(super) folder: Option<PathBuf>,
    pub(super) patience: Duration,
    pub(super) told: Told,
    pub(super) env: Env,
}

/// What the hub says of the Cluster.
#[derive(Debug)]
enum Found {
    There(Value),
    Gone,
    /// It does not take our credential, in its words.
    Refused(String),
}

/// What follows from that.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// It is to be deleted, by its uid.
    Delete(String),
    /// It goes; or the hub may say something else in a moment.
    Wait,
    /// It has left, and how that is known.
    Left(&'static str),
    /// It cannot leave by this, and why.
    Fail(String),
}

/// What became of what the hub had placed on the member.
#[derive(Debug)]
enum Taken {
    /// There was no Cluster any more.
    Nothing,
    Counted {
        removed: usize,
        /// Still there: policies keep them, or they are somebody else's.
        kept: usize,
        /// Of the first so many.
        more: bool,
    },
    /// Why it could not be counted.
    Unknown(String),
}

impl Taken {
    fn line(&self) -> Option<String> {
        Some(match self {
            Self::Nothing => return None,
            Self::Counted { removed, kept, more } => {
                let noun = if *removed == 1 { "object" } else { "objects" };
                let of = if *more { "; there were more, which were not counted" } else { "" };
                format!("removed {removed} {noun} from the member, kept {kept}{of}")
            }
            Self::Unknown(why) => {
                format!("how many objects were removed from the member is not known: {why}")
            }
        })
    }
}

/// What a hub says of a credential that ended with its Cluster, and of one that somebody has ended.
const WITH_CLUSTER: &str = "the Cluster was deleted";
const REVOKED: &str = "it was revoked";

/// Judges what the hub says. `ours` is the id of this member, `taken` the uid of the Cluster whose deletion the hub has taken.
fn judge(found: &Found, cluster: &str, ours: &str, taken: Option<&str>) -> Step {
    let there = match found {
        Found::There(there) => there,
        Found::Gone if taken.is_some() => return Step::Left("the Cluster has gone from the hub"),
        Found::Gone => return Step::Left("there is no Cluster of that name on the hub"),
        Found::Refused(why) if why.contains(WITH_CLUSTER) => {
            return Step::Left("the credential ended with its Cluster");
        }
        Found::Refused(why) if why.contains(REVOKED) => {
            return Step::Fail(format!(
                "the hub does not take this credential any more: {why}. Whether there is a Cluster {cluster} yet is known on \
                 the hub alone: kubectl delete cluster {cluster}"
            ));
        }
        // One that has ended renews in a moment; a hub that comes back may know it then.
        Found::Refused(_) => return Step::Wait,
    };
    let (uid, id) = (object::uid(there), there["spec"]["id"].as_str().unwrap_or_default());
    if taken.is_some_and(|taken| taken != uid) {
        return Step::Left("the Cluster has gone from the hub, and there is another one of its name");
    }
    if !id.is_empty() && id != ours {
        return Step::Fail(format!(
            "the hub's Cluster {cluster} has the id {id}, but this member's id is {ours} (the uid of its kube-system \
             namespace): it is another member, which goes on. To forget the credential here, delete it"
        ));
    }
    if object::deletion_timestamp(there).is_some() { Step::Wait } else { Step::Delete(uid.to_owned()) }
}

impl Leaving {
    /// Leaves, or says why not; whoever runs it again goes on where it stopped.
    pub(super) async fn run(self, agent: Agent, signals: &mut Signals) -> Result<(), Failure> {
        let stop = CancellationToken::new();
        let left = tokio::select! {
            biased;
            () = signals.next() => {
                Err(Failure::Failed("told to stop before the cluster had left; run this again to go on".into()))
            }
            left = self.leave(agent, &stop) => left,
        };
        stop.cancel();
        left
    }

    async fn leave(&self, agent: Agent, stop: &CancellationToken) -> Result<(), Failure> {
        let end = self.env.now() + self.patience;
        let ours = self.member_id(end).await?;
        if let Some(why) = self.look(end, &ours).await? {
            return self.forget(why, &Taken::Nothing).await;
        }
        let handle = agent.handle();
        handle.rights().leave();
        // What it takes to tell people keeps nobody from leaving.
        let looks = Copies::look(&self.hub, &self.member, &self.cluster, &self.env);
        let looked = tokio::time::timeout(TELL, Box::pin(looks));
        let before = match looked.await {
            Ok(Ok(copies)) => Ok(copies),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("hub or member answer slowly".to_owned()),
        };
        let mut phases = handle.phase();
        let running = tokio::spawn(agent.run(stop.clone()));
        let at_work = async {
            loop {
                let phase = phases.borrow().clone();
                match phase {
                    Phase::Active | Phase::StandingBy | Phase::Removed => return Ok(()),
                    Phase::Refused(why) => return Err(Failure::Failed(why.to_string())),
                    Phase::Joining => {}
                }
                if phases.changed().await.is_err() {
                    return Err(Failure::Failed("the agent has ended".into()));
                }
            }
        };
        let left = end.saturating_sub(self.env.now());
        let Ok(is_at_work) = tokio::time::timeout(left, at_work).await else {
            return Err(self.late("the hub or the member cannot be worked with, as is logged above"));
        };
        is_at_work?;
        let why = self.delete(end, &ours).await?;
        stop.cancel();
        // What it holds is given back, so that whoever comes next need not wait.
        let _ = tokio::time::timeout(DRAIN, running).await;
        let taken = match before {
            Ok(copies) => {
                let more = copies.more;
                match tokio::time::timeout(TELL, Box::pin(copies.compare(&self.member))).await {
                    Ok(Ok((removed, kept))) => Taken::Counted { removed, kept, more },
                    Ok(Err(error)) => Taken::Unknown(error.to_string()),
                    Err(_) => Taken::Unknown("the member answers slowly".to_owned()),
                }
            }
            Err(why) => Taken::Unknown(why),
        };
        self.forget(why, &taken).await
    }

    /// The id of this member.
    async fn member_id(&self, end: Duration) -> Result<String, Failure> {
        loop {
            match self.member.get("/api/v1/namespaces/kube-system").await {
                Ok(system) => return Ok(object::uid(&system).to_owned()),
                Err(error) if self.env.now() >= end => {
                    return Err(self.late(&format!("the member cannot be asked for its id ({error})")));
                }
                Err(_) => tokio::time::sleep(LOOK).await,
            }
        }
    }

    /// Looks until it is known whether there is something to leave. Answers with why there is nothing.
    async fn look(&self, end: Duration, ours: &str) -> Result<Option<&'static str>, Failure> {
        loop {
            let found = self.find().await;
            let why = match &found {
                Ok(found @ Found::There(_)) => {
                    return match judge(found, &self.cluster, ours, None) {
                        Step::Fail(why) => Err(Failure::Failed(why)),
                        Step::Delete(_) | Step::Wait | Step::Left(_) => Ok(None),
                    };
                }
                Ok(found) => match judge(found, &self.cluster, ours, None) {
                    Step::Left(why) => return Ok(Some(why)),
                    Step::Fail(why) => return Err(Failure::Failed(why)),
                    Step::Delete(_) | Step::Wait => said(found),
                },
                Err(error) => error.to_string(),
            };
            if self.env.now() >= end {
                return Err(self.late(&format!("the hub does not say whether there is a Cluster ({why})")));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Deletes the Cluster, and waits until it has gone. Answers how that is known.
    async fn delete(&self, end: Duration, ours: &str) -> Result<&'static str, Failure> {
        let (mut taken, mut last): (Option<String>, _) = (None, String::new());
        loop {
            match self.find().await {
                Ok(found) => {
                    last = said(&found);
                    match judge(&found, &self.cluster, ours, taken.as_deref()) {
                        Step::Left(why) => return Ok(why),
                        Step::Fail(why) => return Err(Failure::Failed(why)),
                        Step::Wait => {
                            if let Found::There(going) = &found {
                                taken = Some(object::uid(going).to_owned());
                            }
                        }
                        Step::Delete(uid) => {
                            let options = json!({"preconditions": {"uid": uid}});
                            match self.hub.delete(&self.path(), &options).await {
                                Ok(_) => {
                                    tracing::info!(cluster = %self.cluster, "the Cluster is being deleted");
                                    taken = Some(uid);
                                }
                                Err(error) if error.is_not_found() || error.is_conflict() => {}
                                Err(error) if error.is_forbidden() => {
                                    return Err(Failure::Failed(error.to_string()));
                                }
                                Err(error) => tracing::warn!(%error, "cannot delete the Cluster yet"),
                            }
                        }
                    }
                }
                Err(error) => tracing::debug!(%error, "cannot see the Cluster"),
            }
            if self.env.now() >= end {
                return Err(self.late(&format!("the Cluster is not gone from the hub{last}")));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn late(&self, what: &str) -> Failure {
        let waited = karmada_meta::duration::format(self.patience);
        Failure::Failed(format!(
            "{what} within {waited}; run this again to go on, or, on the hub: kubectl delete cluster {}",
            self.cluster
        ))
    }

    fn path(&self) -> String {
        clusters().object(None, &self.cluster)
    }

    async fn find(&self) -> Result<Found, Error> {
        match self.hub.get(&self.path()).await {
            Ok(cluster) => Ok(Found::There(cluster)),
            Err(error) if error.is_absence_of(&self.cluster) => Ok(Found::Gone),
            Err(error) if error.code() == Some(401) => Ok(Found::Refused(error.to_string())),
            Err(error) => Err(error),
        }
    }

    /// Forgets the credential, and what only an agent of this cluster reads.
    async fn forget(&self, why: &str, taken: &Taken) -> Result<(), Failure> {
        let (files, secrets) = karmada_member::remains(&self.cluster);
        let within = format!("/api/v1/namespaces/{}", self.namespace);
        let kept = secrets.iter().map(|name| format!("{within}/secrets/{name}"));
        for path in kept.chain([format!("{within}/configmaps/karmada-agent-fence-{}", self.cluster)]) {
            match self.member.delete(&path, &json!({})).await {
                Err(error) if !error.is_not_found() => {
                    tracing::warn!(%error, "what the agent has kept on the member stays there");
                    break;
                }
                _ => {}
            }
        }
        for path in self.folder.iter().flat_map(|folder| files.map(|file| folder.join(file))) {
            if let Err(error) = remove(&path) {
                tracing::warn!(path = %path.display(), %error, "what the agent has kept stays there");
            }
        }
        let mut places = Vec::new();
        if let Some(keep) = &self.keep {
            keep.forget_all().await.map_err(Failure::Failed)?;
            places.push(keep.place());
        }
        let mut lines = vec![format!(
            "{} has left: {why}. Its credential is deleted ({})",
            self.cluster,
            places.join(", ")
        )];
        lines.extend(taken.line());
        if let Some(file) = &self.file {
            lines
                .push(format!("the credential in {} is of no use any more: delete the file", file.display()));
        }
        lines.push("an agent of this cluster that still runs here does nothing any more: stop it".to_owned());
        let mut value = json!({
            "cluster": self.cluster, "result": "left", "message": why, "deletedFrom": places, "useless": self.file,
        });
        if let Taken::Counted { removed, kept, more } = taken {
            (value["removed"], value["kept"]) = (json!(removed), json!(kept));
            if *more {
                value["partial"] = json!(true);
            }
        }
        self.told.say(&lines.join("\n"), &value)
    }
}

/// What a hub has said that did not take the credential, for the end of a sentence.
fn said(found: &Found) -> String {
    match found {
        Found::Refused(why) => format!(": {why}"),
        Found::There(_) | Found::Gone => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there(uid: &str, id: &str, going: bool) -> Found {
        let mut cluster = json!({"metadata": {"name": "m1", "uid": uid}, "spec": {"id": id}});
        if going {
            cluster["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        Found::There(cluster)
    }

    #[test]
    fn what_was_taken_away_is_counted() {
        let counted = |removed, kept, more| Taken::Counted { removed, kept, more }.line().unwrap();
        assert_eq!(counted(4, 0, false), "removed 4 objects from the member, kept 0");
        assert_eq!(counted(1, 2, false), "removed 1 object from the member, kept 2");
        assert!(counted(2000, 0, true).ends_with("kept 0; there were more, which were not counted"));
        assert!(
            Taken::Unknown("it is away".to_owned()).line().unwrap().ends_with("is not known: it is away")
        );
        assert_eq!(Taken::Nothing.line(), None);
    }

    #[test]
    fn what_the_hub_says_is_judged_by_whose_the_cluster_is_and_why_it_refuses() {
        let refused = |why: &str| Found::Refused(format!("the certificate of system:karmada:agent:m1 {why}"));
        let renews = "has expired, and is good for nothing but to ask for another one";
        // what it says, the deletion that it has taken, what follows
        let rows = [
            (there("u", "ours", false), None, "delete u"),
            // Made for an agent yet to come: it is whoever has its credential.
            (there("u", "", false), None, "delete u"),
            (there("u", "ours", true), None, "wait"),
            (there("u", "ours", true), Some("u"), "wait"),
            // Of the member that this one is a copy of.
            (there("u", "theirs", false), None, "fail"),
            (there("u", "theirs", true), None, "fail"),
            (there("v", "theirs", false), Some("u"), "left"),
            (there("v", "ours", false), Some("u"), "left"),
            (Found::Gone, None, "left"),
            (Found::Gone, Some("u"), "left"),
            (refused("holds no more: the Cluster was deleted"), None, "left"),
            (refused("holds no more: the Cluster was deleted"), Some("u"), "left"),
            (refused("holds no more: it was revoked"), None, "fail"),
            (refused("holds no more: it was revoked"), Some("u"), "fail"),
            (refused(renews), None, "wait"),
            (refused(renews), Some("u"), "wait"),
            (Found::Refused("Unauthorized".to_owned()), Some("u"), "wait"),
        ];
        for (found, taken, want) in rows {
            let step = match judge(&found, "m1", "ours", taken) {
                Step::Delete(uid) => format!("delete {uid}"),
                Step::Wait => "wait".to_owned(),
                Step::Left(_) => "left".to_owned(),
                Step::Fail(_) => "fail".to_owned(),
            };
            assert_eq!(step, want, "{found:?}, {taken:?}");
        }
    }
}
