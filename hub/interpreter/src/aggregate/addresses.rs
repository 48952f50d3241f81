//! The addresses of load balancers in all members, as one list.
//!
//! As in Karmada: an address that several members report is there once, with the ports of all of them; named ones come
//! first. No name is made up for an address that has none.

use std::collections::BTreeMap;

use karmada_api::work::AggregatedStatusItem;
use serde_json::{Map, Value, json};

use super::{reports, write};
use crate::fields::{list, text};

/// Writes the addresses that the members report into the template's status.
pub(super) fn aggregate(template: &mut Value, items: &[AggregatedStatusItem]) -> bool {
    let all = reports(items).flat_map(|(_, status)| list(status, &["loadBalancer", "ingress"]));
    let ingress = merged(all);
    if list(template, &["status", "loadBalancer", "ingress"]) == ingress {
        return false;
    }
    let balancer = if ingress.is_empty() { json!({}) } else { json!({ "ingress": ingress }) };
    write(template, vec![("loadBalancer", Some(balancer))])
}

/// What tells two addresses apart, in the order that they are listed in: what has no name, and no mode, comes last.
type Place = (bool, String, String, bool, String);
/// The same of a port.
type Port = (i64, String, String);
/// What is told of an address, and its ports.
type Known<'a> = (&'a Map<String, Value>, BTreeMap<Port, &'a Value>);

fn merged<'a>(addresses: impl Iterator<Item = &'a Value>) -> Vec<Value> {
    let mut known: BTreeMap<Place, Known<'_>> = BTreeMap::new();
    for address in addresses {
        let Some(fields) = address.as_object() else { continue };
        let (name, mode) = (text(address, &["hostname"]), text(address, &["ipMode"]));
        let ip = text(address, &["ip"]);
        let place = (name.is_empty(), name.to_owned(), ip.to_owned(), mode.is_empty(), mode.to_owned());
        let (_, ports) = known.entry(place).or_insert_with(|| (fields, BTreeMap::new()));
        for port in list(address, &["ports"]) {
            let number = crate::fields::int(port, &["port"]);
            let (protocol, error) = (text(port, &["protocol"]), text(port, &["error"]));
            ports.entry((number, protocol.to_owned(), error.to_owned())).or_insert(port);
        }
    }
    let whole = |(fields, ports): Known<'_>| {
        let mut address = fields.clone();
        if ports.is_empty() {
            address.shift_remove("ports");
        } else {
            address.insert("ports".to_owned(), ports.into_values().cloned().collect());
        }
        Value::Object(address)
    };
    known.into_values().map(whole).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(clusters: &[Value]) -> Value {
        merged(clusters.iter().flat_map(|c| c.as_array().unwrap())).into()
    }

    #[test]
    fn addresses_have_their_own_names_only_and_are_there_once_in_order() {
        let tcp = |port: i64| json!({"port": port, "protocol": "TCP"});
        for (what, clusters, expected) in [
            ("none has a name", vec![json!([{"ip": "172.19.2.6"}])], json!([{"ip": "172.19.2.6"}])),
            (
                "one of several clusters",
                vec![json!([{"ip": "2.2.2.2"}]), json!([{"ip": "1.1.1.1"}, {"ip": "2.2.2.2"}])],
                json!([{"ip": "1.1.1.1"}, {"ip": "2.2.2.2"}]),
            ),
            (
                "names first",
                vec![json!([{"ip": "1.1.1.1"}, {"hostname": "b"}]), json!([{"hostname": "a"}])],
                json!([{"hostname": "a"}, {"hostname": "b"}, {"ip": "1.1.1.1"}]),
            ),
            (
                "ports together",
                vec![
                    json!([{"ip": "1.1.1.1", "ports": [tcp(443)]}]),
                    json!([{"ip": "1.1.1.1", "ports": [tcp(80), tcp(443)]}]),
                ],
                json!([{"ip": "1.1.1.1", "ports": [tcp(80), tcp(443)]}]),
            ),
            (
                "modes apart, the one without last",
                vec![json!([{"ip": "1.1.1.1"}, {"ip": "1.1.1.1", "ipMode": "VIP"},
                            {"ip": "1.1.1.1", "ipMode": "Proxy"}])],
                json!([{"ip": "1.1.1.1", "ipMode": "Proxy"}, {"ip": "1.1.1.1", "ipMode": "VIP"},
                       {"ip": "1.1.1.1"}]),
            ),
            ("no address at all", vec![json!(["x", 1])], json!([])),
        ] {
            assert_eq!(lists(&clusters), expected, "{what}");
        }
    }
}
