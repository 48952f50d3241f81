//! What tiles say: every state, everything beside it, groups, chips, by keyboard and to a screen reader.

use std::collections::BTreeSet;

use karmada_core::judge::words::{State, TEMPLATES};
use karmada_tests::fleet::{Binaries, Fleet, Options};
use karmada_ui::rows::{Row, flag};

use serde_json::json;

use crate::{
    FLEET, TILES, TURN, accessible_both, axe,
    browser::Browser,
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

/// Who has the focus: an id, a tile's name, or what it says.
const FOCUS: &str = "(() => { const here = document.activeElement; return here.id || here.dataset.name || here.textContent.trim(); })()";

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
    browser.eval("document.activeElement.blur(); scrollTo(0, 0); 0");
    let mut walked = Vec::new();
    for _ in 0..20 {
        browser.press("Tab", "");
        let here = browser.eval(FOCUS).as_str().unwrap_or_default().to_owned();
        let seen = browser.eval(
            "(() => { const here = document.activeElement; const style = getComputedStyle(here); const box = here.getBoundingClientRect();
               return here === document.body || (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2
                 && box.width > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0); })()",
        );
        assert_eq!(seen, true, "one sees that {here:?} has the focus");
        walked.push(here);
        if walked.last().is_some_and(|last| last.starts_with("shop-")) {
            break;
        }
    }
    let wanted = [
        "To the content",
        "Fleet",
        "Applications",
        "What if",
        "Hub",
        "Log out",
        "● 40 Ready",
        "q",
        "group",
        "CSV",
        "JSON",
        "shop-00",
    ];
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
