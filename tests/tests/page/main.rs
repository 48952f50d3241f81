//! The page in a real browser, over a fleet of real processes.
//!
//! Without Chromium these tests say so and are skipped; without axe-core (`.ci/run` fetches it into target/) accessibility is
//! not looked at. `KARMADA_TEST_PICTURES=DIR` keeps pictures of every view there.

#![allow(
    clippy::unwrap_used,
    clippy::or_fun_call,
    clippy::needless_pass_by_value,
    clippy::large_futures,
    reason = "a failing step fails the test"
)]

mod browser;
mod issuer;

use std::path::{Path, PathBuf};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use karmada_core::judge::words::{State, TEMPLATES, Told};
use karmada_tests::{
    fleet::{Binaries, Fleet, Options, server_of},
    link::Mode,
    samples,
};
use karmada_ui::{board::Board, rows::Row};
use serde_json::{Value, json};

use self::browser::Browser;

const FLEET: &str = env!("CARGO_BIN_EXE_fleet");

/// Where `.ci/run` puts axe-core.
fn axe() -> Option<String> {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/axe/node_modules/axe-core/axe.min.js");
    let file = std::env::var_os("AXE").map_or(folder, PathBuf::from);
    let text = std::fs::read_to_string(&file).ok();
    if text.is_none() {
        eprintln!("accessibility: skipped, there is no axe-core at {} (see .ci/run)", file.display());
    }
    text
}

/// Holds the page to WCAG 2.2 AA, as far as axe-core can tell.
fn accessible(browser: &mut Browser, axe: Option<&str>, view: &str) {
    let Some(axe) = axe else { return };
    browser.eval(&format!("{{ const module = undefined, exports = undefined; {axe}; }} 0"));
    let script = "(async () => {
        const found = await axe.run(document, {
            runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
            rules: { 'target-size': { enabled: true } },
        });
        const ran = ['passes', 'violations', 'incomplete', 'inapplicable'].flatMap((kind) => found[kind]).map((rule) => rule.id);
        return {
            ran: ran.length, target: ran.includes('target-size'),
            violations: found.violations.map((rule) => `${rule.id}: ${rule.help}: ` + rule.nodes.slice(0, 3)
                .map((node) => `${node.target} ${(node.failureSummary || '').replace(/\\s+/g, ' ')}`).join(' | ')),
        };
    })()";
    let found = browser.eval(script);
    assert_eq!((found["violations"].clone(), found["target"].clone()), (json!([]), json!(true)), "{view}");
    println!("{view}: {} rules of axe-core ran, none is violated", found["ran"]);
}

fn picture(browser: &mut Browser, name: &str) {
    if let Some(folder) = std::env::var_os("KARMADA_TEST_PICTURES") {
        std::fs::create_dir_all(&folder).expect("a folder");
        browser.picture(&Path::new(&folder).join(format!("{name}.png")));
    }
}

/// Clicks on what a selector finds by its text.
fn click(browser: &mut Browser, selector: &str, text: &str) {
    let script = format!(
        "(() => {{ const found = [...document.querySelectorAll({selector:?})].find((one) => one.textContent.includes({text:?}));
           if (found) found.click(); return Boolean(found); }})()"
    );
    browser.until(&format!("{selector} {text}"), &script);
}

/// An address that logs in whoever has the fleet's kubeconfig.
fn ticket(fleet: &Fleet) -> String {
    let output = fleet.command(&["ui", &format!("--kubeconfig={}", fleet.kubeconfig.display())]);
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

const TILES: &str = "document.querySelectorAll('.tile').length";

#[tokio::test(flavor = "multi_thread")]
async fn every_view_shows_a_fleet_of_real_processes() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some(mut browser) = Browser::start("page", dir.path()) else { return };
    let Some(fleet) = Fleet::start("page", 2, &Binaries::in_one(FLEET), Options::impatient()).await else {
        return;
    };
    let [one, two] = [fleet.members[0].name.clone(), fleet.members[1].name.clone()];
    fleet.create_namespace().await;
    fleet.create(samples::article([&one, &two])).await;
    let axe = axe();
    let axe = axe.as_deref();
    let browser = &mut browser;

    // Nobody is logged in.
    let hub = format!("https://{}/ui", server_of(&fleet.kubeconfig));
    browser.go(&hub);
    browser.until("the login", "Boolean(document.getElementById('token'))");
    accessible(browser, axe, "login");
    picture(browser, "login");

    // By an address that is good once.
    let once = ticket(&fleet);
    browser.go("about:blank");
    browser.go(&once);
    browser.until("two tiles", &format!("{TILES} === 2"));
    browser.until("both ready", "document.querySelectorAll('.tile.well').length === 2");
    assert_eq!(browser.eval("location.hash"), "", "what logs in does not stay in the address");
    browser.eval("window.mark = 'not loaded again'; 0");
    accessible(browser, axe, "fleet");
    browser.scheme("dark");
    accessible(browser, axe, "fleet, dark");
    picture(browser, "fleet-dark");
    browser.scheme("light");
    picture(browser, "fleet");

    // By keyboard: search, leave it, from tile to tile, into one.
    browser.press("/", "/");
    assert_eq!(browser.eval("document.activeElement.id"), "q");
    browser.eval("document.activeElement.value = 'member2'; document.activeElement.dispatchEvent(new Event('input')); 0");
    browser.until("one tile", &format!("{TILES} === 1"));
    assert_eq!(
        browser.eval("new URLSearchParams(location.search).get('q')"),
        "member2",
        "the view is in the address"
    );
    browser.press("Escape", "");
    browser.until("two tiles again", &format!("{TILES} === 2"));
    browser.eval("document.querySelector('.tile').focus(); 0");
    browser.press("ArrowRight", "");
    assert_eq!(browser.eval("document.activeElement.dataset.name"), two.as_str());
    browser.press("Home", "");
    browser.press("Enter", "\r");
    browser.until("the cluster", &format!("document.querySelector('h1').textContent === {one:?}"));
    browser.until(
        "its state",
        "/Ready, heard \\d+ s ago/.test(document.getElementById('sentence').textContent)",
    );
    browser.until("its Works", "/applied/.test(document.body.innerText) && document.querySelectorAll('section table tbody tr').length > 2");
    browser.until("its link's day", "Boolean(document.querySelector('.slot.seen'))");
    accessible(browser, axe, "cluster");
    picture(browser, "cluster");

    // An application, from its template to both clusters, with what one gets that is not as in the template.
    click(browser, "header nav a", "Applications");
    click(browser, "main table a", "nginx");
    browser.until("its picture", "document.querySelectorAll('svg.picture .box').length >= 5");
    browser
        .until("both copies ready", "(document.body.innerText.match(/\\d of \\d ready/g) || []).length >= 2");
    browser.until("why it is there", "document.querySelectorAll('table').length >= 2");
    click(browser, &format!("button[aria-label$={two}]"), "compare");
    browser.until("the difference", "Boolean([...document.querySelectorAll('h3')].find((one) => /gets that is not/.test(one.textContent)))");
    accessible(browser, axe, "application");
    picture(browser, "application");

    // What if.
    browser.go(&format!("{hub}?view=whatif&drain={one}"));
    browser
        .until("what would move", "/Nothing was changed|Nothing is on them/.test(document.body.innerText)");
    accessible(browser, axe, "what if");
    picture(browser, "whatif");

    // The hub.
    click(browser, "header nav a", "Hub");
    browser.until("its figures", "document.querySelectorAll('.charts li').length >= 8");
    accessible(browser, axe, "hub");
    picture(browser, "hub");

    // Cordoned behind a question that shows the command.
    browser.go(&format!("{hub}?view=cluster&name={two}"));
    click(browser, "main button", "Cordon");
    browser.until("the question", "Boolean(document.querySelector('dialog[open] pre'))");
    assert_eq!(
        browser.eval("document.querySelector('dialog pre').textContent"),
        format!("karmada-hub cordon {two}")
    );
    accessible(browser, axe, "question");
    browser.press("Escape", "");
    browser.until("no question", "!document.querySelector('dialog')");
    click(browser, "main button", "Cordon");
    click(browser, "dialog button", "Cordon");
    browser.until("cordoned", "Boolean([...document.querySelectorAll('main button')].find((one) => one.textContent === 'Uncordon'))");

    // Drained, and brought back: each says what it has begun, and shows the command before.
    for (button, command) in [("Drain", "drain"), ("Fail back", "failback --cluster")] {
        click(browser, "main button", button);
        browser.until("the question", "Boolean(document.querySelector('dialog[open] pre'))");
        assert_eq!(
            browser.eval("document.querySelector('dialog pre').textContent"),
            format!("karmada-hub {command} {two}")
        );
        click(browser, "dialog button", button);
        browser.until(
            "what was begun",
            "/on the way|can move|cannot move|placed anew|would come/.test(document.querySelector('#done').textContent)",
        );
        assert_eq!(browser.eval("document.querySelector('#problem').textContent"), "");
        accessible(browser, axe, button);
        browser.go(&format!("{hub}?view=cluster&name={two}"));
    }

    // A link that is cut is seen, without a reload.
    click(browser, "header nav a", "Fleet");
    browser.until("two tiles", &format!("{TILES} === 2"));
    browser.eval("window.mark = 'not loaded again'; 0");
    fleet.members[0].link.set(Mode::BlackHole);
    browser.until(
        "it is silent",
        &format!("/silent for/.test(document.querySelector('.tile[data-name={one:?}]').textContent)"),
    );
    browser.until(
        "past its grace",
        &format!("document.querySelector('.tile[data-name={one:?}]').classList.contains('no-news')"),
    );
    assert_eq!(browser.eval("window.mark"), "not loaded again");
    picture(browser, "silent");
    fleet.members[0].link.set(Mode::Pass);
    browser.until(
        "it is back",
        &format!("document.querySelector('.tile[data-name={one:?}]').classList.contains('well')"),
    );

    // On a phone, and at 400 %.
    browser.size(320, 640);
    for view in [
        String::new(),
        format!("?view=cluster&name={one}"),
        "?view=apps".to_owned(),
        "?view=whatif".to_owned(),
        "?view=hub".to_owned(),
    ] {
        browser.go(&format!("{hub}{view}"));
        browser.until(&format!("{view} to be there"), "Boolean(document.querySelector('main h1'))");
        let wide = browser.eval("document.documentElement.scrollWidth");
        assert!(wide.as_u64().unwrap() <= 320, "{view} is {wide} wide");
    }
    browser.go(&hub);
    browser.until("two tiles", &format!("{TILES} === 2"));
    picture(browser, "phone");

    // Logged out.
    click(browser, "header button", "Log out");
    browser.until("the login", "Boolean(document.getElementById('token'))");
    assert_eq!(browser.troubles(), Vec::<String>::new());
    fleet.clean_up().await;
}

/// Rows as the hub writes them of ten thousand clusters.
fn ten_thousand() -> Vec<u8> {
    let mut board = Board::new(1 << 40);
    let row = |n: usize| {
        let state = match n % 100 {
            0 => State::Api,
            1..=4 => State::Silent,
            5 => State::Held,
            6..=8 => State::Quiet,
            _ => State::Ready,
        };
        let (_, template) = *TEMPLATES.iter().find(|(of, _)| *of == state).unwrap();
        Row {
            name: format!("shop-{n:05}").into(),
            told: Told { state, at: "2026-01-03T14:02:00Z".parse().unwrap(), template },
            flags: u8::from(n % 50 == 7),
            region: ["eu-west", "eu-north", "us-east", "ap-south"][n % 4].into(),
            link: ["lan", "cellular", "satellite"][n % 3].into(),
            kubernetes: "v1.36.2".into(),
            agent: "0.1.0".into(),
            certificate: None,
            waiting: 0,
            failed: 0,
        }
    };
    board.update((0..10_000).map(row).collect());
    board.whole(json!({"hub": "0.1.0"}))
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_clusters_stay_fluid() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some(mut browser) = Browser::start("ten thousand", dir.path()) else { return };
    let Some(fleet) = Fleet::start("pages", 0, &Binaries::in_one(FLEET), Options::default()).await else {
        return;
    };
    let once = ticket(&fleet);
    let browser = &mut browser;
    browser.call(
        "Fetch.enable",
        json!({"patterns": [{"urlPattern": "*/ui/api/fleet"}, {"urlPattern": "*/ui/live*"}]}),
    );
    browser.go(&once);
    let asked = browser.event("the fleet to be asked for", |event| {
        event["method"] == "Fetch.requestPaused"
            && event["params"]["request"]["url"].as_str().is_some_and(|url| url.ends_with("/ui/api/fleet"))
    });
    browser.call(
        "Fetch.fulfillRequest",
        json!({
            "requestId": asked["params"]["requestId"], "responseCode": 200,
            "responseHeaders": [
                {"name": "content-type", "value": "application/json"},
                {"name": "x-karmada-now", "value": "1767449000000"},
            ],
            "body": STANDARD.encode(ten_thousand()),
        }),
    );
    browser.until("all tiles", &format!("{TILES} === 10000"));
    let frames = browser.eval(
        "(async () => {
            const times = [];
            const frame = () => new Promise(requestAnimationFrame);
            await frame();
            let before = performance.now();
            const step = Math.max(40, document.documentElement.scrollHeight / 400);
            for (let n = 0; n < 400; n += 1) {
                scrollBy(0, step);
                await frame();
                const now = performance.now();
                times.push(now - before);
                before = now;
            }
            times.sort((a, b) => a - b);
            const at = (share) => times[Math.floor(times.length * share)];
            return { median: at(0.5), p95: at(0.95), most: at(0.999), high: document.documentElement.scrollHeight, end: scrollY };
        })()",
    );
    println!(
        "10,000 tiles, 400 steps to the end: a frame takes {:.1} ms (median), {:.1} ms (95 of 100), {:.1} ms at most",
        frames["median"].as_f64().unwrap(),
        frames["p95"].as_f64().unwrap(),
        frames["most"].as_f64().unwrap()
    );
    assert!(frames["end"].as_f64().unwrap() > 10_000.0, "it was scrolled: {frames}");
    // Counts add up; a search finds one; groups are there.
    let sums = browser.eval(
        "[...document.querySelectorAll('.chip.well b, .chip.no-news b, .chip.waits b, .chip.acts b')].reduce((n, b) => n + Number(b.textContent.replace(/\\D/g, '')), 0)",
    );
    assert_eq!(sums, 10_000);
    let took = browser.eval(
        "(async () => {
            const begun = performance.now();
            const q = document.getElementById('q');
            q.value = 'shop-04242';
            q.dispatchEvent(new Event('input'));
            while (document.querySelectorAll('.tile').length !== 1) await new Promise(requestAnimationFrame);
            return performance.now() - begun;
        })()",
    );
    println!("a search among 10,000 shows its one tile after {:.0} ms", took.as_f64().unwrap());
    browser.eval("scrollTo(0, 0); document.getElementById('q').value = ''; document.getElementById('q').dispatchEvent(new Event('input')); const g = document.getElementById('group'); g.value = 'region'; g.dispatchEvent(new Event('change')); 0");
    browser.until("four groups", "document.querySelectorAll('section.group h2').length === 4");
    picture(browser, "ten-thousand");
    let trouble: Vec<Value> = browser.troubles().into_iter().map(Value::from).collect();
    assert_eq!(trouble, Vec::<Value>::new());
}
