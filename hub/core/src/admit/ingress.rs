//! MultiClusterIngresses: the rules of Kubernetes' Ingresses.

use std::net::IpAddr;

use karmada_meta::{
    names as syntax, object,
    path::{FieldError, Path},
};
use serde::Deserialize;
use serde_json::Value;

use super::shape::{self, Shape};

pub(super) const SHAPE: Shape = Shape { required: &[], words: &[] };

/// What stands in no path that is matched part by part.
const NOT_WITHIN: [&str; 5] = ["//", "/./", "/../", "%2f", "%2F"];
/// Nor at its end.
const NOT_AT_THE_END: [&str; 2] = ["/..", "/."];
const LONGEST_PORT_NAME: usize = 15;
const PATH_TYPES: [&str; 3] = ["Exact", "ImplementationSpecific", "Prefix"];

#[derive(Default, Deserialize)]
#[serde(default)]
struct Whole {
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    ingress_class_name: Option<String>,
    default_backend: Option<Backend>,
    rules: Vec<Rule>,
    tls: Vec<Tls>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Rule {
    host: String,
    http: Option<Http>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Http {
    paths: Vec<HttpPath>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct HttpPath {
    path: String,
    path_type: Option<String>,
    backend: Backend,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Backend {
    service: Option<Service>,
    resource: Option<Reference>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Service {
    name: String,
    port: Port,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Port {
    name: String,
    number: i64,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Reference {
    api_group: Option<String>,
    kind: String,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Tls {
    hosts: Vec<String>,
    secret_name: String,
}

/// Checks a MultiClusterIngress. What was there before stays.
pub(super) fn validate(old: Option<&Value>, object: &Value) -> Result<Vec<String>, Vec<FieldError>> {
    if old.is_some_and(|old| old["spec"] == object["spec"]) {
        return Ok(Vec::new());
    }
    let spec = shape::read::<Whole>(object)?.spec;
    let mut errors = Vec::new();
    let name = object::name(object);
    of_text(&mut errors, &Path::new("metadata").child("name"), name, syntax::dns1123_subdomain_errors(name));
    of_spec(&mut errors, &Path::new("spec"), &spec, &object["spec"]["rules"]);
    if errors.is_empty() { Ok(Vec::new()) } else { Err(errors) }
}

fn of_spec(errors: &mut Vec<FieldError>, path: &Path, spec: &Spec, rules: &Value) {
    if spec.rules.is_empty() && spec.default_backend.is_none() {
        let why = "either `defaultBackend` or `rules` must be specified";
        errors.push(FieldError::invalid(path, rules.clone(), why));
    }
    if let Some(backend) = &spec.default_backend {
        of_backend(errors, &path.child("defaultBackend"), backend);
    }
    for (i, rule) in spec.rules.iter().enumerate() {
        let path = path.child("rules").index(i);
        if !rule.host.is_empty() {
            of_host(errors, &path.child("host"), &rule.host, true);
        }
        if let Some(http) = &rule.http {
            let path = path.child("http").child("paths");
            if http.paths.is_empty() {
                errors.push(FieldError::required(&path, ""));
            }
            for (i, of) in http.paths.iter().enumerate() {
                of_path(errors, &path.index(i), of);
            }
        }
    }
    for (i, tls) in spec.tls.iter().enumerate() {
        let path = path.child("tls").index(i);
        for (i, host) in tls.hosts.iter().enumerate() {
            of_host(errors, &path.child("hosts").index(i), host, false);
        }
        if !tls.secret_name.is_empty() {
            let why = syntax::dns1123_subdomain_errors(&tls.secret_name);
            of_text(errors, &path.child("secretName"), &tls.secret_name, why);
        }
    }
    if let Some(class) = &spec.ingress_class_name {
        let why = syntax::dns1123_subdomain_errors(class);
        of_text(errors, &path.child("ingressClassName"), class, why);
    }
}

fn of_text(errors: &mut Vec<FieldError>, path: &Path, text: &str, why: Vec<String>) {
    errors.extend(why.into_iter().map(|why| FieldError::invalid(path, text, why)));
}

fn of_host(errors: &mut Vec<FieldError>, path: &Path, host: &str, by_name: bool) {
    if by_name && is_address(host) {
        errors.push(FieldError::invalid(path, host, "must be a DNS name, not an IP address"));
    }
    let why = match host.contains('*') {
        true => wildcard_errors(host),
        false => syntax::dns1123_subdomain_errors(host),
    };
    of_text(errors, path, host, why);
}

/// What is wrong with a subdomain that has a `*.` in front.
fn wildcard_errors(host: &str) -> Vec<String> {
    if host.strip_prefix("*.").is_some_and(|rest| syntax::dns1123_subdomain(rest).is_ok()) {
        return Vec::new();
    }
    vec![syntax::regex_error(
        "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case \
         alphanumeric characters, '-' or '.' and end with an alphanumeric character",
        r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
        &["*.example.com"],
    )]
}

/// What is wrong with the name of a port of a Service.
fn port_name_errors(name: &str) -> Vec<String> {
    let is_good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let mut errors = Vec::new();
    if name.len() > LONGEST_PORT_NAME {
        errors.push(syntax::max_len_error(LONGEST_PORT_NAME));
    }
    let rules = [
        (name.bytes().all(is_good), "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"),
        (name.bytes().any(|byte| byte.is_ascii_lowercase()), "must contain at least one letter (a-z)"),
        (!name.contains("--"), "must not contain consecutive hyphens"),
        (!name.starts_with('-') && !name.ends_with('-'), "must not begin or end with a hyphen"),
    ];
    errors.extend(rules.into_iter().filter(|(holds, _)| !holds).map(|(_, why)| why.to_owned()));
    errors
}

/// As Kubernetes reads addresses, which allows for zeros in front.
fn is_address(text: &str) -> bool {
    let is_part = |part: &str| {
        part.bytes().all(|byte| byte.is_ascii_digit()) && part.parse::<u32>().is_ok_and(|part| part <= 255)
    };
    let parts: Vec<&str> = text.split('.').collect();
    text.parse::<IpAddr>().is_ok() || (parts.len() == 4 && parts.into_iter().all(is_part))
}

fn of_path(errors: &mut Vec<FieldError>, path: &Path, of: &HttpPath) {
    let at = path.child("path");
    let Some(path_type) = &of.path_type else {
        errors.push(FieldError::required(&path.child("pathType"), "pathType must be specified"));
        return;
    };
    let mut refuse = |why: String| errors.push(FieldError::invalid(&at, of.path.as_str(), why));
    let is_absolute = of.path.starts_with('/');
    match path_type.as_str() {
        "Exact" | "Prefix" => {
            if !is_absolute {
                refuse("must be an absolute path".to_owned());
            }
            for part in NOT_WITHIN.into_iter().filter(|part| of.path.contains(part)) {
                refuse(format!("must not contain '{part}'"));
            }
            for end in NOT_AT_THE_END.into_iter().filter(|end| of.path.ends_with(end)) {
                refuse(format!("cannot end with '{end}'"));
            }
        }
        "ImplementationSpecific" => {
            if !of.path.is_empty() && !is_absolute {
                refuse("must be an absolute path".to_owned());
            }
        }
        other => errors.push(FieldError::not_supported(&path.child("pathType"), other, &PATH_TYPES)),
    }
    of_backend(errors, &path.child("backend"), &of.backend);
}

fn of_backend(errors: &mut Vec<FieldError>, path: &Path, backend: &Backend) {
    match (&backend.resource, &backend.service) {
        (Some(_), Some(_)) => {
            errors.push(FieldError::invalid(path, "", "cannot set both resource and service backends"));
        }
        (Some(resource), None) => of_reference(errors, &path.child("resource"), resource),
        (None, Some(service)) => of_service(errors, path, service),
        (None, None) => errors.push(FieldError::invalid(path, "", "resource or service backend is required")),
    }
}

fn of_reference(errors: &mut Vec<FieldError>, path: &Path, of: &Reference) {
    if let Some(group) = &of.api_group {
        of_text(errors, &path.child("apiGroup"), group, syntax::dns1123_subdomain_errors(group));
    }
    for (field, text) in [("kind", &of.kind), ("name", &of.name)] {
        let path = path.child(field);
        if text.is_empty() {
            errors.push(FieldError::required(&path, format!("{field} is required")));
        } else {
            of_text(errors, &path, text, syntax::path_segment_errors(text));
        }
    }
}

fn of_service(errors: &mut Vec<FieldError>, path: &Path, service: &Service) {
    let (of_name, of_port) = (path.child("service").child("name"), path.child("service").child("port"));
    if service.name.is_empty() {
        errors.push(FieldError::required(&of_name, ""));
    } else {
        of_text(errors, &of_name, &service.name, syntax::dns1035_label_errors(&service.name));
    }
    let Port { name, number } = &service.port;
    match (name.is_empty(), *number) {
        (true, 0) => errors.push(FieldError::required(path, "port name or number is required")),
        (false, 0) => of_text(errors, &of_port.child("name"), name, port_name_errors(name)),
        (true, 1..=65535) => {}
        (true, number) => {
            let why = "must be between 1 and 65535, inclusive";
            errors.push(FieldError::invalid(&of_port.child("number"), number, why));
        }
        (false, _) => {
            errors.push(FieldError::invalid(path, "", "cannot set both port name & port number"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        super::{Verb, admit},
        *,
    };

    const KIND: &str = "networking.karmada.io/MultiClusterIngress";

    fn of(spec: Value) -> Value {
        json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": spec})
    }

    fn admitted(old: Option<&Value>, mut object: Value) -> Vec<String> {
        let verb = if old.is_some() { Verb::Update } else { Verb::Create };
        let before = object.clone();
        match admit(KIND, verb, old, &mut object, &mut String::new, "2026-01-01T00:00:00Z") {
            Ok(warnings) => {
                assert_eq!((object, warnings), (before, Vec::new()), "nothing of it has a default");
                Vec::new()
            }
            Err(errors) => errors.iter().map(ToString::to_string).collect(),
        }
    }

    fn service(name: &str, port: Value) -> Value {
        json!({"service": {"name": name, "port": port}})
    }

    fn web() -> Value {
        service("web", json!({"number": 80}))
    }

    fn rule(host: &str, path: Value) -> Value {
        json!({"rules": [{"host": host, "http": {"paths": [path]}}]})
    }

    fn path(path: &str, path_type: &str) -> Value {
        rule("", json!({"path": path, "pathType": path_type, "backend": web()}))
    }

    #[test]
    fn good_ones_are_admitted_as_they_are() {
        let resource =
            json!({"resource": {"apiGroup": "k8s.example.com", "kind": "Bucket", "name": "icons"}});
        for spec in [
            json!({"defaultBackend": web()}),
            json!({"defaultBackend": resource, "ingressClassName": "nginx"}),
            json!({"defaultBackend": service("web", json!({"name": "http"}))}),
            // A rule without paths sends all to the default.
            json!({"rules": [{"host": "shop.example.com"}]}),
            rule("*.example.com", json!({"path": "/", "pathType": "Prefix", "backend": web()})),
            path("/a/b", "Exact"),
            path("", "ImplementationSpecific"),
            path("/a//b/..", "ImplementationSpecific"),
            json!({"defaultBackend": web(), "tls": [
                {"hosts": ["shop.example.com", "*.example.com"], "secretName": "web-tls"}, {}]}),
            // Fields that come later.
            json!({"defaultBackend": web(), "later": {"x": 1}}),
        ] {
            assert_eq!(admitted(None, of(spec.clone())), Vec::<String>::new(), "{spec}");
        }
    }

    #[test]
    fn bad_ones_are_refused_with_the_field() {
        let no_type = json!({"path": "/", "backend": web()});
        let at = "spec.rules[0].http.paths[0]";
        let backend = |backend: Value| json!({"defaultBackend": backend});
        let rows = [
            (json!({}), "spec: Invalid value: null: either `defaultBackend` or `rules` must be specified".to_owned()),
            (json!({"rules": []}), "spec: Invalid value: []: either `defaultBackend`".into()),
            (backend(json!({})), "spec.defaultBackend: Invalid value: \"\": resource or service backend is required".into()),
            (
                backend(json!({"service": {"name": "web", "port": {"number": 80}}, "resource": {"kind": "A", "name": "a"}})),
                "spec.defaultBackend: Invalid value: \"\": cannot set both resource and service backends".into(),
            ),
            (backend(service("", json!({"number": 80}))), "spec.defaultBackend.service.name: Required value".into()),
            (
                backend(service("1web", json!({"number": 80}))),
                "spec.defaultBackend.service.name: Invalid value: \"1web\": a DNS-1035 label must consist of".into(),
            ),
            (backend(service("web", json!({}))), "spec.defaultBackend: Required value: port name or number is required".into()),
            (
                backend(json!({"service": {"name": "web"}})),
                "spec.defaultBackend: Required value: port name or number is required".into(),
            ),
            (
                backend(service("web", json!({"name": "http", "number": 80}))),
                "spec.defaultBackend: Invalid value: \"\": cannot set both port name & port number".into(),
            ),
            (
                backend(service("web", json!({"number": 65536}))),
                "spec.defaultBackend.service.port.number: Invalid value: 65536: must be between 1 and 65535, inclusive".into(),
            ),
            (
                backend(service("web", json!({"name": "80"}))),
                "spec.defaultBackend.service.port.name: Invalid value: \"80\": must contain at least one letter (a-z)".into(),
            ),
            (
                backend(service("web", json!({"name": "a-long-port-name"}))),
                "spec.defaultBackend.service.port.name: Invalid value: \"a-long-port-name\": must be no more than 15 characters".into(),
            ),
            (
                backend(json!({"resource": {"apiGroup": "A_b", "kind": "Bucket", "name": "a"}})),
                "spec.defaultBackend.resource.apiGroup: Invalid value: \"A_b\": a lowercase RFC 1123 subdomain".into(),
            ),
            (
                backend(json!({"resource": {"name": "a"}})),
                "spec.defaultBackend.resource.kind: Required value: kind is required".into(),
            ),
            (
                backend(json!({"resource": {"kind": "Bucket", "name": "a/b"}})),
                "spec.defaultBackend.resource.name: Invalid value: \"a/b\": may not contain '/'".into(),
            ),
            (
                json!({"rules": [{"host": "10.0.0.1"}]}),
                "spec.rules[0].host: Invalid value: \"10.0.0.1\": must be a DNS name, not an IP address".into(),
            ),
            (
                json!({"rules": [{}, {"host": "010.0.0.001"}]}),
                "spec.rules[1].host: Invalid value: \"010.0.0.001\": must be a DNS name, not an IP address".into(),
            ),
            (
                json!({"rules": [{"host": "Shop"}]}),
                "spec.rules[0].host: Invalid value: \"Shop\": a lowercase RFC 1123 subdomain must consist of".into(),
            ),
            (
                json!({"rules": [{"host": "a.*.com"}]}),
                "spec.rules[0].host: Invalid value: \"a.*.com\": a wildcard DNS-1123 subdomain must start with '*.'".into(),
            ),
            (
                json!({"rules": [{"http": {"paths": []}}]}),
                "spec.rules[0].http.paths: Required value".into(),
            ),
            (rule("", no_type), format!("{at}.pathType: Required value: pathType must be specified")),
            (
                path("/", "Regex"),
                format!(
                    "{at}.pathType: Unsupported value: \"Regex\": supported values: \"Exact\", \"ImplementationSpecific\", \"Prefix\""
                ),
            ),
            (path("", "Prefix"), format!("{at}.path: Invalid value: \"\": must be an absolute path")),
            (path("a", "ImplementationSpecific"), format!("{at}.path: Invalid value: \"a\": must be an absolute path")),
            (path("/a//b", "Prefix"), format!("{at}.path: Invalid value: \"/a//b\": must not contain '//'")),
            (path("/a%2fb", "Exact"), format!("{at}.path: Invalid value: \"/a%2fb\": must not contain '%2f'")),
            (path("/a/..", "Exact"), format!("{at}.path: Invalid value: \"/a/..\": cannot end with '/..'")),
            (
                rule("", json!({"path": "/", "pathType": "Exact"})),
                format!("{at}.backend: Invalid value: \"\": resource or service backend is required"),
            ),
            (
                json!({"defaultBackend": web(), "tls": [{}, {"hosts": ["a.example.com", "A"]}]}),
                "spec.tls[1].hosts[1]: Invalid value: \"A\": a lowercase RFC 1123 subdomain".into(),
            ),
            (
                json!({"defaultBackend": web(), "tls": [{"secretName": "Web"}]}),
                "spec.tls[0].secretName: Invalid value: \"Web\": a lowercase RFC 1123 subdomain".into(),
            ),
            (
                json!({"defaultBackend": web(), "ingressClassName": ""}),
                "spec.ingressClassName: Invalid value: \"\": a lowercase RFC 1123 subdomain".into(),
            ),
            (json!({"rules": "all"}), "spec.rules: Invalid value: \"all\": ".into()),
        ];
        for (spec, want) in rows {
            let errors = admitted(None, of(spec.clone()));
            let [error] = &errors[..] else { panic!("{spec}: {errors:#?}") };
            assert!(error.starts_with(&want), "{spec}: {error}\n{want}");
        }
        let named = |name: &str| json!({"metadata": {"name": name}, "spec": {"defaultBackend": web()}});
        let errors = admitted(None, named("Web_1"));
        assert!(
            errors[0].starts_with("metadata.name: Invalid value: \"Web_1\": a lowercase RFC 1123 subdomain")
        );
        assert_eq!(admitted(None, named("web.v1")), Vec::<String>::new());
    }

    #[test]
    fn what_is_there_already_stays_until_it_is_changed() {
        let old = of(json!({"defaultBackend": service("1web", json!({"number": 80}))}));
        let mut labelled = old.clone();
        labelled["metadata"]["labels"] = json!({"a": "b"});
        assert_eq!(admitted(Some(&old), labelled), Vec::<String>::new());
        let errors = admitted(Some(&old), of(json!({"defaultBackend": {}})));
        assert!(errors[0].starts_with("spec.defaultBackend: Invalid value"), "{errors:?}");
    }
}
