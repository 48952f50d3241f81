//! Users: their names and groups, who among them is an agent, and where what is an agent's stands. How somebody is known for one is [`crate::authn`].

use std::collections::BTreeMap;

use karmada_meta::names::is_cluster_name;
use serde_json::{Map, Value, json};

/// The user name of a request that shows nothing.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group of [`ANONYMOUS`].
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The group that everyone else is in.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of whoever may read figures: Kubernetes' own name.
pub const MONITORING: &str = "system:monitoring";

/// What the user name of whoever shows a bootstrap token begins with; the token's id follows.
pub const BOOTSTRAP_PREFIX: &str = "system:bootstrap:";
/// The group of all who show one, and what their other groups begin with.
pub const BOOTSTRAPPERS: &str = "system:bootstrappers";

/// The group of all agents.
pub const AGENTS: &str = "system:karmada:agents";
/// What an agent's user name begins with; the cluster's name follows.
pub const AGENT_PREFIX: &str = "system:karmada:agent:";
/// On what an agent has made in a place that is not its own, and on its Cluster: the cluster.
pub(crate) const REPORTED_BY: &str = "agent.karmada.io/reported-by";
/// Namespace of cluster leases and credentials.
pub(crate) const CLUSTER_NAMESPACE: &str = "karmada-cluster";
/// What the name of an execution namespace begins with; the cluster's name follows.
pub(crate) const EXECUTION_PREFIX: &str = "karmada-es-";
/// The user whose certificate `karmadactl register` asks for to make an agent's roles with.
pub const RBAC_GENERATOR: &str = "system:karmada:agent:rbac-generator";
/// On that user: the cluster whose agent's roles it may make.
pub const GENERATES_FOR: &str = "hub.karmada.io/generates-for";
/// On the user of an agent whose Cluster has just gone, which may only read.
pub const LEAVING: &str = "hub.karmada.io/leaving";

/// On the user of an agent whose certificate has ended, which may only ask for another.
pub const RETURNING: &str = "hub.karmada.io/returning";

/// Who asks. As a request extension it is believed: clients in process say so who they are, listeners pass a [`Peer`](crate::authn::Peer).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// User name.
    pub name: String,
    /// Groups, without duplicates.
    pub groups: Vec<String>,
    /// Identifies a user over time; empty for most.
    pub uid: String,
    /// Whatever else an authenticator says of the user.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// A user of the given groups, and of [`AUTHENTICATED`].
    pub fn new(name: impl Into<String>, groups: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let mut user = Self { name: name.into(), ..Self::default() };
        for group in groups.into_iter().map(Into::into).chain([AUTHENTICATED.to_owned()]) {
            if !user.groups.contains(&group) {
                user.groups.push(group);
            }
        }
        user
    }

    /// The user who shows nothing.
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..Self::default() }
    }

    /// The server's own controllers: may do everything.
    pub fn system(component: &str) -> Self {
        Self::new(format!("system:{component}"), ["system:masters"])
    }

    /// As `authentication.k8s.io/v1` UserInfo, without what is empty.
    pub(crate) fn info(&self) -> Value {
        let Self { name, groups, uid, extra } = self;
        let mut info = Map::new();
        let mut set = |field: &str, empty: bool, value: Value| {
            if !empty {
                info.insert(field.to_owned(), value);
            }
        };
        set("username", name.is_empty(), name.as_str().into());
        set("uid", uid.is_empty(), uid.as_str().into());
        set("groups", groups.is_empty(), json!(groups));
        set("extra", extra.is_empty(), json!(extra));
        info.into()
    }

    /// Whether the user is in `group`.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}

/// The cluster whose agent this user is: by the group, and by a name that a cluster may have. The one whose certificate
/// `karmadactl register` asks for to make roles with is none.
pub fn agent_cluster(user: &UserInfo) -> Option<&str> {
    let cluster = user.name.strip_prefix(AGENT_PREFIX)?;
    (user.in_group(AGENTS) && is_cluster_name(cluster)).then_some(cluster)
}

/// The cluster whose agent's roles this user may make: by the certificate that the server has issued for that. A user of
/// the same name of whom no cluster is said may make none.
pub fn generator_cluster(user: &UserInfo) -> Option<&str> {
    let [cluster] = user.extra.get(GENERATES_FOR)?.as_slice() else { return None };
    (user.name == RBAC_GENERATOR && user.in_group(AGENTS) && is_cluster_name(cluster)).then_some(cluster)
}
