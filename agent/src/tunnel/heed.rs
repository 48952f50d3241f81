//! Which tunnels there are: the newest, by which the hub asks, and those that have said goodbye, until what was asked by them
//! has ended.

use std::{collections::VecDeque, pin::pin};

use karmada_client::latest;
use karmada_member::tunnel::Mode;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{
    Goodbye,
    dial::{Call, PATIENCE, PAUSE, Why, again},
};

/// So many that have said goodbye are kept, the newest ones. One that is used so long is rare.
const CLOSING: usize = 4;

/// A tunnel at work.
#[derive(Debug)]
pub(super) struct Serving {
    mode: Mode,
    /// Whether it has said goodbye.
    pub(super) goodbye: Goodbye,
    /// Ends with this.
    pub(super) task: JoinSet<()>,
}

impl Serving {
    pub(super) fn new(mode: Mode) -> Self {
        Self { mode, goodbye: Goodbye::default(), task: JoinSet::new() }
    }

    fn has_ended(&mut self) -> bool {
        while self.task.try_join_next().is_some() {}
        self.task.is_empty()
    }
}

/// All of them.
#[derive(Debug, Default)]
struct Held {
    newest: Option<Serving>,
    closing: VecDeque<Serving>,
}

impl Held {
    /// Whoever wants less of it is not kept waiting: those by which more might be asked end.
    fn follow(&mut self, call: Option<&Call>, given: Mode) {
        let Some(mode) = call.map(|call| call.mode(given)) else { return };
        self.newest = self.newest.take().filter(|serving| serving.mode == mode);
        self.closing.retain(|serving| serving.mode == mode);
    }

    /// The hub has taken another one. The one of before has broken, or it says goodbye.
    fn add(&mut self, serving: Serving) {
        self.closing.retain_mut(|serving| !serving.has_ended());
        let before = self.newest.replace(serving);
        if let Some(before) = before.filter(|before| before.goodbye.is_said()) {
            if self.closing.len() == CLOSING {
                self.closing.pop_front();
            }
            self.closing.push_back(before);
        }
    }
}

/// Answers each number once, until the last sender of calls is gone. `attempt` brings a connection by a number, and `serve` serves
/// the hub on it.
pub(super) async fn heed<T, F: Future<Output = Result<T, Why>>>(
    mut calls: latest::Receiver<Option<Call>>,
    given: Mode,
    may_report: impl Fn() -> bool,
    attempt: impl Fn(String) -> F,
    serve: impl Fn(T, Mode) -> Serving,
) {
    let mut held = Held::default();
    let mut answered: Option<Option<String>> = None;
    let mut not_before = Instant::now();
    loop {
        if calls.changed().await.is_err() {
            return;
        }
        held.follow(calls.borrow().as_ref(), given);
        beside(&calls, given, &mut held, sleep_until(not_before)).await;
        let Some(call) = calls.borrow_and_update().clone() else { continue };
        held.follow(Some(&call), given);
        let mode = call.mode(given);
        let news = answered.as_ref().is_some_and(|answered| *answered != call.number);
        answered = Some(call.number.clone());
        let Some(number) = call.number.filter(|_| news) else { continue };
        if mode == Mode::Off || !may_report() {
            continue;
        }
        not_before = Instant::now() + PAUSE;
        let until = Instant::now() + PATIENCE;
        let current = calls.clone();
        let is_wanted = || {
            let now = current.borrow();
            now.as_ref().is_some_and(|now| now.number.as_ref() == Some(&number) && now.mode(given) == mode)
        };
        let dialled = Box::pin(again(until, is_wanted, || attempt(number.clone())));
        match beside(&calls, given, &mut held, dialled).await {
            Ok(brought) => {
                held.add(serve(brought, mode));
                held.follow(calls.borrow().as_ref(), given);
            }
            Err(why) => tracing::warn!(why = why.text, "the hub asked for a tunnel, and there is none"),
        }
    }
}

/// Does something, while the tunnels that there are follow what the Cluster says.
async fn beside<T>(
    calls: &latest::Receiver<Option<Call>>,
    given: Mode,
    held: &mut Held,
    something: impl Future<Output = T>,
) -> T {
    let mut calls = calls.clone();
    let mut something = pin!(something);
    loop {
        tokio::select! {
            biased;
            changed = calls.changed() => {
                if changed.is_err() {
                    return something.await;
                }
            }
            done = something.as_mut() => return done,
        }
        held.follow(calls.borrow().as_ref(), given);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use karmada_api::consts::extension;
    use karmada_meta::object;
    use parking_lot::Mutex;
    use serde_json::json;
    use tokio::time::timeout;

    use super::*;

    /// How many tunnels are there.
    struct One(latest::Sender<usize>);

    impl One {
        fn new(count: &latest::Sender<usize>) -> Self {
            count.send_modify(|count| *count += 1);
            Self(count.clone())
        }
    }

    impl Drop for One {
        fn drop(&mut self) {
            self.0.send_modify(|count| *count -= 1);
        }
    }

    /// An agent whose hub takes it by each number but this.
    struct Agent {
        calls: latest::Sender<Option<Call>>,
        count: latest::Sender<usize>,
        goodbyes: Arc<Mutex<Vec<Goodbye>>>,
        _task: JoinSet<()>,
    }

    const NEVER: &str = "never";

    fn agent() -> Agent {
        let (calls, count) = (latest::Sender::new(None), latest::Sender::new(0));
        let (goodbyes, mut task) = (Arc::new(Mutex::new(Vec::new())), JoinSet::new());
        let (heard, open, said) = (calls.subscribe(), count.clone(), goodbyes.clone());
        let attempt = |number: String| async move {
            if number == NEVER {
                std::future::pending::<()>().await;
            }
            Ok(())
        };
        let serve = move |(), mode| {
            let mut serving = Serving::new(mode);
            said.lock().push(serving.goodbye.clone());
            let one = One::new(&open);
            serving.task.spawn(async move {
                std::future::pending::<()>().await;
                drop(one);
            });
            serving
        };
        task.spawn(heed(heard, Mode::Full, || true, attempt, serve));
        Agent { calls, count, goodbyes, _task: task }
    }

    impl Agent {
        fn call(&self, number: &str, wanted: &str) {
            let mut cluster = json!({"metadata": {}});
            object::set_annotation(&mut cluster, extension::TUNNEL_CALL, number);
            object::set_annotation(&mut cluster, extension::TUNNEL_WANTED, wanted);
            self.calls.send_replace(Some(Call::of(&cluster)));
        }

        /// So many have been begun, and so many are there, when all is done that can be done now.
        async fn has(&self, begun: usize, open: usize) {
            sleep_until(Instant::now() + 2 * PAUSE).await;
            assert_eq!((self.goodbyes.lock().len(), *self.count.borrow()), (begun, open));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_said_goodbye_is_used_to_its_end() {
        let agent = agent();
        // What was there before was meant for another process.
        agent.call("1", "full");
        agent.has(0, 0).await;
        agent.call("2", "full");
        agent.has(1, 1).await;
        agent.goodbyes.lock()[0].say();
        agent.call("3", "full");
        agent.has(2, 2).await;
        // The newest has broken, or the hub would not ask.
        agent.call("4", "full");
        agent.has(3, 2).await;
        // There is no end of them.
        for n in 3..3 + 2 * CLOSING {
            agent.goodbyes.lock()[n - 1].say();
            agent.call(&format!("n{n}"), "full");
            agent.has(n + 1, n.min(1 + CLOSING)).await;
        }
        // The Cluster wants less.
        agent.call("5", "off");
        agent.has(3 + 2 * CLOSING, 0).await;
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_wants_less_does_not_wait_for_a_hub_that_says_nothing() {
        let agent = agent();
        agent.call("1", "full");
        agent.has(0, 0).await;
        agent.call("2", "full");
        agent.has(1, 1).await;
        agent.call(NEVER, "full");
        agent.has(1, 1).await;
        let (begun, mut count) = (Instant::now(), agent.count.subscribe());
        agent.call(NEVER, "off");
        assert!(timeout(PATIENCE, count.wait_for(|count| *count == 0)).await.is_ok(), "it waits for the hub");
        assert!(begun.elapsed() < PAUSE, "{:?}", begun.elapsed());
    }
}
