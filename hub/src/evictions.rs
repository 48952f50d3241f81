//! What the controllers that evict share: settings, the pace, and who is asked before an eviction begins.

use std::{fmt, sync::Arc, time::Duration};

use karmada_core::evict::{Allowance, Ask, Pace, Settings};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

/// Who is asked before an eviction begins: a brake, a budget. It answers from what it knows, without waiting.
pub(crate) trait Judge: Send + Sync {
    /// Whether the eviction may begin now.
    fn ask(&self, ask: &Ask<'_>) -> Allowance;
    /// An eviction that was granted has been written.
    fn began(&self, ask: &Ask<'_>);
}

/// Lets everything begin.
struct Anything;

impl Judge for Anything {
    fn ask(&self, _: &Ask<'_>) -> Allowance {
        Allowance::Granted
    }

    fn began(&self, _: &Ask<'_>) {}
}

/// How this hub evicts.
pub(crate) struct Evictions {
    pub(crate) settings: Settings,
    pace: Mutex<Pace>,
    judge: RwLock<Arc<dyn Judge>>,
    lifted: Notify,
}

impl fmt::Debug for Evictions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Evictions").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Evictions {
    /// Evictions that nobody holds up.
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            pace: Mutex::new(Pace::new(settings.rate)),
            judge: RwLock::new(Arc::new(Anything)),
            lifted: Notify::new(),
        }
    }

    /// From now on `judge` is asked.
    #[expect(dead_code, reason = "until there is a brake")]
    pub(crate) fn judged_by(&self, judge: Arc<dyn Judge>) {
        *self.judge.write() = judge;
    }

    /// Whoever waits because an eviction was held may ask again.
    #[expect(dead_code, reason = "until there is a brake")]
    pub(crate) fn lift(&self) {
        self.lifted.notify_waiters();
    }

    /// Resolves when held evictions are worth another question.
    pub(crate) async fn lifted(&self) {
        self.lifted.notified().await;
    }

    /// Asks the judge.
    pub(crate) fn ask(&self, ask: &Ask<'_>) -> Allowance {
        self.judge.read().clone().ask(ask)
    }

    /// Tells the judge of an eviction that was written.
    pub(crate) fn began(&self, ask: &Ask<'_>) {
        self.judge.read().clone().began(ask);
    }

    /// The monotonic time at which the next eviction may begin.
    pub(crate) fn slot(&self, now: Duration) -> Duration {
        self.pace.lock().take(now)
    }
}
