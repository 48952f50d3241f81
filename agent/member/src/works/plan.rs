//! Which version of each of a Work's objects is kept while changes are held back: the one that was applied.
//!
//! | wanted now | was applied | before it | is kept as |
//! |---|---|---|---|
//! | yes | as wanted | | wanted |
//! | yes | otherwise, or not | listed | it was before |
//! | yes | otherwise, or not | unknown | it is: nothing is done |
//! | no | | listed | it was before |

use super::desired::{DesiredWork, Manifest};

/// One object of a Work.
#[derive(Debug)]
pub(super) struct Planned<'a> {
    /// Its place among the manifests that are wanted; none for an object that is wanted no more.
    pub(super) ordinal: Option<usize>,
    /// What it is kept as; nothing is done if there is none.
    pub(super) manifest: Option<&'a Manifest>,
}

/// What is done for a Work whose changes are not held back.
pub(super) fn as_wanted(work: &DesiredWork) -> Vec<Planned<'_>> {
    let listed = work.manifests.iter().enumerate();
    listed.map(|(ordinal, manifest)| Planned { ordinal: Some(ordinal), manifest: Some(manifest) }).collect()
}

/// What is done for one whose changes are, and whether there is one that waits. `before` is the version that was in force
/// when the first of them came, if there was one.
pub(super) fn while_held<'a>(
    work: &'a DesiredWork,
    before: Option<&'a DesiredWork>,
    is_applied: impl Fn(&Manifest) -> bool,
) -> (Vec<Planned<'a>>, bool) {
    let before = before.map_or(&[][..], |before| &*before.manifests);
    let mut waits = work.deleting;
    let mut plan = Vec::new();
    for (ordinal, wanted) in work.manifests.iter().enumerate() {
        let manifest = if is_applied(wanted) {
            Some(wanted)
        } else {
            before.iter().find(|manifest| manifest.id == wanted.id)
        };
        waits |= manifest.is_none_or(|manifest| manifest.digest != wanted.digest);
        plan.push(Planned { ordinal: Some(ordinal), manifest });
    }
    for manifest in before.iter().filter(|manifest| !work.manifests.iter().any(|m| m.id == manifest.id)) {
        waits = true;
        plan.push(Planned { ordinal: None, manifest: Some(manifest) });
    }
    (plan, waits)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn work(objects: &[(&str, u32)], deleting: bool) -> DesiredWork {
        let manifest = |(name, value): &(&str, u32)| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"}, "data": {"v": value.to_string()}});
        let manifests: Vec<_> = objects.iter().map(manifest).collect();
        let deleted = deleting.then_some("2026-01-01T00:00:00Z");
        let text = json!({"metadata": {"name": "w", "uid": "u", "deletionTimestamp": deleted},
                          "spec": {"workload": {"manifests": manifests}}});
        DesiredWork::parse(&text.to_string()).unwrap()
    }

    #[test]
    fn what_was_applied_is_kept_and_what_is_new_waits() {
        type Objects = &'static [(&'static str, u32)];
        type Row = (Objects, Option<Objects>, Objects, bool, &'static str, bool);
        // (wanted, in force before, applied, going, what is kept, whether something waits)
        let rows: [Row; 9] = [
            (&[("a", 1)], None, &[("a", 1)], false, "a=1", false),
            (&[("a", 2)], Some(&[("a", 1)]), &[("a", 1)], false, "a=1", true),
            // A change that was begun is not taken back.
            (
                &[("a", 2), ("b", 2)],
                Some(&[("a", 1), ("b", 1)]),
                &[("a", 2), ("b", 1)],
                false,
                "a=2 b=1",
                true,
            ),
            // It is known to have been applied, and not as what.
            (&[("a", 2)], None, &[("a", 1)], false, "a=?", true),
            (&[("a", 1), ("new", 1)], Some(&[("a", 1)]), &[("a", 1)], false, "a=1 new=?", true),
            (&[("a", 1)], Some(&[("a", 1), ("left", 1)]), &[("a", 1)], false, "a=1 left=1", true),
            (&[("a", 1)], None, &[("a", 1)], true, "a=1", true),
            // What somebody has deleted from the member's records is what it was.
            (&[("a", 1)], Some(&[("a", 1)]), &[], false, "a=1", false),
            (&[], Some(&[("a", 1)]), &[("a", 1)], false, "a=1", true),
        ];
        for (wanted, before, applied, going, want, want_waits) in rows {
            let (wanted, before) = (work(wanted, going), before.map(|before| work(before, false)));
            let applied = work(applied, false);
            let is_applied = |m: &Manifest| applied.manifests.iter().any(|a| a.digest == m.digest);
            let (plan, waits) = while_held(&wanted, before.as_ref(), is_applied);
            let word = |planned: &Planned<'_>| {
                let listed = planned.ordinal.map(|at| &wanted.manifests[at]);
                let name = &planned.manifest.or(listed).unwrap().id.name;
                let value = planned
                    .manifest
                    .map(|m| serde_json::from_str::<serde_json::Value>(&m.text.get()).unwrap());
                let value =
                    value.map_or_else(|| "?".to_owned(), |v| v["data"]["v"].as_str().unwrap().to_owned());
                format!("{name}={value}")
            };
            let kept: Vec<_> = plan.iter().map(word).collect();
            assert_eq!((kept.join(" ").as_str(), waits), (want, want_waits), "{wanted:?}");
        }
    }
}
