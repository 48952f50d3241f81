//! From the hub's own API to a stock server.

use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt};

use karmada_client::{Patch, Rest};
use karmada_tests::{
    fleet::{Fleet, Options, condition, file, rest, start_stock},
    samples::{
        article, binding_path, config_map, config_map_path, config_map_policy, deployment_path, works_path,
    },
    wait::{END, PATIENCE, gone, throughout, until},
};
use serde_json::{Value, json};

use crate::{
    is_still, placed, rolled_out,
    stock::{Hub, binaries},
    uid,
};

fn uids(list: &Value) -> BTreeSet<String> {
    list["items"].as_array().into_iter().flatten().map(uid).collect()
}

/// The Works of clusters, by what does not change when they move.
async fn works_of(api: &Rest, clusters: &[String]) -> BTreeSet<String> {
    let mut works = BTreeSet::new();
    for cluster in clusters {
        let list = api.get(&works_path(cluster)).await.expect("Works");
        for work in list["items"].as_array().into_iter().flatten() {
            let metadata = &work["metadata"];
            works.insert(format!("{cluster} {} {}", metadata["name"], metadata["labels"]));
        }
    }
    works
}

#[tokio::test]
async fn a_hub_moves_without_a_member_noticing() {
    let options = Options { hub: Vec::new(), ..Options::default() };
    let Some(mut fleet) = Fleet::start("move", 2, &binaries(), options).await else { return };
    fleet.create_namespace().await;
    let names: Vec<String> = fleet.members.iter().map(|m| m.name.clone()).collect();
    fleet.create(article([&names[0], &names[1]])).await;
    let on_all: Vec<&str> = names.iter().map(String::as_str).collect();
    fleet.create([config_map("settings", "on: \"1e3\"\nno"), config_map_policy("settings", &on_all)]).await;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": fleet.namespace},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    });
    let everywhere = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterPropagationPolicy",
        "metadata": {"name": fleet.namespace},
        "spec": {
            "resourceSelectors": [{
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": fleet.namespace,
            }],
            "placement": {"clusterAffinity": {"clusterNames": names}},
        },
    });
    fleet.create([role, everywhere]).await;
    let template = deployment_path(&fleet.namespace, "nginx");
    until(&fleet.api, &template, "rolled out", PATIENCE, rolled_out(3)).await;
    let watched = [
        template.clone(),
        config_map_path(&fleet.namespace, "settings"),
        format!("/api/v1/namespaces/{}", fleet.namespace),
        format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{}", fleet.namespace),
    ];
    let mut before = Vec::new();
    for member in &fleet.members {
        for path in &watched {
            before.push((member.api.clone(), path.clone(), placed(&member.api, path).await));
        }
    }
    let binding = binding_path(&fleet.namespace, "nginx-deployment");
    until(&fleet.api, &binding, "fully applied", PATIENCE, |b| condition(b, "FullyApplied") == Some("True"))
        .await;
    let old_binding = fleet.api.get(&binding).await.expect("the binding");
    let old_works = works_of(&fleet.api, &names).await;
    let pods = format!("/api/v1/namespaces/{}/pods", fleet.namespace);
    let mut running = Vec::new();
    for member in &fleet.members {
        running.push((member.api.clone(), uids(&member.api.get(&pods).await.expect("Pods"))));
    }

    // 1, 2: stop, export.
    let status = fleet.hub.terminate(END).await.expect("it ends");
    assert_eq!(status.code(), Some(0));
    let dump = fleet.dir.path().join("dump");
    let data = format!("--data-dir={}", fleet.dir.path().join("hub").display());
    fleet.command(&["export", &data, "-o", &dump.display().to_string()]);
    let mut files: Vec<_> = fs::read_dir(&dump).unwrap().map(|f| f.unwrap()).collect();
    files.sort_by_key(|f| f.file_name());
    assert_eq!(files.len(), 7);
    for file in &files {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", file.path());
    }
    let stream = fleet.command(&["export", &data]);
    let together: String = files.iter().map(|f| fs::read_to_string(f.path()).unwrap()).collect();
    let parse = |text: &str| serde_saphyr::from_multiple::<Value>(text).expect("YAML");
    assert_eq!(parse(&String::from_utf8_lossy(&stream.stdout)), parse(&together));

    // 3: apply to a fresh server.
    let (engine, kubeconfig) = start_stock(fleet.dir.path(), "engine", &binaries(), false);
    file(&kubeconfig).await;
    fleet.engine = Some(engine);
    let (from, to) = (dump.display().to_string(), kubeconfig.display().to_string());
    fleet.command(&["apply", "--with-status", "-f", &from, "--kubeconfig", &to]);
    let new = rest(&kubeconfig);
    let moved = new.get(&binding).await.expect("the binding is there");
    assert_eq!(moved["metadata"]["labels"], old_binding["metadata"]["labels"], "permanent ids stay");
    assert_eq!(moved["status"]["aggregatedStatus"], old_binding["status"]["aggregatedStatus"]);

    // 4, 5: a hub there, and the agents to it; from here on nothing on a member may change its uid.
    let checks = throughout("the members' objects", 4 * PATIENCE, || async {
        for (api, path, uid) in &before {
            is_still(api, path, uid).await?;
        }
        Ok::<_, String>(())
    });
    let fleet_dir = fleet.dir.path().to_owned();
    let hub = Hub::start(&fleet_dir, "moved", &kubeconfig, &[]).await;
    let moving = async {
        hub.ready().await;
        for member in 0..fleet.members.len() {
            fleet.repoint(member, &kubeconfig).await;
        }
        fleet.api = new.clone();
        for name in &names {
            fleet.ready(name).await;
        }
        // The hub knows its templates again, with all that belongs to that.
        let bound = until(&new, &binding, "bound to its template", PATIENCE, |b| {
            b["metadata"]["ownerReferences"].is_array() && condition(b, "FullyApplied") == Some("True")
        })
        .await;
        assert_eq!(
            bound["metadata"]["ownerReferences"][0]["uid"],
            new.get(&template).await.unwrap()["metadata"]["uid"]
        );
        let settled = |works: &Value| {
            let works = works["items"].as_array().cloned().unwrap_or_default();
            works.len() == 4 && works.iter().all(|w| condition(w, "Applied") == Some("True"))
        };
        for name in &names {
            until(&new, &works_path(name), "applied", PATIENCE, settled).await;
        }
        until(&new, &template, "summed up again", PATIENCE, rolled_out(3)).await;
        // It goes on as before.
        let scale = json!({"data": {"key": "after the move"}});
        new.patch(&watched[1], Patch::Merge, &scale).await.expect("a change");
        for member in &fleet.members {
            until(&member.api, &watched[1], "changed", PATIENCE, |o| o["data"]["key"] == "after the move")
                .await;
        }
    };
    tokio::select! {
        biased;
        () = checks => panic!("the move took too long"),
        () = moving => {}
    }
    for (api, path, uid) in &before {
        is_still(api, path, uid).await.expect("it is the same");
    }
    for (api, before) in &running {
        assert_eq!(uids(&api.get(&pods).await.expect("Pods")), *before, "nothing was rolled out anew");
    }
    assert_eq!(works_of(&new, &names).await, old_works, "Works keep their names and permanent ids");
    new.delete(&template, &json!({})).await.expect("the template is deleted");
    for member in &fleet.members {
        gone(&member.api, &template, PATIENCE).await;
    }
    fleet.clean_up().await;
}
