//! Approves what agents ask for on an API server that is not the hub's own: their first certificate, by a token that is for
//! their cluster, and each after that, by the one before. Whoever signs there, kube-controller-manager as a rule, does the rest.
//!
//! ```text
//!   CertificateSigningRequests ─watch─▶ queue ─▶ read request, token, Cluster ─▶ elsewhere::decide()
//!                                                                                   │ approve        │ deny    │ leave
//!                                        token's Secret, with one use less ◀────────┤                │         └▶ somebody else
//!                                        the agent's roles ◀────────────────────────┤                │
//!                                        /approval, as it was read ◀────────────────┴────────────────┘
//! ```
//!
//! What was signed is noted on the agent's role, by its digest: where there was a cluster of the same name before, its old
//! certificate renews nothing.
//!
//! The order makes it safe to be cut off anywhere: a token whose use is counted says by which key, and the same request is
//! approved when it is looked at again. What was given is looked at before the token, and written as it was seen. When the roles
//! are made, token and Cluster are looked at again: if the one has ended or the other has gone in between, they are taken back.

use std::{sync::Arc, time::Duration};

use karmada_api::consts::{component, event};
use karmada_apiserver::{
    authn::bootstrap,
    certificates::{
        CLIENT_SIGNER,
        elsewhere::{self, Answer, Asked, Beside, LetIn},
    },
};
use karmada_cli::agents::{self, Granted, Join, Seen};
use karmada_client::{Error, Event, Resource, WatchConfig, Watcher, WorkQueue};
use karmada_core::admit::agent::has_registered;
use karmada_meta::{object, time::Time};
use karmada_objects::{
    key::Key,
    kinds::{CLUSTERS, SECRETS},
};
use serde_json::Value;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{Context, Next, work};

/// How many requests are decided about at a time. A token is written as it was read, so that two do not use it up at once: the
/// later one is looked at again.
const WORKERS: usize = 8;
/// How often it is looked what is left of agents that have gone.
const SWEEP: Duration = Duration::from_secs(300);

/// Approves.
pub(crate) struct Approver {
    context: Arc<Context>,
    requests: Resource,
    queue: WorkQueue<String>,
}

impl Approver {
    /// One that has not looked at anything yet.
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        let queue = WorkQueue::new(context.env.clone());
        context.figures.queue("certificates", &queue);
        let requests = Resource::new(
            "certificates.k8s.io",
            "v1",
            "certificatesigningrequests",
            "CertificateSigningRequest",
            false,
        );
        Self { context: context.clone(), requests, queue }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let working = work("certificates", &self.queue, WORKERS, &stop, |name: String| self.settle(name));
        let watching = async {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = self.watch() => {}
                () = self.sweep() => {}
            }
        };
        tokio::join!(working, watching);
    }

    async fn watch(&self) {
        let config = WatchConfig::new(self.requests.collection(None))
            .fields(format!("spec.signerName={CLIENT_SIGNER}"));
        let project = |text: &str| {
            let request: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
            let concerns = Asked::of(&request).is_some() || elsewhere::issued(&request).is_some();
            Ok((object::name(&request).to_owned(), concerns))
        };
        let mut watcher = Watcher::over(self.context.watching(), config, self.context.env.clone(), project);
        loop {
            if let Event::Upsert((name, true)) = watcher.next().await {
                self.queue.add(name);
            }
        }
    }

    async fn sweep(&self) {
        let known = &self.context.known.clusters;
        known.synced().await;
        let stands = |cluster: &str, uid: &str| {
            let head = known.get(&Key::cluster_scoped(cluster));
            head.is_some_and(|head| head.cluster.metadata.uid.as_deref() == Some(uid))
        };
        loop {
            let (objects, now) = (&self.context.writer.objects, self.context.env.wall());
            if let Err(error) = agents::sweep(objects, now, stands).await {
                tracing::warn!(%error, "what was left to agents that have gone is not taken back yet");
            }
            sleep(SWEEP).await;
        }
    }

    /// Does what a request needs.
    async fn settle(&self, name: String) -> Result<Next, Error> {
        let (writer, env) = (&self.context.writer, &self.context.env);
        let key = Key::cluster_scoped(name);
        let Some(mut request) = writer.objects.get(&self.requests, &key).await? else {
            return Ok(Next::Done);
        };
        if let Some(issued) = elsewhere::issued(&request) {
            agents::note(&writer.objects, &issued).await?;
            return Ok(Next::Done);
        }
        let (decided, there, seen) = {
            let Some(asked) = Asked::of(&request) else { return Ok(Next::Done) };
            let (there, seen) = match asked.cluster() {
                Some(name) => {
                    let there = writer.objects.get(&CLUSTERS, &Key::cluster_scoped(name)).await?;
                    let uid = there.as_ref().map(object::uid);
                    agents::keep_to(&writer.objects, name, uid, env.wall()).await?;
                    (there, Some(agents::look(&writer.objects, name).await?))
                }
                None => (None, None),
            };
            // After what was given is looked at: both ends are written there after the tokens have ended.
            let token = match asked.token() {
                Some(name) => writer.objects.get(&SECRETS, &Key::new(bootstrap::NAMESPACE, name)).await?,
                None => None,
            };
            let given = seen.as_ref().and_then(Seen::given);
            let (token, cluster) = (token.as_ref(), there.as_ref());
            let decided = asked.decide(Beside { token, cluster, given: given.as_ref(), now: env.wall() });
            (decided, there, seen)
        };
        let name = &*key.name;
        match &decided {
            Answer::Foreign => {
                tracing::debug!(name, "a request for a certificate by a token of another system");
                return Ok(Next::Done);
            }
            Answer::Leave(why) => {
                tracing::warn!(
                    name,
                    why,
                    "a request for a certificate waits for somebody to approve it: kubectl certificate approve"
                );
                writer.warning(component::CSR_APPROVER, &request, event::CERTIFICATE_WAITS, why);
                return Ok(Next::Done);
            }
            Answer::Deny(reason, why) => {
                let requester = request["spec"]["username"].as_str().unwrap_or_default();
                tracing::warn!(name, reason, why, requester, "a request for a certificate was denied");
                writer.warning(component::CSR_APPROVER, &request, event::CERTIFICATE_DENIED, why);
            }
            Answer::Approve { cluster, why, token, lets_in } => {
                if let Some(token) = token {
                    self.told(
                        writer.objects.replace(&SECRETS, token).await,
                        "count a use of a bootstrap token",
                    )?;
                }
                // Whoever renews has them, or had them taken.
                if let (Some(lets_in), Some(seen)) = (lets_in, &seen)
                    && !self.let_in(&request, cluster, lets_in, there.as_ref(), seen).await?
                {
                    return Ok(Next::After(Duration::ZERO));
                }
                tracing::info!(name, cluster, why, "a certificate for an agent");
                writer.normal(component::CSR_APPROVER, &request, event::CERTIFICATE_APPROVED, why);
            }
        }
        if elsewhere::answer(&mut request, &decided, env.wall()) {
            let path = self.requests.subresource(None, name, "approval");
            let written = writer.objects.rest().put(&path, &request).await;
            match self.told(written, "approve requests for certificates") {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        Ok(Next::Done)
    }

    /// Gives an agent its roles whom a token lets in; whether it has them, and nothing has come between.
    async fn let_in(
        &self,
        request: &Value,
        cluster: &str,
        lets_in: &LetIn,
        there: Option<&Value>,
        seen: &Seen,
    ) -> Result<bool, Error> {
        let (writer, now) = (&self.context.writer, self.context.env.wall());
        let asked = elsewhere::made(request).unwrap_or_else(|| Time::from_system(now));
        let uid = there.map(object::uid);
        // Nothing marks there who has made a Cluster, but that an agent says its member's id.
        let says_id = |there: &Value| there["spec"]["id"].as_str().is_some_and(|id| !id.is_empty());
        let registered = there.is_some_and(|there| has_registered(there) || says_id(there));
        let join = Join { asked, by: lets_in.grant(), uid, registered };
        let made = match agents::grant(&writer.objects, cluster, seen, &join, now).await {
            Err(error) if error.is_conflict() || error.is_already_exists() => return Ok(false),
            made => self.told(made, "make the roles of an agent")?,
        };
        match made {
            Granted::TakenBack => return Ok(false),
            Granted::Given => {}
            Granted::Superseded => {
                let why = format!(
                    "a certificate was issued for the name of cluster {cluster:?} before, and no agent has registered with it. It \
                     cannot be renewed any more, and its tokens are invalid. But until it expires{}, whoever has it may do what the \
                     agent may do. If others may have it, let the cluster join under another name",
                    seen.until().map(|until| format!(" ({until} at the latest)")).unwrap_or_default()
                );
                tracing::warn!(cluster, why, "a name was given to somebody before");
                writer.warning(component::CSR_APPROVER, request, event::CERTIFICATE_SUPERSEDED, why);
            }
        }
        let key = Key::new(bootstrap::NAMESPACE, lets_in.token.as_str());
        let token = writer.objects.get(&SECRETS, &key).await?;
        if !token.is_some_and(|token| elsewhere::holds(&token, lets_in, now)) {
            // It was ended in between, where there was nothing yet to take back.
            if !seen.is_given() {
                agents::revoke(&writer.objects, cluster, now).await?;
            }
            return Ok(false);
        }
        let live = writer.objects.get(&CLUSTERS, &Key::cluster_scoped(cluster)).await?;
        let live = live.as_ref().map(object::uid);
        if uid.is_some() && uid != live {
            // Its Cluster went in between, and with it what was given: that is not to come back.
            agents::take_back(&writer.objects, cluster, now).await?;
            return Ok(false);
        }
        // One that was there before the roles is noted on them.
        if live.is_some() {
            agents::keep_to(&writer.objects, cluster, live, now).await?;
        }
        Ok(true)
    }

    /// Says at once what takes a right that the hub has not got.
    fn told<T>(&self, outcome: Result<T, Error>, what: &str) -> Result<T, Error> {
        if let Err(error) = &outcome
            && error.is_forbidden()
        {
            tracing::warn!(
                %error,
                "the hub may not {what} on this API server, and no agent can join: bind it to the ClusterRole in manifests/hub"
            );
        }
        outcome
    }
}
