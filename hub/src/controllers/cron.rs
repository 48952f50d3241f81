//! CronFederatedHPAs: at their times, workloads get other replicas and FederatedHPAs other bounds
//! ([`karmada_core::autoscale::cron`]).
//!
//! The status says when each rule is due next, and is written after each that was due. What a rule begins is written before that, and
//! who finds it begun looks at the target first: each time is carried out once, wherever a hub is lost. Who meets another hub's
//! write looks again.

use std::{sync::Arc, time::Duration};

use karmada_api::{
    autoscaling::{CronFederatedHpaRule, CronFederatedHpaSpec, CronFederatedHpaStatus},
    consts::{component, event},
};
use karmada_client::{Error, Resource, WorkQueue};
use karmada_core::autoscale::cron::{self, Became, Begun, Claim, Claims, Done, Due, Size};
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
/// Why it is not known whether a target was scaled.
const UNCLEAR: &str = "the hub was lost in the middle of it; whoever has changed it several times since may have scaled it back, so it \
                       is left as it is";

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
        let look = cron::look(spec, told, &Claims::default(), now);
        if look.due.is_empty() && head.tells(&look.next) {
            return Ok(self.wait(look.again()));
        }
        let objects = &self.context.writer.objects;
        let Some(mut live) = objects.get(&CRON_FEDERATED_HPAS, &key).await? else { return Ok(Next::Done) };
        let (Some(spec), Some(mut told)) = (
            key::read::<CronFederatedHpaSpec>(&live, "spec"),
            key::read::<CronFederatedHpaStatus>(&live, "status"),
        ) else {
            return Ok(Next::Done);
        };
        if object::deletion_timestamp(&live).is_some() {
            return Ok(Next::Done);
        }
        let look = cron::look(&spec, &told, &Claims::of(&live), now);
        for (rule, why) in &look.wrong {
            let message = format!("rule {:?} does not run: {why}", spec.rules[*rule].name);
            self.context.writer.warning(
                component::CRON_FEDERATED_HPA,
                &live,
                event::START_RULE_FAILED,
                message,
            );
        }
        for due in &look.due {
            let rule = &spec.rules[due.rule];
            let failure = match due.missed {
                true => match self.became(&live, &spec, (rule, due.at)).await? {
                    // Only that was not said.
                    Became::Done => None,
                    Became::Unclear => {
                        let target = &spec.scale_target_ref;
                        Some(format!("{} {}: {UNCLEAR}", target.kind, target.name))
                    }
                    Became::Open => Some(format!(
                        "it was due while no hub was there, or held up, more than {} minutes ago",
                        cron::MISSED.as_secs() / 60
                    )),
                },
                false => {
                    let timer = self.context.figures.timer();
                    let scaled = self.scale(&mut live, &spec, (rule, due.at)).await;
                    let succeeded = matches!(scaled, Ok(None));
                    self.context.figures.scaling().ran_rule(succeeded, timer.took());
                    scaled?
                }
            };
            let limit = match failure {
                Some(_) => rule.failed_history_limit,
                None => rule.successful_history_limit,
            };
            if limit == 0 && !Claims::of(&live).has(&rule.name, due.at) {
                // Nothing else remembers it.
                self.claim(&mut live, Claim { rule: rule.name.clone(), at: due.at, target: None }).await?;
            }
            let done = Done { due: due.clone(), at: Time::now(&self.context.env), failure };
            told = cron::status(&spec, &told, &look, std::slice::from_ref(&done));
            live["status"] = json!(told);
            live = objects.replace_status(&CRON_FEDERATED_HPAS, &live).await?;
            self.tell(&live, rule, due, done.failure.as_deref());
        }
        if look.due.is_empty() {
            let status = cron::status(&spec, &told, &look, &[]);
            if status != told {
                live["status"] = json!(status);
                objects.replace_status(&CRON_FEDERATED_HPAS, &live).await?;
            }
        }
        Ok(self.wait(look.again()))
    }

    /// Writes down what is begun, on the CronFederatedHPA as it was read.
    async fn claim(&self, live: &mut Value, claim: Claim) -> Result<(), Error> {
        let mut claimed = live.clone();
        Claims::of(live).add(&mut claimed, claim);
        match self.context.writer.objects.replace(&CRON_FEDERATED_HPAS, &claimed).await {
            Ok(written) => *live = written,
            Err(error) if error.is_transient() || error.is_conflict() || error.is_not_found() => {
                return Err(error);
            }
            // One from before, that would not be taken today. It is scaled all the same.
            Err(error) => {
                tracing::warn!(cronfederatedhpa = %Key::of(live), %error, "what is begun cannot be written down");
            }
        }
        Ok(())
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

    /// Scales by a rule, for one of its times; answers why it cannot be done. What passes is an error.
    async fn scale(
        &self,
        live: &mut Value,
        spec: &CronFederatedHpaSpec,
        (rule, at): (&CronFederatedHpaRule, Time),
    ) -> Result<Option<String>, Error> {
        let (context, target) = (&self.context, &spec.scale_target_ref);
        let Some(kind) = GroupVersionKind::from_api_version(&target.api_version, target.kind.as_str()) else {
            return Ok(Some(format!("{:?} is no apiVersion", target.api_version)));
        };
        let rest = context.writer.objects.rest();
        let Some(resource) = context.known.templates.resource(rest, &kind).await? else {
            return Ok(Some(format!("the hub has no kind {} in {}", target.kind, target.api_version)));
        };
        let key = Key::new(object::namespace(live), target.name.as_str());
        let failed = |error: Error| match error.is_transient() || error.is_conflict() {
            true => Err(error),
            false => Ok(Some(format!("{} {key} cannot be scaled: {error}", target.kind))),
        };
        for attempt in 1.. {
            let mut found = match self.find(&resource, &key, cron::is_bounds(target)).await {
                Ok(found) => found,
                Err(error) => return failed(error),
            };
            let now = found.begin(|size| cron::sized(rule, target, size));
            let claims = Claims::of(live);
            // What was refused in this look was not done.
            let begun = claims.begun(&rule.name, at).filter(|_| attempt == 1);
            match begun.map_or(Became::Open, |begun| begun.became(&now)) {
                _ if now.from == now.to => break,
                Became::Done => break,
                Became::Unclear => return Ok(Some(format!("{} {key}: {UNCLEAR}", target.kind))),
                Became::Open => {}
            }
            found.set(&now);
            if begun != Some(&now) {
                self.claim(live, Claim { rule: rule.name.clone(), at, target: Some(now) }).await?;
            }
            match rest.put(&found.path, &found.scale).await {
                Ok(_) => break,
                Err(error) if error.is_conflict() && attempt < ATTEMPTS => {}
                Err(error) => {
                    if error.code().is_some_and(|code| code < 500) {
                        // It was not done, whatever the target is like when it is tried again.
                        self.claim(live, Claim { rule: rule.name.clone(), at, target: None }).await?;
                    }
                    return failed(error);
                }
            }
        }
        Ok(None)
    }

    /// What became of a rule's time if it was begun, by the target as it is now.
    async fn became(
        &self,
        live: &Value,
        spec: &CronFederatedHpaSpec,
        (rule, at): (&CronFederatedHpaRule, Time),
    ) -> Result<Became, Error> {
        let (claims, target) = (Claims::of(live), &spec.scale_target_ref);
        let kind = GroupVersionKind::from_api_version(&target.api_version, target.kind.as_str());
        let (Some(begun), Some(kind)) = (claims.begun(&rule.name, at), kind) else { return Ok(Became::Open) };
        let rest = self.context.writer.objects.rest();
        let Some(resource) = self.context.known.templates.resource(rest, &kind).await? else {
            return Ok(Became::Open);
        };
        let key = Key::new(object::namespace(live), target.name.as_str());
        match self.find(&resource, &key, cron::is_bounds(target)).await {
            Ok(found) => Ok(begun.became(&found.begin(|size| cron::sized(rule, target, size)))),
            Err(error) if error.is_transient() || error.is_conflict() => Err(error),
            // Whatever it was, it is not there, or not ours to read.
            Err(_) => Ok(Became::Open),
        }
    }

    /// Reads a target.
    async fn find(&self, resource: &Resource, key: &Key, is_bounds: bool) -> Result<Target, Error> {
        let rest = self.context.writer.objects.rest();
        let path = resource.object(Some(&key.namespace), &key.name);
        if is_bounds {
            let live = rest.get(&path).await?;
            let of = (object::uid(&live).to_owned(), object::generation(&live));
            return Ok(Target { path, of, fields: &["minReplicas", "maxReplicas"], scale: live });
        }
        let scaled = resource.subresource(Some(&key.namespace), &key.name, "scale");
        let mut scale = rest.get(&scaled).await?;
        // A scale does not say its generation. What is written is meant for the object that does.
        let live = rest.get(&path).await?;
        object::set_meta(&mut scale, "resourceVersion", object::resource_version(&live));
        let of = (object::uid(&live).to_owned(), object::generation(&live));
        Ok(Target { path: scaled, of, fields: &["replicas"], scale })
    }
}

/// A target as it stands.
struct Target {
    path: String,
    /// Its uid and generation.
    of: (String, i64),
    /// What is scaled by.
    fields: &'static [&'static str],
    /// Its scale, or what has bounds.
    scale: Value,
}

impl Target {
    /// What it is, and is to become.
    fn begin(&self, sized: impl Fn(&Size) -> Size) -> Begun {
        // A scale leaves out a zero.
        let is =
            |field: &&str| ((*field).to_owned(), self.scale["spec"][*field].as_i64().unwrap_or_default());
        let from: Size = self.fields.iter().map(is).collect();
        let (uid, generation) = self.of.clone();
        Begun { uid, generation, to: sized(&from), from }
    }

    fn set(&mut self, begun: &Begun) {
        let changed = begun.to.iter().filter(|(field, to)| begun.from.get(*field) != Some(*to));
        let changed = changed.map(|(field, to)| (field.clone(), json!(to)));
        object::ensure_map(&mut self.scale, "spec").extend(changed);
    }
}
