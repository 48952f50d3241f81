//! What is wrong with where a webhook is said to be, and with what it is called: the same for every kind of configuration.

use crate::{
    go_quote, names,
    path::{FieldError, Path},
};

/// What is wrong with a webhook's name, which is a domain of its own.
pub fn name_errors(path: &Path, name: &str) -> Vec<FieldError> {
    if name.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let errors = names::dns1123_subdomain_errors(name);
    if !errors.is_empty() {
        return errors.into_iter().map(|detail| FieldError::invalid(path, name, detail)).collect();
    }
    if name.split('.').count() < 3 {
        let detail = "should be a domain with at least three segments separated by dots";
        return vec![FieldError::invalid(path, name, detail)];
    }
    Vec::new()
}

/// The parts of a URL that count here, as Go's parser finds them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Url<'a> {
    scheme: &'a str,
    user: Option<&'a str>,
    host: &'a str,
    query: &'a str,
    fragment: &'a str,
}

fn parse(url: &str) -> Result<Url<'_>, String> {
    let failed = |why: &str| Err(format!("parse {}: {why}", go_quote(url)));
    if url.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return failed("net/url: invalid control character in URL");
    }
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    let scheme = rest.split_once(':').map(|(scheme, _)| scheme).filter(|scheme| {
        let mut chars = scheme.bytes();
        chars.next().is_none_or(|b| b.is_ascii_alphabetic())
            && chars.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
    });
    let (scheme, rest) = match scheme {
        Some("") => return failed("missing protocol scheme"),
        Some(scheme) => (scheme, &rest[scheme.len() + 1..]),
        None => ("", rest),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let Some(authority) = rest.strip_prefix("//").map(|rest| rest.split('/').next().unwrap_or_default())
    else {
        if scheme.is_empty() && rest.split('/').next().is_some_and(|first| first.contains(':')) {
            return failed("first path segment in URL cannot contain colon");
        }
        return Ok(Url { scheme, query, fragment, ..Url::default() });
    };
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    let after = host.rsplit_once(']').map_or(host, |(_, after)| after);
    if let Some((_, port)) = after.rsplit_once(':')
        && !port.bytes().all(|b| b.is_ascii_digit())
    {
        return failed(&format!("invalid port {} after host", go_quote(&format!(":{port}"))));
    }
    if host.contains(' ') {
        return failed("invalid character \" \" in host name");
    }
    Ok(Url { scheme, user, host, query, fragment })
}

/// What is wrong with a webhook's URL.
pub fn url_errors(path: &Path, url: &str) -> Vec<FieldError> {
    const FORM: &str = "; desired format: https://host[/path]";
    let parts = match parse(url) {
        Ok(parts) => parts,
        Err(why) => return vec![FieldError::required(path, format!("url must be a valid URL: {why}{FORM}"))],
    };
    let mut errors = Vec::new();
    let mut invalid = |value: &str, detail: String| errors.push(FieldError::invalid(path, value, detail));
    if !parts.scheme.eq_ignore_ascii_case("https") {
        invalid(&parts.scheme.to_ascii_lowercase(), format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if parts.host.is_empty() {
        invalid(parts.host, format!("host must be provided{FORM}"));
    }
    if let Some(user) = parts.user {
        invalid(user, "user information is not permitted in the URL".to_owned());
    }
    if !parts.fragment.is_empty() {
        invalid(parts.fragment, "fragments are not permitted in the URL".to_owned());
    }
    if !parts.query.is_empty() {
        invalid(parts.query, "query parameters are not permitted in the URL".to_owned());
    }
    errors
}

/// What is wrong with a reference to a webhook's Service. `at` is its URL's path.
pub fn service_errors(
    path: &Path,
    namespace: &str,
    name: &str,
    at: Option<&str>,
    port: i64,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if name.is_empty() {
        errors.push(FieldError::required(&path.child("name"), "service name is required"));
    }
    if namespace.is_empty() {
        errors.push(FieldError::required(&path.child("namespace"), "service namespace is required"));
    }
    if !(1..=65_535).contains(&port) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(&path.child("port"), port, detail));
    }
    let Some(at) = at.filter(|at| !matches!(*at, "" | "/")) else { return errors };
    let path = path.child("path");
    let mut invalid = |detail: String| errors.push(FieldError::invalid(&path, at, detail));
    if at == "//" {
        invalid("segment[0] may not be empty".to_owned());
        return errors;
    }
    if !at.starts_with('/') {
        invalid("must start with a '/'".to_owned());
    }
    let mut rest = at.chars();
    rest.next();
    let rest = rest.as_str();
    for (i, step) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if step.is_empty() {
            invalid(format!("segment[{i}] may not be empty"));
            continue;
        }
        for failure in names::dns1123_subdomain_errors(step) {
            invalid(format!("segment[{i}]: {failure}"));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(errors: &[FieldError]) -> String {
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn urls_name_a_host_and_a_path() {
        let form = "; desired format: https://host[/path]";
        for (url, expected) in [
            ("https://a.b:8443/c/d", String::new()),
            ("https://[::1]:8443", String::new()),
            (
                "http://a.b",
                format!("url: Invalid value: \"http\": 'https' is the only allowed URL scheme{form}"),
            ),
            (
                "a.b/c",
                format!(
                    "url: Invalid value: \"\": 'https' is the only allowed URL scheme{form}; url: Invalid value: \"\": host must be provided{form}"
                ),
            ),
            ("https:///c", format!("url: Invalid value: \"\": host must be provided{form}")),
            (
                "https://u:p@a.b",
                "url: Invalid value: \"u:p\": user information is not permitted in the URL".into(),
            ),
            ("https://a.b/#f", "url: Invalid value: \"f\": fragments are not permitted in the URL".into()),
            (
                "https://a.b?q=1",
                "url: Invalid value: \"q=1\": query parameters are not permitted in the URL".into(),
            ),
            (
                "https://a.b:x",
                format!(
                    "url: Required value: url must be a valid URL: parse \"https://a.b:x\": invalid port \":x\" after host{form}"
                ),
            ),
            (
                ":a",
                format!(
                    "url: Required value: url must be a valid URL: parse \":a\": missing protocol scheme{form}"
                ),
            ),
        ] {
            assert_eq!(texts(&url_errors(&Path::new("url"), url)), expected, "{url}");
        }
    }

    #[test]
    fn services_are_named_in_full() {
        let of = |namespace, name, at, port| {
            texts(&service_errors(&Path::new("service"), namespace, name, at, port))
        };
        assert_eq!(of("n", "s", None, 443), "");
        assert_eq!(of("n", "s", Some("/a/b.c/"), 443), "");
        assert_eq!(
            of("", "", None, 0),
            "service.name: Required value: service name is required; service.namespace: Required value: service namespace is \
             required; service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive"
        );
        assert_eq!(
            of("n", "s", Some("//"), 1),
            "service.path: Invalid value: \"//\": segment[0] may not be empty"
        );
        assert!(of("n", "s", Some("a"), 1).contains("must start with a '/'"));
        assert!(of("n", "s", Some("/a//b"), 1).contains("segment[1] may not be empty"));
        assert!(of("n", "s", Some("/a/B"), 1).contains("segment[1]: a lowercase RFC 1123 subdomain"));
    }
}
