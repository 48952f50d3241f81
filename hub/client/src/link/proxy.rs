//! Proxies: how a connection is made through one, and which one is meant.

use std::{fmt, io};

use base64::{Engine, prelude::BASE64_STANDARD};
use futures::{FutureExt, future::BoxFuture};
use http::{HeaderName, HeaderValue, Uri};
use hyper_util::{client::legacy::connect::proxy::SocksV5, rt::TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tower::{Service, service_fn};

use super::{
    Io,
    dial::{Dial, PORTAL},
};

/// The longest answer to CONNECT that is read.
const LONGEST_ANSWER: usize = 16 << 10;

/// A proxy that makes connections for others: `http://[USER:PASSWORD@]HOST[:PORT]`, or `socks5://…`. Either looks the
/// server's name up itself, as with Go's programs; `socks5h` says the same.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    speaks: Speaks,
    host: String,
    port: u16,
    /// User and password.
    login: Option<(String, String)>,
    /// Said with CONNECT.
    headers: Vec<(String, String)>,
    url: String,
}

/// How a proxy is told where to connect to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Speaks {
    /// CONNECT.
    Http,
    /// RFC 1928, with names, and RFC 1929 for user and password.
    Socks5,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the password.
        write!(f, "Proxy({}:{})", self.host, self.port)
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Proxy {
    /// Reads a proxy's URL; without a scheme it is http.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(url: &str) -> Result<Self, String> {
        // A password must not come into a log.
        let shown = url.rsplit_once('@').map_or_else(|| url.to_owned(), |(_, host)| format!("…@{host}"));
        let full = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let uri: Uri = full.parse().map_err(|error| format!("{shown:?} is not a URL: {error}"))?;
        let (speaks, usual) = match uri.scheme_str() {
            Some("http") => (Speaks::Http, 80),
            Some("socks5" | "socks5h") => (Speaks::Socks5, 1080),
            _ => return Err(format!("{shown:?}: only http:// and socks5:// proxies are supported")),
        };
        let host = bare(uri.host().unwrap_or_default());
        if host.is_empty() {
            return Err(format!("{shown:?} names no host"));
        }
        let user =
            uri.authority().and_then(|authority| authority.as_str().rsplit_once('@')).map(|(user, _)| user);
        let login = user.map(|user| {
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            let text = |part| {
                String::from_utf8(decoded(part))
                    .map_err(|_| format!("{shown:?}: user or password is no UTF-8"))
            };
            Ok::<_, String>((text(name)?, text(password)?))
        });
        let login = login.transpose()?;
        // What the protocol has room for.
        let is_long = |(user, password): &(String, String)| user.len() > 255 || password.len() > 255;
        if speaks == Speaks::Socks5 && login.as_ref().is_some_and(is_long) {
            return Err(format!("{shown:?}: user and password of a SOCKS proxy have 255 bytes at most"));
        }
        let port = uri.port_u16().unwrap_or(usual);
        Ok(Self { speaks, host: host.to_owned(), port, login, headers: Vec::new(), url: full })
    }

    /// The proxy that the environment names for a server, by the rules of Go's programs: `HTTPS_PROXY`, but for what is in
    /// `NO_PROXY`, in upper or lower case, and never for this machine itself.
    ///
    /// # Errors
    /// When the variable names none that can be used.
    pub fn of_environment(
        server: &Uri,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, String> {
        let either = |name: &str| {
            let lower = name.to_lowercase();
            [name, &lower].into_iter().find_map(|name| variable(name).filter(|value| !value.is_empty()))
        };
        let host = bare(server.host().unwrap_or_default()).to_lowercase();
        let port = server.port_u16().unwrap_or(443);
        if server.scheme_str() != Some("https")
            || is_excepted(&host, port, &either("NO_PROXY").unwrap_or_default())
        {
            return Ok(None);
        }
        let Some(url) = either("HTTPS_PROXY") else { return Ok(None) };
        Self::parse(&url).map(Some).map_err(|problem| format!("HTTPS_PROXY: {problem}"))
    }

    /// The same, told these headers with each CONNECT.
    ///
    /// # Errors
    /// Names the one that is none.
    pub fn with_headers(
        mut self,
        headers: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, String> {
        for (name, value) in headers {
            if HeaderName::try_from(&name).is_err() || HeaderValue::try_from(&value).is_err() {
                return Err(format!("{name:?} with its value is no header"));
            }
            self.headers.push((name, value));
        }
        Ok(self)
    }

    /// Its URL as it was given, password included.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The name or address of the proxy itself.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// An address without the brackets of IPv6.
fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Percent-encoded text as it is meant.
fn decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if bytes[at] == b'%' => {
                out.push(byte);
                at += 3;
            }
            _ => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    out
}

/// Whether a host is reached without a proxy.
fn is_excepted(host: &str, port: u16, exceptions: &str) -> bool {
    let address = host.parse::<std::net::IpAddr>().ok();
    if host == "localhost" || address.is_some_and(|address| address.to_canonical().is_loopback()) {
        return true;
    }
    exceptions.split(',').map(str::trim).filter(|one| !one.is_empty()).any(|one| {
        if one == "*" {
            return true;
        }
        if let (Some(address), Some((network, bits))) = (address, one.split_once('/')) {
            return is_within(address, network, bits);
        }
        let (name, of_port) = match one.rsplit_once(':') {
            Some((name, digits)) if !name.contains(':') || name.ends_with(']') => (name, digits.parse().ok()),
            _ => (one, None),
        };
        if of_port.is_some_and(|of_port: u16| of_port != port) {
            return false;
        }
        let name = bare(name).to_lowercase();
        let name = name.strip_prefix('*').unwrap_or(&name);
        match name.strip_prefix('.') {
            Some(_) => host.ends_with(name),
            None => host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.')),
        }
    })
}

/// Whether an address is of a network.
fn is_within(address: std::net::IpAddr, network: &str, bits: &str) -> bool {
    use std::net::IpAddr::{V4, V6};
    let (Ok(network), Ok(bits)) = (network.parse(), bits.parse::<u32>()) else { return false };
    let (one, other, width) = match (address, network) {
        (V4(one), V4(other)) => (u128::from(one.to_bits()), u128::from(other.to_bits()), 32),
        (V6(one), V6(other)) => (one.to_bits(), other.to_bits(), 128),
        _ => return false,
    };
    bits <= width && (bits == 0 || (one ^ other) >> (width - bits) == 0)
}

/// Dials a host through a proxy.
pub(super) struct Through<D> {
    /// To the proxy.
    pub(super) dialer: D,
    pub(super) proxy: Proxy,
    /// `HOST:PORT` of the server, which the proxy looks up.
    pub(super) server: String,
}

impl<D: Dial> Dial for Through<D> {
    fn dial(&self) -> BoxFuture<'static, io::Result<(Box<dyn Io>, String)>> {
        let (dialing, proxy, server) = (self.dialer.dial(), self.proxy.clone(), self.server.clone());
        Box::pin(async move {
            let of_proxy =
                |error: io::Error| io::Error::new(error.kind(), format!("the proxy {proxy}: {error}"));
            let (mut io, peer) = dialing.await.map_err(of_proxy)?;
            match proxy.speaks {
                Speaks::Http => connect(&mut io, &proxy, &server).await.map_err(of_proxy)?,
                Speaks::Socks5 => io = socks(io, &proxy, &server).await.map_err(of_proxy)?,
            }
            Ok((io, format!("{server} through the proxy {peer}")))
        })
    }
}

/// Asks a SOCKS proxy for a connection. It may lose what a server says before it is spoken to; ours do not.
fn socks(io: Box<dyn Io>, proxy: &Proxy, server: &str) -> BoxFuture<'static, io::Result<Box<dyn Io>>> {
    let to: Uri = match server.parse() {
        Ok(to) => to,
        Err(error) => return Box::pin(std::future::ready(Err(io::Error::other(error)))),
    };
    let mut io = Some(TokioIo::new(io));
    let there = service_fn(move |_: Uri| {
        std::future::ready(io.take().ok_or_else(|| io::Error::other("it is asked once")))
    });
    let mut through = SocksV5::new(Uri::from_static("proxy"), there);
    if let Some((user, password)) = &proxy.login {
        through = through.with_auth(user.clone(), password.clone());
    }
    let (connecting, server) = (through.call(to), server.to_owned());
    Box::pin(connecting.map(move |connected| {
        let refusal = |error: String| {
            let why = error.strip_prefix("SOCKS error: ").unwrap_or(&error);
            io::Error::other(format!("it does not connect to {server}: {why}"))
        };
        Ok(connected.map_err(|error| refusal(error.to_string()))?.into_inner())
    }))
}

async fn connect(io: &mut Box<dyn Io>, proxy: &Proxy, server: &str) -> io::Result<()> {
    let mut request = format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n");
    if let Some((user, password)) = &proxy.login {
        let authorization = BASE64_STANDARD.encode(format!("{user}:{password}"));
        request.push_str(&format!("Proxy-Authorization: Basic {authorization}\r\n"));
    }
    for (name, value) in &proxy.headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    io.write_all(request.as_bytes()).await?;
    io.flush().await?;
    // Byte by byte: what comes behind the headers is the server's already.
    let mut answer = Vec::with_capacity(256);
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() == LONGEST_ANSWER {
            return Err(io::Error::other("its answer to CONNECT does not end"));
        }
        answer.push(io.read_u8().await.map_err(|_| io::Error::other("it ended the connection"))?);
    }
    let line =
        String::from_utf8_lossy(answer.split(|byte| *byte == b'\r').next().unwrap_or_default()).into_owned();
    match line.split(' ').nth(1).unwrap_or_default() {
        code if code.len() == 3 && code.starts_with('2') => Ok(()),
        "407" => Err(io::Error::other("it wants a user and password: http://USER:PASSWORD@HOST:PORT")),
        code if code == "511" || code.len() == 3 && code.starts_with('3') => Err(io::Error::new(
            PORTAL,
            format!(
                "it is a portal where somebody is to log in: {}",
                line.chars().take(100).collect::<String>()
            ),
        )),
        _ => Err(io::Error::other(format!(
            "it does not connect to {server}: {}",
            line.chars().take(100).collect::<String>()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    #[test]
    fn proxies_are_read_and_their_passwords_kept() {
        let rows = [
            ("http://p", Ok(("p", 80, None))),
            ("p:3128", Ok(("p", 3128, None))),
            ("http://u:p%40ss@[::1]:8080", Ok(("::1", 8080, Some(("u", "p@ss"))))),
            ("http://u@p", Ok(("p", 80, Some(("u", ""))))),
            ("socks5://p", Ok(("p", 1080, None))),
            ("socks5h://u:p%3Ass@p:9", Ok(("p", 9, Some(("u", "p:ss"))))),
            ("https://p", Err("\"https://p\": only http:// and socks5:// proxies")),
            ("http://u:%ff@p", Err("\"…@p\": user or password is no UTF-8")),
            ("http://u:secret@", Err("\"…@\" is not a URL")),
        ];
        for (url, want) in rows {
            match (Proxy::parse(url), want) {
                (Ok(proxy), Ok((host, port, login))) => {
                    assert_eq!((proxy.host(), proxy.port()), (host, port), "{url}");
                    let got = proxy.login.as_ref().map(|(user, password)| (user.as_str(), password.as_str()));
                    assert_eq!(got, login, "{url}");
                    assert!(!format!("{proxy:?}{proxy}").contains("p@ss"));
                }
                (Err(error), Err(want)) => assert!(error.starts_with(want), "{url}: {error}"),
                (got, want) => panic!("{url}: {got:?} {want:?}"),
            }
        }
    }

    #[test]
    fn the_environment_names_proxies_as_for_go() {
        // server, NO_PROXY, whether there is a proxy
        let rows = [
            ("https://hub.example.com:6443", "", true),
            ("http://hub.example.com", "", false),
            ("https://localhost:1", "", false),
            ("https://127.0.0.2:1", "", false),
            ("https://[::1]:1", "", false),
            ("https://hub.example.com", "*", false),
            ("https://hub.example.com", "example.com", false),
            ("https://hub.example.com", ".example.com", false),
            ("https://hub.example.com", "*.example.com", false),
            ("https://notexample.com", "example.com", true),
            ("https://hub.example.com:6443", "hub.example.com:6443", false),
            ("https://hub.example.com:6443", "hub.example.com:443", true),
            ("https://10.1.2.3", "10.0.0.0/8, x", false),
            ("https://11.1.2.3", "10.0.0.0/8", true),
            ("https://11.1.2.3", "0.0.0.0/0", false),
            ("https://[fd00::1]", "fd00::/8", false),
            ("https://10.1.2.3", "10.1.2.3", false),
        ];
        for (server, no_proxy, want) in rows {
            let variable = |name: &str| match name {
                "https_proxy" => Some("http://p:3128".to_owned()),
                "NO_PROXY" => Some(no_proxy.to_owned()),
                _ => None,
            };
            let got = Proxy::of_environment(&server.parse().unwrap(), variable).unwrap();
            assert_eq!(got.is_some(), want, "{server} {no_proxy:?}");
        }
        let wrong = |_: &str| Some("ftp://p".to_owned());
        assert!(Proxy::of_environment(&"https://11.1.1.1".parse().unwrap(), wrong).is_err());
    }

    #[tokio::test]
    async fn a_proxy_connects_or_says_why_not() {
        // What the proxy answers, and what comes of it.
        let rows = [
            ("HTTP/1.1 200 Connection established\r\nX: y\r\n\r\nhello", Ok(())),
            ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", Err("it wants a user and password")),
            ("HTTP/1.1 403 Forbidden\r\n\r\n", Err("it does not connect to hub:443: HTTP/1.1 403 Forbidden")),
            ("HTTP/1.1 200", Err("it ended the connection")),
            ("nonsense\r\n\r\n", Err("it does not connect to hub:443: nonsense")),
            (
                "HTTP/1.1 302 Found\r\nLocation: http://login/\r\n\r\n",
                Err("it is a portal where somebody is to log in"),
            ),
        ];
        for (answer, want) in rows {
            let (ours, mut theirs) = duplex(64 << 10);
            let server = tokio::spawn(async move {
                let mut seen = Vec::new();
                while !seen.ends_with(b"\r\n\r\n") {
                    seen.push(theirs.read_u8().await.unwrap());
                }
                theirs.write_all(answer.as_bytes()).await.unwrap();
                String::from_utf8(seen).unwrap()
            });
            let mut io: Box<dyn Io> = Box::new(ours);
            let got = connect(&mut io, &Proxy::parse("u:p@proxy").unwrap(), "hub:443").await;
            let seen = server.await.unwrap();
            assert!(seen.starts_with("CONNECT hub:443 HTTP/1.1\r\nHost: hub:443\r\n"), "{seen}");
            assert!(seen.contains("Proxy-Authorization: Basic dTpw\r\n"), "{seen}");
            match (got, want) {
                (Ok(()), Ok(())) => {
                    let mut rest = String::new();
                    io.read_to_string(&mut rest).await.unwrap();
                    assert_eq!(rest, "hello", "what is the server's stays");
                }
                (Err(error), Err(want)) => assert!(error.to_string().starts_with(want), "{error}"),
                (got, want) => panic!("{answer}: {got:?} {want:?}"),
            }
        }
    }
    #[tokio::test]
    async fn a_socks_proxy_connects_or_says_why_not() {
        const GREETING: &[u8] = b"\x05\x01\x00";
        const LOGIN: &[u8] = b"\x05\x01\x02";
        const USER: &[u8] = b"\x01\x01u\x01p";
        const TO: &[u8] = b"\x05\x01\x00\x03\x03hub\x01\xbb";
        const THERE: &[u8] = b"\x05\x00\x00\x01\x0a\x00\x00\x01\x12\x34";
        // The proxy; what it reads and answers in turn; what comes of it.
        type Talk = &'static [(&'static [u8], &'static [u8])];
        let rows: [(&str, Talk, _); 6] = [
            ("socks5://proxy", &[(GREETING, b"\x05\x00"), (TO, THERE)], Ok(())),
            ("socks5h://u:p@proxy", &[(LOGIN, b"\x05\x02"), (USER, b"\x01\x00"), (TO, THERE)], Ok(())),
            (
                "socks5://u:p@proxy",
                &[(LOGIN, b"\x05\x02"), (USER, b"\x01\x01")],
                Err("it does not connect to hub:443: credentials not accepted"),
            ),
            (
                "socks5://proxy",
                &[(GREETING, b"\x05\xff")],
                Err("it does not connect to hub:443: server does not support user/pass authentication"),
            ),
            (
                "socks5://proxy",
                &[(GREETING, b"\x05\x00"), (TO, b"\x05\x05\x00\x01\x00\x00\x00\x00\x00\x00")],
                Err("it does not connect to hub:443: "),
            ),
            (
                "socks5://proxy",
                &[(GREETING, b"HTTP/1.1 400 Bad Request")],
                Err("it does not connect to hub:443: failed parsing server response"),
            ),
        ];
        for (url, talk, want) in rows {
            let (ours, mut theirs) = duplex(64 << 10);
            let proxy = tokio::spawn(async move {
                for (reads, answers) in talk {
                    let mut seen = vec![0; reads.len()];
                    theirs.read_exact(&mut seen).await.unwrap();
                    assert_eq!(seen, *reads);
                    theirs.write_all(answers).await.unwrap();
                }
                if want.is_ok() {
                    assert_eq!(theirs.read_u8().await.unwrap(), b'?');
                    theirs.write_all(b"hello").await.unwrap();
                }
            });
            let io: Box<dyn Io> = Box::new(ours);
            let got = socks(io, &Proxy::parse(url).unwrap(), "hub:443").await;
            match (got, want) {
                (Ok(mut io), Ok(())) => {
                    io.write_all(b"?").await.unwrap();
                    let mut rest = String::new();
                    io.read_to_string(&mut rest).await.unwrap();
                    assert_eq!(rest, "hello");
                }
                (Err(error), Err(want)) => assert!(error.to_string().starts_with(want), "{error}"),
                (got, want) => panic!("{url}: {:?} {want:?}", got.map(|_| ())),
            }
            proxy.await.unwrap();
        }
    }
}
