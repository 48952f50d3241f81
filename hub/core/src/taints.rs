//! Taints: which a cluster gets for its condition, and which a placement puts up with.

use std::time::Duration;

use karmada_api::{
    cluster::Taint,
    consts::taint::{NO_EXECUTE, NO_SCHEDULE, NOT_READY, UNREACHABLE},
    policy::Toleration,
};
use karmada_meta::time::Time;

use crate::health::Ready;

/// The taints that a cluster in that condition should have, or `None` if it has them: `not-ready` when it says that
/// it is not ready or has not said anything yet, `unreachable` when nobody knows, neither when it is ready. Taints
/// of other keys or effects are the users' and stay in their places.
pub fn for_condition(taints: &[Taint], ready: Ready, now: Time) -> Option<Vec<Taint>> {
    let wanted = match ready {
        Ready::True => None,
        Ready::False | Ready::Never => Some(NOT_READY),
        Ready::Unknown => Some(UNREACHABLE),
    };
    let ours =
        |taint: &Taint| taint.effect == NO_SCHEDULE && [NOT_READY, UNREACHABLE].contains(&taint.key.as_str());
    let mut result: Vec<_> =
        taints.iter().filter(|taint| !ours(taint) || wanted == Some(taint.key.as_str())).cloned().collect();
    if let Some(key) = wanted
        && !result.iter().any(ours)
    {
        result.push(Taint { time_added: Some(now), ..Taint::new(key, NO_SCHEDULE) });
    }
    (result != taints).then_some(result)
}

/// The first taint with an effect on scheduling that none of the tolerations puts up with. A NoExecute taint that is
/// tolerated for some seconds is not any more when they are over, by the time of day, if one is given: what was placed
/// there would have to leave at once.
pub fn untolerated<'a>(
    taints: &'a [Taint],
    tolerations: &[Toleration],
    now: Option<Time>,
) -> Option<&'a Taint> {
    let is_over = |taint: &Taint, patience: Duration| {
        let (Some(now), Some(added)) = (now, taint.time_added) else { return false };
        taint.effect == NO_EXECUTE && added.elapsed(now.timestamp().into()) >= patience
    };
    let effective = |taint: &&Taint| taint.effect == NO_SCHEDULE || taint.effect == NO_EXECUTE;
    taints.iter().filter(effective).find(|taint| match tolerated(taint, tolerations) {
        Tolerated::No => true,
        Tolerated::For(patience) => is_over(taint, patience),
        Tolerated::Always => false,
    })
}

/// How long tolerations put up with a taint: as long as the most impatient of those that do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerated {
    /// None of them does.
    No,
    /// For so long.
    For(Duration),
    /// Without a limit.
    Always,
}

/// How long tolerations put up with a taint.
pub fn tolerated(taint: &Taint, tolerations: &[Toleration]) -> Tolerated {
    let mut matching = tolerations.iter().filter(|toleration| tolerates(toleration, taint)).peekable();
    if matching.peek().is_none() {
        return Tolerated::No;
    }
    // A negative number of seconds means none.
    let seconds = matching.filter_map(|toleration| toleration.toleration_seconds).min();
    seconds.map_or(Tolerated::Always, |seconds| {
        Tolerated::For(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
    })
}

/// Whether a toleration puts up with a taint: same effect (an empty one stands for all), same key (an empty one
/// with `Exists` for all), and, under `Equal`, the same value.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    if !toleration.effect.is_empty() && toleration.effect != taint.effect {
        return false;
    }
    if !toleration.key.is_empty() && toleration.key != taint.key {
        return false;
    }
    match toleration.operator.as_str() {
        "" | "Equal" => !toleration.key.is_empty() && toleration.value == taint.value,
        "Exists" => true,
        _ => false,
    }
}

/// A taint on one line, as Kubernetes prints it: `key=value:effect`.
pub fn display(taint: &Taint) -> String {
    match (taint.value.as_str(), taint.effect.as_str()) {
        ("", "") => taint.key.clone(),
        ("", effect) => format!("{}:{effect}", taint.key),
        (value, "") => format!("{}={value}:", taint.key),
        (value, effect) => format!("{}={value}:{effect}", taint.key),
    }
}

/// What Karmada's event says about a cluster's taints.
pub fn event_message(taints: &[Taint]) -> String {
    format!("Taint cluster succeed: {}.", listed(taints))
}

/// A cluster's taints in Karmada's words.
pub fn listed(taints: &[Taint]) -> String {
    if taints.is_empty() {
        return "cluster now does not have taints".into();
    }
    let list: Vec<_> = taints
        .iter()
        .map(|taint| match taint.value.as_str() {
            "" => format!("{{Key:{},Effect:{}}}", taint.key, taint.effect),
            value => format!("{{Key:{},Value:{value},Effect:{}}}", taint.key, taint.effect),
        })
        .collect();
    format!("cluster now has taints([{}])", list.join(","))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn time(text: &str) -> Time {
        text.parse().unwrap()
    }

    fn keys(taints: &[Taint]) -> Vec<String> {
        taints.iter().map(display).collect()
    }

    #[test]
    fn conditions_become_taints() {
        let now = time("2026-01-01T00:00:00Z");
        let user = Taint::new("mine", NO_SCHEDULE);
        let evict = Taint::new(UNREACHABLE, NO_EXECUTE);
        let not_ready = "cluster.karmada.io/not-ready:NoSchedule";
        let unreachable = "cluster.karmada.io/unreachable:NoSchedule";
        let table: [(&str, Ready, &[&str]); 4] = [
            ("ready", Ready::True, &["mine:NoSchedule", "cluster.karmada.io/unreachable:NoExecute"]),
            (
                "not",
                Ready::False,
                &["mine:NoSchedule", "cluster.karmada.io/unreachable:NoExecute", not_ready],
            ),
            (
                "new",
                Ready::Never,
                &["mine:NoSchedule", "cluster.karmada.io/unreachable:NoExecute", not_ready],
            ),
            (
                "gone",
                Ready::Unknown,
                &["mine:NoSchedule", "cluster.karmada.io/unreachable:NoExecute", unreachable],
            ),
        ];
        for (message, from, _) in table {
            let before = for_condition(&[user.clone(), evict.clone()], from, now)
                .unwrap_or_else(|| vec![user.clone(), evict.clone()]);
            for (to_message, to, want) in table {
                let after = for_condition(&before, to, time("2027-01-01T00:00:00Z"));
                assert_eq!(after.is_none(), keys(&before) == want, "{message} to {to_message}");
                assert_eq!(keys(&after.unwrap_or_else(|| before.clone())), want, "{message} to {to_message}");
            }
        }
        let added = for_condition(&[], Ready::Unknown, now).unwrap();
        assert_eq!(added[0].time_added, Some(now));
    }

    #[test]
    fn tolerations_are_kubernetes() {
        let taint = Taint { value: "v".into(), ..Taint::new("k", NO_SCHEDULE) };
        let table = [
            ("equal", json!({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}), true),
            ("equal is the default", json!({"key": "k", "value": "v"}), true),
            ("another value", json!({"key": "k", "value": "w"}), false),
            ("exists", json!({"key": "k", "operator": "Exists"}), true),
            ("exists for all keys", json!({"operator": "Exists"}), true),
            ("another effect", json!({"operator": "Exists", "effect": "NoExecute"}), false),
            ("another key", json!({"key": "l", "operator": "Exists"}), false),
            ("an unknown operator", json!({"key": "k", "operator": "Like"}), false),
            ("an empty key needs Exists", json!({"value": "v"}), false),
        ];
        for (message, toleration, want) in table {
            let toleration: Toleration = serde_json::from_value(toleration).unwrap();
            assert_eq!(tolerates(&toleration, &taint), want, "{message}");
            let got = untolerated(std::slice::from_ref(&taint), &[toleration], None);
            assert_eq!(got.is_none(), want, "{message}");
        }
        assert!(untolerated(&[Taint::new("k", "PreferNoSchedule")], &[], None).is_none());
    }

    #[test]
    fn what_is_tolerated_for_a_while_is_not_for_ever() {
        let added: Time = "2026-01-01T00:00:00Z".parse().unwrap();
        let taint = |effect: &str| Taint { time_added: Some(added), ..Taint::new("k", effect) };
        let toleration = |seconds: Option<i64>| -> Toleration {
            serde_json::from_value(json!({"key": "k", "operator": "Exists", "tolerationSeconds": seconds}))
                .unwrap()
        };
        let (before, after) =
            ("2026-01-01T00:00:59Z".parse().unwrap(), "2026-01-01T00:01:00Z".parse().unwrap());
        let (none, minute) = (vec![toleration(None)], vec![toleration(None), toleration(Some(60))]);
        let rows = [
            (NO_EXECUTE, &minute, Some(before), true),
            (NO_EXECUTE, &minute, Some(after), false),
            (NO_EXECUTE, &minute, None, true),
            (NO_EXECUTE, &none, Some(after), true),
            (NO_SCHEDULE, &minute, Some(after), true),
        ];
        for (effect, tolerations, now, want) in rows {
            let got = untolerated(&[taint(effect)], tolerations, now).is_none();
            assert_eq!(got, want, "{effect} {tolerations:?} {now:?}");
        }
        let unknown = Taint::new("k", NO_EXECUTE);
        assert!(untolerated(&[unknown], &minute, Some(after)).is_none(), "since when is not known");
    }

    #[test]
    fn events_are_karmadas() {
        assert_eq!(event_message(&[]), "Taint cluster succeed: cluster now does not have taints.");
        assert_eq!(
            event_message(&[Taint::new(NOT_READY, NO_SCHEDULE)]),
            "Taint cluster succeed: cluster now has taints([{Key:cluster.karmada.io/not-ready,Effect:NoSchedule}])."
        );
    }
}
