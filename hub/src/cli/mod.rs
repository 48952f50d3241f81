//! The program: its command line, exit codes, and the commands that run a hub or have its data before them. Those that only
//! talk to an API are `karmada_cli`'s.

mod args;
mod backup;
mod doctor;
mod export;
mod judge;
mod logs;
mod serve;
mod shells;

use std::process::ExitCode;

use clap::FromArgMatches;
use karmada_api::consts::subject;
use karmada_apiserver::authz::agent;
use karmada_cli::{Failure, ask, print, told};
use karmada_core::admit::agent::cluster_of_user;
use karmada_env::Env;
use karmada_meta::names::joining_name_errors;
use serde_json::{Value, json};

pub use args::{Args, ServeArgs};

/// Parses a process's arguments (its name first) and does what they say.
pub fn run(args: impl IntoIterator<Item = std::ffi::OsString>) -> ExitCode {
    match parse(args).and_then(execute) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Parsed::Help(help)) => {
            // Coloured where it goes to a terminal; a pager that was closed early is no failure.
            let _ = help.print();
            ExitCode::SUCCESS
        }
        Err(Parsed::Failure(failure)) => told::ended("karmada-hub", Err(failure)),
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
    let matches = shells::command().try_get_matches_from(args);
    matches.and_then(|matches| Args::from_arg_matches(&matches)).map_err(|error| {
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

fn execute(args: Args) -> Result<(), Parsed> {
    let env = Env::system();
    match args.command {
        args::Command::Serve(serve) => serve::run(&serve, &env)?,
        args::Command::Credentials(args) => ask::run(|| serve::credentials(args, env))?,
        args::Command::Ask(command) => ask::run(|| karmada_cli::run(command, env))?,
        args::Command::Export(export) => ask::run(|| export::run(export, env))?,
        args::Command::Import(import) => ask::run(|| export::import(import, env))?,
        args::Command::Backup(backup) => ask::run(|| backup::backup(backup, env))?,
        args::Command::Restore(restore) => backup::restore(&restore, &env)?,
        args::Command::Doctor(doctor) => ask::run(|| doctor::run(*doctor, env))?,
        args::Command::Completion(completion) => shells::completion(&completion)?,
        args::Command::ManPages(pages) => shells::man_pages(&pages)?,
        args::Command::Crds(args) => print(&stream(karmada_api::crds(), args)?)?,
        args::Command::AgentRbac(args) => print(&agent_rbac(args)?)?,
    }
    Ok(())
}

/// The roles of a cluster's agent.
fn agent_rbac(args: args::AgentRbacArgs) -> Result<String, Failure> {
    if let Some(why) = joining_name_errors(&args.cluster).first() {
        return Err(Failure::usage(format!("--cluster {:?}: {why}", args.cluster)));
    }
    let known = |user: &String| cluster_of_user(user, &[subject::AGENTS]) == Some(&*args.cluster);
    if let Some(user) = args.user.as_ref().filter(|user| !known(user)) {
        return Err(Failure::usage(format!(
            "--user {user:?}: what an agent writes is judged by its user name, and that of cluster {0} is {1}{0}, in the \
             group {2}; without --user a service account is made",
            args.cluster,
            subject::AGENT_PREFIX,
            subject::AGENTS
        )));
    }
    let roles = agent::roles(&args.cluster, &args.user.map_or(agent::Subject::Account, agent::Subject::User));
    stream(roles, args.manifests)
}

/// Objects as one YAML stream, or as a List.
fn stream(objects: impl IntoIterator<Item = Value>, args: args::ManifestsArgs) -> Result<String, Failure> {
    if args.output == args::Manifests::Json {
        let items: Vec<Value> = objects.into_iter().collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        return serde_json::to_string_pretty(&list).map(|text| text + "\n").map_err(Failure::failed);
    }
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&object).map_err(Failure::failed)?);
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use karmada_cli::told::one_line;

    use super::*;

    fn refusal(args: &[&str]) -> String {
        match parse(args.iter().map(Into::into)) {
            Err(Parsed::Failure(Failure::Usage(reason))) => one_line(&reason),
            Err(Parsed::Failure(failure)) => panic!("wrong class: {failure:?}"),
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
    fn roles_are_written_for_the_user_that_is_named() {
        let args = |cluster: &str, user: Option<&str>| args::AgentRbacArgs {
            cluster: cluster.to_owned(),
            user: user.map(str::to_owned),
            manifests: args::ManifestsArgs { output: args::Manifests::Yaml },
        };
        let text = agent_rbac(args("m1", Some("system:karmada:agent:m1"))).expect("they are written");
        let documents: Vec<Value> =
            text.split("---\n").skip(1).map(|text| serde_saphyr::from_str(text).unwrap()).collect();
        let subjects: Vec<&Value> = documents.iter().filter_map(|d| d.pointer("/subjects/0")).collect();
        assert_eq!(subjects.len(), 4, "{text}");
        assert!(
            subjects
                .iter()
                .all(|subject| subject["kind"] == "User" && subject["name"] == "system:karmada:agent:m1"),
            "{text}"
        );
        for name in ["rbac-generator", "M1", "", "m1\nkind: ClusterRole", "m1-impersonator"] {
            assert!(agent_rbac(args(name, None)).is_err(), "{name:?}");
        }
        // The webhook that completes these roles has to know whose they are.
        let account = "system:serviceaccount:karmada-system:karmada-agent-m1";
        for (user, good) in
            [(account, true), ("jane", false), ("system:karmada:agent:m2", false), ("", false)]
        {
            assert_eq!(agent_rbac(args("m1", Some(user))).is_ok(), good, "{user:?}");
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
    fn the_crds_are_a_stream_of_yaml_or_a_list() {
        let written =
            |output| stream(karmada_api::crds(), args::ManifestsArgs { output }).map_err(|_| "not written");
        let list: Value = serde_json::from_str(&written(args::Manifests::Json).unwrap()).unwrap();
        assert_eq!((&list["kind"], &list["items"]), (&json!("List"), &json!(karmada_api::crds())));
        let text = written(args::Manifests::Yaml).unwrap();
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        assert_eq!(documents.len(), karmada_api::crds().len());
        assert_eq!(documents, karmada_api::crds());
    }
}
