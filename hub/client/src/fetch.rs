//! Documents of a service that is no Kubernetes API: asked for, or answered to a form; bounded in time and size.

pub mod range;

use std::{fmt, time::Duration};

use reqwest::{
    Client, RequestBuilder, Response, Url,
    header::{ACCEPT, ACCEPT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderName, IF_RANGE, RANGE},
    redirect,
};

use self::range::{Answer, Begins, Gives, Have, judge};

use crate::{names::Names, rest::chain, webhook::tls};

/// Names that are looked up at a time, and answers of that which are kept.
const NAMES: (usize, usize) = (1, 4);

/// One that comes piece by piece is given up when none has come for so long.
const IDLE: Duration = Duration::from_secs(60);

/// Fetches documents over HTTPS. Redirects are not followed.
pub struct Fetcher {
    client: Client,
    timeout: Duration,
    /// The largest answer that is read.
    limit: usize,
}

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetcher").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Fetcher {
    /// By these authorities as PEM, the system's if there are none.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn new(authorities: Option<&[u8]>, timeout: Duration, limit: usize) -> Result<Self, String> {
        let client = Client::builder()
            .tls_backend_preconfigured(tls(authorities)?)
            .dns_resolver(Names::system(NAMES.0, NAMES.1))
            .redirect(redirect::Policy::none())
            .build()
            .map_err(|error| chain(&error))?;
        Ok(Self { client, timeout, limit })
    }

    /// The document at a URL.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn get(&self, url: &str) -> Result<Vec<u8>, String> {
        self.answer(self.client.get(address(url)?)).await
    }

    /// The document at a URL, piece by piece, which may be far larger than what is to be held of it. Of what is there already only the
    /// rest is asked for. `begins` hears first which bytes come: where they are not those that are missing, what was there is none of
    /// them. Nothing for a minute ends it.
    ///
    /// # Errors
    /// Why there is none, or no more of it, or what `begins` says, or `each` of a piece.
    pub async fn each<B, E>(
        &self,
        url: &str,
        have: Option<&Have>,
        begins: impl FnOnce(Begins) -> B,
        mut each: impl FnMut(Vec<u8>) -> E,
    ) -> Result<(), String>
    where
        B: Future<Output = Result<(), String>>,
        E: Future<Output = Result<(), String>>,
    {
        let url = address(url)?;
        let fetch = async {
            let (mut answer, mut gives) = self.ask(&url, have).await?;
            if let Gives::Other(why) = gives {
                tracing::warn!(%url, %why, "a server does not give the rest of a document: it is fetched anew");
                (answer, gives) = self.ask(&url, None).await?;
            }
            let (now, whole) = match gives {
                Gives::Bytes { begins, whole } => (begins, whole),
                Gives::Nothing => return Ok(()),
                Gives::Other(why) | Gives::Refused(why) => return Err(why),
            };
            let (mut at, left) = (now.from, now.left);
            // A server that says how much it gives gives no more than that.
            let end = left.map_or(self.limit as u64, |left| at.saturating_add(left));
            begins(now).await?;
            loop {
                let chunk = tokio::time::timeout(IDLE, answer.chunk()).await.map_err(idle)?;
                let Some(chunk) = chunk.map_err(|error| chain(&error))? else { break };
                at = at.saturating_add(chunk.len() as u64);
                if at > end {
                    return Err(match left {
                        Some(left) => format!("it gives more than the {left} bytes that it said"),
                        None => format!("its answer is larger than {} bytes", self.limit),
                    });
                }
                each(chunk.to_vec()).await?;
            }
            match whole {
                Some(whole) if at < whole => Err(format!("it gave {at} bytes of {whole}")),
                _ => Ok(()),
            }
        };
        self.in_time(fetch).await
    }

    async fn ask(&self, url: &Url, have: Option<&Have>) -> Result<(Response, Gives), String> {
        // Bytes are counted as they are, and not as somebody on the way has packed them.
        let mut request = self.client.get(url.clone()).header(ACCEPT_ENCODING, "identity");
        if let Some(have) = have {
            request = request.header(RANGE, format!("bytes={}-", have.bytes));
            request = request.header(IF_RANGE, have.tag.as_str());
        }
        let sent = tokio::time::timeout(IDLE, request.send()).await.map_err(idle)?;
        let answer = sent.map_err(|error| chain(&error))?;
        let header = |name: HeaderName| answer.headers().get(name).and_then(|value| value.to_str().ok());
        let said = Answer {
            status: answer.status().as_u16(),
            length: answer.content_length(),
            range: header(CONTENT_RANGE),
            tag: header(ETAG),
        };
        let gives = judge(have, said, self.limit as u64);
        Ok((answer, gives))
    }

    /// What is answered to a form at a URL, which is written already; with a name and password if there are such.
    ///
    /// # Errors
    /// Why there is nothing.
    pub async fn post_form(
        &self,
        url: &str,
        form: String,
        as_whom: Option<(&str, &str)>,
    ) -> Result<Vec<u8>, String> {
        let request = self.client.post(address(url)?).header(ACCEPT, "application/json");
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(form);
        let request = match as_whom {
            Some((name, password)) => request.basic_auth(name, Some(password)),
            None => request,
        };
        self.answer(request).await
    }

    async fn answer(&self, request: RequestBuilder) -> Result<Vec<u8>, String> {
        let fetch = async {
            let mut answer = request.send().await.map_err(|error| chain(&error))?;
            if !answer.status().is_success() {
                return Err(format!("it answered {}", answer.status()));
            }
            let mut bytes = Vec::new();
            while let Some(chunk) = answer.chunk().await.map_err(|error| chain(&error))? {
                bytes.extend_from_slice(&chunk);
                if bytes.len() > self.limit {
                    return Err(format!("its answer is larger than {} bytes", self.limit));
                }
            }
            Ok(bytes)
        };
        self.in_time(fetch).await
    }

    async fn in_time<T>(&self, fetch: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        let late = || Err(format!("no answer within {}s", self.timeout.as_secs_f64()));
        tokio::time::timeout(self.timeout, fetch).await.unwrap_or_else(|_| late())
    }
}

fn idle(_: tokio::time::error::Elapsed) -> String {
    format!("nothing came for {}s", IDLE.as_secs())
}

fn address(url: &str) -> Result<Url, String> {
    let url = Url::parse(url).map_err(|error| format!("it is not a URL: {error}"))?;
    match url.scheme() {
        "https" => Ok(url),
        _ => Err("it does not begin with https://".to_owned()),
    }
}
