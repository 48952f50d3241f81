//! A headless Chromium, driven by its debugging protocol over a pipe: JSON with a zero behind each message.
//!
//! The shell gives it our pipes as the descriptors 3 and 4, where it wants them; no port is opened.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use karmada_env::Env;
use serde_json::{Value, json};

/// How long an answer may take on a machine that is busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(50);

/// A browser with one page.
pub(crate) struct Browser {
    process: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: String,
    number: u64,
    env: Env,
    /// What it has told without being asked.
    events: VecDeque<Value>,
    answers: Option<Answers>,
}

/// What answers requests in place of the hub: from an address its kind of content, further headers and the body.
pub(crate) type Answers = Box<dyn FnMut(&str) -> Answer>;

/// Content type, a further header, body.
pub(crate) type Answer = (&'static str, Option<(&'static str, String)>, Vec<u8>);

/// Where Chromium is, if anywhere.
fn program() -> Option<PathBuf> {
    let named = std::env::var_os("CHROMIUM").map(PathBuf::from);
    let usual =
        ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].map(PathBuf::from);
    named.into_iter().chain(usual).find(|path| path.exists())
}

impl Browser {
    /// Starts one whose files are in `dir`; none, with a line that says so, where there is none.
    pub(crate) fn start(test: &str, dir: &Path) -> Option<Self> {
        let Some(program) = program() else {
            eprintln!(
                "{test}: skipped, there is no Chromium here (apt-get install chromium, or name one by CHROMIUM)"
            );
            return None;
        };
        let flags = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--force-device-scale-factor=1",
            "--no-first-run",
            "--disable-extensions",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-dev-shm-usage",
            // The hub's authority is its own.
            "--ignore-certificate-errors",
            // Frames as fast as they are made, so that what is measured is the work of one.
            "--disable-frame-rate-limit",
            "--disable-gpu-vsync",
            "--lang=en-GB",
            "--remote-debugging-pipe",
        ];
        let command = format!(
            "exec \"$0\" {} --user-data-dir=\"$1\" about:blank 3<&0 4>&1 0</dev/null 1>/dev/null",
            flags.join(" ")
        );
        let log = std::fs::File::create(dir.join("chromium.log")).expect("a log");
        let mut process = Command::new("sh")
            .args(["-c", &command])
            .arg(program)
            .arg(dir.join("chromium"))
            .env("TZ", "UTC")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("Chromium starts");
        let to = process.stdin.take().expect("its pipe");
        let mut out = BufReader::new(process.stdout.take().expect("its pipe"));
        let (sender, from) = channel();
        thread::spawn(move || {
            loop {
                let mut message = Vec::new();
                match out.read_until(0, &mut message) {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {}
                }
                message.pop();
                let Ok(message) = serde_json::from_slice(&message) else { return };
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let (session, env) = (String::new(), Env::system());
        let mut browser =
            Self { process, to, from, session, number: 0, env, events: VecDeque::new(), answers: None };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let target = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", target);
        browser.session = attached["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.call(domain, json!({}));
        }
        browser.size(1280, 800);
        Some(browser)
    }

    fn receive(&mut self, limit: Duration) -> Option<Value> {
        match self.from.recv_timeout(limit) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => panic!("Chromium has ended"),
        }
    }

    /// Calls a method and waits for its answer.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        let answer = self.try_call(method, params);
        assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
        answer["result"].clone()
    }

    fn try_call(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let id = self.number;
        let mut message = json!({"id": id, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = self.session.as_str().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).and_then(|()| self.to.flush()).expect("Chromium reads");
        let end = self.env.now() + PATIENCE;
        loop {
            let left = end.saturating_sub(self.env.now());
            let answer =
                self.receive(left).unwrap_or_else(|| panic!("{method}: no answer within {PATIENCE:?}"));
            if answer["id"] == id {
                return answer;
            }
            self.note(answer);
        }
    }

    fn note(&mut self, event: Value) {
        if !event["method"].is_null() {
            self.events.push_back(event);
        }
    }

    /// What a script comes to, in the page.
    pub(crate) fn eval(&mut self, script: &str) -> Value {
        let asked = json!({"expression": script, "awaitPromise": true, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", asked);
        assert!(answer["exceptionDetails"].is_null(), "{script}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].clone()
    }

    /// Goes to an address.
    pub(crate) fn go(&mut self, url: &str) {
        let gone = self.call("Page.navigate", json!({"url": url}));
        assert!(gone["errorText"].is_null(), "{url}: {gone}");
    }

    /// Looks until a script comes to something true, and says what.
    pub(crate) fn until(&mut self, what: &str, script: &str) -> Value {
        let end = self.env.now() + PATIENCE;
        loop {
            let asked = json!({"expression": script, "awaitPromise": true, "returnByValue": true});
            let value = self.call("Runtime.evaluate", asked)["result"]["value"].clone();
            if !matches!(value, Value::Null | Value::Bool(false)) && value != 0 && value != "" {
                return value;
            }
            if self.env.now() > end {
                let text = self.eval("document.body.innerText");
                panic!("{what}: not within {PATIENCE:?}; the page says: {text}");
            }
            // Its events are read meanwhile.
            self.hear();
        }
    }

    /// Answers requests for these addresses in place of the hub from now on, whenever something is waited for.
    pub(crate) fn answer(&mut self, patterns: &[&str], answers: Answers) {
        let patterns: Vec<Value> =
            patterns.iter().map(|pattern| json!({"urlPattern": format!("*{pattern}")})).collect();
        self.call("Fetch.enable", json!({"patterns": patterns}));
        self.answers = Some(answers);
    }

    /// Waits a little for what it tells by itself, and answers what it asks.
    pub(crate) fn hear(&mut self) {
        if let Some(event) = self.receive(LOOK) {
            self.note(event);
        }
        let Some(mut answers) = self.answers.take() else { return };
        while let Some(at) = self.events.iter().position(|event| event["method"] == "Fetch.requestPaused") {
            let asked = self.events.remove(at).expect("it is there");
            let (content, header, body) =
                answers(asked["params"]["request"]["url"].as_str().expect("an address"));
            let header = header.map(|(name, value)| json!({"name": name, "value": value}));
            let headers: Vec<_> =
                [json!({"name": "content-type", "value": content})].into_iter().chain(header).collect();
            let answer = json!({
                "requestId": asked["params"]["requestId"], "responseCode": 200, "responseHeaders": headers,
                "body": STANDARD.encode(body),
            });
            // Whoever asked may have gone meanwhile.
            self.try_call("Fetch.fulfillRequest", answer);
        }
        self.answers = Some(answers);
    }

    /// The size of its window.
    pub(crate) fn size(&mut self, width: u32, height: u32) {
        self.call(
            "Emulation.setDeviceMetricsOverride",
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}),
        );
    }

    /// Dark or light.
    pub(crate) fn scheme(&mut self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// Presses a key, which types `text` if it has any.
    pub(crate) fn press(&mut self, key: &str, text: &str) {
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "Escape" => 27,
            "End" => 35,
            "Home" => 36,
            "ArrowLeft" => 37,
            "ArrowUp" => 38,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            _ => 0,
        };
        for (kind, text) in [("keyDown", text), ("keyUp", "")] {
            let mut event = json!({"type": kind, "key": key, "windowsVirtualKeyCode": code});
            if !text.is_empty() {
                event["text"] = text.into();
            }
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// A picture of the window, as PNG in base64.
    pub(crate) fn picture(&mut self) -> String {
        let answer = self.call("Page.captureScreenshot", json!({"format": "png"}));
        answer["data"].as_str().expect("a picture").to_owned()
    }

    /// Errors that the page has had: exceptions, and what its policy has forbidden.
    pub(crate) fn troubles(&mut self) -> Vec<String> {
        self.eval("0");
        let is_trouble = |event: &&Value| {
            event["method"] == "Runtime.exceptionThrown"
                || (event["method"] == "Log.entryAdded"
                    && event["params"]["entry"]["level"] == "error"
                    && event["params"]["entry"]["source"] != "network")
        };
        self.events.iter().filter(is_trouble).map(|event| event["params"].to_string()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
