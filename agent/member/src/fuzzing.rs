//! What must hold of whatever the hub sends as a Work. Built for tests and with the feature `fuzzing` alone; `hub/fuzz`
//! runs it with coverage.

use karmada_client::Event;

use crate::works::desired::{Desired, DesiredWork};

/// A Work is read or refused in words. What was read holds no more than the text did, and every manifest of it is named or
/// says what is wrong with it.
pub fn works(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let work = match DesiredWork::parse(&text) {
        Ok(work) => work,
        Err(why) => return assert!(!why.is_empty()),
    };
    assert!(!work.name.is_empty(), "{text}");
    let manifests: usize = work.manifests.iter().map(|manifest| manifest.text.len()).sum();
    assert!(manifests <= text.len(), "{text}");
    for manifest in work.manifests.iter() {
        let named =
            !manifest.id.kind.is_empty() && !manifest.id.name.is_empty() && !manifest.version.is_empty();
        assert!(named || manifest.problem.is_some(), "{}", manifest.text.get());
    }
    let again = DesiredWork::parse(&text).expect("what was read is read again");
    let digests = |work: &DesiredWork| work.manifests.iter().map(|m| m.digest).collect::<Vec<_>>();
    assert_eq!(digests(&again), digests(&work));
    let kept = DesiredWork::kept(&work.text()).expect("what was kept is read again");
    assert_eq!((kept.digest(), digests(&kept)), (work.digest(), digests(&work)));
    let (name, deleting) = (work.name.clone(), work.deleting);
    let ids: Vec<_> = work.manifests.iter().map(|manifest| manifest.id.clone()).collect();
    let desired = Desired::default();
    assert_eq!(desired.apply(Event::Upsert(work), desired.life()), [name.as_str()]);
    for id in &ids {
        assert_eq!(desired.claims(&name, id), !deleting, "{}", id.path());
    }
    assert!(desired.kinds().len() <= text.len());
    desired.apply(Event::Delete(again), desired.life());
    assert_eq!(desired.len(), 0);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    const WHOLE: &str = r#"{"metadata":{"name":"w","uid":"u","resourceVersion":"7","finalizers":["karmada.io/execution-controller"],
        "annotations":{"work.karmada.io/unwanted-since":"x"}},"spec":{"suspendDispatching":true,"workload":{"manifests":[
        {"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"}},{"kind":3},null,[]]}},
        "status":{"conditions":[]}}"#;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// A Work with some bytes cut out or put in.
        #[test]
        fn whatever_comes(at in 0..WHOLE.len(), cut in 0..40_usize, more in proptest::collection::vec(any::<u8>(), 0..12)) {
            let mut bytes = WHOLE.as_bytes().to_vec();
            let end = (at + cut).min(bytes.len());
            bytes.splice(at..end, more);
            super::works(&bytes);
        }
    }

    #[test]
    fn a_whole_one_is_read() {
        super::works(WHOLE.as_bytes());
    }
}
