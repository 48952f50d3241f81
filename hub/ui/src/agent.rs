//! What the page shows of a cluster's agent: as much as the agent tells the hub. What it alone knows (its queues, where its state
//! is kept) is told at the site.

use karmada_api::consts::extension;
use karmada_core::upgrade::Report;
use karmada_meta::{object, text};
use serde_json::{Value, json};

use crate::views::WORDS;

/// Conditions of a Cluster that are its agent's, and by which status each says that something is wrong or waits.
const SAYS: [(&str, &str); 11] = [
    (extension::HUB_OLDER, "True"),
    (extension::REMOVALS_HELD, "True"),
    (extension::CHANGES_HELD, "True"),
    (extension::CREDENTIAL_NOT_RENEWED, "True"),
    (extension::INVITATION_NOT_TAKEN, "True"),
    (extension::STATE_NOT_KEPT, "True"),
    (extension::CLOCK_SKEWED, "True"),
    (extension::UPGRADE_GAVE_WAY, "True"),
    (extension::KINDS_UNWATCHED, "True"),
    (extension::MEMBER_TOO_LARGE, "True"),
    (extension::VERSION_SUPPORTED, "False"),
];

/// What an agent has said of itself: what is wrong or waits, in its words, and what it lets the hub do.
pub(crate) fn said(cluster: &Value) -> Value {
    let conditions = cluster.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    let troubles = conditions
        .filter(|one| SAYS.iter().any(|(type_, bad)| one["type"] == *type_ && one["status"] == *bad));
    let troubles = troubles.map(|one| {
        json!({
            "type": one["type"], "message": text::line(one["message"].as_str().unwrap_or_default(), WORDS),
            "at": one["lastTransitionTime"],
        })
    });
    json!({
        "troubles": troubles.collect::<Vec<_>>(), "tunnel": object::annotation(cluster, extension::TUNNEL),
        "searches": object::annotation(cluster, extension::SEARCH_COPIES) == Some("true"),
    })
}

/// How a cluster's agent stands to new versions of itself. Nothing of one that takes none from the hub.
pub(crate) fn upgrade(cluster: &Value) -> Value {
    let Some(report) = object::annotation(cluster, extension::AGENT_UPGRADE).and_then(Report::read) else {
        return Value::Null;
    };
    let about = report.about.as_ref();
    json!({
        "takes": report.mode, "version": about.map(|about| &about.version), "stands": about.map(|about| about.stands),
        "why": about.map(|about| &about.why),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_says_how_it_stands_to_a_version() {
        let report = r#"{"mode": "windows", "way": "Deployment", "about": {"version": "0.6.0", "begun": "2026-01-01T00:00:00Z",
            "stands": "Waiting", "why": "no window is open"}}"#;
        let cluster = json!({"metadata": {"annotations": {"agent.karmada.io/upgrade": report}}});
        let got = upgrade(&cluster);
        assert_eq!(
            got,
            json!({"takes": "windows", "version": "0.6.0", "stands": "Waiting", "why": "no window is open"})
        );
        assert_eq!(upgrade(&json!({})), Value::Null);
    }

    #[test]
    fn an_agent_says_what_is_wrong() {
        let condition = |type_: &str, status: &str| json!({"type": type_, "status": status, "message": format!("{type_}\nis so")});
        let conditions = [
            condition("Ready", "False"),
            condition("RemovalsHeld", "True"),
            condition("ClockSkewed", "False"),
            condition("VersionSupported", "False"),
            condition("EvictionsHeld", "True"),
        ];
        let cluster = json!({"metadata": {"annotations": {"agent.karmada.io/tunnel": "read-only"}},
            "status": {"conditions": conditions}});
        let got = said(&cluster);
        let messages: Vec<_> =
            got["troubles"].as_array().unwrap().iter().map(|one| &one["message"]).collect();
        assert_eq!(messages, ["RemovalsHeld is so", "VersionSupported is so"]);
        assert_eq!((&got["tunnel"], &got["searches"]), (&json!("read-only"), &json!(false)));
        assert_eq!(said(&json!({})), json!({"troubles": [], "tunnel": null, "searches": false}));
    }
}
