//! What the ResourceQuotas of a member leave to its namespaces.

use std::{collections::BTreeSet, sync::Arc};

use karmada_client::{
    Rest, Wake, WatchConfig,
    kept::{self, Kept},
    watch::{Index, Keeping},
};
use karmada_core::allowance::{self, Allowance};
use karmada_env::Env;
use karmada_meta::object;
use parking_lot::Mutex;
use serde_json::Value;

/// ResourceQuotas by namespace and name; nothing of one that does not limit pods.
#[derive(Debug, Default)]
pub struct Quotas(Index<(String, String), Kept<Option<Allowance>>>);

impl Quotas {
    /// The list was had: none means none.
    pub fn synced(&self) -> bool {
        self.0.synced()
    }

    /// Whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|(_, left)| left.is_none())
    }

    /// What is told of those of some namespaces.
    pub fn report(&self, namespaces: &BTreeSet<String>) -> Option<String> {
        let all = self.0.iter().filter(|((namespace, _), _)| namespaces.contains(namespace));
        allowance::write(all.filter_map(|((namespace, _), left)| Some((namespace.as_str(), left.as_ref()?))))
    }
}

/// Keeps them current until it is dropped.
pub async fn follow(member: Rest, env: Env, wake: Wake, quotas: Arc<Mutex<Quotas>>) {
    let config = WatchConfig::new("/api/v1/resourcequotas").wake(&wake);
    let parse = |text: &str| {
        let quota = serde_json::from_str::<Value>(text).map_err(|error| error.to_string())?;
        let (namespace, left) = allowance::project(&quota);
        Ok(((namespace, object::name(&quota).to_owned()), left))
    };
    let elsewhere = |(namespace, name): &(String, String), left: &Option<Allowance>| {
        2 * (kept::text(namespace) + kept::text(name)) + left.as_ref().map_or(0, size)
    };
    let mut watcher = Keeping::new(member, config, env, parse, elsewhere);
    loop {
        let event = watcher.next().await;
        let mut quotas = quotas.lock();
        match event {
            Some(event) => drop(quotas.0.apply(event)),
            None => quotas.0.lose(),
        }
    }
}

/// Bytes of what a quota leaves.
fn size(left: &Allowance) -> usize {
    let texts =
        |values: &[String]| values.iter().map(|value| size_of::<String>() + kept::text(value)).sum::<usize>();
    let classes = left
        .classes
        .iter()
        .map(|class| size_of::<allowance::Classes>() + kept::text(&class.operator) + texts(&class.values));
    kept::quantities(&left.free) + classes.sum::<usize>()
}
