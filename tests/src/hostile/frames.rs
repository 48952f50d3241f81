//! HTTP/2 by hand, for what no library says: streams that are reset as they open, headers without an end, windows that
//! never open.

use std::io;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split},
    net::TcpStream,
    task::JoinHandle,
};
use tokio_rustls::client::TlsStream;

use super::client::Identity;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Largest payload that every peer takes.
const FRAME: usize = 16_384;

/// Types of frames.
pub mod kind {
    /// A request's headers.
    pub const HEADERS: u8 = 1;
    /// The end of a stream, in anger.
    pub const RST_STREAM: u8 = 3;
    /// What is agreed upon.
    pub const SETTINGS: u8 = 4;
    /// Are you there?
    pub const PING: u8 = 6;
    /// More headers.
    pub const CONTINUATION: u8 = 9;
}

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const CANCEL: [u8; 4] = [0, 0, 0, 8];
/// SETTINGS_INITIAL_WINDOW_SIZE.
const WINDOW: [u8; 2] = [0, 4];

/// A connection that says what it is told to, and reads answers only to forget them, or not at all.
#[derive(Debug)]
pub struct Raw {
    out: WriteHalf<TlsStream<TcpStream>>,
    buffer: Vec<u8>,
    next: u32,
    reading: Option<JoinHandle<()>>,
    // Kept open by those who read nothing.
    _unread: Option<ReadHalf<TlsStream<TcpStream>>>,
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(reading) = &self.reading {
            reading.abort();
        }
    }
}

impl Raw {
    /// Dials. `window` is how much the server may send on a stream; with 0 nothing is read either.
    ///
    /// # Errors
    /// When there is no connection.
    pub async fn open(who: &Identity, window: u32) -> io::Result<Self> {
        let (mut input, out) = split(who.dial("h2").await?);
        let mut raw = Self { out, buffer: PREFACE.to_vec(), next: 1, reading: None, _unread: None };
        let settings = [&WINDOW[..], &window.to_be_bytes()].concat();
        raw.frame(kind::SETTINGS, 0, 0, &settings);
        if window == 0 {
            raw._unread = Some(input);
        } else {
            raw.reading = Some(tokio::spawn(async move {
                let mut buffer = vec![0; 64 << 10];
                while !matches!(input.read(&mut buffer).await, Ok(0) | Err(_)) {}
            }));
        }
        raw.flush().await?;
        Ok(raw)
    }

    /// Whether the server has ended it; those who read nothing do not know.
    pub fn is_over(&self) -> bool {
        self.reading.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// One frame, in the buffer.
    pub fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        debug_assert!(payload.len() <= FRAME);
        let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
        self.buffer.extend_from_slice(&length[1..]);
        self.buffer.extend_from_slice(&[kind, flags]);
        self.buffer.extend_from_slice(&stream.to_be_bytes());
        self.buffer.extend_from_slice(payload);
    }

    /// A request without a body, in the buffer. Answers its stream.
    pub fn request(&mut self, method: &str, path: &str) -> u32 {
        let stream = self.stream();
        let block = block(method, path, &[]);
        self.frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &block);
        stream
    }

    /// The end of a stream, in the buffer.
    pub fn reset(&mut self, stream: u32) {
        self.frame(kind::RST_STREAM, 0, stream, &CANCEL);
    }

    /// The beginning of headers that go on, in the buffer. Answers their stream.
    pub fn endless(&mut self, method: &str, path: &str) -> u32 {
        let stream = self.stream();
        let block = block(method, path, &[]);
        self.frame(kind::HEADERS, END_STREAM, stream, &block);
        stream
    }

    /// More of such headers, in the buffer.
    pub fn more(&mut self, stream: u32, number: u64) {
        let mut block = Vec::new();
        literal(&mut block, &format!("x-{number}"), &"v".repeat(FRAME - 64));
        self.frame(kind::CONTINUATION, 0, stream, &block);
    }

    fn stream(&mut self) -> u32 {
        let stream = self.next;
        self.next += 2;
        stream
    }

    /// Sends what is in the buffer.
    ///
    /// # Errors
    /// When the connection has ended.
    pub async fn flush(&mut self) -> io::Result<()> {
        let sent = self.out.write_all(&self.buffer).await;
        self.buffer.clear();
        sent?;
        self.out.flush().await
    }
}

/// A header block, nothing of it compressed or remembered.
fn block(method: &str, path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    let pseudo = [(":method", method), (":scheme", "https"), (":authority", "localhost"), (":path", path)];
    for (name, value) in pseudo.iter().chain(headers) {
        literal(&mut block, name, value);
    }
    block
}

/// HPACK: a literal that is not indexed, with a name of its own.
fn literal(block: &mut Vec<u8>, name: &str, value: &str) {
    block.push(0);
    for text in [name, value] {
        let mut length = text.len();
        if length < 127 {
            block.push(u8::try_from(length).unwrap_or_default());
        } else {
            block.push(127);
            length -= 127;
            while length >= 128 {
                block.push(u8::try_from(length % 128).unwrap_or_default() | 128);
                length /= 128;
            }
            block.push(u8::try_from(length).unwrap_or_default());
        }
        block.extend_from_slice(text.as_bytes());
    }
}
