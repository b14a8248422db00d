//! Memory that two processes share, and the way file descriptors travel between them.
//!
//! A sender makes a [`Slot`], lends it from a [`SlotPool`], writes a tensor into it and sends its
//! descriptor once; the receiver holds a [`View`] and from then on hears of ranges only. Both may
//! write at any time: what one writes while the other reads makes bytes that mean nothing, never a
//! fault. So whoever checks bytes and then relies on the check copies them first.
//!
//! [`Regions`] are memory that clients made for themselves, by rules of their own: read and written
//! through a descriptor, never mapped; or on a GPU, by CUDA's driver.

mod cuda;
mod descriptor;
mod memory;
mod pool;
mod region;
mod regions;
mod slot;
mod view;

pub use cuda::{CudaHandle, CudaRegistration, HANDLE_BYTES, check_gpus, has_gpus, knows_gpus};
pub use descriptor::{Peer, Received, peer, receive, send};
pub use memory::{Memory, Registered};
pub use pool::{LentSlot, PoolLimits, SlotPool};
pub use region::{RegionError, RegionFault, Registration};
pub use regions::{RegionRange, Regions};
pub use slot::Slot;
pub use view::{View, ViewError};
