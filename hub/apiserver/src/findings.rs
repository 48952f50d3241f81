//! What is noticed of a body while it is decoded.

/// What a decoder noticed that is not an error by itself: `fieldValidation` decides what becomes of it.
/// Each entry is a phrase such as `unknown field "spec.foo"` or `duplicate field "spec.x"`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings(pub Vec<String>);

/// How many findings are kept: as many as Go's strict decoder keeps.
pub(crate) const MOST_FINDINGS: usize = 100;
/// How much of a path a finding shows, in characters.
pub(crate) const MOST_OF_PATH: usize = 1024;

impl Findings {
    /// Notes a field that the schema does not have. `path` is dotted: `spec.template.spec.containers[0].foo`.
    pub fn unknown(&mut self, path: &str) {
        self.note("unknown", path);
    }

    /// Notes a key that stood twice in the text; the later one counts.
    pub fn duplicate(&mut self, path: &str) {
        self.note("duplicate", path);
    }

    fn note(&mut self, what: &str, path: &str) {
        if self.is_full() {
            return;
        }
        let end = path.char_indices().nth(MOST_OF_PATH).map(|(at, _)| at);
        self.0.push(match end {
            Some(end) => format!("{what} field \"{}...\"", &path[..end]),
            None => format!("{what} field \"{path}\""),
        });
    }

    /// Whether what else is noted will not be kept.
    pub fn is_full(&self) -> bool {
        self.0.len() >= MOST_FINDINGS
    }
}
