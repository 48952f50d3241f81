//! Has objects judged by the CEL rules of their definition, away from where requests are answered.

use std::sync::Arc;

use karmada_meta::path::{ErrorKind, FieldError, Path};
use serde_json::Value;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::{
    crd::rules::{Rules, Verdict},
    kinds::Kind,
    registry::Caller,
};

/// Judges `new` and gives both objects back. What is wrong is added to `errors`.
///
/// Rules may take some tenths of a second, so costly ones run on a thread of their own. On a runtime of one thread, where a seed
/// decides everything, they run where they are.
pub(super) async fn judge(
    caller: &Caller<'_>,
    kind: &Arc<Kind>,
    new: Value,
    old: Option<Value>,
    errors: &mut Vec<FieldError>,
) -> (Value, Option<Value>) {
    let Some(rules) = kind.shape.rules() else { return (new, old) };
    if errors.iter().any(|error| blocks(error.kind)) {
        let detail = "some validation rules were not checked because the object was invalid; correct the existing errors to \
                      complete validation";
        errors.push(FieldError::invalid(&Path::new("<nil>"), Value::Null, detail));
        return (new, old);
    }
    let elsewhere = rules.is_costly()
        && Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() != RuntimeFlavor::CurrentThread);
    let (verdict, new, old) = if elsewhere {
        let rules = Arc::clone(rules);
        let judged = tokio::task::spawn_blocking(move || weigh(&rules, new, old)).await;
        match judged {
            Ok(judged) => judged,
            Err(error) => {
                // A rule that brings down its thread is a mistake of ours; nothing it was to let pass passes.
                tracing::error!(%error, kind = %kind.gvk.kind, "evaluating validation rules failed");
                errors.push(FieldError::internal(&Path::new("<nil>"), "evaluating validation rules failed"));
                return (Value::Null, None);
            }
        }
    } else {
        weigh(rules, new, old)
    };
    errors.extend(verdict.errors);
    verdict.warnings.into_iter().for_each(|warning| caller.warn(warning));
    (new, old)
}

fn weigh(rules: &Rules, new: Value, old: Option<Value>) -> (Verdict, Value, Option<Value>) {
    (rules.judge(&new, old.as_ref()), new, old)
}

/// Whether rules, which rely on the schema, make no sense after such an error.
fn blocks(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::NotSupported
            | ErrorKind::Required
            | ErrorKind::TooLong
            | ErrorKind::TooMany
            | ErrorKind::TypeInvalid
    )
}
