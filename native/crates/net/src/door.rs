//! What a door is to the io threads: whoever serves the connections of a listener.

use std::pin::Pin;
use std::rc::Rc;

use crate::{Guest, IoContext, Socket};

/// Until the connection ends.
pub type Serving<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

pub trait Door: Send + Sync {
    /// Serves one connection on the io thread that it was handed to.
    fn serve<'a>(&'a self, io: &'a Rc<IoContext>, socket: Socket, guest: &'a Guest) -> Serving<'a>;

    /// Whether it serves connections over the bound as well, to tell them that there is no place.
    fn answers_when_full(&self) -> bool;
}
