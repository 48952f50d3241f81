//! `karmada-hub apply`: server-side apply of files, for machines without kubectl.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use karmada_client::Error;
use karmada_env::Env;
use karmada_meta::object;
use karmada_objects::{discovery::Lookup, key::Key, kinds::CUSTOM_RESOURCE_DEFINITIONS};
use serde_json::{Value, json};

use super::{Failure, args::ApplyArgs, ask::Server, progress::Progress, told::Told};

/// Who owns the fields that this command applies.
const FIELD_MANAGER: &str = "karmada-hub-cli";
/// How often, and how many times, a new definition is looked at.
const ESTABLISH_LOOK: Duration = Duration::from_millis(100);
const ESTABLISH_LOOKS: usize = 100;

/// Applies every document of every file, and says of each what came of it.
pub(super) async fn run(args: ApplyArgs, env: Env) -> Result<(), Failure> {
    let server = Server::open(&args.server, &env)?;
    files_to(&server, &args.paths, args.with_status, args.told, &env).await
}

/// The same to a server that is open, with the status of objects if it is asked for.
///
/// # Errors
/// When a file cannot be read, or something cannot be applied.
pub async fn files_to(
    server: &Server,
    paths: &[PathBuf],
    with_status: bool,
    told: Told,
    env: &Env,
) -> Result<(), Failure> {
    let mut documents = Vec::new();
    for path in paths {
        for file in files(path)? {
            let text =
                fs::read_to_string(&file).map_err(|e| Failure::usage(format!("{}: {e}", file.display())))?;
            for document in parse(&text).map_err(|e| Failure::usage(format!("{}: {e}", file.display())))? {
                documents.push((file.clone(), document));
            }
        }
    }
    let mut lookup = Lookup::default();
    let mut failed = 0usize;
    let progress = Progress::new("apply", Some(documents.len() as u64), env);
    for (file, document) in documents {
        progress.add(0, &format!("{}/{}", object::kind(&document), object::name(&document)));
        let status = with_status.then(|| document["status"].clone());
        match apply(server, &mut lookup, document, status.as_ref()).await {
            Ok((label, result)) => {
                progress.clear();
                told.say(&format!("{label} {result}"), &json!({"object": label, "result": result}))?;
            }
            Err(reason) => {
                progress.clear();
                failed += 1;
                if told.is_json() {
                    told.say(
                        "",
                        &json!({"file": file.display().to_string(), "result": "failed", "error": reason}),
                    )?;
                }
                eprintln!("{}: {reason}", file.display());
            }
        }
        progress.add(1, "");
    }
    drop(progress);
    if failed == 0 {
        Ok(())
    } else {
        Err(Failure::failed(format!(
            "{failed} object(s) could not be applied. Correct them and run the same command again: it does not change what is as wanted"
        )))
    }
}

/// The file itself, or the YAML and JSON files of a folder in order of their names.
fn files(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unreadable = |e: std::io::Error| Failure::usage(format!("{}: {e}", path.display()));
    if !fs::metadata(path).map_err(unreadable)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files: Vec<PathBuf> = fs::read_dir(path)
        .map_err(unreadable)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "yaml" || e == "yml" || e == "json"))
        .collect();
    files.sort();
    if files.is_empty() {
        return Err(Failure::usage(format!("{}: holds no YAML or JSON file", path.display())));
    }
    Ok(files)
}

/// The documents of a YAML stream; lists are taken apart, empty documents skipped.
fn parse(text: &str) -> Result<Vec<Value>, String> {
    // `defaultMode: 0400`, as kubectl reads it.
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    let documents: Vec<Value> =
        serde_saphyr::from_multiple_with_options(text, options).map_err(|e| e.to_string())?;
    let mut objects = Vec::new();
    for mut document in documents {
        match &mut document {
            Value::Null => {}
            Value::Object(map) if map.contains_key("items") => match map.remove("items") {
                Some(Value::Array(items)) => objects.extend(items),
                _ => return Err("items is not a list".to_owned()),
            },
            Value::Object(_) => objects.push(document),
            _ => return Err("a document is not an object".to_owned()),
        }
    }
    Ok(objects)
}

/// Applies one object, and its `status` if one is given that says something.
async fn apply(
    server: &Server,
    lookup: &mut Lookup,
    mut document: Value,
    status: Option<&Value>,
) -> Result<(String, &'static str), String> {
    let api_version = object::api_version(&document).to_owned();
    let kind = object::kind(&document).to_owned();
    let name = object::name(&document).to_owned();
    if api_version.is_empty() || kind.is_empty() || name.is_empty() {
        return Err("an object needs apiVersion, kind and metadata.name".to_owned());
    }
    let rest = server.objects.rest();
    let served = lookup
        .find(rest, &api_version, &kind)
        .await
        .map_err(|e| e.to_string())?
        .ok_or_else(|| format!("the server has no kind {kind} in {api_version}"))?;
    let resource = served.resource;
    let label = match resource.group.as_str() {
        "" => format!("{}/{name}", served.singular),
        group => format!("{}.{group}/{name}", served.singular),
    };
    let namespace = match object::namespace(&document) {
        _ if !resource.namespaced => String::new(),
        "" => server.namespace.clone(),
        namespace => namespace.to_owned(),
    };
    if resource.namespaced {
        document["metadata"]["namespace"] = namespace.clone().into();
    }
    let before = server
        .objects
        .get(&resource, &Key::new(namespace.clone(), name.clone()))
        .await
        .map_err(|e| format!("{label}: {e}"))?;
    let path = resource.object(Some(&namespace), &name);
    let failed = |e| format!("{label}: {e}");
    let (_, mut after) = rest.apply(&path, FIELD_MANAGER, true, &document).await.map_err(failed)?;
    if let Some(status) = status.filter(|status| status.as_object().is_some_and(|s| !s.is_empty())) {
        let path = resource.subresource(Some(&namespace), &name, "status");
        let document = json!({
            "apiVersion": api_version, "kind": kind,
            "metadata": {"name": name, "namespace": namespace}, "status": status,
        });
        (_, after) = rest.apply(&path, FIELD_MANAGER, true, &document).await.map_err(failed)?;
    }
    if resource == *CUSTOM_RESOURCE_DEFINITIONS {
        established(server, &name).await.map_err(failed)?;
        // The next documents may be of its kind.
        lookup.forget();
    }
    let what = match before {
        None => "created",
        Some(before) if object::resource_version(&before) == object::resource_version(&after) => "unchanged",
        Some(_) => "configured",
    };
    Ok((label, what))
}

/// Waits until objects of a definition's kind can be written; not for long, if its names are taken, say.
async fn established(server: &Server, name: &str) -> Result<(), Error> {
    let path = CUSTOM_RESOURCE_DEFINITIONS.object(None, name);
    for _ in 0..ESTABLISH_LOOKS {
        let live = server.objects.rest().get(&path).await?;
        let conditions = live.pointer("/status/conditions").and_then(Value::as_array);
        if conditions.into_iter().flatten().any(|c| c["type"] == "Established" && c["status"] == "True") {
            return Ok(());
        }
        tokio::time::sleep(ESTABLISH_LOOK).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_and_lists_are_taken_apart() {
        let names = |text: &str| {
            parse(text).map(|all| all.iter().map(|v| object::name(v).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(names("metadata: {name: a}\n---\n---\nmetadata: {name: b}\n").unwrap(), ["a", "b"]);
        assert_eq!(
            names("kind: List\nitems: [{metadata: {name: a}}, {metadata: {name: b}}]").unwrap(),
            ["a", "b"]
        );
        assert!(names("- a\n- b\n").is_err());
        assert!(names("a: [").is_err());
    }

    #[test]
    fn folders_are_read_in_order() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.yaml", "a.yml", "c.json", "notes.txt"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let names: Vec<_> = files(folder.path())
            .unwrap_or_default()
            .iter()
            .filter_map(|p| p.file_name().map(|n| n.to_string_lossy().into_owned()))
            .collect();
        assert_eq!(names, ["a.yml", "b.yaml", "c.json"]);
        assert!(matches!(files(&folder.path().join("none")), Err(Failure::Usage(_))));
    }
}
