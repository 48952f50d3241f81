//! What carries Works out, and lets it go on when something has changed.

use std::sync::Arc;

use karmada_client::{Wake, WorkQueue};

use crate::{state::State, works::sync::Executor};

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
