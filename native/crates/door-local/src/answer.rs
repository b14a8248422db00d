//! Answers, written from where their parts lie.
//!
//! The bytes are those of a [`ModelInferResponse`](kushi_oip::ModelInferResponse); the message is not
//! built first because each of its names would be allocated.

use std::sync::Arc;
use std::time::Duration;

use kushi_core::{End, Error, ErrorKind, ModelSpec, Response, Tensor, Timings};
use kushi_oip::{Kind, MAX_BODY_BYTES, SlotRange, put_parameter, wire};
use kushi_shm::LentSlot;
use smallvec::SmallVec;

use crate::LONG_COPY_BYTES;
use crate::answer_slots::AnswerSlots;
use crate::outgoing::OutgoingFrames;

/// What may wait for a client that does not read; its further answers are failures.
const MOST_UNREAD_BYTES: usize = 256 << 20;

/// An answer whose outputs have their places.
pub(super) struct LocalAnswer {
    spec: Arc<ModelSpec>,
    end: End,
    outputs: SmallVec<[LocalOutput; 2]>,
    /// As they stand in the message; mostly none.
    parameters: Vec<u8>,
}

struct LocalOutput {
    index: u16,
    tensor: Tensor,
    /// `None`: it travels in the frame.
    slot: Option<LentSlot>,
}

impl LocalAnswer {
    pub(super) fn new(spec: Arc<ModelSpec>, response: Response, end: End, slots: &mut AnswerSlots) -> Self {
        let place = |(index, tensor): (u16, Tensor)| {
            let slot = slots.take(tensor.data.len());
            LocalOutput { index, tensor, slot }
        };
        let parameters = parameters(&response);
        Self { spec, end, outputs: response.outputs.into_iter().map(place).collect(), parameters }
    }

    pub(super) fn bytes_in_slots(&self) -> usize {
        let in_slots = self.outputs.iter().filter(|output| output.slot.is_some());
        in_slots.map(|output| output.tensor.data.len()).sum()
    }

    /// Whether [`LocalAnswer::fill`] is for another thread.
    pub(super) fn takes_long(&self) -> bool {
        self.bytes_in_slots() > LONG_COPY_BYTES
    }

    /// Copies what travels in slots there.
    pub(super) fn fill(&self) {
        for LocalOutput { tensor, slot, .. } in &self.outputs {
            if let Some(slot) = slot {
                slot.write(0, tensor.data.as_bytes());
            }
        }
    }

    /// Fails, with nothing written of the answer, when there is no room for it.
    pub(super) fn write(
        self,
        id: u64,
        outgoing: &mut OutgoingFrames,
        slots: &mut AnswerSlots,
    ) -> Result<(), Error> {
        let Self { spec, end, outputs, parameters } = self;
        let taken: SmallVec<[LentSlot; 4]> =
            outputs.iter().filter_map(|output| output.slot.clone()).collect();
        let about = About { request: &end.request.id, timings: Some(&end.timings), parameters: &parameters };
        let announce =
            |outgoing: &mut OutgoingFrames| taken.iter().for_each(|slot| slots.announce(slot, outgoing));
        let written = write(Kind::Answer, id, &spec, &about, outputs, outgoing, announce);
        if written.is_err() {
            let taken: SmallVec<[u64; 4]> = taken.iter().map(|slot| slot.id()).collect();
            slots.release(&taken, outgoing);
        }
        written
    }
}

/// One of any number of answers. It travels in its frame: what a client does not read is bounded by what waits.
pub(super) fn write_part(
    id: u64,
    spec: &ModelSpec,
    response: Response,
    outgoing: &mut OutgoingFrames,
) -> Result<(), Error> {
    let parameters = parameters(&response);
    let about = About { request: "", timings: None, parameters: &parameters };
    let outputs =
        response.outputs.into_iter().map(|(index, tensor)| LocalOutput { index, tensor, slot: None });
    write(Kind::Part, id, spec, &about, outputs.collect(), outgoing, |_| ())
}

fn parameters(response: &Response) -> Vec<u8> {
    let mut parameters = Vec::new();
    for (name, value) in &response.parameters {
        put_parameter(&mut parameters, 4, name, value);
    }
    parameters
}

/// What an answer says beside its outputs.
struct About<'a> {
    /// The id that the client has given the request.
    request: &'a str,
    timings: Option<&'a Timings>,
    parameters: &'a [u8],
}

fn write(
    kind: Kind,
    id: u64,
    spec: &ModelSpec,
    about: &About<'_>,
    outputs: SmallVec<[LocalOutput; 2]>,
    outgoing: &mut OutgoingFrames,
    announce: impl FnOnce(&mut OutgoingFrames),
) -> Result<(), Error> {
    let mut version = itoa::Buffer::new();
    let version = version.format(spec.version);
    let output_lengths = outputs.iter().map(|output| {
        let data = output.tensor.data.len();
        let inline = if output.slot.is_some() { 0 } else { wire::bytes_length(6, data) };
        wire::bytes_length(5, output.length(spec)) + inline
    });
    let length = wire::text_length(1, &spec.name)
        + wire::text_length(2, version)
        + wire::text_length(3, about.request)
        + about.parameters.len()
        + output_lengths.sum::<usize>()
        + about.timings.map_or(0, |timings| wire::bytes_length(1001, timings_length(timings)));
    if length > MAX_BODY_BYTES || outgoing.len() + length > MOST_UNREAD_BYTES {
        return Err(too_large(&spec.name, length));
    }
    announce(outgoing);
    let out = outgoing.frame(kind, id, length);
    wire::put_text(out, 1, &spec.name);
    wire::put_text(out, 2, version);
    wire::put_text(out, 3, about.request);
    out.extend_from_slice(about.parameters);
    for output in &outputs {
        wire::put_length(out, 5, output.length(spec));
        output.put(out, spec);
    }
    if let Some(timings) = about.timings {
        put_timings(out, timings);
    }
    for LocalOutput { tensor, slot, .. } in outputs {
        if slot.is_none() {
            wire::put_length(outgoing.open(), 6, tensor.data.len());
            outgoing.tensor(tensor.data.into_bytes());
        }
    }
    Ok(())
}

fn too_large(model: &str, length: usize) -> Error {
    if length > MAX_BODY_BYTES {
        let text = format!(
            "an answer of model '{model}' takes {length} bytes, at most {MAX_BODY_BYTES} travel outside of slots"
        );
        Error::new(ErrorKind::Unsupported, text)
    } else {
        let text = format!("{MOST_UNREAD_BYTES} bytes of answers wait to be read: no room for one more");
        Error::new(ErrorKind::Overloaded, text)
    }
}

impl LocalOutput {
    fn name<'a>(&self, spec: &'a ModelSpec) -> &'a str {
        &spec.outputs[usize::from(self.index)].name
    }

    fn range(&self) -> Option<SlotRange> {
        let length = self.tensor.data.len() as u64;
        self.slot.as_ref().map(|slot| SlotRange { slot: slot.id(), offset: 0, length })
    }

    fn put(&self, out: &mut Vec<u8>, spec: &ModelSpec) {
        wire::put_text(out, 1, self.name(spec));
        wire::put_text(out, 2, self.tensor.datatype.name());
        wire::put_numbers(out, 3, &self.tensor.shape);
        if let Some(range) = self.range() {
            let SlotRange { slot, offset, length } = range;
            wire::put_length(out, 1001, slot_length(range));
            wire::put_number(out, 1, slot);
            wire::put_number(out, 2, offset);
            wire::put_number(out, 3, length);
        }
    }

    fn length(&self, spec: &ModelSpec) -> usize {
        wire::text_length(1, self.name(spec))
            + wire::text_length(2, self.tensor.datatype.name())
            + wire::numbers_length(3, &self.tensor.shape)
            + self.range().map_or(0, |range| wire::bytes_length(1001, slot_length(range)))
    }
}

fn slot_length(range: SlotRange) -> usize {
    let SlotRange { slot, offset, length } = range;
    wire::number_length(1, slot) + wire::number_length(2, offset) + wire::number_length(3, length)
}

fn put_timings(out: &mut Vec<u8>, timings: &Timings) {
    wire::put_length(out, 1001, timings_length(timings));
    for (field, time) in fields(timings) {
        wire::put_number(out, field, time.as_nanos() as u64);
    }
}

fn timings_length(timings: &Timings) -> usize {
    fields(timings).into_iter().map(|(field, time)| wire::number_length(field, time.as_nanos() as u64)).sum()
}

fn fields(timings: &Timings) -> [(u32, Duration); 4] {
    let Timings { queue, compute_input, compute_infer, compute_output } = *timings;
    [(1, queue), (2, compute_input), (3, compute_infer), (4, compute_output)]
}
