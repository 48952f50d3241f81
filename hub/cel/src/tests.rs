use serde_json::json;

use super::*;

fn scope() -> Scope {
    let schema = json!({"type": "object", "properties": {
        "n": {"type": "integer"}, "s": {"type": "string", "maxLength": 20},
        "b": {"type": "boolean"}, "x": {"type": "number"},
        "l": {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 10}},
        "i": {"type": "array", "maxItems": 10, "items": {"type": "integer"}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "pairs": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}},
        "m": {"type": "object", "maxProperties": 5, "additionalProperties": {"type": "string", "maxLength": 10}},
        "port": {"x-kubernetes-int-or-string": true},
        "d": {"type": "string", "format": "duration"}, "t": {"type": "string", "format": "date-time"},
        "namespace": {"type": "string"}, "a-b.c/d": {"type": "string"},
        "o": {"type": "object", "properties": {"p": {"type": "integer"}}},
    }});
    Scope::new(Decl::of(&schema, true).unwrap(), false)
}

fn object() -> Json {
    json!({"apiVersion": "g/v1", "kind": "W", "metadata": {"name": "w"},
        "n": 3, "s": "hello", "b": true, "x": 1, "l": ["a", "bb"], "i": [3, 1, 2], "set": ["x", "y"],
        "pairs": [{"k": "a", "v": 1}, {"k": "b", "v": 2}], "m": {"k": "y", "z.z": "q"}, "port": "http",
        "d": "90s", "t": "2026-01-02T03:04:05Z", "namespace": "ns", "a-b.c/d": "odd", "o": {}})
}

#[test]
fn rules_that_hold() {
    let rules = [
        "self.n == 3 && self.n % 2 == 1",
        "self.n > 2.5",
        "-self.n < 0 && !(self.n < 0)",
        "1 + 2 * 3 == 7",
        "(1 + 2) * 3 == 9",
        "7 / 2 == 3",
        "self.b ? self.n > 1 : false",
        "has(self.s) && !has(self.o.p)",
        "self.metadata.name == 'w' && self.kind == 'W'",
        "self.__namespace__ == 'ns'",
        "self.a__dash__b__dot__c__slash__d == 'odd'",
        "self.l.all(x, size(x) < 3)",
        "self.l.exists(x, x.startsWith('b'))",
        "self.l.exists_one(x, x == 'a')",
        "self.i.map(x, x * 2) == [6, 2, 4]",
        "self.i.map(x, x > 1, x * 2) == [6, 4]",
        "self.i.filter(x, x > 1) == [3, 2]",
        "'k' in self.m && !('q' in self.m)",
        "self.m['z.z'] == 'q' && self.m.k == 'y'",
        "self.m.all(k, self.m[k] != '')",
        "3 in self.i",
        "self.m.exists(k, v, v == 'q')",
        "self.i.all(i, v, v == self.i[i])",
        "self.m.transformList(k, v, v).size() == 2",
        "self.m.transformMap(k, v, v + k)['k'] == 'yk'",
        "self.set == ['y', 'x']",
        "self.set + ['x', 'z'] == ['x', 'y', 'z']",
        "self.pairs + self.pairs == self.pairs",
        "self.pairs.exists(p, p.k == 'b' && p.v == 2)",
        "type(self.port) == string && self.port == 'http'",
        "self.d > duration('1m') && self.d.getMinutes() == 1",
        "self.t < timestamp('2027-01-01T00:00:00Z') && self.t.getFullYear() == 2026",
        "self.t - duration('1h') < self.t",
        "self.s.contains('ell') && self.s.endsWith('lo')",
        "self.s.matches('^h.*o$')",
        "self.s.find('l+') == 'll'",
        "'a1b22'.findAll('[0-9]+') == ['1', '22']",
        "self.s.upperAscii() == 'HELLO'",
        "self.s.replace('l', 'L') == 'heLLo'",
        "'a,b'.split(',') == ['a', 'b']",
        "['a', 'b'].join('-') == 'a-b'",
        "self.s.substring(1, 3) == 'el'",
        "self.s.indexOf('l') == 2 && self.s.lastIndexOf('l') == 3",
        "'%s is %d'.format([self.s, self.n]) == 'hello is 3'",
        "' x '.trim() == 'x'",
        "self.s.charAt(0) == 'h'",
        "self.i.sum() == 6 && self.i.min() == 1 && self.i.max() == 3",
        "!self.i.isSorted()",
        "self.i.sort() == [1, 2, 3]",
        "self.pairs.sortBy(p, -p.v)[0].k == 'b'",
        "[1, 1, 2].distinct() == [1, 2]",
        "[[1], [2]].flatten() == [1, 2]",
        "lists.range(3) == [0, 1, 2]",
        "sets.contains([1, 2], [2])",
        "sets.equivalent([1, 2], [2, 1])",
        "quantity('1Gi').isGreaterThan(quantity('500Mi'))",
        "isQuantity('5k') && !isQuantity('x')",
        "quantity('2').add(quantity('1')).asInteger() == 3",
        "quantity('1500m').isInteger() == false",
        "isURL('https://x/y?q=1') && url('https://h:8/y').getPort() == '8'",
        "!isURL('x')",
        "url('https://h/y?a=1&a=2').getQuery()['a'] == ['1', '2']",
        "isIP('1.2.3.4') && !isIP('1.2.3')",
        "ip('::1').family() == 6 && ip('127.0.0.1').isLoopback()",
        "cidr('10.0.0.0/8').containsIP('10.1.2.3')",
        "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && cidr('10.1.2.3/8').masked().ip() == ip('10.0.0.0')",
        "semver('1.2.3').isLessThan(semver('1.10.0')) && !isSemver('1.2')",
        "semver('1.0.0-a').isLessThan(semver('1.0.0'))",
        "!format.dns1123Label().validate('ok').hasValue()",
        "format.named('uuid').value().validate('x').hasValue()",
        "optional.of(1).hasValue() && !optional.none().hasValue()",
        "self.?o.?p.orValue(7) == 7",
        "self.m[?'none'].orValue('d') == 'd'",
        "optional.of(2).optMap(x, x + 1).value() == 3",
        "optional.none().or(optional.of(1)).value() == 1",
        "[?optional.of(1), ?optional.none()] == [1]",
        "string(1) == '1' && int('2') == 2 && double('1.5') == 1.5",
        "bytes('a') == b'a'",
        "size('ß') == 1",
        "self.x == 1.0",
        "0x10 == 16 && 1u == uint(1) && 1e3 == 1000.0",
        "'''a'b''' == \"a'b\" && r'\\d' == '\\\\d'",
        "{'a': 1}.a == 1",
        "[1, 2][0] == 1",
        "true || self.o.p > 1",
        "self.o.p > 1 || true",
        "!(false && self.o.p > 1)",
        "dyn(1) == 1",
        "cidr('::/0').prefixLength() == 0",
        "'x'.size() == 1",
        "self.t.getHours('Asia/Tokyo') == 12 && self.t.getHours('-01:00') == 2",
        "duration('1h30m') == duration('90m')",
    ];
    for rule in rules {
        let program =
            Program::compile(rule, &scope(), Wanted::Bool).unwrap_or_else(|e| panic!("{rule}: {e}"));
        let object = object();
        let outcome = program.holds(&object, None, 1_000_000);
        assert_eq!(outcome.value, Ok(true), "{rule}");
        assert!(outcome.cost <= program.max_cost, "{rule}: {} > {}", outcome.cost, program.max_cost);
    }
}

#[test]
fn rules_that_have_no_answer() {
    let cases = [
        ("self.o.p > 1", "no such key: p"),
        ("self.l[5] == 'x'", "index out of bounds: 5"),
        ("self.n / 0 == 1", "division by zero"),
        ("self.m['none'] == 'x'", "no such key: none"),
        ("self.port > 1", "no such overload"),
        ("9223372036854775807 + self.n > 0", "integer overflow"),
        ("optional.none().value() == 1", "optional.none() dereference"),
    ];
    for (rule, why) in cases {
        let program =
            Program::compile(rule, &scope(), Wanted::Bool).unwrap_or_else(|e| panic!("{rule}: {e}"));
        let value = program.holds(&object(), None, 1_000_000).value;
        assert_eq!(value, Err(EvalError::Failed(why.to_owned())), "{rule}");
    }
}

#[test]
fn rules_that_are_refused() {
    let cases = [
        (
            "self.y > 1",
            "compilation failed: ERROR: <input>:1:5: undefined field 'y'\n | self.y > 1\n | ....^",
        ),
        (
            "self.n +",
            "compilation failed: ERROR: <input>:1:9: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', \
             'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n | self.n +\n | ........^",
        ),
        ("self.n", "cel expression must evaluate to a bool"),
        (
            "self.n == 'x'",
            "compilation failed: ERROR: <input>:1:8: found no matching overload for '_==_' applied to '(int, string)'\n \
             | self.n == 'x'\n | .......^",
        ),
        (
            "foo(1) && bar",
            "compilation failed: ERROR: <input>:1:4: undeclared reference to 'foo' (in container '')\n | foo(1) && bar\n | ...^\n\
             ERROR: <input>:1:11: undeclared reference to 'bar' (in container '')\n | foo(1) && bar\n | ..........^",
        ),
        (
            "self.s.startsWith(1)",
            "compilation failed: ERROR: <input>:1:18: found no matching overload for 'startsWith' applied to 'string.(int)'\n \
             | self.s.startsWith(1)\n | .................^",
        ),
        (
            "self.n.x == 1",
            "compilation failed: ERROR: <input>:1:7: type 'int' does not support field selection\n | self.n.x == 1\n | ......^",
        ),
        (
            "[1, 'a'].size() == 2",
            "compilation failed: ERROR: <input>:1:5: expected type 'int' but found 'string'\n | [1, 'a'].size() == 2\n | ....^",
        ),
        (
            "self.n.all(x, true)",
            "compilation failed: ERROR: <input>:1:5: expression of type 'int' cannot be range of a comprehension (must be list, \
             map, or dynamic)\n | self.n.all(x, true)\n | ....^",
        ),
        (
            "self.s.matches('[')",
            "compilation failed: ERROR: <input>:1:16: invalid matches argument\n | self.s.matches('[')\n | ...............^",
        ),
    ];
    for (rule, why) in cases {
        let error = Program::compile(rule, &scope(), Wanted::Bool).err().map(|e| e.0).unwrap_or_default();
        assert_eq!(error, why, "{rule}");
    }
}

#[test]
fn what_is_old_is_seen() {
    let decl = Decl::of(&json!({"type": "integer"}), false).unwrap();
    let plain = Program::compile("self >= oldSelf", &Scope::new(decl.clone(), false), Wanted::Bool).unwrap();
    assert!(plain.uses_old);
    assert_eq!(plain.holds(&json!(1), Some(&json!(2)), 1000).value, Ok(false));
    let rule = "!oldSelf.hasValue() || self >= oldSelf.value()";
    let optional = Program::compile(rule, &Scope::new(decl, true), Wanted::Bool).unwrap();
    for (old, holds) in [(None, true), (Some(json!(2)), false), (Some(json!(0)), true)] {
        assert_eq!(optional.holds(&json!(1), old.as_ref(), 1000).value, Ok(holds));
    }
}

#[test]
fn costs_are_bounded() {
    let free = Decl::of(
        &json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "string"}}}}),
        false,
    );
    let scope = Scope::new(free.unwrap(), false);
    let rule = "self.l.all(a, self.l.all(b, self.l.all(c, a != b || b != c)))";
    let program = Program::compile(rule, &scope, Wanted::Bool).unwrap();
    assert!(program.max_cost > 100 * 10_000_000, "{}", program.max_cost);
    let items: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
    let outcome = program.holds(&json!({"l": items}), None, 1_000_000);
    assert!(matches!(outcome.value, Err(EvalError::TooExpensive) | Ok(false)), "{outcome:?}");
    assert!(outcome.cost <= 1_000_100);
}

#[test]
fn sources_that_would_take_the_stack_are_refused() {
    let hostile = [
        format!("1{} > 0", "+1".repeat(40_000)),
        format!("{}true{}", "(".repeat(40_000), ")".repeat(40_000)),
        format!("{}true", "!".repeat(40_000)),
        format!("self{}", ".o".repeat(40_000)),
        format!("{}1{} == []", "[".repeat(40_000), "]".repeat(40_000)),
        "1".repeat(200_000),
    ];
    for source in hostile {
        let outcome = Program::compile(&source, &scope(), Wanted::Bool);
        assert!(outcome.is_err() || source.starts_with('!'), "{}", &source[..20]);
    }
    assert!(Program::compile(&format!("1{} > 0", "+1".repeat(150)), &scope(), Wanted::Bool).is_ok());
}

#[test]
fn conditions_see_what_has_no_schema() {
    let text = Decl::of(&json!({"type": "string"}), false).unwrap();
    let request = Decl::of_fields([("namespace", text.clone()), ("operation", text)]);
    let scope = Scope::of([("object", Decl::any()), ("oldObject", Decl::any()), ("request", request)]);
    let object = json!({"metadata": {"name": "a", "namespace": "n", "labels": {"x.y/z": "1"}}, "n": 3, "f": 0.5, "l": [1, {"k": "v"}]});
    let request = json!({"namespace": "n", "operation": "CREATE", "more": 1});
    let judge = |source: &str| {
        let program = Program::compile(source, &scope, Wanted::Condition);
        program.map(|program| program.holds_for(&[&object, &Json::Null, &request], 1_000_000).value)
    };
    for holds in [
        "object.metadata.namespace == request.namespace",
        "request.operation == 'CREATE' && oldObject == null",
        "has(object.metadata.labels) && object.metadata.labels['x.y/z'] == '1'",
        "!has(object.metadata.annotations) && object.n == 3 && object.f == 0.5",
        "object.l.exists(item, item == 1) && object.l[1].k == 'v' && size(object.l) == 2",
    ] {
        assert_eq!(judge(holds), Ok(Ok(true)), "{holds}");
    }
    assert_eq!(judge("object.n > 3"), Ok(Ok(false)));
    assert_eq!(judge("object.none == 1"), Ok(Err(EvalError::Failed("no such key: none".to_owned()))));
    assert_eq!(judge("object.metadata.name"), Err(CompileError("must evaluate to bool".to_owned())));
    assert!(judge("authorizer == null").unwrap_err().0.contains("undeclared reference to 'authorizer'"));
    assert!(judge("request.more == 1").unwrap_err().0.contains("undefined field 'more'"));
}
