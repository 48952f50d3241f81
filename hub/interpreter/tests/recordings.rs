//! Our answers against those of a stock Karmada, on the objects it was recorded with. Skipped, with a message, where
//! the recordings are not beside the project.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../../api/tests/recorded/mod.rs"]
mod recorded;

use karmada_api::{
    consts::annotation,
    work::{AggregatedStatusItem, ResourceIdentifier},
};
use karmada_interpreter::{aggregate_status, dependencies, get_replicas, health, prune, reflect_status};
use karmada_meta::object;
use recorded::{Recorded, objects};
use serde_json::Value;

fn of_kind<'a>(all: &'a [Recorded], kind: &'a str) -> impl Iterator<Item = &'a Recorded> {
    all.iter().filter(move |r| r.object["kind"] == kind)
}

/// Whether a binding is the one of an object, in the same recording.
fn binds(binding: &Recorded, template: &Recorded) -> bool {
    binding.file == template.file
        && binding.object["spec"]["resource"]["uid"] == template.object["metadata"]["uid"]
}

/// Pairs of templates on the hub and their bindings.
fn bound(all: &[Recorded]) -> Vec<(&Value, &Value)> {
    let bindings: Vec<_> =
        of_kind(all, "ResourceBinding").chain(of_kind(all, "ClusterResourceBinding")).collect();
    all.iter()
        .filter(|r| r.place == "hub")
        .flat_map(|template| {
            bindings.iter().filter(|b| binds(b, template)).map(|b| (&template.object, &b.object))
        })
        .collect()
}

#[test]
fn status_and_health_are_what_karmada_reports() {
    let all = objects();
    let mut compared = 0;
    for work in of_kind(&all, "Work") {
        let cluster = object::namespace(&work.object).strip_prefix("karmada-es-").unwrap();
        for report in work.object["status"]["manifestStatuses"].as_array().into_iter().flatten() {
            let id: ResourceIdentifier = serde_json::from_value(report["identifier"].clone()).unwrap();
            let on_member = all.iter().find(|r| {
                let meta = &r.object;
                (r.file.as_str(), r.place.as_str()) == (work.file.as_str(), cluster)
                    && (object::kind(meta), object::namespace(meta), object::name(meta))
                        == (id.kind.as_str(), id.namespace.as_str(), id.name.as_str())
            });
            let Some(on_member) = on_member else { continue };
            let theirs = report.get("status").cloned();
            assert_eq!(reflect_status(&on_member.object), theirs, "{}: {} {}", work.file, cluster, id.name);
            assert_eq!(report["health"], health(&on_member.object).as_str(), "{}: {}", work.file, id.name);
            compared += 1;
        }
    }
    assert!(all.is_empty() || compared >= 4, "compared {compared}");
}

#[test]
fn replicas_and_requirements_are_what_karmada_binds() {
    let all = objects();
    let pairs = bound(&all);
    for (template, binding) in &pairs {
        let ours = get_replicas(template).unwrap().unwrap_or_default();
        let spec = &binding["spec"];
        assert_eq!(ours.replicas, spec["replicas"].as_i64().unwrap_or(0), "{}", object::key(template));
        let requirements = ours.requirements.map_or(Value::Null, |r| serde_json::to_value(r).unwrap());
        assert_eq!(requirements, spec["replicaRequirements"], "{}", object::key(template));
    }
    assert!(all.is_empty() || pairs.len() >= 2, "compared {}", pairs.len());
}

#[test]
fn dependencies_are_what_karmada_notes() {
    let all = objects();
    let mut compared = 0;
    for (template, binding) in bound(&all) {
        let Some(theirs) = object::annotation(binding, annotation::DEPENDENCIES) else { continue };
        assert_eq!(serde_json::to_string(&dependencies(template)).unwrap(), theirs);
        compared += 1;
    }
    assert!(all.is_empty() || compared >= 1, "compared {compared}");
}

#[test]
fn a_recorded_template_is_already_added_up() {
    let all = objects();
    let mut compared = 0;
    for (template, binding) in bound(&all) {
        let items: Vec<AggregatedStatusItem> =
            serde_json::from_value(binding["status"]["aggregatedStatus"].clone()).unwrap_or_default();
        if items.is_empty() || template.get("status").is_none() {
            continue;
        }
        let mut ours = template.clone();
        let now = "2026-11-20T12:00:00Z".parse().unwrap();
        assert!(
            !aggregate_status(&mut ours, &items, now),
            "{:#} became {:#}",
            template["status"],
            ours["status"]
        );
        // From nothing it arrives at the same. A Service that is no load balancer gets nothing from its members: what it
        // has, the API server gave it.
        ours["status"].take();
        let added_up = aggregate_status(&mut ours, &items, now);
        if object::kind(template) == "Service" && template["spec"]["type"] != "LoadBalancer" {
            assert!(!added_up, "{}", object::key(template));
            continue;
        }
        assert_eq!(ours["status"], template["status"], "{}", object::key(template));
        compared += 1;
    }
    assert!(all.is_empty() || compared >= 2, "compared {compared}");
}

#[test]
fn what_is_pruned_is_what_karmada_prunes() {
    let all = objects();
    let mut compared = 0;
    for (template, _) in bound(&all) {
        let mut ours = template.clone();
        prune(&mut ours);
        karmada_core::work::prune(&mut ours);
        for work in of_kind(&all, "Work") {
            let manifest = &work.object["spec"]["workload"]["manifests"][0];
            let uid = object::annotation(manifest, annotation::TEMPLATE_UID);
            let generation = object::annotation(manifest, annotation::TEMPLATE_GENERATION);
            let same = uid == Some(object::uid(template))
                && generation.is_none_or(|g| g == object::generation(template).to_string())
                && object::annotation(&work.object, annotation::APPLIED_OVERRIDES).is_none();
            if !same {
                continue;
            }
            // Labels, annotations and replicas are added later; all else must be there already.
            let mut theirs = manifest.clone();
            for object in [&mut ours, &mut theirs] {
                for field in ["labels", "annotations"] {
                    object::remove_meta(object, field);
                }
                if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
                    spec.remove("replicas");
                }
            }
            assert_eq!(ours, theirs, "{}: {}", work.file, object::key(template));
            compared += 1;
        }
    }
    assert!(all.is_empty() || compared >= 2, "compared {compared}");
}
