//! A watch of something on the hub, for as long as the hub is the one that it was.
//!
//! ```text
//!   renewals, answers, the ledger ─▶ Fence::doubts ─┐
//!   a watch that went back ─▶ Fence::went_back ─────┴─▶ another life of the hub ─▶ every HubWatch lists anew
//! ```
//!
//! Revisions of different lives do not compare, and what was said in an earlier one is not this hub's word: it is not a
//! reason to delete anything. So whoever notices that the hub is another tells the fence, and hears of it here.

use std::{sync::Arc, time::Duration};

use karmada_client::{
    Event, Rest, WatchConfig, Watcher,
    wake::Listener,
    watch::{Lister, Projection},
};
use karmada_env::Env;
use karmada_member::Fence;

/// How often a quiet watch of the hub says where it stands: each time is paid for on some links, and what the hub keeps of the
/// past is longer.
const BOOKMARKS: Duration = Duration::from_secs(300);

/// How long one is asked to last: to ask again costs some 350 bytes. kube-apiserver's own limit is 30 minutes at least.
const SESSION: Duration = Duration::from_secs(1500);

/// See the module.
pub(crate) struct HubWatch<T> {
    hub: Rest,
    config: WatchConfig,
    env: Env,
    project: Projection<T>,
    lister: Option<Lister<T>>,
    fence: Arc<Fence>,
    relists: Listener,
    watcher: Watcher<T>,
    /// The watcher's own count of histories.
    history: u64,
    life: u64,
}

impl<T: 'static> HubWatch<T> {
    /// A watch that starts with a full list.
    pub(crate) fn new(
        hub: Rest,
        config: WatchConfig,
        env: Env,
        fence: Arc<Fence>,
        project: impl Fn(&str) -> Result<T, String> + Send + Sync + 'static,
    ) -> Self {
        let project: Projection<T> = Arc::new(project);
        let config = WatchConfig { session: SESSION, ..config.seldom(BOOKMARKS) };
        // Before the life is looked at: a doubt in between is heard.
        let relists = fence.relists();
        let life = fence.life();
        let watcher = watcher(&hub, &config, &env, &project, None);
        let history = watcher.history();
        Self { hub, config, env, project, lister: None, fence, relists, watcher, history, life }
    }

    /// Lists in this way, where that goes.
    pub(crate) fn list_by(mut self, lister: Lister<T>) -> Self {
        self.watcher = self.watcher.list_by(Arc::clone(&lister));
        self.lister = Some(lister);
        self
    }

    /// The next event. Cancel-safe, and never ends.
    pub(crate) async fn next(&mut self) -> Event<T> {
        loop {
            let event = tokio::select! {
                biased;
                () = self.relists.woken() => {
                    self.life = self.fence.life();
                    self.watcher =
                        watcher(&self.hub, &self.config, &self.env, &self.project, self.lister.as_ref());
                    self.history = self.watcher.history();
                    continue;
                }
                event = self.watcher.next() => event,
            };
            let history = self.watcher.history();
            if history != self.history {
                // It lists anew as it is, and this is where the list begins.
                self.history = history;
                self.fence.went_back(self.life);
                self.relists.clear();
                self.life = self.fence.life();
            }
            return event;
        }
    }

    /// The life of the hub in which the last event was told.
    pub(crate) fn life(&self) -> u64 {
        self.life
    }
}

fn watcher<T: 'static>(
    hub: &Rest,
    config: &WatchConfig,
    env: &Env,
    project: &Projection<T>,
    lister: Option<&Lister<T>>,
) -> Watcher<T> {
    let project = Arc::clone(project);
    let watcher = Watcher::over(hub.clone(), config.clone(), env.clone(), move |text| project(text));
    match lister {
        Some(lister) => watcher.list_by(Arc::clone(lister)),
        None => watcher,
    }
}
