//! What all io threads share: limits, memory, certificates, and what has been received and not been answered.

use std::sync::Arc;

use kushi_core::{Complaints, Count, Drain, Error};

use crate::small_requests::SmallRequest;
use crate::{Budget, COUNTED_BYTES, Limits, Pool, Reservation, SmallRequests, Tls};

pub struct NetOptions {
    pub io_threads: usize,
    pub limits: Limits,
    /// What requests in flight hold.
    pub budget: Arc<Budget>,
    /// What doors have, to be looked at when its files change.
    pub tls: Vec<Arc<Tls>>,
    /// Lets the threads of doors go before the calling one, which works on large bodies.
    pub give_way: fn(),
    /// Done now and then, whatever the io threads are at.
    pub chores: Vec<Chore>,
}

/// A look after something, which takes no time.
pub type Chore = Arc<dyn Fn() + Send + Sync>;

pub struct Net {
    pub limits: Limits,
    /// What requests in flight hold.
    pub budget: Arc<Budget>,
    /// For what would keep an io thread from its connections.
    pub pool: Pool,
    pub(crate) tls: Vec<Arc<Tls>>,
    /// About what clients may cause again and again.
    pub complaints: Complaints,
    pub(crate) chores: Vec<Chore>,
    /// Requests received whole whose answers have not been written yet.
    answering: Count,
    /// Those of them that have still to be read aside before a runner can take them in.
    preparing: Count,
    /// Has begun when the server goes away.
    pub drain: Drain,
}

/// Held from the moment that a request has been received until its answer has been written.
pub struct Answering {
    net: Arc<Net>,
    /// The end of the server waits for it.
    counts: bool,
    preparing: bool,
    /// Of a large body or answer.
    pub reservation: Option<Reservation>,
    small: Option<SmallRequest>,
}

impl Net {
    pub fn new(options: &NetOptions) -> Self {
        Self {
            limits: options.limits.clone(),
            budget: options.budget.clone(),
            pool: Pool::new(options.io_threads.div_ceil(2), options.give_way),
            tls: options.tls.clone(),
            complaints: Complaints::default(),
            chores: options.chores.clone(),
            answering: Count::default(),
            preparing: Count::default(),
            drain: Drain::default(),
        }
    }

    pub fn begin_answer(self: &Arc<Self>) -> Answering {
        self.answering.begin();
        self.open_answer(true)
    }

    /// For what comes while the server ends already: clients that come again and again would keep it up.
    pub fn begin_late_answer(self: &Arc<Self>) -> Answering {
        self.open_answer(false)
    }

    fn open_answer(self: &Arc<Self>, counts: bool) -> Answering {
        Answering { net: self.clone(), counts, preparing: false, reservation: None, small: None }
    }

    /// For a request that takes a while to read: a drain that begins meanwhile lets it get in.
    pub fn begin_long_answer(self: &Arc<Self>) -> Answering {
        let mut answering = self.begin_answer();
        answering.prepare();
        answering
    }

    /// Requests whose answers have not been written yet.
    pub fn answering(&self) -> usize {
        self.answering.get()
    }

    /// Those of them that have still to be read, and came before the drain began.
    pub fn preparing(&self) -> usize {
        self.preparing.get()
    }
}

impl Answering {
    /// It takes a while to read the request. What comes after a drain has begun does not keep it waiting.
    pub fn prepare(&mut self) {
        self.preparing = self.preparing || self.net.drain.admit(&self.net.preparing);
    }

    /// The request has been taken in or refused.
    pub fn prepared(&mut self) {
        if std::mem::take(&mut self.preparing) {
            self.net.preparing.end(1);
            self.net.drain.something_ended();
        }
    }

    /// Counts a body of so many bytes, if there is room for it.
    pub fn cover(&mut self, bytes: usize) -> Result<(), Error> {
        if bytes < COUNTED_BYTES {
            return Ok(());
        }
        let reservation = self.reservation.get_or_insert_with(|| self.net.budget.open());
        reservation.cover(bytes)?;
        reservation.settle(bytes);
        Ok(())
    }

    /// The same where a connection may have many at a time: those with small messages count together. A request holds
    /// its message, and perhaps more, which may be known later.
    pub fn cover_one_of_many(
        &mut self,
        small: &SmallRequests,
        message_bytes: usize,
        held: usize,
    ) -> Result<(), Error> {
        if message_bytes >= COUNTED_BYTES {
            self.small = None;
            return self.cover(held);
        }
        match &mut self.small {
            Some(small) => small.hold(held),
            None => {
                self.small = Some(small.begin(held, &self.net.budget)?);
                Ok(())
            }
        }
    }

    /// Counts an answer in the place of its request. It is there, and is given in any case.
    pub fn owe_one_of_many(&mut self, small: &SmallRequests, bytes: usize) {
        if bytes >= COUNTED_BYTES {
            self.small = None;
            return self.owe_in_all(bytes);
        }
        match &mut self.small {
            Some(small) => small.owe(bytes),
            None => self.small = Some(small.owe(bytes, &self.net.budget)),
        }
    }

    /// Whether its connection has so many requests that even a small answer counts.
    pub fn is_one_of_many(&self) -> bool {
        self.small.as_ref().is_some_and(SmallRequest::is_counted)
    }

    /// For work that goes on, and holds memory, even if the answer is given up meanwhile.
    pub fn take_reservation(&mut self) -> Reservation {
        self.reservation.take().unwrap_or_else(|| self.net.budget.open())
    }

    /// Counts an answer of so many bytes, which stays until it has been written, in the place of what was counted
    /// before.
    pub fn owe_in_all(&mut self, bytes: usize) {
        if bytes >= COUNTED_BYTES || self.reservation.is_some() {
            self.reservation.get_or_insert_with(|| self.net.budget.open()).owe_in_all(bytes);
        }
    }

    /// Counts an answer of so many bytes beside what is counted already.
    pub fn owe(&mut self, bytes: usize) {
        self.reservation.get_or_insert_with(|| self.net.budget.open()).owe(bytes);
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.prepared();
        if self.counts {
            self.net.answering.end(1);
            self.net.drain.something_ended();
        }
    }
}
