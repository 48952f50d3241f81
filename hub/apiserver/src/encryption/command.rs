//! Keys that somebody else has: a command that is asked for them, in the words of Kubernetes' KMS version 2.
//!
//! The hub makes a data key when it starts, or when the command has another key, and lets the command encrypt that. What comes
//! of it stands with each value, so that a value can be read by whoever has the command. The
//! command is run when the hub starts and once a minute, never for a request: a KMS that cannot be reached holds up nobody but a hub
//! that starts.
//!
//! It is run as `COMMAND encrypt|decrypt|status`, is given one JSON object on its standard input and answers with one on its
//! standard output; bytes are base64. What it writes to its standard error is shown when it fails.
//!
//! ```text
//!   status   {}                                                → {"version":"v2","healthz":"ok","keyId":"…"}
//!   encrypt  {"uid":"…","plaintext":"…"}                       → {"ciphertext":"…","keyId":"…"}
//!   decrypt  {"uid":"…","ciphertext":"…","keyId":"…"}          → {"plaintext":"…"}
//! ```
//!
//! A command and no socket with gRPC, as kube-apiserver has it: the hub speaks no gRPC, and a few lines of shell around
//! `age`, `tpm2_unseal`, `vault` or a cloud's own tool are what a site has.

use std::{
    io::{Read as _, Write as _},
    path::PathBuf,
    process::{Child, Command as Process, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::sealed::{Root, Wrapped, random};

/// The largest answer that is read.
const ANSWER: u64 = 64 << 10;
/// The longest key id and the largest wrapped key, as in kube-apiserver.
const LONGEST: usize = 1024;
/// How much of what it says of its failure is shown.
const SHOWN: usize = 300;

/// A command that has keys.
#[derive(Debug)]
pub struct Command {
    name: String,
    path: PathBuf,
    timeout: Duration,
}

impl Command {
    /// One that is not run yet.
    pub fn new(name: String, path: PathBuf, timeout: Duration) -> Self {
        Self { name, path, timeout }
    }

    /// Its provider's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which key it encrypts with.
    ///
    /// # Errors
    /// When it does not say, or is not well.
    pub fn key_id(&self) -> Result<String, String> {
        let answer = self.ask("status", &json!({}))?;
        match answer["healthz"].as_str() {
            Some("ok") => {}
            other => {
                return Err(
                    self.failed("status", &format!("healthz is {:?}, not \"ok\"", other.unwrap_or_default()))
                );
            }
        }
        self.text("status", &answer, "keyId")
    }

    /// A new data key.
    ///
    /// # Errors
    /// When the command does not encrypt it.
    pub fn data_key(&self) -> Result<Root, String> {
        let none = |error: super::sealed::NoRandomness| error.to_string();
        let secret: [u8; 32] = random().map_err(none)?;
        let answer = self.ask("encrypt", &json!({"uid": uid()?, "plaintext": STANDARD.encode(secret)}))?;
        let key_id = self.text("encrypt", &answer, "keyId")?;
        let told = self.key_id()?;
        if told != key_id {
            let why =
                format!("its keyId is {key_id:?}, and that of status is {told:?}: they must be the same");
            return Err(self.failed("encrypt", &why));
        }
        let key = self.bytes("encrypt", &answer, "ciphertext")?;
        if key.is_empty() || key.len() > LONGEST {
            return Err(self.failed("encrypt", &format!("ciphertext must have 1 to {LONGEST} bytes")));
        }
        let root = Root::of_data_key(&self.name, &secret, Wrapped { key_id, key });
        // A command that cannot read what it writes would lose everything.
        let again = root.wrapped().map(|wrapped| self.unwrap(wrapped)).transpose()?;
        match again.is_some_and(|again| again.fingerprint() == root.fingerprint()) {
            true => Ok(root),
            false => Err(self.failed("decrypt", "it does not give what was encrypted")),
        }
    }

    /// A data key again.
    ///
    /// # Errors
    /// When the command does not decrypt it.
    pub fn unwrap(&self, wrapped: &Wrapped) -> Result<Root, String> {
        let Wrapped { key_id, key } = wrapped;
        let request = json!({"uid": uid()?, "ciphertext": STANDARD.encode(key), "keyId": key_id});
        let answer = self.ask("decrypt", &request)?;
        Ok(Root::of_data_key(&self.name, &self.bytes("decrypt", &answer, "plaintext")?, wrapped.clone()))
    }

    fn failed(&self, what: &str, why: &str) -> String {
        format!("kms {:?}: {} {what}: {why}", self.name, self.path.display())
    }

    fn text(&self, what: &str, answer: &Value, field: &str) -> Result<String, String> {
        match answer[field].as_str() {
            Some(text) if !text.is_empty() && text.len() <= LONGEST => Ok(text.to_owned()),
            _ => Err(self.failed(what, &format!("its answer has no {field} of 1 to {LONGEST} bytes"))),
        }
    }

    fn bytes(&self, what: &str, answer: &Value, field: &str) -> Result<Vec<u8>, String> {
        let bytes = answer[field].as_str().and_then(|text| STANDARD.decode(text.trim()).ok());
        bytes.ok_or_else(|| self.failed(what, &format!("its answer has no {field} in base64")))
    }

    fn ask(&self, what: &str, request: &Value) -> Result<Value, String> {
        let failed = |why: &str| self.failed(what, why);
        let mut process = Process::new(&self.path);
        process.arg(what).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = process.spawn().map_err(|error| failed(&error.to_string()))?;
        let done = self.talk(&mut child, request.to_string());
        if done.is_err() {
            // It may have ended meanwhile.
            let _ = child.kill();
        }
        let status = child.wait().map_err(|error| failed(&error.to_string()))?;
        let (answer, said) = done.map_err(|why| failed(&why))?;
        if !status.success() {
            let said: String = String::from_utf8_lossy(&said).trim().chars().take(SHOWN).collect();
            return Err(failed(&format!("{status}: {said}")));
        }
        serde_json::from_slice(&answer).map_err(|error| failed(&format!("its answer is not JSON: {error}")))
    }

    /// Its answer and what it says beside it, if it comes in time.
    fn talk(&self, child: &mut Child, request: String) -> Result<(Vec<u8>, Vec<u8>), String> {
        let (Some(mut input), Some(output), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err("it has no standard input and output".to_owned());
        };
        // Threads of their own: it may read, write and linger as it likes. They end with it.
        let (sender, answers) = mpsc::channel();
        thread::spawn(move || {
            // One that does not read it says by itself what it thinks of that.
            let _ = input.write_all(request.as_bytes());
        });
        let said = sender.clone();
        thread::spawn(move || {
            let mut text = Vec::new();
            let _ = errors.take(ANSWER).read_to_end(&mut text);
            let _ = said.send((false, text));
        });
        thread::spawn(move || {
            let mut text = Vec::new();
            let _ = output.take(ANSWER).read_to_end(&mut text);
            let _ = sender.send((true, text));
        });
        let (mut answer, mut said) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            // One may come late and the other later: twice the time at most.
            match answers.recv_timeout(self.timeout) {
                Ok((true, text)) => answer = text,
                Ok((false, text)) => said = text,
                Err(_) => return Err(format!("no answer within {} s", self.timeout.as_secs_f32())),
            }
        }
        Ok((answer, said))
    }
}

/// Names a call, for the command's log.
fn uid() -> Result<String, String> {
    let bytes: [u8; 16] = random().map_err(|error| error.to_string())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
