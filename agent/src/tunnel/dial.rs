//! When the agent dials: the hub writes a number into the Cluster, which the agent watches anyway.
//!
//! A number is answered once, and by the agent that speaks for the cluster alone. Whoever may write Clusters can forge one:
//! then the agent asks the hub, which sends it away, and nothing has changed. So the tunnel of before goes only when the hub
//! has taken the new one, and one that says goodbye goes when what was asked by it has ended. Where it dials is never read there:
//! a credential is shown where the member's owner has said. What stood in the Cluster when this process first saw it was meant for
//! another.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use futures::{StreamExt as _, stream::FuturesUnordered};
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use karmada_api::consts::extension;
use karmada_client::{
    Endpoint, Rest,
    kubeconfig::Credentials,
    latest,
    link::{Bound, Identity, direct},
};
use karmada_core::spent::{Spent, decline};
use karmada_member::{
    rights::Rights,
    tunnel::{Guests, Limits, Mode},
};
use karmada_meta::object;
use serde_json::{Value, json};
use tokio::{
    sync::OnceCell,
    time::{Instant, sleep_until, timeout},
};

use super::{
    Record, Tunnel,
    door::{Member, Tokens},
    heed::{Serving, heed},
    pace,
    paid::Paid,
    toll::Toll,
};

/// What the connection changes to.
const PROTOCOL: &str = "karmada-tunnel";
/// By which number it comes.
const NUMBER: &str = "karmada-tunnel";
/// The account that acts in others' names, beside the agent's own.
const ACCOUNT: &str = "karmada-agent-tunnel";
/// How long the hub may take to let it in, from the first packet on: the number is good for no longer.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts, whatever numbers come; by the same number twice as long each time.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// What it costs to dial an address, about: its name, and packets that nobody answers or that are refused.
const KNOCKED: usize = 400;
/// And, where somebody is there, a handshake, and what both ends say of themselves.
const DIALLED: usize = 6 << 10;
/// What is read of a refusal.
const REFUSAL: usize = 16 << 10;
/// The longest number that is looked at.
const LONGEST: usize = 64;
/// So many addresses are dialled at a time.
const ADDRESSES: usize = 16;

/// What the member's owner has said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// What is let through.
    pub limits: Limits,
    /// Whom the hub's users may be, beside people.
    pub guests: Guests,
    /// Whether the hub is told of what is searched on the member.
    pub copies: bool,
    /// Where the hub is dialled, if not where its API is.
    pub server: Option<Server>,
    /// Bytes that may cross tunnels in an hour; any number if that is none. As the link has it where nothing is said.
    pub budget: Option<u64>,
}

/// The hub's own listener, where its API is another server's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// `https://HOST:PORT`, one for each hub: the one that leads lets the agent in.
    pub addresses: Vec<String>,
    /// Whom to believe there, as PEM in this file; the machine's own authorities without it.
    pub ca: Option<PathBuf>,
}

impl Server {
    /// The ways there, for who is known at the hub's API by what is shown there.
    ///
    /// # Errors
    /// What cannot be used of an address or of the authorities.
    pub fn ways(&self, hub: &Endpoint) -> Result<Vec<Endpoint>, String> {
        let count = self.addresses.len();
        if count > ADDRESSES {
            return Err(format!("{count} addresses are too many: name at most {ADDRESSES}"));
        }
        let read =
            |file: &PathBuf| std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()));
        let ca = self.ca.as_ref().map(read).transpose()?;
        let way = |address: &String| {
            let endpoint = Endpoint::of_server(address, ca.clone(), false, hub.proxy.clone());
            match endpoint.map_err(|why| format!("{address}: {why}"))? {
                endpoint if endpoint.tls.is_none() => {
                    Err(format!("{address}: an agent shows itself by https alone"))
                }
                endpoint => Ok(direct::known_as_at(endpoint, hub)),
            }
        };
        self.addresses.iter().map(way).collect()
    }
}

/// What an agent has that serves tunnels.
#[derive(Clone, Debug)]
pub struct Dials {
    /// What the member's owner has said.
    pub settings: Settings,
    /// The way to the hub.
    pub hub: Identity,
    /// The way to the member.
    pub member: Identity,
    /// What may cross tunnels, where each byte is paid for.
    pub budget: Toll,
    /// Hears of each request when it has ended.
    pub told: fn(&Record),
}

/// What the Cluster says of tunnels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Call {
    pub(super) number: Option<String>,
    /// What its users want there; nothing if they have not said so, or not in words that are known.
    wanted: Option<Mode>,
}

impl Call {
    pub(crate) fn of(cluster: &Value) -> Self {
        let number = object::annotation(cluster, extension::TUNNEL_CALL);
        let known =
            |one: &&str| !one.is_empty() && one.len() <= LONGEST && one.bytes().all(|b| b.is_ascii_graphic());
        Self {
            number: number.filter(known).map(str::to_owned),
            wanted: match object::annotation(cluster, extension::TUNNEL_WANTED) {
                None => Some(Mode::Full),
                Some(text) => text.parse().ok(),
            },
        }
    }

    /// How much of a tunnel there is to be, where the agent's owner gives so much.
    pub(super) fn mode(&self, given: Mode) -> Mode {
        given.min(self.wanted.unwrap_or(Mode::Off))
    }
}

/// Who dials.
pub(crate) struct Dialer {
    dials: Dials,
    tokens: Arc<Tokens>,
    rest: Rest,
    /// By the connection for leases and Works.
    hub: Rest,
    rights: Rights,
    namespace: String,
    user_agent: &'static str,
    /// The agent's own accounts on the member, once they are known.
    own: OnceCell<Vec<String>>,
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").field("settings", &self.dials.settings).finish_non_exhaustive()
    }
}

/// Why there is no tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Why {
    pub(super) text: String,
    /// Another attempt would bring nothing else.
    is_last: bool,
}

impl Why {
    fn last(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_last: true }
    }
}

impl From<String> for Why {
    fn from(text: String) -> Self {
        Self { text, is_last: false }
    }
}

impl Dialer {
    pub(crate) fn new(dials: Dials, (rest, hub): (Rest, Rest), rights: Rights, namespace: String) -> Self {
        let tokens = Arc::new(Tokens::new(rest.clone(), namespace.clone(), ACCOUNT));
        let user_agent = concat!("karmada-agent/", env!("CARGO_PKG_VERSION"));
        Self { dials, tokens, rest, hub, rights, namespace, user_agent, own: OnceCell::new() }
    }

    /// Dials whenever it is asked to, until dropped.
    pub(crate) async fn run(self, calls: latest::Receiver<Option<Call>>) {
        let this = &self;
        let given = this.dials.settings.limits.mode;
        let attempt = |number: String| async move { this.attempt(&number).await };
        let serve = |(upgraded, own): (Upgraded, Vec<String>), mode: Mode| this.serve(upgraded, own, mode);
        heed(calls, given, || this.rights.may_report(), attempt, serve).await;
    }

    async fn attempt(&self, number: &str) -> Result<(Upgraded, Vec<String>), Why> {
        if let Some(spent) = self.dials.budget.spent() {
            self.declines(number, spent).await;
            return Err(Why::last(format!(
                "its link is paid for by the byte, and tunnels owed an hour's budget (--tunnel-budget): half of that is \
                 made up for in {} min",
                spent.short.wait().as_secs().div_ceil(60)
            )));
        }
        // Before the hub may ask for anything.
        let own = self.own.get_or_try_init(|| self.own()).await?;
        Ok((self.dial(number).await?, own.clone()))
    }

    /// Says so to the hub, by the connection that there is: whoever waits there need not, and until then the hub does not ask again.
    async fn declines(&self, number: &str, spent: Spent) {
        // Where tunnels have a server of their own, the other connection does not lead to it.
        let Some(query) = decline(number, spent).filter(|_| self.dials.settings.server.is_none()) else {
            return;
        };
        self.dials.budget.question();
        let path = format!("{}?{query}", extension::TUNNEL_PATH);
        match timeout(PATIENCE, self.hub.get_text(&path)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the hub does not hear that there is no tunnel"),
            Err(_) => tracing::debug!("the hub has not heard in time that there is no tunnel"),
        }
    }

    fn serve(&self, upgraded: Upgraded, own: Vec<String>, mode: Mode) -> Serving {
        let mut serving = Serving::new(mode);
        let Some(endpoint) = self.dials.member.endpoint() else { return serving };
        let tunnel = Arc::new(Tunnel {
            limits: Limits { mode, ..self.dials.settings.limits.clone() },
            own,
            guests: self.dials.settings.guests.clone(),
            door: Arc::new(Member::new(&endpoint, self.tokens.clone())),
            budget: self.dials.budget.clone(),
            told: self.dials.told,
        });
        tracing::info!(%mode, "the hub reaches this member by a tunnel");
        let (io, pacer) = pace::paced(Paid::new(TokioIo::new(upgraded), self.dials.budget.clone()));
        let (hub, budget) = (self.hub.clone(), self.dials.budget.clone());
        let ask = move || {
            budget.question();
            let hub = hub.clone();
            async move { drop(hub.get_text("/livez").await) }
        };
        let goodbye = serving.goodbye.clone();
        serving.task.spawn(async move {
            tokio::select! {
                () = tunnel.serve(io, goodbye) => {}
                () = pacer.run(ask) => {}
            }
            tracing::info!("the tunnel has ended");
        });
        serving
    }

    /// The agent's own accounts, in whose names nobody else acts.
    ///
    /// # Errors
    /// Where that cannot be told: it may be anybody's name that the hub sends.
    async fn own(&self) -> Result<Vec<String>, String> {
        let account = |name: &str| format!("system:serviceaccount:{}:{name}", self.namespace);
        let mut own = vec![account("karmada-agent-sa"), account(ACCOUNT)];
        // Members before Kubernetes 1.28 do not say.
        let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        match self.rest.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &asked).await {
            Ok(review) => {
                match review["status"]["userInfo"]["username"].as_str().filter(|name| !name.is_empty()) {
                    Some(name) => own.push(name.to_owned()),
                    None => return Err("the member does not say who the agent is there".to_owned()),
                }
            }
            Err(error) => {
                match self.dials.member.endpoint().and_then(|endpoint| account_of(&endpoint.credentials)) {
                    Some(name) => own.push(name),
                    None => {
                        return Err(format!(
                            "the member does not say who the agent is there, in whose name nobody else may act: {error}"
                        ));
                    }
                }
            }
        }
        Ok(own)
    }

    /// A connection on which the hub has agreed to be the client.
    async fn dial(&self, number: &str) -> Result<Upgraded, Why> {
        let hub = self.dials.hub.endpoint().ok_or_else(|| Why::last("the way to the hub is closed"))?;
        let ways = match &self.dials.settings.server {
            None => vec![hub],
            Some(server) => server.ways(&hub).map_err(|why| Why::last(format!("--tunnel-server: {why}")))?,
        };
        let is_one = ways.len() == 1;
        first(ways.iter().map(|way| async move {
            let late =
                |_| Err(Why::last(format!("the hub has not let it in within {} s", PATIENCE.as_secs())));
            let dialled = timeout(PATIENCE, self.dial_at(way, number)).await.unwrap_or_else(late);
            dialled.map_err(|why| match is_one {
                true => why,
                false => Why { text: format!("{}: {}", way.server, why.text), ..why },
            })
        }))
        .await
    }

    async fn dial_at(&self, endpoint: &Endpoint, number: &str) -> Result<Upgraded, Why> {
        let is_named = self.dials.settings.server.is_some();
        let budget = &self.dials.budget;
        budget.spend(KNOCKED);
        let connected = direct::connect(endpoint, |_| None).await;
        if is_there(&connected) {
            budget.spend(DIALLED);
        }
        let io = connected.map_err(|why| format!("{why}{}", advice(&why, None, is_named)))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(io))
            .await
            .map_err(|error| error.to_string())?;
        let (bound, _guard) = Bound::new();
        bound.spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "a connection to the hub broke off");
            }
        });
        let path = format!("{}{}", endpoint.server.path().trim_end_matches('/'), extension::TUNNEL_PATH);
        let host = endpoint.server.authority().map(ToString::to_string).unwrap_or_default();
        let mut request = Request::get(path)
            .header(header::HOST, host)
            .header(header::USER_AGENT, self.user_agent)
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, PROTOCOL)
            .header(NUMBER, number)
            .body(Empty::<Bytes>::new())
            .map_err(|error| error.to_string())?;
        if let Some(authorization) = direct::authorization(&endpoint.credentials)? {
            request.headers_mut().insert(header::AUTHORIZATION, authorization);
        }
        let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let code = answer.status();
        if code != StatusCode::SWITCHING_PROTOCOLS {
            let body = Limited::new(answer.into_body(), REFUSAL).collect().await;
            let body = body.map(|body| body.to_bytes()).unwrap_or_default();
            let said: Value = serde_json::from_slice(&body).unwrap_or_default();
            let said = said["message"].as_str().unwrap_or_default();
            let code = code.as_u16();
            let text = format!("the hub answers {code}: {said}{}", advice(said, Some(code), is_named));
            // One that is too busy, or has only begun to lead, may let it in yet.
            return Err(Why { text, is_last: code < 500 && code != 429 });
        }
        if answer.headers().get(header::UPGRADE) != Some(&HeaderValue::from_static(PROTOCOL)) {
            return Err(Why::last("the hub has agreed to another protocol"));
        }
        hyper::upgrade::on(answer).await.map_err(|error| Why::from(error.to_string()))
    }
}

/// Whether somebody has answered at an address, by what has come of dialling it: a handshake that has failed was begun.
fn is_there<T>(connected: &Result<T, String>) -> bool {
    connected.as_ref().err().is_none_or(|why| why.starts_with("TLS with "))
}

/// What its owner may do about an answer of this code, or a connection that there is not. `is_named`: whether the address is that
/// of --tunnel-server.
fn advice(why: &str, code: Option<u16>, is_named: bool) -> &'static str {
    match (is_named, code) {
        (false, Some(403 | 404)) => {
            ". If the hub's API is a stock kube-apiserver, name the hub's own port by --tunnel-server"
        }
        (true, Some(401 | 403 | 404)) => {
            ". --tunnel-server has to name the hub's own port, not the API server's; it lets in agents by the certificate \
             with which they have joined, and by no ServiceAccount's token"
        }
        (true, None) if why.contains("UnknownIssuer") => {
            ". --tunnel-ca has to hold the CA of that hub (pki/ca.crt in its data directory)"
        }
        (true, None) if why.contains("not valid for name") => {
            ". Start that hub with this name as --advertise, or name it otherwise in --tunnel-server"
        }
        _ => "",
    }
}

/// What the first attempt has brought that has brought anything, and otherwise why none has. All are made at once: a machine
/// that is gone says nothing, and the hub that has asked waits for no longer than one attempt takes.
async fn first<T>(attempts: impl Iterator<Item = impl Future<Output = Result<T, Why>>>) -> Result<T, Why> {
    let mut under_way: FuturesUnordered<_> = attempts.collect();
    let (mut all, mut is_last) = (Vec::new(), true);
    while let Some(attempt) = under_way.next().await {
        match attempt {
            Ok(brought) => return Ok(brought),
            Err(one) => {
                is_last &= one.is_last;
                all.push(one.text);
            }
        }
    }
    Err(Why { text: all.join("; "), is_last })
}

/// Attempts until one has brought something, or time is up, or nobody wants it any more: one packet that is lost, or a member that
/// does not answer just then, is not to cost whoever asks all the time that the hub waits.
pub(super) async fn again<T, F: Future<Output = Result<T, Why>>>(
    until: Instant,
    is_wanted: impl Fn() -> bool,
    attempt: impl Fn() -> F,
) -> Result<T, Why> {
    let mut pause = PAUSE;
    loop {
        let why = match attempt().await {
            Err(why) if !why.is_last => why,
            end => return end,
        };
        let next = Instant::now() + pause;
        if next >= until {
            return Err(why);
        }
        tracing::debug!(why = why.text, "a tunnel is dialled again");
        sleep_until(next).await;
        if !is_wanted() {
            return Err(why);
        }
        pause *= 2;
    }
}

/// The ServiceAccount of which a token is, by its own word: the agent has it of its member.
fn account_of(credentials: &Credentials) -> Option<String> {
    let token = match credentials {
        Credentials::Token(token) => token.clone(),
        Credentials::TokenFile(file) => std::fs::read_to_string(file).ok()?,
        Credentials::None | Credentials::Basic(..) => return None,
    };
    let claims = BASE64_URL_SAFE_NO_PAD.decode(token.trim().split('.').nth(1)?).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    let name = claims["sub"].as_str()?;
    name.starts_with("system:serviceaccount:").then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use karmada_apiserver::pki::Pki;
    use karmada_env::Env;
    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn whose_an_agents_token_is() {
        let token = |claims: Value| format!("h.{}.s", BASE64_URL_SAFE_NO_PAD.encode(claims.to_string()));
        let of = |token: String| account_of(&Credentials::Token(token));
        let own = "system:serviceaccount:edge:agent";
        assert_eq!(of(token(json!({"sub": own}))).as_deref(), Some(own));
        for other in [token(json!({"sub": "jane"})), token(json!({})), "opaque".into(), "a.b.c".into()] {
            assert_eq!(of(other), None);
        }
        assert_eq!(account_of(&Credentials::None), None, "a certificate's name is not read");
    }

    #[test]
    fn it_shows_itself_by_https_where_its_owner_says() {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::open_or_create(dir.path(), &[], &Env::system()).unwrap();
        let ca = dir.path().join("believed.crt");
        std::fs::write(&ca, pki.ca_pem()).unwrap();
        let hub = Endpoint::of_server("http://localhost:6443", None, false, None).unwrap();
        let hub = Endpoint { credentials: Credentials::Token("t".to_owned()), ..hub };
        let server = |address: &str, ca: &Path| Server {
            addresses: vec!["https://hub-1.example.com".to_owned(), address.to_owned()],
            ca: Some(ca.to_owned()),
        };
        let ways = server("https://hub-2.example.com:7443", &ca).ways(&hub).unwrap();
        let places: Vec<_> = ways.iter().map(|way| way.server.host().unwrap()).collect();
        assert_eq!(places, ["hub-1.example.com", "hub-2.example.com"]);
        assert!(ways.iter().all(|way| matches!(&way.credentials, Credentials::Token(token) if token == "t")));
        for (address, ca, wrong) in [
            ("http://hub.example.com", &*ca, "by https alone"),
            ("", &*ca, ": "),
            ("https://hub.example.com", Path::new("/nowhere/ca.crt"), "/nowhere/ca.crt"),
        ] {
            let why = server(address, ca).ways(&hub).unwrap_err();
            assert!(why.contains(wrong), "{address}: {why}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_hub_that_never_answers_holds_up_no_other() {
        let after = |(seconds, what): (u64, Result<u8, &'static str>)| async move {
            sleep_until(Instant::now() + Duration::from_secs(seconds)).await;
            what.map_err(|why| Why::from(why.to_owned()))
        };
        let begun = Instant::now();
        let never = [(10, Err("silence")), (0, Err("it stands by")), (1, Ok(7)), (5, Ok(8))];
        let brought = first(never.into_iter().map(after)).await;
        assert_eq!((brought, begun.elapsed().as_secs()), (Ok(7), 1));
        let none = [(10, Err("silence")), (0, Err("it stands by"))];
        let why = first(none.into_iter().map(after)).await;
        assert_eq!(why, Err(Why::from("it stands by; silence".to_owned())));
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_fails_is_made_again_while_the_hub_waits() {
        let begun = Instant::now();
        // What comes of each attempt; when they were made, in seconds.
        let of = async |answers: &[Result<u8, Why>], is_wanted: bool| {
            let (made, begun) = (Mutex::new(Vec::new()), Instant::now());
            let attempt = || {
                let mut made = made.lock();
                made.push(begun.elapsed().as_secs());
                let answer = answers[made.len().min(answers.len()) - 1].clone();
                std::future::ready(answer)
            };
            let answer = again(begun + PATIENCE, || is_wanted, attempt).await;
            (answer.is_ok(), made.into_inner())
        };
        let refused = Err(Why::from("connection refused".to_owned()));
        assert_eq!(of(&[refused.clone(), refused.clone(), Ok(7)], true).await, (true, vec![0, 1, 3]));
        assert_eq!(of(std::slice::from_ref(&refused), true).await, (false, vec![0, 1, 3, 7]));
        assert!(begun.elapsed() < 2 * PATIENCE);
        // Its number counts no longer, or the hub has sent it away.
        assert_eq!(of(&[refused, Ok(7)], false).await, (false, vec![0]));
        assert_eq!(of(&[Err(Why::last("by this number")), Ok(7)], true).await, (false, vec![0]));
    }

    #[test]
    fn whoever_reads_of_a_refusal_reads_what_to_do() {
        let issuer = "TLS with 10.0.0.1:6443: invalid peer certificate: UnknownIssuer";
        let name = "TLS with 10.0.0.1:6443: invalid peer certificate: certificate not valid for name \"hub\"; \
                    certificate is only valid for DnsName(\"localhost\")";
        for (why, code, is_named, says) in [
            ("cannot get path", Some(403), false, "by --tunnel-server"),
            ("", Some(404), false, "by --tunnel-server"),
            ("by this number", Some(409), false, ""),
            ("cannot get path", Some(403), true, "ServiceAccount"),
            ("", Some(404), true, "not the API server's"),
            ("Unauthorized", Some(401), true, "certificate"),
            ("standing by", Some(503), true, ""),
            (issuer, None, true, "--tunnel-ca"),
            (name, None, true, "--advertise"),
            (issuer, None, false, ""),
            ("cannot connect", None, true, ""),
        ] {
            let advised = advice(why, code, is_named);
            assert!(
                advised.contains(says) && advised.is_empty() == says.is_empty(),
                "{why} {code:?}: {advised}"
            );
        }
    }

    #[tokio::test]
    async fn an_address_is_paid_for_by_what_has_come_of_it() {
        let failed = |why: &str| Err::<(), _>(why.to_owned());
        for (connected, is) in [
            (Ok(()), true),
            (failed("TLS with 10.0.0.1:6443: invalid peer certificate: UnknownIssuer"), true),
            (failed("cannot connect: connection refused"), false),
            (failed("no connection to https://hub:6443 within 10 s"), false),
        ] {
            assert_eq!(is_there(&connected), is, "{connected:?}");
        }
        // As they are told where that is decided.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("https://{}", listener.local_addr().unwrap());
        let endpoint = Endpoint::of_server(&address, None, true, None).unwrap();
        let hangs_up = async { drop(listener.accept().await) };
        let (connected, ()) = tokio::join!(direct::connect(&endpoint, |_| None), hangs_up);
        assert!(connected.is_err() && is_there(&connected), "{:?}", connected.err());
        drop(listener);
        let connected = direct::connect(&endpoint, |_| None).await;
        assert!(!is_there(&connected), "{:?}", connected.err());
    }

    #[test]
    fn so_many_hubs_are_dialled_and_no_more() {
        let hub = Endpoint::of_server("http://localhost:6443", None, false, None).unwrap();
        let server = |count: usize| Server {
            addresses: (0..count).map(|n| format!("https://hub-{n}.example.com")).collect(),
            ca: None,
        };
        assert_eq!(server(ADDRESSES).ways(&hub).unwrap().len(), ADDRESSES);
        assert!(server(ADDRESSES + 1).ways(&hub).unwrap_err().contains("at most 16"));
    }

    #[test]
    fn the_agents_flag_is_the_limit_and_the_cluster_may_want_less() {
        for (given, wanted, mode) in [
            ("full", None, "full"),
            ("read-only", None, "read-only"),
            ("full", Some("read-only"), "read-only"),
            ("read-only", Some("full"), "read-only"),
            ("full", Some("off"), "off"),
            ("full", Some("Full"), "off"),
            ("off", Some("full"), "off"),
        ] {
            let mut cluster = json!({"metadata": {}});
            if let Some(wanted) = wanted {
                object::set_annotation(&mut cluster, extension::TUNNEL_WANTED, wanted);
            }
            let is = Call::of(&cluster).mode(given.parse().unwrap());
            assert_eq!(is.to_string(), mode, "{given} {wanted:?}");
        }
    }

    #[test]
    fn a_number_is_short_and_plain() {
        for (text, taken) in
            [("6a1f", true), ("", false), ("a b", false), (&"a".repeat(65), false), ("ä", false)]
        {
            let mut cluster = json!({"metadata": {}});
            object::set_annotation(&mut cluster, extension::TUNNEL_CALL, text);
            assert_eq!(Call::of(&cluster).number.is_some(), taken, "{text}");
        }
    }
}
