//! The way from an invitation to a certificate, over one connection.

use std::{sync::Arc, time::Duration};

use http::Method;
use karmada_client::{
    Endpoint, LinkConfig,
    kubeconfig::{Access, Credentials},
    link::{Counters, contact::Contact, seconds_ahead},
    tls::{Unproved, unproved},
};
use karmada_env::Env;
use serde_json::Value;

use super::{
    Invitation, JoinError, discovery,
    request::{self, Key, Outcome},
};
use crate::hub::clock;

/// How long a request may be undecided before that is said: a hub decides by itself within milliseconds, or waits for people.
const PROMPT: Duration = Duration::from_secs(4);

/// The first pause before it is looked whether a certificate is there, and the longest.
const LOOK: (Duration, Duration) = (Duration::from_millis(25), Duration::from_secs(1));

/// What somebody has who has arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    /// Where the hub is and whom to believe there.
    pub(crate) access: Access,
    /// The certificate, as PEM.
    pub(crate) certificate: String,
}

/// One cluster on its way.
#[derive(Debug)]
pub(crate) struct Journey {
    invitation: Invitation,
    env: Env,
    user_agent: &'static str,
    /// The name of the request that was made and not decided yet.
    asked: Option<String>,
    /// A request of the name that follows from the key came to nothing, or is not ours to read: another name then.
    is_taken: bool,
    /// The end of the way, and for which key.
    arrived: Option<(Arrived, String)>,
    counters: Arc<Counters>,
    /// Which of the hub's addresses has its turn.
    config: Option<LinkConfig>,
}

impl Journey {
    pub(crate) fn new(invitation: Invitation, user_agent: &'static str, env: Env) -> Self {
        Self {
            invitation,
            env,
            user_agent,
            asked: None,
            is_taken: false,
            arrived: None,
            counters: Arc::default(),
            config: None,
        }
    }

    /// One attempt. What it has asked for is looked for again by the next one, and what it has got is answered again:
    /// whoever could not keep it.
    pub(crate) async fn attempt(&mut self, key: &Key) -> Result<Arrived, JoinError> {
        if let Some((arrived, _)) = self.arrived.as_ref().filter(|(_, of)| *of == key.short()) {
            return Ok(arrived.clone());
        }
        let arrived = self.go(key).await?;
        self.arrived = Some((arrived.clone(), key.short()));
        Ok(arrived)
    }

    async fn go(&mut self, key: &Key) -> Result<Arrived, JoinError> {
        let hub = self.invitation.hub.clone();
        let unreachable = |cause: String| JoinError::Unreachable { hub: hub.clone(), cause };
        let server: http::Uri = format!("https://{hub}")
            .parse()
            .map_err(|error: http::uri::InvalidUri| unreachable(error.to_string()))?;
        let (tls, shown) = unproved(&server).map_err(unreachable)?;
        let endpoint = Endpoint {
            server: server.clone(),
            tls: Some(tls.clone()),
            credentials: Credentials::None,
            namespace: "default".to_owned(),
            proxy: self.invitation.proxy.clone(),
            others: self.invitation.others.clone(),
        };
        let config = self.config.get_or_insert_with(|| LinkConfig::new(endpoint, self.user_agent));
        config.tls = Some(tls);
        let opened = Contact::open(config, Arc::clone(&self.counters), self.env.clone()).await;
        let mut contact = opened.map_err(unreachable)?;
        let begun = self.env.now();
        let answered = contact.ask(Method::GET, discovery::PATH, None, None).await;
        let answered = answered.map_err(|error| unreachable(error.to_string()))?;
        if !answered.code.is_success() {
            return Err(JoinError::NoHub { hub, code: answered.code.as_u16() });
        }
        let found = discovery::judge(&answered.body, &self.invitation)?;

        // Is the peer of this connection the hub? Under the name by which it was reached, or its own.
        let now = self.env.wall();
        let proof = |name: Option<&str>, now| shown.is_certified_by(found.pinned.as_bytes(), name, now);
        let server_name = match (proof(None, now), found.host.as_deref()) {
            (Err(Unproved::OtherName), Some(own)) => proof(Some(own), now).map(|()| Some(own.to_owned())),
            (proved, _) => proved.map(|()| None),
        };
        let server_name = server_name.map_err(|why| match why {
            Unproved::OtherName => {
                let names =
                    [Some(hub.as_str()), found.host.as_deref()].into_iter().flatten().collect::<Vec<_>>();
                JoinError::OtherName { hub: hub.clone(), names: names.join(" and ") }
            }
            Unproved::Other(why) => JoinError::NotCertified { hub: hub.clone(), why },
            Unproved::NotNow { ended, by } => {
                // If its certificate holds at the time that it tells, its time is the hub's.
                let date = answered.date.filter(|date| {
                    let names = [None, found.host.as_deref()];
                    names.into_iter().any(|name| proof(name, *date).is_ok())
                });
                let took = self.env.now().saturating_sub(begun);
                let ahead = date.map(|date| seconds_ahead(date, now, took));
                JoinError::Clock(clock::certificate_not_now(&hub, ended, by, ahead))
            }
        })?;

        let access = Access {
            server: server.to_string().trim_end_matches('/').to_owned(),
            ca: Some(found.authorities),
            server_name,
            // What the environment says today, and perhaps with a password, is not for keeping.
            proxy: None,
            insecure: false,
        };
        let certificate = self.certificate(&mut contact, key).await?;
        Ok(Arrived { access, certificate })
    }

    /// Asks for a certificate and waits for it.
    async fn certificate(&mut self, contact: &mut Contact, key: &Key) -> Result<String, JoinError> {
        let cluster = self.invitation.cluster.clone();
        let begun = self.env.now();
        let mut pause = LOOK.0;
        // What became of a request of before may have had its reason in another token.
        let mut is_new = false;
        loop {
            let (name, is_made) = match self.asked.clone() {
                Some(name) => (name, true),
                // By the key, so that whoever has forgotten it asks for the same one again.
                None if !self.is_taken => (format!("{cluster}-{}", key.short()), false),
                None => (format!("{cluster}-{}", self.env.name_suffix(5)), false),
            };
            let (method, path, body) = if is_made {
                (Method::GET, format!("{}/{name}", request::PATH), None)
            } else {
                let body = request::body(&name, &cluster, key).map_err(JoinError::Kept)?;
                (Method::POST, request::PATH.to_owned(), Some(body.to_string().into_bytes()))
            };
            // Whether it was made is not known until there is an answer.
            self.asked = Some(name.clone());
            match self.put_to(contact, key, (method, path, body)).await? {
                None => {}
                Some(Outcome::Issued(certificate)) => return Ok(certificate),
                Some(Outcome::Refused(why)) => {
                    (self.asked, self.is_taken) = (None, true);
                    if is_new || !is_made {
                        return Err(JoinError::Denied { cluster, why });
                    }
                    continue;
                }
                Some(Outcome::Pending { approved }) => {
                    is_new |= !is_made;
                    if self.env.now().saturating_sub(begun) >= PROMPT {
                        return Err(match approved {
                            true => JoinError::NotIssued { name },
                            false => JoinError::Waits { name },
                        });
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LOOK.1);
        }
    }

    /// What has become of the request; nothing if it is to be asked for in another way.
    async fn put_to(
        &mut self,
        contact: &mut Contact,
        key: &Key,
        (method, path, body): (Method, String, Option<Vec<u8>>),
    ) -> Result<Option<Outcome>, JoinError> {
        let Invitation { hub, token, cluster, .. } = &self.invitation;
        let is_made = method == Method::GET;
        let answered = contact.ask(method, &path, Some(&token.whole()), body).await;
        let answered = answered
            .map_err(|error| JoinError::Unreachable { hub: hub.clone(), cause: error.to_string() })?;
        let text: Value = serde_json::from_slice(&answered.body).unwrap_or_default();
        if answered.code.is_success() {
            return Ok(Some(request::outcome(&text, key)));
        }
        match (answered.code.as_u16(), is_made) {
            // It was made before.
            (409, false) if text["reason"] == "AlreadyExists" => return Ok(None),
            // It was never made, or is gone.
            (404, true) => {
                self.asked = None;
                return Ok(None);
            }
            // Somebody else's has that name.
            (403, true) if !self.is_taken => {
                (self.asked, self.is_taken) = (None, true);
                return Ok(None);
            }
            _ => {}
        }
        Err(match answered.code.as_u16() {
            401 => JoinError::TokenRefused { id: token.id.clone(), cluster: cluster.clone() },
            code => {
                let message = text["message"].as_str().unwrap_or_default().chars().take(500).collect();
                JoinError::Answered { code, message }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::{
        super::{KeyDigest, Token},
        *,
    };

    /// Whoever is on the way may answer for the hub, and choose an older version than was offered.
    #[tokio::test]
    async fn who_answers_by_an_old_tls_is_told_nothing() {
        for minor in [1_u8, 2] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let hub = listener.local_addr().unwrap().to_string();
            let answering = tokio::spawn(async move {
                let (mut io, _) = listener.accept().await.unwrap();
                let mut heard = vec![0; 5];
                io.read_exact(&mut heard).await.unwrap();
                let mut rest = vec![0; usize::from(heard[3]) << 8 | usize::from(heard[4])];
                io.read_exact(&mut rest).await.unwrap();
                // ServerHello: version, random, no session, ECDHE with RSA and AES-128-CBC, no compression.
                let mut hello = vec![2, 0, 0, 38, 3, minor];
                hello.extend([7; 32]);
                hello.extend([0, 0xc0, 0x13, 0]);
                let mut record = vec![22, 3, minor, 0, u8::try_from(hello.len()).unwrap()];
                record.extend(hello);
                io.write_all(&record).await.unwrap();
                let mut more = Vec::new();
                io.read_to_end(&mut more).await.unwrap();
                (heard[0], more)
            });
            let token = Token::parse("abcdef.0123456789abcdef").unwrap();
            let authorities = vec![KeyDigest::of(b"")];
            let invitation = Invitation {
                hub: hub.clone(),
                token,
                authorities,
                cluster: "m1".to_owned(),
                proxy: None,
                others: Vec::new(),
            };
            let mut journey = Journey::new(invitation, "test", Env::system());
            let why = journey.attempt(&Key::new().unwrap()).await.unwrap_err();
            let said = why.to_string();
            assert!(matches!(why, JoinError::Unreachable { .. }) && said.contains(&hub), "{said}");
            assert!(said.contains("incompatible"), "TLS 1.{}: {said}", minor - 1);
            let (first, more) = answering.await.unwrap();
            // A handshake was begun, and an alert is all that came after.
            assert_eq!((first, more.first(), more.len()), (22, Some(&21), 7), "{more:?}");
        }
    }
}
