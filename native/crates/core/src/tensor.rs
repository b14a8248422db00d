//! A tensor: element type, shape and bytes in row-major, little-endian order.

use smallvec::SmallVec;

use crate::{Buffer, DataType};

pub type Shape = SmallVec<[i64; 4]>;

#[derive(Clone, Debug)]
pub struct Tensor {
    pub datatype: DataType,
    pub shape: Shape,
    pub data: Buffer,
}

/// The number of elements of a shape, `None` when a dimension is negative or the product overflows.
pub fn element_count(shape: &[i64]) -> Option<usize> {
    shape
        .iter()
        .try_fold(1_i64, |count, &dim| if dim < 0 { None } else { count.checked_mul(dim) })
        .and_then(|count| usize::try_from(count).ok())
}

/// The length in bytes of the first `elements` elements of a BYTES tensor; `None` when cut short.
pub(crate) fn bytes_prefix(data: &[u8], elements: usize) -> Option<usize> {
    let mut at = 0_usize;
    for _ in 0..elements {
        let length = data.get(at..at.checked_add(4)?)?;
        let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
        at = at.checked_add(4)?.checked_add(length)?;
        if at > data.len() {
            return None;
        }
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_elements_of_scalars_and_empty_tensors() {
        assert_eq!(element_count(&[]), Some(1));
        assert_eq!(element_count(&[3, 0, 5]), Some(0));
        assert_eq!(element_count(&[2, -1]), None);
        assert_eq!(element_count(&[i64::MAX, 2]), None);
    }

    #[test]
    fn walks_bytes_elements_and_stops_at_a_cut() {
        let data = b"\x01\0\0\0a\x02\0\0\0bc";
        assert_eq!(bytes_prefix(data, 0), Some(0));
        assert_eq!(bytes_prefix(data, 1), Some(5));
        assert_eq!(bytes_prefix(data, 2), Some(11));
        assert_eq!(bytes_prefix(data, 3), None);
        assert_eq!(bytes_prefix(&data[..10], 2), None);
    }
}
