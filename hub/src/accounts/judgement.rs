//! The judgement on clusters, shared: the lease monitor moves it on, whoever evicts or waits for a fence asks it.

use std::time::{Duration, SystemTime};

use karmada_api::consts::namespace;
use karmada_client::Error;
use karmada_core::{
    evict::{Allowance, Ask},
    health::{Moment, Ready},
    judge::{
        self, Cluster, Judge, Opinion, Pushed, Record, Settings, Sighting, Verdict, brake, budget::Budgets,
    },
    leave,
};
use karmada_env::Env;
use karmada_objects::{Objects, key::Key, kinds::LEASES};
use parking_lot::Mutex;

use crate::{
    accounts::{Accounts, evictions},
    known::heads::LeaseHead,
    metrics::HubFigures,
};

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

    /// By how much longer than an agent the hub waits for what is fenced.
    pub(crate) fn fence_skew(&self) -> Duration {
        self.settings.fence_skew
    }

    /// For how long an agent that reports is waited for when its Cluster goes.
    pub(crate) fn removal(&self) -> leave::Patience {
        self.settings.removal
    }

    /// A cluster's Lease as it is now.
    pub(crate) fn renewed(&self, cluster: &str, renew_time: &str) {
        self.judge.lock().renewed(cluster, renew_time, moment(&self.env));
    }

    /// A cluster's Lease as it was found when it was asked for, which the watch had not told.
    fn found_renewed(&self, cluster: &str, renew_time: &str) {
        self.judge.lock().found_renewed(cluster, renew_time, moment(&self.env));
    }

    /// Looks at all clusters.
    pub(crate) fn tick<'a>(
        &self,
        watching: bool,
        clusters: impl IntoIterator<Item = Cluster<'a>>,
        pushed: impl IntoIterator<Item = Pushed<'a>>,
    ) -> Verdict {
        self.judge.lock().tick(moment(&self.env), watching, clusters, pushed)
    }

    /// What is to be shown of a cluster in push mode.
    pub(crate) fn opinion_of_pushed(&self, cluster: &str, answers: bool) -> Opinion {
        self.judge.lock().opinion_of_pushed(cluster, answers)
    }

    /// What is to be shown of a cluster.
    pub(crate) fn opinion(&self, cluster: &str, ready: Ready) -> Opinion {
        self.judge.lock().opinion(cluster, ready, moment(&self.env))
    }

    /// What is seen of many clusters, by one look.
    pub(crate) fn sightings<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a str>,
        mut each: impl FnMut(Sighting),
    ) {
        let (judge, now) = (self.judge.lock(), moment(&self.env));
        clusters.into_iter().for_each(|cluster| each(judge.sighting(cluster, now)));
    }

    /// The last day of a cluster's link.
    pub(crate) fn strip(&self, cluster: &str) -> Option<String> {
        self.judge.lock().strip(cluster, moment(&self.env))
    }

    /// Why evictions are held, if they are, in words; by each brake that is on.
    pub(crate) fn brakes(&self) -> Vec<String> {
        let judge = self.judge.lock();
        judge.held_each().into_iter().flatten().map(|held| self.message(held)).collect()
    }

    /// The hub itself looks at clusters in push mode, and has looked at none yet.
    pub(crate) fn looks_at_pushed(&self) {
        self.judge.lock().looks_at_pushed();
    }

    /// It has looked at one for the first time.
    pub(crate) fn looked_at(&self, cluster: &str) {
        self.judge.lock().looked_at(cluster);
    }

    /// What is decided by.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether the hub cannot tell at present which clusters live: it has just started, or was away or cut off.
    pub(crate) fn is_blind(&self) -> bool {
        self.judge.lock().is_blind(moment(&self.env))
    }

    /// For how long nothing has been heard of a cluster; of one that is not known, nothing is.
    pub(crate) fn silent(&self, cluster: &str) -> Duration {
        let now = self.env.now();
        self.judge.lock().heard(cluster).map_or(Duration::ZERO, |heard| now.saturating_sub(heard))
    }

    /// One line about evictions that are held.
    pub(crate) fn message(&self, held: &brake::Held) -> String {
        brake::message(held, &self.settings.brake)
    }

    fn allow(&self, ask: &Ask<'_>, budgets: &mut Budgets) -> Allowance {
        let answer = self.judge.lock().allow(ask, budgets, self.env.now());
        if let Allowance::Held { reason, .. } = &answer {
            self.figures.judged().postponed(reason);
        }
        answer
    }

    /// What is to be written down of a cluster's link, if that is news.
    pub(crate) fn record(&self, cluster: &str) -> Option<Option<Record>> {
        self.judge.lock().record(cluster, moment(&self.env))
    }
}

impl evictions::Judge for Judgement {
    fn ask(&self, ask: &Ask<'_>) -> Allowance {
        self.allow(ask, &mut self.budgets.lock())
    }

    fn take(&self, ask: &Ask<'_>, now: Duration) -> Allowance {
        let mut budgets = self.budgets.lock();
        let answer = self.allow(ask, &mut budgets);
        if answer == Allowance::Granted && judge::counts(ask) {
            budgets.spend(ask.binding, now, &self.settings.budget);
        }
        answer
    }

    fn give_back(&self, ask: &Ask<'_>, taken: Duration) {
        if judge::counts(ask) {
            self.budgets.lock().give_back(ask.binding, taken);
        }
    }
}

/// Asks the API itself whether a cluster has renewed its Lease since the watch last told of it: a watch may be silent
/// without being broken, and nobody is to be called lost, or stopped, for that.
pub(crate) async fn has_renewed(
    accounts: &Accounts,
    objects: &Objects,
    cluster: &str,
) -> Result<bool, Error> {
    let key = Key::new(namespace::CLUSTER, cluster);
    let Some(live) = objects.get(&LEASES, &key).await? else { return Ok(false) };
    let live = LeaseHead::project(&live);
    if accounts.known.leases.get(&key).is_none_or(|known| known.renew_time == live.renew_time) {
        return Ok(false);
    }
    accounts.judgement.found_renewed(cluster, &live.renew_time);
    Ok(true)
}

fn moment(env: &Env) -> Moment {
    let wall = env.wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Moment { monotonic: env.now(), wall }
}

#[cfg(test)]
mod tests {
    use karmada_env::ManualClock;

    use super::*;

    #[test]
    fn it_is_said_of_each_brake_why_it_is_on() {
        let clock = ManualClock::new(SystemTime::UNIX_EPOCH);
        let env = Env::seeded(clock.clone(), 7);
        let judgement = Judgement::new(Settings::default(), env.clone(), HubFigures::new(env));
        let tick = |answers: usize| {
            let names = ["a", "b", "c", "d"];
            let pushed = names.iter().enumerate();
            let pushed = pushed.map(|(n, name)| Pushed { name, answers: n < answers, held: None });
            judgement.tick(true, [], pushed);
            clock.advance(judgement.period());
            judgement.brakes()
        };
        let started = tick(4);
        assert!(started.len() == 1 && started[0].contains("just started"), "{started:?}");
        let both = tick(0);
        assert!(both.len() == 2 && both[0] == started[0], "{both:?}");
        assert!(both[1].contains("4 of 4 clusters in push mode"), "{both:?}");
        for _ in 0..30 {
            tick(0);
        }
        assert_eq!(tick(0), both[1..]);
        assert_eq!(tick(4), Vec::<String>::new());
    }
}
