//! What the page shows of single things, from objects that its user may read. Pure: whoever asks brings them.

use std::collections::BTreeMap;

use karmada_api::consts::{annotation, condition, extension};
use karmada_core::{
    judge::fence,
    names,
    rollout::{self, Phase, State, Wave, words},
    stage::{self, Stage},
    upgrade::{self, request},
};
use karmada_meta::{object, quantity::Quantity, text, time::Time};
use serde_json::{Map, Value, json};

use crate::agent;

/// So many Works are shown of a cluster, those first that are not as they should be.
pub const WORKS: usize = 200;
/// So many resources of quotas, those first of which most is used.
pub const QUOTAS: usize = 50;
/// So many events.
pub const EVENTS: usize = 30;
/// The longest text that is shown of anybody's words.
pub(crate) const WORDS: usize = 512;
/// So many lines are read of what is said of an upgrade.
const LINES: usize = 100;
/// So many differences are shown between a template and what a cluster gets.
const DIFFERENCES: usize = 200;

/// What a Work carries: the first of its manifests, by kind and key.
fn carries(work: &Value) -> (String, String) {
    let first = work.pointer("/spec/workload/manifests/0").unwrap_or(&Value::Null);
    (object::kind(first).to_owned(), object::key(first))
}

/// So many rows are held while there may be better ones.
const HELD: usize = 2 * WORKS;

/// The Works of a cluster: how many are how far, and those that wait or failed before others. They come some at a time, and
/// no more of them are held than are shown, or twice as many.
#[derive(Debug, Default)]
pub struct Works {
    rows: Vec<(Stage, String, Value)>,
    counts: BTreeMap<Stage, usize>,
}

impl Works {
    /// These are there, too.
    pub fn add(&mut self, works: &[Value]) {
        for work in works {
            let ((stage, why), (kind, key)) = (stage::of(work), carries(work));
            let why = text::line(why, WORDS);
            let changed = work.pointer("/status/conditions").and_then(Value::as_array);
            let at = changed.into_iter().flatten().filter_map(|c| c["lastTransitionTime"].as_str()).max();
            let fence = fence::of_work(work);
            let row = json!({
                "work": object::name(work), "kind": kind, "object": key, "stage": stage, "why": why, "at": at,
                "fenceSeconds": fence.map(|fence| fence.as_secs()),
            });
            *self.counts.entry(stage).or_default() += 1;
            self.rows.push((stage, key, row));
            if self.rows.len() >= HELD {
                self.sort();
            }
        }
    }

    fn sort(&mut self) {
        self.rows.sort_by(|(a, one, _), (b, other, _)| a.cmp(b).then_with(|| one.cmp(other)));
        self.rows.truncate(WORKS);
    }

    /// As the page shows them.
    pub fn shown(mut self) -> Value {
        self.sort();
        let count = |stage: Stage| self.counts.get(&stage).copied().unwrap_or_default();
        json!({
            "applied": count(Stage::Applied), "waiting": count(Stage::Waiting), "failed": count(Stage::Failed),
            "of": self.counts.values().sum::<usize>(),
            "items": self.rows.into_iter().map(|(.., row)| row).collect::<Vec<_>>(),
        })
    }
}

/// The room that a cluster reports: of each resource what its nodes offer and what Pods ask for.
pub fn room(cluster: &Value) -> Value {
    let summary = &cluster["status"]["resourceSummary"];
    let read = |list: &str, name: &str| {
        let text = summary[list][name].as_str().unwrap_or("0");
        Quantity::parse(text).map_or(0.0, |quantity| quantity.as_f64())
    };
    let names = summary["allocatable"].as_object().into_iter().flat_map(Map::keys);
    let rows = names.map(|name| {
        json!({
            "name": name, "offers": read("allocatable", name), "asked": read("allocated", name),
            "waiting": read("allocating", name),
        })
    });
    json!({"nodes": cluster["status"]["nodeSummary"], "resources": rows.collect::<Vec<_>>()})
}

/// A cluster by its own object: who it is, its conditions and taints, its room.
pub fn cluster(cluster: &Value) -> Value {
    let spec = &cluster["spec"];
    let conditions = cluster.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    let conditions = conditions.map(|condition| {
        json!({
            "type": condition["type"], "status": condition["status"], "reason": condition["reason"],
            "message": text::line(condition["message"].as_str().unwrap_or_default(), WORDS),
            "at": condition["lastTransitionTime"],
        })
    });
    let losses = object::annotation(cluster, extension::LINK_HISTORY)
        .and_then(|record| serde_json::from_str::<Value>(record).ok())
        .map_or(Value::Null, |record| record["losses"].clone());
    json!({
        "name": object::name(cluster), "born": object::creation_timestamp(cluster),
        "mode": spec["syncMode"], "region": spec["region"], "provider": spec["provider"], "zones": spec["zones"],
        "labels": object::label_map(cluster),
        "link": object::annotation(cluster, extension::LINK),
        "windows": object::annotation(cluster, extension::WINDOWS_CLUSTER),
        "linkWindows": object::annotation(cluster, extension::LINK_WINDOWS),
        "hold": object::annotation(cluster, extension::HOLD_CLUSTER), "upgrade": agent::upgrade(cluster),
        "agent": agent::said(cluster),
        "kubernetes": cluster.pointer("/status/kubernetesVersion"),
        "taints": spec["taints"], "losses": losses,
        "conditions": conditions.collect::<Vec<_>>(), "room": room(cluster),
    })
}

/// The last events of something, the newest first. They come some at a time.
#[derive(Debug, Default)]
pub struct Events(Vec<(Option<String>, Value)>);

impl Events {
    /// These are there, too.
    pub fn add(&mut self, events: &[Value]) {
        let at = |event: &Value| {
            ["lastTimestamp", "eventTime", "firstTimestamp"]
                .iter()
                .find_map(|field| event[*field].as_str())
                .or_else(|| event.pointer("/metadata/creationTimestamp")?.as_str())
                .map(str::to_owned)
        };
        for event in events {
            let at = at(event);
            let row = json!({
                "at": at, "type": event["type"], "reason": event["reason"], "count": event["count"],
                "message": text::line(event["message"].as_str().unwrap_or_default(), WORDS),
            });
            self.0.push((at, row));
        }
        self.0.sort_by(|(a, _), (b, _)| b.cmp(a));
        self.0.truncate(EVENTS);
    }

    /// As the page shows them.
    pub fn shown(self) -> Value {
        self.0.into_iter().map(|(_, row)| row).collect()
    }
}

/// One line of the list of applications: a binding.
pub fn app(binding: &Value) -> Value {
    let spec = &binding["spec"];
    let resource = &spec["resource"];
    let list =
        |at: &str| binding.pointer(at).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let items = list("/status/aggregatedStatus");
    let applied = items.iter().filter(|item| item["applied"] == true).count();
    let failed = items
        .iter()
        .filter(|item| {
            item["applied"] != true && item["appliedMessage"].as_str().is_some_and(|m| !m.is_empty())
        })
        .count();
    let scheduled =
        list("/status/conditions").iter().find(|condition| condition["type"] == condition::SCHEDULED);
    json!({
        "scope": if object::namespace(binding).is_empty() { "cluster" } else { "namespaced" },
        "binding": object::name(binding), "kind": resource["kind"], "apiVersion": resource["apiVersion"],
        "namespace": resource["namespace"], "name": resource["name"], "replicas": spec["replicas"],
        "clusters": list("/spec/clusters").len(), "applied": applied, "failed": failed,
        "scheduled": scheduled.map(|scheduled| scheduled["status"] == "True"),
        "leaving": list("/spec/gracefulEvictionTasks").len(),
    })
}

/// Of each cluster that a binding names what is wanted, and what was reported.
pub fn copies(binding: &Value) -> Vec<Value> {
    let list =
        |at: &str| binding.pointer(at).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut rows: BTreeMap<&str, Value> = BTreeMap::new();
    for target in list("/spec/clusters") {
        if let Some(name) = target["name"].as_str() {
            rows.insert(name, json!({"cluster": name, "desired": target["replicas"], "wanted": true}));
        }
    }
    for task in list("/spec/gracefulEvictionTasks") {
        if let Some(name) = task["fromCluster"].as_str() {
            let row = rows.entry(name).or_insert_with(|| json!({"cluster": name, "wanted": false}));
            row["leaving"] = json!({"reason": task["reason"], "message": task["message"], "at": task["creationTimestamp"]});
        }
    }
    for item in list("/status/aggregatedStatus") {
        let Some(name) = item["clusterName"].as_str() else { continue };
        let row = rows.entry(name).or_insert_with(|| json!({"cluster": name, "wanted": false}));
        row["applied"] = json!(item["applied"] == true);
        row["health"] = item["health"].clone();
        row["message"] = text::line(item["appliedMessage"].as_str().unwrap_or_default(), WORDS).into();
        let status = &item["status"];
        let first = |names: &[&str]| names.iter().map(|name| &status[*name]).find(|value| value.is_number());
        row["has"] = json!(first(&["replicas", "desiredNumberScheduled", "active"]));
        row["ready"] = json!(first(&["readyReplicas", "numberReady", "ready", "succeeded"]));
    }
    rows.into_values().collect()
}

/// The FederatedResourceQuotas, resource by resource, those first of which most is used. They come some at a time.
#[derive(Debug, Default)]
pub struct Quotas {
    rows: Vec<(f64, String, Value)>,
    of: usize,
}

impl Quotas {
    /// These are there, too.
    pub fn add(&mut self, quotas: &[Value]) {
        let read = |text: &str| Quantity::parse(text).map_or(0.0, |quantity| quantity.as_f64());
        for quota in quotas {
            self.of += 1;
            let hard = quota.pointer("/spec/overall").and_then(Value::as_object).into_iter().flatten();
            for (resource, hard) in hard {
                let hard = hard.as_str().unwrap_or("0");
                let used = quota["status"]["overallUsed"][resource].as_str().unwrap_or("0");
                // Who may have nothing and has something has all of it.
                let share = match (read(used), read(hard)) {
                    (used, _) if used <= 0.0 => 0.0,
                    (_, hard) if hard <= 0.0 => 1.0,
                    (used, hard) => used / hard,
                };
                let row = json!({
                    "quota": object::key(quota), "resource": resource, "used": used, "hard": hard, "share": share,
                });
                self.rows.push((share, format!("{} {resource}", object::key(quota)), row));
            }
            if self.rows.len() >= 2 * QUOTAS {
                self.sort();
            }
        }
    }

    fn sort(&mut self) {
        self.rows.sort_by(|(a, one, _), (b, other, _)| b.total_cmp(a).then_with(|| one.cmp(other)));
        self.rows.truncate(QUOTAS);
    }

    /// As the page shows them.
    pub fn shown(mut self) -> Value {
        self.sort();
        json!({"of": self.of, "items": self.rows.into_iter().map(|(.., row)| row).collect::<Vec<_>>()})
    }
}

/// How far a change is that goes out in waves: in words, and wave by wave. Nothing where no waves are asked for.
pub fn rollout(binding: &Value) -> Value {
    let state = match State::read(binding) {
        Ok(Some(state)) => state,
        Ok(None) => return Value::Null,
        Err(why) => {
            let outlived = object::annotation(binding, rollout::OUTLIVES).is_some();
            return json!({"problem": text::line(&words::unreadable(&why, outlived), WORDS)});
        }
    };
    let conditions = binding.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    let said = conditions.into_iter().find(|condition| condition["type"] == extension::ROLLED_OUT);
    let reason = said.and_then(|said| said["reason"].as_str()).unwrap_or_else(|| words::reason(&state));
    let message = said
        .and_then(|said| said["message"].as_str())
        .unwrap_or("Nothing has changed since waves were asked for.");
    let (mut told, message) = (progress(&state), text::line(message, WORDS));
    (told["reason"], told["message"], told["before"]) = (json!(reason), json!(message), json!(state.base));
    if reason == extension::REVISION_NOT_KEPT {
        // The hub takes no command about it.
        (told["underWay"], told["waits"], told["failed"]) = (false.into(), false.into(), false.into());
        told["refused"] = true.into();
    }
    told
}

/// What goes out, and how far it is wave by wave.
fn progress(state: &State) -> Value {
    let wave = |(at, wave): (usize, &Wave)| {
        json!({
            "name": wave.name, "clusters": wave.clusters, "opened": wave.opened, "approve": wave.approve,
            "over": at < state.open || state.phase == Phase::Complete,
        })
    };
    json!({
        "revision": state.revision, "began": state.began, "waves": state.waves.iter().enumerate().map(wave).collect::<Vec<_>>(),
        "underWay": state.is_under_way(), "waits": words::waits(state), "failed": state.phase == Phase::Breached,
    })
}

/// How far an upgrade of the agents is, by the ConfigMap in which it was asked for.
pub fn upgrade(object: &Value) -> Value {
    let state = match State::read(object) {
        Ok(state) => state,
        Err(why) => return json!({"problem": text::line(&why, WORDS)}),
    };
    let said =
        object["data"][request::STATUS].as_str().unwrap_or("Progressing: the hub has not looked at it yet");
    let mut lines = said.lines().take(LINES);
    let (reason, message) = lines.next().and_then(|line| line.split_once(": ")).unwrap_or_default();
    let (reason, message) = (text::line(reason, WORDS), text::line(message, WORDS));
    let beside = lines.filter_map(|line| {
        let (kind, rest) = line.split_once(": ")?;
        let shown = ["failed", "waits", "skipped"].contains(&kind);
        shown.then(|| json!({"kind": kind, "text": text::line(rest, WORDS)}))
    });
    let beside: Vec<_> = beside.collect();
    let mut told = state.as_ref().map_or_else(|| json!({"waves": []}), progress);
    // A request that is refused leaves the state of the one before as it is.
    if state.as_ref().is_none_or(|state| words::reason(state) != reason) {
        (told["underWay"], told["waits"], told["failed"]) = (false.into(), false.into(), false.into());
        told["refused"] = upgrade::words::is_refusal(&reason).into();
    }
    (told["reason"], told["message"], told["beside"]) = (json!(reason), json!(message), json!(beside));
    told["version"] = json!(text::line(object["data"][request::VERSION].as_str().unwrap_or_default(), WORDS));
    told
}

/// What servers and the hub itself keep in an object: no difference to whoever reads one.
fn plain(value: &Value) -> Value {
    let mut plain = value.clone();
    if let Some(map) = plain.as_object_mut() {
        map.remove("status");
    }
    if let Some(metadata) = plain.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in [
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "managedFields",
            "selfLink",
            "ownerReferences",
            "finalizers",
        ] {
            metadata.remove(field);
        }
        for list in ["labels", "annotations"] {
            let ours = |key: &str| {
                key == annotation::LAST_APPLIED
                    || key
                        .split('/')
                        .next()
                        .is_some_and(|domain| domain == "karmada.io" || domain.ends_with(".karmada.io"))
            };
            if let Some(map) = metadata.get_mut(list).and_then(Value::as_object_mut) {
                map.retain(|key, _| !ours(key));
            }
            if metadata.get(list).is_some_and(|list| list.as_object().is_some_and(Map::is_empty)) {
                metadata.remove(list);
            }
        }
    }
    plain
}

/// What a cluster gets that is not as in the template: field by field, with both values, and the policies that did it.
pub fn difference(template: &Value, work: &Value) -> Value {
    let manifest = work.pointer("/spec/workload/manifests/0").unwrap_or(&Value::Null);
    let (before, after) = (plain(template), plain(manifest));
    let show = |value: &Value| match value {
        Value::String(text) => text::line(text, WORDS),
        other => text::line(&other.to_string(), WORDS),
    };
    let is_secret = object::kind(manifest) == "Secret";
    let patch = json_patch::diff(&before, &after);
    let of = patch.0.len();
    let rows = patch.0.into_iter().take(DIFFERENCES).map(|operation| {
        let (what, path) = match &operation {
            json_patch::PatchOperation::Add(add) => ("added", add.path.to_string()),
            json_patch::PatchOperation::Remove(remove) => ("removed", remove.path.to_string()),
            other => ("changed", other.path().to_string()),
        };
        let value = |object: &Value| match object.pointer(&path) {
            // Their values are nobody's to see who only wants to know what differs.
            Some(_) if is_secret => "…".to_owned(),
            Some(value) => show(value),
            None => String::new(),
        };
        json!({"what": what, "path": path, "template": value(&before), "cluster": value(&after)})
    });
    let rows: Vec<_> = rows.collect();
    let by = [annotation::APPLIED_CLUSTER_OVERRIDES, annotation::APPLIED_OVERRIDES].iter().flat_map(|key| {
        let rules =
            object::annotation(work, key).and_then(|text| serde_json::from_str::<Vec<Value>>(text).ok());
        rules
            .unwrap_or_default()
            .into_iter()
            .filter_map(|rule| rule["policyName"].as_str().map(str::to_owned))
    });
    json!({
        "cluster": names::cluster_of_namespace(object::namespace(work)), "of": of, "differences": rows,
        "policies": by.collect::<Vec<_>>(),
    })
}

/// When a cluster's fenced Works stop by its own clock, that was heard last at this time: the first of them.
pub fn fenced_at(heard: Time, seconds: u32) -> Time {
    let at = std::time::SystemTime::from(heard.timestamp()) + std::time::Duration::from_secs(seconds.into());
    Time::from_system(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_that_are_nearly_used_up_come_first() {
        let quota = |name: &str, hard: &str, used: &str| {
            json!({"metadata": {"namespace": "shop", "name": name}, "spec": {"overall": {"cpu": hard}},
                "status": {"overall": {"cpu": hard}, "overallUsed": {"cpu": used}}})
        };
        let mut quotas = Quotas::default();
        quotas.add(&[quota("half", "4", "2000m"), quota("none", "0", "0"), quota("over", "0", "1")]);
        quotas.add(&[
            quota("full", "2", "2"),
            json!({"metadata": {"namespace": "shop", "name": "new"}, "spec": {"overall": {"memory": "1Gi"}}}),
        ]);
        let shown = quotas.shown();
        let rows = shown["items"].as_array().unwrap();
        let of: Vec<_> =
            rows.iter().map(|row| (row["quota"].as_str().unwrap(), row["share"].as_f64().unwrap())).collect();
        assert_eq!(
            of,
            [
                ("shop/full", 1.0),
                ("shop/over", 1.0),
                ("shop/half", 0.5),
                ("shop/new", 0.0),
                ("shop/none", 0.0)
            ]
        );
        assert_eq!(
            (&rows[2]["used"], &rows[2]["hard"], &shown["of"]),
            (&json!("2000m"), &json!("4"), &json!(5))
        );
        // However many there are, so many are held and shown.
        let mut many = Quotas::default();
        for n in 0..(5 * QUOTAS) {
            many.add(&[quota(&format!("q{n:03}"), "1000", &n.to_string())]);
            assert!(many.rows.len() <= 2 * QUOTAS);
        }
        let shown = many.shown();
        assert_eq!((&shown["of"], shown["items"].as_array().unwrap().len()), (&json!(5 * QUOTAS), QUOTAS));
        assert_eq!(shown["items"][0]["quota"], format!("shop/q{:03}", 5 * QUOTAS - 1));
    }

    fn work(conditions: &Value) -> Value {
        json!({
            "metadata": {"name": "w", "namespace": "karmada-es-m", "generation": 2},
            "spec": {"workload": {"manifests": [{"kind": "Deployment", "metadata": {"namespace": "shop", "name": "web"}}]}},
            "status": {"conditions": conditions},
        })
    }

    #[test]
    fn works_that_are_not_there_come_first() {
        let applied = |status: &str, seen: i64| json!({"type": "Applied", "status": status, "message": "no room\nleft", "observedGeneration": seen});
        let all =
            [work(&json!([applied("True", 2)])), work(&json!(null)), work(&json!([applied("False", 2)]))];
        let mut works = Works::default();
        works.add(&all);
        let shown = works.shown();
        let sum: i64 =
            ["applied", "waiting", "failed"].iter().map(|part| shown[*part].as_i64().unwrap()).sum();
        assert_eq!((sum, shown["of"].as_i64()), (3, Some(3)));
        assert_eq!(
            (&shown["items"][0]["stage"], &shown["items"][0]["object"]),
            (&json!("failed"), &json!("shop/web"))
        );
        // Of many the worst are kept, in whatever order they come.
        let mut works = Works::default();
        (0..10).for_each(|_| works.add(&vec![all[0].clone(); WORKS]));
        works.add(&all[2..]);
        (0..10).for_each(|_| works.add(&vec![all[0].clone(); WORKS]));
        assert!(works.rows.len() < HELD);
        let shown = works.shown();
        let items = shown["items"].as_array().unwrap();
        assert_eq!(
            (items.len(), shown["of"].as_u64(), &items[0]["stage"]),
            (WORKS, Some(4001), &json!("failed"))
        );
    }

    #[test]
    fn the_newest_events_are_shown() {
        let event = |n: usize| json!({"lastTimestamp": format!("2026-01-01T{:02}:00:00Z", n % 24), "reason": "R", "message": "m"});
        let mut events = Events::default();
        for day in 0..100 {
            events.add(&[event(day), event(day + 1)]);
        }
        let shown = events.shown();
        assert_eq!(shown.as_array().unwrap().len(), EVENTS);
        assert_eq!(shown[0]["at"], "2026-01-01T23:00:00Z");
    }

    #[test]
    fn copies_are_what_is_wanted_and_what_was_reported() {
        let binding = json!({
            "metadata": {"namespace": "shop", "name": "web-deployment"},
            "spec": {
                "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web"},
                "replicas": 3, "clusters": [{"name": "a", "replicas": 2}, {"name": "b", "replicas": 1}],
                "gracefulEvictionTasks": [{"fromCluster": "c", "reason": "TaintUntolerated"}],
            },
            "status": {"aggregatedStatus": [
                {"clusterName": "a", "applied": true, "health": "Healthy", "status": {"replicas": 2, "readyReplicas": 2}},
                {"clusterName": "b", "applied": false, "appliedMessage": "denied"},
                {"clusterName": "d", "applied": true},
            ]},
        });
        let rows = copies(&binding);
        let names: Vec<_> = rows.iter().map(|row| row["cluster"].as_str().unwrap()).collect();
        assert_eq!(names, ["a", "b", "c", "d"]);
        assert_eq!((&rows[0]["desired"], &rows[0]["ready"]), (&json!(2), &json!(2)));
        assert_eq!((&rows[1]["applied"], &rows[1]["message"]), (&json!(false), &json!("denied")));
        assert_eq!(
            (&rows[2]["wanted"], &rows[2]["leaving"]["reason"]),
            (&json!(false), &json!("TaintUntolerated"))
        );
        let line = app(&binding);
        assert_eq!(
            (&line["clusters"], &line["applied"], &line["failed"], &line["leaving"]),
            (&json!(2), &json!(2), &json!(1), &json!(1))
        );
    }

    #[test]
    fn a_rollout_is_told_wave_by_wave() {
        let binding = |state: &str| {
            json!({
                "metadata": {"name": "web", "annotations": {"hub.karmada.io/rollout": state}},
                "status": {"conditions": [{"type": "RolledOut", "reason": "Breached", "message": "2 failed"}]},
            })
        };
        let state = r#"{"revision": "b", "base": "a", "phase": "Breached", "seed": "s", "open": 1, "waves": [
            {"name": "10%", "clusters": 3, "soak": 60, "opened": "2026-01-01T00:00:00Z"}, {"name": "100%", "clusters": 27, "soak": 0, "approve": true}]}"#;
        let got = rollout(&binding(state));
        assert_eq!((&got["reason"], &got["message"]), (&json!("Breached"), &json!("2 failed")));
        assert_eq!((&got["waits"], &got["failed"]), (&json!(true), &json!(true)));
        let over: Vec<_> = got["waves"].as_array().unwrap().iter().map(|wave| wave["over"].clone()).collect();
        assert_eq!(over, [json!(true), json!(false)]);
        assert_eq!(rollout(&json!({"metadata": {"name": "web"}})), Value::Null);
        let problem = rollout(&binding("{"))["problem"].clone();
        assert!(problem.as_str().unwrap().contains("Take the annotation off"), "{problem}");
        let mut outlived = binding("{");
        outlived["metadata"]["annotations"][rollout::OUTLIVES] = json!("true");
        let problem = rollout(&outlived)["problem"].clone();
        assert!(problem.as_str().unwrap().contains("reaches all clusters at once"), "{problem}");
        let mut unkept = binding(state);
        unkept["status"]["conditions"][0]["reason"] = json!(extension::REVISION_NOT_KEPT);
        let got = rollout(&unkept);
        assert_eq!(
            (&got["waits"], &got["underWay"]),
            (&json!(false), &json!(false)),
            "no command does anything"
        );
        assert_eq!(got["refused"], json!(true));
    }

    #[test]
    fn an_upgrade_is_told_with_who_waits_and_who_failed() {
        let state = r#"{"what": "Agents", "revision": "0.6.0", "phase": "Breached", "seed": "s", "open": 1, "waves": [
            {"name": "10%", "clusters": 3, "soak": 60, "opened": "2026-01-01T00:00:00Z"}, {"name": "100%", "clusters": 27, "soak": 0}]}"#;
        let object = |state: &str, status: &str| {
            json!({
                "metadata": {"name": "agent-upgrade", "annotations": {"hub.karmada.io/rollout": state}},
                "data": {"version": "0.6.0", "status": status},
            })
        };
        let status = "GateBroken: version 0.6.0 is stopped\nwave 1 of 2 (10%), clusters: 3\nfailed: m1: it may crash\n\
                      waits: m2: no window\nskipped: 2 are newer: m3, m4";
        let got = upgrade(&object(state, status));
        assert_eq!((&got["version"], &got["reason"]), (&json!("0.6.0"), &json!("GateBroken")));
        assert_eq!((&got["waits"], &got["failed"]), (&json!(true), &json!(true)));
        let kinds: Vec<_> = got["beside"].as_array().unwrap().iter().map(|one| one["kind"].clone()).collect();
        assert_eq!(kinds, ["failed", "waits", "skipped"]);
        assert_eq!(got["beside"][0]["text"], "m1: it may crash");
        let got = upgrade(&object(state, "Refused: agents would be newer than the hub"));
        assert_eq!((&got["refused"], &got["waits"]), (&json!(true), &json!(false)));
        assert!(upgrade(&object("{", status)).get("problem").is_some());
        let new = json!({"data": {"version": "0.6.0"}});
        assert_eq!(upgrade(&new)["message"], "the hub has not looked at it yet");
    }

    #[test]
    fn a_difference_names_fields_and_policies_and_no_secrets() {
        let template = |kind: &str, image: &str| {
            json!({
                "kind": kind, "metadata": {"name": "web", "uid": "u", "resourceVersion": "7",
                    "labels": {"app": "web", "propagationpolicy.karmada.io/permanent-id": "x"}},
                "spec": {"image": image}, "status": {"ready": 1},
            })
        };
        let work = |manifest: Value| {
            json!({
                "metadata": {"namespace": "karmada-es-m", "name": "w", "annotations":
                    {"policy.karmada.io/applied-overrides": "[{\"policyName\": \"eu\", \"overriders\": {}}]"}},
                "spec": {"workload": {"manifests": [manifest]}},
            })
        };
        let got = difference(&template("Deployment", "a:1"), &work(template("Deployment", "eu/a:1")));
        assert_eq!(
            got["differences"],
            json!([{"what": "changed", "path": "/spec/image", "template": "a:1", "cluster": "eu/a:1"}])
        );
        assert_eq!((&got["policies"], &got["cluster"]), (&json!(["eu"]), &json!("m")));
        let got = difference(&template("Secret", "hush"), &work(template("Secret", "hush-eu")));
        assert!(!got.to_string().contains("hush"), "{got}");
        assert_eq!(difference(&template("x", "1"), &work(template("x", "1")))["differences"], json!([]));
    }

    #[test]
    fn room_is_in_numbers() {
        let cluster = json!({"status": {
            "resourceSummary": {"allocatable": {"cpu": "4", "memory": "8Gi"}, "allocated": {"cpu": "1500m"}},
            "nodeSummary": {"totalNum": 2, "readyNum": 1},
        }});
        let got = room(&cluster);
        assert_eq!(got["resources"][0], json!({"name": "cpu", "offers": 4.0, "asked": 1.5, "waiting": 0.0}));
        assert_eq!(got["nodes"]["readyNum"], 1);
    }
}
