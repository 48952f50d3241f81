//! A hub whose store holds objects of very many values.

use karmada_client::{Event, WatchConfig, Watcher, rest::Bounds};
use karmada_objects::{Objects, kinds::WORKS};
use parking_lot::Mutex;

use super::*;

/// A Work of so many zeros.
fn work(name: &str, zeros: usize) -> Value {
    let manifest =
        json!({"apiVersion": "a.io/v1", "kind": "Bag", "metadata": {"name": "bag"}, "x": vec![0; zeros]});
    json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {"name": name, "namespace": "karmada-es-m1"},
        "spec": {"workload": {"manifests": [manifest]}},
    })
}

#[tokio::test]
async fn whatever_is_stored_is_read_by_the_hub_itself() {
    let world = World::start().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karmada-es-m1"}});
    world.admin.post("/api/v1/namespaces", &namespace).await.expect("a namespace");
    let path = WORKS.collection(Some("karmada-es-m1"));
    for (name, zeros) in [("a", 1), ("b", 500_000), ("c", 100_000)] {
        world.admin.post(&path, &work(name, zeros)).await.expect("it is stored");
    }
    // One by one, as a list, as a watch.
    let objects = Objects::new(world.admin.clone());
    // Also where an answer takes the longest of them and no other.
    let narrow = Bounds { answer: 1_100_000, ..Bounds::default() };
    for objects in [objects, Objects::new(world.admin.clone().bounded(narrow))] {
        let listed = Mutex::new(Vec::new());
        let take = |page: Vec<Value>| {
            let names = page.iter().map(|work| work["metadata"]["name"].as_str().unwrap_or("").to_owned());
            listed.lock().extend(names);
        };
        objects.list(&WORKS, None, "", take).await.expect("a list");
        assert_eq!(*listed.lock(), ["a", "b", "c"]);
    }
    let one = world.admin.get(&WORKS.object(Some("karmada-es-m1"), "b")).await.expect("an object");
    assert_eq!(
        one.pointer("/spec/workload/manifests/0/x").and_then(Value::as_array).map(Vec::len),
        Some(500_000)
    );
    let mut watcher =
        Watcher::new(world.embedded.client(), WatchConfig::new(path.as_str()), Env::system(), |text| {
            Ok(text.len())
        });
    let mut lengths = Vec::new();
    let watching = async {
        loop {
            match watcher.next().await {
                Event::Upsert(length) => lengths.push(length),
                Event::Synced => {
                    world.admin.post(&path, &work("d", 200_000)).await.map(drop).expect("another")
                }
                Event::Init | Event::Delete(_) => {}
            }
            if lengths.len() == 4 {
                break;
            }
        }
    };
    timeout(LIMIT, watching).await.expect("in time");
    assert!(lengths[1] > 1_000_000 && lengths[3] > 400_000, "{lengths:?}");
    // A hub starts with them, and goes on.
    let hub = world.embedded.hub(HubConfig::default(), &Env::system()).expect("controllers");
    let (ready, watches) = (hub.ready(), hub.watches());
    let stop = CancellationToken::new();
    let running = tokio::spawn(hub.run(stop.clone()));
    let starting = async {
        while !*ready.borrow() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LIMIT, starting).await.expect("the controllers are ready");
    assert_eq!(watches.told(false), "");
    stop.cancel();
    running.await.expect("it ends").expect("as it should");
    world.stop().await;
}
