//! From a stock Karmada to a hub, and back: its recorded objects on an API server with its own definitions, what its agents have
//! left on two members, and the way of `hub/docs/migration.md` in both directions.

use std::{fs, path::Path};

use karmada_client::{Patch, Rest};
use karmada_tests::{
    fleet::{Fleet, Options, cluster_path, condition, file, rest, server_of, start_hub, start_stock},
    recordings::{Differences, Document, differences, recording},
    samples::{binding_path, deployment_path, policy_path, works_path},
    wait::{END, PATIENCE, eventually, throughout, until},
};
use serde_json::{Value, json};

use crate::{is_still, rolled_out, stock::binaries, uid};

/// Karmada's published definitions.
const DEFINITIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/karmada/crds");

/// What was recorded of one server, as it would be in this fleet.
fn of<'a>(documents: &'a [Document], server: &'a str) -> impl Iterator<Item = &'a Value> {
    let shown =
        |document: &&Document| !document.asked.contains("events") && !document.asked.starts_with("lease");
    documents.iter().filter(move |d| d.server == server).filter(shown).flat_map(|d| &d.objects)
}

/// The same with other words for some.
fn with(object: &Value, words: &[(&str, &str)]) -> Value {
    let text = words.iter().fold(object.to_string(), |text, (old, new)| text.replace(old, new));
    let mut object: Value = serde_json::from_str(&text).unwrap();
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
        metadata.shift_remove(field);
    }
    object
}

/// A file of objects.
fn written(dir: &Path, name: &str, objects: &[Value]) -> String {
    let path = dir.join(name);
    fs::write(&path, json!({"items": objects}).to_string()).unwrap();
    path.display().to_string()
}

/// Applies definitions of kinds.
fn define(fleet: &Fleet, files: &[String], to: &str) {
    let files = files.iter().flat_map(|file| ["-f", file.as_str()]);
    fleet.command(&["apply", to].into_iter().chain(files).collect::<Vec<_>>());
}

/// Whether a field is each server's own: how often it has seen an object change, and by which uid it knows an owner.
fn is_a_servers_own(path: &str) -> bool {
    path.contains("/metadata/ownerReferences") || path.to_lowercase().ends_with("generation")
}

/// What is there now of what was recorded, where it differs.
async fn differs(api: &Rest, recorded: &[Value]) -> Differences {
    let mut all = Differences::new();
    for object in recorded {
        let (kind, name) = (object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let path = match kind {
            "Deployment" => deployment_path(namespace, name),
            "ResourceBinding" => binding_path(namespace, name),
            "PropagationPolicy" => policy_path(namespace, "propagationpolicies", name),
            "OverridePolicy" => policy_path(namespace, "overridepolicies", name),
            "Work" => format!("{}/{name}", works_path(namespace.trim_start_matches("karmada-es-"))),
            _ => continue,
        };
        let live = api.get(&path).await.unwrap_or_else(|error| panic!("{path}: {error}"));
        let found = differences(std::slice::from_ref(object), &[live]);
        let found = found.into_iter().filter(|(path, _)| !is_a_servers_own(path));
        all.extend(found.map(|(path, values)| (format!("{kind} {namespace} {path}"), values)));
    }
    all
}

#[tokio::test]
async fn a_karmada_moves_to_the_hub_and_back() {
    let Some(documents) = recording("nginx-override.yaml") else { return };
    let options = Options { hub: Vec::new(), ..Options::default() };
    let Some(mut fleet) = Fleet::start("migrate", 2, &binaries(), options).await else { return };
    let dir = fleet.dir.path().to_owned();
    let names: Vec<String> = fleet.members.iter().map(|member| member.name.clone()).collect();
    assert_eq!(names, ["member1", "member2"], "as they are called in the recording");

    // Karmada's server: its definitions, and its objects as they were recorded.
    let (karmada_process, kubeconfig) = start_stock(&dir, "karmada", &binaries(), false);
    file(&kubeconfig).await;
    let to_karmada = format!("--kubeconfig={}", kubeconfig.display());
    let karmada = rest(&kubeconfig);
    let ours: Vec<Value> =
        serde_saphyr::from_multiple(&String::from_utf8_lossy(&fleet.command(&["crds"]).stdout)).unwrap();
    let clusters: Vec<Value> = ours
        .into_iter()
        .filter(|object| object["metadata"]["name"] == "clusters.cluster.karmada.io")
        .collect();
    let mut definitions = vec![written(&dir, "clusters.json", &clusters)];
    for entry in fs::read_dir(DEFINITIONS).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            definitions.push(path.display().to_string());
        }
    }
    define(&fleet, &definitions, &to_karmada);
    let template = deployment_path("default", "nginx");
    let recorded_template =
        of(&documents, "hub").find(|object| object["kind"] == "Deployment").expect("it is recorded").clone();
    let first = written(&dir, "template.json", &[with(&recorded_template, &[])]);
    fleet.command(&["apply", "--with-status", "-f", &first, &to_karmada]);
    let new_uid = uid(&karmada.get(&template).await.unwrap());
    let old_uid = uid(&recorded_template);
    let mut objects = Vec::new();
    let mut ids = Vec::new();
    for name in &names {
        ids.push(
            fleet.api.get(&cluster_path(name)).await.unwrap()["spec"]["id"].as_str().unwrap().to_owned(),
        );
    }
    for object in of(&documents, "hub") {
        // One member's Cluster and Namespace stand for both.
        let of_member = matches!(object["kind"].as_str(), Some("Cluster" | "Namespace"));
        for (name, id) in names.iter().zip(&ids).take(if of_member { 2 } else { 1 }) {
            let mut object = with(object, &[(old_uid.as_str(), new_uid.as_str())]);
            if of_member {
                object = with(&object, &[("member1", name)]);
            }
            if object["kind"] == "Cluster" {
                object["spec"]["id"] = id.as_str().into();
            }
            objects.push(object);
        }
    }
    objects.sort_by_key(|object| match object["kind"].as_str() {
        Some("Namespace") => 0,
        Some("Cluster") => 1,
        Some("Deployment") => 2,
        _ => 3,
    });
    let all = written(&dir, "karmada.json", &objects);
    fleet.command(&["apply", "--with-status", "-f", &all, &to_karmada]);
    assert_eq!(differs(&karmada, &objects).await, Differences::new(), "it is what was recorded");

    // The members, as Karmada's agents have left them.
    let mut before = Vec::new();
    for member in &fleet.members {
        let left = of(&documents, &member.name).find(|object| object["kind"] == "Deployment");
        let left = with(left.expect("it is recorded"), &[(old_uid.as_str(), new_uid.as_str())]);
        let replicas = left["spec"]["replicas"].as_i64().unwrap();
        // Karmada's agent writes by Update, under this name.
        let path = "/apis/apps/v1/namespaces/default/deployments?fieldManager=karmada-agent";
        member.api.post(path, &left).await.expect("a Deployment");
        let there = until(&member.api, &template, "running", PATIENCE, rolled_out(replicas)).await;
        before.push((member.api.clone(), uid(&there), there["spec"].clone()));
    }

    // Way B, steps 1 to 4: into a new hub.
    let dump = dir.join("dump").display().to_string();
    fleet.command(&["export", &to_karmada, "-o", &dump]);
    let data = format!("--data-dir={}", dir.join("new").display());
    let mut hub = start_hub(&dir, "new", &binaries(), []);
    let admin = dir.join("new").join("admin.kubeconfig");
    file(&admin).await;
    let api = rest(&admin);
    until(&api, &works_path("member1"), "served", PATIENCE, |_| true).await;
    hub.terminate(END).await.expect("it ends");
    fleet.command(&["import", &data, "-f", &dump]);
    hub.set_arg("--listen=", format!("--listen={}", server_of(&admin)));
    hub.spawn().expect("it starts again");

    // Step 5: the agents. Nothing on a member is made again meanwhile.
    let checks = throughout("the members' objects", 4 * PATIENCE, || async {
        for (api, uid, _) in &before {
            is_still(api, &template, uid).await?;
        }
        Ok::<_, String>(())
    });
    let moving = async {
        for member in 0..names.len() {
            fleet.repoint(member, &admin).await;
        }
        fleet.api = api.clone();
        for name in &names {
            fleet.ready(name).await;
        }
        let binding = binding_path("default", "nginx-deployment");
        until(&api, &binding, "bound to its template", PATIENCE, |b| {
            b["metadata"]["ownerReferences"].is_array() && condition(b, "FullyApplied") == Some("True")
        })
        .await;
        until(&api, &template, "summed up", PATIENCE, rolled_out(3)).await;
    };
    tokio::select! {
        biased;
        () = checks => panic!("the move took too long"),
        () = moving => {}
    }
    for (api, _, spec) in &before {
        let now = api.get(&template).await.unwrap();
        assert_eq!(now["spec"], *spec, "nothing of it was changed");
    }
    assert_eq!(differs(&api, &objects).await, Differences::new(), "nothing was scheduled or named anew");
    // It is the hub's now.
    let change = json!({"spec": {"template": {"metadata": {"labels": {"moved": "yes"}}}}});
    api.patch(&template, Patch::Merge, &change).await.expect("a change");
    for (api, ..) in &before {
        until(api, &template, "changed", PATIENCE, |o| {
            o["spec"]["template"]["metadata"]["labels"]["moved"] == "yes"
        })
        .await;
    }
    let back = json!({"spec": {"template": {"metadata": {"labels": {"moved": null}}}}});
    api.patch(&template, Patch::Merge, &back).await.expect("and back");
    until(&api, &template, "summed up again", PATIENCE, rolled_out(3)).await;
    eventually("all to be as it was", PATIENCE, || async {
        let differs = differs(&api, &objects).await;
        if differs.is_empty() { Ok(()) } else { Err(differs) }
    })
    .await;
    for member in &mut fleet.members {
        member.agent.terminate(END).await.expect("it ends");
    }
    hub.terminate(END).await.expect("it ends");

    // Back: to a server with Karmada's definitions, which keep no field that they do not know.
    let dump = dir.join("dump-back").display().to_string();
    fleet.command(&["export", &data, "-o", &dump]);
    let (returned_process, kubeconfig) = start_stock(&dir, "returned", &binaries(), false);
    file(&kubeconfig).await;
    let to_returned = format!("--kubeconfig={}", kubeconfig.display());
    define(&fleet, &definitions, &to_returned);
    for part in ["20-namespaces", "30-clusters", "40-templates", "50-policies", "60-bindings", "70-works"] {
        fleet.command(&["apply", "--with-status", "-f", &format!("{dump}/{part}.yaml"), &to_returned]);
    }
    let mut returned = differs(&rest(&kubeconfig), &objects).await;
    // A template's status is no user's to write: Karmada's controllers sum it up again, of the bindings'.
    returned.retain(|path, _| !path.starts_with("Deployment default nginx/status"));
    assert_eq!(returned, Differences::new(), "it is what Karmada had");
    drop((karmada_process, returned_process));
    fleet.clean_up().await;
}
