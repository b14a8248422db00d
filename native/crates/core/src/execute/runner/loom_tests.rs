//! A whole runner in loom: who leads a slot, who ends a request, and when a drain ends. Its instance thread is loom's,
//! too.

use std::time::Duration;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use loom::thread;

use super::*;

mod rates;
mod slot_tokens;

use crate::{
    Batching, Bound, Capability, Context, Inputs, Mail, Mailbox, QueuePolicy, QueueSpec, Reply, Step,
    TimeoutAction, Wanted,
};

const PATIENCE: Duration = Duration::from_secs(3600);

/// Counts what happens with the standard library's atomics, which add no interleavings of their own.
#[derive(Default)]
struct Seen {
    executing: AtomicUsize,
    overlapped: AtomicBool,
    failed: AtomicBool,
    ends: Mutex<Vec<u64>>,
}

impl Seen {
    fn ends(&self) -> Vec<u64> {
        let mut ends = lock(&self.ends).clone();
        ends.sort_unstable();
        ends
    }
}

impl Mailbox for Seen {
    fn deliver(&self, mail: Vec<Mail>) {
        if mail.iter().filter_map(|mail| mail.end.as_ref()).any(|end| end.result.is_err()) {
            self.failed.store(true, Ordering::SeqCst);
        }
        lock(&self.ends).extend(mail.iter().filter(|mail| mail.end.is_some()).map(|mail| mail.key));
    }
}

struct Watched(Arc<Seen>);

impl Engine for Watched {
    fn capability(&self) -> Capability {
        Capability { concurrent: false, inline: true, keeps_slots: false }
    }

    fn execute(&self, _slot: &mut Slot, mut batch: Batch) {
        if self.0.executing.fetch_add(1, Ordering::SeqCst) > 0 {
            self.0.overlapped.store(true, Ordering::SeqCst);
        }
        (0..batch.len()).for_each(|index| batch.end(index, Ok(())));
        self.0.executing.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Of one instance, in batches of one request.
fn spec() -> ModelSpec {
    let level = QueuePolicy {
        max_requests: 0,
        default_timeout_us: 0,
        allow_timeout_override: false,
        timeout_action: TimeoutAction::Reject,
    };
    ModelSpec {
        name: "m".into(),
        version: 1,
        platform: String::new(),
        backend: String::new(),
        max_batch_size: 1,
        inputs: vec![],
        outputs: vec![],
        batching: Some(Batching {
            preferred_batch_sizes: vec![],
            max_queue_delay_us: 0,
            preserve_ordering: false,
        }),
        queue: QueueSpec { max_bytes: 1 << 20, levels: vec![level], default_level: 1, ragged: Vec::new() },
        instances: 1,
        cores: Vec::new(),
        rates: Vec::new(),
        inline: true,
        config_json: String::new(),
        config_message: Vec::new(),
        decoupled: false,
        load_seconds: 0.0,
        metrics: crate::MetricsSpec::default(),
    }
}

#[derive(Clone)]
struct Scene {
    runner: Arc<Runner>,
    seen: Arc<Seen>,
}

impl Scene {
    /// One slot.
    fn new(inline: bool) -> Self {
        let seen = Arc::new(Seen::default());
        let scene = Self::on(Arc::new(Watched(seen.clone())), seen);
        if inline {
            scene.run_inline();
        }
        scene
    }

    fn run_inline(&self) {
        let (short, handover) = (Duration::ZERO, &self.runner.handover);
        handover.with(|state| while state.gate.record(short, Some(short)) == Placement::Threads {});
        handover.set_inline();
    }

    fn on(engine: Arc<dyn Engine>, seen: Arc<Seen>) -> Self {
        let options = RunnerOptions { thread_start: || (), ..RunnerOptions::default() };
        Self { runner: Runner::start(spec(), vec![engine], options).unwrap(), seen }
    }

    /// Submits a request and drives the lease that comes of it. `None` if it is refused.
    fn ask(&self, key: u64) -> Option<Ticket> {
        self.ask_as_child(key, Context::default())
    }

    fn ask_as_child(&self, key: u64, context: Context) -> Option<Ticket> {
        let (ticket, admission) = self.submit_as_child(key, context)?;
        drive(admission);
        Some(ticket)
    }

    fn submit(&self, key: u64) -> Option<(Ticket, Admission)> {
        self.submit_as_child(key, Context::default())
    }

    fn submit_as_child(&self, key: u64, context: Context) -> Option<(Ticket, Admission)> {
        let bound = Bound { inputs: Inputs::default(), wanted: Wanted::default(), rows: 1 };
        let request = Request::new(bound, Instant::now(), Reply::new(self.seen.clone(), key));
        let request = Box::new(Request { context, ..request });
        self.runner.submit(request).ok()
    }

    /// That of a model without a runner.
    fn other_ledger(&self) -> Arc<Ledger> {
        Arc::new(Ledger::new(
            self.runner.spec().as_ref().clone(),
            Arc::new(SystemClock),
            None,
            Arc::new(|| ()),
        ))
    }

    /// What must hold at the end, whatever the order was.
    fn end(self, ends: &[u64]) {
        assert!(self.runner.retire(PATIENCE));
        assert_eq!(self.seen.ends(), ends, "each request that was taken in has one end");
        assert!(!self.seen.overlapped.load(Ordering::SeqCst), "one leader at a time runs the slot");
    }
}

fn drive(admission: Admission) {
    if let Admission::Lead(mut lease) = admission {
        while let Step::Again(next) = lease.run() {
            lease = next;
        }
    }
}

fn check(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 10_000;
    model.check(body);
}

#[test]
fn two_submitters_have_one_leader_and_two_answers() {
    for inline in [true, false] {
        check(2, move || {
            let scene = Scene::new(inline);
            let other = scene.clone();
            let thread = thread::spawn(move || other.ask(2).is_some());
            assert!(scene.ask(1).is_some());
            assert!(thread.join().unwrap());
            scene.end(&[1, 2]);
        });
    }
}

#[test]
fn a_queue_that_is_changed_loses_nobody_who_waits_and_nobody_who_comes() {
    for inline in [true, false] {
        check(2, move || {
            let scene = Scene::new(inline);
            let (first, lead) = scene.submit(1).unwrap();
            let other = scene.clone();
            let thread = thread::spawn(move || other.ask(2).is_some());
            let ModelSpec { batching, queue, .. } = spec();
            scene.runner.reschedule(Scheduling { batching, queue });
            drive(lead);
            assert!(thread.join().unwrap());
            drop(first);
            scene.end(&[1, 2]);
        });
    }
}

#[test]
fn a_drain_waits_for_whoever_got_in_and_nobody_gets_in_behind_it() {
    for inline in [true, false] {
        check(2, move || {
            let scene = Scene::new(inline);
            let other = scene.clone();
            let thread = thread::spawn(move || other.ask(1).is_some());
            assert_eq!(scene.runner.drain(PATIENCE), 0);
            let ended = scene.seen.ends();
            let taken = thread.join().unwrap();
            assert_eq!(ended, if taken { vec![1] } else { vec![] }, "the drain has ended");
            assert!(scene.ask(2).is_none());
            scene.end(&ended);
        });
    }
}

#[test]
fn a_retirement_waits_for_a_pipeline_that_was_there_before_it() {
    for inline in [true, false] {
        check(2, move || {
            let scene = Scene::new(inline);
            let context = Context::pinning([scene.runner.pin().unwrap()]);
            let other = scene.clone();
            let thread = thread::spawn(move || other.ask_as_child(1, context).is_some());
            assert!(scene.runner.retire(PATIENCE));
            assert!(thread.join().unwrap(), "it is let in");
            assert!(!scene.seen.failed.load(Ordering::SeqCst));
            scene.end(&[1]);
        });
    }
}

#[test]
fn a_child_of_others_that_meets_a_retirement_is_answered_or_refused() {
    check(2, || {
        let scene = Scene::new(true);
        let context = Context::of_child(&scene.other_ledger());
        let other = scene.clone();
        let thread = thread::spawn(move || other.ask_as_child(1, context).is_some());
        assert!(scene.runner.retire(PATIENCE));
        let taken = thread.join().unwrap();
        assert!(!scene.seen.failed.load(Ordering::SeqCst), "the retirement has ended no request");
        scene.end(if taken { &[1] } else { &[] });
    });
}

#[test]
fn a_drain_waits_for_children_that_a_request_leaves_behind() {
    check(3, || {
        let scene = Scene::new(false);
        let ledger = scene.other_ledger();
        ledger.admitted();
        let (parent, released) = (ledger.clone(), Arc::new(AtomicBool::new(false)));
        let releases = released.clone();
        let thread = thread::spawn(move || {
            let context = Context::of_child(&parent);
            parent.ended(1);
            releases.store(true, Ordering::SeqCst);
            drop(context);
        });
        ledger.stop_admitting();
        assert_eq!(ledger.wait_until_quiet(Instant::now() + PATIENCE), 0);
        assert!(released.load(Ordering::SeqCst), "it was there all the time");
        thread.join().unwrap();
        scene.end(&[]);
    });
}

#[test]
fn whoever_gives_up_hears_one_end() {
    check(2, || {
        let scene = Scene::new(false);
        let ticket = scene.ask(1).unwrap();
        let thread = thread::spawn(move || ticket.cancel());
        assert_eq!(scene.runner.drain(PATIENCE), 0);
        assert_eq!(scene.seen.ends(), [1], "the drain has ended");
        thread.join().unwrap();
        scene.end(&[1]);
    });
}

#[test]
fn a_lease_that_is_dropped_goes_to_the_instance_thread() {
    check(2, || {
        let scene = Scene::new(true);
        let slot = scene.runner.handover.admit(Instant::now(), |_| Ok::<_, ()>(())).unwrap().1;
        let other = scene.clone();
        // Somebody leads already: it is left to them.
        let thread = thread::spawn(move || other.ask(1).is_some());
        drop(slot.map(|slot| scene.runner.lease(slot)));
        assert!(thread.join().unwrap());
        assert_eq!(scene.runner.drain(PATIENCE), 0);
        scene.end(&[1]);
    });
}
