//! Which program is the agent, where it is no Pod: the installed one starts first, and lets another run in its stead.
//!
//! ```text
//!   supervisor ─▶ installed program ─ what is kept (core: upgrade::slots) ─┬─▶ goes on itself
//!        ▲                                                                 └─▶ exec ─▶ a program of the folder, as the same process
//!        └── it ends: of itself, by its own clock while it is on trial, or killed by the supervisor's watchdog
//! ```

use std::{
    ffi::OsString,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, ExitCode},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use karmada_core::upgrade::{
    Version,
    slots::{Runs, Slots},
    trial::PROOF,
};

use super::{Args, Failure, lock};
use crate::{Folder, Installed, SLOT, TRIAL};

/// What is on trial, what was before it, and the installed one.
const ATTEMPTS: usize = 3;
/// What is on trial ends so long after its time at the latest, whatever the disk does.
const DISK: Duration = Duration::from_secs(60);

/// What says whether another program may run.
#[derive(Debug)]
pub(super) struct Choice {
    /// Where programs may be; none if nothing of it may run.
    folder: Option<Folder>,
    state: PathBuf,
    /// Whether one may be tried.
    tries: bool,
}

impl Choice {
    /// By the agent's arguments.
    fn of(args: &Args) -> Option<Self> {
        let acts = args.leave.is_none() && !args.join_only;
        let state = args.state_dir.clone().filter(|_| acts)?;
        Some(Self {
            folder: args.runs_slots.then(|| Folder::new(&state)),
            state,
            tries: args.config.upgrade.is_some(),
        })
    }

    /// By arguments that the installed program cannot read, which a newer one may: only these say something about it.
    pub(super) fn lenient(arguments: &[OsString]) -> Option<Self> {
        let is_other = |word: &OsString| ["leave", "--join-only"].iter().any(|other| word == other);
        if arguments.iter().any(is_other) {
            return None;
        }
        let value = |flag: &str| {
            let mut words = arguments.iter().skip(1).map(|word| word.to_string_lossy());
            let mut value = None;
            while let Some(word) = words.next() {
                let rest = word.strip_prefix(flag);
                value = match rest {
                    Some("") => words.next().map(String::from).or(value),
                    Some(rest) => rest.strip_prefix('=').map(str::to_owned).or(value),
                    None => value,
                };
            }
            value
        };
        let state = PathBuf::from(value("--state-dir")?);
        value("--upgrade-from")?;
        let tries = value("--upgrade").is_some_and(|when| when != "off");
        Some(Self { folder: Some(Folder::new(&state)), state, tries })
    }
}

/// Lets another program run in this one's stead, if that is to be: then it does not come back.
pub(super) fn choose(args: &mut Args, arguments: &[OsString]) -> Result<(), Failure> {
    let slot = std::env::var_os(SLOT).map(|slot| slot.to_string_lossy().into_owned());
    if let Some(Installed::Program(programs)) =
        args.config.upgrade.as_mut().map(|upgrade| &mut upgrade.installed)
    {
        programs.runs.clone_from(&slot);
        programs.arguments = arguments.iter().skip(1).cloned().collect();
        if let Some(slot) = &slot
            && std::env::var_os(TRIAL).is_some()
        {
            watch(programs.folder.clone(), slot.clone(), Arc::clone(&programs.proven));
        }
    }
    if slot.is_some() {
        return Ok(());
    }
    let Some(choice) = Choice::of(args) else { return Ok(()) };
    run(&choice, arguments)
}

/// Lets another program run in this one's stead, which does not understand its arguments; a newer one may.
pub(super) fn choose_anyway(arguments: &[OsString]) -> Result<(), Failure> {
    match Choice::lenient(arguments).filter(|_| std::env::var_os(SLOT).is_none()) {
        Some(choice) => run(&choice, arguments),
        None => Ok(()),
    }
}

fn run(choice: &Choice, arguments: &[OsString]) -> Result<(), Failure> {
    let Ok(installed) = env!("CARGO_PKG_VERSION").parse::<Version>() else { return Ok(()) };
    // Without a folder nothing was kept.
    if !choice.state.is_dir() {
        return Ok(());
    }
    let Some(folder) = &choice.folder else {
        left(&Folder::new(&choice.state), &installed, "without --upgrade-from no program of the folder runs");
        return Ok(());
    };
    // Another agent on the same folder would count starts of its own.
    let _lock = lock(&choice.state)?;
    let mut failed = Vec::new();
    for _ in 0..ATTEMPTS {
        let (slot, is_tried) = match folder.start(&installed, choice.tries, &failed) {
            Runs::Installed => {
                left(folder, &installed, "that cannot be read or run now");
                return Ok(());
            }
            Runs::Slot(slot) => (slot, false),
            Runs::Trial(slot) => (slot, true),
        };
        let mut command = Command::new(folder.program(&slot));
        if let Some(name) = arguments.first() {
            command.arg0(name);
        }
        if is_tried {
            command.env(TRIAL, "1");
        }
        // It comes back only if it cannot be run.
        let error = command.args(arguments.iter().skip(1)).env(SLOT, &slot).exec();
        eprintln!("karmada-agent: the program {slot} cannot be run: {error}");
        // Where that cannot be kept it is not tried again in this start all the same.
        let _ = folder.change(|slots| slots.cannot_run(&slot, &error.to_string()));
        failed.push(slot);
    }
    Ok(())
}

/// The installed program runs, though another ran before: nobody is to find that out by chance.
fn left(folder: &Folder, installed: &Version, why: &str) {
    let Ok(Slots { current: Some(current), trial, .. }) = folder.read() else { return };
    let version = trial.filter(|trial| trial.new == current).map(|trial| trial.version);
    eprintln!(
        "karmada-agent: the installed version {installed} runs, and not {} of {}: {why}",
        version.as_ref().unwrap_or(&current),
        folder.program(&current).display(),
    );
}

/// How the agent's process ends. Supervisors may not start what finds its arguments wrong again; but those of the installed program
/// may be wrong for another in its stead alone, which then has had its go.
pub(super) fn ends(code: ExitCode) -> ExitCode {
    match std::env::var_os(SLOT) {
        Some(_) if code == ExitCode::from(2) => ExitCode::FAILURE,
        _ => code,
    }
}

/// The clock of a program on trial, which needs nothing of what is on trial but a thread, and nothing of the disk.
fn watch(folder: Folder, slot: String, proven: Arc<AtomicBool>) {
    let clock = std::thread::Builder::new().name("trial".to_owned());
    let runs = clock.spawn(move || {
        #[expect(clippy::disallowed_methods, reason = "a thread of its own: the reactor may be what hangs")]
        std::thread::sleep(PROOF);
        let (tell, told) = mpsc::channel();
        let is_proven = Arc::clone(&proven);
        let keeps = std::thread::Builder::new().name("trial-over".to_owned()).spawn(move || {
            let over = folder.change(|slots| {
                let tried = slots.is_open()
                    && slots.trial.as_ref().is_some_and(|trial| trial.new == slot)
                    && !is_proven.load(Ordering::SeqCst);
                if tried {
                    slots.time_is_over();
                }
                tried
            });
            let _ = tell.send(over.ok());
        });
        let over = keeps.ok().and_then(|_| told.recv_timeout(DISK).ok().flatten());
        // A disk that fails or hangs says nothing about the program.
        if !over.unwrap_or_else(|| !proven.load(Ordering::SeqCst)) {
            return;
        }
        eprintln!("karmada-agent: this version has not proven itself within {}s: ending", PROOF.as_secs());
        std::process::exit(1);
    });
    if let Err(error) = runs {
        // Nothing would end it: it counts as one that ended at once.
        eprintln!("karmada-agent: cannot watch over a version on trial: {error}");
        std::process::exit(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_arguments_that_cannot_be_read_only_these_are() {
        let choice = |line: &str| {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            Choice::lenient(&words).map(|choice| (choice.state.display().to_string(), choice.tries))
        };
        let there = |tries| Some(("/s".to_owned(), tries));
        for (line, want) in [
            ("agent --new --state-dir=/s --upgrade-from=https://h/ --upgrade=windows", there(true)),
            ("agent --state-dir /s --upgrade-from https://h/ --upgrade on --new=1", there(true)),
            ("agent join --state-dir=/s --upgrade-from=https://h/", there(false)),
            ("agent --state-dir=/s --upgrade-from=https://h/ --upgrade=on --upgrade=off", there(false)),
            ("agent --state-dir=/s --upgrade=on", None),
            ("agent --upgrade-from=https://h/ --upgrade=on", None),
            ("agent leave --state-dir=/s --upgrade-from=https://h/", None),
            ("agent join --join-only --state-dir=/s --upgrade-from=https://h/", None),
            ("agent", None),
        ] {
            assert_eq!(choice(line), want, "{line}");
        }
    }
}
