//! However a cluster leaves, nothing of it is left on the hub, and on the member is what its policies say.

use karmada_client::Patch;
use karmada_tests::{
    fleet::cluster_path,
    link::Mode,
    wait::{eventually, gone},
};

use super::*;

/// What its agent does meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Agent {
    Works,
    /// Its link is dead, from before the deletion until after.
    Away,
    /// It ends in the midst of it.
    Stops,
    /// It was stopped, and is started when the Cluster is being deleted.
    Starts,
}

/// What becomes of an object on the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Gone,
    /// It stays without our marks: it is the member's own from now on.
    Free,
    /// It stays as it is, since nobody was there to touch it.
    Untouched,
}

/// Everything on the hub that speaks of a cluster.
async fn traces(world: &World, cluster: &str) -> Vec<String> {
    let mut traces = Vec::new();
    for path in [
        cluster_path(cluster),
        format!("/api/v1/namespaces/karmada-es-{cluster}"),
        format!("/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/{cluster}"),
    ] {
        if world.api().get(&path).await.is_ok() {
            traces.push(path);
        }
    }
    for path in [samples::works_path(cluster), "/apis/work.karmada.io/v1alpha2/resourcebindings".to_owned()] {
        let list = world.api().get(&path).await.expect("a list");
        for object in list["items"].as_array().into_iter().flatten() {
            let placed = object["spec"]["clusters"].to_string();
            if path.contains("/works")
                || placed.contains(cluster)
                || object["metadata"].get("deletionTimestamp").is_some()
            {
                traces.push(format!("{path}: {}", object["metadata"]["name"]));
            }
        }
    }
    traces
}

#[tokio::test(start_paused = true)]
async fn however_a_cluster_leaves_nothing_of_it_is_left_on_the_hub() {
    let rows = [
        (Agent::Works, false, Left::Gone),
        (Agent::Works, true, Left::Free),
        (Agent::Away, false, Left::Untouched),
        (Agent::Away, true, Left::Untouched),
        (Agent::Stops, false, Left::Untouched),
        (Agent::Starts, false, Left::Gone),
        (Agent::Starts, true, Left::Free),
    ];
    for (number, (agent, preserve, left)) in (700..).zip(rows) {
        let mut world = World::start(number, 2).await;
        placed_config_map(&world, "settings", "a").await;
        let policy = samples::policy_path(World::NAMESPACE, "propagationpolicies", "settings");
        let change = json!({"spec": {"preserveResourcesOnDeletion": preserve}});
        world.api().patch(&policy, Patch::Merge, &change).await.expect("the policy is changed");
        work_of(&world, "member1", "ConfigMap", "settings", "told", |work| {
            work["spec"]["preserveResourcesOnDeletion"].as_bool().unwrap_or_default() == preserve
        })
        .await;
        let before = uid(&world.members[0].api.get(&config_map_path("settings")).await.unwrap());
        match agent {
            Agent::Away => {
                world.members[0].wire.set(Mode::BlackHole);
                world
                    .cluster_until("member1", "unknown", PATIENCE * 2, |cluster| {
                        karmada_tests::fleet::condition(cluster, "Ready") == Some("Unknown")
                    })
                    .await;
            }
            Agent::Stops => {
                // What it is to take down is held up, so that it has not done so when it ends.
                world.members[0].wire.set(Mode::BlackHole);
            }
            Agent::Starts => world.stop_agent(0).await,
            Agent::Works => {}
        }
        world.delete(&cluster_path("member1")).await;
        match agent {
            Agent::Stops => world.stop_agent(0).await,
            Agent::Starts => world.start_agent(0),
            Agent::Works | Agent::Away => {}
        }
        gone(&world.api(), &cluster_path("member1"), PATIENCE * 3).await;
        eventually("no trace of it", PATIENCE, || async {
            let traces = traces(&world, "member1").await;
            if traces.is_empty() { Ok(()) } else { Err(traces) }
        })
        .await;
        if agent == Agent::Away {
            world.members[0].wire.set(Mode::Pass);
        }
        tokio::time::sleep(PATIENCE).await;
        let what = format!("{agent:?}, {preserve}");
        let found = world.members[0].api.get(&config_map_path("settings")).await.ok();
        let marked =
            found.as_ref().map(|object| object.pointer("/metadata/labels/karmada.io~1managed").is_some());
        let got = match marked {
            None => Left::Gone,
            Some(false) => Left::Free,
            Some(true) => Left::Untouched,
        };
        assert_eq!(got, left, "{what}");
        assert!(found.is_none_or(|object| uid(&object) == before), "{what}: nothing was made anew");
        assert!(traces(&world, "member1").await.is_empty(), "{what}: it does not come back by itself");
        assert!(world.members[1].api.get(&config_map_path("settings")).await.is_ok(), "{what}");
        world.stop().await;
    }
}
