//! What io threads call for a connection.

use std::rc::Rc;
use std::sync::Arc;

use kushi_net::{Door, Guest, IoContext, Serving, Socket};

use crate::connection;
use crate::context::{Grpc, GrpcContext};
use crate::handover::HandoverDoor;

struct GrpcDoor(Arc<Grpc>);

impl Grpc {
    pub fn door(self: &Arc<Self>) -> Arc<dyn Door> {
        Arc::new(GrpcDoor(self.clone()))
    }

    /// For connections that other processes of this user have accepted.
    pub fn handover_door(self: &Arc<Self>) -> Arc<dyn Door> {
        Arc::new(HandoverDoor(self.clone()))
    }
}

impl Door for GrpcDoor {
    fn serve<'a>(&'a self, io: &'a Rc<IoContext>, socket: Socket, guest: &'a Guest) -> Serving<'a> {
        let context = GrpcContext::new(&self.0, io);
        Box::pin(connection::serve(context, socket, guest))
    }

    fn answers_when_full(&self) -> bool {
        false
    }
}
