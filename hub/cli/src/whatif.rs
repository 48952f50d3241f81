//! `karmada-hub what-if`: what would move where, without moving it.
//!
//! ```text
//!   Clusters ─▶ as they would be ─┐
//!   bindings, page by page ───────┴─▶ karmada_core::suppose ─▶ rows of what is not as it is now
//! ```

use std::{collections::BTreeSet, time::Duration};

use karmada_api::{
    cluster::Taint,
    consts::taint::{NO_SCHEDULE, UNREACHABLE, UNSCHEDULABLE},
    work::TargetCluster,
};
use karmada_core::{
    evict::{Cause, Left, Settings, asks_for_failover},
    fleet::Fleet,
    judge::brake,
    suppose::{self, Changes, Departed, Leaving, Moved},
    taint_edits::Edit,
};
use karmada_env::Env;
use karmada_meta::{duration, time::human_duration};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    Failure,
    args::{Document, WhatIfArgs},
    ask::Server,
    drain,
    explain::places,
    known,
    placed::{self, Bound, Coming, Groups},
    print,
    table::align,
};

/// Prints what would become of every object that the change concerns.
pub(super) async fn run(args: WhatIfArgs, env: Env) -> Result<(), Failure> {
    let wanted = wanted(&args).map_err(Failure::usage)?;
    let server = Server::open(&args.server, &env)?;
    server.reach().await?;
    let supposed = look(&server, &wanted, args.server.namespace.as_deref(), usize::MAX).await?;
    match args.output {
        Document::Text => print(&text(&supposed.rows, &wanted.changes, supposed.outage.as_ref())),
        Document::Json => {
            let document = supposed.document(&wanted);
            print(&format!("{}\n", serde_json::to_string_pretty(&document).map_err(Failure::failed)?))
        }
    }
}

/// By which of a hub's settings it is judged what would leave lost clusters: the defaults, where nobody knows its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Assumed {
    evictions: Settings,
    brake: brake::Settings,
    are_hubs: bool,
}

impl Assumed {
    /// A hub's own.
    pub fn of_hub(evictions: Settings, brake: brake::Settings) -> Self {
        Self { evictions, brake, are_hubs: true }
    }
}

/// What would be otherwise.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Taints that clusters would have.
    pub(crate) changes: Changes,
    /// Clusters that would be drained. They would be cordoned, too.
    pub(crate) drained: BTreeSet<String>,
    /// How the hub goes about it.
    assumed: Assumed,
}

impl Wanted {
    /// These clusters lost, drained and cordoned.
    pub fn of(lose: &[String], drain: &[String], cordon: &[String]) -> Self {
        let mut wanted = Self::default();
        for name in lose {
            wanted.add(name, Taint::new(UNREACHABLE, NO_SCHEDULE));
        }
        for name in cordon.iter().chain(drain) {
            wanted.add(name, Taint::new(UNSCHEDULABLE, NO_SCHEDULE));
        }
        wanted.drained.extend(drain.iter().cloned());
        wanted
    }

    /// The same on a hub with these settings.
    #[must_use]
    pub fn by(self, assumed: Assumed) -> Self {
        Self { assumed, ..self }
    }

    /// Whether nothing would be.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// What would become of an object. What is drained goes at once, to where there is room now (`drained`); what is lost is
    /// left after a while, to where there is room then (`fleet`).
    fn row(&self, bound: &Bound, groups: &Groups, drained: &Fleet, fleet: &Fleet) -> Row {
        let goes: Vec<_> =
            bound.placed().iter().filter(|target| self.drained.contains(&target.name)).collect();
        if goes.is_empty() {
            return suppose(bound, groups, fleet, &self.changes, &self.assumed);
        }
        let (mut at, mut result, mut whys) = (bound.clone(), "follows", Vec::new());
        for target in &goes {
            let (said, after, why) = drain::supposed(&at, groups, drained, &target.name);
            at.spec.clusters = after;
            result = worse(result, said);
            if !why.is_empty() {
                whys.push(if goes.len() == 1 { why } else { format!("{}: {why}", target.name) });
            }
        }
        let others = |target: &TargetCluster| {
            self.changes.contains_key(&target.name) && !self.drained.contains(&target.name)
        };
        let mut row = if at.placed().iter().any(others) {
            let left = suppose(&at, groups, fleet, &self.changes, &self.assumed);
            whys.extend(Some(left.why.clone()).filter(|why| !why.is_empty()));
            Row { result: worse(result, left.result), ..left }
        } else {
            Row {
                object: bound.object(),
                result,
                now: Vec::new(),
                after: at.placed().to_vec(),
                leaves: Vec::new(),
                stays_on: Vec::new(),
                why: String::new(),
            }
        };
        row.now = bound.placed().to_vec();
        whys.dedup();
        row.why = whys.join("; ");
        row
    }

    fn add(&mut self, cluster: &str, taint: Taint) {
        self.changes.entry(cluster.to_owned()).or_default().push(taint);
    }
}

/// What would come of it.
#[derive(Debug)]
pub(super) struct Supposed {
    rows: Vec<Row>,
    outage: Option<Outage>,
    /// How many objects are concerned; there may be fewer rows.
    of: usize,
}

impl Supposed {
    /// For programs.
    pub(super) fn document(&self, wanted: &Wanted) -> Value {
        let taints: Vec<_> = wanted
            .changes
            .iter()
            .map(|(cluster, taints)| json!({"cluster": cluster, "taints": taints}))
            .collect();
        let Assumed { evictions, are_hubs, .. } = wanted.assumed;
        let assumed = json!({
            "failoverEvictionTimeoutSeconds": evictions.failover_after.as_secs(), "hubSettings": are_hubs,
        });
        let mut document = json!({
            "changes": taints, "assumed": assumed, "brake": self.outage, "objects": self.rows,
        });
        if !wanted.drained.is_empty() {
            document["drained"] = json!(wanted.drained);
        }
        if self.of > self.rows.len() {
            document["of"] = json!(self.of);
        }
        document
    }
}

/// What would become of the objects that a change concerns, of `most` at most.
pub(super) async fn look(
    server: &Server,
    wanted: &Wanted,
    namespace: Option<&str>,
    most: usize,
) -> Result<Supposed, Failure> {
    let changes = &wanted.changes;
    let clusters = known::clusters(server).await?;
    known::check_names(&clusters, changes.keys())?;
    let before = Fleet::of(clusters.into_values());
    let (mut groups, mut concerned, mut coming) = (Groups::default(), Vec::new(), Coming::default());
    let mut of = 0;
    // All of them: what others have on their way takes room.
    placed::each_binding(server, None, |bound| {
        coming.note(&bound, server.now());
        if namespace.is_some_and(|namespace| namespace != bound.key.key.namespace) {
            return;
        }
        groups.note(&bound);
        if bound.placed().iter().any(|target| changes.contains_key(&target.name)) {
            of += 1;
            if concerned.len() < most {
                concerned.push(bound);
            }
        }
    })
    .await?;
    let changed = suppose::changed(&before, changes);
    let fleet = coming.off(&changed);
    let row = |bound: &Bound| wanted.row(bound, &groups, &changed, &fleet);
    let outage = outage(&before, changes, &wanted.assumed.brake);
    Ok(Supposed { rows: concerned.iter().map(row).collect(), outage, of })
}

/// What would be otherwise, by the arguments.
fn wanted(args: &WhatIfArgs) -> Result<Wanted, String> {
    let mut wanted = Wanted::of(&args.lose, &args.drain, &args.cordon);
    for text in &args.taint {
        let bad = || format!("--taint {text:?} is not CLUSTER=key:Effect or CLUSTER=key=value:Effect");
        let (cluster, taint) = text.split_once('=').ok_or_else(bad)?;
        match Edit::parse(taint)? {
            Edit::Add { key, value, effect } => {
                wanted.add(cluster, Taint { value, ..Taint::new(key, effect) })
            }
            Edit::Remove { .. } => return Err(bad()),
        }
    }
    if wanted.is_empty() {
        return Err("say what would be otherwise: --lose, --drain, --taint or --cordon".to_owned());
    }
    Ok(wanted)
}

/// The brake that a hub would put on, since too many clusters would be lost at once.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Outage {
    lost: usize,
    of: usize,
    /// Evictions go on after this time, whoever is back by then. Zero: not before some are back.
    at_most_seconds: u64,
}

/// Whether taints say that a cluster is not heard of.
fn is_lost(taints: &[Taint]) -> bool {
    taints.iter().any(|taint| taint.key == UNREACHABLE)
}

/// Whether too many clusters would be lost at once. What is lost already does not vanish again.
fn outage(before: &Fleet, changes: &Changes, settings: &brake::Settings) -> Option<Outage> {
    let of = before.members().len();
    let vanishes = |(name, taints): &(&String, &Vec<Taint>)| {
        is_lost(taints) && before.get(name).is_some_and(|member| !is_lost(&member.cluster().spec.taints))
    };
    let lost = changes.iter().filter(vanishes).count();
    let at_most_seconds = settings.timeout.as_secs();
    settings.is_outage(lost, of).then_some(Outage { lost, of, at_most_seconds })
}

impl Outage {
    fn text(&self) -> String {
        let settings = brake::Settings::default();
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        format!(
            "{} of {} clusters ({}) at once would put on the brake on mass outages: what is to leave lost clusters is \
             held until some are back, or for {} at most. That is by its default settings: more than {}, and {} \
             clusters at least (--eviction-brake-share, --eviction-brake-clusters, --eviction-brake-timeout).\n\n",
            self.lost,
            self.of,
            // Counts of clusters are far below what a float holds exactly.
            percent(self.lost as f64 / self.of as f64),
            duration::format(Duration::from_secs(self.at_most_seconds)),
            percent(settings.share),
            settings.least,
        )
    }
}

/// What would become of one object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    object: String,
    /// moves, short, lost, stays, follows, or stuck where a drain would leave it.
    result: &'static str,
    now: Vec<TargetCluster>,
    #[serde(rename = "then")]
    after: Vec<TargetCluster>,
    leaves: Vec<Leave>,
    /// The lost clusters on which it would stay as it is, since no others can take all that is there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stays_on: Vec<String>,
    /// Why not all of it finds a place, or why it stays.
    #[serde(skip_serializing_if = "String::is_empty")]
    why: String,
}

/// A cluster that it would leave.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Leave {
    cluster: String,
    after_seconds: u64,
    /// Whether it is lost, and no user's taint is the cause.
    #[serde(skip)]
    lost: bool,
    /// Whether that needs a hub that fails over clusters for every object, since the policy does not ask for it.
    needs_hub_setting: bool,
    purge_mode: String,
}

/// What comes of an object, the best first.
const RESULTS: [(&str, &str); 6] = [
    ("follows", "follow others"),
    ("stays", "would stay"),
    ("moves", "would move"),
    ("short", "would be short"),
    ("stuck", "cannot move"),
    ("lost", "would be nowhere"),
];

/// Of two things that come of one object that which somebody has to know.
fn worse(one: &'static str, other: &'static str) -> &'static str {
    let rank = |result| RESULTS.iter().position(|(name, _)| *name == result);
    if rank(one) >= rank(other) { one } else { other }
}

fn suppose(bound: &Bound, groups: &Groups, fleet: &Fleet, changes: &Changes, assumed: &Assumed) -> Row {
    let row = |result, after: Vec<TargetCluster>, leaves: &[Leaving], why: String| Row {
        object: bound.object(),
        result,
        now: bound.placed().to_vec(),
        after,
        leaves: leaves.iter().map(|leaving| Leave::of(leaving, bound, assumed)).collect(),
        stays_on: Vec::new(),
        why,
    };
    let as_it_is = |result, why: &str| row(result, bound.placed().to_vec(), &[], why.to_owned());
    if bound.spec.placement.is_none() {
        return as_it_is("follows", "it goes where what refers to it goes");
    }
    let leaving = suppose::leaving(&bound.spec, bound.fenced, fleet, &assumed.evictions);
    if leaving.is_empty() {
        let tainted =
            changes.values().flatten().all(|taint| taint.effect == NO_SCHEDULE && taint.key != UNREACHABLE);
        return as_it_is(
            "stays",
            if tainted { "the taint keeps new objects away alone" } else { "it tolerates the taint" },
        );
    }
    let peers = groups.peers_of(bound);
    let Departed { moved, leaves, kept } =
        suppose::depart(&bound.request(&bound.spec, fleet, &peers), leaving);
    let mut row = match moved {
        Moved::Stays => as_it_is("stays", ""),
        Moved::To(after) => row("moves", after, &leaves, String::new()),
        Moved::Short { clusters, left, why } => {
            let result = if clusters.is_empty() { "lost" } else { "short" };
            let why = match left {
                Some(Left::Replicas(left)) => {
                    format!("{left} of {} replicas have no place: {why}", bound.spec.replicas)
                }
                Some(Left::Clusters(_)) | None => why,
            };
            row(result, clusters, &leaves, why)
        }
    };
    let stays = kept.iter().map(|(cluster, why)| {
        if leaves.is_empty() && kept.len() == 1 { why.clone() } else { format!("stays on {cluster}: {why}") }
    });
    let whys: Vec<_> = [row.why].into_iter().filter(|why| !why.is_empty()).chain(stays).collect();
    row.why = whys.join("; ");
    row.stays_on = kept.into_iter().map(|(cluster, _)| cluster).collect();
    row
}

impl Leave {
    fn of(leaving: &Leaving, bound: &Bound, assumed: &Assumed) -> Self {
        let lost = leaving.cause == Cause::Failover;
        Self {
            cluster: leaving.cluster.clone(),
            after_seconds: leaving.after.as_secs(),
            lost,
            needs_hub_setting: lost && !assumed.evictions.cluster_failover && !asks_for_failover(&bound.spec),
            purge_mode: leaving.purge_mode.to_string(),
        }
    }

    fn text(&self) -> String {
        let when = match self.after_seconds {
            0 => "at once".to_owned(),
            seconds => format!("after {}", human_duration(Duration::from_secs(seconds))),
        };
        if self.needs_hub_setting { format!("{when}, with --enable-cluster-failover") } else { when }
    }
}

/// For people: a table, and what it amounts to.
fn text(rows: &[Row], changes: &Changes, outage: Option<&Outage>) -> String {
    let clusters: Vec<_> = changes.keys().map(String::as_str).collect();
    if rows.is_empty() {
        return format!("Nothing is on {}.\n", clusters.join(", "));
    }
    let mut lines = vec![["OBJECT", "RESULT", "NOW", "THEN", "WHEN", "WHY"].map(str::to_owned).to_vec()];
    lines.extend(rows.iter().map(|row| {
        let when = row.leaves.first().map(Leave::text).unwrap_or_default();
        vec![
            row.object.clone(),
            row.result.to_owned(),
            places(&row.now),
            places(&row.after),
            when,
            row.why.clone(),
        ]
    }));
    let leaves = || rows.iter().flat_map(|row| &row.leaves);
    let leaves_lost = leaves().any(|leave| changes.get(&leave.cluster).is_some_and(|taints| is_lost(taints)));
    let mut text = outage.filter(|_| leaves_lost).map(Outage::text).unwrap_or_default();
    text.push_str(&align(&lines, &mut Vec::new()));
    let count = |result: &str| rows.iter().filter(|row| row.result == result).count();
    // As people read them: what moves first.
    let order = ["moves", "short", "lost", "stays", "stuck", "follows"];
    let words = |result| RESULTS.iter().find(|(name, _)| *name == result).map_or("", |(_, words)| *words);
    let parts: Vec<_> = order
        .iter()
        .map(|result| (count(result), words(*result)))
        .filter(|(count, _)| *count > 0)
        .map(|(count, words)| format!("{count} {words}"))
        .collect();
    text.push_str(&format!(
        "\nOf {} objects on {}: {}. Nothing was changed.\n",
        rows.len(),
        clusters.join(", "),
        parts.join(", ")
    ));
    if leaves().any(|leave| leave.lost) {
        text.push_str(&format!(
            "Lost clusters are left after the time that the policy tolerates it, or else after --failover-eviction-timeout, \
             taken here as its default, {}: the hub's own flags are not known to this command.\n",
            human_duration(Settings::default().failover_after)
        ));
    }
    if leaves().any(|leave| leave.needs_hub_setting) {
        text.push_str(
            "Without `--enable-cluster-failover` on the hub, or spec.failover.cluster in the policy, what is on a lost \
             cluster stays there and waits for it.\n",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use karmada_api::cluster::Cluster;
    use karmada_objects::scope::Scope;
    use serde_json::Value;

    use super::*;
    use crate::args::{Args, Command};

    fn args(line: &str) -> WhatIfArgs {
        match Args::try_parse_from(line.split_whitespace()).unwrap().command {
            Command::WhatIf(args) => args,
            other => panic!("{other:?}"),
        }
    }

    /// One that takes Deployments.
    fn cluster(name: &str) -> Cluster {
        serde_json::from_value(json!({
            "metadata": {"name": name}, "spec": {"syncMode": "Pull"},
            "status": {"apiEnablements": [
                {"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]},
            ]},
        }))
        .unwrap()
    }

    #[test]
    fn changes_are_read() {
        let taints = |line: &str| {
            wanted(&args(line)).map(|wanted| wanted.changes).map(|changes| {
                let each = changes.iter().map(|(cluster, taints)| {
                    let taints: Vec<_> = taints.iter().map(karmada_core::taints::display).collect();
                    format!("{cluster}[{}]", taints.join(" "))
                });
                each.collect::<Vec<_>>().join(" ")
            })
        };
        let table = [
            (
                "h what-if --lose a,b",
                Ok(
                    "a[cluster.karmada.io/unreachable:NoSchedule] b[cluster.karmada.io/unreachable:NoSchedule]",
                ),
            ),
            ("h what-if --taint a=k:NoExecute --taint a=x=y:NoSchedule", Ok("a[k:NoExecute x=y:NoSchedule]")),
            ("h what-if --cordon a", Ok("a[cluster.karmada.io/unschedulable:NoSchedule]")),
            ("h what-if --drain a", Ok("a[cluster.karmada.io/unschedulable:NoSchedule]")),
            ("h what-if", Err("--lose")),
            ("h what-if --taint a", Err("CLUSTER=key:Effect")),
            ("h what-if --taint a=k:NoExecute-", Err("CLUSTER=key:Effect")),
        ];
        for (line, want) in table {
            match (taints(line), want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want, "{line}"),
                (Err(got), Err(want)) => assert!(got.contains(want), "{line}: {got}"),
                (got, want) => panic!("{line}: {got:?}, not {want:?}"),
            }
        }
    }

    #[test]
    fn rows_for_people() {
        let bound = |name: &str, clusters: Value, extra: Value| {
            let mut spec = json!({
                "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": name, "uid": "u"},
                "replicas": 2, "clusters": clusters, "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}},
            });
            for (key, value) in extra.as_object().unwrap() {
                spec[key] = value.clone();
            }
            let binding = json!({"metadata": {"namespace": "shop", "name": name}, "spec": spec});
            Bound::read(Scope::Namespaced, &binding).map_err(|_| "unreadable").unwrap()
        };
        let before = Fleet::of([cluster("a"), cluster("b")]);
        let at = |name: &str, replicas: i32| json!({"name": name, "replicas": replicas});
        let bounds = [
            bound(
                "web",
                json!([at("a", 1), at("b", 1)]),
                json!({"failover": {"cluster": {"purgeMode": "Gracefully"}}}),
            ),
            bound("free", json!([at("a", 2)]), json!({})),
            bound(
                "api",
                json!([at("a", 2)]),
                json!({"placement": {"clusterAffinity": {"clusterNames": ["a"]}}}),
            ),
            bound(
                "tied",
                json!([at("a", 2)]),
                json!({"placement": {"clusterTolerations": [{"operator": "Exists"}]}}),
            ),
        ];
        let rows = |line: &str| {
            let changes = wanted(&args(line)).unwrap().changes;
            let fleet = suppose::changed(&before, &changes);
            let row = |bound| suppose(bound, &Groups::default(), &fleet, &changes, &Assumed::default());
            let rows: Vec<_> = bounds.iter().map(row).collect();
            (text(&rows, &changes, None), rows, changes)
        };
        let (got, lost, changes) = rows("h what-if --lose a");
        for part in [
            "Deployment shop/web    moves    a:1, b:1   b:2    after 5m",
            "Deployment shop/free   moves    a:2        b:2    after 5m, with --enable-cluster-failover",
            "Deployment shop/tied   stays    a:2        a:2",
            "no other cluster can take it: b: no, it is not named",
            "Of 4 objects on a: 2 would move, 2 would stay. Nothing was changed.",
            "--failover-eviction-timeout, taken here as its default, 5m:",
        ] {
            assert!(got.contains(part), "{part}\n{got}");
        }
        assert_eq!(json!(lost)[0]["then"], json!([at("b", 2)]));
        let stays = &json!(lost)[2];
        assert_eq!((&stays["result"], &stays["then"]), (&json!("stays"), &json!([at("a", 2)])));
        assert_eq!((&stays["leaves"], &stays["staysOn"]), (&json!([]), &json!(["a"])));
        assert_eq!(text(&[], &changes, None), "Nothing is on a.\n");

        let (got, ..) = rows("h what-if --taint a=k:NoExecute");
        for part in [
            "Deployment shop/api    lost     a:2        nowhere   at once",
            "Of 4 objects on a: 2 would move, 1 would be nowhere, 1 would stay. Nothing was changed.",
        ] {
            assert!(got.contains(part), "{part}\n{got}");
        }
        assert!(!got.contains("failover"), "no word of lost clusters: {got}");

        let brake = Outage { lost: 4, of: 10, at_most_seconds: 3600 };
        let got = text(&lost, &changes, Some(&brake));
        assert!(
            got.starts_with("4 of 10 clusters (40 %) at once would put on the brake")
                && got.contains("or for 1h0m0s at most.")
                && got.contains("more than 30 %, and 3 clusters at least")
                && got.contains("2 would move"),
            "{got}"
        );
        let got = text(&lost[3..], &changes, Some(&brake));
        assert!(got.starts_with("OBJECT"), "what stays is not held: {got}");
    }

    #[test]
    fn drains_and_losses_add_up() {
        let at = |name: &str, replicas: i32| json!({"name": name, "replicas": replicas});
        let binding = json!({"metadata": {"namespace": "shop", "name": "web"}, "spec": {
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web", "uid": "u"},
            "replicas": 3, "clusters": [at("a", 1), at("b", 1), at("c", 1)],
            "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}},
        }});
        let bound = Bound::read(Scope::Namespaced, &binding).map_err(|_| "unreadable").unwrap();
        let before = Fleet::of(["a", "b", "c", "d"].map(cluster));
        for (line, result, after, left) in [
            ("h what-if --drain a", "moves", 3, &["a"][..]),
            ("h what-if --drain a,b", "moves", 3, &["a", "b"]),
            ("h what-if --drain a --lose b", "moves", 3, &["a", "b"]),
            ("h what-if --drain a,d", "moves", 3, &["a", "d"]),
            ("h what-if --drain a,b,c,d", "stuck", 3, &["d"]),
            ("h what-if --drain a --lose a", "moves", 3, &["a"]),
        ] {
            let wanted = wanted(&args(line)).unwrap();
            let fleet = suppose::changed(&before, &wanted.changes);
            let row = wanted.row(&bound, &Groups::default(), &fleet, &fleet);
            let total: i32 = row.after.iter().map(|target| target.replicas).sum();
            assert_eq!((row.result, total), (result, after), "{line}: {row:?}");
            let is_left = row.after.iter().all(|target| !left.contains(&target.name.as_str()));
            assert!(is_left && row.now.len() == 3, "{line}: {row:?}");
        }
    }

    #[test]
    fn the_brake_is_foretold() {
        let table = [
            (10, "h what-if --lose m0,m1,m2,m3", Some(4)),
            (10, "h what-if --lose m0,m1,m2", None),
            (5, "h what-if --lose m0,m1", None),
            (5, "h what-if --lose m0,m1,m2", Some(3)),
            (5, "h what-if --lose m0,m1 --cordon m2 --taint m3=k:NoExecute", None),
            (5, "h what-if --lose m0,m1 --taint m2=cluster.karmada.io/unreachable:NoSchedule", Some(3)),
            // It was lost before.
            (5, "h what-if --lose m0,m1,m4", None),
        ];
        for (clusters, line, want) in table {
            let fleet = Fleet::of((0..clusters).map(|n| {
                let taints = if n == 4 { vec![Taint::new(UNREACHABLE, NO_SCHEDULE)] } else { Vec::new() };
                let cluster = json!({
                    "metadata": {"name": format!("m{n}")}, "spec": {"syncMode": "Pull", "taints": taints},
                });
                serde_json::from_value(cluster).unwrap()
            }));
            let changes = wanted(&args(line)).unwrap().changes;
            let got = outage(&fleet, &changes, &brake::Settings::default());
            assert_eq!(got.map(|outage| outage.lost), want, "{line}");
            // A hub that brakes earlier says so.
            let early = brake::Settings { least: 1, share: 0.0, ..brake::Settings::default() };
            assert!(outage(&fleet, &changes, &early).is_some(), "{line}");
        }
    }

    #[test]
    fn a_hubs_own_settings_count_where_they_are_known() {
        let binding = json!({"metadata": {"namespace": "shop", "name": "web"}, "spec": {
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web", "uid": "u"},
            "replicas": 2, "clusters": [{"name": "a", "replicas": 2}],
            "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}},
        }});
        let bound = Bound::read(Scope::Namespaced, &binding).map_err(|_| "unreadable").unwrap();
        let before = Fleet::of(["a", "b"].map(cluster));
        let own = Settings {
            cluster_failover: true,
            failover_after: Duration::from_secs(30),
            ..Settings::default()
        };
        for (assumed, after, needs) in
            [(Assumed::default(), 300, true), (Assumed::of_hub(own, brake::Settings::default()), 30, false)]
        {
            let wanted = Wanted::of(&["a".to_owned()], &[], &[]).by(assumed);
            let fleet = suppose::changed(&before, &wanted.changes);
            let row = wanted.row(&bound, &Groups::default(), &fleet, &fleet);
            let leave = row.leaves.first().expect("it leaves a");
            assert_eq!((leave.after_seconds, leave.needs_hub_setting), (after, needs));
            let supposed = Supposed { rows: vec![row], outage: None, of: 1 };
            let told = supposed.document(&wanted)["assumed"].clone();
            assert_eq!(told, json!({"failoverEvictionTimeoutSeconds": after, "hubSettings": !needs}));
        }
    }
}
