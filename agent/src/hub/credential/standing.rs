//! How we stand with the hub: for how long our certificate is good, what went wrong with its renewal, and clocks. Read by
//! health, metrics and the Cluster's conditions.

use std::time::SystemTime;

use karmada_api::consts::extension;
use karmada_meta::time::Time;
use parking_lot::Mutex;

use crate::{config::Troubles, hub::clock};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    inner: Mutex<Inner>,
    troubles: Troubles,
}

#[derive(Clone, Debug, Default)]
struct Inner {
    until: Option<SystemTime>,
    renewals: u64,
    errors: u64,
    refused: Option<String>,
    /// The one in use could not be kept.
    is_unkept: bool,
    /// Why there is none yet.
    waits: String,
    clock_ahead: Option<i64>,
}

/// Numbers, for a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) until: Option<SystemTime>,
    pub(crate) renewals: u64,
    pub(crate) errors: u64,
    pub(crate) clock_ahead: Option<i64>,
}

impl Standing {
    pub(crate) fn new(troubles: Troubles) -> Self {
        Self { troubles, ..Self::default() }
    }

    /// The certificate in use is good until then.
    pub(crate) fn holds(&self, until: Option<SystemTime>) {
        self.inner.lock().until = until;
    }

    /// It has been replaced.
    pub(crate) fn renewed(&self) {
        let mut inner = self.inner.lock();
        inner.renewals += 1;
        (inner.refused, inner.is_unkept) = (None, false);
        self.troubles.over(extension::CREDENTIAL_NOT_RENEWED);
    }

    /// The hub gives us no other; answers whether that is news.
    pub(crate) fn refused(&self, why: &str) -> bool {
        self.inner.lock().errors += 1;
        self.not_renewed("RenewalRefused", "the hub refuses to renew it", why)
    }

    /// Nobody has decided whether we get another one; answers whether that is news.
    pub(crate) fn undecided(&self, why: &str) -> bool {
        self.not_renewed("RenewalWaits", "it is not renewed yet", why)
    }

    /// Nobody was asked, since something is the matter here; answers whether that is news.
    pub(crate) fn failed_here(&self, why: &str) -> bool {
        self.not_renewed("RenewalFails", "the agent cannot ask for another", why)
    }

    /// The one in use cannot be kept; answers whether that is news.
    pub(crate) fn not_kept(&self, why: &str) -> bool {
        let what = "it cannot be kept, so that a restart begins with the one before";
        let is_news = self.not_renewed("NotKept", what, why);
        self.inner.lock().is_unkept = true;
        is_news
    }

    /// It is kept now.
    pub(crate) fn kept(&self) {
        let mut inner = self.inner.lock();
        if std::mem::take(&mut inner.is_unkept) {
            inner.refused = None;
            self.troubles.over(extension::CREDENTIAL_NOT_RENEWED);
        }
    }

    fn not_renewed(&self, reason: &'static str, what: &str, why: &str) -> bool {
        let mut inner = self.inner.lock();
        let until = inner.until.map(|until| Time::from_system(until).to_string()).unwrap_or_default();
        self.troubles.say(
            extension::CREDENTIAL_NOT_RENEWED,
            reason,
            format!("the agent's certificate ends at {until}, and {what}: {why}"),
        );
        inner.is_unkept = false;
        inner.refused.replace(why.to_owned()).is_none_or(|before| before != why)
    }

    /// We were given an invitation by which we cannot join, and go on with what we have.
    pub(crate) fn not_joined(&self, why: &str) {
        self.troubles.say(
            extension::INVITATION_NOT_TAKEN,
            "CannotJoin",
            format!("the agent goes on with the credential that it has, since it cannot join by the one it was given: {why}"),
        );
    }

    /// There is no such invitation any more.
    pub(crate) fn joined(&self) {
        self.troubles.over(extension::INVITATION_NOT_TAKEN);
    }

    /// The hub's clock is so many seconds ahead of ours.
    pub(crate) fn clock(&self, ahead: Option<i64>) {
        let mut inner = self.inner.lock();
        let before = std::mem::replace(&mut inner.clock_ahead, ahead).and_then(clock::differs);
        match ahead.and_then(clock::differs) {
            Some(why) => {
                if before.is_none() {
                    tracing::warn!("{why}");
                }
                // The words change with each second; one that was said is good enough.
                if !self.troubles.has(extension::CLOCK_SKEWED) {
                    self.troubles.say(extension::CLOCK_SKEWED, "ClocksDiffer", why);
                }
            }
            None => {
                if before.is_some() {
                    tracing::info!("our clock agrees with the hub's again");
                }
                self.troubles.over(extension::CLOCK_SKEWED);
            }
        }
    }

    /// There is none yet, and why; answers whether that is news.
    pub(crate) fn waits(&self, why: String) -> bool {
        let waits = &mut self.inner.lock().waits;
        let is_news = *waits != why;
        *waits = why;
        is_news
    }

    /// There is one.
    pub(crate) fn waits_no_more(&self) {
        self.inner.lock().waits.clear();
    }

    /// Why there is none yet; empty otherwise.
    pub(crate) fn waiting(&self) -> String {
        self.inner.lock().waits.clone()
    }

    /// What is wrong, for people, a line each.
    pub(crate) fn words(&self) -> String {
        let waits = self.waiting();
        let waits = Some(waits).filter(|why| !why.is_empty());
        let waits =
            waits.map(|why| format!("there is no credential for the hub yet: {}\n", why.replace('\n', " ")));
        let troubles = self.troubles.all().into_iter().map(|(_, _, message)| format!("{message}\n"));
        waits.into_iter().chain(troubles).collect()
    }

    pub(crate) fn figures(&self) -> Figures {
        let Inner { until, renewals, errors, clock_ahead, .. } = *self.inner.lock();
        Figures { until, renewals, errors, clock_ahead }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_until_it_is_over() {
        let troubles = Troubles::default();
        let standing = Standing::new(troubles.clone());
        standing.holds(Some(SystemTime::UNIX_EPOCH));
        assert!(standing.refused("no"));
        assert!(!standing.refused("no"), "the same is no news");
        assert!(standing.words().contains("1970-01-01T00:00:00Z, and the hub refuses to renew it: no"));
        assert!(standing.undecided("somebody has to approve it"));
        assert!(!standing.undecided("somebody has to approve it"));
        assert!(
            standing.words().contains("and it is not renewed yet: somebody has to"),
            "{}",
            standing.words()
        );
        standing.clock(Some(7200));
        standing.clock(Some(7260));
        assert!(standing.words().contains("2h0m0s behind"), "{}", standing.words());
        assert_eq!(troubles.all().len(), 2);
        standing.not_joined("a wrong hash");
        assert!(standing.words().contains("by the one it was given: a wrong hash"), "{}", standing.words());
        standing.joined();
        standing.clock(Some(3));
        standing.renewed();
        assert_eq!(standing.words(), "");
        assert!(standing.failed_here("no key") && standing.not_kept("a full disk"));
        assert!(!standing.not_kept("a full disk"));
        assert!(standing.words().contains("begins with the one before: a full disk"), "{}", standing.words());
        standing.kept();
        assert!(
            standing.waits("the hub is away".to_owned()) && !standing.waits("the hub is away".to_owned())
        );
        assert_eq!(standing.words(), "there is no credential for the hub yet: the hub is away\n");
        standing.waits_no_more();
        assert_eq!(standing.words(), "");
        let figures = standing.figures();
        assert_eq!((figures.renewals, figures.errors, figures.clock_ahead), (1, 2, Some(3)));
    }
}
