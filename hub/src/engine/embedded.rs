//! The embedded engine: the Kubernetes API with Karmada's kinds and rules, over a store of our own.

use std::{sync::Arc, time::Duration};

use karmada_api::consts::namespace;
use karmada_apiserver::{
    ApiServer, Registration,
    authn::UserInfo,
    authz::{Authorization, Coarse},
    encryption::Encryption,
    history_age,
    limits::Limits,
    open_store_sealed,
    quota::StorageQuota,
    storage::ApiStore,
};
use karmada_client::Rest;
use karmada_env::Env;
use karmada_objects::kinds::NAMESPACES;
use karmada_store::{HistoryLimits, OpenError, Options as StoreOptions, engine::Engine};
use kube::Client;
use serde_json::json;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::members;
use crate::{
    Hub, HubConfig, HubError,
    admission::{CONTROLLERS, KarmadaAdmission, services::AdmissionClient},
    known::searched::Searched,
    push::Copies,
    reported::Reported,
    write::claiming::NewTemplates,
};

/// Who the controllers are, in the fields they own and in the log.
const AGENT: &str = concat!("karmada-controller-manager/", env!("CARGO_PKG_VERSION"));

/// For how long an agent may be away and still go on from where it was, as far as the store's bytes reach.
const WORKS_AGE: Duration = Duration::from_secs(24 * 3600);

/// What can be watched from: Works for a day, everything else as an API server has it, and no more than an eighth of
/// what may be stored.
fn history(quota: StorageQuota) -> HistoryLimits {
    let age = |resource: &str| match resource {
        "work.karmada.io/works" => WORKS_AGE,
        other => history_age(other),
    };
    let HistoryLimits { bytes, least, most, .. } = StoreOptions::default().history;
    // It is in memory, too: where there is little, history is short.
    let room = if quota.whole == 0 { most } else { usize::try_from(quota.whole / 8).unwrap_or(most) };
    HistoryLimits { age, bytes: bytes.min(room), least, most: most.min(room) }
}

/// An API server that knows Karmada's kinds.
#[derive(Debug)]
pub struct Embedded {
    server: ApiServer,
    store: ApiStore,
    new_templates: NewTemplates,
    reaching: Arc<karmada_reach::Figures>,
    copies: Arc<Copies>,
    reported: Arc<Reported>,
    tasks: TaskTracker,
}

impl Embedded {
    /// Opens the store on `engine` and starts what an API server does in the background; both end with `stop`,
    /// after which [`Embedded::close`] makes sure that everything is written.
    ///
    /// # Errors
    /// When the store cannot be opened.
    pub async fn start(engine: impl Engine, env: &Env, stop: CancellationToken) -> Result<Self, OpenError> {
        Self::start_limited(engine, env, Limits::default(), stop).await
    }

    /// [`Embedded::start`] with limits of the caller's.
    ///
    /// # Errors
    /// When the store cannot be opened.
    pub async fn start_limited(
        engine: impl Engine,
        env: &Env,
        limits: Limits,
        stop: CancellationToken,
    ) -> Result<Self, OpenError> {
        Self::start_sealed(engine, Arc::new(Encryption::none()), env, limits, stop).await
    }

    /// [`Embedded::start_limited`] on a store whose values are encrypted where they are kept.
    ///
    /// # Errors
    /// When the store cannot be opened.
    pub async fn start_sealed(
        engine: impl Engine,
        encryption: Arc<Encryption>,
        env: &Env,
        limits: Limits,
        stop: CancellationToken,
    ) -> Result<Self, OpenError> {
        let history = history(limits.storage);
        let store = open_store_sealed(engine, encryption, env, history, limits.storage)?;
        let admission = KarmadaAdmission::new(env.clone());
        let searched = Arc::<Searched>::default();
        let registration = Registration {
            crds: karmada_api::crds(),
            admission: admission.clone(),
            derived: vec![searched.clone()],
            ..Registration::default()
        };
        let server = ApiServer::with_limits(store.clone(), env.clone(), registration, limits, stop);
        admission.attach(server.registry());
        server.call_webhooks(Arc::new(AdmissionClient::new(env)));
        let copies = Arc::new(Copies::new(&searched, env));
        let reported = Arc::new(Reported::new(&searched, env));
        let reach = members::reach(&server, &searched, (&copies, &reported), env);
        server.add_paths(&reported.paths());
        let reaching = reach.figures().clone();
        reported.count_in(&reaching);
        server.carry_path(&reach.tunnels());
        reach.metrics().iter().for_each(|group| server.carry_group(group));
        reach.subresources().iter().for_each(|carried| server.carry(carried));
        let tasks = server.start().await;
        let new_templates = admission.new_templates().clone();
        let embedded = Self { server, store, new_templates, reaching, copies, reported, tasks };
        embedded.create_namespaces().await;
        Ok(embedded)
    }

    /// The store as it is, for reading: nothing runs in the background, and nothing is brought up to date.
    ///
    /// # Errors
    /// When the store cannot be opened.
    pub fn at_rest(engine: impl Engine, encryption: Arc<Encryption>, env: &Env) -> Result<Self, OpenError> {
        let history = HistoryLimits { age: history_age, ..StoreOptions::default().history };
        let store = open_store_sealed(engine, encryption, env, history, StorageQuota::NONE)?;
        let authorizer = Authorization::By(Arc::new(Coarse));
        let registration = Registration { authorizer, ..Registration::default() };
        let server = ApiServer::new(store.clone(), env.clone(), registration, CancellationToken::new());
        let tasks = TaskTracker::new();
        tasks.close();
        let (new_templates, reaching) = (NewTemplates::default(), Arc::default());
        let copies = Arc::new(Copies::new(&Arc::default(), env));
        let reported = Arc::new(Reported::new(&Arc::default(), env));
        Ok(Self { server, store, new_templates, reaching, copies, reported, tasks })
    }

    /// The server, for a listener.
    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    /// What goes to members and back, in numbers.
    pub fn reaching(&self) -> &Arc<karmada_reach::Figures> {
        &self.reaching
    }

    /// The store, for copies of it.
    pub fn store(&self) -> &ApiStore {
        &self.store
    }

    /// Controllers over this API, which it asks for the policies of new objects while they run.
    ///
    /// # Errors
    /// When a part of the configuration cannot be used.
    pub fn hub(&self, config: HubConfig, env: &Env) -> Result<Hub, HubError> {
        let hub = Hub::new(config, self.client(), env.clone())?;
        let hub = hub.with_new_templates(&self.new_templates).with_epochs(self.server.epochs());
        Ok(hub.with_copies(&self.copies, &self.reported))
    }

    /// A client for the controllers: in process, and allowed everything.
    pub fn client(&self) -> Client {
        self.server.client(UserInfo::system(CONTROLLERS), AGENT)
    }

    /// The namespaces that a hub has beside those of every API server.
    async fn create_namespaces(&self) {
        let rest = Rest::new(self.client());
        for name in [namespace::SYSTEM, namespace::CLUSTER] {
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            match rest.post(&NAMESPACES.collection(None), &object).await {
                Err(error) if !error.is_already_exists() => {
                    tracing::error!(name, %error, "cannot create a namespace of the hub");
                }
                _ => {}
            }
        }
    }

    /// Waits for the background to end, and for everything to be written. `stop` must have been given.
    ///
    /// # Errors
    /// When something that was answered could not be written.
    pub async fn close(self) -> Result<(), String> {
        self.tasks.wait().await;
        self.store.close().await.map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests;
