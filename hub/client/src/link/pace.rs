//! How long a peer may be silent: a while, and beyond it what the bytes on the wire take on the slowest line that is
//! served. Kernels and proxies take in a large request at once, so that what has been written tells nothing of what has
//! arrived; what can be told is how much there was to bring.

use std::time::Duration;

/// The slowest line that is served: half of one at the edge of a cell.
const SLOWEST: u64 = 2 << 10;

/// What other requests on the connection may add, however many bytes they bring.
const MOST: Duration = Duration::from_secs(120);

/// How long so many bytes may take.
pub(crate) fn crossing(bytes: u64) -> Duration {
    Duration::from_millis(bytes.saturating_mul(1000) / SLOWEST)
}

/// How long an answer is waited for. `body` is what the request brings; `sent` and `received` are what the connection
/// has moved since it began, the request itself included.
pub(super) fn patience(usual: Duration, body: u64, sent: u64, received: u64) -> Duration {
    let own = crossing(body);
    let all = crossing(body.max(sent).saturating_add(received));
    usual + all.min(own + MOST)
}

/// How long a connection may bring nothing, when so many bytes went out since it last did.
pub(super) fn silence(usual: Duration, unanswered: u64) -> Duration {
    usual + crossing(unanswered).min(MOST)
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
            assert_eq!(patience(usual, body, sent, received), seconds(want), "{body} {sent} {received}");
        }
        assert_eq!(patience(usual, u64::MAX, u64::MAX, u64::MAX), patience(usual, u64::MAX, 0, 0));
        assert_eq!((silence(seconds(17), 0), silence(seconds(17), 64 << 10)), (seconds(17), seconds(49)));
        assert_eq!(silence(seconds(17), u64::MAX), seconds(137));
    }
}
