//! The member's kubeconfig, exchanged while the agent runs: a credential that was renewed is taken, another cluster is not.

use std::time::Duration;

use karmada_client::link::{Identity, NotTaken};
use karmada_member::{
    IDENTITY,
    rights::{Rights, another_member},
};
use karmada_meta::object;
use serde_json::Value;

use super::admission::Followed;

/// How often the file is looked at.
const LOOK: Duration = Duration::from_secs(10);

/// Shows the member what its kubeconfig says, when that changes, and if it is the same member to which it leads.
pub(super) async fn follow(followed: Followed, cluster: String, identity: Identity, rights: Rights) {
    let env = rights.env().clone();
    let first = followed.unless(None, env.wall());
    let mut seen = first.ok().flatten().map(|(_, version)| version);
    // The version of which people were told that it cannot be judged yet.
    let mut told = None;
    let path = followed.file.path.display();
    loop {
        tokio::time::sleep(env.beat(&cluster, LOOK)).await;
        let Ok(Some((found, version))) = followed.unless(seen, env.wall()) else { continue };
        let known = rights.member_id();
        let mut is_another = false;
        let is_meant = |code, body: &[u8]| {
            is_member(known.as_deref(), code, body).map_err(|not| {
                is_another = matches!(not, Not::Another(_));
                not.into_why()
            })
        };
        let why = match identity.change_if(found.endpoint, IDENTITY, is_meant).await {
            Ok(()) => {
                tracing::info!(file = %path, "the member's credential was replaced by the one in the file");
                seen = Some(version);
                continue;
            }
            Err(NotTaken::Refused { code: 401, message }) => {
                tracing::warn!(file = %path, message, "the member does not take the credential in the file");
                seen = Some(version);
                continue;
            }
            Err(NotTaken::Unmeant(why)) if is_another => {
                tracing::warn!(file = %path, "the file is not followed, and the agent goes on with what it said before: {why}");
                seen = Some(version);
                continue;
            }
            // Rights that are not there yet, a server that is busy or away: it is tried again.
            Err(why) => why,
        };
        if told.replace(version) != Some(version) {
            tracing::warn!(file = %path, %why, "the file is not followed yet, and is tried again");
        }
    }
}

/// Why an answer is not taken for the member's.
#[derive(Debug)]
enum Not {
    /// It does not say whose it is; another may.
    Told(String),
    /// It is another member's.
    Another(String),
}

impl Not {
    fn into_why(self) -> String {
        match self {
            Self::Told(why) | Self::Another(why) => why,
        }
    }
}

/// Whether a server's answer about its Namespace kube-system is that of the member that is known, if one is.
fn is_member(known: Option<&str>, code: u16, body: &[u8]) -> Result<(), Not> {
    let Some(known) = known else { return Ok(()) };
    let unknown = "by whose uid the member is known to be the one that it was";
    if code != 200 {
        return Err(Not::Told(format!(
            "its user may not get the Namespace kube-system, {unknown}: the answer is {code}"
        )));
    }
    let system: Value = serde_json::from_slice(body).unwrap_or_default();
    match object::uid(&system) {
        "" => Err(Not::Told(format!("the answer has no Namespace kube-system, {unknown}"))),
        uid if uid == known => Ok(()),
        uid => Err(Not::Another(another_member(known, uid))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_followed_to_the_same_member_alone() {
        let system = br#"{"kind": "Namespace", "metadata": {"name": "kube-system", "uid": "u"}}"#;
        for (known, code, body, says) in [
            (Some("u"), 200, system.as_slice(), None),
            // Which member it is has not been seen yet: whoever registers looks.
            (None, 200, system.as_slice(), None),
            (None, 403, b"{}".as_slice(), None),
            (Some("v"), 200, system.as_slice(), Some("is u, and the member's is v")),
            (Some("u"), 403, b"{}".as_slice(), Some("the answer is 403")),
            (Some("u"), 200, b"<html>".as_slice(), Some("no Namespace")),
        ] {
            let got = is_member(known, code, body).err();
            // Only of another member nothing more is to be expected.
            let is_another = matches!(got, Some(Not::Another(_)));
            assert_eq!(is_another, says.is_some_and(|says| says.contains("the member's is")), "{code}");
            let got = got.map(Not::into_why);
            let fits = match (&got, says) {
                (Some(got), Some(says)) => got.contains(says),
                (got, says) => got.is_none() && says.is_none(),
            };
            assert!(fits, "{known:?} {code}: {got:?}");
        }
    }
}
