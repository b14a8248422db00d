//! What leaves a queue, in which order, and what that costs.

use std::cell::Cell;
use std::time::Duration;

use super::*;
use crate::{Bound, Buffer, DataType, Mail, Mailbox, QueuePolicy, Reply, Shape, Tensor, Wanted};

const MS: Duration = Duration::from_millis(1);

thread_local! {
    /// How often something was found out about an entry.
    pub(super) static LOOKS: Cell<usize> = const { Cell::new(0) };
}

struct Nobody;

impl Mailbox for Nobody {
    fn deliver(&self, _: Vec<Mail>) {}
}

pub(super) fn spec(timeout_action: TimeoutAction) -> QueueSpec {
    let level = QueuePolicy {
        max_requests: 0,
        default_timeout_us: 3_600_000_000,
        allow_timeout_override: true,
        timeout_action,
    };
    QueueSpec { max_bytes: 1 << 30, default_level: 1, levels: vec![level], ragged: Vec::new() }
}

/// A queue of requests in the order of these timeouts.
fn queue(action: TimeoutAction, start: Instant, timeouts: impl Iterator<Item = Duration>) -> Queue {
    let spec = spec(action);
    let mut queue = Queue::new(&spec);
    for (number, timeout) in timeouts.enumerate() {
        let request = request(start, timeout, &[]);
        let entry = Entry { number: number as u64, ..Entry::new(request.into(), &spec) };
        assert!(queue.admit(entry).is_ok());
    }
    queue
}

/// With an input of each of these shapes.
pub(super) fn request(arrived: Instant, timeout: Duration, shapes: &[&[i64]]) -> Request {
    let input = |shape: &&[i64]| {
        Some(Tensor {
            datatype: DataType::Int32,
            shape: Shape::from_slice(shape),
            data: Buffer::host(Vec::new()),
        })
    };
    let bound = Bound { inputs: shapes.iter().map(input).collect(), wanted: Wanted::new(), rows: 1 };
    let reply = Reply::new(Arc::new(Nobody), 0);
    Request { timeout_us: Some(timeout.as_micros() as u64), ..Request::new(bound, arrived, reply) }
}

/// Timeouts that are as mixed up as can be.
fn mixed(count: u32) -> impl Iterator<Item = Duration> {
    (0..count).map(move |number| MS * (1 + number * 7919 % count))
}

#[test]
fn what_expires_or_gives_way_costs_no_more_behind_a_long_queue() {
    let start = Instant::now();
    for action in [TimeoutAction::Reject, TimeoutAction::Delay] {
        let looks = |count: u32| {
            let mut queue = queue(action, start, mixed(count));
            LOOKS.set(0);
            for step in 1..=count {
                queue.settle(start + step * MS);
            }
            LOOKS.get() / count as usize
        };
        let (few, many) = (looks(64), looks(4096));
        assert!(many <= 2 * few + 2, "{action:?}: {few} for each of 64, {many} for each of 4096");
    }
}

#[test]
fn entries_leave_in_order_and_know_their_neighbours_wherever_others_have_left() {
    let start = Instant::now();
    for action in [TimeoutAction::Reject, TimeoutAction::Delay] {
        let mut queue = queue(action, start, mixed(100));
        for step in 1..=80 {
            assert_eq!(queue.settle(start + step * MS).len(), usize::from(action == TimeoutAction::Reject));
        }
        let left = if action == TimeoutAction::Reject { 20 } else { 100 };
        assert_eq!((queue.backlog().requests, queue.waiting().count()), (left, left));
        // All are of one shape.
        let first = queue.heads(1).next();
        assert_eq!(first.map(|head| queue.group(head).count()), Some(left));
        assert_eq!(queue.next_change(), Some(start + 81 * MS));
        let numbers: Vec<u64> = queue.clear().iter().map(|entry| entry.number).collect();
        assert!(numbers[..20].is_sorted() && numbers[20..].is_sorted(), "{numbers:?}");
        assert_eq!(queue.next_change(), None);
        assert_eq!(queue.backlog(), Backlog::default());
    }
}
