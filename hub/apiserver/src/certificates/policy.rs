//! What is approved, and what is signed. Pure.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use serde_json::Value;

use super::requested::{Requested, usages};
use crate::{
    authn::{
        bootstrap::{self, BOOTSTRAPPERS, CLUSTER, USED_AT, USED_BY, USER_PREFIX, USES_LEFT},
        epochs::EPOCH,
    },
    identity::{AGENT_PREFIX, AGENTS, RBAC_GENERATOR, REPORTED_BY, UserInfo, agent_cluster},
    pki::MASTERS,
};
use karmada_meta::{names::is_cluster_name, object, time::Time};

/// How long a certificate lasts for which nobody has said.
pub(crate) const USUAL: Duration = Duration::from_hours(24 * 30);
/// The shortest and the longest life that is given. `karmadactl register` asks for a year.
const SHORTEST: Duration = Duration::from_mins(10);
const LONGEST: Duration = Duration::from_hours(24 * 365);

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Requester {
    /// Whoever has the bootstrap token of this id.
    Token(String),
    /// The agent of a cluster.
    Agent {
        /// Which.
        cluster: String,
        /// The epoch of the certificate that it has shown.
        epoch: u64,
    },
    /// Somebody else.
    Other,
}

impl Requester {
    /// The one that the server has written into a request.
    pub(crate) fn of(spec: &Value) -> Self {
        let groups = spec["groups"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let name = spec["username"].as_str().unwrap_or_default();
        let user = UserInfo {
            name: name.to_owned(),
            groups: groups.map(str::to_owned).collect(),
            ..UserInfo::default()
        };
        match (agent_cluster(&user), name.strip_prefix(USER_PREFIX)) {
            (Some(cluster), _) => {
                // As of a certificate that bears none, when nothing is said.
                let epoch =
                    spec["extra"][EPOCH][0].as_str().and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
                Self::Agent { cluster: cluster.to_owned(), epoch }
            }
            (None, Some(id)) if user.in_group(BOOTSTRAPPERS) => Self::Token(id.to_owned()),
            _ => Self::Other,
        }
    }
}

/// What is made of a request that nobody has decided about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
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
pub(crate) struct Known<'a> {
    /// The name of the request.
    pub(crate) name: &'a str,
    /// The Secret of the token by which it was asked, if that is there.
    pub(crate) token: Option<&'a Value>,
    /// The epoch of the cluster's credentials that counts.
    pub(crate) epoch: u64,
    /// Whether the agent of a cluster of this name has registered since the token was made.
    pub(crate) registered: bool,
    /// Whether a Cluster of this name is being deleted.
    pub(crate) leaving: bool,
    /// Whether the hub itself works on a Cluster of this name.
    pub(crate) pushed: bool,
    /// Whether a token may become that of a cluster of this name, or why not.
    pub(crate) free: Result<(), &'a str>,
    /// Now.
    pub(crate) now: SystemTime,
}

/// Decides about a request for the signer of clients.
pub(crate) fn decide(spec: &Value, requested: &Result<Requested, String>, known: Known<'_>) -> Verdict {
    let requester = Requester::of(spec);
    if requester == Requester::Other {
        return Verdict::Leave("it was asked by neither a bootstrap token nor an agent".to_owned());
    }
    let requested = match requested {
        Ok(requested) => requested,
        Err(why) => return Verdict::Deny("Malformed", format!("spec.request: {why}")),
    };
    let whose = match whose(known.name, spec, requested) {
        Ok(whose) => whose,
        Err(why) => return Verdict::Deny("NotAnAgent", why),
    };
    let cluster = whose.cluster();
    if known.pushed {
        let why = format!(
            "cluster {cluster:?} is in push mode: the hub itself works on it, and an agent has no business there"
        );
        return Verdict::Deny("PushMode", why);
    }
    match requester {
        Requester::Agent { .. } if whose == Whose::Generator(cluster) => {
            Verdict::Deny("NotAnAgent", format!("an agent asks for no certificate of {RBAC_GENERATOR}"))
        }
        Requester::Agent { cluster: own, .. } if own != cluster => Verdict::Deny(
            "OtherCluster",
            format!("the agent of cluster {own:?} asks for cluster {cluster:?}"),
        ),
        Requester::Agent { epoch, .. } if epoch < known.epoch => Verdict::Deny(
            "CredentialEnded",
            format!("the credential of cluster {cluster:?} by which this was asked has been ended"),
        ),
        Requester::Agent { .. } => {
            Verdict::Approve { why: format!("the agent of cluster {cluster:?} renews its own"), token: None }
        }
        Requester::Token(id) => by_token(&id, whose, requested, known),
        Requester::Other => Verdict::Leave(String::new()),
    }
}

/// For whom a certificate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose<'a> {
    /// For the agent of a cluster.
    Agent(&'a str),
    /// For whoever makes the roles of that agent.
    Generator(&'a str),
}

impl<'a> Whose<'a> {
    pub(crate) const fn cluster(self) -> &'a str {
        let (Self::Agent(cluster) | Self::Generator(cluster)) = self;
        cluster
    }
}

/// What `karmadactl register` begins the name of its first request with; the cluster's name and five characters follow.
const GENERATOR_REQUEST: &str = "agent-rbac-generator-";

/// The cluster that a name of such a request says.
pub(crate) fn generator_request(name: &str) -> Option<&str> {
    let (cluster, end) = {
        let rest = name.strip_prefix(GENERATOR_REQUEST)?;
        rest.split_at_checked(rest.len().checked_sub(5)?)?
    };
    (is_cluster_name(cluster) && end.bytes().all(|b| b.is_ascii_alphanumeric())).then_some(cluster)
}

/// For whom a request is.
///
/// # Errors
/// In what it differs from what an agent asks for, or `karmadactl register`.
pub(crate) fn whose<'a>(name: &'a str, spec: &Value, requested: &'a Requested) -> Result<Whose<'a>, String> {
    let [user] = requested.common_names.as_slice() else {
        return Err(format!(
            "its subject has {} common names, and an agent has one",
            requested.common_names.len()
        ));
    };
    let whose = if user == RBAC_GENERATOR {
        generator_request(name).map(Whose::Generator).ok_or_else(|| {
            format!(
                "it is for {RBAC_GENERATOR}, and its name {} is not {GENERATOR_REQUEST} with the name of a cluster and \
                 five characters behind it",
                short(name)
            )
        })?
    } else {
        let cluster = user.strip_prefix(AGENT_PREFIX).filter(|cluster| is_cluster_name(cluster));
        cluster.map(Whose::Agent).ok_or_else(|| {
            let user = short(user);
            format!("its common name {user} is not {AGENT_PREFIX} with the name of a cluster behind it")
        })?
    };
    if requested.organisations != [AGENTS] {
        return Err(format!(
            "its organisations are {}, and an agent has {AGENTS:?} alone",
            short(&requested.organisations)
        ));
    }
    if requested.more {
        return Err("its subject has more than a common name and an organisation".to_owned());
    }
    signable(spec, requested).map(|()| whose)
}

/// Whether the signer of clients signs a request at all.
///
/// # Errors
/// Why it does not; of usages in Kubernetes' words.
pub(crate) fn signable(spec: &Value, requested: &Requested) -> Result<(), String> {
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

/// The most of what somebody else has written that is said of it.
const QUOTED: usize = 128;

/// What somebody has written, in quotes, so much of it that it fits into a sentence.
pub(crate) fn short(text: &(impl fmt::Debug + ?Sized)) -> String {
    let mut quoted = format!("{text:?}");
    if quoted.len() > QUOTED {
        quoted.truncate(quoted.floor_char_boundary(QUOTED));
        quoted.push('…');
    }
    quoted
}

fn by_token(id: &str, whose: Whose<'_>, requested: &Requested, known: Known<'_>) -> Verdict {
    let cluster = whose.cluster();
    let refuse = |why: &str| Verdict::Deny("TokenRefused", format!("the bootstrap token {id} {why}"));
    let Some(secret) = known.token else { return refuse("is not there any more") };
    if let Err(why) = bootstrap::judge(id, secret, known.now) {
        return refuse(&format!("does not hold: {why}"));
    }
    // The Secret from now on, where the token becomes one for this cluster.
    let bound = match bootstrap::cluster(secret) {
        Some(own) if own != cluster => {
            return refuse(&format!("is for cluster {own:?}, not for {cluster:?}"));
        }
        Some(_) => None,
        None if bootstrap::takes_first(secret) => match known.free {
            Ok(()) => Some(bound(secret, cluster, known.epoch)),
            Err(why) => {
                return refuse(&format!(
                    "is for no cluster yet, and cannot become one for {cluster:?}: {why}; make one for this \
                     cluster: karmada-hub token create --cluster {cluster}"
                ));
            }
        },
        None => return Verdict::Leave(format!("the bootstrap token {id} is for no cluster")),
    };
    let secret = bound.as_ref().unwrap_or(secret);
    // Those of before this was noted are of the first.
    let epoch = object::annotation(secret, EPOCH).and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
    if epoch < known.epoch {
        return refuse(&format!(
            "was made before the credentials of cluster {cluster:?} were ended; a new one: karmada-hub token create"
        ));
    }
    if known.leaving {
        // What it would get ends with those of the one that leaves.
        return refuse(&format!(
            "is for cluster {cluster:?}, and one of that name is leaving: ask again when its Cluster has gone"
        ));
    }
    let why = format!("the bootstrap token {id} is for cluster {cluster:?}");
    let (digest, used_by) = (requested.digest(), object::annotation(secret, USED_BY));
    let is_agent = matches!(whose, Whose::Agent(_));
    if is_agent && used_by == Some(&digest) {
        return Verdict::Approve { why, token: bound };
    }
    let left = match object::annotation(secret, USES_LEFT).map(|left| (left, left.parse::<u32>())) {
        None => None,
        Some((_, Ok(left))) => Some(left),
        Some((left, Err(_))) => {
            return refuse(&format!("has an annotation {USES_LEFT}: {} that is no number", short(left)));
        }
    };
    // What may be used several times, by its own word, may be so after the first agent has registered.
    if known.registered && (left.is_none() || used_by.is_none()) {
        return refuse(&format!(
            "was made before the agent of cluster {cluster:?} registered, which was not by this key. If this agent is \
             to take the place of that one, make a new token: karmada-hub token create --cluster {cluster}. If it is for another \
             cluster, choose another name"
        ));
    }
    let less = left.map(|left| left.checked_sub(1));
    if less == Some(None) {
        return refuse("has been used as often as it may be; a new one: karmada-hub token create");
    }
    if !is_agent {
        return Verdict::Approve { why: format!("{why}, whose roles are to be made"), token: bound };
    }
    let mut secret = secret.clone();
    if let Some(left) = less.flatten() {
        object::set_annotation(&mut secret, USES_LEFT, left.to_string());
    }
    object::set_annotation(&mut secret, USED_BY, digest);
    object::set_annotation(&mut secret, USED_AT, Time::from_system(known.now).to_string());
    Verdict::Approve { why, token: Some(secret) }
}

/// The Secret of a token that becomes one for a cluster.
fn bound(secret: &Value, cluster: &str, epoch: u64) -> Value {
    let mut secret = secret.clone();
    object::set_annotation(&mut secret, CLUSTER, cluster);
    object::set_annotation(&mut secret, EPOCH, epoch.to_string());
    secret
}

/// Whether the agent of a Cluster has registered it, or reported for it. One that was made for an agent yet to come has
/// neither.
pub(crate) fn has_registered(cluster: &Value) -> bool {
    let version = cluster.pointer("/status/kubernetesVersion").and_then(Value::as_str);
    object::annotation(cluster, REPORTED_BY).is_some() || version.is_some_and(|version| !version.is_empty())
}

/// How long a certificate lasts.
pub(crate) fn life(whose: Option<Whose<'_>>, spec: &Value, usual: Duration) -> Duration {
    if matches!(whose, Some(Whose::Generator(_))) {
        // `karmadactl register` asks for a year, and needs it for a moment.
        return SHORTEST;
    }
    let asked = spec["expirationSeconds"].as_u64().map(Duration::from_secs);
    asked.map_or(usual, |asked| asked.clamp(SHORTEST, LONGEST))
}

/// How long requests are kept, in kube-controller-manager's times; what was denied to a machine is not for people to read
/// for long, and it may ask again and again.
const DECIDED: Duration = Duration::from_hours(1);
const DENIED: Duration = Duration::from_mins(10);
const UNDECIDED: Duration = Duration::from_hours(24);

/// Whether a request has been kept for long enough: signed, denied or failed an hour ago, or undecided for a day.
pub(crate) fn is_past(request: &Value, made: SystemTime, now: SystemTime) -> bool {
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
        let at = condition["lastUpdateTime"].as_str().and_then(|at| at.parse::<Time>().ok());
        let brief = condition["type"] == "Denied" && Requester::of(&request["spec"]) != Requester::Other;
        let kept = if brief { DENIED } else { DECIDED };
        at.is_some_and(|at| now >= SystemTime::from(at.timestamp()) + kept)
    })
}
