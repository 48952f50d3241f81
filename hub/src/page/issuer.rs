//! Logging in at the page of an OpenID issuer, by which the hub's API lets people in, too.

use std::sync::Arc;

use axum::body::Body;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use karmada_apiserver::authn::{
    browser,
    oidc::{IssuerClient, Oidc, login::Attempt},
};
use karmada_meta::{status::Status, text};

use super::{Asked, Page, session::Who};

/// The browser's cookie of a login that is under way. It goes along when the issuer's page sends the browser back, as that of a
/// session does not.
const COOKIE: &str = "__Host-ui-login";
/// So many codes are taken to the issuer at a time.
pub(super) const AT_A_TIME: usize = 8;
/// How long a login may take.
const LIFE: u32 = 600;
/// The longest that is said in the log of what an issuer answers.
const WHY: usize = 256;
/// Where the page is that is shown in the end.
const DONE: &str = "/ui";
/// The same, where nobody was logged in.
const FAILED: &str = "/ui#login-failed";

/// An issuer, and who asks it.
#[derive(Clone, Debug)]
pub(crate) struct Issuer {
    /// Whose tokens are taken.
    pub(crate) oidc: Arc<Oidc>,
    /// By what it is asked.
    pub(crate) client: Arc<dyn IssuerClient>,
}

/// Why nobody was logged in.
#[derive(Debug, thiserror::Error)]
enum NoLogin {
    #[error("there is no issuer")]
    NoIssuer,
    #[error("the browser has not begun a login, or ten minutes ago")]
    NotBegun,
    #[error("the answer is to another login")]
    Another,
    /// By what the browser brings, which anybody can write.
    #[error("the issuer says {0}")]
    Refused(String),
    #[error("the request has no host")]
    NoHost,
    #[error("too many log in at a time")]
    TooMany,
    /// It does not take the code, or gives no token for it.
    #[error("{0}")]
    Failed(String),
    /// Its token is not one that is taken here.
    #[error("{0}")]
    NotTaken(String),
}

impl NoLogin {
    /// By what they are told apart where they are counted.
    const fn sort(&self) -> &'static str {
        match self {
            Self::NoIssuer => "no issuer",
            Self::NotBegun => "not begun",
            Self::Another => "another login",
            Self::Refused(_) => "refused",
            Self::NoHost => "no host",
            Self::TooMany => "too many",
            Self::Failed(_) => "failed",
            Self::NotTaken(_) => "not taken",
        }
    }
}

impl Page {
    /// The issuer at whose page people can log in, for them.
    pub(super) fn issuer(&self) -> Option<&str> {
        self.issuer.as_ref().filter(|issuer| issuer.oidc.has_login()).map(|issuer| issuer.oidc.host())
    }

    /// Sends a browser to the issuer's page.
    pub(super) fn to_issuer(&self, asked: &Asked) -> Result<Response<Body>, Status> {
        // The page's own link leads there, and nobody else's.
        let site = asked.parts.headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        if site.is_some_and(|site| site != b"same-origin" && site != b"none") {
            return see(DONE);
        }
        let attempt = Attempt::default();
        let issuer = self.issuer.as_ref();
        let address = issuer.and_then(|issuer| issuer.oidc.begin(&attempt, &back(asked)?));
        let address = address.ok_or_else(|| Status {
            code: 404,
            reason: "NotFound".to_owned(),
            ..Status::bad_request(
                "nobody logs in elsewhere: there is no OpenID issuer, or it has not answered yet",
            )
        })?;
        let mut response = see(&address)?;
        keep(response.headers_mut(), attempt.kept().expose(), LIFE);
        Ok(response)
    }

    /// The browser is back: logs in whoever the issuer says it is.
    pub(super) async fn by_issuer(&self, asked: &Asked) -> Result<Response<Body>, Status> {
        let mut response = match self.redeemed(asked).await {
            Ok(who) => {
                let mut response = see(DONE)?;
                self.begin_session(asked, who, &mut response);
                response
            }
            Err(no) => {
                self.no_login(&no);
                see(FAILED)?
            }
        };
        keep(response.headers_mut(), "", 0);
        Ok(response)
    }

    /// Says why nobody was logged in, of each sort once in a while: whoever comes may be a stranger, and may come often.
    fn no_login(&self, no: &NoLogin) {
        let shown = text::line(&no.to_string(), WHY);
        match self.refusals.news(no.sort(), self.env.now()) {
            Some(count) => tracing::info!(count, "no login by the issuer: {shown}"),
            None => tracing::debug!("no login by the issuer: {shown}"),
        }
    }

    async fn redeemed(&self, asked: &Asked) -> Result<Who, NoLogin> {
        let issuer = self.issuer.as_ref().ok_or(NoLogin::NoIssuer)?;
        let kept = cookie(&asked.parts.headers).and_then(Attempt::read);
        let attempt = kept.ok_or(NoLogin::NotBegun)?;
        if !attempt.is_of(&asked.query("state").unwrap_or_default()) {
            return Err(NoLogin::Another);
        }
        if let Some(error) = asked.query("error") {
            let more = asked.query("error_description").unwrap_or_default();
            return Err(NoLogin::Refused(format!("{error}: {more}")));
        }
        let code = asked.query("code").unwrap_or_default();
        let back = back(asked).ok_or(NoLogin::NoHost)?;
        // Anybody can make up an attempt, and the issuer is somebody else's.
        let _turn = self.redeeming.try_acquire().map_err(|_| NoLogin::TooMany)?;
        let token = issuer.oidc.redeem(&*issuer.client, &attempt, &code, &back).await;
        let token = token.map_err(NoLogin::Failed)?;
        self.by_token(token.expose()).map_err(|status| NoLogin::NotTaken(status.message))
    }
}

/// Where the issuer's page sends the browser: here, by the name that the browser has used.
fn back(asked: &Asked) -> Option<String> {
    Some(format!("https://{}/ui/login/done", browser::authority(&asked.parts)?))
}

fn see(address: &str) -> Result<Response<Body>, Status> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let address = HeaderValue::from_str(address).map_err(Status::internal)?;
    response.headers_mut().insert(header::LOCATION, address);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// The cookie, if it is there once.
fn cookie(headers: &HeaderMap) -> Option<&str> {
    browser::cookie_of(headers, COOKIE)
}

fn keep(headers: &mut HeaderMap, value: &str, seconds: u32) {
    let cookie = format!("{COOKIE}={value}; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age={seconds}");
    if let Ok(mut cookie) = HeaderValue::from_str(&cookie) {
        cookie.set_sensitive(true);
        headers.append(header::SET_COOKIE, cookie);
    }
}
