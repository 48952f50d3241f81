//! What a Cluster in push mode says while nothing works on it: otherwise it would say for ever what the last that did has said.

use karmada_api::{
    conditions::{self, Condition, ConditionStatus},
    consts::{component, condition, event, reason},
};
use karmada_meta::time::Time;
use karmada_objects::{
    Part,
    key::{self, Key},
    kinds::CLUSTERS,
};
use serde_json::{Value, json};

use crate::write::Writer;

/// Makes a Cluster's conditions say that nothing works on it, and why; whether they have changed.
fn show(live: &mut Value, why: &str, now: Time) -> bool {
    if live["spec"]["syncMode"] != "Push" {
        return false;
    }
    let Some(mut list) = key::conditions(live) else { return false };
    let failed = reason::STATUS_COLLECTION_FAILED;
    let new = Condition::new(condition::READY, ConditionStatus::False, failed, why, now);
    let changed = conditions::set(&mut list, new, now);
    if changed {
        live["status"]["conditions"] = json!(list);
    }
    changed
}

/// Says of a cluster that nothing works on it: in its condition Ready, and once in an event.
pub(super) async fn tell(writer: &Writer, cluster: &str, why: &str) {
    let now = Time::now(&writer.env);
    let mut changed = false;
    let change = |live: &mut Value| {
        changed = show(live, why, now);
        changed
    };
    let written = writer.objects.modify(&CLUSTERS, &Key::cluster_scoped(cluster), Part::Status, change).await;
    match written {
        Ok(Some(written)) if changed => {
            writer.warning(component::CLUSTER, &written, event::CLUSTER_NOT_WORKED_ON, why);
        }
        Ok(_) => {}
        Err(error) => {
            tracing::warn!(cluster, why, %error, "the hub cannot say why it does not work on a cluster")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_once_and_of_clusters_in_push_mode_alone() {
        let at = |seconds| Time::from_system(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds));
        let ready = |cluster: &Value| {
            let all = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
            all.into_iter().find(|one| one["type"] == "Ready")
        };
        let other = json!({"type": "Other", "status": "True", "reason": "r", "message": "", "lastTransitionTime": at(0)});
        let was = json!({"type": "Ready", "status": "True", "reason": "ClusterReady", "message": "", "lastTransitionTime": at(0)});
        let mut cluster =
            json!({"spec": {"syncMode": "Push"}, "status": {"conditions": [other, was], "nodeSummary": {}}});
        assert!(show(&mut cluster, "no Secret", at(9)));
        let told = ready(&cluster).expect("Ready");
        assert_eq!(
            (&told["status"], &told["reason"], &told["message"]),
            (&json!("False"), &json!("StatusCollectionFailed"), &json!("no Secret"))
        );
        assert_eq!(cluster["status"]["conditions"].as_array().map(Vec::len), Some(2), "others stay");
        assert!(!show(&mut cluster, "no Secret", at(19)));
        assert!(show(&mut cluster, "no token", at(29)));
        let mut new = json!({"spec": {"syncMode": "Push"}});
        assert!(show(&mut new, "no Secret", at(9)) && ready(&new).is_some());
        let mut pull = json!({"spec": {"syncMode": "Pull"}});
        assert!(!show(&mut pull, "no Secret", at(9)));
    }
}
