//! Who asks: by what was shown, here or to another API server.

use http::request::Parts;
use karmada_meta::{status::Status, text};

use super::{Front, hold::left};
use crate::{
    authn::{self, By, Known, Peer, RefusedToken, Unauthenticated, browser},
    delegate::Delegate,
    identity::UserInfo,
    listener::Standing,
    request::RemoteAddr,
};

/// The longest that is said of what was wrong with a credential.
const WHY: usize = 256;

/// Whose users may make a request, where there are those of another API server ([`crate::delegate`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Users {
    /// That one's alone: it is carried on.
    Theirs,
    /// This listener's alone.
    Ours,
    Both,
}

impl Front {
    /// Who asks, among these users.
    pub(super) async fn identify(&self, parts: &Parts, users: Users) -> Result<Known, Status> {
        if let Some(user) = parts.extensions.get::<UserInfo>() {
            return Ok(Known { user: user.clone(), by: By::Nothing, hold: None });
        }
        // Without either nobody has looked at the connection.
        let peer = parts.extensions.get::<Peer>().ok_or_else(Status::unauthorized)?;
        let known = match self.delegate.get() {
            None => self.authenticate(parts, peer),
            Some(delegate) => self.vouched(&**delegate, parts, peer, users).await?,
        };
        let known = known.and_then(|known| known.good_for(parts.uri.path()));
        if let Some(standing) = parts.extensions.get::<Standing>() {
            match &known {
                Ok(known) => {
                    standing.authenticated(&known.user);
                    let now = self.env.wall();
                    known.hold.iter().for_each(|hold| standing.holds(&hold.ended, left(hold, now)));
                }
                Err(why) if why.is_of_certificate() => standing.refused(),
                Err(_) => {}
            }
        }
        known.map_err(|why| self.not_let_in(&why, parts.extensions.get::<RemoteAddr>()))
    }

    /// Whose token this is, as if it came with a request.
    pub(crate) fn by_token(&self, token: &str) -> Result<Known, Status> {
        let accepted = self.authenticator().token(token, None);
        let accepted = accepted.map_err(|why| self.not_let_in(&Unauthenticated::Token(why), None))?;
        Ok(accepted.known)
    }

    /// Counts that somebody was not let in, and says so if that is news.
    fn not_let_in(&self, why: &Unauthenticated, remote: Option<&RemoteAddr>) -> Status {
        let remote = remote.map(|remote| tracing::field::display(remote.0));
        let (reason, user) = (why.reason(), why.user());
        self.metrics.unauthenticated(reason);
        let shown = text::line(&why.to_string(), WHY);
        if self.refusals.is_news(&format!("{reason} {}", user.unwrap_or_default()), self.env.now()) {
            tracing::warn!(remote, reason, "not let in: {shown}");
        } else {
            tracing::debug!(remote, reason, "not let in: {shown}");
        }
        match why.is_of_certificate() {
            // Whoever has shown that it is theirs may know what is wrong with it.
            true => Status { message: format!("Unauthorized: {shown}"), ..Status::unauthorized() },
            // As kube-apiserver: in the log alone.
            false => Status::unauthorized(),
        }
    }

    /// By what was shown: of what a browser sends by itself, what counts ([`browser`]). Who has logged in has said who they
    /// are to be, whatever certificate their browser has.
    fn authenticate(&self, parts: &Parts, peer: &Peer) -> Result<Known, Unauthenticated> {
        let session = self.sessions.get().and_then(|sessions| sessions.find(parts));
        if let Some(known) = session {
            return Ok(known);
        }
        let counts = browser::certificate_counts(parts) && !browser::wants_session(parts);
        let authenticator = self.authenticator.load();
        let known = authenticator.authenticate(if counts { peer } else { &Peer::None }, &parts.headers);
        match known {
            // A browser's certificate that does not hold keeps nobody from logging in by something else.
            Err(why) if !matches!(why, Unauthenticated::Token(_)) && browser::logs_in(parts) => {
                authenticator.authenticate(&Peer::None, &parts.headers)
            }
            known => known,
        }
    }

    /// The same where users are another server's. Where something is carried on, what this listener alone knows counts for
    /// nothing: neither its own tokens nor certificates of its own authority. Where something is this listener's own, what the
    /// other server knows counts for nothing, and it is not asked.
    ///
    /// # Errors
    /// That the other server does not say whose a token is; 401 for whoever shows nothing where something is carried on.
    async fn vouched(
        &self,
        delegate: &dyn Delegate,
        parts: &Parts,
        peer: &Peer,
        users: Users,
    ) -> Result<Result<Known, Unauthenticated>, Status> {
        let strange;
        let peer = match peer {
            _ if !browser::certificate_counts(parts) => &Peer::None,
            Peer::Certificate(one) if users == Users::Theirs && !one.is_of_elsewhere() => {
                strange = Peer::Refused("the API server does not know its authority".into());
                &strange
            }
            Peer::Certificate(one) if users == Users::Ours && one.is_of_elsewhere() => &Peer::None,
            peer => peer,
        };
        if users == Users::Ours {
            return Ok(self.authenticate(parts, peer));
        }
        let authenticator = self.authenticator.load_full();
        let certificate = match authenticator.by_certificate(peer) {
            Ok(Some(known)) => return Ok(Ok(known)),
            Ok(None) => None,
            Err(why) => Some(why),
        };
        if users == Users::Both
            && let Ok(Some(known)) = authenticator.by_token(&parts.headers)
        {
            return Ok(Ok(known));
        }
        let refused = match authn::bearer(&parts.headers) {
            None => None,
            Some(Ok(token)) if token.len() <= authn::LONGEST_TOKEN => {
                let from = parts.extensions.get::<RemoteAddr>().map(|remote| remote.0.ip());
                match delegate.whose(token, from).await? {
                    Some(user) => return Ok(Ok(Known { user, by: By::Token, hold: None })),
                    None => Some(RefusedToken::unknown()),
                }
            }
            Some(Ok(_)) => Some(RefusedToken::unknown()),
            Some(Err(why)) => Some(why),
        };
        Ok(match (certificate, refused) {
            (Some(why), _) => Err(why),
            (None, Some(why)) => Err(Unauthenticated::Token(why)),
            // Nobody has a right there by showing nothing, and the other server is not asked whether they have.
            (None, None) if users == Users::Theirs => return Err(Status::unauthorized()),
            (None, None) => Ok(Known { user: UserInfo::anonymous(), by: By::Nothing, hold: None }),
        })
    }
}
