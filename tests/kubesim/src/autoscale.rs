//! HorizontalPodAutoscalers of stand-ins: each keeps what it scales within its bounds, and knows nothing of its Pods.

use std::time::Duration;

use karmada_client::{Patch, Rest};
use karmada_meta::object;
use serde_json::{Value, json};
use tokio::time::sleep;

/// How often they look.
const LOOK: Duration = Duration::from_secs(10);

/// Runs those of a namespace. What cannot be done now is done with the next look.
pub async fn run(member: Rest, namespace: &'static str) {
    let path = format!("/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers");
    loop {
        let list = member.get(&path).await.unwrap_or_default();
        for hpa in list["items"].as_array().into_iter().flatten() {
            if object::deletion_timestamp(hpa).is_none() {
                scale(&member, namespace, &hpa["spec"]).await;
            }
        }
        sleep(LOOK).await;
    }
}

async fn scale(member: &Rest, namespace: &str, spec: &Value) {
    let target = &spec["scaleTargetRef"];
    let name = target["name"].as_str().unwrap_or_default();
    if target["kind"] != "Deployment" {
        return;
    }
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale");
    let Ok(live) = member.get(&path).await else { return };
    // A scale leaves out a zero, of which nothing is made.
    let Some(is) = live["spec"]["replicas"].as_i64().filter(|is| *is > 0) else { return };
    let bounds = (spec["minReplicas"].as_i64().unwrap_or(1), spec["maxReplicas"].as_i64().unwrap_or(1));
    let wanted = is.clamp(bounds.0, bounds.1.max(bounds.0));
    if wanted != is {
        let _ = member.patch(&path, Patch::Merge, &json!({"spec": {"replicas": wanted}})).await;
    }
}
