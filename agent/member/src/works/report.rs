//! A Work's status from what became of its manifests: conditions and messages as Karmada writes them.

use std::borrow::Cow;

use karmada_api::{
    conditions::{self, Condition, ConditionStatus},
    consts::{condition, event, extension, reason},
    work::{ManifestStatus, ResourceHealth, ResourceIdentifier, WorkStatus},
};
use karmada_client::EventKind;
use karmada_meta::time::Time;
use serde_json::Value;

use crate::fights;

/// What is seen of one object on the member.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    pub(crate) status: Option<Value>,
    pub(crate) health: ResourceHealth,
    /// Why a user's rule has no answer about the status, if so.
    pub(crate) reflect_error: Option<String>,
    /// And about the health.
    pub(crate) health_error: Option<String>,
}

/// What became of one manifest.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) identifier: ResourceIdentifier,
    /// Why it is not as it should be.
    pub(crate) error: Option<String>,
    /// The object, if it is there and ours.
    pub(crate) seen: Option<Seen>,
}

/// What became of a Work.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    pub(crate) suspended: bool,
    pub(crate) manifests: Vec<Outcome>,
    /// Objects that left the Work and are still on the member: they stay recorded until they are gone.
    pub(crate) leftovers: Vec<Outcome>,
    /// Of objects that somebody on the member changes back as often as they are corrected, who does.
    pub(crate) contested: Vec<String>,
    /// Why some of it waits, in a word and a sentence, if it does.
    pub(crate) held: Option<(&'static str, String)>,
    /// Of an object that waits no version is in force: nothing was done about it.
    pub(crate) untried: bool,
    /// Which generation of the Work this is about, where the hub waits to hear that.
    pub(crate) observed: Option<i64>,
}

impl Outcomes {
    /// The errors of all manifests as one text, as Go's aggregates print.
    pub(crate) fn error(&self) -> Option<String> {
        self.errors(|outcome| outcome.error.as_deref().map(Cow::Borrowed))
    }

    /// The same for logs and for people at the machine, which leave it: without what the member says about Secrets, since a
    /// server may quote what it does not take.
    pub(crate) fn shown(&self) -> Option<String> {
        self.errors(|outcome| {
            let error = outcome.error.as_deref()?;
            let ResourceIdentifier { group, kind, namespace, name, .. } = &outcome.identifier;
            Some(if group.is_empty() && kind == "Secret" {
                Cow::Owned(format!(
                    "the Secret {namespace}/{name} is not as it should be; why stands in the Work's condition Applied on \
                     the hub"
                ))
            } else {
                Cow::Borrowed(error)
            })
        })
    }

    fn errors<'a>(&'a self, word: impl Fn(&'a Outcome) -> Option<Cow<'a, str>>) -> Option<String> {
        let mut errors: Vec<Cow<'_, str>> = Vec::new();
        for error in self.manifests.iter().chain(&self.leftovers).filter_map(word) {
            if !errors.contains(&error) {
                errors.push(error);
            }
        }
        match errors.as_slice() {
            [] => None,
            [one] => Some(one.clone().into_owned()),
            many => Some(format!("[{}]", many.join(", "))),
        }
    }

    /// What people are told of the objects, given what was reported of them before: that a status is read for the first
    /// time, that a health has changed, and that a rule fails. Karmada says it whenever it looks.
    pub(crate) fn news(&self, old: &WorkStatus) -> Vec<(EventKind, &'static str, String)> {
        let mut news = Vec::new();
        for Outcome { identifier, seen, .. } in &self.manifests {
            let Some(seen) = seen else { continue };
            let ResourceIdentifier { kind, namespace, name, .. } = identifier;
            let object = format!("object({kind}/{namespace}/{name})");
            let is = |known: &&ManifestStatus| {
                known.identifier.group == identifier.group
                    && (&known.identifier.kind, &known.identifier.namespace, &known.identifier.name)
                        == (kind, namespace, name)
            };
            let before = old.manifest_statuses.iter().find(is);
            let known = before.is_some_and(|before| before.status.is_some());
            match &seen.reflect_error {
                Some(why) => news.push((
                    EventKind::Warning,
                    event::REFLECT_STATUS_FAILED,
                    format!("Reflect status for {object} failed, err: {why}."),
                )),
                None if seen.status.is_some() && !known => news.push((
                    EventKind::Normal,
                    event::REFLECT_STATUS_SUCCEED,
                    format!("Reflect status for {object} succeed."),
                )),
                None => {}
            }
            let changed = !known || before.and_then(|before| before.health) != Some(seen.health);
            match (&seen.health_error, seen.health) {
                (Some(why), _) => news.push((
                    EventKind::Warning,
                    event::INTERPRET_HEALTH_FAILED,
                    format!("Interpret health of {object} failed, err: {why}."),
                )),
                (None, health @ (ResourceHealth::Healthy | ResourceHealth::Unhealthy))
                    if seen.status.is_some() && changed =>
                {
                    let word = if health == ResourceHealth::Healthy { "healthy" } else { "unhealthy" };
                    news.push((
                        EventKind::Normal,
                        event::INTERPRET_HEALTH_SUCCEED,
                        format!("Interpret health of {object} as {word}."),
                    ));
                }
                (None, _) => {}
            }
        }
        news
    }

    /// The Work's status, given the one it had.
    pub(crate) fn status(self, old: &WorkStatus, now: Time) -> WorkStatus {
        let mut conditions = old.conditions.clone();
        let (holds, why, message) = if self.suspended {
            (false, reason::SUSPEND_DISPATCHING, reason::SUSPEND_DISPATCHING_MESSAGE)
        } else {
            (true, reason::DISPATCHING, reason::DISPATCHING_MESSAGE)
        };
        conditions::set(
            &mut conditions,
            Condition::new(condition::DISPATCHING, holds, why, message, now),
            now,
        );
        // Of what waits nothing was tried: what was last applied stays as it was, and so what the hub gathers of it. What could
        // not be kept so is told, and that it can again.
        let was_false = conditions::find(&old.conditions, condition::APPLIED)
            .is_some_and(|c| c.status == ConditionStatus::False);
        let is_kept_again = was_false && !self.untried;
        if !self.suspended && (self.held.is_none() || self.error().is_some() || is_kept_again) {
            let total = self.manifests.len();
            let mut applied = match self.error() {
                None => {
                    let message = reason::APPLIED_SUCCESSFUL_MESSAGE;
                    Condition::new(condition::APPLIED, true, reason::APPLIED_SUCCESSFUL, message, now)
                }
                Some(error) => {
                    let good = self.manifests.iter().filter(|m| m.error.is_none()).count();
                    let message = cut(format!("Failed to apply all manifests ({good}/{total}): {error}"));
                    Condition::new(condition::APPLIED, false, reason::APPLIED_FAILED, message, now)
                }
            };
            applied.observed_generation = self.observed;
            conditions::set(&mut conditions, applied, now);
        }
        match &self.held {
            Some((reason, why)) => {
                let held = Condition::new(extension::CHANGES_HELD, true, reason, cut(why.clone()), now);
                conditions::set(&mut conditions, held, now);
            }
            None => {
                conditions::remove(&mut conditions, extension::CHANGES_HELD);
            }
        }
        if !self.contested.is_empty() {
            let how = karmada_meta::duration::format(fights::LONGEST);
            let message = cut(format!(
                "{}; corrected ever more seldom, every {how} at least, until that ends: take these fields out of the template, or \
                 stop the other writer",
                self.contested.join("; ")
            ));
            let contested = Condition::new(extension::OBJECTS_CONTESTED, true, "AnotherWriter", message, now);
            conditions::set(&mut conditions, contested, now);
        } else if !self.suspended {
            conditions::remove(&mut conditions, extension::OBJECTS_CONTESTED);
        }
        let seen = self.manifests.into_iter().chain(self.leftovers).filter_map(|outcome| {
            let Outcome { identifier, seen, .. } = outcome;
            seen.map(|seen| ManifestStatus { identifier, status: seen.status, health: Some(seen.health) })
        });
        WorkStatus { conditions, manifest_statuses: seen.collect() }
    }
}

/// The API allows 32768 characters in a condition's message.
fn cut(mut message: String) -> String {
    const LIMIT: usize = 32 << 10;
    if message.len() > LIMIT {
        let end = (0..=LIMIT - 3).rev().find(|i| message.is_char_boundary(*i)).unwrap_or(0);
        message.truncate(end);
        message.push_str("...");
    }
    message
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn at(second: u64) -> Time {
        Time::from_system(UNIX_EPOCH + Duration::from_secs(second))
    }

    fn outcome(ordinal: i64, error: Option<&str>, seen: bool) -> Outcome {
        let identifier =
            ResourceIdentifier { ordinal, kind: "ConfigMap".into(), ..ResourceIdentifier::default() };
        let seen = seen.then(|| Seen { health: ResourceHealth::Healthy, ..Seen::default() });
        Outcome { identifier, error: error.map(str::to_owned), seen }
    }

    fn summary(status: &WorkStatus) -> Vec<(String, String, String)> {
        let text = |c: &Condition| (c.type_.clone(), c.status.to_string(), c.message.clone());
        status.conditions.iter().map(text).collect()
    }

    #[test]
    fn messages_are_karmadas() {
        let good = Outcomes { manifests: vec![outcome(0, None, true)], ..Outcomes::default() };
        let status = good.status(&WorkStatus::default(), at(1));
        let dispatching =
            ("Dispatching".into(), "True".into(), "Work is being dispatched to member clusters.".to_owned());
        let applied = ("Applied".into(), "True".into(), "Manifest has been successfully applied".to_owned());
        assert_eq!(summary(&status), [dispatching, applied]);
        assert_eq!(status.manifest_statuses.len(), 1);

        let bad = Outcomes {
            manifests: vec![
                outcome(0, Some("no"), false),
                outcome(1, None, true),
                outcome(2, Some("never"), false),
            ],
            ..Outcomes::default()
        };
        let status = bad.status(&status, at(2));
        assert_eq!(status.conditions[1].observed_generation, None);
        assert_eq!(status.conditions[1].message, "Failed to apply all manifests (1/3): [no, never]");
        assert_eq!(status.conditions[1].last_transition_time, at(2));
        assert_eq!(status.conditions[0].last_transition_time, at(1));
        assert_eq!(status.manifest_statuses[0].identifier.ordinal, 1);

        let suspended =
            Outcomes { suspended: true, manifests: vec![outcome(0, None, true)], ..Outcomes::default() };
        let status = suspended.status(&status, at(3));
        assert_eq!(status.conditions[0].reason, "SuspendDispatching");
        assert_eq!(
            status.conditions[1].reason, "AppliedFailed",
            "suspended: what was last applied stays as it was"
        );
    }

    #[test]
    fn of_what_goes_out_in_waves_it_is_said_which_generation_was_applied() {
        let told = |observed, held: bool, old: &WorkStatus| {
            let held = held.then(|| (extension::HELD, "a hold".to_owned()));
            let one =
                Outcomes { manifests: vec![outcome(0, None, true)], observed, held, ..Outcomes::default() };
            one.status(old, at(1))
        };
        let applied =
            |status: &WorkStatus| conditions::find(&status.conditions, condition::APPLIED).cloned().unwrap();
        let first = told(Some(2), false, &WorkStatus::default());
        assert_eq!(applied(&first).observed_generation, Some(2));
        let waits = told(Some(3), true, &first);
        assert_eq!(applied(&waits).observed_generation, Some(2), "nothing of it was tried");
        assert_eq!(applied(&told(Some(3), false, &waits)).observed_generation, Some(3));
    }

    #[test]
    fn what_waits_says_what_for_and_what_was_applied_stays_so() {
        let tells = |held: Option<(&'static str, String)>, error: Option<&str>, untried, old: &WorkStatus| {
            let one = vec![outcome(0, error, true)];
            Outcomes { manifests: one, held, untried, ..Outcomes::default() }.status(old, at(1))
        };
        let told = |held, error: Option<&str>, old: &WorkStatus| tells(held, error, false, old);
        let why = || Some(("OutsideMaintenanceWindows", "a change waits: x".to_owned()));
        let words = |status: &WorkStatus| {
            let word = |c: &Condition| format!("{}={} {} {}", c.type_, c.status, c.reason, c.message);
            status.conditions[1..].iter().map(word).collect::<Vec<_>>()
        };
        let held = "ChangesHeld=True OutsideMaintenanceWindows a change waits: x";
        let applied = "Applied=True AppliedSuccessful Manifest has been successfully applied";
        let new = told(why(), None, &WorkStatus::default());
        assert_eq!(words(&new), [held], "of a Work that was never applied nobody says that it was");
        let before = told(None, None, &WorkStatus::default());
        let status = told(why(), None, &before);
        assert_eq!(words(&status), [applied, held]);
        assert_eq!(status.manifest_statuses.len(), 1, "what is there is reported on");
        let failing = told(why(), Some("no"), &status);
        assert_eq!(
            words(&failing),
            ["Applied=False AppliedFailed Failed to apply all manifests (0/1): no", held]
        );
        assert_eq!(words(&told(None, None, &failing)), [applied]);
        assert_eq!(words(&told(why(), None, &failing)), [applied, held], "it was put right");
        assert_eq!(words(&tells(why(), None, true, &failing)), words(&failing), "nobody has tried");
    }

    #[test]
    fn a_fight_is_told_while_it_lasts() {
        let told = |contested: &[&str], old: &WorkStatus| {
            let contested = contested.iter().map(|&text| text.to_owned()).collect();
            let one = vec![outcome(0, None, true)];
            Outcomes { manifests: one, contested, ..Outcomes::default() }.status(old, at(1))
        };
        let status = told(&["A is changed back by \"x\"", "B"], &WorkStatus::default());
        let (kind, holds, message) = summary(&status).remove(2);
        assert_eq!((kind.as_str(), holds.as_str()), ("ObjectsContested", "True"));
        assert!(
            message.starts_with(
                "A is changed back by \"x\"; B; corrected ever more seldom, every 3m0s at least"
            ),
            "{message}"
        );
        assert_eq!(told(&[], &status).conditions.len(), 2);
    }

    #[test]
    fn people_are_told_what_is_new_of_an_object() {
        let reports = |seen: Seen| {
            let mut one = outcome(0, None, true);
            (one.identifier.kind, one.identifier.namespace) = ("Deployment".into(), "shop".into());
            one.identifier.name = "web".into();
            one.seen = Some(seen);
            Outcomes { manifests: vec![one], ..Outcomes::default() }
        };
        let seen = |health| Seen { status: Some(Value::Null), health, ..Seen::default() };
        let mut had = WorkStatus::default();
        let failing =
            Seen { reflect_error: Some("r".into()), health_error: Some("h".into()), ..Seen::default() };
        let object = "object(Deployment/shop/web)";
        let rows = [
            (
                seen(ResourceHealth::Unhealthy),
                vec![
                    format!("ReflectStatusSucceed Reflect status for {object} succeed."),
                    format!("InterpretHealthSucceed Interpret health of {object} as unhealthy."),
                ],
            ),
            (seen(ResourceHealth::Unhealthy), vec![]),
            (
                seen(ResourceHealth::Healthy),
                vec![format!("InterpretHealthSucceed Interpret health of {object} as healthy.")],
            ),
            (
                failing,
                vec![
                    format!("ReflectStatusFailed Reflect status for {object} failed, err: r."),
                    format!("InterpretHealthFailed Interpret health of {object} failed, err: h."),
                ],
            ),
            // What has no status is not spoken of.
            (Seen { health: ResourceHealth::Healthy, ..Seen::default() }, vec![]),
        ];
        for (at_row, (seen, want)) in rows.into_iter().enumerate() {
            let outcomes = reports(seen);
            let said: Vec<_> =
                outcomes.news(&had).into_iter().map(|(_, reason, text)| format!("{reason} {text}")).collect();
            assert_eq!(said, want, "{at_row}");
            had = outcomes.status(&had, at(1));
        }
    }

    #[test]
    fn what_a_member_says_of_a_secret_stays_between_it_and_the_hub() {
        let mut secret = outcome(0, Some("data.key: expected bytes, got \"hunter2\""), false);
        (secret.identifier.kind, secret.identifier.namespace) = ("Secret".into(), "shop".into());
        secret.identifier.name = "s".into();
        let outcomes =
            Outcomes { manifests: vec![secret, outcome(1, Some("no"), false)], ..Outcomes::default() };
        assert!(outcomes.error().unwrap().contains("hunter2"));
        let shown = outcomes.shown().unwrap();
        assert!(shown.starts_with("[the Secret shop/s is not") && shown.ends_with(", no]"), "{shown}");
        assert!(!shown.contains("hunter2"));
    }

    #[test]
    fn one_error_of_many_manifests_is_told_once() {
        let outcomes = Outcomes {
            manifests: (0..50).map(|i| outcome(i, Some("the member is not reachable"), false)).collect(),
            ..Outcomes::default()
        };
        assert_eq!(outcomes.error().as_deref(), Some("the member is not reachable"));
    }
}
