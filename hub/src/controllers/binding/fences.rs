//! What a new copy of an object that may run in one place only waits for ([`karmada_core::judge::fence`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use karmada_api::{consts::namespace, work::TargetCluster};
use karmada_client::Error;
use karmada_core::{
    judge::fence::{self, Left, Wait},
    names,
};
use karmada_meta::{duration, object};
use karmada_objects::{bindings, key::Key, kinds::WORKS, scope::BindingKey};
use serde_json::Value;

use super::{Binder, PATIENCE};
use crate::{
    accounts::judgement::has_renewed,
    known::{
        Known,
        heads::{ClusterHead, WorkHead},
    },
};

/// How long a mark is given to be seen.
const MARKED: Duration = Duration::from_secs(1);

/// What stands between clusters and their new copies.
#[derive(Debug, Default)]
pub(super) struct Fences {
    after: Duration,
    skew: Duration,
    /// The clusters that may have no copy yet, and for which others that is.
    held: BTreeMap<String, Vec<String>>,
    /// When to look again at the latest.
    pub(super) again: Option<Duration>,
}

impl Fences {
    /// Whether a cluster may not have its copy yet.
    pub(super) fn hold(&self, cluster: &str) -> bool {
        self.held.contains_key(cluster)
    }

    /// For people. The same as long as the same is waited for.
    pub(super) fn message(&self) -> String {
        let said = self.held.iter().map(|(cluster, left)| {
            format!(
                "{cluster}: waits until the copy on {} is gone, or has stopped: {} and {} after its cluster's last \
                 sign of life",
                left.join(", "),
                duration::format(self.after),
                duration::format(self.skew),
            )
        });
        said.collect::<Vec<_>>().join("; ")
    }
}

/// Whether an agent works on a member that stops there what it may not ask about. Where the hub itself does, or did until its
/// Cluster went over to pull mode, there is none before a Lease was renewed: see [`crate::push`].
pub(in crate::controllers) fn stops(known: &Known, cluster: &str, head: Option<&ClusterHead>) -> bool {
    let has_lease = || known.leases.get(&Key::new(namespace::CLUSTER, cluster)).is_some();
    head.is_some_and(|head| !head.is_pushed()) && has_lease()
}

impl Binder {
    /// What is waited for before Works of this name are made for those of `targets` that have none.
    pub(super) async fn fences(
        &self,
        key: &BindingKey,
        binding: &Value,
        targets: &[TargetCluster],
        work_name: &str,
    ) -> Result<Fences, Error> {
        let Some(after) = fence::after(binding) else { return Ok(Fences::default()) };
        let context = &self.context;
        let mut fences = Fences { after, skew: context.accounts.judgement.fence_skew(), ..Fences::default() };
        let is_begun = |head: &WorkHead| !head.deleting && !head.unwanted;
        let begun = |cluster: &str| {
            let work = Key::new(names::execution_namespace(cluster), work_name);
            context.known.works.get(&work).is_some_and(|head| is_begun(&head))
        };
        let fresh: Vec<&str> =
            targets.iter().map(|target| target.name.as_str()).filter(|name| !begun(name)).collect();
        if fresh.is_empty() {
            return Ok(fences);
        }
        for (cluster, marked) in self.left(key, binding, targets).await? {
            let mut wait = self.wait(&cluster, marked, after);
            // The last look at the Lease, after the mark.
            if wait == Wait::No && has_renewed(&context.accounts, &context.writer.objects, &cluster).await? {
                wait = self.wait(&cluster, marked, after);
            }
            let again = match wait {
                Wait::No => continue,
                Wait::Gone => PATIENCE,
                Wait::Marked => MARKED,
                Wait::For(rest) => rest,
            };
            let others: Vec<_> = fresh.iter().filter(|fresh| **fresh != cluster).collect();
            if others.is_empty() {
                continue;
            }
            fences.again = Some(fences.again.map_or(again, |known| known.min(again)));
            for other in others {
                fences.held.entry((*other).to_owned()).or_default().push(cluster.clone());
            }
        }
        Ok(fences)
    }

    /// The copies that are left where none is wanted, or is going, by a live list: their clusters, and whether they are
    /// marked.
    async fn left(
        &self,
        key: &BindingKey,
        binding: &Value,
        targets: &[TargetCluster],
    ) -> Result<Vec<(String, bool)>, Error> {
        let id_label = bindings::id_label(key.scope);
        // A binding that was made again has another id than the Works of the first.
        let known = self.context.known.works.group(&key.to_string());
        let mut ids: BTreeSet<&str> = known.iter().map(|(_, head)| head.binding_id.as_str()).collect();
        ids.extend(object::label(binding, id_label));
        ids.remove("");
        let ids: Vec<_> = ids.into_iter().collect();
        let mut left = Vec::new();
        let mut note = |page: Vec<Value>| {
            for work in page {
                let head = WorkHead::project(&work);
                let work = Key::of(&work);
                let Some(cluster) = names::cluster_of_namespace(&work.namespace) else { continue };
                let wanted = targets.iter().any(|target| target.name == cluster);
                let clean = wanted && !head.deleting && !head.unwanted;
                if head.binding.as_ref() == Some(key) && !clean {
                    left.push((cluster.to_owned(), head.unwanted || head.deleting));
                }
            }
        };
        let selector = format!("{id_label} in ({})", ids.join(","));
        self.context.writer.objects.list(&WORKS, None, &selector, &mut note).await?;
        Ok(left)
    }

    fn wait(&self, cluster: &str, marked: bool, after: Duration) -> Wait {
        let head = self.context.known.clusters.get(&Key::cluster_scoped(cluster));
        let left = Left {
            reports: head.as_ref().is_some_and(|head| head.reporting()),
            exists: head.is_some(),
            stops: stops(&self.context.known, cluster, head.as_deref()),
            silent: self.context.accounts.judgement.silent(cluster),
            marked,
        };
        fence::wait(Some(left), after, self.context.accounts.judgement.fence_skew())
    }
}
