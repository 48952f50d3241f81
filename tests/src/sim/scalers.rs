//! Workloads whose replicas somebody else decides than users, in some of the plans: a FederatedHPA by what Pods use, a
//! CronFederatedHPA by the clock, HorizontalPodAutoscalers on members with their marker and syncer.
//!
//! What must hold of the templates' replicas is judged here, change by change:
//!
//! - a FederatedHPA takes nothing away while all Pods use what they are to use or more, nor while a cluster of its workload is
//!   silent;
//! - a CronFederatedHPA does what is due once for each of its times, whatever becomes of the hub: a user sets back what it has
//!   done, so that it is seen when it is done again;
//! - the syncer lowers nothing while all clusters of a template have it, heard or not, and comes to rest.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use karmada_client::{Patch, Rest};
use karmada_env::Env;
use karmada_meta::{object, time::Time};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    ledger::Ledger,
    plan::{Scaler, Want},
};
use crate::{
    inprocess::World,
    kubesim::metrics,
    samples::{deployment_path, policy, selector},
};

/// What the FederatedHPA scales.
pub(super) const FEDERATED: &str = "w6";
/// What the CronFederatedHPA does.
pub(super) const CRON: &str = "w7";
/// What members do.
pub(super) const MEMBERS: &str = "w8";

/// What each Pod asks for, and is to use half of, in thousandths of a core.
const REQUEST: i64 = 500;
/// Bounds of the FederatedHPA.
const FEWEST: i64 = 3;
const MOST: i64 = 7;
/// What each member's autoscalers have at least.
const EACH: i64 = 3;
/// What the rules of even and odd minutes set.
const RULES: [(&str, &str, i64); 2] = [("even", "*/2 * * * *", 2), ("odd", "1-59/2 * * * *", 4)];
/// What a user wants when rules are suspended.
pub(super) const SUSPENDED: i64 = 5;
/// What a user makes of that at other times.
const EDITED: i64 = 3;
/// How long what the clock has done stands, until a user does so.
const STANDS: Duration = Duration::from_secs(4);

/// How often members look at their Pods and autoscalers.
const LOOK: Duration = Duration::from_secs(10);
/// After so long without a word a cluster is known to be silent.
const SILENT: Duration = Duration::from_secs(60);
/// A rule that is due is carried out within this time by a hub that is well.
const PROMPT: Duration = Duration::from_secs(75);
/// So far a clock may be put back without a time coming twice.
const BACK: i64 = 600;
/// So often a template's replicas change at most because of its members.
const RESTS: usize = 40;

/// What is kept of all this between two changes.
#[derive(Debug)]
pub(super) struct Scaled {
    /// Replicas of templates; nothing of another hub's.
    known: BTreeMap<String, i64>,
    /// What users have written, until it is seen.
    written: BTreeMap<String, i64>,
    /// What Pods use, in hundredths of what they are to use.
    pub(super) load: u8,
    /// Since when members are silent.
    silent: BTreeMap<usize, Duration>,
    /// Members that a second agent may speak for.
    seconds: bool,
    /// Times of rules that were seen to be done.
    times: BTreeSet<(String, Time)>,
    /// The newest of each.
    newest: BTreeMap<String, Time>,
    /// How often the clock has changed something.
    struck: usize,
    /// The hub's clock has made a jump: when it was due last is hard to tell.
    jumped: bool,
    /// It was put back by so much that times come again.
    again: bool,
    /// A cluster was without its copy since everything agreed.
    pub(super) incomplete: bool,
    /// How often members have changed a template.
    synced: usize,
}

impl Default for Scaled {
    fn default() -> Self {
        Self {
            known: BTreeMap::new(),
            written: BTreeMap::new(),
            load: 100,
            silent: BTreeMap::new(),
            seconds: false,
            times: BTreeSet::new(),
            newest: BTreeMap::new(),
            struck: 0,
            jumped: false,
            again: false,
            incomplete: true,
            synced: 0,
        }
    }
}

impl Scaled {
    /// A user has written a template: what comes of that is no change of a scaler's.
    pub(super) fn user_writes(&mut self, name: &str, replicas: i64) {
        self.written.insert(name.to_owned(), replicas);
    }

    /// Another hub is there, which knows less.
    pub(super) fn restored(&mut self) {
        self.known.clear();
        self.times.clear();
        self.newest.clear();
        (self.struck, self.incomplete) = (0, true);
    }

    /// Whether a workload may have fewer replicas at any time: nobody asks users.
    pub(super) fn shrinks(&self, scaler: Scaler) -> bool {
        match scaler {
            Scaler::Federated => self.load < 100,
            Scaler::Cron { .. } | Scaler::Members { .. } => true,
        }
    }

    /// The hub's clock jumps.
    pub(super) fn jumps(&mut self, by: i64) {
        self.jumped = true;
        if by < -BACK {
            self.again = true;
            self.times.clear();
            self.newest.clear();
            self.struck = 0;
        }
    }

    pub(super) fn second(&mut self) {
        self.seconds = true;
    }

    pub(super) fn silences(&mut self, member: usize, begins: bool, now: Duration) {
        if begins {
            self.silent.entry(member).or_insert(now);
        } else {
            self.silent.remove(&member);
        }
    }

    /// A template has so many replicas. Whether that is new, and what is wrong with it.
    pub(super) fn templated(
        &mut self,
        (name, scaler): (&str, Scaler),
        replicas: i64,
        on: &BTreeSet<usize>,
        now: Duration,
    ) -> (bool, Result<(), String>) {
        let before = self.known.insert(name.to_owned(), replicas);
        let Some(before) = before else { return (true, Ok(())) };
        if before == replicas {
            return (false, Ok(()));
        }
        if self.written.get(name) == Some(&replicas) {
            self.written.remove(name);
            return (true, Ok(()));
        }
        (true, self.judge((name, scaler), (before, replicas), on, now))
    }

    fn judge(
        &mut self,
        (name, scaler): (&str, Scaler),
        (before, replicas): (i64, i64),
        on: &BTreeSet<usize>,
        now: Duration,
    ) -> Result<(), String> {
        let less = replicas < before;
        let how = format!("{name} goes from {before} to {replicas} replicas");
        match scaler {
            Scaler::Federated if less && self.load >= 100 => {
                Err(format!("{how}, and its Pods use {} % of what they are to use", self.load))
            }
            Scaler::Federated if less && !self.seconds => {
                let is = |member: &&usize| self.silent.get(*member).is_some_and(|at| now >= *at + SILENT);
                match on.iter().find(is) {
                    Some(member) => Err(format!("{how}, and member{} is silent", member + 1)),
                    None => Ok(()),
                }
            }
            Scaler::Federated => Ok(()),
            Scaler::Cron { .. } => {
                self.struck += 1;
                // That it was done is written after it.
                let times = self.times.len() + 1;
                let twice = self.struck > times;
                if twice {
                    Err(format!("{how}, the {}th change in {times} times", self.struck))
                } else {
                    Ok(())
                }
            }
            Scaler::Members { .. } => {
                self.synced += 1;
                if self.synced > RESTS {
                    return Err(format!("{how}, and does not come to rest"));
                }
                if less && !self.incomplete {
                    return Err(format!("{how}, and no member has fewer than it had"));
                }
                Ok(())
            }
        }
    }

    /// The status of a CronFederatedHPA: what is wrong with it.
    pub(super) fn cron(&mut self, status: &Value) -> Result<(), String> {
        for history in status["executionHistories"].as_array().into_iter().flatten() {
            let rule = history["ruleName"].as_str().unwrap_or_default();
            let entries = ["successfulExecutions", "failedExecutions"];
            let entries = entries.iter().flat_map(|field| history[*field].as_array().into_iter().flatten());
            let times: Vec<Time> =
                entries.filter_map(|entry| entry["scheduleTime"].as_str()?.parse().ok()).collect();
            let once: BTreeSet<Time> = times.iter().copied().collect();
            if once.len() < times.len() && !self.again {
                return Err(format!("a time of rule {rule} came twice: {history}"));
            }
            let Some(newest) = once.last().copied() else { continue };
            self.times.extend(once.into_iter().map(|at| (rule.to_owned(), at)));
            let of_rule = self.newest.entry(rule.to_owned()).or_insert(newest);
            *of_rule = newest.max(*of_rule);
        }
        Ok(())
    }

    /// What is to become of a template yet.
    pub(super) fn unfinished(&self, want: &Want, now: Time) -> Result<(), String> {
        let is = want.replicas;
        match want.scaler {
            Some(Scaler::Federated) if self.load > 110 && is != MOST => {
                Err(format!("{FEDERATED} has {is} replicas and is to have {MOST} under its load"))
            }
            Some(Scaler::Federated) if self.load < 90 && is != FEWEST => {
                Err(format!("{FEDERATED} has {is} replicas and is to have {FEWEST} without load"))
            }
            Some(Scaler::Cron { suspended: true }) if is != SUSPENDED => {
                Err(format!("{CRON} has {is} replicas and nobody is to scale it"))
            }
            Some(Scaler::Cron { suspended: false }) if self.struck > self.times.len() => {
                let (struck, times) = (self.struck, self.times.len());
                Err(format!("{CRON} was scaled {struck} times, and it was due {times} times"))
            }
            Some(Scaler::Cron { suspended: false }) if !self.jumped => {
                let newest = self.newest.values().max();
                match newest.filter(|at| at.elapsed(now.timestamp().into()) <= PROMPT) {
                    Some(_) => Ok(()),
                    None => Err(format!("{CRON} was scaled last for {newest:?}, and it is {now}")),
                }
            }
            _ => Ok(()),
        }
    }
}

/// The template of such a workload, which is as any but for this.
pub(super) fn dress(template: &mut Value, want: &Want) {
    if want.scaler == Some(Scaler::Federated) {
        let asks = json!({"requests": {"cpu": format!("{REQUEST}m")}});
        template["spec"]["template"]["spec"]["containers"][0]["resources"] = asks;
    }
}

/// What a user makes beside template and policy, in order, and what is not to be there any more.
pub(super) fn beside(name: &str, want: &Want, members: usize) -> (Vec<Value>, Vec<Value>) {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
    match want.scaler {
        None => (Vec::new(), Vec::new()),
        Some(Scaler::Federated) => {
            let cpu = json!({"type": "Resource", "resource": {"name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 50}}});
            let down = json!({"stabilizationWindowSeconds": 20,
                "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]});
            let hpa = json!({
                "apiVersion": "autoscaling.karmada.io/v1alpha1", "kind": "FederatedHPA", "metadata": {"name": name},
                "spec": {"scaleTargetRef": target, "minReplicas": FEWEST, "maxReplicas": MOST,
                    "metrics": [cpu], "behavior": {"scaleDown": down}},
            });
            (vec![hpa], Vec::new())
        }
        Some(Scaler::Cron { suspended }) => {
            let rules: Vec<Value> = RULES
                .iter()
                .map(|(name, schedule, replicas)| {
                    json!({"name": name, "schedule": schedule, "targetReplicas": replicas,
                        "suspend": suspended, "successfulHistoryLimit": 32, "failedHistoryLimit": 32})
                })
                .collect();
            let cron = json!({
                "apiVersion": "autoscaling.karmada.io/v1alpha1", "kind": "CronFederatedHPA",
                "metadata": {"name": name}, "spec": {"scaleTargetRef": target, "rules": rules},
            });
            (vec![cron], Vec::new())
        }
        Some(Scaler::Members { hpas }) => {
            let hpa = |n: u8| {
                json!({
                    "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
                    "metadata": {"name": format!("{name}-{n}")},
                    "spec": {"scaleTargetRef": target, "minReplicas": EACH, "maxReplicas": 9},
                })
            };
            let clusters: Vec<String> = (1..=members).map(|n| format!("member{n}")).collect();
            let clusters: Vec<&str> = clusters.iter().map(String::as_str).collect();
            let all = selector("autoscaling/v2", "HorizontalPodAutoscaler", "");
            let mut there = vec![policy(&format!("{name}-hpas"), all, &clusters)];
            there.extend((0..hpas).map(hpa));
            (there, (hpas..2).map(hpa).collect())
        }
    }
}

/// Has a member measure the Pods of what the FederatedHPA scales.
pub(super) async fn furnish(api: &Rest) {
    metrics::install(api).await.expect("a member takes a definition");
}

/// Runs the Pods of what the FederatedHPA scales, and has them use what they use.
pub(super) async fn pods(api: Rest, env: Env, ledger: Arc<Ledger>) {
    let path = format!("/api/v1/namespaces/{}/pods", World::NAMESPACE);
    // Older than any clock is put back.
    let long_ago = "2020-01-01T00:00:00Z";
    let pod = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": FEDERATED}},
            "spec": {"containers": [{"name": "c", "image": "i",
                "resources": {"requests": {"cpu": format!("{REQUEST}m")}}}]},
        })
    };
    let runs = json!({"status": {"phase": "Running", "startTime": long_ago,
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": long_ago}]}});
    let mut running: i64 = 0;
    loop {
        let live = api.get(&deployment_path(World::NAMESPACE, FEDERATED)).await;
        let wanted = live.map_or(0, |live| live["spec"]["replicas"].as_i64().unwrap_or(1));
        // What cannot be done now is done with the next look: a namespace may not be there yet, or go.
        for n in 0..wanted.max(running) {
            let name = format!("{FEDERATED}-{n}");
            if n >= wanted {
                let _ = api.delete(&format!("{path}/{name}"), &json!({"gracePeriodSeconds": 0})).await;
            } else if api.post(&path, &pod(&name)).await.is_ok() {
                let _ = api.patch(&format!("{path}/{name}/status"), Patch::Merge, &runs).await;
            }
        }
        running = wanted;
        if running > 0 {
            let each = REQUEST / 2 * i64::from(ledger.load()) / 100;
            let _ = metrics::measure(&api, &env, (World::NAMESPACE, FEDERATED), |_| each).await;
        }
        sleep(LOOK).await;
    }
}

/// A user who sets back what the clock has scaled, while it does.
pub(super) async fn edit(api: Rest, ledger: Arc<Ledger>) {
    let path = deployment_path(World::NAMESPACE, CRON);
    let change = json!({"spec": {"replicas": EDITED}});
    loop {
        sleep(STANDS).await;
        // What cannot be asked now is asked the next time.
        let Ok(live) = api.get(&path).await else { continue };
        if live["spec"]["replicas"] != EDITED && ledger.is_timed() {
            ledger.scaled(|scaled, _| scaled.user_writes(CRON, EDITED));
            let _ = api.patch(&path, Patch::Merge, &change).await;
        }
    }
}

/// Whether a template's mark says that members scale it, if they do.
pub(super) fn marked(template: &Value, want: &Want) -> Result<(), String> {
    let is = karmada_core::scaling::is_marked(template);
    match want.scaler {
        Some(Scaler::Members { hpas }) if is != (hpas > 0) => {
            Err(format!("{} has {hpas} autoscalers, and its mark is {is}", object::name(template)))
        }
        _ => Ok(()),
    }
}

/// Whether members may have other replicas of a workload than they were given.
pub(super) const fn is_members(want: &Want) -> bool {
    matches!(want.scaler, Some(Scaler::Members { hpas }) if hpas > 0)
}
