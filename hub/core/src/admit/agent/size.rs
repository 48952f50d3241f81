//! How much an agent may have stored.
//!
//! An object grows beyond any body by patches, and a few kilobytes of zeros and commas take megabytes of whoever reads them. So it
//! is the outcome that is weighed. What is there already, of before or of the platform's making, is no hindrance: a write
//! that does not add to it is not refused.

use serde_json::Value;

use super::{Write, is_empty};

/// A whole Cluster: annotations may have 256 KiB, and the rest as much.
const CLUSTER: usize = 512 << 10;
/// A Work of EndpointSlices.
const WORK: usize = 2 << 20;
/// What an agent reports of a Work.
const WORK_STATUS: usize = 1 << 20;
/// A Work with what is reported of it: of the 4 MiB that are stored of anybody's the hub has the rest.
const WORK_WITH_STATUS: usize = 7 << 19;
/// Anything else.
const OTHER: usize = 256 << 10;

/// So many values are taken however short they are.
const FEW: usize = 32 << 10;
/// More of them have so many bytes each at least.
const BYTES_PER_VALUE: usize = 8;

/// What something is as JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Weight {
    bytes: usize,
    values: usize,
}

impl Weight {
    fn of(value: &Value) -> Self {
        let own = match value {
            Value::Null | Value::Bool(true) => 4,
            Value::Bool(false) => 5,
            Value::Number(number) => number.to_string().len(),
            Value::String(text) => quoted(text),
            // Brackets, and commas between.
            Value::Array(list) => 1 + list.len().max(1),
            Value::Object(map) => map.keys().map(|key| quoted(key) + 1).sum::<usize>() + 1 + map.len().max(1),
        };
        let within: Self = match value {
            Value::Array(list) => list.iter().map(Self::of).sum(),
            Value::Object(map) => map.values().map(Self::of).sum(),
            _ => Self::default(),
        };
        Self { bytes: own + within.bytes, values: 1 + within.values }
    }

    fn is_dense(self) -> bool {
        self.values > FEW && self.values > self.bytes / BYTES_PER_VALUE
    }
}

impl std::iter::Sum for Weight {
    fn sum<I: Iterator<Item = Self>>(weights: I) -> Self {
        weights.fold(Self::default(), |sum, next| Self {
            bytes: sum.bytes + next.bytes,
            values: sum.values + next.values,
        })
    }
}

/// How long a text is in quotes.
fn quoted(text: &str) -> usize {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 2,
        0..32 => 6,
        _ => 1,
    };
    2 + text.bytes().map(escaped).sum::<usize>()
}

/// How many bytes of an object are the words of those who write it: neither what a server adds, nor what stands for nothing.
pub(super) fn of_words(object: &Value) -> usize {
    const METADATA: [&str; 5] = ["annotations", "finalizers", "labels", "managedFields", "ownerReferences"];
    let fields = object.as_object().into_iter().flatten().filter(|(field, _)| *field != "metadata");
    let metadata = object["metadata"].as_object().into_iter().flatten();
    let metadata = metadata.filter(|(field, _)| METADATA.contains(&field.as_str()));
    fields
        .chain(metadata)
        .filter(|(_, value)| !is_empty(value))
        .map(|(_, value)| Weight::of(value).bytes)
        .sum()
}

/// Why what comes of an agent's write is too much, if it is.
pub(super) fn too_much(write: &Write<'_>, object: &Value) -> Option<String> {
    // Beside the whole the part that the agent writes: what else there is of it is the platform's, and may be as dense as
    // whoever has made it wants it to be.
    let (whole, part) = match (write.kind, write.subresource) {
        ("cluster.karmada.io/Cluster", "status") => (CLUSTER, ("status", CLUSTER)),
        ("cluster.karmada.io/Cluster", _) => (CLUSTER, ("spec", CLUSTER)),
        ("work.karmada.io/Work", "status") => (WORK_WITH_STATUS, ("status", WORK_STATUS)),
        ("work.karmada.io/Work", _) => (WORK_WITH_STATUS, ("spec", WORK)),
        _ => {
            let (after, before) = (Weight::of(object), || write.old.map(Weight::of));
            return long("it", after, OTHER, before).or_else(|| dense("it", after, before));
        }
    };
    let nothing = Value::Null;
    let (field, limit) = part;
    let of = |object: &Value| Weight::of(object.get(field).unwrap_or(&nothing));
    let (what, after, before) = (format!("its {field}"), of(object), || write.old.map(of));
    let judged = long(&what, after, limit, before).or_else(|| dense(&what, after, before));
    if judged.is_some() {
        return judged;
    }
    let after = match write.subresource {
        "" => Weight::of(object),
        // The rest is taken from what is there.
        subresource => {
            let written = |field: &str| field == subresource || field == "metadata";
            let fields = |object: Option<&Value>, own: bool| -> Weight {
                let fields = object.and_then(Value::as_object).into_iter().flatten();
                fields.filter(|(field, _)| written(field) == own).map(|(_, value)| Weight::of(value)).sum()
            };
            [fields(Some(object), true), fields(write.old, false)].into_iter().sum()
        }
    };
    long("it", after, whole, || write.old.map(Weight::of))
}

/// Why something is too long, unless it was as long before.
fn long(what: &str, after: Weight, limit: usize, before: impl Fn() -> Option<Weight>) -> Option<String> {
    let grows = || after.bytes > before().unwrap_or_default().bytes;
    (after.bytes > limit && grows())
        .then(|| format!("{what} would have {} bytes, and an agent may write {limit}", after.bytes))
}

/// Why something has too many values for its length, unless it had as many before.
fn dense(what: &str, after: Weight, before: impl Fn() -> Option<Weight>) -> Option<String> {
    let grows = || after.values > before().unwrap_or_default().values;
    (after.is_dense() && grows()).then(|| {
        let Weight { bytes, values } = after;
        format!(
            "{what} would have {values} values in {bytes} bytes, and of more than {FEW} each must have \
             {BYTES_PER_VALUE} bytes on average"
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::Act, *};

    #[test]
    fn a_weight_is_that_of_the_text() {
        for value in [
            json!(null),
            json!([true, false, -1.5, 1_000_000]),
            json!({"a": {}, "b": [], "c": [[], {}], "q\"\\": "x\n\u{1}\u{7f}é"}),
        ] {
            assert_eq!(Weight::of(&value).bytes, value.to_string().len(), "{value}");
        }
        assert_eq!(Weight::of(&json!({"a": [1, {"b": 2}], "c": null})).values, 6);
    }

    #[test]
    fn the_outcome_is_weighed_and_what_adds_nothing_passes() {
        let text = |bytes: usize| Value::String("x".repeat(bytes));
        let (zeros, few) = (Value::from(vec![0; 70_000]), Value::from(vec![0; 30_000]));
        let work = |spec: &Value, status: &Value| json!({"metadata": {}, "spec": spec, "status": status});
        let nothing = Value::Null;
        let (cluster, works) = ("cluster.karmada.io/Cluster", "work.karmada.io/Work");
        let big = work(&nothing, &text(2 << 20));
        let rows = [
            ("a small status", works, "status", None, work(&nothing, &few), true),
            ("a dense status", works, "status", None, work(&nothing, &zeros), false),
            (
                "one that is there",
                works,
                "status",
                Some(work(&nothing, &zeros)),
                work(&nothing, &zeros),
                true,
            ),
            ("a long status", works, "status", None, work(&nothing, &text(3 << 19)), false),
            ("a shorter one than before", works, "status", Some(big), work(&nothing, &text(3 << 19)), true),
            // What stands beside it in the body is not stored.
            ("another spec", works, "status", None, work(&text(4 << 20), &few), true),
            (
                "no room beside it",
                works,
                "status",
                Some(work(&text(3 << 20), &nothing)),
                work(&nothing, &text((1 << 20) - 100)),
                false,
            ),
            (
                "room beside it",
                works,
                "status",
                Some(work(&text(3 << 20), &nothing)),
                work(&nothing, &few),
                true,
            ),
            (
                "a large Work of the hub's",
                works,
                "",
                Some(work(&text(3 << 20), &few)),
                work(&text(3 << 20), &nothing),
                true,
            ),
            (
                "a report of a dense Work",
                works,
                "status",
                Some(work(&zeros, &nothing)),
                work(&zeros, &few),
                true,
            ),
            ("a dense Work", works, "", None, work(&zeros, &nothing), false),
            ("a Cluster", cluster, "status", None, work(&nothing, &text(100 << 10)), true),
            ("a large Cluster", cluster, "status", None, work(&nothing, &text(600 << 10)), false),
            ("a large Lease", "coordination.k8s.io/Lease", "", None, work(&text(300 << 10), &nothing), false),
        ];
        for (what, kind, subresource, old, new, may) in rows {
            let act = if old.is_some() { Act::Update } else { Act::Create };
            let write = Write {
                cluster: "a",
                act,
                kind,
                subresource,
                namespace: "",
                old: old.as_ref(),
                uid: None,
                has_template: false,
            };
            let why = too_much(&write, &new);
            assert_eq!(why.is_none(), may, "{what}: {why:?}");
        }
    }
}
