//! What the agent says of itself to a person at the machine, who may have no hub to ask: `/status` as text, `/status.json`,
//! and `karmada-agent status`, which asks for the latter.
//!
//! It is computed when somebody asks, of what the agent knows anyway; lists are bounded by `limit` and go on with `after`.
//! Names of objects are in it, and what the member says about them, but nothing of what they hold.
//!
//! **Who may read it.** Health is told on every address, since kubelets ask from outside the Pod; names of a shop's objects
//! are nobody's business on its network. So the port that tells health tells this to peers on the loopback alone: to whoever
//! is logged in on the machine or in the Pod (`kubectl exec`), and to `kubectl port-forward`, which arrives there, too. It
//! wants a `Host` of the loopback besides, so that no web page can have a browser on the machine read it under a name of its
//! own. Where that is too little, `--health-probe-bind-address 0` tells nothing to anybody.

mod ask;
mod table;

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, SystemTime},
};

use karmada_client::{LinkState, LinkStatus};
use karmada_env::Env;
use karmada_member::outline::{Ask, Counts, Row};
use karmada_meta::time::Time;
use serde::{Deserialize, Serialize};

pub(super) use ask::{ADDRESS, command, get, main};
pub(super) use table::write;

use crate::{Handle, Place, hub::credential::standing::Standing};

/// Where the page is.
pub(super) const TEXT: &str = "/status";
/// Where the same is as JSON.
pub(super) const JSON: &str = "/status.json";

/// So many Works are listed if nobody says how many, and at most.
const USUAL: usize = 100;
const MOST: usize = 1000;

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    pub(super) version: String,
    pub(super) cluster: String,
    pub(super) time: Time,
    pub(super) started: Time,
    pub(super) phase: String,
    /// Why the phase is what it is, where there is something to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) why: String,
    pub(super) rights: Allowed,
    pub(super) hub: Line,
    pub(super) member: Line,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) certificate_ends: Option<Time>,
    /// When the hub last took a renewal of the Lease; none since the start if it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lease_renewed: Option<Time>,
    /// Where what the hub has said is kept.
    pub(super) kept: String,
    /// What holds all changes back, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) held: Option<String>,
    /// What is wrong, a sentence each.
    pub(super) troubles: Vec<String>,
    pub(super) queues: Queues,
    pub(super) counts: Counts,
    pub(super) works: Vec<Row>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<String>,
}

/// What the agent may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Allowed {
    pub(super) apply: bool,
    pub(super) delete: bool,
    pub(super) report: bool,
}

/// What waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Queues {
    /// Works to be looked at now.
    pub(super) works: usize,
    /// Reports that the hub has not taken.
    pub(super) reports: usize,
    /// Workloads that are stopped since nobody confirms them.
    pub(super) fenced: usize,
}

/// A link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Line {
    pub(super) server: String,
    pub(super) connected: bool,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<Time>,
    /// Why it is not connected.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) error: String,
    /// When anything was last heard; nothing since the start if it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last_heard: Option<Time>,
    pub(super) received_bytes: u64,
    pub(super) sent_bytes: u64,
}

/// Everything that is told about, while an agent runs.
pub(super) struct Sources<'a> {
    pub(super) agent: &'a Handle,
    pub(super) hub: (&'a str, &'a LinkStatus),
    pub(super) member: (&'a str, &'a LinkStatus),
    pub(super) standing: &'a Standing,
    pub(super) place: &'a Place,
    pub(super) started: SystemTime,
    pub(super) env: &'a Env,
}

impl Status {
    /// How things are now.
    pub(super) fn of(sources: &Sources<'_>, ask: &Ask) -> Self {
        let Sources { agent, hub, member, standing, place, started, env } = sources;
        let phase = agent.phase().borrow().clone();
        let (rights, troubles) = (agent.rights(), standing.words());
        let troubles = troubles.lines().map(str::to_owned);
        let unseen = agent.watches_refused().into_iter().map(|(kind, why)| {
            format!(
                "changes of {kind} on the member are not seen, since it refuses to have them watched: {why}"
            )
        });
        let outline = agent.outline(ask);
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            cluster: agent.cluster().to_owned(),
            time: Time::now(env),
            started: Time::from_system(*started),
            phase: phase.as_str().to_owned(),
            why: phase.why().unwrap_or_default().to_owned(),
            rights: Allowed {
                apply: rights.may_apply(),
                delete: rights.may_delete(),
                report: rights.may_report(),
            },
            hub: Line::of(hub.0, hub.1, env),
            member: Line::of(member.0, member.1, env),
            certificate_ends: standing.figures().until.map(Time::from_system),
            lease_renewed: rights.heard().map(|heard| at(heard, env)),
            kept: kept(place),
            held: agent.held(),
            troubles: troubles.chain(agent.troubles()).chain(unseen).collect(),
            queues: Queues { works: agent.queued(), reports: agent.unreported(), fenced: agent.fenced() },
            counts: outline.counts,
            works: outline.works,
            next: outline.next,
        }
    }
}

impl Line {
    fn of(server: &str, link: &LinkStatus, env: &Env) -> Self {
        let counters = link.counters();
        let heard = Some(counters.last_read()).filter(|heard| !heard.is_zero());
        let line = Self {
            server: server.to_owned(),
            last_heard: heard.map(|heard| at(heard, env)),
            received_bytes: counters.received(),
            sent_bytes: counters.sent(),
            ..Self::default()
        };
        match &*link.state().borrow() {
            LinkState::Connected { since, .. } => {
                Self { connected: true, since: Some(at(*since, env)), ..line }
            }
            LinkState::Connecting { error, .. } => {
                Self { error: error.as_deref().unwrap_or_default().to_owned(), ..line }
            }
            LinkState::Closed => line,
        }
    }
}

/// When something was of which the monotonic clock tells.
fn at(then: Duration, env: &Env) -> Time {
    Time::from_system(env.wall() - env.now().saturating_sub(then))
}

fn kept(place: &Place) -> String {
    match place {
        Place::Nowhere => "nowhere".to_owned(),
        Place::Folder(folder, _) => folder.display().to_string(),
        Place::Secrets => "in Secrets of the member".to_owned(),
        Place::Memory(_) => "in memory".to_owned(),
    }
}

/// What a query asks for.
pub(super) fn asked(query: Option<&str>) -> Result<Ask, String> {
    let mut ask = Ask { limit: USUAL, after: None, all: false };
    for word in query.unwrap_or_default().split('&').filter(|word| !word.is_empty()) {
        let (key, value) = word.split_once('=').unwrap_or((word, "true"));
        match (key, value) {
            ("limit", number) => match number.parse() {
                Ok(limit) if (1..=MOST).contains(&limit) => ask.limit = limit,
                _ => return Err(format!("limit must be a number from 1 to {MOST}, not {number:?}")),
            },
            ("after", name) => ask.after = Some(name.to_owned()),
            ("all", "true" | "false") => ask.all = value == "true",
            _ => return Err(format!("{word:?} is not known: there are limit=N, after=WORK and all=true")),
        }
    }
    Ok(ask)
}

/// Whether somebody is told: see the module.
pub(super) fn may_read(peer: Option<SocketAddr>, host: Option<&str>) -> bool {
    let is_loopback = |ip: IpAddr| ip.to_canonical().is_loopback();
    let name = host.map(|host| {
        let (name, port) = host.rsplit_once(':').unwrap_or((host, ""));
        let name = if port.bytes().all(|b| b.is_ascii_digit()) { name } else { host };
        name.trim_start_matches('[').trim_end_matches(']')
    });
    let is_ours =
        |name: &str| name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(is_loopback);
    peer.is_some_and(|peer| is_loopback(peer.ip())) && name.is_some_and(is_ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_on_the_machine_is_told() {
        let rows = [
            ("127.0.0.1:5", Some("localhost:10357"), true),
            ("127.7.0.1:5", Some("127.0.0.1:10357"), true),
            ("[::1]:5", Some("[::1]:10357"), true),
            ("[::ffff:127.0.0.1]:5", Some("LOCALHOST"), true),
            ("[::1]:5", Some("[::1]"), true),
            // A page of somebody's whose name leads to the loopback.
            ("127.0.0.1:5", Some("evil.example:10357"), false),
            ("127.0.0.1:5", Some("127.0.0.1.evil.example"), false),
            ("127.0.0.1:5", Some(""), false),
            ("127.0.0.1:5", None, false),
            ("10.0.0.7:5", Some("localhost:10357"), false),
            ("[2001:db8::1]:5", Some("localhost"), false),
        ];
        for (peer, host, may) in rows {
            assert_eq!(may_read(Some(peer.parse().unwrap()), host), may, "{peer} {host:?}");
        }
        assert!(!may_read(None, Some("localhost")));
    }

    #[test]
    fn queries_are_read_or_refused() {
        let ask = |limit, after: Option<&str>, all| Ask { limit, after: after.map(str::to_owned), all };
        let rows = [
            (None, Ok(ask(100, None, false))),
            (Some("limit=2&after=web-1&all=true"), Ok(ask(2, Some("web-1"), true))),
            (Some("all"), Ok(ask(100, None, true))),
            (Some("limit=0"), Err("limit must be a number from 1 to 1000, not \"0\"")),
            (Some("limit=1001"), Err("limit must be a number from 1 to 1000, not \"1001\"")),
            (Some("limit=x"), Err("limit must be a number from 1 to 1000, not \"x\"")),
            (Some("all=1"), Err("\"all=1\" is not known: there are limit=N, after=WORK and all=true")),
        ];
        for (query, want) in rows {
            assert_eq!(asked(query), want.map_err(str::to_owned), "{query:?}");
        }
    }
}
