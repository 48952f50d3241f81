//! What the member's owner lets through.

use std::{fmt, str::FromStr};

use super::{
    Refusal,
    asked::{Asked, Object, Target, Verb},
};

/// Subresources whose reading only reads: with any other, a GET may be a way to do something.
const READ: [&str; 4] = ["", "log", "scale", "status"];
/// What people ask about themselves, by POST: it changes nothing.
const SELF: [(&str, &str); 3] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
];
/// Places by which clients learn what there is.
const PLACES: [&str; 7] = ["api", "apis", "openapi", "version", "healthz", "livez", "readyz"];

/// How much a tunnel is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Nothing: there is none.
    #[default]
    Off,
    /// Reading objects and logs.
    ReadOnly,
    /// Whatever the user may do on the member.
    Full,
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "read-only" => Ok(Self::ReadOnly),
            "full" => Ok(Self::Full),
            other => Err(format!("{other:?} is none of off, read-only and full")),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::ReadOnly => "read-only",
            Self::Full => "full",
        })
    }
}

/// Some kinds: `pods`, `deployments.apps`, `pods/log`, `pods/*`, `*.apps`, or `*` for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// `None` for every group.
    group: Option<String>,
    /// `None` for every kind.
    resource: Option<String>,
    /// `None` for every subresource; empty for the objects themselves.
    subresource: Option<String>,
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("{text:?} names no kind: write RESOURCE[.GROUP][/SUBRESOURCE], as deployments.apps/scale")
        };
        let (kind, subresource) = text.split_once('/').map_or((text, ""), |(kind, sub)| (kind, sub));
        let (resource, group) = kind.split_once('.').map_or((kind, None), |(one, group)| (one, Some(group)));
        let plain = |part: &str| {
            let known =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
            part == "*" || (!part.is_empty() && part.bytes().all(known))
        };
        let ends_plain = !text.ends_with('/') && (subresource.is_empty() || plain(subresource));
        if !plain(resource) || !group.is_none_or(plain) || !ends_plain {
            return Err(wrong());
        }
        let any = |part: &str| (part != "*").then(|| part.to_owned());
        if text == "*" {
            return Ok(Self { group: None, resource: None, subresource: None });
        }
        Ok(Self {
            group: any(group.unwrap_or_default()),
            resource: any(resource),
            subresource: any(subresource),
        })
    }
}

impl Pattern {
    fn is_kind(&self, object: &Object) -> bool {
        let is = |wanted: &Option<String>, there: &str| wanted.as_ref().is_none_or(|wanted| wanted == there);
        is(&self.group, &object.group) && is(&self.resource, &object.resource)
    }

    /// As in RBAC, a kind is not its subresources.
    fn allows(&self, object: &Object) -> bool {
        let is = |wanted: &String| *wanted == object.subresource;
        self.is_kind(object) && self.subresource.as_ref().is_none_or(is)
    }

    /// Without a kind, nothing of it: its subresources go with it.
    fn denies(&self, object: &Object) -> bool {
        let is = |wanted: &String| wanted.is_empty() || *wanted == object.subresource;
        self.is_kind(object) && self.subresource.as_ref().is_none_or(is)
    }
}

/// All that the member's owner has said about requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// How much it is for.
    pub mode: Mode,
    /// These kinds alone, if any are named.
    pub allow: Vec<Pattern>,
    /// None of these, whatever else is said.
    pub deny: Vec<Pattern>,
    /// In these namespaces alone, if any are named; then nothing at cluster scope.
    pub namespaces: Vec<String>,
}

impl Limits {
    /// Lets a request through, or says why not.
    ///
    /// # Errors
    /// 403, with the flag that refuses it.
    pub fn judge(&self, asked: &Asked) -> Result<(), Refusal> {
        let refused = |why: String| Err(Refusal::Forbidden(why));
        if self.mode == Mode::Off {
            return refused("the tunnel of this member is off: --tunnel=off".to_owned());
        }
        let object = match asked.target() {
            Target::Place => return self.place(asked),
            Target::Object(object) => object,
        };
        if is_about_self(asked.verb(), object) && !asked.upgrades() {
            return Ok(());
        }
        let kind = kind(object);
        if self.mode == Mode::ReadOnly {
            let read_only = |what: &str| {
                format!("the tunnel of this member is for reading alone, {what}: --tunnel=read-only")
            };
            if asked.upgrades() {
                return refused(read_only("and a session may do anything"));
            }
            if !asked.verb().reads() {
                return refused(read_only(&format!("and {} {kind} is not", asked.verb().name())));
            }
            if !READ.contains(&object.subresource.as_str()) {
                return refused(read_only(&format!("and {kind} is more")));
            }
        }
        if self.deny.iter().any(|pattern| pattern.denies(object)) {
            return refused(format!("{kind} is denied on this member: --tunnel-deny"));
        }
        if !self.allow.is_empty() && !self.allow.iter().any(|pattern| pattern.allows(object)) {
            return refused(format!("{kind} is not among what is allowed on this member: --tunnel-allow"));
        }
        if !self.namespaces.is_empty() && !self.namespaces.contains(&object.namespace) {
            let at = match object.namespace.as_str() {
                "" => "all namespaces, or no namespace, are".to_owned(),
                one => format!("the namespace {one} is"),
            };
            return refused(format!("{at} not among what is allowed on this member: --tunnel-namespaces"));
        }
        Ok(())
    }

    /// A place that has no objects.
    fn place(&self, asked: &Asked) -> Result<(), Refusal> {
        let bounded = self.mode == Mode::ReadOnly || !self.allow.is_empty() || !self.namespaces.is_empty();
        if !bounded {
            return Ok(());
        }
        let uri = asked.uri();
        let path = uri.split('?').next().unwrap_or_default();
        let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        let known = path == "/" || PLACES.contains(&first);
        if known && asked.verb().reads() && !asked.upgrades() {
            return Ok(());
        }
        Err(Refusal::Forbidden(format!(
            "{} {path} is not allowed on this member: its tunnel is bounded by --tunnel, --tunnel-allow or \
             --tunnel-namespaces",
            asked.verb().name()
        )))
    }
}

fn is_about_self(verb: Verb, object: &Object) -> bool {
    let kind = (object.group.as_str(), object.resource.as_str());
    let bare = object.name.is_empty() && object.namespace.is_empty() && object.subresource.is_empty();
    verb == Verb::Create && bare && SELF.contains(&kind)
}

/// As people name it.
fn kind(object: &Object) -> String {
    let mut kind = object.resource.clone();
    for (sign, part) in [('.', &object.group), ('/', &object.subresource)] {
        if !part.is_empty() {
            kind.push(sign);
            kind.push_str(part);
        }
    }
    kind
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(mode: &str, allow: &[&str], deny: &[&str], namespaces: &[&str]) -> Limits {
        let patterns = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        Limits {
            mode: mode.parse().unwrap(),
            allow: patterns(allow),
            deny: patterns(deny),
            namespaces: namespaces.iter().map(|&one| one.to_owned()).collect(),
        }
    }

    /// A method and a path; `^` before it for an upgrade.
    fn let_through(limits: &Limits, line: &str) -> bool {
        let (upgrades, line) = line.strip_prefix('^').map_or((false, line), |line| (true, line));
        let (method, uri) = line.split_once(' ').unwrap();
        let (path, query) = uri.split_once('?').map_or((uri, None), |(path, query)| (path, Some(query)));
        let asked = Asked::of(method, path, query, upgrades).unwrap();
        limits.judge(&asked).is_ok()
    }

    fn table(limits: &Limits, yes: &[&str], no: &[&str]) {
        for line in yes {
            assert!(let_through(limits, line), "{line} with {limits:?}");
        }
        for line in no {
            assert!(!let_through(limits, line), "{line} with {limits:?}");
        }
    }

    const READS: [&str; 8] = [
        "GET /api/v1/pods?watch=1",
        "GET /api/v1/namespaces/n/pods/p",
        "GET /api/v1/namespaces/n/pods/p/log?follow=true",
        "HEAD /apis/apps/v1/deployments",
        "GET /apis/apps/v1/namespaces/n/deployments/d/scale",
        "GET /openapi/v3",
        "GET /",
        "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    ];
    const MORE: [&str; 17] = [
        "POST /api/v1/namespaces/n/pods",
        "PUT /api/v1/namespaces/n/pods/p/status",
        "PATCH /api/v1/nodes/x",
        "DELETE /api/v1/namespaces/n/pods/p",
        "DELETE /api/v1/namespaces/n/pods",
        "POST /api/v1/namespaces/n/pods/p/eviction",
        // By WebSocket a command is run by GET; also where the upgrade is asked for in a way that was not seen.
        "^GET /api/v1/namespaces/n/pods/p/exec?command=rm",
        "GET /api/v1/namespaces/n/pods/p/exec?command=rm",
        "GET /api/v1/namespaces/n/pods/p/attach",
        "GET /api/v1/namespaces/n/pods/p/portforward",
        "GET /api/v1/namespaces/n/services/s/proxy/restart",
        "GET /api/v1/nodes/x/proxy/run/n/p/c",
        "GET /apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachineinstances/v/console",
        "^GET /api/v1/namespaces/n/pods/p/log",
        "GET /debug/pprof/heap",
        "POST /version",
        "^GET /version",
    ];

    #[test]
    fn off_lets_nothing_through() {
        let off = Limits::default();
        table(&off, &[], &READS);
        table(&off, &[], &MORE);
    }

    #[test]
    fn read_only_reads() {
        table(&limits("read-only", &[], &[], &[]), &READS, &MORE);
    }

    #[test]
    fn full_is_the_members_business() {
        let full = limits("full", &[], &[], &[]);
        table(&full, &READS, &[]);
        table(&full, &MORE, &[]);
    }

    #[test]
    fn kinds_that_are_allowed() {
        let some = limits("full", &["pods", "pods/log", "*.apps", "deployments.apps/*"], &[], &[]);
        table(
            &some,
            &[
                "GET /api/v1/pods",
                "DELETE /api/v1/namespaces/n/pods/p",
                "GET /api/v1/namespaces/n/pods/p/log",
                "GET /apis/apps/v1/statefulsets",
                "PUT /apis/apps/v1/namespaces/n/deployments/d/scale",
                "GET /apis",
                "POST /apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
            ],
            &[
                "^POST /api/v1/namespaces/n/pods/p/exec",
                "GET /apis/metrics.k8s.io/v1beta1/pods",
                "GET /api/v1/secrets",
                "PUT /apis/apps/v1/namespaces/n/statefulsets/s/scale",
                "GET /metrics",
                "^POST /apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
                "POST /apis/authorization.k8s.io/v1/namespaces/n/selfsubjectrulesreviews",
            ],
        );
    }

    #[test]
    fn what_is_denied_is_denied_first() {
        let but = limits("full", &["*"], &["secrets", "pods/exec", "*.rbac.authorization.k8s.io"], &[]);
        table(
            &but,
            &["GET /api/v1/pods", "GET /apis/example.io/v1/secrets", "GET /api/v1/namespaces/n/pods/p/log"],
            &[
                "GET /api/v1/secrets?watch=1",
                "GET /api/v1/namespaces/n/secrets/s/anything",
                "^POST /api/v1/namespaces/n/pods/p/exec",
                "POST /apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            ],
        );
    }

    #[test]
    fn namespaces_that_are_allowed() {
        let shop = limits("full", &[], &[], &["shop"]);
        table(
            &shop,
            &["GET /api/v1/namespaces/shop/pods", "GET /api/v1/namespaces/shop", "GET /api/v1"],
            &[
                "GET /api/v1/pods",
                "GET /api/v1/nodes",
                "GET /api/v1/namespaces",
                "GET /api/v1/namespaces/shops/pods",
                "DELETE /api/v1/namespaces/other",
                "GET /logs/",
            ],
        );
    }

    #[test]
    fn a_refusal_names_the_flag() {
        for (limits, line, flag) in [
            (Limits::default(), "/api/v1/pods", "--tunnel=off"),
            (limits("read-only", &[], &[], &[]), "/api/v1/nodes/x/proxy", "--tunnel=read-only"),
            (limits("full", &["pods"], &[], &[]), "/api/v1/nodes", "--tunnel-allow"),
            (limits("full", &[], &["nodes"], &[]), "/api/v1/nodes", "--tunnel-deny"),
            (limits("full", &[], &[], &["n"]), "/api/v1/nodes", "--tunnel-namespaces"),
        ] {
            let refusal = limits.judge(&Asked::of("GET", line, None, false).unwrap()).unwrap_err();
            assert_eq!(refusal.code(), 403);
            assert!(refusal.message().contains(flag), "{}", refusal.message());
        }
    }

    #[test]
    fn what_is_written() {
        for text in ["off", "read-only", "full"] {
            assert_eq!(text.parse::<Mode>().unwrap().to_string(), text);
        }
        assert!("Full".parse::<Mode>().is_err());
        for text in
            ["", "/", "pods/", "/log", "pods.", ".apps", "Pods", "pods exec", "pods/log/x", "pods,secrets"]
        {
            assert!(text.parse::<Pattern>().is_err(), "{text}");
        }
    }
}
