//! Outputs that their client wants in regions of shared memory.

use kushi_core::{Error, ErrorKind, ModelSpec, Response};
use kushi_shm::{Memory, RegionRange};

use crate::region_error;

/// Copying more than this between a region and the server takes so long that others would wait.
const LONG_BYTES: usize = 1 << 20;

/// How many of so many bytes of a region are copied aside: all that lie on a GPU, for whose driver a copy may take any
/// time, and of others many.
pub fn aside_bytes(range: &RegionRange, bytes: usize) -> usize {
    let takes_long = range.memory() == Memory::Cuda || bytes > LONG_BYTES;
    if takes_long { bytes } else { 0 }
}

/// How many bytes of a response are copied aside. `range` as below.
pub fn response_aside_bytes<'a>(
    response: &Response,
    range: impl Fn(u16) -> Option<&'a RegionRange>,
) -> usize {
    let bytes = response
        .outputs
        .iter()
        .filter_map(|(index, tensor)| range(*index).map(|range| aside_bytes(range, tensor.data.len())));
    bytes.sum()
}

/// Writes the outputs that are wanted in regions, which `range` knows by the outputs' positions. Nothing is written
/// when one of them is too large.
pub fn fill_regions<'a>(
    spec: &ModelSpec,
    response: &Response,
    range: impl Fn(u16) -> Option<&'a RegionRange>,
) -> Result<(), Error> {
    let in_regions = || {
        let outputs = response.outputs.iter();
        outputs.filter_map(|(index, tensor)| Some((*index, tensor.data.as_bytes(), range(*index)?)))
    };
    for (index, bytes, range) in in_regions() {
        if bytes.len() > range.len() {
            let text = format!(
                "shared memory size specified with the request for output '{}' ({} bytes) should be at least {} bytes \
                 to hold the results",
                spec.outputs[usize::from(index)].name,
                range.len(),
                bytes.len()
            );
            return Err(Error::new(ErrorKind::UnreadableInput, text));
        }
    }
    for (_, bytes, range) in in_regions() {
        range.write(bytes).map_err(region_error)?;
    }
    Ok(())
}
