//! A recording as it is written, a line of JSON for each of its own. The same objects come again and again in it, and parts of
//! them: each is told once, before (`{"shared":…}`), and `{"$":n}` stands for the one of that number.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Line;

/// What is shorter is told each time.
const LONG: usize = 64;

/// What was told already.
#[derive(Default)]
struct Shared {
    /// How often each part is there, by its text; what is in a part counts once.
    counts: BTreeMap<String, usize>,
    /// The number of each that is told.
    numbers: BTreeMap<String, usize>,
    text: String,
}

/// Writes a recording.
pub(super) fn text(lines: &[Line]) -> String {
    let mut lines: Vec<Value> = lines.iter().map(|line| json!(line)).collect();
    let mut shared = Shared::default();
    for content in lines.iter_mut().filter_map(content) {
        shared.count(content);
    }
    for line in &mut lines {
        if let Some(content) = content(line) {
            shared.shorten(content);
        }
        shared.text += &format!("{line}\n");
    }
    shared.text
}

/// Reads a recording.
///
/// # Panics
/// When it is none.
pub fn lines(text: &str) -> Vec<Line> {
    let (mut shared, mut lines) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let mut line: Value = serde_json::from_str(line).expect("a line of a recording is JSON");
        fill(&mut line, &shared);
        match line.get_mut("shared") {
            Some(part) => shared.push(part.take()),
            None => lines.push(serde_json::from_value(line).expect("a line of a recording")),
        }
    }
    lines
}

impl Shared {
    fn count(&mut self, value: &mut Value) {
        let count = self.counts.entry(value.to_string()).or_default();
        *count += 1;
        if *count == 1 {
            parts(value).for_each(|part| self.count(part));
        }
    }

    fn shorten(&mut self, value: &mut Value) {
        let text = value.to_string();
        let is_shared = text.len() >= LONG && self.counts[&text] > 1;
        if !self.numbers.contains_key(&text) {
            parts(value).for_each(|part| self.shorten(part));
        }
        if is_shared {
            let next = self.numbers.len();
            let number = *self.numbers.entry(text).or_insert_with(|| {
                self.text += &format!("{}\n", json!({"shared": value}));
                next
            });
            *value = json!({"$": number});
        }
    }
}

/// Puts in what is told before.
fn fill(value: &mut Value, shared: &[Value]) {
    match value.get("$").and_then(Value::as_u64) {
        Some(number) => *value = shared[usize::try_from(number).expect("a small number")].clone(),
        None => parts(value).for_each(|part| fill(part, shared)),
    }
}

/// What an answer or an event holds.
fn content(line: &mut Value) -> Option<&mut Value> {
    let place = if line.get("answer").is_some() { "/answer/body" } else { "/event/event" };
    line.pointer_mut(place)
}

/// What a list or an object holds.
fn parts(value: &mut Value) -> Box<dyn Iterator<Item = &mut Value> + '_> {
    match value {
        Value::Array(all) => Box::new(all.iter_mut()),
        Value::Object(all) => Box::new(all.values_mut()),
        _ => Box::new(std::iter::empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Event;
    use super::*;

    #[test]
    fn what_comes_again_is_told_once() {
        let (name, deep) = ("n".repeat(LONG), json!({"a": ["b".repeat(LONG)]}));
        let event = |event| Line::Event(Event { to: "GET /a".into(), event });
        let object = json!({"name": name, "deep": deep});
        let told = [
            event(json!({"type": "ADDED", "object": object})),
            Line::Mark("changed".into()),
            event(json!({"type": "MODIFIED", "object": object})),
            event(json!({"type": "MODIFIED", "object": {"deep": deep}})),
        ];
        let text = text(&told);
        for long in [&name, "bb"] {
            assert_eq!(text.lines().filter(|line| line.contains(long)).count(), 1, "{text}");
        }
        assert_eq!(lines(&text), told);
    }
}
