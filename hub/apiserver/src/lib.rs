//! The Kubernetes API over a store. Knows nothing of Karmada.
//!
//! ```text
//!   listener (TLS, peer) ─┐   who, as whom, may they   ┌─ paths (health, version, figures), discovery
//!   ApiServer::client()  ─┴─► front ─► service ────────┤
//!        (in process)                                  └─ registry ─► store
//!                                                            ▲           │ watch
//!                              kinds + shape (rules, types)──┤           ├─► follow ─► kinds, webhooks, …
//!                    admission, webhooks ────────────────────┘           ▼
//!                                                                   controllers
//! ```
//!
//! - [`kinds`] says what is served; [`shape`] is the knowledge of one kind; [`builtin`] and [`crd`] provide both.
//! - [`registry`] is what writing and reading mean, once for all kinds.
//! - [`front`] says who asks and whether they may, for the API and for any other listener's [`paths`].
//! - [`service`] turns HTTP into calls of the registry; `watch` streams.
//! - [`follow`] keeps what is worked out from stored objects as new as they are.
//! - The background controllers ([`start`](ApiServer::start)) use the registry like any client, without HTTP.
//!
//! The rooms, from the top floor down. Each knows those below it, and of its own row some, but never in a circle:
//!
//! | room | what stands in it |
//! |---|---|
//! | `controllers` | what the server does by itself |
//! | [`service`], [`discovery`], `openapi`, `reviews`, `watch`, `brief` | requests to the API and their answers |
//! | [`front`], [`carried`], [`delegate`], `impersonate`, [`metrics`], [`listener`] | what stands before every answer, whoever gives it |
//! | [`registry`], `decode` | writing and reading |
//! | [`builtin`], [`validation`], [`defaults`] | what is known of Kubernetes' own kinds |
//! | [`webhooks`], [`admission`] | who may change or refuse a write |
//! | `caller`, [`audit`], [`limits`] | who makes a request, what is told of it, what it may take |
//! | [`authz`], [`certificates`], [`authn`] | who may what, who is certified, who is who |
//! | [`crd`], [`node_ports`], [`follow`], [`storage`], [`quota`], [`encryption`] | what is stored, and what is derived from it |
//! | [`kinds`], [`shape`], [`structural`], [`options`], `subresources`, `fields`, [`table`] | what a kind is, and what may be done with it |
//! | [`paths`], `body`, `request`, `negotiate`, `respond`, `identity`, `findings`, `sums`, [`pki`], [`heavy`], [`packed`], `bounds` | values, names and forms |
//!
//! A handler makes at most one store commit per object and depends on nothing that happens after it: it may be dropped with
//! its caller at any await. Objects are JSON throughout; nothing typed stands between a client and the store.
//!
//! # DIVERGENCES
//!
//! From kube-apiserver 1.36, on purpose or not built yet. In brackets: how many of the recorded cases (600, those about
//! rights aside) differ for it; `tests/tests/conformance.rs` holds the rest.
//!
//! - Protobuf is read and not written: answers are JSON or YAML, and a client that takes nothing but protobuf gets 406. (2)
//! - Admission webhooks are called ([`webhooks`] says what differs); a ValidatingAdmissionPolicy or
//!   MutatingAdmissionPolicy is stored for members and not evaluated, and whoever writes one is warned.
//! - No API aggregation, no exec, logs, proxy or binding of Kubernetes' own kinds; [`carried`] has other subresources and whole
//!   groups passed on. As there is no `pods/binding`, a Pod may be given its node by an update. (1)
//! - Services get no cluster IP, and no one is checked against a range: a template has no use for one, and a member gives
//!   out its own. Node ports are given out, so that all members open the same. (7)
//! - Of an object of anybody's 4 MiB are stored (etcd takes 1.5 MiB), and 5 MiB at all: whoever is in system:masters may change
//!   objects by bodies of that size, so that whatever is stored can be replaced by a controller.
//! - LimitRanges are completed and judged, and not applied: Pods are stored to run on members, which have limits of their own.
//! - Names have 1,024 bytes at most also where Kubernetes has no limit.
//! - Validation of built-in kinds covers what users of a hub meet; members validate in full. Where a message repeats a whole
//!   value, it shows the fields as JSON has them, not as Go's internal types do. (1)
//! - A get, a list or a watch from a version that is to come is answered at once with 504: there is one server, so waiting
//!   would not bring it sooner. Nor does this server write leases of its own, so the version that such an answer
//!   calls the current one may be that of the client's last write. (3)
//! - A list at version 0 has its `limit`, too, which kube-apiserver's cache passes over. (1)
//! - An Event goes an hour after it was last written, within a minute. Of an autoscaler's metrics `autoscaling/v1` shows the use of CPU alone.
//! - OpenAPI: version 3 comes in JSON alone, Swagger 2 without descriptions of built-in kinds and with the parameters of
//!   each operation written out where they stand, which old clients need; neither describes operations and their
//!   parameters, nor names protobuf as an answer. `openid` has no documents. (4)
//! - Authorisation ([`authz`]): a HEAD of a path is allowed to whoever may get it. A role is not judged that gives away more
//!   than 10,000 rights one by one of which no single rule has all: it is refused. Of Kubernetes' default roles there
//!   are those that somebody can use here; those of controllers are bound to nobody. Agents are judged by a table of
//!   their own, which no role adds to. SelfSubjectRulesReviews are incomplete for agents alone.
//! - Tokens of service accounts are signed by ES256, never RS256; a request for one is not shown to admission webhooks, and
//!   names at most 32 audiences. Users and groups of an OpenID issuer never begin with `system:` ([`authn::oidc`]), and ES512
//!   is not known. A token is 16 KiB long at most, and all headers of a client without a certificate are that together.
//! - Definitions: a conversion webhook is refused where it would be called, that is with more than one served version. CEL
//!   ([`karmada_cel`]) has no `image` functions; the words for what is no expression at all are close to ANTLR's, and what
//!   a rule costs is counted as cel-go counts it but for a few functions on lists.
//! - Bodies nest 100 deep at most (kube-apiserver: 10,000), paths with their queries have 64 KiB, headers over HTTP/2
//!   256 KiB. A 429 is a Status. Lists of more than a megabyte share a budget of bytes ([`limits`]).
//! - CertificateSigningRequests ([`certificates`]): the signer of clients alone is here, signs subjects of a common name and
//!   at most one organisation, without alternative names, and no other key than ECDSA P-256 and P-384, Ed25519 and RSA of 2048
//!   to 4096 bits. What is approved without anybody's help is said by tokens and agents' names, not by the rights to
//!   `certificatesigningrequests/clusteragent` and `selfclusteragent` that Karmada looks at. `spec.request` has 64 KiB at most.
//! - The audit log ([`audit`]) is written in batches, while no request waits unless it is told to; it says itself what else
//!   differs.
//! - A list can be told by its sums, and asked for in parts (`src/sums.rs`); a watch can be had without what has changed in its
//!   status alone (`as=News`): clients that do not ask for that see nothing of it.
//! - Owners are found by uid alone; an owner reference whose kind or name is wrong still counts.

pub mod admission;
pub mod audit;
pub mod authn;
pub mod authz;
mod body;
mod bounds;
mod brief;
pub mod builtin;
mod caller;
pub mod carried;
pub mod certificates;
mod controllers;
pub mod crd;
mod decode;
pub mod defaults;
pub mod delegate;
pub mod discovery;
pub mod encryption;
mod fields;
mod findings;
pub mod follow;
pub mod front;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod heavy;
mod identity;
mod impersonate;
pub mod kinds;
pub mod limits;
pub mod listener;
pub mod metrics;
mod negotiate;
pub mod node_ports;
mod openapi;
pub mod options;
pub mod packed;
pub mod paths;
pub mod pki;
pub mod quota;
pub mod registry;
mod request;
mod respond;
mod reviews;
pub mod service;
pub mod shape;
pub mod storage;
pub mod structural;
mod subresources;
mod sums;
pub mod table;
pub mod validation;
mod watch;
pub mod webhooks;

use std::{fmt, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use http::{Request, StatusCode};
use karmada_env::Env;
use karmada_meta::status::Status;
use karmada_store::{HistoryLimits, OpenError, Options as StoreOptions, Revision, Store, engine::Engine};
use karmada_telemetry::metrics::PageSource;
use serde_json::{Value, json};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::{Layer as _, ServiceExt as _};

pub use crate::service::Handle;
use crate::{
    admission::{Admission, AdmitAll},
    audit::Audit,
    authn::{
        Authenticator, Stored, UserInfo,
        accounts::{CurrentIssuer, ServiceAccounts},
        browser::Sessions,
        epochs::Epochs,
    },
    authz::{Authorization, Authorizer, Roles, pushed::Pushed, rbac::Rbac},
    carried::{Carried, CarriedGroup, CarriedPath},
    certificates::Certifier,
    controllers::{
        aggregate, apiservices, certificates as signing, definitions, events, fill_secrets, gc, namespaces,
        roles,
    },
    encryption::Encryption,
    follow::Derived,
    front::Front,
    kinds::{Kind, KindSpec, Kinds},
    limits::Limits,
    metrics::ServerFigures,
    paths::{HISTORY, Health, Paths, READ},
    quota::StorageQuota,
    registry::Registry,
    request::Query,
    service::{ApiService, Inner, identify},
    storage::{ApiStore, Projection},
    webhooks::WebhookCaller,
};

/// How long the disk may take for one write before the server says that it is not ready.
const DISK_PATIENCE: Duration = Duration::from_secs(10);
/// The same while everything is written anew: 2 GiB take a minute or two on a slow disk.
const REWRITE_PATIENCE: Duration = Duration::from_mins(10);

/// What makes a server one of a certain kind.
#[derive(Debug)]
pub struct Registration {
    /// Native kinds beside Kubernetes' own.
    pub kinds: Vec<KindSpec>,
    /// CustomResourceDefinitions that are installed, and kept up to date, at every start.
    pub crds: Vec<Value>,
    /// What may change or refuse writes.
    pub admission: Arc<dyn Admission>,
    /// Who may do what.
    pub authorizer: Authorization,
    /// What is worked out from stored objects beside what every server has. It is there when [`ApiServer::new`]
    /// returns, and a write that concerns it is answered when it has taken the write in.
    pub derived: Vec<Arc<dyn Derived>>,
}

/// A server of Kubernetes' own kinds, which the roles that it stores judge.
impl Default for Registration {
    fn default() -> Self {
        Self {
            kinds: Vec::new(),
            crds: Vec::new(),
            admission: Arc::new(AdmitAll),
            authorizer: Authorization::Roles,
            derived: Vec::new(),
        }
    }
}

/// The figures of a server.
fn figures(front: &Front, registry: &Registry) -> ServerFigures {
    ServerFigures {
        front: front.figures(),
        store: registry.store.clone(),
        webhooks: registry.webhooks.counts.clone(),
        storage: front.gate.limits().storage,
        pool: registry.pool.clone(),
    }
}

/// What every API server answers beside resources and discovery.
fn paths(
    figures: ServerFigures,
    issuer: &Arc<CurrentIssuer>,
    shutdown: &CancellationToken,
    leaving: &CancellationToken,
) -> Paths {
    let store = figures.store.clone();
    // A store that cannot be written to still answers, and goes on by itself: starting anew would not help.
    let writable = move || match (store.failure().map(|failure| failure.full), store.waits()) {
        // Reads go on, and nobody else is to be asked meanwhile.
        (None, Some(waits)) if store.rewrites() && waits < REWRITE_PATIENCE => {
            Ok(format!("everything is being written anew for {} s, writes wait for it", waits.as_secs()))
        }
        (_, Some(waits)) if waits >= DISK_PATIENCE => {
            Err(format!("its disk has not answered for {} s, writes wait for it", waits.as_secs()))
        }
        (None, _) => Health::Ok(String::new()),
        (Some(true), _) => Err("its disk is full, it takes no writes".to_owned()),
        (Some(false), _) => {
            Err("its disk fails, it takes no writes until everything is written anew".to_owned())
        }
    };
    // What is left goes on, so nobody is to be sent elsewhere: it is told, and does not fail.
    let store = figures.store.clone();
    let room = move || {
        let (used, quota) = (store.used().whole.bytes, store.quota());
        let percent = used.saturating_mul(100).checked_div(quota).unwrap_or(0);
        Ok(if percent < 80 { String::new() } else { format!("{percent} % of {quota} bytes are used") })
    };
    let (ends, leaves) = (shutdown.clone(), leaving.clone());
    let here = move || match ends.is_cancelled() || leaves.is_cancelled() {
        true => Err("reason withheld".to_owned()),
        false => Ok(String::new()),
    };
    let version = version().to_string();
    let answer = move |_| {
        let version = version.clone();
        async move { Ok(paths::text(StatusCode::OK, "application/json", version)) }
    };
    // What whoever reads tokens of service accounts elsewhere needs; nothing where none are issued.
    let document = |content_type: &'static str, of: fn(&ServiceAccounts) -> Value| {
        let issuer = issuer.clone();
        move |_| {
            let document = issuer.get().map(|issuer| of(&issuer).to_string());
            async move { Ok(paths::document(content_type, document)) }
        }
    };
    let store = figures.store.clone();
    let history = move |request: Request<axum::body::Body>| {
        let answer = history(&store, request.uri().query().unwrap_or_default());
        async move { answer.map(|answer| paths::text(StatusCode::OK, "application/json", answer.to_string())) }
    };
    Paths::default()
        .with(HISTORY, READ, history)
        .with(
            "/.well-known/openid-configuration",
            READ,
            document("application/json", ServiceAccounts::discovery),
        )
        .with("/openid/v1/jwks", READ, document("application/jwk-set+json", ServiceAccounts::key_set))
        .with_check("store", true, writable)
        .with_check("storage-quota", true, room)
        .with_check("shutdown", true, here)
        .with("/version", READ, answer.clone())
        .with("/version/", READ, answer)
        .with("/metrics", READ, move |request| {
            let answer = paths::figures(request.headers(), figures.page());
            async move { Ok(answer) }
        })
}

/// Which run of the store this is, and whether it knows another one up to a revision, if that is asked: so a client tells
/// whether this is the server that it knows, or an older copy of it.
fn history(store: &ApiStore, query: &str) -> Result<Value, Status> {
    let query = Query::parse(query);
    let mut answer = json!({
        "boot": store.boot_id(), "revision": store.revision().get(), "durable": store.durable().get(),
    });
    match (query.get("boot"), query.get("revision").map(str::parse::<u64>)) {
        (None, None) => {}
        (Some(boot), Some(Ok(revision))) => {
            answer["knows"] = store.knows(boot, Revision::new(revision)).into()
        }
        _ => return Err(Status::bad_request("boot and a revision, which is a number, go together")),
    }
    Ok(answer)
}

/// An API server over a store. Cheap to clone. Serves as soon as it is made; [`ApiServer::start`] adds what happens
/// in the background.
#[derive(Clone)]
pub struct ApiServer {
    inner: Arc<Inner>,
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer").finish_non_exhaustive()
    }
}

/// Opens a store for an API server: the projection it needs; renewals of Leases relaxed.
///
/// # Errors
/// As [`Store::open`].
pub fn open_store(engine: impl Engine, env: &Env) -> Result<ApiStore, OpenError> {
    let history = HistoryLimits { age: history_age, ..StoreOptions::default().history };
    open_store_with(engine, env, history)
}

/// The same, with limits of the caller's to what can be watched from.
///
/// # Errors
/// As [`Store::open`].
pub fn open_store_with(
    engine: impl Engine,
    env: &Env,
    history: HistoryLimits,
) -> Result<ApiStore, OpenError> {
    open_store_within(engine, env, history, StorageQuota::NONE)
}

/// The same, with limits to what may be stored.
///
/// # Errors
/// As [`Store::open`].
pub fn open_store_within(
    engine: impl Engine,
    env: &Env,
    history: HistoryLimits,
    quota: StorageQuota,
) -> Result<ApiStore, OpenError> {
    open_store_sealed(engine, Arc::new(Encryption::none()), env, history, quota)
}

/// The same, with values that are encrypted where they are kept.
///
/// # Errors
/// As [`Store::open`], and when a value is encrypted with a key that is not there.
pub fn open_store_sealed(
    engine: impl Engine,
    encryption: Arc<Encryption>,
    env: &Env,
    history: HistoryLimits,
    quota: StorageQuota,
) -> Result<ApiStore, OpenError> {
    let options = StoreOptions {
        relaxed: is_relaxed,
        history,
        quota: quota.whole,
        packs: packed::packs,
        ..StoreOptions::default()
    };
    Store::open_sealed(engine, encryption, Projection::new(quota), env.clone(), options)
}

/// Kinds of which some updates may be lost in a crash: renewals.
fn is_relaxed(resource: &str) -> bool {
    resource == registry::renewal::LEASES
}

/// For how long changes of a resource can be watched from. A fleet renews its Leases all the time, and nobody needs to
/// know how they were. Of each other object there are several Events, which people read and nobody acts by: they can be watched
/// from for as long as behind an etcd that is compacted every five minutes.
pub fn history_age(resource: &str) -> Duration {
    match resource {
        registry::renewal::LEASES => Duration::from_secs(60),
        "core/events" => Duration::from_secs(300),
        other => (StoreOptions::default().history.age)(other),
    }
}

impl ApiServer {
    /// A server over a store that was opened with [`open_store`]. `shutdown` ends its watches; requests are answered
    /// until the store is closed.
    pub fn new(store: ApiStore, env: Env, registration: Registration, shutdown: CancellationToken) -> Self {
        Self::with_limits(store, env, registration, Limits::default(), shutdown)
    }

    /// [`ApiServer::new`] with limits of the caller's.
    pub fn with_limits(
        store: ApiStore,
        env: Env,
        registration: Registration,
        limits: Limits,
        shutdown: CancellationToken,
    ) -> Self {
        let Registration { kinds, crds, admission, authorizer, mut derived } = registration;
        let stored = Stored::of(store.clone());
        derived.extend(stored.derived());
        let (authorizer, rbac): (Arc<dyn Authorizer>, _) = match authorizer {
            Authorization::By(authorizer) => (authorizer, None),
            Authorization::Roles => {
                let rbac = Arc::new(Rbac::default());
                let pushed = Arc::<Pushed>::default();
                derived.extend([rbac.clone() as Arc<dyn Derived>, pushed.clone()]);
                (Arc::new(Roles::new(rbac.clone()).with_pushed(pushed)), Some(rbac))
            }
        };
        let native: Vec<_> =
            builtin::kinds().into_iter().chain(kinds.into_iter().map(builtin::kind)).collect();
        let registry = Arc::new(Registry::new(store, env, native, admission, derived, limits.node_ports));
        let leaving = CancellationToken::new();
        let front = Front::new(authorizer, limits, registry.env.clone()).with_pool(registry.pool.clone());
        let issuer = Arc::new(CurrentIssuer::default());
        let paths = paths(figures(&front, &registry), &issuer, &shutdown, &leaving);
        let inner = Inner {
            registry,
            front,
            stored,
            rbac,
            paths: ArcSwap::from_pointee(paths),
            carried: ArcSwap::default(),
            carried_paths: ArcSwap::default(),
            carried_groups: ArcSwap::default(),
            discovery: discovery::Cache::default(),
            openapi: openapi::Cache::default(),
            scale: unlisted("autoscaling", "v1", "scales", "Scale"),
            token_request: unlisted("authentication.k8s.io", "v1", "tokenrequests", "TokenRequest"),
            issuer,
            certifier: Arc::default(),
            shutdown,
            leaving,
            crds,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Creates what every server has (the namespaces that stay, roles, the definitions of its registration) and starts the
    /// background controllers. They end with the shutdown token; wait for the tracker to be sure.
    pub async fn start(&self) -> TaskTracker {
        let (registry, shutdown) = (&self.inner.registry, &self.inner.shutdown);
        let tasks = TaskTracker::new();
        registry.follower.start(&tasks, shutdown);
        namespaces::create_permanent(registry).await;
        if let Some(rbac) = &self.inner.rbac {
            roles::reconcile(registry).await;
            aggregate::start(registry, rbac, &tasks, shutdown).await;
        }
        definitions::install(registry, &self.inner.crds).await;
        namespaces::start(registry, &tasks, shutdown);
        gc::start(registry, &tasks, shutdown);
        definitions::start(registry, &tasks, shutdown).await;
        apiservices::start(registry, self.inner.carried_groups.load_full(), &tasks, shutdown);
        fill_secrets::start(registry, self.inner.issuer.clone(), &tasks, shutdown);
        let tokens = &self.inner.stored.bootstrap;
        signing::start(registry, &self.inner.certifier, tokens, &tasks, shutdown);
        events::start(registry, self.inner.front.gate.limits().event_ttl, &tasks, shutdown);
        tasks.close();
        tasks
    }

    /// The HTTP service. Every request needs a [`Peer`](authn::Peer) as an extension, which [`listener`] sets, or a
    /// [`UserInfo`], which is believed.
    pub fn service(&self) -> ApiService {
        ApiService::new(self.inner.clone())
    }

    /// The same, for what the server itself holds.
    pub fn handle(&self) -> Handle {
        Handle::new(&self.inner)
    }

    /// Fails the readiness check from now on, so that nobody new is sent here. Everything is answered as before.
    pub fn leave(&self) {
        self.inner.leaving.cancel();
    }

    /// Who is who from now on: for requests of peers, and for reviews of tokens. Before that no token is known.
    /// What the store has of credentials counts as it has it.
    pub fn authenticate_by(&self, authenticator: Authenticator) {
        let issuer = authenticator.service_accounts().cloned();
        self.inner.front.authenticate_by(authenticator.with_stored(self.inner.stored.clone()));
        self.inner.issuer.set(issuer);
    }

    /// Knows browsers by the cookies of these sessions from now on. The first that are named stay.
    pub fn sessions_of(&self, sessions: Arc<dyn Sessions>) {
        self.inner.front.sessions_of(sessions);
    }

    /// Requests for certificates are decided and signed by this one from now on, and machines that join find the server.
    pub fn certify_by(&self, certifier: Certifier) {
        self.inner.certifier.set(certifier);
    }

    /// Who issues and judges tokens of service accounts from now on; everybody else is known as before.
    pub fn issue_by(&self, accounts: Arc<ServiceAccounts>) {
        let before = Authenticator::clone(&self.inner.front.authenticator());
        self.inner.front.authenticate_by(before.with_service_accounts(accounts.clone()));
        self.inner.issuer.set(Some(accounts));
    }

    /// Which credentials of agents count.
    pub fn epochs(&self) -> &Arc<Epochs> {
        &self.inner.stored.epochs
    }

    /// Tells this log of requests from now on, those of clients in process included, and of what the server does by itself.
    /// The first that is named stays.
    pub fn audit_by(&self, audit: Arc<Audit>) {
        self.inner.registry.audit_by(audit.clone());
        self.inner.front.audit_by(audit);
    }

    /// Answers these paths too from now on, after its own, and has their checks as well.
    pub fn add_paths(&self, more: &Paths) {
        self.inner.paths.rcu(|paths| Paths::clone(paths).and(more.clone()));
    }

    /// Who asks the admission webhooks of its configurations from now on. Without anybody to ask them they all fail.
    pub fn call_webhooks(&self, caller: Arc<dyn WebhookCaller>) {
        let registry = &self.inner.registry;
        registry.webhooks.call_by(caller);
        registry.follower.again(&*registry.webhooks);
    }

    /// Has a subresource's requests carried on from now on.
    pub fn carry(&self, one: &Carried) {
        self.inner.carried.rcu(|all| {
            let mut all = Vec::clone(all);
            all.push(one.clone());
            all
        });
    }

    /// Has a path's requests carried on from now on.
    pub fn carry_path(&self, one: &CarriedPath) {
        self.inner.carried_paths.rcu(|all| {
            let mut all = Vec::clone(all);
            all.push(one.clone());
            all
        });
    }

    /// Has all requests of a group carried on from now on. What kinds of objects it has here, by definitions of users, is not
    /// served any more.
    pub fn carry_group(&self, one: &CarriedGroup) {
        self.inner.carry_group(one);
    }

    /// What the server counts, for a page.
    pub fn figures(&self) -> ServerFigures {
        figures(&self.inner.front, &self.inner.registry)
    }

    /// Shows this page at `/metrics` from now on, which so far has the server's own figures alone.
    pub fn show_metrics(&self, page: PageSource) {
        self.inner.front.metrics.show(page);
    }

    /// What the handlers work on.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.inner.registry
    }

    /// The kinds served now.
    pub fn kinds(&self) -> Arc<Kinds> {
        self.inner.registry.kinds()
    }

    /// A client in process: no socket, but otherwise like a remote one. `agent` is its User-Agent, whose part before
    /// the slash names its fields where it names none.
    pub fn client(&self, user: UserInfo, agent: &str) -> kube::Client {
        kube::Client::new(identify(user, agent).layer(self.service()).boxed_clone(), "default")
    }
}

/// A kind that is served below other kinds only.
fn unlisted(group: &str, version: &str, resource: &str, kind: &str) -> Arc<Kind> {
    builtin::kind(KindSpec {
        group: group.to_owned(),
        version: version.to_owned(),
        resource: resource.to_owned(),
        kind: kind.to_owned(),
        namespaced: true,
        singular: kind.to_ascii_lowercase(),
        short_names: Vec::new(),
        categories: Vec::new(),
        verbs: Vec::new(),
        subresources: Vec::new(),
    })
}

/// `/version`.
fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
        "gitVersion": concat!("v1.36.2+karmada-", env!("CARGO_PKG_VERSION")),
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "rustc", "platform": format!("{}/{}", std::env::consts::OS, arch()),
    })
}

/// The machine's architecture by Go's names.
fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
