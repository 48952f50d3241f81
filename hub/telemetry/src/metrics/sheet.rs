//! What a source writes its figures on.

use std::fmt;

use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet},
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
/// of labels and values; those that begin with `one` write a family of one series without labels.
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
            gauge(family.encode_family(&labels)?, value)?;
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
            counter(family.encode_family(&labels)?, value)?;
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
        gauge(self.0.encode_descriptor(name, help, None, MetricType::Gauge)?, value)
    }

    /// One histogram without labels.
    ///
    /// # Errors
    /// When the page cannot be written to.
    pub fn one_histogram(&mut self, name: &str, help: &str, histogram: &Histogram) -> fmt::Result {
        histogram.encode(self.0.encode_descriptor(name, help, None, MetricType::Histogram)?)
    }

    /// One counter without labels.
    ///
    /// # Errors
    /// When the page cannot be written to.
    pub fn one_counter(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let stem = name.strip_suffix("_total").unwrap_or(name);
        counter(self.0.encode_descriptor(stem, help, None, MetricType::Counter)?, value)
    }
}

/// A number that is whole, and small enough to be written so.
fn whole(value: f64) -> Option<i64> {
    const LARGEST: f64 = 9_007_199_254_740_992.0;
    (value.fract() == 0.0 && value.abs() <= LARGEST).then_some(value as i64)
}

fn gauge(mut series: MetricEncoder<'_>, value: f64) -> fmt::Result {
    match whole(value) {
        Some(whole) => series.encode_gauge(&whole),
        None => series.encode_gauge(&value),
    }
}

fn counter(mut series: MetricEncoder<'_>, value: f64) -> fmt::Result {
    match whole(value).and_then(|whole| u64::try_from(whole).ok()) {
        Some(whole) => series.encode_counter::<NoLabelSet, u64, f64>(&whole, None),
        None => series.encode_counter::<NoLabelSet, f64, f64>(&value, None),
    }
}
