//! Requests that are nothing but the bytes of one input: `Inference-Header-Content-Length: 0`.

use bytes::Bytes;
use kushi_core::{Buffer, Error, InputDraft, ModelSpec, Shape};
use smallvec::smallvec;

use crate::request::InferRequest;
use crate::shared_memory::InputSource;

/// The model's only input, of the shape that its configuration and the size of `body` leave.
pub(crate) fn request<'a>(body: &Bytes, spec: &'a ModelSpec) -> Result<InferRequest<'a>, Error> {
    let fault = |text: String| Error::invalid(text).of_request("");
    let [input] = &spec.inputs[..] else {
        return Err(fault(format!(
            "Raw request must only have 1 input (found 1) to be deduced but got {} inputs in '{}' model configuration",
            spec.inputs.len(),
            spec.name
        )));
    };
    let name = &input.name;
    let free = input.dims.iter().filter(|&&dim| dim == -1).count();
    if free > 1 {
        return Err(fault(format!(
            "The shape of the raw input '{name}' can not be deduced because there are more than one variable-sized \
             dimension"
        )));
    }
    let fixed =
        input.dims.iter().filter(|&&dim| dim != -1).fold(1, |size: i64, &dim| size.saturating_mul(dim));
    let (data, left) = match input.datatype.size() {
        Some(size) => (body.clone(), body.len() as i64 / fixed.max(1) / size as i64),
        None if free == 0 && fixed == 1 => (as_string(body), 1),
        None => {
            return Err(fault(format!(
                "For BYTE datatype raw input '{name}', the model must have input shape [1]"
            )));
        }
    };
    let batch = (spec.max_batch_size > 0).then_some(1);
    let dims = input.dims.iter().map(|&dim| if dim == -1 { left } else { dim });
    let shape: Shape = batch.into_iter().chain(dims).collect();
    let data = InputSource::Here(Buffer::host(data));
    let draft = InputDraft { name: name.into(), datatype: Some(input.datatype), shape, data };
    Ok(InferRequest { inputs: smallvec![draft], binary_by_default: true, ..InferRequest::default() })
}

/// The only element of a BYTES tensor, which is preceded by its length.
fn as_string(body: &Bytes) -> Bytes {
    [&(body.len() as u32).to_le_bytes(), &body[..]].concat().into()
}
