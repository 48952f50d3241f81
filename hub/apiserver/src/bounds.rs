//! How much a request may ask for in its query and headers.
//!
//! Some of it is read before it is known who asks, all of it where everybody is served. So it is counted before anything is
//! made of it: what is too much costs no more than being looked at once. kube-apiserver has no such bounds; these are wide
//! for what its clients send.

use karmada_meta::{labels, status::Status};

/// Pairs of a query.
pub(crate) const PAIRS: usize = 256;
/// Requirements of a selector. Each is asked of each object, all at one go.
pub(crate) const REQUIREMENTS: usize = 128;
/// How large a selector by labels may be.
pub(crate) const LABELS: labels::Bounds = labels::Bounds { requirements: REQUIREMENTS, values: 2_000 };
/// Media types that an answer may have, in the order of the client's wishes.
pub(crate) const MEDIA_TYPES: usize = 64;
/// What may stand behind these, of all together.
pub(crate) const PARAMETERS: usize = 256;

/// 400 where there is more of something than there may be.
///
/// # Errors
/// That it is.
pub(crate) fn check(part: &str, what: &str, there: usize, most: usize, advice: &str) -> Result<(), Status> {
    if there <= most {
        return Ok(());
    }
    Err(Status::bad_request(format!("{part}: it has {there} {what}, and may have {most}; {advice}")))
}
