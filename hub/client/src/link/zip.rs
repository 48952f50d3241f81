//! Gzip on a link whose bytes are dear.
//!
//! Answers are asked for in gzip; kube-apiserver does so for large ones, a hub of ours for all but small ones. Requests
//! are sent in gzip on a connection whose server has said that it takes them (an `Accept-Encoding` in an answer, RFC
//! 7694), which kube-apiserver never does.

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
use kube::client::Body;

use super::LinkError;

/// What is smaller hardly shrinks. JSON of this length becomes a third shorter.
const FROM: u64 = 384;

const GZIP: HeaderValue = HeaderValue::from_static("gzip");

/// Asks for an answer in gzip.
pub(super) fn ask(headers: &mut HeaderMap) {
    headers.entry(header::ACCEPT_ENCODING).or_insert(GZIP);
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
pub(super) struct Inflate(GzDecoder<Vec<u8>>);

impl Inflate {
    /// For an answer with these headers, from which the coding is taken away; none if it has no coding.
    pub(super) fn of(headers: &mut HeaderMap) -> Option<Self> {
        if headers.get(header::CONTENT_ENCODING) != Some(&GZIP) {
            return None;
        }
        headers.remove(header::CONTENT_ENCODING);
        headers.remove(header::CONTENT_LENGTH);
        Some(Self(GzDecoder::new(Vec::new())))
    }

    /// Takes in a piece; returns what can be read with it, which may be nothing yet.
    pub(super) fn push(&mut self, piece: &[u8]) -> io::Result<Bytes> {
        self.0.write_all(piece)?;
        self.0.flush()?;
        Ok(mem::take(self.0.get_mut()).into())
    }

    /// The body is at its end; returns what was left.
    pub(super) fn end(mut self) -> io::Result<Bytes> {
        self.0.try_finish()?;
        Ok(mem::take(self.0.get_mut()).into())
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
            let mut inflate = Inflate::of(&mut headers).unwrap();
            assert!(headers.is_empty());
            let mut read = Vec::new();
            for piece in coded.chunks(step) {
                read.extend_from_slice(&inflate.push(piece).unwrap());
            }
            read.extend_from_slice(&inflate.end().unwrap());
            assert_eq!(read, text);
        }
        let mut inflate = Inflate(GzDecoder::new(Vec::new()));
        inflate.push(&coded[..coded.len() / 2]).unwrap();
        assert!(inflate.end().is_err(), "cut off");
        assert!(Inflate(GzDecoder::new(Vec::new())).push(b"no gzip at all").is_err());
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
