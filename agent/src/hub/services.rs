//! Users' services that say what the fields of a kind mean, asked from the edge. Few can be reached from here: what
//! cannot is answered by the rules of its kind, but for what the member may keep, and the Cluster has an event that says
//! so.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use karmada_api::consts::event;
use karmada_client::{
    ObjectRef, Recorder,
    webhook::{PostError, Target, WebhookClient},
};
use karmada_env::Env;
use karmada_interpreter::webhook::{Call, CallError, Caller, Hook};
use parking_lot::Mutex;
use serde_json::Value;

/// Asks services over the network.
#[derive(Debug)]
pub(crate) struct AgentCaller {
    client: WebhookClient,
    recorder: Recorder,
    cluster: String,
    /// Addresses that could not be reached when they were asked last.
    away: Mutex<Vec<String>>,
}

impl AgentCaller {
    pub(crate) fn new(env: Env, recorder: Recorder, cluster: String) -> Self {
        Self { client: WebhookClient::new(env), recorder, cluster, away: Mutex::default() }
    }

    async fn ask(&self, hook: &Hook, question: &Value) -> Result<Value, CallError> {
        let url = hook.address();
        let bundle = hook.client.ca_bundle.as_deref().filter(|bundle| !bundle.is_empty());
        let authorities = bundle
            .map(|bundle| STANDARD.decode(bundle))
            .transpose()
            .map_err(|error| CallError::Failed(format!("clientConfig.caBundle is not base64: {error}")))?;
        let target =
            Target { url: &url, address: None, authorities: authorities.as_deref(), timeout: hook.timeout };
        match self.client.post(&target, question).await {
            Ok(answer) => {
                self.away.lock().retain(|known| *known != url);
                Ok(answer)
            }
            Err(PostError::Failed(why)) => Err(CallError::Failed(why)),
            Err(PostError::Unreachable(why)) => {
                self.tell(hook, url, &why);
                Err(CallError::Unreachable(why))
            }
        }
    }

    /// Says once that a service cannot be reached, until it can.
    fn tell(&self, hook: &Hook, url: String, why: &str) {
        {
            let mut away = self.away.lock();
            if away.contains(&url) {
                return;
            }
            away.push(url);
        }
        let message = format!(
            "cluster {} cannot reach the interpreter {hook}: {why}; the built-in rules answer in its stead, and objects of \
             which it says what they may keep (Retain) stay as they are",
            self.cluster
        );
        tracing::warn!(cluster = %self.cluster, "{message}");
        let cluster = ObjectRef {
            api_version: "cluster.karmada.io/v1alpha1".into(),
            kind: "Cluster".into(),
            name: self.cluster.clone(),
            ..ObjectRef::default()
        };
        self.recorder.warning(&cluster, event::INTERPRETER_UNREACHABLE, message);
    }
}

impl Caller for AgentCaller {
    fn call<'a>(&'a self, hook: &'a Hook, question: &'a Value) -> Call<'a> {
        Box::pin(self.ask(hook, question))
    }
}
