//! A watch's body as lines, and a line as a frame. Only what the loop needs is looked at.

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use kube::client::Body;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

use crate::{
    rest::chain,
    room::{Taken, WAIT},
};

/// The longest line that is taken in. An object is at most 1.5 MiB in etcd; JSON on the wire may be several times
/// that, and a server that sends more than this is not one.
pub(super) const LINE_LIMIT: usize = 16 << 20;

/// Why no further line came.
#[derive(Debug, thiserror::Error)]
pub(super) enum FrameError {
    #[error("the watch broke off: {0}")]
    Broken(String),
    #[error("a line of the watch is longer than {limit} bytes")]
    TooLong { limit: usize },
    #[error("nothing was heard on the watch for too long")]
    Silent,
    #[error("a line of the watch is long, and long answers of others take the memory for it")]
    NoRoom,
}

/// Cuts a body into lines.
pub(super) struct Frames {
    body: Body,
    buffer: BytesMut,
    /// The buffer holds no newline before this.
    scanned: usize,
    limit: usize,
    heard: Instant,
    taken: Taken,
    /// Until when it waits for room, whoever drops [`Self::next`] meanwhile.
    waits: Option<Instant>,
}

impl Frames {
    pub(super) fn new(body: Body) -> Self {
        let (buffer, taken) = (BytesMut::new(), Taken::of(None));
        Self { body, buffer, scanned: 0, limit: LINE_LIMIT, heard: Instant::now(), taken, waits: None }
    }

    /// The same, and what waits for the end of its line takes room.
    pub(super) fn taking(self, taken: Taken) -> Self {
        Self { taken, ..self }
    }

    /// When anything was last read. A large object on a slow line is no silence.
    pub(super) const fn heard(&self) -> Instant {
        self.heard
    }

    /// The next line without its end; none when the body ends. An unfinished last line is dropped, the watch that
    /// follows brings it again. Cancel-safe: what was read stays in the buffer.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, FrameError> {
        loop {
            while let Some(end) = self.buffer[self.scanned..].iter().position(|b| *b == b'\n') {
                let line = self.buffer.split_to(self.scanned + end).freeze();
                self.buffer.advance(1);
                self.scanned = 0;
                self.taken.shrink_to(self.buffer.len());
                if !line.iter().all(u8::is_ascii_whitespace) {
                    return Ok(Some(line));
                }
            }
            self.scanned = self.buffer.len();
            if self.scanned > self.limit {
                return Err(FrameError::TooLong { limit: self.limit });
            }
            if self.buffer.is_empty() {
                // Give a large frame's memory back once it is through.
                self.buffer = BytesMut::new();
            }
            let grows = self.taken.grow_to(self.buffer.len());
            let due = *self.waits.get_or_insert_with(|| Instant::now() + WAIT);
            timeout_at(due, grows).await.map_err(|_| FrameError::NoRoom)?;
            self.waits = None;
            match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.heard = Instant::now();
                        self.buffer.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => return Err(FrameError::Broken(chain(&error))),
            }
        }
    }
}

/// One event of a watch.
#[derive(Debug)]
pub(super) enum Frame<'a> {
    Object { kind: Change, object: &'a str, revision: String },
    Bookmark { revision: String },
    Error { code: u16, message: String, retry_after: Option<Duration> },
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Change {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

impl Change {
    pub(super) fn is_deletion(self) -> bool {
        self == Self::Deleted
    }
}

#[derive(Deserialize)]
struct Line<'a> {
    r#type: Change,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Versioned {
    metadata: Version,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    #[serde(default)]
    resource_version: String,
}

impl<'a> Frame<'a> {
    pub(super) fn parse(line: &'a [u8]) -> Result<Self, String> {
        let line: Line<'a> = serde_json::from_slice(line).map_err(|e| format!("cannot read a frame: {e}"))?;
        let object = line.object.get();
        if line.r#type == Change::Error {
            let status: kube::core::Status =
                serde_json::from_str(object).map_err(|e| format!("cannot read an error frame: {e}"))?;
            let seconds = status.details.as_ref().map_or(0, |d| d.retry_after_seconds);
            let retry_after = (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)));
            return Ok(Self::Error { code: status.code, message: status.message, retry_after });
        }
        let versioned: Versioned =
            serde_json::from_str(object).map_err(|e| format!("a frame's object has no metadata: {e}"))?;
        let revision = versioned.metadata.resource_version;
        Ok(if line.r#type == Change::Bookmark {
            Self::Bookmark { revision }
        } else {
            Self::Object { kind: line.r#type, object, revision }
        })
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use http_body::Frame as BodyFrame;
    use http_body_util::StreamBody;

    use super::*;
    use crate::Room;

    async fn body(chunks: Vec<&'static str>) -> Body {
        let chunks = chunks.into_iter().map(|c| Ok::<_, std::io::Error>(BodyFrame::data(Bytes::from(c))));
        crate::watch::tests::wrap_body(StreamBody::new(stream::iter(chunks))).await
    }

    #[tokio::test]
    async fn lines_are_cut_wherever_chunks_end() {
        let mut frames =
            Frames::new(body(vec!["{\"a\"", ":1}\n{\"b\":2}\n\n", "\r\n", "{\"c\"", ":3}", "\nrest"]).await);
        let mut lines = Vec::new();
        while let Some(line) = frames.next().await.unwrap() {
            lines.push(String::from_utf8(line.to_vec()).unwrap());
        }
        assert_eq!(lines, [r#"{"a":1}"#, r#"{"b":2}"#, r#"{"c":3}"#]);
    }

    #[tokio::test]
    async fn a_line_without_end_is_refused() {
        let mut frames = Frames::new(body(vec!["xxxxxxxxxx"; 20]).await);
        frames.limit = 100;
        assert!(matches!(frames.next().await, Err(FrameError::TooLong { limit: 100 })));
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_line_waits_for_room_and_not_for_ever() {
        let long: &str = Box::leak("x".repeat(1 << 20).into_boxed_str());
        let room = Room::new(1 << 20, 0);
        let corner = room.corner(1 << 20, 0);
        // What one may have beyond it all, and all there is.
        let mut others = [Taken::of(Some(&corner)), Taken::of(Some(&corner))];
        for (other, bytes) in others.iter_mut().zip([2 << 20, 1 << 20]) {
            other.grow_to(bytes).await;
        }
        let begun = Instant::now();
        let mut frames = Frames::new(body(vec![long, "\n"]).await).taking(Taken::of(Some(&corner)));
        // It is one wait, however often it is asked.
        let mut answer = None;
        for _ in 0..20 {
            answer = tokio::time::timeout(Duration::from_secs(3), frames.next()).await.ok();
            if answer.is_some() {
                break;
            }
        }
        assert!(matches!(answer, Some(Err(FrameError::NoRoom))), "{answer:?}");
        assert_eq!(begun.elapsed().as_secs(), WAIT.as_secs());
        drop(others);
        let mut frames = Frames::new(body(vec![long, "\n"]).await).taking(Taken::of(Some(&corner)));
        assert_eq!(frames.next().await.unwrap().map(|line| line.len()), Some(1 << 20));
    }

    #[test]
    fn frames_are_read() {
        let object =
            Frame::parse(br#"{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"7"}}}"#);
        assert!(
            matches!(object, Ok(Frame::Object { kind: Change::Added, ref revision, .. }) if revision == "7")
        );
        let bookmark = Frame::parse(
            br#"{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"9"}}}"#,
        );
        assert!(matches!(bookmark, Ok(Frame::Bookmark { ref revision }) if revision == "9"));
        let error =
            Frame::parse(br#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}"#);
        assert!(matches!(error, Ok(Frame::Error { code: 410, .. })));
    }

    #[test]
    fn garbage_is_an_error_that_names_itself() {
        for line in [
            "",
            "{",
            "null",
            "[]",
            r#"{"type":"ADDED"}"#,
            r#"{"type":"NEW","object":{}}"#,
            r#"{"type":"ADDED","object":{}}"#,
        ] {
            assert!(Frame::parse(line.as_bytes()).is_err(), "{line:?} was taken");
        }
    }
}
