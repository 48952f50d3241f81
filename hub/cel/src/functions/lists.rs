//! Lists and sets.

use std::cmp::Ordering;

use super::{Answer, no_overload};
use crate::value::{List, NO_OVERLOAD, Val};

/// The most elements that `lists.range` makes.
const MAX_RANGE: i64 = 1_000_000;

pub(super) fn call<'a>(name: &str, args: &[Val<'a>]) -> Option<Answer<'a>> {
    if let ("lists.range", [Val::Int(n)]) = (name, args) {
        return Some(match *n {
            n if n > MAX_RANGE => Err(format!("lists.range: {n} is more than {MAX_RANGE}")),
            n => Ok(Val::list((0..n).map(Val::Int).collect())),
        });
    }
    let (Val::List(list), rest) = args.split_first()? else { return None };
    let known = [
        "isSorted",
        "sum",
        "min",
        "max",
        "indexOf",
        "lastIndexOf",
        "slice",
        "flatten",
        "sort",
        "distinct",
        "reverse",
        "first",
        "last",
        "sets.contains",
        "sets.equivalent",
        "sets.intersects",
    ];
    if !known.contains(&name) {
        return None;
    }
    Some(list.items().and_then(|items| on_items(name, list, items, rest)))
}

fn on_items<'a>(name: &str, list: &List<'a>, items: Vec<Val<'a>>, rest: &[Val<'a>]) -> Answer<'a> {
    let place = |found: Option<usize>| Val::Int(found.and_then(|i| i64::try_from(i).ok()).unwrap_or(-1));
    Ok(match (name, rest) {
        ("isSorted", []) => {
            for pair in items.windows(2) {
                if pair[0].compare(&pair[1])? == Ordering::Greater {
                    return Ok(Val::Bool(false));
                }
            }
            Val::Bool(true)
        }
        ("sum", []) => {
            let mut items = items.into_iter();
            let Some(mut sum) = items.next() else { return Ok(Val::Int(0)) };
            for item in items {
                sum = super::numbers::arithmetic("_+_", &[sum, item])?;
            }
            sum
        }
        ("min" | "max", []) => {
            let wanted = if name == "min" { Ordering::Less } else { Ordering::Greater };
            let mut items = items.into_iter();
            let mut best = items.next().ok_or_else(|| format!("{name} called on empty list"))?;
            for item in items {
                if item.compare(&best)? == wanted {
                    best = item;
                }
            }
            best
        }
        ("indexOf", [item]) => place(items.iter().position(|there| there.equals(item))),
        ("lastIndexOf", [item]) => place(items.iter().rposition(|there| there.equals(item))),
        ("slice", [Val::Int(from), Val::Int(to)]) => {
            let (start, end) = (usize::try_from(*from), usize::try_from(*to));
            match (start, end) {
                (Ok(start), Ok(end)) if start <= end && end <= items.len() => {
                    Val::list(items[start..end].to_vec())
                }
                (Ok(start), Ok(end)) if start > end => {
                    return Err(format!(
                        "cannot slice({from}, {to}), start index must be less than or equal to end index"
                    ));
                }
                (Ok(_), Ok(_)) => {
                    return Err(format!("cannot slice({from}, {to}), list is length {}", list.len()));
                }
                _ => return Err(format!("cannot slice({from}, {to}), negative indexes not supported")),
            }
        }
        ("flatten", []) => Val::list(flatten(items, 1)?),
        ("flatten", [Val::Int(depth)]) if *depth >= 0 => Val::list(flatten(items, *depth)?),
        ("flatten", [Val::Int(_)]) => return Err("level must be non-negative".to_owned()),
        ("sort", []) => sort_by(&items, &items)?,
        ("distinct", []) => {
            let mut all: Vec<Val<'a>> = Vec::new();
            for item in items {
                if !all.iter().any(|there| there.equals(&item)) {
                    all.push(item);
                }
            }
            Val::list(all)
        }
        ("reverse", []) => Val::list(items.into_iter().rev().collect()),
        ("first", []) => items.into_iter().next().map_or(Val::Optional(None), Val::some),
        ("last", []) => items.into_iter().next_back().map_or(Val::Optional(None), Val::some),
        ("sets.contains" | "sets.equivalent" | "sets.intersects", [Val::List(other)]) => {
            let other = other.items()?;
            let within = |a: &Val<'a>, b: &[Val<'a>]| b.iter().any(|there| there.equals(a));
            Val::Bool(match name {
                "sets.contains" => other.iter().all(|item| within(item, &items)),
                "sets.intersects" => other.iter().any(|item| within(item, &items)),
                _ => other.iter().all(|i| within(i, &items)) && items.iter().all(|i| within(i, &other)),
            })
        }
        _ => return no_overload(),
    })
}

fn flatten(items: Vec<Val<'_>>, depth: i64) -> Result<Vec<Val<'_>>, String> {
    let mut all = Vec::new();
    for item in items {
        match item {
            Val::List(list) if depth > 0 => all.extend(flatten(list.items()?, depth - 1)?),
            other => all.push(other),
        }
    }
    Ok(all)
}

/// Elements in the order of their keys.
pub(crate) fn sort_by<'a>(items: &[Val<'a>], keys: &[Val<'a>]) -> Answer<'a> {
    let mut failed = None;
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by(|a, b| {
        keys[*a].compare(&keys[*b]).unwrap_or_else(|error| {
            failed = Some(error);
            Ordering::Equal
        })
    });
    match failed {
        Some(error) if error == NO_OVERLOAD => Err("list elements must have the same type".to_owned()),
        Some(error) => Err(error),
        None => Ok(Val::list(order.into_iter().map(|i| items[i].clone()).collect())),
    }
}
