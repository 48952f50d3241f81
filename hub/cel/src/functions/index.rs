//! Access by place and by key.

use std::rc::Rc;

use super::{Answer, convert::show};
use crate::value::{NO_OVERLOAD, Val};

/// `list[index]`, `map[key]`.
pub(crate) fn index<'a>(of: &Val<'a>, at: &Val<'_>, optional: bool) -> Answer<'a> {
    let (of, lifted) = match of {
        Val::Optional(None) => return Ok(Val::Optional(None)),
        Val::Optional(Some(inner)) => (&**inner, true),
        other => (other, optional),
    };
    let (found, missing) = match of {
        Val::List(list) => {
            let index = match at {
                Val::Int(n) => usize::try_from(*n).ok(),
                Val::Uint(n) => usize::try_from(*n).ok(),
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "has no fraction, is not negative"
                )]
                Val::Double(n) if n.fract() == 0.0 && *n >= 0.0 => Some(*n as usize),
                _ => return Err(NO_OVERLOAD.to_owned()),
            };
            let found = index.and_then(|i| list.get(i)).transpose()?;
            (found, format!("index out of bounds: {}", show(at)))
        }
        Val::Map(map) => (map.get(at)?, format!("no such key: {}", show(at))),
        _ => return Err(NO_OVERLOAD.to_owned()),
    };
    match (found, lifted) {
        (found, true) => Ok(Val::Optional(found.map(Rc::new))),
        (Some(found), false) => Ok(found),
        (None, false) => Err(missing),
    }
}
