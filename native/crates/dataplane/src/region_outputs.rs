//! Outputs that their client wants in regions of shared memory.

use kushi_core::{Error, ErrorKind, ModelSpec, Response};
use kushi_shm::{Memory, RegionRange};

use crate::region_error;

/// How many bytes of a response go to GPUs. However few there are, they are copied aside: a driver may take any time for
/// it. `range` as below.
pub fn gpu_bytes<'a>(response: &Response, range: impl Fn(u16) -> Option<&'a RegionRange>) -> usize {
    let on_gpu = |index| range(index).is_some_and(|range| range.memory() == Memory::Cuda);
    response.outputs.iter().filter(|(index, _)| on_gpu(*index)).map(|(_, tensor)| tensor.data.len()).sum()
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
