//! What all the others stand on: errors, texts, clocks, counts and locks.

mod asked_version;
mod cause_text;
mod clock;
mod complaints;
pub(crate) mod drain;
mod epoch;
mod error;
mod free_slots;
pub(crate) mod held_back;
mod inbox;
mod os_text;
mod shortened;
mod state;
pub(crate) mod sync;

pub use asked_version::AskedVersion;
pub use cause_text::cause_text;
pub use clock::{Clock, SystemClock};
pub use complaints::Complaints;
pub use drain::{Count, Drain};
pub use epoch::epoch_ms;
pub use error::{Error, ErrorKind, FailureReason};
pub use free_slots::FreeSlots;
pub use inbox::{Inbox, InboxFull};
pub use os_text::os_text;
pub use shortened::shortened;
pub use state::State;
