//! CronFederatedHPAs: at their times, workloads get other replicas and FederatedHPAs other bounds
//! ([`karmada_core::autoscale::cron`]).
//!
//! The status says when each rule is due next, and is written after what was due is done. Who does not get so far does it again:
//! that sets the same once more. Who meets another hub's write looks again.

use std::{sync::Arc, time::Duration};

use karmada_api::{
    autoscaling::{CronFederatedHpaRule, CronFederatedHpaSpec, CronFederatedHpaStatus},
    consts::{component, event},
};
use karmada_client::{Error, Resource, WorkQueue};
use karmada_core::autoscale::cron::{self, Done, Due};
use karmada_meta::{gvk::GroupVersionKind, object, time::Time};
use karmada_objects::{
    key::{self, Key},
    kinds::CRON_FEDERATED_HPAS,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Context, Next, work};
use crate::known::{heads::CronHead, index::Index};

/// How many are worked on at a time.
const WORKERS: usize = 4;
/// A clock may be set: nobody sleeps longer before it is looked at again.
const LONGEST: Duration = Duration::from_secs(60);
/// How often what is scaled is read anew after another writer was faster.
const ATTEMPTS: usize = 5;

/// Scales at certain times.
pub(crate) struct CronScaling {
    context: Arc<Context>,
    queue: WorkQueue<Key>,
}

impl CronScaling {
    /// A controller that hears of CronFederatedHPAs from now on.
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        let queue: WorkQueue<Key> = WorkQueue::new(context.env.clone());
        context.figures.queue("cronfederatedhpa", &queue);
        let changed = queue.clone();
        context.known.crons.listen(move |change| changed.add(change.key.clone()));
        Self { context: context.clone(), queue }
    }

    fn index(&self) -> &Index<CronHead> {
        &self.context.known.crons
    }

    /// Runs until told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        work("cronfederatedhpa", &self.queue, WORKERS, &stop, |key: Key| self.reconcile(key)).await;
    }

    async fn reconcile(&self, key: Key) -> Result<Next, Error> {
        let timer = self.context.figures.timer();
        let done = self.look(key).await;
        self.context.figures.scaling().looked_at_cron(done.is_ok(), timer.took());
        done
    }

    async fn look(&self, key: Key) -> Result<Next, Error> {
        let Some(head) = self.index().get(&key) else { return Ok(Next::Done) };
        let Some((spec, told)) = &head.says else { return Ok(Next::Done) };
        let now = Time::now(&self.context.env);
        let look = cron::look(spec, told, now);
        if look.due.is_empty() && head.tells(&look.next) {
            return Ok(self.wait(look.again()));
        }
        let objects = &self.context.writer.objects;
        let Some(mut live) = objects.get(&CRON_FEDERATED_HPAS, &key).await? else { return Ok(Next::Done) };
        let (Some(spec), Some(told)) = (
            key::read::<CronFederatedHpaSpec>(&live, "spec"),
            key::read::<CronFederatedHpaStatus>(&live, "status"),
        ) else {
            return Ok(Next::Done);
        };
        if object::deletion_timestamp(&live).is_some() {
            return Ok(Next::Done);
        }
        let look = cron::look(&spec, &told, now);
        for (rule, why) in &look.wrong {
            let message = format!("rule {:?} does not run: {why}", spec.rules[*rule].name);
            self.context.writer.warning(
                component::CRON_FEDERATED_HPA,
                &live,
                event::START_RULE_FAILED,
                message,
            );
        }
        let mut done = Vec::new();
        for due in &look.due {
            let rule = &spec.rules[due.rule];
            let failure = match due.missed {
                true => Some(format!(
                    "it was due while no hub was there, or held up, more than {} minutes ago",
                    cron::MISSED.as_secs() / 60
                )),
                false => {
                    let timer = self.context.figures.timer();
                    let scaled = self.scale(&key, &spec, rule).await;
                    let succeeded = matches!(scaled, Ok(None));
                    self.context.figures.scaling().ran_rule(succeeded, timer.took());
                    scaled?
                }
            };
            self.tell(&live, rule, due, failure.as_deref());
            done.push(Done { due: due.clone(), at: Time::now(&self.context.env), failure });
        }
        let status = cron::status(&spec, &told, &look, &done);
        if status != told {
            live["status"] = json!(status);
            objects.replace_status(&CRON_FEDERATED_HPAS, &live).await?;
        }
        Ok(self.wait(look.again()))
    }

    fn tell(&self, live: &Value, rule: &CronFederatedHpaRule, due: &Due, failure: Option<&str>) {
        let (key, at) = (Key::of(live), due.at);
        match failure {
            None => tracing::info!(cronfederatedhpa = %key, rule = rule.name, %at, "scaled as the rule says"),
            Some(why) => {
                tracing::warn!(cronfederatedhpa = %key, rule = rule.name, %at, why, "not scaled as the rule says");
                let message = format!("rule {:?} of {at}: {why}", rule.name);
                self.context.writer.warning(
                    component::CRON_FEDERATED_HPA,
                    live,
                    event::SCALE_FAILED,
                    message,
                );
            }
        }
    }

    fn wait(&self, again: Option<Time>) -> Next {
        let Some(again) = again else { return Next::Done };
        let now = self.context.env.wall();
        let wait = std::time::SystemTime::from(again.timestamp()).duration_since(now).unwrap_or_default();
        Next::After(wait.min(LONGEST))
    }

    /// Scales by a rule; answers why it cannot be done. What passes is an error.
    async fn scale(
        &self,
        key: &Key,
        spec: &CronFederatedHpaSpec,
        rule: &CronFederatedHpaRule,
    ) -> Result<Option<String>, Error> {
        let (context, target) = (&self.context, &spec.scale_target_ref);
        let Some(kind) = GroupVersionKind::from_api_version(&target.api_version, target.kind.as_str()) else {
            return Ok(Some(format!("{:?} is no apiVersion", target.api_version)));
        };
        let rest = context.writer.objects.rest();
        let Some(resource) = context.known.templates.resource(rest, &kind).await? else {
            return Ok(Some(format!("the hub has no kind {} in {}", target.kind, target.api_version)));
        };
        let key = Key::new(key.namespace.as_str(), target.name.as_str());
        for attempt in 1.. {
            let written = if cron::is_bounds(target) {
                self.write(&resource, &key, "", |live| set_bounds(live, rule)).await
            } else {
                self.write(&resource, &key, "scale", |scale| set_replicas(scale, rule)).await
            };
            match written {
                Err(error) if error.is_conflict() && attempt < ATTEMPTS => {}
                Err(error) if error.is_transient() || error.is_conflict() => return Err(error),
                Err(error) => return Ok(Some(format!("{} {key} cannot be scaled: {error}", target.kind))),
                Ok(()) => break,
            }
        }
        Ok(None)
    }

    async fn write(
        &self,
        resource: &Resource,
        key: &Key,
        part: &str,
        change: impl Fn(&mut Value) -> bool,
    ) -> Result<(), Error> {
        let path = match part {
            "" => resource.object(Some(&key.namespace), &key.name),
            part => resource.subresource(Some(&key.namespace), &key.name, part),
        };
        let rest = self.context.writer.objects.rest();
        let mut live = rest.get(&path).await?;
        if change(&mut live) {
            rest.put(&path, &live).await?;
        }
        Ok(())
    }
}

fn set_replicas(scale: &mut Value, rule: &CronFederatedHpaRule) -> bool {
    set(scale, "replicas", rule.target_replicas)
}

fn set_bounds(live: &mut Value, rule: &CronFederatedHpaRule) -> bool {
    let min = set(live, "minReplicas", rule.target_min_replicas);
    set(live, "maxReplicas", rule.target_max_replicas) || min
}

fn set(live: &mut Value, field: &str, to: Option<i32>) -> bool {
    let Some(to) = to.map(|to| json!(to)) else { return false };
    let spec = object::ensure_map(live, "spec");
    // A scale leaves out a zero.
    let is = spec.get(field).cloned().unwrap_or_else(|| json!(0));
    let differs = is != to;
    if differs {
        spec.insert(field.to_owned(), to);
    }
    differs
}
