//! Users' own rules for what the fields of a kind mean.

use crate::common::{World, condition, policy, widget_definition, widgets};
use karmada_meta::object;
use karmada_objects::kinds::{
    CUSTOM_RESOURCE_DEFINITIONS, PROPAGATION_POLICIES, RESOURCE_BINDINGS,
    RESOURCE_INTERPRETER_CUSTOMIZATIONS, WORKS,
};
use serde_json::{Value, json};

/// A customization for Widgets with one rule.
fn rule(name: &str, field: &str, script: &str) -> Value {
    let mut value = json!({
        "apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterCustomization",
        "metadata": {"name": name},
        "spec": {"target": {"apiVersion": "example.com/v1", "kind": "Widget"}, "customizations": {}},
    });
    value["spec"]["customizations"][field] = json!({"luaScript": script});
    value
}

#[tokio::test(start_paused = true)]
async fn scripts_that_cannot_work_are_refused_by_field() {
    let world = World::start().await;
    let good = "function InterpretHealth(o) return true end";
    world.create(&RESOURCE_INTERPRETER_CUSTOMIZATIONS, rule("first", "healthInterpretation", good)).await;
    for (what, value, expected) in [
        (
            "syntax",
            rule("syntax", "replicaResource", "function GetReplicas(\n\nreturn"),
            "spec.customizations.replicaResource.luaScript: Invalid value: \"InterpretReplica\": Lua script error: line 3",
        ),
        (
            "another function",
            rule("name", "retention", good),
            "spec.customizations.retention.luaScript: Invalid value: \"Retain\": Lua script error: there is no function Retain",
        ),
        (
            "twice",
            rule("second", "healthInterpretation", good),
            "conflicting with InterpreterOperation(InterpretHealth) of existing ResourceInterpreterCustomization(first)",
        ),
    ] {
        let path = RESOURCE_INTERPRETER_CUSTOMIZATIONS.collection(None);
        let refused = world.rest.post(&path, &value).await.expect_err(what);
        assert_eq!(refused.code(), Some(422), "{what}: {refused}");
        assert!(refused.to_string().contains(expected), "{what}: {refused}");
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn reports_are_added_up_by_a_users_rule_and_anew_when_it_changes() {
    let world = World::start().await;
    let sum = |factor: u32| {
        format!(
            "function AggregateStatus(o, items)
                o.status = {{up = 0}}
                for i = 1, #items do o.status.up = o.status.up + {factor} * items[i].status.up end
                return o
            end"
        )
    };
    world.create(&RESOURCE_INTERPRETER_CUSTOMIZATIONS, rule("w", "statusAggregation", &sum(1))).await;
    let mut definition = widget_definition();
    definition["spec"]["versions"][0]["subresources"] = json!({"status": {}});
    world.create(&CUSTOM_RESOURCE_DEFINITIONS, definition).await;
    let members = [world.join("m1", json!({})).await, world.join("m2", json!({})).await];
    world.create(&PROPAGATION_POLICIES, policy("p", "example.com/v1", "Widget", "", json!({}))).await;
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "default"},
    });
    world
        .until("it can be made", || async {
            world.rest.post(&widgets().collection(Some("default")), &widget).await.ok()
        })
        .await;
    for (up, member) in (2..).zip(&members) {
        let work = world.until("a Work", || member.work("Widget", "w")).await;
        world
            .report(&WORKS, &member.namespace(), object::name(&work), |work| {
                work["status"] = json!({
                    "conditions": [{"type": "Applied", "status": "True", "reason": "AppliedSuccessful",
                                    "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                    "manifestStatuses": [{
                        "identifier": {"ordinal": 0, "group": "example.com", "version": "v1", "kind": "Widget",
                                       "resource": "", "namespace": "default", "name": "w"},
                        "status": {"up": up}, "health": "Healthy"}],
                });
            })
            .await;
    }
    let up = || async {
        let widget = world.get(&widgets(), "default", "w").await?;
        widget.pointer("/status/up").and_then(Value::as_i64)
    };
    world.until("2 + 3", || async { up().await.filter(|up| *up == 5) }).await;
    world
        .change(&RESOURCE_INTERPRETER_CUSTOMIZATIONS, "", "w", |rule| {
            rule["spec"]["customizations"]["statusAggregation"]["luaScript"] = sum(10).into();
        })
        .await;
    world.until("anew, by the new rule", || async { up().await.filter(|up| *up == 50) }).await;
    world
        .change(&RESOURCE_INTERPRETER_CUSTOMIZATIONS, "", "w", |rule| {
            rule["spec"]["customizations"]["statusAggregation"]["luaScript"] =
                "function AggregateStatus(o, items)\n return o.nothing.there\nend".into();
        })
        .await;
    let says =
        "AggregateStatus of ResourceInterpreterCustomization w: line 2: attempt to index field 'nothing'";
    world.event("w-widget", "AggregateStatusFailed", says).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn replicas_of_a_template_are_asked_of_a_users_rule() {
    let world = World::start().await;
    let member = world.join("m1", json!({})).await;
    world.create(&CUSTOM_RESOURCE_DEFINITIONS, widget_definition()).await;
    let divided = json!({"clusterAffinity": {"clusterNames": ["m1"]}});
    world.create(&PROPAGATION_POLICIES, policy("p", "example.com/v1", "Widget", "", divided)).await;
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "default"},
        "spec": {"size": 3},
    });
    world
        .until("it can be made", || async {
            world.rest.post(&widgets().collection(Some("default")), &widget).await.ok()
        })
        .await;
    world.until("a Work", || member.work("Widget", "w")).await;
    let replicas = |wanted: i64| {
        let world = &world;
        move || async move {
            let binding = world.get(&RESOURCE_BINDINGS, "default", "w-widget").await?;
            (binding["spec"]["replicas"].as_i64().unwrap_or_default() == wanted).then_some(binding)
        }
    };
    world.until("no replicas without a rule", replicas(0)).await;

    let count = |of: &str| format!("function GetReplicas(o) return {of}, nil end");
    let mut both = rule("w", "replicaResource", &count("o.spec.size"));
    both["spec"]["customizations"]["replicaRevision"] =
        json!({"luaScript": "function ReviseReplica(o, n) o.spec.size = n return o end"});
    world.create(&RESOURCE_INTERPRETER_CUSTOMIZATIONS, both).await;
    world.until("as the rule says, without a change of the template", replicas(3)).await;

    let set_rule = |script: String| {
        world.change(&RESOURCE_INTERPRETER_CUSTOMIZATIONS, "", "w", move |rule| {
            rule["spec"]["customizations"]["replicaResource"]["luaScript"] = script.as_str().into();
        })
    };
    set_rule(count("o.none.there")).await;
    world.event("w", "GetReplicasFailed", "attempt to index field 'none'").await;
    world
        .until("a condition that says so", || async {
            let binding = world.get(&RESOURCE_BINDINGS, "default", "w-widget").await?;
            (condition(&binding, "TemplateInterpreted")["status"] == "False").then_some(())
        })
        .await;
    world.until("the binding stays as it was", replicas(3)).await;
    assert!(member.work("Widget", "w").await.is_some(), "and so does its Work");

    set_rule(count("o.spec.size + 1")).await;
    let binding = world.until("by the mended rule", replicas(4)).await;
    world
        .until("nothing is wrong any more", || async {
            let binding = world.get(&RESOURCE_BINDINGS, "default", "w-widget").await?;
            condition(&binding, "TemplateInterpreted").is_null().then_some(())
        })
        .await;
    assert_eq!(binding["spec"]["components"], Value::Null);

    world
        .change(&RESOURCE_INTERPRETER_CUSTOMIZATIONS, "", "w", |rule| {
            rule["spec"]["customizations"]["componentResource"] = json!({"luaScript":
                "function GetComponents(o) return {{name = 'a', replicas = 1}, {name = 'b', replicas = o.spec.size}} end"});
        })
        .await;
    world
        .until("parts", || async {
            let binding = world.get(&RESOURCE_BINDINGS, "default", "w-widget").await?;
            (binding["spec"]["components"]
                == json!([{"name": "a", "replicas": 1}, {"name": "b", "replicas": 3}]))
            .then_some(())
        })
        .await;
    world.stop().await;
}
