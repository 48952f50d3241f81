//! What work costs, counted: so that tests can hold it, where a clock would tell more of the machine than of the code.
//!
//! A step is about one comparison, or one element that is looked at or shifted, in code that goes over what came from
//! outside. Steps are counted by thread, in builds with debug assertions; in others nothing is left of this.

use std::hash::{Hash, Hasher};

#[cfg(debug_assertions)]
thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts steps.
#[inline]
#[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "nothing is counted"))]
pub fn spend(steps: usize) {
    #[cfg(debug_assertions)]
    STEPS.with(|count| count.set(count.get().wrapping_add(steps as u64)));
}

/// A key that counts how often it is hashed and compared, so that what looks it up is counted however it does that.
#[derive(Clone, Copy, Debug)]
pub struct Counted<T>(pub T);

impl<T: PartialEq> PartialEq for Counted<T> {
    fn eq(&self, other: &Self) -> bool {
        spend(1);
        self.0 == other.0
    }
}

impl<T: Eq> Eq for Counted<T> {}

impl<T: Hash> Hash for Counted<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        spend(1);
        self.0.hash(state);
    }
}

/// The steps that this thread has counted so far; 0 where nothing is counted.
pub fn spent() -> u64 {
    #[cfg(debug_assertions)]
    return STEPS.with(std::cell::Cell::get);
    #[cfg(not(debug_assertions))]
    return 0;
}
