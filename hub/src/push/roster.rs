//! Which clusters are to have an instance, and which have one: never two at a time.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// An instance, from outside.
#[derive(Debug)]
pub(super) struct Running {
    /// Has it end.
    pub(super) stop: CancellationToken,
    /// Something has changed that may concern it.
    pub(super) look: Arc<Notify>,
}

/// What is to be done when an instance has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing.
    Rest,
    /// The next one begins: it was told to end, and its cluster is wanted again.
    Begin,
    /// The same after a while: it has ended by itself.
    Again,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Roster {
    wanted: HashSet<String>,
    running: HashMap<String, Running>,
    listed: Option<HashSet<String>>,
}

impl Roster {
    /// All that are wanted are about to be told.
    pub(super) fn lists(&mut self) {
        self.listed = Some(HashSet::new());
    }

    /// They have been: others are wanted no more.
    pub(super) fn listed(&mut self) {
        let Some(there) = self.listed.take() else { return };
        let gone: Vec<String> = self.wanted.iter().filter(|name| !there.contains(*name)).cloned().collect();
        gone.iter().for_each(|name| self.unwants(name));
    }

    /// A cluster is to have one. Whether it has none yet: then one is to begin. Who has one that ends gets the next after that.
    pub(super) fn wants(&mut self, name: &str) -> bool {
        if let Some(there) = &mut self.listed {
            there.insert(name.to_owned());
        }
        self.wanted.insert(name.to_owned());
        match self.running.get(name) {
            Some(one) => one.look.notify_one(),
            None => return true,
        }
        false
    }

    /// It is to have none.
    pub(super) fn unwants(&mut self, name: &str) {
        self.wanted.remove(name);
        if let Some(one) = self.running.get(name) {
            one.stop.cancel();
        }
    }

    /// It has one now.
    pub(super) fn begins(&mut self, name: &str, one: Running) {
        self.running.insert(name.to_owned(), one);
    }

    /// It has none any more.
    pub(super) fn ended(&mut self, name: &str) -> Next {
        let was_stopped = self.running.remove(name).is_some_and(|one| one.stop.is_cancelled());
        match (self.wanted.contains(name), was_stopped) {
            (false, _) => Next::Rest,
            (true, true) => Next::Begin,
            (true, false) => Next::Again,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(roster: &mut Roster) -> CancellationToken {
        let stop = CancellationToken::new();
        roster.begins("m", Running { stop: stop.clone(), look: Arc::default() });
        stop
    }

    #[test]
    fn the_next_begins_when_the_last_has_ended() {
        let mut roster = Roster::default();
        assert!(roster.wants("m"));
        let first = one(&mut roster);
        assert!(!roster.wants("m"), "it has one, which looks");
        roster.unwants("m");
        assert!(first.is_cancelled());
        // Deleted and made again while it is still at its last words.
        assert!(!roster.wants("m"), "not beside the last");
        assert_eq!(roster.ended("m"), Next::Begin);
        let second = one(&mut roster);
        assert!(!second.is_cancelled());
        roster.unwants("m");
        assert_eq!(roster.ended("m"), Next::Rest);
        assert!(roster.wants("m"));
    }

    #[test]
    fn one_that_ends_by_itself_is_noticed() {
        let mut roster = Roster::default();
        roster.wants("m");
        one(&mut roster);
        assert_eq!(roster.ended("m"), Next::Again);
        assert!(roster.wants("m"), "nothing is left of it");
    }

    #[test]
    fn what_a_list_does_not_name_ends() {
        let mut roster = Roster::default();
        roster.wants("m");
        let stop = one(&mut roster);
        roster.lists();
        roster.wants("m");
        roster.listed();
        assert!(!stop.is_cancelled());
        roster.lists();
        roster.listed();
        assert!(stop.is_cancelled());
        assert_eq!(roster.ended("m"), Next::Rest);
    }
}
