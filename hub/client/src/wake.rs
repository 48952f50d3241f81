//! "Try again now": the one signal that cuts waits short.
//!
//! A link that comes back wakes everything that was waiting out a backoff because of it. Waking is level-free: whoever
//! subscribes later does not see earlier wakes.

use crate::latest;

/// A signal that any number of waiters can hear. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Wake(latest::Sender<u64>);

impl Default for Wake {
    fn default() -> Self {
        Self(latest::Sender::new(0))
    }
}

impl Wake {
    /// A signal nobody has given yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes every waiter.
    pub fn wake(&self) {
        self.0.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// How often it was given: whoever remembers that can tell whether it was since.
    pub fn given(&self) -> u64 {
        *self.0.borrow()
    }

    /// An ear for wakes from now on.
    pub fn listen(&self) -> Listener {
        let mut receiver = self.0.subscribe();
        receiver.mark_unchanged();
        Listener { receiver, _keep: self.clone() }
    }
}

/// Hears the wakes of one [`Wake`].
#[derive(Clone, Debug)]
pub struct Listener {
    receiver: latest::Receiver<u64>,
    // With a sender of its own a listener never sees the channel close, which would look like a wake that repeats.
    _keep: Wake,
}

impl Listener {
    /// Resolves at the next wake, or at once if there was one since the last call. Cancel-safe.
    pub async fn woken(&mut self) {
        if self.receiver.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Forgets wakes that were not waited for.
    pub fn clear(&mut self) {
        self.receiver.mark_unchanged();
    }
}
