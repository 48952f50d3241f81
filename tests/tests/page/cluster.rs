//! One cluster as the page shows it, with a hub that says what it is told to: the last day of its link, how its age goes on, and what
//! its agent says.

use karmada_core::judge::words::{State, TEMPLATES};
use karmada_tests::fleet::{Binaries, Fleet, Options};
use karmada_ui::{
    rows::{Row, flag},
    views,
};
use serde_json::{Value, json};

use crate::{
    FLEET, TILES, TURN, accessible_both, axe,
    browser::Browser,
    click, keys,
    played::{Played, list, row},
    ticket,
};

/// What the hub says of one that was heard at this time; `strip` is the last day of its link.
fn told(heard: u64, strip: &str) -> Value {
    let (_, template) =
        TEMPLATES.iter().find(|(_, template)| template.starts_with("Ready, heard")).expect("a sentence");
    json!({
        "state": "ready", "template": template, "at": heard, "sentence": template.replace("{age}", "4 s"), "detail": null,
        "heard": heard, "shown": heard, "grace": {"seconds": 40, "length": "40 s", "reason": null, "text": null},
        "losses": 1, "heldUntil": null, "strip": strip, "stripSeconds": 300, "recordedSince": heard - 26_000,
        "certificate": null, "agent": "0.1.0", "hub": "0.1.0", "skew": null, "fence": null, "cordoned": false,
    })
}

/// A view that is left before its first answer takes nothing from the one that is seen, when the answer comes.
fn left_early(browser: &mut Browser, played: &Played) {
    browser.eval(
        "window.real = window.fetch; window.streams = []; window.hold = null;
         window.fetch = (url, options) => {
             const { pathname, searchParams } = new URL(url, location);
             if (pathname === '/ui/live') window.streams.push(`${searchParams.get('watch')} ${searchParams.get('cluster')}`);
             if (!window.hold || !url.includes(window.hold)) return window.real(url, options);
             window.hold = null;
             return new Promise((done) => {
                 window.release = () => done(window.real(url, options).finally(() => { window.streams = []; window.late = true; }));
             });
         }; 0",
    );
    for (view, asks) in [
        ("view=cluster&name=other", "name=other"),
        ("view=hub", "/ui/api/hub"),
        ("view=app&scope=namespaced&namespace=n&binding=b", "/ui/api/app?"),
        ("", "/ui/api/labels"),
    ] {
        browser.eval(&format!(
            "window.hold = {asks:?}; window.release = null; window.late = false;
             history.pushState(null, '', '/ui?{view}'); dispatchEvent(new PopStateEvent('popstate')); 0"
        ));
        browser.until("its question", "Boolean(window.release)");
        browser.eval("history.back(); 0");
        browser.until(
            "the cluster again",
            "document.querySelector('h1')?.textContent === 'shop' && Boolean(document.getElementById('sentence'))",
        );
        browser.eval("window.release(); 0");
        // A stream of the stand-in ends at once, and is asked for again.
        browser.until("streams after the answer", "window.late && window.streams.length > 2");
        let of = browser.eval("[...new Set(window.streams)]");
        assert_eq!(of, json!(["shop shop"]), "{view}: what is followed is the cluster that is seen");
    }
    // So does a frame of the fleet that was asked for before that was left.
    browser.eval("history.pushState(null, '', '/ui'); dispatchEvent(new PopStateEvent('popstate')); 0");
    browser.until("both tiles", &format!("{TILES} === 2"));
    browser.eval("window.due = []; window.frame = window.requestAnimationFrame; window.requestAnimationFrame = (work) => window.due.push(work); 0");
    played.update(vec![row("shop", State::Ready)]);
    browser.until("the frame that shows one tile less", "window.due.length > 0");
    browser.eval("history.back(); 0");
    browser.until("the cluster again", "Boolean(document.getElementById('sentence'))");
    browser.eval("window.requestAnimationFrame = window.frame; window.due.forEach((work) => work()); window.streams = []; 0");
    played.update(["shop", "other"].map(|name| row(name, State::Ready)).into());
    browser.until("streams after the frame", "window.streams.length > 2");
    assert_eq!(browser.eval("[...new Set(window.streams)]"), json!(["shop shop"]), "the fleet was left");
    browser.eval("window.fetch = window.real; 0");
}

/// How many seconds ago the page says that it was heard: in the sentence, and below.
const AGES: &str =
    "[document.getElementById('sentence').textContent, document.getElementById('heard').textContent]
    .map((text) => Number(/(\\d+) s ago/.exec(text)[1]))";

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_shows_its_day_its_age_and_its_agent() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some(mut browser) = Browser::start("cluster", dir.path()) else { return };
    let _turn = TURN.read().await;
    let Some(fleet) = Fleet::start("cluster", 0, &Binaries::in_one(FLEET), Options::default()).await else {
        return;
    };
    let (browser, axe) = (&mut browser, axe());
    let axe = axe.as_deref();
    let rows = ["shop", "other"].map(|name| row(name, State::Ready));
    let played = Played::new(rows.into());
    let strip =
        [(".", 200), ("s", 60), ("q", 12), ("l", 6), ("s", 10)].map(|(sign, n)| sign.repeat(n)).concat();
    let condition = |type_: &str, message: &str| {
        json!({"type": type_, "status": "True", "reason": "R", "message": message,
        "lastTransitionTime": "2026-01-03T13:00:00Z"})
    };
    let cluster = json!({
        "metadata": {"name": "shop", "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"agent.karmada.io/link": "lan", "agent.karmada.io/tunnel": "read-only"}},
        "spec": {"syncMode": "Pull", "region": "eu-west"},
        "status": {"kubernetesVersion": "v1.36.2", "conditions": [
            condition("RemovalsHeld", "340 of 400 objects are to be removed"), condition("LinkGrace", "its own")]},
    });
    let mut view = views::cluster(&cluster);
    view["told"] = told(played.seconds() - 4, &strip);
    view["works"] = views::Works::default().shown();
    view["events"] =
        json!([{"at": "2026-01-03T14:00:00Z", "reason": "Joined", "message": "It has joined.", "count": 1}]);
    played.shows(view);
    played.on(browser);
    let once = ticket(&fleet);
    browser.go(&once);
    browser.until("both tiles", &format!("{TILES} === 2"));
    click(browser, ".tile", "shop");
    browser.until("the cluster", "document.querySelector('h1')?.textContent === 'shop'");

    // The day of its link: every state as long as it was, by colours and heights of its own, and in words.
    let slots = browser.eval(
        "[...document.querySelectorAll('.strip rect')].map((one) =>
            [one.classList[1], Number(one.getAttribute('x')), Number(one.getAttribute('width'))])",
    );
    let wanted = json!([
        ["none", 0, 200],
        ["seen", 200, 60],
        ["silent", 260, 12],
        ["lost", 272, 6],
        ["seen", 278, 10]
    ]);
    assert_eq!(slots, wanted);
    let differ = browser.eval(
        "['none', 'seen', 'silent', 'lost'].map((state) => document.querySelector(`.slot.${state}`))
            .map((one) => `${getComputedStyle(one).fill} ${one.getAttribute('height')}`)",
    );
    let mut looks = list(&differ);
    looks.sort();
    looks.dedup();
    assert_eq!(looks.len(), 4, "{differ}");
    assert_eq!(
        browser.eval("document.querySelector('.strip svg').getAttribute('aria-label')"),
        "Last day of its link, by parts of five minutes: seen 350 min, silent 60 min, past its grace 30 min."
    );
    let spans = browser.eval(
        "[...document.querySelectorAll('.strip title')].map((one) => {
            const [, says, h, m, to, of] = /^(.+) from (\\d\\d):(\\d\\d) to (\\d\\d):(\\d\\d)$/.exec(one.textContent);
            return [says, (1440 + 60 * (to - h) + (of - m)) % 1440];
        })",
    );
    let minutes = [
        json!(["no record", 1000]),
        json!(["seen", 300]),
        json!(["silent", 60]),
        json!(["past its grace", 30]),
        json!(["seen", 50]),
    ];
    assert_eq!(spans, json!(minutes));

    // Its age goes on by itself while nothing comes, and falls back when it is heard.
    let before = browser.eval(AGES)[0].as_u64().expect("an age");
    let later = browser.until(
        "the age to go on",
        &format!(
            "(() => {{ const ages = {AGES}; return ages.every((age) => age >= {}) && ages; }})()",
            before + 3
        ),
    );
    assert!(later[0].as_u64().is_some_and(|age| age < 120), "{later}");
    played.hears("shop");
    browser.until("what was heard", &format!("{AGES}.every((age) => age <= 2)"));
    browser.until("the age to go on from there", &format!("{AGES}.every((age) => age >= 3)"));

    // What its agent says, and what one asks at the site.
    let agent =
        browser.eval("document.getElementById('agent').innerText").as_str().expect("a text").to_owned();
    for part in [
        "340 of 400 objects are to be removed",
        "0.1.0",
        "read-only",
        "karmada-agent status",
        "journalctl -u karmada-agent@shop",
    ] {
        assert!(agent.contains(part), "{part}: {agent}");
    }
    assert!(!agent.contains("its own"), "that is the hub's: {agent}");
    accessible_both(browser, axe, "a cluster's day");

    // By keyboard through all of it.
    let walked = keys::walk(browser, |here| here == "Events");
    let stops = [
        "Fleet",
        "cordon",
        "drain",
        "failback",
        "What if it were lost?",
        "What if it were drained?",
        "lan",
        "Conditions",
        "v1.36.2",
        "eu-west",
        "Events",
    ];
    assert_eq!(walked, [&keys::HEADER[..], &stops].concat());

    left_early(browser, &played);

    // A fact leads to all clusters of which it is so.
    click(browser, "dd a", "eu-west");
    browser.until(
        "those of the region",
        &format!("{TILES} === 2 && document.getElementById('of-region').value === 'eu-west'"),
    );
    assert_eq!(browser.eval("new URLSearchParams(location.search).get('region')"), "eu-west");
    assert_eq!(browser.eval("document.getElementById('filters').open"), true);

    // What if: of a cluster that is named in the address, and of which the page hears later, and of its being cordoned.
    let address = browser.eval("location.origin");
    browser.go(&format!("{}/ui?view=whatif&drain=late", address.as_str().expect("an address")));
    browser.until("what the hub says of it", "Boolean(document.querySelector('#results [role=alert]'))");
    let button = |says: &str| format!("document.getElementById('act-late')?.textContent === {says:?}");
    let rows = |flags: u8| {
        let late = Row { flags, ..row("late", State::Ready) };
        vec![row("shop", State::Ready), row("other", State::Ready), late]
    };
    assert_eq!(browser.eval("Boolean(document.getElementById('act-late'))"), false);
    played.update(rows(0));
    browser.until("what can be done with it", &button("Cordon late"));
    assert_eq!(
        browser
            .eval("[...document.querySelectorAll('#clusters option')].some((one) => one.value === 'late')"),
        true
    );
    browser.eval("document.getElementById('act-late').focus(); 0");
    played.update(rows(flag::CORDONED));
    browser.until("that it is cordoned", &button("Uncordon late"));
    assert_eq!(browser.eval("document.activeElement.id"), "act-late");
    assert_eq!(browser.troubles(), Vec::<String>::new());
}
