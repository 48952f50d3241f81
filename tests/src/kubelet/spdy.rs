//! SPDY/3.1, as far as a kubelet speaks it: what clients fall back to where they get no WebSocket, and what kubectl's
//! port-forward puts into one.
//!
//! A client opens streams, and says by their headers what each is for. Headers are packed as one zlib stream for all of a
//! connection, over a dictionary that both ends know; what is answered has none of them, so it is packed by hand.

use std::{collections::HashMap, io, pin::pin, time::Duration};

use flate2::{Decompress, FlushDecompress};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    sync::mpsc,
    time::timeout,
};

use super::{BINARY, GOODBYE, PONG, RESIZE, STATUS, STDERR, STDIN, STDOUT, start};

/// A control frame of version 3.
const CONTROL: u16 = 0x8003;
/// What a control frame is.
const OPEN: u16 = 1;
const REPLY: u16 = 2;
const RESET: u16 = 3;
const PING: u16 = 6;
const AWAY: u16 = 7;
/// The flag of a stream's last frame.
const LAST: u8 = 1;
/// The longest frame that is taken, and the longest headers.
const LONGEST: usize = 1 << 20;
/// How many frames wait until they are written.
const FRAMES: usize = 16;
/// What zlib begins with, without a dictionary.
const ZLIB: [u8; 2] = [0x78, 0x01];
/// No headers, in a block that is stored, and an empty block, at which readers hand on what they have.
const NONE: [u8; 14] = [0, 4, 0, 0xfb, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
/// How long a client that has heard everything may take to go.
const GOES: Duration = Duration::from_secs(10);

/// What stands in the dictionary with its length before it.
const WORDS: &str = "options,head,post,put,delete,trace,accept,accept-charset,accept-encoding,accept-language,\
    accept-ranges,age,allow,authorization,cache-control,connection,content-base,content-encoding,content-language,\
    content-length,content-location,content-md5,content-range,content-type,date,etag,expect,expires,from,host,if-match,\
    if-modified-since,if-none-match,if-range,if-unmodified-since,last-modified,location,max-forwards,pragma,\
    proxy-authenticate,proxy-authorization,range,referer,retry-after,server,te,trailer,transfer-encoding,upgrade,\
    user-agent,vary,via,warning,www-authenticate,method,get,status,200 OK,version,HTTP/1.1,url,public,set-cookie,\
    keep-alive,origin";
/// And what follows without.
const TAIL: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505\
    203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden\
    404 Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept \
    Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,\
    application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8\
    charset=iso-8859-1,utf-,*,enq=0.";

fn dictionary() -> Vec<u8> {
    let mut all = Vec::new();
    for word in WORDS.split(',') {
        all.extend_from_slice(&(word.len() as u32).to_be_bytes());
        all.extend_from_slice(word.as_bytes());
    }
    all.extend_from_slice(TAIL.as_bytes());
    all
}

/// What a client does.
enum Heard {
    /// It opens a stream, with these headers.
    Opened(u32, HashMap<String, String>),
    /// It says something, perhaps for the last time on this stream.
    Data(u32, Vec<u8>, bool),
    /// It wants nothing more of a stream.
    Reset(u32),
    /// It asks whether anybody is there.
    Ping(Vec<u8>),
    /// It goes.
    Away,
}

/// The reading end of a connection.
struct Hearing<R> {
    from: R,
    inflate: Decompress,
    begun: bool,
}

impl<R: AsyncRead + Unpin> Hearing<R> {
    fn new(from: R) -> io::Result<Self> {
        // A block that is stored puts the dictionary where the packed text refers to it.
        let words = dictionary();
        let length = u16::try_from(words.len()).map_err(io::Error::other)?;
        let block =
            [&[0_u8][..], &length.to_le_bytes()[..], &(!length).to_le_bytes()[..], &words[..]].concat();
        let mut inflate = Decompress::new(false);
        inflated(&mut inflate, &block)?;
        Ok(Self { from, inflate, begun: false })
    }

    async fn next(&mut self) -> io::Result<Heard> {
        loop {
            let (head, rest) = (self.from.read_u32().await?, self.from.read_u32().await?);
            let (flags, length) = ((rest >> 24) as u8, (rest & 0x00ff_ffff) as usize);
            if length > LONGEST {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let mut body = vec![0; length];
            self.from.read_exact(&mut body).await?;
            if head & 0x8000_0000 == 0 {
                return Ok(Heard::Data(head, body, flags & LAST != 0));
            }
            match head as u16 {
                OPEN => {
                    let block = body.get(10..).ok_or(io::ErrorKind::UnexpectedEof)?;
                    // The first begins as zlib does: two bytes, and the sum of the dictionary.
                    let packed = if self.begun { Some(block) } else { block.get(6..) };
                    self.begun = true;
                    let text = inflated(&mut self.inflate, packed.ok_or(io::ErrorKind::UnexpectedEof)?)?;
                    let headers = headers(&text).ok_or(io::ErrorKind::InvalidData)?;
                    return Ok(Heard::Opened(stream(&body)?, headers));
                }
                RESET => return Ok(Heard::Reset(stream(&body)?)),
                PING => return Ok(Heard::Ping(body)),
                AWAY => return Ok(Heard::Away),
                _ => {}
            }
        }
    }
}

/// Of which stream a control frame is.
fn stream(body: &[u8]) -> io::Result<u32> {
    let (head, _) = body.split_first_chunk::<4>().ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(u32::from_be_bytes(*head) & 0x7fff_ffff)
}

fn inflated(inflate: &mut Decompress, mut bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let mut some = [0; 4 << 10];
        let (before_in, before_out) = (inflate.total_in(), inflate.total_out());
        inflate.decompress(bytes, &mut some, FlushDecompress::None).map_err(io::Error::other)?;
        let read = (inflate.total_in() - before_in) as usize;
        let made = (inflate.total_out() - before_out) as usize;
        bytes = &bytes[read..];
        all.extend_from_slice(&some[..made]);
        if bytes.is_empty() && made < some.len() {
            return Ok(all);
        }
        if all.len() > LONGEST || read == 0 && made == 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

/// Names and values, each with its length before it.
fn headers(text: &[u8]) -> Option<HashMap<String, String>> {
    fn number(rest: &mut &[u8]) -> Option<usize> {
        let (head, behind) = rest.split_first_chunk::<4>()?;
        *rest = behind;
        Some(u32::from_be_bytes(*head) as usize)
    }
    fn word(rest: &mut &[u8]) -> Option<String> {
        let length = number(rest)?;
        let (word, behind) = rest.split_at_checked(length)?;
        *rest = behind;
        String::from_utf8(word.to_vec()).ok()
    }
    let mut rest = text;
    let count = number(&mut rest)?;
    let mut all = HashMap::new();
    for _ in 0..count {
        let name = word(&mut rest)?;
        all.insert(name, word(&mut rest)?);
    }
    Some(all)
}

fn data(stream: u32, flags: u8, bytes: &[u8]) -> Vec<u8> {
    let rest = (u32::from(flags) << 24) | bytes.len() as u32;
    [&stream.to_be_bytes()[..], &rest.to_be_bytes()[..], bytes].concat()
}

fn control(kind: u16, body: &[u8]) -> Vec<u8> {
    let length = body.len() as u32;
    [&CONTROL.to_be_bytes()[..], &kind.to_be_bytes()[..], &length.to_be_bytes()[..], body].concat()
}

/// Agrees to streams. All headers that are sent are one text.
#[derive(Default)]
struct Replies {
    begun: bool,
}

impl Replies {
    fn to(&mut self, stream: u32) -> Vec<u8> {
        let begins: &[u8] = if self.begun { &[] } else { &ZLIB };
        self.begun = true;
        control(REPLY, &[&stream.to_be_bytes()[..], begins, &NONE[..]].concat())
    }
}

/// Forwards ports: for each connection a client opens a stream for its bytes, and one for what went wrong.
pub(super) async fn ports(io: impl AsyncRead + AsyncWrite) -> io::Result<()> {
    let (from, mut to) = tokio::io::split(io);
    let mut hearing = Hearing::new(from)?;
    let (say, mut said) = mpsc::channel::<Vec<u8>>(FRAMES);
    let hears = async {
        let mut replies = Replies::default();
        let mut pairs: HashMap<String, (Option<u32>, Option<u32>)> = HashMap::new();
        let mut open: HashMap<u32, mpsc::UnboundedSender<Vec<u8>>> = HashMap::new();
        loop {
            match hearing.next().await? {
                Heard::Opened(stream, headers) => {
                    let _ = say.send(replies.to(stream)).await;
                    let header = |name: &str| headers.get(name).map_or("", String::as_str);
                    let pair = pairs.entry(header("requestid").to_owned()).or_default();
                    match header("streamtype") {
                        "error" => pair.0 = Some(stream),
                        _ => pair.1 = Some(stream),
                    }
                    let (Some(errors), Some(bytes)) = *pair else { continue };
                    let port = header("port").parse::<u16>().map_err(io::Error::other)?;
                    let (input, taken) = mpsc::unbounded_channel();
                    open.insert(bytes, input);
                    tokio::spawn(connect(port, (bytes, errors), taken, say.clone()));
                }
                Heard::Data(stream, bytes, is_last) => {
                    // A port that reads slowly holds up no other.
                    if let Some(input) = open.get(&stream) {
                        let _ = input.send(bytes);
                    }
                    if is_last {
                        open.remove(&stream);
                    }
                }
                Heard::Reset(stream) => drop(open.remove(&stream)),
                Heard::Ping(id) => drop(say.send(control(PING, &id)).await),
                Heard::Away => return Ok::<(), io::Error>(()),
            }
        }
    };
    let speaks = async {
        while let Some(frame) = said.recv().await {
            to.write_all(&frame).await?;
            to.flush().await?;
        }
        Ok::<(), io::Error>(())
    };
    tokio::select! {
        ended = hears => ended,
        ended = speaks => ended,
    }
}

/// One connection to a port of this machine.
async fn connect(
    port: u16,
    (bytes, errors): (u32, u32),
    mut taken: mpsc::UnboundedReceiver<Vec<u8>>,
    say: mpsc::Sender<Vec<u8>>,
) {
    let io = match TcpStream::connect(("127.0.0.1", port)).await {
        Ok(io) => io,
        Err(error) => {
            let _ = say.send(data(errors, LAST, error.to_string().as_bytes())).await;
            let _ = say.send(data(bytes, LAST, &[])).await;
            return;
        }
    };
    let (mut read, mut write) = io.into_split();
    let writes = async {
        while let Some(some) = taken.recv().await {
            if write.write_all(&some).await.is_err() {
                return;
            }
        }
        let _ = write.shutdown().await;
    };
    let reads = async {
        let mut chunk = vec![0; 16 << 10];
        while let Ok(length @ 1..) = read.read(&mut chunk).await {
            if say.send(data(bytes, 0, &chunk[..length])).await.is_err() {
                return;
            }
        }
        for stream in [bytes, errors] {
            let _ = say.send(data(stream, LAST, &[])).await;
        }
    };
    tokio::join!(writes, reads);
}

/// Runs a command for a client that opens so many streams.
pub(super) async fn exec(
    io: impl AsyncRead + AsyncWrite,
    streams: usize,
    command: Vec<String>,
) -> io::Result<()> {
    let (from, mut to) = tokio::io::split(io);
    let (mut hearing, mut replies) = (Hearing::new(from)?, Replies::default());
    let mut channels: Vec<(u32, u8)> = Vec::new();
    while channels.len() < streams {
        let answer = match hearing.next().await? {
            Heard::Opened(stream, headers) => {
                let channel = match headers.get("streamtype").map(String::as_str) {
                    Some("stdin") => STDIN,
                    Some("stdout") => STDOUT,
                    Some("stderr") => STDERR,
                    Some("error") => STATUS,
                    Some("resize") => RESIZE,
                    _ => return Err(io::ErrorKind::InvalidData.into()),
                };
                channels.push((stream, channel));
                replies.to(stream)
            }
            Heard::Ping(id) => control(PING, &id),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        to.write_all(&answer).await?;
        to.flush().await?;
    }
    let (mut client, mut said, running) = start(command);
    let spoken = {
        let hears = async {
            while let Ok(heard) = hearing.next().await {
                match heard {
                    Heard::Data(stream, bytes, is_last) => {
                        let found = channels.iter().find(|(one, _)| *one == stream);
                        let Some(&(_, channel)) = found else { continue };
                        client.says(channel, &bytes).await;
                        if is_last && channel == STDIN {
                            client.ends();
                        }
                    }
                    Heard::Ping(id) => drop(client.say.send((PONG, id)).await),
                    Heard::Away => return,
                    Heard::Opened(..) | Heard::Reset(_) => {}
                }
            }
        };
        let speaks = async {
            while let Some((kind, message)) = said.recv().await {
                let frames: Vec<Vec<u8>> = match (kind, message.split_first()) {
                    (BINARY, Some((channel, bytes))) => {
                        let of = channels.iter().filter(|(_, one)| one == channel);
                        of.map(|(stream, _)| data(*stream, 0, bytes)).collect()
                    }
                    (PONG, _) => vec![control(PING, &message)],
                    _ => channels.iter().map(|(stream, _)| data(*stream, LAST, &[])).collect(),
                };
                to.write_all(&frames.concat()).await?;
                to.flush().await?;
                if kind == GOODBYE {
                    break;
                }
            }
            Ok::<(), io::Error>(())
        };
        let (mut hears, mut speaks) = (pin!(hears), pin!(speaks));
        let spoken = tokio::select! {
            spoken = &mut speaks => Some(spoken),
            () = &mut hears => None,
        };
        if spoken.is_some() {
            let _ = timeout(GOES, &mut hears).await;
        }
        spoken
    };
    drop((client, said));
    running.ends().await;
    spoken.unwrap_or(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dictionary_is_the_one_that_clients_have() {
        let (mut low, mut high) = (1_u32, 0_u32);
        for byte in dictionary() {
            low = (low + u32::from(byte)) % 65521;
            high = (high + low) % 65521;
        }
        // As it stands at the head of what they pack.
        assert_eq!((high << 16) | low, 0xe3c6_a7c2);
    }

    #[tokio::test]
    async fn what_a_client_has_packed_is_read() {
        let pairs = [("streamtype", "data"), ("port", "80"), ("requestid", "7")];
        let mut text = (pairs.len() as u32).to_be_bytes().to_vec();
        for word in pairs.into_iter().flat_map(|(name, value)| [name, value]) {
            text.extend_from_slice(&(word.len() as u32).to_be_bytes());
            text.extend_from_slice(word.as_bytes());
        }
        let length = text.len() as u16;
        let block =
            [&[0_u8][..], &length.to_le_bytes()[..], &(!length).to_le_bytes()[..], &text[..]].concat();
        let mut frames = Vec::new();
        for (stream, begins) in [(1_u32, &b"\x78\xf9\xe3\xc6\xa7\xc2"[..]), (3, &b""[..])] {
            let body = [&stream.to_be_bytes()[..], &[0_u8; 6][..], begins, &block[..]].concat();
            frames.extend_from_slice(&control(OPEN, &body));
        }
        frames.extend_from_slice(&data(3, LAST, b"bytes"));
        let mut hearing = Hearing::new(&frames[..]).expect("the dictionary is taken");
        for wanted in [1, 3] {
            let Ok(Heard::Opened(stream, headers)) = hearing.next().await else {
                panic!("{wanted} is opened")
            };
            assert_eq!((stream, headers.len()), (wanted, 3));
            assert!(pairs.iter().all(|(name, value)| headers[*name] == *value), "{headers:?}");
        }
        let heard = hearing.next().await;
        assert!(matches!(heard, Ok(Heard::Data(3, bytes, true)) if bytes == b"bytes"));
    }
}
