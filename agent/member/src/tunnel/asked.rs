//! What a request asks of the member's API.

use karmada_meta::query::watches;

use super::Refusal;

/// The longest path that is looked at: API servers take no longer ones in practice.
const LONGEST: usize = 4096;
/// The subresource behind which a path is somebody else's.
const PROXY: &str = "proxy";

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// One object, or a place that is no object.
    Get,
    /// Many.
    List,
    /// Their changes.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH.
    Patch,
    /// DELETE of one.
    Delete,
    /// DELETE of many.
    DeleteCollection,
}

impl Verb {
    /// As RBAC and the audit log name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// Whether it changes nothing.
    pub(super) fn reads(self) -> bool {
        matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// An object, or all of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object {
    /// Empty for the core group.
    pub group: String,
    /// Plural.
    pub resource: String,
    /// Empty where there is none.
    pub subresource: String,
    /// Empty for all, and at cluster scope. A Namespace is in itself.
    pub namespace: String,
    /// Empty for all.
    pub name: String,
}

/// On what it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Objects.
    Object(Object),
    /// A place that has none, such as `/version`.
    Place,
}

/// A request as it is judged, and as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    verb: Verb,
    target: Target,
    upgrades: bool,
    path: String,
    query: Option<String>,
}

impl Asked {
    /// Takes a request apart.
    ///
    /// # Errors
    /// Where its path or method can be understood in several ways, or in none.
    pub fn of(method: &str, path: &str, query: Option<&str>, upgrades: bool) -> Result<Self, Refusal> {
        let target = target(path)?;
        if query.is_some_and(|query| !query.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#')) {
            return Err(unclear("the query has signs in it that belong in no URL"));
        }
        let named = match &target {
            Target::Object(object) => !object.name.is_empty(),
            Target::Place => true,
        };
        let verb = match (method, named) {
            ("GET" | "HEAD", true) => Verb::Get,
            ("GET" | "HEAD", false) if watches(query) => Verb::Watch,
            ("GET" | "HEAD", false) => Verb::List,
            ("POST", _) => Verb::Create,
            ("PUT", _) => Verb::Update,
            ("PATCH", _) => Verb::Patch,
            ("DELETE", true) => Verb::Delete,
            ("DELETE", false) => Verb::DeleteCollection,
            _ => return Err(unclear(&format!("the method {method:?} is not passed on"))),
        };
        Ok(Self { verb, target, upgrades, path: path.to_owned(), query: query.map(str::to_owned) })
    }

    /// What is done.
    pub fn verb(&self) -> Verb {
        self.verb
    }

    /// On what.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Whether the connection is to change its protocol.
    pub fn upgrades(&self) -> bool {
        self.upgrades
    }

    /// Path and query, as they are to be sent.
    pub fn uri(&self) -> String {
        match &self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.clone(),
        }
    }
}

fn unclear(why: &str) -> Refusal {
    Refusal::Unclear(why.to_owned())
}

/// What a path means.
fn target(path: &str) -> Result<Target, Refusal> {
    if path.len() > LONGEST {
        return Err(unclear(&format!("the path is longer than {LONGEST} bytes")));
    }
    let strange = |byte: u8| !byte.is_ascii_graphic() || matches!(byte, b'\\' | b'#' | b'?' | b';');
    if path.bytes().any(strange) {
        return Err(unclear("the path has signs in it that servers read in several ways"));
    }
    let Some(inner) = path.strip_prefix('/') else {
        return Err(unclear("the path does not begin with a slash"));
    };
    let written: Vec<String> = inner.split('/').map(plain).collect();
    let parts: Vec<&str> = written.iter().map(String::as_str).collect();
    let (target, foreign) = meant(&parts)?;
    let ours = parts.len() - foreign;
    for (at, part) in parts.iter().enumerate() {
        let plain = part.to_ascii_lowercase().replace("%2e", ".");
        // Also behind a proxy, where other servers read the path: steps back would lead out of there.
        if plain == "." || plain == ".." {
            return Err(unclear("the path has . or .. in it"));
        }
        let hidden = ["%25", "%2f", "%5c", "%00"];
        if hidden.iter().any(|hidden| plain.contains(hidden)) {
            return Err(unclear("the path has slashes or percent signs in it that are written as %XX"));
        }
        if at < ours && part.contains('%') {
            return Err(unclear("the path names an object with signs that are written as %XX"));
        }
        let last = at + 1 == parts.len();
        if part.is_empty() && at < ours && !(last && (target == Target::Place || parts.len() == 1)) {
            return Err(unclear("the path has doubled slashes in it, or one at its end"));
        }
    }
    Ok(target)
}

/// A part of a path as the member reads it, as far as that is plain: Go writes the star of all objects of a metric as `%2A`, and the
/// bar in a metric's name as `%7C`. They part nothing, and are judged as what they are.
fn plain(part: &str) -> String {
    part.replace("%2A", "*").replace("%2a", "*").replace("%7C", "|").replace("%7c", "|")
}

/// The meaning of a path, and how many parts at its end are not the API server's to read.
fn meant(parts: &[&str]) -> Result<(Target, usize), Refusal> {
    let (group, rest) = match parts {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => return Ok((Target::Place, 0)),
    };
    if let [] | [""] = rest {
        return Ok((Target::Place, 0));
    }
    if matches!(rest, ["watch" | "proxy", ..]) {
        return Err(unclear(
            "paths of the form watch/… and proxy/… are obsolete: ask for ?watch=true, or NAME/proxy",
        ));
    }
    let (namespace, object) = match rest {
        // A Namespace itself, and its subresources.
        ["namespaces"] => ("", rest),
        ["namespaces", name] | ["namespaces", name, "status" | "finalize", ..] => (*name, rest),
        ["namespaces", name, object @ ..] => (*name, object),
        _ => ("", rest),
    };
    let text = |at: usize| object.get(at).copied().unwrap_or_default().to_owned();
    if object.len() > 3 && object[2] != PROXY {
        return Err(unclear("the path goes on behind a subresource"));
    }
    let meant = Object {
        group: group.to_owned(),
        resource: text(0),
        subresource: text(2),
        namespace: namespace.to_owned(),
        name: text(1),
    };
    Ok((Target::Object(meant), object.len().saturating_sub(3)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(method: &str, path: &str, query: Option<&str>) -> String {
        match Asked::of(method, path, query, false) {
            Ok(asked) => match &asked.target {
                Target::Place => format!("{} place", asked.verb.name()),
                Target::Object(one) => format!(
                    "{} {}|{}|{}|{}|{}",
                    asked.verb.name(),
                    one.group,
                    one.resource,
                    one.subresource,
                    one.namespace,
                    one.name
                ),
            },
            Err(refusal) => refusal.code().to_string(),
        }
    }

    #[test]
    fn what_is_asked() {
        for (method, path, query, want) in [
            ("GET", "/", None, "get place"),
            ("GET", "/version", None, "get place"),
            ("GET", "/api", None, "get place"),
            ("GET", "/api/v1", None, "get place"),
            ("GET", "/api/v1/", None, "get place"),
            ("GET", "/apis/apps/v1", None, "get place"),
            ("GET", "/openapi/v3/apis/apps/v1", None, "get place"),
            ("GET", "/api/v1/pods", None, "list |pods|||"),
            ("HEAD", "/api/v1/pods", Some("limit=5"), "list |pods|||"),
            ("GET", "/api/v1/pods", Some("watch=true"), "watch |pods|||"),
            ("GET", "/api/v1/pods", Some("a=b&watch"), "watch |pods|||"),
            ("GET", "/api/v1/pods", Some("watch=False"), "list |pods|||"),
            ("GET", "/api/v1/pods", Some("%77atch=1"), "watch |pods|||"),
            ("GET", "/api/v1/namespaces/n/pods/p", Some("watch=true"), "get |pods||n|p"),
            ("GET", "/api/v1/namespaces/n/pods/p/log", Some("follow=true"), "get |pods|log|n|p"),
            ("POST", "/api/v1/namespaces/n/pods/p/exec", Some("command=ls"), "create |pods|exec|n|p"),
            ("PATCH", "/apis/apps/v1/namespaces/n/deployments/d", None, "patch apps|deployments||n|d"),
            (
                "PUT",
                "/apis/apps/v1/namespaces/n/deployments/d/scale",
                None,
                "update apps|deployments|scale|n|d",
            ),
            ("DELETE", "/api/v1/namespaces/n/pods", None, "deletecollection |pods||n|"),
            ("DELETE", "/api/v1/nodes/x", None, "delete |nodes|||x"),
            ("GET", "/api/v1/namespaces", None, "list |namespaces|||"),
            ("DELETE", "/api/v1/namespaces/n", None, "delete |namespaces||n|n"),
            ("PUT", "/api/v1/namespaces/n/finalize", None, "update |namespaces|finalize|n|n"),
            (
                "GET",
                "/api/v1/namespaces/n/services/https:s:8443/proxy/a//b%20c",
                None,
                "get |services|proxy|n|https:s:8443",
            ),
            ("GET", "/api/v1/nodes/x/proxy/logs/", None, "get |nodes|proxy||x"),
            // As Go writes a star and a bar.
            (
                "GET",
                "/apis/custom.metrics.k8s.io/v1beta2/namespaces/n/pods/%2A/a%7cb",
                None,
                "get custom.metrics.k8s.io|pods|a|b|n|*",
            ),
            (
                "GET",
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node",
                None,
                "get rbac.authorization.k8s.io|clusterroles|||system:node",
            ),
        ] {
            assert_eq!(told(method, path, query), want, "{method} {path}");
        }
    }

    #[test]
    fn what_could_be_read_in_another_way_is_refused() {
        for path in [
            "",
            "api/v1/pods",
            "//api/v1/pods",
            "/api//v1/pods",
            "/api/v1//pods",
            "/api/v1/pods/",
            "/api/v1/namespaces//pods",
            "/api/v1/namespaces/n/pods/",
            "/api/v1/namespaces/n/pods/p/",
            "/api/v1/namespaces/n/pods/p//exec",
            "/api/v1/namespaces/n/pods/p/log/more",
            "/api/v1/namespaces/n/pods/../secrets",
            "/api/v1/namespaces/n/pods/%2e%2E/secrets",
            "/api/v1/namespaces/n/pods/p%2Fexec",
            "/api/v1/namespaces/n/pod%73/p",
            "/api/v1/namespaces/n/pods/%2A%2e",
            "/api/v1/namespaces/n/pods/%252A",
            "/api/v1/namespaces/n/pods\\p",
            "/api/v1/namespaces/n/services/s/proxy/../../secrets",
            "/api/v1/namespaces/n/services/s/proxy/%2e./secrets",
            "/api/v1/namespaces/n/services/s/proxy/a%2f..%2fb",
            "/api/v1/namespaces/n/services/s/proxy/%252e%252e/b",
            "/api/v1/watch/pods",
            "/api/v1/watch",
            "/api/v1/namespaces/n/status/x",
            "/apis/g/v1/namespaces/n/namespaces/%78/proxy/y",
            "/api/v1/proxy/nodes/x",
            "/%61pi/v1/pods",
            "/version/../api/v1/secrets",
            "/api/v1/pods;x=y",
            "/api/v1/pods#x",
            "/api/v1/pöds",
            "/api/v1/pods x",
        ] {
            assert_eq!(told("GET", path, None), "400", "{path}");
        }
        for method in ["CONNECT", "TRACE", "OPTIONS", "get", "", "LIST"] {
            assert_eq!(told(method, "/api/v1/pods", None), "400", "{method}");
        }
        assert_eq!(told("GET", "/api/v1/pods", Some("a=b c")), "400");
        assert_eq!(told("GET", "/api/v1/pods", Some("a\r\nx: y")), "400");
        assert_eq!(told("GET", &format!("/api/v1/pods/{}", "x".repeat(LONGEST)), None), "400");
    }

    #[test]
    fn what_was_judged_is_sent() {
        for (path, query, want) in [
            ("/api/v1/pods", None, "/api/v1/pods"),
            ("/api/v1/pods", Some("labelSelector=a%3Db&watch=1"), "/api/v1/pods?labelSelector=a%3Db&watch=1"),
            ("/apis/g/v1/pods/%2A/hits", None, "/apis/g/v1/pods/%2A/hits"),
            ("/api/v1/nodes/x/proxy/a%20b//", Some(""), "/api/v1/nodes/x/proxy/a%20b//?"),
        ] {
            assert_eq!(Asked::of("GET", path, query, false).unwrap().uri(), want);
        }
    }
}
