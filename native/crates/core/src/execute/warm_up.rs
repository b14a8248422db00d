//! Warm-up: what every instance executes before its version takes its first request.
//!
//! A batch of a sample goes to its slot as one does that runs again, past the queue. Whoever warms a runner up waits
//! for the answers, and nobody else knows the runner yet, so what the statistics counted can be forgotten.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::sync::{Condvar, Mutex, lock};
use crate::{
    Batch, Bound, Entry, Error, ErrorKind, Inputs, Lease, Mail, Mailbox, Plan, Reply, Request, Runner, Seat,
    Step, Wanted,
};

/// How often a warm-up that takes long says how far it is.
const PROGRESS: Duration = Duration::from_secs(2);

/// One batch that is executed `count` times on every instance.
#[derive(Clone, Debug)]
pub struct WarmUpSample {
    pub name: String,
    /// Requests in the batch, of one row each.
    pub batch_size: usize,
    pub count: usize,
    /// Of each request.
    pub inputs: Inputs,
}

impl Runner {
    /// Executes the samples one after the other, each on all instances at the same time, and forgets what the
    /// statistics say of it. To be called before the runner is published. [`Runner::retire`] ends it with an error.
    pub fn warm_up(self: &Arc<Self>, samples: &[WarmUpSample]) -> Result<(), Error> {
        let slots = self.handover.with(|state| state.runs.count());
        let mut said = Instant::now();
        for sample in samples {
            self.check_batch_size(sample)?;
            for run in 1..=sample.count {
                let answers = Arc::new(Answers::of(slots * sample.batch_size));
                for slot in 0..slots {
                    self.begin_warm_up(sample, slot, &answers)?;
                }
                while !answers.wait_until(said + PROGRESS) {
                    said = Instant::now();
                    let (spec, name, count) = (self.spec(), &sample.name, sample.count);
                    log::info!(
                        "still warming up '{}' version {}: sample '{name}', run {run} of {count} on {slots} instance(s)",
                        spec.name,
                        spec.version
                    );
                }
                answers.result(&sample.name)?;
            }
        }
        self.ledger.forget_statistics();
        Ok(())
    }

    fn check_batch_size(&self, sample: &WarmUpSample) -> Result<(), Error> {
        let spec = self.spec();
        let (size, max) = (sample.batch_size, spec.max_batch_size);
        if size <= max.max(1) {
            return Ok(());
        }
        let text = format!("batch size {size} for '{}', max allowed is {max}; ", spec.name);
        Err(failed(&sample.name, &text))
    }

    fn begin_warm_up(
        self: &Arc<Self>,
        sample: &WarmUpSample,
        slot: usize,
        answers: &Arc<Answers>,
    ) -> Result<(), Error> {
        let now = self.now();
        let ledger = &self.ledger;
        let ((), lead) = self.handover.admit(now, |state| {
            if state.closed {
                return Err(Error::shutting_down());
            }
            let seats = (0..sample.batch_size).map(|_| {
                let request = request_of(sample, now, Reply::new(answers.clone(), slot as u64));
                let mut entry = Entry::new(Box::new(request), &ledger.spec.queue);
                entry.number = state.next_number;
                state.next_number += 1;
                ledger.admitted();
                Seat::from(entry)
            });
            let plan = Plan { seats: seats.collect(), inputs: Vec::new() };
            let batch = Batch::new(ledger.clone(), plan, state.next_sequence, now);
            state.next_sequence += 1;
            state.moved.push_back((slot, Box::new(batch)));
            Ok(())
        })?;
        if let Some(slot) = lead {
            let lease = self.lease(slot);
            if self.keeps_slots {
                drive(lease);
            }
            // Otherwise a thread of the model takes the batch.
        }
        Ok(())
    }
}

fn drive(lease: Lease) {
    let mut step = Step::Again(lease);
    while let Step::Again(lease) = step {
        step = lease.run();
    }
}

fn request_of(sample: &WarmUpSample, now: Instant, reply: Reply) -> Request {
    Request::new(Bound { inputs: sample.inputs.clone(), wanted: Wanted::new(), rows: 1 }, now, reply)
}

/// Triton's words, with an "; " behind each error.
fn failed(sample: &str, errors: &str) -> Error {
    Error::new(ErrorKind::ConfigInvalid, format!("failed to run warmup sample '{sample}': {errors}"))
}

/// The ends of one run of a sample on all instances. The key of a request is its slot.
struct Answers {
    state: Mutex<Ends>,
    all: Condvar,
}

struct Ends {
    open: usize,
    /// By slot.
    errors: BTreeMap<u64, Vec<Error>>,
}

impl Answers {
    fn of(requests: usize) -> Self {
        Self { state: Mutex::new(Ends { open: requests, errors: BTreeMap::new() }), all: Condvar::new() }
    }

    /// Whether all requests have ended by then.
    fn wait_until(&self, until: Instant) -> bool {
        let mut state = lock(&self.state);
        while state.open > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            (state, _) =
                self.all.wait_timeout(state, left).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        true
    }

    /// The errors of one instance say enough.
    fn result(&self, sample: &str) -> Result<(), Error> {
        match lock(&self.state).errors.first_key_value() {
            None => Ok(()),
            Some((_, errors)) => {
                let texts: Vec<&str> = errors.iter().map(|error| &*error.message).collect();
                Err(failed(sample, &format!("{}; ", texts.join("; "))))
            }
        }
    }
}

impl Mailbox for Answers {
    fn deliver(&self, mail: Vec<Mail>) {
        let mut state = lock(&self.state);
        for (key, end) in mail.iter().filter_map(|mail| Some((mail.key, mail.end.as_ref()?))) {
            state.open = state.open.saturating_sub(1);
            if let Err(error) = &end.result {
                state.errors.entry(key).or_default().push(error.clone());
            }
        }
        if state.open == 0 {
            self.all.notify_one();
        }
        drop(state);
    }
}
