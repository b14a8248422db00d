//! Many requests in one call, and any number of responses to each.
//!
//! Each request is a task. Those of models that give one response answer in the order in which they came, the others as
//! they are. What a client does not take holds no more than the window of each request.

use std::rc::Rc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use kushi_core::{Credit, Error, Mail, Response};
use kushi_dataplane::{DoorKind, Event, Trace};
use kushi_net::{Answering, COUNTED_BYTES, OnlyAnswer, Reservation};
use kushi_oip::infer_request::InferRequest;
use kushi_oip::wire;
use smallvec::{SmallVec, smallvec};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::answer::{self, Outlet, Stream};
use crate::closing::closing;
use crate::context::GrpcContext;
use crate::framing::{self, Message};
use crate::head::{Frame, Head};
use crate::infer::{self, CallKind, Preamble, SubmittedCall};
use crate::message::{Messages, Read};
use crate::status::{INTERNAL, Status};

/// Of one call: further ones are not read until some have ended.
const MOST_OPEN: usize = 512;

/// What of short responses that have come together is sent together.
const BURST_BYTES: usize = 64 << 10;
/// Longer ones leave alone.
const SHORT_BYTES: usize = 8 << 10;

/// What is sent to the client: messages that have come together, and behind them what ends the call, if anything does.
struct OutgoingMessages {
    messages: SmallVec<[Message; 1]>,
    end: Option<Status>,
}

pub(crate) async fn serve(
    messages: Messages<'_>,
    context: Rc<GrpcContext>,
    outlet: Outlet<'_>,
    head: Head,
) -> Result<(), h2::Error> {
    let _open = context.grpc.plane.traffic.stream(DoorKind::Grpc);
    let mut stream = outlet.open()?;
    let ended = converse(messages, &context, &mut stream, &head).await?;
    stream.end(&ended)
}

async fn converse(
    mut incoming: Messages<'_>,
    context: &Rc<GrpcContext>,
    stream: &mut Stream<'_>,
    head: &Head,
) -> Result<Status, h2::Error> {
    let (sender, mut outgoing) = mpsc::channel::<OutgoingMessages>(1);
    // Ended with the call.
    let mut requests = JoinSet::new();
    let mut before = None;
    let entered = context.io.connections.enter();
    let (mut is_open, mut is_closing) = (true, false);
    let mut read: Option<Read> = None;
    // Of one that may be read aside: those behind it must not overtake it on the way to their models.
    let mut beginning: Option<oneshot::Receiver<()>> = None;
    while is_open || read.is_some() || !requests.is_empty() {
        if beginning.is_none()
            && let Some((body, mut answering)) =
                read.take_if(|(body, _)| has_room(context, requests.len(), body, &head.frame))
        {
            // Where it has no room after all, it fails in its turn.
            let _ = answering.cover_one_of_many(
                &context.small_requests,
                body.len(),
                most_held(&body, &head.frame),
            );
            let (done, own) = oneshot::channel();
            let begun = (body.len() > infer::LONG_BYTES).then(|| {
                let (begun, begins) = oneshot::channel();
                beginning = Some(begins);
                begun
            });
            let request = Streamed {
                context: context.clone(),
                frame: Frame { arrived: Instant::now(), ..head.frame.clone() },
                fails_at_once: head.fails_at_once,
                trace: None,
                sender: sender.clone(),
                before: before.replace(own),
                done: Some(done),
                begun,
            };
            requests.spawn_local(request.run(body, answering));
        }
        incoming.has_open = !requests.is_empty();
        tokio::select! {
            biased;
            () = closing(&entered), if is_open => (is_open, is_closing) = (false, true),
            over = stream.over() => return over,
            () = has_ended(&mut beginning), if beginning.is_some() => beginning = None,
            Some(OutgoingMessages { messages, end }) = outgoing.recv() => {
                if !messages.is_empty() {
                    tokio::select! {
                        biased;
                        sent = stream.send_all(messages) => sent?,
                        never = incoming.owe_unread() => match never {},
                    }
                }
                if let Some(status) = end {
                    return Ok(status);
                }
            }
            Some(ended) = requests.join_next() => if ended.is_err() {
                return Ok(Status::new(INTERNAL, "a request was lost, see the log of the server"));
            },
            message = incoming.next(), if is_open && read.is_none() && requests.len() < MOST_OPEN => {
                match message {
                    Ok(Some(message)) => read = Some(message),
                    Ok(None) => is_open = false,
                    Err(status) => return Ok(status),
                }
            }
        }
    }
    Ok(if is_closing { answer::closed() } else { Status::ok() })
}

/// Once the other end has gone.
async fn has_ended(other: &mut Option<oneshot::Receiver<()>>) {
    if let Some(other) = other {
        let _ = other.await;
    }
}

/// Whether a request begins while so many are open. Where there is no room for it, it waits until one of these has ended.
fn has_room(context: &GrpcContext, open: usize, body: &Bytes, frame: &Frame) -> bool {
    open == 0
        || body.len() >= COUNTED_BYTES
        || context.small_requests.have_room(most_held(body, frame), &context.io.net.budget)
}

/// By a request with a small message, but for an odd one.
fn most_held(body: &Bytes, frame: &Frame) -> usize {
    3 * body.len() + frame.forwarded_bytes
}

/// One request of a call.
struct Streamed {
    context: Rc<GrpcContext>,
    frame: Frame,
    fails_at_once: bool,
    trace: Option<Trace>,
    sender: mpsc::Sender<OutgoingMessages>,
    /// Ends when the request before has been answered.
    before: Option<oneshot::Receiver<()>>,
    done: Option<oneshot::Sender<()>>,
    /// Ends when it has its place in a queue, or gets none.
    begun: Option<oneshot::Sender<()>>,
}

impl Streamed {
    async fn run(mut self, body: Bytes, mut answering: Answering) {
        let submitted = infer::submit(
            &self.context,
            &body,
            &mut answering,
            self.frame.clone(),
            CallKind::Stream,
            &mut self.trace,
        )
        .await;
        drop(self.begun.take());
        let id_of = |body: &Bytes| InferRequest::read(body).map(|message| message.id.to_owned());
        let failed_id = submitted.is_err().then(|| id_of(&body).unwrap_or_default());
        drop(body);
        answering.prepared();
        let (result, id) = match submitted {
            Ok(mut asked) => {
                let result = if asked.spec.decoupled {
                    self.pass_turn();
                    self.responses(&mut asked).await
                } else {
                    self.only_response(&mut asked).await
                };
                (result, asked.id)
            }
            Err(error) => {
                self.wait_for_turn().await;
                (Err(error), failed_id.unwrap_or_default())
            }
        };
        if let Err(error) = result {
            self.send(self.with_failure(SmallVec::new(), &error, &id)).await;
        }
        self.mark(Event::GrpcSendEnd);
    }

    /// How the request fails, behind what it has answered.
    fn with_failure(
        &self,
        mut messages: SmallVec<[Message; 1]>,
        error: &Error,
        id: &str,
    ) -> OutgoingMessages {
        if let Some(trace) = &self.trace {
            trace.fail(error);
        }
        let end = self.fails_at_once.then(|| Status::from(error.clone()));
        if end.is_none() {
            messages.push(failure(error, id));
        }
        OutgoingMessages { messages, end }
    }

    fn mark(&self, event: Event) {
        if let Some(trace) = &self.trace {
            trace.mark(event, Instant::now());
        }
    }

    /// Whoever comes behind waits for those before this one, and not for it.
    fn pass_turn(&mut self) {
        let (before, done) = (self.before.take(), self.done.take());
        tokio::task::spawn_local(async move {
            if let Some(before) = before {
                let _ = before.await;
            }
            drop(done);
        });
    }

    async fn wait_for_turn(&mut self) {
        if let Some(before) = self.before.take() {
            let _ = before.await;
        }
    }

    async fn only_response(&mut self, asked: &mut SubmittedCall) -> Result<(), Error> {
        let answered = asked.only_answer().await;
        self.mark(Event::ResponseComplete);
        self.wait_for_turn().await;
        self.mark(Event::GrpcSendStart);
        let OnlyAnswer { response, end: _end, reservation: _reservation } = answered?;
        let message = asked.written(&self.context, response, Some(true)).await?;
        self.send(OutgoingMessages { messages: smallvec![streamed(message)], end: None }).await;
        Ok(())
    }

    async fn responses(&mut self, asked: &mut SubmittedCall) -> Result<(), Error> {
        let mut has_begun = false;
        loop {
            let mut burst = Burst::default();
            let mut mail = asked.waiting.next().await?;
            if !std::mem::replace(&mut has_begun, true) {
                self.mark(Event::GrpcSendStart);
            }
            let ended = loop {
                match burst.take(&self.context, asked, mail).await {
                    Ok(None) => {}
                    Ok(Some(ended)) => break Some(ended),
                    Err(error) => break Some(Err(error)),
                }
                // A failure leaves with what is in front of it.
                let longest = if burst.bytes < BURST_BYTES { SHORT_BYTES } else { 1 };
                if !asked.waiting.has_short_mail(longest) {
                    break None;
                }
                mail = match asked.waiting.next().await {
                    Ok(mail) => mail,
                    Err(error) => break Some(Err(error)),
                };
            };
            let Burst { messages, held, .. } = burst;
            let outgoing = match &ended {
                Some(Err(error)) => self.with_failure(messages, error, &asked.id),
                _ => OutgoingMessages { messages, end: None },
            };
            if !outgoing.messages.is_empty() || outgoing.end.is_some() {
                self.send(outgoing).await;
            }
            // The model has waited for this room.
            drop(held);
            if ended.is_some() {
                return Ok(());
            }
        }
    }

    async fn send(&self, outgoing: OutgoingMessages) {
        // Nobody hears where the call has ended.
        let _ = self.sender.send(outgoing).await;
    }
}

type HeldRoom = (Option<Credit>, Option<Reservation>);

/// Responses that have come together.
#[derive(Default)]
struct Burst {
    messages: SmallVec<[Message; 1]>,
    bytes: usize,
    /// Their room in the window of the request.
    held: SmallVec<[HeldRoom; 1]>,
}

impl Burst {
    /// How the request ended, if it has.
    async fn take(
        &mut self,
        context: &GrpcContext,
        asked: &SubmittedCall,
        (mail, reservation): (Mail, Option<Reservation>),
    ) -> Result<Option<Result<(), Error>>, Error> {
        let Mail { response, end, credit, .. } = mail;
        self.held.push((credit, reservation));
        let ended = end.map(|end| end.result);
        let has_ended_well = matches!(ended, Some(Ok(())));
        let message = match response {
            Some(response) => Some(asked.written(context, response, Some(has_ended_well)).await?),
            None if has_ended_well && asked.tells_end => {
                let head = Preamble { spec: &asked.spec, id: &asked.id, is_final: Some(true) };
                Some(infer::write(head, Response::default(), |_| false))
            }
            None => None,
        };
        if let Some(message) = message {
            self.bytes += message.iter().map(Bytes::len).sum::<usize>();
            self.messages.push(streamed(message));
        }
        Ok(ended)
    }
}

/// A response as a message of a stream.
fn streamed(response: Message) -> Message {
    let mut head = BytesMut::new();
    wire::put_length(&mut head, 2, response.iter().map(Bytes::len).sum());
    let mut pieces = Message::with_capacity(response.len() + 1);
    pieces.push(head.freeze());
    pieces.extend(response);
    framing::framed(&pieces)
}

/// An error as a message, with the id of its request.
fn failure(error: &Error, id: &str) -> Message {
    let mut bytes = BytesMut::new();
    wire::put_text(&mut bytes, 1, &error.message);
    wire::put_length(&mut bytes, 2, wire::text_length(3, id));
    wire::put_text(&mut bytes, 3, id);
    framing::framed(&[bytes.freeze()])
}
