//! The kinds of other projects that Karmada knows by name: 27, each a row of data, a file per group of projects.
//!
//! A row answers the same questions as the native rules. What it leaves out is answered as for any kind. Where
//! Karmada's scripts add up what they have added up before, or look for a pod where the kind has none, ours do not;
//! the rows say so.

mod aggregate;
mod batch;
mod flux;
mod health;
mod kruise;
mod kyverno;
mod parts;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use karmada_api::{
    consts::annotation,
    work::{AggregatedStatusItem, Component},
};
use karmada_meta::{object, time::Time};
use serde_json::{Map, Value};

pub(crate) use self::health::Judge;
use self::{aggregate::Sum, parts::Parts};
use crate::{
    DependentObjectReference, Field, InterpretError, Replicas, Runs,
    dependencies::{references, template_dependencies},
    fields::{at, int, list, set, text},
    replicas::{pod_requirements, whole_number},
};

/// Where a kind has its number of replicas.
#[derive(Clone, Copy)]
pub(crate) enum Count {
    /// In a field; this many where it is not set.
    At(Field, i64),
    /// Always so many, and none can be asked for.
    Fixed(i64),
    /// The sum over its parts.
    OfParts,
}

/// A name that an object has in a field.
#[derive(Clone, Copy)]
pub(crate) enum Name {
    /// Of a Secret, at a path.
    Secret(Field),
    /// Of a service account, at a path.
    Account(Field),
    /// Of ConfigMaps and Secrets, as `kind` and `name` in a list at a path.
    Either(Field),
}

/// A kind of another project.
pub(crate) struct Known {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    /// Its replicas.
    pub(crate) count: Option<Count>,
    /// Its parts with replicas of their own.
    pub(crate) parts: Parts,
    /// Where the specs of its pods stand. A `*` means every value there.
    pub(crate) pods: &'static [Field],
    /// Whether its status is about a generation, and its report names the template's.
    pub(crate) generations: bool,
    /// The fields of its status that are reported; none for all.
    pub(crate) status: Option<&'static [&'static str]>,
    /// Whether the report of the only cluster is the template's status as it is.
    pub(crate) single: bool,
    /// How reports add up.
    pub(crate) sums: &'static [(&'static str, Sum)],
    pub(crate) health: Judge,
    /// What it names beside what its pods name.
    pub(crate) names: &'static [Name],
    /// What the member decides.
    pub(crate) retain: &'static [Field],
}

/// A row to start from: it knows nothing.
pub(crate) const PLAIN: Known = Known {
    api_version: "",
    kind: "",
    count: None,
    parts: Parts::None,
    pods: &[],
    generations: false,
    status: None,
    single: false,
    sums: &[],
    health: Judge::Always,
    names: &[],
    retain: &[],
};

/// The row of an object's kind.
fn of(value: &Value) -> Option<&'static Known> {
    find(object::api_version(value), object::kind(value))
}

fn find(api_version: &str, kind: &str) -> Option<&'static Known> {
    rows().find(|known| known.kind == kind && known.api_version == api_version)
}

fn rows() -> impl Iterator<Item = &'static Known> {
    [kruise::KINDS, batch::KINDS, flux::KINDS, kyverno::KINDS].into_iter().flatten()
}

pub(crate) fn replicas(value: &Value) -> Result<Option<Replicas>, InterpretError> {
    let Some(known) = of(value) else { return Ok(None) };
    let replicas = match known.count {
        None => return Ok(None),
        Some(Count::Fixed(n)) => n,
        // What is no number (a percentage, say) cannot be divided; it counts as not set.
        Some(Count::At(path, unset)) => whole_number(value, path).ok().flatten().unwrap_or(unset),
        Some(Count::OfParts) => return known.parts.together(value).map(Some),
    };
    let requirements = match known.pods(value).into_iter().next() {
        Some(pod) => pod_requirements(value, pod)?,
        None => None,
    };
    Ok(Some(Replicas { replicas, requirements }))
}

/// What runs of an object of a known kind; none where the row says nothing about it, and for other kinds.
pub(crate) fn runs(api_version: &str, kind: &str) -> Option<Runs> {
    let known = find(api_version, kind)?;
    match known.count {
        Some(Count::Fixed(0)) => Some(Runs::Nothing),
        Some(_) => Some(Runs::Replicas),
        None if !matches!(known.parts, Parts::None) => Some(Runs::Replicas),
        None if known.pods.is_empty() => None,
        None if known.kind == "DaemonSet" => Some(Runs::OnEveryNode),
        None => Some(Runs::Pods),
    }
}

pub(crate) fn has_components(value: &Value) -> bool {
    of(value).is_some_and(|known| !matches!(known.parts, Parts::None))
}

pub(crate) fn components(value: &Value) -> Result<Vec<Component>, InterpretError> {
    of(value).map_or_else(|| Ok(Vec::new()), |known| known.parts.read(value))
}

pub(crate) fn revise(value: &mut Value, replicas: i64) -> bool {
    let Some(Count::At(path, _)) = of(value).and_then(|known| known.count) else { return false };
    set(value, path, replicas.into());
    true
}

/// The report of an object of a known kind; none for other kinds.
pub(crate) fn reflect(value: &Value, status: &Value) -> Option<Value> {
    let known = of(value)?;
    let mut out = match known.status {
        None => return None,
        Some(fields) => fields
            .iter()
            .filter_map(|field| Some(((*field).to_owned(), status.get(field)?.clone())))
            .filter(|(_, v)| !v.is_null())
            .collect::<Map<_, _>>(),
    };
    if known.generations {
        let template = object::annotation(value, annotation::TEMPLATE_GENERATION);
        let generations = [
            ("generation", object::generation(value)),
            ("observedGeneration", int(status, &["observedGeneration"])),
            ("resourceTemplateGeneration", template.and_then(|g| g.parse().ok()).unwrap_or(0)),
        ];
        out.extend(generations.into_iter().filter(|(_, n)| *n != 0).map(|(k, n)| (k.to_owned(), n.into())));
    }
    out.sort_keys();
    Some(Value::Object(out))
}

pub(crate) fn has_generations(value: &Value) -> bool {
    of(value).is_some_and(|known| known.generations)
}

pub(crate) fn aggregate(template: &mut Value, items: &[AggregatedStatusItem], now: Time) -> bool {
    of(template).is_some_and(|known| aggregate::aggregate(known, template, items, now))
}

pub(crate) fn health(value: &Value) -> bool {
    of(value).is_none_or(|known| known.health.judge(value))
}

pub(crate) fn retain_rules(value: &Value) -> &'static [Field] {
    of(value).map_or(&[], |known| known.retain)
}

pub(crate) fn has_dependencies(value: &Value) -> bool {
    of(value).is_some_and(|known| !known.pods.is_empty() || !known.names.is_empty())
}

pub(crate) fn dependencies(value: &Value) -> Vec<DependentObjectReference> {
    let Some(known) = of(value) else { return Vec::new() };
    let namespace = object::namespace(value);
    let mut found: Vec<DependentObjectReference> =
        known.pods(value).into_iter().flat_map(|pod| template_dependencies(namespace, pod)).collect();
    for name in known.names {
        found.extend(match name {
            Name::Secret(path) => references(namespace, "Secret", BTreeSet::from([text(value, path)])),
            Name::Account(path) => {
                references(namespace, "ServiceAccount", BTreeSet::from([text(value, path)]))
            }
            Name::Either(path) => list(value, path)
                .iter()
                .filter(|from| matches!(text(from, &["kind"]), "ConfigMap" | "Secret"))
                .flat_map(|from| {
                    references(namespace, text(from, &["kind"]), BTreeSet::from([text(from, &["name"])]))
                })
                .collect(),
        });
    }
    let mut seen = BTreeSet::new();
    found.retain(|d| seen.insert((d.kind.clone(), d.name.clone())));
    let order = |kind: &str| {
        ["ConfigMap", "Secret", "ServiceAccount", "PersistentVolumeClaim"].iter().position(|k| *k == kind)
    };
    found.sort_by_key(|d| (order(&d.kind), d.name.clone()));
    found
}

impl Known {
    /// The specs of the pods of an object.
    fn pods<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        self.pods.iter().flat_map(|path| each(value, path)).collect()
    }
}

/// The values at a path in which `*` means every value of a list or object.
pub(crate) fn each<'a>(value: &'a Value, path: &[&str]) -> Vec<&'a Value> {
    let Some(star) = path.iter().position(|key| *key == "*") else {
        return at(value, path).into_iter().collect();
    };
    let below: Vec<&Value> = match at(value, &path[..star]) {
        Some(Value::Array(items)) => items.iter().collect(),
        Some(Value::Object(map)) => map.values().collect(),
        _ => Vec::new(),
    };
    below.into_iter().flat_map(|item| each(item, &path[star + 1..])).collect()
}
