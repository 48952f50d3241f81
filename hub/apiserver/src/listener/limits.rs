//! What one listener takes on, and what one client may hold of it.

use std::time::Duration;

/// Limits of a listener.
///
/// Where they end a connection, they end it early: before its TLS handshake, or between requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once. Strangers go for others as long as there are some; then the next one is closed as soon as it
    /// is made. 0: any number.
    pub connections: usize,
    /// Of them, those that have shown no good credential and come from where none was seen lately; 0: any number.
    pub strangers: usize,
    /// Of those, from one IPv4 address or one /64 of IPv6; 0: any number. It is generous, since the agents of a whole
    /// site may come from one address, behind NAT, and are strangers the first time, as users with tokens are.
    pub strangers_per_address: usize,
    /// Connections at once that have shown nothing yet and come from where good credentials were seen lately, beside
    /// strangers'. An address has eight for each key that is known there.
    pub reserved: usize,
    /// Connections at once of one identity, that is of one user name, by certificate or token; 0: any number. Agents have
    /// one or two, kubectl one for each that runs. `system:masters` is not counted.
    pub connections_per_identity: usize,
    /// From the first byte to the end of the handshake, with the wait for its turn. Two round trips and some arithmetic; a
    /// client that takes longer holds a place for nothing.
    pub handshake: Duration,
    /// Until the first request has its headers, and of HTTP/1 each further one: kube-apiserver's ReadHeaderTimeout.
    pub headers: Duration,
    /// How long a connection may be there without a request. Clients give theirs up after 90 s, and it is better when
    /// they do: a request that crosses our end of an HTTP/1 connection fails.
    pub idle: Duration,
    /// HTTP/2 streams of a connection. One is one watch; clients open another connection beyond it.
    pub streams: u32,
    /// The same of a client without a certificate. Clients open another connection beyond it.
    pub stranger_streams: u32,
    /// How often a quiet HTTP/2 peer is asked whether it is there.
    pub ping: Duration,
    /// The same of one that has shown a certificate. An agent says by itself that it lives, as often as its link bears, and each
    /// question may have to be paid for.
    pub ping_certified: Duration,
    /// How long it may take to say so. A peer that is gone is noticed within both, also on a connection that only carries
    /// watches.
    pub pong: Duration,
    /// How long a peer may take nothing of what is written to it. Kernels tell of room when a good part of what they
    /// have queued is gone, which on a line of 4 kB/s takes a minute.
    pub stall: Duration,
    /// Bytes queued for a reader that is slow, per stream. 10,000 stalled watches stay within 640 MB.
    pub send_buffer: usize,
    /// Bytes of the headers of a request over HTTP/1, and how much of a body is read ahead: kube-apiserver's
    /// MaxHeaderBytes. Of headers there may be a hundred.
    pub header_bytes: usize,
    /// The same over HTTP/2. A long selector or continue token fits; hyper's own default of 16 KiB is short of it.
    pub header_list: u32,
    /// Both for a client without a certificate. A token of an identity provider and a selector of some hundred values fit.
    pub stranger_headers: u32,
    /// What strangers may have lying here of requests that are not whole, beyond 16 KiB for each. One that needs more when
    /// it is used up is ended.
    pub stranger_bytes: usize,
    /// How much of a body a client without a certificate may send ahead, in one stream and in all. It is read as it comes.
    pub stranger_window: u32,
    /// How long running requests get when the server ends. The process has 10 s from SIGTERM; this leaves some for the
    /// store.
    pub drain: Duration,
    /// How long a quiet HTTP/1 connection is kept when the server ends. It knows no way of saying so but in an answer,
    /// and a request that is on its way then is better answered.
    pub linger: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16_384,
            strangers: 2_048,
            strangers_per_address: 1_024,
            reserved: 1_024,
            connections_per_identity: 64,
            handshake: Duration::from_secs(15),
            headers: Duration::from_secs(32),
            idle: Duration::from_secs(120),
            streams: 1_000,
            stranger_streams: 100,
            ping: Duration::from_secs(30),
            ping_certified: Duration::from_secs(300),
            pong: Duration::from_secs(20),
            stall: Duration::from_secs(180),
            send_buffer: 64 << 10,
            header_bytes: 1 << 20,
            header_list: 256 << 10,
            stranger_headers: 16 << 10,
            stranger_bytes: 64 << 20,
            stranger_window: 128 << 10,
            drain: Duration::from_secs(7),
            linger: Duration::from_millis(500),
        }
    }
}

/// File descriptors for everything else: the store, logs, webhooks; an eighth of all for members that the hub dials.
const OTHER_FILES: usize = 256;

/// How many requests to members there may be at a time, where so many files may be open: each has a connection there, and
/// as many again are kept for a while.
pub fn to_members(files: Option<usize>) -> usize {
    files.map_or(MOST_TO_MEMBERS, |files| (files / 16).clamp(16, MOST_TO_MEMBERS))
}

const MOST_TO_MEMBERS: usize = 2000;

impl Limits {
    /// The same for a process that may have so many files open, and what had to give, for the log.
    #[must_use]
    pub fn within(mut self, files: usize) -> (Self, Option<String>) {
        let others = OTHER_FILES + 2 * to_members(Some(files));
        let most = files.saturating_sub(others).max(files / 2).max(1);
        if self.connections > 0 && self.connections <= most {
            return (self, None);
        }
        let asked =
            if self.connections == 0 { "any number of".to_owned() } else { self.connections.to_string() };
        self.connections = most;
        let why = format!(
            "{most} connections at one time instead of {asked}: the process may have {files} files open; raise \
             RLIMIT_NOFILE (ulimit -n, LimitNOFILE=) for more"
        );
        (self, Some(why))
    }

    /// Strangers leave at least half of the places to others, and those of whom something is known a quarter.
    pub(super) fn consistent(mut self) -> Self {
        if self.connections > 0 {
            let half = (self.connections / 2).max(1);
            self.strangers = if self.strangers == 0 { half } else { self.strangers.min(half) };
            self.reserved = self.reserved.min(self.connections / 4);
        }
        self
    }
}

/// Why a connection was ended before its client wanted it.
pub(super) mod reason {
    /// There is no place, and nobody who could go.
    pub(in crate::listener) const CONNECTIONS: &str = "too_many_connections";
    pub(in crate::listener) const ADDRESS: &str = "too_many_of_one_address";
    pub(in crate::listener) const STRANGERS: &str = "too_many_strangers";
    /// A stranger that did nothing, when others came.
    pub(in crate::listener) const ROOM: &str = "made_room";
    pub(in crate::listener) const IDENTITY: &str = "too_many_of_one_identity";
    /// More handshakes than strangers get.
    pub(in crate::listener) const PACE: &str = "too_many_handshakes";
    pub(in crate::listener) const HANDSHAKE: &str = "handshake_took_too_long";
    pub(in crate::listener) const TLS: &str = "handshake_failed";
    pub(in crate::listener) const STALLED: &str = "took_nothing";
    pub(in crate::listener) const IDLE: &str = "idle";
    pub(in crate::listener) const SILENT: &str = "no_request";
    /// What the client had shown for itself holds no more.
    pub(in crate::listener) const CREDENTIAL: &str = "credential_ended";
    /// Requests that the client took back before they were answered, again and again.
    pub(in crate::listener) const WITHDRAWN: &str = "requests_withdrawn";
    /// Unfinished requests of strangers held all that they may.
    pub(in crate::listener) const BYTES: &str = "too_many_bytes_of_strangers";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_no_more_than_files_and_strangers_have_half() {
        let of = |connections: usize, files: usize| {
            let (limits, said) = Limits { connections, ..Limits::default() }.within(files);
            let limits = limits.consistent();
            (limits.connections, limits.strangers, limits.reserved, said.is_some())
        };
        let cases = [
            ((16_384, 1_048_576), (16_384, 2_048, 1_024, false)),
            ((16_384, 20_000), (16_384, 2_048, 1_024, false)),
            ((16_384, 16_640), (14_304, 2_048, 1_024, true)),
            ((16_384, 1_024), (640, 320, 160, true)),
            ((16_384, 256), (128, 64, 32, true)),
            ((0, 1_024), (640, 320, 160, true)),
            ((100, 1_024), (100, 50, 25, false)),
            ((1, 1_024), (1, 1, 0, false)),
        ];
        for ((connections, files), want) in cases {
            assert_eq!(of(connections, files), want, "{connections} of {files}");
        }
        let (_, said) = Limits::default().within(1_024);
        assert!(said.is_some_and(|said| said.starts_with("640 connections at one time instead of 16384: ")));
        let unbounded = Limits { connections: 0, ..Limits::default() };
        assert_eq!(unbounded.consistent(), unbounded);
    }
}
