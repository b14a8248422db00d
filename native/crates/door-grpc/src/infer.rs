//! One inference request over gRPC, from its message to its answer.

use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use kushi_core::{
    Bound, Classes, Error, ErrorKind, Lease, ModelSpec, Parameter, Recipient, Reply, Request, Response,
    Ticket, Timings,
};
use kushi_dataplane::{
    AskedVersion, Attempt, Begun, Event, RouteKey, Trace, fill_regions, response_aside_bytes,
};
use kushi_net::{Answering, IoContext, OnlyAnswer, Owner, Waiting};
use kushi_oip::infer_request::InferRequest;
use kushi_oip::{put_parameter, wire};
use kushi_shm::RegionRange;
use smallvec::SmallVec;

use crate::answer::CallAnswer;
use crate::context::GrpcContext;
use crate::framing::{self, Message};
use crate::head::{Frame, PARAMETER_BYTES};
use crate::inputs;
use crate::status::Status;

/// Outputs up to this size are copied into one piece with what describes them.
const COPIED_BYTES: usize = 16 << 10;

/// Typed fields of so many bytes are read, and of outputs of so many bytes classes are chosen, where nobody waits.
pub(crate) const LONG_BYTES: usize = 64 << 10;

/// Where outputs go that are wanted in regions, by their positions.
#[derive(Clone)]
struct Places(Arc<SmallVec<[(u16, RegionRange); 2]>>);

/// How a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    Unary,
    Stream,
}

/// A request on its way, and what its answers need.
pub(crate) struct SubmittedCall {
    pub(crate) waiting: Waiting,
    pub(crate) spec: Arc<ModelSpec>,
    pub(crate) id: String,
    /// The client wants to hear of an end without a response.
    pub(crate) tells_end: bool,
    classes: Classes,
    places: Places,
}

pub(crate) async fn infer(
    context: &GrpcContext,
    body: Bytes,
    mut answering: Answering,
    frame: Frame,
) -> Result<CallAnswer, Status> {
    let mut trace = None;
    let tells_timings = frame.tells_timings;
    let answered = message(context, body, &mut answering, frame, &mut trace).await;
    if let (Err(error), Some(trace)) = (&answered, &trace) {
        trace.fail(error);
    }
    let (message, timings) = answered?;
    Ok(CallAnswer::new(message, answering).traced(trace).timed(tells_timings.then_some(timings)))
}

async fn message(
    context: &GrpcContext,
    body: Bytes,
    answering: &mut Answering,
    frame: Frame,
    trace: &mut Option<Trace>,
) -> Result<(Message, Timings), Error> {
    let mut asked = submit(context, &body, answering, frame, CallKind::Unary, trace).await?;
    drop(body);
    answering.prepared();
    let OnlyAnswer { response, end, reservation } = asked.only_answer().await?;
    if let Some(trace) = trace {
        trace.mark(Event::ResponseComplete, Instant::now());
    }
    let timings = end.timings;
    drop(end);
    // In the place of the request, which has gone.
    answering.reservation = reservation;
    let message = framing::framed(&asked.written(context, response, None).await?);
    answering.owe_in_all(message.iter().map(Bytes::len).sum());
    Ok((message, timings))
}

/// `trace`: that of the request, if it is traced; also where this fails.
pub(crate) async fn submit(
    context: &GrpcContext,
    body: &Bytes,
    answering: &mut Answering,
    frame: Frame,
    call: CallKind,
    trace: &mut Option<Trace>,
) -> Result<SubmittedCall, Error> {
    let mut message = InferRequest::read(body)?;
    let held = held_bytes(&message, body) + frame.forwarded_bytes;
    answering.cover_one_of_many(&context.small_requests, body.len(), held)?;
    let version = AskedVersion::read(message.model_version)?;
    let plane = &context.grpc.plane;
    let key = |name: &str| frame.key(name).or_else(|| RouteKey::among(&message.parameters, name));
    let inference = plane.inference(message.model_name, version, key)?;
    if call == CallKind::Unary {
        check_unary(inference.spec())?;
    }
    *trace = plane.traces.begin(message.model_name, frame.arrived, || frame.trace.as_ref()?.read());
    if let Some(trace) = trace {
        trace.mark(Event::GrpcWaitReadStart, frame.arrived);
        trace.mark(Event::GrpcWaitReadEnd, Instant::now());
    }
    let mut first_parameters = std::mem::take(&mut message.parameters);
    first_parameters.extend(frame.forwarded.iter().cloned());
    let names = output_names(&message);
    if let Some(name) = twice(&names) {
        let error = Error::invalid(format!("output '{name}' already exists in request"));
        return Err(error.of_request(message.id));
    }
    let recipient = OneOfMany { io: &context.io, is_one: answering.is_one_of_many() };
    let inherited = trace.as_ref().map(Trace::context).unwrap_or_default();
    let begun = inference.begin_later(&plane.registry, &recipient, async |mut attempt| {
        let parameters = attempt.take_parameters(&mut first_parameters);
        let Attempt { spec, reply, .. } = attempt;
        let bound = bind(context, spec, &message, (body, held), answering).await?;
        let classes = spec.classes(message.outputs.iter().map(|output| (output.name, output.classes)))?;
        let mut places = SmallVec::new();
        for output in &message.outputs {
            if let Some(range) = inputs::range(&output.region, &plane.regions)?
                && let Some(index) = spec.output(output.name)
            {
                places.push((index as u16, range));
            }
        }
        let request = Box::new(Request {
            id: message.id.into(),
            classes: classes.clone(),
            parameters,
            priority: message.priority,
            timeout_us: message.queue_timeout_us,
            sequence: message.sequence.clone(),
            deadline: frame.deadline,
            context: inherited.clone(),
            ..Request::new(bound, frame.arrived, reply)
        });
        Ok::<_, Error>((request, (classes, Places(Arc::new(places)))))
    });
    let Begun { waiting, spec, beside: (classes, places) } = begun.await?;
    Ok(SubmittedCall {
        waiting,
        spec,
        id: message.id.to_owned(),
        tells_end: message.tells_end,
        classes,
        places,
    })
}

/// Where a request is one of many of its connection, even small answers to it count.
struct OneOfMany<'a> {
    io: &'a IoContext,
    is_one: bool,
}

impl Recipient for OneOfMany<'_> {
    type Place = Waiting;
    type Waiting = Waiting;

    fn open(&self) -> (Waiting, Reply) {
        let (waiting, reply) = self.io.open();
        if self.is_one {
            waiting.count_all();
        }
        (waiting, reply)
    }

    fn queued(&self, waiting: Waiting, ticket: Ticket, lease: Option<Lease>) -> Waiting {
        self.io.queued(waiting, ticket, lease)
    }
}

/// Fits the inputs to the model. Those in regions are copied: aside where that takes long.
async fn bind(
    context: &GrpcContext,
    spec: &Arc<ModelSpec>,
    message: &InferRequest<'_>,
    (body, held): (&Bytes, usize),
    answering: &mut Answering,
) -> Result<Bound, Error> {
    let typed_bytes = message.inputs.iter().filter_map(|input| input.contents).map(<[u8]>::len).sum();
    if typed_bytes > LONG_BYTES {
        return Box::pin(bind_aside(context, spec, (body, held), typed_bytes, answering)).await;
    }
    let drafts = inputs::read(message, body, &context.grpc.plane.regions)?;
    let added_bytes: usize = drafts.iter().map(|draft| draft.data.added_bytes()).sum();
    if added_bytes > 0 {
        answering.cover(held.saturating_add(added_bytes))?;
    }
    let aside_bytes: usize = drafts.iter().map(|draft| draft.data.aside_bytes()).sum();
    if aside_bytes == 0 {
        return spec.bind(message.id, drafts, &output_names(message));
    }
    let (grpc, spec, body) = (context.grpc.clone(), spec.clone(), body.clone());
    let owner = Owner::model(&spec);
    let work = move |_: &_| {
        let message = InferRequest::read(&body)?;
        let drafts = inputs::read(&message, &body, &grpc.plane.regions)?;
        spec.bind(message.id, drafts, &output_names(&message))
    };
    let bound = Box::pin(context.io.net.pool.run(owner, aside_bytes, work)).await?;
    // Its regions have stayed until now.
    drop(drafts);
    bound
}

/// What typed fields hold is measured and becomes tensors: both take their time.
async fn bind_aside(
    context: &GrpcContext,
    spec: &Arc<ModelSpec>,
    (body, held): (&Bytes, usize),
    typed_bytes: usize,
    answering: &mut Answering,
) -> Result<Bound, Error> {
    let (grpc, spec, body) = (context.grpc.clone(), spec.clone(), body.clone());
    let owner = Owner::model(&spec);
    let mut reservation = answering.take_reservation();
    let work = move |_: &_| {
        let message = InferRequest::read(&body)?;
        let drafts = inputs::read(&message, &body, &grpc.plane.regions)?;
        let added_bytes: usize = drafts.iter().map(|draft| draft.data.added_bytes()).sum();
        let bytes = held.saturating_add(added_bytes);
        reservation.cover(bytes)?;
        reservation.settle(bytes);
        spec.bind(message.id, drafts, &output_names(&message)).map(|bound| (bound, reservation))
    };
    let (bound, reservation) = context.io.net.pool.run(owner, typed_bytes, work).await??;
    answering.reservation = Some(reservation);
    Ok(bound)
}

/// Of a request until its end: the message, its name for the model and for the answer, and its parameters.
fn held_bytes(message: &InferRequest<'_>, body: &Bytes) -> usize {
    body.len() + 2 * message.id.len() + PARAMETER_BYTES * message.parameters.len()
}

fn output_names<'a>(message: &InferRequest<'a>) -> SmallVec<[&'a str; 8]> {
    message.outputs.iter().map(|output| output.name).collect()
}

/// A name that is there more than once.
fn twice<'a>(names: &[&'a str]) -> Option<&'a str> {
    let mut sorted: SmallVec<[&str; 8]> = names.into();
    sorted.sort_unstable();
    sorted.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

fn check_unary(spec: &ModelSpec) -> Result<(), Error> {
    if !spec.decoupled {
        return Ok(());
    }
    let text = "ModelInfer RPC doesn't support models with decoupled transaction policy";
    Err(Error::new(ErrorKind::Unsupported, text))
}

impl SubmittedCall {
    /// The one response and the end of the request.
    pub(crate) async fn only_answer(&mut self) -> Result<OnlyAnswer, Error> {
        self.waiting.only_answer(&self.spec.name).await
    }

    /// A response as a message. `is_final`: in a stream, whether it is the last one.
    pub(crate) async fn written(
        &self,
        context: &GrpcContext,
        mut response: Response,
        is_final: Option<bool>,
    ) -> Result<Message, Error> {
        let Self { spec, places, classes, .. } = self;
        let to_choose = classes.bytes(&response);
        let to_copy = response_aside_bytes(&response, |index| places.of(index));
        if to_choose <= LONG_BYTES && to_copy == 0 {
            classes.choose(spec, &mut response)?;
            fill_regions(spec, &response, |index| places.of(index))?;
        } else {
            let (spec, places, classes) = (spec.clone(), places.clone(), classes.clone());
            let owner = Owner::model(&spec);
            let work = move |_: &_| {
                classes.choose(&spec, &mut response)?;
                fill_regions(&spec, &response, |index| places.of(index)).map(|()| response)
            };
            response = Box::pin(context.io.net.pool.run(owner, to_choose + to_copy, work)).await??;
        }
        let head = Preamble { spec, id: &self.id, is_final };
        Ok(write(head, response, |index| places.of(index).is_some()))
    }
}

impl Places {
    fn of(&self, index: u16) -> Option<&RegionRange> {
        self.0.iter().find(|(known, _)| *known == index).map(|(_, range)| range)
    }
}

/// What stands before the tensors of a response.
#[derive(Clone, Copy)]
pub(crate) struct Preamble<'a> {
    pub(crate) spec: &'a ModelSpec,
    pub(crate) id: &'a str,
    pub(crate) is_final: Option<bool>,
}

/// Tensors stay where they are, but for short ones.
pub(crate) fn write(preamble: Preamble<'_>, response: Response, is_placed: impl Fn(u16) -> bool) -> Message {
    let Preamble { spec, id, is_final } = preamble;
    let short: usize =
        response.outputs.iter().map(|(_, tensor)| tensor.data.len().min(COPIED_BYTES) + 64).sum();
    let mut open = BytesMut::with_capacity(128 + short);
    wire::put_text(&mut open, 1, &spec.name);
    wire::put_text(&mut open, 2, &spec.version.to_string());
    wire::put_text(&mut open, 3, id);
    let is_final = is_final.map(|is_final| ("triton_final_response".to_owned(), Parameter::Bool(is_final)));
    let mut parameters = Vec::new();
    for (name, value) in response.parameters.iter().chain(&is_final) {
        put_parameter(&mut parameters, 4, name, value);
    }
    open.extend_from_slice(&parameters);
    for (index, tensor) in &response.outputs {
        let (name, datatype) = (&*spec.outputs[usize::from(*index)].name, tensor.datatype.name());
        let length = wire::text_length(1, name)
            + wire::text_length(2, datatype)
            + wire::numbers_length(3, &tensor.shape);
        wire::put_length(&mut open, 5, length);
        wire::put_text(&mut open, 1, name);
        wire::put_text(&mut open, 2, datatype);
        wire::put_numbers(&mut open, 3, &tensor.shape);
    }
    let mut pieces = Message::new();
    for (index, tensor) in response.outputs {
        // One that is in a region has its place all the same.
        let data = if is_placed(index) { Bytes::new() } else { tensor.data.into_bytes() };
        wire::put_length(&mut open, 6, data.len());
        if data.len() <= COPIED_BYTES {
            open.extend_from_slice(&data);
        } else {
            pieces.push(std::mem::take(&mut open).freeze());
            pieces.push(data);
        }
    }
    if !open.is_empty() || pieces.is_empty() {
        pieces.push(open.freeze());
    }
    pieces
}
