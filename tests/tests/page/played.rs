//! A fleet of rows alone: the page is a real hub's, and what it hears of clusters is written here by the hub's own board.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use karmada_core::judge::words::{State, TEMPLATES, Told};
use karmada_env::Env;
use karmada_meta::query;
use karmada_ui::{
    board::{Board, News, Since},
    rows::Row,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::browser::Browser;

/// What time it is there in the beginning, in milliseconds since 1970: 2026-01-03T14:03:20Z.
const BEGAN: u64 = 1_767_449_000_000;

/// Clusters as they are told of. Clones are of the same.
#[derive(Clone)]
pub(crate) struct Played(Arc<Mutex<Inner>>);

struct Inner {
    board: Board,
    /// What has changed, for whoever has all up to a number: an answer that was given up is asked for once more.
    news: News,
    /// The number up to which the last answer told.
    told: u64,
    /// The values of the label `tier`.
    tiers: BTreeMap<String, String>,
    /// Whether the hub has read everything.
    synced: bool,
    /// What it says of one cluster, if that is not the hub's own to say.
    cluster: Option<Value>,
    /// When clusters were heard, in seconds since 1970.
    heard: BTreeMap<String, u64>,
    env: Env,
    began: Duration,
}

impl Inner {
    fn now(&self) -> u64 {
        let passed = self.env.now().saturating_sub(self.began);
        BEGAN + u64::try_from(passed.as_millis()).expect("a test is short")
    }

    /// What is said each time that the page asks: when those clusters were heard that it shows closely, and of no other.
    fn beat(&self, url: &str) -> Value {
        let mut beat = json!({"now": self.now(), "synced": self.synced});
        let watched = url.split(['?', '&']).find_map(|pair| pair.strip_prefix("watch="));
        if let Some(watched) = watched {
            let is_watched = |name: &str| watched.split("%2C").any(|one| one == name);
            let heard: BTreeMap<_, _> = self.heard.iter().filter(|(name, _)| is_watched(name)).collect();
            beat["heard"] = json!(heard);
        }
        beat
    }
}

impl Played {
    /// These clusters.
    pub(crate) fn new(rows: Vec<Row>) -> Self {
        let env = Env::system();
        let mut board = Board::new(1 << 40);
        board.update(rows);
        let (began, number) = (env.now(), board.number());
        Self(Arc::new(Mutex::new(Inner {
            board,
            news: News::new(number),
            told: number,
            tiers: BTreeMap::new(),
            synced: true,
            cluster: None,
            heard: BTreeMap::new(),
            env,
            began,
        })))
    }

    /// With these values of the label `tier`.
    pub(crate) fn with_tiers<'a>(self, tiers: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let own = |(name, tier): (&str, &str)| (name.to_owned(), tier.to_owned());
        self.0.lock().tiers = tiers.into_iter().map(own).collect();
        self
    }

    /// The hub has read everything from now on, or has not.
    pub(crate) fn synced(&self, synced: bool) {
        self.0.lock().synced = synced;
    }

    /// What time it is there, in seconds since 1970.
    pub(crate) fn seconds(&self) -> u64 {
        self.0.lock().now() / 1000
    }

    /// This is said of whichever cluster is shown. To be called before [`Self::on`].
    pub(crate) fn shows(&self, view: Value) {
        self.0.lock().cluster = Some(view);
    }

    /// This cluster is heard now.
    pub(crate) fn hears(&self, cluster: &str) {
        let mut inner = self.0.lock();
        let now = inner.now() / 1000;
        inner.heard.insert(cluster.to_owned(), now);
    }

    /// When any cluster was heard is not known any more.
    pub(crate) fn forgets(&self) {
        self.0.lock().heard.clear();
    }

    /// They are so from now on.
    pub(crate) fn update(&self, rows: Vec<Row>) {
        let mut inner = self.0.lock();
        if let Some(line) = inner.board.update(rows) {
            let number = inner.board.number();
            inner.news.add(number, line);
        }
    }

    /// Whether the last answer told all that has changed.
    pub(crate) fn is_told(&self) -> bool {
        let inner = self.0.lock();
        inner.told == inner.board.number()
    }

    /// What the page asks of all clusters is answered from here.
    pub(crate) fn on(&self, browser: &mut Browser) {
        let played = self.clone();
        let mut patterns = vec!["/ui/api/fleet", "/ui/live*", "/ui/api/labels*"];
        if self.0.lock().cluster.is_some() {
            patterns.push("/ui/api/cluster?*");
        }
        browser.answer(
            &patterns,
            Box::new(move |url| {
                let mut inner = played.0.lock();
                let now = inner.now();
                if url.contains("/ui/live") {
                    let beat = inner.beat(url);
                    let mut lines = beat.to_string().into_bytes();
                    lines.push(b'\n');
                    let (_, asked) = url.split_once('?').expect("a query");
                    let since = query::first(asked, "since").expect("what the page has");
                    match inner.news.since(since.parse().expect("a number")) {
                        Since::Batches(batches, number) => {
                            batches.iter().for_each(|line| lines.extend_from_slice(line));
                            inner.told = number;
                        }
                        Since::All => lines.extend_from_slice(b"{\"again\":true}\n"),
                    }
                    return ("application/x-ndjson", None, lines);
                }
                let document = if url.contains("/ui/api/cluster") {
                    json!(inner.cluster).to_string().into_bytes()
                } else if url.contains("key=tier") {
                    json!({"key": "tier", "values": inner.tiers}).to_string().into_bytes()
                } else if url.contains("/ui/api/labels") {
                    json!({"keys": [["tier", inner.tiers.len()]]}).to_string().into_bytes()
                } else {
                    inner.told = inner.board.number();
                    inner.board.whole(json!({"hub": "0.1.0"}))
                };
                ("application/json", Some(("x-karmada-now", now.to_string())), document)
            }),
        );
    }
}

/// A cluster in this state, told by the first sentence for it, since 14:02.
pub(crate) fn row(name: &str, state: State) -> Row {
    let (_, template) = *TEMPLATES.iter().find(|(of, _)| *of == state).unwrap();
    Row {
        name: name.into(),
        told: Told { state, at: "2026-01-03T14:02:00Z".parse().unwrap(), template },
        flags: 0,
        region: "eu-west".into(),
        link: "lan".into(),
        kubernetes: "v1.36.2".into(),
        agent: "0.1.0".into(),
        certificate: None,
        waiting: 0,
        failed: 0,
    }
}

/// A script that comes to what is in a list of elements.
pub(crate) fn texts(selector: &str) -> String {
    format!("[...document.querySelectorAll({selector:?})].map((one) => one.textContent.trim())")
}

/// As a list of texts.
pub(crate) fn list(value: &Value) -> Vec<String> {
    value.as_array().expect("a list").iter().map(|one| one.as_str().expect("a text").to_owned()).collect()
}
