//! Which clusters have a tunnel, and which agents have been asked to dial. Says what is to be done, and does nothing.
//!
//! There is a row for a cluster while somebody uses it or waits for it, and none otherwise. Requests to many clusters open a
//! part of all that there may be, and those of one user half of that: others find room, and agents that nobody asked for
//! themselves are not all woken at once. What is open serves everybody.

use std::{collections::HashMap, sync::Arc, time::Duration};

use karmada_client::latest;
use karmada_meta::status::Status;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long an agent has to come.
pub(super) const CALL: Duration = Duration::from_secs(10);

/// An agent that dials once more waits longer than that before. One that has two addresses of the hub dials both at once, and leaves one.
const ANEW: Duration = Duration::from_millis(900);

/// How a call ends: with a tunnel, or not.
pub(super) type Outcome<T> = Option<Result<T, Status>>;

/// See the module.
pub(super) struct Book<T> {
    most: usize,
    rows: HashMap<String, Row<T>>,
    /// Rows for requests to many, and of those the users'.
    many: usize,
    each: HashMap<Arc<str>, usize>,
    /// When it was looked last what has come to nothing.
    cleared: Option<Instant>,
}

/// Between two looks at all rows for requests to many.
const LOOK: Duration = Duration::from_secs(1);
/// Of all rows so many are for requests to many clusters.
const MANY: usize = 4;

/// What is known of one cluster.
struct Row<T> {
    /// By which its agent was asked.
    number: String,
    /// Until when it has to come.
    until: Instant,
    /// With which credential it has come.
    by: Option<String>,
    /// How often it has come.
    turn: u32,
    /// When it has come last.
    came: Instant,
    /// That it has come again.
    replaced: CancellationToken,
    stage: Stage<T>,
    /// By whose request to many clusters it was wanted, if nobody has asked this one alone.
    many: Option<Arc<str>>,
}

enum Stage<T> {
    /// It has been asked.
    Called(latest::Sender<Outcome<T>>),
    /// It is there, and says its first words.
    Coming(latest::Sender<Outcome<T>>),
    Open(T),
}

/// What there is to do for a request.
pub(super) enum Found<T> {
    /// It goes by this.
    Open(T),
    /// The agent has been asked already.
    Wait(Instant, latest::Receiver<Outcome<T>>),
    /// The agent is to be asked by this number.
    Call(String, Instant, latest::Receiver<Outcome<T>>),
}

/// Why an agent is sent away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unasked {
    /// By another number, none at all, or too late.
    NotCalled,
    /// Another has come by this number.
    Taken,
}

impl<T: Clone> Book<T> {
    /// So many clusters at a time.
    pub(super) fn new(most: usize) -> Self {
        Self { most: most.max(1), rows: HashMap::new(), many: 0, each: HashMap::new(), cleared: None }
    }

    /// What there is for a cluster; with the user by whose request to many it is wanted, if it is one. `works`: whether a tunnel
    /// still does.
    pub(super) fn find(
        &mut self,
        (cluster, many): (&str, Option<&str>),
        now: Instant,
        works: impl Fn(&T) -> bool,
        number: impl FnOnce() -> String,
    ) -> Result<Found<T>, Status> {
        if many.is_none()
            && let Some(user) = self.rows.get_mut(cluster).and_then(|row| row.many.take())
        {
            self.less(&user);
        }
        match self.rows.get(cluster).map(|row| (&row.stage, row.until)) {
            Some((Stage::Open(tunnel), _)) if works(tunnel) => return Ok(Found::Open(tunnel.clone())),
            Some((Stage::Called(told) | Stage::Coming(told), until)) if until > now => {
                return Ok(Found::Wait(until, told.subscribe()));
            }
            _ => {}
        }
        if self.rows.len() >= self.most && !self.rows.contains_key(cluster) {
            self.clear(now, &works);
            if self.rows.len() >= self.most {
                return Err(Status::too_many_requests(
                    format!("{} tunnels are open; try again", self.most),
                    1,
                ));
            }
        }
        let many = match many {
            Some(user) => Some(self.one_of_many(cluster, user, now, &works)?),
            None => None,
        };
        let (number, until) = (number(), now + CALL);
        let told = latest::Sender::new(None);
        let hears = told.subscribe();
        let row = Row {
            number: number.clone(),
            until,
            by: None,
            turn: 0,
            came: now,
            replaced: CancellationToken::new(),
            stage: Stage::Called(told),
            many,
        };
        self.end(cluster);
        if let Some(user) = &row.many {
            self.many += 1;
            *self.each.entry(user.clone()).or_default() += 1;
        }
        self.rows.insert(cluster.to_owned(), row);
        Ok(Found::Call(number, until, hears))
    }

    /// Room for a row for a request to many clusters.
    fn one_of_many(
        &mut self,
        cluster: &str,
        user: &str,
        now: Instant,
        works: impl Fn(&T) -> bool,
    ) -> Result<Arc<str>, Status> {
        let most = (self.most / MANY).max(2);
        let is_full =
            |book: &Self| book.many >= most || book.each.get(user).is_some_and(|count| *count >= most / 2);
        if is_full(self) && self.cleared.is_none_or(|last| now.duration_since(last) >= LOOK) {
            self.cleared = Some(now);
            self.clear(now, works);
        }
        if is_full(self) {
            return Err(Status::too_many_requests(
                format!(
                    "cluster {cluster} has no open tunnel, and as many as may be were opened for requests to many clusters: \
                     ask for it by its name"
                ),
                1,
            ));
        }
        Ok(self.each.get_key_value(user).map_or_else(|| user.into(), |(user, _)| user.clone()))
    }

    /// Takes away what has come to nothing.
    fn clear(&mut self, now: Instant, works: impl Fn(&T) -> bool) {
        let is_over = |row: &Row<T>| match &row.stage {
            Stage::Called(_) | Stage::Coming(_) => row.until <= now,
            Stage::Open(tunnel) => !works(tunnel),
        };
        let over = self.rows.iter().filter(|(_, row)| is_over(row)).map(|(cluster, _)| cluster.clone());
        for cluster in over.collect::<Vec<_>>() {
            self.end(&cluster);
        }
    }

    /// Takes a row away.
    fn end(&mut self, cluster: &str) -> Option<Row<T>> {
        let row = self.rows.remove(cluster)?;
        if let Some(user) = &row.many {
            self.less(user);
        }
        Some(row)
    }

    fn less(&mut self, user: &Arc<str>) {
        self.many -= 1;
        if let Some(count) = self.each.get_mut(user) {
            *count -= 1;
            if *count == 0 {
                self.each.remove(user);
            }
        }
    }

    /// An agent has come by a number, with this credential: for which time, and what says that it has come again. Who comes again
    /// takes the place of what they came with before, if nothing was heard on that (`is_new`) for a [moment](ANEW): it has broken,
    /// and nobody has told the hub.
    pub(super) fn comes(
        &mut self,
        cluster: &str,
        number: &str,
        by: Option<&str>,
        now: Instant,
        is_new: impl Fn(&T) -> bool,
    ) -> Result<(u32, CancellationToken), Unasked> {
        let row = self.rows.get_mut(cluster).filter(|row| row.number == number).ok_or(Unasked::NotCalled)?;
        let is_itself = row.by.is_some() && row.by.as_deref() == by;
        let may_again = is_itself && row.until > now && now.duration_since(row.came) >= ANEW;
        let told = match &row.stage {
            Stage::Called(_) if row.until <= now => return Err(Unasked::NotCalled),
            Stage::Called(told) if row.by.is_none() || is_itself => told.clone(),
            Stage::Coming(told) if may_again => told.clone(),
            Stage::Open(tunnel) if may_again && is_new(tunnel) => latest::Sender::new(None),
            Stage::Called(_) | Stage::Coming(_) | Stage::Open(_) => return Err(Unasked::Taken),
        };
        row.by = by.map(str::to_owned);
        row.turn += 1;
        row.came = now;
        row.stage = Stage::Coming(told);
        std::mem::take(&mut row.replaced).cancel();
        Ok((row.turn, row.replaced.clone()))
    }

    /// Whether an agent has been asked by this number, and nothing has come of it.
    pub(super) fn is_called(&self, cluster: &str, number: &str) -> bool {
        let row = self.rows.get(cluster).filter(|row| row.number == number);
        row.is_some_and(|row| matches!(row.stage, Stage::Called(_)))
    }

    /// The connection of this number has broken off before anything was heard on it: whoever has come may come again while there is
    /// time, and nobody else. Whether there is.
    pub(super) fn again(&mut self, cluster: &str, (number, turn): (&str, u32), now: Instant) -> bool {
        let row = self.rows.get_mut(cluster).filter(|row| row.number == number && row.turn == turn);
        let Some(row) = row.filter(|row| row.by.is_some() && row.until > now) else {
            return false;
        };
        let told = match &row.stage {
            Stage::Called(told) | Stage::Coming(told) => told.clone(),
            Stage::Open(_) => latest::Sender::new(None),
        };
        row.stage = Stage::Called(told);
        true
    }

    /// It is ready. Whether it is still wanted.
    pub(super) fn opens(&mut self, cluster: &str, (number, turn): (&str, u32), tunnel: T) -> bool {
        let row = self.rows.get_mut(cluster).filter(|row| row.number == number && row.turn == turn);
        let Some(row) = row else { return false };
        let Stage::Coming(told) = &row.stage else { return false };
        told.send_replace(Some(Ok(tunnel.clone())));
        row.stage = Stage::Open(tunnel);
        true
    }

    /// What an agent came with for this time is over. If it has come again since, that goes on.
    pub(super) fn breaks(&mut self, cluster: &str, (number, turn): (&str, u32), why: Status) {
        if self.rows.get(cluster).is_some_and(|row| row.turn == turn) {
            self.ends(cluster, number, why);
        }
    }

    /// What belongs to this number is over. Whoever waits hears why.
    pub(super) fn ends(&mut self, cluster: &str, number: &str, why: Status) {
        if self.rows.get(cluster).is_none_or(|row| row.number != number) {
            return;
        }
        if let Some(Row { stage: Stage::Called(told) | Stage::Coming(told), .. }) = self.end(cluster) {
            told.send_replace(Some(Err(why)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BY: Option<&str> = Some("X509SHA256=a");
    const OTHER: Option<&str> = Some("X509SHA256=b");

    fn find(book: &mut Book<u8>, cluster: &str, at: Instant, number: &str) -> String {
        find_for(book, (cluster, None), at, number)
    }

    fn find_for(book: &mut Book<u8>, wanted: (&str, Option<&str>), at: Instant, number: &str) -> String {
        match book.find(wanted, at, |tunnel| *tunnel != 0, || number.to_owned()) {
            Ok(Found::Open(tunnel)) => format!("open {tunnel}"),
            Ok(Found::Wait(..)) => "wait".to_owned(),
            Ok(Found::Call(number, ..)) => format!("call {number}"),
            Err(status) => status.code().to_string(),
        }
    }

    /// Nothing was heard of 9.
    fn comes(
        book: &mut Book<u8>,
        cluster: &str,
        number: &str,
        by: Option<&str>,
        at: Instant,
    ) -> Result<u32, Unasked> {
        book.comes(cluster, number, by, at, |tunnel| *tunnel == 9).map(|(turn, _)| turn)
    }

    #[test]
    fn one_call_at_a_time_and_one_answer_to_each() {
        let (mut book, start) = (Book::new(10), Instant::now());
        assert_eq!(find(&mut book, "m", start, "a"), "call a");
        assert_eq!(find(&mut book, "m", start + CALL / 2, "b"), "wait");
        let Ok(Found::Wait(_, hears)) = book.find(("m", None), start, |_| true, String::new) else {
            panic!("somebody waits");
        };
        for (cluster, number) in [("m", "b"), ("n", "a"), ("m", "")] {
            assert_eq!(
                comes(&mut book, cluster, number, BY, start),
                Err(Unasked::NotCalled),
                "{cluster} {number}"
            );
        }
        assert!(book.is_called("m", "a") && !book.is_called("m", "b") && !book.is_called("n", "a"));
        assert_eq!(comes(&mut book, "m", "a", BY, start), Ok(1));
        assert!(!book.is_called("m", "a"), "it has come");
        assert_eq!(
            comes(&mut book, "m", "a", OTHER, start),
            Err(Unasked::Taken),
            "a second agent of that name"
        );
        assert_eq!(find(&mut book, "m", start, "b"), "wait");
        assert!(book.opens("m", ("a", 1), 7));
        assert!(matches!(*hears.borrow(), Some(Ok(7))));
        assert_eq!(find(&mut book, "m", start, "b"), "open 7");
        assert_eq!(comes(&mut book, "m", "a", BY, start), Err(Unasked::Taken));
        book.ends("m", "b", Status::internal("another's"));
        assert_eq!(find(&mut book, "m", start, "b"), "open 7");
        book.ends("m", "a", Status::internal("over"));
        assert_eq!(comes(&mut book, "m", "a", BY, start), Err(Unasked::NotCalled), "a number is good once");
        assert!(book.rows.is_empty(), "nothing is kept of what has ended");
    }

    #[test]
    fn who_comes_too_late_is_sent_away() {
        let (mut book, start) = (Book::new(10), Instant::now());
        find(&mut book, "m", start, "a");
        assert_eq!(comes(&mut book, "m", "a", BY, start + CALL), Err(Unasked::NotCalled));
        assert_eq!(find(&mut book, "m", start + CALL, "b"), "call b");
        assert_eq!(comes(&mut book, "m", "a", BY, start + CALL), Err(Unasked::NotCalled));
        assert_eq!(comes(&mut book, "m", "b", BY, start + CALL), Ok(1));
        // One that never gets ready holds up nobody for longer.
        assert_eq!(find(&mut book, "m", start + 2 * CALL, "c"), "call c");
        assert!(!book.opens("m", ("b", 1), 1));
    }

    #[test]
    fn whoever_broke_off_before_a_word_was_heard_may_come_again_and_nobody_else() {
        let (mut book, start) = (Book::new(10), Instant::now());
        let Ok(Found::Call(_, _, hears)) = book.find(("m", None), start, |_| true, || "a".to_owned()) else {
            panic!("it is called");
        };
        assert!(!book.again("m", ("a", 0), start), "nobody has come");
        comes(&mut book, "m", "a", BY, start).unwrap();
        // Before it has opened: whoever waits still does.
        assert!(!book.again("m", ("b", 1), start) && !book.again("n", ("a", 1), start));
        assert!(book.again("m", ("a", 1), start));
        assert!(hears.borrow().is_none());
        assert_eq!(find(&mut book, "m", start, "b"), "wait");
        let others = |book: &mut Book<u8>| {
            for by in [OTHER, None] {
                assert_eq!(comes(book, "m", "a", by, start), Err(Unasked::Taken), "{by:?}");
            }
        };
        others(&mut book);
        assert_eq!(comes(&mut book, "m", "a", BY, start), Ok(2));
        // And after that, as far as the hub could know.
        assert!(book.opens("m", ("a", 2), 7));
        assert!(matches!(*hears.borrow(), Some(Ok(7))));
        assert!(book.again("m", ("a", 2), start));
        assert_eq!(find(&mut book, "m", start, "b"), "wait");
        assert_eq!(comes(&mut book, "m", "a", BY, start), Ok(3));
        // Also where the hub has not noticed; what there was before is over then.
        for turn in [3, 5] {
            others(&mut book);
            assert_eq!(comes(&mut book, "m", "a", BY, start + ANEW * turn), Ok(turn + 1));
            assert!(!book.again("m", ("a", turn), start) && !book.opens("m", ("a", turn), 7));
            book.breaks("m", ("a", turn), Status::internal("over"));
            assert_eq!(find(&mut book, "m", start, "b"), "wait");
            if turn == 3 {
                assert!(book.opens("m", ("a", 4), 9));
                assert_eq!(find(&mut book, "m", start, "b"), "open 9");
                assert_eq!(comes(&mut book, "m", "a", BY, start + CALL), Err(Unasked::Taken), "too late");
                // By two addresses of the hub at once.
                assert_eq!(comes(&mut book, "m", "a", BY, start + ANEW * 7 / 2), Err(Unasked::Taken));
                assert_eq!(comes(&mut book, "m", "a", BY, start + ANEW * 4), Ok(5));
            }
        }
        assert!(book.opens("m", ("a", 6), 8));
        assert_eq!(find(&mut book, "m", start, "b"), "open 8");
        assert_eq!(comes(&mut book, "m", "a", BY, start + ANEW * 9), Err(Unasked::Taken), "it was heard");
        // It has no more time for that.
        assert!(!book.again("m", ("a", 6), start + CALL));
        // What is replaced is told.
        assert_eq!(find(&mut book, "o", start, "a"), "call a");
        let came = [0, 1, 2].map(|n| book.comes("o", "a", BY, start + ANEW * n, |_| true).unwrap().1);
        assert_eq!(came.map(|one| one.is_cancelled()), [true, true, false]);
        // Of whom nobody knows with what they have come, nobody can come again.
        book.find(("n", None), start, |_| true, || "a".to_owned()).unwrap();
        comes(&mut book, "n", "a", None, start).unwrap();
        assert!(!book.again("n", ("a", 1), start));
    }

    #[test]
    fn a_tunnel_that_works_no_longer_is_asked_for_anew() {
        let (mut book, start) = (Book::new(10), Instant::now());
        find(&mut book, "m", start, "a");
        comes(&mut book, "m", "a", BY, start).unwrap();
        assert!(book.opens("m", ("a", 1), 0));
        assert_eq!(find(&mut book, "m", start, "b"), "call b");
    }

    #[test]
    fn whoever_waits_hears_why_it_came_to_nothing() {
        let (mut book, start) = (Book::new(10), Instant::now());
        let Ok(Found::Call(number, _, hears)) =
            book.find(("m", None), start, |_: &u8| true, || "a".to_owned())
        else {
            panic!("it is called");
        };
        book.ends("m", &number, Status::service_unavailable("it was not asked"));
        assert!(matches!(&*hears.borrow(), Some(Err(status)) if status.message.contains("not asked")));
    }

    #[test]
    fn there_are_only_so_many() {
        let (mut book, start) = (Book::new(2), Instant::now());
        assert_eq!(find(&mut book, "a", start, "1"), "call 1");
        assert_eq!(find(&mut book, "b", start, "2"), "call 2");
        assert_eq!(find(&mut book, "c", start, "3"), "429");
        assert_eq!(find(&mut book, "b", start, "3"), "wait");
        // What came to nothing makes room.
        assert_eq!(find(&mut book, "c", start + CALL, "3"), "call 3");
    }

    #[test]
    fn requests_to_many_leave_room() {
        let (mut book, start) = (Book::new(16), Instant::now());
        let many = |book: &mut Book<u8>, cluster: &str, user: &str, at| {
            find_for(book, (cluster, Some(user)), at, cluster)
        };
        for (cluster, user, want) in [
            ("a", "jane", "call a"),
            ("b", "jane", "call b"),
            ("c", "jane", "429"),
            ("c", "joe", "call c"),
            ("a", "joe", "wait"),
            ("d", "joe", "call d"),
            ("e", "jim", "429"),
        ] {
            assert_eq!(many(&mut book, cluster, user, start), want, "{cluster} {user}");
        }
        assert_eq!(find(&mut book, "e", start, "e"), "call e", "one is asked by its name");
        assert_eq!(many(&mut book, "e", "jim", start), "wait", "what is there serves all");
        // Whoever is asked by name counts no more.
        assert_eq!(find(&mut book, "a", start, "x"), "wait");
        assert_eq!(many(&mut book, "f", "jane", start), "call f");
        // Nor does what has come to nothing, or has ended.
        comes(&mut book, "b", "b", BY, start).unwrap();
        assert!(book.opens("b", ("b", 1), 1));
        assert_eq!(many(&mut book, "g", "joe", start + CALL), "call g");
        book.ends("b", "b", Status::internal("over"));
        book.ends("g", "g", Status::internal("over"));
        assert_eq!((book.many, book.each.len()), (0, 0));
    }
}
