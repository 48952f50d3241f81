use karmada_api::{conditions, consts::extension};

use super::*;

/// A fleet whose clusters renew every ten seconds unless they are silent, judged so often as its settings say.
struct Fleet {
    judge: Judge,
    now: u64,
    clusters: Vec<Member>,
    watching: bool,
    period: u64,
    expired: Vec<(u64, String)>,
    conflicts: Vec<(u64, String, grace::Grace)>,
}

struct Member {
    name: String,
    ready: Ready,
    silent: bool,
    grace: Option<String>,
    lease: Option<u64>,
    lost_since: Option<Time>,
    history: Option<String>,
    held: Option<Time>,
    windows: Option<&'static str>,
}

fn at(seconds: u64) -> Moment {
    Moment { monotonic: Duration::from_secs(seconds), wall: Duration::from_secs(1_767_225_600 + seconds) }
}

impl Fleet {
    fn new(clusters: usize, settings: Settings) -> Self {
        let member = |n| Member {
            name: format!("m{n}"),
            ready: Ready::True,
            silent: false,
            grace: None,
            lease: None,
            lost_since: None,
            history: None,
            held: None,
            windows: None,
        };
        Self {
            judge: Judge::new(settings, at(0)),
            period: settings.health.period.as_secs(),
            now: 0,
            clusters: (0..clusters).map(member).collect(),
            watching: true,
            expired: Vec::new(),
            conflicts: Vec::new(),
        }
    }

    /// Goes on until then; what expires becomes Unknown, what renews becomes True.
    fn until(&mut self, end: u64) {
        while self.now < end {
            self.now += 1;
            let now = self.now;
            if now.is_multiple_of(10) {
                for member in self.clusters.iter_mut().filter(|member| !member.silent) {
                    self.judge.renewed(&member.name, &format!("t{now}"), at(now));
                    member.ready = Ready::True;
                }
            }
            if now.is_multiple_of(self.period) {
                let clusters = self.clusters.iter().map(|member| Cluster {
                    name: &member.name,
                    ready: member.ready,
                    grace: grace::Said {
                        annotation: member.grace.as_deref(),
                        lease: member.lease.map(Duration::from_secs),
                    },
                    lost_since: member.lost_since,
                    history: member.history.as_deref(),
                    held: member.held,
                    windows: member.windows,
                });
                let verdict = self.judge.tick(at(now), self.watching, clusters, []);
                self.conflicts.extend(verdict.conflicts.into_iter().map(|(name, grace)| (now, name, grace)));
                for (name, _) in verdict.expired {
                    self.clusters
                        .iter_mut()
                        .filter(|m| m.name == name)
                        .for_each(|m| m.ready = Ready::Unknown);
                    self.expired.push((now, name));
                }
            }
        }
    }

    fn silence(&mut self, count: usize, silent: bool) {
        for member in self.clusters.iter_mut().take(count) {
            member.silent = silent;
        }
    }

    /// The first clusters are silent for so long.
    fn away(&mut self, count: usize, length: u64) {
        self.silence(count, true);
        self.until(self.now + length);
        self.silence(count, false);
        self.until(self.now + 10);
    }

    fn opinion(&self) -> Opinion {
        self.judge.opinion("m0", self.clusters[0].ready, at(self.now))
    }
}

#[test]
fn a_silence_that_is_usual_stops_to_count_as_a_loss() {
    let mut fleet = Fleet::new(10, Settings::default());
    fleet.until(100);
    for _ in 0..3 {
        fleet.away(1, 60);
        fleet.until(fleet.now + 3000);
    }
    assert_eq!(fleet.expired.len(), 3);
    for _ in 0..3 {
        fleet.away(1, 90);
        fleet.until(fleet.now + 3000);
    }
    assert_eq!(fleet.expired.len(), 3, "it is used to more than a minute");
    let shown = fleet.opinion();
    assert_eq!(shown.grace.unwrap().source.reason(), Some("GraceLearnt"));
    assert!(!shown.stale);
}

#[test]
fn any_grace_is_found_within_a_period() {
    for (grace, annotation) in [(40, None), (15, None), (120, None), (40, Some("90s")), (40, Some("13s"))] {
        let settings = Settings {
            health: health::Settings { grace: Duration::from_secs(grace), ..health::Settings::default() },
            ..Settings::default()
        };
        let mut fleet = Fleet::new(10, settings);
        fleet.clusters[0].grace = annotation.map(str::to_owned);
        fleet.until(300);
        let length = fleet.opinion().grace.unwrap().length.as_secs();
        // A grace that heartbeats hardly reach is learnt to be too short.
        let wanted =
            annotation.map_or_else(|| grace.max(20), |text| text.trim_end_matches('s').parse().unwrap());
        assert_eq!(length, wanted);
        fleet.silence(1, true);
        fleet.until(700);
        let [(found, _)] = fleet.expired.as_slice() else { panic!("{:?}", fleet.expired) };
        let after = found - 300;
        assert!((length..=length + 5).contains(&after), "{annotation:?} {grace}: {after}");
    }
}

#[test]
fn flapping_holds_out_and_is_written_down() {
    let mut fleet = Fleet::new(10, Settings::default());
    fleet.until(100);
    for _ in 0..2 {
        fleet.away(1, 60);
        fleet.until(fleet.now + 100);
    }
    assert_eq!(fleet.opinion().held_until, None);
    fleet.away(1, 60);
    fleet.until(fleet.now + 10);
    let until = fleet.opinion().held_until.expect("it is held out");
    let record = fleet.judge.record("m0", at(fleet.now)).unwrap().unwrap();
    assert_eq!((record.held_until, record.doublings), (Some(until), Some(1)));
    assert_eq!(fleet.judge.record("m0", at(fleet.now)), None, "written once");
    assert_eq!(fleet.judge.record("m5", at(fleet.now)), None, "of a good link nothing is written");

    // Another hub goes on with it.
    let mut next = Fleet::new(10, Settings::default());
    next.clusters[0].history = Some(serde_json::to_string(&record).unwrap());
    next.judge = Judge::new(Settings::default(), at(fleet.now));
    next.now = fleet.now;
    next.until(fleet.now + 20);
    assert_eq!(next.opinion().held_until, Some(until));
    assert_eq!(next.opinion().grace.unwrap().source.reason(), Some("GraceLearnt"));
    next.until(fleet.now + 400);
    assert_eq!(next.opinion().held_until, None);
}

#[test]
fn a_mass_outage_is_nobodys_loss_and_holds_evictions_before_the_first_is_lost() {
    let mut fleet = Fleet::new(10, Settings::default());
    fleet.until(100);
    assert_eq!(fleet.judge.held(), None);
    for _ in 0..3 {
        fleet.silence(5, true);
        let lost_before = fleet.expired.len();
        while fleet.judge.held().is_none() {
            fleet.until(fleet.now + 5);
        }
        assert_eq!(fleet.expired.len(), lost_before, "the brake comes first");
        fleet.until(fleet.now + 60);
        assert!(fleet.opinion().evictions_held && fleet.opinion().stale);
        fleet.silence(5, false);
        fleet.until(fleet.now + 30);
        assert_eq!(fleet.judge.held(), None);
    }
    assert_eq!(fleet.expired.len(), 15);
    assert_eq!(fleet.opinion().losses, 0);
    assert_eq!(fleet.opinion().held_until, None);
}

#[test]
fn the_hub_itself_may_have_been_away() {
    let mut fleet = Fleet::new(4, Settings::default());
    fleet.until(50);
    assert_eq!(fleet.judge.held().map(|held| held.cause), Some(brake::Cause::HubStarted));
    fleet.until(100);
    assert_eq!(fleet.judge.held(), None);
    fleet.watching = false;
    fleet.until(120);
    assert_eq!(fleet.judge.held().map(|held| held.cause), Some(brake::Cause::HubCutOff));
    fleet.watching = true;
    fleet.until(130);
    assert_eq!(fleet.judge.held().map(|held| held.cause), Some(brake::Cause::HubAway));
    fleet.until(200);
    assert_eq!(fleet.judge.held(), None);
    fleet.now += 100;
    fleet.until(fleet.now + 10);
    assert_eq!(fleet.judge.held().map(|held| held.cause), Some(brake::Cause::HubAway), "a late tick");
    let learnt = fleet.opinion().grace.unwrap().source.reason();
    assert_eq!(learnt, None, "what the hub missed was no silence");
}

#[test]
fn who_was_lost_before_the_hub_started_did_not_vanish() {
    let mut fleet = Fleet::new(10, Settings::default());
    fleet.silence(6, true);
    fleet.clusters.iter_mut().take(6).for_each(|member| member.ready = Ready::Unknown);
    fleet.until(200);
    assert_eq!(fleet.judge.held(), None);
    assert_eq!(fleet.opinion().heard, None);
    let mut fleet = Fleet::new(10, Settings::default());
    fleet.silence(6, true);
    fleet.until(200);
    assert_eq!(fleet.judge.held().map(|held| held.cause), Some(brake::Cause::MassOutage));
}

#[test]
fn an_outage_goes_on_under_the_next_hub() {
    let hub = |lost: usize, held: u64| {
        let mut fleet = Fleet::new(10, Settings::default());
        fleet.silence(lost, true);
        for member in fleet.clusters.iter_mut().take(lost) {
            member.ready = Ready::Unknown;
            let began = std::time::UNIX_EPOCH + at(0).wall - Duration::from_secs(held);
            member.held = Some(Time::from_system(began));
        }
        fleet.until(200);
        fleet
    };
    let held = |fleet: &Fleet| fleet.judge.held().map(|held| held.cause);
    let mass = Some(brake::Cause::MassOutage);
    let mut fleet = hub(5, 600);
    assert_eq!(held(&fleet), mass);
    assert!(fleet.opinion().evictions_held);
    fleet.until(2900);
    assert_eq!(held(&fleet), mass, "an hour less ten minutes");
    fleet.until(3100);
    assert_eq!(held(&fleet), None, "the operator's time is up");
    let mut fleet = hub(5, 600);
    for member in fleet.clusters.iter_mut().take(2) {
        member.silent = false;
    }
    fleet.until(300);
    assert_eq!(held(&fleet), None, "the share has fallen");
    assert_eq!(held(&hub(5, 4000)), None, "it was over already");
    assert_eq!(held(&hub(2, 600)), None, "so few are none");
}

#[test]
fn brakes_and_budgets_are_for_what_nobody_asked_for() {
    use evict::Cause::{Application, Failover, NoExecute};
    let mass = Some(brake::Cause::MassOutage);
    let started = Some(brake::Cause::HubStarted);
    // (why, the cluster reports, evictions are held, budget is left) → what stands against it
    let rows = [
        (NoExecute, true, mass, false, None),
        (NoExecute, true, started, false, None),
        (NoExecute, false, mass, true, Some("MassOutage")),
        (NoExecute, false, None, true, None),
        (NoExecute, false, None, false, Some("BindingBudget")),
        (Failover, false, mass, true, Some("MassOutage")),
        (Failover, true, None, false, Some("BindingBudget")),
        (Application, true, mass, true, None),
        (Application, true, started, true, Some("HubStarted")),
        (Application, true, None, false, Some("BindingBudget")),
    ];
    for (cause, reachable, held, left, want) in rows {
        let ask =
            Ask { binding: "b", cluster: "m", cause, reachable, replicas: 1, clusters: 1, under_way: 0 };
        let (settings, mut budgets) = (Settings::default(), budget::Budgets::default());
        let mut judge = Judge::new(settings, at(0));
        judge.held = held.map(|cause| brake::Held { cause, missing: 3, of: 5, until: None, pushed: false });
        if !left {
            for _ in 0..settings.budget.per_binding {
                budgets.spend("b", Duration::ZERO, &settings.budget);
            }
        }
        let got = stands_against(&judge, &ask, &mut budgets, 0);
        assert_eq!(got, want, "{cause:?} {reachable} {held:?} {left}");
    }
}

fn stands_against(
    judge: &Judge,
    ask: &Ask<'_>,
    budgets: &mut budget::Budgets,
    now: u64,
) -> Option<&'static str> {
    match judge.allow(ask, budgets, Duration::from_secs(now)) {
        Allowance::Granted => None,
        Allowance::Held { reason, .. } => Some(reason),
    }
}

/// A cluster's Lease comes before its report, and its taints go after that.
#[test]
fn who_is_heard_of_again_has_time_to_report() {
    let mut fleet = Fleet::new(10, Settings::default());
    let stands = |fleet: &Fleet, reachable| {
        let cause = evict::Cause::Failover;
        let ask =
            Ask { binding: "b", cluster: "m0", cause, reachable, replicas: 1, clusters: 1, under_way: 0 };
        stands_against(&fleet.judge, &ask, &mut budget::Budgets::default(), fleet.now)
    };
    // So that nothing is learnt.
    fleet.clusters[0].grace = Some("40s".to_owned());
    fleet.until(100);
    fleet.silence(1, true);
    fleet.until(300);
    assert_eq!(stands(&fleet, false), None, "lost");
    let heard = |fleet: &mut Fleet, at_second: u64| {
        fleet.until(at_second);
        fleet.judge.renewed("m0", &format!("r{at_second}"), at(at_second));
    };
    heard(&mut fleet, 301);
    assert_eq!(stands(&fleet, false), Some("ClusterReturned"));
    assert_eq!(stands(&fleet, true), None, "it reports, and is not ready");
    heard(&mut fleet, 330);
    assert_eq!(stands(&fleet, false), Some("ClusterReturned"));
    heard(&mut fleet, 361);
    assert_eq!(stands(&fleet, false), None, "it renews, and does not report");
    fleet.until(500);
    heard(&mut fleet, 501);
    assert_eq!(stands(&fleet, false), Some("ClusterReturned"), "the next time");
    fleet.until(545);
    assert_eq!(stands(&fleet, false), None, "it is gone again");
    fleet.silence(1, false);
    fleet.until(560);
    fleet.silence(1, true);
    fleet.until(700);
    assert_eq!(stands(&fleet, false), None, "lost again");
}

/// A watch that stands still without being broken: each time the Lease is asked for and found renewed.
#[test]
fn what_the_watch_did_not_tell_is_no_loss() {
    let mut fleet = Fleet::new(2, Settings::default());
    fleet.until(100);
    for round in 0..5 {
        fleet.silence(1, true);
        while fleet.expired.len() == round {
            fleet.until(fleet.now + 1);
        }
        fleet.clusters[0].ready = Ready::True;
        fleet.judge.found_renewed("m0", &format!("asked{round}"), at(fleet.now));
    }
    fleet.silence(1, false);
    fleet.until(fleet.now + 60);
    let shown = fleet.opinion();
    assert_eq!((shown.losses, shown.held_until), (0, None));
    assert_eq!(shown.grace.unwrap().length, Settings::default().health.grace, "nothing is learnt from it");
}

/// The hub's grace is shorter than the pause between two renewals.
#[test]
fn an_agent_that_keeps_its_word_is_not_lost_for_the_hubs_impatience() {
    let health = health::Settings {
        period: Duration::from_secs(1),
        grace: Duration::from_secs(8),
        startup_grace: Duration::from_secs(8),
    };
    let settings = Settings { health, most_grace: health.grace, ..Settings::default() };
    let mut fleet = Fleet::new(2, settings);
    fleet.until(100);
    assert!(
        fleet.expired.len() > 2,
        "of an agent that promises nothing, the hub's word is all: {:?}",
        fleet.expired
    );

    let mut fleet = Fleet::new(2, settings);
    fleet.clusters.iter_mut().for_each(|member| member.lease = Some(40));
    fleet.until(7200);
    assert_eq!(fleet.expired, [], "both renew every ten seconds, as their Leases promise");
    let said: Vec<_> = fleet.conflicts.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(said, ["m0", "m1"], "of each cluster once, not per look");
    let shown = fleet.opinion().grace.unwrap();
    assert_eq!((shown.length, shown.reason()), (Duration::from_secs(40), Some("GraceRaised")));
    fleet.silence(1, true);
    fleet.until(7300);
    let found: Vec<_> = fleet.expired.iter().map(|(at, _)| *at).collect();
    assert!(matches!(found[..], [7240..=7250]), "when its Lease is over, and not before: {found:?}");
}

/// A credential in the wrong hands: the hub is not blind for longer than it honours, nor its log full.
#[test]
fn a_lease_of_ten_years_hides_no_loss() {
    let mut fleet = Fleet::new(10, Settings::default());
    fleet.clusters[0].lease = Some(10 * 365 * 86_400);
    fleet.until(100);
    assert_eq!(fleet.opinion().grace.unwrap().reason(), Some("LeaseTooLong"));
    fleet.silence(1, true);
    fleet.until(1000);
    assert!(matches!(fleet.expired[..], [(700..=710, _)]), "{:?}", fleet.expired);

    let mut fleet = Fleet::new(2, Settings::default());
    for round in 0..4_u64 {
        for lease in [41, 50, 601, u64::MAX, 42, 0] {
            fleet.clusters[0].lease = Some(lease);
            fleet.until(fleet.now + 300);
        }
        let said: Vec<_> = fleet.conflicts.iter().map(|(at, _, grace)| (*at, grace.reason())).collect();
        assert!(said.len() as u64 <= 1 + fleet.now / 3600, "round {round}: {said:?}");
    }
    fleet.clusters[0].lease = Some(40);
    fleet.until(fleet.now + 7200);
    fleet.conflicts.clear();
    fleet.clusters[0].lease = Some(60);
    fleet.until(fleet.now + 7200);
    assert_eq!(fleet.conflicts.len(), 1, "what was mended and comes back is news");
}

#[test]
fn silence_at_times_at_which_no_link_is_to_be_there_is_no_loss() {
    // The clocks start at midnight, UTC.
    let hour = 3600;
    let mut fleet = Fleet::new(12, Settings::default());
    for member in &mut fleet.clusters {
        member.windows = Some("02:00-04:00");
    }
    fleet.clusters[11].windows = Some("at night");
    fleet.until(60);
    fleet.clusters.iter_mut().for_each(|member| member.silent = true);
    fleet.until(2 * hour - 1);
    // Nothing can be read of the last one's times: it is lost as any.
    let lost = |fleet: &Fleet| {
        fleet
            .clusters
            .iter()
            .filter(|member| member.ready == Ready::Unknown)
            .map(|m| m.name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(lost(&fleet), ["m11"]);
    // Then they have as long as any cluster has, from the beginning of the window on.
    for member in &mut fleet.clusters[1..11] {
        member.silent = false;
    }
    fleet.until(2 * hour + 35);
    assert_eq!(lost(&fleet), ["m11"]);
    fleet.until(2 * hour + 60);
    assert_eq!(lost(&fleet), ["m0", "m11"]);
    let said = |name: &str| {
        let mut list = Vec::new();
        fleet
            .judge
            .opinion(name, Ready::True, at(fleet.now))
            .show(&mut list, Time::from_system(std::time::UNIX_EPOCH));
        let found = conditions::find(&list, extension::LINK_SCHEDULED);
        found.map(|condition| (condition.reason.clone(), condition.message.clone())).unwrap_or_default()
    };
    assert_eq!(
        said("m1"),
        (
            "LinkWindows".to_owned(),
            "its link is there 02:00-04:00; at other times its silence is no loss".to_owned()
        )
    );
    assert!(
        said("m11").0 == "LinkWindowsInvalid" && said("m11").1.contains("cluster.karmada.io/link-windows")
    );
}
