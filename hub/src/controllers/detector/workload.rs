//! What a template's fields mean: asked of the rules of its kind, a user's scripts among them.

use karmada_api::{
    conditions::{self, Condition},
    consts::{component, event},
};
use karmada_client::Error;
use karmada_interpreter::{RuleError, rules::Operation};
use karmada_meta::{object, time::Time};
use karmada_objects::{Part, bindings, key, scope::BindingKey};
use serde_json::{Value, json};

use super::{Detector, desired::Workload};

/// The longest reason that a condition is given; a script may say anything.
const REASON_LIMIT: usize = 1024;

impl Detector {
    /// The replicas or the parts of a template. Parts replace replicas, as in Karmada; but a user's rule for replicas
    /// goes before the parts that are known of a kind. What cannot be told is an event.
    pub(super) async fn workload(&self, template: &Value) -> Result<Workload, RuleError> {
        let interpreter = &self.context.rules.interpreter;
        let by_user = |operation| interpreter.is_customized(template, operation);
        let parts = by_user(Operation::InterpretComponent)
            || karmada_interpreter::has_components(template) && !by_user(Operation::InterpretReplica);
        let asked = if parts {
            let components = interpreter.components(template).await;
            components.map(|components| Workload { components, ..Workload::default() })
        } else {
            let replicas = interpreter.replicas(template).await;
            replicas.map(|replicas| Workload {
                replicas: replicas.unwrap_or_default().within(object::namespace(template)),
                ..Workload::default()
            })
        };
        asked.inspect_err(|error| {
            let reason = if parts { event::GET_COMPONENTS_FAILED } else { event::GET_REPLICAS_FAILED };
            self.context.writer.warning(component::DETECTOR, template, reason, error.to_string());
        })
    }

    /// Says what a binding was made, or changed, with. What has neither replicas nor parts is not spoken of.
    pub(super) fn tell_workload(&self, template: &Value, workload: &Workload) {
        let (kind, key) = (object::kind(template), object::key(template));
        let (reason, text) = match (workload.components.len(), workload.replicas.replicas) {
            (0, 0) => return,
            (0, replicas) => {
                (event::GET_REPLICAS_SUCCEED, format!("Get replicas({replicas}) of {kind}({key}) succeed."))
            }
            (parts, _) => {
                (event::GET_COMPONENTS_SUCCEED, format!("Get components({parts}) of {kind}({key}) succeed."))
            }
        };
        self.context.writer.normal(component::DETECTOR, template, reason, text);
    }

    /// Says in a condition of a binding what is wrong with its template. The condition is there only then. `told` are those
    /// that it has. Answers whether that is news.
    pub(super) async fn tell_problem(
        &self,
        key: &BindingKey,
        told: &[Condition],
        [type_, reason]: [&'static str; 2],
        problem: Option<&str>,
    ) -> Result<bool, Error> {
        let now = Time::now(&self.context.env);
        let revise = |list: &mut Vec<Condition>| match problem {
            None => conditions::remove(list, type_),
            Some(why) => {
                let why: String = why.chars().take(REASON_LIMIT).collect();
                conditions::set(list, Condition::new(type_, false, reason, why, now), now)
            }
        };
        if !revise(&mut told.to_vec()) {
            return Ok(false);
        }
        let write = |live: &mut Value| {
            let Some(mut list) = key::conditions(live) else { return false };
            let changed = revise(&mut list);
            if changed {
                object::ensure_map(live, "status").insert("conditions".into(), json!(list));
            }
            changed
        };
        self.context
            .writer
            .objects
            .modify(bindings::resource(key.scope), &key.key, Part::Status, write)
            .await?;
        Ok(true)
    }
}
