//! Answers that come compressed, as they are asked for where each byte crosses a tunnel.

use std::{io::Write as _, mem};

use axum::{Error, body::Body};
use bytes::Bytes;
use flate2::write::GzDecoder;
use futures::{StreamExt as _, stream};
use http::{HeaderMap, header};

/// So much is inflated at a time: a thousand times as much may come of it.
const STEP: usize = 256;
/// What is passed on at once, about.
const PIECE: usize = 32 << 10;
/// So many pieces in a row may come of which nothing is inflated.
const NOTHING: usize = 1024;

/// A body as it was before it was compressed: as little of it at a time as was come for, whatever it says.
///
/// # Errors
/// How it is written, where that was not asked for.
pub(super) fn inflated(headers: &HeaderMap, body: Body) -> Result<Body, String> {
    let mut encodings = headers.get_all(header::CONTENT_ENCODING).iter();
    let encoding = match (encodings.next(), encodings.next()) {
        (None, _) => return Ok(body),
        (Some(one), None) => one.to_str().unwrap_or_default(),
        _ => "several",
    };
    match encoding.to_ascii_lowercase().as_str() {
        "" | "identity" => Ok(body),
        "gzip" => Ok(Body::from_stream(gunzip(body))),
        other => Err(format!("it answers in the encoding {other:?}, which was not asked for")),
    }
}

fn gunzip(body: Body) -> impl futures::Stream<Item = Result<Bytes, Error>> + Send {
    let state = (body.into_data_stream(), GzDecoder::new(Vec::new()), Bytes::new(), 0);
    stream::unfold(Some(state), |state| async move {
        let (mut parts, mut decoder, mut waiting, mut nothing) = state?;
        let broken = |why: &str| Some((Err(Error::new(std::io::Error::other(why.to_owned()))), None));
        loop {
            while !waiting.is_empty() && decoder.get_ref().len() < PIECE {
                let step = waiting.len().min(STEP);
                match decoder.write(&waiting[..step]) {
                    Ok(0) => return broken("there is more behind its compressed end"),
                    Ok(taken) => drop(waiting.split_to(taken)),
                    Err(error) => return broken(&error.to_string()),
                }
            }
            if !decoder.get_ref().is_empty() {
                let piece = Bytes::from(mem::take(decoder.get_mut()));
                return Some((Ok(piece), Some((parts, decoder, waiting, 0))));
            }
            nothing += 1;
            if nothing > NOTHING {
                return broken("nothing is inflated of what it answers");
            }
            match parts.next().await {
                Some(Ok(part)) => waiting = part,
                Some(Err(error)) => return Some((Err(error), None)),
                // What the decoder has kept back comes now.
                None => {
                    if let Err(error) = decoder.try_finish() {
                        return broken(&error.to_string());
                    }
                    let rest = Bytes::from(mem::take(decoder.get_mut()));
                    return (!rest.is_empty()).then_some((Ok(rest), None));
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use flate2::{Compression, write::GzEncoder};
    use http::HeaderValue;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// What comes of a body that comes in pieces of this size.
    fn of(encoding: &'static str, bytes: &[u8], size: usize) -> Result<Body, String> {
        let pieces: Vec<Result<Bytes, Error>> =
            bytes.chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
        inflated(&headers, Body::from_stream(stream::iter(pieces)))
    }

    #[tokio::test]
    async fn it_is_as_it_was() {
        let text: String = (0..100_000).map(|n| format!("pod-{n} ")).collect();
        let packed = gzip(text.as_bytes());
        assert!(packed.len() < text.len() / 3);
        for size in [1000, 16 << 10, packed.len()] {
            let body = of("gzip", &packed, size).unwrap();
            assert_eq!(to_bytes(body, usize::MAX).await.unwrap(), text, "{size}");
        }
        assert_eq!(to_bytes(of("identity", b"{}", 2).unwrap(), 9).await.unwrap(), "{}");
        assert_eq!(to_bytes(inflated(&HeaderMap::new(), Body::from("{}")).unwrap(), 9).await.unwrap(), "{}");
    }

    #[tokio::test]
    async fn little_of_it_is_there_at_a_time() {
        let bomb = gzip(&vec![0; 64 << 20]);
        assert!(bomb.len() < 1 << 20);
        let mut parts = of("gzip", &bomb, bomb.len()).unwrap().into_data_stream();
        let mut all = 0;
        while let Some(part) = parts.next().await {
            let part = part.unwrap().len();
            assert!(part <= PIECE + 1032 * STEP + (32 << 10), "{part}");
            all += part;
        }
        assert_eq!(all, 64 << 20);
    }

    #[tokio::test]
    async fn what_is_no_whole_answer_is_none() {
        let packed = gzip(&[7; 5000]);
        let mut more = packed.clone();
        more.extend_from_slice(b"more");
        for (what, bytes) in [
            ("cut", &packed[..packed.len() - 9]),
            ("no gzip", b"{\"kind\":\"PodList\"}".as_slice()),
            ("more behind it", more.as_slice()),
        ] {
            assert!(to_bytes(of("gzip", bytes, 4096).unwrap(), 1 << 20).await.is_err(), "{what}");
        }
        assert!(of("br", b"x", 1).unwrap_err().contains("\"br\""));
    }
}
