//! Every question about any object: users' scripts first, then their services, then the rules for known kinds, then the
//! general ones.
//!
//! Functions are asynchronous for scripts and services alone. Without one for the kind at hand they answer at once.

use std::sync::Arc;

use arc_swap::ArcSwap;
use karmada_api::work::{AggregatedStatusItem, Component};
use karmada_env::Env;
use karmada_meta::{object, time::Time};
use serde_json::{Value, json};

use crate::{
    DependentObjectReference, Health, InterpretError, Replicas,
    rules::{Operation, Rule, Rules},
    webhook::{self, CallError, Caller, Hooks, More, Response},
};

/// Why a question about an object has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// A user's script failed, or answered with something that is no answer.
    #[error("{object}: {operation} of ResourceInterpreterCustomization {customization}: {problem}", operation = .operation.as_str())]
    Script {
        /// Kind, namespace and name of the object.
        object: String,
        /// The customization with the script.
        customization: String,
        /// The question.
        operation: Operation,
        /// What happened, with the line where it is known.
        problem: String,
    },
    /// A user's service cannot be asked, or answered with something that is no answer.
    #[error("{object}: {operation} of {hook}: {problem}", operation = .operation.as_str())]
    Webhook {
        /// Kind, namespace and name of the object.
        object: String,
        /// The service, its configuration and its address.
        hook: String,
        /// The question.
        operation: Operation,
        /// What happened.
        problem: CallError,
    },
    /// A field does not hold what its kind says.
    #[error(transparent)]
    Field(#[from] InterpretError),
}

/// What becomes of a question when the service that should answer it cannot be reached from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// It stays without an answer, and what was decided before stays as it is.
    Fails,
    /// The next rule answers it: that of a known kind, or the general one. Not so what the member may keep, which would be
    /// lost: [`Interpreter::retained`] stays without an answer.
    FallsBack,
}

/// Answers questions about objects, by rules that may be replaced while it is in use.
#[derive(Debug)]
pub struct Interpreter {
    rules: ArcSwap<Rules>,
    hooks: ArcSwap<Hooks>,
    caller: Option<(Arc<dyn Caller>, Unreachable)>,
    env: Env,
    /// What runs scripts; there only while there are rules.
    #[cfg(feature = "lua")]
    scripts: parking_lot::Mutex<Option<Arc<crate::lua::Scripts>>>,
}

impl Interpreter {
    /// Without user-defined rules.
    pub fn new(env: Env) -> Self {
        Self {
            rules: ArcSwap::default(),
            hooks: ArcSwap::default(),
            caller: None,
            env,
            #[cfg(feature = "lua")]
            scripts: parking_lot::Mutex::default(),
        }
    }

    /// Asks users' services by this caller. Without one they are not asked at all.
    #[must_use]
    pub fn with_caller(mut self, caller: Arc<dyn Caller>, unreachable: Unreachable) -> Self {
        self.caller = Some((caller, unreachable));
        self
    }

    /// Asks these services from now on, and answers with those before.
    pub fn replace_hooks(&self, hooks: Hooks) -> Arc<Hooks> {
        self.hooks.swap(Arc::new(hooks))
    }

    /// Users' services.
    pub fn hooks(&self) -> Arc<Hooks> {
        self.hooks.load_full()
    }

    /// Uses these user-defined rules from now on, and answers with those before. Calls that are under way end by the
    /// old ones.
    pub fn replace(&self, rules: Rules) -> Arc<Rules> {
        #[cfg(feature = "lua")]
        if rules.is_empty() {
            self.scripts.lock().take();
        }
        self.rules.swap(Arc::new(rules))
    }

    /// The user-defined rules.
    pub fn rules(&self) -> Arc<Rules> {
        self.rules.load_full()
    }

    /// Whether a script or a service of the user's answers a question about an object.
    pub fn is_customized(&self, object: &Value, operation: Operation) -> bool {
        !self.rules.load().of(object, operation).is_empty()
            || (self.caller.is_some() && self.hooks.load().of(object, operation).is_some())
    }

    /// Asks the service that answers a question about an object. None if there is none, or if the next rule is to
    /// answer in its stead.
    async fn ask<T>(
        &self,
        object: &Value,
        operation: Operation,
        more: impl FnOnce() -> More,
        read: impl FnOnce(Response) -> Result<T, String>,
    ) -> Result<Option<T>, RuleError> {
        let Some((caller, unreachable)) = &self.caller else { return Ok(None) };
        let Some(hook) = self.hooks.load().of(object, operation).cloned() else { return Ok(None) };
        let fail = |problem| RuleError::Webhook {
            object: format!("{} {}", object::kind(object), object::key(object)),
            hook: hook.to_string(),
            operation,
            problem,
        };
        let uid = self.env.uuid();
        let question = webhook::question(&hook, &uid, operation, object, more())
            .map_err(|problem| fail(CallError::Failed(problem)))?;
        let answer = match caller.call(&hook, &question).await {
            Ok(answer) => answer,
            Err(CallError::Unreachable(_))
                if *unreachable == Unreachable::FallsBack && operation != Operation::Retain =>
            {
                return Ok(None);
            }
            Err(problem) => return Err(fail(problem)),
        };
        Response::read(answer, &uid, operation)
            .and_then(read)
            .map(Some)
            .map_err(|problem| fail(CallError::Failed(problem)))
    }

    /// Asks for a changed object.
    async fn ask_patch(
        &self,
        object: &Value,
        operation: Operation,
        more: impl FnOnce() -> More,
    ) -> Result<Option<Value>, RuleError> {
        let read = |response: Response| {
            let patched = response.patched(object)?;
            match another(object, &patched) {
                Some(problem) => Err(format!("response.patch makes {problem}")),
                None => Ok(patched),
            }
        };
        self.ask(object, operation, more, read).await
    }

    /// An object's replicas; none for kinds that have no replicas.
    ///
    /// # Errors
    /// A script fails, or a field is not of its type.
    pub async fn replicas(&self, object: &Value) -> Result<Option<Replicas>, RuleError> {
        let Some(rule) = self.rule(object, Operation::InterpretReplica) else {
            let read = |response: Response| {
                let replicas = response.replicas.unwrap_or_default();
                Ok(Replicas { replicas, requirements: response.replica_requirements })
            };
            let asked = self.ask(object, Operation::InterpretReplica, More::default, read).await?;
            if asked.is_some() {
                return Ok(asked);
            }
            return Ok(crate::get_replicas(object)?);
        };
        let values = self.call(&rule, object, vec![object.clone()]).await?;
        let [number, requirements] = take(values);
        let number = number.as_f64().unwrap_or_default();
        let requirements = match requirements {
            Value::Null => None,
            read => Some(answer(&rule, object, read)?),
        };
        // Beyond the range of the field it saturates.
        Ok(Some(Replicas { replicas: i64::from(number as i32), requirements }))
    }

    /// The parts of an object that has several kinds of replicas; none for other objects.
    ///
    /// # Errors
    /// A script fails, or a field is not of its type.
    pub async fn components(&self, object: &Value) -> Result<Vec<Component>, RuleError> {
        let Some(rule) = self.rule(object, Operation::InterpretComponent) else {
            let read = |response: Response| Ok(response.components.unwrap_or_default());
            let asked = self.ask(object, Operation::InterpretComponent, More::default, read).await?;
            if let Some(components) = asked {
                return Ok(components);
            }
            return Ok(crate::get_components(object)?);
        };
        let [components] = take(self.call(&rule, object, vec![object.clone()]).await?);
        answer(&rule, object, components)
    }

    /// Gives an object another number of replicas. Answers whether its kind has any.
    ///
    /// # Errors
    /// A script fails.
    pub async fn revise_replicas(&self, object: &mut Value, replicas: i64) -> Result<bool, RuleError> {
        let Some(rule) = self.rule(object, Operation::ReviseReplica) else {
            let more = || More { replicas: Some(replicas), ..More::default() };
            if let Some(revised) = self.ask_patch(object, Operation::ReviseReplica, more).await? {
                *object = revised;
                return Ok(true);
            }
            return Ok(crate::revise_replicas(object, replicas));
        };
        let [revised] = take(self.call(&rule, object, vec![object.clone(), replicas.into()]).await?);
        same(&rule, object, &revised)?;
        *object = revised;
        Ok(true)
    }

    /// The desired object with what the member may decide, if a script says what that is.
    ///
    /// # Errors
    /// A script fails.
    pub async fn retained(&self, desired: &Value, observed: &Value) -> Result<Option<Value>, RuleError> {
        let Some(rule) = self.rule(desired, Operation::Retain) else {
            let more = || More { observed: Some(observed.clone()), ..More::default() };
            return self.ask_patch(desired, Operation::Retain, more).await;
        };
        let [retained] = take(self.call(&rule, desired, vec![desired.clone(), observed.clone()]).await?);
        same(&rule, desired, &retained)?;
        Ok(Some(retained))
    }

    /// What of an object's status is reported.
    ///
    /// # Errors
    /// A script fails.
    pub async fn reflect_status(&self, object: &Value) -> Result<Option<Value>, RuleError> {
        let Some(rule) = self.rule(object, Operation::InterpretStatus) else {
            let read = |response: Response| Ok(response.raw_status.unwrap_or_default());
            let asked = self.ask(object, Operation::InterpretStatus, More::default, read).await?;
            if asked.is_some() {
                return Ok(asked);
            }
            return Ok(crate::reflect_status(object));
        };
        let [status] = take(self.call(&rule, object, vec![object.clone()]).await?);
        Ok(Some(status))
    }

    /// Adds the members' reports up into the status of their template. Answers whether the template changed.
    ///
    /// # Errors
    /// A script fails.
    pub async fn aggregate_status(
        &self,
        template: &mut Value,
        items: &[AggregatedStatusItem],
        now: Time,
    ) -> Result<bool, RuleError> {
        let Some(rule) = self.rule(template, Operation::AggregateStatus) else {
            let more = || More { reports: Some(json!(items)), ..More::default() };
            if let Some(summed) = self.ask_patch(template, Operation::AggregateStatus, more).await? {
                return Ok(take_status(template, &summed));
            }
            return Ok(crate::aggregate_status(template, items, now));
        };
        let args = vec![template.clone(), json!(items)];
        let [summed] = take(self.call(&rule, template, args).await?);
        Ok(take_status(template, &summed))
    }

    /// Whether an object does its job.
    ///
    /// # Errors
    /// A script fails.
    pub async fn health(&self, object: &Value) -> Result<Health, RuleError> {
        let Some(rule) = self.rule(object, Operation::InterpretHealth) else {
            let read = |response: Response| Ok(response.healthy.unwrap_or_default());
            let asked = self.ask(object, Operation::InterpretHealth, More::default, read).await?;
            if let Some(healthy) = asked {
                return Ok(if healthy { Health::Healthy } else { Health::Unhealthy });
            }
            return Ok(crate::health(object));
        };
        let [healthy] = take(self.call(&rule, object, vec![object.clone()]).await?);
        Ok(if healthy == true { Health::Healthy } else { Health::Unhealthy })
    }

    /// What an object refers to and cannot run without.
    ///
    /// # Errors
    /// A script fails, or what it returns names no object.
    pub async fn dependencies(&self, object: &Value) -> Result<Vec<DependentObjectReference>, RuleError> {
        let rules = self.rules.load_full();
        let rules = rules.of(object, Operation::InterpretDependency);
        if rules.is_empty() {
            let read = |response: Response| {
                let found = response.dependencies.unwrap_or_default();
                match found.iter().find_map(missing) {
                    Some(field) => Err(format!("a dependency has no {field}")),
                    None => Ok(found),
                }
            };
            let asked = self.ask(object, Operation::InterpretDependency, More::default, read).await?;
            return Ok(asked.unwrap_or_else(|| crate::dependencies(object)));
        }
        let mut all: Vec<DependentObjectReference> = Vec::new();
        for rule in rules {
            let [found] = take(self.call(rule, object, vec![object.clone()]).await?);
            for reference in answer::<Vec<DependentObjectReference>>(rule, object, found)? {
                if let Some(missing) = missing(&reference) {
                    return Err(fail(rule, object, format!("a dependency has no {missing}")));
                }
                if !all.contains(&reference) {
                    all.push(reference);
                }
            }
        }
        let key = |d: &DependentObjectReference| {
            (d.api_version.clone(), d.kind.clone(), d.namespace.clone(), d.name.clone())
        };
        all.sort_by_key(key);
        Ok(all)
    }

    fn rule(&self, object: &Value, operation: Operation) -> Option<Rule> {
        self.rules.load().of(object, operation).first().cloned()
    }

    #[cfg(feature = "lua")]
    async fn call(&self, rule: &Rule, object: &Value, args: Vec<Value>) -> Result<Vec<Value>, RuleError> {
        use crate::lua::{Job, Limits, Scripts, Shape};
        let scripts = Arc::clone(
            self.scripts
                .lock()
                .get_or_insert_with(|| Arc::new(Scripts::new(self.env.clone(), Limits::default()))),
        );
        let returns: &[Shape] = match rule.operation {
            Operation::InterpretReplica => &[Shape::Number, Shape::MapOrNil],
            Operation::InterpretComponent | Operation::InterpretDependency => &[Shape::List],
            Operation::InterpretHealth => &[Shape::Bool],
            _ => &[Shape::Map],
        };
        let job =
            Job { script: Arc::clone(&rule.script), function: rule.operation.function(), args, returns };
        scripts.call(job).await.map_err(|error| fail(rule, object, error.to_string()))
    }

    #[cfg(not(feature = "lua"))]
    #[allow(clippy::unused_async, reason = "the other one waits")]
    async fn call(&self, rule: &Rule, object: &Value, _: Vec<Value>) -> Result<Vec<Value>, RuleError> {
        Err(fail(rule, object, "this program was built without Lua"))
    }
}

/// The values that a call returned: as many as its rule says, else null.
fn take<const N: usize>(values: Vec<Value>) -> [Value; N] {
    let mut values = values.into_iter();
    std::array::from_fn(|_| values.next().unwrap_or_default())
}

fn fail(rule: &Rule, object: &Value, problem: impl Into<String>) -> RuleError {
    RuleError::Script {
        object: format!("{} {}", object::kind(object), object::key(object)),
        customization: rule.customization.to_string(),
        operation: rule.operation,
        problem: problem.into(),
    }
}

/// What a script returned, in its type.
fn answer<T: serde::de::DeserializeOwned>(rule: &Rule, object: &Value, value: Value) -> Result<T, RuleError> {
    serde_json::from_value(value)
        .map_err(|error| fail(rule, object, format!("what {} returned: {error}", rule.operation.function())))
}

/// A script may change an object, not make another one of it.
fn same(rule: &Rule, before: &Value, after: &Value) -> Result<(), RuleError> {
    match another(before, after) {
        Some(problem) => Err(fail(rule, before, format!("{} returned {problem}", rule.operation.function()))),
        None => Ok(()),
    }
}

/// Says which other object came of one, if it is another.
fn another(before: &Value, after: &Value) -> Option<String> {
    let id = |o| (object::api_version(o), object::kind(o), object::namespace(o), object::name(o));
    (id(before) != id(after))
        .then(|| format!("another object: {} {}", object::kind(after), object::key(after)))
}

/// Takes over a template's new status, and answers whether it is another one. Whatever else a rule did to the template
/// is lost, as in Karmada.
fn take_status(template: &mut Value, summed: &Value) -> bool {
    let status = summed.get("status").cloned().unwrap_or(Value::Null);
    let present = template.get("status").unwrap_or(&Value::Null);
    if *present == status || (status.is_null() && template.get("status").is_none()) {
        return false;
    }
    template["status"] = status;
    true
}

fn missing(reference: &DependentObjectReference) -> Option<&'static str> {
    if reference.api_version.is_empty() {
        Some("apiVersion")
    } else if reference.kind.is_empty() {
        Some("kind")
    } else {
        (reference.name.is_empty() && reference.label_selector.is_none()).then_some("name or labelSelector")
    }
}

/// Where a retained object differs from the desired one, as the keys on the way to each value. Lists count as one
/// value. Nothing of an object's identity or status is among them.
pub fn retained_fields(desired: &Value, retained: &Value) -> Vec<Vec<String>> {
    fn walk(a: &Value, b: &Value, path: &mut Vec<String>, out: &mut Vec<Vec<String>>) {
        if let (Value::Object(a), Value::Object(b)) = (a, b) {
            let keys = a.keys().chain(b.keys().filter(|key| !a.contains_key(*key)));
            for key in keys {
                path.push(key.clone());
                if !matches!(path[0].as_str(), "apiVersion" | "kind" | "status") {
                    walk(a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null), path, out);
                }
                path.pop();
            }
        } else if a != b {
            out.push(path.clone());
        }
    }
    let mut out = Vec::new();
    walk(desired, retained, &mut Vec::new(), &mut out);
    out
}

#[cfg(all(test, feature = "lua"))]
mod tests {
    use karmada_api::config::{CustomizationTarget, ResourceInterpreterCustomizationSpec};

    use super::*;

    fn interpreter(scripts: &[(&str, &str)]) -> Interpreter {
        let rules: serde_json::Map<String, Value> =
            scripts.iter().map(|(field, text)| ((*field).to_owned(), json!({"luaScript": text}))).collect();
        let target =
            CustomizationTarget { api_version: "example.com/v1".to_owned(), kind: "Thing".to_owned() };
        let customizations = serde_json::from_value(Value::Object(rules)).expect("the rules of a test");
        let interpreter = Interpreter::new(Env::system());
        interpreter.replace(Rules::new([(
            "things".to_owned(),
            ResourceInterpreterCustomizationSpec { target, customizations },
        )]));
        interpreter
    }

    fn thing() -> Value {
        json!({
            "apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t", "namespace": "n"},
            "spec": {"size": 3, "paused": false, "empty": {}, "pod": {"spec": {"containers": [
                {"name": "a", "resources": {"requests": {"cpu": "100m"}}}]}}},
        })
    }

    #[tokio::test]
    async fn a_users_rules_answer_every_question() {
        let it = interpreter(&[
            (
                "replicaResource",
                "local kube = require('kube') function GetReplicas(o) return o.spec.size, kube.accuratePodRequirements(o.spec.pod) end",
            ),
            (
                "componentResource",
                "function GetComponents(o) return {{name = 'a', replicas = o.spec.size, replicaRequirements = {resourceRequest = {cpu = 0.5}}}} end",
            ),
            ("replicaRevision", "function ReviseReplica(o, n) o.spec.size = n return o end"),
            ("retention", "function Retain(d, o) d.spec.paused = o.spec.paused return d end"),
            ("statusReflection", "function ReflectStatus(o) return {up = o.status.up} end"),
            (
                "statusAggregation",
                "function AggregateStatus(o, items) o.status = {up = 0} for i = 1, #items do o.status.up = o.status.up + items[i].status.up end return o end",
            ),
            ("healthInterpretation", "function InterpretHealth(o) return o.status.up == o.spec.size end"),
            (
                "dependencyInterpretation",
                "function GetDependencies(o) return {{apiVersion = 'v1', kind = 'Secret', namespace = o.metadata.namespace, name = 'z'}, {apiVersion = 'v1', kind = 'ConfigMap', namespace = 'n', name = 'b'}} end",
            ),
        ]);
        let mut object = thing();
        let replicas = it.replicas(&object).await.unwrap().unwrap();
        assert_eq!(replicas.replicas, 3);
        assert_eq!(json!(replicas.requirements), json!({"resourceRequest": {"cpu": "100m"}}));
        let components = it.components(&object).await.unwrap();
        assert_eq!(
            json!(components),
            json!([{"name": "a", "replicas": 3, "replicaRequirements": {"resourceRequest": {"cpu": "500m"}}}])
        );
        assert!(it.revise_replicas(&mut object, 7).await.unwrap());
        assert_eq!(object["spec"]["size"], 7);
        assert_eq!(object["spec"]["empty"], json!({}));
        let mut observed = thing();
        observed["spec"]["paused"] = true.into();
        let retained = it.retained(&object, &observed).await.unwrap().unwrap();
        assert_eq!(retained_fields(&object, &retained), [["spec", "paused"]]);
        object["status"] = json!({"up": 7, "more": 1});
        assert_eq!(it.reflect_status(&object).await.unwrap(), Some(json!({"up": 7})));
        assert_eq!(it.health(&object).await.unwrap(), Health::Healthy);
        let item = |up: i64| AggregatedStatusItem { status: Some(json!({"up": up})), ..Default::default() };
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        assert!(it.aggregate_status(&mut object, &[item(2), item(3)], now).await.unwrap());
        assert_eq!(object["status"], json!({"up": 5}));
        assert!(!it.aggregate_status(&mut object, &[item(2), item(3)], now).await.unwrap());
        let names: Vec<String> =
            it.dependencies(&object).await.unwrap().into_iter().map(|d| d.kind + "/" + &d.name).collect();
        assert_eq!(names, ["ConfigMap/b", "Secret/z"]);
    }

    #[tokio::test]
    async fn failures_name_customization_question_and_line() {
        let it = interpreter(&[
            ("replicaResource", "function GetReplicas(o)\n return o.spec.none.size\nend"),
            ("replicaRevision", "function ReviseReplica(o, n) o.metadata.name = 'other' return o end"),
            (
                "dependencyInterpretation",
                "function GetDependencies(o) return {{apiVersion = 'v1', kind = 'Secret'}} end",
            ),
            ("healthInterpretation", "function InterpretHealth(o) return 1 end"),
        ]);
        let mut object = thing();
        let prefix = "Thing n/t: ";
        for (error, expected) in [
            (
                it.replicas(&object).await.unwrap_err(),
                "InterpretReplica of ResourceInterpreterCustomization things: line 2: attempt to index field 'none' (a nil value)",
            ),
            (
                it.dependencies(&object).await.unwrap_err(),
                "InterpretDependency of ResourceInterpreterCustomization things: a dependency has no name or labelSelector",
            ),
            (
                it.health(&object).await.unwrap_err(),
                "InterpretHealth of ResourceInterpreterCustomization things: what InterpretHealth returned as value 1: must be a boolean, is a integer",
            ),
            (
                it.revise_replicas(&mut object, 2).await.unwrap_err(),
                "ReviseReplica of ResourceInterpreterCustomization things: ReviseReplica returned another object: Thing n/other",
            ),
        ] {
            assert_eq!(error.to_string(), format!("{prefix}{expected}"));
        }
        assert_eq!(object, thing(), "what failed changed nothing");
    }

    #[tokio::test]
    async fn without_a_rule_the_kinds_own_counts_and_no_thread_runs() {
        let it = interpreter(&[("retention", "function Retain(d) return d end")]);
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"replicas": 2}});
        assert_eq!(it.replicas(&deployment).await.unwrap().unwrap().replicas, 2);
        assert_eq!(it.health(&thing()).await.unwrap(), Health::Healthy);
        assert!(it.scripts.lock().is_none());
        assert!(it.retained(&thing(), &thing()).await.unwrap().is_some());
        assert!(it.scripts.lock().is_some());
        it.replace(Rules::default());
        assert!(it.scripts.lock().is_none(), "gone with the last rule");
    }
}
