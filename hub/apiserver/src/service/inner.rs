//! What all requests share.

use std::sync::Arc;

use arc_swap::ArcSwap;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    authn::{Stored, accounts::CurrentIssuer},
    authz::rbac::Rbac,
    carried::{Carried, CarriedGroup, CarriedPath},
    certificates::CurrentCertifier,
    discovery,
    front::Front,
    kinds::Kind,
    openapi,
    paths::Paths,
    registry::Registry,
};

/// What all requests share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) registry: Arc<Registry>,
    pub(crate) front: Front,
    /// What the store has of credentials.
    pub(crate) stored: Stored,
    /// Who judges, if it is the roles that are stored.
    pub(crate) rbac: Option<Arc<Rbac>>,
    pub(crate) paths: ArcSwap<Paths>,
    pub(crate) carried: ArcSwap<Vec<Carried>>,
    pub(crate) carried_paths: ArcSwap<Vec<CarriedPath>>,
    pub(crate) carried_groups: ArcSwap<Vec<CarriedGroup>>,
    pub(crate) discovery: discovery::Cache,
    pub(crate) openapi: openapi::Cache,
    /// The kind that scale subresources speak.
    pub(crate) scale: Arc<Kind>,
    /// The kind that the subresource `token` speaks.
    pub(crate) token_request: Arc<Kind>,
    /// Who issues tokens of service accounts.
    pub(crate) issuer: Arc<CurrentIssuer>,
    /// Who signs certificates.
    pub(crate) certifier: Arc<CurrentCertifier>,
    /// Ends watches and background controllers.
    pub(crate) shutdown: CancellationToken,
    /// The end is near: no longer ready, and otherwise as before.
    pub(crate) leaving: CancellationToken,
    /// Definitions that are installed at the start.
    pub(crate) crds: Vec<Value>,
}
