//! What tiles say: every state, everything beside it, groups, chips, by keyboard and to a screen reader.

use std::collections::BTreeSet;

use karmada_core::judge::words::{State, TEMPLATES};
use karmada_tests::fleet::{Binaries, Fleet, Options};
use karmada_ui::rows::{Row, flag};

use serde_json::json;

use crate::{
    FLEET, TILES, TURN, accessible_both, axe,
    browser::Browser,
    keys::{FOCUS, HEADER, walk},
    played::{Played, list, row, texts},
    ticket,
};

/// A cluster for each sentence, and one for each of what may be so beside its state.
fn rows() -> Vec<Row> {
    let states = TEMPLATES.iter().enumerate().map(|(n, (state, template))| {
        let mut row = row(&format!("state-{n:02}"), *state);
        row.told.template = template;
        Row { link: ["lan", "cellular", "satellite"][n % 3].into(), ..row }
    });
    let beside = FLAGS.iter().map(|(name, bit, _)| Row { flags: *bit, ..row(name, State::Ready) });
    let works = [
        Row { waiting: 3, ..row("works-wait", State::Ready) },
        Row { failed: 2, ..row("works-failed", State::Ready) },
        Row { flags: flag::FENCED | flag::EVICTIONS_HELD, waiting: 1, ..row("many-things", State::Silent) },
    ];
    states.chain(beside).chain(works).collect()
}

/// A cluster's name, what is so of it, and how its tile says so.
const FLAGS: [(&str, u8, &str); 8] = [
    ("flag-cordoned", flag::CORDONED, "cordoned"),
    ("flag-evictions", flag::EVICTIONS_HELD, "evictions held"),
    ("flag-held", flag::HELD, "held"),
    ("flag-fenced", flag::FENCED, "fenced (expected)"),
    ("flag-certificate", flag::CERTIFICATE, "certificate ends"),
    ("flag-removals", flag::REMOVALS_HELD, "removals held"),
    ("flag-changes", flag::CHANGES_HELD, "changes held"),
    ("flag-skew", flag::SKEW, "versions differ"),
];

fn says(browser: &mut Browser, cluster: &str) -> String {
    let text =
        browser.eval(&format!("document.querySelector('.tile[data-name={cluster}] small').textContent"));
    text.as_str().expect("a tile").to_owned()
}

/// Clicks on the chip that says this after its sign and its number.
fn chip(browser: &mut Browser, words: &str) {
    let script = format!(
        "(() => {{ const found = [...document.querySelectorAll('nav.counts a.chip')].find((one) => one.lastChild.textContent.trim() === {words:?});
           found?.click(); return Boolean(found); }})()"
    );
    browser.until(&format!("the chip {words}"), &script);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tile_says_all_that_is_known_of_its_cluster() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some(mut browser) = Browser::start("tiles", dir.path()) else { return };
    let _turn = TURN.read().await;
    let Some(fleet) = Fleet::start("tiles", 0, &Binaries::in_one(FLEET), Options::default()).await else {
        return;
    };
    let browser = &mut browser;
    let axe = axe();
    let axe = axe.as_deref();
    let all = rows();
    let n = all.len();
    let tiers = [("state-00", "edge"), ("state-01", "edge"), ("flag-skew", "core")];
    let played = Played::new(all).with_tiers(tiers);
    played.synced(false);
    played.on(browser);
    browser.go(&ticket(&fleet));
    browser.until("all tiles", &format!("{TILES} === {n}"));

    // A hub that has just begun says when it has read everything, though no cluster is another then.
    let begins = "/has just begun/.test(document.querySelector('nav.counts').textContent)";
    browser.until("that the hub has just begun", begins);
    played.synced(true);
    browser.until("that it has read everything", &format!("!({begins})"));

    // Every state by its sentence, its sign and its tone.
    for (n, (state, template)) in TEMPLATES.iter().enumerate() {
        let name = format!("state-{n:02}");
        let words = says(browser, &name);
        let wanted = template.split('{').next().unwrap_or_default();
        // When one that is well was heard is told of the few that are shown closely.
        let wanted = if wanted.starts_with("Ready, heard") { "Ready" } else { wanted };
        assert!(words.starts_with(wanted) && !words.contains('{'), "{template}: {words}");
        let tile = format!("document.querySelector('.tile[data-name={name}]')");
        let tone = state.tone();
        assert_eq!(
            browser.eval(&format!("{tile}.classList.contains('{}')", tone.name())),
            true,
            "{template}"
        );
        assert_eq!(browser.eval(&format!("{tile}.querySelector('.glyph').textContent")), tone.glyph());
    }
    // What is so beside it.
    for (name, _, words) in FLAGS {
        assert_eq!(says(browser, name), format!("Ready · {words}"));
    }
    assert_eq!(says(browser, "works-wait"), "Ready · 3 waiting");
    assert_eq!(says(browser, "works-failed"), "Ready · 2 failed");
    let words = says(browser, "many-things");
    assert!(words.ends_with(" · evictions held · fenced (expected) · 1 waiting"), "{words}");
    accessible_both(browser, axe, "every tile");

    // A chip shows those that are so, and all again.
    for (name, _, words) in FLAGS {
        chip(browser, words);
        let wanted: BTreeSet<&str> = match name {
            "flag-fenced" | "flag-evictions" => [name, "many-things"].into(),
            _ => [name].into(),
        };
        browser.until(&format!("those that are {words}"), &format!("{TILES} === {}", wanted.len()));
        let names =
            list(&browser.eval("[...document.querySelectorAll('.tile')].map((one) => one.dataset.name)"));
        assert_eq!(names.iter().map(String::as_str).collect::<BTreeSet<_>>(), wanted);
        assert_eq!(browser.eval("document.querySelectorAll('.chip[aria-current=true]').length"), 1);
        chip(browser, words);
        browser.until("all again", &format!("{TILES} === {n}"));
    }
    for state in State::ALL {
        let of = TEMPLATES.iter().filter(|(of, _)| *of == state).count();
        let of = of
            + match state {
                State::Ready => FLAGS.len() + 2,
                State::Silent => 1,
                _ => 0,
            };
        chip(browser, state.heading());
        browser.until(state.heading(), &format!("{TILES} === {of}"));
        assert_eq!(browser.eval("new URLSearchParams(location.search).get('state')"), state.name());
        chip(browser, state.heading());
        browser.until("all again", &format!("{TILES} === {n}"));
    }

    // Groups by the class of the link, and by a label.
    for (by, headings) in [
        ("link", vec!["cellular", "lan", "satellite"]),
        ("label:tier", vec!["core", "edge", "without this label"]),
    ] {
        browser.eval(&format!(
            "{{ const g = document.getElementById('group'); g.value = {by:?}; g.dispatchEvent(new Event('change')); }} 0"
        ));
        let found =
            "[...document.querySelectorAll('section.group h2')].map((one) => one.firstChild.textContent)";
        browser.until(by, &format!("JSON.stringify({found}) === {:?}", json!(headings).to_string()));
        assert_eq!(browser.eval("new URLSearchParams(location.search).get('group')"), by);
        let of = list(&browser.eval(&texts("section.group:nth-of-type(1) .tile b")));
        let wanted =
            if by == "link" { &["state-01", "state-04", "state-07", "state-10"][..] } else { &["flag-skew"] };
        assert_eq!(of, wanted);
        accessible_both(browser, axe, by);
    }
    // The address is enough to see the same.
    let address = browser.eval("location.href");
    browser.go(address.as_str().unwrap());
    browser.until("the same groups", "document.querySelectorAll('section.group h2').length === 3");

    // A search beside it finds by a label's value.
    browser.eval("{ const q = document.getElementById('q'); q.value = 'edge'; q.dispatchEvent(new Event('input')); } 0");
    browser.until("those of this label", &format!("{TILES} === 2"));
    assert_eq!(browser.troubles(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn when_clusters_were_heard_is_said_while_they_are_few() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some(mut browser) = Browser::start("heard", dir.path()) else { return };
    let _turn = TURN.read().await;
    let Some(fleet) = Fleet::start("heard", 0, &Binaries::in_one(FLEET), Options::default()).await else {
        return;
    };
    let browser = &mut browser;
    let clusters: Vec<Row> = (0..70).map(|n| row(&format!("shop-{n:02}"), State::Ready)).collect();
    let played = Played::new(clusters.clone());
    played.on(browser);
    browser.go(&ticket(&fleet));
    let none = "[...document.querySelectorAll('.tile small')].every((one) => one.textContent === 'Ready')";
    let some = "[...document.querySelectorAll('.tile small')].some((one) => /heard \\d+ s ago/.test(one.textContent))";
    let all_of_them = format!("{TILES} === 70 && {none}");
    browser.until("many, of which none says when", &all_of_them);
    for cluster in &clusters {
        played.hears(&cluster.name);
    }

    // Few are found; then all are shown again.
    let search = |q: &str| {
        format!(
            "{{ const q = document.getElementById('q'); q.value = {q:?}; q.dispatchEvent(new Event('input')); }} 0"
        )
    };
    browser.eval(&search("shop-0"));
    browser.until("when those few were heard", &format!("{TILES} === 10 && {some}"));
    browser.eval(&search(""));
    browser.until("all again, as they were", &all_of_them);

    // One is opened, and left.
    browser.eval("document.querySelector('.tile').click(); 0");
    browser.until("the cluster", "document.querySelector('h1')?.textContent === 'shop-00'");
    browser.eval("history.back(); 0");
    browser.until("all again, and none that counts on", &all_of_them);

    // Nor do few go on to count, when the hub does not know any more when they were heard.
    browser.eval(&search("shop-1"));
    browser.until("when those few were heard", &format!("{TILES} === 10 && {some}"));
    played.forgets();
    browser.until("none of them any more", &format!("{TILES} === 10 && {none}"));
    assert_eq!(browser.troubles(), Vec::<String>::new());
}

/// Chooses a value of a list as people do.
fn choose(browser: &mut Browser, list: &str, value: &str) {
    let found = browser.eval(&format!(
        "{{ const list = document.getElementById({list:?}); list.focus(); list.value = {value:?}; list.dispatchEvent(new Event('change')); list.value; }}"
    ));
    assert_eq!(found, value, "{list} offers it");
}

/// A script that comes to the names of the tiles, in their order.
fn names() -> String {
    texts(".tile b")
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_are_chosen_by_what_they_are() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some(mut browser) = Browser::start("choosing", dir.path()) else { return };
    let _turn = TURN.read().await;
    let Some(fleet) = Fleet::start("choosing", 0, &Binaries::in_one(FLEET), Options::default()).await else {
        return;
    };
    let (browser, axe) = (&mut browser, axe());
    let of = |name: &str, region: &str, link: &str, kubernetes: &str, agent: &str| Row {
        region: region.into(),
        link: link.into(),
        kubernetes: kubernetes.into(),
        agent: agent.into(),
        ..row(name, State::Ready)
    };
    let rows = || {
        vec![
            of("a", "eu-west", "lan", "v1.36.2", "0.1.0"),
            of("b", "eu-west", "cellular", "v1.35.9", "0.1.0"),
            of("c", "us-east", "lan", "v1.35.9", "0.2.0"),
            of("d", "", "", "", ""),
        ]
    };
    let played = Played::new(rows()).with_tiers([("a", "edge"), ("b", "Edge-2"), ("d", "core")]);
    played.on(browser);
    let once = ticket(&fleet);
    browser.go(&once);
    browser.until("all tiles", &format!("{TILES} === 4"));
    assert_eq!(browser.eval("document.getElementById('filters').open"), false);
    browser.eval("document.querySelector('#filters summary').click(); 0");
    accessible_both(browser, axe.as_deref(), "filters");

    // By each of them, and by two at a time.
    for (list, value, is, found) in [
        ("region", "eu-west", "a b", "2"),
        ("link", "lan", "a c", "2"),
        ("kubernetes", "v1.35.9", "b c", "2"),
        ("agent", "0.2.0", "c", "1"),
    ] {
        let id = format!("of-{list}");
        choose(browser, &id, value);
        browser.until(list, &format!("{}.join(' ') === {is:?}", names()));
        assert_eq!(browser.eval(&format!("new URLSearchParams(location.search).get({list:?})")), value);
        assert_eq!(browser.eval("document.querySelector('#filters summary').textContent"), "Filters (1)");
        let chosen = browser.eval(&format!("document.getElementById({id:?}).selectedOptions[0].textContent"));
        assert_eq!(chosen, format!("{value} ({found})"));
        choose(browser, &id, "");
        browser.until("all tiles again", &format!("{TILES} === 4"));
    }
    choose(browser, "of-region", "eu-west");
    choose(browser, "of-kubernetes", "v1.35.9");
    browser.until("those of both", &format!("{}.join(' ') === 'b'", names()));
    // The address is enough to see the same, also where no cluster is so any more.
    let address = browser.eval("location.href").as_str().expect("an address").to_owned();
    played.update(
        rows()
            .into_iter()
            .map(|row| if &*row.name == "b" { of("b", "us-east", "lan", "v1.36.2", "0.2.0") } else { row })
            .collect(),
    );
    browser.until("that none is so any more", &format!("{TILES} === 0"));
    browser.go(&address);
    browser.until("what is chosen", "document.getElementById('of-kubernetes')?.value === 'v1.35.9' && /No cluster matches/.test(document.getElementById('grid').innerText)");
    assert_eq!(browser.eval("document.getElementById('filters').open"), true);
    assert_eq!(
        browser.eval("document.getElementById('of-kubernetes').selectedOptions[0].textContent"),
        "v1.35.9 (1)"
    );

    // A label is searched for by its key, whatever the groups are by.
    browser.go(address.split('?').next().unwrap());
    browser.until("all tiles", &format!("{TILES} === 4"));
    for (q, is) in [
        ("tier=edge", "a b"),
        ("tier=edge-", "b"),
        ("tier=", "a b d"),
        ("tier=core d", "d"),
        ("tier=core a", ""),
        ("edge", ""),
        ("", "a b c d"),
    ] {
        browser.eval(&format!(
            "{{ const q = document.getElementById('q'); q.value = {q:?}; q.dispatchEvent(new Event('input')); }} 0"
        ));
        browser.until(
            q,
            &format!(
                "(new URLSearchParams(location.search).get('q') || '') === {q:?} && {}.join(' ') === {is:?}",
                names()
            ),
        );
    }
    assert_eq!(browser.troubles(), Vec::<String>::new());
}

/// What the headings of groups say.
const HEADINGS: &str =
    "[...document.querySelectorAll('section.group h2')].map((one) => one.textContent).join(' | ')";

#[tokio::test(flavor = "multi_thread")]
async fn groups_say_how_their_clusters_are_as_they_change() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some(mut browser) = Browser::start("groups", dir.path()) else { return };
    let _turn = TURN.read().await;
    let Some(fleet) = Fleet::start("groups", 0, &Binaries::in_one(FLEET), Options::default()).await else {
        return;
    };
    let browser = &mut browser;
    let rows = |silent: &[&str], moved: bool| -> Vec<Row> {
        let of = |(name, link): (&str, &str)| Row {
            region: if link == "lan" { "eu-west" } else { "us-east" }.into(),
            link: if moved && name == "b" { "cellular" } else { link }.into(),
            ..row(name, if silent.contains(&name) { State::Silent } else { State::Ready })
        };
        [("a", "lan"), ("b", "lan"), ("c", "lan"), ("d", "cellular")].map(of).into()
    };
    let played = Played::new(rows(&[], false)).with_tiers([("a", "edge"), ("b", "edge"), ("d", "core")]);
    played.on(browser);
    browser.go(&ticket(&fleet));
    browser.until("all tiles", &format!("{TILES} === 4"));
    for (by, before, after) in [
        (
            "region",
            "eu-west 3 of 3 ready | us-east 1 of 1 ready",
            "eu-west 2 of 3 ready; 1 silent | us-east 0 of 1 ready; 1 silent",
        ),
        (
            "link",
            "cellular 1 of 1 ready | lan 3 of 3 ready",
            "cellular 0 of 1 ready; 1 silent | lan 2 of 3 ready; 1 silent",
        ),
        (
            "label:tier",
            "core 1 of 1 ready | edge 2 of 2 ready | without this label 1 of 1 ready",
            "core 0 of 1 ready; 1 silent | edge 1 of 2 ready; 1 silent | without this label 1 of 1 ready",
        ),
    ] {
        choose(browser, "group", by);
        browser.until(by, &format!("{HEADINGS} === {before:?}"));
        // Tiles of clusters that stay where they are are the same as before.
        browser.eval("window.same = [...document.querySelectorAll('.tile')]; 0");
        played.update(rows(&["a", "d"], false));
        browser.until(&format!("two silent by {by}"), &format!("{HEADINGS} === {after:?}"));
        assert_eq!(browser.eval("window.same.every((one) => one.isConnected)"), true, "{by}");
        assert_eq!(browser.eval("document.querySelectorAll('.tile.no-news').length"), 2, "{by}");
        played.update(rows(&[], false));
        browser.until(&format!("all back by {by}"), &format!("{HEADINGS} === {before:?}"));
    }

    // Of one that joins the label is asked for at once; of all others now and then, as when somebody looks at the page again.
    let played = played.with_tiers([("a", "edge"), ("b", "edge"), ("d", "core"), ("e", "edge")]);
    let joined: Vec<Row> = rows(&[], false).into_iter().chain([row("e", State::Ready)]).collect();
    played.update(joined);
    let headings = "core 1 of 1 ready | edge 3 of 3 ready | without this label 1 of 1 ready";
    browser.until("the one that has joined, by its label", &format!("{HEADINGS} === {headings:?}"));
    let played = played.with_tiers([("a", "core"), ("b", "edge"), ("d", "core"), ("e", "edge")]);
    browser.eval("document.dispatchEvent(new Event('visibilitychange')); 0");
    let headings = "core 2 of 2 ready | edge 2 of 2 ready | without this label 1 of 1 ready";
    browser.until("another value of a label", &format!("{HEADINGS} === {headings:?}"));
    played.update(rows(&[], false));

    // Who is in another group from now on is shown there.
    choose(browser, "group", "link");
    browser.until("by link", &format!("{HEADINGS} === 'cellular 1 of 1 ready | lan 3 of 3 ready'"));
    played.update(rows(&["b"], true));
    browser.until(
        "b elsewhere",
        &format!("{HEADINGS} === 'cellular 1 of 2 ready; 1 silent | lan 2 of 2 ready'"),
    );
    let first = list(&browser.eval(&texts("section.group:nth-of-type(1) .tile b")));
    assert_eq!(first, ["b", "d"]);
    choose(browser, "group", "state");
    browser.until(
        "by state",
        "/^Ready 3 of 3 ready/.test(document.querySelector('section.group h2').textContent)",
    );
    played.update(rows(&[], true));
    browser.until("one group", "document.querySelectorAll('section.group').length === 1 && /4 of 4 ready/.test(document.querySelector('section.group h2').textContent)");
    assert_eq!(browser.troubles(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fleet_is_walked_by_keyboard_and_heard() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some(mut browser) = Browser::start("keyboard", dir.path()) else { return };
    let _turn = TURN.read().await;
    let Some(fleet) = Fleet::start("keyboard", 0, &Binaries::in_one(FLEET), Options::default()).await else {
        return;
    };
    let browser = &mut browser;
    let clusters = |changed: usize| -> Vec<Row> {
        let state = |n| if n < changed { State::Silent } else { State::Ready };
        (0..40).map(|n| row(&format!("shop-{n:02}"), state(n))).collect()
    };
    let played = Played::new(clusters(0));
    played.on(browser);
    browser.go(&ticket(&fleet));
    browser.until("all tiles", &format!("{TILES} === 40"));
    browser.until("their chip", "document.querySelectorAll('.chip').length === 1");

    // With Tab from the top: past the header and the chips to one tile, and on, for all tiles are one stop.
    let walked = walk(browser, |here| here.starts_with("shop-"));
    let wanted = [&HEADER[..], &["● 40 Ready", "q", "group", "Filters", "CSV", "JSON", "shop-00"]].concat();
    assert_eq!(walked, wanted);
    browser.press("Tab", "");
    let after = browser.eval(FOCUS);
    assert!(!after.as_str().unwrap_or_default().starts_with("shop-"), "the tiles are one stop: {after}");

    // From tile to tile; rows are as wide as the window makes them.
    browser.eval("document.querySelector('.tile').focus(); 0");
    let across = browser.eval(
        "(() => { const tiles = [...document.querySelectorAll('.tile')]; const { top } = tiles[0].getBoundingClientRect();
           return tiles.filter((one) => one.getBoundingClientRect().top === top).length; })()",
    );
    let across = across.as_u64().expect("tiles side by side");
    assert!(across > 1 && across < 40, "{across}");
    let shop = |n: u64| format!("shop-{n:02}");
    for (key, lands) in [
        ("ArrowRight", shop(1)),
        ("ArrowDown", shop(1 + across)),
        ("ArrowDown", shop(1 + 2 * across)),
        ("ArrowUp", shop(1 + across)),
        ("ArrowLeft", shop(across)),
        ("ArrowUp", shop(0)),
        ("ArrowUp", shop(0)),
        ("ArrowLeft", shop(0)),
        ("End", shop(39)),
        ("ArrowRight", shop(39)),
        ("Home", shop(0)),
    ] {
        browser.press(key, "");
        assert_eq!(browser.eval(FOCUS), lands.as_str(), "{key}");
        assert_eq!(browser.eval("document.querySelectorAll('.tile[tabindex=\"0\"]').length"), 1);
    }

    // What changes is said in one sentence, however much it is; whoever has the focus keeps it.
    assert_eq!(browser.eval("document.getElementById('said').getAttribute('aria-live')"), "polite");
    played.update(clusters(25));
    browser.until(
        "what has changed to be said",
        "document.getElementById('said').textContent.trim() === 'Changed: 25 silent.'",
    );
    assert_eq!(browser.eval(FOCUS), "shop-00");
    assert_eq!(browser.eval("document.querySelectorAll('.tile.no-news').length"), 25);

    // Also where all is drawn anew, since a cluster is not among those that are shown any more.
    browser.press("End", "");
    browser.eval("document.querySelector('nav.counts a.chip.well').click(); 0");
    browser.until("those that are ready", &format!("{TILES} === 15"));
    browser.eval("document.querySelector('.tile').focus(); 0");
    browser.press("End", "");
    played.update(clusters(30));
    browser.until("fewer", &format!("{TILES} === 10"));
    assert_eq!(browser.eval(FOCUS), "shop-39");
    assert_eq!(browser.troubles(), Vec::<String>::new());
}
