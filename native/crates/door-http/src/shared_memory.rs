//! Tensors of a request that lie in regions of shared memory.
//!
//! Bytes are copied where the request is read: an input's once the model has nothing else against it. Where any of it
//! lies on a GPU, or much of it in a region, the request is read aside. The regions are held until the answer is written.

use std::sync::Arc;

use bytes::BytesMut;
use kushi_core::{Buffer, Error, InputData};
use kushi_dataplane::{aside_bytes, region_error};
use kushi_net::BodyMemory;
use kushi_oip::json::{Span, read};
use kushi_shm::{RegionRange, Regions};

use crate::aligned::Aligned;
use crate::document::RegionSpans;
use crate::members::{text, unsigned};

/// Smaller inputs are read into memory of their own.
const KEPT_FROM_BYTES: usize = 16 << 10;

/// The bytes of an input, in the request or in a region.
pub(crate) enum InputSource<'a> {
    Here(Buffer),
    Region(Arc<RegionRange>, &'a BodyMemory),
}

impl InputData for InputSource<'_> {
    fn byte_size(&self) -> usize {
        match self {
            Self::Here(buffer) => buffer.len(),
            Self::Region(range, _) => range.len(),
        }
    }

    fn fetch(self) -> Result<Buffer, Error> {
        match self {
            Self::Here(buffer) => Ok(buffer),
            Self::Region(range, _) if range.len() < KEPT_FROM_BYTES => {
                let mut bytes = BytesMut::with_capacity(range.len());
                range.read(&mut bytes).map_err(region_error)?;
                Ok(Buffer::host(bytes))
            }
            Self::Region(range, memory) => {
                let mut whole = Aligned::new(range.len(), None, memory);
                range.read(&mut whole.bytes).map_err(region_error)?;
                Ok(Buffer::host(whole.finish(memory)))
            }
        }
    }
}

impl InputSource<'_> {
    /// How many bytes are copied aside.
    pub(crate) fn aside_bytes(&self) -> usize {
        match self {
            Self::Region(range, _) => aside_bytes(range, range.len()),
            Self::Here(_) => 0,
        }
    }

    /// How many bytes there will be beside the body.
    pub(crate) fn added_bytes(&self) -> usize {
        match self {
            Self::Region(range, _) => range.len(),
            Self::Here(_) => 0,
        }
    }

    /// What is held of a region.
    pub(crate) fn region(&self) -> Option<Arc<RegionRange>> {
        match self {
            Self::Here(_) => None,
            Self::Region(range, _) => Some(range.clone()),
        }
    }
}

/// What the parameters of a tensor name, if they name a region. All of them are read in any case, as
/// Triton does.
pub(crate) fn range(
    json: &[u8],
    spans: &RegionSpans,
    regions: &Arc<Regions>,
) -> Result<Option<RegionRange>, Error> {
    let name = spans.name.as_ref().map(|span| text(json, Some(span), "shared_memory_region")).transpose()?;
    let number = |span: &Option<Span>, member| {
        span.as_ref().map_or(Ok(0), |span| unsigned(read::value(&json[span.clone()]), member))
    };
    let offset = number(&spans.offset, "shared_memory_offset")?;
    let byte_size = number(&spans.byte_size, "shared_memory_byte_size")?;
    name.map(|name| regions.range(&name, offset, byte_size).map_err(region_error)).transpose()
}
