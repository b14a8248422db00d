//! Io threads and what connections need of them, whatever is spoken on these: listeners, limits, memory, TLS.
//!
//! Each io thread is a current-thread runtime with connections of its own; a request is read, often run, and answered
//! on the thread that its connection lives on. A [`Door`] serves the connections of a listener.
#![forbid(unsafe_code)]

mod activity;
mod answered;
mod body_memory;
mod budget;
mod coding;
mod connections;
mod departures;
mod door;
mod handshakes;
mod io;
mod limits;
mod listen;
mod net;
mod pending;
mod pool;
mod recipients;
mod small_requests;
mod tls;
mod waiting_limit;

pub use activity::{Activity, Span, Stage};
pub use answered::answered;
pub use body_memory::BodyMemory;
pub use budget::{Budget, COUNTED_BYTES, Reservation};
pub use coding::Coding;
pub use connections::{Connections, Entered};
pub use door::{Door, Serving};
pub use io::{IoContext, IoThreads};
pub use limits::Limits;
pub use listen::{Entrance, Guest, Listener, Socket};
pub use net::{Answering, Chore, Net, NetOptions};
pub use pending::{OnlyAnswer, Pending, Sink, Waiting};
pub use pool::{Begun, Owner, Pool};
pub use recipients::ToSink;
pub use small_requests::{SmallRequest, SmallRequests};
pub use tls::{Inside, Tls, TlsFiles};
