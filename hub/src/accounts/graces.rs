//! How much of each grace period of an eviction has been waited, also by hubs before this one.
//!
//! ```text
//!   tasks of bindings ─┐
//!   unhealthy copies ──┴─▶ stopwatches ── every ten seconds while one runs ──▶ ConfigMap ──▶ the next hub
//! ```
//!
//! What is written down is how long was waited, not since when: time in which no hub could hear counts for nobody, and no
//! clock is believed. A hub that is killed loses what it has waited since it last wrote. Taints say themselves since when
//! they are there.

use std::time::Duration;

use karmada_api::consts::namespace;
use karmada_client::{Error, Resource};
use karmada_core::evict::{Lasted, Stopwatch};
use karmada_env::Env;
use karmada_meta::time::Time;
use karmada_objects::{
    Objects, Part,
    key::Key,
    scope::{BindingKey, Scope},
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

/// The ConfigMap in `karmada-system`, and its one entry.
const NAME: &str = "karmada-hub-graces";
const ENTRY: &str = "graces";
/// How often is written down what was waited, and where there is much of it.
const EVERY: Duration = Duration::from_secs(10);
const EVERY_MANY: Duration = Duration::from_secs(60);
const MANY: usize = 200;
/// Between attempts to read it.
const RETRY: Duration = Duration::from_secs(2);
/// The most that is written down of each sort: those that have waited longest.
const MOST: usize = 1000;
/// Nothing waits for longer.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);
/// What this hub has not seen again by then is over.
const SEEN_BY: Duration = Duration::from_secs(600);

/// The grace periods that run.
#[derive(Debug, Default)]
pub(crate) struct Graces {
    /// How long each taint of each cluster has been there.
    pub(crate) taints: Mutex<Stopwatch<String, String>>,
    /// How long tasks have waited while their cluster reported.
    pub(crate) tasks: Mutex<Stopwatch<BindingKey, String>>,
    /// How long copies have been unhealthy.
    pub(crate) ill: Mutex<Stopwatch<BindingKey, String>>,
    recalled: OnceCell<()>,
}

/// One of them, as it is written down: whether its binding is cluster-scoped, that one's namespace and name, a cluster.
#[derive(Debug, Serialize, Deserialize)]
struct Waited {
    what: (bool, String, String, String),
    began: Option<Time>,
    seconds: u64,
}

/// All of them. What cannot be read costs nothing but itself.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Record<T> {
    tasks: Vec<T>,
    ill: Vec<T>,
}

/// What each sort of grace period is kept by: an owner and a part of it.
type Kept = Mutex<Stopwatch<BindingKey, String>>;

fn written(watch: &Kept, now: Duration, recalled: bool) -> Vec<Waited> {
    let mut all = watch.lock().lasted(now, recalled);
    all.sort_by_key(|(.., (_, lasted))| std::cmp::Reverse(*lasted));
    all.truncate(MOST);
    let waited = |(BindingKey { scope, key }, cluster, (began, lasted)): (_, _, Lasted)| Waited {
        what: (scope == Scope::Cluster, key.namespace, key.name, cluster),
        began,
        seconds: lasted.as_secs(),
    };
    all.into_iter().map(waited).collect()
}

/// Takes over what can be read; how much cannot.
fn recall(watch: &Kept, all: Vec<Value>) -> usize {
    let (mut lasted, mut unreadable) = (Vec::new(), 0);
    for one in all.into_iter().take(MOST) {
        let Ok(Waited { what: (cluster_scoped, namespace, name, cluster), began, seconds }) =
            serde_json::from_value(one)
        else {
            unreadable += 1;
            continue;
        };
        let scope = if cluster_scoped { Scope::Cluster } else { Scope::Namespaced };
        let key = BindingKey { scope, key: Key::new(namespace, name) };
        lasted.push((key, cluster, (began, Duration::from_secs(seconds).min(LONGEST))));
    }
    watch.lock().recall(lasted);
    unreadable
}

impl Graces {
    /// What is to be written down, and how many there are; nothing where nothing waits.
    fn record(&self, now: Duration, recalled: bool) -> (String, usize) {
        let (tasks, ill) = (written(&self.tasks, now, recalled), written(&self.ill, now, recalled));
        let count = tasks.len() + ill.len();
        let text = if count == 0 { String::new() } else { json!(Record { tasks, ill }).to_string() };
        (text, count)
    }

    /// Takes over what `text` says; how many of its entries cannot be read.
    fn recall(&self, text: &str) -> Result<usize, serde_json::Error> {
        if text.is_empty() {
            return Ok(0);
        }
        let Record { tasks, ill } = serde_json::from_str(text)?;
        Ok(recall(&self.tasks, tasks) + recall(&self.ill, ill))
    }

    /// Resolves once it is known what was waited before. Whoever measures waits for that.
    pub(crate) async fn recalled(&self, objects: &Objects) {
        let read = || async {
            let mut is_told = false;
            let found = loop {
                match objects.get(&config_maps(), &place()).await {
                    Ok(found) => break found,
                    Err(error) if error.is_forbidden() => {
                        tracing::warn!(%error, "what was waited before evictions cannot be read: it begins anew");
                        return;
                    }
                    // What is begun anew is written down over it.
                    Err(error) if !std::mem::replace(&mut is_told, true) => {
                        tracing::warn!(%error, "what was waited before evictions cannot be read yet: no grace period ends meanwhile");
                    }
                    Err(error) => {
                        tracing::debug!(%error, "what was waited before evictions cannot be read yet")
                    }
                }
                tokio::time::sleep(RETRY).await;
            };
            let text = found.as_ref().and_then(|map| map["data"][ENTRY].as_str()).unwrap_or_default();
            match self.recall(text) {
                Ok(0) => {}
                Ok(unreadable) => tracing::warn!(
                    unreadable,
                    "some of ConfigMap {} cannot be read: those grace periods begin anew",
                    place()
                ),
                Err(error) => tracing::warn!(
                    %error,
                    "ConfigMap {} cannot be read: grace periods of evictions begin anew",
                    place()
                ),
            }
        };
        self.recalled.get_or_init(read).await;
    }

    /// Writes down what is waited, until told to stop, and once more then.
    pub(crate) async fn keep(&self, objects: &Objects, env: &Env, stop: &CancellationToken) {
        let (begun, mut last, mut every) = (env.now(), None, EVERY);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = tokio::time::sleep(every) => {}
            }
            let now = env.now();
            let (text, count) = self.record(now, now.saturating_sub(begun) < SEEN_BY);
            every = if count > MANY { EVERY_MANY } else { EVERY };
            let empty = text.is_empty() && last.is_none();
            if last.as_ref() != Some(&text) && !empty {
                match write(objects, &text).await {
                    Ok(()) => last = Some(text),
                    Err(error) => {
                        tracing::warn!(%error, "what is waited before evictions cannot be written down");
                    }
                }
            }
            if stop.is_cancelled() {
                return;
            }
        }
    }
}

fn config_maps() -> Resource {
    Resource::new("", "v1", "configmaps", "ConfigMap", true)
}

fn place() -> Key {
    Key::new(namespace::SYSTEM, NAME)
}

async fn write(objects: &Objects, text: &str) -> Result<(), Error> {
    let put = |map: &mut Value| {
        let differs = map["data"][ENTRY] != text;
        map["data"] = json!({ ENTRY: text });
        differs
    };
    if objects.modify(&config_maps(), &place(), Part::Main, put).await?.is_none() {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": namespace::SYSTEM}, "data": {ENTRY: text},
        });
        objects.create(&config_maps(), &map).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use karmada_client::Rest;
    use kube::client::Body;

    use super::*;

    #[test]
    fn what_is_written_down_is_read_again_and_bounded() {
        let (graces, next) = (Graces::default(), Graces::default());
        let key = BindingKey { scope: Scope::Namespaced, key: Key::new("shop", "web-deployment") };
        let began: Time = "2026-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(graces.record(Duration::ZERO, true), (String::new(), 0));
        let second = Duration::from_secs(1);
        graces.tasks.lock().watched(&key, &"m".to_owned(), Some(began), 5 * second);
        let ill = |n: u32| format!("m{n}");
        for n in 0..2000 {
            graces.ill.lock().watched(&key, &ill(n), None, n * second);
        }
        let (text, count) = graces.record(3000 * second, true);
        assert_eq!(count, 1 + MOST);
        assert_eq!(next.recall(&text).unwrap(), 0);
        let waited = next.tasks.lock().watched(&key, &"m".to_owned(), Some(began), second);
        assert_eq!(waited, 2995 * second);
        let of = |n: u32| next.ill.lock().watched(&key, &ill(n), None, second);
        assert_eq!((of(0), of(1999)), (3000 * second, Duration::ZERO), "the longest");
        assert_eq!(next.recall(r#"{"tasks":[1,{"what":"x"}],"other":{}}"#).unwrap(), 2);
        assert!(next.recall("[").is_err());
    }
    #[tokio::test(start_paused = true)]
    async fn an_api_that_fails_at_first_costs_nothing_that_was_waited() {
        let was = Graces::default();
        let key = BindingKey { scope: Scope::Namespaced, key: Key::new("shop", "web-deployment") };
        was.ill.lock().watched(&key, &"m".to_owned(), None, Duration::ZERO);
        let (text, _) = was.record(Duration::from_secs(100), true);
        // How often it fails, with which code, and what is known then.
        for (failures, code, known) in [(0, 503, 100), (3, 503, 100), (1, 429, 100), (1, 403, 0)] {
            let (text, asked) = (text.clone(), Arc::new(AtomicUsize::new(0)));
            let service = tower::service_fn(move |_: http::Request<Body>| {
                let body = match asked.fetch_add(1, Ordering::SeqCst) < failures {
                    true => {
                        json!({"kind": "Status", "status": "Failure", "reason": "", "message": "", "code": code})
                    }
                    false => json!({"kind": "ConfigMap", "data": {ENTRY: text}}),
                };
                let status = body["code"].as_u64().map_or(200, |code| code as u16);
                let answer =
                    http::Response::builder().status(status).body(Body::from(body.to_string().into_bytes()));
                std::future::ready(answer)
            });
            let objects = Objects::new(Rest::new(kube::Client::new(service, "default")));
            let graces = Graces::default();
            graces.recalled(&objects).await;
            let second = Duration::from_secs(1);
            let waited = graces.ill.lock().watched(&key, &"m".to_owned(), None, 50 * second);
            assert_eq!(waited, known * second, "{failures} times {code}");
        }
    }
}
