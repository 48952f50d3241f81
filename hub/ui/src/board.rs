//! All clusters as the page shows them, and what has changed of late.
//!
//! ```text
//!   all rows, once a second ─▶ Board ──▶ the whole, for whoever comes
//!                                └─ a batch ─▶ News ──▶ what changed, for whoever has all up to a number
//! ```
//!
//! A batch is written once, whoever reads it. So many are kept; who is further behind reads the whole again. Board and news
//! are apart since the board takes a while, with ten thousand clusters, and the news are asked for by everybody who looks.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use bytes::Bytes;
use karmada_core::judge::words::{State, TEMPLATES};
use serde::Serialize;
use serde_json::{Value, json};

use crate::rows::{FIELDS, FLAGS, Row};

/// So many batches are kept: for about a minute of changes in every second.
const KEPT: usize = 64;
/// And no more bytes than these.
const KEPT_BYTES: usize = 4 << 20;

/// What whoever has all up to a number lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Since {
    /// These lines, and then they have all up to the number.
    Batches(Vec<Bytes>, u64),
    /// All of it.
    All,
}

/// All clusters: see the module.
#[derive(Debug, Default)]
pub struct Board {
    rows: BTreeMap<Arc<str>, Row>,
    number: u64,
}

/// What has changed of late: see the module.
#[derive(Debug, Default)]
pub struct News {
    number: u64,
    batches: VecDeque<(u64, Bytes)>,
    bytes: usize,
}

#[derive(Serialize)]
struct Batch<'a> {
    number: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rows: Vec<&'a Row>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gone: Vec<&'a str>,
}

#[derive(Serialize)]
struct Whole<'a> {
    number: u64,
    #[serde(flatten)]
    about: Value,
    rows: Vec<&'a Row>,
}

impl Board {
    /// An empty one. Numbers begin at `number`, so that those of another are not taken for its.
    pub fn new(number: u64) -> Self {
        Self { number, rows: BTreeMap::new() }
    }

    /// The number of what it is now.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// All clusters, as they are now. Answers the batch by which they became so from what they were, if anything has changed;
    /// it has the board's number.
    pub fn update(&mut self, rows: Vec<Row>) -> Option<Bytes> {
        let mut before = std::mem::take(&mut self.rows);
        let mut changed = Vec::new();
        for row in rows {
            if before.remove(&row.name).is_none_or(|old| old != row) {
                changed.push(row.name.clone());
            }
            self.rows.insert(row.name.clone(), row);
        }
        let gone: Vec<&str> = before.keys().map(|name| &**name).collect();
        if changed.is_empty() && gone.is_empty() {
            return None;
        }
        self.number += 1;
        let rows = changed.iter().filter_map(|name| self.rows.get(name)).collect();
        let mut line = serde_json::to_vec(&Batch { number: self.number, rows, gone })
            .expect("invariant: rows are lists of plain values");
        line.push(b'\n');
        Some(line.into())
    }

    /// Everything, with the words for it, and `about` beside.
    pub fn whole(&self, mut about: Value) -> Vec<u8> {
        about["fields"] = json!(FIELDS);
        about["flags"] = json!(FLAGS);
        about["templates"] = TEMPLATES.iter().map(|(state, text)| json!([state.name(), text])).collect();
        about["states"] = State::ALL
            .iter()
            .map(|state| {
                let tone = state.tone();
                json!({"name": state.name(), "heading": state.heading(), "tone": tone.name(), "glyph": tone.glyph()})
            })
            .collect();
        let rows = self.rows.values().collect();
        serde_json::to_vec(&Whole { number: self.number, about, rows })
            .expect("invariant: rows are lists of plain values")
    }

    /// How many clusters there are in each state.
    pub fn counts(&self) -> BTreeMap<&'static str, usize> {
        let mut counts: BTreeMap<_, _> = State::ALL.iter().map(|state| (state.name(), 0)).collect();
        for row in self.rows.values() {
            *counts.entry(row.told.state.name()).or_default() += 1;
        }
        counts
    }

    /// Of each class of link how many clusters are heard and how many there are, those of most clusters first.
    pub fn links(&self, most: usize) -> Vec<(Arc<str>, usize, usize)> {
        let mut links = BTreeMap::<Arc<str>, (usize, usize)>::new();
        for row in self.rows.values() {
            let (heard, of) = links.entry(row.link.clone()).or_default();
            *heard += usize::from(row.told.state.is_heard());
            *of += 1;
        }
        let mut links: Vec<_> = links.into_iter().map(|(link, (heard, of))| (link, heard, of)).collect();
        links.sort_by(|(a, _, many), (b, _, more)| more.cmp(many).then_with(|| a.cmp(b)));
        links.truncate(most);
        links
    }

    /// The clusters that have been silent for longest.
    pub fn silent(&self, most: usize) -> Vec<&Row> {
        let silent = |row: &&Row| matches!(row.told.state, State::Silent | State::Expected | State::Quiet);
        let mut rows: Vec<_> = self.rows.values().filter(silent).collect();
        rows.sort_by_key(|row| row.told.at);
        rows.truncate(most);
        rows
    }
}

impl News {
    /// None yet, of a board that has this number.
    pub fn new(number: u64) -> Self {
        Self { number, ..Self::default() }
    }

    /// The board's number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// A board has this number now, by this batch.
    pub fn add(&mut self, number: u64, line: Bytes) {
        self.number = number;
        self.bytes += line.len();
        self.batches.push_back((number, line));
        while self.batches.len() > KEPT || (self.bytes > KEPT_BYTES && self.batches.len() > 1) {
            if let Some((_, line)) = self.batches.pop_front() {
                self.bytes -= line.len();
            }
        }
    }

    /// What whoever has all up to `number` lacks.
    pub fn since(&self, number: u64) -> Since {
        if number == self.number {
            return Since::Batches(Vec::new(), number);
        }
        let first = self.batches.front().map_or(u64::MAX, |(first, _)| *first);
        // Whoever knows what is yet to come knows another board.
        if number > self.number || number + 1 < first {
            return Since::All;
        }
        let lines = self.batches.iter().filter(|(of, _)| *of > number).map(|(_, line)| line.clone());
        Since::Batches(lines.collect(), self.number)
    }
}

#[cfg(test)]
mod tests {
    use karmada_core::judge::words::Told;

    use super::*;
    use crate::rows::tests::row;

    /// A board, and the news of it.
    struct Both(Board, News);

    impl Both {
        fn new(number: u64) -> Self {
            Self(Board::new(number), News::new(number))
        }

        fn update(&mut self, rows: Vec<Row>) -> bool {
            let line = self.0.update(rows);
            line.into_iter().map(|line| self.1.add(self.0.number(), line)).count() > 0
        }
    }

    fn lines(since: Since) -> Vec<Value> {
        let Since::Batches(lines, _) = since else { panic!("all of it") };
        lines.iter().map(|line| serde_json::from_slice(line).unwrap()).collect()
    }

    #[test]
    fn who_is_connected_is_counted_by_link() {
        let since = |row: Row, at: &str| Row {
            told: Told { at: format!("2026-01-03T{at}:00Z").parse().unwrap(), ..row.told },
            ..row
        };
        let by = |row: Row, link: &str| Row { link: link.into(), ..row };
        let mut board = Board::new(1);
        board.update(vec![
            by(row("a", State::Ready), "lan"),
            by(row("b", State::Api), "lan"),
            since(by(row("c", State::Silent), "lan"), "14:00"),
            since(row("d", State::Expected), "13:00"),
            since(row("e", State::Quiet), "14:01"),
            since(row("f", State::New), "12:00"),
        ]);
        let links: Vec<_> =
            board.links(9).iter().map(|(link, heard, of)| (link.to_string(), *heard, *of)).collect();
        assert_eq!(links, [("cellular".to_owned(), 1, 3), ("lan".to_owned(), 2, 3)]);
        assert_eq!(board.links(1).len(), 1);
        let names = |rows: Vec<&Row>| rows.iter().map(|row| row.name.to_string()).collect::<Vec<_>>();
        assert_eq!(names(board.silent(9)), ["d", "c", "e"]);
        assert_eq!(names(board.silent(1)), ["d"]);
    }

    #[test]
    fn what_has_changed_is_told_once() {
        let mut board = Both::new(7);
        assert!(board.update(vec![row("a", State::Ready), row("b", State::Ready)]));
        assert!(!board.update(vec![row("a", State::Ready), row("b", State::Ready)]));
        assert!(board.update(vec![row("a", State::Silent), row("c", State::Ready)]));
        let told = lines(board.1.since(8));
        assert_eq!(told.len(), 1);
        let names: Vec<_> =
            told[0]["rows"].as_array().unwrap().iter().map(|row| row[0].as_str().unwrap()).collect();
        assert_eq!((names, &told[0]["gone"], &told[0]["number"]), (vec!["a", "c"], &json!(["b"]), &json!(9)));
        assert_eq!(lines(board.1.since(9)), Vec::<Value>::new());
        for other in [0, 6, 10] {
            assert_eq!(board.1.since(other), Since::All, "{other}");
        }
        assert_eq!(lines(board.1.since(7)).len(), 2);
        let counts = board.0.counts();
        assert_eq!((counts.values().sum::<usize>(), counts["silent"]), (2, 1));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut board = Both::new(0);
        for n in 0..2 * KEPT {
            assert!(board.update(vec![row(&format!("c{n}"), State::Ready)]));
        }
        assert_eq!((board.1.batches.len(), board.1.since(1)), (KEPT, Since::All));
        assert_eq!(lines(board.1.since(2 * KEPT as u64 - 1)).len(), 1);
        let many = |state| (0..30_000).map(|n| row(&format!("cluster-{n:05}"), state)).collect::<Vec<_>>();
        for n in 0..10 {
            board.update(many(if n % 2 == 0 { State::Silent } else { State::Ready }));
        }
        assert!(
            board.1.bytes <= KEPT_BYTES && board.1.batches.len() < 3,
            "{} {}",
            board.1.bytes,
            board.1.batches.len()
        );
    }

    #[test]
    fn ten_thousand_clusters_are_two_megabytes_and_less_in_gzip() {
        let mut board = Board::new(0);
        board.update((0..10_000).map(|n| row(&format!("shop-{n:05}"), State::Ready)).collect());
        let whole = board.whole(json!({"now": 0}));
        let small = crate::assets::gzip(&whole, 1);
        assert!(whole.len() <= 2_000_000 && small.len() <= 300_000, "{} {}", whole.len(), small.len());
    }
}
