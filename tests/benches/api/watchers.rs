//! Watchers: how soon they hear of something, and what they cost while they do not.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::{Duration, Instant},
};

use http_body_util::BodyExt;
use hyper::body::Incoming;
use karmada_tests::bench::{
    Report, now, percentile,
    report::{mb, ms},
    resident,
};
use tokio::{sync::Semaphore, task::LocalSet, time::sleep};

use crate::{
    bed::{Bed, Hub, MAPS, config_map},
    client::Client,
};

/// How often due writes are let go.
const TICK: Duration = Duration::from_millis(1);
/// Streams of one connection; the server allows as many.
const STREAMS: usize = 1000;
/// Opened before anything is measured: what the first ones cost is not what each costs.
const WARM: usize = 50;
const NAME: &[u8] = br#""name":"e-"#;

/// From sending a creation until a watcher has its event, at a steady rate.
pub(crate) async fn events(bed: &Bed, report: &mut Report) {
    let hub = bed.hub().await;
    let total = bed.args.rate as usize * bed.args.seconds as usize;
    let mut watcher = hub.target.http2().await;
    let body = watcher.stream(&format!("{MAPS}?watch=1")).await;
    let sent: Rc<RefCell<Vec<Option<Instant>>>> = Rc::new(RefCell::new(vec![None; total]));
    let (due, next) = (Rc::new(Semaphore::new(0)), Rc::new(Cell::new(0)));
    let local = LocalSet::new();
    for mut client in bed.clients(&hub).await {
        let (due, next, sent) = (due.clone(), next.clone(), sent.clone());
        local.spawn_local(async move {
            while let Ok(permit) = due.acquire().await {
                permit.forget();
                let n = next.replace(next.get() + 1);
                if n >= total {
                    return;
                }
                sent.borrow_mut()[n] = Some(now());
                client.post(MAPS, config_map(&format!("e-{n}"))).await;
            }
        });
    }
    let start = now();
    let rate = f64::from(bed.args.rate);
    let pace = local.spawn_local(async move {
        let mut let_go = 0;
        while let_go < total {
            sleep(TICK).await;
            let target = ((start.elapsed().as_secs_f64() * rate) as usize).min(total);
            due.add_permits(target - let_go);
            let_go = target;
        }
        due.add_permits(4096);
    });
    let seen = local.run_until(arrivals(body, sent, total)).await;
    let took = start.elapsed().as_secs_f64();
    pace.abort();
    let mut times = seen;
    times.sort_unstable();
    let reach = Duration::from_millis(10) + report.sync();
    report.add(
        format!("create until a watcher has the event at {} writes/s, p50 / p99 of {total}", bed.args.rate),
        format!(
            "{} / {} ({:.0} writes/s)",
            ms(percentile(&times, 50)),
            ms(percentile(&times, 99)),
            total as f64 / took
        ),
        format!("≤ 10 ms + 1 fsync = {} (p99)", ms(reach)),
        "",
    );
}

/// How long each event took.
async fn arrivals(
    mut body: Incoming,
    sent: Rc<RefCell<Vec<Option<Instant>>>>,
    total: usize,
) -> Vec<Duration> {
    let (mut line, mut times) = (Vec::new(), Vec::new());
    while times.len() < total {
        let frame = body.frame().await.expect("the watch goes on").expect("the watch goes on");
        let Some(data) = frame.data_ref() else { continue };
        let at = now();
        let mut rest: &[u8] = data;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            line.extend_from_slice(&rest[..end]);
            rest = &rest[end + 1..];
            if let Some(sent) = number(&line).and_then(|n| *sent.borrow().get(n)?) {
                times.push(at - sent);
            }
            line.clear();
        }
        line.extend_from_slice(rest);
    }
    times
}

/// The number in the name of the object of a frame.
fn number(frame: &[u8]) -> Option<usize> {
    let at = frame.windows(NAME.len()).position(|part| part == NAME)? + NAME.len();
    let digits = frame[at..].iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number, digit| 10 * number + usize::from(digit - b'0')))
}

/// What the hub holds for each watcher to whom nothing happens.
pub(crate) async fn memory(bed: &Bed, report: &mut Report) {
    let (many, some) = (bed.args.watchers, bed.args.connections);
    for (protocol, count, figure, reach) in [
        (Protocol::Two, many, format!("over HTTP/2, one of {many} on {many} namespaces"), "≤ 8 KB"),
        (Protocol::One, some, format!("on its own HTTP/1.1 TLS connection, one of {some}"), "≤ 45 KB"),
    ] {
        let hub = bed.hub().await;
        let warm = open(&hub, protocol, 0, WARM).await;
        bed.settle().await;
        let before = resident(&hub.process);
        let watching = open(&hub, protocol, WARM, count).await;
        bed.settle().await;
        let after = resident(&hub.process);
        let each = after.saturating_sub(before) as f64 / count as f64;
        report.add(
            format!("memory of an idle watcher {figure}"),
            format!("{:.1} KB (the hub has {})", each / 1e3, mb(after)),
            reach,
            "",
        );
        drop((warm, watching));
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    /// A connection for each watcher.
    One,
    /// One for a thousand.
    Two,
}

/// Watchers that wait, each on a namespace of its own.
async fn open(hub: &Hub, protocol: Protocol, first: usize, count: usize) -> (Vec<Client>, Vec<Incoming>) {
    let (mut clients, mut bodies) = (Vec::new(), Vec::new());
    for n in 0..count {
        match protocol {
            Protocol::One => clients.push(hub.target.http1().await),
            Protocol::Two if n % STREAMS == 0 => clients.push(hub.target.http2().await),
            Protocol::Two => {}
        }
        let path = format!("/api/v1/namespaces/ns-{}/configmaps", first + n);
        let query = "watch=1&resourceVersion=1&allowWatchBookmarks=true&timeoutSeconds=3600";
        let client = clients.last_mut().expect("the first has made one");
        bodies.push(client.stream(&format!("{path}?{query}")).await);
    }
    (clients, bodies)
}
