//! The requests of one io thread that wait for answers.
//!
//! Lives on its thread alone. A key carries the place and the number of its use, so that mail for a
//! request that nobody waits for any more finds nobody. A place passes mail on to whoever waits: one
//! task for one request, or a [`Sink`] for many.
//!
//! Mail for a task counts in the budget from its arrival: large responses, and small ones where many have not been
//! taken yet. A request has no more of it than its window allows: taking mail gives its credit back.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Instant;

use kushi_core::{Alarm, End, Error, Mail, OnlyResponse, Response, Ticket};

use crate::budget::{Budget, COUNTED_BYTES, Reservation};

pub struct Pending {
    places: RefCell<Places>,
    budget: Arc<Budget>,
}

/// Mail, and its share of the budget, if it has one.
type CountedMail = (Mail, Option<Reservation>);

#[derive(Default)]
struct Places {
    all: Vec<PendingPlace>,
    free: Vec<u32>,
}

#[derive(Default)]
struct PendingPlace {
    uses: u32,
    mail: VecDeque<CountedMail>,
    /// What the mail holds, and what was taken since there was none.
    bytes: usize,
    /// Even small mail counts.
    counts_all: bool,
    waker: Option<Waker>,
    /// Takes the mail in place of a task.
    sink: Option<(Rc<Sink>, u64)>,
}

/// Waits for the mail of one request; dropping it gives the request up.
pub struct Waiting {
    pending: Rc<Pending>,
    pub key: u64,
    ticket: Option<Ticket>,
    /// For a task, which hears by it that the time of its request has passed.
    alarm: Alarm,
}

/// The one response to a request, with its share of the budget, and how the request ended.
pub struct OnlyAnswer {
    pub response: Response,
    pub end: End,
    pub reservation: Option<Reservation>,
}

/// Takes the mail of many requests for one task, which is woken once for all that has come.
#[derive(Default)]
pub struct Sink {
    mail: RefCell<Vec<(u64, Mail)>>,
    waker: RefCell<Option<Waker>>,
}

impl Sink {
    /// Swaps everything that has come into `into`, which must be empty; each with the name that its
    /// request was opened under.
    pub fn take(&self, into: &mut Vec<(u64, Mail)>) {
        std::mem::swap(&mut *self.mail.borrow_mut(), into);
    }

    /// A task keeps its waker for life: the first one is enough.
    pub fn remember(&self, waker: &Waker) {
        self.waker.borrow_mut().get_or_insert_with(|| waker.clone());
    }

    pub fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    fn put(&self, name: u64, mail: Mail) {
        let mut waiting = self.mail.borrow_mut();
        waiting.push((name, mail));
        if waiting.len() == 1 {
            self.wake();
        }
    }
}

impl Pending {
    pub fn new(budget: Arc<Budget>) -> Self {
        Self { places: RefCell::default(), budget }
    }

    pub fn open(self: &Rc<Self>) -> Waiting {
        self.open_with(None)
    }

    /// The mail goes to `sink`, under `name`.
    pub fn open_to(self: &Rc<Self>, sink: &Rc<Sink>, name: u64) -> Waiting {
        self.open_with(Some((sink.clone(), name)))
    }

    fn open_with(self: &Rc<Self>, sink: Option<(Rc<Sink>, u64)>) -> Waiting {
        let mut places = self.places.borrow_mut();
        let index = places.free.pop().unwrap_or_else(|| {
            places.all.push(PendingPlace::default());
            places.all.len() as u32 - 1
        });
        let place = &mut places.all[index as usize];
        place.sink = sink;
        let key = u64::from(place.uses) << 32 | u64::from(index);
        Waiting { pending: self.clone(), key, ticket: None, alarm: Alarm::default() }
    }

    pub fn deliver(&self, mail: Mail) {
        let mut places = self.places.borrow_mut();
        let (index, uses) = (mail.key as u32 as usize, (mail.key >> 32) as u32);
        let Some(place) = places.all.get_mut(index).filter(|place| place.uses == uses) else {
            return;
        };
        if let Some((sink, name)) = &place.sink {
            sink.put(*name, mail);
            return;
        }
        place.put(mail, &self.budget);
        if let Some(waker) = place.waker.take() {
            waker.wake();
        }
    }
}

impl PendingPlace {
    fn put(&mut self, mail: Mail, budget: &Arc<Budget>) {
        let bytes = mail.response.as_ref().map_or(0, Response::byte_size);
        self.bytes += bytes;
        let reservation = (self.bytes >= COUNTED_BYTES || self.counts_all).then(|| {
            let mut reservation = budget.open();
            reservation.owe(bytes);
            reservation
        });
        self.mail.push_back((mail, reservation));
    }

    fn take(&mut self) -> Option<CountedMail> {
        let mail = self.mail.pop_front();
        if self.mail.is_empty() {
            self.bytes = 0;
        }
        mail
    }
}

impl Waiting {
    /// From now on the request is cancelled when nobody waits for it any more.
    pub fn hold(&mut self, ticket: Ticket) {
        self.alarm = Alarm::of(&ticket);
        self.ticket = Some(ticket);
    }

    /// For one of many requests of a connection: even small answers count until they are taken.
    pub fn count_all(&self) {
        self.pending.places.borrow_mut().all[self.key as u32 as usize].counts_all = true;
    }

    pub fn ticket(&self) -> Option<&Ticket> {
        self.ticket.as_ref()
    }

    /// The end has come: there is nothing left to cancel.
    pub fn ended(&mut self) {
        self.ticket = None;
    }

    /// Whether the next mail is there, and holds so little that it does not count in the budget.
    pub fn has_small_mail(&self, bytes: usize) -> bool {
        self.next_fits(|size, reservation| reservation.is_none() && size < bytes)
    }

    /// Whether the next mail is there and holds less than so many bytes, whether they count or not.
    pub fn has_short_mail(&self, bytes: usize) -> bool {
        self.next_fits(|size, _| size < bytes)
    }

    fn next_fits(&self, fits: impl FnOnce(usize, Option<&Reservation>) -> bool) -> bool {
        let places = self.pending.places.borrow();
        places.all[self.key as u32 as usize].mail.front().is_some_and(|(mail, reservation)| {
            fits(mail.response.as_ref().map_or(0, Response::byte_size), reservation.as_ref())
        })
    }

    /// When the time of its request has passed, and [`Self::next`] says so.
    pub fn expires(&self) -> Option<Instant> {
        self.alarm.when()
    }

    /// The response of a request that takes one.
    pub async fn only_answer(&mut self, model: &str) -> Result<OnlyAnswer, Error> {
        let (only, mut end) = self.all().await?;
        let (response, reservation) = only.close(model, &mut end)?;
        Ok(OnlyAnswer { response, end, reservation })
    }

    /// The same with another text about any other number of them.
    pub async fn only_answer_or(&mut self, text: impl FnOnce(usize) -> String) -> Result<OnlyAnswer, Error> {
        let (only, mut end) = self.all().await?;
        let (response, reservation) = only.close_or(&mut end, text)?;
        Ok(OnlyAnswer { response, end, reservation })
    }

    async fn all(&mut self) -> Result<(OnlyResponse<(Response, Option<Reservation>)>, End), Error> {
        let mut only = OnlyResponse::default();
        loop {
            let (mail, reservation) = self.next().await?;
            if let Some(response) = mail.response {
                only.put((response, reservation));
            }
            if let Some(end) = mail.end {
                return Ok((only, end));
            }
        }
    }

    /// What comes next of the request, or that its time has passed.
    pub async fn next(&mut self) -> Result<CountedMail, Error> {
        while let Some(when) = self.alarm.when() {
            if let Ok(mail) = tokio::time::timeout_at(when.into(), self.next_mail()).await {
                return Ok(mail);
            }
            let Some(ticket) = &self.ticket else { break };
            if self.alarm.ring(ticket) {
                return Err(Error::expired());
            }
        }
        Ok(self.next_mail().await)
    }

    async fn next_mail(&mut self) -> CountedMail {
        poll_fn(|context| {
            let taken = self.take_or_wait(context.waker());
            // Behind the borrow: who gives up the last ticket of a runner may deliver mail.
            if taken.as_ref().is_some_and(|(mail, _)| mail.end.is_some()) {
                self.ended();
            }
            taken.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    fn take_or_wait(&self, waker: &Waker) -> Option<CountedMail> {
        let mut places = self.pending.places.borrow_mut();
        let place = &mut places.all[self.key as u32 as usize];
        let taken = place.take();
        if taken.is_none() {
            place.waker = Some(waker.clone());
        }
        taken
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let left = {
            let mut places = self.pending.places.borrow_mut();
            let index = self.key as u32;
            let place = &mut places.all[index as usize];
            place.uses = place.uses.wrapping_add(1);
            place.waker = None;
            // Usually empty, and then its memory serves the next request.
            let left: Vec<CountedMail> = place.mail.drain(..).collect();
            (place.bytes, place.counts_all) = (0, false);
            let sink = place.sink.take();
            places.free.push(index);
            (left, sink)
        };
        // Before its answers make room for others.
        if let Some(ticket) = self.ticket.take() {
            ticket.cancel();
        }
        drop(left);
    }
}
