//! Text made small message by message, for streams that are idle most of the time: watches between a hub of ours and its agents.
//!
//! ```text
//!   message ── length as it was, seven bits a byte, the lowest first ── deflate (RFC 1951), to its last block
//!              deflate begins with a window: DICTIONARY, then the end of what was packed before
//! ```
//!
//! A compressor of the usual kind keeps some 300 KB for each stream, and a hub has as many streams as agents have watches.
//! Here what is kept between two messages is the last [`RECENT`] bytes of text, which is mostly what the next message repeats:
//! names, uids, the same object once more. What every Work, Cluster and workload has in it stands in the dictionary, over which a
//! compressor has gone once, to be copied for each message.
//!
//! kube-apiserver sends watches as they are, whatever a client accepts, and Go's clients accept gzip without being told to. So
//! this has a name of its own ([`CODING`]), which nobody asks for who cannot read it. Whoever changes the dictionary or how
//! it is used changes the name.
//!
//! A reader believes nothing: the length comes first and bounds what is made of the rest, a piece at a time.

use std::sync::LazyLock;

use flate2::{Decompress, FlushDecompress, Status};
use miniz_oxide::{
    DataFormat, MZFlush, MZStatus,
    deflate::{core::CompressorOxide, stream},
};

/// What `Accept-Encoding` and `Content-Encoding` call it.
pub const CODING: &str = "hub-pack-1";

/// How much of the text that was packed is remembered for what comes next.
pub const RECENT: usize = 4 << 10;

/// No message is longer than this before it is packed.
pub const LONGEST: usize = 8 << 20;

/// From here on quickly rather than well.
const FAST: usize = 64 << 10;

/// A reader hands on no more than this at a time.
const PIECE: usize = 64 << 10;

/// Text that messages are likely to repeat; what is likeliest stands last.
const DICTIONARY: &str = include_str!("pack.txt");

/// A compressor that has gone over the dictionary. To copy it takes a tenth of the time.
static PRIMED: LazyLock<CompressorOxide> = LazyLock::new(|| primed(WELL));

/// Levels of compression.
const WELL: u8 = 6;
const QUICKLY: u8 = 1;

fn primed(level: u8) -> CompressorOxide {
    let mut compressor = CompressorOxide::default();
    compressor.set_format_and_level(DataFormat::Raw, level);
    // What the window comes to is not sent: the reader has the text, and a flush ends with a byte.
    push(&mut compressor, DICTIONARY.as_bytes(), MZFlush::Sync, &mut Vec::new());
    compressor
}

/// Packs the messages of one stream.
#[derive(Debug, Default)]
pub struct Packer {
    recent: Recent,
}

/// What text comes before a message.
#[derive(Debug, Default)]
struct Recent(Vec<u8>);

impl Recent {
    fn window(&self) -> Vec<u8> {
        [DICTIONARY.as_bytes(), &self.0].concat()
    }

    fn add(&mut self, text: &[u8]) {
        let text = &text[text.len().saturating_sub(RECENT)..];
        let old = (self.0.len() + text.len()).saturating_sub(RECENT);
        self.0.drain(..old);
        self.0.extend_from_slice(text);
    }
}

impl Packer {
    /// The next text of the stream, as messages.
    pub fn pack(&mut self, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len() / 3 + 64);
        for text in text.chunks(LONGEST) {
            put_length(&mut out, text.len());
            deflate(&self.recent.0, text, &mut out);
            self.recent.add(text);
        }
        out
    }
}

fn put_length(out: &mut Vec<u8>, mut length: usize) {
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
}

/// Text as it is after what was packed recently.
fn deflate(recent: &[u8], text: &[u8], out: &mut Vec<u8>) {
    let mut compressor = if text.len() < FAST { PRIMED.clone() } else { primed(QUICKLY) };
    if !recent.is_empty() {
        push(&mut compressor, recent, MZFlush::Sync, &mut Vec::new());
    }
    push(&mut compressor, text, MZFlush::Finish, out);
}

/// Compresses some text to its end, and all that is left of what came before.
fn push(compressor: &mut CompressorOxide, text: &[u8], flush: MZFlush, out: &mut Vec<u8>) {
    let mut read = 0;
    loop {
        let (begin, room) = (out.len(), text.len() / 4 + 256);
        out.resize(begin + room, 0);
        let step = stream::deflate(compressor, &text[read..], &mut out[begin..], flush);
        out.truncate(begin + step.bytes_written);
        read += step.bytes_consumed;
        let is_done = match flush {
            MZFlush::Finish => step.status == Ok(MZStatus::StreamEnd),
            // Where there is room left, there was nothing more to write.
            _ => read == text.len() && step.bytes_written < room,
        };
        if is_done {
            return;
        }
    }
}

/// Why a stream cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// A message says that it is longer than any is.
    #[error("a message of the stream would have more than {LONGEST} bytes")]
    TooLong,
    /// It is not what it says it is.
    #[error("a message of the stream is not as long as it says")]
    Length,
    /// It is no deflate.
    #[error("a message of the stream cannot be inflated: {0}")]
    Deflate(#[from] flate2::DecompressError),
    /// The stream ended within a message.
    #[error("the stream ended in the middle of a message")]
    CutOff,
}

/// Reads what a [`Packer`] has packed, however the bytes come.
#[derive(Debug, Default)]
pub struct Unpacker {
    recent: Recent,
    /// What was not read yet begins at `at`.
    input: Vec<u8>,
    at: usize,
    open: Option<Open>,
}

/// A message of which some was read.
#[derive(Debug)]
struct Open {
    inflate: Decompress,
    /// How many bytes of text are still to come.
    left: usize,
}

impl Unpacker {
    /// Takes bytes of the stream in.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.input.drain(..self.at);
        self.at = 0;
        self.input.extend_from_slice(bytes);
    }

    /// The next piece of text, of 64 KiB at most; none before more bytes are fed.
    ///
    /// # Errors
    /// [`Unreadable`]; nothing more can be read then.
    pub fn read(&mut self) -> Result<Option<Vec<u8>>, Unreadable> {
        loop {
            let input = &self.input[self.at..];
            let Some(open) = &mut self.open else {
                let Some((length, bytes)) = length(input)? else {
                    if input.is_empty() {
                        // An idle stream keeps no more than it needs.
                        (self.input, self.at) = (Vec::new(), 0);
                    }
                    return Ok(None);
                };
                self.at += bytes;
                self.open = Some(Open::new(&self.recent, length)?);
                continue;
            };
            // Room for one byte too many, so that it is noticed.
            let mut text = Vec::with_capacity(PIECE.min(open.left + 1));
            let before = open.inflate.total_in();
            let status = open.inflate.decompress_vec(input, &mut text, FlushDecompress::None)?;
            let read = (open.inflate.total_in() - before) as usize;
            self.at += read;
            open.left = open.left.checked_sub(text.len()).ok_or(Unreadable::Length)?;
            let is_end = status == Status::StreamEnd;
            if is_end && open.left > 0 {
                return Err(Unreadable::Length);
            }
            if is_end {
                self.open = None;
            }
            self.recent.add(&text);
            if !text.is_empty() {
                return Ok(Some(text));
            }
            if read == 0 && !is_end {
                return Ok(None);
            }
        }
    }

    /// The stream is at its end.
    ///
    /// # Errors
    /// When that is in the middle of a message.
    pub fn end(&self) -> Result<(), Unreadable> {
        if self.open.is_some() || self.at < self.input.len() { Err(Unreadable::CutOff) } else { Ok(()) }
    }
}

impl Open {
    fn new(recent: &Recent, left: usize) -> Result<Self, Unreadable> {
        let window = recent.window();
        // A block that is stored brings the window in.
        let size = u16::try_from(window.len()).unwrap_or(u16::MAX);
        let [low, high] = size.to_le_bytes();
        let block = [&[0, low, high, !low, !high], &window[..]].concat();
        let mut inflate = Decompress::new(false);
        let mut out = Vec::with_capacity(window.len() + 1);
        inflate.decompress_vec(&block, &mut out, FlushDecompress::None)?;
        Ok(Self { inflate, left })
    }
}

/// The length at the beginning of a message, and how many bytes say it; none while it is not all there.
fn length(input: &[u8]) -> Result<Option<(usize, usize)>, Unreadable> {
    let mut length = 0;
    for (n, byte) in input.iter().enumerate() {
        if n > 3 {
            return Err(Unreadable::TooLong);
        }
        length |= usize::from(byte & 0x7f) << (7 * n);
        if byte & 0x80 == 0 {
            return if length > LONGEST { Err(Unreadable::TooLong) } else { Ok(Some((length, n + 1))) };
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sha2::{Digest as _, Sha256};

    use super::*;

    fn read_all(unpacker: &mut Unpacker) -> Result<Vec<u8>, Unreadable> {
        let mut text = Vec::new();
        while let Some(piece) = unpacker.read()? {
            assert!(piece.len() <= PIECE);
            text.extend_from_slice(&piece);
        }
        Ok(text)
    }

    fn work(n: u32) -> String {
        format!(
            r#"{{"type":"MODIFIED","object":{{"kind":"Work","apiVersion":"work.karmada.io/v1alpha1","metadata":{{"resourceVersion":"{n}","name":"c1-7cb7b8","namespace":"karmada-es-member1","uid":"7b7dfd0f-9c0e-4a39-8a0b-3c4b6f6f3a11"}},"spec":{{}}}}}}{}"#,
            '\n'
        )
    }

    #[test]
    fn the_dictionary_belongs_to_the_name() {
        let digest = Sha256::digest(DICTIONARY.as_bytes());
        let digest: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            (CODING, digest.as_str()),
            ("hub-pack-1", "47d4baba0d3c4bf3"),
            "another dictionary is another coding"
        );
        assert!(DICTIONARY.is_ascii() && DICTIONARY.len() + RECENT < 24 << 10, "{}", DICTIONARY.len());
    }

    #[test]
    fn what_comes_again_is_small() {
        let mut packer = Packer::default();
        let (first, second) = (packer.pack(work(7).as_bytes()).len(), packer.pack(work(8).as_bytes()).len());
        assert!(first < 90 && second < 25, "{first} and {second} of {} bytes", work(7).len());
        let mut unpacker = Unpacker::default();
        unpacker.feed(&Packer::default().pack(&[b'a'; 3 << 20]));
        assert_eq!(read_all(&mut unpacker).unwrap(), [b'a'; 3 << 20]);
        assert!(
            unpacker.input.capacity() == 0 && unpacker.recent.0.len() <= RECENT,
            "an idle stream keeps little"
        );
    }

    #[test]
    fn what_lies_is_not_read() {
        let packed = |length: usize, text: &[u8]| {
            let mut out = Vec::new();
            put_length(&mut out, length);
            deflate(b"", text, &mut out);
            out
        };
        // (what is fed, whether that is noticed before the end)
        let rows: [(&str, Vec<u8>, bool); 6] = [
            ("longer than it says", packed(10, &[b'x'; 1 << 20]), true),
            ("shorter than it says", packed(20, b"0123456789"), true),
            ("longer than any", packed(LONGEST + 1, b""), true),
            ("a length without end", vec![0xff; 9], true),
            ("no deflate", vec![5, 0xff, 0xff, 0xff], true),
            ("cut off", packed(10, b"0123456789")[..6].to_vec(), false),
        ];
        for (what, bytes, at_once) in rows {
            let mut unpacker = Unpacker::default();
            unpacker.feed(&bytes);
            let read = read_all(&mut unpacker);
            assert_eq!(read.is_err(), at_once, "{what}: {read:?}");
            assert!(at_once || unpacker.end().is_err(), "{what}");
        }
    }

    proptest! {
        #[test]
        fn what_is_packed_is_read_back(
            texts in prop::collection::vec(prop_oneof![
                "[a-z0-9\":{},]{0,300}".prop_map(String::into_bytes),
                prop::collection::vec(any::<u8>(), 0..9000),
                (0u32..9).prop_map(|n| work(n).into_bytes()),
            ], 0..8),
            steps in prop::collection::vec(1usize..4000, 1..6),
        ) {
            let mut packer = Packer::default();
            let packed: Vec<u8> = texts.iter().flat_map(|text| packer.pack(text)).collect();
            let (mut unpacker, mut read, mut rest) = (Unpacker::default(), Vec::new(), &packed[..]);
            for step in steps.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, others) = rest.split_at((*step).min(rest.len()));
                unpacker.feed(piece);
                read.extend(read_all(&mut unpacker).unwrap());
                rest = others;
            }
            unpacker.end().unwrap();
            prop_assert_eq!(read, texts.concat());
        }

        #[test]
        fn nothing_that_is_fed_is_taken_for_more_than_it_is(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let mut unpacker = Unpacker::default();
            unpacker.feed(&bytes);
            let _ = read_all(&mut unpacker);
            let _ = unpacker.end();
        }
    }
}
