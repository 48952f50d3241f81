//! What the driver does, told before it is done.

use std::{collections::BTreeSet, time::Duration};

use super::{Intent, Ledger, Taken};

impl Ledger {
    /// A user changes what is wanted.
    pub fn wants(&self, change: impl FnOnce(&mut Intent)) {
        let mut state = self.state.lock();
        let before = state.intent.clone();
        change(&mut state.intent);
        let left = state.intent.left.clone();
        state.were_away.extend(left);
        state.reason(&before);
    }

    /// A copy of the hub is made. Members have not yet taken away what is `going`.
    pub fn backup(&self, going: BTreeSet<(String, usize)>) {
        let mut state = self.state.lock();
        state.backup = Some(state.intent.clone());
        state.going = going;
        state.made.clear();
        state.then = (state.may_leave.clone(), state.may_shrink.clone());
        state.copied.clear();
        state.grown.clear();
    }

    /// The hub knows what it knew then, and no more.
    pub fn restored(&self) {
        let mut state = self.state.lock();
        let Some(backup) = state.backup.clone() else { return };
        let before = std::mem::replace(&mut state.intent, backup);
        let names: BTreeSet<String> = before.wants.keys().chain(state.intent.wants.keys()).cloned().collect();
        for name in &names {
            if state.intent.wants.get(name) != before.wants.get(name) {
                state.forgotten.insert(name.clone());
                // It has other replicas now. Where nobody had wanted it then, it stays.
                state.may_shrink.insert(name.clone());
            }
        }
        // No agent deletes what no Work names any more.
        let copied = std::mem::take(&mut state.copied);
        state.forgotten.extend(copied);
        let grown = std::mem::take(&mut state.grown);
        state.may_shrink.extend(grown);
        let (leave, shrink) = state.then.clone();
        state.may_leave.extend(leave);
        state.may_shrink.extend(shrink);
        state.older = state.objects.iter().map(|(key, seen)| (key.clone(), seen.uid.clone())).collect();
        // What has gone and come again since is not what was to go.
        let again: Vec<_> = state.going.intersection(&state.made).cloned().collect();
        for key in again {
            state.may_leave.remove(&key);
        }
        state.evicted.clear();
        state.bindings.clear();
        state.found.clear();
        state.anew = true;
        state.scaled.restored();
    }

    /// Everything agrees: what was a reason once is none any more.
    pub fn settled(&self) {
        let mut state = self.state.lock();
        // What has no place may still be on its way out.
        let intent = state.intent.clone();
        let is_nowhere = |name: &str| intent.clusters(name).is_subset(&intent.tainted);
        state.may_leave.retain(|(name, _)| is_nowhere(name));
        state.may_shrink.clear();
        state.lost.clear();
        state.anew = false;
        state.scaled.incomplete = false;
        state.driven = state.intent.tainted.clone();
    }

    /// Somebody on the member deletes an object.
    pub fn loses(&self, member: usize, name: &str) {
        self.state.lock().lost.insert((member, name.to_owned()));
    }

    /// Somebody on a member changes an object, which will be changed back.
    pub fn drifts(&self, member: usize, name: &str) {
        let now = self.now();
        let mut state = self.state.lock();
        state.may_shrink.insert(name.to_owned());
        state.drifted.insert((member, name.to_owned()), now);
    }

    /// A user drives everything from a member, or not any more.
    pub fn taints(&self, member: usize, on: bool) {
        let mut state = self.state.lock();
        if on {
            state.driven.insert(member);
            state.intent.tainted.insert(member);
        } else {
            state.intent.tainted.remove(&member);
        }
    }

    /// A user deletes a member's Cluster, whose name another machine is to have.
    pub fn takes(&self, member: usize) {
        let mut state = self.state.lock();
        let of = |keys: &mut dyn Iterator<Item = &(String, usize)>| -> BTreeSet<String> {
            keys.filter(|(_, at)| *at == member).map(|(name, _)| name.clone()).collect()
        };
        let going = of(&mut state.may_leave.iter().chain(state.evicted.keys()));
        let wants = state.intent.wants.iter().filter(|(_, want)| want.clusters.contains(&member));
        let mut wanted: BTreeSet<String> = wants.map(|(name, _)| name.clone()).collect();
        wanted.extend(state.objects.keys().filter(|(at, _)| *at == member).map(|(_, name)| name.clone()));
        state.taken.insert(member, Taken { is: false, going, wanted });
        state.were_away.insert(member);
        let before = state.intent.clone();
        state.intent.taken.insert(member);
        state.reason(&before);
    }

    /// The other machine has the name now.
    pub(in crate::sim) fn is_a_stranger(&self, member: usize) {
        let now = self.now();
        let mut state = self.state.lock();
        let Some(taken) = state.taken.get_mut(&member).filter(|taken| !taken.is) else { return };
        taken.is = true;
        state.tell(now, format!("another machine has the name of member{}", member + 1));
    }

    /// It has not any more. What the member had of what is not placed there again, nobody takes away.
    pub fn gives_back(&self, member: usize) {
        let mut state = self.state.lock();
        state.taken.remove(&member);
        let there: Vec<String> =
            state.objects.keys().filter(|(at, _)| *at == member).map(|(_, name)| name.clone()).collect();
        state.forgotten.extend(there);
        let before = state.intent.clone();
        state.intent.taken.remove(&member);
        state.reason(&before);
    }

    /// Nothing new becomes ready on a member, or it does again.
    pub fn sickens(&self, member: usize, is: bool) {
        let mut state = self.state.lock();
        if is {
            state.sick.insert(member)
        } else {
            state.sick.remove(&member)
        };
    }

    /// Whether nothing new becomes ready on a member.
    pub(in crate::sim) fn is_sick(&self, member: usize) -> bool {
        self.state.lock().sick.contains(&member)
    }

    /// A workload does not do its job any more on the first member that has it. Whether there is one.
    pub fn fails(&self, name: &str) -> bool {
        let mut state = self.state.lock();
        let Some(at) = state.objects.keys().find(|(_, other)| other == name).cloned() else { return false };
        state.ailing.insert(at, None);
        true
    }

    /// A workload does its job again.
    pub fn recovers(&self, name: &str) {
        let now = self.now();
        let mut state = self.state.lock();
        let here = state.ailing.iter_mut().filter(|((_, other), _)| other == name);
        here.for_each(|(_, until)| *until = Some(now));
    }

    /// Whether a workload fails on a member.
    pub(in crate::sim) fn ails(&self, member: usize, name: &str) -> bool {
        self.state.lock().ailing.get(&(member, name.to_owned())) == Some(&None)
    }

    /// How long a workload's pods take to become ready.
    pub(in crate::sim) fn startup(&self, name: &str) -> Duration {
        self.state.lock().startup(name)
    }

    /// A user says that the copies which a workload has left behind may go.
    pub(in crate::sim) fn confirms(&self, name: &str) {
        let mut state = self.state.lock();
        let of = state.evicted.iter_mut().filter(|((other, _), _)| other == name);
        of.for_each(|(_, evicted)| evicted.confirmed = true);
    }

    /// No agent runs on a member from now on, or one does again.
    pub fn sleeps(&self, member: usize, begins: bool) {
        let until = (!begins).then(|| self.now());
        self.state.lock().asleep.insert(member, until);
    }

    /// A member's way to the hub is disturbed from now on, or not any more.
    pub fn disturb(&self, member: usize, begins: bool) {
        let now = self.now();
        let mut state = self.state.lock();
        let it = state.disturbed.entry(member).or_default();
        it.now = if begins { it.now + 1 } else { it.now.saturating_sub(1) };
        it.until = Some(now);
    }

    /// The hub's machine stands still from now on, or goes on: what it had begun to write when it stopped, and what was
    /// over meanwhile, it knows only then.
    pub fn hub_stands_still(&self, begins: bool) {
        let now = self.now();
        let mut state = self.state.lock();
        let since = if begins { state.hub_still.replace(now) } else { state.hub_still.take() };
        let Some(since) = since.filter(|_| !begins) else { return };
        for it in state.disturbed.values_mut().filter(|it| it.until.is_some_and(|until| until >= since)) {
            it.until = Some(now);
        }
    }
}
