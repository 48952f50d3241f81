//! Which descriptions of users cross a connection once, and which each time.
//!
//! HPACK keeps the last headers at both ends, 4 KiB of them, and what is kept crosses as a number (RFC 7541, sections 2.3.2 and 4). The hub
//! has it keep nothing but these descriptions.

use std::collections::VecDeque;

use http::HeaderValue;

use super::USER;

/// What is kept, but for a few headers that are always the same.
const TABLE: usize = 3700;
/// What is longer is not kept.
const LONGEST: usize = 3072;
/// What is around an entry, by that reckoning.
const AROUND: usize = 32 + USER.len();

/// What is kept, the last first.
#[derive(Debug, Default)]
pub(super) struct Users {
    lines: VecDeque<HeaderValue>,
    size: usize,
}

impl Users {
    /// Whether a request whose user is so described has brought the description itself. In the order in which requests come.
    pub(super) fn is_brought(&mut self, line: &HeaderValue) -> bool {
        if self.lines.contains(line) {
            return false;
        }
        let size = line.len() + AROUND;
        if size <= LONGEST {
            while self.size + size > TABLE
                && let Some(oldest) = self.lines.pop_back()
            {
                self.size -= oldest.len() + AROUND;
            }
            self.size += size;
            self.lines.push_front(line.clone());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_crosses_once() {
        let line = |name: u8, length: usize| HeaderValue::from_bytes(&vec![name; length]).unwrap();
        let mut users = Users::default();
        let mut brought = |name, length| users.is_brought(&line(name, length));
        assert_eq!([brought(b'a', 3000), brought(b'a', 3000)], [true, false]);
        // Two that have no room beside each other push each other out, whoever was used last.
        assert_eq!([brought(b'b', 1000), brought(b'a', 3000), brought(b'b', 1000)], [true; 3]);
        // The oldest goes first, however often it was used.
        assert_eq!([brought(b'c', 1000), brought(b'd', 1000)], [true; 2]);
        assert_eq!([brought(b'b', 1000), brought(b'e', 1000), brought(b'b', 1000)], [false, true, true]);
        assert_eq!([brought(b'x', 3100), brought(b'x', 3100)], [true; 2]);
        assert!(!brought(b'e', 1000) && !brought(b'b', 1000));
        for name in 0..200 {
            brought(b' ' + name % 90, usize::from(name));
        }
        assert!(
            users.size <= TABLE
                && users.lines.iter().map(|line| line.len() + AROUND).sum::<usize>() == users.size
        );
    }
}
