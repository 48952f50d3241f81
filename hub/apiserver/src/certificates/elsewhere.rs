//! What is approved by a hub that runs on another API server: by the same rules as on its own ([`super`]), as far as they can
//! hold there. Pure.
//!
//! kube-apiserver writes into a request who made it, as this server does, and nobody can change that afterwards. Its
//! kube-controller-manager signs whatever is approved, for the subject as it stands in the request. So nothing can be added to
//! such a certificate, and it ends by its time alone. Therefore
//!
//! - a token has to say which cluster it is for. One that does not lets nobody in, not even the first who asks: a certificate
//!   that the wrong one got could not be taken back;
//! - the user by whom `karmadactl register` makes roles gets nothing. What its certificate is good for, nobody could bound;
//! - an agent renews while there is a Cluster of its name that stays. What it may do goes with that. Where there was another
//!   Cluster of that name before, or its credentials were revoked, it renews only by a certificate that was given since:
//!   kube-apiserver says by which one it was asked, from 1.32 on.
//!
//! The first two wait for somebody with the right to approve; so do renewals where it is not said what they are asked by, or
//! where nobody has noted when that was given. What tokens of other systems ask for is those systems' business.

use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use karmada_meta::{object, time::Time};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{
    policy::{self, Known, Requester, Verdict, Whose},
    requested::{CLIENT_SIGNER, HexOf, Requested, add, has, is_open},
};
use crate::authn::{
    CREDENTIAL_ID,
    bootstrap::{self, USED_BY, USES_LEFT},
    epochs::Grant,
};

/// What is said before the digest of a certificate by which somebody has authenticated.
const BY_CERTIFICATE: &str = "X509SHA256=";

/// A request that a machine has made for a certificate by which clients show who they are, and that nobody has decided about.
#[derive(Debug)]
pub struct Asked<'a> {
    name: &'a str,
    spec: &'a Value,
    requester: Requester,
    requested: Result<Requested, String>,
}

/// What is known beside the request.
#[derive(Clone, Copy, Debug)]
pub struct Beside<'a> {
    /// The Secret of the token by which it was asked ([`Asked::token`]), if that is there.
    pub token: Option<&'a Value>,
    /// The Cluster for whose agent it is ([`Asked::cluster`]), if there is one.
    pub cluster: Option<&'a Value>,
    /// What certificates were given by its name, if those of before some time are not to count; nothing if all do.
    pub given: Option<&'a Given>,
    /// Now.
    pub now: SystemTime,
}

/// The digests of the certificates that were given by the name of a cluster ([`issued`]), where another Cluster of that name
/// went, or its credentials were revoked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// Those of before that.
    pub before: BTreeSet<String>,
    /// Those of after it.
    pub since: BTreeSet<String>,
}

/// What is to be done with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is approved, once the token's Secret is as it says here.
    Approve {
        /// For whose agent the certificate is.
        cluster: String,
        /// Why.
        why: String,
        /// The Secret of the token from now on, if a use of it is counted.
        token: Option<Value>,
        /// Whom that lets in; nothing for an agent that renews.
        lets_in: Option<LetIn>,
    },
    /// It is denied: a word for why, and a sentence.
    Deny(&'static str, String),
    /// Somebody else has to decide.
    Leave(String),
    /// It is no business of the hub.
    Foreign,
}

/// Somebody whom a token lets in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetIn {
    /// The name of the token's Secret, in [`bootstrap::NAMESPACE`].
    pub token: String,
    /// Its uid.
    pub by: String,
    /// A digest of the key.
    pub to: String,
    /// Whether several keys may be certified by that token.
    pub several: bool,
}

impl LetIn {
    /// The same, for whoever judges what was given before.
    pub fn grant(&self) -> Grant<'_> {
        Grant { by: &self.by, to: Some(&self.to), several: self.several }
    }
}

/// Whether the token by which somebody was let in still holds.
pub fn holds(token: &Value, let_in: &LetIn, now: SystemTime) -> bool {
    let id = object::name(token).strip_prefix(bootstrap::PREFIX).unwrap_or_default();
    let spent = object::annotation(token, USES_LEFT) == Some("0");
    object::uid(token) == let_in.by
        && bootstrap::judge(id, token, now).is_ok()
        && (!spent || object::annotation(token, USED_BY).is_some())
}

impl<'a> Asked<'a> {
    /// Reads a request; nothing if there is nothing to decide, or it is no machine's.
    pub fn of(request: &'a Value) -> Option<Self> {
        if object::deletion_timestamp(request).is_some() || !is_open(request) || has(request, "Approved") {
            return None;
        }
        let spec = &request["spec"];
        let requester = Requester::of(spec);
        match &requester {
            Requester::Other => return None,
            // It becomes a part of a path.
            Requester::Token(id) if !bootstrap::is_id(id) => return None,
            Requester::Token(_) | Requester::Agent { .. } => {}
        }
        let requested = Requested::read(spec["request"].as_str().unwrap_or_default());
        Some(Self { name: object::name(request), spec, requester, requested })
    }

    /// The name of the Secret of the token by which it was asked, in [`bootstrap::NAMESPACE`].
    pub fn token(&self) -> Option<String> {
        match &self.requester {
            Requester::Token(id) => Some(format!("{}{id}", bootstrap::PREFIX)),
            Requester::Agent { .. } | Requester::Other => None,
        }
    }

    /// The cluster for whose agent the certificate is, or would be.
    pub fn cluster(&self) -> Option<&str> {
        self.whose().map(Whose::cluster)
    }

    fn whose(&self) -> Option<Whose<'_>> {
        policy::whose(self.name, self.spec, self.requested.as_ref().ok()?).ok()
    }

    /// What follows if this was not asked by one of the certificates that were given.
    fn by_another(&self, cluster: &str, given: &Given) -> Option<Answer> {
        let by = self.spec["extra"][CREDENTIAL_ID][0].as_str().and_then(|id| id.strip_prefix(BY_CERTIFICATE));
        match by {
            Some(digest) if given.since.contains(digest) => None,
            Some(digest) if given.before.contains(digest) => Some(Answer::Deny(
                "CredentialEnded",
                format!(
                    "the certificate by which this was asked was revoked, or given to the agent of another cluster \
                     {cluster:?}, which has gone, or to somebody who did not register before another one joined by that name; \
                     its agent has to join by a token. If others may have joined: karmada-hub cluster revoke {cluster}, first"
                ),
            )),
            // The hub may not have seen it signed. To refuse a good agent would cut it off.
            Some(_) => Some(Answer::Leave(format!(
                "certificates of cluster {cluster:?} were ended before, and the hub has not noted when the one by which this \
                 was asked was given: it may be one of those"
            ))),
            None => Some(Answer::Leave(format!(
                "certificates of cluster {cluster:?} were ended before, and the API server does not say by which one this was \
                 asked: it may be one of those"
            ))),
        }
    }

    /// Decides.
    pub fn decide(&self, beside: Beside<'_>) -> Answer {
        let whose = self.whose();
        // Other systems let their own machines in by tokens, too. One that is not there any more may have been theirs.
        if matches!(self.requester, Requester::Token(_))
            && whose.is_none()
            && beside.token.and_then(bootstrap::cluster).is_none()
        {
            return Answer::Foreign;
        }
        if let (Requester::Token(_), Some(Whose::Generator(cluster))) = (&self.requester, whose) {
            return Answer::Leave(format!(
                "it is for the user that makes the roles of cluster {cluster:?}, and on this API server nobody keeps it from \
                 making others: the hub makes them when its agent asks"
            ));
        }
        if let (Requester::Token(id), Some(token)) = (&self.requester, beside.token)
            && whose.is_some()
            && bootstrap::judge(id, token, beside.now).is_ok()
            && bootstrap::cluster(token).is_none()
        {
            return Answer::Leave(format!(
                "the bootstrap token {id} is for no cluster, and on this API server a certificate cannot be taken back from \
                 whoever asks first; one for a cluster: karmada-hub token create --cluster. Who approves it makes the agent's \
                 roles, too: karmada-hub agent-rbac"
            ));
        }
        let known = Known {
            name: self.name,
            token: beside.token,
            // Neither certificates nor tokens bear one here.
            epoch: 0,
            registered: beside
                .token
                .zip(beside.cluster)
                .is_some_and(|(token, there)| policy::has_registered(there) && is_older(token, there)),
            leaving: beside.cluster.is_some_and(is_leaving),
            pushed: beside.cluster.is_some_and(|cluster| cluster["spec"]["syncMode"] == "Push"),
            free: Err("a certificate cannot be taken back on this API server"),
            now: beside.now,
        };
        match policy::decide(self.spec, &self.requested, known) {
            Verdict::Leave(why) => Answer::Leave(why),
            Verdict::Deny(reason, why) => Answer::Deny(reason, why),
            Verdict::Approve { why, token } => {
                let cluster = whose.map(Whose::cluster).unwrap_or_default();
                if matches!(self.requester, Requester::Agent { .. }) && beside.cluster.is_none_or(is_leaving)
                {
                    let why = format!(
                        "there is no Cluster {cluster:?}, or it is leaving: its agent has to join again by a token, \
                         karmada-hub token create --cluster {cluster}"
                    );
                    return Answer::Deny("CredentialEnded", why);
                }
                if let (Requester::Agent { .. }, Some(given)) = (&self.requester, beside.given)
                    && let Some(other) = self.by_another(cluster, given)
                {
                    return other;
                }
                let lets_in =
                    beside.token.zip(self.requested.as_ref().ok()).and_then(|(token, requested)| {
                        matches!(self.requester, Requester::Token(_)).then(|| LetIn {
                            token: object::name(token).to_owned(),
                            by: object::uid(token).to_owned(),
                            to: requested.digest(),
                            several: object::annotation(token, USES_LEFT).is_some(),
                        })
                    });
                Answer::Approve { cluster: cluster.to_owned(), why, token, lets_in }
            }
        }
    }
}

/// A certificate that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// For the agent of which cluster.
    pub cluster: String,
    /// Its digest.
    pub digest: String,
    /// When it was asked for.
    pub asked: Time,
    /// When it ends.
    pub until: Time,
}

/// What was signed for an agent; nothing if it was not.
pub fn issued(request: &Value) -> Option<Issued> {
    let (spec, status) = (&request["spec"], &request["status"]);
    let pem = status["certificate"].as_str().filter(|_| spec["signerName"] == CLIENT_SIGNER)?;
    let certificate = CertificateDer::from_pem_slice(&STANDARD.decode(pem).ok()?).ok()?;
    let (_, read) = X509Certificate::from_der(&certificate).ok()?;
    let until = u64::try_from(read.validity().not_after.timestamp()).ok()?;
    let requested = Requested::read(spec["request"].as_str()?).ok()?;
    match policy::whose(object::name(request), spec, &requested).ok()? {
        Whose::Agent(cluster) => Some(Issued {
            cluster: cluster.to_owned(),
            digest: format!("{:x}", HexOf(&Sha256::digest(&certificate))),
            asked: made(request)?,
            until: Time::from_system(SystemTime::UNIX_EPOCH + Duration::from_secs(until)),
        }),
        Whose::Generator(_) => None,
    }
}

/// Writes what was decided into the request, for `/approval`; whether there is anything to write.
pub fn answer(request: &mut Value, answer: &Answer, now: SystemTime) -> bool {
    let now = Time::from_system(now).to_string();
    match answer {
        Answer::Approve { why, .. } => add(request, "Approved", "AutoApproved", why, &now),
        Answer::Deny(reason, why) => add(request, "Denied", reason, why, &now),
        Answer::Leave(_) | Answer::Foreign => return false,
    }
    true
}

/// Makes a token one that has ended, if it is for a cluster that is gone; whether it was not.
pub fn end_token(secret: &mut Value, cluster: &str, now: SystemTime) -> bool {
    if secret["type"] != bootstrap::TYPE
        || bootstrap::cluster(secret).as_deref() != Some(cluster)
        || bootstrap::ends_at(secret).is_some_and(|at| at <= now)
    {
        return false;
    }
    if secret["immutable"] == true {
        // Its time cannot be set. It lets nobody in any more, though it says who somebody is until then.
        let is_used_up = object::annotation(secret, USES_LEFT) == Some("0");
        object::set_annotation(secret, USES_LEFT, "0");
        return object::remove_annotation(secret, USED_BY).is_some() || !is_used_up;
    }
    bootstrap::end_at(secret, now);
    true
}

fn is_leaving(cluster: &Value) -> bool {
    object::deletion_timestamp(cluster).is_some()
}

/// Whether a token was made before a Cluster, or in the same second; also if that cannot be read.
fn is_older(token: &Value, cluster: &Value) -> bool {
    made(token).zip(made(cluster)).is_none_or(|(token, cluster)| token <= cluster)
}

/// When an object was made.
pub fn made(object: &Value) -> Option<Time> {
    object.pointer("/metadata/creationTimestamp").and_then(Value::as_str)?.parse().ok()
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "rows are made where they stand")]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
    use serde_json::json;

    use super::{
        super::{ANY_CLUSTER_GROUP, CLIENT_SIGNER, CLUSTER},
        *,
    };

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    /// What somebody asks for the agent of a cluster, or for another user with that end to its name.
    fn request(name: &str, by: &str, of: &str) -> Value {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:karmada:agents");
        params.distinguished_name.push(DnType::CommonName, format!("system:karmada:agent:{of}"));
        let request = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        let groups = match by.strip_prefix("system:karmada:agent:") {
            Some(_) => "system:karmada:agents",
            None => "system:bootstrappers",
        };
        json!({"metadata": {"name": name}, "spec": {"signerName": CLIENT_SIGNER, "request": STANDARD.encode(request),
            "username": by, "groups": [groups, "system:authenticated"], "usages": ["client auth"]}})
    }

    const TOKEN: &str = "system:bootstrap:abcdef";

    fn token(groups: &str, annotations: Value) -> Value {
        let encode = |text: &str| STANDARD.encode(text);
        json!({"metadata": {"name": "bootstrap-token-abcdef", "annotations": annotations,
                "creationTimestamp": "1970-01-01T00:00:50Z"},
            "type": bootstrap::TYPE,
            "data": {"token-id": encode("abcdef"), "token-secret": encode("0123456789abcdef"),
                "usage-bootstrap-authentication": encode("true"), "auth-extra-groups": encode(groups),
                "expiration": encode("1970-01-01T01:00:00Z")}})
    }

    fn cluster(made: &str) -> Value {
        json!({"metadata": {"name": "m1", "creationTimestamp": made}, "status": {"kubernetesVersion": "v1.36.2"}})
    }

    fn said(answer: Answer) -> (&'static str, String) {
        match answer {
            Answer::Approve { why, .. } => ("approve", why),
            Answer::Deny(_, why) => ("deny", why),
            Answer::Leave(why) => ("leave", why),
            Answer::Foreign => ("foreign", String::new()),
        }
    }

    #[test]
    fn a_token_lets_in_the_agent_of_the_cluster_that_it_names() {
        let ours = token("system:bootstrappers:hub:m1", json!({}));
        let left =
            |left: &str| token("system:bootstrappers:hub:m1", json!({USES_LEFT: left, USED_BY: "sha256:00"}));
        let (older, newer) = (cluster("1970-01-01T00:00:49Z"), cluster("1970-01-01T00:00:50Z"));
        let mut unknown = newer.clone();
        unknown["metadata"]["creationTimestamp"] = "once".into();
        let mut leaving = older.clone();
        leaving["metadata"]["deletionTimestamp"] = "1970-01-01T00:01:00Z".into();
        let mut pushed = older.clone();
        pushed["spec"]["syncMode"] = "Push".into();
        let mut yet_to_come = newer.clone();
        yet_to_come["status"] = json!({});
        let m1 = request("m1-abcde", TOKEN, "m1");
        let agents = |of: &str| request("m1-abcde", &format!("system:karmada:agent:{of}"), "m1");
        let generator = |name: &str| request(name, TOKEN, "rbac-generator");
        // request, token, Cluster, verdict, what it says
        let rows = [
            (m1.clone(), Some(&ours), None, "approve", "is for cluster \"m1\""),
            (m1.clone(), Some(&token("", json!({CLUSTER: "m1"}))), None, "approve", "is for cluster"),
            (
                m1.clone(),
                Some(&token("system:bootstrappers:hub:m2", json!({}))),
                None,
                "deny",
                "not for \"m1\"",
            ),
            (m1.clone(), None, None, "deny", "is not there any more"),
            (
                m1.clone(),
                Some(&token("system:masters", json!({CLUSTER: "m1"}))),
                None,
                "deny",
                "does not hold",
            ),
            // On its own API the hub would take the first who asks; here nothing could be taken back.
            (m1.clone(), Some(&token(ANY_CLUSTER_GROUP, json!({}))), None, "leave", "is for no cluster"),
            (m1.clone(), Some(&token("", json!({}))), None, "leave", "is for no cluster"),
            (generator("agent-rbac-generator-m1abcde"), Some(&ours), None, "leave", "the hub makes them"),
            (generator("m1-abcde"), Some(&ours), None, "deny", "is not agent-rbac-generator-"),
            // Whose agent was there before the token, and whose came after it, perhaps by it.
            (m1.clone(), Some(&ours), Some(&older), "approve", ""),
            (m1.clone(), Some(&ours), Some(&newer), "deny", "registered, which was not by this key"),
            (m1.clone(), Some(&ours), Some(&unknown), "deny", "registered, which was not by this key"),
            (m1.clone(), Some(&ours), Some(&yet_to_come), "approve", ""),
            (m1.clone(), Some(&left("1")), Some(&newer), "approve", ""),
            (m1.clone(), Some(&left("0")), Some(&newer), "deny", "used as often as it may be"),
            (m1.clone(), Some(&ours), Some(&leaving), "deny", "is leaving: ask again"),
            (m1, Some(&ours), Some(&pushed), "deny", "is in push mode"),
            // Renewals.
            (agents("m1"), None, Some(&newer), "approve", "renews its own"),
            (agents("m1"), None, Some(&yet_to_come), "approve", "renews its own"),
            (agents("m1"), None, Some(&pushed), "deny", "is in push mode"),
            (agents("m1"), None, None, "deny", "has to join again by a token"),
            (agents("m1"), None, Some(&leaving), "deny", "has to join again by a token"),
            (agents("m2"), None, Some(&newer), "deny", "the agent of cluster \"m2\" asks for cluster \"m1\""),
        ];
        for (request, token, cluster, want, part) in rows {
            let asked = Asked::of(&request).expect("it is a machine's");
            let (got, why) = said(asked.decide(Beside { token, cluster, given: None, now: at(100) }));
            assert_eq!(got, want, "{token:?} {cluster:?}: {why}");
            assert!(why.contains(part), "{part}: {why}");
        }
    }

    #[test]
    fn where_there_was_another_cluster_of_the_name_its_certificate_renews_nothing() {
        let digests = |all: [&str; 2]| all.into_iter().map(str::to_owned).collect();
        let given = Given { before: digests(["cc", "dd"]), since: digests(["aa", "bb"]) };
        let there = cluster("1970-01-01T00:00:50Z");
        // what is said of the certificate, what is known to be given, verdict
        let rows = [
            (json!(["X509SHA256=aa"]), Some(&given), "approve"),
            (json!(["X509SHA256=cc"]), Some(&given), "deny"),
            // Nobody has noted when that was given: a person has to say.
            (json!(["X509SHA256=ee"]), Some(&given), "leave"),
            (json!(["JTI=aa"]), Some(&given), "leave"),
            (json!(null), Some(&given), "leave"),
            (json!(["X509SHA256=cc"]), None, "approve"),
            (json!(null), None, "approve"),
        ];
        for (said_of_it, given, want) in rows {
            let mut request = request("m1-abcde", "system:karmada:agent:m1", "m1");
            request["spec"]["extra"] = json!({CREDENTIAL_ID: said_of_it});
            let asked = Asked::of(&request).expect("it is a machine's");
            let beside = Beside { token: None, cluster: Some(&there), given, now: at(100) };
            let (got, why) = said(asked.decide(beside));
            assert_eq!(got, want, "{said_of_it}, {given:?}: {why}");
        }
        // A token that was made for the new one lets it in, whatever came before.
        let token = token("system:bootstrappers:hub:m1", json!({}));
        let asked = request("m1-abcde", TOKEN, "m1");
        let asked = Asked::of(&asked).expect("it is a machine's");
        let beside = Beside { token: Some(&token), cluster: None, given: Some(&given), now: at(100) };
        assert_eq!(said(asked.decide(beside)).0, "approve");
    }

    #[test]
    fn what_was_signed_is_known_by_its_digest() {
        let mut signed = request("m1-abcde", TOKEN, "m1");
        assert_eq!(issued(&signed), None);
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.not_after = rcgen::date_time_ymd(2030, 1, 2);
        let certificate = params.self_signed(&key).unwrap();
        let digest = format!("{:x}", HexOf(&Sha256::digest(certificate.der())));
        signed["status"] = json!({"certificate": STANDARD.encode(certificate.pem())});
        signed["metadata"]["creationTimestamp"] = "1970-01-01T00:00:50Z".into();
        let [asked, until] = ["1970-01-01T00:00:50Z", "2030-01-02T00:00:00Z"].map(|at| at.parse().unwrap());
        assert_eq!(issued(&signed), Some(Issued { cluster: "m1".to_owned(), digest, asked, until }));
        for (pointer, other) in
            [("/spec/signerName", "example.com/other"), ("/status/certificate", "!"), ("/spec/request", "!")]
        {
            let mut signed = signed.clone();
            *signed.pointer_mut(pointer).unwrap() = other.into();
            assert_eq!(issued(&signed), None, "{pointer}");
        }
    }

    #[test]
    fn what_is_no_machines_or_decided_is_not_looked_at() {
        let good = request("m1-abcde", TOKEN, "m1");
        let with = |pointer: &str, value: Value| {
            let mut request = good.clone();
            *request.pointer_mut(pointer).unwrap() = value;
            request
        };
        let decided = |sort: &str| {
            let mut request = good.clone();
            request["status"] = json!({"conditions": [{"type": sort, "status": "True"}]});
            request
        };
        let mut leaving = good.clone();
        leaving["metadata"]["deletionTimestamp"] = "1970-01-01T00:01:00Z".into();
        let mut signed = good.clone();
        signed["status"] = json!({"certificate": "x"});
        let rows = [
            with("/spec/signerName", "kubernetes.io/kube-apiserver-client-kubelet".into()),
            with("/spec/username", "jane".into()),
            with("/spec/groups", json!(["system:masters"])),
            with("/spec/username", "system:karmada:agent:rbac-generator".into()),
            // These become parts of a path.
            with("/spec/username", "system:bootstrap:../../x".into()),
            with("/spec/username", "system:bootstrap:".into()),
            with("/spec/username", "system:bootstrap:abcdefg".into()),
            decided("Approved"),
            decided("Denied"),
            decided("Failed"),
            leaving,
            signed,
        ];
        assert!(
            Asked::of(&good).is_some_and(|asked| asked.token().as_deref() == Some("bootstrap-token-abcdef"))
        );
        for request in rows {
            assert!(Asked::of(&request).is_none(), "{request}");
        }
        // What cannot be read is denied, and is nobody's.
        let garbled = with("/spec/request", "!".into());
        let asked = Asked::of(&garbled).expect("it is a machine's");
        assert_eq!(asked.cluster(), None);
        let ours = token("system:bootstrappers:hub:m1", json!({}));
        let (word, why) =
            said(asked.decide(Beside { token: Some(&ours), cluster: None, given: None, now: at(100) }));
        assert!(word == "deny" && why.contains("it is not base64"), "{why}");
    }

    #[test]
    fn what_tokens_of_other_systems_ask_for_is_theirs() {
        let other = |end: &str| {
            let mut request = request("node-abcde", TOKEN, "m1");
            let mut params = CertificateParams::default();
            params.distinguished_name = DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, end);
            let made = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
            request["spec"]["request"] = STANDARD.encode(made).into();
            request
        };
        let mut garbled = other("jane");
        garbled["spec"]["request"] = "!".into();
        let kubeadm = token("system:bootstrappers:kubeadm:default-node-token", json!({}));
        let (none, ours) = (token("", json!({})), token("system:bootstrappers:hub:m1", json!({})));
        for request in [other("jane"), other("system:open-cluster-management:m1:x"), garbled] {
            let asked = Asked::of(&request).expect("it is a machine's");
            let word =
                |token| said(asked.decide(Beside { token, cluster: None, given: None, now: at(100) })).0;
            assert_eq!([Some(&kubeadm), Some(&none), None].map(word), ["foreign"; 3], "{request}");
            assert_eq!(word(Some(&ours)), "deny", "{request}");
        }
        // What is for an agent is the hub's.
        let asked = request("m1-abcde", TOKEN, "m1");
        let asked = Asked::of(&asked).expect("it is a machine's");
        let beside = |token| Beside { token, cluster: None, given: None, now: at(100) };
        assert_eq!(said(asked.decide(beside(Some(&kubeadm)))).0, "leave");
        assert_eq!(said(asked.decide(beside(None))).0, "deny");
    }

    #[test]
    fn answers_are_written_and_tokens_end_with_their_cluster() {
        let mut made = request("m1-abcde", TOKEN, "m1");
        assert!(!answer(&mut made, &Answer::Leave(String::new()), at(0)));
        assert!(made["status"].is_null());
        assert!(answer(&mut made, &Answer::Deny("OtherCluster", "why".to_owned()), at(60)));
        let want = json!([{"type": "Denied", "status": "True", "reason": "OtherCluster", "message": "why",
            "lastUpdateTime": "1970-01-01T00:01:00Z", "lastTransitionTime": "1970-01-01T00:01:00Z"}]);
        assert_eq!(made["status"]["conditions"], want);

        let ours = token("system:bootstrappers:hub:m1", json!({}));
        let mut other = ours.clone();
        other["type"] = "Opaque".into();
        // Secret, cluster, now, whether it ends by that
        let rows = [
            (&ours, "m1", 100, true),
            (&ours, "m2", 100, false),
            (&ours, "m1", 3600, false),
            (&other, "m1", 100, false),
        ];
        for (secret, cluster, now, ends) in rows {
            let mut secret = secret.clone();
            assert_eq!(end_token(&mut secret, cluster, at(now)), ends, "{cluster} at {now}");
            assert!(!end_token(&mut secret, cluster, at(now)), "once");
            if ends {
                assert!(bootstrap::judge("abcdef", &secret, at(now)).is_err());
            }
        }
        // What cannot be changed but for its annotations lets nobody in, not even by the same key.
        let request = request("m1-abcde", TOKEN, "m1");
        let asked = Asked::of(&request).expect("it is a machine's");
        let digest = asked.requested.as_ref().unwrap().digest();
        let mut fixed = token("system:bootstrappers:hub:m1", json!({USED_BY: digest, USES_LEFT: "0"}));
        fixed["immutable"] = true.into();
        let word = |secret: &Value| {
            let beside = Beside { token: Some(secret), cluster: None, given: None, now: at(100) };
            said(asked.decide(beside)).0
        };
        assert_eq!(word(&fixed), "approve");
        let data = fixed["data"].clone();
        assert!(end_token(&mut fixed, "m1", at(100)) && !end_token(&mut fixed, "m1", at(100)));
        assert_eq!((word(&fixed), &fixed["data"]), ("deny", &data));
    }
}
