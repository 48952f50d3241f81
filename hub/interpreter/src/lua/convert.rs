//! Between JSON and Lua's values.
//!
//! Lua has one number type and one table type. So that what a script does not touch comes back as it was:
//! - a number that equals the number at its place in one of the objects that were handed in is taken from there, with
//!   all its digits;
//! - an empty table is a list or an object by where it came from. One that the script made takes the type of the empty
//!   value that a handed-in object has at the same path (list positions aside); where there is none, nobody knows
//!   which it is, and it is left out, as in Karmada.
//!
//! A null is not there, in Lua as in Karmada.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
};

use mlua::{Lua, Table, Value as LuaValue};
use serde_json::{Map, Number, Value};

/// How deep a value may be.
const DEPTH: usize = 100;
/// How many values a result may have. Tables that share parts could say very much with little memory.
const NODES: usize = 1_000_000;

/// What an empty table was, in JSON.
pub(super) struct Marks {
    list: Table,
    map: Table,
}

impl Marks {
    /// Marks of a state.
    pub(super) fn new(lua: &Lua) -> mlua::Result<Self> {
        Ok(Self { list: lua.create_table()?, map: lua.create_table()? })
    }

    /// A JSON value in Lua.
    pub(super) fn push(&self, lua: &Lua, value: &Value) -> mlua::Result<LuaValue> {
        Ok(match value {
            Value::Null => LuaValue::Nil,
            Value::Bool(b) => LuaValue::Boolean(*b),
            Value::Number(n) => LuaValue::Number(n.as_f64().unwrap_or(f64::NAN)),
            Value::String(s) => LuaValue::String(lua.create_string(s)?),
            Value::Array(items) => {
                let table = lua.create_table_with_capacity(items.len(), 0)?;
                for item in items.iter().filter(|item| !item.is_null()) {
                    table.raw_push(self.push(lua, item)?)?;
                }
                if items.is_empty() {
                    table.set_metatable(Some(self.list.clone()))?;
                }
                LuaValue::Table(table)
            }
            Value::Object(map) => {
                let table = lua.create_table_with_capacity(0, map.len())?;
                for (key, item) in map {
                    table.raw_set(lua.create_string(key)?, self.push(lua, item)?)?;
                }
                if map.is_empty() {
                    table.set_metatable(Some(self.map.clone()))?;
                }
                LuaValue::Table(table)
            }
        })
    }

    /// What an empty table was made from, if it was not made by the script.
    fn of(&self, table: &Table) -> Option<Empty> {
        let mark = table.metatable()?;
        if mark == self.list { Some(Empty::List) } else { (mark == self.map).then_some(Empty::Map) }
    }
}

/// The two things that an empty table may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Empty {
    List,
    Map,
}

impl Empty {
    fn json(self) -> Value {
        match self {
            Self::List => Value::Array(Vec::new()),
            Self::Map => Value::Object(Map::new()),
        }
    }
}

/// Reads a script's results, with the objects that it was given at hand.
pub(super) struct Reader<'a> {
    marks: &'a Marks,
    references: Vec<&'a Value>,
    /// Paths of empty values in the references; made when the first empty table asks.
    empties: OnceCell<BTreeMap<String, Empty>>,
    nodes: usize,
}

impl<'a> Reader<'a> {
    /// A reader of results that come from these objects.
    pub(super) fn new(marks: &'a Marks, references: Vec<&'a Value>) -> Self {
        Self { marks, references, empties: OnceCell::new(), nodes: 0 }
    }

    /// A whole result; `empty` is what it is if it is an empty table.
    pub(super) fn read(&mut self, value: &LuaValue, empty: Empty) -> Result<Value, String> {
        if let LuaValue::Table(table) = value
            && table.is_empty()
        {
            return Ok(empty.json());
        }
        let references = self.references.clone();
        Ok(self.value(value, &references, &mut Vec::new())?.unwrap_or(Value::Null))
    }

    /// A value at a path; none for an empty table of which nobody knows what it is.
    fn value(
        &mut self,
        value: &LuaValue,
        references: &[&'a Value],
        path: &mut Vec<String>,
    ) -> Result<Option<Value>, String> {
        self.nodes += 1;
        if self.nodes > NODES {
            return Err("the result is too large".to_owned());
        }
        Ok(Some(match value {
            LuaValue::Nil => Value::Null,
            LuaValue::Boolean(b) => Value::Bool(*b),
            // Integer is the binding's reading of a number that is whole.
            LuaValue::Integer(i) => Self::number(*i as f64, references)?,
            LuaValue::Number(n) => Self::number(*n, references)?,
            LuaValue::String(s) => Value::String(s.to_string_lossy()),
            LuaValue::Table(table) => return self.table(table, references, path),
            other => return Err(format!("a {} is no value in JSON", other.type_name())),
        }))
    }

    fn number(n: f64, references: &[&Value]) -> Result<Value, String> {
        number(n, references).map(Value::Number).ok_or_else(|| format!("{n} is no number in JSON"))
    }

    fn table(
        &mut self,
        table: &Table,
        references: &[&'a Value],
        path: &mut Vec<String>,
    ) -> Result<Option<Value>, String> {
        if path.len() >= DEPTH {
            return Err("the result is nested too deep, or contains itself".to_owned());
        }
        let (mut named, mut listed) = (BTreeMap::new(), BTreeMap::new());
        for pair in table.pairs::<LuaValue, LuaValue>() {
            match pair.map_err(|e| e.to_string())? {
                (LuaValue::String(key), value) => {
                    named.insert(key.to_string_lossy(), value);
                }
                (LuaValue::Integer(key), value) => {
                    listed.insert(key, value);
                }
                (LuaValue::Number(key), value) if key.fract() == 0.0 && key.abs() < 1e15 => {
                    listed.insert(key as i64, value);
                }
                (key, _) => return Err(format!("a table has a key that is a {}", key.type_name())),
            }
        }
        match (named.is_empty(), listed.is_empty()) {
            (true, true) => Ok(self.marks.of(table).or_else(|| self.known_empty(path)).map(Empty::json)),
            (false, false) => Err("a table has both names and numbers for keys".to_owned()),
            (false, true) => {
                let mut map = Map::with_capacity(named.len());
                for (key, value) in named {
                    let below: Vec<&Value> = references.iter().filter_map(|r| r.get(&key)).collect();
                    path.push(key);
                    let value = self.value(&value, &below, path)?;
                    let key = path.pop().unwrap_or_default();
                    if let Some(value) = value {
                        map.insert(key, value);
                    }
                }
                Ok(Some(Value::Object(map)))
            }
            (true, false) => {
                let mut list = Vec::with_capacity(listed.len());
                for (position, (index, value)) in listed.into_iter().enumerate() {
                    if index != position as i64 + 1 {
                        return Err("a list has gaps".to_owned());
                    }
                    let below: Vec<&Value> = references.iter().filter_map(|r| r.get(position)).collect();
                    // Positions are no part of the path, but of its depth.
                    path.push(String::new());
                    let value = self.value(&value, &below, path)?;
                    path.pop();
                    list.extend(value);
                }
                Ok(Some(Value::Array(list)))
            }
        }
    }

    /// What the references have at a path, if it is empty there.
    fn known_empty(&self, path: &[String]) -> Option<Empty> {
        let empties = self.empties.get_or_init(|| {
            let (mut lists, mut maps) = (BTreeSet::new(), BTreeSet::new());
            for reference in &self.references {
                collect_empties(reference, &mut String::new(), &mut lists, &mut maps);
            }
            let lists = lists.into_iter().map(|path| (path, Empty::List));
            // Where it is now this and now that, it is an object, as in Karmada.
            lists.chain(maps.into_iter().map(|path| (path, Empty::Map))).collect()
        });
        let names: String = path.iter().filter(|p| !p.is_empty()).map(|p| format!("/{p}")).collect();
        empties.get(&names).copied()
    }
}

fn collect_empties(
    value: &Value,
    path: &mut String,
    lists: &mut BTreeSet<String>,
    maps: &mut BTreeSet<String>,
) {
    match value {
        Value::Array(items) if items.is_empty() => {
            lists.insert(path.clone());
        }
        Value::Array(items) => items.iter().for_each(|item| collect_empties(item, path, lists, maps)),
        Value::Object(map) if map.is_empty() => {
            maps.insert(path.clone());
        }
        Value::Object(map) => {
            for (key, item) in map {
                let length = path.len();
                path.push('/');
                path.push_str(key);
                collect_empties(item, path, lists, maps);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// A number as JSON: the reference's own where it is the same, else whole if it is whole.
fn number(n: f64, references: &[&Value]) -> Option<Number> {
    let same = references.iter().find_map(|r| match r {
        Value::Number(number) if number.as_f64() == Some(n) => Some(number.clone()),
        _ => None,
    });
    // Whole numbers beyond this are not exact in Lua; they are still whole.
    const WHOLE: f64 = 9.0e18;
    same.or_else(|| {
        if n.fract() == 0.0 && n.abs() < WHOLE { Some(Number::from(n as i64)) } else { Number::from_f64(n) }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn round(value: &Value, references: Vec<&Value>) -> Result<Value, String> {
        let lua = Lua::new();
        let marks = Marks::new(&lua).unwrap();
        let there = marks.push(&lua, value).unwrap();
        Reader::new(&marks, references).read(&there, Empty::Map)
    }

    fn eval(script: &str, references: Vec<&Value>) -> Result<Value, String> {
        let lua = Lua::new();
        let marks = Marks::new(&lua).unwrap();
        let value: LuaValue = lua.load(script).eval().unwrap();
        Reader::new(&marks, references).read(&value, Empty::Map)
    }

    #[test]
    fn what_a_script_makes_is_read() {
        let reference =
            json!({"spec": {"a": {}, "b": [], "items": [{"dir": {}}], "big": 9_007_199_254_740_993_i64}});
        for (script, expected) in [
            ("return {}", Ok(json!({}))),
            ("return {spec = {a = {}, b = {}, c = {}}}", Ok(json!({"spec": {"a": {}, "b": []}}))),
            (
                "return {spec = {items = {{dir = {}}, {dir = {}}}}}",
                Ok(json!({"spec": {"items": [{"dir": {}}, {"dir": {}}]}})),
            ),
            (
                "return {spec = {big = 9007199254740992}}",
                Ok(json!({"spec": {"big": 9_007_199_254_740_993_i64}})),
            ),
            (
                "return {n = 3, m = 1.5, t = 'x', f = false}",
                Ok(json!({"f": false, "m": 1.5, "n": 3, "t": "x"})),
            ),
            ("return {1, 2, 3}", Ok(json!([1, 2, 3]))),
            ("return {1, nil, 3}", Err("a list has gaps")),
            ("return {1, x = 2}", Err("a table has both names and numbers for keys")),
            ("return {[true] = 1}", Err("a table has a key that is a boolean")),
            ("return {x = print}", Err("a function is no value in JSON")),
            ("return {x = 0/0}", Err("NaN is no number in JSON")),
            ("local t = {} t.t = t return t", Err("the result is nested too deep, or contains itself")),
            ("local t = {1} for i = 1, 40 do t = {t, t} end return t", Err("the result is too large")),
        ] {
            let found = eval(script, vec![&reference]);
            assert_eq!(found.as_ref().map_err(String::as_str), expected.as_ref().map_err(|e| *e), "{script}");
        }
    }

    #[test]
    fn nulls_are_not_there() {
        let value = json!({"a": null, "list": [1, null, 3]});
        assert_eq!(round(&value, vec![]).unwrap(), json!({"list": [1, 3]}));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(Value::from),
            ".{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-z./]{1,3}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_not_touched_comes_back_to_the_digit(inner in any_json()) {
            let value = json!({"spec": inner});
            prop_assert_eq!(round(&value, vec![&value]).unwrap(), value);
        }
    }
}
