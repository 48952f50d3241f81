//! One watch for many: what it tells goes to whoever has an ear for it, so that they open none of their own.
//!
//! ```text
//!   a watch ── tells ─▶ Share ─┬─▶ Ear: the newest of each object ─▶ Watcher: lists once, then hears
//!    (in this process)         └─▶ Ear …
//! ```
//!
//! An ear keeps one state of each object of its part, for however long nobody listens: of what changes several times before
//! that, the last is heard. Whoever lists after having got an ear misses nothing: a list tells what is there at its revision,
//! and what is newer is told. Where the watch may have missed something all are told to list anew.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fmt,
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Which objects of a collection somebody has an ear for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of them.
    All,
    /// Those of a namespace.
    Namespace(String),
    /// One, by its namespace, which is empty for objects of the whole cluster, and its name.
    Object(String, String),
}

/// What is told of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// It is there; else it was deleted, and this is its last state.
    pub there: bool,
    /// Its JSON.
    pub text: Arc<str>,
    /// Of which revision that is, where that is a number.
    pub revision: Option<u64>,
}

/// What an ear hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Something of an object.
    News(News),
    /// Something may have been missed: everything is to be listed.
    Anew,
}

/// Gives what one watch tells to many. Cheap to clone.
#[derive(Clone, Default)]
pub struct Share(Arc<Mutex<Ears>>);

/// A part of what is shared, to be listened to.
#[derive(Clone, Debug)]
pub struct Source {
    share: Share,
    part: Part,
}

#[derive(Default)]
struct Ears {
    all: Vec<Arc<Letters>>,
    namespaces: BTreeMap<String, Vec<Arc<Letters>>>,
    /// By namespace, then by name.
    objects: BTreeMap<String, BTreeMap<String, Vec<Arc<Letters>>>>,
}

/// What was told to an ear, and was not heard yet.
#[derive(Default)]
struct Letters {
    waiting: Mutex<Waiting>,
    came: Notify,
}

#[derive(Default)]
struct Waiting {
    anew: bool,
    /// In the order in which there was first something to be told of each.
    order: VecDeque<Arc<str>>,
    newest: HashMap<Arc<str>, News>,
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Share").finish_non_exhaustive()
    }
}

impl Ears {
    fn of(&mut self, part: &Part) -> &mut Vec<Arc<Letters>> {
        match part {
            Part::All => &mut self.all,
            Part::Namespace(namespace) => self.namespaces.entry(namespace.clone()).or_default(),
            Part::Object(namespace, name) => {
                self.objects.entry(namespace.clone()).or_default().entry(name.clone()).or_default()
            }
        }
    }

    /// Those who hear of an object.
    fn hearing(&self, namespace: &str, name: &str) -> impl Iterator<Item = &Arc<Letters>> {
        let of_object = self.objects.get(namespace).and_then(|objects| objects.get(name));
        let of_namespace = self.namespaces.get(namespace);
        self.all.iter().chain(of_namespace.into_iter().flatten()).chain(of_object.into_iter().flatten())
    }

    /// An ear is gone, and what there is of nobody else's with it.
    fn lose(&mut self, part: &Part, letters: &Arc<Letters>) {
        let ears = self.of(part);
        ears.retain(|other| !Arc::ptr_eq(other, letters));
        if !ears.is_empty() {
            return;
        }
        match part {
            Part::All => {}
            Part::Namespace(namespace) => drop(self.namespaces.remove(namespace)),
            Part::Object(namespace, name) => {
                let objects = self.objects.entry(namespace.clone()).or_default();
                objects.remove(name);
                if objects.is_empty() {
                    self.objects.remove(namespace);
                }
            }
        }
    }
}

impl Share {
    /// One that nobody listens to yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A part of it, for [`super::WatchConfig::fed`].
    pub fn part(&self, part: Part) -> Source {
        Source { share: self.clone(), part }
    }

    /// Whether somebody has an ear for an object: the others need not be told.
    pub fn is_heard(&self, namespace: &str, name: &str) -> bool {
        self.0.lock().hearing(namespace, name).next().is_some()
    }

    /// Tells of an object.
    pub fn tell(&self, namespace: &str, name: &str, news: &News) {
        for letters in self.0.lock().hearing(namespace, name) {
            letters.put(&format!("{namespace}/{name}"), news.clone());
        }
    }

    /// The watch may have missed something: all are to list what there is.
    pub fn anew(&self) {
        let ears = self.0.lock();
        let objects = ears.objects.values().flat_map(BTreeMap::values);
        for letters in ears.all.iter().chain(ears.namespaces.values().chain(objects).flatten()) {
            letters.waiting.lock().anew = true;
            letters.came.notify_one();
        }
    }
}

impl Source {
    /// An ear that hears what is told from now on.
    pub fn ear(&self) -> Ear {
        let letters = Arc::new(Letters::default());
        self.share.0.lock().of(&self.part).push(letters.clone());
        Ear { source: self.clone(), letters }
    }
}

impl Letters {
    fn put(&self, key: &str, news: News) {
        let mut waiting = self.waiting.lock();
        match waiting.newest.get_mut(key) {
            Some(older) => *older = news,
            None => {
                let key: Arc<str> = key.into();
                waiting.order.push_back(key.clone());
                waiting.newest.insert(key, news);
            }
        }
        drop(waiting);
        self.came.notify_one();
    }

    fn take(&self) -> Option<Heard> {
        let mut waiting = self.waiting.lock();
        if std::mem::take(&mut waiting.anew) {
            return Some(Heard::Anew);
        }
        let key = waiting.order.pop_front()?;
        waiting.newest.remove(&key).map(Heard::News)
    }
}

/// Hears what is told of a part.
pub struct Ear {
    source: Source,
    letters: Arc<Letters>,
}

impl fmt::Debug for Ear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ear").field("part", &self.source.part).finish_non_exhaustive()
    }
}

impl Ear {
    /// The next that there is to hear. Cancel-safe.
    pub async fn next(&mut self) -> Heard {
        loop {
            if let Some(heard) = self.letters.take() {
                return heard;
            }
            self.letters.came.notified().await;
        }
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.source.share.0.lock().lose(&self.source.part, &self.letters);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn news(there: bool, text: &str) -> News {
        News { there, text: text.into(), revision: None }
    }

    fn all(ear: &mut Ear) -> Vec<String> {
        let mut heard = Vec::new();
        while let Some(next) = ear.next().now_or_never() {
            heard.push(match next {
                Heard::News(news) => format!("{}{}", if news.there { "" } else { "-" }, news.text),
                Heard::Anew => "anew".to_owned(),
            });
        }
        heard
    }

    #[test]
    fn each_hears_of_its_part_and_the_newest_of_each_object() {
        let share = Share::new();
        let part = |part| share.part(part).ear();
        let mut everything = part(Part::All);
        let mut shop = part(Part::Namespace("shop".into()));
        let mut one = part(Part::Object("shop".into(), "a".into()));
        for (namespace, name, told) in [
            ("shop", "a", news(true, "a1")),
            ("shop", "b", news(true, "b1")),
            ("till", "a", news(true, "t1")),
            ("shop", "a", news(true, "a2")),
            ("shop", "b", news(false, "b2")),
        ] {
            share.tell(namespace, name, &told);
        }
        assert_eq!(all(&mut everything), ["a2", "-b2", "t1"]);
        assert_eq!(all(&mut shop), ["a2", "-b2"]);
        assert_eq!(all(&mut one), ["a2"]);
        assert!(all(&mut shop).is_empty());
        share.anew();
        share.tell("shop", "a", &news(true, "a3"));
        assert_eq!(all(&mut one), ["anew", "a3"]);
    }

    #[test]
    fn nothing_is_kept_for_nobody() {
        let share = Share::new();
        assert!(!share.is_heard("shop", "a"));
        let ears = [
            share.part(Part::Namespace("shop".into())).ear(),
            share.part(Part::Object("till".into(), "a".into())).ear(),
        ];
        let heard = |namespace, name| share.is_heard(namespace, name);
        assert!(heard("shop", "a") && heard("till", "a") && !heard("till", "b") && !heard("", "a"));
        drop(ears);
        let ears = share.0.lock();
        assert!(ears.all.is_empty() && ears.namespaces.is_empty() && ears.objects.is_empty());
    }

    #[tokio::test]
    async fn who_waits_is_woken() {
        let share = Share::new();
        let mut ear = share.part(Part::All).ear();
        let waits = tokio::spawn(async move { ear.next().await });
        tokio::task::yield_now().await;
        share.tell("", "a", &news(true, "a1"));
        assert_eq!(waits.await.unwrap(), Heard::News(news(true, "a1")));
    }
}
