//! GET of a document from a service that is no Kubernetes API: bounded in time and size.

use std::{fmt, time::Duration};

use reqwest::{Client, Url, redirect};

use crate::{names::Names, rest::chain, webhook::tls};

/// Names that are looked up at a time, and answers of that which are kept.
const NAMES: (usize, usize) = (1, 4);

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
        let url = Url::parse(url).map_err(|error| format!("it is not a URL: {error}"))?;
        if url.scheme() != "https" {
            return Err("it does not begin with https://".to_owned());
        }
        let fetch = async {
            let mut answer = self.client.get(url).send().await.map_err(|error| chain(&error))?;
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
        let late = || Err(format!("no answer within {}s", self.timeout.as_secs_f64()));
        tokio::time::timeout(self.timeout, fetch).await.unwrap_or_else(|_| late())
    }
}
