//! What types and fields are for, in Kubernetes' own words: `data/descriptions.gz`, inflated for each document that has
//! descriptions and let go with it.
//!
//! ```text
//! DEFINITION FIELD TEXT      (- for the definition itself; a line break in the text is \n, a backslash \\)
//! ```

use std::{collections::BTreeMap, io::Read as _};

use flate2::read::GzDecoder;

/// The table itself: part of what a document's hash is made of.
pub(crate) const BYTES: &[u8] = include_bytes!("../../data/descriptions.gz");

/// Where every kind has the descriptions of kind and apiVersion from.
const ANY_KIND: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

/// Texts by definition and field.
#[derive(Debug, Default)]
pub(crate) struct Descriptions {
    texts: BTreeMap<String, BTreeMap<String, String>>,
}

impl Descriptions {
    /// Reads the table. What cannot be read says nothing; a test finds it.
    pub(crate) fn read() -> Self {
        let mut text = String::new();
        if GzDecoder::new(BYTES).read_to_string(&mut text).is_err() {
            return Self::default();
        }
        let mut texts: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.splitn(3, ' ');
            if let (Some(name), Some(field), Some(text)) = (words.next(), words.next(), words.next()) {
                texts.entry(name.to_owned()).or_default().insert(field.to_owned(), unescaped(text));
            }
        }
        Self { texts }
    }

    /// Of a definition.
    pub(crate) fn of(&self, name: &str) -> Option<&str> {
        self.of_field(name, "-")
    }

    /// Of one of its fields.
    pub(crate) fn of_field(&self, name: &str, field: &str) -> Option<&str> {
        self.texts.get(name)?.get(field).map(String::as_str)
    }

    /// Of `kind` and `apiVersion`, which are the same everywhere.
    pub(crate) fn of_head(&self, field: &str) -> Option<&str> {
        self.of_field(ANY_KIND, field)
    }
}

fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some('n') => out.push('\n'),
                Some(other) => out.push(other),
                None => {}
            },
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_reads() {
        let descriptions = Descriptions::read();
        assert!(descriptions.of("io.k8s.api.core.v1.ConfigMap").is_some());
        assert!(descriptions.of_field("io.k8s.api.apps.v1.DeploymentSpec", "replicas").is_some());
        assert!(descriptions.of_head("kind").is_some() && descriptions.of_head("apiVersion").is_some());
        assert_eq!(unescaped(r"a\nb\\n"), "a\nb\\n");
    }
}
