//! Answers that come later: the instance hands over its next batch while a thread of the engine's own waits for this one.
//!
//! At most two batches of an engine are unanswered: the one that is waited for, and the one that was handed over behind
//! it, whose instance waits here until the first is answered.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use kushi_core::{Batch, Error, ErrorKind, ModelSpec};
use pyo3::intern;
use pyo3::prelude::*;

use crate::engine::Wanted;
use crate::raised::described;
use crate::{exit, outputs};

/// A batch that Python has begun.
pub(crate) struct BegunBatch {
    pub(crate) batch: Batch,
    pub(crate) wanted: Wanted,
    /// It has a method `wait`, which answers as `execute` would.
    pub(crate) later: Py<PyAny>,
}

/// Dropping it ends its thread, behind what the thread is at.
pub(crate) struct Waiter(SyncSender<BegunBatch>);

impl Waiter {
    pub(crate) fn start(spec: Arc<ModelSpec>) -> io::Result<Self> {
        // Without room in between: whoever sends goes on when the thread has come back for the batch.
        let (sender, begun) = sync_channel(0);
        thread::Builder::new().name("kushi-answers".into()).spawn(move || answer_all(&begun, &spec))?;
        Ok(Self(sender))
    }

    pub(crate) fn hand_over(&self, begun: BegunBatch) {
        if let Err(back) = self.0.send(begun) {
            let error = Error::new(ErrorKind::Internal, "the thread that waits for answers has ended");
            back.0.batch.fail(&error);
        }
    }
}

fn answer_all(begun: &Receiver<BegunBatch>, spec: &ModelSpec) {
    while let Ok(BegunBatch { mut batch, wanted, later }) = begun.recv() {
        let rows = batch.rows();
        let result = exit::attached(|py| {
            let later = later.into_bound(py);
            let answer = later.call_method0(intern!(py, "wait"));
            batch.computed();
            match answer {
                Ok(answer) => outputs::read(&answer, spec, rows, &wanted),
                Err(error) => Err(described(py, &error, &spec.name)),
            }
        });
        match result {
            Some(Ok(outputs)) => batch.scatter(&outputs),
            Some(Err(error)) => batch.fail(&error),
            None => batch.fail(&exit::gone()),
        }
    }
}
