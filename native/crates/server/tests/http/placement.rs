//! Who runs the batches of a model under a real load.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

use kushi_core::Placement;
use kushi_testkit::{echo_spec, until};

use crate::site::Site;

#[test]
fn a_model_moves_inline_and_back_while_two_io_threads_serve() {
    let site = Site::new(2, echo_spec());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for client in 0..4 {
            let (site, stop) = (&site, &stop);
            scope.spawn(move || {
                let mut connection = site.connect();
                let mut value = client;
                while !stop.load(Ordering::Relaxed) {
                    connection.send(value, "");
                    assert!(connection.receive().echoes(value));
                    value += 4;
                }
            });
        }
        let runner = &site.runner;
        let is = |placement| move || runner.placement() == placement;
        let threads_since = |batch: usize| -> HashSet<ThreadId> {
            site.puppet.seen()[batch..].iter().map(|seen| seen.thread).collect()
        };
        for _ in 0..2 {
            until("inline execution", is(Placement::Inline));
            let batch = site.puppet.seen().len();
            until("work on both io threads", || threads_since(batch).len() >= 2);
            site.puppet.spins(Duration::from_millis(5));
            until("threads of its own", is(Placement::Threads));
            site.puppet.spins(Duration::ZERO);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_long_batch_on_an_io_thread_keeps_no_new_client_out() {
    let site = Site::new(2, echo_spec());
    let mut busy = site.connect();
    while site.runner.placement() != Placement::Inline {
        busy.send(1, "");
        assert!(busy.receive().echoes(1));
    }
    until("rest", || site.runner.at_rest());
    site.puppet.hold();
    let before = site.puppet.seen();
    busy.send(2, "");
    site.puppet.await_batches(before.len() + 1);
    let mut new = site.connect();
    assert_eq!(new.get("/v2/health/live").status, 200);
    site.puppet.release_all();
    assert!(busy.receive().echoes(2));
}
