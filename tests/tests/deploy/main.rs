//! `scripts/deploy-agent.sh` and `scripts/remove-agent.sh`, run as a person would, against a hub and a member.
//!
//! ```text
//!   deploy-agent.sh ── kubectl ──▶ member: Deployment, Secret, ... ── read back ──▶ the same command, as a process
//!                                                                                    │ mount paths rewritten, the
//!   hub ◀── Cluster, lease, Works ───────────────────────────────────────────────────┘ account's token as its own
//! ```
//!
//! No container runs on a stand-in, so the test does what a kubelet would. The member is a stand-in, or, for the story
//! that breaks nothing, the first real cluster that `KARMADA_TEST_MEMBERS` names; then the token is a real one.
//! Skipped, with a line that says so, where there is no kubectl.
//!
//! The scripts are waited for on the test's own thread. Its connections need another one: where pings are not answered
//! for the seconds that a script takes, a connection counts as dead, and the next request on it fails.

#![allow(
    clippy::unwrap_used,
    clippy::or_fun_call,
    clippy::needless_pass_by_value,
    clippy::large_futures,
    reason = "a failing step fails the test"
)]

mod joining;
mod refusals;
mod stories;
mod world;

use std::fs;

use serde_json::Value;

use world::root;

/// The chart and the script put the same onto a member, as far as text without values can say.
#[test]
fn chart_and_manifests_agree() {
    let chart = root().join("manifests/helm/karmada-agent/templates");
    let text = |file: &str| fs::read_to_string(chart.join(file)).expect("a chart");
    let plain = |text: &str| -> Vec<Value> {
        let lines = text.lines().filter(|line| !line.contains("{{"));
        serde_saphyr::from_multiple(&lines.map(|line| format!("{line}\n")).collect::<String>()).expect("YAML")
    };
    let manifest = |file: &str| {
        let text = fs::read_to_string(root().join("manifests/agent").join(file)).expect("a manifest");
        // What the script puts in.
        let text = text.replace("@NAMESPACES@", "shop, till").replace("@NAMESPACE@", "shop");
        serde_saphyr::from_multiple::<Value>(&text).expect("YAML")
    };
    let documents = plain(&text("rbac.yaml"));
    let charted = documents.iter().find(|d| d["kind"] == "ClusterRole").expect("a ClusterRole in the chart");
    assert_eq!(charted["rules"], manifest("clusterrole.yaml")[0]["rules"]);
    // An agent for some namespaces alone: beyond them, in its own, and in each.
    let helpers = text("_helpers.tpl");
    let narrow = helpers.split("define \"karmada-agent.narrow\"").nth(1).expect("narrow rules");
    let narrow = narrow.split("{{- end }}").next().expect("their end").split_once("-}}").expect("rules").1;
    let named = narrow.replace(
        "{{ concat (list \"kube-system\") .Values.namespaces | toJson }}",
        r#"["kube-system", "shop", "till"]"#,
    );
    let rules: Value = serde_saphyr::from_str(&named).expect("YAML");
    assert_eq!(rules, manifest("narrow/clusterrole.yaml")[0]["rules"]);
    let (charted, manifests) =
        (plain(&text("narrow.yaml")), [manifest("narrow/own.yaml"), manifest("narrow/role.yaml")]);
    let manifests = manifests.concat();
    assert_eq!((charted.len(), manifests.len()), (4, 4));
    for (charted, written) in charted.iter().zip(&manifests) {
        for field in ["kind", "rules", "roleRef"] {
            assert_eq!(charted[field], written[field], "{field} of {written}");
        }
        assert_eq!(charted["metadata"]["name"], written["metadata"]["name"]);
    }
    // The tunnel's, and what upgrades need.
    for (file, count) in [("tunnel.yaml", 5), ("upgrade.yaml", 2)] {
        let (charted, manifests) = (plain(&text(file)), manifest(file));
        assert_eq!((charted.len(), manifests.len()), (count, count));
        for (charted, written) in charted.iter().zip(&manifests) {
            for field in ["kind", "rules", "roleRef"] {
                assert_eq!(charted[field], written[field], "{field} of {written}");
            }
            assert_eq!(charted["metadata"]["name"], written["metadata"]["name"]);
        }
    }
    // Both ways of reaching the hub, in the same words.
    let charted: String = ["deployment.yaml", "secret.yaml", "_helpers.tpl"].map(text).concat();
    let mut script = fs::read_to_string(root().join("scripts/deploy-agent.sh")).expect("a script");
    script += &fs::read_to_string(root().join("manifests/agent/deployment.yaml")).expect("a manifest");
    for words in [
        "--hub=",
        "--ca-cert-hash=",
        "--token-file=/etc/kubeconfig/token",
        "--karmada-kubeconfig-secret=karmada-kubeconfig",
        "--proxy-url=",
        "--karmada-kubeconfig=/etc/kubeconfig/karmada-kubeconfig",
        "--karmada-context=",
        "--state-dir=/var/lib/karmada-agent",
        "--state=",
        "--namespaces=",
        "--tunnel=",
        "--tunnel-server=",
        "--tunnel-ca=/etc/karmada-tunnel/ca.crt",
        "karmada-agent-tunnel-ca",
        "--upgrade=",
        "--upgrade-image-from=",
        "karmada-agent-token",
        "karmada-kubeconfig",
    ] {
        assert!(charted.contains(words) && script.contains(words), "{words}");
    }
}
