//! The client of the local door: frames over a Unix stream, large tensors in shared memory beside it.
//!
//! A [`Connection`] is the protocol and knows no thread; an event loop drives one of its own. Callers that
//! wait in threads of theirs use [`Streams`], a pool of connections. What has any number of answers goes by the thread of
//! a [`RemoteClient`](crate::RemoteClient).

mod activity;
mod connect;
mod connection;
mod door;
mod heartbeat;
mod outgoing;
mod server;
mod slots;
mod streams;
mod texts;

pub use connection::{Connection, Ended, Outcome, Part, Unsent};
pub use door::Door;
pub(crate) use server::Server;
pub use slots::{Arena, Placed, SLOT_BYTES};
pub use streams::{Interrupted, Streams};
pub use texts::client_closed;
