//! What shells and manuals need to know of the command lines: made of clap's description of them, for both programs.

use std::io::Write as _;

use clap::{Command, CommandFactory as _};
use clap_complete::{generate, shells};
use karmada_cli::{Failure, print, told::with_exit_codes};

use super::args::{Args, CompletionArgs, ManPagesArgs, Program, Shell};

/// The hub's command line.
pub(super) fn command() -> Command {
    with_exit_codes(Args::command())
}

fn of(program: Program) -> (Command, &'static str) {
    match program {
        Program::KarmadaHub => (command(), "karmada-hub"),
        Program::KarmadaAgent => (karmada_agent::process::command(), "karmada-agent"),
    }
}

/// What a shell completes a command line by.
pub(super) fn completion(args: &CompletionArgs) -> Result<(), Failure> {
    let (mut command, name) = of(args.program);
    let mut text = Vec::new();
    match args.shell {
        Shell::Bash => generate(shells::Bash, &mut command, name, &mut text),
        Shell::Zsh => generate(shells::Zsh, &mut command, name, &mut text),
        Shell::Fish => generate(shells::Fish, &mut command, name, &mut text),
    }
    print(&String::from_utf8(text).map_err(Failure::failed)?)
}

/// A page for each program and each of its commands.
pub(super) fn man_pages(args: &ManPagesArgs) -> Result<(), Failure> {
    for program in [Program::KarmadaHub, Program::KarmadaAgent] {
        let (command, name) = of(program);
        pages(command.disable_help_subcommand(true), name, &mut |name, page| {
            let path = args.dir.join(format!("{name}.1"));
            let written = std::fs::File::create(&path).and_then(|mut file| file.write_all(page));
            written.map_err(|error| Failure::failed(format!("{}: {error}", path.display())))
        })?;
    }
    Ok(())
}

/// What takes a page and its name.
type Writing<'a> = dyn FnMut(&str, &[u8]) -> Result<(), Failure> + 'a;

/// The pages of a command and of those below it, by how it is called: `karmada-hub token create`.
fn pages(command: Command, called: &str, write: &mut Writing<'_>) -> Result<(), Failure> {
    let below: Vec<Command> = command.get_subcommands().filter(|one| !one.is_hide_set()).cloned().collect();
    let (mut page, file) = (Vec::new(), called.replace(' ', "-"));
    let named = command.display_name(&file).bin_name(called).version(env!("CARGO_PKG_VERSION"));
    clap_mangen::Man::new(named).manual("Karmada").render(&mut page).map_err(Failure::failed)?;
    write(&file, &page)?;
    below.into_iter().try_for_each(|one| {
        let called = format!("{called} {}", one.get_name());
        pages(one.disable_help_subcommand(true), &called, write)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_descriptions_hold_together() {
        command().debug_assert();
        karmada_agent::process::command().debug_assert();
    }

    #[test]
    fn every_command_says_what_its_exit_codes_mean() {
        fn check(command: &Command, path: &str) {
            let text = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            assert!(text.contains("Exit codes: "), "{path}");
            for below in command.get_subcommands() {
                check(below, &format!("{path} {}", below.get_name()));
            }
        }
        check(&command(), "karmada-hub");
        check(&karmada_agent::process::command(), "karmada-agent");
    }

    /// What prints a file, bytes of somebody else's or a script, and what runs until it is stopped and logs.
    const ONE_FORMAT: [&str; 8] = [
        "karmada-hub serve",
        "karmada-hub credentials",
        "karmada-hub kubeconfig",
        "karmada-hub logs",
        "karmada-hub exec",
        "karmada-hub export",
        "karmada-hub completion",
        "karmada-hub man-pages",
    ];

    #[test]
    fn every_command_that_answers_does_so_in_json_too() {
        fn look(command: &Command, path: &str, without: &mut Vec<String>) {
            let below: Vec<&Command> = command.get_subcommands().collect();
            for one in &below {
                look(one, &format!("{path} {}", one.get_name()), without);
            }
            let takes = |arg: &clap::Arg| {
                arg.get_id() == "output"
                    && arg.get_possible_values().iter().any(|value| value.get_name() == "json")
            };
            if below.is_empty() && !command.get_arguments().any(takes) {
                without.push(path.to_owned());
            }
        }
        let mut without = Vec::new();
        for program in [Program::KarmadaHub, Program::KarmadaAgent] {
            let (command, name) = of(program);
            look(&command, name, &mut without);
        }
        without.sort_unstable();
        let mut known = ONE_FORMAT;
        known.sort_unstable();
        assert_eq!(without, known, "commands without --output json");
    }

    #[test]
    fn there_is_a_page_for_each_command_and_a_completion_for_each_shell() {
        let mut all = BTreeMap::new();
        for program in [Program::KarmadaHub, Program::KarmadaAgent] {
            let (command, name) = of(program);
            let done = pages(command, name, &mut |name, page| {
                all.insert(name.to_owned(), String::from_utf8_lossy(page).into_owned());
                Ok(())
            });
            assert!(done.is_ok());
            for generated in [Shell::Bash, Shell::Zsh, Shell::Fish] {
                let mut text = Vec::new();
                let (mut command, name) = of(program);
                match generated {
                    Shell::Bash => generate(shells::Bash, &mut command, name, &mut text),
                    Shell::Zsh => generate(shells::Zsh, &mut command, name, &mut text),
                    Shell::Fish => generate(shells::Fish, &mut command, name, &mut text),
                }
                let text = String::from_utf8(text).unwrap();
                assert!(text.contains("doctor") && text.contains(name), "{name} {generated:?}");
            }
        }
        for (page, says) in [
            ("karmada-hub", "doctor"),
            ("karmada-hub-serve", "data"),
            ("karmada-hub-token-create", "cluster"),
            ("karmada-hub-drain", "Exit codes"),
            ("karmada-agent", "cluster"),
            ("karmada-agent-doctor", "output"),
            ("karmada-agent-status", "address"),
            ("karmada-agent-join", "token"),
        ] {
            let text = all.get(page).unwrap_or_else(|| panic!("{page} among {:?}", all.keys()));
            assert!(text.starts_with(".ie") || text.contains(".TH"), "{page}: {text}");
            assert!(text.contains(says), "{page}: {text}");
        }
        assert!(!all.contains_key("karmada-hub-man-pages"));
    }
}
