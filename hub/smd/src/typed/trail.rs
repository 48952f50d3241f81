//! Where a walker stands.

use crate::fieldpath::PathElement;

/// The way from the root to where a walker stands. It lies on the stack, so that a path is only made where one is
/// needed.
#[derive(Clone, Copy)]
pub(super) enum Trail<'a> {
    Root,
    Field(&'a Self, &'a str),
    Element(&'a Self, &'a PathElement),
}

impl Trail<'_> {
    /// The path from the root.
    pub(super) fn path(&self) -> Vec<PathElement> {
        let (mut path, mut at) = (Vec::new(), self);
        loop {
            at = match at {
                Self::Root => break,
                Self::Field(above, name) => {
                    path.push(PathElement::field(name));
                    above
                }
                Self::Element(above, element) => {
                    path.push((*element).clone());
                    above
                }
            };
        }
        path.reverse();
        path
    }
}
