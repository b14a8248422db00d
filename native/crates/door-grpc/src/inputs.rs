//! The inputs of an inference request: where the bytes of each are.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kushi_core::{Buffer, DataType, Error, InputData, InputDraft};
use kushi_dataplane::{aside_bytes, check_region_bytes, region_error};
use kushi_oip::infer_request::{InferRequest, Input, Region};
use kushi_oip::typed_contents::{self, Fault};
use kushi_shm::{RegionRange, Regions};
use smallvec::SmallVec;

pub(crate) type Drafts<'a> = SmallVec<[InputDraft<'a, InputSource>; 4]>;

/// The bytes of an input, in the request or in a region.
#[derive(Clone)]
pub(crate) enum InputSource {
    Here(Bytes),
    /// In a typed field, and how many bytes that makes.
    Typed {
        contents: Bytes,
        datatype: DataType,
        length: usize,
    },
    Region(Arc<RegionRange>),
}

impl InputData for InputSource {
    fn byte_size(&self) -> usize {
        match self {
            Self::Here(bytes) => bytes.len(),
            Self::Typed { length, .. } => *length,
            Self::Region(range) => range.len(),
        }
    }

    fn fetch(self) -> Result<Buffer, Error> {
        match self {
            Self::Here(bytes) => Ok(Buffer::host(bytes)),
            Self::Typed { contents, datatype, .. } => {
                // It was read once, to be measured.
                let bytes = typed_contents::bytes(&contents, datatype).ok().flatten().unwrap_or_default();
                Ok(Buffer::host(bytes.freeze()))
            }
            Self::Region(range) => {
                let mut bytes = BytesMut::with_capacity(range.len());
                range.read(&mut bytes).map_err(region_error)?;
                Ok(Buffer::host(bytes))
            }
        }
    }
}

impl InputSource {
    /// How many bytes are copied aside.
    pub(crate) fn aside_bytes(&self) -> usize {
        match self {
            Self::Region(range) => aside_bytes(range, range.len()),
            Self::Here(_) | Self::Typed { .. } => 0,
        }
    }

    /// How many bytes there will be beside the message.
    pub(crate) fn added_bytes(&self) -> usize {
        match self {
            Self::Typed { length, .. } => *length,
            Self::Region(range) => range.len(),
            Self::Here(_) => 0,
        }
    }
}

/// Where a region's parameters point, if there is one.
pub(crate) fn range(region: &Region, regions: &Arc<Regions>) -> Result<Option<RegionRange>, Error> {
    if region.name.is_empty() {
        return Ok(None);
    }
    regions.range(&region.name, region.offset, region.byte_size).map(Some).map_err(region_error)
}

pub(crate) fn read<'a>(
    message: &'a InferRequest<'_>,
    body: &Bytes,
    regions: &Arc<Regions>,
) -> Result<Drafts<'a>, Error> {
    let mut raw = message.raw_input_contents.iter();
    let mut drafts = Drafts::with_capacity(message.inputs.len());
    for input in &message.inputs {
        if !input.region.name.is_empty() && input.contents.is_some() {
            return Err(fault(message, input, |of| {
                format!("unexpected 'content' provided when using shared memory for {of}")
            }));
        }
        let data = match range(&input.region, regions)? {
            Some(range) => InputSource::Region(Arc::new(range)),
            None if message.raw_input_contents.is_empty() => contents(message, input, body)?,
            None if input.contents.is_some() => {
                let (name, model) = (input.name, message.model_name);
                return Err(Error::invalid(format!(
                    "contents field must not be specified when using raw_input_contents for '{name}' for model \
                     '{model}'"
                )));
            }
            None => match raw.next() {
                Some(bytes) => InputSource::Here(body.slice_ref(bytes)),
                None => return Err(missing(message, input)),
            },
        };
        drafts.push(InputDraft {
            name: Cow::Borrowed(input.name),
            datatype: input.datatype.parse().ok(),
            shape: input.shape.clone(),
            data,
        });
    }
    let in_regions = drafts.iter().filter(|draft| matches!(draft.data, InputSource::Region(_)));
    check_region_bytes(in_regions.map(|draft| draft.data.byte_size()))?;
    let surplus = raw.len();
    if surplus > 0 {
        return Err(Error::invalid(format!("{surplus} raw_input_contents belong to no input")));
    }
    Ok(drafts)
}

/// They become a tensor where the model has found that it fits.
fn contents(message: &InferRequest<'_>, input: &Input<'_>, body: &Bytes) -> Result<InputSource, Error> {
    let nothing = InputSource::Here(Bytes::new());
    // One of an unknown type is refused by its name later.
    let Ok(datatype) = input.datatype.parse::<DataType>() else { return Ok(nothing) };
    let contents = input.contents.unwrap_or_default();
    match typed_contents::length(contents, datatype) {
        Ok(Some(length)) => Ok(InputSource::Typed { contents: body.slice_ref(contents), datatype, length }),
        // No elements need no field.
        Ok(None) if input.shape.contains(&0) => Ok(nothing),
        Ok(None) => Err(missing(message, input)),
        Err(Fault::Several) => Err(fault(message, input, |of| {
            format!("unexpected explicit tensor data for {of}, binary data was already supplied.")
        })),
        Err(Fault::Type(found)) => Err(fault(message, input, |of| {
            format!(
                "unexpected explicit tensor data for {of} of type '{found}', expected datatype '{}'",
                input.datatype
            )
        })),
        Err(Fault::Unreadable(error)) => Err(Error::invalid(format!("failed to parse the request: {error}"))),
    }
}

fn missing(message: &InferRequest<'_>, input: &Input<'_>) -> Error {
    fault(message, input, |of| format!("unable to find data for {of} in request."))
}

fn fault(message: &InferRequest<'_>, input: &Input<'_>, text: impl FnOnce(&str) -> String) -> Error {
    Error::invalid(text(&format!("input tensor '{}' for model '{}'", input.name, message.model_name)))
}
