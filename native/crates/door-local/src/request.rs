//! One inference request, from its frame into the queue of its model.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kushi_core::{Buffer, DataType, Error, InputData, InputDraft, ModelSpec, Request};
use kushi_dataplane::{AskedVersion, Attempt, Begun, Parent, RouteKey, Trace};
use kushi_net::{Answering, Sink, Waiting};
use kushi_oip::infer_request::InferRequest;
use smallvec::SmallVec;

use crate::LONG_COPY_BYTES;
use crate::LocalContext;
use crate::client_slots::{ClientSlots, RangeFault};

type Drafts<'a> = SmallVec<[InputDraft<'a, InputSource>; 4]>;

/// The bytes of an input.
#[derive(Clone)]
enum InputSource {
    /// They stay where they are.
    AsIs(Bytes),
    /// In a slot, from where they are copied before they are looked at.
    Copied(Bytes),
}

impl InputSource {
    /// They are not needed yet.
    fn leave(&mut self) {
        if let Self::Copied(bytes) = self {
            *self = Self::AsIs(std::mem::take(bytes));
        }
    }
}

impl InputData for InputSource {
    fn byte_size(&self) -> usize {
        match self {
            Self::AsIs(bytes) | Self::Copied(bytes) => bytes.len(),
        }
    }

    fn fetch(self) -> Result<Buffer, Error> {
        Ok(Buffer::host(match self {
            Self::AsIs(bytes) => bytes,
            Self::Copied(bytes) => Bytes::copy_from_slice(&bytes),
        }))
    }
}

/// A request that has been received whole.
pub(super) struct Arrived {
    pub body: Bytes,
    pub at: Instant,
    pub answering: Answering,
    /// The inputs that lie in slots, in their order, once they have been copied aside.
    pub from_slots: Option<Vec<Bytes>>,
    /// It takes any number of answers.
    pub streams: bool,
}

/// What became of a request.
pub(super) enum Submitted {
    Queued(Waiting, Arc<ModelSpec>),
    /// It fits its model, and takes long to copy: to be submitted again with what this gives.
    CopyFirst(Aside),
}

/// Inputs in slots, and what is to be done about them on another thread.
pub(super) struct Aside(SmallVec<[InputSource; 4]>);

impl Aside {
    pub(super) fn byte_size(&self) -> usize {
        self.0.iter().map(InputSource::byte_size).sum()
    }

    pub(super) fn copy(self) -> Result<Vec<Bytes>, Error> {
        self.0.into_iter().map(|data| Ok(data.fetch()?.into_bytes())).collect()
    }
}

impl From<Error> for RangeFault {
    fn from(error: Error) -> Self {
        Self::Request(error)
    }
}

/// Submits a request; its mail will come to `sink` under `id`.
pub(super) fn submit(
    context: &LocalContext,
    slots: &ClientSlots,
    sink: &Rc<Sink>,
    id: u64,
    arrived: &Arrived,
) -> Result<Submitted, RangeFault> {
    let mut message = InferRequest::read(&arrived.body)?;
    let version = AskedVersion::read(message.model_version)?;
    let inference = context
        .plane
        .inference(message.model_name, version, |name| RouteKey::among(&message.parameters, name))?;
    if arrived.streams {
        check_no_classes(&message)?;
    } else {
        inference.spec().check_unary()?;
    }
    let mut data = data(&message, arrived, slots)?;
    let mut aside = aside(&message, &data);
    if aside.is_some() {
        data.iter_mut().for_each(InputSource::leave);
    }
    // It ends with the request.
    let trace = context.plane.traces.begin(message.model_name, arrived.at, || {
        Parent::read(message.trace_parent.as_bytes(), Some(message.trace_state.as_bytes()))
    });
    let deadline = match message.timeout_us {
        0 => None,
        timeout => arrived.at.checked_add(Duration::from_micros(timeout)),
    };
    let mut first_parameters = std::mem::take(&mut message.parameters);
    let names: SmallVec<[&str; 8]> = message.outputs.iter().map(|output| output.name).collect();
    let begun = inference.begin(&context.plane.registry, &context.io.to(sink, id), |mut attempt| {
        let parameters = attempt.take_parameters(&mut first_parameters);
        let Attempt { spec, reply, .. } = attempt;
        let bound = spec.bind(message.id, drafts(&message, spec, &data)?, &names)?;
        let classes = spec.classes(message.outputs.iter().map(|output| (output.name, output.classes)))?;
        if let Some(aside) = aside.take() {
            return Err(NotYet::CopyFirst(Box::new(aside)));
        }
        let request = Request {
            id: message.id.into(),
            classes,
            parameters,
            priority: message.priority,
            timeout_us: message.queue_timeout_us,
            sequence: message.sequence.clone(),
            deadline,
            context: trace.as_ref().map(Trace::context).unwrap_or_default(),
            ..Request::new(bound, arrived.at, reply)
        };
        Ok((request, ()))
    });
    match begun {
        Ok(Begun { waiting, spec, .. }) => Ok(Submitted::Queued(waiting, spec)),
        Err(NotYet::CopyFirst(aside)) => Ok(Submitted::CopyFirst(*aside)),
        Err(NotYet::Wrong(error)) => Err(error.into()),
    }
}

/// Why a request is not in a queue.
enum NotYet {
    Wrong(Error),
    CopyFirst(Box<Aside>),
}

impl From<Error> for NotYet {
    fn from(error: Error) -> Self {
        Self::Wrong(error)
    }
}

/// Classes are chosen among the outputs of an only answer.
fn check_no_classes(message: &InferRequest<'_>) -> Result<(), Error> {
    match message.outputs.iter().find(|output| output.classes > 0) {
        Some(output) => Err(Error::invalid(format!(
            "output '{}': the classes of responses in a stream cannot be asked for",
            output.name
        ))),
        None => Ok(()),
    }
}

/// The bytes of each input, checked against nothing but the message.
fn data(
    message: &InferRequest<'_>,
    arrived: &Arrived,
    slots: &ClientSlots,
) -> Result<SmallVec<[InputSource; 4]>, RangeFault> {
    let mut raw = message.raw_input_contents.iter();
    let mut from_slots = arrived.from_slots.iter().flatten();
    let mut data = SmallVec::with_capacity(message.inputs.len());
    for input in &message.inputs {
        if input.contents.is_some() {
            let text =
                format!("input '{}' has typed contents, expected raw_input_contents or a slot", input.name);
            return Err(Error::invalid(text).into());
        }
        data.push(match input.slot {
            Some(range) => match from_slots.next() {
                Some(bytes) => InputSource::AsIs(bytes.clone()),
                None if input.datatype.parse().is_ok_and(is_relied_on) => {
                    InputSource::Copied(slots.range(input.name, range)?)
                }
                None => InputSource::AsIs(slots.range(input.name, range)?),
            },
            None => {
                let bytes = raw.next().ok_or_else(|| wrong_contents(message))?;
                InputSource::AsIs(arrived.body.slice_ref(bytes))
            }
        });
    }
    if raw.next().is_some() {
        return Err(wrong_contents(message).into());
    }
    Ok(data)
}

/// Lengths of strings, indices and masks are checked or counted and then relied on, so they must not change
/// in between: the client could still write to its slot. Other values may; they mean nothing then.
fn is_relied_on(datatype: DataType) -> bool {
    use DataType::{Bool, Bytes, Int32, Int64, Uint32, Uint64};
    matches!(datatype, Bool | Bytes | Int32 | Int64 | Uint32 | Uint64)
}

/// All inputs in slots, when copying takes long.
fn aside(message: &InferRequest<'_>, data: &[InputSource]) -> Option<Aside> {
    let to_copy = data.iter().filter(|data| matches!(data, InputSource::Copied(_)));
    if to_copy.map(InputSource::byte_size).sum::<usize>() <= LONG_COPY_BYTES {
        return None;
    }
    let in_slots = message.inputs.iter().zip(data).filter(|(input, _)| input.slot.is_some());
    Some(Aside(in_slots.map(|(_, data)| data.clone()).collect()))
}

fn wrong_contents(message: &InferRequest<'_>) -> Error {
    let expected = message.inputs.iter().filter(|input| input.slot.is_none()).count();
    let got = message.raw_input_contents.len();
    Error::invalid(format!(
        "expected {expected} raw_input_contents, one for each input without a slot, got {got}"
    ))
}

fn drafts<'a>(
    message: &'a InferRequest<'_>,
    spec: &'a ModelSpec,
    data: &[InputSource],
) -> Result<Drafts<'a>, Error> {
    let by_position = !message.inputs.is_empty() && message.inputs.iter().all(|input| input.name.is_empty());
    let places = if by_position { spec.first_inputs(message.id, message.inputs.len())? } else { &[] };
    let inputs = message.inputs.iter().zip(data).enumerate();
    Ok(inputs
        .map(|(index, (input, data))| InputDraft {
            name: Cow::Borrowed(places.get(index).map_or(input.name, |place| &place.name)),
            datatype: input.datatype.parse().ok(),
            shape: input.shape.clone(),
            data: data.clone(),
        })
        .collect())
}
