//! Asks a program whether it is an agent of some version that takes this agent's arguments, before anything depends on it.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, ErrorKind, Read},
    os::fd::OwnedFd,
    path::Path,
    process::{Command, ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use karmada_core::upgrade::Version;
use karmada_meta::text;
use parking_lot::Mutex;

/// By this the installed program tells another which of those in the folder it is.
pub const SLOT: &str = "KARMADA_AGENT_SLOT";
/// And by this that it is on trial.
pub const TRIAL: &str = "KARMADA_AGENT_TRIAL";
/// How a program of the agent's says what it is, before its version.
const NAME: &str = "karmada-agent";
/// A program says its version within this time, and whether it takes the agent's arguments.
const SAYS: Duration = Duration::from_secs(20);
/// It is looked at how it ended so often.
const ENDED: Duration = Duration::from_millis(20);
/// What it says of its arguments is not longer.
const SAID: usize = 256;
/// It is started so often again where somebody else still has it open.
const BUSY: u32 = 20;

/// Why a program is none for this agent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// This machine does not let it be run.
    Forbidden(String),
    /// It is another, or does not run.
    Not(String),
}

/// Asks a program whether it is this version of the agent, and takes these arguments.
pub(super) async fn asked(program: &Path, wanted: &Version, arguments: &[OsString]) -> Result<(), Unfit> {
    let (said, _) = answer(program, &["--version".into()]).await?;
    let words: Vec<&str> = said.split_whitespace().collect();
    match words[..] {
        [NAME, version] if version.parse::<Version>().is_ok_and(|version| version == *wanted) => {}
        [NAME, version] => {
            return Err(Unfit::Not(format!(
                "the program says that it is version {version:?}, and not {wanted}"
            )));
        }
        _ => return Err(Unfit::Not("the program does not say that it is a karmada-agent".to_owned())),
    }
    let line: Vec<OsString> = std::iter::once("check".into()).chain(arguments.iter().cloned()).collect();
    let (said, ended) = answer(program, &line).await?;
    match ended {
        Some(status) if status.success() => Ok(()),
        Some(status) => {
            let said = text::line(&said, SAID);
            Err(Unfit::Not(format!(
                "the program does not take the arguments of this agent ({status}): {said}"
            )))
        }
        None => Err(Unfit::Not(format!(
            "the program did not say within {}s whether it takes the arguments of this agent",
            SAYS.as_secs()
        ))),
    }
}

/// What a program says to a line, and how it ended if it did.
async fn answer(program: &Path, line: &[OsString]) -> Result<(String, Option<ExitStatus>), Unfit> {
    let cannot = |error: io::Error| match error.kind() {
        ErrorKind::PermissionDenied => Unfit::Forbidden(error.to_string()),
        _ => Unfit::Not(format!("the program cannot be run here: {error}")),
    };
    let mut command = Command::new(program);
    command.args(line).env_remove(SLOT).env_remove(TRIAL);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut tries = 0;
    let mut child = loop {
        match command.spawn() {
            // Another process that is just being started holds it as it was when it was written.
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy && tries < BUSY => tries += 1,
            spawned => break spawned.map_err(cannot)?,
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let child = Arc::new(Mutex::new(child));
    let waited = Arc::clone(&child);
    let waits = tokio::task::spawn_blocking(move || {
        let mut said = Vec::new();
        for from in [out.map(OwnedFd::from), err.map(OwnedFd::from)].into_iter().flatten() {
            let mut from = File::from(from);
            // What follows is read too, or it could not end.
            let _ = Read::by_ref(&mut from).take(SAID as u64).read_to_end(&mut said);
            let _ = io::copy(&mut from, &mut io::sink());
        }
        let said = String::from_utf8_lossy(&said).into_owned();
        loop {
            match waited.lock().try_wait() {
                Ok(None) => {}
                ended => return (said, ended.ok().flatten()),
            }
            #[expect(clippy::disallowed_methods, reason = "it is a thread for what blocks")]
            std::thread::sleep(ENDED);
        }
    });
    match tokio::time::timeout(SAYS, waits).await {
        Ok(ended) => Ok(ended.unwrap_or_default()),
        Err(_) => {
            // The thread sees it end.
            let _ = child.lock().kill();
            Ok(Default::default())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::PermissionsExt,
    };

    use super::*;

    #[tokio::test]
    async fn a_program_says_its_version_and_takes_the_arguments_or_why_not() {
        let dir = tempfile::tempdir().unwrap();
        let script = |name: &str, text: &str, mode: u32| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            path
        };
        let wanted = "0.6.0".parse().unwrap();
        let says = "#!/bin/sh\n[ $1 = --version ] && { echo karmada-agent 0.6.0; exit; }\n";
        for (name, text, mode, want) in [
            ("a", format!("{says}[ \"$*\" = \"check --x 1\" ]"), 0o700, Ok(())),
            ("b", "#!/bin/sh\nexit 3\n".to_owned(), 0o700, Err((false, "does not say that it is a"))),
            ("c", "#!/bin/sh\n".to_owned(), 0o600, Err((true, "ermission denied"))),
            ("d", "no program".to_owned(), 0o700, Err((false, "cannot be run here"))),
            ("e", "#!/bin/sh\necho karmada-hub 0.6.0\n".into(), 0o700, Err((false, "it is a karmada-agent"))),
            ("f", "#!/bin/sh\necho karmada-agent 0.7.0\n".into(), 0o700, Err((false, "and not 0.6.0"))),
            ("g", format!("{says}echo no --x >&2; exit 2"), 0o700, Err((false, "(exit status: 2): no --x"))),
            ("h", format!("{says}kill -9 $$"), 0o700, Err((false, "signal: 9"))),
        ] {
            let said = asked(&script(name, &text, mode), &wanted, &["--x".into(), "1".into()]).await;
            match (&said, want) {
                (Ok(()), Ok(())) => {}
                (Err(Unfit::Forbidden(why)), Err((true, part))) => {
                    assert!(why.contains(part), "{name}: {why}")
                }
                (Err(Unfit::Not(why)), Err((false, part))) => assert!(why.contains(part), "{name}: {why}"),
                _ => panic!("{name}: {said:?}"),
            }
        }
    }
}
