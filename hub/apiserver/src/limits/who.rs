//! Whom a request is counted for.

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use crate::{
    authn::{ANONYMOUS, UserInfo},
    pki::MASTERS,
};

/// Whom a request is counted for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    /// A user, by name.
    User(Arc<str>),
    /// A stranger, by where they speak from.
    Address(IpAddr),
}

impl Who {
    /// The one who has authenticated as `user`, or a stranger at this address. An IPv6 host has a /64 for itself.
    pub(crate) fn new(user: &UserInfo, address: Option<IpAddr>) -> Self {
        if user.name != ANONYMOUS {
            return Self::User(user.name.as_str().into());
        }
        Self::Address(match address {
            None => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            Some(IpAddr::V6(address)) if address.to_ipv4_mapped().is_none() => {
                IpAddr::V6((u128::from(address) >> 64 << 64).into())
            }
            Some(address) => address.to_canonical(),
        })
    }
}

/// The one whose request it is, and whether limits are for them at all.
#[derive(Clone, Debug)]
pub(crate) struct Guest {
    pub(super) who: Who,
    pub(super) exempt: bool,
}

impl Guest {
    /// The guest that this user is.
    pub(crate) fn new(user: &UserInfo, address: Option<IpAddr>) -> Self {
        Self { who: Who::new(user, address), exempt: user.in_group(MASTERS) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_are_told_apart_by_their_address() {
        let (anonymous, user) = (UserInfo::anonymous(), UserInfo::new("u", ["g"]));
        let of = |user: &UserInfo, address: &str| Who::new(user, Some(address.parse().unwrap()));
        assert_eq!(of(&user, "192.0.2.1"), of(&user, "192.0.2.2"));
        assert_ne!(of(&anonymous, "192.0.2.1"), of(&anonymous, "192.0.2.2"));
        assert_eq!(of(&anonymous, "192.0.2.1"), of(&anonymous, "::ffff:192.0.2.1"));
        assert_eq!(of(&anonymous, "2001:db8::1"), of(&anonymous, "2001:db8::ffff:1"));
        assert_ne!(of(&anonymous, "2001:db8::1"), of(&anonymous, "2001:db8:0:1::1"));
    }
}
