//! What is long of a Work and read seldom: as it is, or packed by whoever holds many members.
//!
//! An agent keeps it as it is: it has one member. A hub that works on many keeps the same manifests for each of them, and knows
//! what they have in common ([`Packer`]).

use std::{borrow::Cow, fmt, sync::Arc};

use karmada_api::work::WorkStatus;

/// Makes text shorter, and the same text of it again.
#[derive(Clone, Copy)]
pub struct Packer {
    /// Packs a text; not where that is not worth it.
    pub pack: fn(&str) -> Option<Box<[u8]>>,
    /// What was packed.
    pub unpack: fn(&[u8]) -> String,
}

impl fmt::Debug for Packer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packer").finish_non_exhaustive()
    }
}

/// A text.
pub struct Text(Form);

enum Form {
    Plain(Box<str>),
    Packed { packed: Box<[u8]>, len: u32, unpack: fn(&[u8]) -> String },
}

impl Text {
    /// The text.
    pub fn get(&self) -> Cow<'_, str> {
        match &self.0 {
            Form::Plain(plain) => Cow::Borrowed(plain),
            Form::Packed { packed, unpack, .. } => Cow::Owned(unpack(packed)),
        }
    }

    /// Its bytes; not those that it takes.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks whether a manifest is empty")]
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Plain(plain) => plain.len(),
            Form::Packed { len, .. } => *len as usize,
        }
    }

    /// Is packed from now on, if that is worth it.
    pub(super) fn pack(&mut self, packer: Packer) {
        if let Form::Plain(plain) = &self.0
            && let (Some(packed), Ok(len)) = ((packer.pack)(plain), u32::try_from(plain.len()))
        {
            self.0 = Form::Packed { packed, len, unpack: packer.unpack };
        }
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(Form::Plain(text.into()))
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// A status.
#[derive(Clone)]
pub(super) enum Status {
    Whole(Arc<WorkStatus>),
    Packed(Arc<Text>),
}

impl Status {
    /// Keeps a status, packed if there is somebody who packs.
    pub(super) fn of(status: Arc<WorkStatus>, packer: Option<Packer>) -> Self {
        let packed = packer.and_then(|packer| {
            let mut text = Text::from(serde_json::to_string(&*status).ok()?.as_str());
            text.pack(packer);
            // What is read of it again is what it is held against: it must be the same.
            (read(&text).as_ref() == Some(&*status)).then_some(text)
        });
        packed.map_or(Self::Whole(status), |text| Self::Packed(Arc::new(text)))
    }

    /// The same, packed.
    pub(super) fn packed(self, packer: Packer) -> Self {
        match self {
            Self::Whole(status) => Self::of(status, Some(packer)),
            packed @ Self::Packed(_) => packed,
        }
    }

    /// The status.
    pub(super) fn get(&self) -> Arc<WorkStatus> {
        match self {
            Self::Whole(status) => Arc::clone(status),
            Self::Packed(text) => {
                Arc::new(read(text).expect("invariant: what is packed was read when it was packed"))
            }
        }
    }
}

fn read(text: &Text) -> Option<WorkStatus> {
    serde_json::from_str(&text.get()).ok()
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use karmada_client::Event;
    use serde_json::json;

    use super::{super::*, *};

    /// One that packs what is longer than a few bytes, by turning it round.
    const ROUND: Packer = Packer {
        pack: |text| (text.len() > 9).then(|| text.bytes().rev().collect()),
        unpack: |packed| String::from_utf8(packed.iter().rev().copied().collect()).unwrap(),
    };

    fn work(status: &serde_json::Value) -> DesiredWork {
        let text = json!({
            "metadata": {"name": "w", "uid": "u", "resourceVersion": "7"},
            "spec": {"workload": {"manifests": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ä"}}, 7]}},
            "status": status,
        });
        DesiredWork::parse(&text.to_string()).unwrap()
    }

    #[test]
    fn what_is_packed_is_what_it_was() {
        let applied = json!({"conditions": [{"type": "Applied", "status": "True", "reason": "R", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        let (plain, packed) = (Desired::default(), Desired::packing(Some(ROUND)));
        for desired in [&plain, &packed] {
            desired.apply(Event::Upsert(work(&applied)), desired.life());
        }
        let [one, other] = [&plain, &packed].map(|desired| desired.get("w").unwrap());
        let forms = other.manifests.iter().map(|manifest| matches!(manifest.text.0, Form::Packed { .. }));
        assert_eq!(forms.collect::<Vec<_>>(), [true, false]);
        assert!(matches!(other.on_hub.lock().status, Status::Packed(_)));
        assert_eq!(format!("{one:?}"), format!("{other:?}"));
        assert_eq!((one.size(), one.text(), one.told()), (other.size(), other.text(), other.told()));
        // What an answer to a report says is kept in the same way, and taken over by a later state.
        let told = WorkStatus::default();
        packed.reported(&other, "9", &told);
        packed.apply(Event::Upsert(work(&applied)), packed.life());
        assert_eq!(*packed.get("w").unwrap().status(), told);
    }

    #[test]
    fn a_status_that_would_be_another_is_kept_whole() {
        let mut status =
            work(&json!({"manifestStatuses": [{"identifier": {"ordinal": 0, "group": "", "version": "v1",
            "kind": "ConfigMap", "resource": "", "name": "a"}, "status": {"a": 1}}]}))
            .status();
        assert!(matches!(Status::of(Arc::clone(&status), Some(ROUND)), Status::Packed(_)));
        Arc::make_mut(&mut status).manifest_statuses[0].status = Some(serde_json::Value::Null);
        let kept = Status::of(Arc::clone(&status), Some(ROUND));
        assert!(matches!(kept, Status::Whole(_)) && kept.get() == status);
    }
}
