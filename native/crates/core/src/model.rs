//! What a model takes and gives, and how the tensors of a request are bound to it.

mod bind;
mod buffer;
mod datatype;
mod declared;
mod spec;
pub(crate) mod tensor;

pub use bind::{Bound, InputData, InputDraft, Inputs, Wanted};
pub use buffer::Buffer;
pub use datatype::DataType;
pub use declared::{TensorInfo, check_declared};
pub use spec::{
    Batching, ConfigTexts, InstanceRate, Labels, MetricsSpec, ModelSpec, QueuePolicy, QueueSpec,
    ResourceDemand, Scheduling, TensorSpec, TimeoutAction,
};
pub use tensor::{Shape, Tensor, element_count};
