//! What a Service's node ports are to be, as kube-apiserver's registry has it. Malformed fields are left to validation.

use std::collections::{BTreeMap, BTreeSet};

use karmada_meta::{
    object,
    path::{FieldError, Path},
    status::Status,
};
use serde_json::{Map, Value};

use super::{Numbers, Refusal};

const NODE_PORT: &str = "nodePort";
const HEALTH_CHECK: &str = "healthCheckNodePort";
const BALANCED: &str = "allocateLoadBalancerNodePorts";

fn spec(service: &Value) -> Option<&Map<String, Value>> {
    service.get("spec")?.as_object()
}

fn text<'a>(service: &'a Value, field: &str) -> &'a str {
    spec(service).and_then(|spec| spec.get(field)?.as_str()).unwrap_or_default()
}

fn ports(service: &Value) -> &[Value] {
    spec(service).and_then(|spec| spec.get("ports")?.as_array()).map_or(&[], Vec::as_slice)
}

fn ports_mut(service: &mut Value) -> &mut [Value] {
    let ports = service.pointer_mut("/spec/ports").and_then(Value::as_array_mut);
    ports.map_or(&mut [], Vec::as_mut_slice)
}

fn number(value: &Value, field: &str) -> i64 {
    value.get(field).and_then(Value::as_i64).unwrap_or_default()
}

/// Whether a Service may have node ports.
fn is_open(service: &Value) -> bool {
    matches!(text(service, "type"), "NodePort" | "LoadBalancer")
}

/// Whether those of its ports get one that ask for none.
fn is_given(service: &Value) -> bool {
    let refused =
        || spec(service).is_some_and(|spec| spec.get("allocateLoadBalancerNodePorts") == Some(&false.into()));
    match text(service, "type") {
        "NodePort" => true,
        "LoadBalancer" => !refused(),
        _ => false,
    }
}

/// Whether it has a port where its nodes tell their health.
fn is_probed(service: &Value) -> bool {
    text(service, "type") == "LoadBalancer" && text(service, "externalTrafficPolicy") == "Local"
}

fn node_ports(service: &Value) -> BTreeSet<i64> {
    ports(service).iter().map(|port| number(port, NODE_PORT)).filter(|port| *port != 0).collect()
}

fn set(value: &mut Value, field: &str, number: impl Into<Value>) {
    if let Some(map) = value.as_object_mut() {
        map.insert(field.to_owned(), number.into());
    }
}

/// What a Service has for itself: nobody else may have it.
pub(super) fn held(service: &Value) -> BTreeSet<u16> {
    let probe = is_probed(service).then(|| number(&service["spec"], HEALTH_CHECK));
    let open = is_open(service).then(|| node_ports(service)).into_iter().flatten();
    open.chain(probe).filter_map(|port| u16::try_from(port).ok()).filter(|port| *port != 0).collect()
}

/// What an update leaves out, and the Service had, it keeps.
pub(super) fn keep(new: &mut Value, old: &Value) {
    if is_given(old) && is_given(new) {
        let mut used: BTreeSet<i64> = node_ports(old).intersection(&node_ports(new)).copied().collect();
        let had =
            |port: &Value| (port["name"].as_str().unwrap_or_default().to_owned(), number(port, NODE_PORT));
        let had: BTreeMap<String, i64> = ports(old).iter().map(had).collect();
        for port in ports_mut(new) {
            let kept = had.get(port["name"].as_str().unwrap_or_default()).copied().unwrap_or_default();
            if number(port, NODE_PORT) == 0 && kept != 0 && used.insert(kept) {
                set(port, NODE_PORT, kept);
            }
        }
    }
    if is_probed(old) && is_probed(new) && number(&new["spec"], HEALTH_CHECK) == 0 {
        let kept = number(&old["spec"], HEALTH_CHECK);
        if kept != 0 {
            set(&mut new["spec"], HEALTH_CHECK, kept);
        }
    }
}

/// What a Service had for a type that it is no more, and has not changed, goes.
pub(crate) fn drop_unneeded(new: &mut Value, old: &Value) {
    if is_open(old) && !is_open(new) && node_ports(new).is_subset(&node_ports(old)) {
        for port in ports_mut(new).iter_mut().filter_map(Value::as_object_mut) {
            port.remove(NODE_PORT);
        }
    }
    let same = |field: &str| new["spec"].get(field) == old["spec"].get(field);
    let balanced = |service: &Value| text(service, "type") == "LoadBalancer";
    let outward = |service: &Value| is_open(service) || service["spec"].get("externalIPs").is_some();
    let needs = |field: &str, service: &Value| match field {
        HEALTH_CHECK => is_probed(service),
        BALANCED => balanced(service),
        _ => outward(service),
    };
    let gone = [HEALTH_CHECK, BALANCED, "externalTrafficPolicy"].into_iter();
    let gone: Vec<&str> =
        gone.filter(|field| needs(field, old) && !needs(field, new) && same(field)).collect();
    if let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) {
        gone.into_iter().for_each(|field| drop(spec.remove(field)));
    }
}

/// Gives a Service its numbers.
pub(super) fn allocate(
    new: &mut Value,
    old: Option<&Value>,
    numbers: &mut impl Numbers,
) -> Result<(), Status> {
    if !is_open(new) {
        return Ok(());
    }
    let name = object::name(new).to_owned();
    match old {
        None => first(new, &name, numbers)?,
        Some(old) => again(new, old, &name, numbers)?,
    }
    if is_probed(new) && !old.is_some_and(is_probed) {
        match number(&new["spec"], HEALTH_CHECK) {
            0 => {
                let port = numbers.next().map_err(|why| {
                    Status::unclassified(format!("failed to allocate a HealthCheck NodePort: {why}"))
                })?;
                set(&mut new["spec"], HEALTH_CHECK, port);
            }
            asked => take(numbers, asked).map_err(|why| {
                Status::unclassified(format!(
                    "failed to allocate requested HealthCheck NodePort {asked}: {why}"
                ))
            })?,
        }
    }
    Ok(())
}

fn take(numbers: &mut impl Numbers, port: i64) -> Result<(), Refusal> {
    // No number of a port is in no range either.
    numbers.take(u16::try_from(port).unwrap_or_default())
}

fn refused(name: &str, index: usize, asked: i64, why: Refusal) -> Status {
    let path = Path::new("spec").child("ports").index(index).child(NODE_PORT);
    Status::invalid("Service", "", name, vec![FieldError::invalid(&path, asked, why.to_string())])
}

fn next(numbers: &mut impl Numbers) -> Result<i64, Status> {
    let port = numbers.next();
    port.map(i64::from).map_err(|why| Status::internal(format!("failed to allocate a nodePort: {why}")))
}

/// Those of a new Service. Ports of one number that differ in their protocol share one.
fn first(new: &mut Value, name: &str, numbers: &mut impl Numbers) -> Result<(), Status> {
    let given = is_given(new);
    let mut asked: BTreeMap<i64, i64> = BTreeMap::new();
    for port in ports(new).iter().filter(|port| number(port, NODE_PORT) != 0) {
        asked.entry(number(port, "port")).or_insert_with(|| number(port, NODE_PORT));
    }
    let mut allocated: BTreeMap<i64, i64> = BTreeMap::new();
    for (index, port) in ports_mut(new).iter_mut().enumerate() {
        let (own, at) = (number(port, NODE_PORT), number(port, "port"));
        if own == 0 && !given {
            continue;
        }
        match (allocated.get(&at).copied(), asked.get(&at).copied()) {
            (None, Some(wanted)) => {
                take(numbers, wanted).map_err(|why| refused(name, index, wanted, why))?;
                set(port, NODE_PORT, wanted);
                allocated.insert(at, wanted);
            }
            (None, None) => {
                let found = next(numbers)?;
                set(port, NODE_PORT, found);
                allocated.insert(at, found);
            }
            (Some(shared), _) if own == 0 => set(port, NODE_PORT, shared),
            (Some(shared), _) if own != shared => {
                take(numbers, own).map_err(|why| refused(name, index, own, why))?;
            }
            (Some(_), _) => {}
        }
    }
    Ok(())
}

/// Those of a changed one: what it had, it may have on.
fn again(new: &mut Value, old: &Value, name: &str, numbers: &mut impl Numbers) -> Result<(), Status> {
    let given = is_given(new);
    // One that was stored before there were numbers to give keeps those that its members have chosen.
    let without: BTreeSet<&str> = ports(old)
        .iter()
        .filter(|port| is_given(old) && number(port, NODE_PORT) == 0)
        .map(|port| port["name"].as_str().unwrap_or_default())
        .collect();
    let mut own = if is_open(old) { node_ports(old) } else { BTreeSet::new() };
    for (index, port) in ports_mut(new).iter_mut().enumerate() {
        match number(port, NODE_PORT) {
            0 if !given || without.contains(port["name"].as_str().unwrap_or_default()) => {}
            0 => {
                let found = next(numbers)?;
                set(port, NODE_PORT, found);
            }
            asked if own.contains(&asked) => {}
            asked => {
                take(numbers, asked).map_err(|why| refused(name, index, asked, why))?;
                own.insert(asked);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Gives out 1, 2, 3, …; 9 is taken, and from 10 on nothing is in the range.
    #[derive(Default)]
    struct Counting(u16);

    impl Numbers for Counting {
        fn take(&mut self, port: u16) -> Result<(), Refusal> {
            match port {
                9 => Err(Refusal::Taken),
                10.. => Err(Refusal::Outside(super::super::PortRange { first: 1, last: 9 })),
                _ => Ok(()),
            }
        }

        fn next(&mut self) -> Result<u16, Refusal> {
            self.0 += 1;
            Ok(self.0)
        }
    }

    fn service(kind: &str, ports: &[(&str, i64, i64)], more: &Value) -> Value {
        let port = |(name, at, node): &(&str, i64, i64)| {
            let mut port = json!({"name": name, "port": at});
            if *node != 0 {
                port["nodePort"] = (*node).into();
            }
            port
        };
        let mut spec = json!({"type": kind, "ports": ports.iter().map(port).collect::<Vec<_>>()});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"metadata": {"name": "s"}, "spec": spec})
    }

    fn shown(service: &Value) -> String {
        let ports: Vec<_> = ports(service).iter().map(|port| number(port, NODE_PORT).to_string()).collect();
        let probe = number(&service["spec"], HEALTH_CHECK);
        let probe = if probe == 0 { String::new() } else { format!(" +{probe}") };
        ports.join(" ") + &probe
    }

    #[test]
    fn a_new_service_has_what_it_asks_for_and_the_rest_is_given() {
        let none = json!({});
        let bare = json!({"allocateLoadBalancerNodePorts": false});
        let local = json!({"externalTrafficPolicy": "Local"});
        for (kind, asks, more, want) in [
            ("ClusterIP", vec![("a", 80, 0)], &none, "0"),
            ("NodePort", vec![("a", 80, 0), ("b", 443, 0)], &none, "1 2"),
            ("LoadBalancer", vec![("a", 80, 5), ("b", 443, 0)], &none, "5 1"),
            // One number, two protocols.
            ("NodePort", vec![("tcp", 53, 0), ("udp", 53, 0)], &none, "1 1"),
            ("NodePort", vec![("tcp", 53, 0), ("udp", 53, 7)], &none, "7 7"),
            ("LoadBalancer", vec![("a", 80, 0), ("b", 443, 3)], &bare, "0 3"),
            ("LoadBalancer", vec![("a", 80, 0)], &local, "1 +2"),
            ("NodePort", vec![("a", 80, 0)], &local, "1"),
            ("NodePort", vec![("a", 80, 9)], &none, "provided port is already allocated"),
            (
                "NodePort",
                vec![("a", 80, 80)],
                &none,
                "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 1-9",
            ),
        ] {
            let mut new = service(kind, &asks, more);
            let got = match allocate(&mut new, None, &mut Counting::default()) {
                Ok(()) => shown(&new),
                Err(status) => status.message,
            };
            assert!(got.ends_with(want), "{kind} {asks:?}: {got}");
        }
    }

    #[test]
    fn a_changed_service_keeps_what_it_had() {
        let none = json!({});
        for (what, old, new, want) in [
            ("left out", ("NodePort", vec![("a", 80, 5)]), ("NodePort", vec![("a", 80, 0)]), "5"),
            (
                "left out by a new type",
                ("NodePort", vec![("a", 80, 5)]),
                ("LoadBalancer", vec![("a", 80, 0)]),
                "5",
            ),
            (
                "one is added",
                ("NodePort", vec![("a", 80, 5)]),
                ("NodePort", vec![("a", 80, 0), ("b", 81, 0)]),
                "5 1",
            ),
            (
                "its number is moved",
                ("NodePort", vec![("a", 80, 5)]),
                ("NodePort", vec![("a", 80, 0), ("b", 81, 5)]),
                "1 5",
            ),
            ("another one", ("NodePort", vec![("a", 80, 5)]), ("NodePort", vec![("a", 80, 6)]), "6"),
            ("opened", ("ClusterIP", vec![("a", 80, 0)]), ("NodePort", vec![("a", 80, 0)]), "1"),
            ("closed", ("NodePort", vec![("a", 80, 5)]), ("ClusterIP", vec![("a", 80, 5)]), "0"),
            (
                "taken",
                ("NodePort", vec![("a", 80, 5)]),
                ("NodePort", vec![("a", 80, 9)]),
                "already allocated",
            ),
        ] {
            let (old, mut new) = (service(old.0, &old.1, &none), service(new.0, &new.1, &none));
            keep(&mut new, &old);
            let got = match allocate(&mut new, Some(&old), &mut Counting::default()) {
                Ok(()) => {
                    drop_unneeded(&mut new, &old);
                    shown(&new)
                }
                Err(status) => status.message,
            };
            assert!(got.ends_with(want), "{what}: {got}");
        }
    }
}
