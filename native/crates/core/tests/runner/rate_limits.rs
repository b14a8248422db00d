//! Models that share resources of a rate limiter.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use kushi_core::{
    Batch, Capability, Clock, Engine, Error, ErrorKind, InstanceRate, ModelSpec, RateLimiter, Request,
    ResourceCount, ResourceDemand, Runner, RunnerOptions, Slot, UNANSWERED_PER_SLOT,
};
use kushi_testkit::{Act, PATIENCE, PuppetEngine, Scene, drive, echo_spec, respond, until};

const THREADS: Capability = Capability { concurrent: true, inline: false, keeps_slots: false };
const INLINE: Capability = Capability { concurrent: true, inline: true, keeps_slots: false };
const KEEPS: Capability = Capability { concurrent: true, inline: false, keeps_slots: true };

fn limiter() -> Arc<RateLimiter> {
    Arc::new(RateLimiter::new(Vec::new()))
}

fn rate(device: Option<u32>, resources: &[(&str, u64)]) -> InstanceRate {
    let demand = |&(name, count): &(&str, u64)| ResourceDemand { name: name.into(), is_global: false, count };
    InstanceRate { device, priority: 1, resources: resources.iter().map(demand).collect() }
}

/// Batches of one request, by so many instances that need one `r` each.
fn one_r(instances: usize) -> ModelSpec {
    let rates = vec![rate(None, &[("r", 1)]); instances];
    ModelSpec { instances, rates, max_batch_size: 1, ..echo_spec() }
}

fn scene(limiter: &Arc<RateLimiter>) -> Scene {
    Scene::limited(one_r(1), THREADS, limiter)
}

fn waits(scene: &Scene, requests: usize) {
    until("rest", || scene.runner.at_rest());
    assert_eq!(scene.runner.backlog().requests, requests);
}

fn error(scene: &Scene, key: u64) -> Option<ErrorKind> {
    scene.letters.answer(key).error().map(|error| error.kind)
}

#[test]
fn a_model_waits_in_its_queue_for_what_another_one_has() {
    let limiter = limiter();
    let [first, second] = [(); 2].map(|()| scene(&limiter));
    first.plug();
    second.ask(1..=3);
    waits(&second, 3);
    assert!(second.puppet.seen().is_empty());
    first.puppet.release_all();
    for key in 1..=3 {
        assert_eq!(error(&second, key), None);
    }
    assert_eq!(error(&first, 0), None);
}

#[test]
fn a_model_without_resources_and_one_without_a_limiter_wait_for_nobody() {
    let limiter = limiter();
    let [first, free] = [one_r(1), ModelSpec { rates: vec![rate(None, &[])], ..one_r(1) }]
        .map(|spec| Scene::limited(spec, THREADS, &limiter));
    let unlimited = Scene::without_drivers(one_r(1));
    first.plug();
    for other in [&free, &unlimited] {
        other.ask([1]);
        assert_eq!(error(other, 1), None);
    }
    first.puppet.release_all();
}

#[test]
fn one_instance_waits_while_another_finds_its_resources_free() {
    let limiter = limiter();
    let rates = [rate(Some(0), &[("r", 1)]), rate(Some(1), &[("r", 1)]), rate(None, &[])];
    let on_first = ModelSpec { rates: rates[..1].to_vec(), ..one_r(1) };
    let first = Scene::limited(on_first, THREADS, &limiter);
    first.plug();
    for instances in [2, 3] {
        let rates = rates[..instances].to_vec();
        let many = Scene::limited(ModelSpec { rates, ..one_r(instances) }, THREADS, &limiter);
        many.ask([1]);
        assert_eq!(error(&many, 1), None);
        assert_ne!(many.puppet.seen()[0].slot, 0);
    }
    first.puppet.release_all();
}

#[test]
fn what_waits_can_be_cancelled_and_is_in_nobodys_way() {
    let limiter =
        Arc::new(RateLimiter::new(vec![ResourceCount { name: "r".into(), count: 2, device: None }]));
    let [first, third] = [(); 2].map(|()| scene(&limiter));
    let large = ModelSpec { rates: vec![rate(None, &[("r", 2)])], ..one_r(1) };
    let second = Scene::limited(large, THREADS, &limiter);
    first.plug();
    let ticket = second.submit_rows(1, 1);
    waits(&second, 1);
    third.ask([1]);
    waits(&third, 1);
    assert!(ticket.cancel());
    assert_eq!(error(&second, 1), Some(ErrorKind::Cancelled));
    assert_eq!(error(&third, 1), None, "the second one waits no more");
    first.puppet.release_all();
    second.ask([2]);
    assert_eq!(error(&second, 2), None);
}

/// One instance, or several, that need so much each.
fn needs(each: &[&[(&str, u64)]]) -> ModelSpec {
    let rates = each.iter().map(|resources| rate(None, resources)).collect();
    ModelSpec { rates, ..one_r(each.len()) }
}

fn stated(counts: &[(&str, u64)]) -> Arc<RateLimiter> {
    let count = |&(name, count): &(&str, u64)| ResourceCount { name: name.into(), count, device: None };
    Arc::new(RateLimiter::new(counts.iter().map(count).collect()))
}

#[test]
fn who_waits_hears_of_a_model_by_which_there_is_more() {
    let limiter = limiter();
    let [first, second] = [(); 2].map(|()| scene(&limiter));
    first.plug();
    second.ask([1]);
    waits(&second, 1);
    let large = Scene::limited(needs(&[&[("r", 2)]]), THREADS, &limiter);
    assert_eq!(error(&second, 1), None);
    first.puppet.release_all();
    large.ask([1]);
    assert_eq!(error(&large, 1), None);
}

#[test]
fn a_slot_that_asks_once_its_work_has_gone_is_in_nobodys_way() {
    let limiter = stated(&[("r", 2)]);
    let [first, third] = [(); 2].map(|()| scene(&limiter));
    first.plug();
    let second = Scene::limited(needs(&[&[("r", 2)]]), KEEPS, &limiter);
    let (ticket, lease) = second.lead(second.request(1, 1));
    assert!(ticket.cancel());
    lease.map(drive);
    third.ask([1]);
    assert_eq!(error(&third, 1), None);
    second.puppet.usually(Act::Echo);
    let (_ticket, lease) = second.lead(second.request(2, 1));
    lease.map(drive);
    first.puppet.release_all();
    assert_eq!(error(&second, 2), None);
}

#[test]
fn a_slot_that_asks_once_its_model_has_closed_is_in_nobodys_way() {
    let limiter = stated(&[("r", 2), ("s", 1)]);
    let [first, second] = [needs(&[&[("r", 1)]]), needs(&[&[("s", 1)], &[("r", 2)]])]
        .map(|spec| Scene::limited(spec, KEEPS, &limiter));
    let third = scene(&limiter);
    let kept = [&first, &second].map(|scene| {
        scene.puppet.usually(Act::Keep);
        let (_ticket, lease) = scene.lead(scene.request(1, 1));
        assert_eq!(lease.map(drive), Some(1));
        scene.puppet.kept()
    });
    let (_ticket, lease) = second.lead(second.request(2, 1));
    assert!(!second.runner.retire(Duration::ZERO), "a slot is away");
    assert_eq!(lease.map(drive), Some(1), "the other one asks");
    third.ask([1]);
    assert_eq!(error(&third, 1), None);
    for (token, batch) in kept {
        respond(batch, 0);
        drop(token);
    }
}

#[test]
fn who_waits_for_what_another_slot_drops_waits_no_more() {
    let limiter = stated(&[("r", 1), ("s", 2)]);
    let [of_r, of_s, third] =
        ["r", "s", "s"].map(|name| Scene::limited(needs(&[&[(name, 1)]]), THREADS, &limiter));
    of_r.plug();
    of_s.plug();
    let second = Scene::limited(needs(&[&[("r", 1)], &[("s", 2)]]), THREADS, &limiter);
    let deadline = Some(second.clock.now() + Duration::from_millis(1));
    // Nobody tells it that they expire.
    let _tickets = [1, 2].map(|key| second.submit(Request { deadline, ..second.request(key, 1) }));
    waits(&second, 2);
    third.ask([1]);
    waits(&third, 1);
    second.clock.advance(Duration::from_millis(2));
    of_r.puppet.release_all();
    assert_eq!(error(&second, 1), Some(ErrorKind::DeadlineExceeded));
    assert_eq!(error(&third, 1), None);
    of_s.puppet.release_all();
}

#[test]
fn who_waits_for_what_is_held_back_waits_no_more() {
    let limiter = stated(&[("r", 1), ("s", 2)]);
    let [of_r, of_s, third] =
        ["r", "s", "s"].map(|name| Scene::limited(needs(&[&[(name, 1)]]), THREADS, &limiter));
    let second = Scene::limited(needs(&[&[("r", 1)], &[("s", 2)]]), KEEPS, &limiter);
    second.puppet.usually(Act::Keep);
    of_s.plug();
    let lead = |key| {
        let (_ticket, lease) = second.lead(second.request(key, 1));
        lease.map(drive)
    };
    // One fewer than two slots may leave unanswered.
    let mut unanswered: Vec<_> = (1..2 * UNANSWERED_PER_SLOT as u64)
        .map(|key| {
            lead(key);
            second.puppet.kept().1
        })
        .collect();
    of_r.plug();
    // Either slot asks; one of them may be left to the clock thread.
    for key in [10_008, 10_009] {
        lead(key);
    }
    waits(&second, 2);
    third.ask([1]);
    waits(&third, 1);
    of_r.puppet.release_all();
    assert_eq!(error(&third, 1), None);
    unanswered.push(second.puppet.kept().1);
    of_s.puppet.release_all();
    second.puppet.usually(Act::Echo);
    for batch in unanswered {
        respond(batch, 0);
    }
    for key in [1, 2, 3, 10_008, 10_009] {
        assert_eq!(error(&second, key), None);
    }
}

#[test]
fn a_slot_that_comes_back_late_has_its_resources_until_then() {
    let limiter = limiter();
    let [keeping, other] = [KEEPS, THREADS].map(|capability| Scene::limited(one_r(1), capability, &limiter));
    keeping.puppet.usually(Act::Keep);
    let (_ticket, lease) = keeping.lead(keeping.request(1, 1));
    assert_eq!(lease.map(drive), Some(1));
    other.ask([1]);
    waits(&other, 1);
    let (token, batch) = keeping.puppet.kept();
    respond(batch, 0);
    assert_eq!(error(&keeping, 1), None);
    waits(&other, 1);
    other.puppet.hold();
    drop(token);
    other.puppet.await_batches(1);
    // Its own clock thread takes the next one when there is a permit.
    drop(keeping.lead(keeping.request(2, 1)));
    waits(&keeping, 1);
    keeping.puppet.usually(Act::Echo);
    other.puppet.release_all();
    assert_eq!(error(&keeping, 2), None);
}

#[test]
fn a_batch_that_fails_or_panics_gives_back_what_it_had() {
    let limiter = limiter();
    let [first, second] = [(); 2].map(|()| scene(&limiter));
    let failure = Error::new(ErrorKind::Internal, "it fails");
    for (key, act) in (1..).zip([Act::Panic, Act::Drop, Act::Fail(failure.clone()), Act::Choke("4", failure)])
    {
        first.puppet.script([act]);
        first.ask([key]);
        assert!(error(&first, key).is_some());
        second.ask([key]);
        assert_eq!(error(&second, key), None);
    }
}

#[test]
fn a_model_that_goes_gives_back_what_it_has_and_what_it_waits_for() {
    let limiter = limiter();
    let [first, second, third] = [(); 3].map(|()| scene(&limiter));
    first.plug();
    second.ask([1]);
    waits(&second, 1);
    third.ask([1]);
    waits(&third, 1);
    assert!(second.runner.retire(Duration::ZERO));
    assert_eq!(error(&second, 1), Some(ErrorKind::ShuttingDown));
    thread::scope(|scope| {
        scope.spawn(|| assert!(first.runner.retire(PATIENCE)));
        first.puppet.release_all();
    });
    assert_eq!(error(&third, 1), None);
    // One that does not come back in time keeps its resources until it does.
    third.plug();
    assert!(!third.runner.retire(Duration::ZERO));
    let fourth = scene(&limiter);
    fourth.ask([1]);
    waits(&fourth, 1);
    third.puppet.release_all();
    assert_eq!(error(&fourth, 1), None);
}

#[test]
fn a_version_that_asks_for_too_much_does_not_start_and_leaves_nothing_behind() {
    let limiter =
        Arc::new(RateLimiter::new(vec![ResourceCount { name: "r".into(), count: 1, device: None }]));
    let start = |count| {
        let rates = vec![rate(None, &[("r", count)])];
        let options = RunnerOptions { limiter: Some(limiter.clone()), ..RunnerOptions::default() };
        let engine: Arc<dyn Engine> = Arc::new(PuppetEngine::default());
        Runner::start(ModelSpec { rates, ..one_r(1) }, vec![engine], options)
    };
    let error = start(2).err().unwrap();
    assert_eq!(error.kind, ErrorKind::ConfigInvalid);
    assert!(error.message.starts_with("Resource count for \"r\" is limited to 1 which"), "{error}");
    assert!(start(1).unwrap().retire(PATIENCE));
}

/// Counts what executes on all models together.
struct Busy {
    capability: Capability,
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Engine for Busy {
    fn capability(&self) -> Capability {
        self.capability
    }

    fn execute(&self, _slot: &mut Slot, mut batch: Batch) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        thread::yield_now();
        (0..batch.len()).for_each(|index| batch.end(index, Ok(())));
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn many_models_with_many_requests_share_two_of_a_resource() {
    const REQUESTS: u64 = 600;
    let limiter =
        Arc::new(RateLimiter::new(vec![ResourceCount { name: "r".into(), count: 2, device: None }]));
    let (now, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    // Only to make requests.
    let letters = Scene::without_drivers(echo_spec());
    let runners = [THREADS, INLINE, KEEPS].map(|capability| {
        let engines = [(); 3]
            .map(|()| Arc::new(Busy { capability, now: now.clone(), most: most.clone() }) as Arc<dyn Engine>);
        let options = RunnerOptions { limiter: Some(limiter.clone()), ..RunnerOptions::default() };
        Runner::start(one_r(3), engines.to_vec(), options).unwrap()
    });
    thread::scope(|scope| {
        for (model, runner) in (0..).zip(&runners) {
            let letters = &letters;
            scope.spawn(move || {
                for number in 0..REQUESTS {
                    let Ok((ticket, admission)) =
                        runner.submit(letters.request(model * REQUESTS + number, 1))
                    else {
                        panic!("it is taken in")
                    };
                    if let kushi_core::Admission::Lead(lease) = admission {
                        drive(lease);
                    }
                    if number % 7 == 0 {
                        ticket.cancel();
                    }
                }
            });
        }
    });
    for key in 0..3 * REQUESTS {
        letters.letters.answer(key);
    }
    assert_eq!(most.load(Ordering::SeqCst), 2);
    for runner in runners {
        until("rest", || runner.at_rest());
        assert!(runner.retire(PATIENCE));
    }
}
