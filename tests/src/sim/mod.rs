//! Fleets that live through what a seed has in store for them, judged after every step.
//!
//! ```text
//!   seed ─▶ Plan ─▶ Driver ─▶ World: hub, agents, links, machines, members
//!                     │                  │ every change on a member, every decision of the hub
//!                     │  what users want ▼
//!                     └────────────▶ Ledger ─▶ story, verdict
//! ```
//!
//! [`plan`] is data: who is there, what is wanted, which faults begin and end when. The driver carries it out in one
//! runtime under paused time. What must always hold is judged by the [`ledger`] as things happen:
//!
//! - nothing goes from a member, or shrinks there, without a reason that somebody gave on the hub;
//! - nothing goes from a member, or comes to it, for what the hub says of another machine that has its name;
//! - nothing is placed outside of its policy;
//! - what is fenced never runs on two members, Pods that are still ending included, unless no agent runs on one of them, or it has left, or the hub is one
//!   that was made anew of a copy in which the other is not;
//! - what is evicted goes only when as many replicas are ready elsewhere as were before, up to what is wanted, unless a
//!   user drives it away, or it does not do its job, and the grace period is over, or a user drives it away and there is
//!   no other place, or its policy says Directly and its cluster can be heard;
//! - what is evicted where its policy says Never stays until a user says otherwise;
//! - no cluster is taken for lost that could have been heard;
//! - an endpoint that a provider has does not go from a consumer that knows it, whoever is silent or begins anew, and is there once;
//! - what an agent tells of a Service that its cluster does not provide reaches nobody;
//! - nothing is scaled down on silence, nor twice for one time of a clock ([`scalers`]).
//!
//! And what must come to be, once every fault has ended, by [`agree`]: wishes, bindings, Works, members and reports
//! agree within a bounded time, and so once more after everything was asked to change.
//!
//! What a seed has in store changes when [`Plan::of`] does. Plans that have found something once are kept in [`found`].
//!
//! That all this finds something is shown by `tests/mutations`: known mistakes, put back into the code one by one.

mod agree;
mod driver;
pub mod found;
mod hub;
pub mod ledger;
mod member;
pub mod plan;
mod scalers;
mod services;
mod stranger;

use std::{any::Any, fmt, panic::AssertUnwindSafe, sync::Arc};

use tokio::runtime::Runtime;

pub use self::driver::Outcome;
use self::{driver::Driver, ledger::Ledger, plan::Plan};
use crate::ground::Ground;

/// A seed whose run went wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which.
    pub seed: u64,
    /// What.
    pub wrong: Vec<String>,
    /// What was to happen, and what did.
    pub story: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.story)?;
        for wrong in &self.wrong {
            writeln!(f, "seed {}: {wrong}", self.seed)?;
        }
        write!(f, "again: cargo run -p karmada-tests --example simulate -- --seed {} --story", self.seed)
    }
}

/// What came of a seed, and its story.
pub type Verdict = (Result<Outcome, Box<Failure>>, String);

/// Lives through a seed in a runtime of its own, made by `runtime`: on one thread, with paused time.
pub fn simulate(seed: u64, ground: &Arc<Ground>, runtime: impl FnOnce() -> Runtime) -> Verdict {
    live(&Plan::of(seed), ground, runtime)
}

/// The same with a plan.
pub fn live(plan: &Plan, ground: &Arc<Ground>, runtime: impl FnOnce() -> Runtime) -> Verdict {
    let (seed, runtime) = (plan.seed, runtime());
    let ledger = runtime.block_on(async { Ledger::new() });
    let run = AssertUnwindSafe(|| {
        runtime.block_on(async {
            let driver = Driver::new(plan, Arc::clone(ground), Arc::clone(&ledger)).await;
            driver.run(plan).await
        })
    });
    let outcome = std::panic::catch_unwind(run).map_err(|panic| text(&*panic));
    // Tasks that are dropped with the runtime may look at its clock.
    let story = runtime.block_on(async { format!("{plan}{}", ledger.story()) });
    let mut wrong = ledger.verdict();
    drop(runtime);
    match outcome {
        Ok(outcome) if wrong.is_empty() => (Ok(outcome), story),
        outcome => {
            wrong.extend(outcome.err().map(|panic| format!("panicked: {panic}")));
            (Err(Box::new(Failure { seed, wrong, story: story.clone() })), story)
        }
    }
}

fn text(panic: &(dyn Any + Send)) -> String {
    let known = panic.downcast_ref::<String>().cloned();
    known.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default()
}
