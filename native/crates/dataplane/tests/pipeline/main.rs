//! Ensembles: requests that go through several models, asked by every kind of asker.

mod askers;
mod ends;
mod graphs;
mod reloads;
mod site;
mod streams;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use kushi_core::{Batching, Buffer, End, Error, ErrorKind, Mail, ModelSpec, Reply, Request, Runner, Tensor};
use kushi_testkit::{Act, PATIENCE, echo_spec, int32, until};

use crate::askers::{Asker, BlockedThread, EventLoop, IoThread};
use crate::site::{Site, model, submit, value};

/// The first model keeps the order of its answers; the second has one instance.
fn two_models(inline: bool) -> (Site, Arc<Runner>) {
    let batching = Batching { preferred_batch_sizes: vec![], max_queue_delay_us: 0, preserve_ordering: true };
    let first = ModelSpec { name: "first".into(), batching: Some(batching), ..echo_spec() };
    let second = ModelSpec { name: "second".into(), ..echo_spec() };
    let mut site = Site::new([first, second]);
    if inline {
        site.earn_inline();
    }
    let ensemble = site.chained(&["first", "second"]);
    (site, ensemble)
}

/// One request for each key, with the key as its value; all are there before anyone leads.
fn begin(asker: &dyn Asker, site: &Site, ensemble: &Arc<Runner>, keys: impl Iterator<Item = u64>) {
    let leases: Vec<_> = keys
        .filter_map(|key| {
            let request = site.request(key, &[Some(key as i32)]);
            let request = Request { reply: Reply::new(asker.mailbox(), key), ..request };
            submit(ensemble, request).unwrap_or_else(|error| panic!("{error}")).1
        })
        .collect();
    for lease in leases {
        asker.lead(lease);
    }
}

/// Waits for so many ends, and for what came with them.
fn follow(asker: &dyn Asker, count: usize) -> Vec<(u64, Result<i32, Error>)> {
    let mut ended = Vec::new();
    while ended.len() < count {
        for Mail { key, response, end, .. } in asker.take() {
            let End { result, .. } = end.unwrap_or_else(|| panic!("request {key} goes on"));
            let outputs = response.map(|response| response.outputs).unwrap_or_default();
            ended.push((key, result.map(|()| value(outputs[0].1.data.as_bytes()))));
        }
    }
    ended
}

#[test]
fn every_kind_of_asker_asks_it() {
    for inline in [false, true] {
        let askers: [Box<dyn Asker>; 3] =
            [Box::new(IoThread::new()), Box::new(EventLoop::new()), Box::new(BlockedThread::default())];
        for asker in askers {
            let (site, ensemble) = two_models(inline);
            begin(&*asker, &site, &ensemble, 1..=40);
            let mut ended = follow(&*asker, 40);
            ended.sort_unstable_by_key(|(key, _)| *key);
            assert!(ended.into_iter().eq((1..=40).map(|key| (key, Ok(key as i32)))));
            assert_eq!(ensemble.drain(PATIENCE), 0);
        }
    }
}

#[test]
fn many_askers_at_once_meet_in_its_batches() {
    let (site, ensemble) = two_models(true);
    thread::scope(|scope| {
        for kind in 0..6 {
            let (site, ensemble) = (&site, &ensemble);
            scope.spawn(move || {
                let asker: Box<dyn Asker> = match kind % 3 {
                    0 => Box::new(IoThread::new()),
                    1 => Box::new(EventLoop::new()),
                    _ => Box::new(BlockedThread::default()),
                };
                for _ in 0..10 {
                    begin(&*asker, site, ensemble, 0..8);
                    assert!(follow(&*asker, 8).iter().all(|(key, value)| *value == Ok(*key as i32)));
                }
            });
        }
    });
}

#[test]
fn a_burst_meets_in_one_batch_at_each_step_on_the_thread_that_brought_it() {
    const BURST: usize = 32;
    let names = ["first", "second", "third"];
    let spec = |name: &str| ModelSpec { name: name.into(), max_batch_size: BURST, ..echo_spec() };
    let mut site = Site::new(names.map(spec));
    site.earn_inline();
    let ensemble = site.chained(&names);
    let asker = IoThread::new();
    let before = names.map(|name| site.scene(name).puppet.seen().len());
    begin(&asker, &site, &ensemble, 0..BURST as u64);
    assert_eq!(follow(&asker, BURST).len(), BURST);
    for (name, before) in names.into_iter().zip(before) {
        let seen = &site.scene(name).puppet.seen()[before..];
        assert_eq!(seen.iter().map(|batch| batch.rows).collect::<Vec<_>>(), [BURST], "{name}");
        assert_eq!(seen[0].thread, thread::current().id(), "{name}");
    }
    // As for Triton, an ensemble executes each request by itself.
    let statistics = ensemble.statistics();
    assert_eq!((statistics.inference_count, statistics.execution_count), (BURST as u64, BURST as u64));
}

#[test]
fn a_tensor_is_handed_on_where_it_lies() {
    let (site, ensemble) = two_models(true);
    site.ask(&ensemble, 7);
    let answer = site.letters.answer(7);
    let at = |model: &str| site.scene(model).puppet.seen().last().map(|batch| batch.addresses[0]);
    let given = answer.end.request.inputs[0].as_ref().map(|input| input.data.as_bytes().as_ptr().addr());
    assert_eq!(at("first"), given);
    assert_ne!(at("second"), given, "the first model has made another");
}

/// Memory of a tensor, which says when it is freed.
struct Memory([u8; 4], Arc<AtomicBool>);

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.1.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_tensor_that_nobody_reads_any_more_is_freed_though_the_request_goes_on() {
    let names = ["first", "second", "third"];
    let mut site = Site::new(names.map(|name| model(name, &["INPUT"], &["OUTPUT"])));
    let ensemble = site.chained(&names);
    site.scene("first").puppet.script([Act::Late]);
    site.scene("third").puppet.script([Act::Late]);
    site.ask(&ensemble, 1);
    let freed = Arc::new(AtomicBool::new(false));
    let data = Buffer::from_owner(Memory([7; 4], freed.clone()));
    site.scene("first").puppet.late().scatter(&[Some(Tensor { data, ..int32(&[1, 1], [0]) })]);
    let third = site.scene("third").puppet.late();
    until("the first model's answer is freed", || freed.load(Ordering::SeqCst));
    let input = third.request(0).and_then(|request| request.inputs[0].as_ref());
    assert_eq!(input.map(|input| input.data.as_bytes()), Some(&[7; 4][..]));
    drop(third);
    assert_eq!(site.error(1).kind, ErrorKind::EngineFailed);
}
