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
    let table = match args.what {
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
    if table["rows"].as_array().is_none_or(Vec::is_empty) {
        eprintln!("No resources found");
        return Ok(());
    }
    let namespace = args.what == Used::Pods && args.all_namespaces;
    let columns = Columns { namespace, ..Columns::default() };
    print(&Printer::new(columns, "", true).print(&table, ""))
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

fn pods(list: &Value) -> Value {
    let rows = items(list).map(|pod| {
        let containers = pod["containers"].as_array().into_iter().flatten();
        let used = containers.map(|one| amounts(&one["usage"]));
        let (cpu, memory) = used.fold((0, 0), |(cpu, memory), (c, m)| (cpu + c, memory + m));
        json!({
            "cells": [object::name(pod), format!("{cpu}m"), format!("{}Mi", memory / MIB)],
            "object": {"metadata": {"namespace": object::namespace(pod)}},
        })
    });
    table(&["Name", "CPU(cores)", "Memory(bytes)"], rows)
}

fn nodes(list: &Value, there: &Value) -> Value {
    let rows = items(list).map(|node| {
        let (cpu, memory) = amounts(&node["usage"]);
        let known = items(there).find(|one| object::name(one) == object::name(node));
        let (cpus, all) = known.map_or((0, 0), |one| amounts(&one["status"]["allocatable"]));
        let share = |part: i64, whole: i64| match whole {
            0 => "<unknown>".to_owned(),
            whole => format!("{}%", i128::from(part) * 100 / i128::from(whole)),
        };
        json!({"cells": [
            object::name(node), format!("{cpu}m"), share(cpu, cpus), format!("{}Mi", memory / MIB), share(memory, all),
        ]})
    });
    table(&["Name", "CPU(cores)", "CPU(%)", "Memory(bytes)", "Memory(%)"], rows)
}

fn table(columns: &[&str], rows: impl Iterator<Item = Value>) -> Value {
    let columns: Vec<Value> =
        columns.iter().map(|name| json!({"name": name, "format": "", "priority": 0})).collect();
    json!({"kind": "Table", "columnDefinitions": columns, "rows": rows.collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_as_a_table() {
        let text = |table: &Value| Printer::new(Columns::default(), "", true).print(table, "");
        let list = json!({"items": [{"metadata": {"name": "web", "namespace": "shop"}, "containers": [
            {"usage": {"cpu": "1500000n", "memory": "12Mi"}}, {"usage": {"cpu": "10m", "memory": "2048Ki"}},
        ]}]});
        assert_eq!(text(&pods(&list)), "NAME   CPU(CORES)   MEMORY(BYTES)\nweb    12m          14Mi\n");
        let used = json!({"items": [
            {"metadata": {"name": "a"}, "usage": {"cpu": "500m", "memory": "1Gi"}},
            {"metadata": {"name": "b"}, "usage": {"cpu": "1"}},
        ]});
        let there = json!({"items": [{"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "2", "memory": "4Gi"}}}]});
        let printed = text(&nodes(&used, &there));
        let lines: Vec<Vec<&str>> = printed.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["a", "500m", "25%", "1024Mi", "25%"]);
        assert_eq!(lines[2], ["b", "1000m", "<unknown>", "0Mi", "<unknown>"]);
    }
}
