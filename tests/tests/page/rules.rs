//! Who gets in by the form, and what the page's policy keeps out in a browser.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use karmada_tests::fleet::{Binaries, Fleet, Options, server_of};
use serde_json::json;

use crate::{FLEET, TURN, browser::Browser, click, played::list};

#[tokio::test(flavor = "multi_thread")]
async fn people_log_in_by_the_form() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some(mut browser) = Browser::start("login", dir.path()) else { return };
    let _turn = TURN.read().await;
    let file = dir.path().join("tokens.csv");
    fs::write(&file, "a-token-of-adas,ada,1,\"system:masters\"\n").unwrap();
    let mut options = Options::default();
    options.hub.push(format!("--token-auth-file={}", file.display()));
    let Some(fleet) = Fleet::start("login", 0, &Binaries::in_one(FLEET), options).await else { return };
    let browser = &mut browser;
    let hub = format!("https://{}/ui", server_of(&fleet.kubeconfig));
    browser.go(&hub);
    browser.until("the login", "document.activeElement?.id === 'token'");

    // As it is typed: one that the hub does not know, then one that it knows.
    let type_in = |browser: &mut Browser, token: &str| {
        browser.call("Input.insertText", json!({"text": token}));
        browser.press("Enter", "\r");
    };
    type_in(browser, "nonsense");
    browser.until(
        "why not",
        "/does not know this token/.test(document.querySelector('[role=alert].acts').textContent)",
    );
    assert_eq!(
        browser.eval("[document.activeElement.id, document.activeElement.selectionEnd]"),
        json!(["token", 8]),
        "what was wrong is typed over"
    );
    type_in(browser, "a-token-of-adas");
    browser.until("the fleet", "document.querySelector('h1')?.textContent === 'Fleet'");
    assert_eq!(browser.eval("document.querySelector('.who span').textContent"), "ada");
    assert_eq!(browser.eval("document.cookie"), "", "no script sees the session");
    click(browser, "header button", "Log out");
    browser.until("the login", "Boolean(document.getElementById('token'))");

    // Whose browser shows a certificate is offered to be who it says, and asks for no token then.
    browser.answer(
        &["/ui/session"],
        Box::new(|_| {
            ("application/json", None, json!({"user": "grace", "session": false}).to_string().into_bytes())
        }),
    );
    browser.go(&hub);
    browser.until("the offer", "/Your browser shows a certificate of grace/.test(document.body.innerText)");
    browser.eval("window.asked = []; { const fetch = window.fetch; window.fetch = (path, options) => { window.asked.push([path, options?.method, options?.body]); return fetch(path, options); }; } 0");
    click(browser, "main button", "Log in as grace");
    browser.until("what was asked", "window.asked.length > 0");
    assert_eq!(browser.eval("window.asked[0]"), json!(["/ui/session", "POST", "{}"]));
}

/// A server elsewhere that lets everybody use what it has; how many have come.
fn elsewhere() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (port, came) = (listener.local_addr().unwrap().port(), Arc::<AtomicUsize>::default());
    let count = came.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            count.fetch_add(1, Ordering::SeqCst);
            // A browser connects before it asks: nobody waits for that one.
            thread::spawn(move || {
                let mut asked = [0; 4096];
                if stream.read(&mut asked).unwrap_or_default() == 0 {
                    return;
                }
                let body = "window.foreign = true";
                let head = "HTTP/1.1 200 OK\r\naccess-control-allow-origin: *\r\ncross-origin-resource-policy: cross-origin\r\n\
                            content-type: text/javascript\r\nconnection: close\r\n";
                let _ = write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len());
            });
        }
    });
    (port, came)
}

/// What somebody's words in the page would have to do to be more than words: each is kept from it.
#[tokio::test(flavor = "multi_thread")]
async fn the_policy_keeps_out_what_is_not_the_pages() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some(mut browser) = Browser::start("policy", dir.path()) else { return };
    let _turn = TURN.read().await;
    let Some(fleet) = Fleet::start("policy", 0, &Binaries::in_one(FLEET), Options::default()).await else {
        return;
    };
    let browser = &mut browser;
    let (port, came) = elsewhere();
    let foreign = format!("http://127.0.0.1:{port}");

    // The server elsewhere is there, and would do it: a page without a policy runs its script.
    browser.go("about:blank");
    // Each look tries it again: the first may be of the page before.
    browser.until(
        "a script from elsewhere",
        &format!(
            "(() => {{ if (window.foreign) return true;
                const script = document.createElement('script'); script.src = '{foreign}/'; document.documentElement.append(script);
                return false; }})()"
        ),
    );
    let before = came.load(Ordering::SeqCst);
    assert!(before > 0);

    browser.go(&format!("https://{}/ui", server_of(&fleet.kubeconfig)));
    browser.until("the login", "Boolean(document.getElementById('token'))");
    browser.eval("window.kept = []; addEventListener('securitypolicyviolation', (event) => window.kept.push(event.effectiveDirective)); 0");
    // What each of them is kept out by. Somebody who may make scripts of texts gets no further.
    let trusted = "trustedTypes.createPolicy(`any${window.policies = (window.policies || 0) + 1}`, { createScript: (text) => text, createScriptURL: (text) => text })";
    for (what, script, directive) in [
        (
            "a text as a script",
            "{ const s = document.createElement('script'); s.append('window.inline = true'); document.body.append(s); }",
            "require-trusted-types-for",
        ),
        (
            "an inline script",
            "{ const s = document.createElement('script'); s.textContent = TRUSTED.createScript('window.inline = true'); document.body.append(s); }",
            "script-src-elem",
        ),
        (
            "a handler in an attribute",
            "{ const b = document.createElement('button'); b.setAttribute('onclick', TRUSTED.createScript('window.inline = true')); document.body.append(b); b.click(); }",
            "script-src-attr",
        ),
        (
            "a script from elsewhere",
            "{ const s = document.createElement('script'); s.src = TRUSTED.createScriptURL(ELSEWHERE + '/s.js'); document.body.append(s); }",
            "script-src-elem",
        ),
        ("a module from elsewhere", "import(ELSEWHERE + '/m.js').catch(() => {})", "script-src-elem"),
        ("a request elsewhere", "fetch(ELSEWHERE + '/f').catch(() => {})", "connect-src"),
        (
            "a picture from elsewhere",
            "{ const i = new Image(); i.src = ELSEWHERE + '/i.png'; document.body.append(i); }",
            "img-src",
        ),
        (
            "a style from elsewhere",
            "{ const l = document.createElement('link'); l.rel = 'stylesheet'; l.href = ELSEWHERE + '/s.css'; document.head.append(l); }",
            "style-src-elem",
        ),
        (
            "a style in the page",
            "{ const s = document.createElement('style'); s.append('body { display: none }'); document.head.append(s); }",
            "style-src-elem",
        ),
        (
            "a frame",
            "{ const f = document.createElement('iframe'); f.src = ELSEWHERE + '/'; document.body.append(f); }",
            "frame-src",
        ),
        (
            "markup from text",
            "document.body.insertAdjacentHTML('beforeend', '<b id=made>x</b>')",
            "require-trusted-types-for",
        ),
        (
            "a base elsewhere",
            "{ const b = document.createElement('base'); b.href = ELSEWHERE; document.head.append(b); }",
            "base-uri",
        ),
    ] {
        browser.eval(&format!(
            "window.kept = []; try {{ const ELSEWHERE = '{foreign}'; const TRUSTED = {trusted}; {script}; }} catch (why) {{ window.threw = String(why); }} 0"
        ));
        browser.until(what, "window.kept.length > 0");
        let kept = list(&browser.eval("window.kept"));
        assert!(kept.iter().any(|one| one == directive), "{what}: {kept:?}");
    }
    assert_eq!(
        browser.eval("[window.inline || null, window.foreign || null, Boolean(document.getElementById('made')), document.body.offsetHeight > 0]"),
        json!([null, null, false, true])
    );
    assert_eq!(came.load(Ordering::SeqCst), before, "nothing was asked of anybody else");
}
