//! What a hub lists that is not believed, held against what is known here: the hub that lists the same has caught up. Pure.

use std::collections::BTreeMap;

use karmada_client::Event;
use karmada_member::{DesiredWork, Essence};

/// How many Works are named.
const NAMED: usize = 3;

/// What a hub lists that is not believed.
#[derive(Debug, Default)]
pub(super) struct Listing {
    works: BTreeMap<String, Essence>,
    complete: bool,
    changed: bool,
}

impl Listing {
    pub(super) fn take(&mut self, event: Event<DesiredWork>) {
        self.changed = true;
        match event {
            Event::Init => *self = Self::default(),
            Event::Upsert(work) => drop(self.works.insert(work.name.clone(), work.essence())),
            Event::Delete(work) => drop(self.works.remove(&work.name)),
            Event::Synced => self.complete = true,
        }
    }

    /// In what it differs from what is known, if all of it is there and that was not asked before.
    pub(super) fn differs(&mut self, known: impl FnOnce() -> Vec<Essence>) -> Option<Differences> {
        (self.complete && std::mem::take(&mut self.changed))
            .then(|| Differences::between(&known(), &self.works))
    }
}

/// What a hub lists otherwise than it is known: names of Works.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Differences {
    missing: Vec<String>,
    going: Vec<String>,
    other: Vec<String>,
    unknown: Vec<String>,
}

impl Differences {
    fn between(known: &[Essence], listed: &BTreeMap<String, Essence>) -> Self {
        let mut differences = Self::default();
        for work in known.iter().filter(|work| !work.deleting) {
            let to = match listed.get(&work.name) {
                None => &mut differences.missing,
                Some(listed) if listed.deleting => &mut differences.going,
                Some(listed) if listed.meaning != work.meaning => &mut differences.other,
                Some(_) => continue,
            };
            to.push(work.name.clone());
        }
        let there: BTreeMap<&str, bool> =
            known.iter().map(|work| (work.name.as_str(), work.deleting)).collect();
        for work in listed.values().filter(|work| !work.deleting) {
            // What was to go, and is not, is there again.
            if there.get(work.name.as_str()).is_none_or(|deleting| *deleting) {
                differences.unknown.push(work.name.clone());
            }
        }
        differences
    }

    pub(super) fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// What to tell people.
    pub(super) fn sentence(&self, why: &str, cluster: &str) -> String {
        let all = [
            (&self.missing, "are not there"),
            (&self.going, "are being deleted"),
            (&self.other, "are other than they were"),
            (&self.unknown, "were not there any more"),
        ];
        let parts: Vec<String> = all
            .iter()
            .filter(|(works, _)| !works.is_empty())
            .map(|(works, what)| {
                let mut names = works.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>();
                if works.len() > NAMED {
                    names.push("…");
                }
                format!("{} Works {what} ({})", works.len(), names.join(", "))
            })
            .collect();
        format!(
            "this hub knows less than the agent of {cluster} does: {why}. By what it lists, {}. The agent keeps the member as it \
             was last told to, and deletes nothing, until the hub lists the same, or somebody says that it counts as it is: \
             karmada-hub confirm-restore {cluster}",
            parts.join("; ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_listed_is_held_against_what_is_known() {
        let essence =
            |name: &str, deleting: bool, meaning: u64| Essence { name: name.into(), deleting, meaning };
        let known = [essence("a", false, 1), essence("b", false, 2), essence("c", true, 3)];
        // (what is listed, missing, going, other, unknown)
        type Row = (Vec<Essence>, [&'static str; 4]);
        let rows: Vec<Row> = vec![
            (vec![essence("a", false, 1), essence("b", false, 2)], ["", "", "", ""]),
            (vec![essence("a", false, 1), essence("b", false, 2), essence("c", true, 3)], ["", "", "", ""]),
            (vec![essence("a", false, 1), essence("b", false, 2), essence("d", true, 3)], ["", "", "", ""]),
            (vec![essence("a", false, 9), essence("b", true, 2)], ["", "b", "a", ""]),
            (vec![essence("c", false, 3), essence("d", false, 3)], ["a,b", "", "", "c,d"]),
            (vec![], ["a,b", "", "", ""]),
        ];
        for (listed, want) in rows {
            let listed = listed.into_iter().map(|work| (work.name.clone(), work)).collect();
            let found = Differences::between(&known, &listed);
            let got =
                [&found.missing, &found.going, &found.other, &found.unknown].map(|works| works.join(","));
            assert_eq!(got, want);
            assert_eq!(found.is_none(), want == [""; 4]);
        }
        let text =
            Differences { missing: ["a", "b", "c", "d"].map(str::to_owned).into(), ..Differences::default() };
        let text = text.sentence("it is older", "m1");
        assert!(text.contains("4 Works are not there (a, b, c, …). The agent"), "{text}");
    }
}
