//! Reading bodies: bytes to a JSON value, with the keys that stood twice.
//!
//! Both readers go over the text once and keep the last of two equal keys, as Kubernetes does; what they noticed goes
//! into [`Findings`] and is judged by `fieldValidation` later.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
};

use bytes::Bytes;
use flate2::write::GzDecoder;
use http::{HeaderMap, HeaderValue, header};
use karmada_meta::status::Status;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::{findings::Findings, heavy::Pool};

/// kube-apiserver's limit for one request.
pub(crate) const LIMIT: usize = 3 << 20;
/// What is stored of anybody's, which patches may have put together.
pub(crate) const STORED: usize = 4 << 20;
/// What is stored at all, and what administrators and the server's own controllers may send: whatever is there, they can replace
/// it, and add to it what keeps it going (a taint, a finalizer, a condition).
pub(crate) const WHOLE: usize = 5 << 20;
/// How many bytes one of gzip is taken for, before it is known: JSON has about as many.
const INFLATED: usize = 8;
/// Gzip is inflated in pieces of so many bytes, so that what they become is looked at.
const CHUNK: usize = 4 << 10;
/// How far the bytes of a gzip may be ahead of what they stand for: its head, and what is held back until a window is full.
const SLACK: usize = 64 << 10;
/// Deeper nesting than any real object has would only exhaust the stack. kube-apiserver takes 10,000; many clients take
/// 128, in which the frame of a watch and the managed fields have to fit, too.
pub(crate) const MAX_DEPTH: usize = 100;
/// What a body says that nests deeper, in Go's words.
pub(crate) const TOO_DEEP: &str = "exceeded max depth";
/// Most nodes that aliases of YAML may stand for: a document that names its parts again and again grows without an end.
const MAX_ALIASED: usize = 100_000;

/// The bytes of a body that has been received, also when it was sent in gzip: links whose bytes are dear do so once an
/// answer told them ([`crate::respond::finish`]).
///
/// # Errors
/// 413 when it becomes more than `limit`; 415 for another coding; 400 when it is no gzip; those of the pool.
pub(crate) async fn decoded(
    pool: &Pool,
    headers: &HeaderMap,
    bytes: Bytes,
    limit: usize,
) -> Result<Bytes, Status> {
    let too_large = || Status::too_large(format!("limit is {limit}"));
    match headers.get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes) {
        None | Some(b"" | b"identity") => Ok(bytes),
        Some(b"gzip") => {
            // A byte of it may stand for a thousand, or for none at all.
            let inflated = pool.run(bytes.len().saturating_mul(INFLATED), || inflate(&bytes, limit)).await?;
            match inflated
                .map_err(|error| Status::bad_request(format!("reading the body's gzip: {error}")))?
            {
                Some(inflated) => Ok(inflated.into()),
                None => Err(too_large()),
            }
        }
        Some(other) => Err(Status {
            message: format!(
                "the body has Content-Encoding {:?}; send it in gzip or as it is",
                String::from_utf8_lossy(other)
            ),
            ..Status::unsupported_media_type(&[])
        }),
    }
}

/// What gzip was made of; `None`: of more than `limit` bytes.
fn inflate(bytes: &[u8], limit: usize) -> io::Result<Option<Vec<u8>>> {
    let mut decoder = GzDecoder::new(Vec::new());
    let mut read = 0;
    for chunk in bytes.chunks(CHUNK) {
        decoder.write_all(chunk)?;
        read += chunk.len();
        let made = decoder.get_ref().len();
        if made > limit {
            return Ok(None);
        }
        // No gzip is much larger than what it was made of, unless somebody wants time to be lost on it.
        if read > made + SLACK {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it holds next to nothing"));
        }
    }
    let inflated = decoder.finish()?;
    Ok((inflated.len() <= limit).then_some(inflated))
}

/// Parses JSON; duplicate keys are noted with their path.
///
/// # Errors
/// A message in the words of Go's decoder where it is one that users meet.
pub(crate) fn json(bytes: &[u8], findings: &mut Findings) -> Result<Value, String> {
    let mut path = String::new();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Node { path: &mut path, findings, depth: 0 }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value));
    value.map_err(|error| go_json_error(bytes, &error))
}

/// Go's words for a JSON syntax error.
pub(crate) fn go_json_error(bytes: &[u8], error: &serde_json::Error) -> String {
    if error.is_data() || error.to_string().contains(TOO_DEEP) {
        return TOO_DEEP.to_owned();
    }
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let offset = offset(bytes, error.line(), error.column());
    match bytes.get(offset) {
        Some(&byte) => {
            // A keyword that went wrong in its middle.
            let start = bytes[..offset].iter().rposition(|b| !b.is_ascii_alphabetic()).map_or(0, |i| i + 1);
            for word in ["null", "true", "false"] {
                let typed = offset - start;
                if typed > 0 && typed < word.len() && bytes[start..offset] == word.as_bytes()[..typed] {
                    let expected = char::from(word.as_bytes()[typed]);
                    return format!(
                        "invalid character {} in literal {word} (expecting '{expected}')",
                        go_quote(byte)
                    );
                }
            }
            format!("invalid character {} looking for beginning of value", go_quote(byte))
        }
        None => "unexpected end of JSON input".to_owned(),
    }
}

/// A byte as Go's `%q` shows it as a character.
fn go_quote(byte: u8) -> String {
    match byte {
        b'\'' => "'\\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        b'\n' => "'\\n'".to_owned(),
        b'\t' => "'\\t'".to_owned(),
        b'\r' => "'\\r'".to_owned(),
        0x20..=0x7e => format!("'{}'", char::from(byte)),
        _ => format!("'\\x{byte:02x}'"),
    }
}

/// Byte offset of serde_json's position (line from 1, column = bytes read of the line).
fn offset(bytes: &[u8], line: usize, column: usize) -> usize {
    let start: usize =
        bytes.split_inclusive(|b| *b == b'\n').take(line.saturating_sub(1)).map(<[u8]>::len).sum();
    start + column.saturating_sub(1)
}

/// A value with the path that leads to it.
struct Node<'a> {
    path: &'a mut String,
    findings: &'a mut Findings,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        if self.depth >= MAX_DEPTH {
            return Err(A::Error::custom(TOO_DEEP));
        }
        let mut list = Vec::new();
        let length = self.path.len();
        loop {
            let _ = write!(self.path, "[{}]", list.len());
            let node = Node { path: self.path, findings: self.findings, depth: self.depth + 1 };
            let next = access.next_element_seed(node)?;
            self.path.truncate(length);
            match next {
                Some(value) => list.push(value),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        if self.depth >= MAX_DEPTH {
            return Err(A::Error::custom(TOO_DEEP));
        }
        let mut map = Map::new();
        let length = self.path.len();
        while let Some(key) = access.next_key::<String>()? {
            if !self.path.is_empty() {
                self.path.push('.');
            }
            self.path.push_str(&key);
            if map.contains_key(&key) {
                self.findings.duplicate(self.path);
            }
            let node = Node { path: self.path, findings: self.findings, depth: self.depth + 1 };
            let value = access.next_value_seed(node)?;
            self.path.truncate(length);
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

/// Whether a value nests deeper than a body may.
pub(crate) fn is_too_deep(value: &Value) -> bool {
    fn deeper(value: &Value, left: usize) -> bool {
        match value {
            Value::Array(list) => left == 0 || list.iter().any(|item| deeper(item, left - 1)),
            Value::Object(map) => left == 0 || map.values().any(|item| deeper(item, left - 1)),
            _ => false,
        }
    }
    deeper(value, MAX_DEPTH)
}

/// How YAML is read.
fn yaml_options(duplicate_keys: serde_saphyr::DuplicateKeyPolicy) -> serde_saphyr::Options {
    serde_saphyr::options! {
        duplicate_keys: duplicate_keys,
        // `defaultMode: 0400`, as Go's decoder reads it.
        legacy_octal_numbers: true,
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_nodes: LIMIT,
            max_events: 2 * LIMIT,
            flow_nesting_limit: MAX_DEPTH,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_ALIASED },
    }
}

/// Parses one YAML document; a key that stands twice is noted in the words of Go's YAML decoder.
///
/// # Errors
/// What the parser says.
pub(crate) fn yaml(bytes: &[u8], findings: &mut Findings) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "yaml: invalid leading UTF-8 octet".to_owned())?;
    // JSON is YAML, and is what most clients send under that name.
    if text.trim_start().starts_with('{') {
        let mut noticed = Findings::default();
        match json(bytes, &mut noticed) {
            Ok(value) => {
                findings.0.append(&mut noticed.0);
                return Ok(value);
            }
            Err(why) if why == TOO_DEEP => return Err(why),
            Err(_) => {}
        }
    }
    let options = yaml_options(serde_saphyr::DuplicateKeyPolicy::LastWins);
    let value: Value =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| yaml_error(text, &error))?;
    let strict = yaml_options(serde_saphyr::DuplicateKeyPolicy::Error);
    if let Err(error) = serde_saphyr::from_str_with_options::<Value>(text, strict) {
        findings.0.push(duplicate_in_yaml(text, &error));
    }
    Ok(value)
}

/// A syntax error, in the words of Go's YAML decoder for the mistakes that people make.
fn yaml_error(text: &str, error: &serde_saphyr::Error) -> String {
    let whole = error.to_string();
    let message = whole.lines().next().unwrap_or_default();
    let tab = text.lines().position(|line| line.starts_with('\t'));
    if let Some(line) = tab.filter(|_| message.contains("tab")) {
        return format!("yaml: line {}: found a tab character that violates indentation", line + 1);
    }
    let line = error.location().map_or(1, |location| location.line());
    match message {
        m if m.contains("unclosed bracket '['") => {
            format!("yaml: line {line}: did not find expected ',' or ']'")
        }
        m if m.contains("unclosed bracket '{'") => {
            format!("yaml: line {line}: did not find expected ',' or '}}'")
        }
        m => format!("yaml: {}", m.trim_start_matches("error: ")),
    }
}

/// Go's words for a key that stands twice.
fn duplicate_in_yaml(text: &str, error: &serde_saphyr::Error) -> String {
    match error.location() {
        Some(location) => {
            let line = location.line() as usize;
            let key = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
            let key = key.trim_start_matches([' ', '-', '{']).split(':').next().unwrap_or_default().trim();
            format!("line {line}: key {key:?} already set in map")
        }
        None => format!("yaml: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn duplicate_keys_are_noted_and_the_last_one_counts() {
        let mut findings = Findings::default();
        let value = json(br#"{"spec":{"n":1,"l":[{"a":1},{"a":1,"a":2}],"n":2}}"#, &mut findings).unwrap();
        assert_eq!(value, json!({"spec": {"n": 2, "l": [{"a": 1}, {"a": 2}]}}));
        assert_eq!(findings.0, ["duplicate field \"spec.l[1].a\"", "duplicate field \"spec.n\""]);
    }

    #[test]
    fn syntax_errors_are_in_go_words() {
        for (text, want) in [
            ("{\"a\":", "unexpected end of JSON input"),
            ("nonsense", "invalid character 'o' in literal null (expecting 'u')"),
            ("x", "invalid character 'x' looking for beginning of value"),
        ] {
            assert_eq!(json(text.as_bytes(), &mut Findings::default()), Err(want.to_owned()), "{text}");
        }
    }

    proptest::proptest! {
        /// Without duplicates the reader is an ordinary JSON parser, and garbage is an error.
        #[test]
        fn agrees_with_an_ordinary_parser(text in "[\\[\\]{}\":,a-c0-9. \\-ntrue]{0,24}") {
            let mut findings = Findings::default();
            let ours = json(text.as_bytes(), &mut findings);
            let theirs: Result<Value, _> = serde_json::from_str(&text);
            proptest::prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{}", text);
            if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
                proptest::prop_assert_eq!(ours, theirs);
            }
        }
    }

    #[test]
    fn gzip_is_inflated_as_far_as_it_holds_something() {
        let packed = |data: &[u8]| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap()
        };
        // Random bytes become more, not less.
        let mut seed = 1_u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 56) as u8
        })
        .take(300_000)
        .collect();
        for data in [&b""[..], b"{}", &noise, &vec![b' '; 300_000]] {
            assert_eq!(inflate(&packed(data), 300_000).unwrap().as_deref(), Some(data));
        }
        assert_eq!(inflate(&packed(&[b' '; 300_001]), 300_000).unwrap(), None);
        assert_eq!(
            inflate(&packed(&vec![b' '; 100 << 20]), 300_000).unwrap(),
            None,
            "and no more than a piece of it"
        );
        let broken = packed(&noise);
        assert!(inflate(&broken[..broken.len() / 2], 300_000).is_err());
        // Blocks without anything in them, as many as there is room for.
        let mut hollow = packed(b"")[..10].to_vec();
        hollow.extend(std::iter::repeat_n([0, 0, 0, 0xff, 0xff], 600_000).flatten());
        let why = inflate(&hollow, 300_000).unwrap_err();
        assert_eq!(why.to_string(), "it holds next to nothing");
    }

    #[test]
    fn yaml_becomes_json() {
        let mut findings = Findings::default();
        let text = b"apiVersion: v1\nmetadata: {name: a}\ndata:\n  k: \"1\"\n  k: \"2\"\n";
        let value = yaml(text, &mut findings).unwrap();
        assert_eq!(value, json!({"apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": "2"}}));
        assert_eq!(findings.0, ["line 5: key \"k\" already set in map"]);
    }
}
