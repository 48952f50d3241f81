//! Whether the hub is the one that has said what is known here, or knows less: one that was made anew of an older copy, was
//! emptied, or is another one of that name. Pure, but for the one question.
//!
//! A hub of ours tells by the ids of its store's runs ([`HISTORY`]); of any other there are revisions alone. Whoever finds it
//! older holds what it lists against what is known ([`super::listing`]).

use std::sync::Arc;

use karmada_api::consts::extension::{CONFIRM_HUB, HISTORY};
use karmada_client::{
    Error, Rest, Wake, latest,
    rest::{METADATA_LIST, query_value},
};
use karmada_core::judge::history::is_another;
use karmada_member::Desired;
use karmada_meta::{object, time::Time};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::outbox::works;
use crate::config::AgentConfig;

/// What is remembered of the hub, beyond the process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Origin {
    /// The last run of its store that was heard of, and the newest revision of that which it said to have on disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<Run>,
    /// The last confirmation that was seen on the Cluster while the hub was believed.
    #[serde(skip_serializing_if = "Option::is_none")]
    confirmed: Option<Time>,
    /// When the hub had last turned out to be another, in seconds since 1970, and was believed since.
    #[serde(skip_serializing_if = "Option::is_none")]
    another: Option<u64>,
    /// It counts as it is, and has not listed everything since: the revisions in which Works are known are of a history that
    /// is over.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) anew: bool,
    /// Why it is not believed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) older: Option<Older>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Run {
    boot: String,
    revision: u64,
}

/// Why a hub is not believed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Older {
    /// For people.
    pub(super) why: String,
    /// It did not know the run: whichever does is another hub than this one.
    #[serde(default)]
    stranger: bool,
    /// The newest revision in which something was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    newest: Option<u64>,
}

/// What the hub says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Answer {
    /// The id of its present run; a stock server has none.
    boot: Option<String>,
    /// Where it is, and where it would be after a crash.
    pub(super) revision: Option<u64>,
    durable: Option<u64>,
    /// Whether it had the run and the revision that it was asked for.
    knows: Option<bool>,
    /// What was answered in the stead of all that, where that is odd.
    #[serde(skip)]
    pub(super) odd: Option<String>,
}

/// What was known when the hub was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Before {
    /// The newest revision in which it had shown something.
    pub(super) newest: Option<u64>,
    /// It has shown a state of before what it had shown, in this process.
    pub(super) outlived: bool,
    /// When it has last turned out to be another, in seconds since 1970; not if that cannot be told now.
    pub(super) another: Option<u64>,
}

/// Whether a note is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    Not,
    /// With the next change of a Work.
    Sometime,
    Now,
}

impl Origin {
    /// Reads what was kept; what cannot be read says nothing.
    pub(super) fn read(text: &[u8]) -> Self {
        serde_json::from_slice(text).unwrap_or_else(|error| {
            tracing::warn!(%error, "what was kept of the hub cannot be read: it is taken for the one that it was");
            Self::default()
        })
    }

    /// What [`Origin::read`] reads.
    pub(super) fn text(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("invariant: texts and numbers are JSON")
    }

    /// Asks the hub. One that has no answer to that, as a stock server or one behind a gateway that lets nothing else through,
    /// tells its revision alone, with a list. `patient`: a failure may pass.
    pub(super) async fn ask(&self, hub: &Rest, namespace: &str, patient: bool) -> Result<Answer, Error> {
        let query = self
            .run
            .as_ref()
            .map(|run| format!("?boot={}&revision={}", query_value(&run.boot), run.revision));
        let odd = match hub.get(&format!("{HISTORY}{}", query.unwrap_or_default())).await {
            Ok(answer) => match Answer::read(answer) {
                Some(answer) => return Ok(answer),
                None => Some("it is no answer of a hub".to_owned()),
            },
            Err(error) if error.is_unreachable() || (patient && error.is_transient()) => return Err(error),
            Err(error) if error.is_not_found() || error.is_forbidden() => None,
            Err(error) => Some(error.to_string()),
        };
        let path = format!("{}?limit=1", works().collection(Some(namespace)));
        let list = hub.get_bytes(&path, METADATA_LIST).await?;
        let list: Value = serde_json::from_slice(&list).unwrap_or_default();
        Ok(Answer { revision: object::resource_version(&list).parse().ok(), odd, ..Answer::default() })
    }

    /// Why the hub that has answered so knows less than what is known here, if it does.
    pub(super) fn judge(&self, before: Before, answer: &Answer) -> Option<Older> {
        let older = |stranger: bool, why: String| Some(Older { why, stranger, newest: before.newest });
        if answer.knows == Some(false)
            && let Some(run) = &self.run
        {
            let why = format!(
                "it does not know the run {} of its store, or not up to revision {}",
                run.boot, run.revision
            );
            return older(true, why);
        }
        match (before.newest, answer.revision) {
            (Some(newest), Some(revision)) if revision < newest => {
                older(false, format!("it is at revision {revision}, and has shown {newest} before"))
            }
            // What it does not know any more are renewals of Leases then, which a hub that crashes may lose.
            _ if self.goes_on(before, answer) => None,
            // Restored by the book, it goes on far behind where it ended.
            _ if before.outlived || before.another > self.another => {
                older(false, "it has shown a state of before what it had shown".to_owned())
            }
            _ => None,
        }
    }

    /// Whether the hub knows all that it had answered for good, and goes on where it was.
    fn goes_on(&self, before: Before, answer: &Answer) -> bool {
        let noted = self.run.as_ref().map(|run| run.revision);
        let known = before.newest.max(noted).zip(answer.revision);
        answer.knows == Some(true) && known.is_some_and(|(known, now)| !is_another(known, now))
    }

    /// Whether the hub that has answered so is the one that is known, after another one in its place was not believed: a
    /// standby, or a namesake, for as long as a name or an address led there. One that was restored knows the run, too; it is
    /// far from where it was.
    pub(super) fn is_met_again(&self, answer: &Answer) -> bool {
        let Some(older) = self.older.as_ref().filter(|older| older.stranger) else { return false };
        answer.knows == Some(true)
            && older.newest.zip(answer.revision).is_none_or(|(newest, now)| !is_another(newest, now))
    }

    /// The hub that has answered so is believed.
    pub(super) fn believe(&mut self, before: Before, answer: &Answer) -> Keep {
        let mut keep = Keep::Not;
        if before.another > self.another {
            (self.another, keep) = (before.another, Keep::Now);
        }
        let Some((boot, revision)) = answer.boot.clone().zip(answer.durable) else { return keep };
        match &mut self.run {
            Some(run) if run.boot == boot => {
                if revision > run.revision {
                    run.revision = revision;
                    keep = if keep == Keep::Now { keep } else { Keep::Sometime };
                }
            }
            run => (*run, keep) = (Some(Run { boot, revision }), Keep::Now),
        }
        keep
    }

    /// It is believed whatever it answers, although it turned out then to be another: which one it is is asked anew.
    pub(super) fn believe_any(&mut self, another: Option<u64>) {
        (self.run, self.older, self.anew) = (None, None, true);
        self.goes_by(another);
    }

    /// That the hub turned out then to be another is no news.
    pub(super) fn goes_by(&mut self, another: Option<u64>) {
        self.another = self.another.max(another);
    }

    /// Looks what the Cluster says while the hub is believed. Whether that is to be kept.
    pub(super) fn heed(&mut self, cluster: Option<&Value>) -> bool {
        let says = confirmation(cluster);
        let is_news = says > self.confirmed;
        if is_news {
            self.confirmed = says;
        }
        is_news
    }

    /// Whether somebody has said, since this was last seen, that the hub counts as it is.
    pub(super) fn is_confirmed(&self, cluster: Option<&Value>) -> bool {
        confirmation(cluster) > self.confirmed
    }
}

impl Answer {
    /// Reads the answer of a hub of ours; whatever else answers with JSON says something else.
    fn read(answer: Value) -> Option<Self> {
        let answer: Self = serde_json::from_value(answer).ok()?;
        (answer.boot.is_some() && answer.revision.is_some() && answer.durable.is_some()).then_some(answer)
    }
}

fn confirmation(cluster: Option<&Value>) -> Option<Time> {
    cluster.and_then(|cluster| object::annotation(cluster, CONFIRM_HUB)).and_then(|time| time.parse().ok())
}

/// Whether the hub is believed, for all who ask.
#[derive(Debug)]
pub(crate) struct Trust {
    /// The life of the hub that is.
    life: latest::Sender<Option<u64>>,
    why: Mutex<Option<Arc<str>>>,
    /// Given with each connection to the hub: another one may be there.
    back: Wake,
    /// How many there had been when it was asked which one it is, and was believed.
    sure: Mutex<Option<u64>>,
    /// Given when something waits for it to be asked.
    pub(super) question: Wake,
    /// Where the hub is asked.
    hub: Rest,
    namespace: String,
    desired: Arc<Desired>,
    /// One that knows less waits to be confirmed.
    doubts: bool,
    /// By what it is known.
    known: Mutex<Option<Familiar>>,
}

/// What a hub is known by.
#[derive(Clone, Debug)]
pub(super) struct Familiar {
    pub(super) origin: Origin,
    /// The life of the hub that is believed.
    pub(super) life: u64,
    /// What was wanted before the start is what this hub's history says.
    pub(super) recalled: bool,
}

impl Trust {
    pub(crate) fn new(hub: Rest, desired: Arc<Desired>, config: &AgentConfig) -> Self {
        Self {
            life: latest::Sender::default(),
            why: Mutex::default(),
            back: config.hub_back.clone(),
            sure: Mutex::default(),
            question: Wake::new(),
            hub,
            namespace: config.execution_namespace(),
            desired,
            doubts: config.doubt_older_hubs,
            known: Mutex::default(),
        }
    }

    /// How many connections there have been.
    pub(super) fn connections(&self) -> u64 {
        self.back.given()
    }

    /// The hub was asked when there had been so many connections, and is believed.
    pub(super) fn is_sure_since(&self, connections: u64) {
        *self.sure.lock() = Some(connections);
    }

    /// The hub is not believed any more, or is to be asked first.
    pub(super) fn is_unsure(&self) {
        *self.sure.lock() = None;
    }

    /// Whether the hub at the other end of the present connection is believed.
    pub(super) fn is_sure(&self) -> bool {
        *self.sure.lock() == Some(self.connections())
    }

    /// What the hub is known by.
    pub(super) fn knows_by(&self, familiar: Familiar) {
        *self.known.lock() = Some(familiar);
    }

    /// Asks the hub whether it knows less than this agent does, before it is believed that something is not there any more.
    /// Says why if it does, and is to be held for that. With our Cluster a stock server may have taken the right to list
    /// Works: whoever may not ask has nothing to hold against it.
    pub(super) async fn knows_less(&self) -> Result<Option<String>, Error> {
        let Some(Familiar { origin, life, recalled }) = self.known.lock().clone() else { return Ok(None) };
        if !self.doubts {
            return Ok(None);
        }
        let newest = self.desired.newest(life, recalled);
        let answer = match origin.ask(&self.hub, &self.namespace, true).await {
            Err(error) if error.is_forbidden() || error.is_not_found() => return Ok(None),
            answer => answer?,
        };
        let before = Before { newest, outlived: life != self.desired.life(), another: None };
        Ok(origin.judge(before, &answer).map(|older| older.why))
    }

    /// The hub is believed in this life of it.
    pub(super) fn believes(&self, life: u64) {
        *self.why.lock() = None;
        self.life.send_replace(Some(life));
    }

    /// It is not.
    pub(super) fn doubts(&self, why: &str) {
        self.is_unsure();
        *self.why.lock() = Some(why.into());
        self.life.send_replace(None);
    }

    /// Nothing of it counts any more: another agent is at work.
    pub(super) fn forget(&self) {
        self.is_unsure();
        *self.known.lock() = None;
        *self.why.lock() = None;
        self.life.send_replace(None);
    }

    /// What people are told while it is not.
    pub(crate) fn why(&self) -> Option<Arc<str>> {
        self.why.lock().clone()
    }

    /// Waits until the hub is believed in the life that it has then.
    pub(super) async fn holds(&self, life: impl Fn() -> u64) {
        let mut trusted = self.life.subscribe();
        if trusted.wait_for(|trusted| *trusted == Some(life())).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn origin(boot: &str, revision: u64) -> Origin {
        Origin { run: Some(Run { boot: boot.into(), revision }), ..Origin::default() }
    }

    fn answer(boot: &str, revision: u64, knows: Option<bool>) -> Answer {
        let revision = Some(revision);
        Answer { boot: Some(boot.into()), revision, durable: revision, knows, odd: None }
    }

    #[test]
    fn a_hub_that_knows_less_is_told_by_what_it_answers() {
        // (newest that was shown, its revision, whether it knows the run, whether it knows less)
        let rows = [
            (Some(50), Some(60), Some(true), false),
            (Some(50), Some(50), Some(true), false),
            (Some(50), Some(60), Some(false), true),
            (None, Some(60), Some(false), true),
            (None, Some(60), Some(true), false),
            (Some(50), Some(49), Some(true), true),
            (Some(50), Some(1 << 40), Some(true), false),
            (Some(50), Some(49), None, true),
            (Some(50), Some(60), None, false),
            (None, Some(1), None, false),
            (Some(50), None, None, false),
        ];
        for (newest, revision, knows, older) in rows {
            let answer = Answer { revision, durable: revision, ..answer("b", 0, knows) };
            let before = Before { newest, ..Before::default() };
            assert_eq!(origin("a", 40).judge(before, &answer).is_some(), older, "{newest:?} {answer:?}");
            // That it turned out to be another makes it older, once; but for one that has crashed and goes on where it was.
            let crashed =
                knows == Some(true) && !older && revision.is_some_and(|revision| revision < 1 << 30);
            for before in
                [Before { outlived: true, ..before }, Before { another: Some(7), newest, outlived: false }]
            {
                let judged = origin("a", 40).judge(before, &answer);
                assert_eq!(judged.is_some(), !crashed, "{before:?} {answer:?}");
            }
            let mut believed = origin("a", 40);
            believed.goes_by(Some(7));
            let before = Before { another: Some(7), ..before };
            assert_eq!(believed.judge(before, &answer).is_some(), older, "{newest:?} {answer:?}");
        }
    }

    #[test]
    fn the_newest_revision_of_a_run_is_noted() {
        let mut known = Origin::default();
        let mut believe = |boot: &str, revision| {
            let keep = known.believe(Before::default(), &answer(boot, revision, None));
            (keep, known.run.clone().unwrap().revision)
        };
        assert_eq!(believe("a", 5), (Keep::Now, 5));
        assert_eq!(believe("a", 5), (Keep::Not, 5));
        assert_eq!(believe("a", 9), (Keep::Sometime, 9));
        assert_eq!(believe("a", 8), (Keep::Not, 9));
        assert_eq!(believe("b", 7), (Keep::Now, 7));
        let before = Before { another: Some(3), ..Before::default() };
        assert_eq!(known.believe(before, &answer("b", 8, None)), Keep::Now);
        assert_eq!(known.believe(before, &Answer::default()), Keep::Not);
        assert_eq!(Origin::read(&known.text()), known);
        assert_eq!(Origin::read(b"{"), Origin::default());
    }

    #[test]
    fn only_the_very_hub_is_met_again() {
        let known = |newest: u64, its: &Answer| {
            let mut known = origin("a", 40);
            let before = Before { newest: Some(newest), outlived: true, another: None };
            known.older = known.judge(before, its);
            assert!(known.older.is_some());
            Origin::read(&known.text())
        };
        let stranger = answer("x", 9, Some(false));
        // (what was not believed, what answers now, whether it is the one that was known)
        let rows = [
            (&stranger, answer("a", 60, Some(true)), true),
            (&stranger, answer("b", 50, Some(true)), true),
            (&stranger, answer("x", 60, Some(false)), false),
            (&stranger, answer("b", 49, Some(true)), false),
            (&stranger, answer("b", 1 << 40, Some(true)), false),
            (&stranger, Answer { revision: Some(60), ..Answer::default() }, false),
            // It was this one: it has gone on from an older copy since.
            (&answer("a", 30, Some(true)), answer("a", 60, Some(true)), false),
        ];
        for (doubted, now, is) in rows {
            assert_eq!(known(50, doubted).is_met_again(&now), is, "{now:?}");
        }
        assert!(!origin("a", 40).is_met_again(&answer("a", 60, Some(true))), "nothing is doubted");
    }

    #[test]
    fn what_is_no_answer_of_a_hub_is_none() {
        for odd in
            [json!({}), json!([]), json!({"kind": "Status"}), json!({"boot": 7, "revision": 1, "durable": 1})]
        {
            assert_eq!(Answer::read(odd.clone()), None, "{odd}");
        }
        assert_eq!(
            Answer::read(json!({"boot": "a", "revision": 1, "durable": 1, "more": 2})),
            Some(answer("a", 1, None))
        );
    }

    #[test]
    fn only_a_confirmation_that_is_newer_than_all_before_counts() {
        let cluster = |time: &str| json!({"metadata": {"annotations": {CONFIRM_HUB: time}}});
        let (old, new) = (cluster("2026-01-01T00:00:00Z"), cluster("2026-01-02T00:00:00Z"));
        let mut known = Origin::default();
        assert!(!known.is_confirmed(None) && !known.is_confirmed(Some(&cluster("yes"))));
        assert!(known.is_confirmed(Some(&old)));
        assert!(known.heed(Some(&new)) && !known.heed(Some(&new)));
        // What a copy has of it.
        assert!(
            !known.is_confirmed(Some(&old)) && !known.heed(Some(&old)) && !known.is_confirmed(Some(&new))
        );
        assert!(known.is_confirmed(Some(&cluster("2026-01-02T00:00:01Z"))));
    }
}
