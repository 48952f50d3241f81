//! What the controllers share and count: room on clusters, quotas, who needs what, how links are judged, and what may
//! leave where.

pub(crate) mod evictions;
pub(crate) mod judgement;
pub(crate) mod needs;
pub(crate) mod placing;
pub(crate) mod quotas;
