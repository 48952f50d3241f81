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
    let expect = |uid: &str, wanted: &[&Followed]| {
        reported.expect("m", uid, wanted.iter().map(|&one| one.clone()).collect(), true);
    };
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
    assert_eq!(reported.all.lock().bytes, 0);
    tell(&reported, "m", &mut course(&pods, "pods", "e", &["x"])).expect("taken");
    assert_ne!(reported.all.lock().bytes, 0);
    expect("2", &[]);
    assert!(of("pods", "").is_none());
    let all = reported.all.lock();
    assert_eq!((all.bytes, all.clusters.len()), (0, 0));
}

#[test]
fn what_nobody_says_is_current_has_an_age() {
    let reported = reported();
    let (pods, maps) = (kind("Pod", ""), kind("ConfigMap", ""));
    let expect = |heard| reported.expect("m", "1", BTreeSet::from([pods.clone(), maps.clone()]), heard);
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
    assert_eq!(reported.all.lock().bytes, 0);
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
    reported.expect("m", "1", BTreeSet::from([pods.clone()]), true);
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
fn each_has_a_share_of_the_room() {
    for (clusters, others, most) in [
        (1, 0, EACH),
        (8, 0, EACH),
        // Who comes first has taken the half of it.
        (8, ALL / 2, ALL / 16),
        (8, ALL - 1, 1),
        (8, ALL + 1, 0),
        (1024, ALL / 2, ALL / 2048),
        (1024, 0, EACH),
    ] {
        assert_eq!(room(clusters, others), most, "{clusters} {others}");
    }
}

#[test]
fn an_agent_that_tells_nothing_for_hours_is_mute() {
    let clock = ManualClock::new(std::time::SystemTime::UNIX_EPOCH);
    let reported = Reported::new(&Arc::default(), &Env::seeded(clock.clone(), 1));
    let pods = kind("Pod", "");
    let expect = |heard| reported.expect("m", "1", BTreeSet::from([pods.clone()]), heard);
    expect(true);
    clock.advance(MUTE - Duration::from_secs(1));
    expect(true);
    assert_eq!((reported.mute(), reported.is_mute("m")), (vec![], false));
    take(&reported, "m", Told::default()).expect("taken");
    clock.advance(MUTE - Duration::from_secs(1));
    assert!(!reported.is_mute("m"), "it has told something");
    // As long as it is not heard it cannot tell.
    expect(false);
    clock.advance(2 * MUTE);
    assert!(!reported.is_mute("m"));
    expect(true);
    assert!(!reported.is_mute("m"));
    clock.advance(MUTE);
    assert_eq!((reported.mute(), reported.is_mute("m")), (vec!["m".to_owned()], true));
    assert!(!reported.is_mute("other"));
}

#[test]
fn few_reports_are_read_at_a_time_and_one_of_each() {
    let reported = reported();
    let code = |cluster: &str| reported.turns.of(cluster).map(drop).map_err(|status| status.code());
    let mut turns: Vec<Turn> =
        (1..COMING).map(|n| reported.turns.of(&n.to_string()).expect("a turn")).collect();
    assert_eq!((code("1"), code("other")), (Err(429), Ok(())));
    turns.push(reported.turns.of("last").expect("a turn"));
    assert_eq!(code("other"), Err(429));
    drop(turns);
    assert_eq!((code("1"), code("other")), (Ok(()), Ok(())));
    assert!(reported.turns.clusters.lock().is_empty());
}

/// As many bytes of a kind as are wanted, in parts.
fn fill(reported: &Reported, cluster: &str, bytes: usize) -> Answer {
    let pods = kind("Pod", "");
    reported.expect(cluster, "1", BTreeSet::from([pods.clone()]), true);
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

#[test]
fn something_is_left_for_everybody() {
    let reported = reported();
    for n in 0..20 {
        fill(&reported, &format!("greedy-{n}"), EACH - (1 << 20));
        assert!(reported.all.lock().bytes < ALL);
    }
    assert_eq!(fill(&reported, "late", 1 << 20), Answer::default());
}

#[test]
fn there_is_so_much_room_for_one() {
    let reported = reported();
    let pods = kind("Pod", "");
    reported.expect("m", "1", BTreeSet::from([pods.clone()]), true);
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
        assert!(reported.all.lock().bytes <= EACH);
        answered(&mut outgoing);
    }
    assert_eq!(last, Answer { unwanted: vec![pods], ..Answer::default() });
    assert_eq!(reported.all.lock().bytes, 0);
    assert!(reported.of("m", &place("pods", "")).is_none());
}
