//! The tasks of one agent, and how they end.

use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// Tasks, by how they end.
#[derive(Debug, Default)]
pub struct Tasks {
    /// End with the process; one that ends before has panicked.
    pub loops: JoinSet<()>,
    /// End by themselves once told to: by [`Tasks::last`], or a queue that is closed.
    pub drains: JoinSet<()>,
    /// Given when everything else is done.
    pub last: CancellationToken,
}

impl Tasks {
    /// Waits for a task that ends although it should not.
    pub async fn ended(&mut self) -> Result<(), JoinError> {
        tokio::select! {
            biased;
            Some(ended) = self.loops.join_next() => ended,
            Some(ended) = self.drains.join_next() => ended,
            else => std::future::pending().await,
        }
    }

    /// Lets what gives things back do so, for so long.
    pub async fn end(&mut self, limit: Duration) {
        self.last.cancel();
        let _ = tokio::time::timeout(limit, async { while self.drains.join_next().await.is_some() {} }).await;
    }
}

/// Waits for a condition, but not for ever.
pub async fn until(limit: Duration, done: impl Fn() -> bool) {
    let wait = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let _ = tokio::time::timeout(limit, wait).await;
}
