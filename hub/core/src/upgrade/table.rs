//! All clusters as an upgrade sees them, kept current one by one.
//!
//! ```text
//!   a cluster has changed ─▶ put ─▶ judged by what is rolled out ─┬─▶ crowd: how many stand so, with nothing to be late with
//!   a wave, a command ─▶ all are judged anew                      ├─▶ busy: those that may be late, by name ─▶ members
//!                                                                 ├─▶ due: whose offer is another one than it is to be
//!                                                                 └─▶ beside: what people are told of them
//! ```
//!
//! So a change of one cluster costs what one cluster is worth, and a look at an upgrade that went everywhere costs nothing for those
//! that have it.

use std::collections::{BTreeMap, BTreeSet};

use karmada_meta::time::Time;

use super::{
    Offer, Report, Stands,
    fleet::{Known, Skip, Wanted},
    request::Request,
    words::Beside,
};
use crate::rollout::{Clocks, Fact, Member, Order, Phase, Place, Seen, State, Who};

/// What is known of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The version that its agent reports.
    pub version: Option<String>,
    /// What its agent says about upgrades.
    pub report: Option<Report>,
    /// What it is offered now.
    pub offer: Option<Offer>,
    /// There is an offer that nobody can read.
    pub odd: bool,
    /// When its Cluster was made.
    pub born: Option<Time>,
    /// The hub itself works on its member.
    pub pushed: bool,
    /// Its labels.
    pub labels: Option<BTreeMap<String, String>>,
    /// Since when nothing was heard of it, if it is silent.
    pub silent: Option<Time>,
}

impl Row {
    fn known(&self) -> Known<'_> {
        Known {
            version: self.version.as_deref(),
            report: self.report.clone(),
            offer: self.offer.clone(),
            born: self.born,
            pushed: self.pushed,
        }
    }
}

/// How clusters stand that count as one.
type Crowd = (usize, Fact, Option<Time>);

#[derive(Debug)]
struct Entry {
    row: Row,
    /// What it was offered when it was first seen, or before the last time, and at the last time that the hub has written it.
    made: [Option<Offer>; 2],
    /// As it was counted.
    judged: Option<(Crowd, Option<Skip>)>,
}

impl Entry {
    /// Whether it is offered what the hub has not written.
    fn is_foreign(&self) -> bool {
        self.row.odd || self.row.offer.is_some() && !self.made.contains(&self.row.offer)
    }
}

/// What the judgement of all clusters depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Basis {
    request: Request,
    revision: String,
    seed: String,
    phase: Phase,
    open: usize,
    began: Option<Time>,
    /// How far the last wave that has begun has come, where only so many may be changing at once.
    reach: Option<Place>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Table {
    entries: BTreeMap<String, Entry>,
    basis: Option<Basis>,
    stale: BTreeSet<String>,
    crowd: BTreeMap<Crowd, usize>,
    busy: BTreeSet<String>,
    due: BTreeSet<String>,
    beside: Beside,
}

impl Table {
    /// A cluster is so now; nothing of one that is not there any more.
    pub fn put(&mut self, name: &str, row: Option<Row>) {
        let Some(row) = row else {
            self.forget(name);
            self.entries.remove(name);
            self.stale.remove(name);
            return;
        };
        match self.entries.get_mut(name) {
            Some(entry) if entry.row == row => return,
            Some(entry) => entry.row = row,
            None => {
                let made = [row.offer.clone(), None];
                self.entries.insert(name.to_owned(), Entry { row, made, judged: None });
            }
        }
        self.stale.insert(name.to_owned());
    }

    /// A cluster was given this offer, or none.
    pub fn offered(&mut self, name: &str, offer: Option<Offer>) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.made = [entry.made[1].take().or_else(|| entry.made[0].take()), offer.clone()];
            (entry.row.offer, entry.row.odd) = (offer, false);
            self.stale.insert(name.to_owned());
        }
    }

    /// Whether a cluster is offered what the hub has not written.
    pub fn is_foreign(&self, name: &str) -> bool {
        self.entries.get(name).is_some_and(Entry::is_foreign)
    }

    /// The clusters that a request concerns, with their labels: all are looked at.
    pub fn concerned(&self, wanted: Wanted<'_>) -> Vec<(&str, Option<&BTreeMap<String, String>>)> {
        let concerned = |(_, entry): &(&String, &Entry)| wanted.fact(&entry.row.known()).is_ok();
        let named = |(name, entry): (_, _)| {
            let (name, entry): (&String, &Entry) = (name, entry);
            (name.as_str(), entry.row.labels.as_ref())
        };
        self.entries.iter().filter(concerned).map(named).collect()
    }

    /// Judges what has changed, but no more than so many clusters. Whether that was all.
    pub fn judge(&mut self, wanted: Wanted<'_>, limit: usize) -> bool {
        let state = wanted.state;
        let same = self.basis.as_ref().is_some_and(|basis| {
            basis.request == *wanted.request
                && basis.revision == state.revision
                && basis.seed == state.seed
                && (basis.phase, basis.open, basis.began) == (state.phase, state.open, state.began)
        });
        let last = state.open.checked_sub(1).and_then(|last| state.waves.get(last));
        let reach = last.and_then(|wave| wave.reach).map(|(place, _)| place);
        if let Some(basis) = self.basis.as_mut().filter(|basis| same && basis.reach != reach) {
            // Only those are otherwise that it has come to since.
            let since = |name: &&String| {
                let place = Place::of(&state.seed, name);
                basis.reach.is_none_or(|before| place > before) && reach.is_none_or(|reach| place <= reach)
            };
            self.stale.extend(self.busy.iter().filter(since).cloned());
            basis.reach = reach;
        }
        if !same {
            self.stale = self.entries.keys().cloned().collect();
            self.basis = Some(Basis {
                request: wanted.request.clone(),
                revision: state.revision.clone(),
                seed: state.seed.clone(),
                phase: state.phase,
                open: state.open,
                began: state.began,
                reach,
            });
        }
        let order = Order::of(state);
        for _ in 0..limit {
            let Some(name) = self.stale.pop_first() else { return true };
            self.forget(&name);
            self.count(name, wanted, &order);
        }
        self.stale.is_empty()
    }

    fn count(&mut self, name: String, wanted: Wanted<'_>, order: &Order<'_>) {
        let Some(entry) = self.entries.get_mut(&name) else { return };
        let row = &entry.row;
        let wave = order.wave(&name, row.labels.as_ref());
        let fact = wanted.fact(&row.known());
        let turn = (wave, wanted.state.reaches(wave, &name));
        let way = row.report.as_ref().map(|report| report.way);
        let offer = fact.as_ref().ok().and_then(|fact| wanted.offer(turn, *fact, way));
        // Somebody else's may have all begin at once.
        let is_other = if entry.is_foreign() {
            offer != row.offer
        } else {
            is_another(offer.as_ref(), row.offer.as_ref())
        };
        if row.odd || is_other {
            self.due.insert(name.clone());
        }
        let about = row.report.as_ref().and_then(|report| report.about.as_ref());
        match (&fact, about) {
            (Err(why), _) => {
                self.beside.skipped.entry(why.clone()).or_default().insert(name.clone());
            }
            (Ok(Fact::New(Seen::Failed)), Some(about)) => {
                self.beside.failed.insert(name.clone(), about.why.clone());
            }
            (Ok(Fact::New(_)), Some(about)) if about.stands == Stands::Waiting => {
                self.beside.waiting.insert(name.clone(), about.why.clone());
            }
            _ => {}
        }
        let (fact, skip) = match fact {
            Ok(fact) => (fact, None),
            Err(skip) => (Fact::Unconcerned, Some(skip)),
        };
        let crowd = (wave, fact, row.silent);
        entry.judged = Some((crowd, skip));
        if is_busy(wanted.state, crowd) {
            self.busy.insert(name);
        } else {
            *self.crowd.entry(crowd).or_default() += 1;
        }
    }

    /// Takes back what was counted of a cluster.
    fn forget(&mut self, name: &str) {
        self.due.remove(name);
        let judged = self.entries.get_mut(name).and_then(|entry| entry.judged.take());
        let Some((crowd, skip)) = judged else { return };
        self.beside.failed.remove(name);
        self.beside.waiting.remove(name);
        if let Some(skip) = skip
            && let Some(all) = self.beside.skipped.get_mut(&skip)
        {
            all.remove(name);
            if all.is_empty() {
                self.beside.skipped.remove(&skip);
            }
        }
        if !self.busy.remove(name) {
            less(&mut self.crowd, crowd);
        }
    }

    /// The clusters as the rollout's core sees them: by name those that may be late, or have been, and all others in crowds.
    pub fn members(&self, clocks: &Clocks) -> Vec<Member<'_>> {
        let mut crowd = self.crowd.clone();
        let late = clocks.names().filter(|name| !self.busy.contains(*name));
        let named = self.busy.iter().map(String::as_str).chain(late);
        let mut members: Vec<Member<'_>> = named
            .filter_map(|name| {
                let (name, entry) = self.entries.get_key_value(name)?;
                let (stands, _) = entry.judged.as_ref()?;
                if !self.busy.contains(name) {
                    less(&mut crowd, *stands);
                }
                Some(member(Who::One(name), *stands))
            })
            .collect();
        members.extend(crowd.into_iter().map(|(stands, count)| member(Who::Crowd(count), stands)));
        members
    }

    /// What there is to say beside the sums.
    pub fn beside(&self) -> &Beside {
        &self.beside
    }

    /// Some of the clusters whose offer is to be another one, with that.
    pub fn due(&self, wanted: Wanted<'_>, limit: usize) -> Vec<(String, Option<Offer>)> {
        let due = self.due.iter().filter_map(|name| {
            let entry = self.entries.get(name)?;
            let ((wave, fact, _), skip) = entry.judged.as_ref()?;
            let way = entry.row.report.as_ref().map(|report| report.way);
            let turn = (*wave, wanted.state.reaches(*wave, name));
            let offer = if skip.is_some() { None } else { wanted.offer(turn, *fact, way) };
            Some((name.clone(), offer))
        });
        due.take(limit).collect()
    }
}

/// Whether an offer is to be written anew. How its start is spread alone is no reason: an agent that began has had its turn, and one
/// that has not keeps the one that it was given.
fn is_another(wanted: Option<&Offer>, given: Option<&Offer>) -> bool {
    match (wanted, given) {
        (Some(wanted), Some(given)) => *wanted != Offer { spread: wanted.spread, ..given.clone() },
        (wanted, given) => wanted != given,
    }
}

/// Whether time that passes may change how a cluster counts.
fn is_busy(state: &State, (wave, fact, silent): Crowd) -> bool {
    match fact {
        // Whether its turn has come is to be known by its name.
        Fact::Old if silent.is_some() => {
            let has_turns = state.waves.get(wave).is_some_and(|wave| wave.max_concurrency.is_some());
            state.is_under_way() && wave + 1 == state.open && has_turns
        }
        _ if silent.is_some() => false,
        Fact::Old => state.is_under_way() && wave < state.open,
        Fact::New(seen) => matches!(seen, Seen::Unsaid | Seen::Unwell),
        Fact::Unconcerned => false,
    }
}

fn less(crowd: &mut BTreeMap<Crowd, usize>, of: Crowd) {
    if let Some(count) = crowd.get_mut(&of) {
        *count -= 1;
        if *count == 0 {
            crowd.remove(&of);
        }
    }
}

fn member(who: Who<'_>, (wave, fact, silent): Crowd) -> Member<'_> {
    Member { who, wave, fact, silent, leaving: false, mute: false, copies: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        rollout::{Wave, What, begin, step},
        upgrade::{
            Mode, Way,
            request::{GATE, REQUESTED, VERSION, WAVES},
            told::About,
        },
    };

    const ALL: usize = usize::MAX;

    fn at(text: &str) -> Time {
        text.parse().unwrap()
    }

    fn request() -> Request {
        let data = |key: &str| match key {
            VERSION => Some("0.6.0"),
            REQUESTED => Some("2026-11-26T01:00:00Z"),
            WAVES => Some("20% soak=0; 100% soak=0"),
            GATE => Some("maxFailures=1"),
            _ => None,
        };
        Request::read(data).unwrap()
    }

    #[test]
    fn an_offer_is_foreign_that_the_hub_has_not_written() {
        let offer = |image: &str| Offer {
            version: "0.6.0".to_owned(),
            begun: at("2026-11-26T01:00:00Z"),
            image: image.to_owned(),
            programs: Vec::new(),
            returns: false,
            downgrade: false,
            spread: 0,
        };
        let with = |offer: Option<Offer>| Some(Row { offer, ..Row::default() });
        let mut table = Table::default();
        // What is there at first may be from before the hub was started.
        table.put("a", with(Some(offer("old"))));
        assert!(!table.is_foreign("a"));
        table.offered("a", Some(offer("new")));
        assert!(!table.is_foreign("a"));
        // The watch is behind: it shows what was there before.
        table.put("a", with(Some(offer("old"))));
        assert!(!table.is_foreign("a"));
        table.put("a", with(Some(offer("evil"))));
        assert!(table.is_foreign("a"));
        table.offered("a", Some(offer("new")));
        assert!(!table.is_foreign("a"));
        table.put("a", with(None));
        assert!(!table.is_foreign("a"), "nothing is nobody's");
        table.put("a", Some(Row { odd: true, ..Row::default() }));
        assert!(table.is_foreign("a"));
        assert!(!table.is_foreign("b"));
    }

    fn row(stands: Option<Stands>, begun: Option<Time>) -> Row {
        let about = stands.zip(begun).map(|(stands, begun)| About {
            version: "0.6.0".into(),
            begun,
            stands,
            why: "why".into(),
            begins: false,
        });
        Row {
            version: Some(if stands == Some(Stands::Committed) { "0.6.0" } else { "0.5.0" }.to_owned()),
            report: Some(Report { mode: Mode::On, way: Way::Deployment, about }),
            born: Some(at("2026-01-01T00:00:00Z")),
            ..Row::default()
        }
    }

    fn started(table: &Table, request: &Request) -> State {
        let nobody = State { what: What::Agents, ..State::unknown("seed") };
        let reading = State { revision: "0.6.0".to_owned(), phase: Phase::Running, ..nobody.clone() };
        let concerned = table.concerned(Wanted { request, state: &reading });
        begin(&nobody, "0.6.0", &request.asked, "seed", &concerned)
    }

    fn look(
        table: &mut Table,
        request: &Request,
        state: &mut State,
        clocks: &mut Clocks,
        now: &str,
    ) -> crate::rollout::Step {
        assert!(table.judge(Wanted { request, state }, ALL));
        let seen = step(state, &request.asked.gate, &table.members(clocks), at(now), clocks);
        assert!(table.judge(Wanted { request, state }, ALL));
        seen
    }

    #[test]
    fn where_so_many_may_change_at_once_others_wait_for_them() {
        let data = |key: &str| match key {
            VERSION => Some("0.6.0"),
            REQUESTED => Some("2026-11-26T01:00:00Z"),
            WAVES => Some("100% soak=0 maxConcurrency=2"),
            _ => None,
        };
        let request = Request::read(data).unwrap();
        let (mut table, mut clocks) = (Table::default(), Clocks::default());
        for n in 0..8 {
            table.put(&format!("m{n}"), Some(row(None, None)));
        }
        let mut state = started(&table, &request);
        let mut had = BTreeSet::new();
        for minute in 0..9 {
            let now = format!("2026-11-26T02:{minute:02}:00Z");
            look(&mut table, &request, &mut state, &mut clocks, &now);
            let due = table.due(Wanted { request: &request, state: &state }, ALL);
            let mut whole = Table::default();
            table.entries.iter().for_each(|(name, entry)| whole.put(name, Some(entry.row.clone())));
            assert!(whole.judge(Wanted { request: &request, state: &state }, ALL));
            assert_eq!(table.due, whole.due);
            if minute == 8 {
                assert_eq!((due.len(), state.phase), (0, Phase::Complete), "{had:?}");
                break;
            }
            for (name, offer) in due {
                assert!(had.insert(name.clone()), "{name}");
                table.offered(&name, offer);
            }
            assert!(had.len() <= 2 * (minute / 2 + 1), "{minute}: {had:?}");
            if minute % 2 == 1 {
                // Those that began are through.
                for name in &had {
                    let stays = Row {
                        offer: table.entries[name].row.offer.clone(),
                        ..row(Some(Stands::Committed), state.began)
                    };
                    table.put(name, Some(stays));
                }
            }
        }
    }

    /// Agents that could begin wait for their turn first, of their own accord; those of before do not tell that from being held.
    #[test]
    fn agents_that_are_about_to_begin_keep_their_places() {
        // Their order is another one by each request.
        let requested = (0..8).map(|second| format!("2026-11-26T01:00:0{second}Z"));
        for (requested, (begins, most)) in
            requested.flat_map(|at| [(at.clone(), (true, 5)), (at, (false, 10))])
        {
            let data = |key: &str| match key {
                VERSION => Some("0.6.0"),
                REQUESTED => Some(requested.as_str()),
                WAVES => Some("100% soak=0 maxConcurrency=5"),
                _ => None,
            };
            let request = Request::read(data).unwrap();
            let (mut table, mut clocks) = (Table::default(), Clocks::default());
            for n in 0..100 {
                table.put(&format!("m{n}"), Some(row(None, None)));
            }
            let mut state = started(&table, &request);
            // Since which minute each has it.
            let mut given: BTreeMap<String, usize> = BTreeMap::new();
            for minute in 0..240_usize {
                let now = format!("2026-11-26T{:02}:{:02}:00Z", 2 + minute / 60, minute % 60);
                let waits: Vec<_> =
                    given.iter().map(|(name, since)| (name.clone(), minute - since)).collect();
                for (name, since) in &waits {
                    let stands = match since {
                        0 => None,
                        1..4 => Some(Stands::Waiting),
                        4 => Some(Stands::Trying),
                        _ => Some(Stands::Committed),
                    };
                    let mut says = row(stands, state.began);
                    says.offer.clone_from(&table.entries[name].row.offer);
                    let about = says.report.as_mut().and_then(|report| report.about.as_mut());
                    if let Some(about) = about.filter(|about| about.stands == Stands::Waiting) {
                        about.begins = begins;
                    }
                    table.put(name, Some(says));
                }
                look(&mut table, &request, &mut state, &mut clocks, &now);
                for (name, offer) in table.due(Wanted { request: &request, state: &state }, ALL) {
                    table.offered(&name, offer);
                    given.insert(name, minute);
                }
                let changing = given.values().filter(|since| minute - **since < 5).count();
                assert!(changing <= most, "{begins} {minute}: {changing}");
                if state.phase == Phase::Complete {
                    break;
                }
            }
            assert_eq!((given.len(), state.phase), (100, Phase::Complete), "{begins}");
        }
    }

    /// Whatever changes one by one is in the end what a table has that is filled at once.
    #[test]
    fn what_is_kept_current_is_what_a_pass_over_all_would_find() {
        let (request, mut table, mut clocks) = (request(), Table::default(), Clocks::default());
        for n in 0..40 {
            table.put(&format!("m{n}"), Some(row(None, None)));
        }
        let mut state = started(&table, &request);
        look(&mut table, &request, &mut state, &mut clocks, "2026-11-26T02:00:00Z");
        let begun = state.began;
        let says = [
            None,
            Some(Stands::Waiting),
            Some(Stands::Trying),
            Some(Stands::Committed),
            Some(Stands::Returned),
            Some(Stands::Refused),
        ];
        let mut random = 1_u64;
        for round in 0..400 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let pick = |of: u64, shift: u32| usize::try_from((random >> shift) % of).unwrap();
            let name = format!("m{}", pick(45, 33));
            let mut changed = row(says[pick(6, 40)], begun);
            changed.silent = (pick(5, 45) == 0).then(|| at("2026-11-26T02:00:30Z"));
            changed.pushed = pick(9, 50) == 0;
            table.put(&name, (pick(11, 55) != 0).then_some(changed));
            if round % 50 == 0 {
                state.phase = [Phase::Running, Phase::Paused, Phase::Complete, Phase::Returned][pick(4, 60)];
            }
            let wanted = Wanted { request: &request, state: &state };
            assert!(table.judge(wanted, ALL));
            let mut whole = Table::default();
            for (name, entry) in &table.entries {
                whole.put(name, Some(entry.row.clone()));
            }
            assert!(!whole.judge(wanted, 3) && whole.judge(wanted, ALL));
            assert_eq!(
                (&table.crowd, &table.busy, &table.due, &table.beside),
                (&whole.crowd, &whole.busy, &whole.due, &whole.beside)
            );
            assert_eq!(table.members(&clocks), whole.members(&clocks));
            assert_eq!(table.members(&clocks).iter().map(Member::count).sum::<usize>(), table.entries.len());
            // Nothing is due of a cluster that was given what is due.
            let first = table.due(wanted, 1);
            if let Some((name, offer)) = first.first() {
                table.offered(name, offer.clone());
                table.judge(wanted, ALL);
            }
        }
    }

    #[test]
    fn the_gate_counts_who_failed_once_also_when_it_falls_silent_or_its_time_is_over() {
        let (request, mut table, mut clocks) = (request(), Table::default(), Clocks::default());
        for n in 0..10 {
            table.put(&format!("m{n}"), Some(row(None, None)));
        }
        let mut state = started(&table, &request);
        look(&mut table, &request, &mut state, &mut clocks, "2026-11-26T02:00:00Z");
        let wanted = Wanted { request: &request, state: &state };
        let due = table.due(wanted, ALL);
        assert_eq!(due.len(), 2, "a fifth of ten");
        assert!(due.iter().all(|(_, offer)| offer.is_some()));
        for (name, offer) in &due {
            table.offered(name, offer.clone());
        }
        let begun = state.began;
        let with = |table: &mut Table, at: usize, stands, silent: Option<&str>| {
            let (name, offer) = &due[at];
            let row = Row { offer: offer.clone(), silent: silent.map(self::at), ..row(Some(stands), begun) };
            table.put(name, Some(row));
        };
        // One failure is allowed, and stays one however often it is heard of, and when it falls silent.
        for (silent, now) in
            [(None, "2026-11-26T02:10:00Z"), (Some("2026-11-26T02:11:00Z"), "2026-11-26T02:12:00Z")]
        {
            with(&mut table, 0, Stands::Returned, silent);
            with(&mut table, 1, Stands::Trying, None);
            look(&mut table, &request, &mut state, &mut clocks, now);
            assert_eq!((state.phase, state.open), (Phase::Running, 1), "{now}");
        }
        // The other one has its time, of which silence uses nothing.
        with(&mut table, 1, Stands::Trying, Some("2026-11-26T02:20:00Z"));
        look(&mut table, &request, &mut state, &mut clocks, "2026-11-26T05:00:00Z");
        with(&mut table, 1, Stands::Trying, None);
        look(&mut table, &request, &mut state, &mut clocks, "2026-11-26T05:01:00Z");
        assert_eq!(state.phase, Phase::Running);
        let seen = look(&mut table, &request, &mut state, &mut clocks, "2026-11-26T05:40:00Z");
        assert_eq!(state.phase, Phase::Breached, "{seen:?}");
        assert_eq!(table.due(Wanted { request: &request, state: &state }, ALL), []);
    }

    #[test]
    fn an_upgrade_that_went_everywhere_is_a_crowd() {
        let (request, mut table) = (request(), Table::default());
        // What each was offered was spread by its wave, which is not all of them.
        let wave = |clusters| Wave {
            name: String::new(),
            labels: None,
            upto: None,
            clusters,
            soak: 0,
            approve: false,
            opened: Some(at("2026-11-26T02:00:00Z")),
            max_concurrency: None,
            reach: None,
        };
        let state = State {
            revision: "0.6.0".to_owned(),
            phase: Phase::Complete,
            began: Some(at("2026-11-26T02:00:00Z")),
            waves: [100, 9_900].map(wave).into(),
            open: 2,
            ..State::default()
        };
        let mut has = row(Some(Stands::Committed), state.began);
        has.offer = Some(Offer {
            version: "0.6.0".to_owned(),
            begun: at("2026-11-26T02:00:00Z"),
            image: String::new(),
            programs: Vec::new(),
            returns: false,
            downgrade: false,
            spread: Offer::spread_of(100),
        });
        for n in 0..10_000 {
            table.put(&format!("m{n}"), Some(has.clone()));
        }
        let wanted = Wanted { request: &request, state: &state };
        assert!(table.judge(wanted, ALL));
        assert_eq!(table.due(wanted, ALL), []);
        let members = table.members(&Clocks::default());
        assert_eq!((members.len(), members[0].who), (1, Who::Crowd(10_000)));
        // What was offered otherwise is written anew.
        let other = Offer { image: "x:1".to_owned(), ..has.offer.clone().unwrap() };
        table.put("m1", Some(Row { offer: Some(other), ..has.clone() }));
        // So is what differs in nothing but how starts are spread, if the hub has not written it.
        let hasty = Offer { spread: 0, ..has.offer.clone().unwrap() };
        table.put("m2", Some(Row { offer: Some(hasty), ..has }));
        assert!(table.judge(wanted, ALL));
        assert_eq!(table.due(wanted, ALL).len(), 2);
    }
}
