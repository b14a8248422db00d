//! What io threads call for a connection.

use std::rc::Rc;
use std::sync::Arc;

use kushi_dataplane::DoorKind;
use kushi_net::{Door, Guest, IoContext, Serving, Socket};

use crate::connection;
use crate::context::{Http, HttpContext, Purpose};

struct HttpDoor {
    http: Arc<Http>,
    purpose: Purpose,
    tls: bool,
}

impl Http {
    /// For all requests of the protocol.
    pub fn door(self: &Arc<Self>) -> Arc<dyn Door> {
        Arc::new(HttpDoor { http: self.clone(), purpose: Purpose::Inference, tls: true })
    }

    /// For the metrics alone, plain unless `tls` asks for what the other door speaks.
    pub fn metrics_door(self: &Arc<Self>, tls: bool) -> Arc<dyn Door> {
        Arc::new(HttpDoor { http: self.clone(), purpose: Purpose::Metrics, tls })
    }
}

impl Door for HttpDoor {
    fn serve<'a>(&'a self, io: &'a Rc<IoContext>, socket: Socket, guest: &'a Guest) -> Serving<'a> {
        let context = HttpContext { http: self.http.clone(), io: io.clone() };
        let kind = match self.purpose {
            Purpose::Inference => DoorKind::Http,
            Purpose::Metrics => DoorKind::Metrics,
        };
        Box::pin(async move {
            let _open = self.http.plane.traffic.connection(kind);
            connection::serve(&context, socket, self.purpose, self.tls, guest).await;
        })
    }

    fn answers_when_full(&self) -> bool {
        true
    }
}
