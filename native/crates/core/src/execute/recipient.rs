//! Who waits for the answers to requests.

use crate::{Lease, Reply, Ticket};

/// A task of an io thread, an event loop, a thread that waits, a model that asks another one: they differ in how they are
/// woken, and in who drives the model for them.
pub trait Recipient {
    /// What is kept for the answers to a request that is yet to be made.
    type Place;
    /// What is kept while they are waited for.
    type Waiting;

    /// A place for the answers to one request, and the way to it.
    fn open(&self) -> (Self::Place, Reply);

    /// The request has its place in a queue. A lease is to be driven, or handed on.
    fn queued(&self, place: Self::Place, ticket: Ticket, lease: Option<Lease>) -> Self::Waiting;
}
