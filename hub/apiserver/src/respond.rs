//! Putting HTTP answers together.

use std::io::{self, Write as _};

use axum::body::Body;
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use karmada_meta::{
    pack::{self, Packer},
    status::Status,
};
use serde_json::Value;

use crate::negotiate::{Accepted, Encoding};

/// Smaller answers are not worth compressing. kube-apiserver begins at 128 KiB, being next to its clients; those of a
/// hub are across a narrow link.
const GZIP_FROM: usize = 1 << 10;
/// The same where a dictionary helps.
const PACK_FROM: usize = 96;
/// Longer JSON is not indented: no person reads it, and deep nesting makes a hundred bytes of one.
const READABLE: usize = 256 << 10;
/// How much longer than JSON the same may become as YAML or indented, beside that.
const INDENTED: usize = 8;
/// From here on quickly rather than well.
const GZIP_FAST: usize = 64 << 10;

/// The answer to a request: bytes of JSON with how they are to be written.
#[derive(Debug)]
pub(crate) struct Answer {
    /// HTTP status code.
    pub(crate) code: StatusCode,
    /// JSON.
    pub(crate) json: Bytes,
    /// How the client wants it.
    pub(crate) accepted: Accepted,
}

impl Answer {
    /// 200.
    pub(crate) fn ok(json: Bytes, accepted: Accepted) -> Self {
        Self { code: StatusCode::OK, json, accepted }
    }

    /// Writes it out.
    pub(crate) fn into_response(self, request: &HeaderMap) -> Response<Body> {
        let content_type = self.accepted.content_type();
        let bytes = match self.accepted.encoding {
            Encoding::Json { pretty: false } => self.json,
            Encoding::Json { pretty: true } => indented(&self.json).unwrap_or(self.json),
            Encoding::Yaml => match yaml(&self.json) {
                Ok(text) => text,
                Err(why) => return status(&why),
            },
        };
        let mut response = self::bytes(bytes, request);
        *response.status_mut() = self.code;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        response
    }
}

/// Bytes, compressed where that is wanted and worth it. The caller says what they are.
pub(crate) fn bytes(bytes: Bytes, request: &HeaderMap) -> Response<Body> {
    let Some((small, coding)) = compressed(&bytes, request) else { return Response::new(Body::from(bytes)) };
    let mut response = Response::new(Body::from(small));
    mark(response.headers_mut(), coding);
    response
}

/// Says that an answer is in gzip.
pub(crate) fn mark_gzip(headers: &mut HeaderMap) {
    mark(headers, "gzip");
}

/// Says that an answer is in a coding.
pub(crate) fn mark(headers: &mut HeaderMap, coding: &'static str) {
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding));
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
}

/// The same for people; `None` where it would become so much that nobody reads it.
fn indented(json: &[u8]) -> Option<Bytes> {
    if json.len() > READABLE {
        return None;
    }
    let value: Value = serde_json::from_slice(json).ok()?;
    let mut text =
        Bounded { text: Vec::with_capacity(2 * json.len()), most: INDENTED * json.len() + READABLE };
    serde_json::to_writer_pretty(&mut text, &value).ok()?;
    text.text.push(b'\n');
    Some(text.text.into())
}

fn yaml(json: &[u8]) -> Result<Bytes, Status> {
    let value: Value = serde_json::from_slice(json).map_err(Status::internal)?;
    let mut text = Bounded { text: Vec::with_capacity(json.len()), most: INDENTED * json.len() + READABLE };
    match serde_saphyr::to_io_writer(&mut text, &value) {
        Ok(()) => Ok(text.text.into()),
        Err(_) if text.text.len() >= text.most => {
            let why = "as YAML the answer is too large, for it nests deeply; ask for application/json";
            Err(Status { message: why.to_owned(), ..Status::not_acceptable(&[]) })
        }
        Err(error) => Err(Status::internal(error)),
    }
}

/// A text that ends with an error when it becomes too long, and is that long then.
struct Bounded {
    text: Vec<u8>,
    most: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.most.saturating_sub(self.text.len());
        self.text.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if bytes.len() > room { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether a client takes gzip, and so many bytes are worth it.
pub(crate) fn wants_gzip(bytes: usize, request: &HeaderMap) -> bool {
    bytes > GZIP_FROM && takes(request, "gzip")
}

/// Whether a client takes a coding.
pub(crate) fn takes(request: &HeaderMap, coding: &str) -> bool {
    let named = |value: &str| value.split(';').next().is_some_and(|name| name.trim() == coding);
    let values = request.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(named)
}

fn compressed(bytes: &[u8], request: &HeaderMap) -> Option<(Bytes, &'static str)> {
    // With a dictionary short answers get smaller, too. For long ones it is of no use.
    if (PACK_FROM..GZIP_FAST).contains(&bytes.len()) && takes(request, pack::CODING) {
        return Some((Packer::default().pack(bytes).into(), pack::CODING));
    }
    if !wants_gzip(bytes.len(), request) {
        return None;
    }
    // An object is worth some time, a long list is only worth some.
    let level = if bytes.len() < GZIP_FAST { Compression::default() } else { Compression::fast() };
    gzip(bytes, level).map(|bytes| (bytes, "gzip"))
}

/// Bytes in gzip.
pub(crate) fn gzip(bytes: &[u8], level: Compression) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), level);
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok().map(Into::into)
}

/// A Status. Always JSON: clients read it whatever they asked for.
pub(crate) fn status(status: &Status) -> Response<Body> {
    let json = serde_json::to_vec(status).unwrap_or_default();
    let code = StatusCode::from_u16(status.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = Response::builder().status(code).header(header::CONTENT_TYPE, "application/json");
    let retry = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    if retry > 0 && matches!(code.as_u16(), 429 | 500..) {
        response = response.header(header::RETRY_AFTER, retry);
    }
    response.body(Body::from(json)).expect("invariant: the headers are constants and a number")
}

/// A Status in another format than JSON, or indented.
pub(crate) fn status_as(failure: &Status, encoding: Encoding) -> Response<Body> {
    let mut response = status(failure);
    let json = Bytes::from(serde_json::to_vec(failure).unwrap_or_default());
    let (bytes, content_type) = match encoding {
        Encoding::Json { pretty: false } => return response,
        Encoding::Json { pretty: true } => (indented(&json).unwrap_or(json), "application/json"),
        Encoding::Yaml => match yaml(&json) {
            Ok(text) => (text, "application/yaml"),
            Err(_) => return response,
        },
    };
    *response.body_mut() = Body::from(bytes);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A code and nothing else.
pub(crate) fn empty(code: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = code;
    response
}

/// Plain text, such as a health check's.
pub(crate) fn text(code: StatusCode, text: impl Into<String>) -> Response<Body> {
    let mut response = Response::new(Body::from(text.into()));
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// What every answer of the API carries.
pub(crate) fn finish(response: &mut Response<Body>, audit_id: &str, warnings: &[String]) {
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(audit_id) {
        headers.insert("audit-id", id);
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    // Requests may come in gzip (RFC 7694).
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    for warning in warnings {
        let quoted: String = warning
            .chars()
            .filter(|c| !c.is_control())
            .flat_map(|c| if matches!(c, '"' | '\\') { vec!['\\', c] } else { vec![c] })
            .collect();
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            headers.append(header::WARNING, value);
        }
    }
}

/// What keeps a browser from taking an answer for something else. What a member says (`of_member`) must not act on this
/// host, where somebody may have logged in.
pub(crate) fn for_browser(response: &mut Response<Body>, of_member: bool) {
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if of_member {
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_become_a_hundred_times_as_much_is_not_indented() {
        let deep = |zeros: usize| {
            format!("{}{}0{}", "[".repeat(90), "0,".repeat(zeros), "]".repeat(90)).into_bytes()
        };
        assert_eq!(indented(b"[1]").as_deref(), Some(&b"[\n  1\n]\n"[..]));
        assert!(indented(&deep(100)).is_some_and(|text| text.len() > 10_000));
        assert_eq!(indented(&deep(100_000)), None);
        assert_eq!(indented(&vec![b' '; READABLE + 1]), None);
        assert_eq!(yaml(b"[1]").unwrap(), "- 1\n");
        let why = yaml(&deep(100_000)).unwrap_err();
        assert_eq!(why.code(), 406, "{why:?}");
    }
}
