//! How much is stored, by whose it is, and how much more may be.
//!
//! ```text
//!            0                       1/1 less 1/8        1/1         1/1 plus 1/8
//!   whole    ├── a guest's growth ──────┤                 │               │
//!            ├── everybody else's growth, a guest's upkeep┤               │
//!            ├── everybody else's upkeep ─────────────────────────────────┤
//!   account  ├── a guest's growth ────────────────────────┤               │
//!            ├── a guest's upkeep ────────────────────────────────────────┤
//! ```
//!
//! What makes nothing grow is never refused. Upkeep is what has to go on when there is no room left: deletions, which may
//! need a few bytes before they free many, status, leases. A guest is a writer who answers for an account; the writes of
//! others in the same account count there and are not bound by it. So a guest that fills what it may fill leaves room for
//! the others, and everybody's growth leaves room for upkeep.
//!
//! Everything stored is in memory, so this also bounds what a start loads: see [`crate::HistoryLimits`] for the rest of
//! it.

use std::{fmt, sync::Arc};

use imbl::OrdMap;

use crate::{
    entry::{Account, Entry},
    state::State,
};

/// What is set aside: one part of so many of a limit.
const SHARE: u64 = 8;

/// What a commit is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// To store more.
    #[default]
    Growth,
    /// What has to go on when there is no room left.
    Upkeep,
}

/// On which terms a commit may make the store grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// What it is for.
    pub purpose: Purpose,
    /// Who writes is bound by the accounts of what they write.
    pub guest: bool,
}

/// What there is of something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Values.
    pub values: u64,
    /// What they take, in bytes.
    pub bytes: u64,
}

/// Which limit a commit would have broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// The account; none: the whole store.
    pub account: Option<Arc<str>>,
    /// Bytes that are stored there.
    pub used: u64,
    /// Bytes that may be stored there on the terms of the commit.
    pub limit: u64,
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { account, used, limit } = self;
        match account {
            Some(account) => write!(f, "{account} takes {used} of {limit} bytes"),
            None => write!(f, "{used} of {limit} bytes are used"),
        }
    }
}

/// The bytes that a limit allows on these terms; 0: any number.
const fn allowed(limit: u64, of_account: bool, terms: Terms) -> u64 {
    let part = limit / SHARE;
    match (of_account, terms.guest, terms.purpose) {
        (true, _, Purpose::Upkeep) | (false, false, Purpose::Upkeep) => limit.saturating_add(part),
        (true, _, Purpose::Growth) | (false, true, Purpose::Upkeep) | (false, false, Purpose::Growth) => {
            limit
        }
        (false, true, Purpose::Growth) => limit - part,
    }
}

/// Whether something that takes `before` may take `after`. Pure.
///
/// # Errors
/// What is allowed.
pub(crate) const fn judge(
    limit: u64,
    of_account: bool,
    terms: Terms,
    before: u64,
    after: u64,
) -> Result<(), u64> {
    let allowed = allowed(limit, of_account, terms);
    if limit == 0 || after <= before || after <= allowed { Ok(()) } else { Err(allowed) }
}

/// What is used, in all, by resource and by account. Copies share their structure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// In all.
    pub whole: Usage,
    /// By resource.
    pub resources: OrdMap<Arc<str>, Usage>,
    /// By account.
    pub accounts: OrdMap<Arc<str>, Usage>,
}

impl Used {
    /// What a state takes, counted anew.
    pub(crate) fn of<H>(state: &State<H>) -> Self {
        let mut used = Self::default();
        state.entries().for_each(|entry| used.add(entry));
        used
    }

    pub(crate) fn add<H>(&mut self, entry: &Entry<H>) {
        self.change(entry, |usage, bytes| Usage { values: usage.values + 1, bytes: usage.bytes + bytes });
    }

    pub(crate) fn take<H>(&mut self, entry: &Entry<H>) {
        self.change(entry, |usage, bytes| Usage {
            values: usage.values.saturating_sub(1),
            bytes: usage.bytes.saturating_sub(bytes),
        });
    }

    fn change<H>(&mut self, entry: &Entry<H>, change: impl Fn(Usage, u64) -> Usage) {
        let bytes = entry.size();
        self.whole = change(self.whole, bytes);
        let tables =
            [(&mut self.resources, Some(&entry.key.resource)), (&mut self.accounts, entry.account.as_ref())];
        for (table, name) in tables {
            let Some(name) = name else { continue };
            let now = change(table.get(name).copied().unwrap_or_default(), bytes);
            if now.values == 0 {
                table.remove(name);
            } else {
                table.insert(name.clone(), now);
            }
        }
    }

    /// The name of an account, once for all that counts for it.
    pub(crate) fn named(&self, name: &Arc<str>) -> Arc<str> {
        self.accounts.get_key_value(name).map_or(name, |(name, _)| name).clone()
    }

    /// What an account takes.
    pub fn account(&self, name: &str) -> Usage {
        self.accounts.get(name).copied().unwrap_or_default()
    }

    /// Whether a commit may lead from here to `after`, where `quota` is for the whole and `accounts` are those it
    /// writes to.
    pub(crate) fn allow<'a>(
        &self,
        after: &Self,
        quota: u64,
        terms: Terms,
        accounts: impl IntoIterator<Item = &'a Account>,
    ) -> Result<(), Exceeded> {
        if terms.guest {
            for Account { name, limit } in accounts {
                let (before, after) = (self.account(name).bytes, after.account(name).bytes);
                judge(*limit, true, terms, before, after).map_err(|limit| Exceeded {
                    account: Some(name.clone()),
                    used: before,
                    limit,
                })?;
            }
        }
        let used = self.whole.bytes;
        judge(quota, false, terms, used, after.whole.bytes).map_err(|limit| Exceeded {
            account: None,
            used,
            limit,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_what() {
        use Purpose::{Growth, Upkeep};
        let terms = |guest, purpose| Terms { purpose, guest };
        // Limit, of an account, guest, purpose, from, to: what is allowed if it is refused.
        let cases = [
            ("no limit", 0, false, false, Growth, 0, u64::MAX, Ok(())),
            ("room", 800, false, false, Growth, 0, 800, Ok(())),
            ("too much", 800, false, false, Growth, 700, 801, Err(800)),
            ("over it and no more", 800, false, false, Growth, 900, 900, Ok(())),
            ("over it and less", 800, false, false, Growth, 2000, 1999, Ok(())),
            ("upkeep goes on", 800, false, false, Upkeep, 800, 900, Ok(())),
            ("upkeep has an end", 800, false, false, Upkeep, 800, 901, Err(900)),
            ("a guest leaves room", 800, false, true, Growth, 0, 701, Err(700)),
            ("a guest's room", 800, false, true, Growth, 0, 700, Ok(())),
            ("a guest's upkeep", 800, false, true, Upkeep, 700, 800, Ok(())),
            ("a guest's upkeep leaves room", 800, false, true, Upkeep, 700, 801, Err(800)),
            ("an account", 800, true, true, Growth, 700, 800, Ok(())),
            ("an account that is full", 800, true, true, Growth, 700, 801, Err(800)),
            ("an account's upkeep", 800, true, true, Upkeep, 800, 900, Ok(())),
            ("an account's upkeep has an end", 800, true, true, Upkeep, 800, 901, Err(900)),
            ("a full account that shrinks", 800, true, true, Growth, 5000, 4000, Ok(())),
        ];
        for (case, limit, of_account, guest, purpose, before, after, want) in cases {
            assert_eq!(judge(limit, of_account, terms(guest, purpose), before, after), want, "{case}");
        }
    }

    #[test]
    fn only_a_guest_is_bound_by_an_account() {
        let account = Account { name: "a".into(), limit: 10 };
        let usage = Usage { values: 1, bytes: 11 };
        let after = Used { whole: usage, accounts: OrdMap::unit("a".into(), usage), ..Used::default() };
        let allow = |guest| {
            let terms = Terms { guest, ..Terms::default() };
            Used::default().allow(&after, 100, terms, [&account])
        };
        assert_eq!(allow(false), Ok(()));
        assert_eq!(allow(true), Err(Exceeded { account: Some("a".into()), used: 0, limit: 10 }));
    }
}
