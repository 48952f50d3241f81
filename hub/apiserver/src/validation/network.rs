//! Services and EndpointSlices.

use std::{collections::BTreeSet, net::IpAddr};

use karmada_meta::{
    names,
    path::{FieldError, Path},
};
use serde_json::Value;

use super::{
    parts::{list, number, one_of, port, text},
    pod,
};

const NOT_AN_ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

fn address(value: &Value, path: &Path) -> Option<FieldError> {
    let text = value.as_str().unwrap_or_default();
    text.parse::<IpAddr>().is_err().then(|| FieldError::invalid(path, text, NOT_AN_ADDRESS))
}

pub(super) fn service(object: &Value) -> Vec<FieldError> {
    let path = Path::new("spec");
    let mut errors = Vec::new();
    let kind = text(object, "/spec/type");
    let ports = list(object, "/spec/ports");
    let headless = text(object, "/spec/clusterIP") == "None";
    if ports.is_empty() && !headless && kind != "ExternalName" {
        errors.push(FieldError::required(&path.child("ports"), ""));
    }
    if kind == "ExternalName" {
        let (name, at) = (text(object, "/spec/externalName"), path.child("externalName"));
        if name.is_empty() {
            errors.push(FieldError::required(&at, ""));
        } else {
            let wrong = names::dns1123_subdomain_errors(name.strip_suffix('.').unwrap_or(name));
            errors.extend(wrong.into_iter().map(|detail| FieldError::invalid(&at, name, detail)));
        }
    }
    let mut seen = BTreeSet::new();
    for (index, entry) in ports.iter().enumerate() {
        errors.extend(service_port(entry, ports.len() > 1, &path.child("ports").index(index), &mut seen));
    }
    let affinity = text(object, "/spec/sessionAffinity");
    errors.extend(one_of(affinity, &["ClientIP", "None"], &path.child("sessionAffinity")));
    if kind != "ExternalName" {
        for (index, value) in list(object, "/spec/clusterIPs").iter().enumerate() {
            if value != "None" && value != "" {
                errors.extend(address(value, &path.child("clusterIPs").index(index)));
            }
        }
    }
    for (index, value) in list(object, "/spec/externalIPs").iter().enumerate() {
        errors.extend(address(value, &path.child("externalIPs").index(index)));
    }
    let types = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    errors.extend(one_of(kind, &types, &path.child("type")));
    if kind == "ClusterIP" {
        for (index, _) in
            ports.iter().enumerate().filter(|(_, entry)| number(entry, "/nodePort").unwrap_or(0) != 0)
        {
            let at = path.child("ports").index(index).child("nodePort");
            errors.push(FieldError::forbidden(&at, "may not be used when `type` is 'ClusterIP'"));
        }
    }
    errors
}

fn service_port<'a>(
    entry: &'a Value,
    needs_name: bool,
    path: &Path,
    seen: &mut BTreeSet<&'a str>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = text(entry, "/name");
    if name.is_empty() {
        if needs_name {
            errors.push(FieldError::required(&path.child("name"), ""));
        }
    } else {
        let wrong = names::dns1123_label_errors(name);
        errors.extend(wrong.into_iter().map(|detail| FieldError::invalid(&path.child("name"), name, detail)));
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(&path.child("name"), name));
        }
    }
    errors.extend(port(number(entry, "/port").unwrap_or(0), &path.child("port")));
    let protocol = text(entry, "/protocol");
    errors.extend(one_of(protocol, &["SCTP", "TCP", "UDP"], &path.child("protocol")));
    match entry.get("targetPort") {
        Some(Value::String(name)) => {
            let wrong = pod::port_name_errors(name);
            let at = path.child("targetPort");
            errors.extend(wrong.into_iter().map(|detail| FieldError::invalid(&at, name.as_str(), detail)));
        }
        Some(value) => errors.extend(port(value.as_i64().unwrap_or(0), &path.child("targetPort"))),
        None => {}
    }
    errors
}

/// A Service keeps its address while it has one.
pub(super) fn service_update(object: &Value, old: &Value) -> Option<FieldError> {
    let external = |object: &Value| text(object, "/spec/type") == "ExternalName";
    let (new, was) = (text(object, "/spec/clusterIP"), text(old, "/spec/clusterIP"));
    if external(object) || external(old) || was.is_empty() || new == was {
        return None;
    }
    let path = Path::new("spec").child("clusterIPs").index(0);
    Some(FieldError::invalid(&path, vec![new], "may not change once set"))
}

pub(super) fn endpoint_slice(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let kind = text(object, "/addressType");
    errors.extend(one_of(kind, &["FQDN", "IPv4", "IPv6"], &Path::new("addressType")));
    for (index, endpoint) in list(object, "/endpoints").iter().enumerate() {
        let path = Path::new("endpoints").index(index).child("addresses");
        let addresses = list(endpoint, "/addresses");
        if addresses.is_empty() {
            errors.push(FieldError::required(&path, "must contain at least 1 address"));
        }
        for (index, value) in addresses.iter().enumerate() {
            if matches!(kind, "IPv4" | "IPv6") {
                errors.extend(address(value, &path.index(index)));
            }
        }
    }
    errors
}
