//! Answers of a worker, on their way to those who asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use kushi_core::{Afterwards, Error, ErrorKind, ModelSpec, Response, Sent, SlotToken};

use crate::answer_message::{WorkerAnswer, read_answers, reshape};
use crate::frame::{Head, kind};
use crate::metrics;
use crate::parts::{Garbage, text_of};
use crate::running::{HeldResponse, Running};
use crate::worker::Shared;

/// Responses of a request that were taken and of which its worker hears at once: half of those, and a quarter of the
/// bytes, that it may have on their way, which `runners/worker/execution.py` says.
const GRANTED_TOGETHER: u32 = 16;
const GRANTED_BYTES: usize = 1 << 20;

/// Answers to requests of one batch, and perhaps the news that the model can take the next one.
pub(crate) fn take(shared: &Arc<Shared>, head: Head, payload: &Bytes) -> Result<(), Garbage> {
    let answers = read_answers(payload, head.count, shared.options.outputs)?;
    // Answers are delivered without the lock: somebody may begin a batch where they arrive.
    let running = {
        let mut state = shared.state();
        if head.id >= state.next_batch {
            return Err(Garbage("answers to a batch that there is not"));
        }
        // what comes from others of its threads says nothing of the one that makes them
        state.answers +=
            u64::from(answers.iter().any(|answer| answer.response.is_some() || answer.end.is_some()));
        state.batches.remove(&head.id)
    };
    // All its requests have their ends: an error was one, and the model says once more that it is done, or goes on.
    let Some(mut running) = running else {
        let further = answers.iter().filter(|answer| answer.end.is_none());
        let grants = further.map(|answer| (answer.position, (1, true))).collect();
        send_grants(shared, head.id, grants);
        return Ok(());
    };
    if answers.iter().any(|answer| answer.position >= running.places.len()) {
        shared.state().batches.insert(head.id, running);
        return Err(Garbage("an answer to a request that there is not"));
    }
    running.batch.computed();
    // One that is held came alone.
    let bytes = payload.len() / answers.len().max(1);
    let mut last = Vec::with_capacity(answers.len());
    for WorkerAnswer { position, mut response, mut end } in answers {
        if let Some(error) = response.as_ref().and_then(|it| broken_output(running.batch.spec(), it)) {
            (response, end) = (None, Some(Err(error)));
        }
        if let Some(response) = &mut response {
            reshape(running.batch.spec(), response);
        }
        if end.is_some() {
            running.given_up.remove(&position);
        }
        let waits = running.held.iter().any(|held| held.position == position);
        match end {
            Some(end) if !waits => last.push((running.places[position], end.map(|()| response))),
            end => {
                running.held.extend(response.map(|response| HeldResponse { position, response, bytes }));
                running.ends.extend(end.map(|end| (position, end)));
            }
        }
    }
    running.batch.end_each(last);
    send_held(shared, head.id, &mut running);
    let token = running.token.take_if(|_| head.kind == kind::RETURNED);
    if token.is_some() && running.batch.is_open() {
        answers_later(shared, &mut running);
    }
    if !running.is_over() {
        shared.state().batches.insert(head.id, running);
    }
    // Behind the answers; what is due for the slot goes on here.
    if let Some(lease) = token.and_then(SlotToken::give_back) {
        lease.run_afterwards();
    }
    Ok(())
}

/// The model has returned, and not ended all requests of this batch. Of one that nobody waits for, its supervisor hears.
fn answers_later(shared: &Arc<Shared>, running: &mut Running) {
    if !std::mem::replace(&mut running.is_watched, true) {
        shared.watch(running);
    } else if running.has_abandoned() {
        shared.has_abandoned.store(true, Ordering::Release);
        shared.ring();
    }
}

/// Ends the requests that nobody waits for and that the model has kept: it may never end them.
pub(crate) fn give_up_abandoned(shared: &Arc<Shared>) {
    let _afterwards = Afterwards::open();
    let kept: Vec<u64> = {
        let state = shared.state();
        let is_kept = |running: &Running| running.token.is_none() && running.has_abandoned();
        state.batches.iter().filter(|(_, running)| is_kept(running)).map(|(id, _)| *id).collect()
    };
    for id in kept {
        let Some(mut running) = shared.state().batches.remove(&id) else { continue };
        running.give_up_abandoned();
        if !running.is_over() {
            shared.state().batches.insert(id, running);
        }
    }
}

/// Its bytes are a model's own, whatever it says of their shape.
fn broken_output(spec: &ModelSpec, response: &Response) -> Option<Error> {
    let (place, tensor) = response.outputs.iter().find(|(_, tensor)| !tensor.fills_its_shape())?;
    let name = &spec.outputs.get(usize::from(*place))?.name;
    let (model, bytes, shape) = (&spec.name, tensor.data.len(), &tensor.shape);
    let text = format!(
        "output '{name}' of model '{model}' has {bytes} bytes, which do not fill its shape {shape:?}"
    );
    Some(Error::new(ErrorKind::EngineFailed, text))
}

/// There may be room for what has found none.
pub(crate) fn send_again(shared: &Arc<Shared>) {
    let _afterwards = Afterwards::open();
    let holding: Vec<u64> = {
        let state = shared.state();
        state.batches.iter().filter(|(_, running)| !running.held.is_empty()).map(|(id, _)| *id).collect()
    };
    for id in holding {
        let Some(mut running) = shared.state().batches.remove(&id) else { continue };
        send_held(shared, id, &mut running);
        if !running.is_over() {
            shared.state().batches.insert(id, running);
        }
    }
}

/// Sends what there is room for, and tells the worker how much that was.
fn send_held(shared: &Arc<Shared>, id: u64, running: &mut Running) {
    if running.held.is_empty() {
        return;
    }
    let mut grants = Grants::new();
    let mut full: Vec<usize> = Vec::new();
    for held in std::mem::take(&mut running.held) {
        let HeldResponse { position, response, bytes } = held;
        if full.contains(&position) {
            running.held.push_back(HeldResponse { position, response, bytes });
            continue;
        }
        let place = running.places[position];
        match running.batch.send(place, response) {
            Sent::Full(response) => {
                running.held.push_back(HeldResponse { position, response: *response, bytes });
                full.push(position);
                let shared = shared.clone();
                running.batch.when_room(place, move || shared.ring());
            }
            sent => {
                let taken = running.taken.entry(position).or_default();
                taken.responses += 1;
                taken.bytes += bytes;
                let is_gone = matches!(sent, Sent::Abandoned);
                if is_gone || taken.responses >= GRANTED_TOGETHER || taken.bytes >= GRANTED_BYTES {
                    let grant = grants.entry(position).or_default();
                    grant.0 += std::mem::take(taken).responses;
                    grant.1 |= is_gone;
                }
            }
        }
    }
    for (position, end) in std::mem::take(&mut running.ends) {
        if full.contains(&position) {
            running.ends.push((position, end));
        } else {
            running.batch.end(running.places[position], end);
        }
    }
    send_grants(shared, id, grants);
}

/// By the number of the request: how many responses were taken, and whether nobody waits for more.
type Grants = BTreeMap<usize, (u32, bool)>;

fn send_grants(shared: &Arc<Shared>, id: u64, grants: Grants) {
    if grants.is_empty() {
        return;
    }
    let mut state = shared.state();
    let Some(outgoing) = &mut state.outgoing else { return };
    for (position, (count, is_gone)) in grants {
        let payload = [count.to_le_bytes(), u32::from(is_gone).to_le_bytes()].concat();
        // A worker that has gone is found by reading.
        let _ = outgoing.send_text(kind::GRANT, position as u32, id, &payload);
    }
    // What has found no room is sent by the supervisor, which may not be the one that is here.
    if outgoing.is_blocked() {
        shared.ring();
    }
}

#[derive(serde::Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case")]
enum Question {
    IsCancelled {
        batch: u64,
        position: usize,
    },
    Perform {
        name: String,
        arguments: serde_json::Value,
    },
    #[serde(untagged)]
    Metrics(metrics::Question),
}

/// What a model wants to know of the server, or wants done.
pub(crate) fn asked(shared: &Arc<Shared>, head: Head, payload: &Bytes) {
    match serde_json::from_str(&text_of(payload, usize::MAX)) {
        Ok(Question::IsCancelled { batch, position }) => {
            let is_cancelled = {
                let state = shared.state();
                let running = state.batches.get(&batch);
                running.is_none_or(|running| {
                    running.places.get(position).is_none_or(|&place| running.batch.is_abandoned(place))
                })
            };
            answer(shared, shared.calls.life(), head.id, Ok(is_cancelled.to_string()));
        }
        Ok(Question::Perform { name, arguments }) => {
            let (to, life, number) = (shared.clone(), shared.calls.life(), head.id);
            let on_answer = Box::new(move |result| answer(&to, life, number, result));
            shared.host.perform(name, arguments.to_string(), on_answer);
        }
        Ok(Question::Metrics(question)) => {
            let result = metrics::answer(&*shared.metrics, question);
            answer(shared, shared.calls.life(), head.id, result.map_err(|error| error.message.into_owned()));
        }
        Err(error) => {
            let text = format!("what the server is asked cannot be read: {error}");
            answer(shared, shared.calls.life(), head.id, Err(text));
        }
    }
}

/// To the process that has asked.
fn answer(shared: &Shared, life: u64, number: u64, result: Result<String, String>) {
    if life != shared.calls.life() {
        return;
    }
    let (failed, text) = match result {
        Ok(value) => (0, value),
        Err(error) => (1, error),
    };
    let mut state = shared.state();
    if let Some(outgoing) = &mut state.outgoing {
        // A worker that has gone is found by reading.
        let _ = outgoing.send_text(kind::ANSWER, failed, number, text.as_bytes());
        // What has found no room is sent by the supervisor, which may not be the one that is here.
        if outgoing.is_blocked() {
            shared.ring();
        }
    }
}
