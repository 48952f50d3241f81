//! The hub's agent for one cluster.

use std::{mem::replace, sync::Arc, time::Duration};

use karmada_agent::{Agent, AgentConfig, Handle, Phase, Place, State};
use karmada_api::{
    cluster::{Cluster, LocalSecretReference},
    consts::namespace,
};
use karmada_client::{
    Backoff, Endpoint, Policy, Rest, Wake,
    link::{Link, LinkConfig},
    paced::paced,
    rest::{Bounds, STRANGE},
    watch::share::{self, Part, Share},
};
use karmada_env::Env;
use karmada_meta::object;
use karmada_objects::{
    key::Key,
    kinds::{CLUSTERS, LEASES, SECRETS},
};
use karmada_reach::{worked_on, worked_on_at};
use kube::Client;
use serde::Deserialize as _;
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, interval_at, sleep, sleep_until, timeout},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    Common,
    starts::{By, Turn},
    told,
};

/// Who the hub is for members.
const USER_AGENT: &str = concat!("karmada-hub/", env!("CARGO_PKG_VERSION"));
/// Before an instance that has failed is started anew.
pub(super) const AGAIN: Policy = Policy::new(Duration::from_secs(1), Duration::from_secs(60));
/// Without a sign of a change it is looked all the same.
const LOOK: Duration = Duration::from_secs(300);
/// What is taken of a member's answers, beside its corner: they are read in the process that all clusters are served by.
const TAKEN: Bounds = Bounds { answer: 16 << 20, kept: usize::MAX, dense: STRANGE };
/// Of what is kept of all members together one may have this part.
const PART: usize = 8;
/// What its long answers may take at a time, of what there is for all members.
const CORNER: usize = 2 * TAKEN.answer;
/// What is taken of its answers for searches.
const COPIED: Bounds = Bounds { answer: 8 << 20, kept: usize::MAX, dense: STRANGE };
/// So long one counts as beginning at most, until it has looked at its member for the first time and listed what is there.
const BEGINS: Duration = Duration::from_secs(2);
/// How often it is looked whether it has: at first, and where it takes long.
const BEGUN: Duration = Duration::from_millis(100);
const SELDOM: Duration = Duration::from_secs(5);
/// So often it is looked whether an instance still looks at its member.
const WATCHED: Duration = Duration::from_secs(60);
/// One that has not done so for so long hangs: longer than all that a look asks a slow member may take.
const HANGS: Duration = Duration::from_secs(240);
/// One that may not speak for its cluster any more for so long: the cluster says so, since nobody else does.
const IDLE: Duration = Duration::from_secs(120);
/// One that has worked for so long, longer than it takes to notice that it hangs, and fails then, has not failed before.
const WELL: Duration = Duration::from_secs(600);
/// How long an instance may take to end what is under way.
const ENDS: Duration = Duration::from_secs(9);

/// Waits until an agent has looked at its member. It is looked for that less and less often.
async fn begun(handle: &Handle) {
    let mut pause = BEGUN;
    while handle.stats().status_times.count() == 0.0 {
        sleep(pause).await;
        pause = (pause * 5 / 4).min(SELDOM);
    }
}

/// An instance has worked for so long.
fn has_worked(backoff: &mut Backoff, so_long: Duration) {
    if so_long >= WELL {
        backoff.reset();
    }
}

/// Why an instance is no more.
enum Ended {
    /// It was to end.
    Stopped,
    /// It is reached by something else now.
    Changed,
    /// It ended by itself, or what it is reached by can be used no more.
    Failed(String),
    /// When its turn came, it was not known any more by what it is reached.
    Unfound(Unfound),
}

/// Why it is not known by what a member is reached.
enum Unfound {
    /// The hub's own API has not said: nothing is known to have changed.
    Unread(String),
    /// What is said cannot be used, or is not there.
    Unusable(String),
}

/// Hears of the Secret that a Cluster names, wherever that is.
#[derive(Default)]
struct Ear(Option<(LocalSecretReference, share::Ear)>);

impl Ear {
    fn listen_to(&mut self, place: &LocalSecretReference, secrets: &Share) {
        if self.0.as_ref().is_some_and(|(there, _)| there == place) {
            return;
        }
        let part = Part::Object(place.namespace.clone(), place.name.clone());
        self.0 = Some((place.clone(), secrets.part(part).ear()));
    }

    /// Returns when it may have changed, or gone.
    async fn hears(&mut self) {
        match &mut self.0 {
            None => std::future::pending().await,
            Some((_, ear)) => drop(ear.next().await),
        }
    }
}

/// Notices that an agent does not look at its member any more, or may not: then nobody says how that is.
#[derive(Debug, Default)]
struct Watchdog {
    looks: f64,
    /// Since when it has not looked.
    looked: Duration,
    /// Since when it may not.
    idle: Option<Duration>,
    /// It was at work, and nobody registers since then.
    registered: bool,
}

/// What a watchdog finds.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// It looks, or has time to.
    Well,
    /// It is to look, and does not.
    Hangs,
    /// It may not speak for its cluster, and why.
    Idle(String),
}

impl Watchdog {
    fn new(now: Duration) -> Self {
        Self { looked: now, ..Self::default() }
    }

    fn find(&mut self, looks: f64, phase: &Phase, now: Duration) -> Found {
        if looks > self.looks || *phase != Phase::Active {
            (self.looks, self.looked) = (looks, now);
        }
        self.registered = match phase {
            Phase::Active => true,
            Phase::Joining => false,
            _ => self.registered,
        };
        let why = match phase {
            Phase::StandingBy => "another agent holds the Lease on the member by which the two know each other: if one is still \
                                  installed there, uninstall it"
                .to_owned(),
            Phase::Refused(why) if self.registered => why.to_string(),
            // Whoever registers says what that waits for: they would write against each other.
            Phase::Active | Phase::Joining | Phase::Refused(_) | Phase::Removed => {
                self.idle = None;
                return if now.saturating_sub(self.looked) >= HANGS { Found::Hangs } else { Found::Well };
            }
        };
        let since = *self.idle.get_or_insert(now);
        if now.saturating_sub(since) >= IDLE { Found::Idle(why) } else { Found::Well }
    }
}

/// See the module.
pub(super) struct Instance {
    cluster: String,
    common: Arc<Common>,
    hub: Rest,
    env: Env,
    look: Arc<Notify>,
    stop: CancellationToken,
    ear: Ear,
}

impl Instance {
    pub(super) fn new(
        cluster: &str,
        common: &Arc<Common>,
        look: &Arc<Notify>,
        stop: &CancellationToken,
    ) -> Self {
        Self {
            cluster: cluster.to_owned(),
            common: common.clone(),
            hub: Rest::new(common.client.clone()),
            env: common.writer.env.clone(),
            look: look.clone(),
            stop: stop.clone(),
            ear: Ear::default(),
        }
    }

    /// Runs it again and again, until it is to end.
    pub(super) async fn keep(mut self, mut by: By) {
        let (stop, mut backoff) = (self.stop.clone(), Backoff::new(AGAIN));
        loop {
            let found = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                found = Box::pin(self.find()) => found,
            };
            // Whoever cannot begin waits for no turn, and says why at once.
            let unfound = match found.map(|found| found.is_some()) {
                Ok(true) => match self.run(replace(&mut by, By::Being), &mut backoff).await {
                    Ended::Stopped => return,
                    Ended::Changed => {
                        tracing::info!(cluster = self.cluster, "what the cluster is reached by has changed");
                        backoff.reset();
                        continue;
                    }
                    Ended::Failed(why) => Unfound::Unusable(why),
                    Ended::Unfound(unfound) => unfound,
                },
                Ok(false) => return,
                Err(unfound) => unfound,
            };
            let (why, known) = match unfound {
                Unfound::Unusable(why) => (why, true),
                Unfound::Unread(why) => (why, false),
            };
            tracing::warn!(
                cluster = self.cluster,
                why,
                "the hub cannot work on a cluster in push mode, and tries again"
            );
            let telling = async {
                if known {
                    let why = format!("the hub cannot work on this cluster in push mode: {why}");
                    told::tell(&self.common.writer, &self.cluster, &why).await;
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = Box::pin(telling) => {}
            }
            let pause = backoff.next(&self.env);
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.look.notified() => {}
                () = self.ear.hears() => {}
                () = sleep(pause) => {}
            }
        }
    }

    /// By what the member is reached, and what tells whether that has changed; none where it is not in push mode.
    async fn find(&mut self) -> Result<Option<(Endpoint, u64)>, Unfound> {
        let name = &self.cluster;
        let read = match self.hub.get(&CLUSTERS.object(None, name)).await {
            Ok(read) => read,
            Err(error) if error.is_absence_of(name) => return Ok(None),
            Err(error) => return Err(Unfound::Unread(format!("its Cluster cannot be read: {error}"))),
        };
        if read["spec"]["syncMode"] != "Push" {
            return Ok(None);
        }
        let cluster = Cluster::deserialize(&read)
            .map_err(|error| Unfound::Unusable(format!("its Cluster cannot be read: {error}")))?;
        let Some(place) = &cluster.spec.secret_ref else {
            let why = format!("spec.secretRef: cluster {name} names no Secret with a token");
            return Err(Unfound::Unusable(why));
        };
        if let Err(why) = worked_on_at(place) {
            return Err(Unfound::Unusable(why));
        }
        self.ear.listen_to(place, &self.common.secrets);
        let path = SECRETS.object(Some(&place.namespace), &place.name);
        let secret = self.hub.get(&path).await.map_err(|error| {
            let why = format!("spec.secretRef: Secret {}/{}: {error}", place.namespace, place.name);
            if error.is_not_found() { Unfound::Unusable(why) } else { Unfound::Unread(why) }
        })?;
        worked_on(&cluster, &secret).map(Some).map_err(Unfound::Unusable)
    }

    /// Takes away the Lease of an agent of before: where there is one, an agent is on the member that stops what is fenced
    /// there, which this one does not. An agent that still runs makes it again.
    async fn forget_lease(&self) {
        let lease = Key::new(namespace::CLUSTER, self.cluster.as_str());
        if !self.common.has_lease(&lease) || !self.common.is_pushed(&self.cluster) {
            return;
        }
        let objects = &self.common.writer.objects;
        // Whatever it says by now; but not one that is made meanwhile, which counts with the next look.
        let gone = async {
            match objects.get(&LEASES, &lease).await? {
                Some(there) => objects.delete_uid(&LEASES, &lease, object::uid(&there)).await.map(drop),
                None => Ok(()),
            }
        };
        if let Err(error) = gone.await {
            tracing::warn!(cluster = self.cluster, %error, "the Lease of an agent of before cannot be deleted, which is tried again");
        }
    }

    /// Keeps what is searched on the member, until it is dropped.
    fn copy(&self, member: Client, back: Wake) -> AbortOnDropHandle<()> {
        let (common, cluster) = (self.common.clone(), self.cluster.clone());
        AbortOnDropHandle::new(tokio::spawn(async move {
            let rest = || {
                // Beside the corner of what works on it, so that neither waits for the other.
                let corner = common.copied.corner(COPIED.answer, common.settings.kept / PART / 2);
                Rest::new(member.clone()).bounded(COPIED).within(Some(corner)).counting(&common.feed.failures)
            };
            let key = Key::cluster_scoped(cluster.as_str());
            let about = || common.known.clusters.get(&key).map(|head| head.cluster.clone());
            common.copies.follow(&cluster, rest, &back, about).await;
        }))
    }

    /// Runs it once, when its turn has come, by what its member is reached by then. What failed before counts no more once it has
    /// worked.
    async fn run(&mut self, by: By, backoff: &mut Backoff) -> Ended {
        let (stop, common) = (self.stop.clone(), self.common.clone());
        let (turn, found) = tokio::select! {
            biased;
            () = stop.cancelled() => return Ended::Stopped,
            both = common.starts.turn_and(by, Box::pin(self.find())) => both,
        };
        match found {
            Ok(Some((endpoint, print))) => {
                let begun = self.env.now();
                let ended = self.work(endpoint, print, turn).await;
                has_worked(backoff, self.env.now().saturating_sub(begun));
                ended
            }
            Ok(None) => Ended::Stopped,
            Err(unfound) => Ended::Unfound(unfound),
        }
    }

    /// Works on a member that is reached so.
    async fn work(&mut self, endpoint: Endpoint, print: u64, turn: Turn) -> Ended {
        let (stop, common) = (self.stop.clone(), self.common.clone());
        // It counts as beginning for a while.
        let mut turn = Some(turn);
        let namespace = endpoint.namespace.clone();
        let link = LinkConfig::careful(endpoint, USER_AGENT, karmada_reach::nowhere);
        let link = Link::new(link, self.env.clone());
        let status = link.status();
        let settings = &self.common.settings;
        let config = AgentConfig {
            hosted: Some(self.common.feed.clone()),
            bounds: TAKEN,
            corner: Some(self.common.room.corner(CORNER, settings.kept / PART)),
            status_interval: settings.look,
            success_threshold: settings.success,
            failure_threshold: settings.failure,
            member_back: status.connected().clone(),
            ..AgentConfig::new(self.cluster.as_str())
        };
        let member = paced(link, &namespace, settings.pace, &config.member_lease());
        let searched = member.clone();
        // The same whichever hub leads: that one went before the other came.
        let state = State { instance: format!("hub-of-{}", self.cluster), place: Place::Nowhere };
        let agent = Agent::new(config, self.common.client.clone(), member, self.env.clone(), state);
        let handle = agent.handle();
        let mut watchdog = Watchdog::new(self.env.now());
        let over = stop.child_token();
        Box::pin(self.forget_lease()).await;
        let mut running = JoinSet::new();
        running.spawn(agent.run(over.clone()));
        let _copying = self.copy(searched, status.connected().clone());
        let mut looked = self.env.now();
        let mut rounds = interval_at(Instant::now() + WATCHED, WATCHED);
        let until = Instant::now() + BEGINS;
        let begun = begun(&handle);
        tokio::pin!(begun);
        let mut has_looked = false;
        tracing::info!(cluster = self.cluster, "the hub works on a cluster in push mode");
        let ended = loop {
            tokio::select! {
                biased;
                ended = running.join_next() => return match ended {
                    Some(Ok(Ok(()))) | None => Ended::Stopped,
                    Some(Ok(Err(error))) => Ended::Failed(error.to_string()),
                    Some(Err(error)) => Ended::Failed(error.to_string()),
                },
                () = stop.cancelled() => break Ended::Stopped,
                () = self.look.notified() => {}
                () = self.ear.hears() => {}
                () = &mut begun, if !has_looked => {
                    has_looked = true;
                    common.accounts.judgement.looked_at(&self.cluster);
                    turn = None;
                    continue;
                }
                () = sleep_until(until), if turn.is_some() => {
                    turn = None;
                    continue;
                }
                _ = rounds.tick() => {
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => break Ended::Stopped,
                        () = Box::pin(self.forget_lease()) => {}
                    }
                    let now = self.env.now();
                    let (looks, at) = (handle.stats().status_times.count(), handle.phase().borrow().clone());
                    match watchdog.find(looks, &at, now) {
                        Found::Well => {}
                        Found::Hangs => {
                            let why = "what works on this member has not looked at it for minutes, and begins anew";
                            break Ended::Failed(why.to_owned());
                        }
                        Found::Idle(why) => {
                            let why = format!("the hub does not work on this cluster: {why}");
                            tokio::select! {
                                biased;
                                () = stop.cancelled() => break Ended::Stopped,
                                () = Box::pin(told::tell(&self.common.writer, &self.cluster, &why)) => {}
                            }
                        }
                    }
                    if now.saturating_sub(looked) < LOOK {
                        continue;
                    }
                }
            }
            looked = self.env.now();
            let found = tokio::select! {
                biased;
                () = stop.cancelled() => break Ended::Stopped,
                found = Box::pin(self.find()) => found,
            };
            match found {
                Ok(Some((_, now))) if now != print => break Ended::Changed,
                Ok(None) => break Ended::Stopped,
                // Whoever takes the token away means it.
                Err(Unfound::Unusable(why)) => break Ended::Failed(why),
                Ok(Some(_)) | Err(Unfound::Unread(_)) => {}
            }
        };
        over.cancel();
        let _ = timeout(ENDS, running.join_next()).await;
        running.shutdown().await;
        ended
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    use serde_json::{Value, json};

    use super::*;

    /// What tells whether what a member is reached by has changed.
    fn print(there: &Value) -> u64 {
        let cluster: Cluster = serde_json::from_value(there["cluster"].clone()).expect("a Cluster");
        worked_on(&cluster, &there["secret"]).unwrap_or_else(|why| panic!("{why}")).1
    }

    #[test]
    fn an_instance_begins_anew_with_what_its_member_is_reached_by_and_with_nothing_else() {
        let base64 = |text: &str| json!(BASE64_STANDARD.encode(text));
        let authority = || {
            let made = rcgen::generate_simple_self_signed(vec!["m".to_owned()]).expect("a certificate");
            base64(&made.cert.pem())
        };
        let place = |name: &str| json!({"namespace": namespace::CLUSTER, "name": name});
        let there = json!({
            "cluster": {
                "apiVersion": CLUSTERS.api_version(), "kind": "Cluster", "metadata": {"name": "m", "uid": "1"},
                "spec": {
                    "id": "i", "syncMode": "Push", "apiEndpoint": "https://10.0.0.1:6443",
                    "secretRef": place("m"), "impersonatorSecretRef": place("m-impersonator"),
                    "proxyURL": "http://squid:3128", "proxyHeader": {"x-site": "a"},
                },
            },
            "secret": {"metadata": place("m"), "data": {"token": base64("one"), "caBundle": authority()}},
        });
        let before = print(&there);
        assert_eq!(print(&there), before);
        let ready = json!({
            "type": "Ready", "status": "False", "reason": "r", "message": "m", "lastTransitionTime": "2026-01-02T03:04:05Z",
        });
        for (of, field, value, anew) in [
            ("/cluster/spec", "apiEndpoint", json!("https://10.0.0.2:6443"), true),
            ("/cluster/spec", "insecureSkipTLSVerification", json!(true), true),
            ("/cluster/spec", "proxyURL", json!("http://squid:3129"), true),
            ("/cluster/spec", "proxyURL", json!(""), true),
            ("/cluster/spec", "proxyHeader", json!({"x-site": "b"}), true),
            ("/cluster/spec", "proxyHeader", json!({"x-other": "a"}), true),
            ("/secret/data", "token", base64("two"), true),
            ("/secret/data", "caBundle", authority(), true),
            // It says where the same is to be read; whoever acts in users' names is looked up for each of their requests.
            ("/cluster/spec", "secretRef", place("m-impersonator"), false),
            ("/cluster/spec", "impersonatorSecretRef", place("m"), false),
            ("/secret/data", "more", base64("x"), false),
            ("/secret/metadata", "labels", json!({"a": "b"}), false),
            ("/cluster/metadata", "labels", json!({"a": "b"}), false),
            ("/cluster/metadata", "annotations", json!({"a": "b"}), false),
            ("/cluster/spec", "taints", json!([{"key": "k", "effect": "NoExecute"}]), false),
            ("/cluster/spec", "region", json!("eu"), false),
            ("/cluster/spec", "zones", json!(["z"]), false),
            ("/cluster", "status", json!({"conditions": [ready]}), false),
        ] {
            let mut there = there.clone();
            let said = format!("{of}/{field}: {value}");
            there.pointer_mut(of).expect("it is there")[field] = value;
            assert_eq!(print(&there) != before, anew, "{said}");
        }
    }

    #[test]
    fn one_that_does_not_look_or_may_not_is_noticed() {
        let minute = |n: u32| WATCHED * n;
        let (act, wait) = (Phase::Active, Phase::StandingBy);
        let no = Phase::Refused("why".into());
        let idle = |found: &Found, text: &str| matches!(found, Found::Idle(why) if why.contains(text));
        let mut dog = Watchdog::new(minute(0));
        assert_eq!(dog.find(1.0, &act, minute(1)), Found::Well);
        assert_eq!(dog.find(1.0, &act, minute(4)), Found::Well, "it takes its time");
        assert_eq!(dog.find(1.0, &act, minute(5)), Found::Hangs);
        // It stood by from the beginning, or comes to.
        for mut dog in [Watchdog::new(minute(5)), dog] {
            assert_eq!(dog.find(1.0, &wait, minute(6)), Found::Well, "it is about to begin");
            assert_eq!(dog.find(1.0, &wait, minute(7)), Found::Well);
            assert!(idle(&dog.find(1.0, &wait, minute(8)), "uninstall it"));
            assert_eq!(dog.find(1.0, &act, minute(10)), Found::Well, "it has its time to look");
            assert_eq!(dog.find(1.0, &no, minute(10)), Found::Well);
            assert!(idle(&dog.find(1.0, &no, minute(12)), "why"), "it was registered");
            // Whoever registers says for themselves what that waits for.
            for (phase, at) in [(&Phase::Joining, 13), (&Phase::Joining, 20), (&no, 21), (&no, 30)] {
                assert_eq!(dog.find(1.0, phase, minute(at)), Found::Well, "{phase:?}");
            }
            assert_eq!(dog.find(1.0, &wait, minute(31)), Found::Well, "it is about to begin");
            assert_eq!(dog.find(1.0, &Phase::Removed, minute(40)), Found::Well);
        }
    }

    #[test]
    fn a_failure_after_long_work_is_the_first_one() {
        let env = Env::seeded(karmada_env::ManualClock::new(std::time::UNIX_EPOCH), 7);
        let mut backoff = Backoff::new(AGAIN);
        let longest = (0..8).map(|_| backoff.next(&env)).max();
        assert!(longest > Some(AGAIN.min * 8), "{longest:?}");
        // One that fails again and again after some minutes is no better for these.
        has_worked(&mut backoff, HANGS + 2 * WATCHED);
        assert!(backoff.next(&env) > AGAIN.min);
        has_worked(&mut backoff, WELL);
        assert!(backoff.next(&env) <= AGAIN.min);
    }
}
