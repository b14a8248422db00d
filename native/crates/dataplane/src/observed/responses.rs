//! What the statistics tell of the responses of a decoupled model: of the first of each request, of the second, and so
//! on.

use kushi_core::{Answered, ErrorKind, Totals};

/// Of later responses nothing is told.
const MOST: usize = 1000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseRow {
    /// Since the response before it, or since the execution began.
    pub compute_infer: Totals,
    /// Outputs leave as the model gave them, without a copy: always of no time.
    pub compute_output: Totals,
    pub success: Totals,
    pub fail: Totals,
    /// The end of a request behind its last response.
    pub empty_response: Totals,
    pub cancel: Totals,
}

#[derive(Default)]
pub(crate) struct Responses(Vec<ResponseRow>);

impl Responses {
    pub(super) fn record(&mut self, answer: &Answered<'_>) {
        if answer.before >= MOST {
            return;
        }
        if self.0.len() <= answer.before {
            self.0.resize(answer.before + 1, ResponseRow::default());
        }
        let (row, took) = (&mut self.0[answer.before], answer.took);
        match (answer.response, answer.end) {
            (_, Some(Err(error))) if error.kind == ErrorKind::Cancelled => row.cancel.add(1, took),
            (_, Some(Err(_))) => {
                row.compute_infer.add(1, took);
                row.fail.add(1, took);
            }
            (None, _) => row.empty_response.add(1, took),
            (Some(_), _) => {
                row.compute_infer.add(1, took);
                row.compute_output.count += 1;
                row.success.add(1, took);
            }
        }
    }

    pub(super) fn rows(&self) -> &[ResponseRow] {
        &self.0
    }
}
