//! What is the same for every way in: which model version is asked, and what becomes of the request.
//!
//! [`Registry`] knows the versions. An [`Inference`] finds one, hands it a request, and goes on to the next one
//! where a reload took its place. [`Alarm`] says when to look whether a request has run out of time, and
//! [`OnlyResponse`] holds a request to one response. In a [`OneCall`] a thread waits for it. Nothing here knows a
//! transport.

#![forbid(unsafe_code)]

mod alarm;
mod inference;
mod one_call;
mod only_response;
mod registry;

pub use alarm::Alarm;
pub use inference::{Inference, Submitted};
pub use one_call::OneCall;
pub use only_response::OnlyResponse;
pub use registry::{Registry, VersionRow};
