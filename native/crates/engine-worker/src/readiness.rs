//! Whether a model can be asked: its process is there, and the model says so where it has an opinion.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kushi_core::{OnReady, Readiness};

use crate::frame::kind;
use crate::state::{Phase, WorkerState};
use crate::worker::Shared;

/// How long a model may take to say it.
const PATIENCE: Duration = Duration::from_secs(5);
/// So long it stands still then, and takes no batch either: where nothing says how long a batch may take.
const STANDSTILL: Duration = Duration::from_secs(30);

pub(crate) struct WorkerReadiness(pub(crate) Arc<Shared>);

/// What is asked of the model, and by whom.
#[derive(Default)]
pub(crate) struct Question {
    /// The model has an opinion.
    pub(crate) has_opinion: bool,
    /// It was asked and has not answered; since when it has had time for that.
    asked: Option<Instant>,
    /// The first batch that was sent behind the question: those before it are dealt with first.
    behind: u64,
    /// They wait for that answer.
    waiting: Vec<Asker>,
    /// They came after it was asked. What it says then may be older than their question, so it is asked again.
    next: Vec<Asker>,
}

type Asker = (Instant, OnReady);

impl Readiness for WorkerReadiness {
    fn is_ready(&self) -> bool {
        is_ready(&self.0.state())
    }

    fn ask(&self, on_answer: OnReady) {
        let mut state = self.0.state();
        let said = is_ready(&state);
        let has_opinion = said && state.phase == Phase::Ready && state.question.has_opinion;
        if has_opinion && state.outgoing.is_some() {
            state.question.next.push((Instant::now(), on_answer));
            ask_next(&self.0, &mut state);
        } else {
            drop(state);
            on_answer(said);
        }
    }
}

impl Question {
    /// Nothing answers while the model executes these batches, those that were sent before the question.
    pub(crate) fn executes(&mut self, mut batches: impl Iterator<Item = u64>, now: Instant) {
        if self.asked.is_some() && batches.any(|batch| batch < self.behind) {
            self.asked = Some(now);
        }
    }

    /// Whether the model stands still in it, where a batch may take so long.
    pub(crate) fn stands_still(&self, now: Instant, execute_patience: Option<Duration>) -> bool {
        let patience = execute_patience.map_or(STANDSTILL, |patience| patience.max(PATIENCE));
        self.asked.is_some_and(|asked| now >= asked + patience)
    }
}

/// Asks the model for those who wait for its next answer, unless it still owes one.
fn ask_next(shared: &Shared, state: &mut WorkerState) {
    let WorkerState { outgoing, question, next_batch, .. } = state;
    let Some(outgoing) = outgoing.as_mut().filter(|_| question.asked.is_none() && !question.next.is_empty())
    else {
        return;
    };
    (question.asked, question.behind) = (Some(Instant::now()), *next_batch);
    question.waiting = std::mem::take(&mut question.next);
    // A worker that has gone is found by reading.
    let _ = outgoing.send_text(kind::IS_READY, 0, 0, b"");
    if outgoing.is_blocked() {
        shared.ring();
    }
}

/// Its process is there, and the model in it; or the next one comes in its turn.
fn is_ready(state: &WorkerState) -> bool {
    state.phase == Phase::Ready || state.phase == Phase::Starting && state.renews
}

/// What the model has said.
pub(crate) fn said(shared: &Shared, ready: bool) {
    let mut state = shared.state();
    state.question.asked = None;
    let waiting = std::mem::take(&mut state.question.waiting);
    ask_next(shared, &mut state);
    drop(state);
    answer(waiting, ready);
}

/// Whoever has waited for too long hears that it is not ready.
pub(crate) fn end_overdue(shared: &Shared, now: Instant) {
    let mut state = shared.state();
    let Question { waiting, next, .. } = &mut state.question;
    let mut overdue = Vec::new();
    for askers in [waiting, next] {
        let count = askers.iter().take_while(|(asked, _)| now >= *asked + PATIENCE).count();
        overdue.extend(askers.drain(..count));
    }
    drop(state);
    answer(overdue, false);
}

/// The process has gone, with its opinion.
pub(crate) fn forget(shared: &Shared) {
    let question = std::mem::take(&mut shared.state().question);
    answer(question.waiting.into_iter().chain(question.next), false);
}

fn answer(waiting: impl IntoIterator<Item = Asker>, ready: bool) {
    for (_, on_answer) in waiting {
        on_answer(ready);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_sent_before_the_question_may_hold_up_its_answer() {
        let asked = Instant::now();
        let later = asked + STANDSTILL;
        for (batch, stands_still) in [(4, false), (5, true), (6, true)] {
            let mut question = Question { asked: Some(asked), behind: 5, ..Question::default() };
            question.executes([batch].into_iter(), later);
            assert_eq!(question.stands_still(later, None), stands_still, "{batch}");
        }
    }
}
