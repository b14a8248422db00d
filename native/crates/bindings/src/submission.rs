//! Calls to the models of this process: from their arguments into a model's queue, and back.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use kushi_client::{Answer, Draft, InferCall, WantedOutput};
use kushi_core::{
    Context, End, Error, InputDraft, Lease, ModelSpec, OnlyResponse, Recipient, Reply, Request, Response,
    Sequence, Ticket,
};
use kushi_dataplane::{Attempt, Begun, Parent, Refused, Trace};
use kushi_server::Server;
use smallvec::SmallVec;

/// A call that has its place in a queue.
pub(crate) struct Submitted {
    pub spec: Arc<ModelSpec>,
    pub ticket: Ticket,
    /// To be driven, or handed to the io threads.
    pub lease: Option<Lease>,
}

/// `reply` makes the way back, once for each model version that is asked: a reload may take the place of
/// the first.
pub(crate) fn submit(
    server: &Server,
    call: InferCall,
    reply: impl Fn() -> Reply,
) -> Result<Submitted, Error> {
    let arrived = Instant::now();
    let deadline = call.patience.and_then(|patience| arrived.checked_add(patience));
    let carried = call.trace.as_ref();
    // It ends with the request.
    let trace = server.traces().begin(&call.model, arrived, || {
        let carried = carried?;
        Parent::read(carried.parent.as_bytes(), Some(carried.state.as_bytes()))
    });
    let context = trace.as_ref().map(Trace::context).unwrap_or_default();
    submit_child(server, call, Beside { deadline, context, ..Beside::default() }, reply)
}

/// What a request says beside its call.
#[derive(Default)]
pub(crate) struct Beside {
    pub deadline: Option<Instant>,
    pub context: Context,
    /// Parameters may say another one.
    pub sequence: Option<Box<Sequence>>,
    /// Whether it takes any number of responses.
    pub streams: bool,
}

/// The same for a request that another one has caused.
pub(crate) fn submit_child(
    server: &Server,
    mut call: InferCall,
    mut beside: Beside,
    reply: impl Fn() -> Reply,
) -> Result<Submitted, Error> {
    let arrived = Instant::now();
    let inference = server.find(&call.model, &call.version, &call.parameters)?;
    beside.read_sequence(&mut call)?;
    if !beside.streams {
        inference.spec().check_unary()?;
    }
    let mut call = Some(call);
    let begun = inference.begin(server.registry(), &By(reply), |attempt| {
        let Attempt { spec, reply, refused } = attempt;
        let call = refused.map_or_else(|| call.take().unwrap_or_default(), again);
        let mut request = request(spec, call, arrived, reply)?;
        request.deadline = beside.deadline;
        request.context = beside.context.clone();
        request.sequence.clone_from(&beside.sequence);
        Ok::<_, Error>((request, ()))
    });
    let Begun { waiting: (ticket, lease), spec, .. } = begun?;
    Ok(Submitted { spec, ticket, lease })
}

/// The answers go where this says. Whoever asks has its own way to wait for them.
struct By<F>(F);

impl<F: Fn() -> Reply> Recipient for By<F> {
    type Place = ();
    type Waiting = (Ticket, Option<Lease>);

    fn open(&self) -> ((), Reply) {
        ((), self.0())
    }

    fn queued(&self, (): (), ticket: Ticket, lease: Option<Lease>) -> Self::Waiting {
        (ticket, lease)
    }
}

impl Beside {
    /// Takes what parameters say of it out of the call.
    fn read_sequence(&mut self, call: &mut InferCall) -> Result<(), Error> {
        let mut others = Vec::with_capacity(call.parameters.len());
        for (name, value) in std::mem::take(&mut call.parameters) {
            if !Sequence::read(&mut self.sequence, &name, &value)? {
                others.push((name, value));
            }
        }
        call.parameters = others;
        Ok(())
    }
}

fn request(spec: &ModelSpec, call: InferCall, arrived: Instant, reply: Reply) -> Result<Request, Error> {
    let InferCall { id, inputs, outputs, parameters, priority, timeout_us, .. } = call;
    let by_position = inputs.iter().any(|draft| draft.name.is_none());
    let places = if by_position { spec.first_inputs(&id, inputs.len())? } else { &[] };
    let drafts = inputs.into_iter().enumerate().map(|(position, Draft { name, tensor })| InputDraft {
        name: name.map_or_else(|| Cow::Borrowed(places[position].name.as_str()), Cow::Owned),
        datatype: Some(tensor.datatype),
        shape: tensor.shape,
        data: tensor.data,
    });
    let drafts = drafts.collect();
    let names: SmallVec<[&str; 8]> = outputs.iter().map(|output| output.name.as_str()).collect();
    let bound = spec.bind(&id, drafts, &names)?;
    let classes = spec.classes(outputs.iter().map(|output| (output.name.as_str(), output.classes)))?;
    Ok(Request { id, classes, parameters, priority, timeout_us, ..Request::new(bound, arrived, reply) })
}

/// The call of a request that came back, with its inputs by name.
fn again(Refused { spec, request }: Refused) -> InferCall {
    let request = *request;
    let inputs =
        spec.inputs.iter().zip(request.inputs).filter_map(|(spec, tensor)| {
            tensor.map(|tensor| Draft { name: Some(spec.name.clone()), tensor })
        });
    let outputs = request.wanted.iter().map(|&at| WantedOutput {
        name: spec.outputs[usize::from(at)].name.clone(),
        classes: request.classes.count(at),
    });
    InferCall {
        inputs: inputs.collect(),
        outputs: outputs.collect(),
        id: request.id,
        parameters: request.parameters,
        priority: request.priority,
        timeout_us: request.timeout_us,
        ..InferCall::default()
    }
}

/// The answer of a unary call from its end and what came before it.
pub(crate) fn answer(spec: &ModelSpec, only: OnlyResponse<Response>, end: &mut End) -> Result<Answer, Error> {
    let mut response = only.close(&spec.name, end)?;
    end.request.classes.choose(spec, &mut response)?;
    let named = |(at, tensor)| (spec.outputs[usize::from(at)].name.clone(), tensor);
    Ok(Answer {
        model: spec.name.clone(),
        version: spec.version.to_string(),
        id: std::mem::take(&mut end.request.id),
        parameters: response.parameters,
        outputs: response.outputs.into_iter().map(named).collect(),
        timings: Some(end.timings),
    })
}
