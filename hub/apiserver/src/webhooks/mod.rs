//! Admission webhooks: who is asked about a write, and what follows from the answer.
//!
//! ```text
//!   Mutating- and ValidatingWebhookConfiguration ─► hook (read once) ─► Webhooks, by crate::follow
//!                                                                          │ none: nothing happens
//!   write ─► Admission ─► mutating, one after the other ─► Admission again, if something changed ─► validation of the kind
//!                                                                                                       │
//!                                     store ◄─ validating, all at once ◄────────────────────────────────┘
//! ```
//!
//! Reviews are made, and answers read and carried out, beside everybody's work where they are long, as copies that count as
//! the write's.
//!
//! A write is asked about as often as it is tried: a change is made of what is there, and made again when somebody else
//! was faster. Nothing is held meanwhile but the seat of the request.
//!
//! | module | what |
//! |---|---|
//! | `hook` | a webhook, read out of its configuration |
//! | `matching` | which webhooks are for a write: rules, scope, equivalent versions, selectors |
//! | `conditions` | `matchConditions` |
//! | `review` | the AdmissionReview, the answer, what the client is told |
//! | `place` | where the webhook is: a URL, or a Service that leads out of here |
//! | `counts` | how often they were asked |
//!
//! The registry asks them: failure policy, timeouts, patches, reinvocation.
//!
//! Asked about are writes of all kinds but the configurations themselves ([`is_exempt`](matching::is_exempt)), whoever makes
//! them: clients, the server's garbage collector, whoever runs in process. Not asked about is what the server needs to
//! start and to keep its own books ([`Caller::internal`](crate::caller::Caller::internal)): a webhook that does not
//! answer must not keep a hub from starting. Nor are reviews, which store nothing.
//!
//! What follows, by case:
//!
//! | case | the write |
//! |---|---|
//! | a webhook refuses | gets the webhook's status, `admission webhook "x" denied the request: …`; 400 unless it says more |
//! | no answer in time, nobody there, no AdmissionReview, another uid, a patch that cannot be read | `failurePolicy`: 500 `failed calling webhook "x": …`, or it goes on |
//! | a patch that does not fit the object, or one for a deletion | 500, whatever the policy |
//! | a condition without an answer | `failurePolicy`: 403, or the webhook is not asked |
//! | a dry run, and side effects | 400, whatever the policy |
//! | a namespace that is not there, and a namespaceSelector | 404 |
//! | a Service | dialled where it is an ExternalName or has a clusterIP; else `failurePolicy`, with what to do about it |
//! | nobody to call ([`ApiServer::call_webhooks`](crate::ApiServer::call_webhooks)) | `failurePolicy` |
//!
//! Left out: `authorizer` in conditions (a configuration that uses it is refused), audit annotations (there is no audit
//! log), client certificates for webhooks, `CONNECT`.

mod conditions;
mod counts;
mod hook;
pub(crate) mod matching;
pub(crate) mod place;
pub(crate) mod review;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, OnceLock},
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures::future::BoxFuture;
use karmada_store::{Key, Snapshot};
use parking_lot::Mutex;
use serde_json::Value;

pub use self::place::{Place, service_host};
pub(crate) use self::{
    conditions::compile as compile_condition, counts::WebhookCounts, hook::Hook, matching::is_exempt,
    review::Options,
};
use crate::{
    follow::Derived,
    storage::{Header, Object},
};

/// Where configurations are stored.
const MUTATING: &str = "admissionregistration.k8s.io/mutatingwebhookconfigurations";
const VALIDATING: &str = "admissionregistration.k8s.io/validatingwebhookconfigurations";

/// Asks webhooks, which takes what an API server otherwise has no use for: connections to somewhere else.
pub trait WebhookCaller: Send + Sync + fmt::Debug {
    /// Posts a review and gives the answer, or why there is none, in words that follow the URL. Both are JSON that is written
    /// and read elsewhere: it may be long.
    fn call<'a>(&'a self, place: &'a Place, review: Bytes) -> BoxFuture<'a, Result<Bytes, String>>;

    /// Whether a configuration is for this server. One that is not is stored for somebody else.
    fn is_meant(&self, configuration: &Value) -> bool {
        let _ = configuration;
        true
    }

    /// What else to do about a configuration that cannot be called, for whoever wrote it; may be empty.
    fn way_out(&self) -> &str {
        ""
    }
}

/// The webhooks of all configurations: by the names of the configurations, and within one in its order.
#[derive(Debug, Default)]
struct Hooks {
    mutating: Vec<Arc<Hook>>,
    validating: Vec<Arc<Hook>>,
}

/// The webhooks there are, and who asks them.
#[derive(Debug, Default)]
pub(crate) struct Webhooks {
    hooks: ArcSwap<Hooks>,
    caller: OnceLock<Arc<dyn WebhookCaller>>,
    /// What each configuration says.
    read: Mutex<BTreeMap<Key, Vec<Arc<Hook>>>>,
    /// What is shown of them.
    pub(crate) counts: Arc<WebhookCounts>,
}

/// Which of the two sorts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Mutating,
    Validating,
}

impl Webhooks {
    /// Who asks from now on. Only the first call counts. Which configurations are meant is the caller's to say, so they
    /// are to be read again.
    pub(crate) fn call_by(&self, caller: Arc<dyn WebhookCaller>) {
        // Whoever comes second changes nothing.
        let _ = self.caller.set(caller);
    }

    /// What a configuration says, if it is meant for this server.
    fn read(&self, object: &Object) -> Vec<Arc<Hook>> {
        let read = |value: &[u8]| {
            let configuration: Value = serde_json::from_slice(value)?;
            if self.caller.get().is_some_and(|caller| !caller.is_meant(&configuration)) {
                return Ok(Vec::new());
            }
            hook::read(&configuration)
        };
        match read(&object.value.get()) {
            Ok(hooks) => hooks.into_iter().map(Arc::new).collect(),
            Err(error) => {
                tracing::error!(key = %object.key, %error, "a configuration of webhooks cannot be read");
                Vec::new()
            }
        }
    }

    fn show(&self, read: &BTreeMap<Key, Vec<Arc<Hook>>>) {
        let of = |resource: &str| {
            let hooks = read.iter().filter(|(key, _)| *key.resource == *resource);
            hooks.flat_map(|(_, hooks)| hooks.iter().cloned()).collect()
        };
        self.hooks.store(Arc::new(Hooks { mutating: of(MUTATING), validating: of(VALIDATING) }));
    }

    /// The webhooks of a sort, if there are any.
    pub(crate) fn of(&self, sort: Sort) -> Option<Vec<Arc<Hook>>> {
        let hooks = self.hooks.load();
        let hooks = match sort {
            Sort::Mutating => &hooks.mutating,
            Sort::Validating => &hooks.validating,
        };
        (!hooks.is_empty()).then(|| hooks.clone())
    }

    /// Whoever asks webhooks.
    pub(crate) fn caller(&self) -> Option<&Arc<dyn WebhookCaller>> {
        self.caller.get()
    }
}

impl Derived for Webhooks {
    fn resources(&self) -> &[&'static str] {
        &[MUTATING, VALIDATING]
    }

    fn rebuild(&self, now: &Snapshot<Header>) {
        let stored = [MUTATING, VALIDATING].into_iter().flat_map(|resource| now.range(resource, None, None));
        let mut read = self.read.lock();
        *read = stored.map(|object| (object.key.clone(), self.read(object))).collect();
        self.show(&read);
    }

    fn update(&self, changed: &BTreeSet<Key>, now: &Snapshot<Header>) {
        let mut read = self.read.lock();
        for key in changed {
            match now.get(key) {
                Some(object) => drop(read.insert(key.clone(), self.read(object))),
                None => drop(read.remove(key)),
            }
        }
        self.show(&read);
    }
}
