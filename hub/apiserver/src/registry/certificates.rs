//! Who may decide about requests for certificates, and sign them: judged where one is about to be stored.
//!
//! | what | needs, beside the right to write it |
//! |---|---|
//! | anything at `/approval` | the verb `approve` on the signer |
//! | a certificate, or another condition, at `/status` | the verb `sign` on the signer |
//! | a request to the signer of clients | that it does not ask for `system:masters` |
//!
//! A right for `example.com/*` is one for all signers of that domain.

use karmada_meta::{object, status::Status};
use serde_json::Value;

use super::{Caller, Registry};
use crate::{
    admission::Operation,
    authz::{Attributes, Decision, ResourceTarget, Target, agent_cluster},
    certificates::{CLIENT_SIGNER, Requested, STORAGE},
    pki::MASTERS,
    webhooks::Attempt,
};

const GROUP: &str = "certificates.k8s.io";
/// So many requests there may be before machines that join, or renew, have to wait for the cleaner. An administrator
/// need not.
const MOST: usize = 20_000;

impl Registry {
    /// Judges a request for a certificate that is to be stored.
    ///
    /// # Errors
    /// 403 with what the caller may not, 429 of a machine where there are too many requests.
    pub(super) fn judge_certificate(
        &self,
        caller: &Caller<'_>,
        attempt: &Attempt<'_>,
        new: &Value,
    ) -> Result<(), Status> {
        let kind = attempt.target.kind;
        if &*kind.storage != STORAGE {
            return Ok(());
        }
        let signer = new["spec"]["signerName"].as_str().unwrap_or_default();
        let refuse = |why: String| Err(Status::forbidden(&kind.group_resource(), object::name(new), why));
        if attempt.operation == Operation::Create {
            let asks = signer == CLIENT_SIGNER
                && Requested::read(new["spec"]["request"].as_str().unwrap_or_default())
                    .is_ok_and(|requested| requested.organisations.iter().any(|group| group == MASTERS));
            if asks {
                return refuse(format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed"));
            }
            let machine = agent_cluster(caller.user).is_some()
                || caller.user.in_group(crate::authn::bootstrap::BOOTSTRAPPERS);
            if machine && self.store.snapshot().count(STORAGE, None) >= MOST {
                return Err(Status::too_many_requests("too many requests for certificates are waiting", 60));
            }
            return Ok(());
        }
        let Some(old) = attempt.old else { return Ok(()) };
        let verb = match attempt.target.subresource {
            "approval" => "approve",
            "status" if old.get("status") != new.get("status") => "sign",
            _ => return Ok(()),
        };
        let Some(authorizer) = caller.authorizer else { return Ok(()) };
        let domain = signer.split('/').next().unwrap_or_default();
        let may = [signer, &format!("{domain}/*")].into_iter().any(|name| {
            let target =
                ResourceTarget { group: GROUP, resource: "signers", name, ..ResourceTarget::default() };
            let attributes = Attributes { user: caller.user, verb, target: Target::Resource(target) };
            authorizer.authorize(&attributes) == Decision::Allow
        });
        if may {
            return Ok(());
        }
        refuse(format!("user not permitted to {verb} requests with signerName {signer:?}"))
    }
}
