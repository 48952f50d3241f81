//! For whom requests wait, and for how long.

use bytes::Bytes;
use futures::{FutureExt as _, future::BoxFuture};
use tokio::time::Instant;

use super::*;

/// A service that does with an event what stands in it.
struct Service;

impl Posts for Service {
    fn post(&self, line: Bytes) -> BoxFuture<'_, Result<(), String>> {
        async move {
            match &*line {
                b"hangs" => std::future::pending().await,
                b"slow" => {
                    tokio::time::sleep(Duration::from_secs(3)).await;
                    Ok(())
                }
                b"too large" => Err("413".to_owned()),
                _ => Ok(()),
            }
        }
        .boxed()
    }
}

/// Whether an event may be gone without, and how many seconds that took to find out.
async fn settle(audit: &Audit, receipts: Receipts) -> (bool, u64) {
    let begun = Instant::now();
    let settled = audit.settle(receipts, &Patience::default()).await.is_ok();
    (settled, begun.elapsed().as_secs())
}

fn audit(mode: Mode, entries: usize) -> Audit {
    audit_of(&[mode], entries)
}

fn audit_of(modes: &[Mode], entries: usize) -> Audit {
    let limits = Limits { entries, ..Limits::default() };
    let output = |mode: &Mode| Output::one_by_one("webhook", *mode, Service, limits, Env::system());
    let outputs = modes.iter().map(output).collect();
    let policy = b"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]";
    Audit::new(Policy::parse(policy).unwrap(), outputs, Env::system())
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_another_and_nobody_is_refused_with_another() {
    for (mode, lost, away) in [(Mode::Blocking, true, 0), (Mode::Strict, false, 1)] {
        let audit = audit(mode, 100);
        let send = |line: &str| audit.push_awaited(line.as_bytes(), false);
        let (hangs, large, slow, good) = (send("hangs"), send("too large"), send("slow"), send("good"));
        assert_eq!(settle(&audit, good).await, (true, 0), "{mode:?}");
        assert_eq!(settle(&audit, large).await, (lost, 0), "{mode:?}: it is its own alone");
        assert_eq!(settle(&audit, slow).await, (true, 3), "{mode:?}");
        assert_eq!(settle(&audit, hangs).await, (lost, 10), "{mode:?}: not for ever");
        // Nothing is taken: the next ones do not wait for so long, until something is.
        assert_eq!(settle(&audit, send("hangs")).await, (lost, away), "{mode:?}");
        assert_eq!(settle(&audit, send("good")).await, (true, 0), "{mode:?}");
        tokio::task::yield_now().await;
        assert_eq!(settle(&audit, send("hangs")).await, (lost, 10), "{mode:?}: it was there meanwhile");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_on_its_way_is_bounded_and_awaited_at_the_end() {
    let audit = audit(Mode::Strict, 2);
    let (slow, hangs) = (audit.push_awaited(b"slow", false), audit.push_awaited(b"hangs", false));
    assert_eq!(settle(&audit, audit.push_awaited(b"good", false)).await, (false, 0), "there is no room");
    assert_eq!(settle(&audit, slow).await, (true, 3));
    assert_eq!(settle(&audit, audit.push_awaited(b"good", false)).await, (true, 0), "now there is");
    drop(hangs);
    let begun = Instant::now();
    let late = audit.close(Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(begun.elapsed().as_secs(), 10);
    assert_eq!(late, "not written: the audit webhook within 10000 ms (1 events or more are lost)");

    let audit = self::audit(Mode::Blocking, 2);
    drop(audit.push_awaited(b"slow", false));
    let begun = Instant::now();
    audit.close(Duration::from_secs(1)).await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 3, "whoever gave up is told all the same");
    assert_eq!(settle(&audit, audit.push_awaited(b"good", false)).await, (true, 0), "it takes no more");
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_all_outputs_at_once_and_no_longer_for_its_second_event() {
    let audit = audit_of(&[Mode::Blocking, Mode::Blocking, Mode::Strict], 100);
    let (begun, patience) = (Instant::now(), Patience::default());
    let came = audit.push_awaited(b"slow", false);
    assert!(audit.settle(came, &patience).await.is_ok());
    assert_eq!(begun.elapsed().as_secs(), 3, "not one after the other");
    let ended = audit.push_awaited(b"hangs", false);
    assert!(audit.settle(ended, &patience).await.is_err(), "the strict one is one of them");
    assert_eq!(begun.elapsed().as_secs(), 10, "in all");
}

#[tokio::test(start_paused = true)]
async fn what_was_given_up_makes_room_for_what_is_waited_for() {
    let audit = audit(Mode::Strict, 3);
    let given_up: Vec<_> = (0..3).map(|_| audit.push_awaited(b"hangs", false)).collect();
    assert_eq!(settle(&audit, audit.push_awaited(b"good", false)).await, (false, 0), "they are waited for");
    drop(given_up);
    tokio::task::yield_now().await;
    // The service is well again; three pauses of others hold nobody up, and each gives way once.
    for _ in 0..5 {
        assert_eq!(settle(&audit, audit.push_awaited(b"good", false)).await, (true, 0));
    }
    assert_eq!(audit.outputs[0].queue.waiting(), 2, "one went for the first");
    let hanging = audit.push_awaited(b"hangs", false);
    assert_eq!(settle(&audit, audit.push_awaited(b"good", false)).await, (true, 0), "another goes");
    drop(hanging);
    assert!(audit.outputs[0].queue.waiting() <= 3);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_takes_nobodys_place_and_a_large_event_takes_no_small_ones() {
    let audit = audit(Mode::Strict, 3);
    let given_up: Vec<_> = (0..3).map(|_| audit.push_awaited(b"hangs", false)).collect();
    drop(given_up);
    tokio::task::yield_now().await;
    assert_eq!(settle(&audit, audit.push_awaited(b"good", true)).await, (false, 0));
    assert_eq!(audit.outputs[0].queue.waiting(), 3, "they are tried as before");
    let large = vec![b'x'; audit.outputs[0].queue.left() + 1];
    assert_eq!(settle(&audit, audit.push_awaited(&large, false)).await, (false, 0));
    assert!(audit.outputs[0].queue.left() > 0, "no more waits than there is room for");
}
