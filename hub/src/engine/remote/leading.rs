//! Whether this hub leads, for a page of figures.

use std::fmt;

use karmada_client::latest;
use karmada_telemetry::metrics::{Sheet, Source};

use super::Phase;

/// Whether a hub that others may lead instead of leads.
#[derive(Clone, Debug)]
pub struct Leading(latest::Receiver<Phase>);

impl Leading {
    /// A hub in this phase.
    pub fn new(phase: latest::Receiver<Phase>) -> Self {
        Self(phase)
    }
}

impl Source for Leading {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let leads = self.0.borrow().leads();
        let row = ([("name", "karmada-hub")], if leads { 1.0 } else { 0.0 });
        sheet.gauge("leader_election_master_status", "1 while this hub leads.", [row])
    }
}
