//! User-defined rules: which script answers which question about which kind.

use std::{collections::BTreeMap, sync::Arc};

use karmada_api::config::{CustomizationRules, ResourceInterpreterCustomizationSpec, Script};
use karmada_env::Env;
use karmada_meta::{
    object,
    path::{FieldError, Path},
};
use serde_json::Value;

/// A question about an object. Names are Karmada's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// What the member may decide.
    Retain,
    /// How many replicas it has and what each needs.
    InterpretReplica,
    /// What parts it has, each with replicas of its own.
    InterpretComponent,
    /// How it looks with another number of replicas.
    ReviseReplica,
    /// What of its status is reported.
    InterpretStatus,
    /// How the reports add up.
    AggregateStatus,
    /// Whether it does its job.
    InterpretHealth,
    /// What it refers to.
    InterpretDependency,
}

impl Operation {
    /// All of them, in the order of the fields of a customization.
    pub const ALL: [Self; 8] = [
        Self::Retain,
        Self::InterpretReplica,
        Self::InterpretComponent,
        Self::ReviseReplica,
        Self::InterpretStatus,
        Self::AggregateStatus,
        Self::InterpretHealth,
        Self::InterpretDependency,
    ];

    /// Karmada's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retain => "Retain",
            Self::InterpretReplica => "InterpretReplica",
            Self::InterpretComponent => "InterpretComponent",
            Self::ReviseReplica => "ReviseReplica",
            Self::InterpretStatus => "InterpretStatus",
            Self::AggregateStatus => "AggregateStatus",
            Self::InterpretHealth => "InterpretHealth",
            Self::InterpretDependency => "InterpretDependency",
        }
    }

    /// The function that a script defines.
    pub const fn function(self) -> &'static str {
        match self {
            Self::Retain => "Retain",
            Self::InterpretReplica => "GetReplicas",
            Self::InterpretComponent => "GetComponents",
            Self::ReviseReplica => "ReviseReplica",
            Self::InterpretStatus => "ReflectStatus",
            Self::AggregateStatus => "AggregateStatus",
            Self::InterpretHealth => "InterpretHealth",
            Self::InterpretDependency => "GetDependencies",
        }
    }

    /// The field of `spec.customizations` that holds the script.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Retain => "retention",
            Self::InterpretReplica => "replicaResource",
            Self::InterpretComponent => "componentResource",
            Self::ReviseReplica => "replicaRevision",
            Self::InterpretStatus => "statusReflection",
            Self::AggregateStatus => "statusAggregation",
            Self::InterpretHealth => "healthInterpretation",
            Self::InterpretDependency => "dependencyInterpretation",
        }
    }

    /// The script of some rules; an empty one is none.
    fn script(self, rules: &CustomizationRules) -> Option<&str> {
        let script: &Option<Script> = match self {
            Self::Retain => &rules.retention,
            Self::InterpretReplica => &rules.replica_resource,
            Self::InterpretComponent => &rules.component_resource,
            Self::ReviseReplica => &rules.replica_revision,
            Self::InterpretStatus => &rules.status_reflection,
            Self::AggregateStatus => &rules.status_aggregation,
            Self::InterpretHealth => &rules.health_interpretation,
            Self::InterpretDependency => &rules.dependency_interpretation,
        };
        script.as_ref().map(|s| s.lua_script.as_str()).filter(|text| !text.is_empty())
    }
}

/// One script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The name of the customization it stands in.
    pub customization: Arc<str>,
    /// What it answers.
    pub operation: Operation,
    /// The script.
    pub script: Arc<str>,
}

/// Group and version, and kind.
type Kind = (String, String);

/// All scripts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    kinds: BTreeMap<Kind, BTreeMap<Operation, Vec<Rule>>>,
}

impl Rules {
    /// The rules of customizations, each with its name. Where several answer the same question about a kind, the first
    /// by name counts; what an object refers to is answered by all of them together.
    pub fn new(
        customizations: impl IntoIterator<Item = (String, ResourceInterpreterCustomizationSpec)>,
    ) -> Self {
        let sorted: BTreeMap<String, _> = customizations.into_iter().collect();
        let mut kinds: BTreeMap<Kind, BTreeMap<Operation, Vec<Rule>>> = BTreeMap::new();
        for (name, spec) in sorted {
            let customization: Arc<str> = name.into();
            for operation in Operation::ALL {
                let Some(script) = operation.script(&spec.customizations) else { continue };
                let kind = (spec.target.api_version.clone(), spec.target.kind.clone());
                let rules = kinds.entry(kind).or_default().entry(operation).or_default();
                if rules.is_empty() || operation == Operation::InterpretDependency {
                    let customization = Arc::clone(&customization);
                    rules.push(Rule { customization, operation, script: script.into() });
                }
            }
        }
        Self { kinds }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// The rules that answer a question about an object.
    pub fn of(&self, object: &Value, operation: Operation) -> &[Rule] {
        // Most processes have no rules at all, and are asked very often.
        if self.kinds.is_empty() {
            return &[];
        }
        let kind = (object::api_version(object).to_owned(), object::kind(object).to_owned());
        self.kinds.get(&kind).and_then(|rules| rules.get(&operation)).map_or(&[], Vec::as_slice)
    }

    /// The kinds with other rules than in `before`, as group and version, and kind.
    pub fn changed<'a>(&'a self, before: &'a Self) -> Vec<(&'a str, &'a str)> {
        let all = self.kinds.keys().chain(before.kinds.keys().filter(|k| !self.kinds.contains_key(*k)));
        all.filter(|kind| self.kinds.get(*kind) != before.kinds.get(*kind))
            .map(|(api_version, kind)| (api_version.as_str(), kind.as_str()))
            .collect()
    }
}

/// What is wrong with a customization: its target, scripts that cannot be loaded or lack their function, questions
/// that another customization of the same kind answers already.
pub fn validate<'a>(
    name: &str,
    spec: &ResourceInterpreterCustomizationSpec,
    others: impl IntoIterator<Item = (&'a str, &'a ResourceInterpreterCustomizationSpec)>,
    env: &Env,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let path = Path::new("spec");
    let target = path.child("target");
    if spec.target.api_version.is_empty() {
        errors.push(FieldError::required(&target.child("apiVersion"), ""));
    }
    if spec.target.kind.is_empty() {
        errors.push(FieldError::required(&target.child("kind"), ""));
    }
    let script_at =
        |operation: Operation| path.child("customizations").child(operation.field()).child("luaScript");
    for operation in Operation::ALL {
        let Some(script) = operation.script(&spec.customizations) else { continue };
        if let Err(why) = check(env, script, operation.function()) {
            errors.push(FieldError::invalid(&script_at(operation), operation.as_str(), why));
        }
    }
    for (other, theirs) in others {
        if other == name || theirs.target != spec.target {
            continue;
        }
        for operation in Operation::ALL {
            let both = operation.script(&spec.customizations).is_some()
                && operation.script(&theirs.customizations).is_some();
            // References of several customizations are put together.
            if both && operation != Operation::InterpretDependency {
                let why = format!(
                    "conflicting with InterpreterOperation({}) of existing ResourceInterpreterCustomization({other})",
                    operation.as_str()
                );
                errors.push(FieldError::forbidden(&script_at(operation), why));
            }
        }
    }
    errors
}

#[cfg(feature = "lua")]
fn check(env: &Env, script: &str, function: &str) -> Result<(), String> {
    crate::lua::check(env, script, function).map_err(|error| format!("Lua script error: {error}"))
}

#[cfg(not(feature = "lua"))]
fn check(_: &Env, _: &str, _: &str) -> Result<(), String> {
    Err("this program was built without Lua".to_owned())
}

#[cfg(all(test, feature = "lua"))]
mod tests {
    use karmada_api::config::CustomizationTarget;
    use serde_json::json;

    use super::*;

    fn spec(kind: &str, scripts: &[(&str, &str)]) -> ResourceInterpreterCustomizationSpec {
        let rules: serde_json::Map<String, Value> =
            scripts.iter().map(|(field, text)| ((*field).to_owned(), json!({"luaScript": text}))).collect();
        ResourceInterpreterCustomizationSpec {
            target: CustomizationTarget { api_version: "example.com/v1".to_owned(), kind: kind.to_owned() },
            customizations: serde_json::from_value(Value::Object(rules)).expect("the rules of a test"),
        }
    }

    #[test]
    fn the_first_by_name_counts_and_references_add_up() {
        let rules = Rules::new([
            (
                "b".to_owned(),
                spec(
                    "Thing",
                    &[("retention", "b"), ("healthInterpretation", "b"), ("dependencyInterpretation", "b")],
                ),
            ),
            ("c".to_owned(), spec("Other", &[("retention", "c")])),
            (
                "a".to_owned(),
                spec(
                    "Thing",
                    &[("retention", "a"), ("statusReflection", ""), ("dependencyInterpretation", "a")],
                ),
            ),
        ]);
        let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing"});
        let scripts = |operation| -> Vec<String> {
            rules.of(&thing, operation).iter().map(|r| format!("{}:{}", r.customization, r.script)).collect()
        };
        assert_eq!(scripts(Operation::Retain), ["a:a"]);
        assert_eq!(scripts(Operation::InterpretHealth), ["b:b"]);
        assert_eq!(scripts(Operation::InterpretDependency), ["a:a", "b:b"]);
        assert_eq!(scripts(Operation::InterpretStatus), [] as [&str; 0]);
        assert!(rules.of(&json!({"apiVersion": "v2", "kind": "Thing"}), Operation::Retain).is_empty());
        let fewer = Rules::new([("c".to_owned(), spec("Other", &[("retention", "c")]))]);
        assert_eq!(rules.changed(&fewer), [("example.com/v1", "Thing")]);
        assert_eq!(fewer.changed(&rules), [("example.com/v1", "Thing")]);
    }

    #[test]
    fn what_is_wrong_is_named_by_field() {
        let good = "function Retain(a, b) return a end";
        let others = [("old", spec("Thing", &[("retention", good), ("dependencyInterpretation", "x")]))];
        for (name, customization, expected) in [
            ("new", spec("New", &[("retention", good)]), vec![]),
            ("old", spec("Thing", &[("retention", good)]), vec![]),
            ("new", spec("New", &[]), vec![]),
            ("new", spec("", &[]), vec!["spec.target.kind: Required value"]),
            (
                "new",
                spec("Thing", &[("retention", good)]),
                vec![
                    "spec.customizations.retention.luaScript: Forbidden: conflicting with InterpreterOperation(Retain) of existing ResourceInterpreterCustomization(old)",
                ],
            ),
            (
                "new",
                spec("Thing", &[("dependencyInterpretation", "function GetDependencies() return {} end")]),
                vec![],
            ),
            (
                "new",
                spec(
                    "New",
                    &[("replicaResource", "\nfunction GetReplicas("), ("healthInterpretation", good)],
                ),
                vec![
                    "spec.customizations.replicaResource.luaScript: Invalid value: \"InterpretReplica\": Lua script error: line 2: <name> or '...' expected near '<eof>'",
                    "spec.customizations.healthInterpretation.luaScript: Invalid value: \"InterpretHealth\": Lua script error: there is no function InterpretHealth",
                ],
            ),
        ] {
            let others = others.iter().map(|(name, spec)| (*name, spec));
            let errors = validate(name, &customization, others, &Env::system());
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(texts, expected);
        }
    }
}
