//! How much of an answer is read, and of what room.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt as _;
use karmada_meta::status::Status;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    Missing,
    room::{self, Share},
};

/// How much of a body is read.
#[derive(Clone, Copy)]
pub(super) enum Most<'a> {
    /// What all answers to a request may have together, of so many KiB, and how many clusters are asked.
    Of(&'a Arc<Semaphore>, usize, usize),
    /// So many KiB: a longer one counts as not heard, and takes nothing from others.
    One(usize),
    /// The first so many KiB, of whatever length it is.
    First(usize),
}

/// Of what the answers to a request may take, one cluster's may have this part, and of fewer clusters each its share: none of them
/// makes the others' too much.
pub(super) const PART: usize = 4;

/// What an answer takes of the room for all and of that of its request. It is given back when it is dropped: whoever answers
/// rubbish, or too late, takes nothing from others.
#[derive(Debug, Default)]
pub(super) struct Takes {
    pub(super) of_all: Vec<room::Held>,
    pub(super) of_request: Vec<OwnedSemaphorePermit>,
}

/// An answer may come in so many pieces, and one more for each of so many bytes: each costs more than its bytes.
const FRAMES: usize = 1024;
const FRAME: usize = 128;

/// Takes so many KiB of what all answers to a request may have.
pub(super) fn draw(
    room: &Arc<Semaphore>,
    kibibytes: usize,
    most: usize,
) -> Result<OwnedSemaphorePermit, Missing> {
    let kibibytes = u32::try_from(kibibytes).unwrap_or(u32::MAX);
    room.clone().try_acquire_many_owned(kibibytes).map_err(|_| {
        Missing::TooMuch(Box::new(Status::too_large(format!(
            "what all clusters answer is more than {} MiB: ask for one namespace, by labels, or cluster by cluster",
            most >> 10
        ))))
    })
}

/// Reads a body, as far as there is room for it; what it takes.
pub(super) async fn within(body: Body, most: Most<'_>, all: &Share) -> Result<(Bytes, Takes), Missing> {
    let (mut bytes, mut counted, mut takes) = (Vec::new(), 0, Takes::default());
    let one = match most {
        Most::Of(_, most, clusters) => most / clusters.clamp(1, PART),
        Most::One(most) | Most::First(most) => most,
    };
    let (mut parts, mut goes_on, mut count) = (body.into_data_stream(), true, 0);
    while goes_on && let Some(part) = parts.next().await {
        let mut part = part.map_err(|error| Missing::Unheard(format!("its answer broke off: {error}")))?;
        count += 1;
        if count > FRAMES + bytes.len() / FRAME {
            return Err(Missing::Unheard("it answers in pieces that are too small".to_owned()));
        }
        let left = (one << 10) - bytes.len();
        if part.len() > left && !matches!(most, Most::First(_)) {
            return Err(Missing::Unheard(format!("it answers more than {one} KiB")));
        }
        goes_on = part.len() <= left;
        part.truncate(left);
        bytes.extend_from_slice(&part);
        let more = bytes.len().div_ceil(1 << 10) - counted;
        if more == 0 {
            continue;
        }
        counted += more;
        if let Most::Of(room, most, _) = most {
            takes.of_request.push(draw(room, more, most)?);
        }
        takes.of_all.push(all.take(more).ok_or_else(|| {
            let full = "too much is being put together for all clusters; try again";
            Missing::TooMuch(Box::new(Status::too_many_requests(full, 1)))
        })?);
    }
    Ok((bytes.into(), takes))
}
