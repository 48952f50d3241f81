//! What the agent of a cluster may do, line by line: through the server, and by the roles that are written for a stock
//! kube-apiserver; and that it gets nothing else of any kind, which the audit log has.

use std::collections::BTreeSet;

use karmada_apiserver::authz::agent::{Subject, roles};

use super::*;
use crate::{audit::Told, certificates::REQUEST};

const VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

fn agent() -> UserInfo {
    UserInfo::new("system:karmada:agent:m1", ["system:karmada:agents"])
}

/// A line of the table.
struct Line {
    /// `group/version`, or `v1`.
    version: &'static str,
    /// Resource, or `resource/subresource`.
    resource: &'static str,
    /// Namespace and name of one that is its own.
    own: (&'static str, &'static str),
    /// The same of one that is another cluster's; nothing where there is no such thing.
    other: Option<(&'static str, &'static str)>,
    /// What it may do.
    verbs: &'static str,
    /// What RBAC lets it do to others' as well, since it does not see names there.
    unseen: &'static str,
}

const fn line(
    version: &'static str,
    resource: &'static str,
    own: (&'static str, &'static str),
    other: Option<(&'static str, &'static str)>,
    verbs: &'static str,
    unseen: &'static str,
) -> Line {
    Line { version, resource, own, other, verbs, unseen }
}

const EXECUTION: &str = "karmada-es-m1";
const OTHERS: &str = "karmada-es-m2";
const CLUSTERS: &str = "karmada-cluster";
const WORK: &str = "work.karmada.io/v1alpha1";
const CLUSTER: &str = "cluster.karmada.io/v1alpha1";
const CONFIG: &str = "config.karmada.io/v1alpha1";

const TABLE: &[Line] = &[
    line(
        WORK,
        "works",
        (EXECUTION, "w"),
        Some((OTHERS, "w")),
        "get list watch create update patch delete",
        "",
    ),
    line(WORK, "works/status", (EXECUTION, "w"), Some((OTHERS, "w")), "get update patch", ""),
    line(
        CLUSTER,
        "clusters",
        ("", "m1"),
        Some(("", "m2")),
        "get list watch create update patch delete",
        "create",
    ),
    line(CLUSTER, "clusters/status", ("", "m1"), Some(("", "m2")), "get update patch", ""),
    line(
        "coordination.k8s.io/v1",
        "leases",
        (CLUSTERS, "m1"),
        Some((CLUSTERS, "m2")),
        "get create update patch",
        "create",
    ),
    line("v1", "events", (EXECUTION, "e"), Some((OTHERS, "e")), "create update patch", ""),
    // Whose events they are, admission says.
    line("v1", "events", ("default", "e"), None, "create update patch", ""),
    line("events.k8s.io/v1", "events", (EXECUTION, "e"), Some((OTHERS, "e")), "create update patch", ""),
    line("events.k8s.io/v1", "events", ("default", "e"), None, "create update patch", ""),
    line("v1", "secrets", (CLUSTERS, "m1"), Some((CLUSTERS, "m2")), "get create patch", "create"),
    line(
        "v1",
        "secrets",
        (CLUSTERS, "m1-impersonator"),
        Some((CLUSTERS, "m2-impersonator")),
        "get create patch",
        "create",
    ),
    line("v1", "namespaces", ("", EXECUTION), Some(("", OTHERS)), "get", ""),
    line("v1", "namespaces", ("", CLUSTERS), Some(("", "kube-system")), "get", ""),
    line(
        "certificates.k8s.io/v1",
        "certificatesigningrequests",
        ("", "m1-abcde"),
        Some(("", "m2-abcde")),
        "get create",
        // How a name begins roles cannot say.
        "get create",
    ),
    line(CONFIG, "resourceinterpretercustomizations", ("", "x"), None, "get list watch", ""),
    line(CONFIG, "resourceinterpreterwebhookconfigurations", ("", "x"), None, "get list watch", ""),
];

impl Line {
    fn may(&self, verb: &str) -> bool {
        self.verbs.split(' ').any(|one| one == verb)
    }

    /// What an access review is asked about.
    fn attributes(&self, verb: &str, (namespace, name): (&str, &str)) -> Value {
        let group = self.version.split_once('/').map_or("", |(group, _)| group);
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((self.resource, ""));
        json!({"verb": verb, "group": group, "resource": resource, "subresource": subresource,
            "namespace": namespace, "name": name})
    }

    /// The request itself: method, path and body.
    fn request(&self, verb: &str, (namespace, name): (&str, &str)) -> (&'static str, String, Value) {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((self.resource, ""));
        let root =
            if self.version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{}", self.version) };
        let place = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
        let all = format!("{root}{place}/{resource}");
        let sub = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
        let one = format!("{all}/{name}{sub}");
        // Lists have a name by their selector.
        let selected = format!("{all}?fieldSelector=metadata.name%3D{name}");
        let mut body = json!({"metadata": {"name": name}});
        if resource == "certificatesigningrequests" {
            body["spec"] = json!({"request": REQUEST, "signerName": "kubernetes.io/kube-apiserver-client",
                "usages": ["client auth"]});
        }
        if !namespace.is_empty() {
            body["metadata"]["namespace"] = namespace.into();
        }
        match verb {
            "get" => ("GET", one, Value::Null),
            "list" if sub.is_empty() => ("GET", selected, Value::Null),
            "watch" if sub.is_empty() => {
                ("GET", format!("{selected}&watch=true&timeoutSeconds=1"), Value::Null)
            }
            "create" if sub.is_empty() => ("POST", all, body),
            "create" => ("POST", one, body),
            "update" => ("PUT", one, body),
            "patch" => ("PATCH", one, body),
            "delete" => ("DELETE", one, Value::Null),
            // Of what has none, another subresource's.
            "deletecollection" if sub.is_empty() => ("DELETE", selected, Value::Null),
            _ => ("DELETE", one, Value::Null),
        }
    }
}

/// A server with the kinds of the table, and the namespaces of two clusters.
async fn serving() -> Server {
    let server = Server::start().await;
    for (group, plural, kind, scope) in [
        ("work.karmada.io", "works", "Work", "Namespaced"),
        ("cluster.karmada.io", "clusters", "Cluster", "Cluster"),
        (
            "config.karmada.io",
            "resourceinterpretercustomizations",
            "ResourceInterpreterCustomization",
            "Cluster",
        ),
        (
            "config.karmada.io",
            "resourceinterpreterwebhookconfigurations",
            "ResourceInterpreterWebhookConfiguration",
            "Cluster",
        ),
    ] {
        let names = json!({"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")});
        define(&server, group, &names, scope).await;
    }
    for name in [EXECUTION, OTHERS, CLUSTERS] {
        let made = server.call("POST", "/api/v1/namespaces", json!({"metadata": {"name": name}})).await;
        assert_eq!(made.code, 201, "{made:?}");
    }
    server
}

async fn allowed(server: &Server, asks: UserInfo, path: &str, spec: Value) -> bool {
    let review = json!({"spec": spec});
    let path = format!("/apis/authorization.k8s.io/v1/{path}");
    let answer = server.send(Some(asks), "POST", &path, "application/json", &review).await;
    assert_eq!(answer.code, 201, "{answer:?}");
    answer.body["status"]["allowed"] == true
}

async fn code(server: &Server, (method, path, body): (&str, String, Value)) -> u16 {
    let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    server.send(Some(agent()), method, &path, media, &body).await.code
}

#[tokio::test(start_paused = true)]
async fn every_line_of_the_table_holds_through_the_server_and_nothing_beside() {
    let server = serving().await;
    for line in TABLE {
        for verb in VERBS {
            for (object, want) in [(Some(line.own), line.may(verb)), (line.other, false)] {
                let Some(object) = object else { continue };
                let what = format!("{verb} {} {object:?}", line.resource);
                let spec = json!({"resourceAttributes": line.attributes(verb, object)});
                assert_eq!(allowed(&server, agent(), "selfsubjectaccessreviews", spec).await, want, "{what}");
                let asked = line.request(verb, object);
                // There is no such request.
                if line.resource.contains('/')
                    && !["get", "create", "update", "patch", "delete"].contains(&verb)
                {
                    continue;
                }
                let code = code(&server, asked).await;
                assert_eq!(code != 403, want, "{what}: {code}");
                assert_ne!(code, 401, "{what}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_line_of_the_table_holds_by_the_roles_that_are_written() {
    let server = serving().await;
    // RBAC alone: somebody whom the server does not take for an agent.
    let user = "somebody";
    for object in roles("m1", &Subject::User(user.to_owned())) {
        let kind = object["kind"].as_str().unwrap().to_lowercase();
        let path = match (kind.as_str(), object["metadata"]["namespace"].as_str()) {
            ("namespace", _) => "/api/v1/namespaces".to_owned(),
            (_, None) => format!("/apis/rbac.authorization.k8s.io/v1/{kind}s"),
            (_, Some(namespace)) => {
                format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/{kind}s")
            }
        };
        let made = server.call("POST", &path, object).await;
        assert!(made.code == 201 || made.code == 409 && kind == "namespace", "{made:?}");
    }
    let may = async |attributes: Value| {
        let spec =
            json!({"user": user, "groups": ["system:authenticated"], "resourceAttributes": attributes});
        allowed(&server, Server::admin(), "subjectaccessreviews", spec).await
    };
    for line in TABLE {
        for verb in VERBS {
            let own = may(line.attributes(verb, line.own)).await;
            assert_eq!(own, line.may(verb), "{verb} {} {:?}", line.resource, line.own);
            let Some(other) = line.other else { continue };
            let unseen = line.unseen.split(' ').any(|one| one == verb);
            assert_eq!(may(line.attributes(verb, other)).await, unseen, "{verb} {} {other:?}", line.resource);
        }
    }
    // All of them, without a name.
    for verb in ["list", "watch", "deletecollection"] {
        let attributes = json!({"verb": verb, "group": "cluster.karmada.io", "resource": "clusters"});
        assert!(!may(attributes).await, "{verb} clusters");
    }
}

/// Kind by kind as the server has them, with a stolen credential.
#[tokio::test]
async fn no_kind_of_others_is_an_agents_and_the_audit_log_has_each_try() {
    let told = Told::over(serving().await, "omitStages: [RequestReceived]\nrules: [{level: Metadata}]");
    let server = &told.server;
    let mut paths = Vec::new();
    for kind in server.api.kinds().iter() {
        let root = match kind.gvr.group.as_str() {
            "" => "/api/v1".to_owned(),
            group => format!("/apis/{group}/{}", kind.gvr.version),
        };
        let resource = &kind.gvr.resource;
        let places = match kind.namespaced {
            true => [OTHERS, CLUSTERS, "kube-system"]
                .map(|namespace| format!("{root}/namespaces/{namespace}"))
                .to_vec(),
            false => vec![root],
        };
        let subresources: Vec<String> =
            kind.subresources.iter().map(|sub| format!("/{}", sub.name)).chain([String::new()]).collect();
        for place in places {
            for sub in &subresources {
                paths.push((resource.clone(), format!("{place}/{resource}/m2{sub}")));
            }
            paths.push((resource.clone(), format!("{place}/{resource}")));
        }
    }
    assert!(paths.len() > 200, "{}", paths.len());
    let queries = [
        "",
        "watch=true&timeoutSeconds=1",
        "fieldSelector=metadata.name%3Dm2",
        "labelSelector=a%3Db&limit=1",
    ];
    let (mut sent, mut let_through) = (BTreeSet::new(), BTreeSet::new());
    for (resource, path) in &paths {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            for query in if method == "GET" { &queries[..] } else { &queries[..1] } {
                let uri = if query.is_empty() { path.clone() } else { format!("{path}?{query}") };
                let mut body = json!({"metadata": {"name": "m2"}});
                if resource == "certificatesigningrequests" {
                    body["metadata"]["name"] = "m2-abcde".into();
                }
                let body = if matches!(method, "GET" | "DELETE") { Value::Null } else { body };
                let asked = code(server, (method, uri.clone(), body)).await;
                if asked == 403 {
                    sent.insert((method, uri));
                } else {
                    let_through.insert((resource.clone(), method));
                }
            }
        }
    }
    // Reviews about oneself, and users' rules for what fields mean, which are nobody's secret.
    let everyones: BTreeSet<(String, &str)> = [
        ("selfsubjectaccessreviews", "POST"),
        ("selfsubjectrulesreviews", "POST"),
        ("selfsubjectreviews", "POST"),
        ("resourceinterpretercustomizations", "GET"),
        ("resourceinterpreterwebhookconfigurations", "GET"),
    ]
    .map(|(resource, method)| (resource.to_owned(), method))
    .into();
    assert_eq!(let_through, everyones);
    let mut events = told.all().await;
    events.retain(|event| {
        event["user"]["username"] == agent().name.as_str()
            && event["stage"] == "ResponseComplete"
            && event["responseStatus"]["code"] == 403
    });
    let methods = |verb: &str| match verb {
        "get" | "list" | "watch" => "GET",
        "create" => "POST",
        "update" => "PUT",
        "patch" => "PATCH",
        _ => "DELETE",
    };
    let found: BTreeSet<(&str, String)> = events
        .iter()
        .map(|event| {
            (methods(event["verb"].as_str().unwrap()), event["requestURI"].as_str().unwrap().to_owned())
        })
        .collect();
    assert_eq!(sent.difference(&found).next(), None, "{} of {}", found.len(), sent.len());
    assert!(sent.len() > 1000, "{}", sent.len());
}
