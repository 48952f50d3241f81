//! What is asked of the server about users, and what it says: TokenReview and SubjectAccessReview, as values.

use std::collections::BTreeMap;

use karmada_apiserver::{
    authn::{UserInfo, agent_cluster},
    authz::Decision,
    delegate::{About, Question},
    paths::TUNNEL,
};
use karmada_objects::kinds::CLUSTERS;
use serde::Deserialize;
use serde_json::{Value, json};

/// Where it is asked whose a token is.
pub(super) const TOKENS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// Where it is asked what somebody may.
pub(super) const ACCESS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// Whose is this token? It has to be for the server itself.
pub(super) fn whose(token: &str) -> Value {
    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}})
}

/// The user that a review names; none where the token is nobody's.
///
/// # Errors
/// What is odd about the review.
pub(super) fn user(review: &Value) -> Result<Option<UserInfo>, String> {
    #[derive(Deserialize)]
    struct Status {
        #[serde(default)]
        authenticated: bool,
        user: Option<User>,
    }
    #[derive(Deserialize)]
    struct User {
        // Empty where the token is nobody's.
        #[serde(default)]
        username: String,
        #[serde(default)]
        uid: String,
        groups: Option<Vec<String>>,
        extra: Option<BTreeMap<String, Vec<String>>>,
    }
    let status = Status::deserialize(&review["status"]).map_err(|error| format!("status: {error}"))?;
    if !status.authenticated {
        return Ok(None);
    }
    let user = status.user.filter(|user| !user.username.is_empty());
    let user = user.ok_or("status.user: the token is good, and nobody's")?;
    let (groups, extra) = (user.groups.unwrap_or_default(), user.extra.unwrap_or_default());
    Ok(Some(UserInfo { name: user.username, uid: user.uid, groups, extra }))
}

/// May they?
pub(super) fn access(question: &Question) -> Value {
    let Question { user, verb, about } = question;
    let mut spec = json!({"user": user.name, "groups": user.groups, "extra": user.extra});
    if !user.uid.is_empty() {
        spec["uid"] = json!(user.uid);
    }
    let resource =
        |group: &str, resource: &str, subresource: &str, namespace: &str, name: &str, verb: &str| {
            let fields = [
                ("group", group),
                ("version", "*"),
                ("resource", resource),
                ("subresource", subresource),
                ("namespace", namespace),
                ("name", name),
                ("verb", verb),
            ];
            let named = fields.into_iter().filter(|(_, value)| !value.is_empty());
            named.map(|(field, value)| (field.to_owned(), Value::from(value))).collect::<Value>()
        };
    match (about, agent_cluster(user)) {
        // Whose agent may read its Cluster has not been revoked. It may have no rights on paths.
        (About::Path(path), Some(cluster)) if path == TUNNEL && verb == "get" => {
            spec["resourceAttributes"] = resource(&CLUSTERS.group, &CLUSTERS.plural, "", "", cluster, "get");
        }
        (About::Path(path), _) => spec["nonResourceAttributes"] = json!({"path": path, "verb": verb}),
        (About::Resource { group, resource: of, subresource, namespace, name }, _) => {
            spec["resourceAttributes"] = resource(group, of, subresource, namespace, name, verb);
        }
    }
    json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec})
}

/// What a review says, and why.
///
/// # Errors
/// What is odd about it.
pub(super) fn decision(review: &Value) -> Result<(Decision, String), String> {
    #[derive(Deserialize)]
    struct Status {
        allowed: bool,
        #[serde(default)]
        denied: bool,
        #[serde(default)]
        reason: String,
    }
    let status = Status::deserialize(&review["status"]).map_err(|error| format!("status: {error}"))?;
    let decision = match (status.allowed, status.denied) {
        (true, true) => return Err("status: it is allowed and denied".to_owned()),
        (true, false) => Decision::Allow,
        (false, true) => Decision::Deny(status.reason.clone()),
        (false, false) => Decision::NoOpinion,
    };
    Ok((decision, status.reason))
}

#[cfg(test)]
mod tests {
    use karmada_apiserver::authn::{AGENT_PREFIX, AGENTS};

    use super::*;

    #[test]
    fn whose_a_token_is() {
        let jane = json!({"username": "jane", "uid": "1", "groups": ["a"], "extra": {"x/y": ["z"]}});
        let named = user(&json!({"status": {"authenticated": true, "user": jane}})).unwrap().unwrap();
        assert_eq!((&*named.name, &*named.uid, named.groups), ("jane", "1", vec!["a".to_owned()]));
        assert_eq!(named.extra["x/y"], ["z"]);
        for (status, want) in [
            (json!({"authenticated": false, "error": "it has expired"}), Ok(false)),
            (json!({"authenticated": false, "user": {"username": "jane"}}), Ok(false)),
            (json!({"user": {"username": "jane"}}), Ok(false)),
            // As kube-apiserver has it.
            (json!({"user": {}, "error": "invalid bearer token"}), Ok(false)),
            (json!({"authenticated": true, "user": {}}), Err(())),
            (json!({"authenticated": true, "user": {"username": "jane", "groups": null}}), Ok(true)),
            (json!({"authenticated": true}), Err(())),
            (json!({"authenticated": true, "user": {"username": ""}}), Err(())),
            (json!({"authenticated": true, "user": {"username": "jane", "groups": "all"}}), Err(())),
            (json!({"authenticated": "true", "user": {"username": "jane"}}), Err(())),
            (Value::Null, Err(())),
        ] {
            let got = user(&json!({"status": status})).map(|user| user.is_some()).map_err(drop);
            assert_eq!(got, want, "{status}");
        }
    }

    #[test]
    fn what_is_asked_is_what_is_wanted() {
        let proxy = About::Resource {
            group: CLUSTERS.group.clone(),
            resource: CLUSTERS.plural.clone(),
            subresource: "proxy".to_owned(),
            namespace: String::new(),
            name: "m".to_owned(),
        };
        let ask = |user: UserInfo, verb: &str, about: &About| {
            access(&Question { user, verb: verb.to_owned(), about: about.clone() })["spec"].clone()
        };
        let spec = ask(UserInfo::new("jane", ["dev"]), "create", &proxy);
        assert_eq!(spec["user"], "jane");
        assert_eq!(spec["groups"], json!(["dev", "system:authenticated"]));
        assert_eq!(
            spec["resourceAttributes"],
            json!({"group": "cluster.karmada.io", "version": "*", "resource": "clusters", "subresource": "proxy",
                   "name": "m", "verb": "create"})
        );
        let tunnel = About::Path(TUNNEL.to_owned());
        let spec = ask(UserInfo::new(format!("{AGENT_PREFIX}m"), [AGENTS]), "get", &tunnel);
        assert_eq!(
            spec["resourceAttributes"],
            json!({"group": "cluster.karmada.io", "version": "*", "resource": "clusters", "name": "m", "verb": "get"})
        );
        // To act as others there is another right.
        let spec = ask(UserInfo::new(format!("{AGENT_PREFIX}m"), [AGENTS]), "impersonate-on", &tunnel);
        assert_eq!(spec["nonResourceAttributes"], json!({"path": TUNNEL, "verb": "impersonate-on"}));
        // Whoever is only named so is none.
        let spec = ask(UserInfo::new(format!("{AGENT_PREFIX}m"), ["dev"]), "get", &tunnel);
        assert_eq!(spec["nonResourceAttributes"], json!({"path": TUNNEL, "verb": "get"}));
    }

    #[test]
    fn only_what_is_allowed_in_so_many_words_is() {
        for (status, want) in [
            (json!({"allowed": true, "reason": "RBAC"}), Some(Decision::Allow)),
            (json!({"allowed": false, "reason": "no"}), Some(Decision::NoOpinion)),
            (
                json!({"allowed": false, "denied": true, "reason": "never"}),
                Some(Decision::Deny("never".into())),
            ),
            (json!({"allowed": true, "denied": true}), None),
            (json!({"allowed": "true"}), None),
            (json!({}), None),
            (Value::Null, None),
        ] {
            assert_eq!(decision(&json!({"status": status})).ok().map(|(is, _)| is), want, "{status}");
        }
    }
}
