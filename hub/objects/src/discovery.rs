//! Which kinds an API server serves, and under which names.

use std::collections::BTreeMap;

use karmada_client::{Error, Resource, Rest};
use karmada_meta::gvk::parse_api_version;
use serde_json::Value;

/// A served kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// How its objects are addressed.
    pub resource: Resource,
    /// The name of one object, in lower case: `deployment`.
    pub singular: String,
    /// `deploy`.
    pub short_names: Vec<String>,
    /// What can be done with it.
    pub verbs: Vec<String>,
}

impl Served {
    /// Whether all of `verbs` can be done with it.
    pub fn supports(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.iter().any(|v| v == verb))
    }

    /// Whether a user means this kind by `name`: its plural, singular, kind or a short name.
    fn is_called(&self, name: &str) -> bool {
        self.resource.plural == name
            || self.singular == name
            || self.resource.kind.eq_ignore_ascii_case(name)
            || self.short_names.iter().any(|short| short == name)
    }
}

/// Everything that one group version serves; empty if the server does not know it.
pub async fn group_version(rest: &Rest, api_version: &str) -> Result<Vec<Served>, Error> {
    let path = if api_version.contains('/') {
        format!("/apis/{api_version}")
    } else {
        format!("/api/{api_version}")
    };
    match rest.get(&path).await {
        Ok(list) => Ok(served(api_version, &list)),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Everything served, each group in its preferred version first.
pub async fn everything(rest: &Rest) -> Result<Vec<Served>, Error> {
    let mut all = group_version(rest, "v1").await?;
    let groups = rest.get("/apis").await?;
    for group in groups["groups"].as_array().into_iter().flatten() {
        let preferred = group.pointer("/preferredVersion/groupVersion").and_then(Value::as_str);
        let others =
            group["versions"].as_array().into_iter().flatten().filter_map(|v| v["groupVersion"].as_str());
        let mut seen: Vec<&str> = Vec::new();
        for version in preferred.into_iter().chain(others) {
            if !seen.contains(&version) {
                seen.push(version);
                all.extend(group_version(rest, version).await?);
            }
        }
    }
    Ok(all)
}

/// The kind that a user means by `deploy`, `deployments.apps` or `deployments.v1.apps`. Of several the first
/// served wins: core before groups, preferred versions before others.
pub fn resolve<'a>(all: &'a [Served], name: &str) -> Option<&'a Served> {
    let name = name.to_lowercase();
    let (resource, group) = name.split_once('.').unwrap_or((&name, ""));
    all.iter().find(|served| {
        let r = &served.resource;
        if group.is_empty() {
            return served.is_called(&name);
        }
        let qualified =
            r.group == group || group.split_once('.') == Some((r.version.as_str(), r.group.as_str()));
        qualified && served.is_called(resource)
    })
}

/// Up to three kinds that a user may have meant by a name that none has, as they would be asked for.
pub fn near(all: &[Served], name: &str) -> Vec<String> {
    const MOST: usize = 3;
    let name = name.to_lowercase();
    let (resource, _) = name.split_once('.').unwrap_or((&name, ""));
    // Of a short word hardly a letter may differ, of a long one a few.
    let limit = (resource.chars().count() / 3).clamp(1, 3);
    let mut found: Vec<((usize, bool, usize), String)> = Vec::new();
    for served in all {
        let r = &served.resource;
        let names = [r.plural.as_str(), served.singular.as_str()];
        let names = names.into_iter().chain(served.short_names.iter().map(String::as_str));
        let part = resource.len() >= 4 && (r.plural.contains(resource) || served.singular.contains(resource));
        let distance = names.map(|known| distance(resource, known)).min().unwrap_or(usize::MAX);
        let distance = if part { distance.min(1) } else { distance };
        if distance <= limit && !found.iter().any(|(_, known)| *known == r.to_string()) {
            // Of two that are as near, Karmada's own, and the shorter one.
            let foreign = !r.group.ends_with("karmada.io");
            found.push(((distance, foreign, r.plural.len()), r.to_string()));
        }
    }
    found.sort();
    found.into_iter().take(MOST).map(|(_, name)| name).collect()
}

/// Up to three of some names that a user may have meant by one that is not among them.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    const MOST: usize = 3;
    let limit = (name.chars().count() / 3).clamp(1, 3);
    let mut found: Vec<_> = known
        .into_iter()
        .map(|known| (distance(name, known), known))
        .filter(|(distance, _)| *distance <= limit)
        .collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().take(MOST).map(|(_, known)| known.to_owned()).collect()
}

/// How many letters have to be put in, taken out or changed to make one word of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// An APIResourceList, without subresources.
fn served(api_version: &str, list: &Value) -> Vec<Served> {
    let Some((group, version)) = parse_api_version(api_version) else { return Vec::new() };
    let text = |v: &Value, field: &str| v[field].as_str().unwrap_or_default().to_owned();
    let texts = |v: &Value, field: &str| {
        v[field].as_array().into_iter().flatten().filter_map(|s| s.as_str().map(str::to_owned)).collect()
    };
    list["resources"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|r| !text(r, "name").contains('/'))
        .map(|r| {
            let namespaced = r["namespaced"].as_bool().unwrap_or(false);
            let kind = text(r, "kind");
            let singular = match text(r, "singularName") {
                name if name.is_empty() => kind.to_lowercase(),
                name => name,
            };
            Served {
                resource: Resource::new(&group, &version, &text(r, "name"), &kind, namespaced),
                singular,
                short_names: texts(r, "shortNames"),
                verbs: texts(r, "verbs"),
            }
        })
        .collect()
}

/// Looks kinds up by apiVersion and kind, asking for each group version once until [`Lookup::forget`].
#[derive(Debug, Default)]
pub struct Lookup {
    known: BTreeMap<String, Vec<Served>>,
}

impl Lookup {
    /// Drops what is known: kinds may have come or gone.
    pub fn forget(&mut self) {
        self.known.clear();
    }

    /// Adds what another has learnt.
    pub fn absorb(&mut self, other: Self) {
        for (api_version, served) in other.known {
            self.known.entry(api_version).or_insert(served);
        }
    }

    /// The kind, if the server has it.
    pub async fn find(
        &mut self,
        rest: &Rest,
        api_version: &str,
        kind: &str,
    ) -> Result<Option<Served>, Error> {
        if !self.known.contains_key(api_version) {
            let served = group_version(rest, api_version).await?;
            self.known.insert(api_version.to_owned(), served);
        }
        Ok(self.known[api_version].iter().find(|served| served.resource.kind == kind).cloned())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn catalogue() -> Vec<Served> {
        let core = json!({"resources": [
            {"name": "pods", "kind": "Pod", "singularName": "pod", "namespaced": true, "shortNames": ["po"], "verbs": ["get", "list", "watch", "delete"]},
            {"name": "pods/status", "kind": "Pod", "singularName": "", "namespaced": true, "verbs": ["get"]},
            {"name": "events", "kind": "Event", "singularName": "", "namespaced": true, "verbs": ["get"]},
        ]});
        let apps = json!({"resources": [
            {"name": "deployments", "kind": "Deployment", "singularName": "deployment", "namespaced": true, "shortNames": ["deploy"], "verbs": ["list"]},
        ]});
        let events =
            json!({"resources": [{"name": "events", "kind": "Event", "namespaced": true, "verbs": ["get"]}]});
        let mut all = served("v1", &core);
        all.extend(served("apps/v1", &apps));
        all.extend(served("events.k8s.io/v1", &events));
        all
    }

    #[test]
    fn names_that_users_type() {
        let all = catalogue();
        let rows = [
            ("po", Some("pods")),
            ("Pod", Some("pods")),
            ("pods", Some("pods")),
            ("deploy", Some("deployments.apps")),
            ("deployments.apps", Some("deployments.apps")),
            ("deployment.v1.apps", Some("deployments.apps")),
            ("deployments.v2.apps", None),
            ("events", Some("events")),
            ("event.events.k8s.io", Some("events.events.k8s.io")),
            ("status", None),
            ("", None),
        ];
        for (typed, want) in rows {
            let got = resolve(&all, typed).map(|s| s.resource.to_string());
            assert_eq!(got.as_deref(), want, "{typed:?}");
        }
    }

    #[test]
    fn names_that_were_nearly_typed() {
        let all = catalogue();
        let rows: [(&str, &[&str]); 6] = [
            ("deploymnt", &["deployments.apps"]),
            ("pots", &["pods"]),
            ("deployments.app", &["deployments.apps"]),
            ("event.nowhere", &["events", "events.events.k8s.io"]),
            ("deplo", &["deployments.apps"]),
            ("secrets", &[]),
        ];
        for (typed, want) in rows {
            assert_eq!(near(&all, typed), want, "{typed:?}");
        }
    }

    #[test]
    fn verbs() {
        let all = catalogue();
        assert!(resolve(&all, "po").unwrap().supports(&["list", "watch", "delete"]));
        assert!(!resolve(&all, "deploy").unwrap().supports(&["list", "watch", "delete"]));
    }
}
