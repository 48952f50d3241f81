//! `karmada-hub get RESOURCE --members`: the copies on every cluster.
//!
//! ```text
//!   bindings of the kind ─▶ their Works, by label ─┐
//!   Works that no binding made ────────────────────┼▶ copies ─▶ rows, with the age of what their cluster said
//!   Clusters: Namespaces that were released ───────┘
//! ```
//!
//! Everything is read from the hub, page by page; no member has to be reachable. Members to which there is a way are asked
//! afterwards how their copies are now ([`live`]).

use std::{collections::BTreeMap, fmt::Write, time::SystemTime};

use karmada_api::{
    cluster::Cluster,
    consts::{annotation, extension, label},
};
use karmada_core::{
    copies::{self, Copy, Knowledge},
    vacancy,
};
use karmada_env::Env;
use karmada_interpreter::ready;
use karmada_meta::{
    labels::Selector,
    object, parse_api_version,
    time::{Time, human_age},
};
use karmada_objects::{
    discovery::Served,
    kinds,
    scope::{BindingKey, Scope},
};
use serde_json::{Value, json};

use super::{
    Failure,
    args::{GetArgs, Output},
    ask::Server,
    known, print,
    reach::live::{self, Live},
    shown::{kind_name, name_line, written},
    table::{Columns, Printer},
};

/// How many bindings' Works are asked for at once, by their ids in one selector.
const AT_ONCE: usize = 50;

/// Prints the copies of what was asked for; whether there were any. Names without a copy are told as missing.
pub(super) async fn run(
    server: &Server,
    requests: &[(&Served, Vec<String>)],
    args: &GetArgs,
    env: &Env,
) -> Result<(), Failure> {
    let selector = match &args.selector {
        Some(text) => Selector::parse(text).map_err(|e| Failure::usage(format!("--selector: {e}")))?,
        None => Selector::everything(),
    };
    let clusters = known::clusters(server).await?;
    known::check_names(&clusters, &args.clusters)?;
    let knowledge = known::knowledge(server, &clusters).await?;
    let now = env.wall();
    let (mut printed, mut missing, mut objects) = (0usize, Vec::new(), Vec::new());
    for (served, names) in requests {
        let asked = Asked {
            served,
            names,
            namespace: (!args.all_namespaces && served.resource.namespaced)
                .then_some(server.namespace.as_str()),
            selector: &selector,
            clusters: &args.clusters,
        };
        let mut found = asked.copies(server).await?;
        found.extend(asked.released(&clusters));
        let live = match args.cached {
            true => Live::new(),
            false => {
                live::freshen(server, served, asked.namespace, (&clusters, &args.clusters), &mut found).await
            }
        };
        for name in
            names.iter().filter(|name| !found.iter().any(|copy| object::name(&copy.manifest) == **name))
        {
            missing.push(format!("no cluster has {} {name:?}", kind_name(served)));
        }
        match args.output {
            Output::Table | Output::Wide if found.is_empty() => {}
            Output::Table | Output::Wide => {
                let columns = Columns {
                    wide: args.output == Output::Wide,
                    namespace: args.all_namespaces && served.resource.namespaced,
                    kind_prefix: requests.len() > 1,
                    event: false,
                };
                let mut printer = Printer::new(columns, &kind_name(served), !args.no_headers);
                let between = if printed > 0 { "\n" } else { "" };
                print(&format!("{between}{}", printer.print(&table(&found, &live, &knowledge, now), "")))?;
                printed += 1;
            }
            Output::Name => {
                let mut lines: Vec<_> =
                    found.iter().map(|copy| name_line(&kind_name(served), &copy.manifest)).collect();
                lines.dedup();
                print(&lines.concat())?;
                printed += lines.len();
            }
            Output::Yaml | Output::Json => {
                objects.extend(found.into_iter().map(|copy| document(copy, &live, &knowledge)));
            }
        }
    }
    if matches!(args.output, Output::Yaml | Output::Json) {
        let list = json!({"apiVersion": "v1", "items": objects, "kind": "List", "metadata": {"resourceVersion": ""}});
        print(&written(list, args.output)?)?;
    } else if printed == 0 && missing.is_empty() {
        let place =
            if args.all_namespaces { String::new() } else { format!(" in {} namespace", server.namespace) };
        eprintln!("No copies found{place} on any cluster.");
    }
    if missing.is_empty() { Ok(()) } else { Err(Failure::failed(missing.join("; "))) }
}

/// What was asked for, of one kind.
struct Asked<'a> {
    served: &'a Served,
    /// None for all.
    names: &'a [String],
    /// None for all, or for what has no namespace.
    namespace: Option<&'a str>,
    selector: &'a Selector,
    /// None for all.
    clusters: &'a [String],
}

impl Asked<'_> {
    /// Whether an object is asked for. The version does not matter: an override may have changed it.
    fn means(&self, manifest: &Value) -> bool {
        let resource = &self.served.resource;
        object::kind(manifest) == resource.kind
            && parse_api_version(object::api_version(manifest))
                .is_some_and(|(group, _)| group == resource.group)
            && self.namespace.is_none_or(|namespace| object::namespace(manifest) == namespace)
            && (self.names.is_empty() || self.names.iter().any(|name| name == object::name(manifest)))
            && self.selector.matches_with(|key| object::label(manifest, key))
    }

    /// The copies, by namespace, name and cluster.
    async fn copies(&self, server: &Server) -> Result<Vec<Copy>, Failure> {
        let mut found = Vec::new();
        let (scope, label) = if self.served.resource.namespaced {
            (Scope::Namespaced, label::RESOURCE_BINDING_ID)
        } else {
            (Scope::Cluster, label::CLUSTER_RESOURCE_BINDING_ID)
        };
        let mut selectors: Vec<_> = self
            .binding_ids(server, scope, label)
            .await?
            .chunks(AT_ONCE)
            .map(|ids| format!("{label} in ({})", ids.join(",")))
            .collect();
        // What no binding made: Namespaces, quotas, Works that a user wrote.
        selectors.push(format!("!{},!{}", label::RESOURCE_BINDING_ID, label::CLUSTER_RESOURCE_BINDING_ID));
        for selector in selectors {
            let mut take = |works: Vec<Value>| {
                found.extend(works.iter().flat_map(|work| copies::of_work(work, |m| self.means(m))));
            };
            server
                .objects
                .list(&kinds::WORKS, None, &selector, &mut take)
                .await
                .map_err(|e| server.failure(&e))?;
        }
        if !self.clusters.is_empty() {
            found.retain(|copy| self.clusters.contains(&copy.cluster));
        }
        found.sort_by_cached_key(|copy| {
            let of = |text: &str| text.to_owned();
            (of(object::namespace(&copy.manifest)), of(object::name(&copy.manifest)), copy.cluster.clone())
        });
        Ok(found)
    }

    /// Namespaces that members keep although the hub has deleted its own: no Work tells of them any more.
    fn released(&self, clusters: &BTreeMap<String, Cluster>) -> Vec<Copy> {
        if self.served.resource.kind != "Namespace" || !self.served.resource.group.is_empty() {
            return Vec::new();
        }
        let asked_for = |cluster: &String| self.clusters.is_empty() || self.clusters.contains(cluster);
        let of_cluster = |(cluster, of): (&String, &Cluster)| -> Vec<Copy> {
            let conditions =
                of.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
            vacancy::released(conditions)
                .into_iter()
                .map(|(name, why)| Copy::released(cluster, &name, &why))
                .filter(|copy| self.means(&copy.manifest))
                .collect()
        };
        clusters.iter().filter(|(name, _)| asked_for(name)).flat_map(of_cluster).collect()
    }

    /// The permanent ids of the bindings of what is asked for.
    async fn binding_ids(&self, server: &Server, scope: Scope, label: &str) -> Result<Vec<String>, Failure> {
        let resource = karmada_objects::bindings::resource(scope);
        let mut ids = Vec::new();
        let mut take = |bindings: Vec<Value>| {
            let ours = bindings.iter().filter(|binding| self.means_binding(binding));
            ids.extend(ours.filter_map(|binding| object::label(binding, label)).map(str::to_owned));
        };
        if let ([_, ..], Some(namespace)) =
            (self.names, self.namespace.or_else(|| (scope == Scope::Cluster).then_some("")))
        {
            for name in self.names {
                let key = BindingKey::of_template(&self.served.resource.kind, namespace, name);
                let binding = server.objects.get(resource, &key.key).await.map_err(|e| server.failure(&e))?;
                take(binding.into_iter().collect());
            }
        } else {
            server
                .objects
                .list(resource, self.namespace, "", &mut take)
                .await
                .map_err(|e| server.failure(&e))?;
        }
        Ok(ids)
    }

    fn means_binding(&self, binding: &Value) -> bool {
        let of = &binding["spec"]["resource"];
        let text = |field: &str| of[field].as_str().unwrap_or_default();
        text("kind") == self.served.resource.kind
            && parse_api_version(text("apiVersion"))
                .is_some_and(|(group, _)| group == self.served.resource.group)
    }
}

/// A Table of copies.
fn table(copies: &[Copy], live: &Live, knowledge: &BTreeMap<String, Knowledge>, now: SystemTime) -> Value {
    let columns =
        [("Name", "name", 0), ("Cluster", "", 0), ("Ready", "", 0), ("Adoption", "", 0), ("Age", "", 0)]
            .into_iter()
            .chain([("Applied", "", 1), ("Health", "", 1), ("Message", "", 1)])
            .map(|(name, format, priority)| json!({"name": name, "format": format, "priority": priority}));
    let rows = copies.iter().map(|copy| {
        let applied = match copy.applied {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        let health = copy.health.map_or_else(|| "Unknown".to_owned(), |health| health.to_string());
        let message = match copy.message.as_str() {
            "" if copy.leaving => "being removed",
            message => message,
        };
        let age = match live.contains(&live::key(copy)) {
            true => "live".to_owned(),
            false => age(knowledge.get(&copy.cluster), now),
        };
        json!({
            "cells": [
                object::name(&copy.manifest), copy.cluster, readiness(copy), copy.adoption().as_str(),
                age, applied, health, message,
            ],
            "object": {"metadata": {"namespace": object::namespace(&copy.manifest)}},
        })
    });
    json!({"kind": "Table", "columnDefinitions": columns.collect::<Vec<_>>(), "rows": rows.collect::<Vec<_>>()})
}

/// What stands under READY.
fn readiness(copy: &Copy) -> String {
    let counted = ready(&copy.manifest, &copy.status, copy.health);
    counted.unwrap_or_else(|| {
        match copy.applied {
            Some(true) => "Applied",
            Some(false) => "NotApplied",
            None => "Unknown",
        }
        .to_owned()
    })
}

/// How old what a cluster said is, and whether it has fallen silent since.
fn age(knowledge: Option<&Knowledge>, now: SystemTime) -> String {
    let Some(Knowledge { at, stale }) = knowledge else { return "<unknown> (stale)".to_owned() };
    // A clock that is behind the hub's must not make knowledge come from the future.
    let at = at.map(|at| at.min(Time::from_system(now)));
    let mut text = human_age(at, now);
    if *stale {
        // Writing to a String cannot fail.
        let _ = write!(text, " (stale)");
    }
    text
}

/// A copy as an object: what the cluster was told, with the status that it reports; of a live one, what the cluster has.
fn document(copy: Copy, live: &Live, knowledge: &BTreeMap<String, Knowledge>) -> Value {
    let is_live = live.contains(&live::key(&copy));
    let known = knowledge.get(&copy.cluster);
    let mut object = copy.manifest;
    if !copy.status.is_null() {
        object["status"] = copy.status;
    }
    if is_live {
        object::set_annotation(&mut object, annotation::QUERY_FROM_CLUSTER, copy.cluster);
        return object;
    }
    object::set_annotation(&mut object, annotation::CACHED_FROM_CLUSTER, copy.cluster);
    if let Some(at) = known.and_then(|known| known.at) {
        object::set_annotation(&mut object, extension::KNOWN_AT, at.to_string());
    }
    if known.is_none_or(|known| known.stale) {
        object::set_annotation(&mut object, extension::STALE, "true");
    }
    object
}

#[cfg(test)]
mod tests {
    use karmada_api::work::ResourceHealth;

    use super::*;

    fn copy(kind: &str, name: &str, cluster: &str) -> Copy {
        let api_version = if kind == "Deployment" { "apps/v1" } else { "v1" };
        Copy {
            cluster: cluster.into(),
            manifest: json!({"apiVersion": api_version, "kind": kind, "spec": {"replicas": 2},
                             "metadata": {"namespace": "shop", "name": name}}),
            status: Value::Null,
            health: None,
            applied: None,
            message: String::new(),
            leaving: false,
        }
    }

    #[test]
    fn copies_as_a_table() {
        let at = |text: &str| Some(text.parse().unwrap());
        let now = "2026-01-01T00:10:00Z".parse::<Time>().unwrap();
        let now = SystemTime::from(now.timestamp());
        let knowledge: BTreeMap<_, _> = [
            ("near", Knowledge { at: at("2026-01-01T00:09:57Z"), stale: false }),
            ("far", Knowledge { at: at("2026-01-01T00:02:48Z"), stale: true }),
            ("ahead", Knowledge { at: at("2027-01-01T00:00:00Z"), stale: false }),
        ]
        .into_iter()
        .map(|(name, known)| (name.to_owned(), known))
        .collect();
        let good = Copy {
            status: json!({"readyReplicas": 2}),
            health: Some(ResourceHealth::Healthy),
            applied: Some(true),
            ..copy("Deployment", "web", "near")
        };
        let old = Copy { cluster: "far".into(), status: json!({"readyReplicas": 1}), ..good.clone() };
        let refused = Copy {
            applied: Some(false),
            message: "it is somebody else's".into(),
            ..copy("ConfigMap", "settings", "ahead")
        };
        let going = Copy { leaving: true, applied: Some(true), ..copy("ConfigMap", "settings", "gone") };
        let copies = [good, old, refused, going];
        let live = Live::from([live::key(&copies[2])]);
        let text = |wide| {
            let columns = Columns { wide, ..Columns::default() };
            Printer::new(columns, "", true).print(&table(&copies, &live, &knowledge, now), "")
        };
        let want = "NAME       CLUSTER   READY        ADOPTION   AGE\n\
                    web        near      2/2          Y          3s\n\
                    web        far       1/2          Y          7m12s (stale)\n\
                    settings   ahead     NotApplied   N          live\n\
                    settings   gone      Applied      Y          <unknown> (stale)\n";
        assert_eq!(text(false), want);
        assert!(text(true).contains("False     Unknown   it is somebody else's\n"), "{}", text(true));
        assert!(text(true).contains("True      Unknown   being removed\n"), "{}", text(true));
        let [_, old, now, _] = copies;
        let printed = document(now, &live, &knowledge);
        assert_eq!(
            printed["metadata"]["annotations"],
            json!({"resource.karmada.io/query-from-cluster": "ahead"})
        );
        let printed = document(old, &live, &knowledge);
        assert_eq!(printed["status"]["readyReplicas"], 1);
        let annotations = &printed["metadata"]["annotations"];
        assert_eq!(annotations["resource.karmada.io/cached-from-cluster"], "far");
        assert_eq!(annotations["resource.karmada.io/stale"], "true");
        assert_eq!(annotations["resource.karmada.io/known-at"], "2026-01-01T00:02:48Z");
    }
}
