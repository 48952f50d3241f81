//! How a MultiClusterService stands, in its conditions.

use std::collections::BTreeSet;

use karmada_api::{
    conditions::{self, Condition},
    consts::{component, event, extension, reason},
};
use karmada_client::Error;
use karmada_core::names;
use karmada_meta::{object, time::Time};
use karmada_objects::{
    Part,
    key::{self, Key},
    kinds::MULTI_CLUSTER_SERVICES,
};
use serde_json::{Value, json};

use super::{super::super::Next, COMPONENT, Multi};
use crate::known::heads::{Carries, MultiHead, SliceHead};

/// So many Works of one MultiClusterService are a warning.
const MANY: usize = 10_000;

const SERVICE_APPLIED: &str = "ServiceApplied";
const DISPATCHED: &str = "EndpointSliceDispatched";
const DISPATCHER: &str = component::ENDPOINT_SLICE_DISPATCH;

impl Multi {
    /// Says in conditions how a MultiClusterService stands.
    pub(super) async fn tell(&self, key: Key) -> Result<Next, Error> {
        let wrong = self.wrong.lock().get(&key).filter(|wrong| wrong.served).cloned();
        let (Some(wrong), Some(head)) = (wrong, self.context.known.multi.get(&key)) else {
            return Ok(Next::Done);
        };
        if head.deleting {
            return Ok(Next::Done);
        }
        let dispatched = self.works_of(&key, |slice| matches!(slice.carries, Carries::Dispatched(_)));
        let many = dispatched.len() > MANY;
        if let Some(known) = self.wrong.lock().get_mut(&key) {
            known.many = many;
        }
        if many && !wrong.many {
            tracing::warn!(multiclusterservice = %key, works = dispatched.len(), "its slices take many Works: name fewer consumers");
        }
        let now = Time::now(&self.context.env);
        let applied = match &wrong.service {
            None => Condition::new(
                SERVICE_APPLIED,
                true,
                reason::SERVICE_APPLIED,
                reason::SERVICE_APPLIED_MESSAGE,
                now,
            ),
            Some(why) => Condition::new(SERVICE_APPLIED, false, "ServiceAppliedFailed", why.as_str(), now),
        };
        let succeeded = || {
            Condition::new(
                DISPATCHED,
                true,
                reason::SLICES_DISPATCHED,
                reason::SLICES_DISPATCHED_MESSAGE,
                now,
            )
        };
        let mut wanted = vec![applied];
        let fault = self.faults.lock().first(&key);
        if let Some((work, why)) = &fault {
            let message = format!("Work {work}: {why}");
            wanted.push(Condition::new(DISPATCHED, false, "EndpointSliceDispatchedFailed", message, now));
        } else if !dispatched.is_empty() {
            wanted.push(succeeded());
        }
        let stale = self.stale(&key, &head);
        if let Some(message) = &stale {
            wanted.push(Condition::new(
                extension::ENDPOINTS_STALE,
                true,
                "ProviderSilent",
                message.as_str(),
                now,
            ));
        }
        let mut news = Vec::new();
        let change = |live: &mut Value| {
            news.clear();
            if object::deletion_timestamp(live).is_some() {
                return false;
            }
            let Some(mut known) = key::conditions(live) else { return false };
            let before = known.clone();
            let was_failed =
                conditions::find(&known, DISPATCHED).is_some_and(|said| said.status.as_str() != "True");
            // What could not be brought to consumers is not there any more.
            let over = (fault.is_none() && dispatched.is_empty() && was_failed).then(succeeded);
            for condition in wanted.iter().chain(&over) {
                let said = conditions::find(&known, &condition.type_);
                if said
                    .is_none_or(|said| (said.status, &said.message) != (condition.status, &condition.message))
                {
                    news.push(condition.clone());
                }
                conditions::set(&mut known, condition.clone(), now);
            }
            if stale.is_none() {
                known.retain(|condition| condition.type_ != extension::ENDPOINTS_STALE);
            }
            if known == before {
                return false;
            }
            object::ensure_map(live, "status").insert("conditions".into(), json!(known));
            true
        };
        let written =
            self.context.writer.objects.modify(&MULTI_CLUSTER_SERVICES, &key, Part::Status, change).await?;
        let Some(live) = written else { return Ok(Next::Done) };
        for condition in news {
            let (good, message) = (condition.status.as_str() == "True", condition.message.clone());
            let writer = &self.context.writer;
            match (condition.type_.as_str(), good) {
                (SERVICE_APPLIED, true) => {
                    writer.normal(COMPONENT, &live, event::SYNC_SERVICE_SUCCEED, message)
                }
                (SERVICE_APPLIED, false) => {
                    writer.warning(COMPONENT, &live, event::SYNC_SERVICE_FAILED, message)
                }
                (DISPATCHED, true) => {
                    writer.normal(DISPATCHER, &live, event::DISPATCH_SLICE_SUCCEED, message)
                }
                (DISPATCHED, false) => {
                    writer.warning(DISPATCHER, &live, event::DISPATCH_SLICE_FAILED, message)
                }
                _ => {}
            }
        }
        Ok(Next::Done)
    }

    /// Which providers are silent whose endpoints are in use. Whoever may tell of the Service and does not provide it is none.
    fn stale(&self, key: &Key, head: &MultiHead) -> Option<String> {
        let sources = self.works_of(key, |slice| slice.carries == Carries::Collected && slice.ready > 0);
        let works = &self.context.known.works;
        let is_used = |work: &&Key| works.has_group(&SliceHead::of_source(work));
        let provides = |cluster: &&str| head.spec.as_ref().is_some_and(|spec| spec.is_provided_by(cluster));
        let clusters: BTreeSet<&str> = sources
            .iter()
            .filter(is_used)
            .filter_map(|work| names::cluster_of_namespace(&work.namespace))
            .filter(provides)
            .collect();
        self.silence.message(clusters)
    }
}
