//! How long a peer may be silent: a while, and beyond it what the bytes on the wire take on the slowest line that is
//! served ([`super::Patience::slowest`]). Kernels and proxies take in a large request at once, so that what has been written tells nothing of what has
//! arrived; what can be told is how much there was to bring.

use std::time::Duration;

/// The slowest line that is served at all, in bytes a second: half of one at the edge of a cell.
pub(super) const SLOWEST: u64 = 2 << 10;

/// What other requests on the connection may add, however many bytes they bring.
const MOST: Duration = Duration::from_secs(120);

/// How long so many bytes may take on the slowest line of all.
pub(crate) fn crossing(bytes: u64) -> Duration {
    crossing_at(SLOWEST, bytes)
}

/// The same on a line of so many bytes a second.
fn crossing_at(rate: u64, bytes: u64) -> Duration {
    Duration::from_millis(bytes.saturating_mul(1000) / rate.max(1))
}

/// How long an answer is waited for. `body` is what the request brings; `sent` and `received` are what the connection
/// has moved since it began, the request itself included. `slowest` is the slowest line that is served, in bytes a second.
pub(super) fn patience(usual: Duration, slowest: u64, body: u64, (sent, received): (u64, u64)) -> Duration {
    let own = crossing_at(slowest, body);
    let all = crossing_at(slowest, body.max(sent).saturating_add(received));
    usual + all.min(own + MOST)
}

/// How long a connection may bring nothing, when so many bytes went out since it last did.
pub(super) fn silence(usual: Duration, slowest: u64, unanswered: u64) -> Duration {
    usual + crossing_at(slowest, unanswered).min(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_brought_decides() {
        let seconds = Duration::from_secs;
        let usual = seconds(13);
        for (body, sent, received, want) in [
            (0, 0, 0, 13),
            (60 << 10, 0, 0, 43),
            // It is the request itself that went out.
            (60 << 10, 60 << 10, 0, 43),
            (0, 10 << 10, 10 << 10, 23),
            // Others do not prolong it without an end; its own bytes do.
            (0, 0, 1 << 30, 133),
            (1 << 20, 0, 1 << 30, 13 + 512 + 120),
        ] {
            let got = patience(usual, SLOWEST, body, (sent, received));
            assert_eq!(got, seconds(want), "{body} {sent} {received}");
        }
        let most = u64::MAX;
        assert_eq!(patience(usual, SLOWEST, most, (most, most)), patience(usual, SLOWEST, most, (0, 0)));
        for (rate, unanswered, want) in [
            (SLOWEST, 0, 17_000),
            (SLOWEST, 64 << 10, 49_000),
            (128 << 10, 64 << 10, 17_500),
            (0, most, 137_000),
        ] {
            let got = silence(seconds(17), rate, unanswered);
            assert_eq!(got, Duration::from_millis(want), "{rate} {unanswered}");
        }
    }
}
