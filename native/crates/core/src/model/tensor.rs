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

/// What an engine keeps beside its letters.
const STRING_BYTES: usize = 32;

impl Tensor {
    /// What it holds, by which queues are bounded.
    pub fn weight(&self) -> usize {
        let strings = match self.datatype {
            DataType::Bytes => element_count(&self.shape).unwrap_or(0),
            _ => 0,
        };
        self.data.len() + STRING_BYTES * strings
    }

    /// Whether its bytes are as many as its shape and type say; strings say themselves how long they are.
    pub fn fills_its_shape(&self) -> bool {
        let data = self.data.as_bytes();
        element_count(&self.shape).is_some_and(|count| match self.datatype.size() {
            Some(size) => count.checked_mul(size) == Some(data.len()),
            None => bytes_prefix(data, count) == Some(data.len()),
        })
    }

    /// Drops the rows behind the first `rows`, without copying.
    pub fn truncate(&mut self, rows: usize) {
        let Some(first) = self.shape.first_mut().filter(|first| **first > rows as i64) else { return };
        *first = rows as i64;
        let count = element_count(&self.shape).unwrap_or(0);
        let length = match self.datatype.size() {
            Some(size) => count * size,
            None => bytes_prefix(self.data.as_bytes(), count).unwrap_or_default(),
        };
        self.data = self.data.slice(0..length);
    }
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
    fn a_tensor_fills_its_shape_to_the_byte() {
        let fills = |datatype, shape: &[i64], data: &'static [u8]| {
            let (shape, data) = (Shape::from_slice(shape), Buffer::host(data));
            Tensor { datatype, shape, data }.fills_its_shape()
        };
        assert!(fills(DataType::Int16, &[2, 1], b"abcd"));
        assert!(!fills(DataType::Int16, &[2, 1], b"abcde"));
        assert!(!fills(DataType::Int16, &[-1], b"abcd"));
        assert!(!fills(DataType::Fp64, &[i64::MAX], b""));
        assert!(fills(DataType::Bytes, &[0], b""));
        assert!(fills(DataType::Bytes, &[], b"\x01\0\0\0a"));
        assert!(!fills(DataType::Bytes, &[], b"\x02\0\0\0a"));
        assert!(!fills(DataType::Bytes, &[1], b"\x01\0\0\0ab"));
        assert!(!fills(DataType::Bytes, &[i64::MAX], b"\x01\0\0\0a"));
    }

    #[test]
    fn a_tensor_keeps_its_first_rows() {
        let kept = |datatype, shape: &[i64], data: &'static [u8], rows| {
            let (shape, data) = (Shape::from_slice(shape), Buffer::host(data));
            let mut tensor = Tensor { datatype, shape, data };
            tensor.truncate(rows);
            assert!(tensor.fills_its_shape());
            (tensor.shape.to_vec(), tensor.data.as_bytes().to_vec())
        };
        assert_eq!(kept(DataType::Int16, &[3, 1], b"aabbcc", 2), (vec![2, 1], b"aabb".to_vec()));
        assert_eq!(
            kept(DataType::Bytes, &[2], b"\x01\0\0\0a\0\0\0\0", 1),
            (vec![1], b"\x01\0\0\0a".to_vec())
        );
        assert_eq!(kept(DataType::Int8, &[2], b"ab", 5), (vec![2], b"ab".to_vec()), "it has no more");
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
