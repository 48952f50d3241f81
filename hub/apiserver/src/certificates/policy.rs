//! What is approved, and what is signed. Pure.

use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::{CLUSTER, CLUSTER_GROUP, Requested, USED_BY, USES_LEFT, usages};
use crate::{
    authn::bootstrap::{self, BOOTSTRAPPERS, USER_PREFIX},
    identity::{AGENT_PREFIX, AGENTS, UserInfo, agent_cluster},
    pki::MASTERS,
};
use karmada_meta::{names::is_cluster_name, object};

/// How long a certificate lasts for which nobody has said.
pub(super) const USUAL: Duration = Duration::from_hours(24 * 30);
/// The shortest and the longest life that is given. `karmadactl register` asks for a year.
const SHORTEST: Duration = Duration::from_mins(10);
const LONGEST: Duration = Duration::from_hours(24 * 365);

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Requester {
    /// Whoever has the bootstrap token of this id.
    Token(String),
    /// The agent of this cluster.
    Agent(String),
    /// Somebody else.
    Other,
}

impl Requester {
    /// The one that the server has written into a request.
    pub(super) fn of(spec: &Value) -> Self {
        let groups = spec["groups"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let name = spec["username"].as_str().unwrap_or_default();
        let user = UserInfo {
            name: name.to_owned(),
            groups: groups.map(str::to_owned).collect(),
            ..UserInfo::default()
        };
        match (agent_cluster(&user), name.strip_prefix(USER_PREFIX)) {
            (Some(cluster), _) => Self::Agent(cluster.to_owned()),
            (None, Some(id)) if user.in_group(BOOTSTRAPPERS) => Self::Token(id.to_owned()),
            _ => Self::Other,
        }
    }
}

/// What is made of a request that nobody has decided about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is good.
    Approve {
        /// Why.
        why: String,
        /// The Secret of the token from now on, if one was used up.
        token: Option<Value>,
    },
    /// It is refused: a word for why, and a sentence.
    Deny(&'static str, String),
    /// Somebody else has to decide.
    Leave(String),
}

/// What is known beside the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'a> {
    /// The Secret of the token by which it was asked, if that is there.
    pub(super) token: Option<&'a Value>,
    /// When credentials of the cluster were last ended.
    pub(super) ended: Option<SystemTime>,
    /// When the request was made.
    pub(super) asked: SystemTime,
    /// Now.
    pub(super) now: SystemTime,
}

/// Decides about a request for the signer of clients.
pub(super) fn decide(spec: &Value, requested: &Result<Requested, String>, known: Known<'_>) -> Verdict {
    let requester = Requester::of(spec);
    if requester == Requester::Other {
        return Verdict::Leave("it was asked by neither a bootstrap token nor an agent".to_owned());
    }
    let requested = match requested {
        Ok(requested) => requested,
        Err(why) => return Verdict::Deny("Malformed", format!("spec.request: {why}")),
    };
    let cluster = match agent_of(spec, requested) {
        Ok(cluster) => cluster,
        Err(why) => return Verdict::Deny("NotAnAgent", why),
    };
    match requester {
        Requester::Agent(own) if own != cluster => Verdict::Deny(
            "OtherCluster",
            format!("the agent of cluster {own:?} asks for cluster {cluster:?}"),
        ),
        Requester::Agent(_) if known.ended.is_some_and(|ended| ended >= known.asked) => Verdict::Deny(
            "CredentialEnded",
            format!("the credentials of cluster {cluster:?} were ended when this had been asked for"),
        ),
        Requester::Agent(_) => {
            Verdict::Approve { why: format!("the agent of cluster {cluster:?} renews its own"), token: None }
        }
        Requester::Token(id) => by_token(&id, cluster, requested, known),
        Requester::Other => Verdict::Leave(String::new()),
    }
}

/// The cluster whose agent a request is for.
///
/// # Errors
/// In what it differs from what an agent asks for.
pub(super) fn agent_of<'a>(spec: &Value, requested: &'a Requested) -> Result<&'a str, String> {
    let [name] = requested.common_names.as_slice() else {
        return Err(format!(
            "its subject has {} common names, and an agent has one",
            requested.common_names.len()
        ));
    };
    let cluster = name.strip_prefix(AGENT_PREFIX).filter(|cluster| is_cluster_name(cluster));
    let Some(cluster) = cluster else {
        return Err(format!(
            "its common name {name:?} is not {AGENT_PREFIX} with the name of a cluster behind it"
        ));
    };
    if requested.organisations != [AGENTS] {
        return Err(format!(
            "its organisations are {:?}, and an agent has {AGENTS:?} alone",
            requested.organisations
        ));
    }
    if requested.more {
        return Err("its subject has more than a common name and an organisation".to_owned());
    }
    signable(spec, requested).map(|()| cluster)
}

/// Whether the signer of clients signs a request at all.
///
/// # Errors
/// Why it does not; of usages in Kubernetes' words.
pub(super) fn signable(spec: &Value, requested: &Requested) -> Result<(), String> {
    let usages = usages(spec);
    let optional = ["digital signature", "key encipherment", "client auth"];
    if let Some(other) = usages.iter().find(|usage| !optional.contains(usage)) {
        return Err(format!("invalid usage for client certificate: {other}"));
    }
    if !usages.contains("client auth") {
        return Err("missing required usage for client certificate: client auth".to_owned());
    }
    if let Some(why) = &requested.key_error {
        return Err(why.clone());
    }
    if requested.names {
        return Err("it asks for alternative names, and a client has none".to_owned());
    }
    match requested.common_names.as_slice() {
        [name] if !name.is_empty() => {}
        _ => return Err("its subject has not one common name, which is the user".to_owned()),
    }
    if requested.more || requested.organisations.len() > 1 {
        return Err("its subject has more than a common name and one organisation".to_owned());
    }
    if requested.organisations.iter().any(|group| group == MASTERS) {
        return Err(format!("it asks for the group {MASTERS}"));
    }
    Ok(())
}

fn by_token(id: &str, cluster: &str, requested: &Requested, known: Known<'_>) -> Verdict {
    let refuse = |why: &str| Verdict::Deny("TokenRefused", format!("the bootstrap token {id} {why}"));
    let Some(secret) = known.token else { return refuse("is not there any more") };
    let groups = match bootstrap::groups(id, secret, known.now) {
        Ok(groups) => groups,
        Err(why) => return refuse(&format!("does not hold: {why}")),
    };
    let by_group = || groups.iter().find_map(|group| group.strip_prefix(CLUSTER_GROUP));
    let Some(own) = object::annotation(secret, CLUSTER).or_else(by_group) else {
        return Verdict::Leave(format!("the bootstrap token {id} is for no cluster"));
    };
    if own != cluster {
        return refuse(&format!("is for cluster {own:?}, not for {cluster:?}"));
    }
    let why = format!("the bootstrap token {id} is for cluster {cluster:?}");
    let Some(left) = object::annotation(secret, USES_LEFT) else {
        return Verdict::Approve { why, token: None };
    };
    let Ok(left) = left.parse::<u32>() else {
        return refuse(&format!("has an annotation {USES_LEFT}: {left:?} that is no number"));
    };
    let digest = requested.digest();
    if object::annotation(secret, USED_BY) == Some(&digest) {
        return Verdict::Approve { why, token: None };
    }
    let Some(left) = left.checked_sub(1) else {
        return refuse("has been used as often as it may be; a new one: karmada-hub token create");
    };
    let mut secret = secret.clone();
    object::set_annotation(&mut secret, USES_LEFT, left.to_string());
    object::set_annotation(&mut secret, USED_BY, digest);
    Verdict::Approve { why, token: Some(secret) }
}

/// How long a certificate lasts.
pub(super) fn life(spec: &Value) -> Duration {
    let asked = spec["expirationSeconds"].as_u64().map(Duration::from_secs);
    asked.map_or(USUAL, |asked| asked.clamp(SHORTEST, LONGEST))
}

/// How long requests are kept, in kube-controller-manager's times.
const DECIDED: Duration = Duration::from_hours(1);
const UNDECIDED: Duration = Duration::from_hours(24);

/// Whether a request has been kept for long enough: signed, denied or failed an hour ago, or undecided for a day.
pub(super) fn is_past(request: &Value, made: SystemTime, now: SystemTime) -> bool {
    let conditions = request.pointer("/status/conditions").and_then(Value::as_array);
    let conditions = conditions.map(Vec::as_slice).unwrap_or_default();
    let signed = request.pointer("/status/certificate").is_some();
    if conditions.is_empty() && !signed {
        return now >= made + UNDECIDED;
    }
    let ends = |condition: &Value| match condition["type"].as_str() {
        Some("Approved") => signed,
        Some("Denied" | "Failed") => true,
        _ => false,
    };
    conditions.iter().filter(|condition| ends(condition)).any(|condition| {
        let at =
            condition["lastUpdateTime"].as_str().and_then(|at| at.parse::<karmada_meta::time::Time>().ok());
        at.is_some_and(|at| now >= SystemTime::from(at.timestamp()) + DECIDED)
    })
}
