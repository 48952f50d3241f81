//! What the connections of a listener share.

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use karmada_telemetry::metrics::{Counter, Family, Sheet, Source};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::{sync::Semaphore, time::Instant};

use super::{
    activity::Activity,
    limits::Limits,
    meter::{Account, Pool},
    origin::Origin,
    pace::Class,
    register::{Credential, Id, Register},
};
use crate::authn::{ANONYMOUS, PeerCertificate, UserInfo};

/// Whose connections are not counted by identity: whoever has it may do everything anyway, and one such certificate serves
/// many people and programs.
const EXEMPT: &str = "system:masters";
/// Handshakes that are being worked on at one time. While one computes nothing else runs on its thread; between two of
/// them everything else that is ready does.
const AT_WORK: usize = 4;
/// Strangers that go when there are no file descriptors left.
const RELIEF: usize = 32;

pub(super) struct Places {
    pub(super) limits: Limits,
    pub(super) at_work: Semaphore,
    pub(super) pool: Arc<Pool>,
    register: Mutex<Register>,
    ended: Family<1, Counter>,
    handshakes: Family<1, Counter>,
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places").field("census", &self.register.lock().census()).finish_non_exhaustive()
    }
}

impl Default for Places {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl Places {
    pub(super) fn new(limits: Limits) -> Self {
        let limits = limits.consistent();
        Self {
            limits,
            at_work: Semaphore::new(AT_WORK),
            pool: Arc::new(Pool::new(limits.stranger_bytes)),
            register: Mutex::new(Register::new(limits, Instant::now())),
            ended: Family::new(["reason"], 24, Counter::default),
            handshakes: Family::new(["class"], 8, Counter::default),
        }
    }

    /// A place for a connection from an address, if there is one.
    pub(super) fn take(self: &Arc<Self>, address: IpAddr, account: &Arc<Account>) -> Option<Arc<Place>> {
        let now = Instant::now();
        let streams = self.limits.streams.min(self.limits.stranger_streams);
        let activity = Activity::new(streams, now);
        let arrived = self.register.lock().arrive(address, &activity, now);
        match arrived {
            Ok(id) => Some(Arc::new(Place {
                id,
                activity,
                account: account.clone(),
                shown: Mutex::default(),
                places: self.clone(),
            })),
            Err(why) => {
                self.ended(why);
                None
            }
        }
    }

    /// There are no file descriptors left.
    pub(super) fn relieve(&self) {
        self.register.lock().relieve(RELIEF);
    }

    /// Counts a connection that was ended.
    pub(super) fn ended(&self, reason: &'static str) {
        self.ended.get([reason]).inc();
    }
}

impl Source for Places {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let census = self.register.lock().census();
        let gauges = [
            ("karmada_hub_connections_open", "Connections of clients.", census.open),
            (
                "karmada_hub_connections_strange",
                "Connections that have shown no good credential.",
                census.strangers,
            ),
            (
                "karmada_hub_connections_reserved",
                "The same, of addresses where good credentials were seen lately.",
                census.reserved,
            ),
            ("karmada_hub_credentials_remembered", "Credentials that were seen lately.", census.keys),
            (
                "karmada_hub_addresses_remembered",
                "Addresses, or /64 of IPv6, where they were seen.",
                census.origins,
            ),
            (
                "karmada_hub_strange_bytes",
                "Bytes of unfinished requests of strangers, beyond a little for each.",
                self.pool.held(),
            ),
        ];
        for (name, help, value) in gauges {
            sheet.one_gauge(name, help, value as f64)?;
        }
        let handshakes = self.handshakes.rows();
        sheet.counter(
            "karmada_hub_handshakes_total",
            "TLS handshakes that were begun, by what was known of the client's address.",
            handshakes.iter().map(|(labels, count)| (labels.as_slice(), count.get() as f64)),
        )?;
        let ended = self.ended.rows();
        sheet.counter(
            "karmada_hub_connections_ended_total",
            "Connections that a limit of the listener ended, by reason.",
            ended.iter().map(|(labels, count)| (labels.as_slice(), count.get() as f64)),
        )
    }
}

/// A connection's place, for as long as it is held.
#[derive(Debug)]
pub(super) struct Place {
    id: Id,
    pub(super) activity: Arc<Activity>,
    pub(super) account: Arc<Account>,
    shown: Mutex<Option<(Credential, Origin)>>,
    pub(super) places: Arc<Places>,
}

impl Place {
    /// A turn for the handshake, and how long it is until then.
    pub(super) fn turn(&self) -> Result<(Class, Duration), &'static str> {
        let turn = self.places.register.lock().turn(self.id, Instant::now())?;
        self.places.handshakes.get([turn.0.name()]).inc();
        Ok(turn)
    }

    /// The client has shown a good certificate.
    pub(super) fn certified(&self, shown: &PeerCertificate) -> Result<(), &'static str> {
        let identity = (!shown.user().in_group(EXEMPT)).then(|| Arc::from(shown.identity()));
        self.show(Credential { key: shown.key(), identity })
    }

    /// A request has been authenticated. A good token makes as well known as a certificate does; when its user has all
    /// the connections that he may, this one remains a stranger's.
    pub(super) fn authenticated(&self, user: &UserInfo) {
        if self.shown.lock().is_some() || user.name == ANONYMOUS {
            return;
        }
        let mut digest = Sha256::new();
        digest.update(b"user\0");
        digest.update(user.name.as_bytes());
        let identity = (!user.in_group(EXEMPT)).then(|| Arc::from(user.name.as_str()));
        // It was a stranger's, and stays one.
        let _full = self.show(Credential { key: digest.finalize().into(), identity });
    }

    fn show(&self, credential: Credential) -> Result<(), &'static str> {
        let mut shown = self.shown.lock();
        if shown.is_some() {
            return Ok(());
        }
        let origin = self.places.register.lock().show(self.id, &credential, Instant::now())?;
        *shown = Some((credential, origin));
        self.account.known();
        self.activity.widen(self.places.limits.streams, Instant::now());
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let shown = self.shown.get_mut().take();
        self.places.register.lock().leave(self.id, shown.as_ref(), Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::{super::limits::reason, *};

    #[tokio::test]
    async fn a_certificate_of_an_older_epoch_takes_no_place_of_the_new_one() {
        let places = Arc::new(Places::new(Limits { connections_per_identity: 1, ..Limits::default() }));
        let connect = |epoch| {
            let account = Account::new(Counter::default(), Counter::default(), places.pool.clone());
            let place = places.take(std::net::Ipv4Addr::LOCALHOST.into(), &account).expect("a place");
            place.certified(&PeerCertificate::of_agent("m1", epoch)).map(|()| place)
        };
        let revoked = connect(0).expect("a connection");
        // It takes no answer, so there is always a request that is not all answered.
        let _busy = revoked.activity.begin();
        assert_eq!(connect(0).map(drop), Err(reason::IDENTITY));
        connect(1).expect("the agent that has a new one");
    }
}
