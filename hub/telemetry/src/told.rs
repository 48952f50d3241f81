//! How commands say what they did: a line for people, or for programs a line of JSON for each thing; and what their exit codes mean.

use std::{
    fmt,
    io::{self, Write},
    process::ExitCode,
};

use clap::{Args, Command, ValueEnum};
use karmada_meta::text::printable;
use serde_json::Value;

/// What exit codes mean, in the help of every command that has nothing else to say of them.
const EXIT_CODES: &str =
    "Exit codes: 0 done; 1 it failed, the last line says why; 2 the arguments cannot be used.";

/// Why a command ended badly.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Arguments or configuration cannot be used: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// The command was tried and failed: exit code 1.
    #[error("{0}")]
    Failed(String),
    /// The same by an answer of an API server: for whoever passes that on.
    #[error("{why}")]
    Answered {
        /// Of HTTP.
        code: u16,
        /// In a word of the API's.
        reason: String,
        /// For people.
        why: String,
    },
    /// The exit code is all that is left to be said: that of what was run, or of a report that says everything.
    #[error("exit code {0}")]
    Ended(u8),
}

impl Failure {
    /// Arguments or configuration cannot be used.
    pub fn usage(reason: impl fmt::Display) -> Self {
        Self::Usage(reason.to_string())
    }

    /// The command was tried and failed.
    pub fn failed(reason: impl fmt::Display) -> Self {
        Self::Failed(reason.to_string())
    }

    /// What is asked for is not there.
    pub fn not_found(reason: impl fmt::Display) -> Self {
        Self::Answered { code: 404, reason: "NotFound".to_owned(), why: reason.to_string() }
    }
}

/// The exit code for how a command of a program has ended, and a line on standard error if it failed.
pub fn ended(program: &str, ended: Result<(), Failure>) -> ExitCode {
    let (reason, code) = match ended {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Ended(code)) => return ExitCode::from(code),
        Err(Failure::Usage(reason)) => (reason, 2),
        Err(Failure::Failed(reason) | Failure::Answered { why: reason, .. }) => (reason, 1),
    };
    eprintln!("{program}: {}", one_line(&reason));
    ExitCode::from(code)
}

/// A text as a line, which tells no terminal what to do: it may be the answer of a member.
pub fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    printable(&line, usize::MAX).into_owned()
}

/// How something is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Report {
    /// Text for people.
    #[default]
    Text,
    /// JSON for programs.
    Json,
}

/// How a command tells what it did.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Told {
    /// Output format: text for people, or json with one object per line for each thing that was done.
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value_t = Report::Text, hide_default_value = true)]
    pub output: Report,
}

impl Told {
    /// Says what came of one thing: the line without its end, or the value.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn say(self, line: &str, value: &Value) -> Result<(), Failure> {
        match self.output {
            Report::Text => print(&format!("{}\n", printable(line, usize::MAX))),
            Report::Json => print(&format!("{value}\n")),
        }
    }

    /// Whether nobody but programs reads it.
    pub fn is_json(self) -> bool {
        self.output == Report::Json
    }
}

/// Writes to standard output. A reader that has had enough is no failure.
///
/// # Errors
/// When it cannot be written.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::failed(error)),
        _ => Ok(()),
    }
}

/// A command line with what exit codes mean at the end of the long help of each of its commands.
#[must_use]
pub fn with_exit_codes(command: Command) -> Command {
    let long = match command.get_after_long_help() {
        Some(text) if text.to_string().contains("Exit codes: ") => text.to_string(),
        Some(text) => format!("{text}\n\n{EXIT_CODES}"),
        None => EXIT_CODES.to_owned(),
    };
    command.after_long_help(long).mut_subcommands(with_exit_codes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_others_are_one_line_that_a_terminal_obeys_in_nothing() {
        let evil = "no\n\u{1b}[2J\u{9b}1mroom\r\u{7}\u{202e}  left\u{2028}ok";
        assert_eq!(one_line(evil), "no \u{fffd}[2J\u{fffd}1mroom \u{fffd}\u{fffd} left ok");
    }
}
