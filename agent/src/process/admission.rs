//! How the program comes by the credential for its hub: from a file, from where it was kept, or by joining.

use std::path::{Path, PathBuf};

use futures::future::{BoxFuture, FutureExt as _};
use karmada_client::{Backoff, Endpoint, Kubeconfig, KubeconfigError, Policy, link::proxy::Proxy};
use karmada_env::Env;

use super::{
    ProcessError, USER_AGENT,
    args::{Args, Invited, Source},
    endpoints::Stage,
};
use crate::hub::{
    credential::{CONTEXT, Credential, Keep, renew::Supply},
    join::{Invitation, JoinError, Journey, Token, discovery::digests, request::Key},
};

/// Between attempts to join, or to read what was kept.
const RETRY: Policy = Policy::new(std::time::Duration::from_secs(1), std::time::Duration::from_secs(60));

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

    /// The same, with a number that changes with it.
    pub(super) fn version(&self) -> Result<(Credential, u64), KubeconfigError> {
        let (kubeconfig, context) = (Kubeconfig::load(&self.path)?, self.context.as_deref());
        Ok((Credential::of(&kubeconfig, context)?, kubeconfig.version(context)?))
    }
}

/// Everything from which a credential can come.
#[derive(Debug)]
pub(super) struct Ways {
    pub(super) cluster: String,
    pub(super) file: Option<File>,
    pub(super) keep: Option<Keep>,
    pub(super) invited: Option<Invited>,
    pub(super) proxy: Option<Proxy>,
    /// Somebody waits for what becomes of it.
    pub(super) prompt: bool,
    env: Env,
}

impl Ways {
    pub(super) fn of(args: &Args, keep: Option<Keep>, env: Env) -> Self {
        let file =
            args.karmada_kubeconfig.clone().map(|path| File { path, context: args.karmada_context.clone() });
        Self {
            cluster: args.config.cluster.clone(),
            file,
            keep,
            invited: args.invited.clone(),
            proxy: args.proxy.clone(),
            prompt: args.join,
            env,
        }
    }

    /// The endpoint by the proxy that was named for it, in the order of arguments, kubeconfig, environment.
    pub(super) fn endpoint(&self, credential: &Credential) -> Result<Endpoint, ProcessError> {
        let mut endpoint = credential.endpoint.clone();
        if let Some(proxy) = self.proxy(&endpoint.server, endpoint.proxy.take())? {
            endpoint.proxy = Some(proxy);
        }
        Ok(endpoint)
    }

    fn proxy(&self, server: &http::Uri, written: Option<Proxy>) -> Result<Option<Proxy>, ProcessError> {
        if let Some(proxy) = self.proxy.clone().or(written) {
            return Ok(Some(proxy));
        }
        Proxy::of_environment(server, |name| std::env::var(name).ok()).map_err(ProcessError::Usage)
    }

    /// The credential to begin with, and whether it was there before. Waits for as long as it takes, unless somebody waits.
    pub(super) async fn obtain(&self, stage: &Stage) -> Result<(Credential, bool), ProcessError> {
        let env = &self.env;
        let from_file = self.file.as_ref().map(File::read).transpose()?;
        let mut backoff = Backoff::new(RETRY);
        let kept = loop {
            match self.kept().await {
                Ok(kept) => break kept,
                // What is in the file is enough to begin.
                Err(error) if from_file.is_some() => {
                    tracing::warn!(%error, "what was kept of the hub's credential cannot be read");
                    break None;
                }
                Err(error @ ProcessError::Usage(_)) => return Err(error),
                Err(error) if self.prompt => return Err(error),
                Err(error) => {
                    stage.waits(error.to_string());
                    tokio::time::sleep(backoff.next(env)).await;
                }
            }
        };
        if let Some(found) = match (from_file, kept) {
            (Some(file), kept) => Some(file.newer(kept)),
            (None, kept) => kept,
        } {
            return Ok((found, true));
        }
        let (Some(invited), Some(keep)) = (&self.invited, &self.keep) else {
            return Err(ProcessError::Usage(
                "there is no credential for the hub, and no token to join by".into(),
            ));
        };
        self.join(invited, keep, env, stage).await.map(|credential| (credential, false))
    }

    /// What was kept, if it is this cluster's.
    async fn kept(&self) -> Result<Option<Credential>, ProcessError> {
        let Some(keep) = &self.keep else { return Ok(None) };
        let Some(text) = keep.load().await.map_err(ProcessError::Failed)?.kubeconfig else { return Ok(None) };
        let place = keep.place();
        // What was written by somebody else may have another current context.
        let context = self.file.as_ref().and_then(|file| file.context.as_deref());
        let read = Credential::parse(Path::new(&place), &text, context)
            .or_else(|_| Credential::parse(Path::new(&place), &text, None))?;
        let read = self.readdressed(read, &text, &place)?;
        match read.issued.as_ref().and_then(|issued| issued.cluster()) {
            Some(other) if other != self.cluster => Err(ProcessError::Usage(format!(
                "{place} holds the credential of cluster {other}, and --cluster-name says {}: give each its own place, or take \
                 the old one away",
                self.cluster
            ))),
            _ => Ok(Some(read)),
        }
    }

    /// What was kept, for the hub that --hub names: the same authority may be reached by another address now.
    fn readdressed(&self, read: Credential, text: &str, place: &str) -> Result<Credential, ProcessError> {
        let Some(invited) = &self.invited else { return Ok(read) };
        let server = format!("https://{}", invited.hub);
        if read.access.server == server {
            return Ok(read);
        }
        let known = digests(read.access.ca.as_deref().unwrap_or_default().as_bytes());
        if !known.iter().any(|digest| invited.authorities.contains(digest)) {
            return Err(ProcessError::Usage(format!(
                "{place} holds a credential for the hub at {}, and --hub says {}: take it away to leave that hub",
                read.access.server, invited.hub
            )));
        }
        let mut config: serde_json::Value = serde_saphyr::from_str(text).unwrap_or_default();
        config["clusters"][0]["cluster"]["server"] = server.into();
        Ok(Credential::parse(Path::new(place), &config.to_string(), None)?)
    }

    /// Joins; ends without having done so only if somebody waits for it.
    async fn join(
        &self,
        invited: &Invited,
        keep: &Keep,
        env: &Env,
        stage: &Stage,
    ) -> Result<Credential, ProcessError> {
        let (begun, mut backoff) = (env.now(), Backoff::new(RETRY));
        let mut journey = None;
        loop {
            let error = match self.attempt(invited, keep, env, &mut journey).await {
                Ok(credential) => return Ok(credential),
                Err(Trouble::Arguments(error)) => return Err(error),
                Err(Trouble::Join(error)) => error,
            };
            if self.prompt && env.now().saturating_sub(begun) >= error.may_pass_within() {
                return Err(ProcessError::Failed(error.to_string()));
            }
            let pause = backoff.next(env);
            if stage.waits(error.to_string()) {
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
        let token = match &invited.token {
            Source::Given(token) => token.clone(),
            Source::File(path) => {
                let wrong = |why: String| {
                    Trouble::Join(JoinError::Kept(format!("--token-file: {}: {why}", path.display())))
                };
                let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
                Token::parse(&text).map_err(wrong)?
            }
        };
        let server = format!("https://{}", invited.hub).parse::<http::Uri>();
        let server =
            server.map_err(|error| Trouble::Arguments(ProcessError::Usage(format!("--hub: {error}"))))?;
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
            };
            *journey = Some((token, Journey::new(invitation, USER_AGENT, env.clone())));
        }
        let Some((_, journey)) = journey else { return Err(kept("no journey was begun".to_owned())) };
        let arrived = journey.attempt(&key).await.map_err(Trouble::Join)?;
        let user = karmada_core::names::agent_user(&self.cluster);
        let text = arrived.access.kubeconfig(CONTEXT, &user, &arrived.certificate, &key.pem());
        let credential = Credential::parse(Path::new(&keep.place()), &text, None);
        let credential = credential.map_err(|error| kept(error.to_string()))?;
        keep.finish(&text).await.map_err(kept)?;
        tracing::info!(cluster = %self.cluster, hub = %credential.endpoint.server, kept = %keep.place(), "joined");
        Ok(credential)
    }
}

impl Supply for Ways {
    fn endpoint(&self, credential: &Credential) -> Result<Endpoint, String> {
        Self::endpoint(self, credential).map_err(|error| error.to_string())
    }

    fn in_file(&self) -> Option<Result<(Credential, u64), String>> {
        Some(self.file.as_ref()?.version().map_err(|error| error.to_string()))
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
}

/// Why an attempt came to nothing.
enum Trouble {
    Join(JoinError),
    /// No attempt will do better.
    Arguments(ProcessError),
}
