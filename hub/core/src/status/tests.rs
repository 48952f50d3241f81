use karmada_api::cluster::{NodeSummary, Taint};

use super::*;

fn time(text: &str) -> Time {
    text.parse().unwrap()
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_change_has_to_last_but_the_first_look_counts() {
    let mut thresholds = Thresholds::new(secs(30), secs(20));
    assert_eq!(thresholds.settled(), None);
    let table = [
        (0, false, true, "the first look"),
        (10, true, false, "up for nothing yet"),
        (39, true, false, "up for 29 s"),
        (40, true, true, "up for 30 s"),
        (50, false, false, "down"),
        (60, true, true, "back again"),
        (70, false, false, "down anew"),
        (89, false, false, "down for 19 s"),
        (90, false, true, "down for 20 s"),
        (95, false, true, "and still"),
    ];
    for (at, healthy, counts, message) in table {
        assert_eq!(thresholds.observe(healthy, secs(at)), counts, "{message}");
    }
    assert_eq!(thresholds.settled(), Some(false));
}

#[test]
fn probes_have_karmadas_reasons() {
    let now = time("2026-01-01T00:00:00Z");
    let table = [
        (Probe::Healthy, ConditionStatus::True, "ClusterReady"),
        (Probe::Unhealthy, ConditionStatus::False, "ClusterNotReady"),
        (Probe::Unreachable, ConditionStatus::False, "ClusterNotReachable"),
        (
            Probe::CollectionFailed("nodes: forbidden".into()),
            ConditionStatus::False,
            "StatusCollectionFailed",
        ),
    ];
    for (probe, status, reason) in table {
        let condition = probe.condition(now);
        assert_eq!((condition.status, condition.reason.as_str()), (status, reason));
    }
}

#[test]
fn enablements_are_sorted_and_have_no_subresources() {
    let resource = |gv: &str, name: &str, kind: &str| (gv.to_owned(), name.to_owned(), kind.to_owned());
    let list = enablements([
        resource("v1", "pods", "Pod"),
        resource("apps/v1", "statefulsets", "StatefulSet"),
        resource("apps/v1", "deployments/scale", "Scale"),
        resource("apps/v1", "deployments", "Deployment"),
        resource("v1", "pods/log", "Pod"),
    ]);
    let names: Vec<_> = list
        .iter()
        .map(|group| {
            (
                group.group_version.as_str(),
                group.resources.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(),
            )
        })
        .collect();
    assert_eq!(names, [("apps/v1", vec!["deployments", "statefulsets"]), ("v1", vec!["pods"])]);
    let now = time("2026-01-01T00:00:00Z");
    let reason = |list: &[ApiEnablement], discovery| enablements_condition(list, discovery, now).reason;
    assert_eq!(reason(&list, Discovery::Complete), "Complete");
    assert_eq!(reason(&list, Discovery::Partial), "Partial");
    assert_eq!(reason(&[], Discovery::Complete), "Empty");
}

#[test]
fn what_differs_from_the_hub_is_posted() {
    let (first, later) = (time("2026-01-01T00:00:00Z"), time("2026-01-02T00:00:00Z"));
    let observed = |now| ClusterStatus {
        kubernetes_version: "v1.36.2".into(),
        conditions: vec![Probe::Healthy.condition(now)],
        node_summary: Some(NodeSummary { total_num: 1, ready_num: 1 }),
        ..ClusterStatus::default()
    };
    let posted = to_post(&ClusterStatus::default(), &observed(first), first).unwrap();
    assert_eq!(to_post(&posted, &observed(later), later), None, "nothing new, whatever the time");

    let mut hub = posted.clone();
    hub.remedy_actions = vec!["TrafficControl".into()];
    let foreign = Condition::new("LinkScheduled", true, "LinkWindows", "", first);
    hub.conditions.push(foreign.clone());
    assert_eq!(to_post(&hub, &observed(later), later), None, "what others write stays");

    hub.conditions[0] =
        Condition::new(condition::READY, ConditionStatus::Unknown, "ClusterStatusUnknown", "", first);
    let again = to_post(&hub, &observed(later), later).expect("the hub says Unknown");
    assert_eq!(ready(Some(&again)), Some(ConditionStatus::True));
    assert_eq!(again.conditions[0].last_transition_time, later);
    assert_eq!(again.conditions[1], foreign);

    let down = without_figures(&posted, Probe::Unreachable.condition(later));
    let down = to_post(&posted, &down, later).unwrap();
    assert_eq!(
        (down.kubernetes_version.as_str(), ready(Some(&down))),
        ("v1.36.2", Some(ConditionStatus::False))
    );
}

#[test]
fn flags_reach_the_spec_and_users_keep_theirs() {
    let spec = ClusterSpec {
        region: "eu".into(),
        zones: vec!["a".into()],
        taints: vec![Taint::new("k", "NoSchedule")],
        ..ClusterSpec::default()
    };
    assert_eq!(spec_with_flags(&spec, &SpecFlags::default()), None);
    assert_eq!(spec_with_flags(&spec, &SpecFlags { region: "eu".into(), ..SpecFlags::default() }), None);
    let new = spec_with_flags(&spec, &SpecFlags { region: "us".into(), ..SpecFlags::default() }).unwrap();
    assert_eq!(new, ClusterSpec { region: "us".into(), ..spec });
}

#[test]
fn a_name_is_one_members() {
    let table = [
        ("new", None, false, "create"),
        ("deleted while it ran", None, true, "gone"),
        ("being deleted", Some(("mine", true)), true, "gone"),
        ("its own", Some(("mine", false)), false, "use"),
        ("made by hand, without an id", Some(("", false)), false, "use"),
        ("another's", Some(("theirs", false)), false, "refuse"),
    ];
    for (message, found, registered, want) in table {
        let got = match registration("m", "mine", found, registered) {
            Registration::Create => "create",
            Registration::Use => "use",
            Registration::Refuse(why) => {
                assert!(why.contains("theirs") && why.contains("--cluster-name"), "{why}");
                "refuse"
            }
            Registration::Gone(_) => "gone",
        };
        assert_eq!(got, want, "{message}");
    }
}
