//! Runners that share a resource, of which there is one.

use super::slot_tokens::{Keeper, answer};
use super::*;
use crate::{InstanceRate, ResourceCount, ResourceDemand};

fn scenes(inline: [bool; 2]) -> [Scene; 2] {
    let limiter = Arc::new(RateLimiter::new(Vec::new()));
    // They execute on one watched engine each, and are watched together.
    let seen = Arc::new(Seen::default());
    inline.map(|inline| Scene::limited(inline, &limiter, seen.clone()))
}

fn rate(count: u64) -> InstanceRate {
    let demand = ResourceDemand { name: "r".into(), is_global: false, count };
    InstanceRate { device: None, priority: 1, resources: vec![demand] }
}

impl Scene {
    fn limited(inline: bool, limiter: &Arc<RateLimiter>, seen: Arc<Seen>) -> Self {
        let scene = Self::needing(1, Arc::new(Watched(seen.clone())), limiter, seen);
        if inline {
            scene.run_inline();
        }
        scene
    }

    fn needing(count: u64, engine: Arc<dyn Engine>, limiter: &Arc<RateLimiter>, seen: Arc<Seen>) -> Self {
        let options =
            RunnerOptions { thread_start: || (), limiter: Some(limiter.clone()), ..RunnerOptions::default() };
        let spec = ModelSpec { rates: vec![rate(count)], ..spec() };
        Self { runner: Runner::start(spec, vec![engine], options).unwrap(), seen }
    }
}

#[test]
fn two_models_take_turns_and_both_hear_of_it() {
    for inline in [[true, true], [true, false]] {
        check(2, move || {
            let [first, second] = scenes(inline);
            let other = second.clone();
            let thread = thread::spawn(move || other.ask(2).is_some());
            assert!(first.ask(1).is_some());
            assert!(thread.join().unwrap());
            assert_eq!(first.runner.drain(PATIENCE) + second.runner.drain(PATIENCE), 0);
            assert!(first.runner.retire(PATIENCE));
            second.end(&[1, 2]);
        });
    }
}

#[test]
fn one_that_gives_up_beside_a_permit_keeps_nobody_waiting() {
    check(2, || {
        let [first, second] = scenes([true, true]);
        let other = second.clone();
        let thread = thread::spawn(move || {
            let ticket = other.ask(2).unwrap();
            ticket.cancel();
        });
        assert!(first.ask(1).is_some());
        thread.join().unwrap();
        assert!(first.ask(3).is_some());
        assert_eq!(first.runner.drain(PATIENCE) + second.runner.drain(PATIENCE), 0);
        assert!(first.runner.retire(PATIENCE));
        second.end(&[1, 2, 3]);
    });
}

#[test]
fn one_that_goes_beside_a_permit_keeps_nobody_waiting() {
    check(2, || {
        let [first, second] = scenes([true, true]);
        let other = second.clone();
        let thread = thread::spawn(move || {
            let asked = other.ask(2).is_some();
            assert!(other.runner.retire(PATIENCE));
            asked
        });
        assert!(first.ask(1).is_some());
        assert!(thread.join().unwrap());
        first.end(&[1, 2]);
    });
}

#[test]
fn a_slot_that_begins_to_wait_for_nothing_beside_its_permit_can_be_used_again() {
    for inline in [true, false] {
        check(3, move || {
            let limiter = Arc::new(RateLimiter::new(Vec::new()));
            let scene = Scene::limited(inline, &limiter, Arc::default());
            let other = limiter.add(&[rate(1)]).unwrap()[0].unwrap();
            assert!(limiter.try_take(other));
            let (ticket, admission) = scene.submit(1).unwrap();
            let thread = thread::spawn(move || drive(admission));
            ticket.cancel();
            limiter.give_back(other, true);
            thread.join().unwrap();
            assert!(scene.ask(2).is_some());
            assert_eq!(scene.runner.drain(PATIENCE), 0);
            scene.end(&[1, 2]);
        });
    }
}

/// While it executes, somebody else begins to wait.
struct Asks(Scene);

impl Engine for Asks {
    fn capability(&self) -> Capability {
        Capability { concurrent: false, inline: true, keeps_slots: false }
    }

    fn execute(&self, _slot: &mut Slot, batch: Batch) {
        self.0.ask(3);
        answer(batch);
    }
}

#[test]
fn a_slot_whose_next_request_goes_after_a_batch_is_in_nobodys_way() {
    check(2, || {
        let two = ResourceCount { name: "r".into(), count: 2, device: None };
        let limiter = Arc::new(RateLimiter::new(vec![two]));
        let seen = Arc::new(Seen::default());
        let keeper = Keeper::new(1, true);
        let small = Scene::needing(1, keeper.clone(), &limiter, seen.clone());
        let large = Scene::needing(2, Arc::new(Asks(small.clone())), &limiter, seen);
        large.run_inline();
        let third = limiter.add(&[rate(1)]).unwrap()[0].unwrap();
        // It has had a turn, and so is behind whoever waits.
        assert!(limiter.try_take(third));
        limiter.give_back(third, true);
        let (_ticket, admission) = large.submit(1).unwrap();
        let (ticket, _) = large.submit(2).unwrap();
        let thread = thread::spawn(move || ticket.cancel());
        drive(admission);
        thread.join().unwrap();
        assert!(limiter.try_take(third), "the large one waits for nothing");
        limiter.give_back(third, true);
        let (token, batch) = keeper.kept();
        answer(batch);
        drop(token);
        assert_eq!(large.runner.drain(PATIENCE) + small.runner.drain(PATIENCE), 0);
        assert!(large.runner.retire(PATIENCE));
        small.end(&[1, 2, 3]);
    });
}
