//! Functions of URLs, addresses and ranges of addresses.

use std::{collections::BTreeMap, net::IpAddr, rc::Rc};

use super::Answer;
use crate::{
    library::net::{Url, cidr, ip, link_local, link_local_multicast, unescape, within},
    value::{Key, MapVal, Val},
};

pub(super) fn call<'a>(name: &str, args: &[Val<'a>]) -> Option<Answer<'a>> {
    let bool = |b: bool| Ok(Val::Bool(b));
    Some(match (name, args) {
        ("url", [Val::Text(text)]) => match Url::parse(text) {
            Some(url) => Ok(Val::Url(Rc::new(url))),
            None => Err(format!(
                "URL parse error during conversion from string: parse {text:?}: invalid URI for request"
            )),
        },
        ("isURL", [Val::Text(text)]) => bool(Url::parse(text).is_some()),
        ("getScheme", [Val::Url(url)]) => Ok(Val::text(url.scheme.clone())),
        ("getHost", [Val::Url(url)]) => Ok(Val::text(url.host.clone())),
        ("getHostname", [Val::Url(url)]) => Ok(Val::text(url.name_and_port().0)),
        ("getPort", [Val::Url(url)]) => Ok(Val::text(url.name_and_port().1)),
        ("getEscapedPath", [Val::Url(url)]) => Ok(Val::text(url.path.clone())),
        ("getQuery", [Val::Url(url)]) => {
            let mut all: BTreeMap<Key, Vec<Val<'a>>> = BTreeMap::new();
            for pair in url.query.split('&').filter(|p| !p.is_empty()) {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                all.entry(Key::Text(unescape(key))).or_default().push(Val::text(unescape(value)));
            }
            let all = all.into_iter().map(|(key, values)| (key, Val::list(values))).collect();
            Ok(Val::Map(MapVal::Made(Rc::new(all))))
        }
        ("ip", [Val::Text(text)]) => ip(text).map(Val::Ip),
        ("ip", [Val::Cidr(cidr)]) => Ok(Val::Ip(cidr.base)),
        ("isIP", [Val::Text(text)]) => bool(ip(text).is_ok()),
        ("ip.isCanonical", [Val::Text(text)]) => ip(text).map(|ip| Val::Bool(ip.to_string() == **text)),
        ("family", [Val::Ip(ip)]) => Ok(Val::Int(if ip.is_ipv4() { 4 } else { 6 })),
        ("isUnspecified", [Val::Ip(ip)]) => bool(ip.is_unspecified()),
        ("isLoopback", [Val::Ip(ip)]) => bool(ip.is_loopback()),
        ("isLinkLocalMulticast", [Val::Ip(ip)]) => bool(link_local_multicast(*ip)),
        ("isLinkLocalUnicast", [Val::Ip(ip)]) => bool(link_local(*ip)),
        ("isGlobalUnicast", [Val::Ip(ip)]) => {
            let broadcast = matches!(ip, IpAddr::V4(four) if four.is_broadcast());
            bool(
                !(ip.is_unspecified()
                    || ip.is_loopback()
                    || ip.is_multicast()
                    || link_local(*ip)
                    || broadcast),
            )
        }
        ("cidr", [Val::Text(text)]) => cidr(text).map(Val::Cidr),
        ("isCIDR", [Val::Text(text)]) => bool(cidr(text).is_ok()),
        ("containsIP", [Val::Cidr(range), Val::Ip(ip)]) => bool(range.contains(*ip)),
        ("containsIP", [Val::Cidr(range), Val::Text(text)]) => {
            ip(text).map(|ip| Val::Bool(range.contains(ip)))
        }
        ("containsCIDR", [Val::Cidr(range), Val::Cidr(other)]) => bool(within(*range, *other)),
        ("containsCIDR", [Val::Cidr(range), Val::Text(text)]) => {
            cidr(text).map(|other| Val::Bool(within(*range, other)))
        }
        ("masked", [Val::Cidr(range)]) => Ok(Val::Cidr(range.masked())),
        ("prefixLength", [Val::Cidr(range)]) => Ok(Val::Int(i64::from(range.prefix))),
        _ => return None,
    })
}
