//! A mailbox that keeps what it gets until a test reads it, on the test's thread.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex};
use std::thread::{self, ThreadId};

use kushi_core::{End, Error, Mail, Mailbox, Response};

use crate::{lock, wait_until};

#[derive(Default)]
pub struct Letterbox {
    post: Mutex<Post>,
    arrived: Condvar,
}

#[derive(Default)]
struct Post {
    deliveries: usize,
    open: BTreeMap<u64, Vec<Response>>,
    ended: Vec<Answer>,
}

/// All that came for one request.
pub struct Answer {
    pub key: u64,
    /// Which delivery, counted from 1, brought the end.
    pub delivery: usize,
    /// Who brought the end.
    pub thread: ThreadId,
    pub responses: Vec<Response>,
    pub end: End,
}

impl Answer {
    pub fn error(&self) -> Option<&Error> {
        self.end.result.as_ref().err()
    }

    /// The bytes of an output of the only response.
    pub fn output(&self, place: u16) -> &[u8] {
        assert!(self.end.result.is_ok(), "request {} ended with {:?}", self.key, self.end.result);
        assert_eq!(self.responses.len(), 1, "responses to request {}", self.key);
        let outputs = &self.responses[0].outputs;
        let output = outputs.iter().find(|(index, _)| *index == place);
        output.map_or_else(|| panic!("no output {place}"), |(_, tensor)| tensor.data.as_bytes())
    }
}

impl Letterbox {
    /// Waits for the end of one request and takes it out.
    pub fn answer(&self, key: u64) -> Answer {
        let mut post = wait_until(&self.post, &self.arrived, "an answer", |post| {
            post.ended.iter().any(|answer| answer.key == key)
        });
        let place = post.ended.iter().position(|answer| answer.key == key);
        post.ended.remove(place.unwrap_or_else(|| unreachable!("it was there under this lock")))
    }

    /// Waits for so many ends and takes them all out, in the order of their arrival.
    pub fn answers(&self, count: usize) -> Vec<Answer> {
        let mut post = wait_until(&self.post, &self.arrived, "all answers", |post| post.ended.len() >= count);
        std::mem::take(&mut post.ended)
    }

    /// Waits for so many responses to a request that has not ended yet.
    pub fn responses(&self, key: u64, count: usize) {
        let there = |post: &Post| post.open.get(&key).is_some_and(|responses| responses.len() >= count);
        drop(wait_until(&self.post, &self.arrived, "responses", there));
    }

    /// Requests that have ended and were not read.
    pub fn unread(&self) -> usize {
        lock(&self.post).ended.len()
    }

    /// Requests with responses and no end.
    pub fn unfinished(&self) -> usize {
        lock(&self.post).open.len()
    }

    /// How often mail came: each would wake a thread or an event loop.
    pub fn deliveries(&self) -> usize {
        lock(&self.post).deliveries
    }
}

impl Mailbox for Letterbox {
    fn deliver(&self, mail: Vec<Mail>) {
        let mut post = lock(&self.post);
        post.deliveries += 1;
        let delivery = post.deliveries;
        for Mail { key, response, end, .. } in mail {
            let mut responses = post.open.remove(&key).unwrap_or_default();
            responses.extend(response);
            match end {
                Some(end) => {
                    post.ended.push(Answer { key, delivery, thread: thread::current().id(), responses, end });
                }
                None => drop(post.open.insert(key, responses)),
            }
        }
        self.arrived.notify_all();
    }
}
