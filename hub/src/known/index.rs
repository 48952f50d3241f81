//! What the hub remembers of a kind: a small projection per object, kept current by one watch.
//!
//! ```text
//!   watch of a kind ──▶ Index<P> ──┬──▶ listeners: what changed ──▶ work queues
//!    (whole objects)    one P per  └──▶ get, range, grouped ──▶ reconciles (which GET what they need in full)
//!                       object
//! ```
//!
//! The hub never keeps whole Works, bindings or templates, but for the few that a watch has brought last and only
//! where it is asked to ([`Index::keep_recent`]). A listener runs while the change is taken in, in the
//! order of the watch, and does no more than what one change is worth: it adds keys to queues, or to what a task of its
//! controller looks at ([`super::gathered`]). An index is complete once [`Index::synced`].
//!
//! What is read of an index is counted ([`Index::visits`]), so that a pass over everything for each of everything shows.

mod recent;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::Bound,
    sync::Arc,
};

use karmada_client::{Event, Rest, WatchConfig, Watcher, latest, watch::Health};
use karmada_env::Env;
use karmada_objects::key::Key;
use karmada_telemetry::metrics::Counter;
use parking_lot::RwLock;
use serde_json::Value;

use self::recent::Recent;
use super::shared::Shared;

/// How many objects are looked at between two looks at the lock: the watch does not wait for a pass over everything.
const PAGE: usize = 256;

/// A change of one object's projection.
#[derive(Debug)]
pub(crate) struct Change<'a, P> {
    /// Which object.
    pub key: &'a Key,
    /// What was known of it; nothing if it is new.
    pub old: Option<&'a Arc<P>>,
    /// What is known of it now; nothing if it is gone.
    pub new: Option<&'a Arc<P>>,
}

impl<P> Change<'_, P> {
    /// What is known of the object, or was known at the last.
    pub(crate) fn last(&self) -> &Arc<P> {
        self.new.or(self.old).expect("a change has an old or a new side")
    }

    /// Whether a field differs between the two sides, or one side is missing.
    pub(crate) fn differs<T: PartialEq>(&self, field: impl Fn(&P) -> &T) -> bool {
        self.old.map(|p| field(p)) != self.new.map(|p| field(p))
    }
}

type Listener<P> = Box<dyn Fn(&Change<'_, P>) + Send + Sync>;
type Groups<P> = fn(&Key, &P) -> Vec<String>;

/// The projections of all objects of one kind.
pub(crate) struct Index<P> {
    groups: Groups<P>,
    state: RwLock<State<P>>,
    listeners: RwLock<Vec<Listener<P>>>,
    synced: latest::Sender<bool>,
    recent: Option<Recent>,
    visits: Counter,
}

/// Objects as the index has them.
pub(crate) type Page<P> = Vec<(Arc<Key>, Arc<P>)>;

struct State<P> {
    /// The keys stand in groups, too: with Works by the hundred thousand, copies of them would be felt.
    entries: BTreeMap<Arc<Key>, Arc<P>>,
    /// Group name to the keys of its members; a group without members is not kept.
    groups: BTreeMap<String, BTreeSet<Arc<Key>>>,
    /// During a list: what the list has not named so far.
    unseen: Option<BTreeSet<Arc<Key>>>,
}

/// Keeps an index current for as long as it is polled; how the watch does is told by the returned receiver. Who has an ear for
/// what is `shared` hears it, too.
pub(crate) fn follow<P: PartialEq + Send + Sync + 'static>(
    index: Arc<Index<P>>,
    rest: Rest,
    config: WatchConfig,
    env: Env,
    shared: Shared,
    project: impl Fn(&Value) -> P + Send + Sync + 'static,
) -> (latest::Receiver<Health>, impl Future<Output = ()> + Send) {
    let keep = index.recent.is_some();
    let told = shared.clone();
    let mut watcher = Watcher::over(rest, config, env, move |text| {
        let object: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let (key, projection) = (Key::of(&object), project(&object));
        let news = told.news(&key, &object, text);
        Ok((key, projection, keep.then_some(object), news))
    });
    let health = watcher.health();
    let following = async move {
        loop {
            index.apply(match watcher.next().await {
                Event::Init => Event::Init,
                Event::Synced => {
                    shared.listed();
                    Event::Synced
                }
                Event::Delete((key, projection, _, news)) => {
                    shared.tell(&key, news, false);
                    Event::Delete((key, projection))
                }
                Event::Upsert((key, projection, object, news)) => {
                    shared.tell(&key, news, true);
                    if let (Some(recent), Some(object)) = (&index.recent, object) {
                        recent.put(&key, object);
                    }
                    Event::Upsert((key, projection))
                }
            });
        }
    };
    (health, following)
}

impl<P> fmt::Debug for Index<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.read();
        f.debug_struct("Index")
            .field("entries", &state.entries.len())
            .field("synced", &*self.synced.borrow())
            .finish()
    }
}

impl<P: PartialEq + Send + Sync + 'static> Index<P> {
    /// An empty index.
    pub(crate) fn new() -> Arc<Self> {
        Self::grouped_by(|_, _| Vec::new())
    }

    /// An empty index that also finds its entries by the groups that `groups` names for each.
    pub(crate) fn grouped_by(groups: Groups<P>) -> Arc<Self> {
        Arc::new(Self::with(groups, None))
    }

    /// The same, and it keeps the whole of the few objects that its watch has brought last.
    pub(crate) fn keep_recent(groups: Groups<P>) -> Arc<Self> {
        Arc::new(Self::with(groups, Some(Recent::default())))
    }

    fn with(groups: Groups<P>, recent: Option<Recent>) -> Self {
        Self {
            groups,
            state: RwLock::new(State { entries: BTreeMap::new(), groups: BTreeMap::new(), unseen: None }),
            listeners: RwLock::default(),
            synced: latest::Sender::new(false),
            recent,
            visits: Counter::default(),
        }
    }

    /// How many objects have been read of it.
    pub(crate) fn visits(&self) -> &Counter {
        &self.visits
    }

    fn visited(&self, objects: usize) {
        self.visits.inc_by(u64::try_from(objects).unwrap_or(u64::MAX));
    }

    /// The whole object, if the watch has brought it lately: as new as the index is.
    pub(crate) fn recent(&self, key: &Key) -> Option<Arc<Value>> {
        self.recent.as_ref()?.get(key)
    }

    /// The object turned out to be older than what the API has, or to have gone wrong: it is read next time.
    pub(crate) fn forget_recent(&self, key: &Key) {
        if let Some(recent) = &self.recent {
            recent.forget(key);
        }
    }

    /// Hears every later change. Listeners are added before the watch starts.
    pub(crate) fn listen(&self, listener: impl Fn(&Change<'_, P>) + Send + Sync + 'static) {
        self.listeners.write().push(Box::new(listener));
    }

    /// What is known of one object.
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<P>> {
        self.visited(1);
        self.state.read().entries.get(key).cloned()
    }

    /// Everything, in the order of keys. For kinds of which there are few.
    pub(crate) fn all(&self) -> Vec<(Key, Arc<P>)> {
        self.pages(None).flatten().map(|(key, p)| (Key::clone(&key), p)).collect()
    }

    /// Everything in one namespace.
    pub(crate) fn in_namespace(&self, namespace: &str) -> Vec<(Key, Arc<P>)> {
        self.pages(Some(namespace)).flatten().map(|(key, p)| (Key::clone(&key), p)).collect()
    }

    /// The objects of one namespace or of all, some at a time: what is made of them is made without the index's lock, and
    /// a task that has many to look at lets others run in between. Nothing is copied.
    pub(crate) fn pages<'a>(&'a self, namespace: Option<&'a str>) -> impl Iterator<Item = Page<P>> + 'a {
        let mut last: Option<Arc<Key>> = None;
        std::iter::from_fn(move || {
            let page = self.page(namespace, last.as_deref(), PAGE);
            last = Some(page.last()?.0.clone());
            Some(page)
        })
    }

    /// The first objects behind `last`, of one namespace or of all.
    pub(crate) fn page(&self, namespace: Option<&str>, last: Option<&Key>, limit: usize) -> Page<P> {
        let first = Key::new(namespace.unwrap_or_default(), "");
        let from = last.map_or(Bound::Included(&first), Bound::Excluded);
        let state = self.state.read();
        let page: Page<P> = state
            .entries
            .range::<Key, _>((from, Bound::Unbounded))
            .take_while(|(key, _)| namespace.is_none_or(|namespace| key.namespace == namespace))
            .take(limit)
            .map(|(key, p)| (key.clone(), p.clone()))
            .collect();
        drop(state);
        self.visited(page.len());
        page
    }

    /// The objects that `is` so, of one namespace or of all. Only their keys are copied.
    pub(crate) fn keys_where(&self, namespace: Option<&str>, is: impl Fn(&Key, &P) -> bool) -> Vec<Key> {
        let all = self.pages(namespace).flatten();
        all.filter(|(key, p)| is(key, p)).map(|(key, _)| Key::clone(&key)).collect()
    }

    /// Whether there is an object that `is` so.
    pub(crate) fn any(&self, is: impl Fn(&P) -> bool) -> bool {
        self.pages(None).flatten().any(|(_, p)| is(&p))
    }

    /// What is known of the objects of one namespace, or of all.
    pub(crate) fn heads(&self, namespace: Option<&str>) -> Vec<Arc<P>> {
        self.pages(namespace).flatten().map(|(_, p)| p).collect()
    }

    /// Everything in a group.
    pub(crate) fn group(&self, name: &str) -> Vec<(Key, Arc<P>)> {
        let state = self.state.read();
        let keys = state.groups.get(name).into_iter().flatten();
        let group: Vec<_> =
            keys.filter_map(|key| Some((Key::clone(key), state.entries.get(key)?.clone()))).collect();
        self.visited(group.len());
        group
    }

    /// How many are in a group.
    pub(crate) fn group_len(&self, name: &str) -> usize {
        self.state.read().groups.get(name).map_or(0, BTreeSet::len)
    }

    /// Whether a group has members.
    pub(crate) fn has_group(&self, name: &str) -> bool {
        self.state.read().groups.contains_key(name)
    }

    /// The names of all groups that have members and begin with `prefix`.
    pub(crate) fn group_names(&self, prefix: &str) -> Vec<String> {
        let state = self.state.read();
        let names = state.groups.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        let names = names.map(|(name, _)| name).take_while(|name| name.starts_with(prefix));
        let names: Vec<_> = names.cloned().collect();
        self.visited(names.len());
        names
    }

    /// How many objects are known.
    pub(crate) fn len(&self) -> usize {
        self.state.read().entries.len()
    }

    /// Whether no object is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the first list is complete.
    pub(crate) fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Resolves once the first list is complete.
    pub(crate) async fn synced(&self) {
        let mut synced = self.synced.subscribe();
        // The sender lives in `self`, so the channel cannot close while this waits.
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// What a list does not name is gone when it is complete.
    fn begin_list(&self) {
        let mut state = self.state.write();
        state.unseen = Some(state.entries.keys().cloned().collect());
    }

    fn end_list(&self) {
        let gone = self.state.write().unseen.take().unwrap_or_default();
        for key in gone {
            self.set(&key, None);
        }
        self.synced.send_replace(true);
    }

    /// Takes in what a watch says.
    pub(crate) fn apply(&self, event: Event<(Key, P)>) {
        match event {
            Event::Init => self.begin_list(),
            Event::Upsert((key, projection)) => self.set(&key, Some(&Arc::new(projection))),
            Event::Delete((key, _)) => self.set(&key, None),
            Event::Synced => self.end_list(),
        }
    }

    fn set(&self, key: &Key, new: Option<&Arc<P>>) {
        if new.is_none() {
            self.forget_recent(key);
        }
        let old = {
            let mut state = self.state.write();
            if let Some(unseen) = &mut state.unseen {
                unseen.remove(key);
            }
            // Who holds what was there sees by its place that it is the same.
            if new.is_some() && state.entries.get(key) == new {
                return;
            }
            let known = state.entries.get_key_value(key).map(|(known, _)| known.clone());
            let shared = known.unwrap_or_else(|| Arc::new(key.clone()));
            let old = match new {
                Some(new) => state.entries.insert(shared.clone(), new.clone()),
                None => state.entries.remove(key),
            };
            if old.is_none() && new.is_none() {
                return;
            }
            let before = old.as_ref().map(|p| (self.groups)(key, p)).unwrap_or_default();
            let after = new.map(|p| (self.groups)(key, p)).unwrap_or_default();
            for name in before.iter().filter(|name| !after.contains(name)) {
                if let Some(group) = state.groups.get_mut(name) {
                    group.remove(key);
                    if group.is_empty() {
                        state.groups.remove(name);
                    }
                }
            }
            for name in after {
                state.groups.entry(name).or_default().insert(shared.clone());
            }
            old
        };
        // Listeners may read the index, so the lock is gone by now.
        let change = Change { key, old: old.as_ref(), new };
        for listener in self.listeners.read().iter() {
            listener(&change);
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    fn object(namespace: &str, name: &str, data: &str) -> Event<(Key, String)> {
        Event::Upsert((Key::new(namespace, name), data.to_owned()))
    }

    fn gone(namespace: &str, name: &str) -> Event<(Key, String)> {
        Event::Delete((Key::new(namespace, name), String::new()))
    }

    fn index() -> Arc<Index<String>> {
        Index::grouped_by(|_, data: &String| {
            data.split(',').filter(|s| !s.is_empty()).map(str::to_owned).collect()
        })
    }

    fn heard(index: &Index<String>) -> Arc<Mutex<Vec<String>>> {
        let log = Arc::new(Mutex::new(Vec::new()));
        let sink = log.clone();
        index.listen(move |change| {
            let side = |p: Option<&Arc<String>>| p.map_or("-", |p| p.as_str()).to_owned();
            sink.lock().push(format!("{} {}>{}", change.key, side(change.old), side(change.new)));
        });
        log
    }

    #[test]
    fn listeners_hear_changes_and_nothing_else() {
        let index = index();
        let log = heard(&index);
        index.apply(object("a", "x", "1"));
        index.apply(object("a", "x", "1"));
        index.apply(object("a", "x", "2"));
        index.apply(gone("a", "x"));
        index.apply(gone("a", "x"));
        assert_eq!(*log.lock(), ["a/x ->1", "a/x 1>2", "a/x 2>-"]);
    }

    #[test]
    fn what_comes_again_as_it_was_is_the_same() {
        let index = index();
        let get = || index.get(&Key::new("a", "x")).unwrap();
        index.apply(object("a", "x", "1"));
        let first = get();
        index.apply(object("a", "x", "1"));
        assert!(Arc::ptr_eq(&first, &get()));
        index.apply(object("a", "x", "2"));
        assert!(!Arc::ptr_eq(&first, &get()));
    }

    #[test]
    fn what_a_list_does_not_name_is_gone() {
        let index = index();
        for name in ["x", "y", "z"] {
            index.apply(object("a", name, "1"));
        }
        let log = heard(&index);
        assert!(!index.is_synced());
        index.apply(Event::Init);
        index.apply(object("a", "y", "1"));
        index.apply(object("a", "w", "1"));
        assert_eq!(index.len(), 4, "nothing goes before the list is complete");
        index.apply(Event::Synced);
        assert!(index.is_synced());
        assert_eq!(*log.lock(), ["a/w ->1", "a/x 1>-", "a/z 1>-"]);
    }

    #[test]
    fn groups_follow_their_members() {
        let index = index();
        index.apply(object("a", "x", "red,blue"));
        index.apply(object("b", "y", "blue"));
        let names =
            |group: &str| index.group(group).into_iter().map(|(k, _)| k.to_string()).collect::<Vec<_>>();
        assert_eq!(names("blue"), ["a/x", "b/y"]);
        index.apply(object("a", "x", "red"));
        assert_eq!(names("blue"), ["b/y"]);
        index.apply(gone("b", "y"));
        assert_eq!((index.group_names(""), index.group_names("blue")), (vec!["red".to_owned()], vec![]));
        assert!(index.has_group("red") && !index.has_group("blue"));
    }

    #[test]
    fn passes_go_page_by_page_and_what_is_read_is_counted() {
        let index = index();
        for n in 0..2 * PAGE + 1 {
            index.apply(object("a", &format!("{n:04}"), "red"));
        }
        index.apply(object("b", "x", "red"));
        let read = |what: &dyn Fn() -> usize| {
            let before = index.visits().get();
            (what(), index.visits().get() - before)
        };
        let all = 2 * PAGE + 2;
        assert_eq!(index.pages(None).map(|page| page.len()).collect::<Vec<_>>(), [PAGE, PAGE, 2]);
        assert_eq!(read(&|| index.all().len()), (all, all as u64));
        assert_eq!(read(&|| index.in_namespace("b").len()), (1, 1));
        assert_eq!(read(&|| index.keys_where(None, |key, _| key.name == "x").len()), (1, all as u64));
        assert_eq!(read(&|| index.group("red").len()), (all, all as u64));
        assert_eq!(read(&|| usize::from(index.get(&Key::new("b", "x")).is_some())), (1, 1));
        // Whoever looks at a page may ask and change the index.
        for page in index.pages(Some("a")) {
            for (key, _) in page {
                assert!(index.get(&key).is_some());
                index.apply(gone("a", &key.name));
            }
        }
        assert_eq!(index.len(), 1);
    }

    #[test]
    fn a_namespace_is_a_range() {
        let index = index();
        for (namespace, name) in [("a", "x"), ("a-b", "x"), ("b", "x"), ("", "x")] {
            index.apply(object(namespace, name, "1"));
        }
        let keys =
            |ns: &str| index.in_namespace(ns).into_iter().map(|(k, _)| k.to_string()).collect::<Vec<_>>();
        assert_eq!(keys("a"), ["a/x"]);
        assert_eq!(keys(""), ["x"]);
        assert_eq!(keys("c"), Vec::<String>::new());
    }

    #[tokio::test]
    async fn waiting_for_the_first_list_ends_with_it() {
        let index = index();
        let waiter = tokio::spawn({
            let index = index.clone();
            async move { index.synced().await }
        });
        index.apply(Event::Init);
        index.apply(Event::Synced);
        waiter.await.unwrap();
    }
}
