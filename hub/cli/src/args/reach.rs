//! Arguments of the commands that reach into a member cluster through the hub.

use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use karmada_meta::duration;

use super::ServerArgs;
use crate::told::Told;

/// Arguments of `logs`.
#[derive(Clone, Debug, ClapArgs)]
pub struct LogsArgs {
    /// Name of the cluster.
    #[arg(value_name = "CLUSTER")]
    pub cluster: String,
    /// Name of the Pod.
    #[arg(value_name = "POD")]
    pub pod: String,
    /// The container, if the Pod has several.
    #[arg(short = 'c', long, value_name = "NAME")]
    pub container: Option<String>,
    /// Keep printing new log lines.
    #[arg(short = 'f', long)]
    pub follow: bool,
    /// Print the logs of the previous instance of the container.
    #[arg(short = 'p', long)]
    pub previous: bool,
    /// Print only this many of the last lines.
    #[arg(long, value_name = "LINES")]
    pub tail: Option<u32>,
    /// Print only lines that are not older than this, such as 10m.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub since: Option<Duration>,
    /// Print a timestamp before each line.
    #[arg(long)]
    pub timestamps: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// How commands are run, for `exec --help`.
pub const EXEC_HELP: &str = "\
  karmada-hub exec shop-17 web-5d4b9 -- ls /var/log          run a command and print its output
  karmada-hub exec shop-17 web-5d4b9 -it -- sh               a shell in this terminal
  tar c . | karmada-hub exec shop-17 web-5d4b9 -i -- tar x   send data to its standard input

If the link is cut, this command ends with exit code 1. The command in the container may keep running.";

/// Arguments of `exec`.
#[derive(Clone, Debug, ClapArgs)]
pub struct ExecArgs {
    /// Name of the cluster.
    #[arg(value_name = "CLUSTER")]
    pub cluster: String,
    /// Name of the Pod.
    #[arg(value_name = "POD")]
    pub pod: String,
    /// The command and its arguments.
    #[arg(value_name = "COMMAND", last = true, required = true)]
    pub command: Vec<String>,
    /// The container, if the Pod has several.
    #[arg(short = 'c', long, value_name = "NAME")]
    pub container: Option<String>,
    /// Pass standard input to the command.
    #[arg(short = 'i', long)]
    pub stdin: bool,
    /// Give the command a terminal.
    #[arg(short = 't', long)]
    pub tty: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Used {
    #[value(alias = "node", alias = "no")]
    Nodes,
    #[value(alias = "pod", alias = "po")]
    Pods,
}

/// Arguments of `top`.
#[derive(Clone, Debug, ClapArgs)]
pub struct TopArgs {
    /// Name of the cluster.
    #[arg(value_name = "CLUSTER")]
    pub cluster: String,
    /// What to print the usage of.
    #[arg(value_enum, default_value_t = Used::Pods)]
    pub what: Used,
    /// List Pods of all namespaces.
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Only objects with these labels.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,
    #[command(flatten)]
    pub told: Told,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Arguments of `port-forward`.
#[derive(Clone, Debug, ClapArgs)]
pub struct PortForwardArgs {
    /// Name of the cluster.
    #[arg(value_name = "CLUSTER")]
    pub cluster: String,
    /// Name of the Pod.
    #[arg(value_name = "POD")]
    pub pod: String,
    /// Ports as LOCAL:REMOTE, one number for both, or :REMOTE for any free local port.
    #[arg(value_name = "PORTS", required = true, value_parser = ports)]
    pub ports: Vec<(u16, u16)>,
    #[command(flatten)]
    pub told: Told,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// The port of this machine, 0 for any, and the Pod's.
fn ports(text: &str) -> Result<(u16, u16), String> {
    let (local, remote) = text.split_once(':').unwrap_or((text, text));
    let port = |text: &str| {
        text.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(|| format!("{text:?} is no port"))
    };
    Ok((if local.is_empty() { 0 } else { port(local)? }, port(remote)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_on_both_sides() {
        for (text, want) in [
            ("8080:80", Some((8080, 80))),
            ("80", Some((80, 80))),
            (":80", Some((0, 80))),
            ("0:80", None),
            ("80:", None),
            ("", None),
            ("a:80", None),
            ("70000", None),
        ] {
            assert_eq!(ports(text).ok(), want, "{text}");
        }
    }
}
