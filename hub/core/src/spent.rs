//! What an agent says when what may cross tunnels on its link is used up, and what the hub keeps of that: what would be refused
//! need not cross the link to be refused.
//!
//! Nothing is kept but by an agent's own word, and that is about its own cluster alone. It is not believed for long at a time: an
//! agent that was started anew, with more to use, is asked again soon. By one request of that user first ([`Turn`]): many that cross at once
//! would cost much before the first of them is refused. It is forgotten when the agent's credentials end, or its Cluster is another one
//! by now: whoever had stolen them says nothing any more.

use std::{collections::BTreeMap, time::Duration};

use karmada_meta::status::Status;

use crate::shares::Short;

/// The header of an answer in which an agent says it. No member can say it: an agent passes on none of its headers but those that it
/// knows.
pub const SPENT: &str = "karmada-spent";

/// The longest time that is told to anybody.
const LONGEST: Duration = Duration::from_secs(2 * 3600);
/// After so long an agent is asked again.
const AGAIN: Duration = Duration::from_secs(15 * 60);
/// While one request asks again, the user's others wait so long for what comes of it; for the next, of which nothing was heard either,
/// twice as long.
const ONE: Duration = Duration::from_secs(60);
/// Of one cluster so many users are kept, as many as an agent tells apart.
const EACH: usize = 64;
/// And of all clusters together.
const MOST: usize = 1024;
/// The longest name that is kept, in bytes.
const NAME: usize = 256;

/// What is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent {
    /// Whose it is, and for how long.
    pub short: Short,
    /// What there is in an hour, in bytes.
    pub hourly: u64,
}

impl Spent {
    /// As it stands in [`SPENT`].
    pub fn told(self) -> String {
        let whose = match self.short {
            Short::Share(_) => "share",
            Short::All(_) => "all",
        };
        format!("{whose}-{}-{}", self.seconds(), self.hourly)
    }

    /// What stands in [`SPENT`]; none where that is something else.
    pub fn of(told: &str) -> Option<Self> {
        let mut words = told.split('-');
        let (whose, seconds, hourly) = (words.next()?, words.next()?, words.next()?);
        let wait = Duration::from_secs(seconds.parse().ok()?);
        let hourly = hourly.parse().ok()?;
        let short = match whose {
            "share" => Short::Share(wait),
            "all" => Short::All(wait),
            _ => return None,
        };
        words.next().is_none().then_some(Self { short, hourly })
    }

    /// How a user is refused.
    pub fn status(self) -> Status {
        let whose = match self.short {
            Short::Share(_) => "you have used up your share of their budget, which is half of it",
            Short::All(_) => "requests by its tunnel have used up their budget",
        };
        let seconds = self.seconds();
        let why = format!(
            "the link of this member is paid for by the byte, and {whose} ({} KiB in an hour): try again in {} min. The \
             member's owner raises it by karmada-agent --tunnel-budget",
            self.hourly >> 10,
            seconds.div_ceil(60)
        );
        Status::too_many_requests(why, u32::try_from(seconds).unwrap_or(u32::MAX))
    }

    /// After how many there is something again.
    fn seconds(self) -> u64 {
        let wait = self.short.wait();
        wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1)
    }
}

/// The query by which an agent that was called by this number says that it does not come. None where the number is none of a hub's.
pub fn decline(number: &str, spent: Spent) -> Option<String> {
    is_number(number).then(|| format!("number={number}&spent={}", spent.told()))
}

/// What such a query says.
pub fn declined(query: &str) -> Option<(&str, Spent)> {
    let (number, told) = query.strip_prefix("number=")?.split_once("&spent=")?;
    let spent = Spent::of(told).filter(|spent| matches!(spent.short, Short::All(_)))?;
    is_number(number).then_some((number, spent))
}

/// A uuid is one.
fn is_number(number: &str) -> bool {
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// That a request asks again. What comes of others of its user's says nothing of it: they may have been sent long before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn(u64);

/// What the hub keeps.
#[derive(Debug, Default)]
pub struct Memory {
    clusters: BTreeMap<String, Row>,
    turns: u64,
}

/// Of one cluster.
#[derive(Debug, Default)]
struct Row {
    /// Which agent has said it.
    by: String,
    all: Option<Kept>,
    users: BTreeMap<String, Kept>,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    at: Duration,
    wait: Duration,
    hourly: u64,
    /// Until when it is believed.
    until: Duration,
    /// It was not believed any more, and one request has asked again.
    asked: Option<Turn>,
    /// How long the next waits.
    pause: Duration,
}

impl Kept {
    /// What is left of the wait, while it is believed.
    fn left(&self, now: Duration) -> Option<Duration> {
        let left = self.wait.saturating_sub(now.saturating_sub(self.at));
        (now < self.until && !left.is_zero()).then_some(left)
    }
}

impl Row {
    fn clear(&mut self, now: Duration) {
        self.all = self.all.filter(|kept| kept.left(now).is_some());
        self.users.retain(|_, kept| kept.left(now).is_some());
    }

    fn is_empty(&self) -> bool {
        self.all.is_none() && self.users.is_empty()
    }

    fn len(&self) -> usize {
        usize::from(self.all.is_some()) + self.users.len()
    }

    /// When the oldest was told.
    fn oldest(&self) -> Option<Duration> {
        self.all.iter().chain(self.users.values()).map(|kept| kept.at).min()
    }

    /// Forgets the oldest user.
    fn forget_oldest_user(&mut self) {
        let oldest = self.users.iter().min_by_key(|(_, kept)| kept.at).map(|(user, _)| user.clone());
        if let Some(oldest) = oldest {
            self.users.remove(&oldest);
        }
    }

    /// Forgets the oldest.
    fn forget_oldest(&mut self) {
        let oldest = self.oldest();
        match self.all {
            Some(kept) if Some(kept.at) == oldest => self.all = None,
            _ => self.forget_oldest_user(),
        }
    }
}

impl Memory {
    /// Keeps what a cluster's agent has said to this user. `by` tells that agent apart from others of the cluster.
    pub fn keep(&mut self, (cluster, by): (&str, &str), user: &str, spent: Spent, now: Duration) {
        let wait = spent.short.wait().min(LONGEST);
        let kept = Kept { at: now, wait, hourly: spent.hourly, until: now + AGAIN, asked: None, pause: ONE };
        let is_all = matches!(spent.short, Short::All(_));
        if kept.left(now).is_none() || (!is_all && user.len() > NAME) {
            return;
        }
        self.forget_others(cluster, by);
        self.make_room(now);
        let new = || Row { by: by.to_owned(), ..Row::default() };
        let row = self.clusters.entry(cluster.to_owned()).or_insert_with(new);
        if is_all {
            row.all = Some(kept);
            return;
        }
        if row.users.len() >= EACH && !row.users.contains_key(user) {
            row.forget_oldest_user();
        }
        row.users.insert(user.to_owned(), kept);
    }

    /// Whether a request of this user's is sent to a cluster's agent. It asks again where that agent has refused the user before.
    ///
    /// # Errors
    /// What the user would hear from it.
    pub fn of(&mut self, cluster: &str, user: &str, now: Duration) -> Result<Option<Turn>, Spent> {
        let Some(row) = self.clusters.get_mut(cluster) else { return Ok(None) };
        if let Some((kept, left)) = row.all.and_then(|kept| Some((kept, kept.left(now)?))) {
            return Err(Spent { short: Short::All(left), hourly: kept.hourly });
        }
        let Some(kept) = row.users.get_mut(user) else { return Ok(None) };
        if let Some(left) = kept.left(now) {
            return Err(Spent { short: Short::Share(left), hourly: kept.hourly });
        }
        self.turns += 1;
        (kept.until, kept.asked) = (now + kept.pause, Some(Turn(self.turns)));
        kept.pause = (kept.pause * 2).min(AGAIN);
        Ok(kept.asked)
    }

    /// The request of this turn was not refused for that: others may go.
    pub fn goes(&mut self, cluster: &str, user: &str, turn: Turn) {
        let Some(row) = self.clusters.get_mut(cluster) else { return };
        if row.users.get(user).is_some_and(|kept| kept.asked == Some(turn)) {
            row.users.remove(user);
        }
        if row.is_empty() {
            self.clusters.remove(cluster);
        }
    }

    /// Nothing of the request of this turn was sent: another may ask.
    pub fn returns(&mut self, cluster: &str, user: &str, turn: Turn) {
        let kept = self.clusters.get_mut(cluster).and_then(|row| row.users.get_mut(user));
        if let Some(kept) = kept.filter(|kept| kept.asked == Some(turn)) {
            (kept.until, kept.asked) = (Duration::ZERO, None);
            kept.pause = (kept.pause / 2).max(ONE);
        }
    }

    /// Forgets what any other agent of a cluster has said.
    pub fn forget_others(&mut self, cluster: &str, by: &str) {
        if self.clusters.get(cluster).is_some_and(|row| row.by != by) {
            self.clusters.remove(cluster);
        }
    }

    /// A cluster's agent is there anew: what it has said is not believed any more.
    pub fn doubt(&mut self, cluster: &str) {
        let Some(row) = self.clusters.get_mut(cluster) else { return };
        row.all = None;
        for kept in row.users.values_mut() {
            kept.until = Duration::ZERO;
        }
        if row.is_empty() {
            self.clusters.remove(cluster);
        }
    }

    /// Room for one more.
    fn make_room(&mut self, now: Duration) {
        let count = |memory: &Self| memory.clusters.values().map(Row::len).sum::<usize>();
        if count(self) < MOST {
            return;
        }
        self.clusters.retain(|_, row| {
            row.clear(now);
            !row.is_empty()
        });
        if count(self) < MOST {
            return;
        }
        let oldest =
            self.clusters.iter().min_by_key(|(_, row)| row.oldest()).map(|(cluster, _)| cluster.clone());
        if let Some(oldest) = oldest
            && let Some(row) = self.clusters.get_mut(&oldest)
        {
            row.forget_oldest();
            if row.is_empty() {
                self.clusters.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOURLY: u64 = 4 << 20;

    fn after(seconds: u64) -> Duration {
        Duration::from_secs(1000 + seconds)
    }

    fn share(seconds: u64) -> Spent {
        Spent { short: Short::Share(Duration::from_secs(seconds)), hourly: HOURLY }
    }

    fn all(seconds: u64) -> Spent {
        Spent { short: Short::All(Duration::from_secs(seconds)), hourly: HOURLY }
    }

    /// What a user hears of it.
    fn heard(memory: &mut Memory, cluster: &str, user: &str, seconds: u64) -> Option<Spent> {
        memory.of(cluster, user, after(seconds)).err()
    }

    /// That a request of jane's asks again.
    fn turn(memory: &mut Memory, seconds: u64) -> Turn {
        memory.of("m", "jane", after(seconds)).unwrap().unwrap()
    }

    #[test]
    fn what_is_told_is_heard_and_nothing_else() {
        for (spent, told) in [(share(1201), "share-1201-4194304"), (all(60), "all-60-4194304")] {
            assert_eq!((spent.told().as_str(), Spent::of(told)), (told, Some(spent)));
        }
        let part = Spent { short: Short::Share(Duration::from_millis(1500)), hourly: HOURLY };
        assert_eq!(part.told(), "share-2-4194304", "no second too early");
        for told in
            ["", "share", "share-1", "some-1-1", "share-x-1", "share--1-1", "share-1-1-1", "share 1 1"]
        {
            assert_eq!(Spent::of(told), None, "{told:?}");
        }
    }

    #[test]
    fn a_refusal_says_whose_it_is_and_when_there_is_something_again() {
        for (spent, whose) in [(share(1201), "your share"), (all(1201), "requests by its tunnel")] {
            let status = spent.status();
            assert_eq!((status.code, status.reason.as_str()), (429, "TooManyRequests"));
            for word in [whose, "4096 KiB in an hour", "in 21 min", "--tunnel-budget"] {
                assert!(status.message.contains(word), "{status}");
            }
            assert_eq!(status.details.map(|details| details.retry_after_seconds), Some(1201));
        }
    }

    #[test]
    fn whoever_does_not_come_says_by_which_number() {
        let number = "6f1c-42";
        let query = decline(number, all(600)).unwrap();
        assert_eq!(
            (query.as_str(), declined(&query)),
            ("number=6f1c-42&spent=all-600-4194304", Some((number, all(600))))
        );
        for number in ["", "a&b", "a b", "a/../b", "a%20"] {
            assert_eq!(decline(number, all(600)), None, "{number:?}");
        }
        for query in [
            "",
            "number=a",
            "number=&spent=all-600-1",
            "number=a&spent=",
            // One user's share is said to that user.
            "number=a&spent=share-600-1",
            "number=a&spent=all-600-1&x=y",
            "number=a&b&spent=all-600-1",
            "spent=all-600-1&number=a",
        ] {
            assert_eq!(declined(query), None, "{query:?}");
        }
    }

    #[test]
    fn what_was_said_is_kept_for_its_time_and_for_whom_it_was_said() {
        let minutes = |minutes: u64| minutes * 60;
        // What jane heard; then, after so long: jane, john, and jane at another cluster.
        for (told, seconds, jane, john) in [
            (share(600), 0, Some(share(600)), None),
            (share(600), 599, Some(share(1)), None),
            (share(600), 600, None, None),
            (all(600), 1, Some(all(599)), Some(all(599))),
            (all(600), 600, None, None),
            // It is asked again, whatever was said.
            (share(4800), minutes(15) - 1, Some(share(4800 - 899)), None),
            (share(4800), minutes(15), None, None),
            (all(u64::MAX), 0, Some(all(7200)), Some(all(7200))),
            (all(u64::MAX), minutes(15), None, None),
            (share(0), 0, None, None),
        ] {
            let mut memory = Memory::default();
            memory.keep(("m", "1"), "jane", told, after(0));
            let heard = (heard(&mut memory, "m", "jane", seconds), heard(&mut memory, "m", "john", seconds));
            assert_eq!(heard, (jane, john), "{told:?} after {seconds} s");
            assert_eq!(memory.of("n", "jane", after(seconds)), Ok(None), "{told:?}");
        }
    }

    #[test]
    fn whoever_is_there_anew_is_asked_and_others_are_not() {
        let mut memory = Memory::default();
        for cluster in ["m", "n"] {
            memory.keep((cluster, "1"), "jane", share(600), after(0));
            memory.keep((cluster, "1"), "john", all(600), after(0));
        }
        memory.doubt("m");
        assert_eq!((heard(&mut memory, "m", "jane", 0), heard(&mut memory, "m", "john", 0)), (None, None));
        assert_eq!(heard(&mut memory, "n", "jane", 0), Some(all(600)));
        // When there is something for all again, she has still used up hers.
        memory.keep(("n", "1"), "jane", share(700), after(1));
        assert_eq!(heard(&mut memory, "n", "jane", 600), Some(share(101)));
    }

    #[test]
    fn whoever_was_refused_asks_again_by_one_request_at_a_time() {
        let again = AGAIN.as_secs();
        for by_tunnel in [false, true] {
            let mut memory = Memory::default();
            memory.keep(("m", "1"), "jane", share(4800), after(0));
            let at = if by_tunnel { 10 } else { again };
            if by_tunnel {
                memory.doubt("m");
            }
            let first = turn(&mut memory, at);
            for later in [0, 59] {
                assert_eq!(heard(&mut memory, "m", "jane", at + later), Some(share(4800 - at - later)));
            }
            // Nothing was heard of it.
            let second = turn(&mut memory, at + 60);
            // What was sent before says nothing.
            memory.goes("m", "jane", first);
            memory.returns("m", "jane", first);
            assert!(heard(&mut memory, "m", "jane", at + 60).is_some());
            // The next is waited for twice as long.
            assert!(heard(&mut memory, "m", "jane", at + 179).is_some());
            // It was not even sent.
            memory.returns("m", "jane", second);
            let third = turn(&mut memory, at + 60);
            memory.goes("m", "jane", second);
            assert!(heard(&mut memory, "m", "jane", at + 179).is_some());
            // It is refused.
            memory.keep(("m", "1"), "jane", share(3000), after(at + 61));
            memory.goes("m", "jane", third);
            memory.returns("m", "jane", third);
            let still = Some(share(3000 - again + 1));
            assert_eq!(heard(&mut memory, "m", "jane", at + 61 + again - 1), still);
            // It is not.
            let last = turn(&mut memory, at + 61 + again);
            memory.goes("m", "jane", last);
            for _ in 0..3 {
                assert_eq!(memory.of("m", "jane", after(at + 61 + again)), Ok(None));
            }
            assert!(memory.clusters.is_empty());
        }
    }

    #[test]
    fn what_another_agent_of_the_cluster_has_said_is_forgotten() {
        let mut memory = Memory::default();
        for cluster in ["m", "n"] {
            memory.keep((cluster, "1"), "jane", share(600), after(0));
            memory.keep((cluster, "1"), "john", all(600), after(0));
        }
        memory.forget_others("m", "1");
        assert_eq!(heard(&mut memory, "m", "jane", 0), Some(all(600)));
        // Its credentials were revoked, or its Cluster is another one.
        memory.forget_others("m", "2");
        assert_eq!((heard(&mut memory, "m", "jane", 0), heard(&mut memory, "m", "john", 0)), (None, None));
        assert_eq!(heard(&mut memory, "n", "jane", 0), Some(all(600)));
        // The same where the next one has something to say itself.
        memory.keep(("n", "2"), "jane", share(700), after(1));
        assert_eq!(heard(&mut memory, "n", "jane", 1), Some(share(700)));
        assert_eq!(heard(&mut memory, "n", "john", 1), None);
    }

    #[test]
    fn it_has_room_for_so_many() {
        let mut memory = Memory::default();
        // One agent's word takes nobody else's place.
        memory.keep(("other", "1"), "jane", share(900), after(0));
        for n in 0..10 * EACH as u64 {
            memory.keep(("m", "1"), &format!("user-{n}"), share(900), after(n / 10));
        }
        assert_eq!(memory.clusters["m"].users.len(), EACH);
        let last = format!("user-{}", 10 * EACH - 1);
        assert!(
            heard(&mut memory, "m", &last, 100).is_some() && heard(&mut memory, "m", "user-0", 100).is_none()
        );
        assert!(heard(&mut memory, "other", "jane", 100).is_some());
        let long = "x".repeat(NAME + 1);
        memory.keep(("m", "1"), &long, share(900), after(100));
        assert_eq!(heard(&mut memory, "m", &long, 100), None);
        // Of all the oldest goes, and first what holds no longer.
        let count = |memory: &Memory| memory.clusters.values().map(Row::len).sum::<usize>();
        for n in 0..2 * MOST {
            memory.keep((&format!("cluster-{n}"), "1"), "jane", all(900), after(100));
        }
        assert_eq!(count(&memory), MOST);
        assert_eq!(heard(&mut memory, "other", "jane", 100), None);
        memory.keep(("late", "1"), "jane", all(900), after(1000));
        assert_eq!((count(&memory), memory.clusters.len()), (1, 1));
    }
}
