//! How commands say what they did: a line for people, or for programs a line of JSON for each thing.

use clap::{Args as ClapArgs, ValueEnum};
use serde_json::Value;

use super::{Failure, print};

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
#[derive(Clone, Copy, Debug, Default, ClapArgs)]
pub struct Told {
    /// Output format: text for people, or json with one object per line for each thing that was done.
    #[arg(short = 'o', long, value_enum, default_value_t = Report::Text, hide_default_value = true)]
    pub output: Report,
}

impl Told {
    /// Says what came of one thing: the line without its end, or the value.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn say(self, line: &str, value: &Value) -> Result<(), Failure> {
        match self.output {
            Report::Text => print(&format!("{line}\n")),
            Report::Json => print(&format!("{value}\n")),
        }
    }

    /// Whether nobody but programs reads it.
    pub fn is_json(self) -> bool {
        self.output == Report::Json
    }
}
