//! What the heads of requests and answers take where they cross a tunnel.
//!
//! HTTP/2 writes each sign of a header in a code of its own length (RFC 7541, appendix B): letters take less than a byte, rare
//! signs up to four. Whoever chooses the signs chooses what crosses, so both ends count them so.

use http::{HeaderName, HeaderValue, uri::PathAndQuery};

/// The most that one head may take, in bytes. Either end ends the connection of all for one that is much larger.
pub const MOST: usize = 8 << 10;

/// What these lines and what is asked for take at most, in bytes.
pub fn weight<'a>(
    lines: impl IntoIterator<Item = (&'a HeaderName, &'a HeaderValue)>,
    asked: Option<&PathAndQuery>,
) -> usize {
    let lines = lines.into_iter().map(|(name, line)| name.as_str().len() + text(line.as_bytes()));
    lines.sum::<usize>() + asked.map_or(0, |asked| text(asked.as_str().as_bytes()))
}

fn text(signs: &[u8]) -> usize {
    signs.iter().map(|sign| usize::from(bytes_of(*sign))).sum()
}

/// How many bytes the code of a sign takes, rounded up.
const fn bytes_of(sign: u8) -> u8 {
    match sign {
        b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => 1,
        b' ' | b'%' | b'&' | b'*' | b',' | b'-' | b'.' | b'/' | b':' | b';' | b'=' | b'_' => 1,
        b'\\' => 3,
        b'!'..=b'~' => 2,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, Request};
    use http_body_util::Empty;
    use hyper::client::conn::http2;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::io::{AsyncReadExt as _, duplex};

    use super::*;

    /// What crosses a connection for the head of its first request.
    async fn crosses(request: Request<Empty<Bytes>>) -> usize {
        let (near, mut far) = duplex(256 << 10);
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(near)).await.unwrap();
        let asking = tokio::spawn(async move {
            tokio::join!(connection, sender.send_request(request)).0.unwrap();
        });
        let mut preface = [0; 24];
        far.read_exact(&mut preface).await.unwrap();
        let mut count = 0;
        loop {
            let mut frame = [0; 9];
            far.read_exact(&mut frame).await.unwrap();
            let [a, b, c, kind, flags, ..] = frame;
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            far.read_exact(&mut vec![0; length]).await.unwrap();
            // HEADERS and CONTINUATION, until one says that it is the last.
            if [1, 9].contains(&kind) {
                count += length;
                if flags & 4 != 0 {
                    asking.abort();
                    return count;
                }
            }
        }
    }

    #[tokio::test]
    async fn nothing_crosses_that_has_not_been_weighed() {
        for sign in (0..=u8::MAX).filter(|sign| *sign == b'\t' || (*sign >= b' ' && *sign != 0x7f)) {
            for length in [100, 2000, 40_000] {
                let mut headers = HeaderMap::new();
                headers.insert("accept", HeaderValue::from_bytes(&vec![sign; length]).unwrap());
                let weight = weight(&headers, None);
                let mut request = Request::get("http://m/").body(Empty::new()).unwrap();
                *request.headers_mut() = headers;
                let count = crosses(request).await;
                assert!(count <= weight + 30, "{sign:#x}: {count} of {weight}");
                assert!(weight < 2 * count, "{sign:#x}: {count} of {weight}");
            }
        }
    }

    #[tokio::test]
    async fn what_is_asked_for_is_weighed_as_well() {
        let path = format!("/api?x={}", "~%5C".repeat(500));
        let request = Request::get(format!("http://m{path}")).body(Empty::new()).unwrap();
        let weight = weight(&HeaderMap::new(), request.uri().path_and_query());
        assert_eq!(weight, path.len() + "?".len() + 500);
        let count = crosses(request).await;
        assert!(count <= weight + 30 && weight < 2 * count, "{count} of {weight}");
    }
}
