//! Requests that are as large and as awkward as a request may be.
//!
//! Each fills what a server takes (3 MiB) with one thing that some way of working through it would be slow at: owners
//! compared with one another, keys that come in the wrong order for a sorted vector, elements put in at the front.

use std::{
    fmt::{self, Write as _},
    sync::Arc,
};

use bytes::Bytes;
use http::Method;

use super::{
    client::Ask,
    ground::{LEASES, MALLORY, cluster, works},
};

/// What a server takes.
pub const LIMIT: usize = 3 << 20;
/// Left for what stands around the items.
const SPARE: usize = 4 << 10;

/// Who sends a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The agent whose credential was stolen.
    Mallory,
    /// A user with narrow rights.
    User,
    /// The administrator: what nobody else may send yet.
    Admin,
}

/// One request at the limit.
#[derive(Clone)]
pub struct Large {
    /// What it is full of.
    pub name: &'static str,
    /// Who sends it.
    pub by: By,
    method: Method,
    path: String,
    kind: &'static str,
    body: Arc<dyn Fn() -> String + Send + Sync>,
}

impl fmt::Debug for Large {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Large").field("name", &self.name).field("by", &self.by).finish_non_exhaustive()
    }
}

impl Large {
    /// Its body, which is made now.
    pub fn body(&self) -> Bytes {
        (self.body)().into()
    }

    /// As it is sent. Of the answer a little is kept.
    pub fn ask(&self, body: Bytes) -> Ask<'_> {
        Ask::by(self.method.clone(), &self.path, self.kind, body).keep(512)
    }
}

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const YAML: &str = "application/yaml";

/// `head`, then items with commas between them while there is room (and there are any), then `tail`.
fn filled(head: &str, tail: &str, item: impl Fn(usize) -> Option<String>) -> String {
    let mut text = String::with_capacity(LIMIT);
    text.push_str(head);
    let room = LIMIT - SPARE - tail.len();
    for n in 0.. {
        let Some(item) = item(n) else { break };
        if text.len() + item.len() + 1 > room {
            break;
        }
        if n > 0 {
            text.push(',');
        }
        text.push_str(&item);
    }
    text.push_str(tail);
    text
}

fn always(item: impl Fn(usize) -> String) -> impl Fn(usize) -> Option<String> {
    move |n| Some(item(n))
}

fn at_most(most: usize, item: impl Fn(usize) -> String) -> impl Fn(usize) -> Option<String> {
    move |n| (n < most).then(|| item(n))
}

/// Numbers that go down, so that every one belongs in front of all before it.
const fn down(n: usize) -> usize {
    999_999 - n
}

/// Of the only kind that an agent may make.
const WORK: &str = r#"{"apiVersion":"work.karmada.io/v1alpha1","kind":"Work","metadata":{"name":"big","labels":{"endpointslice.karmada.io/managed-by":"ServiceExport"}"#;
const SPEC: &str = r#""spec":{"workload":{"manifests":[]}}}"#;

/// Works full of one thing, by what they are full of.
pub fn works_of(shape: &str) -> String {
    let metadata = |field: &str, open: &str, close: &str, item: &dyn Fn(usize) -> Option<String>| {
        filled(&format!("{WORK},\"{field}\":{open}"), &format!("{close}}},{SPEC}"), item)
    };
    let manifests = |item: &dyn Fn(usize) -> Option<String>| {
        filled(&format!("{WORK}}},\"spec\":{{\"workload\":{{\"manifests\":["), "]}}}", item)
    };
    match shape {
        "owners" => {
            metadata("ownerReferences", "[", "]", &at_most(120_000, |n| format!("{{\"uid\":\"{n:06}\"}}")))
        }
        "whole owners" => metadata(
            "ownerReferences",
            "[",
            "]",
            &always(|n| format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","name":"n","uid":"{n:06}"}}"#)),
        ),
        "annotations" => {
            metadata("annotations", "{", "}", &at_most(150_000, |n| format!("\"k{:06}\":\"\"", down(n))))
        }
        "labels" => metadata("labels", "{", "}", &always(|n| format!("\"k{:06}\":\"\"", down(n)))),
        "labels that are none" => metadata("labels", "{", "}", &always(|n| format!("\"/{n}\":\"/\""))),
        "finalizers" => metadata("finalizers", "[", "]", &always(|n| format!("\"a.io/{:06}\"", down(n)))),
        "equal finalizers" => metadata("finalizers", "[", "]", &always(|_| "\"a.io/f\"".to_owned())),
        "managed fields" => metadata(
            "managedFields",
            "[",
            "]",
            &always(|n| {
                format!(
                    r#"{{"manager":"m{n}","operation":"Apply","apiVersion":"work.karmada.io/v1alpha1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{{"f:spec":{{"f:{:06}":{{}}}}}}}}"#,
                    down(n)
                )
            }),
        ),
        "one managed field" => metadata(
            "managedFields",
            r#"[{"manager":"m","operation":"Update","apiVersion":"work.karmada.io/v1alpha1","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{"#,
            "}}}}]",
            &always(|n| format!("\"f:{:06}\":{{}}", down(n))),
        ),
        "manifests" => manifests(&always(|_| "{}".to_owned())),
        "whole manifests" => manifests(&always(|n| {
            format!(
                r#"{{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{{"name":"c{n}","namespace":"default"}}}}"#
            )
        })),
        "deep manifests" => {
            manifests(&always(|_| format!("{}{}", "{\"a\":".repeat(80) + "1", "}".repeat(80))))
        }
        "one wide manifest" => filled(
            &format!(
                r#"{WORK}}},"spec":{{"workload":{{"manifests":[{{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{{"name":"c","namespace":"default"}},"data":{{"#
            ),
            "}}]}}}",
            always(|n| format!("\"{:06}\":\"\"", down(n))),
        ),
        "keys that stand twice" => manifests(&always(|_| r#"{"a":1,"a":1}"#.to_owned())),
        "fields that are unknown" => {
            filled(&format!("{WORK}}},"), &format!(",{SPEC}"), always(|n| format!("\"u{:06}\":0", down(n))))
        }
        "conditions" => filled(
            &format!("{WORK}}},\"spec\":{{\"workload\":{{\"manifests\":[]}}}},\"status\":{{\"conditions\":["),
            "]}}",
            always(|n| {
                format!(
                    r#"{{"type":"T{n}","status":"True","reason":"r","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}}"#
                )
            }),
        ),
        "numbers" => manifests(&always(|n| format!("{{\"a\":{n}.{}e-300}}", "1".repeat(300)))),
        "text" => manifests(&at_most(1, |_| format!("{{\"a\":\"{}\"}}", "\\u0061".repeat(500_000)))),
        "nesting" => {
            format!("{WORK}}},\"spec\":{}{}}}", "[".repeat(LIMIT / 2 - SPARE), "]".repeat(LIMIT / 2 - SPARE))
        }
        other => panic!("no Work is full of {other}"),
    }
}

/// What Works can be full of.
pub const SHAPES: [&str; 19] = [
    "owners",
    "whole owners",
    "annotations",
    "labels",
    "labels that are none",
    "finalizers",
    "equal finalizers",
    "managed fields",
    "one managed field",
    "manifests",
    "whole manifests",
    "deep manifests",
    "one wide manifest",
    "keys that stand twice",
    "fields that are unknown",
    "conditions",
    "numbers",
    "text",
    "nesting",
];

/// A JSON patch that puts elements in at the front.
pub fn inserts_at_the_front(list: &str, element: &str) -> String {
    filled("[", "]", always(|_| format!(r#"{{"op":"add","path":"{list}/0","value":{element}}}"#)))
}

/// A JSON patch that copies what it has copied, so many times.
fn copy_bomb(times: usize) -> String {
    let mut text = String::from(r#"[{"op":"add","path":"/spec/workload/manifests","value":[{"a":{}}]}"#);
    for n in 0..times {
        let _ = write!(
            text,
            r#",{{"op":"copy","from":"/spec/workload/manifests/0/a","path":"/spec/workload/manifests/0/a/{n}"}}"#
        );
    }
    text.push(']');
    text
}

/// Requests at the limit. `kept` is a small Work of the agent's that is there.
pub fn all(kept: &str) -> Vec<Large> {
    let mut all = agents(kept);
    all.extend(administrators());
    all
}

fn large(
    name: &'static str,
    by: By,
    method: Method,
    path: String,
    kind: &'static str,
    body: impl Fn() -> String + Send + Sync + 'static,
) -> Large {
    Large { name, by, method, path, kind, body: Arc::new(body) }
}

fn agents(kept: &str) -> Vec<Large> {
    let mut all = Vec::new();
    macro_rules! add {
        ($name:expr, $method:expr, $path:expr, $kind:expr, $body:expr $(,)?) => {
            all.push(large($name, By::Mallory, $method, $path, $kind, move || $body))
        };
    }
    let (mine, kept) = (works(MALLORY), format!("{}/{kept}", works(MALLORY)));
    // Whatever is made has another name each time.
    let strict = format!("{mine}?fieldValidation=Strict");
    for shape in SHAPES {
        add!(
            shape,
            Method::POST,
            mine.clone(),
            JSON,
            works_of(shape).replacen("\"name\":\"big\"", "\"generateName\":\"big-\"", 1)
        );
    }
    add!("unknown fields, refused", Method::POST, strict.clone(), JSON, works_of("fields that are unknown"));
    add!("keys that stand twice, refused", Method::POST, strict, JSON, works_of("keys that stand twice"));
    add!("YAML", Method::POST, mine.clone(), YAML, works_of("one wide manifest"));
    add!("YAML in lines", Method::POST, mine.clone(), YAML, {
        let head =
            "apiVersion: work.karmada.io/v1alpha1\nkind: Work\nmetadata:\n  name: yaml\n  annotations:\n";
        let mut text = head.to_owned();
        for n in 0.. {
            let line = format!("    k{:06}: \"\"\n", down(n));
            if text.len() + line.len() > LIMIT - SPARE {
                break;
            }
            text.push_str(&line);
        }
        text
    });
    add!("YAML of aliases", Method::POST, mine.clone(), YAML, {
        let mut text = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for n in 1..12 {
            let of = vec![format!("*a{}", n - 1); 10].join(",");
            let _ = writeln!(text, "a{n}: &a{n} [{of}]");
        }
        text
    });
    add!("protobuf that is none", Method::POST, mine.clone(), "application/vnd.kubernetes.protobuf", {
        format!("k8s\0{}", "\u{a}\u{1}".repeat(LIMIT / 2 - SPARE))
    });
    add!("inserts at the front", Method::PATCH, kept.clone(), PATCH, {
        inserts_at_the_front("/spec/workload/manifests", "{}")
    });
    add!("inserts of finalizers", Method::PATCH, kept.clone(), PATCH, {
        format!(
            r#"[{{"op":"add","path":"/metadata/finalizers","value":[]}},{}"#,
            &inserts_at_the_front("/metadata/finalizers", "\"a.io/f\"")[1..]
        )
    });
    add!("a copy bomb", Method::PATCH, kept.clone(), PATCH, copy_bomb(64));
    add!("copies and tests", Method::PATCH, kept.clone(), PATCH, {
        filled(
            r#"[{"op":"add","path":"/metadata/annotations","value":{}},"#,
            "]",
            always(|n| {
                format!(r#"{{"op":"copy","from":"/spec","path":"/metadata/annotations/{:06}"}}"#, down(n))
            }),
        )
    });
    add!("moves", Method::PATCH, kept.clone(), PATCH, {
        let list: Vec<String> = (0..50_000).map(|n| format!("\"{n:05}\"")).collect();
        let head = format!(r#"[{{"op":"add","path":"/metadata/finalizers","value":[{}]}},"#, list.join(","));
        filled(
            &head,
            "]",
            always(|_| {
                r#"{"op":"move","from":"/metadata/finalizers/0","path":"/metadata/finalizers/-"}"#.to_owned()
            }),
        )
    });
    for (name, shape) in [
        ("merged owners", "owners"),
        ("merged annotations", "annotations"),
        ("merged finalizers", "finalizers"),
        ("merged managed fields", "one managed field"),
    ] {
        add!(
            name,
            Method::PATCH,
            kept.clone(),
            MERGE,
            works_of(shape).replacen("\"name\":\"big\"", "\"name\":\"kept\"", 1)
        );
    }
    for (name, shape) in [
        ("applied annotations", "annotations"),
        ("applied finalizers", "finalizers"),
        ("applied owners", "whole owners"),
        ("applied manifests", "one wide manifest"),
    ] {
        let path = format!("{mine}/applied?fieldManager=m&force=true");
        add!(
            name,
            Method::PATCH,
            path,
            APPLY,
            works_of(shape).replacen("\"name\":\"big\"", "\"name\":\"applied\"", 1)
        );
    }
    let status = |item: &dyn Fn(usize) -> Option<String>, field: &str| {
        filled(&format!("{{\"status\":{{\"{field}\":["), "]}}", item)
    };
    let condition = |n: usize| {
        format!(
            r#"{{"type":"T{:06}","status":"True","reason":"r","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}}"#,
            down(n)
        )
    };
    add!(
        "reported conditions",
        Method::PATCH,
        format!("{kept}/status"),
        MERGE,
        status(&always(condition), "conditions")
    );
    add!(
        "reported manifests",
        Method::PATCH,
        format!("{kept}/status"),
        MERGE,
        status(
            &always(|n| {
                format!(
                    r#"{{"identifier":{{"ordinal":{n},"version":"v1","kind":"ConfigMap","resource":"configmaps","name":"c"}},"health":"Healthy"}}"#
                )
            }),
            "manifestStatuses"
        )
    );
    let own = format!("{}/status", cluster(MALLORY));
    add!(
        "reported APIs",
        Method::PATCH,
        own.clone(),
        MERGE,
        status(
            &always(|n| {
                format!(
                    r#"{{"groupVersion":"g{:06}.io/v1","resources":[{{"name":"k","kind":"K"}}]}}"#,
                    down(n)
                )
            }),
            "apiEnablements"
        )
    );
    add!(
        "a cluster's conditions",
        Method::PATCH,
        own.clone(),
        MERGE,
        status(&always(condition), "conditions")
    );
    add!(
        "a cluster's grades",
        Method::PATCH,
        own,
        MERGE,
        filled(
            r#"{"status":{"resourceSummary":{"allocatableModelings":["#,
            "]}}}",
            always(|n| format!(r#"{{"grade":{n},"count":1}}"#)),
        )
    );
    add!(
        "resource models",
        Method::PATCH,
        cluster(MALLORY),
        MERGE,
        filled(
            r#"{"spec":{"resourceModels":["#,
            "]}}",
            always(|n| format!(
                r#"{{"grade":{n},"ranges":[{{"name":"cpu","min":"{n}","max":"{}"}}]}}"#,
                n + 1
            )),
        )
    );
    add!(
        "a Lease's annotations",
        Method::PATCH,
        format!("{LEASES}/{MALLORY}"),
        MERGE,
        filled(r#"{"metadata":{"annotations":{"#, "}}}", always(|n| format!("\"k{:06}\":\"\"", down(n))),)
    );
    add!("an event", Method::POST, format!("/api/v1/namespaces/karmada-es-{MALLORY}/events"), JSON, {
        filled(
            &format!(
                r#"{{"apiVersion":"v1","kind":"Event","metadata":{{"generateName":"e-","namespace":"karmada-es-{MALLORY}","annotations":{{"#
            ),
            &format!(
                r#"}}}},"involvedObject":{{"kind":"Work","apiVersion":"work.karmada.io/v1alpha1","namespace":"karmada-es-{MALLORY}","name":"kept"}},"reason":"r","message":"m","type":"Normal"}}"#
            ),
            always(|n| format!("\"k{:06}\":\"\"", down(n))),
        )
    });
    add!(
        "a review",
        Method::POST,
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned(),
        JSON,
        filled(
            r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"list","resource":"works","labelSelector":{"requirements":["#,
            "]}}}}",
            always(|n| format!(r#"{{"key":"k{n}","operator":"In","values":["v"]}}"#)),
        )
    );
    add!(
        "a selector of labels",
        Method::GET,
        {
            let values: Vec<String> = (0..20_000).map(|n| format!("v{:05}", 99_999 - n)).collect();
            format!("{mine}?labelSelector=a%20in%20({})", values.join(","))
        },
        "",
        String::new()
    );
    add!(
        "a selector of fields",
        Method::GET,
        {
            let parts: Vec<String> = (0..9_000).map(|n| format!("metadata.name!=v{n:05}")).collect();
            format!("{mine}?fieldSelector={}", parts.join(","))
        },
        "",
        String::new()
    );
    for path in ["/openapi/v2", "/openapi/v3", "/openapi/v3/apis/apps/v1", "/apis"] {
        all.push(large(path, By::User, Method::GET, path.to_owned(), "", String::new));
    }
    all
}

/// A definition whose schema (and rules) are these.
fn definition(plural: &str, schema: &str) -> String {
    let kind = format!("K{plural}");
    format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{{"name":"{plural}.hostile.io"}},"spec":{{"group":"hostile.io","scope":"Namespaced","names":{{"plural":"{plural}","singular":"{plural}x","kind":"{kind}","listKind":"{kind}List"}},"versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{schema}}}}}]}}}}"#
    )
}

fn administrators() -> Vec<Large> {
    let mut all = Vec::new();
    macro_rules! add {
        ($name:expr, $method:expr, $path:expr, $kind:expr, $body:expr $(,)?) => {
            all.push(large($name, By::Admin, $method, ($path).to_owned(), $kind, move || $body))
        };
    }
    let (maps, definitions) =
        ("/api/v1/namespaces/default/configmaps", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions");
    let map = |name: &str| {
        filled(
            &format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"#),
            "}}",
            always(|n| format!("\"{:06}\":\"\"", down(n))),
        )
    };
    add!("a ConfigMap", Method::POST, maps, JSON, map("wide"));
    add!(
        "a ConfigMap, applied",
        Method::PATCH,
        &format!("{maps}/applied?fieldManager=a"),
        APPLY,
        map("applied")
    );
    add!(
        "a ConfigMap, applied by another",
        Method::PATCH,
        &format!("{maps}/applied?fieldManager=b"),
        APPLY,
        map("applied")
    );
    let deployment = |what: &str, item: &dyn Fn(usize) -> Option<String>, tail: &str| {
        filled(
            &format!(
                r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"wide"}},"spec":{{"selector":{{"matchLabels":{{"a":"b"}}}},"template":{{"metadata":{{"labels":{{"a":"b"}}}},"spec":{{"{what}":["#
            ),
            &format!("]{tail}}}}}}}}}"),
            item,
        )
    };
    let pods = "/apis/apps/v1/namespaces/default/deployments";
    add!(
        "a Deployment's containers",
        Method::POST,
        pods,
        JSON,
        deployment("containers", &always(|n| format!(r#"{{"name":"c{n}","image":"i"}}"#)), "")
    );
    add!(
        "a Deployment's volumes",
        Method::POST,
        pods,
        JSON,
        deployment(
            "volumes",
            &always(|n| format!(r#"{{"name":"v{n}","emptyDir":{{}}}}"#)),
            r#","containers":[{"name":"c","image":"i"}]"#
        )
    );
    add!(
        "a Deployment's environment",
        Method::POST,
        pods,
        JSON,
        filled(
            r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"environment"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i","env":["#,
            "]}]}}}}",
            always(|n| format!(r#"{{"name":"E{:06}","value":""}}"#, down(n))),
        )
    );
    add!(
        "a Service's ports",
        Method::POST,
        "/api/v1/namespaces/default/services",
        JSON,
        filled(
            r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"wide"},"spec":{"selector":{"a":"b"},"ports":["#,
            "]}}",
            always(|n| format!(r#"{{"name":"p{n}","port":{}}}"#, 1 + n % 65_535)),
        )
    );
    add!(
        "a policy's selectors",
        Method::POST,
        "/apis/policy.karmada.io/v1alpha1/namespaces/default/propagationpolicies",
        JSON,
        filled(
            r#"{"apiVersion":"policy.karmada.io/v1alpha1","kind":"PropagationPolicy","metadata":{"name":"wide"},"spec":{"placement":{"clusterAffinity":{"clusterNames":["site-00"]}},"resourceSelectors":["#,
            "]}}",
            always(|n| format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","name":"n{n}"}}"#)),
        )
    );
    add!(
        "a policy's clusters",
        Method::POST,
        "/apis/policy.karmada.io/v1alpha1/namespaces/default/propagationpolicies",
        JSON,
        filled(
            r#"{"apiVersion":"policy.karmada.io/v1alpha1","kind":"PropagationPolicy","metadata":{"name":"clusters"},"spec":{"resourceSelectors":[{"apiVersion":"v1","kind":"ConfigMap","name":"n"}],"placement":{"clusterAffinity":{"clusterNames":["#,
            "]}}}}",
            always(|n| format!("\"c{n}\"")),
        )
    );
    add!(
        "an override's rules",
        Method::POST,
        "/apis/policy.karmada.io/v1alpha1/namespaces/default/overridepolicies",
        JSON,
        filled(
            r#"{"apiVersion":"policy.karmada.io/v1alpha1","kind":"OverridePolicy","metadata":{"name":"wide"},"spec":{"resourceSelectors":[{"apiVersion":"v1","kind":"ConfigMap","name":"n"}],"overrideRules":[{"overriders":{"plaintext":["#,
            "]}}]}}",
            always(|n| format!(r#"{{"path":"/data/{n}","operator":"add","value":"v"}}"#)),
        )
    );
    let properties = |kind: &str| {
        filled(
            r#"{"type":"object","properties":{"#,
            "}}",
            always(|n| format!(r#""p{:06}":{{"type":"{kind}"}}"#, down(n))),
        )
    };
    add!(
        "a definition's properties",
        Method::POST,
        definitions,
        JSON,
        definition("wides", &properties("string"))
    );
    add!(
        "a definition's required fields",
        Method::POST,
        definitions,
        JSON,
        definition(
            "requireds",
            &filled(
                r#"{"type":"object","properties":{"a":{"type":"string"}},"required":["#,
                "]}",
                at_most(200_000, |n| format!("\"p{:06}\"", down(n))),
            )
        )
    );
    add!(
        "a definition's enum",
        Method::POST,
        definitions,
        JSON,
        definition(
            "enums",
            &filled(
                r#"{"type":"object","properties":{"a":{"type":"string","enum":["#,
                "]}}}",
                at_most(200_000, |n| format!("\"p{:06}\"", down(n))),
            )
        )
    );
    add!(
        "a definition's alternatives",
        Method::POST,
        definitions,
        JSON,
        definition(
            "alternatives",
            &filled(
                r#"{"type":"object","properties":{"a":{"type":"integer"}},"oneOf":["#,
                "]}",
                at_most(100_000, |n| format!(r#"{{"required":["p{n}"]}}"#)),
            )
        )
    );
    add!(
        "a definition's depth",
        Method::POST,
        definitions,
        JSON,
        definition("deeps", &{
            format!(
                "{}{{\"type\":\"string\"}}{}",
                r#"{"type":"object","properties":{"a":"#.repeat(40),
                "}}".repeat(40)
            )
        })
    );
    add!(
        "a definition's rules",
        Method::POST,
        definitions,
        JSON,
        definition(
            "rules",
            &filled(
                r#"{"type":"object","properties":{"a":{"type":"string"}},"x-kubernetes-validations":["#,
                "]}",
                at_most(40_000, |n| format!(r#"{{"rule":"!has(self.a) || self.a != 'x{n}'"}}"#)),
            )
        )
    );
    add!(
        "a definition's long rule",
        Method::POST,
        definitions,
        JSON,
        definition("longs", &{
            let rule = vec!["self.a.size() > 1"; 40_000].join(" && ");
            format!(
                r#"{{"type":"object","properties":{{"a":{{"type":"string"}}}},"x-kubernetes-validations":[{{"rule":"{rule}"}}]}}"#
            )
        })
    );
    add!(
        "a definition's deep rule",
        Method::POST,
        definitions,
        JSON,
        definition("deeprules", &{
            let rule = format!("{}true{}", "(".repeat(400_000), ")".repeat(400_000));
            format!(
                r#"{{"type":"object","properties":{{"a":{{"type":"string"}}}},"x-kubernetes-validations":[{{"rule":"{rule}"}}]}}"#
            )
        })
    );
    add!(
        "a definition's macros",
        Method::POST,
        definitions,
        JSON,
        definition("macros", &{
            let rule = (0..200)
                .fold("true".to_owned(), |inner, n| format!("[1,2,3,4,5,6,7,8,9].all(x{n}, {inner})"));
            format!(r#"{{"type":"object","x-kubernetes-validations":[{{"rule":"{rule}"}}]}}"#)
        })
    );
    add!(
        "a definition's pattern",
        Method::POST,
        definitions,
        JSON,
        definition("patterns", &{
            let pattern = "(a{1,1000}){1,1000}".repeat(1000);
            format!(r#"{{"type":"object","properties":{{"a":{{"type":"string","pattern":"{pattern}"}}}}}}"#)
        })
    );
    add!(
        "a definition's long pattern",
        Method::POST,
        definitions,
        JSON,
        definition("longpatterns", &{
            let pattern = r"\\p{L}|".repeat(200_000);
            format!(r#"{{"type":"object","properties":{{"a":{{"type":"string","pattern":"{pattern}x"}}}}}}"#)
        })
    );
    add!(
        "a definition for lists",
        Method::POST,
        definitions,
        JSON,
        definition(
            "lists",
            r#"{"type":"object","properties":{"spec":{"type":"object","properties":{"set":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},"map":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k","l"],"items":{"type":"object","required":["k","l"],"properties":{"k":{"type":"string"},"l":{"type":"string"},"v":{"type":"string"}}}},"atomic":{"type":"array","x-kubernetes-list-type":"atomic","items":{"type":"object","required":["a","b","c"],"properties":{"a":{"type":"string"}}}},"unique":{"type":"array","maxItems":1000000,"items":{"type":"integer"}}}}}}"#
        )
    );
    let lists = "/apis/hostile.io/v1/namespaces/default/lists";
    let object = |name: &str, field: &str, item: &dyn Fn(usize) -> Option<String>| {
        filled(
            &format!(
                r#"{{"apiVersion":"hostile.io/v1","kind":"Klists","metadata":{{"name":"{name}"}},"spec":{{"{field}":["#
            ),
            "]}}",
            item,
        )
    };
    let pair = |n: usize| format!(r#"{{"k":"{:06}","l":"l"}}"#, down(n));
    add!(
        "a set",
        Method::POST,
        lists,
        JSON,
        object("set", "set", &always(|n| format!("\"{:06}\"", down(n))))
    );
    add!(
        "a set of equals",
        Method::POST,
        lists,
        JSON,
        object("equals", "set", &always(|_| "\"e\"".to_owned()))
    );
    add!("a map of lists", Method::POST, lists, JSON, object("map", "map", &always(pair)));
    add!(
        "a map of lists, applied",
        Method::PATCH,
        &format!("{lists}/applied?fieldManager=a"),
        APPLY,
        object("applied", "map", &always(pair))
    );
    add!(
        "a set, applied",
        Method::PATCH,
        &format!("{lists}/sets?fieldManager=a"),
        APPLY,
        object("sets", "set", &always(|n| format!("\"{:06}\"", down(n))))
    );
    add!(
        "a list of what is missing",
        Method::POST,
        lists,
        JSON,
        object("missing", "atomic", &always(|_| "{}".to_owned()))
    );
    add!(
        "a list of the wrong type",
        Method::POST,
        lists,
        JSON,
        object("wrong", "unique", &always(|_| "\"\"".to_owned()))
    );
    add!(
        "a user's rules in Lua",
        Method::POST,
        "/apis/config.karmada.io/v1alpha1/resourceinterpretercustomizations",
        JSON,
        {
            let script = "local x = 1 ".repeat(200_000);
            format!(
                r#"{{"apiVersion":"config.karmada.io/v1alpha1","kind":"ResourceInterpreterCustomization","metadata":{{"name":"lua"}},"spec":{{"target":{{"apiVersion":"hostile.io/v1","kind":"Klists"}},"customizations":{{"retention":{{"luaScript":"{script}"}}}}}}}}"#
            )
        }
    );
    add!(
        "webhooks",
        Method::POST,
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
        JSON,
        filled(
            r#"{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"wide"},"webhooks":["#,
            "]}",
            always(|n| format!(
                r#"{{"name":"w{n}.hostile.io","clientConfig":{{"url":"https://127.0.0.1:1/"}},"sideEffects":"None","admissionReviewVersions":["v1"],"failurePolicy":"Ignore"}}"#
            )),
        )
    );
    all
}
