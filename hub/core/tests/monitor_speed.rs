//! How long one look of the lease monitor takes. Prints the figure (`cargo test --release -p karmada-core --test
//! monitor_speed -- --nocapture`); the budget in release is 20 ms for 1,000 clusters. Bindings are no part of it: a look
//! reads none, however many there are. Here only what would be a mistake in the algorithm fails, since a debug build on a
//! busy machine says nothing about milliseconds.

#![allow(clippy::disallowed_methods, reason = "it measures")]

use std::time::{Duration, Instant};

use karmada_api::{conditions::Condition, consts::condition};
use karmada_core::{
    health::{Moment, Ready},
    judge::{Cluster, Judge, Settings, grace::Said},
};
use karmada_meta::time::Time;

const CLUSTERS: usize = 1_000;

fn at(seconds: u64) -> Moment {
    Moment { monotonic: Duration::from_secs(seconds), wall: Duration::from_secs(1_767_225_600 + seconds) }
}

/// A look as the hub takes it: the verdict, and of every cluster what is to be shown and written down.
fn look(judge: &mut Judge, names: &[String], ready: &[Ready], now: Moment) -> Duration {
    let time = Time::from_system(std::time::UNIX_EPOCH + now.wall);
    let shown = vec![Condition::new(condition::READY, true, "ClusterReady", "", time)];
    let begun = Instant::now();
    let listed = names.iter().zip(ready).map(|(name, ready)| Cluster {
        name,
        ready: *ready,
        grace: Said { annotation: None, lease: Some(Duration::from_secs(40)) },
        history: None,
        lost_since: None,
        held: None,
        windows: None,
    });
    let verdict = judge.tick(now, true, listed, []);
    let mut news = verdict.expired.len();
    for (name, ready) in names.iter().zip(ready) {
        news += usize::from(judge.opinion(name, *ready, now).show(&mut shown.clone(), time));
        news += usize::from(judge.record(name, now).is_some());
    }
    std::hint::black_box(news);
    begun.elapsed()
}

#[test]
fn one_look_at_a_thousand_clusters() {
    let names: Vec<_> = (0..CLUSTERS).map(|number| format!("cluster-{number:04}")).collect();
    let mut ready = vec![Ready::True; CLUSTERS];
    let mut judge = Judge::new(Settings::default(), at(0));
    let (mut usual, mut outage) = (Vec::new(), Vec::new());
    for now in (5..2_000).step_by(5) {
        // From the thousandth second on, two of five are silent.
        let silent = |number: usize| now > 1_000 && number % 5 < 2;
        if now % 10 == 0 {
            for (number, name) in names.iter().enumerate().filter(|(number, _)| !silent(*number)) {
                // Every hundredth is often late.
                if number % 100 != 0 || now % 60 == 0 {
                    judge.renewed(name, &format!("t{now}"), at(now));
                }
            }
        }
        let took = look(&mut judge, &names, &ready, at(now));
        if now <= 1_000 {
            usual.push(took)
        } else {
            outage.push(took)
        }
        if now == 1_050 {
            (0..CLUSTERS).filter(|number| number % 5 < 2).for_each(|number| ready[number] = Ready::Unknown);
        }
    }
    for (what, mut times) in [("usual", usual), ("two of five lost", outage)] {
        times.sort_unstable();
        let (median, most) = (times[times.len() / 2], times[times.len() - 1]);
        println!("one look at {CLUSTERS} clusters, {what}: median {median:?}, longest {most:?}");
        assert!(median < Duration::from_millis(500), "{what}: {median:?}");
    }
    assert!(judge.held().is_some());
}
