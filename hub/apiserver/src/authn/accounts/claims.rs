//! What the tokens of service accounts say, as kube-apiserver's do. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::super::known::CREDENTIAL_ID;
use crate::identity::UserInfo;

/// What the user name of a service account begins with; namespace and name follow.
pub const USER_PREFIX: &str = "system:serviceaccount:";
/// The group of all service accounts, and what that of a namespace begins with.
pub const GROUP: &str = "system:serviceaccounts";
/// Who has issued the tokens that stand in Secrets.
pub(super) const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";

const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const NODE_UID: &str = "authentication.kubernetes.io/node-uid";

/// The claims of a token that was asked for. In the order in which kube-apiserver writes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claims {
    #[serde(default)]
    pub(super) aud: Vec<String>,
    /// In seconds of Unix time, like the other times.
    pub(super) exp: i64,
    #[serde(default)]
    pub(super) iat: i64,
    pub(super) iss: String,
    #[serde(default)]
    pub(super) jti: String,
    #[serde(rename = "kubernetes.io")]
    pub(super) own: Own,
    #[serde(default)]
    pub(super) nbf: i64,
    pub(super) sub: String,
}

/// What the token is bound to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Own {
    pub(super) namespace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<Reference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pod: Option<Reference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) secret: Option<Reference>,
    pub(super) serviceaccount: Reference,
}

/// One object and no later one of its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reference {
    pub(super) name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) uid: String,
}

/// The claims of a token that stands in a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LegacyClaims {
    pub(super) iss: String,
    #[serde(rename = "kubernetes.io/serviceaccount/namespace")]
    pub(super) namespace: String,
    #[serde(rename = "kubernetes.io/serviceaccount/secret.name")]
    pub(super) secret: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.name")]
    pub(super) name: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.uid")]
    pub(super) uid: String,
    pub(super) sub: String,
}

/// The user name of a service account.
pub fn user_name(namespace: &str, name: &str) -> String {
    format!("{USER_PREFIX}{namespace}:{name}")
}

/// The user that a service account is.
pub(super) fn user(namespace: &str, name: &str, uid: &str) -> UserInfo {
    let groups = [GROUP.to_owned(), format!("{GROUP}:{namespace}")];
    UserInfo { uid: uid.to_owned(), ..UserInfo::new(user_name(namespace, name), groups) }
}

impl Claims {
    /// The user that these make.
    pub(super) fn user(&self) -> UserInfo {
        let Own { namespace, node, pod, serviceaccount, .. } = &self.own;
        let mut extra = BTreeMap::new();
        let mut say = |key: &str, value: &str| {
            if !value.is_empty() {
                extra.insert(key.to_owned(), vec![value.to_owned()]);
            }
        };
        if let Some(pod) = pod.as_ref().filter(|pod| !pod.name.is_empty() && !pod.uid.is_empty()) {
            say(POD_NAME, &pod.name);
            say(POD_UID, &pod.uid);
        }
        if let Some(node) = node {
            say(NODE_NAME, &node.name);
            say(NODE_UID, &node.uid);
        }
        if !self.jti.is_empty() {
            say(CREDENTIAL_ID, &format!("JTI={}", self.jti));
        }
        UserInfo { extra, ..user(namespace, &serviceaccount.name, &serviceaccount.uid) }
    }
}
