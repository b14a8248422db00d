//! One call with one message each way.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream};
use hyper::header::HeaderMap;
use hyper::{Request, Response, StatusCode};
use kushi_core::Error;

use super::fault;
use super::incoming::Incoming;
use super::line::{Line, Lines};
use super::server::Server;

/// What is sent without asking whether the server takes it.
const SHORT_BYTES: usize = 16 << 10;

pub(super) struct Reply {
    pub(super) headers: HeaderMap,
    pub(super) message: Bytes,
}

/// Why a call has no answer.
pub(super) enum ExchangeFailure {
    /// The server says so.
    Refused(Error),
    Lost(Error),
}

impl From<ExchangeFailure> for Error {
    fn from(failure: ExchangeFailure) -> Self {
        match failure {
            ExchangeFailure::Refused(error) | ExchangeFailure::Lost(error) => error,
        }
    }
}

/// A call that came to nothing: one that the server has not looked at may go out again.
pub(super) enum Attempt {
    Untouched(ExchangeFailure),
    Failed(ExchangeFailure),
}

impl Server {
    /// Sends a request once. Only one that the server says it has not looked at, or that never left, goes out again.
    pub(super) async fn ask(
        &self,
        method: &str,
        message: &[Bytes],
        headers: &HeaderMap,
        deadline: Option<Instant>,
    ) -> Result<Reply, ExchangeFailure> {
        let work = async |line: &Rc<Line>, request| self.once(line, request, message).await;
        self.attempt(&self.lines, method, headers, deadline, work).await
    }

    /// `work` is done once more where the server has not looked at the request.
    pub(super) async fn attempt<T>(
        &self,
        lines: &Lines,
        method: &str,
        headers: &HeaderMap,
        deadline: Option<Instant>,
        work: impl AsyncFn(&Rc<Line>, Request<()>) -> Result<T, Attempt>,
    ) -> Result<T, ExchangeFailure> {
        let mut is_again = false;
        loop {
            let line = lines.get(&self.address).await;
            let line = line.inspect_err(|_| self.inputs.forget()).map_err(ExchangeFailure::Lost)?;
            let request = self.request(method, headers, deadline).map_err(ExchangeFailure::Refused)?;
            match work(&line, request).await {
                Ok(done) => return Ok(done),
                Err(Attempt::Untouched(_)) if !is_again => is_again = true,
                // The server has heard how long this client waits, and may be the first to say that it is over.
                Err(_) if deadline.is_some_and(|deadline| deadline <= Instant::now()) => {
                    return Err(ExchangeFailure::Lost(Error::expired()));
                }
                Err(Attempt::Untouched(failure) | Attempt::Failed(failure)) => return Err(failure),
            }
        }
    }

    async fn once(&self, line: &Rc<Line>, request: Request<()>, message: &[Bytes]) -> Result<Reply, Attempt> {
        let ready = line.sender.clone().ready().await;
        let mut sender = ready.map_err(|error| self.gone(line, &error))?;
        let (response, outgoing) =
            sender.send_request(request, false).map_err(|error| self.gone(line, &error))?;
        let mut response = pin!(response);
        let mut sending = pin!(send(outgoing, message));
        let mut is_sent = false;
        // A server may answer before it has read everything.
        let response = poll_fn(|task| {
            // Where sending fails, the response tells why.
            is_sent = is_sent || sending.as_mut().poll(task).is_ready();
            response.as_mut().poll(task)
        });
        let response = response.await.map_err(|error| self.broken(line, &error))?;
        line.has_answered.set(true);
        self.read(response).await.map_err(Attempt::Failed)
    }

    async fn read(&self, response: Response<RecvStream>) -> Result<Reply, ExchangeFailure> {
        let (head, body) = response.into_parts();
        if head.status != StatusCode::OK {
            return Err(ExchangeFailure::Refused(fault::other_status(&self.address, head.status)));
        }
        if let Some(Err(error)) = fault::status(&head.headers) {
            return Err(ExchangeFailure::Refused(error));
        }
        let unread = |fault| ExchangeFailure::Lost(fault::unread(&self.address, &fault));
        let unreadable = |what| ExchangeFailure::Lost(fault::unreadable(&self.address, what));
        let mut incoming = Incoming::new(body, self.max_answer_bytes);
        let message = incoming.next().await.map_err(unread)?;
        if message.is_some() && incoming.next().await.map_err(unread)?.is_some() {
            return Err(unreadable("it has several messages"));
        }
        let trailers = incoming.trailers().await.map_err(unread)?;
        let status = fault::status(&trailers).or_else(|| fault::status(&head.headers));
        status.ok_or_else(|| unreadable("it has no status"))?.map_err(ExchangeFailure::Refused)?;
        let message = message.ok_or_else(|| unreadable("it has no message"))?;
        Ok(Reply { headers: head.headers, message })
    }

    /// Another server may be there from now on.
    fn forget(&self, line: &Rc<Line>) {
        self.lines.forget(line);
        self.streaming.forget(line);
        self.inputs.forget();
    }

    /// The connection took no call.
    pub(super) fn gone(&self, line: &Rc<Line>, error: &h2::Error) -> Attempt {
        self.forget(line);
        Attempt::Untouched(ExchangeFailure::Lost(fault::lost(&self.address, error, line.has_answered.get())))
    }

    pub(super) fn broken(&self, line: &Rc<Line>, error: &h2::Error) -> Attempt {
        if error.is_go_away() || error.is_io() {
            self.forget(line);
        }
        let failure = ExchangeFailure::Lost(fault::lost(&self.address, error, line.has_answered.get()));
        // A server that leaves names the last call that it answers, and those behind it hear of this.
        let is_untouched = error.is_remote()
            && match error.reason() {
                Some(Reason::NO_ERROR) => error.is_go_away(),
                reason => reason == Some(Reason::REFUSED_STREAM),
            };
        if is_untouched { Attempt::Untouched(failure) } else { Attempt::Failed(failure) }
    }
}

/// As fast as the server takes it.
pub(super) async fn send(mut stream: SendStream<Bytes>, message: &[Bytes]) -> Result<(), h2::Error> {
    for (place, piece) in message.iter().enumerate() {
        let mut rest = piece.clone();
        while rest.len() > SHORT_BYTES {
            stream.reserve_capacity(rest.len());
            let Some(room) = poll_fn(|task| stream.poll_capacity(task)).await else { return Ok(()) };
            stream.send_data(rest.split_to(room?.min(rest.len())), false)?;
        }
        let is_last = place + 1 == message.len();
        if is_last || !rest.is_empty() {
            stream.send_data(rest, is_last)?;
        }
    }
    Ok(())
}
