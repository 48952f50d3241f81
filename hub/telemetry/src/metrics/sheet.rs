//! What a source writes its figures on.

use std::fmt;

use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, NoLabelSet},
    metrics::{MetricType, histogram::Histogram},
};

/// Something that has figures to show. Asked at every scrape, and never in between.
pub trait Source: fmt::Debug + Send + Sync + 'static {
    /// Writes each family once, all its series together.
    ///
    /// # Errors
    /// Those of the sheet.
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result;
}

impl<S: Source> Source for std::sync::Arc<S> {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        self.as_ref().write(sheet)
    }
}

/// The part of a page that one source fills. Each method writes one family: its name, a sentence about it, and rows
/// of labels and values. `[(&str, &str); 0]` says no labels.
#[derive(Debug)]
pub struct Sheet<'a>(pub(crate) DescriptorEncoder<'a>);

impl Sheet<'_> {
    /// What goes up and down.
    ///
    /// # Errors
    /// When the page cannot be written to.
    pub fn gauge<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (L, f64)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in rows {
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    /// What only goes up, whole or not (seconds). The name ends in `_total`.
    ///
    /// # Errors
    /// When the page cannot be written to.
    pub fn counter<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (L, f64)>,
    ) -> fmt::Result {
        let stem = name.strip_suffix("_total").unwrap_or(name);
        let mut family = self.0.encode_descriptor(stem, help, None, MetricType::Counter)?;
        for (labels, value) in rows {
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, f64, f64>(&value, None)?;
        }
        Ok(())
    }

    /// How often something was how large.
    ///
    /// # Errors
    /// When the page cannot be written to.
    pub fn histogram<'h, L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (L, &'h Histogram)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (labels, histogram) in rows {
            histogram.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// The same for counts that somebody else kept: `buckets` are upper bounds with how many were below each and
    /// above the one before, the last of them infinite.
    ///
    /// # Errors
    /// When the page cannot be written to.
    pub fn counted(&mut self, name: &str, help: &str, sum: f64, buckets: &[(f64, u64)]) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        let count = buckets.iter().map(|(_, count)| count).sum();
        family.encode_histogram::<NoLabelSet>(sum, count, buckets, None)
    }

    /// One gauge without labels.
    ///
    /// # Errors
    /// When the page cannot be written to.
    pub fn one_gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.gauge(name, help, [(NO_LABELS, value)])
    }

    /// One counter without labels.
    ///
    /// # Errors
    /// When the page cannot be written to.
    pub fn one_counter(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.counter(name, help, [(NO_LABELS, value)])
    }
}

const NO_LABELS: [(&str, &str); 0] = [];
