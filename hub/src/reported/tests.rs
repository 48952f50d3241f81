use karmada_core::search::told::{Named, Outgoing};
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

fn tell(reported: &Reported, cluster: &str, waits: u64, outgoing: &mut Outgoing) -> Result<Answer, u16> {
    let part = outgoing.next(usize::MAX, "7").cloned().expect("news");
    answered(outgoing);
    reported.take(cluster, waits, vec![part.read().expect("objects")]).map_err(|status| status.code())
}

fn names(copied: Option<Copied>) -> Option<usize> {
    copied.map(|copied| copied.objects.len())
}

#[test]
fn what_is_asked_for_is_kept_and_goes_with_its_cluster() {
    let reported = reported();
    let (pods, maps) = (kind("Pod", ""), kind("ConfigMap", "n"));
    assert_eq!(tell(&reported, "m", 0, &mut course(&pods, "pods", "a", &["x"])), Err(503), "nobody asked");
    let expect = |uid: &str, wanted: &[&Followed], silent| {
        reported.expect("m", uid, wanted.iter().map(|&one| one.clone()).collect(), silent);
    };
    expect("1", &[&pods, &maps], None);
    assert_eq!(tell(&reported, "m", 0, &mut course(&pods, "pods", "a", &["x", "y"])), Ok(Answer::default()));
    assert_eq!(tell(&reported, "m", 0, &mut course(&maps, "configmaps", "b", &["z"])), Ok(Answer::default()));
    let nodes = kind("Node", "");
    let unwanted = Answer { unwanted: vec![nodes.clone()], again: vec![] };
    assert_eq!(tell(&reported, "m", 0, &mut course(&nodes, "nodes", "c", &[])), Ok(unwanted));
    let of = |resource: &str, namespace: &str| names(reported.of("m", &place(resource, namespace)));
    assert_eq!((of("pods", ""), of("pods", "n"), of("configmaps", "n")), (Some(2), Some(2), Some(1)));
    assert_eq!((of("configmaps", ""), of("nodes", "")), (None, None), "one namespace is not all");
    assert!(names(reported.of("other", &place("pods", ""))).is_none());
    // It goes on where nothing is known.
    let mut later = course(&pods, "pods", "d", &["x"]);
    later.next(1, "7").expect("the first");
    answered(&mut later);
    later.gone(&Named { namespace: "n".to_owned(), name: "x".to_owned() });
    let again = Answer { again: vec![pods.clone()], unwanted: vec![] };
    assert_eq!(tell(&reported, "m", 0, &mut later), Ok(again));
    assert_eq!(of("pods", ""), Some(2));
    // Kinds, Clusters and uids that go take it along.
    expect("1", &[&pods], None);
    assert_eq!((of("pods", ""), of("configmaps", "n")), (Some(2), None));
    expect("2", &[&pods], None);
    assert!(of("pods", "").is_none());
    assert_eq!(reported.all.lock().bytes, 0);
    tell(&reported, "m", 0, &mut course(&pods, "pods", "e", &["x"])).expect("taken");
    assert_ne!(reported.all.lock().bytes, 0);
    expect("2", &[], None);
    assert!(of("pods", "").is_none());
    let all = reported.all.lock();
    assert_eq!((all.bytes, all.clusters.len()), (0, 0));
}

#[test]
fn whoever_is_silent_or_has_more_to_tell_says_how_old_it_is() {
    let reported = reported();
    let pods = kind("Pod", "");
    let ago = |seconds| Some(reported.env.now().saturating_sub(Duration::from_secs(seconds)));
    let expect = |silent| reported.expect("m", "1", BTreeSet::from([pods.clone()]), silent);
    let age = || reported.of("m", &place("pods", "")).expect("a copy").age.map(|age| age.as_secs());
    expect(None);
    let mut outgoing = course(&pods, "pods", "a", &["x"]);
    tell(&reported, "m", 0, &mut outgoing).expect("taken");
    assert_eq!(age(), None);
    // The clock has just begun: what was before that is as old as it.
    reported.take("m", 3600, Vec::new()).expect("taken");
    assert!(age().is_some());
    reported.take("m", 0, Vec::new()).expect("taken");
    assert_eq!(age(), None);
    expect(ago(0));
    assert_eq!(age(), Some(0));
}

#[test]
fn there_is_so_much_room_for_one() {
    let reported = reported();
    let pods = kind("Pod", "");
    reported.expect("m", "1", BTreeSet::from([pods.clone()]), None);
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
        last = reported.take("m", 0, vec![read]).expect("taken");
        assert!(reported.all.lock().bytes <= EACH);
        answered(&mut outgoing);
    }
    assert_eq!(last, Answer { again: vec![], unwanted: vec![pods] });
    assert_eq!(reported.all.lock().bytes, 0);
    assert!(reported.of("m", &place("pods", "")).is_none());
}
