//! Users' own rules for what the fields of a kind mean, as the hub has them: scripts, and services to ask.
//!
//! Most hubs have none, and a watch that never tells of anything costs bytes every minute. A hub of ours says in the
//! annotations of our Cluster which sorts there are ([`extension::INTERPRETER_RULES`]); others are asked now and then.
//! From the first rule of a sort on there is a watch.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use karmada_api::{
    KarmadaKind,
    config::{
        ResourceInterpreterCustomization, ResourceInterpreterCustomizationSpec,
        webhook::{ResourceInterpreterWebhook, ResourceInterpreterWebhookConfiguration},
    },
    consts::extension,
};
use karmada_client::{Event, Resource, Rest, Wake, WatchConfig, Watcher};
use karmada_env::Env;
use karmada_interpreter::{Interpreter, rules::Rules, webhook::Hooks};
use karmada_meta::{gvk::GroupVersionKind, gvk::parse_api_version, object};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::sleep;

use super::cluster::ClusterView;
use crate::phase::Phases;

/// How often the hub is asked for a first rule of either sort, in turns: 300 bytes each time are a byte a second.
const ASK: Duration = Duration::from_secs(300);

/// After the hub said that there is a rule and there was none.
const NOTHING_THERE: Duration = Duration::from_secs(5);

/// What following the rules takes.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) hub: Rest,
    pub(crate) env: Env,
    pub(crate) wake: Wake,
    pub(crate) phases: Phases,
    pub(crate) view: Arc<ClusterView>,
    pub(crate) interpreter: Arc<Interpreter>,
}

impl Follower {
    /// Keeps the interpreter's rules those of the hub. `kinds` are those that matter here; those with other rules than
    /// before are told to `changed`, as group and kind.
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
        let first = self.sort::<ResourceInterpreterCustomization, _>(
            extension::RULES_CUSTOMIZATIONS,
            Duration::ZERO,
            scripts,
            &changed,
        );
        let second = self.sort::<ResourceInterpreterWebhookConfiguration, _>(
            extension::RULES_WEBHOOKS,
            ASK / 2,
            services,
            &changed,
        );
        tokio::join!(first, second);
    }

    /// Follows one sort of rules.
    async fn sort<K: KarmadaKind, T: DeserializeOwned + Send + 'static>(
        &self,
        word: &str,
        offset: Duration,
        replace: impl Fn(&BTreeMap<String, T>) -> Vec<(String, String)> + Send + Sync,
        changed: &(impl Fn(&[(String, String)]) + Send + Sync),
    ) {
        let collection =
            Resource::new(K::GROUP, K::VERSION, K::PLURAL, K::KIND, K::NAMESPACED).collection(None);
        let mut back = self.wake.listen();
        let mut clusters = self.view.subscribe();
        let mut first = true;
        loop {
            self.phases.active().await;
            let says = |cluster: &Option<Arc<Value>>| {
                let rules =
                    cluster.as_deref().and_then(|c| object::annotation(c, extension::INTERPRETER_RULES));
                rules.is_some_and(|rules| rules.split(',').any(|sort| sort == word))
            };
            let said = says(&clusters.borrow_and_update());
            // The services' turn comes later, unless the hub says that there are some.
            if said || !first || offset.is_zero() {
                // An error is no news: the rules stay as they are. Karmada before 1.4 has no scripts.
                let any = self.hub.get(&format!("{collection}?limit=1")).await;
                if any.is_ok_and(|list| list["items"].as_array().is_some_and(|items| !items.is_empty())) {
                    self.watch::<T>(&collection, K::BODY, &replace, changed).await;
                }
            }
            let pause = if said {
                NOTHING_THERE
            } else if first {
                ASK * 2 - offset
            } else {
                ASK * 2
            };
            first = false;
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

    /// Follows the rules until there are none any more.
    async fn watch<T: DeserializeOwned + Send + 'static>(
        &self,
        collection: &str,
        body: &'static str,
        replace: &(impl Fn(&BTreeMap<String, T>) -> Vec<(String, String)> + Send + Sync),
        changed: &(impl Fn(&[(String, String)]) + Send + Sync),
    ) {
        let config = WatchConfig::new(collection.to_owned()).wake(&self.wake);
        let read = move |text: &str| {
            let mut value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
            let rule = serde_json::from_value::<T>(value[body].take()).map_err(|error| error.to_string())?;
            Ok((object::name(&value).to_owned(), rule))
        };
        let mut watcher = Watcher::new(self.hub.client().clone(), config, self.env.clone(), read);
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
            let kinds = replace(&known);
            if !kinds.is_empty() {
                changed(&kinds);
            }
            if known.is_empty() {
                return;
            }
        }
    }
}
