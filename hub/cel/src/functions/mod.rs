//! What functions do. The checker has seen to the number of arguments; types are looked at again, since `dyn` hides them.

pub(crate) mod convert;
mod format;
mod index;
pub(crate) mod lists;
mod named;
mod net;
mod numbers;
mod semver;
mod strings;
mod time;

pub(crate) use index::index;
pub(crate) use strings::compile as compile_regex;

use std::collections::BTreeMap;

use crate::{
    cost::{REGEX, TRAVERSE, scale},
    value::{MapVal, NO_OVERLOAD, Val},
};

/// Regular expressions that stand in a rule, compiled once.
pub(crate) type Regexes = BTreeMap<String, regex::Regex>;

type Answer<'a> = Result<Val<'a>, String>;

fn no_overload<'a>() -> Answer<'a> {
    Err(NO_OVERLOAD.to_owned())
}

/// Calls a function.
///
/// # Errors
/// Why there is no answer for these arguments.
pub(crate) fn call<'a>(name: &str, args: &[Val<'a>], regexes: &Regexes) -> Answer<'a> {
    if let Some(operator) = operator(name, args) {
        return operator;
    }
    let answer = match name {
        "matches" | "find" | "findAll" => Some(strings::regex(name, args, regexes)),
        _ => None,
    };
    let answer = answer
        .or_else(|| general(name, args))
        .or_else(|| convert::call(name, args))
        .or_else(|| strings::call(name, args))
        .or_else(|| lists::call(name, args))
        .or_else(|| net::call(name, args))
        .or_else(|| numbers::call(name, args))
        .or_else(|| semver::call(name, args))
        .or_else(|| time::call(name, args))
        .or_else(|| named::call(name, args));
    answer.unwrap_or_else(no_overload)
}

fn operator<'a>(name: &str, args: &[Val<'a>]) -> Option<Answer<'a>> {
    use std::cmp::Ordering::{Equal, Greater, Less};
    Some(match (name, args) {
        ("_==_", [a, b]) => Ok(Val::Bool(a.equals(b))),
        ("_!=_", [a, b]) => Ok(Val::Bool(!a.equals(b))),
        ("_<_", [a, b]) => a.compare(b).map(|o| Val::Bool(o == Less)),
        ("_<=_", [a, b]) => a.compare(b).map(|o| Val::Bool(matches!(o, Less | Equal))),
        ("_>_", [a, b]) => a.compare(b).map(|o| Val::Bool(o == Greater)),
        ("_>=_", [a, b]) => a.compare(b).map(|o| Val::Bool(matches!(o, Greater | Equal))),
        ("_[_]", [of, at]) => index(of, at, false),
        ("_[?_]", [of, at]) => index(of, at, true),
        ("@in", [item, Val::List(list)]) => {
            list.items().map(|items| Val::Bool(items.iter().any(|there| there.equals(item))))
        }
        ("@in", [key, Val::Map(map)]) => map.get(key).map(|found| Val::Bool(found.is_some())),
        ("!_", [Val::Bool(b)]) => Ok(Val::Bool(!b)),
        ("_+_", [Val::List(a), Val::List(b)]) => a.concat(b),
        ("_+_", [Val::Text(a), Val::Text(b)]) => Ok(Val::text(format!("{a}{b}"))),
        ("_+_", [Val::Bytes(a), Val::Bytes(b)]) => {
            Ok(Val::Bytes(a.iter().chain(b.iter()).copied().collect()))
        }
        ("-_" | "_+_" | "_-_" | "_*_" | "_/_" | "_%_", _) => numbers::arithmetic(name, args),
        _ => return None,
    })
}

/// What works on values of any type, and optionals.
fn general<'a>(name: &str, args: &[Val<'a>]) -> Option<Answer<'a>> {
    Some(Ok(match (name, args) {
        ("dyn", [value]) => value.clone(),
        ("type", [value]) => Val::Type(value.type_name().into()),
        ("size", [value @ (Val::Text(_) | Val::Bytes(_) | Val::List(_) | Val::Map(_))]) => {
            Val::Int(i64::try_from(value.size()).unwrap_or(i64::MAX))
        }
        ("optional.of", [value]) => Val::some(value.clone()),
        ("optional.none", []) => Val::Optional(None),
        ("optional.ofNonZeroValue", [value]) => {
            if value.is_zero() {
                Val::Optional(None)
            } else {
                Val::some(value.clone())
            }
        }
        ("hasValue", [Val::Optional(inner)]) => Val::Bool(inner.is_some()),
        ("value", [Val::Optional(inner)]) => match inner {
            Some(value) => (**value).clone(),
            None => return Some(Err("optional.none() dereference".to_owned())),
        },
        ("or", [this @ Val::Optional(inner), other]) => {
            if inner.is_some() {
                this.clone()
            } else {
                other.clone()
            }
        }
        ("orValue", [Val::Optional(inner), other]) => {
            inner.as_deref().cloned().unwrap_or_else(|| other.clone())
        }
        _ => return None,
    }))
}

/// What a call costs, by the sizes of what it gets.
pub(crate) fn cost(name: &str, args: &[Val<'_>]) -> u64 {
    let size = |index: usize| args.get(index).map_or(1, Val::size);
    let traverse = |n: u64| scale(n, TRAVERSE);
    let of_text = matches!(args.first(), Some(Val::Text(_) | Val::Bytes(_)));
    match name {
        "_==_" | "_!=_" => traverse(size(0).min(size(1))).max(1),
        "_<_" | "_<=_" | "_>_" | "_>=_" if of_text => traverse(size(0).min(size(1))),
        "_+_" if of_text => traverse(size(0) + size(1)),
        "@in" if matches!(args.get(1), Some(Val::List(_))) => size(1),
        "startsWith" | "endsWith" => traverse(size(1)),
        "matches" | "find" | "findAll" => traverse(size(0) + 1).saturating_mul(scale(size(1), REGEX)),
        "contains" => traverse(size(0)).saturating_mul(traverse(size(1))),
        "isSorted" | "sum" | "min" | "max" | "indexOf" | "lastIndexOf" => {
            if of_text {
                traverse(size(0))
            } else {
                traversal(&args[0])
            }
        }
        "url" | "isURL" | "cidr" | "isIP" | "isCIDR" | "quantity" | "isQuantity" | "lowerAscii"
        | "upperAscii" | "substring" | "trim" | "semver" | "isSemver" | "format" => traverse(size(0)),
        "ip" | "string" | "bytes" if of_text => traverse(size(0)),
        "replace" | "split" | "ip.isCanonical" | "strings.quote" => scale(size(0), 2.0 * TRAVERSE),
        "sets.contains" | "sets.intersects" => size(0).saturating_mul(size(1)) + 1,
        "sets.equivalent" => size(0).saturating_mul(size(1)).saturating_mul(2) + 1,
        "distinct" => size(0).saturating_mul(size(0)) + 10,
        "slice" | "reverse" | "sort" | "flatten" => size(0) + 10,
        "containsIP" | "containsCIDR" => traverse(2 * size(0)) + traverse(size(1)) + 1,
        "validate" => traverse(size(1)) * 2,
        // Priced by what comes out.
        "join" => 0,
        _ => 1,
    }
}

/// What a call costs on top, by the size of what it gives.
pub(crate) fn cost_of_result(name: &str, result: &Val<'_>) -> u64 {
    match name {
        "join" => scale(result.size(), 2.0 * TRAVERSE),
        "lists.range" => result.size(),
        _ => 0,
    }
}

/// Looking at everything in a list.
fn traversal(value: &Val<'_>) -> u64 {
    match value {
        Val::Text(_) | Val::Bytes(_) => scale(value.size(), TRAVERSE),
        Val::List(list) => {
            list.items().map_or(1, |items| items.iter().map(traversal).fold(0, u64::saturating_add))
        }
        Val::Map(map @ MapVal::Made(_)) => map.len() as u64,
        _ => 1,
    }
}
