//! What an agent tells.

use super::*;

/// Sets what stands at a pointer whose parent is there.
fn put(object: &mut Value, pointer: &str, value: Value) {
    let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
    let parent = object.pointer_mut(parent).and_then(Value::as_object_mut).expect("an object");
    parent.insert(field.to_owned(), value);
}

#[test]
fn events_are_about_its_own_under_names_of_its_own() {
    let own = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "name": "m1"});
    let work = json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "name": "w", "namespace": "karmada-es-m1"});
    let event = |name: &str, about: &Value| json!({"metadata": {"name": name}, "involvedObject": about, "message": "m"});
    let with = |about: &Value, field: &str, value: &str| {
        let mut about = about.clone();
        about[field] = value.into();
        about
    };
    let rows = [
        ("default", event("m1.1", &own), "yes"),
        ("default", event("m1.1", &with(&own, "name", "m2")), "no"),
        ("default", event("m1.1", &with(&own, "kind", "Pod")), "no"),
        ("default", event("m1.1", &with(&own, "apiVersion", "v1")), "no"),
        ("default", event("web.1", &own), "no"),
        ("default", event("m10.1", &own), "no"),
        (
            "default",
            event("m1.1", &json!({"kind": "Deployment", "name": "m1", "namespace": "default"})),
            "no",
        ),
        ("karmada-es-m1", event("w.1", &work), "yes"),
        ("karmada-es-m1", event("v.1", &work), "no"),
        ("karmada-es-m1", event("w.1", &with(&work, "namespace", "karmada-es-m2")), "no"),
        ("karmada-es-m2", event("w.1", &with(&work, "namespace", "karmada-es-m2")), "no"),
        ("karmada-es-m1", json!({"metadata": {"generateName": "w."}, "regarding": work.clone()}), "yes"),
        ("karmada-es-m1", json!({"metadata": {"generateName": "v."}, "regarding": work.clone()}), "no"),
        (
            "karmada-es-m1",
            json!({"metadata": {"name": "w.1", "finalizers": ["a/b"]}, "regarding": work.clone()}),
            "no",
        ),
    ];
    for (namespace, new, want) in rows {
        for kind in ["/Event", "events.k8s.io/Event"] {
            assert_eq!(outcome(kind, Act::Create, namespace, None, &new), want, "{namespace} {new}");
        }
    }
    let mut mine = event("m1.1", &own);
    judge(&write("/Event", Act::Create, "default", None), &mut mine).expect("its own");
    assert_eq!(object::annotation(&mine, extension::REPORTED_BY), Some("m1"));
    let mut counted = mine.clone();
    counted["count"] = 2.into();
    assert_eq!(outcome("/Event", Act::Update, "default", Some(&mine), &counted), "yes");
    let of_hub = event("m1.2", &own);
    assert_eq!(
        outcome("/Event", Act::Update, "default", Some(&of_hub), &counted),
        "no",
        "the hub's about the same Cluster"
    );
    let mut of_other = mine.clone();
    object::set_annotation(&mut of_other, extension::REPORTED_BY, "m2");
    assert_eq!(outcome("/Event", Act::Update, "default", Some(&of_other), &counted), "no");
    let mut elsewhere = mine.clone();
    elsewhere["involvedObject"]["name"] = "m2".into();
    assert_eq!(outcome("/Event", Act::Update, "default", Some(&mine), &elsewhere), "no");
}

#[test]
fn events_are_about_templates_that_its_cluster_has() {
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web"});
    let disk = json!({"apiVersion": "v1", "kind": "PersistentVolume", "name": "disk"});
    let event = |name: &str, about: &Value| json!({"metadata": {"name": name}, "involvedObject": about, "message": "m"});
    let judged = |namespace: &str, old: Option<&Value>, new: &Value, has_template: bool| {
        let act = if old.is_some() { Act::Update } else { Act::Create };
        let mut object = new.clone();
        let write = Write { has_template, ..write("/Event", act, namespace, old) };
        judge(&write, &mut object).is_ok().then_some(object)
    };
    // (namespace, event, whether it is about a template, whether it is let in if the cluster has that)
    let rows = [
        ("shop", event("web.1", &web), true, true),
        ("shop", event("other.1", &web), true, false),
        ("default", event("web.1", &web), false, false),
        ("default", event("disk.1", &disk), true, true),
        ("shop", event("disk.1", &disk), false, false),
        (
            "shop",
            event("web.1", &json!({"apiVersion": "apps/v1", "namespace": "shop", "name": "web"})),
            false,
            false,
        ),
        (
            "shop",
            event("web.1", &json!({"apiVersion": "a/b/c", "kind": "D", "namespace": "shop", "name": "web"})),
            false,
            false,
        ),
        ("shop", event(".1", &json!({"apiVersion": "v1", "kind": "D", "namespace": "shop"})), false, false),
        (
            "shop",
            json!({"metadata": {"name": "web.1"}, "regarding": web, "involvedObject": disk}),
            true,
            false,
        ),
    ];
    for (namespace, new, is_template, lets_in) in rows {
        let found = template(namespace, &new);
        assert_eq!(found.is_some(), is_template, "{namespace} {new}");
        assert_eq!(judged(namespace, None, &new, found.is_some()).is_some(), lets_in, "{namespace} {new}");
        assert_eq!(judged(namespace, None, &new, false), None, "another cluster's: {namespace} {new}");
    }
    let new = event("web.1", &web);
    let want = Template { group: "apps".into(), kind: "Deployment", namespace: "shop", name: "web" };
    assert_eq!(template("shop", &new), Some(want));

    // Its own ones are counted on, though the template has left; they become about nothing else.
    let mine = judged("shop", None, &new, true).expect("a template of its");
    assert_eq!(object::annotation(&mine, extension::REPORTED_BY), Some("m1"));
    let mut counted = mine.clone();
    counted["count"] = 2.into();
    assert!(judged("shop", Some(&mine), &counted, false).is_some());
    for (pointer, value) in [
        ("/lastTimestamp", json!("2026-01-01T00:00:00Z")),
        ("/series", json!({"count": 3})),
        ("/reportingComponent", json!("")),
        ("/metadata/resourceVersion", json!("7")),
    ] {
        let mut counted = mine.clone();
        put(&mut counted, pointer, value);
        assert!(judged("shop", Some(&mine), &counted, false).is_some(), "{pointer}");
    }
    // While its cluster has the template, all of it may be told anew; later nothing else is.
    for (pointer, value) in [
        ("/message", json!("other")),
        ("/reason", json!("Other")),
        ("/type", json!("Warning")),
        ("/related", json!({"kind": "Node"})),
        ("/metadata/labels", json!({"a": "b"})),
        ("/metadata/annotations/a", json!("b")),
    ] {
        let mut rewritten = mine.clone();
        put(&mut rewritten, pointer, value);
        assert!(judged("shop", Some(&mine), &rewritten, true).is_some(), "{pointer}");
        assert_eq!(judged("shop", Some(&mine), &rewritten, false), None, "{pointer}");
    }
    let mut unmarked = mine.clone();
    object::remove_annotation(&mut unmarked, extension::REPORTED_BY);
    let again = judged("shop", Some(&mine), &unmarked, false).expect("nothing else is new");
    assert_eq!(object::annotation(&again, extension::REPORTED_BY), Some("m1"));
    counted["involvedObject"]["kind"] = "StatefulSet".into();
    assert_eq!(judged("shop", Some(&mine), &counted, false), None);
    assert_eq!(judged("shop", Some(&new), &mine, true), None, "somebody else's");

    // Null says nothing, neither beside what the event is about nor in place of it.
    let mut beside = new.clone();
    beside["regarding"] = Value::Null;
    assert!(template("shop", &beside).is_some());
    assert!(judged("shop", None, &beside, true).is_some());
    let mut nothing = mine.clone();
    nothing["involvedObject"] = Value::Null;
    assert_eq!(judged("shop", Some(&nothing), &nothing, false), None, "about nothing, as before");

    // Nobody else puts an agent's mark on an event, or takes it off but by making it larger.
    let with = |event: &Value, pointer: &str, value: Value| {
        let mut event = event.clone();
        put(&mut event, pointer, value);
        event
    };
    let kept = with(&mine, "/metadata/uid", json!("0b0e-4711"));
    let later = with(&new, "/metadata/labels", json!({"a": "b"}));
    for (old, marked, want) in [
        (Some(mine.clone()), with(&mine, "/message", json!("longer")), None),
        (Some(mine.clone()), with(&mine, "/message", json!("")), Some("m1")),
        (Some(mine.clone()), with(&mine, "/metadata/annotations/a", json!("b")), None),
        (Some(mine.clone()), with(&mine, "/metadata/managedFields", json!([{"manager": "me"}])), None),
        (Some(mine.clone()), with(&mine, "/eventTime", Value::Null), Some("m1")),
        // What is not sent since a server puts it back makes no room.
        (Some(kept), later, None),
        (None, mine.clone(), None),
        (Some(new.clone()), mine.clone(), None),
        (Some(mine), new.clone(), Some("m1")),
        (None, new, None),
    ] {
        let mut event = marked;
        is_nobodys(old.as_ref(), &mut event);
        assert_eq!(object::annotation(&event, extension::REPORTED_BY), want, "{old:?}");
    }
}

/// What is told of a template passes for nobody else's word, least of all for the hub's.
#[test]
fn events_about_templates_say_whose_agent_has_told_them() {
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web"});
    let core = |component: &str, instance: &str, host: &str| {
        json!({
            "metadata": {"name": "web.1"}, "involvedObject": web, "source": {"component": component, "host": host},
            "reportingComponent": component, "reportingInstance": instance,
        })
    };
    let new = |controller: &str| json!({"metadata": {"name": "web.1"}, "regarding": web, "reportingController": controller, "reportingInstance": "hub-0"});
    let told = |kind: &str, mut event: Value| {
        let write = Write { has_template: true, ..write(kind, Act::Create, "shop", None) };
        judge(&write, &mut event).map(|_| event)
    };
    for component in ["execution-controller", "work-status-controller", ""] {
        let event = told("/Event", core(component, "hub-0", "hub-0")).expect("its own controllers");
        assert_eq!((&event["source"]["host"], &event["reportingInstance"]), (&json!("m1"), &json!("m1")));
        assert_eq!(event["source"]["component"], component);
        let event = told("events.k8s.io/Event", new(component)).expect("its own controllers");
        assert_eq!(event["reportingInstance"], "m1");
        assert_eq!(event.get("deprecatedSource"), None, "a new event may have none");
    }
    for component in ["default-scheduler", "resource-detector", "kubelet", "execution-controller "] {
        let mut late = new("execution-controller");
        late["deprecatedSource"] = json!({"component": component});
        for (kind, event, field) in [
            ("/Event", core(component, "", ""), "source.component"),
            ("events.k8s.io/Event", new(component), "reportingController"),
            ("events.k8s.io/Event", late, "deprecatedSource.component"),
        ] {
            let errors = told(kind, event).expect_err(component);
            assert_eq!(errors[0].path.to_string(), field, "{component}");
        }
    }
    // Of its own Cluster it says who tells as it likes.
    let own = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "name": "m1"});
    let mut event = json!({"metadata": {"name": "m1.1"}, "involvedObject": own, "source": {"component": "karmada-agent"}});
    judge(&write("/Event", Act::Create, "default", None), &mut event).expect("its own");
    assert_eq!(event["source"], json!({"component": "karmada-agent"}));
}

#[test]
fn events_are_bounded_and_control_no_terminal() {
    let mut event = json!({
        "metadata": {"name": "m1.1"}, "message": "x".repeat(5000), "reason": "a\u{1b}[2J".repeat(100), "source": {"component": "c\u{7}"},
        "involvedObject": {"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "name": "m1"},
    });
    judge(&write("/Event", Act::Create, "default", None), &mut event).expect("its own");
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).expect("a text").to_owned();
    assert_eq!(text("/message").len(), MESSAGE_LIMIT);
    assert!(text("/reason").len() <= 128 && !text("/reason").contains('\u{1b}'));
    assert!(!text("/source/component").contains('\u{7}'));
}
