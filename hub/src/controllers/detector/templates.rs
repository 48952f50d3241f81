//! Templates: claimed by the policy that means them, and bound.

use std::time::Duration;

use karmada_api::{
    consts::{component, event, extension},
    policy::ActivationPreference,
    work::ResourceBindingSpec,
};
use karmada_client::{Error, Resource};
use karmada_core::{
    rollout,
    select::{self, Claim, Policy, Subject},
};
use karmada_meta::object;
use karmada_objects::{
    Part, bindings,
    key::{self, Key, TemplateKey},
    kinds,
    scope::BindingKey,
};
use serde::Deserialize;
use serde_json::Value;

use super::{
    Detector,
    desired::{self, Asked, Bound, Workload},
    kinds::selected_kinds,
    lonely::{self, Lonely, NO_POLICY, Patience},
};
use crate::{
    accounts::{placing, quotas},
    controllers::Next,
    known::{heads::TemplateHead, templates::Watched},
    write::claiming,
};

/// How long after a user's rule has failed about a template it is asked again: it may have been out of time, or out of
/// reach.
const UNCLEAR: Duration = Duration::from_secs(30);
/// How long a template waits whose binding's name is taken, or whose change a quota does not allow.
const WAITS: Duration = Duration::from_secs(10);
/// How long a template waits for the PriorityClass that its policy names before it is looked for again.
const PRIORITY_CLASS: Duration = Duration::from_secs(10);

/// The condition of a binding whose template a rule cannot make sense of, and its reason.
const INTERPRETED: [&str; 2] = [extension::TEMPLATE_INTERPRETED, "InterpretFailed"];
/// That of one whose template or policy has annotations that cannot be read.
const ANNOTATIONS: [&str; 2] = [extension::ANNOTATIONS_UNDERSTOOD, extension::INVALID_ANNOTATION];

/// How a template came to a policy.
#[derive(Clone, Copy)]
struct Claims<'a> {
    /// The claim that is on it.
    claim: Option<&'a Claim>,
    /// The policy that could have kept it, and is preempted.
    holder: Option<Policy<'a>>,
    /// It was there before any policy meant it.
    waited: bool,
}

impl Detector {
    /// Looks at one template.
    pub(super) async fn template(&self, template: TemplateKey) -> Result<Next, Error> {
        let Some(watched) = self.context.known.templates.find(&template.kind) else { return Ok(Next::Done) };
        let live = match watched.index.recent(&template.key) {
            Some(recent) => Some(Value::clone(&recent)),
            None => self.context.writer.objects.get(&watched.resource, &template.key).await?,
        };
        let Some(live) = live else {
            self.forget(&template);
            return Ok(Next::Done);
        };
        let outcome = self.judge(&watched, &template, live).await;
        outcome.inspect_err(|_| watched.index.forget_recent(&template.key))
    }

    async fn judge(&self, watched: &Watched, template: &TemplateKey, live: Value) -> Result<Next, Error> {
        if !claiming::is_subject(&self.context.known, template, &live) {
            self.forget(template);
            return Ok(Next::Done);
        }
        let subject = Subject::of(&live);
        let claim = Claim::of(&live);
        let policies = self.context.known.policies_over(&template.kind, &template.key);
        let timer = self.context.figures.timer();
        let chosen = select::choose(&subject, claim.as_ref(), policies.iter().map(|head| head.policy()));
        self.context.figures.matched_policy(&timer);
        match chosen {
            Some(policy) if policy.id().is_empty() => {
                // The policy gets its mark first; its change brings the template back.
                Ok(Next::Done)
            }
            Some(policy) => {
                // A template that waited for a policy was there before it. Kinds that no policy meant until now are
                // not watched; of those the times of birth tell.
                let waited =
                    self.memory.lock().unmatched.remove(template).is_some() || policy.is_younger_than(&live);
                // Who held it until now, if that one could go on: then it is preempted.
                let holder = claim.as_ref().filter(|claim| !claim.is(policy)).and_then(|claim| {
                    let mut held = policies.iter().map(|head| head.policy()).filter(|held| claim.is(*held));
                    held.find(|held| select::means(*held, &subject).is_some())
                });
                let claims = Claims { claim: claim.as_ref(), holder, waited };
                self.apply(template, &watched.resource, live, policy, claims).await
            }
            None => match claim {
                Some(claim) if self.means_in_another_version(template, &subject, &claim) => Ok(Next::Done),
                Some(claim) => {
                    self.release(template, &watched.resource, &live, &claim).await?;
                    self.tell_unmatched(template, &live).await
                }
                None => self.tell_unmatched(template, &live).await,
            },
        }
    }

    fn forget(&self, template: &TemplateKey) {
        let mut memory = self.memory.lock();
        memory.claimed.remove(template);
        memory.bound.remove(template);
        memory.put_off.remove(template);
        memory.unmatched.remove(template);
        memory.waiting.remove(template);
    }

    /// Whether the policy that claimed an object means it under another version of its kind: the same object is then
    /// watched twice, and only one of the two may speak.
    fn means_in_another_version(&self, template: &TemplateKey, subject: &Subject, claim: &Claim) -> bool {
        let versions = self.context.known.templates.kinds();
        versions.iter().filter(|(kind, _)| kind.group_kind() == template.kind.group_kind()).any(
            |(kind, _)| {
                let other = Subject { api_version: kind.api_version(), ..subject.clone() };
                let policies = self.context.known.policies_over(kind, &template.key);
                policies.iter().any(|h| claim.is(h.policy()) && select::means(h.policy(), &other).is_some())
            },
        )
    }

    /// Claims a template for its policy and brings its binding in step.
    async fn apply(
        &self,
        template: &TemplateKey,
        resource: &Resource,
        live: Value,
        policy: Policy<'_>,
        claims: Claims<'_>,
    ) -> Result<Next, Error> {
        let timer = self.context.figures.timer();
        let applied = match self.asked(policy).await {
            Ok(Ok(asked)) => self.claim_and_bind(template, resource, live.clone(), asked, claims).await,
            Ok(Err(reason)) => Ok(Bound::Refused(reason)),
            Err(error) => Err(error),
        };
        if let (Ok(Bound::Written), Some(holder)) = (&applied, claims.holder) {
            let text = select::preemption_message(policy, holder);
            self.context.writer.normal(component::DETECTOR, &live, event::PREEMPT_POLICY_SUCCEED, text);
        }
        self.context.figures.applied_policy(matches!(applied, Ok(Bound::Written | Bound::Unchanged)), &timer);
        {
            let waiting = &mut self.memory.lock().waiting;
            if matches!(applied, Ok(Bound::Waits(_))) {
                waiting.insert(template.clone());
            } else {
                waiting.remove(template);
            }
        }
        let said = match policy {
            Policy::Namespaced(_) => format!("Apply policy({}/{})", policy.namespace(), policy.name()),
            Policy::Cluster(_) => format!("Apply cluster policy({})", policy.name()),
        };
        match applied {
            Ok(Bound::Unchanged) => Ok(Next::Done),
            Ok(Bound::Written) => {
                tracing::info!(
                    kind = %template.kind.kind,
                    namespace = %template.key.namespace,
                    name = %template.key.name,
                    policy = %policy.name(),
                    duration_ms = timer.ms(),
                    "policy applied"
                );
                self.context.writer.normal(
                    component::DETECTOR,
                    &live,
                    event::APPLY_POLICY_SUCCEED,
                    format!("{said} succeed"),
                );
                Ok(Next::Done)
            }
            Ok(Bound::Refused(ref reason) | Bound::Waits(ref reason) | Bound::Unclear(ref reason)) => {
                tracing::warn!(template = %template, policy = %policy.name(), %reason, "policy not applied");
                let text = format!("{said} failed: {reason}");
                self.context.writer.warning(component::DETECTOR, &live, event::APPLY_POLICY_FAILED, text);
                // A PriorityClass may still come; nobody tells of it.
                let waits = policy.spec().schedule_priority.is_some();
                Ok(match applied {
                    Ok(Bound::Unclear(_)) => Next::After(UNCLEAR),
                    Ok(Bound::Waits(_)) => Next::After(WAITS),
                    _ if waits => Next::After(PRIORITY_CLASS),
                    _ => Next::Done,
                })
            }
            // Somebody was faster; what they wrote is read in a moment.
            Err(error) if error.is_conflict() || error.is_already_exists() || error.is_not_found() => {
                Err(error)
            }
            Err(error) => {
                let text = format!("{said} failed: {error}");
                self.context.writer.warning(component::DETECTOR, &live, event::APPLY_POLICY_FAILED, text);
                Err(error)
            }
        }
    }

    /// What a policy asks for, with the value of the PriorityClass that it names; or why that is not known.
    async fn asked<'a>(&self, policy: Policy<'a>) -> Result<Result<Asked<'a>, String>, Error> {
        let Some(wanted) = &policy.spec().schedule_priority else {
            return Ok(Ok(Asked { policy, priority: None, workload: Workload::default() }));
        };
        let name = wanted.priority_class_name.as_str();
        let class =
            self.context.writer.objects.get(&kinds::PRIORITY_CLASSES, &Key::cluster_scoped(name)).await?;
        let value = class.map(|class| class["value"].as_i64().and_then(|value| i32::try_from(value).ok()));
        Ok(match value {
            Some(value) => {
                let priority = Some(value.unwrap_or_default());
                Ok(Asked { policy, priority, workload: Workload::default() })
            }
            None => Err(format!(
                "spec.schedulePriority.priorityClassName: there is no PriorityClass {name:?}; create it or name another"
            )),
        })
    }

    async fn claim_and_bind(
        &self,
        template: &TemplateKey,
        resource: &Resource,
        mut live: Value,
        mut asked: Asked<'_>,
        claims: Claims<'_>,
    ) -> Result<Bound, Error> {
        let policy = asked.policy;
        let content = TemplateHead::project(&live).content;
        let known = self.memory.lock().bound.get(template).copied();
        let claimed = claims.claim.is_some_and(|claim| claim.is(policy));
        let lazy = policy.spec().activation_preference == Some(ActivationPreference::Lazy);

        let key = BindingKey::of_template(&template.kind.kind, &template.key.namespace, &template.key.name);
        // A binding that is not known is most likely not there; if it is, making it says so, and this runs again.
        let binding = match self.context.known.bindings.of(key.scope).get(&key.key) {
            None => None,
            Some(_) => self.context.writer.objects.get(bindings::resource(key.scope), &key.key).await?,
        };
        if let Some(reason) = binding.as_ref().and_then(|binding| bindings::collision(binding, &live)) {
            return Ok(Bound::Waits(reason));
        }
        // A binding of a template that was there before: made again, or moved here from another API server.
        let bound_before = binding.as_ref().is_some_and(|binding| {
            binding.pointer("/spec/resource/uid").and_then(Value::as_str) == Some(object::uid(&live))
        });
        let put_off = self.memory.lock().put_off.get(template) == Some(&content);
        let unchanged = match known {
            _ if !(lazy && claimed) => false,
            _ if put_off => true,
            Some(known) => bound_before && known == content,
            None => bound_before && self.asks_as_bound(&live, binding.as_ref()).await,
        };
        if unchanged {
            // Changes of a lazy policy wait for the next change of the template.
            self.memory.lock().bound.insert(template.clone(), content);
            return Ok(Bound::Unchanged);
        }
        if select::claim(&mut live, policy) {
            // The watch brings this back, as nothing new.
            self.memory.lock().claimed.insert(template.clone(), TemplateHead::project(&live).content);
            live = self.context.writer.objects.replace(resource, &live).await?;
        }
        let content = TemplateHead::project(&live).content;
        if lazy && !claimed && (claims.holder.is_some() || claims.waited) {
            // The object is its from now on; what it asks for waits for the next change of the template, too.
            let mut memory = self.memory.lock();
            memory.put_off.insert(template.clone(), content);
            memory.bound.insert(template.clone(), content);
            return Ok(if claims.holder.is_some() { Bound::Written } else { Bound::Unchanged });
        }
        self.memory.lock().put_off.remove(template);
        let told = binding.as_ref().and_then(key::conditions);
        asked.workload = match self.workload(&live).await {
            Ok(workload) => workload,
            Err(error) => {
                let why = error.to_string();
                if let Some(told) = &told {
                    self.tell_problem(&key, told, INTERPRETED, Some(&why)).await?;
                }
                return Ok(Bound::Unclear(why));
            }
        };
        if let Some(told) = &told {
            self.tell_problem(&key, told, INTERPRETED, None).await?;
        }
        let unread = desired::unread(&live, policy);
        let bound = match binding {
            None => {
                let mut new = match desired::new_binding(&key, &live, &asked, &self.context.env) {
                    Ok(new) => new,
                    Err(reason) => return Ok(Bound::Refused(reason)),
                };
                placing::at_birth(&self.context.accounts, &key, &mut new).await;
                self.context.writer.objects.create(bindings::resource(key.scope), &new).await?;
                Bound::Written
            }
            // At the first look since the start nothing is known; then the binding's Works are looked at instead.
            Some(binding) => {
                let keep_version = known.is_none_or(|known| known == content);
                self.update_binding(&key, binding, &live, &asked, keep_version).await?
            }
        };
        if bound == Bound::Written {
            self.tell_workload(&live, &asked.workload);
        }
        let told = told.unwrap_or_default();
        if self.tell_problem(&key, &told, ANNOTATIONS, unread.as_deref()).await?
            && let Some(why) = &unread
        {
            self.context.writer.warning(component::DETECTOR, &live, event::INVALID_ANNOTATION, why.as_str());
        }
        if known != Some(content) {
            if bound == Bound::Unchanged {
                // Nothing in the binding shows that the template may have changed while nobody was looking.
                self.context.to_bind.add(key);
            }
            self.memory.lock().bound.insert(template.clone(), content);
        }
        Ok(bound)
    }

    /// Whether a template asks for what its binding holds. At the first look since the start nothing else tells whether it
    /// has changed while no hub was there; where its rule has no answer now, it has not.
    async fn asks_as_bound(&self, live: &Value, binding: Option<&Value>) -> bool {
        let (Some(binding), Ok(workload)) = (binding, self.workload(live).await) else { return true };
        desired::asks_as_bound(&workload, binding)
    }

    /// Brings an existing binding in step. `keep_version`: that the template has another resourceVersion is no
    /// reason to write.
    async fn update_binding(
        &self,
        key: &BindingKey,
        mut binding: Value,
        template: &Value,
        asked: &Asked<'_>,
        keep_version: bool,
    ) -> Result<Bound, Error> {
        if object::deletion_timestamp(&binding).is_some() {
            // It belongs to a template of the same name that is gone; a new one is made when it is gone too.
            // Its end is heard, and brings the template back.
            return Ok(Bound::Unchanged);
        }
        let before = binding["spec"].clone();
        let outlived = object::annotation(&binding, rollout::OUTLIVES).is_some();
        match desired::update_binding(key, &mut binding, template, asked, keep_version, &self.context.env) {
            Ok(false) => Ok(Bound::Unchanged),
            Ok(true) => {
                if let Some(why) = self.over_quota(key, &before, &binding) {
                    return Ok(Bound::Waits(why));
                }
                self.context.writer.objects.replace(bindings::resource(key.scope), &binding).await?;
                if !outlived && object::annotation(&binding, rollout::OUTLIVES).is_some() {
                    for about in [&binding, template] {
                        let writer = &self.context.writer;
                        writer.warning(
                            component::DETECTOR,
                            about,
                            event::ROLLOUT_OUTLIVES,
                            rollout::words::outlives(),
                        );
                    }
                }
                Ok(Bound::Written)
            }
            Err(reason) => Ok(Bound::Refused(reason)),
        }
    }

    /// Why a binding may not ask for what it asks for now, where it is placed already.
    fn over_quota(&self, key: &BindingKey, before: &Value, binding: &Value) -> Option<String> {
        if !quotas::limited(&self.context.accounts, key) {
            return None;
        }
        let before = ResourceBindingSpec::deserialize(before).ok()?;
        let wanted = ResourceBindingSpec::deserialize(&binding["spec"]).ok()?;
        quotas::refusal(&self.context.accounts, key, &before, &wanted)
    }

    /// Takes back the claim of a policy that is gone or means the template no longer. What was placed stays.
    async fn release(
        &self,
        template: &TemplateKey,
        resource: &Resource,
        live: &Value,
        claim: &Claim,
    ) -> Result<(), Error> {
        let unclaim =
            |object: &mut Value| Claim::of(object).as_ref() == Some(claim) && select::unclaim(object);
        let key = BindingKey::of_template(&template.kind.kind, &template.key.namespace, &template.key.name);
        self.context
            .writer
            .objects
            .modify(bindings::resource(key.scope), &key.key, Part::Main, unclaim)
            .await?;
        let uid = object::uid(live);
        let same = |object: &mut Value| object::uid(object) == uid && unclaim(object);
        self.context.writer.objects.modify(resource, &template.key, Part::Main, same).await?;
        Ok(())
    }

    /// Whether an object is there for others' sake, so that nobody misses a policy: it goes along with what needs
    /// it, or its kind is only watched for that.
    fn only_needed(&self, template: &TemplateKey) -> bool {
        let key = BindingKey::of_template(&template.kind.kind, &template.key.namespace, &template.key.name);
        if self
            .context
            .known
            .bindings
            .of(key.scope)
            .get(&key.key)
            .is_some_and(|head| !head.required_by.is_empty())
        {
            return true;
        }
        self.context.accounts.needs.has_kind(&template.kind)
            && !self
                .context
                .known
                .policies
                .both()
                .into_iter()
                .any(|(_, index)| index.any(|head| selected_kinds(head).contains(&template.kind)))
    }

    async fn tell_unmatched(&self, template: &TemplateKey, live: &Value) -> Result<Next, Error> {
        if self.only_needed(template) {
            return Ok(Next::Done);
        }
        let patience = {
            let now = self.context.env.now();
            let turn = lonely::turn(live);
            let unmatched = &mut self.memory.lock().unmatched;
            let entry = unmatched.entry(template.clone()).or_insert((turn, Lonely::Since(now)));
            if entry.0 != turn {
                *entry = (turn, Lonely::Since(now));
            }
            entry.1.patience(now)
        };
        match patience {
            Patience::Wait(left) => Ok(Next::After(left)),
            Patience::Quiet => Ok(Next::Done),
            Patience::Tell => {
                let writer = &self.context.writer;
                if !self.earlier.has_told(writer, live).await {
                    writer.warning(component::DETECTOR, live, event::APPLY_POLICY_FAILED, NO_POLICY);
                }
                Ok(Next::Done)
            }
        }
    }
}
