//! What an ONNX file names, other files and operators, read without a runtime.
//!
//! It is read as protobuf reads it, and no name that a runtime would find is missed: messages that stand several times,
//! fields in any order, entries whose key or value stands twice. What is no ONNX file has no names. Only the heads of
//! fields are looked at, so that gigabytes of weights cost nothing.
#![forbid(unsafe_code)]

mod wire;

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read, Seek};

use wire::{Field, Reader, unreadable};

/// Beyond what protobuf reads, so that no runtime reads deeper.
const MOST_DEPTH: usize = 500;
/// No name of a file is longer; of one that is, so much is told.
const MOST_NAME_BYTES: u64 = 1 << 16;
/// Of a message that protobuf reads. What is larger, as a file that was only begun, need not be looked through.
const MOST_BYTES: u64 = i32::MAX as u64;

/// What a file names. The texts are as they are written, whatever stands there.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// From which it would take weights: paths, mostly.
    pub external_files: BTreeSet<Vec<u8>>,
    /// The types of its operators, those of branches and functions too.
    pub operators: BTreeSet<Vec<u8>>,
}

/// Fails where the system does.
pub fn names(model: impl Read + Seek) -> io::Result<Names> {
    let mut found = Names::default();
    let (mut reader, length) = Reader::new(model)?;
    if length > MOST_BYTES {
        return Ok(found);
    }
    match message(&mut reader, Kind::Model, length, 0, &mut found) {
        // What cannot be read to its end is read by no runtime.
        Err(error) if error.kind() != ErrorKind::InvalidData => Err(error),
        _ => Ok(found),
    }
}

/// The messages on the way to a tensor.
#[derive(Clone, Copy)]
enum Kind {
    Model,
    Training,
    Function,
    Graph,
    Node,
    Attribute,
    Sparse,
    Tensor,
}

impl Kind {
    /// What a field of this message holds, where tensors may be in it.
    fn within(self, number: u32) -> Option<Self> {
        Some(match (self, number) {
            (Self::Model, 7) | (Self::Training, 1 | 2) | (Self::Attribute, 6 | 11) => Self::Graph,
            (Self::Model, 20) => Self::Training,
            (Self::Model, 25) => Self::Function,
            (Self::Graph, 1) | (Self::Function, 7) => Self::Node,
            (Self::Graph, 5) | (Self::Attribute, 5 | 10) | (Self::Sparse, 1 | 2) => Self::Tensor,
            (Self::Graph, 15) | (Self::Attribute, 22 | 23) => Self::Sparse,
            (Self::Node, 5) | (Self::Function, 11) => Self::Attribute,
            _ => return None,
        })
    }
}

fn message<R: Read + Seek>(
    reader: &mut Reader<R>,
    kind: Kind,
    end: u64,
    depth: usize,
    found: &mut Names,
) -> io::Result<()> {
    if depth > MOST_DEPTH {
        return Err(unreadable());
    }
    while let Some(Field { number, length }) = reader.field(end)? {
        let Some(length) = length else { continue };
        let inner_end = reader.position() + length;
        match kind.within(number) {
            Some(inner) => message(reader, inner, inner_end, depth + 1, found)?,
            None => match (kind, number) {
                (Kind::Tensor, EXTERNAL_DATA) => entry(reader, inner_end, found)?,
                (Kind::Node, OPERATOR) => {
                    found.operators.insert(reader.take(length, MOST_NAME_BYTES)?);
                }
                _ => reader.skip(length)?,
            },
        }
    }
    Ok(())
}

const EXTERNAL_DATA: u32 = 13;
const OPERATOR: u32 = 4;

/// A key and a value: of the location of the file, or of something else.
fn entry<R: Read + Seek>(reader: &mut Reader<R>, end: u64, found: &mut Names) -> io::Result<()> {
    let (mut is_location, mut values) = (false, Vec::new());
    while let Some(Field { number, length }) = reader.field(end)? {
        let Some(length) = length else { continue };
        match number {
            1 => is_location |= reader.take(length, MOST_NAME_BYTES)? == b"location",
            2 => values.push(reader.take(length, MOST_NAME_BYTES)?),
            _ => reader.skip(length)?,
        }
    }
    if is_location {
        found.external_files.extend(values);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;

    fn varint(mut value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while value > 0x7f {
            bytes.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    }

    fn put(number: u64, content: &[u8]) -> Vec<u8> {
        [varint(number << 3 | 2), varint(content.len() as u64), content.to_vec()].concat()
    }

    /// A tensor with its weights in a file of that name; the value of the entry first where `turned`.
    fn tensor(name: &str, turned: bool) -> Vec<u8> {
        let (key, value) = (put(1, b"location"), put(2, name.as_bytes()));
        let offset = [put(1, b"offset"), put(2, b"4096")].concat();
        let location = if turned { [value, key].concat() } else { [key, value].concat() };
        // the type of its elements, a dimension, where its data are
        [vec![0x10, 1, 0x08, 3, 0x70, 1], put(13, &offset), put(13, &location)].concat()
    }

    fn files(model: &[u8]) -> Vec<String> {
        let found = names(Cursor::new(model)).expect("it is read");
        found.external_files.into_iter().map(|name| String::from_utf8(name).expect("text")).collect()
    }

    #[test]
    fn finds_them_wherever_a_tensor_can_be() {
        let in_node = |attribute: Vec<u8>| put(1, &put(5, &attribute));
        let branch = put(6, &put(5, &tensor("branch", false)));
        let graph = [
            put(5, &tensor("initializer", false)),
            put(15, &put(1, &tensor("sparse values", false))),
            put(15, &put(2, &tensor("sparse indices", true))),
            in_node(put(5, &tensor("attribute", false))),
            in_node(put(10, &tensor("one of many", true))),
            in_node(put(11, &in_node(branch))),
            in_node(put(22, &put(1, &tensor("sparse attribute", false)))),
        ]
        .concat();
        let function = put(7, &put(5, &put(5, &tensor("function", false))));
        let training = put(1, &put(5, &tensor("training", false)));
        let model = [vec![0x08, 8], put(7, &graph), put(25, &function), put(20, &training)].concat();
        let expected = [
            "attribute",
            "branch",
            "function",
            "initializer",
            "one of many",
            "sparse attribute",
            "sparse indices",
            "sparse values",
            "training",
        ];
        assert_eq!(files(&model), expected);
    }

    #[test]
    fn what_stands_twice_is_read_twice() {
        let first = put(7, &put(5, &tensor("first", false)));
        let second = put(7, &put(5, &tensor("second", false)));
        assert_eq!(files(&[first, second].concat()), ["first", "second"]);
        let twice = [put(1, b"other"), put(2, b"hidden"), put(1, b"location"), put(2, b"last")].concat();
        assert_eq!(files(&put(7, &put(5, &put(13, &twice)))), ["hidden", "last"]);
    }

    #[test]
    fn fields_of_every_form_are_passed_over() {
        let group = [vec![0xa3, 0x06, 0x08, 1, 0xab, 0x06, 0xac, 0x06], vec![0xa4, 0x06]].concat();
        let fixed = [vec![0xa1, 0x06], vec![0; 8], vec![0xa5, 0x06], vec![0; 4]].concat();
        let model = [group, fixed, put(7, &put(5, &tensor("behind", false)))].concat();
        assert_eq!(files(&model), ["behind"]);
        // a length of more bytes than it needs
        let padded = [vec![0x3a, 0x80 | put(5, &tensor("padded", false)).len() as u8, 0x80, 0x00]].concat();
        assert_eq!(files(&[padded, put(5, &tensor("padded", false))].concat()), ["padded"]);
    }

    #[test]
    fn a_file_that_is_no_model_has_none() {
        assert_eq!(files(b""), Vec::<String>::new());
        assert_eq!(files(b"<net/>"), Vec::<String>::new());
    }

    #[test]
    fn what_protobuf_reads_no_further_is_not_looked_through() {
        let behind = put(7, &put(5, &tensor("behind", false)));
        assert_eq!(files(&[put(7, b""), vec![0, 0], behind.clone()].concat()), Vec::<String>::new());
        assert_eq!(files(&[vec![2, 0], behind].concat()), Vec::<String>::new());
        assert_eq!(names(Long).expect("it is read"), Names::default());
    }

    /// Takes days to read.
    struct Long;

    impl Read for Long {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            into.fill(8);
            Ok(into.len())
        }
    }

    impl Seek for Long {
        fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
            Ok(if to == io::SeekFrom::Start(0) { 0 } else { 1 << 44 })
        }
    }

    #[test]
    fn bits_that_protobuf_loses_hide_nothing() {
        let wide = |number: u8, content: &[u8]| {
            let tag = [number << 3 | 0x82, 0x80, 0x80, 0x80, 0x10];
            [&tag[..], &varint(content.len() as u64), content].concat()
        };
        let tensor = tensor("wide", false);
        assert_eq!(files(&wide(7, &put(5, &tensor))), ["wide"]);
        assert_eq!(files(&put(7, &wide(5, &tensor))), ["wide"]);
        let location = [wide(1, b"location"), wide(2, b"wider")].concat();
        assert_eq!(files(&put(7, &put(5, &wide(13, &location)))), ["wider"]);
    }

    #[test]
    fn operators_are_found_in_branches_and_functions() {
        let node = |name: &[u8], attribute: &[u8]| [put(4, name), put(5, attribute)].concat();
        let branch = put(6, &put(1, &node(b"LSTM", b"")));
        let model = [put(7, &put(1, &node(b"If", &branch))), put(25, &put(7, &node(b"GRU", b"")))].concat();
        let found = names(Cursor::new(model)).expect("it is read").operators;
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            [b"GRU".to_vec(), b"If".to_vec(), b"LSTM".to_vec()]
        );
    }

    #[test]
    fn graphs_in_graphs_end() {
        let mut graph = put(5, &tensor("deep", false));
        for _ in 0..2000 {
            graph = put(1, &put(5, &put(6, &graph)));
        }
        assert_eq!(files(&put(7, &graph)), Vec::<String>::new());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            names(Cursor::new(bytes)).expect("it is read");
        }
    }
}
