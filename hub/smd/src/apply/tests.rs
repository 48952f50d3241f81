use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::ownership::{adopted, adoption_patch, owned_by, project};
use crate::testing::{object, schema, spec, widget};

const V1: &str = "example.com/v1";
static NONE: Set = Set::new();

fn by<'a>(manager: &'a str, now: &'a str) -> ApplyOptions<'a> {
    ApplyOptions { manager, api_version: V1, subresource: "", force: false, now, reset_fields: &NONE }
}

fn forced<'a>(manager: &'a str, now: &'a str) -> ApplyOptions<'a> {
    ApplyOptions { force: true, ..by(manager, now) }
}

fn writer<'a>(manager: &'a str, now: &'a str) -> UpdateOptions<'a> {
    UpdateOptions { manager, api_version: V1, subresource: "", now, reset_fields: &NONE }
}

fn t(seconds: usize) -> String {
    format!("2026-01-01T00:00:{seconds:02}Z")
}

/// The managers of an object, one a line: `name operation[/subresource] time fields`.
fn owners(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let text = |v: &Value| v.as_str().unwrap_or("-").to_owned();
    entries
        .iter()
        .map(|e| {
            let fields = e["fieldsV1"].to_string().replace(":{}", "").replace("\\\"", "'").replace('"', "");
            let time = text(&e["time"]).get(17..19).unwrap_or("-").to_owned();
            let sub = e.get("subresource").map(|s| format!("/{}", text(s))).unwrap_or_default();
            format!("{} {}{sub} {time} {fields}", text(&e["manager"]), text(&e["operation"]))
        })
        .collect()
}

fn apply_spec(live: Option<&Value>, spec: Value, o: &ApplyOptions<'_>) -> Result<Value, ApplyError> {
    apply(live, &widget(spec), &schema(), o)
}

/// An object that exists: what was applied, with a uid.
fn stored(mut object: Value) -> Value {
    object["metadata"]["uid"] = json!("u");
    object
}

#[test]
fn the_life_of_an_applied_field() {
    let one = stored(apply_spec(None, json!({"gmap": {"a": "1", "b": "1"}}), &by("x", &t(1))).unwrap());
    assert_eq!(owners(&one), ["x Apply 01 {f:spec:{f:gmap:{f:a,f:b}}}"]);

    let again = apply_spec(Some(&one), json!({"gmap": {"a": "1", "b": "1"}}), &by("x", &t(2))).unwrap();
    assert_eq!(again, one, "the same again changes nothing, not even times");

    let less = apply_spec(Some(&one), json!({"gmap": {"a": "2"}}), &by("x", &t(3))).unwrap();
    assert_eq!(less["spec"], json!({"gmap": {"a": "2"}}));
    assert_eq!(owners(&less), ["x Apply 03 {f:spec:{f:gmap:{f:a}}}"]);

    let shared = apply_spec(Some(&less), json!({"gmap": {"a": "2"}}), &by("y", &t(4))).unwrap();
    assert_eq!(
        owners(&shared),
        ["y Apply - {f:spec:{f:gmap:{f:a}}}", "x Apply 03 {f:spec:{f:gmap:{f:a}}}"],
        "who changes nothing but owners has no time"
    );

    let left = apply_spec(Some(&shared), json!({}), &by("x", &t(5))).unwrap();
    assert_eq!(left["spec"], shared["spec"], "what another owns too stays");
    assert_eq!(owners(&left), ["y Apply - {f:spec:{f:gmap:{f:a}}}", "x Apply 03 {f:spec}"]);

    let config = json!({"apiVersion": V1, "kind": "Widget", "metadata": {"name": "a"}});
    let gone = apply(Some(&less), &config, &schema(), &by("x", &t(6))).unwrap();
    assert_eq!((gone.get("spec"), owners(&gone)), (None, vec![]));
}

#[test]
fn conflicts_are_reported_or_forced() {
    let live = apply_spec(None, json!({"n": 1, "gmap": {"a": "1"}}), &by("x", &t(1))).unwrap();
    let live = update(
        Some(&stored(live.clone())),
        &{
            let mut new = stored(live);
            new["spec"]["deep"] = json!({"a": {"b": 1}});
            new
        },
        &schema(),
        &UpdateOptions { subresource: "status", ..writer("w", "2026-01-01T00:00:02Z") },
    );
    let want = json!({"n": 2, "gmap": {"a": "2"}, "deep": {"a": {"b": 2}}});
    let Err(error) = apply_spec(Some(&live), want.clone(), &by("y", &t(3))) else { panic!("no conflict") };
    assert_eq!(
        error.to_string(),
        "Apply failed with 3 conflicts: conflicts with \"w\" with subresource \"status\" using example.com/v1:\n\
         - .spec.deep.a.b\nconflicts with \"x\":\n- .spec.n\n- .spec.gmap.a"
    );
    let Err(one) = apply_spec(Some(&live), json!({"n": 2}), &by("y", &t(3))) else { panic!("no conflict") };
    assert_eq!(one.to_string(), "Apply failed with 1 conflict: conflict with \"x\": .spec.n");
    let ApplyError::Conflicts(causes) = one else { panic!("{one:?}") };
    assert_eq!(
        (causes[0].message().as_str(), causes[0].path.to_string().as_str()),
        ("conflict with \"x\"", ".spec.n")
    );

    let taken = apply_spec(Some(&live), want.clone(), &forced("y", &t(3))).unwrap();
    assert_eq!(taken["spec"], want);
    assert_eq!(
        owners(&taken),
        [
            "y Apply 03 {f:spec:{f:deep:{f:a:{f:b}},f:gmap:{f:a},f:n}}",
            "w Update/status 02 {f:spec:{f:deep:{.,f:a}}}"
        ]
    );
}

#[test]
fn what_is_refused() {
    let refused = |config: Value| apply(None, &config, &schema(), &by("x", &t(1))).unwrap_err();
    let bad = |text: &str| ApplyError::BadRequest(text.to_owned());
    assert_eq!(
        refused(json!({"apiVersion": V1, "kind": "Widget", "metadata": {"managedFields": []}})),
        bad("metadata.managedFields must be nil")
    );
    assert_eq!(
        refused(json!({"apiVersion": "example.com/v2", "kind": "Widget"})),
        bad(
            "Incorrect version specified in apply patch. Specified patch version: example.com/v2, expected: example.com/v1"
        )
    );
    assert_eq!(
        refused(widget(json!({"set": ["a", "a"]}))).to_string(),
        "failed to create typed patch object (/a; example.com/v1, Kind=Widget): .spec.set: duplicate entries for key [=\"a\"]"
    );
}

#[test]
fn updates_move_ownership() {
    let made =
        stored(update(None, &widget(json!({"n": 1, "gmap": {"a": "1"}})), &schema(), &writer("w", &t(1))));
    assert_eq!(owners(&made), ["w Update 01 {f:spec:{.,f:gmap:{.,f:a},f:n}}"]);

    let mut new = made.clone();
    new["spec"] = json!({"n": 2, "gmap": {"b": "1"}});
    let changed = update(Some(&made), &new, &schema(), &writer("v", &t(2)));
    assert_eq!(
        owners(&changed),
        ["w Update 01 {f:spec:{.,f:gmap}}", "v Update 02 {f:spec:{f:gmap:{f:b},f:n}}"]
    );

    let same = update(Some(&changed), &changed, &schema(), &writer("u", &t(3)));
    assert_eq!(same, changed);
}

#[test]
fn updates_may_set_managed_fields() {
    let made = stored(update(None, &widget(json!({"n": 1})), &schema(), &writer("w", &t(1))));
    let with = |list: Value| {
        let mut new = made.clone();
        new["metadata"]["managedFields"] = list;
        new
    };
    let own = json!([{"manager": "m", "operation": "Apply", "apiVersion": V1, "fieldsType": "FieldsV1", "time": t(0),
        "fieldsV1": {"f:spec": {"f:n": {}}}}]);
    let write = |new: &Value, subresource: &'static str| {
        owners(&update(
            Some(&made),
            new,
            &schema(),
            &UpdateOptions { subresource, ..writer("v", "2026-01-01T00:00:02Z") },
        ))
    };
    assert_eq!(write(&with(own.clone()), ""), ["m Apply 00 {f:spec:{f:n}}"]);
    assert_eq!(write(&with(own), "status"), ["w Update 01 {f:spec:{.,f:n}}"], "a subresource may not");
    for reset in [json!([]), json!([{}])] {
        assert_eq!(write(&with(reset), ""), Vec::<String>::new());
    }
    for ignored in [
        json!(null),
        json!("x"),
        json!([{"operation": "Nothing"}]),
        json!([{"manager": "m", "operation": "Update", "apiVersion": V1, "fieldsType": "FieldsV1", "fieldsV1": "x"}]),
        json!([{"manager": "m", "operation": "Update", "apiVersion": V1, "fieldsType": "V2", "fieldsV1": {}}]),
    ] {
        assert_eq!(write(&with(ignored.clone()), ""), ["w Update 01 {f:spec:{.,f:n}}"], "{ignored}");
    }
}

#[test]
fn an_object_without_managers_stays_so_until_it_is_applied_to() {
    let bare = stored(widget(json!({"n": 1, "gmap": {"a": "1"}})));
    let mut new = bare.clone();
    new["spec"]["n"] = json!(2);
    assert_eq!(owners(&update(Some(&bare), &new, &schema(), &writer("w", &t(1)))), Vec::<String>::new());
    let applied = apply_spec(Some(&bare), json!({"n": 1}), &by("x", &t(2))).unwrap();
    assert_eq!(
        owners(&applied),
        ["x Apply - {f:spec:{f:n}}", "before-first-apply Update 02 {f:spec:{.,f:gmap:{.,f:a},f:n}}"]
    );
    let conflict = apply_spec(Some(&bare), json!({"n": 2}), &by("x", &t(2))).unwrap_err();
    assert_eq!(
        conflict.to_string(),
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using example.com/v1: .spec.n"
    );
}

#[test]
fn the_oldest_writers_are_joined() {
    let mut live = stored(update(None, &widget(json!({})), &schema(), &writer("w0", &t(0))));
    for i in 1..=12usize {
        let mut new = live.clone();
        new["spec"]["gmap"][format!("k{i:02}")] = json!("1");
        live = update(Some(&live), &new, &schema(), &writer(&format!("w{i:02}"), &t(i)));
    }
    let owners = owners(&live);
    assert_eq!(owners.len(), MAX_UPDATE_MANAGERS);
    assert_eq!(owners[0], "ancient-changes Update 03 {f:spec:{.,f:gmap:{.,f:k01,f:k02,f:k03}}}");
    assert_eq!(owners[1], "w04 Update 04 {f:spec:{f:gmap:{f:k04}}}");
}

#[test]
fn fields_of_another_endpoint_are_not_owned() {
    let reset = Set::of_fields(&["status"]);
    let config = json!({"apiVersion": V1, "kind": "Widget", "metadata": {"name": "a"}, "spec": {"n": 1}, "status": {"p": "x"}});
    let o = ApplyOptions { reset_fields: &reset, ..by("x", "2026-01-01T00:00:01Z") };
    assert_eq!(owners(&apply(None, &config, &schema(), &o).unwrap()), ["x Apply 01 {f:spec:{f:n}}"]);
    let o = UpdateOptions { reset_fields: &reset, ..writer("w", "2026-01-01T00:00:01Z") };
    assert_eq!(owners(&update(None, &config, &schema(), &o)), ["w Update 01 {f:spec:{.,f:n}}"]);
}

#[test]
fn kubectl_moves_from_client_side_apply() {
    let last = r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"annotations":{},"name":"a"},"spec":{"n":1}}"#;
    let mut made = stored(widget(json!({"n": 1})));
    made["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": last});
    let live = update(None, &made, &schema(), &writer("kubectl-client-side-apply", &t(1)));
    let other = apply_spec(Some(&live), json!({"n": 2}), &by("other", &t(2)));
    assert!(matches!(other, Err(ApplyError::Conflicts(_))));
    let mut config = widget(json!({"n": 2, "gmap": {"<": "&"}}));
    config["metadata"]["annotations"] = json!({"x": "y"});
    let moved = apply(Some(&live), &config, &schema(), &by("kubectl", &t(2))).unwrap();
    assert_eq!(moved["spec"]["n"], 2);
    assert_eq!(
        moved["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"],
        "{\"apiVersion\":\"example.com/v1\",\"kind\":\"Widget\",\"metadata\":{\"annotations\":{\"x\":\"y\"},\"name\":\"a\"},\
         \"spec\":{\"gmap\":{\"\\u003c\":\"\\u0026\"},\"n\":2}}\n"
    );
    // A field that someone else has changed since is a conflict after all.
    let mut edited = live.clone();
    edited["spec"]["n"] = json!(7);
    let edited = update(Some(&live), &edited, &schema(), &writer("editor", &t(3)));
    assert!(apply_spec(Some(&edited), json!({"n": 2}), &by("kubectl", &t(4))).is_err());
}

#[test]
fn times_alone_are_no_change() {
    let live = stored(update(None, &widget(json!({"n": 1})), &schema(), &writer("w", &t(1))));
    let mut later = live.clone();
    later["metadata"]["managedFields"][0]["time"] = json!(t(9));
    crate::keep_times(&live, &mut later);
    assert_eq!(later, live);
    let mut changed = live.clone();
    changed["metadata"]["managedFields"][0]["time"] = json!(t(9));
    changed["metadata"]["labels"] = json!({"a": "b"});
    let before = changed.clone();
    crate::keep_times(&live, &mut changed);
    assert_eq!(changed, before);
}

#[test]
fn an_older_clients_fields_are_adopted() {
    let mut made = stored(update(
        None,
        &widget(json!({"gmap": {"a": "1", "b": "1"}})),
        &schema(),
        &writer("agent", &t(1)),
    ));
    assert_eq!(adopted(&made, "other", "agent"), None);
    made["metadata"]["resourceVersion"] = json!("7");
    let patch = adoption_patch(&made, "agent", "agent").unwrap();
    let live = crate::json_patch(&made, &patch).unwrap();
    assert_eq!(owners(&live), ["agent Apply 01 {f:spec:{.,f:gmap:{.,f:a,f:b}}}"]);
    assert_eq!(adopted(&live, "agent", "agent"), None);
    let applied = apply_spec(Some(&live), json!({"gmap": {"a": "1"}}), &by("agent", &t(2))).unwrap();
    assert_eq!(applied["spec"], json!({"gmap": {"a": "1"}}), "what is left out now goes");
}

#[test]
fn a_scale_and_its_parent() {
    use crate::scale::{to_parent, to_scale};
    let path = |version: &str| (version == V1).then(|| Path::of_fields(&["spec", "n"]));
    let live = stored(apply_spec(None, json!({"n": 1, "set": ["a"]}), &by("x", &t(1))).unwrap());
    let parent = Managed::of(&live).unwrap();
    let mut scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"uid": "u"}, "spec": {"replicas": 1}});
    to_scale(&parent, &path).write(&mut scale);
    assert_eq!(owners(&scale), ["x Apply 01 {f:spec:{f:replicas}}"]);
    let ty = TypeRef::builtin("autoscaling", "v1", "Scale").unwrap();
    let mut new = scale.clone();
    new["spec"]["replicas"] = json!(5);
    let o = UpdateOptions {
        api_version: "autoscaling/v1",
        subresource: "scale",
        ..writer("hpa", "2026-01-01T00:00:02Z")
    };
    let new = update(Some(&scale), &new, &ty, &o);
    let mut after = live;
    after["spec"]["n"] = json!(5);
    to_parent(&parent, &Managed::of(&new).unwrap(), V1, &path).write(&mut after);
    assert_eq!(owners(&after), ["x Apply 01 {f:spec:{f:set:{v:'a'}}}", "hpa Update/scale - {f:spec:{f:n}}"]);
    let conflict = apply_spec(Some(&after), json!({"n": 1, "set": ["a"]}), &by("x", &t(3))).unwrap_err();
    assert_eq!(
        conflict.to_string(),
        "Apply failed with 1 conflict: conflict with \"hpa\" with subresource \"scale\" using example.com/v1: .spec.n"
    );
    // The same writer again: its entry is made anew, no one else's changes.
    let again = to_scale(&Managed::of(&after).unwrap(), &path);
    assert_eq!(again.entries().len(), 1);
    assert_eq!(to_parent(&Managed::of(&after).unwrap(), &again, V1, &path), Managed::of(&after).unwrap());
}

/// Pruning as structured-merge-diff does it, with values: take out what was applied, add back what is owned, add back
/// what was not the applier's.
fn prune_by_values(merged: &Value, last: &Set, managed: &Managed, ty: &TypeRef) -> Value {
    let (s, id) = (&*ty.schema, ty.id);
    let full = |set: &Set| set.with_named_fields(s, Some(id));
    let all = full(&field_set(s, id, merged));
    let last = full(last);
    let without = |set: &Set| {
        let mut value = merged.clone();
        remove(s, id, &mut value, set);
        value
    };
    let of = |value: &Value| full(&field_set(s, id, value));
    let owned = full(&managed.entries.iter().fold(Set::new(), |all, e| all.union(&e.set)));
    let pruned = without(&last);
    let pruned = without(&all.difference(&of(&pruned).union(&owned)));
    without(&all.difference(&of(&pruned)).intersection(&last))
}

/// A value without what is empty in it. Of empty lists nobody is the owner, and what is emptied goes.
fn without_empty(value: &Value) -> Value {
    let value = match value {
        Value::Object(map) => {
            map.iter().map(|(k, v)| (k.clone(), without_empty(v))).filter(|e| !e.1.is_null()).collect()
        }
        Value::Array(items) => items.iter().map(without_empty).collect(),
        other => other.clone(),
    };
    let empty = value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty);
    if empty { Value::Null } else { value }
}

proptest! {
    #[test]
    fn an_apply_is_idempotent_and_owns_what_it_says(a in object(), b in object()) {
        let ty = schema();
        let live = stored(apply(None, &a, &ty, &by("x", &t(1))).unwrap());
        let once = apply(Some(&live), &b, &ty, &forced("y", &t(2))).unwrap();
        let twice = apply(Some(&once), &b, &ty, &by("y", &t(3))).unwrap();
        prop_assert_eq!(&twice, &once, "no conflict and no change");
        let mine = owned_by(&once, "y", Operation::Apply);
        prop_assert_eq!(&mine, &strip(field_set(&ty.schema, ty.id, &b)));
        // On what it owns, the object is as configured, but for what stood in places that it owns empty.
        let leaves = mine.leaves();
        let differs = compare(&ty.schema, ty.id, &project(&b, &leaves, &ty), &project(&once, &leaves, &ty)).unwrap();
        prop_assert!(differs.removed.is_empty(), "{:?}", differs);
        prop_assert!(differs.added.intersection(&leaves).is_empty(), "{:?}", differs);
    }

    #[test]
    fn whoever_applies_alone_gets_what_it_says(configs in proptest::collection::vec(spec(), 1..5)) {
        let ty = schema();
        let mut live: Option<Value> = None;
        for (i, spec) in configs.iter().enumerate() {
            let config = widget(spec.clone());
            let new = stored(apply(live.as_ref(), &config, &ty, &by("x", &t(i))).unwrap());
            prop_assert_eq!(without_empty(&new["spec"]), without_empty(&config["spec"]));
            live = Some(new);
        }
        let empty = json!({"apiVersion": V1, "kind": "Widget", "metadata": {"name": "a"}});
        let gone = apply(live.as_ref(), &empty, &ty, &by("x", &t(9))).unwrap();
        prop_assert!(owned_by(&gone, "x", Operation::Apply).is_empty());
        prop_assert_eq!(without_empty(&gone["spec"]), Value::Null);
    }

    #[test]
    fn pruning_by_sets_is_pruning_by_values(a in object(), b in object(), c in object(), d in object()) {
        let ty = schema();
        let live = stored(update(None, &a, &ty, &writer("w", &t(1))));
        let live = apply(Some(&live), &b, &ty, &forced("x", &t(2))).unwrap();
        let live = apply(Some(&live), &c, &ty, &forced("y", &t(3))).unwrap();
        let last = owned_by(&live, "x", Operation::Apply);
        let mut managed = Managed::of(&live).unwrap();
        let this = manager("x", Operation::Apply, V1, "");
        let set = field_set(&ty.schema, ty.id, &d);
        managed.put(Entry::new(this, set.clone(), None));
        let mut merged = live;
        merge_into(&ty.schema, ty.id, &mut merged, &d).unwrap();
        let mut pruned = merged.clone();
        prune(&mut pruned, &ty, &last, &managed);
        let wanted = prune_by_values(&merged, &last, &managed, &ty);
        prop_assert_eq!(&pruned, &wanted);
        if last.is_subset(&set) {
            prop_assert_eq!(&pruned, &merged, "where nothing was left out there is nothing to prune");
        }
    }

    #[test]
    fn everything_that_changes_has_an_owner(a in object(), b in object(), c in object()) {
        let ty = schema();
        let one = stored(update(None, &a, &ty, &writer("w", &t(1))));
        let two = apply(Some(&one), &b, &ty, &forced("x", &t(2))).unwrap();
        let mut new = stored(c);
        new["metadata"]["managedFields"] = two["metadata"]["managedFields"].clone();
        let three = update(Some(&two), &new, &ty, &writer("v", &t(3)));
        let managed = Managed::of(&three).unwrap();
        let owned = managed.entries.iter().fold(Set::new(), |all, e| all.union(&e.set));
        let changes = compare(&ty.schema, ty.id, &two, &new).unwrap();
        let written = strip(changes.added.union(&changes.modified));
        prop_assert!(written.is_subset(&owned));
        prop_assert!(owned.intersection(&changes.removed).is_subset(&written));
        for entry in managed.entries.iter().filter(|e| e.manager.name != "v") {
            prop_assert!(entry.set.intersection(&written).is_empty());
        }
    }

    /// The set alone tells how lists are made up, if what is defaulted is there.
    #[test]
    fn a_projection_needs_no_schema(a in object(), b in object()) {
        let ty = schema();
        let live = stored(apply(None, &a, &ty, &by("x", &t(1))).unwrap());
        let mut live = apply(Some(&live), &b, &ty, &forced("y", &t(2))).unwrap();
        for port in live.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten() {
            if port.get("proto").is_none() {
                port["proto"] = json!("TCP");
            }
        }
        let own = owned_by(&live, "y", Operation::Apply);
        let (without, with) = (project(&live, &own, &TypeRef::deduced()), project(&live, &own, &ty));
        let differs = compare(&ty.schema, ty.id, &without, &with).unwrap();
        // What is owned empty may have got content, which is only known not to be owned by who has a schema.
        prop_assert!(differs.added.is_empty() && differs.modified.is_empty(), "{:?}", differs);
    }

    #[test]
    fn managed_fields_are_read_as_they_were_written(a in object(), b in object()) {
        let ty = schema();
        let one = stored(update(None, &a, &ty, &writer("w", &t(1))));
        let two = apply(Some(&one), &b, &ty, &forced("x", &t(2))).unwrap();
        let list = two["metadata"]["managedFields"].clone();
        prop_assert_eq!(Managed::decode(Some(&list)).unwrap().encode(), list);
    }
}
