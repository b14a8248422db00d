//! How many values are no greater than each of some bounds.

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Histogram {
    /// Ascending; the last bucket, which takes everything, has none.
    bounds: Vec<f64>,
    /// One more than there are bounds.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    pub(crate) fn new(bounds: impl Into<Vec<f64>>) -> Self {
        let bounds = bounds.into();
        Self { counts: vec![0; bounds.len() + 1], bounds, sum: 0.0 }
    }

    /// One whose values have been counted: one number more than there are bounds.
    pub(crate) fn counted(bounds: &[f64], counts: &[u64], sum: f64) -> Self {
        let mut counts = counts.to_vec();
        counts.resize(bounds.len() + 1, 0);
        Self { bounds: bounds.to_vec(), counts, sum }
    }

    pub(crate) fn bounds(&self) -> &[f64] {
        &self.bounds
    }

    pub(crate) fn observe(&mut self, value: f64) {
        self.observe_many(value, 1);
    }

    pub(crate) fn observe_many(&mut self, value: f64, times: u64) {
        let place = self.bounds.partition_point(|bound| *bound < value);
        self.counts[place] += times;
        self.sum += value * times as f64;
    }

    pub(crate) fn forget(&mut self) {
        self.counts.fill(0);
        self.sum = 0.0;
    }

    pub(crate) fn sum(&self) -> f64 {
        self.sum
    }

    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Each bound, at last infinity, with the number of values up to it.
    pub(crate) fn up_to(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.zip(&self.counts).scan(0, |below, (bound, count)| {
            *below += count;
            Some((bound, *below))
        })
    }
}
