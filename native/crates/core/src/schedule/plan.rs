//! What a scheduler tells a slot to run.

use crate::{Entry, Tensor};

/// A batch that is to be run, in the order of its rows.
pub struct Plan {
    pub seats: Vec<Seat>,
    /// Inputs that the scheduler has made, by position in the specification: they take the place of what
    /// requests have there, and have a row for each row of the seats.
    pub inputs: Vec<(usize, Tensor)>,
}

/// A place in a batch. Its rows stay its own when its request ends before the others.
pub struct Seat {
    pub(crate) rows: usize,
    /// `None`: the rows answer nobody, or no more.
    pub(crate) entry: Option<Entry>,
}

impl Seat {
    /// Rows that answer nobody. Their inputs are zero.
    pub fn padding(rows: usize) -> Self {
        Self { rows, entry: None }
    }
}

impl From<Entry> for Seat {
    fn from(entry: Entry) -> Self {
        Self { rows: entry.request.rows, entry: Some(entry) }
    }
}

impl Plan {
    /// The numbers of its requests.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.seats.iter().filter_map(|seat| seat.entry.as_ref()).map(|entry| entry.number)
    }
}
