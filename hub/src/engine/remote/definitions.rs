//! The Karmada kinds' definitions on an API server that somebody else runs: installed, and kept current without
//! taking anything away.
//!
//! ```text
//!   live definition ─┐
//!                    ├─▶ plan() ─▶ create │ keep │ change: the union of both
//!   ours ────────────┘
//! ```
//!
//! Users' objects may hold what only the live definition knows: a field of a newer hub's, a version that Karmada
//! served. What a definition no longer names is pruned from every object that is written next. So nothing is ever
//! removed: versions and fields of the live definition stay, ours are added. Where both speak of one field, ours has
//! the last word if the live definition was written by a hub that is not newer than this one (its annotation says
//! which); a definition of another program's, or of a newer hub's, is only added to.

use std::time::Duration;

use karmada_client::{Error, Rest};
use karmada_env::Env;
use karmada_meta::object;
use karmada_objects::kinds::CUSTOM_RESOURCE_DEFINITIONS;
use serde_json::{Value, json};
use tokio::time::sleep;

/// Who owns what this hub writes into definitions.
pub const MANAGER: &str = "karmada-hub-definitions";
/// The annotation that says which hub's definitions these are.
pub const VERSION: &str = "hub.karmada.io/definitions-version";
/// This hub's.
const OURS: &str = env!("CARGO_PKG_VERSION");
/// How long a definition may take to be served.
const ESTABLISH: Duration = Duration::from_secs(60);
/// Between two looks at that.
const LOOK: Duration = Duration::from_millis(200);
/// More changes than this are not listed one by one.
const LISTED: usize = 8;

/// Why the definitions are not as they must be.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionsError {
    /// The live definition contradicts ours.
    #[error("CustomResourceDefinition {name}: {why}")]
    Misfit {
        /// The definition's name.
        name: String,
        /// What does not fit, and what to do.
        why: String,
    },
    /// It was written, but is not served.
    #[error("CustomResourceDefinition {name} is not served after {} s: {why}", ESTABLISH.as_secs())]
    NotServed {
        /// The definition's name.
        name: String,
        /// What its status says.
        why: String,
    },
    /// The server did not do what was asked.
    #[error("CustomResourceDefinition {name}: {source}")]
    Api {
        /// The definition's name.
        name: String,
        /// The server's answer, or the lack of one.
        source: Error,
    },
}

/// What is to be done about one definition.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// It is not there: this is applied.
    Create(Value),
    /// It has all that is needed.
    Keep,
    /// This is applied; the lines say what is new in it.
    Change(Value, Vec<String>),
}

/// Whose word counts where both definitions speak of one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lead {
    Ours,
    Live,
}

/// Decides what is to be done about a definition.
///
/// # Errors
/// What contradicts ours in the live one.
pub fn plan(live: Option<&Value>, ours: &Value) -> Result<Plan, String> {
    let Some(live) = live else { return Ok(Plan::Create(marked(ours.clone()))) };
    let lead = lead(object::annotation(live, VERSION));
    let mut news = Vec::new();
    let spec = merge_spec(&live["spec"], &ours["spec"], lead, &mut news)?;
    let current = lead == Lead::Live || object::annotation(live, VERSION) == Some(OURS);
    if current && same(&spec, &live["spec"]) {
        return Ok(Plan::Keep);
    }
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": object::name(ours)},
        "spec": spec,
    });
    let definition = if lead == Lead::Ours { marked(definition) } else { definition };
    Ok(Plan::Change(definition, news))
}

/// With the annotation that makes it this hub's.
pub fn marked(mut definition: Value) -> Value {
    object::set_annotation(&mut definition, VERSION, OURS);
    definition
}

fn lead(version: Option<&str>) -> Lead {
    let parse = |text: &str| -> Option<Vec<u64>> { text.split('.').map(|part| part.parse().ok()).collect() };
    match version.map(parse) {
        Some(Some(live)) if parse(OURS).is_some_and(|ours| live <= ours) => Lead::Ours,
        _ => Lead::Live,
    }
}

fn merge_spec(live: &Value, ours: &Value, lead: Lead, news: &mut Vec<String>) -> Result<Value, String> {
    for field in ["/group", "/scope", "/names/plural", "/names/kind"] {
        let (theirs, wanted) = (live.pointer(field), ours.pointer(field));
        if theirs != wanted {
            let shown =
                |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), ToString::to_string);
            return Err(format!(
                "its spec{} is {} where the hub needs {}: it is no definition of Karmada's. Remove it if nothing \
                 uses it",
                field.replace('/', "."),
                shown(theirs),
                shown(wanted),
            ));
        }
    }
    let mut spec = live.clone();
    for field in ["shortNames", "categories"] {
        let wanted = ours.pointer(&format!("/names/{field}")).and_then(Value::as_array);
        for name in wanted.into_iter().flatten() {
            let list = entry(&mut spec["names"], field, json!([]));
            if let Some(list) = list.as_array_mut().filter(|list| !list.contains(name)) {
                list.push(name.clone());
            }
        }
    }
    let mut versions = live["versions"].as_array().cloned().unwrap_or_default();
    for wanted in ours["versions"].as_array().into_iter().flatten() {
        let name = wanted["name"].as_str().unwrap_or_default();
        match versions.iter_mut().find(|version| version["name"] == name) {
            Some(version) => *version = merge_version(version, wanted, lead, name, news)?,
            None => {
                let mut version = wanted.clone();
                if versions.iter().any(|other| other["storage"] == true) {
                    // One version is stored; which one is for those to change who have objects in it.
                    version["storage"] = false.into();
                }
                versions.push(version);
                news.push(format!("version {name}"));
            }
        }
    }
    spec["versions"] = versions.into();
    Ok(spec)
}

fn merge_version(
    live: &Value,
    ours: &Value,
    lead: Lead,
    name: &str,
    news: &mut Vec<String>,
) -> Result<Value, String> {
    let mut version = live.clone();
    if version["served"] != true {
        version["served"] = true.into();
        news.push(format!("version {name} is served"));
    }
    for (subresource, wanted) in ours["subresources"].as_object().into_iter().flatten() {
        let subresources = entry(&mut version, "subresources", json!({}));
        if subresources.get(subresource).is_none() {
            subresources[subresource.as_str()] = wanted.clone();
            news.push(format!("subresource {subresource} of {name}"));
        }
    }
    let columns = "additionalPrinterColumns";
    if let Some(wanted) = ours.get(columns)
        && (lead == Lead::Ours || version.get(columns).is_none())
    {
        version[columns] = wanted.clone();
    }
    let schema = "/schema/openAPIV3Schema";
    let none = json!({});
    let (of_live, of_ours) = (live.pointer(schema).unwrap_or(&none), ours.pointer(schema).unwrap_or(&none));
    let merged = merge_schema(of_live, of_ours, lead, name, news)?;
    version["schema"] = json!({ "openAPIV3Schema": merged });
    Ok(version)
}

/// The union of two structural schemas of one field.
fn merge_schema(
    live: &Value,
    ours: &Value,
    lead: Lead,
    path: &str,
    news: &mut Vec<String>,
) -> Result<Value, String> {
    if let (Some(theirs), Some(wanted)) = (live.get("type"), ours.get("type"))
        && theirs != wanted
    {
        return Err(format!(
            "{path} is of type {theirs} where the hub needs {wanted}; nothing was changed. Bring the definition to \
             that of a Karmada that this hub knows: karmada-hub crds prints them"
        ));
    }
    let mut merged = if lead == Lead::Ours { ours.clone() } else { live.clone() };
    if !merged.is_object() {
        return Ok(merged);
    }
    let fields = |schema: &Value| schema["properties"].as_object().cloned().unwrap_or_default();
    let (mut properties, wanted) = (fields(live), fields(ours));
    for (name, ours) in &wanted {
        let at = format!("{path}.{name}");
        let both = match properties.get(name) {
            Some(live) => merge_schema(live, ours, lead, &at, news)?,
            None => {
                news.push(at);
                ours.clone()
            }
        };
        properties.insert(name.clone(), both);
    }
    if !properties.is_empty() {
        merged["properties"] = Value::Object(properties);
    }
    for (inner, suffix) in [("items", "[]"), ("additionalProperties", "{}")] {
        let both = match (live.get(inner), ours.get(inner)) {
            (Some(live), Some(ours)) if live.is_object() && ours.is_object() => {
                merge_schema(live, ours, lead, &format!("{path}{suffix}"), news)?
            }
            (Some(one), None) | (None, Some(one)) => one.clone(),
            _ => continue,
        };
        merged[inner] = both;
    }
    const OPEN: &str = "x-kubernetes-preserve-unknown-fields";
    if live[OPEN] == true || ours[OPEN] == true {
        merged[OPEN] = true.into();
        if live[OPEN] != true {
            news.push(format!("{path} takes any field"));
        }
    }
    if let (Some(theirs), Some(wanted)) = (live["enum"].as_array(), ours["enum"].as_array()) {
        let mut all = theirs.clone();
        for value in wanted.iter().filter(|value| !theirs.contains(value)) {
            all.push(value.clone());
            news.push(format!("{path} may be {value}"));
        }
        merged["enum"] = all.into();
    }
    Ok(merged)
}

fn entry<'a>(value: &'a mut Value, field: &str, empty: Value) -> &'a mut Value {
    if value.get(field).is_none_or(Value::is_null) {
        value[field] = empty;
    }
    &mut value[field]
}

/// Whether two values say the same to an API server: it writes numbers its own way and leaves out what is empty.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.iter()
                .all(|(key, value)| b.get(key).map_or_else(|| is_empty(value), |other| same(value, other)))
                && b.iter().all(|(key, value)| a.contains_key(key) || is_empty(value))
        }
        _ => a == b,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// Installs all definitions, or brings them up to date, and waits until their kinds are served. `skip`: a definition
/// that is somebody else's matter, by its name.
///
/// # Errors
/// The first definition that cannot be had.
pub async fn install(rest: &Rest, env: &Env, skip: impl Fn(&str) -> bool) -> Result<(), DefinitionsError> {
    let definitions = karmada_api::crds();
    let ours: Vec<&Value> = definitions.iter().filter(|ours| !skip(object::name(ours))).collect();
    for definition in &ours {
        put(rest, definition).await?;
    }
    for definition in &ours {
        served(rest, env, definition).await?;
    }
    Ok(())
}

fn path(name: &str) -> String {
    CUSTOM_RESOURCE_DEFINITIONS.object(None, name)
}

async fn put(rest: &Rest, ours: &Value) -> Result<(), DefinitionsError> {
    let name = object::name(ours);
    let api = |source| DefinitionsError::Api { name: name.to_owned(), source };
    let live = match rest.get(&path(name)).await {
        Ok(live) => Some(live),
        Err(error) if error.is_not_found() => None,
        Err(error) => return Err(api(error)),
    };
    let misfit = |why| DefinitionsError::Misfit { name: name.to_owned(), why };
    if live.as_ref().is_some_and(|live| object::deletion_timestamp(live).is_some()) {
        return Err(misfit(
            "it is being deleted, and all objects of its kind with it; wait until it is gone".into(),
        ));
    }
    match plan(live.as_ref(), ours).map_err(misfit)? {
        Plan::Keep => {
            tracing::debug!(definition = name, "has all that is needed");
        }
        Plan::Create(definition) => {
            rest.apply(&path(name), MANAGER, true, &definition).await.map_err(api)?;
            tracing::info!(definition = name, "installed");
        }
        Plan::Change(definition, news) => {
            let written_by = live.as_ref().map(managers).unwrap_or_default();
            rest.apply(&path(name), MANAGER, true, &definition).await.map_err(api)?;
            tracing::info!(definition = name, written_by, added = shown(&news), "brought up to date");
        }
    }
    Ok(())
}

/// Who wrote an object, for the log.
fn managers(live: &Value) -> String {
    let entries = live.pointer("/metadata/managedFields").and_then(Value::as_array);
    let mut names: Vec<&str> =
        entries.into_iter().flatten().filter_map(|entry| entry["manager"].as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}

fn shown(news: &[String]) -> String {
    let listed = news.iter().take(LISTED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match news.len().saturating_sub(LISTED) {
        0 if news.is_empty() => "nothing; descriptions and limits changed".to_owned(),
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}

/// Waits until a kind can be listed: established, and known to discovery.
async fn served(rest: &Rest, env: &Env, ours: &Value) -> Result<(), DefinitionsError> {
    let name = object::name(ours);
    let spec = &ours["spec"];
    let text = |pointer: &str| spec.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let version = spec["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|version| version["storage"] == true)
        .and_then(|version| version["name"].as_str())
        .unwrap_or_default();
    let list = format!("/apis/{}/{version}/{}?limit=1", text("/group"), text("/names/plural"));
    let end = env.now() + ESTABLISH;
    loop {
        let why = match rest.get(&list).await {
            Ok(_) => return Ok(()),
            // Not served yet, or the server is still making up its mind.
            Err(error) if error.is_not_found() || error.is_transient() => error.to_string(),
            Err(source) => return Err(DefinitionsError::Api { name: name.to_owned(), source }),
        };
        let live = rest.get(&path(name)).await.unwrap_or_default();
        if let Some(refused) = refused(&live) {
            return Err(DefinitionsError::Misfit { name: name.to_owned(), why: refused });
        }
        if env.now() >= end {
            return Err(DefinitionsError::NotServed { name: name.to_owned(), why });
        }
        sleep(LOOK).await;
    }
}

/// Why a server does not take a definition's names.
fn refused(live: &Value) -> Option<String> {
    let conditions = live.pointer("/status/conditions")?.as_array()?;
    let taken = conditions.iter().find(|c| c["type"] == "NamesAccepted" && c["status"] == "False")?;
    Some(format!("its names are taken: {}", taken["message"].as_str().unwrap_or_default()))
}

/// The name of the definition of Clusters.
pub(super) fn of_clusters(name: &str) -> bool {
    name == "clusters.cluster.karmada.io"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "a table reads better so")]
    fn definition(versions: Value) -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "works.work.karmada.io"},
            "spec": {
                "group": "work.karmada.io", "scope": "Namespaced",
                "names": {"plural": "works", "kind": "Work", "shortNames": ["wk"]},
                "versions": versions,
            },
        })
    }

    #[expect(clippy::needless_pass_by_value, reason = "a table reads better so")]
    fn version(name: &str, storage: bool, properties: Value) -> Value {
        json!({
            "name": name, "served": true, "storage": storage, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
        })
    }

    fn by(mut definition: Value, version: Option<&str>) -> Value {
        if let Some(version) = version {
            object::set_annotation(&mut definition, VERSION, version);
        }
        definition
    }

    fn ours() -> Value {
        definition(json!([version(
            "v1alpha1",
            true,
            json!({"spec": {"type": "object", "description": "new", "properties": {
                "suspend": {"type": "boolean"}, "mode": {"type": "string", "enum": ["A", "B"]},
            }}})
        )]))
    }

    fn changed(live: &Value) -> (Value, Vec<String>) {
        match plan(Some(live), &ours()).expect("it fits") {
            Plan::Change(definition, news) => (definition, news),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_missing_is_made_and_what_is_there_is_kept() {
        let Plan::Create(made) = plan(None, &ours()).unwrap() else { panic!("it is not there") };
        assert_eq!(object::annotation(&made, VERSION), Some(OURS));
        assert_eq!(plan(Some(&made), &ours()), Ok(Plan::Keep));
        // As a server gives it back.
        let mut live = made;
        live["spec"]["conversion"] = json!({"strategy": "None"});
        live["spec"]["names"]["listKind"] = json!("WorkList");
        live["status"] = json!({"storedVersions": ["v1alpha1"]});
        assert_eq!(plan(Some(&live), &ours()), Ok(Plan::Keep));
        let all = karmada_api::crds();
        for ours in &all {
            assert_eq!(plan(Some(&marked(ours.clone())), ours), Ok(Plan::Keep), "{}", object::name(ours));
            assert_eq!(plan(Some(ours), ours), Ok(Plan::Keep), "another's: {}", object::name(ours));
        }
    }

    #[test]
    fn an_old_one_gets_what_is_new_and_loses_nothing() {
        let old = json!({"spec": {"type": "object", "description": "old", "properties": {
            "mode": {"type": "string", "enum": ["A", "C"]}, "theirs": {"type": "string"},
        }}});
        for (by_whom, description) in
            [(Some("0.0.1"), "new"), (None, "old"), (Some("999.0.0"), "old"), (Some("odd"), "old")]
        {
            let live = by(definition(json!([version("v1alpha1", true, old.clone())])), by_whom);
            let (merged, news) = changed(&live);
            let spec = &merged["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
            assert_eq!(spec["description"], description, "{by_whom:?}");
            assert_eq!(spec["properties"]["theirs"], json!({"type": "string"}), "{by_whom:?}");
            assert_eq!(spec["properties"]["suspend"], json!({"type": "boolean"}), "{by_whom:?}");
            assert_eq!(spec["properties"]["mode"]["enum"], json!(["A", "C", "B"]), "{by_whom:?}");
            assert!(news.contains(&"v1alpha1.spec.suspend".to_owned()), "{news:?}");
            let mut now = merged;
            if by_whom == Some("0.0.1") {
                assert_eq!(object::annotation(&now, VERSION), Some(OURS));
            } else {
                now = by(now, by_whom);
            }
            assert_eq!(plan(Some(&now), &ours()), Ok(Plan::Keep), "{by_whom:?}: settled");
        }
    }

    #[test]
    fn versions_of_others_stay() {
        let live = definition(json!([version("v1beta1", true, json!({"spec": {"type": "object"}}))]));
        let (merged, news) = changed(&live);
        let versions = merged["spec"]["versions"].as_array().unwrap();
        let told: Vec<_> = versions.iter().map(|v| (v["name"].as_str(), v["storage"].as_bool())).collect();
        assert_eq!(told, [(Some("v1beta1"), Some(true)), (Some("v1alpha1"), Some(false))]);
        assert_eq!(news, ["version v1alpha1"]);
        let mut unserved = ours();
        unserved["spec"]["versions"][0]["served"] = json!(false);
        let (merged, _) = changed(&unserved);
        assert_eq!(merged["spec"]["versions"][0]["served"], true);
        let mut bare = ours();
        bare["spec"]["versions"][0].as_object_mut().unwrap().remove("subresources");
        let (merged, news) = changed(&bare);
        assert_eq!(merged["spec"]["versions"][0]["subresources"], json!({"status": {}}));
        assert_eq!(news, ["subresource status of v1alpha1"]);
    }

    #[test]
    fn contradictions_are_refused_by_name() {
        let mut other = ours();
        other["spec"]["scope"] = json!("Cluster");
        assert!(plan(Some(&other), &ours()).unwrap_err().contains("spec.scope is \"Cluster\""));
        let text = json!({"spec": {"type": "object", "properties": {"suspend": {"type": "string"}}}});
        let why = plan(Some(&definition(json!([version("v1alpha1", true, text)]))), &ours()).unwrap_err();
        assert!(why.contains("v1alpha1.spec.suspend is of type \"string\""), "{why}");
    }

    #[test]
    fn karmadas_own_definitions_are_added_to_and_keep_all_they_have() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/karmada/crds");
        for ours in karmada_api::crds() {
            let (group, plural) = (&ours["spec"]["group"], &ours["spec"]["names"]["plural"]);
            let file = format!("{folder}/{}_{}.yaml", group.as_str().unwrap(), plural.as_str().unwrap());
            let Ok(text) = std::fs::read_to_string(&file) else {
                eprintln!("{file} is not there");
                continue;
            };
            let theirs: Value = serde_saphyr::from_str(&text).expect("YAML");
            let name = object::name(&ours);
            let news = match plan(Some(&theirs), &ours).unwrap_or_else(|why| panic!("{name}: {why}")) {
                Plan::Keep => continue,
                Plan::Create(_) => panic!("{name} is there"),
                Plan::Change(merged, news) => {
                    let versions = |d: &Value| d["spec"]["versions"].as_array().map_or(0, Vec::len);
                    assert!(versions(&merged) >= versions(&theirs), "{name}");
                    assert_eq!(plan(Some(&merged), &ours), Ok(Plan::Keep), "{name}: settled");
                    news
                }
            };
            eprintln!("{name}: {news:?}");
        }
    }

    #[test]
    fn numbers_and_emptiness_have_several_spellings() {
        assert!(same(&json!({"a": 1, "b": []}), &json!({"a": 1.0, "c": ""})));
        assert!(!same(&json!({"a": 1}), &json!({"a": 2})));
        assert!(!same(&json!({"a": [1]}), &json!({"a": [1, 2]})));
        assert!(!same(&json!({"a": true}), &json!({})));
    }
}
