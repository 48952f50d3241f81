//! Nodes as an agent tells of them: few bytes, and seldom other ones.
//!
//! Nodes that are alike (labels, taints, free resources) are told as one, with their number. What is free is rounded
//! down to steps that round requests fall on, so that a pod more or less is often no news, and no node is promised
//! what it does not have. A report that is too long is made with larger steps; one that is still too long is none, and
//! the grades of nodes decide.

use std::collections::BTreeMap;

use karmada_meta::quantity::{Format, Quantity};

use super::Node;

/// The longest report, in bytes. Far below the 256 KiB that an object's annotations may have, and a third of what a
/// Cluster's status takes.
pub const LIMIT: usize = 4096;

/// What the hub reads at most: a report of some later agent may be longer.
const READ_LIMIT: usize = 64 << 10;

/// Labels that each node has for itself, or that say again what another label says.
const NOISE: [&str; 3] =
    ["kubernetes.io/hostname", "beta.kubernetes.io/", "failure-domain.beta.kubernetes.io/"];

/// How much larger the steps of the second attempt are.
const COARSER: i64 = 8;

/// A report on nodes, each with its own free resources. None if there are no nodes, or too many kinds of them.
pub fn write(nodes: &[Node]) -> Option<String> {
    if nodes.is_empty() {
        return None;
    }
    [1, COARSER].into_iter().find_map(|steps| {
        let text = serde_json::to_string(&alike(nodes, steps)).ok()?;
        (text.len() <= LIMIT).then_some(text)
    })
}

/// Reads a report.
///
/// # Errors
/// It is longer than any, or not what [`write`] writes.
pub fn read(text: &str) -> Result<Vec<Node>, String> {
    if text.len() > READ_LIMIT {
        return Err(format!("{} bytes are more than {READ_LIMIT}", text.len()));
    }
    let nodes: Vec<Node> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if nodes.iter().any(|node| node.count < 0) {
        return Err("a number of nodes is negative".to_owned());
    }
    Ok(nodes)
}

fn alike(nodes: &[Node], steps: i64) -> Vec<Node> {
    let mut groups: BTreeMap<String, Node> = BTreeMap::new();
    for node in nodes {
        let mut told = Node { name: String::new(), count: 0, ..node.clone() };
        told.labels.retain(|key, _| !NOISE.iter().any(|noise| key.starts_with(noise)));
        told.taints.sort_by(|a, b| (&a.key, &a.value, &a.effect).cmp(&(&b.key, &b.value, &b.effect)));
        for (name, quantity) in &mut told.free {
            *quantity = rounded(name, *quantity, steps);
        }
        told.free.retain(|_, quantity| !quantity.is_zero());
        let key = serde_json::to_string(&told).unwrap_or_default();
        groups.entry(key).or_insert(told).count += node.count.max(1);
    }
    groups.into_values().collect()
}

/// What is free, rounded down to a whole number of steps.
fn rounded(name: &str, free: Quantity, steps: i64) -> Quantity {
    const MI: i64 = 1 << 20;
    const GI: i64 = 1 << 30;
    let down = |value: i64, step: i64| value.max(0) / (step * steps) * (step * steps);
    match name {
        "cpu" => {
            let milli = free.milli();
            let step = if milli < 10_000 { 100 } else { 500 };
            Quantity::from_milli(down(milli, step))
        }
        "memory" => {
            let value = free.value();
            let step = if value < 16 * GI { 128 * MI } else { 512 * MI };
            Quantity::from_value(down(value, step)).with_format(Format::BinarySi)
        }
        "ephemeral-storage" | "storage" => {
            Quantity::from_value(down(free.value(), 5 * GI)).with_format(Format::BinarySi)
        }
        "pods" => {
            let value = free.value();
            Quantity::from_value(if value <= 20 { value.max(0) } else { down(value, 5).max(20) })
        }
        // Devices are counted.
        _ => Quantity::from_value(free.value().max(0)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(name: &str, cpu: &str, memory: &str, labels: Value) -> Node {
        let mut node: Node = serde_json::from_value(
            json!({"name": name, "free": {"cpu": cpu, "memory": memory, "pods": "97"}, "labels": labels}),
        )
        .unwrap();
        node.labels.insert("kubernetes.io/hostname".into(), name.into());
        node
    }

    #[test]
    fn nodes_that_are_alike_are_told_as_one() {
        let nodes = [
            node("a", "3950m", "7999Mi", json!({"disk": "ssd"})),
            node("b", "3", "8Gi", json!({"disk": "ssd"})),
            node("c", "3900m", "7950Mi", json!({"disk": "ssd"})),
            node("d", "-1", "-1", json!({})),
        ];
        let text = write(&nodes).unwrap();
        let told = read(&text).unwrap();
        let short: Vec<_> = told
            .iter()
            .map(|node| {
                (node.count, node.free.iter().map(|(n, q)| format!("{n}={q}")).collect::<Vec<_>>().join(" "))
            })
            .collect();
        assert_eq!(
            short,
            [
                (1, "cpu=3 memory=8Gi pods=95".to_owned()),
                (2, "cpu=3900m memory=7936Mi pods=95".to_owned()),
                (1, "pods=95".to_owned()),
            ]
        );
        assert!(told.iter().all(|node| node.name.is_empty()) && !text.contains("hostname"));
        // A small pod more is no news.
        let mut later = nodes;
        later[0].free.insert("cpu".into(), "3910m".parse().unwrap());
        assert_eq!(write(&later).unwrap(), text);
        assert_eq!(write(&[]), None);
    }

    #[test]
    fn a_report_is_bounded_and_never_promises_more_than_there_is() {
        let many = |kinds: i64| -> Vec<Node> {
            (0..1000)
                .map(|i| {
                    node(
                        &format!("n{i}"),
                        &format!("{}m", 1000 + i * 9),
                        "4Gi",
                        json!({"kind": (i % kinds).to_string()}),
                    )
                })
                .collect()
        };
        let text = write(&many(1)).unwrap();
        assert!(text.len() <= LIMIT, "{}", text.len());
        let told = read(&text).unwrap();
        assert_eq!(told.iter().map(|node| node.count).sum::<i64>(), 1000);
        let sum = |nodes: &[Node]| nodes.iter().map(|n| n.count.max(1) * n.free["cpu"].milli()).sum::<i64>();
        assert!(sum(&told) <= sum(&many(1)));
        assert_eq!(write(&many(500)), None, "too many kinds of nodes");
        assert!(read("[{\"count\":-1}]").is_err() && read("{}").is_err());
    }
}
