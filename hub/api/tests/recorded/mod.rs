//! The objects recorded on a stock Karmada, for tests of several crates.
#![allow(clippy::unwrap_used, reason = "part of tests")]
#![allow(dead_code, reason = "not every test uses every field")]

use std::{fs, path::PathBuf};

use serde_json::Value;

/// An object and where it was read.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    /// The recording.
    pub(crate) file: String,
    /// `hub`, `member1`, …
    pub(crate) place: String,
    /// The object; lists are taken apart.
    pub(crate) object: Value,
}

/// Every object of every recording. None, with a message, where the reference material is not beside the project.
pub(crate) fn objects() -> Vec<Recorded> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/karmada/recordings");
    let Ok(files) = fs::read_dir(&folder) else {
        eprintln!("skipped: {} is not there", folder.display());
        return Vec::new();
    };
    let mut recorded = Vec::new();
    for file in files {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|e| e != "yaml") {
            continue;
        }
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        for document in fs::read_to_string(&path).unwrap().split("\n---\n") {
            // Each document begins with a comment: `# member1: get deploy nginx`.
            let title = document.lines().find_map(|l| l.strip_prefix("# ")).unwrap_or_default();
            let place = title.split(':').next().unwrap().to_owned();
            let value: Value = serde_saphyr::from_str(document).unwrap_or_default();
            let objects = value["items"].as_array().cloned().unwrap_or_else(|| vec![value]);
            let with_place = |object| Recorded { file: file.clone(), place: place.clone(), object };
            recorded.extend(objects.into_iter().filter(|o| o["kind"].is_string()).map(with_place));
        }
    }
    assert!(recorded.len() > 50, "the recordings hold more than {} objects", recorded.len());
    recorded
}
