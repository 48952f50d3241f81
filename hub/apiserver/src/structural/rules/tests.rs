use serde_json::json;

use super::*;

#[allow(clippy::needless_pass_by_value, reason = "cases are literals")]
fn judge(spec: &Value, new: Value, old: Option<Value>) -> (Vec<String>, Vec<String>) {
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let rules = Rules::compile(&schema).unwrap();
    let (new, old) = (json!({"spec": new}), old.map(|old| json!({"spec": old})));
    let verdict = rules.judge(&new, old.as_ref());
    (verdict.errors.iter().map(ToString::to_string).collect(), verdict.warnings)
}

#[test]
fn what_rules_say() {
    let object = |rule: Value| {
        json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
               "x-kubernetes-validations": [rule]})
    };
    let cases = [
        (object(json!({"rule": "self.a > 1", "message": "too small"})), json!({"a": 2}), ""),
        (
            object(json!({"rule": "self.a > 1", "message": "too small"})),
            json!({"a": 1}),
            "spec: Invalid value: too small",
        ),
        (
            object(json!({"rule": "self.a > 1"})),
            json!({"a": 1}),
            "spec: Invalid value: failed rule: self.a > 1",
        ),
        (
            object(
                json!({"rule": "self.a > 1", "fieldPath": ".a", "reason": "FieldValueForbidden", "message": "no"}),
            ),
            json!({"a": 1}),
            "spec.a: Forbidden: no",
        ),
        (
            object(json!({"rule": "self.a > 1", "messageExpression": "'is ' + string(self.a)"})),
            json!({"a": 1}),
            "spec: Invalid value: is 1",
        ),
        (
            object(json!({"rule": "self.a > 1", "messageExpression": "self.b", "message": "plain"})),
            json!({"a": 1}),
            "spec: Invalid value: plain",
        ),
        (
            object(json!({"rule": "self.a > 1"})),
            json!({}),
            "spec: Invalid value: no such key: a evaluating rule: self.a > 1",
        ),
        (
            json!({"type": "array", "items": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0"}]}}),
            json!([1, -1]),
            "spec[1]: Invalid value: -1: failed rule: self > 0",
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string",
                "x-kubernetes-validations": [{"rule": "size(self) < 3"}]}}),
            json!({"k": "long"}),
            r#"spec[k]: Invalid value: "long": failed rule: size(self) < 3"#,
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "integer"}},
                "allOf": [{"x-kubernetes-validations": [{"rule": "self.a > 1", "message": "too small"}]}]}),
            json!({"a": 1}),
            "spec: Invalid value: too small",
        ),
    ];
    for (spec, value, expected) in cases {
        let (errors, _) = judge(&spec, value, None);
        assert_eq!(errors.join("; "), expected, "{spec}");
    }
}

#[test]
fn what_was_wrong_before_is_let_pass() {
    let spec = json!({"type": "object", "properties": {"n": {"type": "integer"},
        "a": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 1", "message": "too small"}]}}});
    let (errors, warnings) = judge(&spec, json!({"a": 1, "n": 2}), Some(json!({"a": 1})));
    assert_eq!(
        (errors.join(""), warnings.join("")),
        (String::new(), "spec.a: Invalid value: 1: too small".into())
    );
    let (errors, _) = judge(&spec, json!({"a": 0}), Some(json!({"a": 1})));
    assert_eq!(errors, ["spec.a: Invalid value: 0: too small"]);
    // What changes may not change is no matter of what was before.
    let fixed = json!({"type": "object", "properties": {"a": {"type": "integer",
        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed"}]}}});
    assert_eq!(judge(&fixed, json!({"a": 2}), Some(json!({"a": 1}))).0, ["spec.a: Invalid value: 2: fixed"]);
    assert_eq!(judge(&fixed, json!({"a": 2}), Some(json!({}))).0, Vec::<String>::new());
    assert_eq!(judge(&fixed, json!({"a": 2}), None).0, Vec::<String>::new());
}

#[test]
fn elements_are_told_apart_by_their_keys() {
    let spec = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer",
            "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "only up"}]}}}});
    let old = json!([{"k": "a", "v": 1}, {"k": "b", "v": 5}]);
    let (errors, _) =
        judge(&spec, json!([{"k": "b", "v": 4}, {"k": "a", "v": 2}, {"k": "c", "v": 0}]), Some(old));
    assert_eq!(errors, ["spec[0].v: Invalid value: 4: only up"]);
}

#[test]
fn a_budget_is_kept_to() {
    let spec = json!({"type": "array", "maxItems": 100_000, "items": {"type": "integer"}, "x-kubernetes-validations": [
        {"rule": "self.all(a, self.exists(b, a + 1 == b) || a == -1)", "message": "no gaps"},
        {"rule": "size(self) < 5", "message": "few"}]});
    let items: Vec<i64> = (0..5000).collect();
    let (errors, _) = judge(&spec, json!(items), None);
    assert_eq!(
        errors,
        [
            "spec: Invalid value: 'operation cancelled: actual cost limit exceeded': no further validation rules will be run due \
          to call cost exceeds limit for rule: no gaps"
        ]
    );
}

#[test]
fn paths_of_rules_lead_to_fields() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "object", "properties": {"x.y": {"type": "string"}}},
        "m": {"type": "object", "additionalProperties": {"type": "string"}}}});
    let cases = [
        (".a", Ok("a")),
        (".a['x.y']", Ok("a.x.y")),
        (".m.k", Ok("m[k]")),
        (".b", Err("does not refer to a valid field")),
        ("a", Err("expected [ or . but got: a")),
        (".a[0]", Err("expected single quoted string but got 0")),
        (".a['x'", Err("unexpected end of JSON path")),
    ];
    for (path, expected) in cases {
        let found = field_path(path, &schema).map(|(path, _)| path.to_string());
        assert_eq!(found, expected.map(str::to_owned).map_err(str::to_owned), "{path}");
    }
}
