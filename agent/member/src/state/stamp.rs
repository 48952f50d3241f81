//! Whether what was kept is the newest: judged by what the member's Lease says of it ([`crate::note`]).
//!
//! A state has an id, made by chance when it is begun, and each of its parts (one file, or some Secrets) a number that grows
//! with each write. The Lease says both, a renewal later at most, so that what is found may be ahead of it, and never behind:
//! what is was put back from an older copy. Where the Lease says `none`, this agent or another has acted by what it could not keep.

use std::fmt::Write;

use crate::note::NONE;

/// What tells a state from others, and from what it was before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) id: String,
    /// The numbers of its parts; 0 is for one that was never written.
    pub(crate) numbers: Vec<u64>,
}

impl Stamp {
    /// As the Lease has it: `ID/1.0.7`.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}/", self.id);
        for (at, number) in self.numbers.iter().enumerate() {
            let dot = if at > 0 { "." } else { "" };
            // Into memory.
            let _ = write!(text, "{dot}{number}");
        }
        text
    }

    fn parse(text: &str) -> Option<Self> {
        let (id, numbers) = text.split_once('/')?;
        let numbers = numbers.split('.').map(str::parse).collect::<Result<_, _>>().ok()?;
        (!id.is_empty()).then(|| Self { id: id.to_owned(), numbers })
    }
}

/// A part of a state, as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Missing,
    /// It is not as it was written.
    Damaged,
    /// It belongs to the state of this id, and has this number.
    There(String, u64),
}

/// Why a part counts not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Odd {
    Missing,
    Damaged,
    /// An older copy was put in its place.
    Old,
    /// It is left of another state.
    Others,
}

impl Odd {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Damaged => "damaged",
            Self::Old => "older than what was kept last",
            Self::Others => "left of another state",
        }
    }
}

/// What may be gone on with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// The state's stamp.
    pub(super) stamp: Stamp,
    /// The parts that do not count.
    pub(super) odd: Vec<(usize, Odd)>,
}

/// What of the parts that were found may be gone on with, or why nothing. `said` is what the Lease says; `about` the part that
/// says whose state it is, which names the state where the Lease says nothing: nobody has acted since the Lease was made.
pub(super) fn judge(said: Option<&str>, found: &[Found], about: usize) -> Result<Verdict, String> {
    let said = match said {
        Some(NONE) => {
            return Err(
                "what was done on the member since could not be kept, or another agent of this name did it"
                    .into(),
            );
        }
        Some(text) => {
            let stamp = Stamp::parse(text).filter(|stamp| stamp.numbers.len() == found.len());
            stamp.ok_or_else(|| {
                format!("the member's Lease says of the state what this agent cannot read: {text}")
            })?
        }
        None => match found.get(about) {
            Some(Found::There(id, _)) => Stamp { id: id.clone(), numbers: vec![0; found.len()] },
            _ => Stamp::default(),
        },
    };
    let (mut numbers, mut odd, mut counts) = (Vec::new(), Vec::new(), false);
    for (at, (found, least)) in found.iter().zip(&said.numbers).enumerate() {
        let (number, wrong) = match found {
            Found::There(id, _) if *id != said.id => (*least, Some(Odd::Others)),
            Found::There(_, number) if number < least => (*least, Some(Odd::Old)),
            Found::There(_, number) => (*number, None),
            Found::Damaged => (*least, Some(Odd::Damaged)),
            // What never was is not missing.
            Found::Missing => (*least, (*least > 0).then_some(Odd::Missing)),
        };
        counts |= wrong.is_none() && *found != Found::Missing;
        numbers.push(number);
        odd.extend(wrong.map(|wrong| (at, wrong)));
    }
    if counts {
        return Ok(Verdict { stamp: Stamp { id: said.id, numbers }, odd });
    }
    Err(match odd.iter().map(|(_, odd)| odd).find(|odd| **odd != Odd::Others) {
        None => {
            "another agent of this name has acted on the member since, or the state was exchanged".to_owned()
        }
        Some(odd) => format!("it is {}", odd.as_str()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_as_it_was_written() {
        for numbers in [vec![0], vec![3, 0, u64::MAX]] {
            let stamp = Stamp { id: "a1".into(), numbers };
            assert_eq!(Stamp::parse(&stamp.text()), Some(stamp));
        }
        for odd in ["", "a", "/1", "a/", "a/1.", "a/-1", "a/1/2", NONE] {
            assert_eq!(Stamp::parse(odd), None, "{odd}");
        }
    }

    /// The numbers that are gone on from, and the parts that do not count.
    type Want = Option<(&'static [u64], &'static [(usize, Odd)])>;

    #[test]
    fn only_what_is_no_older_than_the_lease_says_counts() {
        use Found::{Damaged, Missing};
        let there = |id: &str, number| Found::There(id.into(), number);
        // (what the Lease says, what was found, the numbers to go on from and what does not count, or none of it)
        let rows: [(Option<&str>, &[Found], Want); 17] = [
            (Some("a/7"), &[there("a", 7)], Some((&[7], &[]))),
            // Kept, and ended before the Lease was renewed.
            (Some("a/7"), &[there("a", 9)], Some((&[9], &[]))),
            // An older copy.
            (Some("a/7"), &[there("a", 6)], None),
            // Another agent has acted.
            (Some("b/1"), &[there("a", 7)], None),
            (Some("none"), &[there("a", 7)], None),
            // The first renewal did not come.
            (None, &[there("a", 1)], Some((&[1], &[]))),
            (Some("a/7"), &[Missing], None),
            (Some("a/7"), &[Damaged], None),
            (Some("what"), &[there("a", 7)], None),
            // Of another number of parts.
            (Some("a/7.1"), &[there("a", 7)], None),
            (Some("a/1.2.0"), &[there("a", 1), there("a", 2), Missing], Some((&[1, 2, 0], &[]))),
            (Some("a/1.2.0"), &[there("a", 1), Missing, Missing], Some((&[1, 2, 0], &[(1, Odd::Missing)]))),
            (
                Some("a/1.2.0"),
                &[Damaged, there("a", 3), there("a", 1)],
                Some((&[1, 3, 1], &[(0, Odd::Damaged)])),
            ),
            (Some("a/1.2.0"), &[there("a", 1), there("a", 1), Missing], Some((&[1, 2, 0], &[(1, Odd::Old)]))),
            // A state that was not taken away whole before another was begun.
            (
                Some("b/1.2.0"),
                &[there("b", 1), there("b", 2), there("a", 9)],
                Some((&[1, 2, 0], &[(2, Odd::Others)])),
            ),
            (None, &[there("b", 1), there("a", 9), Missing], Some((&[1, 0, 0], &[(1, Odd::Others)]))),
            (None, &[Missing, there("a", 9), Missing], None),
        ];
        for (said, found, want) in rows {
            let verdict = judge(said, found, 0).ok();
            let got = verdict.as_ref().map(|v| (v.stamp.numbers.as_slice(), v.odd.as_slice()));
            assert_eq!(got, want, "{said:?} {found:?}");
        }
    }
}
