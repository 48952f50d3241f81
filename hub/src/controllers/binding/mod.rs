//! The binding controller: one Work per cluster that a binding wants its object on.
//!
//! ```text
//!   binding ─┬─ which override policies must be there? ── missing: Works stay as they are, a condition names them
//!   template ┼─ replicas, overrides, marks (render) ── cannot be applied: that Work stays, condition and event
//!   policies ┘                │            where changes go out in waves (staged): for those that wait, as it was
//!                             ▼
//!                    Works, one per cluster          Works of clusters that are not wanted: orphans
//! ```

mod fences;
mod listen;
mod render;
mod staged;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, StreamExt, stream};
use karmada_api::{
    conditions::{self, Condition},
    consts::{event, extension},
    work::{ResourceBindingSpec, TargetCluster},
};
use karmada_client::Error;
use karmada_core::{
    delete::Wishes,
    evict,
    judge::fence,
    names, place,
    select::{Claim, Subject},
    skip::Skip,
    work as core_work,
};
use karmada_meta::{object, time::Time};
use karmada_objects::{
    Part, bindings,
    key::{self, Key},
    kinds::WORKS,
    scope::{BindingKey, Scope},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

pub(crate) use self::render::overriding;
use self::{
    listen::News,
    render::{Override, Render, Rendered},
    staged::{Choice, Staged},
};
use super::{Context, Next, work};
use crate::{
    known::heads::WorkHead,
    metrics::Timer,
    write::works::{self, Made, Maker},
};

/// How many bindings are worked on at a time.
const WORKERS: usize = 8;
/// How many Works of a binding are written at a time.
const AT_ONCE: usize = 16;
/// How long a Work that is somebody else's, or on its way out, is given before it is looked at again.
const PATIENCE: Duration = Duration::from_secs(5);
/// When it is looked again whether parts can be told, or a revision is known.
const PARTS: Duration = Duration::from_secs(60);

/// Makes Works of bindings.
pub(crate) struct Binder {
    context: Arc<Context>,
    news: News,
}

/// What is wrong with a binding's Works, for people. Each type of condition is there only while it is False.
#[derive(Debug, Default, PartialEq, Eq)]
struct Problems {
    /// Override policies that the policy wants to be there and that are not.
    missing: Vec<String>,
    /// Works that cannot be made or changed: the reason's word, and which and why.
    unmade: Vec<(&'static str, String)>,
}

impl Binder {
    /// A controller that hears everything that Works are made from, from now on.
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        listen::listen(context);
        context.resync.bindings(&context.known, &context.to_bind, |_| true);
        Self { context: context.clone(), news: News::of(context) }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let context = &self.context;
        // Half of the overrides would make other Works, and half of the Works or clusters orphans.
        context.known.overrides.synced().await;
        context.known.policies.synced().await;
        context.known.clusters.synced().await;
        context.known.namespaces.synced().await;
        context.known.works.synced().await;
        context.rules.customizations.synced().await;
        context.rules.webhooks.synced().await;
        // All bindings are queued by now.
        self.news.forget();
        tokio::select! {
            biased;
            () = work("binding", &context.to_bind, WORKERS, &stop, |key: BindingKey| self.reconcile(key)) => {}
            () = self.news.follow(context) => {}
        }
    }

    async fn reconcile(&self, key: BindingKey) -> Result<Next, Error> {
        let outcome = self.bring_in_step(key.clone()).await;
        self.context.settled(&key, outcome)
    }

    async fn bring_in_step(&self, key: BindingKey) -> Result<Next, Error> {
        let resource = bindings::resource(key.scope);
        let Some(binding) = self.context.binding(&key).await? else {
            self.context.figures.judged().fence_waits(&key.to_string(), false);
            self.remove_orphans(&key, &Wishes::default()).await?;
            return Ok(Next::Done);
        };
        if object::deletion_timestamp(&binding).is_some() {
            self.remove_orphans(&key, &Wishes::default()).await?;
            let finalizer = bindings::finalizer(key.scope);
            if object::finalizers(&binding).contains(&finalizer) {
                let drop = |live: &mut Value| object::remove_finalizer(live, finalizer);
                self.context.writer.objects.modify(resource, &key.key, Part::Main, drop).await?;
            }
            return Ok(Next::Done);
        }
        // Its Works stay: what cannot be read has not said that they are to go.
        let Some(spec) = key::read(&binding, "spec") else { return Ok(Next::Done) };
        if self.mark(&key, &binding).await? {
            return Ok(Next::Done);
        }
        self.remove_orphans(&key, &wishes_of(&binding, &spec)).await?;
        let timer = self.context.figures.timer();
        let made = self.make_works(&key, &binding, &spec, &timer).await;
        self.context.figures.synced_works(made.is_ok(), &timer);
        made
    }

    /// Gives a binding that somebody else made the finalizer and id it needs. Whether it had to.
    async fn mark(&self, key: &BindingKey, binding: &Value) -> Result<bool, Error> {
        let (finalizer, id) = (bindings::finalizer(key.scope), bindings::id_label(key.scope));
        let has_id = |binding: &Value| object::label(binding, id).is_some_and(|id| !id.is_empty());
        if object::finalizers(binding).contains(&finalizer) && has_id(binding) {
            return Ok(false);
        }
        let mark = |live: &mut Value| {
            let unidentified = !has_id(live);
            if unidentified {
                object::set_label(live, id, self.context.env.uuid());
            }
            object::add_finalizer(live, finalizer) || unidentified
        };
        self.context.writer.objects.modify(bindings::resource(key.scope), &key.key, Part::Main, mark).await?;
        Ok(true)
    }

    async fn remove_orphans(&self, key: &BindingKey, wishes: &Wishes) -> Result<(), Error> {
        let removed = works::remove_orphans(&self.context.writer, key, wishes, || async {
            let live = self.context.writer.objects.get(bindings::resource(key.scope), &key.key).await?;
            let Some(live) = live.filter(|live| object::deletion_timestamp(live).is_none()) else {
                return Ok(Some(Wishes::default()));
            };
            Ok(key::read(&live, "spec").map(|spec| wishes_of(&live, &spec)))
        })
        .await;
        if let Err(error) = &removed
            && !error.is_conflict()
        {
            let about = json!({
                "apiVersion": bindings::resource(key.scope).api_version(),
                "kind": key.kind(),
                "metadata": {"namespace": key.key.namespace, "name": key.key.name},
            });
            let text = format!("Failed to clean up works of {key}: {error}");
            self.context.writer.warning(
                bindings::binder(key.scope),
                &about,
                event::CLEANUP_WORK_FAILED,
                text,
            );
        }
        removed
    }

    async fn make_works(
        &self,
        key: &BindingKey,
        binding: &Value,
        spec: &ResourceBindingSpec,
        timer: &Timer<'_>,
    ) -> Result<Next, Error> {
        let targets = core_work::targets(spec);
        // Before the template is read: what changes after that comes again.
        let key_of_template = bindings::template_key(&spec.resource);
        let changed = key_of_template.as_ref().and_then(|template| self.context.figures.changed_at(template));
        let purging = self.purging(key, spec);
        let mut problems = Problems { missing: self.missing_overrides(binding), ..Problems::default() };
        let mut next = Next::Done;
        if problems.missing.is_empty() && !targets.is_empty() {
            let mut refused = self.never_propagated(key, spec);
            let template = if refused.is_none() { self.context.template(key, spec).await? } else { None };
            if template.as_ref().is_some_and(Skip::bootstrapped) {
                refused = Some(format!(
                    "spec.resource: {} {} is the hub's own",
                    spec.resource.kind, spec.resource.name
                ));
            }
            if let Some(why) = refused {
                problems.unmade.push(("NotPropagated", format!("{why}; delete this binding")));
                self.report(key, binding, spec, &problems).await?;
                return Ok(Next::Done);
            }
            let Some(template) = template else { return Ok(Next::Done) };
            if self.waits_for_parts(spec, &template).await {
                // Once they are given, that brings us back; a rule that cannot be asked for them does not.
                self.report(key, binding, spec, &problems).await?;
                return Ok(Next::After(PARTS));
            }
            let over = overriding(&self.context.known, &Subject::of(&template));
            let staged = Staged::of(&self.context, key, binding, &template, &over).await?;
            if matches!(staged, Staged::Unreadable) {
                self.report(key, binding, spec, &problems).await?;
                return Ok(Next::After(PARTS));
            }
            // Its state brings us back.
            let not_yet = matches!(staged, Staged::NotYet(_));
            if not_yet {
                next = next.sooner(PARTS);
            }
            let render = Render::new(&self.context, key, binding, spec, &template, over);
            let (mut written, mut settled) = (Vec::new(), !not_yet);
            let fences = self.fences(key, binding, &targets, &render.work_name()).await?;
            // Together, so that one sync makes several of them durable; and all of them, whatever becomes of one.
            // A copy that is to go first is still there: none is made where there is none yet. Its end brings us back.
            let held = |cluster: &str| {
                let work = Key::new(names::execution_namespace(cluster), render.work_name());
                fences.hold(cluster) || !purging.is_empty() && self.context.known.works.get(&work).is_none()
            };
            let (waiting, targets): (Vec<_>, Vec<_>) = targets.iter().partition(|target| held(&target.name));
            self.context.figures.judged().fence_waits(&key.to_string(), fences.again.is_some());
            if let Some(again) = fences.again {
                next = next.sooner(again);
                settled = false;
                problems.unmade.push((extension::FENCE_WAIT, fences.message()));
            } else if !waiting.is_empty() {
                next = next.sooner(PATIENCE);
                settled = false;
                tracing::debug!(binding = %key, for_clusters = ?purging, "waits for copies that are removed first");
            }
            let renders = Renders::of(&self.context, key, binding, spec, &render, &staged);
            let making: Vec<_> = renders
                .choose(&self.context, &targets)
                .into_iter()
                .zip(&targets)
                .map(|(given, target)| self.make(key, given, target, changed).boxed())
                .collect();
            let made: Vec<_> = stream::iter(making).buffered(AT_ONCE).collect().await;
            for (target, made) in targets.iter().zip(made) {
                let made = match made {
                    Ok(made) => made,
                    Err(error) => {
                        self.tell_failure(key, binding, spec, &error.to_string(), &error);
                        return Err(error);
                    }
                };
                match made {
                    Outcome::Made(Made::Written, applied) => {
                        written.push(target.name.as_str());
                        self.tell_overrides(&template, &target.name, &applied);
                    }
                    Outcome::Made(Made::Unchanged, _) => {}
                    Outcome::NotYet => settled = false,
                    Outcome::Left => {}
                    Outcome::Waits => {
                        settled = false;
                        problems.unmade.push((
                            "RolloutStopped",
                            format!(
                                "{}: a new copy waits, since the change is stopped and what was before it is not kept",
                                target.name
                            ),
                        ));
                    }
                    Outcome::Made(Made::Going, _) => next = next.sooner(PATIENCE),
                    Outcome::Made(Made::Withheld(wait), _) => {
                        next = next.sooner(wait);
                        settled = false;
                    }
                    Outcome::Made(Made::Taken(why), _) => {
                        problems.unmade.push(("WorkNameTaken", format!("{}: {why}", target.name)));
                        next = next.sooner(PATIENCE);
                    }
                    Outcome::Made(Made::TooLarge(why), _) => {
                        problems.unmade.push(("WorkTooLarge", format!("{}: {why}", target.name)));
                    }
                    Outcome::Made(Made::Refused(why), _) => {
                        problems.unmade.push(("WorkRefused", format!("{}: {why}", target.name)));
                    }
                    Outcome::Override(why) => {
                        problems
                            .unmade
                            .push((event::APPLY_OVERRIDE_POLICY_FAILED, format!("{}: {why}", target.name)));
                    }
                }
            }
            if let Some(template) = key_of_template.filter(|_| settled && changed.is_some()) {
                self.context.figures.propagation().settled(&template, changed);
            }
            if !written.is_empty() {
                tracing::info!(
                    kind = %spec.resource.kind,
                    namespace = %spec.resource.namespace,
                    name = %spec.resource.name,
                    clusters = %written.join(","),
                    duration_ms = timer.ms(),
                    "works written"
                );
                let text = format!("Sync work of {key} successful.");
                for about in [binding, &template] {
                    let component = bindings::binder(key.scope);
                    self.context.writer.normal(component, about, event::SYNC_WORK_SUCCEED, text.as_str());
                }
            }
        }
        self.report(key, binding, spec, &problems).await?;
        Ok(next)
    }

    /// Why what a binding is for is never propagated, whoever wrote the binding.
    fn never_propagated(&self, key: &BindingKey, spec: &ResourceBindingSpec) -> Option<String> {
        let resource = &spec.resource;
        let what = format!("spec.resource: {} {}/{}", resource.kind, resource.namespace, resource.name);
        let Some(own) = bindings::own_template_key(key, resource) else {
            return Some(format!("{what} is not in the binding's own namespace {:?}", key.key.namespace));
        };
        let skipped = self.context.known.skip.object(&own.kind, &own.key.namespace, &own.key.name);
        skipped.then(|| {
            format!(
                "{what} is never propagated (see --skipped-propagating-apis and --skipped-propagating-namespaces)"
            )
        })
    }

    /// Whether a cluster was given other parts than the template has: then its Work stays as it is. What cannot be told is
    /// said by the detector.
    async fn waits_for_parts(&self, spec: &ResourceBindingSpec, template: &Value) -> bool {
        // Not those of what requires it, which are another object's.
        if spec.clusters.iter().all(|target| target.components.is_empty()) {
            return false;
        }
        let parts = self.context.rules.interpreter.components(template).await;
        parts.map_or(true, |parts| spec.clusters.iter().any(|target| place::parts::differs(&parts, target)))
    }

    /// The clusters whose copies are removed before new ones are made, and still have them. One that cannot be reached is
    /// not waited for.
    fn purging(&self, key: &BindingKey, spec: &ResourceBindingSpec) -> BTreeSet<String> {
        let mut purged = evict::purged(spec);
        if !purged.is_empty() {
            let works = self.context.known.works.group(&key.to_string());
            purged.retain(|name| {
                let cluster = self.context.known.clusters.get(&Key::cluster_scoped(name.as_str()));
                let namespace = names::execution_namespace(name);
                cluster.is_some_and(|head| head.answers())
                    && works.iter().any(|(work, _)| work.namespace == namespace)
            });
        }
        purged
    }

    async fn make(
        &self,
        key: &BindingKey,
        Given { render, revision, only_as_it_is, is_older, waits }: Given<'_>,
        target: &TargetCluster,
        changed: Option<Duration>,
    ) -> Result<Outcome, Error> {
        let namespace = names::execution_namespace(&target.name);
        let Some(render) = render else {
            return Ok(if waits { Outcome::Waits } else { Outcome::Left });
        };
        let cluster = self.context.known.clusters.get(&Key::cluster_scoped(target.name.as_str()));
        let Some(cluster) = cluster.filter(|head| !head.deleting) else { return Ok(Outcome::NotYet) };
        if self
            .context
            .known
            .namespaces
            .get(&Key::cluster_scoped(namespace.as_str()))
            .is_none_or(|head| head.deleting)
        {
            // It comes right after its cluster, and brings the binding back.
            return Ok(Outcome::NotYet);
        }
        let Rendered { mut manifest, applied } = match render.manifest(&cluster.cluster, target).await {
            Ok(rendered) => rendered,
            Err(Override(why)) => return Ok(Outcome::Override(why)),
        };
        let work_key = Key::new(namespace, render.work_name());
        if is_older
            && let Some(head) = self.context.known.works.get(&work_key).filter(|head| head.of_generation > 0)
        {
            // Since it was kept the template may have been scaled, which its Works say; that alone rewrites none.
            object::set_meta(&mut manifest, "generation", head.of_generation);
        }
        if only_as_it_is {
            let live = self.context.writer.objects.get(&WORKS, &work_key).await?;
            if !live.is_some_and(|live| render.is_carried(&manifest, &applied, &target.name, &live)) {
                return Ok(Outcome::Left);
            }
        }
        let reports = self.context.figures.propagation();
        // Before it is made: the agent may be faster than our own answer.
        let new = self.context.known.works.get(&work_key).is_none();
        let expected = changed.is_some_and(|since| new && reports.expect(&work_key, None, since));
        let made = works::ensure(&self.context.writer, &work_key, &Maker::Binding(key), |existing, id| {
            if let (Some(since), Some(generation)) = (changed, existing.and_then(|e| render.will_be_told(e)))
            {
                reports.expect(&work_key, Some(generation), since);
            }
            render.work(&manifest, &applied, &target.name, existing, id, revision.as_deref())
        })
        .await;
        if expected && !matches!(made, Ok(Made::Written)) {
            reports.forget(&work_key);
        }
        Ok(Outcome::Made(made?, applied))
    }

    /// The override policies that the binding's policy wants to be there before anything goes out, and that are not.
    /// They are named in the policy, which is found by the claim on the binding.
    fn missing_overrides(&self, binding: &Value) -> Vec<String> {
        let context = &self.context;
        let Some(claim) = Claim::of(binding) else { return Vec::new() };
        let (scope, id) = match &claim {
            Claim::Namespaced(id) => (Scope::Namespaced, id),
            Claim::Cluster(id) => (Scope::Cluster, id),
        };
        let mut missing = Vec::new();
        for (key, head) in context.known.policies.of(scope).group(id) {
            for name in &head.policy().spec().dependent_overrides {
                let wanted = Key::new(key.namespace.as_str(), name.as_str());
                if context.known.overrides.of(scope).get(&wanted).is_none() {
                    missing.push(wanted.to_string());
                }
            }
        }
        missing
    }

    fn tell_overrides(&self, template: &Value, cluster: &str, applied: &karmada_core::overrides::Applied) {
        let component = karmada_api::consts::component::OVERRIDE_MANAGER;
        let namespace = object::namespace(template);
        let said = applied
            .cluster
            .iter()
            .map(|rule| format!("Apply cluster override policy({})", rule.policy_name))
            .chain(
                applied
                    .namespaced
                    .iter()
                    .map(|r| format!("Apply override policy({namespace}/{})", r.policy_name)),
            );
        let said: BTreeSet<String> = said.collect();
        for text in said {
            let text = format!("{text} for cluster({cluster}) succeed.");
            self.context.writer.normal(component, template, event::APPLY_OVERRIDE_POLICY_SUCCEED, text);
        }
    }

    fn tell_failure(
        &self,
        key: &BindingKey,
        binding: &Value,
        spec: &ResourceBindingSpec,
        why: &str,
        error: &Error,
    ) {
        // A conflict is read anew at once; nobody needs to hear of it.
        if error.is_conflict() || error.is_already_exists() {
            return;
        }
        let text = format!("Failed to sync work of {key}: {why}");
        for about in [binding, &bindings::template_reference(spec)] {
            self.context.writer.warning(
                bindings::binder(key.scope),
                about,
                event::SYNC_WORK_FAILED,
                text.as_str(),
            );
        }
    }

    /// Keeps the conditions of a binding about its Works in step with what is wrong with them, and says what is new.
    async fn report(
        &self,
        key: &BindingKey,
        binding: &Value,
        spec: &ResourceBindingSpec,
        problems: &Problems,
    ) -> Result<(), Error> {
        let now = Time::now(&self.context.env);
        let wanted = problems.conditions(now);
        let apply = |live: &mut Value| {
            let Some(mut list) = key::conditions(live) else { return false };
            let mut changed = false;
            for (type_, condition) in &wanted {
                changed |= match condition {
                    Some(condition) => conditions::set(&mut list, condition.clone(), now),
                    None => conditions::remove(&mut list, type_),
                };
            }
            if changed {
                object::ensure_map(live, "status").insert("conditions".into(), json!(list));
            }
            changed
        };
        if !apply(&mut binding.clone()) {
            return Ok(());
        }
        let resource = bindings::resource(key.scope);
        self.context.writer.objects.modify(resource, &key.key, Part::Status, apply).await?;
        for condition in wanted.iter().filter_map(|(_, condition)| condition.as_ref()) {
            let reason = match condition.reason.as_str() {
                event::APPLY_OVERRIDE_POLICY_FAILED => event::APPLY_OVERRIDE_POLICY_FAILED,
                extension::FENCE_WAIT => event::FENCE_WAIT,
                _ => event::SYNC_WORK_FAILED,
            };
            for about in [binding, &bindings::template_reference(spec)] {
                self.context.writer.warning(
                    bindings::binder(key.scope),
                    about,
                    reason,
                    condition.message.as_str(),
                );
            }
        }
        Ok(())
    }
}

/// Where a binding wants Works.
fn wishes_of(binding: &Value, spec: &ResourceBindingSpec) -> Wishes {
    Wishes::of(spec, fence::after(binding).is_some())
}

/// What came of one cluster's Work.
enum Outcome {
    Made(Made, karmada_core::overrides::Applied),
    /// The cluster or its namespace is not there, or is going.
    NotYet,
    /// An override cannot be applied; the Work stays as it is.
    Override(String),
    /// It has nothing, and there is nothing that it may have; the rollout is stopped.
    Waits,
    /// It waits for its wave, and what it has cannot be made any more; the Work stays as it is.
    Left,
}

/// What a target gets.
struct Given<'a> {
    /// Nothing where it keeps what it has.
    render: Option<&'a Render<'a>>,
    /// The name of the revision that this is.
    revision: Option<String>,
    /// Whether it gets it only if that changes nothing.
    only_as_it_is: bool,
    /// Whether this is what was before.
    is_older: bool,
    /// Whether it is to have something, and there is nothing that it may have.
    waits: bool,
}

impl<'a> Given<'a> {
    fn of(render: Option<&'a Render<'a>>, revision: Option<String>) -> Self {
        Self { render, revision, only_as_it_is: false, is_older: false, waits: false }
    }
}

/// The template as clusters get it: as it is now, and as it was for those that wait.
struct Renders<'a> {
    now: &'a Render<'a>,
    older: BTreeMap<&'a str, Render<'a>>,
    staged: &'a Staged,
}

impl<'a> Renders<'a> {
    fn of(
        context: &'a Context,
        key: &'a BindingKey,
        binding: &'a Value,
        spec: &'a ResourceBindingSpec,
        now: &'a Render<'a>,
        staged: &'a Staged,
    ) -> Self {
        let mut older = BTreeMap::new();
        let kept = match staged {
            Staged::AtOnce | Staged::Unreadable => None,
            Staged::NotYet(first) => Some(&first.base),
            Staged::Waves(waves) => Some(&waves.older),
        };
        for (name, (template, over)) in kept.into_iter().flatten() {
            older.insert(name.as_str(), Render::new(context, key, binding, spec, template, over.clone()));
        }
        Self { now, older, staged }
    }

    /// What each target gets.
    fn choose(&'a self, context: &Context, targets: &[&TargetCluster]) -> Vec<Given<'a>> {
        let work_of = |target: &TargetCluster| {
            let work = Key::new(names::execution_namespace(&target.name), self.now.work_name());
            context.known.works.get(&work).filter(|head| !head.deleting)
        };
        let waves = match self.staged {
            Staged::AtOnce => return targets.iter().map(|_| Given::of(Some(self.now), None)).collect(),
            Staged::Unreadable => return targets.iter().map(|_| Given::of(None, None)).collect(),
            Staged::Waves(waves) => waves,
            Staged::NotYet(first) => {
                let given = |target: &&TargetCluster| match self.older.first_key_value() {
                    _ if work_of(target).is_some() => Given::of(None, None),
                    Some((name, base)) => Given::of(Some(base), Some((*name).to_owned())),
                    None => Given::of(Some(self.now), first.now.clone()),
                };
                return targets.iter().map(given).collect();
            }
        };
        let order = waves.order();
        let choose = |target: &&TargetCluster| {
            let cluster = context.known.clusters.get(&Key::cluster_scoped(target.name.as_str()));
            // Nothing is made where there is none.
            let Some(cluster) = cluster else { return Given::of(Some(self.now), None) };
            let work = work_of(target);
            match waves.choice(&order, &cluster, work.as_deref()) {
                Choice::Now(name) => Given::of(Some(self.now), name),
                Choice::Older(name) => {
                    Given { is_older: true, ..Given::of(self.older.get(name.as_str()), Some(name)) }
                }
                Choice::Same(name)
                    if work.is_some_and(|head| self.now.may_be_carried(head.of_generation)) =>
                {
                    Given { only_as_it_is: true, ..Given::of(Some(self.now), Some(name)) }
                }
                Choice::Waits => Given { waits: true, ..Given::of(None, None) },
                Choice::Same(_) | Choice::Left => Given::of(None, None),
            }
        };
        targets.iter().map(choose).collect()
    }
}

impl Problems {
    /// The conditions that say so: those that are to be there, and those that are to go.
    fn conditions(&self, now: Time) -> [(&'static str, Option<Condition>); 2] {
        let missing = (!self.missing.is_empty()).then(|| {
            Condition::new(
                extension::DEPENDENT_OVERRIDES_PRESENT,
                false,
                "DependentOverridesMissing",
                format!("waiting for override policies: {}", self.missing.join(", ")),
                now,
            )
        });
        let unmade = self.unmade.first().map(|(reason, _)| {
            let list: Vec<_> = self.unmade.iter().map(|(_, why)| why.as_str()).collect();
            let mut message = list.join("; ");
            if message.len() > MESSAGE_LIMIT {
                let end = (0..=MESSAGE_LIMIT).rev().find(|i| message.is_char_boundary(*i)).unwrap_or(0);
                message.truncate(end);
            }
            Condition::new(bindings::WORKS_SYNCED, false, reason, message, now)
        });
        [(extension::DEPENDENT_OVERRIDES_PRESENT, missing), (bindings::WORKS_SYNCED, unmade)]
    }
}

/// More than this of what is wrong helps nobody.
const MESSAGE_LIMIT: usize = 4096;

/// The bindings that a change of a Work concerns.
fn bindings_of(old: Option<&Arc<WorkHead>>, new: Option<&Arc<WorkHead>>) -> BTreeSet<BindingKey> {
    [old, new].into_iter().flatten().filter_map(|head| head.binding.clone()).collect()
}
