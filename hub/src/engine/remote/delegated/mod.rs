//! Users of the server on the hub's own listener: who they are and what they may is asked of the server, as Kubernetes'
//! extension API servers do.
//!
//! ```text
//!   certificate ◄─ ConfigMap kube-system/extension-apiserver-authentication, `client-ca-file` ([`authorities`])
//!   token ───────► TokenReview ──────────┐
//!   right ───────► SubjectAccessReview ──┴► Answers: 10 s, one of a kind at a time, so many, with a deadline
//! ```
//!
//! Tokens of which nobody knows that they are somebody's are counted by where they come from, and take a part of the places alone:
//! strangers have the server asked no more than a little, and the less where it does not answer. Whoever was known by a token of
//! late is asked about whatever strangers do.

mod answers;
pub mod authorities;
mod reviews;

pub(super) use answers::{Answers, Asker, Key};

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use karmada_apiserver::{
    authn::UserInfo,
    authz::Decision,
    delegate::{Delegate, Question},
};
use karmada_client::{Error, Rest};
use karmada_meta::status::Status;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use answers::Lately;

/// How long an answer holds: a right that is taken away, or a token, may be used for so long.
const LIFE: Duration = Duration::from_secs(10);
/// So many answers of a kind are kept.
const KEPT: usize = 4096;
/// Of tokens that are not found to be somebody's so many are asked about in ten seconds: from one place, and in all.
const STRANGE: (u32, u32) = (20, 200);
/// Of rights so many: one user's, and in all.
const RIGHTS: (u32, u32) = (200, 4000);
/// So many tokens are remembered that were good.
const GOOD: usize = 1024;

/// See the module.
pub struct Delegated {
    rest: Rest,
    users: Arc<Answers<Option<UserInfo>>>,
    rights: Arc<Answers<(Decision, String)>>,
    strange: Arc<Mutex<Lately<IpAddr>>>,
    asking: Mutex<Lately<String>>,
    good: Mutex<Good>,
    silence: Silence,
}

impl fmt::Debug for Delegated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delegated").finish_non_exhaustive()
    }
}

/// Digests of tokens that were somebody's when they were shown last; of many those that were used last.
#[derive(Default)]
struct Good {
    /// When each was used, in the order of uses.
    used: HashMap<Key, u64>,
    order: BTreeMap<u64, Key>,
    uses: u64,
}

impl Good {
    fn has(&self, key: &Key) -> bool {
        self.used.contains_key(key)
    }

    fn add(&mut self, key: Key) {
        self.uses += 1;
        if let Some(before) = self.used.insert(key, self.uses) {
            self.order.remove(&before);
        }
        self.order.insert(self.uses, key);
        if self.used.len() > GOOD
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.used.remove(&oldest);
        }
    }

    fn remove(&mut self, key: &Key) {
        if let Some(before) = self.used.remove(key) {
            self.order.remove(&before);
        }
    }
}

/// Where somebody is counted: whoever has one address of a /64 has all of them.
fn place(from: Option<IpAddr>) -> IpAddr {
    match from.map(|address| address.to_canonical()) {
        Some(IpAddr::V6(address)) => Ipv6Addr::from(u128::from(address) >> 64 << 64).into(),
        Some(address) => address,
        None => Ipv6Addr::UNSPECIFIED.into(),
    }
}

const WHOSE: &str = "whose a token is";
const WHETHER: &str = "whether somebody may do something";

/// Says for the log why the server has not answered, and no oftener than it helps.
#[derive(Clone)]
struct Silence(Arc<Mutex<Lately<&'static str>>>);

impl Default for Silence {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Lately::new(1, 2))))
    }
}

impl Silence {
    /// What whoever asks is told. They may be strangers: where the server is, and who the hub is there, is for the log alone.
    fn of(&self, what: &'static str, error: &Error) -> Status {
        if self.0.lock().take(&what) {
            tracing::warn!(%error, "the API server does not say {what}");
        }
        match error.is_forbidden() {
            true => Status::internal(format!(
                "the API server does not let the hub ask {what}: bind its user to the ClusterRole in manifests/hub"
            )),
            false => Status::service_unavailable(format!(
                "the API server does not say {what}; the hub's log says why"
            )),
        }
    }
}

impl Delegated {
    /// Asks the server that `rest` reaches.
    pub fn new(rest: Rest) -> Self {
        Self {
            rest,
            users: Answers::new(WHOSE, KEPT),
            rights: Answers::new(WHETHER, KEPT),
            strange: Arc::new(Mutex::new(Lately::new(STRANGE.0, STRANGE.1))),
            asking: Mutex::new(Lately::new(RIGHTS.0, RIGHTS.1)),
            good: Mutex::default(),
            silence: Silence::default(),
        }
    }

    async fn user(&self, token: &str, from: Option<IpAddr>) -> Result<Option<UserInfo>, Status> {
        let (key, place): (Key, _) = (Sha256::digest(token).into(), place(from));
        let is_known = self.good.lock().has(&key);
        let may = || {
            if is_known || self.strange.lock().take(&place) {
                return Ok(());
            }
            let why = "too many unknown tokens were shown; try again";
            Err(Status::too_many_requests(why, 10))
        };
        let ask = || {
            let (rest, strange, review) = (self.rest.clone(), self.strange.clone(), reviews::whose(token));
            let silence = self.silence.clone();
            async move {
                let answer = rest.post(reviews::TOKENS, &review).await;
                let user = answer.map_err(|error| silence.of(WHOSE, &error)).and_then(|review| {
                    let odd = |why| Status::service_unavailable(format!("TokenReview: {why}"));
                    reviews::user(&review).map_err(odd)
                });
                if !is_known && matches!(user, Ok(Some(_))) {
                    strange.lock().give_back(&place);
                }
                user
            }
        };
        let asker = if is_known { Asker::Known } else { Asker::Stranger };
        let user = self.users.get((key, asker), LIFE, may, ask).await?;
        match user {
            Some(_) => self.good.lock().add(key),
            None => self.good.lock().remove(&key),
        }
        Ok(user)
    }

    async fn decision(&self, question: &Question) -> Result<(Decision, String), Status> {
        let review = reviews::access(question);
        let key: Key = Sha256::digest(review.to_string()).into();
        let may = || match self.asking.lock().take(&question.user.name) {
            true => Ok(()),
            false => Err(Status::too_many_requests("too many rights were asked about; try again", 10)),
        };
        let ask = || {
            let (rest, silence) = (self.rest.clone(), self.silence.clone());
            async move {
                let answer = rest.post(reviews::ACCESS, &review).await;
                let review = answer.map_err(|error| silence.of(WHETHER, &error))?;
                let odd = |why| Status::service_unavailable(format!("SubjectAccessReview: {why}"));
                reviews::decision(&review).map_err(odd)
            }
        };
        // Nobody is asked about who has not been found to be somebody.
        self.rights.get((key, Asker::Known), LIFE, may, ask).await
    }
}

impl Delegate for Delegated {
    fn whose<'a>(
        &'a self,
        token: &'a str,
        from: Option<IpAddr>,
    ) -> BoxFuture<'a, Result<Option<UserInfo>, Status>> {
        Box::pin(self.user(token, from))
    }

    fn judge<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Result<(Decision, String), Status>> {
        Box::pin(self.decision(question))
    }
}

#[cfg(test)]
mod tests;
