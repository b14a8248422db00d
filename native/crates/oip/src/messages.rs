//! The messages, with the field numbers of the Open Inference Protocol's `grpc_service.proto`.
//!
//! Fields numbered from 1001 on are ours: other programs skip them, and no gRPC client sets them.

use std::collections::HashMap;

use bytes::Bytes;
use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub struct InferParameter {
    #[prost(oneof = "infer_parameter::Choice", tags = "1, 2, 3, 4, 5")]
    pub choice: Option<infer_parameter::Choice>,
}

pub mod infer_parameter {
    use super::Oneof;

    #[derive(Clone, PartialEq, Oneof)]
    pub enum Choice {
        #[prost(bool, tag = "1")]
        Bool(bool),
        #[prost(int64, tag = "2")]
        Int64(i64),
        #[prost(string, tag = "3")]
        String(String),
        #[prost(double, tag = "4")]
        Double(f64),
        #[prost(uint64, tag = "5")]
        Uint64(u64),
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct InferTensorContents {
    #[prost(bool, repeated, tag = "1")]
    pub bool_contents: Vec<bool>,
    #[prost(int32, repeated, tag = "2")]
    pub int_contents: Vec<i32>,
    #[prost(int64, repeated, tag = "3")]
    pub int64_contents: Vec<i64>,
    #[prost(uint32, repeated, tag = "4")]
    pub uint_contents: Vec<u32>,
    #[prost(uint64, repeated, tag = "5")]
    pub uint64_contents: Vec<u64>,
    #[prost(float, repeated, tag = "6")]
    pub fp32_contents: Vec<f32>,
    #[prost(double, repeated, tag = "7")]
    pub fp64_contents: Vec<f64>,
    #[prost(bytes = "bytes", repeated, tag = "8")]
    pub bytes_contents: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ModelInferRequest {
    #[prost(string, tag = "1")]
    pub model_name: String,
    /// Empty: the latest.
    #[prost(string, tag = "2")]
    pub model_version: String,
    #[prost(string, tag = "3")]
    pub id: String,
    #[prost(map = "string, message", tag = "4")]
    pub parameters: HashMap<String, InferParameter>,
    #[prost(message, repeated, tag = "5")]
    pub inputs: Vec<InferInputTensor>,
    #[prost(message, repeated, tag = "6")]
    pub outputs: Vec<InferRequestedOutputTensor>,
    /// The bytes of every input that has no slot, in the order of the inputs.
    #[prost(bytes = "bytes", repeated, tag = "7")]
    pub raw_input_contents: Vec<Bytes>,
    /// How long the client will wait from now; 0 is for ever.
    #[prost(uint64, tag = "1001")]
    pub timeout_us: u64,
    /// The trace that the caller is part of, as the headers of W3C say it; empty: none.
    #[prost(string, tag = "1002")]
    pub trace_parent: String,
    #[prost(string, tag = "1003")]
    pub trace_state: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct InferInputTensor {
    /// On the local door empty for an input given by its position in the model.
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub datatype: String,
    #[prost(int64, repeated, tag = "3")]
    pub shape: Vec<i64>,
    #[prost(map = "string, message", tag = "4")]
    pub parameters: HashMap<String, InferParameter>,
    #[prost(message, optional, tag = "5")]
    pub contents: Option<InferTensorContents>,
    #[prost(message, optional, tag = "1001")]
    pub slot: Option<SlotRange>,
}

#[derive(Clone, PartialEq, Message)]
pub struct InferRequestedOutputTensor {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(map = "string, message", tag = "2")]
    pub parameters: HashMap<String, InferParameter>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ModelInferResponse {
    #[prost(string, tag = "1")]
    pub model_name: String,
    #[prost(string, tag = "2")]
    pub model_version: String,
    #[prost(string, tag = "3")]
    pub id: String,
    #[prost(map = "string, message", tag = "4")]
    pub parameters: HashMap<String, InferParameter>,
    #[prost(message, repeated, tag = "5")]
    pub outputs: Vec<InferOutputTensor>,
    /// The bytes of every output that has no slot, in the order of the outputs.
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub raw_output_contents: Vec<Bytes>,
    #[prost(message, optional, tag = "1001")]
    pub timings: Option<Timings>,
}

#[derive(Clone, PartialEq, Message)]
pub struct InferOutputTensor {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub datatype: String,
    #[prost(int64, repeated, tag = "3")]
    pub shape: Vec<i64>,
    #[prost(map = "string, message", tag = "4")]
    pub parameters: HashMap<String, InferParameter>,
    #[prost(message, optional, tag = "5")]
    pub contents: Option<InferTensorContents>,
    #[prost(message, optional, tag = "1001")]
    pub slot: Option<SlotRange>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Timings {
    #[prost(uint64, tag = "1")]
    pub queue_ns: u64,
    #[prost(uint64, tag = "2")]
    pub compute_input_ns: u64,
    #[prost(uint64, tag = "3")]
    pub compute_infer_ns: u64,
    #[prost(uint64, tag = "4")]
    pub compute_output_ns: u64,
}

/// Bytes inside a slot that the sender has announced.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct SlotRange {
    #[prost(uint64, tag = "1")]
    pub slot: u64,
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    #[prost(uint64, tag = "3")]
    pub length: u64,
}

/// The version of the local door's protocol: both sides must say the same in their first frame.
pub const PROTOCOL: u32 = 3;

/// The first frame of each side.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Hello {
    #[prost(uint32, tag = "1")]
    pub protocol: u32,
    /// Of the program, for messages about a mismatch.
    #[prost(string, tag = "2")]
    pub version: String,
}

/// Announces a slot; the frame carries its file descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Slot {
    #[prost(uint64, tag = "1")]
    pub slot: u64,
    #[prost(uint64, tag = "2")]
    pub length: u64,
}

/// The receiver has no more use for these answers' slots.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Release {
    #[prost(uint64, repeated, tag = "1")]
    pub slots: Vec<u64>,
}

/// Anything but inference: a verb of the data plane.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Call {
    /// The name of its gRPC method.
    #[prost(string, tag = "1")]
    pub verb: String,
    /// A JSON object of the fields of that method's request; empty: none.
    #[prost(bytes = "bytes", tag = "2")]
    pub arguments: Bytes,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct CallAnswer {
    /// 200, or the status that HTTP has for the failure: it tells kinds of one name apart.
    #[prost(uint32, tag = "1")]
    pub status: u32,
    /// JSON, the text of the metrics, or nothing where nothing is to be said.
    #[prost(bytes = "bytes", tag = "2")]
    pub body: Bytes,
    /// Of a failure.
    #[prost(string, tag = "3")]
    pub kind: String,
}

/// Why a request failed: the name of an error kind, and its text.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Failure {
    #[prost(string, tag = "1")]
    pub kind: String,
    #[prost(string, tag = "2")]
    pub message: String,
}
