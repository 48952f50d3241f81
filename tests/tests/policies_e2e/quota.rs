//! FederatedResourceQuota.

use karmada_tests::{
    fleet::Fleet,
    samples::{
        binding_path, condition_of, deployment, deployment_path, deployment_policy, divided_policy, placed,
    },
    wait::{gone, until},
};
use serde_json::{Value, json};

use crate::{PATIENCE, members, patch};

/// A quota is split over the members and summed up, and nobody grows beyond it.
pub(crate) async fn story(fleet: &Fleet) {
    let [first, second] = members(fleet);
    let quota = |overall: &str, each: &str| {
        let part = |cluster: &str| json!({ "clusterName": cluster, "hard": { "cpu": each } });
        json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "FederatedResourceQuota",
            "metadata": { "name": "ration" },
            "spec": { "overall": { "cpu": overall }, "staticAssignments": [part(first), part(second)] },
        })
    };
    let all =
        format!("/apis/policy.karmada.io/v1alpha1/namespaces/{}/federatedresourcequotas", fleet.namespace);
    let refused = fleet.api.post(&all, &quota("2", "1500m")).await.expect_err("3 of 2 assigned");
    let why = "spec.overall[cpu]: Invalid value: \"2\": overall is less than assignments";
    assert!(refused.to_string().contains(why), "{refused}");

    let mut rationed = deployment("rationed", 2);
    let pod = &mut rationed["spec"]["template"]["spec"];
    pod["containers"][0]["resources"] = json!({ "requests": { "cpu": "500m" } });
    fleet.create([quota("2", "1"), rationed, divided_policy("rationed", &[(first, 1), (second, 1)])]).await;
    let at = format!("/api/v1/namespaces/{}/resourcequotas/ration", fleet.namespace);
    for member in &fleet.members {
        until(&member.api, &at, "a part of it", PATIENCE, |q| q["spec"] == json!({ "hard": { "cpu": "1" } }))
            .await;
    }
    let ration = format!("{all}/ration");
    let used = |overall: &'static str, used: &'static str, hard: &'static str, each: &'static str| {
        let of = |cluster: &str| json!({ "clusterName": cluster, "hard": { "cpu": hard }, "used": { "cpu": each } });
        let wanted = json!({
            "overall": { "cpu": overall }, "overallUsed": { "cpu": used },
            "aggregatedStatus": [of(first), of(second)],
        });
        move |q: &Value| q["status"] == wanted
    };
    until(&fleet.api, &ration, "half used", PATIENCE, used("2", "1", "1", "500m")).await;

    // What is placed stays as it is; what is new is not placed. Both are told why.
    let path = deployment_path(&fleet.namespace, "rationed");
    patch(fleet, &path, json!({ "spec": { "replicas": 8 } })).await;
    let mut greedy = deployment("greedy", 1);
    let pod = &mut greedy["spec"]["template"]["spec"];
    pod["containers"][0]["resources"] = json!({ "requests": { "cpu": "1100m" } });
    fleet.create([greedy, deployment_policy("greedy", &[first])]).await;
    for (name, sum, stays) in [("rationed", "4", 2), ("greedy", "2100m", 0)] {
        let binding = binding_path(&fleet.namespace, &format!("{name}-deployment"));
        let told = until(&fleet.api, &binding, "refused", PATIENCE, |b| {
            condition_of(b, "Scheduled").is_some_and(|c| c["reason"] == "QuotaExceeded")
        })
        .await;
        assert_eq!(
            condition_of(&told, "Scheduled").unwrap()["message"],
            format!(
                "admission webhook \"resourcebinding.karmada.io\" denied the request: FederatedResourceQuota({}/ration) exceeded for resource cpu: requested sum {sum}, limit 2.",
                fleet.namespace
            )
        );
        assert_eq!(placed(&told).iter().map(|(_, replicas)| replicas).sum::<i64>(), stays, "{name}");
    }
    fleet.api.delete(&deployment_path(&fleet.namespace, "greedy"), &json!({})).await.unwrap();
    for member in &fleet.members {
        assert_eq!(member.api.get(&path).await.unwrap()["spec"]["replicas"], 1);
    }

    patch(fleet, &ration, json!({ "spec": quota("4", "2")["spec"] })).await;
    for member in &fleet.members {
        until(&member.api, &path, "of 4 replicas", PATIENCE, |o| o["spec"]["replicas"] == 4).await;
    }
    until(&fleet.api, &ration, "used up", PATIENCE, used("4", "4", "2", "2")).await;
    fleet.api.delete(&ration, &json!({})).await.unwrap();
    for member in &fleet.members {
        gone(&member.api, &at, PATIENCE).await;
    }
}
