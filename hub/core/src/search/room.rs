//! Who has how much of a room that many share. Pure.
//!
//! Half of the room is everybody's, in equal shares. What anybody has above a share comes out of the other half: who comes first may
//! have half of what is left of it. So there is a share for everybody, also for who comes last. Shares become smaller while more
//! come, and what is there may stay until somebody cannot have theirs: then whoever has most gives something up.
//!
//! Shares are those of as many as the next power of two: they change seldom, and each change is a pass over all.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// See the module.
#[derive(Debug)]
pub struct Room {
    /// What one may have at most, and all together.
    each: usize,
    all: usize,
    of: BTreeMap<Arc<str>, usize>,
    /// Those that have something, by how much.
    by_size: BTreeSet<(usize, Arc<str>)>,
    bytes: usize,
    /// For so many there are shares.
    shares: usize,
    /// What all have above their shares.
    above: usize,
}

impl Room {
    /// Of nobody yet.
    pub fn new(each: usize, all: usize) -> Self {
        Self { each, all, of: BTreeMap::new(), by_size: BTreeSet::new(), bytes: 0, shares: 1, above: 0 }
    }

    /// One more has a share.
    pub fn enter(&mut self, name: &str) {
        self.of.entry(name.into()).or_default();
        self.divide();
    }

    /// One has nothing any more, and no share.
    pub fn leave(&mut self, name: &str) {
        self.set(name, 0);
        self.of.remove(name);
        self.divide();
    }

    /// So much is one's now.
    pub fn set(&mut self, name: &str, bytes: usize) {
        let Some((name, before)) = self.of.get_key_value(name).map(|(name, before)| (name.clone(), *before))
        else {
            return;
        };
        if before == bytes {
            return;
        }
        self.by_size.remove(&(before, name.clone()));
        if bytes > 0 {
            self.by_size.insert((bytes, name.clone()));
        }
        self.bytes = self.bytes - before + bytes;
        self.above = self.above - self.over(before) + self.over(bytes);
        self.of.insert(name, bytes);
    }

    /// What all have.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What anybody may have, whatever others have.
    pub fn share(&self) -> usize {
        (self.all / 2 / self.shares).min(self.each)
    }

    /// What one may have now. Of a share that may be too little: then others give something up first ([`Room::gives_way`]).
    pub fn most(&self, name: &str) -> usize {
        let own = self.of.get(name).copied().unwrap_or_default();
        let left = (self.all / 2).saturating_sub(self.above - self.over(own));
        let free = self.all.saturating_sub(self.bytes - own);
        (self.share() + left / 2).min(free).min(self.each)
    }

    /// Who has to give something up so that one can have so much, where that is no more than a share.
    pub fn gives_way(&self, name: &str, bytes: usize) -> Option<&str> {
        let own = self.of.get(name).copied().unwrap_or_default();
        if bytes > self.share() || self.bytes - own + bytes <= self.all {
            return None;
        }
        let mut largest = self.by_size.iter().rev().filter(|(_, of)| &**of != name);
        largest.next().filter(|(bytes, _)| self.over(*bytes) > 0).map(|(_, of)| &**of)
    }

    fn over(&self, bytes: usize) -> usize {
        bytes.saturating_sub(self.share())
    }

    /// Divides it anew where there are many more or many fewer.
    fn divide(&mut self) {
        let many = self.of.len().max(1);
        if many <= self.shares && many >= self.shares / 4 {
            return;
        }
        self.shares = many.next_power_of_two();
        self.above = self.by_size.iter().map(|(bytes, _)| self.over(*bytes)).sum();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EACH: usize = 32;
    const ALL: usize = 256;

    fn room(many: usize) -> Room {
        let mut room = Room::new(EACH, ALL);
        (0..many).for_each(|n| room.enter(&n.to_string()));
        room
    }

    #[test]
    fn each_has_a_share_and_the_first_have_more() {
        for (many, share, first) in
            [(1, 32, 32), (4, 32, 32), (5, 16, 32), (8, 16, 32), (100, 1, 32), (10_000, 0, 32)]
        {
            let room = room(many);
            assert_eq!((room.share(), room.most("0")), (share, first), "{many}");
        }
        // By halves: what is left of the other half, and of that half.
        let mut room = room(100);
        let mut had = Vec::new();
        for n in 0..40 {
            let name = n.to_string();
            had.push(room.most(&name));
            room.set(&name, room.most(&name));
        }
        assert_eq!(had[..9], [32, 32, 32, 18, 10, 5, 3, 2, 2]);
        assert_eq!(had[39], 1);
        assert!(room.above <= ALL / 2);
        // What one has itself is as free for it as what nobody has.
        assert_eq!(room.most("0"), 17);
    }

    #[test]
    fn a_fleet_that_grows_has_its_shares_though_the_first_have_taken_all() {
        let mut room = room(1);
        for n in 0..8 {
            let name = n.to_string();
            room.enter(&name);
            room.set(&name, room.most(&name));
        }
        assert!(room.bytes() > ALL / 2);
        (8..64).for_each(|n| room.enter(&n.to_string()));
        let mut gave_way = BTreeSet::new();
        for n in 8..64 {
            let name = n.to_string();
            while let Some(of) = room.gives_way(&name, room.share()).map(str::to_owned) {
                assert!(room.of[&*of] > room.share(), "{of}");
                room.set(&of, 0);
                gave_way.insert(of);
            }
            assert!(room.most(&name) >= room.share(), "{n}");
            room.set(&name, room.share());
            assert!(room.bytes() <= ALL);
        }
        assert!(!gave_way.is_empty() && gave_way.iter().all(|name| name.parse::<usize>().unwrap() < 8));
        // Nobody gives anything up for what is above a share.
        assert_eq!(room.gives_way("9", room.share() + 1), None);
    }

    #[test]
    fn who_leaves_leaves_room() {
        let mut room = room(2);
        room.set("0", 20);
        room.set("nobody", 20);
        room.leave("0");
        room.leave("0");
        assert_eq!((room.bytes(), room.of.len(), room.by_size.len()), (0, 1, 0));
    }

    proptest! {
        /// Whoever comes, goes, takes what they may and gives way: what is counted is right, and nobody is without a share.
        #[test]
        fn it_is_never_overfull(steps in prop::collection::vec((0..4_u8, 0..80_u32, 1..40_usize), 0..300)) {
            let mut room = Room::new(EACH * 16, ALL * 16);
            for (step, name, wanted) in steps {
                let name = name.to_string();
                match step {
                    0 => room.leave(&name),
                    1 => room.enter(&name),
                    _ if room.of.contains_key(&*name) => {
                        let wanted = wanted * 16;
                        while let Some(of) = room.gives_way(&name, wanted).map(str::to_owned) {
                            room.set(&of, room.of[&*of] / 2);
                        }
                        prop_assert!(room.most(&name) >= wanted.min(room.share()) || wanted > room.share());
                        // What is there may stay.
                        room.set(&name, wanted.min(room.most(&name).max(room.of[&*name])));
                    }
                    _ => {}
                }
                prop_assert_eq!(room.bytes(), room.of.values().sum::<usize>());
                prop_assert_eq!(room.above, room.of.values().map(|bytes| room.over(*bytes)).sum::<usize>());
                prop_assert!(room.bytes() <= ALL * 16);
            }
        }
    }
}
