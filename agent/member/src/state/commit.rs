//! How changes are written, and what is said and done when they are not taken.

use std::{pin::pin, sync::Arc, time::Duration};

use karmada_client::Backoff;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{
    Inner, RETRY, State, TOLD, VOIDED, WAITS,
    contents::may_be_lost,
    engine::Unwritten,
    stage::{Open, Staged},
};

/// What becomes of a state that cannot be written.
pub(super) const GOES_ON: &str =
    "a restart without the hub goes on with what was kept before, until the hub says something new";

/// Whether what is kept is good without these changes.
fn may_do_without(open: &Open, changes: &[Staged]) -> bool {
    let is_known = |(key, value): &Staged| match value {
        Some((_, digest)) => !open.differs(key, *digest),
        None => !open.digests.contains_key(key),
    };
    open.engine.outlasts_refusals() && changes.iter().all(|change| may_be_lost(&change.0) || is_known(change))
}

impl State {
    /// Writes changes for good. A place that does not answer is waited for, for a while. Where changes are not taken there is
    /// no state any more, and the member's Lease says so before anything is done by them; unless all of them may be lost.
    pub(super) async fn commit(&self, inner: &mut Inner, changes: Vec<Staged>, patience: Duration) {
        let Some(open) = inner.open.as_mut().filter(|_| !changes.is_empty()) else { return };
        let packed = open.packed(&changes).map(Arc::new);
        let (mut backoff, begun) = (Backoff::new(RETRY), Instant::now());
        let why = loop {
            let written = match &packed {
                Ok(packed) => {
                    let writes = open.engine.write(Arc::clone(packed));
                    self.telling("NotKept", begun, writes).await
                }
                Err(why) => Err(Unwritten::Refused(why.clone())),
            };
            let why = match written {
                Ok(left_out) => return self.is_kept(inner, changes, left_out),
                Err(Unwritten::Refused(why)) if may_do_without(open, &changes) => {
                    return self.is_troubled("NotKept", format!("{why}; {GOES_ON}"));
                }
                Err(Unwritten::Refused(why)) => break why,
                Err(Unwritten::Away(why)) => why,
            };
            if !self.parts.rights.may_apply() {
                self.park(inner);
                self.anew.wake();
                return;
            }
            if begun.elapsed() >= patience {
                break why;
            }
            if begun.elapsed() >= TOLD {
                self.is_troubled("NotKept", format!("{why}; {WAITS}"));
            }
            sleep(backoff.next(&self.parts.env)).await;
        };
        if !self.renounce().await {
            self.park(inner);
            self.anew.wake();
            return;
        }
        let left = match timeout(VOIDED, open.engine.void()).await {
            Ok(Ok(())) => "it is tried again",
            _ => "what was kept before could not be taken away, and counts no more; it is tried again",
        };
        inner.open = None;
        self.is_troubled(
            "NotKept",
            format!("{why}; {left}, and until then a restart without the hub knows nothing"),
        );
        self.anew.wake();
    }

    /// Changes were kept, but for those for which there was no room.
    fn is_kept(&self, inner: &mut Inner, changes: Vec<Staged>, left_out: Vec<String>) {
        let Inner { open: Some(open), left_out: lacking, .. } = inner else { return };
        for (key, _) in &changes {
            lacking.remove(key);
        }
        lacking.extend(left_out);
        // What was left out is not tried again before it changes.
        open.kept(changes);
        if open.counts() {
            let (stamp, note) = (open.engine.stamp(), &self.parts.note);
            note.say(&stamp.text());
            if !note.said().is_some_and(|said| said.starts_with(&format!("{}/", stamp.id))) {
                // Until it says so, nothing of this counts after a restart.
                note.urgent.wake();
            }
        }
        self.is_well(inner);
    }

    /// Everything is kept, but for what there is no room for.
    pub(super) fn is_well(&self, inner: &Inner) {
        let lacking = &inner.left_out;
        if lacking.is_empty() {
            self.troubles.lock().now = None;
            return;
        }
        let named: Vec<&str> = lacking.iter().take(5).map(String::as_str).collect();
        let why = format!(
            "there is no room for {} of what is wanted, which is not healed after a restart before the hub is heard: {}{}; give \
             the agent a volume and --state-dir, or fewer and smaller Works",
            lacking.len(),
            named.join(", "),
            if lacking.len() > named.len() { ", …" } else { "" }
        );
        self.is_troubled("TooLarge", why);
    }

    /// Waits for a place, and says so if it takes long.
    pub(super) async fn telling<T>(
        &self,
        reason: &'static str,
        since: Instant,
        answer: impl Future<Output = T>,
    ) -> T {
        let mut answer = pin!(answer);
        tokio::select! {
            biased;
            answer = &mut answer => return answer,
            () = sleep_until(since + TOLD) => {}
        }
        if self.troubles.lock().now.is_none() {
            self.is_troubled(reason, format!("its place does not answer; {WAITS}"));
        }
        answer.await
    }
}
