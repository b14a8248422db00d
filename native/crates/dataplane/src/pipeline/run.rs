//! One request on its way through an ensemble.
//!
//! It ends when all its steps have come back, so the asker's request, which owns the memory of the inputs, outlives
//! them. The lock of a run is held while steps are handed in and answers sent: both only collect. What may call into
//! others is done when it is free again ([`Aftermath`]).

use std::sync::{Arc, Mutex, PoisonError};

use kushi_core::{
    Admission, Batch, Bound, Context, Credit, Error, ErrorKind, Labels, Lease, Mail, ModelSpec, Reply,
    Request, Response, Sent, Tensor, Ticket, Window,
};
use smallvec::SmallVec;

use super::Graph;
use super::branches::{Branches, Next, Path};
use super::engine::Pipeline;
use super::plan::{Plan, fit};

pub(super) struct Run {
    plan: Arc<Plan>,
    /// `None`: it has ended.
    state: Mutex<Option<Box<RunState>>>,
}

struct RunState {
    /// Of this one request.
    batch: Batch,
    context: Context,
    needed: Arc<[bool]>,
    branches: Branches,
    labels: Option<Arc<[Labels]>>,
    calls: SmallVec<[StepCall; 2]>,
    /// Nothing begins any more.
    error: Option<Error>,
    /// A step has given other than one answer.
    streams: bool,
    waits_for_room: bool,
}

/// A step that runs.
struct StepCall {
    key: u64,
    step: usize,
    path: Path,
    answers: u32,
    ticket: Option<Ticket>,
}

/// What is left to do once the lock is free.
#[derive(Default)]
struct Aftermath {
    credits: Vec<Credit>,
    read: Vec<Tensor>,
    requests: SmallVec<[Box<Request>; 1]>,
    given_up: Vec<Ticket>,
    leases: Vec<Lease>,
    ended: Option<Box<RunState>>,
}

impl Run {
    pub(super) fn begin(pipeline: &Arc<Pipeline>, mut batch: Batch) {
        let name = &pipeline.spec.name;
        let (plan, context) = match pinned_steps(pipeline, &batch) {
            Ok(pinned) => pinned,
            Err(error) => return batch.end(0, Err(in_ensemble(name, &error))),
        };
        let Some(request) = batch.request(0) else { return };
        let needed = pipeline.graph.needed(request);
        let branches = Branches::new(&pipeline.graph, inputs(&pipeline.spec, request));
        let state = Box::new(RunState {
            batch,
            context,
            needed,
            branches,
            labels: plan.labels.clone(),
            calls: SmallVec::new(),
            error: None,
            streams: false,
            waits_for_room: false,
        });
        let run = Arc::new(Self { plan, state: Mutex::new(Some(state)) });
        run.go_on(pipeline, |state, aftermath| {
            // Whoever hears of it finds the state: it waits for this lock.
            let give_up = run.later(pipeline, |run, pipeline| {
                run.give_up(pipeline, Error::new(ErrorKind::Cancelled, ""));
            });
            let jobs = pipeline.jobs.clone();
            state.batch.when_abandoned(0, move || jobs.push(give_up));
            state.advance(&run, pipeline, &[], aftermath);
        });
    }

    /// A job that keeps neither of them.
    fn later(
        self: &Arc<Self>,
        pipeline: &Arc<Pipeline>,
        act: impl FnOnce(&Arc<Self>, &Arc<Pipeline>) + Send + 'static,
    ) -> impl FnOnce() + Send + 'static {
        let (run, of) = (Arc::downgrade(self), Arc::downgrade(pipeline));
        move || {
            if let (Some(run), Some(pipeline)) = (run.upgrade(), of.upgrade()) {
                act(&run, &pipeline);
            }
        }
    }

    pub(super) fn take(self: &Arc<Self>, pipeline: &Arc<Pipeline>, mail: Mail) {
        self.go_on(pipeline, |state, aftermath| state.take(self, pipeline, mail, aftermath));
    }

    /// Ends it, once the steps that run have come back.
    pub(super) fn give_up(self: &Arc<Self>, pipeline: &Arc<Pipeline>, error: Error) {
        self.go_on(pipeline, |state, aftermath| state.fail(error, aftermath));
    }

    fn go_on(self: &Arc<Self>, pipeline: &Arc<Pipeline>, act: impl FnOnce(&mut RunState, &mut Aftermath)) {
        let mut aftermath = Aftermath::default();
        {
            let mut open = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(state) = &mut *open else { return };
            act(state, &mut aftermath);
            if state.streams && state.error.is_none() {
                state.send(self, pipeline, &mut aftermath);
            }
            if state.calls.is_empty() && !state.waits_for_room {
                aftermath.ended = open.take();
            }
        }
        aftermath.carry_out(pipeline);
    }
}

impl RunState {
    fn take(&mut self, run: &Arc<Run>, pipeline: &Arc<Pipeline>, mail: Mail, aftermath: &mut Aftermath) {
        let Mail { key, response, end, credit } = mail;
        let Some(at) = self.calls.iter().position(|call| call.key == key) else { return };
        if self.error.is_none() && self.batch.is_abandoned(0) {
            self.fail(Error::new(ErrorKind::Cancelled, ""), aftermath);
        }
        let (step, answers) = (self.calls[at].step, self.calls[at].answers);
        let path = self.calls[at].path.clone();
        let is_whole = answers == 0 && matches!(&end, Some(end) if end.result.is_ok());
        let mut changed = None;
        if let Some(response) = response {
            self.calls[at].answers += 1;
            if self.error.is_none() {
                changed = if is_whole {
                    Some(path.clone())
                } else {
                    self.streams = true;
                    self.branches.branch(&pipeline.graph, &path, answers)
                };
            }
            if let Some(to) = &changed {
                let places = &run.plan.steps[step].outputs;
                if let Some(labels) = &response.labels {
                    self.learn(&pipeline.graph, run.plan.runners[step].spec(), places, labels);
                }
                // What is empty in a stream says nothing, as an end by itself does.
                let planned = places.iter().flatten().filter(|_| is_whole || !response.outputs.is_empty());
                let planned: SmallVec<[usize; 8]> = planned.copied().collect();
                let outputs = response.outputs.into_iter();
                let known =
                    outputs.filter_map(|(place, tensor)| Some(((*places.get(usize::from(place))?)?, tensor)));
                if !self.branches.put(to, planned.into_iter(), known) {
                    changed = None;
                }
            }
        }
        match (credit, &changed) {
            (Some(credit), Some(to)) => self.branches.keep(to, credit),
            (credit, _) => aftermath.credits.extend(credit),
        }
        if let Some(end) = end {
            let call = self.calls.swap_remove(at);
            aftermath.requests.push(end.request);
            match end.result {
                Err(error) => self.fail(in_ensemble(&pipeline.spec.name, &error), aftermath),
                Ok(()) if is_whole && call.answers == 1 => {}
                Ok(()) => {
                    self.streams = true;
                    self.branches.limit(&path, call.answers, &mut aftermath.credits);
                }
            }
        }
        if let Some(path) = changed {
            self.advance(run, pipeline, &path, aftermath);
        }
    }

    /// A step that is an ensemble itself says with its answer what the classes of its outputs are called.
    fn learn(&mut self, graph: &Graph, spec: &ModelSpec, places: &[Option<usize>], labels: &[Labels]) {
        let found = |tensor: usize| {
            let place = places.iter().position(|&made| made == Some(tensor))?;
            let stated = !spec.outputs[place].labels.is_empty();
            labels.get(place).filter(|labels| !stated && !labels.is_empty())
        };
        let known = self.labels.take();
        let known = |output: usize| known.as_ref().map(|labels| labels[output].clone()).unwrap_or_default();
        let learnt = graph.outputs.iter().enumerate();
        self.labels = Some(
            learnt.map(|(output, &tensor)| found(tensor).cloned().unwrap_or_else(|| known(output))).collect(),
        );
    }

    /// Begins what can begin with what has come to `path`.
    fn advance(&mut self, run: &Arc<Run>, pipeline: &Arc<Pipeline>, path: &[u32], aftermath: &mut Aftermath) {
        if self.error.is_some() {
            return;
        }
        for (step, path) in self.branches.begin_due(&run.plan, &self.needed, path) {
            if let Err(error) = self.call(run, pipeline, step, path, aftermath) {
                return self.fail(in_ensemble(&pipeline.spec.name, &error), aftermath);
            }
        }
        self.branches.release(&pipeline.graph, &self.needed, &mut aftermath.read);
    }

    fn call(
        &mut self,
        run: &Arc<Run>,
        pipeline: &Arc<Pipeline>,
        step: usize,
        path: Path,
        aftermath: &mut Aftermath,
    ) -> Result<(), Error> {
        let Some(asked) = self.batch.request(0) else { return Err(Error::new(ErrorKind::Cancelled, "")) };
        let (runner, planned) = (&run.plan.runners[step], &run.plan.steps[step]);
        let spec = runner.spec();
        let mut inputs = self.branches.inputs(&path, &planned.inputs);
        for (input, place) in inputs.iter_mut().zip(&spec.inputs) {
            if let Some(input) = input {
                fit(spec, &place.dims, input);
            }
        }
        let rows = spec.check_inputs(&asked.id, &inputs)?;
        let usual = Window::default();
        let window = match pipeline.graph.steps[step].max_inflight_requests {
            0 => usual,
            answers => Window { answers: answers.min(usual.answers), ..usual },
        };
        let key = pipeline.enter(run);
        let bound = Bound { inputs, wanted: planned.wanted.clone(), rows };
        let request = Request {
            id: asked.id.clone(),
            parameters: asked.parameters.clone(),
            priority: asked.priority,
            timeout_us: asked.timeout_us,
            sequence: asked.sequence.clone(),
            deadline: asked.deadline,
            context: self.context.clone(),
            ..Request::new(bound, runner.now(), Reply::with_window(pipeline.mailbox(), key, window))
        };
        match runner.submit(request) {
            Ok((ticket, admission)) => {
                if let Some(expires) =
                    ticket.expires.filter(|&when| asked.deadline.is_none_or(|end| when < end))
                {
                    // Its queue loses patience before the asker does, who says when that is so.
                    let ring = move |run: &Arc<Run>, pipeline: &Arc<Pipeline>| {
                        run.go_on(pipeline, |state, _| state.ring(key));
                    };
                    pipeline.jobs.push_at(expires, run.later(pipeline, ring));
                }
                self.calls.push(StepCall { key, step, path, answers: 0, ticket: Some(ticket) });
                if let Admission::Lead(lease) = admission {
                    aftermath.leases.push(lease);
                }
                Ok(())
            }
            Err((error, request)) => {
                pipeline.leave(key);
                let error = error.of_request(&request.id);
                aftermath.requests.push(request);
                Err(error)
            }
        }
    }

    /// The queue of a step has lost patience with its request, if it is still there.
    fn ring(&self, key: u64) {
        if let Some(ticket) =
            self.calls.iter().find(|call| call.key == key).and_then(|call| call.ticket.as_ref())
        {
            ticket.expire();
        }
    }

    /// The first error is that of the request.
    fn fail(&mut self, error: Error, aftermath: &mut Aftermath) {
        self.error.get_or_insert(error);
        self.waits_for_room = false;
        self.branches.clear(&mut aftermath.credits);
        aftermath.given_up.extend(self.calls.iter_mut().filter_map(|call| call.ticket.take()));
    }

    /// Sends the answers of streams, in their order, as far as there is room.
    fn send(&mut self, run: &Arc<Run>, pipeline: &Arc<Pipeline>, aftermath: &mut Aftermath) {
        self.waits_for_room = false;
        loop {
            let Some(asked) = self.batch.request(0) else { return };
            let busy = |path: &[u32]| self.calls.iter().any(|call| call.path.starts_with(path));
            let next =
                self.branches.next_answer(&pipeline.graph, &asked.wanted, busy, &mut aftermath.credits);
            let Some((path, next)) = next else { return };
            let answer = match next {
                Next::New(mut answer) => {
                    fit_answer(pipeline, self.labels.as_ref(), &mut answer);
                    answer
                }
                Next::Again(answer) => answer,
            };
            match self.batch.send(0, answer) {
                Sent::Accepted => self.branches.remove(&path, &mut aftermath.credits),
                Sent::Full(answer) => {
                    self.branches.found_no_room(&path, *answer);
                    self.waits_for_room = true;
                    // Where all steps have ended, nobody else holds the run.
                    let (run, of, jobs) = (run.clone(), pipeline.clone(), pipeline.jobs.clone());
                    let go_on = move || run.go_on(&of, |_, _| ());
                    self.batch.when_room(0, move || jobs.push(go_on));
                    return;
                }
                _ => return self.fail(Error::new(ErrorKind::Cancelled, ""), aftermath),
            }
        }
    }

    /// All that it asked for has come back.
    fn end(&mut self, pipeline: &Pipeline) {
        let Some(request) = self.batch.request(0) else { return };
        let answer = match self.error.take() {
            Some(error) => Err(error),
            None if self.streams && self.branches.has_streamed_all() => Ok(None),
            None => match self.branches.answer(&pipeline.graph, &request.wanted) {
                Some(answer) if !self.streams => Ok(Some(answer)),
                _ => Err(nothing_to_do(&pipeline.spec.name, &request.id)),
            },
        };
        // Nothing holds the memory of the asker's inputs any more but the request itself.
        self.branches.clear(&mut Vec::new());
        self.context = Context::default();
        match answer {
            Ok(Some(mut answer)) => {
                fit_answer(pipeline, self.labels.as_ref(), &mut answer);
                self.batch.end_with(0, answer);
            }
            Ok(None) => self.batch.end(0, Ok(())),
            Err(error) => self.batch.end(0, Err(error)),
        }
    }
}

impl Aftermath {
    fn carry_out(self, pipeline: &Pipeline) {
        let Self { credits, read, requests, given_up, leases, ended } = self;
        drop((read, requests));
        for ticket in given_up {
            ticket.cancel();
        }
        if let Some(mut state) = ended {
            state.end(pipeline);
        }
        drop(credits);
        leases.into_iter().for_each(Lease::run_afterwards);
    }
}

/// The models of the steps, which stay until the context is dropped.
fn pinned_steps(pipeline: &Pipeline, batch: &Batch) -> Result<(Arc<Plan>, Context), Error> {
    loop {
        let plan = pipeline.plan_for(batch.request(0))?;
        match batch.child_context_in(0, &plan.runners) {
            // A reload may have taken the place of one of them meanwhile.
            Err(_) if !batch.is_abandoned(0) && !pipeline.is_current(&plan) => {}
            context => return Ok((plan, context?)),
        }
    }
}

/// As the steps see them.
fn inputs(spec: &ModelSpec, request: &Request) -> impl Iterator<Item = Option<Tensor>> {
    spec.inputs.iter().zip(&request.inputs).map(|(place, input)| {
        let mut input = input.clone()?;
        if place.reshape.is_some() {
            input.shape = place.to_engine(&input.shape, spec.batch_dims());
        }
        Some(input)
    })
}

/// As clients see it.
fn fit_answer(pipeline: &Pipeline, labels: Option<&Arc<[Labels]>>, answer: &mut Response) {
    let spec = &pipeline.spec;
    for (position, tensor) in &mut answer.outputs {
        let place = &spec.outputs[usize::from(*position)];
        fit(spec, place.engine_dims(), tensor);
        place.give_shape(tensor, spec.batch_dims());
    }
    answer.labels = labels.cloned();
}

/// As Triton words it.
fn in_ensemble(name: &str, error: &Error) -> Error {
    match error.kind {
        ErrorKind::Cancelled => error.clone(),
        kind => Error::new(kind, format!("in ensemble '{name}', {error}")),
    }
}

/// Triton's text for an output that no step has given.
fn nothing_to_do(name: &str, id: &str) -> Error {
    let text = "unexpected deadlock, at least one output is not set while no more ensemble steps can be made";
    in_ensemble(name, &Error::invalid(text).of_request(id))
}
