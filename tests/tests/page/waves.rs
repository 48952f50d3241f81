//! What goes out in waves, as it goes: a change of an application, and a version of the agents; and who has changed what.

use std::fs;

use karmada_tests::{
    fleet::{Binaries, Fleet, Options, server_of},
    samples,
};
use serde_json::json;

use crate::{FLEET, TURN, accessible_both, axe, browser::Browser, click, keys, ticket};

const AUDIT: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n";

/// Where the page tells of it.
const WAVES: &str = "[...document.querySelectorAll('main section')].find((one) => one.querySelector('h2')?.textContent === 'Rollout')";
const WORKS: &str = "Number(/(\\d+) applied, 0 waiting, 0 failed/.exec(document.body.innerText)?.[1] || 0)";
const UPGRADE: &str = "[...document.querySelectorAll('main section')].find((one) => one.querySelector('h2')?.textContent === 'Upgrade of agents')";
const CHANGES: &str = "[...document.querySelectorAll('main section')].find((one) => one.querySelector('h2')?.textContent === 'Last changes by people')";

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_seen_to_go_out_in_waves() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some(mut browser) = Browser::start("waves", dir.path()) else { return };
    let _turn = TURN.read().await;
    let policy = dir.path().join("audit.yaml");
    fs::write(&policy, AUDIT).unwrap();
    let mut options = Options::impatient();
    options.hub.extend([
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", dir.path().join("audit.log").display()),
    ]);
    let Some(fleet) = Fleet::start("waves", 2, &Binaries::in_one(FLEET), options).await else { return };
    let (browser, axe) = (&mut browser, axe());
    let axe = axe.as_deref();
    let hub = format!("https://{}/ui?view=hub", server_of(&fleet.kubeconfig));
    fleet.create_namespace().await;
    let [one, two] = [fleet.members[0].name.as_str(), fleet.members[1].name.as_str()];
    let mut waves = samples::deployment_policy("till", &[one, two]);
    waves["metadata"]["annotations"] = json!({
        "policy.karmada.io/rollout": "50% soak=0; 100% approve soak=0",
        "policy.karmada.io/rollout-gate": "deadline=10m",
    });

    // The list of applications is brought up to date by itself.
    browser.go(&ticket(&fleet));
    click(browser, "header nav a", "Applications");
    browser.until(
        "the list",
        "Boolean(document.querySelector('main #q')) && !document.querySelector('main [aria-busy]')",
    );
    fleet.create([samples::deployment("till", 1), waves]).await;
    browser.until(
        "it to be placed",
        "Boolean([...document.querySelectorAll('main table a')].find((one) => /till/.test(one.textContent)))",
    );
    // From here on nothing is asked for because time has passed: what is seen is seen since the hub told of it.
    browser.eval("window.setInterval = () => 0; 0");
    click(browser, "main table a", "till");
    browser.until("both copies ready", "(document.body.innerText.match(/1 of 1 ready/g) || []).length >= 2");
    browser.eval("window.mark = 'not loaded again'; 0");

    // A change goes to the first wave, and waits there for somebody's word. The page tells of it by itself.
    let path = format!("/apis/apps/v1/namespaces/{}/deployments/till", fleet.namespace);
    let mut till = fleet.api.get(&path).await.expect("the Deployment");
    till["spec"]["template"]["spec"]["containers"][0]["image"] = json!("nginx:2");
    fleet.api.put(&path, &till).await.expect("a change");
    browser.until("the second wave to wait", &format!("/AwaitsApproval/.test({WAVES}?.textContent)"));
    let rows = browser.eval(&format!(
        "[...{WAVES}.querySelectorAll('tbody tr')].map((row) => [...row.children].map((cell) => cell.textContent))"
    ));
    assert_eq!(rows.as_array().map(Vec::len), Some(2), "{rows}");
    assert!(rows[0][0].as_str().is_some_and(|wave| wave.starts_with("1: ")) && rows[0][1] == "1", "{rows}");
    assert!(rows[0][2].as_str().is_some_and(|state| state.starts_with("begun ")), "{rows}");
    assert_eq!(rows[1][2], "waits for its turn, and for an approval");
    let command = browser.eval(&format!("{WAVES}.querySelector('pre').textContent"));
    assert_eq!(command, format!("karmada-hub rollout resume deployment/till -n {}", fleet.namespace));
    accessible_both(browser, axe, "a rollout");
    // Whoever is on it by keyboard stays there when the view is drawn anew.
    browser.eval(&format!(
        "window.command = {WAVES}.querySelector('pre'); window.command.focus(); document.dispatchEvent(new Event('visibilitychange')); 0"
    ));
    browser.until("the view drawn anew", "!window.command.isConnected");
    assert_eq!(browser.eval("document.activeElement.textContent"), command);

    // The command that it shows is what it waits for.
    let kubeconfig = format!("--kubeconfig={}", fleet.kubeconfig.display());
    let mut words: Vec<&str> = command.as_str().unwrap().split(' ').skip(1).collect();
    words.push(&kubeconfig);
    fleet.command(&words);
    browser.until("all to have it", &format!("/Complete/.test({WAVES}.textContent)"));
    assert_eq!(
        browser.eval(&format!("{WAVES}.querySelector('pre')")),
        json!(null),
        "there is nothing to say any more"
    );
    assert_eq!(browser.eval("window.mark"), "not loaded again");

    // So is what runs on a cluster.
    click(browser, "main table a", one);
    let before = browser.until("its Works", WORKS).as_u64().expect("a number");
    fleet.create([samples::config_map("more", "a"), samples::config_map_policy("more", &[one])]).await;
    browser.until("one Work more", &format!("{WORKS} > {before}"));
    assert_eq!(browser.eval("window.mark"), "not loaded again");

    // A version for the agents, of which none takes any from the hub.
    fleet.command(&["upgrade", "agents", "--to=0.1.0", "--wave=50%,100%", &kubeconfig]);
    browser.go(&hub);
    browser.until("the hub", "document.querySelector('h1')?.textContent === 'Hub'");
    browser.until(
        "the upgrade",
        &format!(
            "/0\\.1\\.0/.test({UPGRADE}?.textContent) && Boolean({UPGRADE}.querySelector('p').textContent)"
        ),
    );
    browser.until("what the hub makes of it", &format!("!/has not looked/.test({UPGRADE}.textContent)"));
    println!("an upgrade that nobody takes: {}", browser.eval(&format!("{UPGRADE}.innerText")));

    // Who has changed what, the last first.
    browser.until("the last changes", &format!("{CHANGES}?.querySelectorAll('tbody tr').length > 2"));
    let told = browser.eval(&format!("{CHANGES}.innerText"));
    let told = told.as_str().expect("a text");
    for wanted in ["deployments", "till", "agent-upgrade", "update"] {
        assert!(told.contains(wanted), "{wanted}: {told}");
    }
    // The hub tells of them, too: from here on nothing is asked for because time has passed.
    browser.eval("window.setInterval = () => 0; 0");
    click(browser, "header nav a", "Applications");
    // What was typed just before somebody left changes no other view's address.
    browser.until(
        "the search field",
        "Boolean(document.querySelector('main #q')) && !document.querySelector('main [aria-busy]')",
    );
    browser.eval(
        "{ const q = document.querySelector('main #q'); q.value = 'till'; q.dispatchEvent(new Event('input')); \
         [...document.querySelectorAll('header nav a')].find((one) => one.textContent === 'Hub').click(); \
         setTimeout(() => { window.waited = true; }, 600); } 0",
    );
    browser.until("the time to pass", "window.waited === true");
    assert_eq!(browser.eval("location.search"), "?view=hub");
    browser.until("the last changes", &format!("{CHANGES}?.querySelectorAll('tbody tr').length > 2"));
    fleet.create([samples::config_map("seen-at-once", "a")]).await;
    browser.until("the change", &format!("/seen-at-once/.test({CHANGES}.textContent)"));
    fleet.command(&["upgrade", "agents", "--to=0.1.0", "--wave=tier=pilot,100%", &kubeconfig]);
    browser.until("the new request", &format!("/tier=pilot/.test({UPGRADE}?.textContent)"));
    accessible_both(browser, axe, "upgrade and changes");
    // By keyboard through all of it. Waves and their command are there when they are made; who is silent is named.
    let mut walked = keys::walk(browser, |here| here == "Last changes");
    walked.retain(|stop| ![one, two, "Waves", "next"].contains(&stop.as_str()));
    assert_eq!(walked, [&keys::HEADER[..], &["Logged in here", "Last changes"]].concat());
    assert_eq!(browser.troubles(), Vec::<String>::new());
    fleet.clean_up().await;
}
