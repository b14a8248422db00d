//! Which requests of a queue may share a batch, whatever comes and leaves.

use std::time::Duration;

use proptest::prelude::*;

use super::tests::{LOOKS, request, spec};
use super::*;
use crate::schedule::scheduler::Action;
use crate::{BatchPolicy, Due, DynamicBatcher, FreeSlots, Scheduler};

/// A queue of requests with inputs of these shapes, numbered from 0.
fn queue_of_shapes(grouping: Grouping, ragged: &[bool], shapes: &[&[&[i64]]]) -> Queue {
    let spec = QueueSpec { ragged: ragged.to_vec(), ..spec(TimeoutAction::Reject) };
    let mut queue = Queue::grouped(&spec, grouping);
    for (number, shapes) in shapes.iter().enumerate() {
        let request = request(Instant::now(), Duration::from_secs(1), shapes);
        let entry = Entry { number: number as u64, ..Entry::new(request.into(), &spec) };
        assert!(queue.admit(entry).is_ok());
    }
    queue
}

/// The numbers of those that may share a batch, group by group.
fn groups(queue: &Queue) -> Vec<Vec<u64>> {
    let numbers = |head| queue.group_entries(head).map(Entry::number).collect();
    queue.heads(usize::MAX).map(numbers).collect()
}

const A: &[&[i64]] = &[&[1, 2]];
const B: &[&[i64]] = &[&[3, 4]];
const C: &[&[i64]] = &[&[1, 2, 1]];

#[test]
fn shapes_of_ragged_inputs_may_differ_among_those_that_join() {
    let shapes: [&[&[i64]]; 4] =
        [&[&[1, 2], &[1, 3]], &[&[2, 9], &[1, 3]], &[&[1, 9], &[1, 4]], &[&[1, 9, 1], &[1, 4]]];
    let groups = |ragged| groups(&queue_of_shapes(Grouping::Shapes, ragged, &shapes));
    assert_eq!(groups(&[]), [[0], [1], [2], [3]]);
    assert_eq!(groups(&[true, false]), [[0, 1], [2, 3]]);
    assert_eq!(groups(&[true, true]), [[0, 1, 2, 3]]);
}

#[test]
fn those_of_equal_shapes_pass_others_unless_the_order_counts() {
    let shapes = [A, B, A, C, B, A];
    let grouped = |grouping| groups(&queue_of_shapes(grouping, &[], &shapes));
    assert_eq!(grouped(Grouping::Shapes), [vec![0, 2, 5], vec![1, 4], vec![3]]);
    assert_eq!(grouped(Grouping::Neighbours), [[0], [1], [2], [3], [4], [5]]);
    assert_eq!(grouped(Grouping::None), [[0, 1, 2, 3, 4, 5]]);
}

#[test]
fn an_input_that_is_left_out_makes_another_shape() {
    let mut queue = queue_of_shapes(Grouping::Shapes, &[true], &[A, B]);
    let spec = spec(TimeoutAction::Reject);
    for number in 2..4 {
        let mut request = request(Instant::now(), Duration::from_secs(1), A);
        request.inputs[0] = None;
        let entry = Entry { number, ..Entry::new(request.into(), &spec) };
        assert!(queue.admit(entry).is_ok());
    }
    assert_eq!(groups(&queue), [[0, 1], [2, 3]]);
}

/// What a queue must do, in the plainest way.
struct Model {
    waiting: Vec<(u64, usize)>,
}

impl Model {
    fn groups(&self, keeps_order: bool) -> Vec<Vec<u64>> {
        let mut groups: Vec<(usize, Vec<u64>)> = Vec::new();
        for &(number, shape) in &self.waiting {
            let found = match groups.iter_mut().find(|(other, _)| *other == shape) {
                _ if keeps_order => groups.last_mut().filter(|(other, _)| *other == shape),
                found => found,
            };
            match found {
                Some((_, group)) => group.push(number),
                None => groups.push((shape, vec![number])),
            }
        }
        groups.into_iter().map(|(_, group)| group).collect()
    }
}

proptest! {
    #[test]
    fn groups_are_right_whatever_comes_and_leaves(
        steps in proptest::collection::vec((0..4_usize, 0..100_usize), 0..200),
    ) {
        let spec = spec(TimeoutAction::Reject);
        let mut queue = Queue::grouped(&spec, Grouping::Shapes);
        let mut model = Model { waiting: Vec::new() };
        for (number, (what, choice)) in steps.into_iter().enumerate() {
            match what {
                0 | 1 => {
                    let shape = choice % 5;
                    let request = request(Instant::now(), Duration::from_secs(1), &[&[1, shape as i64]]);
                    let entry = Entry { number: number as u64, ..Entry::new(request.into(), &spec) };
                    prop_assert!(queue.admit(entry).is_ok());
                    model.waiting.push((number as u64, shape));
                }
                2 if !model.waiting.is_empty() => {
                    let (number, _) = model.waiting.remove(choice % model.waiting.len());
                    prop_assert!(queue.cancel(number).is_some());
                    prop_assert!(queue.cancel(number).is_none());
                }
                3 if !model.waiting.is_empty() => {
                    let groups = model.groups(false);
                    let group = &groups[choice % groups.len()];
                    let most = 1 + choice % 3;
                    let head = queue.heads(usize::MAX).nth(choice % groups.len()).unwrap();
                    let taken: Vec<u64> = queue.take_group(head, most).numbers().collect();
                    let expected: Vec<u64> = group.iter().copied().take(most).collect();
                    prop_assert_eq!(&taken, &expected);
                    model.waiting.retain(|(number, _)| !taken.contains(number));
                }
                _ => {}
            }
            prop_assert_eq!(groups(&queue), model.groups(false));
            prop_assert_eq!(queue.backlog().requests, model.waiting.len());
            for (head, group) in queue.heads(usize::MAX).zip(model.groups(false)) {
                let extent = queue.extent(head).map(|(rows, _)| rows);
                prop_assert_eq!(extent, Some(group.len()), "each has a row");
            }
        }
    }

    #[test]
    fn runs_are_right_behind_each_other(shapes in proptest::collection::vec(0..3_usize, 0..30), takes in 0..30_usize) {
        let kinds = [A, B, C];
        let all: Vec<&[&[i64]]> = shapes.iter().map(|&shape| kinds[shape]).collect();
        let mut queue = queue_of_shapes(Grouping::Neighbours, &[], &all);
        let mut model = Model { waiting: (0..).zip(shapes.iter().copied()).collect() };
        for _ in 0..takes {
            let Some(head) = queue.heads(usize::MAX).next() else { break };
            prop_assert_eq!(queue.take_group(head, 1).numbers().collect::<Vec<_>>(), [model.waiting.remove(0).0]);
            prop_assert_eq!(groups(&queue), model.groups(true));
        }
    }
}

#[test]
fn what_of_many_shapes_waits_costs_no_more_behind_a_long_queue() {
    let looks = |count: i64| {
        let shapes: Vec<[i64; 2]> = (0..count).map(|number| [1, number * 7919 % (count / 2)]).collect();
        let shapes: Vec<[&[i64]; 1]> = shapes.iter().map(|shape| [&shape[..]]).collect();
        let shapes: Vec<&[&[i64]]> = shapes.iter().map(|shape| &shape[..]).collect();
        LOOKS.set(0);
        let mut queue = queue_of_shapes(Grouping::Shapes, &[], &shapes);
        for _ in 0..count / 2 {
            let head = queue.heads(usize::MAX).next().unwrap();
            assert_eq!(queue.take_group(head, 8).seats.len(), 2);
        }
        assert_eq!(queue.backlog(), Backlog::default());
        LOOKS.get() / count as usize
    };
    let (few, many) = (looks(64), looks(4096));
    assert!(many <= 2 * few + 2, "{few} for each of 64, {many} for each of 4096");
}

#[test]
fn what_waits_for_company_costs_no_more_in_a_large_group() {
    let start = Instant::now();
    let spec = spec(TimeoutAction::Reject);
    let policy =
        BatchPolicy { max_rows: 100, joins: true, preferred_rows: vec![], max_delay: Duration::from_secs(1) };
    for shapes in [1, 16] {
        let mut batcher = DynamicBatcher::new(policy.clone(), &spec, false);
        let count = shapes * 99;
        LOOKS.set(0);
        for number in 0..count {
            let request = request(start, Duration::from_secs(60), &[&[1, (number % shapes) as i64]]);
            let entry = Entry { number, ..Entry::new(request.into(), &spec) };
            assert!(batcher.admit(entry).is_ok());
            assert_eq!(batcher.due(start, &FreeSlots::default()), Due::Later(start + policy.max_delay));
        }
        let looks = LOOKS.get() as u64;
        assert!(looks <= count * (shapes + 2), "{looks} for {count} of {shapes} shapes");
        let over = start + policy.max_delay;
        assert!(matches!(batcher.next(over, 0).action, Action::Run(plan) if plan.seats.len() == 99));
    }
}
