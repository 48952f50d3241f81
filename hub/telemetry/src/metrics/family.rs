//! Series by labels that somebody else chooses: so many, and no more.

use indexmap::{Equivalent, IndexMap};
use parking_lot::RwLock;

/// What stands in every label of the one series that takes what came after the limit.
const OTHER: &str = "other";

/// Metrics by the values of `N` labels, in the order of those values.
#[derive(Debug)]
pub struct Family<const N: usize, M> {
    labels: [&'static str; N],
    most: usize,
    make: fn() -> M,
    series: RwLock<IndexMap<[Box<str>; N], M>>,
}

impl<const N: usize, M: Clone> Family<N, M> {
    /// An empty family of at most `most` series, and one more for what goes beyond.
    pub fn new(labels: [&'static str; N], most: usize, make: fn() -> M) -> Self {
        Self { labels, most, make, series: RwLock::default() }
    }

    /// The metric of these labels, made if it is new.
    pub fn get(&self, values: [&str; N]) -> M {
        if let Some(metric) = self.series.read().get(&Labels(values)) {
            return metric.clone();
        }
        let key = values.map(Box::from);
        let mut series = self.series.write();
        let full = series.len() >= self.most && !series.contains_key(&key);
        let key = if full { [OTHER; N].map(Box::from) } else { key };
        series.entry(key).or_insert_with(self.make).clone()
    }

    /// All series, with their labels.
    pub fn rows(&self) -> Vec<(Vec<(&'static str, String)>, M)> {
        let labelled = |values: &[Box<str>; N]| {
            self.labels.iter().zip(values).map(|(label, value)| (*label, value.to_string())).collect()
        };
        let series = self.series.read();
        let mut rows: Vec<_> = series.iter().collect();
        rows.sort_unstable_by_key(|(values, _)| *values);
        rows.into_iter().map(|(values, metric)| (labelled(values), metric.clone())).collect()
    }
}

/// Values to look a series up by, so that counting needs no copies of them.
#[derive(Hash)]
struct Labels<'a, const N: usize>([&'a str; N]);

impl<const N: usize> Equivalent<[Box<str>; N]> for Labels<'_, N> {
    fn equivalent(&self, key: &[Box<str>; N]) -> bool {
        self.0.iter().zip(key).all(|(value, key)| **value == **key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Counter;

    #[test]
    fn there_is_a_limit_and_nothing_is_lost_beyond_it() {
        let family: Family<2, Counter> = Family::new(["verb", "resource"], 3, Counter::default);
        for i in 0..10 {
            family.get(["get", &format!("r{i}")]).inc();
        }
        family.get(["get", "r1"]).inc();
        let rows: Vec<_> = family
            .rows()
            .into_iter()
            .map(|(labels, counter)| format!("{}={}", labels[1].1, counter.get()))
            .collect();
        assert_eq!(rows, ["r0=1", "r1=2", "r2=1", "other=7"], "in order of the values");
    }
}
