//! Users' services that say what the fields of a kind mean: which there are, and how the hub asks them.
//!
//! What a service decided is decided anew when its configuration changes. A question that it did not answer is asked
//! again after a while, for every object of the kind: what was decided before stays until then.

use std::{
    collections::BTreeSet,
    fmt,
    net::SocketAddr,
    sync::{Arc, Weak},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use karmada_api::{
    config::webhook::{ResourceInterpreterWebhook, ServiceReference},
    consts::extension,
};
use karmada_apiserver::webhooks::service_host;
use karmada_client::{
    Backoff, Policy, Rest,
    webhook::{PostError, Target, WebhookClient},
};
use karmada_env::Env;
use karmada_interpreter::webhook::{Call, CallError, Caller, Hook, Hooks, validate};
use karmada_meta::{
    gvk::GroupVersionKind,
    object,
    path::{FieldError, Path},
};
use karmada_objects::scope::BindingKey;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use tokio::{sync::Notify, time::sleep};

use crate::{known::heads::BindingHead, rules::UserRules};

/// Between attempts at questions without an answer.
const AGAIN: Policy = Policy::new(Duration::from_secs(2), Duration::from_secs(60));

/// The services of one configuration; nothing of one that cannot be read.
pub(crate) type Configuration = Vec<ResourceInterpreterWebhook>;

/// Reads a configuration.
pub(crate) fn project(value: &Value) -> Configuration {
    let read = Configuration::deserialize(&value["webhooks"]);
    read.inspect_err(|error| {
        let name = object::name(value);
        tracing::warn!(name, %error, "the ResourceInterpreterWebhookConfiguration cannot be read");
    })
    .unwrap_or_default()
}

/// What is wrong with a configuration.
pub(crate) fn check(value: &Value) -> Vec<FieldError> {
    match Configuration::deserialize(&value["webhooks"]) {
        Ok(webhooks) => validate(&webhooks),
        Err(error) => {
            vec![FieldError::invalid(&Path::new("webhooks"), Value::Null, error.to_string())]
        }
    }
}

/// Which sorts of users' rules there are, as agents are told: see [`extension::INTERPRETER_RULES`].
pub(crate) fn told(rules: &UserRules) -> String {
    let sorts = [
        (extension::RULES_CUSTOMIZATIONS, rules.customizations.is_empty()),
        (extension::RULES_WEBHOOKS, rules.webhooks.is_empty()),
    ];
    let there: Vec<&str> = sorts.iter().filter(|(_, empty)| !empty).map(|(sort, _)| *sort).collect();
    there.join(",")
}

/// Calls `changed` when agents are to be told something else, once both sorts are known.
pub(crate) fn listen_told(rules: &Arc<UserRules>, changed: impl Fn() + Send + Sync + 'static) {
    let changed = Arc::new((Mutex::new(String::new()), changed));
    let hear = || {
        let (weak, changed) = (Arc::downgrade(rules), Arc::clone(&changed));
        move || {
            let Some(rules) = weak.upgrade() else { return };
            let now = told(&rules);
            let mut before = changed.0.lock();
            if *before != now {
                *before = now;
                (changed.1)();
            }
        }
    };
    let (customizations, webhooks) = (hear(), hear());
    rules.customizations.listen(move |_| customizations());
    rules.webhooks.listen(move |_| webhooks());
}

/// Brings what a Cluster tells its agent of users' rules up to date. Answers whether it was not.
pub(crate) fn tell(cluster: &mut Value, told: &str) -> bool {
    if object::annotation(cluster, extension::INTERPRETER_RULES).unwrap_or_default() == told {
        return false;
    }
    if told.is_empty() {
        object::remove_annotation(cluster, extension::INTERPRETER_RULES);
    } else {
        object::set_annotation(cluster, extension::INTERPRETER_RULES, told);
    }
    true
}

/// Asks services over the network.
pub(crate) struct HubCaller {
    client: WebhookClient,
    rest: Rest,
    /// Kinds with a question that was not answered.
    unanswered: Mutex<BTreeSet<GroupVersionKind>>,
    failed: Notify,
}

impl fmt::Debug for HubCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubCaller").field("unanswered", &self.unanswered.lock()).finish_non_exhaustive()
    }
}

impl HubCaller {
    pub(crate) fn new(rest: Rest, env: &Env) -> Self {
        let client = WebhookClient::new(env.clone());
        Self { client, rest, unanswered: Mutex::default(), failed: Notify::new() }
    }

    async fn ask(&self, hook: &Hook, question: &Value) -> Result<Value, CallError> {
        let bundle = hook.client.ca_bundle.as_deref().filter(|bundle| !bundle.is_empty());
        let authorities = bundle
            .map(|bundle| STANDARD.decode(bundle))
            .transpose()
            .map_err(|error| CallError::Failed(format!("clientConfig.caBundle is not base64: {error}")))?;
        let address = match &hook.client.service {
            Some(service) => self.address(service).await?,
            None => None,
        };
        let url = hook.address();
        let target =
            Target { url: &url, address, authorities: authorities.as_deref(), timeout: hook.timeout };
        self.client.post(&target, question).await.map_err(|error| match error {
            PostError::Unreachable(why) => CallError::Unreachable(why),
            PostError::Failed(why) => CallError::Failed(why),
        })
    }

    /// Where a Service of the hub's API leads; nothing where the hub has none of that name, which then is one of the
    /// cluster that the hub runs in, found by its name.
    async fn address(&self, service: &ServiceReference) -> Result<Option<SocketAddr>, CallError> {
        let (namespace, name) = (&service.namespace, &service.name);
        let port = service.port.and_then(|port| u16::try_from(port).ok()).unwrap_or(443);
        let live = match self.rest.get(&format!("/api/v1/namespaces/{namespace}/services/{name}")).await {
            Ok(live) => live,
            Err(error) if error.is_not_found() || error.is_forbidden() => return Ok(None),
            Err(error) => return Err(CallError::Unreachable(format!("Service {namespace}/{name}: {error}"))),
        };
        let Some(host) = service_host(&live) else {
            let why = format!("Service {namespace}/{name} has no address to go to");
            return Err(CallError::Failed(why));
        };
        let found = tokio::net::lookup_host((host, port)).await.map(|mut found| found.next());
        match found {
            Ok(Some(address)) => Ok(Some(address)),
            Ok(None) => Err(CallError::Unreachable(format!("{host} has no address"))),
            Err(error) => Err(CallError::Unreachable(format!("{host}: {error}"))),
        }
    }
}

impl Caller for HubCaller {
    fn call<'a>(&'a self, hook: &'a Hook, question: &'a Value) -> Call<'a> {
        Box::pin(async move {
            let answer = self.ask(hook, question).await;
            let kind = kind_of(question);
            let successful = answer.as_ref().is_ok_and(|answer| answer["response"]["successful"] == true);
            if let (false, Some(kind)) = (successful, kind) {
                self.unanswered.lock().insert(kind);
                self.failed.notify_one();
            }
            answer
        })
    }
}

/// The kind that a question is about.
fn kind_of(question: &Value) -> Option<GroupVersionKind> {
    let text = |field: &str| question["request"]["kind"][field].as_str().map(str::to_owned);
    Some(GroupVersionKind { group: text("group")?, version: text("version")?, kind: text("kind")? })
}

/// Keeps the interpreter's services those of the configurations, and calls `changed` with each binding of a kind whose
/// services are others now, or whose questions were not answered a while ago.
pub(crate) fn listen(rules: &Arc<UserRules>, changed: impl Fn(BindingKey) + Send + Sync + 'static) {
    let changed = Arc::new(changed);
    let (weak, tell) = (Arc::downgrade(rules), Arc::clone(&changed));
    rules.webhooks.listen(move |_| {
        let Some(rules) = weak.upgrade() else { return };
        let all = rules.webhooks.all().into_iter();
        let hooks = Hooks::new(all.map(|(key, webhooks)| (key.name, webhooks.as_ref().clone())));
        let before = rules.interpreter.replace_hooks(hooks);
        let now = rules.interpreter.hooks();
        for kind in kinds(&rules).iter().filter(|kind| now.differ_for(&before, kind)) {
            look_again(&rules, kind, &*tell);
        }
    });
    let (weak, caller) = (Arc::downgrade(rules), Arc::clone(&rules.caller));
    let stop = rules.stop.clone();
    rules.tasks.spawn(async move {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = ask_again(&weak, &caller, &*changed) => {}
        }
    });
}

/// Looks again, now and then, at kinds with questions that were not answered.
async fn ask_again(weak: &Weak<UserRules>, caller: &HubCaller, changed: &(impl Fn(BindingKey) + Sync)) {
    let Some(env) = weak.upgrade().map(|rules| rules.env.clone()) else { return };
    let mut backoff = Backoff::new(AGAIN);
    loop {
        caller.failed.notified().await;
        sleep(backoff.next(&env)).await;
        let kinds = std::mem::take(&mut *caller.unanswered.lock());
        if kinds.is_empty() {
            continue;
        }
        let Some(rules) = weak.upgrade() else { return };
        for kind in &kinds {
            look_again(&rules, kind, changed);
        }
        drop(rules);
        // What fails again has said so by then; what does not is well.
        sleep(AGAIN.min).await;
        if caller.unanswered.lock().is_empty() {
            backoff.reset();
        }
    }
}

/// All kinds that are templates, or were.
fn kinds(rules: &UserRules) -> BTreeSet<GroupVersionKind> {
    let bound = rules
        .known
        .bindings
        .both()
        .map(|(_, index)| index.group_names(BindingHead::KINDS))
        .into_iter()
        .flatten();
    let watched = rules.known.templates.kinds().into_iter().map(|(kind, _)| kind);
    bound.filter_map(|group| BindingHead::kind_of_group(&group)).chain(watched).collect()
}

/// Lets everybody who decides by what a kind's fields mean decide anew.
pub(crate) fn look_again(rules: &UserRules, kind: &GroupVersionKind, changed: &impl Fn(BindingKey)) {
    for (scope, index) in rules.known.bindings.both() {
        for (key, _) in index.group(&BindingHead::of_kind(kind)) {
            changed(BindingKey { scope, key });
        }
    }
    rules.changes.tell(kind);
}
