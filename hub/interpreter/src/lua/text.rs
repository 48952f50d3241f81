//! The functions of `string` that could run for long or make much of little, with bounds.

use std::{cell::Cell, rc::Rc};

use mlua::{Error, Function, Lua, LuaString, MultiValue, Result, Table, Value};

use super::pattern::{Capture, Match, Matcher};

/// How long a text may be that a function makes at once.
const LONGEST: usize = 1 << 20;

/// Steps that the pattern functions of one call of a script may take together.
const STEPS: u64 = 20_000_000;

/// How deep replacements of `gsub` may call `gsub`: each level stands on the thread's own stack.
const NESTED: u32 = 16;

/// Puts the bounded functions in the place of Lua's.
pub(super) fn install(lua: &Lua, string: &Table) -> Result<()> {
    let steps = Rc::new(Cell::new(STEPS));
    string.raw_set("dump", Value::Nil)?;
    string.raw_set("rep", lua.create_function(repeat)?)?;
    let budget = Rc::clone(&steps);
    string.raw_set("find", lua.create_function(move |lua, args| find(lua, args, &budget, true))?)?;
    let budget = Rc::clone(&steps);
    string.raw_set(
        "match",
        lua.create_function(move |lua, (text, pattern, init)| {
            find(lua, (text, pattern, init, None), &budget, false)
        })?,
    )?;
    let budget = Rc::clone(&steps);
    let gmatch = lua.create_function(move |lua, args| each_match(lua, args, &budget))?;
    string.raw_set("gmatch", &gmatch)?;
    // The name it had in Lua 5.0, which Lua 5.1 and gopher-lua still know.
    string.raw_set("gfind", gmatch)?;
    let depth = Cell::new(0);
    let gsub = lua.create_function(move |lua, args| {
        if depth.get() >= NESTED {
            return Err(Error::runtime("string.gsub: its replacements are nested too deep"));
        }
        depth.set(depth.get() + 1);
        let done = substitute(lua, args, &steps);
        depth.set(depth.get() - 1);
        done
    })?;
    string.raw_set("gsub", gsub)
}

fn repeat(lua: &Lua, (text, times): (LuaString, f64)) -> Result<LuaString> {
    let text = text.as_bytes();
    // Truncates, and takes what is negative or no number for none.
    let times = times as usize;
    if text.len().checked_mul(times).is_none_or(|length| length > LONGEST) {
        return Err(Error::runtime(format!("string.rep: the result is longer than {LONGEST} bytes")));
    }
    lua.create_string(text.repeat(times))
}

/// Runs a matcher with what is left of the budget.
fn first(
    text: &[u8],
    pattern: &[u8],
    from: usize,
    anchor: bool,
    budget: &Cell<u64>,
) -> Result<Option<Match>> {
    let mut steps = budget.get();
    let found = Matcher::new(text, pattern, anchor, &mut steps).find(from);
    budget.set(steps);
    found.map_err(Error::runtime)
}

/// Where a search begins, from Lua's `init`.
fn start(init: Option<f64>, length: usize) -> usize {
    let init = init.unwrap_or(1.0);
    let from = if init >= 0.0 { init.max(1.0) - 1.0 } else { (length as f64 + init).max(0.0) };
    (from as usize).min(length)
}

/// A capture as Lua sees it; the whole match where the pattern has none.
fn capture(lua: &Lua, text: &[u8], found: &Match, index: usize) -> Result<Value> {
    let (from, to) = match found.captures.get(index) {
        Some(Capture::Position(at)) => return Ok(Value::Number(*at as f64 + 1.0)),
        Some(Capture::Span(from, length)) => (*from, from + length),
        _ => (found.start, found.end),
    };
    Ok(Value::String(lua.create_string(&text[from..to])?))
}

fn captures(lua: &Lua, text: &[u8], found: &Match, whole: bool) -> Result<MultiValue> {
    let count = if whole { found.captures.len().max(1) } else { found.captures.len() };
    (0..count).map(|index| capture(lua, text, found, index)).collect()
}

type FindArgs = (LuaString, LuaString, Option<f64>, Option<bool>);

/// `string.find` and `string.match`.
fn find(
    lua: &Lua,
    (text, pattern, init, plain): FindArgs,
    budget: &Cell<u64>,
    places: bool,
) -> Result<MultiValue> {
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let from = start(init, text.len());
    let found = if plain == Some(true) {
        let steps = (text.len() as u64).saturating_mul(pattern.len().max(1) as u64 / 16 + 1);
        let left = budget.get().checked_sub(steps);
        budget.set(left.ok_or_else(|| Error::runtime("matching patterns takes too long"))?);
        let place = (from..=text.len()).find(|at| text[*at..].starts_with(&pattern));
        place.map(|at| Match { start: at, end: at + pattern.len(), captures: Vec::new() })
    } else {
        first(&text, &pattern, from, true, budget)?
    };
    let Some(found) = found else { return Ok(MultiValue::from_iter([Value::Nil])) };
    let mut values = captures(lua, &text, &found, !places)?;
    if places {
        values.push_front(Value::Number(found.end as f64));
        values.push_front(Value::Number(found.start as f64 + 1.0));
    }
    Ok(values)
}

/// `string.gmatch`.
fn each_match(
    lua: &Lua,
    (text, pattern): (LuaString, LuaString),
    budget: &Rc<Cell<u64>>,
) -> Result<Function> {
    let (budget, from) = (Rc::clone(budget), Cell::new(0));
    lua.create_function(move |lua, ()| {
        let (bytes, pattern) = (text.as_bytes(), pattern.as_bytes());
        if from.get() > bytes.len() {
            return Ok(MultiValue::from_iter([Value::Nil]));
        }
        match first(&bytes, &pattern, from.get(), false, &budget)? {
            None => {
                from.set(bytes.len() + 1);
                Ok(MultiValue::from_iter([Value::Nil]))
            }
            Some(found) => {
                from.set(found.end + usize::from(found.end == found.start));
                captures(lua, &bytes, &found, true)
            }
        }
    })
}

type SubstituteArgs = (LuaString, LuaString, Value, Option<f64>);

/// `string.gsub`.
fn substitute(
    lua: &Lua,
    (text, pattern, by, limit): SubstituteArgs,
    budget: &Cell<u64>,
) -> Result<(LuaString, f64)> {
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let limit = limit.map_or(usize::MAX, |n| n as usize);
    let anchored = pattern.first() == Some(&b'^');
    let (mut out, mut from, mut count) = (Vec::with_capacity(text.len()), 0, 0);
    while count < limit {
        let Some(found) = first(&text, &pattern, from, true, budget)? else { break };
        count += 1;
        out.extend_from_slice(&text[from..found.start]);
        out.extend_from_slice(&replacement(lua, &text, &found, &by)?);
        if out.len() > LONGEST.max(text.len()) {
            return Err(Error::runtime(format!("string.gsub: the result is longer than {LONGEST} bytes")));
        }
        from = found.end;
        if found.end == found.start {
            // An empty match is passed over, and the character after it stays.
            out.extend_from_slice(text.get(from..=from).unwrap_or_default());
            from += 1;
        }
        if anchored || from > text.len() {
            break;
        }
    }
    out.extend_from_slice(text.get(from..).unwrap_or_default());
    Ok((lua.create_string(out)?, count as f64))
}

/// What stands in the place of one match.
fn replacement(lua: &Lua, text: &[u8], found: &Match, by: &Value) -> Result<Vec<u8>> {
    let value = match by {
        Value::Table(table) => table.get::<Value>(capture(lua, text, found, 0)?)?,
        Value::Function(function) => function.call::<Value>(captures(lua, text, found, true)?)?,
        other => match lua.coerce_string(other.clone())? {
            Some(template) => return expand(lua, text, found, &template.as_bytes()),
            None => return Err(wrong(other)),
        },
    };
    match value {
        Value::Nil | Value::Boolean(false) => Ok(text[found.start..found.end].to_vec()),
        other => match lua.coerce_string(other.clone())? {
            Some(text) => Ok(text.as_bytes().to_vec()),
            None => Err(Error::runtime(format!("invalid replacement value (a {})", other.type_name()))),
        },
    }
}

fn wrong(by: &Value) -> Error {
    Error::runtime(format!(
        "bad argument #3 to 'gsub' (string/function/table expected, got {})",
        by.type_name()
    ))
}

/// A replacement with `%0` to `%9` filled in.
fn expand(lua: &Lua, text: &[u8], found: &Match, template: &[u8]) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(template.len());
    let mut bytes = template.iter();
    while let Some(&byte) = bytes.next() {
        match (byte, byte == b'%').1.then(|| bytes.next()).flatten() {
            None => out.push(byte),
            Some(b'0') => out.extend_from_slice(&text[found.start..found.end]),
            Some(digit @ b'1'..=b'9') => {
                let index = usize::from(digit - b'1');
                if index >= found.captures.len().max(1) {
                    return Err(Error::runtime("invalid capture index"));
                }
                let value = capture(lua, text, found, index)?;
                if let Some(text) = lua.coerce_string(value)? {
                    out.extend_from_slice(&text.as_bytes());
                }
            }
            Some(other) => out.push(*other),
        }
    }
    Ok(out)
}
