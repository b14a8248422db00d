//! The answer to an inference request: JSON, followed by the binary tensors.

use bytes::Bytes;
use kushi_core::{Classes, DataType, Error, ModelSpec, Parameter, Request, Response, Tensor, Wanted};
use kushi_dataplane::{fill_regions, response_aside_bytes};
use kushi_oip::json::write;
use kushi_oip::tensor_json;
use smallvec::SmallVec;

use crate::answer::{self, Chunks, HttpAnswer};
use crate::outputs::{WantedOutput, Way};

/// Binary tensors up to this size are copied behind the JSON; larger ones are sent where they lie.
const COPIED_BYTES: usize = 16 << 10;

/// How each output comes.
pub(crate) struct Format {
    listed: Vec<(u16, Way)>,
    otherwise: Way,
}

impl Format {
    /// Refuses what is asked for by its name and cannot be written, before it is computed. A model may leave others
    /// out.
    pub(crate) fn new(
        spec: &ModelSpec,
        wanted: &Wanted,
        outputs: Vec<WantedOutput<'_>>,
        binary_by_default: bool,
    ) -> Result<Self, Error> {
        let place =
            |WantedOutput { name, way, .. }: WantedOutput<'_>| Some((spec.output(&name)? as u16, way));
        let listed = outputs.into_iter().filter_map(place).collect();
        let format = Self { listed, otherwise: if binary_by_default { Way::Binary } else { Way::Json } };
        for &index in wanted {
            format.check(index, spec.outputs[usize::from(index)].datatype)?;
        }
        Ok(format)
    }

    /// The bytes of tensors that become JSON or classes.
    pub(crate) fn text_bytes(&self, response: &Response, classes: &Classes) -> usize {
        let becomes_text = |index| matches!(self.way(index), Way::Json) || classes.count(index) > 0;
        let text = response.outputs.iter().filter(|(index, _)| becomes_text(*index));
        text.map(|(_, tensor)| tensor.data.len()).sum()
    }

    /// The bytes of tensors that go to GPUs.
    pub(crate) fn aside_bytes(&self, response: &Response) -> usize {
        response_aside_bytes(response, |index| self.way(index).region())
    }

    /// Whether an output of this type can come as it is to come.
    fn check(&self, index: u16, datatype: DataType) -> Result<(), Error> {
        match self.way(index) {
            Way::Json => tensor_json::check_writable(datatype),
            Way::Binary | Way::Region(_) => Ok(()),
        }
    }

    fn way(&self, index: u16) -> &Way {
        self.listed.iter().find(|(listed, _)| *listed == index).map_or(&self.otherwise, |(_, way)| way)
    }
}

/// Fails when an output does not get into its region.
pub(crate) fn write(
    spec: &ModelSpec,
    Request { id, classes, .. }: &Request,
    mut response: Response,
    format: &Format,
) -> Result<HttpAnswer, Error> {
    for (index, tensor) in &response.outputs {
        format.check(*index, tensor.datatype)?;
    }
    classes.choose(spec, &mut response)?;
    fill_regions(spec, &response, |index| format.way(index).region())?;
    let mut head = Vec::with_capacity(usual_length(&response));
    head.push(b'{');
    if !id.is_empty() {
        head.extend_from_slice(b"\"id\":");
        write::string(&mut head, id.as_bytes());
        head.push(b',');
    }
    head.extend_from_slice(b"\"model_name\":");
    write::string(&mut head, spec.name.as_bytes());
    head.extend_from_slice(b",\"model_version\":\"");
    write::integer(&mut head, spec.version);
    head.push(b'"');
    write_parameters(&mut head, &response.parameters);
    head.extend_from_slice(b",\"outputs\":[");
    let mut tail: SmallVec<[Bytes; 4]> = SmallVec::new();
    for (i, (index, tensor)) in response.outputs.into_iter().enumerate() {
        if i > 0 {
            head.push(b',');
        }
        let output = &spec.outputs[usize::from(index)];
        write_output(&mut head, &output.name, &tensor);
        match format.way(index) {
            Way::Binary => {
                head.extend_from_slice(b",\"parameters\":{\"binary_data_size\":");
                write::integer(&mut head, tensor.data.len());
                head.push(b'}');
                if !tensor.data.is_empty() {
                    tail.push(tensor.data.into_bytes());
                }
            }
            Way::Json => {
                head.extend_from_slice(b",\"data\":[");
                tensor_json::write(&mut head, tensor.datatype, tensor.data.as_bytes());
                head.push(b']');
            }
            Way::Region(_) => {}
        }
        head.push(b'}');
    }
    head.extend_from_slice(b"]}");
    if tail.is_empty() {
        return Ok(answer::long_json(head));
    }
    let json_length = head.len();
    Ok(answer::tensors(json_length, assemble(head, tail)))
}

/// The length of most answers: what is longer is moved once or twice as it grows.
fn usual_length(response: &Response) -> usize {
    let outputs = response.outputs.iter().map(|(_, tensor)| 112 + tensor.data.len().min(COPIED_BYTES));
    96 + outputs.sum::<usize>()
}

fn write_parameters(head: &mut Vec<u8>, parameters: &[(String, Parameter)]) {
    if parameters.is_empty() {
        return;
    }
    head.extend_from_slice(b",\"parameters\":");
    let mut separator = b'{';
    for (name, value) in parameters {
        head.push(separator);
        separator = b',';
        write::string(head, name.as_bytes());
        head.push(b':');
        write::parameter(head, value);
    }
    head.push(b'}');
}

fn write_output(head: &mut Vec<u8>, name: &str, tensor: &Tensor) {
    head.extend_from_slice(b"{\"name\":");
    write::string(head, name.as_bytes());
    head.extend_from_slice(b",\"datatype\":\"");
    head.extend_from_slice(tensor.datatype.name().as_bytes());
    head.extend_from_slice(b"\",\"shape\":[");
    for (i, &dim) in tensor.shape.iter().enumerate() {
        if i > 0 {
            head.push(b',');
        }
        write::integer(head, dim);
    }
    head.push(b']');
}

/// Copies small pieces together, so that they leave in one write, and keeps large ones as they are.
fn assemble(head: Vec<u8>, tail: SmallVec<[Bytes; 4]>) -> Chunks {
    let mut chunks = Chunks::default();
    let mut open = head;
    for piece in tail {
        if piece.len() <= COPIED_BYTES {
            open.extend_from_slice(&piece);
        } else {
            chunks.push_text(std::mem::take(&mut open));
            chunks.push(piece);
        }
    }
    chunks.push_text(open);
    chunks
}
