//! The protocol's data types and OpenVINO's element types.

use kushi_core::DataType;

pub(crate) const STRING: u32 = 23;

pub(crate) fn to_element(datatype: DataType) -> u32 {
    match datatype {
        DataType::Bool => 1,
        DataType::Bf16 => 2,
        DataType::Fp16 => 3,
        DataType::Fp32 => 4,
        DataType::Fp64 => 5,
        DataType::Int8 => 7,
        DataType::Int16 => 8,
        DataType::Int32 => 9,
        DataType::Int64 => 10,
        DataType::Uint8 => 16,
        DataType::Uint16 => 17,
        DataType::Uint32 => 18,
        DataType::Uint64 => 19,
        DataType::Bytes => STRING,
    }
}

/// `None` for a type that the protocol does not know.
pub(crate) fn from_element(element: u32) -> Option<DataType> {
    Some(match element {
        1 => DataType::Bool,
        2 => DataType::Bf16,
        3 => DataType::Fp16,
        4 => DataType::Fp32,
        5 => DataType::Fp64,
        7 => DataType::Int8,
        8 => DataType::Int16,
        9 => DataType::Int32,
        10 => DataType::Int64,
        16 => DataType::Uint8,
        17 => DataType::Uint16,
        18 => DataType::Uint32,
        19 => DataType::Uint64,
        STRING => DataType::Bytes,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_datatype_has_an_element_type_of_its_own() {
        for element in 0..32 {
            if let Some(datatype) = from_element(element) {
                assert_eq!(to_element(datatype), element);
            }
        }
        assert_eq!((0..32).filter_map(from_element).count(), 14);
    }
}
