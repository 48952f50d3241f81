use karmada_core::search::told::{Named, Outgoing};
use karmada_env::ManualClock;
use serde_json::json;

use super::*;

fn kind(kind: &str, namespace: &str) -> Followed {
    Followed { api_version: "v1".to_owned(), kind: kind.to_owned(), namespace: namespace.to_owned() }
}

fn reported() -> Reported {
    Reported::new(&Arc::default(), &Env::system())
}

/// Its agent is asked for these.
fn expect(reported: &Reported, cluster: &str, uid: &str, wanted: &[&Followed], heard: bool) {
    let wanted = wanted.iter().map(|&one| one.clone()).collect();
    drop(reported.expect(cluster, Expected { uid: uid.to_owned(), wanted, heard, paid: false }));
}

fn place(resource: &str, namespace: &str) -> Place {
    let text = str::to_owned;
    Place { group: text(""), version: text("v1"), resource: text(resource), namespace: text(namespace) }
}

/// A course that has these to tell.
fn course(what: &Followed, plural: &str, course: &str, names: &[&str]) -> Outgoing {
    let mut outgoing = Outgoing::new(what.clone(), plural, course.to_owned());
    outgoing.begins();
    for name in names {
        let text: Arc<str> = json!({"metadata": {"namespace": "n", "name": name}}).to_string().into();
        outgoing.heard(Named { namespace: "n".to_owned(), name: (*name).to_owned() }, text);
    }
    outgoing.ends();
    outgoing
}

/// What is under way was taken.
fn answered(outgoing: &mut Outgoing) {
    let part = outgoing.next(0, "").cloned().expect("something is under way");
    outgoing.taken(&part);
}

/// A report of these, and whether all that is told is current.
fn report(outgoing: &mut Outgoing, current: bool) -> Told {
    let parts: Vec<Read> = outgoing
        .next(usize::MAX, "7")
        .cloned()
        .map(|part| part.read().expect("objects"))
        .into_iter()
        .collect();
    let kinds = outgoing.word(current).into_iter().collect();
    Told { report: Report { holds: 600, kinds, ..Report::default() }, parts, unwanted: Vec::new() }
}

/// What is said of a kind of which something was told.
fn word(what: &Followed) -> told::Word {
    told::Word { what: what.clone(), course: "a".to_owned(), number: 7, current: true }
}

fn tell(reported: &Reported, cluster: &str, outgoing: &mut Outgoing) -> Result<Answer, u16> {
    let told = report(outgoing, true);
    answered(outgoing);
    take(reported, cluster, told)
}

/// With the next number.
fn take(reported: &Reported, cluster: &str, mut told: Told) -> Result<Answer, u16> {
    told.report.number = reported.all.lock().clusters.get(cluster).map_or(1, |member| member.number + 1);
    reported.take(cluster, told).map_err(|status| status.code())
}

fn names(copied: Option<Copied>) -> Option<usize> {
    copied.map(|copied| copied.objects.len())
}

#[test]
fn what_is_asked_for_is_kept_and_goes_with_its_cluster() {
    let reported = reported();
    let (pods, maps) = (kind("Pod", ""), kind("ConfigMap", "n"));
    assert_eq!(tell(&reported, "m", &mut course(&pods, "pods", "a", &["x"])), Err(503), "nobody asked");
    let expect = |uid: &str, wanted: &[&Followed]| expect(&reported, "m", uid, wanted, true);
    expect("1", &[&pods, &maps]);
    assert_eq!(tell(&reported, "m", &mut course(&pods, "pods", "a", &["x", "y"])), Ok(Answer::default()));
    assert_eq!(tell(&reported, "m", &mut course(&maps, "configmaps", "b", &["z"])), Ok(Answer::default()));
    let nodes = kind("Node", "");
    let unwanted = Answer { unwanted: vec![nodes.clone()], ..Answer::default() };
    assert_eq!(tell(&reported, "m", &mut course(&nodes, "nodes", "c", &[])), Ok(unwanted));
    let of = |resource: &str, namespace: &str| names(reported.of("m", &place(resource, namespace)));
    assert_eq!((of("pods", ""), of("pods", "n"), of("configmaps", "n")), (Some(2), Some(2), Some(1)));
    assert_eq!((of("configmaps", ""), of("nodes", "")), (None, None), "one namespace is not all");
    assert!(names(reported.of("other", &place("pods", ""))).is_none());
    // It goes on where nothing is known.
    let mut later = course(&pods, "pods", "d", &["x"]);
    later.next(1, "7").expect("the first");
    answered(&mut later);
    later.gone(&Named { namespace: "n".to_owned(), name: "x".to_owned() });
    let again = Answer { again: vec![pods.clone()], ..Answer::default() };
    assert_eq!(tell(&reported, "m", &mut later), Ok(again));
    assert_eq!(of("pods", ""), Some(2));
    // Kinds, Clusters and uids that go take it along.
    expect("1", &[&pods]);
    assert_eq!((of("pods", ""), of("configmaps", "n")), (Some(2), None));
    expect("2", &[&pods]);
    assert!(of("pods", "").is_none());
    assert_eq!(reported.all.lock().room.bytes(), 0);
    tell(&reported, "m", &mut course(&pods, "pods", "e", &["x"])).expect("taken");
    assert_ne!(reported.all.lock().room.bytes(), 0);
    expect("2", &[]);
    assert!(of("pods", "").is_none());
    let all = reported.all.lock();
    assert_eq!((all.room.bytes(), all.clusters.len()), (0, 0));
}

#[test]
fn what_nobody_says_is_current_has_an_age() {
    let reported = reported();
    let (pods, maps) = (kind("Pod", ""), kind("ConfigMap", ""));
    let expect = |heard| expect(&reported, "m", "1", &[&pods, &maps], heard);
    let age = || reported.of("m", &place("pods", "")).expect("a copy").age.map(|age| age.as_secs());
    expect(true);
    let mut outgoing = course(&pods, "pods", "a", &["x"]);
    tell(&reported, "m", &mut outgoing).expect("taken");
    assert_eq!(age(), None);
    let rows = [
        // An agent that was restarted, or follows the kind no more, says nothing of it.
        ("nothing is said", Report::default(), true),
        (
            "another kind is",
            Report {
                kinds: course(&maps, "configmaps", "b", &[]).word(true).into_iter().collect(),
                ..Report::default()
            },
            true,
        ),
        (
            "it is",
            Report { holds: 600, kinds: outgoing.word(true).into_iter().collect(), ..Report::default() },
            false,
        ),
        (
            "it is not",
            Report { holds: 600, kinds: outgoing.word(false).into_iter().collect(), ..Report::default() },
            true,
        ),
        (
            "it is, for no time",
            Report { holds: 0, kinds: outgoing.word(true).into_iter().collect(), ..Report::default() },
            true,
        ),
        (
            "it is again",
            Report { holds: 600, kinds: outgoing.word(true).into_iter().collect(), ..Report::default() },
            false,
        ),
    ];
    for (what, report, is_old) in rows {
        take(&reported, "m", Told { report, ..Told::default() }).expect("taken");
        assert_eq!(age().is_some(), is_old, "{what}");
    }
    // A silent one is current when its agent says so, not when it is heard again.
    expect(false);
    assert!(age().is_some());
    expect(true);
    assert!(age().is_some());
    take(&reported, "m", report(&mut outgoing, true)).expect("taken");
    assert_eq!(age(), None);
    // What comes late is not taken.
    let late = Told {
        report: Report { number: 1, withdrawn: vec![pods.clone()], ..Report::default() },
        ..Told::default()
    };
    let number = reported.all.lock().clusters["m"].number;
    assert_eq!(reported.take("m", late).expect("an answer").behind, Some(number));
    assert_eq!(age(), None);
    // What an agent refuses goes at once.
    let refused = Report { withdrawn: vec![pods.clone()], ..Report::default() };
    take(&reported, "m", Told { report: refused, ..Told::default() }).expect("taken");
    assert!(reported.of("m", &place("pods", "")).is_none());
    assert_eq!(reported.all.lock().room.bytes(), 0);
}

#[test]
fn of_what_is_not_wanted_nothing_is_read() {
    let long =
        Followed { api_version: "x".repeat(100 << 10), kind: "X".to_owned(), namespace: String::new() };
    let pods = kind("Pod", "");
    let body = |what: &Followed, object: serde_json::Value| {
        json!({"number": 1, "parts": [{"what": what, "course": "c", "number": 0, "plural": "x", "objects": [object]}]})
            .to_string()
    };
    let wanted = BTreeSet::from([pods.clone()]);
    // It would be refused if it were read.
    let unnamed = json!({"metadata": {"labels": {"a": "b"}}});
    let told = read(body(&long, unnamed.clone()).as_bytes(), &wanted).expect("a report");
    assert_eq!((told.parts.len(), told.unwanted), (0, vec![long]));
    assert!(read(body(&pods, unnamed).as_bytes(), &wanted).unwrap_err().contains("parts[0]: it has no name"));
    let named = json!({"metadata": {"name": "x"}});
    assert_eq!(read(body(&pods, named).as_bytes(), &wanted).expect("a report").parts.len(), 1);
}

/// A course begins in front of one that is known: what comes late of the former changes nothing.
#[test]
fn what_is_late_of_a_former_course_replaces_nothing() {
    let reported = reported();
    let pods = kind("Pod", "");
    expect(&reported, "m", "1", &[&pods], true);
    let mut former = course(&pods, "pods", "a", &["old"]);
    let mut late = report(&mut former, true);
    late.report.number = 7;
    let mut present = report(&mut course(&pods, "pods", "b", &["new", "newer"]), true);
    present.report.number = 8;
    assert_eq!(reported.take("m", present).expect("taken"), Answer::default());
    let behind = Answer { behind: Some(8), ..Answer::default() };
    assert_eq!(reported.take("m", late).expect("an answer"), behind);
    assert_eq!(names(reported.of("m", &place("pods", ""))), Some(2));
}

#[test]
fn an_agent_that_does_not_come_for_hours_is_mute() {
    let clock = ManualClock::new(std::time::SystemTime::UNIX_EPOCH);
    let reported = Reported::new(&Arc::default(), &Env::seeded(clock.clone(), 1));
    let pods = kind("Pod", "");
    let agent = UserInfo::new("system:karmada:agent:m", ["system:karmada:agents"]);
    let code = |turn: Result<Turn, Status>| turn.map(drop).map_err(|status| status.code());
    assert_eq!(code(reported.turn(&agent, None)), Err(503), "of what nobody asked for no body is read");
    let expect = |heard| expect(&reported, "m", "1", &[&pods], heard);
    expect(true);
    clock.advance(MUTE - Duration::from_secs(1));
    expect(true);
    assert_eq!((reported.mute(), reported.is_mute("m")), (vec![], false));
    // Who comes is not mute, whether it has a turn or not.
    let other = reported.turns.of("m", None).expect("a turn");
    assert!(other.arrived());
    assert_eq!(code(reported.turn(&agent, None)), Err(429));
    clock.advance(MUTE - Duration::from_secs(1));
    assert!(!reported.is_mute("m"));
    // As long as it is not heard it cannot come.
    expect(false);
    clock.advance(2 * MUTE);
    assert!(!reported.is_mute("m"));
    expect(true);
    assert!(!reported.is_mute("m"));
    clock.advance(MUTE);
    assert_eq!((reported.mute(), reported.is_mute("m")), (vec!["m".to_owned()], true));
    assert!(!reported.is_mute("other"));
    // Where a link lets it say little it has a day.
    let wanted = BTreeSet::from([pods.clone()]);
    drop(reported.expect("m", Expected { uid: "1".to_owned(), wanted, heard: true, paid: true }));
    assert!(!reported.is_mute("m"));
    clock.advance(PAID_MUTE - MUTE);
    assert!(reported.is_mute("m"));
}

#[test]
fn where_many_are_mute_few_are_taken_for_it_at_a_time() {
    let clock = ManualClock::new(std::time::SystemTime::UNIX_EPOCH);
    let reported = Reported::new(&Arc::default(), &Env::seeded(clock.clone(), 1));
    let pods = kind("Pod", "");
    for n in 0..1000 {
        expect(&reported, &format!("m{n:04}"), "1", &[&pods], true);
        clock.advance(Duration::from_secs(1));
    }
    clock.advance(MUTE);
    let mute = reported.mute();
    assert_eq!(
        (mute.len(), mute[0].as_str(), mute[49].as_str()),
        (50, "m0000", "m0049"),
        "the longest first"
    );
    (100..1000).for_each(|n| expect(&reported, &format!("m{n:04}"), "1", &[], true));
    assert_eq!(reported.mute().len(), MUTE_LEAST);
}

/// As many bytes of a kind as are wanted, in parts.
fn fill(reported: &Reported, cluster: &str, bytes: usize) -> Answer {
    let pods = kind("Pod", "");
    expect(reported, cluster, "1", &[&pods], true);
    let mut outgoing = Outgoing::new(pods, "pods", "a".to_owned());
    outgoing.begins();
    let mut last = Answer::default();
    let filler = "x".repeat(400 << 10);
    for n in 0..bytes / (400 << 10) {
        let name = format!("p{n}");
        let text: Arc<str> = json!({"metadata": {"name": name}, "spec": filler}).to_string().into();
        outgoing.heard(Named { namespace: String::new(), name }, text);
        last = tell(reported, cluster, &mut outgoing).expect("taken");
        if last != Answer::default() {
            break;
        }
    }
    last
}

/// What announces so many bytes of Pods and says nothing else.
fn announcement(bytes: usize) -> Told {
    let course = Outgoing::new(kind("Pod", ""), "pods", "a".to_owned());
    let mut course = course.of_bytes(u64::try_from(bytes).expect("a number"));
    course.begins();
    course.ends();
    let part = course.next(0, "7").cloned().expect("the first part").read().expect("objects");
    Told { parts: vec![part], ..Told::default() }
}

/// After a restart of the hub all announce what they have before anything is there.
#[test]
fn what_was_announced_has_its_room_before_it_comes() {
    let clock = ManualClock::new(std::time::SystemTime::UNIX_EPOCH);
    let reported = Reported::new(&Arc::default(), &Env::seeded(clock.clone(), 1));
    let pods = kind("Pod", "");
    let names: Vec<String> = (0..100).map(|n| format!("m{n:02}")).collect();
    names.iter().for_each(|name| expect(&reported, name, "1", &[&pods], true));
    let announce = |bytes| {
        let answers = names.iter().map(|name| take(&reported, name, announcement(bytes)).expect("an answer"));
        answers.filter(|answer| *answer == Answer::default()).count()
    };
    assert_eq!(announce(8 << 20), 17);
    assert!(reported.all.lock().room.bytes() <= ALL);
    // What is no more than a share goes in any case.
    let late = announcement(1 << 20);
    assert_eq!(take(&reported, "m99", late), Ok(Answer::default()));
    // What does not come leaves its room.
    clock.advance(Duration::from_secs(599));
    reported.expire();
    assert_ne!(reported.all.lock().room.bytes(), 0);
    clock.advance(Duration::from_secs(1));
    reported.expire();
    assert_eq!(reported.all.lock().room.bytes(), 0);
}

/// A few that were asked early have taken all of it when the fleet grows.
#[test]
fn whoever_comes_later_has_a_share_and_whoever_has_most_gives_something_up() {
    let reported = reported();
    for n in 0..8 {
        fill(&reported, &format!("early-{n}"), EACH - (1 << 20));
    }
    let before = reported.all.lock().room.bytes();
    assert!(before > ALL / 2);
    let pods = kind("Pod", "");
    (0..500).for_each(|n| expect(&reported, &format!("late-{n:03}"), "1", &[&pods], true));
    let share = reported.all.lock().room.share();
    for n in 0..500 {
        let announced = take(&reported, &format!("late-{n:03}"), announcement(share)).expect("an answer");
        assert_eq!(announced, Answer::default(), "{n}");
        assert!(reported.all.lock().room.bytes() <= ALL);
    }
    // Whose copies went is told so, and does not send them again at once.
    let gave_up = (0..8).map(|n| format!("early-{n}"));
    let gave_up: Vec<String> =
        gave_up.filter(|name| reported.of(name, &place("pods", "")).is_none()).collect();
    assert!(!gave_up.is_empty() && gave_up.len() < 8, "{gave_up:?}");
    let word = Report { holds: 600, kinds: vec![word(&pods)], ..Report::default() };
    let answer = take(&reported, &gave_up[0], Told { report: word, ..Told::default() });
    assert_eq!(answer, Ok(Answer { unwanted: vec![pods], ..Answer::default() }));
}

/// Much is dropped when nobody waits for the lock.
#[test]
fn what_is_kept_no_more_is_handed_out() {
    let reported = reported();
    let pods = kind("Pod", "");
    let bytes = |dropped: Vec<told::All>| dropped.iter().map(|all| all.objects.len()).sum::<usize>();
    fill(&reported, "m", 4 << 20);
    let withdrawn = Report { number: 100, withdrawn: vec![pods], ..Report::default() };
    let told = Told { report: withdrawn, ..Told::default() };
    let (answer, dropped) = reported.all.lock().take("m", told, Duration::ZERO);
    assert_eq!((answer.expect("taken"), bytes(dropped)), (Answer::default(), 10));
    fill(&reported, "n", 4 << 20);
    assert_eq!(bytes(reported.expect("n", Expected::default())), 10);
}

#[test]
fn something_is_left_for_everybody() {
    let reported = reported();
    for n in 0..20 {
        fill(&reported, &format!("greedy-{n}"), EACH - (1 << 20));
        assert!(reported.all.lock().room.bytes() < ALL);
    }
    assert_eq!(fill(&reported, "late", 1 << 20), Answer::default());
}

#[test]
fn there_is_so_much_room_for_one() {
    let reported = reported();
    let pods = kind("Pod", "");
    expect(&reported, "m", "1", &[&pods], true);
    let mut outgoing = Outgoing::new(pods.clone(), "pods", "a".to_owned());
    outgoing.begins();
    let filler = "x".repeat(400 << 10);
    for n in 0..(EACH / (400 << 10)) + 1 {
        let name = format!("p{n}");
        let text: Arc<str> = json!({"metadata": {"name": name}, "spec": filler}).to_string().into();
        outgoing.heard(Named { namespace: String::new(), name }, text);
    }
    outgoing.ends();
    let mut last = Answer::default();
    while let Some(part) = outgoing.next(REPORT / 2, "7") {
        let read = part.clone().read().expect("objects");
        last = take(&reported, "m", Told { parts: vec![read], ..Told::default() }).expect("taken");
        assert!(reported.all.lock().room.bytes() <= EACH);
        answered(&mut outgoing);
    }
    assert_eq!(last, Answer { unwanted: vec![pods], ..Answer::default() });
    assert_eq!(reported.all.lock().room.bytes(), 0);
    assert!(reported.of("m", &place("pods", "")).is_none());
}
