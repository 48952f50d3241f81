//! What to tell the author of a policy that selects nothing at present. It is no mistake: templates may come later.

use karmada_api::policy::ResourceSelector;

/// What there is of what a selector means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The hub does not serve the kind.
    NoKind,
    /// Nothing.
    Nothing,
    /// Something, or it could not be told.
    Something,
}

/// The warnings for a policy's selectors, each with what there is.
pub fn idle<'a>(selectors: impl IntoIterator<Item = (&'a ResourceSelector, Found)>) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut means_any = false;
    for (i, (selector, found)) in selectors.into_iter().enumerate() {
        match found {
            Found::NoKind => warnings.push(format!(
                "spec.resourceSelectors[{i}]: the hub has no kind {} in {}",
                selector.kind, selector.api_version
            )),
            Found::Nothing => {}
            Found::Something => means_any = true,
        }
    }
    if !means_any && warnings.is_empty() {
        warnings.push(
            "spec.resourceSelectors: no resource matches at present; one that comes later will".to_owned(),
        );
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_means_nothing_is_warned_of() {
        let selector = ResourceSelector {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            ..ResourceSelector::default()
        };
        let table: [(&[Found], &[&str]); 5] = [
            (&[Found::Something], &[]),
            (&[Found::Nothing, Found::Something], &[]),
            (&[Found::Nothing, Found::Nothing], &["no resource matches"]),
            (
                &[Found::Something, Found::NoKind],
                &["spec.resourceSelectors[1]: the hub has no kind ConfigMap in v1"],
            ),
            (&[Found::Nothing, Found::NoKind], &["spec.resourceSelectors[1]"]),
        ];
        for (found, want) in table {
            let got = idle(found.iter().map(|found| (&selector, *found)));
            assert_eq!(got.len(), want.len(), "{found:?}: {got:?}");
            assert!(got.iter().zip(want).all(|(got, want)| got.contains(want)), "{found:?}: {got:?}");
        }
    }
}
