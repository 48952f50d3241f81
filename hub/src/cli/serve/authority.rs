//! `karmada-hub ca`, on the hub's side: the authority and the key of service accounts' tokens change step by step, while
//! the hub serves.
//!
//! A step changes files of `pki/` ([`Pki::step_authority`]), and then everybody in this process who signs, trusts or
//! shows what stands there is told: the listener, whoever signs requests for certificates and publishes `cluster-info`, whoever issues
//! tokens. Nothing of it waits for a restart, and a hub that is restarted in between finds the files.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::body::{Body, to_bytes};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{Method, Request, Response, StatusCode};
use karmada_apiserver::{
    ApiServer,
    authn::{
        UserInfo,
        accounts::{SECRET_TYPE, ServiceAccounts, Settings},
    },
    certificates::Certifier,
    listener::Tls,
    paths::{Paths, text},
    pki::{ADMINISTRATOR, Described, Pki, PkiError, Stage},
    storage::ApiStore,
};
use karmada_cli::ca::{PATH, What};
use karmada_env::Env;
use karmada_meta::{status::Status, time::Time};
use serde_json::{Value, json};
use tokio::time::interval;
use tokio_util::sync::CancellationToken;

/// How often it is written down until when tokens hold.
const NOTE: Duration = Duration::from_secs(5);
/// For how long tokens of before may hold, of which nothing was written down and which had no limit.
const UNKNOWN: Duration = Duration::from_secs(365 * 24 * 3600);
/// Clocks may differ by so much when a token ends.
const LEEWAY: Duration = Duration::from_secs(60);
/// The largest body of a request.
const LARGEST: usize = 4096;
/// So many names are said.
const SAID: usize = 20;
const CLUSTERS: &str = "cluster.karmada.io/clusters";
const SECRETS: &str = "core/secrets";

/// Reads until when tokens hold. `fresh`: there were no keys yet.
pub(super) fn token_ends(
    pki: &Pki,
    settings: &Settings,
    fresh: bool,
    now: SystemTime,
) -> Result<(), PkiError> {
    let path = pki.token_ends_file();
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => b"{}".to_vec(),
        Err(source) => return Err(PkiError::Io { action: "read", path, source }),
    };
    let known: BTreeMap<String, i64> = serde_json::from_slice(&text)
        .map_err(|error| PkiError::Damaged { path, detail: error.to_string() })?;
    known.iter().for_each(|(key, end)| settings.ends.note(key, *end));
    for key in pki.service_account_keys()? {
        if !known.contains_key(key.id()) {
            let last = now + settings.longest.unwrap_or(UNKNOWN);
            settings.ends.note(key.id(), if fresh { 0 } else { seconds(last) });
        }
    }
    Ok(())
}

fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Who changes them.
pub(super) struct Rotation {
    pub(super) pki: Arc<Pki>,
    pub(super) tls: Tls,
    pub(super) server: ApiServer,
    pub(super) store: ApiStore,
    pub(super) settings: Settings,
    /// Where the server is reached.
    pub(super) url: String,
    /// How long certificates last for which nobody has said.
    pub(super) lasting: Duration,
    pub(super) env: Env,
}

/// Why a step is not done.
enum Refusal {
    /// Something still needs what it takes away.
    Early(String),
    Failed(PkiError),
}

impl From<PkiError> for Refusal {
    fn from(error: PkiError) -> Self {
        Self::Failed(error)
    }
}

impl Rotation {
    /// The paths by which it is asked. Administrators alone may use them.
    pub(super) fn paths(self: &Arc<Self>) -> Paths {
        let rotation = self.clone();
        Paths::default().with(PATH, &[Method::GET, Method::POST], move |request| {
            let rotation = rotation.clone();
            async move { rotation.answer(request).await }
        })
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<Body>, Status> {
        let user = request.extensions().get::<UserInfo>().map(|user| user.name.clone());
        let why = if request.method() == Method::POST {
            let body = to_bytes(request.into_body(), LARGEST).await.map_err(Status::internal)?;
            let asked: Value =
                serde_json::from_slice(&body).map_err(|error| Status::bad_request(error.to_string()))?;
            let name = asked["what"].as_str().unwrap_or_default();
            let what = What::of(name).ok_or_else(|| {
                Status::bad_request(format!("what: {name:?} is none of {}", What::NAMES.join(", ")))
            })?;
            match self.step(what, asked["force"] == true) {
                Ok(stage) => {
                    tracing::info!(
                        user,
                        what = what.as_str(),
                        stage = stage.as_str(),
                        "a step of a rotation is done"
                    );
                    None
                }
                Err(Refusal::Early(why)) => Some(why),
                Err(Refusal::Failed(error)) => return Err(Status::internal(error)),
            }
        } else {
            None
        };
        let mut status = self.status().map_err(Status::internal)?;
        status["refused"] = why.into();
        Ok(text(StatusCode::OK, "application/json", status.to_string()))
    }

    fn step(&self, what: What, force: bool) -> Result<Stage, Refusal> {
        let stage = match what {
            What::Authority => {
                if let (Stage::Changed, false) = (self.pki.authorities().0, force)
                    && let Some(why) = self.agents_behind()
                {
                    return Err(Refusal::Early(why));
                }
                self.pki.step_authority()?
            }
            What::ServiceAccounts => {
                if let (Stage::Changed, false) = (self.pki.service_accounts_stage()?, force)
                    && let Some(why) = self.tokens_left()?
                {
                    return Err(Refusal::Early(why));
                }
                let stage = self.pki.step_service_accounts()?;
                // One that was just made has signed nothing.
                self.pki.service_account_keys()?.iter().for_each(|key| self.settings.ends.note(key.id(), 0));
                stage
            }
        };
        self.tell()?;
        Ok(stage)
    }

    /// Tells everybody what stands in the files.
    fn tell(&self) -> Result<(), PkiError> {
        let crypto = |detail: String| PkiError::Crypto { subject: "clients".to_owned(), detail };
        // Who trusts comes before who signs.
        self.tls.trust(&self.pki).map_err(|error| crypto(error.to_string()))?;
        let settings = Settings { ca_pem: self.pki.ca_pem(), ..self.settings.clone() };
        self.server.issue_by(Arc::new(ServiceAccounts::new(settings, self.pki.service_account_keys()?)));
        let certifier = Certifier::new(self.pki.signer()?, self.url.clone());
        self.server.certify_by(certifier.lasting(self.lasting));
        self.pki.keep_current(&ADMINISTRATOR, &self.url)
    }

    /// The clusters whose agents have not shown a certificate of the authority that signs, with what they have shown.
    fn behind(&self) -> (usize, Vec<(String, &'static str)>) {
        let signs = self.pki.authorities().1.id;
        let shown = self.server.epochs().authorities();
        let snapshot = self.store.snapshot();
        let mut all = 0;
        let mut behind = Vec::new();
        for cluster in snapshot.range(CLUSTERS, None, None) {
            all += 1;
            match shown.get(&*cluster.key.name) {
                Some(id) if *id == signs => {}
                Some(_) => behind.push((cluster.key.name.to_string(), "old")),
                None => behind.push((cluster.key.name.to_string(), "none shown since the hub started")),
            }
        }
        (all, behind)
    }

    fn agents_behind(&self) -> Option<String> {
        let (all, behind) = self.behind();
        let list =
            behind.iter().take(SAID).map(|(name, what)| format!("{name} ({what})")).collect::<Vec<_>>();
        let more = if behind.len() > SAID { ", …" } else { "" };
        (!behind.is_empty()).then(|| {
            format!(
                "{} of {all} clusters have no certificate of the new authority: {}{more}. They renew by themselves, or get new \
                 ones by karmada-hub credentials; with --force they are locked out",
                behind.len(),
                list.join(", ")
            )
        })
    }

    /// Secrets whose tokens were signed by these keys: they never end.
    fn secrets_of(&self, keys: &BTreeSet<String>) -> usize {
        let snapshot = self.store.snapshot();
        let of = |secret: &[u8]| {
            let secret: Value = serde_json::from_slice(secret).ok()?;
            let token = STANDARD.decode(secret["data"]["token"].as_str()?).ok()?;
            if secret["type"] != SECRET_TYPE {
                return None;
            }
            ServiceAccounts::key_of(&token).filter(|key| keys.contains(key))
        };
        snapshot.range(SECRETS, None, None).filter(|secret| of(&secret.value.get()).is_some()).count()
    }

    fn tokens_left(&self) -> Result<Option<String>, PkiError> {
        let keys = self.pki.service_account_keys()?;
        let old: BTreeSet<String> = keys.iter().skip(1).map(|key| key.id().to_owned()).collect();
        let ends = self.settings.ends.all();
        let last = old.iter().filter_map(|key| ends.get(key)).max().copied().unwrap_or_default();
        let last = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(last).unwrap_or_default());
        if self.env.wall() < last + LEEWAY {
            return Ok(Some(format!(
                "tokens of the old key may hold until {}; with --force they end now",
                Time::from_system(last + LEEWAY)
            )));
        }
        let secrets = self.secrets_of(&old);
        Ok((secrets > 0).then(|| {
            format!(
                "{secrets} Secrets of type {SECRET_TYPE} hold tokens of the old key, which have no end; with --force they \
                 get new ones, and copies of the old ones end"
            )
        }))
    }

    fn status(&self) -> Result<Value, PkiError> {
        let (stage, signs, other) = self.pki.authorities();
        let shown = |one: &Described| json!({"name": one.name, "id": one.id, "until": Time::from_system(one.until).to_string()});
        let (all, behind) = self.behind();
        let behind: Vec<Value> =
            behind.into_iter().map(|(name, what)| json!({"cluster": name, "certificate": what})).collect();
        let ends = self.settings.ends.all();
        let keys: Vec<Value> = self
            .pki
            .service_account_keys()?
            .iter()
            .map(|key| {
                let end = ends.get(key.id()).filter(|end| **end > 0);
                let end = end.and_then(|end| u64::try_from(*end).ok());
                let end = end.map(|end| SystemTime::UNIX_EPOCH + Duration::from_secs(end));
                json!({"id": key.id(), "tokensUntil": end.map(|end| Time::from_system(end).to_string())})
            })
            .collect();
        Ok(json!({
            "authority": {
                "stage": stage.as_str(), "signs": shown(&signs), "other": other.as_ref().map(shown),
                "clusters": all, "behind": behind,
            },
            "serviceAccounts": {"stage": self.pki.service_accounts_stage()?.as_str(), "keys": keys},
        }))
    }

    /// Writes down until when tokens hold, until the end.
    pub(super) async fn keep(self: Arc<Self>, stop: CancellationToken) {
        let (mut looks, mut written) = (interval(NOTE), None);
        loop {
            let last = tokio::select! {
                biased;
                () = stop.cancelled() => true,
                _ = looks.tick() => false,
            };
            let ends = self.settings.ends.all();
            if written.as_ref() != Some(&ends) {
                match self.note(&ends) {
                    Ok(()) => written = Some(ends),
                    Err(error) => tracing::error!(%error, "cannot write down until when tokens hold"),
                }
            }
            if last {
                return;
            }
        }
    }

    fn note(&self, ends: &BTreeMap<String, i64>) -> Result<(), PkiError> {
        self.pki.write_private(&self.pki.token_ends_file(), &(json!(ends).to_string() + "\n"))
    }
}

#[cfg(test)]
mod tests;
