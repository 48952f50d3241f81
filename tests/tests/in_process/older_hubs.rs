//! Hubs of earlier versions: what they answered an agent is answered to this one. A recording of this version is made by
//! `RECORD_HUB=1 cargo test -p karmada-tests --test in_process older_hubs`.

use std::{collections::BTreeSet, fs, time::Duration};

use karmada_agent::Place;
use karmada_api::consts::subject;
use karmada_apiserver::authn::UserInfo;
use karmada_client::{
    Patch, Rest,
    rest::{METADATA, METADATA_LIST, query_value},
    watch::Lines,
};
use karmada_core::{
    names,
    upgrade::{Version, with_hub},
};
use karmada_meta::object;
use karmada_tests::{
    answers::{Line, Recorder, Seen, StandIn, lines},
    fleet::{cluster_path, condition},
    inprocess::{PATIENCE, World},
    kubesim,
    link::Mode,
    samples::works_path,
    skew::folder,
    wait::gone,
};
use serde_json::{Value, json};

use crate::{
    deployment_path,
    skew::{CLUSTER, happens, replicas},
};

const OURS: &str = env!("CARGO_PKG_VERSION");

/// The connection is lost and comes back.
const RECONNECTED: &str = "reconnected";
/// The agent is started again, with what it has kept.
const RESTARTED: &str = "restarted";
/// What happens on the hub, in this order; while the agent does not hear it, in these two.
const MARKS: [&str; 5] = ["placed", "changed", RECONNECTED, RESTARTED, "gone"];

/// How long an agent lives after each.
const LIFE: Duration = Duration::from_secs(60);
/// And before the first: all its watches have heard by then that nothing has happened.
const QUIET: Duration = Duration::from_secs(400);

const JSON: &str = "application/json";
const SUMS: &str = "application/json;as=Sums;g=hub.karmada.io;v=v1alpha1";
const OTHERS: &str = "!endpointslice.karmada.io/managed-by";

/// Asks what an agent may ask at any time, although the one of the recording may not: also about Works that there `were`.
async fn ask(hub: &Rest, were: &mut BTreeSet<String>) {
    let (cluster, works) = (cluster_path(CLUSTER), works_path(CLUSTER));
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/{CLUSTER}");
    let named = |path: &str, name: &str| {
        format!("{path}?fieldSelector={}", query_value(&format!("metadata.name={name}")))
    };
    let others = format!("{works}?labelSelector={}", query_value(OTHERS));
    let history = hub.get("/karmada/history").await.unwrap();
    let run = format!("boot={}&revision={}", history["boot"].as_str().unwrap(), history["durable"]);
    let mut questions = vec![
        (named(collection(&cluster), CLUSTER), METADATA_LIST),
        (cluster.clone(), METADATA),
        (cluster, JSON),
        (format!("/api/v1/namespaces/karmada-es-{CLUSTER}"), JSON),
        (others.clone(), METADATA_LIST),
        (format!("{others}&depth=4"), SUMS),
        (format!("{works}?limit=1"), METADATA_LIST),
        (format!("/karmada/history?{run}"), JSON),
    ];
    let list = hub.get(&others).await.unwrap();
    were.extend(list["items"].as_array().unwrap().iter().map(|work| object::name(work).to_owned()));
    for name in &*were {
        questions.extend([(format!("{works}/{name}"), JSON), (named(&works, name) + "&limit=1", JSON)]);
    }
    for (path, accept) in questions {
        match hub.get_bytes(&path, accept).await {
            Err(error) if !error.is_not_found() => panic!("{path}: {error}"),
            _ => {}
        }
    }
    // Where there are no short renewals. It must not renew in the agent's stead.
    let renewal = json!({"spec": {"renewTime": hub.get(&lease).await.unwrap()["spec"]["renewTime"]}});
    hub.patch_for_revision(&(lease + "?dryRun=All"), Patch::Merge, &renewal).await.unwrap();
}

/// What this hub answers an agent in its life.
async fn recorded() -> String {
    let (mut world, kept) = (World::start(975, 0).await, tempfile::tempdir().unwrap());
    let recorder = Recorder::default();
    let listener = recorder.clone();
    world.instead = Some(Box::new(move |hub, _| listener.listen(&hub)));
    let hub = world.api_as(UserInfo::new(names::agent_user(CLUSTER), [subject::AGENTS]));
    let hub = Rest::new(recorder.listen(hub.client()));
    recorder.survey(&hub).await;
    let place = Place::Folder(kept.path().to_owned(), None);
    world.join_with(CLUSTER, &kubesim::Config::default(), place).await;
    world.ready(CLUSTER, PATIENCE).await;
    let watch = tokio::spawn({
        let hub = hub.client().clone();
        let revision = world.revision();
        let path = format!(
            "{}?watch=true&allowWatchBookmarks=true&resourceVersion={revision}&labelSelector={}",
            works_path(CLUSTER),
            query_value(OTHERS)
        );
        async move {
            let mut lines = Lines::open(&hub, &path, JSON).await.unwrap();
            while let Ok(Some(_)) = lines.next().await {}
        }
    });
    tokio::time::sleep(QUIET).await;
    let mut were = BTreeSet::new();
    for mark in MARKS {
        ask(&hub, &mut were).await;
        match mark {
            RECONNECTED => world.members[0].wire.set(Mode::Cut),
            RESTARTED => world.stop_agent(0).await,
            _ => {}
        }
        recorder.mark(mark);
        happens(&world, mark).await;
        match mark {
            RECONNECTED => world.members[0].wire.set(Mode::Pass),
            RESTARTED => world.start_agent(0),
            _ => {}
        }
        tokio::time::sleep(LIFE).await;
    }
    ask(&hub, &mut were).await;
    assert!(!watch.is_finished(), "a watch has ended by itself");
    watch.abort();
    world.stop().await;
    recorder.text()
}

/// An agent of this version lives under the hub of a recording. What it asked; or what it asked that this hub was never asked.
async fn lived(lines: Vec<Line>) -> Result<Vec<Seen>, BTreeSet<String>> {
    let (mut world, kept) = (World::start(976, 0).await, tempfile::tempdir().unwrap());
    let hub = StandIn::new(lines);
    let stand_in = hub.clone();
    world.instead = Some(Box::new(move |_, config| {
        config.hub_back = stand_in.back();
        stand_in.client()
    }));
    let place = Place::Folder(kept.path().to_owned(), None);
    world.join_with(CLUSTER, &kubesim::Config::default(), place).await;
    let all = live(&mut world, &hub).await;
    world.stop().await;
    all.map(|()| hub.seen())
}

/// It joins, applies, reports, renews and removes.
async fn live(world: &mut World, hub: &StandIn) -> Result<(), BTreeSet<String>> {
    let (cluster, web) = (cluster_path(CLUSTER), deployment_path("web"));
    for mark in [""].into_iter().chain(MARKS) {
        let before = hub.seen().len();
        if mark == RESTARTED {
            world.stop_agent(0).await;
        }
        if !mark.is_empty() {
            hub.mark(mark);
        }
        match mark {
            RECONNECTED => hub.reconnect(),
            RESTARTED => world.start_agent(0),
            _ => {}
        }
        tokio::time::sleep(LIFE).await;
        let unanswered = hub.unanswered();
        if !unanswered.is_empty() {
            return Err(unanswered);
        }
        let since = hub.seen().split_off(before);
        let is_web = |seen: &Seen| seen.to.contains("/works/web-");
        match mark {
            "" => {
                assert_asked("it joins", &since, |seen| {
                    seen.to.starts_with(&format!("POST {}", collection(&cluster)))
                });
                assert_asked("it is ready", &since, |seen| {
                    let is_status = seen.to.contains(&format!(" {cluster}/status"));
                    is_status && condition(&seen.body, "Ready") == Some("True")
                });
            }
            "gone" => {
                gone(&world.members[0].api, &web, PATIENCE).await;
                assert_asked("it lets go", &since, |seen| is_web(seen) && seen.to.starts_with("PATCH:json "));
            }
            mark => {
                let is = |web: &Value| web["spec"]["replicas"] == replicas(mark);
                world.member_until(0, &web, mark, PATIENCE, is).await;
                assert_asked(&format!("{mark}: it reports"), &since, |seen| {
                    is_web(seen)
                        && seen.to.contains("/status")
                        && seen.body["status"]["conditions"].is_array()
                });
            }
        }
        let renewals = since.iter().filter(|seen| seen.code < 300 && renews(seen)).count();
        assert!(renewals >= 3, "{mark}: it renews: {:#?}", short(&since));
    }
    Ok(())
}

fn collection(path: &str) -> &str {
    path.rsplit_once('/').unwrap().0
}

fn renews(seen: &Seen) -> bool {
    let is_write = ["PUT", "PATCH"].iter().any(|verb| seen.to.starts_with(verb));
    is_write && (seen.to.contains("/karmada/renewals/") || seen.to.contains("/karmada-cluster/leases/"))
}

fn assert_asked(what: &str, seen: &[Seen], is: impl Fn(&Seen) -> bool) {
    assert!(seen.iter().any(|seen| seen.code < 300 && is(seen)), "{what}: {:#?}", short(seen));
}

/// What was asked, line by line.
fn short(seen: &[Seen]) -> Vec<String> {
    seen.iter().map(|seen| format!("{} {}", seen.code, seen.to)).collect()
}

#[tokio::test(start_paused = true)]
async fn what_this_hub_answers_is_recorded_and_enough_for_an_agent() {
    let text = recorded().await;
    if std::env::var_os("RECORD_HUB").is_some() {
        fs::write(folder().join(format!("hub-{OURS}.jsonl")), &text).unwrap();
    }
    let seen = lived(lines(&text)).await.unwrap();
    for (what, part) in [
        ("it compares sums when it is started again", "depth="),
        ("it lists what differs", "within"),
        ("it asks which hub it is", "/karmada/history?boot"),
    ] {
        assert_asked(what, &seen, |seen| seen.to.contains(part));
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_does_without_what_a_hub_does_not_know() {
    let mut lines = lines(&recorded().await);
    let newer = |to: &str| ["/karmada/", "depth=", " as News"].iter().any(|part| to.contains(part));
    lines.retain(|line| !line.to().is_some_and(newer));
    let seen = lived(lines).await.unwrap();
    // It asks for each, and is refused; what is not known of a watch is passed over.
    for part in ["/karmada/history", "/karmada/renewals/shop-17", "depth="] {
        let asked: Vec<_> = seen.iter().filter(|seen| seen.to.contains(part)).collect();
        assert!(
            !asked.is_empty() && asked.iter().all(|seen| seen.code >= 400),
            "{part}: {:#?}",
            short(&seen)
        );
    }
    assert_asked("it watches", &seen, |seen| seen.to.ends_with(" as News"));
}

#[tokio::test(start_paused = true)]
async fn what_an_agent_needs_and_a_hub_has_never_answered_is_named() {
    let text = recorded().await;
    let works = "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-shop-17/works";
    for (needed, otherwise) in [
        (
            "PUT /apis/cluster.karmada.io/v1alpha1/clusters/shop-17/status",
            "PATCH:merge /apis/cluster.karmada.io/v1alpha1/clusters/shop-17/status",
        ),
        (&format!("GET {works}?labelSelector="), &format!("GET {works}?fieldSelector=")),
    ] {
        let unanswered = lived(lines(&text.replace(needed, otherwise))).await.unwrap_err();
        assert!(unanswered.iter().any(|to| to.starts_with(needed)), "{needed}: {unanswered:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn hubs_of_two_minor_versions_back_are_enough_for_an_agent() {
    let ours: Version = OURS.parse().unwrap();
    let mut hubs = 0;
    for file in fs::read_dir(folder()).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let Some(version) = name.strip_prefix("hub-") else { continue };
        let version: Version = version.parse().unwrap();
        if with_hub(&version, &ours).is_some() {
            continue;
        }
        if let Err(unanswered) = lived(lines(&fs::read_to_string(&path).unwrap())).await {
            panic!(
                "an agent of this version asks what a hub of {version} was never asked, see contributing.md: {unanswered:#?}"
            );
        }
        hubs += 1;
    }
    assert!(hubs > 0, "there is no recording of a hub that agents of this version support");
}
