//! Awkward bodies of any size, by the way in that they are awkward for.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::counting::{Call, JSON, Row, down, growth, list, row};

pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";
pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

fn config_map(meta: &str, rest: &str) -> String {
    format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a"{meta}}}{rest}}}"#)
}

fn create_map(meta: &str, rest: &str) -> Vec<Call> {
    vec![Call::new("POST", MAPS, JSON, config_map(meta, rest))]
}

fn thing(name: &str, spec: &str) -> String {
    format!(
        r#"{{"apiVersion":"example.com/v1","kind":"Thing","metadata":{{"name":"{name}"}},"spec":{{{spec}}}}}"#
    )
}

fn create_thing(spec: &str) -> Vec<Call> {
    vec![Call::new("POST", THINGS, JSON, thing("a", spec))]
}

fn update_thing(before: &str, after: &str) -> Vec<Call> {
    vec![
        Call::new("POST", THINGS, JSON, thing("a", before)),
        Call::new("PUT", format!("{THINGS}/a?fieldManager=other"), JSON, {
            // Custom resources insist on a version; an update by a merge patch replaces the same.
            thing("a", after)
        }),
    ]
    .into_iter()
    .enumerate()
    .map(
        |(i, call)| {
            if i == 1 {
                Call { method: "PATCH", media: "application/merge-patch+json", ..call }
            } else {
                call
            }
        },
    )
    .collect()
}

fn owner(i: usize, more: &str) -> String {
    format!(r#"{{"apiVersion":"v1","kind":"A","name":"a","uid":"{i:07}"{more}}}"#)
}

fn deployment(meta: &str, pod: &str) -> String {
    format!(
        r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"a"{meta}}},"spec":{{"selector":{{"matchLabels":
        {{"a":"b"}}}},"template":{{"metadata":{{"labels":{{"a":"b"}}}},"spec":{{{pod}}}}}}}}}"#
    )
}

fn container(i: usize) -> String {
    format!(r#"{{"name":"c{:07}","image":"i"}}"#, down(i))
}

fn patch(media: &'static str, path: &str, before: Call, body: impl Into<Vec<u8>>) -> Vec<Call> {
    vec![before, Call::new("PATCH", path, media, body)]
}

fn definition(schema: &Value, more: &Value) -> Vec<Call> {
    let mut names =
        json!({"plural": "others", "singular": "other", "kind": "Other", "listKind": "OtherList"});
    if let (Value::Object(names), Some(Value::Object(more))) = (&mut names, more.get("names")) {
        names.extend(more.clone());
    }
    let mut version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    if let (Value::Object(version), Some(Value::Object(more))) = (&mut version, more.get("version")) {
        version.extend(more.clone());
    }
    let whole = json!({"metadata": {"name": "others.example.com"}, "spec": {"group": "example.com",
        "scope": "Namespaced", "names": names, "versions": [version]}});
    vec![Call::json("POST", DEFINITIONS, &whole)]
}

fn in_spec(schema: &Value) -> Value {
    json!({"type": "object", "properties": {"spec": schema}})
}

fn names(bytes: usize, each: usize) -> Vec<String> {
    (0..bytes / each).map(|i| format!("p{:07}", down(i))).collect()
}

fn message(number: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = content.len();
    while length >= 0x80 {
        out.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(content);
    out
}

fn envelope(kind: &str, raw: &[u8]) -> Vec<u8> {
    let head = [message(1, b"v1"), message(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), message(1, &head), message(2, raw)].concat()
}

fn managed(bytes: usize, entry: impl Fn(usize) -> String) -> Vec<Call> {
    let entries = list(bytes, 150, |i| {
        format!(
            r#"{{"manager":"m{i}","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{}}}"#,
            entry(i)
        )
    });
    vec![
        Call::new("POST", MAPS, JSON, config_map("", r#","data":{"k":"v"}"#)),
        Call::new(
            "PUT",
            format!("{MAPS}/a"),
            JSON,
            config_map(&format!(r#","managedFields":[{entries}]"#), r#","data":{"k":"w"}"#),
        ),
    ]
}

pub(crate) const ROWS: &[Row] = &[
    // Metadata.
    row("create: owners", 201, |n| {
        let owners = list(n, 60, |i| owner(down(i), ""));
        create_map(&format!(r#","ownerReferences":[{owners}]"#), "")
    }),
    growth("create: owners twice", 201, |n| {
        let owners = list(n, 60, |i| owner(i / 2, ""));
        create_map(&format!(r#","ownerReferences":[{owners}]"#), "")
    }),
    growth("create: controllers", 422, |n| {
        let owners = list(n, 80, |i| owner(i, r#","controller":true"#));
        create_map(&format!(r#","ownerReferences":[{owners}]"#), "")
    }),
    row("create: annotations", 0, |n| {
        let keys = list(n, 15, |i| format!(r#""a{:07}":"""#, down(i)));
        create_map(&format!(r#","annotations":{{{keys}}}"#), "")
    }),
    growth("create: wrong labels", 422, |n| {
        let keys = list(n, 15, |i| format!(r#""-{:07}":"-""#, down(i)));
        create_map(&format!(r#","labels":{{{keys}}}"#), "")
    }),
    growth("create: finalizers", 422, |n| {
        let names = list(n, 12, |i| format!(r#""f{:07}""#, down(i)));
        create_map(&format!(r#","finalizers":[{names}]"#), "")
    }),
    growth("update: finalizers while deleting", 422, |n| {
        let names = |from: usize| list(n, 25, |i| format!(r#""example.com/f{:07}""#, down(i + from)));
        vec![
            Call::new("POST", MAPS, JSON, config_map(&format!(r#","finalizers":[{}]"#, names(0)), "")),
            Call::new("DELETE", format!("{MAPS}/a"), JSON, Vec::new()),
            Call::new(
                "PUT",
                format!("{MAPS}/a"),
                JSON,
                config_map(&format!(r#","finalizers":[{}]"#, names(1_000_000)), ""),
            ),
        ]
    }),
    // Fields.
    row("create: keys", 201, |n| {
        let keys = list(n, 14, |i| format!(r#""{:07}":"""#, down(i)));
        create_map("", &format!(r#","data":{{{keys}}}"#))
    }),
    row("create: wrong keys", 422, |n| {
        let keys = list(n, 14, |i| format!(r#""!{:07}":"""#, down(i)));
        create_map("", &format!(r#","data":{{{keys}}}"#))
    }),
    growth("create: unknown fields", 201, |n| {
        let keys = list(n, 12, |i| format!(r#""x{i:07}":1"#));
        create_map("", &format!(",{keys}"))
    }),
    growth("create: the same field", 201, |n| {
        let keys = list(n, 8, |_| r#""xyz":1"#.to_owned());
        create_map("", &format!(",{keys}"))
    }),
    growth("create: unknown below a long name", 201, |n| {
        let (name, keys) = ("k".repeat(n / 3), list(n / 2, 12, |i| format!(r#""x{i:07}":1"#)));
        create_thing(&format!(r#""{name}":{{{keys}}}"#))
    }),
    growth("create: the same below a long name", 201, |n| {
        let (name, keys) = ("k".repeat(n / 3), list(n / 2, 8, |_| r#""xyz":1"#.to_owned()));
        create_thing(&format!(r#""free":{{"{name}":{{{keys}}}}}"#))
    }),
    growth("create: containers", 201, |n| {
        let containers = list(n, 32, container);
        vec![Call::new("POST", DEPLOYMENTS, JSON, deployment("", &format!(r#""containers":[{containers}]"#)))]
    }),
    growth("create: variables", 201, |n| {
        let variables = list(n, 26, |i| format!(r#"{{"name":"v{:07}","value":""}}"#, down(i / 2)));
        let pod = format!(r#""containers":[{{"name":"a","image":"b","env":[{variables}]}}]"#);
        vec![Call::new("POST", DEPLOYMENTS, JSON, deployment("", &pod))]
    }),
    growth("create: volumes", 201, |n| {
        let volumes = list(n / 2, 35, |i| format!(r#"{{"name":"v{:07}","emptyDir":{{}}}}"#, down(i)));
        let mounts = list(n / 2, 45, |i| format!(r#"{{"name":"v{:07}","mountPath":"/{i}"}}"#, down(i)));
        let pod = format!(
            r#""volumes":[{volumes}],"containers":[{{"name":"a","image":"b","volumeMounts":[{mounts}]}}]"#
        );
        vec![Call::new("POST", DEPLOYMENTS, JSON, deployment("", &pod))]
    }),
    growth("create: ports", 201, |n| {
        let ports = list(n, 30, |i| format!(r#"{{"name":"p{:07}","port":{}}}"#, down(i), i % 60_000 + 1));
        let body = format!(
            r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"a"}},"spec":{{"ports":[{ports}]}}}}"#
        );
        vec![Call::new("POST", "/api/v1/namespaces/default/services", JSON, body)]
    }),
    growth("create: webhooks", 422, |n| {
        let hooks = list(n, 90, |i| {
            format!(
                r#"{{"name":"h{i:07}.example.com","sideEffects":"None","admissionReviewVersions":["v1"]}}"#
            )
        });
        let body = format!(r#"{{"metadata":{{"name":"a"}},"webhooks":[{hooks}]}}"#);
        vec![Call::new(
            "POST",
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            JSON,
            body,
        )]
    }),
    growth("create: rules of a webhook", 422, |n| {
        let resources = list(n, 13, |i| format!(r#""r{i:07}/*""#));
        let body = format!(
            r#"{{"metadata":{{"name":"a"}},"webhooks":[{{"name":"h.example.com","rules":[{{"operations":["*"],"apiGroups":["*"],
            "apiVersions":["*"],"resources":[{resources}]}}]}}]}}"#
        );
        vec![Call::new(
            "POST",
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            JSON,
            body,
        )]
    }),
    growth("create: claims", 422, |n| {
        let claims = list(n, 35, |i| format!(r#"{{"metadata":{{"name":"v{:07}"}}}}"#, down(i)));
        let body = format!(
            r#"{{"metadata":{{"name":"a"}},"spec":{{"serviceName":"s","selector":{{"matchLabels":{{"a":"b"}}}},"template":
            {{"metadata":{{"labels":{{"a":"c"}}}}}},"volumeClaimTemplates":[{claims}]}}}}"#
        );
        vec![Call::new("POST", "/apis/apps/v1/namespaces/default/statefulsets", JSON, body)]
    }),
    // Custom resources.
    row("create: a custom map", 201, |n| {
        create_thing(&format!(r#""map":{{{}}}"#, list(n, 12, |i| format!(r#""{:07}":1"#, down(i)))))
    }),
    growth("create: a custom map below a long name", 201, |n| {
        let (name, keys) = ("k".repeat(n / 3), list(n / 2, 12, |i| format!(r#""{:07}":1"#, down(i))));
        create_thing(&format!(r#""maps":{{"{name}":{{{keys}}}}}"#))
    }),
    growth("create: wrong values below a long name", 422, |n| {
        let (name, keys) = ("k".repeat(n / 3), list(n / 2, 12, |i| format!(r#""{:07}":"""#, down(i))));
        create_thing(&format!(r#""maps":{{"{name}":{{{keys}}}}}"#))
    }),
    row("create: a custom set", 201, |n| {
        create_thing(&format!(r#""set":[{}]"#, list(n, 11, |i| format!(r#""s{:07}""#, down(i)))))
    }),
    growth("create: a custom set, twice", 422, |n| {
        create_thing(&format!(r#""set":[{}]"#, list(n, 11, |i| format!(r#""s{:07}""#, down(i / 2)))))
    }),
    row("create: a custom list", 201, |n| {
        create_thing(&format!(r#""list":[{}]"#, list(n, 20, |i| format!(r#"{{"name":"s{:07}"}}"#, down(i)))))
    }),
    growth("create: unknown fields of a thing", 201, |n| {
        create_thing(&list(n, 12, |i| format!(r#""x{i:07}":1"#)))
    }),
    growth("create: nulls of a thing", 201, |n| {
        create_thing(&format!(r#""map":{{{}}}"#, list(n, 15, |i| format!(r#""{i:07}":null"#))))
    }),
    growth("update: a custom list", 200, |n| {
        let items = |v: usize| list(n, 26, |i| format!(r#"{{"name":"s{:07}","n":{v}}}"#, down(i)));
        update_thing(&format!(r#""list":[{}]"#, items(1)), &format!(r#""list":[{}]"#, items(2)))
    }),
    growth("update: all other keys", 200, |n| {
        let keys = |v: usize| list(n, 24, |i| format!(r#""{v}{:07}":1,"{v}{:07}x":2"#, down(i), down(i)));
        update_thing(&format!(r#""map":{{{}}}"#, keys(1)), &format!(r#""map":{{{}}}"#, keys(2)))
    }),
    // Definitions.
    growth("definition: required properties", 201, |n| {
        let names = names(n, 45);
        let properties: serde_json::Map<String, Value> =
            names.iter().map(|name| (name.clone(), json!({"type": "string"}))).collect();
        definition(
            &in_spec(&json!({"type": "object", "required": names, "properties": properties})),
            &json!({}),
        )
    }),
    growth("definition: rules beside many properties", 201, |n| {
        let names = names(n, 90);
        let properties: serde_json::Map<String, Value> =
            names.iter().map(|name| (name.clone(), json!({"type": "string"}))).collect();
        let rules: Vec<Value> =
            names.iter().map(|name| json!({"rule": format!("self.{name} != ''")})).collect();
        let spec = json!({"type": "object", "properties": properties, "x-kubernetes-validations": rules});
        definition(&in_spec(&spec), &json!({}))
    }),
    growth("definition: keys of a list", 422, |n| {
        let names = names(n, 60);
        let properties: serde_json::Map<String, Value> =
            names.iter().map(|name| (name.clone(), json!({"type": "string"}))).collect();
        let mut keys = names.clone();
        keys.extend(names.iter().take(1).cloned());
        let items = json!({"type": "object", "required": names, "properties": properties});
        let list = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys, "items": items});
        definition(&in_spec(&list), &json!({}))
    }),
    growth("definition: wrong keys of a list", 422, |n| {
        let items = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        let list = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": names(n, 11), "items": items});
        definition(&in_spec(&list), &json!({}))
    }),
    growth("definition: patterns", 422, |n| {
        let pattern = "(.{100}){10}";
        let properties: serde_json::Map<String, Value> = names(n, 60)
            .into_iter()
            .map(|name| (name, json!({"type": "string", "pattern": pattern})))
            .collect();
        definition(&in_spec(&json!({"type": "object", "properties": properties})), &json!({}))
    }),
    growth("definition: below a long name", 201, |n| {
        let properties: serde_json::Map<String, Value> =
            names(n / 2, 30).into_iter().map(|name| (name, json!({"type": "string"}))).collect();
        let long = "k".repeat(n / 3);
        let spec =
            json!({"type": "object", "properties": {long: {"type": "object", "properties": properties}}});
        definition(&in_spec(&spec), &json!({}))
    }),
    growth("definition: short names", 201, |n| {
        definition(&in_spec(&json!({"type": "object"})), &json!({"names": {"shortNames": names(n, 11)}}))
    }),
    growth("definition: columns", 201, |n| {
        let columns: Vec<Value> = names(n, 60)
            .into_iter()
            .map(|name| json!({"name": name, "type": "string", "jsonPath": ".spec.a"}))
            .collect();
        definition(
            &in_spec(&json!({"type": "object"})),
            &json!({"version": {"additionalPrinterColumns": columns}}),
        )
    }),
    growth("definition: defaults in defaults", 201, |n| {
        let mut schema = json!({"type": "object", "properties": names(n / 2, 30).into_iter()
            .map(|name| (name, json!({"type": "string", "default": "x"}))).collect::<serde_json::Map<_, _>>()});
        for _ in 0..20 {
            schema = json!({"type": "object", "default": {}, "properties": {"a": schema}});
        }
        definition(&in_spec(&schema), &json!({}))
    }),
    // Patches.
    growth("json patch: at the head of a list", 0, |n| {
        let before = Call::new(
            "POST",
            THINGS,
            JSON,
            thing("a", &format!(r#""atomic":[{}]"#, list(n, 2, |_| "1".to_owned()))),
        );
        let operations =
            list(9_000 * 45, 45, |_| r#"{"op":"add","path":"/spec/atomic/0","value":1}"#.to_owned());
        patch("application/json-patch+json", &format!("{THINGS}/a"), before, format!("[{operations}]"))
    }),
    growth("json patch: moving all of it", 413, |n| {
        let free = format!(r#""free":{{"a":[{}]}}"#, list(n, 2, |_| "1".to_owned()));
        let before = Call::new("POST", THINGS, JSON, thing("a", &free));
        let operations = list(4_500 * 100, 100, |_| {
            r#"{"op":"move","from":"/spec/free/a","path":"/spec/free/b"},{"op":"move","from":"/spec/free/b","path":"/spec/free/a"}"#.to_owned()
        });
        patch("application/json-patch+json", &format!("{THINGS}/a"), before, format!("[{operations}]"))
    }),
    growth("json patch: counted from the end", 422, |n| {
        let before = Call::new("POST", THINGS, JSON, thing("a", r#""atomic":[1]"#));
        let body = format!(r#"[{{"op":"remove","path":"{}"}}]"#, "/-1".repeat(n / 3));
        patch("application/json-patch+json", &format!("{THINGS}/a"), before, body)
    }),
    growth("merge patch: all keys away", 200, |n| {
        let keys = |value: &str| list(n, 24, |i| format!(r#""k{:07}":{value}"#, down(i)));
        let before =
            Call::new("POST", MAPS, JSON, config_map("", &format!(r#","data":{{{}}}"#, keys("\"\""))));
        let body = format!(r#"{{"data":{{{}}}}}"#, keys("null"));
        patch("application/merge-patch+json", &format!("{MAPS}/a"), before, body)
    }),
    growth("strategic: all keys away", 200, |n| {
        let keys = |value: &str| list(n, 24, |i| format!(r#""k{:07}":{value}"#, down(i)));
        let before =
            Call::new("POST", MAPS, JSON, config_map("", &format!(r#","data":{{{}}}"#, keys("\"\""))));
        let body = format!(r#"{{"data":{{{}}}}}"#, keys("null"));
        patch("application/strategic-merge-patch+json", &format!("{MAPS}/a"), before, body)
    }),
    growth("strategic: containers", 200, |n| {
        let before = list(n, 32, container);
        let before =
            Call::new("POST", DEPLOYMENTS, JSON, deployment("", &format!(r#""containers":[{before}]"#)));
        let changed = list(n, 32, |i| format!(r#"{{"name":"c{:07}","image":"j"}}"#, down(i)));
        let body = format!(r#"{{"spec":{{"template":{{"spec":{{"containers":[{changed}]}}}}}}}}"#);
        patch("application/strategic-merge-patch+json", &format!("{DEPLOYMENTS}/a"), before, body)
    }),
    growth("strategic: containers away", 200, |n| {
        let before = list(n, 45, container);
        let before =
            Call::new("POST", DEPLOYMENTS, JSON, deployment("", &format!(r#""containers":[{before}]"#)));
        let changed = list(n, 45, |i| format!(r#"{{"name":"c{:07}","$patch":"delete"}}"#, down(i + 1)));
        let body = format!(r#"{{"spec":{{"template":{{"spec":{{"containers":[{changed}]}}}}}}}}"#);
        patch("application/strategic-merge-patch+json", &format!("{DEPLOYMENTS}/a"), before, body)
    }),
    growth("strategic: an order", 200, |n| {
        let before = list(n, 32, container);
        let before =
            Call::new("POST", DEPLOYMENTS, JSON, deployment("", &format!(r#""containers":[{before}]"#)));
        let order = list(n, 32, |i| format!(r#"{{"name":"c{:07}"}}"#, 9_999_999 - n / 32 + i));
        let body =
            format!(r#"{{"spec":{{"template":{{"spec":{{"$setElementOrder/containers":[{order}]}}}}}}}}"#);
        patch("application/strategic-merge-patch+json", &format!("{DEPLOYMENTS}/a"), before, body)
    }),
    growth("strategic: finalizers", 200, |n| {
        let names = |from: usize| list(n, 25, |i| format!(r#""example.com/f{:07}""#, down(i + from)));
        let before =
            Call::new("POST", MAPS, JSON, config_map(&format!(r#","finalizers":[{}]"#, names(0)), ""));
        let body = format!(r#"{{"metadata":{{"finalizers":[{}]}}}}"#, names(1_000_000));
        patch("application/strategic-merge-patch+json", &format!("{MAPS}/a"), before, body)
    }),
    // Apply.
    row("apply: keys", 201, |n| {
        let keys = list(n, 14, |i| format!(r#""{:07}":"""#, down(i)));
        let body = config_map("", &format!(r#","data":{{{keys}}}"#));
        vec![Call::new("PATCH", format!("{MAPS}/a?fieldManager=x"), "application/apply-patch+yaml", body)]
    }),
    growth("apply: all keys away", 200, |n| {
        let keys = list(n, 14, |i| format!(r#""{:07}":"""#, down(i)));
        let apply = |rest: &str| {
            let body = config_map("", rest);
            Call::new("PATCH", format!("{MAPS}/a?fieldManager=x"), "application/apply-patch+yaml", body)
        };
        vec![apply(&format!(r#","data":{{{keys}}}"#)), apply("")]
    }),
    growth("apply: containers", 200, |n| {
        let apply = |image: &str| {
            let containers = list(n, 32, |i| format!(r#"{{"name":"c{:07}","image":"{image}"}}"#, down(i)));
            let body = deployment("", &format!(r#""containers":[{containers}]"#));
            Call::new(
                "PATCH",
                format!("{DEPLOYMENTS}/a?fieldManager=x"),
                "application/apply-patch+yaml",
                body,
            )
        };
        vec![apply("a"), apply("b")]
    }),
    growth("apply: conflicts", 409, |n| {
        let keys = |v: usize| list(n, 15, |i| format!(r#""{:07}":"{v}""#, down(i)));
        let apply = |who: &str, v: usize| {
            let body = config_map("", &format!(r#","data":{{{}}}"#, keys(v)));
            Call::new("PATCH", format!("{MAPS}/a?fieldManager={who}"), "application/apply-patch+yaml", body)
        };
        vec![apply("x", 1), apply("y", 2)]
    }),
    growth("apply: what does not fit", 500, |n| {
        let keys = list(n, 12, |i| format!(r#""x{i:07}":1"#));
        let body = config_map("", &format!(",{keys}"));
        vec![Call::new("PATCH", format!("{MAPS}/a?fieldManager=x"), "application/apply-patch+yaml", body)]
    }),
    growth("managed fields: one each", 200, |n| managed(n, |i| format!(r#"{{"f:data":{{"f:{i}":{{}}}}}}"#))),
    growth("managed fields: one element, spelt anew", 200, |n| {
        let fields = list(n, 300, |i| {
            let (one, other) = (" ".repeat(1 + i % 200), " ".repeat(1 + i / 200));
            format!(r#""k:{{{one}\"name\":{other}\"a\"}}":{{"f:{i:07}":{{}}}}"#)
        });
        let entry = format!(
            r#"{{"manager":"m","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{{"f:data":{{{fields}}}}}}}"#
        );
        vec![
            Call::new("POST", MAPS, JSON, config_map("", r#","data":{"k":"v"}"#)),
            Call::new(
                "PUT",
                format!("{MAPS}/a"),
                JSON,
                config_map(&format!(r#","managedFields":[{entry}]"#), r#","data":{"k":"w"}"#),
            ),
        ]
    }),
    growth("managed fields: values beside a long one", 200, |n| {
        let long = list(n / 3, 2, |_| "1".to_owned());
        let fields = list(n / 2, 20, |i| format!(r#""v:[1{i:06}]":{{}}"#));
        let entry = format!(
            r#"{{"manager":"m","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{{"f:data":{{"v:[{long}]":{{}},{fields}}}}}}}"#
        );
        vec![
            Call::new("POST", MAPS, JSON, config_map("", r#","data":{"k":"v"}"#)),
            Call::new(
                "PUT",
                format!("{MAPS}/a"),
                JSON,
                config_map(&format!(r#","managedFields":[{entry}]"#), r#","data":{"k":"w"}"#),
            ),
        ]
    }),
    // Other forms and other requests.
    row("yaml: keys", 201, |n| {
        let mut body = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n".to_owned();
        for i in 0..n / 15 {
            let _ = writeln!(body, "  k{:07}: \"\"", down(i));
        }
        vec![Call::new("POST", MAPS, "application/yaml", body)]
    }),
    growth("yaml: a long text named again and again", 400, |n| {
        let body = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\nx: &a \"{}\"\ny: [{}]\n",
            "k".repeat(n / 2),
            list(n / 2, 3, |_| "*a".to_owned())
        );
        vec![Call::new("POST", MAPS, "application/yaml", body)]
    }),
    growth("yaml: deep", 400, |n| {
        vec![Call::new("POST", MAPS, "application/yaml", format!("a: {}", "[".repeat(n)))]
    }),
    row("protobuf: entries", 201, |n| {
        let mut raw = message(1, &message(1, b"a"));
        for i in 0..n / 16 {
            let entry = [message(1, down(i).to_string().as_bytes()), message(2, b"")].concat();
            raw.extend(message(2, &entry));
        }
        vec![Call::new("POST", MAPS, "application/vnd.kubernetes.protobuf", envelope("ConfigMap", &raw))]
    }),
    growth("protobuf: the same entry", 201, |n| {
        let mut raw = message(1, &message(1, b"a"));
        let entry = message(2, &[message(1, b"k"), message(2, b"vvvvvv")].concat());
        (0..n / entry.len()).for_each(|_| raw.extend_from_slice(&entry));
        vec![Call::new("POST", MAPS, "application/vnd.kubernetes.protobuf", envelope("ConfigMap", &raw))]
    }),
    growth("deletion: options", 200, |n| {
        let keys = list(n, 12, |i| format!(r#""x{i:07}":1"#));
        vec![
            Call::new("POST", MAPS, JSON, config_map("", "")),
            Call::new(
                "DELETE",
                format!("{MAPS}/a"),
                JSON,
                format!(r#"{{"kind":"DeleteOptions","apiVersion":"v1",{keys}}}"#),
            ),
        ]
    }),
    // There may be so many.
    growth("selector: values of a label", 0, |n| {
        let values = list((n / 8).min(48 << 10), 7, |i| format!("v{i:05}"));
        vec![Call::get(format!("{MAPS}?labelSelector=x%20in%20({values})"))]
    }),
    growth("selector: labels", 400, |n| {
        let terms = list((n / 8).min(48 << 10), 7, |i| format!("!x{i:04}"));
        vec![Call::get(format!("{MAPS}?labelSelector={terms}"))]
    }),
    growth("selector: fields", 400, |n| {
        let terms = list((n / 8).min(48 << 10), 20, |i| format!("metadata.name!=x{i:05}"));
        vec![Call::get(format!("{MAPS}?fieldSelector={terms}"))]
    }),
    growth("selector: of a deployment", 422, |n| {
        let values = list(n, 11, |i| format!(r#""v{:07}""#, down(i)));
        let body = format!(
            r#"{{"metadata":{{"name":"a"}},"spec":{{"selector":{{"matchExpressions":[{{"key":"a","operator":"In","values":[{values}]}}]}},
            "template":{{"metadata":{{"labels":{{"a":"b"}}}},"spec":{{"containers":[{{"name":"c","image":"i"}}]}}}}}}}}"#
        );
        vec![Call::new("POST", DEPLOYMENTS, JSON, body)]
    }),
    growth("table: of a large object", 200, |n| {
        let keys = list(n, 14, |i| format!(r#""{:07}":"""#, down(i)));
        vec![
            Call::new("POST", MAPS, JSON, config_map("", &format!(r#","data":{{{keys}}}"#))),
            Call { accept: TABLE, ..Call::get(format!("{MAPS}?includeObject=Object")) },
        ]
    }),
    growth("review: groups", 201, |n| {
        let groups = list(n, 11, |i| format!(r#""g{:07}""#, down(i)));
        let body = format!(
            r#"{{"spec":{{"user":"u","groups":[{groups}],"nonResourceAttributes":{{"path":"/","verb":"get"}}}}}}"#
        );
        vec![Call::new("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", JSON, body)]
    }),
    growth("scale: of many containers", 200, |n| {
        let containers = list(n, 32, container);
        vec![
            Call::new("POST", DEPLOYMENTS, JSON, deployment("", &format!(r#""containers":[{containers}]"#))),
            Call::new(
                "PATCH",
                format!("{DEPLOYMENTS}/a/scale"),
                "application/merge-patch+json",
                r#"{"spec":{"replicas":3}}"#,
            ),
        ]
    }),
];
