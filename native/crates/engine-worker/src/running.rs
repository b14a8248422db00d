//! A batch that a worker has, and what the calls inherit that are made for it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Instant;

use kushi_core::{Batch, Context, Error, Response, SlotToken};

/// What children inherit.
#[derive(Default)]
pub(crate) struct Parent {
    pub(crate) context: Context,
    pub(crate) deadline: Option<Instant>,
    pub(crate) priority: u32,
    /// Nobody waits for it, so nobody waits for them.
    pub(crate) is_abandoned: bool,
}

/// A batch that the worker has.
pub(crate) struct Running {
    pub(crate) batch: Batch,
    /// The requests that were sent, by their places in the batch.
    pub(crate) places: Vec<usize>,
    /// `None` once the model can take the next batch.
    pub(crate) token: Option<SlotToken>,
    pub(crate) begun: Instant,
    /// Responses that have found no room yet, in the order in which they came.
    pub(crate) held: VecDeque<HeldResponse>,
    /// Responses to each request that were taken since its worker has last heard of that.
    pub(crate) taken: HashMap<usize, Taken>,
    /// Requests that end behind what is held.
    pub(crate) ends: Vec<(usize, Result<(), Error>)>,
    /// Whether the supervisor hears of requests that nobody waits for: it has made calls, or the model answers later.
    pub(crate) is_watched: bool,
    /// Requests that were ended because nobody waits for them, until the model has ended them, too.
    pub(crate) given_up: HashSet<usize>,
}

pub(crate) struct HeldResponse {
    /// The number of its request.
    pub(crate) position: usize,
    pub(crate) response: Response,
    /// As its worker has counted them.
    pub(crate) bytes: usize,
}

#[derive(Default)]
pub(crate) struct Taken {
    pub(crate) responses: u32,
    pub(crate) bytes: usize,
}

impl Running {
    /// Nobody waits for those of its requests that the model has not ended. Where it has ended all, it goes on as it
    /// likes.
    pub(crate) fn is_abandoned(&self) -> bool {
        let mut open = self.places.iter().filter(|&&place| self.batch.request(place).is_some()).peekable();
        let has_some = open.peek().is_some() || !self.given_up.is_empty();
        has_some && open.all(|&place| self.batch.is_abandoned(place))
    }

    /// Whether nobody waits for one of its requests that has not ended.
    pub(crate) fn has_abandoned(&self) -> bool {
        let is_open = |place: usize| self.batch.request(place).is_some();
        self.places.iter().any(|&place| is_open(place) && self.batch.is_abandoned(place))
    }

    /// Whether the model has done all that it owes.
    pub(crate) fn is_over(&self) -> bool {
        self.token.is_none() && self.given_up.is_empty() && !self.batch.is_open()
    }

    /// Ends the requests that nobody waits for, behind the execution of the model, which goes on as it likes: what they
    /// hold is free, and nothing waits for them.
    pub(crate) fn give_up_abandoned(&mut self) {
        if self.token.is_some() {
            return;
        }
        let position = |place| self.places.iter().position(|&it| it == place);
        let ended: Vec<usize> = self.batch.give_up_abandoned().into_iter().filter_map(position).collect();
        // Others the model has ended already.
        let is_owed = |position: &usize| !self.ends.iter().any(|(it, _)| it == position);
        self.given_up.extend(ended.into_iter().filter(is_owed));
    }
}
