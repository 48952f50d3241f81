//! What a server's owner may say about a write before it is stored.

use karmada_meta::status::Status;
use serde_json::Value;

use crate::{authn::UserInfo, kinds::Kind, storage::ApiStore};

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A new object.
    Create,
    /// PUT or PATCH of an object that is there.
    Update,
    /// Removal.
    Delete,
}

/// One write, before it happens.
#[derive(Debug)]
pub struct AdmissionRequest<'a> {
    /// What is being done.
    pub operation: Operation,
    /// To which kind.
    pub kind: &'a Kind,
    /// `status`, `scale`, …; empty for the object itself.
    pub subresource: &'a str,
    /// Namespace; empty at the cluster scope.
    pub namespace: &'a str,
    /// Name; empty while a name is yet to be generated.
    pub name: &'a str,
    /// Who does it.
    pub user: &'a UserInfo,
    /// The object as it is stored.
    pub old: Option<&'a Value>,
    /// Nothing will be stored.
    pub dry_run: bool,
    /// What else there is; reading takes no I/O.
    pub store: &'a ApiStore,
}

/// Changes or refuses writes. Controllers must not depend on it: another engine may lack it.
pub trait Admission: Send + Sync + std::fmt::Debug {
    /// Looks at one write and may change the object (not for a deletion, where it is the object as stored).
    /// Returns warnings for the client.
    ///
    /// # Errors
    /// The answer that the client gets instead.
    fn admit(&self, request: &AdmissionRequest<'_>, object: &mut Value) -> Result<Vec<String>, Status>;

    /// Whether looking at an object of this kind may take more than a millisecond however small it is.
    fn is_long(&self, _kind: &Kind) -> bool {
        false
    }
}

/// Lets everything pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct AdmitAll;

impl Admission for AdmitAll {
    fn admit(&self, _request: &AdmissionRequest<'_>, _object: &mut Value) -> Result<Vec<String>, Status> {
        Ok(Vec::new())
    }
}
