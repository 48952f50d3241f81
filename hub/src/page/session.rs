//! Logging in: by a token, by an address that `karmada-hub ui` has printed, or as whoever the request is by itself.

use std::{fmt, sync::Arc, time::Duration};

use axum::body::{Body, to_bytes};
use http::{HeaderValue, Method, Response, header, request::Parts};
use karmada_apiserver::{
    Handle,
    authn::{
        ANONYMOUS, By, Known, UserInfo,
        browser::{self, COOKIE, PAGE_HEADER, Sessions},
        epochs::Hold,
    },
    front::Shown,
    heavy,
};
use karmada_env::{Env, Secret};
use karmada_meta::{status::Status, time::Time};
use karmada_ui::{
    headers,
    vault::{Found, Holds, SESSIONS, Vault},
};
use serde_json::{Value, json};
use tokio::time::interval;
use tokio_util::sync::CancellationToken;

use super::{Asked, Page, json as document};

/// The largest body: a token has 16 KiB at most.
pub(super) const LARGEST: usize = 20 << 10;
/// How often what has had its time is ended.
const SWEEP: Duration = Duration::from_secs(30);
/// Below these a cookie counts: what is behind other paths takes no browser's word.
const PLACE: &str = "/ui/";

/// What the page's header says where nobody has done anything: it is only open.
const OPEN: &str = "open";

/// Who a session or an address is for.
#[derive(Clone, Debug)]
pub(super) struct Who {
    user: UserInfo,
    by: By,
    hold: Option<Hold>,
    /// The token that says so. It is asked again whether it holds: keys are rotated, accounts go.
    token: Option<Arc<Secret>>,
}

/// All sessions.
pub(super) struct LoggedIn {
    names: Vec<String>,
    handle: Handle,
    pub(super) sessions: Vault<Session>,
}

/// What is known of whoever has one.
#[derive(Clone, Debug)]
pub(super) struct Session {
    user: UserInfo,
    by: By,
    token: Option<Arc<Secret>>,
}

impl fmt::Debug for LoggedIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sessions.fmt(f)
    }
}

impl LoggedIn {
    pub(super) fn new(names: Vec<String>, handle: Handle, env: &Env) -> Self {
        Self { names, handle, sessions: Vault::new(SESSIONS, env.clone()) }
    }

    /// Whether whoever has logged in by a token could not do so any more.
    fn is_over(&self, session: &Session) -> bool {
        let known = session.token.as_ref().map(|token| self.handle.by_token(token.expose()));
        known.is_some_and(|known| !known.is_ok_and(|known| known.user == session.user))
    }

    /// Ends what has had its time, until it is told to stop.
    pub(super) fn sweep(self: Arc<Self>, stop: CancellationToken) {
        tokio::spawn(async move {
            let mut ticks = interval(SWEEP);
            let sweeping = async {
                loop {
                    ticks.tick().await;
                    self.sessions.sweep();
                    // There may be thousands, and each takes a signature.
                    heavy::beside(usize::MAX, async { self.sessions.end_those(|one| self.is_over(one)) })
                        .await;
                }
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = sweeping => {}
            }
        });
    }

    fn found(&self, parts: &Parts) -> Option<Found<Session>> {
        let ours = browser::host(parts).is_some_and(|host| headers::is_ours(host, &self.names));
        let counts = ours && parts.uri.path().starts_with(PLACE) && browser::is_own_page(parts);
        let id = browser::cookie(&parts.headers).filter(|_| counts)?;
        let open = parts.headers.get(PAGE_HEADER).is_some_and(|said| said == OPEN);
        let found = if open { self.sessions.peek(id) } else { self.sessions.get(id) }?;
        if self.is_over(&found.what) {
            self.sessions.take(id);
            return None;
        }
        Some(found)
    }
}

impl Sessions for LoggedIn {
    fn find(&self, parts: &Parts) -> Option<Known> {
        // Whoever sets a token means that one.
        if parts.headers.contains_key(header::AUTHORIZATION) {
            return None;
        }
        let Found { what: Session { user, by, .. }, holds } = self.found(parts)?;
        let hold = Hold { ended: holds.ended, until: holds.until, leaving: false };
        Some(Known { user, by, hold: Some(hold) })
    }
}

impl Page {
    /// Who is logged in; logs in; logs out.
    pub(super) async fn session(&self, asked: &Asked, body: Body) -> Result<Response<Body>, Status> {
        let method = &asked.parts.method;
        if *method == Method::GET {
            return Ok(document(asked, &self.who_asks(asked)));
        }
        if !browser::is_own_page(&asked.parts) {
            let why =
                "only the page itself logs in and out; programs send their credential with each request";
            return Err(Status::bad_request(why));
        }
        if *method == Method::DELETE {
            if let Some(id) = browser::cookie(&asked.parts.headers) {
                self.logged_in.sessions.take(id);
            }
            let mut response = document(asked, &json!({"user": null}));
            set_cookie(&mut response, "", 0);
            return Ok(response);
        }
        let body =
            to_bytes(body, LARGEST).await.map_err(|_| Status::too_large(format!("limit is {LARGEST}")))?;
        let said: Value = serde_json::from_slice(&body)
            .map_err(|error| Status::bad_request(format!("the body is no JSON: {error}")))?;
        let names = |field: &str| said[field].is_string();
        if !names("token") && !names("ticket") && self.logged_in.found(&asked.parts).is_some() {
            // Somebody has logged in meanwhile, in another tab.
            return Ok(document(asked, &self.who_asks(asked)));
        }
        let who = self.meant(asked, &said)?;
        let user = json!({"user": who.user.name, "groups": who.user.groups, "session": true});
        let mut response = document(asked, &user);
        self.begin_session(asked, who, &mut response);
        Ok(response)
    }

    /// Begins a session, whose cookie goes with an answer.
    pub(super) fn begin_session(&self, asked: &Asked, who: Who, response: &mut Response<Body>) {
        let holds = who.hold.map(|hold| Holds { ended: hold.ended, until: hold.until });
        // Whoever logs in anew leaves no session behind that nobody can end.
        if let Some(former) = browser::cookie(&asked.parts.headers) {
            self.logged_in.sessions.take(former);
        }
        let name = who.user.name.clone();
        let session = Session { user: who.user, by: who.by, token: who.token };
        let id = self.logged_in.sessions.put(&name, session, holds);
        tracing::info!(user = name, "somebody has logged in to the page");
        set_cookie(response, id.expose(), SESSIONS.most.as_secs());
    }

    /// Whose token this is.
    pub(super) fn by_token(&self, token: &str) -> Result<Who, Status> {
        let known = self.handle.by_token(token)?;
        let token = Some(Arc::new(Secret::known(token)));
        Ok(Who { user: known.user, by: known.by, hold: known.hold, token })
    }

    /// Whom a login is for.
    fn meant(&self, asked: &Asked, said: &Value) -> Result<Who, Status> {
        if let Some(token) = said["token"].as_str() {
            return self.by_token(token.trim());
        }
        if let Some(ticket) = said["ticket"].as_str() {
            return self.tickets.take(ticket).ok_or_else(Status::unauthorized);
        }
        match asked.is_somebody() {
            true => shown(asked),
            false => Err(Status::unauthorized()),
        }
    }

    /// An address by which one browser is logged in as whoever asks.
    pub(super) fn ticket(&self, asked: &Asked) -> Result<Response<Body>, Status> {
        let who = shown(asked)?;
        let holds = who.hold.clone().map(|hold| Holds { ended: hold.ended, until: hold.until });
        let name = who.user.name.clone();
        let id: Secret = self.tickets.put(&name, who, holds);
        Ok(document(
            asked,
            &json!({"ticket": id.expose(), "seconds": karmada_ui::vault::TICKETS.most.as_secs()}),
        ))
    }

    /// Who asks, for the page: by a session, or by what they could begin one with.
    fn who_asks(&self, asked: &Asked) -> Value {
        let about = json!({
            "hub": env!("CARGO_PKG_VERSION"), "now": Time::now(&self.env), "user": null, "session": false,
            "issuer": self.issuer(),
        });
        if asked.user.name == ANONYMOUS {
            return about;
        }
        let found = self.logged_in.found(&asked.parts);
        let mut about = about;
        about["user"] = asked.user.name.clone().into();
        about["groups"] = json!(asked.user.groups);
        about["session"] = found.is_some().into();
        about["until"] = json!(found.map(|found| Time::from_system(found.holds.until)));
        about
    }
}

/// Who makes a request, and by what. Nobody gets a session as somebody else: it would outlive the right to act as them, and
/// no event of it would say who acts.
fn shown(asked: &Asked) -> Result<Who, Status> {
    if asked.parts.headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        let why =
            "a session is for whoever asks: leave out --as, or log in by a token of the one who is meant";
        return Err(Status::bad_request(why));
    }
    let shown = asked.parts.extensions.get::<Shown>();
    // A token is asked again whether it holds.
    let bearer = asked.parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = bearer.and_then(|value| value.split_once(' ')).map(|(_, token)| token.trim());
    let by_token = shown.is_some_and(|shown| shown.by == By::Token);
    let token = bearer.filter(|_| by_token).map(|token| Arc::new(Secret::known(token)));
    Ok(Who {
        user: asked.user.clone(),
        by: shown.map_or(By::Nothing, |shown| shown.by),
        hold: shown.and_then(|shown| shown.hold.clone()),
        token,
    })
}

fn set_cookie(response: &mut Response<Body>, id: &str, seconds: u64) {
    let cookie = format!("{COOKIE}={id}; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age={seconds}");
    if let Ok(mut cookie) = HeaderValue::from_str(&cookie) {
        cookie.set_sensitive(true);
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}
