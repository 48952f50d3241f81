//! What reports may cost on a link whose bytes are paid for.

use std::{sync::Arc, time::Duration};

use karmada_core::links::{Budget, Matter};
use karmada_env::Env;
use parking_lot::Mutex;

/// What a request costs beside its body, about: headers, frames, records, and the answer.
const AROUND: u64 = 400;

/// Bytes that reports may take, all of them together. Without a bound on links that cost nothing. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Spending(Option<(Arc<Mutex<Budget>>, Env)>);

impl Spending {
    /// So many bytes in an hour.
    pub fn hourly(bytes: u64, env: Env) -> Self {
        Self(Some((Arc::new(Mutex::new(Budget::new(bytes, env.now()))), env)))
    }

    /// Takes the bytes of a request with this body.
    ///
    /// # Errors
    /// For how long it has to wait.
    pub(crate) fn take(&self, body: usize, matter: Matter) -> Result<(), Duration> {
        let Some((budget, env)) = &self.0 else { return Ok(()) };
        budget.lock().take(AROUND + body as u64, matter, env.now())
    }

    /// What is left, and what there is in an hour, if there is a bound.
    pub fn left(&self) -> Option<(u64, u64)> {
        let (budget, env) = self.0.as_ref()?;
        let budget = budget.lock();
        Some((budget.left(env.now()), budget.hourly()))
    }
}
