//! What holds for every order of events.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use kushi_core::{
    Buffer, DataType, Error, ErrorKind, Inputs, Lease, ModelSpec, QueuePolicy, Request, Shape, Step, Tensor,
    Ticket,
};
use kushi_testkit::{Act, PATIENCE, Scene, drive, echo_spec, int32, queue_of, tensor_spec, wide};
use proptest::prelude::*;

/// Seeds are printed by a failing test; nothing is kept beside the sources.
fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// A row of `width` elements from arbitrary bytes.
fn row(datatype: DataType, width: usize, noise: &mut impl Iterator<Item = u8>) -> Vec<u8> {
    let mut take = |count| noise.by_ref().take(count).collect::<Vec<u8>>();
    match datatype.size() {
        Some(size) => take(size * width),
        None => (0..width)
            .flat_map(|_| {
                let length = u32::from(take(1)[0] % 5);
                [length.to_le_bytes().to_vec(), take(length as usize)].concat()
            })
            .collect(),
    }
}

proptest! {
    #![proptest_config(config(64))]

    #[test]
    fn what_is_joined_is_split_into_the_same_parts(
        rows in prop::collection::vec(0_usize..=8, 1..12),
        width in 0_usize..4,
        skew in 0_usize..3,
        noise in prop::collection::vec(any::<u8>(), 256),
    ) {
        let every_type = || DataType::ALL.map(|datatype| tensor_spec(datatype.name(), datatype, &[-1])).to_vec();
        let scene = Scene::new(ModelSpec { inputs: every_type(), outputs: every_type(), ..echo_spec() });
        let mut noise = noise.into_iter().cycle();
        let mut expected = BTreeMap::new();
        scene.puppet.hold();
        for (key, &rows) in rows.iter().enumerate() {
            let mut parts = Vec::new();
            let mut inputs = Inputs::new();
            for datatype in DataType::ALL {
                let bytes: Vec<u8> = (0..rows).flat_map(|_| row(datatype, width, &mut noise)).collect();
                let unaligned = Buffer::host([vec![0; skew], bytes.clone()].concat());
                let data = unaligned.slice(skew..skew + bytes.len());
                inputs.push(Some(Tensor { datatype, shape: Shape::from_slice(&[rows as i64, width as i64]), data }));
                parts.push(bytes);
            }
            let request = Request { inputs, rows, ..scene.request(key as u64, 0) };
            scene.submit(request);
            expected.insert(key as u64, parts);
        }
        scene.puppet.release_all();
        for answer in scene.letters.answers(rows.len()) {
            let parts = &expected[&answer.key];
            for (place, part) in parts.iter().enumerate() {
                prop_assert_eq!(answer.output(place as u16), part.as_slice());
                let shape = &answer.responses[0].outputs[place].1.shape;
                prop_assert_eq!(shape.as_slice(), [rows[answer.key as usize] as i64, width as i64]);
            }
        }
        prop_assert!(scene.puppet.seen().iter().all(|seen| seen.rows <= 8));
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Submit {
        rows: usize,
        width: i64,
        deadline_ms: Option<u64>,
        priority: u32,
    },
    /// Of the request that was submitted so many before.
    Cancel(usize),
    Expire(usize),
    Advance,
    RunLease,
    DropLease,
    SendLeaseAway,
}

fn event() -> impl Strategy<Value = Event> {
    let submit = (1_usize..=8, 1_i64..=2, prop::option::weighted(0.2, 0_u64..3), 1_u32..=3).prop_map(
        |(rows, width, deadline_ms, priority)| Event::Submit { rows, width, deadline_ms, priority },
    );
    prop_oneof![
        12 => submit,
        2 => (0_usize..4).prop_map(Event::Cancel),
        2 => (0_usize..4).prop_map(Event::Expire),
        1 => Just(Event::Advance),
        4 => Just(Event::RunLease),
        1 => Just(Event::DropLease),
        1 => Just(Event::SendLeaseAway),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => Just(Act::Echo),
        1 => Just(Act::Fail(Error::new(ErrorKind::EngineFailed, "broken"))),
        1 => Just(Act::Panic),
        1 => Just(Act::Drop),
        1 => Just(Act::Silence),
        1 => Just(Act::Respond(3)),
    ]
}

#[derive(Clone, Debug)]
struct Plan {
    instances: usize,
    inline: bool,
    preserve_ordering: bool,
    delay_us: u64,
    max_requests: usize,
    levels: usize,
    acts: Vec<Act>,
    /// One list of events for each submitting thread.
    threads: Vec<Vec<Event>>,
    /// Whether the version is retired while they submit.
    cut_short: bool,
}

fn plan() -> impl Strategy<Value = Plan> {
    let queue = (prop_oneof![Just(0), Just(500)], 0_usize..20, 1_usize..=3);
    let shape = (1_usize..=3, any::<bool>(), any::<bool>(), queue);
    let threads = prop::collection::vec(prop::collection::vec(event(), 1..40), 1..4);
    (shape, prop::collection::vec(act(), 0..30), threads, prop::bool::weighted(0.3)).prop_map(
        |((instances, inline, preserve_ordering, queue), acts, threads, cut_short)| Plan {
            instances,
            inline: inline && queue.0 == 0,
            preserve_ordering,
            delay_us: queue.0,
            max_requests: queue.1,
            levels: queue.2,
            acts,
            threads,
            cut_short,
        },
    )
}

/// Plays one thread's events; answers the keys of the requests that were taken in, with their rows.
fn play(scene: &Scene, thread: usize, events: &[Event]) -> (Vec<(u64, usize)>, usize) {
    let mut tickets: Vec<Ticket> = Vec::new();
    let mut leases: Vec<Lease> = Vec::new();
    let mut accepted = Vec::new();
    let mut refused = 0;
    for (number, event) in events.iter().enumerate() {
        let back = |count: usize| tickets.len().checked_sub(count + 1).map(|place| &tickets[place]);
        match *event {
            Event::Submit { rows, width, deadline_ms, priority } => {
                let level = scene.runner.spec().queue.level(priority);
                let key = (thread * 10_000 + level * 1000 + (width as usize - 1) * 500 + number) as u64;
                let values = std::iter::repeat_n(key as i32, rows * width as usize);
                let request = scene.request_of(key, int32(&[rows as i64, width], values));
                let mut request = Request { priority, ..request };
                request.deadline = deadline_ms.map(|ms| request.arrived + Duration::from_millis(ms));
                match scene.runner.submit(request) {
                    Ok((ticket, admission)) => {
                        accepted.push((key, rows));
                        tickets.push(ticket);
                        if let kushi_core::Admission::Lead(lease) = admission {
                            leases.push(lease);
                        }
                    }
                    Err(_) => refused += 1,
                }
            }
            Event::Cancel(count) => {
                back(count).map(Ticket::cancel);
            }
            Event::Expire(count) => {
                let due =
                    |ticket: &&Ticket| ticket.expires.is_some_and(|expires| expires <= scene.runner.now());
                back(count).filter(due).map(Ticket::expire);
            }
            Event::Advance => scene.clock.advance(Duration::from_millis(1)),
            Event::RunLease => {
                if let Some(lease) = leases.pop()
                    && let Step::Again(lease) = lease.run()
                {
                    leases.push(lease);
                }
            }
            Event::DropLease => drop(leases.pop()),
            Event::SendLeaseAway => {
                if let Some(lease) = leases.pop() {
                    // It is waited for by what it answers.
                    drop(thread::spawn(move || drive(lease)));
                }
            }
        }
    }
    (accepted, refused)
}

proptest! {
    #![proptest_config(config(96))]

    #[test]
    fn every_accepted_request_ends_once_in_a_batch_that_is_never_too_large(plan in plan()) {
        let mut spec = ModelSpec {
            instances: plan.instances,
            inline: plan.inline,
            queue: queue_of(vec![QueuePolicy { max_requests: plan.max_requests, ..wide() }; plan.levels]),
            ..echo_spec()
        };
        if let Some(batching) = &mut spec.batching {
            batching.preserve_ordering = plan.preserve_ordering;
            batching.max_queue_delay_us = plan.delay_us;
        }
        let scene = Scene::without_drivers(spec);
        if plan.inline {
            scene.earn_inline();
        }
        let warm = scene.puppet.seen().len();
        let warm_ends = scene.runner.statistics().success.count;
        scene.puppet.script(plan.acts);
        let (accepted, refused) = thread::scope(|scope| {
            let scene = &scene;
            let players: Vec<_> = plan
                .threads
                .iter()
                .enumerate()
                .map(|(thread, events)| scope.spawn(move || play(scene, thread, events)))
                .collect();
            if plan.cut_short {
                scene.runner.retire(Duration::ZERO);
            }
            let mut accepted = BTreeMap::new();
            let mut refused = 0;
            for player in players {
                let (more, no) = player.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                accepted.extend(more);
                refused += no;
            }
            (accepted, refused)
        });
        // The last delay ends.
        scene.clock.advance(Duration::from_secs(1));
        prop_assert_eq!(scene.runner.drain(PATIENCE), 0);
        prop_assert!(scene.runner.retire(PATIENCE));

        prop_assert_eq!(scene.letters.unfinished(), 0, "responses after an end");
        let answers = scene.letters.answers(0);
        prop_assert_eq!(answers.len(), accepted.len());
        let mut ends: Vec<u64> = answers.iter().map(|answer| answer.key).collect();
        ends.sort_unstable();
        prop_assert!(ends.iter().eq(accepted.keys()), "each of {:?} ends once: {:?}", accepted, ends);
        for answer in &answers {
            if answer.end.result.is_ok() && answer.responses.len() == 1 {
                let own = (answer.key as i32).to_le_bytes();
                prop_assert!(answer.output(0).chunks(4).all(|value| value == own));
            }
        }

        let seen = &scene.puppet.seen()[warm..];
        for batch in seen {
            prop_assert!(batch.rows <= 8);
            prop_assert!(are_in_order(&batch.ids, plan.preserve_ordering), "{:?}", batch.ids);
        }
        if plan.instances == 1 {
            let all: Vec<String> = seen.iter().flat_map(|batch| batch.ids.clone()).collect();
            prop_assert!(are_in_order(&all, plan.preserve_ordering), "{:?}", all);
        }

        let statistics = scene.runner.statistics();
        let succeeded = answers.iter().filter(|answer| answer.end.result.is_ok()).count();
        prop_assert_eq!(statistics.success.count - warm_ends, succeeded as u64);
        prop_assert_eq!(statistics.fail.count, (answers.len() - succeeded + refused) as u64);
    }
}

/// First in, first out: the numbers of each submitting thread and level ascend, and unless all keep their order, those of
/// one width.
fn are_in_order(ids: &[String], of_all_widths: bool) -> bool {
    let mut last = BTreeMap::new();
    let lane = |key: u64| if of_all_widths { key / 1000 * 1000 } else { key / 500 * 500 };
    ids.iter()
        .filter_map(|id| id.parse::<u64>().ok())
        .all(|key| last.insert(lane(key), key % 500).is_none_or(|before| before < key % 500))
}
