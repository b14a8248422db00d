//! The inputs of an inference request: what each is, and where its bytes are.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use kushi_core::{Buffer, DataType, Error, InputDraft, Shape};
use kushi_net::BodyMemory;
use kushi_oip::json::Span;
use kushi_oip::json::read::{self, Value};
use kushi_oip::tensor_json::{self, Bounds};
use kushi_shm::Regions;
use smallvec::SmallVec;

use crate::document::InputSpans;
use crate::limits::HttpLimits;
use crate::members::{missing, text, unreadable, unsigned};
use crate::shared_memory::{self, InputSource};

/// Of one tensor.
const MAX_DIMENSIONS: usize = 1024;

/// What a request may refer to, and its bounds.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub model: &'a str,
    pub limits: &'a HttpLimits,
    pub regions: &'a Arc<Regions>,
    pub memory: &'a BodyMemory,
}

/// The names that have come, so that one is not compared with a thousand long ones.
#[derive(Default)]
pub(crate) struct Names<'a> {
    first: SmallVec<[Cow<'a, str>; 4]>,
    rest: Option<HashSet<Cow<'a, str>>>,
}

impl<'a> Names<'a> {
    /// False for a name that has come before.
    pub(crate) fn insert(&mut self, name: Cow<'a, str>) -> bool {
        if self.first.contains(&name) {
            return false;
        }
        if self.first.len() < self.first.inline_size() {
            self.first.push(name);
            return true;
        }
        self.rest.get_or_insert_default().insert(name)
    }
}

/// The binary tensor data behind the JSON, handed out in order.
pub(crate) struct Tail<'a> {
    pub body: &'a Bytes,
    pub at: usize,
}

impl Tail<'_> {
    fn take(&mut self, size: u64, name: &str, model: &str) -> Result<Buffer, Error> {
        let left = self.body.len() - self.at;
        match usize::try_from(size) {
            Ok(size) if size <= left => {
                let data = self.body.slice(self.at..self.at + size);
                self.at += size;
                Ok(Buffer::host(data))
            }
            _ => Err(Error::invalid(format!(
                "unexpected size for input '{name}', expecting {} additional bytes for model '{model}'",
                size - left as u64
            ))),
        }
    }
}

pub(crate) fn read<'a>(
    json: &'a [u8],
    spans: &InputSpans,
    request_id: &str,
    names: &mut Names<'a>,
    tail: &mut Tail<'_>,
    scope: Scope<'a>,
) -> Result<InputDraft<'a, InputSource<'a>>, Error> {
    check_one_source(spans)?;
    let name = text(json, spans.name.as_ref(), "name")?;
    let datatype = text(json, spans.datatype.as_ref(), "datatype")?.parse::<DataType>().ok();
    let shape = shape(json, spans.shape.as_ref(), &name)?;
    if !names.insert(name.clone()) {
        let error = Error::invalid(format!("input '{name}' already exists in request"));
        return Err(error.of_request(request_id));
    }
    let data = if let Some(span) = &spans.binary_data_size {
        let size = unsigned(read::value(&json[span.clone()]), "binary_data_size")?;
        InputSource::Here(tail.take(size, &name, scope.model)?)
    } else if let Some(range) = shared_memory::range(json, &spans.region, scope.regions)? {
        InputSource::Region(Arc::new(range), scope.memory)
    } else {
        let data = &json[spans.data.clone().unwrap_or_default()];
        let HttpLimits { max_input_bytes: bytes, max_json_depth: depth, .. } = *scope.limits;
        InputSource::Here(tensor_json::read(data, &name, datatype, &shape, Bounds { bytes, depth })?)
    };
    Ok(InputDraft { name, datatype, shape, data })
}

fn check_one_source(spans: &InputSpans) -> Result<(), Error> {
    let sources = [
        (&spans.data, "'data'"),
        (&spans.binary_data_size, "'binary_data_size'"),
        (&spans.region.name, "'shared_memory_region'"),
    ];
    let set: SmallVec<[&str; 3]> =
        sources.iter().filter(|(span, _)| span.is_some()).map(|&(_, name)| name).collect();
    if set.len() == 1 {
        return Ok(());
    }
    let found = if set.is_empty() { "no field is set".into() } else { format!("set {}", set.join(" ")) };
    Err(Error::invalid(format!(
        "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', \
         'shared_memory_region' in 'parameters'. But {found}"
    )))
}

fn shape(json: &[u8], span: Option<&Span>, name: &str) -> Result<Shape, Error> {
    let span = span.ok_or_else(|| missing("shape"))?;
    let text = &json[span.clone()];
    if read::value(text) != Value::Array {
        return Err(unreadable("Unable to parse 'shape': attempt to access JSON non-array as array"));
    }
    let mut shape = Shape::new();
    for (depth, value) in read::Leaves::new(text) {
        if shape.len() == MAX_DIMENSIONS {
            let text = format!("input '{name}' has more than {MAX_DIMENSIONS} dimensions");
            return Err(Error::invalid(text));
        }
        let value = if depth == 1 { value } else { Value::Array };
        // Beyond i64 Triton wraps around; the checks of the model then refuse the result.
        shape.push(unsigned(value, "shape")? as i64);
    }
    Ok(shape)
}
