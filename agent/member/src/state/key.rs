//! Whose member it is, and the key of what lies in a folder.

use std::path::Path;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use karmada_client::{Error, Rest};
use karmada_meta::object;
use serde_json::json;

use super::{
    Place,
    seal::{self, Seal},
};
use crate::{IDENTITY, namespace::make_namespace};

/// The Secret of the member with the key of what lies in a folder.
pub(super) fn key_name(cluster: &str) -> String {
    format!("karmada-agent-state-key-{cluster}")
}

/// Why there is no state to begin with.
#[derive(Debug)]
pub(super) enum Unready {
    /// The member may answer the next time.
    Away(String),
    Refused(String),
}

impl From<Error> for Unready {
    fn from(error: Error) -> Self {
        if error.is_unreachable() || error.code().is_some_and(|code| code == 429 || code >= 500) {
            return Self::Away(error.to_string());
        }
        Self::Refused(error.to_string())
    }
}

/// Where a state is kept, and whose.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site<'a> {
    pub(super) place: &'a Place,
    pub(super) member: &'a Rest,
    pub(super) cluster: &'a str,
    /// Where Secrets are on the member.
    pub(super) namespace: &'a str,
}

impl Site<'_> {
    /// The member's id, and the key where one is needed.
    pub(super) async fn identify(self) -> Result<(String, Option<Seal>), Unready> {
        let system = self.member.get(IDENTITY).await?;
        let seal = match self.place {
            Place::Folder(_, Some(file)) => Some(key_file(file).map_err(Unready::Refused)?),
            Place::Folder(_, None) => Some(self.key().await?),
            _ => None,
        };
        Ok((object::uid(&system).to_owned(), seal))
    }

    /// The key in the member's Secret, made if there is none.
    async fn key(self) -> Result<Seal, Unready> {
        let Self { member, namespace, cluster, .. } = self;
        let name = key_name(cluster);
        let collection = format!("/api/v1/namespaces/{namespace}/secrets");
        let secret = match member.get(&format!("{collection}/{name}")).await {
            Ok(secret) => secret,
            Err(error) if error.is_not_found() => {
                let key = Seal::fresh().map_err(Unready::Refused)?;
                let secret = json!({
                    "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
                    "metadata": {"name": name, "namespace": namespace, "labels": {"app": "karmada-agent"}},
                    "data": {"key": STANDARD.encode(key)},
                });
                match member.post(&collection, &secret).await {
                    Err(error) if error.is_absence_of(namespace) => {
                        make_namespace(member, namespace).await?;
                        member.post(&collection, &secret).await?
                    }
                    // Somebody was faster: theirs counts.
                    Err(error) if error.is_already_exists() => {
                        member.get(&format!("{collection}/{name}")).await?
                    }
                    answer => answer?,
                }
            }
            Err(error) => return Err(error.into()),
        };
        let key = STANDARD.decode(secret["data"]["key"].as_str().unwrap_or_default()).ok();
        key.and_then(|key| Seal::new(&key)).ok_or_else(|| {
            Unready::Refused(format!(
                "data.key of the Secret {namespace}/{name} on the member is no key of {} bytes: delete the Secret, and the \
                 state begins anew",
                seal::KEY
            ))
        })
    }
}

/// A key in a file: 32 bytes, or these in base64.
fn key_file(path: &Path) -> Result<Seal, String> {
    let wrong = |why: &str| format!("--state-key-file: {}: {why}", path.display());
    let bytes = std::fs::read(path).map_err(|error| wrong(&error.to_string()))?;
    let text = || std::str::from_utf8(&bytes).ok().and_then(|text| STANDARD.decode(text.trim()).ok());
    let decoded = if bytes.len() == seal::KEY { Some(bytes.clone()) } else { text() };
    decoded
        .and_then(|key| Seal::new(&key))
        .ok_or_else(|| wrong("it must hold 32 bytes, or these in base64: head -c 32 /dev/urandom | base64"))
}
