//! What any write of Karmada's kinds must pass that needs nothing but the object: users' in the embedded API or by a webhook,
//! and the hub's own.

use karmada_client::Resource;
use karmada_core::admit::{self, Verb};
use karmada_env::Env;
use karmada_meta::{path::FieldError, time::Time};
use serde_json::Value;

/// Admits what the hub itself is about to write: defaults, permanent ids, stamps, and the same checks as users'.
///
/// # Errors
/// All that is wrong with the object.
pub(crate) fn own(
    resource: &Resource,
    old: Option<&Value>,
    object: &mut Value,
    env: &Env,
) -> Result<Vec<String>, Vec<FieldError>> {
    user(&resource.group, &resource.kind, old, object, env)
}

/// Admits what a user is about to write, by the rules that need nothing but the object.
///
/// # Errors
/// All that is wrong with the object.
pub(crate) fn user(
    group: &str,
    kind: &str,
    old: Option<&Value>,
    object: &mut Value,
    env: &Env,
) -> Result<Vec<String>, Vec<FieldError>> {
    let verb = if old.is_some() { Verb::Update } else { Verb::Create };
    admit(group, kind, verb, old, object, env)
}

/// The rules of a kind for a write.
///
/// # Errors
/// All that is wrong with the object.
pub(crate) fn admit(
    group: &str,
    kind: &str,
    verb: Verb,
    old: Option<&Value>,
    object: &mut Value,
    env: &Env,
) -> Result<Vec<String>, Vec<FieldError>> {
    let now = Time::now(env).to_string();
    admit::admit(&format!("{group}/{kind}"), verb, old, object, &mut || env.uuid(), &now)
}
