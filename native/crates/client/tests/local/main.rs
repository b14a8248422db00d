//! The client of the local door against a scripted server.

mod calls;
mod endings;
mod heartbeat;
mod peer;
mod slots;
mod streams;
