//! How long it takes to judge one request, and to take in one binding, beside ten thousand role bindings.
//!
//!     cargo bench -p karmada-apiserver --bench rbac
//!
//! Nothing is asserted.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench measures real time, prints, and ends where a step fails"
)]

use std::{
    collections::BTreeSet,
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use karmada_apiserver::{
    authn::UserInfo,
    authz::{Attributes, Authorizer, Decision, ResourceTarget, Roles, Target, rbac::Rbac},
    follow::Derived,
    open_store,
    storage::ApiStore,
};
use karmada_env::Env;
use karmada_store::{Expect, Key, Op, engine::Memory};
use serde_json::{Value, json};

const BINDINGS: usize = 10_000;
const ROUNDS: usize = 100;
const CALLS: u32 = 1_000;
const GROUP: &str = "rbac.authorization.k8s.io";

fn put(resource: &str, namespace: &str, name: &str, mut object: Value) -> Op {
    object["metadata"] = json!({"name": name, "namespace": namespace});
    Op::put(Key::new(&*format!("{GROUP}/{resource}"), namespace, name), Expect::Any, object.to_string())
}

fn binding(kind: &str, role: &str, subject: &Value) -> Value {
    json!({"roleRef": {"apiGroup": GROUP, "kind": kind, "name": role}, "subjects": [subject]})
}

/// A namespace for each of a hundred teams: bindings to people, to groups, of roles that many have and of roles that nobody
/// else has.
fn fleet() -> Vec<Op> {
    let editor: Vec<Value> = ["configmaps", "secrets", "services", "deployments", "jobs", "pods"]
        .iter()
        .map(|resource| {
            let more: Vec<String> = (0..8).map(|n| format!("{resource}{n}")).chain([(*resource).to_owned()]).collect();
            json!({"apiGroups": ["", "apps", "batch"], "resources": more, "verbs": ["get", "list", "watch", "create"]})
        })
        .collect();
    let mut ops = vec![put("clusterroles", "", "editor", json!({"rules": editor}))];
    let own = json!({"rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]});
    for number in 0..BINDINGS {
        let (namespace, name) = (format!("team-{}", number % 100), format!("b{number}"));
        let user = json!({"kind": "User", "name": format!("user-{}", number / 10)});
        let group = json!({"kind": "Group", "name": format!("team-{}", number % 100)});
        let made = match number % 4 {
            0 => {
                ops.push(put("roles", &namespace, &name, own.clone()));
                binding("Role", &name, &group)
            }
            1 => binding("ClusterRole", "editor", &group),
            _ => binding("ClusterRole", "editor", &user),
        };
        ops.push(put("rolebindings", &namespace, &name, made));
    }
    ops
}

fn middle(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort_unstable();
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

async fn store() -> ApiStore {
    let store = open_store(Memory::new(), &Env::system()).unwrap();
    let ops = fleet();
    for chunk in ops.chunks(500) {
        store.commit(chunk.to_vec()).await.unwrap();
    }
    store
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = runtime.block_on(store());
    let rbac = Arc::new(Rbac::default());
    let begun = Instant::now();
    rbac.rebuild(&store.snapshot());
    println!("{BINDINGS} role bindings read at the start: {:.1?}", begun.elapsed());
    let roles = Roles::new(rbac.clone());
    let asks = [
        (
            "a person, allowed by one of their bindings",
            UserInfo::new("user-42", ["all"]),
            "team-22",
            "deployments",
        ),
        ("a person, refused", UserInfo::new("user-42", ["all"]), "team-22", "leases"),
        ("a member of three groups, allowed", UserInfo::new("x", ["a", "b", "team-1"]), "team-1", "pods7"),
        (
            "a group with a hundred bindings in the namespace, refused",
            UserInfo::new("x", ["team-4"]),
            "team-4",
            "leases",
        ),
        ("nobody that a role is bound to", UserInfo::new("y", ["z"]), "team-1", "pods"),
    ];
    for (what, user, namespace, resource) in &asks {
        let target =
            ResourceTarget { group: "apps", resource, namespace, name: "x", ..ResourceTarget::default() };
        let attributes = Attributes { user, verb: "get", target: Target::Resource(target) };
        let allowed = roles.authorize(&attributes) == Decision::Allow;
        let times = (0..ROUNDS).map(|_| {
            let begun = Instant::now();
            for _ in 0..CALLS {
                black_box(roles.authorize(black_box(&attributes)));
            }
            begun.elapsed() / CALLS
        });
        let (median, p99) = middle(times.collect());
        println!("{what} ({allowed}): {median:.2?} / {p99:.2?}");
    }
    let times = (0..ROUNDS).map(|number| {
        let key = Key::new(&*format!("{GROUP}/rolebindings"), "team-1", &*format!("b{}", 100 * number + 1));
        let (changed, now) = (BTreeSet::from([key]), store.snapshot());
        let begun = Instant::now();
        rbac.update(&changed, &now);
        begun.elapsed()
    });
    let (median, p99) = middle(times.collect());
    println!("one binding that changes: {median:.2?} / {p99:.2?}");
}
