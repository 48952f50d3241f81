//! What annotations of ours ask for, on policies, on templates of any kind, on Clusters and on Works.
//!
//! Only what is written now is judged: whoever changes something else in an object that has been there is not held up.

use karmada_api::consts::extension::{AGENT_OFFER, FAILBACK_AFTER, FENCE_AFTER, ROLLOUT, ROLLOUT_GATE};
use karmada_meta::{
    object,
    path::{FieldError, Path},
};
use serde_json::Value;

use crate::{
    evict,
    hold::{self, Whose},
    judge::fence,
    rollout::Asked,
};

/// What is wrong with a template's.
pub(super) fn template(old: Option<&Value>, obj: &Value) -> Vec<FieldError> {
    fence::problem(obj).filter(|_| is_news(old, obj, FENCE_AFTER)).into_iter().collect()
}

/// What is wrong with a policy's.
pub(super) fn policy(old: Option<&Value>, obj: &Value) -> Vec<FieldError> {
    let failback = object::annotation(obj, FAILBACK_AFTER)
        .and_then(evict::failback_refusal)
        .filter(|_| is_news(old, obj, FAILBACK_AFTER));
    let held = windows(Whose::Policy, old, obj);
    let rollout = Asked::read(|key| object::annotation(obj, key)).err();
    let rollout = rollout.filter(|_| is_news(old, obj, ROLLOUT) || is_news(old, obj, ROLLOUT_GATE));
    template(old, obj).into_iter().chain(failback).chain(held).chain(rollout).collect()
}

/// What to tell who takes the waves off a policy.
pub(super) fn waves_removed(old: Option<&Value>, obj: &Value) -> Option<String> {
    let had = old.is_some_and(|old| object::annotation(old, ROLLOUT).is_some());
    (had && object::annotation(obj, ROLLOUT).is_none()).then(|| {
        format!(
            "metadata.annotations[{ROLLOUT}]: changes that are on their way in waves stay in these until they are complete, also \
             where they are stopped; karmada-hub rollout status shows them, and resume, abort or return says what becomes of them"
        )
    })
}

/// What is wrong with what a Cluster offers its agent, where not the hub writes it.
pub fn offer(old: Option<&Value>, obj: &Value) -> Option<FieldError> {
    let wrong = object::annotation(obj, AGENT_OFFER).is_some() && is_news(old, obj, AGENT_OFFER);
    wrong.then(|| {
        let path = Path::new("metadata").child("annotations").key(AGENT_OFFER);
        FieldError::forbidden(
            &path,
            "only the hub offers agents a version: ask it with karmada-hub upgrade agents --to VERSION",
        )
    })
}

/// What is wrong with the maintenance windows of an object.
pub(super) fn windows(whose: Whose, old: Option<&Value>, obj: &Value) -> Vec<FieldError> {
    let [_, key] = whose.keys();
    hold::problem(whose, obj).filter(|_| is_news(old, obj, key)).into_iter().collect()
}

fn is_news(old: Option<&Value>, obj: &Value, key: &str) -> bool {
    old.is_none_or(|old| object::annotation(old, key) != object::annotation(obj, key))
}
