//! Who runs batches, and where: engines and their slots, leases, and the runner of a model version.

mod afterwards;
mod alarm;
mod attendance;
mod engine;
mod gate;
mod handover;
mod lease;
mod rates;
mod readiness;
mod recipient;
mod runner;
mod runs;
mod slot_token;
mod texts;
mod threads;
mod ticket;
mod trial;
mod warm_up;
mod watch;

pub use afterwards::{Afterwards, FollowUp};
pub use alarm::Alarm;
pub use attendance::{Attendance, Attendee, Told};
pub use engine::{Capability, Engine, Slot};
pub use gate::{Gate, Placement};
pub use lease::{Drivers, Lease, Step};
pub use rates::{RateLimiter, ResourceCount};
pub use readiness::{OnReady, Readiness, ask_each};
pub use recipient::Recipient;
pub use runner::{Admission, Occupancy, Runner, RunnerOptions};
pub use slot_token::SlotToken;
pub use texts::{TextAnswer, TextCounts, TextFacts, TextPiece, Texts, Times, Writing};
pub use threads::{lower_priority, stay_on};
pub use ticket::Ticket;
pub use trial::{TrialInputs, best_time, rehearse};
pub use warm_up::WarmUpSample;
pub use watch::{Look, Watched, Watcher, WatchingThread};
