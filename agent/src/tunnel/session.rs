//! Connections that change their protocol: what the hub asks for by a stream, and what the member agrees to.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
};

use http::{HeaderMap, HeaderValue, Response, StatusCode, header, request::Parts};
use http_body_util::Empty;
use hyper::{body::Incoming, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use karmada_client::streams::{self, REST, Received, Sending, carry};
use karmada_member::tunnel::Who;
use karmada_meta::status::Status;
use tokio::time::{Instant, timeout_at};

use super::{BACK, Measured, Tunnel, WHOLE, back, on_the_way, only, wrong};

/// The method of the request that is to change its protocol.
const METHOD: &str = "karmada-method";
/// And to what.
const UPGRADE: &str = "karmada-upgrade";
/// What the member has said to that.
const STATUS: &str = "karmada-status";
/// What sessions may speak.
const PROTOCOLS: [&str; 2] = ["websocket", "SPDY/3.1"];
/// Headers of a session, there and back.
const BOTH_WAYS: [&str; 7] = [
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-protocol",
    "sec-websocket-accept",
    "sec-websocket-extensions",
    "x-stream-protocol-version",
    "x-accepted-stream-protocol-versions",
];

/// What the member makes of a session.
pub(super) enum Agreed {
    /// It agrees.
    Session(Response<()>, Upgraded),
    /// It does not, and says why.
    Refused(http::response::Parts, Incoming),
}

/// A session that the member has agreed to.
pub(super) struct Pipe {
    /// What the hub says.
    pub(super) hub: Received,
    pub(super) member: Upgraded,
    pub(super) measured: Measured,
}

impl Tunnel {
    /// Asks the member for a session.
    pub(super) async fn session(
        &self,
        head: &Parts,
        who: Who,
        measured: &mut Measured,
    ) -> Result<Agreed, Status> {
        let unclear = |why: &str| on_the_way(400, "BadRequest", why);
        let method = single(&head.headers, METHOD).filter(|method| ["GET", "POST"].contains(method));
        let method = method.ok_or_else(|| unclear("a session is asked for by GET or POST"))?;
        let protocol = single(&head.headers, UPGRADE);
        let known = |one: &&str| PROTOCOLS.iter().any(|known| known.eq_ignore_ascii_case(one));
        let protocol = protocol.filter(known).ok_or_else(|| {
            unclear(&format!("a connection changes to {} alone", PROTOCOLS.join(" or to ")))
        })?;
        let asked = self.judged(head, method, true, measured)?;
        let method = method.parse().map_err(|_| unclear("the method is none"))?;
        let due = Instant::now() + WHOLE;
        let asking = async {
            let mut sent =
                self.request(&head.headers, &method, &who, &asked).await?.map(|()| Empty::<&[u8]>::new());
            sent.headers_mut().extend(only(&head.headers, &[&BOTH_WAYS]));
            sent.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
            let upgrade = HeaderValue::from_str(protocol).map_err(|error| wrong(error.to_string()))?;
            sent.headers_mut().insert(header::UPGRADE, upgrade);
            let io = self.door.dial().await.map_err(wrong)?;
            let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
                .max_buf_size(64 << 10)
                .handshake(TokioIo::new(io))
                .await
                .map_err(|error| wrong(error.to_string()))?;
            measured.needs(async move {
                if let Err(error) = connection.with_upgrades().await {
                    tracing::debug!(%error, "a connection to the member broke off");
                }
            });
            let answer = sender.send_request(sent).await;
            answer.map_err(|error| wrong(format!("the connection broke off: {error}")))
        };
        let answer = timeout_at(due, asking).await.unwrap_or_else(|_| {
            let why = format!("the member's API has not answered within {} s", WHOLE.as_secs());
            Err(on_the_way(504, "Timeout", &why))
        })?;
        let code = answer.status();
        self.is_right(code)?;
        if code == StatusCode::SWITCHING_PROTOCOLS {
            let agreed = answer.headers().get(header::UPGRADE).and_then(|value| value.to_str().ok());
            if !agreed.is_some_and(|agreed| agreed.eq_ignore_ascii_case(protocol)) {
                return Err(wrong("it has agreed to another protocol than was asked for".to_owned()));
            }
            let mut response = Response::new(());
            *response.headers_mut() = back(answer.headers(), &[&BOTH_WAYS], &measured.share)?;
            response.headers_mut().insert(STATUS, HeaderValue::from_static("101"));
            if let Ok(agreed) = HeaderValue::from_str(agreed.unwrap_or_default()) {
                response.headers_mut().insert(UPGRADE, agreed);
            }
            let member = hyper::upgrade::on(answer).await.map_err(|error| wrong(error.to_string()))?;
            return Ok(Agreed::Session(response, member));
        }
        // Never a connection on which a client speaks as the agent.
        if code.is_informational() || code.is_success() || code.is_redirection() {
            return Err(wrong(format!("invalid upgrade response: status code {}", code.as_u16())));
        }
        let (mut head, body) = answer.into_parts();
        // Also what it would have agreed to.
        head.headers = back(&head.headers, &[&BACK, &BOTH_WAYS], &measured.share)?;
        Ok(Agreed::Refused(head, body))
    }
}

/// The one line of this name.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut lines = headers.get_all(name).iter();
    let line = lines.next()?.to_str().ok()?;
    lines.next().is_none().then_some(line)
}

impl Pipe {
    /// [Carries](carry) bytes, with this way back to the hub.
    pub(super) async fn run(self, to_hub: Sending) {
        let mut count = Count { measured: self.measured, bytes: AtomicU64::new(0) };
        let mut hub = streams::Session::new(self.hub, to_hub);
        let resets = hub.resets();
        // What comes of the hub is paid for as it arrives.
        let there = |bytes: usize| {
            count.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            Ok(())
        };
        let back = |bytes: usize| {
            there(bytes)?;
            count.measured.share.pay(bytes).map_err(io::Error::other)
        };
        // At once: nobody looks at the hub's end while the member takes nothing.
        let carried = tokio::select! {
            is_whole = carry(&mut hub, TokioIo::new(self.member), (there, back)) => Some(is_whole),
            _ = resets => None,
        };
        count.measured.record.whole = carried.unwrap_or_default();
        // What is still under way is paid for, too.
        if carried.is_some()
            && let Some(unread) = hub.rests(REST).await
        {
            count.measured.share.charge_unread(&unread, unread.waiting());
        }
    }
}

/// What a session has carried, however it ends.
struct Count {
    measured: Measured,
    bytes: AtomicU64,
}

impl Drop for Count {
    fn drop(&mut self) {
        self.measured.record.bytes = *self.bytes.get_mut();
    }
}
