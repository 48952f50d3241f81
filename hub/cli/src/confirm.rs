//! `karmada-hub confirm-restore`: the hub counts as it is, although agents know more than it does.

use std::time::{Duration, UNIX_EPOCH};

use karmada_api::{conditions, consts::extension};
use karmada_core::taint_edits::Done;
use karmada_env::Env;
use karmada_meta::{object, time::Time};
use serde_json::{Value, json};

use super::{
    Failure,
    args::ConfirmRestoreArgs,
    ask::Server,
    cordon::{change, each},
    known,
};

/// Tells the agents of clusters, also of those that are away, that the hub counts as it is.
pub(super) async fn run(args: ConfirmRestoreArgs, env: Env) -> Result<(), Failure> {
    if args.all != args.names.is_empty() {
        return Err(Failure::usage("name clusters, or say --all"));
    }
    let server = Server::open(&args.server, &env)?;
    server.reach().await?;
    let clusters = known::clusters(&server).await?;
    known::check_names(&clusters, &args.names)?;
    let told = args.told;
    let names = if args.all { clusters.keys().cloned().collect() } else { args.names };
    let now = Time::from_system(server.now());
    each(&names, async |name| {
        let mark = |live: &mut Value, _| {
            let before = object::annotation(live, extension::CONFIRM_HUB).and_then(|time| time.parse().ok());
            object::set_annotation(live, extension::CONFIRM_HUB, after(now, before).to_string());
            Ok(Done::Modified)
        };
        change(&server, name, false, mark).await?;
        let status = clusters.get(name).and_then(|cluster| cluster.status.as_ref());
        let waits =
            status.is_some_and(|status| conditions::find(&status.conditions, extension::HUB_OLDER).is_some());
        let what =
            if waits { "its agent waits for it" } else { "its agent goes by it if it finds the hub older" };
        let line = format!("cluster/{name} confirmed ({what})");
        told.say(&line, &json!({"cluster": name, "result": "confirmed", "agentWaited": waits}))
    })
    .await
}

/// When it is confirmed: later than it was before, since nothing else counts. A clock may have been ahead then.
fn after(now: Time, before: Option<Time>) -> Time {
    let next = before.map(|before| before.timestamp().as_second().saturating_add(1));
    let next = next.and_then(|second| u64::try_from(second).ok());
    next.map_or(now, |second| now.max(Time::from_system(UNIX_EPOCH + Duration::from_secs(second))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confirmation_is_later_than_the_one_before() {
        let time = |text: &str| text.parse::<Time>().unwrap();
        let now = time("2026-01-01T00:00:00Z");
        // (before, what is written)
        let rows = [
            (None, now),
            (Some(time("2025-01-01T00:00:00Z")), now),
            (Some(now), time("2026-01-01T00:00:01Z")),
            (Some(time("2027-01-01T00:00:00Z")), time("2027-01-01T00:00:01Z")),
        ];
        for (before, want) in rows {
            assert_eq!(after(now, before), want, "{before:?}");
        }
    }
}
