//! The member's kubeconfig, exchanged while the agent runs: a credential that was renewed is taken, another cluster is not.

use std::time::Duration;

use karmada_client::link::{Identity, NotTaken};
use karmada_env::Env;
use karmada_member::{
    IDENTITY,
    rights::{Rights, another_member},
};
use karmada_meta::object;
use serde_json::Value;

use super::admission::{File, Followed};

/// How often the file is looked at.
const LOOK: Duration = Duration::from_secs(10);

/// Shows the member what its kubeconfig says, when that changes, and if it is the same member to which it leads.
pub(super) struct Exchange {
    followed: Followed,
    cluster: String,
    identity: Identity,
    rights: Rights,
    /// The version that needs no further look.
    seen: Option<u64>,
    /// The version of which people were told that it cannot be judged yet.
    told: Option<u64>,
}

impl Exchange {
    /// Begins with the version of the file that the member is reached by; without one, with whatever is there.
    pub(super) fn new(
        (followed, seen): (Followed, Option<u64>),
        cluster: String,
        identity: Identity,
        rights: Rights,
    ) -> Self {
        Self { followed, cluster, identity, rights, seen, told: None }
    }

    /// Looks again and again.
    pub(super) async fn run(mut self) {
        loop {
            tokio::time::sleep(self.rights.env().beat(&self.cluster, LOOK)).await;
            self.look().await;
        }
    }

    async fn look(&mut self) {
        let path = self.followed.file.path.display();
        let Ok(Some((found, version))) = self.followed.unless(self.seen, self.rights.env().wall()) else {
            return;
        };
        let known = self.rights.member_id();
        let mut is_another = false;
        let is_meant = |code, body: &[u8]| {
            is_member(known.as_deref(), code, body).map_err(|not| {
                is_another = matches!(not, Not::Another(_));
                not.into_why()
            })
        };
        let why = match self.identity.change_if(found.endpoint, IDENTITY, is_meant).await {
            Ok(()) => {
                tracing::info!(file = %path, "the member's credential was replaced by the one in the file");
                self.seen = Some(version);
                return;
            }
            Err(NotTaken::Refused { code: 401, message }) => {
                tracing::warn!(file = %path, message, "the member does not take the credential in the file");
                self.seen = Some(version);
                return;
            }
            Err(NotTaken::Unmeant(why)) if is_another => {
                tracing::warn!(file = %path, "the file is not followed, and the agent goes on with what it said before: {why}");
                self.seen = Some(version);
                return;
            }
            // Rights that are not there yet, a server that is busy or away: it is tried again.
            Err(why) => why,
        };
        if self.told.replace(version) != Some(version) {
            tracing::warn!(file = %path, %why, "the file is not followed yet, and is tried again");
        }
    }
}

/// The file with the version that it has now, to be taken before the file is read: an agent without a credential for the hub may
/// wait for long before it follows the file, and what was exchanged meanwhile is another version.
pub(super) fn followed(file: File, env: &Env) -> (Followed, Option<u64>) {
    let followed = Followed::new(file);
    let first = followed.unless(None, env.wall());
    let seen = first.ok().flatten().map(|(_, version)| version);
    (followed, seen)
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
    use std::sync::Arc;

    use karmada_client::{
        Kubeconfig,
        kubeconfig::Credentials,
        link::{Manner, renewable_client_for},
    };
    use parking_lot::Mutex;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    /// A member that answers to whoever shows the token "new", with one code after the other, and counts down.
    async fn member(codes: Arc<Mutex<Vec<u16>>>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serve = async move |mut stream: tokio::net::TcpStream, codes: Arc<Mutex<Vec<u16>>>| {
            let (mut request, mut part) = (Vec::new(), [0; 1024]);
            while !request.ends_with(b"\r\n\r\n") {
                match stream.read(&mut part).await {
                    Ok(n) if n > 0 => request.extend_from_slice(&part[..n]),
                    _ => return,
                }
            }
            let request = String::from_utf8_lossy(&request).to_lowercase();
            assert!(request.contains("authorization: bearer new"), "{request}");
            let code = codes.lock().pop().expect("it is not asked again");
            let body = match code {
                200 => r#"{"kind": "Namespace", "metadata": {"name": "kube-system", "uid": "u"}}"#.to_owned(),
                code => format!(r#"{{"kind": "Status", "status": "Failure", "code": {code}}}"#),
            };
            let answer = format!(
                "HTTP/1.1 {code} Why\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&codes)));
            }
        });
        format!("http://{address}")
    }

    #[tokio::test]
    async fn a_credential_is_tried_until_the_member_has_said_whose_it_is() {
        let codes = Arc::new(Mutex::new(vec![200, 200, 404, 403, 503]));
        let server = member(Arc::clone(&codes)).await;
        let (dir, env) = (tempfile::tempdir().unwrap(), Env::system());
        let path = dir.path().join("kubeconfig");
        let has = |token: &str| {
            let text = format!(
                "{{current-context: c, contexts: [{{name: c, context: {{cluster: k, user: u}}}}], \
                 clusters: [{{name: k, cluster: {{server: '{server}'}}}}], users: [{{name: u, user: {{token: {token}}}}}]}}"
            );
            std::fs::write(&path, text).unwrap();
        };
        has("old");
        let endpoint = Kubeconfig::load(&path).unwrap().endpoint(None).unwrap();
        let (_client, _, identity) = renewable_client_for(endpoint, "test/1", env.clone(), Manner::default());
        let shown = || match identity.endpoint().unwrap().credentials {
            Credentials::Token(token) => token,
            other => panic!("{other:?}"),
        };
        let rights = Rights::new(env.clone());
        assert_eq!(rights.meets_member("u"), None);
        let first = || followed(File { path: path.clone(), context: None }, &env);
        let (begun, waits) = (first(), first());
        let mut exchange = Exchange::new(begun, "m1".to_owned(), identity.clone(), rights.clone());
        exchange.look().await;
        assert_eq!((codes.lock().len(), shown().as_str()), (5, "old"), "nothing has changed");
        has("new");
        for left in [4, 3, 2] {
            exchange.look().await;
            assert_eq!((codes.lock().len(), shown().as_str()), (left, "old"));
        }
        exchange.look().await;
        assert_eq!((codes.lock().len(), shown().as_str()), (1, "new"));
        exchange.look().await;
        assert_eq!(exchange.seen, exchange.told, "it is what was told of");
        // One that begins to follow the file late takes what it has not read.
        Exchange::new(waits, "m1".to_owned(), identity.clone(), rights).look().await;
        assert_eq!(codes.lock().len(), 0);
    }

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
