//! What must hold of one list out of those of members, whatever they say.

use karmada_api::consts::annotation;
use karmada_meta::object;
use serde_json::{Value, value::RawValue};

use super::merge;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// A list of answers: what comes of them can be read, says of each object where it is from, has a cell for each column, and
/// is not much larger than they are together.
pub fn members(data: &[u8]) {
    let Ok(answers) = serde_json::from_slice::<Vec<&RawValue>>(data) else { return };
    let read = |(name, answer): (&str, &&RawValue)| {
        merge::read(name, answer.get().as_bytes()).ok().map(|portion| (name.to_owned(), portion))
    };
    let portions: Vec<_> = NAMES.into_iter().zip(&answers).filter_map(read).collect();
    if portions.is_empty() {
        return;
    }
    let read = portions.len();
    let (bytes, others) = merge::join(portions, merge::Of::None, None);
    assert!(others.len() < read, "somebody's is taken");
    assert!(bytes.len() <= merge::at_most(data.len()), "{} bytes of {}", bytes.len(), data.len());
    let all: Value = serde_json::from_slice(&bytes).expect("a list is JSON");
    let from = |one: &Value| {
        let from = object::annotation(one, annotation::QUERY_FROM_CLUSTER).expect("it says where it is from");
        assert!(NAMES.contains(&from) && !others.iter().any(|other| other == from), "{one}");
    };
    let list = |field: &str| all[field].as_array().map(Vec::as_slice).unwrap_or_default();
    list("items").iter().for_each(from);
    for row in list("rows") {
        assert_eq!(row["cells"].as_array().map(Vec::len), Some(list("columnDefinitions").len()), "{row}");
        Some(&row["object"]).filter(|object| !object.is_null()).into_iter().for_each(from);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    const WHOLE: &str = r#"[{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"x"}},{}]},
        {"kind":"PodList","apiVersion":"v1","items":null},{"kind":"Table","apiVersion":"meta.k8s.io/v1",
        "columnDefinitions":[{"name":"Name"},{"name":"Age"}],"rows":[{"cells":["x","1d"],"object":{"metadata":{}}}]},
        {"kind":"Table","columnDefinitions":[{"name":"Age"}],"rows":[{"cells":["1d"],"conditions":[],"object":null}]}]"#;

    proptest! {
        /// Answers with some bytes cut out or put in.
        #[test]
        fn whatever_comes(at in 0..WHOLE.len(), cut in 0..40_usize, more in "[\\[\\]{},:\"a-z0-9]{0,12}") {
            let mut bytes = WHOLE.as_bytes().to_vec();
            let end = (at + cut).min(bytes.len());
            bytes.splice(at..end, more.bytes());
            super::members(&bytes);
        }
    }

    #[test]
    fn whole_ones_are_read() {
        super::members(WHOLE.as_bytes());
    }
}
