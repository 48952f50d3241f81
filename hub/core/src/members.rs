//! Whose an object on a member is.
//!
//! An object is ours if two things agree: the member's own bookkeeping has an entry of our field manager, and the
//! annotations on it name the Work. The label `karmada.io/managed` proves nothing, it only selects what is watched;
//! and either of the two alone can be copied by `kubectl get -o yaml | kubectl apply`.

use karmada_api::consts::{
    annotation::{WORK_NAME, WORK_NAMESPACE},
    manager::AGENT,
};
use karmada_meta::object;
use serde_json::Value;

/// What an object on a member is to a Work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The Work's: managed by the agent and annotated with it.
    This,
    /// Another Work's.
    Other {
        /// That Work's namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// Annotated with the Work, but no agent has written it: its annotations were copied, or were restored from a
    /// backup. It may be adopted like a foreign object, under the conflict resolution.
    Copied,
    /// Nobody's that we know of.
    Foreign,
}

/// How our field manager wrote an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Not at all.
    Never,
    /// By server-side apply.
    Applied,
    /// By update only, which is what Karmada's own agent does. The entry has to be turned into one of apply before
    /// the first apply, or fields that leave the manifest would stay.
    Updated,
}

/// How the agent has written an object, from its `managedFields`. Entries of subresources do not count.
pub fn written(object: &Value) -> Written {
    let ours = |operation: &str| {
        object["metadata"]["managedFields"].as_array().is_some_and(|entries| {
            entries.iter().any(|entry| {
                entry["manager"] == AGENT
                    && entry["operation"] == operation
                    && entry["subresource"].as_str().unwrap_or_default().is_empty()
            })
        })
    };
    if ours("Apply") {
        Written::Applied
    } else if ours("Update") {
        Written::Updated
    } else {
        Written::Never
    }
}

/// Whose `object` is, seen from the Work `namespace`/`name`.
pub fn owner(object: &Value, namespace: &str, name: &str) -> Owner {
    let annotated = (object::annotation(object, WORK_NAMESPACE), object::annotation(object, WORK_NAME));
    let written = written(object) != Written::Never;
    match annotated {
        (Some(ns), Some(n)) if ns == namespace && n == name => {
            if written {
                Owner::This
            } else {
                Owner::Copied
            }
        }
        (Some(ns), Some(n)) if written => Owner::Other { namespace: ns.to_owned(), name: n.to_owned() },
        _ => Owner::Foreign,
    }
}

/// Whether the agent may write over what is there without being told to overwrite: the Work's own, and what
/// another Work of the same cluster left (its template was renamed, or its binding made anew under another name).
/// Karmada takes over anything that is labelled as managed; we want to see that an agent wrote it.
pub fn may_adopt(owner: &Owner, namespace: &str, overwrite: bool) -> bool {
    match owner {
        Owner::This => true,
        Owner::Other { namespace: other, .. } => overwrite || other == namespace,
        Owner::Copied | Owner::Foreign => overwrite,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(work: Option<(&str, &str)>, entries: &[(&str, &str, &str)]) -> Value {
        let managed: Vec<_> = entries
            .iter()
            .map(|(manager, operation, sub)| json!({"manager": manager, "operation": operation, "subresource": sub}))
            .collect();
        let annotations = work.map_or_else(|| json!({}), |(ns, n)| json!({WORK_NAMESPACE: ns, WORK_NAME: n}));
        json!({"metadata": {"annotations": annotations, "managedFields": managed}})
    }

    #[test]
    fn ownership_takes_both() {
        let ns = "karmada-es-m";
        let agent = [(AGENT, "Apply", "")];
        let other = Owner::Other { namespace: ns.into(), name: "x".into() };
        let table = [
            ("both", object(Some((ns, "w")), &agent), Owner::This),
            ("Karmada's agent", object(Some((ns, "w")), &[(AGENT, "Update", "")]), Owner::This),
            ("annotations only", object(Some((ns, "w")), &[("kubectl", "Update", "")]), Owner::Copied),
            ("only its status", object(Some((ns, "w")), &[(AGENT, "Update", "status")]), Owner::Copied),
            ("entry only", object(None, &agent), Owner::Foreign),
            ("another Work's", object(Some((ns, "x")), &agent), other.clone()),
            ("a copy of another Work's", object(Some((ns, "x")), &[]), Owner::Foreign),
            ("nothing", json!({"metadata": {}}), Owner::Foreign),
        ];
        for (message, object, want) in table {
            assert_eq!(owner(&object, ns, "w"), want, "{message}");
        }
        assert!(may_adopt(&Owner::This, ns, false));
        assert!(may_adopt(&other, ns, false), "of the same cluster");
        assert!(!may_adopt(&Owner::Other { namespace: "karmada-es-n".into(), name: "w".into() }, ns, false));
        assert!(!may_adopt(&Owner::Copied, ns, false));
        assert!(may_adopt(&Owner::Foreign, ns, true));
    }

    #[test]
    fn apply_wins_over_update() {
        let both = [(AGENT, "Update", ""), (AGENT, "Apply", "")];
        assert_eq!(written(&object(None, &both)), Written::Applied);
        assert_eq!(written(&object(None, &both[..1])), Written::Updated);
        assert_eq!(written(&json!({})), Written::Never);
    }
}
