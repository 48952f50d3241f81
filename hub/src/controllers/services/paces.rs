//! The paces at which the hub brings on what clusters tell ([`karmada_core::services::dispatch`]).

use std::{collections::BTreeMap, time::Duration};

use karmada_core::{
    names,
    services::{dispatch::Pace, slices::Taken},
};
use karmada_env::Env;
use karmada_meta::object;
use karmada_objects::key::Key;
use parking_lot::Mutex;
use serde_json::Value;

/// Fewer are never looked through for such as are at rest.
const FEW: usize = 256;

/// The paces of collected Works, by their keys. They outlive the Works: who takes one back gains nothing.
#[derive(Debug)]
pub(super) struct Paces {
    env: Env,
    all: Mutex<All>,
}

#[derive(Debug, Default)]
struct All {
    paces: BTreeMap<Key, Pace>,
    /// How many there were when those at rest were last forgotten.
    stayed: usize,
}

/// What a collected Work tells now: agents can set neither.
pub(super) fn content(work: &Value) -> u64 {
    names::fnv64a(format!("{} {}", object::uid(work), object::generation(work)).as_bytes())
}

/// Whether requests were taken somewhere by what was brought where they are not by what is told now.
pub(super) fn is_lost<'s>(
    told: impl IntoIterator<Item = &'s Value>,
    brought: impl IntoIterator<Item = &'s Value>,
) -> bool {
    let mut told = told.into_iter().map(Taken::of);
    let told = told.next().unwrap_or_default();
    brought.into_iter().any(|slice| told.lacks(&Taken::of(slice)))
}

impl Paces {
    pub(super) fn new(env: Env) -> Self {
        Self { env, all: Mutex::default() }
    }

    /// How long something is to wait that is brought to so many consumers.
    pub(super) fn wait(&self, source: &Key, content: u64, consumers: usize, lost: bool) -> Duration {
        let all = self.all.lock();
        all.paces
            .get(source)
            .map_or(Duration::ZERO, |pace| pace.wait(self.env.now(), content, consumers, lost))
    }

    /// The first of so many consumers is brought something, or the next one.
    pub(super) fn begin(&self, source: &Key, content: u64, consumers: usize) {
        let now = self.env.now();
        let mut all = self.all.lock();
        all.paces.entry(source.clone()).or_default().begin(now, content, consumers);
        if all.paces.len() > 2 * all.stayed.max(FEW) {
            all.paces.retain(|_, pace| !pace.is_at_rest(now));
            all.stayed = all.paces.len();
        }
    }

    /// What was brought is taken back.
    pub(super) fn take_back(&self, source: &Key) {
        if let Some(pace) = self.all.lock().paces.get_mut(source) {
            pace.take_back();
        }
    }
}
