//! What annotations of ours ask for, on policies, on templates of any kind, on Clusters and on Works.
//!
//! Only what is written now is judged: whoever changes something else in an object that has been there is not held up.

use karmada_api::consts::extension::{FAILBACK_AFTER, FENCE_AFTER, ROLLOUT, ROLLOUT_GATE};
use karmada_meta::{object, path::FieldError};
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

/// What is wrong with the maintenance windows of an object.
pub(super) fn windows(whose: Whose, old: Option<&Value>, obj: &Value) -> Vec<FieldError> {
    let [_, key] = whose.keys();
    hold::problem(whose, obj).filter(|_| is_news(old, obj, key)).into_iter().collect()
}

fn is_news(old: Option<&Value>, obj: &Value, key: &str) -> bool {
    old.is_none_or(|old| object::annotation(old, key) != object::annotation(obj, key))
}
