//! Asks a forest about rows: block by block, and many of them on several threads.

use std::io;
use std::ops::AddAssign;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::answer::Answer;
use crate::forest::{Forest, Leaves};
use crate::layout::{Key, MISSING, key};
use crate::walk;

const BLOCK_ROWS: usize = 64;
/// So much of a block stays near the processor.
const BLOCK_BYTES: usize = 128 << 10;
/// A thread of its own is worth so many steps down trees: some milliseconds.
const STEPS_OF_THREAD: usize = 1 << 22;

/// Why a run has no answers.
#[derive(Debug)]
pub(crate) enum Failed {
    /// It was ended from elsewhere.
    Stopped,
    NoThread(io::Error),
}

/// Rows of floats, little-endian, and whether to stop.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    pub rows: &'a [u8],
    pub row_bytes: usize,
    pub stop: &'a AtomicBool,
}

/// Writes what is asked for about the rows of a run, as floats.
pub(crate) type Work<'a> = &'a (dyn Fn(Run<'_>, &mut [u8]) -> Result<(), Failed> + Sync);

impl Run<'_> {
    /// On up to `threads` threads, this one among them; `output` has as many bytes for each row, which takes so many steps.
    pub fn divide(
        self,
        output: &mut [u8],
        output_bytes: usize,
        steps: usize,
        threads: usize,
        work: Work<'_>,
    ) -> Result<(), Failed> {
        let count = self.rows.len() / self.row_bytes;
        let threads = threads.min(count.saturating_mul(steps) / STEPS_OF_THREAD).min(count);
        if threads < 2 {
            return work(self, output);
        }
        let share = count.div_ceil(threads);
        let mut shares =
            self.rows.chunks(share * self.row_bytes).zip(output.chunks_mut(share * output_bytes));
        let own = shares.next();
        thread::scope(|scope| {
            let others: Vec<_> = shares
                .map(|(rows, output)| {
                    let builder = thread::Builder::new().name("kushi-forest".into());
                    builder.spawn_scoped(scope, move || work(Run { rows, ..self }, output))
                })
                .collect();
            let mine = own.map_or(Ok(()), |(rows, output)| work(Run { rows, ..self }, output));
            let theirs = others.into_iter().map(|thread| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                Err(error) => Err(Failed::NoThread(error)),
            });
            theirs.fold(mine, Result::and)
        })
    }

    fn values(rows: &[u8]) -> impl Iterator<Item = Key> {
        rows.chunks_exact(4).map(|bytes| key(f32::from_le_bytes(bytes.try_into().unwrap_or_default())))
    }

    fn go_on(self) -> Result<(), Failed> {
        if self.stop.load(Ordering::Relaxed) { Err(Failed::Stopped) } else { Ok(()) }
    }
}

impl Forest {
    pub(crate) fn predict(&self, run: Run<'_>, answer: Answer, output: &mut [u8]) -> Result<(), Failed> {
        match &self.leaves {
            Leaves::Single(leaves) => self.predict_blocks(leaves, run, answer, output),
            Leaves::Double(leaves) => self.predict_blocks(leaves, run, answer, output),
        }
    }

    fn predict_blocks<T: Copy + Default + AddAssign + Into<f64>>(
        &self,
        leaves: &[T],
        run: Run<'_>,
        answer: Answer,
        output: &mut [u8],
    ) -> Result<(), Failed> {
        let answer_bytes = answer.width(self.classes) * 4;
        let block = (BLOCK_BYTES / run.row_bytes).clamp(walk::LANES, BLOCK_ROWS);
        let (mut values, mut sums, mut finished) = (Vec::new(), Vec::new(), vec![0.0; self.classes]);
        for (rows, output) in
            run.rows.chunks(block * run.row_bytes).zip(output.chunks_mut(block * answer_bytes))
        {
            run.go_on()?;
            values.clear();
            values.extend(Run::values(rows));
            sums.clear();
            sums.resize(rows.len() / run.row_bytes * self.classes, T::default());
            if values.contains(&MISSING) {
                walk::add::<T, true>(self, leaves, &values, &mut sums);
            } else {
                walk::add::<T, false>(self, leaves, &values, &mut sums);
            }
            for (sums, output) in sums.chunks_exact(self.classes).zip(output.chunks_exact_mut(answer_bytes)) {
                for (class, value) in finished.iter_mut().enumerate() {
                    *value = sums[class].into() / self.divisors[class] + self.base_scores[class];
                }
                self.finish.apply(&mut finished);
                answer.write(&finished, |index, value| write(output, index, value));
            }
        }
        Ok(())
    }

    pub(crate) fn explain_rows(&self, run: Run<'_>, output: &mut [u8]) -> Result<(), Failed> {
        let mut found = vec![0.0; self.classes * (self.features + 1)];
        let rows = run.rows.chunks_exact(run.row_bytes);
        for (row, output) in rows.zip(output.chunks_exact_mut(found.len() * 4)) {
            run.go_on()?;
            let row: Vec<Key> = Run::values(row).collect();
            self.contributions(&row, &mut found);
            found.iter().enumerate().for_each(|(index, &value)| write(output, index, value as f32));
        }
        Ok(())
    }
}

fn write(output: &mut [u8], index: usize, value: f32) {
    output[index * 4..][..4].copy_from_slice(&value.to_le_bytes());
}
