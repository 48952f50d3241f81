use proptest::prelude::*;
use serde_json::json;

use super::*;

fn pods() -> Followed {
    Followed { api_version: "v1".to_owned(), kind: "Pod".to_owned(), namespace: String::new() }
}

fn named(name: &str) -> Named {
    Named { namespace: "n".to_owned(), name: name.to_owned() }
}

fn object(name: &str, of: u64) -> (Named, Arc<str>) {
    let object = json!({"metadata": {"namespace": "n", "name": name, "resourceVersion": of.to_string()}});
    essence(&object.to_string(), &pods()).unwrap()
}

/// The same as it comes to the hub.
fn carried(part: &Part) -> Read {
    let text = serde_json::to_string(&Report { parts: vec![part.clone()], ..Report::default() }).unwrap();
    let mut report: Report = serde_json::from_str(&text).unwrap();
    report.parts.remove(0).read().unwrap()
}

const NOW: Duration = Duration::from_secs(1000);
const HOLDS: Duration = Duration::from_secs(600);

/// What is found, and since when it is not current.
fn seen_at(kept: &Kept, now: Duration) -> Option<(Vec<String>, Option<u64>)> {
    let Found { all, as_of, .. } = kept.find(now, |what, _| *what == pods())?;
    let version = |text: &Arc<str>| {
        let value: Value = serde_json::from_str(text).unwrap();
        object::resource_version(&value).to_owned()
    };
    let all = all.objects.iter().map(|(named, text)| format!("{}{}", named.name, version(text))).collect();
    Some((all, as_of.map(|as_of| as_of.as_secs())))
}

fn seen(kept: &Kept) -> Option<Vec<String>> {
    Some(seen_at(kept, NOW)?.0)
}

/// What the agent says of it.
fn say(outgoing: &Outgoing, kept: &mut Kept, now: Duration) -> Vec<Followed> {
    let words: Vec<Word> = outgoing.word(outgoing.is_told()).into_iter().collect();
    kept.hear(&words, now, HOLDS)
}

/// What is under way was taken.
fn answered(outgoing: &mut Outgoing) {
    let part = outgoing.next(0, "").cloned().expect("something is under way");
    outgoing.taken(&part);
}

/// All that there is to tell, part by part.
fn tell(outgoing: &mut Outgoing, kept: &mut Kept, room: usize) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    while let Some(part) = outgoing.next(room, "9") {
        verdicts.push(kept.take(carried(part), Room::of(usize::MAX), NOW));
        answered(outgoing);
        say(outgoing, kept, NOW);
    }
    verdicts
}

fn listed(outgoing: &mut Outgoing, all: &[(&str, u64)]) {
    outgoing.begins();
    for (name, of) in all {
        let (named, text) = object(name, *of);
        outgoing.heard(named, text);
    }
    outgoing.ends();
}

#[test]
fn all_of_it_once_and_then_what_changes() {
    let (mut outgoing, mut kept) = (Outgoing::new(pods(), "pods", "c".to_owned()), Kept::default());
    listed(&mut outgoing, &[("a", 1), ("b", 2), ("c", 3)]);
    let first = carried(outgoing.next(1, "9").unwrap());
    assert_eq!(first.objects.len(), 1, "one goes in any case");
    assert_eq!(kept.take(first, Room::of(usize::MAX), NOW), Verdict::Taken);
    assert_eq!(seen(&kept), None, "half of it is nothing");
    answered(&mut outgoing);
    assert_eq!(tell(&mut outgoing, &mut kept, usize::MAX), [Verdict::Taken]);
    assert_eq!(seen(&kept).unwrap(), ["a1", "b2", "c3"]);
    let found = kept.find(NOW, |_, all| all.plural == "pods" && all.revision == "9").map(|found| found.what);
    assert_eq!(found, Some(&pods()));
    assert!(!outgoing.has_news() && outgoing.bytes() == 0);
    // The same again is no news, and what changes twice is told once.
    listed(&mut outgoing, &[("a", 1), ("c", 3)]);
    for of in [4, 5] {
        let (named, text) = object("a", of);
        outgoing.heard(named, text);
    }
    let part = outgoing.next(usize::MAX, "10").unwrap();
    assert_eq!((part.objects.len(), part.gone.len(), part.number), (1, 1, 2));
    assert_eq!(tell(&mut outgoing, &mut kept, usize::MAX), [Verdict::Taken]);
    assert_eq!(seen(&kept).unwrap(), ["a5", "c3"]);
    // One that came and went between is none.
    let (d, text) = object("d", 6);
    outgoing.heard(d.clone(), text);
    outgoing.gone(&d);
    assert!(!outgoing.has_news() && outgoing.bytes() == 0);
}

#[test]
fn what_has_no_room_is_not_sent() {
    let objects: Vec<(String, u64)> = (0..20).map(|n| (format!("o{n:02}"), n)).collect();
    let objects: Vec<(&str, u64)> = objects.iter().map(|(name, of)| (name.as_str(), *of)).collect();
    let total: usize = objects.iter().map(|(name, of)| object(name, *of)).map(|(n, t)| size(&n, &t)).sum();
    let course = |id: &str| {
        let mut outgoing =
            Outgoing::new(pods(), "pods", id.to_owned()).of_bytes(u64::try_from(total).unwrap());
        listed(&mut outgoing, &objects);
        outgoing
    };
    // More than a part is said before it is sent.
    let (mut outgoing, mut kept) = (course("a"), Kept::default());
    let first = outgoing.next(total - 1, "9").unwrap().clone();
    assert_eq!((first.total, first.objects.len(), first.bytes()), (total as u64, 0, 0));
    assert!(!outgoing.is_told());
    assert_eq!(kept.take(carried(&first), Room::of(total - 1), NOW), Verdict::NoRoom);
    assert_eq!((kept.bytes(), seen(&kept)), (0, None));
    assert_eq!(kept.take(carried(&first), Room::of(total), NOW), Verdict::Taken);
    outgoing.taken(&first);
    let verdicts = tell(&mut outgoing, &mut kept, total - 1);
    assert!(verdicts.len() == 2 && verdicts.iter().all(|verdict| *verdict == Verdict::Taken), "{verdicts:?}");
    assert_eq!((seen(&kept).unwrap().len(), kept.bytes()), (20, total));
    // What goes in one part goes at once.
    let mut another = course("b");
    let whole = another.next(total, "9").unwrap().clone();
    assert_eq!((whole.total, whole.objects.len()), (total as u64, 20));
    // Of what is kept already as much again is none too much.
    assert_eq!(kept.take(carried(&whole), Room::of(total), NOW), Verdict::Taken);
    // What goes on says no more of it.
    another.taken(&whole);
    let (named, text) = object("more", 30);
    another.heard(named, text);
    assert_eq!(another.next(total, "9").unwrap().total, 0);
}

#[test]
fn what_was_announced_has_room_until_it_has_come() {
    const KIB: usize = 1 << 10;
    let room = Room { share: 4 * KIB, most: 4 << 20 };
    let first = |what: &Followed, total: usize| {
        let outgoing = Outgoing::new(what.clone(), "pods", "c".to_owned());
        let mut outgoing = outgoing.of_bytes(u64::try_from(total).unwrap());
        listed(&mut outgoing, &[("a", 1), ("b", 2)]);
        outgoing
    };
    let other = Followed { kind: "ConfigMap".to_owned(), ..pods() };
    let mut kept = Kept::default();
    let mut outgoing = first(&pods(), 3 << 20);
    let part = carried(outgoing.next(1, "9").unwrap());
    assert_eq!(kept.with(&part), 3 << 20);
    assert_eq!((kept.take(part, room, NOW), kept.bytes()), (Verdict::Taken, 3 << 20));
    // Of another kind in the same report there is less room by that.
    let another = carried(first(&other, 2 << 20).next(1, "9").unwrap());
    assert_eq!(kept.take(another, room, NOW), Verdict::NoRoom);
    // It has the room while it comes, and what it takes when it is there.
    answered(&mut outgoing);
    let part = carried(outgoing.next(1 << 20, "9").unwrap());
    assert_eq!((kept.take(part, room, NOW), kept.bytes()), (Verdict::Taken, 3 << 20));
    let soon = NOW + ANNOUNCED - Duration::from_secs(1);
    kept.expire(soon);
    assert_eq!(kept.bytes(), 3 << 20);
    say(&outgoing, &mut kept, soon);
    assert!(kept.bytes() < KIB && seen(&kept).is_some());
    // Or no more when nothing comes.
    let mut kept = Kept::default();
    let part = carried(first(&pods(), 3 << 20).next(1, "9").unwrap());
    assert_eq!(kept.take(part, room, NOW), Verdict::Taken);
    kept.expire(NOW + ANNOUNCED);
    assert_eq!(kept.bytes(), 0);
}

#[test]
fn what_is_more_than_was_announced_has_no_room() {
    let text = |kib: usize| -> Arc<str> {
        json!({"metadata": {"namespace": "n", "name": "x"}, "spec": "x".repeat(kib << 10)}).to_string().into()
    };
    // What was announced, room where nothing was, KiB that come, and what becomes of them.
    for (announced, share, kib, verdict) in [
        (1 << 20, 0, 1024, Verdict::Taken),
        (1 << 20, 0, 1700, Verdict::Taken),
        (1 << 20, 0, 1800, Verdict::NoRoom),
        (1, 0, 500, Verdict::Taken),
        (1, 0, 520, Verdict::NoRoom),
        (0, 1 << 20, 1000, Verdict::Taken),
        (0, 1 << 20, 1100, Verdict::NoRoom),
    ] {
        let mut kept = Kept::default();
        let room = Room { share, most: 4 << 20 };
        let mut part = Outgoing::new(pods(), "pods", "c".to_owned()).of_bytes(announced).part(0, "9");
        assert_eq!(kept.take(part.clone().read().unwrap(), room, NOW), Verdict::Taken);
        let mut left = kib;
        let mut last = Verdict::Taken;
        while left > 0 && last == Verdict::Taken {
            let now = left.min(400);
            left -= now;
            part = Part { number: part.number + 1, total: 0, ..part };
            let objects = vec![(named(&left.to_string()), text(now))];
            last = kept.take(Read { part: part.clone(), objects }, room, NOW);
        }
        assert_eq!((last, left), (verdict, 0), "{announced} {kib}");
        assert_eq!(kept.bytes() > 0, verdict == Verdict::Taken);
        // What is there was said to be all, and may grow as anything.
        if verdict == Verdict::Taken {
            let word = Word { what: pods(), course: "c".to_owned(), number: part.number, current: true };
            assert_eq!(kept.hear(&[word], NOW, HOLDS), []);
            let part = Part { number: part.number + 1, ..part };
            let objects = vec![(named("more"), text(1000))];
            assert_eq!(kept.take(Read { part, objects }, room, NOW), Verdict::Taken);
        }
    }
}

#[test]
fn an_answer_that_was_lost_and_a_hub_that_has_begun_anew() {
    let (mut outgoing, mut kept) = (Outgoing::new(pods(), "pods", "c".to_owned()), Kept::default());
    listed(&mut outgoing, &[("a", 1)]);
    for _ in 0..2 {
        assert_eq!(
            kept.take(carried(outgoing.next(9, "1").unwrap()), Room::of(usize::MAX), NOW),
            Verdict::Taken
        );
    }
    answered(&mut outgoing);
    assert_eq!(seen(&kept), None, "nobody has said that it is all");
    assert_eq!(say(&outgoing, &mut kept, NOW), []);
    assert_eq!(seen(&kept).unwrap(), ["a1"]);
    let mut another = Kept::default();
    assert_eq!(say(&outgoing, &mut another, NOW), [pods()]);
    let (named, text) = object("b", 2);
    outgoing.heard(named, text);
    let mut lost = Kept::default();
    assert_eq!(tell(&mut outgoing, &mut lost, 9), [Verdict::Again]);
    assert_eq!(say(&outgoing, &mut lost, NOW), [pods()]);
    assert_eq!(seen(&lost), None);
    // What was current stands until the new course is.
    tell(&mut outgoing, &mut kept, 9);
    let mut anew = Outgoing::new(pods(), "pods", "d".to_owned());
    listed(&mut anew, &[("b", 3), ("c", 4)]);
    assert_eq!(kept.take(carried(anew.next(1, "1").unwrap()), Room::of(usize::MAX), NOW), Verdict::Taken);
    assert_eq!(seen(&kept).unwrap(), ["a1"]);
    answered(&mut anew);
    tell(&mut anew, &mut kept, 9);
    assert_eq!(seen(&kept).unwrap(), ["b3", "c4"]);
    kept.withdraw(&pods());
    assert_eq!((seen(&kept), kept.bytes()), (None, 0));
}

#[test]
fn what_is_current_is_said_to_be_and_for_a_while() {
    let (mut outgoing, mut kept) = (Outgoing::new(pods(), "pods", "c".to_owned()), Kept::default());
    listed(&mut outgoing, &[("a", 1)]);
    tell(&mut outgoing, &mut kept, usize::MAX);
    let as_of = |kept: &Kept, seconds: u64| seen_at(kept, NOW + Duration::from_secs(seconds)).unwrap().1;
    assert_eq!((as_of(&kept, 600), as_of(&kept, 601)), (None, Some(1000)), "as long as it counts");
    // Said again; not said of it, and said of another course.
    let now = NOW + Duration::from_secs(500);
    assert_eq!(say(&outgoing, &mut kept, now), []);
    assert_eq!(as_of(&kept, 1000), None);
    assert_eq!(kept.hear(&[], now, HOLDS), []);
    assert_eq!(as_of(&kept, 500), Some(1500));
    let word = outgoing.word(true).unwrap();
    for (other, again) in [
        (Word { current: false, ..word.clone() }, vec![]),
        (Word { number: 1, ..word.clone() }, vec![pods()]),
        (Word { course: "d".to_owned(), ..word.clone() }, vec![pods()]),
    ] {
        assert_eq!(kept.hear(std::slice::from_ref(&word), now, HOLDS), []);
        assert_eq!(as_of(&kept, 500), None);
        assert_eq!(kept.hear(std::slice::from_ref(&other), now, HOLDS), again, "{other:?}");
        assert_eq!(as_of(&kept, 500), Some(1500), "{other:?}");
    }
    assert_eq!(kept.hear(&[word], now, HOLDS), []);
    kept.doubt();
    assert_eq!(as_of(&kept, 500), Some(1500));
    // A course that is told is no more current than what was before until that is said.
    let mut anew = Outgoing::new(pods(), "pods", "d".to_owned());
    listed(&mut anew, &[("b", 2)]);
    let part = carried(anew.next(usize::MAX, "1").unwrap());
    assert_eq!(kept.take(part, Room::of(usize::MAX), NOW), Verdict::Taken);
    assert_eq!(seen_at(&kept, now).unwrap(), (vec!["a1".to_owned()], Some(1500)));
    assert_eq!(say(&anew, &mut kept, now), []);
    assert_eq!(seen_at(&kept, now).unwrap(), (vec!["b2".to_owned()], None));
}

#[test]
fn a_report_has_no_more_parts_than_can_be_some() {
    let part = |objects: &str| {
        format!(
            r#"{{"number":1,"parts":[{{"what":{{"apiVersion":"v1","kind":"Pod"}},"course":"c","number":0,"plural":"pods","objects":[{objects}]}}]}}"#
        )
    };
    let read = |text: &str| serde_json::from_str::<Report>(text).map(|report| report.parts[0].objects.len());
    assert_eq!(read(&part(r#"{"metadata":{"name":"x"}},{"metadata":{"name":"y"}}"#)).unwrap(), 2);
    for wrong in ["0,0,0", "{}", r#"{"metadata":{"name":"x"}},[]"#] {
        assert!(read(&part(wrong)).unwrap_err().to_string().contains("an object without a name"), "{wrong}");
    }
    let what = json!({"apiVersion": "v1", "kind": "Pod"});
    let many = |count: usize| json!({"number": 1, "withdrawn": vec![what.clone(); count]}).to_string();
    assert!(serde_json::from_str::<Report>(&many(FOLLOWED)).is_ok());
    assert!(
        serde_json::from_str::<Report>(&many(FOLLOWED + 1)).unwrap_err().to_string().contains("more than 32")
    );
}

#[test]
fn there_is_so_much_room() {
    let (mut outgoing, mut kept) = (Outgoing::new(pods(), "pods", "c".to_owned()), Kept::default());
    listed(&mut outgoing, &[("a", 1), ("b", 2)]);
    let part = carried(outgoing.next(usize::MAX, "1").unwrap());
    answered(&mut outgoing);
    assert_eq!(kept.take(part, Room::of(usize::MAX), NOW), Verdict::Taken);
    say(&outgoing, &mut kept, NOW);
    let both = kept.bytes();
    let mut anew = Outgoing::new(pods(), "pods", "d".to_owned());
    listed(&mut anew, &[("a", 1)]);
    // Not for what was before, then.
    assert_eq!(kept.take(carried(anew.next(9, "1").unwrap()), Room::of(both / 2), NOW), Verdict::Taken);
    assert_eq!((seen(&kept), kept.bytes()), (None, both / 2));
    answered(&mut anew);
    say(&anew, &mut kept, NOW);
    assert_eq!(seen(&kept).unwrap(), ["a1"]);
    let (named, text) = object("b", 2);
    anew.heard(named, text);
    assert_eq!(kept.take(carried(anew.next(9, "1").unwrap()), Room::of(both - 1), NOW), Verdict::NoRoom);
    assert_eq!((seen(&kept), kept.bytes()), (None, 0));
}

#[test]
fn what_is_kept_is_what_was_asked_for() {
    let what = Followed { namespace: "n".to_owned(), ..pods() };
    let read =
        |object: Value| essence(&object.to_string(), &what).map(|(named, text)| (named, text.to_string()));
    let (name, text) = read(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "n", "name": "a", "managedFields": [1],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "k": "v"}}, "spec": {"x": 1},
    }))
    .unwrap();
    assert_eq!(name, named("a"));
    assert_eq!(
        serde_json::from_str::<Value>(&text).unwrap(),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "n", "name": "a", "annotations": {"k": "v"}},
            "spec": {"x": 1}})
    );
    for (wrong, why) in [
        (json!({"metadata": {"namespace": "m", "name": "a"}}), "not in the namespace n"),
        (json!({"metadata": {"namespace": "n"}}), "no name"),
        (json!(["a"]), "no name"),
    ] {
        assert!(read(wrong).unwrap_err().contains(why), "{why}");
    }
    let mut part = Outgoing::new(pods(), "pods", "x".repeat(SAID + 1));
    listed(&mut part, &[]);
    assert!(part.next(9, "1").unwrap().clone().read().unwrap_err().contains("course is longer"));
}

#[test]
fn what_an_agent_is_asked_for() {
    let secrets = Followed { kind: "Secret".to_owned(), ..pods() };
    let one = Followed { namespace: "shop".to_owned(), ..pods() };
    let all: BTreeSet<Followed> = [pods(), one.clone(), secrets].into();
    assert_eq!(question(&BTreeSet::new()), None);
    assert_eq!(asked(&question(&all).unwrap()).unwrap(), BTreeSet::from([pods(), one]), "but for Secrets");
    let many: Vec<Followed> = (0..=FOLLOWED).map(|n| Followed { kind: format!("K{n}"), ..pods() }).collect();
    for (wrong, why) in [
        ("{}".to_owned(), "invalid type"),
        (" ".repeat(QUESTION + 1), "longer than"),
        (json!(many).to_string(), "more than 32 kinds"),
    ] {
        assert!(asked(&wrong).unwrap_err().contains(why), "{why}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Set(u8, u64),
    Delete(u8),
    List,
    Tell(usize),
    LoseAnswer,
    NewHub,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..6_u8, 0..4_u64).prop_map(|(name, of)| Step::Set(name, of)),
        (0..6_u8).prop_map(Step::Delete),
        Just(Step::List),
        (1..600_usize).prop_map(Step::Tell),
        Just(Step::LoseAnswer),
        Just(Step::NewHub),
    ]
}

proptest! {
    /// Whatever changes, is lost or begins anew: in the end the hub has what the member has, and it counts what that takes.
    #[test]
    fn in_the_end_the_hub_has_what_the_member_has(steps in prop::collection::vec(step(), 0..80)) {
        let mut member: BTreeMap<String, u64> = BTreeMap::new();
        let mut kept = Kept::default();
        let mut courses = 0;
        let list = |outgoing: &mut Outgoing, member: &BTreeMap<String, u64>| {
            let all: Vec<(&str, u64)> = member.iter().map(|(name, of)| (name.as_str(), *of)).collect();
            listed(outgoing, &all);
        };
        let mut outgoing = Outgoing::new(pods(), "pods", "0".to_owned());
        list(&mut outgoing, &member);
        let mut tell = |outgoing: &mut Outgoing, kept: &mut Kept, member: &BTreeMap<String, u64>, room, lost: bool| {
            let Some(part) = outgoing.next(room, "1") else { return false };
            match kept.take(carried(part), Room::of(usize::MAX), NOW) {
                _ if lost => {}
                Verdict::Again => {
                    courses += 1;
                    *outgoing = Outgoing::new(pods(), "pods", courses.to_string());
                    list(outgoing, member);
                }
                verdict => {
                    assert_eq!(verdict, Verdict::Taken);
                    answered(outgoing);
                    assert_eq!(say(outgoing, kept, NOW), []);
                }
            }
            true
        };
        for step in steps {
            match step {
                Step::Set(name, of) => {
                    let name = format!("o{name}");
                    let (named, text) = object(&name, of);
                    member.insert(name, of);
                    outgoing.heard(named, text);
                }
                Step::Delete(name) => {
                    let name = format!("o{name}");
                    member.remove(&name);
                    outgoing.gone(&named(&name));
                }
                Step::List => list(&mut outgoing, &member),
                Step::Tell(room) => drop(tell(&mut outgoing, &mut kept, &member, room, false)),
                Step::LoseAnswer => drop(tell(&mut outgoing, &mut kept, &member, 300, true)),
                Step::NewHub => kept = Kept::default(),
            }
            let counted: usize = kept.kinds.values().map(Course::bytes).sum();
            prop_assert_eq!(kept.bytes(), counted);
        }
        if !outgoing.is_under_way() && !say(&outgoing, &mut kept, NOW).is_empty() {
            outgoing = Outgoing::new(pods(), "pods", "last".to_owned());
            list(&mut outgoing, &member);
        }
        while tell(&mut outgoing, &mut kept, &member, 300, false) {}
        let want: Vec<String> = member.iter().map(|(name, of)| format!("{name}{of}")).collect();
        prop_assert_eq!(seen_at(&kept, NOW), Some((want, None)));
        prop_assert_eq!(outgoing.bytes(), 0);
        let texts: usize = kept.kinds.values().flat_map(|course| &course.all.objects).map(|(named, text)| size(named, text)).sum();
        prop_assert_eq!(kept.bytes(), texts);
    }
}
