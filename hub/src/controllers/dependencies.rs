//! Dependencies: what a workload refers to goes along, where its policy says so (`propagateDeps`), and autoscalers that follow it.
//!
//! ```text
//!   binding with propagateDeps ─▶ template's references ─▶ Needs ─▶ each object that is needed ─▶ its binding
//!       (follow)                  (interpreter)                        (attach)              (karmada_core::attach)
//! ```
//!
//! An object is looked at when a binding that needs it changes, when it appears, changes or is given other labels,
//! and when its own binding does. What it is needed for is all in the memory of [`crate::accounts::needs`] by then; what is not
//! known yet after a start takes nothing away.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use karmada_api::{
    conditions::{self, Condition},
    consts::{annotation, component, event, extension, finalizer, label},
    work::{BindingSnapshot, ResourceBindingSpec},
};
use karmada_client::{Error, WorkQueue};
use karmada_core::{
    attach::{self, Agreement, Attach, Need},
    skip::Skip,
};
use karmada_interpreter::{DependentObjectReference, rules::Operation};
use karmada_meta::{object, path::aggregate, time::Time};
use karmada_objects::{
    Part, bindings,
    key::{self, Key, TemplateKey},
    scope::{BindingKey, Scope},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Context, Next, scaling, work};
use crate::{
    accounts::needs::Concerned,
    known::heads::{BindingHead, TemplateHead},
    write::checks,
};

/// How many bindings are worked on at a time.
const FOLLOWERS: usize = 4;
/// How many dependencies are worked on at a time.
const ATTACHERS: usize = 8;
/// How long after a user's rule has failed about a workload it is asked again.
const UNCLEAR: Duration = Duration::from_secs(30);
/// Who reports.
const COMPONENT: &str = component::DEPENDENCIES_DISTRIBUTOR;

/// Lets dependencies follow.
pub(crate) struct Dependencies {
    context: Arc<Context>,
    /// Bindings whose needs are to be looked at.
    followed: WorkQueue<BindingKey>,
    /// Dependencies whose bindings are.
    attached: WorkQueue<TemplateKey>,
    /// Dependencies that cannot be attached, and why.
    problems: Mutex<BTreeMap<TemplateKey, String>>,
}

impl Dependencies {
    /// A controller that hears the context's bindings, templates and rules from now on.
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        let followed: WorkQueue<BindingKey> = WorkQueue::new(context.env.clone());
        let attached: WorkQueue<TemplateKey> = WorkQueue::new(context.env.clone());
        context.figures.queue("dependencies", &followed);
        context.resync.bindings(&context.known, &followed, |head| head.propagate_deps);
        context.figures.queue("attached", &attached);
        for (scope, index) in context.known.bindings.both() {
            let (followed, attached) = (followed.clone(), attached.clone());
            let shared = Arc::downgrade(context);
            index.listen(move |change| {
                let Some(context) = shared.upgrade() else { return };
                let sides = || [change.old, change.new].into_iter().flatten();
                let key = BindingKey { scope, key: change.key.clone() };
                if sides().any(|head| head.propagate_deps)
                    && (change.differs(|head| &head.generation) || change.differs(|head| &head.deleting))
                {
                    followed.add(key);
                }
                let Some(object) = bindings::template_key(&change.last().resource) else { return };
                let attaches = sides().any(|head| !head.required_by.is_empty())
                    && (change.differs(|head| &head.required_by) || change.differs(|head| &head.generation));
                let vanished = change.new.is_none() && context.accounts.needs.has_kind(&object.kind);
                if attaches || vanished {
                    attached.add(object);
                }
            });
        }
        let (of_workloads, of_objects, shared) =
            (followed.clone(), attached.clone(), Arc::downgrade(context));
        context.known.templates.listen(move |kind, change| {
            let Some(context) = shared.upgrade() else { return };
            let own = BindingKey::of_template(&kind.kind, &change.key.namespace, &change.key.name);
            if context.known.bindings.of(own.scope).get(&own.key).is_some_and(|head| head.propagate_deps) {
                of_workloads.add(own);
            }
            // An autoscaler that follows what it scales.
            for head in [change.old, change.new].into_iter().flatten().filter(|head| head.follows) {
                if let Some(scales) = head.scales.as_deref() {
                    let TemplateKey { kind, key } = &scales.target;
                    of_workloads.add(BindingKey::of_template(&kind.kind, &key.namespace, &key.name));
                }
            }
            if !context.accounts.needs.has_kind(kind) {
                return;
            }
            let object = TemplateKey { kind: kind.clone(), key: change.key.clone() };
            let needed = [change.old, change.new]
                .into_iter()
                .flatten()
                .any(|head| !context.accounts.needs.of_object(&object, &head.labels).is_empty());
            if needed {
                of_objects.add(object);
            }
        });
        let (queue, shared) = (followed.clone(), Arc::downgrade(context));
        context.rules.changes.listen(move |kind| {
            let Some(context) = shared.upgrade() else { return };
            for (scope, index) in context.known.bindings.both() {
                for (key, _) in
                    index.group(&BindingHead::of_kind(kind)).iter().filter(|(_, h)| h.propagate_deps)
                {
                    queue.add(BindingKey { scope, key: key.clone() });
                }
            }
        });
        Self { context: context.clone(), followed, attached, problems: Mutex::default() }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        // A binding that is not known yet would seem to be gone, and with it what it needs.
        self.context.known.bindings.synced().await;
        self.context.rules.customizations.synced().await;
        let followed = work("dependencies", &self.followed, FOLLOWERS, &stop, |key| self.follow(key));
        let attached = work("attached", &self.attached, ATTACHERS, &stop, |key| self.attach(key));
        tokio::join!(followed, attached);
    }

    /// Looks at what a binding needs.
    async fn follow(&self, key: BindingKey) -> Result<Next, Error> {
        let outcome = self.find_needs(&key).await;
        self.context.settled(&key, outcome)
    }

    async fn find_needs(&self, key: &BindingKey) -> Result<Next, Error> {
        let context = &self.context;
        let Some(binding) = context.binding(key).await? else {
            self.concern(key, &context.accounts.needs.forget(key));
            return Ok(Next::Done);
        };
        let Some(spec) = key::read::<ResourceBindingSpec>(&binding, "spec") else {
            return Ok(Next::Done);
        };
        if object::deletion_timestamp(&binding).is_some() || !spec.propagate_deps {
            return self.release(key, &binding).await;
        }
        let need = Need::of(&binding, &spec);
        let known = context.accounts.needs.of(key);
        if need.clusters.is_empty() && known.is_none() && annotated(&binding).is_none() {
            // Nothing is placed yet, so nothing follows.
            return Ok(Next::Done);
        }
        let Some(template) = self.template(key, &spec).await? else { return Ok(Next::Done) };
        let customized = context.rules.interpreter.is_customized(&template, Operation::InterpretDependency);
        let Some(followers) = self.followers(&spec) else { return Ok(Next::After(Duration::from_secs(1))) };
        if followers.is_empty() && !customized && !karmada_interpreter::has_dependencies(&template) {
            return self.release_into(key, &binding, Some(need)).await;
        }
        let mut references = match context.rules.interpreter.dependencies(&template).await {
            Ok(references) => references,
            Err(error) => {
                let why = error.to_string();
                context.writer.warning(COMPONENT, &template, event::GET_DEPENDENCIES_FAILED, why.as_str());
                self.tell(key, &binding, Some((event::GET_DEPENDENCIES_FAILED, &why))).await?;
                // What follows it goes on as it did.
                return Ok(Next::After(UNCLEAR));
            }
        };
        references.extend(followers);
        let place = |d: &DependentObjectReference| {
            (d.api_version.clone(), d.kind.clone(), d.namespace.clone(), d.name.clone())
        };
        references.sort_by_key(place);
        if self.annotate(key, &binding, &references).await? {
            let text = format!("Get dependencies({}) succeed.", shown(&references));
            context.writer.normal(COMPONENT, &template, event::GET_DEPENDENCIES_SUCCEED, text);
        }
        let moved = known.is_none_or(|known| *known != need);
        self.concern(key, &context.accounts.needs.set(key, need, &references));
        let problems = self.problems_of(key);
        if problems.is_empty() {
            self.tell(key, &binding, None).await?;
            if moved {
                const TEXT: &str = "Sync schedule results to dependencies succeed.";
                context.writer.normal(COMPONENT, &binding, event::SYNC_DEPENDENCIES_SUCCEED, TEXT);
            }
        } else {
            let why = problems.join("; ");
            self.tell(key, &binding, Some((event::SYNC_DEPENDENCIES_FAILED, &why))).await?;
        }
        Ok(Next::Done)
    }

    /// The autoscalers that follow a workload; nothing while it is not known which there are.
    fn followers(&self, spec: &ResourceBindingSpec) -> Option<Vec<DependentObjectReference>> {
        let templates = &self.context.known.templates;
        if self.context.to_scale.is_none() {
            return Some(Vec::new());
        }
        let kind = scaling::autoscaler();
        if !templates.is_settled(&kind) {
            return None;
        }
        let (Some(watched), Some(target)) = (templates.find(&kind), bindings::template_key(&spec.resource))
        else {
            return Some(Vec::new());
        };
        let all = watched.index.group(&TemplateHead::scaled_by(&target)).into_iter();
        let follow = all.filter(|(_, head)| head.follows && !head.deleting);
        let reference = |(key, _): (Key, Arc<TemplateHead>)| DependentObjectReference {
            api_version: kind.api_version(),
            kind: kind.kind.clone(),
            namespace: key.namespace,
            name: key.name,
            label_selector: None,
        };
        Some(follow.map(reference).collect())
    }

    /// The workload as it is; nothing while it is gone.
    async fn template(&self, key: &BindingKey, spec: &ResourceBindingSpec) -> Result<Option<Value>, Error> {
        let Some(template) = bindings::own_template_key(key, &spec.resource) else { return Ok(None) };
        self.object(&template).await
    }

    /// An object as the watch has brought it just now, or read.
    async fn object(&self, key: &TemplateKey) -> Result<Option<Value>, Error> {
        let recent =
            self.context.known.templates.find(&key.kind).and_then(|watched| watched.index.recent(&key.key));
        if let Some(recent) = recent {
            return Ok(Some(Value::clone(&recent)));
        }
        let objects = &self.context.writer.objects;
        let Some(resource) = self.context.known.templates.resource(objects.rest(), &key.kind).await? else {
            return Ok(None);
        };
        objects.get(&resource, &key.key).await
    }

    /// Writes what a binding needs into its annotation, as Karmada's own distributor does. Whether it had to.
    async fn annotate(
        &self,
        key: &BindingKey,
        binding: &Value,
        references: &[DependentObjectReference],
    ) -> Result<bool, Error> {
        // Go writes an empty list that was never filled as null.
        let text = if references.is_empty() { "null".to_owned() } else { json!(references).to_string() };
        let mark = |live: &mut Value| {
            let finalized = object::add_finalizer(live, finalizer::DEPENDENCIES_DISTRIBUTOR);
            let new = annotated(live) != Some(&text);
            if new {
                object::set_annotation(live, annotation::DEPENDENCIES, text.as_str());
            }
            finalized || new
        };
        if !mark(&mut binding.clone()) {
            return Ok(false);
        }
        let resource = bindings::resource(key.scope);
        let alive = |live: &mut Value| object::deletion_timestamp(live).is_none() && mark(live);
        self.context.writer.objects.modify(resource, &key.key, Part::Main, alive).await?;
        Ok(true)
    }

    /// A binding that goes, or whose policy lets nothing follow it.
    async fn release(&self, key: &BindingKey, binding: &Value) -> Result<Next, Error> {
        self.release_into(key, binding, None).await
    }

    /// Lets go of all that a binding needed, and takes its marks off. `need`: it has no needs, but may get some.
    async fn release_into(
        &self,
        key: &BindingKey,
        binding: &Value,
        need: Option<Need>,
    ) -> Result<Next, Error> {
        let needs = &self.context.accounts.needs;
        let concerned = match need {
            Some(need) => needs.set(key, need, &[]),
            None => needs.forget(key),
        };
        let marked = object::finalizers(binding).contains(&finalizer::DEPENDENCIES_DISTRIBUTOR);
        if !marked && annotated(binding).is_none() {
            self.concern(key, &concerned);
            return Ok(Next::Done);
        }
        // Before its finalizer is gone nothing may be left that names it.
        for object in self.concerned(key, &concerned) {
            self.attach(object).await?;
        }
        self.tell(key, binding, None).await?;
        let unmark = |live: &mut Value| {
            let before = live.clone();
            object::remove_finalizer(live, finalizer::DEPENDENCIES_DISTRIBUTOR);
            object::remove_annotation(live, annotation::DEPENDENCIES);
            *live != before
        };
        self.context
            .writer
            .objects
            .modify(bindings::resource(key.scope), &key.key, Part::Main, unmark)
            .await?;
        self.concern(key, &concerned);
        Ok(Next::Done)
    }

    /// The objects that a change of a binding's needs concerns: those that it names or named, those that its labels
    /// may select, and those whose bindings name it.
    fn concerned(&self, key: &BindingKey, concerned: &Concerned) -> BTreeSet<TemplateKey> {
        let mut objects = concerned.named.clone();
        for (kind, namespace) in &concerned.selected {
            let watched = self.context.known.templates.find(kind);
            for (key, _) in watched.into_iter().flat_map(|w| w.index.in_namespace(namespace)) {
                objects.insert(TemplateKey { kind: kind.clone(), key });
            }
        }
        for (_, index) in self.context.known.bindings.both() {
            for (_, head) in index.group(&BindingHead::of_required_by(&key.key.namespace, &key.key.name)) {
                objects.extend(bindings::template_key(&head.resource));
            }
        }
        objects
    }

    fn concern(&self, key: &BindingKey, concerned: &Concerned) {
        for object in self.concerned(key, concerned) {
            self.attached.add(object);
        }
        if concerned.kinds {
            self.context.known.templates.poke();
        }
    }

    /// Looks at the binding of one dependency.
    async fn attach(&self, key: TemplateKey) -> Result<Next, Error> {
        let context = &self.context;
        let own = BindingKey::of_template(&key.kind.kind, &key.key.namespace, &key.key.name);
        let Some(object) = self.object(&key).await?.filter(|object| self.may_go(&key, object)) else {
            // Of an object that is gone the binding goes with it.
            self.settle(&key, None);
            return Ok(Next::Done);
        };
        let users = context.accounts.needs.of_object(&key, &object::label_map(&object));
        let present = match context.known.bindings.of(own.scope).get(&own.key) {
            Some(_) => context.writer.objects.get(bindings::resource(own.scope), &own.key).await?,
            None if users.is_empty() => None,
            // If it is there all the same, making it says so, and this runs again.
            None => None,
        };
        if let Some(why) = present.as_ref().and_then(|present| bindings::collision(present, &object)) {
            if !users.is_empty() {
                self.settle(&key, Some(&format!("{} {}: {why}", key.kind.kind, key.key)));
            }
            return Ok(Next::Done);
        }
        let needs: Vec<Need> = users.values().map(|need| Need::clone(need)).collect();
        let outcome = self.write(&own, present, &object, &needs).await;
        if outcome.is_err()
            && let Some(watched) = context.known.templates.find(&key.kind)
        {
            watched.index.forget_recent(&key.key);
        }
        self.settle(&key, outcome?.as_deref());
        Ok(Next::Done)
    }

    /// Brings the binding of a dependency in step; what is wrong with it, if it cannot be.
    async fn write(
        &self,
        own: &BindingKey,
        present: Option<Value>,
        object: &Value,
        needs: &[Need],
    ) -> Result<Option<String>, Error> {
        let context = &self.context;
        let resource = bindings::resource(own.scope);
        let unknown = |entry: &BindingSnapshot| self.is_unknown(entry);
        let written = match attach::attach(present.as_ref(), object, needs, unknown) {
            Attach::Nothing => present,
            Attach::Delete => {
                if let Some(present) = &present {
                    tracing::info!(binding = %own, "no longer needed by any other");
                    context.writer.objects.delete(resource, present).await?;
                }
                return Ok(None);
            }
            Attach::Create(mut new) => match checks::own(resource, None, &mut new, &context.env) {
                Ok(_) => Some(context.writer.objects.create(resource, &new).await?),
                Err(errors) => return Ok(Some(aggregate(&errors))),
            },
            Attach::Update(mut new) => {
                match checks::own(resource, present.as_ref(), &mut new, &context.env) {
                    Ok(_) => Some(context.writer.objects.replace(resource, &new).await?),
                    Err(errors) => return Ok(Some(aggregate(&errors))),
                }
            }
        };
        if let Some(binding) = written {
            self.tell_agreement(own, &binding, needs).await?;
        }
        Ok(None)
    }

    /// Whether an object may be propagated at all: what is said of templates holds for dependencies.
    fn may_go(&self, key: &TemplateKey, object: &Value) -> bool {
        object::deletion_timestamp(object).is_none()
            && object::label(object, label::MANAGED) != Some(label::MANAGED_VALUE)
            && !self.context.known.skip.object(&key.kind, &key.key.namespace, &key.key.name)
            && !Skip::bootstrapped(object)
    }

    /// Whether a binding lets others follow, and it is not known yet which.
    fn is_unknown(&self, entry: &BindingSnapshot) -> bool {
        let scope = if entry.namespace.is_empty() { Scope::Cluster } else { Scope::Namespaced };
        let key = BindingKey { scope, key: Key::new(entry.namespace.as_str(), entry.name.as_str()) };
        let head = self.context.known.bindings.of(scope).get(&key.key);
        head.is_some_and(|head| head.propagate_deps && !head.deleting)
            && self.context.accounts.needs.of(&key).is_none()
    }

    /// Remembers what is wrong with a dependency, and has those look again that need it.
    fn settle(&self, object: &TemplateKey, problem: Option<&str>) {
        let changed = {
            let mut problems = self.problems.lock();
            let before = match problem {
                Some(why) => problems.insert(object.clone(), why.to_owned()),
                None => problems.remove(object),
            };
            before.as_deref() != problem
        };
        if changed {
            for user in self.context.accounts.needs.of_object(object, &BTreeMap::new()).into_keys() {
                self.followed.add(user);
            }
        }
    }

    fn problems_of(&self, user: &BindingKey) -> Vec<String> {
        let problems = self.problems.lock();
        let needs = &self.context.accounts.needs;
        problems
            .iter()
            .filter(|(object, _)| needs.of_object(object, &BTreeMap::new()).contains_key(user))
            .map(|(_, why)| why.clone())
            .collect()
    }

    /// Says in a condition and an event what is wrong with what a binding needs. The condition is there only then.
    async fn tell(
        &self,
        key: &BindingKey,
        binding: &Value,
        problem: Option<(&'static str, &str)>,
    ) -> Result<(), Error> {
        let now = Time::now(&self.context.env);
        let condition = problem.map(|(reason, why)| {
            Condition::new(extension::DEPENDENCIES_SYNCED, false, reason, shortened(why), now)
        });
        if self.condition(key, binding, extension::DEPENDENCIES_SYNCED, condition).await?
            && let Some((_, why)) = problem
        {
            self.context.writer.warning(COMPONENT, binding, event::SYNC_DEPENDENCIES_FAILED, why);
        }
        Ok(())
    }

    /// Says whether those who need a dependency agree about what becomes of it.
    async fn tell_agreement(&self, key: &BindingKey, binding: &Value, needs: &[Need]) -> Result<(), Error> {
        let placed = binding.pointer("/spec/placement").is_some();
        let message = Agreement::of(needs).message(needs).filter(|_| !placed);
        let now = Time::now(&self.context.env);
        let type_ = extension::DEPENDENCY_POLICIES_AGREE;
        let condition = message.as_ref().map(|text| {
            Condition::new(type_, false, event::DEPENDENCY_POLICY_CONFLICT, shortened(text), now)
        });
        if self.condition(key, binding, type_, condition).await?
            && let Some(text) = message
        {
            self.context.writer.warning(COMPONENT, binding, event::DEPENDENCY_POLICY_CONFLICT, text);
        }
        Ok(())
    }

    /// Sets or removes a condition of a binding. Whether it was another one.
    async fn condition(
        &self,
        key: &BindingKey,
        binding: &Value,
        type_: &str,
        condition: Option<Condition>,
    ) -> Result<bool, Error> {
        let now = Time::now(&self.context.env);
        let apply = |live: &mut Value| {
            let Some(mut list) = key::conditions(live) else { return false };
            let changed = match &condition {
                Some(condition) => conditions::set(&mut list, condition.clone(), now),
                None => conditions::remove(&mut list, type_),
            };
            if changed {
                object::ensure_map(live, "status").insert("conditions".into(), json!(list));
            }
            changed
        };
        if !apply(&mut binding.clone()) {
            return Ok(false);
        }
        let resource = bindings::resource(key.scope);
        self.context.writer.objects.modify(resource, &key.key, Part::Status, apply).await?;
        Ok(true)
    }
}

/// What stands in a binding of what its object refers to.
fn annotated(binding: &Value) -> Option<&str> {
    object::annotation(binding, annotation::DEPENDENCIES)
}

/// References for people.
fn shown(references: &[DependentObjectReference]) -> String {
    let each = references.iter().map(|d| match d.name.as_str() {
        "" => format!("{} by labels in {}", d.kind, d.namespace),
        name => format!("{} {}/{name}", d.kind, d.namespace),
    });
    each.collect::<Vec<_>>().join(", ")
}

/// A message of a length that a condition takes.
fn shortened(text: &str) -> String {
    text.chars().take(1024).collect()
}
