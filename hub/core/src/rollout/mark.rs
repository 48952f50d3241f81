//! The mark on a Work: which revision it carries.
//!
//! Whoever changes what a Work carries, and does not know of marks, leaves the mark as it was; a hub of an earlier version does.
//! So a mark names the content as well, and says nothing of another one.

use karmada_meta::object;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::REVISION;

/// Marks what a Work carries as a revision, or as none.
pub fn mark(work: &mut Value, revision: Option<&str>) {
    match revision {
        Some(revision) => {
            let mark = format!("{revision}:{}", content(work));
            object::set_annotation(work, REVISION, mark);
        }
        None => drop(object::remove_annotation(work, REVISION)),
    }
}

/// The revision that a Work carries; nothing where nobody can say.
pub fn marked(work: &Value) -> Option<&str> {
    let (revision, of) = object::annotation(work, REVISION)?.split_once(':')?;
    (!revision.is_empty() && of == content(work)).then_some(revision)
}

fn content(work: &Value) -> String {
    let mut workload = work.pointer("/spec/workload").cloned().unwrap_or_default();
    // Servers give fields back in an order of their own.
    workload.sort_all_objects();
    let hash = Sha256::digest(workload.to_string());
    hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_mark_says_nothing_of_another_content() {
        let mut work = json!({"metadata": {}, "spec": {"workload": {"manifests": [{"kind": "A", "x": 1}]}}});
        assert_eq!(marked(&work), None);
        mark(&mut work, Some("one"));
        assert_eq!(marked(&work), Some("one"));
        // Another order is the same content, and what is beside the manifests is none.
        work["spec"]["workload"]["manifests"] = serde_json::from_str(r#"[{"x": 1, "kind": "A"}]"#).unwrap();
        work["spec"]["suspendDispatching"] = json!(true);
        assert_eq!(marked(&work), Some("one"));
        let mut other = work.clone();
        other["spec"]["workload"]["manifests"][0]["x"] = json!(2);
        assert_eq!(marked(&other), None);
        mark(&mut work, None);
        assert_eq!(marked(&work), None);
        for text in ["one", "one:", ":", ""] {
            object::set_annotation(&mut work, REVISION, text);
            assert_eq!(marked(&work), None, "{text:?}");
        }
    }
}
