//! How inputs are changed so that a parser still gets to their end. libFuzzer changes bytes, and most changes of the bytes of a
//! document are seen at the first sign that is out of place: what lies behind that is hardly ever reached.
//!
//! ```text
//!   bytes ─► what stands before the document, kept ─┐
//!         └► the document as a tree ─► one to three ┴─► bytes      where it is none, and every fourth time: libFuzzer's own
//! ```
//!
//! Nothing here knows a property; `mutator!` puts it into a target.

pub mod json;
mod random;
pub mod wire;

pub use random::Random;

/// Changes one piece of text or bytes: libFuzzer's own ways, with its dictionary.
pub type Blur<'a> = &'a mut dyn FnMut(&mut Vec<u8>);

/// A change of the bytes that stand for a document; none where they do not.
pub type Change = fn(&[u8], &mut Random, Blur<'_>) -> Option<Vec<u8>>;

/// One change of an input of `size` bytes within `data`, in place. `blur` is libFuzzer's own; what it says is the new size.
pub fn mutate(
    data: &mut [u8],
    size: usize,
    max_size: usize,
    seed: u32,
    change: Change,
    blur: fn(&mut [u8], usize, usize) -> usize,
) -> usize {
    let mut random = Random::new(seed);
    if random.below(4) == 0 {
        return blur(data, size, max_size);
    }
    let mut piece = |bytes: &mut Vec<u8>| {
        let (size, room) = (bytes.len(), bytes.len() + 32);
        bytes.resize(room, 0);
        let size = blur(bytes, size, room);
        bytes.truncate(size);
    };
    match change(&data[..size], &mut random, &mut piece) {
        Some(changed) if changed.len() <= max_size => {
            data[..changed.len()].copy_from_slice(&changed);
            changed.len()
        }
        _ => blur(data, size, max_size),
    }
}

/// Has libFuzzer change the inputs of this target by a [`Change`].
#[macro_export]
macro_rules! mutator {
    ($change:path) => {
        libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
            $crate::mutate(data, size, max_size, seed, $change, libfuzzer_sys::fuzzer_mutate)
        });
    };
}
