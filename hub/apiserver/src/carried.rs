//! Subresources, paths and groups whose requests are carried on to somebody else, as they are.
//!
//! ```text
//!   front: who, as whom, may they ─► Call ─► Carrier ─► somebody else's answer, passed on
//!                                     │
//!                                     └ body unread, connection not yet another protocol's
//! ```
//!
//! Of a whole group each request is judged as what it is, by its verb, namespace, resource and name, and goes on with all of its
//! path. That of a subresource is judged by its method alone, as `create`, `delete`, `get`, `patch` or `update` of the subresource: what the
//! path says behind it is the other's business. Methods that HTTP does not have for objects are none. A request takes no seat
//! and has no deadline here: how many there may be is the carrier's to say. It ends with what the client has shown for
//! itself.

use std::{borrow::Cow, fmt, sync::Arc};

use axum::body::Body;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, header};
use karmada_meta::status::Status;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{
    audit::trail::Trail,
    authn::UserInfo,
    kinds::Subresource,
    listener::Busy,
    request::{Class, RequestInfo},
};

/// Verbs as discovery names them.
const VERBS: [&str; 5] = ["create", "delete", "get", "patch", "update"];

/// Methods that objects have; what else there is means something between two ends of a connection alone.
pub(crate) const METHODS: [Method; 7] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];

/// One request on its way to somebody else.
pub struct Call {
    /// In whose name it is made.
    pub user: UserInfo,
    /// Who has asked: whoever acts as others is still one.
    pub asked_by: String,
    /// The object whose subresource is asked; empty for a path that is no resource.
    pub name: String,
    /// What stands in the path behind the subresource, as it came: empty or with a slash in front. All of it for what is asked of
    /// a group; empty for another path.
    pub path: String,
    /// Method, headers, body, and the connection if it is to change its protocol. Of the URI the query counts.
    pub request: Request<Body>,
    /// By which the audit log tells of it.
    pub audit_id: String,
    /// To be kept as long as anything of it is open beyond the answer's body.
    pub held: Held,
    /// Resolves when it is to end, and visibly so, if it has not: what the client has shown holds no longer, its connection
    /// makes room for others, or this server stops.
    pub ends: BoxFuture<'static, ()>,
}

/// What is counted for a request, until it is dropped.
pub type Held = Arc<dyn Send + Sync>;

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Headers are nobody's business.
        f.debug_struct("Call")
            .field("user", &self.user.name)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Who answers such requests.
pub trait Carrier: Send + Sync + 'static {
    /// The answer to one. A [`Status`] is this server's own.
    fn carry(&self, call: Call) -> BoxFuture<'static, Result<Response<Body>, Status>>;
}

/// A subresource that is carried on.
#[derive(Clone)]
pub struct Carried {
    /// Group of the resource.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
    /// Plural.
    pub resource: &'static str,
    /// What stands behind the name.
    pub subresource: &'static str,
    /// The kind that discovery names.
    pub kind: &'static str,
    /// Who does it.
    pub by: Arc<dyn Carrier>,
}

/// A path that is no resource's, and is carried on.
#[derive(Clone)]
pub struct CarriedPath {
    /// All of it.
    pub path: &'static str,
    /// Who does it.
    pub by: Arc<dyn Carrier>,
}

/// A group of which no objects are kept here.
#[derive(Clone)]
pub struct CarriedGroup {
    /// Its name.
    pub group: &'static str,
    /// Its versions, the preferred one first. All have the same resources.
    pub versions: &'static [&'static str],
    /// What discovery names. There may be others, which only who answers knows.
    pub resources: Arc<[CarriedResource]>,
    /// Who does it.
    pub by: Arc<dyn Carrier>,
    /// Who knows which others there are, if anybody does.
    pub names: Option<Arc<dyn Names>>,
}

/// Who finds out what else there is in a group, when somebody looks at one of its versions in discovery.
pub trait Names: Send + Sync + 'static {
    /// All that discovery is to name from now on; nothing where that is what it names already. Soon, and with what is known by
    /// then: discovery waits for it.
    fn look(&self, user: &UserInfo, audit_id: &str) -> BoxFuture<'static, Option<Arc<[CarriedResource]>>>;
}

/// A resource of a group that is carried on. It is read, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CarriedResource {
    /// Plural; behind a slash what of it. One that was found out is never a label of a figure.
    pub name: Cow<'static, str>,
    /// The kind that discovery names.
    pub kind: &'static str,
    /// Whether it is in namespaces.
    pub namespaced: bool,
    /// Its verbs, as discovery names them.
    pub verbs: &'static [&'static str],
}

impl CarriedResource {
    /// Its name, if that was known from the beginning.
    pub(crate) fn fixed(&self) -> Option<&'static str> {
        match self.name {
            Cow::Borrowed(name) => Some(name),
            Cow::Owned(_) => None,
        }
    }
}

impl fmt::Debug for CarriedGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.group, self.versions)
    }
}

impl CarriedGroup {
    /// Whether a request is for this.
    pub(crate) fn is_meant(&self, info: &RequestInfo) -> bool {
        info.group == self.group && self.versions.contains(&info.version.as_str())
    }

    /// What a request is about, if that has a name from the beginning.
    pub(crate) fn fixed(&self, info: &RequestInfo) -> Option<&'static str> {
        self.resources.iter().filter_map(CarriedResource::fixed).find(|name| *name == info.resource)
    }

    /// Whether a path of discovery is that of one of its versions.
    pub(crate) fn is_version(&self, path: &str) -> bool {
        let version =
            path.strip_prefix("/apis/").and_then(|rest| rest.strip_prefix(self.group)?.strip_prefix('/'));
        version.is_some_and(|version| self.versions.contains(&version.strip_suffix('/').unwrap_or(version)))
    }
}

impl fmt::Debug for CarriedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.path)
    }
}

impl fmt::Debug for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} of {}", self.resource, self.subresource, self.group)
    }
}

impl Carried {
    /// Whether a request is for this.
    pub(crate) fn is_meant(&self, info: &RequestInfo) -> bool {
        info.name_in_path
            && (info.group.as_str(), info.version.as_str()) == (self.group, self.version)
            && (info.resource.as_str(), info.subresource.as_str()) == (self.resource, self.subresource)
    }

    /// Its row in discovery.
    pub(crate) fn listed(&self) -> Subresource {
        Subresource {
            name: self.subresource.to_owned(),
            kind: self.kind.to_owned(),
            group: String::new(),
            version: String::new(),
            verbs: VERBS.map(str::to_owned).to_vec(),
        }
    }
}

/// By whom a request is carried on, and until when at the latest.
pub(crate) struct Way {
    pub(crate) by: Arc<dyn Carrier>,
    pub(crate) stops: CancellationToken,
    /// That of a group: with all of its path. Under which resource it is counted.
    pub(crate) whole: Option<&'static str>,
}

impl Way {
    /// How a request is judged that goes this way.
    pub(crate) fn judge(&self, info: &mut RequestInfo, method: &Method) {
        match self.whole {
            Some(_) => info.class = Class::Carried,
            None => judged(info, method),
        }
    }
}

/// What a listener that has no API carries on ([`crate::front::PathService`]).
#[derive(Clone, Debug, Default)]
pub struct Ways {
    /// Of resources that are kept elsewhere.
    pub subresources: Vec<Carried>,
    /// And paths.
    pub paths: Vec<CarriedPath>,
    /// Ends what is open of them.
    pub stops: CancellationToken,
}

impl Ways {
    /// By whom a request is carried on, if by anybody.
    pub(crate) fn find(&self, info: &RequestInfo) -> Option<Way> {
        let by = match info.is_resource {
            true => &self.subresources.iter().find(|one| one.is_meant(info))?.by,
            false => &self.paths.iter().find(|one| one.path == info.path)?.by,
        };
        Some(Way { by: by.clone(), stops: self.stops.clone(), whole: None })
    }
}

/// What is counted and told while anything of a carried request is open.
pub(crate) struct Open {
    _figure: crate::metrics::Open,
    _busy: Option<Busy>,
    trail: Mutex<Option<Box<Trail>>>,
}

impl Open {
    pub(crate) fn new(figure: crate::metrics::Open, busy: Option<Busy>) -> Self {
        Self { _figure: figure, _busy: busy, trail: Mutex::default() }
    }

    /// The audit log tells of the end when all that is open has ended.
    pub(crate) fn tells(&self, trail: Option<Box<Trail>>) {
        *self.trail.lock() = trail;
    }
}

/// A request to be carried on is judged by its method, and by nothing else.
fn judged(info: &mut RequestInfo, method: &Method) {
    info.class = Class::Carried;
    info.verb = match *method {
        Method::GET | Method::HEAD => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        // As with Karmada: nobody has a right to a verb of no name, but for whoever has it to all.
        _ => "",
    }
    .to_owned();
    info.fields = karmada_meta::fields::FieldSelector::everything();
    info.bad_fields = None;
}

/// What stands behind the subresource in a path as it came. `None` where what was judged stands there in other words, with
/// signs that are written as `%XX`, a namespace or doubled slashes: that would be judged as one and done as another.
pub(crate) fn behind<'a>(info: &RequestInfo, path: &'a str) -> Option<&'a str> {
    let parts = [&info.group, &info.version, &info.resource, &info.name, &info.subresource];
    let mut rest = path.strip_prefix("/apis")?;
    for part in parts {
        rest = rest.strip_prefix('/')?;
        // Go writes a star so in some paths.
        let written = match part.as_str() {
            "*" if rest.starts_with("%2A") => "%2A",
            part => part,
        };
        rest = rest.strip_prefix(written)?;
    }
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

/// All of a path, if what was judged is all that stands there: see [`behind`]. Names may be written as `%XX`, but for slashes.
pub(crate) fn whole<'a>(info: &RequestInfo, path: &'a str) -> Option<&'a str> {
    let mut parts = vec!["", "apis", &info.group, &info.version];
    if !info.namespace.is_empty() {
        parts.extend(["namespaces", &info.namespace]);
    }
    parts.push(&info.resource);
    if info.name_in_path {
        parts.push(&info.name);
    }
    if !info.subresource.is_empty() {
        parts.push(&info.subresource);
    }
    let plain = parts.join("/");
    (info.path == plain && path.matches('/').count() == parts.len() - 1).then_some(path)
}

/// Who reads the subresource itself is sent to its root, as with kube-apiserver's proxies.
pub(crate) fn to_root(path: &str, query: Option<&str>) -> Response<Body> {
    let query = query.map_or_else(String::new, |query| format!("?{query}"));
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(place) = format!("{path}/{query}").parse() {
        response.headers_mut().insert(header::LOCATION, place);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Query;

    const PROXY: &str = "/apis/cluster.karmada.io/v1alpha1/clusters/m/proxy";

    #[test]
    fn what_is_judged_is_what_is_carried() {
        for (path, want) in [
            (PROXY.to_owned(), Some("")),
            (format!("{PROXY}/"), Some("/")),
            (format!("{PROXY}/api/v1/pods"), Some("/api/v1/pods")),
            (format!("{PROXY}/a%2Fb//c"), Some("/a%2Fb//c")),
            (PROXY.replace("/m/", "/*/") + "/api", Some("/api")),
            (PROXY.replace("/m/", "/%2A/") + "/api", Some("/api")),
            (PROXY.replace("/m/", "/%2a/") + "/api", None),
            ("/apis/cluster.karmada.io/v1alpha1/clusters/m%2Fproxy/api".to_owned(), None),
            ("/apis/cluster.karmada.io/v1alpha1/clusters/%6d/proxy/api".to_owned(), None),
            ("/apis/cluster.karmada.io/v1alpha1/namespaces/n/clusters/m/proxy/api".to_owned(), None),
            ("/apis/cluster.karmada.io/v1alpha1/watch/clusters/m/proxy/api".to_owned(), None),
            ("/apis/cluster.karmada.io/v1alpha1//clusters/m/proxy/api".to_owned(), None),
        ] {
            let info = RequestInfo::parse(&Method::GET, &path, &Query::parse(""));
            assert_eq!(behind(&info, &path), want, "{path}");
        }
    }

    #[test]
    fn all_of_a_path_is_carried_if_all_of_it_was_judged() {
        const GROUP: &str = "/apis/metrics.k8s.io/v1beta1";
        for (rest, want) in [
            ("/nodes", true),
            ("/nodes/n1", true),
            ("/namespaces/n/pods", true),
            ("/namespaces/n/pods/%2A/hits", true),
            ("/namespaces/n/pods/*/a%7Cb", true),
            ("/namespaces/n/metrics/hits", true),
            ("/namespaces/n/pods/", false),
            ("/namespaces/n//pods", false),
            ("/namespaces/n%2Fpods", false),
            ("/namespaces/n/pods/p/x/y", false),
            ("/namespaces/n/pods/p%2Fx", false),
            ("/watch/nodes", false),
            ("/namespaces/n", false),
        ] {
            let path = format!("{GROUP}{rest}");
            let info = RequestInfo::parse(&Method::GET, &path, &Query::parse(""));
            assert_eq!(whole(&info, &path), want.then_some(path.as_str()), "{path}");
        }
    }

    #[test]
    fn the_method_alone_is_judged() {
        for (method, uri, verb) in [
            (Method::GET, "?watch=true&fieldSelector=metadata.name%3Dx", "get"),
            (Method::HEAD, "", "get"),
            (Method::POST, "", "create"),
            (Method::PUT, "", "update"),
            (Method::PATCH, "", "patch"),
            (Method::DELETE, "", "delete"),
            (Method::OPTIONS, "", ""),
        ] {
            let mut info =
                RequestInfo::parse(&method, &format!("{PROXY}/api"), &Query::parse(&uri[uri.len().min(1)..]));
            judged(&mut info, &method);
            assert_eq!((info.verb.as_str(), info.name.as_str(), info.bad_fields), (verb, "m", None));
        }
    }
}
