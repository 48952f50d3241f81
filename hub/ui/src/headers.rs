//! What every answer of the page says to browsers, and which hosts it is served as.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// What the page may load and do: its own files, and its own requests.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                          base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'";

/// Makes an answer one of the page.
pub fn set(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// Whether the page is served as this host. A name that is not this server's has been bound to its address by somebody whose
/// page would then be taken for ours; an address cannot be bound to another.
pub fn is_ours(host: &str, names: &[String]) -> bool {
    let bare = host.strip_suffix('.').unwrap_or(host);
    bare.parse::<IpAddr>().is_ok()
        || bare.eq_ignore_ascii_case("localhost")
        || names.iter().any(|name| name.eq_ignore_ascii_case(bare))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_served_as_what_it_is_called() {
        let names = ["hub.example".to_owned(), "10.0.0.1".to_owned()];
        for (host, ours) in [
            ("hub.example", true),
            ("HUB.example.", true),
            ("localhost", true),
            ("127.0.0.1", true),
            ("::1", true),
            ("192.0.2.7", true),
            ("evil.example", false),
            ("hub.example.evil.example", false),
            ("", false),
        ] {
            assert_eq!(is_ours(host, &names), ours, "{host}");
        }
    }

    #[test]
    fn nothing_may_be_loaded_from_elsewhere() {
        let mut headers = HeaderMap::new();
        set(&mut headers);
        assert_eq!(headers.len(), 5);
        let policy = headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    }
}
