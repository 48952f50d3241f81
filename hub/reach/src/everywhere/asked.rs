//! What is asked of all clusters together.

use std::borrow::Cow;

use http::{HeaderMap, Method, header};
use karmada_meta::query::{percent_decode, watches};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// No resource: what kinds there are, versions.
    Own,
    /// All of a kind.
    List,
    /// What has a name: its path, without a subresource.
    Object(String),
}

/// Paths that are the hub's own to answer.
const OWN: [&str; 7] = ["api", "apis", "openapi", "version", "healthz", "livez", "readyz"];

/// What a request asks for. Where that cannot be asked of all clusters, its verb.
pub(super) fn read(method: &Method, path: &str, query: Option<&str>) -> Result<Asked, &'static str> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (base, rest) = match parts.as_slice() {
        ["api", _, rest @ ..] if !rest.is_empty() => (2, rest),
        ["apis", _, _, rest @ ..] if !rest.is_empty() => (3, rest),
        [] => return Ok(Asked::Own),
        [first, ..] if OWN.contains(first) && matches!(*method, Method::GET | Method::HEAD) => {
            return Ok(Asked::Own);
        }
        _ => return Err(verb(method)),
    };
    let object = |parts_of_it: usize| Asked::Object(format!("/{}", parts[..base + parts_of_it].join("/")));
    match rest {
        ["watch", ..] => return Err("watch"),
        // What a namespace has itself is no kind of objects in it.
        ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => return Ok(object(2)),
        ["namespaces", _, _, _, ..] => return Ok(object(4)),
        ["namespaces", _, _] | [_] => {}
        _ => return Ok(object(2)),
    }
    match *method {
        Method::GET if watches(query) => Err("watch"),
        Method::GET => Ok(Asked::List),
        Method::DELETE => Err("deletecollection"),
        _ => Err(verb(method)),
    }
}

/// What kind of objects a path means, and in which namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Empty for the core group.
    pub group: String,
    pub version: String,
    /// The name in paths.
    pub resource: String,
    /// Empty for all of them, and for what is in none.
    pub namespace: String,
}

impl Place {
    /// Group and version, as objects name them.
    pub fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }
}

/// The kind of objects that a path means, if it means any.
pub(in super::super) fn place(path: &str) -> Option<Place> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let (namespace, resource) = match rest {
        ["watch", ..] | [] => return None,
        ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => ("", "namespaces"),
        ["namespaces", namespace, resource, ..] => (*namespace, *resource),
        [resource, ..] => ("", *resource),
    };
    let text = str::to_owned;
    Some(Place {
        group: text(group),
        version: text(version),
        resource: text(resource),
        namespace: text(namespace),
    })
}

fn verb(method: &Method) -> &'static str {
    match *method {
        Method::GET | Method::HEAD => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "options",
    }
}

/// What of a query goes on to each member: not what speaks of pages and versions, of which each has its own.
pub(super) fn for_each(query: Option<&str>) -> String {
    const OF_ONE: [&str; 6] = [
        "limit",
        "continue",
        "resourceVersion",
        "resourceVersionMatch",
        "sendInitialEvents",
        "allowWatchBookmarks",
    ];
    let kept: Vec<&str> =
        pairs(query).filter(|(key, ..)| !OF_ONE.contains(&&**key)).map(|(_, _, pair)| pair).collect();
    kept.join("&")
}

/// Keys as members read them, values, and both as they came.
pub(super) fn pairs(query: Option<&str>) -> impl Iterator<Item = (Cow<'_, str>, &str, &str)> {
    query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (percent_decode(key, true), value, pair)
    })
}

/// The text that a value of a query stands for; none where that is no text.
pub(super) fn decoded(value: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(value.len()), value.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                let digits = std::str::from_utf8(&digits).ok().filter(|two| !two.starts_with('+'))?;
                u8::from_str_radix(digits, 16).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

/// In which form members are asked for lists: what a client accepts, as far as it can be put together.
pub(super) fn form(headers: &HeaderMap) -> &'static str {
    let accepts: Vec<&str> =
        headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let wants = |form: &str| {
        let mut forms = accepts.iter().flat_map(|one| one.split(','));
        forms.any(|one| one.split(';').any(|part| part.trim() == form))
    };
    if wants("as=Table") {
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    } else if wants("as=PartialObjectMetadataList") {
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
    } else {
        "application/json"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_asked_of_all() {
        let object = |path: &str| Ok(Asked::Object(path.to_owned()));
        for (method, path, query, want) in [
            (Method::GET, "/", None, Ok(Asked::Own)),
            (Method::GET, "/api", None, Ok(Asked::Own)),
            (Method::GET, "/api/v1", None, Ok(Asked::Own)),
            (Method::GET, "/apis/apps/v1/", None, Ok(Asked::Own)),
            (Method::GET, "/openapi/v3/apis/apps/v1", None, Ok(Asked::Own)),
            (Method::GET, "/version", None, Ok(Asked::Own)),
            (Method::GET, "/metrics", None, Err("get")),
            (Method::GET, "/karmada-hub/tunnel", None, Err("get")),
            (Method::POST, "/apis", None, Err("create")),
            (Method::GET, "/api/v1/pods", Some("limit=500"), Ok(Asked::List)),
            (Method::GET, "/apis/apps/v1/namespaces/n/deployments", None, Ok(Asked::List)),
            (Method::GET, "/api/v1/namespaces", None, Ok(Asked::List)),
            (Method::GET, "/api/v1/pods", Some("a=b&watch=true"), Err("watch")),
            (Method::GET, "/api/v1/pods", Some("watch"), Err("watch")),
            (Method::GET, "/api/v1/pods", Some("watch=&a=b"), Err("watch")),
            (Method::GET, "/api/v1/pods", Some("watch=False"), Ok(Asked::List)),
            (Method::GET, "/api/v1/pods", Some("%77atch=1"), Err("watch")),
            (Method::GET, "/api/v1/watch/pods", None, Err("watch")),
            (Method::POST, "/api/v1/namespaces/n/pods", None, Err("create")),
            (Method::DELETE, "/api/v1/namespaces/n/pods", None, Err("deletecollection")),
            (Method::HEAD, "/api/v1/pods", None, Err("get")),
            (Method::GET, "/api/v1/namespaces/n", None, object("/api/v1/namespaces/n")),
            (Method::PUT, "/api/v1/namespaces/n/finalize", None, object("/api/v1/namespaces/n")),
            (Method::GET, "/api/v1/nodes/x", None, object("/api/v1/nodes/x")),
            (Method::GET, "/api/v1/nodes/x/proxy/metrics", None, object("/api/v1/nodes/x")),
            (Method::DELETE, "/api/v1/namespaces/n/pods/p", None, object("/api/v1/namespaces/n/pods/p")),
            (
                Method::POST,
                "/api/v1/namespaces/n/pods/p/exec",
                Some("command=sh"),
                object("/api/v1/namespaces/n/pods/p"),
            ),
            (
                Method::GET,
                "/apis/apps/v1/namespaces/n/deployments/d/scale",
                None,
                object("/apis/apps/v1/namespaces/n/deployments/d"),
            ),
        ] {
            assert_eq!(read(&method, path, query), want, "{method} {path} {query:?}");
        }
    }

    #[test]
    fn which_kind_a_path_means() {
        for (path, want) in [
            ("/api/v1/pods", Some(" v1 pods ")),
            ("/api/v1/namespaces/n/pods/p/log", Some(" v1 pods n")),
            ("/apis/apps/v1/namespaces/n/deployments/", Some("apps v1 deployments n")),
            ("/apis/apps/v1/deployments", Some("apps v1 deployments ")),
            ("/api/v1/namespaces", Some(" v1 namespaces ")),
            ("/api/v1/namespaces/n", Some(" v1 namespaces ")),
            ("/api/v1/namespaces/n/status", Some(" v1 namespaces ")),
            ("/api/v1/watch/pods", None),
            ("/api/v1", None),
            ("/apis/apps", None),
            ("/version", None),
            ("", None),
        ] {
            let found = place(path).map(|place| {
                let Place { group, version, resource, namespace } = place;
                format!("{group} {version} {resource} {namespace}")
            });
            assert_eq!(found.as_deref(), want, "{path}");
        }
    }

    #[test]
    fn what_goes_on_to_each() {
        for (query, want) in [
            (None, ""),
            (Some("limit=500&labelSelector=a%3Db&resourceVersion=0"), "labelSelector=a%3Db"),
            (Some("fieldSelector=x&&pretty&continue="), "fieldSelector=x&pretty"),
            (Some("limit=5&continue=abc"), ""),
            (Some("%6cimit=5&contin%75e=abc&%70retty"), "%70retty"),
        ] {
            assert_eq!(for_each(query), want, "{query:?}");
        }
        let of = form;
        let form = |accept: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            of(&headers)
        };
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        assert_eq!(form(table), table);
        assert_eq!(form("application/vnd.kubernetes.protobuf, application/json"), "application/json");
        assert_eq!(of(&HeaderMap::new()), "application/json");
    }
}
