//! What a watch of Works tells: Works, and that the status of one has changed.
//!
//! The status is mostly this agent's own report, whose answer says at which revision the hub took it. If a while later that
//! is not what was told, somebody else has written it, and the Work is read.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use karmada_client::{Error, Rest};
use karmada_member::{Desired, DesiredWork, revision::Revision};
use serde::Deserialize;
use tokio::time::{Instant, sleep_until};

use super::outbox::works;

/// Answers come within this, or the link is down.
const ANSWERED: Duration = Duration::from_secs(10);

/// How many Works are read at a time.
const AT_ONCE: usize = 4;

/// No news of a status are longer.
const SHORT: usize = 2 << 10;

/// What a watch tells.
#[derive(Debug)]
pub(super) enum Heard {
    Work(DesiredWork),
    Reported(Reported),
}

/// The status of a Work is another since a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reported {
    name: String,
    uid: String,
    revision: Revision,
}

#[derive(Deserialize)]
struct NewsIn {
    #[serde(default)]
    kind: String,
    metadata: MetaIn,
}

/// What of a Work's metadata says which one it is, and as of when.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MetaIn {
    pub(super) name: String,
    #[serde(default)]
    pub(super) uid: String,
    #[serde(default)]
    pub(super) resource_version: String,
}

impl Heard {
    /// Reads what a watch tells of an object.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.len() <= SHORT
            && let Ok(NewsIn { kind, metadata }) = serde_json::from_str(text)
            && kind == "News"
        {
            let MetaIn { name, uid, resource_version } = metadata;
            return Ok(Self::Reported(Reported { name, uid, revision: Revision::read(&resource_version) }));
        }
        DesiredWork::parse(text).map(Self::Work)
    }
}

/// News of a status, until it is known whose it is.
struct Due {
    reported: Reported,
    /// The hub's life in which it was told.
    life: u64,
    at: Instant,
}

/// Works of which somebody else may have written the status.
pub(super) struct Unread {
    hub: Rest,
    namespace: String,
    desired: Arc<Desired>,
    due: BTreeMap<String, Due>,
    asking: FuturesUnordered<BoxFuture<'static, (Due, Result<String, Error>)>>,
    /// What is asked for, and the uid of the Work of which an answer counts; none where the watch has told more since.
    asked: BTreeMap<String, Option<String>>,
}

impl Unread {
    pub(super) fn new(hub: Rest, namespace: String, desired: Arc<Desired>) -> Self {
        let (due, asking, asked) = Default::default();
        Self { hub, namespace, desired, due, asking, asked }
    }

    /// The status of a Work has changed, in a life of the hub.
    pub(super) fn note(&mut self, reported: Reported, life: u64) {
        let at = Instant::now() + ANSWERED;
        self.due.insert(reported.name.clone(), Due { reported, life, at });
    }

    /// The watch has told of a Work of this name and uid, or that there is none any more: an answer of before, about another
    /// one, does not count.
    pub(super) fn told(&mut self, name: &str, uid: Option<&str>) {
        if self.due.get(name).is_some_and(|due| Some(due.reported.uid.as_str()) != uid) {
            self.due.remove(name);
        }
        if let Some(wanted) = self.asked.get_mut(name)
            && wanted.as_deref() != uid
        {
            *wanted = None;
        }
    }

    /// Everything is listed anew: no answer of before counts.
    pub(super) fn begin_anew(&mut self) {
        self.due.clear();
        self.asked.values_mut().for_each(|wanted| *wanted = None);
    }

    /// The next Work that had to be read, with the hub's life in which there was news of it. Cancel-safe; waits for ever where
    /// there is none.
    pub(super) async fn read(&mut self) -> (DesiredWork, u64) {
        loop {
            let next = self.due.values().map(|due| due.at).min();
            let is_free = self.asking.len() < AT_ONCE;
            tokio::select! {
                biased;
                Some((due, answer)) = self.asking.next() => {
                    let wanted = self.asked.remove(&due.reported.name).flatten();
                    let life = due.life;
                    let is_wanted = wanted.as_ref() == Some(&due.reported.uid);
                    if let Some(work) = is_wanted.then(|| self.answered(due, answer)).flatten() {
                        return (work, life);
                    }
                }
                () = until(next.filter(|_| is_free)) => self.ask(),
            }
        }
    }

    /// Asks for the next Work that is due, if it is still not known as it was told.
    fn ask(&mut self) {
        let now = Instant::now();
        let Some(name) = self.due.iter().find(|(_, due)| due.at <= now).map(|(name, _)| name.clone()) else {
            return;
        };
        let Some(due) = self.due.remove(&name).filter(|due| self.is_unread(due)) else { return };
        if self.asked.contains_key(&name) {
            // What is on its way may be older.
            self.due.insert(name, Due { at: now + ANSWERED, ..due });
            return;
        }
        self.asked.insert(name.clone(), Some(due.reported.uid.clone()));
        let (hub, path) = (self.hub.clone(), works().object(Some(&self.namespace), &name));
        self.asking.push(async move { (due, hub.get_text(&path).await) }.boxed());
    }

    /// Whether the Work that is known has another status than the hub has.
    fn is_unread(&self, due: &Due) -> bool {
        let known = self.desired.get(&due.reported.name);
        due.life == self.desired.life()
            && known.is_some_and(|known| {
                let own = known.revision();
                // Of one that was not told whole, it is not known which the hub has.
                let is_new = own.number().is_none() || own.is_before(due.reported.revision);
                known.uid == due.reported.uid && is_new
            })
    }

    fn answered(&mut self, due: Due, answer: Result<String, Error>) -> Option<DesiredWork> {
        let name = due.reported.name.as_str();
        match answer {
            Ok(text) => match DesiredWork::parse(&text) {
                // Of another one of that name the watch tells.
                Ok(work) => (work.uid == due.reported.uid).then_some(work),
                Err(error) => {
                    tracing::warn!(work = name, %error, "cannot read a Work whose status has changed");
                    None
                }
            },
            // The watch tells of that.
            Err(error) if error.is_not_found() => None,
            Err(error) => {
                tracing::debug!(work = name, %error, "cannot look at a Work whose status has changed");
                let at = Instant::now() + ANSWERED.max(error.retry_after().unwrap_or_default());
                self.due.entry(name.to_owned()).or_insert(Due { at, ..due });
                None
            }
        }
    }
}

/// Resolves then; never, if there is no such time.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_and_works_are_told_apart() {
        let news = r#"{"kind":"News","apiVersion":"hub.karmada.io/v1alpha1","metadata":{"name":"w","uid":"u","resourceVersion":"7"}}"#;
        let want = Reported { name: "w".into(), uid: "u".into(), revision: Revision::read("7") };
        assert!(matches!(Heard::parse(news), Ok(Heard::Reported(reported)) if reported == want));
        for work in [
            r#"{"kind":"Work","metadata":{"name":"w"},"spec":{"workload":{"manifests":[{"kind":"News","metadata":{"name":"n"}}]}}}"#,
            r#"{"metadata":{"name":"w"}}"#,
        ] {
            assert!(matches!(Heard::parse(work), Ok(Heard::Work(_))), "{work}");
        }
        for odd in ["", "{", r#"{"kind":"News"}"#, r#"{"kind":"News","metadata":{"name":7}}"#] {
            assert!(Heard::parse(odd).is_err(), "{odd}");
        }
    }
}
