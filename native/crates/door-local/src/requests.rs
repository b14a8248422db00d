//! The requests of one connection that have not been answered.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use kushi_core::{Alarm, Credit, End, Error, Mail, ModelSpec, OnlyResponse, Response};
use kushi_dataplane::Counted;
use kushi_net::{Answering, Waiting};

pub(super) const MOST_REQUESTS: usize = 65_536;

#[derive(Default)]
pub(super) struct Requests {
    by_id: HashMap<u64, InFlight>,
    /// When to look at which.
    alarms: BTreeSet<(Instant, u64)>,
    next_number: u64,
}

struct InFlight {
    /// Ascending in the order of arrival.
    number: u64,
    waiting: Waiting,
    spec: Arc<ModelSpec>,
    expects: Expects,
    alarm: Alarm,
    answering: Answering,
}

/// What a client takes of a request.
#[expect(clippy::large_enum_variant, reason = "the large one is the usual one")]
pub(super) enum Expects {
    Only(OnlyResponse<Response>),
    /// Any number of answers, as one of the open streams.
    Parts(#[expect(dead_code, reason = "kept to be dropped")] Counted),
}

impl Expects {
    pub(super) fn only() -> Self {
        Self::Only(OnlyResponse::default())
    }
}

/// What a mail says about a request.
pub(super) enum News {
    Ended(Ended),
    /// An answer of a stream, with its room.
    Part(Arc<ModelSpec>, Response, Option<Credit>),
    /// Behind the last answer of a stream, which may have come with it.
    Over(Option<(Arc<ModelSpec>, Response)>, Result<(), Error>),
}

/// A request that is to be answered now.
pub(super) struct Ended {
    pub spec: Arc<ModelSpec>,
    pub result: Result<(Response, End), Error>,
    pub answering: Answering,
}

impl Requests {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn contains(&self, id: u64) -> bool {
        self.by_id.contains_key(&id)
    }

    pub(super) fn add(
        &mut self,
        id: u64,
        waiting: Waiting,
        spec: Arc<ModelSpec>,
        answering: Answering,
        expects: Expects,
    ) {
        let alarm = waiting.ticket().map(Alarm::of).unwrap_or_default();
        self.alarms.extend(alarm.when().map(|when| (when, id)));
        let number = self.next_number;
        self.next_number += 1;
        let in_flight = InFlight { number, waiting, spec, expects, alarm, answering };
        self.by_id.insert(id, in_flight);
    }

    /// `None`: nothing yet.
    pub(super) fn take_mail(&mut self, id: u64, mail: Mail) -> Option<News> {
        let Mail { response, end, credit, .. } = mail;
        let in_flight = self.by_id.get_mut(&id)?;
        let response = match &mut in_flight.expects {
            Expects::Parts(_) => response,
            Expects::Only(only) => {
                response.map(|response| only.put(response));
                None
            }
        };
        let Some(mut end) = end else {
            return response.map(|response| News::Part(in_flight.spec.clone(), response, credit));
        };
        let mut in_flight = self.remove(id)?;
        in_flight.waiting.ended();
        let InFlight { spec, expects, answering, .. } = in_flight;
        Some(match expects {
            Expects::Parts(_) => News::Over(response.map(|response| (spec, response)), end.result),
            Expects::Only(only) => {
                let result = only.close(&spec.name, &mut end).map(|response| (response, end));
                News::Ended(Ended { spec, result, answering })
            }
        })
    }

    /// Nobody waits for it any more; its end will come.
    pub(super) fn cancel(&self, id: u64) {
        if let Some(ticket) = self.by_id.get(&id).and_then(|in_flight| in_flight.waiting.ticket()) {
            ticket.cancel();
        }
    }

    pub(super) fn next_alarm(&self) -> Option<Instant> {
        self.alarms.first().map(|&(when, _)| when)
    }

    /// The next request whose time has come and whose end need not be waited for.
    pub(super) fn next_expired(&mut self, now: Instant) -> Option<(u64, Ended)> {
        while let Some(&(_, id)) = self.alarms.first().filter(|&&(when, _)| when <= now) {
            self.alarms.pop_first();
            let Some(in_flight) = self.by_id.get_mut(&id) else { continue };
            let Some(ticket) = in_flight.waiting.ticket() else { continue };
            if in_flight.alarm.ring(ticket) {
                let InFlight { spec, answering, .. } = self.remove(id)?;
                return Some((id, Ended { spec, result: Err(Error::expired()), answering }));
            }
            self.alarms.extend(in_flight.alarm.when().map(|when| (when, id)));
        }
        None
    }

    fn remove(&mut self, id: u64) -> Option<InFlight> {
        let in_flight = self.by_id.remove(&id)?;
        if let Some(when) = in_flight.alarm.when() {
            self.alarms.remove(&(when, id));
        }
        Some(in_flight)
    }
}

impl Drop for Requests {
    /// In the order of the queues: leaving one from its front is cheap.
    fn drop(&mut self) {
        let mut left: Vec<InFlight> = self.by_id.drain().map(|(_, in_flight)| in_flight).collect();
        left.sort_unstable_by_key(|in_flight| in_flight.number);
    }
}
