//! LZ4's block form, found with more patience than `lz4_flex` has: that takes the last place where four bytes have stood, this the
//! one of many from where on most agrees. Of text that says much the same as a dictionary a third less is left; `lz4_flex` reads
//! both. It takes a few hundredths of a millisecond for a value of some kilobytes, several times as long.

use std::sync::OnceLock;

/// Fewer bytes are no match.
const LEAST: usize = 4;
/// The last bytes stand as they are, and no match begins in the last of these: readers of the form rely on that.
const LAST: usize = 5;
const NO_BEGIN: usize = 12;
/// How far back a match may lie.
const FAR: usize = 0xffff;
/// Places that are looked at for a match.
const LOOKS: usize = 24;
/// For each byte of a text so many are compared: then it takes the last place, as others do.
const PATIENCE: usize = 64;
/// A match of so many bytes is taken without a look for a longer one: at further places, and a byte later.
const ENOUGH: usize = 256;
const GOOD: usize = 32;
/// Numbers of four bytes that are told apart.
const BITS: u32 = 12;

/// Where the same four bytes have stood: the last place by their number, and by each place the one before. Places are counted
/// from one.
struct Places {
    last: Box<[u16]>,
    before: Box<[u16]>,
}

/// A dictionary with its places, which are found once.
pub(super) struct Words {
    text: &'static [u8],
    places: OnceLock<Places>,
}

impl Words {
    pub(super) const fn new(text: &'static [u8]) -> Self {
        Self { text, places: OnceLock::new() }
    }

    pub(super) fn text(&self) -> &'static [u8] {
        self.text
    }

    fn places(&self) -> &Places {
        self.places.get_or_init(|| {
            let mut places =
                Places { last: vec![0; 1 << BITS].into(), before: vec![0; self.text.len()].into() };
            for at in 0..(self.text.len() + 1).saturating_sub(LEAST) {
                places.add(self.text, at, 0);
            }
            places
        })
    }
}

impl Places {
    /// Four bytes stand here; `skipped`: for so many places before nothing is kept.
    fn add(&mut self, text: &[u8], at: usize, skipped: usize) {
        if let (Some(number), Ok(place)) = (number(text, at), u16::try_from(at + 1)) {
            self.before[at - skipped] = std::mem::replace(&mut self.last[number], place);
        }
    }
}

/// The number of the four bytes at a place.
fn number(text: &[u8], at: usize) -> Option<usize> {
    let four = u32::from_le_bytes(*text.get(at..)?.first_chunk()?);
    Some((four.wrapping_mul(2_654_435_761) >> (u32::BITS - BITS)) as usize)
}

/// So many bytes at a place are those at another.
#[derive(Clone, Copy)]
struct Match {
    back: usize,
    len: usize,
}

/// Dictionary and text, of which the first part has been looked through.
struct Search<'a> {
    text: &'a [u8],
    /// Where the dictionary ends.
    begin: usize,
    of_words: &'a Places,
    places: Places,
    /// How much was compared, and when it has no patience any more.
    compared: usize,
    patience: usize,
}

impl Search<'_> {
    /// The longest match at a place; one of two that is nearer.
    fn longest(&mut self, at: usize) -> Option<Match> {
        let end = self.text.len() - LAST;
        let here = self.text.get(at..end)?;
        let mut place = usize::from(self.places.last[number(self.text, at)?]);
        let mut best = Match { back: 0, len: LEAST - 1 };
        for _ in 0..if self.compared < self.patience { LOOKS } else { 1 } {
            self.compared += 1;
            let Some(there) = place.checked_sub(1).filter(|there| at - there <= FAR) else { break };
            let then = &self.text[there..];
            if here.len() > best.len && then[best.len] == here[best.len] {
                let len = here.iter().zip(then).take_while(|(one, other)| one == other).count();
                self.compared += len;
                if len > best.len {
                    best = Match { back: at - there, len };
                    if len >= ENOUGH {
                        break;
                    }
                }
            }
            place = match there.checked_sub(self.begin) {
                Some(own) => self.places.before[own].into(),
                None => self.of_words.before[there].into(),
            };
        }
        (best.len >= LEAST).then_some(best)
    }
}

/// A length: four bits of it are in the token.
fn put_len(out: &mut Vec<u8>, len: usize) {
    if let Some(mut rest) = len.checked_sub(15) {
        while rest >= 255 {
            out.push(255);
            rest -= 255;
        }
        out.push(rest as u8);
    }
}

/// What stands as it is, and the match behind it.
fn put(out: &mut Vec<u8>, literals: &[u8], found: Option<Match>) {
    let more = found.map_or(0, |found| found.len - LEAST);
    out.push(((literals.len().min(15) << 4) | more.min(15)) as u8);
    put_len(out, literals.len());
    out.extend_from_slice(literals);
    if let Some(Match { back, .. }) = found {
        out.extend_from_slice(&(back as u16).to_le_bytes());
        put_len(out, more);
    }
}

/// Appends a text in LZ4's block form; nothing where it is too long for this.
pub(super) fn pack(plain: &[u8], words: &Words, out: &mut Vec<u8>) -> Option<()> {
    pack_within(PATIENCE * plain.len(), plain, words, out).map(drop)
}

/// The same with patience for so many comparisons. Answers how many there were.
fn pack_within(patience: usize, plain: &[u8], words: &Words, out: &mut Vec<u8>) -> Option<usize> {
    let begin = words.text.len();
    let len = begin + plain.len();
    // Places have two bytes.
    if len > FAR {
        return None;
    }
    let mut text = Vec::with_capacity(len);
    text.extend_from_slice(words.text);
    text.extend_from_slice(plain);
    let of_words = words.places();
    let places = Places { last: of_words.last.clone(), before: vec![0; plain.len()].into() };
    let mut search = Search { text: &text, begin, of_words, places, compared: 0, patience };
    let (mut at, mut literals) = (begin, begin);
    while at + NO_BEGIN <= len {
        let found = search.longest(at);
        search.places.add(&text, at, begin);
        let Some(mut found) = found else {
            at += 1;
            continue;
        };
        // One that begins a byte later may reach further.
        while found.len < GOOD && at + 1 + NO_BEGIN <= len {
            let Some(next) = search.longest(at + 1).filter(|next| next.len > found.len) else { break };
            at += 1;
            search.places.add(&text, at, begin);
            found = next;
        }
        put(out, &text[literals..at], Some(found));
        let end = at + found.len;
        (at + 1..end).for_each(|place| search.places.add(&text, place, begin));
        (at, literals) = (end, end);
    }
    put(out, &text[literals..], None);
    Some(search.compared)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many comparisons there are for each byte of a text, with patience for so many.
    fn compared(plain: &[u8], patience: usize) -> usize {
        let (mut out, words) = (Vec::new(), Words::new(b""));
        let compared = pack_within(patience.saturating_mul(plain.len()), plain, &words, &mut out);
        let text = lz4_flex::block::decompress(&out, plain.len());
        assert!(text.is_ok_and(|text| text == plain), "what was packed is the same again");
        compared.expect("it is not too long") / plain.len()
    }

    #[test]
    fn no_more_is_compared_than_there_is_patience_for() {
        let mut state = 1_u32;
        let mut next = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % below
        };
        // Everything has stood before, and nothing is long.
        let letters: Vec<u8> = (0..20_000).map(|_| b"ab"[next(2) as usize]).collect();
        let objects: String = (0..200)
            .map(|n| {
                format!(r#"{{"name":"a{n}","image":"registry.example.com/a:{}","ports":[]}},"#, next(99))
            })
            .collect();
        // (what, text, patience for each byte, how many at least, and at most)
        for (what, text, patience, least, most) in [
            ("letters", &letters[..], usize::MAX, 15, 30),
            ("letters", &letters[..], PATIENCE, 15, 30),
            ("letters", &letters[..], 4, 4, 7),
            ("letters", &letters[..], 0, 1, 3),
            ("objects", objects.as_bytes(), PATIENCE, 2, 4),
            ("objects", objects.as_bytes(), 0, 1, 2),
            ("one byte", &[0; 20_000][..], 0, 0, 1),
            ("one byte", &[0; 20_000][..], PATIENCE, 0, 1),
        ] {
            let compared = compared(text, patience);
            assert!((least..=most).contains(&compared), "{what}, patience {patience}: {compared}");
        }
    }
}
