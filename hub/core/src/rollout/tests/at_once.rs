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
