//! What `karmada-hub doctor` and `karmada-agent doctor` make of what they have found: a verdict on each check, with what to do.
//!
//! ```text
//!   files, sockets, servers ──▶ the programs look ──▶ facts ──▶ here ──▶ Findings ──▶ text, JSON, exit code
//! ```
//!
//! Facts are plain arguments. None of them is a secret, and nothing here shows more than it is given.

use std::{
    fmt::Write as _,
    time::{Duration, SystemTime},
};

pub use karmada_meta::way::Server;
use karmada_meta::{duration, time::Time};
use serde_json::{Value, json};

use crate::upgrade::slots::Slots;

/// Where findings are explained.
const GUIDE: &str = "hub/docs/doctor.md";
/// Two clocks that differ by less are right: certificates are backdated by five minutes.
const CLOCKS: i64 = 180;
/// A disk with less room is as good as full.
const ROOM: u64 = 256 << 20;
/// One that has less than a twentieth of it free will be.
const ROOM_SHARE: u64 = 20;
/// A commit is one fsync, and Leases wait for it.
const SLOW_SYNC: Duration = Duration::from_millis(250);
/// So many minor versions may lie between two parts.
const SKEW: u64 = 2;
/// Files that a hub wants to have open beside its connections, with some connections.
const FILES: u64 = 4_096;
/// Backups are made every day.
const BACKUP: Duration = Duration::from_secs(26 * 3600);
/// An authority is changed long before its end.
const AUTHORITY: Duration = Duration::from_secs(90 * 24 * 3600);

macro_rules! checks {
    ($($(#[$doc:meta])* $name:ident $text:literal,)*) => {
        /// What is looked at.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Check {
            $($(#[$doc])* $name,)*
        }

        impl Check {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// What it is called; also the heading under which [`Finding::anchor`] is found.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

checks! {
    /// Arguments that do not go together.
    Settings "settings",
    /// Whether two clocks agree, and whether this one has gone back.
    Clock "clock",
    /// Whether a name stands for an address.
    Dns "dns",
    /// Whether a proxy can be reached, if there is one.
    Proxy "proxy",
    /// Whether a server can be connected to.
    Connection "connection",
    /// Whether it proves who it is.
    Tls "tls",
    /// Whether it takes who we are.
    Login "login",
    /// Whether two parts of a fleet understand each other.
    Version "version",
    /// Whether what has to be done may be done.
    Rights "rights",
    /// Whether a certificate holds, and for how long yet.
    Certificate "certificate",
    /// Whether there is a credential for the hub.
    Credential "credential",
    /// Whether a folder is there and this user's alone.
    Folder "folder",
    /// Whether there is room on the disk, and whether it is fast.
    Disk "disk",
    /// Whether a port can be listened on.
    Port "port",
    /// How many files may be open.
    OpenFiles "open-files",
    /// Whether there is memory for what may be stored.
    Memory "memory",
    /// Whether the file of keys can be used.
    Encryption "encryption",
    /// When the hub was last backed up.
    Backup "backup",
    /// Which way leads to members that have two.
    Tunnels "tunnels",
    /// What a process that runs says of itself.
    Health "health",
}

/// What came of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It is as it should be.
    Good,
    /// It works, and somebody may want to know.
    Note,
    /// It does not work, or will not for long.
    Problem,
    /// It could not be looked at.
    Skipped,
}

impl Verdict {
    /// In JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Note => "note",
            Self::Problem => "problem",
            Self::Skipped => "skipped",
        }
    }

    /// For the eye, in a column.
    const fn shown(self) -> &'static str {
        match self {
            Self::Good => "ok     ",
            Self::Note => "note   ",
            Self::Problem => "PROBLEM",
            Self::Skipped => "skipped",
        }
    }
}

/// A check, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub check: Check,
    /// Of which: the hub, the member, a path, an address.
    pub about: String,
    /// What came of it.
    pub verdict: Verdict,
    /// What there is.
    pub found: String,
    /// What there should be; empty if that is what there is.
    pub wanted: String,
    /// What to do; empty if nothing is.
    pub advice: String,
}

impl Finding {
    fn new(check: Check, about: impl Into<String>, verdict: Verdict, found: impl Into<String>) -> Self {
        Self {
            check,
            about: about.into(),
            verdict,
            found: found.into(),
            wanted: String::new(),
            advice: String::new(),
        }
    }

    /// It is as it should be.
    pub fn good(check: Check, about: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(check, about, Verdict::Good, found)
    }

    /// It could not be looked at, and why.
    pub fn skipped(check: Check, about: impl Into<String>, why: impl Into<String>) -> Self {
        Self::new(check, about, Verdict::Skipped, why)
    }

    /// It is not as it should be.
    pub fn problem(
        check: Check,
        about: impl Into<String>,
        found: impl Into<String>,
        wanted: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let (wanted, advice) = (wanted.into(), advice.into());
        Self { wanted, advice, ..Self::new(check, about, Verdict::Problem, found) }
    }

    /// The same, but it works.
    #[must_use]
    pub fn as_note(self) -> Self {
        Self { verdict: Verdict::Note, ..self }
    }

    /// Where it is explained.
    pub fn anchor(&self) -> String {
        format!("{GUIDE}#{}", self.check.name())
    }

    fn json(&self) -> Value {
        json!({
            "check": self.check.name(),
            "about": self.about,
            "result": self.verdict.name(),
            "found": self.found,
            "wanted": self.wanted,
            "do": self.advice,
            "see": self.anchor(),
        })
    }
}

/// Whether anything does not work.
pub fn has_problem(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.verdict == Verdict::Problem)
}

/// Findings for a person.
pub fn text(findings: &[Finding]) -> String {
    let name = |finding: &Finding| match finding.about.as_str() {
        "" => finding.check.name().to_owned(),
        about => format!("{} {about}", finding.check.name()),
    };
    let width = findings.iter().map(|finding| name(finding).chars().count()).max().unwrap_or(0).min(40);
    let mut text = String::new();
    for finding in findings {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{}  {:width$}  {}", finding.verdict.shown(), name(finding), finding.found);
        let more = [("wanted", &finding.wanted), ("do", &finding.advice)];
        for (what, line) in more.into_iter().filter(|(_, line)| !line.is_empty()) {
            let _ = writeln!(text, "           {:7} {line}", format!("{what}:"));
        }
        if !finding.advice.is_empty() {
            let _ = writeln!(text, "           {:7} {}", "see:", finding.anchor());
        }
    }
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let problems = count(Verdict::Problem);
    let _ = writeln!(
        text,
        "\n{}, {} of {} checks passed, {} could not be made",
        match problems {
            0 => "no problem".to_owned(),
            1 => "1 problem".to_owned(),
            many => format!("{many} problems"),
        },
        count(Verdict::Good) + count(Verdict::Note),
        findings.len(),
        count(Verdict::Skipped),
    );
    text
}

/// Findings for a program.
pub fn report(program: &str, version: &str, findings: &[Finding]) -> Value {
    json!({
        "program": program,
        "version": version,
        "ok": !has_problem(findings),
        "checks": findings.iter().map(Finding::json).collect::<Vec<_>>(),
    })
}

/// Judges the way to a server. `renew` is what to do about a credential that it does not take.
pub fn server(about: &str, facts: &Server, renew: &str) -> Vec<Finding> {
    let (dialled, of) = match &facts.proxy {
        Some(proxy) => (proxy.clone(), format!("{about}'s proxy")),
        None => (format!("{}:{}", facts.host, facts.port), about.to_owned()),
    };
    let mut findings = Vec::new();
    findings.extend(match &facts.addresses {
        None => None,
        Some(Ok(addresses)) if !addresses.is_empty() => {
            Some(Finding::good(Check::Dns, &of, format!("{dialled} is {}", addresses.join(", "))))
        }
        Some(none) => Some(Finding::problem(
            Check::Dns,
            &of,
            match none {
                Ok(_) => format!("{dialled} has no address"),
                Err(error) => format!("{dialled}: {error}"),
            },
            "an address",
            "check the spelling of the name, and the resolver of this machine (/etc/resolv.conf; in a Pod: kubectl get pods -n kube-system -l k8s-app=kube-dns)",
        )),
    });
    let through = facts.proxy.as_ref().map_or(Check::Connection, |_| Check::Proxy);
    findings.push(match &facts.connected {
        None => Finding::skipped(through, &of, "there is no address"),
        Some(Ok(took)) => Finding::good(through, &of, format!("{dialled} answers in {} ms", took.as_millis())),
        Some(Err(error)) => Finding::problem(
            through,
            &of,
            format!("{dialled}: {error}"),
            "a connection",
            if facts.proxy.is_some() {
                "check --proxy-url, HTTPS_PROXY or proxy-url in the kubeconfig, and whether the proxy runs"
            } else {
                "check that the server runs, and that firewalls between here and there let TCP to this port pass; behind a proxy, name it with HTTPS_PROXY"
            },
        ),
    });
    match &facts.answered {
        None => findings.push(Finding::skipped(Check::Tls, about, "there is no connection")),
        Some(Err(error)) => findings.push(Finding::problem(
            Check::Tls,
            about,
            error.clone(),
            "a server that proves that it is the one that is meant",
            "if the certificate is not trusted, something between here and there may open TLS: have it leave this name alone; or the kubeconfig is of another server. If it has ended or not begun, look at both clocks",
        )),
        Some(Ok((code, said))) => {
            findings.push(Finding::good(Check::Tls, about, format!("{} proves who it is", facts.host)));
            findings.push(match code {
                200..300 => Finding::good(Check::Login, about, "our credential is taken"),
                401 | 403 => Finding::problem(
                    Check::Login,
                    about,
                    format!("{code}: {said}"),
                    "a credential that the server takes",
                    renew,
                ),
                code => Finding::problem(
                    Check::Login,
                    about,
                    format!("{code}: {said}"),
                    "an answer to /version",
                    "look at the server's own log; if the answer is a proxy's or load balancer's, at that one",
                ),
            });
        }
    }
    if let Some(ahead) = facts.ahead {
        findings.push(clock(about, ahead));
    }
    findings
}

/// Judges two clocks: the other one is ahead by so many seconds.
pub fn clock(about: &str, ahead: i64) -> Finding {
    let apart = duration::format(Duration::from_secs(ahead.unsigned_abs()));
    let found = match ahead {
        0 => "the clocks agree".to_owned(),
        1.. => format!("this clock is {apart} behind"),
        _ => format!("this clock is {apart} ahead"),
    };
    if ahead.abs() <= CLOCKS {
        return Finding::good(Check::Clock, about, found);
    }
    Finding::problem(
        Check::Clock,
        about,
        found,
        format!("at most {} apart", duration::format(Duration::from_secs(CLOCKS.unsigned_abs()))),
        "correct the clock that is wrong: timedatectl set-ntp true, chronyc tracking. Certificates and Leases depend on clocks",
    )
}

/// Judges a clock by something that it has written: a time in the future tells that it has gone back.
pub fn own_clock(written: SystemTime, now: SystemTime) -> Finding {
    let Some(ahead) =
        written.duration_since(now).ok().filter(|ahead| ahead.as_secs() > CLOCKS.unsigned_abs())
    else {
        return Finding::good(Check::Clock, "", format!("it is {} here", Time::from_system(now)));
    };
    Finding::problem(
        Check::Clock,
        "",
        format!(
            "it is {} here, and files were written {} later",
            Time::from_system(now),
            duration::format(whole(ahead))
        ),
        "a clock that does not go back",
        "set it: timedatectl set-ntp true",
    )
}

/// Judges a certificate.
pub fn certificate(
    about: &str,
    from: SystemTime,
    until: SystemTime,
    now: SystemTime,
    renew: &str,
) -> Finding {
    let end = Time::from_system(until);
    let Ok(left) = until.duration_since(now) else {
        return Finding::problem(
            Check::Certificate,
            about,
            format!("it has ended, at {end}"),
            "one that holds",
            renew,
        );
    };
    if now < from {
        return Finding::problem(
            Check::Certificate,
            about,
            format!("it begins at {}", Time::from_system(from)),
            "one that holds",
            "look at the clock of this machine",
        );
    }
    let life = until.duration_since(from).unwrap_or_default();
    if left < life / 4 {
        return Finding::problem(
            Check::Certificate,
            about,
            format!("it ends at {end}, in {}, and has not been renewed", days(left)),
            "a quarter of its life or more",
            renew,
        );
    }
    Finding::good(Check::Certificate, about, format!("it holds until {end}"))
}

/// Judges an authority, which lives for long and is changed by somebody.
pub fn authority(until: SystemTime, now: SystemTime) -> Finding {
    let (about, end) = ("authority", Time::from_system(until));
    let left = until.duration_since(now).unwrap_or_default();
    if left < AUTHORITY {
        return Finding::problem(
            Check::Certificate,
            about,
            format!("the hub's certificate authority ends at {end}, in {}", days(left)),
            "three months or more",
            "karmada-hub ca rotate --wait",
        );
    }
    Finding::good(Check::Certificate, about, format!("the hub's certificate authority holds until {end}"))
}

/// Judges the versions of two parts of a fleet; those that are none of ours are passed over.
pub fn version(about: &str, own: &str, other: &str, what: &str) -> Finding {
    let found = format!("{what} is {other}, this is {own}");
    let (Some(ours), Some(theirs)) = (minor(own), minor(other)) else {
        return Finding::skipped(Check::Version, about, found);
    };
    if ours.0 == theirs.0 && ours.1.abs_diff(theirs.1) <= SKEW {
        return Finding::good(Check::Version, about, found);
    }
    let older = if ours < theirs { "this program" } else { what };
    Finding::problem(
        Check::Version,
        about,
        found,
        format!("at most {SKEW} minor versions apart"),
        format!("bring {older} up to date, one or two minor versions at a time"),
    )
}

/// Says which program an agent is that may be another than the installed one: what is kept of that, and whether `--upgrade-from` lets
/// it run. Nothing where nothing is kept.
pub fn program(installed: &str, lets: bool, kept: &Result<Slots, String>) -> Option<Finding> {
    const ABOUT: &str = "program";
    let slots = match kept {
        Ok(slots) => slots,
        Err(error) => {
            return Some(Finding::skipped(Check::Version, ABOUT, format!("slots of --state-dir: {error}")));
        }
    };
    let trial = slots.trial.as_ref();
    let current = slots.current.as_ref().map(|current| {
        let version = trial.and_then(|trial| match () {
            () if trial.new == *current => Some(&trial.version),
            () if trial.old == *current => Some(&trial.was),
            () => None,
        });
        version.unwrap_or(current)
    });
    let open = trial.filter(|trial| trial.is_open());
    if current.is_none() && open.is_none() {
        return None;
    }
    let mut found =
        format!("{installed} is installed, {} is to run", current.map_or(installed, |version| version));
    if let Some(trial) = open {
        found += &format!("; {} is on trial since {}", trial.version, trial.since);
    }
    if !lets {
        let advice =
            "give --upgrade-from, also with --upgrade=off; or remove the folder slots if that is meant";
        let finding = Finding::problem(
            Check::Version,
            ABOUT,
            found,
            "--upgrade-from, without which the installed one runs",
            advice,
        );
        return Some(finding.as_note());
    }
    if slots.missed > 0 {
        return Some(Finding::problem(
            Check::Version,
            ABOUT,
            format!("{found}; it could not be read or run in the last {} starts", slots.missed),
            "a program that can be run",
            "see to the disk, and under systemd to ExecPaths; or remove the folder slots, and the installed one runs",
        ));
    }
    Some(Finding::good(Check::Version, ABOUT, found))
}

/// Judges the Kubernetes that a member is.
pub fn kubernetes(about: &str, version: &str) -> Finding {
    let found = format!("Kubernetes {version}");
    match minor(version) {
        Some((1, minor)) if minor < 22 => Finding::problem(
            Check::Version,
            about,
            found,
            "1.22 or newer, which has server-side apply",
            "bring it up to date",
        ),
        _ => Finding::good(Check::Version, about, found),
    }
}

/// Major and minor of `v1.36.2+k3s1`.
fn minor(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.trim_start_matches('v').split('.');
    let number = |part: &str| {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..digits].parse().ok()
    };
    Some((number(parts.next()?)?, number(parts.next()?)?))
}

/// Judges rights: what is refused of what has to be done, in words.
pub fn rights(about: &str, asked: usize, refused: &[String], advice: &str) -> Finding {
    if refused.is_empty() {
        return Finding::good(Check::Rights, about, format!("all of {asked} that were asked for"));
    }
    Finding::problem(Check::Rights, about, format!("may not {}", refused.join(", ")), "these rights", advice)
}

/// What was found of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// Its mode, if it is there.
    pub mode: Option<u32>,
    /// Whether something could be written there, and why not.
    pub written: Result<(), String>,
}

/// Judges a folder for what others must not read.
pub fn folder(path: &str, facts: &Folder, owner: &str) -> Finding {
    let Some(mode) = facts.mode else {
        return Finding::problem(
            Check::Folder,
            path,
            "it is not there",
            "a folder",
            format!("name the right one; it is made when {owner} starts"),
        )
        .as_note();
    };
    if let Err(error) = &facts.written {
        return Finding::problem(
            Check::Folder,
            path,
            error.clone(),
            "a folder that can be written to",
            format!("give it to the user that {owner} runs as, or run doctor as that user"),
        );
    }
    if mode & 0o077 != 0 {
        return Finding::problem(
            Check::Folder,
            path,
            format!("mode {:04o}: others may read it", mode & 0o7777),
            "mode 0700, since keys are in it",
            format!("chmod 0700 {path}"),
        );
    }
    Finding::good(Check::Folder, path, "it is there, can be written to, and is this user's alone")
}

/// Judges room on a disk and, where it was measured, how long a small write takes to be durable.
pub fn disk(path: &str, free: u64, total: u64, sync: Option<Duration>) -> Finding {
    let found = format!("{} free of {}", bytes(free), bytes(total));
    if free < ROOM || free < total / ROOM_SHARE && free < ROOM * 16 {
        return Finding::problem(
            Check::Disk,
            path,
            found,
            format!("{} at least", bytes(ROOM.max((total / ROOM_SHARE).min(ROOM * 16)))),
            "make room: what cannot be written is refused or forgotten",
        );
    }
    match sync {
        Some(took) if took > SLOW_SYNC => Finding::problem(
            Check::Disk,
            path,
            format!("{found}; a small write takes {} ms", took.as_millis()),
            format!("{} ms at most", SLOW_SYNC.as_millis()),
            "put it on a local SSD, and look for what else writes there (iostat -x 1)",
        ),
        Some(took) => Finding::good(
            Check::Disk,
            path,
            format!("{found}; a small write takes {:.1} ms", took.as_secs_f64() * 1e3),
        ),
        None => Finding::good(Check::Disk, path, found),
    }
}

/// Judges a port. `ours` if the process that is meant has it.
pub fn port(flag: &str, address: &str, bound: &Result<(), String>, ours: bool) -> Finding {
    match bound {
        Ok(()) => Finding::good(Check::Port, flag, format!("{address} is free")),
        Err(_) if ours => Finding::good(Check::Port, flag, format!("{address} is the running process's")),
        Err(error) => Finding::problem(
            Check::Port,
            flag,
            format!("{address}: {error}"),
            "an address of this machine, and a port that nobody has",
            format!("see who has it (ss -ltnp), or choose another with {flag}"),
        ),
    }
}

/// Judges how many files may be open; none: any number.
pub fn open_files(most: Option<u64>, connections: u64) -> Finding {
    let wanted = connections.clamp(256, FILES);
    match most {
        Some(most) if most < wanted => Finding::problem(
            Check::OpenFiles,
            "",
            format!("{most} may be open"),
            format!("{wanted} at least, for {connections} connections"),
            "raise the limit: LimitNOFILE= in the unit, ulimit -Hn in a shell",
        ),
        Some(most) => Finding::good(Check::OpenFiles, "", format!("{most} may be open")),
        None => Finding::good(Check::OpenFiles, "", "any number may be open"),
    }
}

/// Judges memory for what may be stored: objects are in memory with as much again beside them.
pub fn memory(total: Option<u64>, quota: u64) -> Finding {
    let Some(total) = total else {
        return Finding::skipped(Check::Memory, "", "how much there is cannot be seen");
    };
    let found = format!("{} of memory, {} may be stored", bytes(total), bytes(quota));
    if quota == 0 {
        return Finding::problem(
            Check::Memory,
            "",
            format!("{} of memory, anything may be stored", bytes(total)),
            "a bound",
            "leave --storage-quota out, or give it a number",
        )
        .as_note();
    }
    if quota > total / 2 {
        return Finding::problem(
            Check::Memory,
            "",
            found,
            format!("{} at least", bytes(quota * 2)),
            "give the hub more memory, or lower --storage-quota",
        );
    }
    Finding::good(Check::Memory, "", found)
}

/// Judges when a hub was last backed up.
pub fn backup(last: Option<SystemTime>, now: SystemTime) -> Finding {
    let advice = "karmada-hub backup --data-dir DIR --to FILE, every day, and keep it elsewhere";
    let Some(last) = last else {
        return Finding::problem(
            Check::Backup,
            "",
            "there has never been one",
            "one of the last day",
            advice,
        )
        .as_note();
    };
    let age = now.duration_since(last).unwrap_or_default();
    let found = format!("the last one is of {}", Time::from_system(last));
    if age > BACKUP {
        return Finding::problem(
            Check::Backup,
            "",
            format!("{found}, {} ago", days(age)),
            "one of the last day",
            advice,
        )
        .as_note();
    }
    Finding::good(Check::Backup, "", found)
}

/// Judges so many Clusters that have [two ways](crate::ways::Ways::are_two), some of them by name.
pub fn ways(count: usize, some: &[String]) -> Finding {
    if count == 0 {
        return Finding::good(Check::Tunnels, "", "it is known how the hub is to reach each member");
    }
    let more = if count > some.len() { ", …" } else { "" };
    Finding::problem(
        Check::Tunnels,
        "",
        format!(
            "the hub dials members past their agents, which serve tunnels: {count} of them, {}{more}",
            some.join(", ")
        ),
        "an annotation on each of these Clusters that says which way is meant",
        "kubectl annotate cluster NAME cluster.karmada.io/tunnel=full to have the hub use the tunnel, where it cannot dial or the limits \
         of the member's owner are to hold; =off to have it dial",
    )
    .as_note()
}

/// Judges what a process says at `/readyz?verbose`, or that it says nothing.
pub fn health(about: &str, said: Result<&str, &str>, log: &str) -> Finding {
    match said {
        Ok(text) => {
            let failing: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("[-]")).collect();
            if failing.is_empty() {
                return Finding::good(Check::Health, about, "it runs, and says that it is ready");
            }
            Finding::problem(
                Check::Health,
                about,
                format!("it runs, and is not ready: {}", failing.join("; ")),
                "all of its checks to pass",
                format!("its log says why: {log}"),
            )
        }
        Err(why) => Finding::problem(
            Check::Health,
            about,
            why,
            "a process that runs",
            format!("start it; if it ends again, its log says why: {log}"),
        )
        .as_note(),
    }
}

fn whole(length: Duration) -> Duration {
    Duration::from_secs(length.as_secs())
}

/// How long something is, in days where it is some of them.
fn days(length: Duration) -> String {
    match length.as_secs() / 86_400 {
        0 | 1 => duration::format(whole(length)),
        days => format!("{days} days"),
    }
}

/// A number of bytes for people.
fn bytes(number: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    UNITS.iter().find(|(unit, _)| number >= *unit).map_or_else(
        || format!("{number} B"),
        |(unit, name)| format!("{:.1} {name}", number as f64 / *unit as f64),
    )
}

#[cfg(test)]
mod tests;
