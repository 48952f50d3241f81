//! `karmada-agent status`: asks the agent of this machine.

use std::{
    ffi::OsString,
    io::{Read, Write},
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    process::ExitCode,
    time::Duration,
};

use clap::{Parser, ValueEnum};
use karmada_telemetry::told::{Failure, ended, print};

use super::{JSON, Status, write};
use crate::process::flags;

/// Where an agent tells its health if nobody says otherwise.
pub(in crate::process) const ADDRESS: &str = "localhost:10357";

/// How long the agent may take for each step of its answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The largest answer that is read.
const LARGEST: u64 = 16 << 20;

/// Show what the agent on this machine knows, without asking the hub: which Works are wanted here, how far they are,
/// and when the agent last heard from the hub.
///
/// In a Pod: kubectl -n karmada-system exec deploy/karmada-agent -- karmada-agent status
#[derive(Debug, Parser)]
#[command(name = "karmada-agent status", disable_help_subcommand = true)]
struct Flags {
    /// Address on which the agent serves its health (its --health-probe-bind-address). The agent answers this on
    /// loopback addresses only.
    #[arg(long, value_name = "HOST:PORT", default_value = ADDRESS)]
    address: String,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Output,
    /// Also list Works without problems.
    #[arg(long)]
    all: bool,
    /// List at most this many Works (1 to 1000).
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// List the Works that come after this one.
    #[arg(long, value_name = "WORK")]
    after: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    #[default]
    Table,
    Json,
}

/// Its command line.
pub(in crate::process) fn command() -> clap::Command {
    <Flags as clap::CommandFactory>::command()
}

/// The command. `arguments` begin after the word.
pub(in crate::process) fn main(arguments: Vec<OsString>) -> ExitCode {
    let flags = match flags("karmada-agent status", arguments) {
        Ok(flags) => flags,
        Err(code) => return code,
    };
    ended("karmada-agent status", ask(&flags).map_err(Failure::Failed).and_then(|text| print(&text)))
}

fn ask(flags: &Flags) -> Result<String, String> {
    let mut path = format!("{JSON}?limit={}", flags.limit);
    if flags.all {
        path.push_str("&all=true");
    }
    if let Some(after) = &flags.after {
        let is_name = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
        if !after.bytes().all(is_name) {
            return Err(format!("--after: {after:?} is no name of a Work"));
        }
        path = format!("{path}&after={after}");
    }
    let text = get(&flags.address, &path)?;
    if flags.output == Output::Json {
        return Ok(text);
    }
    let status: Status = serde_json::from_str(&text).map_err(|error| {
        format!(
            "what answers at {} says nothing that this version can read ({error}): see -o json",
            flags.address
        )
    })?;
    Ok(write(&status))
}

/// Asks the agent of this machine for a page.
pub(in crate::process) fn get(address: &str, path: &str) -> Result<String, String> {
    // As the agent's own flag may be written.
    let address = match address.strip_prefix(':') {
        Some(port) => format!("localhost:{port}"),
        None => address.to_owned(),
    };
    let nobody = |error: &std::io::Error| {
        format!(
            "no agent answers at {address}: {error}. Either it does not run here (systemctl status 'karmada-agent@*'), or it \
             serves its health elsewhere: give its --health-probe-bind-address as --address. Under systemd it serves it nowhere unless \
             ENDPOINTS in agent.env and SocketBindAllow name a port"
        )
    };
    let at: Vec<SocketAddr> = address.to_socket_addrs().map_err(|error| nobody(&error))?.collect();
    let mut refused = std::io::Error::other("the name has no address");
    let connected = at.iter().find_map(|at| match TcpStream::connect_timeout(at, PATIENCE) {
        Ok(stream) => Some(stream),
        Err(error) => {
            refused = error;
            None
        }
    });
    let Some(mut stream) = connected else { return Err(nobody(&refused)) };
    let exchange = |stream: &mut TcpStream| -> std::io::Result<Vec<u8>> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.take(LARGEST).read_to_end(&mut answer)?;
        Ok(answer)
    };
    let answer = exchange(&mut stream).map_err(|error| nobody(&error))?;
    let answer = String::from_utf8_lossy(&answer);
    let other = || format!("what answers at {address} is no karmada-agent of this version");
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(other)?;
    match head.split(' ').nth(1) {
        Some("200") => Ok(body.to_owned()),
        Some("404") => Err(other()),
        Some(_) if head.starts_with("HTTP/1.1 ") => Err(body.trim().to_owned()),
        _ => Err(other()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_no_agent_is_that_is_said() {
        // Nobody gets the port meanwhile: the address is this test's.
        let free = std::net::TcpListener::bind("127.1.17.6:0").unwrap().local_addr().unwrap();
        let why = get(&free.to_string(), JSON).unwrap_err();
        assert!(why.starts_with(&format!("no agent answers at {free}: ")), "{why}");
        assert!(why.contains("--health-probe-bind-address"), "{why}");
    }

    #[test]
    fn what_is_no_agent_is_told_from_one() {
        let rows = [
            ("HTTP/1.1 404 Not Found\r\n\r\nnothing", "is no karmada-agent of this version"),
            ("SSH-2.0-OpenSSH\r\n", "is no karmada-agent of this version"),
            (
                "HTTP/1.1 503 Service Unavailable\r\n\r\nnot ready: joining the hub: why\n",
                "not ready: joining the hub: why",
            ),
        ];
        for (answer, want) in rows {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                // All of it: what is left unread resets the connection.
                let mut line = [0; 4096];
                let _ = stream.read(&mut line).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            });
            let why = get(&address, JSON).unwrap_err();
            server.join().unwrap();
            assert!(why.contains(want), "{why}");
        }
    }

    #[test]
    fn arguments_are_read() {
        let read =
            |line: &str| flags::<Flags>("status", line.split_whitespace().map(OsString::from).collect());
        let flags = read("--address :1 -o json --limit 7 --all --after w").unwrap();
        assert_eq!((flags.address.as_str(), flags.output, flags.limit), (":1", Output::Json, 7));
        assert!(flags.all && flags.after.as_deref() == Some("w"));
        assert_eq!(read("--limit 0").unwrap_err(), ExitCode::from(2));
        let wrong = Flags { after: Some("a&all".to_owned()), ..read("").unwrap() };
        assert!(ask(&wrong).unwrap_err().starts_with("--after: "));
    }
}
