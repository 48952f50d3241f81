//! The judgement on clusters, shared: the lease monitor moves it on, whoever evicts or waits for a fence asks it.

use std::time::{Duration, SystemTime};

use karmada_core::{
    evict::{Allowance, Ask},
    health::{Moment, Ready},
    judge::{self, Cluster, Judge, Opinion, Record, Settings, Verdict, budget::Budgets},
};
use karmada_env::Env;
use parking_lot::Mutex;

use crate::{evictions, metrics::HubFigures};

/// The judge, and the budgets of evictions.
#[derive(Debug)]
pub(crate) struct Judgement {
    env: Env,
    figures: HubFigures,
    settings: Settings,
    judge: Mutex<Judge>,
    budgets: Mutex<Budgets>,
}

impl Judgement {
    /// A judgement that starts now.
    pub(crate) fn new(settings: Settings, env: Env, figures: HubFigures) -> Self {
        let judge = Mutex::new(Judge::new(settings, moment(&env)));
        Self { env, figures, settings, judge, budgets: Mutex::default() }
    }

    /// How often clusters are looked at.
    pub(crate) fn period(&self) -> Duration {
        self.settings.health.period
    }

    /// A cluster's Lease as it is now.
    pub(crate) fn renewed(&self, cluster: &str, renew_time: &str) {
        self.judge.lock().renewed(cluster, renew_time, moment(&self.env));
    }

    /// Looks at all clusters.
    pub(crate) fn tick<'a>(
        &self,
        watching: bool,
        clusters: impl IntoIterator<Item = Cluster<'a>>,
    ) -> Verdict {
        self.judge.lock().tick(moment(&self.env), watching, clusters)
    }

    /// What is to be shown of a cluster.
    pub(crate) fn opinion(&self, cluster: &str, ready: Ready) -> Opinion {
        self.judge.lock().opinion(cluster, ready, moment(&self.env))
    }

    /// What is to be written down of a cluster's link, if that is news.
    pub(crate) fn record(&self, cluster: &str) -> Option<Option<Record>> {
        self.judge.lock().record(cluster, moment(&self.env))
    }
}

impl evictions::Judge for Judgement {
    fn ask(&self, ask: &Ask<'_>) -> Allowance {
        let held = self.judge.lock().held().cloned();
        let answer =
            judge::allow(ask, held.as_ref(), &mut self.budgets.lock(), self.env.now(), &self.settings);
        if let Allowance::Held { reason, .. } = &answer {
            self.figures.judged().postponed(reason);
        }
        answer
    }

    fn began(&self, ask: &Ask<'_>) {
        if judge::counts(ask) {
            self.budgets.lock().spend(ask.binding, self.env.now(), &self.settings.budget);
        }
    }
}

fn moment(env: &Env) -> Moment {
    let wall = env.wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Moment { monotonic: env.now(), wall }
}
