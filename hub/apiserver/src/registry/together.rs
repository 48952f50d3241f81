//! Objects that are written in one commit: all of them, or none.

use std::sync::Arc;

use karmada_meta::{object, status::Status};
use karmada_store::{CommitError, Expect, Guard, Op, Purpose};
use serde_json::Value;

use super::Registry;
use crate::{certificates, fields, identity::UserInfo, kinds::Kind, quota, storage, storage::Object};

/// What an object is to become.
#[derive(Debug)]
pub(crate) struct Change {
    /// What it is.
    pub(crate) kind: Arc<Kind>,
    /// The object as it was looked at; it is written only while it is that. None if there was none.
    pub(crate) live: Option<Arc<Object>>,
    /// Its served form from now on.
    pub(crate) new: Value,
    /// Whose fields they are, written through which endpoint.
    pub(crate) subresource: &'static str,
}

impl Registry {
    /// Writes all changes, which are the server's own: nobody else is asked. Answers whether all objects were as they
    /// had been looked at, and all guards held.
    ///
    /// # Errors
    /// When the store takes nothing.
    pub(crate) async fn change_together(
        &self,
        user: &UserInfo,
        manager: &str,
        guards: Vec<Guard>,
        changes: Vec<Change>,
    ) -> Result<bool, Status> {
        // What is new is not known by its size; it is about an object that is there.
        let size =
            changes.iter().filter_map(|change| change.live.as_ref()).map(|live| live.value.len()).sum();
        let prepare = || {
            let now = self.now();
            let (mut told, mut ops) = (Vec::new(), Vec::new());
            for Change { kind, live, mut new, subresource } in changes {
                let Some(live) = live else {
                    let key = storage::key_of(&kind.storage, object::namespace(&new), object::name(&new));
                    self.prepare_create(&kind, &mut new);
                    let new = fields::update(&kind, None, &new, manager, subresource, &now);
                    told.push((key.clone(), "create", subresource));
                    ops.push(Op::put(key, Expect::Absent, Self::encode(&kind, new)));
                    continue;
                };
                let old = self.value_of(&kind, &live);
                if &*kind.storage == certificates::STORAGE && subresource == "status" {
                    let approved = |object: &Value| {
                        let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
                        conditions.into_iter().flatten().any(|condition| condition["type"] == "Approved")
                    };
                    // As kube-controller-manager would: one thing after the other.
                    if approved(&new) && !approved(&old) {
                        told.push((live.key.clone(), "update", "approval"));
                    }
                }
                told.push((live.key.clone(), "update", subresource));
                let new = fields::update(&kind, Some(&old), &new, manager, subresource, &now);
                ops.push(Op::put(live.key.clone(), Expect::At(live.revision), Self::encode(&kind, new)));
            }
            let terms = quota::terms(user, "", Purpose::Upkeep);
            (told, self.store.commit_if(guards, ops, terms))
        };
        let (told, commit) = self.pool.run_patiently(size, prepare).await?;
        match commit.await {
            Ok(committed) => {
                for (key, verb, subresource) in told {
                    self.tell(user, manager, verb, &key, subresource);
                }
                if let Some(last) = committed.entries.last() {
                    self.follower.reached(last.revision).await;
                }
                Ok(true)
            }
            Err(CommitError::Conflict { .. } | CommitError::Unmet { .. }) => Ok(false),
            Err(error) => Err(Status::service_unavailable(error.to_string())),
        }
    }
}
