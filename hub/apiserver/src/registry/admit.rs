//! What may change or refuse a write before it is stored: the server's own rules, then webhooks.

use karmada_meta::{object, status::Status};
use karmada_smd::Managed;
use serde_json::Value;

use super::{
    Caller, Registry,
    ask::{Attempt, Round},
    metadata,
};
use crate::{
    admission::{AdmissionRequest, Operation},
    heavy::HEAVY,
    webhooks::Sort,
};

impl Registry {
    /// Lets whoever may change the object do so. Of a deletion it is the object as stored, and stays that.
    pub(super) async fn admit(
        &self,
        caller: &Caller<'_>,
        attempt: &Attempt<'_>,
        object: &mut Value,
    ) -> Result<(), Status> {
        self.admit_ours(caller, attempt, object).await?;
        self.admit_theirs(caller, attempt, object).await
    }

    /// What is left of that when our own rules have passed: users' webhooks.
    pub(super) async fn admit_theirs(
        &self,
        caller: &Caller<'_>,
        attempt: &Attempt<'_>,
        object: &mut Value,
    ) -> Result<(), Status> {
        let Some(hooks) = self.hooks(caller, attempt.target.kind, Sort::Mutating) else { return Ok(()) };
        let asking = async {
            let mut round = Round::default();
            let owners = || object::meta(object, "managedFields").cloned();
            let owners = self.pool.run(caller.weight(), owners).await?;
            self.ask_mutating(caller, attempt, &hooks, object, &mut round).await?;
            if !round.changed {
                return Ok(());
            }
            // What somebody made of it has to pass our own rules, too; whoever asked for it sees what they made of it.
            let again = || {
                tidy(caller, object, owners.as_ref());
                let before = object.clone();
                self.admit_here(caller, attempt, object)?;
                if *object != before {
                    round.touched();
                }
                Ok(())
            };
            self.pool.run(self.weight_of(caller, attempt), again).await??;
            round.repeat();
            self.ask_mutating(caller, attempt, &hooks, object, &mut round).await?;
            self.pool.run(caller.weight(), || tidy(caller, object, owners.as_ref())).await
        };
        Box::pin(asking).await
    }

    /// Lets whoever may refuse the object as it is about to be stored do so.
    pub(super) async fn admit_final(
        &self,
        caller: &Caller<'_>,
        attempt: &Attempt<'_>,
        object: Option<&Value>,
    ) -> Result<(), Status> {
        match self.hooks(caller, attempt.target.kind, Sort::Validating) {
            None => Ok(()),
            Some(hooks) => Box::pin(self.ask_validating(caller, attempt, &hooks, object)).await,
        }
    }

    /// Our own rules, beside everybody's work where that may take long.
    pub(super) async fn admit_ours(
        &self,
        caller: &Caller<'_>,
        attempt: &Attempt<'_>,
        object: &mut Value,
    ) -> Result<(), Status> {
        let weight = self.weight_of(caller, attempt);
        self.pool.run(weight, || self.admit_here(caller, attempt, object)).await?
    }

    fn weight_of(&self, caller: &Caller<'_>, attempt: &Attempt<'_>) -> usize {
        let long = attempt.operation != Operation::Delete && self.admission.is_long(attempt.target.kind);
        if long { caller.weight().max(HEAVY) } else { caller.weight() }
    }

    fn admit_here(
        &self,
        caller: &Caller<'_>,
        attempt: &Attempt<'_>,
        object: &mut Value,
    ) -> Result<(), Status> {
        let target = attempt.target;
        let request = AdmissionRequest {
            operation: attempt.operation,
            kind: target.kind,
            subresource: target.subresource,
            namespace: target.namespace,
            name: target.name,
            user: caller.user,
            old: attempt.old,
            dry_run: attempt.options.dry_run(),
            store: &self.store,
        };
        debug_assert!(
            attempt.operation != Operation::Create || attempt.old.is_none(),
            "a new object has no old one"
        );
        for warning in self.admission.admit(&request, object)? {
            caller.warn(warning);
        }
        Ok(())
    }
}

/// Puts right what a webhook must not leave behind.
fn tidy(caller: &Caller<'_>, object: &mut Value, owners: Option<&Value>) {
    if let Err(why) = Managed::of(object) {
        caller.warn(format!(
            ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated \
             mutating admission controller; please fix your requests: {why}"
        ));
        match owners {
            Some(owners) => object::set_meta(object, "managedFields", owners.clone()),
            None => {
                object::remove_meta(object, "managedFields");
            }
        }
    }
    for warning in metadata::dedup_owners(object) {
        caller.warn(warning);
    }
}
