#![allow(clippy::unwrap_used, reason = "a failing step fails the test")]

use super::*;
use crate::builtin;

fn answer(response: Value) -> Value {
    let mut response = response;
    if response.is_object() && response.get("uid").is_none() {
        response["uid"] = "u".into();
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

fn patch(operations: &Value) -> String {
    BASE64_STANDARD.encode(operations.to_string())
}

#[test]
fn answers_are_read() {
    let add = json!([{"op": "add", "path": "/data", "value": {}}]);
    let allowed = Reply::default;
    let with =
        |operations: &Value| Reply { patch: operations.as_array().unwrap().clone(), ..Reply::default() };
    let table: Vec<(Value, bool, Reply)> = vec![
        (json!({"allowed": true}), true, allowed()),
        (json!({"allowed": true, "patch": patch(&add), "patchType": "JSONPatch"}), true, with(&add)),
        (json!({"allowed": true, "patch": patch(&Value::Null), "patchType": "JSONPatch"}), true, allowed()),
        (json!({}), false, Reply { refused: Some(Value::Null), ..allowed() }),
        (
            json!({"allowed": false, "status": {"code": 403}, "warnings": ["w", "x"]}),
            false,
            Reply {
                refused: Some(json!({"code": 403})),
                warnings: vec!["w".into(), "x".into()],
                ..allowed()
            },
        ),
    ];
    for (response, mutates, expected) in table {
        assert_eq!(reply("v1", "u", mutates, &answer(response.clone())), Ok(expected), "{response}");
    }
    // The older version is less strict.
    let mut older = answer(json!({"uid": "", "allowed": true, "patch": patch(&add)}));
    older["apiVersion"] = "admission.k8s.io/v1beta1".into();
    assert_eq!(reply("v1beta1", "u", true, &older), Ok(with(&add)));
    assert_eq!(reply("v1beta1", "u", false, &older), Ok(allowed()));
}

#[test]
fn what_is_no_answer_is_named() {
    let add = patch(&json!([{"op": "add", "path": "/data", "value": {}}]));
    let invalid = "received invalid webhook response: ";
    let table: Vec<(Value, bool, String)> = vec![
        (answer(Value::Null), false, format!("{invalid}webhook response was absent")),
        (answer(json!({"uid": "x"})), false, format!("{invalid}expected response.uid=\"u\", got \"x\"")),
        (
            json!({"response": {}}),
            false,
            format!(
                "{invalid}expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind="
            ),
        ),
        (
            json!({"apiVersion": "v1", "kind": "Status"}),
            false,
            format!(
                "{invalid}expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /v1, Kind=Status"
            ),
        ),
        (
            answer(json!({"allowed": true, "patch": add})),
            true,
            format!("{invalid}webhook returned response.patch but not response.patchType"),
        ),
        (
            answer(json!({"allowed": true, "patchType": "JSONPatch"})),
            true,
            format!("{invalid}webhook returned response.patchType but not response.patch"),
        ),
        (
            answer(json!({"allowed": true, "patch": add, "patchType": "Merge"})),
            true,
            "unsupported patch type \"Merge\"".into(),
        ),
        (
            answer(json!({"allowed": true, "patch": add, "patchType": "JSONPatch"})),
            false,
            format!("{invalid}validating webhook may not return response.patch"),
        ),
        (
            answer(json!({"allowed": true, "patchType": "JSONPatch"})),
            false,
            format!("{invalid}validating webhook may not return response.patchType"),
        ),
    ];
    for (answer, mutates, expected) in table {
        assert_eq!(reply("v1", "u", mutates, &answer), Err(expected), "{answer}");
    }
    let torn = answer(json!({"allowed": true, "patch": "####", "patchType": "JSONPatch"}));
    let why = reply("v1", "u", true, &torn).unwrap_err();
    assert!(why.starts_with("received undecodable patch in webhook response: "), "{why}");
}

#[test]
fn refusals_tell_who_and_why() {
    for (status, code, reason, message) in [
        (Value::Null, 400, "", "admission webhook \"a.b.c\" denied the request without explanation"),
        (json!({"reason": "Why"}), 400, "Why", "admission webhook \"a.b.c\" denied the request: Why"),
        (
            json!({"code": 403, "reason": "Forbidden", "message": "no"}),
            403,
            "Forbidden",
            "admission webhook \"a.b.c\" denied the request: no",
        ),
        (
            json!({"code": 200, "status": "Success", "message": "no"}),
            400,
            "",
            "admission webhook \"a.b.c\" denied the request: no",
        ),
    ] {
        let told = denied("a.b.c", &status);
        assert_eq!((told.code, told.reason.as_str(), told.message.as_str()), (code, reason, message));
        assert_eq!(told.status, "Failure");
    }
    let told = failed("a.b.c", "failed to call webhook: why");
    assert_eq!(
        (told.code, told.message.as_str()),
        (500, "Internal error occurred: failed calling webhook \"a.b.c\": failed to call webhook: why")
    );
}

#[test]
fn requests_say_what_is_done_by_whom() {
    let kinds = builtin::kinds();
    let find = |version: &str, resource: &str| {
        kinds.iter().find(|k| k.gvr.version == version && k.gvr.resource == resource).unwrap().clone()
    };
    let user = UserInfo::new("u", ["g"]);
    let options = WriteOptions {
        dry_run: true,
        field_manager: Some("m".to_owned()),
        validation: FieldValidation::Strict,
        force: false,
    };
    let (new, old) = (find("v2", "horizontalpodautoscalers"), find("v1", "horizontalpodautoscalers"));
    let of = Request {
        operation: Operation::Update,
        kind: &new,
        subresource: "status",
        namespace: "n",
        name: "x",
        user: &user,
        options: Options::Write(&options),
    };
    let asked = review("v1", "uid", &request(&of, &old), &json!({"new": 1}), &Value::Null).unwrap();
    let asked: Value = serde_json::from_slice(&asked).unwrap();
    let hpa = |version: &str, what: &str, name: &str| json!({"group": "autoscaling", "version": version, what: name});
    let expected = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "uid", "kind": hpa("v1", "kind", "HorizontalPodAutoscaler"),
            "resource": hpa("v1", "resource", "horizontalpodautoscalers"), "subResource": "status",
            "requestKind": hpa("v2", "kind", "HorizontalPodAutoscaler"),
            "requestResource": hpa("v2", "resource", "horizontalpodautoscalers"), "requestSubResource": "status",
            "name": "x", "namespace": "n", "operation": "UPDATE",
            "userInfo": {"username": "u", "groups": ["g", "system:authenticated"]},
            "object": {"new": 1}, "oldObject": null, "dryRun": true,
            "options": {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"], "fieldManager": "m",
                        "fieldValidation": "Strict"},
        },
    });
    assert_eq!(asked, expected);
    let options = DeleteOptions {
        uid: Some("i".to_owned()),
        propagation: Some(Propagation::Foreground),
        grace_period: Some(0),
        ..DeleteOptions::default()
    };
    let of =
        Request { operation: Operation::Delete, subresource: "", options: Options::Delete(&options), ..of };
    let asked = request(&of, &new);
    assert_eq!(
        asked["options"],
        json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "gracePeriodSeconds": 0,
               "propagationPolicy": "Foreground", "preconditions": {"uid": "i"}})
    );
    assert!(asked.get("subResource").is_none() && asked["dryRun"] == false);
}
