//! Waves of which only so many clusters may be changing at once.

use super::*;

#[test]
fn so_many_of_a_wave_change_at_once() {
    let mut fleet = Fleet::new(40, "10% soak=0; 100% soak=0 maxConcurrency=3", "deadline=10m");
    fleet.change("two");
    fleet.run(2, 10, well);
    assert_eq!((fleet.having("two"), fleet.state.open), (4, 1), "{}", fleet.said());
    fleet.run(1, 10, well);
    let changing = |fleet: &Fleet| {
        fleet.clusters.iter().filter(|c| c.has.as_deref() == Some("two") && c.seen != Seen::Well).count()
    };
    // They take their time, but not more than they have.
    fleet.run(5, 60, |_| Seen::Unwell);
    assert_eq!(fleet.having("two"), 4 + 3, "{}", fleet.said());
    assert!(fleet.said().contains("33 waiting for others of their wave"), "{}", fleet.said());
    // Those of the wave before say the same, and are well again.
    fleet.clusters.iter_mut().filter(|c| c.has.as_deref() == Some("two")).for_each(|c| c.seen = Seen::Well);
    let mut looks = 0;
    while fleet.state.phase == Phase::Running && looks < 100 {
        fleet.look(well);
        fleet.now += 300;
        looks += 1;
        assert!(changing(&fleet) <= 3, "{}", fleet.said());
    }
    // That is longer than the deadline: each has its own from its own turn on.
    assert!((12..100).contains(&looks), "{looks}");
    assert_eq!((fleet.state.phase, fleet.having("two")), (Phase::Complete, 40), "{}", fleet.said());
}

#[test]
fn a_wave_with_room_for_some_is_not_kept_by_those_that_say_nothing() {
    let mut fleet = Fleet::new(20, "100% soak=0 maxConcurrency=2", "maxFailures=20 deadline=10m");
    let order: Vec<usize> = {
        let mut all: Vec<usize> = (0..20).collect();
        all.sort_by_key(|at| Place::of("seed", &fleet.clusters[*at].name));
        all
    };
    // The first ones in their order are away, the next hold it back, one never becomes well, and one says nothing.
    for at in &order[..2] {
        fleet.clusters[*at].silent = Some(self::at(-100));
    }
    fleet.change("two");
    fleet.run(2, 10, well);
    for at in &order[2..4] {
        assert_eq!(fleet.clusters[*at].has.as_deref(), Some("two"), "{}", fleet.said());
        fleet.clusters[*at].seen = Seen::Held;
    }
    let (sick, dumb) = (order[4], order[5]);
    fleet.run(40, 60, |at| match at {
        _ if at == sick => Seen::Unwell,
        _ if at == dumb => Seen::Unsaid,
        _ => Seen::Well,
    });
    assert_eq!((fleet.having("two"), fleet.state.phase), (20, Phase::Complete), "{}", fleet.said());
    assert_eq!(words::reason(&fleet.state), "CompleteExceptSilent");
}

#[test]
fn who_waits_for_others_of_its_wave_is_told_so_and_waits_while_it_is_stopped() {
    let mut fleet = Fleet::new(10, "100% maxConcurrency=1", "");
    fleet.change("two");
    fleet.run(2, 10, |_| Seen::Unsaid);
    let reached = |fleet: &Fleet| {
        let names = fleet.clusters.iter().map(|c| fleet.state.reaches(0, &c.name));
        names.filter(|reached| *reached).count()
    };
    assert_eq!(reached(&fleet), 1);
    let told = words::of_wave(&fleet.state, 0, false);
    assert_eq!(
        told,
        "wave 1 of 1 (100%) has begun, and changes 1 cluster at once: it waits for others of that wave"
    );
    assert_eq!(words::of_wave(&fleet.state, 0, true), "wave 1 of 1 (100%) has begun");
    fleet.command(Command::Pause).unwrap();
    fleet.run(10, 60, well);
    assert_eq!((fleet.having("two"), reached(&fleet)), (1, 1));
    fleet.command(Command::Resume).unwrap();
    fleet.run(3, 10, well);
    assert!(fleet.having("two") > 1, "{}", fleet.said());
    // What begins anew begins with the first one.
    fleet.command(Command::Abort).unwrap();
    fleet.command(Command::Resume).unwrap();
    assert!(fleet.state.waves[0].reach.is_none());
}

/// Gives every cluster that has just got the change this, as soon as it has it.
fn on_receipt(fleet: &mut Fleet, looks: usize, seconds: i64, does: impl Fn(&mut Cluster, i64)) {
    for _ in 0..looks {
        let given = fleet.look(well);
        let now = fleet.now;
        fleet.clusters.iter_mut().filter(|cluster| given.contains(&cluster.name)).for_each(|c| does(c, now));
        fleet.now += seconds;
    }
}

#[test]
fn what_cuts_the_links_of_those_that_have_it_goes_no_further() {
    // When they were heard last: some seconds before they were given it, or after.
    for heard in [-9, 0, 20] {
        let mut fleet = Fleet::new(100, "100% maxConcurrency=5", "");
        fleet.change("two");
        on_receipt(&mut fleet, 100, 30, |cluster, now| cluster.silent = Some(at(now + heard)));
        assert_eq!(fleet.state.phase, Phase::Breached, "{heard}: {}", fleet.said());
        assert!(fleet.having("two") <= 10, "{heard}: {}", fleet.said());
        assert!(
            fleet.said().contains("fell silent after they were changed, and 0 of 95"),
            "{}",
            fleet.said()
        );
    }
    // Those that are unchanged have as bad links.
    let mut fleet = Fleet::new(100, "100% maxConcurrency=5", "");
    fleet.change("two");
    fleet.look(well);
    fleet.now += 300;
    for cluster in fleet.clusters.iter_mut().filter(|cluster| cluster.has.as_deref() == Some("one")) {
        cluster.silent = Some(at(200));
    }
    fleet
        .clusters
        .iter_mut()
        .filter(|c| c.has.as_deref() == Some("two"))
        .for_each(|c| c.silent = Some(at(200)));
    fleet.look(well);
    assert_eq!(fleet.state.phase, Phase::Running, "{}", fleet.said());
    // Of so few nobody can tell what it was; each of them keeps its place for as long as it could have become well.
    let mut fleet = Fleet::new(15, "100% maxConcurrency=2", "deadline=10m");
    fleet.change("two");
    on_receipt(&mut fleet, 61, 30, |cluster, now| cluster.silent = Some(at(now)));
    assert_eq!(fleet.state.phase, Phase::Running, "{}", fleet.said());
    assert!((6..=8).contains(&fleet.having("two")), "{}", fleet.said());
    assert!(
        fleet.last.again.is_some_and(|again| again <= Duration::from_secs(600)),
        "{:?}",
        fleet.last.again
    );
}

#[test]
fn each_has_its_own_time_to_fall_silent_after_the_change() {
    // After how many minutes each falls silent, counted from its own turn.
    for (minutes, stage) in
        [(1, Stage::SilentAfterChange), (9, Stage::SilentAfterChange), (20, Stage::SilentLater)]
    {
        let mut fleet = Fleet::new(60, "100% maxConcurrency=1", "deadline=10m silentAfterChange=100%");
        fleet.change("two");
        let given = fleet.look(well).first().cloned().unwrap();
        fleet.run(minutes * 6, 10, well);
        let now = fleet.now;
        let first = fleet.clusters.iter_mut().find(|cluster| cluster.name == given).unwrap();
        first.silent = Some(at(now));
        fleet.now += 60;
        fleet.run(2, 10, well);
        assert_eq!(fleet.last.sums.of(stage), 1, "{minutes}: {}", fleet.said());
        // So it stays, however long it is away and others have their turns; nobody knows better after a restart.
        fleet.run(30, 60, well);
        assert_eq!(fleet.last.sums.of(stage), 1, "{minutes}: {}", fleet.said());
    }
}

#[test]
fn those_that_wait_for_the_same_window_do_not_all_have_it_before_it_opens() {
    let held = |cluster: &mut Cluster, _| cluster.seen = Seen::Held;
    let start = |waves: &str| {
        let mut fleet = Fleet::new(100, waves, "deadline=30m");
        fleet.change("two");
        on_receipt(&mut fleet, 20, 60, held);
        assert_eq!((fleet.having("two"), fleet.state.phase), (10, Phase::Running), "{}", fleet.said());
        on_receipt(&mut fleet, 20, 60, held);
        assert_eq!((fleet.having("two"), fleet.state.phase), (10, Phase::AwaitsApproval), "{}", fleet.said());
        let said = "for 30m0s no further cluster of wave 1 of 1 (100%) has had its turn, since too many before it are not through \
                    (of 100 clusters: 90 waiting for others of their wave, 10 held back on the cluster)";
        assert!(fleet.said().contains(said), "{}", fleet.said());
        fleet
    };
    // Said once, and it stands after a restart.
    let mut fleet = start("100% maxConcurrency=5 soak=0");
    fleet.clocks = Clocks::default();
    on_receipt(&mut fleet, 3, 60, held);
    assert_eq!((fleet.state.phase, fleet.last.told.len()), (Phase::AwaitsApproval, 0), "{}", fleet.said());
    // The window opens: it goes on by itself.
    fleet.clusters.iter_mut().filter(|c| c.seen == Seen::Held).for_each(|c| c.seen = Seen::Unwell);
    let changing = |fleet: &Fleet| {
        fleet.clusters.iter().filter(|c| c.has.as_deref() == Some("two") && c.seen != Seen::Well).count()
    };
    assert_eq!(changing(&fleet), 10);
    for look in 0..60 {
        fleet.run(1, 60, well);
        assert!(changing(&fleet) <= if look == 0 { 10 } else { 5 }, "{look}: {}", fleet.said());
    }
    assert_eq!((fleet.having("two"), fleet.state.phase), (100, Phase::Complete), "{}", fleet.said());
    // A person lets it go on without them: that approves no other wave.
    let mut fleet = start("100% maxConcurrency=5 soak=0");
    fleet.command(Command::Resume).unwrap();
    assert_eq!((fleet.state.accepted_held, fleet.state.approved), (10, 0));
    on_receipt(&mut fleet, 10, 60, held);
    assert_eq!((fleet.having("two"), fleet.state.phase), (20, Phase::Running), "{}", fleet.said());
    fleet.command(Command::Abort).unwrap();
    fleet.command(Command::Resume).unwrap();
    assert_eq!(fleet.state.accepted_held, 0);
}

#[test]
fn those_that_cannot_say_what_they_have_keep_no_place_for_ever() {
    let mut fleet = Fleet::new(20, "100% soak=0 maxConcurrency=2", "deadline=10m");
    fleet.clusters.iter_mut().for_each(|cluster| cluster.mute = true);
    fleet.change("two");
    let first = fleet.look(well);
    assert_eq!(first.len(), 2);
    let dumb: Vec<usize> = (0..20).filter(|at| first.contains(&fleet.clusters[*at].name)).collect();
    let says = |at: usize| if dumb.contains(&at) { Seen::Unsaid } else { Seen::Well };
    for _ in 0..9 {
        fleet.look(says);
        fleet.now += 60;
    }
    assert_eq!((fleet.having("two"), fleet.state.phase), (2, Phase::Running), "{}", fleet.said());
    for _ in 0..40 {
        fleet.look(says);
        fleet.now += 60;
    }
    assert_eq!((fleet.having("two"), fleet.state.phase), (20, Phase::Complete), "{}", fleet.said());
    assert_eq!(fleet.last.sums.of(Stage::Mute), 2, "{}", fleet.said());
    assert_eq!(words::reason(&fleet.state), "CompleteExceptSilent");
    // Where nobody of a wave can say it a person is asked.
    let mut fleet = Fleet::new(20, "tier=pilot soak=0; 100%", "deadline=10m");
    fleet.clusters.iter_mut().for_each(|cluster| cluster.mute = true);
    fleet.change("two");
    fleet.run(15, 60, |_| Seen::Unsaid);
    assert_eq!(fleet.state.phase, Phase::Running, "{}", fleet.said());
    fleet.run(10, 60, |_| Seen::Unsaid);
    assert_eq!((fleet.state.phase, fleet.having("two")), (Phase::AwaitsApproval, 2), "{}", fleet.said());
    assert!(fleet.said().contains("2 whose agent cannot report it"), "{}", fleet.said());
}

#[test]
fn a_person_is_asked_where_those_that_change_come_to_no_end() {
    let mut fleet = Fleet::new(20, "100% soak=0 maxConcurrency=1", "deadline=10m");
    fleet.change("two");
    let first = fleet.look(well);
    let one = fleet.clusters.iter().position(|cluster| cluster.name == first[0]).unwrap();
    // It is silent now and then, and never for long: its own time hardly passes.
    let flap = |fleet: &mut Fleet, looks: usize| {
        for _ in 0..looks {
            fleet.clusters[one].silent = Some(at(fleet.now));
            fleet.now += 55;
            fleet.look(well);
            fleet.clusters[one].silent = None;
            fleet.clusters[one].seen = Seen::Unwell;
            fleet.look(|at| if at == one { Seen::Unwell } else { Seen::Well });
            fleet.now += 5;
        }
    };
    flap(&mut fleet, 18);
    assert_eq!((fleet.state.phase, fleet.having("two")), (Phase::Running, 1), "{}", fleet.said());
    flap(&mut fleet, 5);
    assert_eq!((fleet.state.phase, fleet.having("two")), (Phase::AwaitsApproval, 1), "{}", fleet.said());
    // It goes on by itself.
    fleet.run(2, 10, well);
    assert_eq!(fleet.state.phase, Phase::Running, "{}", fleet.said());
    fleet.run(60, 10, well);
    assert_eq!((fleet.state.phase, fleet.having("two")), (Phase::Complete, 20), "{}", fleet.said());
}

#[test]
fn what_an_earlier_hub_has_kept_of_such_a_wave_is_read() {
    let text = r#"{"revision":"two","base":"one","kept":["one","two"],"phase":"Running","seed":"seed","open":1,
        "waves":[{"name":"100%","upto":"ffffffffffffffff","clusters":20,"soak":0,"opened":"2026-11-26T02:00:00Z","maxConcurrency":2,
                  "reach":["1000000000000000","2026-11-26T02:10:00Z"]}],"began":"2026-11-26T02:00:00Z"}"#;
    let state: State = serde_json::from_str(text).unwrap();
    assert_eq!((state.accepted_held, state.waves[0].reach.is_some()), (0, true));
    // And the other way round: what is none is not there.
    assert!(!serde_json::to_string(&state).unwrap().contains("acceptedHeld"));
}
