//! Executes requests of texts on a session, with threads of its own: one for each instance.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use kushi_core::{
    Batch, Capability, Engine, Error, ErrorKind, ModelSpec, Slot, SlotToken, Texts, lower_priority, os_text,
    stay_on,
};

use super::TextModel;
use super::job::{Job, texts};
use super::model::Text;
use super::row::Row;
use super::waiting::{Room, Work};
use crate::options::RunOptions;

/// Of a request with more texts than these, others do not wait for all.
const FEW: usize = 8;
/// Of a request: where the model has no batches, nothing else says how many.
const MOST_TEXTS: usize = 65_536;

/// Its threads end when it is dropped, behind what they have been given.
pub struct TextEngine(Arc<Shared>);

struct Shared {
    name: String,
    model: Arc<TextModel>,
    run_options: RunOptions,
    room: Mutex<Room>,
    news: Condvar,
}

impl TextEngine {
    pub fn new(model: Arc<TextModel>, spec: &ModelSpec) -> Result<Self, Error> {
        let fault =
            |text: String| Error::new(ErrorKind::ConfigInvalid, format!("model '{}': {text}", spec.name));
        let run_options = model.run_options().map_err(fault)?;
        let room = Mutex::new(Room::new(model.batch_tokens(), model.longest(), spec.instances));
        let engine = Self(Arc::new(Shared {
            name: spec.name.clone(),
            model,
            run_options,
            room,
            news: Condvar::new(),
        }));
        for index in 0..spec.instances {
            let shared = engine.0.clone();
            let cores = spec.cores.get(index).cloned();
            let thread = std::thread::Builder::new().name(format!("{}_{index}", spec.name));
            let started = thread.spawn(move || {
                if let Some(cores) = cores {
                    stay_on(&cores);
                }
                lower_priority();
                shared.work();
            });
            started.map_err(|error| {
                let text = format!("cannot start an instance thread: {}", os_text(&error));
                Error::new(ErrorKind::Internal, text)
            })?;
        }
        Ok(engine)
    }
}

impl Engine for TextEngine {
    fn capability(&self) -> Capability {
        Capability { concurrent: true, inline: false, keeps_slots: true }
    }

    fn execute(&self, _slot: &mut Slot, batch: Batch) {
        for request in batch.take_apart() {
            self.0.enter(request);
        }
    }

    fn begin(&self, mut slot: SlotToken, batch: Batch) {
        self.execute(&mut slot, batch);
        let back = self.0.room().hold(slot);
        drop(back);
    }

    fn texts(&self) -> Option<Arc<dyn Texts>> {
        Some(self.0.model.face().clone())
    }

    /// What it has taken out of the queue ends by [`Self::stop_unanswered`].
    fn stop_run(&self, _slot: usize) -> bool {
        true
    }

    fn stop_unanswered(&self) {
        let (jobs, gone) = self.0.room().stop();
        drop(gone);
        self.0.fail(&jobs, &self.0.stopping());
    }
}

impl Drop for TextEngine {
    fn drop(&mut self) {
        self.0.room().closed = true;
        self.0.news.notify_all();
    }
}

impl Shared {
    fn enter(&self, request: Batch) {
        let Some(asked) = request.request(0) else { return };
        let read = texts(&asked.inputs).and_then(|texts| Ok((texts, self.model.wish(&asked.parameters)?)));
        let (texts, wish) = match read {
            Ok(read) => read,
            Err(error) => return request.fail(&error),
        };
        if texts.len() > MOST_TEXTS {
            let text = format!("a request has {} texts, expected at most {MOST_TEXTS}", texts.len());
            return request.fail(&Error::new(ErrorKind::InvalidInput, text));
        }
        let is_bulk = texts.len() > FEW;
        let weight = if is_bulk { self.model.bytes(&texts) } else { self.model.tokens_at_most(&texts) };
        let job = Arc::new(Job::new(request, texts.len(), &self.model, wish, weight, is_bulk));
        if texts.is_empty() {
            return job.end_empty();
        }
        let mut room = self.room();
        if room.stopping {
            drop(room);
            return job.fail(&self.stopping());
        }
        room.enter(job, texts);
        drop(room);
        self.news.notify_one();
    }

    fn stopping(&self) -> Error {
        Error::new(ErrorKind::ShuttingDown, format!("model '{}' is being unloaded", self.name))
    }

    /// On a thread of its own, until the model goes.
    fn work(&self) {
        while let Some(work) = self.next() {
            let jobs = work.jobs();
            let carry_out = || match work {
                Work::Tokenise(job, texts) => self.tokenise(&job, &texts),
                Work::Run(rows) => self.run(rows),
            };
            if catch_unwind(AssertUnwindSafe(carry_out)).is_err() {
                let text = format!("the engine of model '{}' panicked", self.name);
                let error = Error::new(ErrorKind::EngineFailed, text);
                drop(catch_unwind(AssertUnwindSafe(|| self.fail(&jobs, &error))));
            }
            for job in &jobs {
                self.let_leave(job);
            }
        }
    }

    fn next(&self) -> Option<Work> {
        let mut room = self.room();
        loop {
            if let Some(work) = room.next() {
                if room.has_work() {
                    self.news.notify_one();
                }
                let gone = room.take_gone();
                drop(room);
                drop(gone);
                return Some(work);
            }
            if room.closed {
                return None;
            }
            room = self.news.wait(room).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn tokenise(&self, job: &Arc<Job>, texts: &[(usize, Text)]) {
        let mut rows = Vec::with_capacity(texts.len());
        let mut last = job.take_first();
        for (text, content) in texts {
            job.end_abandoned();
            if !job.is_open() {
                return;
            }
            match self.model.tokens(content, &job.wish, &mut last) {
                Ok(tokens) => rows.push(Row { job: job.clone(), text: *text, tokens }),
                Err(error) => return job.fail(&error),
            }
        }
        job.keep_first(last);
        let mut room = self.room();
        if room.stopping {
            drop(room);
            return job.fail(&self.stopping());
        }
        room.add(rows);
        drop(room);
        self.news.notify_one();
    }

    fn run(&self, mut rows: Vec<Row>) {
        for row in &rows {
            row.job.end_abandoned();
            row.job.begin();
        }
        rows.retain(|row| row.job.is_open());
        if rows.is_empty() {
            return;
        }
        let Err(error) = self.model.run(&self.run_options, &rows) else { return };
        if let [row] = &rows[..] {
            return row.job.fail(&error);
        }
        // One of them may be the reason.
        for row in &rows {
            row.job.end_abandoned();
            if row.job.is_open()
                && let Err(error) = self.model.run(&self.run_options, std::slice::from_ref(row))
            {
                row.job.fail(&error);
            }
        }
    }

    fn fail(&self, jobs: &[Arc<Job>], error: &Error) {
        for job in jobs {
            job.fail(error);
            self.let_leave(job);
        }
    }

    /// Where it has ended, it is owed no more.
    fn let_leave(&self, job: &Job) {
        if job.leaves() {
            let gone = self.room().leave(job);
            drop(gone);
        }
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
