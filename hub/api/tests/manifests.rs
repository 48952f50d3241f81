//! `manifests/crds` holds what the types say. After a change of a type: `UPDATE_MANIFESTS=1 cargo test -p karmada-api`.

use std::{collections::BTreeSet, fs, path::PathBuf};

use karmada_api::crd;
use serde_json::Value;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../manifests/crds")
}

#[test]
fn the_files_are_current() {
    let update = std::env::var_os("UPDATE_MANIFESTS").is_some();
    let mut wanted = BTreeSet::new();
    for definition in karmada_api::crds() {
        let (name, text) = (crd::file_name(&definition), crd::to_yaml(&definition));
        let path = folder().join(&name);
        if update {
            fs::create_dir_all(folder()).unwrap();
            fs::write(&path, &text).unwrap();
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == text,
            "{} is stale: run UPDATE_MANIFESTS=1 cargo test -p karmada-api",
            path.display()
        );
        wanted.insert(name);
    }
    let found: BTreeSet<String> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(found, wanted, "no other file belongs into manifests/crds");
}

#[test]
fn a_file_reads_back_as_the_definition() {
    for definition in karmada_api::crds() {
        let read: Value = serde_saphyr::from_str(&crd::to_yaml(&definition)).unwrap();
        assert_eq!(read, definition, "{}", crd::file_name(&definition));
    }
}
