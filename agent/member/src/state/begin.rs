//! How a state begins: what was kept is read, judged and recalled, and what is known otherwise is written.

use std::collections::BTreeSet;

use karmada_client::Backoff;
use karmada_core::names::fnv64a;
use tokio::time::{Instant, sleep, timeout};

use super::{
    Begun, Entries, Inner, LESS, PATIENCE, Parts, RETRY, State, TOLD, Trouble, VOIDED, WAITS,
    commit::GOES_ON,
    contents::{self, About, Contents},
    engine::{Engine, Part, Unread, Unwritten},
    key::Unready,
    seal::{Seal, unpack},
    stage::{self, Item, Open, Staged, staged},
    stamp::{Found, Odd, Verdict, judge},
};
use crate::{
    apply::Applier,
    note::Tenure,
    works::{desired::DesiredWork, sync::Executor},
};

impl State {
    /// Tries to have a state until its place answers, but not for ever.
    pub(super) async fn begin_patiently(&self, executor: &Executor) -> Begun {
        let (mut backoff, since) = (Backoff::new(RETRY), Instant::now());
        loop {
            let begun = self.telling("NotRead", since, self.begin(&executor.applier)).await;
            let Begun::Away(why) = &begun else { return begun };
            if !self.parts.rights.may_apply() {
                return Begun::Lost;
            }
            let goes_on = *self.ready.borrow();
            if goes_on || since.elapsed() >= TOLD {
                self.is_troubled("NotRead", format!("{why}; {WAITS}"));
            }
            if goes_on || since.elapsed() >= PATIENCE {
                return begun;
            }
            sleep(backoff.next(&self.parts.env)).await;
        }
    }

    async fn begin(&self, applier: &Applier) -> Begun {
        let Some(mut engine) = self.engine() else { return Begun::Nowhere };
        let Some(tenure) = self.parts.note.tenure() else {
            // What was kept before must not be taken for the newest when there is a Lease again.
            let _ = timeout(VOIDED, engine.void()).await;
            let why = "the member lets the agent keep no Lease, and without one nobody can tell whether what was kept is the newest";
            self.is_troubled("NotKept", why.to_owned());
            return Begun::Nowhere;
        };
        let mut inner = self.inner.lock().await;
        match inner.parked.take() {
            // Nobody else has had the member since.
            Some(open) if open.tenure == tenure => inner.open = Some(open),
            _ => {
                drop(inner);
                let (member, seal) = match self.site().identify().await {
                    Ok(identified) => identified,
                    Err(Unready::Away(why)) => return Begun::Away(why),
                    Err(Unready::Refused(why)) => {
                        self.is_troubled("NotKept", why);
                        return Begun::Refused;
                    }
                };
                let cluster = self.parts.cluster.clone();
                let about = About { version: About::VERSION, member, cluster, lease: tenure.lease.clone() };
                inner = self.inner.lock().await;
                inner.left_out.clear();
                match self.read(engine, seal, (about, tenure), applier).await {
                    Ok(open) => inner.open = Some(open),
                    Err(begun) => return begun,
                }
            }
        }
        self.catch_up(&mut inner, applier).await;
        if inner.open.is_some() {
            return Begun::Open;
        }
        if self.parts.rights.may_apply() { Begun::Refused } else { Begun::Lost }
    }

    /// Reads what is kept, and recalls what may be gone on with.
    async fn read(
        &self,
        mut engine: Box<dyn Engine>,
        seal: Option<Seal>,
        (about, tenure): (About, Tenure),
        applier: &Applier,
    ) -> Result<Open, Begun> {
        let parts = match engine.load().await {
            Ok(parts) => parts,
            Err(Unread::Away(why)) => return Err(Begun::Away(why)),
            Err(Unread::Refused(why)) => {
                self.is_troubled("NotRead", why);
                return Err(Begun::Refused);
            }
            Err(Unread::Damaged(why)) => {
                self.was_troubled("Damaged", why);
                Vec::new()
            }
        };
        let said = self.parts.note.said();
        let judged = sift(parts, said.as_deref(), engine.part_of(About::KEY)).and_then(|sifted| {
            let Some((verdict, entries)) = sifted else { return Ok(None) };
            let open = |name: &str, kept| {
                if engine.compresses() { Some(kept) } else { unpack(seal.as_ref(), name, kept) }
            };
            let contents = Contents::read(entries, open)?;
            contents.about.may_be_followed_by(&about)?;
            Ok(Some((verdict, contents)))
        });
        let judged = judged.unwrap_or_else(|(reason, why)| {
            if reason == contents::OUT_OF_DATE {
                tracing::info!(cluster = %self.parts.cluster, "the agent's state is of no use: {why}");
            } else {
                self.was_troubled(reason, why);
            }
            None
        });
        let Some((verdict, contents)) = judged else {
            let id = format!("{:016x}", self.parts.env.random());
            return match engine.begin(&id).await {
                Ok(()) => Ok(Open { engine, seal, about, tenure, digests: Default::default() }),
                Err(Unwritten::Away(why)) => Err(Begun::Away(why)),
                Err(Unwritten::Refused(why)) => {
                    self.is_troubled("NotKept", why);
                    Err(Begun::Refused)
                }
            };
        };
        let lacking: Vec<String> = verdict
            .odd
            .iter()
            .filter(|(_, odd)| *odd != Odd::Others)
            .map(|(part, odd)| format!("{} is {}", engine.part_name(*part), odd.as_str()))
            .collect();
        if !lacking.is_empty() {
            let why = format!("{}; what it held is known again when the hub says it", lacking.join(", "));
            self.was_troubled("Damaged", why);
        }
        let odd: Vec<usize> = verdict.odd.iter().map(|(part, _)| *part).collect();
        engine.go_on(verdict.stamp, &odd);
        let digests = contents.digests();
        self.recall(contents, applier);
        Ok(Open { engine, seal, about, tenure, digests })
    }

    /// Lets what was kept be known, unless the hub has said what is wanted.
    fn recall(&self, contents: Contents, applier: &Applier) {
        let Parts { desired, interpreter, rules, holds, removals, queue, cluster, .. } = &self.parts;
        let (works, objects) = (contents.works.len(), contents.applied.len());
        contents.rules.recall(interpreter, rules);
        if let Some(record) = contents.removals {
            removals.recall(record);
        }
        let mut notes = self.notes.lock();
        // What was noted since is newer.
        for (name, text) in contents.notes {
            notes.entry(name).or_insert(text);
        }
        drop(notes);
        applier.recall(contents.applied);
        holds.recall(contents.holds, contents.in_force);
        let names = desired.recall(contents.works);
        if !names.is_empty() {
            tracing::info!(%cluster, works, objects, "goes on with what was wanted before the start");
        }
        names.into_iter().for_each(|name| queue.add(name));
    }

    /// Keeps what is known otherwise than it is kept: what came while nothing could be. A part at a time, and whose it is
    /// last: nothing of a state that is begun counts before.
    async fn catch_up(&self, inner: &mut Inner, applier: &Applier) {
        self.parts.dirty.take();
        // Where the agent goes on without, what the hub says does not wait for long.
        let patience = if *self.ready.borrow() { LESS } else { PATIENCE };
        let items = self.behind(inner, applier);
        let (mut group, mut bytes, mut last): (Vec<Staged>, usize, usize) = (Vec::new(), 0, 0);
        for (part, item) in items {
            let Some(open) = &inner.open else { return };
            if !group.is_empty() && (part != last || bytes >= open.engine.at_a_time()) {
                bytes = 0;
                self.commit(inner, std::mem::take(&mut group), patience).await;
            }
            last = part;
            let Some(open) = &inner.open else { return };
            let staged = match item {
                Item::Work(work) => open.changed(&work),
                Item::InForce(work) => Some(stage::in_force(&work)),
                Item::Rules(key, text) => Some(staged(&key, text)),
                Item::Applied(id) => {
                    applier.applied(&id).map(|a| staged(&contents::applied_key(&id), a.text()))
                }
                Item::Gone(key) => Some((key, None)),
                Item::About => Some(staged(About::KEY, open.about.text())),
            };
            bytes +=
                staged.as_ref().and_then(|(_, value)| value.as_ref()).map_or(0, |(value, _)| value.len());
            group.extend(staged);
        }
        self.commit(inner, group, patience).await;
        if let Some(open) = &inner.open {
            // Nothing may have been left to write.
            self.parts.note.say(&open.engine.stamp().text());
            match open.engine.only_reads() {
                Some(why) => self.is_troubled("NotKept", format!("{why}; {GOES_ON}")),
                None => self.is_well(inner),
            }
        }
    }

    /// What is known otherwise than it is kept, by part.
    fn behind(&self, inner: &Inner, applier: &Applier) -> Vec<(usize, Item)> {
        let Some(open) = &inner.open else { return Vec::new() };
        let desired = &self.parts.desired;
        let mut items: Vec<Item> = Vec::new();
        let works = desired.all();
        let names: BTreeSet<&str> = works.iter().map(|work| work.name.as_str()).collect();
        let (mut there, synced) = (BTreeSet::new(), desired.synced());
        for (id, applied) in applier.all_applied() {
            let key = contents::applied_key(&id);
            if synced && !names.contains(applied.work.as_str()) {
                continue;
            }
            if open.differs(&key, fnv64a(&applied.text())) {
                items.push(Item::Applied(id));
            }
            there.insert(key);
        }
        self.parts.holds.take_touched();
        let held = self.parts.holds.all_in_force();
        let in_force: BTreeSet<String> = held.iter().map(|work| contents::force_key(&work.name)).collect();
        for key in open.digests.keys() {
            let is_gone = match contents::work_of(key) {
                Some(name) => synced && !names.contains(name),
                None if contents::is_in_force(key) => !in_force.contains(key),
                None => contents::applied_id(key).is_some() && !there.contains(key),
            };
            if is_gone {
                items.push(Item::Gone(key.clone()));
            }
        }
        match self.parts.removals.record() {
            Some(record) => {
                items.push(Item::Rules(contents::REMOVALS.to_owned(), contents::removals_text(&record)));
            }
            // What was kept of them is over.
            None if open.digests.contains_key(contents::REMOVALS) => {
                items.push(Item::Gone(contents::REMOVALS.to_owned()));
            }
            None => {}
        }
        let notes = self.notes.lock();
        let kept: BTreeSet<String> = notes.keys().map(|name| contents::note_key(name)).collect();
        drop(notes);
        let gone = open.digests.keys().filter(|key| contents::is_note(key) && !kept.contains(*key));
        items.extend(gone.cloned().map(Item::Gone));
        items
            .extend(self.notes(open).into_iter().filter_map(|(key, value)| Some(Item::Rules(key, value?.0))));
        for (key, text) in &inner.rules {
            if open.differs(key, fnv64a(text)) {
                items.push(Item::Rules(key.clone(), text.clone()));
            }
        }
        if open.differs(About::KEY, fnv64a(&open.about.text())) {
            items.push(Item::About);
        }
        let changed = |work: &DesiredWork| open.differs(&contents::work_key(&work.name), work.digest());
        let waits = |work: &DesiredWork| open.differs(&contents::force_key(&work.name), work.digest());
        items.extend(held.into_iter().filter(|work| waits(work)).map(Item::InForce));
        items.extend(works.iter().filter(|work| changed(work)).cloned().map(Item::Work));
        let engine = &open.engine;
        let about = engine.part_of(About::KEY);
        let mut items: Vec<(usize, Item)> =
            items.into_iter().map(|item| (engine.part_of(&item.key()), item)).collect();
        items.sort_by_key(|(part, item)| (*part == about, *part, matches!(item, Item::About)));
        items
    }
}

/// What of the parts may be gone on with; nothing if nothing is kept.
fn sift(parts: Vec<Part>, said: Option<&str>, about: usize) -> Result<Option<(Verdict, Entries)>, Trouble> {
    let found: Vec<Found> = parts.iter().map(|part| part.found.clone()).collect();
    if found.iter().all(|found| *found == Found::Missing) {
        return Ok(None);
    }
    let verdict = judge(said, &found, about).map_err(|why| (contents::OUT_OF_DATE, why))?;
    let mut entries = Entries::new();
    for (at, part) in parts.into_iter().enumerate() {
        if !verdict.odd.iter().any(|(odd, _)| *odd == at) {
            entries.extend(part.entries);
        }
    }
    Ok(Some((verdict, entries)))
}
