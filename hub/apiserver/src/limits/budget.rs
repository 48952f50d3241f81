//! Amounts that are shared: [`Shares`] with guards that give back what was taken.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use http::Response;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use karmada_env::Env;
use parking_lot::Mutex;

use super::{pool::Pace, seats::Shares, who::Who};

/// An amount of something, shared.
#[derive(Debug)]
pub(super) struct Budget {
    pub(super) shares: Mutex<Shares<Who>>,
    pub(super) pace: Pace,
    env: Env,
}

impl Budget {
    pub(super) fn new(all: usize, each: usize, env: &Env) -> Arc<Self> {
        let shares = Mutex::new(Shares::new(all, each));
        Arc::new(Self { shares, pace: Pace::default(), env: env.clone() })
    }

    /// So much of it. `alone`: as [`Shares::take`].
    pub(super) fn take(self: &Arc<Self>, who: &Who, amount: usize, alone: bool) -> Option<Room> {
        let taken = self.shares.lock().take(who, amount, alone);
        taken.then(|| Room { budget: self.clone(), who: who.clone(), amount, since: self.env.now() })
    }

    /// So much of it, whatever is left.
    pub(super) fn force(self: &Arc<Self>, who: &Who, amount: usize) -> Room {
        self.shares.lock().force(who, amount);
        Room { budget: self.clone(), who: who.clone(), amount, since: self.env.now() }
    }
}

/// An answer whose bytes are counted already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted;

/// A part of a budget, for as long as it is held.
#[derive(Debug)]
pub(crate) struct Room {
    budget: Arc<Budget>,
    who: Who,
    amount: usize,
    since: Duration,
}

impl Room {
    /// So much more, if it is there.
    pub(super) fn grow(&mut self, amount: usize) -> bool {
        let grown = self.budget.shares.lock().take(&self.who, amount, false);
        self.amount += if grown { amount } else { 0 };
        grown
    }

    /// An answer that holds the room, which becomes as much as the answer has become, until it is sent or given up.
    fn hold_response(mut self, response: Response<Body>) -> Response<Body> {
        let length = usize::try_from(response.body().size_hint().lower()).unwrap_or(usize::MAX);
        if let Some(more) = length.checked_sub(self.amount) {
            self.budget.shares.lock().force(&self.who, more);
            self.amount = length;
        }
        let mut response = response.map(|body| self.hold(body));
        response.extensions_mut().insert(Counted);
        response
    }

    /// A body that holds the room until it is sent or given up: until a connection has taken the last of its bytes, which
    /// stay in memory until then although the body itself has been read long before.
    pub(crate) fn hold(self, body: Body) -> Body {
        let room = Arc::new(self);
        Body::new(body.map_frame(move |frame| {
            let room = room.clone();
            frame.map_data(|bytes| Bytes::from_owner(Owned { bytes, _room: room }))
        }))
    }
}

/// An answer that holds its room, if it needs any ([`Room::hold_response`]).
pub(crate) fn holding(room: Option<Room>, response: Response<Body>) -> Response<Body> {
    match room {
        Some(room) => room.hold_response(response),
        None => response,
    }
}

/// Bytes with the room that they take.
struct Owned {
    bytes: Bytes,
    _room: Arc<Room>,
}

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.budget.pace.observe(self.budget.env.now().saturating_sub(self.since));
        self.budget.shares.lock().give(&self.who, self.amount);
    }
}
