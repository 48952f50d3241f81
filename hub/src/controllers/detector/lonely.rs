//! What misses its counterpart: templates without a policy, policies without templates. It is said once of each
//! generation, also across starts of the hub.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use karmada_api::consts::event;
use karmada_meta::{object, time::Time};
use karmada_objects::kinds;
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::{known::heads::TemplateHead, write::Writer};

/// How long a template may be without a policy, or a policy without templates, before an event says so: people
/// apply both at once, in either order.
const GRACE: Duration = Duration::from_secs(3);

/// How long Events are kept. What an earlier hub has said before that has been forgotten by the API, not by people.
const EVENT_LIFE: Duration = Duration::from_secs(60 * 60);

/// What is said of a template without a policy, in Karmada's words.
pub(super) const NO_POLICY: &str = "No policy match for resource";

/// Something that misses its counterpart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lonely {
    /// Since a monotonic time.
    Since(Duration),
    /// An event has said so.
    Told,
}

/// What is to be done about something lonely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// Say it.
    Tell,
    /// Look again after a while.
    Wait(Duration),
    /// It was said.
    Quiet,
}

impl Lonely {
    pub(super) fn patience(&mut self, now: Duration) -> Patience {
        match *self {
            Self::Told => Patience::Quiet,
            Self::Since(since) => match GRACE.checked_sub(now.saturating_sub(since)) {
                Some(left) if !left.is_zero() => Patience::Wait(left),
                _ => {
                    *self = Self::Told;
                    Patience::Tell
                }
            },
        }
    }
}

/// Which one of an object's generations something is said of. Kinds without generations have a digest of what users
/// decide.
pub(super) fn turn(live: &Value) -> u64 {
    match u64::try_from(object::generation(live)) {
        Ok(generation) if generation > 0 => generation,
        _ => TemplateHead::project(live).content,
    }
}

/// When an object last changed but for its status: what its managed fields say, or when it was made.
fn last_change(live: &Value) -> Option<Time> {
    let fields = live.pointer("/metadata/managedFields").and_then(Value::as_array);
    let written = fields.into_iter().flatten().filter(|entry| entry["subresource"] != "status");
    let times = written.filter_map(|entry| entry["time"].as_str()?.parse().ok());
    times.chain(object::creation_timestamp(live)).max()
}

/// What hubs before this one have said about templates without a policy.
#[derive(Debug)]
pub(super) struct Earlier {
    /// When this hub began.
    began: SystemTime,
    /// The uids of templates, and when it was said of them. Read from the API's Events when it is first wanted.
    told: OnceCell<BTreeMap<String, Time>>,
}

impl Earlier {
    pub(super) fn new(began: SystemTime) -> Self {
        Self { began, told: OnceCell::new() }
    }

    /// Whether an earlier hub has said of this generation of a template that it has no policy.
    pub(super) async fn has_told(&self, writer: &Writer, live: &Value) -> bool {
        let Some(changed) = last_change(live) else { return false };
        if changed > Time::from_system(self.began) {
            return false;
        }
        if changed.elapsed(self.began) > EVENT_LIFE {
            return true;
        }
        let told = self.told.get_or_init(|| read(writer)).await;
        told.get(object::uid(live)).is_some_and(|told| *told >= changed)
    }
}

/// Reads what stands in the API's Events. Where they cannot be read, things are said once more.
async fn read(writer: &Writer) -> BTreeMap<String, Time> {
    let mut told = BTreeMap::new();
    let selector = format!("reason={}", event::APPLY_POLICY_FAILED);
    let take = |page: Vec<Value>| {
        for event in page.iter().filter(|event| event["message"] == NO_POLICY) {
            let last: Option<Time> = event["lastTimestamp"].as_str().and_then(|time| time.parse().ok());
            if let (Some(uid), Some(last)) = (event["involvedObject"]["uid"].as_str(), last) {
                let known = told.entry(uid.to_owned()).or_insert(last);
                *known = last.max(*known);
            }
        }
    };
    if let Err(error) = writer.objects.list_by_fields(&kinds::EVENTS, None, &selector, take).await {
        tracing::info!(%error, "earlier events could not be read; templates without a policy are named once more");
    }
    told
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn loneliness_is_told_once_and_not_at_once() {
        let at = Duration::from_secs;
        let mut lonely = Lonely::Since(at(10));
        assert_eq!(lonely.patience(at(11)), Patience::Wait(at(2)));
        assert_eq!(lonely.patience(at(13)), Patience::Tell);
        assert_eq!(lonely.patience(at(14)), Patience::Quiet);
    }

    #[test]
    fn a_status_is_no_change_and_no_turn() {
        let made = "2026-01-01T00:00:00Z";
        let with = |entries: Value, generation: i64, data: &str| {
            json!({"metadata": {"name": "x", "creationTimestamp": made, "managedFields": entries,
                                "generation": generation}, "data": data})
        };
        let status = json!([{"subresource": "status", "time": "2026-03-01T00:00:00Z"}]);
        let spec = json!([{"time": "2026-02-01T00:00:00Z"}, {"time": "2026-01-01T00:00:00Z"}]);
        for (entries, want) in [(json!([]), made), (status, made), (spec, "2026-02-01T00:00:00Z")] {
            let changed = last_change(&with(entries, 1, "a")).map(|time| time.to_string());
            assert_eq!(changed.as_deref(), Some(want));
        }
        let turns = |a: (i64, &str), b: (i64, &str)| {
            turn(&with(json!([]), a.0, a.1)) == turn(&with(json!([]), b.0, b.1))
        };
        assert!(turns((3, "a"), (3, "b")) && !turns((3, "a"), (4, "a")));
        assert!(turns((0, "a"), (0, "a")) && !turns((0, "a"), (0, "b")));
    }
}
