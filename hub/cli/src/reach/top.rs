//! `karmada-hub top`: what the metrics API of a member says, as `kubectl top` prints it.

use karmada_client::rest::query_value;
use karmada_env::Env;
use karmada_meta::{object, quantity::Quantity};
use serde_json::{Value, json};

use super::Member;
use crate::{
    Failure,
    args::{TopArgs, Used},
    print,
    table::{Columns, Printer},
};

const METRICS: &str = "/apis/metrics.k8s.io/v1beta1";
const MIB: i64 = 1 << 20;

/// Prints what is used.
pub(crate) async fn run(args: TopArgs, env: Env) -> Result<(), Failure> {
    let member = Member::open(&args.cluster, &args.server, &env).await?;
    let query = args
        .selector
        .as_ref()
        .map_or_else(String::new, |selector| format!("?labelSelector={}", query_value(selector)));
    let used = match args.what {
        Used::Nodes => {
            let used = get(&member, &format!("{METRICS}/nodes{query}")).await?;
            nodes(&used, &get(&member, &format!("/api/v1/nodes{query}")).await?)
        }
        Used::Pods => {
            let within = match args.all_namespaces {
                true => String::new(),
                false => format!("/namespaces/{}", member.namespace),
            };
            pods(&get(&member, &format!("{METRICS}{within}/pods{query}")).await?)
        }
    };
    if args.told.is_json() {
        return used.iter().try_for_each(|one| args.told.say("", &one.value()));
    }
    if used.is_empty() {
        eprintln!("No resources found");
        return Ok(());
    }
    let namespace = args.what == Used::Pods && args.all_namespaces;
    let columns = Columns { namespace, ..Columns::default() };
    print(&Printer::new(columns, "", true).print(&table(args.what, &used), ""))
}

/// What one node or Pod uses.
#[derive(Debug)]
struct Line {
    name: String,
    namespace: String,
    /// Thousandths of a CPU, and bytes.
    used: (i64, i64),
    /// Of what there is, on a node that is known.
    of: Option<(i64, i64)>,
}

impl Line {
    fn value(&self) -> Value {
        let mut value = json!({"name": self.name, "cpuMillis": self.used.0, "memoryBytes": self.used.1});
        if !self.namespace.is_empty() {
            value["namespace"] = self.namespace.as_str().into();
        }
        if let Some((cpu, memory)) = self.of {
            value["allocatable"] = json!({"cpuMillis": cpu, "memoryBytes": memory});
        }
        value
    }
}

async fn get(member: &Member, path: &str) -> Result<Value, Failure> {
    let request = http::Request::get(path).body(Vec::new()).map_err(Failure::failed)?;
    let answer = member.client.request::<Value>(request).await;
    answer.map_err(|error| match &error {
        kube::Error::Api(status) if status.code == 404 && path.starts_with(METRICS) => {
            Failure::failed(format!("cluster {}: metrics API not available", member.name))
        }
        _ => member.failed("top", &error),
    })
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}

/// Thousandths of a CPU, and bytes. What cannot be read is nothing.
fn amounts(of: &Value) -> (i64, i64) {
    let amount = |name: &str| of[name].as_str().and_then(|text| Quantity::parse(text).ok());
    (amount("cpu").map_or(0, |cpu| cpu.milli()), amount("memory").map_or(0, |memory| memory.value()))
}

fn pods(list: &Value) -> Vec<Line> {
    let lines = items(list).map(|pod| {
        let containers = pod["containers"].as_array().into_iter().flatten();
        let each = containers.map(|one| amounts(&one["usage"]));
        let used = each.fold((0, 0), |(cpu, memory), (c, m)| (cpu + c, memory + m));
        Line {
            name: object::name(pod).to_owned(),
            namespace: object::namespace(pod).to_owned(),
            used,
            of: None,
        }
    });
    lines.collect()
}

fn nodes(list: &Value, there: &Value) -> Vec<Line> {
    let lines = items(list).map(|node| {
        let known = items(there).find(|one| object::name(one) == object::name(node));
        let of = known.map(|one| amounts(&one["status"]["allocatable"]));
        Line {
            name: object::name(node).to_owned(),
            namespace: String::new(),
            used: amounts(&node["usage"]),
            of,
        }
    });
    lines.collect()
}

fn table(what: Used, lines: &[Line]) -> Value {
    let share = |part: i64, whole: Option<i64>| match whole {
        None | Some(0) => "<unknown>".to_owned(),
        Some(whole) => format!("{}%", i128::from(part) * 100 / i128::from(whole)),
    };
    let rows = lines.iter().map(|line| {
        let (cpu, memory) = line.used;
        let (cpus, bytes) = (format!("{cpu}m"), format!("{}Mi", memory / MIB));
        let cells = match what {
            Used::Pods => vec![line.name.clone(), cpus, bytes],
            Used::Nodes => {
                let of = (share(cpu, line.of.map(|of| of.0)), share(memory, line.of.map(|of| of.1)));
                vec![line.name.clone(), cpus, of.0, bytes, of.1]
            }
        };
        json!({"cells": cells, "object": {"metadata": {"namespace": line.namespace}}})
    });
    let names: &[&str] = match what {
        Used::Pods => &["Name", "CPU(cores)", "Memory(bytes)"],
        Used::Nodes => &["Name", "CPU(cores)", "CPU(%)", "Memory(bytes)", "Memory(%)"],
    };
    let columns: Vec<Value> =
        names.iter().map(|name| json!({"name": name, "format": "", "priority": 0})).collect();
    json!({"kind": "Table", "columnDefinitions": columns, "rows": rows.collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_as_a_table_and_for_programs() {
        let text = |table: &Value| Printer::new(Columns::default(), "", true).print(table, "");
        let list = json!({"items": [{"metadata": {"name": "web", "namespace": "shop"}, "containers": [
            {"usage": {"cpu": "1500000n", "memory": "12Mi"}}, {"usage": {"cpu": "10m", "memory": "2048Ki"}},
        ]}]});
        let used = pods(&list);
        assert_eq!(
            text(&table(Used::Pods, &used)),
            "NAME   CPU(CORES)   MEMORY(BYTES)\nweb    12m          14Mi\n"
        );
        let value = json!({"name": "web", "cpuMillis": 12, "memoryBytes": 14 << 20, "namespace": "shop"});
        assert_eq!(used[0].value(), value);
        let used = json!({"items": [
            {"metadata": {"name": "a"}, "usage": {"cpu": "500m", "memory": "1Gi"}},
            {"metadata": {"name": "b"}, "usage": {"cpu": "1"}},
        ]});
        let there = json!({"items": [{"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "2", "memory": "4Gi"}}}]});
        let used = nodes(&used, &there);
        let all = json!({"cpuMillis": 2000, "memoryBytes": 4_i64 << 30});
        assert_eq!(used[0].value()["allocatable"], all);
        assert_eq!(used[1].value(), json!({"name": "b", "cpuMillis": 1000, "memoryBytes": 0}));
        let printed = text(&table(Used::Nodes, &used));
        let lines: Vec<Vec<&str>> = printed.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["a", "500m", "25%", "1024Mi", "25%"]);
        assert_eq!(lines[2], ["b", "1000m", "<unknown>", "0Mi", "<unknown>"]);
    }
}
