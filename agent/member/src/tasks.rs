//! The tasks of one agent, and those of them that carry Works out.

use std::{sync::Arc, time::Duration};

use karmada_client::{Wake, WorkQueue};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{state::State, works::sync::Executor};

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

/// Lets watches on the member go by the versions that it serves.
pub(crate) async fn follow_versions(executor: Arc<Executor>) {
    let mut changes = executor.discovery.changes();
    loop {
        changes.woken().await;
        if let Some(apis) = executor.discovery.known() {
            executor.observer.serves(&apis);
        }
    }
}

/// Lets what waits have its turn when the member is back.
pub(crate) async fn hurry(back: Wake, queue: WorkQueue<String>) {
    let mut back = back.listen();
    loop {
        back.woken().await;
        queue.retry_all_now();
    }
}

/// One worker: carries out Works, one at a time, until the queue is closed.
pub(crate) async fn carry_out(executor: Arc<Executor>, state: Arc<State>, queue: WorkQueue<String>) {
    let rights = &executor.rights;
    while let Some(item) = queue.next().await {
        rights.applying().await;
        state.ready().await;
        let name = item.clone();
        let working = rights.at_work();
        // In a box, as elsewhere where one waits most of the time: it takes ten thousand bytes.
        let again = Box::pin(executor.sync(&name)).await;
        drop(working);
        if again.failed {
            queue.retry_after(name.clone(), again.pause);
        } else {
            queue.forget(&name);
        }
        if let Some(after) = again.after {
            queue.add_after(name, after);
        }
    }
}
