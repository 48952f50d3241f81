//! A collection of which no more is kept than there is room for.

use std::sync::Arc;

use karmada_env::Env;

use super::{Event, Health, Unkept, WatchConfig, Watcher};
use crate::{
    kept::{Kept, Lacks},
    latest,
    rest::Rest,
};

/// A [`Watcher`] of a server that may be anybody's: each object that it tells of has its place ([`Kept`]) within the bounds of
/// the server, for as long as it is there. Where there is no room for one, nothing of the collection is known, which stands in
/// [`Rest::lacks`], and it is listed anew after a while.
#[derive(Debug)]
pub struct Keeping<K, V>(Watcher<(K, Kept<V>)>);

/// Where it ends.
pub(super) struct Bound {
    /// Objects in the list under way.
    pub(super) listed: usize,
    lacks: Arc<Lacks>,
    what: String,
}

impl Bound {
    /// Nothing is known of it.
    pub(super) fn lacks(&self, why: String) {
        self.lacks.say(&self.what, why);
    }

    /// All of it is.
    pub(super) fn has_all(&self) {
        self.lacks.over(&self.what);
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.has_all();
    }
}

impl<K: 'static, V: 'static> Keeping<K, V> {
    /// One that starts with a full list. `elsewhere` says how many bytes of an object are beyond the key and the value
    /// themselves.
    pub fn new(
        rest: Rest,
        config: WatchConfig,
        env: Env,
        project: impl Fn(&str) -> Result<(K, V), String> + Send + Sync + 'static,
        elsewhere: impl Fn(&K, &V) -> usize + Send + Sync + 'static,
    ) -> Self {
        let shelf = rest.shelf().all();
        let what = match &config.labels {
            Some(labels) => format!("{} ({labels})", config.path),
            None => config.path.clone(),
        };
        let bound = Bound { listed: 0, lacks: Arc::clone(rest.lacks()), what };
        let read = move |text: &str, there: bool| {
            let (key, value) = project(text).map_err(Unkept::Unread)?;
            if !there {
                return Ok((key, Kept::nowhere(value)));
            }
            let bytes = size_of::<K>() + elsewhere(&key, &value);
            Kept::new(value, bytes, &shelf).map(|kept| (key, kept)).map_err(Unkept::Full)
        };
        Self(Watcher { bound: Some(bound), ..Watcher::reading(rest, config, env, Arc::new(read)) })
    }

    /// The next event; none when nothing is known any more. Waits out every trouble; cancel-safe.
    pub async fn next(&mut self) -> Option<Event<(K, Kept<V>)>> {
        self.0.next_or_lost().await
    }

    /// See [`Watcher::health`].
    pub fn health(&self) -> latest::Receiver<Health> {
        self.0.health()
    }

    /// See [`Watcher::last_heard`].
    pub fn last_heard(&self) -> Option<std::time::Duration> {
        self.0.last_heard()
    }

    /// See [`Watcher::revision`].
    pub fn revision(&self) -> Option<&str> {
        self.0.revision()
    }

    /// See [`Watcher::history`].
    pub fn history(&self) -> u64 {
        self.0.history()
    }
}
