//! What a disk is asked for beside the thread that does everything else, and not waited for without end.

use std::{path::Path, sync::Arc, time::Duration};

use tokio::{
    sync::{Mutex, oneshot},
    task::JoinHandle,
    time::timeout,
};

/// How long the disk may take.
const LIMIT: Duration = Duration::from_secs(10);

/// A disk, or a part of it. One thing at a time: clones wait for each other, so that one that hangs takes one thread.
#[derive(Clone, Debug)]
pub struct Disk {
    /// What has not ended in time. Nothing else is begun before.
    busy: Arc<Mutex<Option<JoinHandle<()>>>>,
    limit: Duration,
}

impl Default for Disk {
    fn default() -> Self {
        Self { busy: Arc::default(), limit: LIMIT }
    }
}

impl Disk {
    /// Does some work on it; `place` is what errors name.
    ///
    /// # Errors
    /// The disk does not answer in time. What was begun goes on.
    pub async fn run<T: Send + 'static>(
        &self,
        place: &Path,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        let late = |_| format!("{}: the disk does not answer", place.display());
        let mut busy = timeout(self.limit, self.busy.lock()).await.map_err(late)?;
        if let Some(running) = busy.as_mut() {
            // However it ended, it has.
            let _ = timeout(self.limit, running).await.map_err(late)?;
        }
        let (done, answer) = oneshot::channel();
        *busy = Some(tokio::task::spawn_blocking(move || {
            // Whoever asked may have gone on without.
            let _ = done.send(work());
        }));
        let answer = timeout(self.limit, answer).await.map_err(late)?;
        *busy = None;
        answer.map_err(|_| format!("{}: the work ended in a panic", place.display()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_disk_that_hangs_is_not_waited_for_and_nothing_is_begun_beside() {
        let busy: Arc<_> = Arc::default();
        let disk = |limit| Disk { busy: Arc::clone(&busy), limit: Duration::from_millis(limit) };
        let nowhere = Path::new("/nowhere");
        let (free, hangs) = mpsc::channel::<()>();
        let first = disk(20).run(nowhere, move || hangs.recv().is_ok()).await;
        assert!(first.unwrap_err().contains("/nowhere: the disk does not answer"));
        assert!(disk(20).run(nowhere, || ()).await.is_err(), "the other one has not ended");
        free.send(()).unwrap();
        assert_eq!(disk(10_000).run(nowhere, || 7).await, Ok(7));
    }
}
