//! What a process tells systemd, or whoever started it as systemd does: that it is ready, that it lives, that it ends.
//!
//! A datagram to the socket that `$NOTIFY_SOCKET` names, as sd_notify(3) has it; nothing where there is none. What cannot be sent
//! is no reason to end.

use std::{
    ffi::{OsStr, OsString},
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    sync::Arc,
    time::Duration,
};

/// More often than this nobody has to be told that a process lives.
const SHORTEST: Duration = Duration::from_secs(1);

/// Whoever has started this process. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Supervisor {
    socket: Option<Arc<(UnixDatagram, SocketAddr)>>,
    watchdog: Option<Duration>,
}

impl Supervisor {
    /// The one that the environment names.
    pub fn of_environment() -> Self {
        Self::of(|name| std::env::var_os(name), std::process::id())
    }

    fn of(variable: impl Fn(&str) -> Option<OsString>, pid: u32) -> Self {
        let address = variable("NOTIFY_SOCKET").and_then(|path| address(&path));
        let socket = address.and_then(|address| Some(Arc::new((UnixDatagram::unbound().ok()?, address))));
        let number = |name: &str| variable(name)?.to_str()?.parse::<u64>().ok();
        // It may be meant for the process that has started this one.
        let is_ours = variable("WATCHDOG_PID").is_none() || number("WATCHDOG_PID") == Some(u64::from(pid));
        let watchdog = number("WATCHDOG_USEC").filter(|_| is_ours && socket.is_some());
        Self { socket, watchdog: watchdog.map(Duration::from_micros) }
    }

    /// Everything is open that others wait for.
    pub fn ready(&self) {
        self.tell("READY=1");
    }

    /// What it does at the moment, in a line for `systemctl status`.
    pub fn status(&self, what: &str) {
        // One line each; a second one would be another word to systemd.
        self.tell(&format!("STATUS={}", what.lines().next().unwrap_or_default()));
    }

    /// It ends.
    pub fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// It lives.
    pub fn alive(&self) {
        self.tell("WATCHDOG=1");
    }

    /// How often it has to be told that it lives, if it has to be: twice in the time after which it would be ended.
    pub fn every(&self) -> Option<Duration> {
        self.watchdog.map(|watchdog| (watchdog / 2).max(SHORTEST))
    }

    fn tell(&self, word: &str) {
        if let Some(socket) = &self.socket {
            let (socket, address) = &**socket;
            let _ = socket.send_to_addr(word.as_bytes(), address);
        }
    }
}

/// A path, or with `@` a name in the abstract namespace.
fn address(path: &OsStr) -> Option<SocketAddr> {
    match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok(),
        [b'/', ..] => SocketAddr::from_pathname(path).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn supervisor(variables: &[(&str, &str)]) -> Supervisor {
        let find = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        };
        Supervisor::of(find, 7)
    }

    #[test]
    fn words_arrive_where_the_environment_says() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let listening = UnixDatagram::bind(&path).unwrap();
        listening.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let heard = || {
            let mut word = [0; 64];
            let length = listening.recv(&mut word).unwrap();
            String::from_utf8_lossy(&word[..length]).into_owned()
        };
        let supervisor =
            supervisor(&[("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "30000000")]);
        supervisor.ready();
        assert_eq!(heard(), "READY=1");
        supervisor.status("joins\nREADY=0");
        assert_eq!(heard(), "STATUS=joins");
        supervisor.alive();
        assert_eq!(heard(), "WATCHDOG=1");
        supervisor.stopping();
        assert_eq!(heard(), "STOPPING=1");
        assert_eq!(supervisor.every(), Some(Duration::from_secs(15)));
        // Nobody listens any more: that is no matter.
        drop(listening);
        supervisor.ready();
    }

    #[test]
    fn nobody_is_told_where_nobody_asks() {
        let rows: [(&[(&str, &str)], bool); 6] = [
            (&[], false),
            (&[("WATCHDOG_USEC", "1000000")], false),
            (&[("NOTIFY_SOCKET", "relative"), ("WATCHDOG_USEC", "1000000")], false),
            (&[("NOTIFY_SOCKET", "@abstract"), ("WATCHDOG_USEC", "1000000")], true),
            (&[("NOTIFY_SOCKET", "@abstract"), ("WATCHDOG_USEC", "1000000"), ("WATCHDOG_PID", "7")], true),
            (&[("NOTIFY_SOCKET", "@abstract"), ("WATCHDOG_USEC", "1000000"), ("WATCHDOG_PID", "8")], false),
        ];
        for (variables, watched) in rows {
            let supervisor = supervisor(variables);
            assert_eq!(supervisor.every().is_some(), watched, "{variables:?}");
            supervisor.ready();
        }
    }
}
