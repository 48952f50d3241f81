//! Users' own rules for what the fields of a kind mean, as the hub has them: scripts, and services to ask.
//!
//! Most hubs have none, and a watch that never tells of anything costs bytes every minute. A hub of ours says in the
//! annotations of our Cluster which sorts there are ([`extension::INTERPRETER_RULES`]); others are asked now and then.
//! From the first rule of a sort on there is a watch.
//!
//! Nothing is applied before both sorts have been heard of, now or before the start: what a rule would retain would be
//! overwritten. They are kept before they are followed.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use karmada_api::{
    KarmadaKind,
    config::{
        ResourceInterpreterCustomization, ResourceInterpreterCustomizationSpec,
        webhook::{ResourceInterpreterWebhook, ResourceInterpreterWebhookConfiguration},
    },
    consts::extension,
};
use karmada_client::{
    Backoff, Error, Event, Policy, Resource, Rest, Wake, WatchConfig,
    watch::share::{Part, Share, Source},
};
use karmada_env::Env;
use karmada_interpreter::{Interpreter, rules::Rules, webhook::Hooks};
use karmada_member::{Member, Sort as Kept, rights::Rights};
use karmada_meta::{gvk::GroupVersionKind, gvk::parse_api_version, object};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::time::sleep;

use super::{
    cluster::{self, ClusterView},
    origin::Trust,
};
use crate::config::Feed;

/// How often the hub is asked for a first rule of either sort, in turns: 300 bytes each time are a byte a second.
pub(crate) const ASK: Duration = Duration::from_secs(300);

/// The same where each byte is paid for.
pub(crate) const ASK_SELDOM: Duration = Duration::from_secs(1800);

/// After the hub said that there is a rule and there was none.
const NOTHING_THERE: Duration = Duration::from_secs(5);

/// Before the first answer.
const FIRST: Policy = Policy::full(Duration::from_millis(500), Duration::from_secs(5));

/// A hub that says so often that there is no such kind, or that it is none of ours, is believed: one that has just
/// started may say so before it has read its definitions and its roles.
const REFUSALS: u32 = 4;

/// And for so long.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// What following the rules takes.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) hub: Rest,
    pub(crate) env: Env,
    pub(crate) wake: Wake,
    /// What the hub watches in any case, in its own process.
    pub(crate) feed: Option<Feed>,
    pub(crate) rights: Rights,
    pub(crate) view: Arc<ClusterView>,
    pub(crate) interpreter: Arc<Interpreter>,
    pub(crate) half: Arc<Member>,
    pub(crate) trust: Arc<Trust>,
    /// [`ASK`] or [`ASK_SELDOM`].
    pub(crate) ask: Duration,
}

/// One sort of rules.
struct Sort<'a> {
    word: &'static str,
    collection: String,
    /// The field of the object that holds the rules.
    body: &'static str,
    /// By how much later than every [`ASK`] it is asked.
    offset: Duration,
    heard: &'a AtomicBool,
    kept: Kept,
    fed: Option<Source>,
}

impl<'a> Sort<'a> {
    fn of<K: KarmadaKind>(word: &'static str, offset: Duration, heard: &'a AtomicBool, kept: Kept) -> Self {
        let resource = Resource::new(K::GROUP, K::VERSION, K::PLURAL, K::KIND, K::NAMESPACED);
        Self { word, collection: resource.collection(None), body: K::BODY, offset, heard, kept, fed: None }
    }

    /// Its changes are told by somebody else's watch, if there is one.
    fn fed(self, share: Option<&Share>) -> Self {
        Self { fed: share.map(|share| share.part(Part::All)), ..self }
    }
}

impl Follower {
    /// Keeps the interpreter's rules those of the hub. `kinds` are those that matter here; those with other rules than
    /// before are told to `changed`, as group and kind. It is called with none when all rules are known.
    pub(crate) async fn run(
        self,
        kinds: impl Fn() -> Vec<GroupVersionKind> + Send + Sync,
        changed: impl Fn(&[(String, String)]) + Send + Sync,
    ) {
        let scripts = |known: &BTreeMap<String, ResourceInterpreterCustomizationSpec>| {
            let before = self.interpreter.replace(Rules::new(known.clone()));
            let now = self.interpreter.rules();
            let others = now.changed(&before).into_iter();
            others
                .filter_map(|(version, kind)| Some((parse_api_version(version)?.0, kind.to_owned())))
                .collect()
        };
        let services = |known: &BTreeMap<String, Vec<ResourceInterpreterWebhook>>| {
            let before = self.interpreter.replace_hooks(Hooks::new(known.clone()));
            let now = self.interpreter.hooks();
            let others = kinds().into_iter().filter(|kind| now.differ_for(&before, kind));
            others.map(|kind| (kind.group, kind.kind)).collect()
        };
        let first = Sort::of::<ResourceInterpreterCustomization>(
            extension::RULES_CUSTOMIZATIONS,
            Duration::ZERO,
            &self.half.rules().scripts,
            Kept::Scripts,
        )
        .fed(self.feed.as_ref().map(|feed| &feed.scripts));
        let second = Sort::of::<ResourceInterpreterWebhookConfiguration>(
            extension::RULES_WEBHOOKS,
            self.ask / 2,
            &self.half.rules().services,
            Kept::Services,
        )
        .fed(self.feed.as_ref().map(|feed| &feed.services));
        tokio::join!(self.sort(first, scripts, &changed), self.sort(second, services, &changed));
    }

    /// Follows one sort of rules.
    async fn sort<T: Serialize + DeserializeOwned + Send + Sync + 'static>(
        &self,
        sort: Sort<'_>,
        replace: impl Fn(&BTreeMap<String, T>) -> Vec<(String, String)> + Send + Sync,
        changed: &(impl Fn(&[(String, String)]) + Send + Sync),
    ) {
        let mut back = self.wake.listen();
        let mut clusters = self.view.subscribe();
        let mut backoff = Backoff::new(FIRST);
        // How often it has refused, and since when.
        let (mut refusals, mut refused) = (0, Duration::ZERO);
        let mut first = true;
        // The hub has said which there are, since the start.
        let mut answered = false;
        loop {
            self.rights.reporting().await;
            // What is asked now needs not be asked again for a connection that is there already.
            back.clear();
            let says = |cluster: &Option<Arc<cluster::Kept>>| {
                let rules =
                    cluster.as_deref().and_then(|c| object::annotation(c, extension::INTERPRETER_RULES));
                rules.is_some_and(|rules| rules.split(',').any(|said| said == sort.word))
            };
            let said = says(&clusters.borrow_and_update());
            let (mut asked, mut unheard) = (Duration::ZERO, None);
            match Box::pin(self.hub.get(&format!("{}?limit=1", sort.collection))).await {
                Ok(list) if list["items"].as_array().is_some_and(|items| !items.is_empty()) => {
                    // Most hubs have none, and wait here for some: what follows them is in a box.
                    Box::pin(self.watch::<T>(&sort, &replace, changed)).await;
                    answered = true;
                }
                Ok(list) if list["items"].is_array() => {
                    if !std::mem::replace(&mut answered, true) {
                        Box::pin(self.follow(&sort, &BTreeMap::new(), &replace, changed)).await;
                    }
                }
                Ok(_) => {}
                // Later it is no news: the rules stay as they are. Karmada before 1.4 has no scripts.
                Err(error) => {
                    let now = self.env.now();
                    if !(error.is_not_found() || error.is_forbidden()) {
                        refusals = 0;
                    } else if refusals == 0 {
                        (refusals, refused) = (1, now);
                    } else {
                        refusals += 1;
                    }
                    if refusals >= REFUSALS && now.saturating_sub(refused) >= REFUSED_FOR {
                        answered = true;
                        // What is known stays: a right that was lost drops no rules.
                        if !sort.heard.load(Ordering::Acquire) {
                            Box::pin(self.follow(&sort, &BTreeMap::new(), &replace, changed)).await;
                        }
                    }
                    asked = error.retry_after().unwrap_or_default();
                    unheard = Some(error);
                }
            }
            let pause = if !answered {
                backoff.next(&self.env).max(asked)
            } else if said {
                NOTHING_THERE
            } else if first {
                first = false;
                self.ask * 2 - sort.offset
            } else {
                self.ask * 2
            };
            if let Some(error) = unheard.filter(|_| answered || backoff.has_doubled()) {
                self.tell_unheard(&sort, &error);
            }
            let hint = async {
                if said || clusters.wait_for(says).await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                biased;
                () = back.woken() => {}
                () = hint => {}
                () = sleep(pause) => {}
            }
        }
    }

    /// The rules of a sort are known from now on.
    fn hear(&self, sort: &Sort<'_>, changed: &impl Fn(&[(String, String)])) {
        if !sort.heard.swap(true, Ordering::AcqRel) && self.half.rules().all() {
            // What has waited for that.
            changed(&[]);
        }
    }

    fn tell_unheard(&self, sort: &Sort<'_>, error: &Error) {
        if !sort.heard.load(Ordering::Acquire) {
            tracing::warn!(%error, sort = sort.word, "nothing is applied before the hub has said which rules users have");
        }
    }

    /// Keeps and follows the rules that there are, once the hub is believed: one that knows less may not know them.
    async fn follow<T: Serialize + Sync>(
        &self,
        sort: &Sort<'_>,
        known: &BTreeMap<String, T>,
        replace: &impl Fn(&BTreeMap<String, T>) -> Vec<(String, String)>,
        changed: &impl Fn(&[(String, String)]),
    ) {
        self.trust.holds(|| self.half.desired().life()).await;
        let text = serde_json::to_vec(known).expect("invariant: rules were read from JSON, under names");
        self.half.keep_rules(sort.kept, text).await;
        let kinds = replace(known);
        if !kinds.is_empty() {
            changed(&kinds);
        }
        self.hear(sort, changed);
    }

    /// Follows the rules until there are none any more.
    async fn watch<T: Serialize + DeserializeOwned + Send + Sync + 'static>(
        &self,
        sort: &Sort<'_>,
        replace: &(impl Fn(&BTreeMap<String, T>) -> Vec<(String, String)> + Send + Sync),
        changed: &(impl Fn(&[(String, String)]) + Send + Sync),
    ) {
        let config = WatchConfig::new(sort.collection.clone()).wake(&self.wake).fed(sort.fed.clone());
        let body = sort.body;
        let read = move |text: &str| {
            let mut value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
            let rule = serde_json::from_value::<T>(value[body].take()).map_err(|error| error.to_string())?;
            Ok((object::name(&value).to_owned(), rule))
        };
        let mut watcher = self.view.watch(config, self.env.clone(), read);
        let (mut known, mut listed) = (BTreeMap::new(), None);
        loop {
            match watcher.next().await {
                Event::Init => listed = Some(BTreeMap::new()),
                Event::Upsert((name, rule)) => {
                    listed.as_mut().unwrap_or(&mut known).insert(name, rule);
                }
                Event::Delete((name, _)) => {
                    listed.as_mut().unwrap_or(&mut known).remove(&name);
                }
                Event::Synced => known = listed.take().unwrap_or_default(),
            }
            if listed.is_some() {
                continue;
            }
            Box::pin(self.follow(sort, &known, replace, changed)).await;
            if known.is_empty() {
                return;
            }
        }
    }
}
