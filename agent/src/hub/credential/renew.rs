//! Replaces the credential in time, without a restart: at a random point between 50 % and 65 % of its life a new one is asked
//! for under the old one, and used once the hub has answered to it. The same way leads back after the old one has ended, as
//! long as the hub lets it. Once a day the hub's authorities are looked at: when they change, it is due at once.
//!
//! ```text
//!   ── due, or the hub refuses us ──▶ is there a newer one in the file, or kept by another process? ── yes ─▶ try it
//!                                      │ no
//!                                      ▼
//!                              a key that is kept ──▶ request ──▶ certificate ──▶ try it ──▶ keep it ──▶ in use
//!                                      │ refused, and there is a token
//!                                      └──▶ join anew
//! ```
//!
//! Who was given another invitation, by which it cannot join, goes on with what it has, says so, and tries again.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures::future::BoxFuture;
use http::Method;
use karmada_client::{
    Backoff, Contact, Endpoint, LinkConfig, LinkStatus, Policy, Rest,
    kubeconfig::Access,
    link::{Identity, NotTaken},
};
use karmada_core::names::agent_user;
use karmada_env::Env;
use karmada_meta::time::Time;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::{CONTEXT, Credential, Issued, Keep, standing::Standing};
use crate::hub::{
    clock,
    join::{
        discovery,
        request::{self, Key, Outcome},
    },
};

/// What the hub is asked to see whether it takes a credential: small, and every agent's to see.
pub(crate) const PROBE: &str = "/api/v1/namespaces/karmada-cluster";

/// Between attempts that failed; less where the life of a certificate is short.
const RETRY: Policy = Policy::new(Duration::from_secs(5), Duration::from_secs(600));

/// How long a request may be undecided before it is looked at again later.
const DECIDED: Duration = Duration::from_secs(10);

/// How often files are looked at, and clocks.
const LOOK: Duration = Duration::from_secs(10);

/// How often it is looked whether the hub's authorities change: each time a connection is made for that.
const AUTHORITIES: Duration = Duration::from_secs(24 * 3600);

/// The same part of a short life of a certificate.
const LOOKS: u32 = 10;

/// Where else credentials come from.
pub(crate) trait Supply: Send + Sync {
    /// How the hub is reached by a credential.
    fn endpoint(&self, credential: &Credential) -> Result<Endpoint, String>;
    /// What stands in the file that somebody else looks after, if there is one, and something that changes with it; nothing if that
    /// is what was `seen`.
    fn in_file(&self, seen: Option<u64>) -> Option<Result<(Credential, u64), String>>;
    /// What was kept, by this process or another.
    fn kept(&self) -> BoxFuture<'_, Result<Option<Credential>, String>>;
    /// Joins by a token, if there is one.
    fn join(&self) -> Option<BoxFuture<'_, Result<Credential, String>>>;
    /// The credential that was kept, if it came by the invitation that we were given last.
    fn joined_meanwhile(&self) -> BoxFuture<'_, Option<Credential>>;
    /// Why we have not joined by the invitation that we were given last, where another credential does meanwhile.
    fn not_joined(&self) -> Option<String>;
    /// Where the file is mounted from, if what is renewed can be kept there; an error if that cannot be told yet.
    fn mounted_from(&self) -> BoxFuture<'_, Result<Option<Keep>, String>>;
}

/// Replaces the credential of one link.
pub(crate) struct Renewer {
    pub(crate) cluster: String,
    pub(crate) hub: Rest,
    pub(crate) link: LinkStatus,
    pub(crate) identity: Identity,
    pub(crate) keep: Option<Keep>,
    pub(crate) supply: Arc<dyn Supply>,
    pub(crate) env: Env,
    /// What the hub's log calls us.
    pub(crate) user_agent: &'static str,
    pub(crate) standing: Arc<Standing>,
    /// What is in use and could not be kept.
    pub(crate) unkept: Mutex<Option<String>>,
}

/// What has to be done about a certificate, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Due {
    at: SystemTime,
    /// No pause between attempts is longer.
    pause: Duration,
    /// How often authorities are looked at.
    looks: Duration,
}

/// When a certificate is to be replaced.
fn due(issued: &Issued, env: &Env) -> Due {
    let life = issued.until.duration_since(issued.from).unwrap_or_default();
    Due {
        at: issued.from + env.jitter(life / 2, 0.3),
        pause: (life / 20).max(Duration::from_millis(250)),
        looks: (life / LOOKS).clamp(Duration::from_secs(1), AUTHORITIES),
    }
}

/// Why there is no new one.
#[derive(Debug)]
enum Failure {
    /// Nobody has said no.
    Later(String),
    /// Nobody was asked: something is the matter on this machine.
    Here(String),
    /// Somebody has to say yes.
    Undecided(String),
    /// Somebody has said no.
    Refused(String),
}

/// A request that was made, and what it was made for.
#[derive(Default)]
struct Asked {
    name: Option<String>,
    /// For which key, where that cannot be kept.
    key: Option<String>,
    /// It has been issued, and the hub has not answered to it yet.
    ready: Option<(Credential, String)>,
    /// How long the hub wanted to be left alone when it was asked last.
    pause: Duration,
}

impl Renewer {
    /// Replaces it for ever.
    pub(crate) async fn run(mut self, mut current: Credential) {
        let mut mounted = self.keep.is_none().then(|| (Instant::now(), Backoff::new(RETRY)));
        let mut refused = self.link.refused().listen();
        let mut backoff = Backoff::new(RETRY);
        let mut seen = self.supply.in_file(None).and_then(Result::ok).map(|(_, version)| version);
        let mut asked = Asked::default();
        let mut due = self.plan(&current);
        // After a failure nothing is asked before this.
        let mut not_before = Instant::now();
        let mut look = self.next_look(due);
        let mut keeps = (Instant::now(), Backoff::new(RETRY));
        // An invitation that came to nothing is tried again, beside what is in use.
        let mut invited = self.supply.not_joined().map(|why| {
            self.standing.not_joined(&why);
            let mut backoff = Backoff::new(RETRY);
            (Instant::now() + backoff.next(&self.env), backoff)
        });
        loop {
            let now = self.now();
            let at_most = self.env.beat(&self.cluster, LOOK);
            let wait = due.map_or(at_most, |due| due.at.duration_since(now).unwrap_or_default()).min(at_most);
            let wait = wait.min(look.saturating_duration_since(Instant::now()));
            let wait = wait.max(not_before.saturating_duration_since(Instant::now()));
            let wait = match &invited {
                Some((at, _)) => wait.min(at.saturating_duration_since(Instant::now())),
                None => wait,
            };
            let is_refused = tokio::select! {
                biased;
                () = refused.woken(), if not_before <= Instant::now() => true,
                () = sleep(wait) => false,
            };
            self.compare_clocks();
            self.keep_again(&mut keeps).await;
            // A member that has just started may refuse what it lets us do in a moment.
            if let Some((at, retry)) = &mut mounted
                && *at <= Instant::now()
            {
                *at = Instant::now() + retry.next(&self.env);
                if let Ok(Some(keep)) = self.supply.mounted_from().await {
                    tracing::info!(cluster = %self.cluster, kept = %keep.place(), "what is renewed of the hub's credential is kept where it is mounted from");
                    (self.keep, mounted) = (Some(keep), None);
                    due = self.plan(&current);
                    look = self.next_look(due);
                }
            }
            // Somebody has put another one there.
            if let Some(Ok((found, version))) = self.supply.in_file(seen) {
                match self.take(&found).await {
                    Ok(()) => {
                        tracing::info!(cluster = %self.cluster, "the hub's credential was replaced by the one in the file");
                        (seen, current, due) = (Some(version), found, None);
                        due = due.or_else(|| self.plan(&current));
                        backoff.reset();
                        continue;
                    }
                    Err(NotTaken::Refused { code, message }) => {
                        seen = Some(version);
                        tracing::warn!(
                            code,
                            message,
                            "the hub does not take the credential in the file; the old one stays"
                        );
                    }
                    Err(error) => tracing::debug!(%error, "the credential in the file cannot be tried yet"),
                }
            }
            if let Some((at, retry)) = &mut invited
                && *at <= Instant::now()
            {
                match self.accept().await {
                    Ok(new) => {
                        (current, asked, invited) = (new, Asked::default(), None);
                        due = self.plan(&current);
                        backoff.reset();
                        refused = self.link.refused().listen();
                        continue;
                    }
                    Err(why) => {
                        self.standing.not_joined(&why);
                        tracing::warn!(cluster = %self.cluster, why, "cannot join by the invitation that was given; going on with the credential that there is, and trying again");
                        *at = Instant::now() + retry.next(&self.env);
                    }
                }
            }
            if Instant::now() >= look {
                look = self.next_look(due);
                if due.is_some() && self.authorities_change(&current).await {
                    tracing::info!(cluster = %self.cluster, "the hub's authorities change: the certificate is renewed before its time");
                    due = due.map(|due| Due { at: self.now(), ..due });
                }
            }
            let is_due = due.is_some_and(|due| self.now() >= due.at);
            if !(is_due || is_refused) || not_before > Instant::now() {
                continue;
            }
            let life = due.map_or(RETRY.max, |due| due.pause);
            let ended = current.issued.as_ref().is_some_and(|issued| issued.until <= self.now());
            match self.replace(&current, &mut asked, is_refused || ended).await {
                Ok(Some(new)) => {
                    (current, asked) = (new, Asked::default());
                    due = self.plan(&current);
                    backoff.reset();
                    // What was refused before was the old one.
                    refused = self.link.refused().listen();
                }
                // Nothing can be done here but to wait for somebody.
                Ok(None) => not_before = Instant::now() + backoff.next(&self.env),
                Err(failure) => {
                    self.failed(&failure, &current);
                    let pause = std::mem::take(&mut asked.pause);
                    not_before = Instant::now() + backoff.next(&self.env).min(life).max(pause);
                }
            }
        }
    }

    /// The time by the hub's clock, where it is known to differ: by that it judges.
    fn now(&self) -> SystemTime {
        let wall = self.env.wall();
        match self.link.counters().clock_ahead().filter(|ahead| ahead.abs() > clock::TOLERATED) {
            Some(ahead) if ahead < 0 => wall - Duration::from_secs(ahead.unsigned_abs()),
            Some(ahead) => wall + Duration::from_secs(ahead.unsigned_abs()),
            None => wall,
        }
    }

    /// When authorities are looked at next: by a fleet not all at once.
    fn next_look(&self, due: Option<Due>) -> Instant {
        let pause = due.map_or(AUTHORITIES, |due| due.looks);
        Instant::now() + self.env.jitter(pause / 2, 1.0)
    }

    fn compare_clocks(&self) {
        self.standing.clock(self.link.counters().clock_ahead());
    }

    /// When a credential is to be replaced; nothing if that is somebody else's to do.
    fn plan(&self, credential: &Credential) -> Option<Due> {
        let issued = credential.issued.as_ref();
        self.standing.holds(issued.map(|issued| issued.until));
        self.keep.as_ref()?;
        issued.filter(|issued| issued.cluster() == Some(&self.cluster)).map(|issued| due(issued, &self.env))
    }

    /// Shows ourselves by a credential from now on, if the hub answers to it.
    async fn take(&self, credential: &Credential) -> Result<(), NotTaken> {
        let endpoint = self.supply.endpoint(credential).map_err(NotTaken::Unreachable)?;
        self.identity.change(endpoint, PROBE).await?;
        // What was in use before need not be kept any more.
        if self.unkept.lock().take().is_some() {
            self.standing.kept();
        }
        Ok(())
    }

    /// One attempt to join by the invitation that we were given, while another credential does.
    async fn accept(&self) -> Result<Credential, String> {
        // It may be used up: by another process, or by us, when what came of it could not be tried.
        let new = match self.supply.joined_meanwhile().await {
            Some(kept) => kept,
            None => self.supply.join().ok_or_else(|| "there is none any more".to_owned())?.await?,
        };
        self.take(&new).await.map_err(|error| format!("it was issued, and: {error}"))?;
        self.standing.joined();
        self.standing.renewed();
        tracing::info!(cluster = %self.cluster, "joined by the invitation that was given; its credential is in use");
        Ok(new)
    }

    /// One attempt at another credential; nothing if there is no way to one.
    async fn replace(
        &self,
        current: &Credential,
        asked: &mut Asked,
        is_lost: bool,
    ) -> Result<Option<Credential>, Failure> {
        // Another process of this cluster may have been first.
        if let Ok(Some(kept)) = self.supply.kept().await
            && kept.issued.as_ref().map(|issued| issued.from)
                > current.issued.as_ref().map(|issued| issued.from)
            && self.take(&kept).await.is_ok()
        {
            self.standing.renewed();
            tracing::info!(cluster = %self.cluster, "the hub's credential was replaced by one that was kept meanwhile");
            return Ok(Some(kept));
        }
        let is_ours = current.issued.as_ref().is_some_and(|issued| issued.cluster() == Some(&self.cluster));
        let Some(keep) = self.keep.as_ref().filter(|_| is_ours) else { return Ok(None) };
        let failure = match self.renew(current, keep, asked).await {
            Ok(new) => return Ok(Some(new)),
            Err(failure @ (Failure::Later(_) | Failure::Here(_) | Failure::Undecided(_))) => {
                return Err(failure);
            }
            Err(failure) => failure,
        };
        // As long as the old one is good nobody needs a token.
        let Some(joining) = self.supply.join().filter(|_| is_lost) else { return Err(failure) };
        let Failure::Refused(why) = failure else { return Err(failure) };
        match joining.await {
            Ok(new) => {
                self.take(&new).await.map_err(|error| Failure::Later(error.to_string()))?;
                self.standing.renewed();
                Ok(Some(new))
            }
            Err(error) => Err(Failure::Refused(format!("{why}; joining anew: {error}"))),
        }
    }

    /// Asks for a certificate under the one that we have.
    async fn renew(
        &self,
        current: &Credential,
        keep: &Keep,
        asked: &mut Asked,
    ) -> Result<Credential, Failure> {
        let later = Failure::Later;
        if asked.ready.is_none() {
            let (key, pem) = self.key(keep, asked).await.map_err(Failure::Here)?;
            let certificate = self.certificate(&key, asked).await?;
            let access = self.published(current).await;
            let text = access.kubeconfig(CONTEXT, &agent_user(&self.cluster), &certificate, &pem);
            let new = Credential::parse(keep.place().as_ref(), &text, None);
            asked.ready = Some((new.map_err(|error| Failure::Here(error.to_string()))?, text));
        }
        let Some((new, text)) = asked.ready.take() else { return Err(later("it was not made".to_owned())) };
        match self.take(&new).await {
            Ok(()) => {}
            Err(NotTaken::Refused { code, message }) => {
                let why = format!("it was issued, and the hub answers {code} to it: {message}");
                return Err(Failure::Refused(why));
            }
            Err(error) => {
                asked.ready = Some((new, text));
                return Err(later(error.to_string()));
            }
        }
        // It is in use. What was kept before is good for a while if this one cannot be kept.
        self.standing.holds(new.issued.as_ref().map(|issued| issued.until));
        self.standing.renewed();
        let kept = keep.finish(&text, None).await;
        if let Err(why) = &kept {
            self.not_kept(why);
        }
        *self.unkept.lock() = kept.is_err().then_some(text);
        let until = new.issued.as_ref().map(|issued| Time::from_system(issued.until).to_string());
        tracing::info!(cluster = %self.cluster, until = until.as_deref(), kept = %keep.place(), "the certificate for the hub was renewed");
        Ok(new)
    }

    /// The key to ask with, kept before anybody hears of it, so that a restart goes on with the same request. One that cannot be
    /// kept is good for as long as the process lives.
    async fn key(&self, keep: &Keep, asked: &mut Asked) -> Result<(Key, String), String> {
        if let Some(pem) = &asked.key {
            return Ok((Key::read(pem)?, pem.clone()));
        }
        let key = Key::new()?;
        let pem = key.pem();
        let why = match keep.begin(pem.clone()).await {
            Ok(kept) => match Key::read(&kept) {
                Ok(key) => return Ok((key, kept)),
                // It was damaged; the next one begins anew.
                Err(why) => keep.forget().await.err().unwrap_or(why),
            },
            Err(why) => why,
        };
        tracing::warn!(cluster = %self.cluster, why, "the key for the next certificate cannot be kept; it is held in memory");
        asked.key = Some(pem.clone());
        Ok((key, pem))
    }

    fn not_kept(&self, why: &str) {
        if self.standing.not_kept(why) {
            tracing::warn!(cluster = %self.cluster, why, "the hub's new credential cannot be kept; a restart begins with the one before; trying again");
        }
    }

    /// Tries again to keep what is in use and could not be kept.
    async fn keep_again(&self, (at, backoff): &mut (Instant, Backoff)) {
        let unkept = self.unkept.lock().clone();
        let (Some(text), Some(keep)) = (unkept, &self.keep) else {
            backoff.reset();
            *at = Instant::now();
            return;
        };
        if *at > Instant::now() {
            return;
        }
        *at = Instant::now() + backoff.next(&self.env);
        match keep.finish(&text, None).await {
            Ok(()) => {
                *self.unkept.lock() = None;
                self.standing.kept();
                tracing::info!(cluster = %self.cluster, kept = %keep.place(), "the hub's credential is kept now");
            }
            Err(why) => self.not_kept(&why),
        }
    }

    /// Whether the hub publishes other authorities than are known, or lets another one of them sign, which is the first.
    async fn authorities_change(&self, current: &Credential) -> bool {
        let keys = |access: &Access| discovery::digests(access.ca.as_deref().unwrap_or_default().as_bytes());
        keys(&self.published(current).await) != keys(&current.access)
    }

    /// Where the hub is and whom to believe there, with the authorities that it publishes now: it may be about to change
    /// them. They are asked for over a connection that those of before vouch for.
    async fn published(&self, current: &Credential) -> Access {
        let mut access = current.access.clone();
        let known = access.ca.as_ref().filter(|_| !access.insecure);
        let endpoint = access.endpoint().ok().filter(|_| known.is_some());
        let Some(endpoint) = endpoint else { return access };
        let way = self.supply.endpoint(current).ok().map(|way| (way.proxy, way.others));
        let (proxy, others) = way.unwrap_or_default();
        let config = LinkConfig::new(Endpoint { proxy, others, ..endpoint }, self.user_agent);
        let asking = async {
            let mut contact = Contact::open(&config, Arc::default(), self.env.clone()).await?;
            contact.ask(Method::GET, discovery::PATH, None, None).await.map_err(|error| error.to_string())
        };
        match asking.await {
            Ok(answered) if answered.code.is_success() => {
                if let Some(published) = discovery::authorities(&answered.body) {
                    access.ca = Some(published);
                }
            }
            // A server that publishes nothing: those of before stay.
            Ok(_) => {}
            Err(error) => tracing::debug!(error, "the hub's authorities cannot be asked for"),
        }
        access
    }

    /// The certificate over a key, once it is there.
    async fn certificate(&self, key: &Key, asked: &mut Asked) -> Result<String, Failure> {
        let begun = Instant::now();
        let mut pause = Duration::from_millis(25);
        loop {
            let answer = match &asked.name {
                Some(name) => self.hub.get(&format!("{}/{name}", request::PATH)).await,
                None => {
                    let name = format!("{}-{}", self.cluster, self.env.name_suffix(5));
                    let body = request::body(&name, &self.cluster, key).map_err(Failure::Here)?;
                    let made = self.hub.post(request::PATH, &body).await;
                    if made.is_ok() {
                        asked.name = Some(name);
                    }
                    made
                }
            };
            let outcome = match answer {
                Ok(answer) => request::outcome(&answer, key),
                // A name that is taken, a hub that has much to do, and one that is away.
                Err(error) if matches!(error.code(), None | Some(409 | 429 | 503)) => {
                    asked.name = asked.name.take().filter(|_| !error.is_conflict());
                    asked.pause = error.retry_after().unwrap_or_default();
                    return Err(Failure::Later(error.to_string()));
                }
                Err(error) => {
                    asked.name = None;
                    return Err(Failure::Refused(error.to_string()));
                }
            };
            match outcome {
                Outcome::Issued(certificate) => {
                    asked.name = None;
                    return Ok(certificate);
                }
                Outcome::Refused(why) => {
                    asked.name = None;
                    return Err(Failure::Refused(why));
                }
                Outcome::Pending { approved } if begun.elapsed() >= DECIDED => {
                    let name = asked.name.clone().unwrap_or_default();
                    return Err(Failure::Undecided(undecided(&name, approved)));
                }
                Outcome::Pending { .. } => {
                    sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
            }
        }
    }

    fn failed(&self, failure: &Failure, current: &Credential) {
        let until = current.issued.as_ref().map(|issued| issued.until);
        let ended = until.is_some_and(|until| until <= self.now());
        match failure {
            // The link itself says that nobody answers.
            Failure::Later(why) => {
                tracing::debug!(cluster = %self.cluster, why, "the certificate is not renewed yet")
            }
            Failure::Here(why) => {
                if self.standing.failed_here(why) {
                    tracing::warn!(cluster = %self.cluster, why, ended, "another certificate cannot be asked for; trying again");
                }
            }
            Failure::Undecided(why) => {
                if self.standing.undecided(why) {
                    tracing::warn!(cluster = %self.cluster, why, ended, "the hub does not renew the certificate yet; looking again");
                }
            }
            Failure::Refused(why) => {
                if self.standing.refused(why) {
                    tracing::warn!(cluster = %self.cluster, why, ended, "the hub refuses to renew the certificate; trying again");
                }
            }
        }
    }
}

/// What a request waits for.
fn undecided(name: &str, approved: bool) -> String {
    if approved {
        return format!(
            "the request {name} is approved, and nobody signs it: is the signer of the hub at work (karmada-hub, or \
             kube-controller-manager with --cluster-signing-cert-file)?"
        );
    }
    format!("the request {name} waits for somebody who approves it: kubectl certificate approve {name}")
}

#[cfg(test)]
mod tests {
    use karmada_env::ManualClock;

    use super::*;

    #[test]
    fn it_is_due_between_the_half_and_two_thirds_of_its_life() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let issued = Issued { user: "u".into(), from: at(1000), until: at(11_000) };
        let mut seen = Vec::new();
        for seed in 0..200 {
            let env = Env::seeded(ManualClock::new(at(0)), seed);
            let due = due(&issued, &env).at.duration_since(at(1000)).unwrap().as_secs();
            assert!((5000..=6500).contains(&due), "{due}");
            seen.push(due);
        }
        seen.sort_unstable();
        assert!(seen[20] < 5300 && seen[180] > 6200, "spread over all of it: {seen:?}");
    }
}
