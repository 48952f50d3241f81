//! What a request is about, read from its method, path and query.
//!
//! The grammar is kube-apiserver's (`/api/v1` or `/apis/GROUP/VERSION`, then optionally `/watch`, then
//! `/namespaces/NAME`, then `/RESOURCE[/NAME[/SUBRESOURCE…]]`), also for paths that turn out to serve nothing:
//! authorisation looks at it first. It is read once: what is judged is what is done.

use std::net::SocketAddr;

use http::Method;
use karmada_meta::{
    fields::{FieldSelector, InvalidFieldSelector},
    query::{is_yes, percent_decode},
    status::Status,
};

use crate::bounds;

/// So many parts of a path mean something: those of the group, version, watch, namespace, resource, name and subresource.
/// Of those behind it is only told how many they are.
const PARTS: usize = 12;

/// The address a client spoke from; a request extension beside [`Peer`](crate::authn::Peer).
#[derive(Clone, Copy, Debug)]
pub struct RemoteAddr(pub SocketAddr);

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestInfo {
    /// Whether the path names a resource of the API; otherwise only `path` and `verb` mean anything.
    pub(crate) is_resource: bool,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; for other paths the method in
    /// lower case.
    pub(crate) verb: String,
    /// Path, decoded. A slash that was encoded is a slash, as in Go: what is judged has as many parts as what is done.
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
    /// Parts of the path behind the subresource.
    pub(crate) behind: usize,
    /// Which objects a list, watch or deletecollection is about: those of the field selector, and of the name in the path
    /// if there is one. Everything for other verbs.
    pub(crate) fields: FieldSelector,
    /// What is wrong with the query's field selector. The request is judged without it, and then refused.
    pub(crate) bad_fields: Option<Status>,
    /// How it is treated, apart from what it is about.
    pub(crate) class: Class,
    /// Which seats it takes, if it is short.
    pub(crate) lane: Lane,
}

/// How a request is treated, apart from what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Answered from a seat, within a deadline.
    Short,
    /// A question about health: short, and in need of no seat. It is asked most when nothing else is answered.
    Health,
    /// A watch: lasts as long as it says itself.
    Watch,
    /// Lasts as long as the client listens.
    LongRunning,
    /// Somebody else's to answer, for as long as both want ([`crate::carried`]).
    Carried,
}

/// Which seats and whose room a short request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// Those of requests that read.
    Read,
    /// Those of requests that write.
    Write,
    /// Those of Leases, by which a fleet says that it is alive.
    Lease,
    /// Those of documents of OpenAPI: each takes a processor for a while to make.
    Document,
}

impl Lane {
    /// What is counted when there is no seat.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Read => "too_many_reading",
            Self::Write => "too_many_writing",
            Self::Lease => "too_many_leases",
            Self::Document => "too_many_documents",
        }
    }
}

impl Class {
    /// Whether the answer goes on after it has begun: it has no deadline and no seat, and is counted while it is open.
    pub(crate) fn is_open(self) -> bool {
        matches!(self, Self::Watch | Self::LongRunning | Self::Carried)
    }
}

/// The query, decoded. Later values of one key do not count, as in kube-apiserver.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
    /// How many pairs there were. Of more than there may be none is read.
    there: usize,
}

impl Query {
    /// Reads a query string. One with too many pairs is empty, and then refused ([`Query::check`]).
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = || text.split('&').filter(|pair| !pair.is_empty());
        let there = pairs().count();
        if there > bounds::PAIRS {
            return Self { pairs: Vec::new(), there };
        }
        let decoded = pairs().map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (percent_decode(key, true).into_owned(), percent_decode(value, true).into_owned())
        });
        Self { pairs: decoded.collect(), there }
    }

    /// Refuses what has not been read.
    ///
    /// # Errors
    /// 400.
    pub(crate) fn check(&self) -> Result<(), Status> {
        bounds::check(
            "query",
            "parameters",
            self.there,
            bounds::PAIRS,
            "leave out those that are there more than once",
        )
    }

    /// The first value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// All values of a key.
    pub(crate) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(k, _)| k == key).map(|(_, v)| v.as_str())
    }
}

impl RequestInfo {
    /// Reads a request.
    pub(crate) fn parse(method: &Method, path: &str, query: &Query) -> Self {
        let path = &*percent_decode(path, false);
        let mut info = Self {
            is_resource: false,
            verb: method.as_str().to_ascii_lowercase(),
            path: path.to_owned(),
            group: String::new(),
            version: String::new(),
            namespace: String::new(),
            resource: String::new(),
            subresource: String::new(),
            name: String::new(),
            name_in_path: false,
            behind: 0,
            fields: FieldSelector::everything(),
            bad_fields: None,
            class: if is_health(path) { Class::Health } else { Class::Short },
            lane: match *method {
                Method::GET | Method::HEAD if path.starts_with("/openapi/") => Lane::Document,
                Method::GET | Method::HEAD => Lane::Read,
                _ => Lane::Write,
            },
        };
        let mut all = path.split('/').filter(|part| !part.is_empty());
        let mut parts: Vec<&str> = all.by_ref().take(PARTS).collect();
        match parts.first().copied() {
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
            if parts.len() > 2 && !subresource_of_namespace(parts[2]) {
                parts.drain(..2);
            }
        }
        info.resource = parts[0].to_string();
        info.behind = (parts.len() + all.count()).saturating_sub(3);
        if let Some(name) = parts.get(1) {
            info.name = name.to_string();
            info.name_in_path = true;
        }
        if let Some(subresource) = parts.get(2) {
            info.subresource = subresource.to_string();
        }
        let watching = query.get("watch").is_some_and(is_yes);
        info.verb = match *method {
            // Whatever the method is: only GET is answered there.
            _ if watch_path => "watch",
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
        if matches!(info.verb.as_str(), "list" | "watch" | "deletecollection") {
            info.select(query);
        }
        if (info.group.as_str(), info.resource.as_str()) == ("coordination.k8s.io", "leases")
            && matches!(info.verb.as_str(), "get" | "create" | "update" | "patch")
        {
            info.lane = Lane::Lease;
        }
        info.class = match info.verb.as_str() {
            "watch" => Class::Watch,
            _ => Class::Short,
        };
        info
    }

    /// Reads which objects are meant. One object by field selector is authorised as that object, where it is read: a right
    /// to delete it is none to delete collections.
    fn select(&mut self, query: &Query) {
        let text = query.get("fieldSelector").unwrap_or_default();
        match FieldSelector::parse_within(text, bounds::REQUIREMENTS) {
            Ok(fields) => self.fields = fields,
            Err(error @ InvalidFieldSelector::TooMany { .. }) => {
                self.bad_fields = Some(Status::bad_request(format!("fieldSelector: {error}")));
            }
            Err(error) => self.bad_fields = Some(Status::bad_request(error.to_string())),
        }
        if !self.name_in_path {
            if self.verb != "deletecollection" {
                self.name = self.fields.exact("metadata.name").unwrap_or_default().to_owned();
            }
            return;
        }
        let named = self.fields.exact("metadata.name").map(|name| name == self.name);
        if named == Some(false) || (named.is_none() && !self.fields.is_empty()) {
            let why = "fieldSelector metadata.name doesn't match requested name";
            self.bad_fields = Some(Status::bad_request(why));
        }
        self.fields = std::mem::take(&mut self.fields).and("metadata.name", &self.name);
    }
}

/// The question about health that a path is: `healthz`, `livez` or `readyz`, and the check that it names.
pub(crate) fn probe(path: &str) -> Option<(&str, Option<&str>)> {
    let path = path.strip_prefix('/')?;
    let (probe, check) = path.split_once('/').map_or((path, None), |(probe, check)| (probe, Some(check)));
    matches!(probe, "healthz" | "livez" | "readyz").then_some((probe, check))
}

/// Whether a path asks about health.
pub(crate) fn is_health(path: &str) -> bool {
    probe(path).is_some()
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
            ("DELETE", "/api/v1/watch/namespaces/x/pods/p", ["watch", "", "x", "pods", "", "p"]),
            ("GET", "/api/v1/pods?watch=1", ["watch", "", "", "pods", "", ""]),
            ("GET", "/api/v1/pods?watch=0", ["list", "", "", "pods", "", ""]),
            ("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dp", ["list", "", "", "pods", "", "p"]),
            // An escape belongs to the value, and other fields narrow no name.
            (
                "GET",
                "/api/v1/pods?fieldSelector=metadata.name%3Dp%5C%2Cx",
                ["list", "", "", "pods", "", "p,x"],
            ),
            ("GET", "/api/v1/pods?fieldSelector=metadata.name!%3Dp", ["list", "", "", "pods", "", ""]),
            (
                "GET",
                "/api/v1/pods?fieldSelector=spec.nodeName%3Dmetadata.name",
                ["list", "", "", "pods", "", ""],
            ),
            (
                "DELETE",
                "/api/v1/pods?fieldSelector=metadata.name%3Dp&fieldSelector=metadata.name%3Dq",
                ["deletecollection", "", "", "pods", "", ""],
            ),
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
    fn a_name_and_a_selector_are_one_selection() {
        for (uri, fields, good) in [
            ("/api/v1/watch/pods", "", true),
            ("/api/v1/pods/b?watch=true", "metadata.name=b", true),
            ("/api/v1/pods/b?watch=true&fieldSelector=metadata.name%3Db", "metadata.name=b", true),
            (
                "/api/v1/pods/b?watch=true&fieldSelector=metadata.name%3Da",
                "metadata.name=a,metadata.name=b",
                false,
            ),
            (
                "/api/v1/pods/b?watch=true&fieldSelector=spec.nodeName%3Da",
                "spec.nodeName=a,metadata.name=b",
                false,
            ),
            ("/api/v1/pods/b?watch=true&fieldSelector=nonsense", "metadata.name=b", false),
            // An object is read as it is.
            ("/api/v1/pods/b?fieldSelector=metadata.name%3Da", "", true),
        ] {
            let info = parse("GET", uri);
            assert_eq!(
                (info.fields.to_string().as_str(), info.bad_fields.is_none()),
                (fields, good),
                "{uri}"
            );
        }
    }

    #[test]
    fn no_more_is_read_than_there_may_be() {
        let pairs = |many: usize| Query::parse(&format!("&{}", "&a=1".repeat(many)));
        assert!(pairs(256).check().is_ok() && pairs(256).get("a") == Some("1"));
        let why = pairs(257).check().unwrap_err();
        assert_eq!((why.code(), pairs(257).get("a")), (400, None));
        assert!(why.message.starts_with("query: it has 257 parameters, and may have 256; "), "{why}");
        let terms = |many: usize| {
            let info = parse("GET", &format!("/api/v1/pods?fieldSelector={}", vec!["a=b"; many].join(",")));
            (info.fields.requirements().len(), info.bad_fields.map(|status| status.message))
        };
        assert_eq!(terms(128), (128, None));
        let why = "fieldSelector: it has 129 requirements, and may have 128; ask several times, or select by labels";
        assert_eq!(terms(129), (0, Some(why.to_owned())));
        let long = parse("GET", &format!("/api/v1/namespaces/x/pods/p/log{}", "/x".repeat(100)));
        assert_eq!((long.name.as_str(), long.subresource.as_str(), long.behind), ("p", "log", 100));
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
