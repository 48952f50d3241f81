//! Asking the webhooks that are for a write ([`crate::webhooks`]).

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use futures::future::join_all;
use karmada_meta::{gvk::GroupResource, status::Status};
use karmada_smd::patch;
use serde_json::Value;

use super::{Caller, Registry, Target, scale};
use crate::{
    admission::Operation,
    decode::{self, Expected},
    findings::Findings,
    heavy::HEAVY,
    kinds::Kind,
    storage,
    webhooks::{
        Hook,
        matching::{self, NamespaceLabels, Subject},
        place,
        review::{self, Options, Reply, Request},
    },
};

/// One try at a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt<'a> {
    pub(crate) operation: Operation,
    pub(crate) target: &'a Target<'a>,
    pub(crate) options: Options<'a>,
    /// The object as it is stored.
    pub(crate) old: Option<&'a Value>,
}

/// What mutating webhooks of a write have come to so far, over both rounds.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// Asked, and to be asked again when somebody changes the object after them.
    asked: BTreeSet<usize>,
    /// Asked in the second round.
    again: BTreeSet<usize>,
    /// This is the second one.
    second: bool,
    /// One of them changed something.
    pub(crate) changed: bool,
}

impl Round {
    /// Somebody changed the object: whoever was asked before and wants to know is asked once more.
    pub(crate) fn touched(&mut self) {
        self.again.append(&mut self.asked);
    }

    /// Begins the second round.
    pub(crate) fn repeat(&mut self) {
        self.second = true;
    }
}

/// A write on its way past the webhooks.
struct Passage<'a> {
    registry: &'a Registry,
    attempt: &'a Attempt<'a>,
    subject: Subject<'a>,
    request: Request<'a>,
    /// The other kinds under which the same objects are served.
    equivalents: Vec<Arc<Kind>>,
}

impl<'a> Passage<'a> {
    fn new(registry: &'a Registry, caller: &'a Caller<'a>, attempt: &'a Attempt<'a>) -> Self {
        let &Attempt { operation, target, options, .. } = attempt;
        let &Target { kind, namespace, name, subresource } = target;
        // A Namespace is in itself.
        let namespace = if matching::is_namespace(kind) { name } else { namespace };
        let subject = Subject { operation, kind, subresource, namespace };
        let request = Request { operation, kind, subresource, namespace, name, user: caller.user, options };
        let same = |other: &&Arc<Kind>| other.storage == kind.storage && other.gvr != kind.gvr;
        let equivalents = registry.kinds().iter().filter(same).cloned().collect();
        Self { registry, attempt, subject, request, equivalents }
    }

    /// The object as a webhook that is asked in the version of `kind` sees it.
    fn view(&self, kind: &Kind, object: &Value) -> Value {
        let own = self.subject.kind;
        if self.subject.subresource == "scale" {
            return scale::scale_of(own, object);
        }
        let mut view = convert(own, kind, object.clone());
        kind.shape.settle(&mut view);
        view
    }

    /// The version in which a webhook is to be asked, if its rules want the write.
    fn by_rules(&self, hook: &Hook) -> Option<Arc<Kind>> {
        matching::by_rules(hook, &self.subject, &self.equivalents)
    }

    /// Whether its selectors want it.
    fn selects(&self, hook: &Hook, object: Option<&Value>) -> Result<bool, Status> {
        let (subject, registry) = (self.subject, self.registry);
        let namespace_labels = || match object {
            Some(object) if matching::is_namespace(subject.kind) && subject.subresource.is_empty() => {
                Ok(NamespaceLabels::New(object))
            }
            _ => {
                let missing = || Status::not_found(&GroupResource::new("", "namespaces"), subject.namespace);
                registry.namespace(subject.namespace).map(NamespaceLabels::Stored).ok_or_else(missing)
            }
        };
        // A Scale has no labels.
        let unlabelled = Value::Null;
        let objects = if subject.subresource == "scale" {
            [object.map(|_| &unlabelled), self.attempt.old.map(|_| &unlabelled)]
        } else {
            [object, self.attempt.old]
        };
        matching::by_selectors(hook, &subject, namespace_labels, objects)
    }

    /// What a webhook is asked whose rules want the write. It is work on copies of the objects. `again`: whether it is asked
    /// at this time, if it is. `cheaply`: conditions that take long are for another time.
    fn question(
        &self,
        hook: &Hook,
        kind: &Kind,
        object: Option<&Value>,
        again: bool,
        cheaply: bool,
    ) -> Result<Question, Status> {
        if !self.selects(hook, object)? {
            return Ok(Question::None);
        }
        let request = review::request(&self.request, kind);
        let view = |object: Option<&Value>| object.map_or(Value::Null, |object| self.view(kind, object));
        let (new, old) = (view(object), view(self.attempt.old));
        let holds = match cheaply {
            true => hook.conditions.hold_cheaply(&new, &old, &request),
            false => Some(hook.conditions.hold(&new, &old, &request)),
        };
        match holds {
            None => return Ok(Question::Costly),
            Some(Ok(true)) => {}
            Some(Ok(false)) => return Ok(Question::None),
            Some(Err(why)) if hook.ignores_failures => {
                tracing::warn!(
                    webhook = hook.name,
                    why,
                    "the conditions of a webhook have no answer; it is not asked"
                );
                return Ok(Question::None);
            }
            Some(Err(why)) => {
                let resource = self.subject.kind.group_resource();
                return Err(Status::forbidden(&resource, self.attempt.target.name, why));
            }
        }
        if !again {
            return Ok(Question::None);
        }
        if self.attempt.options.dry_run() && !hook.dry_run {
            return Ok(Question::Asked(Err(Failed::Write(Box::new(review::no_dry_run(&hook.name))))));
        }
        Ok(Question::Asked(self.review(hook, &request, &new, &old).map_err(Failed::Call)))
    }

    /// The review for a webhook.
    fn review(&self, hook: &Hook, request: &Value, new: &Value, old: &Value) -> Result<Asked, String> {
        let Some(version) = hook.review_version else {
            return Err("could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)".to_owned());
        };
        let uid = self.registry.env.uuid();
        let review = review::review(version, &uid, request, new, old)
            .map_err(|error| format!("could not create admission objects: {error}"))?;
        Ok(Asked { version, uid, review })
    }
}

/// What follows from looking at what a webhook wants.
enum Question {
    /// It is not asked.
    None,
    /// Its conditions take too long to be judged where others wait.
    Costly,
    /// It is asked this, or failed before.
    Asked(Result<Asked, Failed>),
}

/// A review as it is sent, and what the answer to it has to repeat.
struct Asked {
    version: &'static str,
    uid: String,
    review: Bytes,
}

/// How asking came out.
enum Failed {
    /// There is no answer: the failure policy decides.
    Call(String),
    /// It is over, whatever the policy.
    Write(Box<Status>),
}

impl From<Status> for Failed {
    fn from(status: Status) -> Self {
        Self::Write(Box::new(status))
    }
}

impl Registry {
    /// What a webhook is asked, if it is to be asked. Worked out beside everybody's work where that may take long.
    ///
    /// # Errors
    /// That nobody can be asked, and 429 when too much is worked on already.
    async fn question(
        &self,
        caller: &Caller<'_>,
        passage: &Passage<'_>,
        hook: &Hook,
        (kind, object): (&Kind, Option<&Value>),
        again: bool,
    ) -> Result<Option<Result<Asked, Failed>>, Status> {
        caller.weigh_copies().await?;
        let weight = caller.weight();
        let look = |cheaply| passage.question(hook, kind, object, again, cheaply);
        let mut question = self.pool.run(weight, || look(weight < HEAVY)).await??;
        if matches!(question, Question::Costly) {
            question = self.pool.run(weight.max(HEAVY), || look(false)).await??;
        }
        Ok(match question {
            Question::Asked(asked) => Some(asked),
            Question::None | Question::Costly => None,
        })
    }

    /// Asks a webhook.
    async fn ask(
        &self,
        by: &Caller<'_>,
        hook: &Hook,
        asked: Result<Asked, Failed>,
        mutates: bool,
    ) -> Result<Reply, Failed> {
        let Asked { version, uid, review } = asked?;
        let Some(caller) = self.webhooks.caller() else {
            return Err(Failed::Call("this API server has no way to call webhooks".to_owned()));
        };
        let service = |namespace: &str, name: &str| {
            let entry = self.store.get(&storage::key_of("core/services", namespace, name))?;
            serde_json::from_slice(&entry.value.get()).ok()
        };
        let place = place::find(hook, service)
            .map_err(|why| Failed::Call(format!("failed to call webhook: {why}{}", caller.way_out())))?;
        let failed = |why: &str| {
            let seconds = place.timeout.as_secs();
            Failed::Call(format!("failed to call webhook: Post \"{}?timeout={seconds}s\": {why}", place.url))
        };
        let answer = match tokio::time::timeout(place.timeout, caller.call(&place, review)).await {
            Ok(answer) => answer.map_err(|why| failed(&why))?,
            Err(_) => return Err(failed("context deadline exceeded")),
        };
        // It may be larger than what it is about.
        by.weigh(answer.len()).await?;
        let read = || match serde_json::from_slice(&answer) {
            Ok(answer) => review::reply(version, &uid, mutates, &answer).map_err(Failed::Call),
            Err(error) => Err(failed(&format!("its answer is not JSON: {error}"))),
        };
        self.pool.run(answer.len(), read).await?
    }

    /// Says what follows from how asking came out; nothing from a failure that may be.
    fn outcome(
        &self,
        caller: &Caller<'_>,
        attempt: &Attempt<'_>,
        hook: &Hook,
        mutates: bool,
        reply: Result<Reply, Failed>,
    ) -> Result<Option<Reply>, Status> {
        let failed = matches!(reply, Err(Failed::Call(_)));
        let outcome = Self::judged(caller, hook, reply);
        let code = match &outcome {
            Err(status) => status.code(),
            Ok(_) if failed => 500,
            Ok(_) => 200,
        };
        let operation = matching::operation_name(attempt.operation);
        self.webhooks.counts.count(&hook.name, mutates, operation, code, outcome.is_err());
        outcome
    }

    fn judged(
        caller: &Caller<'_>,
        hook: &Hook,
        reply: Result<Reply, Failed>,
    ) -> Result<Option<Reply>, Status> {
        match reply {
            Ok(mut reply) => {
                reply.warnings.drain(..).for_each(|warning| caller.warn(warning));
                match &reply.refused {
                    Some(status) => Err(review::denied(&hook.name, status)),
                    None => Ok(Some(reply)),
                }
            }
            Err(Failed::Write(status)) => Err(*status),
            Err(Failed::Call(why)) if hook.ignores_failures => {
                tracing::warn!(
                    configuration = hook.configuration,
                    why = review::failure(&hook.name, &why),
                    "a webhook that may fail did; the write goes on"
                );
                Ok(None)
            }
            Err(Failed::Call(why)) => {
                let status = review::failed(&hook.name, &why);
                tracing::warn!(
                    configuration = hook.configuration,
                    why = status.message,
                    "a write is refused"
                );
                Err(status)
            }
        }
    }

    /// Asks the mutating webhooks, one after the other, and changes the object as they say.
    ///
    /// # Errors
    /// The first refusal or failure.
    pub(super) async fn ask_mutating(
        &self,
        caller: &Caller<'_>,
        attempt: &Attempt<'_>,
        hooks: &[Arc<Hook>],
        object: &mut Value,
        round: &mut Round,
    ) -> Result<(), Status> {
        let deletes = attempt.operation == Operation::Delete;
        let (passage, sent) = (Passage::new(self, caller, attempt), caller.weight());
        for (index, hook) in hooks.iter().enumerate() {
            let Some(kind) = passage.by_rules(hook) else { continue };
            let again = !round.second || round.again.contains(&index);
            let new = (!deletes).then_some(&*object);
            let asked = self.question(caller, &passage, hook, (&kind, new), again).await?;
            let Some(asked) = asked else { continue };
            let reply = self.ask(caller, hook, asked, true).await;
            let reply = self.outcome(caller, attempt, hook, true, reply)?;
            if let Some(reply) = reply.filter(|reply| !reply.patch.is_empty()) {
                if deletes {
                    return Err(review::nothing_to_change(&hook.name));
                }
                // Copies of copies make much of little.
                if reply.patch.iter().any(|operation| operation["op"] == "copy") {
                    caller.weigh(sent + patch::MAX_COPIED).await?;
                }
                let apply = || {
                    let view = passage.view(&kind, object);
                    let changed = patched(attempt.target, &kind, object, &view, reply)?;
                    let is_changed = changed.is_some();
                    if let Some(changed) = changed {
                        *object = changed;
                    }
                    Ok::<_, Status>(is_changed)
                };
                if self.pool.run(caller.weight(), apply).await?? {
                    round.changed = true;
                    round.touched();
                }
            }
            if hook.reinvoked {
                round.asked.insert(index);
            }
        }
        Ok(())
    }

    /// Asks the validating webhooks, all at once.
    ///
    /// # Errors
    /// The first refusal or failure, in the order of the webhooks.
    pub(super) async fn ask_validating(
        &self,
        caller: &Caller<'_>,
        attempt: &Attempt<'_>,
        hooks: &[Arc<Hook>],
        object: Option<&Value>,
    ) -> Result<(), Status> {
        let passage = Passage::new(self, caller, attempt);
        let mut calls = Vec::new();
        for hook in hooks {
            let Some(kind) = passage.by_rules(hook) else { continue };
            let asked = self.question(caller, &passage, hook, (&kind, object), true).await?;
            let Some(asked) = asked else { continue };
            calls.push(async move {
                let reply = self.ask(caller, hook, asked, false).await;
                self.outcome(caller, attempt, hook, false, reply)
            });
        }
        for outcome in join_all(calls).await {
            outcome?;
        }
        Ok(())
    }
}

/// An object in another version of its kind.
fn convert(from: &Kind, to: &Kind, object: Value) -> Value {
    if from.gvr == to.gvr {
        return object;
    }
    let mut object = to.serve(from.shape.to_stored(object), None);
    storage::stamp(to, &mut object, None);
    object
}

/// The object as a patch of what the webhook saw of it makes it; `None`: as it was.
fn patched(
    target: &Target<'_>,
    kind: &Kind,
    object: &Value,
    view: &Value,
    reply: Reply,
) -> Result<Option<Value>, Status> {
    let mut new = patch::json_patch(view, &Value::Array(reply.patch)).map_err(Status::internal)?;
    if target.subresource == "scale" {
        return if new == *view {
            Ok(None)
        } else {
            scale::with_replicas(target, object.clone(), &new).map(Some)
        };
    }
    if !new.is_object() {
        return Err(Status::internal("what the patch makes of the object is no object"));
    }
    decode::check_kind(kind, &mut new, Expected::Patched).map_err(Status::internal)?;
    decode::fields(kind, &mut new, &mut Findings::default()).map_err(Status::internal)?;
    kind.shape.default(&mut new);
    let mut settled = new.clone();
    kind.shape.settle(&mut settled);
    if settled == *view {
        return Ok(None);
    }
    Ok(Some(convert(kind, target.kind, new)))
}
