//! One script, called once, in a state of its own that has nothing to reach out with.
//!
//! What a script has: the language, `string`, `table`, `math` without chance, `os.time`, `os.date` and `kube`. What
//! would load code, catch errors (and so the deadline), touch metatables or environments is refused by name. Work is
//! bounded three ways: a count of instructions, a deadline, and memory; the functions that work outside the count
//! have bounds of their own (see [`super::text`]).

use std::{cell::Cell, time::Duration};

use jiff::Timestamp;
use karmada_env::Env;
use mlua::{
    Error, HookTriggers, Lua, LuaOptions, LuaString, MultiValue, StdLib, Table, Value, VmState,
    chunk::ChunkMode,
};
use serde_json::Value as Json;

use super::{
    Job, ScriptError, Shape, clock,
    convert::{Empty, Marks, Reader},
    kube, text,
};

/// What one call may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Memory of the state, in bytes.
    pub(crate) memory: usize,
    /// Time from the start of the call.
    pub(crate) time: Duration,
    /// Instructions. Where time is made by a test, or stands still, this is what ends a loop.
    pub(crate) instructions: u64,
}

impl Default for Limits {
    fn default() -> Self {
        // A second is Karmada's. The largest object (1.5 MB of JSON) takes some 10 MB in Lua, twice where one is
        // observed and one desired. A second of Lua is some 10^8 instructions.
        Self { memory: 64 << 20, time: Duration::from_secs(1), instructions: 400_000_000 }
    }
}

/// Instructions between two looks at the clock. Few, since one may be an insertion into a list of a million.
const LOOK: u32 = 200;

/// What of Lua's globals stays.
const KEPT: &[&str] = &[
    "_G", "_VERSION", "assert", "error", "ipairs", "math", "next", "pairs", "select", "string", "table",
    "tonumber", "tostring", "type", "unpack",
];

/// What is refused by name, so that the author of a script learns why. Karmada refuses all but the last three too.
const REFUSED: &[&str] = &[
    "collectgarbage",
    "dofile",
    "getfenv",
    "getmetatable",
    "load",
    "loadfile",
    "loadstring",
    "module",
    "newproxy",
    "rawequal",
    "rawget",
    "rawset",
    "setfenv",
    "setmetatable",
    "coroutine",
    "pcall",
    "xpcall",
];

/// The name of the script in Lua's messages.
const CHUNK: &str = "script";

/// Calls one function of a script.
pub(super) fn call(limits: Limits, env: &Env, job: &Job) -> Result<Vec<Json>, ScriptError> {
    let lua = state(limits, env)?;
    let marks = Marks::new(&lua)?;
    load(&lua, &job.script)?.call::<()>(())?;
    let function = match lua.globals().raw_get::<Value>(job.function)? {
        Value::Function(found) => found,
        Value::Nil => return Err(ScriptError::plain(format!("there is no function {}", job.function))),
        other => {
            let text = format!("{} is not a function but a {}", job.function, other.type_name());
            return Err(ScriptError::plain(text));
        }
    };
    let given = job.args.iter().map(|arg| marks.push(&lua, arg)).collect::<mlua::Result<MultiValue>>()?;
    let values = function.call::<MultiValue>(given)?;
    let mut reader = Reader::new(&marks, job.args.iter().collect());
    let read = |(position, shape): (usize, &Shape)| {
        let value = values.get(position).unwrap_or(&Value::Nil);
        shape.read(&mut reader, value).map_err(|why| {
            ScriptError::plain(format!("what {} returned as value {}: {why}", job.function, position + 1))
        })
    };
    job.returns.iter().enumerate().map(read).collect()
}

/// Checks that a script can be loaded, runs, and defines a function.
pub(super) fn check(limits: Limits, env: &Env, script: &str, function: &str) -> Result<(), ScriptError> {
    let lua = state(limits, env)?;
    load(&lua, script)?.call::<()>(())?;
    match lua.globals().raw_get::<Value>(function)? {
        Value::Function(_) => Ok(()),
        _ => Err(ScriptError::plain(format!("there is no function {function}"))),
    }
}

fn load(lua: &Lua, script: &str) -> mlua::Result<mlua::Function> {
    lua.load(script).set_name(format!("={CHUNK}")).set_mode(ChunkMode::Text).into_function()
}

impl Shape {
    fn read(self, reader: &mut Reader<'_>, value: &Value) -> Result<Json, String> {
        let fits = match self {
            Self::Number => matches!(value, Value::Number(_) | Value::Integer(_)),
            Self::Bool => value.is_boolean(),
            Self::Map | Self::List => value.is_table(),
            Self::MapOrNil => value.is_table() || value.is_nil(),
        };
        if !fits {
            return Err(format!("must be a {}, is a {}", self.lua_type(), value.type_name()));
        }
        let empty = if self == Self::List { Empty::List } else { Empty::Map };
        let read = reader.read(value, empty)?;
        match (self, &read) {
            (Self::Map | Self::MapOrNil, Json::Array(_)) => {
                Err("must have names for keys, is a list".to_owned())
            }
            (Self::List, Json::Object(_)) => Err("must be a list, has names for keys".to_owned()),
            _ => Ok(read),
        }
    }

    fn lua_type(self) -> &'static str {
        match self {
            Self::Number => "number",
            Self::Bool => "boolean",
            Self::Map | Self::List => "table",
            Self::MapOrNil => "table or nil",
        }
    }
}

/// A fresh state, with nothing in it but what scripts may use.
fn state(limits: Limits, env: &Env) -> mlua::Result<Lua> {
    let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH, LuaOptions::default())?;
    let globals = lua.globals();
    for name in
        globals.pairs::<LuaString, Value>().map(|pair| Ok(pair?.0)).collect::<mlua::Result<Vec<_>>>()?
    {
        if !KEPT.iter().any(|kept| name.as_bytes() == kept.as_bytes()) {
            globals.raw_set(name, Value::Nil)?;
        }
    }
    for name in REFUSED {
        globals.raw_set(*name, refusal(&lua, name)?)?;
    }
    let math: Table = globals.raw_get("math")?;
    for name in ["random", "randomseed"] {
        // A rule that says something else each time would never come to rest.
        math.raw_set(name, refusal(&lua, name)?)?;
    }
    text::install(&lua, &globals.raw_get("string")?)?;
    let now = Timestamp::try_from(env.wall()).unwrap_or(Timestamp::UNIX_EPOCH);
    globals.raw_set("os", clock::os(&lua, now)?)?;
    globals.raw_set("print", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    let kube = kube::library(&lua)?;
    let require = lua.create_function(move |_, name: LuaString| {
        if name.as_bytes() == b"kube" {
            return Ok(kube.clone());
        }
        Err(Error::runtime(format!("there is no library {:?}, only \"kube\"", name.to_string_lossy())))
    })?;
    globals.raw_set("require", require)?;
    lua.set_memory_limit(limits.memory)?;
    watch(&lua, limits, env)?;
    Ok(lua)
}

fn refusal(lua: &Lua, name: &'static str) -> mlua::Result<mlua::Function> {
    lua.create_function(move |_, _: MultiValue| {
        Err::<(), _>(Error::runtime(format!("{name} is not available to interpreter scripts")))
    })
}

/// Ends the script when it has had its share.
fn watch(lua: &Lua, limits: Limits, env: &Env) -> mlua::Result<()> {
    let (env, looks) = (env.clone(), Cell::new(0_u64));
    let start = env.now();
    lua.set_hook(HookTriggers::new().every_nth_instruction(LOOK), move |_, _| {
        looks.set(looks.get() + 1);
        if looks.get() * u64::from(LOOK) > limits.instructions
            || env.now().saturating_sub(start) > limits.time
        {
            return Err(Error::runtime(format!("it ran for more than {:?}", limits.time)));
        }
        Ok(VmState::Continue)
    })
}

impl From<Error> for ScriptError {
    fn from(error: Error) -> Self {
        let (mut error, mut line) = (&error, None);
        while let Error::CallbackError { traceback, cause } = error {
            line = line.or_else(|| line_in(traceback));
            error = cause;
        }
        let message = match error {
            Error::MemoryError(_) => "it used more memory than a script may".to_owned(),
            Error::SyntaxError { message, .. } | Error::RuntimeError(message) => message.clone(),
            other => other.to_string(),
        };
        let text = message.split("\nstack traceback:").next().unwrap_or_default().trim();
        match text
            .strip_prefix(CHUNK)
            .and_then(|rest| rest.strip_prefix(':'))
            .and_then(|rest| rest.split_once(':'))
        {
            Some((number, rest)) if number.parse::<u32>().is_ok() => {
                Self { line: number.parse().ok(), message: rest.trim().to_owned() }
            }
            _ => Self { line: line.or_else(|| line_in(&message)), message: text.to_owned() },
        }
    }
}

/// The first line of the script that a traceback names.
fn line_in(traceback: &str) -> Option<u32> {
    let after = &traceback[traceback.find("script:")? + "script:".len()..];
    let digits = after.bytes().take_while(u8::is_ascii_digit).count();
    after[..digits].parse().ok()
}
