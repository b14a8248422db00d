//! Requests that are passed on to a server over HTTP/1.1, and its answers, unread.
//!
//! hyper frames both; somebody else waits for the socket, as an event loop does, and says when to go on.
//! What always holds: a body is framed by what is really sent of it, never by what was announced; a
//! connection can be used again only behind a whole request and a whole answer; what a server sends makes
//! nobody wait without end, and takes no more memory than the limits below.

mod connection;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod headers;
mod pieces;
mod request;
mod socket;
mod whole;

pub use self::connection::{Connection, Failure, Head, Interest};
pub use self::request::{Destination, Refused, Request};
pub use self::socket::connect;
pub use self::whole::Ordinary;
