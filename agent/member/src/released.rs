//! Namespaces that stay on the member although the hub deleted its own: remembered for the Cluster's condition until they
//! go, or the hub wants them again.

use karmada_api::{
    conditions::{self, Condition},
    consts::{
        annotation::WORK_NAMESPACE,
        extension,
        label::{MANAGED, MANAGED_VALUE},
    },
};
use karmada_client::Rest;
use karmada_core::vacancy;
use karmada_meta::{object, time::Time};
use parking_lot::Mutex;

/// What is remembered. It outlives an agent in the condition.
#[derive(Debug, Default)]
pub(crate) struct Released {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    namespaces: vacancy::Released,
    /// The condition of an earlier agent was read.
    read: bool,
}

impl Released {
    /// A Namespace stays, for this reason.
    pub(crate) fn note(&self, namespace: &str, why: &str) {
        self.known.lock().namespaces.insert(namespace.to_owned(), why.to_owned());
    }

    /// The hub has a Namespace of that name again, and the member's is ours.
    pub(crate) fn forget(&self, namespace: &str) {
        self.known.lock().namespaces.remove(namespace);
    }

    /// Looks which are still there, and nobody's but the member's.
    pub(crate) async fn look(&self, member: &Rest, execution_namespace: &str) {
        let names: Vec<String> = self.known.lock().namespaces.keys().cloned().collect();
        for name in names {
            let over = match member.get(&format!("/api/v1/namespaces/{name}")).await {
                Ok(namespace) => {
                    object::label(&namespace, MANAGED) == Some(MANAGED_VALUE)
                        && object::annotation(&namespace, WORK_NAMESPACE) == Some(execution_namespace)
                }
                Err(error) => error.is_absence_of(&name),
            };
            if over {
                self.forget(&name);
            }
        }
    }

    /// Has a Cluster's conditions tell of them.
    pub(crate) fn show(&self, list: &mut Vec<Condition>, now: Time) {
        let mut known = self.known.lock();
        if !std::mem::replace(&mut known.read, true) {
            for (name, why) in vacancy::released(list) {
                known.namespaces.entry(name).or_insert(why);
            }
        }
        match vacancy::released_condition(&known.namespaces, now) {
            Some(condition) => {
                conditions::set(list, condition, now);
            }
            None => {
                conditions::remove(list, extension::NAMESPACES_RELEASED);
            }
        }
    }
}
