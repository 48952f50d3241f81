//! Cells of Services, Endpoints and Ingresses.

use serde_json::{Value, json};

use super::parts::{NONE, array, count, int, joined, or, pairs, text};

pub(super) fn service(column: &str, object: &Value) -> Value {
    match column {
        "External-IP" => json!(external_ip(object)),
        "Port(s)" => {
            let ports = array(object, "/spec/ports").iter().map(|port| {
                let (number, protocol) = (int(port, "/port"), text(port, "/protocol"));
                match int(port, "/nodePort") {
                    0 => format!("{number}/{protocol}"),
                    node => format!("{number}:{node}/{protocol}"),
                }
            });
            json!(or(&joined(ports, ","), NONE))
        }
        "Selector" => json!(pairs(object, "/spec/selector")),
        _ => Value::Null,
    }
}

fn external_ip(service: &Value) -> String {
    let own = joined(array(service, "/spec/externalIPs").iter().filter_map(Value::as_str), ",");
    match text(service, "/spec/type") {
        "ExternalName" => or(text(service, "/spec/externalName"), NONE).to_owned(),
        "LoadBalancer" => {
            let given = load_balancer(service);
            match (given.as_str(), own.as_str()) {
                ("", "") => "<pending>".to_owned(),
                (given, "") => given.to_owned(),
                ("", own) => own.to_owned(),
                (given, own) => format!("{given},{own}"),
            }
        }
        _ => or(&own, NONE).to_owned(),
    }
}

fn load_balancer(object: &Value) -> String {
    let points = array(object, "/status/loadBalancer/ingress").iter();
    let points = points.map(|i| or(text(i, "/ip"), text(i, "/hostname")));
    joined(points.filter(|p| !p.is_empty()), ",")
}

pub(super) fn endpoints(object: &Value) -> String {
    let mut all = Vec::new();
    for subset in array(object, "/subsets") {
        let ports = array(subset, "/ports");
        for address in array(subset, "/addresses") {
            let ip = text(address, "/ip");
            if ports.is_empty() {
                all.push(ip.to_owned());
            }
            all.extend(ports.iter().map(|port| format!("{ip}:{}", int(port, "/port"))));
        }
    }
    match all.len() {
        0 => NONE.to_owned(),
        n if n > 3 => format!("{} + {} more...", all[..3].join(","), n - 3),
        _ => all.join(","),
    }
}

pub(super) fn ingress(column: &str, object: &Value) -> Value {
    match column {
        "Hosts" => {
            let hosts: Vec<&str> = array(object, "/spec/rules")
                .iter()
                .map(|r| text(r, "/host"))
                .filter(|h| !h.is_empty())
                .collect();
            json!(match hosts.len() {
                0 => "*".to_owned(),
                n if n > 3 => format!("{} + {} more...", hosts[..3].join(","), n - 3),
                _ => hosts.join(","),
            })
        }
        "Address" => json!(load_balancer(object)),
        "Ports" => json!(if count(object, "/spec/tls") > 0 { "80, 443" } else { "80" }),
        _ => Value::Null,
    }
}
