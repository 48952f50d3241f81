//! The rollout controller: in which waves a change of a template or its overrides reaches the clusters
//! ([`karmada_core::rollout`]).
//!
//! ```text
//!   binding, template, overrides ─▶ a revision ── another than the binding's state names: the state begins anew
//!   Works, as clusters report them ─┐
//!   commands, the clock ────────────┴─▶ step ─▶ the state, in an annotation of the binding ─▶ binding: Works
//!                                         └──▶ condition, events
//! ```
//!
//! The state stands on the binding, in one small annotation, since the binding is what the binding controller works from: it
//! makes Works of a revision only if the state that it reads names it, so the two never disagree, also not after a restart. A kind
//! of its own would be a second object to keep in step, and a definition that a stock control plane has to be given first. What
//! templates were before lies in Secrets beside the binding ([`crate::write::revisions`]), since clusters that wait, or that are
//! new, are rendered from it: with the replicas, fences and holds of now. The reports of many clusters are looked at together,
//! as the status controller does.

pub(crate) mod current;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use karmada_api::{
    conditions::{self, Condition},
    consts::{event, extension},
    work::ResourceBindingSpec,
};
use karmada_client::Error;
use karmada_core::{
    gather::Rounds,
    names,
    rollout::{
        self, Asked, Clocks, Command, Fact, Gate, Member, Order, Phase, State, Step, Sure, Told, Who, begin,
        command, step, words,
    },
    select::{Claim, Subject},
};
use karmada_meta::{object, time::Time};
use karmada_objects::{
    Part, bindings,
    key::{self, Key},
    scope::BindingKey,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::current::Changes;
use super::{Context, Next, binding::overriding, status::silent_since, work};
use crate::known::{
    gathered::Gathered,
    heads::{ClusterHead, WorkHead},
    index::Change,
};

/// How many bindings are worked on at a time.
const WORKERS: usize = 4;
/// When it is looked again whether a template can be understood.
const PATIENCE: Duration = Duration::from_secs(30);
/// It is looked again after this time at the latest while something is awaited.
const LONGEST: Duration = Duration::from_secs(3600);

/// When it is tried again to keep a revision that could not be kept.
const UNKEPT: Duration = Duration::from_secs(300);
/// Sums are written after this time at the earliest, unless more than them has changed.
const SUMS: Duration = Duration::from_secs(30);

/// Takes changes from wave to wave.
pub(crate) struct Rollouts {
    context: Arc<Context>,
    rounds: Arc<Mutex<Rounds<BindingKey>>>,
    /// Clusters that have fallen silent, or have not any more.
    clusters: Gathered,
    /// Since when clusters are not well, and of which revision that is.
    clocks: Mutex<BTreeMap<BindingKey, (String, Clocks)>>,
    /// The conditions of those that are under way, as they were written.
    shown: Mutex<BTreeMap<BindingKey, Shown>>,
}

/// When a condition was written, for which revision, with which reason and at which wave.
type Shown = (Time, String, &'static str, usize);

/// What there is of a binding.
struct Look<'a> {
    key: &'a BindingKey,
    binding: &'a Value,
    spec: ResourceBindingSpec,
    work_name: String,
}

impl Rollouts {
    /// A controller that hears the context's bindings, Works and clusters from now on.
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        let rounds: Arc<Mutex<Rounds<BindingKey>>> = Arc::default();
        for (scope, index) in context.known.bindings.both() {
            let queue = context.to_roll.clone();
            index.listen(move |change| {
                let news = change.differs(|head| &head.metadata)
                    || change.differs(|head| &head.wanted)
                    || change.differs(|head| &head.deleting);
                let rolls = [change.old, change.new].into_iter().flatten().any(|head| head.rolls);
                if news && rolls {
                    queue.add(BindingKey { scope, key: change.key.clone() });
                }
            });
        }
        let (shared, of_works) = (Arc::downgrade(context), rounds.clone());
        context.known.works.listen(move |change| {
            if is_news(change)
                && let Some(binding) = &change.last().binding
                && let Some(context) = shared.upgrade()
                && is_rolling(&context, binding)
            {
                context.to_roll.add_after(binding.clone(), until_next(&context, &of_works, binding));
            }
        });
        let clusters = Gathered::keys(&context.known.clusters, |change| {
            change.old.and_then(|head| silent_since(head)) != change.new.and_then(|head| silent_since(head))
        });
        context.resync.bindings(&context.known, &context.to_roll, |head| head.rolls);
        context.figures.queue("rollout", &context.to_roll);
        Self { context: context.clone(), rounds, clusters, clocks: Mutex::default(), shown: Mutex::default() }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let context = &self.context;
        // Half of the overrides would be another revision, and half of the Works another answer.
        context.known.overrides.synced().await;
        context.known.policies.synced().await;
        context.known.bindings.synced().await;
        context.known.clusters.synced().await;
        context.known.works.synced().await;
        context.rules.customizations.synced().await;
        context.rules.webhooks.synced().await;
        let of_clusters = self.clusters.each(|cluster, ()| {
            for work in context.known.works.heads(Some(&names::execution_namespace(&cluster.name))) {
                if let Some(binding) = work.binding.as_ref().filter(|binding| is_rolling(context, binding)) {
                    context.to_roll.add_after(binding.clone(), until_next(context, &self.rounds, binding));
                }
            }
        });
        tokio::select! {
            biased;
            () = work("rollout", &context.to_roll, WORKERS, &stop, |key: BindingKey| self.reconcile(key)) => {}
            () = of_clusters => {}
        }
    }

    async fn reconcile(&self, key: BindingKey) -> Result<Next, Error> {
        let outcome = self.look(&key).await;
        self.context.settled(&key, outcome)
    }

    async fn look(&self, key: &BindingKey) -> Result<Next, Error> {
        let context = &self.context;
        // Before anything is read: what is reported from now on is for the next round.
        let works = context.known.works.group_len(&key.to_string());
        self.rounds.lock().begin(key.clone(), works, context.env.now());
        let live = context.binding(key).await?.filter(|live| object::deletion_timestamp(live).is_none());
        let Some(binding) = live else {
            // What is kept of it goes with it.
            self.forget(key);
            return Ok(Next::Done);
        };
        if rollout::has_ended(&binding) {
            // Before something else is kept.
            self.clear(key, object::uid(&binding), None).await?;
            // What it says now is heard.
            return Ok(Next::Done);
        }
        let before = State::read(&binding);
        let asked = match Asked::read(|key| object::annotation(&binding, key)) {
            Ok(Some(asked)) => asked,
            Ok(None) => match before {
                // There were none.
                Ok(None) => {
                    self.forget(key);
                    return Ok(Next::Done);
                }
                _ => return self.end(key).await,
            },
            // The detector says so; what is there stays as it is.
            Err(_) => return Ok(Next::Done),
        };
        let before = match before {
            // What its policy does not ask for any more has ended.
            Ok(_) if is_outlived(&binding) && !rollout::outlives(&binding) => {
                return self.end(key).await;
            }
            Ok(before) => before,
            Err(why) => return self.cannot_be_read(key, &binding, &why).await,
        };
        let Some(spec) = key::read::<ResourceBindingSpec>(&binding, "spec") else { return Ok(Next::Done) };
        let Some(template) = context.template(key, &spec).await? else { return Ok(Next::Done) };
        let over = overriding(&context.known, &Subject::of(&template));
        let Ok(revision) = current::revision(&context.rules.interpreter, &template, &over).await else {
            // The detector says so.
            return Ok(Next::After(PATIENCE));
        };
        let (name, whole, revision) = (revision.digest(), revision.whole_digest(), Arc::new(revision));
        let sure = Sure { name: &name, whole: Some(&whole) };
        let uid = object::uid(&binding);
        let is_new = before.as_ref().is_none_or(|before| before.revision != name);
        let (objects, revisions) = (&context.writer.objects, &context.writer.revisions);
        // First of all: whoever waits, or comes back, will be given what was before. On a hub that was moved here it is not
        // there yet.
        if (is_new || revisions.find(objects, (key, uid), sure, &template).await?.is_none())
            && let Err(why) = revisions.keep(objects, key, &binding, sure, &revision).await?
            // What is everywhere already, or is the first of all, goes out all the same.
            && before.as_ref().is_some_and(|before| is_new || before.base != name)
        {
            return self.cannot_be_kept(key, &why).await;
        }
        let seed = match &before {
            // The order of its clusters is that of the policy that asked for waves.
            Some(before) if is_outlived(&binding) => before.seed.clone(),
            _ => Claim::of(&binding).map_or_else(String::new, |claim| match claim {
                Claim::Namespaced(id) | Claim::Cluster(id) => id,
            }),
        };
        let work_name =
            names::work_name(object::kind(&template), object::namespace(&template), object::name(&template));
        let look = Look { key, binding: &binding, spec, work_name };
        let before = match before {
            Some(before) => before,
            // What is on the clusters is not what is there now, and nobody can say what it is.
            None if self.is_behind(&look, object::generation(&template)) => State::unknown(&seed),
            None => {
                let mut state = State::first(&name, &seed);
                state.note(&name, whole);
                self.write(&look, None, &state, false).await?;
                return Ok(Next::Done);
            }
        };
        let mut state = before.clone();
        if is_new {
            // Those that some cluster has may be needed.
            let used = self.used(key);
            state.kept.retain(|kept| *kept == before.base || *kept == before.revision || used.contains(kept));
        }
        let reading = State { revision: name.clone(), ..state.clone() };
        let changes = Changes::read(&context.writer, key, uid, &reading, revision).await?;
        if is_new {
            let members = self.members(&look, &reading, &changes);
            let concerned = members.iter().filter(|member| member.fact != Fact::Unconcerned);
            let heads: Vec<_> = concerned
                .filter_map(Member::name)
                .map(|name| (name, context.known.clusters.get(&Key::cluster_scoped(name))))
                .collect();
            let labels = |head: &'_ Option<Arc<ClusterHead>>| head.as_ref().map(|head| head.cluster.clone());
            let heads: Vec<_> = heads.iter().map(|(name, head)| (*name, labels(head))).collect();
            let clusters: Vec<_> = heads
                .iter()
                .map(|(name, head)| {
                    (*name, head.as_ref().and_then(|cluster| cluster.metadata.labels.as_ref()))
                })
                .collect();
            let nowhere = members.is_empty() && context.known.works.group_len(&key.to_string()) == 0;
            state = match nowhere && !state.stopped.contains(&name) {
                // Nobody has anything: it is the first of all again.
                true => State { stopped: state.stopped, ..State::first(&name, &seed) },
                false => begin(&state, &name, &asked, &seed, &clusters),
            };
        }
        state.note(&name, whole);
        self.go_on(&look, before, state, &asked, &changes).await
    }

    /// Looks at the clusters, does what people want, and writes what came of it.
    async fn go_on(
        &self,
        look: &Look<'_>,
        before: State,
        mut state: State,
        asked: &Asked,
        changes: &Changes,
    ) -> Result<Next, Error> {
        let now = Time::now(&self.context.env);
        let known = self.clocks.lock().remove(look.key).filter(|(of, _)| *of == state.revision);
        let mut clocks = known.map(|(_, clocks)| clocks).unwrap_or_default();
        let ordered = object::annotation(look.binding, extension::ROLLOUT_COMMAND);
        let mut told: Vec<(&'static str, String)> = Vec::new();
        let returns = changes.has(&state.base, &state);
        let gate = Gate { returns: asked.gate.returns && returns, ..asked.gate.clone() };
        if let Some(text) = ordered {
            // What has failed by now is what a person lets go on.
            let mut seen = state.clone();
            let members = self.members(look, &state, changes);
            let seen = step(&mut seen, &gate, &members, now, &mut clocks);
            let stopped = matches!(state.phase, Phase::Aborted | Phase::Returned);
            told.push(match carry_out(&mut state, text, &seen, returns) {
                Ok((kind, text)) => {
                    if stopped {
                        // What begins anew gives everybody their time anew.
                        clocks = Clocks::default();
                    }
                    (reason_of(kind), text)
                }
                Err(why) => (event::ROLLOUT_COMMAND_REFUSED, format!("Rollout command {text:?}: {why}.")),
            });
        }
        let members = self.members(look, &state, changes);
        let stepped = step(&mut state, &gate, &members, now, &mut clocks);
        drop(members);
        let again = stepped.again.filter(|_| state.is_under_way());
        self.clocks.lock().insert(look.key.clone(), (state.revision.clone(), clocks));
        if state != before || ordered.is_some() {
            self.write(look, Some(&before), &state, ordered.is_some()).await?;
        }
        told.extend(stepped.told.iter().map(|(kind, text)| (reason_of(*kind), text.clone())));
        for (reason, text) in told {
            self.tell(look, reason, &text);
        }
        let shown = self.show(look, &state, &stepped, returns, now).await?;
        let again = again.into_iter().chain(shown).min();
        for gone in before.kept.iter().filter(|kept| !state.kept.contains(kept)) {
            let uid = object::uid(look.binding);
            self.context.writer.revisions.forget(&self.context.writer.objects, look.key, uid, gone).await?;
        }
        // A fraction of a second more, since times are kept in whole ones.
        Ok(again.map_or(Next::Done, |again| Next::After(again.min(LONGEST) + Duration::from_secs(1))))
    }

    /// The clusters of a binding.
    fn members<'a>(&self, look: &'a Look<'_>, state: &State, changes: &Changes) -> Vec<Member<'a>> {
        let known = &self.context.known;
        let order = Order::of(state);
        let targets =
            look.spec.clusters.iter().chain(look.spec.required_by.iter().flat_map(|by| &by.clusters));
        let wanted: BTreeSet<&str> = targets.map(|target| target.name.as_str()).collect();
        let evictions = look.spec.graceful_eviction_tasks.iter();
        let leaving: BTreeSet<&str> = evictions.map(|task| task.from_cluster.as_str()).collect();
        let member = |name: &'a str| {
            let cluster = known.clusters.get(&Key::cluster_scoped(name)).filter(|head| !head.deleting)?;
            let work = Key::new(names::execution_namespace(name), look.work_name.as_str());
            let work = known.works.get(&work).filter(|head| !head.deleting);
            let has = work.as_ref().and_then(|head| head.revision.as_deref());
            let mute = cluster.annotation(extension::VERSION).is_none();
            let fact = match &work {
                Some(head) if has == Some(state.revision.as_str()) => {
                    Fact::New(if mute { head.seen } else { head.seen.unless_named(head.named) })
                }
                // Nobody can say what it has.
                Some(_) if has.is_none() => Fact::Old,
                _ if changes.concern(&cluster.cluster, state.carried(has), &state.revision) => Fact::Old,
                _ => Fact::Unconcerned,
            };
            let wave = order.wave(name, cluster.cluster.metadata.labels.as_ref());
            let leaving = leaving.contains(name) && !wanted.contains(name);
            let (silent, copies) = (silent_since(&cluster), work.as_ref().and_then(|head| head.copies));
            Some(Member { who: Who::One(name), wave, fact, silent, leaving, mute, copies })
        };
        wanted.union(&leaving).filter_map(|name| member(name)).collect()
    }

    /// Whether some cluster has a template of an earlier generation.
    fn is_behind(&self, look: &Look<'_>, generation: i64) -> bool {
        let works = self.context.known.works.group(&look.key.to_string());
        works.iter().any(|(_, head)| !head.deleting && (1..generation).contains(&head.of_generation))
    }

    /// The revisions that Works carry.
    fn used(&self, key: &BindingKey) -> Vec<String> {
        let works = self.context.known.works.group(&key.to_string());
        let mut used: Vec<_> =
            works.iter().filter_map(|(_, head)| Some(head.revision.as_deref()?.to_owned())).collect();
        used.sort_unstable();
        used.dedup();
        used
    }

    /// Keeps a state, if the one that was read is still there.
    async fn write(
        &self,
        look: &Look<'_>,
        before: Option<&State>,
        state: &State,
        carried_out: bool,
    ) -> Result<(), Error> {
        let text = serde_json::to_string(state).unwrap_or_default();
        let mut binding = look.binding.clone();
        object::set_annotation(&mut binding, rollout::STATE, text);
        if carried_out {
            object::remove_annotation(&mut binding, extension::ROLLOUT_COMMAND);
        }
        // Not if somebody was faster: then all is looked at again.
        self.context.writer.objects.replace(bindings::resource(look.key.scope), &binding).await?;
        if before.is_none_or(|before| before.revision != state.revision || before.phase != state.phase) {
            tracing::info!(binding = %look.key, revision = %state.revision, phase = ?state.phase, "rollout");
        }
        Ok(())
    }

    /// Brings the condition in step. There is none before the first change. Answers after which time that is to be done, if
    /// that is not now.
    async fn show(
        &self,
        look: &Look<'_>,
        state: &State,
        step: &Step,
        returns: bool,
        now: Time,
    ) -> Result<Option<Duration>, Error> {
        let key = look.key;
        let phase = words::reason(state);
        let ended = state.phase == Phase::Complete;
        self.context.figures.rollouts().is(&key.to_string(), (!ended).then_some(phase));
        if state.waves.is_empty() {
            self.set_condition(key, None, now).await?;
            return Ok(None);
        }
        let was = self.shown.lock().remove(key);
        if state.is_under_way() {
            let of = (state.revision.clone(), phase, state.open);
            if let Some((at, revision, reason, open)) = was
                && (&revision, reason, open) == (&of.0, of.1, of.2)
                && let left = SUMS.saturating_sub(at.elapsed(now.timestamp().into()))
                && !left.is_zero()
            {
                self.shown.lock().insert(key.clone(), (at, revision, reason, open));
                return Ok(Some(left));
            }
            self.shown.lock().insert(key.clone(), (now, of.0, of.1, of.2));
        }
        let message =
            if ended { words::message(state, &Step::default()) } else { words::message(state, step) };
        let message = if ended || returns { message } else { format!("{message}; {}", words::no_return()) };
        let message = if is_outlived(look.binding) { words::outlived(&message) } else { message };
        self.set_condition(key, Some(Condition::new(extension::ROLLED_OUT, ended, phase, message, now)), now)
            .await?;
        Ok(None)
    }

    async fn set_condition(
        &self,
        key: &BindingKey,
        wanted: Option<Condition>,
        now: Time,
    ) -> Result<(), Error> {
        let apply = |live: &mut Value| {
            let Some(mut list) = key::conditions(live) else { return false };
            let changed = match &wanted {
                Some(condition) => conditions::set(&mut list, condition.clone(), now),
                None => conditions::remove(&mut list, extension::ROLLED_OUT),
            };
            if changed {
                object::ensure_map(live, "status").insert("conditions".into(), json!(list));
            }
            changed
        };
        let resource = bindings::resource(key.scope);
        self.context.writer.objects.modify(resource, &key.key, Part::Status, apply).await.map(drop)
    }

    /// Its changes do not go out in waves any more, unless somebody asks for that again meanwhile.
    async fn end(&self, key: &BindingKey) -> Result<Next, Error> {
        let (objects, resource) = (&self.context.writer.objects, bindings::resource(key.scope));
        let mut kept = None;
        let end = |live: &mut Value| {
            kept = State::read(live).ok().flatten().map(|state| state.kept);
            rollout::end(live)
        };
        let ended = objects.modify(resource, &key.key, Part::Main, end).await?;
        if let Some(binding) = ended.filter(rollout::has_ended) {
            self.clear(key, object::uid(&binding), kept).await?;
        }
        Ok(Next::Done)
    }

    /// Lets go of the revisions that were kept of a rollout that has ended, if it is known which; of whatever there is if not.
    async fn clear(&self, key: &BindingKey, uid: &str, kept: Option<Vec<String>>) -> Result<(), Error> {
        self.forget(key);
        let (objects, revisions) = (&self.context.writer.objects, &self.context.writer.revisions);
        match kept {
            Some(kept) => {
                for name in &kept {
                    revisions.forget(objects, key, uid, name).await?;
                }
            }
            None => revisions.forget_all(objects, key, uid).await?,
        }
        self.set_condition(key, None, Time::now(&self.context.env)).await?;
        // Last, so that it is done again if it fails: without its annotations nobody comes back here.
        let take = |live: &mut Value| {
            rollout::has_ended(live) && object::remove_annotation(live, rollout::STATE).is_some()
        };
        objects.modify(bindings::resource(key.scope), &key.key, Part::Main, take).await.map(drop)
    }

    /// How far it is cannot be read: nothing is changed.
    async fn cannot_be_read(&self, key: &BindingKey, binding: &Value, why: &str) -> Result<Next, Error> {
        let now = Time::now(&self.context.env);
        let message = words::unreadable(why, is_outlived(binding));
        let condition =
            Condition::new(extension::ROLLED_OUT, false, extension::STATE_UNREADABLE, message, now);
        self.context.figures.rollouts().is(&key.to_string(), Some(extension::STATE_UNREADABLE));
        self.set_condition(key, Some(condition), now).await?;
        Ok(Next::Done)
    }

    /// A revision is too large, or its place is taken: it goes nowhere, since nobody could take it back.
    async fn cannot_be_kept(&self, key: &BindingKey, why: &str) -> Result<Next, Error> {
        let now = Time::now(&self.context.env);
        let message = words::unkept(why);
        let condition =
            Condition::new(extension::ROLLED_OUT, false, extension::REVISION_NOT_KEPT, message, now);
        self.context.figures.rollouts().is(&key.to_string(), Some(extension::REVISION_NOT_KEPT));
        self.set_condition(key, Some(condition), now).await?;
        Ok(Next::After(UNKEPT))
    }

    fn forget(&self, key: &BindingKey) {
        self.clocks.lock().remove(key);
        self.shown.lock().remove(key);
        self.context.figures.rollouts().is(&key.to_string(), None);
    }

    fn tell(&self, look: &Look<'_>, reason: &'static str, text: &str) {
        let (component, writer) = (bindings::binder(look.key.scope), &self.context.writer);
        for about in [look.binding, &bindings::template_reference(&look.spec)] {
            match reason {
                event::ROLLOUT_STOPPED | event::ROLLOUT_COMMAND_REFUSED => {
                    writer.warning(component, about, reason, text);
                }
                _ => writer.normal(component, about, reason, text),
            }
        }
    }
}

/// Whether the policy of a binding asks for no waves any more.
fn is_outlived(binding: &Value) -> bool {
    object::annotation(binding, rollout::OUTLIVES).is_some()
}

/// Does what somebody wants.
pub(super) fn carry_out(
    state: &mut State,
    text: &str,
    seen: &Step,
    returns: bool,
) -> Result<(Told, String), String> {
    let (what, meant) = Command::read(text)?;
    if meant.is_some_and(|meant| meant != state.revision) {
        return Err(format!("it is about another revision than {}", state.revision));
    }
    command(state, what, seen, returns)
}

/// The reason of an event that tells it.
pub(super) fn reason_of(kind: Told) -> &'static str {
    match kind {
        Told::Advanced => event::ROLLOUT_ADVANCED,
        Told::Stopped => event::ROLLOUT_STOPPED,
        Told::Ended => event::ROLLOUT_ENDED,
    }
}

/// Whether a Work says something new of a change.
fn is_news(change: &Change<'_, WorkHead>) -> bool {
    change.differs(|head| &head.seen)
        || change.differs(|head| &head.named)
        || change.differs(|head| &head.copies)
        || change.differs(|head| &head.revision)
        || change.differs(|head| &head.deleting)
}

fn is_rolling(context: &Context, binding: &BindingKey) -> bool {
    context.known.bindings.of(binding.scope).get(&binding.key).is_some_and(|head| head.rolling)
}

/// How long what is reported of a binding waits for other reports.
fn until_next(context: &Context, rounds: &Mutex<Rounds<BindingKey>>, key: &BindingKey) -> Duration {
    rounds.lock().wait(key, context.known.works.group_len(&key.to_string()), context.env.now())
}
