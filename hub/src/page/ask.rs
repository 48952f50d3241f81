//! Single things of the page: what its user may read of them, as the page shows it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::body::Body;
use futures::{StreamExt as _, TryStreamExt as _};
use http::{Method, Response};
use karmada_api::consts::{extension, label, namespace};
use karmada_apiserver::{authz::ResourceTarget, heavy};
use karmada_cli::{Assumed, Failure, Wanted, documents};
use karmada_client::{Error, Resource};
use karmada_core::names;
use karmada_env::Env;
use karmada_meta::{object, status::Status, time::Time};
use karmada_objects::{
    Objects, bindings,
    discovery::Lookup,
    key::Key,
    kinds::{CLUSTERS, CONFIG_MAPS, EVENTS, FEDERATED_RESOURCE_QUOTAS, WORKLOAD_REBALANCERS, WORKS},
    scope::Scope,
};
use karmada_ui::views;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{
    Asked, Page, eyes,
    eyes::Eyes,
    figures,
    places::{Fresh, GATHERED, Shares, turn, turns},
};

/// Which question a path asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    Cluster,
    Apps,
    App,
    Explain,
    Difference,
    WhatIf,
    Cordon,
    Hub,
    Labels,
    Drain,
    Failback,
    Quotas,
}

/// Where they are asked.
pub(super) const ANSWERS: [(&str, &[Method], Question); 12] = [
    ("/ui/api/cluster", super::READ, Question::Cluster),
    ("/ui/api/apps", super::READ, Question::Apps),
    ("/ui/api/app", super::READ, Question::App),
    ("/ui/api/explain", super::READ, Question::Explain),
    ("/ui/api/difference", super::READ, Question::Difference),
    ("/ui/api/what-if", super::READ, Question::WhatIf),
    ("/ui/api/cordon", super::WRITE, Question::Cordon),
    ("/ui/api/hub", super::READ, Question::Hub),
    ("/ui/api/labels", super::READ, Question::Labels),
    ("/ui/api/drain", super::WRITE, Question::Drain),
    ("/ui/api/failback", super::WRITE, Question::Failback),
    ("/ui/api/quotas", super::READ, Question::Quotas),
];

/// So many large answers are packed at a time, and from so many bytes one is large.
const PACKED: usize = 2;
const LARGE: usize = 16 << 10;
/// So many applications are listed at a time.
const APPS: usize = 200;
/// So many of them are read at a time.
const READ_AT_A_TIME: usize = 16;
/// For so long it is known what a kind is called in paths.
const KINDS: Duration = Duration::from_secs(60);
/// So many objects are supposed of, which may take a while for each.
const SUPPOSED: usize = 500;
/// The path that whoever may get sees what others have changed. Nothing answers there.
pub(super) const CHANGES: &str = "/audit";
/// So many changes are shown.
const SHOWN_OF_CHANGES: usize = 20;
/// So many objects are named of which something was begun.
const SHOWN_OF_MOVES: usize = 200;
/// How long the figures of the hub are shown before they are gathered anew: a fleet's fill a page of some megabytes.
const FIGURES: Duration = Duration::from_secs(5);

/// What is asked, and whose turn it is.
pub(super) struct Asking {
    eyes: Eyes,
    /// One thing at a time is computed: it takes a processor.
    place: Semaphore,
    /// Those that are gathered.
    gathering: Semaphore,
    /// What is begun with all that runs on a cluster.
    doing: Semaphore,
    /// Large answers, while they are packed.
    packing: Semaphore,
    /// How many questions each user has open.
    open: Shares,
    /// The figures.
    figures: Fresh<Value>,
    /// Kinds that are there, by apiVersion and name, and when they were asked for.
    kinds: Mutex<BTreeMap<(String, String), (Duration, Resource)>>,
}

impl Asking {
    pub(super) fn new(eyes: Eyes, env: &Env) -> Self {
        Self {
            eyes,
            place: Semaphore::new(1),
            gathering: Semaphore::new(GATHERED),
            doing: Semaphore::new(1),
            packing: Semaphore::new(PACKED),
            open: Shares::default(),
            figures: Fresh::new(FIGURES, env),
            kinds: Mutex::default(),
        }
    }

    pub(super) async fn answer(&self, which: Question, page: &Page, asked: &Asked) -> Result<Value, Status> {
        let objects = asked.objects(&page.handle);
        // One user's many questions are no reason for others to wait.
        let share = self.open.take(&asked.user.name)?;
        let gathers = [
            Question::Cluster,
            Question::Apps,
            Question::App,
            Question::Difference,
            Question::Labels,
            Question::Quotas,
        ]
        .contains(&which);
        let _turns = if gathers { Some(turns(&share.gathering, &self.gathering).await?) } else { None };
        match which {
            Question::Cluster => self.cluster(page, asked, &objects).await,
            Question::Apps => self.apps(page, asked, &objects).await,
            Question::App => self.app(page, asked, &objects).await,
            Question::Explain => {
                asked.may_list_clusters(&page.handle)?;
                let (kind, name) = (asked.wanted("kind")?, asked.wanted("name")?);
                let namespace = asked.query("namespace").unwrap_or_default();
                // What it asks for on its way is large.
                let found = documents::explain(objects, &namespace, &kind, &name, &page.env);
                self.computed(Box::pin(found)).await
            }
            Question::Difference => self.difference(page, asked, &objects).await,
            Question::WhatIf => {
                asked.may_list_clusters(&page.handle)?;
                let wanted = Wanted::of(&asked.list("lose"), &asked.list("drain"), &asked.list("cordon"));
                if wanted.is_empty() {
                    return Err(Status::bad_request("name clusters in lose, drain or cordon"));
                }
                let settings = self.eyes.context().map(|context| {
                    let accounts = &context.accounts;
                    Assumed::of_hub(accounts.evictions.settings, accounts.judgement.settings().brake)
                });
                let wanted = wanted.by(settings.unwrap_or_default());
                self.computed(documents::what_if(objects, &wanted, SUPPOSED, &page.env)).await
            }
            Question::Cordon => {
                let (name, on) = (asked.wanted("cluster")?, asked.wanted("on")?);
                let on = on.parse().map_err(|_| Status::bad_request("on: true or false"))?;
                let done = documents::cordon(objects, &name, on, &page.env).await.map_err(failed)?;
                Ok(json!({"cluster": name, "cordoned": on, "changed": done}))
            }
            Question::Drain => {
                let name = asked.wanted("cluster")?;
                asked.may(&page.handle, "patch", target_of(&CLUSTERS))?;
                let _turn = turn(&self.doing).await?;
                // It goes on to its end, whoever has left.
                heavy::beside(usize::MAX, documents::drain(objects, &name, SHOWN_OF_MOVES, &page.env))
                    .await
                    .map_err(failed)
            }
            Question::Failback => {
                let name = asked.wanted("cluster")?;
                asked.may(&page.handle, "create", target_of(&WORKLOAD_REBALANCERS))?;
                let _turn = turn(&self.doing).await?;
                heavy::beside(usize::MAX, documents::failback(objects, &name, SHOWN_OF_MOVES, &page.env))
                    .await
                    .map_err(failed)
            }
            Question::Hub => Box::pin(self.hub(page, asked, &objects)).await,
            Question::Quotas => {
                let mut quotas = views::Quotas::default();
                let add = |page: Vec<Value>| quotas.add(&page);
                objects
                    .list(&FEDERATED_RESOURCE_QUOTAS, None, "", add)
                    .await
                    .map_err(|error| refused(&error))?;
                Ok(quotas.shown())
            }
            Question::Labels => {
                asked.may_list_clusters(&page.handle)?;
                Ok(page.live.labels(asked.query("key").as_deref()).await)
            }
        }
    }

    /// A document of any size as an answer.
    pub(super) async fn written(&self, asked: &Asked, value: Value) -> Result<Response<Body>, Status> {
        let text = value.to_string();
        if text.len() < LARGE {
            return Ok(super::written(asked, text));
        }
        let _turn = turn(&self.packing).await?;
        Ok(heavy::beside(text.len(), async { super::written(asked, text) }).await)
    }

    /// What is computed of much, when its turn comes, beside everybody's work.
    async fn computed(&self, work: impl Future<Output = Result<Value, Failure>>) -> Result<Value, Status> {
        let _place = turn(&self.place).await?;
        heavy::beside(usize::MAX, work).await.map_err(failed)
    }

    async fn cluster(&self, page: &Page, asked: &Asked, objects: &Objects) -> Result<Value, Status> {
        let name = asked.wanted("name")?;
        let cluster = objects
            .get(&CLUSTERS, &Key::cluster_scoped(name.as_str()))
            .await
            .map_err(|error| refused(&error))?;
        let cluster = cluster.ok_or_else(|| missing("cluster", &name))?;
        let mut view = views::cluster(&cluster);
        view["now"] = json!(Time::now(&page.env));
        if let Some(context) = self.eyes.context() {
            view["told"] = json!(eyes::of_cluster(&context, &name, page.live.hub_began()));
        }
        // What one may not read of it is left out, and said to be.
        let mut works = views::Works::default();
        let place = names::execution_namespace(&name);
        let listed = objects.list(&WORKS, Some(&place), "", |page: Vec<Value>| works.add(&page)).await;
        view["works"] = listed.map_or_else(|error| denied(&error), |()| works.shown());
        if asked.is_brief() {
            return Ok(view);
        }
        let mut events = views::Events::default();
        let about = format!("involvedObject.kind=Cluster,involvedObject.name={name}");
        let listed = objects
            .list_by_fields(&EVENTS, Some("default"), &about, |page: Vec<Value>| events.add(&page))
            .await;
        view["events"] = listed.map_or_else(|error| denied(&error), |()| events.shown());
        Ok(view)
    }

    async fn apps(&self, page: &Page, asked: &Asked, objects: &Objects) -> Result<Value, Status> {
        let wanted = asked.query("namespace");
        let needle = asked.query("q").unwrap_or_default().to_lowercase();
        let (mut apps, mut of, mut refusals) = (Vec::new(), 0usize, Vec::new());
        let scopes: &[Scope] = match wanted {
            Some(_) => &[Scope::Namespaced],
            None => &[Scope::Namespaced, Scope::Cluster],
        };
        for scope in scopes {
            let room = APPS - apps.len();
            let found = match self.names(page, asked, *scope, wanted.as_deref(), &needle, room).await {
                Some((names, all)) => {
                    of += all;
                    read_apps(objects, *scope, names).await
                }
                None => {
                    let mut some = Vec::new();
                    let take = |page: Vec<Value>| {
                        for app in page.iter().map(views::app).filter(|app| is_named(app, &needle)) {
                            of += 1;
                            if some.len() < room {
                                some.push(app);
                            }
                        }
                    };
                    let listed = objects.list(bindings::resource(*scope), wanted.as_deref(), "", take).await;
                    listed.map(|()| some)
                }
            };
            match found {
                Ok(some) => apps.extend(some),
                Err(error) if error.is_forbidden() && wanted.is_none() => refusals.push(error),
                Err(error) => return Err(refused(&error)),
            }
        }
        // Who may read some of it is shown that; who may read nothing is told so.
        if refusals.len() == scopes.len()
            && let Some(error) = refusals.pop()
        {
            return Err(refused(&error));
        }
        Ok(
            json!({"apps": apps, "of": of, "hidden": refusals.iter().map(ToString::to_string).collect::<Vec<_>>()}),
        )
    }

    /// Which bindings are called so, `most` of them and how many there are, by what the hub remembers of all. Nothing for whoever
    /// may not list them, and while the hub has not read them yet.
    async fn names(
        &self,
        page: &Page,
        asked: &Asked,
        scope: Scope,
        namespace: Option<&str>,
        needle: &str,
        most: usize,
    ) -> Option<(Vec<Key>, usize)> {
        let resource = bindings::resource(scope);
        let target = ResourceTarget { namespace: namespace.unwrap_or_default(), ..target_of(resource) };
        asked.may(&page.handle, "list", target).ok()?;
        let context = self.eyes.context()?;
        let known = context.known.bindings.of(scope);
        if !known.is_synced() {
            return None;
        }
        let looking = async {
            let (mut names, mut of) = (Vec::new(), 0);
            for (key, head) in known.pages(namespace).flatten() {
                let what = &head.resource;
                if needle.is_empty() || text_of(&what.namespace, &what.name, &what.kind).contains(needle) {
                    of += 1;
                    if names.len() < most {
                        names.push(Key::clone(&key));
                    }
                }
            }
            (names, of)
        };
        Some(heavy::beside(usize::MAX, looking).await)
    }

    async fn app(&self, page: &Page, asked: &Asked, objects: &Objects) -> Result<Value, Status> {
        let binding = binding(asked, objects).await?;
        let mut view = views::app(&binding);
        let copies = views::copies(&binding);
        if let Some(context) = self.eyes.context() {
            let names: Vec<_> =
                copies.iter().filter_map(|copy| copy["cluster"].as_str().map(str::to_owned)).collect();
            if asked.may_list_clusters(&page.handle).is_ok() {
                view["heard"] = eyes::heard(&context, &names);
            }
        }
        view["copies"] = copies.into();
        view["rollout"] = views::rollout(&binding);
        let policy = [
            ("PropagationPolicy", karmada_api::consts::annotation::PROPAGATION_POLICY_NAME),
            ("ClusterPropagationPolicy", karmada_api::consts::annotation::CLUSTER_PROPAGATION_POLICY_NAME),
        ]
        .iter()
        .find_map(|(kind, key)| Some(json!({"kind": kind, "name": object::annotation(&binding, key)?})));
        view["policy"] = json!(policy);
        view["placement"] = binding.pointer("/spec/placement").cloned().unwrap_or_default();
        view["conditions"] = binding.pointer("/status/conditions").cloned().unwrap_or_default();
        view["followed"] = binding.pointer("/spec/requiredBy").cloned().unwrap_or_default();
        view["now"] = json!(Time::now(&page.env));
        if asked.is_brief() {
            return Ok(view);
        }
        match self.template(page, objects, &binding).await {
            Ok(Some(template)) => {
                view["template"] = json!({
                    "generation": object::generation(&template), "born": object::creation_timestamp(&template),
                });
            }
            Ok(None) => view["template"] = json!({"gone": true}),
            Err(error) => view["template"] = denied(&error),
        }
        Ok(view)
    }

    /// The template of a binding, if it is there.
    async fn template(
        &self,
        page: &Page,
        objects: &Objects,
        binding: &Value,
    ) -> Result<Option<Value>, Error> {
        let of = &binding["spec"]["resource"];
        let text = |field: &str| of[field].as_str().unwrap_or_default();
        let (kind, now) = ((text("apiVersion").to_owned(), text("kind").to_owned()), page.env.now());
        let known = self.kinds.lock().get(&kind).cloned();
        let known = known.filter(|(at, _)| now.saturating_sub(*at) < KINDS).map(|(_, resource)| resource);
        let resource = match known {
            Some(resource) => resource,
            None => {
                let served = Lookup::default().find(objects.rest(), &kind.0, &kind.1).await?;
                let Some(served) = served else { return Ok(None) };
                self.kinds.lock().insert(kind, (now, served.resource.clone()));
                served.resource
            }
        };
        objects.get(&resource, &Key::new(text("namespace"), text("name"))).await
    }

    async fn difference(&self, page: &Page, asked: &Asked, objects: &Objects) -> Result<Value, Status> {
        let cluster = asked.wanted("cluster")?;
        let binding = binding(asked, objects).await?;
        let template = self.template(page, objects, &binding).await.map_err(|error| refused(&error))?;
        let template = template.ok_or_else(|| missing("template of", object::name(&binding)))?;
        let scope = scope(asked)?;
        let id = [label::RESOURCE_BINDING_ID, label::CLUSTER_RESOURCE_BINDING_ID];
        let id = id[usize::from(scope == Scope::Cluster)];
        let own = object::label(&binding, id).ok_or_else(|| missing("Work of", object::name(&binding)))?;
        let place = names::execution_namespace(&cluster);
        let works = list(objects, &WORKS, Some(&place), &format!("{id}={own}"))
            .await
            .map_err(|error| refused(&error))?;
        let work = works.first().ok_or_else(|| missing("Work on", &cluster))?;
        Ok(views::difference(&template, work))
    }

    /// The hub, and its figures: those of `/metrics`, for whoever may read that, without those of each cluster. The latter alone
    /// are asked for again and again; whoever listens hears when something else has changed.
    async fn hub(&self, page: &Page, asked: &Asked, objects: &Objects) -> Result<Value, Status> {
        asked.may_list_clusters(&page.handle)?;
        let mut view = json!({
            "now": Time::now(&page.env), "hubBegan": page.live.hub_began(), "hub": env!("CARGO_PKG_VERSION"),
            "watching": page.live.readers(),
        });
        match self.figures(page, asked).await {
            Ok(figures) => view["figures"] = Value::clone(&figures),
            Err(why) => view["figures"] = json!({"denied": why.message}),
        }
        // Who else has logged in is for whoever may see what everybody does.
        let log = asked.may_get(&page.handle, CHANGES);
        if log.is_ok() {
            view["users"] = json!(page.logged_in.sessions.users());
        }
        if asked.is_brief() {
            return Ok(view);
        }
        let standing = page.live.standing().await;
        for part in ["counts", "links", "silent"] {
            view[part] = standing[part].clone();
        }
        if let Some(context) = self.eyes.context() {
            let judgement = &context.accounts.judgement;
            let settings = judgement.settings();
            view["brake"] = json!({
                "held": judgement.brakes(), "share": settings.brake.share, "least": settings.brake.least,
                "timeoutSeconds": settings.brake.timeout.as_secs(),
            });
            view["budgets"] = json!({
                "perBinding": settings.budget.per_binding, "perMinute": settings.budget.per_minute,
            });
            view["grace"] = json!(settings.health.grace.as_secs());
        }
        view["upgrade"] = match objects.get(&CONFIG_MAPS, &upgrade()).await {
            Ok(object) => object.as_ref().map(views::upgrade).unwrap_or_default(),
            Err(error) => denied(&error),
        };
        view["changes"] = match log {
            Ok(()) => json!(page.handle.last_changes(SHOWN_OF_CHANGES)),
            Err(why) => json!({"denied": why.message}),
        };
        Ok(view)
    }

    /// Gathered once for all who look.
    async fn figures(&self, page: &Page, asked: &Asked) -> Result<Arc<Value>, Status> {
        // Whether they may is judged each time; gathered they are for all.
        asked.may_get(&page.handle, "/metrics")?;
        self.figures.get(figures::gather(page, asked)).await
    }
}

/// Where an upgrade of the agents is asked for.
pub(super) fn upgrade() -> Key {
    Key::new(namespace::SYSTEM, extension::AGENT_UPGRADE_OBJECT)
}

pub(super) fn target_of(resource: &Resource) -> ResourceTarget<'_> {
    ResourceTarget { group: &resource.group, resource: &resource.plural, ..ResourceTarget::default() }
}

/// What an application is found by.
fn text_of(namespace: &str, name: &str, kind: &str) -> String {
    format!("{namespace}/{name} {kind}").to_lowercase()
}

/// Whether a line of the list is found by these letters.
fn is_named(app: &Value, needle: &str) -> bool {
    let text = |field: &str| app[field].as_str().unwrap_or_default();
    text_of(text("namespace"), text("name"), text("kind")).contains(needle)
}

/// The lines of these bindings. One that has gone meanwhile is left out.
async fn read_apps(objects: &Objects, scope: Scope, names: Vec<Key>) -> Result<Vec<Value>, Error> {
    let read = names.into_iter().map(|key| async move { objects.get(bindings::resource(scope), &key).await });
    let found = futures::stream::iter(read)
        .buffered(READ_AT_A_TIME)
        .try_filter_map(async |found| Ok::<_, Error>(found.as_ref().map(views::app)));
    found.try_collect().await
}

fn scope(asked: &Asked) -> Result<Scope, Status> {
    match asked.wanted("scope")?.as_str() {
        "namespaced" => Ok(Scope::Namespaced),
        "cluster" => Ok(Scope::Cluster),
        other => Err(Status::bad_request(format!("scope: {other:?} is neither namespaced nor cluster"))),
    }
}

/// Which binding is asked for.
pub(super) fn which(asked: &Asked) -> Result<(Scope, Key), Status> {
    let (scope, name) = (scope(asked)?, asked.wanted("binding")?);
    let key = match scope {
        Scope::Namespaced => Key::new(asked.wanted("namespace")?, name),
        Scope::Cluster => Key::cluster_scoped(name),
    };
    Ok((scope, key))
}

/// The binding that is asked for.
async fn binding(asked: &Asked, objects: &Objects) -> Result<Value, Status> {
    let (scope, key) = which(asked)?;
    let found = objects.get(bindings::resource(scope), &key).await.map_err(|error| refused(&error))?;
    found.ok_or_else(|| missing("binding", &key.name))
}

async fn list(
    objects: &Objects,
    resource: &Resource,
    namespace: Option<&str>,
    selector: &str,
) -> Result<Vec<Value>, Error> {
    let mut all = Vec::new();
    objects.list(resource, namespace, selector, |page: Vec<Value>| all.extend(page)).await?;
    Ok(all)
}

/// What is shown in place of what one may not read.
fn denied(error: &Error) -> Value {
    json!({"denied": error.to_string()})
}

fn missing(what: &str, name: &str) -> Status {
    Status {
        code: 404,
        reason: "NotFound".to_owned(),
        ..Status::bad_request(format!("there is no {what} {name:?}"))
    }
}

/// The API's own answer, or that there was none.
fn refused(error: &Error) -> Status {
    match error.status() {
        Some(status) => Status {
            code: status.code,
            reason: status.reason.clone(),
            ..Status::bad_request(status.message.clone())
        },
        None => Status::service_unavailable(error.to_string()),
    }
}

fn failed(failure: Failure) -> Status {
    match failure {
        Failure::Usage(why) | Failure::Failed(why) => Status::bad_request(why),
        Failure::Answered { code, reason, why } => Status { code, reason, ..Status::bad_request(why) },
        Failure::Ended(code) => Status::internal(format!("ended with {code}")),
    }
}
