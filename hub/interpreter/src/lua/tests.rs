//! What scripts can do, and what they cannot.

use std::{sync::Arc, time::Duration};

use karmada_env::Env;
use serde_json::{Value, json};

use super::{Job, Limits, ScriptError, Shape, check, sandbox};

fn job(script: &str, args: Vec<Value>, returns: &'static [Shape]) -> Job {
    Job { script: Arc::from(script), function: "F", args, returns }
}

/// Time enough for what ends by itself or for another reason, whatever else the machine does.
fn limits() -> Limits {
    Limits { memory: 8 << 20, time: Duration::from_secs(180), instructions: u64::MAX }
}

/// Time that runs out.
fn short() -> Limits {
    Limits { time: Duration::from_millis(300), ..limits() }
}

fn run(script: &str, args: Vec<Value>) -> Result<Value, ScriptError> {
    run_within(limits(), script, args)
}

fn run_within(limits: Limits, script: &str, args: Vec<Value>) -> Result<Value, ScriptError> {
    let mut values = sandbox::call(limits, &Env::system(), &job(script, args, &[Shape::Map]))?;
    Ok(values.remove(0))
}

/// A script of one expression.
fn eval(expression: &str) -> Result<Value, ScriptError> {
    Ok(run(&format!("function F() return {{v = {expression}}} end"), vec![])?["v"].take())
}

#[test]
fn a_function_gets_its_arguments_and_its_result_is_read() {
    let script = "
        function F(object, observed)
            object.spec.replicas = observed.spec.replicas + 1
            object.metadata.labels['a.b/c'] = nil
            return object
        end";
    let object = json!({"metadata": {"labels": {"a.b/c": "1"}, "uid": ""}, "spec": {"replicas": 1, "volumes": [{"emptyDir": {}}], "list": []}});
    let found = run(script, vec![object, json!({"spec": {"replicas": 6}})]).unwrap();
    assert_eq!(
        found,
        json!({"metadata": {"uid": ""}, "spec": {"replicas": 7, "volumes": [{"emptyDir": {}}], "list": []}})
    );
}

#[test]
fn the_library_is_lua() {
    for (expression, expected) in [
        ("string.format('%s-%05.1f-%d', 'a', 2.25, 7)", json!("a-002.2-7")),
        ("('x'):rep(3)", json!("xxx")),
        ("('x'):rep(-1)", json!("")),
        ("select('#', string.find('hello', 'l+'))", json!(2)),
        ("string.find('a.b', '.', 2, true)", json!(2)),
        ("string.match('v1.22.3', '^v(%d+)%.(%d+)')", json!("1")),
        ("(string.gsub('hello world', 'o', '0'))", json!("hell0 w0rld")),
        ("(string.gsub('abc', '', '-'))", json!("-a-b-c-")),
        ("(string.gsub('a b', '(%w) (%w)', '%2 %1'))", json!("b a")),
        ("(string.gsub('$x $y', '%$(%w)', {x = 1}))", json!("1 $y")),
        ("(string.gsub('abc', '%w', function(c) if c == 'b' then return 'B' end end))", json!("aBc")),
        ("select(2, string.gsub('aaa', 'a', 'b', 2))", json!(2)),
        (
            "(function() local n = 0 for k, v in string.gmatch('a=1,b=2', '(%w)=(%w)') do n = n + tonumber(v) end return n end)()",
            json!(3),
        ),
        ("table.concat({1, 2, 3}, ',')", json!("1,2,3")),
        ("math.floor(7 / 2)", json!(3)),
        ("7 % 3 + 2 ^ 3", json!(9)),
        ("os.time{year = 1970, month = 1, day = 2, hour = 0}", json!(86400)),
        ("os.date('!%Y-%m-%d', 86400)", json!("1970-01-02")),
        ("os.date('*t', 0).year", json!(1970)),
        ("require('kube').resourceAdd('100m', nil, '1')", json!("1100m")),
        ("require('kube').getResourceQuantity('100m')", json!(0.1)),
        ("require('kube').getResourceQuantity('1Ki')", json!(1024)),
        (
            "require('kube').accuratePodRequirements({spec = {containers = {{name = 'a'}}}}) == nil",
            json!(true),
        ),
    ] {
        assert_eq!(eval(expression).map_err(|e| e.to_string()), Ok(expected), "{expression}");
    }
}

#[test]
fn pods_are_looked_into_by_kube() {
    let template = json!({"spec": {
        "nodeSelector": {"disk": "ssd"},
        "containers": [{"name": "a", "resources": {"requests": {"cpu": "1", "memory": "9007199254740993"}},
                        "envFrom": [{"configMapRef": {"name": "env"}}]}],
    }});
    let script = "
        local kube = require('kube')
        function F(template)
            return {needs = kube.accuratePodRequirements(template), refers = kube.getPodDependencies(template, 'n')}
        end";
    let found = run(script, vec![template]).unwrap();
    assert_eq!(
        found,
        json!({
            "needs": {"nodeClaim": {"nodeSelector": {"disk": "ssd"}},
                      "resourceRequest": {"cpu": "1", "memory": "9007199254740993"}},
            "refers": [{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "n", "name": "env"}],
        })
    );
}

#[test]
fn errors_name_the_line() {
    for (script, expected) in [
        ("function F(\n\nreturn 1", "line 3: <name> or '...' expected near 'return'"),
        ("x = 1", "there is no function F"),
        ("F = 3", "F is not a function but a integer"),
        (
            "function F()\n local x = nil\n return x.y\nend",
            "line 3: attempt to index local 'x' (a nil value)",
        ),
        ("function F()\n\n error('no such luck') end", "line 3: no such luck"),
        (
            "function F()\n return require('kube').resourceAdd('much')\nend",
            "line 2: resourceAdd: \"much\": quantities must match",
        ),
        ("function F() return 3 end", "what F returned as value 1: must be a table, is a integer"),
        ("function F() return {1} end", "what F returned as value 1: must have names for keys, is a list"),
        ("function F()\n require('socket') end", "line 2: there is no library \"socket\", only \"kube\""),
    ] {
        let error = run(script, vec![]).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{script}: {error}");
    }
}

#[test]
fn nothing_reaches_out_or_catches_the_end() {
    for name in [
        "load",
        "loadstring",
        "dofile",
        "loadfile",
        "pcall",
        "xpcall",
        "setmetatable",
        "getmetatable",
        "rawset",
        "rawget",
        "setfenv",
        "getfenv",
        "collectgarbage",
        "newproxy",
        "module",
        "coroutine",
        "math.random",
        "math.randomseed",
    ] {
        let error = run(&format!("function F()\n {name}('x') end"), vec![]).unwrap_err().to_string();
        let short = name.trim_start_matches("math.");
        assert_eq!(error, format!("line 2: {short} is not available to interpreter scripts"));
    }
    for name in [
        "io",
        "debug",
        "package",
        "string.dump",
        "os.execute",
        "os.exit",
        "os.getenv",
        "os.remove",
        "_G.io",
        "jit",
    ] {
        assert_eq!(eval(&format!("{name} == nil")), Ok(json!(true)), "{name}");
    }
    // A binary chunk is no script.
    assert!(run("\u{1b}Lua", vec![]).is_err());
    // What one call leaves behind, the next does not see.
    run("string.format = nil function F() left = 1 return {} end", vec![]).unwrap();
    assert_eq!(eval("tostring(left) .. string.format('%d', 2)"), Ok(json!("nil2")));
}

#[test]
fn whatever_a_script_does_it_ends() {
    let memory = "it used more memory than a script may";
    let time = "it ran for more than 300ms";
    for (script, expected) in [
        ("while true do end function F() end", time),
        ("function F() while true do end end", time),
        ("function F() return F() end", time),
        ("function F() local function g(n) return 1 + g(n + 1) end return g(1) end", "stack overflow"),
        ("function F() local s = 'x' while true do s = s .. s end end", memory),
        ("function F() local t = {} for i = 1, 1e9 do t[i] = {} end end", memory),
        ("function F() local t = {} for i = 1, 1e9 do table.insert(t, 1, i) end end", time),
        ("function F() return ('x'):rep(1e9) end", "string.rep: the result is longer"),
        ("function F() return ('x'):rep(1e300) end", "string.rep: the result is longer"),
        (
            "function F() return string.find(('a'):rep(1000), ('a-'):rep(40) .. 'b') end",
            "matching patterns takes too long",
        ),
        (
            "function F() while true do string.find(('a'):rep(10000), 'a-a-b') end end",
            "matching patterns takes too long",
        ),
        (
            "function F() return string.gsub(('a'):rep(1000), 'a', ('b'):rep(10000)) end",
            "string.gsub: the result is longer",
        ),
        ("function F() local function f() return (string.gsub('a', 'a', f)) end f() end", "nested too deep"),
        ("function F() return unpack({}, 1, 1e8) end", "too many results to unpack"),
        ("function F() return string.byte(('x'):rep(1e6), 1, -1) end", "string slice too long"),
        (
            "function F() return string.format('%s', ('x'):rep(1e6)):rep(1e6) end",
            "string.rep: the result is longer",
        ),
        ("function F() table.sort({3, 1, 2, 5, 4, 9, 8, 7}, function() return true end) return {} end", ""),
        ("function F() error({}) end", ""),
    ] {
        let limits = if expected == time { short() } else { limits() };
        match run_within(limits, script, vec![]) {
            Err(error) => assert!(error.message.contains(expected), "{script}: {error}"),
            Ok(value) => assert!(expected.is_empty(), "{script}: {value}"),
        }
    }
    let deep = format!("function F() return {} end", "(".repeat(500));
    assert!(run(&deep, vec![]).is_err());
    let nested = format!("function F() return {}{} end", "{x=".repeat(150), "}".repeat(150));
    assert!(run(&nested, vec![]).is_err());
}

#[test]
fn a_loop_ends_although_the_clock_stands_still() {
    let clock = karmada_env::ManualClock::new(std::time::UNIX_EPOCH);
    let env = Env::seeded(clock, 1);
    let few = Limits { instructions: 1_000_000, ..limits() };
    let error =
        sandbox::call(few, &env, &job("function F() while true do end end", vec![], &[])).unwrap_err();
    assert!(error.message.starts_with("it ran for more than"), "{error}");
}

#[test]
fn scripts_are_checked_before_they_are_taken() {
    let env = Env::system();
    assert_eq!(check(&env, "function G(a) return a end", "G"), Ok(()));
    assert_eq!(check(&env, "function H() end", "G").unwrap_err().to_string(), "there is no function G");
    assert_eq!(check(&env, "\nfunction G(", "G").unwrap_err().line, Some(2));
    assert!(check(&env, "while true do end", "G").is_err());
}

#[tokio::test]
async fn calls_run_on_a_thread_that_comes_and_goes() {
    let scripts = super::Scripts::new(Env::system(), Limits { time: Duration::from_secs(5), ..limits() });
    assert!(scripts.queue.lock().is_none(), "nothing before the first call");
    let here = std::thread::current().id();
    let call = |n: i64| {
        scripts.call(job("function F(o) o.n = o.n * 2 return o end", vec![json!({"n": n})], &[Shape::Map]))
    };
    assert_eq!(call(3).await.unwrap(), [json!({"n": 6})]);
    assert_eq!(call(4).await.unwrap(), [json!({"n": 8})]);
    assert_eq!(std::thread::current().id(), here);
    let slow = scripts.call(job("function F() while true do end end", vec![], &[]));
    assert!(slow.await.is_err());
    assert_eq!(call(5).await.unwrap(), [json!({"n": 10})], "after one that was ended");
}
