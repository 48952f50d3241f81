//! What a browser sends by itself, and when it counts.
//!
//! A cookie goes along with every request to its host, and so does a client certificate on its connection, whoever's page
//! has caused the request. So neither says that its owner wants anything, unless the browser says that a page of this
//! server asks, and the page shows that it may set a header:
//!
//! | `Sec-Fetch-Site` | `Origin` | the page's header | certificate | cookie |
//! |---|---|---|---|---|
//! | none | none | – | counts | – |
//! | none | this host's | – | counts | – |
//! | none | another | – | – | – |
//! | `same-origin` | none, or this host's | there | counts | counts |
//! | anything else | – | – | – | – |
//!
//! The first line is every client that is no browser; the second some of their WebSocket libraries. A bearer token is set by
//! whoever has it, and counts always. What does not count has not been shown: the request is a stranger's.

use std::fmt;

use http::{HeaderMap, header, request::Parts};

use super::known::Known;

/// The header by which a page shows that it may set one.
pub const PAGE_HEADER: &str = "x-karmada-ui";

/// The cookie of a session. The prefix has browsers keep it to this host, over TLS, for all of its paths.
pub const COOKIE: &str = "__Host-ui";

/// Who knows sessions by their cookies.
pub trait Sessions: fmt::Debug + Send + Sync + 'static {
    /// Whose session a request belongs to by its cookie; nothing where it has none that holds, or it does not count.
    fn find(&self, parts: &Parts) -> Option<Known>;
}

/// The host that a request is for, without its port.
pub fn host(parts: &Parts) -> Option<&str> {
    let authority = authority(parts)?;
    let end = match authority.strip_prefix('[') {
        Some(rest) => rest.find(']').map(|end| end + 2)?,
        None => authority.rfind(':').unwrap_or(authority.len()),
    };
    Some(authority.get(..end)?.trim_start_matches('[').trim_end_matches(']'))
}

/// The host that a request is for, with its port if it has one.
pub fn authority(parts: &Parts) -> Option<&str> {
    let of_uri = parts.uri.authority().map(http::uri::Authority::as_str);
    of_uri.or_else(|| one(&parts.headers, header::HOST.as_str()))
}

/// The only value of a header.
fn one<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then(|| value.to_str().ok())?
}

/// Whether a page of this server asks: by what the browser says, and by the page's header.
pub fn is_own_page(parts: &Parts) -> bool {
    one(&parts.headers, "sec-fetch-site") == Some("same-origin")
        && parts.headers.contains_key(PAGE_HEADER)
        && (!parts.headers.contains_key(header::ORIGIN) || is_own_origin(parts))
}

fn is_own_origin(parts: &Parts) -> bool {
    let origin = one(&parts.headers, header::ORIGIN.as_str());
    let own = origin.and_then(|origin| origin.strip_prefix("https://"));
    own.zip(authority(parts)).is_some_and(|(own, here)| {
        own.trim_end_matches(":443").eq_ignore_ascii_case(here.trim_end_matches(":443"))
    })
}

/// Whether a browser has sent it, as far as it says so.
pub fn is_of_browser(headers: &HeaderMap) -> bool {
    headers.contains_key("sec-fetch-site") || headers.contains_key(header::ORIGIN)
}

/// Whether a client certificate counts.
pub(crate) fn certificate_counts(parts: &Parts) -> bool {
    let headers = &parts.headers;
    if headers.contains_key("sec-fetch-site") {
        return is_own_page(parts);
    }
    !headers.contains_key(header::ORIGIN) || is_own_origin(parts)
}

/// Where a session begins and ends, and what a page of it reads.
const SESSION: &str = "/ui/session";
const PAGES: &str = "/ui/";

/// Whether a page asks for what it has a session for. When that has ended, the browser's certificate does not stand in for it: it may
/// be somebody else's.
pub(crate) fn wants_session(parts: &Parts) -> bool {
    let path = parts.uri.path();
    is_of_browser(&parts.headers) && path.starts_with(PAGES) && path != SESSION
}

/// Whether the page asks who is there, or logs somebody in or out.
pub(crate) fn logs_in(parts: &Parts) -> bool {
    parts.uri.path() == SESSION && is_own_page(parts)
}

/// The session's cookie of a request. One that is there twice is none: something else has set the other.
pub fn cookie(headers: &HeaderMap) -> Option<&str> {
    cookie_of(headers, COOKIE)
}

/// The cookie of a name. One that is there twice is none.
pub fn cookie_of<'a>(headers: &'a HeaderMap, wanted: &str) -> Option<&'a str> {
    let values = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = values.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut own = pairs.filter(|(name, _)| *name == wanted).map(|(_, value)| value);
    let first = own.next()?;
    own.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn parts(uri: &str, headers: &[(&str, &str)]) -> Parts {
        let request =
            headers.iter().fold(Request::get(uri), |request, (name, value)| request.header(*name, *value));
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn what_a_browser_adds_by_itself_counts_for_our_page_alone() {
        let (host, page) = (("host", "hub:6443"), (PAGE_HEADER, "1"));
        let site = |site| ("sec-fetch-site", site);
        let origin = |origin| ("origin", origin);
        for (headers, certificate, cookie) in [
            (vec![host], true, false),
            (vec![host, page], true, false),
            (vec![host, origin("https://hub:6443")], true, false),
            (vec![host, origin("https://evil:6443")], false, false),
            (vec![host, origin("http://hub:6443")], false, false),
            (vec![host, origin("null")], false, false),
            (vec![host, site("same-origin"), page], true, true),
            (vec![host, site("same-origin"), page, origin("https://HUB:6443")], true, true),
            (vec![host, site("same-origin"), page, origin("https://evil")], false, false),
            (vec![host, site("same-origin")], false, false),
            (vec![host, site("same-site"), page], false, false),
            (vec![host, site("cross-site"), page], false, false),
            (vec![host, site("none")], false, false),
            (vec![host, site("same-origin"), site("cross-site"), page], false, false),
        ] {
            let parts = parts("/ui/api/fleet", &headers);
            assert_eq!(
                (certificate_counts(&parts), is_own_page(&parts)),
                (certificate, cookie),
                "{headers:?}"
            );
        }
    }

    #[test]
    fn hosts_and_cookies_are_read() {
        for (uri, header, want) in [
            ("/", Some("hub.example:6443"), Some("hub.example")),
            ("/", Some("hub.example"), Some("hub.example")),
            ("/", Some("[::1]:6443"), Some("::1")),
            ("/", Some("10.0.0.1:6443"), Some("10.0.0.1")),
            ("https://hub:1/ui", None, Some("hub")),
            ("/", None, None),
        ] {
            let headers: Vec<_> = header.map(|host| ("host", host)).into_iter().collect();
            assert_eq!(host(&parts(uri, &headers)), want, "{uri} {header:?}");
        }
        for (value, want) in [
            ("__Host-ui=abc", Some("abc")),
            ("a=b; __Host-ui=abc; c=d", Some("abc")),
            ("__Host-ui=abc; __Host-ui=def", None),
            ("x__Host-ui=abc", None),
            ("", None),
        ] {
            assert_eq!(cookie(&parts("/", &[("cookie", value)]).headers), want, "{value}");
        }
    }
}
