//! Who may decide about requests for certificates, and sign them: judged where one is about to be stored.
//!
//! | what | needs, beside the right to write it |
//! |---|---|
//! | anything at `/approval` | the verb `approve` on the signer |
//! | a certificate, or another condition, at `/status` | the verb `sign` on the signer |
//! | a request to the signer of clients | that it does not ask for `system:masters` |
//! | a request of a machine: an agent, or who has a bootstrap token | that it is one for the signer of clients, is kept by nobody, and is small |
//!
//! A right for `example.com/*` is one for all signers of that domain.

use karmada_meta::{object, status::Status};
use serde_json::Value;

use super::{Caller, Registry, ask::Attempt};
use crate::{
    admission::Operation,
    authn::bootstrap::BOOTSTRAPPERS,
    authz::{Attributes, Decision, ResourceTarget, Target, agent_cluster},
    certificates::requested::{CLIENT_SIGNER, Requested, STORAGE},
    pki::MASTERS,
};

const GROUP: &str = "certificates.k8s.io";
/// So many requests there may be before agents that renew have to wait for the cleaner, and half as many before machines
/// that join do. An administrator need not. What one machine may have waiting is bounded by its account ([`crate::quota`]).
const MOST: usize = 20_000;
/// So many bytes of labels and annotations a machine may give its request.
const NOTES: usize = 4 * 1024;

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
            let agent = agent_cluster(caller.user).is_some();
            let joins = !agent && caller.user.in_group(BOOTSTRAPPERS) && !caller.user.in_group(MASTERS);
            if !agent && !joins {
                return Ok(());
            }
            if let Some(why) = unfit(new, signer) {
                return refuse(why);
            }
            if self.store.snapshot().count(STORAGE, None) >= if agent { MOST } else { MOST / 2 } {
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

/// Why a request is none for a machine to make.
fn unfit(request: &Value, signer: &str) -> Option<String> {
    if signer != CLIENT_SIGNER {
        return Some(format!("machines ask for certificates of the signer {CLIENT_SIGNER:?} only"));
    }
    // What holds it back from being cleared away would be there for ever.
    for field in ["finalizers", "ownerReferences"] {
        let list = object::meta(request, field).and_then(Value::as_array);
        if list.is_some_and(|list| !list.is_empty()) {
            return Some(format!("machines set no metadata.{field} on what they ask for"));
        }
    }
    let notes =
        ["labels", "annotations"].into_iter().filter_map(|field| object::meta(request, field)?.as_object());
    let bytes: usize =
        notes.flatten().map(|(name, text)| name.len() + text.as_str().map_or(0, str::len)).sum();
    (bytes > NOTES).then(|| {
        format!(
            "metadata.labels and metadata.annotations have {bytes} bytes, of which machines may use {NOTES}"
        )
    })
}
