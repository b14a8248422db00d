//! An answer as it comes: the pieces of all prompts, each as an event.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use kushi_core::{Error, Mail, ModelSpec, Response};
use kushi_net::{Net, Owner, Reservation, Waiting};

use super::piece::Piece;
use super::shape::{Begun, Shape, Usage};
use crate::answer::HttpAnswer;
use crate::events::{EventSource, Events, event};
use crate::limits::LONG_ANSWER;
use crate::texts::failure;

/// A request says a moment late that its time has passed.
const LATE: Duration = Duration::from_millis(10);

pub(super) struct Flow {
    spec: Arc<ModelSpec>,
    /// `None`: it has ended.
    requests: Vec<Option<Waiting>>,
    /// What has been told of each.
    begun: Vec<Begun>,
    shape: Shape,
    usage: Usage,
    has_told: bool,
}

type Arrived = Result<(Mail, Option<Reservation>), Error>;

impl Flow {
    pub(super) fn new(spec: Arc<ModelSpec>, requests: Vec<Waiting>, shape: Shape) -> Self {
        let begun = requests.iter().map(|_| Begun::default()).collect();
        let requests = requests.into_iter().map(Some).collect();
        Self { spec, requests, begun, shape, usage: Usage::default(), has_told: false }
    }

    /// What comes next, and of which request.
    async fn arrival(&mut self) -> (usize, Arrived) {
        loop {
            let expires = self.requests.iter().flatten().filter_map(Waiting::expires).min();
            let requests = &mut self.requests;
            let any = poll_fn(|context| {
                for (at, request) in requests.iter_mut().enumerate() {
                    let Some(waiting) = request else { continue };
                    // what it waits with is made anew each time, and what has come is not lost by that
                    if let Poll::Ready(arrived) = pin!(waiting.next()).as_mut().poll(context) {
                        return Poll::Ready((at, arrived));
                    }
                }
                Poll::Pending
            });
            // nor what wakes it when the time of one has passed
            let Some(expires) = expires else { return any.await };
            let late = expires.max(Instant::now()) + LATE;
            if let Ok(arrived) = tokio::time::timeout_at(late.into(), any).await {
                return arrived;
            }
        }
    }

    async fn take(&mut self, at: usize, mail: Mail, events: &mut Events, net: &Net) -> Result<(), Error> {
        if let Some(response) = mail.response {
            let piece = self.read(response, net).await?;
            self.usage.add(at, &piece);
            self.shape.events(&mut events.text, at, &mut self.begun[at], &piece);
        }
        if let Some(end) = mail.end {
            self.requests[at] = None;
            end.result?;
        }
        if self.requests.iter().all(Option::is_none) {
            self.shape.last_events(&mut events.text, &self.usage);
            events.ended = true;
        }
        Ok(())
    }

    /// Aside, where a slow reader has let much come together.
    async fn read(&self, response: Response, net: &Net) -> Result<Piece, Error> {
        let bytes = response.byte_size();
        if bytes < LONG_ANSWER {
            return Piece::read(&self.spec, &response);
        }
        let (spec, owner) = (self.spec.clone(), Owner::model(&self.spec));
        Box::pin(net.pool.run(owner, bytes, move |_: &_| Piece::read(&spec, &response))).await?
    }
}

impl EventSource for Flow {
    async fn next(&mut self, net: &Net) -> Events {
        let (at, arrived) = self.arrival().await;
        let mut events = Events::default();
        let taken = match arrived {
            Ok((mail, reservation)) => {
                // others may have been written meanwhile
                let checked = net.budget.check_owed(reservation.as_ref().map_or(0, Reservation::bytes));
                events.reservation = reservation;
                match checked {
                    Ok(()) => self.take(at, mail, &mut events, net).await,
                    Err(error) => Err(error),
                }
            }
            Err(error) => Err(error),
        };
        if let Err(error) = taken {
            // nothing else of it is told
            self.requests.clear();
            let is_first = !self.has_told && events.text.is_empty();
            event(&mut events.text, |text| failure::write(text, &error));
            events.error = is_first.then_some(error);
            events.ended = true;
        }
        self.has_told |= !events.text.is_empty();
        events
    }

    fn has_more_now(&self) -> bool {
        self.requests.iter().flatten().any(|waiting| waiting.has_small_mail(LONG_ANSWER))
    }

    fn failure(&self, error: &Error) -> HttpAnswer {
        failure::answer(error)
    }

    fn fails_by_events(&self) -> bool {
        false
    }
}
