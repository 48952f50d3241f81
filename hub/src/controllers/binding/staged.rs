//! Which revision of a template each cluster may have ([`crate::controllers::rollout`]).

use std::{collections::BTreeMap, sync::Arc};

use karmada_client::Error;
use karmada_core::rollout::{Asked, Gets, Order, State};
use karmada_meta::object;
use karmada_objects::scope::BindingKey;
use serde_json::Value;

pub(super) use crate::controllers::rollout::current::Overriding;
use crate::{
    controllers::{
        Context,
        rollout::current::{self, Changes},
    },
    known::heads::{ClusterHead, WorkHead},
};

/// How a template goes to the clusters.
#[derive(Debug)]
pub(super) enum Staged {
    /// As it is, to all at once.
    AtOnce,
    /// Not to those that have something yet: the rollout controller has to hear of it first. What has nothing gets what went
    /// everywhere last; what is there now, under this name, if nothing ever did or nobody has that any more.
    NotYet(Box<First>),
    /// Nowhere: nobody can read how far it is, which the rollout controller says.
    Unreadable,
    /// In waves.
    Waves(Box<Waves>),
}

/// What is given to clusters that have nothing.
#[derive(Debug, Default)]
pub(super) struct First {
    /// The name of what is there now, if it is the first of all.
    pub(super) now: Option<String>,
    /// What went everywhere last.
    pub(super) base: BTreeMap<String, (Value, Overriding)>,
}

/// Who may have what.
#[derive(Debug)]
pub(super) struct Waves {
    state: State,
    changes: Changes,
    /// What clusters get that wait, as it is rendered now: the template, and the overrides of then.
    pub(super) older: BTreeMap<String, (Value, Overriding)>,
}

/// What a cluster gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The template as it is now, under this name.
    Now(Option<String>),
    /// An older revision.
    Older(String),
    /// What it has, which nobody can name unless it is the template as it is now, under this name.
    Same(String),
    /// Nothing yet: what is rolled out is stopped, and the hub cannot make what was before it any more.
    Waits,
    /// What it has: the hub cannot make that any more.
    Left,
}

impl Staged {
    /// Reads what the rollout controller has decided about a binding.
    pub(super) async fn of(
        context: &Arc<Context>,
        key: &BindingKey,
        binding: &Value,
        template: &Value,
        over: &Overriding,
    ) -> Result<Self, Error> {
        if let Ok(None) = Asked::read(|key| object::annotation(binding, key)) {
            return Ok(Self::AtOnce);
        }
        let not_yet = |first: First| {
            context.to_roll.add(key.clone());
            Ok(Self::NotYet(Box::new(first)))
        };
        let interpreter = &context.rules.interpreter;
        let revision = current::revision(interpreter, template, over).await;
        let Ok(state) = State::read(binding) else {
            context.to_roll.add(key.clone());
            return Ok(Self::Unreadable);
        };
        let Some(state) = state else {
            let now = revision.ok().map(|revision| revision.digest());
            return not_yet(First { now, ..First::default() });
        };
        let uid = object::uid(binding);
        // What cannot be understood goes nowhere; the detector says so.
        let Some(revision) = revision.ok().filter(|revision| revision.digest() == state.revision) else {
            let mut first = First::default();
            let revisions = &context.writer.revisions;
            if let Some(base) =
                revisions.find(&context.writer.objects, (key, uid), state.sure(&state.base), template).await?
            {
                let over = (base.cluster_overrides.clone(), base.overrides.clone());
                if let Ok(template) = current::template(interpreter, &base, template).await {
                    first.base.insert(state.base.clone(), (template, over));
                }
            }
            return not_yet(first);
        };
        let changes = Changes::read(&context.writer, key, uid, &state, Arc::new(revision)).await?;
        let mut older = BTreeMap::new();
        for (name, revision) in changes.older() {
            let over = (revision.cluster_overrides.clone(), revision.overrides.clone());
            if let Ok(template) = current::template(interpreter, revision, template).await {
                older.insert(name.clone(), (template, over));
            }
        }
        Ok(Self::Waves(Box::new(Waves { state, changes, older })))
    }
}

impl Waves {
    /// In which order waves take the clusters.
    pub(super) fn order(&self) -> Order<'_> {
        Order::of(&self.state)
    }

    /// What a cluster gets that has this Work, if it has one.
    pub(super) fn choice(&self, order: &Order<'_>, cluster: &ClusterHead, work: Option<&WorkHead>) -> Choice {
        let state = &self.state;
        let name = cluster.cluster.metadata.name.as_deref().unwrap_or_default();
        let wave = order.wave(name, cluster.cluster.metadata.labels.as_ref());
        let turn = (wave, state.reaches(wave, name));
        let says = work.and_then(|work| work.revision.as_deref());
        let now = || Choice::Now(Some(state.revision.clone()));
        if self.is_whole() {
            return now();
        }
        if work.is_some() && says.is_none() {
            // A hub that knows no waves may have written it. What is older than that is not put in its place.
            return match state.gets(turn, Some("")) {
                Gets::Revision => now(),
                Gets::Kept(_) | Gets::Base => Choice::Same(state.revision.clone()),
            };
        }
        let has = if says == Some(state.revision.as_str()) { &state.revision } else { state.carried(says) };
        if has != state.revision && !self.changes.concern(&cluster.cluster, has, &state.revision) {
            // The same for it. It is not said to have it before all do, so that whoever says so has it.
            return says
                .filter(|says| *says == has)
                .map_or_else(now, |says| Choice::Now(Some(says.to_owned())));
        }
        let older = match state.gets(turn, work.map(|_| has)) {
            Gets::Revision => return now(),
            Gets::Kept(kept) => kept,
            Gets::Base => state.base.as_str(),
        };
        match self.older.contains_key(older) {
            true => Choice::Older(older.to_owned()),
            false if older == state.revision => now(),
            // Nothing goes out, and nobody has what was there before it.
            false if work.is_none() && state.is_stopped() => Choice::Waits,
            // A new copy is worth more than waiting for what nobody has any more.
            false if work.is_none() => now(),
            false => Choice::Left,
        }
    }

    /// Whether there is nothing that went everywhere before it.
    fn is_whole(&self) -> bool {
        self.state.base == self.state.revision
    }
}
