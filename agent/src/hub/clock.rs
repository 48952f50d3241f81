//! Clocks that are wrong, in words. Pure.

use std::time::Duration;

use karmada_meta::duration;

/// Two clocks that differ by less than this are right. What is certified is backdated by five minutes.
pub(crate) const TOLERATED: i64 = 180;

/// How much one clock is ahead of another, in words: `12m behind`.
fn apart(ahead: i64) -> String {
    let by = duration::format(Duration::from_secs(ahead.unsigned_abs()));
    format!("{by} {}", if ahead < 0 { "ahead of" } else { "behind" })
}

/// What to say when the hub's clock is so many seconds ahead of ours; nothing if that does no harm.
pub(crate) fn differs(ahead: i64) -> Option<String> {
    (ahead.abs() > TOLERATED).then(|| {
        format!(
            "this machine's clock is {} the hub's: certificates and Leases depend on clocks; correct the one that is wrong \
             (timedatectl, chronyc tracking)",
            apart(ahead)
        )
    })
}

/// Why the hub's certificate does not hold now: one of two clocks is wrong, or it has not been renewed.
pub(crate) fn certificate_not_now(hub: &str, ended: bool, by: Duration, ahead: Option<i64>) -> String {
    let by = duration::format(by);
    let what = if ended { format!("ended {by} ago") } else { format!("begins in {by}") };
    match ahead.and_then(differs) {
        Some(clock) => format!("the certificate of {hub} {what} by our clock: {clock}"),
        None => format!(
            "the certificate of {hub} {what}, and its clock agrees with ours: the hub has not renewed it; see its log"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_that_is_behind_is_named() {
        assert_eq!(differs(60), None);
        assert_eq!(differs(-TOLERATED), None);
        assert!(differs(720).unwrap().starts_with("this machine's clock is 12m0s behind the hub's"));
        assert!(differs(-3600).unwrap().starts_with("this machine's clock is 1h0m0s ahead of the hub's"));
        let said = certificate_not_now("hub:1", false, Duration::from_secs(60), Some(7200));
        assert!(
            said.contains("begins in 1m0s by our clock: this machine's clock is 2h0m0s behind"),
            "{said}"
        );
        let said = certificate_not_now("hub:1", true, Duration::from_secs(60), Some(0));
        assert!(said.contains("has not renewed it"), "{said}");
    }
}
