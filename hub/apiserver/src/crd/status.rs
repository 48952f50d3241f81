//! What the server says of a definition: which of its names it got, and whether its objects are served.
//!
//! Names are first come, first served within a group. A definition whose names are taken keeps what it had and is not
//! established; it gets its names when the other one goes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::parts::{list, text};

/// Whether a condition of a definition is true.
pub fn is_true(definition: &Value, condition: &str) -> bool {
    list(definition, "/status/conditions")
        .iter()
        .any(|c| text(c, "/type") == condition && text(c, "/status") == "True")
}

/// Sets a condition; its time changes only with its status. `now` is RFC 3339.
pub fn set_condition(
    definition: &mut Value,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: &str,
) {
    let whole = &mut definition["status"];
    if !whole.is_object() {
        *whole = json!({});
    }
    let conditions = &mut whole["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return };
    let at = conditions.iter().position(|c| text(c, "/type") == kind);
    let since = at
        .map(|at| &conditions[at])
        .filter(|c| text(c, "/status") == status)
        .map_or(now, |c| text(c, "/lastTransitionTime"));
    let condition = json!({
        "type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message,
    });
    match at {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
}

/// The names that a definition has been given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Of resources: plural, singular and short ones.
    pub resources: BTreeSet<String>,
    /// Of kinds: of an object and of a list.
    pub kinds: BTreeSet<String>,
}

impl Names {
    /// Those in its status.
    pub fn accepted(definition: &Value) -> Self {
        let accepted = |field: &str| text(definition, &format!("/status/acceptedNames/{field}")).to_owned();
        let short = list(definition, "/status/acceptedNames/shortNames").iter();
        let short = short.filter_map(|v| v.as_str().map(str::to_owned));
        let there = |name: &String| !name.is_empty();
        Self {
            resources: ["plural", "singular"].map(accepted).into_iter().chain(short).filter(there).collect(),
            kinds: ["kind", "listKind"].map(accepted).into_iter().filter(there).collect(),
        }
    }
}

/// What a name names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Naming {
    /// A resource.
    Resource,
    /// A kind.
    Kind,
}

/// The definition with its status as it should be, or `None` if it is so already.
///
/// `is_taken` says which names other definitions of the same group have. Pure; `now` is RFC 3339 in seconds.
pub fn reconcile(definition: &Value, is_taken: impl Fn(Naming, &str) -> bool, now: &str) -> Option<Value> {
    let wanted = definition.pointer("/spec/names").cloned().unwrap_or_default();
    let mut accepted = definition.pointer("/status/acceptedNames").cloned().unwrap_or_else(|| json!({}));
    let mut conflict: Option<(&str, String)> = None;
    let taken = |name: &str| format!("{name:?} is already in use");
    for (field, naming, reason) in [
        ("plural", Naming::Resource, "PluralConflict"),
        ("singular", Naming::Resource, "SingularConflict"),
        ("kind", Naming::Kind, "KindConflict"),
        ("listKind", Naming::Kind, "ListKindConflict"),
    ] {
        let name = wanted[field].as_str().unwrap_or_default();
        if accepted[field] == wanted[field] || !is_taken(naming, name) {
            accepted[field] = wanted[field].clone();
        } else {
            conflict = Some((reason, taken(name)));
        }
    }
    let short = |from: &Value| -> Vec<String> {
        list(from, "/shortNames").iter().filter_map(|v| v.as_str().map(str::to_owned)).collect()
    };
    let had = short(&accepted);
    let clash: Vec<String> = short(&wanted)
        .iter()
        .filter(|n| !had.contains(n) && is_taken(Naming::Resource, n))
        .map(|n| taken(n))
        .collect();
    if clash.is_empty() {
        copy(&wanted, &mut accepted, "shortNames");
    } else {
        let message = if clash.len() == 1 { clash[0].clone() } else { format!("[{}]", clash.join(", ")) };
        conflict = Some(("ShortNamesConflict", message));
    }
    copy(&wanted, &mut accepted, "categories");

    let mut new = definition.clone();
    if !new["status"].is_object() {
        new["status"] = json!({});
    }
    new["status"]["acceptedNames"] = accepted;
    match &conflict {
        Some((reason, message)) => set_condition(&mut new, "NamesAccepted", "False", reason, message, now),
        None => set_condition(&mut new, "NamesAccepted", "True", "NoConflicts", "no conflicts found", now),
    }
    // Once established a definition stays so, whatever becomes of a change of its names.
    if !is_true(definition, "Established") {
        match conflict {
            Some(_) => {
                set_condition(
                    &mut new,
                    "Established",
                    "False",
                    "NotAccepted",
                    "not all names are accepted",
                    now,
                );
            }
            None => set_condition(
                &mut new,
                "Established",
                "True",
                "InitialNamesAccepted",
                "the initial names have been accepted",
                now,
            ),
        }
    }
    (new != *definition).then_some(new)
}

fn copy(from: &Value, to: &mut Value, field: &str) {
    match (from.get(field).filter(|v| !v.is_null()), to.as_object_mut()) {
        (Some(value), Some(to)) => {
            to.insert(field.to_owned(), value.clone());
        }
        (None, Some(to)) => {
            to.shift_remove(field);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-02T03:04:05Z";

    fn definition(plural: &str, kind: &str, short: &[&str]) -> Value {
        json!({
            "metadata": {"name": format!("{plural}.g.io")},
            "spec": {"group": "g.io", "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind,
                "listKind": format!("{kind}List"), "shortNames": short, "categories": ["all"]}},
            "status": {"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": ["v1"]},
        })
    }

    fn nobody(_: Naming, _: &str) -> bool {
        false
    }

    fn condition<'a>(definition: &'a Value, kind: &str) -> Vec<&'a str> {
        let conditions = definition["status"]["conditions"].as_array().unwrap();
        let condition = conditions.iter().find(|c| c["type"] == kind).unwrap();
        ["status", "reason", "message"].map(|f| condition[f].as_str().unwrap()).to_vec()
    }

    #[test]
    fn a_definition_alone_is_established() {
        let new = reconcile(&definition("widgets", "Widget", &["w"]), nobody, NOW).unwrap();
        assert_eq!(condition(&new, "NamesAccepted"), ["True", "NoConflicts", "no conflicts found"]);
        assert_eq!(
            condition(&new, "Established"),
            ["True", "InitialNamesAccepted", "the initial names have been accepted"]
        );
        assert_eq!(new["status"]["acceptedNames"], new["spec"]["names"]);
        assert_eq!(reconcile(&new, nobody, "2027-01-01T00:00:00Z"), None, "nothing left to do");
    }

    #[test]
    fn names_go_to_the_first() {
        let first = reconcile(&definition("widgets", "Widget", &["w"]), nobody, NOW).unwrap();
        let taken = Names::accepted(&first);
        let cases = [
            (definition("gadgets", "Widget", &[]), "ListKindConflict", "\"WidgetList\" is already in use"),
            (definition("gadgets", "Gadget", &["w"]), "ShortNamesConflict", "\"w\" is already in use"),
            (definition("widget", "Gadget", &[]), "PluralConflict", "\"widget\" is already in use"),
        ];
        for (second, reason, message) in cases {
            let is_taken = |naming: Naming, name: &str| match naming {
                Naming::Resource => taken.resources.contains(name),
                Naming::Kind => taken.kinds.contains(name),
            };
            let new = reconcile(&second, is_taken, NOW).unwrap();
            assert_eq!(condition(&new, "NamesAccepted"), ["False", reason, message]);
            assert_eq!(
                condition(&new, "Established"),
                ["False", "NotAccepted", "not all names are accepted"]
            );
            let later = reconcile(&new, nobody, NOW).unwrap();
            assert_eq!(condition(&later, "Established")[0], "True", "the names are free now");
        }
    }

    #[test]
    fn names_may_change_later() {
        let mut new = reconcile(&definition("widgets", "Widget", &["w"]), nobody, NOW).unwrap();
        new["spec"]["names"]["shortNames"] = json!(["x"]);
        let newer = reconcile(&new, nobody, "2027-01-01T00:00:00Z").unwrap();
        assert_eq!(newer["status"]["acceptedNames"]["shortNames"], json!(["x"]));
        assert_eq!(newer["status"]["conditions"], new["status"]["conditions"], "times stay");
    }
}
