//! What an agent may, line by line: by its own requests here, and by the roles that are written for a stock kube-apiserver.
//! The lines stand here a second time, so that a change of the table is a change of both.

use std::{collections::BTreeSet, time::SystemTime};

use karmada_apiserver::{
    audit::{
        Audit, Mode, Output,
        policy::Policy,
        queue::{Limits, Lines, Lost},
    },
    authz::agent,
};
use parking_lot::Mutex;

use super::*;

/// Verb and path of what the audit log has as forbidden to an agent.
#[derive(Clone, Default)]
struct Forbidden(Arc<Mutex<BTreeSet<(String, String)>>>);

impl Lines for Forbidden {
    fn write(&mut self, lines: &[u8]) -> Result<(), Lost> {
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let event: Value = serde_json::from_slice(line).expect("an event");
            if event["annotations"]["authorization.k8s.io/decision"] == "forbid" {
                assert_eq!(event["user"]["username"], "system:karmada:agent:m1", "{event}");
                let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
                self.0.lock().insert((text("verb"), text("requestURI")));
            }
        }
        Ok(())
    }
}

/// Group, version, resource with its subresource, namespace (`*`: any, or none), names (none: any), verbs.
type Line = (&'static str, &'static str, &'static str, &'static str, &'static [&'static str], &'static str);

const ALL: &str = "get list watch create update patch delete";
const STATUS: &str = "get update patch";
const EVENTS: &str = "create update patch";
const READ: &str = "get list watch";

/// Of the agent of m1.
const LINES: [Line; 14] = [
    ("work.karmada.io", "v1alpha1", "works", "karmada-es-m1", &[], ALL),
    ("work.karmada.io", "v1alpha1", "works/status", "karmada-es-m1", &[], STATUS),
    ("cluster.karmada.io", "v1alpha1", "clusters", "*", &["m1"], ALL),
    ("cluster.karmada.io", "v1alpha1", "clusters/status", "*", &["m1"], STATUS),
    ("coordination.k8s.io", "v1", "leases", "karmada-cluster", &["m1"], "get create update patch"),
    ("", "v1", "events", "karmada-es-m1", &[], EVENTS),
    ("", "v1", "events", "default", &[], EVENTS),
    ("events.k8s.io", "v1", "events", "karmada-es-m1", &[], EVENTS),
    ("events.k8s.io", "v1", "events", "default", &[], EVENTS),
    ("", "v1", "secrets", "karmada-cluster", &["m1", "m1-impersonator"], "get patch create"),
    ("", "v1", "namespaces", "*", &["karmada-es-m1", "karmada-cluster"], "get"),
    ("certificates.k8s.io", "v1", REQUESTS, "*", &["m1-abcde"], "get create"),
    ("config.karmada.io", "v1alpha1", "resourceinterpretercustomizations", "*", &[], READ),
    ("config.karmada.io", "v1alpha1", "resourceinterpreterwebhookconfigurations", "*", &[], READ),
];

const REQUESTS: &str = "certificatesigningrequests";

/// A request as the lines speak of it.
#[derive(Clone, Copy, Debug)]
struct Asked<'a> {
    group: &'a str,
    resource: &'a str,
    namespace: &'a str,
    /// That of the path, or of the field selector.
    name: &'a str,
    verb: &'a str,
}

fn is_own(asked: Asked<'_>) -> bool {
    if asked.verb == "create" && REVIEWS.contains(&(asked.group, asked.resource)) {
        return true;
    }
    LINES.iter().any(|(group, _, resource, namespace, names, verbs)| {
        asked.group == *group
            && asked.resource == *resource
            && (*namespace == "*" || asked.namespace == *namespace)
            && verbs.split(' ').any(|verb| verb == asked.verb)
            && (names.is_empty()
                || names.contains(&asked.name)
                || asked.verb == "create" && asked.name.is_empty())
    })
}

/// What everyone may create who has authenticated.
const REVIEWS: [(&str, &str); 3] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
];

fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

#[tokio::test]
async fn every_line_holds_here_and_as_a_role_elsewhere() {
    let world = World::start().await;
    let peer = world.agent(0, DAY);
    let namespaces = "/api/v1/namespaces";
    for cluster in ["m1", "m2"] {
        let user = agent::Subject::User(format!("edge-{cluster}"));
        for object in agent::roles(cluster, &user) {
            let metadata = &object["metadata"];
            let (kind, namespace) = (object["kind"].as_str().unwrap(), metadata["namespace"].as_str());
            let path = match (kind, namespace) {
                ("Namespace", _) => namespaces.to_owned(),
                (kind, namespace) => {
                    let within = namespace.map(|name| format!("/namespaces/{name}")).unwrap_or_default();
                    let plural = kind.to_ascii_lowercase();
                    format!("/apis/rbac.authorization.k8s.io/v1{within}/{plural}s")
                }
            };
            if let Err(error) = world.admin.post(&path, &object).await {
                assert!(error.is_already_exists(), "{object}: {error}");
            }
        }
    }
    for (group, version, resource, namespace, names, verbs) in LINES {
        let (plain, sub) = resource.split_once('/').unwrap_or((resource, ""));
        let here = if namespace == "*" { "" } else { namespace };
        let elsewhere = here.replace("m1", "m2");
        let own = names.first().copied().unwrap_or("x");
        let other = own.replace("m1", "m2");
        for verb in verbs.split(' ') {
            // (the namespace, the name, whether it is the agent's own)
            let mut cases = vec![(here.to_owned(), own.to_owned(), true)];
            if other != own {
                cases.push((here.to_owned(), other.clone(), false));
            }
            if elsewhere != here {
                cases.push((elsewhere.clone(), own.to_owned(), false));
            }
            for (namespace, name, is_own) in cases {
                let what = format!("{verb} {group}/{resource} {namespace}/{name}");
                // Here: what it may is not refused for want of a right, whatever else may be wrong with it.
                let within =
                    if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
                let tail = if sub.is_empty() { String::new() } else { format!("/{sub}") };
                let base = format!("{}{within}/{plain}", root(group, version));
                let selected = format!("{base}?fieldSelector=metadata.name%3D{name}&timeoutSeconds=1");
                let (method, path) = match verb {
                    "get" => (Method::GET, format!("{base}/{name}{tail}")),
                    "list" => (Method::GET, selected),
                    "watch" => (Method::GET, format!("{selected}&watch=true")),
                    "create" => (Method::POST, base),
                    "update" => (Method::PUT, format!("{base}/{name}{tail}")),
                    "patch" => (Method::PATCH, format!("{base}/{name}{tail}")),
                    _ => (Method::DELETE, format!("{base}/{name}{tail}")),
                };
                let body = json!({"metadata": {"name": name}});
                let answer = world.send(&peer, method, &path, &body).await;
                let code = answer.status().as_u16();
                if verb == "watch" && code == 200 {
                    drop(answer);
                    assert!(is_own, "{what}");
                    continue;
                }
                let text = axum::body::to_bytes(answer.into_body(), 1 << 20).await.expect("a body");
                let text = String::from_utf8_lossy(&text);
                let refused = code == 403 && text.contains("has rights on its own cluster's objects only");
                assert_eq!(refused, !is_own, "{what}: {code} {text}");
                // There: RBAC looks at no name in a body; a list has that of its selector.
                let names_one = verb != "create";
                let asked = json!({"group": group, "resource": plain, "subresource": sub, "verb": verb,
                    "namespace": namespace, "name": if names_one { name.as_str() } else { "" }});
                let review = json!({"spec": {"user": "edge-m1", "resourceAttributes": asked}});
                let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
                let review = world.admin.post(path, &review).await.expect("an answer");
                let same_place = namespace == here;
                // Nor at how a name begins.
                let by_role = is_own || (!names_one || plain == REQUESTS) && same_place;
                assert_eq!(review["status"]["allowed"], by_role, "{what}: {review}");
                let reason = review["status"]["reason"].as_str().unwrap_or_default();
                assert_eq!(reason.starts_with("RBAC: allowed by "), by_role, "{what}: {review}");
            }
        }
    }
    for verb in ["list", "watch", "deletecollection"] {
        let all = json!({"group": "cluster.karmada.io", "resource": "clusters", "verb": verb});
        let review = json!({"spec": {"user": "edge-m1", "resourceAttributes": all}});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let review = world.admin.post(path, &review).await.expect("an answer");
        assert_eq!(review["status"]["allowed"], false, "{verb} all clusters: {review}");
    }
    world.stop().await;
}

/// Every kind that is served, wherever it may be, by every verb, every subresource and every way to read: an agent is told
/// that it may not, and so is the audit log, unless a line says that it may. (What is in the body of what it creates is judged beside that.)
#[tokio::test]
async fn an_agent_is_refused_whatever_is_not_its_own() {
    let world = World::start().await;
    let peer = world.agent(0, DAY);
    let cluster = json!({"metadata": {"name": "m2"}, "spec": {"id": "u2", "syncMode": "Pull"}});
    world.admin.post(CLUSTERS, &cluster).await.expect("another cluster");
    let forbidden = Forbidden::default();
    let policy = b"apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]";
    let limits = Limits { entries: 1_000_000, bytes: 1 << 30, ..Limits::default() };
    let clock = ManualClock::new(SystemTime::UNIX_EPOCH);
    let env = Env::seeded(clock.clone(), 2);
    let output = Output::new("log", Mode::Batch, forbidden.clone(), limits, env.clone()).expect("a thread");
    let audit = Arc::new(Audit::new(Policy::parse(policy).expect("a policy"), vec![output], env));
    world.embedded.server().audit_by(audit.clone());
    let (mut refused, mut own, mut wrong) = (BTreeSet::new(), 0, Vec::new());
    let kinds = world.embedded.server().kinds();
    for kind in kinds.iter() {
        // So much as is told of one who is refused on and on is told of each kind.
        clock.advance(DAY);
        let (group, plural) = (kind.gvr.group.as_str(), kind.gvr.resource.as_str());
        let mut subresources: Vec<&str> = kind.subresources.iter().map(|sub| sub.name.as_str()).collect();
        subresources.extend(["", "status", "scale", "proxy", "finalize", "approval", "token"]);
        subresources.sort_unstable();
        subresources.dedup();
        let namespaces: &[&str] = match kind.namespaced {
            true => &["karmada-es-m1", "karmada-es-m2", "karmada-cluster", "default", "kube-system", ""],
            false => &[""],
        };
        for namespace in namespaces {
            let within =
                if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
            let base = format!("{}{within}/{plural}", root(group, &kind.gvr.version));
            let mut asks: Vec<(Method, String, String, &str, &str)> = Vec::new();
            for name in ["m1", "m2"] {
                for sub in &subresources {
                    let full = if sub.is_empty() { plural.to_owned() } else { format!("{plural}/{sub}") };
                    let path = if sub.is_empty() {
                        format!("{base}/{name}")
                    } else {
                        format!("{base}/{name}/{sub}")
                    };
                    let verbs = [
                        (Method::GET, "get"),
                        (Method::PUT, "update"),
                        (Method::PATCH, "patch"),
                        (Method::DELETE, "delete"),
                        (Method::POST, "create"),
                    ];
                    // What a Namespace has below it is a resource in it, but for these two.
                    if plural == "namespaces" && !["", "status", "finalize"].contains(sub) {
                        continue;
                    }
                    asks.extend(verbs.map(|(method, verb)| (method, path.clone(), full.clone(), name, verb)));
                }
                for (query, verb) in [("", "list"), ("&watch=1", "watch")] {
                    let path = format!("{base}?fieldSelector=metadata.name%3D{name}&timeoutSeconds=1{query}");
                    asks.push((Method::GET, path, plural.to_owned(), name, verb));
                }
            }
            let bare = |query: &str| format!("{base}?timeoutSeconds=1{query}");
            asks.extend([
                (Method::GET, bare(""), plural.to_owned(), "", "list"),
                (Method::GET, bare("&watch=true"), plural.to_owned(), "", "watch"),
                (Method::GET, bare("&labelSelector=a%3Db&limit=1"), plural.to_owned(), "", "list"),
                (Method::GET, bare("&fieldSelector=metadata.name!%3Dm1"), plural.to_owned(), "", "list"),
                (Method::DELETE, bare(""), plural.to_owned(), "", "deletecollection"),
                (Method::POST, base.clone(), plural.to_owned(), "", "create"),
            ]);
            for (method, path, full, name, verb) in asks {
                let asked = Asked { group, resource: &full, namespace, name, verb };
                let answer = world.send(&peer, method.clone(), &path, &json!({})).await;
                match (answer.status().as_u16(), is_own(asked)) {
                    (403, false) => drop(refused.insert((verb.to_owned(), path))),
                    (_, true) => own += 1,
                    (code, false) => wrong.push(format!("{method} {path}: {code}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} were answered: {:#?}", wrong.len(), &wrong[..wrong.len().min(20)]);
    assert!(refused.len() > 10_000 && own > 30, "{} refused, {own} its own", refused.len());
    audit.close(LIMIT).await.expect("all is written");
    let told = std::mem::take(&mut *forbidden.0.lock());
    let untold: Vec<_> = refused.difference(&told).collect();
    assert!(
        untold.is_empty(),
        "{} are not in the audit log: {:#?}",
        untold.len(),
        &untold[..untold.len().min(20)]
    );
    world.stop().await;
}
