//! What an engine has taken out of the runner's queue, and has not run yet: no more than keeps its batches full, so that
//! what else waits does so in the queue, under its bounds, timeouts and priorities.

use std::collections::VecDeque;
use std::sync::Arc;

use kushi_core::SlotToken;

use super::job::Job;
use super::model::Text;
use super::pool::{BULK_TURN, Budget, Waiting, choose};
use super::row::Row;

/// So many batches of requests of a few texts, beside one for each instance.
const AHEAD: usize = 8;
/// Of requests of many texts there may be so many, and so many bytes in them and their answers, but two in any case.
const MOST_BULK: usize = 64;
const MOST_BULK_BYTES: usize = 64 << 20;
/// Texts and bytes that are made tokens in one go: others wait meanwhile.
const TEXTS_AT_ONCE: usize = 16;
const BYTES_AT_ONCE: usize = 64 << 10;
const MOST_ROWS_OF_A_BATCH: usize = 256;

/// What a thread does next.
pub(super) enum Work {
    Tokenise(Arc<Job>, Vec<(usize, Text)>),
    Run(Vec<Row>),
}

impl Work {
    pub(super) fn jobs(&self) -> Vec<Arc<Job>> {
        match self {
            Self::Tokenise(job, _) => vec![job.clone()],
            Self::Run(rows) => rows.iter().map(|row| row.job.clone()).collect(),
        }
    }
}

/// Of requests of one kind that have not ended.
#[derive(Default)]
struct Owed {
    requests: usize,
    weight: usize,
}

/// Requests whose texts are not all tokens yet.
struct Arrived {
    job: Arc<Job>,
    texts: Vec<Text>,
    /// How many of them are.
    made: usize,
}

#[derive(Default)]
pub(super) struct Room {
    batch_tokens: usize,
    /// Of requests of a few texts.
    most_tokens: usize,
    arrived: VecDeque<Arrived>,
    /// In the order in which they came.
    rows: Vec<Row>,
    few: Owed,
    many: Owed,
    turn: u64,
    text_turn: u64,
    /// What was done last were tokens of a request of many texts.
    was_at_bulk: bool,
    /// Slots that come back when there is room.
    held: Vec<SlotToken>,
    /// To be dropped under no lock.
    gone: Vec<Arrived>,
    /// Nothing comes in any more.
    pub(super) stopping: bool,
    /// Threads end when there is nothing to do.
    pub(super) closed: bool,
}

/// What is to be dropped under no lock.
#[must_use]
pub(super) struct Gone {
    _arrived: Vec<Arrived>,
    _slots: Vec<SlotToken>,
}

impl Room {
    /// `longest`: tokens of a text.
    pub(super) fn new(batch_tokens: usize, longest: usize, instances: usize) -> Self {
        let batch_tokens = batch_tokens.max(1);
        let most_tokens = batch_tokens.max(longest + 1).saturating_mul(AHEAD + instances);
        Self { batch_tokens, most_tokens, ..Self::default() }
    }

    pub(super) fn enter(&mut self, job: Arc<Job>, texts: Vec<Text>) {
        let owed = if job.is_bulk { &mut self.many } else { &mut self.few };
        owed.requests += 1;
        owed.weight += job.weight;
        self.arrived.push_back(Arrived { job, texts, made: 0 });
    }

    pub(super) fn add(&mut self, rows: Vec<Row>) {
        self.rows.extend(rows);
    }

    /// Keeps the slot until there is room, or gives it back.
    pub(super) fn hold(&mut self, slot: SlotToken) -> Option<SlotToken> {
        if self.stopping || self.has_room() {
            return Some(slot);
        }
        self.held.push(slot);
        None
    }

    /// A request has ended.
    pub(super) fn leave(&mut self, job: &Job) -> Gone {
        let owed = if job.is_bulk { &mut self.many } else { &mut self.few };
        owed.requests -= 1;
        owed.weight -= job.weight;
        let slots = if self.has_room() { std::mem::take(&mut self.held) } else { Vec::new() };
        Gone { _arrived: Vec::new(), _slots: slots }
    }

    fn has_room(&self) -> bool {
        let has_much = self.many.requests >= MOST_BULK || self.many.weight >= MOST_BULK_BYTES;
        self.few.weight < self.most_tokens && (self.many.requests < 2 || !has_much)
    }

    pub(super) fn has_work(&self) -> bool {
        !self.rows.is_empty() || !self.arrived.is_empty()
    }

    /// Nothing comes in any more. Answers all requests that are in it.
    pub(super) fn stop(&mut self) -> (Vec<Arc<Job>>, Gone) {
        self.stopping = true;
        let arrived: Vec<Arrived> = std::mem::take(&mut self.arrived).into();
        let rows = std::mem::take(&mut self.rows);
        let jobs = arrived.iter().map(|arrived| &arrived.job).chain(rows.iter().map(|row| &row.job));
        let jobs = jobs.cloned().collect();
        (jobs, Gone { _arrived: arrived, _slots: std::mem::take(&mut self.held) })
    }

    pub(super) fn take_gone(&mut self) -> Gone {
        Gone { _arrived: std::mem::take(&mut self.gone), _slots: Vec::new() }
    }

    pub(super) fn next(&mut self) -> Option<Work> {
        self.rows.retain(|row| row.job.is_open());
        let tokens: usize = self.rows.iter().map(|row| row.tokens.ids.len()).sum();
        let few_wait = self.rows.iter().any(|row| !row.job.is_bulk);
        if tokens < self.batch_tokens.saturating_mul(AHEAD)
            && !(self.was_at_bulk && few_wait)
            && let Some(work) = self.next_texts()
        {
            self.was_at_bulk = matches!(&work, Work::Tokenise(job, _) if job.is_bulk);
            return Some(work);
        }
        self.was_at_bulk = false;
        let waiting: Vec<Waiting> = self
            .rows
            .iter()
            .map(|row| Waiting { tokens: row.tokens.ids.len(), is_bulk: row.job.is_bulk })
            .collect();
        let budget = Budget { tokens: self.batch_tokens, rows: MOST_ROWS_OF_A_BATCH };
        self.turn += 1;
        let chosen = choose(&waiting, budget, self.turn);
        if chosen.is_empty() {
            return None;
        }
        let mut is_chosen = vec![false; self.rows.len()];
        for &at in &chosen {
            is_chosen[at] = true;
        }
        let mut places = is_chosen.into_iter();
        let rows: Vec<Row> = self.rows.extract_if(.., |_| places.next().unwrap_or_default()).collect();
        Some(Work::Run(rows))
    }

    /// Those of requests of a few texts first, but for every so many.
    fn next_texts(&mut self) -> Option<Work> {
        let (open, ended) =
            std::mem::take(&mut self.arrived).into_iter().partition(|arrived| arrived.job.is_open());
        self.arrived = open;
        self.gone.extend::<VecDeque<Arrived>>(ended);
        self.text_turn += 1;
        let bulk_first = self.text_turn.is_multiple_of(BULK_TURN);
        let first = self.arrived.iter().position(|arrived| arrived.job.is_bulk == bulk_first);
        let place = first.unwrap_or_default();
        let arrived = self.arrived.get_mut(place)?;
        let (mut part, mut bytes) = (Vec::<(usize, Text)>::new(), 0);
        while let Some(text) = arrived.texts.get(arrived.made) {
            bytes += match part.last() {
                Some((_, before)) if text.repeats_first_of(before) => text.bytes() - text.first.len(),
                _ => text.bytes(),
            };
            if !part.is_empty() && (part.len() == TEXTS_AT_ONCE || bytes > BYTES_AT_ONCE) {
                break;
            }
            part.push((arrived.made, text.clone()));
            arrived.made += 1;
        }
        let job = arrived.job.clone();
        if arrived.made == arrived.texts.len() {
            self.gone.extend(self.arrived.remove(place));
        }
        Some(Work::Tokenise(job, part))
    }
}
