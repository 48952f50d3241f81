//! Whether there was a reason for what has happened.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use karmada_api::policy::PurgeMode;

use super::{AWAKE, ECHO, GRACE, Intent, Seen, State};
use crate::sim::plan::{Scaler, Spread};

impl State {
    pub(super) fn tell(&mut self, now: Duration, line: String) {
        self.story.push((now, line));
    }

    pub(super) fn accuse(&mut self, now: Duration, what: String) {
        self.story.push((now, format!("WRONG: {what}")));
        self.wrong.push(what);
    }

    pub(super) fn startup(&self, name: &str) -> Duration {
        self.intent.wants.get(name).map_or(Duration::from_secs(1), |want| want.startup)
    }

    pub(super) fn fence(&self, name: &str) -> Option<u64> {
        self.intent.wants.get(name).and_then(|want| want.fence)
    }

    /// Whether a workload that may run on one member only does. A member without an agent stops nothing, and nobody knows
    /// of one that has left.
    pub(super) fn fenced(&self, now: Duration, name: &str) -> Result<(), String> {
        if self.fence(name).is_none() {
            return Ok(());
        }
        let wanted = self.objects.iter().filter(|(at, seen)| at.1 == name && seen.replicas > 0);
        let ending = self.pods.iter().filter(|(at, pods)| at.1 == name && !pods.is_empty());
        let members: BTreeSet<usize> =
            wanted.map(|((member, _), _)| *member).chain(ending.map(|((member, _), _)| *member)).collect();
        let excused = |member: &usize| {
            let slept = self.asleep.get(member);
            let slept = slept.is_some_and(|until| until.is_none_or(|until| now <= until + AWAKE));
            let drifted = self.drifted.get(&(*member, name.to_owned()));
            let drifted = drifted.is_some_and(|at| now <= *at + AWAKE);
            slept || drifted || self.intent.is_away(*member)
        };
        if members.len() < 2 || members.iter().any(excused) {
            return Ok(());
        }
        let members: Vec<String> = members.iter().map(|member| format!("member{}", member + 1)).collect();
        Err(format!("{name} may run once only and runs on {}", members.join(" and ")))
    }

    /// Whether somebody has asked for the deletion of an object, or it is an eviction that keeps service. Says so if not.
    pub(super) fn goes_rightly(&mut self, now: Duration, name: &str, member: usize, gone: &Seen) -> bool {
        let others = self.taken.get(&member).filter(|taken| taken.is);
        if others.is_some_and(|taken| !taken.going.contains(name)) {
            if self.fence(name).is_some() {
                return true;
            }
            self.accuse(now, format!("{name} was deleted on member{}, whose name another has", member + 1));
            return false;
        }
        if self.leaves(name, member) {
            return true;
        }
        let Err(why) = self.evicts(now, name, member, gone) else { return true };
        self.accuse(now, format!("{name} was deleted on member{} and {why}", member + 1));
        false
    }

    pub(super) fn leaves(&self, name: &str, member: usize) -> bool {
        let by_scaling = self.intent.wants.get(name).is_some_and(|want| want.spread.divides());
        self.may_leave.contains(&(name.to_owned(), member)) || by_scaling && self.shrinks(name)
    }

    pub(super) fn scaler(&self, name: &str) -> Option<Scaler> {
        self.intent.wants.get(name).and_then(|want| want.scaler)
    }

    /// Whether somebody else than a user may have taken replicas away.
    pub(super) fn shrinks(&self, name: &str) -> bool {
        self.scaler(name).is_some_and(|scaler| self.scaled.shrinks(scaler))
    }

    /// Evictions that the hub has ended well may be carried out from now on, whatever happens until the member hears of it.
    pub(super) fn concludes(
        &mut self,
        now: Duration,
        name: &str,
        clusters: &BTreeMap<usize, i64>,
        going: &BTreeSet<usize>,
    ) {
        let over: Vec<usize> = self
            .evicted
            .keys()
            .filter(|(other, member)| {
                other == name && !going.contains(member) && !clusters.contains_key(member)
            })
            .map(|(_, member)| *member)
            .collect();
        for member in over {
            let key = (member, name.to_owned());
            let Some(seen) = self.objects.get(&key) else { continue };
            if self.evicts(now, name, member, seen).is_ok() {
                self.may_leave.insert((name.to_owned(), member));
            }
        }
    }

    /// Whether an eviction that the hub has begun may end so: service is kept.
    pub(super) fn evicts(&self, now: Duration, name: &str, member: usize, gone: &Seen) -> Result<(), String> {
        let Some(evicted) = self.evicted.get(&(name.to_owned(), member)) else {
            return Err("nobody asked for that".to_owned());
        };
        // What may run once only stops before it runs elsewhere.
        if evicted.confirmed || self.fence(name).is_some() {
            return Ok(());
        }
        match evicted.cause.purge {
            PurgeMode::Never => return Err("was to stay until a user says otherwise".to_owned()),
            // What a lost cluster has is not removed first: nobody could. With the time it is what the user asked for.
            PurgeMode::Directly if !evicted.cause.lost || now >= evicted.since + GRACE => return Ok(()),
            PurgeMode::Directly | PurgeMode::Gracefully => {}
        }
        let Some(want) = self.intent.wants.get(name) else { return Ok(()) };
        let is_other = |at: &(usize, String)| at.1 == name && at.0 != member;
        let others: i64 =
            self.objects.iter().filter(|(at, _)| is_other(at)).map(|(_, seen)| seen.ready).sum();
        let copies = match want.spread {
            Spread::Duplicated => self.intent.clusters(name).len() as i64,
            _ => 1,
        };
        let enough = (copies * evicted.least).min(others + gone.ready);
        let by_user = self.driven.contains(&member);
        let grace = now >= evicted.since + GRACE;
        // Duplicated and driven from one of its places by a user, there may be no other place.
        let nowhere = by_user && (want.spread == Spread::Duplicated || self.intent.clusters(name).len() < 2);
        // That it does its job again may not be known yet.
        let failed = self.ailing.get(&(member, name.to_owned()));
        let failed = failed.is_some_and(|until| until.is_none_or(|until| now <= until + ECHO));
        // With the time, copies that are well are enough, by the count that they know of.
        let is_well = |member: &usize| {
            let seen = self.objects.get(&(*member, name.to_owned()));
            seen.is_some_and(|seen| seen.ready > 0 && seen.ready >= seen.replicas)
        };
        let there = self.bindings.get(name).filter(|there| !there.is_empty());
        let all_well = there.is_some_and(|there| there.keys().all(is_well));
        if others >= enough || (grace && (by_user || failed || all_well)) || nowhere {
            return Ok(());
        }
        Err(format!("of {enough} replicas that were ready {others} are left"))
    }

    /// Notes the reasons that a change of mind is for leaving and shrinking.
    pub(super) fn reason(&mut self, before: &Intent) {
        let away = |intent: &Intent| (intent.left.clone(), intent.taken.clone());
        // A cluster that is taken out takes its replicas with it.
        self.scaled.incomplete |= away(before) != away(&self.intent);
        let names: BTreeSet<String> = before.wants.keys().chain(self.intent.wants.keys()).cloned().collect();
        for name in names {
            let (old, new) = (before.wants.get(&name), self.intent.wants.get(&name));
            let members: BTreeSet<usize> =
                old.into_iter().chain(new).flat_map(|want| want.clusters.iter().copied()).collect();
            let divides = new.is_some_and(|want| want.spread.divides());
            let changed = old != new || away(before) != away(&self.intent);
            for member in members {
                // Division may leave a cluster without replicas when anything about it changes.
                if self.intent.unwanted(&name, member) || (changed && divides) {
                    self.may_leave.insert((name.clone(), member));
                }
            }
            if changed {
                let replicas = new.map_or(0, |want| want.replicas);
                let of_it = self.evicted.iter_mut().filter(|((other, _), _)| *other == name);
                of_it.for_each(|(_, evicted)| evicted.least = evicted.least.min(replicas));
                self.may_shrink.insert(name);
            }
        }
    }
}
