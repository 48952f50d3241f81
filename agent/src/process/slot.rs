//! Which program is the agent, where it is no Pod: the installed one starts first, and lets another run in its stead.
//!
//! ```text
//!   supervisor ─▶ installed program ─ what is kept (core: upgrade::slots) ─┬─▶ goes on itself
//!        ▲                                                                 └─▶ exec ─▶ a program of the folder, as the same process
//!        └── it ends: of itself, by its own clock while it is on trial, or killed by the supervisor\'s watchdog
//! ```

use std::{
    ffi::OsString,
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
};

use karmada_core::upgrade::{Version, slots::Runs, trial::PROOF};

use super::{Args, Failure, lock};
use crate::{Folder, Installed};

/// By this the installed program tells another which of those in the folder it is.
const SLOT: &str = "KARMADA_AGENT_SLOT";
/// What is on trial, what was before it, and the installed one.
const ATTEMPTS: usize = 3;

/// Lets another program run in this one\'s stead, if that is to be: then it does not come back.
pub(super) fn choose(args: &Args, arguments: &[OsString]) -> Result<(), Failure> {
    let Some(upgrade) = &args.config.upgrade else { return Ok(()) };
    let Installed::Program(programs) = &upgrade.installed else { return Ok(()) };
    let folder = &programs.folder;
    if let Some(slot) = std::env::var_os(SLOT) {
        watch(folder, slot.to_string_lossy().into_owned());
        return Ok(());
    }
    let Ok(installed) = args.config.version.parse::<Version>() else { return Ok(()) };
    // Another agent on the same folder would count starts of its own. Without a folder nothing was kept either.
    let _lock = match args.state_dir.as_deref().filter(|dir| dir.is_dir()) {
        Some(dir) => lock(dir)?,
        None => return Ok(()),
    };
    for _ in 0..ATTEMPTS {
        let Runs::Slot(slot) = folder.start(&installed) else { return Ok(()) };
        let mut command = Command::new(folder.program(&slot));
        if let Some(name) = arguments.first() {
            command.arg0(name);
        }
        // It comes back only if it cannot be run.
        let error = command.args(arguments.iter().skip(1)).env(SLOT, &slot).exec();
        eprintln!("karmada-agent: the program {slot} cannot be run: {error}");
        let kept = folder.change(|slots| slots.cannot_run(&slot, &error.to_string()));
        if kept.is_err() {
            break;
        }
    }
    Ok(())
}

/// How the agent's process ends. Supervisors do not start what finds its arguments wrong again; but those of the installed program
/// may be wrong for another in its stead alone, which then has had its go.
pub(super) fn ends(code: ExitCode) -> ExitCode {
    match std::env::var_os(SLOT) {
        Some(_) if code == ExitCode::from(2) => ExitCode::FAILURE,
        _ => code,
    }
}

/// The clock of a program on trial, which needs nothing of what is on trial but a thread.
fn watch(folder: &Folder, slot: String) {
    let is_tried = |folder: &Folder| {
        let slots = folder.read().unwrap_or_default();
        slots.is_open() && slots.trial.is_some_and(|trial| trial.new == slot)
    };
    if !is_tried(folder) {
        return;
    }
    let folder = folder.clone();
    let clock = std::thread::Builder::new().name("trial".to_owned());
    let runs = clock.spawn(move || {
        #[expect(clippy::disallowed_methods, reason = "a thread of its own: the reactor may be what hangs")]
        std::thread::sleep(PROOF);
        let over = folder.change(|slots| {
            let tried = slots.is_open() && slots.trial.as_ref().is_some_and(|trial| trial.new == slot);
            if tried {
                slots.time_is_over();
            }
            tried
        });
        if let Ok(false) = over {
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
