//! What may cross tunnels on a link whose bytes are paid for, and whose it is.

use std::{sync::Arc, time::Duration};

use hyper::body::Body;
use karmada_core::{
    shares::{Shares, Short},
    spent::Spent,
};
use karmada_env::Env;
use parking_lot::Mutex;

use super::WINDOW;

/// What a request costs beside its bodies, about: headers and frames, there and back. One with a larger head costs what that takes.
const AROUND: usize = 400;

/// What is around bytes that are read or written at once, about: a record of TLS, the headers of TCP and IP, and the packet that
/// answers.
const BELOW: usize = 90;
/// So many bytes go in one packet.
const PACKET: usize = 1400;

/// What crosses the link for so many bytes of a connection, read or written at once.
fn on_the_wire(bytes: usize) -> usize {
    bytes + BELOW * bytes.div_ceil(PACKET)
}

/// All tunnels of an agent. Without a bound on links that cost nothing. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Toll(Option<Arc<Meter>>);

#[derive(Debug)]
struct Meter {
    shares: Mutex<Shares>,
    env: Env,
}

impl Toll {
    /// So many bytes in an hour, of which none are there yet.
    pub fn hourly(bytes: u64, env: Env) -> Self {
        let shares = Mutex::new(Shares::begun(bytes, env.now()));
        Self(Some(Arc::new(Meter { shares, env })))
    }

    /// The same of an agent that has run for long.
    #[cfg(test)]
    pub(super) fn full(bytes: u64, env: Env) -> Self {
        let shares = Mutex::new(Shares::new(bytes, env.now()));
        Self(Some(Arc::new(Meter { shares, env })))
    }

    /// Takes what it costs that so many bytes of a tunnel were read or written at once.
    pub(super) fn cross(&self, bytes: usize) {
        self.spend(on_the_wire(bytes));
    }

    /// Takes what it costs to ask something small by another connection for the sake of a tunnel.
    pub(super) fn question(&self) {
        self.spend(AROUND);
    }

    /// Takes bytes of the link.
    pub(super) fn spend(&self, bytes: usize) {
        if let Some(meter) = self.0.as_ref().filter(|_| bytes > 0) {
            meter.shares.lock().spend(bytes as u64, meter.env.now());
        }
    }

    /// For how long there is no tunnel.
    pub(super) fn overdrawn(&self) -> Option<Duration> {
        self.0.as_ref().and_then(|meter| meter.shares.lock().overdrawn(meter.env.now()))
    }

    /// The same, as the hub is told.
    pub(super) fn spent(&self) -> Option<Spent> {
        let meter = self.0.as_ref()?;
        let mut shares = meter.shares.lock();
        let wait = shares.overdrawn(meter.env.now())?;
        Some(Spent { short: Short::All(wait), hourly: shares.hourly() })
    }

    /// What is this user's, of whom there is a request now, with so many bytes of a head.
    pub(super) fn share(&self, user: &str, head: usize) -> Share {
        let share = Share(self.0.clone().map(|meter| (meter, user.into())));
        share.charge(AROUND.max(on_the_wire(head)));
        share
    }
}

/// A user's part.
#[derive(Clone, Debug, Default)]
pub(super) struct Share(Option<(Arc<Meter>, Arc<str>)>);

impl Share {
    /// Whether they may ask for something.
    ///
    /// # Errors
    /// What there is in an hour, and what lacks of that.
    pub(super) fn ask(&self) -> Result<(), (u64, Short)> {
        let Some((meter, user)) = &self.0 else { return Ok(()) };
        let mut shares = meter.shares.lock();
        let hourly = shares.hourly();
        shares.ask(user, meter.env.now()).map_err(|short| (hourly, short))
    }

    /// Says of bytes that they are theirs.
    pub(super) fn charge(&self, bytes: usize) {
        if let Some((meter, user)) = &self.0 {
            meter.shares.lock().charge(user, bytes as u64, meter.env.now());
        }
    }

    /// The same of the head of an answer: what there is of it beside what a request [costs](AROUND) anyway.
    pub(super) fn charge_answered(&self, head: usize) {
        self.charge(on_the_wire(head).saturating_sub(AROUND));
    }

    /// The same of what is under way of a body that nobody reads on, beside what has come and is [paid](Self::pay) for: so much is sent before
    /// anybody can say that it is not wanted.
    pub(super) fn charge_unread(&self, body: &impl Body, waiting: usize) {
        let left = body.size_hint().upper().unwrap_or(u64::MAX).min(WINDOW.into());
        self.charge(usize::try_from(left).unwrap_or(WINDOW as usize).saturating_sub(waiting));
    }

    /// The same of what has come or goes now.
    ///
    /// # Errors
    /// They have used so much that what they have begun ends.
    pub(super) fn pay(&self, bytes: usize) -> Result<(), &'static str> {
        let Some((meter, user)) = &self.0 else { return Ok(()) };
        let (mut shares, now) = (meter.shares.lock(), meter.env.now());
        shares.charge(user, on_the_wire(bytes) as u64, now);
        if shares.is_cut(user, now) {
            return Err("the user owes more than their share of the budget for tunnels (--tunnel-budget)");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_small_costs_what_is_around_it() {
        for (bytes, costs) in [
            (0, 0),
            (1, 91),
            (17, 107),
            (PACKET, PACKET + 90),
            (PACKET + 1, PACKET + 181),
            (64 << 10, 69_766),
        ] {
            assert_eq!(on_the_wire(bytes), costs, "{bytes}");
        }
    }

    #[test]
    fn whoever_types_pays_for_packets() {
        let budget = Toll::full(64 << 10, Env::system());
        let share = budget.share("jane", 0);
        // 8 KiB may go at once.
        for key in 0..80 {
            assert!(share.ask().is_ok(), "{key}");
            share.pay(1).unwrap();
        }
        for _ in 0..10 {
            share.pay(1).unwrap();
        }
        assert!(share.ask().is_err());
        assert!(budget.share("john", 0).ask().is_ok());
    }

    #[test]
    fn whoever_sends_large_heads_pays_for_them() {
        let budget = Toll::full(4 << 20, Env::system());
        // 512 KiB may go at once.
        let asks =
            |user: &str, head: usize| (0..100).filter(|_| budget.share(user, head).ask().is_ok()).count();
        assert_eq!((asks("jane", 8 << 10), asks("john", 200)), (60, 100));
    }
}
