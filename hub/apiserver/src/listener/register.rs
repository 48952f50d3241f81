//! Who is connected, who may come in, and who has to go for it.
//!
//! ```text
//!   arrives ──► reserved, of an origin where good credentials were seen lately ─┐ shows a good one
//!          └──► a stranger ──────────────────────────────────────────────────────┴──► certified, by its identity
//! ```
//!
//! Strangers have their places apart. Where those are full, the one goes that has been there for longest and does nothing,
//! of the origin that has most. Between origins of about one size nobody goes in the first second, or in the first two after
//! we have answered his hello. Who is certified goes for nobody but his own next connection.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    activity::Activity,
    limits::{Limits, reason},
    memory::{Key, Memory},
    origin::Origin,
    pace::{Class, Paces},
};

/// How long nobody has to give up his place. Who has just come has not had the time to show what he has.
const SETTLE: Duration = Duration::from_secs(1);
/// The same of one whose hello we have answered: his certificate is on its way. Three kilobytes of handshake take the better
/// part of a second at 4 kB/s, and a far line as long again. If these went as soon as others, a fleet that comes home on such
/// lines would push itself out again and again, and each time after the arithmetic was done. Not in favour of one of his own
/// origin: there somebody may flood from behind the address of agents, who need each place soon.
const PROVE: Duration = Duration::from_secs(2);
/// An origin that has so many times what another has gives way to it at once: or one that fills all places within a second
/// had them for that second.
const OUTWEIGHS: usize = 4;
/// How many are looked at for one who may go. Those that are busy are not looked at again soon.
const LOOKED_AT: usize = 16;
/// Places of an origin for each key that is known there, within limits.
const RESERVED_PER_KEY: usize = 8;
const RESERVED_OF_ORIGIN: (usize, usize) = (16, 512);

/// What a connection is called here.
pub(super) type Id = u64;

#[derive(Debug)]
pub(super) struct Register {
    limits: Limits,
    next: Id,
    open: usize,
    guests: BTreeMap<Id, Guest>,
    strangers: Room,
    reserved: Room,
    certified: BTreeMap<Arc<str>, BTreeMap<Id, Arc<Activity>>>,
    memory: Memory,
    paces: Paces,
}

/// A connection that has shown nothing good yet.
#[derive(Debug)]
struct Guest {
    origin: Origin,
    reserved: bool,
    order: u64,
    activity: Arc<Activity>,
    turn: Option<Class>,
}

/// A good credential.
#[derive(Clone, Debug)]
pub(super) struct Credential {
    pub(super) key: Key,
    /// Whose connections are counted together; none: they are not counted.
    pub(super) identity: Option<Arc<str>>,
}

/// What is there to see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Census {
    pub(super) open: usize,
    pub(super) strangers: usize,
    pub(super) reserved: usize,
    pub(super) keys: usize,
    pub(super) origins: usize,
}

/// Places, by origin.
#[derive(Debug, Default)]
struct Room {
    /// In the order in which they are looked at.
    line: BTreeMap<u64, Id>,
    crowds: BTreeMap<Origin, BTreeMap<u64, Id>>,
    /// Origins by how many they have.
    weights: BTreeSet<(usize, Origin)>,
    next: u64,
}

impl Room {
    fn len(&self) -> usize {
        self.line.len()
    }

    fn of(&self, origin: Origin) -> usize {
        self.crowds.get(&origin).map_or(0, BTreeMap::len)
    }

    fn add(&mut self, id: Id, origin: Origin) -> u64 {
        let order = self.next;
        self.next += 1;
        self.line.insert(order, id);
        let crowd = self.crowds.entry(origin).or_default();
        self.weights.remove(&(crowd.len(), origin));
        crowd.insert(order, id);
        self.weights.insert((crowd.len(), origin));
        order
    }

    fn remove(&mut self, order: u64, origin: Origin) {
        self.line.remove(&order);
        let Some(crowd) = self.crowds.get_mut(&origin) else { return };
        self.weights.remove(&(crowd.len(), origin));
        crowd.remove(&order);
        if crowd.is_empty() {
            self.crowds.remove(&origin);
        } else {
            self.weights.insert((crowd.len(), origin));
        }
    }

    /// Which origin gives a place to another, and after how long; none if all have one, and it is anyone's.
    fn gives(&self, origin: Origin) -> Option<(Origin, Duration)> {
        let own = self.of(origin);
        match self.weights.last() {
            Some((most, heaviest)) if *most > own && *most > 1 => {
                let outweighs = *most >= OUTWEIGHS * (own + 1);
                Some((*heaviest, if outweighs { Duration::ZERO } else { SETTLE }))
            }
            _ => (own > 0).then_some((origin, SETTLE)),
        }
    }
}

impl Register {
    pub(super) fn new(limits: Limits, now: Instant) -> Self {
        Self {
            limits,
            next: 0,
            open: 0,
            guests: BTreeMap::new(),
            strangers: Room::default(),
            reserved: Room::default(),
            certified: BTreeMap::new(),
            memory: Memory::default(),
            paces: Paces::new(now),
        }
    }

    pub(super) fn census(&self) -> Census {
        let (keys, origins) = self.memory.len();
        Census {
            open: self.open,
            strangers: self.strangers.len(),
            reserved: self.reserved.len(),
            keys,
            origins,
        }
    }

    /// A place for a new connection; whoever has to go for it has been told.
    pub(super) fn arrive(
        &mut self,
        address: IpAddr,
        activity: &Arc<Activity>,
        now: Instant,
    ) -> Result<Id, &'static str> {
        let origin = Origin::from(address);
        let keys = self.memory.keys_at(origin, now);
        if self.limits.connections > 0
            && self.open >= self.limits.connections
            && !self.make_room(false, origin, true, now)
        {
            return Err(reason::CONNECTIONS);
        }
        let reserved = keys > 0 && self.reserve(origin, keys, now);
        if !reserved {
            let (of_origin, of_all) = (self.limits.strangers_per_address, self.limits.strangers);
            if of_origin > 0 && self.strangers.of(origin) >= of_origin {
                if !self.make_room(false, origin, false, now) {
                    return Err(reason::ADDRESS);
                }
            } else if of_all > 0
                && self.strangers.len() >= of_all
                && !self.make_room(false, origin, true, now)
            {
                return Err(reason::STRANGERS);
            }
        }
        let id = self.next;
        self.next += 1;
        let order = if reserved { self.reserved.add(id, origin) } else { self.strangers.add(id, origin) };
        self.open += 1;
        self.guests.insert(id, Guest { origin, reserved, order, activity: activity.clone(), turn: None });
        Ok(id)
    }

    /// Whether there is a place in the share of an origin where so many keys are known.
    fn reserve(&mut self, origin: Origin, keys: usize, now: Instant) -> bool {
        let (least, most) = RESERVED_OF_ORIGIN;
        let of_origin = keys.saturating_mul(RESERVED_PER_KEY).clamp(least, most);
        if self.reserved.of(origin) >= of_origin {
            return self.make_room(true, origin, false, now);
        }
        self.reserved.len() < self.limits.reserved || self.make_room(true, origin, true, now)
    }

    /// Ends one that does nothing in favour of one of that origin: in all places or in its own.
    fn make_room(&mut self, reserved: bool, origin: Origin, of_all: bool, now: Instant) -> bool {
        let room = if reserved { &self.reserved } else { &self.strangers };
        let (line, settle) = match room.gives(origin).filter(|_| of_all) {
            Some((gives, settle)) => (room.crowds.get(&gives), settle),
            None if of_all => (Some(&room.line), SETTLE),
            None => (room.crowds.get(&origin), SETTLE),
        };
        let Some(line) = line else { return false };
        let looked_at: Vec<Id> = line.values().take(LOOKED_AT).copied().collect();
        let quiet = |id: Id| {
            let guest = self.guests.get(&id)?;
            let proves = of_all && guest.turn.is_some() && !settle.is_zero();
            Some((guest.activity.idle_since()?, if proves { settle.max(PROVE) } else { settle }))
        };
        let mut goes = None;
        let mut busy = Vec::new();
        for id in looked_at {
            match quiet(id) {
                Some((since, settle)) if now.saturating_duration_since(since) >= settle => {
                    goes = Some(id);
                    break;
                }
                Some(_) => {}
                None => busy.push(id),
            }
        }
        for id in busy {
            self.put_back(id);
        }
        goes.is_some_and(|id| self.dismiss(id))
    }

    /// Behind all others in its line.
    fn put_back(&mut self, id: Id) {
        if let Some(guest) = self.guests.get_mut(&id) {
            let room = if guest.reserved { &mut self.reserved } else { &mut self.strangers };
            room.remove(guest.order, guest.origin);
            guest.order = room.add(id, guest.origin);
        }
    }

    /// Takes its place from a guest.
    fn dismiss(&mut self, id: Id) -> bool {
        let Some(guest) = self.take_out(id) else { return false };
        self.open -= 1;
        guest.activity.end(reason::ROOM);
        true
    }

    fn take_out(&mut self, id: Id) -> Option<Guest> {
        let guest = self.guests.remove(&id)?;
        let room = if guest.reserved { &mut self.reserved } else { &mut self.strangers };
        room.remove(guest.order, guest.origin);
        Some(guest)
    }

    /// Ends up to so many strangers that do nothing, so that there are file descriptors.
    pub(super) fn relieve(&mut self, most: usize) {
        let quiet = |id: &&Id| self.guests.get(id).is_some_and(|guest| guest.activity.idle_since().is_some());
        let some = self.strangers.line.values().take(most * 4);
        let go: Vec<Id> = some.filter(quiet).take(most).copied().collect();
        for id in go {
            self.dismiss(id);
        }
    }

    /// A turn for the handshake of a guest whose hello is there, and how long it is until then.
    pub(super) fn turn(&mut self, id: Id, now: Instant) -> Result<(Class, Duration), &'static str> {
        let guest = self.guests.get_mut(&id).ok_or(reason::ROOM)?;
        let turn = if guest.reserved && self.memory.turn(guest.origin, now) {
            (Class::Known, Duration::ZERO)
        } else {
            self.paces.take(guest.origin, now).ok_or(reason::PACE)?
        };
        guest.turn = Some(turn.0);
        Ok(turn)
    }

    /// A guest has shown a good credential: it is one no more.
    ///
    /// When its identity has as many connections as it may, the one goes that does nothing for longest; when all are
    /// busy, nothing changes.
    pub(super) fn show(&mut self, id: Id, shown: &Credential, now: Instant) -> Result<Origin, &'static str> {
        let origin = self.guests.get(&id).ok_or(reason::ROOM)?.origin;
        if let Some(identity) = &shown.identity {
            self.make_room_of(identity)?;
        }
        let guest = self.take_out(id).ok_or(reason::ROOM)?;
        self.memory.remember(shown.key, origin, now);
        let returned = shown.identity.is_none() || self.memory.returns(&shown.key, origin, now);
        if let Some(class) = guest.turn.filter(|_| returned) {
            self.paces.give(origin, class, now);
        }
        if let Some(identity) = &shown.identity {
            self.certified.entry(identity.clone()).or_default().insert(id, guest.activity);
        }
        Ok(origin)
    }

    fn make_room_of(&mut self, identity: &Arc<str>) -> Result<(), &'static str> {
        let most = self.limits.connections_per_identity;
        let Some(held) = self.certified.get_mut(identity).filter(|held| most > 0 && held.len() >= most)
        else {
            return Ok(());
        };
        let idle = held.iter().filter_map(|(id, activity)| Some((activity.idle_since()?, *id))).min();
        let (_, id) = idle.ok_or(reason::IDENTITY)?;
        if let Some(activity) = held.remove(&id) {
            self.open -= 1;
            activity.end(reason::IDENTITY);
        }
        Ok(())
    }

    /// A connection has ended. Whoever had shown something is remembered from now.
    pub(super) fn leave(&mut self, id: Id, shown: Option<&(Credential, Origin)>, now: Instant) {
        let Some((credential, origin)) = shown else {
            if self.take_out(id).is_some() {
                self.open -= 1;
            }
            return;
        };
        self.memory.remember(credential.key, *origin, now);
        let Some(identity) = &credential.identity else {
            self.open -= 1;
            return;
        };
        if let Some(held) = self.certified.get_mut(identity) {
            if held.remove(&id).is_some() {
                self.open -= 1;
            }
            if held.is_empty() {
                self.certified.remove(identity);
            }
        }
    }
}

#[cfg(test)]
mod tests;
