//! What is asked of a member: where, and how long that may take.

use http::{Method, StatusCode, Uri};
use karmada_client::place::goes_down;
use karmada_meta::query::watches;

/// Subresources whose answers last as long as somebody listens.
const LONG: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// The place on a member that a path behind `proxy` means.
///
/// # Errors
/// What is wrong with the path, for the client.
pub(crate) fn place(server: &Uri, path: &str, query: Option<&str>) -> Result<Uri, String> {
    // A server may decode a path before it takes steps back.
    if !goes_down(path) {
        return Err("the path has . or .. in it, or signs that belong in no URL".to_owned());
    }
    let prefix = server.path().trim_end_matches('/');
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let query = query.map_or_else(String::new, |query| format!("?{query}"));
    let mut parts = server.clone().into_parts();
    parts.path_and_query = Some(
        format!("{prefix}{path}{query}")
            .parse()
            .map_err(|error| format!("the path cannot be sent: {error}"))?,
    );
    Uri::from_parts(parts).map_err(|error| format!("the path cannot be sent: {error}"))
}

/// What stands behind the server's own path in a place that a member names, if that is on the member: a path, as
/// kube-apiserver's redirects are. The rest begins with a slash, and has no step back in it: behind the hub's own path that
/// would be a place of the hub's, or on another member.
pub(crate) fn inside<'a>(server: &Uri, to: &'a str) -> Option<&'a str> {
    if !to.starts_with('/') || to.starts_with("//") || !goes_down(to) || to.contains('\\') {
        return None;
    }
    let rest = to.strip_prefix(server.path().trim_end_matches('/'))?;
    rest.starts_with('/').then_some(rest)
}

/// Whether an answer has the client do the same again elsewhere, though that may change something: it is the user, not a
/// member, who says what is done. kube-apiserver answers so for nothing of its own.
pub(crate) fn repeats(method: &Method, code: StatusCode) -> bool {
    matches!(code, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT)
        && !matches!(*method, Method::GET | Method::HEAD)
}

/// Whether an answer lasts as long as somebody listens: a watch, logs, or what goes to Pods themselves.
pub(crate) fn lasts(path: &str, query: Option<&str>) -> bool {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (["api", _, object @ ..] | ["apis", _, _, object @ ..]) = parts.as_slice() else { return false };
    let object = match object {
        ["watch", ..] => return true,
        ["namespaces", _, rest @ ..] if rest.len() > 1 => rest,
        other => other,
    };
    watches(query) || object.get(2).is_some_and(|subresource| LONG.contains(subresource))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_goes_behind_the_servers_own() {
        for (server, path, query, want) in [
            ("https://m:6443", "/api", None, Ok("https://m:6443/api")),
            ("https://m:6443/", "/", None, Ok("https://m:6443/")),
            (
                "https://m/k8s/c-1/",
                "/api/v1/pods",
                Some("limit=5&x=%2F"),
                Ok("https://m/k8s/c-1/api/v1/pods?limit=5&x=%2F"),
            ),
            ("https://m/k8s", "", None, Ok("https://m/k8s/")),
            ("https://m/k8s", "/a%2Fb//c", None, Ok("https://m/k8s/a%2Fb//c")),
            ("https://m/k8s", "/../admin", None, Err(())),
            ("https://m/k8s", "/api/%2e%2E/admin", None, Err(())),
            ("https://m/k8s", "/api%2f..%2Fadmin", None, Err(())),
            ("https://m/k8s", "/api/.%2e/admin", None, Err(())),
            ("https://m/k8s", "/api\\..\\admin", None, Err(())),
            ("https://m/k8s", "/.", None, Err(())),
            ("https://m/k8s", "/a..b/...", None, Ok("https://m/k8s/a..b/...")),
        ] {
            let made = place(&server.parse().unwrap(), path, query).map(|uri| uri.to_string()).map_err(drop);
            assert_eq!(made, want.map(str::to_owned), "{path}");
        }
    }

    #[test]
    fn who_is_sent_elsewhere_stays_on_the_member() {
        for (server, to, want) in [
            ("https://m:6443", "/api/v1/", Some("/api/v1/")),
            ("https://m/k8s/c-1", "/k8s/c-1/api?x=y", Some("/api?x=y")),
            ("https://m/k8s/c-1", "/k8s/c-10/api", None),
            ("https://m/k8s/c-1", "/api", None),
            ("https://m:6443", "http://elsewhere/", None),
            ("https://m:6443", "https://m:6443/api", None),
            ("https://m:6443", "//elsewhere/x", None),
            ("https://m:6443", "/\\elsewhere", None),
            ("https://m:6443", "api", None),
            ("https://m:6443", "/../../other/proxy/api/v1/secrets", None),
            ("https://m:6443", "/api/../..", None),
            ("https://m:6443", "/api/%2e%2E/x", None),
            ("https://m:6443", "/api%2f..%2f..%2fx", None),
            ("https://m:6443", "/api/..\\x", None),
            ("https://m:6443", "/.\t./x", None),
            ("https://m/k8s", "/k8s/../x", None),
            ("https://m/k8s", "/x/../k8s/", None),
            ("https://m:6443", "/api?from=/../x", Some("/api?from=/../x")),
            ("https://m:6443", "", None),
        ] {
            assert_eq!(inside(&server.parse().unwrap(), to), want, "{to}");
        }
    }

    #[test]
    fn what_lasts() {
        for (path, query, want) in [
            ("/api/v1/pods", None, false),
            ("/api/v1/pods", Some("watch=true"), true),
            ("/api/v1/pods", Some("a=b&watch=1"), true),
            ("/api/v1/pods", Some("watch=false"), false),
            ("/api/v1/pods", Some("watch=False"), false),
            ("/api/v1/pods", Some("watch=0"), false),
            // As API servers read it: everything is true but what says that it is not.
            ("/api/v1/pods", Some("a=b&watch"), true),
            ("/api/v1/pods", Some("watch="), true),
            ("/api/v1/pods", Some("%77atch=1"), true),
            ("/api/v1/pods", Some("watch=0&watch=1"), false),
            ("/api/v1/pods", Some("watch=%zz"), false),
            ("/api/v1/pods", Some("watch;"), false),
            ("/api/v1/watch/pods", None, true),
            ("/api/v1/namespaces/n/pods/p", None, false),
            ("/api/v1/namespaces/n/pods/p/log", None, true),
            ("/api/v1/namespaces/n/pods/p/exec", Some("command=ls"), true),
            ("/api/v1/namespaces/n/status", None, false),
            ("/api/v1/namespaces/n/services/s/proxy/metrics", None, true),
            ("/api/v1/nodes/log/status", None, false),
            ("/apis/apps/v1/namespaces/n/deployments/d/scale", None, false),
            ("/version", None, false),
            ("/apis", None, false),
        ] {
            assert_eq!(lasts(path, query), want, "{path} {query:?}");
        }
    }
}
