//! Text of others, for logs, events and terminals.

use std::borrow::Cow;

/// What stands for a cut end.
const ELLIPSIS: &str = "...";

/// At most `limit` bytes of a text, without characters that control a terminal or begin a line of a log: what is no tab
/// and no newline stands as U+FFFD. A newline stays: where it matters the writer quotes.
pub fn printable(text: &str, limit: usize) -> Cow<'_, str> {
    // Beside controls: marks that turn the direction of text around, and line separators.
    let odd = |c: char| {
        c.is_control() && !matches!(c, '\n' | '\t')
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if text.len() <= limit && !text.contains(odd) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(limit.min(text.len()));
    for c in text.chars() {
        let c = if odd(c) { '\u{fffd}' } else { c };
        if out.len() + c.len_utf8() > limit {
            let room = limit.saturating_sub(ELLIPSIS.len());
            let end = (0..=room.min(out.len())).rev().find(|at| out.is_char_boundary(*at)).unwrap_or(0);
            out.truncate(end);
            out.push_str(&ELLIPSIS[..ELLIPSIS.len().min(limit)]);
            break;
        }
        out.push(c);
    }
    Cow::Owned(out)
}

/// [`printable`] on one line.
pub fn line(text: &str, limit: usize) -> String {
    printable(&text.replace(['\n', '\t'], " "), limit).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_text_is_bounded_and_controls_nothing() {
        let rows: [(&str, usize, &str); 8] = [
            ("", 0, ""),
            ("plain", 5, "plain"),
            ("plainer", 5, "pl..."),
            ("éééé", 6, "é..."),
            ("a\u{1b}[2Jb", 64, "a\u{fffd}[2Jb"),
            ("two\nlines", 64, "two\nlines"),
            ("turned\u{202e}round", 64, "turned\u{fffd}round"),
            ("\u{1b}\u{1b}\u{1b}", 4, "..."),
        ];
        for (text, limit, want) in rows {
            let got = printable(text, limit);
            assert!(got.len() <= limit, "{text:?}: {} bytes", got.len());
            assert_eq!(got, want, "{text:?}");
        }
        assert_eq!(line("a\n\tb", 64), "a  b");
    }
}
