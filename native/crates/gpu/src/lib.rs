//! How busy NVIDIA's GPUs are, and what memory, power and energy they use, as the driver's library NVML says it.
//!
//! A crate of its own, because a call of the driver is `unsafe`, which the data plane forbids.
//!
//! A call of a driver may take long, and one of a broken driver may never return. So each [`GpuMeter`] has a thread that
//! calls NVML, and no other thread does. Whoever writes the metrics takes what that thread has read last.

mod gpus;
mod meter;
mod nvml;
mod visible;

pub use gpus::Reading;
pub use meter::{GpuMeter, GpuOptions};
