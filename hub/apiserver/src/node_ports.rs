//! Node ports: each port of a Service that members are to open on their nodes has one number on all of them.
//!
//! ```text
//!   write of a Service ─▶ claim: the numbers it asks for, or free ones ─▶ commit ─▶ follower ─▶ what is held
//!                           └── promised until the write is answered
//! ```
//!
//! What is held follows from the stored Services alone, so it is the same after a restart, and what goes with its
//! namespace is free again. Between the claim and the commit a number is promised, so that no two writes get the same.
//! A promise whose write was given up in the middle ends by itself.
//!
//! Numbers are found as kube-apiserver finds them: at random in the upper part of the range, which leaves the lower part
//! to those who choose their own, and there only when the upper part is full.

mod service;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
    time::Duration,
};

use karmada_env::Env;
use karmada_meta::status::Status;
use karmada_store::{Key, Snapshot};
use parking_lot::Mutex;
use serde_json::Value;

pub(crate) use self::service::drop_unneeded;
use crate::{
    follow::Derived,
    kinds::Kind,
    storage::{Header, Object},
};

/// Where Services are stored.
const SERVICES: &str = "core/services";
/// No write takes longer.
const PROMISE: Duration = Duration::from_secs(120);

/// The numbers that node ports have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// Kubernetes' own.
    pub const DEFAULT: Self = Self { first: 30_000, last: 32_767 };

    fn holds(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    /// Where the part begins that numbers are given out of first.
    fn upper(self) -> u16 {
        let size = self.last - self.first + 1;
        self.first + if size <= 16 { 0 } else { (size / 32).clamp(16, 128) }
    }
}

impl Default for PortRange {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no range of ports such as 30000-32767");
        let (first, last) = text.split_once('-').ok_or_else(wrong)?;
        let port = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0);
        let (first, last) = port(first).zip(port(last)).ok_or_else(wrong)?;
        if first > last {
            return Err(format!("{text:?} ends before it begins"));
        }
        Ok(Self { first, last })
    }
}

/// Why a number is not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Outside(PortRange),
    Taken,
    Full,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outside(range) => {
                write!(f, "provided port is not in the valid range. The range of valid ports is {range}")
            }
            Self::Taken => f.write_str("provided port is already allocated"),
            Self::Full => f.write_str("range is full"),
        }
    }
}

/// Who has which node ports.
#[derive(Debug, Default)]
pub(crate) struct NodePorts {
    range: PortRange,
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    /// The ports of each Service that has some.
    of: BTreeMap<Key, BTreeSet<u16>>,
    /// How many Services have a port. More than one only where two had it before anybody counted.
    held: BTreeMap<u16, usize>,
    /// Ports of writes under way, and until when these are waited for.
    promised: BTreeMap<u16, Duration>,
}

/// Ports that a write was promised. Given back with [`NodePorts::settle`].
#[derive(Debug, Default)]
#[must_use = "they stay promised for a while"]
pub(crate) struct Promised(Vec<u16>);

/// What a write may ask for numbers.
trait Numbers {
    /// That one.
    fn take(&mut self, port: u16) -> Result<(), Refusal>;
    /// Any.
    fn next(&mut self) -> Result<u16, Refusal>;
}

impl NodePorts {
    /// Nothing is known yet; a [`Derived`] is told of what there is.
    pub(crate) fn new(range: PortRange) -> Self {
        Self { range, books: Mutex::default() }
    }

    /// Gives a Service that is about to be stored, in place of `old` if there is one, its numbers. They are its own when
    /// it is stored.
    ///
    /// # Errors
    /// 422 for a number that it may not have, 500 when there is none left.
    pub(crate) fn claim(
        &self,
        kind: &Kind,
        new: &mut Value,
        old: Option<&Value>,
        env: &Env,
    ) -> Result<Promised, Status> {
        if &*kind.storage != SERVICES {
            return Ok(Promised::default());
        }
        let mut books = self.books.lock();
        let now = env.now();
        books.promised.retain(|_, until| *until > now);
        if let Some(old) = old {
            service::keep(new, old);
        }
        let mut claim = Claim { range: self.range, books: &books, taken: Vec::new(), env };
        let fitted = service::allocate(new, old, &mut claim);
        let taken = claim.taken;
        fitted?;
        books.promised.extend(taken.iter().map(|port| (*port, now + PROMISE)));
        Ok(Promised(taken))
    }

    /// The write was answered: its numbers are held, or free again.
    pub(crate) fn settle(&self, promised: &Promised) {
        if !promised.0.is_empty() {
            let promises = &mut self.books.lock().promised;
            for port in &promised.0 {
                promises.remove(port);
            }
        }
    }
}

/// One write's look at the books.
struct Claim<'a> {
    range: PortRange,
    books: &'a Books,
    taken: Vec<u16>,
    env: &'a Env,
}

impl Claim<'_> {
    fn is_free(&self, port: u16) -> bool {
        !self.books.held.contains_key(&port)
            && !self.books.promised.contains_key(&port)
            && !self.taken.contains(&port)
    }

    /// A free number from `first` to `last`.
    fn any(&self, first: u16, last: u16) -> Option<u16> {
        let size = u64::from(last.checked_sub(first)?) + 1;
        let start = first + u16::try_from(self.env.below(size)).unwrap_or_default();
        (start..=last).chain(first..start).find(|port| self.is_free(*port))
    }
}

impl Numbers for Claim<'_> {
    fn take(&mut self, port: u16) -> Result<(), Refusal> {
        if !self.range.holds(port) {
            return Err(Refusal::Outside(self.range));
        }
        if !self.is_free(port) {
            return Err(Refusal::Taken);
        }
        self.taken.push(port);
        Ok(())
    }

    fn next(&mut self) -> Result<u16, Refusal> {
        let (PortRange { first, last }, upper) = (self.range, self.range.upper());
        let lower = || upper.checked_sub(1).and_then(|below| self.any(first, below));
        let port = self.any(upper, last).or_else(lower).ok_or(Refusal::Full)?;
        self.taken.push(port);
        Ok(port)
    }
}

fn ports_of(object: &Object) -> BTreeSet<u16> {
    serde_json::from_slice::<Value>(&object.value.get())
        .map_or_else(|_| BTreeSet::new(), |stored| service::held(&stored))
}

impl Books {
    fn set(&mut self, key: &Key, ports: BTreeSet<u16>) {
        for port in self.of.remove(key).into_iter().flatten() {
            if let Some(count) = self.held.get_mut(&port) {
                *count -= 1;
                if *count == 0 {
                    self.held.remove(&port);
                }
            }
        }
        if !ports.is_empty() {
            ports.iter().for_each(|port| *self.held.entry(*port).or_default() += 1);
            self.of.insert(key.clone(), ports);
        }
    }
}

impl Derived for NodePorts {
    fn resources(&self) -> &[&'static str] {
        &[SERVICES]
    }

    fn rebuild(&self, now: &Snapshot<Header>) {
        let mut books = self.books.lock();
        (books.of, books.held) = Default::default();
        for object in now.range(SERVICES, None, None) {
            books.set(&object.key, ports_of(object));
        }
    }

    fn update(&self, changed: &BTreeSet<Key>, now: &Snapshot<Header>) {
        let mut books = self.books.lock();
        for key in changed {
            books.set(key, now.get(key).map(|object| ports_of(object)).unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use karmada_env::{Env, ManualClock};

    use super::*;

    #[test]
    fn a_range_is_two_numbers_in_order() {
        let read = |text: &str| text.parse::<PortRange>().map(|range| range.to_string());
        assert_eq!(read("30000-32767").as_deref(), Ok("30000-32767"));
        assert_eq!(read("80-80").as_deref(), Ok("80-80"));
        for text in ["", "30000", "0-10", "5-4", "1-70000", "a-b", "-1"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_upper_part_is_given_out_first_and_each_number_once() {
        let env = Env::seeded(ManualClock::new(std::time::SystemTime::UNIX_EPOCH), 3);
        let range = PortRange { first: 100, last: 139 };
        let mut books = Books::default();
        books.held.insert(120, 1);
        books.promised.insert(121, Duration::from_secs(1));
        let mut claim = Claim { range, books: &books, taken: Vec::new(), env: &env };
        assert_eq!(claim.take(99), Err(Refusal::Outside(range)));
        assert_eq!((claim.take(120), claim.take(121)), (Err(Refusal::Taken), Err(Refusal::Taken)));
        let upper: BTreeSet<u16> = (0..22).map(|_| claim.next().unwrap()).collect();
        assert_eq!(upper, (116..=139).filter(|port| !matches!(port, 120 | 121)).collect());
        let lower: BTreeSet<u16> = (0..16).map(|_| claim.next().unwrap()).collect();
        assert_eq!(lower, (100..116).collect());
        assert_eq!(claim.next(), Err(Refusal::Full));
    }
}
