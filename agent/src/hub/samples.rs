//! What workloads use here, for the hub's FederatedHPAs: from the member to the status of the Works that ask
//! ([`karmada_member::sampling`]).
//!
//! ```text
//!   Works that ask ─▶ queue, each once in its period ─▶ Sampler ─▶ is it news? ─▶ Outbox
//! ```
//!
//! What the hub has is told again only when it says something else: other Pods at once, another use when it differs by a
//! twentieth. So a workload that does nothing costs the link nothing; that this agent is there its Lease says. A hub that has
//! another state is told anew, since what it has comes with its Works.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use karmada_api::work::{ManifestStatus, WorkStatus};
use karmada_client::WorkQueue;
use karmada_core::autoscale::{
    question::Question,
    report::{News, Report},
};
use karmada_env::Env;
use karmada_member::{DesiredWork, Member, rights::Rights, sampling::Sampler};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::sleep;

use super::outbox::Outbox;

/// Workloads that are sampled at a time.
const AT_ONCE: usize = 4;
/// Works come several at a time.
const TOGETHER: Duration = Duration::from_millis(100);

/// See the module.
pub(crate) struct Sampling {
    pub(crate) half: Arc<Member>,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) rights: Rights,
    pub(crate) env: Env,
    /// How often figures are told at most.
    pub(crate) figures: Duration,
}

/// One course of it.
struct Course<'a> {
    sampling: &'a Sampling,
    sampler: Sampler,
    queue: WorkQueue<String>,
    /// The Works that ask, with what they ask: their uid and generation.
    asked: Mutex<BTreeMap<String, (String, i64)>>,
    /// By Work, [`Env::now`] when a use was told last.
    told: Mutex<BTreeMap<String, Duration>>,
}

impl Sampling {
    /// Samples while this agent speaks for the cluster.
    pub(crate) async fn run(self) {
        loop {
            self.rights.reporting().await;
            let course = Course {
                sampling: &self,
                sampler: self.half.sampler(),
                queue: WorkQueue::new(self.env.clone()),
                asked: Mutex::default(),
                told: Mutex::default(),
            };
            tokio::select! {
                biased;
                () = self.rights.when(|standing| !standing.may_report()) => {}
                () = course.run() => {}
            }
        }
    }
}

impl Course<'_> {
    async fn run(&self) {
        let mut changes = self.sampling.half.desired().samples_change();
        let follow = async {
            self.heed();
            loop {
                changes.woken().await;
                sleep(TOGETHER).await;
                changes.clear();
                self.heed();
            }
        };
        let samplers = futures::future::join_all((0..AT_ONCE).map(|_| self.take_turns()));
        tokio::select! {
            () = follow => {}
            _ = samplers => {}
        }
    }

    /// Hears which Works ask. One that asks something new is answered at once.
    fn heed(&self) {
        let now: BTreeMap<String, (String, i64)> = self.sampling.half.desired().samples();
        let mut asked = self.asked.lock();
        let new: BTreeSet<&String> =
            now.iter().filter(|(name, what)| asked.get(*name) != Some(*what)).map(|(name, _)| name).collect();
        // Many at once, as after a start, are not all at the member's door together.
        let spread = if new.len() > AT_ONCE * 4 { self.sampling.figures } else { Duration::ZERO };
        for name in new {
            let wait = self.sampling.env.below(u64::try_from(spread.as_millis()).unwrap_or(0) + 1);
            self.queue.add_after(name.clone(), Duration::from_millis(wait));
        }
        self.told.lock().retain(|name, _| now.contains_key(name));
        *asked = now;
    }

    async fn take_turns(&self) {
        while let Some(name) = self.queue.next().await {
            let again = Box::pin(self.turn(&name)).await;
            let key = (*name).clone();
            name.done();
            if let Some(again) = again {
                self.queue.add_after(key, again);
            }
        }
    }

    /// Samples for a Work, and tells what is new; answers when it has its next turn.
    async fn turn(&self, name: &str) -> Option<Duration> {
        let desired = self.sampling.half.desired();
        let work = desired.get(name).filter(|work| work.asks_for_samples())?;
        let manifest = work.manifests.first()?;
        let question = serde_json::from_str::<serde_json::Value>(&manifest.text.get())
            .map_err(|error| error.to_string())
            .and_then(|manifest| Question::read(&manifest));
        let (mut report, every) = match &question {
            Ok(question) => (self.sampler.sample(question).await, question.sampling.every),
            Err(why) => (Report::failed(why), self.sampling.figures),
        };
        report.generation = work.generation;
        let status = work.status();
        let known = status.manifest_statuses.first().and_then(|known| known.status.as_ref());
        let known = known.and_then(|known| Report::read(known).ok());
        let news = known.map_or(News::Pods, |known| report.news(&known));
        let now = self.sampling.env.now();
        let is_due = self
            .told
            .lock()
            .get(name)
            .is_none_or(|told| now.saturating_sub(*told) + TOGETHER >= self.sampling.figures);
        if news == News::Pods || (news == News::Usage && is_due) {
            self.told.lock().insert(name.to_owned(), now);
            self.sampling.outbox.status(name, &work.uid, &status, answer(&work, &status, &report));
        }
        Some(every)
    }
}

/// A Work's status with a report in it.
fn answer(work: &DesiredWork, old: &WorkStatus, report: &Report) -> WorkStatus {
    let identifier = work.manifests.first().map(|manifest| manifest.identifier(0)).unwrap_or_default();
    let manifest_statuses = vec![ManifestStatus { identifier, status: Some(json!(report)), health: None }];
    WorkStatus { conditions: old.conditions.clone(), manifest_statuses }
}
