use karmada_meta::path::aggregate;
use serde_json::json;

use super::*;

/// The errors of `spec` under a schema whose `spec` has the given properties.
fn errors(properties: &Value, spec: &Value, old: Option<&Value>) -> String {
    let schema = Schema::compile(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": properties}}}));
    let object = json!({"spec": spec});
    let old = old.map(|old| json!({"spec": old}));
    let mut errors = validate(&object, old.as_ref(), &schema, &Path::root());
    errors.extend(duplicates(&object, &schema, &Path::root()));
    if errors.is_empty() { String::new() } else { aggregate(&errors) }
}

#[test]
fn messages_are_those_of_kubernetes() {
    let types = json!({"s": {"type": "string"}, "i": {"type": "integer"}, "b": {"type": "boolean"}, "n": {"type": "number"},
        "o": {"type": "object"}, "a": {"type": "array", "items": {"type": "string"}}});
    let bounds = json!({"i": {"type": "integer", "minimum": 1, "maximum": 5},
        "x": {"type": "number", "exclusiveMinimum": true, "minimum": 0}, "m": {"type": "integer", "multipleOf": 3},
        "f": {"type": "integer", "format": "int32"}, "d": {"type": "string", "format": "date-time"}});
    let text = json!({"s": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 4},
        "e": {"type": "string", "enum": ["a", "b"]}, "n": {"type": "string", "nullable": true}, "q": {"type": "string"}});
    let logic = json!({
        "a": {"type": "object", "properties": {"x": {"type": "string"}, "y": {"type": "string"}},
              "oneOf": [{"required": ["x"]}, {"required": ["y"]}]},
        "b": {"type": "integer", "not": {"enum": [3]}},
        "c": {"type": "string", "allOf": [{"minLength": 2}, {"maxLength": 3}]},
        "d": {"type": "string", "anyOf": [{"pattern": "^a"}, {"pattern": "b$"}]},
        "q": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}});
    let lists = json!({
        "s": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "m": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"], "maxItems": 2,
              "items": {"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]}},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 1}});
    let cases = [
        (
            &types,
            json!({"s": 1}),
            r#"spec.s: Invalid value: "integer": spec.s in body must be of type string: "integer""#,
        ),
        (
            &types,
            json!({"i": "1"}),
            r#"spec.i: Invalid value: "string": spec.i in body must be of type integer: "string""#,
        ),
        (
            &types,
            json!({"i": 1.5}),
            r#"[spec.i: Invalid value: "number": spec.i in body must be of type integer: "number", <nil>: Invalid value: "": Checked value must be of type integer (default format) in spec.i]"#,
        ),
        (
            &types,
            json!({"o": []}),
            r#"spec.o: Invalid value: "array": spec.o in body must be of type object: "array""#,
        ),
        (
            &types,
            json!({"a": [1]}),
            r#"spec.a[0]: Invalid value: "integer": spec.a[0] in body must be of type string: "integer""#,
        ),
        (&types, json!({"s": "x", "i": 1.0, "b": true, "n": 1, "o": {}, "a": ["x"]}), ""),
        (
            &bounds,
            json!({"i": 0}),
            "spec.i: Invalid value: 0: spec.i in body should be greater than or equal to 1",
        ),
        (
            &bounds,
            json!({"i": 6}),
            "spec.i: Invalid value: 6: spec.i in body should be less than or equal to 5",
        ),
        (&bounds, json!({"x": 0}), "spec.x: Invalid value: 0: spec.x in body should be greater than 0"),
        (&bounds, json!({"m": 4}), "spec.m: Invalid value: 4: spec.m in body should be a multiple of 3"),
        (
            &bounds,
            json!({"f": 5_000_000_000_u64}),
            r#"<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.f"#,
        ),
        (
            &bounds,
            json!({"d": "yesterday"}),
            r#"spec.d: Invalid value: "yesterday": spec.d in body must be of type date-time: "yesterday""#,
        ),
        (&text, json!({"s": "A1"}), "spec.s: Invalid value: \"A1\": spec.s in body should match '^[a-z]+$'"),
        (
            &text,
            json!({"s": "a"}),
            r#"spec.s: Invalid value: "a": spec.s in body should be at least 2 chars long"#,
        ),
        (&text, json!({"s": "abcde"}), "spec.s: Too long: may not be more than 4 bytes"),
        (&text, json!({"e": "c"}), r#"spec.e: Unsupported value: "c": supported values: "a", "b""#),
        (&text, json!({"n": null}), ""),
        (
            &text,
            json!({"q": null}),
            r#"spec.q: Invalid value: "null": spec.q in body must be of type string: "null""#,
        ),
        (
            &logic,
            json!({"a": {}}),
            r#"[<nil>: Invalid value: "": "spec.a" must validate one and only one schema (oneOf). Found none valid, spec.a.x: Required value]"#,
        ),
        (
            &logic,
            json!({"a": {"x": "1", "y": "2"}}),
            r#"<nil>: Invalid value: "": "spec.a" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
        ),
        (&logic, json!({"b": 3}), r#"<nil>: Invalid value: "": "spec.b" must not validate the schema (not)"#),
        (
            &logic,
            json!({"c": "q"}),
            r#"[spec.c: Invalid value: "q": spec.c in body should be at least 2 chars long, <nil>: Invalid value: "": "spec.c" must validate all the schemas (allOf)]"#,
        ),
        (
            &logic,
            json!({"d": "zz"}),
            r#"[<nil>: Invalid value: "": "spec.d" must validate at least one schema (anyOf), spec.d: Invalid value: "zz": spec.d in body should match '^a']"#,
        ),
        (&logic, json!({"q": "1", "a": {"x": "1"}, "b": 2, "c": "qq", "d": "zb"}), ""),
        (&logic, json!({"q": 5}), ""),
        (
            &logic,
            json!({"q": true}),
            r#"spec.q: Invalid value: "boolean": spec.q in body must be of type integer,string: "boolean""#,
        ),
        (&lists, json!({"s": ["a", "a"]}), r#"spec.s[1]: Duplicate value: "a""#),
        (&lists, json!({"m": [{"n": "x"}, {"n": "x"}]}), r#"spec.m[1]: Duplicate value: {"n":"x"}"#),
        (&lists, json!({"m": [{}]}), "spec.m[0].n: Required value"),
        (
            &lists,
            json!({"m": [{"n": "a"}, {"n": "b"}, {"n": "c"}]}),
            "spec.m: Too many: 3: must have at most 2 items",
        ),
        (
            &lists,
            json!({"map": {"a": "x"}}),
            r#"spec.map.a: Invalid value: "string": spec.map.a in body must be of type integer: "string""#,
        ),
    ];
    for (properties, spec, expected) in cases {
        assert_eq!(errors(properties, &spec, None), expected, "{spec}");
    }
}

#[test]
fn what_does_not_change_is_let_pass() {
    let properties = json!({"s": {"type": "string", "pattern": "^good"}, "n": {"type": "integer"},
        "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
              "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "string", "enum": ["x"]}}}},
        "a": {"type": "array", "items": {"type": "string", "enum": ["x"]}}});
    let bad = json!({"s": "bad", "n": 1, "l": [{"k": "1", "v": "y"}], "a": ["y"]});
    assert_ne!(errors(&properties, &bad, None), "");
    let cases = [
        (json!({"s": "bad", "n": 2, "l": [{"k": "1", "v": "y"}], "a": ["y"]}), ""),
        (json!({"s": "bad2"}), "spec.s: Invalid value: \"bad2\": spec.s in body should match '^good'"),
        (json!({"l": [{"k": "2", "v": "x"}, {"k": "1", "v": "y"}]}), ""),
        (
            json!({"l": [{"k": "2", "v": "y"}]}),
            r#"spec.l[0].v: Unsupported value: "y": supported values: "x""#,
        ),
        (json!({"a": ["y", "x"]}), r#"spec.a[0]: Unsupported value: "y": supported values: "x""#),
    ];
    for (spec, expected) in cases {
        assert_eq!(errors(&properties, &spec, Some(&bad)), expected, "{spec}");
    }
}

#[test]
fn errors_stand_below_their_prefix() {
    let schema = Schema::compile(&json!({"type": "object", "properties": {"p": {"type": "string"}}}));
    let cases = [
        (
            json!({"p": 5}),
            r#"status.p: Invalid value: "integer": p in body must be of type string: "integer""#,
        ),
        (json!("x"), r#"status: Invalid value: "string":  in body must be of type object: "string""#),
    ];
    for (value, expected) in cases {
        assert_eq!(aggregate(&validate(&value, None, &schema, &Path::new("status"))), expected);
    }
}
