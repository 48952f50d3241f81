//! Endpoints of clusters that export a Service and are silent: its ServiceExport says so, and its ServiceImport may ask for them to be
//! withdrawn.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use karmada_api::{
    conditions::{self, Condition},
    consts::extension,
};
use karmada_client::Error;
use karmada_core::{names, services::ServiceName};
use karmada_meta::{object, time::Time};
use karmada_objects::{
    Part,
    key::{self, Key},
    kinds::SERVICE_EXPORTS,
};
use serde_json::{Value, json};

use super::{
    super::{super::Next, silence::Standing},
    Exports, key_of,
};
use crate::known::heads::{Carries, ImportHead, SliceHead, WorkHead};

/// Whether a Work tells of endpoints that take requests.
fn tells(head: &WorkHead) -> bool {
    let slice = head.slice.as_ref().filter(|slice| slice.carries == Carries::Collected);
    !head.deleting && slice.is_some_and(|slice| slice.ready > 0)
}

impl Exports {
    fn import(&self, service: &ServiceName) -> Option<Arc<ImportHead>> {
        self.context.known.imports.get(&key_of(service))
    }

    /// Whether the endpoints that a Work tells are withdrawn, and when to ask again. Never the last ones.
    pub(super) fn withdrawn(
        &self,
        work: &Key,
        (cluster, service): (&str, &ServiceName),
    ) -> (bool, Option<Duration>) {
        let after = self.import(service).and_then(|head| head.withdraw_after);
        match self.silence.standing(cluster, after) {
            Standing::InUse(again) => (false, again),
            Standing::AsItIs(wait) => (self.is_withdrawn(work), Some(wait)),
            Standing::Due(wait) => (self.is_served_by_others(work, (cluster, service)), Some(wait)),
        }
    }

    /// Asks again whether the endpoints that a Work tells are withdrawn. Unless that has changed nothing is read.
    pub(super) async fn ask(&self, work: Key) -> Result<Next, Error> {
        let Some(head) = self.context.known.works.get(&work).filter(|head| tells(head)) else {
            // What changes it is heard.
            return Ok(Next::Done);
        };
        let service = head.slice.as_ref().and_then(|slice| slice.export.as_ref());
        let cluster = names::cluster_of_namespace(&work.namespace);
        let Some((cluster, service)) = cluster.zip(service) else { return Ok(Next::Done) };
        let (withdrawn, again) = self.withdrawn(&work, (cluster, service));
        if withdrawn != self.is_withdrawn(&work) {
            self.queue.add(work);
            return Ok(Next::Done);
        }
        Ok(again.map_or(Next::Done, Next::After))
    }

    /// Whether the hub has what a Work tells with no endpoint that takes requests.
    fn is_withdrawn(&self, work: &Key) -> bool {
        let known = &self.context.known;
        let made = known.imported.group(&work.to_string());
        known.works.get(work).is_some_and(|head| tells(&head))
            && !made.is_empty()
            && made.iter().all(|(_, slice)| slice.ready == 0)
    }

    /// Whether another cluster's endpoints of a Service are in use. Where this one's are withdrawn already, those count of all that
    /// are not known to be silent; else of such as have just been heard.
    fn is_served_by_others(&self, work: &Key, (cluster, service): (&str, &ServiceName)) -> bool {
        let (known, already) = (&self.context.known, self.is_withdrawn(work));
        known.works.group(&SliceHead::of_export(service)).iter().any(|(other, head)| {
            let of = names::cluster_of_namespace(&other.namespace).unwrap_or_default();
            let is_used =
                || known.imported.group(&other.to_string()).iter().any(|(_, slice)| slice.ready > 0);
            of != cluster
                && tells(head)
                && self.is_exported(of, service)
                && self.silence.since(of).is_none()
                && (already || self.silence.was_just_heard(of))
                && is_used()
        })
    }

    /// A cluster is heard, or is not any more: a matter of the Services of which it tells, and of no others.
    pub(super) async fn hear(&self, cluster: Key) -> Result<Next, Error> {
        let group = SliceHead::exported_from(&names::execution_namespace(&cluster.name));
        for (work, head) in self.context.known.works.group(&group) {
            let Some(service) = head.slice.as_ref().and_then(|slice| slice.export.as_ref()) else { continue };
            self.told.add(key_of(service));
            if self.import(service).is_some_and(|head| head.withdraw_after.is_some()) {
                self.queue.add(work);
            }
        }
        Ok(Next::Done)
    }

    /// Says on a ServiceExport which clusters are silent whose endpoints are in use.
    pub(super) async fn tell(&self, key: Key) -> Result<Next, Error> {
        let stale = self.message(&ServiceName::new(key.namespace.as_str(), key.name.as_str()));
        if self.stale.lock().get(&key) == Some(&stale) {
            return Ok(Next::Done);
        }
        let now = Time::now(&self.context.env);
        let said = stale.as_ref().map(|message| {
            Condition::new(extension::ENDPOINTS_STALE, true, "ProviderSilent", message.as_str(), now)
        });
        let change = |live: &mut Value| {
            if object::deletion_timestamp(live).is_some() {
                return false;
            }
            let Some(mut known) = key::conditions(live) else { return false };
            let before = known.clone();
            match &said {
                Some(said) => drop(conditions::set(&mut known, said.clone(), now)),
                None => drop(conditions::remove(&mut known, extension::ENDPOINTS_STALE)),
            }
            if known == before {
                return false;
            }
            object::ensure_map(live, "status").insert("conditions".into(), json!(known));
            true
        };
        let live = self.context.writer.objects.modify(&SERVICE_EXPORTS, &key, Part::Status, change).await?;
        let mut told = self.stale.lock();
        match live {
            Some(_) => drop(told.insert(key, stale)),
            None => drop(told.remove(&key)),
        }
        Ok(Next::Done)
    }

    fn message(&self, service: &ServiceName) -> Option<String> {
        let works = self.context.known.works.group(&SliceHead::of_export(service));
        let is_used = |work: &Key| self.context.known.imported.has_group(&work.to_string());
        let clusters: BTreeSet<&str> = works
            .iter()
            .filter(|(work, head)| tells(head) && is_used(work))
            .filter_map(|(work, _)| names::cluster_of_namespace(&work.namespace))
            .filter(|cluster| self.is_exported(cluster, service))
            .collect();
        self.silence.message(clusters)
    }
}
