//! The formats of strings and numbers that are checked; others mean nothing, as in Kubernetes.

use std::net::{Ipv4Addr, Ipv6Addr};

use base64::{Engine, prelude::BASE64_STANDARD};

/// A checked `format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Integers of 32 bits.
    Int32,
    /// Integers of 64 bits.
    Int64,
    /// RFC 3339 time.
    DateTime,
    /// RFC 3339 date.
    Date,
    /// A time span as Go writes it (`1h30m`).
    Duration,
    /// Absolute URI, or an absolute path.
    Uri,
    /// Base64.
    Byte,
    /// IPv4 address.
    Ipv4,
    /// IPv6 address.
    Ipv6,
    /// Address and prefix length.
    Cidr,
    /// Host name.
    Hostname,
    /// E-mail address.
    Email,
    /// MAC address.
    Mac,
    /// UUID.
    Uuid,
}

const NAMES: &[(&str, Format)] = &[
    ("int32", Format::Int32),
    ("int64", Format::Int64),
    ("date-time", Format::DateTime),
    ("datetime", Format::DateTime),
    ("date", Format::Date),
    ("duration", Format::Duration),
    ("uri", Format::Uri),
    ("byte", Format::Byte),
    ("ipv4", Format::Ipv4),
    ("ipv6", Format::Ipv6),
    ("cidr", Format::Cidr),
    ("hostname", Format::Hostname),
    ("email", Format::Email),
    ("mac", Format::Mac),
    ("uuid", Format::Uuid),
];

impl Format {
    /// The format of that name, if it is checked.
    pub fn parse(name: &str) -> Option<Self> {
        NAMES.iter().find(|(n, _)| *n == name).map(|(_, format)| *format)
    }

    /// The name.
    pub fn as_str(self) -> &'static str {
        NAMES.iter().find(|(_, format)| *format == self).map_or("", |(name, _)| name)
    }

    /// Whether a string has this format. Formats of numbers let every string pass.
    pub fn accepts(self, text: &str) -> bool {
        match self {
            Self::Int32 | Self::Int64 => true,
            Self::DateTime => is_date_time(text),
            Self::Date => is_date(text),
            Self::Duration => is_duration(text),
            Self::Uri => is_uri(text),
            Self::Byte => !text.is_empty() && BASE64_STANDARD.decode(text).is_ok(),
            Self::Ipv4 => text.parse::<Ipv4Addr>().is_ok(),
            Self::Ipv6 => text.parse::<Ipv6Addr>().is_ok(),
            Self::Cidr => is_cidr(text),
            Self::Hostname => is_hostname(text),
            Self::Email => {
                text.split_once('@').is_some_and(|(user, host)| !user.is_empty() && is_hostname(host))
            }
            Self::Mac => is_mac(text),
            Self::Uuid => is_uuid(text),
        }
    }
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    text.get(10..11).is_some_and(|t| t.eq_ignore_ascii_case("t"))
        && text.parse::<jiff::Timestamp>().is_ok()
        // jiff also reads offsets without a colon and times without seconds.
        && text.get(16..17) == Some(":")
        && (text.ends_with(['Z', 'z']) || text.get(text.len().saturating_sub(3)..).is_some_and(|t| t.starts_with(':')))
}

/// A sequence of numbers with units, as `time.ParseDuration` reads it.
fn is_duration(text: &str) -> bool {
    let mut rest = text.trim_start_matches(['+', '-']);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (digits, tail) = rest.split_at(number);
        if !digits.bytes().any(|b| b.is_ascii_digit()) || digits.matches('.').count() > 1 {
            return false;
        }
        let Some(unit) = ["ns", "us", "µs", "ms", "s", "m", "h", "d", "w"].iter().find(|unit| {
            tail.strip_prefix(**unit)
                .is_some_and(|after| !after.starts_with(|c: char| c.is_ascii_alphabetic()))
        }) else {
            return false;
        };
        rest = &tail[unit.len()..];
    }
    true
}

/// What Go's `url.ParseRequestURI` takes: an absolute path, or a scheme and something behind it.
fn is_uri(text: &str) -> bool {
    if text.bytes().any(|b| b.is_ascii_control() || b == b' ') {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    text.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
    })
}

fn is_cidr(text: &str) -> bool {
    let Some((address, prefix)) = text.split_once('/') else { return false };
    let bits = match (address.parse::<Ipv4Addr>(), address.parse::<Ipv6Addr>()) {
        (Ok(_), _) => 32,
        (_, Ok(_)) => 128,
        _ => return false,
    };
    !prefix.is_empty()
        && prefix.len() <= 3
        && prefix.bytes().all(|b| b.is_ascii_digit())
        && prefix.parse::<u8>().is_ok_and(|n| n <= bits)
}

fn is_hostname(text: &str) -> bool {
    let label = |l: &str| {
        !l.is_empty()
            && l.len() <= 63
            && !l.starts_with('-')
            && !l.ends_with('-')
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    text.len() <= 253 && text.strip_suffix('.').unwrap_or(text).split('.').all(label)
}

fn is_mac(text: &str) -> bool {
    let separator = if text.contains('-') { '-' } else { ':' };
    let mut parts = 0;
    let all = text.split(separator).all(|part| {
        parts += 1;
        part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit())
    });
    all && matches!(parts, 6 | 8 | 20)
}

fn is_uuid(text: &str) -> bool {
    let hex: usize = text.bytes().filter(u8::is_ascii_hexdigit).count();
    hex == 32
        && (text.len() == 32
            || text.len() == 36 && [8, 13, 18, 23].iter().all(|&i| text.as_bytes()[i] == b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats() {
        let cases: [(&str, &[&str], &[&str]); 12] = [
            (
                "date-time",
                &["2026-01-02T03:04:05Z", "2026-01-02t03:04:05.5z", "2026-01-02T03:04:05+02:00"],
                &[
                    "yesterday",
                    "2026-01-02",
                    "2026-01-02 03:04:05Z",
                    "2026-13-02T03:04:05Z",
                    "2026-01-02T03:04:05",
                ],
            ),
            ("date", &["2026-01-02"], &["2026-1-2", "2026-02-30"]),
            ("duration", &["1h30m", "5s", "-1.5h", "0"], &["", "5", "h", "1x", "1.2.3s"]),
            ("uri", &["https://x/y", "/x", "a:b"], &[":", "x", "a b:c", ""]),
            ("byte", &["YQ==", "YWJj"], &["***", "YQ", ""]),
            ("ipv4", &["1.2.3.4"], &["300.1.1.1", "::1"]),
            ("ipv6", &["::1"], &["1.2.3.4"]),
            ("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33", "10.0.0.0/+1"]),
            ("hostname", &["a.b", "a"], &["a..b", "-a", "a_b"]),
            ("email", &["a@b.c"], &["a", "@b"]),
            ("mac", &["00:00:5e:00:53:01"], &["00:00", "zz:00:5e:00:53:01"]),
            (
                "uuid",
                &["123e4567-e89b-12d3-a456-426614174000"],
                &["123e4567", "123e4567e89b-12d3-a456-4266141740001"],
            ),
        ];
        for (name, good, bad) in cases {
            let format = Format::parse(name).unwrap();
            assert_eq!(format.as_str(), name);
            for text in good {
                assert!(format.accepts(text), "{name}: {text}");
            }
            for text in bad {
                assert!(!format.accepts(text), "{name}: {text}");
            }
        }
        assert_eq!(Format::parse("nonsense"), None);
    }
}
