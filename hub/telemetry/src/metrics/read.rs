//! Reads a page back, strictly: what a scraper may choke on is an error here.

use std::{
    collections::{BTreeMap, BTreeSet},
    str::FromStr,
};

/// What a family is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only goes up.
    Counter,
    /// Counts by size.
    Histogram,
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "gauge" => Ok(Self::Gauge),
            "counter" => Ok(Self::Counter),
            "histogram" => Ok(Self::Histogram),
            other => Err(format!("no type: {other:?}")),
        }
    }
}

impl Kind {
    /// What may follow a family's name in a sample of it.
    fn suffixes(self) -> &'static [&'static str] {
        match self {
            Self::Gauge => &[""],
            Self::Counter => &["_total"],
            Self::Histogram => &["_sum", "_count", "_bucket"],
        }
    }
}

/// One line of a page.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The name, with its suffix.
    pub name: String,
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// The value.
    pub value: f64,
}

/// All that stands on a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// The families by name (without suffix), with what they are and the sentence about each.
    pub families: BTreeMap<String, (Kind, String)>,
    /// All samples, in the order of the page.
    pub samples: Vec<Sample>,
}

impl Figures {
    /// The value of the one series with exactly these labels.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let same = |sample: &&Sample| {
            sample.name == name
                && sample.labels.len() == labels.len()
                && labels.iter().all(|(l, v)| sample.labels.get(*l).is_some_and(|value| value == v))
        };
        self.samples.iter().find(same).map(|sample| sample.value)
    }

    /// The sum over all series that have at least these labels; none if there is no such series.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let meant = |sample: &&Sample| {
            sample.name == name
                && labels.iter().all(|(l, v)| sample.labels.get(*l).is_some_and(|value| value == v))
        };
        let values: Vec<f64> = self.samples.iter().filter(meant).map(|sample| sample.value).collect();
        (!values.is_empty()).then(|| values.iter().sum())
    }

    /// The names of the labels that samples of a family carry, but for a histogram's own `le`.
    pub fn labels_of(&self, family: &str) -> BTreeSet<&str> {
        let Some((kind, _)) = self.families.get(family) else { return BTreeSet::new() };
        let is_of = |sample: &&Sample| {
            sample.name.strip_prefix(family).is_some_and(|suffix| kind.suffixes().contains(&suffix))
        };
        let labels = self.samples.iter().filter(is_of).flat_map(|sample| sample.labels.keys());
        labels.map(String::as_str).filter(|label| *label != "le").collect()
    }
}

/// Why a text is no page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct ReadError {
    /// Counted from one.
    pub line: usize,
    /// What is wrong with it.
    pub why: String,
}

/// Reads a page of gauges, counters and histograms.
///
/// # Errors
/// At the first line that breaks the format: a name or label that is none, a sample before its type, a family in
/// two places, a series twice, a histogram that does not add up, no end.
pub fn read(text: &str) -> Result<Figures, ReadError> {
    let mut reader = Reader::default();
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let at = |why: String| ReadError { line: index + 1, why };
        let line = line.strip_suffix('\n').ok_or_else(|| at("no line end".to_owned()))?;
        reader.line(line).map_err(at)?;
    }
    let end = text.lines().count();
    reader.finish().map_err(|why| ReadError { line: end, why })
}

#[derive(Default)]
struct Reader {
    figures: Figures,
    seen: BTreeSet<String>,
    /// The family that the last comment was about.
    help: Option<(String, String)>,
    current: Option<(String, Kind)>,
    ended: bool,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        if self.ended {
            return Err("something after the end".to_owned());
        }
        if line == "# EOF" {
            self.ended = true;
            return Ok(());
        }
        if let Some(text) = line.strip_prefix("# HELP ") {
            let (name, help) = text.split_once(' ').ok_or("a HELP without a sentence")?;
            self.help = Some((metric_name(name)?.to_owned(), help.to_owned()));
            return Ok(());
        }
        if let Some(text) = line.strip_prefix("# TYPE ") {
            let (name, kind) = text.split_once(' ').ok_or("a TYPE without a type")?;
            let kind: Kind = kind.parse()?;
            let help = match self.help.take() {
                Some((about, help)) if about == name => help,
                _ => return Err(format!("no HELP before the TYPE of {name}")),
            };
            if self.figures.families.insert(name.to_owned(), (kind, help)).is_some() {
                return Err(format!("{name} stands in two places"));
            }
            self.current = Some((name.to_owned(), kind));
            return Ok(());
        }
        if line.starts_with('#') {
            return Err("a comment that means nothing".to_owned());
        }
        self.sample(line)
    }

    fn sample(&mut self, line: &str) -> Result<(), String> {
        let (name, rest) = line.split_at(line.find(['{', ' ']).ok_or("no value")?);
        metric_name(name)?;
        let (family, kind) = self.current.as_ref().ok_or("a sample before any TYPE")?;
        let suffix = name.strip_prefix(family.as_str()).unwrap_or("?");
        if !kind.suffixes().contains(&suffix) {
            return Err(format!("{name} is no sample of the {kind:?} {family}"));
        }
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => labels(rest)?,
            None => (BTreeMap::new(), rest),
        };
        let value = rest.strip_prefix(' ').ok_or("no space before the value")?;
        let value: f64 = value.parse().map_err(|_| format!("no number: {value:?}"))?;
        if *kind != Kind::Gauge && (value.is_nan() || value < 0.0) {
            return Err(format!("{name} is {value}"));
        }
        let series = format!("{name} {labels:?}");
        if !self.seen.insert(series) {
            return Err(format!("{name}{labels:?} stands there twice"));
        }
        self.figures.samples.push(Sample { name: name.to_owned(), labels, value });
        Ok(())
    }

    fn finish(self) -> Result<Figures, String> {
        if !self.ended {
            return Err("no # EOF".to_owned());
        }
        for (family, _) in self.figures.families.iter().filter(|(_, (kind, _))| *kind == Kind::Histogram) {
            adds_up(&self.figures, family)?;
        }
        Ok(self.figures)
    }
}

/// The buckets of each series of a histogram grow, and the last one holds everything.
fn adds_up(figures: &Figures, family: &str) -> Result<(), String> {
    let mut last: BTreeMap<BTreeMap<String, String>, (f64, f64)> = BTreeMap::new();
    for sample in figures.samples.iter().filter(|s| s.name.strip_prefix(family) == Some("_bucket")) {
        let mut labels = sample.labels.clone();
        let bound = labels.remove("le").ok_or_else(|| format!("a bucket of {family} without le"))?;
        let bound: f64 = bound.parse().map_err(|_| format!("{family}: le is {bound:?}"))?;
        let (before, count) = last.entry(labels).or_insert((f64::NEG_INFINITY, 0.0));
        if bound <= *before || sample.value < *count {
            return Err(format!("the buckets of {family} are out of order at {bound}"));
        }
        (*before, *count) = (bound, sample.value);
    }
    for sample in figures.samples.iter().filter(|s| s.name.strip_prefix(family) == Some("_count")) {
        match last.get(&sample.labels) {
            Some((bound, count)) if bound.is_infinite() && *count == sample.value => {}
            other => return Err(format!("{family} counts {}, its last bucket is {other:?}", sample.value)),
        }
    }
    Ok(())
}

fn metric_name(name: &str) -> Result<&str, String> {
    let good =
        |i: usize, c: char| c.is_ascii_alphabetic() || c == '_' || c == ':' || (i > 0 && c.is_ascii_digit());
    if name.is_empty() || !name.chars().enumerate().all(|(i, c)| good(i, c)) {
        return Err(format!("no name of a metric: {name:?}"));
    }
    Ok(name)
}

/// `name="value",…}`, and what follows.
fn labels(mut rest: &str) -> Result<(BTreeMap<String, String>, &str), String> {
    let mut labels = BTreeMap::new();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Ok((labels, after));
        }
        if !labels.is_empty() {
            rest = rest.strip_prefix(',').ok_or("no comma between labels")?;
        }
        let (name, after) = rest.split_once("=\"").ok_or("a label without a value")?;
        if metric_name(name)?.contains(':') {
            return Err(format!("no name of a label: {name:?}"));
        }
        let (value, after) = quoted(after)?;
        if labels.insert(name.to_owned(), value).is_some() {
            return Err(format!("the label {name} stands there twice"));
        }
        rest = after;
    }
}

/// Up to the closing quote, with `\\`, `\"` and `\n` undone.
fn quoted(text: &str) -> Result<(String, &str), String> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, c @ ('\\' | '"'))) => value.push(c),
                other => return Err(format!("no escape: {:?}", other.map(|(_, c)| c))),
            },
            c => value.push(c),
        }
    }
    Err("a label's value without an end".to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEAD: &str = "# HELP a An a.\n# TYPE a gauge\n";

    #[test]
    fn a_good_page() {
        let text = format!(
            "{HEAD}a{{x=\"1\",y=\"\\\"\\\\\\n\"}} 2.5\na 3\n# HELP b B.\n# TYPE b counter\nb_total 7\n\
             # HELP h H.\n# TYPE h histogram\nh_sum 1\nh_count 2\nh_bucket{{le=\"0.5\"}} 1\nh_bucket{{le=\"+Inf\"}} 2\n# EOF\n"
        );
        let page = read(&text).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(page.value("a", &[("y", "\"\\\n"), ("x", "1")]), Some(2.5));
        assert_eq!(page.value("a", &[]), Some(3.0));
        assert_eq!(page.sum("a", &[]), Some(5.5));
        assert_eq!(page.sum("c", &[]), None);
        assert_eq!(page.families["b"], (Kind::Counter, "B.".to_owned()));
        assert_eq!(page.labels_of("a").into_iter().collect::<Vec<_>>(), ["x", "y"]);
        assert!(page.labels_of("h").is_empty());
    }

    #[test]
    fn what_a_scraper_chokes_on() {
        let rows = [
            ("no end", format!("{HEAD}a 1\n")),
            ("no line end", format!("{HEAD}a 1\n# EOF")),
            ("after the end", format!("{HEAD}# EOF\na 1\n")),
            ("no type", "a 1\n# EOF\n".to_owned()),
            ("no help", "# TYPE a gauge\na 1\n# EOF\n".to_owned()),
            ("another family's sample", format!("{HEAD}b 1\n# EOF\n")),
            ("a family twice", format!("{HEAD}{HEAD}# EOF\n")),
            ("a series twice", format!("{HEAD}a 1\na 1\n# EOF\n")),
            ("a label twice", format!("{HEAD}a{{x=\"1\",x=\"2\"}} 1\n# EOF\n")),
            ("no label", format!("{HEAD}a{{1=\"1\"}} 1\n# EOF\n")),
            ("a colon in a label", format!("{HEAD}a{{x:y=\"1\"}} 1\n# EOF\n")),
            ("no closing quote", format!("{HEAD}a{{x=\"1}} 1\n# EOF\n")),
            ("no escape", format!("{HEAD}a{{x=\"\\t\"}} 1\n# EOF\n")),
            ("no number", format!("{HEAD}a one\n# EOF\n")),
            ("a name with a dash", "# HELP a-b A.\n# EOF\n".to_owned()),
            (
                "a counter without its suffix",
                "# HELP b B.\n# TYPE b counter\nb 1\n# EOF\n".to_owned(),
            ),
            (
                "a negative counter",
                "# HELP b B.\n# TYPE b counter\nb_total -1\n# EOF\n".to_owned(),
            ),
            (
                "buckets out of order",
                "# HELP h H.\n# TYPE h histogram\nh_count 1\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\n# EOF\n"
                    .to_owned(),
            ),
            (
                "a count that is not the last bucket",
                "# HELP h H.\n# TYPE h histogram\nh_count 3\nh_bucket{le=\"+Inf\"} 1\n# EOF\n".to_owned(),
            ),
        ];
        for (what, text) in rows {
            assert!(read(&text).is_err(), "{what}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(# (HELP|TYPE) )?[a\"{}=\\\\, \n0-9.#-]{0,80}") {
            let _ = read(&text);
        }
    }
}
