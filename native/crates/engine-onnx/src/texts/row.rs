//! A text that waits to be run.

use std::sync::Arc;

use kushi_text::Tokens;

use super::job::Job;

pub(super) struct Row {
    pub(super) job: Arc<Job>,
    /// Its place in the request.
    pub(super) text: usize,
    pub(super) tokens: Tokens,
}

/// The inputs of a network for rows that run together, each row as long as the longest.
pub(super) struct Inputs {
    pub(super) ids: Vec<i64>,
    pub(super) mask: Vec<i64>,
    pub(super) types: Vec<i64>,
    pub(super) length: usize,
}

impl Inputs {
    pub(super) fn of(rows: &[Row], pad: u32) -> Self {
        let length = rows.iter().map(|row| row.tokens.ids.len()).max().unwrap_or_default();
        let size = rows.len() * length;
        let (mut ids, mut mask, mut types) = (vec![i64::from(pad); size], vec![0; size], vec![0; size]);
        for (row, begin) in rows.iter().zip((0..).step_by(length.max(1))) {
            for (at, (id, kind)) in row.tokens.ids.iter().zip(&row.tokens.types).enumerate() {
                ids[begin + at] = i64::from(*id);
                mask[begin + at] = 1;
                types[begin + at] = i64::from(*kind);
            }
        }
        Self { ids, mask, types, length }
    }
}
