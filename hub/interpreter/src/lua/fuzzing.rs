//! What must hold of values on their way through Lua, and of whatever somebody gives as a script.

use std::time::{Duration, SystemTime};

use karmada_env::{Env, ManualClock};
use mlua::Lua;
use serde_json::{Value, json};

use super::{
    Job, Limits, Shape,
    convert::{Empty, Marks, Reader},
    sandbox,
};

/// Objects without nulls, which Lua does not have, come back as they were.
pub fn lua_values(data: &[u8]) {
    let Ok(inner) = serde_json::from_slice::<Value>(data) else { return };
    let value = without_nulls(json!({ "spec": inner }));
    let lua = Lua::new();
    let marks = Marks::new(&lua).expect("a state has room for two tables");
    let there = marks.push(&lua, &value).expect("a value fits a state without limits");
    match Reader::new(&marks, vec![&value]).read(&there, Empty::Map) {
        Ok(back) => assert_eq!(back, value),
        Err(why) => assert!(why.contains("too deep"), "{why}: {value}"),
    }
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().filter(|item| !item.is_null()).map(without_nulls).collect(),
        Value::Object(map) => Value::Object(
            map.into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (key, without_nulls(value)))
                .collect(),
        ),
        other => other,
    }
}

/// A script ends within its limits, and what it returns is JSON.
pub fn lua_script(data: &[u8]) {
    let script = String::from_utf8_lossy(data);
    // The clock stands still: what ends a loop is the count of instructions.
    let env = Env::seeded(ManualClock::new(SystemTime::UNIX_EPOCH), 0);
    let limits = Limits { memory: 4 << 20, time: Duration::from_secs(1), instructions: 200_000 };
    for script in [script.to_string(), format!("function F(object)\n{script}\nend")] {
        let job = Job {
            script: script.into(),
            function: "F",
            args: vec![
                json!({"spec": {"replicas": 3, "list": [], "map": {}}, "n": 9_007_199_254_740_993_i64}),
            ],
            returns: &[Shape::MapOrNil, Shape::Number],
        };
        if let Ok(values) = sandbox::call(limits, &env, &job) {
            assert_eq!(values.len(), 2);
            assert!(values[0].is_object() || values[0].is_null(), "{values:?}");
            assert!(values[1].is_number(), "{values:?}");
        }
    }
}
