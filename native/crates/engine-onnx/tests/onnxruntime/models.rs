//! Writes small ONNX files: just enough of the protobuf wire format, field by field as in `onnx.proto`.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use kushi_core::DataType;

/// A protobuf message under construction.
#[derive(Clone, Default)]
pub struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    #[must_use]
    pub fn int(mut self, field: u64, value: i64) -> Self {
        self.varint(field << 3);
        self.varint(value as u64);
        self
    }

    #[must_use]
    pub fn bytes(mut self, field: u64, value: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    #[must_use]
    pub fn text(self, field: u64, value: &str) -> Self {
        self.bytes(field, value.as_bytes())
    }

    #[must_use]
    pub fn message(self, field: u64, value: &Self) -> Self {
        self.bytes(field, &value.0)
    }
}

/// A `GraphProto`.
#[derive(Default)]
pub struct Graph(Message);

impl Graph {
    #[must_use]
    pub fn node(self, operator: &str, inputs: &[&str], outputs: &[&str]) -> Self {
        let node = inputs.iter().fold(Message::default(), |node, input| node.text(1, input));
        let node = outputs.iter().fold(node, |node, output| node.text(2, output));
        // Named after its first output, because names are unique.
        Self(self.0.message(1, &node.text(3, outputs[0]).text(4, operator)))
    }

    /// A node of the operators that the library of the example has.
    #[must_use]
    pub fn custom_node(self, operator: &str, input: &str, output: &str) -> Self {
        let node = Message::default().text(1, input).text(2, output).text(3, output);
        Self(self.0.message(1, &node.text(4, operator).text(7, "kushi.test")))
    }

    /// `output` is `state` after as many rounds through `body` as `trips` says.
    #[must_use]
    pub fn loop_node(self, trips: &str, state: &str, output: &str, body: &Self) -> Self {
        const GRAPH: i64 = 5;
        let body =
            Message::default().text(1, "body").message(6, &body.0.clone().text(2, "body")).int(20, GRAPH);
        let node = [trips, "", state].iter().fold(Message::default(), |node, input| node.text(1, input));
        let node = node.text(2, output).text(3, output).text(4, "Loop").message(5, &body);
        Self(self.0.message(1, &node))
    }

    #[must_use]
    pub fn input(self, name: &str, tensor: &Message) -> Self {
        Self(self.0.message(11, &Message::default().text(1, name).message(2, tensor)))
    }

    #[must_use]
    pub fn output(self, name: &str, tensor: &Message) -> Self {
        Self(self.0.message(12, &Message::default().text(1, name).message(2, tensor)))
    }

    /// A constant, or the default of the input of the same name.
    #[must_use]
    pub fn initializer(self, name: &str, element: i64, dims: &[i64], data: &[u8]) -> Self {
        Self(self.0.message(5, &initializer(name, element, dims).bytes(9, data)))
    }

    /// A constant whose bytes are the file `location` beside the model.
    #[must_use]
    pub fn external_initializer(self, name: &str, element: i64, dims: &[i64], location: &str) -> Self {
        let entry = Message::default().text(1, "location").text(2, location);
        Self(self.0.message(5, &initializer(name, element, dims).message(13, &entry).int(14, 1)))
    }

    /// The `ModelProto` around this graph.
    pub fn encode(self) -> Vec<u8> {
        let opset = Message::default().text(1, "").int(2, 17);
        let custom = Message::default().text(1, "kushi.test").int(2, 1);
        let model = Message::default().int(1, 8).message(7, &self.0.text(2, "graph"));
        model.message(8, &opset).message(8, &custom).0
    }

    pub fn save(self, directory: &Directory) -> PathBuf {
        let path = directory.join("model.onnx");
        std::fs::write(&path, self.encode()).expect("the model is written");
        path
    }
}

fn initializer(name: &str, element: i64, dims: &[i64]) -> Message {
    dims.iter().fold(Message::default(), |tensor, &dim| tensor.int(1, dim)).int(2, element).text(8, name)
}

/// A `TypeProto` of a tensor; -1 is a symbolic dimension.
pub fn tensor(element: i64, dims: &[i64]) -> Message {
    let shape = dims.iter().enumerate().fold(Message::default(), |shape, (axis, &dim)| {
        let dim = match dim {
            -1 => Message::default().text(2, &format!("axis{axis}")),
            dim => Message::default().int(1, dim),
        };
        shape.message(1, &dim)
    });
    Message::default().message(1, &Message::default().int(1, element).message(2, &shape))
}

/// A `TypeProto` of a tensor that does not say how many dimensions it has.
pub fn tensor_of_any_rank(element: i64) -> Message {
    Message::default().message(1, &Message::default().int(1, element))
}

/// A `TypeProto` of a sequence.
pub fn sequence(element: &Message) -> Message {
    Message::default().message(4, &Message::default().message(1, element))
}

/// The number of an element type in `TensorProto.DataType`.
pub fn element(datatype: DataType) -> i64 {
    match datatype {
        DataType::Fp32 => 1,
        DataType::Uint8 => 2,
        DataType::Int8 => 3,
        DataType::Uint16 => 4,
        DataType::Int16 => 5,
        DataType::Int32 => 6,
        DataType::Int64 => 7,
        DataType::Bytes => 8,
        DataType::Bool => 9,
        DataType::Fp16 => 10,
        DataType::Fp64 => 11,
        DataType::Uint32 => 12,
        DataType::Uint64 => 13,
        DataType::Bf16 => 16,
    }
}

/// A directory that goes when the test is done with it.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("onnx-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory for the model");
        Self(path)
    }
}

impl Deref for Directory {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What cannot be removed is left to `cargo clean`.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
