use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::search::told::Named;

const NOW: Duration = Duration::from_secs(1000);
const HOLDS: Duration = Duration::from_secs(600);

fn kind(name: &str) -> Followed {
    Followed { api_version: "v1".to_owned(), kind: name.to_owned(), namespace: String::new() }
}

fn of(names: &[&str]) -> BTreeSet<Followed> {
    names.iter().map(|name| kind(name)).collect()
}

fn heard(telling: &mut Telling, name: &str, object: &str) {
    let text: Arc<str> = json!({"metadata": {"name": object}, "x": "y".repeat(100)}).to_string().into();
    let named = Named { namespace: String::new(), name: object.to_owned() };
    telling.kind(&kind(name)).unwrap().outgoing.heard(named, text);
}

/// A kind that is listed and followed.
fn begun(telling: &mut Telling, name: &str, objects: &[&str]) {
    telling.begin(Outgoing::new(kind(name), "plural", format!("course-{name}")), NOW);
    telling.kind(&kind(name)).unwrap().outgoing.begins();
    objects.iter().for_each(|object| heard(telling, name, object));
    let kind = telling.kind(&kind(name)).unwrap();
    kind.outgoing.ends();
    kind.hears(true, NOW);
}

/// What a report says is current, and of what it has parts.
fn says(report: &Report) -> (Vec<&str>, Vec<&str>) {
    let current = report.kinds.iter().filter(|word| word.current).map(|word| word.what.kind.as_str());
    (current.collect(), report.parts.iter().map(|part| part.what.kind.as_str()).collect())
}

fn told(telling: &mut Telling, room: usize) -> Report {
    let parts = telling.parts(room);
    let report = telling.report(parts, HOLDS);
    telling.answered(&report, &Answer::default());
    report
}

#[test]
fn what_is_not_current_is_not_said_to_be() {
    let mut telling = Telling::new(7);
    assert_eq!(telling.due(NOW), None, "nothing is asked for");
    telling.asked(&of(&["A", "B"]));
    assert_eq!(telling.due(NOW), Some(NOW), "whoever was before may have said something");
    begun(&mut telling, "A", &["a"]);
    begun(&mut telling, "B", &[]);
    telling.kind(&kind("B")).unwrap().hears(false, NOW);
    let first = telling.report(Vec::new(), HOLDS);
    assert_eq!((first.number, says(&first)), (8, (vec![], vec![])));
    telling.answered(&first, &Answer::default());
    assert_eq!(telling.due(NOW), None, "the rest comes with parts");
    let report = told(&mut telling, usize::MAX);
    assert_eq!((report.number, says(&report)), (9, (vec!["A"], vec!["A", "B"])));
    assert_eq!((telling.due(NOW), telling.has_news()), (None, false));
    // It is followed: worth a word of its own.
    telling.kind(&kind("B")).unwrap().hears(true, NOW);
    assert_eq!(telling.due(NOW), Some(NOW));
    assert_eq!(says(&told(&mut telling, 0)).0, ["A", "B"]);
    // What has news is current with them alone, and not while others go.
    heard(&mut telling, "A", "b");
    assert!(telling.overstates());
    let parts = telling.parts(usize::MAX);
    heard(&mut telling, "A", "c");
    let report = telling.report(Vec::new(), HOLDS);
    assert_eq!(report.kinds.iter().map(|word| word.what.kind.as_str()).collect::<Vec<_>>(), ["B"]);
    telling.answered(&report, &Answer::default());
    assert!(!telling.overstates());
    let report = telling.report(parts, HOLDS);
    assert_eq!(says(&report), (vec!["B"], vec!["A"]));
    telling.answered(&report, &Answer::default());
    assert_eq!(says(&told(&mut telling, usize::MAX)), (vec!["A", "B"], vec!["A"]));
    // What is lost for a moment is not worth a word, and of what is lost for longer the hub hears.
    telling.kind(&kind("A")).unwrap().hears(false, NOW);
    telling.kind(&kind("A")).unwrap().hears(false, NOW + LOST);
    assert_eq!(telling.due(NOW), Some(NOW + LOST));
    assert_eq!(telling.due(NOW + LOST), Some(NOW + LOST));
    assert_eq!(says(&told(&mut telling, 0)).0, ["B"]);
    assert_eq!(telling.due(NOW + LOST), None);
    // So does it of what is refused, once.
    telling.withdraw(&kind("B"));
    assert_eq!(telling.due(NOW), Some(NOW));
    let report = told(&mut telling, 0);
    assert_eq!((says(&report).0, report.withdrawn.as_slice()), (vec![], [kind("B")].as_slice()));
    assert_eq!(telling.due(NOW), None);
    telling.asked(&BTreeSet::new());
    assert_eq!((telling.due(NOW), telling.words()), (None, 0));
}

#[test]
fn kinds_have_their_turns_and_share_what_there_is_room_for() {
    let mut telling = Telling::default();
    telling.asked(&of(&["A", "B", "C"]));
    for name in ["A", "B", "C"] {
        begun(&mut telling, name, &["a", "b", "c"]);
    }
    let one = telling.waiting() / 9;
    for want in [["A"], ["B"], ["C"], ["A"]] {
        assert_eq!(says(&told(&mut telling, one)).1, want);
    }
    // What is small goes beside it, and nothing beyond.
    let parts = telling.parts(4 * one);
    let kinds = |parts: &[Part]| parts.iter().map(|part| part.what.kind.clone()).collect::<Vec<_>>();
    assert_eq!(kinds(&parts), ["B", "C"]);
    assert!(parts.iter().map(Part::bytes).sum::<usize>() <= 4 * one + 100);
    // What was not answered goes again, before all else, and is no more than it was.
    heard(&mut telling, "B", "d");
    assert_eq!(kinds(&telling.parts(4 * one)), ["B", "C"]);
    // A part whose course has ended does not go.
    let parts = telling.parts(4 * one);
    begun(&mut telling, "B", &["a"]);
    assert_eq!(says(&telling.report(parts, HOLDS)).1, ["C"]);
}

#[test]
fn what_the_hub_answers() {
    let mut telling = Telling::default();
    telling.asked(&of(&["A", "B"]));
    begun(&mut telling, "A", &["a"]);
    begun(&mut telling, "B", &["b"]);
    let parts = telling.parts(usize::MAX);
    let late = telling.report(parts.clone(), HOLDS);
    telling.answered(&late, &Answer { behind: Some(50), ..Answer::default() });
    assert_eq!(telling.due(NOW), Some(NOW));
    let report = telling.report(parts, HOLDS);
    assert_eq!((report.number, says(&report).1), (51, vec!["A", "B"]), "all of it again");
    telling.answered(&report, &Answer { again: vec![kind("A")], unwanted: vec![kind("B")], behind: None });
    assert!(telling.kind(&kind("A")).is_none() && telling.kind(&kind("B")).is_none());
    assert_eq!(telling.due(NOW), None, "the hub knows");
}
