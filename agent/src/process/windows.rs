//! Being there when the link is.

use std::time::{Duration, SystemTime};

use karmada_client::link::LinkStatus;
use karmada_core::windows::{Stand, Windows};
use karmada_env::Env;

/// How often it is looked whether an open window has closed.
const LOOK: Duration = Duration::from_secs(10);

/// The longest that is slept before a clock is looked at again.
const NAP: Duration = Duration::from_secs(300);

/// Tries at once when the link is to be there.
pub(super) async fn be_there(windows: Windows, link: LinkStatus, env: Env) {
    loop {
        match windows.at(env.wall()) {
            Stand::Open(_) => tokio::time::sleep(LOOK).await,
            Stand::Shut(until) => {
                let until = SystemTime::from(until.timestamp());
                // Clocks are set, and machines sleep: it is looked again now and then.
                let left = until.duration_since(env.wall()).unwrap_or_default();
                tokio::time::sleep(left.min(NAP)).await;
                if matches!(windows.at(env.wall()), Stand::Open(_)) {
                    link.kick();
                }
            }
        }
    }
}
