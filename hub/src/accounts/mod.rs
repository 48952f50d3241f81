//! What the controllers share and count: room on clusters, quotas, who needs what, how links are judged, and what may
//! leave where.

pub(crate) mod evictions;
pub(crate) mod graces;
pub(crate) mod judgement;
pub(crate) mod needs;
pub(crate) mod placing;
pub(crate) mod quotas;
pub(crate) mod stages;
mod turns;
mod used;

use std::{fmt, sync::Arc};

use karmada_core::{evict, judge};
use karmada_env::Env;

use self::{
    evictions::Evictions,
    graces::Graces,
    judgement::Judgement,
    needs::Needs,
    placing::Fleet,
    quotas::{QuotaHead, Quotas},
    stages::Stages,
    turns::Turns,
    used::Used,
};
use crate::{
    known::{Known, index::Index},
    metrics::HubFigures,
};

/// By what the accounts are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// How objects leave clusters.
    pub(crate) evictions: evict::Settings,
    /// How clusters are judged that fall silent.
    pub(crate) judge: judge::Settings,
    /// Whether clusters that get no replicas get objects all the same.
    pub(crate) empty_workloads: bool,
}

/// The accounts, beside what is known.
pub(crate) struct Accounts {
    pub(crate) known: Arc<Known>,
    pub(crate) env: Env,
    /// What may leave where, and when.
    pub(crate) evictions: Evictions,
    /// How much of their grace periods is over.
    pub(crate) graces: Graces,
    /// Which bindings need which other objects.
    pub(crate) needs: Needs,
    /// What namespaces may use.
    pub(crate) quotas: Arc<Index<QuotaHead>>,
    /// What of it was granted just now.
    pub(crate) granted: Arc<Quotas>,
    /// What each namespace uses.
    pub(crate) used: Arc<Used>,
    /// How far the Works of each cluster are.
    pub(crate) stages: Arc<Stages>,
    /// Whose turn it is among the bindings of groups.
    pub(crate) groups: Turns,
    /// All clusters, as placement wants them.
    pub(crate) fleet: Arc<Fleet>,
    /// What is made of clusters that fall silent, and whether evictions are allowed.
    pub(crate) judgement: Arc<Judgement>,
    /// Whether clusters that get no replicas get objects all the same.
    pub(crate) empty_workloads: bool,
}

impl fmt::Debug for Accounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accounts").finish_non_exhaustive()
    }
}

impl Accounts {
    /// Accounts in which nothing stands yet.
    pub(crate) fn new(known: Arc<Known>, env: Env, settings: Settings, figures: HubFigures) -> Self {
        let judgement = Arc::new(Judgement::new(settings.judge, env.clone(), figures));
        let evictions = Evictions::new(settings.evictions, &env);
        evictions.judged_by(judgement.clone());
        let used = Arc::<Used>::default();
        let granted = Arc::<Quotas>::default();
        let (sums, grants) = (used.clone(), granted.clone());
        known.bindings.namespaced.listen(move |change| sums.heard(change, || grants.heard(change)));
        let stages = Arc::<Stages>::default();
        let counts = stages.clone();
        known.works.listen(move |change| counts.heard(change));
        Self {
            known,
            env,
            stages,
            evictions,
            graces: Graces::default(),
            needs: Needs::default(),
            quotas: Index::new(),
            granted,
            used,
            groups: Turns::default(),
            fleet: Arc::default(),
            judgement,
            empty_workloads: settings.empty_workloads,
        }
    }
}
