//! Fewer bytes on a link whose bytes are dear.
//!
//! Answers are asked for packed ([`pack`]), as a hub of ours has all but long ones, or in gzip, as kube-apiserver has large
//! ones. Requests are sent in gzip on a connection whose server has said that it takes them (an `Accept-Encoding` in an answer,
//! RFC 7694), which kube-apiserver never does. Watches are asked for packed, and not in gzip, for which something in between
//! might wait until there is enough of it.

use std::{
    io::{self, Write as _},
    mem,
};

use bytes::Bytes;
use flate2::{
    Compression,
    write::{GzDecoder, GzEncoder},
};
use http::{HeaderMap, HeaderValue, Request, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use karmada_meta::pack::{self, Unpacker};
use kube::client::Body;

use super::LinkError;

/// What is smaller hardly shrinks. JSON of this length becomes a third shorter.
const FROM: u64 = 384;

const GZIP: HeaderValue = HeaderValue::from_static("gzip");
const PACKED: HeaderValue = HeaderValue::from_static(pack::CODING);
const EITHER: HeaderValue = HeaderValue::from_static("hub-pack-1, gzip");

/// Asks for a small answer.
pub(super) fn ask(headers: &mut HeaderMap, is_watch: bool) {
    headers.entry(header::ACCEPT_ENCODING).or_insert(if is_watch { PACKED } else { EITHER });
}

/// Whether an answer says that requests may come in gzip.
pub(super) fn is_taken(answer: &HeaderMap) -> bool {
    let codings = answer.get_all(header::ACCEPT_ENCODING).iter().filter_map(|v| v.to_str().ok());
    codings.flat_map(|v| v.split(',')).any(|coding| coding.trim().eq_ignore_ascii_case("gzip"))
}

/// A request with its body in gzip, if that makes it smaller.
pub(super) async fn shrink(request: Request<Body>) -> Result<Request<Body>, LinkError> {
    let small = request.body().size_hint().exact().is_none_or(|size| size < FROM);
    if small || request.headers().contains_key(header::CONTENT_ENCODING) {
        return Ok(request);
    }
    let (mut parts, body) = request.into_parts();
    let bytes = body.collect().await.map_err(|error| LinkError::Request(error.to_string()))?.to_bytes();
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::default());
    let shrunk = encoder.write_all(&bytes).and_then(|()| encoder.finish());
    let shrunk = shrunk.map_err(|error| LinkError::Request(error.to_string()))?;
    if shrunk.len() >= bytes.len() {
        return Ok(Request::from_parts(parts, Body::from(bytes.to_vec())));
    }
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_ENCODING, GZIP);
    Ok(Request::from_parts(parts, Body::from(shrunk)))
}

/// Inflates an answer's body piece by piece.
pub(super) enum Inflate {
    Gzip { decoder: GzDecoder<Vec<u8>>, ended: bool },
    Packed { unpacker: Unpacker, ended: bool },
}

impl Inflate {
    /// For an answer with these headers, from which the coding is taken away; none if it has no coding.
    pub(super) fn of(headers: &mut HeaderMap) -> Option<Self> {
        let inflate = match headers.get(header::CONTENT_ENCODING)? {
            coding if *coding == GZIP => Self::Gzip { decoder: GzDecoder::new(Vec::new()), ended: false },
            coding if *coding == PACKED => Self::Packed { unpacker: Unpacker::default(), ended: false },
            _ => return None,
        };
        headers.remove(header::CONTENT_ENCODING);
        headers.remove(header::CONTENT_LENGTH);
        Some(inflate)
    }

    /// Takes in a piece.
    pub(super) fn push(&mut self, piece: &[u8]) -> io::Result<()> {
        match self {
            Self::Gzip { decoder, .. } => decoder.write_all(piece).and_then(|()| decoder.flush()),
            Self::Packed { unpacker, .. } => {
                unpacker.feed(piece);
                Ok(())
            }
        }
    }

    /// The body is at its end.
    pub(super) fn end(&mut self) -> io::Result<()> {
        match self {
            Self::Gzip { decoder, ended } => {
                *ended = true;
                decoder.try_finish()
            }
            Self::Packed { ended, .. } => {
                *ended = true;
                Ok(())
            }
        }
    }

    /// What can be read by now; none before more is taken in, or at the end.
    pub(super) fn read(&mut self) -> io::Result<Option<Bytes>> {
        match self {
            Self::Gzip { decoder, .. } => {
                let read = mem::take(decoder.get_mut());
                Ok((!read.is_empty()).then(|| read.into()))
            }
            Self::Packed { unpacker, ended } => {
                let read = unpacker.read().map_err(io::Error::other)?;
                if read.is_none() && *ended {
                    unpacker.end().map_err(io::Error::other)?;
                }
                Ok(read.map(Bytes::from))
            }
        }
    }

    /// Whether nothing more is taken in.
    pub(super) const fn ended(&self) -> bool {
        match self {
            Self::Gzip { ended, .. } | Self::Packed { ended, .. } => *ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(body: &[u8]) -> Request<Body> {
        Request::put("/x").header("content-length", body.len()).body(Body::from(body.to_vec())).unwrap()
    }

    async fn bytes(request: Request<Body>) -> Vec<u8> {
        request.into_body().collect().await.unwrap().to_bytes().to_vec()
    }

    #[tokio::test]
    async fn a_large_request_shrinks_and_is_read_back_from_any_pieces() {
        let text = br#"{"kind":"DaemonSet"},"#.repeat(200);
        let shrunk = shrink(request(&text)).await.unwrap();
        assert_eq!(shrunk.headers()["content-encoding"], "gzip");
        assert!(!shrunk.headers().contains_key("content-length"));
        let again = shrink(shrunk).await.unwrap();
        let coded = bytes(again).await;
        assert!(coded.len() < text.len() / 10, "{} bytes", coded.len());

        for step in [1, 7, coded.len()] {
            let mut headers = HeaderMap::from_iter([(header::CONTENT_ENCODING, GZIP)]);
            let inflate = Inflate::of(&mut headers).unwrap();
            assert!(headers.is_empty());
            assert_eq!(inflated(inflate, &coded, step).unwrap(), text);
        }
        let half = &coded[..coded.len() / 2];
        assert!(inflated(of(GZIP), half, half.len()).is_err(), "cut off");
        assert!(inflated(of(GZIP), b"no gzip at all", 20).is_err());
    }

    fn of(coding: HeaderValue) -> Inflate {
        Inflate::of(&mut HeaderMap::from_iter([(header::CONTENT_ENCODING, coding)])).unwrap()
    }

    fn inflated(mut inflate: Inflate, coded: &[u8], step: usize) -> io::Result<Vec<u8>> {
        let mut read = Vec::new();
        let mut pieces = coded.chunks(step);
        loop {
            while let Some(text) = inflate.read()? {
                read.extend_from_slice(&text);
            }
            match pieces.next() {
                Some(piece) => inflate.push(piece)?,
                None if inflate.ended() => return Ok(read),
                None => inflate.end()?,
            }
        }
    }

    #[test]
    fn a_watch_is_asked_for_packed_and_read_message_by_message() {
        let mut headers = HeaderMap::new();
        ask(&mut headers, true);
        assert_eq!(headers[header::ACCEPT_ENCODING], pack::CODING);
        assert_eq!(EITHER, format!("{}, gzip", pack::CODING));
        let mut packer = pack::Packer::default();
        let first = packer.pack(b"{\"type\":\"BOOKMARK\"}\n");
        let mut inflate = of(PACKED);
        inflate.push(&first).unwrap();
        assert_eq!(inflate.read().unwrap().unwrap(), &b"{\"type\":\"BOOKMARK\"}\n"[..], "at once");
        assert!(inflate.read().unwrap().is_none());
        let both = [first, packer.pack(b"more")].concat();
        assert_eq!(inflated(of(PACKED), &both, 1).unwrap(), b"{\"type\":\"BOOKMARK\"}\nmore");
        assert!(inflated(of(PACKED), &both[..both.len() - 1], 7).is_err(), "cut off");
    }

    #[tokio::test]
    async fn what_is_small_or_does_not_shrink_stays() {
        let noise: Vec<u8> = {
            use karmada_env::{Random, SplitMix};
            let random = SplitMix::new(1);
            std::iter::repeat_with(|| random.next_u64().to_le_bytes()).take(400).flatten().collect()
        };
        for body in [b"{}".to_vec(), noise] {
            let sent = shrink(request(&body)).await.unwrap();
            assert!(!sent.headers().contains_key("content-encoding"));
            assert_eq!(bytes(sent).await, body);
        }
    }

    #[test]
    fn a_server_says_what_it_takes() {
        for (said, taken) in [("gzip", true), ("br, GZIP", true), ("identity", false), ("xgzip", false)] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, said.parse().unwrap());
            assert_eq!(is_taken(&headers), taken, "{said}");
        }
        assert!(!is_taken(&HeaderMap::new()));
    }
}
