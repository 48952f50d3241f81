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
    /// Of which Cluster of that name.
    pub(super) uid: String,
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
}

impl Roster {
    /// A cluster is to have one. Whether it has none yet: then one is to begin. Who has one that ends gets the next after
    /// that, and so does a Cluster that was made anew meanwhile.
    pub(super) fn wants(&mut self, name: &str, uid: &str) -> bool {
        self.wanted.insert(name.to_owned());
        match self.running.get(name) {
            Some(one) if one.uid == uid => one.look.notify_one(),
            Some(one) => one.stop.cancel(),
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
    use futures::FutureExt as _;

    use super::*;

    fn one(roster: &mut Roster, uid: &str) -> CancellationToken {
        let stop = CancellationToken::new();
        roster.begins("m", Running { uid: uid.into(), stop: stop.clone(), look: Arc::default() });
        stop
    }

    #[test]
    fn the_next_begins_when_the_last_has_ended() {
        let mut roster = Roster::default();
        assert!(roster.wants("m", "1"));
        let first = one(&mut roster, "1");
        assert!(!roster.wants("m", "1"), "it has one, which looks");
        roster.unwants("m");
        assert!(first.is_cancelled());
        // Deleted and made again while it is still at its last words.
        assert!(!roster.wants("m", "2"), "not beside the last");
        assert_eq!(roster.ended("m"), Next::Begin);
        let second = one(&mut roster, "2");
        assert!(!second.is_cancelled());
        roster.unwants("m");
        assert_eq!(roster.ended("m"), Next::Rest);
        assert!(roster.wants("m", "3"));
    }

    #[test]
    fn a_change_concerns_the_instance_of_its_cluster_alone() {
        let mut roster = Roster::default();
        let ones = ["m", "n"].map(|name| {
            roster.wants(name, "1");
            let (stop, look) = (CancellationToken::new(), Arc::<Notify>::default());
            roster.begins(name, Running { uid: "1".into(), stop: stop.clone(), look: look.clone() });
            (stop, look)
        });
        roster.wants("m", "1");
        let looks = ones.each_ref().map(|(_, look)| look.notified().now_or_never().is_some());
        assert_eq!(looks, [true, false]);
        let stopped = || ones.each_ref().map(|(stop, _)| stop.is_cancelled());
        assert_eq!(stopped(), [false, false]);
        roster.wants("m", "2");
        assert_eq!(stopped(), [true, false]);
    }

    #[test]
    fn one_that_ends_by_itself_is_noticed() {
        let mut roster = Roster::default();
        roster.wants("m", "1");
        one(&mut roster, "1");
        assert_eq!(roster.ended("m"), Next::Again);
        assert!(roster.wants("m", "1"), "nothing is left of it");
    }

    #[test]
    fn a_cluster_that_was_made_anew_has_another() {
        let mut roster = Roster::default();
        roster.wants("m", "1");
        let first = one(&mut roster, "1");
        assert!(!roster.wants("m", "2") && first.is_cancelled());
        assert_eq!(roster.ended("m"), Next::Begin);
    }
}
