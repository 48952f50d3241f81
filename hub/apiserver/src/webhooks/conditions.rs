//! `matchConditions`: CEL over `object`, `oldObject` and `request`.

use std::sync::{Arc, LazyLock};

use karmada_cel::{Decl, EvalError, Program, Scope, Wanted};
use serde_json::{Value, json};

/// What one expression may cost, and all of a webhook together.
const CALL_LIMIT: u64 = 1_000_000;
const BUDGET: u64 = 2_500_000;
/// What may be spent where others wait: less than a millisecond.
const CHEAP: u64 = 10_000;

/// What conditions see. `request` is an AdmissionRequest without its objects. `authorizer` is not known here.
static SCOPE: LazyLock<Scope> = LazyLock::new(|| {
    let of = |schema: Value| Decl::of(&schema, false).unwrap_or_else(Decl::any);
    let text = of(json!({"type": "string"}));
    let texts = json!({"type": "array", "items": {"type": "string"}});
    let named = |last: &'static str| {
        Decl::of_fields([("group", text.clone()), ("version", text.clone()), (last, text.clone())])
    };
    let user = Decl::of_fields([
        ("username", text.clone()),
        ("uid", text.clone()),
        ("groups", of(texts.clone())),
        ("extra", of(json!({"type": "object", "additionalProperties": texts}))),
    ]);
    let request = Decl::of_fields([
        ("kind", named("kind")),
        ("resource", named("resource")),
        ("subResource", text.clone()),
        ("requestKind", named("kind")),
        ("requestResource", named("resource")),
        ("requestSubResource", text.clone()),
        ("name", text.clone()),
        ("namespace", text.clone()),
        ("operation", text.clone()),
        ("userInfo", user),
        ("dryRun", of(json!({"type": "boolean"}))),
        ("options", Decl::any()),
    ]);
    Scope::of([("object", Decl::any()), ("oldObject", Decl::any()), ("request", request)])
});

/// Compiles one condition.
///
/// # Errors
/// What is wrong with it, in Kubernetes' words.
pub(crate) fn compile(source: &str) -> Result<Program, String> {
    Program::compile(source, &SCOPE, Wanted::Condition).map_err(|error| error.0)
}

/// The conditions of a webhook.
#[derive(Debug, Default)]
pub(crate) struct Conditions(Arc<[(String, Result<Program, String>)]>);

impl Conditions {
    pub(crate) fn compile(sources: impl IntoIterator<Item = String>) -> Self {
        Self(sources.into_iter().map(|source| (source.trim().to_owned(), compile(source.trim()))).collect())
    }

    /// Whether all hold. One that does not settles it, whatever the others come to.
    ///
    /// # Errors
    /// Those that have no answer for this request; the webhook's failure policy says what follows from that.
    pub(crate) fn hold(&self, object: &Value, old: &Value, request: &Value) -> Result<bool, String> {
        self.judge(&[object, old, request], CALL_LIMIT, BUDGET).0
    }

    /// The same; nothing where that would take long.
    pub(crate) fn hold_cheaply(
        &self,
        object: &Value,
        old: &Value,
        request: &Value,
    ) -> Option<Result<bool, String>> {
        let (outcome, is_settled) = self.judge(&[object, old, request], CHEAP, CHEAP);
        is_settled.then_some(outcome)
    }

    /// Whether all hold, and whether that does not depend on what was to be spent.
    fn judge(&self, of: &[&Value; 3], limit: u64, mut budget: u64) -> (Result<bool, String>, bool) {
        let (mut errors, mut is_settled) = (Vec::new(), true);
        for (source, program) in self.0.iter() {
            let program = match program {
                Ok(program) => program,
                Err(why) => {
                    errors.push(format!("compilation error: {why}"));
                    continue;
                }
            };
            let outcome = program.holds_for(of, limit);
            let Some(left) = budget.checked_sub(outcome.cost) else {
                let why = "validation failed due to running out of cost budget, no further validation rules will be run";
                return (Err(why.to_owned()), false);
            };
            budget = left;
            match outcome.value {
                Ok(true) => {}
                Ok(false) => return (Ok(false), is_settled),
                Err(EvalError::Failed(why)) => {
                    errors.push(format!("expression '{source}' resulted in error: {why}"));
                }
                Err(EvalError::TooExpensive) => {
                    is_settled = false;
                    errors.push(format!(
                        "expression '{source}' resulted in error: operation cancelled: actual cost limit exceeded"
                    ));
                }
            }
        }
        let outcome = match errors.as_slice() {
            [] => Ok(true),
            [one] => Err(one.clone()),
            several => Err(format!("[{}]", several.join(", "))),
        };
        (outcome, is_settled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_is_told_beforehand() {
        let object = json!({"all": (0..1_000).collect::<Vec<u32>>()});
        let of = |source: &str| Conditions::compile([source.to_owned()]);
        let cheap = of("object.all[0] == 0");
        assert_eq!(cheap.hold_cheaply(&object, &Value::Null, &Value::Null), Some(Ok(true)));
        let costly = of("object.all.filter(a, object.all.exists(b, b == a)).size() > 10");
        assert_eq!(costly.hold_cheaply(&object, &Value::Null, &Value::Null), None);
        assert!(
            of("").hold_cheaply(&object, &Value::Null, &Value::Null).is_some(),
            "errors are told at once"
        );
    }

    #[test]
    fn one_that_does_not_hold_settles_it() {
        let object = json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {"n": 3}});
        let request = json!({"operation": "CREATE", "namespace": "n", "userInfo": {"username": "u", "groups": ["g"]},
            "kind": {"group": "", "version": "v1", "kind": "ConfigMap"}, "dryRun": false, "options": {"kind": "CreateOptions"}});
        let missing = "expression 'object.spec.m == 1' resulted in error: no such key: m".to_owned();
        let table: [(&[&str], Result<bool, String>); 8] = [
            (&[], Ok(true)),
            (&["request.userInfo.username != \"system:karmada:hub\""], Ok(true)),
            (&["request.operation == 'CREATE'", " 'g' in request.userInfo.groups "], Ok(true)),
            (&["oldObject == null", "object.spec.n > 3"], Ok(false)),
            (&["object.spec.m == 1"], Err(missing.clone())),
            (&["object.spec.m == 1", "request.dryRun"], Ok(false)),
            (&["object.spec.m == 1", "object.spec.m == 1"], Err(format!("[{missing}, {missing}]"))),
            (
                &["request.kind.kind == 'ConfigMap' && request.namespace == object.metadata.labels.x"],
                Ok(false),
            ),
        ];
        for (sources, expected) in table {
            let conditions = Conditions::compile(sources.iter().map(|s| (*s).to_owned()));
            assert_eq!(conditions.hold(&object, &Value::Null, &request), expected, "{sources:?}");
        }
    }
}
