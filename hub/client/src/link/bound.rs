//! Tasks that belong to a connection, and end with it.

use std::future::Future;

use tokio_util::sync::{CancellationToken, DropGuard};

/// Runs what belongs to a connection, until that ends. hyper keeps a connection's socket in a task of its own: letting go of
/// our end of it is not enough.
#[derive(Clone, Debug)]
pub struct Bound(CancellationToken);

impl Bound {
    /// Everything ends when the guard is dropped.
    pub fn new() -> (Self, DropGuard) {
        let over = CancellationToken::new();
        (Self(over.clone()), over.drop_guard())
    }

    /// Starts one.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let over = self.0.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = over.cancelled() => {}
                () = task => {}
            }
        });
    }
}

impl<F> hyper::rt::Executor<F> for Bound
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn nothing_outlives_the_connection() {
        let (bound, guard) = Bound::new();
        let (held, gone) = oneshot::channel::<()>();
        bound.spawn(async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        tokio::task::yield_now().await;
        drop(guard);
        assert!(gone.await.is_err());
        // Nor is anything begun.
        let (held, gone) = oneshot::channel::<()>();
        bound.spawn(async move {
            let _ = held.send(());
        });
        assert!(gone.await.is_err());
    }
}
