//! The same properties over random bytes, and over bytes that once broke one.

use proptest::prelude::*;

use super::PROPERTIES;

/// What broke a property, by its name.
const BROKE: &[(&str, &[u8])] = &[];

#[test]
fn what_broke_holds_now() {
    for (name, data) in BROKE {
        let (_, property) = PROPERTIES.iter().find(|(known, _)| known == name).expect("it has that name");
        property(data);
    }
    for (_, property) in PROPERTIES {
        property(b"");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn whatever_comes(data in proptest::collection::vec(any::<u8>(), 0..400)) {
        for (_, property) in PROPERTIES {
            property(&data);
        }
    }
}
