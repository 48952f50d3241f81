//! What the ResourceQuotas of a member leave to its namespaces.

use std::{collections::BTreeSet, sync::Arc};

use karmada_client::{Rest, Wake, WatchConfig, Watcher, watch::Index};
use karmada_core::allowance::{self, Allowance};
use karmada_env::Env;
use karmada_meta::object;
use parking_lot::Mutex;
use serde_json::Value;

/// ResourceQuotas by namespace and name; nothing of one that does not limit pods.
#[derive(Debug, Default)]
pub struct Quotas(Index<(String, String), Option<Allowance>>);

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
    let mut watcher = Watcher::over(member.clone(), config, env, parse);
    loop {
        let event = watcher.next().await;
        quotas.lock().0.apply(event);
    }
}
