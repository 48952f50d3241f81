//! Has objects judged by the CEL rules of their definition, away from where requests are answered.

use std::sync::Arc;

use karmada_meta::{
    path::{ErrorKind, FieldError, Path},
    status::Status,
};
use serde_json::Value;

use super::Caller;
use crate::{
    heavy::{HEAVY, Pool},
    kinds::Kind,
};

/// Judges `new`. What is wrong is added to `errors`. Rules may take some tenths of a second however small the object is.
///
/// # Errors
/// 429 when too much is waiting to be judged.
pub(super) async fn judge(
    pool: &Pool,
    caller: &Caller<'_>,
    kind: &Arc<Kind>,
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) -> Result<(), Status> {
    let Some(rules) = kind.shape.rules() else { return Ok(()) };
    if errors.iter().any(|error| blocks(error.kind)) {
        let detail = "some validation rules were not checked because the object was invalid; correct the existing errors to \
                      complete validation";
        errors.push(FieldError::invalid(&Path::new("<nil>"), Value::Null, detail));
        return Ok(());
    }
    let weight = if rules.is_costly() { HEAVY } else { caller.weight() };
    let verdict = pool.run(weight, || rules.judge(new, old)).await?;
    errors.extend(verdict.errors);
    verdict.warnings.into_iter().for_each(|warning| caller.warn(warning));
    Ok(())
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
