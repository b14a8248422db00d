//! A run that does not end by itself ends when nobody waits for it, when its model goes, and where it is in
//! the way of others.

use std::sync::Arc;
use std::time::Duration;

use kushi_core::{
    Batch, Batching, Capability, Clock, Engine, Error, ErrorKind, ModelSpec, Placement, Runner,
    RunnerOptions, Slot, State,
};
use kushi_testkit::{Act, ManualClock, PATIENCE, PuppetEngine, Scene, drive, echo_spec, until};

const LONG: Duration = Duration::from_secs(1);

fn kind(scene: &Scene, key: u64) -> Option<ErrorKind> {
    scene.letters.answer(key).error().map(|error| error.kind)
}

/// Requests 1 and 2 as one batch, the second on the engine.
fn endless_batch_of_two(scene: &Scene) -> Vec<kushi_core::Ticket> {
    scene.plug();
    scene.puppet.script([Act::Endless]);
    let tickets = scene.ask([1, 2]);
    scene.puppet.release_all();
    scene.puppet.await_batches(2);
    scene.letters.answer(0);
    tickets
}

#[test]
fn ends_when_the_last_of_its_callers_leaves() {
    let scene = Scene::new(echo_spec());
    let tickets = endless_batch_of_two(&scene);
    assert!(tickets[0].cancel());
    assert_eq!(scene.runner.inside(), 2, "somebody waits");
    assert!(tickets[1].cancel());
    assert_eq!([1, 2].map(|key| kind(&scene, key)), [Some(ErrorKind::Cancelled); 2]);
    scene.ask([3]);
    assert_eq!(kind(&scene, 3), None, "the instance is back, and the order to end is not for the next run");
    assert_eq!(scene.puppet.seen().len(), 3, "what nobody waits for is not executed again");
}

/// Ends its runs only where its model goes, as an engine does that loses by it what the model has learnt.
struct Faithful(Arc<PuppetEngine>);

impl Engine for Faithful {
    fn capability(&self) -> Capability {
        self.0.capability()
    }

    fn execute(&self, slot: &mut Slot, batch: Batch) {
        self.0.execute(slot, batch);
    }

    fn stop_run(&self, slot: usize) -> bool {
        self.0.end_run(slot)
    }

    fn revoke_end(&self, slot: usize) {
        self.0.revoke_end(slot);
    }
}

#[test]
fn may_end_only_where_its_model_goes() {
    let (clock, puppet) = (Arc::new(ManualClock::default()), Arc::new(PuppetEngine::default()));
    let options = RunnerOptions { clock: clock.clone(), ..RunnerOptions::default() };
    let runner = Runner::start(echo_spec(), vec![Arc::new(Faithful(puppet.clone()))], options).unwrap();
    let scene = Scene { clock, letters: Arc::default(), puppet, leases: Arc::default(), runner };
    scene.puppet.script([Act::Endless]);
    let tickets = scene.ask([1]);
    scene.puppet.await_batches(1);
    assert!(tickets[0].cancel());
    scene.clock.advance(3 * LONG);
    scene.runner.renew_runs();
    assert_eq!(scene.runner.inside(), 1, "it goes on without its caller");
    assert!(scene.runner.retire(Duration::ZERO));
    assert_eq!((scene.runner.state(), scene.runner.inside()), (State::Unloaded, 0));
}

#[test]
fn goes_on_without_a_caller_that_has_left_and_may_be_the_reason() {
    let scene = Scene::new(echo_spec());
    let tickets = endless_batch_of_two(&scene);
    scene.clock.advance(3 * LONG);
    scene.runner.renew_runs();
    assert!(tickets[0].cancel());
    scene.clock.advance(2 * LONG);
    scene.runner.renew_runs();
    assert_eq!(scene.runner.inside(), 2, "for as long as it took by then it may go on");
    scene.clock.advance(2 * LONG);
    scene.runner.renew_runs();
    assert_eq!(kind(&scene, 2), None);
    assert_eq!(kind(&scene, 1), Some(ErrorKind::Cancelled));
    let seen = scene.puppet.seen();
    assert_eq!(seen[2].ids, ["2"]);
    scene.ask([3]);
    assert_eq!(kind(&scene, 3), None);
}

#[test]
fn ends_at_the_deadline_of_its_requests() {
    let scene = Scene::new(echo_spec());
    scene.puppet.script([Act::Endless]);
    let request = |key| {
        let deadline = Some(scene.clock.now() + LONG);
        kushi_core::Request { deadline, ..scene.request(key, 1) }
    };
    let ticket = scene.submit(request(1));
    scene.puppet.await_batches(1);
    assert!(!ticket.expire(), "not yet");
    scene.clock.advance(LONG);
    assert!(ticket.expire());
    assert_eq!(kind(&scene, 1), Some(ErrorKind::DeadlineExceeded));
    scene.ask([2]);
    assert_eq!(kind(&scene, 2), None);
}

#[test]
fn one_that_is_cancelled_after_its_answer_ends_no_run() {
    let scene = Scene::new(echo_spec());
    let ticket = scene.submit_rows(1, 1);
    scene.letters.answer(1);
    scene.puppet.hold();
    scene.ask([2]);
    scene.puppet.await_batches(2);
    assert!(!ticket.cancel());
    scene.puppet.release_all();
    assert_eq!(kind(&scene, 2), None);
}

#[test]
fn a_request_that_is_executed_alone_ends_with_its_own_caller() {
    let scene = Scene::new(echo_spec());
    let choke = Act::Choke("1", Error::new(ErrorKind::EngineFailed, "of its data"));
    scene.plug();
    scene.puppet.script([choke.clone(), choke, Act::Endless]);
    let tickets = scene.ask([1, 2, 3]);
    scene.puppet.release_all();
    assert_eq!(scene.letters.answer(1).error().map(|error| &*error.message), Some("of its data"));
    scene.puppet.await_batches(4);
    assert!(tickets[1].cancel());
    assert_eq!(kind(&scene, 2), Some(ErrorKind::Cancelled));
    assert_eq!(kind(&scene, 3), None, "the neighbour is executed");
}

#[test]
fn a_model_that_goes_ends_its_runs_after_the_time_that_they_have() {
    let scene = Scene::new(echo_spec());
    endless_batch_of_two(&scene);
    scene.ask([3]);
    assert!(scene.runner.retire(Duration::from_millis(200)), "the instance came back");
    assert_eq!(scene.runner.state(), State::Unloaded);
    for key in [1, 2] {
        let answer = scene.letters.answer(key);
        let Some(Error { kind, message }) = answer.error() else { panic!("it cannot have been answered") };
        assert_eq!(*kind, ErrorKind::ShuttingDown);
        assert_eq!(*message, "the run was ended, because model 'echo' is being stopped");
    }
    assert_eq!(kind(&scene, 3), Some(ErrorKind::ShuttingDown), "what waits is refused");
}

#[test]
fn what_begins_after_the_order_to_stop_ends_as_well() {
    let scene = Scene::new(echo_spec());
    assert!(!scene.runner.end_runs(), "nothing is executed");
    scene.puppet.script([Act::Endless]);
    scene.ask([1]);
    assert_eq!(kind(&scene, 1), Some(ErrorKind::ShuttingDown));
}

#[test]
fn one_that_keeps_an_io_thread_begins_again_on_an_instance_thread() {
    let ordered = Batching { preferred_batch_sizes: vec![], max_queue_delay_us: 0, preserve_ordering: true };
    for batching in [echo_spec().batching, Some(ordered)] {
        let scene = Scene::new(ModelSpec { batching, ..echo_spec() });
        scene.earn_inline();
        let before = scene.puppet.seen().len();
        scene.puppet.script([Act::Endless, Act::Endless]);
        let (ticket, lease) = scene.lead(scene.request(1, 1));
        let lease = lease.expect("an io thread leads");
        let here = std::thread::current().id();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                scene.puppet.await_batches(before + 1);
                scene.runner.renew_runs();
                assert_eq!(scene.puppet.seen().len(), before + 1, "it is not long yet");
                scene.clock.advance(LONG);
                scene.runner.renew_runs();
            });
            drive(lease);
        });
        let seen = scene.puppet.await_batches(before + 2);
        assert_eq!(seen[before].thread, here);
        assert_ne!(seen[before + 1].thread, here);
        assert_eq!(
            (&seen[before].ids, scene.runner.placement()),
            (&seen[before + 1].ids, Placement::Threads)
        );
        scene.clock.advance(LONG);
        scene.runner.renew_runs();
        assert_eq!(scene.runner.inside(), 1, "on an instance thread it may take its time");
        assert!(ticket.cancel());
        assert_eq!(kind(&scene, 1), Some(ErrorKind::Cancelled));
        scene.ask([2]);
        assert_eq!(kind(&scene, 2), None);
    }
}

#[test]
fn what_leaves_an_io_thread_leaves_behind_who_does_not_wait() {
    let scene = Scene::new(echo_spec());
    scene.earn_inline();
    let before = scene.puppet.seen().len();
    scene.puppet.script([Act::Endless]);
    let (ticket, lease) = scene.lead(scene.request(1, 1));
    let lease = lease.expect("an io thread leads");
    scene.submit(scene.request(2, 2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            scene.puppet.await_batches(before + 1);
            assert!(ticket.cancel());
            scene.clock.advance(LONG);
            scene.runner.renew_runs();
        });
        drive(lease);
    });
    assert_eq!(scene.letters.answer(2).error(), None);
    let seen = scene.puppet.seen();
    assert_eq!(
        (&*seen[before].ids, &*seen[before + 1].ids),
        (&["1".into(), "2".into()][..], &["2".into()][..])
    );
    assert_eq!(seen[before + 1].rows, 2);
}

#[test]
fn what_is_executed_alone_and_leaves_an_io_thread_takes_its_neighbours_along() {
    let scene = Scene::new(echo_spec());
    scene.earn_inline();
    let choke = Act::Choke("1", Error::new(ErrorKind::EngineFailed, "of its data"));
    let before = scene.puppet.seen().len();
    scene.puppet.script([choke.clone(), choke, Act::Endless]);
    let (_ticket, lease) = scene.lead(scene.request(1, 1));
    let lease = lease.expect("an io thread leads");
    scene.ask([2, 3]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            scene.puppet.await_batches(before + 3);
            scene.clock.advance(LONG);
            scene.runner.renew_runs();
        });
        drive(lease);
    });
    assert_eq!([2, 3].map(|key| kind(&scene, key)), [None; 2]);
}

#[test]
fn what_left_an_io_thread_is_refused_when_the_model_goes() {
    let scene = Scene::new(ModelSpec { instances: 1, ..echo_spec() });
    scene.earn_inline();
    let before = scene.puppet.seen().len();
    scene.puppet.usually(Act::Endless);
    let (_ticket, lease) = scene.lead(scene.request(1, 1));
    let lease = lease.expect("an io thread leads");
    std::thread::scope(|scope| {
        let retired = scope.spawn(|| {
            scene.puppet.await_batches(before + 1);
            scene.runner.retire(Duration::ZERO)
        });
        drive(lease);
        assert!(retired.join().expect("no panic"));
    });
    assert_eq!(kind(&scene, 1), Some(ErrorKind::ShuttingDown));
    until("the end", || scene.runner.drain(PATIENCE) == 0);
}

/// Requests 1.. in one run on this thread, which takes it long; `meanwhile` happens while it does.
fn keep_an_io_thread(
    scene: &Scene,
    keys: &[u64],
    meanwhile: impl FnOnce(&[kushi_core::Ticket]) + Send,
) -> Vec<kushi_core::Ticket> {
    let (first, lease) = scene.lead(scene.request(keys[0], 1));
    let mut tickets = vec![first];
    tickets.extend(scene.ask(keys[1..].iter().copied()));
    let lease = lease.expect("an io thread leads");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            meanwhile(&tickets);
            scene.clock.advance(LONG);
            scene.runner.renew_runs();
        });
        drive(lease);
    });
    tickets
}

#[test]
fn what_left_an_io_thread_is_executed_without_those_that_have_ended() {
    let scene = Scene::new(echo_spec());
    scene.earn_inline();
    let before = scene.puppet.seen().len();
    scene.puppet.script([Act::Endless]);
    keep_an_io_thread(&scene, &[1, 2], |tickets| {
        scene.puppet.await_batches(before + 1);
        assert!(tickets[0].cancel());
    });
    assert_eq!(kind(&scene, 1), Some(ErrorKind::Cancelled));
    assert_eq!(kind(&scene, 2), None, "somebody waits for it");
    let seen = scene.puppet.seen();
    assert_eq!((seen[before].rows, seen[before + 1].rows, seen.len()), (2, 1, before + 2));
}

#[test]
fn what_left_an_io_thread_ends_with_the_last_of_its_callers() {
    let scene = Scene::new(echo_spec());
    scene.earn_inline();
    let before = scene.puppet.seen().len();
    scene.puppet.script([Act::Endless, Act::Endless]);
    let tickets = keep_an_io_thread(&scene, &[1, 2], |tickets| {
        scene.puppet.await_batches(before + 1);
        assert!(tickets[0].cancel());
    });
    scene.puppet.await_batches(before + 2);
    assert!(tickets[1].cancel());
    assert_eq!([1, 2].map(|key| kind(&scene, key)), [Some(ErrorKind::Cancelled); 2]);
}

#[test]
fn those_behind_one_that_left_an_io_thread_alone_are_executed_together() {
    let scene = Scene::new(echo_spec());
    scene.earn_inline();
    let before = scene.puppet.seen().len();
    let choke = Act::Choke("1", Error::new(ErrorKind::EngineFailed, "of its data"));
    scene.puppet.script([choke.clone(), choke, Act::Endless]);
    keep_an_io_thread(&scene, &[1, 2, 3], |_| drop(scene.puppet.await_batches(before + 3)));
    assert_eq!(scene.letters.answer(1).error().map(|error| &*error.message), Some("of its data"));
    assert_eq!([2, 3].map(|key| kind(&scene, key)), [None; 2]);
}
