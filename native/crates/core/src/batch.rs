//! A batch owns its replies: whatever happens to it, each of its requests gets exactly one end.
//!
//! Answers leave by [`Batch::send`] and [`Batch::end`], or all together by [`Batch::scatter`]. A
//! batch that is dropped answers the rest with an error. A batch may move to another thread.

mod alone;
mod gather;
mod sending;
pub(crate) mod unanswered;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use crate::batch::gather::{Share, Splitter};
use crate::batch::unanswered::OneUnanswered;
use crate::request::ledger::Ledger;
use crate::request::ordering::Numbered;
use crate::request::outbox::Outbox;
use crate::request::statistics::Tally;
use crate::{
    Answered, Computed, Context, Course, End, Error, ErrorKind, Mail, ModelSpec, Plan, Request, Response,
    Seat, Tensor, Timings,
};

pub use gather::{Gathered, Scratch};
pub use sending::Sent;
pub use unanswered::UNANSWERED_PER_SLOT;

/// The responses that a seat has had.
#[derive(Clone, Copy)]
struct Sends {
    count: usize,
    /// When the last one left; before the first, when the execution began.
    last: Instant,
}

pub struct Batch {
    ledger: Arc<Ledger>,
    seats: Vec<Seat>,
    /// Inputs that the scheduler made, by position in the specification.
    made: Vec<(usize, Tensor)>,
    open: usize,
    rows: usize,
    /// Those of them that answer nobody.
    padding: usize,
    /// Rows behind all of them that the engine has asked for.
    filling: usize,
    /// Its place among the batches of the model: requests that are executed alone keep that of the batch that failed.
    sequence: u64,
    /// When the requests left the queue.
    dequeued: Instant,
    started: Instant,
    input_done: Option<Instant>,
    output_started: Option<Instant>,
    counted: bool,
    responded: bool,
    /// Of each seat, once one of them has had a response and somebody observes them.
    sends: Vec<Sends>,
    /// Of an engine that may answer later.
    unanswered: Option<OneUnanswered>,
    /// Some of its requests were given up, and its engine still works on them.
    owes_given_up: bool,
}

impl Batch {
    /// The next one that leaves the queue.
    pub(crate) fn new(ledger: Arc<Ledger>, plan: Plan, sequence: u64, started: Instant) -> Self {
        let batch = Self::part(ledger, plan, sequence, started);
        if let Some(ordering) = &batch.ledger.ordering {
            ordering.begin(sequence, batch.numbers());
        }
        batch
    }

    /// The same, or a part of one that has left before.
    fn part(ledger: Arc<Ledger>, plan: Plan, sequence: u64, started: Instant) -> Self {
        let Plan { seats, inputs } = plan;
        let (mut open, mut rows, mut padding) = (0, 0, 0);
        for seat in &seats {
            rows += seat.rows;
            match seat.entry {
                Some(_) => open += 1,
                None => padding += seat.rows,
            }
        }
        Self {
            ledger,
            open,
            rows,
            padding,
            filling: 0,
            seats,
            made: inputs,
            sequence,
            dequeued: started,
            started,
            input_done: None,
            output_started: None,
            counted: false,
            responded: false,
            sends: Vec::new(),
            unanswered: None,
            owes_given_up: false,
        }
    }

    /// Counts until the engine has ended all its requests, or it is taken back.
    pub(crate) fn set_unanswered(&mut self, unanswered: Option<OneUnanswered>) {
        self.unanswered = unanswered;
    }

    /// Those behind it wait for none of its requests that nobody waits for. To be called under no lock: answers may leave.
    pub(crate) fn let_others_pass(&self) {
        if self.ledger.ordering.is_none() {
            return;
        }
        for entry in self.seats.iter().filter_map(|seat| seat.entry.as_ref()) {
            let (ledger, sequence, number) = (Arc::downgrade(&self.ledger), self.sequence, entry.number);
            entry.request.reply.claim.when_abandoned(Box::new(move || {
                if let Some(ledger) = ledger.upgrade() {
                    ledger.given_up(sequence, number);
                }
            }));
        }
    }

    /// Whether its rows have places that matter to the model.
    fn is_arranged(&self) -> bool {
        self.padding > 0 || !self.made.is_empty()
    }

    /// Whether its requests can be executed once more, each alone.
    pub(crate) fn may_run_again(&self) -> bool {
        self.open > 0 && !self.responded && !self.is_arranged()
    }

    /// The number of requests that have not ended.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// The numbers of the requests that have not ended.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.seats.iter().filter_map(|seat| seat.entry.as_ref()).map(|entry| entry.number)
    }

    /// Ends the requests that nobody waits for any more, before the others are executed once more without them.
    /// Answers their numbers.
    pub(crate) fn end_useless(&mut self, now: Instant) -> Vec<u64> {
        (self.started, self.filling) = (now, 0);
        let mut ended = Vec::new();
        for index in 0..self.seats.len() {
            let Some(entry) = &self.seats[index].entry else { continue };
            if let Some(error) = entry.request.useless(now) {
                ended.push(entry.number);
                self.end(index, Err(error));
            }
        }
        if self.is_arranged() {
            let of_nobody = self.seats.iter().filter(|seat| seat.entry.is_none());
            self.padding = of_nobody.map(|seat| seat.rows).sum();
        } else {
            // Those that have ended have no rows in what is executed.
            self.seats.retain(|seat| seat.entry.is_some());
            self.rows = self.seats.iter().map(|seat| seat.rows).sum();
        }
        ended
    }

    pub fn spec(&self) -> &ModelSpec {
        &self.ledger.spec
    }

    pub(crate) fn shared_spec(&self) -> Arc<ModelSpec> {
        self.ledger.spec.clone()
    }

    /// The number of seats: of requests, and of places that answer nobody.
    pub fn len(&self) -> usize {
        self.seats.len()
    }

    pub fn is_empty(&self) -> bool {
        self.seats.is_empty()
    }

    /// Rows of the batch dimension, all seats together.
    pub fn rows(&self) -> usize {
        self.rows + self.filling
    }

    /// Puts copies of one of its rows behind them until they are `rows`, for an engine that takes no other number; what
    /// the engine answers for them goes nowhere. Not where the scheduler has made inputs, which have the rows that there
    /// are. To be called before the inputs are gathered.
    pub fn fill_up(&mut self, rows: usize) {
        if self.made.is_empty() {
            self.filling = rows.saturating_sub(self.rows);
        }
    }

    /// `None` once the request has ended, and where there is none.
    pub fn request(&self, index: usize) -> Option<&Request> {
        self.seats[index].entry.as_ref().map(|entry| &*entry.request)
    }

    pub fn is_abandoned(&self, index: usize) -> bool {
        self.seats[index].entry.as_ref().is_none_or(|entry| entry.request.reply.claim.abandoned().is_some())
    }

    /// For requests that the engine makes on behalf of this one: a server that drains takes them in. `None` once nobody
    /// waits for its answer. To be dropped with the last of them.
    pub fn child_context(&self, index: usize) -> Option<Context> {
        let parent = self.request(index).filter(|_| !self.is_abandoned(index))?;
        Some(Context::of_child(&self.ledger).below(&parent.context))
    }

    /// Whether any request wants output `index` of the specification.
    pub fn wants(&self, index: usize) -> bool {
        self.seats.iter().filter_map(|seat| seat.entry.as_ref()).any(|entry| entry.wants(index))
    }

    /// The rows of requests that want output `index` of the specification, as places in what is gathered; those that are
    /// neighbours together. To be called before any request ends.
    pub fn rows_that_want(&self, index: usize) -> SmallVec<[Range<usize>; 2]> {
        let mut found = SmallVec::<[Range<usize>; 2]>::new();
        let mut begin = 0;
        for seat in &self.seats {
            let end = begin + seat.rows;
            if seat.entry.as_ref().is_some_and(|entry| entry.wants(index)) {
                match found.last_mut().filter(|last| last.end == begin) {
                    Some(last) => last.end = end,
                    None => found.push(begin..end),
                }
            }
            begin = end;
        }
        found
    }

    /// The inputs of all requests, joined, with zeros for rows that answer nobody; to be called before any
    /// request ends. Fails where there is no memory for them.
    pub fn gather<'a>(
        &'a mut self,
        scratch: &'a mut Scratch,
    ) -> Result<SmallVec<[Option<Gathered<'a>>; 4]>, Error> {
        let share = |seat: &'a Seat| match &seat.entry {
            Some(entry) => Share::Inputs(&entry.request.inputs),
            None => Share::Zeros(seat.rows),
        };
        let filling = (self.filling > 0).then_some(Share::Copies(self.filling));
        let shares: SmallVec<[Share<'a>; 32]> = self.seats.iter().map(share).chain(filling).collect();
        let spec = &self.ledger.spec;
        let gathered = scratch.gather(&spec.inputs, &shares, &self.made, spec.max_batch_size > 0);
        self.input_done = Some(self.ledger.clock.now());
        gathered
    }

    /// Tells the statistics that the engine begins with it now: what it has waited since it left the queue counts as
    /// waiting.
    pub fn begun(&mut self) {
        self.dequeued = self.ledger.clock.now();
        self.started = self.dequeued;
    }

    /// Its engine makes batches of its own: of rows of this one and of others. Executions are what it [has run](Self::ran).
    pub fn runs_apart(&mut self) {
        self.counted = true;
    }

    /// Tells the statistics that such a batch has run. To be called before any of its requests ends.
    pub fn ran(&self, rows: usize, took: Duration) {
        self.ledger.record_execution(rows, took);
    }

    /// Tells the statistics that the model has run and its outputs are being handed out.
    pub fn computed(&mut self) {
        self.output_started = Some(self.ledger.clock.now());
    }

    /// Ends one request; a second end of the same request does nothing.
    pub fn end(&mut self, index: usize, result: Result<(), Error>) {
        let mut outgoing = OutgoingEnds::new(self);
        outgoing.end(self, index, None, result);
        self.dispatch(outgoing);
    }

    /// Ends one request with its last response, which needs no room.
    pub fn end_with(&mut self, index: usize, response: Response) {
        let mut outgoing = OutgoingEnds::new(self);
        outgoing.end(self, index, Some(response), Ok(()));
        self.dispatch(outgoing);
    }

    /// Ends some of its requests, each with its last response, which needs no room, or with an error.
    pub fn end_each(&mut self, ends: impl IntoIterator<Item = (usize, Result<Option<Response>, Error>)>) {
        let mut outgoing = OutgoingEnds::new(self);
        for (index, result) in ends {
            match result {
                Ok(response) => outgoing.end(self, index, response, Ok(())),
                Err(error) => outgoing.end(self, index, None, Err(error)),
            }
        }
        self.dispatch(outgoing);
    }

    /// Ends those of its requests that nobody waits for any more, and answers their places. The engine still works on
    /// them: the batch counts as unanswered until it is dropped.
    pub fn give_up_abandoned(&mut self) -> Vec<usize> {
        let now_abandoned = |index: &usize| self.seats[*index].entry.is_some() && self.is_abandoned(*index);
        let ended: Vec<usize> = (0..self.seats.len()).filter(now_abandoned).collect();
        self.owes_given_up |= !ended.is_empty();
        let mut outgoing = OutgoingEnds::new(self);
        for &index in &ended {
            outgoing.end(self, index, None, Err(Error::cancelled()));
        }
        self.dispatch(outgoing);
        ended
    }

    /// Whether any of its requests has not ended.
    pub fn is_open(&self) -> bool {
        self.open > 0
    }

    /// Answers every request with its share of the joined outputs, by position in the specification;
    /// an output that no request wants may be `None`. See [`Slot::scatter`](crate::Slot::scatter).
    pub fn scatter(self, outputs: &[Option<Tensor>]) {
        let spec = self.shared_spec();
        match self.split(&spec, outputs) {
            Ok(shares) => self.answer(shares),
            Err(error) => self.fail(&error),
        }
    }

    pub(crate) fn split<'a>(
        &self,
        spec: &'a ModelSpec,
        outputs: &'a [Option<Tensor>],
    ) -> Result<Splitters<'a>, Error> {
        let batched = spec.max_batch_size > 0;
        let given = outputs.iter().zip(&spec.outputs).enumerate();
        given
            .filter_map(|(index, (output, tensor))| {
                let splitter = Splitter::new(tensor, output.as_ref()?, batched, self.rows());
                Some(splitter.map(|splitter| (index as u16, splitter)))
            })
            .collect()
    }

    pub(crate) fn answer(mut self, mut shares: Splitters<'_>) {
        let mut outgoing = OutgoingEnds::new(&self);
        for index in 0..self.seats.len() {
            let response = share(&self.seats[index], &mut shares);
            outgoing.end(&mut self, index, Some(response), Ok(()));
        }
        self.dispatch(outgoing);
    }

    /// Ends every open request with the same error.
    pub fn fail(mut self, error: &Error) {
        self.fail_open(error);
    }

    fn fail_open(&mut self, error: &Error) {
        let mut outgoing = OutgoingEnds::new(self);
        for index in 0..self.seats.len() {
            outgoing.end(self, index, None, Err(error.clone()));
        }
        self.dispatch(outgoing);
    }

    /// Tells the trace of a request what became of it.
    #[cold]
    fn trace(
        &self,
        request: &Request,
        response: Option<&Response>,
        result: Result<(), &Error>,
        now: Instant,
    ) {
        let Some(span) = request.context.span() else { return };
        if let Some(response) = response {
            span.respond(&self.ledger.spec, response);
        }
        let input_done = self.input_done.unwrap_or(self.started);
        let output_started = self.output_started.unwrap_or(now);
        let computed = Computed { started: self.started, input_done, output_started };
        span.end(&Course { computed: Some(computed), ended: now, result });
    }

    fn sends(&self, index: usize) -> Sends {
        self.sends.get(index).copied().unwrap_or(Sends { count: 0, last: self.started })
    }

    fn timings(&self, now: Instant) -> Timings {
        let input_done = self.input_done.unwrap_or(self.started);
        let output_started = self.output_started.unwrap_or(now);
        Timings {
            compute_input: input_done.saturating_duration_since(self.started),
            compute_infer: output_started.saturating_duration_since(input_done),
            compute_output: now.saturating_duration_since(output_started),
            ..Timings::default()
        }
    }

    /// Statistics first, mail second: who has an answer finds it counted.
    fn dispatch(&mut self, outgoing: OutgoingEnds) {
        let OutgoingEnds { now, timings, tally, outbox, numbered, ended } = outgoing;
        if ended == 0 {
            return;
        }
        let execution = (tally.successes > 0 && !self.counted).then_some(self.rows - self.padding);
        self.counted |= execution.is_some();
        self.ledger.record(&tally, &timings, execution, now);
        match &self.ledger.ordering {
            Some(ordering) => ordering.pass(self.sequence, numbered),
            None => outbox.deliver(),
        }
        self.ledger.ended(ended);
        if self.open == 0 && !self.owes_given_up {
            self.unanswered = None;
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if self.open > 0 {
            let model = &self.ledger.spec.name;
            let what = if std::thread::panicking() { "panicked" } else { "dropped the batch unanswered" };
            let error = Error::new(ErrorKind::EngineFailed, format!("the engine of model '{model}' {what}"));
            self.fail_open(&error);
        }
    }
}

/// Those of the joined outputs that there are, by position in the specification.
pub(crate) type Splitters<'a> = SmallVec<[(u16, Splitter<'a>); 4]>;

fn share(seat: &Seat, splitters: &mut [(u16, Splitter<'_>)]) -> Response {
    let mut outputs = SmallVec::new();
    for (index, splitter) in splitters {
        // Every splitter advances for every request, wanted or not, ended or not.
        let tensor = splitter.next(seat.rows);
        if seat.entry.as_ref().is_some_and(|entry| entry.wants(usize::from(*index))) {
            outputs.push((*index, tensor));
        }
    }
    Response { outputs, ..Response::default() }
}

/// The ends of one step, with what they add to the statistics.
struct OutgoingEnds {
    now: Instant,
    timings: Timings,
    tally: Tally,
    outbox: Outbox,
    /// The same, where the order counts.
    numbered: Vec<Numbered>,
    ended: usize,
}

impl OutgoingEnds {
    fn new(batch: &Batch) -> Self {
        let now = batch.ledger.clock.now();
        Self {
            now,
            timings: batch.timings(now),
            tally: Tally::default(),
            outbox: Outbox::default(),
            numbered: Vec::new(),
            ended: 0,
        }
    }

    fn end(
        &mut self,
        batch: &mut Batch,
        index: usize,
        response: Option<Response>,
        result: Result<(), Error>,
    ) {
        let Some(entry) = batch.seats[index].entry.take() else {
            return;
        };
        batch.open -= 1;
        self.ended += 1;
        let number = entry.number;
        let request = entry.request;
        let claim = &request.reply.claim;
        let (response, result) = if claim.answer() {
            (response, result)
        } else {
            (None, Err(claim.abandoned().unwrap_or_else(Error::cancelled)))
        };
        let queued = batch.dequeued.saturating_duration_since(request.arrived);
        let total = self.now.saturating_duration_since(request.arrived);
        match &result {
            Ok(()) => {
                self.tally.successes += 1;
                self.tally.rows += request.rows as u64;
                self.tally.success_ns += total.as_nanos() as u64;
                self.tally.queue_ns += queued.as_nanos() as u64;
            }
            Err(error) => self.tally.failures.push((error.kind.failure_reason(), total)),
        }
        if request.context.span().is_some() {
            batch.trace(&request, response.as_ref(), result.as_ref().copied(), self.now);
        }
        let timings = Timings { queue: queued, ..self.timings };
        if let Some(observer) = &batch.ledger.observer {
            let Sends { count, last } = batch.sends(index);
            let answer = Answered {
                response: response.as_ref(),
                end: Some(result.as_ref().map(|()| &timings)),
                before: count,
                total,
                took: self.now.saturating_duration_since(last),
                now: self.now,
            };
            observer.hear(&batch.ledger.spec, &answer);
        }
        let key = request.reply.key;
        let mailbox = request.reply.mailbox.clone();
        let end = End { result, timings, request };
        let mail = Mail { key, response, end: Some(end), credit: None };
        match &batch.ledger.ordering {
            Some(_) => self.numbered.push(Numbered { number, mailbox, mail }),
            None => self.outbox.add(&mailbox, mail),
        }
    }
}
