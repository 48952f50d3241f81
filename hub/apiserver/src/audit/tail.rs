//! What people have changed of late, as far as the log tells it: for whoever looks at the hub's page.
//!
//! Agents and the hub itself write all the time; what they do is in the log alone. Of each request a few short words are
//! kept, never a body.

use std::collections::VecDeque;

use karmada_meta::time::Time;
use parking_lot::Mutex;
use serde::Serialize;

use super::event::Event;
use crate::identity::{ANONYMOUS, UserInfo};

/// So many requests are kept.
const KEPT: usize = 100;
/// The longest word that is kept of one, in bytes.
const WORD: usize = 200;
/// What changes something. Others only look.
const CHANGES: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];
/// What is written for other reasons than to change anything, all the time.
const NOISE: [&str; 2] = ["events", "leases"];
/// What the names of the hub's own parts and of agents begin with.
const OWN: [&str; 2] = ["system:karmada", "system:apiserver"];

/// One request that was to change something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// When it came.
    pub at: Time,
    /// Who asked.
    pub user: String,
    /// As whom, if as somebody else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acting_as: Option<String>,
    /// What was asked for.
    pub verb: String,
    /// Of what: the resource with its group, namespace and name.
    pub of: String,
    /// The code of the answer.
    pub code: u16,
}

/// The last of them.
#[derive(Debug, Default)]
pub(super) struct Tail(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    last: VecDeque<Seen>,
    /// How many there have been.
    count: u64,
}

impl Tail {
    /// A request has ended.
    pub(super) fn note(&self, event: &Event<'_>) {
        let (Some(user), Some(object)) = (event.user, event.object) else { return };
        if !CHANGES.contains(&event.verb) || !is_of_people(user) || is_noise(&object.resource) {
            return;
        }
        let code = event.status.and_then(|status| status["code"].as_u64()).unwrap_or_default();
        // Whoever is refused has changed nothing, and could fill the page with words.
        if code >= 400 || event.uri.contains("dryRun=") {
            return;
        }
        let word = |text: &str| text[..text.floor_char_boundary(WORD)].to_owned();
        let group = if object.api_group.is_empty() { "" } else { "." };
        let part = if object.subresource.is_empty() { "" } else { "/" };
        let kind = format!("{}{group}{}{part}{}", object.resource, object.api_group, object.subresource);
        let key = [object.namespace.as_str(), &object.name];
        let key: Vec<_> = key.into_iter().filter(|text| !text.is_empty()).collect();
        let of = word(format!("{kind} {}", key.join("/")).trim_end());
        let seen = Seen {
            at: Time::from_system(event.received),
            user: word(&user.name),
            acting_as: event.impersonated.map(|other| word(&other.name)),
            verb: word(event.verb),
            of,
            code: u16::try_from(code).unwrap_or_default(),
        };
        let mut kept = self.0.lock();
        if kept.last.len() >= KEPT {
            kept.last.pop_front();
        }
        kept.last.push_back(seen);
        kept.count += 1;
    }

    /// The last `most`, the newest first.
    pub(super) fn last(&self, most: usize) -> Vec<Seen> {
        self.0.lock().last.iter().rev().take(most).cloned().collect()
    }

    /// How many there have been: another number says that the last are others.
    pub(super) fn count(&self) -> u64 {
        self.0.lock().count
    }
}

/// Whether somebody asks, or a program of theirs, and not the hub itself, an agent or a stranger.
fn is_of_people(user: &UserInfo) -> bool {
    user.name != ANONYMOUS && !OWN.iter().any(|own| user.name.starts_with(own))
}

fn is_noise(resource: &str) -> bool {
    NOISE.contains(&resource) || resource.ends_with("reviews")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use serde_json::{Value, json};

    use super::*;
    use crate::audit::{
        event::ObjectRef,
        policy::{Level, Stage},
    };

    #[test]
    fn what_people_change_is_kept_and_nothing_else() {
        let tail = Tail::default();
        let note_at = |uri: &str, name: &str, verb: &str, object: Option<&ObjectRef>, code: u16| {
            let (user, status): (_, Value) = (UserInfo::new(name, [""; 0]), json!({"code": code}));
            tail.note(&Event {
                level: Level::Metadata,
                id: "i",
                stage: Stage::ResponseComplete,
                uri,
                verb,
                user: Some(&user),
                impersonated: None,
                source_ips: &[],
                agent: "",
                object,
                status: Some(&status),
                request: None,
                response: None,
                received: SystemTime::UNIX_EPOCH,
                after: Duration::ZERO,
                annotations: &[],
            });
        };
        let note = |name: &str, verb: &str, object: Option<&ObjectRef>, code: u16| {
            note_at("/apis/apps/v1", name, verb, object, code);
        };
        let text = |text: &str| text.to_owned();
        let scale = ObjectRef {
            resource: text("deployments"),
            api_group: text("apps"),
            namespace: text("shop"),
            name: text("till"),
            subresource: text("scale"),
            ..ObjectRef::default()
        };
        note("ada", "patch", Some(&scale), 200);
        note("ada", "list", Some(&scale), 200);
        note("system:karmada:agent:m1", "patch", Some(&scale), 200);
        note("system:karmada-controller-manager", "create", Some(&scale), 201);
        let flux = "system:serviceaccount:flux:flux";
        note(flux, "create", Some(&ObjectRef { name: "é".repeat(300), ..scale.clone() }), 201);
        // None of these has changed anything.
        note("ada", "delete", Some(&scale), 403);
        note(ANONYMOUS, "create", Some(&scale), 201);
        note("ada", "post", None, 200);
        note_at("/apis/apps/v1?dryRun=All", "ada", "patch", Some(&scale), 200);
        for resource in ["events", "leases", "selfsubjectaccessreviews"] {
            note("ada", "create", Some(&ObjectRef { resource: text(resource), ..ObjectRef::default() }), 201);
        }
        let last = tail.last(9);
        let shown: Vec<_> = last.iter().map(|seen| (&*seen.user, &*seen.verb, seen.code)).collect();
        assert_eq!(shown, [(flux, "create", 201), ("ada", "patch", 200)]);
        assert_eq!(&*last[1].of, "deployments.apps/scale shop/till");
        assert!(last[0].of.len() <= WORD);
        (0..2 * KEPT).for_each(|_| note("ada", "delete", Some(&scale), 200));
        assert_eq!((tail.last(usize::MAX).len(), tail.last(1)[0].verb.as_str()), (KEPT, "delete"));
        assert!(tail.count() > KEPT as u64, "those that are not kept any more are counted");
    }
}
