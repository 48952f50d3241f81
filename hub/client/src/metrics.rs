//! How queues and links are shown on a page, the same for hub and agent.

use std::{collections::BTreeMap, fmt, time::Duration};

use karmada_telemetry::metrics::Sheet;
use parking_lot::RwLock;

use crate::{
    LinkStatus,
    queue::{QueueFigures, WorkQueue},
};

type Look = Box<dyn Fn() -> QueueFigures + Send + Sync>;

/// Queues by name, under the names that client-go gives its own.
#[derive(Default)]
pub struct Queues(RwLock<BTreeMap<&'static str, Look>>);

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.read().keys()).finish()
    }
}

impl Queues {
    /// Shows a queue from now on; one of the same name is shown no longer.
    pub fn add<K: Ord + Clone + Send + 'static>(&self, name: &'static str, queue: &WorkQueue<K>) {
        let queue = queue.clone();
        self.0.write().insert(name, Box::new(move || queue.figures()));
    }

    /// Shows none of them any longer.
    pub fn clear(&self) {
        self.0.write().clear();
    }

    /// Writes them.
    ///
    /// # Errors
    /// Those of the sheet.
    pub fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let all: Vec<_> = self.0.read().iter().map(|(name, look)| ([("name", *name)], look())).collect();
        let rows = |value: fn(&QueueFigures) -> f64| all.iter().map(move |(labels, q)| (*labels, value(q)));
        let longest = |q: &QueueFigures| q.working.iter().max().map_or(0.0, Duration::as_secs_f64);
        let unfinished = |q: &QueueFigures| q.working.iter().sum::<Duration>().as_secs_f64();
        sheet.gauge("workqueue_depth", "Keys that wait for a worker.", rows(|q| q.depth as f64))?;
        sheet.gauge(
            "karmada_workqueue_delayed",
            "Keys that wait for their time.",
            rows(|q| q.delayed as f64),
        )?;
        sheet.counter("workqueue_adds_total", "Keys that were added.", rows(|q| q.adds as f64))?;
        sheet.counter(
            "workqueue_retries_total",
            "Keys that failed and came back.",
            rows(|q| q.retries as f64),
        )?;
        sheet.gauge(
            "workqueue_unfinished_work_seconds",
            "How long what is under way has been, summed up.",
            rows(unfinished),
        )?;
        sheet.gauge(
            "workqueue_longest_running_processor_seconds",
            "How long the longest of it has been.",
            rows(longest),
        )?;
        sheet.histogram(
            "workqueue_queue_duration_seconds",
            "How long keys waited for a worker.",
            all.iter().map(|(labels, q)| (*labels, &q.waited)),
        )?;
        sheet.histogram(
            "workqueue_work_duration_seconds",
            "How long workers had them.",
            all.iter().map(|(labels, q)| (*labels, &q.worked)),
        )
    }
}

/// Writes what crossed a link, and how it is: families that begin with `prefix`. `now` is [`karmada_env::Env::now`].
///
/// # Errors
/// Those of the sheet.
pub fn link(sheet: &mut Sheet<'_>, prefix: &str, to: &str, link: &LinkStatus, now: Duration) -> fmt::Result {
    let counters = link.counters();
    let name = |suffix: &str| format!("{prefix}_{suffix}");
    sheet.one_counter(
        &name("received_bytes_total"),
        &format!("Bytes read from the {to}'s sockets."),
        counters.received() as f64,
    )?;
    sheet.one_counter(
        &name("sent_bytes_total"),
        &format!("Bytes written to the {to}'s sockets."),
        counters.sent() as f64,
    )?;
    sheet.one_counter(
        &name("connections_total"),
        &format!("Connections made to the {to}."),
        counters.connections() as f64,
    )?;
    let connected = if link.is_connected() { 1.0 } else { 0.0 };
    sheet.one_gauge(&name("connected"), &format!("1 while there is a connection to the {to}."), connected)?;
    // Before the first word there is no age.
    if !counters.last_read().is_zero() {
        let age = now.saturating_sub(counters.last_read());
        sheet.one_gauge(
            &name("last_contact_age_seconds"),
            &format!("How long ago anything was last read from the {to}."),
            age.as_secs_f64(),
        )?;
    }
    Ok(())
}
