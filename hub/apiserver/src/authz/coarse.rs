//! The rules of whoever has no store to follow: what every server's roles say of those whom it knows without any.

use super::{
    agent,
    apart::Apart,
    attributes::{Attributes, Authorizer, Decision, Right, Rights, Target, owned},
};
use crate::{
    identity::{AUTHENTICATED, MONITORING, UserInfo},
    pki::MASTERS,
    request::is_health,
};

/// Administrators may do everything, agents what is their own, everyone what the default roles say.
#[derive(Clone, Copy, Debug, Default)]
pub struct Coarse;

impl Authorizer for Coarse {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let user = attributes.user;
        if user.in_group(MASTERS) {
            return Decision::Allow;
        }
        if let Some(apart) = Apart::of(user) {
            return apart.authorize(attributes);
        }
        let scrapes = match attributes.target {
            Target::Path(path) => {
                matches!(attributes.verb, "get" | "head")
                    && user.in_group(MONITORING)
                    && (path == "/metrics" || is_health(path))
            }
            Target::Resource(_) => false,
        };
        if scrapes || agent::is_everyones(attributes) { Decision::Allow } else { Decision::NoOpinion }
    }

    fn authorize_name(&self, attributes: &Attributes<'_>) -> Decision {
        Apart::of(attributes.user).map_or(Decision::Allow, |apart| apart.authorize_name(attributes))
    }

    fn rights(&self, user: &UserInfo, namespace: &str) -> Rights {
        let mut rights = Rights::default();
        if user.in_group(MASTERS) {
            let all = || owned(&["*"]);
            rights.resources.push(Right { verbs: all(), groups: all(), resources: all(), names: Vec::new() });
            rights.paths.push((all(), all()));
        } else if let Some(apart) = Apart::of(user) {
            return apart.rights(user, namespace);
        }
        if user.in_group(MONITORING) {
            rights.paths.push((owned(&["get"]), owned(&["/metrics", "/healthz/*", "/livez/*", "/readyz/*"])));
        }
        agent::add_everyones(user.in_group(AUTHENTICATED), &mut rights);
        rights
    }
}
