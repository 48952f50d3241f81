//! How queues and links are shown on a page, the same for hub and agent.

use std::{collections::BTreeMap, fmt, time::Duration};

use karmada_env::Env;
use karmada_telemetry::metrics::{Sheet, Source};
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
            "Running time of the oldest item in progress.",
            rows(longest),
        )?;
        sheet.histogram(
            "workqueue_queue_duration_seconds",
            "How long keys waited for a worker.",
            all.iter().map(|(labels, q)| (*labels, &q.waited)),
        )?;
        sheet.histogram(
            "workqueue_work_duration_seconds",
            "Time that processing an item took.",
            all.iter().map(|(labels, q)| (*labels, &q.worked)),
        )
    }
}

/// What crosses a link, and how it is, in families that begin with a prefix.
#[derive(Clone, Debug)]
pub struct LinkFigures {
    /// What the families' names begin with.
    pub prefix: &'static str,
    /// Whom it leads to, in sentences.
    pub to: &'static str,
    /// The link.
    pub link: LinkStatus,
    /// Whose clock the link goes by.
    pub env: Env,
}

impl Source for LinkFigures {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let (counters, to) = (self.link.counters(), self.to);
        let name = |suffix: &str| format!("{}_{suffix}", self.prefix);
        let counts = [
            ("received_bytes_total", format!("Bytes read from the {to}'s sockets."), counters.received()),
            ("sent_bytes_total", format!("Bytes written to the {to}'s sockets."), counters.sent()),
            ("connections_total", format!("Connections made to the {to}."), counters.connections()),
        ];
        for (suffix, help, count) in counts {
            sheet.one_counter(&name(suffix), &help, count as f64)?;
        }
        let connected = if self.link.is_connected() { 1.0 } else { 0.0 };
        let help = format!("1 while there is a connection to the {to}.");
        sheet.one_gauge(&name("connected"), &help, connected)?;
        // Before the first word there is no age.
        let last = Some(counters.last_read()).filter(|last| !last.is_zero());
        let Some(last) = last else { return Ok(()) };
        let age = self.env.now().saturating_sub(last).as_secs_f64();
        let help = format!("How long ago anything was last read from the {to}.");
        sheet.one_gauge(&name("last_contact_age_seconds"), &help, age)
    }
}
