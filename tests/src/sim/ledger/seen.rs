//! What is seen on members, and what the hub decides and says.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use karmada_api::policy::PurgeMode;
use karmada_meta::{object, time::Time};
use serde_json::Value;

use super::{Cause, ECHO, Evicted, Ledger, Seen};
use crate::sim::{
    member,
    plan::{Spread, Want},
    scalers::{self, Scaled},
    services::stays,
};

impl Ledger {
    /// On a member there is a provider's slice, with these endpoints that take requests, or none any more.
    pub(in crate::sim) fn brought(&self, member: usize, provider: usize, ready: Option<&BTreeSet<String>>) {
        let mut state = self.state.lock();
        let is_there = ready.is_some_and(|ready| ready.contains(&stays(provider)));
        let was_there = match is_there {
            true => !state.endpoints.insert((member, provider)),
            false => state.endpoints.remove(&(member, provider)),
        };
        let may = state.were_away.contains(&member) || state.were_away.contains(&provider);
        drop(state);
        let (consumer, of) = (member + 1, provider + 1);
        self.tell(format!("member{consumer} has of member{of} {ready:?}"));
        if member == provider {
            self.accuse(format!("member{consumer} was brought a slice of its own"));
        } else if was_there && !is_there && !may {
            self.accuse(format!("an endpoint that member{of} has went from member{consumer}: {ready:?}"));
        }
    }

    /// An object is there or has changed. How long its pods take to start.
    pub(in crate::sim) fn present(&self, member: usize, kind: &str, object: &Value) -> Duration {
        let now = self.now();
        let mut state = self.state.lock();
        let name = object::name(object).to_owned();
        let replicas = object["spec"]["replicas"].as_i64().unwrap_or(0);
        let value = object["data"]["key"].as_str().unwrap_or_default().to_owned();
        let startup = state.startup(&name);
        if kind == "ConfigMap" && !name.starts_with('w') {
            return startup;
        }
        let key = (member, name.clone());
        let known = state.objects.get(&key).cloned();
        match &known {
            Some(known) if known.uid == object::uid(object) => {
                if known.replicas != replicas {
                    state.tell(
                        now,
                        format!("member{}: {name} {} → {replicas} replicas", member + 1, known.replicas),
                    );
                }
                if replicas > known.replicas {
                    state.grown.insert(name.clone());
                }
                let stopped = replicas == 0 && state.fence(&name).is_some() || state.shrinks(&name);
                // Static weights are a user's word on what each cluster has of those that there are.
                let weighted = state.intent.wants.get(&name).is_some_and(|w| w.spread == Spread::Weighted);
                let by_weight = weighted
                    && state.bindings.get(&name).and_then(|there| there.get(&member)) == Some(&replicas);
                if replicas < known.replicas
                    && !stopped
                    && !by_weight
                    && !state.may_shrink.contains(&name)
                    && !state.leaves(&name, member)
                {
                    state.accuse(
                        now,
                        format!("{name} shrinks on member{} and nobody asked for that", member + 1),
                    );
                    self.wrong.cancel();
                }
            }
            _ => {
                if state.taken.get(&member).is_some_and(|taken| taken.is && !taken.wanted.contains(&name)) {
                    let whose = format!("{name} comes to member{}, whose name another has", member + 1);
                    state.accuse(now, whose);
                    self.wrong.cancel();
                }
                state.copied.insert(name.clone());
                state.made.insert((name.clone(), member));
                // An agent was in the midst of it when the hub was lost.
                let placed = state.bindings.get(&name).is_some_and(|there| there.contains_key(&member));
                if state.anew && !placed {
                    state.forgotten.insert(name.clone());
                }
                state.tell(now, format!("member{}: {name} is there, {replicas} replicas", member + 1));
            }
        }
        let same = known.filter(|known| known.uid == object::uid(object));
        if let Some(known) = same.as_ref().filter(|_| object::deletion_timestamp(object).is_some()) {
            let lost = state.lost.contains(&key);
            if state.ending.insert(known.uid.clone())
                && !lost
                && !state.goes_rightly(now, &name, member, known)
            {
                self.wrong.cancel();
            }
        }
        let (ready, told) = same.map_or((0, (0, 0, 0)), |known| (known.ready, known.told));
        let uid = object::uid(object).to_owned();
        state.objects.insert(key, Seen { uid, replicas, ready: ready.min(replicas), told, value });
        if let Err(why) = state.fenced(now, &name) {
            state.accuse(now, why);
            self.wrong.cancel();
        }
        startup
    }

    /// Whether a workload may run on one member only.
    pub(in crate::sim) fn is_fenced(&self, name: &str) -> bool {
        self.state.lock().fence(name).is_some()
    }

    /// A Pod of a workload is there, or has ended.
    pub(in crate::sim) fn pod(&self, member: usize, name: &str, pod: &str, is: bool) {
        let now = self.now();
        let mut state = self.state.lock();
        let key = (member, name.to_owned());
        let pods = state.pods.entry(key).or_default();
        if is && pods.insert(pod.to_owned()) {
            if let Err(why) = state.fenced(now, name) {
                state.accuse(now, why);
                self.wrong.cancel();
            }
        } else if !is && pods.remove(pod) {
            state.tell(now, format!("member{}: a Pod of {name} has ended", member + 1));
        }
    }

    /// The status that a Deployment is to have, if it has another one.
    pub(in crate::sim) fn status(
        &self,
        member: usize,
        name: &str,
        generation: i64,
        wanted: i64,
        ready: i64,
    ) -> Option<Value> {
        let mut state = self.state.lock();
        let seen = state.objects.get_mut(&(member, name.to_owned()))?;
        let told = (generation, wanted, ready);
        if seen.told == told {
            return None;
        }
        (seen.told, seen.ready) = (told, ready);
        Some(member::status(generation, wanted, ready))
    }

    /// An object is gone.
    pub(in crate::sim) fn absent(&self, member: usize, _kind: &str, name: &str) {
        let now = self.now();
        let mut state = self.state.lock();
        let key = (member, name.to_owned());
        let Some(gone) = state.objects.remove(&key) else { return };
        state.tell(now, format!("member{}: {name} is gone", member + 1));
        if state.lost.remove(&key) {
            return;
        }
        let judged = state.ending.remove(&gone.uid);
        if !judged && !state.goes_rightly(now, name, member, &gone) {
            self.wrong.cancel();
        }
        if !state.intent.unwanted(name, member) {
            state.may_leave.remove(&(name.to_owned(), member));
        }
    }

    /// The hub has decided where a workload is to be.
    pub(in crate::sim) fn placed(
        &self,
        name: &str,
        clusters: BTreeMap<usize, i64>,
        allowed: &BTreeSet<usize>,
        leaving: BTreeMap<usize, Cause>,
    ) {
        let now = self.now();
        let mut state = self.state.lock();
        for member in clusters.keys().filter(|member| !leaving.contains_key(member)) {
            let key = (name.to_owned(), *member);
            let directly = state.evicted.remove(&key).is_some_and(|evicted| {
                evicted.cause.purge == PurgeMode::Directly
                    && (!evicted.cause.lost || state.fence(name).is_some())
            });
            if directly {
                // It had begun to go when that was taken back.
                state.may_leave.insert(key);
            }
        }
        let going: BTreeSet<usize> = leaving.keys().copied().collect();
        for (member, mut cause) in leaving {
            let key = (name.to_owned(), member);
            // One that answers and is not well is not lost: its user may say what becomes of what is there.
            cause.lost &= state.ready.get(&member).is_none_or(|ready| ready != "False");
            if !state.evicted.contains_key(&key) {
                state.tell(now, format!("hub: {name} is to leave member{}, {}", member + 1, cause.purge));
                let least = state.intent.wants.get(name).map_or(0, |want| want.replicas);
                state.evicted.insert(key, Evicted { since: now, cause, confirmed: false, least });
            }
        }
        if name == scalers::MEMBERS && clusters.len() < state.intent.clusters(name).len() {
            state.scaled.incomplete = true;
        }
        state.concludes(now, name, &clusters, &going);
        let known = state.bindings.get(name).cloned();
        if known.as_ref() == Some(&clusters) {
            return;
        }
        // What a hub finds when it starts it has not decided: its policy may have changed a moment before it ended.
        let decided = known.is_some() || !state.anew;
        let known = known.or_else(|| state.found.remove(name)).unwrap_or_default();
        if known != clusters {
            let text: Vec<String> = clusters.iter().map(|(m, n)| format!("member{}={n}", m + 1)).collect();
            state.tell(now, format!("hub: {name} goes to {}", text.join(" ")));
            let is_outside = |m: &&usize| decided && !known.contains_key(*m) && !allowed.contains(*m);
            for member in clusters.keys().filter(is_outside) {
                state.accuse(now, format!("{name} is placed on member{}, outside of its policy", member + 1));
                self.wrong.cancel();
            }
        }
        state.bindings.insert(name.to_owned(), clusters);
    }

    /// The hub has another opinion of a cluster.
    pub(in crate::sim) fn cluster(&self, member: usize, ready: &str) {
        let now = self.now();
        let mut state = self.state.lock();
        let before = state.ready.insert(member, ready.to_owned());
        if before.as_deref() == Some(ready) {
            return;
        }
        state.tell(now, format!("hub: member{} is Ready={ready}", member + 1));
        let disturbed = state.disturbed.get(&member).copied().unwrap_or_default();
        let echo = disturbed.until.is_some_and(|until| now <= until + ECHO);
        // Of one that has left a restored hub may know still.
        let left = state.intent.is_away(member);
        let calm = disturbed.now == 0 && !echo && !left;
        if before.as_deref() == Some("True") && ready == "Unknown" && calm {
            state.accuse(now, format!("member{} was never out of reach and is taken for lost", member + 1));
            self.wrong.cancel();
        }
    }

    /// Tells what scalers are judged by.
    pub(in crate::sim) fn scaled(&self, tell: impl FnOnce(&mut Scaled, Duration)) {
        let now = self.now();
        tell(&mut self.state.lock().scaled, now);
    }

    /// A template on the hub has so many replicas.
    pub(in crate::sim) fn templated(&self, name: &str, replicas: i64) {
        let now = self.now();
        let mut state = self.state.lock();
        let Some(scaler) = state.scaler(name) else { return };
        let on: BTreeSet<usize> = state.bindings.get(name).into_iter().flatten().map(|(at, _)| *at).collect();
        let on = on.into_iter().filter(|member| !state.intent.is_away(*member)).collect();
        let (news, judged) = state.scaled.templated((name, scaler), replicas, &on, now);
        if news {
            state.tell(now, format!("hub: {name} is to have {replicas} replicas"));
            let before = state.intent.clone();
            if let Some(want) = state.intent.wants.get_mut(name) {
                want.replicas = replicas;
            }
            state.reason(&before);
        }
        if let Err(why) = judged {
            state.accuse(now, why);
            self.wrong.cancel();
        }
    }

    /// What a CronFederatedHPA says that it has done.
    pub(in crate::sim) fn struck(&self, status: &Value) {
        let now = self.now();
        let mut state = self.state.lock();
        if let Err(why) = state.scaled.cron(status) {
            state.accuse(now, why);
            self.wrong.cancel();
        }
    }

    /// What scalers have to do yet.
    pub(in crate::sim) fn unfinished(&self, want: &Want, now: Time) -> Result<(), String> {
        self.state.lock().scaled.unfinished(want, now)
    }

    /// What the hub said is no longer known: it has stopped.
    pub(in crate::sim) fn hub_is_gone(&self) {
        let mut state = self.state.lock();
        let bindings = std::mem::take(&mut state.bindings);
        state.found.extend(bindings);
        state.ready.clear();
    }
}
