//! How the program comes by the credential for its hub: from a file, from where it was kept, or by joining.

use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use futures::future::{BoxFuture, FutureExt as _};
use karmada_client::{
    Backoff, Endpoint, Kubeconfig, KubeconfigError, Policy, Rest,
    kubeconfig::{Address, Stamps},
    link::proxy::Proxy,
};
use karmada_env::Env;
use parking_lot::Mutex;

use super::{
    Failure, USER_AGENT,
    args::{Args, Invited},
};
use crate::hub::{
    credential::{CONTEXT, Credential, Keep, keep::KUBECONFIG, renew::Supply, standing::Standing},
    join::{Invitation, JoinError, Journey, KeyDigest, Token, discovery::digests, request::Key},
};

/// Between attempts to join, or to read what was kept.
const RETRY: Policy = Policy::new(Duration::from_secs(1), Duration::from_secs(60));

/// How long a new token is tried where an older credential would do.
const SOON: Duration = Duration::from_secs(5);

/// A kubeconfig of the hub's that somebody else looks after.
#[derive(Clone, Debug)]
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) context: Option<String>,
}

impl File {
    /// What it says now.
    pub(super) fn read(&self) -> Result<Credential, KubeconfigError> {
        Credential::of(&Kubeconfig::load(&self.path)?, self.context.as_deref())
    }
}

/// Such a file, looked at again and again.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) file: File,
    /// Which version was read last, and what it was read from.
    last: Mutex<Option<(u64, Stamps)>>,
}

impl Followed {
    pub(super) fn new(file: File) -> Self {
        Self { file, last: Mutex::default() }
    }

    /// What it says, with a number that changes with that; nothing while that number is `seen`. Nothing is read for this that
    /// cannot have changed.
    pub(super) fn unless(
        &self,
        seen: Option<u64>,
        now: SystemTime,
    ) -> Result<Option<(Credential, u64)>, KubeconfigError> {
        let mut last = self.last.lock();
        if let Some((version, stamps)) = &*last
            && seen == Some(*version)
            && stamps.hold()
        {
            return Ok(None);
        }
        let File { path, context } = &self.file;
        let stamps = Stamps::of([path.clone()], now);
        let (kubeconfig, context) = (Kubeconfig::load(path)?, context.as_deref());
        let stamps = stamps.and(Stamps::of(kubeconfig.named(context)?, now));
        let version = kubeconfig.version(context)?;
        let found = (seen != Some(version)).then(|| Credential::of(&kubeconfig, context)).transpose()?;
        *last = Some((version, stamps));
        Ok(found.map(|found| (found, version)))
    }
}

/// Everything from which a credential can come.
#[derive(Debug)]
pub(super) struct Ways {
    pub(super) cluster: String,
    pub(super) file: Option<Followed>,
    pub(super) keep: Option<Keep>,
    pub(super) invited: Option<Invited>,
    pub(super) proxy: Option<Proxy>,
    /// Where else the hub is reached.
    pub(super) others: Vec<Address>,
    /// Somebody waits for what becomes of it.
    pub(super) prompt: bool,
    leaves: bool,
    /// And for nothing else: no agent goes on with it.
    only: bool,
    /// Why we have not joined by `invited`, where what was kept does.
    not_joined: Mutex<Option<String>>,
    /// The member, and the namespace there from which the file may be mounted.
    mount: Option<(Rest, String)>,
    env: Env,
}

impl Ways {
    pub(super) fn of(args: &Args, keep: Option<Keep>, member: Option<Rest>, env: Env) -> Self {
        let file =
            args.karmada_kubeconfig.clone().map(|path| File { path, context: args.karmada_context.clone() });
        // As `karmadactl register` mounts it. What is renewed has one context, of our name.
        let is_mounted = |file: &File| {
            let known = file.context.as_deref().is_none_or(|context| context == CONTEXT);
            known && file.path.file_name().is_some_and(|name| name == KUBECONFIG)
        };
        let may_be = keep.is_none() && args.leave.is_none() && file.as_ref().is_some_and(is_mounted);
        let mount = member.filter(|_| may_be).map(|member| (member, args.config.member_namespace.clone()));
        Self {
            cluster: args.config.cluster.clone(),
            file: file.map(Followed::new),
            keep,
            invited: args.invited.clone(),
            proxy: args.proxy.clone(),
            others: args.others.clone(),
            prompt: args.join || args.leave.is_some(),
            leaves: args.leave.is_some(),
            only: args.join_only,
            not_joined: Mutex::default(),
            mount,
            env,
        }
    }

    /// The endpoint by the proxy that was named for it, in the order of arguments, kubeconfig, environment.
    pub(super) fn endpoint(&self, credential: &Credential) -> Result<Endpoint, Failure> {
        let mut endpoint = credential.endpoint.clone();
        if let Some(proxy) = self.proxy(&endpoint.server, endpoint.proxy.take())? {
            endpoint.proxy = Some(proxy);
        }
        endpoint.others.clone_from(&self.others);
        Ok(endpoint)
    }

    /// The proxy by which a hub would be joined: for people, and its host and port.
    pub(super) fn proxy_to(&self, hub: &str) -> Result<Option<(String, String, u16)>, Failure> {
        let server = format!("https://{hub}").parse();
        let server = server.map_err(|error| Failure::Usage(format!("--hub: {error}")))?;
        let proxy = self.proxy(&server, None)?;
        Ok(proxy.map(|proxy| (proxy.to_string(), proxy.host().to_owned(), proxy.port())))
    }

    fn proxy(&self, server: &http::Uri, written: Option<Proxy>) -> Result<Option<Proxy>, Failure> {
        if let Some(proxy) = self.proxy.clone().or(written) {
            return Ok(Some(proxy));
        }
        Proxy::of_environment(server, |name| std::env::var(name).ok()).map_err(Failure::Usage)
    }

    /// The credential to begin with, and whether it was there before. Waits for as long as it takes, unless somebody waits.
    pub(super) async fn obtain(&self, standing: &Standing) -> Result<(Credential, bool), Failure> {
        let env = &self.env;
        let from_file =
            self.file.as_ref().map(|followed| followed.file.read()).transpose().map_err(Failure::usage)?;
        let mut backoff = Backoff::new(RETRY);
        let found = loop {
            match self.found().await {
                Ok(kept) => break kept,
                // What is in the file is enough to begin.
                Err(error) if from_file.is_some() => {
                    tracing::warn!(%error, "what was kept of the hub's credential cannot be read");
                    break None;
                }
                Err(error @ Failure::Usage(_)) => return Err(error),
                Err(error) if self.prompt => return Err(error),
                Err(error) => {
                    if standing.waits(error.to_string()) {
                        tracing::warn!(cluster = %self.cluster, %error, "what was kept of the hub's credential cannot be read, trying again");
                    }
                    tokio::time::sleep(backoff.next(env)).await;
                }
            }
        };
        let worth = match (&found, &self.invited) {
            (Some(found), Some(invited)) => self.worth(found, invited),
            _ => Worth::InForce,
        };
        let kept = found.map(|found| found.credential);
        if let Some(file) = from_file {
            return Ok((file.newer(kept), true));
        }
        let (Some(invited), Some(keep)) = (&self.invited, &self.keep) else {
            if let Some(kept) = kept {
                return Ok((kept, true));
            }
            if self.leaves {
                let place = self.keep.as_ref().map(Keep::place).unwrap_or_default();
                return Err(Failure::Usage(format!(
                    "{place}: there is no credential for the hub to leave by; name it with --state-dir, \
                     --karmada-kubeconfig-secret or --karmada-kubeconfig, or, on the hub: kubectl delete cluster {}",
                    self.cluster
                )));
            }
            return Err(Failure::Usage("there is no credential for the hub, and no token to join by".into()));
        };
        match (kept, worth) {
            (Some(kept), Worth::InForce) => Ok((kept, true)),
            // Where that fails what there is has to do, and is renewed if the hub lets it.
            (Some(kept), Worth::Superseded | Worth::Strange) => {
                let authorities = authorities_of(&kept);
                let gives_up = |error: &JoinError, waited| match self.prompt {
                    true => waited >= error.may_pass_within(),
                    false => worth.gives_up(error, waited, &authorities),
                };
                match self.join(invited, keep, gives_up, standing).await {
                    Ok(credential) => Ok((credential, false)),
                    Err(error) if self.prompt => Err(error),
                    Err(error) => {
                        tracing::warn!(cluster = %self.cluster, %error, "cannot join by the invitation that was given; going on with the credential that was kept, and trying again");
                        *self.not_joined.lock() = Some(error.to_string());
                        Ok((kept, true))
                    }
                }
            }
            (_, Worth::Nothing) | (None, _) => {
                let gives_up = |error: &JoinError, waited| self.prompt && waited >= error.may_pass_within();
                self.join(invited, keep, gives_up, standing).await.map(|credential| (credential, false))
            }
        }
    }

    /// What a credential that was kept is worth beside an invitation.
    fn worth(&self, found: &Found, invited: &Invited) -> Worth {
        // Without a token nothing can be done with the invitation.
        let Ok(token) = invited.token.read() else { return Worth::InForce };
        let known = authorities_of(&found.credential);
        let facts = Facts {
            joined_by: found.joined_by.as_deref(),
            given: &Invitation::mark(&token, &invited.authorities),
            is_of_this_hub: known.iter().any(|digest| invited.authorities.contains(digest)),
            holds: found.credential.holds_at(self.env.wall()),
            only: self.only,
        };
        facts.worth()
    }

    /// What was kept, if it is this cluster's.
    async fn kept(&self) -> Result<Option<Credential>, Failure> {
        Ok(self.found().await?.map(|found| found.credential))
    }

    async fn found(&self) -> Result<Option<Found>, Failure> {
        let Some(keep) = &self.keep else { return Ok(None) };
        let kept = keep.load().await.map_err(Failure::Failed)?;
        let Some(text) = kept.kubeconfig else { return Ok(None) };
        let place = keep.place();
        // What was written by somebody else may have another current context.
        let context = self.file.as_ref().and_then(|followed| followed.file.context.as_deref());
        let read = Credential::parse(Path::new(&place), &text, context)
            .or_else(|_| Credential::parse(Path::new(&place), &text, None))
            .map_err(Failure::usage)?;
        let read = self.readdressed(read, &text, &place, kept.joined_by.as_deref())?;
        match read.issued.as_ref().and_then(|issued| issued.cluster()) {
            Some(other) if other != self.cluster => Err(Failure::Usage(format!(
                "{place} holds the credential of cluster {other}, and --cluster-name says {}: give each its own place, or take \
                 the old one away",
                self.cluster
            ))),
            _ => Ok(Some(Found { credential: read, joined_by: kept.joined_by })),
        }
    }

    /// What was kept, for the hub that --hub names: the same authority may be reached by another address now.
    fn readdressed(
        &self,
        read: Credential,
        text: &str,
        place: &str,
        joined_by: Option<&str>,
    ) -> Result<Credential, Failure> {
        let Some(invited) = &self.invited else { return Ok(read) };
        let server = format!("https://{}", invited.hub);
        if read.access.server == server {
            return Ok(read);
        }
        let known = authorities_of(&read);
        // The authority may have changed since this very invitation.
        let is_same = || {
            let token = invited.token.read().ok();
            token.is_some_and(|token| {
                joined_by == Some(Invitation::mark(&token, &invited.authorities).as_str())
            })
        };
        if !known.iter().any(|digest| invited.authorities.contains(digest)) && !is_same() {
            return Err(Failure::Usage(format!(
                "{place} holds a credential for the hub at {}, and --hub says {}: take it away to leave that hub",
                read.access.server, invited.hub
            )));
        }
        let mut config: serde_json::Value = serde_saphyr::from_str(text).unwrap_or_default();
        config["clusters"][0]["cluster"]["server"] = server.into();
        Credential::parse(Path::new(place), &config.to_string(), None).map_err(Failure::usage)
    }

    /// Joins; ends without having done so only if there is a limit, and then no later than what is wrong may pass.
    async fn join(
        &self,
        invited: &Invited,
        keep: &Keep,
        gives_up: impl Fn(&JoinError, Duration) -> bool,
        standing: &Standing,
    ) -> Result<Credential, Failure> {
        let env = &self.env;
        let (begun, mut backoff) = (env.now(), Backoff::new(RETRY));
        let mut journey = None;
        loop {
            let error = match self.attempt(invited, keep, env, &mut journey).await {
                Ok(credential) => return Ok(credential),
                Err(Trouble::Arguments(error)) => return Err(error),
                Err(Trouble::Join(error)) => error,
            };
            if gives_up(&error, env.now().saturating_sub(begun)) {
                return Err(Failure::Failed(error.to_string()));
            }
            let pause = backoff.next(env);
            if standing.waits(error.to_string()) {
                tracing::warn!(cluster = %self.cluster, %error, "cannot join yet, trying again");
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn attempt(
        &self,
        invited: &Invited,
        keep: &Keep,
        env: &Env,
        journey: &mut Option<(Token, Journey)>,
    ) -> Result<Credential, Trouble> {
        let token = invited.token.read().map_err(|why| Trouble::Join(JoinError::NoToken(why)))?;
        let server = format!("https://{}", invited.hub).parse::<http::Uri>();
        let server = server.map_err(|error| Trouble::Arguments(Failure::Usage(format!("--hub: {error}"))))?;
        let proxy = self.proxy(&server, None).map_err(Trouble::Arguments)?;
        // The key outlives this process before anybody hears of it.
        let kept = |error: String| Trouble::Join(JoinError::Kept(error));
        let made = Key::new().map_err(kept)?.pem();
        let key = keep.begin(made).await.map_err(kept)?;
        let key = match Key::read(&key) {
            Ok(key) => key,
            Err(error) => {
                keep.forget().await.map_err(kept)?;
                return Err(kept(error));
            }
        };
        if journey.as_ref().is_none_or(|(of, _)| *of != token) {
            let invitation = Invitation {
                hub: invited.hub.clone(),
                token: token.clone(),
                authorities: invited.authorities.clone(),
                cluster: self.cluster.clone(),
                proxy,
                others: self.others.clone(),
            };
            *journey = Some((token.clone(), Journey::new(invitation, USER_AGENT, env.clone())));
        }
        let Some((_, journey)) = journey else { return Err(kept("no journey was begun".to_owned())) };
        let arrived = journey.attempt(&key).await.map_err(Trouble::Join)?;
        let user = karmada_core::names::agent_user(&self.cluster);
        let mut access = arrived.access;
        // The environment's may be another one tomorrow, and a password is nobody's to keep who was only shown it.
        let given = self.proxy.as_ref().map(Proxy::url).filter(|url| !url.contains('@'));
        access.proxy = given.map(str::to_owned);
        let text = access.kubeconfig(CONTEXT, &user, &arrived.certificate, &key.pem());
        let credential = Credential::parse(Path::new(&keep.place()), &text, None);
        let credential = credential.map_err(|error| kept(error.to_string()))?;
        let mark = Invitation::mark(&token, &invited.authorities);
        keep.finish(&text, Some(&mark)).await.map_err(kept)?;
        tracing::info!(cluster = %self.cluster, hub = %credential.endpoint.server, kept = %keep.place(), "joined");
        Ok(credential)
    }
}

impl Supply for Ways {
    fn endpoint(&self, credential: &Credential) -> Result<Endpoint, String> {
        Self::endpoint(self, credential).map_err(|error| error.to_string())
    }

    fn in_file(&self, seen: Option<u64>) -> Option<Result<(Credential, u64), String>> {
        let found = self.file.as_ref()?.unless(seen, self.env.wall());
        found.map_err(|error| error.to_string()).transpose()
    }

    fn kept(&self) -> BoxFuture<'_, Result<Option<Credential>, String>> {
        async move { Self::kept(self).await.map_err(|error| error.to_string()) }.boxed()
    }

    fn join(&self) -> Option<BoxFuture<'_, Result<Credential, String>>> {
        let (invited, keep) = (self.invited.as_ref()?, self.keep.as_ref()?);
        let joining = async move {
            match self.attempt(invited, keep, &self.env, &mut None).await {
                Ok(credential) => Ok(credential),
                Err(Trouble::Join(error)) => Err(error.to_string()),
                Err(Trouble::Arguments(error)) => Err(error.to_string()),
            }
        };
        Some(joining.boxed())
    }

    fn joined_meanwhile(&self) -> BoxFuture<'_, Option<Credential>> {
        async move {
            let (found, invited) = (self.found().await.ok()??, self.invited.as_ref()?);
            let mark = Invitation::mark(&invited.token.read().ok()?, &invited.authorities);
            (found.joined_by? == mark).then_some(found.credential)
        }
        .boxed()
    }

    fn not_joined(&self) -> Option<String> {
        self.not_joined.lock().clone()
    }

    fn mounted_from(&self) -> BoxFuture<'_, Result<Option<Keep>, String>> {
        let Some((member, namespace)) = &self.mount else { return std::future::ready(Ok(None)).boxed() };
        // The file may be older, and the Secret another hub's that this agent was of before.
        let Some(Ok(file)) = self.file.as_ref().map(|followed| followed.file.read()) else {
            return std::future::ready(Ok(None)).boxed();
        };
        let is_ours = move |text: &str| {
            let Ok(read) = Credential::parse(Path::new(KUBECONFIG), text, None) else { return false };
            let known = authorities_of(&file);
            read.issued.as_ref().is_some_and(|issued| issued.cluster() == Some(&self.cluster))
                && read.endpoint.server == file.endpoint.server
                && authorities_of(&read).iter().any(|digest| known.contains(digest))
        };
        Keep::behind_mount(member, namespace, is_ours).boxed()
    }
}

/// The authorities by which a credential knows its hub.
fn authorities_of(credential: &Credential) -> Vec<KeyDigest> {
    digests(credential.access.ca.as_deref().unwrap_or_default().as_bytes())
}

/// A credential that was kept.
struct Found {
    credential: Credential,
    joined_by: Option<String>,
}

/// What it is worth beside an invitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Worth {
    /// Nobody has given another.
    InForce,
    /// There is a newer invitation by the same hub.
    Superseded,
    /// The newer invitation is by another hub, of which no more than the address is the same, or its digest is wrong.
    Strange,
    /// The same, and it has ended.
    Nothing,
}

impl Worth {
    /// Whether a credential of `authorities` has to do, since nobody could join by the invitation for so long. With one by
    /// another hub only if its digest was mistyped, which the token's signature tells: whoever gives up an authority that was
    /// stolen does not want the agent to go on under it because somebody on the way lets nobody join.
    fn gives_up(self, error: &JoinError, waited: Duration, authorities: &[KeyDigest]) -> bool {
        match (self, error) {
            (Self::Strange, JoinError::OtherAuthority { found, .. }) => {
                found.iter().any(|digest| authorities.contains(digest))
            }
            (Self::Strange | Self::Nothing, _) => false,
            (Self::InForce | Self::Superseded, _) => waited >= error.may_pass_within().min(SOON),
        }
    }
}

/// From what that follows.
#[derive(Clone, Copy, Debug)]
struct Facts<'a> {
    /// The invitation by which it came, if that is known.
    joined_by: Option<&'a str>,
    /// The one that is given.
    given: &'a str,
    /// It names an authority that the invitation names. After a change of authorities it does not, and is good.
    is_of_this_hub: bool,
    holds: bool,
    /// There will be no agent that could have it renewed.
    only: bool,
}

impl Facts<'_> {
    fn worth(self) -> Worth {
        match self.joined_by {
            Some(by) if by == self.given && (self.holds || !self.only) => Worth::InForce,
            Some(by) if by == self.given => Worth::Superseded,
            Some(_) if self.is_of_this_hub => Worth::Superseded,
            // Of before that was written down, or written by somebody else.
            None if self.is_of_this_hub && self.holds => Worth::InForce,
            None if self.is_of_this_hub => Worth::Superseded,
            _ if self.holds => Worth::Strange,
            _ => Worth::Nothing,
        }
    }
}

/// Why an attempt came to nothing.
enum Trouble {
    Join(JoinError),
    /// No attempt will do better.
    Arguments(Failure),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_invitation_goes_before_what_was_kept() {
        use Worth::{InForce, Nothing, Strange, Superseded};
        // (by which it came, of this hub's authority, has not ended, only to join, worth)
        let rows = [
            (Some("a"), true, true, false, InForce),
            // The authority was changed since, or the certificate waits to be renewed.
            (Some("a"), false, true, false, InForce),
            (Some("a"), true, false, false, InForce),
            (Some("a"), true, true, true, InForce),
            (Some("a"), true, false, true, Superseded),
            (Some("b"), true, true, false, Superseded),
            (Some("b"), true, false, false, Superseded),
            // A hub that was made anew at the same address, or a digest with a mistake in it.
            (Some("b"), false, true, false, Strange),
            (Some("b"), false, false, false, Nothing),
            (None, true, true, false, InForce),
            (None, true, false, false, Superseded),
            (None, false, true, false, Strange),
            (None, false, false, false, Nothing),
        ];
        for (joined_by, is_of_this_hub, holds, only, want) in rows {
            let facts = Facts { joined_by, given: "a", is_of_this_hub, holds, only };
            assert_eq!(facts.worth(), want, "{facts:?}");
        }
    }

    #[test]
    fn a_file_is_read_again_if_it_may_have_changed_or_was_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let (path, ca) = (dir.path().join("config"), dir.path().join("ca.pem"));
        let text = |server: &str| {
            format!(
                "{{current-context: c, contexts: [{{name: c, context: {{cluster: k}}}}], \
                 clusters: [{{name: k, cluster: {{server: 'http://{server}', certificate-authority: ca.pem}}}}]}}"
            )
        };
        std::fs::write(&path, text("a")).unwrap();
        std::fs::write(&ca, "1").unwrap();
        let followed = Followed::new(File { path: path.clone(), context: None });
        // Long after whatever is written here.
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40);
        let look = |seen| {
            followed
                .unless(seen, now)
                .map(|found| found.map(|(found, version)| (found.access.server, version)))
        };
        let (server, first) = look(None).unwrap().unwrap();
        assert_eq!(server, "http://a");
        assert_eq!(look(Some(first)).unwrap(), None);
        // Whoever has not taken it is told again.
        assert_eq!(look(None).unwrap(), Some((server, first)));
        std::fs::write(&path, text("bb")).unwrap();
        let (server, second) = look(Some(first)).unwrap().unwrap();
        assert_eq!(server, "http://bb");
        assert_eq!(look(Some(second)).unwrap(), None);
        // What it names may be exchanged alone.
        std::fs::write(&ca, "22").unwrap();
        let (_, third) = look(Some(second)).unwrap().unwrap();
        assert_eq!(look(Some(third)).unwrap(), None);
        std::fs::rename(&path, dir.path().join("away")).unwrap();
        assert!(look(Some(third)).is_err());
        std::fs::rename(dir.path().join("away"), &path).unwrap();
        assert_eq!(look(Some(third)).unwrap(), None);
    }

    #[test]
    fn an_authority_that_was_given_up_is_not_gone_back_to() {
        let digest = |n: u8| KeyDigest::of(&[n]);
        let other = |found: &[u8]| JoinError::OtherAuthority {
            hub: "h".to_owned(),
            found: found.iter().copied().map(digest).collect(),
            wanted: String::new(),
        };
        let away = || JoinError::Unreachable { hub: "h".to_owned(), cause: "reset".to_owned() };
        let forged = || JoinError::Forged { hub: "h".to_owned(), id: "abcdef".to_owned() };
        // What the kept credential is worth, what came of the invitation, after how long, whether the former has to do.
        let rows = [
            (Worth::Strange, other(&[7, 1]), 0, true),
            (Worth::Strange, other(&[7]), 3600, false),
            (Worth::Strange, other(&[]), 3600, false),
            (Worth::Strange, away(), 3600, false),
            (Worth::Strange, forged(), 3600, false),
            (Worth::Superseded, away(), 0, false),
            (Worth::Superseded, away(), 5, true),
            (Worth::Superseded, forged(), 5, true),
            (Worth::Nothing, away(), 3600, false),
        ];
        for (worth, error, waited, want) in rows {
            let given_up = worth.gives_up(&error, Duration::from_secs(waited), &[digest(1)]);
            assert_eq!(given_up, want, "{worth:?}, {error}, {waited} s");
        }
    }
}
