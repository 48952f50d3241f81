//! Lists told by their sums, so that a client that knows most of one need not be sent it again.
//!
//! ```text
//!   GET …/works?depth=4                   Accept: application/json;as=Sums;g=hub.karmada.io;v=v1alpha1
//!     {"kind":"Sums", …, "metadata":{"resourceVersion":"7"}, "sums":"<16 sums, 8 bytes each, in base64>"}
//!   GET …/works?depth=8&buckets=3,9       the same form: 16 sums for each of these buckets of depth 4
//!   GET …/works?depth=8&within=3e,91      any other form: the list of what lies in these buckets of depth 8
//! ```
//!
//! What is summed, and by what, is [`karmada_meta::sums`]'. Buckets are numbers in hexadecimal. kube-apiserver refuses the
//! media type, by which a client knows that it has to list.

use std::{collections::BTreeSet, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use karmada_meta::{
    status::Status,
    sums::{Buckets, DEEPEST, MOST, STEP, Sum, bucket, children},
};
use karmada_store::Revision;
use serde_json::json;

use crate::request::Query;

/// Some buckets of one depth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Within {
    depth: u32,
    buckets: Arc<BTreeSet<u32>>,
}

impl Within {
    /// Reads what a list is to have.
    ///
    /// # Errors
    /// 400.
    pub(crate) fn parse(query: &Query) -> Result<Option<Self>, Status> {
        let Some(text) = query.get("within").filter(|text| !text.is_empty()) else { return Ok(None) };
        let depth = depth(query)?;
        Ok(Some(Self { depth, buckets: Arc::new(buckets("within", text, depth)?) }))
    }

    /// Whether a name lies in them.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.buckets.contains(&bucket(name, self.depth))
    }
}

/// Which sums are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    depth: u32,
    /// In buckets of the depth before; all, if there are none.
    within: Option<BTreeSet<u32>>,
}

impl Asked {
    /// Reads what is asked for.
    ///
    /// # Errors
    /// 400.
    pub(crate) fn parse(query: &Query) -> Result<Self, Status> {
        let depth = depth(query)?;
        let text = query.get("buckets").filter(|text| !text.is_empty());
        let within = text.map(|text| buckets("buckets", text, depth - STEP)).transpose()?;
        if within.is_none() && depth > STEP {
            return Err(Status::bad_request(format!(
                "buckets: at depth {depth} it has to be said in which of depth {}",
                depth - STEP
            )));
        }
        Ok(Self { depth, within })
    }

    /// What the sums are of.
    pub(crate) fn within(&self) -> Option<Within> {
        let buckets = self.within.clone()?;
        Some(Within { depth: self.depth - STEP, buckets: Arc::new(buckets) })
    }

    /// The sums of these objects, at a revision, as JSON.
    pub(crate) fn answer<'a>(
        &self,
        objects: impl IntoIterator<Item = (&'a str, Sum)>,
        revision: Revision,
    ) -> String {
        let sums = Buckets::of(objects, self.depth);
        let parents = self.within.clone().unwrap_or_else(|| [0].into());
        let bytes: Vec<u8> = parents
            .into_iter()
            .flat_map(children)
            .flat_map(|bucket| sums.get(bucket).to_be_bytes())
            .collect();
        json!({
            "kind": "Sums",
            "apiVersion": "hub.karmada.io/v1alpha1",
            "metadata": {"resourceVersion": revision.to_string()},
            "sums": STANDARD_NO_PAD.encode(bytes),
        })
        .to_string()
    }
}

fn depth(query: &Query) -> Result<u32, Status> {
    let text = query.get("depth").unwrap_or_default();
    let depth = text.parse().ok().filter(|depth| (STEP..=DEEPEST).contains(depth) && depth % STEP == 0);
    depth.ok_or_else(|| Status::bad_request(format!("depth: {text:?} is none of 4, 8, 12 and 16")))
}

fn buckets(key: &str, text: &str, depth: u32) -> Result<BTreeSet<u32>, Status> {
    let read = |part: &str| {
        let number = u32::from_str_radix(part, 16).ok().filter(|number| *number < 1 << depth);
        number.ok_or_else(|| Status::bad_request(format!("{key}: {part:?} is no bucket of depth {depth}")))
    };
    // One more is enough to see that they are too many.
    let buckets = text.split(',').take(MOST + 1).map(read).collect::<Result<BTreeSet<_>, _>>()?;
    if buckets.len() > MOST {
        return Err(Status::bad_request(format!(
            "{key}: no more than {MOST} buckets are looked into at a time"
        )));
    }
    Ok(buckets)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn what_cannot_be_asked_is_refused() {
        let many = (0..=MOST).map(|n| format!("{n:x}")).collect::<Vec<_>>().join(",");
        let rows = [
            ("depth=4".to_owned(), "sums"),
            ("depth=8&buckets=0,f".to_owned(), "sums"),
            ("depth=16&buckets=fff".to_owned(), "sums"),
            ("depth=8&within=0,ff".to_owned(), "within"),
            (String::new(), ""),
            ("depth=8".to_owned(), ""),
            ("depth=0".to_owned(), ""),
            ("depth=5".to_owned(), ""),
            ("depth=20&buckets=0".to_owned(), ""),
            ("depth=8&buckets=10".to_owned(), ""),
            ("depth=8&buckets=-1".to_owned(), ""),
            ("depth=8&buckets=0,,1".to_owned(), ""),
            ("depth=8&within=100".to_owned(), ""),
            (format!("depth=16&buckets={many}"), ""),
            (format!("depth=16&within={many}"), ""),
        ];
        for (query, want) in rows {
            let query_of = Query::parse(&query);
            let sums = Asked::parse(&query_of).is_ok();
            let within = matches!(Within::parse(&query_of), Ok(Some(_)));
            let got = match (sums, within) {
                (_, true) => "within",
                (true, false) => "sums",
                (false, false) => "",
            };
            assert_eq!(got, want, "{query}");
        }
    }

    #[test]
    fn sums_are_told_in_the_order_of_their_buckets() {
        let names = ["a", "b", "c", "d", "e"];
        let objects = || names.iter().zip(1u64..).map(|(name, sum)| (*name, Sum(sum)));
        let read = |answer: String| {
            let answer: Value = serde_json::from_str(&answer).unwrap();
            let bytes = STANDARD_NO_PAD.decode(answer["sums"].as_str().unwrap()).unwrap();
            bytes.chunks(8).map(|sum| u64::from_be_bytes(sum.try_into().unwrap())).collect::<Vec<_>>()
        };
        let all = Asked { depth: 4, within: None };
        let sums = read(all.answer(objects(), Revision::new(7)));
        assert_eq!((sums.len(), sums.iter().sum::<u64>()), (16, 15));
        let of_a = bucket("a", 4);
        let one = Asked { depth: 8, within: Some([of_a].into()) };
        let within = one.within().unwrap();
        assert!(within.has("a"));
        let sums = read(one.answer(objects().filter(|(name, _)| within.has(name)), Revision::new(7)));
        assert_eq!(sums.len(), 16);
        assert!(sums[(bucket("a", 8) & 15) as usize] >= 1);
    }
}
