//! URLs, addresses and ranges of addresses.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// A URL that is absolute, or a path from the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) scheme: String,
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) query: String,
}

impl Url {
    /// As Go's `url.ParseRequestURI`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.is_empty() || text.chars().any(|c| c.is_control() || c == ' ') {
            return None;
        }
        let (rest, query) = text.split_once('?').map_or((text, ""), |(r, q)| (r, q));
        let scheme = rest.split_once(':').filter(|(scheme, _)| {
            scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
        });
        let (scheme, rest) = scheme.map_or(("", rest), |(scheme, rest)| (scheme, rest));
        if scheme.is_empty() && !rest.starts_with('/') {
            return None;
        }
        let (host, path) = match rest.strip_prefix("//") {
            Some(rest) if !scheme.is_empty() || !rest.starts_with('/') => {
                let end = rest.find('/').unwrap_or(rest.len());
                (&rest[..end], &rest[end..])
            }
            _ if rest.starts_with('/') => ("", rest),
            // mailto:someone
            _ if !scheme.is_empty() => ("", ""),
            _ => return None,
        };
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        let port = host.rsplit_once(':').filter(|(name, _)| !name.contains(':') || name.ends_with(']'));
        if port.is_some_and(|(_, port)| !port.bytes().all(|b| b.is_ascii_digit())) {
            return None;
        }
        if host.starts_with('[') && !host.contains(']') || bad_escape(path) || bad_escape(host) {
            return None;
        }
        Some(Self {
            scheme: scheme.to_ascii_lowercase(),
            host: host.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
        })
    }

    pub(crate) fn name_and_port(&self) -> (&str, &str) {
        if let Some((name, rest)) = self.host.strip_prefix('[').and_then(|h| h.split_once(']')) {
            return (name, rest.strip_prefix(':').unwrap_or_default());
        }
        self.host.split_once(':').unwrap_or((&self.host, ""))
    }
}

fn bad_escape(text: &str) -> bool {
    text.split('%').skip(1).any(|part| part.len() < 2 || !part.bytes().take(2).all(|b| b.is_ascii_hexdigit()))
}

pub(crate) fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut i) = (Vec::with_capacity(bytes.len()), 0);
    while i < bytes.len() {
        let code = || u8::from_str_radix(text.get(i + 1..i + 3)?, 16).ok();
        match (bytes[i], if bytes[i] == b'%' { code() } else { None }) {
            (_, Some(byte)) => {
                out.push(byte);
                i += 2;
            }
            (b'+', _) => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        i += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cidr {
    pub(crate) base: IpAddr,
    pub(crate) prefix: u8,
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

/// An address; no zones, no IPv4 dressed up as IPv6.
pub(crate) fn ip(text: &str) -> Result<IpAddr, String> {
    let parsed: IpAddr = text.parse().map_err(|_| {
        format!("IP Address {text:?} parse error during conversion from string: ParseAddr({text:?}): unable to parse IP")
    })?;
    match parsed {
        IpAddr::V6(six) if six.to_ipv4_mapped().is_some() => {
            Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed"))
        }
        other => Ok(other),
    }
}

pub(crate) fn cidr(text: &str) -> Result<Cidr, String> {
    let bad = || {
        format!(
            "network address parse error during conversion from string: netip.ParsePrefix({text:?}): no '/'"
        )
    };
    let (base, prefix) = text.split_once('/').ok_or_else(bad)?;
    let base = ip(base)?;
    let most = if base.is_ipv4() { 32 } else { 128 };
    let plain = prefix == "0" || !prefix.starts_with(['0', '+']);
    let prefix = prefix.parse().ok().filter(|n| *n <= most && plain).ok_or_else(bad)?;
    Ok(Cidr { base, prefix })
}

impl Cidr {
    pub(crate) fn masked(self) -> Self {
        let base = match self.base {
            IpAddr::V4(four) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from(u32::from(four) & mask))
            }
            IpAddr::V6(six) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from(u128::from(six) & mask))
            }
        };
        Self { base, ..self }
    }

    pub(crate) fn contains(self, ip: IpAddr) -> bool {
        self.base.is_ipv4() == ip.is_ipv4()
            && Self { base: ip, prefix: self.prefix }.masked().base == self.masked().base
    }
}

pub(crate) fn within(range: Cidr, other: Cidr) -> bool {
    range.prefix <= other.prefix && range.contains(other.masked().base)
}

pub(crate) fn link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six.is_unicast_link_local(),
    }
}

pub(crate) fn link_local_multicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(four) => four.octets()[..3] == [224, 0, 0],
        IpAddr::V6(six) => six.segments()[0] & 0xff0f == 0xff02,
    }
}
