//! Long lists, made in pieces as the client takes them.
//!
//! Whole, a list would stand in memory once more, and keep a thread for as long as it takes to write and compress it. In
//! pieces it is as much as a connection has on its way; what is held beside that is the objects, which the store mostly has
//! anyway. They count against the budget of lists all the same: they may have been changed since.

use std::{io::Write as _, mem, sync::Arc, vec};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use flate2::{Compression, write::GzEncoder};
use http::{HeaderValue, Response, header};

use crate::{
    heavy::Pool,
    respond,
    storage::{Framer, Object},
};

/// Lists from here on are not made whole.
pub(super) const LONG: usize = 256 << 10;
/// Pieces have about so many bytes before they are compressed, and no more than that is unpacked for one.
const PIECE: usize = 64 << 10;

/// A list that is being written.
struct Pieces {
    /// What stands before the next object.
    before: Bytes,
    items: vec::IntoIter<Arc<Object>>,
    framer: Framer,
    zip: Option<GzEncoder<Vec<u8>>>,
    ended: bool,
}

impl Pieces {
    /// The next piece; none at the end.
    fn next(&mut self) -> Option<Bytes> {
        while !self.ended {
            let piece = self.text();
            let Some(zip) = &mut self.zip else { return Some(piece) };
            // Writing to memory does not fail.
            let _ = zip.write_all(&piece);
            if self.ended {
                return self.zip.take()?.finish().ok().map(Bytes::from);
            }
            // What is too little for a block of gzip waits for more.
            if !zip.get_ref().is_empty() {
                return Some(mem::take(zip.get_mut()).into());
            }
        }
        None
    }

    fn text(&mut self) -> Bytes {
        let mut out = BytesMut::with_capacity(PIECE + PIECE / 8);
        let mut unpacked = 0;
        while out.len() < PIECE && unpacked < PIECE {
            let Some(object) = self.items.next() else {
                // Nothing but the head of a list stands before no object.
                if !self.before.starts_with(b",") {
                    out.extend_from_slice(&self.before);
                }
                out.extend_from_slice(b"]}");
                self.ended = true;
                break;
            };
            out.extend_from_slice(&mem::replace(&mut self.before, Bytes::from_static(b",")));
            unpacked += object.value.made();
            self.framer.write(&mut out, &object.header, &object.value.get(), Some(object.revision));
        }
        out.freeze()
    }
}

/// A list of objects that are shown as they are stored. `head` goes up to its first object.
pub(super) fn list(
    head: String,
    items: Vec<Arc<Object>>,
    framer: Framer,
    content_type: &'static str,
    gzip: bool,
    pool: Arc<Pool>,
) -> Response<Body> {
    // To copy is quick; to compress and to unpack is done in turn with other large work.
    let is_work = gzip || items.iter().any(|object| object.value.made() > 0);
    let weight = if is_work { PIECE } else { 0 };
    let zip = gzip.then(|| GzEncoder::new(Vec::with_capacity(PIECE), Compression::fast()));
    let pieces = Pieces { before: head.into(), items: items.into_iter(), framer, zip, ended: false };
    let pieces = futures::stream::unfold((pieces, pool), move |(mut pieces, pool)| async move {
        let piece = match pool.run(weight, || pieces.next()).await {
            Ok(piece) => piece,
            // Too many wait: an answer that has begun goes on.
            Err(_) => pieces.next(),
        };
        piece.map(|piece| (Ok::<_, std::convert::Infallible>(piece), (pieces, pool)))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    if gzip {
        respond::mark_gzip(headers);
    }
    response
}

#[cfg(test)]
mod tests {
    use karmada_env::{Env, ManualClock};
    use karmada_store::{Expect, Key, Op, engine::memory::Memory};
    use serde_json::{Value, json};

    use super::*;
    use crate::open_store;

    /// However little of it is shown.
    #[tokio::test]
    async fn no_more_is_unpacked_for_a_piece_than_a_piece_has() {
        const WORKS: usize = 40;
        const MANIFEST: usize = 10_000;
        let env = Env::seeded(ManualClock::new(std::time::SystemTime::UNIX_EPOCH), 1);
        let store = open_store(Memory::new(), &env).unwrap();
        for resource in ["work.karmada.io/works", "core/configmaps"] {
            for n in 0..WORKS {
                let value = json!({"apiVersion": "v1", "kind": "K", "metadata": {"name": format!("w{n}")},
                    "data": {"text": "a".repeat(MANIFEST)}});
                let key = Key::new(resource, "n", format!("w{n}"));
                store.commit(vec![Op::put(key, Expect::Any, value.to_string())]).await.unwrap();
            }
            let items: Vec<_> = store.snapshot().range(resource, None, None).cloned().collect();
            let is_packed = resource.ends_with("works");
            assert!(items.iter().all(|item| (item.value.made() > MANIFEST) == is_packed));
            let mut pieces = Pieces {
                before: Bytes::from_static(b"{\"items\":["),
                items: items.into_iter(),
                framer: Framer::partial("v1"),
                zip: None,
                ended: false,
            };
            let (mut all, mut count) = (Vec::new(), 0);
            while let Some(piece) = pieces.next() {
                all.extend_from_slice(&piece);
                count += 1;
            }
            let list: Value = serde_json::from_slice(&all).unwrap();
            assert_eq!(list["items"].as_array().unwrap().len(), WORKS);
            // Each ends with the first that goes beyond.
            let want = if is_packed { WORKS.div_ceil(PIECE / MANIFEST + 1) } else { 1 };
            assert_eq!(count, want, "{resource}");
        }
    }
}
