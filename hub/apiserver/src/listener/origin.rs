//! Where a client is counted.

use std::net::{IpAddr, Ipv4Addr};

/// An IPv4 address, however it is written, or the /64 of an IPv6 address: whoever has one of those has all 2⁶⁴.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    V4(Ipv4Addr),
    V6(u64),
}

impl From<IpAddr> for Origin {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => Self::V6((u128::from(address) >> 64) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_owner_are_one_origin() {
        let cases = [
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
            ("10.0.0.1", "::ffff:10.0.0.1", true),
            ("10.0.0.1", "::10.0.0.1", false),
            ("2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff", true),
            ("2001:db8:1:2::1", "2001:db8:1:3::1", false),
            ("::ffff:10.0.0.1", "::ffff:10.0.0.2", false),
        ];
        for (one, other, same) in cases {
            let of = |text: &str| Origin::from(text.parse::<IpAddr>().unwrap());
            assert_eq!(of(one) == of(other), same, "{one} {other}");
        }
    }
}
