//! What the page knows of every cluster: one row each, written as a list of fields whose order is [`FIELDS`].
//!
//! A row changes when a state does. That a cluster was heard is no change: of one that is well no time is told, and a page
//! that shows one of them closely asks for it.

use std::sync::Arc;

use karmada_core::judge::words::{Known, State, TEMPLATES, Told};
use karmada_meta::time::Time;
use serde::{Serialize, Serializer, ser::SerializeSeq};

/// The fields of a row, in order.
pub const FIELDS: [&str; 11] = [
    "name",
    "told",
    "at",
    "flags",
    "region",
    "link",
    "kubernetes",
    "agent",
    "certificate",
    "waiting",
    "failed",
];

/// What is so of a cluster beside its state, by the bits of `flags`.
pub const FLAGS: [&str; 8] = [
    "cordoned",
    "evictions-held",
    "held",
    "fenced",
    "certificate-ends-soon",
    "removals-held",
    "changes-held",
    "version-skew",
];

/// The bits of [`FLAGS`].
pub mod flag {
    /// It gets nothing new.
    pub const CORDONED: u8 = 1;
    /// Nothing is evicted from it, since many vanished with it.
    pub const EVICTIONS_HELD: u8 = 2;
    /// It is held out since it comes and goes.
    pub const HELD: u8 = 4;
    /// What may run in one place only has stopped there by its own clock.
    pub const FENCED: u8 = 8;
    /// Its agent's certificate ends soon.
    pub const CERTIFICATE: u8 = 16;
    /// Its agent holds removals back.
    pub const REMOVALS_HELD: u8 = 32;
    /// Changes wait for its maintenance window, or for whoever holds them.
    pub const CHANGES_HELD: u8 = 64;
    /// Its agent's version and the hub's differ.
    pub const SKEW: u8 = 128;
}

/// The longest text of a field, in bytes: a row has 200 at most.
const LONGEST: usize = 40;

/// One cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name.
    pub name: Arc<str>,
    /// What it is like.
    pub told: Told,
    /// Bits of [`FLAGS`].
    pub flags: u8,
    /// Where it is.
    pub region: Arc<str>,
    /// What kind of link it has.
    pub link: Arc<str>,
    /// Its Kubernetes' version.
    pub kubernetes: Arc<str>,
    /// Its agent's version, if that is known.
    pub agent: Arc<str>,
    /// When its agent's certificate ends, if that is known.
    pub certificate: Option<Time>,
    /// Works that it has not applied yet.
    pub waiting: u32,
    /// Works that it cannot apply.
    pub failed: u32,
}

impl Row {
    /// What is told of it, for a row: of one that is heard of all the time no time is.
    pub fn told(known: &Known<'_>, told: Told) -> Told {
        if told.state == State::Ready && known.heard.is_some() {
            return Told { at: known.born, ..told };
        }
        told
    }

    /// Which of the templates it is told by.
    fn template(&self) -> usize {
        let own = (self.told.state, self.told.template);
        TEMPLATES.iter().position(|template| *template == own).unwrap_or_default()
    }
}

/// As much of a text as a row has room for.
pub fn clipped(text: &str) -> Arc<str> {
    let mut end = text.len().min(LONGEST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].into()
}

fn seconds(time: Time) -> i64 {
    time.timestamp().as_second()
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut row = serializer.serialize_seq(Some(FIELDS.len()))?;
        row.serialize_element(&*self.name)?;
        row.serialize_element(&self.template())?;
        row.serialize_element(&seconds(self.told.at))?;
        row.serialize_element(&self.flags)?;
        for text in [&self.region, &self.link, &self.kubernetes, &self.agent] {
            row.serialize_element(&**text)?;
        }
        row.serialize_element(&self.certificate.map_or(0, seconds))?;
        row.serialize_element(&self.waiting)?;
        row.serialize_element(&self.failed)?;
        row.end()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn row(name: &str, state: State) -> Row {
        let (_, template) = TEMPLATES.iter().find(|(of, _)| *of == state).unwrap();
        Row {
            name: name.into(),
            told: Told { state, at: "2026-01-03T14:02:00Z".parse().unwrap(), template },
            flags: 0,
            region: "eu-west".into(),
            link: "cellular".into(),
            kubernetes: "v1.36.2".into(),
            agent: "0.1.0".into(),
            certificate: Some("2026-02-03T14:02:00Z".parse().unwrap()),
            waiting: 0,
            failed: 0,
        }
    }

    #[test]
    fn a_row_is_short() {
        let long = "x".repeat(100);
        let longest = Row {
            name: "n".repeat(48).into(),
            flags: 255,
            region: clipped(&long),
            link: "satellite".into(),
            kubernetes: "v1.36.2+k3s1".into(),
            agent: "0.10.0-rc1".into(),
            waiting: 9999,
            failed: 9999,
            ..row("", State::Silent)
        };
        let text = serde_json::to_string(&longest).unwrap();
        assert!(text.len() <= 200, "{} {text}", text.len());
        let text = serde_json::to_string(&row("shop-0001", State::Silent)).unwrap();
        assert_eq!(
            text,
            r#"["shop-0001",5,1767448920,0,"eu-west","cellular","v1.36.2","0.1.0",1770127320,0,0]"#
        );
        assert_eq!(&*clipped(&"é".repeat(50)), "é".repeat(20));
        let fields = serde_json::to_value(row("a", State::Ready)).unwrap();
        assert_eq!(fields.as_array().unwrap().len(), FIELDS.len());
    }
}
