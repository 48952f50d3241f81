//! What `rollout` and `upgrade` have in common: both go out in waves, and take the same words.

use karmada_api::consts::extension;
use karmada_client::Resource;
use karmada_core::rollout::{Command, State, words};
use karmada_meta::object;
use karmada_objects::{Part, key::Key};
use serde_json::Value;

use super::{Failure, ask::Server};

/// Leaves a word for the hub on an object: about this revision, so that it does nothing to a newer one. Whether the object is there.
pub(super) async fn leave(
    server: &Server,
    (resource, key): (&Resource, &Key),
    command: Command,
    revision: &str,
) -> Result<bool, Failure> {
    let word = format!("{command} {revision}");
    let leave = |live: &mut Value| {
        object::set_annotation(live, extension::ROLLOUT_COMMAND, word.as_str());
        true
    };
    let written = server.objects.modify(resource, key, Part::Main, leave).await;
    Ok(written.map_err(|error| server.failure(&error))?.is_some())
}

/// A line for each wave.
pub(super) fn lines(state: &State) -> impl Iterator<Item = String> + '_ {
    (0..state.waves.len()).map(|at| words::line_of(state, at))
}

/// What a person has to say, if anything waits for that.
pub(super) fn next(state: &State) -> Option<String> {
    words::waits(state).then(|| format!("next: {} resume, abort or return", state.what.tool()))
}
