//! What Works wait for on the member: a namespace, a kind, a service account that is not there yet.
//!
//! ```text
//!   a failed apply ─▶ Need, Work ─▶ Ground ─▶ watches of namespaces, definitions, service accounts (metadata alone)
//!                                                │ it is there
//!                          queue of Works ◀──────┘
//! ```
//!
//! The watches are there only while something is waited for, and a little longer. A definition that is there is not
//! served yet; so discovery is asked a few times after it came. A Work that brings a definition waits for its kinds, too,
//! so that the hub hears of them at once. Where a watch is refused, or a kind comes another way
//! (an aggregated API), a Work looks again by itself: see [`Ground::wait`].

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use karmada_client::{
    Event, Rest, Wake, WatchConfig,
    kept::{self, Kept},
    watch::Keeping,
};
use karmada_env::Env;
use karmada_meta::object;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use super::discovery::Discovery;

/// What waits looks again by itself this often where nobody would tell it.
const UNTOLD: Duration = Duration::from_secs(2);

/// What waits looks again by itself this often where a watch would tell it.
const TOLD: Duration = Duration::from_secs(20);

/// How long the watches outlive the last need.
const LINGER: Duration = Duration::from_secs(10);

/// The first wait before discovery is asked for a kind whose definition is there; it doubles up to [`SLOWEST`].
const PROBE: Duration = Duration::from_millis(50);
const SLOWEST: Duration = Duration::from_secs(1);

/// How long discovery is asked after something was heard of a definition.
const PROBES: Duration = Duration::from_secs(10);

/// Something that has to be there before an object can be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// A namespace that is there and stays.
    Namespace(String),
    /// A kind that is served.
    Kind { group: String, version: String, kind: String },
    /// A service account.
    ServiceAccount { namespace: String, name: String },
}

/// What is watched for needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Field {
    Namespaces,
    Definitions,
    ServiceAccounts,
}

impl Field {
    const ALL: [Self; 3] = [Self::Namespaces, Self::Definitions, Self::ServiceAccounts];

    fn path(self) -> &'static str {
        match self {
            Self::Namespaces => "/api/v1/namespaces",
            Self::Definitions => "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            Self::ServiceAccounts => "/api/v1/serviceaccounts",
        }
    }
}

impl Need {
    /// The kinds that a definition makes, to be waited for until they are served.
    pub(crate) fn of_definition(text: &str) -> Vec<Self> {
        let Ok(definition) = serde_json::from_str::<Value>(text) else { return Vec::new() };
        let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (group, kind) = (text("/spec/group").to_owned(), text("/spec/names/kind").to_owned());
        let versions = definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
        versions
            .filter(|version| version["served"] == true)
            .filter_map(|version| version["name"].as_str())
            .map(|version| Self::Kind {
                group: group.clone(),
                version: version.to_owned(),
                kind: kind.clone(),
            })
            .collect()
    }

    fn field(&self) -> Field {
        match self {
            Self::Namespace(_) => Field::Namespaces,
            Self::Kind { .. } => Field::Definitions,
            Self::ServiceAccount { .. } => Field::ServiceAccounts,
        }
    }
}

/// Namespace (empty if there is none) and name.
type Key = (String, String);

/// What there is of a kind.
type There = BTreeMap<Key, Kept<bool>>;

#[derive(Debug, Default)]
struct Inner {
    /// Works by what they wait for.
    needs: BTreeMap<Need, BTreeSet<String>>,
    /// What is there and not on its way out, by what is watched; none where nothing is.
    there: BTreeMap<Field, There>,
}

impl Inner {
    fn wanted(&self) -> BTreeSet<Field> {
        self.needs.keys().map(Need::field).collect()
    }

    /// Whether a need is known to be met. Of a kind only its definition is known.
    fn is_there(&self, need: &Need) -> bool {
        let Some(there) = self.there.get(&need.field()) else { return false };
        match need {
            Need::Namespace(name) => there.contains_key(&(String::new(), name.clone())),
            Need::ServiceAccount { namespace, name } => {
                there.contains_key(&(namespace.clone(), name.clone()))
            }
            // A definition's name is the plural and the group.
            Need::Kind { group, .. } => {
                there.keys().any(|(_, name)| name.split_once('.').is_some_and(|(_, g)| g == group))
            }
        }
    }

    /// Takes the Works whose need is met.
    fn take_met(&mut self, met: impl Fn(&Self, &Need) -> bool) -> BTreeSet<String> {
        let needs: Vec<Need> = self.needs.keys().filter(|need| met(self, need)).cloned().collect();
        needs.iter().filter_map(|need| self.needs.remove(need)).flatten().collect()
    }
}

/// Called with the name of a Work whose need is met.
type Notice = Box<dyn Fn(String) + Send + Sync>;

/// Who waits for what.
pub(crate) struct Ground {
    member: Rest,
    env: Env,
    wake: Wake,
    discovery: Arc<Discovery>,
    notice: Notice,
    inner: Mutex<Inner>,
    changed: Wake,
}

impl std::fmt::Debug for Ground {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ground").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Ground {
    pub(crate) fn new(
        member: Rest,
        env: Env,
        wake: Wake,
        discovery: Arc<Discovery>,
        notice: impl Fn(String) + Send + Sync + 'static,
    ) -> Self {
        let notice = Box::new(notice);
        Self { member, env, wake, discovery, notice, inner: Mutex::default(), changed: Wake::new() }
    }

    /// A Work waits for nothing any more, or finds out anew what for.
    pub(crate) fn forget(&self, work: &str) {
        let mut inner = self.inner.lock();
        inner.needs.retain(|_, works| {
            works.remove(work);
            !works.is_empty()
        });
    }

    /// A Work waits from now on. Answers after which time it looks by itself; none if what it waits for is there
    /// already, as far as is known.
    pub(crate) fn wait(&self, need: &Need, work: &str) -> Option<Duration> {
        let mut inner = self.inner.lock();
        let at_once = match need {
            Need::Kind { group, version, kind } => {
                self.discovery.known().is_some_and(|apis| apis.resource(group, version, kind).is_some())
            }
            _ => inner.is_there(need),
        };
        if at_once {
            return None;
        }
        inner.needs.entry(need.clone()).or_default().insert(work.to_owned());
        let told = inner.there.contains_key(&need.field());
        drop(inner);
        self.changed.wake();
        Some(if told { TOLD } else { UNTOLD })
    }

    /// We have made a namespace.
    pub(crate) fn made_namespace(&self, name: &str) {
        let works = self.inner.lock().needs.remove(&Need::Namespace(name.to_owned()));
        works.into_iter().flatten().for_each(&self.notice);
    }

    /// Watches while something is waited for. Runs for ever.
    pub(crate) async fn run(&self) {
        let mut changed = self.changed.listen();
        loop {
            if self.inner.lock().needs.is_empty() {
                changed.woken().await;
                continue;
            }
            // In a box: most of the time nothing waits.
            Box::pin(self.watch()).await;
            self.inner.lock().there.clear();
        }
    }

    /// Watches until nothing is waited for any more.
    async fn watch(&self) {
        let mut watchers: BTreeMap<Field, Watch> = BTreeMap::new();
        let mut changed = self.changed.listen();
        let mut idle: Option<Instant> = None;
        let mut probes = Probes::default();
        loop {
            let wanted = self.inner.lock().wanted();
            if wanted.is_empty() {
                idle = idle.or_else(|| Some(Instant::now() + LINGER));
            } else {
                idle = None;
            }
            for field in wanted {
                watchers.entry(field).or_insert_with(|| Watch::new(self, field));
            }
            let timer = idle.into_iter().chain(probes.next).min();
            let tick = async {
                match timer {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                (field, event) = next(&mut watchers) => {
                    let Some(watch) = watchers.get_mut(&field) else { continue };
                    if self.take(field, watch, event) && field == Field::Definitions {
                        probes.begin();
                    }
                }
                () = changed.woken() => {
                    let inner = self.inner.lock();
                    let defined = |need: &Need| need.field() == Field::Definitions && inner.is_there(need);
                    if inner.needs.keys().any(defined) {
                        probes.begin();
                    }
                }
                () = tick => {
                    if idle.is_some_and(|at| at <= Instant::now()) {
                        return;
                    }
                    if probes.due() {
                        self.probe().await;
                    }
                }
            }
        }
    }

    /// Takes in an event. Answers whether it may concern somebody who waits.
    fn take(&self, field: Field, watch: &mut Watch, event: Option<Event<Seen>>) -> bool {
        let mut inner = self.inner.lock();
        let Some(event) = event else {
            watch.listed = None;
            inner.there.remove(&field);
            return false;
        };
        match event {
            Event::Init => watch.listed = Some(BTreeMap::new()),
            Event::Upsert((key, stays)) => {
                let keys = match &mut watch.listed {
                    Some(listed) => listed,
                    None => inner.there.entry(field).or_default(),
                };
                if *stays {
                    keys.insert(key, stays);
                } else {
                    keys.remove(&key);
                }
            }
            Event::Delete((key, _)) => {
                inner.there.entry(field).or_default().remove(&key);
                return false;
            }
            Event::Synced => {
                inner.there.insert(field, watch.listed.take().unwrap_or_default());
            }
        }
        if watch.listed.is_some() {
            return false;
        }
        if field == Field::Definitions {
            return inner.needs.keys().any(|need| need.field() == field && inner.is_there(need));
        }
        let works = inner.take_met(|inner, need| need.field() == field && inner.is_there(need));
        drop(inner);
        works.into_iter().for_each(&self.notice);
        false
    }

    /// Asks what is served now.
    async fn probe(&self) {
        let apis = match self.discovery.look().await {
            Ok((apis, _)) => apis,
            Err(error) => return tracing::debug!(%error, "cannot ask what the member serves"),
        };
        let works = self.inner.lock().take_met(|_, need| match need {
            Need::Kind { group, version, kind } => apis.resource(group, version, kind).is_some(),
            _ => false,
        });
        works.into_iter().for_each(&self.notice);
    }
}

/// When discovery is asked again.
#[derive(Debug, Default)]
struct Probes {
    next: Option<Instant>,
    pause: Duration,
    end: Option<Instant>,
}

impl Probes {
    fn begin(&mut self) {
        let now = Instant::now();
        self.pause = PROBE;
        self.end = Some(now + PROBES);
        self.next = Some(self.next.map_or(now, |next| next.min(now + PROBE)));
    }

    /// Whether it is time; if so, sets the next time.
    fn due(&mut self) -> bool {
        let now = Instant::now();
        if self.next.is_none_or(|next| next > now) {
            return false;
        }
        self.next = (self.end > Some(now)).then(|| now + self.pause);
        self.pause = (self.pause * 2).min(SLOWEST);
        true
    }
}

/// An object, and whether it is to stay.
type Seen = (Key, Kept<bool>);

struct Watch {
    watcher: Keeping<Key, bool>,
    listed: Option<There>,
}

impl Watch {
    fn new(ground: &Ground, field: Field) -> Self {
        let config = WatchConfig::new(field.path()).metadata_only().wake(&ground.wake);
        let read = |text: &str| {
            let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
            let key = (object::namespace(&value).to_owned(), object::name(&value).to_owned());
            Ok((key, object::deletion_timestamp(&value).is_none()))
        };
        let elsewhere = |(namespace, name): &Key, _: &bool| kept::text(namespace) + kept::text(name);
        let watcher = Keeping::new(ground.member.clone(), config, ground.env.clone(), read, elsewhere);
        Self { watcher, listed: None }
    }
}

/// The next event of any watch.
async fn next(watchers: &mut BTreeMap<Field, Watch>) -> (Field, Option<Event<Seen>>) {
    let mut each = Field::ALL.map(|_| None);
    for (field, watch) in watchers.iter_mut() {
        each[*field as usize] = Some(&mut watch.watcher);
    }
    let [namespaces, definitions, accounts] = each;
    tokio::select! {
        biased;
        event = one(namespaces) => (Field::Namespaces, event),
        event = one(definitions) => (Field::Definitions, event),
        event = one(accounts) => (Field::ServiceAccounts, event),
    }
}

async fn one(watcher: Option<&mut Keeping<Key, bool>>) -> Option<Event<Seen>> {
    match watcher {
        Some(watcher) => watcher.next().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_definition_makes_the_kinds_that_it_serves() {
        let definition = json!({"spec": {
            "group": "example.com", "names": {"kind": "Thing", "plural": "things"},
            "versions": [{"name": "v1", "served": true}, {"name": "v1beta1", "served": false}],
        }});
        let kind = |version: &str| Need::Kind {
            group: "example.com".into(),
            version: version.into(),
            kind: "Thing".into(),
        };
        assert_eq!(Need::of_definition(&definition.to_string()), [kind("v1")]);
        assert_eq!(Need::of_definition("{}"), []);
        assert_eq!(Need::of_definition("no JSON"), []);
    }
}
