//! The command line: arguments, exit codes, and the commands that ask a server something.

mod apply;
mod args;
mod ask;
mod backup;
mod cordon;
mod drain;
mod explain;
mod export;
mod failback;
mod follow;
mod get;
mod judge;
mod known;
mod logs;
mod members;
mod placed;
mod revoke;
mod serve;
mod table;
mod whatif;

use std::{
    fmt,
    io::{self, Write},
    process::ExitCode,
};

use clap::Parser;
use karmada_env::Env;

pub use args::{Args, ServeArgs};

/// Why a command ended badly.
#[derive(Debug)]
pub enum Failure {
    /// Arguments or configuration cannot be used: exit code 2.
    Usage(String),
    /// The command was tried and failed: exit code 1.
    Failed(String),
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
}

/// Parses a process's arguments (its name first) and does what they say.
pub fn run(args: impl IntoIterator<Item = std::ffi::OsString>) -> ExitCode {
    match parse(args).and_then(execute) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Parsed::Help(help)) => {
            // Coloured where it goes to a terminal; a pager that was closed early is no failure.
            let _ = help.print();
            ExitCode::SUCCESS
        }
        Err(Parsed::Failure(Failure::Usage(reason))) => {
            eprintln!("karmada-hub: {}", one_line(&reason));
            ExitCode::from(2)
        }
        Err(Parsed::Failure(Failure::Failed(reason))) => {
            eprintln!("karmada-hub: {}", one_line(&reason));
            ExitCode::FAILURE
        }
    }
}

enum Parsed {
    Help(clap::Error),
    Failure(Failure),
}

impl From<Failure> for Parsed {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

fn parse(args: impl IntoIterator<Item = std::ffi::OsString>) -> Result<Args, Parsed> {
    Args::try_parse_from(args).map_err(|error| {
        if error.use_stderr() {
            // clap explains over several lines; the first paragraph says what is wrong.
            let text = error.render().to_string();
            let first = text.split("\n\n").next().unwrap_or_default();
            let reason = first.trim_start_matches("error: ").to_owned();
            Failure::Usage(format!("{reason} (see --help)")).into()
        } else {
            Parsed::Help(error)
        }
    })
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn execute(args: Args) -> Result<(), Parsed> {
    let env = Env::system();
    match args.command {
        args::Command::Serve(serve) => serve::run(&serve, &env)?,
        args::Command::Credentials(args) => ask::run(|| serve::credentials(args, env))?,
        args::Command::Cluster(args) => ask::run(|| revoke::run(args, env))?,
        args::Command::Get(get) => ask::run(|| get::run(get, env))?,
        args::Command::Explain(explain) => ask::run(|| explain::run(explain, env))?,
        args::Command::WhatIf(args) => ask::run(|| whatif::run(args, env))?,
        args::Command::Cordon(args) => ask::run(|| cordon::cordon(args, env))?,
        args::Command::Uncordon(args) => ask::run(|| cordon::uncordon(args, env))?,
        args::Command::Taint(args) => ask::run(|| cordon::taint(args, env))?,
        args::Command::Drain(args) => ask::run(|| drain::run(args, env))?,
        args::Command::Failback(args) => ask::run(|| failback::run(args, env))?,
        args::Command::Apply(apply) => ask::run(|| apply::run(apply, env))?,
        args::Command::Export(export) => ask::run(|| export::run(export, env))?,
        args::Command::Backup(backup) => ask::run(|| backup::backup(backup, env))?,
        args::Command::Restore(restore) => backup::restore(&restore, &env)?,
        args::Command::Crds => print(&crds()?)?,
    }
    Ok(())
}

/// Writes to standard output. A reader that has had enough is no failure.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::failed(error)),
        _ => Ok(()),
    }
}

/// The Karmada kinds' definitions as one YAML stream.
fn crds() -> Result<String, Failure> {
    let mut text = String::new();
    for crd in karmada_api::crds() {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&crd).map_err(Failure::failed)?);
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(args: &[&str]) -> String {
        match parse(args.iter().map(Into::into)) {
            Err(Parsed::Failure(Failure::Usage(reason))) => one_line(&reason),
            Err(Parsed::Failure(Failure::Failed(reason))) => panic!("wrong class: {reason}"),
            Err(Parsed::Help(_)) => panic!("help instead of a refusal"),
            Ok(_) => panic!("{args:?} was accepted"),
        }
    }

    #[test]
    fn bad_arguments_are_refused_in_one_line() {
        let rows: [(&[&str], &str); 13] = [
            (&["karmada-hub", "backup", "--data-dir", "d"], "--to"),
            (&["karmada-hub", "restore", "--from", "f"], "--data-dir"),
            (&["karmada-hub", "serve"], "--data-dir"),
            (&["karmada-hub", "serve", "--data-dir", "d", "--leader-elect=false"], "--kubeconfig"),
            (&["karmada-hub", "export"], "--data-dir"),
            (&["karmada-hub", "export", "--data-dir", "d", "--kubeconfig", "f"], "--kubeconfig"),
            (&["karmada-hub", "serve", "--data-dir", "d", "--listen", "nowhere"], "--listen"),
            (&["karmada-hub", "serve", "--data-dir", "d", "--bogus"], "--bogus"),
            (
                &["karmada-hub", "serve", "--data-dir", "d", "--cluster-monitor-period", "soon"],
                "--cluster-monitor-period",
            ),
            (&["karmada-hub", "credentials", "--data-dir", "d"], "--cluster"),
            (&["karmada-hub", "cluster", "revoke"], "NAME"),
            (&["karmada-hub", "fetch"], "fetch"),
            (&["karmada-hub", "get"], "RESOURCE"),
        ];
        for (args, names) in rows {
            let line = refusal(args);
            assert!(line.contains(names) && !line.contains('\n'), "{args:?}: {line}");
        }
    }

    #[test]
    fn good_arguments_are_taken() {
        let rows: [&[&str]; 11] = [
            &["karmada-hub", "backup", "--data-dir", "d", "--to", "f"],
            &["karmada-hub", "restore", "--from", "f", "--data-dir", "d"],
            &["karmada-hub", "serve", "--data-dir", "d", "--kubeconfig", "f", "--leader-elect=false"],
            &["karmada-hub", "export", "--data-dir", "d", "-o", "dump"],
            &["karmada-hub", "export", "--kubeconfig", "f", "--context", "c"],
            &[
                "karmada-hub",
                "serve",
                "--data-dir",
                "d",
                "--advertise",
                "a.example",
                "--advertise",
                "10.0.0.1",
            ],
            &["karmada-hub", "get", "deploy", "nginx", "-n", "shop", "-o", "wide"],
            &["karmada-hub", "get", "works", "-A", "--kubeconfig", "f"],
            &["karmada-hub", "credentials", "--data-dir", "d", "--cluster", "member1"],
            &["karmada-hub", "cluster", "revoke", "member1", "member2", "--kubeconfig", "f"],
            &["karmada-hub", "crds"],
        ];
        for args in rows {
            assert!(parse(args.iter().map(Into::into)).is_ok(), "{args:?}");
        }
    }

    #[test]
    fn the_crds_are_a_stream_of_yaml() {
        let text = crds().map_err(|_| "no YAML").unwrap();
        let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(&text).unwrap();
        assert_eq!(documents.len(), karmada_api::crds().len());
        assert_eq!(documents, karmada_api::crds());
    }
}
