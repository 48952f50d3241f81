//! The page in a real browser, over a fleet of real processes.
//!
//! Without Chromium these tests say so and are skipped; without axe-core (`.ci/run` fetches it into target/) accessibility is
//! not looked at. Pictures are held against those that were kept: see [`pictures`].

#![allow(
    clippy::unwrap_used,
    clippy::or_fun_call,
    clippy::needless_pass_by_value,
    clippy::large_futures,
    reason = "a failing step fails the test"
)]

mod browser;
mod cluster;
mod issuer;
mod keys;
mod pictures;
mod played;
mod rules;
mod team;
mod thousands;
mod tiles;
mod waves;

use std::path::{Path, PathBuf};

use karmada_tests::{
    fleet::{Binaries, Fleet, Options, server_of},
    link::Mode,
    samples,
    wait::{PATIENCE, eventually},
};
use serde_json::json;
use tokio::sync::RwLock;

use self::{browser::Browser, pictures::picture};

const FLEET: &str = env!("CARGO_BIN_EXE_fleet");

/// Whoever measures has the machine alone, as far as these tests go.
static TURN: RwLock<()> = RwLock::const_new(());

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

/// The same in light and in dark.
fn accessible_both(browser: &mut Browser, axe: Option<&str>, view: &str) {
    accessible(browser, axe, view);
    browser.scheme("dark");
    accessible(browser, axe, &format!("{view}, dark"));
    browser.scheme("light");
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

/// Waits until an application's replicas are so placed, and nothing of it is on its way.
async fn is_at(fleet: &Fleet, name: &str, wanted: &[(String, i64)]) {
    let path = samples::binding_path(&fleet.namespace, &format!("{name}-deployment"));
    eventually("its replicas to be there", PATIENCE, || async {
        let binding = fleet.api.get(&path).await.map_err(|error| error.to_string())?;
        let leaves =
            binding["spec"]["gracefulEvictionTasks"].as_array().is_some_and(|tasks| !tasks.is_empty());
        let placed = samples::placed(&binding);
        if placed == wanted && !leaves { Ok(()) } else { Err(format!("{placed:?}, leaving: {leaves}")) }
    })
    .await;
}

const TILES: &str = "document.querySelectorAll('.tile').length";

/// A hub that is busy takes nothing away of the cluster that is shown. It is asked again when it has said, and not by each hint.
fn busy(browser: &mut Browser) {
    browser.eval(
        "window.busy = true; window.asked = 0; window.real = window.fetch;
         window.fetch = (url, options) => {
             if (!url.includes('/ui/api/cluster')) return window.real(url, options);
             window.asked += 1;
             if (!window.busy) return window.real(url, options);
             const why = JSON.stringify({ message: 'others are being answered' });
             return Promise.resolve(new Response(why, { status: 429, headers: { 'retry-after': '1' } }));
         };
         document.dispatchEvent(new Event('visibilitychange')); 0",
    );
    browser.until(
        "what is wrong, above",
        "/others are being answered/.test(document.getElementById('late').textContent)",
    );
    assert_eq!(browser.eval("Boolean(document.getElementById('sentence'))"), true, "what was known is shown");
    browser.until("another attempt", "window.asked > 1");
    browser.eval("window.busy = false; 0");
    browser.until("the view up to date", "document.getElementById('late').textContent === ''");
    browser.eval("window.fetch = window.real; 0");
    let hints = browser.eval(
        "(async () => {
            const { paced } = await import(document.querySelector('script[type=module]').src.replace('app.js', 'data.js'));
            const pause = (millis) => new Promise((done) => setTimeout(done, millis));
            const asked = [];
            const { load, hint } = paced(async () => { asked.push(performance.now()); await pause(500); }, () => {}, () => true);
            await load();
            while (asked.length < 3) { hint(); await pause(5); }
            return [asked.length, ...asked.slice(1).map((at, n) => at - asked[n] >= 1900)];
        })()",
    );
    assert_eq!(hints, json!([3, true, true]), "three times as long as an answer took it rests");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_view_shows_a_fleet_of_real_processes() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some(mut browser) = Browser::start("page", dir.path()) else { return };
    let _turn = TURN.read().await;
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
    accessible_both(browser, axe, "login");
    picture(browser, "login");

    // By an address that is good once.
    let once = ticket(&fleet);
    browser.go("about:blank");
    browser.go(&once);
    browser.until("two tiles", &format!("{TILES} === 2"));
    browser.until("both ready", "document.querySelectorAll('.tile.well').length === 2");
    assert_eq!(browser.eval("location.hash"), "", "what logs in does not stay in the address");
    browser.eval("window.mark = 'not loaded again'; 0");
    accessible_both(browser, axe, "fleet");
    browser.scheme("dark");
    picture(browser, "fleet-dark");
    browser.scheme("light");
    picture(browser, "fleet");
    // A view that has changed is seen to have: a part of it is gone, or it is another.
    let gone = |selector: &str| {
        format!("document.querySelector({selector:?}).style.setProperty('display', 'none'); 0")
    };
    let back =
        |selector: &str| format!("document.querySelector({selector:?}).style.removeProperty('display'); 0");
    for selector in [".controls", ".counts", ".group"] {
        pictures::is_not(browser, "fleet", &gone(selector));
        browser.eval(&back(selector));
    }
    pictures::is_not(browser, "cluster", "0");
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
    browser.eval("window.ages = []; 0");
    browser.until(
        "its age to go on, and to fall back when it is heard again",
        "(() => { const age = Number(/heard (\\d+) s ago/.exec(document.getElementById('sentence').textContent)[1]);
           const { ages } = window; if (age !== ages.at(-1)) ages.push(age);
           return ages.some((age, at) => at > 1 && ages[at - 1] > ages[at - 2] && age < ages[at - 1]); })()",
    );
    browser.until("its Works", "/applied/.test(document.body.innerText) && document.querySelectorAll('section table tbody tr').length > 2");
    browser.until("its link's day", "Boolean(document.querySelector('.slot.seen'))");
    accessible_both(browser, axe, "cluster");
    picture(browser, "cluster");
    busy(browser);

    // An application, from its template to both clusters, with what one gets that is not as in the template.
    click(browser, "header nav a", "Applications");
    click(browser, "main table a", "nginx");
    browser.until("its picture", "document.querySelectorAll('svg.picture .box').length >= 5");
    browser
        .until("both copies ready", "(document.body.innerText.match(/\\d of \\d ready/g) || []).length >= 2");
    browser.until("why it is there", "document.querySelectorAll('table').length >= 2");
    let application = browser.eval("location.search").as_str().expect("an address").to_owned();
    let compares = format!("Compare with the template: {two}");
    let walked = keys::walk(browser, |here| here == compares);
    let compares_one = format!("Compare with the template: {one}");
    let stops = [
        "Applications",
        "Picture of the application",
        "Copies",
        one.as_str(),
        &compares_one,
        &two,
        &compares,
    ];
    assert_eq!(walked, [&keys::HEADER[..], &stops].concat());
    browser.press("Enter", "\r");
    let difference = "[...document.querySelectorAll('h3')].find((one) => /differs from the template/.test(one.textContent))?.parentElement";
    browser.until("the difference", &format!("Boolean({difference}?.querySelector('table'))"));
    assert_eq!(
        browser.eval(&format!("[...{difference}.querySelectorAll('tbody tr')].map((row) => [...row.children].map((cell) => cell.textContent))")),
        json!([["/spec/replicas", "changed", "1", "2"]])
    );
    assert_eq!(browser.eval(&format!("{difference}.querySelector('p').textContent")), "By nginx-override.");
    accessible_both(browser, axe, "application");
    picture(browser, "application");

    // What if: by keyboard, by the address, and by what one writes into the form.
    browser.go(&format!("{hub}?view=whatif"));
    browser.until("the form", "Boolean(document.getElementById('lose'))");
    let mut walked = keys::walk(browser, |here| here == "lose");
    browser.call("Input.insertText", json!({"text": two}));
    keys::walk_on(browser, &mut walked, |here| here == "Show what would move");
    assert_eq!(walked, [&keys::HEADER[..], &["lose", "drain", "cordon", "Show what would move"]].concat());
    browser.press("Enter", "\r");
    browser.until(
        "what would move",
        "/would be|would move|would stay/.test(document.getElementById('results').innerText)",
    );
    assert_eq!(browser.eval("new URLSearchParams(location.search).get('lose')"), two.as_str());
    browser.go(&format!("{hub}?view=whatif&drain={one}"));
    browser
        .until("what would move", "/Nothing was changed|Nothing is on them/.test(document.body.innerText)");
    accessible_both(browser, axe, "what if");
    for (field, says) in
        [("lose", "would be|would move|would stay"), ("cordon", "would stay|Nothing is on them")]
    {
        browser.eval(&format!(
            "for (const id of ['lose', 'drain', 'cordon']) {{ const field = document.getElementById(id); field.value = id === {field:?} ? {two:?} : '';
               field.dispatchEvent(new Event('input', {{ bubbles: true }})); }} 0"
        ));
        assert_eq!(
            browser.eval("document.getElementById('command').textContent"),
            format!("karmada-hub what-if --{field} {two}")
        );
        click(browser, "main form button", "Show what would move");
        browser.until(
            &format!("what would become of it: {field}"),
            &format!(
                "new URLSearchParams(location.search).get({field:?}) === {two:?} && !/Calculating/.test(document.body.innerText) \
                 && /{says}/.test(document.body.innerText)"
            ),
        );
        assert_eq!(browser.eval("Boolean(new URLSearchParams(location.search).get('drain'))"), false);
        accessible_both(browser, axe, field);
    }

    // The hub.
    click(browser, "header nav a", "Hub");
    browser.until("its figures", "document.querySelectorAll('.charts li').length >= 8");
    browser.until("its start to be over", "/Evictions are not held/.test(document.body.innerText)");
    accessible_both(browser, axe, "hub");
    picture(browser, "hub");

    // Cordoned behind a question that shows the command.
    browser.go(&format!("{hub}?view=cluster&name={two}"));
    click(browser, "main button", "Cordon");
    browser.until("the question", "Boolean(document.querySelector('dialog[open] pre'))");
    assert_eq!(
        browser.eval("document.querySelector('dialog pre').textContent"),
        format!("karmada-hub cordon {two}")
    );
    accessible_both(browser, axe, "question");
    browser.press("Escape", "");
    browser.until("no question", "!document.querySelector('dialog')");
    keys::question(browser, "cordon", "Cordon");
    browser.until("cordoned", "Boolean([...document.querySelectorAll('main button')].find((one) => one.textContent === 'Uncordon'))");
    click(browser, "main button", "Uncordon");
    click(browser, "dialog button", "Uncordon");
    browser.until("not cordoned any more", "document.getElementById('cordon').textContent === 'Cordon'");

    // Drained, and brought back: each shows the command before, says what it has begun, and has it done.
    let [first, second] = [one.as_str(), two.as_str()];
    let [till, policy] =
        [samples::deployment("till", 2), samples::divided_policy("till", &[(first, 1), (second, 1)])];
    fleet.create([till, policy]).await;
    let at = |replicas: &[(&str, i64)]| -> Vec<(String, i64)> {
        replicas.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect()
    };
    let both = at(&[(first, 1), (second, 1)]);
    is_at(&fleet, "till", &both).await;
    for (button, command, begins, wanted) in [
        ("Drain", "drain", "1 object on the way to other clusters", at(&[(first, 2)])),
        ("Fail back", "failback --cluster", "1 object to be placed anew", both),
    ] {
        click(browser, "main button", button);
        browser.until("the question", "Boolean(document.querySelector('dialog[open] pre'))");
        assert_eq!(
            browser.eval("document.querySelector('dialog pre').textContent"),
            format!("karmada-hub {command} {two}")
        );
        click(browser, "dialog button", button);
        browser.until(
            "what was begun",
            &format!("/{begins}/.test(document.querySelector('#done').textContent)"),
        );
        let rows = browser.eval("document.querySelector('#done table').textContent");
        assert!(rows.as_str().is_some_and(|rows| rows.contains("till")), "{rows}");
        assert_eq!(browser.eval("document.querySelector('#problem').textContent"), "");
        accessible_both(browser, axe, button);
        is_at(&fleet, "till", &wanted).await;
        browser.go(&format!("{hub}?view=cluster&name={two}"));
        if button == "Drain" {
            // Nothing is placed on one that is cordoned.
            click(browser, "main button", "Uncordon");
            click(browser, "dialog button", "Uncordon");
            browser.until(
                "not cordoned any more",
                "document.getElementById('cordon')?.textContent === 'Cordon'",
            );
        }
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
    // The day of its link tells so, too: of each five minutes the worst.
    click(browser, ".tile", &one);
    browser.until("that it was lost", "Boolean(document.querySelector('.strip .slot.lost'))");
    browser.until("since when", "/silent for/.test(document.getElementById('sentence').textContent)");
    click(browser, "header nav a", "Fleet");
    browser.until("two tiles", &format!("{TILES} === 2"));
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
        application,
        format!("?view=whatif&lose={one}"),
        "?view=hub".to_owned(),
    ] {
        browser.go(&format!("{hub}{view}"));
        browser.until(&format!("{view} to be there"), "Boolean(document.querySelector('main h1'))");
        accessible_both(browser, axe, &format!("{view} on a phone"));
        let wide = browser.eval("document.documentElement.scrollWidth");
        assert!(wide.as_u64().unwrap() <= 320, "{view} is {wide} wide");
    }
    browser.go(&hub);
    browser.until("two tiles", &format!("{TILES} === 2"));
    browser.until("nothing to be said of the hub's start", "!/has just begun/.test(document.body.innerText)");
    picture(browser, "phone");

    // Logged out.
    click(browser, "header button", "Log out");
    browser.until("the login", "Boolean(document.getElementById('token'))");
    assert_eq!(browser.troubles(), Vec::<String>::new());
    fleet.clean_up().await;
}
