//! Answers that come as events, for as long as somebody takes them.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use kushi_core::Error;
use kushi_dataplane::DoorKind;
use kushi_net::{Activity, Net, Reservation, Stage};
use tokio::sync::mpsc;

use crate::HttpContext;
use crate::answer::{self, HttpAnswer};
use crate::context::Http;

/// Events that come together leave together, unless they are longer.
const JOINED_BYTES: usize = 16 << 10;

/// What becomes events.
pub(crate) trait EventSource: 'static {
    /// Waits for the next of them, and never fails: an error is one of them.
    async fn next(&mut self, net: &Net) -> Events;

    /// Whether the next ones are there, and hold little.
    fn has_more_now(&self) -> bool;

    /// The answer where there is nothing but this error.
    fn failure(&self, error: &Error) -> HttpAnswer;

    /// Whether that answer is events as well, and only its status and headers count.
    fn fails_by_events(&self) -> bool;
}

/// Some of them.
#[derive(Default)]
pub(crate) struct Events {
    pub text: Vec<u8>,
    /// Counts a large text.
    pub reservation: Option<Reservation>,
    /// That of the first event.
    pub error: Option<Error>,
    pub ended: bool,
}

impl Events {
    fn takes_more(&self) -> bool {
        !self.ended && self.reservation.is_none() && self.text.len() < JOINED_BYTES
    }

    fn join(&mut self, next: Self) {
        self.text.extend_from_slice(&next.text);
        self.reservation = next.reservation;
        self.ended = next.ended;
    }

    fn into_bytes(self, net: &Net) -> Bytes {
        answer::counted(self.text, self.reservation, &net.budget)
    }
}

/// What `write` writes, as one event.
pub(crate) fn event(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(b"data: ");
    write(out);
    out.extend_from_slice(b"\n\n");
}

/// Waits for the first event, which has the status.
pub(crate) async fn stream(
    mut source: impl EventSource,
    context: &HttpContext,
    activity: &Rc<Activity>,
) -> HttpAnswer {
    let net = &context.io.net;
    let mut first = source.next(net).await;
    while first.text.is_empty() && !first.ended {
        first = source.next(net).await;
    }
    if let Some(error) = first.error.as_ref().filter(|_| !source.fails_by_events()) {
        return source.failure(error);
    }
    let head = first.error.as_ref().map_or_else(|| answer::empty(200), |error| source.failure(error));
    let (sender, more) = mpsc::channel(1);
    if !first.ended {
        let (http, net) = (context.http.clone(), net.clone());
        tokio::task::spawn_local(follow(source, sender, http, net, activity.clone()));
    }
    answer::events(head, first.into_bytes(net), more)
}

/// Sends what comes until all has come, or nobody takes it any more. Until then the connection waits for the server,
/// not for its client.
async fn follow(
    mut source: impl EventSource,
    sender: mpsc::Sender<Bytes>,
    http: Arc<Http>,
    net: Arc<Net>,
    activity: Rc<Activity>,
) {
    let _open = http.plane.traffic.stream(DoorKind::Http);
    activity.enter(Stage::Work);
    let mut ended = false;
    while !ended {
        let mut events = tokio::select! {
            events = source.next(&net) => events,
            () = sender.closed() => return,
        };
        // What has come meanwhile leaves with it.
        while events.takes_more() && source.has_more_now() {
            events.join(source.next(&net).await);
        }
        ended = events.ended;
        if !events.text.is_empty() && sender.send(events.into_bytes(&net)).await.is_err() {
            return;
        }
    }
    activity.enter(Stage::Idle);
}
