//! The member's kubeconfig, exchanged while the agent runs: a credential that was renewed is taken, another cluster is not.

use std::time::Duration;

use karmada_client::link::{Identity, NotTaken};
use karmada_member::{
    IDENTITY,
    rights::{Rights, another_member},
};
use karmada_meta::object;
use serde_json::Value;

use super::admission::File;

/// How often the file is looked at.
const LOOK: Duration = Duration::from_secs(10);

/// Shows the member what its kubeconfig says, when that changes, and if it is the same member to which it leads.
pub(super) async fn follow(file: File, identity: Identity, rights: Rights) {
    let mut seen = file.version().ok().map(|(_, version)| version);
    let path = file.path.display();
    loop {
        tokio::time::sleep(LOOK).await;
        let Ok((found, version)) = file.version() else { continue };
        if seen == Some(version) {
            continue;
        }
        let known = rights.member_id();
        let is_meant = |code, body: &[u8]| is_member(known.as_deref(), code, body);
        match identity.change_if(found.endpoint, IDENTITY, is_meant).await {
            Ok(()) => {
                tracing::info!(file = %path, "the member's credential was replaced by the one in the file")
            }
            Err(NotTaken::Refused { code, message }) => {
                tracing::warn!(file = %path, code, message, "the member does not take the credential in the file");
            }
            Err(NotTaken::Unmeant(why)) => {
                tracing::warn!(file = %path, "the file is not followed, and the agent goes on with what it said before: {why}");
            }
            // It is tried again.
            Err(_) => continue,
        }
        seen = Some(version);
    }
}

/// Whether a server's answer about its Namespace kube-system is that of the member that is known, if one is.
fn is_member(known: Option<&str>, code: u16, body: &[u8]) -> Result<(), String> {
    let Some(known) = known else { return Ok(()) };
    let unknown = "by whose uid the member is known to be the one that it was";
    if code != 200 {
        return Err(format!(
            "its user may not get the Namespace kube-system, {unknown}: the answer is {code}"
        ));
    }
    let system: Value = serde_json::from_slice(body).unwrap_or_default();
    match object::uid(&system) {
        "" => Err(format!("the answer has no Namespace kube-system, {unknown}")),
        uid if uid == known => Ok(()),
        uid => Err(another_member(known, uid)),
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
            let fits = match (&got, says) {
                (Some(got), Some(says)) => got.contains(says),
                (got, says) => got.is_none() && says.is_none(),
            };
            assert!(fits, "{known:?} {code}: {got:?}");
        }
    }
}
