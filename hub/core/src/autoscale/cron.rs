//! CronFederatedHPA: which of its rules are due, and what its status remembers.
//!
//! ```text
//!   rules ─┐
//!          ├─ look ─▶ what is due now, when to look again
//!   status ┘             │ one after the other
//!      ▲                 ▼
//!      │              Claim: the target as it is before that ─▶ scaled, or not
//!      │                 │
//!      └─────────── Done: an entry in the history, the rule's next time
//! ```
//!
//! The next time of each rule stands in the status: who looks after a restart, or after another hub, goes on from there. What is
//! due is done once, however many of a rule's times have passed, and not at all when the last of them is long ago; then that is
//! said among the failures. A clock that is put back a little, or that of another hub which is behind, brings no time again.
//!
//! A target and the status are written one after the other, and the hub may be lost in between. So it says first, on the
//! CronFederatedHPA, what it begins: by that the next one sees whether the target was written ([`Begun::became`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use karmada_api::{
    autoscaling::{
        self, CronFederatedHpaRule, CronFederatedHpaSpec, CronFederatedHpaStatus,
        CrossVersionObjectReference, ExecutionHistory, FailedExecution, SuccessfulExecution,
    },
    consts::extension,
};
use karmada_meta::{
    object,
    path::{FieldError, Path},
    time::Time,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::schedule::{self, Schedule};

/// A time that has passed longer ago is not made up for.
pub const MISSED: Duration = Duration::from_secs(600);
/// So many rules one may have: each has its history in the status, and is looked at whenever one of them is due.
pub const RULES: usize = 100;

/// A rule whose time has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// Its place among the rules.
    pub rule: usize,
    /// When it was to be done.
    pub at: Time,
    /// Its time has passed too long ago.
    pub missed: bool,
}

/// What there is to be done about a CronFederatedHPA.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// In the order of their times, and in that of the rules.
    pub due: Vec<Due>,
    /// By rule, when it is due next; nothing for one that is suspended or cannot be read.
    pub next: Vec<Option<Time>>,
    /// What is wrong with rules, by their place.
    pub wrong: Vec<(usize, String)>,
}

impl Look {
    /// When to look again.
    pub fn again(&self) -> Option<Time> {
        self.next.iter().flatten().min().copied()
    }
}

/// What came of a rule that was due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// Which.
    pub due: Due,
    /// When.
    pub at: Time,
    /// Nothing, or why it was not done.
    pub failure: Option<String>,
}

/// What a target is scaled by: `replicas`, or `minReplicas` and `maxReplicas`.
pub type Size = BTreeMap<String, i64>;

/// What a rule makes of a target of this size.
pub fn sized(rule: &CronFederatedHpaRule, target: &CrossVersionObjectReference, size: &Size) -> Size {
    let bounds =
        [("minReplicas", rule.target_min_replicas), ("maxReplicas", rule.target_max_replicas)].into_iter();
    let replicas = [("replicas", rule.target_replicas)].into_iter();
    let fields: Vec<_> = if is_bounds(target) { bounds.collect() } else { replicas.collect() };
    let mut then = size.clone();
    then.extend(fields.into_iter().filter_map(|(field, to)| Some((field.to_owned(), i64::from(to?)))));
    then
}

/// A target before it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// Its uid.
    pub uid: String,
    /// Its generation: any change of what it asks for makes it another one.
    pub generation: i64,
    /// Its size.
    pub from: Size,
    /// What is to be made of that, which is something else.
    pub to: Size,
}

/// What became of something that was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Became {
    /// It was not done.
    Open,
    /// It was, or somebody has scaled it since, after the rule's time, and has the last word.
    Done,
    /// Its size is as it was, and it was changed several times: it may have been set back.
    Unclear,
}

impl Begun {
    /// What became of it, now that the target is so.
    pub fn became(&self, now: &Self) -> Became {
        if self.uid != now.uid {
            return Became::Open;
        }
        match now.generation.saturating_sub(self.generation) {
            0 if now.from == self.to => Became::Done,
            // One change. It was something else if the size is what it was.
            1 if now.from != self.from => Became::Done,
            2.. if now.from == self.from => Became::Unclear,
            2.. => Became::Done,
            _ => Became::Open,
        }
    }
}

/// A time of a rule that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The rule's name.
    pub rule: String,
    /// When it was to be done.
    pub at: Time,
    /// The target; nothing of one that was not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Begun>,
}

/// The times that were begun lately, one of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims(Vec<Claim>);

impl Claims {
    /// Those that stand on a CronFederatedHPA. What a user has made of them that cannot be read is none.
    pub fn of(cron: &Value) -> Self {
        let text = object::annotation(cron, extension::CRON_BEGUN);
        Self(text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default())
    }

    /// What a time of a rule found when it was begun.
    pub fn begun(&self, rule: &str, at: Time) -> Option<&Begun> {
        self.0.iter().find(|claim| claim.rule == rule && claim.at == at)?.target.as_ref()
    }

    /// Whether a time of a rule was begun.
    pub fn has(&self, rule: &str, at: Time) -> bool {
        self.0.iter().any(|claim| claim.rule == rule && claim.at == at)
    }

    /// Puts another one on a CronFederatedHPA. Older ones of its rule go, and such as no clock brings back.
    pub fn add(mut self, cron: &mut Value, claim: Claim) {
        let is_old = |at: Time| at.elapsed(claim.at.timestamp().into()) > MISSED;
        self.0.retain(|other| other.rule != claim.rule && !is_old(other.at));
        self.0.insert(0, claim);
        self.0.truncate(RULES);
        object::set_annotation(cron, extension::CRON_BEGUN, json!(self.0).to_string());
    }

    fn newest(&self, rule: &str) -> Option<Time> {
        self.0.iter().filter(|claim| claim.rule == rule).map(|claim| claim.at).max()
    }
}

/// Looks at the rules.
pub fn look(
    spec: &CronFederatedHpaSpec,
    status: &CronFederatedHpaStatus,
    claims: &Claims,
    now: Time,
) -> Look {
    let (mut look, told_of) = (Look::default(), histories(status));
    for (at, rule) in spec.rules.iter().enumerate() {
        let mut next = None;
        if !rule.suspend {
            match Schedule::parse(&rule.schedule, rule.time_zone.as_deref()) {
                Ok(schedule) => {
                    let history = told_of.get(rule.name.as_str()).copied();
                    let told = history.and_then(|history| history.next_execution_time);
                    let due = told.filter(|told| *told <= now && schedule.has(*told));
                    if let Some(first) = due {
                        let last = schedule.last(first, now);
                        let missed = last.elapsed(now.timestamp().into()) >= MISSED;
                        look.due.push(Due { rule: at, at: last, missed });
                    }
                    next = match (told, &due) {
                        // Of one that counts from when it began, the beginning stands in its next time.
                        (Some(told), None) if told > now && schedule.goes_on(told, now) => Some(told),
                        (_, Some(_)) => look.due.last().and_then(|due| schedule.after(due.at)),
                        _ => {
                            let begun = claims.newest(&rule.name).filter(|at| told != Some(*at));
                            schedule.after(done(history, begun, now).unwrap_or(now))
                        }
                    };
                }
                Err(why) => look.wrong.push((at, why)),
            }
        }
        look.next.push(next);
    }
    look.due.sort_by_key(|due| (due.at, due.rule));
    look
}

/// A time of a rule that was done and is yet to come: this clock was put back, or is behind that of another hub. By so much as
/// makes a time too late, it does not come again.
fn done(history: Option<&ExecutionHistory>, begun: Option<Time>, now: Time) -> Option<Time> {
    let successful = history.into_iter().flat_map(|history| &history.successful_executions);
    let failed = history.into_iter().flat_map(|history| &history.failed_executions);
    let times = successful.map(|done| done.schedule_time).chain(failed.map(|done| done.schedule_time));
    // The history may be limited to nothing.
    let newest = times.chain(begun).max()?;
    (newest > now && now.elapsed(newest.timestamp().into()) <= MISSED).then_some(newest)
}

/// The status after some of what is due was done. The rest of it is as due as before.
pub fn status(
    spec: &CronFederatedHpaSpec,
    status: &CronFederatedHpaStatus,
    look: &Look,
    done: &[Done],
) -> CronFederatedHpaStatus {
    let told_of = histories(status);
    let of_rule = |(at, rule): (usize, &CronFederatedHpaRule)| {
        let mut history = told_of.get(rule.name.as_str()).copied().cloned().unwrap_or_default();
        history.rule_name.clone_from(&rule.name);
        let of_it = |due: &Due| due.rule == at;
        if !look.due.iter().any(of_it) || done.iter().any(|done| of_it(&done.due)) {
            history.next_execution_time = look.next.get(at).copied().flatten();
        }
        for done in done.iter().filter(|done| done.due.rule == at) {
            let (schedule_time, execution_time) = (done.due.at, done.at);
            match &done.failure {
                Some(why) => {
                    let message = why.clone();
                    let failed = FailedExecution { schedule_time, execution_time, message };
                    history.failed_executions.insert(0, failed);
                }
                None => {
                    let bounds = |value: Option<i32>| value.filter(|_| is_bounds(&spec.scale_target_ref));
                    let applied = SuccessfulExecution {
                        schedule_time,
                        execution_time,
                        applied_replicas: rule.target_replicas.filter(|_| !is_bounds(&spec.scale_target_ref)),
                        applied_max_replicas: bounds(rule.target_max_replicas),
                        applied_min_replicas: bounds(rule.target_min_replicas),
                    };
                    history.successful_executions.insert(0, applied);
                }
            }
        }
        let most = |limit: i32| usize::try_from(limit).unwrap_or_default();
        history.successful_executions.truncate(most(rule.successful_history_limit));
        history.failed_executions.truncate(most(rule.failed_history_limit));
        history
    };
    CronFederatedHpaStatus { execution_histories: spec.rules.iter().enumerate().map(of_rule).collect() }
}

/// What is remembered, by rule.
fn histories(status: &CronFederatedHpaStatus) -> BTreeMap<&str, &ExecutionHistory> {
    status.execution_histories.iter().map(|history| (history.rule_name.as_str(), history)).collect()
}

/// Whether a target has bounds that are set, and no replicas.
pub fn is_bounds(target: &CrossVersionObjectReference) -> bool {
    target.api_version == autoscaling::API_VERSION && target.kind == autoscaling::FEDERATED_HPA
}

/// What is wrong with a CronFederatedHPA, which had so many rules before. One from before there was a limit may stay as long.
pub fn validate(spec: &CronFederatedHpaSpec, before: usize) -> Vec<FieldError> {
    let path = Path::new("spec");
    let most = RULES.max(before);
    if spec.rules.len() > most {
        return vec![FieldError::too_many(&path.child("rules"), spec.rules.len(), most)];
    }
    let (mut errors, mut names) = (Vec::new(), BTreeSet::new());
    let target = &spec.scale_target_ref;
    let group = target.api_version.split_once('/').map_or("", |(group, _)| group);
    if group == autoscaling::GROUP && target.kind != autoscaling::FEDERATED_HPA {
        let path = path.child("scaleTargetRef").child("kind");
        errors.push(FieldError::invalid(&path, target.kind.as_str(), "only support FederatedHPA"));
    }
    for (i, rule) in spec.rules.iter().enumerate() {
        let path = path.child("rules").index(i);
        if !names.insert(rule.name.as_str()) {
            errors.push(FieldError::duplicate(&path.child("name"), rule.name.as_str()));
        }
        if let Some(Err(why)) = rule.time_zone.as_deref().map(schedule::zone) {
            let zone = rule.time_zone.as_deref().unwrap_or_default();
            errors.push(FieldError::invalid(&path.child("timeZone"), zone, why));
        }
        if let Err(why) = Schedule::parse(&rule.schedule, None) {
            let why = format!("invalid cron format: {why}");
            errors.push(FieldError::invalid(&path.child("schedule"), rule.schedule.as_str(), why));
        }
        errors.extend(targets(target, rule, &path));
    }
    errors
}

/// What is wrong with what a rule scales to.
fn targets(
    target: &CrossVersionObjectReference,
    rule: &CronFederatedHpaRule,
    path: &Path,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if !is_bounds(target) {
        match rule.target_replicas {
            None => {
                let why = format!("targetReplicas cannot be nil if you want to scale {}", target.kind);
                errors.push(FieldError::invalid(&path.child("targetReplicas"), "", why));
            }
            Some(replicas) if replicas < 0 => {
                let why = "targetReplicas should be larger than or equal to 0";
                errors.push(FieldError::invalid(&path.child("targetReplicas"), replicas, why));
            }
            Some(_) => {}
        }
        return errors;
    }
    let bounds =
        [("targetMinReplicas", rule.target_min_replicas), ("targetMaxReplicas", rule.target_max_replicas)];
    if bounds.iter().all(|(_, bound)| bound.is_none()) {
        let why = "targetMinReplicas and targetMaxReplicas cannot be nil at the same time if you want to scale FederatedHPA";
        errors.push(FieldError::invalid(path, rule.name.as_str(), why));
    }
    for (field, bound) in bounds {
        if let Some(bound) = bound.filter(|bound| *bound <= 0) {
            errors.push(FieldError::invalid(
                &path.child(field),
                bound,
                format!("{field} should be larger than 0"),
            ));
        }
    }
    if let (Some(min), Some(max)) = (rule.target_min_replicas, rule.target_max_replicas)
        && min > max
    {
        let why = "targetMaxReplicas should be larger than or equal to targetMinReplicas";
        errors.push(FieldError::invalid(&path.child("targetMaxReplicas"), max, why));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(spec: &CronFederatedHpaSpec, status: &CronFederatedHpaStatus, now: Time) -> Look {
        super::look(spec, status, &Claims::default(), now)
    }

    fn spec(rules: Value) -> CronFederatedHpaSpec {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        serde_json::from_value(json!({"scaleTargetRef": target, "rules": rules})).unwrap()
    }

    fn told(histories: Value) -> CronFederatedHpaStatus {
        serde_json::from_value(json!({"executionHistories": histories})).unwrap()
    }

    fn time(text: &str) -> Time {
        text.parse().unwrap()
    }

    #[test]
    fn each_time_comes_once_however_late_one_looks() {
        let rule = |schedule: &str| json!([{"name": "r", "schedule": schedule, "targetReplicas": 4}]);
        let next = |next: &str| json!([{"ruleName": "r", "nextExecutionTime": next}]);
        let ten = "2026-11-23T10:00:00Z";
        // (schedule, what the status says, now, what is due, whether it is missed, what comes next)
        let rows = [
            ("never looked at", "0 * * * *", json!([]), "2026-11-23T10:00:00Z", None, "2026-11-23T11:00:00Z"),
            ("not yet", "0 * * * *", next(ten), "2026-11-23T09:59:59Z", None, ten),
            ("now", "0 * * * *", next(ten), ten, Some((ten, false)), "2026-11-23T11:00:00Z"),
            (
                "late",
                "0 * * * *",
                next(ten),
                "2026-11-23T10:09:59Z",
                Some((ten, false)),
                "2026-11-23T11:00:00Z",
            ),
            (
                "too late",
                "0 * * * *",
                next(ten),
                "2026-11-23T10:10:00Z",
                Some((ten, true)),
                "2026-11-23T11:00:00Z",
            ),
            (
                "the newest of several",
                "*/5 * * * *",
                next("2026-11-20T10:00:00Z"),
                "2026-11-23T10:02:00Z",
                Some((ten, false)),
                "2026-11-23T10:05:00Z",
            ),
            (
                "of another schedule",
                "30 * * * *",
                next(ten),
                "2026-11-23T10:00:30Z",
                None,
                "2026-11-23T10:30:00Z",
            ),
            ("a sooner one", "30 9 * * *", next(ten), "2026-11-23T09:00:00Z", None, "2026-11-23T09:30:00Z"),
            (
                "counted on",
                "@every 1h",
                next(ten),
                "2026-11-23T10:00:05Z",
                Some((ten, false)),
                "2026-11-23T11:00:00Z",
            ),
            ("counting", "@every 1h", next(ten), "2026-11-23T09:30:00Z", None, ten),
            ("counts anew", "@every 1m", next(ten), "2026-11-23T09:30:00Z", None, "2026-11-23T09:31:00Z"),
        ];
        for (what, schedule, histories, now, due, then) in rows {
            let look = look(&spec(rule(schedule)), &told(histories), time(now));
            let found: Vec<_> = look.due.iter().map(|due| (due.at.to_string(), due.missed)).collect();
            let want: Vec<_> = due.into_iter().map(|(at, missed)| (at.to_owned(), missed)).collect();
            assert_eq!((found, look.again()), (want, Some(time(then))), "{what}");
        }
    }

    #[test]
    fn a_time_that_was_done_does_not_come_again_for_a_clock_that_is_behind() {
        let of = |field: &str| {
            let mut history = json!({"ruleName": "r", "nextExecutionTime": "2026-11-23T10:05:00Z"});
            history[field] = json!([{"scheduleTime": "2026-11-23T10:00:00Z",
                "executionTime": "2026-11-23T10:00:00Z", "message": "no"}]);
            told(json!([history]))
        };
        let rule = spec(json!([{"name": "r", "schedule": "*/5 * * * *", "targetReplicas": 4}]));
        let other = spec(json!([{"name": "r", "schedule": "* * * * *", "targetReplicas": 4}]));
        // (spec, now, what comes next)
        let rows = [
            ("a second behind", &rule, "2026-11-23T09:59:59Z", "2026-11-23T10:05:00Z"),
            ("ten minutes behind", &rule, "2026-11-23T09:50:00Z", "2026-11-23T10:05:00Z"),
            ("by more times come again", &rule, "2026-11-23T09:49:59Z", "2026-11-23T09:50:00Z"),
            ("another schedule goes on from there", &other, "2026-11-23T09:59:30Z", "2026-11-23T10:01:00Z"),
            ("another schedule, and not behind", &other, "2026-11-23T10:02:30Z", "2026-11-23T10:03:00Z"),
        ];
        for (what, spec, now, then) in rows {
            for field in ["successfulExecutions", "failedExecutions"] {
                let look = look(spec, &of(field), time(now));
                assert_eq!((look.due.len(), look.again()), (0, Some(time(then))), "{what}, {field}");
            }
        }
    }

    /// The same where nothing is remembered in the history: the rule may be limited to nothing.
    #[test]
    fn what_was_begun_does_not_come_again_for_a_clock_that_is_behind() {
        let spec = spec(
            json!([{"name": "r", "schedule": "*/5 * * * *", "targetReplicas": 4, "failedHistoryLimit": 0}]),
        );
        let next = |next: &str| told(json!([{"ruleName": "r", "nextExecutionTime": next}]));
        let begun = |rule: &str, at: &str| {
            let mut cron = json!({"metadata": {"name": "c"}});
            Claims::default().add(&mut cron, Claim { rule: rule.to_owned(), at: time(at), target: None });
            Claims::of(&cron)
        };
        let (ten, five) = ("2026-11-23T10:00:00Z", "2026-11-23T10:05:00Z");
        let nobody = Claims::default();
        // (what the status says, what was begun, now, what comes next)
        let rows = [
            ("a second behind", next(five), begun("r", ten), "2026-11-23T09:59:59Z", five),
            ("ten minutes behind", next(five), begun("r", ten), "2026-11-23T09:50:00Z", five),
            (
                "by more times come again",
                next(five),
                begun("r", ten),
                "2026-11-23T09:49:59Z",
                "2026-11-23T09:50:00Z",
            ),
            ("another rule was", next(five), begun("q", ten), "2026-11-23T09:59:59Z", ten),
            ("nobody knows", next(five), nobody, "2026-11-23T09:59:59Z", ten),
            (
                "begun, and not done",
                next(ten),
                begun("r", ten),
                "2026-11-23T09:54:00Z",
                "2026-11-23T09:55:00Z",
            ),
        ];
        for (what, status, begun, now, then) in rows {
            let look = super::look(&spec, &status, &begun, time(now));
            assert_eq!((look.due.len(), look.again()), (0, Some(time(then))), "{what}");
        }
    }

    /// Clocks that are put forward and back, each with the one time that is meant.
    #[test]
    fn a_clock_that_shows_a_time_twice_brings_it_once() {
        let rule = |schedule: &str| {
            spec(
                json!([{"name": "r", "schedule": schedule, "timeZone": "Europe/Berlin", "targetReplicas": 4}]),
            )
        };
        let told = |next: &str| told(json!([{"ruleName": "r", "nextExecutionTime": next}]));
        // (schedule, what the status says, now, what is due, what comes next)
        let rows = [
            ("30 2 * * *", "2026-10-25T00:30:00Z", "2026-10-25T00:29:59Z", None, "2026-10-25T00:30:00Z"),
            (
                "30 2 * * *",
                "2026-10-25T00:30:00Z",
                "2026-10-25T00:30:00Z",
                Some("2026-10-25T00:30:00Z"),
                "2026-10-26T01:30:00Z",
            ),
            // It shows 02:30 once more.
            ("30 2 * * *", "2026-10-26T01:30:00Z", "2026-10-25T01:30:00Z", None, "2026-10-26T01:30:00Z"),
            (
                "30 * * * *",
                "2026-10-25T00:30:00Z",
                "2026-10-25T00:35:00Z",
                Some("2026-10-25T00:30:00Z"),
                "2026-10-25T01:30:00Z",
            ),
            (
                "30 * * * *",
                "2026-10-25T00:30:00Z",
                "2026-10-25T01:35:00Z",
                Some("2026-10-25T01:30:00Z"),
                "2026-10-25T02:30:00Z",
            ),
            // It goes from 02:00 to 03:00.
            (
                "30 2 * * *",
                "2026-03-29T01:30:00Z",
                "2026-03-29T01:30:00Z",
                Some("2026-03-29T01:30:00Z"),
                "2026-03-30T00:30:00Z",
            ),
        ];
        for (schedule, next, now, due, then) in rows {
            let look = look(&rule(schedule), &told(next), time(now));
            let found: Vec<_> = look.due.iter().map(|due| (due.at, due.missed)).collect();
            let want: Vec<_> = due.into_iter().map(|at| (time(at), false)).collect();
            assert_eq!((found, look.again()), (want, Some(time(then))), "{schedule} at {now}");
        }
    }

    #[test]
    fn whether_it_was_done_is_seen_by_the_target() {
        let size = |replicas: i64| Size::from([("replicas".to_owned(), replicas)]);
        let is = |uid: &str, generation: i64, replicas: i64| Begun {
            uid: uid.to_owned(),
            generation,
            from: size(replicas),
            to: size(4),
        };
        let begun = is("u", 7, 1);
        let rows = [
            ("as it was", is("u", 7, 1), Became::Open),
            ("scaled", is("u", 8, 4), Became::Done),
            ("scaled by a user instead, or then by one", is("u", 8, 6), Became::Done),
            ("another image", is("u", 8, 1), Became::Open),
            ("scaled, and then by a user", is("u", 9, 6), Became::Done),
            ("several changes, and the size as it was", is("u", 9, 1), Became::Unclear),
            ("scaled, with another image", is("u", 9, 4), Became::Done),
            ("another object", is("v", 9, 4), Became::Open),
            ("an older one, of a hub that was restored", is("u", 6, 4), Became::Open),
            ("one that counts no generations", Begun { generation: 0, ..is("u", 0, 1) }, Became::Open),
        ];
        for (what, now, want) in rows {
            assert_eq!(begun.became(&now), want, "{what}");
        }
        let uncounted = is("u", 0, 1);
        assert_eq!(
            [1, 4].map(|replicas| uncounted.became(&is("u", 0, replicas))),
            [Became::Open, Became::Done]
        );
    }

    #[test]
    fn claims_are_kept_as_long_as_a_clock_may_bring_them_back() {
        let mut cron = json!({"metadata": {"name": "c"}});
        let begun = Begun { uid: "u".to_owned(), generation: 7, from: Size::new(), to: Size::new() };
        let add = |cron: &mut Value, rule: &str, at: &str| {
            let claim = Claim { rule: rule.to_owned(), at: time(at), target: Some(begun.clone()) };
            Claims::of(cron).add(cron, claim);
        };
        add(&mut cron, "a", "2026-11-23T10:00:00Z");
        add(&mut cron, "b", "2026-11-23T10:05:00Z");
        assert_eq!(Claims::of(&cron).begun("a", time("2026-11-23T10:00:00Z")), Some(&begun));
        assert_eq!(Claims::of(&cron).begun("a", time("2026-11-23T10:05:00Z")), None, "of another time");
        add(&mut cron, "b", "2026-11-23T10:10:00Z");
        assert_eq!(Claims::of(&cron).0.len(), 2, "one of each rule");
        add(&mut cron, "c", "2026-11-23T10:10:01Z");
        let rules: Vec<String> = Claims::of(&cron).0.into_iter().map(|claim| claim.rule).collect();
        assert_eq!(rules, ["c", "b"]);
        object::set_annotation(&mut cron, extension::CRON_BEGUN, "soon");
        assert_eq!(Claims::of(&cron), Claims::default());
    }

    /// The status is written after each of them.
    #[test]
    fn what_is_not_done_yet_stays_due() {
        let rules = json!([
            {"name": "a", "schedule": "0 * * * *", "targetReplicas": 1},
            {"name": "b", "schedule": "0 * * * *", "targetReplicas": 2},
            {"name": "c", "schedule": "30 * * * *", "targetReplicas": 3},
        ]);
        let (spec, ten) = (spec(rules), time("2026-11-23T10:00:00Z"));
        let next = |rule: &str, next: &str| json!({"ruleName": rule, "nextExecutionTime": next});
        let known = told(json!([next("a", "2026-11-23T10:00:00Z"), next("b", "2026-11-23T10:00:00Z")]));
        let first = look(&spec, &known, ten);
        assert_eq!(first.due.iter().map(|due| due.rule).collect::<Vec<_>>(), [0, 1]);
        let done = |at: usize| [Done { due: first.due[at].clone(), at: ten, failure: None }];
        let known = status(&spec, &known, &first, &done(0));
        let left = look(&spec, &known, ten);
        assert_eq!(
            left.due.iter().map(|due| due.rule).collect::<Vec<_>>(),
            [1],
            "the hub was lost in between"
        );
        let known = status(&spec, &known, &first, &done(1));
        let times: Vec<_> =
            known.execution_histories.iter().map(|of| of.next_execution_time.unwrap().to_string()).collect();
        assert_eq!(times, ["2026-11-23T11:00:00Z", "2026-11-23T11:00:00Z", "2026-11-23T10:30:00Z"]);
        assert!(known.execution_histories[..2].iter().all(|of| of.successful_executions.len() == 1));
    }

    #[test]
    fn a_rule_changes_what_it_names() {
        let (web, hpa) = (
            CrossVersionObjectReference {
                api_version: "apps/v1".into(),
                kind: "Deployment".into(),
                name: "web".into(),
            },
            CrossVersionObjectReference {
                api_version: autoscaling::API_VERSION.into(),
                kind: autoscaling::FEDERATED_HPA.into(),
                name: "web".into(),
            },
        );
        let size = |fields: &[(&str, i64)]| -> Size {
            fields.iter().map(|(field, is)| ((*field).to_owned(), *is)).collect()
        };
        let rule = CronFederatedHpaRule {
            target_replicas: Some(0),
            target_max_replicas: Some(9),
            ..CronFederatedHpaRule::default()
        };
        assert_eq!(sized(&rule, &web, &size(&[("replicas", 3)])), size(&[("replicas", 0)]));
        let bounds = size(&[("minReplicas", 1), ("maxReplicas", 3)]);
        assert_eq!(sized(&rule, &hpa, &bounds), size(&[("minReplicas", 1), ("maxReplicas", 9)]));
    }

    #[test]
    fn rules_that_rest_or_cannot_be_read_are_not_due() {
        let rules = json!([
            {"name": "rests", "schedule": "* * * * *", "suspend": true},
            {"name": "odd", "schedule": "@5minutes"},
            {"name": "b", "schedule": "0 * * * *"},
            {"name": "a", "schedule": "30 9 * * *"},
        ]);
        let due = json!(["rests", "odd", "b", "a"].map(|name| {
            let next = if name == "a" { "2026-11-23T09:30:00Z" } else { "2026-11-23T10:00:00Z" };
            json!({"ruleName": name, "nextExecutionTime": next})
        }));
        let spec = spec(rules);
        let look = look(&spec, &told(due), time("2026-11-23T10:00:01Z"));
        assert_eq!(look.due.iter().map(|due| due.rule).collect::<Vec<_>>(), [3, 2], "in the order of time");
        assert_eq!(look.next[..2], [None, None]);
        assert_eq!(look.wrong.len(), 1);
        assert!(look.wrong[0].1.contains("@5minutes"));
    }

    #[test]
    fn the_history_is_as_long_as_it_is_to_be() {
        let rules = |successful: i32, failed: i32| {
            spec(json!([{"name": "r", "schedule": "* * * * *", "targetReplicas": 4,
                "successfulHistoryLimit": successful, "failedHistoryLimit": failed}]))
        };
        let at = |minute: u32| time(&format!("2026-11-23T10:{minute:02}:00Z"));
        let run = |spec: &CronFederatedHpaSpec| {
            let mut known =
                told(json!([{"ruleName": "r", "nextExecutionTime": at(0)}, {"ruleName": "gone"}]));
            for minute in 0..8 {
                let look = look(spec, &known, at(minute));
                assert_eq!(look.due.len(), 1, "minute {minute}");
                let failure = (minute % 2 == 1).then(|| format!("no {minute}"));
                let done = Done { due: look.due[0].clone(), at: at(minute), failure };
                known = status(spec, &known, &look, &[done]);
            }
            assert_eq!(known.execution_histories.len(), 1, "of rules that are there");
            let history = known.execution_histories.remove(0);
            assert_eq!(history.next_execution_time, Some(at(8)));
            let times =
                |times: Vec<Time>| times.into_iter().map(|at| at.timestamp().to_string()).collect::<Vec<_>>();
            let successful = history.successful_executions.iter().map(|done| done.schedule_time).collect();
            let failed: Vec<String> =
                history.failed_executions.iter().map(|done| done.message.clone()).collect();
            (times(successful).join(" "), failed.join(" "))
        };
        let ok = |minutes: &[u32]| {
            minutes.iter().map(|minute| at(*minute).to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(run(&rules(3, 3)), (ok(&[6, 4, 2]), "no 7 no 5 no 3".to_owned()));
        assert_eq!(run(&rules(1, 0)), (ok(&[6]), String::new()));
        assert_eq!(run(&rules(32, 1)), (ok(&[6, 4, 2, 0]), "no 7".to_owned()));
    }

    #[test]
    fn what_was_applied_is_told_as_karmada_does() {
        let known = told(json!([{"ruleName": "every-minute", "nextExecutionTime": "2026-11-22T03:00:00Z",
            "successfulExecutions": [{"appliedReplicas": 4, "executionTime": "2026-11-22T02:59:00Z", "scheduleTime": "2026-11-22T02:59:00Z"}]}]));
        let spec = spec(json!([
            {"name": "every-minute", "schedule": "* * * * *", "targetReplicas": 4},
            {"name": "never", "schedule": "0 0 1 1 *", "suspend": true, "targetReplicas": 9, "timeZone": "Asia/Shanghai"},
        ]));
        let now = time("2026-11-22T03:00:00Z");
        let look = look(&spec, &known, now);
        let done = Done { due: look.due[0].clone(), at: now, failure: None };
        // As a stock Karmada had it.
        let want = json!({"executionHistories": [
            {"nextExecutionTime": "2026-11-22T03:01:00Z", "ruleName": "every-minute", "successfulExecutions": [
                {"appliedReplicas": 4, "executionTime": "2026-11-22T03:00:00Z", "scheduleTime": "2026-11-22T03:00:00Z"},
                {"appliedReplicas": 4, "executionTime": "2026-11-22T02:59:00Z", "scheduleTime": "2026-11-22T02:59:00Z"},
            ]},
            {"ruleName": "never"},
        ]});
        assert_eq!(serde_json::to_value(status(&spec, &known, &look, &[done])).unwrap(), want);
    }

    #[test]
    fn there_is_a_most_of_rules() {
        let rules = |count: usize| {
            let rule =
                |n: usize| json!({"name": format!("r{n}"), "schedule": "* * * * *", "targetReplicas": 1});
            spec((0..count).map(rule).collect())
        };
        let told = |count: usize, before: usize| -> Vec<String> {
            validate(&rules(count), before).iter().map(ToString::to_string).collect()
        };
        assert_eq!(told(100, 0), [""; 0]);
        assert_eq!(told(101, 0), ["spec.rules: Too many: 101: must have at most 100 items"]);
        assert_eq!(told(150, 150), [""; 0], "it was there before");
        assert_eq!(told(151, 150).len(), 1);
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        let hpa =
            json!({"apiVersion": "autoscaling.karmada.io/v1alpha1", "kind": "FederatedHPA", "name": "web"});
        let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        let odd = json!({"apiVersion": "autoscaling.karmada.io/v1alpha1", "kind": "CronFederatedHPA", "name": "web"});
        let rule = |more: Value| {
            let mut rule = json!({"name": "r", "schedule": "* * * * *"});
            for (key, value) in more.as_object().unwrap() {
                rule[key] = value.clone();
            }
            json!([rule])
        };
        let rows = [
            (&web, rule(json!({"targetReplicas": 0})), ""),
            (
                &web,
                rule(json!({})),
                "spec.rules[0].targetReplicas: Invalid value: \"\": targetReplicas cannot be nil if you want to scale Deployment",
            ),
            (&web, rule(json!({"targetReplicas": -1})), "should be larger than or equal to 0"),
            (
                &web,
                rule(json!({"targetReplicas": 1, "schedule": "0 * * * * *"})),
                "spec.rules[0].schedule: Invalid value: \"0 * * * * *\": invalid cron format",
            ),
            (
                &web,
                rule(json!({"targetReplicas": 1, "timeZone": "Mars/Olympus"})),
                "spec.rules[0].timeZone: Invalid value: \"Mars/Olympus\": unknown time zone",
            ),
            (
                &web,
                json!([{"name": "r", "schedule": "@hourly", "targetReplicas": 1}, {"name": "r", "schedule": "@daily", "targetReplicas": 1}]),
                "spec.rules[1].name: Duplicate value: \"r\"",
            ),
            (&hpa, rule(json!({"targetMinReplicas": 2})), ""),
            (&hpa, rule(json!({"targetMinReplicas": 2, "targetMaxReplicas": 2})), ""),
            (&hpa, rule(json!({"targetReplicas": 2})), "cannot be nil at the same time"),
            (&hpa, rule(json!({"targetMinReplicas": 0})), "targetMinReplicas should be larger than 0"),
            (
                &hpa,
                rule(json!({"targetMinReplicas": 3, "targetMaxReplicas": 2})),
                "should be larger than or equal to targetMinReplicas",
            ),
            (
                &odd,
                rule(json!({"targetReplicas": 2})),
                "spec.scaleTargetRef.kind: Invalid value: \"CronFederatedHPA\": only support FederatedHPA",
            ),
        ];
        for (target, rules, want) in rows {
            let spec = serde_json::from_value(json!({"scaleTargetRef": target, "rules": rules})).unwrap();
            let errors = validate(&spec, 0);
            let text = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            assert!(
                if want.is_empty() { errors.is_empty() } else { text.contains(want) },
                "{rules}: {text}\n wanted {want}"
            );
        }
    }
}
