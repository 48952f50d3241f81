//! What users have searched, of members in push mode: followed by watches of the hub's own, and kept without what nobody searches.
//!
//! ```text
//!   ResourceRegistries ─▶ Searched ─▶ follow: one per member ─▶ a watch of each kind ─▶ Copies ─▶ searches
//! ```
//!
//! A member's watches go by the same pace as what the hub does there otherwise, and what is kept has bounds of its own within
//! those of all members. Where there is no room for a kind nothing is kept of it, and its member is asked. What is kept goes with
//! what works on the member: it is never another member's.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use karmada_api::cluster::Cluster;
use karmada_client::{Backoff, Event, Policy, Resource, Rest, Wake, WatchConfig, kept::Kept, watch::Keeping};
use karmada_core::search::{
    Followed,
    told::{self, Named},
};
use karmada_env::Env;
use karmada_objects::key::Key;
use karmada_reach::{Copied, Place};
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::{Instant, sleep, sleep_until},
};
use tokio_util::task::AbortOnDropHandle;

use crate::known::searched::Searched;

/// So many kinds of all members are listed at a time.
const LISTS: usize = 16;
/// So long others wait at most for one that is listed.
const LISTED: Duration = Duration::from_secs(10);
/// So often it is looked whether a cluster's labels have it searched still.
const LOOK: Duration = Duration::from_secs(30);
/// Before it is looked again for a kind that a member has not told of.
const ABSENT: Policy = Policy::new(Duration::from_secs(2), Duration::from_secs(300));

/// See the module.
#[derive(Debug)]
pub(crate) struct Copies {
    searched: Arc<Searched>,
    lists: Semaphore,
    all: RwLock<HashMap<String, BTreeMap<Followed, Arc<Copy>>>>,
    env: Env,
}

/// What is kept of a kind on a member.
#[derive(Debug, Default)]
struct Copy(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    plural: String,
    /// None where nothing is known.
    objects: Option<BTreeMap<Key, Kept<Arc<str>>>>,
    revision: String,
    /// [`Env::now`] when it was last heard, where it is not followed at present.
    lost: Option<Duration>,
}

/// Takes a member's copies away.
struct Gone<'a>(&'a Copies, &'a str);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.0.all.write().remove(self.1);
    }
}

impl Copies {
    /// Of nothing yet.
    pub(crate) fn new(searched: &Arc<Searched>, env: &Env) -> Self {
        Self {
            searched: searched.clone(),
            lists: Semaphore::new(LISTS),
            all: RwLock::default(),
            env: env.clone(),
        }
    }

    /// What is kept of a kind on a cluster: of all of it, or of that one namespace.
    pub(crate) fn of(&self, cluster: &str, place: &Place) -> Option<Copied> {
        let api_version = place.api_version();
        let all = self.all.read();
        let fits = |followed: &Followed, copy: &Copy| {
            followed.api_version == api_version
                && (followed.namespace.is_empty() || followed.namespace == place.namespace)
                && copy.0.lock().plural == place.resource
        };
        let (followed, copy) = all.get(cluster)?.iter().find(|(followed, copy)| fits(followed, copy))?;
        let state = copy.0.lock();
        let objects = state.objects.as_ref()?;
        Some(Copied {
            api_version,
            kind: followed.kind.clone(),
            revision: state.revision.clone(),
            objects: objects.values().map(|kept| kept.value().clone()).collect(),
            age: state.lost.map(|lost| self.env.now().saturating_sub(lost)),
        })
    }

    /// Follows on a member what is searched there, until it is dropped. `about`: its Cluster, as it is.
    pub(super) async fn follow(
        self: &Arc<Self>,
        cluster: &str,
        member: impl Fn() -> Rest + Send,
        back: &Wake,
        about: impl Fn() -> Option<Arc<Cluster>> + Send,
    ) {
        let _gone = Gone(self, cluster);
        let mut changed = self.searched.changes();
        let mut watches: BTreeMap<Followed, AbortOnDropHandle<()>> = BTreeMap::new();
        // With the first kind, bounds of its own.
        let mut rest = None;
        loop {
            let wanted = about().map(|about| self.searched.followed_on(&about)).unwrap_or_default();
            watches.retain(|followed, _| wanted.contains(followed));
            {
                let mut all = self.all.write();
                if wanted.is_empty() {
                    all.remove(cluster);
                } else {
                    all.entry(cluster.to_owned()).or_default().retain(|one, _| wanted.contains(one));
                }
            }
            for followed in wanted {
                if watches.contains_key(&followed) {
                    continue;
                }
                let copy = Arc::<Copy>::default();
                let mut all = self.all.write();
                all.entry(cluster.to_owned()).or_default().insert(followed.clone(), copy.clone());
                let (copies, rest) = (self.clone(), rest.get_or_insert_with(&member).clone());
                let (what, back) = (followed.clone(), back.clone());
                let watch = tokio::spawn(async move { copies.keep(&what, &copy, rest, &back).await });
                watches.insert(followed, AbortOnDropHandle::new(watch));
            }
            if watches.is_empty() {
                rest = None;
            }
            tokio::select! {
                changed = changed.changed() => if changed.is_err() { return },
                () = sleep(LOOK) => {}
            }
        }
    }

    /// Keeps one kind.
    async fn keep(&self, followed: &Followed, copy: &Copy, rest: Rest, back: &Wake) {
        let resource = self.find(followed, &rest).await;
        copy.0.lock().plural.clone_from(&resource.plural);
        let namespace = Some(followed.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        let config = WatchConfig::new(resource.collection(namespace)).wake(back);
        let what = followed.clone();
        let read = move |text: &str| {
            let (Named { namespace, name }, text) = told::essence(text, &what)?;
            Ok((Key::new(namespace, name), text))
        };
        let size = |key: &Key, text: &Arc<str>| key.namespace.len() + key.name.len() + text.len();
        let mut watch = Keeping::new(rest, config, self.env.clone(), read, size);
        let mut health = watch.health();
        let mut turn: Option<SemaphorePermit<'_>> = self.lists.acquire().await.ok();
        let until = Instant::now() + LISTED;
        let mut listed = None;
        loop {
            let event = tokio::select! {
                biased;
                event = watch.next() => Some(event),
                _ = health.changed() => None,
                // One that is slow holds nobody up.
                () = sleep_until(until), if turn.is_some() => {
                    turn = None;
                    continue;
                }
            };
            let mut state = copy.0.lock();
            match event {
                None => {}
                Some(None) => {
                    tracing::info!(
                        ?followed,
                        "what is searched on a member is not kept: there is too much of it"
                    );
                    (listed, state.objects) = (None, None);
                }
                Some(Some(Event::Init)) => listed = Some(BTreeMap::new()),
                Some(Some(Event::Upsert((key, object)))) => {
                    if let Some(objects) = listed.as_mut().or(state.objects.as_mut()) {
                        objects.insert(key, object);
                    }
                }
                Some(Some(Event::Delete((key, _)))) => {
                    if let Some(objects) = listed.as_mut().or(state.objects.as_mut()) {
                        objects.remove(&key);
                    }
                }
                Some(Some(Event::Synced)) => {
                    state.objects = listed.take().or_else(|| state.objects.take());
                    turn = None;
                }
            }
            if let Some(revision) = watch.revision()
                && state.revision != revision
            {
                revision.clone_into(&mut state.revision);
            }
            state.lost = match health.borrow_and_update().live {
                true => None,
                false => state.lost.or_else(|| Some(watch.last_heard().unwrap_or_else(|| self.env.now()))),
            };
        }
    }

    /// By which name a member has a kind; waits until it has it.
    async fn find(&self, followed: &Followed, rest: &Rest) -> Resource {
        let mut backoff = Backoff::new(ABSENT);
        let Some((group, version)) = followed.group_version() else { return std::future::pending().await };
        let path =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        loop {
            match rest.small().get(&path).await {
                Ok(list) => {
                    let found = named(&list, group, version, &followed.kind);
                    match found {
                        Some(found) if followed.is(&found.group, &found.version, &found.plural) => {
                            return found;
                        }
                        _ => {}
                    }
                }
                Err(error) => tracing::debug!(?followed, %error, "a member does not tell what kinds it has"),
            }
            sleep(backoff.next(&self.env)).await;
        }
    }
}

/// A kind of a list of kinds that can be listed and watched.
fn named(list: &Value, group: &str, version: &str, kind: &str) -> Option<Resource> {
    let has = |one: &Value, verb: &str| {
        one["verbs"].as_array().is_some_and(|all| all.iter().any(|one| one == verb))
    };
    let all = list["resources"].as_array()?;
    let one = all.iter().find(|one| one["kind"] == kind && has(one, "list") && has(one, "watch"))?;
    let plural = one["name"].as_str().filter(|name| !name.contains('/'))?;
    Some(Resource::new(group, version, plural, kind, one["namespaced"] == true))
}

#[cfg(test)]
mod tests {
    use karmada_api::{consts::annotation, search::ResourceRegistrySpec};
    use karmada_client::{Patch, Room, rest::Bounds};
    use karmada_store::engine::Memory;
    use serde_json::json;
    use tokio::time::timeout;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::engine::embedded::Embedded;

    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    const LIMIT: Duration = Duration::from_secs(60);

    /// An API that stands for a member, and what is kept of it.
    struct World {
        member: Embedded,
        rest: Rest,
        copies: Arc<Copies>,
        searched: Arc<Searched>,
        stop: CancellationToken,
        _following: AbortOnDropHandle<()>,
    }

    impl World {
        /// `kept`: bytes that there is room for.
        async fn start(kept: usize) -> Self {
            let (stop, env) = (CancellationToken::new(), Env::system());
            let member = Embedded::start(Memory::new(), &env, stop.clone()).await.expect("an API");
            let searched = Arc::<Searched>::default();
            let copies = Arc::new(Copies::new(&searched, &env));
            let (client, room) = (member.client(), Room::new(1 << 20, kept));
            let following = copies.clone();
            let following = tokio::spawn(async move {
                let rest = || {
                    let bounds = Bounds { answer: 1 << 20, kept: usize::MAX, ..Bounds::default() };
                    Rest::new(client.clone()).bounded(bounds).within(Some(room.corner(1 << 20, kept)))
                };
                let about = || Some(Arc::new(Cluster::new("m", Default::default())));
                following.follow("m", rest, &Wake::new(), about).await;
            });
            let _following = AbortOnDropHandle::new(following);
            Self { rest: Rest::new(member.client()), member, copies, searched, stop, _following }
        }

        fn search(&self, kinds: &[(&str, &str)]) {
            let selectors = kinds
                .iter()
                .map(|(kind, namespace)| json!({"apiVersion": "v1", "kind": kind, "namespace": namespace}));
            let spec = json!({"targetCluster": {}, "resourceSelectors": selectors.collect::<Vec<_>>()});
            let spec: ResourceRegistrySpec = serde_json::from_value(spec).expect("a spec");
            self.searched.set("r", Some(spec));
        }

        fn of(&self, resource: &str, namespace: &str) -> Option<Copied> {
            let text = str::to_owned;
            let (group, version) = (text(""), text("v1"));
            let place = Place { group, version, resource: text(resource), namespace: text(namespace) };
            self.copies.of("m", &place)
        }

        /// Waits until what is kept is as wanted.
        async fn until(&self, what: &str, resource: &str, is: impl Fn(Option<Vec<Value>>) -> bool) {
            let looking = async {
                loop {
                    let copied = self.of(resource, "default");
                    let objects = copied.map(|copied| {
                        copied.objects.iter().map(|one| serde_json::from_str(one).expect("JSON")).collect()
                    });
                    if is(objects) {
                        return;
                    }
                    sleep(Duration::from_millis(20)).await;
                }
            };
            timeout(LIMIT, looking)
                .await
                .unwrap_or_else(|_| panic!("{what}: {:?}", self.of(resource, "default")));
        }

        async fn stop(self) {
            self.stop.cancel();
            drop(self._following);
            self.member.close().await.expect("it ends");
        }
    }

    fn map(name: &str, data: &str) -> Value {
        let annotations = json!({annotation::LAST_APPLIED: "x", "stays": "y"});
        let metadata = json!({"name": name, "annotations": annotations});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"key": data}})
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_searched_is_kept_as_it_changes_and_no_longer() {
        let world = World::start(1 << 20).await;
        world.rest.post(MAPS, &map("a", "one")).await.expect("made");
        assert!(world.of("configmaps", "").is_none());
        world.search(&[("ConfigMap", ""), ("Secret", ""), ("Unheard", "")]);
        let named = |objects: &[Value], name: &str| {
            objects.iter().find(|one| one["metadata"]["name"] == name).cloned()
        };
        world
            .until("what is there", "configmaps", |all| all.is_some_and(|all| named(&all, "a").is_some()))
            .await;
        let copied = world.of("configmaps", "default").expect("kept");
        assert_eq!((copied.api_version.as_str(), copied.kind.as_str()), ("v1", "ConfigMap"));
        let all: Vec<Value> =
            copied.objects.iter().map(|one| serde_json::from_str(one).expect("JSON")).collect();
        let one = named(&all, "a").expect("it is there");
        assert_eq!((&one["kind"], &one["data"]["key"]), (&json!("ConfigMap"), &json!("one")));
        assert_eq!(one["metadata"]["annotations"], json!({"stays": "y"}));
        assert_eq!(one["metadata"]["managedFields"], Value::Null);
        world.rest.post(MAPS, &map("b", "two")).await.expect("made");
        let change = json!({"data": {"key": "three"}});
        world.rest.patch(&format!("{MAPS}/a"), Patch::Merge, &change).await.expect("changed");
        world
            .until("changes", "configmaps", |all| {
                let all = all.unwrap_or_default();
                named(&all, "b").is_some()
                    && named(&all, "a").is_some_and(|one| one["data"]["key"] == "three")
            })
            .await;
        world.rest.delete(&format!("{MAPS}/a"), &json!({})).await.expect("deleted");
        world
            .until("the end of one", "configmaps", |all| all.is_some_and(|all| named(&all, "a").is_none()))
            .await;
        // Its watch is open by now: it is followed.
        timeout(LIMIT, async {
            while world.of("configmaps", "").expect("kept").age.is_some() {
                sleep(Duration::from_millis(20)).await;
            }
        })
        .await
        .expect("it is followed");
        assert!(world.of("secrets", "").is_none(), "they stay where they are");
        // In one namespace alone, which says nothing of all.
        world.search(&[("ConfigMap", "default")]);
        world
            .until("one namespace", "configmaps", |all| all.is_some_and(|all| named(&all, "b").is_some()))
            .await;
        timeout(LIMIT, async {
            while world.of("configmaps", "").is_some() {
                sleep(Duration::from_millis(20)).await;
            }
        })
        .await
        .expect("not of all namespaces");
        world.searched.set("r", None);
        world.until("nothing", "configmaps", |all| all.is_none()).await;
        timeout(LIMIT, async {
            while !world.copies.all.read().is_empty() {
                sleep(Duration::from_millis(20)).await;
            }
        })
        .await
        .expect("nothing is left");
        world.stop().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_there_is_no_room_for_is_not_kept() {
        let world = World::start(64 << 10).await;
        world.search(&[("ConfigMap", ""), ("ServiceAccount", "")]);
        world.until("what is small", "configmaps", |all| all.is_some()).await;
        world.until("what is small beside it", "serviceaccounts", |all| all.is_some()).await;
        for n in 0..8 {
            world.rest.post(MAPS, &map(&format!("large-{n}"), &"x".repeat(16 << 10))).await.expect("made");
        }
        world.until("nothing of what is large", "configmaps", |all| all.is_none()).await;
        world
            .rest
            .post("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "s"}}))
            .await
            .expect("made");
        world
            .until("what is small stays", "serviceaccounts", |all| {
                all.is_some_and(|all| all.iter().any(|one| one["metadata"]["name"] == "s"))
            })
            .await;
        world.stop().await;
    }

    #[test]
    fn kinds_are_found_that_can_be_followed() {
        let verbs = json!(["get", "list", "watch"]);
        let list = json!({"resources": [
            {"name": "pods/status", "kind": "Pod", "namespaced": true, "verbs": ["get"]},
            {"name": "pods", "kind": "Pod", "namespaced": true, "verbs": verbs},
            {"name": "nodes", "kind": "Node", "namespaced": false, "verbs": verbs},
            {"name": "bindings", "kind": "Binding", "namespaced": true, "verbs": ["create"]},
            {"name": "odd/one", "kind": "Odd", "namespaced": true, "verbs": verbs},
        ]});
        for (kind, want) in [
            ("Pod", Some("/api/v1/namespaces/n/pods")),
            ("Node", Some("/api/v1/nodes")),
            ("Binding", None),
            ("Odd", None),
            ("Other", None),
        ] {
            let found = named(&list, "", "v1", kind).map(|resource| resource.collection(Some("n")));
            assert_eq!(found.as_deref(), want, "{kind}");
        }
        assert!(named(&json!({}), "", "v1", "Pod").is_none());
    }
}
