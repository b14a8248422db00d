//! The Open Inference Protocol on the wire: its JSON, its protobuf messages, and the frames in which
//! they travel between our own processes on one host. Shared by the doors and the client; knows neither.
//! Rules about who may ask are applied here; what is asked beside inference has a crate of its own, `verbs`.
#![forbid(unsafe_code)]

mod category;
mod forwarding;
mod frame;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod infer_request;
pub mod json;
mod leading_integer;
mod messages;
mod parameter;
mod restrictions;
pub mod tensor_json;
pub mod typed_contents;
pub mod wire;

pub use category::Category;
pub use forwarding::Forwarding;
pub use frame::{
    Frame, FrameError, HEADER_BYTES, Kind, MAX_BODY_BYTES, Reader, write_frame, write_header, write_message,
};
pub use leading_integer::leading_integer;
pub use messages::{
    Call, CallAnswer, Failure, Hello, InferInputTensor, InferOutputTensor, InferParameter,
    InferRequestedOutputTensor, InferTensorContents, ModelInferRequest, ModelInferResponse, PROTOCOL,
    Release, Slot, SlotRange, Timings, infer_parameter,
};
pub use parameter::{put_entry, put_parameter};
pub use restrictions::{Restricted, Restriction, Restrictions};
