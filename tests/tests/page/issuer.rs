//! People log in at an OpenID provider that others have written and certified: npm's `oidc-provider`, in Node.
//!
//! `.ci/run` fetches it into target/; without it, or without Node or Chromium, the test says so and is skipped.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

use karmada_tests::fleet::{Binaries, Fleet, Options, server_of};
use rcgen::{CertificateParams, KeyPair, SanType};
use serde_json::json;

use crate::{FLEET, browser::Browser, click};

/// The provider's process, and what it says.
struct Provider(Child, BufReader<ChildStdout>);

impl Provider {
    fn start(dir: &Path) -> Option<Self> {
        let usual =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/issuer/node_modules/oidc-provider");
        let folder = std::env::var_os("OIDC_PROVIDER").map_or(usual, PathBuf::from);
        if !folder.exists() {
            eprintln!("issuer: skipped, there is no oidc-provider at {} (see .ci/run)", folder.display());
            return None;
        }
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::IpAddress([127, 0, 0, 1].into())];
        let certificate = params.self_signed(&key).unwrap();
        fs::write(dir.join("issuer.key"), key.serialize_pem()).unwrap();
        fs::write(dir.join("issuer.crt"), certificate.pem()).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page/issuer.mjs");
        let started = Command::new("node")
            .arg(script)
            .args([dir.join("issuer.key"), dir.join("issuer.crt"), folder])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(dir.join("issuer.log")).unwrap())
            .spawn();
        match started {
            Ok(mut process) => {
                let out = BufReader::new(process.stdout.take().unwrap());
                Some(Self(process, out))
            }
            Err(error) => {
                eprintln!("issuer: skipped, Node does not start: {error}");
                None
            }
        }
    }

    /// The next line that it says.
    fn says(&mut self) -> String {
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Tells it where the hub is.
    fn serves(&mut self, hub: &str) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{hub}").unwrap();
        assert_eq!(self.says(), "ready");
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Goes to the issuer's page and gives a name there.
fn log_in(browser: &mut Browser, hub: &str, name: &str) {
    browser.go(hub);
    click(browser, "a.button", "Log in at 127.0.0.1:");
    browser.until("the issuer's page", "Boolean(document.querySelector('input[name=login]'))");
    browser.eval(&format!(
        "document.querySelector('input[name=login]').value = {name:?};
         document.querySelector('input[name=password]').value = 'any'; document.querySelector('form').submit(); 0"
    ));
    browser.until(
        "what it asks",
        "!document.querySelector('input[name=login]') && Boolean(document.querySelector('form button[type=submit]'))",
    );
    browser.eval("document.querySelector('form').submit(); 0");
    browser.until("the hub's page", &format!("location.href.startsWith({hub:?})"));
}

#[tokio::test(flavor = "multi_thread")]
async fn people_log_in_at_an_issuer_that_others_have_written() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some(mut browser) = Browser::start("issuer", dir.path()) else { return };
    let Some(mut provider) = Provider::start(dir.path()) else { return };
    let port = provider.says();
    fs::write(dir.path().join("secret"), "a secret: with + and %\n").unwrap();
    let mut options = Options::default();
    options.hub.extend([
        format!("--oidc-issuer-url=https://127.0.0.1:{port}"),
        "--oidc-client-id=hub".to_owned(),
        format!("--oidc-client-secret-file={}", dir.path().join("secret").display()),
        format!("--oidc-ca-file={}", dir.path().join("issuer.crt").display()),
        "--oidc-username-claim=email".to_owned(),
        "--oidc-login-scopes=email".to_owned(),
    ]);
    let Some(fleet) = Fleet::start("issuer", 0, &Binaries::in_one(FLEET), options).await else { return };
    let server = server_of(&fleet.kubeconfig).to_string();
    let may_view = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "jane"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane@example.com"}]});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    fleet.api.post(bindings, &may_view).await.unwrap();
    let hub = format!("https://{server}/ui");
    let browser = &mut browser;

    // The hub has not heard the issuer yet: the page offers no login there, and later it does.
    browser.go(&hub);
    browser.until("the login", "Boolean(document.getElementById('token'))");
    assert_eq!(browser.eval("document.querySelectorAll('a.button').length"), 0);
    provider.serves(&server);
    browser.until(
        "the hub to hear the issuer",
        "fetch('/ui/session').then((answer) => answer.json()).then((found) => Boolean(found.issuer))",
    );

    // Whose address is not verified is nobody.
    log_in(browser, &hub, "mallory");
    browser.until("why not", "/You are not logged in/.test(document.body.innerText)");
    assert_eq!(browser.eval("Boolean(document.getElementById('token'))"), json!(true));

    // In a browser that nobody has used there.
    browser.call("Network.clearBrowserCookies", json!({}));
    log_in(browser, &hub, "jane");
    browser.until("jane", "/jane@example\\.com/.test(document.querySelector('header').innerText)");
    assert_eq!(browser.eval("location.search + location.hash"), "", "no code stays in the address");
}
