//! The page of a process.

use std::{fmt, sync::Arc};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, text::encode},
    registry::Registry,
};

use super::{Sheet, Source};

/// What a page is served as.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Makes the text of a page: what a listener that serves one is given.
pub type PageSource = Arc<dyn Fn() -> String + Send + Sync>;

/// All that a process shows. Assembled once, collected whenever it is asked for.
#[derive(Debug, Default)]
pub struct Page {
    registry: Registry,
}

impl Page {
    /// An empty page.
    pub fn new() -> Self {
        Self::default()
    }

    /// With one more source.
    #[must_use]
    pub fn with(mut self, source: impl Source) -> Self {
        self.registry.register_collector(Box::new(Collected(source)));
        self
    }

    /// The text as it is now.
    pub fn render(&self) -> String {
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    /// As what listeners are given.
    pub fn into_source(self) -> PageSource {
        Arc::new(move || self.render())
    }
}

/// A source as prometheus-client knows it.
#[derive(Debug)]
struct Collected<S>(S);

impl<S: Source> Collector for Collected<S> {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.write(&mut Sheet(encoder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Counter, Family, Histogram, exponential, read};

    #[derive(Debug)]
    struct Example {
        requests: Family<1, Counter>,
        took: Histogram,
    }

    impl Source for Example {
        fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
            let rows = self.requests.rows().into_iter().map(|(labels, count)| (labels, count.get() as f64));
            sheet.counter("requests_total", "Requests, by who asked.", rows)?;
            sheet.one_gauge("age_seconds", "An age.", 1.5)?;
            sheet.one_gauge("depth", "A depth.", -3.0)?;
            sheet.histogram("took_seconds", "How long.", [([("side", "a")], &self.took)])?;
            sheet.counted("sync_seconds", "Syncs.", 0.5, &[(0.25, 2), (f64::INFINITY, 1)])
        }
    }

    #[test]
    fn a_page_reads_back_as_it_was_written() {
        let example = Example {
            requests: Family::new(["who"], 10, Counter::default),
            took: exponential(0.001, 2.0, 3),
        };
        example.requests.get(["a \"quoted\\ \n name"]).inc();
        example.took.observe(0.0015);
        let text = Page::new().with(example).render();
        let page = read(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(page.value("requests_total", &[("who", "a \"quoted\\ \n name")]), Some(1.0), "{text}");
        assert_eq!(page.value("age_seconds", &[]), Some(1.5));
        for line in ["age_seconds 1.5\n", "depth -3\n", "name\"} 1\n"] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert_eq!(page.value("took_seconds_bucket", &[("side", "a"), ("le", "0.001")]), Some(0.0));
        assert_eq!(page.value("took_seconds_bucket", &[("side", "a"), ("le", "0.002")]), Some(1.0));
        assert_eq!(page.value("sync_seconds_count", &[]), Some(3.0));
        assert_eq!(page.value("sync_seconds_bucket", &[("le", "+Inf")]), Some(3.0));
    }
}
