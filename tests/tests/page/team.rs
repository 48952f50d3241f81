//! What somebody sees who has rights in one namespace alone: those that `edit` gives there, Karmada's kinds among them.

use std::{fs, process::Command};

use karmada_tests::{
    fleet::{Binaries, Fleet, Options, server_of},
    samples,
};
use serde_json::json;

use crate::{FLEET, TURN, accessible_both, axe, browser::Browser, click};

#[tokio::test(flavor = "multi_thread")]
async fn a_team_sees_its_own_namespace() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some(mut browser) = Browser::start("team", dir.path()) else { return };
    let _turn = TURN.read().await;
    let file = dir.path().join("tokens.csv");
    fs::write(&file, "a-token-of-lins,lin,1,\"shop-team\"\n").unwrap();
    let mut options = Options::impatient();
    options.hub.push(format!("--token-auth-file={}", file.display()));
    let Some(fleet) = Fleet::start("team", 1, &Binaries::in_one(FLEET), options).await else { return };
    let (browser, axe) = (&mut browser, axe());
    let axe = axe.as_deref();
    let namespace = fleet.namespace.as_str();
    let member = fleet.members[0].name.as_str();
    fleet.create_namespace().await;
    let rights = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "team-edit", "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "shop-team"}]});
    let bindings = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings");
    fleet.api.post(&bindings, &rights).await.expect("rights in one namespace");

    // The team deploys by itself, as the documentation of users has it.
    let own = karmada_client::Kubeconfig::load(&fleet.kubeconfig)
        .expect("the administrator's")
        .access(None)
        .expect("a way");
    let config = dir.path().join("lin.kubeconfig");
    let authority = dir.path().join("ca.crt");
    fs::write(&authority, own.ca.unwrap_or_default()).unwrap();
    let text = json!({"apiVersion": "v1", "kind": "Config", "current-context": "hub",
        "clusters": [{"name": "hub", "cluster": {
            "server": format!("https://{}", server_of(&fleet.kubeconfig)), "certificate-authority": authority}}],
        "users": [{"name": "lin", "user": {"token": "a-token-of-lins"}}],
        "contexts": [{"name": "hub", "context": {"cluster": "hub", "user": "lin", "namespace": namespace}}]});
    fs::write(&config, text.to_string()).unwrap();
    let objects = dir.path().join("till.yaml");
    let mut policy = samples::deployment_policy("till", &[member]);
    let mut till = samples::deployment("till", 1);
    for object in [&mut policy, &mut till] {
        object["metadata"]["namespace"] = json!(namespace);
    }
    fs::write(&objects, format!("{policy}\n---\n{till}\n")).unwrap();
    let hub = |words: &[&str]| {
        let output = Command::new(FLEET)
            .arg("karmada-hub")
            .args(words)
            .arg(format!("--kubeconfig={}", config.display()))
            .output();
        let output = output.unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr),
        )
    };
    let (code, said) = hub(&["apply", "-f", &objects.display().to_string()]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = hub(&["get", "resourcebindings"]);
    assert_eq!(code, Some(0), "{said}");
    for denied in ["works", "clusters"] {
        let (code, said) = hub(&["get", denied]);
        assert!(code == Some(1) && said.contains("forbidden"), "{denied}: {said}");
    }

    let page = format!("https://{}/ui", server_of(&fleet.kubeconfig));
    browser.go(&page);
    browser.until("the login", "document.activeElement?.id === 'token'");
    browser.call("Input.insertText", json!({"text": "a-token-of-lins"}));
    browser.press("Enter", "\r");
    click(browser, "header nav a", "Applications");
    browser.until(
        "what to do",
        "/Enter a namespace above/.test(document.querySelector('main [role=alert]')?.textContent)",
    );
    accessible_both(browser, axe, "nothing without a namespace");
    browser.eval("document.getElementById('namespace').focus(); 0");
    browser.call("Input.insertText", json!({"text": namespace}));
    browser.until(
        "the application",
        "Boolean([...document.querySelectorAll('main table a')].find((one) => /till/.test(one.textContent)))",
    );
    assert_eq!(browser.eval("new URLSearchParams(location.search).get('namespace')"), namespace);
    accessible_both(browser, axe, "one namespace");
    // From here on nothing is asked for because time has passed: what is seen is seen since the hub told of it.
    browser.eval(
        "window.setInterval = () => 0; window.real = window.fetch; window.followed = [];
         window.fetch = async (url, options) => {
             const answer = await window.real(url, options);
             if (/live[?].*binding=/.test(url)) window.followed.push(answer.status);
             return answer;
         }; 0",
    );
    click(browser, "main table a", "till");
    browser.until("what the binding says", "/1 of 1 cluster reported ready/.test(document.body.innerText)");
    assert_eq!(browser.eval("/last known/.test(document.body.innerText)"), false);
    browser.until("how clusters stand", "/You may not list Clusters/.test(document.body.innerText)");
    accessible_both(browser, axe, "an application without the fleet");
    // Its changes are told to whoever may read it, though they do not see the fleet.
    browser.until("its own stream", "window.followed.includes(200)");
    let two = "[...document.querySelectorAll('main td')].some((one) => one.textContent === '2')";
    assert_eq!(browser.eval(two), false);
    let deployment = format!("/apis/apps/v1/namespaces/{namespace}/deployments/till");
    let mut till = fleet.api.get(&deployment).await.expect("the Deployment");
    till["spec"]["replicas"] = json!(2);
    fleet.api.put(&deployment, &till).await.expect("a change");
    browser.until("two replicas", two);

    // What is in the address is no command: it stands in quotes where the page shows one.
    browser.go(&format!("{page}?view=whatif&lose=member1;rm%20-rf%20~,$(id)&drain=it's"));
    browser.until(
        "the command",
        "document.getElementById('command')?.textContent === \"karmada-hub what-if --lose 'member1;rm,-rf,~,$(id)' --drain 'it'\\\\''s'\"",
    );
    assert_eq!(browser.troubles(), Vec::<String>::new());
    fleet.clean_up().await;
}
