//! What a request is about, read from its method, path and query.
//!
//! The grammar is kube-apiserver's (`/api/v1` or `/apis/GROUP/VERSION`, then optionally `/watch`, then
//! `/namespaces/NAME`, then `/RESOURCE[/NAME[/SUBRESOURCE…]]`), also for paths that turn out to serve nothing:
//! authorisation looks at it first.

use std::borrow::Cow;

use http::Method;

/// What a request asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestInfo {
    /// Whether the path names a resource of the API; otherwise only `path` and `verb` mean anything.
    pub(crate) is_resource: bool,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; for other paths the method in
    /// lower case.
    pub(crate) verb: String,
    /// Path as sent.
    pub(crate) path: String,
    /// Group; empty for core.
    pub(crate) group: String,
    /// Version.
    pub(crate) version: String,
    /// Namespace; empty: none or all.
    pub(crate) namespace: String,
    /// Resource.
    pub(crate) resource: String,
    /// First part behind the name.
    pub(crate) subresource: String,
    /// Name; empty for a collection.
    pub(crate) name: String,
    /// Whether the name stood in the path (and not in a field selector).
    pub(crate) name_in_path: bool,
    /// Parts behind the resource (name, subresource, …).
    pub(crate) parts: usize,
}

/// The query, decoded. Later values of one key do not count, as in kube-apiserver.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query string.
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (percent_decode(key, true).into_owned(), percent_decode(value, true).into_owned())
        });
        Self(pairs.collect())
    }

    /// The first value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// All values of a key.
    pub(crate) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(k, _)| k == key).map(|(_, v)| v.as_str())
    }
}

/// Decodes `%XX`, and `+` as a space where `plus` (queries). What is not UTF-8 then is replaced.
pub(crate) fn percent_decode(text: &str, plus: bool) -> Cow<'_, str> {
    let encoded = |c: char| c == '%' || (plus && c == '+');
    if !text.contains(encoded) {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let hex = |at: usize| bytes.get(at).and_then(|b| char::from(*b).to_digit(16));
        match bytes[i] {
            b'%' => match (hex(i + 1), hex(i + 2)) {
                (Some(high), Some(low)) => {
                    out.push((high * 16 + low) as u8);
                    i += 2;
                }
                _ => out.push(b'%'),
            },
            b'+' if plus => out.push(b' '),
            b => out.push(b),
        }
        i += 1;
    }
    Cow::Owned(String::from_utf8(out).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
}

/// Go's reading of the `watch` parameter and its like: anything but "", "0" and "false".
pub(crate) fn is_true(value: Option<&str>) -> bool {
    !matches!(value.map(str::to_ascii_lowercase).as_deref(), None | Some("0" | "false"))
}

impl RequestInfo {
    /// Reads a request.
    pub(crate) fn parse(method: &Method, path: &str, query: &Query) -> Self {
        let mut info =
            Self { path: path.to_owned(), verb: method.as_str().to_ascii_lowercase(), ..Self::default() };
        let mut parts: Vec<Cow<'_, str>> =
            path.split('/').filter(|part| !part.is_empty()).map(|part| percent_decode(part, false)).collect();
        match parts.first().map(|p| p.as_ref()) {
            Some("api") if parts.len() >= 3 => {
                info.version = parts[1].to_string();
                parts.drain(..2);
            }
            Some("apis") if parts.len() >= 4 => {
                info.group = parts[1].to_string();
                info.version = parts[2].to_string();
                parts.drain(..3);
            }
            _ => return info,
        }
        info.is_resource = true;
        let mut watch_path = false;
        if parts.len() > 1 && parts[0] == "watch" {
            watch_path = true;
            parts.remove(0);
        }
        let subresource_of_namespace = |part: &str| matches!(part, "status" | "finalize");
        if parts[0] == "namespaces" && parts.len() > 1 {
            info.namespace = parts[1].to_string();
            if parts.len() > 2 && !subresource_of_namespace(&parts[2]) {
                parts.drain(..2);
            }
        }
        info.resource = parts[0].to_string();
        info.parts = parts.len() - 1;
        if let Some(name) = parts.get(1) {
            info.name = name.to_string();
            info.name_in_path = true;
        }
        if let Some(subresource) = parts.get(2) {
            info.subresource = subresource.to_string();
        }
        let watching = watch_path || is_true(query.get("watch"));
        info.verb = match *method {
            Method::GET | Method::HEAD if watching => "watch",
            Method::GET | Method::HEAD if info.name.is_empty() => "list",
            Method::GET | Method::HEAD => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if info.name.is_empty() => "deletecollection",
            Method::DELETE => "delete",
            _ => &info.verb,
        }
        .to_owned();
        if info.verb == "watch" && !watching {
            info.verb = "get".to_owned();
        }
        // One object by field selector is authorised as that object.
        if info.name.is_empty()
            && matches!(info.verb.as_str(), "list" | "watch" | "deletecollection")
            && let Some(name) = query.get("fieldSelector").and_then(single_name)
        {
            info.name = name;
        }
        info
    }
}

/// The name in a selector that holds `metadata.name=NAME`.
fn single_name(selector: &str) -> Option<String> {
    selector
        .split(',')
        .find_map(|term| term.strip_prefix("metadata.name="))
        .map(|name| name.strip_prefix('=').unwrap_or(name).to_owned())
        .filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(method: &str, uri: &str) -> RequestInfo {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        RequestInfo::parse(&method.parse().unwrap(), path, &Query::parse(query))
    }

    #[test]
    fn paths_are_read_as_kube_apiserver_reads_them() {
        // method, path, verb, group, namespace, resource, subresource, name
        for (method, uri, want) in [
            ("GET", "/api/v1/namespaces", ["list", "", "", "namespaces", "", ""]),
            ("GET", "/api/v1/namespaces/x", ["get", "", "x", "namespaces", "", "x"]),
            ("PUT", "/api/v1/namespaces/x/finalize", ["update", "", "x", "namespaces", "finalize", "x"]),
            ("GET", "/api/v1/namespaces/x/pods", ["list", "", "x", "pods", "", ""]),
            ("GET", "/api/v1/watch/namespaces/x/pods/p", ["watch", "", "x", "pods", "", "p"]),
            ("GET", "/api/v1/pods?watch=1", ["watch", "", "", "pods", "", ""]),
            ("GET", "/api/v1/pods?watch=0", ["list", "", "", "pods", "", ""]),
            ("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dp", ["list", "", "", "pods", "", "p"]),
            (
                "POST",
                "/apis/apps/v1/namespaces/x/deployments",
                ["create", "apps", "x", "deployments", "", ""],
            ),
            (
                "PATCH",
                "/apis/apps/v1//namespaces/x/deployments/d/scale/",
                ["patch", "apps", "x", "deployments", "scale", "d"],
            ),
            (
                "DELETE",
                "/apis/apps/v1/namespaces/x/deployments",
                ["deletecollection", "apps", "x", "deployments", "", ""],
            ),
            (
                "DELETE",
                "/apis/apps/v1/namespaces/x/deployments/d",
                ["delete", "apps", "x", "deployments", "", "d"],
            ),
        ] {
            let info = parse(method, uri);
            let got =
                [&info.verb, &info.group, &info.namespace, &info.resource, &info.subresource, &info.name];
            assert_eq!(got, want, "{method} {uri}");
            assert!(info.is_resource);
        }
        for uri in ["/", "/api", "/api/v1", "/apis/apps", "/apis/apps/v1", "/healthz", "/version"] {
            assert!(!parse("GET", uri).is_resource, "{uri}");
        }
    }

    proptest::proptest! {
        /// No path is too odd to be read, and reading never invents a resource.
        #[test]
        fn any_path_is_read(path in "(/(api|apis|v1|watch|namespaces|x|%2F|%zz|\\.\\.|))*", query in "[a-z=&%+]{0,20}") {
            let info = RequestInfo::parse(&Method::GET, &path, &Query::parse(&query));
            proptest::prop_assert_eq!(info.is_resource, !info.resource.is_empty());
        }
    }

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse("a=1%202&b=x+y&a=3&c&bad=%zz");
        assert_eq!(query.get("a"), Some("1 2"));
        assert_eq!(query.get("b"), Some("x y"));
        assert_eq!(query.get("c"), Some(""));
        assert_eq!(query.get("bad"), Some("%zz"));
        assert_eq!(query.all("a").collect::<Vec<_>>(), ["1 2", "3"]);
    }
}
